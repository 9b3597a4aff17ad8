//! Tests that every method writes the same bytes with any number of ranks.

use super::thread_ranks::on_ranks;
use super::{Own, Random, Scratch, Setting, frame, scatter, starts, system};
use crate::atom_encoding::{Arrays, Float, Text};
use crate::{Batch, Cost, Method, Records};
use paceline_formats::Fields;

const METHODS: [Method; 4] = [
    Method::Sorted,
    Method::Serial,
    Method::Direct,
    Method::Mpiio,
];

fn formats() -> [Box<dyn Records>; 5] {
    let little = Float::from_name("<f4").unwrap();
    let big = Float::from_name(">f8").unwrap();
    [
        Box::new(Text::new(true, Fields::ALL).unwrap()),
        Box::new(Text::new(false, Fields::POSITIONS).unwrap()),
        Box::new(Arrays::coordinates(little)),
        Box::new(Arrays::new(Fields::ALL, little, [1.0, 0.1, 2.0])),
        Box::new(Arrays::new(Fields::ALL, big, [1.0; 3])),
    ]
}

/// Return the file as a single process writes it, with all atoms in order.
fn expected(setting: &Setting<'_>, all: &Own) -> Vec<u8> {
    let mut bytes = Vec::new();
    let sizes = setting.records.sections().iter();
    for (section, (start, size)) in starts(setting).iter().zip(sizes).enumerate() {
        bytes.resize(*start as usize + size * setting.n_atoms, 0);
        let atoms = all.atoms();
        let room = &mut bytes[*start as usize..];
        setting.records.put(section, &Batch::from(&atoms), room);
    }
    bytes
}

fn written(setting: &Setting<'_>, ranks: &[Own]) -> (Vec<u8>, Vec<Cost>) {
    let file = Scratch::new(&format!("{:?}-{}", setting.method, setting.n_atoms));
    let costs = on_ranks(ranks.len(), |comm| {
        frame(comm, setting, &ranks[comm.rank()], &file.0).unwrap()
    });
    (std::fs::read(&file.0).unwrap(), costs)
}

#[test]
fn methods_make_the_same_bytes() {
    let mut random = Random(1);
    for (k, records) in formats().iter().enumerate() {
        for n_ranks in [1, 2, 3, 5, 16] {
            let n_atoms = [1, 97, 500][(k + n_ranks) % 3];
            let all = system(n_atoms, &mut random);
            let ranks = scatter(&all, n_ranks, &mut random, |_, random| {
                random.below(n_ranks)
            });
            let writers: Vec<usize> = (0..n_ranks).step_by(1 + k % 3).collect();
            for method in METHODS {
                let setting = Setting {
                    records: &**records,
                    n_atoms,
                    method,
                    writers: &writers,
                    buffer: 1 << 18,
                };
                let (found, _) = written(&setting, &ranks);
                assert!(
                    found == expected(&setting, &all),
                    "{method:?}, format {k}, {n_ranks} ranks, {n_atoms} atoms"
                );
            }
        }
    }
}

#[test]
fn memory_is_bounded_wherever_the_atoms_are() {
    let mut random = Random(2);
    let records = Text::new(true, Fields::ALL).unwrap();
    let (n_atoms, n_ranks) = (10_000, 6);
    let all = system(n_atoms, &mut random);
    type RankOf = fn(usize, &mut Random) -> usize;
    let spread: [RankOf; 4] = [
        |_, random| random.below(6),
        |_, _| 4,
        // One rank has the first atoms, which belong to one writer.
        |atom, random| if atom < 2500 { 5 } else { random.below(6) },
        |atom, _| atom * 6 / 10_000,
    ];
    for rank_of in spread {
        let ranks = scatter(&all, n_ranks, &mut random, rank_of);
        for (buffer, writers) in [
            (1 << 16, &[0, 2, 5][..]),
            (1 << 20, &[1]),
            (1 << 26, &[3, 4]),
        ] {
            let setting = Setting {
                records: &records,
                n_atoms,
                method: Method::Sorted,
                writers,
                buffer,
            };
            let (found, costs) = written(&setting, &ranks);
            assert!(found == expected(&setting, &all));
            for cost in &costs {
                assert!(cost.peak_buffer <= buffer, "{cost:?} with {buffer} bytes");
                assert_eq!(cost.n_batches, costs[0].n_batches);
            }
            let bytes: u64 = costs.iter().map(|cost| cost.bytes_written).sum();
            assert_eq!(bytes, found.len() as u64 - 7);
            let n_writers = costs.iter().filter(|cost| cost.n_writes > 0).count();
            assert_eq!(n_writers, writers.len());
        }
    }
}

#[test]
fn many_batches_and_writers_take_no_more_memory() {
    let mut random = Random(6);
    let records = Text::new(true, Fields::ALL).unwrap();
    let (n_atoms, n_ranks) = (40_000, 16);
    let all = system(n_atoms, &mut random);
    // Only rank 3 has atoms; the other ranks take part in all of its batches.
    let ranks = scatter(&all, n_ranks, &mut random, |_, _| 3);
    let writers: Vec<usize> = (0..n_ranks).collect();
    let setting = Setting {
        records: &records,
        n_atoms,
        method: Method::Sorted,
        writers: &writers,
        buffer: 1 << 15,
    };
    let (found, costs) = written(&setting, &ranks);
    assert!(found == expected(&setting, &all));
    for cost in &costs {
        assert!(cost.peak_buffer <= setting.buffer, "{cost:?}");
    }
}

#[test]
fn atoms_leave_in_few_messages_and_few_writes() {
    let mut random = Random(3);
    let records = Text::new(true, Fields::ALL).unwrap();
    let (n_atoms, n_ranks) = (5_000, 8);
    let all = system(n_atoms, &mut random);
    let ranks = scatter(&all, n_ranks, &mut random, |_, random| random.below(8));
    let setting = Setting {
        records: &records,
        n_atoms,
        method: Method::Sorted,
        writers: &[0, 4],
        buffer: 64 << 20,
    };
    let (_, costs) = written(&setting, &ranks);
    for (rank, cost) in costs.iter().enumerate() {
        let writes = [0, 4].contains(&rank);
        assert_eq!((cost.n_batches, cost.n_writes), (1, writes.into()));
        assert_eq!(cost.n_messages, if writes { 1 } else { 2 });
    }
}
