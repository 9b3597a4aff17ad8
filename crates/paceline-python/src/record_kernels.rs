//! Kernels that give any number of records for each frame, on NumPy arrays.

use numpy::{
    IntoPyArray, PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2,
    PyReadonlyArray3, PyReadwriteArray2, PyUntypedArrayMethods,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::{OrRaise, indices};
use paceline_kernels::hbonds::{Criterion, Donors, HydrogenBonds as Task, Parts};
use paceline_kernels::near_pairs::{Pair, PairList};
use paceline_kernels::placement::{Basis, PlacedFrames};
use paceline_kernels::rows::Frames;
use paceline_kernels::select::{Center, Comparison, Group, Node, Selected};
use paceline_kernels::transform::Refused;

/// Numbers of records of each frame; all records, rows of numbers; the first row that cannot be
/// computed, and why.
type Found<'py> = (
    Bound<'py, PyArray1<i64>>,
    Bound<'py, PyArray2<f64>>,
    Option<Refused>,
);

/// Donors, hydrogens, and the distance (Å) within which they are pairs, if they are not given so.
type DonorArrays<'py> = (
    PyReadonlyArray1<'py, i64>,
    PyReadonlyArray1<'py, i64>,
    Option<f64>,
);

/// A number of each donor and of each acceptor, and between which of them bonds are.
type PartArrays<'py> = (
    PyReadonlyArray1<'py, i64>,
    PyReadonlyArray1<'py, i64>,
    PyReadonlyArray2<'py, bool>,
);

/// Numbers of a record of a hydrogen bond.
const BOND: usize = 6;

/// Finds hydrogen bonds in the frames of a block.
#[pyclass(frozen, module = "paceline._core")]
pub(super) struct HydrogenBonds(Task);

#[pymethods]
impl HydrogenBonds {
    /// Donors and hydrogens are pairs, or within a distance (Å) of each other in each frame.
    ///
    /// With `parts`, a number of each donor, one of each acceptor, and a table of those between which
    /// bonds are. `criterion` is its name and two numbers.
    #[new]
    #[pyo3(signature = (columns, donors, acceptors, parts, criterion))]
    fn new(
        py: Python<'_>,
        columns: Option<PyReadonlyArray1<'_, i64>>,
        donors: DonorArrays<'_>,
        acceptors: PyReadonlyArray1<'_, i64>,
        parts: Option<PartArrays<'_>>,
        criterion: (String, f64, f64),
    ) -> PyResult<Self> {
        let (donors, hydrogens, within) = donors;
        let list = |atoms| columns_of(columns.as_ref(), atoms);
        let (name, distance, other) = criterion;
        let criterion = match &name[..] {
            "mdanalysis" => Criterion::DonorHydrogenAcceptor {
                distance,
                angle: other,
            },
            "baker_hubbard" => Criterion::HydrogenAcceptor {
                distance,
                angle: other,
            },
            "gromacs" => Criterion::AtDonor {
                distance,
                angle: other,
            },
            "wernet_nilsson" => Criterion::Cone {
                distance,
                slope: other,
            },
            _ => return Err(PyValueError::new_err(format!("{name} is no criterion"))),
        };
        let parts = match &parts {
            None => None,
            Some((of_donors, of_acceptors, allowed)) => Some(Parts {
                donors: numbers(of_donors)?,
                acceptors: numbers(of_acceptors)?,
                allowed: allowed.as_slice()?.to_vec(),
                n_acceptors: allowed.shape()[1],
            }),
        };
        let donors = Donors {
            donors: list(&donors)?,
            hydrogens: list(&hydrogens)?,
            within,
        };
        let task = Task::new(donors, list(&acceptors)?, parts, criterion);
        Ok(HydrogenBonds(task.or_raise(py)?))
    }

