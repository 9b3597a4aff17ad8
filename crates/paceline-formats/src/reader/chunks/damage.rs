//! Frames of a block that cannot be read, and why.

use std::path::PathBuf;

use crate::error::{Error, Result};

/// Where a dataset contradicts the file's index, or its own coding.
#[derive(Debug, Clone)]
pub(super) struct Flaw {
    /// The chunk or row, and the dataset.
    pub what: String,
    /// Byte in the file.
    pub offset: u64,
    pub expected: String,
    pub found: String,
}

/// What is known of the damage of a block.
pub(super) struct Damage<'a> {
    pub path: PathBuf,
    /// Numbers of the block's frames.
    pub frames: &'a [i64],
    pub skip: bool,
    /// First row of the block among those that are being read.
    pub base: usize,
    pub errors: Vec<Option<Error>>,
}

impl Damage<'_> {
    /// Note that rows, counted from the base, cannot be read.
    ///
    /// # Errors
    /// Always, unless such frames are to be skipped.
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
                offset: flaw.offset,
                expected: flaw.expected.clone(),
                found: flaw.found.clone(),
            };
            self.refuse(base + row, error)?;
        }
        Ok(())
    }

    /// Note that a row of the block cannot be read, if that is not known yet.
    ///
    /// # Errors
    /// The error itself, unless such frames are to be skipped.
    pub fn refuse(&mut self, row: usize, error: Error) -> Result<()> {
        if !self.skip {
            return Err(error);
        }
        self.errors[row].get_or_insert(error);
        Ok(())
    }
}
