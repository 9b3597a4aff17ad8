//! Reading of a file's frames by all ranks together.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use paceline_formats::atom_set::Atoms;
use paceline_formats::block_reader::{BlockOut, BlockReader, Extents, Numbers};
use paceline_formats::dlpoly::encode::Cell;
use paceline_formats::error::{self, Error};
use paceline_formats::fingerprint::Samples;
use paceline_formats::format_list::STANDARD;
use paceline_formats::os_calls::path_of_bytes;
use paceline_formats::source::{FileSource, Source};
use paceline_formats::trajectory::Trajectory;
use paceline_formats::{Fields, Layout, UnitCell, dlpoly};

#[cfg(all(unix, target_pointer_width = "64"))]
use super::h5md_frames::ArrayFrame;
use super::{
    AtomSource, AtomTable, ById, Grid, IDS, Known, Moment, Owners, POSITIONS, Settings, Text,
    distribute, widths,
};
use crate::agreement_and_communicator::agree;
use crate::collective_writer::{
    Call, absolute, check_call, check_same, choose_readers, next_number,
};
use crate::file::Heading;
#[cfg(all(unix, target_pointer_width = "64"))]
use crate::file::h5md::H5mdReader;
use crate::{Communicator, Reduce, Result};

/// First bytes of an HDF5 file.
const HDF5: &[u8; 8] = b"\x89HDF\r\n\x1a\n";

/// Name of the format of LAMMPS dumps.
const LAMMPS: &str = "LAMMPSDUMP";

/// Options of a reader. They are the same on all ranks, except that only rank 0's path is used.
#[derive(Debug, Clone)]
pub struct Options {
    /// CONFIG, REVCON, HISTORY, NetCDF, DCD, XTC, TRR, or an H5MD file that this crate wrote.
    pub path: PathBuf,
    /// Number of reading ranks; by default, see [`choose_readers`].
    pub n_readers: Option<usize>,
    /// Maximum memory of a rank in addition to its own atoms, bytes.
    pub buffer: usize,
}

/// Atoms of one rank in a frame.
pub struct Snapshot {
    /// Atoms in the order of their ids.
    pub atoms: AtomTable,
    /// Step, time and cell of the frame.
    pub heading: Heading,
}

/// Reader of one file. All ranks call its methods together; each method fails on all ranks or on
/// none.
pub struct Reader {
    options: Options,
    /// Open file; `None` on all ranks except rank 0.
    file: Option<File>,
    readers: Vec<usize>,
    n_atoms: u64,
    n_frames: u64,
    is_h5md: bool,
    /// Identifying number of the file, the same on all ranks.
    number: u64,
}

/// Location and header of a frame, which rank 0 finds.
struct Frame {
    moment: Moment,
    layout: Layout,
    samples: Samples,
    extent: Range<u64>,
    fields: Fields,
    has_masses: bool,
    heading: Heading,
}

impl Reader {
    /// Open a file. `options` may be an error of this rank, and `node` identifies the node of this
    /// rank.
    ///
    /// # Errors
    /// The same on all ranks: an error of any rank's options, or of opening the file.
    pub fn open(comm: &dyn Communicator, options: Result<Options>, node: u64) -> Result<Self> {
        check_call(comm, Call::OpenReader, 0)?;
        let options = options.and_then(|options| {
            Ok(Options {
                path: absolute(&options.path)?,
                ..options
            })
        });
        let options = agree(comm, Path::new(""), options)?;
        let agreed = [
            ("n_readers", format!("{:?}", options.n_readers)),
            ("buffer", options.buffer.to_string()),
        ];
        check_same(comm, &agreed)?;
        let nodes = comm.all_to_all(&vec![node; comm.size()])?;
        let readers = choose_readers(&nodes, options.n_readers).map_err(Error::Argument)?;
        let opened = match comm.rank() {
            0 => open(&options.path).map(Some),
            _ => Ok(None),
        };
        let file = agree(comm, &options.path, opened)?;
        let mut sizes = file.as_ref().map_or([0; 4], File::sizes);
        comm.all_reduce(&mut sizes, Reduce::Sum)?;
        let [n_atoms, n_frames, is_h5md, number] = sizes;
        Ok(Reader {
            options,
            file,
            readers,
            n_atoms,
            n_frames,
            is_h5md: is_h5md != 0,
            number,
        })
    }

    /// Number of atoms of a frame.
    pub fn n_atoms(&self) -> u64 {
        self.n_atoms
    }

    /// Number of frames.
    pub fn n_frames(&self) -> u64 {
        self.n_frames
    }

