//! Ghosts: images of atoms near the domain of a rank, sent by the ranks that own the atoms.
//!
//! The halo of a domain is the parallelepiped whose faces are parallel to those of the domain and a
//! width away from them, as in DL_POLY. It contains all positions that are within the width of the
//! domain, and, near the edges and corners of the domain, also some positions that are farther
//! away.

use std::ops::RangeInclusive;

use super::atom_table_and_text_frames::{AtomTable, OWNERS, Widths};
use super::atoms_to_owners::{Exchange, Grid};
use super::{ReadingCost, Settings, most_atoms};
use crate::{Communicator, Reduce};
use paceline_formats::error::Result;

/// Maximum width of a halo, in fractional coordinates of the cell.
const MOST_CELLS: f64 = 8.0;

/// Maximum distance of an atom from the cell, in fractional coordinates.
const FAR: f64 = 1e6;

/// Atoms of a rank in its domain, and images of its atoms and of other ranks' atoms in its halo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WithGhosts {
    /// The rank's own atoms in the order of their ids, then the ghosts in the order of ids and
    /// images. Positions are those of the images.
    pub atoms: AtomTable,
    /// Number of own atoms.
    pub n_local: usize,
    /// For each atom, the numbers of cell vectors that were added to its position in the file.
    pub images: Vec<[i32; 3]>,
}

/// The halos of a grid's domains.
#[derive(Debug, Clone)]
pub struct Halo {
    grid: Grid,
    /// Width in fractional coordinates.
    widths: [f64; 3],
    periodic: [bool; 3],
}

/// Image of an atom: the atom's id, the numbers of added cell vectors, and the atom's row. Rows of
/// received atoms follow those of the rank's own atoms.
type Image = (i64, [i32; 3], usize);

impl Halo {
    /// Make halos of a width (Å), with images along the cell's `periodic` vectors.
    ///
    /// # Errors
    /// [`Error::Unsupported`](paceline_formats::error::Error::Unsupported) if the width is not from
    /// 0 to 8 cells.
    pub fn new(grid: Grid, width: f64, periodic: [bool; 3]) -> Result<Self> {
        let widths = grid.heights().map(|height| width / height);
        if !widths
            .iter()
            .all(|width| (0.0..=MOST_CELLS).contains(width))
        {
            let [a, b, c] = grid.heights();
            return Err(grid.moment.unsupported(format!(
                "ghosts of {width} Å are more than {MOST_CELLS} times the distances between opposite \
                 faces of the cell, {a:.4}, {b:.4} and {c:.4} Å"
            )));
        }
        Ok(Halo {
            grid,
            widths,
            periodic,
        })
    }

    /// Add the ghosts to the atoms of this rank, which were distributed by the grid. Return `None`
    /// if another rank failed. The call is collective: ranks without atoms must make it too.
    ///
    /// # Errors
    /// Errors of the communicator, and an error if an atom of this rank is far away from the cell,
    /// or outside of it along a vector that is not periodic.
    pub fn add_ghosts(
        &self,
        comm: &dyn Communicator,
        settings: &Settings<'_>,
        own: AtomTable,
        cost: ReadingCost,
    ) -> Result<Option<(WithGhosts, ReadingCost)>> {
        let outside = self.check(&own);
        let mut failed = [u64::from(outside.is_err())];
        comm.all_reduce(&mut failed, Reduce::Max)?;
        outside?;
        if failed != [0] {
            return Ok(None);
        }
        let (came, cost) = self.exchange(comm, settings, &own, cost)?;
        let rank = comm.rank() as u32;
        let mut found = Vec::new();
        let at = self.grid.domain_of(rank);
        for (table, n_before, is_own) in [(&own, 0, true), (&came, own.len(), false)] {
            for (atom, id) in table.ids().enumerate() {
                let parts = self.grid.parts(table.position(atom));
                let near: [_; 3] =
                    std::array::from_fn(|axis| self.near(axis, parts[axis], at[axis]));
                for c in near[2].clone() {
                    for b in near[1].clone() {
                        for a in near[0].clone() {
                            let is_itself = is_own && [a, b, c] == home(parts);
                            if !is_itself {
                                found.push((id, [a, b, c], n_before + atom));
                            }
                        }
                    }
                }
            }
        }
        found.sort_unstable();
        Ok(Some((self.joined(own, &came, &found), cost)))
    }

    /// # Errors
    /// An error about the first atom that is far away from the cell, or outside of it along a
    /// vector that is not periodic.
    fn check(&self, own: &AtomTable) -> Result<()> {
        for (atom, id) in own.ids().enumerate() {
            let parts = self.grid.parts(own.position(atom));
            let is_outside = |axis: usize| {
                parts[axis].abs() > FAR || !self.periodic[axis] && parts[axis].floor() != 0.0
            };
            if (0..3).any(is_outside) {
                return Err(self.grid.moment.unsupported(format!(
                    "atom {id} is far away from the cell, or outside of it along a vector that is \
                     not periodic, and has no ghosts there; without ghosts= it can be read"
                )));
            }
        }
        Ok(())
    }

