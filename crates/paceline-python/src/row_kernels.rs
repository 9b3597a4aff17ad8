//! Kernels that give a row of numbers for each frame, on NumPy arrays.

use pyo3::prelude::*;

use super::arrays::{Array1, Array2, Array3, ArrayMut2, Columns, Indices};
use super::errors::{Failure, Result};
use super::kernels::kernels;
use paceline_kernels::contacts::{Contacts, PairDistances, Switch};
use paceline_kernels::density::Profiles;
use paceline_kernels::dihedrals::Dihedrals;
use paceline_kernels::dipole::Dipole;
use paceline_kernels::distances::{
    Angles, AtomicDistances, CenterDistance, DistanceMatrix, MinimumDistance,
};
use paceline_kernels::dssp::letters::Letters;
use paceline_kernels::instructions::{self, Instructions};
use paceline_kernels::near_pairs::Components;
use paceline_kernels::order::Order;
use paceline_kernels::rmsd::{self, Group};
use paceline_kernels::transform::Refused;
use paceline_kernels::{dssp, gyration, projection, row_kernel, sasa};

/// Index and mass of each atom's compound.
type Compounds<'py> = (Indices, Array1<'py, f64>);

/// Reference positions (Å) of a group, and its weights.
type WeightedGroup<'py> = (Array2<'py, f64>, Option<Array1<'py, f64>>);

