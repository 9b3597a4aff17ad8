//! Secondary structure from hydrogen bonds of the backbone (Kabsch & Sander 1983, Biopolymers 22,
//! 2577), as assigned by `MDAnalysis.analysis.dssp.DSSP`.
//!
//! A hydrogen bond exists if its energy is below −0.5 kcal/mol. A rounding error can change this
//! decision. To get the same letters, positions are therefore rounded to single precision wherever
//! MDAnalysis rounds them.

pub mod mkdssp;

use super::cell::{ApplyPbc, Cell, is_placeholder, nearest_in, square, whole};
use super::rdf::are_searched_by_cells;
use super::row_kernel::{Frames, RowKernel, cell_or_none};
use super::transform_common::Refused;
use super::{Columns, check_len};
use paceline_base::error::{self, Error};

/// Bit that marks a residue in a helix.
pub const HELIX: u8 = 1;
/// Bit that marks a residue in a strand.
pub const STRAND: u8 = 2;

/// Maximum distance from N to O that is searched, Å.
const REACH: f64 = 5.0;
/// Product of the partial charges (squared elementary charges), and Coulomb's constant (kcal
/// Å/mol).
const CHARGES: f64 = 0.084;
const FACTOR: f64 = 332.0;
/// Maximum energy of a hydrogen bond, kcal/mol.
const BOND: f64 = -0.5;
/// Distance from N to a placed hydrogen, Å.
const NH: f32 = 1.01;
/// Minimum number of residues that MDAnalysis accepts.
const FEWEST: usize = 6;

const NEEDED_BY: &str = "DSSP";

/// Kernel that assigns helices and strands to the residues of a protein.
#[derive(Debug, Clone)]
pub struct Dssp {
    /// Columns of N of all residues, then all CA, all C and all O, and all H unless hydrogens are
    /// placed.
    columns: Columns,
    /// True for residues whose N can donate a hydrogen bond. The first residue never can.
    donors: Vec<bool>,
}

impl Dssp {
    /// Create a kernel. `columns` contains N of all residues, then all CA, all C and all O, and all
    /// H if `has_hydrogens` is true. A residue that is not a donor may have any column as H.
    ///
    /// # Errors
    /// [`Error::Argument`] if there are fewer than six residues, or the number of columns is wrong.
    pub fn new(columns: &[usize], donors: &[bool], has_hydrogens: bool) -> error::Result<Self> {
        let n_residues = donors.len();
        if n_residues < FEWEST {
            return Err(Error::Argument(format!(
                "expected at least {FEWEST} residues, found {n_residues}"
            )));
        }
        let n_kinds = if has_hydrogens { 5 } else { 4 };
        check_len("columns", columns.len(), n_kinds * n_residues)?;
        Ok(Dssp {
            columns: Columns::new(columns),
            donors: donors.to_vec(),
        })
    }

    /// Collect the atoms of a frame that take part in hydrogen bonds.
    ///
    /// # Errors
    /// A message if a position is not finite, or a hydrogen cannot be placed.
    fn gather(
        &self,
        frame: &[f32],
        scratch: &mut Vec<f32>,
        atoms: &mut Atoms,
    ) -> Result<(), String> {
        let n_residues = self.donors.len();
        let (picked, _) = self.columns.pick(frame, scratch).as_chunks();
        let kind = |kind: usize| &picked[kind * n_residues..(kind + 1) * n_residues];
        let [n, ca, c, o] = [0, 1, 2, 3].map(kind);
        let last = n_residues - 1;
        atoms.n.clear();
        atoms.n.extend_from_slice(&n[1..]);
        atoms.c.clear();
        atoms.c.extend_from_slice(&c[..last]);
        atoms.o.clear();
        atoms.o.extend_from_slice(&o[..last]);
        atoms.h.clear();
        if picked.len() > 4 * n_residues {
            atoms.h.extend_from_slice(&kind(4)[1..]);
        } else {
            let placed = |residue| placed_hydrogen(n[residue], c[residue - 1], ca[residue]);
            atoms.h.extend((1..n_residues).map(placed));
        }
        let finite = |x: &[f32; 3]| x.iter().all(|x| x.is_finite());
        for i in 0..last {
            if ![atoms.n[i], atoms.c[i], atoms.o[i]].iter().all(finite) {
                return Err(format!(
                    "the backbone of residue {i} or {} (from 0) has positions that are not finite",
                    i + 1
                ));
            }
            if self.donors[i + 1] && !finite(&atoms.h[i]) {
                return Err(format!(
                    "the hydrogen at N of residue {} (from 0) cannot be placed: positions are not \
                     finite, or N, CA and the previous C coincide",
                    i + 1
                ));
            }
        }
        Ok(())
    }

