//! What is asked of those who carry bytes between ranks: MPI, or the threads of a test.

use std::path::Path;

use paceline_formats::error::Result;

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
/// Of each method: the ranks cannot be reached any more. They are not agreed on what was done
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
