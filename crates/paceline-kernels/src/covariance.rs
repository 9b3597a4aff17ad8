//! Covariance of the coordinates of atoms over frames.
//!
//! A partial result contains a count, means, and co-moments: sums over frames of products of
//! deviations from the means. Within a leaf, which is a run of consecutive frames, co-moments are
//! computed for a few frames at a time, about the mean of these frames. These parts are merged, and
//! then the leaves (Chan, Golub & LeVeque 1983, Am. Stat. 37, 242; for two variables Pébay 2008,
//! Sandia report SAND2008-6212).
//!
//! Only the upper triangle of the symmetric matrix is stored. Row i contains the products of
//! coordinate i with i, i + 1, … n − 1, and rows follow each other.

use super::check_len;
use super::projection::Superposed;
use crate::instructions::by_widest;
use paceline_base::error::{Error, Result};

/// Number of frames whose products are summed at a time, so that they stay in the cache.
const FRAMES: usize = 16;

/// Number of coordinates in a panel. Products of two panels are summed in registers.
const WIDTH: usize = 4;

type Panel = [f64; WIDTH];

/// Return the number of elements of the upper triangle of a symmetric matrix, including the
/// diagonal.
///
/// # Errors
/// [`Error::Argument`] if the number overflows.
pub fn triangle_len(n: usize) -> Result<usize> {
    let (even, odd) = if n.is_multiple_of(2) {
        (n / 2, n + 1)
    } else {
        (n.div_ceil(2), n)
    };
    even.checked_mul(odd)
        .ok_or_else(|| Error::Argument(format!("{n} coordinates are too many for a covariance")))
}

/// Add the frames of a block to the co-moments of earlier frames. `positions` has the shape
/// (frames, `n_atoms`, 3), Å. `mean` (Å) has 3 numbers for each atom of `atoms`, and `products`
/// (Å²) is the upper triangle of the co-moments of these numbers. If `count` is zero, all of these
/// numbers must be zero.
///
/// # Errors
/// [`Error::Argument`] if the sizes do not match.
pub fn accumulate(
    positions: &[f32],
    n_atoms: usize,
    atoms: &Superposed,
    mean: &mut [f64],
    products: &mut [f64],
    count: &mut u64,
) -> Result<()> {
    let n = atoms.n_coordinates();
    check_len("means", mean.len(), n)?;
    check_len("products", products.len(), triangle_len(n)?)?;
    let mut part = Part::new(n);
    atoms.each_frame(positions, n_atoms, |coordinates| {
        part.add(coordinates);
        if part.count == FRAMES {
            part.merge_into(mean, products, count);
        }
    })?;
    part.merge_into(mean, products, count);
    Ok(())
}

/// Merge the co-moments of the right-hand partial result into those of the left-hand one. If one
/// side has no frames, the result is the other side.
///
/// # Errors
/// [`Error::Argument`] if the two sides have different lengths.
pub fn merge(
    mean: &mut [f64],
    products: &mut [f64],
    count: &mut u64,
    right_mean: &[f64],
    right_products: &[f64],
    right_count: u64,
) -> Result<()> {
    let n = triangle_len(mean.len())?;
    for (what, len, expected) in [
        ("products on the left", products.len(), n),
        ("means on the right", right_mean.len(), mean.len()),
        ("products on the right", right_products.len(), n),
    ] {
        check_len(what, len, expected)?;
    }
    if right_count == 0 {
        return Ok(());
    }
    if *count == 0 {
        products.fill(0.0);
    }
    let shift = merge_means(mean, count, right_mean, right_count);
    add_triangle(products, right_products, &shift);
    Ok(())
}

by_widest! {
    /// Add the products of the right-hand partial result, corrected for the difference of the
    /// means.
    fn add_triangle(products: &mut [f64], right: &[f64], shift: &Shift) {
        let (mut rows, mut right_rows) = (products, right);
        for (i, step) in shift.steps.iter().enumerate() {
            let differences = &shift.differences[i..];
            let (row, rest) = rows.split_at_mut(differences.len());
            let (right_row, right_rest) = right_rows.split_at(differences.len());
            for ((product, right), difference) in row.iter_mut().zip(right_row).zip(differences) {
                *product += right + step * difference;
            }
            (rows, right_rows) = (rest, right_rest);
        }
    }
}

