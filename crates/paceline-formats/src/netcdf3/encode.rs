//! Encoder of Amber trajectories, which MDAnalysis, MDTraj and cpptraj can read. Files are written
//! in version CDF-2, or in CDF-5 if an array of a frame is too large for CDF-2.

use super::KILOJOULES;
use super::amber::convention;
use super::header::{ATTRIBUTES, CHAR, DIMENSIONS, DOUBLE, FLOAT, VARIABLES};
use super::layout::Role;
use crate::frame_codec::check_finite;
use crate::xdr::padding;
use crate::{Encoder, Fields, FrameIn, Series};

/// Number by which velocities are divided in Amber files, because Amber's unit of time is 1/20.455
/// ps.
const VELOCITY_SCALE: f64 = 20.455;

/// Maximum size of an array in a record of CDF-2, which stores the size in 32 bits. Sizes are
/// multiples of 4.
const CDF2_MOST: u64 = u32::MAX as u64 - 3;

/// Encoder of the frames of one Amber NetCDF file.
#[derive(Debug)]
pub struct NetcdfEncoder {
    n_atoms: usize,
    has_cell: bool,
    fields: Fields,
    always_cdf5: bool,
}

impl NetcdfEncoder {
    /// Create an encoder for frames with these fields. If `has_cell` is true, a cell is written in
    /// every frame; for a frame without a cell, it consists of zeros.
    ///
    /// # Errors
    /// A message if `n_atoms` is 0.
    pub fn new(n_atoms: usize, has_cell: bool, fields: Fields) -> Result<Self, String> {
        if n_atoms == 0 {
            return Err("NetCDF holds at least 1 atom, not 0".into());
        }
        Ok(NetcdfEncoder {
            n_atoms,
            has_cell,
            fields,
            always_cdf5: false,
        })
    }

    /// Write CDF-5 even if CDF-2 suffices.
    #[must_use]
    pub fn as_cdf5(self) -> Self {
        NetcdfEncoder {
            always_cdf5: true,
            ..self
        }
    }

    /// Return the variables of a record, in order. Small variables come first, so that they and the
    /// positions of the first atoms are in one contiguous range.
    fn variables(&self) -> Vec<Entry> {
        [
            (Role::Time, true),
            (Role::Lengths, self.has_cell),
            (Role::Angles, self.has_cell),
            (Role::Positions, self.fields.positions),
            (Role::Velocities, self.fields.velocities),
            (Role::Forces, self.fields.forces),
        ]
        .into_iter()
        .filter(|&(_, written)| written)
        .map(|(role, _)| Entry::of_frame(role, self.n_atoms as u64))
        .collect()
    }

    fn check(&self, frame: &FrameIn<'_>) -> Result<(), String> {
        for (one, all, written, values) in [
            (
                "position",
                "positions",
                self.fields.positions,
                frame.positions,
            ),
            (
                "velocity",
                "velocities",
                self.fields.velocities,
                frame.velocities,
            ),
            ("force", "forces", self.fields.forces, frame.forces),
        ] {
            let n_atoms = if written { self.n_atoms } else { 0 };
            if values.len() != 3 * n_atoms {
                let found = values.len() / 3;
                return Err(format!(
                    "expected the {all} of {n_atoms} atoms, found those of {found}"
                ));
            }
            check_finite(values, one)?;
        }
        if !(frame.time as f32).is_finite() {
            let time = frame.time;
            return Err(format!(
                "expected a time that an f32 holds, found {time:e} ps"
            ));
        }
        if !self.has_cell && frame.cell.dimensions != [0.0; 6] {
            return Err("expected no unit cell, as in the file's first frame, found one".into());
        }
        match frame
            .cell
            .dimensions
            .iter()
            .find(|value| !value.is_finite())
        {
            Some(value) => Err(format!("expected a finite unit cell, found {value}")),
            None => Ok(()),
        }
    }
}

impl Encoder for NetcdfEncoder {
    fn head(&self, series: &Series) -> Vec<u8> {
        let variables = self.variables();
        let too_large = |variable: &Entry| variable.size > CDF2_MOST;
        let large = self.always_cdf5 || variables.iter().any(too_large);
        let has_cell = self.has_cell;
        Describe::new(large, self.n_atoms as u64, has_cell).header(series.n_frames, &variables)
    }

