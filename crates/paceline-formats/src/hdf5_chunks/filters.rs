//! Stages through which a chunk's bytes went, and the way back.

mod deflate;
mod fletcher32;
mod lzf;
mod shuffle;

use std::borrow::Cow;
use std::ops::Range;

pub use deflate::{Inflater, MOST as DEFLATE_MOST};
pub use shuffle::unshuffle;

/// One stage: HDF5's number of it, what the file calls it, and its parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    pub number: u32,
    pub name: String,
    pub values: Vec<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Deflate,
    /// Of numbers of so many bytes.
    Shuffle(usize),
    Fletcher32,
    Lzf,
}

/// What is expected in a chunk's bytes, and what is found.
pub type Contradiction = (String, String);

/// All stages of a dataset's chunks.
#[derive(Debug)]
pub struct Pipeline {
    /// The first one first.
    stages: Vec<Stage>,
    /// Bytes of a number, and of a chunk's numbers.
    width: usize,
    chunk_bytes: usize,
}

/// A chunk's numbers.
#[derive(Debug, Default)]
pub struct Unpacked {
    pub bytes: Vec<u8>,
    /// They are still shuffled: to put together those that are wanted is enough.
    pub shuffled: bool,
}

impl Pipeline {
    /// # Errors
    /// A filter that we do not undo, by name.
    pub fn new(filters: &[Filter], width: usize, chunk_bytes: usize) -> Result<Pipeline, String> {
        let stages = filters.iter().map(|filter| match filter.number {
            1 => Ok(Stage::Deflate),
            2 => match filter.values.first() {
                None => Ok(Stage::Shuffle(width)),
                Some(&bytes @ 1..=0xffff) => Ok(Stage::Shuffle(bytes as usize)),
                Some(bytes) => Err(format!("cannot undo a shuffle of {bytes} bytes")),
            },
            3 => Ok(Stage::Fletcher32),
            32000 => Ok(Stage::Lzf),
            number => Err(format!(
                "cannot undo the filter {} (number {number})",
                filter.name
            )),
        });
        let stages: Vec<Stage> = stages.collect::<Result<_, _>>()?;
        let packs = |stage: &&Stage| matches!(stage, Stage::Deflate | Stage::Lzf);
        if stages.iter().filter(packs).count() > 1 || stages.len() > u32::BITS as usize {
            return Err("cannot undo more than one compression".into());
        }
        Ok(Pipeline {
            stages,
            width,
            chunk_bytes,
        })
    }

    /// Whether chunks are stored as they are.
    pub fn is_empty(&self) -> bool {
        self.stages.is_empty()
    }

    /// Stages of a chunk: bit k of the mask says that stage k was left out.
    fn stages(&self, mask: u32) -> impl DoubleEndedIterator<Item = Stage> + Clone {
        let stages = self.stages.iter().enumerate();
        stages.filter_map(move |(k, &stage)| (mask >> k & 1 == 0).then_some(stage))
    }

    /// Whether the beginning of a chunk's numbers can be had from the beginning of its bytes.
    pub fn has_beginning(&self, mask: u32) -> bool {
        self.stages(mask).eq([Stage::Deflate])
    }

    /// Refuse a chunk whose bytes could never become those that it is said to have.
    ///
    /// # Errors
    /// What contradicts.
    pub fn check_size(&self, mask: u32, size: u64) -> Result<(), Contradiction> {
        let checks = self
            .stages(mask)
            .filter(|&stage| stage == Stage::Fletcher32)
            .count() as u64;
        let most = self.stages(mask).find_map(|stage| match stage {
            Stage::Deflate => Some(deflate::MOST),
            Stage::Lzf => Some(lzf::MOST),
            Stage::Shuffle(_) | Stage::Fletcher32 => None,
        });
        let whole = self.chunk_bytes as u64;
        let (fits, expected) = match most {
            None => (
                size == whole + 4 * checks,
                format!("{} bytes", whole + 4 * checks),
            ),
            Some(most) => (
                size.saturating_mul(most as u64) >= whole,
                format!(
                    "at least {} bytes for {whole} bytes of numbers",
                    whole / most as u64
                ),
            ),
        };
        match fits {
            true => Ok(()),
            false => Err((expected, format!("{size} bytes"))),
        }
    }

    /// Undo all stages of a chunk that [`Pipeline::check_size`] lets pass, but for a shuffle of
    /// its numbers; every checksum on the way is proved.
    ///
    /// # Errors
    /// What contradicts.
    pub fn unpack(
        &self,
        mask: u32,
        stored: &[u8],
        inflater: &mut Inflater,
        room: Vec<u8>,
    ) -> Result<Unpacked, Contradiction> {
        let mut bytes = Cow::Borrowed(stored);
        let mut room = Some(room);
        let mut before = self.stages(mask).count();
        let mut shuffled = false;
        for stage in self.stages(mask).rev() {
            before -= 1;
            match stage {
                Stage::Fletcher32 => {
                    let len = fletcher32::strip(&bytes)?.len();
                    match &mut bytes {
                        Cow::Borrowed(bytes) => *bytes = &bytes[..len],
                        Cow::Owned(bytes) => bytes.truncate(len),
                    }
                }
                Stage::Shuffle(width) if before == 0 && width == self.width => shuffled = true,
                Stage::Shuffle(width) => bytes = shuffle::unshuffle_all(&bytes, width).into(),
                Stage::Deflate | Stage::Lzf => {
                    let checks = self.stages(mask).take(before);
                    let checks = checks.filter(|&stage| stage == Stage::Fletcher32).count();
                    let mut out = room.take().unwrap_or_default();
                    out.resize(self.chunk_bytes + 4 * checks, 0);
                    let (name, done) = match stage {
                        Stage::Deflate => ("a deflate", inflater.inflate(&bytes, &mut out)),
                        _ => ("an LZF", lzf::inflate(&bytes, &mut out)),
                    };
                    done.map_err(|found| (format!("{name} stream of {} bytes", out.len()), found))?;
                    bytes = out.into();
                }
            }
        }
        if bytes.len() != self.chunk_bytes {
            let expected = format!("{} bytes of numbers", self.chunk_bytes);
            return Err((expected, format!("{} bytes", bytes.len())));
        }
        let bytes = match bytes {
            Cow::Owned(bytes) => bytes,
            Cow::Borrowed(bytes) => {
                let mut out = room.unwrap_or_default();
                out.clear();
                out.extend_from_slice(bytes);
                out
            }
        };
        Ok(Unpacked { bytes, shuffled })
    }
}

impl Unpacked {
    /// Some of the numbers, put together where need be.
    pub fn numbers<'a>(
        &'a self,
        range: Range<usize>,
        width: usize,
        room: &'a mut Vec<u8>,
    ) -> &'a [u8] {
        if !self.shuffled {
            return &self.bytes[range];
        }
        room.resize(range.len(), 0);
        unshuffle(&self.bytes, width, range, room);
        room
    }
}
