//! Files that ranks write and read together.

use std::path::{Path, PathBuf};

use super::thread_ranks::on_ranks;
use crate::collective_writer::{Options, Writer};
use crate::file::{Heading, Kind, Settings};
use crate::reading::frames::{self, Reader};
use crate::{Atoms, Communicator, Failure, Method, Result, Vectors};
use paceline_formats::error::Error;

const N_ATOMS: u64 = 200;

/// Atoms of one rank.
struct Own {
    ids: Vec<i64>,
    positions: Vec<f64>,
    names: Vec<[u8; 8]>,
}

impl Own {
    /// Return every `size`-th atom, with descending ids. Rank 0 has no atoms of frame 1.
    fn of(comm: &dyn Communicator, frame: i64) -> Self {
        let size = comm.size() as i64;
        let owner = |id: i64| match (id + frame) % size {
            0 if frame == 1 => size - 1,
            owner => owner,
        };
        let ids: Vec<i64> = (1..=N_ATOMS as i64)
            .rev()
            .filter(|&id| owner(id) == comm.rank() as i64)
            .collect();
        Own {
            positions: ids
                .iter()
                .flat_map(|&id| [id as f64 / 16.0, frame as f64, -0.5])
                .collect(),
            names: vec![*b"Ar      "; ids.len()],
            ids,
        }
    }

    fn atoms(&self) -> Atoms<'_> {
        Atoms {
            ids: &self.ids,
            positions: Vectors::F64(&self.positions),
            velocities: None,
            forces: None,
            names: Some(&self.names),
            masses: None,
            charges: None,
        }
    }
}

fn heading(frame: i64) -> Heading {
    Heading {
        step: frame,
        time: 0.5 * frame as f64,
        cell: Some([[12.0, 0.0, 0.0], [0.0, 20.0, 0.0], [0.0, 0.0, 20.0]]),
    }
}

fn options(kind: Kind, path: &Path) -> Options {
    Options {
        kind,
        settings: Settings {
            path: path.to_owned(),
            n_atoms: N_ATOMS,
            title: String::new(),
            append: false,
            overwrite: true,
            dt: None,
            sync: false,
            n_frames: None,
            double: false,
        },
        method: Method::Sorted,
        n_writers: None,
        buffer: 1 << 20,
    }
}

fn scratch(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("paceline-session-{}.{name}", std::process::id()))
}

fn write_frames(comm: &dyn Communicator, options: Options) {
    let node = comm.rank() as u64 % 2;
    let mut writer = Writer::open(comm, Ok(options), node).unwrap();
    for frame in 0..3 {
        let own = Own::of(comm, frame);
        writer
            .write(comm, Ok((own.atoms(), heading(frame))))
            .unwrap();
    }
    assert_eq!(writer.n_frames(), 3);
    writer.close(comm).unwrap();
    assert!(!writer.is_open());
}

#[test]
fn any_number_of_ranks_makes_the_same_file_and_reads_it() {
    for kind in [Kind::Config, Kind::History, Kind::Netcdf, Kind::Dcd] {
        let path = scratch(kind.name());
        let mut found = Vec::new();
        for size in [1, 2, 5] {
            on_ranks(size, |comm| write_frames(comm, options(kind, &path)));
            found.push(std::fs::read(&path).unwrap());
        }
        assert!(found.iter().all(|bytes| *bytes == found[0]));
        for grid in [None, Some([3, 1, 1])] {
            let n_atoms = on_ranks(3, |comm| {
                let options = frames::Options {
                    path: path.clone(),
                    n_readers: Some(2),
                    buffer: 1 << 20,
                };
                let mut reader = Reader::open(comm, Ok(options), 0).unwrap();
                let last = reader.n_frames() - 1;
                let read = reader.read(comm, Ok((last, grid))).unwrap();
                for (k, id) in read.atoms.ids().enumerate() {
                    assert_eq!(read.atoms.position(k), [id as f64 / 16.0, 2.0, -0.5]);
                }
                // DCD stores the time step in single precision.
                assert!((read.heading.time - 1.0).abs() < 1e-6);
                read.atoms.len()
            });
            assert_eq!(n_atoms.iter().sum::<usize>() as u64, N_ATOMS);
            assert!(n_atoms.iter().all(|&n| n > 0), "{grid:?} {n_atoms:?}");
        }
        std::fs::remove_file(&path).unwrap();
    }
}

/// Return the error message, which must be the same on all ranks.
fn same<T>(found: Vec<Result<T>>) -> String {
    let reasons: Vec<String> = found
        .into_iter()
        .map(|one| one.err().unwrap().to_string())
        .collect();
    assert!(reasons.iter().all(|one| *one == reasons[0]), "{reasons:?}");
    reasons[0].clone()
}

#[test]
fn an_error_of_one_rank_is_an_error_of_all() {
    let path = scratch("wrong");
    let odd = |comm: &dyn Communicator| comm.rank() == 1;
    let lone = || Failure::Error(Error::Argument("a bad pointer".into()));
    let reason = same(on_ranks(3, |comm| {
        let options = match odd(comm) {
            true => Err(lone()),
            false => Ok(options(Kind::Dcd, &path)),
        };
        Writer::open(comm, options, 0)
    }));
    assert_eq!(reason, "rank 1: a bad pointer");
    let reason = same(on_ranks(3, |comm| {
        let mut options = options(Kind::Dcd, &path);
        options.settings.n_atoms += u64::from(odd(comm));
        Writer::open(comm, Ok(options), 0)
    }));
    assert_eq!(
        reason,
        "ranks disagree about n_atoms: 200 on rank 0, 201 on rank 1"
    );
    let reasons = on_ranks(3, |comm| {
        let mut writer = Writer::open(comm, Ok(options(Kind::Dcd, &path)), 0).unwrap();
        let own = Own::of(comm, 0);
        let given = |heading| match odd(comm) {
            true => Err(lone()),
            false => Ok((own.atoms(), heading)),
        };
        let first = writer.write(comm, given(heading(0))).err().unwrap();
        let step = Heading {
            step: comm.rank() as i64,
            ..heading(0)
        };
        let second = writer.write(comm, Ok((own.atoms(), step))).err().unwrap();
        // Rank 1 closes the file while the other ranks write.
        let third = match odd(comm) {
            true => writer.close(comm).err(),
            false => writer.write(comm, Ok((own.atoms(), heading(0)))).err(),
        };
        writer.write(comm, Ok((own.atoms(), heading(0)))).unwrap();
        writer.close(comm).unwrap();
        let closed = writer.close(comm).err().unwrap();
        [first, second, third.unwrap(), closed].map(|failure| failure.to_string())
    });
    assert!(reasons.iter().all(|one| *one == reasons[0]), "{reasons:?}");
    let words = [
        "a bad pointer",
        "disagree about the step",
        "another order",
        "is closed",
    ];
    for (reason, words) in reasons[0].iter().zip(words) {
        assert!(reason.contains(words), "{reason}");
    }
    std::fs::remove_file(&path).unwrap();
}
