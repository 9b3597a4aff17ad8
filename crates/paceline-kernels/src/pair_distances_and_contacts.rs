//! Distances of given pairs of atoms in each frame of a block, and fractions of native contacts, as
//! defined by `MDAnalysis.analysis.contacts`.
//!
//! Distances have the same bits as those of `MDAnalysis.lib.distances.distance_array`. This matters
//! in files with a precision of 0.01 Å, in which a distance often equals the reference distance.

use std::mem::take;
use std::ops::Range;

use super::cell::{ApplyPbc, in_cell, nearest_in, nearest_of_27, square};
use super::row_kernel::{Frames, RowKernel, cell_or_none};
use super::transform_common::Refused;
use super::{Columns, check_len};
use crate::threads_within_frame::{MANY, change, compute_parts, part_len, ranges};
use paceline_base::error::{Error, Result};

/// Minimum number of groups in a part of a frame that one thread computes.
const LEAST_GROUPS: usize = 16;

/// Distances of pairs of atoms: one column per pair.
#[derive(Debug, Clone)]
pub struct PairDistances {
    /// Atoms of the pairs, without repeats.
    atoms: Columns,
    /// Indices in `atoms`.
    pairs: Vec<[usize; 2]>,
    periodic: bool,
}

impl PairDistances {
    /// Create a kernel for consecutive pairs of `columns`. With `periodic`, distances in frames
    /// with a cell are those between nearest images.
    ///
    /// # Errors
    /// [`Error::Argument`] if `columns` is empty, or its length is odd.
    pub fn new(columns: &[usize], periodic: bool) -> Result<Self> {
        let (pairs, rest) = columns.as_chunks();
        if pairs.is_empty() || !rest.is_empty() {
            return Err(Error::Argument(format!(
                "expected two atoms for each distance, found {} atoms",
                columns.len()
            )));
        }
        let mut atoms = columns.to_vec();
        atoms.sort_unstable();
        atoms.dedup();
        let place = |column| atoms.partition_point(|&atom| atom < column);
        let pairs = pairs.iter().map(|pair| pair.map(place)).collect();
        Ok(PairDistances {
            atoms: Columns::new(&atoms),
            pairs,
            periodic,
        })
    }

    /// Fill `out` with the distances of a frame, Å.
    fn frame(
        &self,
        frame: &[f32],
        dimensions: [f32; 6],
        scratch: &mut Vec<f32>,
        out: &mut [f64],
    ) -> Result<(), String> {
        let positions = self.atoms.pick(frame, scratch).as_chunks().0;
        let pairs = &self.pairs;
        measure(positions, dimensions, self.periodic, Fill { pairs, out })
    }
}

/// Computation that needs the positions of atoms, and a function for squared distances (Å²).
trait OfDistances {
    fn compute(self, positions: &[[f32; 3]], square: impl Fn([f64; 3]) -> f64 + Sync);
}

/// Run a computation that needs distances. If `periodic`, use the cell of the frame, if it has one.
fn measure(
    positions: &[[f32; 3]],
    dimensions: [f32; 6],
    periodic: bool,
    task: impl OfDistances,
) -> Result<(), String> {
    let cell = match periodic {
        true => cell_or_none(dimensions, "pbc=True")?,
        false => None,
    };
    match cell {
        None => task.compute(positions, square),
        Some(cell) if !cell.is_triclinic() => {
            let edges = std::array::from_fn(|i| cell.vectors()[i][i] as f32);
            task.compute(positions, nearest_in(edges));
        }
        Some(cell) => {
            let pbc = ApplyPbc::new(cell.vectors());
            let mut within = positions.to_vec();
            let put_into_cell = |_, some: &mut [[f32; 3]]| {
                some.iter_mut().try_for_each(|x| {
                    *x = match x.iter().all(|x| x.is_finite()) {
                        true => in_cell(&pbc, *x)?,
                        false => [f32::NAN; 3],
                    };
                    Ok(())
                })
            };
            let done = change(&mut within, MANY, put_into_cell);
            done.into_iter().collect::<Result<(), String>>()?;
            task.compute(&within, nearest_of_27(&cell));
        }
    }
    Ok(())
}

/// Return the difference of two positions in single precision, as in MDAnalysis.
fn difference(from: [f32; 3], to: [f32; 3]) -> [f64; 3] {
    std::array::from_fn(|k| f64::from(to[k] - from[k]))
}

