//! Bins of equal width, assigned as in `numpy.histogram`, and histograms of distances.

use std::ops::RangeInclusive;

use crate::threads_within_frame::compute;
use paceline_base::error::{Error, Result};

/// Number of counters per bin, used in turn. Consecutive distances are often in the same bin; with
/// one counter, each addition would wait for the one before.
const LANES: usize = 8;
/// Maximum number of distances that are binned at a time.
pub const PIECE: usize = 64;

/// Maximum number of bins in single precision, and range of the end of the last bin (Å). Outside
/// these limits, single precision leaves too many bins uncertain.
const MOST_BINS: usize = 1 << 14;
const DISTANCES: RangeInclusive<f64> = 1e-6..=1e6;

/// If this number is added to a number of magnitude below 2²², the low bits of the sum contain the
/// nearest whole number.
const TO_WHOLE: f32 = 12_582_912.0;

/// Bins of equal width.
#[derive(Debug, Clone)]
pub struct Bins {
    /// Edges of the bins. Bin i goes from edge i to edge i + 1. Only the last bin includes its
    /// upper edge.
    edges: Vec<f64>,
    bins_per_angstrom: f64,
}

/// Histogram of distances (Å), computed from squared distances.
#[derive(Debug, Clone)]
pub struct Histogram {
    bins: Bins,
    /// Largest squared distance (Å²) that belongs to the last bin.
    most: f64,
    counts: Vec<u64>,
    /// Counts below the first bin, in each bin, and beyond the last bin.
    lanes: Vec<[u64; LANES]>,
}

/// Assignment of bins in single precision, with a mark for uncertain bins.
#[derive(Debug, Clone)]
pub struct FastBins {
    bins_per_angstrom: f32,
    /// Number of bin widths from 0 to the middle of the first bin.
    before: f32,
    n_bins: f32,
    /// Certain part of a bin: a distance this close to the middle of a bin (in bin widths) is
    /// certainly in the bin.
    certain: f32,
    /// Input and results: squared distances (Å²), the assigned bins, and 1 for each uncertain bin,
    /// else 0.
    pub squares: [f32; PIECE],
    pub bins: [u32; PIECE],
    pub doubts: [u32; PIECE],
}

impl Bins {
    /// # Errors
    /// [`Error::Argument`] if there are fewer than two edges, an edge is not finite, or edges do
    /// not increase.
    pub fn new(edges: &[f64]) -> Result<Self> {
        let finite = edges.iter().all(|edge| edge.is_finite());
        let increasing = edges.windows(2).all(|pair| pair[0] < pair[1]);
        let (&[first, .., last], true, true) = (edges, finite, increasing) else {
            return Err(Error::Argument(
                "edges of bins must be two finite numbers or more, each above the one before it"
                    .to_string(),
            ));
        };
        Ok(Bins {
            edges: edges.to_vec(),
            bins_per_angstrom: (edges.len() - 1) as f64 / (last - first),
        })
    }

    /// Create bins between 0 and `end`, which must be above 0. With `single`, edges have single
    /// precision.
    pub fn even(end: f64, n_bins: usize, single: bool) -> Self {
        let (width, width_single) = (end / n_bins as f64, end as f32 / n_bins as f32);
        let edge = |i: usize| match single {
            _ if i == n_bins => end,
            true => f64::from(i as f32 * width_single),
            false => i as f64 * width,
        };
        Bins {
            edges: (0..=n_bins).map(edge).collect(),
            bins_per_angstrom: n_bins as f64 / end,
        }
    }

    pub fn len(&self) -> usize {
        self.edges.len() - 1
    }

    /// Return the lower edge of the first bin, Å.
    pub fn first(&self) -> f64 {
        self.edges[0]
    }

    /// Return the upper edge of the last bin, Å.
    pub fn end(&self) -> f64 {
        self.edges[self.len()]
    }

