//! Secondary structure in the letters of DSSP (Kabsch & Sander 1983, Biopolymers 22, 2577), as
//! assigned by the program `mkdssp`, versions 2.2 and 4.2. The two versions differ in polyproline
//! helices.
//!
//! Some rules are those of the program and not of the paper. A hydrogen lies 1 Å from N, opposite
//! to the C=O of the previous residue, even across a chain break. A donor has at most two
//! acceptors. Energies are rounded to 0.001 kcal/mol. A π helix overrides an α helix.

use super::find_pairs;
use crate::cell::{Cell, cross, dot, is_placeholder, square};
use crate::row_kernel::{Frames, RowKernel, cell_or_none};
use crate::transform_common::Refused;
use crate::{Columns, check_len};
use paceline_base::error::{self, Error};

/// Codes of the letters in a row of results, in the order - H B E G I T S P.
pub const LOOP: u8 = 0;
const ALPHA: u8 = 1;
const BRIDGE: u8 = 2;
const STRAND: u8 = 3;
const THREE_TEN: u8 = 4;
const PI: u8 = 5;
const TURN: u8 = 6;
const BEND: u8 = 7;
const PPII: u8 = 8;

/// Coupling constant of the electrostatic energy, kcal Å/mol.
const COUPLING: f64 = -27.888;
/// Maximum energy of a hydrogen bond, and lower limit of computed energies, kcal/mol.
const BOND: f64 = -0.5;
const LEAST: f64 = -9.9;
/// If two atoms are nearer than this distance (Å), the energy is `LEAST`.
const TOO_NEAR: f64 = 0.5;
/// Maximum distance between the CA atoms of two residues with a hydrogen bond, Å.
const CA_REACH: f64 = 9.0;
/// Maximum distance from C to the next N within a chain, Å.
const PEPTIDE: f64 = 2.5;
/// Maximum length of an ordinary C=O bond, Å.
const LONG_CO: f64 = 1.3;
/// Maximum distance from N to O of a hydrogen bond whose C=O is not longer than `LONG_CO`, Å.
const REACH: f64 = 5.6;
/// Increase of the maximum distance from N to O per Å by which a C=O bond is longer than `LONG_CO`.
const PER_CO: f64 = 2.0;
/// Single-precision energy above which there is certainly no hydrogen bond, kcal/mol.
const ROUGH_BOND: f32 = -0.49;
/// Cosine of 70°, the minimum angle of a bend of the CA trace.
const COS_BEND: f64 = 0.342_020_143_325_668_7;
/// Cosine and sine of φ = −75° and ψ = 145° of a polyproline helix, and the cosine of the tolerance
/// of 29°.
const PPII_PHI: [f64; 2] = [0.258_819_045_102_520_7, -0.965_925_826_289_068_3];
const PPII_PSI: [f64; 2] = [-0.819_152_044_288_991_8, 0.573_576_436_351_046];
const PPII_COS: f64 = 0.874_619_707_139_395_7;

/// Mark of a missing acceptor.
const NONE: u32 = u32::MAX;

/// Kernel that assigns the letters of DSSP to the residues of a protein.
#[derive(Debug, Clone)]
pub struct Letters {
    /// Columns of N of all residues, then of all CA, all C and all O.
    columns: Columns,
    /// True for residues whose N can donate a hydrogen bond.
    donors: Vec<bool>,
    /// True to search for polyproline helices, like version 4.2 of `mkdssp`.
    polyproline: bool,
}

impl Letters {
    /// Create a kernel. `columns` contains N of all residues, then all CA, all C and all O.
    ///
    /// # Errors
    /// [`Error::Argument`] if there are no residues, or the number of columns is wrong.
    pub fn new(columns: &[usize], donors: &[bool], polyproline: bool) -> error::Result<Self> {
        if donors.is_empty() {
            return Err(Error::Argument("there are no residues".to_string()));
        }
        check_len("columns", columns.len(), 4 * donors.len())?;
        Ok(Letters {
            columns: Columns::new(columns),
            donors: donors.to_vec(),
            polyproline,
        })
    }

