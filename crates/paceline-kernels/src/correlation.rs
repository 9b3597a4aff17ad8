//! Time correlation functions of particle series: mean squared displacements and autocorrelations,
//! computed directly or by fast Fourier transform.
//!
//! - Calandrini, Pellegrini, Calligari, Hinsen & Kneller (2011), Collection SFN 12, 201,
//!   doi:10.1051/sfn/201112010
//!
//! The order of sums over frames depends only on the series, except within the Fourier transform,
//! where it also depends on the processor.

use std::sync::Arc;

use super::check_len;
use super::instructions::by_widest;
use paceline_base::error::{Error, Result};
use realfft::{RealFftPlanner, RealToComplex};
use rustfft::num_complex::Complex;
use rustfft::{Fft, FftPlanner};

/// Number of partial sums of a sum over frames.
const LANES: usize = 8;

/// Function of two values of a series. Its mean over pairs of frames is computed for each lag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Correlated {
    /// Squared distance.
    Displacement,
    /// Inner product.
    Product,
}

/// Computes a function of the lag time, averaged over all pairs of frames with this lag.
#[derive(Clone)]
pub struct Correlation {
    correlated: Correlated,
    n_frames: usize,
    width: usize,
    axes: Vec<usize>,
    /// Frames that were skipped, ascending.
    gaps: Vec<usize>,
    /// Number of pairs of frames for each lag; NaN if there are none.
    n_pairs: Vec<f64>,
    transforms: Option<Transforms>,
}

/// Fourier transforms without zero padding: their length is approximately that of the series, and
/// not twice that of the series.
///
/// The series x(t) is multiplied by w(t) = exp(−iπt / 2n). This shifts frequencies by a quarter of
/// a step, so that products that wrap around the end of the n frames get a factor i. For a real
/// series, the real part of the result at a lag is therefore Σ x(t) x(t + lag). The imaginary part
/// is this sum at the lag n − lag.
#[derive(Clone)]
struct Transforms {
    len: usize,
    /// Weights w(t) of the numbers of a series.
    weights: Vec<Complex<f64>>,
    forward: Arc<dyn Fft<f64>>,
    /// Inverse transform of the power spectrum; the spectrum is real.
    inverse: Arc<dyn RealToComplex<f64>>,
}

impl Correlation {
    /// Create the computation for series with `width` numbers per value. Only the numbers at `axes`
    /// are used. `gaps` contains the skipped frames, ascending. `fft` selects Fourier transforms.
    ///
    /// # Errors
    /// [`Error::Argument`] if there are no frames or axes, an axis is `width` or larger, or gaps
    /// are not ascending frame numbers.
    pub fn new(
        correlated: Correlated,
        n_frames: usize,
        width: usize,
        axes: &[usize],
        gaps: &[usize],
        fft: bool,
    ) -> Result<Self> {
        let is_valid = n_frames > 0
            && n_frames < usize::MAX / 8
            && !axes.is_empty()
            && axes.iter().all(|&axis| axis < width)
            && gaps.is_sorted_by(|a, b| a < b)
            && gaps.last().is_none_or(|&last| last < n_frames);
        if !is_valid {
            return Err(Error::Argument(
                "a correlation needs frames, valid axes, and gaps that are ascending frame numbers"
                    .into(),
            ));
        }
        Ok(Correlation {
            correlated,
            n_frames,
            width,
            axes: axes.to_vec(),
            gaps: gaps.to_vec(),
            n_pairs: n_pairs(n_frames, gaps),
            transforms: fft.then(|| Transforms::new(n_frames)),
        })
    }

