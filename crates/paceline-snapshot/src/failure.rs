//! What can go wrong, and how all ranks come to say the same.

use std::io;
use std::path::Path;

use super::{Communicator, Reduce};
use paceline_formats::error::Error;

/// Why a snapshot was not written.
#[derive(Debug)]
pub enum Failure {
    /// The atoms cannot be written: which, and why.
    Unwritable(String),
    Error(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Error(error)
    }
}

pub type Result<T> = std::result::Result<T, Failure>;

/// Let all ranks fail where one does: with what the first of those says, and with its number. An
/// error of the file is one of `path`.
///
/// # Errors
/// [`Failure`], the same on every rank.
pub fn agree<T>(comm: &dyn Communicator, path: &Path, mine: Result<T>) -> Result<T> {
    let mut failed = [u64::from(mine.is_err())];
    comm.all_reduce(&mut failed, Reduce::Max)?;
    if failed == [0] {
        return mine;
    }
    let told = match &mine {
        Ok(_) => Vec::new(),
        Err(failure) => tell(failure),
    };
    let all = comm.all_gather(&told)?;
    let first = all.iter().enumerate().find(|(_, told)| !told.is_empty());
    Err(match first {
        Some((rank, told)) => understand(rank, told, path),
        None => Error::Interrupted.into(),
    })
}

const UNWRITABLE: u8 = 1;
const IO: u8 = 2;
const OTHER: u8 = 3;

/// A failure as bytes: its kind, the system's number of it, and what there is to say.
fn tell(failure: &Failure) -> Vec<u8> {
    let (kind, errno, text) = match failure {
        Failure::Unwritable(reason) => (UNWRITABLE, 0, reason.clone()),
        Failure::Error(Error::Io { action, source, .. }) => match source.raw_os_error() {
            Some(errno) => (IO, errno, action.clone()),
            None => (IO, 0, format!("{action}: {source}")),
        },
        Failure::Error(error) => (OTHER, 0, error.to_string()),
    };
    let mut told = vec![kind];
    told.extend(errno.to_le_bytes());
    told.extend(text.as_bytes());
    told
}

fn understand(rank: usize, told: &[u8], path: &Path) -> Failure {
    let Some((&[kind, ref errno @ ..], text)) = told.split_first_chunk::<5>() else {
        return Error::Interrupted.into();
    };
    let text = format!("rank {rank}: {}", String::from_utf8_lossy(text));
    match (kind, i32::from_le_bytes(*errno)) {
        (UNWRITABLE, _) => Failure::Unwritable(text),
        (IO, 0) => Error::io(path, "cannot write", io::Error::other(text)).into(),
        (IO, errno) => Error::io(path, text, io::Error::from_raw_os_error(errno)).into(),
        _ => Error::Argument(text).into(),
    }
}
