use super::*;
use crate::cell::square;
use crate::tests::Random;

const LANES: usize = 8;

const CUBE: [f32; 6] = [10.0, 10.0, 10.0, 90.0, 90.0, 90.0];

fn move_on(
    follower: &Follower,
    number: usize,
    positions: &mut [f32],
    dimensions: &[f32],
) -> (Vec<Refused>, Vec<Images>) {
    let mut images = vec![[0; 3]; follower.task.n_followed()];
    let moved = follower.move_on(number, positions, dimensions, Some(&mut images));
    (moved.expect("frames").expect("is open"), images)
}

fn one_atom(along_x: &[f32]) -> (Vec<f32>, Vec<f32>) {
    let positions = along_x.iter().flat_map(|&x| [x, 5.0, 5.0]).collect();
    (positions, CUBE.repeat(along_x.len()))
}

#[test]
fn an_atom_is_followed_through_a_face_and_back() {
    let task = NoJump::new(1, &[0]).expect("an atom");
    let (mut positions, cells) = one_atom(&[8.0, 9.5, 1.0, 3.0, 9.0]);
    let scan = task.scan(&positions, &cells, &[0, 2, 4]).expect("frames");
    assert_eq!(scan.noted, [[0; 3], [1, 0, 0], [0; 3]]);
    assert_eq!(scan.moved, [[0; 3]]);
    let refused = task.move_to(&[[0; 3]], &mut positions, &cells);
    assert!(refused.expect("frames").is_empty());
    let x: Vec<f32> = positions.iter().step_by(3).copied().collect();
    assert_eq!(x, [8.0, 9.5, 11.0, 13.0, 9.0]);
}

#[test]
fn images_are_those_of_the_first_frame_or_of_each() {
    let task = NoJump::new(1, &[0]).expect("an atom");
    let (before, cells) = one_atom(&[9.5, 0.5, 9.5]);
    for images in [&[[2, 0, -1]][..], &[[2, 0, -1], [3, 0, -1], [2, 0, -1]]] {
        let mut positions = before.clone();
        task.move_to(images, &mut positions, &cells)
            .expect("frames");
        let expected = [29.5, 5.0, -5.0, 30.5, 5.0, -5.0, 29.5, 5.0, -5.0];
        assert_eq!(positions, expected);
    }
}

#[test]
fn half_a_cell_goes_to_the_even_number() {
    let task = NoJump::new(1, &[0]).expect("an atom");
    let (positions, cells) = one_atom(&[0.0, 5.0, 0.0, 15.0, 0.0, 25.0]);
    let rows: Vec<usize> = (0..6).collect();
    let scan = task.scan(&positions, &cells, &rows).expect("frames");
    let along_x: Vec<i16> = scan.noted.iter().map(|images| images[0]).collect();
    assert_eq!(along_x, [0, 0, 0, -2, 0, -2]);
}

#[test]
fn parts_add_up_to_the_whole() {
    let task = NoJump::new(1, &[0]).expect("an atom");
    let x = [1.0, 4.0, 8.0, 2.0, 6.0, 9.0, 3.0, 9.5, 6.0];
    let (positions, cells) = one_atom(&x);
    let whole = task.scan(&positions, &cells, &[]).expect("frames");
    for cut in 1..x.len() {
        let left = task.scan(&positions[..3 * cut], &cells[..6 * cut], &[]);
        let right = task.scan(&positions[3 * cut..], &cells[6 * cut..], &[]);
        let ends = cut - 1..cut + 1;
        let between = task.scan(&positions[3 * ends.start..3 * ends.end], &cells[..12], &[]);
        let [left, between, right] = [left, between, right].map(|one| one.expect("frames"));
        let moved = left.moved[0][0] + between.moved[0][0] + right.moved[0][0];
        assert_eq!(moved, whole.moved[0][0], "cut at {cut}");
    }
}