struct Fill<'a> {
    pairs: &'a [[usize; 2]],
    out: &'a mut [f64],
}

impl OfDistances for Fill<'_> {
    fn compute(self, positions: &[[f32; 3]], square: impl Fn([f64; 3]) -> f64 + Sync) {
        change(self.out, MANY, |first, out| {
            for (&[i, j], out) in self.pairs[first..].iter().zip(out) {
                *out = square(difference(positions[i], positions[j])).sqrt();
            }
        });
    }
}

impl RowKernel for PairDistances {
    fn n_columns(&self) -> usize {
        self.pairs.len()
    }

    /// Compute distances, Å. A distance is NaN if a position is NaN.
    fn compute(&self, frames: &Frames<'_>, out: &mut [f64]) -> Result<Option<Refused>> {
        self.atoms.check(frames.n_atoms())?;
        let mut scratch = Vec::new();
        frames.fill_rows(out, self.n_columns(), |frame, dimensions, row| {
            self.frame(frame, dimensions, &mut scratch, row)
        })
    }
}

/// Contribution of a pair to the fraction of contacts, as a function of its distance r and its
/// limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Switch {
    /// 1 if r is at most the limit, else 0.
    Hard,
    /// 1 / (1 + exp(β (r − limit))), with β in Å⁻¹.
    Soft(f64),
}

/// Fractions of contacts: one column for each reference. The contacts of a reference are pairs of
/// atoms.
#[derive(Debug, Clone)]
pub struct Contacts {
    distances: PairDistances,
    /// Limit of each pair, Å.
    limits: Vec<f64>,
    /// Number of pairs of each reference.
    sizes: Vec<usize>,
    switch: Switch,
}

impl Contacts {
    /// Create a kernel. Pairs are sorted by reference, with `sizes` pairs for each reference.
    ///
    /// # Errors
    /// [`Error::Argument`] if a reference has no pairs, or the numbers of limits and pairs differ.
    pub fn new(
        distances: PairDistances,
        limits: &[f64],
        sizes: &[usize],
        switch: Switch,
    ) -> Result<Self> {
        if sizes.contains(&0) {
            return Err(Error::Argument("a reference has no contacts".to_string()));
        }
        check_len("limits", limits.len(), distances.n_columns())?;
        check_len("pairs", limits.len(), sizes.iter().sum())?;
        Ok(Contacts {
            distances,
            limits: limits.to_vec(),
            sizes: sizes.to_vec(),
            switch,
        })
    }

    fn fraction(&self, distances: &[f64], limits: &[f64]) -> f64 {
        let pairs = distances.iter().zip(limits);
        let sum = match self.switch {
            // A NaN distance is neither within the limit nor beyond it, so that the fraction is
            // NaN.
            Switch::Hard if distances.iter().any(|r| r.is_nan()) => f64::NAN,
            Switch::Hard => pairs.filter(|(r, limit)| r <= limit).count() as f64,
            Switch::Soft(beta) => {
                let mut soft = distances.to_vec();
                change(&mut soft, MANY, |first, some| {
                    for (r, limit) in some.iter_mut().zip(&limits[first..]) {
                        *r = 1.0 / (1.0 + (beta * (*r - limit)).exp());
                    }
                });
                soft.into_iter().sum()
            }
        };
        sum / distances.len() as f64
    }
}

impl RowKernel for Contacts {
    fn n_columns(&self) -> usize {
        self.sizes.len()
    }

    /// Compute fractions, from 0 to 1. A fraction is NaN if a position of its pairs is NaN.
    /// [`Switch::Soft`] uses `exp` of the standard library, whose last bit may differ between
    /// systems.
    fn compute(&self, frames: &Frames<'_>, out: &mut [f64]) -> Result<Option<Refused>> {
        self.distances.atoms.check(frames.n_atoms())?;
        let mut scratch = Vec::new();
        let mut distances = vec![0.0; self.limits.len()];
        frames.fill_rows(out, self.n_columns(), |frame, dimensions, row| {
            (self.distances).frame(frame, dimensions, &mut scratch, &mut distances)?;
            let (mut r, mut limits) = (&distances[..], &self.limits[..]);
            for (fraction, &size) in row.iter_mut().zip(&self.sizes) {
                *fraction = self.fraction(&r[..size], &limits[..size]);
                (r, limits) = (&r[size..], &limits[size..]);
            }
            Ok(())
        })
    }
}

