//! Tests of reading with ranks that are threads.

use std::ops::Range;

use super::Partition;
use super::atom_table_and_text_frames::{AtomSource, Moment};
use super::atom_table_and_text_frames::{
    AtomTable, CHARGES, FORCES, IDS, Known, MASSES, NAMES, POSITIONS, VELOCITIES, Widths, widths,
};
use super::atoms_to_owners::{ById, Grid, Owners};
use super::{ReadingCost, Settings, distribute};
use crate::tests::thread_ranks::on_ranks;
use paceline_formats::Fields;
use paceline_formats::error::{Error, Result};

const SIDE: f64 = 20.0;

fn moment() -> Moment {
    Moment {
        path: "HISTORY".into(),
        frame: 3,
    }
}

/// Return a deterministic pseudo-random number.
fn mixed(number: u64) -> u64 {
    let x = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

fn all() -> Widths {
    let known = Known {
        names: true,
        masses: true,
        charges: true,
    };
    widths(Fields::ALL, true, known)
}

/// Append an atom with all its properties to a table.
fn put(id: u64, table: &mut AtomTable) {
    let number = |k: u64| (mixed(9 * id + k) % 100_000) as f64 / 100_000.0 * SIDE;
    let vector = |k: u64| [0, 1, 2].map(|axis| number(3 * k + axis).to_ne_bytes());
    table.column_mut(IDS).extend((id as i64).to_ne_bytes());
    for (k, column) in [(0, POSITIONS), (1, VELOCITIES), (2, FORCES)] {
        table.column_mut(column).extend(vector(k).as_flattened());
    }
    table.column_mut(NAMES).extend(mixed(id).to_ne_bytes());
    table.column_mut(MASSES).extend(number(11).to_ne_bytes());
    table.column_mut(CHARGES).extend(number(12).to_ne_bytes());
}

/// File with its atoms in a given order.
struct File {
    moment: Moment,
    id_at: fn(u64) -> u64,
    next: u64,
    /// Index of an atom that cannot be read.
    damaged: Option<u64>,
}

impl File {
    fn new(id_at: fn(u64) -> u64) -> Self {
        File {
            moment: moment(),
            id_at,
            next: 0,
            damaged: None,
        }
    }
}

impl AtomSource for File {
    fn read(&mut self, places: Range<u64>, table: &mut AtomTable) -> Result<()> {
        assert!(table.is_empty());
        assert!(self.next <= places.start, "it went back");
        self.next = places.end;
        if self.damaged.is_some_and(|place| places.contains(&place)) {
            return Err(self.moment.unsupported("damaged"));
        }
        places.for_each(|place| put((self.id_at)(place), table));
        Ok(())
    }
}

/// Rule that returns the owner of an atom from its id.
struct Rule(fn(i64) -> i64);

impl Owners for Rule {
    fn find(&mut self, table: &AtomTable, ranks: &mut Vec<i64>) -> Result<()> {
        ranks.extend(table.ids().map(self.0));
        Ok(())
    }
}

#[derive(Clone, Copy)]
struct Case<'a> {
    n_atoms: u64,
    n_ranks: usize,
    readers: &'a [usize],
    buffer: usize,
    id_at: fn(u64) -> u64,
}

fn settings<'a>(case: &Case<'a>, moment: &'a Moment, ranges: bool) -> Settings<'a> {
    Settings {
        moment,
        n_atoms: case.n_atoms,
        n_places: case.n_atoms,
        widths: all(),
        readers: case.readers,
        buffer: case.buffer,
        ranges,
    }
}

/// Read a file, and check that each rank gets its atoms, in order, with the values of the file.
fn read(
    case: &Case<'_>,
    ranges: bool,
    owners: impl Fn() -> Box<dyn Owners> + Sync,
) -> Vec<ReadingCost> {
    let got = on_ranks(case.n_ranks, |comm| {
        let mut file = File::new(case.id_at);
        let supply = case.readers.contains(&comm.rank());
        let supply = supply.then_some(&mut file as &mut dyn AtomSource);
        let read = distribute(
            comm,
            settings(case, &moment(), ranges),
            supply,
            &mut *owners(),
        );
        read.unwrap().unwrap()
    });
    let mut expected = vec![AtomTable::new(all()); case.n_ranks];
    for id in 1..=case.n_atoms {
        let mut atom = AtomTable::new(all());
        put(id, &mut atom);
        let mut ranks = Vec::new();
        owners().find(&atom, &mut ranks).unwrap();
        expected[ranks[0] as usize].append(&atom.view(0..1));
    }
    for (rank, ((table, _), expected)) in got.iter().zip(&expected).enumerate() {
        assert_eq!(table.len(), expected.len(), "rank {rank}");
        assert!(table == expected, "rank {rank}");
    }
    got.into_iter().map(|(_, cost)| cost).collect()
}

