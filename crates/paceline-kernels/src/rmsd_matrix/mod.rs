//! RMSDs between all pairs of frames, computed in tiles of the matrix.
//!
//! Inner products of two frames are sums over atoms in order. SIMD lanes compute different pairs,
//! so that neither the register width nor the position of a pair in a tile changes the bits of its
//! RMSD. Products and sums use fused multiply-add, which reduces the time to 0.75 with AVX-512. A
//! processor without this instruction takes 27 times as long, because the C library emulates it.

use std::ops::Range;

use super::check_len;
#[cfg(target_arch = "x86_64")]
use super::instructions::{Instructions, used};
use super::superposition::{CANCELLED, MIN_SLOPE, Matrix3, Optimum, relative};
use paceline_base::error::{Error, Result};

/// Numbers of rows whose products are summed together, for each instruction set: divisors of 24
/// that fill the registers.
const BASE_ROWS: usize = 1;
#[cfg(target_arch = "x86_64")]
const AVX2_ROWS: usize = 4;
#[cfg(target_arch = "x86_64")]
const AVX512_ROWS: usize = 8;

/// Number of frames in a panel, one per SIMD lane.
const LANES: usize = 8;

/// One number for each frame of a panel.
type Lanes = [f64; LANES];

/// Coordinates x, y, z of an atom in the frames of a panel.
type AtomLanes = [Lanes; 3];

/// Number of row frames that are compared with all columns at a time, a multiple of [`LANES`].
/// Frames of a few hundred atoms then stay in the second-level cache.
const GROUP: usize = 256;

/// Number of atoms whose products are summed at a time. The atoms of two panels then stay in the
/// first-level cache.
const ATOMS: usize = 96;

/// Maximum number of Newton steps before a root is left to the slower method.
const STEPS: usize = 24;

/// Number of columns of a tile that are written to the mirror image at a time: one cache line.
const COLUMNS: usize = 8;

/// Computes the RMSD of pairs of frames.
#[derive(Debug, Clone)]
pub struct PairRmsd {
    n_atoms: usize,
    /// Weights relative to their mean; `None` for weights of 1.
    weights: Option<Vec<f64>>,
    superposition: bool,
}

/// Up to [`LANES`] frames, with separate arrays for the atoms.
struct Panel {
    /// Positions, Å. With superposition, they are relative to the weighted centre of each frame.
    atoms: Vec<AtomLanes>,
    /// Centre of each frame, Å.
    centres: AtomLanes,
    /// Squared size of each frame, Σ w x², Å².
    norms: Lanes,
}

impl PairRmsd {
    /// Create a comparison. With superposition, the RMSD is the minimum over translations and
    /// rotations. Only ratios of weights matter.
    ///
    /// # Errors
    /// [`Error::Argument`] if there are no atoms, the number of weights differs, or weights are
    /// negative, not finite or all 0.
    pub fn new(n_atoms: usize, weights: Option<&[f64]>, superposition: bool) -> Result<Self> {
        if n_atoms == 0 {
            return Err(Error::Argument("an RMSD needs at least one atom".into()));
        }
        let weights = weights.map(|weights| relative(weights, n_atoms));
        Ok(PairRmsd {
            n_atoms,
            weights: weights.transpose()?,
            superposition,
        })
    }