/// Groups of atoms, such as residues. Two groups are in contact if any atom of one is near any atom
/// of the other.
#[derive(Debug, Clone)]
pub struct ContactMap {
    atoms: Columns,
    groups: Vec<Range<usize>>,
    /// Maximum distance of a contact, Å.
    cutoff: f64,
    periodic: bool,
}

impl ContactMap {
    /// Create a map. `columns` is sorted by group, with `sizes` atoms in each group.
    ///
    /// # Errors
    /// [`Error::Argument`] if a group has no atoms, or the cutoff (Å) is not a finite number above
    /// 0.
    pub fn new(columns: &[usize], sizes: &[usize], cutoff: f64, periodic: bool) -> Result<Self> {
        check_len("atoms", columns.len(), sizes.iter().sum())?;
        if sizes.contains(&0) {
            return Err(Error::Argument("a group has no atoms".to_string()));
        }
        if !(cutoff > 0.0 && cutoff.is_finite()) {
            return Err(Error::Argument(format!(
                "expected a finite cutoff above 0, found {cutoff} Å"
            )));
        }
        let mut first = 0;
        let groups = sizes.iter().map(|size| {
            first += size;
            first - size..first
        });
        Ok(ContactMap {
            groups: groups.collect(),
            atoms: Columns::new(columns),
            cutoff,
            periodic,
        })
    }

    /// Return the number of pairs of groups. The order of pairs is: the first group with each later
    /// group, the second with each later group, and so on.
    pub fn n_pairs(&self) -> usize {
        self.groups.len() * (self.groups.len() - 1) / 2
    }

    /// For each frame, add 1 to the count of each pair in contact. Return the first frame that
    /// cannot be counted, with the reason.
    ///
    /// # Errors
    /// [`Error::Argument`] if the block lacks some of the atoms, or `counts` has the wrong size.
    pub fn count(&self, frames: &Frames<'_>, counts: &mut [u64]) -> Result<Option<Refused>> {
        self.atoms.check(frames.n_atoms())?;
        check_len("pairs", counts.len(), self.n_pairs())?;
        let mut scratch = Vec::new();
        Ok(frames.try_each(|frame, dimensions| {
            let positions = self.atoms.pick(frame, &mut scratch).as_chunks().0;
            if !positions.iter().flatten().all(|x| x.is_finite()) {
                return Err("positions are not all finite numbers".to_string());
            }
            let counts = &mut *counts;
            let task = Count { map: self, counts };
            measure(positions, dimensions, self.periodic, task)
        }))
    }
}

struct Count<'a> {
    map: &'a ContactMap,
    counts: &'a mut [u64],
}