fn grid(shape: [u32; 3]) -> impl Fn() -> Box<dyn Owners> + Sync {
    let vectors = [[SIDE, 0.0, 0.0], [0.0, SIDE, 0.0], [0.0, 0.0, SIDE]];
    move || Box::new(Grid::new(moment(), shape, vectors, false).unwrap())
}

fn in_order(place: u64) -> u64 {
    place + 1
}

#[test]
fn every_rank_gets_its_atoms() {
    let shapes = [
        (1, [1, 1, 1]),
        (2, [1, 2, 1]),
        (4, [2, 2, 1]),
        (6, [3, 1, 2]),
        (8, [2, 2, 2]),
        (16, [4, 2, 2]),
    ];
    for (n_ranks, shape) in shapes {
        let everybody: Vec<usize> = (0..n_ranks).collect();
        let some: Vec<usize> = everybody.iter().copied().step_by(3).collect();
        for readers in [&[n_ranks - 1][..], &some, &everybody] {
            for (n_atoms, buffer) in [(5, 1), (700, 10_000), (700, 1 << 20)] {
                let case = Case {
                    n_atoms,
                    n_ranks,
                    readers,
                    buffer,
                    id_at: in_order,
                };
                read(&case, false, grid(shape));
                let by_id = ById {
                    n_atoms,
                    n_ranks: n_ranks as u32,
                };
                read(&case, true, || Box::new(by_id));
            }
        }
    }
}

#[test]
fn a_file_in_any_order_is_put_in_order() {
    let case = Case {
        n_atoms: 500,
        n_ranks: 4,
        readers: &[0, 2],
        buffer: 20_000,
        // 7 and 500 have no common divisor, so that each id occurs once.
        id_at: |place| 1 + (7 * place + 3) % 500,
    };
    read(&case, false, grid([1, 2, 2]));
    let by_id = ById {
        n_atoms: 500,
        n_ranks: 4,
    };
    read(&case, true, || Box::new(by_id));
}

#[test]
fn an_owner_gets_one_message_a_batch() {
    let case = Case {
        n_atoms: 1000,
        n_ranks: 8,
        readers: &[0, 4],
        buffer: 1 << 20,
        id_at: in_order,
    };
    let costs = read(&case, false, grid([2, 2, 2]));
    assert!(costs.iter().all(|cost| cost.n_batches == 1));
    // Each reader sends to the other reader and to three other ranks.
    for (rank, cost) in costs.iter().enumerate() {
        let expected = if case.readers.contains(&rank) { 4 } else { 0 };
        assert_eq!(cost.n_messages, expected, "rank {rank}");
    }
}

#[test]
fn memory_is_bounded_whoever_owns_the_atoms() {
    let rules: [fn(i64) -> i64; 3] = [|_| 5, |id| id % 8, |id| i64::from(id > 1500) * 7];
    for rule in rules {
        for buffer in [20_000, 100_000] {
            let case = Case {
                n_atoms: 3000,
                n_ranks: 8,
                readers: &[0, 2, 4, 6],
                buffer,
                id_at: in_order,
            };
            for cost in read(&case, false, || Box::new(Rule(rule))) {
                assert!(cost.n_batches > 1);
                assert!(cost.peak_buffer <= buffer, "{} bytes", cost.peak_buffer);
            }
        }
    }
}

/// Return the error of each rank; `None` for a rank that stopped because another rank failed.
fn refused(rule: fn(i64) -> i64, damaged: Option<u64>) -> Vec<Option<String>> {
    let case = Case {
        n_atoms: 1000,
        n_ranks: 4,
        readers: &[0, 2],
        buffer: 30_000,
        id_at: in_order,
    };
    on_ranks(case.n_ranks, |comm| {
        let mut file = File::new(case.id_at);
        file.damaged = damaged;
        let supply = case.readers.contains(&comm.rank());
        let supply = supply.then_some(&mut file as &mut dyn AtomSource);
        match distribute(
            comm,
            settings(&case, &moment(), false),
            supply,
            &mut Rule(rule),
        ) {
            Ok(None) => None,
            Ok(Some(_)) => panic!("it was read"),
            Err(error) => Some(error.to_string()),
        }
    })
}

