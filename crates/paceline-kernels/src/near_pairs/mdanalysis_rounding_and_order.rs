//! Distances with the rounding of MDAnalysis, and the order in which MDAnalysis returns near atoms.

use super::Point;
use crate::cell::{
    ApplyPbc, Cell, in_cell, is_placeholder, nearest_in, nearest_of_27, rounded, square,
};
use crate::rdf::are_searched_by_cells;
use crate::row_kernel::cell_or_none;
use crate::superposition::Matrix3;

/// Rounding of the distances of one frame in MDAnalysis, and the order of its pairs.
#[derive(Debug, Clone)]
pub struct Measure {
    pub(super) cell: Option<Cell>,
    pub(super) pbc: Option<ApplyPbc>,
    edges: Point,
    /// Origin that is subtracted from positions in a frame without a cell.
    origin: Point,
    /// Cell lists; `None` if MDAnalysis compares all pairs.
    lists: Option<Lists>,
    pub(super) cutoff: f64,
}

impl Measure {
    /// Create the measure for two groups of these `sizes`. `extent` returns the minimum and maximum
    /// coordinates of both groups; it is called only without a cell.
    pub fn new(
        cell: Option<Cell>,
        sizes: [usize; 2],
        cutoff: f64,
        extent: impl FnOnce() -> [Point; 2],
    ) -> Self {
        let Some(of) = cell else {
            let [low, high] = extent();
            let size: Point = std::array::from_fn(|k| high[k] - low[k]);
            let by_lists = are_searched_by_cells(sizes, cutoff, size);
            let margin = (0.1 * cutoff) as f32;
            let longest = size.into_iter().fold((2.0 * cutoff) as f32, f32::max);
            let edge = longest + (2.2 * cutoff) as f32;
            let mut vectors = [[0.0; 3]; 3];
            for (axis, vector) in vectors.iter_mut().enumerate() {
                vector[axis] = f64::from(edge);
            }
            return Measure {
                cell: None,
                pbc: None,
                edges: [0.0; 3],
                origin: if by_lists {
                    low.map(|x| x - margin)
                } else {
                    [0.0; 3]
                },
                lists: by_lists.then(|| Lists::new(&vectors, cutoff, false)),
                cutoff,
            };
        };
        let vectors = of.vectors();
        let extent = |k: usize| {
            let column = vectors.map(|vector| vector[k] as f32);
            column.into_iter().fold(f32::MIN, f32::max)
                - column.into_iter().fold(f32::MAX, f32::min)
        };
        let edges = std::array::from_fn(|k| vectors[k][k] as f32);
        let size = if of.is_triclinic() {
            std::array::from_fn(extent)
        } else {
            edges
        };
        let by_lists = are_searched_by_cells(sizes, cutoff, size);
        Measure {
            cell,
            pbc: Some(ApplyPbc::new(vectors)),
            edges,
            origin: [0.0; 3],
            lists: by_lists.then(|| Lists::new(vectors, cutoff, true)),
            cutoff,
        }
    }

    /// Return a position in the form in which distances are computed: wrapped into the cell, or
    /// relative to the origin.
    ///
    /// # Errors
    /// A message if the position cannot be wrapped in single precision.
    pub(super) fn placed(&self, x: Point) -> Result<Point, String> {
        match &self.pbc {
            Some(pbc) if self.is_in_cell() => in_cell(pbc, x),
            _ => Ok(std::array::from_fn(|k| x[k] - self.origin[k])),
        }
    }

    /// Return true if MDAnalysis uses cell lists, in which distances are rounded differently than
    /// in a comparison of all pairs.
    pub(crate) fn is_by_lists(&self) -> bool {
        self.lists.is_some()
    }

    /// Return true if distances are computed between wrapped positions.
    fn is_in_cell(&self) -> bool {
        let triclinic = self.cell.as_ref().is_some_and(Cell::is_triclinic);
        self.pbc.is_some() && (triclinic || self.lists.is_some())
    }

