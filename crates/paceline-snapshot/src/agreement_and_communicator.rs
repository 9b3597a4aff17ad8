//! Interface between ranks, agreement of all ranks on one error, and the check of all atoms before
//! anything is written.
//!
//! The check makes sure that the atoms of all ranks make a complete frame. The ids of all ranks
//! together must be the numbers from 1 to the number of atoms, without repeats. Each rank sums
//! hashes of its ids, and subtracts the hashes of an equal share of the expected ids. The total
//! over all ranks is zero for correct ids. For wrong ids, it is zero with a probability of 2⁻⁶⁴.

use std::cmp::Ordering;
use std::fs::OpenOptions;
use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use crate::{Atoms, Records};
use paceline_formats::error::{self, Error};
use paceline_formats::os_calls::write_all_at;

/// Range of ids.
type Range = RangeInclusive<u64>;

/// Check atoms on all ranks, and refuse atoms that cannot be written.
pub fn check(
    comm: &dyn Communicator,
    records: &dyn Records,
    n_atoms: u64,
    atoms: &Atoms<'_>,
) -> Result<()> {
    check_agreement(comm, records, n_atoms, atoms)?;
    let own = check_own(records, n_atoms, atoms).map_err(Failure::Unwritable);
    agree(comm, Path::new(""), own)?;
    check_ids(comm, n_atoms, atoms.ids)
}

/// Refuse arguments that differ between ranks. A rank without atoms may lack properties.
fn check_agreement(
    comm: &dyn Communicator,
    records: &dyn Records,
    n_atoms: u64,
    atoms: &Atoms<'_>,
) -> Result<()> {
    let of_an_atom = |number: u64| (!atoms.is_empty()).then_some(number);
    let said = [
        ("the number of atoms", Some(n_atoms)),
        (
            "the size of an atom in the file",
            Some(records.sections().iter().sum::<usize>() as u64),
        ),
        (
            "the precision of vectors, in bytes",
            of_an_atom(if atoms.is_wide() { 8 } else { 4 }),
        ),
        (
            "the masses of an atom",
            of_an_atom(atoms.masses.is_some().into()),
        ),
        (
            "the charges of an atom",
            of_an_atom(atoms.charges.is_some().into()),
        ),
    ];
    // The maximum of each number over all ranks. The minimum is computed as the maximum of the
    // complement.
    let mut most: Vec<u64> = said
        .iter()
        .flat_map(|(_, number)| number.map_or([0, 0], |number| [number, !number]))
        .collect();
    comm.all_reduce(&mut most, Reduce::Max)?;
    for ((what, _), &[most, left]) in said.iter().zip(most.as_chunks::<2>().0) {
        let nobody_says = [most, left] == [0, 0];
        if most != !left && !nobody_says {
            return Err(Failure::Unwritable(format!(
                "the ranks disagree about {what}: {} on one, {most} on another",
                !left
            )));
        }
    }
    Ok(())
}

/// Refuse atoms with errors that this rank can detect alone.
fn check_own(
    records: &dyn Records,
    n_atoms: u64,
    atoms: &Atoms<'_>,
) -> std::result::Result<(), String> {
    if atoms.is_empty() {
        return Ok(());
    }
    if let Some(missing) = records.fields().beyond(atoms.fields()) {
        return Err(format!("expected {missing}, found none"));
    }
    if records.has_names() && atoms.names.is_none() {
        return Err("expected names, found none".into());
    }
    let out_of_range = |&&id: &&i64| id < 1 || id as u64 > n_atoms;
    if let Some(id) = atoms.ids.iter().find(out_of_range) {
        return Err(format!("expected ids from 1 to {n_atoms}, found {id}"));
    }
    records
        .check(atoms)
        .map_err(|(at, reason)| format!("atom {}: {reason}", atoms.ids[at]))
}