#[test]
fn a_frame_that_was_left_out_is_passed_over() {
    let task = NoJump::new(1, &[0]).expect("an atom");
    let (mut positions, mut cells) = one_atom(&[9.0, f32::NAN, 1.0]);
    positions[3..6].fill(f32::NAN);
    let refused = task.move_to(&[[0; 3]], &mut positions, &cells);
    assert_eq!(refused.expect("frames").len(), 1);
    assert_eq!(positions[6], 11.0);
    positions[6] = 1.0;
    cells[6..12].fill(f32::NAN);
    let refused = task.move_to(&[[0; 3]], &mut positions, &cells);
    assert!(refused.expect("frames").is_empty());
    assert_eq!(positions[6], 11.0);
}

#[test]
fn a_row_may_be_noted_for_several_frames() {
    let task = NoJump::new(1, &[0]).expect("an atom");
    let (positions, cells) = one_atom(&[8.0, 9.5, 1.0, 3.0, 9.0]);
    let scan = task.scan(&positions, &cells, &[1, 2, 2, 2, 3, 4, 4]);
    let along_x: Vec<i16> = (scan.expect("frames").noted.iter())
        .map(|images| images[0])
        .collect();
    assert_eq!(along_x, [0, 1, 1, 1, 1, 0, 0]);
}

#[test]
fn an_atom_that_was_far_away_is_followed_from_where_it_is() {
    // The second atom is not unwrapped. Single precision does not suffice for some of its
    // positions.
    let task = NoJump::new(2, &[0]).expect("an atom");
    for (x, other) in [
        ([1.0, 150_001.0, 9.0, 9.0, 1.0], [0.0; 5]),
        ([1.0, 9.0, 9.0, 9.0, 1.0], [0.0, 4e5, 4e5, 0.0, 0.0]),
        ([1.0, 9.0, 9.0, 9.0, 1.0], [0.0, f32::NAN, 0.0, 0.0, 0.0]),
    ] {
        let frame = |(&x, &other): (&f32, &f32)| [x, 2.0, 2.0, other, 2.0, 2.0];
        let positions: Vec<f32> = x.iter().zip(&other).flat_map(frame).collect();
        let cells = CUBE.repeat(x.len());
        let scan = task
            .scan(&positions, &cells, &[0, 1, 2, 3, 4])
            .expect("frames");
        let follower = Follower::new(task.clone(), true);
        for (row, frame) in positions.chunks(6).enumerate() {
            let (refused, images) = move_on(&follower, row, &mut frame.to_vec(), &CUBE);
            assert!(refused.is_empty(), "{refused:?}");
            assert_eq!(images, [scan.noted[row]], "{x:?} {other:?}: frame {row}");
        }
    }
}

#[test]
fn atoms_that_are_not_followed_may_be_anywhere() {
    let task = NoJump::new(2, &[0]).expect("an atom");
    // The first atom moves too far to be counted, and the position of the other is not finite.
    let positions = [
        0.0,
        5.0,
        5.0,
        f32::NAN,
        5.0,
        5.0,
        1e6,
        5.0,
        5.0,
        f32::NAN,
        5.0,
        5.0,
    ];
    let error = task
        .scan(&positions, &CUBE.repeat(2), &[])
        .expect_err("too far");
    assert!(
        error.to_string().contains("more than 32,767 cells"),
        "{error}"
    );
}

#[test]
fn a_follower_goes_on_where_it_was() {
    let task = NoJump::new(1, &[0]).expect("an atom");
    let x = [1.0, 4.0, 8.0, 2.0, f32::NAN, 6.0, 9.0, 3e6, 3.0, 9.5, 6.0];
    let (mut whole, mut cells) = one_atom(&x);
    whole[12..15].fill(f32::NAN);
    cells[24..30].fill(f32::NAN);
    let mut parts = whole.clone();
    let refused = task.move_to(&[[0; 3]], &mut whole, &cells).expect("frames");
    assert_eq!(refused[0].0, 7);
    for size in [1, 2, 4] {
        let follower = Follower::new(task.clone(), true);
        let (mut parts, mut images) = (parts.clone(), Vec::new());
        let blocks = parts.chunks_mut(3 * size).zip(cells.chunks(6 * size));
        for (number, (some, cells)) in blocks.enumerate() {
            let (_, begin) = move_on(&follower, number, some, cells);
            images.push(begin[0][0]);
        }
        let same = |(one, other): (&f32, &f32)| one.to_bits() == other.to_bits();
        assert!(parts.iter().zip(&whole).all(same), "{size}: {parts:?}");
        if size == 2 {
            assert_eq!(images, [0, 0, 1, 1, 2, 1]);
        }
    }
    task.move_to(&[[1; 3]], &mut parts[..3], &cells[..6])
        .expect("a frame");
    assert_eq!(parts[..3], [11.0, 15.0, 15.0]);
}

