//! TRR, the full-precision trajectory of GROMACS. Each frame contains any combination of box,
//! positions, velocities and forces.
//!
//! ```text
//! byte  0  magic            i32   1993
//!       4  string lengths   2 i32 13 and 12
//!      12  version          12 bytes "GMX_trn_file"
//!      24  bytes of blocks  10 i32 ir, e, box, vir, pres, top, sym, x, v, f; 0 for one not there
//!      64  atoms            i32
//!      68  step             i32
//!      72  energies         i32
//!      76  time, lambda     2 reals, time in ps, lambda without a unit
//!   84/92  the blocks       in this order: box 9 reals, nm, one vector after the other;
//!                           x, v and f 3 reals an atom, nm, nm/ps, kJ/(mol·nm)
//! ```
//!
//! A real is an f32 or an f64, as determined by the sizes of the blocks. Blocks other than box, x,
//! v and f are skipped.

mod format_implementation;

use crate::atom_set::Atoms;
use crate::error::Fault;
use crate::frame_codec::{ReadRanges, check_time, not_finite};
use crate::source::GAP;
use crate::xdr::{NM_PER_ANGSTROM, Xdr};
use crate::{Decoder, Encoder, Fields, FrameIn, FrameOut, Run, Series, UnitCell, xdr};

pub use self::format_implementation::{Trr, TrrLayout};

/// Factors that convert nm, nm/ps and kJ/(mol·nm) to MDAnalysis's units, by the same float32
/// multiplications as in MDAnalysis.
const UNITS: [f32; 3] = [10.0, 10.0, 0.1];

/// Size of box, virial and pressure in double precision, bytes.
const TENSORS_BYTES_MAX: u64 = 3 * 72;
/// Size of position, velocity and force of an atom in double precision, bytes.
const ATOM_BYTES_MAX: u64 = 3 * 24;

/// Size of a vector in single precision, bytes. In a frame with data of atoms, each atom has at
/// least this size.
pub const ATOM_BYTES_MIN: u64 = 12;

/// Maximum number of frame sizes for which plans are stored. The combinations of a box, three
/// fields and two precisions have at most 30 sizes.
const SIZES_MAX: usize = 32;

/// Decodes the wanted data of frames.
///
/// The size of a frame nearly always determines its content. The first frame of a size is read
/// completely, and its header determines which bytes of later frames of this size are read. If two
/// frames of the same size have different content, all later frames of this size are read
/// completely.
#[derive(Debug)]
pub struct TrrDecoder {
    atoms: Atoms,
    wanted: Fields,
    known: Vec<Known>,
    /// Result of [`Decoder::runs`] for a size without a plan.
    unplanned: [Run; 1],
}

/// Known content of the frames of one size.
#[derive(Debug)]
struct Known {
    size: u64,
    /// Plan; `None` if the frames have different content.
    plan: Option<Plan>,
}

impl TrrDecoder {
    /// Create a decoder of the wanted fields of some atoms.
    pub fn new(atoms: Atoms, wanted: Fields) -> Self {
        TrrDecoder {
            atoms,
            wanted,
            known: Vec::new(),
            unplanned: [Run { start: 0, len: 0 }],
        }
    }

    fn plan(&self, size: u64) -> Option<&Plan> {
        let known = self.known.iter().find(|known| known.size == size);
        known.and_then(|known| known.plan.as_ref())
    }

    /// Store the content of a frame, to plan the reads of other frames of its size. Remove the plan
    /// if an earlier frame of this size has different content.
    fn learn(&mut self, header: &Header) {
        let size = header.size();
        if let Some(known) = self.known.iter_mut().find(|known| known.size == size) {
            let same = |plan: &Plan| plan.contents == header.contents;
            known.plan = known.plan.take().filter(same);
        } else if self.known.len() < SIZES_MAX {
            let plan = Some(Plan::new(&header.contents, &self.atoms, self.wanted, GAP));
            self.known.push(Known { size, plan });
        }
    }

    fn check(&self, header: &Header, size: u64) -> Result<(), Fault> {
        let n_total = self.atoms.n_total();
        if header.n_atoms != n_total {
            let expected = format!("{n_total} atoms, as in the topology");
            return Err(Fault::bad(AT_ATOMS, expected, header.n_atoms));
        }
        if header.size() != size {
            let expected = format!("blocks that make a frame of {size} bytes");
            let found = format!("blocks that make {} bytes", header.size());
            return Err(Fault::bad(AT_BLOCKS, expected, found));
        }
        Ok(())
    }
}

