//! Kernels that give a row of numbers for each frame, on NumPy arrays.

use numpy::{
    PyReadonlyArray1, PyReadonlyArray2, PyReadonlyArray3, PyReadwriteArray2, PyUntypedArrayMethods,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::{OrRaise, indices};
use paceline_kernels::contacts::{Contacts, PairDistances, Switch};
use paceline_kernels::density::Profiles;
use paceline_kernels::dihedrals::Dihedrals;
use paceline_kernels::dipole::Dipole;
use paceline_kernels::distances::{
    Angles, AtomicDistances, CenterDistance, DistanceMatrix, MinimumDistance,
};
use paceline_kernels::dssp;
use paceline_kernels::dssp::letters::Letters;
use paceline_kernels::gyration;
use paceline_kernels::instructions::{self, Instructions};
use paceline_kernels::near_pairs::Components;
use paceline_kernels::order::Order;
use paceline_kernels::rmsd::{self, Group};
use paceline_kernels::sasa;
use paceline_kernels::transform::Refused;
use paceline_kernels::{projection, rows, superposed};

/// Computes a row of numbers for each frame of a block.
///
/// Constructors take `columns`, those of the analysis's atoms in the block (None: all in order);
/// other indices count these atoms.
#[pyclass(frozen, module = "paceline._core")]
pub(super) struct RowKernel(Box<dyn rows::RowKernel>);

impl RowKernel {
    fn new(task: impl rows::RowKernel + 'static) -> Self {
        RowKernel(Box::new(task))
    }
}

/// Index and mass of each atom's compound.
type CompoundArrays<'py> = (PyReadonlyArray1<'py, i64>, PyReadonlyArray1<'py, f64>);

/// Reference positions (Å) of a group, and its weights.
type GroupArrays<'py> = (
    PyReadonlyArray2<'py, f64>,
    Option<PyReadonlyArray1<'py, f64>>,
);

#[pymethods]
impl RowKernel {
    /// Angles (degrees) at the second of three groups of `n_angles` atoms, which follow each other.
    #[staticmethod]
    fn angles(
        py: Python<'_>,
        columns: Option<PyReadonlyArray1<'_, i64>>,
        n_angles: usize,
        periodic: bool,
    ) -> PyResult<Self> {
        let columns = all_columns(columns, n_angles.saturating_mul(3))?;
        let (first, rest) = columns.split_at(n_angles);
        let (second, third) = rest.split_at(n_angles);
        let task = Angles::new(first, second, third, periodic);
        task.map(Self::new).or_raise(py)
    }

    /// Distances (Å) between two groups of `n_pairs` atoms, which follow each other, pair by pair.
    #[staticmethod]
    fn atomic_distances(
        py: Python<'_>,
        columns: Option<PyReadonlyArray1<'_, i64>>,
        n_pairs: usize,
        periodic: bool,
    ) -> PyResult<Self> {
        let columns = all_columns(columns, n_pairs.saturating_mul(2))?;
        let (first, second) = columns.split_at(n_pairs);
        let task = AtomicDistances::new(first, second, periodic);
        task.map(Self::new).or_raise(py)
    }

    /// Distance (Å) between the centers of two groups of such `sizes`, which follow each other.
    #[staticmethod]
    fn center_distance(
        py: Python<'_>,
        columns: Option<PyReadonlyArray1<'_, i64>>,
        sizes: (usize, usize),
        weights: Option<PyReadonlyArray1<'_, f64>>,
        periodic: bool,
    ) -> PyResult<Self> {
        let columns = all_columns(columns, sizes.0.saturating_add(sizes.1))?;
        let (first, second) = columns.split_at(sizes.0);
        let weights = weights.as_ref().map(|weights| weights.as_slice());
        let weights = weights.transpose()?.map(|weights| {
            let of_first = sizes.0.min(weights.len());
            weights.split_at(of_first)
        });
        let groups = [
            (first, weights.map(|(weights, _)| weights)),
            (second, weights.map(|(_, weights)| weights)),
        ];
        let task = CenterDistance::new(groups, periodic);
        task.map(Self::new).or_raise(py)
    }

    /// Distances (Å) between all atoms of two groups, which follow each other, or of one group.
    #[staticmethod]
    fn distance_matrix(
        py: Python<'_>,
        columns: Option<PyReadonlyArray1<'_, i64>>,
        n_first: usize,
        n_second: Option<usize>,
        periodic: bool,
    ) -> PyResult<Self> {
        let n_atoms = n_first.saturating_add(n_second.unwrap_or(0));
        let columns = all_columns(columns, n_atoms)?;
        let (first, second) = columns.split_at(n_first);
        let task = DistanceMatrix::new(first, n_second.map(|_| second), periodic);
        task.map(Self::new).or_raise(py)
    }

