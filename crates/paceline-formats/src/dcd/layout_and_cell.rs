//! Layout of a DCD file (properties that all frames share, read from the header), and conversion of
//! cell records.

use super::header::{FIRST_LEN, MAX_TITLE};
use crate::format_interface::Clock;
use crate::frame_codec::possible_time;
use crate::lammps::Units;
use crate::{UnitCell, triclinic_box, triclinic_vectors};

/// CHARMM's unit of time in ps, computed by the divisions of MDAnalysis to get the same bits.
pub(super) const AKMA: f64 = 1.0 / (1.0 / 4.888821e-2);
pub(super) const CELL_LEN: u64 = 48;

/// Layout of one DCD file: all data that a worker needs to find and decode any frame.
#[derive(Debug, Clone, PartialEq)]
pub struct Layout {
    pub(super) big_endian: bool,
    /// Size of a record marker, bytes: 4 or 8.
    pub(super) marker: u8,
    pub(super) n_atoms: u32,
    /// Indices of the free atoms, from 0 and ascending. Frames after the first contain only these
    /// atoms. `None` if no atom is fixed.
    pub(super) free: Option<Vec<u32>>,
    pub(super) has_cell: bool,
    /// Version of CHARMM in the header; 0 for X-PLOR.
    pub(super) version: i32,
    pub(super) four_dims: bool,
    pub(super) title_len: u32,
    pub(super) istart: i32,
    /// Steps between frames. At least 1, even if the number in the header is smaller.
    pub(super) nsavc: i32,
    /// Length of a step, in the unit of `writer`; `None` if the header contains no finite number.
    pub(super) delta: Option<f64>,
    pub(super) writer: Writer,
    pub(super) n_frames_claimed: i32,
}

/// Program that wrote a file, determined from the title and the numbers of its header. The unit of
/// the step length depends on the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Writer {
    /// CHARMM, NAMD or a compatible program, with AKMA units.
    Charmm,
    /// Program that has no times to write, such as VMD; it writes a step length of 1 or 0.
    Timeless,
    /// LAMMPS, with the units of the simulation. The file does not contain these units: `None`
    /// unless the user supplied them.
    Lammps(Option<Units>),
}

impl Writer {
    /// Determine the writer from the title of a file and the numbers of its header.
    pub fn of(title: &[u8], istart: i32, nsavc: i32, delta: Option<f64>) -> Writer {
        let has = |words: &[u8]| {
            let mut windows = title.windows(words.len());
            windows.any(|window| window.eq_ignore_ascii_case(words))
        };
        // A step length of 1 is a placeholder, since no simulation has steps of 1 AKMA unit, which
        // is 48.9 fs.
        let is_placeholder =
            delta == Some(1.0) && (has(b"DCD plugin") || (istart, nsavc) == (0, 1));
        match has(b"written by LAMMPS") {
            true => Writer::Lammps(None),
            false if is_placeholder || delta == Some(0.0) => Writer::Timeless,
            false => Writer::Charmm,
        }
    }

    fn to_byte(self) -> u8 {
        match self {
            Writer::Charmm => 0,
            Writer::Timeless => 1,
            Writer::Lammps(None) => 2,
            Writer::Lammps(Some(units)) => 3 + units.code(),
        }
    }

    fn from_byte(byte: u8) -> Option<Writer> {
        Some(match byte {
            0 => Writer::Charmm,
            1 => Writer::Timeless,
            2 => Writer::Lammps(None),
            _ => Writer::Lammps(Some(Units::from_code(byte - 3)?)),
        })
    }
}

impl Layout {
    /// Number of atoms in a frame.
    pub fn n_atoms(&self) -> usize {
        self.n_atoms as usize
    }

    /// True for big-endian byte order.
    pub fn is_big_endian(&self) -> bool {
        self.big_endian
    }

    /// Size of a record marker, bytes: 4 or 8.
    pub fn marker_size(&self) -> u8 {
        self.marker
    }

