//! Amber NetCDF: trajectories and restart files of Amber, cpptraj, MDAnalysis, MDTraj and OpenMM,
//! in NetCDF's classic formats (CDF-1, CDF-2 and CDF-5).
//!
//! The header (see `header.rs`) is followed by the variables with one value for the whole file. In
//! nearly all trajectories, a record for each frame follows:
//!
//! ```text
//! time            ps
//! cell_lengths    3 numbers, Å
//! cell_angles     3 numbers, degrees
//! coordinates     3 numbers an atom, Å
//! velocities      3 numbers an atom, Å/ps once they are multiplied by `scale_factor`
//! forces          3 numbers an atom, kcal/(mol·Å)
//! ```
//!
//! Units may differ (see [`units`]). Variables may be in any order; each is optional, and may be
//! f32 or f64. Files may contain other variables. In restart files, and in files for a fixed number
//! of frames, frames are not records: see [`Layout`].

mod amber;
mod copy_header;
mod encode;
mod format_implementation;
pub mod header;
mod layout;
pub mod units;

use std::ops::Range;

use self::header::{Number, Scale};
use self::layout::{Role, Variable};
use crate::atom_set::Atoms;
use crate::error::Fault;
use crate::frame_codec::ReadRanges;
use crate::frame_codec::check_time;
use crate::source::GAP;
use crate::{Decoder, Fields, FrameOut, Run, UnitCell};

pub use self::encode::NetcdfEncoder;
pub use self::format_implementation::Netcdf3;
pub use self::layout::{Arrangement, Layout};

/// kJ per kcal; in f32, because MDAnalysis converts forces in f32.
const KILOJOULES: f32 = 4.184;

/// Fill value of the NetCDF library for numbers that were never written. Doubles have another fill
/// value, which is rounded to this number in f32.
const FILL: f32 = 9.969_21e36;

/// Bounds of the edges of a cell, Å.
const EDGES: Range<f32> = 1e-6..1e9;
/// Upper bound of angles: far above 180 degrees, since a wrong factor in the header is not damage.
const ANGLE_MAX: f32 = 1e4;

/// Decoder of the wanted atoms and fields of one Amber NetCDF file.
#[derive(Debug)]
pub struct NetcdfDecoder {
    layout: Layout,
    plan: Plan,
    wanted: Fields,
    n_wanted: usize,
    /// Byte ranges of the plan, shifted to the requested frame.
    runs: Vec<Run>,
}

impl NetcdfDecoder {
    /// # Panics
    /// If `atoms` is not a selection of `layout.n_atoms()` atoms.
    pub fn new(layout: Layout, atoms: Atoms, wanted: Fields) -> Self {
        assert_eq!(atoms.n_total(), layout.n_atoms(), "atoms of another system");
        let plan = Plan::new(&layout, &atoms, wanted);
        NetcdfDecoder {
            runs: plan.runs.clone(),
            plan,
            layout,
            wanted,
            n_wanted: atoms.len(),
        }
    }

    /// Return true if frame number `frame` can exist, and has `size` bytes.
    fn has_frame(&self, frame: u64, size: u64) -> bool {
        let in_file = match self.layout.arrangement() {
            Arrangement::Records { .. } => true,
            Arrangement::Arrays { n, .. } => frame < n,
        };
        in_file && size == self.layout.frame_size()
    }

    fn check(&self, frame: u64, size: u64, bytes: &[u8], out: &FrameOut<'_>) -> Result<(), Fault> {
        if !self.has_frame(frame, size) {
            let expected = format!("a frame of {} bytes", self.layout.frame_size());
            return Err(Fault::bad(0, expected, format!("{size} bytes")));
        }
        if bytes.len() as u64 != self.plan.len {
            let expected = format!("{} bytes of the frame's runs", self.plan.len);
            return Err(Fault::bad(0, expected, bytes.len()));
        }
        if self.layout.is_lost(frame) {
            let found = "other bytes: some were lost or inserted here or before";
            return Err(Fault::bad(0, "a frame at the offset in the header", found));
        }
        let (wanted, width) = (self.wanted, 3 * self.n_wanted);
        let room = |wanted: bool, values: &[f32]| !wanted || values.len() == width;
        if room(wanted.positions, out.positions)
            && room(wanted.velocities, out.velocities)
            && room(wanted.forces, out.forces)
        {
            return Ok(());
        }
        let expected = format!("room for {} atoms", self.n_wanted);
        Err(Fault::bad(0, expected, "room for others"))
    }

