//! Detection, in every frame, of molecules whose parts are in different images.
//!
//! *Links* connect the atoms of a molecule. A link is a bond, or a path of bonds through atoms that
//! are not decoded. A path must be so short that its length is less than half the cell. Then two
//! linked atoms are in the same image if, and only if, their distance is less than half the cell.

use std::collections::VecDeque;

use paceline_base::error::{Error, Result};

use crate::cell::{Cell, is_placeholder, square};
use crate::instructions::by_widest;
use crate::unwrap::{fragments, walk};
use crate::{check_len, frame_len};

/// Frame in which two linked atoms are in different images: row, the two atoms, and their distance
/// (Å).
pub type Apart = (usize, [usize; 2], f64);

/// Links between decoded atoms, found along bonds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Links {
    /// Pairs of linked atoms, without repeats.
    pub pairs: Vec<[usize; 2]>,
    /// Number of bonds of each link.
    pub lengths: Vec<usize>,
    /// Atoms to decode in addition to the requested atoms. Without them, some paths would be too
    /// long.
    pub added: Vec<usize>,
}

impl Links {
    /// Find the paths between `wanted` atoms, each of at most `longest` bonds.
    ///
    /// Each other atom is assigned to the nearest wanted atom. A bond between atoms that are
    /// assigned to two different wanted atoms makes a link between these two.
    ///
    /// # Errors
    /// [`Error::Argument`] if an atom is `n_atoms` or larger, or `longest` is zero.
    pub fn new(
        n_atoms: usize,
        bonds: &[[usize; 2]],
        wanted: &[usize],
        longest: usize,
    ) -> Result<Self> {
        if longest == 0
            || wanted
                .iter()
                .chain(bonds.as_flattened())
                .any(|&a| a >= n_atoms)
        {
            let reason =
                format!("links have {longest} bonds, or an atom is out of range ({n_atoms} atoms)");
            return Err(Error::Argument(reason));
        }
        let neighbours = Neighbours::new(n_atoms, bonds);
        let (mut wanted, mut added) = (wanted.to_vec(), Vec::new());
        loop {
            let near = Nearest::new(n_atoms, &neighbours, &wanted);
            let (pairs, lengths, more) = near.links(bonds, longest);
            if more.is_empty() {
                added.sort_unstable();
                return Ok(Links {
                    pairs,
                    lengths,
                    added,
                });
            }
            wanted.extend(&more);
            added.extend(more);
        }
    }
}

/// Bonded neighbours of each atom, in one contiguous list.
struct Neighbours {
    begins: Vec<usize>,
    atoms: Vec<usize>,
}

impl Neighbours {
    fn new(n_atoms: usize, bonds: &[[usize; 2]]) -> Self {
        let mut begins = vec![0; n_atoms + 1];
        for &atom in bonds.as_flattened() {
            begins[atom + 1] += 1;
        }
        for atom in 0..n_atoms {
            begins[atom + 1] += begins[atom];
        }
        let (mut places, mut atoms) = (begins.clone(), vec![0; 2 * bonds.len()]);
        for &[a, b] in bonds {
            for [from, to] in [[a, b], [b, a]] {
                atoms[places[from]] = to;
                places[from] += 1;
            }
        }
        Neighbours { begins, atoms }
    }

    fn of(&self, atom: usize) -> &[usize] {
        &self.atoms[self.begins[atom]..self.begins[atom + 1]]
    }
}

const NOWHERE: usize = usize::MAX;

/// Nearest wanted atom of each atom, along bonds.
struct Nearest {
    owner: Vec<usize>,
    before: Vec<usize>,
    n_bonds: Vec<usize>,
}