#[test]
fn an_atom_that_goes_on_and_on_is_an_error() {
    let task = NoJump::new(1, &[0]).expect("an atom");
    let x: Vec<f32> = (0..80).map(|k| (4 * k % 10) as f32).collect();
    let (positions, cells) = one_atom(&x);
    let follower = Follower::new(task, true);
    let move_on = |number| follower.move_on(number, &mut positions.clone(), &cells, None);
    let found = (0..2000).find_map(|number| Some((number, move_on(number).err()?)));
    let (number, error) = found.expect("too far");
    // The atom has moved 81,920 steps of 0.4 cells.
    assert_eq!(number, 1024);
    assert!(
        error.to_string().contains("atom 0 moves by more"),
        "{error}"
    );
}

/// Check that blocks moved by one thread each give the same result as blocks moved by a single
/// thread.
#[test]
fn blocks_are_moved_by_threads_as_by_one() {
    const N: usize = 3 * LEAST_PART + 7;
    const BLOCKS: usize = 6;
    let mut random = Random(5);
    let positions: Vec<f32> = (0..2 * BLOCKS * 3 * N)
        .map(|_| (10.0 * random.number()) as f32)
        .collect();
    let dimensions = CUBE.repeat(2 * BLOCKS);
    let task = NoJump::new(N, &(0..N).collect::<Vec<_>>()).expect("atoms");
    let mut whole = positions.clone();
    task.move_to(&vec![[0; 3]; N], &mut whole, &dimensions)
        .expect("frames");
    let follower = Follower::new(task, true);
    assert_eq!(follower.parts.len(), 4);
    let mut moved = positions;
    std::thread::scope(|threads| {
        let blocks = moved.chunks_mut(2 * 3 * N).zip(dimensions.chunks(12));
        for (number, (block, cells)) in blocks.enumerate().rev() {
            let follower = &follower;
            threads.spawn(move || move_on(follower, number, block, cells));
        }
    });
    assert_eq!(moved, whole);
}

#[test]
fn a_part_is_moved_while_the_block_before_is_in_another() {
    const N: usize = 2 * LEAST_PART;
    let task = NoJump::new(N, &(0..N).collect::<Vec<_>>()).expect("atoms");
    let follower = &Follower::new(task, true);
    let (mut one, mut two) = (vec![1.0; 3 * N], vec![9.0; 3 * N]);
    let held = follower.parts[1].lock();
    std::thread::scope(|threads| {
        threads.spawn(|| move_on(follower, 0, &mut one, &CUBE));
        threads.spawn(|| move_on(follower, 1, &mut two, &CUBE));
        // Both threads finish the first part while the test holds the lock of the second part.
        while follower.parts[0].lock().block != Some(2) {
            std::thread::yield_now();
        }
        assert_eq!(held.block, Some(0));
        drop(held);
    });
    assert_eq!(two, vec![-1.0; 3 * N]);
}

#[test]
fn a_block_that_is_the_last_lets_those_before_it_pass() {
    const N: usize = 2 * LEAST_PART;
    let task = NoJump::new(N, &(0..N).collect::<Vec<_>>()).expect("atoms");
    for lost in [f32::NAN, 3.27e5] {
        let follower = &Follower::new(task.clone(), false);
        let (mut one, mut two) = (vec![1.0; 3 * N], vec![9.0; 3 * N]);
        two[7] = lost;
        let held = follower.parts[1].lock();
        std::thread::scope(|threads| {
            let first = threads.spawn(|| move_on(follower, 0, &mut one, &CUBE).0);
            let last = threads.spawn(|| move_on(follower, 1, &mut two, &CUBE).0);
            let late = threads.spawn(|| follower.move_on(2, &mut vec![5.0; 3 * N], &CUBE, None));
            // The first part is finished while the first block waits for the second part.
            while follower.parts[0].lock().block.is_some() {
                std::thread::yield_now();
            }
            drop(held);
            assert!(first.join().expect("no panic").is_empty());
            assert_eq!(last.join().expect("no panic").len(), 1);
            assert_eq!(late.join().expect("no panic").expect("a frame"), None);
        });
    }
}

