//! Recognition and parsing of the header of a file, and the lengths of the lines in its first
//! frame.
//!
//! ```text
//! HISTORY  title
//!          keytrj, imcon, atoms, frames, records    the last two not in DL_POLY Classic
//!          the first frame, which begins with "timestep"
//! CONFIG   title
//!          levcfg, imcon and others
//!          the cell, if imcon is not 0
//!          the first atom's name
//! ```

use super::frame_head::{ConfigLine, FrameHead, TIMESTEP, integers};
use crate::Fields;
use crate::error::Fault;
use crate::text_lines::{Lines, MAX_LINE, is_blank, quoted, vector};

/// Content of a file's header, and the layout of the file's frames.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Head {
    /// Layout of the frames.
    pub layout: Layout,
    /// For a HISTORY, the number of frames in its header, if present. This number is wrong after
    /// the simulation was killed. For a CONFIG, the number of atoms in its header, if present.
    pub claimed: Option<u64>,
    /// Number of bytes before the first atom of a CONFIG, or before the first frame of a HISTORY.
    pub len: u64,
}

/// Recognise a file by the complete lines among its first bytes.
pub fn detect(head: &[u8]) -> Option<Kind> {
    let is_text = |byte: &u8| !byte.is_ascii_control() || byte.is_ascii_whitespace();
    let mut lines = Lines::new(head, head.len() as u64);
    if !lines.title().ok()?.iter().all(is_text) {
        return None;
    }
    let (numbers, rest) = integers(lines.next("").ok()?);
    if lines.rest().starts_with(TIMESTEP) {
        return Some(Kind::History);
    }
    let (0..=3, 0..=7) = (*numbers.first()?, *numbers.get(1)?) else {
        return None;
    };
    // The file of a run that has just started may end here, without a frame.
    if is_blank(lines.rest()) {
        return (numbers.len() == 5 && is_blank(rest)).then_some(Kind::History);
    }
    let n_vectors = if numbers[1] == 0 { 0 } else { 3 };
    let mut is_vector = || Some(vector(lines.next("").ok()?).is_some());
    for _ in 0..n_vectors {
        is_vector()?.then_some(())?;
    }
    let is_config = n_vectors == 3 || !is_vector()? && is_vector()?;
    is_config.then_some(Kind::Config)
}

/// Find the number of frames and the number of records in the header of a HISTORY: the fourth and
/// fifth number of its second line. Return the offsets at which the third, fourth and fifth number
/// end.
pub fn counts(head: &[u8]) -> Option<[usize; 3]> {
    if detect(head) != Some(Kind::History) {
        return None;
    }
    let mut lines = Lines::new(head, head.len() as u64);
    lines.title().ok()?;
    let line = lines.next("").ok()?;
    let at = lines.at() - 1 - line.len();
    let is_blank = |at: usize| line.get(at).is_none_or(u8::is_ascii_whitespace);
    let mut ends = (1..=line.len()).filter(|&end| !is_blank(end - 1) && is_blank(end));
    Some([ends.nth(2)? + at, ends.next()? + at, ends.next()? + at])
}

impl Head {
    /// Parse the header of a HISTORY of `file_size` bytes, and its first frame as far as necessary.
    ///
    /// # Errors
    /// [`Fault::Short`] if more bytes of the file are needed. [`Fault::Bad`] if the header or the
    /// beginning of the first frame contradicts the format.
    pub fn parse_history(head: &[u8], file_size: u64) -> Result<Head, Fault> {
        history(head, file_size).map_err(bounded)
    }

    /// Parse the header of a CONFIG of `file_size` bytes. The number of atoms is computed from the
    /// size of one atom's lines. If this size varies, the layout has 1 atom, and the caller must
    /// count the atoms.
    ///
    /// # Errors
    /// As [`Head::parse_history`].
    pub fn parse_config(head: &[u8], file_size: u64) -> Result<Head, Fault> {
        config(head, file_size).map_err(bounded)
    }
}

/// Convert a request for more than `HEAD_MAX` bytes to [`Fault::Bad`]: the first atom must be near
/// the beginning of the file.
fn bounded(fault: Fault) -> Fault {
    match fault {
        Fault::Short { needed } if needed > HEAD_MAX => {
            let expected = format!("the lines of the first atom within {HEAD_MAX} bytes");
            Fault::bad(HEAD_MAX, expected, "none")
        }
        fault => fault,
    }
}

