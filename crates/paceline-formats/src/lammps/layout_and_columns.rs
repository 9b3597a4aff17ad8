//! Layout of a dump, determined from its first frame, and the line-by-line scan for frames.

use super::Units;
use super::frame_head::{ATOMS, begins_frame};
use super::{AtomLines, FrameHead, MAX_LINE, digest_of};
use crate::Fields;
use crate::error::Fault;
use crate::format_interface::Clock;
use crate::fortran_numbers::{take_integer, take_real};
use crate::frame_codec::possible_time;
use crate::text_lines::{LineFrame, quoted, words};

/// Properties of a file that are needed to decode its frames.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Layout {
    pub(super) n_atoms: u32,
    pub(super) ids: Ids,
    /// Naming convention of the position columns: an index of `POSITIONS`.
    pub(super) convention: u8,
    /// Fields that all frames contain.
    pub(super) fields: Fields,
    /// Unit style of the numbers; `None` if unknown.
    pub(super) units: Option<Units>,
    /// Corner of the cell in the first frame: the origin of positions in all frames.
    pub(super) corner: [f64; 3],
    /// True if frames state times in addition to steps.
    pub(super) has_times: bool,
}

/// Ids of the atoms in a file. They are the same in all frames, except for `Varying`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ids {
    /// Atoms have no ids: they are read in the order of their lines.
    None,
    /// Ids from 1 to the number of atoms.
    Dense,
    /// Other ids. A hash identifies the set.
    Others(u64),
    /// Different ids in each frame, because the number of atoms varies.
    Varying,
}

impl Layout {
    /// Derive the layout from the header of a frame; [`Layout::with_ids`] then adds the ids. `None`
    /// if the frame is unsupported.
    pub fn of(head: &FrameHead) -> Option<Layout> {
        let columns = head.columns?;
        let cell = head.cell?;
        Some(Layout {
            n_atoms: u32::try_from(head.n_atoms).ok()?,
            ids: match columns.id {
                None => Ids::None,
                Some(_) => Ids::Dense,
            },
            convention: columns.convention,
            fields: columns.fields(),
            units: head.units,
            corner: cell.origin,
            has_times: head.time.is_some(),
        })
    }

    /// Return the number from which the time of a frame is computed: its time in LAMMPS's unit, or
    /// else its step. NaN if other frames state times, but this frame does not.
    pub(super) fn moment_of(&self, head: &FrameHead) -> f64 {
        match self.has_times {
            true => head.time.unwrap_or(f64::NAN),
            false => head.step as f64,
        }
    }

    /// Return the time of a frame, ps, from `moment`, a result of [`Layout::moment_of`]. If the
    /// file has only step numbers, the default time step of the unit style is used. If the unit
    /// style is unknown, `moment` is returned unchanged: a step then counts as 1 ps, as in
    /// MDAnalysis.
    pub(super) fn time(&self, moment: f64) -> f64 {
        let step = |units: Units| units.usual_step() * units.time();
        possible_time(match (self.units, self.has_times) {
            (None, _) => moment,
            (Some(units), true) => moment * units.time(),
            (Some(units), false) => moment * step(units),
        })
    }

    /// Return whether the times are known, and if not, the reason.
    pub(super) fn clock(&self) -> Clock {
        const STEPS: &str = "the file has numbers of steps only (dump_modify time yes writes times), \
                             and a step counts as";
        Clock::Unscaled(match (self.units, self.has_times) {
            (Some(_), true) => return Clock::Known,
            (None, true) => "they are in the units of the simulation, which the file does not \
                             state: pass, for example, units=\"real\" (--units real)"
                .into(),
            (None, false) => format!("{STEPS} 1 ps"),
            (Some(units), false) => {
                let (step, unit, name) = (units.usual_step(), units.name_of_time(), units.name());
                format!("{STEPS} {step} {unit}, the default of LAMMPS in units {name}")
            }
        })
    }

    /// Add the ids of the first frame. `bytes` are the first bytes of a file of `size` bytes. If
    /// the ids have gaps, the second frame is read, too, because the first one may be damaged.
    ///
    /// # Errors
    /// [`Fault::Short`] if more bytes are needed.
    pub fn with_ids(self, bytes: &[u8], size: u64) -> Result<Layout, Fault> {
        if self.ids == Ids::None {
            return Ok(self);
        }
        let mut ids = Ids::Dense;
        if let Some((first @ Ids::Others(_), end)) = unless_bad(ids_of(bytes, size))? {
            let second = ids_of(bytes.get(end..).unwrap_or_default(), size - end as u64);
            let second = unless_bad(second.map_err(|fault| fault.behind(end)))?;
            ids = match second {
                Some((Ids::Dense, _)) => Ids::Dense,
                _ => first,
            };
        }
        Ok(Layout { ids, ..self })
    }

