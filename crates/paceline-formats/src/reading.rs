//! Which bytes of a frame to read: what is wanted, and what little lies between.

use super::Run;

/// Collects runs from the front of a frame to its back.
#[derive(Debug)]
pub struct Reading {
    pub runs: Vec<Run>,
    /// Bytes of all runs.
    pub len: u64,
    gap: u64,
    /// Whether the last run may grow.
    open: bool,
}

impl Reading {
    /// Bytes that are at most `gap` apart are read together.
    pub fn new(gap: u64) -> Self {
        Reading {
            runs: Vec::new(),
            len: 0,
            gap,
            open: false,
        }
    }

    /// Read `len` bytes from `start` on, which lies at or behind the start of what was wanted
    /// before; where they will stand in the runs' bytes.
    pub fn want(&mut self, start: u64, len: u64) -> usize {
        let end = start + len;
        match self.runs.last_mut() {
            Some(last) if self.open && start <= last.end().saturating_add(self.gap) => {
                let more = end.saturating_sub(last.end());
                last.len += more;
                self.len += more;
            }
            _ => {
                self.runs.push(Run { start, len });
                self.len += len;
                self.open = true;
            }
        }
        (self.len - (self.end() - start)) as usize
    }

    /// Let what is wanted next begin a run of its own.
    pub fn close(&mut self) {
        self.open = false;
    }

    /// One past the last byte wanted so far.
    pub fn end(&self) -> u64 {
        self.runs.last().map_or(0, Run::end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_near_is_read_together() {
        let mut reading = Reading::new(10);
        let places =
            [(5, 10), (12, 2), (25, 1), (37, 4)].map(|(start, len)| reading.want(start, len));
        assert_eq!(places, [0, 7, 20, 21]);
        let run = |start, len| Run { start, len };
        assert_eq!(reading.runs, [run(5, 21), run(37, 4)]);
        reading.close();
        assert_eq!(reading.want(41, 1), 25);
        assert_eq!(reading.runs[2], run(41, 1));
        assert_eq!((reading.len, reading.end()), (26, 42));
    }

    #[test]
    fn no_gap_is_too_wide_for_all() {
        let mut reading = Reading::new(u64::MAX);
        assert_eq!(reading.want(0, 92), 0);
        assert_eq!(reading.want(1 << 40, 3), 1 << 40);
        assert_eq!(reading.runs.len(), 1);
    }
}