fn history(head: &[u8], file_size: u64) -> Result<Head, Fault> {
    let mut lines = Lines::new(head, file_size);
    lines.title()?;
    let at = lines.at();
    let line = lines.next("keytrj, imcon and the number of atoms")?;
    let (numbers, _) = integers(line);
    let &[level @ 0..=3, imcon @ 0..=7, n_atoms, ref counts @ ..] = &numbers[..] else {
        let expected = "keytrj from 0 to 3, imcon from 0 to 7, and the number of atoms";
        return Err(Fault::bad(at, expected, quoted(line)));
    };
    let start = lines.at();
    let mut layout = Layout {
        kind: Kind::History,
        n_atoms: n_atoms_checked(at, n_atoms, file_size)?,
        level: level as u8,
        imcon: imcon as u8,
        start: start as u64,
        lines: LineLengths::Varying,
        ordered: false,
    };
    if lines.clone().next_if_any()?.is_some() {
        layout
            .inspect_first_frame(&head[start..], file_size - start as u64)
            .map_err(|fault| fault.behind(start))?;
    }
    Ok(Head {
        layout,
        claimed: counts
            .first()
            .and_then(|&n| u64::try_from(n).ok())
            .filter(|&n| n > 0),
        len: start as u64,
    })
}

fn config(head: &[u8], file_size: u64) -> Result<Head, Fault> {
    let mut lines = Lines::new(head, file_size);
    lines.title()?;
    let line = ConfigLine::take(&mut lines)?;
    let mut layout = Layout {
        kind: Kind::Config,
        n_atoms: 1,
        level: 0,
        imcon: line.imcon,
        start: 0,
        lines: LineLengths::Varying,
        ordered: false,
    };
    let len = layout.inspect_first_frame(head, file_size)?;
    if let LineLengths::Equal(widths) = layout.lines {
        let (atoms, size) = (file_size - u64::from(widths.head), layout.atom_size(widths));
        match atoms % size {
            0 => layout.n_atoms = atoms / size,
            _ => layout.lines = LineLengths::Varying,
        }
    }
    Ok(Head {
        layout,
        claimed: line.n_atoms,
        len,
    })
}

impl Layout {
    /// Determine the fields of atoms and the lengths of lines from the first frame. Return the
    /// number of bytes before its first atom.
    fn inspect_first_frame(&mut self, frame: &[u8], size: u64) -> Result<u64, Fault> {
        let head = FrameHead::parse(self, frame, size)?;
        self.level = head.level;
        let mut lines = Lines::behind(frame, size, head.len);
        let mut length = || {
            let at = lines.at();
            lines.next("the lines of the first atom")?;
            Ok(lines.at() - at)
        };
        let name = length()?;
        let vectors: Result<Vec<usize>, Fault> =
            (0..n_vectors(head.level)).map(|_| length()).collect();
        let vectors = vectors?;
        let vector = vectors.first().copied().unwrap_or(0);
        let widths = Widths {
            head: head.len as u32,
            name: name as u32,
            vector: vector as u32,
        };
        let equal = Layout {
            lines: LineLengths::Equal(widths),
            ..*self
        };
        // The length of a line includes blank lines before it. `is_sound` returns false if a length
        // is too large for a line.
        if vectors.iter().all(|&length| length == vector) && equal.is_sound() {
            *self = equal;
        }
        Ok(head.len as u64)
    }
}

/// Return the number of atoms, if a file of this size can contain them.
fn n_atoms_checked(at: usize, n_atoms: i64, file_size: u64) -> Result<u64, Fault> {
    let room = file_size / (NAME_MIN + VECTOR_MIN);
    match u64::try_from(n_atoms) {
        Ok(n_atoms) if (1..=room).contains(&n_atoms) => Ok(n_atoms),
        _ => {
            let expected = format!("from 1 to {room} atoms, which {file_size} bytes can hold");
            Err(Fault::bad(at, expected, n_atoms))
        }
    }
}

// Layout of a DL_POLY file.

/// Kind of DL_POLY file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A trajectory.
    History,
    /// CONFIG or REVCON: a single frame, whose header is that of the file.
    Config,
}

/// Layout of one file: all data that a worker needs to find and decode any frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    pub(super) kind: Kind,
    pub(super) n_atoms: u64,
    /// keytrj of a HISTORY, or levcfg of a CONFIG: 0 for positions, 1 for positions and velocities,
    /// 2 for positions, velocities and forces. 3 means a compressed HISTORY.
    pub(super) level: u8,
    /// Periodic boundary (imcon) in the header of the file, for frames that do not state it.
    pub(super) imcon: u8,
    /// Offset of the first frame.
    pub(super) start: u64,
    pub(super) lines: LineLengths,
    /// True if atoms are in the order of their ids; used only if lines have equal lengths.
    pub(super) ordered: bool,
}

