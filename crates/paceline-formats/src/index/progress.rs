//! Tells the caller how far a scan has come, and hears from it that it should stop.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::format::Progress;

/// Time between two reports.
pub const PAUSE: Duration = Duration::from_millis(100);

pub struct Watch<'a> {
    progress: &'a Progress<'a>,
    total: u64,
    done: Cell<u64>,
    reported: Cell<Option<Instant>>,
}

impl<'a> Watch<'a> {
    pub fn new(progress: &'a Progress<'a>, total: u64) -> Self {
        Watch {
            progress,
            total,
            done: Cell::new(0),
            reported: Cell::new(None),
        }
    }

    /// The scan has come to the offset `at`, or was further already.
    ///
    /// # Errors
    /// [`Error::Interrupted`] where the caller asks to stop.
    pub fn reached(&self, at: u64) -> Result<()> {
        self.done.set(self.done.get().max(at.min(self.total)));
        let due = |last: Instant| last.elapsed() >= PAUSE;
        if !self.reported.get().is_none_or(due) {
            return Ok(());
        }
        self.reported.set(Some(Instant::now()));
        match (self.progress)(self.done.get(), self.total) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Error::Interrupted),
        }
    }
}