    /// Read a frame. With a grid of domains, one for each rank, this rank gets the atoms of its
    /// domain of the cell. Without a grid, it gets an equal range of ids. See [`Grid`].
    ///
    /// # Errors
    /// The same on all ranks: the frame does not exist or is damaged, it has no cell for a grid, or
    /// ranks disagree about the arguments.
    pub fn read(
        &mut self,
        comm: &dyn Communicator,
        arguments: Result<(u64, Option<[u32; 3]>)>,
    ) -> Result<Snapshot> {
        let path = self.options.path.clone();
        check_call(comm, Call::Read, self.number)?;
        let (frame, grid) = agree(comm, &path, arguments)?;
        let agreed = [("frame", frame.to_string()), ("grid", format!("{grid:?}"))];
        check_same(comm, &agreed)?;
        if let Some([x, y, z]) = grid
            && u64::from(x)
                .saturating_mul(y.into())
                .saturating_mul(z.into())
                != comm.size() as u64
        {
            return Err(Error::Argument(format!(
                "expected a grid of {} domains, one for each rank, found {x} × {y} × {z}",
                comm.size()
            ))
            .into());
        }
        let past = match frame < self.n_frames {
            true => Ok(()),
            false => Err(Error::Argument(format!(
                "{}: frame {frame} is out of range for {} frames",
                path.display(),
                self.n_frames
            ))
            .into()),
        };
        agree(comm, &path, past)?;
        if self.is_h5md {
            return self.read_arrays(comm, frame, grid);
        }
        let found = match &self.file {
            Some(File::Decoded(file)) => Some(locate(file, &path, frame)),
            _ => None,
        };
        let found = agree(comm, &path, found.transpose().map_err(Into::into))?;
        let names = comm.all_gather(&found.map(|frame| frame.to_bytes()).unwrap_or_default())?;
        let frame = agree(
            comm,
            &path,
            Frame::from_bytes(&names[0]).map_err(Into::into),
        )?;
        let atoms = agree(
            comm,
            &path,
            self.distribute(comm, &frame, grid).map_err(Into::into),
        )?;
        let atoms = atoms.ok_or(Error::Interrupted)?;
        Ok(Snapshot {
            atoms,
            heading: frame.heading,
        })
    }

    #[cfg(all(unix, target_pointer_width = "64"))]
    fn read_arrays(
        &self,
        comm: &dyn Communicator,
        number: u64,
        grid: Option<[u32; 3]>,
    ) -> Result<Snapshot> {
        let file = match &self.file {
            Some(File::Arrays(file)) => Some(file),
            _ => None,
        };
        let frame = ArrayFrame::find(comm, &self.options.path, file, self.n_atoms, number)?;
        let atoms = frame.distribute(comm, &self.readers, self.options.buffer, grid);
        let atoms = agree(comm, &self.options.path, atoms.map_err(Into::into))?;
        Ok(Snapshot {
            atoms: atoms.ok_or(Error::Interrupted)?,
            heading: frame.heading(),
        })
    }

    #[cfg(not(all(unix, target_pointer_width = "64")))]
    fn read_arrays(&self, _: &dyn Communicator, _: u64, _: Option<[u32; 3]>) -> Result<Snapshot> {
        Err(Error::Interrupted.into())
    }

    fn distribute(
        &self,
        comm: &dyn Communicator,
        frame: &Frame,
        grid: Option<[u32; 3]>,
    ) -> error::Result<Option<AtomTable>> {
        let is_text = frame.is_text();
        let known = Known {
            names: is_text,
            masses: frame.has_masses,
            charges: frame.has_masses,
        };
        let mut owners = owners_of(
            comm,
            &frame.moment,
            self.n_atoms,
            frame.fields,
            frame.heading.cell,
            grid.map(|shape| (shape, is_text)),
        )?;
        let settings = Settings {
            moment: &frame.moment,
            n_atoms: self.n_atoms,
            n_places: self.n_atoms,
            widths: widths(frame.fields, is_text, known),
            readers: &self.readers,
            buffer: self.options.buffer,
            ranges: grid.is_none(),
        };
        let mut supply: Option<Box<dyn AtomSource + '_>> = match self.readers.contains(&comm.rank())
        {
            true => Some(Box::new(Opener {
                frame,
                buffer: self.options.buffer,
                text: None,
            })),
            false => None,
        };
        let supply = supply
            .as_mut()
            .map(|supply| &mut **supply as &mut dyn AtomSource);
        Ok(distribute(comm, settings, supply, &mut *owners)?.map(|(atoms, _)| atoms))
    }
}

/// Choose which rank owns which atoms: by a grid of domains, or by equal ranges of ids. The flag of
/// a grid is true if the cell is centred on the origin.
pub(super) fn owners_of(
    comm: &dyn Communicator,
    moment: &Moment,
    n_atoms: u64,
    fields: Fields,
    cell: Option<Cell>,
    grid: Option<([u32; 3], bool)>,
) -> error::Result<Box<dyn Owners>> {
    Ok(match (grid, cell) {
        (None, _) => Box::new(ById {
            n_atoms,
            n_ranks: comm.size() as u32,
        }),
        _ if !fields.positions => {
            let what = "it has no positions, which would determine domains";
            return Err(moment.unsupported(what));
        }
        (_, None) => return Err(moment.unsupported("it has no cell that a grid could cut")),
        (Some((shape, is_centred)), Some(cell)) => {
            Box::new(Grid::new(moment.clone(), shape, cell, is_centred)?)
        }
    })
}