/// Lengths of a frame's lines including line feeds, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineLengths {
    /// Lines of the same kind have the same length for all atoms, in all frames.
    Equal(Widths),
    /// Lengths vary, so that frames and atoms must be searched.
    Varying,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Widths {
    /// Total size of the lines of a frame before its atoms.
    pub head: u32,
    /// Size of the first line of an atom, with its name.
    pub name: u32,
    /// Size of each line with three numbers.
    pub vector: u32,
}

/// Maximum number of bytes before the atoms of the first frame.
const HEAD_MAX: usize = 64 << 10;

/// Level of a compressed HISTORY.
pub(super) const COMPRESSED: u8 = 3;

/// Minimum size of the line with a name, bytes.
const NAME_MIN: u64 = 2;
/// Minimum size of a line with three numbers, bytes.
const VECTOR_MIN: u64 = 6;

impl Layout {
    /// Kind of the file: HISTORY or CONFIG.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Number of atoms in a frame.
    pub fn n_atoms(&self) -> usize {
        self.n_atoms as usize
    }

    /// keytrj of a HISTORY, levcfg of a CONFIG.
    pub fn level(&self) -> u8 {
        self.level
    }

    /// Offset of the first frame.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Periodic boundary in the header of the file.
    pub fn imcon(&self) -> u8 {
        self.imcon
    }

    /// Return, for each cell vector, whether the cell is periodic along it. imcon 6 is a slab,
    /// which is not periodic along the third vector.
    pub fn periodic(&self) -> [bool; 3] {
        [true, true, self.imcon != 6]
    }

    /// Return the layout for lines of varying lengths.
    pub fn varying(self) -> Layout {
        let lines = LineLengths::Varying;
        Layout {
            lines,
            ordered: false,
            ..self
        }
    }

    /// Return the layout, marked as having atoms in the order of their ids. A layout with lines of
    /// varying lengths is returned unchanged.
    pub fn ordered(self) -> Layout {
        Layout {
            ordered: self.lines != LineLengths::Varying,
            ..self
        }
    }

    /// Size of a frame, bytes, if it is the same for all frames.
    pub fn frame_size(&self) -> Option<u64> {
        match self.lines {
            LineLengths::Equal(widths) => {
                Some(u64::from(widths.head) + self.n_atoms * self.atom_size(widths))
            }
            LineLengths::Varying => None,
        }
    }

    /// Return true if `size` is the size of a frame with the line lengths of this file, with or
    /// without velocities and forces, or if lines vary in length.
    pub(super) fn is_usual_size(&self, size: u64) -> bool {
        let mut levels = [self.level, 0, 1, 2].into_iter();
        let of_level = |level| Layout { level, ..*self }.frame_size();
        levels.any(|level| of_level(level).is_none_or(|usual| usual == size))
    }

    /// Return the layout with another number of atoms.
    pub fn with_n_atoms(self, n_atoms: u64) -> Layout {
        Layout { n_atoms, ..self }
    }

    /// Number of lines per atom.
    pub fn lines_of_atom(&self) -> u64 {
        1 + n_vectors(self.level)
    }

    /// Size of the lines of one atom, bytes.
    pub(super) fn atom_size(&self, widths: Widths) -> u64 {
        u64::from(widths.name) + n_vectors(self.level) * u64::from(widths.vector)
    }

    /// Return the fields that frames may contain. If lengths of lines vary, these are all fields,
    /// because keytrj may have changed at a restart.
    pub fn fields(&self) -> Fields {
        match (self.kind, self.lines) {
            (Kind::History, LineLengths::Varying) if self.level != COMPRESSED => Fields::ALL,
            _ => fields(self.level),
        }
    }

    /// Return the traits (name and value) that files must share to form one trajectory, besides the
    /// atoms.
    pub fn traits(&self) -> Vec<(&'static str, String)> {
        let lines = match self.lines {
            LineLengths::Equal(widths) => format!(
                "{} before the atoms, {} a name, {} a vector",
                widths.head, widths.name, widths.vector
            ),
            LineLengths::Varying => "varying".into(),
        };
        vec![
            ("keytrj", self.level.to_string()),
            ("bytes of lines", lines),
        ]
    }