impl Decoder for TrrDecoder {
    fn runs(&mut self, _frame: u64, size: u64) -> &[Run] {
        // A damaged range of the file is listed as one frame, and can have any size. Of a range
        // that is too large, only the header is requested, and `decode` then refuses this header.
        let usual =
            HEADER_MAX as u64 + TENSORS_BYTES_MAX + ATOM_BYTES_MAX * self.atoms.n_total() as u64;
        self.unplanned[0].len = if size <= usual {
            size
        } else {
            HEADER_MAX as u64
        };
        match self.plan(size) {
            Some(plan) => &plan.runs,
            None => &self.unplanned,
        }
    }

    fn decode(
        &mut self,
        _frame: u64,
        size: u64,
        bytes: &[u8],
        out: FrameOut<'_>,
    ) -> Result<(), Fault> {
        let header = Header::parse(bytes).map_err(|fault| fault.within(size))?;
        self.check(&header, size)?;
        let len = bytes.len() as u64;
        let whole;
        let plan = match self.plan(size) {
            Some(plan) if plan.contents == header.contents && plan.len == len => plan,
            _ if len == size => {
                self.learn(&header);
                whole = Plan::new(&header.contents, &self.atoms, self.wanted, u64::MAX);
                &whole
            }
            _ => {
                return Err(Fault::Short {
                    needed: size as usize,
                });
            }
        };
        let fields = [out.positions, out.velocities, out.forces];
        for (field, (out, unit)) in fields.into_iter().zip(UNITS).enumerate() {
            plan.gather(field, bytes, unit, out);
        }
        *out.cell = plan
            .cell(bytes)
            .map_or(UnitCell::NONE, xdr::unit_cell)
            .row();
        *out.fields = header.contents.held();
        *out.time = header.time;
        *out.step = header.step.into();
        *out.lambda = header.lambda;
        Ok(())
    }
}

// Wanted bytes of a frame, and the destination of each number.

/// Plan for reading and decoding a frame.
#[derive(Debug)]
struct Plan {
    /// Content of the frames of this plan.
    pub contents: Contents,
    pub runs: Vec<Run>,
    /// Total number of bytes of the runs.
    pub len: u64,
    /// Offset of the box in the concatenated runs.
    cell: Option<usize>,
    /// Offsets of the first wanted position, velocity and force in the concatenated runs; `None`
    /// for a field that is not wanted or not in the frame.
    fields: [Option<usize>; 3],
    /// Number of bytes from the first wanted number of a field to the end of the last one.
    span: usize,
    /// Wanted numbers of one field. Their relative offsets are the same in all three fields.
    pieces: Vec<Piece>,
}

/// Wanted numbers of adjacent atoms in one field.
#[derive(Debug)]
struct Piece {
    /// Offset from the first wanted number of the same field, bytes.
    source: usize,
    n_atoms: usize,
}

impl Plan {
    /// Create the plan. Ranges that are at most `gap` bytes apart are read together.
    pub fn new(contents: &Contents, atoms: &Atoms, wanted: Fields, gap: u64) -> Plan {
        let mut reading = ReadRanges::new(gap);
        reading.want(0, contents.size.min(HEADER_MAX as u64));
        let cell = contents
            .cell
            .map(|start| reading.want(start, 9 * contents.width));
        let vector = 3 * contents.width;
        let wanted = [wanted.positions, wanted.velocities, wanted.forces];
        let mut pieces = Vec::new();
        let fields = [0, 1, 2].map(|field| {
            let start = contents.fields[field].filter(|_| wanted[field])?;
            // The wanted numbers have the same relative offsets in every field.
            pieces.clear();
            let mut first = None;
            for &(atom, n_atoms) in atoms.runs() {
                let at = reading.want(start + vector * atom as u64, vector * n_atoms as u64);
                pieces.push(Piece {
                    source: at - *first.get_or_insert(at),
                    n_atoms,
                });
            }
            first
        });
        let len = |piece: &Piece| vector as usize * piece.n_atoms;
        Plan {
            contents: *contents,
            runs: reading.runs,
            len: reading.len,
            cell,
            fields,
            span: pieces.last().map_or(0, |last| last.source + len(last)),
            pieces,
        }
    }

