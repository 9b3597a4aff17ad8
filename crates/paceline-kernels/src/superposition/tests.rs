use super::*;
use crate::tests::{Random, determinant, rotate, shift};

/// Compute Σ w |x − y|² / Σ w directly.
fn plain_rmsd(x: &[f64], y: &[f64], weights: &[f64]) -> f64 {
    let squares = x.iter().zip(y).map(|(x, y)| (x - y) * (x - y));
    let sum: f64 = squares.enumerate().map(|(i, d)| weights[i / 3] * d).sum();
    (sum / weights.iter().sum::<f64>()).sqrt()
}

fn apply(motion: &Motion, x: &[f64], origin: [f64; 3]) -> Vec<f64> {
    let centred = shift(x, motion.centre.map(|c| -c));
    shift(&rotate(&centred, &motion.rotation), origin)
}

#[test]
fn a_motion_is_undone() {
    let mut random = Random(3);
    for n_atoms in [3, 4, 31, 32, 33, 214] {
        let reference = random.structure(n_atoms, 20.0, 900.0);
        let rotation = random.rotation();
        let mobile = shift(&rotate(&reference, &rotation), [5.0, -70.0, 300.0]);
        let fitted = Reference::new(&reference, None).unwrap();
        let (rmsd, motion) = fitted.superpose(&mobile);
        assert!(rmsd < 1e-11, "{n_atoms} atoms: {rmsd}");
        let identity = rotate(rotation.as_flattened(), &motion.rotation);
        for (found, expected) in identity.iter().zip(IDENTITY.as_flattened()) {
            assert!((found - expected).abs() < 1e-11);
        }
        let back = apply(&motion, &mobile, fitted.origin());
        assert!(plain_rmsd(&back, &reference, &vec![1.0; n_atoms]) < 1e-11);
    }
}

#[test]
fn the_same_structure_is_at_zero() {
    let structure = Random(4).structure(214, 20.0, 50.0);
    let single: Vec<f32> = structure.iter().map(|&x| x as f32).collect();
    let reference: Vec<f64> = single.iter().map(|&x| x.into()).collect();
    let reference = Reference::new(&reference, None).unwrap();
    assert!(reference.min_rmsd(&single) < 1e-12);
}

#[test]
fn no_other_motion_comes_closer() {
    let mut random = Random(5);
    for n_atoms in 1..40 {
        let reference = random.structure(n_atoms, 10.0, 100.0);
        let noise = random.structure(n_atoms, 8.0, 0.0);
        let mobile: Vec<f64> = reference.iter().zip(&noise).map(|(x, y)| x + y).collect();
        let mobile = rotate(&mobile, &random.rotation());
        let weights = random.weights(n_atoms);
        let fitted = Reference::new(&reference, Some(&weights)).unwrap();
        let (rmsd, motion) = fitted.superpose(&mobile);
        assert_eq!(rmsd, fitted.min_rmsd(&mobile));

        let moved = apply(&motion, &mobile, fitted.origin());
        assert!((plain_rmsd(&moved, &reference, &weights) - rmsd).abs() < 1e-11);
        for _ in 0..20 {
            let rotated = rotate(&moved, &random.rotation());
            assert!(plain_rmsd(&rotated, &reference, &weights) > rmsd - 1e-11);
            let shifted = shift(&moved, random.vector());
            assert!(plain_rmsd(&shifted, &reference, &weights) > rmsd - 1e-11);
        }
    }
}

#[test]
fn known_distances() {
    let pair = Reference::new(&[0.0, 0.0, 0.0, 2.0, 0.0, 0.0], None).unwrap();
    assert!((pair.min_rmsd(&[7.0, 1.0, 1.0, 7.0, 5.0, 1.0]) - 1.0).abs() < 1e-15);
    let fixed = Reference::about([0.0; 3], &[0.0, 0.0, 0.0, 2.0, 0.0, 0.0], None).unwrap();
    let above = [0.0, 3.0, 0.0, 2.0, 3.0, 0.0];
    assert_eq!(fixed.rmsd(&above, &Motion::NONE), 3.0);
    let point = Reference::new(&[1.0, 2.0, 3.0], None).unwrap();
    assert_eq!(point.min_rmsd(&[-900.0_f32, 1.0, 7.0]), 0.0);
}

#[test]
fn degenerate_structures_have_a_finite_rmsd() {
    let mut random = Random(6);
    let line = |n: usize| {
        (0..n)
            .flat_map(|i| [i as f64, 2.0 * i as f64, 0.0])
            .collect()
    };
    let point = |n: usize| [4.0, 5.0, 6.0].repeat(n);
    let plane: Vec<f64> = (0..9)
        .flat_map(|i| [(i % 3) as f64, (i / 3) as f64, 0.0])
        .collect();
    let mirror: Vec<f64> = random.structure(9, 3.0, 0.0);
    let mirrored: Vec<f64> = mirror.iter().map(|x| -x).collect();
    let huge: Vec<f64> = mirror.iter().map(|x| x * 1e38).collect();
    let tiny: Vec<f64> = mirror.iter().map(|x| x * 1e-44).collect();
    let structures: Vec<Vec<f64>> = vec![line(9), point(9), plane, mirror, mirrored, huge, tiny];
    for a in &structures {
        let fitted = Reference::new(a, None).unwrap();
        assert!(fitted.min_rmsd(a) <= 1e-12 * (fitted.norm / 9.0).sqrt());
        for b in &structures {
            let (rmsd, motion) = fitted.superpose(b);
            assert!(rmsd.is_finite(), "{a:?} {b:?}: {rmsd}");
            assert!((determinant(&motion.rotation) - 1.0).abs() < 1e-14);
            let turned = rotate(b, &random.rotation());
            let difference = (fitted.min_rmsd(&turned) - rmsd).abs();
            let size = (fitted.norm / 9.0).sqrt() + rmsd;
            assert!(difference <= 1e-11 * size, "{a:?} {b:?}: {difference}");
        }
    }
}