impl Nearest {
    fn new(n_atoms: usize, neighbours: &Neighbours, wanted: &[usize]) -> Self {
        let mut near = Nearest {
            owner: vec![NOWHERE; n_atoms],
            before: vec![NOWHERE; n_atoms],
            n_bonds: vec![0; n_atoms],
        };
        let mut queue = VecDeque::with_capacity(wanted.len());
        for &atom in wanted {
            if near.owner[atom] == NOWHERE {
                near.owner[atom] = atom;
                queue.push_back(atom);
            }
        }
        while let Some(atom) = queue.pop_front() {
            for &next in neighbours.of(atom) {
                if near.owner[next] == NOWHERE {
                    near.owner[next] = near.owner[atom];
                    near.before[next] = atom;
                    near.n_bonds[next] = near.n_bonds[atom] + 1;
                    queue.push_back(next);
                }
            }
        }
        near
    }

    /// Return the shortest link between each two atoms, if it has at most `longest` bonds, and its
    /// number of bonds. Also return atoms that divide those links that are needed but too long.
    fn links(
        &self,
        bonds: &[[usize; 2]],
        longest: usize,
    ) -> (Vec<[usize; 2]>, Vec<usize>, Vec<usize>) {
        let mut found: Vec<([usize; 2], usize, [usize; 2])> = bonds
            .iter()
            .filter_map(|&bond| {
                let mut ends = bond.map(|atom| self.owner[atom]);
                ends.sort_unstable();
                let length = bond.iter().map(|&atom| self.n_bonds[atom]).sum::<usize>() + 1;
                (ends[0] != ends[1]).then_some((ends, length, bond))
            })
            .collect();
        found.sort_unstable();
        found.dedup_by_key(|link| link.0);
        let mut more = Vec::new();
        if found.iter().any(|link| link.1 > longest) {
            // A long link is not needed if other links already connect its two atoms.
            let mut by_length: Vec<_> = found.iter().collect();
            by_length.sort_by_key(|link| link.1);
            let mut roots: Vec<usize> = (0..self.owner.len()).collect();
            for &&([a, b], length, bond) in &by_length {
                let (a, b) = (root(&mut roots, a), root(&mut roots, b));
                if a != b {
                    roots[a.max(b)] = a.min(b);
                    if length > longest {
                        more.extend(self.cuts(bond, longest));
                    }
                }
            }
            more.sort_unstable();
            more.dedup();
            found.retain(|link| link.1 <= longest);
        }
        let (pairs, lengths) = found.iter().map(|link| (link.0, link.1)).unzip();
        (pairs, lengths, more)
    }

    /// Return every `longest`-th atom along the path through a bond.
    fn cuts(&self, bond: [usize; 2], longest: usize) -> Vec<usize> {
        let mut path: Vec<usize> = self.back_from(bond[0]).collect();
        path.reverse();
        path.extend(self.back_from(bond[1]));
        let inner = path.len() - 1;
        path[..inner]
            .iter()
            .copied()
            .skip(longest)
            .step_by(longest)
            .collect()
    }

    fn back_from(&self, atom: usize) -> impl Iterator<Item = usize> + '_ {
        std::iter::successors(Some(atom), |&atom| {
            let before = self.before[atom];
            (before != NOWHERE).then_some(before)
        })
    }
}

fn root(roots: &mut [usize], mut atom: usize) -> usize {
    while roots[atom] != atom {
        roots[atom] = roots[roots[atom]];
        atom = roots[atom];
    }
    atom
}

/// Groups of a block's atoms, and the check that the parts of a molecule are not in different
/// images.
#[derive(Debug, Clone)]
pub struct Whole {
    n_atoms: usize,
    /// Atoms that are adjacent in memory and near along links, for a fast first check.
    rows: Neighbouring,
    /// Further links that are needed to connect all atoms of each molecule.
    others: Vec<[usize; 2]>,
    /// Links that form a spanning tree of each molecule, from its first atom. `closing` contains
    /// all other links.
    steps: Vec<[usize; 2]>,
    closing: Vec<[usize; 2]>,
    molecule: Vec<usize>,
    groups: Vec<Vec<usize>>,
    /// Links of the tree that break a molecule whenever they are long: both atoms are in one group,
    /// and the molecule has no closing links.
    breaking: Vec<[usize; 2]>,
    /// Pairs of atoms of different molecules that must be in the same image.
    contacts: Vec<[usize; 2]>,
}

