use super::*;
use crate::cell::Cell;
use crate::tests::Random;

const NONE: [f32; 6] = [0.0; 6];
const CELLS: [[f32; 6]; 6] = [
    NONE,
    [20.0, 24.0, 28.0, 90.0, 90.0, 90.0],
    [30.0, 30.0, 30.0, 60.0, 60.0, 90.0],
    [30.0, 30.0, 30.0, 70.53, 109.47, 70.53],
    [31.0, 23.0, 27.0, 80.0, 100.0, 115.0],
    [20.0, 30.0, 25.0, 75.0, 62.0, 51.0],
];
const N_ATOMS: usize = 90;

fn computed(task: &impl RowKernel, frame: &[f32], cell: [f32; 6]) -> Result<Vec<f64>, String> {
    let mut row = vec![-1.0; task.n_columns()];
    let frames = Frames::new(frame, frame.len() / 3, &cell).unwrap();
    match task.compute(&frames, &mut row).unwrap() {
        Some((_, reason)) => Err(reason),
        None => Ok(row),
    }
}

fn frame(seed: u64, size: f64) -> Vec<f32> {
    let positions = Random(seed).structure(N_ATOMS, size, 5.0);
    positions.into_iter().map(|x| x as f32).collect()
}

/// Return the shortest of all images up to four cells away: slow, but directly by the
/// definition.
fn shortest(d: [f64; 3], cell: [f32; 6]) -> f64 {
    let Ok(cell) = Cell::new(cell) else {
        return square(d).sqrt();
    };
    let around = || (-4..=4).map(f64::from);
    around()
        .flat_map(|i| around().map(move |j| (i, j)))
        .flat_map(|(i, j)| around().map(move |k| [i, j, k]))
        .map(|images| square(cell.shifted(d, images)))
        .fold(f64::INFINITY, f64::min)
        .sqrt()
}

fn between(frame: &[f32], i: usize, j: usize) -> [f64; 3] {
    let [from, to] = [i, j].map(|atom| transform_common::position(frame, atom).map(f64::from));
    difference(to, from)
}

fn assert_close(found: f64, expected: f64) {
    assert!((found - expected).abs() <= 1e-11, "{found} {expected}");
}

#[test]
fn matrices_pairs_and_the_least_are_those_of_the_nearest_images() {
    let first: Vec<usize> = (0..30).rev().collect();
    let second: Vec<usize> = (0..60).map(|i| 30 + 7 * i % 60).collect();
    for (seed, cell) in CELLS.into_iter().enumerate() {
        let frame = frame(seed as u64, 18.0);
        let wanted = |i, j| shortest(between(&frame, i, j), cell);
        let own = computed(
            &DistanceMatrix::new(&first, None, true).unwrap(),
            &frame,
            cell,
        );
        let mut own = own.unwrap().into_iter();
        for (k, &i) in first.iter().enumerate() {
            for &j in &first[k + 1..] {
                assert_close(own.next().unwrap(), wanted(i, j));
            }
        }
        assert_eq!(own.next(), None);
        let task = DistanceMatrix::new(&first, Some(&second), true).unwrap();
        let all = computed(&task, &frame, cell).unwrap();
        for (k, &i) in first.iter().enumerate() {
            for (l, &j) in second.iter().enumerate() {
                assert_close(all[60 * k + l], wanted(i, j));
            }
        }
        let task = AtomicDistances::new(&first, &second[..30], true).unwrap();
        let pairs = computed(&task, &frame, cell).unwrap();
        for (k, &distance) in pairs.iter().enumerate() {
            assert_eq!(distance, all[60 * k + k]);
        }
        let task = MinimumDistance::new(&first, &second, true).unwrap();
        let found = computed(&task, &frame, cell).unwrap();
        assert_eq!(found[0], all.iter().copied().fold(f64::INFINITY, f64::min));
        assert_eq!(found[0], all[60 * found[1] as usize + found[2] as usize]);
    }
}

#[test]
fn without_periodicity_cells_are_left_alone() {
    let frame = frame(8, 28.0);
    let columns: Vec<usize> = (0..N_ATOMS).collect();
    let task = DistanceMatrix::new(&columns, None, false).unwrap();
    let plain = computed(&task, &frame, NONE).unwrap();
    for cell in [CELLS[1], CELLS[2], [30.0, 30.0, 30.0, 30.0, 30.0, 60.0]] {
        assert_eq!(computed(&task, &frame, cell).unwrap(), plain);
    }
    assert_close(plain[1], square(between(&frame, 0, 2)).sqrt());
}