    /// Fill `out` with the RMSD (Å) of each frame of `first` from each frame of `second`, one row
    /// per frame of `first`. `convert` is applied to each RMSD. Frames contain x, y, z (Å) of each
    /// atom; a NaN makes all RMSDs of its frame NaN. If `first` and `second` are the same slice,
    /// some pairs below the diagonal are not written.
    ///
    /// # Errors
    /// [`Error::Argument`] if the slices do not contain whole frames, or `out` has the wrong size.
    pub fn fill<T>(
        &self,
        first: &[f32],
        second: &[f32],
        convert: impl Fn(f64) -> T,
        out: &mut [T],
    ) -> Result<()> {
        let len = 3 * self.n_atoms;
        if !first.len().is_multiple_of(len) || !second.len().is_multiple_of(len) {
            return Err(Error::Argument(format!(
                "{} and {} coordinates are not whole frames of {} atoms",
                first.len(),
                second.len(),
                self.n_atoms
            )));
        }
        check_len(
            "RMSDs to fill",
            out.len(),
            first.len() / len * (second.len() / len),
        )?;
        #[cfg(target_arch = "x86_64")]
        match used() {
            // SAFETY: the processor has all features that the functions are compiled for.
            Instructions::Avx512 => unsafe { self.fill_by_avx512(first, second, convert, out) },
            Instructions::Avx2 => unsafe { self.fill_by_avx2(first, second, convert, out) },
            Instructions::Base => self.fill_by::<BASE_ROWS, T>(first, second, convert, out),
        }
        #[cfg(not(target_arch = "x86_64"))]
        self.fill_by::<BASE_ROWS, T>(first, second, convert, out);
        Ok(())
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,fma")]
    fn fill_by_avx512<T>(
        &self,
        first: &[f32],
        second: &[f32],
        convert: impl Fn(f64) -> T,
        out: &mut [T],
    ) {
        self.fill_by::<AVX512_ROWS, T>(first, second, convert, out);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma")]
    fn fill_by_avx2<T>(
        &self,
        first: &[f32],
        second: &[f32],
        convert: impl Fn(f64) -> T,
        out: &mut [T],
    ) {
        self.fill_by::<AVX2_ROWS, T>(first, second, convert, out);
    }

    /// Fill the tile. `ROWS` is the number of rows that the instruction set sums together.
    #[inline(always)]
    fn fill_by<const ROWS: usize, T>(
        &self,
        first: &[f32],
        second: &[f32],
        convert: impl Fn(f64) -> T,
        out: &mut [T],
    ) {
        let len = 3 * self.n_atoms;
        let same = std::ptr::eq(first, second);
        let n_columns = second.len() / len;
        for (group, rows) in first.chunks(GROUP * len).enumerate() {
            let out = &mut out[group * GROUP * n_columns..][..rows.len() / len * n_columns];
            // For equal slices, pairs below the diagonal equal those above, and are skipped.
            let begin = if same { group * GROUP } else { 0 };
            self.fill_group::<ROWS, T>(rows, (second, begin, same), &convert, out);
        }
    }

    /// Fill some rows, starting at a column; for equal slices, skip pairs below the diagonal.
    #[inline(always)]
    fn fill_group<const ROWS: usize, T>(
        &self,
        first: &[f32],
        (second, begin, same): (&[f32], usize, bool),
        convert: impl Fn(f64) -> T,
        out: &mut [T],
    ) {
        let len = 3 * self.n_atoms;
        let rows: Vec<Panel> = first
            .chunks(LANES * len)
            .map(|some| self.panel(some))
            .collect();
        let n_columns = second.len() / len;
        for (number, some) in second[begin * len..].chunks(LANES * len).enumerate() {
            let mut columns = self.panel(some);
            if let Some(weights) = self.weights.as_ref().filter(|_| self.superposition) {
                weigh(&mut columns.atoms, weights);
            }
            let (column, width) = (begin + number * LANES, some.len() / len);
            let n_rows = if same { number + 1 } else { rows.len() };
            for (panel, row) in rows.iter().take(n_rows).zip((0..).step_by(LANES)) {
                let height = LANES.min(first.len() / len - row);
                let mut found = [[0.0; LANES]; LANES];
                if self.superposition {
                    let frames = (&first[row * len..], &second[column * len..]);
                    self.superpose::<ROWS>(panel, &columns, (height, width), frames, &mut found);
                } else {
                    self.deviations(&panel.atoms, &columns.atoms, &mut found);
                }
                for (i, found) in found.iter().take(height).enumerate() {
                    let out = &mut out[(row + i) * n_columns + column..][..width];
                    for (out, x) in out.iter_mut().zip(found) {
                        *out = convert(*x);
                    }
                }
            }
        }
    }

    /// Compute the RMSDs of the frames of two panels after superposition. `frames` contains the
    /// frames of both panels.
    #[inline(always)]
    fn superpose<const ROWS: usize>(
        &self,
        rows: &Panel,
        columns: &Panel,
        (height, width): (usize, usize),
        frames: (&[f32], &[f32]),
        found: &mut [Lanes; LANES],
    ) {
        let products = inner_products::<ROWS>(rows, columns);
        for (i, found) in found.iter_mut().enumerate() {
            let of_row = &products.each_ref().map(|of_axis| of_axis[i]);
            let half_norms = columns.norms.map(|norm| 0.5 * (rows.norms[i] + norm));
            let is_exact = self.min_rmsds(of_row, &half_norms, found);
            for j in 0..width {
                if !is_exact[j] && i < height {
                    let inner = of_row.map(|row| row.map(|lanes| lanes[j]));
                    let centres = (
                        rows.centres.map(|lanes| lanes[i]),
                        columns.centres.map(|lanes| lanes[j]),
                    );
                    let pair = (self.frame(frames.0, i), self.frame(frames.1, j));
                    found[j] = self.careful_rmsd(pair, centres, &inner, half_norms[j]);
                }
            }
        }
    }

    fn frame<'a>(&self, frames: &'a [f32], number: usize) -> &'a [f32] {
        &frames[3 * self.n_atoms * number..][..3 * self.n_atoms]
    }