/// Range of atoms that are compared with the next atom, and a factor for each coordinate: 1, or 0
/// if the next atom need not be near. The factors are empty if all adjacent atoms must be near.
#[derive(Debug, Clone, Default)]
struct Neighbouring {
    first: usize,
    end: usize,
    counts: Vec<f32>,
}

impl Whole {
    /// Create a check. `links` are pairs of a block's atoms, and `lengths` their numbers of bonds.
    /// In a whole molecule, two atoms that are at most `longest` bonds apart must be nearer than
    /// half the cell.
    ///
    /// # Errors
    /// [`Error::Argument`] if an atom is `n_atoms` or larger, or the numbers of links and lengths
    /// differ.
    pub fn new(
        n_atoms: usize,
        links: (&[[usize; 2]], &[usize]),
        longest: usize,
        groups: Vec<Vec<usize>>,
        contacts: Vec<[usize; 2]>,
    ) -> Result<Self> {
        let (links, lengths) = links;
        check_len("lengths of links", lengths.len(), links.len())?;
        let named = groups.iter().flatten().chain(contacts.as_flattened());
        if named.into_iter().any(|&atom| atom >= n_atoms) {
            return Err(Error::Argument(format!(
                "an atom is out of range ({n_atoms} atoms)"
            )));
        }
        let molecule = fragments(n_atoms, links)?;
        let steps = walk(n_atoms, links)?;
        let mut length_of: Vec<_> = links
            .iter()
            .map(sorted)
            .zip(lengths.iter().copied())
            .collect();
        length_of.sort_unstable();
        // For each atom: the atom from which it is reached, the number of steps, and the number of
        // bonds of the last step.
        let mut reached: Vec<[usize; 3]> = (0..n_atoms).map(|atom| [atom, 0, 0]).collect();
        let mut is_step = vec![false; length_of.len()];
        for &[from, to] in &steps {
            let link = sorted(&[from, to]);
            let place = length_of.partition_point(|one| one.0 < link);
            is_step[place] = true;
            reached[to] = [from, reached[from][1] + 1, length_of[place].1];
        }
        let closing = length_of.iter().zip(is_step);
        let closing: Vec<_> = closing.filter(|one| !one.1).map(|one| one.0.0).collect();
        let breaking = breaking(&steps, &closing, &molecule, &groups);
        let mut roots: Vec<usize> = (0..n_atoms).collect();
        let rows = Neighbouring::new(&molecule, &reached, longest, &mut roots);
        let others = steps.iter().copied().filter(|&[from, to]| {
            let (from, to) = (root(&mut roots, from), root(&mut roots, to));
            roots[from.max(to)] = from.min(to);
            from != to
        });
        Ok(Whole {
            n_atoms,
            others: others.collect(),
            rows,
            steps,
            closing,
            molecule,
            groups,
            breaking,
            contacts,
        })
    }

    /// Number of atoms of a frame.
    pub fn n_atoms(&self) -> usize {
        self.n_atoms
    }

