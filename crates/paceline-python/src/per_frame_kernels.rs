//! Kernels that compute a row of numbers for each frame, on NumPy arrays.

use pyo3::prelude::*;

use super::errors::{Failure, Result};
use super::kernel_macro::kernels;
use super::types::{Array1, Array2, Array3, ArrayMut2, Columns, Indices};
use paceline_kernels::density_profiles_and_grids::Profiles;
use paceline_kernels::dihedrals::Dihedrals;
use paceline_kernels::dipole::Dipole;
use paceline_kernels::distances::{
    Angles, AtomicDistances, CenterDistance, DistanceMatrix, MinimumDistance,
};
use paceline_kernels::dssp::mkdssp::Letters;
use paceline_kernels::instructions::{self, Instructions};
use paceline_kernels::near_pairs::Components;
use paceline_kernels::order::Order;
use paceline_kernels::pair_distances_and_contacts::{Contacts, PairDistances, Switch};
use paceline_kernels::rmsd::{self, Group};
use paceline_kernels::transform_common::Refused;
use paceline_kernels::{dssp, gyration, projection, row_kernel, sasa, threads_within_frame};

/// Index of each atom's compound, and mass of each atom.
type Compounds<'py> = (Indices, Array1<'py, f64>);

/// Reference positions (Å) of a group, and its weights.
type WeightedGroup<'py> = (Array2<'py, f64>, Option<Array1<'py, f64>>);

