//! Text dumps of atoms of LAMMPS (`dump atom`, `dump custom`).
//!
//! Each frame has a header (see `frame_head.rs`), and a line for each atom. The header states the
//! columns of the lines (`layout_and_columns.rs`). Atoms usually have ids, and may be in any order;
//! the decoder returns them in the order of their ids. Positions are relative to the corner
//! of the cell in the first frame, so that atoms at rest do not move when the cell changes. Numbers
//! are converted if their unit style is known ([`Units`]; for example `units real` in LAMMPS's
//! input).

mod format_implementation;
mod frame_head;
mod layout_and_columns;

use xxhash_rust::xxh3::xxh3_64;

use self::frame_head::Bounds;
use self::layout_and_columns::{Columns, WantedColumns};
use crate::atom_set::Atoms;
use crate::error::Fault;
use crate::text_lines::{Lines, quoted};
use crate::{Decoder, Fields, FrameOut, Run, UnitCell, triclinic_vectors};

pub use self::format_implementation::LammpsDump;
pub use self::frame_head::FrameHead;
pub use self::layout_and_columns::{Ids, Layout};

/// Maximum length of a line, bytes. Lines may have many columns.
pub const MAX_LINE: usize = 16 << 10;

/// Minimum length of the line of an atom with three numbers, bytes.
const ATOM_MIN: u64 = 6;

/// Decoder of the wanted atoms and fields of one file.
#[derive(Debug)]
pub struct LammpsDecoder {
    layout: Layout,
    wanted: Fields,
    n_wanted: usize,
    /// For each atom, in the order of ids, its index in the output; [`UNWANTED`] for other atoms.
    targets: Vec<u32>,
    /// Byte range (run) of a whole frame. Its length is the size of the frame requested last.
    whole: [Run; 1],
    /// Bit mask of the atoms found in a frame.
    seen: Vec<u64>,
    /// Id and offset of each atom of a frame, if ids have gaps or vary from frame to frame.
    found: Vec<(u64, usize)>,
}

const UNWANTED: u32 = u32::MAX;

impl LammpsDecoder {
    /// # Panics
    /// If `atoms` is not a selection of `layout.n_atoms()` atoms.
    pub fn new(layout: Layout, atoms: &Atoms, wanted: Fields) -> Self {
        assert_eq!(atoms.n_total(), layout.n_atoms(), "atoms of another system");
        let mut targets = vec![UNWANTED; layout.n_atoms()];
        let places = atoms.runs().iter().flat_map(|&(first, n)| first..first + n);
        for (place, target) in places.zip(0..) {
            targets[place] = target;
        }
        LammpsDecoder {
            layout,
            wanted,
            n_wanted: atoms.len(),
            targets,
            whole: [Run { start: 0, len: 0 }],
            seen: Vec::new(),
            found: Vec::new(),
        }
    }

    fn check_room(&self, size: u64, bytes: &[u8], out: &FrameOut<'_>) -> Result<(), Fault> {
        if bytes.len() as u64 != size {
            let expected = format!("{size} bytes of the frame");
            return Err(Fault::bad(0, expected, bytes.len()));
        }
        let (wanted, width) = (self.wanted, 3 * self.n_wanted);
        let room = |wanted: bool, values: &[f32]| !wanted || values.len() == width;
        if room(wanted.positions, out.positions)
            && room(wanted.velocities, out.velocities)
            && room(wanted.forces, out.forces)
        {
            return Ok(());
        }
        let expected = format!("room for {} atoms", self.n_wanted);
        Err(Fault::bad(0, expected, "room for others"))
    }

