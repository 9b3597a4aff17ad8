//! Atoms in the order in which they are written.

use bytemuck::cast_slice;

use super::{Atoms, Vectors};

/// Something of each atom, as bytes: that of atom k begins at `first + k * stride`.
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

    fn get<const N: usize>(&self, atom: usize) -> [u8; N] {
        let start = self.first + atom * self.stride;
        let mut value = [0; N];
        value.copy_from_slice(&self.bytes[start..start + N]);
        value
    }
}

/// A column of vectors, of four or eight bytes a number.
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
    fn get(&self, atom: usize) -> [f64; 3] {
        match self.wide {
            true => bytemuck::cast(self.column.get::<24>(atom)),
            false => bytemuck::cast::<_, [f32; 3]>(self.column.get::<12>(atom)).map(f64::from),
        }
    }
}

/// Atoms in the order in which they are written: a rank's own, or such as came from all ranks.
#[derive(Debug, Clone, Copy)]
pub struct Batch<'a> {
    /// Place of each atom in the columns; None where that is their own order.
    pub order: Option<&'a [u32]>,
    pub n_atoms: usize,
    pub ids: Column<'a>,
    pub positions: VectorColumn<'a>,
    pub velocities: Option<VectorColumn<'a>>,
    pub forces: Option<VectorColumn<'a>>,
    pub names: Option<Column<'a>>,
    pub masses: Option<Column<'a>>,
    pub charges: Option<Column<'a>>,
}

impl<'a> From<&Atoms<'a>> for Batch<'a> {
    /// Atoms in their own order.
    fn from(atoms: &Atoms<'a>) -> Self {
        Batch {
            order: None,
            n_atoms: atoms.len(),
            ids: Column::of(atoms.ids, 8),
            positions: atoms.positions.into(),
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

    fn place(&self, k: usize) -> usize {
        self.order.map_or(k, |order| order[k] as usize)
    }

    pub fn id(&self, k: usize) -> u64 {
        u64::from_ne_bytes(self.ids.get(self.place(k)))
    }

    /// Å.
    pub fn position(&self, k: usize) -> [f64; 3] {
        self.positions.get(self.place(k))
    }

    /// Å/ps; zeros where there are none.
    pub fn velocity(&self, k: usize) -> [f64; 3] {
        self.velocities
            .map_or([0.0; 3], |column| column.get(self.place(k)))
    }

    /// kJ/(mol·Å); zeros where there are none.
    pub fn force(&self, k: usize) -> [f64; 3] {
        self.forces
            .map_or([0.0; 3], |column| column.get(self.place(k)))
    }

    /// Blanks where there are none.
    pub fn name(&self, k: usize) -> [u8; 8] {
        self.names
            .map_or([b' '; 8], |column| column.get(self.place(k)))
    }

    /// u; 0 where there are none.
    pub fn mass(&self, k: usize) -> f64 {
        number(self.masses, self.place(k))
    }

    /// e; 0 where there are none.
    pub fn charge(&self, k: usize) -> f64 {
        number(self.charges, self.place(k))
    }
}

fn number(column: Option<Column<'_>>, place: usize) -> f64 {
    column.map_or(0.0, |column| f64::from_ne_bytes(column.get(place)))
}