kernels! {
    /// Kernel that computes a row of numbers for each frame of a block.
    ///
    /// The argument `columns` of a constructor contains the columns of the analysis's atoms in the
    /// block; None means all columns in order. Other indices refer to these atoms.
    pub(super) struct RowKernel(Box<dyn row_kernel::RowKernel>);

    static {
        /// Compute angles (degrees), each at an atom of the second of three groups. Each group has
        /// `n_angles` atoms; the groups follow each other in `columns`.
        angles(columns: Columns, n_angles: usize, periodic: bool) {
            let columns = columns.all(n_angles.saturating_mul(3))?;
            let (first, rest) = columns.split_at(n_angles);
            let (second, third) = rest.split_at(n_angles);
            Angles::new(first, second, third, periodic)
        }

        /// Compute distances (Å) between the atoms of two groups, pair by pair. Each group has
        /// `n_pairs` atoms; the groups follow each other in `columns`.
        atomic_distances(columns: Columns, n_pairs: usize, periodic: bool) {
            let columns = columns.all(n_pairs.saturating_mul(2))?;
            let (first, second) = columns.split_at(n_pairs);
            AtomicDistances::new(first, second, periodic)
        }

        /// Compute the distance (Å) between the centers of two groups with these `sizes`. The
        /// groups follow each other in `columns`.
        center_distance(
            columns: Columns,
            sizes: (usize, usize),
            weights: Option<Array1<'_, f64>>,
            periodic: bool,
        ) {
            let columns = columns.all(sizes.0.saturating_add(sizes.1))?;
            let (first, second) = columns.split_at(sizes.0);
            let weights = weights.as_deref().map(|all| all.split_at(sizes.0.min(all.len())));
            let groups = [
                (first, weights.map(|(weights, _)| weights)),
                (second, weights.map(|(_, weights)| weights)),
            ];
            CenterDistance::new(groups, periodic)
        }

        /// Compute distances (Å) between all atoms of two groups, which follow each other in
        /// `columns`, or between all atoms within one group.
        distance_matrix(
            columns: Columns,
            n_first: usize,
            n_second: Option<usize>,
            periodic: bool,
        ) {
            let columns = columns.all(n_first.saturating_add(n_second.unwrap_or(0)))?;
            let (first, second) = columns.split_at(n_first);
            DistanceMatrix::new(first, n_second.map(|_| second), periodic)
        }

        /// Compute the minimum distance (Å) between two groups, which follow each other in
        /// `columns`, and the indices of the two atoms.
        minimum_distance(columns: Columns, sizes: (usize, usize), periodic: bool) {
            let columns = columns.all(sizes.0.saturating_add(sizes.1))?;
            let (first, second) = columns.split_at(sizes.0);
            MinimumDistance::new(first, second, periodic)
        }

        /// Compute radii of gyration and shapes of compounds. Compounds follow each other in
        /// `columns`, with `sizes` atoms each.
        ///
        /// Values of each compound: radius of gyration, radii about x, y, z (Å), moments (Å²),
        /// asphericity and shape parameter.
        gyration(columns: Columns, sizes: Indices, weights: Option<Array1<'_, f64>>) {
            let columns = columns.all(sizes.iter().sum())?;
            gyration::Gyration::new(&columns, &sizes, weights.as_deref())
        }

        /// Compute the fraction of contacts of each reference structure that are kept in a frame.
        /// `pairs` of atoms are sorted by reference, with `sizes` pairs each, and `limits` contains
        /// one distance (Å) per pair. With `beta` (Å⁻¹), the soft definition of a contact is used.
        contacts(
            columns: Columns,
            pairs: Indices,
            limits: Array1<'_, f64>,
            sizes: Indices,
            periodic: bool,
            beta: Option<f64>,
        ) {
            let distances = PairDistances::new(&columns.of::<usize>(&pairs)?, periodic)?;
            let switch = beta.map_or(Switch::Hard, Switch::Soft);
            Contacts::new(distances, &limits, &sizes, switch)
        }

        /// Compute dihedral angles (degrees), each from four consecutive atoms in `quadruples`.
        dihedrals(columns: Columns, quadruples: Indices) {
            Dihedrals::new(&columns.of::<usize>(&quadruples)?)
        }

        /// For each residue, return 1 for a helix plus 2 for a strand.
        ///
        /// The atoms in `columns` are all N, then all CA, all C and all O, and all H if
        /// `has_hydrogens`.
        dssp(columns: Columns, donors: Array1<'_, bool>, has_hydrogens: bool) {
            let n_kinds = if has_hydrogens { 5 } else { 4 };
            let columns = columns.all(n_kinds * donors.len())?;
            dssp::Dssp::new(&columns, &donors, has_hydrogens)
        }

        /// Find the secondary structure of residues. Each value is the index of a letter in
        /// `-HBEGITS`, or in `-HBEGITSP` if `polyproline` is true.
        ///
        /// Atoms are all N, then all CA, all C and all O.
        dssp_letters(columns: Columns, donors: Array1<'_, bool>, polyproline: bool) {
            let columns = columns.all(4 * donors.len())?;
            Letters::new(&columns, &donors, polyproline)
        }

        /// Compute densities of mass and charge in `n_bins` bins along x, y, z. They are followed
        /// by the end of the last bin (Å), which is the same for all axes, and the volume of a bin
        /// along each axis (Å³).
        ///
        /// `weights` contains the mass and charge of each atom. If there are `compounds` (index of
        /// the compound and mass of each atom), it contains the mass and charge of each compound.
        density_profiles(
            columns: Columns,
            weights: Array2<'_, f64>,
            compounds: Option<Compounds<'_>>,
            n_bins: usize,
        ) {
            let (weights, rest) = weights.as_chunks();
            if !rest.is_empty() {
                return Err(Failure::argument("expected a mass and a charge for each atom or compound"));
            }
            let compounds = compounds.map(|(compounds, masses)| {
                let pairs = compounds.iter().copied().zip(masses.iter().copied());
                pairs.collect::<Vec<_>>()
            });
            let n_atoms = compounds.as_ref().map_or(weights.len(), Vec::len);
            Profiles::new(&columns.all(n_atoms)?, weights, compounds, n_bins)
        }

        /// Compute the dipole moment from positions (units of charge × Å), or the current from
        /// velocities (× Å/ps). With `needs_cell`, also compute the volume of the cell (Å³). Error
        /// messages contain the names in `summed` and `needs_cell`.
        dipole(
            columns: Columns,
            charges: Array1<'_, f64>,
            summed: &str,
            needs_cell: Option<&str>,
        ) {
            let columns = columns.all(charges.len())?;
            Dipole::new(&columns, &charges, summed, needs_cell)
        }

        /// Compute the number, from 0, of the connected component to which each atom belongs. Two
        /// atoms are connected if they are within `cutoff` (Å).
        components(columns: Columns, n_atoms: usize, cutoff: f64, periodic: bool) {
            let columns = columns.all(n_atoms)?.into_iter().map(u32::try_from);
            let columns = columns.collect::<std::result::Result<_, _>>().map_err(PyErr::from)?;
            Components::new(columns, cutoff, periodic)
        }

        /// Compute order parameters along an axis, each as a mean over vectors. Vectors extend from
        /// the first half of the atoms to the second half. `sizes` contains the number of vectors
        /// of each mean.
        order(columns: Columns, sizes: Indices, axis: [f64; 3], periodic: bool) {
            let n_vectors: usize = sizes.iter().sum();
            let columns = columns.all(n_vectors.saturating_mul(2))?;
            let (from, to) = columns.split_at(n_vectors);
            Order::new([from, to], &sizes, axis, periodic)
        }

        /// Compute displacements (Å) from mean positions along directions, one direction per row.
        /// With `reference`, each frame is first superposed on it.
        #[pyo3(signature = (columns, mean, directions, reference=None))]
        projection(
            columns: Columns,
            mean: Array2<'_, f64>,
            directions: Array2<'_, f64>,
            reference: Option<Array2<'_, f64>>,
        ) {
            let columns = columns.all(mean.shape()[0])?;
            let fit = reference.as_deref().map(|reference| projection::Fit {
                columns: &columns,
                reference,
                weights: None,
            });
            let atoms = projection::Superposed::new(&columns, fit)?;
            projection::Projection::new(atoms, &mean, &directions)
        }

        /// Compute distances (Å), each between two consecutive atoms in `pairs`.
        pair_distances(columns: Columns, pairs: Indices, periodic: bool) {
            PairDistances::new(&columns.of::<usize>(&pairs)?, periodic)
        }

        /// Compute RMSDs (Å) of groups that follow each other in `columns`. The first group is
        /// superposed; the other groups move with it.
        ///
        /// Each group consists of reference positions (Å), and weights or None.
        rmsd(columns: Columns, groups: Vec<WeightedGroup<'_>>, superposition: bool) {
            let sizes = groups.iter().map(|(reference, _)| reference.len() / 3);
            let columns = columns.all(sizes.sum())?;
            let mut rest = &columns[..];
            let groups = groups.iter().map(|(reference, weights)| {
                let (columns, behind) = rest.split_at(reference.len() / 3);
                rest = behind;
                Group { columns, reference, weights: weights.as_deref() }
            });
            rmsd::Rmsd::new(&groups.collect::<Vec<_>>(), superposition)
        }

        /// Compute solvent-accessible areas (Å²), summed into `n_parts` values.
        ///
        /// `radii` (Å) are those of the atoms, without the radius of the probe. `output`, shape (n,
        /// 2), contains pairs: the index of an atom, and the index of the value to which its area
        /// is added.
        sasa(
            columns: Columns,
            radii: Array1<'_, f64>,
            probe: f64,
            n_points: usize,
            output: Array2<'_, u32>,
            n_parts: usize,
        ) {
            let columns = columns.all(radii.len())?;
            sasa::Sasa::new(&columns, &radii, probe, n_points, output.as_chunks().0, n_parts)
        }
    }

    methods {
        /// Number of values in a row.
        #[getter]
        fn n_columns(&self) -> usize {
            self.0.n_columns()
        }

        /// Fill a row of `out` for each frame. Return the first row that cannot be computed, with
        /// the reason.
        fn compute(
            &self,
            py: Python<'_>,
            positions: Array3<'_, f32>,
            cells: Array2<'_, f64>,
            mut out: ArrayMut2<'_, f64>,
        ) -> Result<Option<Refused>> {
            let n_atoms = positions.shape()[1];
            let (positions, cells, out) = (&*positions, &*cells, &mut *out);
            Ok(py.detach(|| row_kernel::compute_in_cells(&*self.0, positions, n_atoms, cells, out))?)
        }
    }
}

