//! Atoms of one rank, their packing in messages, and the interface of their encoders.

use std::ops::Range;

use bytemuck::cast_slice;
use paceline_formats::Fields;

/// Vectors of atoms: three numbers per atom.
#[derive(Debug, Clone, Copy)]
pub enum Vectors<'a> {
    /// Single precision: x, y, z of each atom in turn.
    F32(&'a [f32]),
    /// Double precision: x, y, z of each atom in turn.
    F64(&'a [f64]),
}

impl Vectors<'_> {
    /// x, y, z of the atom at this index.
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

/// Atoms of one rank, in any order. Units: Å, Å/ps, kJ/(mol·Å), u, e.
#[derive(Debug, Clone, Copy)]
pub struct Atoms<'a> {
    /// Ids, from 1 to the number of atoms of all ranks.
    pub ids: &'a [i64],
    /// Positions.
    pub positions: Vectors<'a>,
    /// Velocities, if they are written.
    pub velocities: Option<Vectors<'a>>,
    /// Forces, if they are written.
    pub forces: Option<Vectors<'a>>,
    /// Names, padded with blanks.
    pub names: Option<&'a [[u8; 8]]>,
    /// Masses, if they are written.
    pub masses: Option<&'a [f64]>,
    /// Charges, if they are written.
    pub charges: Option<&'a [f64]>,
}

impl<'a> Atoms<'a> {
    /// Number of atoms of this rank.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// True if this rank has no atom.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// True if vectors have double precision.
    pub fn is_wide(&self) -> bool {
        matches!(self.positions, Vectors::F64(_))
    }

    /// Return which of positions, velocities and forces these atoms have.
    pub fn fields(&self) -> Fields {
        Fields {
            positions: true,
            velocities: self.velocities.is_some(),
            forces: self.forces.is_some(),
        }
    }

    /// Return the vectors, each with its name in the singular for messages.
    pub fn vectors(&self) -> [(&'static str, Option<Vectors<'a>>); 3] {
        [
            ("position", Some(self.positions)),
            ("velocity", self.velocities),
            ("force", self.forces),
        ]
    }

    /// Return a contiguous range of atoms.
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

/// Values of one property as bytes: the value of atom k begins at `first + k * stride`.
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

/// Column of vectors, with numbers of four or eight bytes.
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

/// Atoms in the order in which they are written: a rank's own atoms, or packed atoms.
#[derive(Debug, Clone, Copy)]
pub struct Batch<'a> {
    /// Index of the first atom in the columns.
    pub first: usize,
    /// Number of atoms of the batch.
    pub n_atoms: usize,
    /// Ids, u64 in native byte order.
    pub ids: Column<'a>,
    /// Positions.
    pub positions: Option<VectorColumn<'a>>,
    /// Velocities.
    pub velocities: Option<VectorColumn<'a>>,
    /// Forces.
    pub forces: Option<VectorColumn<'a>>,
    /// Names, 8 bytes each.
    pub names: Option<Column<'a>>,
    /// Masses, f64.
    pub masses: Option<Column<'a>>,
    /// Charges, f64.
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
    /// Number of atoms of the batch.
    pub fn len(&self) -> usize {
        self.n_atoms
    }

    /// True if the batch has no atom.
    pub fn is_empty(&self) -> bool {
        self.n_atoms == 0
    }

    /// Return a contiguous range of atoms.
    pub fn part(&self, atoms: Range<usize>) -> Self {
        Batch {
            first: self.first + atoms.start,
            n_atoms: atoms.len(),
            ..*self
        }
    }

    /// Id of atom `k` of the batch.
    pub fn id(&self, k: usize) -> u64 {
        u64::from_ne_bytes(self.ids.get(self.first + k))
    }

    /// Position of atom `k`, Å; zeros if there are no positions.
    pub fn position(&self, k: usize) -> [f64; 3] {
        vector(self.positions, self.first + k)
    }

    /// Velocity of atom `k`, Å/ps; zeros if there are no velocities.
    pub fn velocity(&self, k: usize) -> [f64; 3] {
        vector(self.velocities, self.first + k)
    }