    /// Return the cell and the columns of a frame. Refuse a frame whose number of atoms or whose
    /// columns contradict the layout.
    fn check_head(&self, head: &FrameHead) -> Result<(Bounds, Columns), Fault> {
        let bad = |expected: String, found: &str| Err(Fault::bad(head.len, expected, found));
        if head.n_atoms != self.layout.n_atoms() as u64 {
            if self.layout.ids == Ids::Varying {
                // The scan has checked that complete frames have the stated number of lines, so
                // this frame is damaged.
                return bad(format!("{} lines of atoms", head.n_atoms), "others");
            }
            let expected = format!("a frame of {} atoms", self.layout.n_atoms());
            return bad(expected, &format!("{}", head.n_atoms));
        }
        let Some(cell) = head.cell else {
            return bad(format_implementation::known_cells(), "another cell");
        };
        let Some(columns) = head.columns else {
            return bad(layout_and_columns::names_of_positions(), "none");
        };
        match columns.check_like(&self.layout) {
            Ok(()) => Ok((cell, columns)),
            Err(expected) => bad(expected, "others"),
        }
    }

    /// Decode atoms if each line determines the index of its atom: by an id from 1 to the number of
    /// atoms or, if atoms have no ids, by the order of lines.
    fn decode_by_place(
        &mut self,
        mut lines: AtomLines<'_>,
        frame: &FrameNumbers,
        out: &mut FrameOut<'_>,
    ) -> Result<(), Fault> {
        let n_atoms = self.targets.len();
        self.seen.clear();
        self.seen.resize(n_atoms.div_ceil(64), 0);
        for k in 0..n_atoms {
            let (at, line) = lines.next()?;
            let id = frame.columns.id_of(at, line)?;
            let place = id.map_or(k, |id| usize::try_from(id - 1).unwrap_or(usize::MAX));
            let Some(&target) = self.targets.get(place) else {
                let expected = format!("ids from 1 to {n_atoms}, each once");
                return Err(Fault::bad(at, expected, quoted(line)));
            };
            let (word, bit) = (&mut self.seen[place / 64], 1 << (place % 64));
            if *word & bit != 0 {
                return Err(duplicate_id(at, place as u64 + 1));
            }
            *word |= bit;
            if target != UNWANTED {
                frame.store(at, line, target, out)?;
            }
        }
        lines.end()
    }

    /// Decode atoms whose ids have gaps, such as those of a group that was dumped, or vary. The ids
    /// must be those that `digest` identifies. If `digest` is `None`, any ids are accepted.
    fn decode_by_rank(
        &mut self,
        lines: AtomLines<'_>,
        digest: Option<u64>,
        frame: &FrameNumbers,
        out: &mut FrameOut<'_>,
    ) -> Result<(), Fault> {
        let mut walk = lines.clone();
        walk.take_ids(&frame.columns, self.targets.len(), &mut self.found)?;
        walk.end()?;
        if digest.is_some_and(|digest| digest_of(&self.found) != digest) {
            let ids = (self.found.first(), self.found.last());
            let (Some((first, _)), Some((last, _))) = ids else {
                return Ok(());
            };
            let found = format!("others, from {first} to {last}");
            return Err(Fault::bad(lines.at(), "the ids of the first frame", found));
        }
        for (&(_, at), &target) in self.found.iter().zip(&self.targets) {
            if target != UNWANTED {
                let (at, line) = lines.from(at).next()?;
                frame.store(at, line, target, out)?;
            }
        }
        Ok(())
    }
}

impl Decoder for LammpsDecoder {
    fn runs(&mut self, _frame: u64, size: u64) -> &[Run] {
        self.whole[0].len = size;
        &self.whole
    }

    fn decode(
        &mut self,
        _frame: u64,
        size: u64,
        bytes: &[u8],
        mut out: FrameOut<'_>,
    ) -> Result<(), Fault> {
        self.check_room(size, bytes, &out)?;
        let head = FrameHead::parse(bytes, size)?;
        let (cell, columns) = self.check_head(&head)?;
        let frame = FrameNumbers::new(columns, cell, &self.layout, self.wanted, head.len)?;
        let lines = AtomLines::behind(bytes, head.len);
        match self.layout.ids {
            Ids::Others(digest) => self.decode_by_rank(lines, Some(digest), &frame, &mut out)?,
            Ids::Varying => self.decode_by_rank(lines, None, &frame, &mut out)?,
            Ids::None | Ids::Dense => self.decode_by_place(lines, &frame, &mut out)?,
        }
        *out.cell = frame.unit_cell(&cell, self.layout.corner).row();
        *out.time = self.layout.time(self.layout.moment_of(&head));
        *out.step = head.step;
        *out.fields = self.layout.fields;
        Ok(())
    }
}