    /// Decode time (ps) and cell of a frame. `bytes` contains the byte ranges of the plan, one
    /// after the other.
    ///
    /// # Errors
    /// [`Fault::Bad`] if the time or the cell is impossible.
    fn time_and_cell(&self, frame: u64, bytes: &[u8]) -> Result<(f64, [f32; 6]), Fault> {
        let time = match self.plan.part_of(Role::Time) {
            Some(part) => part.first(bytes) * part.factor,
            None => frame as f64,
        };
        check_time(self.byte_of(Role::Time, frame), time)?;
        let mut dimensions = [0.0; 6];
        let (lengths, angles) = dimensions.split_at_mut(3);
        let is_edge = |length: f32| length == 0.0 || EDGES.contains(&length);
        let is_angle = |angle: f32| (0.0..ANGLE_MAX).contains(&angle);
        self.cell_part(frame, bytes, Role::Lengths, is_edge, lengths)?;
        // Angles without lengths, and unwritten lengths, do not define a cell.
        if lengths.iter().all(|&length| length == 0.0) {
            return Ok((time, [0.0; 6]));
        }
        self.cell_part(frame, bytes, Role::Angles, is_angle, angles)?;
        Ok((time, dimensions))
    }

    /// Decode the lengths or the angles of a cell into `values`. Replace numbers that were never
    /// written by zeros, and refuse impossible ones.
    fn cell_part(
        &self,
        frame: u64,
        bytes: &[u8],
        role: Role,
        is_possible: impl Fn(f32) -> bool,
        values: &mut [f32],
    ) -> Result<(), Fault> {
        let Some(part) = self.plan.part_of(role) else {
            return Ok(());
        };
        part.gather(bytes, values);
        if values.iter().all(|&value| value == FILL) {
            values.fill(0.0);
        }
        // A factor in the header may make numbers negative. This is no sign of damage.
        let sign = part.number.scale.sign();
        if values.iter().all(|&value| is_possible(sign * value)) {
            return Ok(());
        }
        let (expected, unit) = match role {
            Role::Angles => ("the angles of a cell", "degrees"),
            _ => ("the edges of a cell", "Å"),
        };
        let found = format!("{values:?} {unit}");
        Err(Fault::bad(self.byte_of(role, frame), expected, found))
    }

    /// Return true if the time is the fill value of the NetCDF library: it was never written.
    fn is_unwritten(&self, bytes: &[u8]) -> bool {
        let time = self.plan.part_of(Role::Time);
        time.is_some_and(|time| time.first(bytes) as f32 == FILL)
    }

    /// Return the offset, in the extent of a frame, of this frame's numbers of a variable, bytes.
    /// Return 0 if the file lacks the variable.
    fn byte_of(&self, role: Role, frame: u64) -> usize {
        let variable = self.layout.variable(role);
        variable.map_or(0, |variable| variable.at + frame * variable.step) as usize
    }
}

impl Decoder for NetcdfDecoder {
    fn runs(&mut self, frame: u64, size: u64) -> &[Run] {
        if !self.has_frame(frame, size) {
            return &[];
        }
        for ((run, first), step) in self
            .runs
            .iter_mut()
            .zip(&self.plan.runs)
            .zip(&self.plan.steps)
        {
            run.start = first.start + frame * step;
        }
        &self.runs
    }

    fn decode(
        &mut self,
        frame: u64,
        size: u64,
        bytes: &[u8],
        out: FrameOut<'_>,
    ) -> Result<(), Fault> {
        self.check(frame, size, bytes, &out)?;
        for (role, values) in [
            (Role::Positions, out.positions),
            (Role::Velocities, out.velocities),
            (Role::Forces, out.forces),
        ] {
            if let Some(part) = self.plan.part_of(role) {
                part.gather(bytes, values);
            }
        }
        let (time, dimensions) = self.time_and_cell(frame, bytes)?;
        *out.time = time;
        *out.cell = UnitCell::of_dimensions(dimensions).row();
        *out.step = self.layout.step(frame);
        *out.fields = self.layout.fields();
        Ok(())
    }
}

// Plan for a frame: the bytes to read, and the destination of each number.