#[test]
fn who_waits_is_released() {
    let task = NoJump::new(1, &[0]).expect("an atom");
    let follower = &Follower::new(task, true);
    std::thread::scope(|threads| {
        let late = threads.spawn(|| follower.move_on(1, &mut [1.0; 3], &CUBE, None));
        follower.close();
        let found = late.join().expect("no panic").expect("a frame");
        assert!(found.is_none());
    });
}

#[test]
fn frames_are_refused_by_name() {
    let task = NoJump::new(2, &[1]).expect("an atom");
    let mut positions = vec![1.0, 1.0, 1.0, 2.0, f32::NAN, 2.0];
    let refused = task.apply(&mut positions, &CUBE).expect("a frame");
    assert_eq!(refused[0].0, 0);
    assert!(refused[0].1.starts_with("atom 1 of those"), "{refused:?}");
    let mut positions = vec![1.0; 6];
    let refused = task.apply(&mut positions, &[0.0; 6]).expect("a frame");
    assert_eq!(refused[0].1, "the frame has no cell, which nojump needs");
    // The first atom may be anywhere, since it is not unwrapped.
    for (far, words) in [
        (1e6_f32, "unwraps atoms up to 16383 cells away"),
        (f32::INFINITY, "needs finite positions"),
    ] {
        let mut positions = [far, 1.0, 1.0, 1.0, 1.0, 1.0].repeat(2);
        positions[9] = -far;
        let refused = task.apply(&mut positions, &CUBE.repeat(2)).expect("frames");
        assert_eq!(refused.len(), 1, "{refused:?}");
        assert_eq!(refused[0].0, 1);
        assert!(refused[0].1.contains(words), "{refused:?}");
    }
}

#[test]
fn lanes_are_as_atoms_one_by_one() {
    const N: usize = PIECE + 3 * LANES + 5;
    let mut random = Random(17);
    let cells = [
        [30.0, 34.0, 28.0, 75.0, 100.0, 62.0],
        [31.0, 33.5, 28.5, 76.0, 99.0, 63.0],
    ];
    let positions: Vec<f32> = (0..12 * 3 * N)
        .map(|_| (90.0 * random.number()) as f32)
        .collect();
    let dimensions: Vec<f32> = (0..12).flat_map(|k: usize| cells[k % 2]).collect();
    let atoms: Vec<usize> = (0..N).filter(|k| k % 7 != 3).collect();
    let task = NoJump::new(N, &atoms).expect("atoms");
    let rows: Vec<usize> = (0..12).collect();
    let scan = task.scan(&positions, &dimensions, &rows).expect("frames");
    let mut moved = positions.clone();
    task.move_to(&vec![[0; 3]; atoms.len()], &mut moved, &dimensions)
        .expect("frames");
    for (place, &atom) in atoms.iter().enumerate() {
        let mut images = [0_i16; 3];
        for row in 0..12 {
            let at = |row: usize| position(&positions[row * 3 * N..], atom).map(f64::from);
            let cell = |row: usize| Cell::new(cells[row % 2]).expect("a cell");
            if row > 0 {
                let from = cell(row - 1).fractions()(at(row - 1));
                let to = cell(row).fractions()(at(row));
                for axis in 0..3 {
                    images[axis] -= (to[axis] - from[axis]).round_ties_even() as i16;
                }
            }
            assert_eq!(scan.noted[row * atoms.len() + place], images);
            let [a, b, c] = cell(row).vectors().map(|vector| vector.map(|x| x as f32));
            let [u, v, w] = images.map(f32::from);
            let [x, y, z] = position(&positions[row * 3 * N..], atom);
            let wanted = [
                x + (u * a[0] + v * b[0] + w * c[0]),
                y + (v * b[1] + w * c[1]),
                z + w * c[2],
            ];
            assert_eq!(position(&moved[row * 3 * N..], atom), wanted);
        }
    }
    assert_eq!(position(&moved, 3), position(&positions, 3));
}

