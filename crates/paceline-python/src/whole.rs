//! Looks for molecules whose parts are in different images, on NumPy arrays.

use pyo3::prelude::*;

use super::arrays::{Array2, Array3, Indices, NewArray};
use super::errors::Result;
use super::kernels::{in_frames, kernels};

use super::transforms::{check_atoms, pairs};
use paceline_kernels::whole;

/// Pairs of atoms, the bonds of the path between each two, and atoms to be decoded for these.
type Links = (NewArray<i64, 2>, NewArray<i64, 1>, NewArray<i64, 1>);

/// Find the paths of at most `longest` bonds between wanted atoms.
#[pyfunction]
pub(super) fn links(
    py: Python<'_>,
    n_atoms: usize,
    bonds: Array2<'_, i64>,
    wanted: Indices,
    longest: usize,
) -> Result<Links> {
    let bonds = pairs(&bonds)?;
    let found = py.detach(|| whole::Links::new(n_atoms, &bonds, &wanted, longest));
    let whole::Links {
        pairs,
        lengths,
        added,
    } = found?;
    let signed = |values: &[usize]| values.iter().map(|&x| x as i64).collect::<Vec<_>>();
    Ok((
        NewArray::new(signed(pairs.as_flattened()), [pairs.len(), 2]),
        signed(&lengths).into(),
        signed(&added).into(),
    ))
}

kernels! {
    /// Groups of atoms, of whose molecules no two parts may be in different images.
    ///
    /// `links` are pairs of atoms, and the number of bonds between each two; `contacts` are of
    /// different molecules.
    pub(super) struct Whole(whole::Whole);

    new {
        (
            py: Python<'_>,
            n_atoms: usize,
            links: (Array2<'_, i64>, Indices),
            longest: usize,
            groups: Vec<Indices>,
            contacts: Array2<'_, i64>,
        ) {
            let (bonds, lengths) = (pairs(&links.0)?, links.1);
            let groups = groups.into_iter().map(|group| group.0).collect();
            let contacts = pairs(&contacts)?;
            py.detach(|| {
                whole::Whole::new(n_atoms, (&bonds, &lengths), longest, groups, contacts)
            })
        }
    }

    methods {
        /// Rows of frames in which a molecule is broken, and of others in which a contact is; of each
        /// the two atoms that are farthest apart, and their distance, Å.
        fn look(
            &self,
            py: Python<'_>,
            positions: Array3<'_, f32>,
            cells: Array2<'_, f64>,
        ) -> Result<(Vec<whole::Apart>, Vec<whole::Apart>)> {
            check_atoms(positions.shape(), self.0.n_atoms())?;
            in_frames(py, &positions, &cells, |_, placed| {
                self.0.look(&placed.positions, &placed.dimensions)
            })
        }
    }
}
