//! XTC, the compressed trajectory of GROMACS: positions as integers of a fixed precision.
//!
//! ```text
//! byte  0  magic            i32   1995, or 2023 where the byte count below has 64 bits
//!       4  atoms            i32
//!       8  step             i32
//!      12  time             f32   ps
//!      16  box              9 f32 nm, one vector after the other
//!      52  atoms            i32   again
//!      56  positions        3 f32 an atom, nm: frames of at most 9 atoms end with these
//!      56  precision        f32   integers per nm
//!      60  minimum          3 i32 of x, y, z over all atoms
//!      72  maximum          3 i32
//!      84  small index      i32   see `decode`
//!      88  byte count       i32, or i64
//!   92/96  packed positions       padded to a multiple of 4 bytes
//! ```

mod decode;
mod decode_fast;
mod encode;
mod format_implementation;
mod mixed_radix;
mod simd_vectors;

use self::decode::{Packed, RUN_MAX, SMALL_MIN, Wanted};
use super::{Decoder, Fields, FrameOut, Run};
use crate::atom_set::Atoms;
use crate::error::{Fault, Result};
use crate::frame_codec::check_time;
use crate::xdr;
use crate::xdr::{Xdr, padding};

pub use self::encode::{PRECISION, XtcEncoder};
pub use self::format_implementation::{Xtc, XtcLayout};

pub(crate) const MAGIC_1995: i32 = 1995;
pub(crate) const MAGIC_2023: i32 = 2023;

/// Maximum size of a header, bytes.
pub const HEADER_MAX: usize = 96;

/// Maximum size of an atom, bytes: three fields of 32 bits, a flag and a run, rounded up.
const ATOM_BYTES_MAX: u64 = 13;

/// Maximum number of atoms in frames that contain unpacked floats.
const PLAIN_ATOMS: usize = 9;
const PLAIN_START: usize = 56;

const AT_ATOMS: usize = 4;
const AT_BYTE_COUNT: usize = 88;

/// Minimum size of a frame with this number of atoms, bytes. For a packed frame, this is the size
/// if all runs have the maximum length and the fewest bits, without the bits of full positions.
fn frame_min(n_atoms: u64) -> u64 {
    const LEAST_BITS: u64 = SMALL_MIN as u64;
    match n_atoms <= PLAIN_ATOMS as u64 {
        true => PLAIN_START as u64 + 12 * n_atoms,
        false => {
            AT_BYTE_COUNT as u64
                + 4
                + (n_atoms - n_atoms.div_ceil(1 + RUN_MAX as u64)) * LEAST_BITS / 8
        }
    }
}

/// Header of a frame: all data before its positions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Header {
    /// Number of atoms.
    pub n_atoms: usize,
    /// Step of the simulation.
    pub step: i32,
    /// Time, ps.
    pub time: f32,
    /// Box, nm.
    pub box_vectors: [[f32; 3]; 3],
    /// Size of the whole frame including padding, bytes.
    pub size: u64,
    /// Packing of the positions; `None` for unpacked floats.
    packed: Option<Packed>,
}

impl Header {
    /// # Errors
    /// [`Fault::Short`] if `bytes` ends before the header. [`Fault::Bad`] if the header contradicts
    /// the format or itself.
    pub fn parse(bytes: &[u8]) -> Result<Header, Fault> {
        let mut xdr = Xdr::new(bytes);
        let magic = xdr.i32()?;
        if magic != MAGIC_1995 && magic != MAGIC_2023 {
            let expected = "the magic number of XTC, 1995 or 2023";
            return Err(Fault::bad(0, expected, magic));
        }
        let atoms = xdr.i32()?;
        let Ok(n_atoms) = usize::try_from(atoms) else {
            return Err(Fault::bad(AT_ATOMS, "a number of atoms", atoms));
        };
        let step = xdr.i32()?;
        let at = xdr.at();
        let time = xdr.f32()?;
        check_time(at, time.into())?;
        let box_vectors = [xdr.f32x3()?, xdr.f32x3()?, xdr.f32x3()?];
        let at = xdr.at();
        let again = xdr.i32()?;
        if again != atoms {
            let expected = format!("{atoms} atoms, as at the start of the frame");
            return Err(Fault::bad(at, expected, again));
        }
        let (packed, size) = if n_atoms <= PLAIN_ATOMS {
            (None, (PLAIN_START + 12 * n_atoms) as u64)
        } else {
            let packed = Packed::parse(&mut xdr, n_atoms, magic == MAGIC_2023)?;
            let size = xdr.at() as u64 + packed.len + padding(packed.len);
            (Some(packed), size)
        };
        Ok(Header {
            n_atoms,
            step,
            time,
            box_vectors,
            size,
            packed,
        })
    }
}