#[test]
fn only_relative_weights_count() {
    let mut random = Random(7);
    let (a, b) = (random.structure(5, 9.0, 0.0), random.structure(5, 9.0, 0.0));
    let rmsd = |weights: Option<&[f64]>| Reference::new(&a, weights).unwrap().min_rmsd(&b);
    assert_eq!(rmsd(None), rmsd(Some(&[4.0; 5])));
    // An atom with weight zero has no influence.
    let four = Reference::new(&a[3..], None).unwrap().min_rmsd(&b[3..]);
    assert!((rmsd(Some(&[0.0, 2.0, 2.0, 2.0, 2.0])) - four).abs() < 1e-12);
}

#[test]
fn unfit_references_are_refused() {
    let x = [1.0; 6];
    for (positions, weights) in [
        (&x[..0], None),
        (&x[..4], None),
        (&[1.0, 2.0, f64::NAN], None),
        (&[1.0, 2.0, 1e300], None),
        (&x, Some(&[1.0][..])),
        (&x, Some(&[1.0, -1.0])),
        (&x, Some(&[0.0, 0.0])),
        (&x, Some(&[f64::NAN, 1.0])),
        (&x, Some(&[f64::INFINITY, 1.0])),
    ] {
        assert!(
            Reference::new(positions, weights).is_err(),
            "{positions:?} {weights:?}"
        );
    }
}

/// Compute eigenvalues of K by Jacobi rotations, independently of the tested code.
fn jacobi(mut a: Matrix4) -> [f64; 4] {
    for _ in 0..30 {
        for (p, q) in [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)] {
            let angle = 0.5 * (2.0 * a[p][q]).atan2(a[q][q] - a[p][p]);
            let (s, c) = angle.sin_cos();
            for row in &mut a {
                (row[p], row[q]) = (c * row[p] - s * row[q], s * row[p] + c * row[q]);
            }
            let (row_p, row_q) = (a[p], a[q]);
            a[p] = std::array::from_fn(|i| c * row_p[i] - s * row_q[i]);
            a[q] = std::array::from_fn(|i| s * row_p[i] + c * row_q[i]);
        }
    }
    std::array::from_fn(|i| a[i][i])
}

/// Return the trace of Mᵀ · R. The best rotation maximises it, and the maximum is λ.
fn overlap(m: &Matrix3, r: &Matrix3) -> f64 {
    (0..3)
        .map(|i| (0..3).map(|j| m[i][j] * r[i][j]).sum::<f64>())
        .sum()
}

fn check(m: &Matrix3) {
    let norm = m.iter().flatten().map(|m| m * m).sum::<f64>().sqrt();
    let expected = jacobi(key_matrix(m)).into_iter().fold(f64::MIN, f64::max);
    for bound in [expected, 1.1 * norm.max(expected), 100.0 * norm] {
        let optimum = Optimum::new(m, bound);
        let rotation = optimum.rotation();
        let tolerance = 1e-12 * norm;
        assert!(
            (optimum.eigenvalue() - expected).abs() <= tolerance,
            "{m:?}"
        );
        assert!(
            (overlap(m, &rotation) - expected).abs() <= tolerance,
            "{m:?}"
        );
        assert!((determinant(&rotation) - 1.0).abs() < 1e-14, "{rotation:?}");
    }
}

#[test]
fn random_products_agree_with_an_eigenvalue_solver() {
    let mut random = Random(1);
    for i in 0..2000 {
        let size = [1e-30, 1e-3, 1.0, 1e8, 1e60][i % 5];
        check(&[0; 3].map(|_| random.vector().map(|m| size * m)));
    }
}

#[test]
fn multiple_roots_lose_no_digits() {
    let mut random = Random(2);
    for values in [
        [1.0, 0.0, 0.0],
        [1.0, 1e-9, 0.0],
        [1.0, 1e-4, 1e-5],
        [1.0, 1.0, 0.0],
        [1.0, 1.0, 1.0],
        [1.0, 1.0, -1.0],
        [-1.0, -1.0, -1.0],
        [1.0, 0.5, -0.5],
        [1.0, 0.5, -0.5 + 1e-9],
        [1.0, 0.02, 0.01],
    ] {
        for _ in 0..100 {
            let (a, b) = (random.rotation(), random.rotation());
            let entry = |i: usize, j: usize| (0..3).map(|k| a[k][i] * values[k] * b[k][j]).sum();
            check(&[0, 1, 2].map(|i| [0, 1, 2].map(|j| entry(i, j))));
        }
    }
}

#[test]
fn nothing_in_common_leaves_the_structure_as_it_is() {
    let optimum = Optimum::new(&[[0.0; 3]; 3], 1.0);
    assert_eq!((optimum.eigenvalue(), optimum.rotation()), (0.0, IDENTITY));
}