    /// Check frames, given their numbers and cells (Å and degrees). Return the frames in which a
    /// molecule is broken, and the other frames in which a contact is broken.
    ///
    /// In the broken frame with the lowest number, the longest link of the broken molecules is
    /// reported; in other broken frames, any long link. Frames without a cell have no images, and
    /// are skipped.
    ///
    /// # Errors
    /// [`Error::Argument`] if the slices do not contain the same number of whole frames.
    pub fn look(
        &self,
        positions: &[f32],
        dimensions: &[f32],
        frames: &[i64],
    ) -> Result<(Vec<Apart>, Vec<Apart>)> {
        let frame_len = frame_len(positions.len(), self.n_atoms)?;
        check_len("frames", frames.len(), positions.len() / frame_len)?;
        check_len(
            "lengths and angles",
            dimensions.len(),
            positions.len() / frame_len * 6,
        )?;
        let (cells, _) = dimensions.as_chunks();
        let mut last: Option<([f32; 6], Cell)> = None;
        let (mut broken, mut apart) = (Vec::new(), Vec::new());
        // Lowest number of a frame with a broken molecule so far, and the last long link that was
        // found.
        let (mut least, mut hint) = (i64::MAX, [0, 0]);
        for (row, (frame, &dimensions)) in positions.chunks_exact(frame_len).zip(cells).enumerate()
        {
            let cell = match last {
                Some((known, cell)) if known == dimensions => cell,
                _ => match Cell::new(dimensions) {
                    Ok(cell) if !is_placeholder(dimensions) => cell,
                    _ => continue,
                },
            };
            last = Some((dimensions, cell));
            let (atoms, _) = frame.as_chunks();
            if frames[row] > least
                && let Some(length) = long(hint, atoms, &cell)
            {
                broken.push((row, hint, length.sqrt()));
                continue;
            }
            if !self.seems_whole(atoms, &cell) {
                let mut steps = self.breaking.iter();
                let known = steps.find_map(|&step| Some((step, long(step, atoms, &cell)?)));
                hint = known.map_or(hint, |(step, _)| step);
                let found = match known {
                    Some((step, length)) if frames[row] > least => Some((step, length.sqrt())),
                    _ => self.find_broken(atoms, &cell),
                };
                if let Some((link, length)) = found {
                    least = least.min(frames[row]);
                    broken.push((row, link, length));
                    continue;
                }
            }
            if let Some((link, length)) = longest_of(&self.contacts, atoms, &cell) {
                apart.push((row, link, length));
            }
        }
        Ok((broken, apart))
    }

    /// Return true if the distances of adjacent atoms and the further links in `others` are short,
    /// as in most frames.
    fn seems_whole(&self, atoms: &[[f32; 3]], cell: &Cell) -> bool {
        let Neighbouring { first, end, counts } = &self.rows;
        // Limit along each axis that keeps the distance below half the cell, rounded down.
        let limit = (cell.near() / 3.0).sqrt() * 0.999_999;
        let some = atoms[*first..*end].as_flattened();
        largest_step(some, counts) < limit as f32 && longest_of(&self.others, atoms, cell).is_none()
    }

    /// Return the longest link of all broken molecules. A molecule is broken if its atoms in one
    /// group are in different images.
    fn find_broken(&self, atoms: &[[f32; 3]], cell: &Cell) -> Option<([usize; 2], f64)> {
        longest_of(&self.steps, atoms, cell)?;
        let images = self.images(atoms, cell);
        let mut is_broken = vec![false; self.n_atoms];
        for group in &self.groups {
            let mut firsts = vec![NOWHERE; self.n_atoms];
            for &atom in group {
                let molecule = self.molecule[atom];
                if firsts[molecule] == NOWHERE {
                    firsts[molecule] = atom;
                }
                is_broken[molecule] |= images[atom] != images[firsts[molecule]];
            }
        }
        // Sheets and tubes that are bonded to their own image cannot be made whole, and do not
        // count as broken.
        for &[a, b] in &self.closing {
            if images[a] != images[b] && !self.shortened(atoms, cell, &images, [a, b]) {
                is_broken[self.molecule[a]] = false;
            }
        }
        let steps = self.steps.iter().chain(&self.closing);
        let concerned: Vec<_> = steps
            .filter(|link| is_broken[self.molecule[link[0]]])
            .copied()
            .collect();
        longest_of(&concerned, atoms, cell)
    }

    /// Return the image of each atom relative to the first atom of its molecule, in cell vectors.
    fn images(&self, atoms: &[[f32; 3]], cell: &Cell) -> Vec<[f64; 3]> {
        let mut images = vec![[0.0; 3]; self.n_atoms];
        for &[from, to] in &self.steps {
            let step = difference(atoms, [from, to]);
            images[to] = images[from];
            if square(step) >= cell.near() {
                let mut nearest = cell.nearest_images(step);
                if square(cell.shifted(step, nearest)) >= cell.near() {
                    // No image makes the link short, because the atoms were rotated without the
                    // cell. Half a cell marks such an atom as being in another image.
                    nearest[0] += 0.5;
                }
                images[to] = std::array::from_fn(|i| images[from][i] + nearest[i]);
            }
        }
        images
    }