    /// Read the box, nm, in the precision of the file. `xdr::unit_cell` computes lengths and angles
    /// in single precision, as in MDAnalysis.
    pub fn cell(&self, bytes: &[u8]) -> Option<[[f64; 3]; 3]> {
        let mut cell = [[0.0; 3]; 3];
        let numbers = &bytes[self.cell?..][..9 * self.contents.width as usize];
        let cells = cell.as_flattened_mut().iter_mut();
        match self.contents.width {
            8 => cells
                .zip(numbers.as_chunks().0)
                .for_each(|(value, &bytes)| *value = f64::from_be_bytes(bytes)),
            _ => cells
                .zip(numbers.as_chunks().0)
                .for_each(|(value, &bytes)| *value = f32::from_be_bytes(bytes).into()),
        }
        Some(cell)
    }

    /// Read the wanted numbers of positions (0), velocities (1) or forces (2), multiplied by
    /// `unit`.
    pub fn gather(&self, field: usize, bytes: &[u8], unit: f32, out: &mut [f32]) {
        let Some(start) = self.fields[field] else {
            return;
        };
        let numbers = &bytes[start..start + self.span];
        match self.contents.width {
            8 => gather(&self.pieces, numbers, double, unit, out),
            _ => gather(&self.pieces, numbers, f32::from_be_bytes, unit, out),
        }
    }
}

fn double(bytes: [u8; 8]) -> f32 {
    f64::from_be_bytes(bytes) as f32
}

fn gather<const WIDTH: usize>(
    pieces: &[Piece],
    bytes: &[u8],
    number: impl Fn([u8; WIDTH]) -> f32 + Copy,
    unit: f32,
    mut out: &mut [f32],
) {
    for &Piece { source, n_atoms } in pieces {
        let (atoms, behind) = out.split_at_mut(3 * n_atoms);
        let numbers = &bytes[source..source + 3 * WIDTH * n_atoms];
        convert(numbers, number, unit, atoms);
        out = behind;
    }
}

fn convert<const WIDTH: usize>(
    bytes: &[u8],
    number: impl Fn([u8; WIDTH]) -> f32,
    unit: f32,
    out: &mut [f32],
) {
    let (numbers, _) = bytes.as_chunks();
    for (out, &bytes) in out.iter_mut().zip(numbers) {
        *out = number(bytes) * unit;
    }
}

// Header of a frame, and offsets of its numbers.

pub(crate) const MAGIC: i32 = 1993;

/// Maximum size of a header, bytes.
pub const HEADER_MAX: usize = 92;

/// Size of a header in single precision, bytes.
const HEADER_MIN: u64 = HEADER_FIXED + 8;

/// Size of a header without time and lambda, bytes. The precision of time and lambda varies.
const HEADER_FIXED: u64 = 76;

/// Text that GROMACS calls the version of the file.
const VERSION: &[u8; 12] = b"GMX_trn_file";

/// Blocks of a frame, in their order in the header and after it.
const BLOCKS: [&str; 10] = ["ir", "e", "box", "vir", "pres", "top", "sym", "x", "v", "f"];
const BOX: usize = 2;
const FIELDS: [usize; 3] = [7, 8, 9];

const AT_VERSION: usize = 12;
const AT_BLOCKS: usize = 24;
/// Offset of the number of atoms in a frame, bytes.
pub const AT_ATOMS: usize = 64;

/// The header of a frame.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Header {
    /// Number of atoms.
    pub n_atoms: usize,
    /// Step of the simulation.
    pub step: i32,
    /// Time, ps.
    pub time: f64,
    /// λ, rounded to single precision in any file, as in MDAnalysis.
    pub lambda: f32,
    contents: Contents,
}

/// Content of a frame, with offsets. It is the same for most frames of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Contents {
    /// Size of the whole frame, bytes.
    pub size: u64,
    /// Size of a number, bytes.
    pub width: u64,
    /// Offset of the box in the frame, bytes; `None` if there is no box.
    pub cell: Option<u64>,
    /// Offsets of positions, velocities and forces in the frame, bytes; `None` for a missing field.
    pub fields: [Option<u64>; 3],
}

