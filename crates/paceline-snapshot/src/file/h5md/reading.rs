//! Reading of H5MD files that this writer wrote: offsets of a frame's numbers, and properties of
//! atoms.

use std::ops::Range;
use std::path::{Path, PathBuf};

use super::super::{Contents, Heading, Property};
use super::inspect::{Inspected, inspect};
use super::library::{Hdf5, Id};
use super::objects::{Object, Result as Hdf5Result, Type};
use super::tree::{EDGES, GROUP, elements, property_of, values_path};
use super::{damaged, enter, read_property, unsupported};
use crate::Result;

/// File that is being read.
pub(crate) struct H5mdReader {
    path: PathBuf,
    id: Id,
    inspected: Inspected,
    properties: [bool; 3],
}

/// Location of the numbers of a frame: for each existing element, the offset of atom 1 in the file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct FrameArrays {
    pub starts: [u64; 3],
    pub heading: Heading,
}

impl H5mdReader {
    /// Open a file for reading.
    pub fn open(path: &Path) -> Result<Self> {
        let hdf5 = enter(path)?;
        let refuse = |refusal| damaged(path, &refusal);
        let id = hdf5.open_to_read(path).map_err(refuse)?;
        let mut reader = H5mdReader {
            path: path.to_owned(),
            id,
            inspected: Inspected::default(),
            properties: [false; 3],
        };
        let found = inspect(&hdf5, id, path).and_then(|inspected| {
            let stored = |property| hdf5.contains(id, property_of(property).0);
            let mut properties = [false; 3];
            for (there, property) in properties.iter_mut().zip(Property::ALL) {
                *there = stored(property).map_err(|refusal| damaged(path, &refusal))?;
            }
            Ok((inspected, properties))
        });
        // The lock is released first: after an error, `reader` is dropped, and closing its file
        // needs the lock.
        drop(hdf5);
        (reader.inspected, reader.properties) = found?;
        Ok(reader)
    }

    /// Number of atoms.
    pub fn n_atoms(&self) -> u64 {
        self.inspected.n_atoms
    }

    /// Number of complete frames.
    pub fn n_frames(&self) -> u64 {
        self.inspected.n_frames
    }

    /// Content of all frames.
    pub fn contents(&self) -> Contents {
        self.inspected.contents
    }

    /// True for numbers of 64 bits.
    pub fn is_double(&self) -> bool {
        self.inspected.is_double
    }

    /// True for each of [`Property::ALL`] that is stored.
    pub fn properties(&self) -> [bool; 3] {
        self.properties
    }

    /// Find a frame.
    pub fn frame(&self, number: u64) -> Result<FrameArrays> {
        let hdf5 = enter(&self.path)?;
        let found = self.found(&hdf5, number);
        let found = found.map_err(|refusal| damaged(&self.path, &refusal))?;
        found.ok_or_else(|| unsupported(&self.path, format!("frame {number} has no values")))
    }

    fn found(&self, hdf5: &Hdf5, number: u64) -> Hdf5Result<Option<FrameArrays>> {
        let width = if self.is_double() { 24 } else { 12 };
        let mut starts = [0; 3];
        let fields = self.contents().fields;
        let there = [fields.positions, fields.velocities, fields.forces];
        let places = starts.iter_mut().zip(there).filter(|(_, there)| *there);
        for ((element, _), (start, _)) in elements(fields).zip(places) {
            let values = hdf5.object(self.id, &values_path(element))?;
            let found = match values.chunk()? {
                Some(_) => values.chunk_offset(&[number, 0, 0])?,
                None => values.offset().and_then(|first| {
                    let frame = self.n_atoms().checked_mul(width)?;
                    first.checked_add(number.checked_mul(frame)?)
                }),
            };
            match found {
                Some(offset) => *start = offset,
                None => return Ok(None),
            }
        }
        let word = |dataset: &Object<'_>, kind| {
            let bytes = dataset.read_rows(number, 1, kind)?;
            Ok(bytes.first_chunk().copied().unwrap_or_default())
        };
        let series = |name: &str| hdf5.object(self.id, &format!("{GROUP}/position/{name}"));
        let cell = match self.contents().has_cell {
            false => None,
            true => {
                let edges = hdf5.object(self.id, EDGES)?;
                let bytes = edges.read_rows(number, 1, Type::Float64)?;
                let (numbers, _) = bytes.as_chunks::<8>();
                let number = |k: usize| numbers.get(k).map_or(0.0, |x| f64::from_le_bytes(*x));
                Some(std::array::from_fn(|i| {
                    std::array::from_fn(|j| number(3 * i + j))
                }))
            }
        };
        let heading = Heading {
            step: i64::from_le_bytes(word(&series("step")?, Type::Int64)?),
            time: f64::from_le_bytes(word(&series("time")?, Type::Float64)?),
            cell,
        };
        Ok(Some(FrameArrays { starts, heading }))
    }

    /// Read a property of some atoms, counted from 0: 8 bytes each.
    pub fn property(&self, property: Property, atoms: Range<u64>) -> Result<Vec<u8>> {
        let hdf5 = enter(&self.path)?;
        let read = read_property(&hdf5, self.id, property, self.n_atoms(), atoms);
        let read = read.map_err(|refusal| damaged(&self.path, &refusal))?;
        read.ok_or_else(|| unsupported(&self.path, "it changed while it was read"))
    }
}

impl Drop for H5mdReader {
    fn drop(&mut self) {
        if !std::thread::panicking()
            && let Ok(hdf5) = Hdf5::enter()
        {
            hdf5.close_file(self.id);
        }
    }
}