    /// Find the hydrogen bonds of a frame.
    fn find(
        &self,
        dimensions: [f32; 6],
        atoms: &mut Atoms,
        bonds: &mut Bonds,
    ) -> Result<(), String> {
        let cell = match is_placeholder(dimensions) {
            true => None,
            false => cell_or_none(dimensions, NEEDED_BY)?,
        };
        atoms.find_candidates(cell.as_ref(), &self.donors);
        let n_atoms = atoms.n.len();
        let by_cells = |edges: [f32; 3]| are_searched_by_cells([n_atoms; 2], REACH, edges);
        match &cell {
            None => {
                let (origin, edges) = atoms.extent();
                if by_cells(edges) {
                    // MDAnalysis moves the atoms into a box of its own, which rounds the positions.
                    let margin = (0.1 * REACH) as f32;
                    atoms.move_pairs(|x| {
                        Some(std::array::from_fn(|i| x[i] - (origin[i] - margin)))
                    })?;
                } else {
                    atoms.move_pairs(Some)?;
                }
                atoms.find_bonds(square, square, bonds);
            }
            Some(cell) if cell.is_triclinic() => {
                let pbc = ApplyPbc::new(cell.vectors());
                for kind in [&mut atoms.n, &mut atoms.c, &mut atoms.o, &mut atoms.h] {
                    move_all(kind, |x| pbc.apply(x))?;
                }
                atoms.move_pairs(Some)?;
                let nearest = |d: [f64; 3]| match cell.is_near(d) {
                    true => square(d),
                    false => square(cell.shifted(d, cell.nearest_images(d))),
                };
                atoms.find_bonds(nearest, nearest, bonds);
            }
            Some(cell) => {
                let edges: [f32; 3] = std::array::from_fn(|i| cell.vectors()[i][i] as f32);
                if by_cells(edges) {
                    let pbc = ApplyPbc::new(cell.vectors());
                    atoms.move_pairs(|x| pbc.apply(x))?;
                    atoms.find_bonds(nearest_within(edges), nearest_in(edges), bonds);
                } else {
                    atoms.move_pairs(Some)?;
                    atoms.find_bonds(nearest_in(edges), nearest_in(edges), bonds);
                }
            }
        }
        Ok(())
    }
}

impl RowKernel for Dssp {
    fn n_columns(&self) -> usize {
        self.donors.len()
    }

    /// Compute the bits [`HELIX`] and [`STRAND`] of each residue.
    fn compute(&self, frames: &Frames<'_>, out: &mut [f64]) -> error::Result<Option<Refused>> {
        self.columns.check(frames.n_atoms())?;
        let mut scratch = Vec::new();
        let mut atoms = Atoms::default();
        let mut bonds = Bonds::new(self.donors.len());
        frames.fill_rows(out, self.n_columns(), |frame, dimensions, row| {
            self.gather(frame, &mut scratch, &mut atoms)?;
            self.find(dimensions, &mut atoms, &mut bonds)?;
            bonds.assign(row);
            Ok(())
        })
    }
}

/// Atoms that may form hydrogen bonds: N and H of donor residue i + 1 at index i, C and O of
/// acceptor residue j at index j.
#[derive(Debug, Default)]
struct Atoms {
    /// N and H of all residues but the first.
    n: Vec<[f32; 3]>,
    h: Vec<[f32; 3]>,
    /// C and O of all residues but the last.
    c: Vec<[f32; 3]>,
    o: Vec<[f32; 3]>,
    /// N and O after the translation that MDAnalysis makes before it computes N–O distances.
    pair_n: Vec<[f32; 3]>,
    pair_o: Vec<[f32; 3]>,
    /// Indices of N and O of the pairs that may be within the maximum distance.
    candidates: Vec<[u32; 2]>,
    /// Squared distances of each candidate from N to O, H to C, H to O and N to C, Å².
    squares: Vec<[f64; 4]>,
}

impl Atoms {
    /// Return the minimum coordinates of all N and O, and their extent, Å.
    fn extent(&self) -> ([f32; 3], [f32; 3]) {
        let (mut least, mut most) = ([f32::INFINITY; 3], [f32::NEG_INFINITY; 3]);
        for x in self.n.iter().chain(&self.o) {
            for axis in 0..3 {
                least[axis] = least[axis].min(x[axis]);
                most[axis] = most[axis].max(x[axis]);
            }
        }
        (least, std::array::from_fn(|axis| most[axis] - least[axis]))
    }

