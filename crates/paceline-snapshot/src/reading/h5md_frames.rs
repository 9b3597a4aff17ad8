//! Reading of frames whose numbers are at known offsets in the file (H5MD).

use std::fs::File;
use std::ops::Range;
use std::path::Path;

use paceline_formats::Fields;
use paceline_formats::error::{self, Error};
use paceline_formats::os_calls::{path_of_bytes, read_at};

use super::frames::owners_of;
use super::{
    AtomSource, AtomTable, CHARGES, IDS, Known, MASSES, Moment, NAMES, POSITIONS, Settings,
    distribute, widths,
};
use crate::agreement_and_communicator::agree;
use crate::file::h5md::{FrameArrays, H5mdReader};
use crate::file::{Heading, Property};
use crate::{Communicator, Failure, Reduce, Result};

/// Number of words that ranks exchange to agree on a frame.
const N_WORDS: usize = 4 + 2 + 3 + 9;

/// Description of a frame, the same on all ranks.
pub struct ArrayFrame {
    moment: Moment,
    n_atoms: u64,
    fields: Fields,
    is_double: bool,
    /// True for each of [`Property::ALL`] that is stored.
    properties: [bool; 3],
    arrays: FrameArrays,
}

impl ArrayFrame {
    /// Find a frame in the file, which rank 0 has open. The call is collective.
    pub fn find(
        comm: &dyn Communicator,
        path: &Path,
        file: Option<&H5mdReader>,
        n_atoms: u64,
        number: u64,
    ) -> Result<Self> {
        let found = file.map(|file| Ok((file.frame(number)?, file)));
        let found = agree(comm, path, found.transpose())?;
        let mut words = found.map_or([0; N_WORDS], |(arrays, file)| {
            words_of(&arrays, file.contents().fields, file)
        });
        comm.all_reduce(&mut words, Reduce::Sum)?;
        let names = comm.all_gather(path.as_os_str().as_encoded_bytes())?;
        let [fields, is_double, properties, has_cell, step, time, ..] = words;
        let cell =
            std::array::from_fn(|i| std::array::from_fn(|j| f64::from_bits(words[9 + 3 * i + j])));
        Ok(ArrayFrame {
            moment: Moment {
                path: path_of_bytes(&names[0]),
                frame: number,
            },
            n_atoms,
            fields: Fields::from_bits(fields as u8),
            is_double: is_double != 0,
            properties: std::array::from_fn(|k| properties >> k & 1 != 0),
            arrays: FrameArrays {
                starts: [words[6], words[7], words[8]],
                heading: Heading {
                    step: step as i64,
                    time: f64::from_bits(time),
                    cell: (has_cell != 0).then_some(cell),
                },
            },
        })
    }

    /// Step, time and cell of the frame.
    pub fn heading(&self) -> Heading {
        self.arrays.heading
    }

    /// Read the frame, and return the atoms of this rank; `None` if another rank failed. The call
    /// is collective.
    pub fn distribute(
        &self,
        comm: &dyn Communicator,
        readers: &[usize],
        buffer: usize,
        grid: Option<[u32; 3]>,
    ) -> error::Result<Option<AtomTable>> {
        let [masses, charges, names] = self.properties;
        let known = Known {
            names,
            masses,
            charges,
        };
        let cell = self.arrays.heading.cell;
        let mut owners = owners_of(
            comm,
            &self.moment,
            self.n_atoms,
            self.fields,
            cell,
            grid.map(|shape| (shape, false)),
        )?;
        let settings = Settings {
            moment: &self.moment,
            n_atoms: self.n_atoms,
            n_places: self.n_atoms,
            widths: widths(self.fields, self.is_double, known),
            readers,
            buffer,
            ranges: grid.is_none(),
        };
        let mut source = ArraySource {
            frame: self,
            file: None,
            properties: None,
        };
        let source: Option<&mut dyn AtomSource> = match readers.contains(&comm.rank()) {
            true => Some(&mut source),
            false => None,
        };
        Ok(distribute(comm, settings, source, &mut *owners)?.map(|(atoms, _)| atoms))
    }
}

