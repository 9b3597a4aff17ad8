//! Kernels of analyses of molecular dynamics. A kernel is a function that reads slices and computes
//! numbers. A module contains one kernel, a few related kernels, or a common part of kernels.
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
//! The result of a kernel has the same bits for any block size and any number of threads, because
//! the order of operations depends only on the frame. Most kernels use only operations that IEEE
//! 754 defines exactly (`+ − × ÷ √`). A sum over atoms consists of a few interleaved partial sums
//! (`Sum` in `superposition/mod.rs`). The compiler can vectorise partial sums without changing
//! their bits.
//!
//! A block contains complete frames of `n_atoms` positions (x, y, z, Å). If an input is NaN, the
//! result is NaN, or the kernel refuses the frame. The check for broken molecules ignores NaN.

#![deny(missing_docs)]

mod pair_counting_columns;
use std::ops::Range;
use std::slice::ChunksExact;

use instructions::prefetch;
use paceline_base::error::{Error, Result};

mod cell;
pub mod cells_in_standard_form;
pub mod check_finite_and_largest;
pub mod correlation;
pub mod covariance;
pub mod density_profiles_and_grids;
pub mod detect_broken_molecules;
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
pub mod nojump;
pub mod order;
pub mod pair_distances_and_contacts;
pub mod projection;
pub mod rdf;
pub mod rmsd;
pub mod rmsd_matrix;
pub mod row_kernel;
pub mod sasa;
pub mod selection_evaluation;
pub mod site_pairs;
mod superposition;
#[cfg(test)]
mod tests;
pub mod threads_within_frame;
pub mod transform_common;
pub mod unwrap;
pub mod wrap;

pub use histogram::count_indices;
pub use paceline_base::error;

/// Atoms of a block that a kernel reads, in the order of the kernel. Atoms may be repeated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Columns {
    /// Contiguous atoms in ascending order. The kernel reads their positions without a copy.
    Run(Range<usize>),
    /// Any other atoms. Their positions are copied together before the kernel reads them.
    List(Vec<usize>),
}

impl Columns {
    /// Create columns from atom indices, and keep the order of the indices.
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
    /// `n_atoms`, 3). `out` has the same number of frames, with only these atoms.
    ///
    /// # Errors
    /// [`Error::Argument`] if an atom is out of range, or a slice has the wrong length.
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
    /// [`Error::Argument`] if an index is `n_atoms` or larger.
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

    /// Return the positions of these atoms, in their order. The caller must call `check` first.
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
/// [`Error::Argument`] if `positions` is not a whole number of frames, or frames have no atoms.
fn frames(positions: &[f32], n_atoms: usize) -> Result<ChunksExact<'_, f32>> {
    Ok(positions.chunks_exact(frame_len(positions.len(), n_atoms)?))
}

/// Return the number of coordinates of a frame, after a check of the block's length
/// (`n_coordinates`).
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
/// [`Error::Argument`] if `found` differs from `expected`.
fn check_len(what: &str, found: usize, expected: usize) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    Err(Error::Argument(format!(
        "expected {expected} {what}, found {found}"
    )))
}