    fn move_pairs(&mut self, to: impl Fn([f32; 3]) -> Option<[f32; 3]>) -> Result<(), String> {
        self.pair_n.clone_from(&self.n);
        self.pair_o.clone_from(&self.o);
        move_all(&mut self.pair_n, &to)?;
        move_all(&mut self.pair_o, &to)
    }

    /// Find all pairs within the maximum distance, and some slightly beyond.
    fn find_candidates(&mut self, cell: Option<&Cell>, donors: &[bool]) {
        // No donor is bonded to the O of its own residue, or of one of the two residues before it.
        let (donates, may) = (
            |i: usize| donors[i + 1],
            |i: usize, j: usize| i.abs_diff(j) >= 2,
        );
        let found = &mut self.candidates;
        find_pairs(&self.n, &self.o, cell, REACH, donates, may, found);
    }

    /// Find the hydrogen bonds among the candidates. One function computes squared distances (Å²)
    /// between N and O; the other computes those between other atoms.
    fn find_bonds(
        &mut self,
        of_pair: impl Fn([f64; 3]) -> f64,
        of_others: impl Fn([f64; 3]) -> f64,
        bonds: &mut Bonds,
    ) {
        self.squares.clear();
        for &[i, j] in &self.candidates {
            let (i, j) = (i as usize, j as usize);
            self.squares.push([
                of_pair(difference(self.pair_n[i], self.pair_o[j])),
                of_others(difference(self.c[j], self.h[i])),
                of_others(difference(self.o[j], self.h[i])),
                of_others(difference(self.c[j], self.n[i])),
            ]);
        }
        bonds.found.clear();
        for (&[i, j], squares) in self.candidates.iter().zip(&self.squares) {
            let [on, ch, oh, cn] = squares.map(|square| 1.0 / square.sqrt());
            let energy = CHARGES * (on + ch - oh - cn) * FACTOR;
            if squares[0] <= REACH * REACH && energy < BOND {
                bonds.found.push([i + 1, j]);
            }
        }
    }
}

/// Hydrogen bonds of a frame.
#[derive(Debug)]
struct Bonds {
    n_residues: usize,
    /// Pairs of donor residue and acceptor residue.
    found: Vec<[u32; 2]>,
    /// Index at which the acceptors of each donor begin, and the end of the last donor's acceptors.
    begins: Vec<usize>,
    acceptors: Vec<u32>,
    /// Bits [`HELIX`] and [`STRAND`] of each residue.
    states: Vec<u8>,
}

impl Bonds {
    fn new(n_residues: usize) -> Self {
        Bonds {
            n_residues,
            found: Vec::new(),
            begins: Vec::new(),
            acceptors: Vec::new(),
            states: Vec::new(),
        }
    }

    /// Assign helices and strands from the hydrogen bonds found.
    fn assign(&mut self, row: &mut [f64]) {
        self.sort();
        self.states.clear();
        self.states.resize(self.n_residues, 0);
        self.mark_helices();
        self.mark_strands();
        for (number, &state) in row.iter_mut().zip(&self.states) {
            *number = f64::from(state);
        }
    }

    /// Sort the bonds by donor.
    fn sort(&mut self) {
        self.begins.clear();
        self.begins.resize(self.n_residues + 2, 0);
        for [donor, _] in &self.found {
            self.begins[*donor as usize + 2] += 1;
        }
        for donor in 2..self.begins.len() {
            self.begins[donor] += self.begins[donor - 1];
        }
        self.acceptors.clear();
        self.acceptors.resize(self.found.len(), 0);
        for &[donor, acceptor] in &self.found {
            let place = &mut self.begins[donor as usize + 1];
            self.acceptors[*place] = acceptor;
            *place += 1;
        }
    }

    /// Return true if the O of `acceptor` is bonded to the N of `donor`.
    fn has(&self, acceptor: usize, donor: usize) -> bool {
        donor < self.n_residues
            && self.acceptors[self.begins[donor]..self.begins[donor + 1]]
                .contains(&(acceptor as u32))
    }

