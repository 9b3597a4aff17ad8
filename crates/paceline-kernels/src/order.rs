//! Order parameters: orientation of vectors between pairs of atoms relative to an axis.

use super::cell::square;
use super::check_len;
use super::distances::{Groups, difference};
use super::row_kernel::{Frames, RowKernel};
use super::transform_common::Refused;
use paceline_base::error::{Error, Result};

/// Order parameters: means of (3 cos² θ − 1) / 2, where θ is the angle between a vector and an
/// axis.
#[derive(Debug, Clone)]
pub struct Order {
    ends: Groups<2>,
    sizes: Vec<usize>,
    axis: [f64; 3],
}

impl Order {
    /// Create a kernel for vectors between pairs of atoms. `ends` contains the two atoms of each
    /// vector. If `periodic`, a vector ends at the nearest image of the second atom. `sizes`
    /// contains the number of consecutive vectors in each mean. The axis may have any length.
    ///
    /// # Errors
    /// [`Error::Argument`] if a mean contains no vectors, `ends` does not contain two atoms for
    /// each vector, or the axis has no direction.
    pub fn new(
        ends: [&[usize]; 2],
        sizes: &[usize],
        axis: [f64; 3],
        periodic: bool,
    ) -> Result<Self> {
        let n_vectors = sizes.iter().sum();
        for atoms in ends {
            check_len("atoms at the ends of vectors", atoms.len(), n_vectors)?;
        }
        let length = square(axis).sqrt();
        if sizes.contains(&0) || !(length.is_finite() && length > 0.0) {
            let reason = "order parameters need vectors and an axis";
            return Err(Error::Argument(reason.to_string()));
        }
        Ok(Order {
            ends: Groups::new(ends, periodic)?,
            sizes: sizes.to_vec(),
            axis: axis.map(|x| x / length),
        })
    }
}

impl RowKernel for Order {
    fn n_columns(&self) -> usize {
        self.sizes.len()
    }

    /// Compute means, from −0.5 to 1. A mean is NaN if a position is NaN. A frame with a vector of
    /// zero length is refused.
    fn compute(&self, frames: &Frames<'_>, out: &mut [f64]) -> Result<Option<Refused>> {
        let n_columns = self.n_columns();
        (self.ends).fill_each_row(frames, out, n_columns, |number, [from, to], images, row| {
            let (_, placement) = frames.before(number);
            let axis = placement.map_or(self.axis, |placement| placement.turned(self.axis));
            let mut vector = 0;
            for (mean, &size) in row.iter_mut().zip(&self.sizes) {
                let mut sum = 0.0;
                for k in vector..vector + size {
                    let d = images.nearest(difference(to.at(k), from.at(k)));
                    let along = d[0] * axis[0] + d[1] * axis[1] + d[2] * axis[2];
                    let length = square(d);
                    if length == 0.0 {
                        return Err(format!("both atoms of vector {k} are at the same position"));
                    }
                    sum += along * along / length;
                }
                vector += size;
                *mean = 1.5 * sum / size as f64 - 0.5;
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::Random;

    const CELL: [f32; 6] = [10.0, 12.0, 14.0, 90.0, 90.0, 90.0];

    fn row(task: &Order, frame: &[f32], cell: [f32; 6]) -> Result<Vec<f64>, String> {
        let mut row = vec![9.0; task.n_columns()];
        let frames = Frames::new(frame, frame.len() / 3, &cell).expect("a frame");
        match task.compute(&frames, &mut row).expect("atoms") {
            None => Ok(row),
            Some((_, reason)) => Err(reason),
        }
    }

    #[test]
    fn along_an_axis_across_it_and_between() {
        // Vectors from the first atom: up, down across the boundary of the cell, sideways, and at
        // 60° to z.
        let frame = [
            [1.0, 1.0, 1.0],
            [1.0, 1.0, 2.0],
            [1.0, 1.0, 13.5],
            [9.5, 1.0, 1.0],
            [1.0, 1.0 + 0.75_f32.sqrt(), 1.5],
        ];
        let ends: [&[usize]; 2] = [&[0, 0, 0, 0], &[1, 2, 3, 4]];
        let task = |sizes: &[usize], axis| Order::new(ends, sizes, axis, true).expect("vectors");
        let found = row(&task(&[1; 4], [0.0, 0.0, 7.0]), frame.as_flattened(), CELL);
        for (found, wanted) in found.expect("a row").iter().zip([1.0, 1.0, -0.5, -0.125]) {
            assert!((found - wanted).abs() < 1e-6);
        }
        let found = row(&task(&[3, 1], [-1.0, 0.0, 0.0]), frame.as_flattened(), CELL);
        for (found, wanted) in found.expect("a row").iter().zip([0.0, -0.5]) {
            assert!((found - wanted).abs() < 1e-6);
        }
    }

    #[test]
    fn directions_of_no_order_have_none() {
        let mut random = Random(72);
        let n = 4000;
        let frame: Vec<f32> = (0..n)
            .flat_map(|_| {
                let direction = loop {
                    let d = random.vector::<3>().map(|x| 2.0 * x - 1.0);
                    if (0.01..1.0).contains(&square(d)) {
                        break d;
                    }
                };
                [[0.0; 3], direction]
            })
            .flatten()
            .map(|x| x as f32)
            .collect();
        let ends: [Vec<usize>; 2] = [0, 1].map(|k| (0..n).map(|i| 2 * i + k).collect());
        let task = Order::new([&ends[0], &ends[1]], &[n], [1.0, 2.0, -3.0], true);
        let found = row(&task.expect("vectors"), &frame, [0.0; 6]).expect("a row");
        assert!(found[0].abs() < 0.02, "{found:?}");
    }

    #[test]
    fn what_has_no_order_is_refused() {
        let axis = [0.0, 0.0, 1.0];
        let task = Order::new([&[0], &[1]], &[1], axis, true).expect("a vector");
        let none = row(&task, &[1.0; 6], CELL);
        assert!(none.is_err_and(|reason| reason.contains("vector 0 are at the same position")));
        let unknown = row(&task, &[1.0, 1.0, f32::NAN, 2.0, 2.0, 2.0], CELL).expect("a row");
        assert!(unknown[0].is_nan());
        assert!(Order::new([&[0], &[1]], &[0, 1], axis, true).is_err());
        assert!(Order::new([&[0], &[1]], &[2], axis, true).is_err());
        assert!(Order::new([&[0], &[1]], &[1], [0.0; 3], true).is_err());
        assert!(Order::new([&[], &[]], &[], axis, true).is_err());
    }
}