impl Contents {
    pub fn held(&self) -> Fields {
        let [positions, velocities, forces] = self.fields.map(|field| field.is_some());
        Fields {
            positions,
            velocities,
            forces,
        }
    }
}

impl Header {
    /// # Errors
    /// [`Fault::Short`] if `bytes` ends before the header. [`Fault::Bad`] if the header contradicts
    /// the format or itself.
    pub fn parse(bytes: &[u8]) -> Result<Header, Fault> {
        let mut xdr = Xdr::new(bytes);
        check_version(&mut xdr)?;
        let mut sizes = [0; BLOCKS.len()];
        for (size, name) in sizes.iter_mut().zip(BLOCKS) {
            let at = xdr.at();
            let stated = xdr.i32()?;
            *size = u64::try_from(stated)
                .map_err(|_| Fault::bad(at, format!("a number of bytes of {name}"), stated))?;
        }
        let atoms = xdr.i32()?;
        let Ok(n_atoms) = usize::try_from(atoms) else {
            return Err(Fault::bad(AT_ATOMS, "a number of atoms", atoms));
        };
        let contents = Contents::new(&sizes, n_atoms as u64)?;
        let step = xdr.i32()?;
        let _energies = xdr.i32()?;
        let at = xdr.at();
        let (time, lambda) = match contents.width {
            8 => (xdr.f64()?, xdr.f64()? as f32),
            _ => (xdr.f32()?.into(), xdr.f32()?),
        };
        check_time(at, time)?;
        Ok(Header {
            n_atoms,
            step,
            time,
            lambda,
            contents,
        })
    }

    /// Size of the whole frame, bytes.
    pub fn size(&self) -> u64 {
        self.contents.size
    }
}

fn check_version(xdr: &mut Xdr<'_>) -> Result<(), Fault> {
    let magic = xdr.i32()?;
    if magic != MAGIC {
        return Err(Fault::bad(0, "the magic number of TRR, 1993", magic));
    }
    // The length of the C string including its terminator, then the length in XDR without it.
    for expected in [13, 12] {
        let at = xdr.at();
        let len = xdr.i32()?;
        if len != expected {
            return Err(Fault::bad(at, format!("a string of {expected} bytes"), len));
        }
    }
    let version = xdr.bytes()?;
    if version != *VERSION {
        let expected = format!("\"{}\"", VERSION.escape_ascii());
        let found = format!("\"{}\"", version.escape_ascii());
        return Err(Fault::bad(AT_VERSION, expected, found));
    }
    Ok(())
}

impl Contents {
    /// Derive the content from the number of atoms and the sizes of the blocks. They also determine
    /// the size of a number, which the header does not state.
    fn new(sizes: &[u64; BLOCKS.len()], n_atoms: u64) -> Result<Contents, Fault> {
        let [x, v, f] = FIELDS;
        let numbers = [
            (BOX, 9),
            (x, 3 * n_atoms),
            (v, 3 * n_atoms),
            (f, 3 * n_atoms),
        ];
        let Some(&(block, count)) = numbers.iter().find(|&&(block, _)| sizes[block] > 0) else {
            let expected = "a box, positions, velocities or forces";
            return Err(Fault::bad(AT_BLOCKS + 4 * BOX, expected, "none of them"));
        };
        let width = if sizes[block] == 8 * count { 8 } else { 4 };
        for (block, count) in numbers {
            if ![0, width * count].contains(&sizes[block]) {
                let expected = format!("0 or {} bytes of {}", width * count, BLOCKS[block]);
                return Err(Fault::bad(AT_BLOCKS + 4 * block, expected, sizes[block]));
            }
        }
        let start = |block: usize| {
            let before: u64 = sizes[..block].iter().sum();
            HEADER_FIXED + 2 * width + before
        };
        let there = |block: usize| (sizes[block] > 0).then(|| start(block));
        Ok(Contents {
            size: start(BLOCKS.len()),
            width,
            cell: there(BOX),
            fields: FIELDS.map(there),
        })
    }
}

// Encoding of frames in single precision, with the same bytes as GROMACS and MDAnalysis.

const NAMES: [&str; 3] = ["position", "velocity", "force"];

/// Factors that convert to nm, nm/ps and kJ/(mol·nm), by the same float32 multiplications as
/// MDAnalysis's writer.
const TO_FILE: [f32; 3] = [NM_PER_ANGSTROM, NM_PER_ANGSTROM, 10.0];