    /// Return the 20 integers after "CORD" in the header from which this layout was parsed.
    pub fn integers(&self, head: &[u8]) -> Vec<i32> {
        let at = usize::from(self.marker) + b"CORD".len();
        let integers = head.get(at..at + 80).unwrap_or_default();
        let (integers, _) = integers.as_chunks();
        let value = match self.big_endian {
            true => i32::from_be_bytes,
            false => i32::from_le_bytes,
        };
        integers.iter().map(|&bytes| value(bytes)).collect()
    }

    /// Offset of the first frame.
    pub fn header_size(&self) -> u64 {
        let (records, free) = match &self.free {
            Some(free) => (4, 4 * free.len() as u64),
            None => (3, 0),
        };
        records * 2 * u64::from(self.marker) + FIRST_LEN + u64::from(self.title_len) + 4 + free
    }

    /// Size of the first frame, which contains all atoms, bytes.
    pub fn first_frame_size(&self) -> u64 {
        self.size_of_frame(u64::from(self.n_atoms))
    }

    /// Size of each later frame, which contains the free atoms, bytes.
    pub fn frame_size(&self) -> u64 {
        let stored = self.free.as_ref().map(|free| free.len() as u64);
        self.size_of_frame(stored.unwrap_or(u64::from(self.n_atoms)))
    }

    /// Size of a frame whose coordinate records contain `stored` atoms each, bytes.
    pub(super) fn size_of_frame(&self, stored: u64) -> u64 {
        let markers = 2 * u64::from(self.marker);
        let coordinates = if self.four_dims { 4 } else { 3 };
        self.cell_size() + coordinates * (markers + 4 * stored)
    }

    /// Size of the cell record of a frame with its markers, bytes.
    pub(super) fn cell_size(&self) -> u64 {
        if self.has_cell {
            CELL_LEN + 2 * u64::from(self.marker)
        } else {
            0
        }
    }

    /// Number of frames according to the header. After a simulation was killed, the number can be 0
    /// or wrong.
    pub fn n_frames_claimed(&self) -> i64 {
        i64::from(self.n_frames_claimed)
    }

    /// Time of the first frame, in units of the time between frames.
    pub fn first(&self) -> f64 {
        f64::from(self.istart) / f64::from(self.nsavc)
    }

    /// Time of a frame, ps. NaN if the step length in the header is not finite, or the time is
    /// impossible.
    pub fn time(&self, frame: u64) -> f64 {
        possible_time((frame as f64 + self.first()) * self.dt())
    }

    /// Step number of a frame in the simulation. If the steps between frames in the header are 0 or
    /// less, 1 is used.
    pub fn step(&self, frame: u64) -> i64 {
        let frame = i64::try_from(frame).unwrap_or(i64::MAX);
        frame
            .saturating_mul(i64::from(self.nsavc))
            .saturating_add(i64::from(self.istart))
    }

    /// Time between frames, ps. NaN if the step length is not a finite number.
    pub fn dt(&self) -> f64 {
        self.step_ps().unwrap_or(f64::NAN) * f64::from(self.nsavc)
    }

    /// Length of a step, ps; `None` if the header contains no finite number.
    fn step_ps(&self) -> Option<f64> {
        let unit = match self.writer {
            Writer::Lammps(Some(units)) => units.time(),
            // AKMA units are assumed if the unit is unknown, as in MDAnalysis.
            _ => AKMA,
        };
        self.delta.map(|delta| delta * unit)
    }

    /// True for LAMMPS's reduced units.
    pub(super) fn is_reduced(&self) -> bool {
        matches!(self.writer, Writer::Lammps(Some(units)) if units.is_reduced())
    }

    /// Unit of length of the file, Å.
    pub(super) fn length(&self) -> f64 {
        match self.writer {
            Writer::Lammps(Some(units)) => units.factors()[0],
            _ => 1.0,
        }
    }

