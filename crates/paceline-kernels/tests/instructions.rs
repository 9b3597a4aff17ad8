//! Tests that kernels yield the same bits with and without instruction sets beyond the base build.

use paceline_kernels::covariance;
use paceline_kernels::density_profiles_and_grids::{Profiles, Voxels};
use paceline_kernels::distances::{AtomicDistances, DistanceMatrix, MinimumDistance};
use paceline_kernels::gyration::Gyration;
use paceline_kernels::instructions::{Instructions, allow, used};
use paceline_kernels::near_pairs::PairList;
use paceline_kernels::nojump::{Follower, NoJump};
use paceline_kernels::projection::{Fit, Superposed};
use paceline_kernels::rdf::{self, Rdf};
use paceline_kernels::rmsd::{Group, Rmsd};
use paceline_kernels::row_kernel::{Frames, RowKernel};
use paceline_kernels::sasa::Sasa;
use paceline_kernels::selection_evaluation::{Group as Updating, Node, Selected};

const CELLS: [[f32; 6]; 4] = [
    [0.0; 6],
    [21.0, 24.0, 28.0, 90.0, 90.0, 90.0],
    [25.0, 25.0, 25.0, 60.0, 60.0, 90.0],
    [20.0, 19.0, 22.0, 80.0, 100.0, 115.0],
];
const N_FRAMES: usize = 19;
/// Number of frames for slow kernels.
const FEW: usize = 2;
/// Number of atoms that is not a multiple of the number of SIMD lanes.
const N_ATOMS: usize = 211;

/// Bits of all results, for each kernel.
type Found = Vec<(String, Vec<u64>)>;

/// Return positions from 0 to 24 Å.
fn block() -> Vec<f32> {
    let mut state = 5_u64;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
        (state >> 40) as f32 / (1 << 24) as f32
    };
    let start: Vec<f32> = (0..3 * N_ATOMS).map(|_| 22.0 * next()).collect();
    let frames =
        (0..N_FRAMES).flat_map(|_| start.iter().map(|x| x + 2.0 * next()).collect::<Vec<_>>());
    frames.collect()
}

fn bits(numbers: &[f64]) -> Vec<u64> {
    numbers.iter().map(|x| x.to_bits()).collect()
}

fn rows(cell: [f32; 6], block: &[f32], found: &mut Found) {
    let reference: Vec<f64> = block[..3 * N_ATOMS].iter().map(|&x| x.into()).collect();
    let all: Vec<usize> = (0..N_ATOMS).collect();
    let group = Group {
        columns: &all,
        reference: &reference,
        weights: None,
    };
    let radii: Vec<f64> = (0..N_ATOMS).map(|i| [1.2, 1.52, 1.7][i % 3]).collect();
    let output: Vec<[u32; 2]> = (0..N_ATOMS as u32).map(|i| [i, i]).collect();
    let sasa = |n_points| Sasa::new(&all, &radii, 1.4, n_points, &output, N_ATOMS).unwrap();
    let weights: Vec<[f64; 2]> = (0..N_ATOMS).map(|i| [1.1 * i as f64, -0.3]).collect();
    let periodic = cell != CELLS[0];
    let mut kernels: Vec<(&str, Box<dyn RowKernel>)> = vec![
        ("RMSD", Box::new(Rmsd::new(&[group, group], true).unwrap())),
        (
            "gyration",
            Box::new(Gyration::new(&all, &[N_ATOMS], None).unwrap()),
        ),
        (
            "distances",
            Box::new(AtomicDistances::new(&all[..99], &all[100..199], true).unwrap()),
        ),
        (
            "all distances",
            Box::new(DistanceMatrix::new(&all, None, true).unwrap()),
        ),
        (
            "least distance",
            Box::new(MinimumDistance::new(&all[..99], &all[99..], true).unwrap()),
        ),
        ("surface of 7 points", Box::new(sasa(7))),
        ("surface of 100 points", Box::new(sasa(100))),
        ("surface of 961 points", Box::new(sasa(961))),
    ];
    if periodic {
        kernels.push((
            "densities",
            Box::new(Profiles::new(&all, &weights, None, 50).unwrap()),
        ));
    }
    let dimensions = cell.repeat(FEW);
    let frames = Frames::new(block, N_ATOMS, &dimensions).unwrap();
    for (name, kernel) in kernels {
        let mut out = vec![0.0; FEW * kernel.n_columns()];
        assert_eq!(kernel.compute(&frames, &mut out).unwrap(), None);
        found.push((format!("{name}, {cell:?}"), bits(&out)));
    }
}

fn sums(cell: [f32; 6], block: &[f32], found: &mut Found) {
    let all: Vec<usize> = (0..N_ATOMS).collect();
    let edges: Vec<f64> = (0..=40).map(|k| 0.2 * f64::from(k)).collect();
    let group = rdf::Group::new(&all, None).unwrap();
    let mut counts = vec![0; 40];
    let rdf = Rdf::new(&edges, group, None, false).unwrap();
    let volume = rdf.count(block, N_ATOMS, &cell.repeat(FEW), &mut counts);
    counts.push(volume.unwrap().unwrap().to_bits());
    found.push((format!("RDF, {cell:?}"), counts));
    let edges: Vec<f64> = (0..=30).map(|k| 0.77 * f64::from(k)).collect();
    let voxels = Voxels::new(&all, [&edges, &edges[4..], &edges[..20]]).unwrap();
    let voxels = voxels.find(block, N_ATOMS).unwrap().unwrap();
    found.push((
        "voxels".to_string(),
        voxels.iter().map(|&x| x.into()).collect(),
    ));
}

