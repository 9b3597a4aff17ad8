//! Transfer of atoms between ranks and one ordered file: messages, and offsets in the file.
//!
//! Atoms have ids from 1 to the number of atoms. A frame has sections; in each section, the id of
//! an atom determines its offset: `start + (id - 1) * size`. The caller writes the bytes between
//! the sections.
//!
//! - [`write`](fn@write) writes the atoms of all ranks to their offsets, after [`check`](fn@check);
//! - [`file`](mod@file) writes the parts between the sections, and gives a complete file its name;
//! - [`atom_encoding`] encodes atoms; [`reading`] distributes the atoms of a file to the ranks;
//! - [`collective_writer`] does all of this for one file; its ranks agree on options and errors;
//! - [`Communicator`] transports bytes between ranks: MPI, threads, or [`SingleRank`].
//!
//! `examples/config.rs` writes a CONFIG of two atoms.

#![deny(missing_docs)]

mod agreement_and_communicator;
pub mod atom_encoding;
mod atoms;
pub mod collective_writer;
pub mod file;
pub mod reading;
mod send_schedule_and_memory;
mod static_properties;
#[cfg(test)]
mod tests;
mod writing;

use std::path::Path;

use xxhash_rust::xxh3::xxh3_64;

use crate::agreement_and_communicator::agree;
use crate::send_schedule_and_memory::MemoryBudget;
use atoms::Packing;
use paceline_formats::error::Error;

pub use crate::agreement_and_communicator::{Failure, Kind, Result};
pub use crate::atoms::Batch;
pub use crate::atoms::Records;
pub use crate::send_schedule_and_memory::Cost;
pub use agreement_and_communicator::check;
pub use agreement_and_communicator::{Communicator, Reduce, SingleRank};
pub use atoms::{Atoms, Vectors};

/// Method of writing atoms: the four methods of Todorov & Bush (HPCxTR0806).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// All ranks send their atoms to rank 0, one rank after the other. Rank 0 writes each atom at
    /// its offset.
    Serial,
    /// Every rank writes each of its atoms at the atom's offset.
    Direct,
    /// Like `Direct`, but through MPI-IO.
    Mpiio,
    /// Atoms are sent to some writers, which sort them and make few large writes.
    Sorted,
}

impl Method {
    /// Return the method of this lowercase name, such as "sorted".
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "serial" => Some(Method::Serial),
            "direct" => Some(Method::Direct),
            "mpiio" => Some(Method::Mpiio),
            "sorted" => Some(Method::Sorted),
            _ => None,
        }
    }
}

/// Atoms of one frame, and the file to which they are written. All fields except the atoms must be
/// the same on all ranks.
#[derive(Clone, Copy)]
pub struct Job<'a> {
    /// Existing file.
    pub path: &'a Path,
    /// Encoder of an atom's bytes in each section.
    pub records: &'a dyn Records,
    /// Offset of each section in the file.
    pub starts: &'a [u64],
    /// Number of atoms of all ranks.
    pub n_atoms: u64,
    /// Atoms of this rank, which have passed [`check`].
    pub atoms: &'a Atoms<'a>,
    /// Method of writing atoms.
    pub method: Method,
    /// Writing ranks in increasing order, for the sorted method.
    pub writers: &'a [usize],
    /// Maximum memory of a rank in addition to its atoms, bytes.
    pub buffer: usize,
    /// True if writing ends only after all data are on the disk.
    pub sync: bool,
}

/// Job, with data on which all ranks have agreed.
struct Plan<'a> {
    comm: &'a dyn Communicator,
    job: &'a Job<'a>,
    packing: Packing,
    budget: MemoryBudget,
}

/// Write the atoms of one frame at their offsets. The call is collective.
pub fn write(comm: &dyn Communicator, job: &Job<'_>) -> Result<Cost> {
    let plan = agree_on(comm, job)?;
    let mut cost = Cost::default();
    let done = match job.method {
        Method::Serial => writing::serial(&plan, &mut cost)?,
        Method::Direct => writing::direct(&plan, &mut cost),
        Method::Mpiio => writing::mpiio(&plan, &mut cost)?,
        Method::Sorted => writing::sorted(&plan, &mut cost)?,
    };
    agree(comm, job.path, done)?;
    Ok(cost)
}

/// Refuse arguments that would cause a deadlock of the ranks, or access to missing data.
fn agree_on<'a>(comm: &'a dyn Communicator, job: &'a Job<'a>) -> Result<Plan<'a>> {
    let alike = xxh3_64(
        format!(
            "{:?} {:?} {} {:?} {:?} {}",
            job.records.sections(),
            job.starts,
            job.n_atoms,
            job.method,
            job.writers,
            job.buffer
        )
        .as_bytes(),
    );
    let wide = !job.atoms.is_empty() && job.atoms.is_wide();
    let mut most = [u64::from(wide), alike, !alike];
    comm.all_reduce(&mut most, Reduce::Max)?;
    let [wide, most, left] = most;
    let packing = Packing::new(job.records, wide != 0);
    let own = match most == !left {
        true => prepare(comm, job, &packing),
        false => Err(argument("the ranks disagree about how to write this frame")),
    };
    let budget = agree(comm, job.path, own)?;
    Ok(Plan {
        comm,
        job,
        packing,
        budget,
    })
}

fn prepare(comm: &dyn Communicator, job: &Job<'_>, packing: &Packing) -> Result<MemoryBudget> {
    let sizes = job.records.sections();
    let ranks = job.writers.is_sorted_by(|a, b| a < b)
        && job.writers.last().is_some_and(|&last| last < comm.size());
    if job.method == Method::Sorted && !ranks {
        return Err(argument("writers must be ranks, at least one, that ascend"));
    }
    let end = |(&start, &size): (&u64, &usize)| {
        let n_bytes = job.n_atoms.checked_mul(size as u64)?;
        let end = start.checked_add(n_bytes)?;
        i64::try_from(end).ok()
    };
    let fits = job.starts.iter().zip(sizes).all(|pair| end(pair).is_some());
    if job.starts.len() != sizes.len() || !fits {
        return Err(argument("sections must have a start each, within a file"));
    }
    let out_of_range = |&id: &i64| id < 1 || id as u64 > job.n_atoms;
    if job.atoms.ids.iter().copied().any(|id| out_of_range(&id)) {
        return Err(argument("ids are out of range"));
    }
    if !job.atoms.is_empty() && job.atoms.is_wide() != packing.is_wide() {
        return Err(argument("vectors are of another type than other ranks'"));
    }
    if u32::try_from(job.atoms.len()).is_err() {
        return Err(argument("a rank may have 4294967295 atoms at the most"));
    }
    MemoryBudget::new(
        job.buffer,
        packing.size(),
        sizes.iter().sum(),
        job.writers.len(),
    )
}

fn argument(reason: &str) -> Failure {
    Failure::Error(Error::Argument(reason.into()))
}