    fn fill(
        &self,
        frame: &[f32],
        dimensions: [f32; 6],
        scratch: &mut Vec<f32>,
        chain: &mut Chain,
        row: &mut [f64],
    ) -> Result<(), String> {
        let cell = match is_placeholder(dimensions) {
            true => None,
            false => cell_or_none(dimensions, super::NEEDED_BY)?,
        };
        let (picked, _) = self.columns.pick(frame, scratch).as_chunks();
        let n_residues = self.donors.len();
        let kind = |kind: usize| &picked[kind * n_residues..(kind + 1) * n_residues];
        let backbone = Backbone {
            n: kind(0),
            ca: kind(1),
            c: kind(2),
            o: kind(3),
            cell: cell.as_ref(),
        };
        chain.measure(&backbone)?;
        chain.find_bonds(&backbone, &self.donors);
        chain.letters.clear();
        chain.letters.resize(n_residues, LOOP);
        chain.find_ladders();
        chain.mark_helices();
        chain.mark_turns_and_bends(&backbone);
        if self.polyproline {
            chain.mark_polyproline(&backbone);
        }
        for (number, &letter) in row.iter_mut().zip(&chain.letters) {
            *number = f64::from(letter);
        }
        Ok(())
    }
}

impl RowKernel for Letters {
    fn n_columns(&self) -> usize {
        self.donors.len()
    }

    /// Compute the code of each residue's letter.
    fn compute(&self, frames: &Frames<'_>, out: &mut [f64]) -> error::Result<Option<Refused>> {
        self.columns.check(frames.n_atoms())?;
        let (mut scratch, mut chain) = (Vec::new(), Chain::default());
        frames.fill_rows(out, self.n_columns(), |frame, dimensions, row| {
            self.fill(frame, dimensions, &mut scratch, &mut chain, row)
        })
    }
}

/// Positions of the backbone atoms of each residue in one frame, Å, and the cell.
struct Backbone<'a> {
    n: &'a [[f32; 3]],
    ca: &'a [[f32; 3]],
    c: &'a [[f32; 3]],
    o: &'a [[f32; 3]],
    cell: Option<&'a Cell>,
}

impl Backbone<'_> {
    /// Return the shortest image of the difference x − y.
    #[inline]
    fn apart(&self, x: [f32; 3], y: [f32; 3]) -> [f64; 3] {
        let d = std::array::from_fn(|axis| f64::from(x[axis]) - f64::from(y[axis]));
        match self.cell {
            Some(cell) if !cell.is_near(d) => cell.shifted(d, cell.nearest_images(d)),
            _ => d,
        }
    }
}

/// Secondary structure of a chain in one frame.
#[derive(Debug, Default)]
struct Chain {
    /// Vector from O to C of each residue, Å, and the same vector divided by its length.
    from_o: Vec<[f64; 3]>,
    along: Vec<[f64; 3]>,
    /// Number of the unbroken chain segment that contains each residue.
    pieces: Vec<u32>,
    candidates: Vec<[u32; 2]>,
    /// Two acceptors of each donor and their bond energies (kcal/mol), the strongest bond first.
    bonds: Vec<[(f64, u32); 2]>,
    /// Two residues of each bridge; true if the bridge is antiparallel.
    bridges: Vec<([usize; 2], bool)>,
    ladders: Vec<Ladder>,
    /// For each residue, true if a turn of 3, 4 or 5 residues begins there.
    turns: Vec<[bool; 3]>,
    letters: Vec<u8>,
}

/// Consecutive bridges, with the first and the last residue of both strands.
#[derive(Debug, Clone, Copy)]
struct Ladder {
    parallel: bool,
    i: [usize; 2],
    j: [usize; 2],
    n_bridges: usize,
}