fn words_of(arrays: &FrameArrays, fields: Fields, file: &H5mdReader) -> [u64; N_WORDS] {
    let Heading { step, time, cell } = arrays.heading;
    let there = file.properties();
    let mut words = [0; N_WORDS];
    words[..6].copy_from_slice(&[
        fields.bits().into(),
        file.is_double().into(),
        (0..3).map(|k| u64::from(there[k]) << k).sum(),
        cell.is_some().into(),
        step as u64,
        time.to_bits(),
    ]);
    words[6..9].copy_from_slice(&arrays.starts);
    let cell = cell.unwrap_or_default();
    for (word, number) in words[9..].iter_mut().zip(cell.as_flattened()) {
        *word = number.to_bits();
    }
    words
}

/// Source of the atoms, for one reading rank. Files are opened when atoms are first requested.
struct ArraySource<'a> {
    frame: &'a ArrayFrame,
    file: Option<File>,
    /// Reader that reads the properties of atoms through HDF5, if the file stores properties.
    properties: Option<H5mdReader>,
}

impl AtomSource for ArraySource<'_> {
    fn read(&mut self, places: Range<u64>, table: &mut AtomTable) -> error::Result<()> {
        let ids = (places.start + 1..=places.end).flat_map(u64::to_ne_bytes);
        table.column_mut(IDS).extend(ids);
        let fields = self.frame.fields;
        let there = [fields.positions, fields.velocities, fields.forces];
        for (k, _) in there.iter().enumerate().filter(|(_, there)| **there) {
            let start = self.frame.arrays.starts[k];
            self.read_vectors(start, &places, table.column_mut(POSITIONS + k))?;
        }
        let columns = [MASSES, CHARGES, NAMES];
        for ((property, column), there) in Property::ALL
            .into_iter()
            .zip(columns)
            .zip(self.frame.properties)
        {
            if there {
                let values = self.property(property, places.clone())?;
                table.column_mut(column).extend(values);
            }
        }
        Ok(())
    }

    fn held(&self) -> usize {
        0
    }
}

impl ArraySource<'_> {
    fn read_vectors(
        &mut self,
        start: u64,
        places: &Range<u64>,
        column: &mut Vec<u8>,
    ) -> error::Result<()> {
        let path = &self.frame.moment.path;
        let refuse = |source| Error::io(path, "cannot read", source);
        let file = match self.file.take() {
            Some(file) => file,
            None => File::open(path).map_err(refuse)?,
        };
        let (size, width) = match self.frame.is_double {
            true => (8, 24),
            false => (4, 12),
        };
        let first = column.len();
        column.resize(first + ((places.end - places.start) * width) as usize, 0);
        let (mut at, mut offset) = (first, start + places.start * width);
        while at < column.len() {
            match read_at(&file, &mut column[at..], offset) {
                Ok(0) => {
                    let what = "it ends within the frame";
                    return Err(self.frame.moment.unsupported(what));
                }
                Ok(n) => (at, offset) = (at + n, offset + n as u64),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(refuse(error)),
            }
        }
        if cfg!(target_endian = "big") {
            column[first..]
                .chunks_exact_mut(size)
                .for_each(<[u8]>::reverse);
        }
        self.file = Some(file);
        Ok(())
    }

    fn property(&mut self, property: Property, places: Range<u64>) -> error::Result<Vec<u8>> {
        let moment = &self.frame.moment;
        let plain = |failure: Failure| match failure {
            Failure::Error(error) => error,
            failure => moment.unsupported(failure.to_string()),
        };
        let reader = match self.properties.take() {
            Some(reader) => reader,
            None => H5mdReader::open(&moment.path).map_err(plain)?,
        };
        let values = reader.property(property, places).map_err(plain)?;
        self.properties = Some(reader);
        Ok(values)
    }
}
