//! Text files of DL_POLY: HISTORY, which is a trajectory, and CONFIG and REVCON, which contain one
//! frame.
//!
//! The files consist of lines of text (see `header.rs`, `frame_head.rs` and `atoms.rs`). DL_POLY
//! writes records of 73 bytes, or 35 bytes in a compressed HISTORY, so that the offsets of frames
//! and atoms can be computed. DL_POLY Classic, other programs and editors write lines of other
//! lengths, which may vary. Atoms usually have ids, and may be in any order in the file. The
//! decoder returns them in the order of their ids.

mod atoms;
pub mod encode;
mod format_implementation;
mod frame_head;
mod header;

use self::atoms::Walk;
use self::encode::FORCE;
use self::header::{LineLengths, Widths};
use crate::atom_set::Atoms;
use crate::error::Fault;
use crate::frame_codec::ReadRanges;
use crate::source::GAP;
use crate::{Decoder, Fields, FrameOut, Run, UnitCell};

pub use self::atoms::{Record, Records};
pub use self::format_implementation::{Config, History};
pub use self::frame_head::{FrameHead, FrameLines, Header, TIMESTEP};
pub use self::header::{Head, counts, detect};
pub use self::header::{Kind, Layout};
pub use crate::text_lines::MAX_LINE;
pub(crate) use crate::text_lines::is_blank;

/// Length of a DL_POLY record including the line feed, bytes.
const RECORD: u64 = 73;

/// Decoder of the wanted atoms and fields of one file.
#[derive(Debug)]
pub struct DlpolyDecoder {
    layout: Layout,
    atoms: Atoms,
    wanted: Fields,
    /// Plan for reading, if lines have equal lengths and atoms are in order.
    plan: Option<Plan>,
    /// Byte range (run) of a whole frame. Its length is the size of the frame requested last.
    whole: [Run; 1],
    /// True if a frame was found in which atoms are not in order.
    unordered: bool,
}

impl DlpolyDecoder {
    /// # Panics
    /// If `atoms` is not a selection of `layout.n_atoms()` atoms.
    pub fn new(layout: Layout, atoms: Atoms, wanted: Fields) -> Self {
        assert_eq!(atoms.n_total(), layout.n_atoms(), "atoms of another system");
        let plan = match layout.lines {
            LineLengths::Equal(widths) if layout.ordered => {
                Some(Plan::new(&layout, widths, &atoms))
            }
            _ => None,
        };
        DlpolyDecoder {
            layout,
            atoms,
            wanted,
            plan,
            whole: [Run { start: 0, len: 0 }],
            unordered: false,
        }
    }

    fn check(&self, size: u64, bytes: &[u8], out: &FrameOut<'_>) -> Result<(), Fault> {
        if let Some(expected) = self.layout.frame_size()
            && size != expected
        {
            let expected = format!("a frame of {expected} bytes");
            return Err(Fault::bad(0, expected, format!("{size} bytes")));
        }
        let (len, planned) = (bytes.len() as u64, self.plan.as_ref().map(|plan| plan.len));
        if len != size && Some(len) != planned {
            let expected = format!("{size} bytes of the frame or those of its runs");
            return Err(Fault::bad(0, expected, len));
        }
        let (wanted, width) = (self.wanted, 3 * self.atoms.len());
        let room = |wanted: bool, values: &[f32]| !wanted || values.len() == width;
        if room(wanted.positions, out.positions)
            && room(wanted.velocities, out.velocities)
            && room(wanted.forces, out.forces)
        {
            return Ok(());
        }
        let expected = format!("room for {} atoms", self.atoms.len());
        Err(Fault::bad(0, expected, "room for others"))
    }

    /// Decode the wanted atoms at the places that follow from their ids. Return false if an atom
    /// there has another id. `walk` covers the bytes of the plan's runs, or the whole frame.
    fn decode_in_order(
        &self,
        plan: &Plan,
        head: &FrameHead,
        walk: Walk<'_>,
        out: &mut FrameOut<'_>,
    ) -> Result<bool, Fault> {
        let mut target = 0;
        for piece in &plan.pieces {
            let in_frame = head.len + piece.place * plan.atom_size;
            let mut walk = match walk.is_whole() {
                true => walk.from(in_frame),
                false => walk.from(piece.source),
            };
            let missed = in_frame - walk.at;
            for place in piece.place..piece.place + piece.n {
                let lines = walk.next().map_err(|fault| fault.behind(missed))?;
                if lines.id().is_some_and(|id| id != place as u64 + 1) {
                    return Ok(false);
                }
                let vectors = lines.read_vectors(self.wanted, place);
                store(&vectors.map_err(|fault| fault.behind(missed))?, target, out);
                target += 1;
            }
        }
        Ok(true)
    }