    /// Return true if the link between two atoms is short after both are shifted by their images.
    fn shortened(
        &self,
        atoms: &[[f32; 3]],
        cell: &Cell,
        images: &[[f64; 3]],
        [a, b]: [usize; 2],
    ) -> bool {
        let by = std::array::from_fn(|i| images[b][i] - images[a][i]);
        square(cell.shifted(difference(atoms, [a, b]), by)) < cell.near()
    }
}

impl Neighbouring {
    /// Find atoms that are adjacent in memory and at most `longest` bonds apart, and join their
    /// `roots`.
    fn new(
        molecule: &[usize],
        reached: &[[usize; 3]],
        longest: usize,
        roots: &mut [usize],
    ) -> Self {
        let near: Vec<bool> = (1..molecule.len())
            .map(|atom| {
                molecule[atom - 1] == molecule[atom]
                    && bonds_between(reached, atom - 1, atom, longest).is_some()
            })
            .collect();
        let (Some(first), Some(last)) = (
            near.iter().position(|&is| is),
            near.iter().rposition(|&is| is),
        ) else {
            return Neighbouring::default();
        };
        for atom in (first..=last).filter(|&atom| near[atom]) {
            let (a, b) = (root(roots, atom), root(roots, atom + 1));
            roots[a.max(b)] = a.min(b);
        }
        let near = &near[first..=last];
        let counts = near.iter().flat_map(|&is| [f32::from(u8::from(is)); 3]);
        let all = near.iter().all(|&is| is);
        Neighbouring {
            first,
            end: last + 2,
            counts: if all { Vec::new() } else { counts.collect() },
        }
    }
}

/// Return the number of bonds between two atoms of a molecule along the tree; `None` if it is more
/// than `most`.
fn bonds_between(reached: &[[usize; 3]], mut a: usize, mut b: usize, most: usize) -> Option<usize> {
    let mut n_bonds = 0;
    while a != b {
        if reached[a][1] < reached[b][1] {
            std::mem::swap(&mut a, &mut b);
        }
        n_bonds += reached[a][2];
        if n_bonds > most {
            return None;
        }
        a = reached[a][0];
    }
    Some(n_bonds)
}

fn sorted(&[a, b]: &[usize; 2]) -> [usize; 2] {
    [a.min(b), a.max(b)]
}

fn difference(atoms: &[[f32; 3]], [from, to]: [usize; 2]) -> [f64; 3] {
    let (x, y) = (atoms[from], atoms[to]);
    std::array::from_fn(|i| f64::from(y[i]) - f64::from(x[i]))
}

/// Return the links of the tree that break a molecule whenever they are long.
fn breaking(
    steps: &[[usize; 2]],
    closing: &[[usize; 2]],
    molecule: &[usize],
    groups: &[Vec<usize>],
) -> Vec<[usize; 2]> {
    let mut is_closed = vec![false; molecule.len()];
    for &[atom, _] in closing {
        is_closed[molecule[atom]] = true;
    }
    let mut breaks = vec![false; steps.len()];
    for group in groups {
        let mut is_inside = vec![false; molecule.len()];
        for &atom in group {
            is_inside[atom] = true;
        }
        for (breaks, &[from, to]) in breaks.iter_mut().zip(steps) {
            *breaks |= is_inside[from] && is_inside[to] && !is_closed[molecule[from]];
        }
    }
    let steps = steps.iter().zip(breaks);
    steps.filter(|one| one.1).map(|one| *one.0).collect()
}