impl OfDistances for Count<'_> {
    /// Count contacts. Spheres around the first atoms of two groups exclude groups that are too far
    /// apart.
    fn compute(self, positions: &[[f32; 3]], square: impl Fn([f64; 3]) -> f64 + Sync) {
        let (groups, cutoff) = (&self.map.groups, self.map.cutoff);
        let between = |i: usize, j: usize| square(difference(positions[i], positions[j]));
        // Rounding may increase a distance by less than `slack`.
        let slack = 1e-3 + 1e-6 * cutoff;
        let radii = groups.iter().map(|group| {
            let squares = group.clone().map(|atom| between(group.start, atom));
            squares.fold(0.0, f64::max).sqrt() + slack
        });
        let radii: Vec<f64> = radii.collect();
        let about = cutoff * cutoff * (1.0 + 1e-9);
        let near = |i, j| {
            let square = between(i, j);
            square <= about && square.sqrt() <= cutoff
        };
        let count = |k: usize, counts: &mut [u64]| {
            let (first, others) = (&groups[k], groups[k + 1..].iter().zip(&radii[k + 1..]));
            for ((second, other), count) in others.zip(counts) {
                let reach = cutoff + radii[k] + other;
                let contact = between(first.start, second.start) <= reach * reach
                    && first.clone().any(|i| second.clone().any(|j| near(i, j)));
                *count += u64::from(contact);
            }
        };
        let mut rest = self.counts;
        let rows = ranges(groups.len(), part_len(groups.len(), LEAST_GROUPS));
        let parts: Vec<_> = rows
            .map(|rows| {
                let n_pairs = rows.clone().map(|k| groups.len() - 1 - k).sum();
                let (part, behind) = take(&mut rest).split_at_mut(n_pairs);
                rest = behind;
                (rows, part)
            })
            .collect();
        compute_parts(parts.into_iter(), |(rows, mut counts)| {
            for k in rows {
                let (row, behind) = counts.split_at_mut(groups.len() - 1 - k);
                count(k, row);
                counts = behind;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::Cell;
    use crate::tests::Random;

    const NONE: [f32; 6] = [0.0; 6];
    const CELLS: [[f32; 6]; 4] = [
        [10.0, 12.0, 14.0, 90.0, 90.0, 90.0],
        [12.0, 12.0, 12.0, 60.0, 60.0, 90.0],
        [12.0, 12.0, 12.0, 70.53, 109.47, 70.53],
        [15.0, 12.0, 14.0, 80.0, 100.0, 115.0],
    ];

    fn row(task: &impl RowKernel, positions: &[f32], cell: [f32; 6]) -> Vec<f64> {
        let frames = Frames::new(positions, positions.len() / 3, &cell).expect("a frame");
        let mut out = vec![-1.0; task.n_columns()];
        assert_eq!(task.compute(&frames, &mut out).expect("a block"), None);
        out
    }

    #[test]
    fn distances_are_those_of_the_nearest_images() {
        let mut random = Random(31);
        let positions: Vec<f32> = (0..60).map(|_| 40.0 * random.number() as f32).collect();
        let columns: Vec<usize> = (0..40).map(|k| (7 * k) % 20).collect();
        let plain = row(
            &PairDistances::new(&columns, true).unwrap(),
            &positions,
            NONE,
        );
        let around = || [-1.0, 0.0, 1.0].into_iter();
        for dimensions in CELLS {
            let cell = Cell::new(dimensions).expect("a cell");
            let task = PairDistances::new(&columns, true).expect("pairs");
            for (pair, found) in columns.chunks(2).zip(row(&task, &positions, dimensions)) {
                let [i, j] = [pair[0], pair[1]];
                let d = std::array::from_fn(|k| {
                    f64::from(positions[3 * j + k]) - f64::from(positions[3 * i + k])
                });
                let home = cell.shifted(d, cell.nearest_images(d));
                let least = around()
                    .flat_map(|i| around().map(move |j| (i, j)))
                    .flat_map(|(i, j)| around().map(move |k| [i, j, k]))
                    .map(|images| square(cell.shifted(home, images)).sqrt())
                    .fold(f64::INFINITY, f64::min);
                assert!(
                    (found - least).abs() < 1e-4,
                    "{dimensions:?}: {found} {least}"
                );
            }
            let task = PairDistances::new(&columns, false).expect("pairs");
            assert_eq!(row(&task, &positions, dimensions), plain);
        }
    }

    /// Positions of four atoms on a line, at 0, 1, 3 and 7 Å.
    const LINE: [f32; 12] = [0., 0., 0., 1., 0., 0., 3., 0., 0., 7., 0., 0.];

    fn contacts(switch: Switch, limits: [f64; 3]) -> Contacts {
        let distances = PairDistances::new(&[0, 1, 3, 1, 2, 3], true).expect("pairs");
        Contacts::new(distances, &limits, &[2, 1], switch).expect("contacts")
    }

    #[test]
    fn fractions_are_those_of_pairs_within_their_limits() {
        let task = contacts(Switch::Hard, [1.0, 5.9, 4.0]);
        assert_eq!(row(&task, &LINE, NONE), [0.5, 1.0]);
        // In this cell, the distance of 6 Å becomes 2 Å, and that of 4 Å does not change.
        assert_eq!(
            row(&task, &LINE, [8.0, 90.0, 90.0, 90.0, 90.0, 90.0]),
            [1.0, 1.0]
        );
        let task = contacts(Switch::Soft(2.0), [1.0, 5.5, 3.0]);
        let soft = |r: f64| 1.0 / (1.0 + (2.0 * r).exp());
        let expected = [(soft(0.0) + soft(0.5)) / 2.0, soft(1.0)];
        assert_eq!(row(&task, &LINE, NONE), expected);
    }

    #[test]
    fn a_position_that_is_no_number_shows() {
        let mut line = LINE;
        line[3 * 2 + 1] = f32::NAN;
        for switch in [Switch::Hard, Switch::Soft(1.0)] {
            for cell in [NONE, CELLS[0], CELLS[1]] {
                let found = row(&contacts(switch, [9.0; 3]), &line, cell);
                assert!(found[0].is_finite() && found[1].is_nan(), "{found:?}");
            }
        }
    }

    #[test]
    fn groups_are_in_contact_where_any_atoms_are() {
        let mut random = Random(32);
        let positions: Vec<f32> = (0..120).map(|_| 40.0 * random.number() as f32).collect();
        let sizes = [1, 7, 2, 12, 5, 13];
        let columns: Vec<usize> = (0..40).map(|k| (7 * k) % 40).collect();
        for (cutoff, dimensions) in [7.0, 2.0, 2.0].into_iter().zip([NONE, CELLS[0], CELLS[3]]) {
            let map = ContactMap::new(&columns, &sizes, cutoff, true).expect("a map");
            let frames = Frames::new(&positions, 40, &dimensions).expect("a frame");
            let mut counts = vec![0; map.n_pairs()];
            assert_eq!(map.count(&frames, &mut counts).expect("a block"), None);
            let mut expected = Vec::new();
            for (k, first) in map.groups.iter().enumerate() {
                for second in &map.groups[k + 1..] {
                    let pairs = first
                        .clone()
                        .flat_map(|i| second.clone().map(move |j| [i, j]));
                    let pairs: Vec<usize> = pairs.flatten().map(|i| columns[i]).collect();
                    let all = PairDistances::new(&pairs, true).expect("pairs");
                    let near = row(&all, &positions, dimensions)
                        .iter()
                        .any(|&r| r <= cutoff);
                    expected.push(u64::from(near));
                }
            }
            assert_eq!(counts, expected);
            assert!(counts.contains(&1) && counts.contains(&0), "{counts:?}");
        }
        let map = ContactMap::new(&[0, 1, 2], &[2, 1], 1.0, true).expect("a map");
        let frames = Frames::new(
            &[0.0, 1.0, f32::NAN, 0.0, 0.0, 0.0, 5.0, 5.0, 5.0],
            3,
            &NONE,
        );
        let refused = map
            .count(&frames.expect("a frame"), &mut [0])
            .expect("a block");
        assert!(refused.expect("a reason").1.contains("finite"));
        assert!(ContactMap::new(&[0, 1], &[2, 0], 1.0, true).is_err());
        assert!(ContactMap::new(&[0, 1], &[1, 1], f64::NAN, true).is_err());
        assert!(ContactMap::new(&[0, 1], &[1, 2], 1.0, true).is_err());
    }

    #[test]
    fn what_does_not_belong_together_is_refused() {
        assert!(PairDistances::new(&[], true).is_err());
        assert!(PairDistances::new(&[0, 1, 2], true).is_err());
        let distances = PairDistances::new(&[0, 1, 3, 1], true).expect("pairs");
        let new = |limits: &[f64], sizes: &[usize]| {
            Contacts::new(distances.clone(), limits, sizes, Switch::Hard)
        };
        assert!(new(&[1.0, 1.0], &[1, 1]).is_ok());
        assert!(new(&[1.0], &[1]).is_err());
        assert!(new(&[1.0, 1.0], &[2, 0]).is_err());
        assert!(new(&[1.0, 1.0], &[1]).is_err());
        let frames = Frames::new(&LINE[..9], 3, &NONE).expect("a frame");
        assert!(distances.compute(&frames, &mut [0.0; 2]).is_err());
        let far = [[0.0; 9].as_slice(), &[1e30, 0.0, 0.0]].concat();
        let frames = Frames::new(&far, 4, &CELLS[1]).expect("a frame");
        let (_, reason) =
            (distances.compute(&frames, &mut [0.0; 2]).expect("a block")).expect("a reason");
        assert!(reason.contains("too far away"), "{reason}");
        let flat = [10.0, 10.0, 10.0, 120.0, 120.0, 120.0];
        let frames = Frames::new(&LINE, 4, &flat).expect("a frame");
        assert!(
            distances
                .compute(&frames, &mut [0.0; 2])
                .expect("a block")
                .is_some()
        );
    }
}
