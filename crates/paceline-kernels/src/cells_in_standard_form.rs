//! Conversion of frames so that cells are upright, compact, and periodic along all vectors, as
//! kernels require.
//!
//! Kernels expect the first cell vector along x and the second in the xy plane. They search nearest
//! images among 26 neighbours, and support only periodic boundaries. Almost all frames meet these
//! conditions. The others have cells that a fit or a program has rotated, that are strongly tilted,
//! or that are not periodic along a vector. For these frames, kernels get a converted copy: the
//! positions are rotated with the cell, and short vectors describe the same lattice. A vector
//! without periodicity is made longer than the distance between any two atoms. Distances and angles
//! do not change.

use std::borrow::Cow;

use paceline_base::error::Result;
use paceline_base::{CELL_WIDTH, CellRow, UnitCell, cell_volume, triclinic_box};

use crate::cell::{FLAT, cross, dot, square};
use crate::superposition::Matrix3;
use crate::{check_len, frame_len};

/// Extra space across a non-periodic boundary (Å), longer than any cutoff, so that no atom is near
/// an image.
const SPACE: f64 = 1024.0;
/// Tolerance of the tilt of a compact cell, relative to the vector, because files contain rounded
/// cells.
const ROUNDING: f64 = 1e-4;
/// Maximum number of rounds of lattice reduction. Each round makes a vector shorter.
const MOST_ROUNDS: usize = 1000;

/// Vectors that describe a cell for a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Basis {
    /// The vectors of the cell itself: for kernels that wrap atoms into the cell.
    Own,
    /// Short vectors of the same lattice: for kernels that search nearest images.
    Compact,
}

/// Conversion of a frame for a kernel: a shift, a rotation, and the cell after both.
#[derive(Debug, Clone, PartialEq)]
pub struct Placement {
    /// Lengths (Å) and angles (degrees) of the cell for the kernel; zeros if no vector is periodic.
    pub dimensions: [f32; 6],
    /// Vectors of the cell for the kernel, in the orientation of the file, Å.
    pub basis: Matrix3,
    /// Unit vectors, in the file's orientation, of the kernel's x, y and z axes.
    axes: Matrix3,
    /// Origin of the kernel's coordinates, in the coordinates of the file, Å.
    origin: [f64; 3],
    /// Volume of the cell in the file minus the volume of the kernel's cell, Å³.
    volume: f64,
}

