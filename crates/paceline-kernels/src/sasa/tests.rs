//! Tests of exposed points against the definition.

use super::*;
use crate::cell::{Cell, square};
use crate::tests::Random;

const CELLS: [[f32; 6]; 4] = [
    [0.0; 6],
    [21.0, 24.0, 28.0, 90.0, 90.0, 90.0],
    [25.0, 25.0, 25.0, 60.0, 60.0, 90.0],
    [20.0, 19.0, 22.0, 80.0, 100.0, 115.0],
];
const N_ATOMS: usize = 200;

fn atoms(random: &mut Random) -> (Vec<f32>, Vec<f64>) {
    let positions = random.structure(N_ATOMS, 8.0, 0.0);
    let radii = (0..N_ATOMS).map(|k| [1.2, 1.52, 1.7][k % 3]).collect();
    (positions.iter().map(|&x| x as f32).collect(), radii)
}

fn counts(frame: &[f32], radii: &[f64], cell: [f32; 6], n_points: usize) -> Vec<f64> {
    let columns: Vec<usize> = (0..radii.len()).collect();
    let output: Vec<[u32; 2]> = (0..radii.len() as u32).map(|k| [k, k]).collect();
    let sasa = Sasa::new(&columns, radii, 1.4, n_points, &output, radii.len()).unwrap();
    let mut out = vec![0.0; radii.len()];
    let frames = Frames::new(frame, radii.len(), &cell).unwrap();
    assert_eq!(sasa.compute(&frames, &mut out).unwrap(), None);
    out.iter()
        .zip(&sasa.areas)
        .map(|(area, point)| (area / point).round())
        .collect()
}

/// Count, by the definition, the points of an atom outside all other spheres and images, and the
/// points that rounding decides.
fn plainly(
    frame: &[f32],
    radii: &[f64],
    cell: Option<&Cell>,
    atom: usize,
    n_points: usize,
) -> (f64, f64) {
    let (positions, _) = frame.as_chunks::<3>();
    let (mut exposed, mut doubts) = (0.0, 0.0);
    for point in spiral(n_points) {
        let mut gap = f64::INFINITY;
        for (other, x) in positions
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != atom)
        {
            let reach = radii[atom] + 1.4;
            let d = std::array::from_fn(|axis| {
                f64::from(positions[atom][axis]) + reach * point[axis] - f64::from(x[axis])
            });
            let d = cell.map_or(d, |cell| cell.shifted(d, cell.nearest_images(d)));
            gap = gap.min(square(d).sqrt() - radii[other] - 1.4);
        }
        exposed += f64::from(u8::from(gap > 0.0));
        doubts += f64::from(u8::from(gap.abs() < 1e-4));
    }
    (exposed, doubts)
}

#[test]
fn points_in_no_other_sphere_count() {
    let mut random = Random(3);
    for dimensions in CELLS {
        let (frame, radii) = atoms(&mut random);
        let cell = Cell::new(dimensions).ok();
        for n_points in [5, 61] {
            let found = counts(&frame, &radii, dimensions, n_points);
            assert!(found.contains(&0.0) && found.iter().any(|&n| n > 0.0));
            for atom in (0..N_ATOMS).step_by(23) {
                let (n, doubts) = plainly(&frame, &radii, cell.as_ref(), atom, n_points);
                let off = (n - found[atom]).abs();
                assert!(
                    off <= doubts,
                    "{dimensions:?}, atom {atom}: {n}, {}",
                    found[atom]
                );
            }
        }
    }
}

#[test]
fn what_does_not_belong_together_is_refused() {
    let new = |radii: &[f64], probe, n_points, output| {
        Sasa::new(&[0, 1], radii, probe, n_points, &[output], 1).is_ok()
    };
    assert!(new(&[1.0, 1.5], 1.4, 100, [1, 0]));
    assert!(!new(&[1.0], 1.4, 100, [0, 0]));
    assert!(!new(&[1.0, f64::NAN], 1.4, 100, [0, 0]));
    assert!(!new(&[1.0, 1.5], -0.1, 100, [0, 0]));
    assert!(!new(&[1.0, 1.5], 1.4, 0, [0, 0]));
    assert!(!new(&[1.0, 1.5], 1.4, 100, [2, 0]));
    assert!(!new(&[1.0, 1.5], 1.4, 100, [0, 1]));
    let sasa = Sasa::new(&[0, 1], &[1.0, 1.5], 1.4, 100, &[[0, 0]], 1).unwrap();
    let computed = |x: f32, cell: [f32; 6]| {
        let frame = [x, 0.0, 0.0, 1.0, 1.0, 1.0];
        let frames = Frames::new(&frame, 2, &cell).unwrap();
        let mut area = [0.0];
        let refused = sasa.compute(&frames, &mut area).unwrap();
        (refused.map(|(_, reason)| reason), area[0])
    };
    let refused = |x, cell| computed(x, cell).0;
    let cell = [20.0, 20.0, 20.0, 90.0, 90.0, 90.0];
    assert_eq!(refused(-100.0, cell), None);
    let (reason, area) = computed(f32::NAN, cell);
    assert!(reason.is_none() && area.is_nan());
    assert!(refused(1e30, cell).unwrap().contains("too far away"));
    let flat = [20.0, 20.0, 20.0, 20.0, 20.0, 90.0];
    assert!(refused(1.0, flat).unwrap().contains("make no cell"));
}

#[test]
fn patches_hold_each_point_once() {
    for n_points in [1, 7, 8, 9, 100, 960, 1001] {
        let patches = patches(n_points);
        let n: u32 = patches.iter().map(|patch| patch.points.count_ones()).sum();
        assert_eq!(n as usize, n_points);
        assert!(patches.len() <= n_points.div_ceil(LANES));
    }
    let widest = patches(960)
        .iter()
        .fold(0.0, |most: f32, patch| most.max(patch.radius));
    assert!(widest < 0.4, "{widest}");
}