    /// Number of atoms in a frame.
    pub fn n_atoms(&self) -> usize {
        self.n_atoms as usize
    }

    /// Serialise the layout. [`Layout::from_bytes`] of the same version of this crate can parse it.
    pub fn to_bytes(&self) -> Vec<u8> {
        let (kind, digest) = match self.ids {
            Ids::None => (0, 0),
            Ids::Dense => (1, 0),
            Ids::Others(digest) => (2, digest),
            Ids::Varying => (3, 0),
        };
        let units = self.units.map_or(0, |units| 1 + units.code());
        let kind = kind | u8::from(self.has_times) << 2;
        let mut bytes = vec![self.convention, self.fields.bits(), units, kind];
        bytes.extend(self.n_atoms.to_le_bytes());
        bytes.extend(digest.to_le_bytes());
        bytes.extend(self.corner.iter().flat_map(|x| x.to_le_bytes()));
        bytes
    }

    /// Parse the result of [`Layout::to_bytes`]; `None` for invalid bytes.
    pub fn from_bytes(bytes: &[u8]) -> Option<Layout> {
        let (&[convention, fields, units, kind], rest) = bytes.split_first_chunk()?;
        let (&n_atoms, rest) = rest.split_first_chunk()?;
        let (&digest, rest) = rest.split_first_chunk()?;
        let digest = u64::from_le_bytes(digest);
        let (corner, []) = rest.as_chunks() else {
            return None;
        };
        let &[x, y, z] = corner else { return None };
        let corner = [x, y, z].map(f64::from_le_bytes);
        let layout = Layout {
            n_atoms: u32::from_le_bytes(n_atoms),
            ids: match kind & 3 {
                0 => Ids::None,
                1 => Ids::Dense,
                2 => Ids::Others(digest),
                _ => Ids::Varying,
            },
            convention,
            fields: Fields::from_bits(fields),
            units: units.checked_sub(1).and_then(Units::from_code),
            corner,
            has_times: kind & 4 != 0,
        };
        let is_sound = (1..=i32::MAX as u32).contains(&layout.n_atoms)
            && convention < N_CONVENTIONS
            && layout.fields.positions;
        (is_sound && layout.to_bytes() == bytes).then_some(layout)
    }
}

/// Return the ids of the frame at the start of `bytes`, and the end of the frame. `size` is the
/// number of remaining bytes of the file.
fn ids_of(bytes: &[u8], size: u64) -> Result<(Ids, usize), Fault> {
    let head = FrameHead::parse(bytes, size)?;
    let Some(columns) = head.columns.filter(|columns| columns.id.is_some()) else {
        return Ok((Ids::None, head.len));
    };
    let mut found = Vec::new();
    let mut lines = AtomLines::within(bytes, size, head.len);
    lines.take_ids(&columns, head.n_atoms as usize, &mut found)?;
    let is_dense = found.last().is_some_and(|&(last, _)| last == head.n_atoms);
    let ids = match is_dense {
        true => Ids::Dense,
        false => Ids::Others(digest_of(&found)),
    };
    Ok((ids, lines.at()))
}

/// Convert [`Fault::Bad`] to `None`.
fn unless_bad<T>(found: Result<T, Fault>) -> Result<Option<T>, Fault> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(Fault::Bad { .. }) => Ok(None),
        Err(fault) => Err(fault),
    }
}

/// Maximum number of bytes of the header of a frame that are examined.
const HEAD_MAX: usize = 64 << 10;

/// Header and number of lines of one frame, found by a scan. Blank lines are not counted.
#[derive(Debug, Clone)]
pub struct FrameLines {
    /// Header lines, up to the names of the columns.
    head: Vec<u8>,
    /// True until the line `ITEM: TIMESTEP` was found.
    awaits_step: bool,
    state: State,
    /// Layout of the file, for [`Layout::moment_of`].
    layout: Layout,
    moment: Option<(f64, i64)>,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Head,
    /// Lines of atoms. `missing` is the number of lines that must follow; it is negative if there
    /// are too many lines.
    Atoms {
        n_atoms: u32,
        missing: i64,
        n_columns: usize,
    },
    /// Lines after a header that is too long or invalid.
    Other,
}

