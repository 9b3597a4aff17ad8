//! Kernels that return any number of records for each frame, on NumPy arrays.

use pyo3::prelude::*;

use super::errors::{Failure, Result};
use super::kernel_macro::{in_frames, kernels};
use super::transforms::{check_atoms, pairs};
use super::types::{Array1, Array2, Array3, ArrayMut2, Columns, Indices, NewArray, numbers};
use paceline_formats::error::Error;
use paceline_kernels::detect_broken_molecules;
use paceline_kernels::hbonds::{BondClasses, Criterion, Donors, HydrogenBonds as Task};
use paceline_kernels::near_pairs::{Pair, PairList};
use paceline_kernels::selection_evaluation::{Center, Comparison, Group, Node, Selected};
use paceline_kernels::threads_within_frame::{compute_parts, part_len};
use paceline_kernels::transform_common::Refused;

/// Three results: the number of records of each frame; all records, one after another or in rows;
/// and the first frame that cannot be computed, with the reason.
type Found<T, const N: usize> = (NewArray<i64, 1>, NewArray<T, N>, Option<Refused>);

/// Minimum number of pairs in a part of a frame that one thread computes.
const LEAST_PAIRS: usize = 4096;

/// Number of values in the record of a hydrogen bond.
const BOND: usize = 6;

kernels! {
    /// Kernel that finds hydrogen bonds in the frames of a block.
    ///
    /// Donors and hydrogens form pairs in their order. If `within` (Å) is given, they are instead
    /// paired by distance in each frame. `parts` contains the class of each donor, the class of
    /// each acceptor, and a table of the allowed pairs of classes. `criterion` contains a name and
    /// two numbers.
    pub(super) struct HydrogenBonds(Task);

    new {
        (
            columns: Columns,
            donors: (Indices, Indices, Option<f64>),
            acceptors: Indices,
            parts: Option<(Array1<'_, i64>, Array1<'_, i64>, Array2<'_, bool>)>,
            criterion: (String, f64, f64),
        ) {
            let parts = parts.map(|(of_donors, of_acceptors, allowed)| -> Result<_> {
                Ok(BondClasses {
                    donors: numbers(&of_donors)?,
                    acceptors: numbers(&of_acceptors)?,
                    allowed: allowed.to_vec(),
                    n_acceptors: allowed.shape()[1],
                })
            });
            let (donors, hydrogens, within) = donors;
            let donors = Donors {
                donors: columns.of(&donors)?,
                hydrogens: columns.of(&hydrogens)?,
                within,
            };
            let acceptors = columns.of(&acceptors)?;
            Task::new(donors, acceptors, parts.transpose()?, criterion_of(criterion)?)
        }
    }

    frames {
        /// Return records of the bonds: frame, donor, hydrogen and acceptor, distance (Å) and angle
        /// (degrees).
        ///
        /// `frames` contains the frame number of each row, and `atoms` the atom index of each
        /// column.
        find(
            |task, block, _|, frames: Array1<'_, i64>, atoms: Array1<'_, i64>
        ) -> Found<f64, 2> {
            if (frames.len(), atoms.len()) != (block.n_frames(), block.n_atoms()) {
                let reason = "expected a number for each frame, and an index for each atom";
                return Err(Error::Argument(reason.into()));
            }
            let (mut counts, mut records) = (Vec::new(), Vec::new());
            let refused = task.find(block, &mut counts, |row, bonds| {
                if row == 0 {
                    // Most frames have a similar number of bonds. Reserved memory that is not
                    // written is not allocated by the system.
                    records.reserve(BOND * (bonds.len() + bonds.len() / 8) * frames.len());
                }
                for &(places, distance, angle) in bonds {
                    let [d, h, a] = places.map(|place| atoms[place as usize] as f64);
                    records.extend([frames[row] as f64, d, h, a, distance, angle]);
                }
            })?;
            let shape = [records.len() / BOND, BOND];
            Ok((counts.into(), NewArray::new(records, shape), refused))
        }
    }
}

/// Create a criterion from its name and two numbers.
fn criterion_of((name, distance, other): (String, f64, f64)) -> Result<Criterion> {
    Ok(match &name[..] {
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
        _ => return Err(Failure::argument(format!("unknown criterion {name}"))),
    })
}

/// One number for each atom of two groups.
type NumbersOfPair<'py> = (Array1<'py, i64>, Array1<'py, i64>);

/// Pairs of atoms in two groups, or in one, excluding pairs with equal indices or labels.
pub(super) struct PairFilter {
    list: PairList,
    is_one_group: bool,
    n_first: usize,
    /// Indices of the atoms of both groups.
    indices: [Vec<u32>; 2],
    labels: Option<[Vec<u32>; 2]>,
}

kernels! {
    /// Kernel that finds pairs of atoms within `cutoff` (Å) in two groups or in one group. In one
    /// group, each pair counts once.
    ///
    /// Two atoms with the same index or the same label are not a pair. `indices` and `labels`
    /// contain one array per group, even if the groups are the same.
    pub(super) struct NearPairs(PairFilter);

    new {
        (
            columns: Columns,
            first: Indices,
            second: Option<Indices>,
            cutoff: f64,
            periodic: bool,
            indices: NumbersOfPair<'_>,
            labels: Option<NumbersOfPair<'_>>,
        ) {
            let n_first = first.len();
            let sizes = [n_first, second.as_ref().map_or(n_first, |second| second.len())];
            let both = |(one, other): NumbersOfPair<'_>| -> Result<[Vec<u32>; 2]> {
                let both = [numbers(&one)?, numbers(&other)?];
                match both.each_ref().map(Vec::len) == sizes {
                    true => Ok(both),
                    false => Err(Failure::argument("expected a number for each atom")),
                }
            };
            let of_second = second.as_deref().map(|second| columns.of(second)).transpose()?;
            let task = PairFilter {
                is_one_group: second.is_none(),
                n_first,
                indices: both(indices)?,
                labels: labels.map(both).transpose()?,
                list: PairList::new(columns.of(&first)?, of_second, cutoff, periodic)?,
            };
            Result::Ok(task)
        }
    }

    frames {
        /// Return records of the pairs: indices of both atoms (int32), and distances (Å, float64).
        find(|task, block, _|) -> Found<u64, 1> {
            let (mut counts, mut records) = (Vec::new(), Vec::new());
            let refused = task.list.find(block, |_, pairs| {
                let before = records.len();
                let len = part_len(pairs.len(), LEAST_PAIRS);
                if len >= pairs.len() {
                    task.add_records(pairs, &mut records);
                } else {
                    let parts = compute_parts(pairs.chunks(len), |pairs| {
                        let mut records = Vec::with_capacity(2 * pairs.len());
                        task.add_records(pairs, &mut records);
                        records
                    });
                    parts.iter().for_each(|part| records.extend_from_slice(part));
                }
                counts.push((records.len() - before) as i64 / 2);
            })?;
            Ok((counts.into(), records.into(), refused))
        }
    }

    methods {
        /// Count the neighbours of each atom of the first group. Within one group, each pair counts
        /// for both atoms.
        fn count(
            &self,
            py: Python<'_>,
            positions: Array3<'_, f32>,
            cells: Array2<'_, f64>,
            mut counts: ArrayMut2<'_, i32>,
        ) -> Result<Option<Refused>> {
            let (task, n_first) = (&self.0, self.0.n_first);
            if counts.shape() != [positions.shape()[0], n_first] {
                return Err(Failure::argument("expected counts for each atom and frame"));
            }
            let counts = &mut *counts;
            in_frames(py, &positions, &cells, |frames, _| {
                task.list.find(frames, |row, pairs| {
                    let counts = &mut counts[row * n_first..][..n_first];
                    for &Pair { i, j, .. } in pairs {
                        if task.makes_pair(i, j) {
                            counts[i as usize] += 1;
                            if task.is_one_group {
                                counts[j as usize] += 1;
                            }
                        }
                    }
                })
            })
        }
    }
}

