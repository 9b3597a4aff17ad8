//! Common parts of reading in one worker: a source, reused buffers, and time measurement.

use std::num::NonZeroU64;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::block_reader::{CHUNK, grow, within_reach};
use crate::error::{Error, Result};
use crate::hdf5_chunks::Decompressors;
use crate::source::{GAP, Source};

/// Source, the time spent on reading from it, and reused buffers.
pub(super) struct TimedSource {
    pub source: Arc<dyn Source>,
    /// Size of the file when it was opened, bytes.
    pub file_size: u64,
    pub reading: Duration,
    pub buffer: Vec<u8>,
    pub decompressors: Decompressors,
    /// Reused buffers: `rooms` for decoded chunks, `woven` for unshuffled numbers.
    pub rooms: Vec<Vec<u8>>,
    pub woven: Vec<u8>,
}

impl TimedSource {
    /// # Errors
    /// Errors of the source.
    pub fn new(source: Arc<dyn Source>) -> Result<TimedSource> {
        Ok(TimedSource {
            file_size: source.size()?,
            source,
            reading: Duration::ZERO,
            buffer: Vec::new(),
            decompressors: Decompressors::default(),
            rooms: Vec::new(),
            woven: Vec::new(),
        })
    }

    /// Fill a buffer with the bytes from an offset on.
    pub fn read(&mut self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let started = Instant::now();
        let read = self.source.read_at(offset, buffer);
        self.reading += started.elapsed();
        read
    }

    /// Return true if the file contains this byte range.
    pub fn holds(&self, offset: u64, size: u64) -> bool {
        offset
            .checked_add(size)
            .is_some_and(|end| end <= self.file_size)
    }
}

/// Byte ranges that are read with one call, each with a key of the caller.
pub(super) struct Run<K> {
    range: Range<u64>,
    pieces: Vec<(Range<u64>, K)>,
}

impl<K: Copy> Run<K> {
    pub fn new() -> Run<K> {
        Run {
            range: 0..0,
            pieces: Vec::new(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Return true if one call can read a range together with the collected ranges.
    pub fn accepts(&self, piece: &Range<u64>) -> bool {
        let near = piece.start <= self.range.end || within_reach(self.range.end, piece.start, GAP);
        self.is_empty()
            || near
                && piece.start >= self.range.start
                && piece.end.max(self.range.end) - self.range.start <= CHUNK
    }

    pub fn push(&mut self, piece: Range<u64>, key: K) {
        if self.is_empty() {
            self.range = piece.clone();
        }
        self.range.end = self.range.end.max(piece.end);
        self.pieces.push((piece, key));
    }

    /// Read all ranges, call `take` with the bytes and the key of each, and clear the collection.
    pub fn read(
        &mut self,
        io: &mut TimedSource,
        mut take: impl FnMut(&mut TimedSource, &[u8], K) -> Result<()>,
    ) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        let mut buffer = std::mem::take(&mut io.buffer);
        let len = (self.range.end - self.range.start) as usize;
        grow(&mut buffer, len);
        let mut done = io.read(self.range.start, &mut buffer[..len]);
        for (piece, key) in self.pieces.drain(..) {
            if done.is_ok() {
                let start = (piece.start - self.range.start) as usize;
                let end = (piece.end - self.range.start) as usize;
                done = take(io, &buffer[start..end], key);
            }
        }
        io.buffer = buffer;
        done
    }
}

// Unreadable frames of a block, with reasons.

/// Contradiction between a dataset and the index of the file, or within the encoded data.
#[derive(Debug, Clone)]
pub(super) struct Flaw {
    /// Name of the chunk or row, and of its dataset.
    pub what: String,
    /// Offset in the file, bytes; `None` if the index contains an impossible offset.
    pub offset: Option<u64>,
    pub expected: String,
    pub found: String,
}

/// Collector of the unreadable rows of a block, and of their errors.
pub(super) struct SkippedFrames<'a> {
    pub path: PathBuf,
    /// Numbers of the frames of the block.
    pub frames: &'a [i64],
    pub skip: bool,
    /// First row of the block that is being read. [`SkippedFrames::note`] counts rows from here.
    pub base: usize,
    pub errors: Vec<Option<Error>>,
}

impl SkippedFrames<'_> {
    /// Record that rows, counted from `base`, cannot be read.
    ///
    /// # Errors
    /// The error itself, unless unreadable frames are skipped.
    pub fn note(&mut self, rows: impl Iterator<Item = usize> + Clone, flaw: &Flaw) -> Result<()> {
        let base = self.base;
        let frames = rows.clone().map(|row| self.frames[base + row]);
        let (first, last) = (frames.clone().min(), frames.max());
        let frames = (first.unwrap_or_default(), last.unwrap_or_default());
        for row in rows {
            let error = Error::DamagedChunk {
                path: self.path.clone(),
                frames,
                what: flaw.what.clone(),
                offset: flaw.offset.and_then(NonZeroU64::new),
                expected: flaw.expected.clone(),
                found: flaw.found.clone(),
            };
            self.refuse(base + row, error)?;
        }
        Ok(())
    }

    /// Record that a row of the block cannot be read, unless it is already recorded.
    ///
    /// # Errors
    /// The error itself, unless unreadable frames are skipped.
    pub fn refuse(&mut self, row: usize, error: Error) -> Result<()> {
        if !self.skip {
            return Err(error);
        }
        self.errors[row].get_or_insert(error);
        Ok(())
    }
}