/// Conversion of the words in the lines of a frame to numbers.
struct FrameNumbers {
    columns: Columns,
    wanted: WantedColumns,
    /// Origin that is subtracted from positions.
    corner: [f64; 3],
    /// Cell, if positions are fractional coordinates.
    scale: Option<[[f32; 3]; 3]>,
    /// Factors that convert lengths, velocities and forces to paceline's units.
    factors: [f64; 3],
}

impl FrameNumbers {
    fn new(
        columns: Columns,
        cell: Bounds,
        layout: &Layout,
        wanted: Fields,
        at: usize,
    ) -> Result<Self, Fault> {
        let scale = match columns.is_scaled() {
            false => None,
            true => match triclinic_vectors(&cell.dimensions) {
                None => return Err(Fault::bad(at, "a cell, for scaled positions", "none")),
                vectors => vectors,
            },
        };
        // Fractional coordinates yield positions relative to the corner of the cell of their frame.
        // They are shifted to the corner of the first frame, like other positions. This corner is
        // then subtracted once more, because MDAnalysis subtracts a corner here, too.
        let corner = match scale {
            None => layout.corner,
            Some(_) => std::array::from_fn(|i| 2.0 * layout.corner[i] - cell.origin[i]),
        };
        Ok(FrameNumbers {
            columns,
            wanted: columns.wanted(wanted),
            corner,
            scale,
            factors: layout.units.map_or([1.0; 3], Units::factors),
        })
    }

    /// Create the unit cell. Its origin is relative to the corner of the cell in the first frame.
    fn unit_cell(&self, cell: &Bounds, first: [f64; 3]) -> UnitCell {
        let of_length = self.factors[0];
        let [a, b, c, angles @ ..] = cell.dimensions;
        let [a, b, c] = [a, b, c].map(|edge| (f64::from(edge) * of_length) as f32);
        let [alpha, beta, gamma] = angles;
        if [a, b, c] == [0.0; 3] {
            return UnitCell::NONE;
        }
        UnitCell {
            dimensions: [a, b, c, alpha, beta, gamma],
            vectors: cell.vectors.map(|vector| vector.map(|x| of_length * x)),
            origin: std::array::from_fn(|i| of_length * (cell.origin[i] - first[i])),
            periodic: cell.periodic,
        }
    }

    /// Convert the numbers in the line of an atom, and store them in the output.
    fn store(
        &self,
        at: usize,
        line: &[u8],
        target: u32,
        out: &mut FrameOut<'_>,
    ) -> Result<(), Fault> {
        let numbers = self.wanted.read(at, line)?;
        let [x, y, z, velocity @ .., fx, fy, fz] = numbers;
        let [of_length, of_velocity, of_force] = self.factors;
        let position = self.position([x, y, z].map(|number| number as f32));
        for (values, vector, factor) in [
            (&mut *out.positions, position.map(f64::from), of_length),
            (&mut *out.velocities, velocity, of_velocity),
            (&mut *out.forces, [fx, fy, fz], of_force),
        ] {
            let start = 3 * target as usize;
            if let Some(values) = values.get_mut(start..start + 3) {
                values.copy_from_slice(&vector.map(|number| (number * factor) as f32));
            }
        }
        Ok(())
    }