/// File that rank 0 has open.
enum File {
    /// File of any format except H5MD, whose frames are decoded.
    Decoded(Box<Trajectory>),
    /// H5MD.
    #[cfg(all(unix, target_pointer_width = "64"))]
    Arrays(H5mdReader),
}

impl File {
    /// Number of atoms, number of frames, 1 for H5MD and otherwise 0, and identifying number of the
    /// file.
    fn sizes(&self) -> [u64; 4] {
        let (n_atoms, n_frames, is_h5md) = match self {
            File::Decoded(file) => (file.n_atoms() as u64, file.n_frames(), 0),
            #[cfg(all(unix, target_pointer_width = "64"))]
            File::Arrays(file) => (file.n_atoms(), file.n_frames(), 1),
        };
        [n_atoms, n_frames, is_h5md, next_number()]
    }
}

/// Open a file of any format except LAMMPS dumps.
fn open(path: &Path) -> Result<File> {
    let source = FileSource::open(path)?;
    let mut head = [0; HDF5.len()];
    if source.size()? >= head.len() as u64 {
        source.read_at(0, &mut head)?;
    }
    let unsupported = |what: &str| {
        let (path, what) = (path.to_owned(), what.into());
        Err(Error::Unsupported { path, what }.into())
    };
    if head == *HDF5 {
        #[cfg(all(unix, target_pointer_width = "64"))]
        return H5mdReader::open(path).map(File::Arrays);
        #[cfg(not(all(unix, target_pointer_width = "64")))]
        return unsupported("H5MD is read on Linux and macOS; convert it to NetCDF");
    }
    let file = Trajectory::open(path)?;
    // The atoms of a dump may have any ids, and its cell may have another origin.
    match file.format().name() == LAMMPS {
        true => unsupported("dumps of LAMMPS are not read as snapshots; convert it to NetCDF"),
        false => Ok(File::Decoded(Box::new(file))),
    }
}

/// Find a frame, and read its header.
fn locate(file: &Trajectory, path: &Path, number: u64) -> error::Result<Frame> {
    let index = file.index();
    if let Some(what) = index.varying() {
        return Err(Error::Unsupported {
            path: path.to_owned(),
            what,
        });
    }
    let (offset, size) = index.extent(number);
    let mut frame = Frame {
        moment: Moment {
            path: path.to_owned(),
            frame: number,
        },
        layout: index.layout().clone(),
        samples: index.samples().clone(),
        extent: offset..offset + size,
        fields: Fields::default(),
        has_masses: false,
        heading: Heading {
            step: 0,
            time: 0.0,
            cell: None,
        },
    };
    if frame.is_text() {
        let text = frame.open_text()?;
        let head = text.head();
        frame.fields = head.fields;
        frame.has_masses = text.has_masses();
        frame.heading = Heading {
            step: head.step,
            time: head.time,
            cell: head.cell,
        };
        return Ok(frame);
    }
    // Decode no atoms, but request all fields: the decoder then reports the fields of the frame.
    let none = Atoms::new(&[], file.n_atoms())?;
    let all = frame.layout.fields();
    let head = frame.decode(none, all)?;
    let cell = UnitCell::of_row(&head.cell).without_noise();
    frame.fields = Fields::from_bits(head.fields);
    frame.heading = Heading {
        step: head.step,
        time: head.time,
        cell: (cell.dimensions != [0.0; 6]).then_some(cell.vectors),
    };
    Ok(frame)
}

/// Decoded atoms of a frame.
struct Decoded {
    vectors: [Vec<f32>; 3],
    cell: paceline_formats::CellRow,
    time: f64,
    step: i64,
    fields: u8,
}

impl Frame {
    fn text_layout(&self) -> Option<&dlpoly::Layout> {
        self.layout.downcast()
    }

    fn is_text(&self) -> bool {
        self.text_layout().is_some()
    }

    /// Open the file, and check that it is still the one that was opened first.
    fn source(&self) -> error::Result<paceline_formats::fingerprint::VerifiedSource<FileSource>> {
        STANDARD.verified(FileSource::open(&self.moment.path)?, self.samples.clone())
    }

    fn open_text(&self) -> error::Result<Text> {
        let layout = self
            .text_layout()
            .ok_or_else(|| Error::Argument("these bytes are no layout of text".into()))?;
        Text::new(
            self.source()?,
            *layout,
            self.moment.clone(),
            self.extent.clone(),
        )
    }