    /// Decode the wanted atoms of a whole frame, in which the atoms may be in any order.
    fn decode_in_any_order(&self, mut walk: Walk<'_>, out: &mut FrameOut<'_>) -> Result<(), Fault> {
        let mut found = Vec::new();
        for place in 0..self.layout.n_atoms {
            let at = walk.at;
            let id = walk.next()?.id();
            found.push((id.unwrap_or(place + 1), at));
        }
        walk.end()?;
        if !found.is_sorted_by(|(id, _), (next, _)| id < next) {
            found.sort_unstable();
            if let Some([(id, _), (_, at)]) = found.windows(2).find(|pair| pair[0].0 == pair[1].0) {
                let found = format!("atom {id} again");
                return Err(Fault::bad(*at, "each atom once in a frame", found));
            }
        }
        let wanted = self
            .atoms
            .runs()
            .iter()
            .flat_map(|&(first, n)| first..first + n);
        for (target, place) in wanted.enumerate() {
            let vectors = walk
                .from(found[place].1)
                .next()?
                .read_vectors(self.wanted, place)?;
            store(&vectors, target, out);
        }
        Ok(())
    }
}

impl Decoder for DlpolyDecoder {
    fn runs(&mut self, _frame: u64, size: u64) -> &[Run] {
        match &self.plan {
            _ if self
                .layout
                .frame_size()
                .is_some_and(|expected| size != expected) =>
            {
                &[]
            }
            Some(plan) if !self.unordered => &plan.runs,
            _ => {
                self.whole[0].len = size;
                &self.whole
            }
        }
    }

    fn decode(
        &mut self,
        _frame: u64,
        size: u64,
        bytes: &[u8],
        mut out: FrameOut<'_>,
    ) -> Result<(), Fault> {
        self.check(size, bytes, &out)?;
        let head = FrameHead::parse(&self.layout, bytes, size)?;
        let walk = Walk::new(self.layout, &head, bytes, size);
        let in_order = match &self.plan {
            Some(plan) => self.decode_in_order(plan, &head, walk, &mut out)?,
            None => false,
        };
        if !in_order && !walk.is_whole() {
            self.unordered = true;
            return Err(Fault::Short {
                needed: size as usize,
            });
        }
        if !in_order {
            self.decode_in_any_order(walk, &mut out)?;
        }
        let cell = head.cell.map_or(UnitCell::NONE, UnitCell::of_vectors);
        *out.cell = UnitCell {
            periodic: self.layout.periodic(),
            ..cell
        }
        .row();
        *out.time = head.time;
        *out.step = head.step;
        *out.fields = head.fields;
        Ok(())
    }
}

/// Copy position, velocity and force of an atom to the output. Convert the force to kJ/(mol·Å).
fn store(vectors: &[[f64; 3]; 3], target: usize, out: &mut FrameOut<'_>) {
    let [position, velocity, force] = vectors;
    let force = &force.map(|value| value / FORCE);
    for (values, vector) in [
        (&mut *out.positions, position),
        (&mut *out.velocities, velocity),
        (&mut *out.forces, force),
    ] {
        if let Some(values) = values.get_mut(3 * target..3 * target + 3) {
            values.copy_from_slice(&vector.map(|value| value as f32));
        }
    }
}

// Plan of the bytes to read from a frame, if lines have equal lengths.

/// Plan for reading a frame: its header, and the wanted atoms.
#[derive(Debug)]
struct Plan {
    pub runs: Vec<Run>,
    /// Total size of all runs, bytes.
    pub len: u64,
    pub pieces: Vec<Piece>,
    /// Size of the lines of an atom, bytes.
    pub atom_size: usize,
}

/// Wanted atoms that are adjacent in the frame.
#[derive(Debug, Clone, Copy)]
struct Piece {
    /// Offset of the first atom in the concatenated runs.
    pub source: usize,
    /// Index of the first atom in the frame.
    pub place: usize,
    pub n: usize,
}

impl Plan {
    pub fn new(layout: &Layout, widths: Widths, atoms: &Atoms) -> Plan {
        let head = u64::from(widths.head);
        let size = layout.atom_size(widths);
        let mut reading = ReadRanges::new(GAP);
        reading.want(0, head);
        let pieces = atoms.runs().iter().map(|&(place, n)| Piece {
            source: reading.want(head + place as u64 * size, n as u64 * size),
            place,
            n,
        });
        Plan {
            pieces: pieces.collect(),
            runs: reading.runs,
            len: reading.len,
            atom_size: size as usize,
        }
    }
}