#[test]
fn an_image_beyond_what_can_be_counted_is_an_error() {
    let task = NoJump::new(1, &[0]).expect("an atom");
    let (positions, cells) = one_atom(&[0.0, 1e6]);
    let error = task.scan(&positions, &cells, &[]).expect_err("too far");
    assert!(
        error.to_string().contains("more than 32,767 cells"),
        "{error}"
    );
    let error = task.scan(&positions, &cells, &[]).expect_err("too far");
    assert!(error.to_string().contains("atom 0"), "{error}");
    let task = NoJump::new(12, &(0..12).collect::<Vec<_>>()).expect("atoms");
    let mut positions = vec![0.0; 2 * 36];
    positions[36 + 3 * 10 + 1] = 1e6;
    let error = task
        .scan(&positions, &CUBE.repeat(2), &[])
        .expect_err("too far");
    assert!(error.to_string().contains("atom 10 moves"), "{error}");
}

/// Check that the error names the first frame with a lost atom. Without `skip_damaged`, other atoms
/// of the frame may already have moved.
#[test]
fn the_first_frame_is_named_in_which_an_atom_is_lost() {
    const N: usize = 2 * LEAST_PART + PIECE + 9;
    const ROWS: usize = 5;
    let mut random = Random(23);
    let mut between = |n: usize| (random.number().abs() * n as f64) as usize % n;
    let atoms: Vec<usize> = (0..N).filter(|k| k % 300 != 17).collect();
    let task = NoJump::new(N, &atoms).expect("atoms");
    let walk: Vec<f32> = (0..2 * ROWS * 3 * N)
        .map(|k| (k * 7 % 23) as f32 / 2.3)
        .collect();
    let dimensions = CUBE.repeat(ROWS);
    for round in 0..60 {
        let mut blocks: Vec<Vec<f32>> = walk.chunks(ROWS * 3 * N).map(<[f32]>::to_vec).collect();
        for _ in 0..=between(3) {
            let place = 3 * (between(ROWS) * N + between(N)) + between(3);
            blocks[1][place] = [f32::NAN, f32::INFINITY, -3e5, 1e30][between(4)];
        }
        let mut expected = blocks[1].clone();
        let expected = task.apply(&mut expected, &dimensions).expect("frames");
        let follower = Follower::new(task.clone(), false);
        let [one, two] = &mut blocks[..] else {
            unreachable!("there are two")
        };
        assert!(move_on(&follower, 0, one, &dimensions).0.is_empty());
        let (refused, _) = move_on(&follower, 1, two, &dimensions);
        assert_eq!(refused, expected[..expected.len().min(1)], "round {round}");
        if !refused.is_empty() {
            // No further block is moved.
            let next = follower.move_on(2, &mut vec![1.0; 3 * N], &CUBE, None);
            assert_eq!(next.expect("a frame"), None);
        }
    }
}

/// Check cases in which one atom of each piece moves by almost half a cell, so that single
/// precision would decide by rounding.
#[test]
fn rounding_decides_nothing() {
    const N: usize = 60 * PIECE;
    const ROWS: usize = 9;
    let mut random = Random(41);
    let task = NoJump::new(N, &(0..N).collect::<Vec<_>>()).expect("atoms");
    let rows: Vec<usize> = (0..ROWS).collect();
    for cell in [
        CUBE,
        [30.0, 34.0, 28.0, 75.0, 100.0, 62.0],
        [80.0, 80.0, 80.0, 60.0, 60.0, 90.0],
        [51.3, 51.3, 51.3, 70.53, 109.47, 70.53],
    ] {
        let vectors = *Cell::new(cell).expect("a cell").vectors();
        // Test positions near the origin, and hundreds of cells away.
        for reach in [1.0_f64, 30.0, 900.0] {
            let mut places = vec![[0.0; 3]; N];
            let mut positions = Vec::new();
            for row in 0..ROWS {
                for (atom, place) in places.iter_mut().enumerate() {
                    for x in place.iter_mut() {
                        let nearly = 0.5 + 2e-7 * reach.max(3.0) * random.number();
                        *x += match (row, atom % PIECE) {
                            (0, _) => reach * random.number(),
                            (_, 17) => nearly.copysign(random.number()),
                            _ => 0.1 * random.number(),
                        };
                    }
                    let along = |axis: usize| (0..3).map(|k| place[k] * vectors[k][axis]).sum();
                    positions.extend([0, 1, 2].map(along).map(|x: f64| x as f32));
                }
            }
            let dimensions = cell.repeat(ROWS);
            let scan = task.scan(&positions, &dimensions, &rows).expect("frames");
            let fractions = Cell::new(cell).expect("a cell").fractions();
            for atom in 0..N {
                let at = |row: usize| {
                    fractions(position(&positions[row * 3 * N..], atom).map(f64::from))
                };
                let mut images = [0_i16; 3];
                for row in 1..ROWS {
                    let (from, to) = (at(row - 1), at(row));
                    for axis in 0..3 {
                        images[axis] -= (to[axis] - from[axis]).round_ties_even() as i16;
                    }
                    assert_eq!(
                        scan.noted[row * N + atom],
                        images,
                        "{cell:?} {reach} {atom}"
                    );
                }
            }
        }
    }
}