    /// Mark helices. If turns of equal length begin at residues i − 1 and i, the helix contains the
    /// residues from i to i + length − 1. Helices with turns of four residues are marked first.
    /// Helices with turns of three or five are marked only if the residues i and i + 1 are not yet
    /// marked.
    fn mark_helices(&mut self) {
        self.mark_turns(4, |_| true);
        let alpha = self.states.clone();
        let is_free = |i: usize| alpha[i] != HELIX && alpha[i + 1] != HELIX;
        self.mark_turns(3, is_free);
        self.mark_turns(5, is_free);
    }

    fn mark_turns(&mut self, length: usize, may_begin: impl Fn(usize) -> bool) {
        let mut was_turn = false;
        for i in 0..self.n_residues.saturating_sub(length) {
            let is_turn = self.has(i, i + length);
            if is_turn && was_turn && may_begin(i) {
                self.states[i..i + length].fill(HELIX);
            }
            was_turn = is_turn;
        }
    }

    /// Mark the residues of bridges. A bridge consists of two bonds between the neighbourhoods of
    /// two residues. The first and the last residue of the chain form no bridge.
    fn mark_strands(&mut self) {
        let inner = 1..self.n_residues - 1;
        for k in 0..self.found.len() {
            let [donor, acceptor] = self.found[k].map(|residue| residue as usize);
            // Each entry contains two bonds: first acceptor, first donor, second acceptor, second
            // donor.
            let bridges = [
                // Antiparallel bridge: the two residues are bonded to each other.
                ([acceptor, donor], [donor, acceptor]),
                // Antiparallel bridge: the neighbours of the two residues are bonded.
                (
                    [acceptor + 1, donor - 1],
                    [donor.wrapping_sub(2), acceptor + 2],
                ),
                // Parallel bridge.
                ([acceptor + 1, donor], [donor, acceptor + 2]),
            ];
            for (residues, [other, to]) in bridges {
                if residues.iter().all(|residue| inner.contains(residue)) && self.has(other, to) {
                    for residue in residues {
                        self.states[residue] |= STRAND;
                    }
                }
            }
        }
    }
}

/// Return the position of a hydrogen in the plane of N, CA and the previous C, at equal angles to
/// both bonds, in single precision as in MDAnalysis.
fn placed_hydrogen(n: [f32; 3], c_before: [f32; 3], ca: [f32; 3]) -> [f32; 3] {
    let from = |x: [f32; 3]| unit(std::array::from_fn(|axis| n[axis] - x[axis]));
    let (from_c, from_ca) = (from(c_before), from(ca));
    let along = unit(std::array::from_fn(|axis| from_c[axis] + from_ca[axis]));
    std::array::from_fn(|axis| n[axis] + NH * along[axis])
}

fn unit(x: [f32; 3]) -> [f32; 3] {
    let length = (x[0] * x[0] + x[1] * x[1] + x[2] * x[2]).sqrt();
    x.map(|x| x / length)
}

/// Return the difference of two positions, rounded to single precision.
fn difference(x: [f32; 3], y: [f32; 3]) -> [f64; 3] {
    std::array::from_fn(|axis| f64::from(x[axis] - y[axis]))
}

/// Return a function that computes squared minimum-image distances (Å²) between positions inside a
/// rectangular cell.
fn nearest_within(edges: [f32; 3]) -> impl Fn([f64; 3]) -> f64 {
    let halves = edges.map(|edge| f64::from(0.5 * edge));
    let edges = edges.map(f64::from);
    move |d| {
        square(std::array::from_fn(|axis| {
            if d[axis] > halves[axis] {
                d[axis] - edges[axis]
            } else if d[axis] <= -halves[axis] {
                d[axis] + edges[axis]
            } else {
                d[axis]
            }
        }))
    }
}

fn move_all(
    positions: &mut [[f32; 3]],
    to: impl Fn([f32; 3]) -> Option<[f32; 3]>,
) -> Result<(), String> {
    for x in positions {
        *x = to(*x).ok_or_else(|| {
            format!("an atom at {x:?} Å is too far away to be wrapped into the cell")
        })?;
    }
    Ok(())
}

/// Number of consecutive residues in a run. Two runs are compared atom by atom only if their
/// centres are near.
const RUN: usize = 8;

/// Find all pairs of N and O within `reach` (Å), and some slightly beyond. `donates` selects N
/// atoms, and `may` selects pairs of N and O, both by their indices. Runs of residues that are far
/// apart are skipped.
fn find_pairs(
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
    /// Largest absolute value of a coordinate, Å.
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

#[cfg(test)]
mod tests;