/// Decodes the wanted atoms of frames, and learns how many bytes of a frame it needs.
#[derive(Debug)]
pub struct XtcDecoder {
    atoms: Atoms,
    wanted: Wanted,
    /// Approximate maximum number of bytes that a frame has needed so far, counted from its start.
    reach: Option<u64>,
    /// Last result of [`Decoder::runs`].
    run: [Run; 1],
}

impl XtcDecoder {
    /// Create a decoder of the positions of some atoms.
    pub fn new(atoms: Atoms) -> Self {
        XtcDecoder {
            wanted: Wanted::new(&atoms),
            atoms,
            reach: None,
            run: [Run { start: 0, len: 0 }],
        }
    }

    /// Return the number of bytes of a frame that probably contain all wanted atoms.
    fn likely_reach(&self, size: u64) -> u64 {
        let (end, total) = (self.atoms.end() as u64, self.atoms.n_total() as u64);
        // A damaged range of the file is listed as one frame, and can have any size. At most the
        // bytes of the largest valid frame are requested, and `decode` then refuses the header.
        let size = size.min(HEADER_MAX as u64 + ATOM_BYTES_MAX * total);
        // Omitting the bytes of the last tenth of the atoms is not worth the risk of a second read.
        if end >= total - total / 10 {
            return size;
        }
        let reach = match self.reach {
            Some(reach) => reach,
            None => {
                // A protein, which usually comes first, needs more bytes per atom than water.
                let reach = (u128::from(size) * u128::from(end) / u128::from(total)) as u64;
                reach + reach / 4
            }
        };
        with_margin(reach).min(size)
    }

    fn check(&self, header: &Header, size: u64) -> Result<(), Fault> {
        let n_total = self.atoms.n_total();
        if header.n_atoms != n_total {
            let expected = format!("{n_total} atoms, as in the topology");
            return Err(Fault::bad(AT_ATOMS, expected, header.n_atoms));
        }
        if header.size != size {
            let expected = format!("a byte count that makes a frame of {size} bytes");
            let found = format!("one that makes {} bytes", header.size);
            return Err(Fault::bad(AT_BYTE_COUNT, expected, found));
        }
        Ok(())
    }

    fn decode_positions(
        &mut self,
        header: &Header,
        bytes: &[u8],
        positions: &mut [f32],
    ) -> Result<(), Fault> {
        let Some(packed) = &header.packed else {
            return self.copy_positions(bytes, positions);
        };
        match packed.decode(bytes, &self.wanted, positions) {
            Ok(reach) => {
                // Small increases are ignored: the bytes of many frames are requested from a store
                // in advance, and every increase would request a few more bytes of each of these
                // frames.
                let reach = reach as u64;
                if self.reach.is_none_or(|known| reach > known + known / 32) {
                    self.reach = Some(reach);
                }
                Ok(())
            }
            Err(Fault::Short { needed }) => {
                let needed = with_margin(needed as u64).min(header.size) as usize;
                Err(Fault::Short { needed })
            }
            Err(fault) => Err(fault),
        }
    }

    fn copy_positions(&self, bytes: &[u8], positions: &mut [f32]) -> Result<(), Fault> {
        let needed = PLAIN_START + 12 * self.atoms.end();
        let Some(stored) = bytes.get(PLAIN_START..needed) else {
            return Err(Fault::Short { needed });
        };
        let runs = self.atoms.runs().iter();
        let wanted =
            runs.flat_map(|&(first, n)| stored[12 * first..12 * (first + n)].chunks_exact(4));
        for (position, nm) in positions.iter_mut().zip(wanted) {
            *position = f32::from_be_bytes([nm[0], nm[1], nm[2], nm[3]]) * 10.0;
        }
        Ok(())
    }
}

fn with_margin(reach: u64) -> u64 {
    reach + reach / 16 + HEADER_MAX as u64
}

impl Decoder for XtcDecoder {
    fn runs(&mut self, _frame: u64, size: u64) -> &[Run] {
        self.run[0].len = self.likely_reach(size);
        &self.run
    }

    fn decode(
        &mut self,
        _frame: u64,
        size: u64,
        bytes: &[u8],
        out: FrameOut<'_>,
    ) -> Result<(), Fault> {
        // The length of the output follows from the chosen atoms, not from the content of the file,
        // so that a wrong length is an error of the caller.
        assert_eq!(out.positions.len(), 3 * self.atoms.len());
        let header = Header::parse(bytes).map_err(|fault| fault.within(size))?;
        self.check(&header, size)?;
        *out.fields = Fields::POSITIONS;
        *out.step = i64::from(header.step);
        *out.time = f64::from(header.time);
        *out.cell = xdr::unit_cell(header.box_vectors.map(|vector| vector.map(f64::from))).row();
        self.decode_positions(&header, bytes, out.positions)
    }
}
