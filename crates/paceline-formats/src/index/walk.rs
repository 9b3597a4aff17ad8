//! Follows a chain of frame headers through a file, and finds the chain again behind damage.
//!
//! A *place* is an offset that holds a valid header of the right number of atoms. From a place
//! the walk goes to where the frame says it ends. All that is decided there depends on the place
//! and the file alone, not on how the walk came to it: so walks that meet at one place are one
//! walk from there on, and a file's index does not depend on how many threads scanned it.

use super::framed::{FrameHeader, Framed};
use crate::error::{Fault, Result};
use crate::source::Source;

/// An offset that holds a valid header.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Place {
    pub at: u64,
    pub header: FrameHeader,
}

/// Frames in the order of the file.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Chain {
    pub starts: Vec<u64>,
    pub times: Vec<f64>,
    pub steps: Vec<i64>,
}

impl Chain {
    fn push(&mut self, place: Place) {
        self.starts.push(place.at);
        self.times.push(place.header.time);
        self.steps.push(place.header.step);
    }

    /// Take off the last frame; where it starts.
    pub fn pop(&mut self) -> Option<u64> {
        self.times.pop();
        self.steps.pop();
        self.starts.pop()
    }

    /// An entry for bytes that hold no header: its time is not known.
    fn push_unknown(&mut self, at: u64) {
        self.starts.push(at);
        self.times.push(f64::NAN);
        self.steps.push(0);
    }

    /// Take over the frames of `other` from number `first` on.
    pub fn extend(&mut self, other: &Chain, first: usize) {
        self.starts.extend_from_slice(&other.starts[first..]);
        self.times.extend_from_slice(&other.times[first..]);
        self.steps.extend_from_slice(&other.steps[first..]);
    }
}

/// Why a walk came to its end.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Stop {
    /// It reached this place, which lies behind its stretch.
    Reached(Place),
    /// The last frame ends where the file ends.
    End,
    /// The frame at this place does not end at another place.
    Lost(Place),
}

/// What became of a frame that did not end at another place.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Resync {
    /// The last entry of the chain is damaged. It ends at this place, or with the file.
    Damaged(Option<Place>),
    /// The file ends within the frame at `at`, which has `stated` bytes where its header is whole.
    Cut { at: u64, stated: Option<u64> },
}

/// What an offset holds.
enum Found {
    Header(FrameHeader),
    /// The beginning of a header, at the end of the file.
    Beginning,
    Nothing,
}

/// Frames shorter than this are read in whole buffers, longer ones header by header. From the page
/// cache whole buffers took 0.8 of the time for frames of 13 kB and 13 times as long for frames
/// of 165 kB; from a disk it made no difference for the former.
const STREAM_BELOW: u64 = 64 << 10;
const BUFFER: usize = 1 << 20;

/// The file that is scanned.
#[derive(Clone, Copy)]
pub struct Trajectory<'a> {
    pub source: &'a dyn Source,
    pub format: &'a dyn Framed,
    pub n_atoms: usize,
    /// Bytes of the file when it was opened: what is written later is left alone.
    pub size: u64,
}

pub struct Walker<'a> {
    file: Trajectory<'a>,
    /// Called with the offset before each read; its error ends the walk.
    watch: &'a dyn Fn(u64) -> Result<()>,
    /// Bytes to fetch for the next header.
    fetch: usize,
    buffer: Vec<u8>,
    buffer_start: u64,
}

impl<'a> Walker<'a> {
    pub fn new(file: Trajectory<'a>, watch: &'a dyn Fn(u64) -> Result<()>) -> Self {
        Walker {
            file,
            watch,
            fetch: file.format.header_max(),
            buffer: Vec::new(),
            buffer_start: 0,
        }
    }

    /// The place at `at`, if there is one.
    pub fn place(&mut self, at: u64) -> Result<Option<Place>> {
        Ok(match self.look(at)? {
            Found::Header(header) => Some(Place { at, header }),
            _ => None,
        })
    }

