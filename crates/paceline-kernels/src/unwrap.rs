//! Unwrapping of molecules along their bonds, so that they are whole.

use std::ops::Range;

use paceline_base::error::{Error, Result};

use crate::cell::{Cell, square};
use crate::cells_in_standard_form::Basis;
use crate::transform_common::{LongBonds, Notes, Refused, Transform, each_row};

/// Bonds of a block's molecules, in the order in which molecules are made whole.
///
/// The first atom of each molecule does not move. Every other atom is reached from an atom bonded
/// to it, and moves to the image nearest to that atom.
#[derive(Debug, Clone)]
pub struct Unwrap {
    n_atoms: usize,
    steps: Vec<Step>,
    /// Bonds that close rings. They are not used to reach an atom.
    closing: Closing,
}

/// Maximum number of bonds in a small ring, not counting the bond that closes it.
const SMALL: usize = 8;

/// Bonds that close rings, divided into small rings and others.
///
/// A bond that closes a ring cannot be longer than the sum of all other bonds of the ring. In a
/// small ring, the closing bond is therefore not checked if the other bonds are short. Small rings
/// are frequent, as in water.
#[derive(Debug, Clone, Default)]
struct Closing {
    small: Vec<Step>,
    others: Vec<Step>,
    /// Largest number of bonds in any small ring, not counting the bond that closes it; 1 without
    /// small rings.
    most: usize,
}

/// Bond between two atoms. Atom indices have four bytes, so that the bonds of a protein fit into
/// the first-level cache.
#[derive(Debug, Clone, Copy)]
struct Step {
    from: u32,
    to: u32,
}

impl Unwrap {
    /// Create a kernel. `bonds` are pairs of a block's atoms.
    ///
    /// # Errors
    /// [`Error::Argument`] if an atom is `n_atoms` or larger, or there are 2³² atoms or more.
    pub fn new(n_atoms: usize, bonds: &[[usize; 2]]) -> Result<Self> {
        if u32::try_from(n_atoms).is_err() {
            return Err(Error::Argument(format!("{n_atoms} atoms are too many")));
        }
        let steps = walk(n_atoms, bonds)?;
        Ok(Unwrap {
            n_atoms,
            closing: Closing::new(n_atoms, bonds, &steps),
            steps: steps.into_iter().map(Step::new).collect(),
        })
    }
}

impl Transform for Unwrap {
    fn n_atoms(&self) -> usize {
        self.n_atoms
    }

    fn basis(&self) -> Option<Basis> {
        Some(Basis::Compact)
    }

    fn apply(&self, positions: &mut [f32], dimensions: &[f32]) -> Result<Vec<Refused>> {
        self.apply_noting(positions, dimensions, &mut Notes::default())
    }

    fn apply_noting(
        &self,
        positions: &mut [f32],
        dimensions: &[f32],
        notes: &mut Notes,
    ) -> Result<Vec<Refused>> {
        let mut images = Images {
            known: Vec::new(),
            of_atom: vec![0; self.n_atoms],
        };
        let mut broken = Vec::with_capacity(self.steps.len());
        each_row(positions, self.n_atoms, dimensions, |row, frame, cell| {
            let cell = cell.map_err(|no_cell| no_cell.reason("unwrap"))?;
            let (atoms, _) = frame.as_chunks_mut();
            let short = self.find_broken(atoms, &cell, &mut broken);
            if !broken.is_empty() {
                self.find_images(atoms, &cell, &broken, &mut images);
                self.change(atoms, &cell, &images);
            }
            notes
                .long
                .extend(self.long_bonds(row, atoms, &cell, &broken, short));
            Ok(())
        })
    }
}

/// Periodic images of the atoms of a frame. Most atoms share an image, so that each atom stores the
/// index of its image.
struct Images {
    /// Images, as numbers of cell vectors. The first image is that of atoms that do not move; then
    /// each step in `broken` adds one.
    known: Vec<[f64; 3]>,
    /// Image index of each atom. It is 0 for the first atom of each molecule; other entries are
    /// written before they are read.
    of_atom: Vec<u32>,
}