/// Return the longest of the links that are at least half the cell long, and its length (Å). Links
/// with a NaN position are ignored.
fn longest_of(links: &[[usize; 2]], atoms: &[[f32; 3]], cell: &Cell) -> Option<([usize; 2], f64)> {
    let mut longest: Option<([usize; 2], f64)> = None;
    for &link in links {
        if let Some(length) = long(link, atoms, cell)
            && longest.is_none_or(|(_, most)| length > most)
        {
            longest = Some((link, length));
        }
    }
    longest.map(|(link, length)| (link, length.sqrt()))
}

/// Return the squared length (Å²) of a link if it is at least half the cell long.
fn long(link: [usize; 2], atoms: &[[f32; 3]], cell: &Cell) -> Option<f64> {
    let length = square(difference(atoms, link));
    (length >= cell.near() && length.is_finite()).then_some(length)
}

/// Number of coordinates that are compared together: four AVX2 registers. With a single register,
/// each comparison would wait for the one before.
const TOGETHER: usize = 32;

by_widest! {
    /// Return the largest absolute difference between a coordinate and the same coordinate of the
    /// next atom. `counts` selects the coordinates; if it is empty, all are compared. NaN is
    /// ignored.
    fn largest_step(numbers: &[f32], counts: &[f32]) -> f32 {
        let mut largest = [0.0_f32; TOGETHER];
        let ahead = numbers.get(3..).unwrap_or(&[]);
        let (here, _) = numbers.as_chunks::<TOGETHER>();
        let (next, last) = ahead.as_chunks::<TOGETHER>();
        let pairs = here.iter().zip(next);
        if counts.is_empty() {
            for (here, next) in pairs {
                for k in 0..TOGETHER {
                    let step = (next[k] - here[k]).abs();
                    largest[k] = if step > largest[k] { step } else { largest[k] };
                }
            }
        } else {
            for ((here, next), counts) in pairs.zip(counts.as_chunks::<TOGETHER>().0) {
                for k in 0..TOGETHER {
                    let step = (next[k] - here[k]).abs() * counts[k];
                    largest[k] = if step > largest[k] { step } else { largest[k] };
                }
            }
        }
        let begin = TOGETHER * next.len();
        for (k, next) in last.iter().enumerate() {
            let step = (next - numbers[begin + k]).abs() * counts.get(begin + k).unwrap_or(&1.0);
            largest[0] = if step > largest[0] { step } else { largest[0] };
        }
        largest.iter().fold(0.0, |most, &step| if step > most { step } else { most })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::Random;

    const CELL: [f32; 6] = [30.0, 34.0, 38.0, 90.0, 90.0, 90.0];
    const TRICLINIC: [f32; 6] = [40.0, 40.0, 40.0, 60.0, 60.0, 90.0];

    fn chain(n: usize) -> Vec<[usize; 2]> {
        (1..n).map(|atom| [atom - 1, atom]).collect()
    }

    #[test]
    fn links_are_bonds_where_all_atoms_are_wanted() {
        let bonds = [[2, 1], [0, 1], [3, 0]];
        let links = Links::new(5, &bonds, &[0, 1, 2, 3, 4], 4).expect("links");
        assert_eq!(links.pairs, [[0, 1], [0, 3], [1, 2]]);
        assert_eq!(links.lengths, [1, 1, 1]);
        assert!(links.added.is_empty());
    }

    #[test]
    fn links_pass_through_atoms_that_are_not_wanted() {
        let links = Links::new(10, &chain(10), &[0, 3, 6, 9], 3).expect("links");
        assert_eq!(links.pairs, [[0, 3], [3, 6], [6, 9]]);
        assert_eq!(links.lengths, [3, 3, 3]);
        // A longer path is divided by added atoms.
        let links = Links::new(10, &chain(10), &[0, 9], 4).expect("links");
        assert_eq!(links.added.len(), 2);
        assert!(links.lengths.iter().all(|&n| n <= 4));
        assert_eq!(links.lengths.iter().sum::<usize>(), 9);
        // In a ring, only the shorter path is used.
        let ring = [chain(12), vec![[11, 0]]].concat();
        let links = Links::new(12, &ring, &[0, 4], 4).expect("links");
        assert_eq!((links.pairs, links.added), (vec![[0, 4]], vec![]));
        assert!(Links::new(3, &[[0, 3]], &[0], 4).is_err());
        assert!(Links::new(3, &[[0, 1]], &[0], 0).is_err());
    }

    /// Return a whole branched molecule, with bonds of at most 2 Å.
    fn molecule(random: &mut Random, n: usize) -> (Vec<[f64; 3]>, Vec<[usize; 2]>) {
        let (mut atoms, mut bonds) = (vec![[3.0, 4.0, 5.0]], Vec::new());
        for atom in 1..n {
            let from = atom - 1 - ((random.number() + 1.0) * 1.5) as usize % atom.min(3);
            let step: [f64; 3] = random.vector();
            let x: [f64; 3] = atoms[from];
            atoms.push(std::array::from_fn(|i| x[i] + step[i]));
            bonds.push([from, atom]);
        }
        (atoms, bonds)
    }

    /// The reference result compares images atom by atom.
    #[test]
    fn no_broken_molecule_is_missed_and_none_is_made_up() {
        let mut random = Random(35);
        let mut n_broken = 0;
        for round in 0..400 {
            let dimensions = if round % 2 == 0 { CELL } else { TRICLINIC };
            let cell = Cell::new(dimensions).expect("a cell");
            let n = 5 + round % 60;
            let (atoms, bonds) = molecule(&mut random, n);
            let wanted: Vec<usize> = (0..n).filter(|_| random.number() > 0.0).collect();
            let links = Links::new(n, &bonds, &wanted, 6).expect("links");
            let mut decoded = [wanted.clone(), links.added.clone()].concat();
            decoded.sort_unstable();
            let column = |atom: &usize| decoded.partition_point(|one| one < atom);
            let pairs: Vec<_> = links
                .pairs
                .iter()
                .map(|pair| pair.each_ref().map(column))
                .collect();
            let group: Vec<usize> = wanted.iter().map(column).collect();
            let whole = Whole::new(
                decoded.len(),
                (&pairs, &links.lengths),
                6,
                vec![group],
                vec![],
            )
            .expect("a look");
            // A face of the cell passes through the molecule in some cases.
            let at = 8.0 * random.number();
            let images: Vec<f64> = atoms.iter().map(|x| f64::from(x[0] > at)).collect();
            let frame: Vec<f32> = decoded
                .iter()
                .flat_map(|&atom| cell.shifted(atoms[atom], [images[atom], 0.0, 0.0]))
                .map(|x| x as f32)
                .collect();
            let differ = wanted.iter().any(|&atom| images[atom] != images[wanted[0]]);
            let (broken, _) = whole.look(&frame, &dimensions, &[0]).expect("a frame");
            assert_eq!(broken.len(), usize::from(differ), "round {round}");
            n_broken += broken.len();
            check_frames(&mut random, &whole, &frame, &dimensions);
        }
        assert!((50..350).contains(&n_broken));
    }

    /// Check that a block of frames gives the same broken frames as each frame alone, and that the
    /// first broken frame is reported with its longest link.
    fn check_frames(random: &mut Random, whole: &Whole, frame: &[f32], dimensions: &[f32; 6]) {
        let vector = dimensions[0];
        let mut frames: Vec<f32> = frame.to_vec();
        for _ in 0..5 {
            let at = 12.0 * random.number() as f32;
            let atoms = frame.as_chunks::<3>().0.iter();
            frames.extend(
                atoms.flat_map(|&[x, y, z]| [x + f32::from(u8::from(x > at)) * vector, y, z]),
            );
        }
        let numbers = [40, 30, 50, 10, 20, 60];
        let cells = dimensions.repeat(6);
        let (found, _) = whole.look(&frames, &cells, &numbers).expect("frames");
        let single: Vec<Apart> = (0..6)
            .filter_map(|row| {
                let frame = &frames[row * frame.len()..][..frame.len()];
                let (found, _) = whole.look(frame, dimensions, &[0]).expect("a frame");
                found.first().map(|&(_, link, length)| (row, link, length))
            })
            .collect();
        let rows = |of: &[Apart]| of.iter().map(|one| one.0).collect::<Vec<_>>();
        assert_eq!(rows(&found), rows(&single));
        let least = single.iter().min_by_key(|one| numbers[one.0]);
        assert!(least.is_none_or(|one| found.contains(one)));
        for (some, longest) in found.iter().zip(&single) {
            assert!(some.2 <= longest.2);
        }
    }

    #[test]
    fn what_is_bonded_to_its_own_image_is_not_broken() {
        // Atoms are 3 Å apart along x, through the whole cell. They are bonded as a ring through
        // the boundary, or as an open chain.
        let atoms: Vec<[f32; 3]> = (0..10).map(|k| [3.0 * k as f32, 1.0, 1.0]).collect();
        let wrapped: Vec<[f32; 3]> = (5..15).map(|k| [3.0 * (k % 10) as f32, 1.0, 1.0]).collect();
        let ring = [chain(10), vec![[9, 0]]].concat();
        for (bonds, n_broken) in [(ring, [0, 0]), (chain(10), [0, 1])] {
            let lengths = vec![1; bonds.len()];
            let groups = vec![(0..10).collect()];
            let whole = Whole::new(10, (&bonds, &lengths), 4, groups, vec![]).expect("a look");
            for (frame, expected) in [&atoms, &wrapped].into_iter().zip(n_broken) {
                let (broken, _) = whole
                    .look(frame.as_flattened(), &CELL, &[0])
                    .expect("a frame");
                assert_eq!(broken.len(), expected);
                assert!(broken.iter().all(|one| one.1 == [4, 5] && one.2 == 27.0));
            }
        }
    }

    #[test]
    fn each_group_counts_by_itself_and_frames_without_a_cell_do_not() {
        let frame: Vec<f32> = (0..8)
            .flat_map(|k| [((26 + k) % 30) as f32, 1.0, 1.0])
            .collect();
        let look = |groups: Vec<Vec<usize>>, cell: [f32; 6]| {
            let whole = Whole::new(8, (&chain(8), &[1; 7]), 4, groups, vec![]).expect("a look");
            whole.look(&frame, &cell, &[0]).expect("a frame").0
        };
        assert_eq!(look(vec![(0..8).collect()], CELL), [(0, [3, 4], 29.0)]);
        assert!(look(vec![(0..4).collect(), (4..8).collect()], CELL).is_empty());
        assert_eq!(look(vec![(0..4).collect(), vec![7, 2]], CELL).len(), 1);
        assert!(look(vec![(0..8).collect()], [0.0; 6]).is_empty());
        assert!(look(vec![(0..8).collect()], [1.0, 1.0, 1.0, 90.0, 90.0, 90.0]).is_empty());
    }

    #[test]
    fn contacts_count_where_molecules_are_whole() {
        let near = [[1.0, 1.0, 1.0], [2.0, 1.0, 1.0], [4.0, 1.0, 1.0_f32]];
        let apart = [[1.0, 1.0, 1.0], [2.0, 1.0, 1.0], [28.0, 1.0, 1.0]];
        let broken = [[1.0, 1.0, 1.0], [29.0, 1.0, 1.0], [28.0, 1.0, 1.0]];
        let whole =
            Whole::new(3, (&[[0, 1]], &[1]), 4, vec![vec![0, 1]], vec![[1, 2]]).expect("a look");
        let frames = [near, apart, broken].concat();
        let found = whole
            .look(frames.as_flattened(), &CELL.repeat(3), &[0, 1, 2])
            .expect("frames");
        assert_eq!(found, (vec![(2, [0, 1], 28.0)], vec![(1, [1, 2], 26.0)]));
    }
}