    /// Records of the bonds: frame, donor, hydrogen and acceptor, distance (Å) and angle (degrees).
    ///
    /// Of each row `frames` has the number, and of each column `atoms` the index.
    fn find<'py>(
        &self,
        py: Python<'py>,
        positions: PyReadonlyArray3<'py, f32>,
        cells: PyReadonlyArray2<'py, f64>,
        frames: PyReadonlyArray1<'py, i64>,
        atoms: PyReadonlyArray1<'py, i64>,
    ) -> PyResult<Found<'py>> {
        let (n_frames, n_atoms) = (positions.shape()[0], positions.shape()[1]);
        let (positions, cells) = (positions.as_slice()?, cells.as_slice()?);
        let (numbers, atoms) = (frames.as_slice()?, atoms.as_slice()?);
        if (numbers.len(), atoms.len()) != (n_frames, n_atoms) {
            let expected = "expected a number for each frame, and an index for each atom";
            return Err(PyValueError::new_err(expected));
        }
        let found = py.detach(|| {
            let placed = PlacedFrames::new(positions, n_atoms, cells, Basis::Compact)?;
            let frames = Frames::placed(&placed, positions, n_atoms)?;
            let (mut counts, mut records) = (Vec::new(), Vec::new());
            let refused = self.0.find(&frames, &mut counts, |row, bonds| {
                if row == 0 {
                    // About as many in each frame; what is not written to takes no memory.
                    records.reserve(BOND * (bonds.len() + bonds.len() / 8) * numbers.len());
                }
                for &(places, distance, angle) in bonds {
                    let [d, h, a] = places.map(|place| atoms[place as usize] as f64);
                    records.extend([numbers[row] as f64, d, h, a, distance, angle]);
                }
            })?;
            Ok((counts, records, refused))
        });
        as_arrays(py, found.or_raise(py)?, BOND)
    }
}

/// A number of each atom of two groups.
type PairOfArrays<'py> = (PyReadonlyArray1<'py, i64>, PyReadonlyArray1<'py, i64>);

/// Numbers of records of each frame; all records, 16 bytes each; the first row that cannot be
/// computed, and why.
type FoundPairs<'py> = (
    Bound<'py, PyArray1<i64>>,
    Bound<'py, PyArray1<u64>>,
    Option<Refused>,
);

/// Finds pairs of atoms that are near each other in the frames of a block.
#[pyclass(frozen, module = "paceline._core")]
pub(super) struct NearPairs {
    list: PairList,
    is_one_group: bool,
    n_first: usize,
    /// Of the atoms of both groups.
    indices: [Vec<u32>; 2],
    labels: Option<[Vec<u32>; 2]>,
}

#[pymethods]
impl NearPairs {
    /// Of two groups, or each pair of one once, within `cutoff` (Å).
    ///
    /// Atoms of the same index make no pair, nor those of the same label. `indices` and `labels` are
    /// those of both groups, also where these are the same.
    #[new]
    #[pyo3(signature = (columns, first, second, cutoff, periodic, indices, labels))]
    #[expect(clippy::too_many_arguments, reason = "named in Python")]
    fn new(
        py: Python<'_>,
        columns: Option<PyReadonlyArray1<'_, i64>>,
        first: PyReadonlyArray1<'_, i64>,
        second: Option<PyReadonlyArray1<'_, i64>>,
        cutoff: f64,
        periodic: bool,
        indices: PairOfArrays<'_>,
        labels: Option<PairOfArrays<'_>>,
    ) -> PyResult<Self> {
        let list = |atoms| columns_of(columns.as_ref(), atoms);
        let of_first = list(&first)?;
        let of_second = second.as_ref().map(list).transpose()?;
        let n_first = of_first.len();
        let sizes = [n_first, of_second.as_ref().map_or(n_first, Vec::len)];
        let both = |(one, other): PairOfArrays<'_>| -> PyResult<[Vec<u32>; 2]> {
            let both = [numbers(&one)?, numbers(&other)?];
            match both.each_ref().map(Vec::len) == sizes {
                true => Ok(both),
                false => Err(PyValueError::new_err("expected a number for each atom")),
            }
        };
        let (is_one_group, indices) = (of_second.is_none(), both(indices)?);
        let task = PairList::new(of_first, of_second, cutoff, periodic);
        Ok(NearPairs {
            list: task.or_raise(py)?,
            is_one_group,
            n_first,
            indices,
            labels: labels.map(both).transpose()?,
        })
    }

    /// Records of the pairs: indices of both atoms, int32, and distances (Å), float64.
    fn find<'py>(
        &self,
        py: Python<'py>,
        positions: PyReadonlyArray3<'py, f32>,
        cells: PyReadonlyArray2<'py, f64>,
    ) -> PyResult<FoundPairs<'py>> {
        let n_atoms = positions.shape()[1];
        let (positions, cells) = (positions.as_slice()?, cells.as_slice()?);
        let found = py.detach(|| {
            let (mut counts, mut records) = (Vec::new(), Vec::new());
            let placed = PlacedFrames::new(positions, n_atoms, cells, Basis::Compact)?;
            let frames = Frames::placed(&placed, positions, n_atoms)?;
            let refused = self.list.find(&frames, |_, pairs| {
                let before = records.len();
                for &Pair { i, j, distance } in pairs {
                    if self.makes_pair(i, j) {
                        let [first, second] = self.ends(i, j).map(u32::to_ne_bytes);
                        let mut atoms = [0; 8];
                        atoms[..4].copy_from_slice(&first);
                        atoms[4..].copy_from_slice(&second);
                        records.extend([u64::from_ne_bytes(atoms), distance.to_bits()]);
                    }
                }
                counts.push((records.len() - before) as i64 / 2);
            })?;
            Ok((counts, records, refused))
        });
        let (counts, records, refused) = found.or_raise(py)?;
        Ok((counts.into_pyarray(py), records.into_pyarray(py), refused))
    }

    /// Count the neighbours of each atom of the first group; of one group, pairs count for both.
    fn count(
        &self,
        py: Python<'_>,
        positions: PyReadonlyArray3<'_, f32>,
        cells: PyReadonlyArray2<'_, f64>,
        mut counts: PyReadwriteArray2<'_, i32>,
    ) -> PyResult<Option<Refused>> {
        let (n_frames, n_atoms) = (positions.shape()[0], positions.shape()[1]);
        let (positions, cells) = (positions.as_slice()?, cells.as_slice()?);
        if counts.shape() != [n_frames, self.n_first] {
            return Err(PyValueError::new_err(
                "expected counts for each atom and frame",
            ));
        }
        let counts = counts.as_slice_mut()?;
        py.detach(|| {
            let placed = PlacedFrames::new(positions, n_atoms, cells, Basis::Compact)?;
            let frames = Frames::placed(&placed, positions, n_atoms)?;
            self.list.find(&frames, |row, pairs| {
                let counts = &mut counts[row * self.n_first..][..self.n_first];
                for &Pair { i, j, .. } in pairs {
                    if self.makes_pair(i, j) {
                        counts[i as usize] += 1;
                        if self.is_one_group {
                            counts[j as usize] += 1;
                        }
                    }
                }
            })
        })
        .or_raise(py)
    }
}