impl Unwrap {
    /// Find the steps (bonds along which atoms are reached) that may be shorter with another
    /// periodic image. Return true if all other steps are so short that small rings need no check.
    fn find_broken(&self, atoms: &[[f32; 3]], cell: &Cell, broken: &mut Vec<usize>) -> bool {
        broken.clear();
        let (short, mut all_short) = (self.closing.short(cell), true);
        for (number, step) in self.steps.iter().enumerate() {
            let length = square(step.bond(atoms));
            if length < short {
                continue;
            }
            if length < cell.near() {
                all_short = false;
            } else {
                broken.push(number);
            }
        }
        all_short
    }

    /// Find all images before any atom moves, so that rounding errors do not add up along a chain.
    fn find_images(&self, atoms: &[[f32; 3]], cell: &Cell, broken: &[usize], images: &mut Images) {
        let Images { known, of_atom } = images;
        known.clear();
        known.push([0.0; 3]);
        let mut begin = 0;
        for &number in broken {
            self.carry_images(begin..number, of_atom);
            let step = &self.steps[number];
            let before = known[of_atom[step.from as usize] as usize];
            let nearest = cell.nearest_images(step.bond(atoms));
            of_atom[step.to as usize] = known.len() as u32;
            known.push(std::array::from_fn(|i| before[i] + nearest[i]));
            begin = number + 1;
        }
        self.carry_images(begin..self.steps.len(), of_atom);
    }

    /// Copy the image of the previous atom of each step to the next atom.
    fn carry_images(&self, steps: Range<usize>, of_atom: &mut [u32]) {
        for step in &self.steps[steps] {
            of_atom[step.to as usize] = of_atom[step.from as usize];
        }
    }

    /// Return the bonds longer than half the cell in a frame whose molecules are whole. Of the
    /// steps, only those in `broken` are checked, since the others are shorter. If `short` is true,
    /// bonds of small rings are not checked.
    fn long_bonds(
        &self,
        row: usize,
        atoms: &[[f32; 3]],
        cell: &Cell,
        broken: &[usize],
        short: bool,
    ) -> Option<LongBonds> {
        let mut found: Option<LongBonds> = None;
        let steps = || broken.iter().map(|&number| &self.steps[number]);
        let limit = self.closing.short(cell);
        let short = short && steps().all(|step| square(step.bond(atoms)) < limit);
        let small = if short { &[] } else { &self.closing.small[..] };
        for step in steps().chain(small).chain(&self.closing.others) {
            let length = square(step.bond(atoms));
            // Bonds with a NaN position are ignored.
            if length < cell.near() || !length.is_finite() {
                continue;
            }
            let (atoms, length) = ([step.from as usize, step.to as usize], length.sqrt());
            let (_, n_bonds, longest, most) = found.get_or_insert((row, 0, atoms, length));
            *n_bonds += 1;
            if length > *most {
                (*longest, *most) = (atoms, length);
            }
        }
        found
    }

    fn change(&self, atoms: &mut [[f32; 3]], cell: &Cell, images: &Images) {
        for (atom, &image) in atoms.iter_mut().zip(&images.of_atom) {
            if image != 0 {
                let moved = cell.shifted(atom.map(f64::from), images.known[image as usize]);
                *atom = moved.map(|x| x as f32);
            }
        }
    }
}

impl Closing {
    /// Find the bonds that close rings. `steps` are the bonds along which atoms are reached.
    fn new(n_atoms: usize, bonds: &[[usize; 2]], steps: &[[usize; 2]]) -> Self {
        let mut closing = Closing {
            most: 1,
            ..Closing::default()
        };
        // For each atom: the atom from which it is reached, and its number of steps from the first
        // atom.
        let mut reached: Vec<(usize, usize)> = (0..n_atoms).map(|atom| (atom, 0)).collect();
        for &[from, to] in steps {
            reached[to] = (from, reached[from].1 + 1);
        }
        for &[a, b] in bonds {
            match around(&reached, [a, b]) {
                Some(..=1) => {}
                Some(n_steps) => {
                    closing.small.push(Step::new([a, b]));
                    closing.most = closing.most.max(n_steps);
                }
                None => closing.others.push(Step::new([a, b])),
            }
        }
        closing
    }