    /// Collect frames into a panel, and centre them for superposition.
    #[inline(always)]
    fn panel(&self, frames: &[f32]) -> Panel {
        let mut atoms = vec![[[0.0; LANES]; 3]; self.n_atoms];
        for (lane, frame) in frames.chunks_exact(3 * self.n_atoms).enumerate() {
            for (of_atom, x) in atoms.iter_mut().zip(frame.as_chunks::<3>().0) {
                for axis in 0..3 {
                    of_atom[axis][lane] = x[axis].into();
                }
            }
        }
        let mut panel = Panel {
            atoms,
            centres: [[0.0; LANES]; 3],
            norms: [0.0; LANES],
        };
        if self.superposition {
            self.centre(&mut panel);
        }
        panel
    }

    /// Centre the frames of a panel. Positions are first relative to the first atom: this avoids
    /// cancellation far from the origin.
    #[inline(always)]
    fn centre(&self, panel: &mut Panel) {
        let origin = panel.atoms[0];
        let mut sums = [[0.0; LANES]; 3];
        let weight = |atom: usize| self.weights.as_ref().map_or(1.0, |weights| weights[atom]);
        for (atom, of_atom) in panel.atoms.iter().enumerate() {
            for axis in 0..3 {
                for lane in 0..LANES {
                    sums[axis][lane] += weight(atom) * (of_atom[axis][lane] - origin[axis][lane]);
                }
            }
        }
        for axis in 0..3 {
            for lane in 0..LANES {
                panel.centres[axis][lane] =
                    origin[axis][lane] + sums[axis][lane] / self.n_atoms as f64;
            }
        }
        let mut norms = [[0.0; LANES]; 3];
        for (atom, of_atom) in panel.atoms.iter_mut().enumerate() {
            for axis in 0..3 {
                for lane in 0..LANES {
                    let x = of_atom[axis][lane] - panel.centres[axis][lane];
                    of_atom[axis][lane] = x;
                    norms[axis][lane] += weight(atom) * (x * x);
                }
            }
        }
        let [x, y, z] = norms;
        panel.norms = std::array::from_fn(|lane| x[lane] + y[lane] + z[lane]);
    }

