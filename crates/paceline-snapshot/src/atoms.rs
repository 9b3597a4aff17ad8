//! The atoms of one rank.

use std::ops::Range;

use bytemuck::cast_slice;
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

    /// True if vectors are of f64.
    pub fn is_wide(&self) -> bool {
        matches!(self.positions, Vectors::F64(_))
    }

    /// Return the vectors that are there.
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

// Atoms in the order in which they are written.

/// Something of each atom, as bytes: that of the atom in place k begins at `first + k * stride`.
#[derive(Debug, Clone, Copy)]
pub struct Column<'a> {
    pub bytes: &'a [u8],
    pub first: usize,
    pub stride: usize,
}

impl<'a> Column<'a> {
    fn of<T: bytemuck::NoUninit>(values: &'a [T], stride: usize) -> Self {
        Column {
            bytes: cast_slice(values),
            first: 0,
            stride,
        }
    }

    #[inline]
    pub fn get<const N: usize>(&self, place: usize) -> [u8; N] {
        let start = self.first + place * self.stride;
        let mut value = [0; N];
        value.copy_from_slice(&self.bytes[start..start + N]);
        value
    }
}

/// A column of vectors, of eight or four bytes a number.
#[derive(Debug, Clone, Copy)]
pub struct VectorColumn<'a> {
    pub column: Column<'a>,
    pub wide: bool,
}

impl<'a> From<Vectors<'a>> for VectorColumn<'a> {
    fn from(vectors: Vectors<'a>) -> Self {
        let (column, wide) = match vectors {
            Vectors::F32(values) => (Column::of(values, 12), false),
            Vectors::F64(values) => (Column::of(values, 24), true),
        };
        VectorColumn { column, wide }
    }
}

impl VectorColumn<'_> {
    #[inline]
    fn get(&self, place: usize) -> [f64; 3] {
        match self.wide {
            true => bytemuck::cast(self.column.get::<24>(place)),
            false => bytemuck::cast::<_, [f32; 3]>(self.column.get::<12>(place)).map(f64::from),
        }
    }
}

/// Atoms in the order in which they are written: a rank's own, or packed ones.
#[derive(Debug, Clone, Copy)]
pub struct Batch<'a> {
    /// Place of the first atom in the columns.
    pub first: usize,
    pub n_atoms: usize,
    pub ids: Column<'a>,
    pub positions: Option<VectorColumn<'a>>,
    pub velocities: Option<VectorColumn<'a>>,
    pub forces: Option<VectorColumn<'a>>,
    pub names: Option<Column<'a>>,
    pub masses: Option<Column<'a>>,
    pub charges: Option<Column<'a>>,
}

impl<'a> From<&Atoms<'a>> for Batch<'a> {
    fn from(atoms: &Atoms<'a>) -> Self {
        Batch {
            first: 0,
            n_atoms: atoms.len(),
            ids: Column::of(atoms.ids, 8),
            positions: Some(atoms.positions.into()),
            velocities: atoms.velocities.map(VectorColumn::from),
            forces: atoms.forces.map(VectorColumn::from),
            names: atoms.names.map(|names| Column::of(names, 8)),
            masses: atoms.masses.map(|masses| Column::of(masses, 8)),
            charges: atoms.charges.map(|charges| Column::of(charges, 8)),
        }
    }
}

impl Batch<'_> {
    pub fn len(&self) -> usize {
        self.n_atoms
    }

    pub fn is_empty(&self) -> bool {
        self.n_atoms == 0
    }

    /// Some of them, neighbours.
    pub fn part(&self, atoms: Range<usize>) -> Self {
        Batch {
            first: self.first + atoms.start,
            n_atoms: atoms.len(),
            ..*self
        }
    }

    pub fn id(&self, k: usize) -> u64 {
        u64::from_ne_bytes(self.ids.get(self.first + k))
    }

    /// Å; zeros where there are none, as for all that follow.
    pub fn position(&self, k: usize) -> [f64; 3] {
        vector(self.positions, self.first + k)
    }

    /// Å/ps.
    pub fn velocity(&self, k: usize) -> [f64; 3] {
        vector(self.velocities, self.first + k)
    }

    /// kJ/(mol·Å).
    pub fn force(&self, k: usize) -> [f64; 3] {
        vector(self.forces, self.first + k)
    }

    pub fn name(&self, k: usize) -> [u8; 8] {
        self.names
            .map_or([0; 8], |column| column.get(self.first + k))
    }

    /// u.
    pub fn mass(&self, k: usize) -> f64 {
        number(self.masses, self.first + k)
    }

    /// e.
    pub fn charge(&self, k: usize) -> f64 {
        number(self.charges, self.first + k)
    }
}

fn vector(column: Option<VectorColumn<'_>>, place: usize) -> [f64; 3] {
    column.map_or([0.0; 3], |column| column.get(place))
}

fn number(column: Option<Column<'_>>, place: usize) -> f64 {
    column.map_or(0.0, |column| f64::from_ne_bytes(column.get(place)))
}

// The bytes that a format makes of an atom.

/// Makes the bytes of atoms for one file. Every atom takes the same number of them.
pub trait Records: Sync {
    /// Bytes of an atom in each section of a frame.
    fn sections(&self) -> &[usize];

    /// The vectors that are written.
    fn fields(&self) -> Fields;

    /// True if names are written, which then must be there.
    fn has_names(&self) -> bool;

    /// True if masses and charges are written; zeros where there are none.
    fn has_masses(&self) -> bool;

    /// Refuse what this format cannot hold.
    ///
    /// # Errors
    /// The first such atom's place in `atoms`, and why, in a sentence.
    fn check(&self, atoms: &Atoms<'_>) -> Result<(), (usize, String)>;

    /// Write all atoms of a batch, in its order, over the bytes that they take in one section.
    fn put(&self, section: usize, batch: &Batch<'_>, bytes: &mut [u8]);
}