    /// Return the bin of a number. A number outside all bins gets the nearer of the first and the
    /// last bin.
    #[inline]
    pub fn nearest(&self, x: f64) -> usize {
        let last = self.len() - 1;
        let guess = ((x - self.edges[0]) * self.bins_per_angstrom) as usize;
        let mut bin = guess.min(last);
        // Rounding may have put the number one bin too far, or one bin short.
        bin -= usize::from(bin > 0 && x < self.edges[bin]);
        bin += usize::from(bin < last && x >= self.edges[bin + 1]);
        bin
    }
}

impl Histogram {
    /// # Errors
    /// As [`Bins::new`], and if no edge is above 0.
    pub fn new(edges: &[f64]) -> Result<Self> {
        let bins = Bins::new(edges)?;
        let (last, n_bins) = (bins.end(), bins.len());
        if last <= 0.0 {
            return Err(Error::Argument(format!(
                "bins must end above 0 Å, and these end at {last} Å"
            )));
        }
        Ok(Histogram {
            bins,
            most: largest_square(last),
            counts: vec![0; n_bins],
            lanes: vec![[0; LANES]; if n_bins > MOST_BINS { 0 } else { n_bins + 2 }],
        })
    }

    pub fn n_bins(&self) -> usize {
        self.counts.len()
    }

    /// Return the upper edge of the last bin, Å.
    pub fn end(&self) -> f64 {
        self.bins.end()
    }

    /// Count a distance, given its square (Å²).
    #[inline]
    pub fn add(&mut self, square: f64) {
        if square <= self.most {
            self.add_near(square.sqrt());
        }
    }

    fn add_near(&mut self, distance: f64) {
        if distance >= self.bins.edges[0] {
            self.counts[self.bins.nearest(distance)] += 1;
        }
    }

    /// Return the assignment of bins for distances with a maximum error of `error` Å; `None` if too
    /// few bins are certain.
    pub fn rough(&self, error: f64) -> Option<FastBins> {
        let n_bins = self.n_bins() as f64;
        // Rounding error: half a unit in the last place for each of six operations, on numbers up
        // to three times the number of bins.
        let error = error * self.bins.bins_per_angstrom + 9.0 * n_bins * f64::from(f32::EPSILON);
        let before = self.bins.edges[0] * self.bins.bins_per_angstrom + 0.5;
        let possible = !self.lanes.is_empty()
            && DISTANCES.contains(&self.end())
            && before.abs() <= 2.0 * n_bins
            && error < 0.25;
        possible.then_some(FastBins {
            bins_per_angstrom: self.bins.bins_per_angstrom as f32,
            before: before as f32,
            n_bins: n_bins as f32,
            certain: (0.5 - error) as f32,
            squares: [0.0; PIECE],
            bins: [0; PIECE],
            doubts: [0; PIECE],
        })
    }

    /// Count distances whose bins `FastBins` has assigned.
    #[inline(always)]
    pub fn add_assigned(&mut self, bins: impl Iterator<Item = u32>) {
        for (k, bin) in bins.enumerate() {
            self.lanes[bin as usize][k % LANES] += 1;
        }
    }

    /// Count the distances that `add` finds in each part of a frame, on the allowed threads.
    pub fn add_parts<P: Send>(
        &mut self,
        parts: impl ExactSizeIterator<Item = P> + Send,
        add: impl Fn(P, &mut Histogram) + Sync,
    ) {
        let empty = Histogram {
            bins: self.bins.clone(),
            most: self.most,
            counts: vec![0; self.counts.len()],
            lanes: vec![[0; LANES]; self.lanes.len()],
        };
        let (_, others) = compute(
            parts,
            self,
            || empty.clone(),
            |found, part| add(part, found),
        );
        for mut other in others {
            other.empty_into(&mut self.counts, 1);
        }
    }

    /// Add the counts to `counts` (one per bin), multiplied by `times`, and reset them.
    pub fn empty_into(&mut self, counts: &mut [u64], times: u64) {
        if let [_, within @ .., _] = &mut self.lanes[..] {
            for (count, lanes) in self.counts.iter_mut().zip(within) {
                *count += std::mem::take(lanes).iter().sum::<u64>();
            }
        }
        for (count, found) in counts.iter_mut().zip(&mut self.counts) {
            *count += times * std::mem::take(found);
        }
    }
}