impl Placement {
    /// Return the placement of a frame; `None` if the cell needs no conversion, is missing or is
    /// impossible.
    pub fn of(cell: &UnitCell, basis: Basis, frame: &[f32]) -> Option<Placement> {
        let is_cell = cell.vectors != [[0.0; 3]; 3] && cell.dimensions != [0.0; 6];
        let is_finite = cell.vectors.as_flattened().iter().all(|x| x.is_finite());
        if !is_cell || !is_finite || is_flat(&cell.vectors) {
            return None;
        }
        let is_ready = cell.is_upright() && cell.is_periodic();
        let is_placed = match basis {
            Basis::Own => cell.origin == [0.0; 3],
            Basis::Compact => is_compact(&upright(&cell.vectors).1),
        };
        if is_ready && is_placed {
            return None;
        }
        if cell.periodic == [false; 3] {
            return Some(Placement {
                dimensions: [0.0; 6],
                basis: cell.vectors,
                axes: [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
                origin: [0.0; 3],
                volume: 0.0,
            });
        }
        let mut origin = cell.origin;
        let mut vectors = right_handed(spaced(cell, basis, frame, &mut origin));
        if basis == Basis::Compact && !is_compact(&upright(&vectors).1) {
            vectors = reduced(vectors);
        }
        let [x, y, z] = vectors;
        let dimensions = triclinic_box(x, y, z);
        let volume = match cell.is_periodic() {
            true => 0.0,
            false => volume_of(&cell.vectors) - cell_volume(&dimensions).unwrap_or(0.0),
        };
        Some(Placement {
            dimensions,
            basis: vectors,
            axes: upright(&vectors).0,
            origin,
            volume,
        })
    }

    /// Rotate a vector from the file's orientation to the kernel's.
    pub fn turned(&self, d: [f64; 3]) -> [f64; 3] {
        self.axes.map(|axis| dot(axis, d))
    }

    /// Rotate a vector from the kernel's orientation to the file's.
    fn rotate_back(&self, d: [f64; 3]) -> [f64; 3] {
        let [x, y, z] = self.axes;
        std::array::from_fn(|i| d[0] * x[i] + d[1] * y[i] + d[2] * z[i])
    }

    /// Convert a point from the file's coordinates to the kernel's, Å.
    pub fn placed_point(&self, x: [f64; 3]) -> [f64; 3] {
        self.turned(std::array::from_fn(|i| x[i] - self.origin[i]))
    }

    /// Convert a position from the file's coordinates to the kernel's, Å.
    pub fn placed(&self, x: [f32; 3]) -> [f32; 3] {
        self.placed_point(x.map(f64::from)).map(|x| x as f32)
    }

    fn place(&self, frame: &mut [f32]) {
        for x in frame.as_chunks_mut().0 {
            *x = self.placed(*x);
        }
    }

    /// Convert the positions in `frame`, which the kernel may have changed, to the file's
    /// coordinates. `stored` contains the positions of the file.
    fn move_back(&self, stored: &[f32], frame: &mut [f32]) {
        let atoms = frame.as_chunks_mut::<3>().0.iter_mut();
        for (atom, &x) in atoms.zip(stored.as_chunks::<3>().0) {
            let (before, after) = (self.placed(x), *atom);
            let by = std::array::from_fn(|i| f64::from(after[i]) - f64::from(before[i]));
            let by = self.rotate_back(by);
            *atom = match before == after {
                true => x,
                false => std::array::from_fn(|i| (f64::from(x[i]) + by[i]) as f32),
            };
        }
    }
}

/// Frames of a block, converted for a kernel.
#[derive(Debug)]
pub struct PlacedFrames<'a> {
    /// Positions (Å) as [`Frames`](crate::row_kernel::Frames) requires.
    pub positions: Cow<'a, [f32]>,
    /// Lengths (Å) and angles (degrees) of each frame's cell.
    pub dimensions: Vec<f32>,
    /// Placement of each frame; empty if no frame was converted.
    pub placements: Vec<Option<Placement>>,
}

impl<'a> PlacedFrames<'a> {
    /// # Errors
    /// [`Error::Argument`](paceline_base::error::Error::Argument) if the slices do not contain the
    /// same number of whole frames.
    pub fn new(positions: &'a [f32], n_atoms: usize, cells: &[f64], basis: Basis) -> Result<Self> {
        let (frame_len, cells) = rows_of(positions, n_atoms, cells)?;
        let mut placements = placements(positions, frame_len, cells, basis);
        let dimensions = dimensions(cells, &placements);
        let mut positions = Cow::Borrowed(positions);
        if placements.iter().all(Option::is_none) {
            placements.clear();
        } else {
            let frames = positions.to_mut().chunks_exact_mut(frame_len);
            for (frame, placement) in frames.zip(&placements) {
                if let Some(placement) = placement {
                    placement.place(frame);
                }
            }
        }
        Ok(PlacedFrames {
            positions,
            dimensions,
            placements,
        })
    }

    /// Return the sum of the cell volumes in the file minus the sum of the volumes of the kernel's
    /// cells, Å³.
    pub fn volume(&self) -> f64 {
        let placements = self.placements.iter().flatten();
        placements.map(|placement| placement.volume).sum()
    }
}

/// Transform the frames of a block. Frames with unusual cells are converted for the transformation,
/// and the changes are then applied to these frames in their original orientation. If `basis` is
/// `None`, no frame is converted.
///
/// # Errors
/// As [`PlacedFrames::new`].
pub fn change_placed<T>(
    positions: &mut [f32],
    n_atoms: usize,
    cells: &[f64],
    basis: Option<Basis>,
    change: impl FnOnce(&mut [f32], &[f32], &[Option<Placement>]) -> Result<T>,
) -> Result<T> {
    let (frame_len, cells) = rows_of(positions, n_atoms, cells)?;
    let placements = match basis {
        Some(basis) => placements(positions, frame_len, cells, basis),
        None => vec![None; cells.len()],
    };
    let dimensions = dimensions(cells, &placements);
    let mut stored = Vec::new();
    let frames = positions.chunks_exact_mut(frame_len).zip(&placements);
    for (row, (frame, placement)) in frames.enumerate() {
        if let Some(placement) = placement {
            stored.push((row, placement, frame.to_vec()));
            placement.place(frame);
        }
    }
    let changed = change(positions, &dimensions, &placements);
    for (row, placement, stored) in stored {
        placement.move_back(&stored, &mut positions[row * frame_len..][..frame_len]);
    }
    changed
}

