//! Unwrapping of molecules by the shortest displacements of their centres (von Bülow, Bullerjahn &
//! Hummer 2020, J. Chem. Phys. 153, 021101).
//!
//! A displacement becomes shortest by adding whole cell vectors. The sums of these vectors are
//! stored as integer multiples of 2⁻²⁴ Å. Integers add exactly, so that parts of a trajectory can
//! be counted separately.

use crate::cell::Cell;
use crate::placement::{Basis, Placement};
use crate::superposition::Matrix3;
use crate::{check_len, frame_len};
use paceline_base::error::{Error, Result};
use paceline_base::{CellRow, UnitCell};

/// Unit of the integer sums, Å.
const STEP: f64 = 1.0 / (1 << 24) as f64;
/// Maximum magnitude of a number that is added to a sum: 7·10¹⁰ Å.
const MOST: u64 = 1 << 60;

/// Compute, for each frame, the sum of cell vectors that unwraps each centre (Å) since the first
/// frame. `cells` contains the cells of all frames. A sum that is too large becomes `i64::MAX`.
///
/// # Errors
/// [`Error::Argument`] if the number of cells differs from the number of frames.
pub fn steps(centres: &[[f64; 3]], cells: &[CellRow]) -> Result<Vec<[i64; 3]>> {
    let n = centres.len() / cells.len().max(1);
    check_len("centres", centres.len(), cells.len() * n)?;
    let mut steps = vec![[0_i64; 3]; centres.len().min(n)];
    for (frame, cell) in cells.iter().enumerate().skip(1) {
        let lattice = Lattice::new(
            &UnitCell::of_row(cell),
            &centres[(frame - 1) * n..][..2 * n],
        );
        let vectors = lattice.vectors;
        let vectors = vectors.map(|vector| vector.map(|x| (x / STEP).round_ties_even() as i64));
        for molecule in (frame - 1) * n..frame * n {
            let (from, to) = (centres[molecule], centres[molecule + n]);
            let by = [0, 1, 2].map(|axis: usize| to[axis] - from[axis]);
            let mut sum: [i64; 3] = steps[molecule];
            // Only displacements longer than half the minimum height of the cell need an addition,
            // and these are few.
            if let Some(images) = lattice.images(by) {
                for (number, vector) in images.into_iter().zip(&vectors) {
                    for (sum, x) in sum.iter_mut().zip(vector) {
                        let added = (number as i64).saturating_mul(*x);
                        // A sum that overflowed stays at `i64::MAX`.
                        let is_far = added.unsigned_abs() > MOST || *sum == i64::MAX;
                        *sum = if is_far {
                            i64::MAX
                        } else {
                            sum.saturating_add(added)
                        };
                    }
                }
            }
            steps.push(sum);
        }
    }
    Ok(steps)
}

/// Lattice of periodic images in a frame.
struct Lattice {
    /// Cell; `None` if no vector is periodic.
    cell: Option<Cell>,
    placement: Option<Placement>,
    /// Cell vectors in the orientation of the file, Å.
    vectors: Matrix3,
}

impl Lattice {
    fn new(of: &UnitCell, centres: &[[f64; 3]]) -> Self {
        let frame: Vec<f32> = centres.iter().flatten().map(|&x| x as f32).collect();
        match Placement::of(of, Basis::Compact, &frame) {
            None => {
                let cell = Cell::of_vectors(of.vectors).reduced();
                Lattice {
                    vectors: *cell.vectors(),
                    cell: Some(cell),
                    placement: None,
                }
            }
            Some(placement) => Lattice {
                cell: Cell::new(placement.dimensions).ok(),
                vectors: placement.basis,
                placement: Some(placement),
            },
        }
    }

    /// Return the sum of whole cell vectors that makes a displacement shortest; `None` for a
    /// displacement that is already short.
    fn images(&self, by: [f64; 3]) -> Option<[f64; 3]> {
        let by = match &self.placement {
            Some(placement) => placement.turned(by),
            None => by,
        };
        let cell = self.cell.as_ref()?;
        (!cell.is_near(by)).then(|| cell.nearest_images(by))
    }
}

