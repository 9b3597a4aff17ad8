//! Atoms as they travel: one after another, each with all that is written of it.
//!
//! ```text
//! id            u64
//! position      3 × f32 or f64, as the ranks have them
//! velocity      the same, where they are written
//! force         the same, where they are written
//! name          8 characters, where they are written
//! mass, charge  2 × f64, where they are written
//! ```

use super::{Atoms, Batch, Records};
use crate::atoms::{Column, VectorColumn};

/// Atoms of which one part after another is packed: few enough that they stay in the cache.
const BLOCK: usize = 64;

/// Offsets of the parts of a packed atom, bytes.
#[derive(Debug, Clone, Copy)]
pub struct Packing {
    /// True if vectors are of f64.
    wide: bool,
    /// Positions, velocities, forces.
    vectors: [Option<usize>; 3],
    name: Option<usize>,
    masses: Option<usize>,
    size: usize,
}

/// Part of an atom, and its offset in the packed atom.
struct Part<'a> {
    from: Option<Column<'a>>,
    at: usize,
    size: usize,
}

impl Packing {
    /// All that a format writes of atoms whose vectors are of f64, or of f32.
    pub fn new(records: &dyn Records, wide: bool) -> Self {
        let fields = records.fields();
        let mut size = 8;
        let mut room = |wanted: bool, bytes: usize| {
            let at = size;
            size += if wanted { bytes } else { 0 };
            wanted.then_some(at)
        };
        let vector = if wide { 24 } else { 12 };
        let vectors =
            [fields.positions, fields.velocities, fields.forces].map(|wanted| room(wanted, vector));
        Packing {
            wide,
            vectors,
            name: room(records.has_names(), 8),
            masses: room(records.has_masses(), 16),
            size,
        }
    }

    /// Bytes of an atom.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Pack as many atoms as `bytes` holds, that number k from place `place(k)` of `atoms`. Vectors
    /// must be of the type that this packing is for.
    pub fn pack(&self, atoms: &Atoms<'_>, place: impl Fn(usize) -> usize, bytes: &mut [u8]) {
        let parts = self.parts(atoms);
        for (number, block) in bytes.chunks_mut(BLOCK * self.size).enumerate() {
            let place = |k| place(number * BLOCK + k);
            for part in &parts {
                match part.size {
                    8 => part.copy::<8>(place, block, self.size),
                    12 => part.copy::<12>(place, block, self.size),
                    _ => part.copy::<24>(place, block, self.size),
                }
            }
        }
    }

    /// The ids of packed atoms.
    pub fn ids(&self, packed: &[u8]) -> impl Iterator<Item = u64> {
        let heads = packed
            .chunks_exact(self.size)
            .filter_map(<[u8]>::first_chunk);
        heads.map(|&head| u64::from_ne_bytes(head))
    }

    /// Copy packed atoms at some places, one after another.
    pub fn gather(&self, packed: &[u8], places: &[u32], gathered: &mut [u8]) {
        match self.size {
            // What CONFIG and HISTORY have, in 64 bits. A size that the compiler knows takes an
            // eighth off the time of putting a dump in order.
            88 => gather::<88>(packed, places, gathered),
            104 => gather::<104>(packed, places, gathered),
            size => {
                for (&place, to) in places.iter().zip(gathered.chunks_exact_mut(size)) {
                    to.copy_from_slice(&packed[place as usize * size..][..size]);
                }
            }
        }
    }

    /// Packed atoms, in their order.
    pub fn batch<'a>(&self, packed: &'a [u8]) -> Batch<'a> {
        let column = |first| Column {
            bytes: packed,
            first,
            stride: self.size,
        };
        let vectors = |at: Option<usize>| {
            let wide = self.wide;
            at.map(|at| VectorColumn {
                column: column(at),
                wide,
            })
        };
        let [positions, velocities, forces] = self.vectors;
        Batch {
            first: 0,
            n_atoms: packed.len() / self.size,
            ids: column(0),
            positions: vectors(positions),
            velocities: vectors(velocities),
            forces: vectors(forces),
            names: self.name.map(column),
            masses: self.masses.map(column),
            charges: self.masses.map(|at| column(at + 8)),
        }
    }

    /// True if it is for vectors of f64.
    pub fn is_wide(&self) -> bool {
        self.wide
    }

    fn parts<'a>(&self, atoms: &Atoms<'a>) -> Vec<Part<'a>> {
        let batch = Batch::from(atoms);
        let size = if self.wide { 24 } else { 12 };
        let vector = |column: VectorColumn<'a>| column.column;
        let [position, velocity, force] = self.vectors;
        let columns = [
            (Some(0), Some(batch.ids), 8),
            (position, batch.positions.map(vector), size),
            (velocity, batch.velocities.map(vector), size),
            (force, batch.forces.map(vector), size),
            (self.name, batch.names, 8),
            (self.masses, batch.masses, 8),
            (self.masses.map(|at| at + 8), batch.charges, 8),
        ];
        let part = |(at, from, size)| {
            Some(Part {
                from,
                at: at?,
                size,
            })
        };
        columns.into_iter().filter_map(part).collect()
    }
}

fn gather<const SIZE: usize>(packed: &[u8], places: &[u32], gathered: &mut [u8]) {
    let (packed, _) = packed.as_chunks::<SIZE>();
    let (gathered, _) = gathered.as_chunks_mut::<SIZE>();
    for (&place, to) in places.iter().zip(gathered) {
        *to = packed[place as usize];
    }
}

impl Part<'_> {
    /// Copy this part of all atoms of a block.
    fn copy<const SIZE: usize>(
        &self,
        place: impl Fn(usize) -> usize,
        block: &mut [u8],
        stride: usize,
    ) {
        for (k, packed) in block.chunks_exact_mut(stride).enumerate() {
            let value = self.from.map_or([0; SIZE], |column| column.get(place(k)));
            packed[self.at..self.at + SIZE].copy_from_slice(&value);
        }
    }
}