    /// Compute the function of each particle. Write one row per particle, with one number per lag,
    /// to `out`, and the sum of all rows to `sum`. `series` has the shape (frames, particles,
    /// `width`). Lags without a pair of frames are NaN.
    ///
    /// # Errors
    /// [`Error::Argument`] if the sizes of the slices do not match.
    pub fn fill<T: Copy + Into<f64>>(
        &self,
        series: &[T],
        out: &mut [f64],
        sum: &mut [f64],
    ) -> Result<()> {
        let stride = series.len() / self.n_frames;
        let n_particles = stride / self.width;
        check_len(
            "numbers of a series",
            series.len(),
            n_particles * self.width * self.n_frames,
        )?;
        check_len("numbers to fill", out.len(), n_particles * self.n_frames)?;
        check_len("sums", sum.len(), self.n_frames)?;
        sum.fill(0.0);
        let mut scratch = Scratch::default();
        for (particle, row) in out.chunks_exact_mut(self.n_frames).enumerate() {
            let values = (&series[particle * self.width..], stride);
            self.gather(values, &mut scratch);
            match &self.transforms {
                Some(transforms) => self.by_transform(transforms, &mut scratch, row)?,
                None => self.by_definition(&scratch, row),
            }
            add_to(sum, row);
        }
        Ok(())
    }

    /// Copy each axis of a particle into a separate array. Displacements are relative to the first
    /// frame: this avoids cancellation far from zero. Values in gaps are set to 0.
    fn gather<T: Copy + Into<f64>>(&self, (values, stride): (&[T], usize), scratch: &mut Scratch) {
        let first = (0..self.n_frames)
            .find(|frame| self.gaps.binary_search(frame).is_err())
            .unwrap_or(0);
        let origin = |axis: usize| match self.correlated {
            Correlated::Displacement => values[first * stride + axis].into(),
            Correlated::Product => 0.0,
        };
        scratch.axes.resize(self.axes.len(), Vec::new());
        for copy in &mut scratch.axes {
            copy.resize(self.n_frames, 0.0);
        }
        if let ([i, j, k], [x, y, z]) = (&self.axes[..], &mut scratch.axes[..]) {
            // All axes are copied in one pass, because the numbers of a particle in a frame are
            // adjacent.
            let origins = [origin(*i), origin(*j), origin(*k)];
            let copies = x.iter_mut().zip(y).zip(z);
            for (value, ((x, y), z)) in values.chunks(stride).zip(copies) {
                *x = value[*i].into() - origins[0];
                *y = value[*j].into() - origins[1];
                *z = value[*k].into() - origins[2];
            }
        } else {
            for (&axis, copy) in self.axes.iter().zip(&mut scratch.axes) {
                let origin = origin(axis);
                for (x, value) in copy.iter_mut().zip(values[axis..].iter().step_by(stride)) {
                    *x = (*value).into() - origin;
                }
            }
        }
        for copy in &mut scratch.axes {
            for &gap in &self.gaps {
                copy[gap] = 0.0;
            }
        }
    }

    fn by_definition(&self, scratch: &Scratch, out: &mut [f64]) {
        let mut counts = Vec::new();
        if !self.gaps.is_empty() {
            counts = vec![1.0; self.n_frames];
            for &gap in &self.gaps {
                counts[gap] = 0.0;
            }
        }
        out.fill(0.0);
        for series in &scratch.axes {
            for (lag, out) in out.iter_mut().enumerate() {
                let (before, after) = (&series[..self.n_frames - lag], &series[lag..]);
                *out += match self.correlated {
                    Correlated::Product => sum_of(before, after, |x, y| x * y),
                    Correlated::Displacement if counts.is_empty() => {
                        sum_of(before, after, |x, y| (y - x) * (y - x))
                    }
                    Correlated::Displacement => {
                        // A pair with one skipped frame must not count. A pair of two skipped
                        // frames contributes 0 already.
                        let one = sum_of(before, after, |x, y| (y - x) * (y - x));
                        one - self
                            .gaps
                            .iter()
                            .map(|&gap| {
                                let left =
                                    gap.checked_sub(lag).map_or(0.0, |i| series[i] * series[i]);
                                let right = series.get(gap + lag).map_or(0.0, |x| x * x);
                                left + right
                            })
                            .sum::<f64>()
                    }
                };
            }
        }
        for (out, n_pairs) in out.iter_mut().zip(&self.n_pairs) {
            *out /= n_pairs;
        }
        // As with Fourier transforms, a particle with a NaN position in any frame has no result.
        if out[0].is_nan() {
            out.fill(f64::NAN);
        }
    }