impl PairFilter {
    fn ends(&self, i: u32, j: u32) -> [u32; 2] {
        [self.indices[0][i as usize], self.indices[1][j as usize]]
    }

    /// Add the records of pairs: indices of both atoms, and distances.
    fn add_records(&self, pairs: &[Pair], records: &mut Vec<u64>) {
        for &Pair { i, j, distance } in pairs {
            if self.makes_pair(i, j) {
                let [first, second] = self.ends(i, j).map(u32::to_ne_bytes);
                let mut atoms = [0; 8];
                atoms[..4].copy_from_slice(&first);
                atoms[4..].copy_from_slice(&second);
                records.extend([u64::from_ne_bytes(atoms), distance.to_bits()]);
            }
        }
    }

    /// Return true if two atoms differ in their indices and, if there are labels, in their labels.
    fn makes_pair(&self, i: u32, j: u32) -> bool {
        let [first, second] = self.ends(i, j);
        let alike = |[one, other]: &[Vec<u32>; 2]| one[i as usize] == other[j as usize];
        first != second && !self.labels.as_ref().is_some_and(alike)
    }
}

/// Kind of a selection, numbers of the selections that it depends on, its parameters, whether it
/// uses nearest images, and atoms or labels.
type NodeArguments<'py> = (String, Vec<usize>, Vec<f64>, bool, Option<Array1<'py, i64>>);