impl Chain {
    /// Compute the C=O vectors, and find chain breaks.
    fn measure(&mut self, backbone: &Backbone<'_>) -> Result<(), String> {
        self.from_o.clear();
        self.along.clear();
        self.pieces.clear();
        let mut piece = 0;
        for i in 0..backbone.n.len() {
            let atoms = [backbone.n[i], backbone.ca[i], backbone.c[i], backbone.o[i]];
            if !atoms.iter().flatten().all(|x| x.is_finite()) {
                return Err(format!(
                    "the backbone of residue {i} (from 0) has positions that are not finite"
                ));
            }
            let from_o = backbone.apart(backbone.c[i], backbone.o[i]);
            let length = square(from_o).sqrt();
            if length == 0.0 {
                return Err(format!(
                    "C and O of residue {i} (from 0) coincide, so that the next residue's \
                     hydrogen cannot be placed"
                ));
            }
            self.from_o.push(from_o);
            self.along.push(from_o.map(|x| x / length));
            if i > 0 {
                let to_n = backbone.apart(backbone.n[i], backbone.c[i - 1]);
                piece += u32::from(square(to_n) > PEPTIDE * PEPTIDE);
            }
            self.pieces.push(piece);
        }
        Ok(())
    }

    /// Return true if there is no chain break between two residues.
    fn is_whole(&self, from: usize, to: usize) -> bool {
        self.pieces[from] == self.pieces[to]
    }

    /// Find the two strongest hydrogen bonds of each donor.
    fn find_bonds(&mut self, backbone: &Backbone<'_>, donors: &[bool]) {
        let squares = self.from_o.iter().map(|&d| square(d));
        let longest = squares.fold(0.0, f64::max).sqrt();
        let reach = REACH + PER_CO * (longest - LONG_CO).max(0.0);
        let donates = |i: usize| i > 0 && donors[i];
        let may = |i: usize, j: usize| i != j && i != j + 1;
        let (n, o, cell) = (backbone.n, backbone.o, backbone.cell);
        find_pairs(n, o, cell, reach, donates, may, &mut self.candidates);
        self.bonds.clear();
        self.bonds.resize(n.len(), [(0.0, NONE); 2]);
        for &[donor, acceptor] in &self.candidates {
            let (i, j) = (donor as usize, acceptor as usize);
            let from_o = backbone.apart(n[i], o[j]);
            if rough_energy(from_o, self.along[i - 1], self.from_o[j]) > ROUGH_BOND {
                continue;
            }
            let energy = energy(from_o, self.along[i - 1], self.from_o[j]);
            if energy >= BOND {
                continue;
            }
            let of_ca = backbone.apart(backbone.ca[i], backbone.ca[j]);
            if square(of_ca) > CA_REACH * CA_REACH {
                continue;
            }
            let [first, second] = &mut self.bonds[i];
            if (energy, acceptor) < *first {
                *second = *first;
                *first = (energy, acceptor);
            } else if (energy, acceptor) < *second {
                *second = (energy, acceptor);
            }
        }
    }

    /// Return true if the N of `donor` is bonded to the O of `acceptor`.
    fn has(&self, donor: usize, acceptor: usize) -> bool {
        let acceptor = acceptor as u32;
        self.bonds[donor]
            .iter()
            .any(|&(_, found)| found == acceptor)
    }

    /// Find bridges, join them into ladders, and join ladders across bulges. Mark bridges and
    /// strands.
    fn find_ladders(&mut self) {
        self.find_bridges();
        self.ladders.clear();
        for k in 0..self.bridges.len() {
            let ([i, j], antiparallel) = self.bridges[k];
            let parallel = !antiparallel;
            let follows = |ladder: &&mut Ladder| {
                ladder.parallel == parallel
                    && ladder.i[1] + 1 == i
                    && if parallel {
                        ladder.j[1] + 1 == j
                    } else {
                        ladder.j[0] == j + 1
                    }
            };
            match self.ladders.iter_mut().find(follows) {
                Some(ladder) => {
                    ladder.i[1] = i;
                    ladder.j[usize::from(parallel)] = j;
                    ladder.n_bridges += 1;
                }
                None => self.ladders.push(Ladder {
                    parallel,
                    i: [i, i],
                    j: [j, j],
                    n_bridges: 1,
                }),
            }
        }
        self.ladders.sort_by_key(|ladder| ladder.i[0]);
        self.join_ladders();
        for ladder in &self.ladders {
            let letter = if ladder.n_bridges > 1 { STRAND } else { BRIDGE };
            for [first, last] in [ladder.i, ladder.j] {
                for of_residue in &mut self.letters[first..=last] {
                    if *of_residue != STRAND {
                        *of_residue = letter;
                    }
                }
            }
        }
    }