#[test]
fn of_equals_the_first_pair_is_the_nearest() {
    let frame = [
        0., 0., 0., 9., 0., 0., 1., 0., 0., 0., 1., 0., 8., 0., 0.0f32,
    ];
    let task = MinimumDistance::new(&[1, 0], &[3, 2, 4], true).unwrap();
    assert_eq!(computed(&task, &frame, NONE).unwrap(), [1.0, 0.0, 2.0]);
    let task = MinimumDistance::new(&[0, 1], &[3, 2, 4], true).unwrap();
    assert_eq!(computed(&task, &frame, NONE).unwrap(), [1.0, 0.0, 0.0]);
    let many: Vec<usize> = std::iter::repeat_n(4, 2000).chain([3, 2]).collect();
    let task = MinimumDistance::new(&[0], &many, true).unwrap();
    assert_eq!(computed(&task, &frame, NONE).unwrap(), [1.0, 0.0, 2000.0]);
}

#[test]
fn centres_are_weighted() {
    // Centres are at x = 1 and 9: 8 Å apart, or 2 Å through the face of a cell of 10 Å.
    let frame = [0., 0., 0., 4., 0., 0., 8., 0., 0., 10., 0., 0.0f32];
    let groups: [(&[usize], Option<&[f64]>); 2] = [(&[0, 1], Some(&[3.0, 1.0])), (&[3, 2], None)];
    let task = CenterDistance::new(groups, true).unwrap();
    assert_eq!(computed(&task, &frame, NONE).unwrap(), [8.0]);
    let cell = [10.0, 50.0, 50.0, 90.0, 90.0, 90.0];
    assert_eq!(computed(&task, &frame, cell).unwrap(), [2.0]);
    let plain = CenterDistance::new(groups, false).unwrap();
    assert_eq!(computed(&plain, &frame, cell).unwrap(), [8.0]);
    assert!(CenterDistance::new([(&[0], Some(&[0.0])), (&[1], None)], true).is_err());
    assert!(CenterDistance::new([(&[0], Some(&[1.0, 2.0])), (&[1], None)], true).is_err());
}

#[test]
fn angles_are_those_of_the_nearest_images() {
    let frame = [9.5, 0., 0., 0.5, 0., 0., 0.5, 2., 0., 2.5, 2., 0.0f32];
    let task = Angles::new(&[0, 0], &[1, 1], &[2, 3], true).unwrap();
    let close = |found: Vec<f64>, expected: [f64; 2]| {
        assert!(
            found
                .iter()
                .zip(expected)
                .all(|(x, y)| (x - y).abs() < 1e-12),
            "{found:?}"
        );
    };
    close(computed(&task, &frame, NONE).unwrap(), [90.0, 45.0]);
    let cell = [10.0, 20.0, 20.0, 90.0, 90.0, 90.0];
    close(computed(&task, &frame, cell).unwrap(), [90.0, 135.0]);
    let line = Angles::new(&[0], &[1], &[0], true).unwrap();
    assert_eq!(computed(&line, &frame, NONE).unwrap(), [0.0]);
    let reason = computed(&task, &[1.0; 12], NONE).unwrap_err();
    assert_eq!(reason, "two atoms of angle 0 are at the same position");
}

#[test]
fn nan_stays_where_it_is() {
    let mut frame = frame(9, 28.0);
    frame[3 * 4 + 1] = f32::NAN;
    for cell in CELLS {
        let task = AtomicDistances::new(&[3, 4, 5], &[8, 9, 4], true).unwrap();
        let found = computed(&task, &frame, cell).unwrap();
        assert_eq!([0, 1, 2].map(|k| found[k].is_nan()), [false, true, true]);
        let least = MinimumDistance::new(&[3, 4, 5], &[8, 9], true).unwrap();
        assert!(
            computed(&least, &frame, cell)
                .unwrap()
                .iter()
                .all(|x| x.is_nan())
        );
        let centres = CenterDistance::new([(&[3, 4], None), (&[9], None)], true).unwrap();
        assert!(computed(&centres, &frame, cell).unwrap()[0].is_nan());
        let angles = Angles::new(&[3, 4], &[5, 6], &[7, 8], true).unwrap();
        let found = computed(&angles, &frame, cell).unwrap();
        assert!(!found[0].is_nan() && found[1].is_nan());
    }
}

#[test]
fn what_does_not_belong_together_is_refused() {
    assert!(AtomicDistances::new(&[0, 1], &[2], true).is_err());
    assert!(Angles::new(&[0, 1], &[2, 3], &[4], true).is_err());
    assert!(DistanceMatrix::new(&[], None, true).is_err());
    assert!(MinimumDistance::new(&[0], &[], true).is_err());
    let task = DistanceMatrix::new(&[0, 1], None, true).unwrap();
    let flat = [30.0, 30.0, 30.0, 30.0, 30.0, 60.0];
    let reason = computed(&task, &frame(3, 5.0), flat).unwrap_err();
    assert!(reason.contains("make no cell, and pbc=True needs one"));
    let far = DistanceMatrix::new(&[0, 99], None, true).unwrap();
    let frames = frame(3, 5.0);
    let frames = Frames::new(&frames, N_ATOMS, &NONE).unwrap();
    assert!(far.compute(&frames, &mut [0.0]).is_err());
}