    /// The first place from `from` on and before `until`.
    pub fn find(&mut self, from: u64, until: u64) -> Result<Option<Place>> {
        let format = self.file.format;
        let mut at = from;
        while at < until {
            let bytes = self.bytes(at, format.header_max(), BUFFER)?;
            let is_magic = |word: &[u8]| format.magics().iter().any(|magic| word == magic);
            match bytes.windows(4).position(is_magic) {
                Some(skip) => {
                    at += skip as u64;
                    if at < until
                        && let Some(place) = self.place(at)?
                    {
                        return Ok(Some(place));
                    }
                    at += 1;
                }
                None if bytes.len() < 4 => return Ok(None),
                None => at += bytes.len() as u64 - 3,
            }
        }
        Ok(None)
    }

    /// Walk from `place` to the first place at or behind `until`, adding each frame that ends at
    /// another place, or with the file, to `chain`.
    pub fn walk(&mut self, mut place: Place, until: u64, chain: &mut Chain) -> Result<Stop> {
        while place.at < until {
            match self.end(place) {
                Some(end) if end == self.file.size => {
                    chain.push(place);
                    return Ok(Stop::End);
                }
                Some(end) => match self.place(end)? {
                    Some(next) => {
                        chain.push(place);
                        place = next;
                    }
                    None => return Ok(Stop::Lost(place)),
                },
                None => return Ok(Stop::Lost(place)),
            }
        }
        Ok(Stop::Reached(place))
    }

    /// Decide what the frame at `place`, which does not end at another place, and the bytes
    /// behind it are, and add them to `chain`.
    ///
    /// A place within the frame shows that the frame's size is wrong: the frame ends there.
    /// Otherwise the frame keeps its size, and the bytes from its end to the next place become an
    /// entry of their own, so that they are neither lost nor taken for a frame.
    pub fn resync(&mut self, place: Place, chain: &mut Chain) -> Result<Resync> {
        let next = self.find(place.at + 1, self.file.size)?;
        let Some(end) = self.end(place) else {
            if next.is_some() {
                chain.push(place);
                return Ok(Resync::Damaged(next));
            }
            return Ok(Resync::Cut {
                at: place.at,
                stated: Some(place.header.size),
            });
        };
        chain.push(place);
        if next.is_none() && matches!(self.look(end)?, Found::Beginning) {
            return Ok(Resync::Cut {
                at: end,
                stated: None,
            });
        }
        if next.is_none_or(|next| next.at > end) {
            chain.push_unknown(end);
        }
        Ok(Resync::Damaged(next))
    }

    /// Where the frame at `place` says it ends, unless that is behind the end of the file.
    fn end(&self, place: Place) -> Option<u64> {
        let end = place.at.checked_add(place.header.size)?;
        (end <= self.file.size).then_some(end)
    }

    fn look(&mut self, at: u64) -> Result<Found> {
        let Trajectory {
            format, n_atoms, ..
        } = self.file;
        let bytes = self.bytes(at, format.header_max(), self.fetch)?;
        let found = match format.header(bytes) {
            Ok(header) if header.n_atoms == n_atoms && header.size > 0 => Found::Header(header),
            Err(Fault::Short { .. }) if bytes.len() < format.header_max() => {
                let word = &bytes[..bytes.len().min(4)];
                match format.magics().iter().any(|magic| magic.starts_with(word)) {
                    true => Found::Beginning,
                    false => Found::Nothing,
                }
            }
            _ => Found::Nothing,
        };
        if let Found::Header(header) = &found {
            self.fetch = match header.size < STREAM_BELOW {
                true => BUFFER,
                false => format.header_max(),
            };
        }
        Ok(found)
    }

    /// The bytes from `at` on: at least `want` of them, or all up to the end of the file. Where
    /// they are not in memory, `fetch` bytes are read.
    fn bytes(&mut self, at: u64, want: usize, fetch: usize) -> Result<&[u8]> {
        let left = self.file.size.saturating_sub(at);
        let clamp = |len: usize| usize::try_from(left).map_or(len, |left| len.min(left));
        let buffered = at
            .checked_sub(self.buffer_start)
            .and_then(|skip| self.buffer.get(usize::try_from(skip).ok()?..))
            .is_some_and(|bytes| bytes.len() >= clamp(want));
        if !buffered {
            (self.watch)(at)?;
            self.buffer.resize(clamp(fetch.max(want)), 0);
            self.buffer_start = at;
            let read = self.file.source.read_at(at, &mut self.buffer);
            if read.is_err() {
                self.buffer.clear();
            }
            read?;
        }
        Ok(&self.buffer[(at - self.buffer_start) as usize..])
    }
}