/// Refuse ids that are not the numbers from 1 to `n_atoms` without repeats. The caller checked that
/// all ids are in this range.
pub fn check_ids(comm: &dyn Communicator, n_atoms: u64, ids: &[i64]) -> Result<()> {
    let found = sum(comm, ids.len() as u64)?;
    // Without a check of the number of ids, the loop over the range could be arbitrarily long.
    if found == n_atoms && sum(comm, surplus(comm, ids, &(1..=n_atoms)))? == 0 {
        return Ok(());
    }
    let count = |range: &Range| sum(comm, count(ids, range));
    let fewer = |range: &Range| Ok(count(range)? < size(range));
    let more = |range: &Range| Ok(count(range)? > size(range));
    let (missing, twice) = match found.cmp(&n_atoms) {
        Ordering::Less => (Some(find(1..=n_atoms, fewer)?), None),
        Ordering::Greater => (None, Some(find(1..=n_atoms, more)?)),
        Ordering::Equal => {
            let wrong = find(1..=n_atoms, |range| {
                Ok(sum(comm, surplus(comm, ids, range))? != 0)
            })?;
            // Ids below `wrong` are right. If `wrong` is missing, a later id is duplicate; if
            // `wrong` is duplicate, a later id is missing.
            let others = wrong + 1..=n_atoms;
            match count(&(wrong..=wrong))? {
                0 => (Some(wrong), Some(find(others, more)?)),
                _ => (Some(find(others, fewer)?), Some(wrong)),
            }
        }
    };
    let mut wrong = Vec::new();
    wrong.extend(missing.map(|id| format!("{id} is missing")));
    if let Some(id) = twice {
        let holders = holders(comm, ids, id)?;
        wrong.push(format!("{id} occurs more than once, on {holders}"));
    }
    Err(Failure::Unwritable(format!(
        "expected each id from 1 to {n_atoms} once, found {found} ids: {}",
        wrong.join(", and ")
    )))
}

fn sum(comm: &dyn Communicator, mine: u64) -> Result<u64> {
    let mut sum = [mine];
    comm.all_reduce(&mut sum, Reduce::Sum)?;
    Ok(sum[0])
}

fn size(range: &Range) -> u64 {
    range.end() - range.start() + 1
}

/// Count the ids in a range.
fn count(ids: &[i64], range: &Range) -> u64 {
    let inside = ids.iter().filter(|&&id| range.contains(&(id as u64)));
    inside.count() as u64
}

/// Find the first wrong id of a range by bisection. `is_wrong` must be true for the whole range.
fn find(ids: Range, is_wrong: impl Fn(&Range) -> Result<bool>) -> Result<u64> {
    let (mut first, mut last) = ids.into_inner();
    while first < last {
        let middle = first + (last - first) / 2;
        match is_wrong(&(first..=middle))? {
            true => last = middle,
            false => first = middle + 1,
        }
    }
    Ok(first)
}

/// Return the first and the last rank that have a duplicate id, as text for a message.
fn holders(comm: &dyn Communicator, ids: &[i64], id: u64) -> Result<String> {
    let has_it = ids.contains(&(id as i64));
    let all = comm.all_gather(&[u8::from(has_it)])?;
    let holders: Vec<_> = (0..all.len()).filter(|&rank| all[rank] == [1]).collect();
    Ok(match holders[..] {
        [first, .., last] => format!("ranks {first} and {last}"),
        _ => format!("rank {}", holders.first().copied().unwrap_or_default()),
    })
}

/// Return the contribution of this rank to a sum over the ids of a range. For correct ids the sum
/// over all ranks is zero.
fn surplus(comm: &dyn Communicator, ids: &[i64], range: &Range) -> u64 {
    let (first, n_ids) = (*range.start(), u128::from(size(range)));
    let cut = |rank: usize| first + (n_ids * rank as u128 / comm.size() as u128) as u64;
    let sum = |sum: u64, id: u64| sum.wrapping_add(mixed(id));
    let there = ids.iter().map(|&id| id as u64);
    let there = there.filter(|id| range.contains(id)).fold(0, sum);
    let wanted = (cut(comm.rank())..cut(comm.rank() + 1)).fold(0, sum);
    there.wrapping_sub(wanted)
}