    /// Compute the position relative to the corner of the cell. The operations and their precision
    /// are those of MDAnalysis (`transform_StoR` and `DumpReader`), to get the same float32
    /// numbers.
    fn position(&self, found: [f32; 3]) -> [f32; 3] {
        let position = match &self.scale {
            None => found,
            Some(vectors) => std::array::from_fn(|axis| {
                let terms = found.iter().zip(vectors);
                terms.fold(0.0, |sum: f32, (&part, vector)| {
                    (f64::from(sum) + f64::from(part) * f64::from(vector[axis])) as f32
                })
            }),
        };
        std::array::from_fn(|axis| (f64::from(position[axis]) - self.corner[axis]) as f32)
    }
}

/// Iterator over the lines of atoms in a frame.
#[derive(Debug, Clone)]
struct AtomLines<'a> {
    bytes: &'a [u8],
    lines: Lines<'a>,
}

impl<'a> AtomLines<'a> {
    fn behind(bytes: &'a [u8], at: usize) -> Self {
        AtomLines::within(bytes, bytes.len() as u64, at)
    }

    /// Create the lines from offset `at` on. The text has `size` bytes, and `bytes` may contain
    /// only the first of them.
    fn within(bytes: &'a [u8], size: u64, at: usize) -> Self {
        let lines = Lines::behind(bytes, size, at).up_to(MAX_LINE);
        AtomLines { bytes, lines }
    }

    /// Return the lines from another offset on.
    fn from(&self, at: usize) -> Self {
        AtomLines::behind(self.bytes, at)
    }

    fn at(&self) -> usize {
        self.lines.at()
    }

    /// Return offset and line of the next atom.
    fn next(&mut self) -> Result<(usize, &'a [u8]), Fault> {
        let line = self.lines.next("the line of an atom")?;
        Ok((self.offset(line), line))
    }

    /// Check that no line follows the last atom.
    fn end(&mut self) -> Result<(), Fault> {
        match self.lines.next_if_any()? {
            None => Ok(()),
            Some(line) => {
                let at = self.offset(line);
                Err(Fault::bad(at, "no line after the last atom", quoted(line)))
            }
        }
    }

    /// Return the offset of a line that `next` returned.
    fn offset(&self, line: &[u8]) -> usize {
        line.as_ptr().addr() - self.bytes.as_ptr().addr()
    }

    /// Collect id and offset of each of `n_atoms` atoms, in the order of ids.
    fn take_ids(
        &mut self,
        columns: &Columns,
        n_atoms: usize,
        found: &mut Vec<(u64, usize)>,
    ) -> Result<(), Fault> {
        found.clear();
        for _ in 0..n_atoms {
            let (at, line) = self.next()?;
            found.push((columns.id_of(at, line)?.unwrap_or(0), at));
        }
        found.sort_unstable();
        match found.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            Some(pair) => Err(duplicate_id(pair[1].1, pair[1].0)),
            None => Ok(()),
        }
    }
}

fn duplicate_id(at: usize, id: u64) -> Fault {
    Fault::bad(at, "each atom once in a frame", format!("atom {id} again"))
}

/// Compute a hash that identifies a set of ids.
fn digest_of(ids: &[(u64, usize)]) -> u64 {
    let each = ids.iter().map(|(id, _)| xxh3_64(&id.to_le_bytes()));
    each.fold(0, u64::wrapping_add)
}

// Unit styles, and conversion factors. Values are from CODATA 2010, as in MDAnalysis.

/// 1 N in kJ/(mol·Å).
const NEWTON: f64 = 6.02214129e10;
/// 1 eV in kJ/mol.
const ELECTRONVOLT: f64 = 6.02214129e20 * 1.602176565e-19;
/// 1 bohr in Å.
const BOHR: f64 = 0.52917721092;
/// 1 hartree in kJ/mol.
const HARTREE: f64 = 27.21138505 * ELECTRONVOLT;