    fn by_transform(
        &self,
        transforms: &Transforms,
        scratch: &mut Scratch,
        out: &mut [f64],
    ) -> Result<()> {
        let Scratch {
            axes,
            squares,
            work,
        } = scratch;
        let products = transforms.correlate(axes, work)?;
        if self.correlated == Correlated::Product {
            means(products, &self.n_pairs, out);
            return Ok(());
        }
        squares.resize(self.n_frames, 0.0);
        if let [x, y, z] = &axes[..] {
            squares_of_three(x, y, z, squares);
        } else {
            squares.fill(0.0);
            for series in &*axes {
                for (square, x) in squares.iter_mut().zip(series) {
                    *square += x * x;
                }
            }
        }
        // The sums of |x(t)|² + |x(t + lag)|² are accumulated from the largest lag down, so that no
        // subtraction is needed.
        sums_from_both_ends(squares, out);
        if !self.gaps.is_empty() {
            for (lag, both) in out.iter_mut().enumerate() {
                let mut alone = 0.0;
                for &gap in &self.gaps {
                    alone += gap.checked_sub(lag).map_or(0.0, |i| squares[i]);
                    alone += squares.get(gap + lag).copied().unwrap_or(0.0);
                }
                *both -= alone;
            }
        }
        mean_differences(products, &self.n_pairs, out);
        out[0] *= 0.0; // keeps NaN
        Ok(())
    }
}

#[derive(Default)]
struct Scratch {
    axes: Vec<Vec<f64>>,
    squares: Vec<f64>,
    work: Work,
}

#[derive(Default)]
struct Work {
    weighted: Vec<Complex<f64>>,
    spectrum: Vec<Complex<f64>>,
    scratch: Vec<Complex<f64>>,
    powers: Vec<f64>,
    products: Vec<f64>,
}

impl Transforms {
    fn new(n_frames: usize) -> Self {
        let len = transform_len(n_frames);
        let step = -std::f64::consts::FRAC_PI_2 / len as f64;
        let n_weights = n_frames.max(len / 2 + 1);
        Transforms {
            len,
            weights: (0..n_weights)
                .map(|t| Complex::cis(step * t as f64))
                .collect(),
            forward: FftPlanner::new().plan_fft_forward(len),
            inverse: RealFftPlanner::new().plan_fft_forward(len),
        }
    }

    /// Compute Σ x(t) x(t + lag) over all axes, for each lag.
    fn correlate<'a>(&self, axes: &[Vec<f64>], work: &'a mut Work) -> Result<&'a [f64]> {
        let failed = |error| Error::Argument(format!("a Fourier transform failed: {error}"));
        let Work {
            weighted,
            spectrum,
            scratch,
            powers,
            products,
        } = work;
        let zero = Complex::default();
        weighted.resize(self.len, zero);
        spectrum.resize(self.len, zero);
        powers.clear();
        powers.resize(self.len, 0.0);
        products.resize(self.len, 0.0);
        let [forward, inverse] = [
            self.forward.get_outofplace_scratch_len(),
            self.inverse.get_scratch_len(),
        ];
        scratch.resize(forward.max(inverse), zero);
        for series in axes {
            // The rest of the buffer still contains numbers from the previous transform, and is set
            // to 0.
            let (begin, rest) = weighted.split_at_mut(series.len());
            weigh(series, &self.weights, begin);
            rest.fill(zero);
            self.forward.process_outofplace_with_scratch(
                weighted,
                spectrum,
                &mut scratch[..forward],
            );
            add_powers(spectrum, powers);
        }
        let half = &mut spectrum[..self.len / 2 + 1];
        self.inverse
            .process_with_scratch(powers, half, &mut scratch[..inverse])
            .map_err(failed)?;
        turn_back(half, &self.weights, products);
        Ok(&products[..axes[0].len()])
    }
}

by_widest! {
    /// Multiply each number of a series by its weight.
    fn weigh(series: &[f64], weights: &[Complex<f64>], out: &mut [Complex<f64>]) {
        for ((out, x), weight) in out.iter_mut().zip(series).zip(weights) {
            *out = Complex::new(x * weight.re, x * weight.im);
        }
    }
}