/// Hash an id with the finalizer of SplitMix64 (Steele, Lea & Flood 2014,
/// doi:10.1145/2660193.2660195).
pub(crate) fn mixed(id: u64) -> u64 {
    let x = (id ^ id >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

// Errors, and agreement of all ranks on one error.

/// Reason why a snapshot was not written.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The atoms cannot be written. The value is a message with the reason.
    #[error("{0}")]
    Unwritable(String),
    /// The file to be extended has another number of atoms.
    #[error("{}: it belongs to another system: expected {expected} atoms, found {found}", path.display())]
    AtomCount {
        /// File that was opened.
        path: PathBuf,
        /// Number of atoms of the file.
        found: u64,
        /// Number of atoms of all ranks.
        expected: u64,
    },
    /// Error of another rank, reduced to the kind and text on which all ranks have agreed.
    #[error("{text}")]
    Agreed {
        /// Kind of the error.
        kind: Kind,
        /// Rank and reason.
        text: String,
    },
    /// Any other error.
    #[error(transparent)]
    Error(#[from] Error),
}

/// Kind of an error that ranks have agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An argument is invalid.
    Argument,
    /// The format, or a feature of the file, is not supported.
    Unsupported,
    /// The file contradicts its format.
    Damaged,
}

/// Result whose error is [`Failure`].
pub type Result<T> = std::result::Result<T, Failure>;

/// If one rank fails, fail on all ranks, with the message and the number of the first failed rank.
/// An error that concerns the file contains `path`.
///
/// # Errors
/// [`Failure`], the same on every rank.
pub fn agree<T>(comm: &dyn Communicator, path: &Path, mine: Result<T>) -> Result<T> {
    let mut failed = [u64::from(mine.is_err())];
    comm.all_reduce(&mut failed, Reduce::Max)?;
    if failed == [0] {
        return mine;
    }
    let message = match &mine {
        Ok(_) => Vec::new(),
        Err(failure) => encode(failure),
    };
    let all = comm.all_gather(&message)?;
    let first = all
        .iter()
        .enumerate()
        .find(|(_, message)| !message.is_empty());
    Err(match first {
        Some((rank, message)) => decode(rank, message, path),
        None => Error::Interrupted.into(),
    })
}

const UNWRITABLE: u8 = 1;
const IO: u8 = 2;
const OTHER: u8 = 3;
const UNSUPPORTED: u8 = 4;
const DAMAGED: u8 = 5;

/// Encode a failure as bytes: its kind, the error number of the system, and the message.
fn encode(failure: &Failure) -> Vec<u8> {
    let (kind, errno, text) = match failure {
        Failure::Unwritable(reason) => (UNWRITABLE, 0, reason.clone()),
        Failure::AtomCount { .. } => (UNSUPPORTED, 0, failure.to_string()),
        Failure::Agreed { kind, text } => {
            let kind = match kind {
                Kind::Argument => OTHER,
                Kind::Unsupported => UNSUPPORTED,
                Kind::Damaged => DAMAGED,
            };
            (kind, 0, text.clone())
        }
        Failure::Error(Error::Io { action, source, .. }) => match source.raw_os_error() {
            Some(errno) => (IO, errno, action.clone()),
            None => (IO, 0, format!("{action}: {source}")),
        },
        Failure::Error(error @ (Error::Argument(_) | Error::Interrupted)) => {
            (OTHER, 0, error.to_string())
        }
        Failure::Error(error @ (Error::Damaged { .. } | Error::DamagedChunk { .. })) => {
            (DAMAGED, 0, error.to_string())
        }
        Failure::Error(error) => (UNSUPPORTED, 0, error.to_string()),
    };
    let mut message = vec![kind];
    message.extend(errno.to_le_bytes());
    message.extend(text.as_bytes());
    message
}

fn decode(rank: usize, message: &[u8], path: &Path) -> Failure {
    let Some((&[kind, ref errno @ ..], text)) = message.split_first_chunk::<5>() else {
        return Error::Interrupted.into();
    };
    let text = format!("rank {rank}: {}", String::from_utf8_lossy(text));
    match (kind, i32::from_le_bytes(*errno)) {
        (UNWRITABLE, _) => Failure::Unwritable(text),
        (IO, 0) => Error::io(path, "cannot write", io::Error::other(text)).into(),
        (IO, errno) => Error::io(path, text, io::Error::from_raw_os_error(errno)).into(),
        (kind, _) => Failure::Agreed {
            kind: match kind {
                UNSUPPORTED => Kind::Unsupported,
                DAMAGED => Kind::Damaged,
                _ => Kind::Argument,
            },
            text,
        },
    }
}

// Interface to the transport between ranks: MPI, or the threads of a test.

/// Operation that combines the values of all ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reduce {
    /// The sum, modulo 2⁶⁴.
    Sum,
    /// The largest value.
    Max,
    /// The smallest value.
    Min,
}