/// Units and default time step of a unit style of LAMMPS.
struct Style {
    name: &'static str,
    /// Factors that convert length to Å, velocity to Å/ps, and force to kJ/(mol·Å).
    factors: [f64; 3],
    /// Unit of time, ps.
    time: f64,
    /// Default time step of LAMMPS, in the unit of time.
    step: f64,
}

const fn style(name: &'static str, factors: [f64; 3], time: f64, step: f64) -> Style {
    Style {
        name,
        factors,
        time,
        step,
    }
}

/// All unit styles (LAMMPS's manual, "units command").
///
/// Velocities of `electron` are in bohr/fs, because LAMMPS integrates them with its time in fs. The
/// manual of LAMMPS states another unit of time, 1.03275 fs.
const STYLES: [Style; 8] = [
    style("lj", [1.0; 3], 1.0, 0.005),
    style("real", [1.0, 1e3, 4.184], 1e-3, 1.0),
    style("metal", [1.0, 1.0, ELECTRONVOLT], 1.0, 0.001),
    style("si", [1e10, 1e-2, NEWTON], 1e12, 1e-8),
    style("cgs", [1e8, 1e-4, 1e-5 * NEWTON], 1e12, 1e-8),
    style("electron", [BOHR, 1e3 * BOHR, HARTREE / BOHR], 1e-3, 0.001),
    style("micro", [1e4, 1e-2, 1e-9 * NEWTON], 1e6, 2.0),
    style("nano", [10.0, 1e-2, 1e-12 * NEWTON], 1e3, 0.00045),
];

/// Unit style of LAMMPS: an index of `STYLES`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Units(u8);

impl Units {
    /// Warning about numbers without units.
    pub const REDUCED: &str = "numbers have no unit (units lj): they are not converted, but \
                               labelled Å, ps, Å/ps and kJ/(mol·Å)";

    /// Reason why the unit of lengths is unknown.
    pub const UNKNOWN: &str = "the file does not state the units of the simulation";

    /// Return the unit style with this name in LAMMPS's command `units`.
    pub fn named(name: &[u8]) -> Option<Units> {
        let place = STYLES
            .iter()
            .position(|style| style.name.as_bytes() == name);
        place.and_then(|place| Units::from_code(place as u8))
    }

    /// Return the message for an unknown unit style.
    pub fn unknown(name: &str) -> String {
        let expected = Units::names();
        format!("units= (--units) must be one of {expected}, not {name:?}")
    }

    /// Return the unit style for a result of [`Units::code`].
    pub fn from_code(code: u8) -> Option<Units> {
        STYLES.get(usize::from(code)).map(|_| Units(code))
    }

    /// Return the number of the unit style, for saved layouts.
    pub fn code(self) -> u8 {
        self.0
    }

    fn style(self) -> &'static Style {
        &STYLES[usize::from(self.0)]
    }

    /// Return the name of the unit style in LAMMPS's command `units`.
    pub fn name(self) -> &'static str {
        self.style().name
    }

    /// True for reduced units. Their numbers are not converted.
    pub fn is_reduced(self) -> bool {
        self.name() == "lj"
    }

    /// Return the factors that convert lengths, velocities and forces to Å, Å/ps and kJ/(mol·Å).
    pub fn factors(self) -> [f64; 3] {
        self.style().factors
    }

    /// Return the unit of time, ps; 1 for reduced units.
    pub fn time(self) -> f64 {
        self.style().time
    }

    /// Return the default time step of LAMMPS, in its unit of time.
    pub fn usual_step(self) -> f64 {
        self.style().step
    }

    /// Return the name of the unit of time.
    pub fn name_of_time(self) -> &'static str {
        match self.name() {
            "lj" => "\u{3c4}",
            "real" | "electron" => "fs",
            "metal" => "ps",
            "micro" => "\u{b5}s",
            "nano" => "ns",
            _ => "s",
        }
    }

    /// Return the names of all unit styles.
    pub fn names() -> String {
        STYLES.each_ref().map(|style| style.name).join(", ")
    }
}
