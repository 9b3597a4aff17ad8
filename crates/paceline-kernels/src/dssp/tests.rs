use super::*;
use crate::tests::Random;

const CELLS: [[f32; 6]; 4] = [
    [0.0; 6],
    [31.0, 44.0, 38.0, 90.0, 90.0, 90.0],
    [45.0, 45.0, 45.0, 60.0, 60.0, 90.0],
    [20.0, 19.0, 22.0, 80.0, 100.0, 115.0],
];

fn letters(n_residues: usize, found: &[[u32; 2]]) -> String {
    let mut bonds = Bonds::new(n_residues);
    bonds.found = found.to_vec();
    let mut row = vec![0.0; n_residues];
    bonds.assign(&mut row);
    let letter = |state: &f64| ['-', 'H', 'E', 'B'][*state as usize];
    row.iter().map(letter).collect()
}

/// Return bonds from the N of a residue to the O of the residue that is `length` residues before
/// it.
fn turns(acceptors: std::ops::Range<u32>, length: u32) -> Vec<[u32; 2]> {
    acceptors
        .map(|acceptor| [acceptor + length, acceptor])
        .collect()
}

#[test]
fn turns_that_follow_each_other_make_helices() {
    assert_eq!(letters(10, &turns(2..3, 4)), "----------");
    assert_eq!(letters(10, &turns(2..4, 4)), "---HHHH---");
    assert_eq!(letters(10, &turns(2..5, 3)), "---HHHH---");
    assert_eq!(letters(10, &turns(2..4, 5)), "---HHHHH--");
    assert_eq!(letters(10, &turns(2..4, 6)), "----------");
    assert_eq!(letters(6, &turns(0..2, 4)), "-HHHH-");
    // Other helices are suppressed if they would begin in, or just before, an α helix.
    let both = |length| [turns(3..5, 4), turns(6..8, length)].concat();
    assert_eq!(letters(14, &both(3)), "----HHHH------");
    let behind = [turns(3..5, 4), turns(7..9, 3)].concat();
    assert_eq!(letters(14, &behind), "----HHHHHHH---");
}

#[test]
fn two_bonds_make_a_bridge() {
    assert_eq!(letters(12, &[[9, 2]]), "------------");
    let antiparallel = "--E------E--";
    assert_eq!(letters(12, &[[9, 2], [2, 9]]), antiparallel);
    assert_eq!(letters(12, &[[10, 1], [3, 8]]), antiparallel);
    let parallel = "--E----E----";
    assert_eq!(letters(12, &[[7, 1], [3, 7]]), parallel);
    assert_eq!(letters(12, &[[2, 6], [8, 2]]), parallel);
    // The last residue has no next neighbour.
    assert_eq!(letters(12, &[[11, 3], [3, 11]]), "------------");
}

#[test]
fn a_hydrogen_is_placed_in_the_plane_at_equal_angles() {
    let h = placed_hydrogen([0.0; 3], [-0.75, 1.299_038, 0.0], [-0.75, -1.299_038, 0.0]);
    assert!(
        (h[0] - 1.01).abs() < 1e-6 && h[1].abs() < 1e-6 && h[2] == 0.0,
        "{h:?}"
    );
}

/// Return all pairs within the maximum distance, in order.
fn near_pairs(n: &[[f32; 3]], o: &[[f32; 3]], cell: Option<&Cell>) -> Vec<[u32; 2]> {
    let mut pairs = Vec::new();
    for (i, x) in n.iter().enumerate() {
        for (j, y) in o.iter().enumerate() {
            let d = difference(*x, *y);
            let d = cell.map_or(d, |cell| cell.shifted(d, cell.nearest_images(d)));
            if square(d) <= REACH * REACH && i.abs_diff(j) >= 2 {
                pairs.push([i as u32, j as u32]);
            }
        }
    }
    pairs
}

#[test]
fn no_pair_within_reach_is_passed_over() {
    let mut random = Random(4);
    for dimensions in CELLS {
        let cell = Cell::new(dimensions).ok();
        // Chains have many turns, and extend beyond the cell.
        let chain = |random: &mut Random| {
            let steps: Vec<f32> = random
                .structure(150, 6.0, 0.0)
                .iter()
                .map(|&x| x as f32)
                .collect();
            let mut at = [0.0; 3];
            let (steps, _) = steps.as_chunks::<3>();
            let walk = steps.iter().map(|step| {
                at = std::array::from_fn(|axis| (at[axis] + step[axis]) * 0.98);
                at
            });
            walk.collect::<Vec<_>>()
        };
        let mut atoms = Atoms {
            n: chain(&mut random),
            o: chain(&mut random),
            ..Atoms::default()
        };
        atoms.find_candidates(cell.as_ref(), &[true; 151]);
        let wanted = near_pairs(&atoms.n, &atoms.o, cell.as_ref());
        assert!(wanted.len() > 50, "{} pairs", wanted.len());
        let mut found: Vec<_> = atoms.candidates.clone();
        found.sort_unstable();
        assert!(found.windows(2).all(|pair| pair[0] < pair[1]));
        let missing = wanted.iter().find(|pair| !found.contains(pair));
        assert_eq!(missing, None, "{dimensions:?}");
    }
}

#[test]
fn what_cannot_be_assigned_is_refused() {
    let columns: Vec<usize> = (0..24).collect();
    assert!(Dssp::new(&columns[..20], &[true; 5], false).is_err());
    assert!(Dssp::new(&columns, &[true; 6], true).is_err());
    let task = Dssp::new(&columns, &[true; 6], false).unwrap();
    let mut random = Random(7);
    let frame: Vec<f32> = random
        .structure(24, 9.0, 0.0)
        .iter()
        .map(|&x| x as f32)
        .collect();
    let run = |frame: &[f32], cell: [f32; 6]| {
        let frames = Frames::new(frame, 24, &cell).unwrap();
        task.compute(&frames, &mut [0.0; 6]).unwrap()
    };
    assert_eq!(run(&frame, [0.0; 6]), None);
    assert_eq!(run(&frame, [1.0, 1.0, 1.0, 90.0, 90.0, 90.0]), None);
    let reason = run(&frame, [10.0, 10.0, 10.0, 20.0, 20.0, 90.0]).unwrap().1;
    assert!(reason.contains("make no cell"), "{reason}");
    for (coordinate, wanted) in [(3 * 2, "residue 1 or 2"), (3 * 8, "N of residue 2")] {
        let mut broken = frame.clone();
        broken[coordinate] = f32::NAN;
        let reason = run(&broken, [0.0; 6]).unwrap().1;
        assert!(reason.contains(wanted), "{reason}");
    }
    let same = vec![1.0; 72];
    assert!(run(&same, [0.0; 6]).unwrap().1.contains("coincide"));
}