/// Communicator of one rank. `rank` and `size` send nothing, and `send` and `receive` concern two
/// ranks. All other methods are collective: all ranks call them in the same order.
///
/// # Errors
/// Each method fails if ranks are unreachable. The state of the ranks is then undefined, and the
/// job should end.
pub trait Communicator {
    /// Number of this rank, from 0.
    fn rank(&self) -> usize;

    /// Number of ranks.
    fn size(&self) -> usize;

    /// Send one number to each rank; return the numbers that the ranks sent to this rank.
    fn all_to_all(&self, numbers: &[u64]) -> error::Result<Vec<u64>>;

    /// Send bytes to each rank, and receive bytes from each rank, both in the order of ranks. The
    /// counts (bytes) add up to the lengths of `send` and `receive`.
    fn exchange(
        &self,
        send: &[u8],
        send_counts: &[u64],
        receive: &mut [u8],
        receive_counts: &[u64],
    ) -> error::Result<()>;

    /// Combine each value with the values at the same index of all ranks; replace it by the result.
    fn all_reduce(&self, values: &mut [u64], how: Reduce) -> error::Result<()>;

    /// Return the bytes that each rank passed. They are short messages, which may differ in length.
    fn all_gather(&self, bytes: &[u8]) -> error::Result<Vec<Vec<u8>>>;

    /// Send bytes to a rank that waits for the same number of bytes.
    fn send(&self, to: usize, bytes: &[u8]) -> error::Result<()>;

    /// Wait for bytes from a rank, until `bytes` is full.
    fn receive(&self, from: usize, bytes: &mut [u8]) -> error::Result<()>;

    /// Write records of `size` bytes at their offsets, each with a separate call, in a file that
    /// all ranks open together. No other method returns errors of the file.
    fn write_at(
        &self,
        path: &Path,
        offsets: &[u64],
        size: usize,
        bytes: &[u8],
    ) -> error::Result<()>;
}

/// Communicator of a program that is the only rank.
#[derive(Debug, Clone, Copy, Default)]
pub struct SingleRank;

impl Communicator for SingleRank {
    fn rank(&self) -> usize {
        0
    }

    fn size(&self) -> usize {
        1
    }

    fn all_to_all(&self, numbers: &[u64]) -> error::Result<Vec<u64>> {
        Ok(numbers.to_vec())
    }

    fn exchange(&self, send: &[u8], _: &[u64], receive: &mut [u8], _: &[u64]) -> error::Result<()> {
        receive.copy_from_slice(send);
        Ok(())
    }

    fn all_reduce(&self, _values: &mut [u64], _how: Reduce) -> error::Result<()> {
        Ok(())
    }

    fn all_gather(&self, bytes: &[u8]) -> error::Result<Vec<Vec<u8>>> {
        Ok(vec![bytes.to_vec()])
    }

    fn send(&self, to: usize, _bytes: &[u8]) -> error::Result<()> {
        Err(no_such_rank(to))
    }

    fn receive(&self, from: usize, _bytes: &mut [u8]) -> error::Result<()> {
        Err(no_such_rank(from))
    }

    fn write_at(
        &self,
        path: &Path,
        offsets: &[u64],
        size: usize,
        bytes: &[u8],
    ) -> error::Result<()> {
        let failed = |error| Error::io(path, "cannot write", error);
        let file = OpenOptions::new().write(true).open(path).map_err(failed)?;
        for (&offset, record) in offsets.iter().zip(bytes.chunks_exact(size)) {
            write_all_at(&file, record, offset).map_err(failed)?;
        }
        Ok(())
    }
}

fn no_such_rank(rank: usize) -> Error {
    Error::Argument(format!("a single rank has no messages for rank {rank}"))
}