    /// Serialise the layout. [`Layout::from_bytes`] of the same version of this crate can parse it.
    pub fn to_bytes(&self) -> Vec<u8> {
        let kind = match self.kind {
            Kind::History => 0,
            Kind::Config => 1,
        };
        let widths = match self.lines {
            LineLengths::Equal(widths) => [widths.head, widths.name, widths.vector],
            LineLengths::Varying => [0; 3],
        };
        let mut bytes = vec![kind, self.level, self.imcon, u8::from(self.ordered)];
        bytes.extend(self.n_atoms.to_le_bytes());
        bytes.extend(self.start.to_le_bytes());
        bytes.extend(widths.map(u32::to_le_bytes).concat());
        bytes
    }

    /// Parse the result of [`Layout::to_bytes`]; `None` for invalid bytes.
    pub fn from_bytes(bytes: &[u8]) -> Option<Layout> {
        let mut rest = bytes;
        let [kind, level, imcon, ordered] = take(&mut rest)?;
        let n_atoms = u64::from_le_bytes(take(&mut rest)?);
        let start = u64::from_le_bytes(take(&mut rest)?);
        let mut width = || take(&mut rest).map(u32::from_le_bytes);
        let widths = Widths {
            head: width()?,
            name: width()?,
            vector: width()?,
        };
        let layout = Layout {
            kind: match kind {
                0 => Kind::History,
                _ => Kind::Config,
            },
            n_atoms,
            level,
            imcon,
            start,
            lines: match widths.head {
                0 => LineLengths::Varying,
                _ => LineLengths::Equal(widths),
            },
            ordered: ordered != 0,
        };
        (layout.is_sound() && layout.to_bytes() == bytes).then_some(layout)
    }

    /// Check the invariants of a parsed layout.
    fn is_sound(&self) -> bool {
        let level_max = match self.kind {
            Kind::History => COMPRESSED,
            Kind::Config => 2,
        };
        let widths_are_sound = match self.lines {
            LineLengths::Varying => !self.ordered,
            LineLengths::Equal(Widths { head, name, vector }) => {
                let line = |min: u64| min..=MAX_LINE as u64;
                (1..=HEAD_MAX as u64).contains(&u64::from(head))
                    && line(NAME_MIN).contains(&u64::from(name))
                    && match n_vectors(self.level) {
                        0 => vector == 0,
                        _ => line(VECTOR_MIN).contains(&u64::from(vector)),
                    }
            }
        };
        // DL_POLY writes the number of atoms with at most ten digits.
        (1..10_000_000_000).contains(&self.n_atoms)
            && usize::try_from(self.n_atoms).is_ok()
            && self.level <= level_max
            && widths_are_sound
    }
}

/// Return the number of lines with three numbers per atom.
pub(super) fn n_vectors(level: u8) -> u64 {
    match level {
        COMPRESSED => 0,
        _ => u64::from(level) + 1,
    }
}

pub(super) fn fields(level: u8) -> Fields {
    Fields {
        positions: true,
        velocities: matches!(level, 1 | 2),
        forces: level == 2,
    }
}

/// Remove and return the next bytes of a slice.
fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*first)
}

// Copying of whole frames into another HISTORY.

impl Layout {
    /// Create the header of a HISTORY with `n_frames` of the frames of this file. `head` contains
    /// all bytes of this file before the first atom or, if lines vary in length, before the first
    /// frame.
    ///
    /// If lines vary in length, the numbers of frames and records become 0, so that DL_POLY
    /// searches for frames. A header without these numbers, as in DL_POLY Classic, does not change.
    pub fn head_of(&self, head: &[u8], n_frames: u64) -> Vec<u8> {
        let start = self.start as usize;
        let counts = match self.lines {
            LineLengths::Varying => [0, 0],
            LineLengths::Equal(_) => {
                let before = head[start..].iter().filter(|&&byte| byte == b'\n').count() as u64;
                let lines = before + self.n_atoms * self.lines_of_atom();
                [n_frames, 2 + n_frames * lines]
            }
        };
        let mut out = head[..start].to_vec();
        if let Some([third, fourth, fifth]) = super::header::counts(head) {
            let field = |number: u64, width: usize| format!(" {number:>0$}", width - 1);
            let fields = [(counts[0], fourth - third), (counts[1], fifth - fourth)];
            let fields = fields.map(|(number, width)| field(number, width));
            out.splice(third..fifth, fields.concat().into_bytes());
        }
        out
    }
}