fn rows_of<'a>(
    positions: &[f32],
    n_atoms: usize,
    cells: &'a [f64],
) -> Result<(usize, &'a [CellRow])> {
    let frame_len = frame_len(positions.len(), n_atoms)?;
    let expected = positions.len() / frame_len * CELL_WIDTH;
    check_len("numbers of cells", cells.len(), expected)?;
    Ok((frame_len, cells.as_chunks().0))
}

fn placements(
    positions: &[f32],
    frame_len: usize,
    cells: &[CellRow],
    basis: Basis,
) -> Vec<Option<Placement>> {
    let frames = positions.chunks_exact(frame_len).zip(cells);
    // Last cell that needed no conversion. At constant volume, all frames usually have this cell.
    let mut ready: Option<&CellRow> = None;
    let place = |(frame, row)| {
        if ready == Some(row) {
            return None;
        }
        let found = Placement::of(&UnitCell::of_row(row), basis, frame);
        ready = if found.is_none() { Some(row) } else { ready };
        found
    };
    frames.map(place).collect()
}

fn dimensions(cells: &[CellRow], placements: &[Option<Placement>]) -> Vec<f32> {
    let of_row = |(row, placement): (&CellRow, &Option<Placement>)| match placement {
        Some(placement) => placement.dimensions,
        None => UnitCell::of_row(row).dimensions,
    };
    cells.iter().zip(placements).flat_map(of_row).collect()
}

/// Return three unit vectors: along a, perpendicular to a in the plane of a and b, and
/// perpendicular to this plane. Also return the cell vectors in these axes.
fn upright(&[a, b, c]: &Matrix3) -> (Matrix3, Matrix3) {
    let unit = |v: [f64; 3]| v.map(|x| x / square(v).sqrt());
    let x = unit(a);
    let along = dot(b, x);
    let y = unit(std::array::from_fn(|i| b[i] - along * x[i]));
    let axes = [x, y, cross(x, y)];
    let of = |v: [f64; 3]| axes.map(|axis| dot(axis, v));
    (axes, [of(a), of(b), of(c)])
}

/// Return true if [`Cell::new`](crate::cell::Cell::new) refuses the vectors, because the cell is
/// too flat.
fn is_flat(vectors: &Matrix3) -> bool {
    let (_, along) = upright(vectors);
    // The comparison is negated so that NaN counts as flat.
    !(0..3).all(|k| along[k][k].abs() > FLAT * square(along[k]).sqrt())
}

/// Return true if a kernel finds the nearest image in this cell. The kernel rounds vector by
/// vector, from c to a, and then tests the 26 neighbours of the result.
///
/// After rounding, at most half of `a_x`, `b_y` and `c_z` remains. Let R² be the largest squared
/// length of this remainder in the xy plane. Images two layers away along z are not nearer if (3/2
/// `c_z`)² ≥ R² + (1/2 `c_z`)². Images two rows away along y are at least `b_y` away: two rows,
/// less half a row of remainder and half a row of tilt. They are not nearer if `b_y` ≥ R. Images
/// two cells away along x are never nearer.
fn is_compact(&[a, b, c]: &Matrix3) -> bool {
    let half = 0.5 + ROUNDING;
    let leans = [(b[0], a[0]), (c[0], a[0]), (c[1], b[1])];
    let is_reduced = leans.iter().all(|(x, over)| x.abs() <= half * over);
    let [a, b, c] = [a[0] * a[0], b[1] * b[1], c[2] * c[2]];
    let is_right = leans.iter().all(|(x, over)| x.abs() <= ROUNDING * over);
    // In a rectangular cell, each axis is rounded independently.
    is_right || is_reduced && 3.0 * b >= a && 8.0 * c >= a + b
}