impl NearPairs {
    fn ends(&self, i: u32, j: u32) -> [u32; 2] {
        [self.indices[0][i as usize], self.indices[1][j as usize]]
    }

    /// True for two atoms that are not the same, and have no label in common.
    fn makes_pair(&self, i: u32, j: u32) -> bool {
        let [first, second] = self.ends(i, j);
        let alike = |[one, other]: &[Vec<u32>; 2]| one[i as usize] == other[j as usize];
        first != second && !self.labels.as_ref().is_some_and(alike)
    }
}

/// Kind of a selection, the numbers of those that it needs, its own numbers, whether nearest images
/// count, and atoms or labels.
type NodeArguments<'py> = (
    String,
    Vec<usize>,
    Vec<f64>,
    bool,
    Option<PyReadonlyArray1<'py, i64>>,
);

/// Number of the base group's selection, how many atoms it has if these stay, and the selections
/// applied to it.
type GroupArguments = (usize, Option<usize>, Vec<usize>);

/// Numbers of atoms of each frame; all atoms; the first row that cannot be searched, and why.
type FoundAtoms<'py> = (
    Bound<'py, PyArray1<i64>>,
    Bound<'py, PyArray1<i64>>,
    Option<Refused>,
);

/// Finds the atoms of an updating group in the frames of a block.
#[pyclass(frozen, module = "paceline._core")]
pub(super) struct SelectedAtoms(Selected);

#[pymethods]
impl SelectedAtoms {
    /// `n_atoms` of `n_universe` atoms are read; `complete` where groups have no others.
    #[new]
    #[pyo3(signature = (columns, nodes, group, n_atoms, n_universe, complete))]
    fn new(
        py: Python<'_>,
        columns: Option<PyReadonlyArray1<'_, i64>>,
        nodes: Vec<NodeArguments<'_>>,
        group: GroupArguments,
        n_atoms: usize,
        n_universe: usize,
        complete: bool,
    ) -> PyResult<Self> {
        let nodes: PyResult<Vec<Node>> = nodes.iter().map(node_of).collect();
        let columns = match &columns {
            None => None,
            Some(columns) => Some(numbers(columns)?),
        };
        let sizes = [n_atoms, n_universe];
        let task = Selected::new(nodes?, group_of(&group), columns, sizes, complete);
        Ok(SelectedAtoms(task.or_raise(py)?))
    }

    /// Places of the atoms among those that are read.
    fn find<'py>(
        &self,
        py: Python<'py>,
        positions: PyReadonlyArray3<'py, f32>,
        cells: PyReadonlyArray2<'py, f64>,
    ) -> PyResult<FoundAtoms<'py>> {
        let n_atoms = positions.shape()[1];
        let (positions, cells) = (positions.as_slice()?, cells.as_slice()?);
        let found = py.detach(|| {
            let (mut counts, mut atoms) = (Vec::new(), Vec::new());
            let placed = PlacedFrames::new(positions, n_atoms, cells, Basis::Compact)?;
            let frames = Frames::placed(&placed, positions, n_atoms)?;
            let refused = self.0.find(&frames, &mut counts, &mut atoms)?;
            let atoms: Vec<i64> = atoms.into_iter().map(i64::from).collect();
            Ok((counts, atoms, refused))
        });
        let (counts, atoms, refused) = found.or_raise(py)?;
        Ok((counts.into_pyarray(py), atoms.into_pyarray(py), refused))
    }
}

