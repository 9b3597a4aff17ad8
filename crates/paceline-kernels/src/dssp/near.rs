//! Search for nearby pairs of backbone nitrogen and oxygen.

use crate::cell::{Cell, square, whole};

/// Number of consecutive residues in a run. Two runs are compared atom by atom only if their
/// centres are near.
const RUN: usize = 8;

/// Find all pairs of N and O within `reach` (Å), and some slightly beyond. `donates` selects N
/// atoms, and `may` selects pairs of N and O, both by their indices. Runs of residues that are far
/// apart are skipped.
pub fn find_pairs(
    n: &[[f32; 3]],
    o: &[[f32; 3]],
    cell: Option<&Cell>,
    reach: f64,
    donates: impl Fn(usize) -> bool,
    may: impl Fn(usize, usize) -> bool,
    found: &mut Vec<[u32; 2]>,
) {
    found.clear();
    let runs_of = |x: &[[f32; 3]]| x.chunks(RUN).map(Run::new).collect::<Vec<_>>();
    let (of_n, of_o) = (runs_of(n), runs_of(o));
    let runs = of_n.iter().chain(&of_o);
    let farthest = runs.fold(0.0, |most: f64, run| most.max(run.farthest));
    // Single precision may change distances by a few units in the last place.
    let reach = reach + 0.01 + 8.0 * f64::from(f32::EPSILON) * farthest;
    for (a, run) in of_n.iter().enumerate() {
        for (b, other) in of_o.iter().enumerate() {
            let d = std::array::from_fn(|axis| run.centre[axis] - other.centre[axis]);
            let apart = Apart::new(cell, d, reach + run.radius + other.radius);
            if let Apart::Far = apart {
                continue;
            }
            for (i, x) in n.iter().enumerate().skip(RUN * a).take(RUN) {
                if !donates(i) {
                    continue;
                }
                let mut within = match apart {
                    Apart::Shifted(shift) => other.within(x, shift, reach),
                    _ => u8::MAX,
                };
                while within != 0 {
                    let j = RUN * b + within.trailing_zeros() as usize;
                    within &= within - 1;
                    if j < o.len() && may(i, j) {
                        found.push([i as u32, j as u32]);
                    }
                }
            }
        }
    }
}

/// Relative position of the atoms of two runs.
enum Apart {
    /// No pair of atoms is within the maximum distance.
    Far,
    /// All near pairs are in the same image, with this shift (Å).
    Shifted([f32; 3]),
    /// The image may differ from pair to pair.
    Anywhere,
}

impl Apart {
    /// Classify two runs, given the difference of their centres and the maximum distance of centres
    /// for which atoms can be near.
    fn new(cell: Option<&Cell>, d: [f64; 3], reach: f64) -> Self {
        let Some(cell) = cell else {
            return match square(d) > reach * reach {
                true => Apart::Far,
                false => Apart::Shifted([0.0; 3]),
            };
        };
        if reach * reach >= cell.near() {
            return Apart::Anywhere;
        }
        // At most one image of a point is within half the shortest height of the cell. This code
        // finds that image.
        let mut rest = d;
        for axis in [2, 1, 0] {
            let vector = cell.vectors()[axis];
            let number = whole(rest[axis] / vector[axis]);
            rest = std::array::from_fn(|i| rest[i] - number * vector[i]);
        }
        match square(rest) > reach * reach {
            true => Apart::Far,
            false => Apart::Shifted(std::array::from_fn(|i| (rest[i] - d[i]) as f32)),
        }
    }
}

/// Atoms of one kind in consecutive residues.
struct Run {
    /// Centre, Å.
    centre: [f64; 3],
    radius: f64,
    /// Largest coordinate, Å.
    farthest: f64,
    /// x, y and z of each atom, Å; infinite for missing atoms.
    axes: [[f32; RUN]; 3],
}

impl Run {
    fn new(positions: &[[f32; 3]]) -> Self {
        let mut axes = [[f32::INFINITY; RUN]; 3];
        let mut sums = [0.0; 3];
        for (k, x) in positions.iter().enumerate() {
            for axis in 0..3 {
                axes[axis][k] = x[axis];
                sums[axis] += f64::from(x[axis]);
            }
        }
        let centre = sums.map(|sum| sum / positions.len() as f64);
        let (mut radius, mut farthest) = (0.0_f64, 0.0_f64);
        for x in positions {
            let d = std::array::from_fn(|axis| f64::from(x[axis]) - centre[axis]);
            radius = radius.max(square(d));
            farthest = x
                .iter()
                .fold(farthest, |most, x| most.max(f64::from(x.abs())));
        }
        Run {
            centre,
            radius: radius.sqrt(),
            farthest,
            axes,
        }
    }

    /// Return a bit mask of the atoms within `reach` (Å) of a shifted position.
    #[inline]
    fn within(&self, x: &[f32; 3], shift: [f32; 3], reach: f64) -> u8 {
        let x: [f32; 3] = std::array::from_fn(|axis| x[axis] + shift[axis]);
        let to_centre = std::array::from_fn(|axis| f64::from(x[axis]) - self.centre[axis]);
        let far = reach + self.radius;
        if square(to_centre) > far * far {
            return 0;
        }
        let most = (reach * reach) as f32;
        let mut squares = [0.0; RUN];
        for (k, square) in squares.iter_mut().enumerate() {
            let d: [f32; 3] = std::array::from_fn(|axis| x[axis] - self.axes[axis][k]);
            *square = d[0] * d[0] + d[1] * d[1] + d[2] * d[2];
        }
        let bits = squares.iter().enumerate();
        bits.fold(0, |bits, (k, &square)| bits | u8::from(square <= most) << k)
    }
}
