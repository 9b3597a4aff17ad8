//! Kernels of analyses of molecular dynamics, one file per kernel: functions from slices to
//! numbers.
//!
//! ```
//! use paceline_kernels::rmsd::{Group, Rmsd};
//! use paceline_kernels::row_kernel::{Frames, RowKernel};
//!
//! # fn main() -> paceline_kernels::error::Result<()> {
//! let reference = [0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 2.0, 0.0];
//! let group = Group {
//!     columns: &[0, 1, 2],
//!     reference: &reference,
//!     weights: None,
//! };
//! // Two frames: the reference moved, and one of other distances.
//! let moved = [5.0, 0.0, 0.0, 6.0, 0.0, 0.0, 5.0, 2.0, 0.0];
//! let other = [0.0, 0.0, 0.0, 2.0, 0.0, 0.0, 0.0, 2.0, 0.0];
//! let (positions, dimensions) = ([moved, other].concat(), [0.0; 12]); // without cells
//! let mut rmsd = [0.0; 2];
//! Rmsd::new(&[group], true)?.compute(&Frames::new(&positions, 3, &dimensions)?, &mut rmsd)?;
//! assert!(rmsd[0] < 1e-6 && rmsd[1] > 0.3);
//! # Ok(())
//! # }
//! ```
//!
//! A kernel gives the same bits for any block size and any number of threads. It therefore uses
//! only operations that IEEE 754 defines exactly (`+ − × ÷ √`), in an order that depends only on
//! the frame. Sums over atoms run in a few interleaved partial sums (`Sum` in `reference.rs`),
//! which a compiler may compute side by side without changing them.
//!
//! A block holds complete frames of `n_atoms` positions (x, y, z, Å). A NaN in the input gives a
//! NaN in the result: a kernel does not leave out any input.

#![deny(missing_docs)]

mod cell_list;
use std::ops::Range;
use std::slice::ChunksExact;

use instructions::prefetch;
use paceline_base::error::{Error, Result};

mod cell;
pub mod contacts;
pub mod correlation;
pub mod covariance;
pub mod density;
pub mod dihedrals;
pub mod dipole;
pub mod distances;
pub mod dssp;
pub mod fit_group;
pub mod gyration;
pub mod hbonds;
mod histogram;
pub mod instructions;
pub mod moments;
pub mod near_pairs;
mod nearest_images;
pub mod nojump;
pub mod order;
pub mod placement;
pub mod projection;
mod qcp;
pub mod rdf;
mod reference;
pub mod rmsd;
pub mod rmsd_matrix;
pub mod row_kernel;
pub mod sasa;
pub mod select;
pub mod site_pairs;
#[cfg(test)]
mod tests;
pub mod transform;
pub mod unwrap;
pub mod validity;
pub mod whole;
pub mod wrap;

pub use histogram::count_indices;
pub use paceline_base::error;

/// Atoms of a block that a kernel uses, in its own order; duplicates are allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Columns {
    /// Contiguous atoms in ascending order, which are not copied.
    Run(Range<usize>),
    /// Any other atoms, which are gathered first.
    List(Vec<usize>),
}

impl Columns {
    /// The atoms of these indices, in their order.
    pub fn new(indices: &[usize]) -> Self {
        let first = indices.first().copied().unwrap_or(0);
        let neighbours = indices
            .iter()
            .enumerate()
            .all(|(i, &index)| index.checked_sub(first) == Some(i));
        if neighbours {
            Columns::Run(first..first.saturating_add(indices.len()))
        } else {
            Columns::List(indices.to_vec())
        }
    }

    /// Number of atoms, duplicates included.
    pub fn len(&self) -> usize {
        match self {
            Columns::Run(run) => run.len(),
            Columns::List(indices) => indices.len(),
        }
    }

    /// True if there is no atom.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copy the positions of these atoms, in their order. `positions` has the shape (frames,
    /// `n_atoms`, 3), and `out` as many frames of these atoms.
    ///
    /// # Errors
    /// [`Error::Argument`] if an atom is out of range, or a slice has another length.
    pub fn copy(&self, positions: &[f32], n_atoms: usize, out: &mut [f32]) -> Result<()> {
        self.check(n_atoms)?;
        let mut frames = frames(positions, n_atoms)?.peekable();
        check_len("coordinates", out.len(), 3 * self.len() * frames.len())?;
        let (out, _) = out.as_chunks_mut::<3>();
        for out in out.chunks_exact_mut(self.len().max(1)) {
            let (frame, next) = (frames.next().unwrap_or(&[]), frames.peek());
            let frame = frame.as_chunks::<3>().0;
            match self {
                Columns::Run(run) => out.copy_from_slice(&frame[run.clone()]),
                Columns::List(indices) => {
                    let next = next.map_or(&[][..], |next| next.as_chunks::<3>().0);
                    for (out, &index) in out.iter_mut().zip(indices) {
                        prefetch(next.get(index..=index).unwrap_or(&[]));
                        *out = frame[index];
                    }
                }
            }
        }
        Ok(())
    }

    /// # Errors
    /// [`Error::Argument`] if an index reaches past `n_atoms`.
    fn check(&self, n_atoms: usize) -> Result<()> {
        let end = match self {
            Columns::Run(run) => run.end,
            Columns::List(indices) => indices
                .iter()
                .max()
                .map_or(0, |last| last.saturating_add(1)),
        };
        if end <= n_atoms {
            return Ok(());
        }
        Err(Error::Argument(format!(
            "atom {} is out of range for a block of {n_atoms} atoms",
            end - 1
        )))
    }

    /// Return the positions of these atoms, in their order. The caller has called `check`.
    fn pick<'a>(&self, frame: &'a [f32], scratch: &'a mut Vec<f32>) -> &'a [f32] {
        match self {
            Columns::Run(run) => &frame[3 * run.start..3 * run.end],
            Columns::List(indices) => {
                scratch.clear();
                for &index in indices {
                    scratch.extend_from_slice(&frame[3 * index..3 * index + 3]);
                }
                scratch
            }
        }
    }
}

/// Split a block into frames.
///
/// # Errors
/// [`Error::Argument`] if `positions` is not a whole number of frames of at least one atom.
fn frames(positions: &[f32], n_atoms: usize) -> Result<ChunksExact<'_, f32>> {
    Ok(positions.chunks_exact(frame_len(positions.len(), n_atoms)?))
}

/// Number of coordinates of a frame, from the number `n_coordinates` of a block.
///
/// # Errors
/// As [`frames`].
fn frame_len(n_coordinates: usize, n_atoms: usize) -> Result<usize> {
    match n_atoms.checked_mul(3) {
        Some(len) if len > 0 && n_coordinates.is_multiple_of(len) => Ok(len),
        _ => Err(Error::Argument(format!(
            "{n_coordinates} coordinates are not a whole number of frames of {n_atoms} atoms"
        ))),
    }
}

/// # Errors
/// [`Error::Argument`] if a slice has another length than it must.
fn check_len(what: &str, found: usize, expected: usize) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    Err(Error::Argument(format!(
        "expected {expected} {what}, found {found}"
    )))
}
