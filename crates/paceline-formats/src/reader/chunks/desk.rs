//! What one worker reads with: a source, buffers that are used again, and a clock.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::Result;
use crate::hdf5_chunks::Inflater;
use crate::reader::{CHUNK, grow, within_reach};
use crate::source::Source;

/// A source, and what it took to read from it.
pub(super) struct Desk {
    pub source: Arc<dyn Source>,
    /// Bytes of the file when it was opened.
    pub file_size: u64,
    pub reading: Duration,
    pub buffer: Vec<u8>,
    pub inflater: Inflater,
    /// For chunks that are unpacked, and for numbers that are put together.
    pub rooms: Vec<Vec<u8>>,
    pub woven: Vec<u8>,
}

impl Desk {
    /// # Errors
    /// What the source gives.
    pub fn new(source: Arc<dyn Source>) -> Result<Desk> {
        Ok(Desk {
            file_size: source.size()?,
            source,
            reading: Duration::ZERO,
            buffer: Vec::new(),
            inflater: Inflater::default(),
            rooms: Vec::new(),
            woven: Vec::new(),
        })
    }

    /// Read as many bytes as the buffer that is given has.
    pub fn read(&mut self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let started = Instant::now();
        let read = self.source.read_at(offset, buffer);
        self.reading += started.elapsed();
        read
    }

    /// Whether the file has these bytes.
    pub fn holds(&self, offset: u64, size: u64) -> bool {
        offset
            .checked_add(size)
            .is_some_and(|end| end <= self.file_size)
    }
}

/// Byte ranges that one call reads together, and what each of them is for.
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

    /// Whether a range lies close enough behind, or among, those that are here.
    pub fn accepts(&self, piece: &Range<u64>) -> bool {
        let near = piece.start <= self.range.end || within_reach(self.range.end, piece.start);
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

    /// Read all of them, hand each over, and begin anew.
    pub fn read(
        &mut self,
        desk: &mut Desk,
        mut take: impl FnMut(&mut Desk, &[u8], K) -> Result<()>,
    ) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        let mut buffer = std::mem::take(&mut desk.buffer);
        let len = (self.range.end - self.range.start) as usize;
        grow(&mut buffer, len);
        let mut done = desk.read(self.range.start, &mut buffer[..len]);
        for (piece, key) in self.pieces.drain(..) {
            if done.is_ok() {
                let start = (piece.start - self.range.start) as usize;
                let end = (piece.end - self.range.start) as usize;
                done = take(desk, &buffer[start..end], key);
            }
        }
        desk.buffer = buffer;
        done
    }
}
