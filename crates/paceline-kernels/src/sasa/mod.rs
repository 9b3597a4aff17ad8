//! Solvent-accessible surface by points on spheres (Shrake & Rupley 1973, J. Mol. Biol. 79, 351).
//!
//! An atom's sphere reaches as far as the centre of a probe that touches it. Of the points on it,
//! which are the same for all atoms, those within no other sphere are exposed. How many these are is
//! a whole number, whatever the order of the atoms.

use super::cell::is_placeholder;
use super::rows::{Frames, RowKernel, cell_or_none};
use super::transform::Refused;
use super::{Columns, check_len};
use crate::instructions::by_widest;
use paceline_base::error::{self, Error};

mod grid;
mod neighbours;
mod points;
#[cfg(test)]
mod tests;

use grid::{Around, Grid};
use neighbours::Neighbours;
use points::{Alive, Points};

const NEEDED_BY: &str = "SASA";

/// Spheres, the points on them, and what is summed up.
#[derive(Debug, Clone)]
pub struct Sasa {
    columns: Columns,
    /// Radius of each sphere, probe included, Å.
    radii: Vec<f32>,
    /// Å² of one point on each sphere.
    areas: Vec<f64>,
    /// Spheres that are reported, each with the number in the row that it adds to.
    output: Vec<[u32; 2]>,
    n_parts: usize,
    points: Points,
}

impl Sasa {
    /// `columns` are the atoms that have a surface, with `radii` (Å, without that of the probe).
    /// `output` are pairs of an index in these and of the number in the row, of `n_parts`, to which
    /// that atom's area is added.
    ///
    /// # Errors
    /// [`Error::Argument`] for no atoms or points, radii that are not above 0, or pairs beyond.
    pub fn new(
        columns: &[usize],
        radii: &[f64],
        probe: f64,
        n_points: usize,
        output: &[[u32; 2]],
        n_parts: usize,
    ) -> error::Result<Self> {
        check_len("radii", radii.len(), columns.len())?;
        let is_length = |x: f64| x.is_finite() && (0.0..1e3).contains(&x);
        let is_valid = !columns.is_empty()
            && radii
                .iter()
                .all(|&radius| is_length(radius) && radius + probe > 0.0)
            && is_length(probe)
            && (1..=1 << 16).contains(&n_points)
            && output
                .iter()
                .all(|&[atom, part]| (atom as usize) < radii.len() && (part as usize) < n_parts);
        if !is_valid {
            return Err(Error::Argument(
                "a surface needs atoms with radii, a probe and 1 to 65,536 points".to_string(),
            ));
        }
        let area = |radius: f64| 4.0 * std::f64::consts::PI * (radius + probe) * (radius + probe);
        Ok(Sasa {
            points: Points::new(n_points),
            columns: Columns::new(columns),
            radii: radii.iter().map(|radius| (radius + probe) as f32).collect(),
            areas: radii
                .iter()
                .map(|&radius| area(radius) / n_points as f64)
                .collect(),
            output: output.to_vec(),
            n_parts,
        })
    }

    /// Count the points of a sphere that no other covers, with its places in the grid and around.
    #[inline(always)]
    fn exposed<const WIDE: bool>(
        &self,
        place: usize,
        own: usize,
        grid: &Grid,
        scratch: &mut Scratch,
    ) -> u32 {
        let Scratch {
            around,
            neighbours,
            alive,
            ..
        } = scratch;
        alive.clear();
        alive.extend_from_slice(self.points.all());
        // Of most spheres, those near by leave nothing.
        for runs in &around.runs {
            if !neighbours.find::<WIDE>(place, own, grid, around, runs) {
                return 0;
            }
            for number in 0..neighbours.sort::<WIDE>() {
                let batch = neighbours.batch::<WIDE>(number);
                self.points.cover::<WIDE>(&batch, alive);
                if alive.is_empty() {
                    return 0;
                }
            }
        }
        alive.iter().map(Alive::count).sum()
    }
}

by_widest! {
    /// Count the exposed points of each sphere that is reported.
    fn count(sasa: &Sasa, grid: &Grid, scratch: &mut Scratch) {
        scratch.counts.clear();
        scratch.counts.resize(sasa.radii.len(), 0);
        let reported = &mut scratch.reported;
        reported.clear();
        reported.resize(sasa.radii.len(), false);
        for [atom, _] in &sasa.output {
            reported[*atom as usize] = true;
        }
        for at in 0..grid.begins.len() - 1 {
            let members = grid.begins[at]..grid.begins[at + 1];
            let mut is_copied = false;
            for place in members {
                let atom = grid.atoms[place] as usize;
                if scratch.reported[atom] {
                    if !is_copied {
                        grid.copy_around(at, &mut scratch.around);
                        is_copied = true;
                    }
                    let own = scratch.around.own + (place - grid.begins[at]);
                    scratch.counts[atom] = sasa.exposed::<WIDE>(place, own, grid, scratch);
                }
            }
        }
    }
}

impl RowKernel for Sasa {
    fn n_columns(&self) -> usize {
        self.n_parts
    }

    /// Areas, Å²; NaN where any position is not finite, since an atom may cover each other one.
    fn compute(&self, frames: &Frames<'_>, out: &mut [f64]) -> error::Result<Option<Refused>> {
        self.columns.check(frames.n_atoms())?;
        let mut picked = Vec::new();
        let mut scratch = Scratch::default();
        let mut grid = Grid::default();
        frames.fill_rows(out, self.n_parts, |frame, dimensions, row| {
            let (positions, _) = self.columns.pick(frame, &mut picked).as_chunks();
            if !positions.as_flattened().iter().all(|x| x.is_finite()) {
                row.fill(f64::NAN);
                return Ok(());
            }
            let cell = match is_placeholder(dimensions) {
                true => None,
                false => cell_or_none(dimensions, NEEDED_BY)?,
            };
            grid.sort(positions, &self.radii, cell.as_ref())?;
            count(self, &grid, &mut scratch);
            row.fill(0.0);
            for &[atom, part] in &self.output {
                let atom = atom as usize;
                row[part as usize] += self.areas[atom] * f64::from(scratch.counts[atom]);
            }
            Ok(())
        })
    }
}

#[derive(Debug, Default)]
struct Scratch {
    counts: Vec<u32>,
    reported: Vec<bool>,
    around: Around,
    neighbours: Neighbours,
    alive: Vec<Alive>,
}