    /// Return a squared length (Å²). If all steps are shorter than this length, the bonds that
    /// close small rings are certainly shorter than half the cell.
    fn short(&self, cell: &Cell) -> f64 {
        // The factor 0.99 is a margin for the rounding of moved atoms.
        0.99 * cell.near() / (self.most * self.most) as f64
    }
}

/// Return the number of steps between two atoms of a molecule; `None` if it is more than `SMALL`.
fn around(reached: &[(usize, usize)], [mut a, mut b]: [usize; 2]) -> Option<usize> {
    let mut n_steps = 0;
    while a != b {
        if n_steps == SMALL {
            return None;
        }
        if reached[a].1 < reached[b].1 {
            std::mem::swap(&mut a, &mut b);
        }
        a = reached[a].0;
        n_steps += 1;
    }
    Some(n_steps)
}

impl Step {
    /// The number of atoms must be less than 2³².
    fn new([from, to]: [usize; 2]) -> Self {
        Step {
            from: from as u32,
            to: to as u32,
        }
    }

    /// Return the bond vector, Å.
    #[inline]
    fn bond(self, atoms: &[[f32; 3]]) -> [f64; 3] {
        let (x, y) = (atoms[self.from as usize], atoms[self.to as usize]);
        std::array::from_fn(|i| f64::from(y[i]) - f64::from(x[i]))
    }
}

// Molecules (fragments), found along bonds.

/// Return, for each atom, the first atom of its fragment. A fragment consists of all atoms
/// connected by bonds.
///
/// # Errors
/// [`Error::Argument`] if an atom is `n_atoms` or larger.
pub fn fragments(n_atoms: usize, bonds: &[[usize; 2]]) -> Result<Vec<usize>> {
    check(n_atoms, bonds)?;
    // The entry of an atom is an atom of the same fragment with a lower index, or the atom itself.
    let mut first: Vec<usize> = (0..n_atoms).collect();
    for &[a, b] in bonds {
        let (a, b) = (root(&mut first, a), root(&mut first, b));
        first[a.max(b)] = a.min(b);
    }
    for atom in 0..n_atoms {
        first[atom] = first[first[atom]];
    }
    Ok(first)
}

fn root(first: &mut [usize], mut atom: usize) -> usize {
    while first[atom] != atom {
        first[atom] = first[first[atom]];
        atom = first[atom];
    }
    atom
}

/// Return the bonds along which every atom is reached from the first atom of its fragment, as pairs
/// (reached, to be reached). The pairs have the order of `MDAnalysis.lib.mdamath.make_whole`: shell
/// by shell, and within a shell by atom and then by neighbour.
///
/// # Errors
/// As [`fragments`].
pub fn walk(n_atoms: usize, bonds: &[[usize; 2]]) -> Result<Vec<[usize; 2]>> {
    check(n_atoms, bonds)?;
    let mut directed: Vec<[usize; 2]> = bonds.iter().flat_map(|&[a, b]| [[a, b], [b, a]]).collect();
    directed.sort_unstable();
    let bonds_of = |atom: usize| {
        let begin = directed.partition_point(|bond| bond[0] < atom);
        directed[begin..]
            .iter()
            .take_while(move |bond| bond[0] == atom)
    };
    let mut steps = Vec::new();
    let mut reached = vec![false; n_atoms];
    let (mut shell, mut next) = (Vec::new(), Vec::new());
    for first in 0..n_atoms {
        if reached[first] {
            continue;
        }
        reached[first] = true;
        shell.push(first);
        while !shell.is_empty() {
            for &bond in shell.iter().flat_map(|&atom| bonds_of(atom)) {
                if !reached[bond[1]] {
                    reached[bond[1]] = true;
                    steps.push(bond);
                    next.push(bond[1]);
                }
            }
            next.sort_unstable();
            std::mem::swap(&mut shell, &mut next);
            next.clear();
        }
    }
    Ok(steps)
}