by_widest! {
    /// Add the squared absolute value of each number of a spectrum to `powers`.
    fn add_powers(spectrum: &[Complex<f64>], powers: &mut [f64]) {
        for (power, value) in powers.iter_mut().zip(spectrum) {
            *power += value.re * value.re + value.im * value.im;
        }
    }
}

by_widest! {
    /// Remove the weights after a transform of n products. The real part of element k then yields
    /// the product of lag k, and the imaginary part that of lag n − k.
    fn turn_back(half: &[Complex<f64>], weights: &[Complex<f64>], products: &mut [f64]) {
        let scale = 1.0 / products.len() as f64;
        let middle = half.len() - 1;
        let (near, far) = products.split_at_mut(middle);
        for ((product, value), weight) in near.iter_mut().zip(half).zip(weights) {
            *product = (value.re * weight.re - value.im * weight.im) * scale;
        }
        let ends = half[1..].iter().zip(&weights[1..]);
        for (product, (value, weight)) in far.iter_mut().rev().zip(ends) {
            *product = -(value.re * weight.im + value.im * weight.re) * scale;
        }
    }
}

by_widest! {
    /// Compute squared lengths of vectors whose axes are in separate arrays.
    fn squares_of_three(x: &[f64], y: &[f64], z: &[f64], out: &mut [f64]) {
        for (out, ((x, y), z)) in out.iter_mut().zip(x.iter().zip(y).zip(z)) {
            *out = x * x + y * y + z * z;
        }
    }
}

by_widest! {
    /// For each k, add up the first k + 1 and the last k + 1 of n numbers, and write the sum to
    /// `out[n - 1 - k]`.
    fn sums_from_both_ends(numbers: &[f64], out: &mut [f64]) {
        let (mut total, n) = (0.0, numbers.len());
        // The sums of four steps do not depend on `total`, so that they need not wait for the
        // additions of the steps before.
        let mut k = 0;
        while k + 4 <= n {
            let (early, late) = (&numbers[k..k + 4], &numbers[n - k - 4..n - k]);
            let some = &mut out[n - k - 4..n - k];
            let first = early[0] + late[3];
            let second = first + (early[1] + late[2]);
            let third = second + (early[2] + late[1]);
            let fourth = third + (early[3] + late[0]);
            some[3] = total + first;
            some[2] = total + second;
            some[1] = total + third;
            some[0] = total + fourth;
            total += fourth;
            k += 4;
        }
        for k in k..n {
            total += numbers[k] + numbers[n - 1 - k];
            out[n - 1 - k] = total;
        }
    }
}

by_widest! {
    /// Divide sums by counts.
    fn means(sums: &[f64], counts: &[f64], out: &mut [f64]) {
        for (out, (sum, count)) in out.iter_mut().zip(sums.iter().zip(counts)) {
            *out = sum / count;
        }
    }
}

by_widest! {
    /// Subtract twice the products from the sums of squares in `out`, and divide by the counts.
    fn mean_differences(products: &[f64], counts: &[f64], out: &mut [f64]) {
        for (out, (product, count)) in out.iter_mut().zip(products.iter().zip(counts)) {
            *out = (*out - 2.0 * product) / count;
        }
    }
}

by_widest! {
    fn add_to(total: &mut [f64], row: &[f64]) {
        for (total, value) in total.iter_mut().zip(row) {
            *total += *value;
        }
    }
}

/// Return the smallest length that is at least `least`, a product of 2, 3 and 5, and a multiple of
/// 16. Transforms of other lengths take up to twice as long.
fn transform_len(least: usize) -> usize {
    let is_fast = |len: &usize| {
        let mut rest = *len;
        for prime in [2, 3, 5] {
            while rest.is_multiple_of(prime) {
                rest /= prime;
            }
        }
        rest == 1
    };
    (least.div_ceil(16)..)
        .find(is_fast)
        .map_or(least, |part| 16 * part)
}