const CELL_LEN: usize = 36;

/// Encodes the frames of one TRR file.
#[derive(Debug)]
pub struct TrrEncoder {
    n_atoms: usize,
}

impl TrrEncoder {
    /// # Errors
    /// The reason, as a message, if no TRR file can have this number of atoms.
    pub fn new(n_atoms: usize) -> Result<Self, String> {
        // The header stores the size of a field, 12 bytes per atom, as a signed 32-bit integer.
        let most = i32::MAX as usize / 12;
        match n_atoms {
            0 => Err("expected at least one atom, found none".into()),
            _ if n_atoms > most => Err(format!("TRR holds at most {most} atoms, not {n_atoms}")),
            _ => Ok(TrrEncoder { n_atoms }),
        }
    }
}

impl Encoder for TrrEncoder {
    /// Return no bytes: TRR files have no header.
    fn head(&self, _series: &Series) -> Vec<u8> {
        Vec::new()
    }

    fn encode(&mut self, frame: &FrameIn<'_>, bytes: &mut Vec<u8>) -> Result<(), String> {
        let fields = [frame.positions, frame.velocities, frame.forces];
        for (values, name) in fields.into_iter().zip(NAMES) {
            if ![0, 3 * self.n_atoms].contains(&values.len()) {
                return Err(format!(
                    "expected a {name} of each of {} atoms, found {}",
                    self.n_atoms,
                    values.len() / 3
                ));
            }
        }
        let (step, time) = xdr::moment(frame, "TRR")?;
        // If there is no cell, a box of zeros is written, as in GROMACS. The box is not omitted,
        // because MDAnalysis's reader would then return uninitialised memory.
        let vectors = xdr::box_vectors(&frame.cell)?;
        let start = bytes.len();
        let sizes = fields.map(|values| 4 * values.len());
        put_header(self.n_atoms, sizes, step, [time, frame.lambda], bytes);
        for value in vectors.as_flattened() {
            bytes.extend(value.to_be_bytes());
        }
        for (field, values) in fields.into_iter().enumerate() {
            if !put_field(values, TO_FILE[field], bytes) {
                bytes.truncate(start);
                return Err(invalid_value_reason(values, field));
            }
        }
        Ok(())
    }
}

/// Append a header. `sizes` are the sizes of the fields in bytes; `reals` are the time (ps) and λ.
fn put_header(n_atoms: usize, sizes: [usize; 3], step: i32, reals: [f32; 2], bytes: &mut Vec<u8>) {
    let mut blocks = [0; BLOCKS.len()];
    blocks[BOX] = CELL_LEN;
    for (block, size) in FIELDS.into_iter().zip(sizes) {
        blocks[block] = size;
    }
    let len = VERSION.len() as i32;
    for integer in [MAGIC, len + 1, len] {
        bytes.extend(integer.to_be_bytes());
    }
    bytes.extend(VERSION);
    for size in blocks {
        bytes.extend((size as i32).to_be_bytes());
    }
    let energies = 0;
    for integer in [n_atoms as i32, step, energies] {
        bytes.extend(integer.to_be_bytes());
    }
    for real in reals {
        bytes.extend(real.to_be_bytes());
    }
}

/// Append the numbers of a field; return whether all are finite in the unit of the file.
fn put_field(values: &[f32], unit: f32, bytes: &mut Vec<u8>) -> bool {
    let start = bytes.len();
    bytes.resize(start + 4 * values.len(), 0);
    let (numbers, _) = bytes[start..].as_chunks_mut();
    let mut sound = true;
    for (number, &value) in numbers.iter_mut().zip(values) {
        let value = value * unit;
        sound &= value.is_finite();
        *number = value.to_be_bytes();
    }
    sound
}

/// Return the message that names the first atom whose number cannot be written.
fn invalid_value_reason(values: &[f32], field: usize) -> String {
    let unsound = |&value: &f32| !(value * TO_FILE[field]).is_finite();
    let at = values.iter().position(unsound).unwrap_or(0);
    let (atom, name, value) = (at / 3, NAMES[field], values[at]);
    match value.is_finite() {
        true => format!("atom {atom}: expected a {name} that fits in 32 bits, found {value}"),
        false => not_finite(atom, name, value),
    }
}