/// Allow the kernels that this thread calls to use `n` threads per frame, including this thread.
/// Results do not change.
#[pyfunction]
pub(super) fn allow_threads(n: usize) {
    threads_within_frame::allow_threads(n);
}

/// Return the largest number of threads per frame that kernels called by this thread have used
/// since the last call of `used_threads`.
#[pyfunction]
pub(super) fn used_threads() -> usize {
    threads_within_frame::used_threads()
}

/// Allow kernels to use instruction sets beyond those of the base build (default), or forbid it.
/// Return whether kernels use them. This is meant for measurements and does not change results.
#[pyfunction]
pub(super) fn allow_wide(allowed: bool) -> bool {
    let (base, all) = (Instructions::Base, Instructions::Avx512);
    instructions::allow(if allowed { all } else { base });
    instructions::used() > base
}

/// Name of the instruction set that kernels use. It is recorded with results, but does not change
/// them.
#[pyfunction]
pub(super) fn instruction_set() -> &'static str {
    match instructions::used() {
        Instructions::Avx512 => "AVX-512",
        Instructions::Avx2 => "AVX2",
        Instructions::Base if cfg!(target_arch = "x86_64") => "SSE2",
        Instructions::Base if cfg!(target_arch = "aarch64") => "NEON",
        Instructions::Base => "base instructions",
    }
}