fn group_of((base, n_base, selections): &GroupArguments) -> Group {
    Group {
        base: *base,
        n_base: *n_base,
        selections: selections.clone(),
    }
}

fn node_of((kind, inputs, values, periodic, list): &NodeArguments<'_>) -> PyResult<Node> {
    let wrong = || PyValueError::new_err(format!("{kind} lacks arguments"));
    let list = list.as_ref().map(numbers).transpose()?;
    let of = || inputs.first().copied().ok_or_else(wrong);
    let pair = || match inputs[..] {
        [first, second] => Ok([first, second]),
        _ => Err(wrong()),
    };
    let value = |k: usize| values.get(k).copied().ok_or_else(wrong);
    let periodic = *periodic;
    Ok(match &kind[..] {
        "all" => Node::All,
        "fixed" => Node::Fixed(list.ok_or_else(wrong)?),
        "and" => Node::And(pair()?),
        "or" => Node::Or(pair()?),
        "not" => Node::Not(of()?),
        "global" => Node::Global(of()?),
        // Of a base group whose atoms change there is no number.
        "group" => Node::Group(Group {
            base: of()?,
            n_base: values.first().map(|&n| n as usize),
            selections: inputs[1..].to_vec(),
        }),
        "near" => Node::Near {
            of: of()?,
            outer: value(0)?,
            inner: values.get(1).copied(),
            periodic,
        },
        "sphere" => Node::Sphere {
            center: Center::Of(of()?),
            outer: value(0)?,
            inner: values.get(1).copied(),
            periodic,
        },
        "point" => Node::Sphere {
            center: Center::At([value(1)? as f32, value(2)? as f32, value(3)? as f32]),
            outer: value(0)?,
            inner: None,
            periodic,
        },
        "cylinder" => Node::Cylinder {
            of: of()?,
            radius: value(0)?,
            outer: value(1)?,
            z: [value(2)?, value(3)?],
            inner: values.get(4).copied(),
            periodic,
        },
        "same" => Node::Same {
            of: of()?,
            labels: list.ok_or_else(wrong)?,
        },
        "same coordinate" => Node::SameCoordinate {
            of: of()?,
            axis: value(0)? as usize,
        },
        _ => Node::Coordinate {
            comparison: match &kind[..] {
                ">" => Comparison::Greater,
                ">=" => Comparison::GreaterOrEqual,
                "<" => Comparison::Less,
                "<=" => Comparison::LessOrEqual,
                "!=" => Comparison::NotEqual,
                "==" => Comparison::Close(value(3)? as f32),
                _ => return Err(PyValueError::new_err(format!("{kind} is no selection"))),
            },
            axis: value(0)? as usize,
            absolute: value(1)? != 0.0,
            value: value(2)? as f32,
        },
    })
}

fn as_arrays<'py>(
    py: Python<'py>,
    (counts, rows, refused): (Vec<i64>, Vec<f64>, Option<Refused>),
    n_columns: usize,
) -> PyResult<Found<'py>> {
    let n_rows = rows.len() / n_columns;
    let rows = rows.into_pyarray(py).reshape([n_rows, n_columns])?;
    Ok((counts.into_pyarray(py), rows, refused))
}

/// Columns of some of an analysis's atoms, given by their indices among these.
fn columns_of(
    columns: Option<&PyReadonlyArray1<'_, i64>>,
    atoms: &PyReadonlyArray1<'_, i64>,
) -> PyResult<Vec<u32>> {
    let atoms = indices(atoms.as_slice()?)?;
    let columns = columns.map(|columns| columns.as_slice()).transpose()?;
    let columns = columns.map(indices).transpose()?;
    let column_of = |atom: usize| {
        let column = columns
            .as_ref()
            .map_or(Some(atom), |all| all.get(atom).copied());
        column
            .and_then(|column| u32::try_from(column).ok())
            .ok_or_else(|| PyValueError::new_err(format!("there is no atom {atom}")))
    };
    atoms.into_iter().map(column_of).collect()
}

fn numbers(values: &PyReadonlyArray1<'_, i64>) -> PyResult<Vec<u32>> {
    let number = |&value: &i64| {
        u32::try_from(value).map_err(|_| PyValueError::new_err(format!("{value} is no number")))
    };
    values.as_slice()?.iter().map(number).collect()
}