    fn decode(&self, atoms: Atoms, wanted: Fields) -> error::Result<Decoded> {
        let n = 3 * atoms.len();
        let room = |wanted| vec![0.0; if wanted { n } else { 0 }];
        let mut vectors = [
            room(wanted.positions),
            room(wanted.velocities),
            room(wanted.forces),
        ];
        let mut cells = [UnitCell::NONE.row()];
        let (mut times, mut steps, mut lambdas, mut fields) = ([0.0], [0], [0.0], [0]);
        let [positions, velocities, forces] = &mut vectors;
        let out = BlockOut {
            numbers: Numbers::Kept {
                positions,
                velocities,
                forces,
            },
            cells: &mut cells,
            times: &mut times,
            steps: &mut steps,
            lambdas: &mut lambdas,
            fields: &mut fields,
        };
        let extents = Extents {
            frames: &[self.moment.frame],
            offsets: &[self.extent.start],
            sizes: &[self.extent.end - self.extent.start],
        };
        let mut reader = BlockReader::new(Arc::new(self.source()?), &self.layout, atoms, wanted)?;
        reader.read(extents, out, self.fields, false)?;
        Ok(Decoded {
            vectors,
            cell: cells[0],
            time: times[0],
            step: steps[0],
            fields: fields[0],
        })
    }

    /// Serialise the frame for other ranks.
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let Heading { step, time, cell } = self.heading;
        let words = [
            self.moment.frame,
            self.extent.start,
            self.extent.end,
            self.fields.bits().into(),
            self.has_masses.into(),
            step as u64,
            time.to_bits(),
            cell.is_some().into(),
        ];
        bytes.extend(words.map(u64::to_le_bytes).as_flattened());
        for value in cell.unwrap_or_default().as_flattened() {
            bytes.extend(value.to_le_bytes());
        }
        let path = self.moment.path.as_os_str().as_encoded_bytes();
        for part in [path, &self.layout.to_bytes(), &self.samples.to_bytes()] {
            bytes.extend((part.len() as u64).to_le_bytes());
            bytes.extend(part);
        }
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> error::Result<Self> {
        Frame::parse(bytes).ok_or_else(|| Error::Argument("rank 0 sent no place of a frame".into()))
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        let mut word = || {
            let (word, behind) = rest.split_first_chunk()?;
            rest = behind;
            Some(u64::from_le_bytes(*word))
        };
        let mut words = [0; 8 + 9];
        for one in &mut words {
            *one = word()?;
        }
        let [number, start, end, fields, masses, step, time, has_cell, ..] = words;
        let cell =
            std::array::from_fn(|i| std::array::from_fn(|j| f64::from_bits(words[8 + 3 * i + j])));
        let mut part = || {
            let (len, behind) = rest.split_first_chunk()?;
            let (part, behind) = behind.split_at_checked(u64::from_le_bytes(*len) as usize)?;
            rest = behind;
            Some(part)
        };
        Some(Frame {
            moment: Moment {
                path: path_of_bytes(part()?),
                frame: number,
            },
            layout: STANDARD.layout(part()?)?,
            samples: Samples::from_bytes(part()?)?,
            extent: start..end,
            fields: Fields::from_bits(fields as u8),
            has_masses: masses != 0,
            heading: Heading {
                step: step as i64,
                time: f64::from_bits(time),
                cell: (has_cell != 0).then_some(cell),
            },
        })
    }
}

/// A reader's access to the atoms of a frame. A text file is opened when atoms are first requested,
/// because all ranks wait for the result at that time.
struct Opener<'a> {
    frame: &'a Frame,
    buffer: usize,
    text: Option<Text>,
}

impl AtomSource for Opener<'_> {
    fn read(&mut self, places: Range<u64>, table: &mut AtomTable) -> error::Result<()> {
        if self.frame.is_text() {
            if self.text.is_none() {
                self.text = Some(self.frame.open_text()?.within(self.buffer));
            }
            return self
                .text
                .as_mut()
                .map_or(Ok(()), |text| text.read(places, table));
        }
        let indices: Vec<usize> = (places.start as usize..places.end as usize).collect();
        let atoms = Atoms::new(&indices, self.frame.layout.n_atoms())?;
        let decoded = self.frame.decode(atoms, self.frame.fields)?;
        let ids = (places.start + 1..=places.end).flat_map(u64::to_ne_bytes);
        table.column_mut(IDS).extend(ids);
        for (k, vectors) in decoded.vectors.iter().enumerate() {
            let column = table.column_mut(POSITIONS + k);
            column.extend_from_slice(bytemuck::cast_slice(vectors));
        }
        Ok(())
    }

    fn held(&self) -> usize {
        self.text.as_ref().map_or(0, AtomSource::held)
    }
}