    /// Find the pairs of residues that form a bridge by two hydrogen bonds, in order.
    fn find_bridges(&mut self) {
        self.bridges.clear();
        let n_residues = self.bonds.len();
        // True if both neighbours of the residue exist, without a chain break.
        let is_inner =
            |i: usize| i >= 1 && i + 1 < n_residues && self.pieces[i - 1] == self.pieces[i + 1];
        let mut bridges = std::mem::take(&mut self.bridges);
        for (donor, bonds) in self.bonds.iter().enumerate() {
            for &(_, acceptor) in bonds.iter().filter(|bond| bond.1 != NONE) {
                let acceptor = acceptor as usize;
                // Each entry contains the two residues of the bridge, the donor and acceptor of the
                // second bond, and the type.
                for (residues, other, antiparallel) in [
                    ([donor, acceptor], [acceptor, donor], true),
                    (
                        [donor - 1, acceptor + 1],
                        [acceptor + 2, donor.wrapping_sub(2)],
                        true,
                    ),
                    (
                        [donor - 1, acceptor],
                        [acceptor, donor.wrapping_sub(2)],
                        false,
                    ),
                ] {
                    let [i, j] = residues;
                    let (i, j) = (i.min(j), i.max(j));
                    // The residues of a bridge are at least three apart, and the first is not one
                    // of the last four residues.
                    let may = j >= i + 3 && i + 4 < n_residues && is_inner(i) && is_inner(j);
                    if may && self.has(other[0], other[1]) {
                        bridges.push(([i, j], antiparallel));
                    }
                }
            }
        }
        // A pair of residues that meets both the parallel and an antiparallel condition counts as
        // parallel.
        bridges.sort_unstable();
        bridges.dedup_by_key(|bridge| bridge.0);
        self.bridges = bridges;
    }

    /// Join ladders across a bulge: at most one residue in one strand, and four in the other.
    fn join_ladders(&mut self) {
        // `mkdssp` subtracts unsigned integers: a negative difference becomes a large distance.
        let steps = |from: usize, to: usize| to.checked_sub(from).unwrap_or(usize::MAX);
        let mut first = 0;
        while first < self.ladders.len() {
            let mut second = first + 1;
            while second < self.ladders.len() {
                let (a, b) = (self.ladders[first], self.ladders[second]);
                let on_i = steps(a.i[1], b.i[0]);
                let apart = a.parallel != b.parallel
                    || !self.is_whole(a.i[0].min(b.i[0]), a.i[1].max(b.i[1]))
                    || !self.is_whole(a.j[0].min(b.j[0]), a.j[1].max(b.j[1]))
                    || on_i >= 6
                    || (a.i[1] >= b.i[0] && a.i[0] <= b.i[1]);
                let on_j = match a.parallel {
                    true => steps(a.j[1], b.j[0]),
                    false => steps(b.j[1], a.j[0]),
                };
                if apart || !(on_j < 6 && on_i < 3 || on_j < 3) {
                    second += 1;
                    continue;
                }
                let joined = &mut self.ladders[first];
                joined.i[1] = b.i[1];
                match a.parallel {
                    true => joined.j[1] = b.j[1],
                    false => joined.j[0] = b.j[0],
                }
                joined.n_bridges += b.n_bridges;
                self.ladders.remove(second);
            }
            first += 1;
        }
    }

