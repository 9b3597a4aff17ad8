//! The atoms of one rank.

use std::ops::Range;

use paceline_formats::Fields;

/// Three numbers an atom.
#[derive(Debug, Clone, Copy)]
pub enum Vectors<'a> {
    F32(&'a [f32]),
    F64(&'a [f64]),
}

impl Vectors<'_> {
    pub fn get(&self, atom: usize) -> [f64; 3] {
        match self {
            Vectors::F32(values) => std::array::from_fn(|axis| values[3 * atom + axis].into()),
            Vectors::F64(values) => std::array::from_fn(|axis| values[3 * atom + axis]),
        }
    }

    fn part(&self, atoms: Range<usize>) -> Self {
        let numbers = 3 * atoms.start..3 * atoms.end;
        match self {
            Vectors::F32(values) => Vectors::F32(&values[numbers]),
            Vectors::F64(values) => Vectors::F64(&values[numbers]),
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

    /// Whether vectors are of f64.
    pub fn is_wide(&self) -> bool {
        matches!(self.positions, Vectors::F64(_))
    }

    /// Which vectors are there.
    pub fn fields(&self) -> Fields {
        Fields {
            positions: true,
            velocities: self.velocities.is_some(),
            forces: self.forces.is_some(),
        }
    }

    /// Vectors by what one is called.
    pub fn vectors(&self) -> [(&'static str, Option<Vectors<'a>>); 3] {
        [
            ("position", Some(self.positions)),
            ("velocity", self.velocities),
            ("force", self.forces),
        ]
    }

    /// Some of them, neighbours.
    pub fn part(&self, atoms: Range<usize>) -> Self {
        let part = |vectors: Vectors<'a>| vectors.part(atoms.clone());
        let numbers = |values: &'a [f64]| &values[atoms.clone()];
        Atoms {
            ids: &self.ids[atoms.clone()],
            positions: part(self.positions),
            velocities: self.velocities.map(part),
            forces: self.forces.map(part),
            names: self.names.map(|names| &names[atoms.clone()]),
            masses: self.masses.map(numbers),
            charges: self.charges.map(numbers),
        }
    }
}
