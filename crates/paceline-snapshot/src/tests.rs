//! Tests of writing with ranks that are threads.

mod methods;
pub(super) mod thread_ranks;
mod write_and_read_back;
mod write_errors;

use std::path::{Path, PathBuf};

use super::{Atoms, Cost, Job, Method, Records, Result, Vectors, check, write};
use crate::agreement_and_communicator::Communicator;

/// Deterministic pseudo-random numbers.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }

    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    pub fn number(&mut self) -> f64 {
        (self.next() >> 11) as f64 / 2f64.powi(53) * 200.0 - 100.0
    }
}

/// Atoms of one rank.
#[derive(Clone, Default)]
pub struct Own {
    pub ids: Vec<i64>,
    pub vectors: [Vec<f64>; 3],
    pub names: Vec<[u8; 8]>,
    pub masses: Vec<f64>,
    pub charges: Vec<f64>,
}

impl Own {
    pub fn atoms(&self) -> Atoms<'_> {
        let [positions, velocities, forces] = self.vectors.each_ref().map(|v| Vectors::F64(v));
        Atoms {
            ids: &self.ids,
            positions,
            velocities: Some(velocities),
            forces: Some(forces),
            names: Some(&self.names),
            masses: Some(&self.masses),
            charges: Some(&self.charges),
        }
    }

    fn take(&mut self, all: &Own, atom: usize) {
        self.ids.push(all.ids[atom]);
        for (mine, all) in self.vectors.iter_mut().zip(&all.vectors) {
            mine.extend(&all[3 * atom..3 * atom + 3]);
        }
        self.names.push(all.names[atom]);
        self.masses.push(all.masses[atom]);
        self.charges.push(all.charges[atom]);
    }
}

/// Return all atoms of a random system, in the order of their ids.
pub fn system(n_atoms: usize, random: &mut Random) -> Own {
    let mut vectors = || (0..3 * n_atoms).map(|_| random.number()).collect();
    let vectors = [vectors(), vectors(), vectors()];
    let mut numbers = || (0..n_atoms).map(|_| random.number()).collect();
    Own {
        ids: (1..=n_atoms as i64).collect(),
        vectors,
        names: (0..n_atoms)
            .map(|k| {
                if k % 3 == 0 {
                    *b"Na+     "
                } else {
                    *b"Cl-\0\0\0\0\0"
                }
            })
            .collect(),
        masses: numbers(),
        charges: numbers(),
    }
}

/// Distribute atoms to ranks, in random order. `rank_of` returns the rank of each atom.
pub fn scatter(
    all: &Own,
    n_ranks: usize,
    random: &mut Random,
    mut rank_of: impl FnMut(usize, &mut Random) -> usize,
) -> Vec<Own> {
    let n_atoms = all.ids.len();
    let mut order: Vec<usize> = (0..n_atoms).collect();
    for k in (1..n_atoms).rev() {
        order.swap(k, random.below(k + 1));
    }
    let mut ranks = vec![Own::default(); n_ranks];
    for atom in order {
        ranks[rank_of(atom, random)].take(all, atom);
    }
    ranks
}

/// File that is deleted when this value is dropped.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Self {
        let name = format!("paceline-snapshot-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, b"").unwrap();
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Properties that all frames of a test have in common.
#[derive(Clone, Copy)]
pub struct Setting<'a> {
    pub records: &'a dyn Records,
    pub n_atoms: usize,
    pub method: Method,
    pub writers: &'a [usize],
    pub buffer: usize,
}

/// Return the offset of each section, with some bytes before each section.
pub fn starts(setting: &Setting<'_>) -> Vec<u64> {
    let sizes = setting.records.sections().iter();
    let mut start = 0;
    let mut after = |size: &usize| {
        let own = start + 7;
        start = own + (size * setting.n_atoms) as u64;
        own
    };
    sizes.map(&mut after).collect()
}

/// Check a frame and write it.
pub fn frame(
    comm: &dyn Communicator,
    setting: &Setting<'_>,
    own: &Own,
    path: &Path,
) -> Result<Cost> {
    let atoms = own.atoms();
    let n_atoms = setting.n_atoms as u64;
    check(comm, setting.records, n_atoms, &atoms)?;
    let job = Job {
        path,
        records: setting.records,
        starts: &starts(setting),
        n_atoms,
        atoms: &atoms,
        method: setting.method,
        writers: setting.writers,
        buffer: setting.buffer,
        sync: true,
    };
    write(comm, &job)
}