    /// If the unit of lengths is unknown, so that Å is assumed, return the reason; otherwise
    /// `None`.
    pub(super) fn length_doubt(&self) -> Option<&'static str> {
        matches!(self.writer, Writer::Lammps(None)).then_some(Units::UNKNOWN)
    }

    /// Return whether the times are known, and if not, the reason.
    pub fn clock(&self) -> Clock {
        match (self.writer, self.delta) {
            (_, None) => Clock::Counted("the length of a step in its header is no number".into()),
            (Writer::Charmm | Writer::Lammps(Some(_)), _) => Clock::Known,
            (Writer::Timeless, Some(delta)) => Clock::Counted(format!(
                "its header has steps of {delta:.1}, which programs write that know no times, such \
                 as VMD"
            )),
            (Writer::Lammps(None), _) => Clock::Unscaled(
                "LAMMPS wrote it, and its header has steps in the units of the simulation, which it \
                 does not state: say for instance units=\"real\" (--units real)"
                    .into(),
            ),
        }
    }

    /// Set the unit style of a file that LAMMPS wrote, such as "real", and return the layout.
    ///
    /// # Errors
    /// A message if LAMMPS did not write the file, or has no such unit style.
    pub fn in_units(mut self, name: &str) -> Result<Layout, String> {
        let Writer::Lammps(_) = self.writer else {
            let what = "units= (--units) is only for DCD files of LAMMPS, and the title of this \
                        file names another program: pass dt= (--dt), the time between frames";
            return Err(what.into());
        };
        let units = Units::named(name.as_bytes()).ok_or_else(|| Units::unknown(name))?;
        self.writer = Writer::Lammps(Some(units));
        Ok(self)
    }

    /// Serialise the layout. [`Layout::from_bytes`] of the same version of this crate can parse it.
    pub fn to_bytes(&self) -> Vec<u8> {
        let flags = u8::from(self.big_endian)
            | u8::from(self.has_cell) << 1
            | u8::from(self.four_dims) << 2
            | u8::from(self.free.is_some()) << 3
            | u8::from(self.delta.is_some()) << 4;
        let mut bytes = vec![flags, self.marker];
        bytes.extend(self.n_atoms.to_le_bytes());
        bytes.extend(self.title_len.to_le_bytes());
        bytes.extend(self.version.to_le_bytes());
        bytes.extend(self.istart.to_le_bytes());
        bytes.extend(self.nsavc.to_le_bytes());
        bytes.extend(self.n_frames_claimed.to_le_bytes());
        bytes.extend(self.delta.unwrap_or(0.0).to_le_bytes());
        bytes.push(self.writer.to_byte());
        for atom in self.free.iter().flatten() {
            bytes.extend(atom.to_le_bytes());
        }
        bytes
    }

    /// Parse the result of [`Layout::to_bytes`]; `None` for invalid bytes.
    pub fn from_bytes(bytes: &[u8]) -> Option<Layout> {
        let mut rest = bytes;
        let [flags, marker] = take(&mut rest)?;
        let has = |bit: u8| flags >> bit & 1 == 1;
        let mut layout = Layout {
            big_endian: has(0),
            marker,
            has_cell: has(1),
            four_dims: has(2),
            n_atoms: u32::from_le_bytes(take(&mut rest)?),
            title_len: u32::from_le_bytes(take(&mut rest)?),
            version: i32::from_le_bytes(take(&mut rest)?),
            istart: i32::from_le_bytes(take(&mut rest)?),
            nsavc: i32::from_le_bytes(take(&mut rest)?),
            n_frames_claimed: i32::from_le_bytes(take(&mut rest)?),
            delta: Some(f64::from_le_bytes(take(&mut rest)?)).filter(|_| has(4)),
            writer: Writer::from_byte(take::<1>(&mut rest)?[0])?,
            free: None,
        };
        if has(3) {
            let atoms = std::iter::from_fn(|| take(&mut rest).map(u32::from_le_bytes));
            layout.free = Some(atoms.collect());
        }
        (layout.is_sound() && layout.to_bytes() == bytes).then_some(layout)
    }

    /// Check the invariants of a parsed layout.
    fn is_sound(&self) -> bool {
        let free_is_sound = self.free.as_ref().is_none_or(|free| {
            free.is_sorted_by(|a, b| a < b)
                && free.last().is_some_and(|&last| last < self.n_atoms)
                && free.len() < self.n_atoms as usize
        });
        matches!(self.marker, 4 | 8)
            && (1..=i32::MAX as u32).contains(&self.n_atoms)
            && u64::from(self.title_len) <= MAX_TITLE
            && (self.version != 0 || !(self.has_cell || self.four_dims))
            && self.nsavc >= 1
            && self.delta.is_none_or(f64::is_finite)
            && free_is_sound
    }
}

