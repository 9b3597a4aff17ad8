//! Molecules as bonds make them.

use paceline_formats::error::{Error, Result};

/// Of each atom, the first atom of its fragment: of the atoms that bonds connect it with.
///
/// # Errors
/// [`Error::Argument`] where a bond names an atom past `n_atoms`.
pub fn fragments(n_atoms: usize, bonds: &[[usize; 2]]) -> Result<Vec<usize>> {
    check(n_atoms, bonds)?;
    // An atom's entry leads to a lower one of the same fragment, or to itself.
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

/// The bonds along which every atom is reached from the first one of its fragment, each as
/// (reached, to be reached), in the order of `MDAnalysis.lib.mdamath.make_whole`: shell by shell,
/// within a shell by atom and then by neighbour.
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
            "a bond names atom {atom}, and there are {n_atoms} atoms"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        // Two rings that share the bond 2-4, and a pair beside them.
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
