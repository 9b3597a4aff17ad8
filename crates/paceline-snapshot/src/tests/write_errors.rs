//! Tests of errors: all ranks return the same error, and nothing is written if atoms are wrong.

use std::io::ErrorKind;
use std::path::Path;

use super::thread_ranks::on_ranks;
use super::{Own, Random, Scratch, Setting, frame, scatter, system};
use crate::agreement_and_communicator::check_ids;
use crate::atom_encoding::Text;
use crate::{Failure, Method};
use paceline_formats::Fields;
use paceline_formats::error::Error;

const N_ATOMS: usize = 300;
const N_RANKS: usize = 4;

fn ranks() -> Vec<Own> {
    let mut random = Random(4);
    let all = system(N_ATOMS, &mut random);
    scatter(&all, N_RANKS, &mut random, |_, random| {
        random.below(N_RANKS)
    })
}

fn try_to_write(ranks: &[Own], path: &Path) -> Vec<Failure> {
    let records = Text::new(true, Fields::ALL).unwrap();
    let setting = Setting {
        records: &records,
        n_atoms: N_ATOMS,
        method: Method::Sorted,
        writers: &[1, 2],
        buffer: 1 << 20,
    };
    on_ranks(ranks.len(), |comm| {
        frame(comm, &setting, &ranks[comm.rank()], path).unwrap_err()
    })
}

/// Return the reason with which all ranks refuse wrong atoms.
fn refused(name: &str, ranks: &[Own]) -> String {
    let file = Scratch::new(name);
    let reasons = try_to_write(ranks, &file.0)
        .into_iter()
        .map(|failure| match failure {
            Failure::Unwritable(reason) => reason,
            failure => panic!("{failure}"),
        });
    let reasons: Vec<String> = reasons.collect();
    assert!(
        reasons.iter().all(|reason| *reason == reasons[0]),
        "{reasons:?}"
    );
    assert_eq!(std::fs::read(&file.0).unwrap(), b"");
    reasons[0].clone()
}

/// Return the rank of an atom, and its index on this rank.
fn find(ranks: &[Own], id: i64) -> (usize, usize) {
    let place = |own: &Own| own.ids.iter().position(|&own| own == id);
    let mut found = ranks.iter().map(place).enumerate();
    found.find_map(|(rank, at)| Some((rank, at?))).unwrap()
}

#[test]
fn ids_that_are_not_each_there_once_are_named() {
    for id in [1, 2, 150, 299, 300] {
        let mut wrong = ranks();
        let (rank, at) = find(&wrong, id);
        wrong[rank].ids[at] = if id == 150 { 151 } else { 150 };
        let (twice, missing) = (if id == 150 { 151 } else { 150 }, id);
        let holders: Vec<usize> = (0..N_RANKS)
            .filter(|&rank| wrong[rank].ids.contains(&twice))
            .collect();
        let holders = match holders[..] {
            [one] => format!("rank {one}"),
            [first, .., last] => format!("ranks {first} and {last}"),
            [] => unreachable!(),
        };
        assert_eq!(
            refused("twice", &wrong),
            format!(
                "expected each id from 1 to {N_ATOMS} once, found {N_ATOMS} ids: {missing} is \
                 missing, and {twice} occurs more than once, on {holders}"
            )
        );
    }
}

#[test]
fn far_too_large_a_number_of_atoms_is_refused_at_once() {
    let without_7 = [1, 2, 3, 4, 5, 6, 8, 9];
    let with_7_twice = [1, 2, 3, 4, 7, 5, 6, 7, 8];
    for (n_atoms, ids, says) in [
        (1 << 62, &without_7[..], "8 ids: 7 is missing"),
        (i64::MAX as u64, &without_7, "8 ids: 7 is missing"),
        (
            8,
            &with_7_twice,
            "9 ids: 7 occurs more than once, on ranks 1 and 2",
        ),
    ] {
        let found = on_ranks(3, |comm| {
            let own = &ids[ids.len() * comm.rank() / 3..ids.len() * (comm.rank() + 1) / 3];
            check_ids(comm, n_atoms, own).unwrap_err()
        });
        for failure in found {
            match failure {
                Failure::Unwritable(reason) => assert!(reason.ends_with(says), "{reason}"),
                failure => panic!("{failure}"),
            }
        }
    }
}

#[test]
fn atoms_that_are_missing_or_out_of_range_are_named() {
    let mut wrong = ranks();
    let (rank, at) = find(&wrong, 17);
    wrong[rank] = {
        let mut random = Random(5);
        let mut less = wrong[rank].clone();
        less.ids.remove(at);
        less.vectors
            .iter_mut()
            .for_each(|v| drop(v.drain(3 * at..3 * at + 3)));
        less.names.remove(at);
        less.masses.remove(at);
        less.charges.remove(at);
        random.next();
        less
    };
    assert_eq!(
        refused("missing", &wrong),
        "expected each id from 1 to 300 once, found 299 ids: 17 is missing"
    );
    for id in [0, -1, 301, i64::MAX, i64::MIN] {
        let mut wrong = ranks();
        let (rank, at) = find(&wrong, 40);
        wrong[rank].ids[at] = id;
        assert_eq!(
            refused("range", &wrong),
            format!("rank {rank}: expected ids from 1 to 300, found {id}")
        );
    }
}

#[test]
fn numbers_that_do_not_fit_are_named_with_their_rank() {
    for (vector, value, says) in [
        (0, f64::NAN, "a finite position, found NaN"),
        (1, f64::INFINITY, "a finite velocity, found inf"),
        (2, -f64::INFINITY, "a finite force, found -inf"),
        // This force overflows in DL_POLY's unit.
        (2, 1e307, "a finite force, found inf"),
    ] {
        let mut wrong = ranks();
        let (rank, at) = find(&wrong, 200);
        wrong[rank].vectors[vector][3 * at + 1] = value;
        assert_eq!(
            refused("finite", &wrong),
            format!("rank {rank}: atom 200: expected {says}")
        );
    }
    let mut wrong = ranks();
    let (rank, at) = find(&wrong, 3);
    wrong[rank].masses[at] = 1e300;
    assert_eq!(
        refused("mass", &wrong),
        format!("rank {rank}: atom 3: the mass, 1e300, does not fit in 12 columns with 6 decimals")
    );
    wrong[rank].masses[at] = 99999.5;
    wrong[rank].names[at] = *b"a b     ";
    assert!(refused("name", &wrong).contains("atom 3: expected a name"));
}

#[test]
fn a_file_that_cannot_be_opened_is_an_error_on_every_rank() {
    for failure in try_to_write(&ranks(), Path::new("/nowhere/HISTORY")) {
        match failure {
            Failure::Error(Error::Io { action, source, .. }) => {
                assert_eq!(action, "rank 1: cannot open");
                assert_eq!(source.kind(), ErrorKind::NotFound);
            }
            other => panic!("{other:?}"),
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_an_error_on_every_rank() {
    for failure in try_to_write(&ranks(), Path::new("/dev/full")) {
        match failure {
            Failure::Error(Error::Io { source, .. }) => {
                assert_eq!(source.kind(), ErrorKind::StorageFull);
            }
            other => panic!("{other:?}"),
        }
    }
}