    /// Least distance (Å) between two groups, which follow each other, and its atoms' places.
    #[staticmethod]
    fn minimum_distance(
        py: Python<'_>,
        columns: Option<PyReadonlyArray1<'_, i64>>,
        sizes: (usize, usize),
        periodic: bool,
    ) -> PyResult<Self> {
        let columns = all_columns(columns, sizes.0.saturating_add(sizes.1))?;
        let (first, second) = columns.split_at(sizes.0);
        let task = MinimumDistance::new(first, second, periodic);
        task.map(Self::new).or_raise(py)
    }

    /// Of each compound, whose atoms follow each other, in groups of such `sizes`: radius of
    /// gyration, radii about x, y, z (Å), moments (Å²), asphericity and shape parameter.
    #[staticmethod]
    fn gyration(
        py: Python<'_>,
        columns: Option<PyReadonlyArray1<'_, i64>>,
        sizes: PyReadonlyArray1<'_, i64>,
        weights: Option<PyReadonlyArray1<'_, f64>>,
    ) -> PyResult<Self> {
        let sizes = indices(sizes.as_slice()?)?;
        let columns = all_columns(columns, sizes.iter().sum())?;
        let weights = weights.as_ref().map(|weights| weights.as_slice());
        let task = gyration::Gyration::new(&columns, &sizes, weights.transpose()?);
        task.map(Self::new).or_raise(py)
    }

    /// Fractions of contacts: pairs of atoms of references, `sizes` of each, and the limit (Å) of
    /// each pair; with `beta` (Å⁻¹), a soft one.
    #[staticmethod]
    fn contacts(
        py: Python<'_>,
        columns: Option<PyReadonlyArray1<'_, i64>>,
        pairs: PyReadonlyArray1<'_, i64>,
        limits: PyReadonlyArray1<'_, f64>,
        sizes: PyReadonlyArray1<'_, i64>,
        periodic: bool,
        beta: Option<f64>,
    ) -> PyResult<Self> {
        let columns = columns_of(columns.as_ref(), &pairs)?;
        let (limits, sizes) = (limits.as_slice()?, indices(sizes.as_slice()?)?);
        let switch = beta.map_or(Switch::Hard, Switch::Soft);
        let task = PairDistances::new(&columns, periodic)
            .and_then(|distances| Contacts::new(distances, limits, &sizes, switch));
        task.map(Self::new).or_raise(py)
    }

    /// Dihedral angles (degrees) of four atoms each, given one after another.
    #[staticmethod]
    fn dihedrals(
        py: Python<'_>,
        columns: Option<PyReadonlyArray1<'_, i64>>,
        quadruples: PyReadonlyArray1<'_, i64>,
    ) -> PyResult<Self> {
        let columns = columns_of(columns.as_ref(), &quadruples)?;
        Dihedrals::new(&columns).map(Self::new).or_raise(py)
    }

    /// Helices (bit 1) and strands (bit 2) of residues.
    #[staticmethod]
    fn dssp(
        py: Python<'_>,
        columns: Option<PyReadonlyArray1<'_, i64>>,
        donors: PyReadonlyArray1<'_, bool>,
        has_hydrogens: bool,
    ) -> PyResult<Self> {
        let donors = donors.as_slice()?;
        let n_kinds = if has_hydrogens { 5 } else { 4 };
        let columns = all_columns(columns, n_kinds * donors.len())?;
        let task = dssp::Dssp::new(&columns, donors, has_hydrogens);
        task.map(Self::new).or_raise(py)
    }

    /// Numbers of the letters of residues, - H B E G I T S, and P if it is to look for `polyproline`.
    #[staticmethod]
    fn dssp_letters(
        py: Python<'_>,
        columns: Option<PyReadonlyArray1<'_, i64>>,
        donors: PyReadonlyArray1<'_, bool>,
        polyproline: bool,
    ) -> PyResult<Self> {
        let donors = donors.as_slice()?;
        let columns = all_columns(columns, 4 * donors.len())?;
        let task = Letters::new(&columns, donors, polyproline);
        task.map(Self::new).or_raise(py)
    }

