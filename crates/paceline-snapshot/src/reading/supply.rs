//! Where a reader's atoms come from.

use std::ops::Range;
use std::path::PathBuf;

use super::table::Table;
use paceline_formats::error::{Error, Result};

/// What part of a buffer, one in so many, is for bytes from which atoms are decoded.
pub const PART: usize = 8;

/// A frame of a file, as messages call it.
#[derive(Debug, Clone)]
pub struct Moment {
    pub path: PathBuf,
    pub frame: u64,
}

impl Moment {
    /// What cannot be done with the frame.
    pub fn unsupported(&self, what: impl AsRef<str>) -> Error {
        Error::Unsupported {
            path: self.path.clone(),
            what: format!("frame {}: {}", self.frame, what.as_ref()),
        }
    }
}

/// The atoms of one frame, as one reader decodes them.
pub trait Supply {
    /// Append the atoms at these places in the file, counted from 0, to an empty table, but for
    /// their owners: one a place, or none. Each next range lies behind the one before.
    ///
    /// # Errors
    /// What reading and decoding gives.
    fn read(&mut self, places: Range<u64>, table: &mut Table) -> Result<()>;

    /// Bytes that it holds beside the table.
    fn held(&self) -> usize {
        0
    }
}