    /// Mark helices. If turns of equal length begin at residues i − 1 and i, the helix contains the
    /// residues from i to i + length − 1.
    fn mark_helices(&mut self) {
        let n_residues = self.bonds.len();
        self.turns.clear();
        self.turns.resize(n_residues, [false; 3]);
        for i in 0..n_residues {
            for (kind, length) in (3..6).enumerate() {
                let end = i + length;
                self.turns[i][kind] = end < n_residues && self.is_whole(i, end) && self.has(end, i);
            }
        }
        self.mark_helix(4, ALPHA, |_| true);
        self.mark_helix(3, THREE_TEN, |letter| letter == LOOP || letter == THREE_TEN);
        self.mark_helix(5, PI, |letter| [LOOP, PI, ALPHA].contains(&letter));
    }

    fn mark_helix(&mut self, length: usize, letter: u8, gives_way: impl Fn(u8) -> bool) {
        for i in 1..self.letters.len().saturating_sub(length) {
            let begins = self.turns[i][length - 3] && self.turns[i - 1][length - 3];
            let residues = &mut self.letters[i..i + length];
            if begins && residues.iter().all(|&letter| gives_way(letter)) {
                residues.fill(letter);
            }
        }
    }

    /// Mark residues that have no letter yet: those inside turns, and those where the chain bends.
    fn mark_turns_and_bends(&mut self, backbone: &Backbone<'_>) {
        let n_residues = self.letters.len();
        for i in 1..n_residues.saturating_sub(1) {
            if self.letters[i] != LOOP {
                continue;
            }
            let is_in = |length: usize| {
                (1..length).any(|back| i >= back && self.turns[i - back][length - 3])
            };
            if (3..6).any(is_in) {
                self.letters[i] = TURN;
            } else if i >= 2
                && i + 2 < n_residues
                && self.is_whole(i - 2, i + 2)
                && bends(
                    backbone.apart(backbone.ca[i], backbone.ca[i - 2]),
                    backbone.apart(backbone.ca[i + 2], backbone.ca[i]),
                )
            {
                self.letters[i] = BEND;
            }
        }
    }

    /// Mark residues that have no letter yet, if three consecutive residues have the angles of a
    /// polyproline helix.
    fn mark_polyproline(&mut self, backbone: &Backbone<'_>) {
        let n_residues = self.letters.len();
        let mut in_row = 0;
        for i in 1..n_residues.saturating_sub(1) {
            let around = i.saturating_sub(2)..n_residues.min(i + 3);
            let matters = self.letters[around].contains(&LOOP);
            let is_like = matters && self.is_whole(i - 1, i + 1) && {
                let before = backbone.apart(backbone.n[i], backbone.c[i - 1]);
                let from_n = backbone.apart(backbone.ca[i], backbone.n[i]);
                let to_c = backbone.apart(backbone.c[i], backbone.ca[i]);
                let behind = backbone.apart(backbone.n[i + 1], backbone.c[i]);
                is_around(before, from_n, to_c, PPII_PHI)
                    && is_around(from_n, to_c, behind, PPII_PSI)
            };
            in_row = if is_like { in_row + 1 } else { 0 };
            if in_row >= 3 {
                for letter in &mut self.letters[i - 2..=i] {
                    if *letter == LOOP {
                        *letter = PPII;
                    }
                }
            }
        }
    }
}

/// Return the energy of a hydrogen bond in kcal/mol. The arguments are the vectors from O to N,
/// from N to H and from O to C, Å.
#[inline]
fn energy(o_to_n: [f64; 3], n_to_h: [f64; 3], o_to_c: [f64; 3]) -> f64 {
    let o_to_h = std::array::from_fn(|axis| o_to_n[axis] + n_to_h[axis]);
    let c_to = |to: [f64; 3]| std::array::from_fn(|axis| to[axis] - o_to_c[axis]);
    let lengths = [o_to_h, c_to(o_to_h), c_to(o_to_n), o_to_n].map(|d| square(d).sqrt());
    if lengths.iter().any(|&length| length < TOO_NEAR) {
        return LEAST;
    }
    let [ho, hc, nc, no] = lengths.map(|length| COUPLING / length);
    let energy = ho - hc + nc - no;
    ((energy * 1000.0).round() / 1000.0).max(LEAST)
}