impl LineFrame for FrameLines {
    type Layout = Layout;

    const MAX_LINE: usize = MAX_LINE;

    fn begins(last: Option<&Self>, line: &[u8]) -> bool {
        begins_frame(line).is_some() && last.is_none_or(|last| !last.awaits_step)
    }

    fn begin(layout: &Layout, line: &[u8]) -> Self {
        let mut frame = FrameLines {
            head: Vec::new(),
            awaits_step: true,
            state: State::Head,
            layout: *layout,
            moment: None,
        };
        frame.add(line);
        frame
    }

    fn add(&mut self, line: &[u8]) {
        match &mut self.state {
            State::Atoms { missing, .. } => *missing -= 1,
            State::Other => {}
            State::Head => {
                self.head.extend(line);
                self.head.push(b'\n');
                self.awaits_step &= begins_frame(line) != Some(true);
                if line.starts_with(ATOMS.as_bytes()) {
                    self.awaits_step = false;
                    let head = FrameHead::parse(&self.head, self.head.len() as u64);
                    let moment = |head| (self.layout.moment_of(head), head.step);
                    self.moment = head.as_ref().ok().map(moment);
                    self.state = match head {
                        Ok(head) => State::Atoms {
                            n_atoms: head.n_atoms as u32,
                            missing: head.n_atoms as i64,
                            n_columns: head.columns.map_or(0, |columns| columns.n),
                        },
                        Err(_) => State::Other,
                    };
                } else if self.head.len() > HEAD_MAX {
                    self.awaits_step = false;
                    self.state = State::Other;
                }
            }
        }
    }

    fn moment(&self) -> Option<(f64, i64)> {
        self.moment
    }

    fn n_atoms(&self) -> Option<u32> {
        match self.state {
            State::Atoms { n_atoms, .. } => Some(n_atoms),
            _ => None,
        }
    }

    fn ends_with(&self, line: &[u8]) -> bool {
        let n_words = words(line).count();
        matches!(self.state, State::Atoms { n_columns, .. } if n_columns == n_words)
    }

    fn missing(&self) -> Option<i64> {
        match self.state {
            State::Head => Some(1),
            State::Atoms { missing, .. } => Some(missing),
            State::Other => None,
        }
    }
}

// Columns of atoms: the words to read, and their conversion.

/// Names of position columns, in the order of MDAnalysis's preference.
const POSITIONS: [[&str; 3]; 4] = [
    ["x", "y", "z"],
    ["xs", "ys", "zs"],
    ["xu", "yu", "zu"],
    ["xsu", "ysu", "zsu"],
];
const VELOCITIES: [&str; 3] = ["vx", "vy", "vz"];
const FORCES: [&str; 3] = ["fx", "fy", "fz"];

/// Columns to read, by their indices in a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Columns {
    /// Number of words of a line.
    pub n: usize,
    pub id: Option<usize>,
    /// Naming convention of the position columns: an index of `POSITIONS`.
    pub convention: u8,
    positions: [usize; 3],
    velocities: Option<[usize; 3]>,
    forces: Option<[usize; 3]>,
}

impl Columns {
    /// Parse the text after "ITEM: ATOMS"; `None` if there are no columns of positions.
    pub fn parse(line: &[u8]) -> Option<Columns> {
        let names: Vec<&[u8]> = words(line).collect();
        // If several columns have the same name, MDAnalysis uses the last one.
        let place = |name: &str| names.iter().rposition(|&found| found == name.as_bytes());
        let three = |[x, y, z]: [&str; 3]| Some([place(x)?, place(y)?, place(z)?]);
        let mut found = POSITIONS.into_iter().map(three).zip(0..);
        let found = found.find_map(|(places, convention)| Some((convention, places?)));
        let (convention, positions) = found?;
        Some(Columns {
            n: names.len(),
            id: place("id"),
            convention,
            positions,
            velocities: three(VELOCITIES),
            forces: three(FORCES),
        })
    }

