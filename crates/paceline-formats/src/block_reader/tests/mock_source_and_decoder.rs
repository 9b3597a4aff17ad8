//! File and decoder for tests. The file records how it is read.

use std::ops::Range;
use std::path::Path;
use std::sync::Mutex;

use crate::error::{Fault, Result};
use crate::source::{Access, Source, Traffic};
use crate::{Decoder, Fields, FrameOut, Run};

pub const FRAME: u64 = 8000;
pub const N_FRAMES: u64 = 400;
pub const MARGIN: u64 = 100;

/// File in which frame k contains only the byte k, and the record of its reads.
#[derive(Default)]
pub struct File {
    pub reads: Mutex<Vec<Range<u64>>>,
    pub ahead: Mutex<Vec<Range<u64>>>,
    /// Costs of reading, if they are not those of a local file.
    pub access: Option<Access>,
}

impl Source for File {
    fn path(&self) -> &Path {
        Path::new("made.up")
    }

    fn size(&self) -> Result<u64> {
        Ok(FRAME * N_FRAMES)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let range = offset..offset + buffer.len() as u64;
        for (byte, at) in buffer.iter_mut().zip(range.clone()) {
            *byte = (at / FRAME) as u8;
        }
        self.reads.lock().unwrap().push(range);
        Ok(())
    }

    fn access(&self) -> Access {
        self.access.unwrap_or(Access::FILE)
    }

    fn will_need(&self, offset: u64, len: u64) {
        self.ahead.lock().unwrap().push(offset..offset + len);
    }

    fn traffic(&self) -> Traffic {
        let reads = self.reads.lock().unwrap();
        Traffic {
            bytes: reads.iter().map(|range| range.end - range.start).sum(),
            calls: reads.len() as u64,
        }
    }
}

/// Decoder that requests `runs` of each frame, and then its first `needs` bytes. It refuses the
/// frame `refuses`. If `learns` is true, the first run of each frame after the first decoded frame
/// has `needs` + [`MARGIN`] bytes.
pub struct Picky {
    pub runs: Vec<Run>,
    pub needs: usize,
    pub refuses: u64,
    pub learns: bool,
}

impl Decoder for Picky {
    fn runs(&mut self, _frame: u64, _size: u64) -> &[Run] {
        &self.runs
    }

    fn decode(
        &mut self,
        frame: u64,
        _size: u64,
        bytes: &[u8],
        out: FrameOut<'_>,
    ) -> std::result::Result<(), Fault> {
        if bytes.len() < self.needs {
            return Err(Fault::Short { needed: self.needs });
        }
        assert!(bytes.iter().all(|&byte| byte == frame as u8));
        if frame == self.refuses {
            return Err(Fault::bad(3, "another frame", frame));
        }
        if self.learns {
            self.runs[0].len = self.needs as u64 + MARGIN;
        }
        out.positions.fill(frame as f32);
        *out.fields = Fields::POSITIONS;
        (*out.time, *out.step) = (frame as f64, frame as i64);
        Ok(())
    }
}