/// Return cell vectors for the kernel. A non-periodic vector becomes perpendicular to the others,
/// and longer than the extent of the atoms. With [`Basis::Compact`], the origin then lies just
/// below the atoms. With [`Basis::Own`], the middle of the cell keeps its position.
fn spaced(cell: &UnitCell, basis: Basis, frame: &[f32], origin: &mut [f64; 3]) -> Matrix3 {
    let mut vectors = cell.vectors;
    let mut fixed: Vec<usize> = (0..3).filter(|&k| cell.periodic[k]).collect();
    for k in (0..3).filter(|&k| !cell.periodic[k]) {
        let along = across(&vectors, &fixed, k);
        let (mut least, mut most) = (f64::INFINITY, f64::NEG_INFINITY);
        for x in frame.as_chunks::<3>().0 {
            let at = dot(x.map(f64::from), along);
            if at.is_finite() {
                (least, most) = (least.min(at), most.max(at));
            }
        }
        if least > most {
            (least, most) = (0.0, 0.0);
        }
        let at = dot(*origin, along);
        let (begin, length) = match basis {
            Basis::Compact => (least - 1.0, 2.0 * (most - least) + SPACE),
            Basis::Own => {
                let middle = at + 0.5 * dot(cell.vectors[k], along);
                let half = 2.0 * (most - middle).max(middle - least) + SPACE;
                (middle - half, 2.0 * half)
            }
        };
        *origin = std::array::from_fn(|i| origin[i] + (begin - at) * along[i]);
        vectors[k] = along.map(|x| x * length);
        fixed.push(k);
    }
    vectors
}

/// Return the unit vector nearest to vector `k` that is perpendicular to the `fixed` vectors.
fn across(vectors: &Matrix3, fixed: &[usize], k: usize) -> [f64; 3] {
    let unit = |v: [f64; 3]| v.map(|x| x / square(v).sqrt());
    match *fixed {
        [one] => {
            let x = unit(vectors[one]);
            let along = dot(vectors[k], x);
            unit(std::array::from_fn(|i| vectors[k][i] - along * x[i]))
        }
        [one, other] => {
            let normal = unit(cross(vectors[one], vectors[other]));
            match dot(normal, vectors[k]) < 0.0 {
                true => normal.map(|x| -x),
                false => normal,
            }
        }
        _ => unit(vectors[k]),
    }
}

/// Return the same cell in right-handed order, with two vectors exchanged if necessary. A rotation
/// cannot make a left-handed cell upright.
fn right_handed([a, b, c]: Matrix3) -> Matrix3 {
    match dot(cross(a, b), c) < 0.0 {
        true => [a, c, b],
        false => [a, b, c],
    }
}

/// Return the volume of a cell, Å³.
fn volume_of(&[a, b, c]: &Matrix3) -> f64 {
    dot(cross(a, b), c).abs()
}