impl FastBins {
    /// Assign bins to the first `n` squared distances; return whether any bin is uncertain.
    #[inline(never)]
    pub fn assign(&mut self, n: usize) -> bool {
        // Local copies: otherwise the compiler reads the fields again for each square.
        let FastBins {
            bins_per_angstrom,
            before,
            n_bins,
            certain,
            ..
        } = *self;
        let mut any = 0;
        let assigned = self.bins[..n].iter_mut().zip(&mut self.doubts[..n]);
        for (square, (bin, doubt)) in self.squares[..n].iter().zip(assigned) {
            let from_middle = square.sqrt() * bins_per_angstrom - before;
            // This form compiles to a single instruction for each comparison.
            let from_middle = if from_middle < n_bins {
                from_middle
            } else {
                n_bins
            };
            let from_middle = if from_middle > -1.0 {
                from_middle
            } else {
                -1.0
            };
            let whole = from_middle + TO_WHOLE;
            *bin = whole.to_bits().wrapping_sub(TO_WHOLE.to_bits() - 1);
            *doubt = u32::from((from_middle - (whole - TO_WHOLE)).abs() >= certain);
            any |= *doubt;
        }
        any != 0
    }

    /// Exclude the distances with this label: assign them to the bin below the first bin.
    pub fn leave_out(&mut self, labels: &[u32], label: u32) {
        let assigned = self.bins.iter_mut().zip(&mut self.doubts);
        for ((bin, doubt), &other) in assigned.zip(labels) {
            *bin = if other == label { 0 } else { *bin };
            *doubt = if other == label { 0 } else { *doubt };
        }
    }
}

/// Add 1 to the count at each index.
///
/// # Errors
/// [`Error::Argument`] if an index is out of range.
pub fn count_indices(indices: &[u32], counts: &mut [u64]) -> Result<()> {
    for &index in indices {
        let Some(count) = counts.get_mut(index as usize) else {
            return Err(Error::Argument(format!(
                "index {index} of a count is out of range"
            )));
        };
        *count += 1;
    }
    Ok(())
}