    /// Densities of mass and charge in `n_bins` bins along x, y, z; then the end of the last bin
    /// (Å) and the volume of a bin along each axis (Å³).
    ///
    /// Mass and charge of each atom; with compounds (of each atom, the index of its compound and
    /// its mass), of each compound.
    #[staticmethod]
    fn density_profiles(
        py: Python<'_>,
        columns: Option<PyReadonlyArray1<'_, i64>>,
        weights: PyReadonlyArray2<'_, f64>,
        compounds: Option<CompoundArrays<'_>>,
        n_bins: usize,
    ) -> PyResult<Self> {
        let (weights, rest) = weights.as_slice()?.as_chunks();
        if !rest.is_empty() {
            return Err(PyValueError::new_err("expected a mass and a charge each"));
        }
        let (n_atoms, compounds) = match compounds {
            None => (weights.len(), None),
            Some((compounds, masses)) => {
                let pairs = indices(compounds.as_slice()?)?.into_iter();
                let pairs: Vec<_> = pairs.zip(masses.as_slice()?.iter().copied()).collect();
                (pairs.len(), Some(pairs))
            }
        };
        let columns = all_columns(columns, n_atoms)?;
        let task = Profiles::new(&columns, weights, compounds, n_bins);
        task.map(Self::new).or_raise(py)
    }

    /// The dipole moment of positions (units of charge × Å), or the current of velocities (× Å/ps);
    /// and the volume of the cell (Å³), where something `needs_cell`. Both names are for messages.
    #[staticmethod]
    fn dipole(
        py: Python<'_>,
        columns: Option<PyReadonlyArray1<'_, i64>>,
        charges: PyReadonlyArray1<'_, f64>,
        summed: &str,
        needs_cell: Option<&str>,
    ) -> PyResult<Self> {
        let charges = charges.as_slice()?;
        let columns = all_columns(columns, charges.len())?;
        let task = Dipole::new(&columns, charges, summed, needs_cell);
        task.map(Self::new).or_raise(py)
    }

    /// Numbers of the connected components that pairs of atoms within `cutoff` (Å) make.
    #[staticmethod]
    fn components(
        py: Python<'_>,
        columns: Option<PyReadonlyArray1<'_, i64>>,
        n_atoms: usize,
        cutoff: f64,
        periodic: bool,
    ) -> PyResult<Self> {
        let columns = all_columns(columns, n_atoms)?.into_iter();
        let columns: Result<Vec<u32>, _> = columns.map(u32::try_from).collect();
        let task = Components::new(columns?, cutoff, periodic);
        task.map(Self::new).or_raise(py)
    }

    /// Order parameters of vectors from the first half of the atoms to the second, along an axis:
    /// means over such numbers of vectors.
    #[staticmethod]
    fn order(
        py: Python<'_>,
        columns: Option<PyReadonlyArray1<'_, i64>>,
        sizes: PyReadonlyArray1<'_, i64>,
        axis: [f64; 3],
        periodic: bool,
    ) -> PyResult<Self> {
        let sizes = indices(sizes.as_slice()?)?;
        let n_vectors: usize = sizes.iter().sum();
        let columns = all_columns(columns, n_vectors.saturating_mul(2))?;
        let (from, to) = columns.split_at(n_vectors);
        let task = Order::new([from, to], &sizes, axis, periodic);
        task.map(Self::new).or_raise(py)
    }

    /// Displacements (Å) from mean positions, along directions: rows, of all coordinates. With
    /// `reference`, each frame is superposed on it first.
    #[staticmethod]
    #[pyo3(signature = (columns, mean, directions, reference=None))]
    fn projection(
        py: Python<'_>,
        columns: Option<PyReadonlyArray1<'_, i64>>,
        mean: PyReadonlyArray2<'_, f64>,
        directions: PyReadonlyArray2<'_, f64>,
        reference: Option<PyReadonlyArray2<'_, f64>>,
    ) -> PyResult<Self> {
        let columns = all_columns(columns, mean.shape()[0])?;
        let reference = reference.as_ref().map(|x| x.as_slice()).transpose()?;
        let fit = reference.map(|reference| superposed::Fit {
            columns: &columns,
            reference,
            weights: None,
        });
        let atoms = superposed::Superposed::new(&columns, fit).or_raise(py)?;
        let (mean, directions) = (mean.as_slice()?, directions.as_slice()?);
        let task = projection::Projection::new(atoms, mean, directions);
        task.map(Self::new).or_raise(py)
    }

    /// Distances (Å) of two atoms each, given one after another.
    #[staticmethod]
    fn pair_distances(
        py: Python<'_>,
        columns: Option<PyReadonlyArray1<'_, i64>>,
        pairs: PyReadonlyArray1<'_, i64>,
        periodic: bool,
    ) -> PyResult<Self> {
        let columns = columns_of(columns.as_ref(), &pairs)?;
        let task = PairDistances::new(&columns, periodic);
        task.map(Self::new).or_raise(py)
    }