fn neighbours(cell: [f32; 6], block: &[f32], found: &mut Found) {
    let dimensions = cell.repeat(FEW);
    let frames = Frames::new(block, N_ATOMS, &dimensions).unwrap();
    let (first, second) = ((0..99).collect(), (99..N_ATOMS as u32).collect());
    let mut pairs = Vec::new();
    let list = PairList::new(first, Some(second), 4.0, true).unwrap();
    let refused = list.find(&frames, |_, some| pairs.extend_from_slice(some));
    assert_eq!(refused.unwrap(), None);
    let numbers = pairs.iter().flat_map(|pair| {
        let places = [pair.i, pair.j].map(u64::from);
        [places[0], places[1], pair.distance.to_bits()]
    });
    found.push((format!("pairs, {cell:?}"), numbers.collect()));
    let near = Node::Near {
        of: 1,
        inner: Some(2.0),
        outer: 4.0,
        periodic: true,
    };
    let group = Updating {
        base: 0,
        n_base: None,
        selections: vec![2],
    };
    let nodes = vec![Node::All, Node::Fixed((0..29).collect()), near];
    let group = Selected::new(nodes, group, None, [N_ATOMS; 2], true).unwrap();
    let (mut counts, mut atoms) = (Vec::new(), Vec::new());
    assert_eq!(group.find(&frames, &mut counts, &mut atoms).unwrap(), None);
    let atoms = atoms.into_iter().map(u64::from).collect();
    found.push((format!("atoms around others, {cell:?}"), atoms));
}

fn covariances(block: &[f32], found: &mut Found) {
    let reference: Vec<f64> = block[..30].iter().map(|&x| x.into()).collect();
    let fit = Fit {
        columns: &[3, 1, 4, 15, 9, 2, 6, 5, 35, 8],
        reference: &reference,
        weights: None,
    };
    for n_atoms in [1, 2, 7, N_ATOMS] {
        let atoms: Vec<usize> = (0..n_atoms).collect();
        let atoms = Superposed::new(&atoms, Some(fit)).unwrap();
        let n = 3 * n_atoms;
        let (mut mean, mut count) = (vec![0.0; n], 0);
        let mut products = vec![0.0; covariance::triangle_len(n).unwrap()];
        for block in block.chunks(12 * 3 * N_ATOMS) {
            let (mean, products) = (&mut mean, &mut products);
            covariance::accumulate(block, N_ATOMS, &atoms, mean, products, &mut count).unwrap();
        }
        let right = (
            mean.iter().map(|x| x + 1.5).collect::<Vec<_>>(),
            products.clone(),
        );
        covariance::merge(&mut mean, &mut products, &mut count, &right.0, &right.1, 7).unwrap();
        found.push((format!("covariance of {n_atoms} atoms"), bits(&products)));
    }
}

fn moves(block: &[f32], found: &mut Found) {
    for cell in CELLS.into_iter().skip(1) {
        // Positions are changed so that atoms cross the cell faces.
        let positions: Vec<f32> = block.iter().map(|x| (7.0 * x).rem_euclid(29.0)).collect();
        for every in [1, 3] {
            let atoms: Vec<usize> = (0..N_ATOMS).step_by(every).collect();
            let task = NoJump::new(N_ATOMS, &atoms).unwrap();
            let (follower, mut noted) = (Follower::new(task.clone(), false), Vec::new());
            let mut moved = positions.clone();
            for (number, few) in moved.chunks_mut(FEW * 3 * N_ATOMS).enumerate() {
                let cells = cell.repeat(few.len() / (3 * N_ATOMS));
                let mut images = vec![[0; 3]; atoms.len()];
                let refused = follower.move_on(number, few, &cells, Some(&mut images));
                assert_eq!(refused.unwrap(), Some(Vec::new()));
                noted.extend(images.as_flattened().iter().map(|&image| image as u64));
            }
            noted.extend(moved.iter().map(|x| u64::from(x.to_bits())));
            let mut alone = positions[..3 * N_ATOMS].to_vec();
            let images: Vec<[i16; 3]> = (0..atoms.len() as i16).map(|k| [k, -k, 1]).collect();
            task.move_to(&images, &mut alone, &cell).unwrap();
            noted.extend(alone.iter().map(|x| u64::from(x.to_bits())));
            found.push((format!("images, {cell:?}"), noted));
        }
    }
}

fn all(most: Instructions) -> Found {
    allow(most);
    let (block, mut found) = (block(), Vec::new());
    for cell in CELLS {
        let few = &block[..FEW * 3 * N_ATOMS];
        rows(cell, few, &mut found);
        sums(cell, few, &mut found);
        neighbours(cell, few, &mut found);
    }
    covariances(&block, &mut found);
    moves(&block, &mut found);
    found
}

#[test]
fn bits_are_the_same_with_and_without_wider_instructions() {
    let base = all(Instructions::Base);
    assert_eq!(used(), Instructions::Base);
    for most in [Instructions::Avx2, Instructions::Avx512] {
        let wide = all(most);
        #[cfg(target_arch = "x86_64")]
        assert_eq!(
            used() > Instructions::Base,
            is_x86_feature_detected!("avx2")
        );
        #[cfg(not(target_arch = "x86_64"))]
        assert_eq!(used(), Instructions::Base);
        assert!(used() <= most);
        for ((name, wide), (_, base)) in wide.iter().zip(&base) {
            assert!(base.iter().any(|&bits| bits != 0), "{name}");
            let first = wide.iter().zip(base).position(|(a, b)| a != b);
            assert_eq!((first, wide.len()), (None, base.len()), "{name}, {most:?}");
        }
        assert_eq!(wide.len(), base.len());
    }
}
