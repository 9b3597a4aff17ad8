//! Reading ahead: whether it is worth it, and asking.

use std::ops::Range;
use std::time::Duration;

use super::{BlockReport, within_reach};
use crate::source::Source;

/// What a call and a byte cost at most when the bytes are in memory already. A block that took
/// longer came from a disk or a network.
pub(super) const CACHED_CALL: Duration = Duration::from_micros(4);
const CACHED_BYTES_PER_SECOND: f64 = 1e9;

/// Blocks to read ahead for after one that came from a disk; then one is read without, to see
/// whether it is still worth it. Advice for bytes in memory is not free: given always, it took a
/// quarter of the time of sparse DCD blocks.
const BLOCKS_AHEAD: u32 = 32;

/// Whether the bytes of blocks to come are worth asking for.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    /// Blocks still to be read ahead for.
    blocks: u32,
}

impl Ahead {
    pub fn pays(&self) -> bool {
        self.blocks > 0
    }

    /// Decide from a block's reading whether the next ones are worth reading ahead for.
    pub fn learn(&mut self, report: &BlockReport) {
        if self.blocks > 0 {
            self.blocks -= 1;
            return;
        }
        let copying = Duration::from_secs_f64(report.bytes as f64 / CACHED_BYTES_PER_SECOND);
        if report.read > copying + CACHED_CALL * u32::try_from(report.calls).unwrap_or(u32::MAX) {
            self.blocks = BLOCKS_AHEAD;
        }
    }
}

/// Ask for ranges of bytes, those that lie close together at once.
pub(super) fn ask_for(source: &dyn Source, ranges: impl IntoIterator<Item = Range<u64>>) {
    let mut pending: Option<Range<u64>> = None;
    for wanted in ranges {
        match &mut pending {
            Some(range) if within_reach(range.end, wanted.start) => range.end = wanted.end,
            _ => {
                if let Some(range) = pending.replace(wanted) {
                    source.will_need(range.start, range.end - range.start);
                }
            }
        }
    }
    if let Some(range) = pending {
        source.will_need(range.start, range.end - range.start);
    }
}