/// Plan for reading and decoding a frame.
#[derive(Debug)]
struct Plan {
    /// Byte ranges to read for the first frame.
    pub runs: Vec<Run>,
    /// For each run, the difference between its offsets in consecutive frames, bytes.
    pub steps: Vec<u64>,
    /// Total number of bytes of the runs.
    pub len: u64,
    /// Wanted numbers of the variable with each [`Role`].
    parts: [Option<Part>; Role::ALL.len()],
}

/// Wanted numbers of one variable.
#[derive(Debug)]
struct Part {
    number: Number,
    /// Factor that converts the variable's unit to paceline's unit.
    factor: f64,
    pieces: Vec<Piece>,
}

/// Wanted numbers of a variable that are contiguous in the file.
#[derive(Debug)]
struct Piece {
    /// Offset in the concatenated byte ranges of the plan, bytes.
    source: usize,
    /// Index of the first number among the wanted numbers.
    target: usize,
    n: usize,
}

impl Plan {
    pub fn new(layout: &Layout, atoms: &Atoms, wanted: Fields) -> Plan {
        let is_wanted = |role: &Role| match role {
            Role::Positions => wanted.positions,
            Role::Velocities => wanted.velocities,
            Role::Forces => wanted.forces,
            Role::Time | Role::Lengths | Role::Angles => true,
        };
        let mut variables: Vec<(Role, Variable)> = Role::ALL
            .into_iter()
            .filter(is_wanted)
            .filter_map(|role| Some((role, layout.variable(role)?)))
            .collect();
        // `ReadRanges` expects ranges in ascending order.
        variables.sort_by_key(|(_, variable)| variable.at);
        let mut reading = ReadRanges::new(GAP);
        let mut steps = Vec::new();
        let mut parts = [const { None }; Role::ALL.len()];
        for (role, variable) in variables {
            // Byte ranges cannot be merged if their offsets change by different steps per frame.
            if steps.last() != Some(&variable.step) {
                reading.close();
            }
            parts[role as usize] = Some(Part::new(role, variable, atoms, &mut reading));
            steps.resize(reading.runs.len(), variable.step);
        }
        Plan {
            runs: reading.runs,
            steps,
            len: reading.len,
            parts,
        }
    }

    pub fn part_of(&self, role: Role) -> Option<&Part> {
        self.parts[role as usize].as_ref()
    }
}

impl Part {
    /// Create the part of the plan for a variable, and add its byte ranges to `reading`.
    fn new(role: Role, variable: Variable, atoms: &Atoms, reading: &mut ReadRanges) -> Part {
        let number = variable.number;
        let runs: Vec<(usize, usize)> = if role.is_of_atoms() {
            let runs = atoms.runs().iter();
            runs.map(|&(first, n)| (3 * first, 3 * n)).collect()
        } else {
            vec![(0, role.n_numbers(0) as usize)]
        };
        let mut target = 0;
        let pieces = runs.into_iter().map(|(first, n)| {
            let start = variable.at + first as u64 * number.width();
            target += n;
            Piece {
                source: reading.want(start, n as u64 * number.width()),
                target: target - n,
                n,
            }
        });
        Part {
            pieces: pieces.collect(),
            number,
            factor: variable.factor,
        }
    }

    /// Decode the first number of the variable, in the unit of the file.
    pub fn first(&self, bytes: &[u8]) -> f64 {
        self.number.value(&bytes[self.pieces[0].source..])
    }

    /// Decode the wanted numbers, and convert them to paceline's unit in f32, as in MDAnalysis.
    pub fn gather(&self, bytes: &[u8], out: &mut [f32]) {
        let number = self.number;
        match (number.double, number.scale) {
            (false, Scale::None) => self.convert::<4>(bytes, out, f32::from_be_bytes),
            (false, _) => self.convert::<4>(bytes, out, |bytes| number.value(&bytes) as f32),
            (true, _) => self.convert::<8>(bytes, out, |bytes| number.value(&bytes) as f32),
        }
        let factor = self.factor as f32;
        if factor != 1.0 {
            out.iter_mut().for_each(|number| *number *= factor);
        }
    }

    fn convert<const WIDTH: usize>(
        &self,
        bytes: &[u8],
        out: &mut [f32],
        value: impl Fn([u8; WIDTH]) -> f32,
    ) {
        for &Piece { source, target, n } in &self.pieces {
            let (numbers, _) = bytes[source..source + n * WIDTH].as_chunks::<WIDTH>();
            for (out, &number) in out[target..target + n].iter_mut().zip(numbers) {
                *out = value(number);
            }
        }
    }
}