/// Translate molecules in some rows of a block by the sums of cell vectors. `atoms` is sorted by
/// molecule, with `sizes` atoms in each molecule.
///
/// # Errors
/// [`Error::Argument`] if the sizes do not match, or an atom or a row is out of range.
pub fn move_by(
    steps: &[[i64; 3]],
    rows: &[usize],
    positions: &mut [f32],
    n_atoms: usize,
    (atoms, sizes): (&[usize], &[usize]),
) -> Result<()> {
    let frame_len = frame_len(positions.len(), n_atoms)?;
    check_len("atoms", atoms.len(), sizes.iter().sum())?;
    check_len("steps", steps.len(), rows.len() * sizes.len())?;
    let n_rows = positions.len() / frame_len;
    if atoms.iter().any(|&atom| atom >= n_atoms) || rows.iter().any(|&row| row >= n_rows) {
        let reason = "an atom or a row is out of range";
        return Err(Error::Argument(reason.to_string()));
    }
    for (number, row) in rows.iter().enumerate() {
        let (frame, _) = positions[row * frame_len..][..frame_len].as_chunks_mut();
        let mut rest = atoms;
        for (size, step) in sizes.iter().zip(&steps[number * sizes.len()..]) {
            let by = step.map(|x| x as f64 * STEP);
            let (molecule, others) = rest.split_at(*size);
            for &atom in molecule {
                let x: [f32; 3] = frame[atom];
                frame[atom] = [0, 1, 2].map(|axis| (f64::from(x[axis]) + by[axis]) as f32);
            }
            rest = others;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::square;
    use crate::tests::Random;

    fn row(vectors: Matrix3) -> CellRow {
        UnitCell::of_vectors(vectors).row()
    }

    #[test]
    fn molecules_go_on_through_a_face_of_a_cell_that_varies() {
        let cells = [10.0, 11.0, 12.0, 11.5].map(|edge: f64| {
            let mut cell = [[0.0; 3]; 3];
            (0..3).for_each(|axis| cell[axis][axis] = edge);
            row(cell)
        });
        let along_x = [[9.0, 0.5], [1.0, 10.5], [3.0, 0.5], [11.0, 1.0]];
        let centres: Vec<[f64; 3]> = (along_x.iter().flatten()).map(|&x| [x, 5.0, 5.0]).collect();
        let found = steps(&centres, &cells).expect("frames");
        let along_x: Vec<f64> = found.iter().map(|step| step[0] as f64 * STEP).collect();
        assert_eq!(along_x, [0.0, 0.0, 11.0, -11.0, 11.0, 1.0, -0.5, 1.0]);
        assert!(found.iter().all(|step| step[1..] == [0, 0]));
        let mut positions: Vec<f32> = centres.as_flattened().iter().map(|&x| x as f32).collect();
        let molecules = (&[0, 1][..], &[1, 1][..]);
        move_by(&found[2..4], &[1], &mut positions, 2, molecules).expect("a row");
        assert_eq!(positions[6..12], [12.0, 5.0, 5.0, -0.5, 5.0, 5.0]);
        assert_eq!(positions[..6], [9.0, 5.0, 5.0, 0.5, 5.0, 5.0]);
    }

    #[test]
    fn vectors_that_lean_are_taken_back_together() {
        let cell = Cell::new([30.0, 34.0, 28.0, 75.0, 100.0, 62.0]).expect("a cell");
        let [a, b, c] = *cell.vectors();
        let move_of = |[u, v, w]: [f64; 3]| {
            [0, 1, 2].map(|axis: usize| (u + 0.2) * a[axis] + v * b[axis] + (w - 0.3) * c[axis])
        };
        for numbers in [[0, 0, 0], [1, 0, -1], [-2, 3, 1]] {
            let centre = move_of(numbers.map(|n| n as f64));
            let found = steps(&[[0.0; 3], centre], &[row([a, b, c]); 2]).expect("frames");
            for axis in 0..3 {
                let along = [a, b, c].map(|vector| vector[axis]);
                let sum: f64 = (0..3).map(|k| numbers[k] as f64 * along[k]).sum();
                assert!(
                    (found[1][axis] as f64 * STEP + sum).abs() < 1e-5,
                    "{numbers:?}"
                );
            }
        }
    }

    /// Test a rhombic dodecahedron: the image found vector by vector may be farther away than
    /// another.
    #[test]
    fn steps_are_the_shortest_of_all() {
        let mut random = Random(29);
        for cell in [
            [80.0, 80.0, 80.0, 60.0, 60.0, 90.0],
            [51.3, 51.3, 51.3, 70.53, 109.47, 70.53],
            [30.0, 34.0, 28.0, 75.0, 100.0, 62.0],
        ] {
            let vectors = *Cell::new(cell).expect("a cell").vectors();
            // The same lattice, described by vectors that tilt by more than half of the vectors
            // before them.
            let [a, b, c] = vectors;
            let leaning = [
                a,
                [b[0] + a[0], b[1], 0.0],
                [c[0] - b[0], c[1] - b[1], c[2]],
            ];
            let mut not_nearest_by_vector = 0;
            for _ in 0..2000 {
                let fractions = [0; 3].map(|_| 1.5 * random.number());
                let place = |n: [f64; 3]| {
                    [0, 1, 2]
                        .map(|axis: usize| (0..3).map(|k| n[k] * vectors[k][axis]).sum::<f64>())
                };
                let to = place(fractions);
                let mut shortest = f64::INFINITY;
                for i in -3..=3 {
                    for j in -3..=3 {
                        for k in -3..=3 {
                            let [u, v, w] = fractions;
                            let image = [u + f64::from(i), v + f64::from(j), w + f64::from(k)];
                            shortest = shortest.min(square(place(image)).sqrt());
                        }
                    }
                }
                for vectors in [vectors, leaning] {
                    let found = steps(&[[0.0; 3], to], &[row(vectors); 2]).expect("frames")[1];
                    let step = [0, 1, 2].map(|axis: usize| to[axis] + found[axis] as f64 * STEP);
                    assert!(
                        (square(step).sqrt() - shortest).abs() < 1e-5,
                        "{cell:?} {to:?}"
                    );
                }
                let by_vector = place(fractions.map(|x| x - x.round_ties_even()));
                not_nearest_by_vector += usize::from(square(by_vector).sqrt() > shortest + 1e-6);
            }
            assert!(not_nearest_by_vector > 10, "{cell:?}");
        }
    }

    #[test]
    fn steps_that_are_too_many_remain_so() {
        let cell = [[10.0, 0.0, 0.0], [0.0, 10.0, 0.0], [0.0, 0.0, 10.0]];
        let found = steps(&[[0.0; 3], [1e30, -1e30, 0.0]], &[row(cell); 2]).expect("frames");
        assert_eq!(found[1], [i64::MAX, i64::MAX, 0]);
        // Large vectors whose contributions would cancel.
        let wide = [[1e13, 0.0, 0.0], [-4e12, 1e13, 0.0], [0.0, 0.0, 10.0]];
        let centres = [[0.0; 3], [6e12, 1e13, 0.0], [0.0; 3]];
        let found = steps(&centres, &[row(wide); 3]).expect("frames");
        assert_eq!(found[1..], [[i64::MAX, i64::MAX, 0]; 2]);
        assert!(steps(&[[0.0; 3]; 3], &[row(cell); 2]).is_err());
        assert!(steps(&[], &[]).expect("nothing").is_empty());
    }

    #[test]
    fn molecules_that_do_not_belong_to_a_block_are_an_error() {
        let mut positions = [0.0; 12];
        let mut moved = |rows: &[usize], atoms: &[usize], sizes: &[usize]| {
            let steps = vec![[0; 3]; rows.len()];
            move_by(&steps, rows, &mut positions, 2, (atoms, sizes)).is_ok()
        };
        assert!(moved(&[0, 1], &[0, 1], &[2]));
        assert!(!moved(&[2], &[0, 1], &[2]));
        assert!(!moved(&[0], &[0, 2], &[2]));
        assert!(!moved(&[0], &[0, 1], &[1]));
        assert!(!moved(&[0], &[0, 1], &[1, 1]));
    }
}