    fn encode(&mut self, frame: &FrameIn<'_>, bytes: &mut Vec<u8>) -> Result<(), String> {
        self.check(frame)?;
        bytes.extend((frame.time as f32).to_be_bytes());
        if self.has_cell {
            put(bytes, &frame.cell.dimensions, |value| {
                f64::from(value).to_be_bytes()
            });
        }
        put(bytes, frame.positions, f32::to_be_bytes);
        put(bytes, frame.velocities, |value| {
            ((f64::from(value) / VELOCITY_SCALE) as f32).to_be_bytes()
        });
        put(bytes, frame.forces, |value| {
            (value / KILOJOULES).to_be_bytes()
        });
        Ok(())
    }
}

fn put<const N: usize>(bytes: &mut Vec<u8>, values: &[f32], code: impl Fn(f32) -> [u8; N]) {
    let start = bytes.len();
    bytes.resize(start + N * values.len(), 0);
    let (places, _) = bytes[start..].as_chunks_mut::<N>();
    for (place, &value) in places.iter_mut().zip(values) {
        *place = code(value);
    }
}

// Header of an Amber trajectory. `header.rs` describes the format of headers.

/// Index of each dimension in the list of the header.
const FRAME: u64 = 0;
const ATOM: u64 = 1;
const SPATIAL: u64 = 2;
const CELL_SPATIAL: u64 = 3;
const CELL_ANGULAR: u64 = 4;
const LABEL: u64 = 5;

/// Variable: its description, and the size of its data in the file or in a record, bytes.
struct Entry {
    name: &'static str,
    dimensions: &'static [u64],
    units: Option<&'static str>,
    scale: Option<f64>,
    kind: u32,
    pub size: u64,
}

impl Entry {
    /// Create the variable with this role, which has an entry in each record.
    pub fn of_frame(role: Role, n_atoms: u64) -> Entry {
        let (name, units) = convention(role);
        let (kind, width) = match role {
            Role::Lengths | Role::Angles => (DOUBLE, 8),
            _ => (FLOAT, 4),
        };
        Entry {
            name,
            dimensions: match role {
                Role::Positions | Role::Velocities | Role::Forces => &[FRAME, ATOM, SPATIAL],
                Role::Time => &[FRAME],
                Role::Lengths => &[FRAME, CELL_SPATIAL],
                Role::Angles => &[FRAME, CELL_ANGULAR],
            },
            units: Some(units),
            scale: (role == Role::Velocities).then_some(VELOCITY_SCALE),
            kind,
            size: role.n_numbers(n_atoms).saturating_mul(width),
        }
    }

    /// Create a variable with labels for the entries of a dimension. It is not part of the records.
    fn labels(name: &'static str, dimensions: &'static [u64], text: &str) -> Entry {
        Entry {
            name,
            dimensions,
            units: None,
            scale: None,
            kind: CHAR,
            size: text.len() as u64,
        }
    }
}

/// Builder of the header of an Amber NetCDF file.
struct Describe {
    bytes: Vec<u8>,
    /// True for CDF-5, in which counts have 64 bits.
    large: bool,
    n_atoms: u64,
    labels: &'static [(&'static str, &'static [u64], &'static str)],
}

impl Describe {
    pub fn new(large: bool, n_atoms: u64, has_cell: bool) -> Self {
        Describe {
            bytes: Vec::new(),
            large,
            n_atoms,
            labels: match has_cell {
                true => &[
                    ("spatial", &[SPATIAL], "xyz"),
                    ("cell_spatial", &[CELL_SPATIAL], "abc"),
                    ("cell_angular", &[CELL_ANGULAR, LABEL], "alphabeta gamma"),
                ],
                false => &[("spatial", &[SPATIAL], "xyz")],
            },
        }
    }

    /// Create the header with the labels: all bytes before the first of `n_frames` records.
    pub fn header(mut self, n_frames: u64, records: &[Entry]) -> Vec<u8> {
        self.bytes.extend(b"CDF");
        self.bytes.push(if self.large { 5 } else { 2 });
        self.n_records(n_frames);
        self.dimensions();
        self.attributes();
        self.variables(records);
        for (_, _, text) in self.labels {
            self.padded(text.as_bytes());
        }
        self.bytes
    }