/// Remove and return the next bytes of a slice.
fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*first)
}

// Copying of whole frames into another DCD file.

impl Layout {
    /// Change `head`, the header of this file, into the header of a file with `n_frames` of its
    /// frames, starting at frame `first`. Return `None`, and leave `head` unchanged, if the header
    /// cannot represent these numbers.
    pub fn rewrite_head(&self, head: &mut [u8], first: u64, n_frames: u64) -> Option<()> {
        let n_frames = i32::try_from(n_frames).ok()?;
        let first_step = i32::try_from(self.step(first)).ok()?;
        // Integers 0 and 1 of the first record: number of frames and first step.
        let at = usize::from(self.marker) + b"CORD".len();
        let integers = head.get_mut(at..at + 8)?;
        let bytes = [n_frames, first_step].map(|value| match self.big_endian {
            true => value.to_be_bytes(),
            false => value.to_le_bytes(),
        });
        integers.copy_from_slice(&bytes.concat());
        Some(())
    }

    /// Number of fixed atoms. Only the first frame contains them.
    pub fn n_fixed(&self) -> usize {
        let free = self.free.as_ref();
        free.map_or(0, |free| self.n_atoms() - free.len())
    }

    /// State whether frames have cells, and whether the version in the header alone shows that
    /// the cells are CHARMM's shape matrices.
    fn cells(&self) -> &'static str {
        match (self.has_cell, is_charmms_own(self.version)) {
            (false, _) => "missing",
            (true, false) => "there",
            (true, true) => "there, as CHARMM's shape matrix",
        }
    }

    /// Return the traits (name and value) that files must share to form one trajectory, besides the
    /// atoms.
    pub fn traits(&self) -> Vec<(&'static str, String)> {
        let order = if self.big_endian { "big" } else { "little" };
        let presence = |present| String::from(if present { "there" } else { "missing" });
        let step_ps = self.step_ps().map(|step| step.to_string());
        vec![
            ("byte order", format!("{order}-endian")),
            ("bytes of a record marker", self.marker.to_string()),
            ("unit cells", self.cells().to_owned()),
            ("4th dimension", presence(self.four_dims)),
            ("fixed atoms", self.n_fixed().to_string()),
            ("steps between frames", self.nsavc.to_string()),
            (
                "length of a step (ps)",
                step_ps.unwrap_or_else(|| "unknown".into()),
            ),
        ]
    }
}

// Cell record of a frame: six numbers, for which programs have three interpretations.
//
// ```text
// A, gamma, B, beta, alpha, C   angles in degrees (X-PLOR, NAMD before 2.5) or as cosines
// xx, xy, yy, xz, yz, zz        CHARMM's symmetric shape matrix
// ```

/// Highest CHARMM version that programs other than CHARMM write into their files.
const LAST_PRETENDED: i32 = 25;
/// CHARMM version that NAMD, VMD, LAMMPS, OpenMM and MDAnalysis write. These programs write
/// cosines.
const USUALLY_PRETENDED: i32 = 24;
/// Smallest plausible angle of a cell in simulations, degrees.
const SHARPEST: f32 = 20.0;

/// True if only CHARMM itself, which writes shape matrices, writes this version into its files.
pub(super) fn is_charmms_own(version: i32) -> bool {
    version > LAST_PRETENDED
}

/// Convert a cell record as MDAnalysis does. If only CHARMM uses `version`, the record is a shape
/// matrix, provided that this matrix is plausible. Otherwise, the numbers decide. Angles from -1 to
/// 1 are cosines. A negative number or an angle above 180 means a shape matrix. All other numbers
/// are lengths and degrees, unless only a shape matrix is plausible. The vectors of a shape matrix
/// are its rows.
pub(super) fn unit_cell(version: i32, record: [f64; 6]) -> UnitCell {
    if is_read_as_shape(version, record) {
        UnitCell::of_vectors(shape(record))
    } else {
        UnitCell::of_dimensions(from_lengths(record))
    }
}