/// Correction of the products when means are merged: for coordinates i and j, it is `steps[i]`
/// times `differences[j]`.
struct Shift {
    /// Difference of the means of each coordinate, times m n / (m + n) for means of m and of n
    /// frames.
    steps: Vec<f64>,
    differences: Vec<f64>,
}

/// Merge the means of m and of n frames, and return the correction of the products.
fn merge_means(mean: &mut [f64], count: &mut u64, right_mean: &[f64], right_count: u64) -> Shift {
    let left_count = *count as f64;
    *count += right_count;
    let share = right_count as f64 / *count as f64;
    let coordinates = mean.iter_mut().zip(right_mean);
    let (steps, differences) = coordinates
        .map(|(mean, right)| {
            let difference = right - *mean;
            // If the left side is empty, the mean is copied without rounding.
            *mean = if left_count == 0.0 {
                *right
            } else {
                *mean + difference * share
            };
            (difference * (left_count * share), difference)
        })
        .unzip();
    Shift { steps, differences }
}

/// Coordinates of up to [`FRAMES`] frames.
struct Part {
    n: usize,
    count: usize,
    /// Coordinates, panel by panel, and in a panel frame by frame, padded with zeros.
    panels: Vec<[Panel; FRAMES]>,
}

impl Part {
    fn new(n: usize) -> Self {
        Part {
            n,
            count: 0,
            panels: vec![[[0.0; WIDTH]; FRAMES]; n.div_ceil(WIDTH)],
        }
    }

    fn add(&mut self, coordinates: &[f64]) {
        for (panel, xs) in self.panels.iter_mut().zip(coordinates.chunks(WIDTH)) {
            panel[self.count][..xs.len()].copy_from_slice(xs);
        }
        self.count += 1;
    }

    /// Add the frames of this part to the co-moments, and clear the part.
    fn merge_into(&mut self, mean: &mut [f64], products: &mut [f64], count: &mut u64) {
        if self.count == 0 {
            return;
        }
        let mut right_mean = vec![0.0; self.panels.len() * WIDTH];
        let means = right_mean.as_chunks_mut().0;
        for (panel, mean) in self.panels.iter_mut().zip(means) {
            centre(&mut panel[..self.count], mean);
        }
        let shift = merge_means(mean, count, &right_mean[..self.n], self.count as u64);
        add_products(&self.panels, self.count, &shift, products);
        self.count = 0;
    }
}

by_widest! {
    /// Add the products of the centred coordinates of `count` frames, and the corrections by
    /// `shift`, to the triangle.
    fn add_products(panels: &[[Panel; FRAMES]], count: usize, shift: &Shift, triangle: &mut [f64]) {
        let Shift { steps, differences } = shift;
        let n = steps.len();
        let mut rest = triangle;
        for (first, panel) in (0..n).step_by(WIDTH).zip(panels) {
            let sums = products_of(&panel[..count], &panel[..count]);
            // For each coordinate of the panel, the elements of its row after those of the panel.
            let mut rows: [&mut [f64]; WIDTH] = Default::default();
            for (row, i) in (first..n.min(first + WIDTH)).enumerate() {
                let (within, below) = rest.split_at_mut(n - i);
                let (within, behind) = within.split_at_mut((n - i).min(WIDTH - row));
                add(within, &sums[row][row..], steps[i], &differences[i..]);
                (rows[row], rest) = (behind, below);
            }
            let others = (first + WIDTH..n).step_by(WIDTH);
            for (other, from) in panels[first / WIDTH + 1..].iter().zip(others) {
                let sums = products_of(&panel[..count], &other[..count]);
                let differences = &differences[from..];
                for (row, (sums, step)) in rows.iter_mut().zip(sums.iter().zip(&steps[first..])) {
                    let row = &mut row[from - first - WIDTH..];
                    match (row.first_chunk_mut(), differences.first_chunk()) {
                        (Some(row), Some(differences)) => add_whole(row, sums, *step, differences),
                        _ => add(row, sums, *step, differences),
                    }
                }
            }
        }
    }
}

