//! The atoms of one rank.

use crate::formats::Fields;

/// Three numbers an atom.
#[derive(Debug, Clone, Copy)]
pub enum Vectors<'a> {
    F32(&'a [f32]),
    F64(&'a [f64]),
}

impl Vectors<'_> {
    /// Number of atoms.
    pub fn len(&self) -> usize {
        match self {
            Vectors::F32(values) => values.len() / 3,
            Vectors::F64(values) => values.len() / 3,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first of an atom's numbers that is not finite.
    pub fn odd(&self, atom: usize) -> Option<f64> {
        let odd = |value: &f64| !value.is_finite();
        self.get(atom).into_iter().find(odd)
    }

    pub fn get(&self, atom: usize) -> [f64; 3] {
        match self {
            Vectors::F32(values) => std::array::from_fn(|axis| values[3 * atom + axis].into()),
            Vectors::F64(values) => std::array::from_fn(|axis| values[3 * atom + axis]),
        }
    }
}

/// The atoms of one rank, in any order. Units: Å, Å/ps, kJ/(mol·Å), u, e.
#[derive(Debug, Clone, Copy)]
pub struct Atoms<'a> {
    /// From 1 to the number of atoms of all ranks.
    pub ids: &'a [i64],
    pub positions: Vectors<'a>,
    pub velocities: Option<Vectors<'a>>,
    pub forces: Option<Vectors<'a>>,
    /// Filled up with blanks.
    pub names: Option<&'a [[u8; 8]]>,
    pub masses: Option<&'a [f64]>,
    pub charges: Option<&'a [f64]>,
}

impl<'a> Atoms<'a> {
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Which vectors are there.
    pub fn fields(&self) -> Fields {
        Fields {
            positions: true,
            velocities: self.velocities.is_some(),
            forces: self.forces.is_some(),
        }
    }

    /// The vectors that are there, and the name of one of them.
    pub fn vectors(&self) -> impl Iterator<Item = (&'static str, Vectors<'a>)> {
        [
            ("position", Some(self.positions)),
            ("velocity", self.velocities),
            ("force", self.forces),
        ]
        .into_iter()
        .filter_map(|(name, vectors)| Some((name, vectors?)))
    }
}
