//! What stands before the numbers of a frame, and where these stand.

use crate::Fields;
use crate::error::Fault;
use crate::xdr::Xdr;

pub const MAGIC: i32 = 1993;

/// Bytes that suffice to parse any header.
pub const HEADER_MAX: usize = 92;

/// Without time and lambda, whose width the header tells.
const HEADER_FIXED: u64 = 76;

/// What GROMACS calls the version of its file.
pub(super) const VERSION: &[u8; 12] = b"GMX_trn_file";

/// The blocks of a frame, in their order in the header and behind it.
pub(super) const BLOCKS: [&str; 10] =
    ["ir", "e", "box", "vir", "pres", "top", "sym", "x", "v", "f"];
pub(super) const BOX: usize = 2;
pub(super) const FIELDS: [usize; 3] = [7, 8, 9];

const AT_VERSION: usize = 12;
pub(super) const AT_BLOCKS: usize = 24;
/// Where the number of atoms stands.
pub const AT_ATOMS: usize = 64;

/// The header of a frame.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Header {
    pub n_atoms: usize,
    pub step: i32,
    /// ps
    pub time: f64,
    pub(super) contents: Contents,
}

/// What a frame holds, and where: the same for most frames of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Contents {
    /// Bytes of the whole frame.
    pub size: u64,
    /// Bytes of a number.
    pub width: u64,
    /// Offset of the box from the frame's first byte.
    pub cell: Option<u64>,
    /// Offsets of positions, velocities and forces.
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
    /// [`Fault::Short`] where `bytes` ends before the header, [`Fault::Bad`] where the header
    /// contradicts the format or itself.
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
        let time = match contents.width {
            8 => [xdr.f64()?, xdr.f64()?],
            _ => [xdr.f32()?.into(), xdr.f32()?.into()],
        };
        let [time, _lambda] = time;
        Ok(Header {
            n_atoms,
            step,
            time,
            contents,
        })
    }

    /// Bytes of the whole frame.
    pub fn size(&self) -> u64 {
        self.contents.size
    }
}

fn check_version(xdr: &mut Xdr<'_>) -> Result<(), Fault> {
    let magic = xdr.i32()?;
    if magic != MAGIC {
        return Err(Fault::bad(0, "the magic number of TRR, 1993", magic));
    }
    // The C string's length with its end, then XDR's without.
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
    /// Nothing but the blocks' sizes tells how wide a number is.
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