#[inline(always)]
fn add(row: &mut [f64], sums: &[f64], step: f64, differences: &[f64]) {
    for (product, (sum, difference)) in row.iter_mut().zip(sums.iter().zip(differences)) {
        *product += sum + step * difference;
    }
}

/// Add like `add`, but for a whole panel: all numbers are read before any is written.
#[inline(always)]
fn add_whole(row: &mut Panel, sums: &Panel, step: f64, differences: &Panel) {
    *row = std::array::from_fn(|k| row[k] + (sums[k] + step * differences[k]));
}

/// Compute the mean of each coordinate of a panel, and subtract it. `mean` must contain zeros.
fn centre(panel: &mut [Panel], mean: &mut Panel) {
    for frame in &*panel {
        for (mean, x) in mean.iter_mut().zip(frame) {
            *mean += x;
        }
    }
    for mean in &mut *mean {
        *mean /= panel.len() as f64;
    }
    for frame in panel {
        for (x, mean) in frame.iter_mut().zip(&*mean) {
            *x -= mean;
        }
    }
}

/// Sum the products of two panels' coordinates over frames.
#[inline(always)]
fn products_of(left: &[Panel], right: &[Panel]) -> [Panel; WIDTH] {
    let mut sums = [[0.0; WIDTH]; WIDTH];
    for (x, y) in left.iter().zip(right) {
        for (sums, x) in sums.iter_mut().zip(x) {
            for (sum, y) in sums.iter_mut().zip(y) {
                *sum += x * y;
            }
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::Random;

    const N_ATOMS: usize = 7;
    const FRAME: usize = 3 * N_ATOMS;

    #[derive(Debug, Clone, PartialEq)]
    struct Leaf {
        mean: Vec<f64>,
        products: Vec<f64>,
        count: u64,
    }

    fn leaf(block: &[f32], columns: &[usize]) -> Leaf {
        let n = 3 * columns.len();
        let mut leaf = Leaf {
            mean: vec![0.0; n],
            products: vec![0.0; triangle_len(n).unwrap()],
            count: 0,
        };
        let atoms = Superposed::new(columns, None).unwrap();
        let Leaf {
            mean,
            products,
            count,
        } = &mut leaf;
        accumulate(block, N_ATOMS, &atoms, mean, products, count).unwrap();
        leaf
    }

    fn merged(mut left: Leaf, right: &Leaf) -> Leaf {
        let Leaf {
            mean,
            products,
            count,
        } = &mut left;
        merge(
            mean,
            products,
            count,
            &right.mean,
            &right.products,
            right.count,
        )
        .unwrap();
        left
    }

    fn trajectory(n_frames: usize) -> Vec<f32> {
        let positions = Random(10).structure(n_frames * N_ATOMS, 2.0, 800.0);
        positions.iter().map(|&x| x as f32).collect()
    }

    /// Return means and products, computed in two passes.
    fn expected(block: &[f32], columns: &[usize]) -> (Vec<f64>, Vec<f64>) {
        let coordinates: Vec<usize> = columns.iter().flat_map(|i| 3 * i..3 * i + 3).collect();
        let n_frames = block.len() / FRAME;
        let value = |frame: usize, i: usize| f64::from(block[frame * FRAME + coordinates[i]]);
        let n = coordinates.len();
        let mean = |i| (0..n_frames).map(|f| value(f, i)).sum::<f64>() / n_frames as f64;
        let means: Vec<f64> = (0..n).map(mean).collect();
        let mut products = Vec::new();
        for i in 0..n {
            for j in i..n {
                let terms =
                    (0..n_frames).map(|f| (value(f, i) - means[i]) * (value(f, j) - means[j]));
                products.push(terms.sum());
            }
        }
        (means, products)
    }

    fn assert_close(found: &Leaf, (mean, products): &(Vec<f64>, Vec<f64>)) {
        for (found, expected) in found.mean.iter().zip(mean) {
            assert!((found - expected).abs() < 1e-11);
        }
        assert_eq!(found.products.len(), products.len());
        for (found, expected) in found.products.iter().zip(products) {
            assert!((found - expected).abs() < 1e-8, "{found} {expected}");
        }
    }

    #[test]
    fn one_leaf_and_merged_leaves_agree_with_two_passes() {
        let block = trajectory(53);
        for columns in [&[0, 1, 2, 3, 4, 5, 6][..], &[5, 0, 3], &[2], &[1, 6, 4, 4]] {
            let expected = expected(&block, columns);
            assert_close(&leaf(&block, columns), &expected);
            let mut leaves = block.chunks(9 * FRAME).map(|part| leaf(part, columns));
            let first = leaves.next().unwrap();
            let all = leaves.fold(first, |left, right| merged(left, &right));
            assert_eq!(all.count, 53);
            assert_close(&all, &expected);
        }
    }

    #[test]
    fn an_empty_side_changes_nothing() {
        let (full, empty) = (leaf(&trajectory(5), &[0, 4]), leaf(&[], &[0, 4]));
        assert_eq!(merged(full.clone(), &empty), full);
        assert_eq!(merged(empty, &full), full);
    }

    #[test]
    fn coordinates_that_move_together_have_equal_products() {
        // Along x, atom 1 moves twice as far as atom 0; nothing else moves.
        let block: Vec<f32> = (0..20)
            .flat_map(|frame| {
                let mut positions = [1.0; FRAME];
                positions[0] = frame as f32;
                positions[3] = 2.0 * frame as f32;
                positions
            })
            .collect();
        let found = leaf(&block, &[0, 1]);
        let square = 20.0 * (400.0 - 1.0) / 12.0;
        let (of_both, of_second) = (found.products[3], found.products[6 + 5 + 4]);
        assert!((found.products[0] - square).abs() < 1e-9);
        assert!((of_both - 2.0 * square).abs() < 1e-9);
        assert!((of_second - 4.0 * square).abs() < 1e-9);
        let rest: f64 = found.products.iter().sum();
        assert!((rest - 7.0 * square).abs() < 1e-9);
    }

    #[test]
    fn a_position_that_is_no_number_shows() {
        let mut block = trajectory(3);
        let known = leaf(&block, &[2, 3]);
        block[FRAME] = f32::NAN;
        assert_eq!(leaf(&block, &[2, 3]), known, "of an atom not asked for");
        block[FRAME + 3 * 2] = f32::NAN;
        let found = leaf(&block, &[2, 3]);
        let nan: Vec<bool> = found.products.iter().map(|x| x.is_nan()).collect();
        assert!(nan[..6].iter().all(|&nan| nan) && !nan[6..].iter().any(|&nan| nan));
    }

    #[test]
    fn what_does_not_belong_together_is_refused() {
        let atoms = Superposed::new(&[0, 7], None).unwrap();
        let mut count = 0;
        let mut add = |n_atoms, mean: &mut [f64], products: &mut [f64]| {
            accumulate(&[0.0; 24], n_atoms, &atoms, mean, products, &mut count).is_ok()
        };
        assert!(add(8, &mut [0.0; 6], &mut [0.0; 21]));
        assert!(!add(4, &mut [0.0; 6], &mut [0.0; 21]));
        assert!(!add(8, &mut [0.0; 3], &mut [0.0; 21]));
        assert!(!add(8, &mut [0.0; 6], &mut [0.0; 36]));
        assert!(merge(&mut [0.0], &mut [0.0], &mut count, &[0.0; 2], &[0.0; 3], 1).is_err());
        assert!(triangle_len(usize::MAX).is_err());
    }
}