kernels! {
    /// Computes a row of numbers for each frame of a block.
    ///
    /// Constructors take `columns`, those of the analysis's atoms in the block (None: all in order);
    /// other indices count these atoms.
    pub(super) struct RowKernel(Box<dyn row_kernel::RowKernel>);

    static {
        /// Angles (degrees) at the second of three groups of `n_angles` atoms, which follow each other.
        angles(columns: Columns, n_angles: usize, periodic: bool) {
            let columns = columns.all(n_angles.saturating_mul(3))?;
            let (first, rest) = columns.split_at(n_angles);
            let (second, third) = rest.split_at(n_angles);
            Angles::new(first, second, third, periodic)
        }

        /// Distances (Å) between two groups of `n_pairs` atoms, which follow each other, pair by pair.
        atomic_distances(columns: Columns, n_pairs: usize, periodic: bool) {
            let columns = columns.all(n_pairs.saturating_mul(2))?;
            let (first, second) = columns.split_at(n_pairs);
            AtomicDistances::new(first, second, periodic)
        }

        /// Distance (Å) between the centers of two groups of such `sizes`, which follow each other.
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

        /// Distances (Å) between all atoms of two groups, which follow each other, or of one group.
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

        /// Least distance (Å) between two groups, which follow each other, and the indices of its
        /// atoms.
        minimum_distance(columns: Columns, sizes: (usize, usize), periodic: bool) {
            let columns = columns.all(sizes.0.saturating_add(sizes.1))?;
            let (first, second) = columns.split_at(sizes.0);
            MinimumDistance::new(first, second, periodic)
        }

        /// Radii of gyration and shapes of compounds, whose atoms follow each other, `sizes` of each.
        ///
        /// Of each: radius of gyration, radii about x, y, z (Å), moments (Å²), asphericity and shape
        /// parameter.
        gyration(columns: Columns, sizes: Indices, weights: Option<Array1<'_, f64>>) {
            let columns = columns.all(sizes.iter().sum())?;
            gyration::Gyration::new(&columns, &sizes, weights.as_deref())
        }

        /// Fractions of contacts: pairs of atoms of references, `sizes` of each, and the limit (Å) of
        /// each pair; with `beta` (Å⁻¹), a soft one.
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

        /// Dihedral angles (degrees) of four atoms each, given one after another.
        dihedrals(columns: Columns, quadruples: Indices) {
            Dihedrals::new(&columns.of::<usize>(&quadruples)?)
        }

        /// Helices (bit 1) and strands (bit 2) of residues.
        ///
        /// Atoms are the N of each residue, then each CA, C and O, and each H if it `has_hydrogens`.
        dssp(columns: Columns, donors: Array1<'_, bool>, has_hydrogens: bool) {
            let n_kinds = if has_hydrogens { 5 } else { 4 };
            let columns = columns.all(n_kinds * donors.len())?;
            dssp::Dssp::new(&columns, &donors, has_hydrogens)
        }

        /// Numbers of the letters of residues, - H B E G I T S, and P if it is to look for
        /// `polyproline`.
        ///
        /// Atoms are the N of each residue, then each CA, C and O.
        dssp_letters(columns: Columns, donors: Array1<'_, bool>, polyproline: bool) {
            let columns = columns.all(4 * donors.len())?;
            Letters::new(&columns, &donors, polyproline)
        }

        /// Densities of mass and charge in `n_bins` bins along x, y, z; then the end of the last bin
        /// (Å) and the volume of a bin along each axis (Å³).
        ///
        /// Mass and charge of each atom; with compounds (of each atom, the index of its compound and
        /// its mass), of each compound.
        density_profiles(
            columns: Columns,
            weights: Array2<'_, f64>,
            compounds: Option<Compounds<'_>>,
            n_bins: usize,
        ) {
            let (weights, rest) = weights.as_chunks();
            if !rest.is_empty() {
                return Err(Failure::argument("expected a mass and a charge each"));
            }
            let compounds = compounds.map(|(compounds, masses)| {
                let pairs = compounds.iter().copied().zip(masses.iter().copied());
                pairs.collect::<Vec<_>>()
            });
            let n_atoms = compounds.as_ref().map_or(weights.len(), Vec::len);
            Profiles::new(&columns.all(n_atoms)?, weights, compounds, n_bins)
        }

        /// Dipole moment of positions (units of charge × Å), or current of velocities (× Å/ps); and
        /// the volume of the cell (Å³), where something `needs_cell`. Both names are for messages.
        dipole(
            columns: Columns,
            charges: Array1<'_, f64>,
            summed: &str,
            needs_cell: Option<&str>,
        ) {
            let columns = columns.all(charges.len())?;
            Dipole::new(&columns, &charges, summed, needs_cell)
        }

        /// Numbers of the connected components that pairs of atoms within `cutoff` (Å) make.
        components(columns: Columns, n_atoms: usize, cutoff: f64, periodic: bool) {
            let columns = columns.all(n_atoms)?.into_iter().map(u32::try_from);
            let columns = columns.collect::<std::result::Result<_, _>>().map_err(PyErr::from)?;
            Components::new(columns, cutoff, periodic)
        }

        /// Order parameters of vectors from the first half of the atoms to the second, along an axis:
        /// means over such numbers of vectors.
        order(columns: Columns, sizes: Indices, axis: [f64; 3], periodic: bool) {
            let n_vectors: usize = sizes.iter().sum();
            let columns = columns.all(n_vectors.saturating_mul(2))?;
            let (from, to) = columns.split_at(n_vectors);
            Order::new([from, to], &sizes, axis, periodic)
        }

        /// Displacements (Å) from mean positions, along directions: rows, of all coordinates. With
        /// `reference`, each frame is superposed on it first.
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

        /// Distances (Å) of two atoms each, given one after another.
        pair_distances(columns: Columns, pairs: Indices, periodic: bool) {
            PairDistances::new(&columns.of::<usize>(&pairs)?, periodic)
        }

        /// RMSDs (Å) of groups, which follow each other; the others follow the motion of the first.
        ///
        /// Of each group: reference positions (Å), and weights or None.
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

        /// Solvent-accessible areas (Å²), summed up in `n_parts`.
        ///
        /// Atoms have `radii` (Å), without the probe's. `output`, shape (n, 2), are pairs of an atom
        /// and of the part that its area is added to.
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
        /// Numbers of a row.
        #[getter]
        fn n_columns(&self) -> usize {
            self.0.n_columns()
        }

        /// Fill a row for each frame; the first that cannot be computed, and why.
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

/// Allow kernels instruction sets beyond the base build's, as by default, or not; whether they use
/// them. Results are the same: this is for measurements.
#[pyfunction]
pub(super) fn allow_wide(allowed: bool) -> bool {
    let (base, all) = (Instructions::Base, Instructions::Avx512);
    instructions::allow(if allowed { all } else { base });
    instructions::used() > base
}