fn check(n_atoms: usize, bonds: &[[usize; 2]]) -> Result<()> {
    match bonds.iter().flatten().find(|&&atom| atom >= n_atoms) {
        None => Ok(()),
        Some(atom) => Err(Error::Argument(format!(
            "a bond contains atom {atom}, but there are only {n_atoms} atoms"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::Random;

    const CELLS: [[f32; 6]; 3] = [
        [12.0, 15.0, 18.0, 90.0, 90.0, 90.0],
        [16.0, 16.0, 16.0, 60.0, 60.0, 90.0],
        [16.0, 12.0, 19.0, 80.0, 102.0, 115.0],
    ];

    /// Return the positions of a branched chain across several cells, and its bonds. Each atom is
    /// bonded to one of the few atoms before it.
    fn molecule(random: &mut Random, n_atoms: usize) -> (Vec<[f64; 3]>, Vec<[usize; 2]>) {
        let mut atoms: Vec<[f64; 3]> = vec![random.vector().map(|x| 8.0 * x)];
        let mut bonds = Vec::new();
        for atom in 1..n_atoms {
            let back = ((random.number() + 1.0) * 2.0) as usize;
            let neighbour = atom.saturating_sub(1 + back);
            let step: [f64; 3] = random.vector();
            let x = atoms[neighbour];
            atoms.push([x[0] + 0.9 + step[0], x[1] + step[1], x[2] + step[2]]);
            bonds.push([atom, neighbour]);
        }
        (atoms, bonds)
    }

    #[test]
    fn broken_molecules_become_whole() {
        let mut random = Random(21);
        for dimensions in CELLS {
            let cell = Cell::new(dimensions).expect("a cell");
            for n_atoms in [1, 2, 40, 200] {
                let (whole, bonds) = molecule(&mut random, n_atoms);
                let mut broken: Vec<f32> = Vec::new();
                for (atom, &x) in whole.iter().enumerate() {
                    let images: [f64; 3] = random.vector().map(|x: f64| (2.4 * x).round());
                    let images = if atom == 0 { [0.0; 3] } else { images };
                    broken.extend(cell.shifted(x, images).map(|x| x as f32));
                }
                let unwrap = Unwrap::new(n_atoms, &bonds).expect("bonds");
                let refused = unwrap.apply(&mut broken, &dimensions).expect("a frame");
                assert!(refused.is_empty());
                for (found, expected) in broken.iter().zip(whole.iter().flatten()) {
                    assert!(
                        (f64::from(*found) - expected).abs() < 2e-5,
                        "{dimensions:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn whole_molecules_stay_as_they_are_to_the_bit() {
        let mut random = Random(22);
        let (whole, bonds) = molecule(&mut random, 50);
        let whole: Vec<f32> = whole.iter().flatten().map(|&x| x as f32).collect();
        let unwrap = Unwrap::new(50, &bonds).expect("bonds");
        for dimensions in CELLS {
            let mut found = whole.clone();
            unwrap.apply(&mut found, &dimensions).expect("a frame");
            assert_eq!(found, whole);
        }
    }

    #[test]
    fn frames_do_not_see_each_other() {
        let unwrap = Unwrap::new(4, &[[0, 1], [3, 2]]).expect("bonds");
        let frame = [1.0, 1.0, 1.0, 9.0, 1.0, 1.0, 1.0, 9.0, 9.0, 9.0, 9.0, 1.0];
        let mut block = [frame, [f32::NAN; 12], frame, frame].concat();
        let cell = [10.0, 10.0, 10.0, 90.0, 90.0, 90.0];
        let dimensions = [cell, cell, [0.0; 6], cell].concat();
        let refused = unwrap.apply(&mut block, &dimensions).expect("frames");
        let reason = "the frame has no cell, which unwrap needs".to_string();
        assert_eq!(refused, [(2, reason)]);
        let whole = [
            1.0, 1.0, 1.0, -1.0, 1.0, 1.0, 1.0, 9.0, 9.0, -1.0, 9.0, 11.0,
        ];
        assert_eq!(block[..12], whole);
        assert_eq!(block[36..], whole);
        assert!(block[12..36].iter().all(|x| x.is_nan()));
    }

    #[test]
    fn bonds_longer_than_half_the_cell_are_noted() {
        let cell = [10.0, 12.0, 14.0, 90.0, 90.0, 90.0];
        // A chain whose end atoms are bonded across the cell, and a pair of atoms.
        let bonds = [[0, 1], [1, 2], [2, 3], [3, 0], [5, 4]];
        let unwrap = Unwrap::new(6, &bonds).expect("bonds");
        let frame = |pair: [[f32; 3]; 2]| {
            let chain = [0.5, 3.0, 5.5, 8.0].map(|x| [x, 1.0, 1.0]);
            [chain.as_flattened(), pair.as_flattened()].concat()
        };
        let near = frame([[1.0, 11.0, 13.0], [1.0, 1.0, 1.0]]);
        let far = frame([[1.0, 1.0, 1.0], [1.0, 6.5, 8.0]]);
        let mut block = [near, vec![f32::NAN; 18], far].concat();
        let dimensions = cell.repeat(3);
        let mut notes = Notes::default();
        let refused = unwrap.apply_noting(&mut block, &dimensions, &mut notes);
        assert!(refused.expect("frames").is_empty());
        let long = notes.long;
        let noted: Vec<_> = long
            .iter()
            .map(|&(row, n, atoms, _)| (row, n, atoms))
            .collect();
        assert_eq!(noted, [(0, 1, [2, 3]), (2, 2, [4, 5])]);
        assert!((long[0].3 - 7.5).abs() < 1e-6);
        assert!((long[1].3 - (5.5_f64.powi(2) + 49.0).sqrt()).abs() < 1e-6);
    }

    #[test]
    fn no_long_bond_of_a_ring_is_missed() {
        let mut random = Random(23);
        let mut n_long = 0;
        for dimensions in CELLS {
            let cell = Cell::new(dimensions).expect("a cell");
            for ring in [3, 4, 7, 12] {
                let (mut atoms, mut bonds) = molecule(&mut random, 60);
                bonds.extend(
                    (ring - 1..60)
                        .step_by(5)
                        .map(|atom| [atom, atom + 1 - ring]),
                );
                // Some rings extend across the cell.
                let stretch = random.number() * 3.0;
                for atom in &mut atoms {
                    *atom = atom.map(|x| x * stretch);
                }
                let mut frame: Vec<f32> = atoms.iter().flatten().map(|&x| x as f32).collect();
                let (mut notes, unwrap) =
                    (Notes::default(), Unwrap::new(60, &bonds).expect("bonds"));
                let refused = unwrap.apply_noting(&mut frame, &dimensions, &mut notes);
                assert!(refused.expect("a frame").is_empty());
                let (atoms, _) = frame.as_chunks();
                let lengths = bonds
                    .iter()
                    .map(|&bond| square(Step::new(bond).bond(atoms)));
                let expected = lengths.filter(|&length| length >= cell.near()).count();
                assert_eq!(notes.long.first().map_or(0, |found| found.1), expected);
                n_long += expected;
            }
        }
        assert!(n_long > 20);
    }

    #[test]
    fn fragments_are_named_by_their_first_atom() {
        let bonds = [[6, 5], [5, 1], [2, 3], [1, 6], [7, 3]];
        let expected = [0, 1, 2, 2, 4, 1, 1, 2];
        assert_eq!(fragments(8, &bonds).expect("bonds"), expected);
        assert_eq!(fragments(3, &[]).expect("no bonds"), [0, 1, 2]);
    }

    #[test]
    fn a_chain_in_any_order_is_one_fragment() {
        let atoms = [9, 3, 8, 0, 7, 2, 6, 1, 5, 4];
        let mut bonds: Vec<[usize; 2]> = atoms.windows(2).map(|pair| [pair[0], pair[1]]).collect();
        for _ in 0..bonds.len() {
            bonds.rotate_left(1);
            assert_eq!(fragments(10, &bonds).expect("bonds"), [0; 10]);
            assert_eq!(walk(10, &bonds).expect("bonds").len(), 9);
        }
    }

    #[test]
    fn the_walk_goes_shell_by_shell() {
        // Two rings that share the bond 2-4, and a separate pair.
        let bonds = [
            [4, 2],
            [0, 4],
            [0, 3],
            [3, 2],
            [4, 6],
            [6, 7],
            [7, 2],
            [1, 5],
        ];
        let expected = [[0, 3], [0, 4], [3, 2], [4, 6], [2, 7], [1, 5]];
        assert_eq!(walk(8, &bonds).expect("bonds"), expected);
    }

    #[test]
    fn a_bond_to_nowhere_is_refused() {
        assert!(fragments(3, &[[0, 3]]).is_err());
        assert!(walk(3, &[[3, 0]]).is_err());
    }
}