/// Return short vectors of the same lattice (Semaev 2001, Lecture Notes in Computer Science 2146,
/// 181): no sum or difference of them is shorter than the longest one. Each vector then tilts by at
/// most half of the vectors before it.
fn reduced(mut vectors: Matrix3) -> Matrix3 {
    for _ in 0..MOST_ROUNDS {
        vectors.sort_by(|one, other| square(*one).total_cmp(&square(*other)));
        let [a, b, c] = vectors;
        let less = |v: [f64; 3], n: f64, of: [f64; 3]| std::array::from_fn(|i| v[i] - n * of[i]);
        let b_less: [f64; 3] = less(b, (dot(b, a) / square(a)).round(), a);
        if square(b_less) < square(b) * (1.0 - 1e-12) {
            vectors[1] = b_less;
            continue;
        }
        let (_, [[a_x, ..], [b_x, b_y, _], [c_x, c_y, _]]) = upright(&vectors);
        let over_b = (c_y / b_y).round();
        let mut best = c;
        for j in [over_b - 1.0, over_b, over_b + 1.0] {
            let near = less(c, j, b);
            let i = ((c_x - j * b_x) / a_x).round();
            for i in [i - 1.0, i, i + 1.0] {
                let v: [f64; 3] = less(near, i, a);
                if square(v) < square(best) * (1.0 - 1e-12) {
                    best = v;
                }
            }
        }
        if best == c {
            break;
        }
        vectors[2] = best;
    }
    let mut vectors = right_handed(vectors);
    for (leaning, below) in [(1, 0), (2, 1), (2, 0)] {
        let (_, along) = upright(&vectors);
        let number = (along[leaning][below] / along[below][below]).round();
        let over = vectors[below];
        for (x, over) in vectors[leaning].iter_mut().zip(over) {
            *x -= number * over;
        }
    }
    vectors
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::Cell;
    use crate::tests::Random;

    fn cell(vectors: Matrix3) -> UnitCell {
        UnitCell::of_vectors(vectors)
    }

    /// Return the shortest image of a difference along the periodic vectors, by brute force.
    fn shortest(cell: &UnitCell, d: [f64; 3], most: i32) -> f64 {
        let around = |k: usize| {
            if cell.periodic[k] {
                -most..=most
            } else {
                0..=0
            }
        };
        let mut least = f64::INFINITY;
        for i in around(0) {
            for j in around(1) {
                for k in around(2) {
                    let [a, b, c] = cell.vectors;
                    let n = [i, j, k].map(f64::from);
                    let at =
                        std::array::from_fn(|x| d[x] + n[0] * a[x] + n[1] * b[x] + n[2] * c[x]);
                    least = square(at).min(least);
                }
            }
        }
        least.sqrt()
    }

    /// Return the distance that a kernel finds between two atoms.
    fn distance(cell: &UnitCell, basis: Basis, atoms: &[f32; 6]) -> f64 {
        let placed = PlacedFrames::new(atoms, 2, &cell.row(), basis).expect("a frame");
        let x: Vec<f64> = placed.positions.iter().copied().map(f64::from).collect();
        let d = [x[3] - x[0], x[4] - x[1], x[5] - x[2]];
        let dimensions: [f32; 6] = placed.dimensions[..].try_into().expect("one cell");
        match Cell::new(dimensions) {
            Ok(cell) => square(cell.shifted(d, cell.nearest_images(d))).sqrt(),
            Err(_) => square(d).sqrt(),
        }
    }

    #[test]
    fn usual_cells_are_left_as_they_are() {
        for dimensions in [
            [30.0, 40.0, 50.0, 90.0, 90.0, 90.0],
            [5.0, 40.0, 500.0, 90.0, 90.0, 90.0],
            [80.017, 80.017, 80.017, 60.0, 60.0, 90.0],
            [40.0, 40.0, 40.0, 70.528_78, 109.471_22, 70.528_78],
            [40.0, 40.0, 60.0, 90.0, 90.0, 120.0],
            [40.0, 40.0, 60.0, 90.0, 90.0, 60.0],
            [0.0; 6],
            [30.0, 40.0, 50.0, 20.0, 30.0, 60.0],
            [10.0, 10.0, 10.0, 120.0, 120.0, 120.0],
            [f32::NAN; 6],
        ] {
            let cell = UnitCell::of_dimensions(dimensions);
            for basis in [Basis::Own, Basis::Compact] {
                assert_eq!(
                    Placement::of(&cell, basis, &[0.0; 6]),
                    None,
                    "{dimensions:?}"
                );
            }
        }
        let noisy = cell([[30.0, 2e-6, 0.0], [0.0, 30.0, -1e-6], [0.0, 0.0, 30.0]]);
        assert_eq!(Placement::of(&noisy, Basis::Compact, &[0.0; 6]), None);
    }

    #[test]
    fn distances_are_the_shortest_of_all_in_any_cell() {
        let mut random = Random(5);
        let flat = [[40.0, 0.0, 0.0], [17.0, 4.0, 0.0], [3.0, 1.0, 30.0]];
        let mut cells = vec![
            cell([[0.0, 10.0, 10.0], [10.0, 0.0, 10.0], [10.0, 10.0, 0.0]]),
            cell([[10.0, 0.0, 0.0], [30.0, 10.0, 0.0], [-25.0, 29.0, 10.0]]),
            cell([[0.0, 0.0, 12.0], [0.0, 11.0, 0.0], [13.0, 0.0, 0.0]]),
            cell(flat),
        ];
        for _ in 0..200 {
            let vectors = std::array::from_fn(|_| random.vector::<3>().map(|x| 12.0 * x));
            if volume_of(&vectors) > 200.0 {
                cells.push(cell(vectors));
            }
        }
        for (number, mut cell) in cells.into_iter().enumerate() {
            for flags in 0..8 {
                cell.periodic = std::array::from_fn(|k| flags >> k & 1 == 1);
                let x: [f32; 6] = random.vector().map(|x: f64| (15.0 * x) as f32);
                let d = std::array::from_fn(|i| f64::from(x[3 + i]) - f64::from(x[i]));
                let (found, right) = (distance(&cell, Basis::Compact, &x), shortest(&cell, d, 12));
                assert!(found < right + 2e-4, "{number} {flags}: {found} {right}");
            }
            check_lattice(&UnitCell {
                periodic: [true; 3],
                ..cell
            });
        }
    }

    /// Check that the vectors of a placement are integer combinations of the cell vectors, with the
    /// same volume.
    fn check_lattice(cell: &UnitCell) {
        let Some(placement) = Placement::of(cell, Basis::Compact, &[]) else {
            return;
        };
        let [a, b, c] = cell.vectors;
        let volume = dot(cross(a, b), c);
        for vector in placement.basis {
            for normal in [cross(b, c), cross(c, a), cross(a, b)] {
                let number = dot(vector, normal) / volume;
                assert!((number - number.round()).abs() < 1e-9, "{cell:?}: {number}");
            }
        }
        assert!((volume_of(&placement.basis) - volume.abs()).abs() < 1e-9 * volume.abs());
    }

    #[test]
    fn two_atoms_a_vector_apart_are_near() {
        let fcc = cell([[0.0, 10.0, 10.0], [10.0, 0.0, 10.0], [10.0, 10.0, 0.0]]);
        let found = distance(&fcc, Basis::Compact, &[1.0, 2.0, 3.0, 1.5, 12.0, 13.0]);
        assert!((found - 0.5).abs() < 1e-5, "{found}");
        let mut slab = cell([[20.0, 0.0, 0.0], [0.0, 20.0, 0.0], [0.0, 0.0, 20.0]]);
        slab.periodic = [true, true, false];
        let atoms = [1.0, 1.0, 0.5, 1.0, 1.0, 19.5];
        assert!((distance(&slab, Basis::Compact, &atoms) - 19.0).abs() < 1e-5);
        slab.periodic = [false; 3];
        assert!((distance(&slab, Basis::Compact, &atoms) - 19.0).abs() < 1e-5);
    }

    #[test]
    fn a_change_is_made_in_the_files_orientation() {
        let turned = cell([[0.0, 0.0, 12.0], [0.0, -11.0, 0.0], [13.0, 0.0, 0.0]]);
        let stored = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0_f32];
        let mut positions = stored;
        change_placed(
            &mut positions,
            2,
            &turned.row(),
            Some(Basis::Own),
            |frame, _, _| {
                frame[0] += 12.0; // a, which is along z
                Ok(())
            },
        )
        .expect("a frame");
        let expected = [1.0, 2.0, 15.0, 4.0, 5.0, 6.0];
        for (found, expected) in positions.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-5, "{positions:?}");
        }
        assert_eq!(positions[3..], stored[3..]);
    }

    #[test]
    fn volumes_are_those_of_the_file() {
        let mut slab = cell([[20.0, 0.0, 0.0], [0.0, 20.0, 0.0], [0.0, 0.0, 20.0]]);
        slab.periodic = [true, true, false];
        let placed = PlacedFrames::new(&[1.0; 6], 2, &slab.row(), Basis::Compact).expect("one");
        let dimensions: [f32; 6] = placed.dimensions[..].try_into().expect("one cell");
        let volume = cell_volume(&dimensions).expect("a cell") + placed.volume();
        assert!((volume - 8000.0).abs() < 1e-6, "{volume}");
    }
}
