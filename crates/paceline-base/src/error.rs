//! Errors of all crates. The message about damaged data names the file, the byte offset and, if
//! one is concerned, the frame.
//!
//! New variants may be added to [`Fault`] and [`Error`], so that a `match` in another crate needs a
//! wildcard.

use std::io;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

/// Reason why a decoder stopped. A decoder sees the bytes of only one frame, so `at` counts from
/// the first byte of the frame. [`Error::damaged`] adds the path, the frame and the file offset.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The slice contains only the beginning of the frame, and the decoder needs at least `needed`
    /// bytes.
    Short {
        /// Number of bytes from the start of the frame.
        needed: usize,
    },
    /// The bytes contradict the format, or each other.
    Bad {
        /// Offset of the contradiction in the frame, bytes.
        at: usize,
        /// Noun phrase that completes "expected …".
        expected: String,
        /// Noun phrase that completes "found …".
        found: String,
    },
}

impl Fault {
    /// Create a [`Fault::Bad`] at byte `at` of the frame.
    pub fn bad(at: usize, expected: impl Into<String>, found: impl ToString) -> Self {
        Fault::Bad {
            at,
            expected: expected.into(),
            found: found.to_string(),
        }
    }

    /// Return the fault with `at` or `needed` increased by `offset`. The fault was found in a slice
    /// that begins `offset` bytes after the first byte of the frame.
    pub fn behind(mut self, offset: usize) -> Self {
        match &mut self {
            Fault::Short { needed: at } | Fault::Bad { at, .. } => *at += offset,
        }
        self
    }

    /// Return the fault for a frame that has exactly `size` bytes: a [`Fault::Short`] that needs
    /// more bytes becomes a [`Fault::Bad`].
    pub fn within(self, size: u64) -> Self {
        match self {
            Fault::Short { needed } if needed as u64 > size => Fault::Bad {
                at: size as usize,
                expected: format!("a frame of at least {needed} bytes"),
                found: format!("{size} bytes"),
            },
            fault => fault,
        }
    }
}

/// Error of reading, writing or analysing a trajectory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file contradicts its format at a known offset.
    #[error(
        "{}: {}byte {offset}: expected {expected}, found {found}",
        path.display(),
        frame.map(|frame| format!("frame {frame}, ")).unwrap_or_default()
    )]
    Damaged {
        /// File that is damaged.
        path: PathBuf,
        /// Number of the frame, from 0; `None` for the file's own header.
        frame: Option<u64>,
        /// Offset from the beginning of the file, bytes.
        offset: u64,
        /// Noun phrase that completes "expected …".
        expected: String,
        /// Noun phrase that completes "found …".
        found: String,
    },
    /// A chunk or row of a dataset contradicts the index of the file, or its own encoding.
    #[error(
        "{}: {}, {what}{}: expected {expected}, found {found}",
        path.display(),
        named(*frames),
        offset.map(|offset| format!(", byte {offset}")).unwrap_or_default()
    )]
    DamagedChunk {
        /// File that is damaged.
        path: PathBuf,
        /// First and last frame for which the chunk or row was read.
        frames: (i64, i64),
        /// Name of the dataset, and number of the chunk or row in it.
        what: String,
        /// Offset from the beginning of the file, bytes. `None` if the index contains an impossible
        /// offset. The offset is never 0, because no chunk begins at byte 0.
        offset: Option<NonZeroU64>,
        /// Noun phrase that completes "expected …".
        expected: String,
        /// Noun phrase that completes "found …".
        found: String,
    },
    /// A complete frame lacks a required field.
    #[error("{}: frame {frame} has no {what}", path.display())]
    Missing {
        /// File that was read.
        path: PathBuf,
        /// Number of the frame, from 0.
        frame: u64,
        /// The missing field, such as "velocities".
        what: &'static str,
    },
    /// The file may be complete, but it uses a feature that paceline does not read.
    #[error("{}: {what}", path.display())]
    Unsupported {
        /// File that was opened.
        path: PathBuf,
        /// Sentence that names the feature.
        what: String,
    },
    /// The file changed since it was opened.
    #[error(
        "{}: the file changed since it was opened ({what}); open it again",
        path.display()
    )]
    Changed {
        /// File that was opened.
        path: PathBuf,
        /// The difference, such as a new size.
        what: String,
    },
    /// The operating system reported an error.
    #[error("{}: {action}: {source}", path.display())]
    Io {
        /// File of the failed call.
        path: PathBuf,
        /// Attempted action, such as "cannot read".
        action: String,
        /// Error that the operating system reported.
        source: io::Error,
    },
    /// The caller passed an invalid argument.
    #[error("{0}")]
    Argument(String),
    /// The caller requested a stop.
    #[error("interrupted")]
    Interrupted,
}

fn named((first, last): (i64, i64)) -> String {
    match first == last {
        true => format!("frame {first}"),
        false => format!("frames {first} to {last}"),
    }
}

/// Result whose error is [`Error`] by default.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Add the file to a decoder's fault. `start` is the offset of the first byte of the frame, and
    /// `size` the number of bytes that the frame has according to the index.
    pub fn damaged(path: &Path, frame: Option<u64>, start: u64, size: u64, fault: Fault) -> Self {
        let (at, expected, found) = match fault {
            Fault::Short { needed } => (
                size,
                format!("a frame of at least {needed} bytes"),
                format!("{size} bytes"),
            ),
            Fault::Bad {
                at,
                expected,
                found,
            } => (at as u64, expected, found),
        };
        Error::Damaged {
            path: path.to_owned(),
            frame,
            offset: start + at,
            expected,
            found,
        }
    }

    /// Create the error for a fault in the header of a file. `len` bytes of the header were read.
    pub fn damaged_head(path: &Path, len: usize, fault: Fault) -> Self {
        let fault = match fault {
            Fault::Short { needed } => {
                let expected = format!("a header of at least {needed} bytes");
                Fault::bad(len, expected, format!("{len} bytes"))
            }
            fault => fault,
        };
        Error::damaged(path, None, 0, len as u64, fault)
    }

    /// Create an [`Error::Io`] from an error of the operating system.
    pub fn io(path: &Path, action: impl Into<String>, source: io::Error) -> Self {
        Error::Io {
            path: path.to_owned(),
            action: action.into(),
            source,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_placed_in_its_file() {
        let fault = Fault::bad(4, "3341 atoms", 20);
        let error = Error::damaged(Path::new("a.xtc"), Some(7), 1000, 96, fault);
        assert_eq!(
            error.to_string(),
            "a.xtc: frame 7, byte 1004: expected 3341 atoms, found 20"
        );
    }
}