/// Return the number of pairs of frames for each lag, excluding pairs with a frame in a gap; NaN if
/// there are none.
fn n_pairs(n_frames: usize, gaps: &[usize]) -> Vec<f64> {
    let mut lost = vec![0usize; n_frames];
    for (k, &gap) in gaps.iter().enumerate() {
        // A skipped frame excludes the pairs of which it is the later frame, and those of which it
        // is the earlier frame. A pair of two skipped frames is excluded only once.
        for lost in &mut lost[..=gap] {
            *lost += 1;
        }
        for lost in &mut lost[..n_frames - gap] {
            *lost += 1;
        }
        for &earlier in &gaps[..=k] {
            lost[gap - earlier] -= 1;
        }
    }
    let distances = lost.iter().enumerate();
    distances
        .map(|(lag, lost)| match n_frames - lag - lost {
            0 => f64::NAN,
            n_pairs => n_pairs as f64,
        })
        .collect()
}

/// Return the sum of `of(x, y)` over the pairs of numbers in two series.
#[inline(always)]
fn sum_of(x: &[f64], y: &[f64], of: impl Fn(f64, f64) -> f64) -> f64 {
    let mut sums = [0.0; LANES];
    let ((x, x_rest), (y, y_rest)) = (x.as_chunks::<LANES>(), y.as_chunks::<LANES>());
    for (x, y) in x.iter().zip(y) {
        for lane in 0..LANES {
            sums[lane] += of(x[lane], y[lane]);
        }
    }
    for (sum, (x, y)) in sums.iter_mut().zip(x_rest.iter().zip(y_rest)) {
        *sum += of(*x, *y);
    }
    let [a, b, c, d, e, f, g, h] = sums;
    ((a + b) + (c + d)) + ((e + f) + (g + h))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::Random;

    /// Return random walks of particles far from zero.
    fn walks(n_frames: usize, n_particles: usize) -> Vec<f64> {
        let mut random = Random(11);
        let mut positions: Vec<f64> = (0..3 * n_particles)
            .map(|_| 500.0 * random.number())
            .collect();
        let frames = (0..n_frames).flat_map(|_| {
            for x in &mut positions {
                *x += random.number();
            }
            positions.clone()
        });
        frames.collect()
    }

    #[test]
    fn a_particle_that_is_nowhere_in_a_frame_is_unknown_at_all_lags() {
        let (n_frames, n) = (9, 3);
        let mut series = walks(n_frames, n);
        series[3 * n * 4 + 3] = f64::NAN; // of particle 1 in frame 4
        for correlated in [Correlated::Product, Correlated::Displacement] {
            for fft in [false, true] {
                let task = Correlation::new(correlated, n_frames, 3, &[0, 1, 2], &[7], fft);
                let (mut out, mut sum) = (vec![0.0; n * n_frames], vec![0.0; n_frames]);
                let filled = task.expect("a task").fill(&series, &mut out, &mut sum);
                filled.expect("whole frames");
                let is_known: Vec<bool> = out.iter().map(|x| !x.is_nan()).collect();
                let known = [true, false, true].map(|is_known| vec![is_known; n_frames]);
                assert_eq!(is_known, known.concat(), "{correlated:?} {fft}");
            }
        }
    }

    /// Compute the function directly from the definition.
    fn plain(
        series: &[f64],
        n_frames: usize,
        particle: usize,
        axes: &[usize],
        gaps: &[usize],
        correlated: Correlated,
    ) -> Vec<f64> {
        let stride = series.len() / n_frames;
        let value = |frame: usize, axis: usize| series[frame * stride + 3 * particle + axis];
        let lags = (0..n_frames).map(|lag| {
            let counts = |t: &usize| !gaps.contains(t) && !gaps.contains(&(t + lag));
            let origins: Vec<usize> = (0..n_frames - lag).filter(counts).collect();
            let of = |x: f64, y: f64| match correlated {
                Correlated::Displacement => (y - x) * (y - x),
                Correlated::Product => x * y,
            };
            let sum: f64 = origins
                .iter()
                .flat_map(|&t| axes.iter().map(move |&axis| (t, axis)))
                .map(|(t, axis)| of(value(t, axis), value(t + lag, axis)))
                .sum();
            sum / origins.len() as f64
        });
        lags.collect()
    }

    #[test]
    fn both_ways_agree_with_the_definition() {
        let n_particles = 3;
        for n_frames in [1, 2, 7, 50, 128] {
            for gaps in [vec![], vec![0], vec![1, 4, 5], vec![0, 6, 49]] {
                if gaps.last().is_some_and(|&last| last >= n_frames) {
                    continue;
                }
                let mut series = walks(n_frames, n_particles);
                for &gap in &gaps {
                    series[3 * n_particles * gap..3 * n_particles * (gap + 1)].fill(f64::NAN);
                }
                for correlated in [Correlated::Displacement, Correlated::Product] {
                    for (axes, fft) in [
                        (vec![0, 1, 2], true),
                        (vec![2], false),
                        (vec![2, 0], true),
                        (vec![0, 1, 2], false),
                    ] {
                        let task =
                            Correlation::new(correlated, n_frames, 3, &axes, &gaps, fft).unwrap();
                        let (mut out, mut sum) =
                            (vec![-1.0; n_particles * n_frames], vec![-1.0; n_frames]);
                        task.fill(&series, &mut out, &mut sum).unwrap();
                        for particle in 0..n_particles {
                            let wanted =
                                plain(&series, n_frames, particle, &axes, &gaps, correlated);
                            let size = wanted.iter().fold(1.0f64, |a, b| a.max(b.abs()));
                            let row = &out[particle * n_frames..][..n_frames];
                            for (lag, (found, wanted)) in row.iter().zip(&wanted).enumerate() {
                                let same = (found - wanted).abs() < 1e-10 * size
                                    || (found.is_nan() && wanted.is_nan());
                                assert!(
                                    same,
                                    "{n_frames} {gaps:?} {correlated:?} {fft} {lag}: {found} {wanted}"
                                );
                            }
                        }
                        for (lag, sum) in sum.iter().enumerate() {
                            let wanted: f64 =
                                (0..n_particles).map(|k| out[k * n_frames + lag]).sum();
                            assert!(
                                (sum - wanted).abs() <= 1e-12 * wanted.abs() || wanted.is_nan()
                            );
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn parts_and_precision_of_the_series_change_no_bit() {
        let (n_frames, n) = (60, 5);
        let single: Vec<f32> = walks(n_frames, n).iter().map(|&x| x as f32).collect();
        let double: Vec<f64> = single.iter().map(|&x| x.into()).collect();
        for fft in [true, false] {
            let task =
                Correlation::new(Correlated::Displacement, n_frames, 3, &[0, 1, 2], &[], fft)
                    .unwrap();
            let (mut whole, mut sum) = (vec![0.0; n * n_frames], vec![0.0; n_frames]);
            task.fill(&double, &mut whole, &mut sum).unwrap();
            for k in 0..n {
                let part: Vec<f32> = single
                    .chunks(3 * n)
                    .flat_map(|frame| frame[3 * k..3 * k + 3].to_vec())
                    .collect();
                let mut row = vec![0.0; n_frames];
                task.fill(&part, &mut row, &mut sum).unwrap();
                assert_eq!(row, whole[k * n_frames..(k + 1) * n_frames]);
            }
        }
    }

    #[test]
    fn what_does_not_belong_together_is_refused() {
        let new = |n, axes: &[usize], gaps: &[usize]| {
            Correlation::new(Correlated::Product, n, 3, axes, gaps, true)
        };
        assert!(new(0, &[0], &[]).is_err() && new(3, &[], &[]).is_err());
        assert!(
            new(3, &[3], &[]).is_err()
                && new(3, &[0], &[3]).is_err()
                && new(3, &[0], &[1, 1]).is_err()
        );
        let task = new(3, &[0], &[]).unwrap();
        assert!(task.fill(&[0.0; 10], &mut [0.0; 3], &mut [0.0; 3]).is_err());
        assert!(task.fill(&[0.0; 9], &mut [0.0; 4], &mut [0.0; 3]).is_err());
        assert!(task.fill(&[0.0; 9], &mut [0.0; 3], &mut [0.0; 2]).is_err());
    }

    #[test]
    fn lengths_of_transforms_are_fast_and_long_enough() {
        for (least, wanted) in [
            (1, 16),
            (2, 16),
            (18, 32),
            (20_000, 20_000),
            (20_001, 20_480),
        ] {
            assert_eq!(transform_len(least), wanted);
        }
    }
}