    /// Compute √((Ga + Gb − 2λ) / N) of Theobald (2005) for the pairs of a panel. For each pair,
    /// return false if the result is not exact enough: λ is a multiple root, Newton's method did
    /// not converge, or cancellation would lose too many digits.
    #[inline(always)]
    fn min_rmsds(&self, m: &[[Lanes; 3]; 3], half_norms: &Lanes, out: &mut Lanes) -> [bool; LANES] {
        let mut scales = [0.0; LANES];
        let mut scaled = *m;
        for lane in 0..LANES {
            let mut square = 0.0;
            for row in m {
                for column in row {
                    square += column[lane] * column[lane];
                }
            }
            scales[lane] = (3.0 * square).sqrt();
        }
        for row in &mut scaled {
            for column in row {
                for lane in 0..LANES {
                    column[lane] /= scales[lane];
                }
            }
        }
        let (c1, c0) = coefficients(&scaled);
        let mut roots = [0.0; LANES];
        for lane in 0..LANES {
            let bound = half_norms[lane] / scales[lane];
            roots[lane] = if bound < 1.0 { bound } else { 1.0 };
        }
        let (mut slopes, mut steps) = ([f64::INFINITY; LANES], [f64::INFINITY; LANES]);
        for _ in 0..STEPS {
            let mut n_going = 0;
            for lane in 0..LANES {
                // After scaling, Σ m² is 1/3.
                let root = roots[lane];
                let square = root * root;
                let value = ((square - 2.0 / 3.0) * root + c1[lane]) * root + c0[lane];
                let slope = (4.0 * square - 4.0 / 3.0) * root + c1[lane];
                let step = value / slope;
                let goes = steps[lane].abs() >= 1e-10;
                roots[lane] = if goes { root - step } else { root };
                slopes[lane] = if slope < slopes[lane] {
                    slope
                } else {
                    slopes[lane]
                };
                steps[lane] = if goes { step } else { steps[lane] };
                n_going += u64::from(steps[lane].abs() >= 1e-10);
            }
            if n_going == 0 {
                break;
            }
        }
        let mut is_exact = [false; LANES];
        for lane in 0..LANES {
            let half_square = half_norms[lane] - roots[lane] * scales[lane];
            out[lane] = (2.0 * half_square / self.n_atoms as f64).sqrt();
            is_exact[lane] = half_norms[lane].is_nan()
                || (slopes[lane] >= MIN_SLOPE
                    && steps[lane].abs() < 1e-10
                    && half_square > CANCELLED * half_norms[lane]);
            if half_norms[lane].is_nan() {
                out[lane] = f64::NAN;
            }
        }
        is_exact
    }

    /// Compute the RMSD of one pair for which the fast method is not exact enough: from powers of
    /// the key matrix K, or from the deviations after rotation.
    #[cold]
    #[inline(never)]
    fn careful_rmsd(
        &self,
        (mobile, fixed): (&[f32], &[f32]),
        (mobile_centre, fixed_centre): ([f64; 3], [f64; 3]),
        inner: &Matrix3,
        half_norm: f64,
    ) -> f64 {
        // Identical frames have an RMSD of exactly 0, without the rounding errors of the rotation.
        if mobile == fixed {
            return 0.0;
        }
        let optimum = Optimum::new(inner, half_norm);
        let half_square = half_norm - optimum.eigenvalue();
        if half_square > CANCELLED * half_norm {
            return (2.0 * half_square / self.n_atoms as f64).sqrt();
        }
        let r = optimum.rotation();
        let mut square = 0.0;
        let pairs = mobile
            .as_chunks::<3>()
            .0
            .iter()
            .zip(fixed.as_chunks::<3>().0);
        for (atom, (x, y)) in pairs.enumerate() {
            let x: [f64; 3] = std::array::from_fn(|i| f64::from(x[i]) - mobile_centre[i]);
            let deviation: [f64; 3] = std::array::from_fn(|j| {
                let moved = x[0] * r[0][j] + x[1] * r[1][j] + x[2] * r[2][j];
                moved - (f64::from(y[j]) - fixed_centre[j])
            });
            let [dx, dy, dz] = deviation;
            let weight = self.weights.as_ref().map_or(1.0, |weights| weights[atom]);
            square += weight * (dx * dx + dy * dy + dz * dz);
        }
        (square / self.n_atoms as f64).sqrt()
    }

    /// Compute RMSDs without superposition.
    #[inline(always)]
    fn deviations(&self, rows: &[AtomLanes], columns: &[AtomLanes], out: &mut [Lanes; LANES]) {
        for first in (0..LANES).step_by(4) {
            let mut sums = [[0.0; LANES]; 4];
            for (atom, (x, y)) in rows.iter().zip(columns).enumerate() {
                let weight = self.weights.as_ref().map_or(1.0, |weights| weights[atom]);
                let [s0, s1, s2, s3] = sums;
                sums = [
                    plus_squares(s0, weight, x, first, y),
                    plus_squares(s1, weight, x, first + 1, y),
                    plus_squares(s2, weight, x, first + 2, y),
                    plus_squares(s3, weight, x, first + 3, y),
                ];
            }
            for (sums, out) in sums.iter().zip(&mut out[first..]) {
                *out = sums.map(|sum| (sum / self.n_atoms as f64).sqrt());
            }
        }
    }
}