/// Number of the selection of the base group, its number of atoms if constant, and the numbers of
/// the selections applied to it.
type GroupArguments = (usize, Option<usize>, Vec<usize>);

kernels! {
    /// Kernel that finds the atoms of an updating group in the frames of a block.
    ///
    /// `nodes` are selections; a selection may depend only on earlier ones. Of `n_universe` atoms,
    /// `n_atoms` are read. `complete` is true if groups contain only atoms that are read.
    pub(super) struct SelectedAtoms(Selected);

    new {
        (
            columns: Option<Array1<'_, i64>>,
            nodes: Vec<NodeArguments<'_>>,
            group: GroupArguments,
            n_atoms: usize,
            n_universe: usize,
            complete: bool,
        ) {
            let nodes = nodes.iter().map(node_of).collect::<Result<_>>()?;
            let columns = columns.as_deref().map(numbers).transpose()?;
            Selected::new(nodes, group_of(&group), columns, [n_atoms, n_universe], complete)
        }
    }

    frames {
        /// Return the indices of the selected atoms among the atoms that are read.
        find(|task, block, _|) -> Found<i64, 1> {
            let (mut counts, mut atoms) = (Vec::new(), Vec::new());
            let refused = task.find(block, &mut counts, &mut atoms)?;
            let atoms: Vec<i64> = atoms.into_iter().map(i64::from).collect();
            Ok((counts.into(), atoms.into(), refused))
        }
    }
}

fn group_of((base, n_base, selections): &GroupArguments) -> Group {
    Group {
        base: *base,
        n_base: *n_base,
        selections: selections.clone(),
    }
}

fn node_of((kind, inputs, values, periodic, list): &NodeArguments<'_>) -> Result<Node> {
    let wrong = || Failure::argument(format!("{kind} lacks arguments"));
    let list = list.as_deref().map(numbers).transpose()?;
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
        // The number of atoms is None if the base group varies.
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
                _ => return Err(Failure::argument(format!("unknown selection {kind}"))),
            },
            axis: value(0)? as usize,
            absolute: value(1)? != 0.0,
            value: value(2)? as f32,
        },
    })
}

/// Pairs of linked atoms, the number of bonds of each link, and further atoms to decode.
type Links = (NewArray<i64, 2>, NewArray<i64, 1>, NewArray<i64, 1>);

/// Number of records of each frame, and the records.
type Records = (NewArray<i64, 1>, NewArray<f64, 2>);

/// Find paths of at most `longest` bonds between the wanted atoms, and return them as links between
/// pairs of atoms.
#[pyfunction]
pub(super) fn links(
    py: Python<'_>,
    n_atoms: usize,
    bonds: Array2<'_, i64>,
    wanted: Indices,
    longest: usize,
) -> Result<Links> {
    let bonds = pairs(&bonds)?;
    let found =
        py.detach(|| detect_broken_molecules::Links::new(n_atoms, &bonds, &wanted, longest));
    let detect_broken_molecules::Links {
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
    /// Kernel that checks groups of atoms: the parts of a molecule must not be in different images.
    ///
    /// `links` are pairs of atoms, with the number of bonds between them. `contacts` are pairs of
    /// atoms in different molecules.
    pub(super) struct Whole(detect_broken_molecules::Whole);

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
                detect_broken_molecules::Whole::new(n_atoms, (&bonds, &lengths), longest, groups, contacts)
            })
        }
    }

    methods {
        /// Return the number of records of each frame, and all records in rows; None if there are
        /// no records. A record contains 0 for a broken molecule or 1 for a broken contact (only in
        /// frames without a broken molecule); 0; the columns of two atoms; and their distance (Å).
        fn look(
            &self,
            py: Python<'_>,
            positions: Array3<'_, f32>,
            cells: Array2<'_, f64>,
            frames: Array1<'_, i64>,
        ) -> Result<Option<Records>> {
            check_atoms(positions.shape(), self.0.n_atoms())?;
            let numbers = &*frames;
            let (broken, apart) = in_frames(py, &positions, &cells, |_, placed| {
                self.0.look(&placed.positions, &placed.dimensions, numbers)
            })?;
            if broken.is_empty() && apart.is_empty() {
                return Ok(None);
            }
            let mut found: Vec<_> = broken.into_iter().map(|one| (one, 0.0)).collect();
            found.extend(apart.into_iter().map(|one| (one, 1.0)));
            found.sort_by_key(|one| one.0.0);
            let mut counts = vec![0; numbers.len()];
            let mut records = Vec::with_capacity(5 * found.len());
            for &((row, [first, second], length), kind) in &found {
                counts[row] += 1;
                records.extend([kind, 0.0, first as f64, second as f64, length]);
            }
            Ok(Some((counts.into(), NewArray::new(records, [found.len(), 5]))))
        }
    }
}