#[test]
fn an_image_is_counted_from_those_that_are_given() {
    let task = NoJump::new(1, &[0]).expect("an atom");
    // In the file, the second frame is 3,200 cells away.
    for (images, x, is_counted) in [(29_000, 16_000.0, true), (30_000, 16_000.0, false)] {
        let (mut positions, cells) = one_atom(&[x, -x, x]);
        let moved = task.move_to(&[[images, 0, 0]], &mut positions, &cells);
        assert_eq!(moved.is_ok(), is_counted, "{images}");
        if !is_counted {
            assert!(
                moved
                    .expect_err("too far")
                    .to_string()
                    .contains("moves by more")
            );
        }
    }
}

fn row(vectors: Matrix3) -> CellRow {
    UnitCell::of_vectors(vectors).row()
}

#[test]
fn molecules_go_on_through_a_face_of_a_cell_that_varies() {
    let cells = [10.0, 11.0, 12.0, 11.5].map(|edge: f64| {
        let mut cell = [[0.0; 3]; 3];
        (0..3).for_each(|axis| cell[axis][axis] = edge);
        row(cell)
    });
    let along_x = [[9.0, 0.5], [1.0, 10.5], [3.0, 0.5], [11.0, 1.0]];
    let centres: Vec<[f64; 3]> = (along_x.iter().flatten()).map(|&x| [x, 5.0, 5.0]).collect();
    let found = molecule_steps(&centres, &cells).expect("frames");
    let along_x: Vec<f64> = found.iter().map(|step| step[0] as f64 * STEP).collect();
    assert_eq!(along_x, [0.0, 0.0, 11.0, -11.0, 11.0, 1.0, -0.5, 1.0]);
    assert!(found.iter().all(|step| step[1..] == [0, 0]));
    let mut positions: Vec<f32> = centres.as_flattened().iter().map(|&x| x as f32).collect();
    let molecules = (&[0, 1][..], &[1, 1][..]);
    move_molecules(&found[2..4], &[1], &mut positions, 2, molecules).expect("a row");
    assert_eq!(positions[6..12], [12.0, 5.0, 5.0, -0.5, 5.0, 5.0]);
    assert_eq!(positions[..6], [9.0, 5.0, 5.0, 0.5, 5.0, 5.0]);
}

#[test]
fn vectors_that_lean_are_taken_back_together() {
    let cell = Cell::new([30.0, 34.0, 28.0, 75.0, 100.0, 62.0]).expect("a cell");
    let [a, b, c] = *cell.vectors();
    let move_of = |[u, v, w]: [f64; 3]| {
        [0, 1, 2].map(|axis: usize| (u + 0.2) * a[axis] + v * b[axis] + (w - 0.3) * c[axis])
    };
    for numbers in [[0, 0, 0], [1, 0, -1], [-2, 3, 1]] {
        let centre = move_of(numbers.map(|n| n as f64));
        let found = molecule_steps(&[[0.0; 3], centre], &[row([a, b, c]); 2]).expect("frames");
        for axis in 0..3 {
            let along = [a, b, c].map(|vector| vector[axis]);
            let sum: f64 = (0..3).map(|k| numbers[k] as f64 * along[k]).sum();
            assert!(
                (found[1][axis] as f64 * STEP + sum).abs() < 1e-5,
                "{numbers:?}"
            );
        }
    }
}