fn is_read_as_shape(version: i32, record: [f64; 6]) -> bool {
    let likely =
        is_charmms_own(version) || !are_cosines(record) && !is_likely(&from_lengths(record));
    let certain = !are_cosines(record) && contradicts_degrees(record);
    certain || likely && is_shape(record)
}

/// Return a warning if neither the version nor the numbers determine the interpretation of a
/// record.
pub(super) fn doubt(version: i32, record: [f64; 6]) -> Option<String> {
    let (shape, lengths) = (from_shape(record), from_lengths(record));
    if shape == lengths || !is_likely(&lengths) {
        return None;
    }
    let certain = match (is_charmms_own(version), are_cosines(record)) {
        // A record that can be a shape matrix is certainly one: no program is known to write
        // cosines with a version above [`LAST_PRETENDED`].
        (true, true) => is_shape(record),
        (true, false) => false,
        (false, true) => version == USUALLY_PRETENDED || !is_shape(record),
        (false, false) => true,
    };
    if certain {
        return None;
    }
    let readings = [
        ("CHARMM's shape matrix", shape),
        ("lengths and angles", lengths),
    ];
    let read = unit_cell(version, record).dimensions;
    let [(taken, _), (left, other)] = match read == shape {
        true => readings,
        false => [readings[1], readings[0]],
    };
    Some(format!(
        "neither CHARMM's version, {version}, in the header nor the numbers tell how cells are \
         meant: the last frame's is read as {taken}, {read:?}; as {left} it is {other:?}"
    ))
}

fn angles([_, gamma, _, beta, alpha, _]: [f64; 6]) -> [f64; 3] {
    [alpha, beta, gamma]
}

fn are_cosines(record: [f64; 6]) -> bool {
    angles(record).iter().all(|angle| angle.abs() <= 1.0)
}

fn contradicts_degrees(record: [f64; 6]) -> bool {
    record.iter().any(|&value| value < 0.0) || angles(record).iter().any(|&angle| angle > 180.0)
}

fn shape([xx, xy, yy, xz, yz, zz]: [f64; 6]) -> [[f64; 3]; 3] {
    [[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]
}

fn from_shape(record: [f64; 6]) -> [f32; 6] {
    let [x, y, z] = shape(record);
    triclinic_box(x, y, z)
}

fn from_lengths(record: [f64; 6]) -> [f32; 6] {
    let [a, _, b, _, _, c] = record;
    let mut angles = angles(record);
    if are_cosines(record) {
        // Unlike the arc cosine, the arc sine yields exact right angles.
        angles = angles.map(|cosine| 90.0 - cosine.asin() * 90.0 / std::f64::consts::FRAC_PI_2);
    }
    let [alpha, beta, gamma] = angles;
    // Angles without lengths, and numbers that are not finite, mean that there is no cell.
    match [a, b, c, alpha, beta, gamma].map(|value| value as f32) {
        [0.0, 0.0, 0.0, ..] => [0.0; 6],
        dimensions if !dimensions.iter().all(|value| value.is_finite()) => [0.0; 6],
        dimensions => dimensions,
    }
}

/// True if a record can be a shape matrix: it is positive definite, and its cell is plausible.
fn is_shape(record: [f64; 6]) -> bool {
    let [xx, xy, yy, xz, yz, zz] = record;
    let minor = xx * yy - xy * xy;
    let determinant =
        xx * (yy * zz - yz * yz) - xy * (xy * zz - yz * xz) + xz * (xy * yz - yy * xz);
    xx > 0.0 && minor > 0.0 && determinant > 0.0 && is_likely(&from_shape(record))
}

/// True for a cell that is plausible in simulations.
fn is_likely(dimensions: &[f32; 6]) -> bool {
    let blunt = |angle: &f32| (SHARPEST..=180.0 - SHARPEST).contains(angle);
    dimensions[3..].iter().all(blunt) && triclinic_vectors(dimensions).is_some()
}