    /// Return the squared distance (Å²) between two positions that `placed` returned.
    fn square(&self, a: Point, b: Point) -> f64 {
        let d: [f64; 3] = std::array::from_fn(|k| f64::from(a[k] - b[k]));
        match &self.cell {
            None => square(d),
            Some(cell) if cell.is_triclinic() => nearest_of_27(cell)(d),
            Some(_) if self.lists.is_none() => nearest_in(self.edges)(d),
            Some(_) => square(std::array::from_fn(|k| {
                let half = f64::from(0.5 * self.edges[k]);
                if d[k] > half {
                    d[k] - f64::from(self.edges[k])
                } else if d[k] <= -half {
                    d[k] + f64::from(self.edges[k])
                } else {
                    d[k]
                }
            })),
        }
    }

    /// Return the distance between two positions (Å) if it is within the cutoff.
    pub(crate) fn within(&self, a: Point, b: Point) -> Result<Option<f64>, String> {
        Ok(self.within_placed(self.placed(a)?, self.placed(b)?))
    }

    /// Return the distance (Å) between two positions that `placed` returned, if it is within the
    /// cutoff.
    pub(super) fn within_placed(&self, a: Point, b: Point) -> Option<f64> {
        let square = self.square(a, b);
        let distance = square.sqrt();
        let is_within = match self.lists {
            Some(_) => square <= self.cutoff * self.cutoff,
            None => distance <= self.cutoff,
        };
        is_within.then_some(distance)
    }

    /// Return the squared distance (Å²) below which two positions are already nearest images.
    pub fn near(&self) -> f64 {
        self.cell.map_or(f64::INFINITY, |cell| cell.near())
    }

    /// Return the shortest image of a difference of positions, rounded as in
    /// `MDAnalysis.lib.distances.calc_angles`.
    pub fn difference(&self, from: Point, to: Point) -> Result<[f64; 3], String> {
        let plain = |from: Point, to: Point| std::array::from_fn(|k| f64::from(to[k] - from[k]));
        Ok(match (&self.cell, &self.pbc) {
            (Some(cell), Some(pbc)) if cell.is_triclinic() => {
                let d = plain(in_cell(pbc, from)?, in_cell(pbc, to)?);
                if cell.is_near(d) {
                    d
                } else {
                    shortest_of_27(cell, d)
                }
            }
            (Some(_), _) => {
                let d: [f64; 3] = plain(from, to);
                std::array::from_fn(|k| {
                    let edges_apart = f64::from(1.0 / self.edges[k]) * d[k];
                    f64::from(self.edges[k]) * (edges_apart - rounded(edges_apart))
                })
            }
            _ => plain(from, to),
        })
    }

    /// Sort indices of the second group, with their distances, into the order of MDAnalysis. All of
    /// these atoms are near the position `at`. `position` returns the position of an index.
    pub fn sort(
        &self,
        at: Point,
        places: &mut [(u32, f64)],
        position: impl Fn(u32) -> Point,
    ) -> Result<(), String> {
        if places.len() < 2 {
            return Ok(());
        }
        let Some(lists) = &self.lists else {
            places.sort_unstable_by_key(|&(j, _)| j);
            return Ok(());
        };
        let home = lists.cell(self.placed(at)?);
        let mut keys = Vec::with_capacity(places.len());
        for &(j, distance) in &*places {
            let rank = lists.rank(home, lists.cell(self.placed(position(j))?));
            keys.push((rank, std::cmp::Reverse(j), distance));
        }
        keys.sort_unstable_by_key(|&(rank, j, _)| (rank, j));
        for (place, (_, j, distance)) in places.iter_mut().zip(keys) {
            *place = (j.0, distance);
        }
        Ok(())
    }
}

