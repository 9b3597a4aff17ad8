//! Header of a frame, with its time and its cell.
//!
//! ```text
//! HISTORY     "timestep", step, atoms, keytrj, imcon, step's length (ps), time (ps)
//!             DL_POLY Classic leaves out the time
//! compressed  "timestep", step, step's length, time   a8,i6,f8.5,f12.5
//! then        the cell: three lines of three numbers (Å), in some files only where imcon is not 0
//!
//! CONFIG      title
//!             levcfg, imcon, and often: atoms, step, step's length, time
//!             DL_POLY Classic: levcfg, imcon, step, step's length
//!             the cell, where imcon is not 0
//! ```

use super::header::{COMPRESSED, Kind, Layout, LineLengths, fields};
use crate::Fields;
use crate::error::Fault;
use crate::fortran_numbers::{take_integer, take_real};
use crate::frame_codec::{check_time, possible_time};
use crate::text_lines::{LineFrame, Lines, MAX_LINE, is_blank, quoted, vector, words};

/// Word at the beginning of every frame of a HISTORY.
pub const TIMESTEP: &[u8] = b"timestep";

/// Content of a frame's header, and the fields of the frame's atoms.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FrameHead {
    /// Step number of the simulation.
    pub step: i64,
    /// Time, ps.
    pub time: f64,
    /// Three cell vectors, Å; `None` without a periodic boundary.
    pub cell: Option<[[f64; 3]; 3]>,
    /// Fields of the atoms, determined from the lines of the first atom, because keytrj and levcfg
    /// may be wrong after restarts and edits.
    pub fields: Fields,
    /// Number of bytes of the frame before its first atom.
    pub len: usize,
    pub(super) level: u8,
}

/// Content of the second line of a CONFIG.
#[derive(Debug, Clone, Copy)]
pub(super) struct ConfigLine {
    pub imcon: u8,
    pub n_atoms: Option<u64>,
    step: i64,
    time: f64,
}

impl FrameHead {
    /// Parse the header of a frame of `size` bytes, of which `bytes` contains at least the
    /// beginning.
    ///
    /// # Errors
    /// [`Fault::Bad`] if this is not the beginning of a frame, [`Fault::Short`] if more bytes are
    /// needed.
    pub fn parse(layout: &Layout, bytes: &[u8], size: u64) -> Result<FrameHead, Fault> {
        match layout.lines {
            LineLengths::Varying => {
                let mut lines = Lines::new(bytes, size);
                let head = Self::take(layout, &mut lines)?;
                Ok(match layout.level {
                    COMPRESSED => head,
                    _ => head.with_level(level(lines)?),
                })
            }
            // Only the header is parsed, because the decoder reads only wanted atoms: the header
            // may be followed by another atom than the first one.
            LineLengths::Equal(widths) => {
                let len = widths.head as usize;
                let bytes = bytes.get(..len).ok_or(Fault::Short { needed: len })?;
                let mut lines = Lines::new(bytes, len as u64);
                let head = Self::take(layout, &mut lines)?;
                match lines.next_if_any()? {
                    // Blank lines before the first atom belong to the header.
                    None => Ok(FrameHead { len, ..head }),
                    Some(line) => {
                        let expected = format!("the first atom at byte {len} of the frame");
                        Err(Fault::bad(head.len, expected, quoted(line)))
                    }
                }
            }
        }
    }

    fn take(layout: &Layout, lines: &mut Lines<'_>) -> Result<FrameHead, Fault> {
        let (step, time, cell) = match layout.kind {
            Kind::Config => {
                lines.title()?;
                let line = ConfigLine::take(lines)?;
                let cell = match line.imcon {
                    0 => None,
                    _ => Some(cell(lines)?),
                };
                (line.step, line.time, cell)
            }
            Kind::History => {
                let at = lines.at();
                let line = lines.next("a line that begins with \"timestep\"")?;
                let header = Header::parse(layout, line)
                    .map_err(|expected| Fault::bad(at, expected, quoted(line)))?;
                let cell = cell_if_any(lines)?.filter(|_| header.imcon != 0);
                (header.step, header.time, cell)
            }
        };
        Ok(FrameHead {
            step,
            time,
            cell,
            fields: fields(layout.level),
            len: lines.at(),
            level: layout.level,
        })
    }

    fn with_level(self, level: u8) -> FrameHead {
        FrameHead {
            level,
            fields: fields(level),
            ..self
        }
    }
}