/// Test a rhombic dodecahedron, in which the image found vector by vector may not be the nearest
/// image.
#[test]
fn steps_are_the_shortest_of_all() {
    let mut random = Random(29);
    for cell in [
        [80.0, 80.0, 80.0, 60.0, 60.0, 90.0],
        [51.3, 51.3, 51.3, 70.53, 109.47, 70.53],
        [30.0, 34.0, 28.0, 75.0, 100.0, 62.0],
    ] {
        let vectors = *Cell::new(cell).expect("a cell").vectors();
        // The same lattice, described by vectors that tilt by more than half of the vectors
        // before them.
        let [a, b, c] = vectors;
        let leaning = [
            a,
            [b[0] + a[0], b[1], 0.0],
            [c[0] - b[0], c[1] - b[1], c[2]],
        ];
        let mut not_nearest_by_vector = 0;
        for _ in 0..2000 {
            let fractions = [0; 3].map(|_| 1.5 * random.number());
            let place = |n: [f64; 3]| {
                [0, 1, 2].map(|axis: usize| (0..3).map(|k| n[k] * vectors[k][axis]).sum::<f64>())
            };
            let to = place(fractions);
            let mut shortest = f64::INFINITY;
            for i in -3..=3 {
                for j in -3..=3 {
                    for k in -3..=3 {
                        let [u, v, w] = fractions;
                        let image = [u + f64::from(i), v + f64::from(j), w + f64::from(k)];
                        shortest = shortest.min(square(place(image)).sqrt());
                    }
                }
            }
            for vectors in [vectors, leaning] {
                let found = molecule_steps(&[[0.0; 3], to], &[row(vectors); 2]).expect("frames")[1];
                let step = [0, 1, 2].map(|axis: usize| to[axis] + found[axis] as f64 * STEP);
                assert!(
                    (square(step).sqrt() - shortest).abs() < 1e-5,
                    "{cell:?} {to:?}"
                );
            }
            let by_vector = place(fractions.map(|x| x - x.round_ties_even()));
            not_nearest_by_vector += usize::from(square(by_vector).sqrt() > shortest + 1e-6);
        }
        assert!(not_nearest_by_vector > 10, "{cell:?}");
    }
}

#[test]
fn steps_that_are_too_many_remain_so() {
    let cell = [[10.0, 0.0, 0.0], [0.0, 10.0, 0.0], [0.0, 0.0, 10.0]];
    let found = molecule_steps(&[[0.0; 3], [1e30, -1e30, 0.0]], &[row(cell); 2]).expect("frames");
    assert_eq!(found[1], [i64::MAX, i64::MAX, 0]);
    // The contributions of these large vectors would cancel.
    let wide = [[1e13, 0.0, 0.0], [-4e12, 1e13, 0.0], [0.0, 0.0, 10.0]];
    let centres = [[0.0; 3], [6e12, 1e13, 0.0], [0.0; 3]];
    let found = molecule_steps(&centres, &[row(wide); 3]).expect("frames");
    assert_eq!(found[1..], [[i64::MAX, i64::MAX, 0]; 2]);
    assert!(molecule_steps(&[[0.0; 3]; 3], &[row(cell); 2]).is_err());
    assert!(molecule_steps(&[], &[]).expect("nothing").is_empty());
}

#[test]
fn molecules_that_do_not_belong_to_a_block_are_an_error() {
    let mut positions = [0.0; 12];
    let mut moved = |rows: &[usize], atoms: &[usize], sizes: &[usize]| {
        let steps = vec![[0; 3]; rows.len()];
        move_molecules(&steps, rows, &mut positions, 2, (atoms, sizes)).is_ok()
    };
    assert!(moved(&[0, 1], &[0, 1], &[2]));
    assert!(!moved(&[2], &[0, 1], &[2]));
    assert!(!moved(&[0], &[0, 2], &[2]));
    assert!(!moved(&[0], &[0, 1], &[1]));
    assert!(!moved(&[0], &[0, 1], &[1, 1]));
}