    /// Force on atom `k`, kJ/(mol·Å); zeros if there are no forces.
    pub fn force(&self, k: usize) -> [f64; 3] {
        vector(self.forces, self.first + k)
    }

    /// Name of atom `k` of the batch, padded with blanks; zero bytes if there are no names.
    pub fn name(&self, k: usize) -> [u8; 8] {
        self.names
            .map_or([0; 8], |column| column.get(self.first + k))
    }

    /// Mass of atom `k`, u; 0 if there are no masses.
    pub fn mass(&self, k: usize) -> f64 {
        number(self.masses, self.first + k)
    }

    /// Charge of atom `k`, e; 0 if there are no charges.
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

// Encoding of an atom in each format.

/// Encoder of atoms for one file. Every atom has the same number of bytes.
pub trait Records: Sync {
    /// Return the number of bytes of an atom in each section of a frame.
    fn sections(&self) -> &[usize];

    /// Return the vectors that are written.
    fn fields(&self) -> Fields;

    /// Return true if names are written; atoms must then have names.
    fn has_names(&self) -> bool;

    /// Return true if masses and charges are written. Missing masses and charges are written as
    /// zeros.
    fn has_masses(&self) -> bool;

    /// Refuse atoms that this format cannot represent.
    ///
    /// # Errors
    /// The index of the first such atom in `atoms`, and the reason as a message.
    fn check(&self, atoms: &Atoms<'_>) -> Result<(), (usize, String)>;

    /// Encode all atoms of a batch, in its order, into the bytes of one section.
    fn put(&self, section: usize, batch: &Batch<'_>, bytes: &mut [u8]);
}

// Packed atoms in messages. Atoms follow one another, each with all properties that are written.
//
// ```text
// id            u64
// position      3 × f32 or f64, the same type on all ranks
// velocity      the same, where they are written
// force         the same, where they are written
// name          8 characters, where they are written
// mass, charge  2 × f64, where they are written
// ```

/// Number of atoms that are packed together, property by property. They fit into the cache.
const BLOCK: usize = 64;

/// Offsets of the properties in a packed atom, bytes.
#[derive(Debug, Clone, Copy)]
pub struct Packing {
    /// True if vectors have double precision.
    wide: bool,
    /// Offsets of position, velocity and force; `None` for a vector that is not written.
    vectors: [Option<usize>; 3],
    name: Option<usize>,
    masses: Option<usize>,
    size: usize,
}

/// Property of an atom, and its offset in the packed atom.
struct Part<'a> {
    from: Option<Column<'a>>,
    at: usize,
    size: usize,
}

impl Packing {
    /// Create the packing of all properties that a format writes, with vectors in double or single
    /// precision.
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

    /// Size of a packed atom, bytes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Pack as many atoms as fit into `bytes`. Packed atom k is the atom at index `place(k)` of
    /// `atoms`. Vectors must have the precision of this packing.
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

    /// Ids of packed atoms.
    pub fn ids(&self, packed: &[u8]) -> impl Iterator<Item = u64> {
        let heads = packed
            .chunks_exact(self.size)
            .filter_map(<[u8]>::first_chunk);
        heads.map(|&head| u64::from_ne_bytes(head))
    }

    /// Copy packed atoms at some indices, one after another.
    pub fn gather(&self, packed: &[u8], places: &[u32], gathered: &mut [u8]) {
        match self.size {
            // Sizes of a packed atom with three vectors in double precision, in CONFIG and in
            // HISTORY. A size known at compile time saves an eighth of the time of sorting.
            88 => gather::<88>(packed, places, gathered),
            104 => gather::<104>(packed, places, gathered),
            size => {
                for (&place, to) in places.iter().zip(gathered.chunks_exact_mut(size)) {
                    to.copy_from_slice(&packed[place as usize * size..][..size]);
                }
            }
        }
    }

    /// View packed atoms as a batch, in their order.
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

    /// True if vectors have double precision.
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
    /// Copy this property of all atoms of a block.
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