    /// Check that the columns of this frame are like those of the first frame.
    ///
    /// # Errors
    /// A description of the expected content.
    pub fn check_like(&self, layout: &Layout) -> Result<(), String> {
        if self.convention != layout.convention {
            let names = convention_name(layout.convention);
            return Err(format!(
                "positions in columns {names}, as in the first frame"
            ));
        }
        let (has_ids, fields) = (layout.ids != Ids::None, layout.fields);
        match (has_ids, self.id) {
            (true, None) => return Err("a column id, as in the first frame".into()),
            (false, Some(_)) => return Err("no column id, as in the first frame".into()),
            _ => {}
        }
        if let Some(field) = fields.beyond(self.fields()) {
            return Err(format!("columns of {field}, as in the first frame"));
        }
        match self.fields().beyond(fields) {
            Some(field) => Err(format!("no columns of {field}, as in the first frame")),
            None => Ok(()),
        }
    }

    /// Return true if positions are fractional coordinates.
    pub fn is_scaled(&self) -> bool {
        matches!(self.convention, 1 | 3)
    }

    pub fn fields(&self) -> Fields {
        Fields {
            positions: true,
            velocities: self.velocities.is_some(),
            forces: self.forces.is_some(),
        }
    }

    /// Parse the id of the atom in a line; `None` if there is no column of ids.
    ///
    /// # Errors
    /// [`Fault::Bad`] if the word is not an integer above 0.
    pub fn id_of(&self, at: usize, line: &[u8]) -> Result<Option<u64>, Fault> {
        let Some(column) = self.id else {
            return Ok(None);
        };
        let mut rest = after_words(line, column);
        let id = take_integer(&mut rest).and_then(|id| u64::try_from(id).ok());
        match id.filter(|&id| id > 0) {
            Some(id) => Ok(Some(id)),
            None => {
                let expected = format!("an atom's id in column {}, from 1 on", column + 1);
                Err(Fault::bad(at, expected, quoted(line)))
            }
        }
    }

    /// Return the columns that must be read from each line for the fields `wanted`.
    pub fn wanted(&self, wanted: Fields) -> WantedColumns {
        let chosen = [
            wanted.positions.then_some(self.positions),
            self.velocities.filter(|_| wanted.velocities),
            self.forces.filter(|_| wanted.forces),
        ];
        let slots = chosen.into_iter().enumerate().flat_map(|(field, places)| {
            let places = places.into_iter().flatten().enumerate();
            places.map(move |(axis, place)| (place, 3 * field + axis))
        });
        let mut columns: Vec<(usize, usize)> = slots.collect();
        columns.sort_unstable();
        WantedColumns { columns, n: self.n }
    }
}

/// Number of naming conventions of positions.
pub const N_CONVENTIONS: u8 = POSITIONS.len() as u8;

/// Return the names of the position columns of a convention.
pub fn convention_name(convention: u8) -> String {
    let names = POSITIONS.get(usize::from(convention));
    names.map_or_else(String::new, |names| names.join(" "))
}

/// Return a description of the sets of position columns. A frame must have one of the sets.
pub fn names_of_positions() -> String {
    let names = POSITIONS.map(|names| names.join(" ")).join(", ");
    format!("columns of positions ({names})")
}

/// Columns to read from each line.
#[derive(Debug)]
pub struct WantedColumns {
    /// Index of each wanted column in the line, in increasing order, and index of its number in the
    /// result of [`WantedColumns::read`].
    columns: Vec<(usize, usize)>,
    /// Number of words of a line.
    n: usize,
}

impl WantedColumns {
    /// Read position, velocity and force of an atom. Unwanted values are 0.
    ///
    /// # Errors
    /// [`Fault::Bad`] if a word is not a number, or the number of words is wrong.
    pub fn read(&self, at: usize, line: &[u8]) -> Result<[f64; 9], Fault> {
        let mut numbers = [0.0; 9];
        let (mut rest, mut n) = (line, 0);
        for &(place, slot) in &self.columns {
            rest = after_words(rest, place - n);
            let Some(number) = take_real(&mut rest) else {
                let expected = format!("a number in column {}", place + 1);
                return Err(Fault::bad(at, expected, quoted(line)));
            };
            numbers[slot] = number;
            n = place + 1;
        }
        match n + words(rest).count() {
            found if found == self.n => Ok(numbers),
            found => {
                let expected = format!("an atom of {} columns", self.n);
                let found = format!("{found}: {}", quoted(line));
                Err(Fault::bad(at, expected, found))
            }
        }
    }
}

/// Return the rest of a line after its first `n` words.
fn after_words(mut line: &[u8], n: usize) -> &[u8] {
    for _ in 0..n {
        line = line.trim_ascii_start();
        let len = line.iter().position(u8::is_ascii_whitespace);
        line = &line[len.unwrap_or(line.len())..];
    }
    line
}