    /// Write the number of records. CDF-2 stores it in 31 bits. For a larger number, all 32 bits
    /// are set, and readers compute the number from the size of the file.
    fn n_records(&mut self, n_frames: u64) {
        match i32::try_from(n_frames) {
            Err(_) if !self.large => self.bytes.extend(u32::MAX.to_be_bytes()),
            _ => self.count(n_frames),
        }
    }

    fn dimensions(&mut self) {
        // Dimensions in the order of their indices. Without a cell, the dimensions of the cell are
        // unused.
        let dimensions = [
            ("frame", 0),
            ("atom", self.n_atoms),
            ("spatial", 3),
            ("cell_spatial", 3),
            ("cell_angular", 3),
            ("label", 5),
        ];
        self.list(DIMENSIONS, dimensions.len());
        for (name, len) in dimensions {
            self.name(name);
            self.count(len);
        }
    }

    fn attributes(&mut self) {
        let attributes = [
            ("title", "Written by paceline"),
            ("application", "paceline"),
            ("program", "paceline"),
            ("programVersion", env!("CARGO_PKG_VERSION")),
            ("Conventions", "AMBER"),
            ("ConventionVersion", "1.0"),
        ];
        self.list(ATTRIBUTES, attributes.len());
        for (name, text) in attributes {
            self.text_attribute(name, text);
        }
    }

    /// Write the list of variables. Their offsets depend on the size of the list, so the list is
    /// first written to determine its size.
    fn variables(&mut self, records: &[Entry]) {
        let start = self.bytes.len();
        self.variables_behind(0, records);
        let end = self.bytes.len() as u64;
        self.bytes.truncate(start);
        self.variables_behind(end, records);
    }

    fn variables_behind(&mut self, mut begin: u64, records: &[Entry]) {
        self.list(VARIABLES, self.labels.len() + records.len());
        for &(name, dimensions, text) in self.labels {
            self.variable(&Entry::labels(name, dimensions, text), &mut begin);
        }
        for entry in records {
            self.variable(entry, &mut begin);
        }
    }

    /// Describe a variable at offset `begin`, and advance `begin` to the next variable.
    fn variable(&mut self, entry: &Entry, begin: &mut u64) {
        self.name(entry.name);
        self.count(entry.dimensions.len() as u64);
        for &dimension in entry.dimensions {
            self.count(dimension);
        }
        let n_attributes = usize::from(entry.units.is_some()) + usize::from(entry.scale.is_some());
        // An empty list has no tag.
        self.list(if n_attributes > 0 { ATTRIBUTES } else { 0 }, n_attributes);
        if let Some(units) = entry.units {
            self.text_attribute("units", units);
        }
        if let Some(scale) = entry.scale {
            self.name("scale_factor");
            self.word(DOUBLE);
            self.count(1);
            self.bytes.extend(scale.to_be_bytes());
        }
        let size = entry.size.saturating_add(padding(entry.size));
        self.word(entry.kind);
        self.count(size);
        self.bytes.extend(begin.to_be_bytes());
        *begin = begin.saturating_add(size);
    }

    fn word(&mut self, value: u32) {
        self.bytes.extend(value.to_be_bytes());
    }

    /// Write a count. In CDF-2, 32 bits suffice, because no variable has 2^32 bytes.
    fn count(&mut self, value: u64) {
        if self.large {
            self.bytes.extend(value.to_be_bytes());
        } else {
            self.word(value as u32);
        }
    }

    fn list(&mut self, tag: u32, n_entries: usize) {
        self.word(tag);
        self.count(n_entries as u64);
    }

    fn padded(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
        let zeros = padding(bytes.len() as u64) as usize;
        self.bytes.extend(&[0; 3][..zeros]);
    }

    fn name(&mut self, name: &str) {
        self.count(name.len() as u64);
        self.padded(name.as_bytes());
    }

    fn text_attribute(&mut self, name: &str, text: &str) {
        self.name(name);
        self.word(CHAR);
        self.count(text.len() as u64);
        self.padded(text.as_bytes());
    }
}