/// Determine the level from the lines of the first atom.
fn level(mut lines: Lines<'_>) -> Result<u8, Fault> {
    lines.next("the name of the first atom")?;
    let mut n_vectors = 0;
    while n_vectors < 3 {
        let at = lines.at();
        match lines.next_if_any() {
            Err(fault @ Fault::Short { .. }) => return Err(fault),
            Ok(Some(line)) if vector(line).is_some() => n_vectors += 1,
            _ if n_vectors > 0 => break,
            Ok(Some(line)) => return Err(Fault::bad(at, WHAT, quoted(line))),
            Ok(None) => return Err(Fault::bad(at, WHAT, "no further line")),
            Err(fault) => return Err(fault),
        }
    }
    return Ok(n_vectors - 1);
    const WHAT: &str = "the position of the first atom, three numbers";
}

/// Content of the first line of a frame in a HISTORY.
#[derive(Debug, Clone, Copy)]
pub struct Header {
    /// Step number of the simulation.
    pub step: i64,
    /// Time, ps.
    pub time: f64,
    imcon: u8,
}

impl Header {
    /// # Errors
    /// A description of the expected content.
    pub fn parse(layout: &Layout, line: &[u8]) -> Result<Header, String> {
        let Some(rest) = line.strip_prefix(TIMESTEP) else {
            return Err("a line that begins with \"timestep\"".into());
        };
        match layout.level {
            COMPRESSED => Self::compressed(layout, line, rest),
            _ => Self::usual(layout, rest),
        }
    }

    fn usual(layout: &Layout, mut rest: &[u8]) -> Result<Header, String> {
        let rest = &mut rest;
        let mut integer = || take_integer(rest);
        let integers = (integer(), integer(), integer(), integer());
        let (Some(step), Some(n_atoms), Some(0..=2), Some(imcon @ 0..=7)) = integers else {
            return Err("\"timestep\" and its step, atoms, keytrj and imcon".into());
        };
        if u64::try_from(n_atoms) != Ok(layout.n_atoms) {
            return Err(format!("a frame of {} atoms", layout.n_atoms));
        }
        let Some(dt) = take_real(rest) else {
            return Err("\"timestep\" with the length of a step".into());
        };
        let time = match is_blank(rest) {
            true => Some(step as f64 * dt),
            false => take_real(rest),
        };
        Ok(Header {
            step,
            time: time
                .filter(is_possible)
                .ok_or("\"timestep\" with a time at its end")?,
            imcon: imcon as u8,
        })
    }

    /// Parse the first line of a frame in a compressed HISTORY. Blanks between its columns can be
    /// missing, and a step number of more than six digits is written as stars.
    fn compressed(layout: &Layout, line: &[u8], rest: &[u8]) -> Result<Header, String> {
        const LEN: usize = 34;
        let line = line.trim_ascii_end();
        let fields = match line.len() {
            LEN => Some([&line[8..14], &line[14..22], &line[22..LEN]]),
            _ => {
                let mut words = words(rest);
                let mut word = || words.next();
                word().zip(word()).zip(word()).map(|((a, b), c)| [a, b, c])
            }
        };
        let parsed = fields.and_then(|[mut step, mut dt, mut time]| {
            let (dt, time) = (take_real(&mut dt)?, take_real(&mut time)?);
            let step = match step.trim_ascii_start().first() {
                Some(b'*') => (time / dt).round() as i64,
                _ => take_integer(&mut step)?,
            };
            Some((step, time)).filter(|(_, time)| is_possible(time))
        });
        let (step, time) =
            parsed.ok_or("\"timestep\" with its step, a step's length and a time")?;
        Ok(Header {
            step,
            time,
            imcon: layout.imcon,
        })
    }
}

/// True for a time (ps) that is possible in a simulation.
fn is_possible(time: &f64) -> bool {
    !possible_time(*time).is_nan()
}