/// Return the largest number whose square root is at most `x`; `x` must be above 0.
pub(crate) fn largest_square(x: f64) -> f64 {
    let mut square = x * x;
    while square.sqrt() <= x && square < f64::MAX {
        square = square.next_up();
    }
    while square.sqrt() > x {
        square = square.next_down();
    }
    square
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::Random;

    fn counts(edges: &[f64], distances: &[f64]) -> Vec<u64> {
        let mut histogram = Histogram::new(edges).expect("edges");
        for distance in distances {
            histogram.add(distance * distance);
        }
        let mut counts = vec![0; edges.len() - 1];
        histogram.empty_into(&mut counts, 1);
        counts
    }

    #[test]
    fn an_edge_belongs_to_the_bin_above_it_and_the_last_to_the_last() {
        let edges = [1.0, 2.0, 3.0];
        let found = counts(&edges, &[0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 3.000_001, 9.0]);
        assert_eq!(found, [2, 2]);
        assert_eq!(counts(&[-1.0, 0.0, 1.0], &[0.0, 0.5, 1.0]), [0, 3]);
    }

    #[test]
    fn every_edge_and_its_neighbours_are_where_comparison_puts_them() {
        let (low, n_bins) = (0.3, 75);
        let edges: Vec<f64> = (0..=n_bins).map(|k| low + 0.2 * f64::from(k)).collect();
        for edge in &edges {
            for square in [
                (edge * edge).next_down(),
                edge * edge,
                (edge * edge).next_up(),
            ] {
                let mut histogram = Histogram::new(&edges).expect("edges");
                histogram.add(square);
                let mut found = vec![0; edges.len() - 1];
                histogram.empty_into(&mut found, 1);
                let distance = square.sqrt();
                let last = edges.len() - 2;
                for (bin, &count) in found.iter().enumerate() {
                    let within = edges[bin] <= distance
                        && (distance < edges[bin + 1] || bin == last && distance == edges[bin + 1]);
                    assert_eq!(count, u64::from(within), "{distance} in bin {bin}");
                }
            }
        }
    }

    #[test]
    fn counts_are_added_as_often_as_asked() {
        let mut histogram = Histogram::new(&[0.0, 1.0]).expect("edges");
        let mut counts = [1];
        histogram.add(0.25);
        histogram.empty_into(&mut counts, 2);
        assert_eq!(counts, [3]);
        histogram.empty_into(&mut counts, 2);
        assert_eq!(counts, [3]);
    }

    #[test]
    fn what_is_counted_roughly_is_counted_exactly() {
        let mut random = Random(21);
        for (low, high, n_bins) in [
            (0.0, 15.0, 75),
            (0.3, 15.0, 7),
            (-2.0, 3.0, 11),
            (9.0, 15.0, 9),
            (0.0, 15.0, 1),
            (0.0, 15.0, MOST_BINS),
        ] {
            let width = (high - low) / n_bins as f64;
            let edges: Vec<f64> = (0..=n_bins).map(|k| low + width * k as f64).collect();
            let mut histogram = Histogram::new(&edges).expect("edges");
            let mut exact = histogram.clone();
            let Some(mut rough) = histogram.rough(1e-6) else {
                panic!("{n_bins} bins of {width} Å")
            };
            let mut n_assigned = 0;
            for _ in 0..3000 {
                // Half of the distances are within single-precision rounding of an edge.
                let squares: [f64; LANES] = std::array::from_fn(|k| {
                    let bin = (0.5 * (1.0 + random.number()) * n_bins as f64) as usize;
                    let off = if k % 2 == 0 { 1e-6 } else { 3.0 };
                    let distance = edges[bin] + off * random.number();
                    distance * distance
                });
                rough.squares[..LANES].copy_from_slice(&squares.map(|square| square as f32));
                rough.assign(LANES);
                for (k, square) in squares.into_iter().enumerate() {
                    if rough.doubts[k] == 1 {
                        histogram.add(square);
                    } else {
                        histogram.add_assigned(std::iter::once(rough.bins[k]));
                        n_assigned += 1;
                    }
                }
                for square in squares {
                    exact.add(square);
                }
            }
            let (mut counted, mut wanted) = (vec![0; n_bins], vec![0; n_bins]);
            histogram.empty_into(&mut counted, 1);
            exact.empty_into(&mut wanted, 1);
            assert!(n_assigned > 2000, "{n_assigned} from {low} to {high}");
            assert_eq!(counted, wanted, "{low} to {high}");
            assert!(wanted.iter().sum::<u64>() > 1000);
        }
    }

    #[test]
    fn bins_that_single_precision_does_not_tell_are_told_exactly() {
        let rough = |edges: &[f64], error| Histogram::new(edges).expect("edges").rough(error);
        assert!(rough(&[0.0, 1.0], 1e-6).is_some());
        assert!(rough(&[0.0, 1.0], 0.3).is_none());
        assert!(rough(&[0.0, 1e-9], 1e-20).is_none());
        assert!(rough(&[0.0, 1e9], 1.0).is_none());
        assert!(rough(&[1e5, 1e5 + 1.0], 1e-6).is_none());
        let many: Vec<f64> = (0..=MOST_BINS + 1).map(|k| k as f64).collect();
        assert!(rough(&many, 1e-6).is_none());
    }

    #[test]
    fn edges_that_are_none_are_refused() {
        for edges in [
            &[][..],
            &[1.0],
            &[1.0, 1.0],
            &[0.0, 2.0, 1.0],
            &[0.0, f64::NAN],
            &[0.0, f64::INFINITY],
            &[-2.0, -1.0],
            &[-2.0, 0.0],
        ] {
            assert!(Histogram::new(edges).is_err(), "{edges:?}");
        }
    }

    #[test]
    fn a_largest_square_is_one() {
        for x in [0.1, 0.7, 15.0, 1e-3, 3.3, 1e200] {
            let square = largest_square(x);
            assert!(square.sqrt() <= x);
            assert!(square == f64::MAX || square.next_up().sqrt() > x, "{x}");
        }
    }
}