    /// For one cell vector, return the range of integers n for which n vectors move an atom into
    /// the halo of a domain. `part` is the fractional coordinate of the atom, and `domain` the
    /// index of the domain.
    fn near(&self, axis: usize, part: f64, domain: u32) -> RangeInclusive<i32> {
        let n = f64::from(self.grid.shape[axis]);
        let low = f64::from(domain) / n - self.widths[axis] - part;
        let high = f64::from(domain + 1) / n + self.widths[axis] - part;
        if self.periodic[axis] {
            low.ceil() as i32..=high.floor() as i32
        } else if low <= 0.0 && 0.0 <= high {
            0..=0
        } else {
            #[allow(clippy::reversed_empty_ranges)]
            {
                1..=0
            }
        }
    }

    /// Find the ranks that have an image of an atom in their halo, except the owner of the atom.
    fn ranks_near(&self, position: [f64; 3], own: u32, ranks: &mut Vec<u32>) {
        ranks.clear();
        let (parts, at) = (self.grid.parts(position), self.grid.domain_of(own));
        let is_inside = (0..3).all(|axis| {
            let n = f64::from(self.grid.shape[axis]);
            let within = parts[axis] - parts[axis].floor();
            let (low, high) = (f64::from(at[axis]) / n, f64::from(at[axis] + 1) / n);
            within - low > self.widths[axis] && high - within > self.widths[axis]
        });
        if is_inside {
            return;
        }
        let domains: [Vec<u32>; 3] = std::array::from_fn(|axis| {
            let all = 0..self.grid.shape[axis];
            all.filter(|&one| !self.near(axis, parts[axis], one).is_empty())
                .collect()
        });
        for &z in &domains[2] {
            for &y in &domains[1] {
                for &x in &domains[0] {
                    let rank = self.grid.rank_of([x, y, z]);
                    if rank != own {
                        ranks.push(rank);
                    }
                }
            }
        }
    }

    /// Send atoms to the ranks in whose halos they have images; return the received atoms.
    fn exchange(
        &self,
        comm: &dyn Communicator,
        settings: &Settings<'_>,
        own: &AtomTable,
        cost: ReadingCost,
    ) -> Result<(AtomTable, ReadingCost)> {
        let mut travelling: Widths = settings.widths;
        travelling[OWNERS] = size_of::<u32>();
        let mut post = Exchange::new(comm, travelling);
        post.cost = cost;
        let most = most_atoms(settings.buffer, &travelling);
        let (mut batch, mut came) = (AtomTable::new(travelling), AtomTable::new(settings.widths));
        let (mut next, mut ranks) = (0, Vec::new());
        loop {
            batch.make_room(0);
            while next < own.len() && batch.len() < most {
                self.ranks_near(own.position(next), comm.rank() as u32, &mut ranks);
                for rank in &ranks {
                    batch.append(&own.view(next..next + 1));
                    batch.column_mut(OWNERS).extend(rank.to_ne_bytes());
                }
                next += 1;
            }
            post.send(&batch.view(0..batch.len()), |owner| owner as usize)?;
            for some in post.received()? {
                came.append(&some);
            }
            let held = batch.capacity() + post.held();
            post.cost.peak_buffer = post.cost.peak_buffer.max(held);
            let mut left = [u64::from(next < own.len())];
            comm.all_reduce(&mut left, Reduce::Max)?;
            if left == [0] {
                return Ok((came, post.cost));
            }
        }
    }

    /// Move own atoms into the domain, and append images of own and received atoms.
    fn joined(&self, own: AtomTable, came: &AtomTable, found: &[Image]) -> WithGhosts {
        let (n_own, mut atoms) = (own.len(), own);
        let mut images: Vec<[i32; 3]> = (0..n_own)
            .map(|atom| home(self.grid.parts(atoms.position(atom))))
            .collect();
        let mut ghosts = AtomTable::new(*atoms.widths());
        ghosts.make_room(found.len());
        for &(_, image, row) in found {
            match row.checked_sub(n_own) {
                None => ghosts.append(&atoms.view(row..row + 1)),
                Some(row) => ghosts.append(&came.view(row..row + 1)),
            }
            images.push(image);
        }
        atoms.append(&ghosts.view(0..ghosts.len()));
        for (atom, &image) in images.iter().enumerate() {
            if image != [0; 3] {
                let moved = self.grid.moved(atoms.position(atom), image);
                atoms.set_position(atom, moved);
            }
        }
        WithGhosts {
            atoms,
            n_local: n_own,
            images,
        }
    }
}

/// Numbers of cell vectors that move a position with these fractional coordinates into the cell.
fn home(parts: [f64; 3]) -> [i32; 3] {
    parts.map(|part| -(part.floor() as i32))
}
