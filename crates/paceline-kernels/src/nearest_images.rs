//! Nearest images of many differences of positions, in a cell with any angles.

use super::cell::{Cell, square, whole};
use super::instructions::by_widest;
use super::row_kernel::cell_or_none;

/// Number of images whose neighbours are compared together.
const FAR: usize = 32;

/// Computation of the nearest image of a difference of positions, Å.
pub enum Images {
    /// No cell.
    Plain,
    /// Cell with right angles: edges and their inverses.
    Rectangular([f64; 3], [f64; 3]),
    Triclinic(Box<Triclinic>),
}

impl Images {
    /// Use the cell of the frame if distances are periodic and the frame has a cell.
    pub fn new(dimensions: [f32; 6], periodic: bool) -> Result<Self, String> {
        if !periodic {
            return Ok(Images::Plain);
        }
        Ok(match cell_or_none(dimensions, "pbc=True")? {
            None => Images::Plain,
            Some(cell) if cell.is_triclinic() => Images::Triclinic(Box::new(Triclinic::new(&cell))),
            Some(cell) => {
                let edges: [f64; 3] = std::array::from_fn(|i| cell.vectors()[i][i]);
                Images::Rectangular(edges, edges.map(|edge| 1.0 / edge))
            }
        })
    }

    pub fn nearest(&self, d: [f64; 3]) -> [f64; 3] {
        match self {
            Images::Plain => d,
            Images::Rectangular(edges, inverse) => folded(d, edges, inverse),
            Images::Triclinic(cell) => cell.nearest(cell.folded(d)),
        }
    }

    /// Fill `out` with squared distances (Å²). `difference` returns the difference of each pair.
    #[inline(always)]
    pub fn squares(&self, out: &mut [f64], difference: impl Fn(usize) -> [f64; 3]) {
        match self {
            Images::Plain => {
                for (k, out) in out.iter_mut().enumerate() {
                    *out = square(difference(k));
                }
            }
            // The cell is copied to local variables. Otherwise it would be read again for each
            // distance, since `out` might alias it.
            Images::Rectangular(edges, inverse) => {
                let (edges, inverse) = (*edges, *inverse);
                for (k, out) in out.iter_mut().enumerate() {
                    *out = square(folded(difference(k), &edges, &inverse));
                }
            }
            Images::Triclinic(cell) => {
                let (vectors, over) = (cell.vectors, cell.over);
                for (k, out) in out.iter_mut().enumerate() {
                    *out = square(folded_aslant(difference(k), &vectors, &over));
                }
                let mut far = Far::default();
                for k in 0..out.len() {
                    if out[k] >= cell.near {
                        far.push(k, cell.folded(difference(k)));
                        if far.n == FAR {
                            far.shorten(cell, out);
                        }
                    }
                }
                far.shorten(cell, out);
            }
        }
    }
}

/// Cell with angles other than 90°: [`Cell::nearest_images`] for many differences.
pub struct Triclinic {
    /// Reduced vectors: each tilts by at most half of the vectors before it.
    vectors: [[f64; 3]; 3],
    /// Inverses of the diagonal elements of the vectors.
    over: [f64; 3],
    /// As [`Cell::near`].
    near: f64,
    /// Half of the 26 neighbouring images (opposite images are left out), and their squared
    /// distances (Å²).
    neighbours: [([f64; 3], f64); 13],
}

impl Triclinic {
    fn new(cell: &Cell) -> Self {
        let cell = cell.reduced();
        let vectors = *cell.vectors();
        let neighbours = std::array::from_fn(|k| {
            // In base 3, the first digit other than 1 is a 2 in the numbers 14 to 26. The images
            // opposite to these begin with a 0 and are left out.
            let digits = [(k + 14) / 9, (k + 14) / 3 % 3, (k + 14) % 3];
            let vector = cell.shifted([0.0; 3], digits.map(|digit| digit as f64 - 1.0));
            (vector, square(vector))
        });
        Triclinic {
            vectors,
            over: std::array::from_fn(|i| 1.0 / vectors[i][i]),
            near: cell.near(),
            neighbours,
        }
    }

    /// Return the image rounded vector by vector. If its square is below `near`, it is the nearest
    /// image.
    #[inline(always)]
    fn folded(&self, d: [f64; 3]) -> [f64; 3] {
        folded_aslant(d, &self.vectors, &self.over)
    }

    /// Return the nearest of a rounded image and its 26 neighbours.
    fn nearest(&self, d: [f64; 3]) -> [f64; 3] {
        if square(d) < self.near {
            return d;
        }
        let (mut most, mut by) = (0.0, [0.0; 3]);
        for (vector, square_of) in &self.neighbours {
            let along = d[0] * vector[0] + d[1] * vector[1] + d[2] * vector[2];
            let gain = 2.0 * along.abs() - square_of;
            if gain > most {
                most = gain;
                by = vector.map(|x| if along > 0.0 { -x } else { x });
            }
        }
        std::array::from_fn(|i| d[i] + by[i])
    }
}

/// Rounded images whose square is not below `near`, so that a neighbouring image may be shorter.
#[derive(Default)]
struct Far {
    n: usize,
    places: [usize; FAR],
    /// Coordinates x, y and z of the images.
    images: [[f64; FAR]; 3],
}

impl Far {
    #[inline(always)]
    fn push(&mut self, place: usize, image: [f64; 3]) {
        self.places[self.n] = place;
        for (numbers, x) in self.images.iter_mut().zip(image) {
            numbers[self.n] = x;
        }
        self.n += 1;
    }

    /// Replace the squared distances in `out` by those of the nearest neighbours, and clear the
    /// list.
    fn shorten(&mut self, cell: &Triclinic, out: &mut [f64]) {
        shorten(self, cell, out);
        self.n = 0;
    }
}

by_widest! {
    /// As [`Far::shorten`].
    ///
    /// |d ± s|² is d² + (s² ± 2 d·s). There is no cancellation: if a rounded image is not the
    /// nearest, it is about half a cell away.
    fn shorten(far: &Far, cell: &Triclinic, out: &mut [f64]) {
        let [x, y, z] = far.images.each_ref().map(|numbers| &numbers[..far.n]);
        let mut changes = [0.0; FAR];
        let changes = &mut changes[..far.n];
        for (vector, square_of) in &cell.neighbours {
            for (i, change) in changes.iter_mut().enumerate() {
                let along = x[i] * vector[0] + y[i] * vector[1] + z[i] * vector[2];
                let by = square_of - 2.0 * along.abs();
                *change = if by < *change { by } else { *change };
            }
        }
        for (&place, change) in far.places.iter().zip(changes) {
            out[place] += *change;
        }
    }
}

/// Return the image rounded vector by vector, in a triclinic cell.
#[inline(always)]
fn folded_aslant([x, y, z]: [f64; 3], [a, b, c]: &[[f64; 3]; 3], over: &[f64; 3]) -> [f64; 3] {
    let w = whole(z * over[2]);
    let [x, y, z] = [x - w * c[0], y - w * c[1], z - w * c[2]];
    let v = whole(y * over[1]);
    let [x, y] = [x - v * b[0], y - v * b[1]];
    [x - whole(x * over[0]) * a[0], y, z]
}

/// Return the nearest image in a rectangular cell.
#[inline(always)]
fn folded(d: [f64; 3], edges: &[f64; 3], inverse: &[f64; 3]) -> [f64; 3] {
    std::array::from_fn(|i| d[i] - edges[i] * whole(d[i] * inverse[i]))
}