#[test]
fn all_ranks_stop_where_one_cannot_go_on() {
    let said = refused(|_| 1, Some(700));
    assert_eq!(said.iter().flatten().count(), 1, "{said:?}");
    assert_eq!(
        said.iter().flatten().next().unwrap(),
        "HISTORY: frame 3: damaged"
    );
}

#[test]
fn owners_that_are_no_ranks_are_named() {
    for (rule, rank) in [
        ((|id| if id == 17 { 4 } else { 0 }) as fn(i64) -> i64, 4),
        (|id| if id == 17 { -1 } else { 3 }, -1),
    ] {
        let said = refused(rule, None);
        let expected = format!(
            "HISTORY: frame 3: atom 17 belongs to rank {rank}, but there are 4 ranks, counted from 0"
        );
        assert_eq!(said, [Some(expected), None, None, None]);
    }
}

#[test]
fn a_function_must_answer_for_every_atom() {
    struct Few;
    impl Owners for Few {
        fn find(&mut self, table: &AtomTable, ranks: &mut Vec<i64>) -> Result<()> {
            ranks.resize(table.len() - 1, 0);
            Ok(())
        }
    }
    let error = on_ranks(1, |comm| {
        let case = Case {
            n_atoms: 10,
            n_ranks: 1,
            readers: &[0],
            buffer: 1 << 20,
            id_at: in_order,
        };
        let mut file = File::new(in_order);
        distribute(
            comm,
            settings(&case, &moment(), false),
            Some(&mut file),
            &mut Few,
        )
        .unwrap_err()
    });
    assert!(matches!(&error[0], Error::Unsupported { .. }));
    assert!(error[0].to_string().contains("each of 10 atoms, found 9"));
}

#[test]
fn an_atom_that_is_there_twice_is_named() {
    let case = Case {
        n_atoms: 1000,
        n_ranks: 3,
        readers: &[1],
        buffer: 30_000,
        id_at: |place| if place == 70 { 500 } else { place + 1 },
    };
    let said = on_ranks(case.n_ranks, |comm| {
        let mut file = File::new(case.id_at);
        let supply = (comm.rank() == 1).then_some(&mut file as &mut dyn AtomSource);
        let mut by_id = ById {
            n_atoms: 1000,
            n_ranks: 3,
        };
        let read = distribute(comm, settings(&case, &moment(), true), supply, &mut by_id);
        read.unwrap_err().to_string()
    });
    let expected = "HISTORY: frame 3: expected each id from 1 to 1000 once, found 1000 ids: 71 is \
                    missing, and 500 occurs more than once, on rank 1";
    assert_eq!(said, [expected; 3]);
}

#[test]
fn every_atom_is_in_one_share_and_none_is_too_large() {
    for (n_atoms, n_readers, most) in [
        (0, 1, 5),
        (1, 3, 1),
        (10, 3, 2),
        (1000, 4, 7),
        (7, 7, 9),
        (99, 2, 1000),
    ] {
        for apart in [true, false] {
            let partition = Partition::new(n_atoms, n_readers, most, apart);
            let mut seen = vec![0; n_atoms as usize];
            for batch in 0..partition.n_batches() {
                for reader in 0..n_readers {
                    let part = partition.part(batch, reader);
                    assert!(part.clone().count() <= most, "{part:?}");
                    part.for_each(|atom| seen[atom as usize] += 1);
                }
            }
            assert!(seen.iter().all(|&times| times == 1), "{partition:?}");
        }
    }
}

#[test]
fn together_they_go_through_the_file_and_apart_each_through_its_own_part() {
    let together = Partition::new(100, 2, 10, false);
    assert_eq!(together.part(0, 0), 0..10);
    assert_eq!(together.part(0, 1), 10..20);
    let apart = Partition::new(100, 2, 10, true);
    assert_eq!(apart.part(0, 1), 50..60);
    assert_eq!(apart.part(4, 0), 40..50);
}