/// Add the weighted squared distance between an atom in one frame and the same atom in the frames
/// of a panel.
#[inline(always)]
fn plus_squares(mut sum: Lanes, weight: f64, x: &AtomLanes, frame: usize, y: &AtomLanes) -> Lanes {
    for lane in 0..LANES {
        let dx = x[0][frame] - y[0][lane];
        let dy = x[1][frame] - y[1][lane];
        let dz = x[2][frame] - y[2][lane];
        let square = dz.mul_add(dz, dy.mul_add(dy, dx * dx));
        sum[lane] = weight.mul_add(square, sum[lane]);
    }
    sum
}

/// Multiply the coordinates of each atom by its weight.
#[inline(always)]
fn weigh(atoms: &mut [AtomLanes], weights: &[f64]) {
    for (of_atom, weight) in atoms.iter_mut().zip(weights) {
        for lanes in of_atom {
            for x in lanes {
                *x *= weight;
            }
        }
    }
}

/// Compute Σ x yᵀ of the frames of `rows` (x) with those of `columns` (y). The result has the shape
/// (axis of x, frame of x, axis of y), with the frames of y in lanes.
#[inline(always)]
fn inner_products<const ROWS: usize>(rows: &Panel, columns: &Panel) -> [[[Lanes; 3]; LANES]; 3] {
    let mut products = [[[[0.0; LANES]; 3]; LANES]; 3];
    for (a, b) in rows.atoms.chunks(ATOMS).zip(columns.atoms.chunks(ATOMS)) {
        let some = products.as_flattened_mut().as_chunks_mut::<ROWS>().0;
        for (number, products) in some.iter_mut().enumerate() {
            add_products(products, a, b, number * ROWS);
        }
    }
    products
}

/// Add products of the rows from `first` on, where a row is an axis and a frame.
#[inline(always)]
fn add_products<const ROWS: usize>(
    products: &mut [[Lanes; 3]; ROWS],
    rows: &[AtomLanes],
    columns: &[AtomLanes],
    first: usize,
) {
    // The compiler keeps sums in registers if they are replaced as a whole.
    let mut sums = *products;
    for (x, y) in rows.iter().zip(columns) {
        let x: &[f64; ROWS] = x.as_flattened()[first..].first_chunk().expect("as many");
        for row in 0..ROWS {
            let ([s0, s1, s2], x) = (sums[row], x[row]);
            sums[row] = [
                plus::<ROWS>(s0, x, &y[0]),
                plus::<ROWS>(s1, x, &y[1]),
                plus::<ROWS>(s2, x, &y[2]),
            ];
        }
    }
    *products = sums;
}

/// Add `x` times the numbers `y` of a panel to `sum`. `ROWS` has the same value as in `fill_by`.
#[inline(always)]
fn plus<const ROWS: usize>(mut sum: Lanes, x: f64, y: &Lanes) -> Lanes {
    // Intrinsics are needed, because the compiler groups numbers of neighbouring rows: eight rows
    // then take nine times as long.
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::*;
        if ROWS == AVX512_ROWS {
            // SAFETY: only `fill_by_avx512` uses this number of rows, on processors with AVX-512.
            // Loads and stores are within the eight numbers of these arrays.
            unsafe {
                let (y, so_far) = (_mm512_loadu_pd(y.as_ptr()), _mm512_loadu_pd(sum.as_ptr()));
                let all = _mm512_fmadd_pd(_mm512_set1_pd(x), y, so_far);
                _mm512_storeu_pd(sum.as_mut_ptr(), all);
            }
            return sum;
        }
        if ROWS == AVX2_ROWS {
            for (sum, y) in sum
                .as_chunks_mut::<4>()
                .0
                .iter_mut()
                .zip(y.as_chunks::<4>().0)
            {
                // SAFETY: only `fill_by_avx2` uses this number of rows, on processors with AVX2 and
                // FMA. Loads and stores are within four numbers of these arrays.
                unsafe {
                    let (y, so_far) = (_mm256_loadu_pd(y.as_ptr()), _mm256_loadu_pd(sum.as_ptr()));
                    let all = _mm256_fmadd_pd(_mm256_set1_pd(x), y, so_far);
                    _mm256_storeu_pd(sum.as_mut_ptr(), all);
                }
            }
            return sum;
        }
    }
    for lane in 0..LANES {
        sum[lane] = x.mul_add(y[lane], sum[lane]);
    }
    sum
}