impl ConfigLine {
    pub fn take(lines: &mut Lines<'_>) -> Result<ConfigLine, Fault> {
        let at = lines.at();
        let line = lines.next("levcfg and imcon")?;
        let bad = |expected: &str| Fault::bad(at, expected, quoted(line));
        let (integers, rest) = integers(line);
        let &[0..=2, imcon @ 0..=7, ref others @ ..] = &integers[..] else {
            return Err(bad("levcfg from 0 to 2 and imcon from 0 to 7"));
        };
        let reals: Option<Vec<f64>> = words(rest).map(|mut word| take_real(&mut word)).collect();
        let Some(reals) = reals else {
            return Err(bad("numbers alone"));
        };
        let (n_atoms, step, time) = match (others, &reals[..]) {
            // DL_POLY Classic omits the number of atoms here.
            (&[step], &[dt]) => (None, step, step as f64 * dt),
            (&[], &[_]) => (None, 0, 0.0),
            (others, reals) => {
                let step = others.get(1).copied().unwrap_or(0);
                let time = match reals {
                    [_, time, ..] => *time,
                    [dt] => step as f64 * dt,
                    [] => 0.0,
                };
                (others.first().copied(), step, time)
            }
        };
        let n_atoms = match n_atoms.map(u64::try_from) {
            None => None,
            Some(Ok(n_atoms)) if n_atoms > 0 => Some(n_atoms),
            Some(_) => return Err(bad("at least 1 atom")),
        };
        check_time(at, time)?;
        Ok(ConfigLine {
            imcon: imcon as u8,
            n_atoms,
            step,
            time,
        })
    }
}

/// Parse the integers at the beginning of a line; return them and the rest.
pub(super) fn integers(mut line: &[u8]) -> (Vec<i64>, &[u8]) {
    let integers = std::iter::from_fn(|| take_integer(&mut line)).collect();
    (integers, line)
}

fn cell(lines: &mut Lines<'_>) -> Result<[[f64; 3]; 3], Fault> {
    Ok([row(lines)?, row(lines)?, row(lines)?])
}

fn row(lines: &mut Lines<'_>) -> Result<[f64; 3], Fault> {
    const WHAT: &str = "three numbers of the cell";
    let at = lines.at();
    let line = lines.next(WHAT)?;
    vector(line).ok_or_else(|| Fault::bad(at, WHAT, quoted(line)))
}

/// Return the cell if the next line contains three numbers. Otherwise return `None`, because this
/// is the line with the name of the first atom.
fn cell_if_any(lines: &mut Lines<'_>) -> Result<Option<[[f64; 3]; 3]>, Fault> {
    match lines.clone().next_if_any()?.and_then(vector) {
        Some(_) => cell(lines).map(Some),
        None => Ok(None),
    }
}

// Counting of the lines of a frame during a scan.

/// Maximum number of lines after the first line of a frame, up to the end of its first atom: 3 of
/// the cell, 1 with the name and 3 with vectors.
const LOOK: usize = 7;

/// Number and kinds of the lines of one frame of a HISTORY, found by a scan. Blank lines are not
/// counted.
#[derive(Debug, Clone)]
pub struct FrameLines {
    n_atoms: u64,
    compressed: bool,
    /// Header; `None` if the first line is invalid for a frame of this file.
    header: Option<Header>,
    /// For each examined line after the first one, whether it contains three numbers.
    vectors: Vec<bool>,
    n_lines: u64,
}

impl LineFrame for FrameLines {
    type Layout = Layout;

    const MAX_LINE: usize = MAX_LINE;

    fn begins(_last: Option<&Self>, line: &[u8]) -> bool {
        line.starts_with(TIMESTEP)
    }

    fn begin(layout: &Layout, line: &[u8]) -> Self {
        FrameLines {
            n_atoms: layout.n_atoms,
            compressed: layout.level == COMPRESSED,
            header: Header::parse(layout, line).ok(),
            vectors: Vec::with_capacity(LOOK),
            n_lines: 1,
        }
    }

    fn add(&mut self, line: &[u8]) {
        self.n_lines += 1;
        if self.vectors.len() < LOOK {
            self.vectors.push(vector(line).is_some());
        }
    }

    fn moment(&self) -> Option<(f64, i64)> {
        self.header.map(|header| (header.time, header.step))
    }

    fn missing(&self) -> Option<i64> {
        self.header?;
        let cell = match self.vectors.first() {
            Some(true) => 3,
            _ => 0,
        };
        let mut vectors = self.vectors.iter().skip(cell + 1).peekable();
        if vectors.peek().is_none() && !self.compressed {
            return Some(1);
        }
        let vectors = vectors.take(3).take_while(|&&is_vector| is_vector);
        let n_vectors = vectors.count() as u64;
        if n_vectors == 0 && !self.compressed {
            return None;
        }
        let expected = 1 + cell as u64 + self.n_atoms * (1 + n_vectors);
        Some(expected as i64 - self.n_lines as i64)
    }
}
