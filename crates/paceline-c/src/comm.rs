//! Communicator of a C program: it calls the functions that the program passed in `paceline_comm`.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::path::Path;

use paceline_formats::error::{Error, Result};
use paceline_snapshot::{Communicator, Reduce};

/// `all_to_all` in `include/paceline.h`.
type AllToAll =
    unsafe extern "C" fn(*mut c_void, *const c_void, *const u64, *mut c_void, *const u64) -> c_int;
/// `all_reduce` in `include/paceline.h`.
type AllReduce = unsafe extern "C" fn(*mut c_void, *mut u64, c_int, c_int) -> c_int;

/// `paceline_comm` in `include/paceline.h`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CComm {
    context: *mut c_void,
    rank: c_int,
    size: c_int,
    all_to_all: Option<AllToAll>,
    all_reduce: Option<AllReduce>,
    abort: Option<unsafe extern "C" fn(*mut c_void)>,
}

/// Communicator made from a [`CComm`] that was checked.
pub struct Comm {
    context: *mut c_void,
    rank: usize,
    size: usize,
    all_to_all: Option<AllToAll>,
    all_reduce: Option<AllReduce>,
    abort: Option<unsafe extern "C" fn(*mut c_void)>,
    failure: RefCell<Option<String>>,
}

impl Comm {
    /// Make the communicator of a program that has only one rank.
    pub fn single() -> Self {
        Comm {
            context: std::ptr::null_mut(),
            rank: 0,
            size: 1,
            all_to_all: None,
            all_reduce: None,
            abort: None,
            failure: RefCell::default(),
        }
    }

    /// Check a caller's structure, and create the communicator from it. The error is a message that
    /// states what was expected and what was found.
    pub fn of(comm: &CComm) -> std::result::Result<Self, String> {
        let (rank, size) = (usize::try_from(comm.rank), usize::try_from(comm.size));
        let (Ok(rank), Ok(size)) = (rank, size) else {
            return Err(format!(
                "expected a rank and a number of ranks, found {} and {}",
                comm.rank, comm.size
            ));
        };
        if rank >= size {
            return Err(format!("expected a rank below {size}, found {rank}"));
        }
        if size > 1 && (comm.all_to_all.is_none() || comm.all_reduce.is_none()) {
            return Err("expected all_to_all and all_reduce of a communicator, found NULL".into());
        }
        Ok(Comm {
            context: comm.context,
            rank,
            size,
            all_to_all: comm.all_to_all,
            all_reduce: comm.all_reduce,
            abort: comm.abort,
            failure: RefCell::default(),
        })
    }

    /// Return the reason why a function of the caller failed; `None` if none failed.
    pub fn failure(&self) -> Option<String> {
        self.failure.borrow().clone()
    }

    /// End the program on all ranks, if there are several and the caller provided `abort`.
    pub fn abort(&self) {
        if let (2.., Some(abort)) = (self.size, self.abort) {
            // SAFETY: the caller provided the function and its context for this call, as
            // `paceline.h` says. What the context points to stays alive.
            unsafe { abort(self.context) }
        }
    }

    fn check(&self, name: &str, status: c_int) -> Result<()> {
        if status == 0 {
            return Ok(());
        }
        let reason = format!(
            "rank {}: {name} of the communicator failed with {status}",
            self.rank
        );
        self.failure.borrow_mut().get_or_insert(reason);
        Err(Error::Interrupted)
    }

    fn exchange_bytes(
        &self,
        send: &[u8],
        send_counts: &[u64],
        receive: &mut [u8],
        receive_counts: &[u64],
    ) -> Result<()> {
        let total = |counts: &[u64]| counts.iter().try_fold(0_u64, |sum, &n| sum.checked_add(n));
        let fits = [send_counts.len(), receive_counts.len()] == [self.size; 2]
            && total(send_counts) == Some(send.len() as u64)
            && total(receive_counts) == Some(receive.len() as u64);
        if !fits {
            return Err(Error::Argument("counts do not fill the messages".into()));
        }
        let Some(all_to_all) = self.all_to_all else {
            receive.copy_from_slice(send);
            return Ok(());
        };
        // SAFETY: the caller provided the function and its context for this call. Both arrays of
        // counts have `size` elements, and their sums are the lengths of the slices, as checked
        // above. So the function reads within `send` and writes within `receive`. It stores no
        // pointer, because `paceline.h` says that the exchange is complete when it returns.
        let status = unsafe {
            all_to_all(
                self.context,
                send.as_ptr().cast(),
                send_counts.as_ptr(),
                receive.as_mut_ptr().cast(),
                receive_counts.as_ptr(),
            )
        };
        self.check("all_to_all", status)
    }
}

impl Communicator for Comm {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn all_to_all(&self, numbers: &[u64]) -> Result<Vec<u64>> {
        let counts = vec![size_of::<u64>() as u64; self.size];
        let mut received = vec![0_u64; self.size];
        let bytes = bytemuck::cast_slice_mut(&mut received);
        self.exchange_bytes(bytemuck::cast_slice(numbers), &counts, bytes, &counts)?;
        Ok(received)
    }

    fn exchange(
        &self,
        send: &[u8],
        send_counts: &[u64],
        receive: &mut [u8],
        receive_counts: &[u64],
    ) -> Result<()> {
        self.exchange_bytes(send, send_counts, receive, receive_counts)
    }

    fn all_reduce(&self, values: &mut [u64], how: Reduce) -> Result<()> {
        let Some(all_reduce) = self.all_reduce else {
            return Ok(());
        };
        let operation = match how {
            Reduce::Sum => 0,
            Reduce::Max => 1,
            Reduce::Min => 2,
        };
        let n = c_int::try_from(values.len())
            .map_err(|_| Error::Argument("too many values to combine".into()))?;
        // SAFETY: the caller provided the function and its context for this call. The function
        // changes the `n` values of the slice and stores no pointer.
        let status = unsafe { all_reduce(self.context, values.as_mut_ptr(), n, operation) };
        self.check("all_reduce", status)
    }

    fn all_gather(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        let own = bytes.len() as u64;
        let counts = Communicator::all_to_all(self, &vec![own; self.size])?;
        let sent = bytes.repeat(self.size);
        let mut received = vec![0; counts.iter().sum::<u64>() as usize];
        self.exchange_bytes(&sent, &vec![own; self.size], &mut received, &counts)?;
        let mut rest = &received[..];
        let parts = counts.iter().map(|&count| {
            let (part, others) = rest.split_at(count as usize);
            rest = others;
            part.to_vec()
        });
        Ok(parts.collect())
    }

    fn send(&self, _: usize, _: &[u8]) -> Result<()> {
        Err(unavailable())
    }

    fn receive(&self, _: usize, _: &mut [u8]) -> Result<()> {
        Err(unavailable())
    }

    fn write_at(&self, _: &Path, _: &[u64], _: usize, _: &[u8]) -> Result<()> {
        Err(unavailable())
    }
}

/// Return the error for communication that the C interface does not offer. A C program can only
/// choose methods of writing that do not need this communication.
fn unavailable() -> Error {
    Error::Argument("the communicator has no messages between two ranks".into())
}
