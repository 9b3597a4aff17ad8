//! The interface to what carries bytes between ranks: MPI, or the threads of a test.

use std::fs::OpenOptions;
use std::path::Path;

use paceline_formats::error::{Error, Result};
use paceline_formats::system::write_all_at;

/// How values of all ranks become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reduce {
    /// The sum, modulo 2⁶⁴.
    Sum,
    Max,
    Min,
}

/// One rank's end of the wires. All but `send`, `receive` and `write_at` are called by all ranks,
/// in the same order.
///
/// # Errors
/// Each method fails if the ranks cannot be reached any more. They are not agreed on what was done
/// then, and the job should end.
pub trait Communicator {
    fn rank(&self) -> usize;

    fn size(&self) -> usize;

    /// Give one number to each rank; those that the ranks gave to this one.
    fn all_to_all(&self, numbers: &[u64]) -> Result<Vec<u64>>;

    /// Send bytes to each rank, those for rank 0 first, and receive what each sends to this one,
    /// rank 0's first. The counts, in bytes, fill `send` and `receive`.
    fn exchange(
        &self,
        send: &[u8],
        send_counts: &[u64],
        receive: &mut [u8],
        receive_counts: &[u64],
    ) -> Result<()>;

    /// Combine each value with those of all ranks in its place.
    fn all_reduce(&self, values: &mut [u64], how: Reduce) -> Result<()>;

    /// The bytes of each rank: short ones, which may differ in length.
    fn all_gather(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>>;

    /// Send bytes to a rank that waits for as many.
    fn send(&self, to: usize, bytes: &[u8]) -> Result<()>;

    fn receive(&self, from: usize, bytes: &mut [u8]) -> Result<()>;

    /// Write records of `size` bytes, each by a call of its own, to their places in a file that
    /// all ranks open together. The only method whose errors are also the file's.
    fn write_at(&self, path: &Path, offsets: &[u64], size: usize, bytes: &[u8]) -> Result<()>;
}

/// The communicator of a program that is its only rank.
#[derive(Debug, Clone, Copy, Default)]
pub struct SingleRank;

impl Communicator for SingleRank {
    fn rank(&self) -> usize {
        0
    }

    fn size(&self) -> usize {
        1
    }

    fn all_to_all(&self, numbers: &[u64]) -> Result<Vec<u64>> {
        Ok(numbers.to_vec())
    }

    fn exchange(&self, send: &[u8], _: &[u64], receive: &mut [u8], _: &[u64]) -> Result<()> {
        receive.copy_from_slice(send);
        Ok(())
    }

    fn all_reduce(&self, _values: &mut [u64], _how: Reduce) -> Result<()> {
        Ok(())
    }

    fn all_gather(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        Ok(vec![bytes.to_vec()])
    }

    fn send(&self, to: usize, _bytes: &[u8]) -> Result<()> {
        Err(no_such_rank(to))
    }

    fn receive(&self, from: usize, _bytes: &mut [u8]) -> Result<()> {
        Err(no_such_rank(from))
    }

    fn write_at(&self, path: &Path, offsets: &[u64], size: usize, bytes: &[u8]) -> Result<()> {
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