/// Compute c₁ and c₀ of the quartic λ⁴ + c₂λ² + c₁λ + c₀ of the matrix K of Theobald (2005), for a
/// panel of matrices M.
#[inline(always)]
fn coefficients(m: &[[Lanes; 3]; 3]) -> (Lanes, Lanes) {
    let (mut c1, mut c0) = ([0.0; LANES], [0.0; LANES]);
    for lane in 0..LANES {
        let [xx, xy, xz] = [m[0][0][lane], m[0][1][lane], m[0][2][lane]];
        let [yx, yy, yz] = [m[1][0][lane], m[1][1][lane], m[1][2][lane]];
        let [zx, zy, zz] = [m[2][0][lane], m[2][1][lane], m[2][2][lane]];
        let determinant =
            xx * (yy * zz - yz * zy) - xy * (yx * zz - yz * zx) + xz * (yx * zy - yy * zx);
        c1[lane] = -8.0 * determinant;
        // Elements of the matrix K of Theobald (2005), on and above the diagonal.
        let [k00, k11] = [xx + yy + zz, xx - yy - zz];
        let [k22, k33] = [yy - xx - zz, zz - xx - yy];
        let [k01, k02, k03] = [yz - zy, zx - xz, xy - yx];
        let [k12, k13, k23] = [xy + yx, zx + xz, yz + zy];
        // The determinant is computed from 2×2 minors of the upper two and the lower two rows.
        let upper = [
            k00 * k11 - k01 * k01,
            k00 * k12 - k02 * k01,
            k00 * k13 - k03 * k01,
            k01 * k12 - k02 * k11,
            k01 * k13 - k03 * k11,
            k02 * k13 - k03 * k12,
        ];
        let lower = [
            k02 * k13 - k12 * k03,
            k02 * k23 - k22 * k03,
            k02 * k33 - k23 * k03,
            k12 * k23 - k22 * k13,
            k12 * k33 - k23 * k13,
            k22 * k33 - k23 * k23,
        ];
        c0[lane] =
            upper[0] * lower[5] - upper[1] * lower[4] + upper[2] * lower[3] + upper[3] * lower[2]
                - upper[4] * lower[1]
                + upper[5] * lower[0];
    }
    (c1, c0)
}

/// Copy a tile and its mirror image into a matrix of all pairs of `n_frames` frames. The tile has a
/// row for each frame of `rows`, and lies on or above the diagonal. A condensed matrix contains
/// only the pairs above the diagonal, row by row.
///
/// # Errors
/// [`Error::Argument`] if the tile or the matrix has the wrong size, or frames are out of range.
pub fn put_tile<T: Copy>(
    matrix: &mut [T],
    (n_frames, is_condensed): (usize, bool),
    tile: &[T],
    rows: Range<usize>,
    columns: Range<usize>,
) -> Result<()> {
    let n_pairs = match is_condensed {
        true => n_frames * n_frames.saturating_sub(1) / 2,
        false => n_frames * n_frames,
    };
    check_len("pairs of frames", matrix.len(), n_pairs)?;
    check_len("pairs of a tile", tile.len(), rows.len() * columns.len())?;
    if rows.end > n_frames || columns.end > n_frames {
        return Err(Error::Argument(format!(
            "a tile of frames {rows:?} and {columns:?} does not fit into a matrix of {n_frames} \
             frames"
        )));
    }
    let width = columns.len();
    for (of_row, row) in tile.chunks_exact(width.max(1)).zip(rows.clone()) {
        let (begin, start) = if is_condensed {
            let begin = columns.start.max(row + 1).min(columns.end);
            // Earlier rows have `before` pairs, and this row has `begin - row - 1` pairs before
            // column `begin`.
            let before = row * (2 * n_frames - row - 1) / 2;
            (begin, (before + begin).saturating_sub(row + 1))
        } else {
            (columns.start, n_frames * row + columns.start)
        };
        let out = &mut matrix[start..start + (columns.end - begin)];
        out.copy_from_slice(&of_row[begin - columns.start..]);
    }
    if is_condensed || rows == columns {
        return Ok(());
    }
    for first in (0..width).step_by(COLUMNS) {
        let last = width.min(first + COLUMNS);
        for (of_row, row) in tile.chunks_exact(width).zip(rows.clone()) {
            for (x, column) in of_row[first..last].iter().zip(columns.start + first..) {
                matrix[n_frames * column + row] = *x;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