/// Return the energy of a hydrogen bond (kcal/mol) like [`energy`], but in single precision,
/// without rounding and without limits.
#[inline]
fn rough_energy(o_to_n: [f64; 3], n_to_h: [f64; 3], o_to_c: [f64; 3]) -> f32 {
    let [n, h, c] = [o_to_n, n_to_h, o_to_c].map(|d| d.map(|x| x as f32));
    let square = |[x, y, z]: [f32; 3]| x * x + y * y + z * z;
    let to_h: [f32; 3] = std::array::from_fn(|axis| n[axis] + h[axis]);
    let c_to = |to: [f32; 3]| std::array::from_fn(|axis| to[axis] - c[axis]);
    let squares = [square(to_h), square(c_to(to_h)), square(c_to(n)), square(n)];
    let [ho, hc, nc, no] = squares.map(|square| COUPLING as f32 / square.sqrt());
    ho - hc + nc - no
}

/// Return true if the angle between two vectors is larger than 70°.
fn bends(before: [f64; 3], behind: [f64; 3]) -> bool {
    let lengths = square(before) * square(behind);
    // For vectors of zero length, `mkdssp` uses 90°.
    lengths == 0.0 || dot(before, behind) / lengths.sqrt() < COS_BEND
}

/// Return true if the dihedral angle of three bonds is within 29° of the angle with this cosine and
/// sine.
fn is_around(first: [f64; 3], middle: [f64; 3], last: [f64; 3], [cos, sin]: [f64; 2]) -> bool {
    let (one, other) = (cross(first, middle), cross(middle, last));
    let x = dot(one, other);
    let y = square(middle).sqrt() * dot(first, other);
    let length = (x * x + y * y).sqrt();
    length > 0.0 && x * cos + y * sin >= PPII_COS * length
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::Random;

    /// Return the letters of a chain without bends, given the donor and the acceptor of each
    /// hydrogen bond.
    fn letters(found: &[[u32; 2]]) -> String {
        let n_residues = 14;
        let line: Vec<[f32; 3]> = (0..n_residues)
            .map(|i| [i as f32 / 9.0, 0.0, 0.0])
            .collect();
        let backbone = Backbone {
            n: &line,
            ca: &line,
            c: &line,
            o: &line,
            cell: None,
        };
        let mut chain = Chain {
            pieces: vec![0; n_residues],
            bonds: vec![[(0.0, NONE); 2]; n_residues],
            letters: vec![LOOP; n_residues],
            ..Chain::default()
        };
        for &[donor, acceptor] in found {
            let bonds = &mut chain.bonds[donor as usize];
            bonds[usize::from(bonds[0].1 != NONE)] = (-1.0, acceptor);
        }
        chain.find_ladders();
        chain.mark_helices();
        chain.mark_turns_and_bends(&backbone);
        let letter = |&number: &u8| "-HBEGITSP".as_bytes()[number as usize] as char;
        chain.letters.iter().map(letter).collect()
    }

    fn turns(acceptors: std::ops::Range<u32>, length: u32) -> Vec<[u32; 2]> {
        acceptors
            .map(|acceptor| [acceptor + length, acceptor])
            .collect()
    }

    #[test]
    fn turns_and_helices() {
        assert_eq!(letters(&turns(2..3, 4)), "---TTT--------");
        assert_eq!(letters(&turns(2..4, 4)), "---HHHH-------");
        assert_eq!(letters(&turns(2..4, 3)), "---GGG--------");
        assert_eq!(letters(&turns(2..4, 5)), "---IIIII------");
        assert_eq!(letters(&turns(2..4, 6)), "--------------");
        // α helices override 3-10 helices, and π helices override α helices.
        let both = [turns(3..5, 4), turns(6..8, 3)].concat();
        assert_eq!(letters(&both), "----HHHHTT----");
        let both = [turns(2..5, 4), turns(3..5, 5)].concat();
        assert_eq!(letters(&both), "---HIIIII-----");
    }

    #[test]
    fn bridges_ladders_and_bulges() {
        assert_eq!(letters(&[[9, 2]]), "--------------");
        assert_eq!(letters(&[[9, 2], [2, 9]]), "--B------B----");
        assert_eq!(letters(&[[3, 7], [7, 1]]), "--B----B------");
        let ladder = [[11, 2], [2, 11], [9, 4], [4, 9]];
        // One of the bonds is also a turn.
        assert_eq!(letters(&ladder), "--EEETTTTEEE--");
        let bulge = [[3, 8], [8, 1], [5, 9], [9, 3]];
        assert_eq!(letters(&bulge), "--EEE---EE----");
    }

    #[test]
    fn energies_are_rounded() {
        // N–H and O=C lie on a line, with N at 2.9 Å from O.
        let found = energy([0.0, 0.0, 2.9], [0.0, 0.0, -1.0], [0.0, 0.0, -1.2]);
        let exact = COUPLING * (1.0 / 1.9 - 1.0 / 3.1 + 1.0 / 4.1 - 1.0 / 2.9);
        let thousandths = found * 1000.0;
        assert!((found - exact).abs() <= 0.0005);
        assert!((thousandths - thousandths.round()).abs() < 1e-9);
        let near = energy([0.0, 0.0, 1.4], [0.0, 0.0, -1.0], [0.0, 0.0, -1.2]);
        assert_eq!(near, LEAST);
    }

    #[test]
    fn no_bond_is_beyond_reach() {
        let mut random = Random(71);
        let mut farthest: f64 = 0.0;
        for _ in 0..5_000 {
            let mut unit = || {
                let x = random.vector::<3>().map(|x| 2.0 * x - 1.0);
                x.map(|part| part / square(x).sqrt())
            };
            let (to_n, to_h, to_c) = (unit(), unit(), unit());
            // Bonds are strongest for nearly linear geometry.
            let toward = |x: [f64; 3], sign: f64| {
                let y: [f64; 3] = std::array::from_fn(|axis| sign * to_n[axis] + 0.1 * x[axis]);
                y.map(|part| part / square(y).sqrt())
            };
            for (h, c) in [
                (toward(to_h, -1.0), toward(to_c, -1.0)),
                (toward(to_h, 1.0), toward(to_c, 1.0)),
                (to_h, to_c),
            ] {
                for long in [1.2, 1.3, 1.6, 2.5] {
                    let reach = REACH + PER_CO * (long - LONG_CO).max(0.0);
                    let o_to_c = c.map(|x| long * x);
                    let at = |r: f64| energy(to_n.map(|x| r * x), h, o_to_c);
                    assert!(at(reach) >= BOND && at(reach + 0.3) >= BOND, "{long}");
                    let near = at(REACH - 0.25);
                    let rough = rough_energy(to_n.map(|x| x * (REACH - 0.25)), h, o_to_c);
                    assert!((near - f64::from(rough)).abs() < 0.001);
                    if long == 1.2 && at(5.2) < BOND {
                        farthest = 5.2;
                    }
                }
            }
        }
        assert_eq!(farthest, 5.2);
    }

    #[test]
    fn what_cannot_be_assigned_is_refused() {
        assert!(Letters::new(&[], &[], false).is_err());
        assert!(Letters::new(&[0, 1, 2], &[true], false).is_err());
        let task = Letters::new(&[0, 1, 2, 3], &[true], true).unwrap();
        let run = |x: f32, z: f32| {
            let frame = [0.0, 0.0, 0.0, x, 0.0, 0.0, 2.0, 0.0, 0.0, 2.0, 0.0, z];
            let frames = Frames::new(&frame, 4, &[0.0; 6]).unwrap();
            task.compute(&frames, &mut [0.0]).unwrap()
        };
        assert_eq!(run(1.0, 1.2), None);
        let words = |refused: Option<Refused>| refused.unwrap().1;
        assert!(words(run(f32::NAN, 1.2)).contains("residue 0 (from 0) has positions"));
        assert!(words(run(1.0, 0.0)).contains("coincide"));
    }
}