    /// RMSDs (Å) of groups, which follow each other; the others follow the motion of the first.
    #[staticmethod]
    fn rmsd(
        py: Python<'_>,
        columns: Option<PyReadonlyArray1<'_, i64>>,
        groups: Vec<GroupArrays<'_>>,
        superposition: bool,
    ) -> PyResult<Self> {
        let mut references = Vec::with_capacity(groups.len());
        for (reference, _) in &groups {
            references.push(reference.as_slice()?);
        }
        let n_columns = references.iter().map(|reference| reference.len() / 3).sum();
        let columns = all_columns(columns, n_columns)?;
        let mut rest = &columns[..];
        let mut slices = Vec::with_capacity(groups.len());
        for (reference, (_, weights)) in references.into_iter().zip(&groups) {
            let (columns, behind) = rest.split_at(reference.len() / 3);
            rest = behind;
            slices.push(Group {
                columns,
                reference,
                weights: weights
                    .as_ref()
                    .map(|weights| weights.as_slice())
                    .transpose()?,
            });
        }
        let task = rmsd::Rmsd::new(&slices, superposition);
        task.map(Self::new).or_raise(py)
    }

    /// Solvent-accessible areas (Å²), summed up in `n_parts`.
    #[staticmethod]
    fn sasa(
        py: Python<'_>,
        columns: Option<PyReadonlyArray1<'_, i64>>,
        radii: PyReadonlyArray1<'_, f64>,
        probe: f64,
        n_points: usize,
        output: PyReadonlyArray2<'_, u32>,
        n_parts: usize,
    ) -> PyResult<Self> {
        let radii = radii.as_slice()?;
        let columns = all_columns(columns, radii.len())?;
        let (output, _) = output.as_slice()?.as_chunks();
        let task = sasa::Sasa::new(&columns, radii, probe, n_points, output, n_parts);
        task.map(Self::new).or_raise(py)
    }

    /// Numbers of a row.
    #[getter]
    fn n_columns(&self) -> usize {
        self.0.n_columns()
    }

    /// Fill a row for each frame; the first that cannot be computed, and why.
    fn compute(
        &self,
        py: Python<'_>,
        positions: PyReadonlyArray3<'_, f32>,
        cells: PyReadonlyArray2<'_, f64>,
        mut out: PyReadwriteArray2<'_, f64>,
    ) -> PyResult<Option<Refused>> {
        let n_atoms = positions.shape()[1];
        let (positions, cells) = (positions.as_slice()?, cells.as_slice()?);
        let out = out.as_slice_mut()?;
        py.detach(|| rows::compute_in_cells(&*self.0, positions, n_atoms, cells, out))
            .or_raise(py)
    }
}

/// Allow kernels instruction sets beyond the base build's, as by default, or not; whether they use
/// them. Results are the same: this is for measurements.
#[pyfunction]
pub(super) fn allow_wide(allowed: bool) -> bool {
    let (base, all) = (Instructions::Base, Instructions::Avx512);
    instructions::allow(if allowed { all } else { base });
    instructions::used() > base
}

/// The columns of an analysis's atoms, of which there must be `n_atoms`.
fn all_columns(columns: Option<PyReadonlyArray1<'_, i64>>, n_atoms: usize) -> PyResult<Vec<usize>> {
    let Some(columns) = columns else {
        return Ok((0..n_atoms).collect());
    };
    let columns = indices(columns.as_slice()?)?;
    if columns.len() != n_atoms {
        return Err(PyValueError::new_err(format!(
            "expected {n_atoms} columns, found {}",
            columns.len()
        )));
    }
    Ok(columns)
}

/// Columns of some of an analysis's atoms, given by their indices among these.
fn columns_of(
    columns: Option<&PyReadonlyArray1<'_, i64>>,
    atoms: &PyReadonlyArray1<'_, i64>,
) -> PyResult<Vec<usize>> {
    let atoms = indices(atoms.as_slice()?)?;
    let Some(columns) = columns else {
        return Ok(atoms);
    };
    let columns = indices(columns.as_slice()?)?;
    let column_of = |atom: usize| {
        let column = columns.get(atom).copied();
        column.ok_or_else(|| PyValueError::new_err(format!("there is no atom {atom}")))
    };
    atoms.into_iter().map(column_of).collect()
}