/// Return the cell of a frame for a search within `cutoff` (Å); `None` if the frame has no cell.
///
/// # Errors
/// A message if the lengths and angles do not define a cell, or the height of the cell is below the
/// cutoff.
pub(crate) fn cell_for(
    dimensions: [f32; 6],
    cutoff: f64,
    needed_by: &str,
) -> Result<Option<Cell>, String> {
    if is_placeholder(dimensions) {
        return Ok(None);
    }
    let cell = cell_or_none(dimensions, needed_by)?;
    match cell {
        Some(cell) if 4.0 * cell.near() < cutoff * cutoff => Err(format!(
            "the shortest height of the cell is {:.3} Å, and pairs up to {cutoff} Å are searched",
            2.0 * cell.near().sqrt()
        )),
        _ => Ok(cell),
    }
}

/// Return the shortest of a difference and its 26 images, compared in the order of MDAnalysis.
fn shortest_of_27(cell: &Cell, d: [f64; 3]) -> [f64; 3] {
    let [a, b, c] = *cell.vectors();
    let mut best = (f64::from(f32::MAX), d);
    for i in [-1.0, 0.0, 1.0] {
        let x = d[0] + a[0] * i;
        for j in [-1.0, 0.0, 1.0] {
            let (x, y) = (x + b[0] * j, d[1] + b[1] * j);
            for k in [-1.0, 0.0, 1.0] {
                let image = [x + c[0] * k, y + c[1] * k, d[2] + c[2] * k];
                if square(image) < best.0 {
                    best = (square(image), image);
                }
            }
        }
    }
    best.1
}

/// Cell lists of MDAnalysis, which determine the order of its pairs.
#[derive(Debug, Clone)]
struct Lists {
    n: [i64; 3],
    periodic: [bool; 3],
    /// Edge lengths of a cell of the list, and tilts: x of b per y, y of c per z, and x of c per z.
    sizes: [f64; 3],
    tilts: [f64; 3],
}

impl Lists {
    fn new(vectors: &Matrix3, cutoff: f64, periodic: bool) -> Self {
        let [a, b, c] = *vectors;
        let volume = a[0] * b[1] * c[2];
        let face = [b[1] * c[2], b[0] * c[2], b[0] * c[1] - b[1] * c[0]];
        let widths = [
            volume / square(face).sqrt(),
            b[1] * c[2] / (c[1] * c[1] + c[2] * c[2]).sqrt(),
            c[2],
        ];
        let least = f64::from((f64::from((cutoff as f32).max(1.0)) + 0.001) as f32);
        let (few, most) = (if periodic { 3 } else { 2 }, 1290.0);
        let n = widths.map(|width| match (width / least).floor().min(most) as i64 {
            n if n <= few => 1,
            n => n,
        });
        Lists {
            periodic: n.map(|n| periodic && n > 1),
            sizes: std::array::from_fn(|k| vectors[k][k] / n[k] as f64),
            tilts: [b[0] / b[1], c[1] / c[2], c[0] / c[2]],
            n,
        }
    }

    fn cell(&self, x: Point) -> [i64; 3] {
        let [x, y, z] = x.map(f64::from);
        let y = y - z * self.tilts[1];
        let along = [x - y * self.tilts[0] - z * self.tilts[2], y, z];
        std::array::from_fn(|k| ((along[k] / self.sizes[k]) as i64).rem_euclid(self.n[k]))
    }

    /// Return the index (0 to 26) of a cell among the neighbours of another cell; 27 if it is not a
    /// neighbour.
    fn rank(&self, home: [i64; 3], other: [i64; 3]) -> usize {
        let offset = |k: usize| {
            let offset = other[k] - home[k];
            match self.periodic[k] {
                true if offset == self.n[k] - 1 => -1,
                true if offset == 1 - self.n[k] => 1,
                _ => offset,
            }
        };
        let offsets = [0, 1, 2].map(offset);
        if offsets.iter().any(|offset| offset.abs() > 1) {
            return 27;
        }
        let [x, y, z] = offsets.map(|offset| (offset + 1) as usize);
        9 * x + 3 * y + z
    }
}
