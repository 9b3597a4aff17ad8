//! Tests that write and read back HDF5 datasets in every layout, and tests of damaged files.

#[path = "../checks/chunks.rs"]
mod check;
mod damage;
mod file;

use self::check::{NUMBERS, Table, read};
use self::file::{DEFLATE, FLETCHER32, File, LZ4, LZF, Plan, SHUFFLE, ZSTD};
use paceline_formats::atom_set::Atoms;
use paceline_formats::block_reader::hdf5_datasets::{Element, Identity, ReadRequest};
use paceline_formats::block_reader::{BlockOut, Numbers};
use paceline_formats::{CELL_WIDTH, Fields};

const SHAPE: [u64; 3] = [7, 50, 3];

/// Chunk shapes that divide frames, atoms and components in every way.
const CHUNKS: [&[u64]; 9] = [
    &[],
    &[1, 50, 3],
    &[3, 50, 3],
    &[1, 11, 3],
    &[3, 20, 1],
    &[2, 7, 2],
    &[10, 60, 4],
    &[1, 1, 1],
    &[7, 50, 1],
];

const FILTERS: [&[u32]; 15] = [
    &[],
    &[DEFLATE],
    &[SHUFFLE],
    &[FLETCHER32],
    &[LZF],
    &[SHUFFLE, DEFLATE],
    &[SHUFFLE, LZF, FLETCHER32],
    &[FLETCHER32, SHUFFLE, DEFLATE],
    &[FLETCHER32, DEFLATE, SHUFFLE],
    &[DEFLATE, FLETCHER32],
    &[LZ4],
    &[ZSTD],
    &[SHUFFLE, LZ4],
    &[SHUFFLE, ZSTD],
    &[FLETCHER32, SHUFFLE, ZSTD],
];

/// Read all atoms and some atoms, in rows that ascend, repeat, descend and are missing, and
/// compare.
fn assert_read(plan: &Plan) {
    let file = plan.write();
    let atoms = [0, 1, 2, 10, 11, 19, 20, 21, 33, 49];
    let rows = [0, 1, 2, 3, 4, 5, 6, 6, -1, 2, 0];
    let wanted = [Atoms::all(50), Atoms::new(&atoms, 50).unwrap()];
    for (wanted, indices) in wanted
        .iter()
        .zip([&(0..50).collect::<Vec<_>>()[..], &atoms])
    {
        let mut reader = file.open(wanted, None);
        for (rows, whole) in [(&rows[..], false), (&rows[3..5], false), (&rows, true)] {
            let n = wanted.len();
            let block = read(&mut reader, n, &file.table(rows), None, (false, whole)).unwrap();
            for (k, &row) in rows.iter().enumerate() {
                let frame = &block.positions[3 * n * k..3 * n * (k + 1)];
                assert_eq!(block.fields[k], u8::from(row >= 0), "{plan:?}");
                if row < 0 {
                    assert!(frame.iter().all(|x| x.is_nan()), "{plan:?}");
                    continue;
                }
                let all = plan.expected(row as u64);
                let gathered = indices.iter().flat_map(|&i| all[3 * i..3 * i + 3].to_vec());
                assert_eq!(frame, gathered.collect::<Vec<_>>(), "{plan:?}, row {row}");
            }
        }
    }
}

#[test]
fn every_number_comes_back_from_every_layout() {
    for (k, number) in NUMBERS.into_iter().enumerate() {
        for chunk in if k < 2 { &CHUNKS[..] } else { &CHUNKS[..1] } {
            assert_read(&Plan::new(number, &SHAPE, chunk, &[]));
        }
        assert_read(&Plan::new(number, &SHAPE, &[3, 20, 1], &[SHUFFLE]));
    }
}

#[test]
fn every_filter_is_undone_where_it_was_applied() {
    for filters in FILTERS {
        for chunk in &CHUNKS[2..6] {
            for (number, mask) in [("<f4", 0), (">f8", 5), ("<i2", 2)] {
                let plan = Plan::new(number, &SHAPE, chunk, filters);
                assert_read(&Plan { mask, ..plan });
            }
        }
    }
}

#[test]
fn rows_of_numbers_without_an_axis_of_components_are_the_same() {
    for chunk in [&[][..], &[1, 150], &[3, 17], &[7, 1]] {
        for filters in [&[][..], &[SHUFFLE, DEFLATE]] {
            if !chunk.is_empty() || filters.is_empty() {
                assert_read(&Plan::new("<f4", &[7, 150], chunk, filters));
            }
        }
    }
}

#[test]
fn what_was_never_written_is_the_fill_value() {
    for chunk in &CHUNKS[1..] {
        for filters in [&[][..], &[DEFLATE]] {
            let plan = Plan::new(">f4", &SHAPE, chunk, filters);
            assert_read(&Plan {
                has_holes: true,
                ..plan
            });
        }
    }
    let mut file = Plan::new("<f4", &SHAPE, &[], &[]).write();
    file.element.dataset.offset = 0;
    let mut reader = file.open(&Atoms::all(50), None);
    let block = read(&mut reader, 50, &file.table(&[3]), None, (false, false)).unwrap();
    assert_eq!(block.positions, [70.0; 150]);
}

#[test]
fn no_more_is_read_than_is_wanted_and_nothing_twice() {
    let read_of = |plan: &Plan, atoms: &[usize], rows: &[i64]| {
        let file = plan.write();
        let n_atoms = plan.shape[1] as usize;
        let mut reader = file.open(&Atoms::new(atoms, n_atoms).unwrap(), None);
        let mut one = |rows: &[i64]| {
            let table = file.table(rows);
            let block = read(&mut reader, atoms.len(), &table, None, (false, false));
            block.unwrap().traffic
        };
        let traffic = one(rows);
        (traffic.bytes, traffic.calls, one(rows).calls)
    };
    let rows: Vec<i64> = (0..20).collect();
    // Ranges with small gaps are read with one call.
    let plan = Plan::new("<f4", &[20, 3000, 3], &[], &[]);
    assert_eq!(read_of(&plan, &[0, 2999], &rows).1, 21);
    assert_eq!(read_of(&plan, &[5, 9], &rows), (20 * 60, 20, 20));
    let plan = Plan::new("<f4", &[20, 300, 3], &[1, 300, 3], &[]);
    assert_eq!(read_of(&plan, &[5, 299], &rows).1, 1);
    // A chunk of many frames is decompressed only for the first of them.
    let plan = Plan::new("<f4", &[20, 300, 3], &[20, 300, 3], &[SHUFFLE, DEFLATE]);
    assert_eq!(read_of(&plan, &[5, 299], &[3]).2, 0);
    // With deflate alone, only the beginning is read.
    let plan = Plan::new("<f4", &[9, 30000, 3], &[1, 30000, 3], &[DEFLATE]);
    let file = plan.write_values(&|k| (k * k % 65_521) as f64);
    let mut reader = file.open(&Atoms::new(&[5, 2999], 30000).unwrap(), None);
    let table = file.table(&[0, 1, 2, 3, 4, 5, 6, 7, 8]);
    let block = read(&mut reader, 2, &table, None, (false, false)).unwrap();
    let (bytes, whole) = (block.traffic.bytes, file.table.sizes.iter().sum::<u64>());
    assert!(bytes < whole / 8, "{bytes} of {whole} bytes");
}

#[test]
fn frames_are_visited_with_their_numbers_whatever_the_layout() {
    for chunk in CHUNKS {
        let plan = Plan::new("<f4", &SHAPE, chunk, &[]);
        let broken = 2 * 150 + 3 * 41 + 1;
        let values = move |k| {
            if k == broken {
                f64::NAN
            } else {
                file::value(k)
            }
        };
        let file = plan.write_values(&values);
        let mut reader = file.open(&Atoms::all(50), None);
        let table = file.table(&[0, 2, -1, 3]);
        let mut visited = vec![(Vec::new(), Fields::default()); 4];
        let mut visit = |row: usize, numbers: [&[f32]; 3], held: Fields| {
            visited[row] = (numbers[0].to_vec(), held);
        };
        let out = BlockOut {
            numbers: Numbers::Visited(Box::new(&mut visit)),
            cells: &mut [[0.0; CELL_WIDTH]; 4],
            times: &mut [0.0; 4],
            steps: &mut [0; 4],
            lambdas: &mut [0.0; 4],
            fields: &mut [0; 4],
        };
        let request = ReadRequest {
            frames: &[0, 1, 2, 3],
            slices: [Some(table.slice()), None, None],
            ids: None,
            required: Fields::default(),
            skip: false,
            whole: true,
        };
        reader.read(request, out).unwrap();
        for (k, row) in [(0, 0), (3, 3)] {
            assert_eq!(visited[k].0, plan.expected(row), "{plan:?}");
        }
        let odd = visited[1].0.iter().position(|x| !x.is_finite());
        assert_eq!(odd.map(|place| place / 3), Some(41));
        let held = visited.iter().map(|(_, held)| held.positions);
        assert!(held.eq([true, true, false, true]), "{plan:?}");
    }
}

/// Return a file in which each row has the atoms in another order. Slot s of row r contains atom id
/// (s + r) % 5 + 11. Two slots contain no atom.
fn shuffled(number: &'static str, chunk: &[u64], odd: &[(usize, f64)]) -> (File, Element, Table) {
    let odd = odd.to_vec();
    let ids = move |k: u64| match odd.iter().find(|&&(at, _)| at as u64 == k) {
        Some(&(_, number)) => number,
        None => match (k / 7, k % 7) {
            (_, slot @ 5..) => (slot % 2) as f64 * 99.0,
            (row, slot) => ((slot + row) % 5 + 11) as f64,
        },
    };
    let written = Plan::new(number, &[4, 7], chunk, &[]).write_values(&ids);
    let positions = Plan::new("<f4", &[4, 7, 3], &[2, 4, 3], &[DEFLATE]).write();
    let start = written.bytes.len() as u64;
    let mut file = positions;
    let moved = written.bytes.iter().chain(&file.bytes).copied().collect();
    file.bytes = moved;
    file.table
        .offsets
        .iter_mut()
        .for_each(|offset| *offset += start);
    (file, written.element, written.table)
}

#[test]
fn atoms_are_found_by_their_numbers() {
    for (number, chunk) in [("<i4", &[][..]), (">u8", &[1, 7]), ("|u1", &[3, 2])] {
        let (file, ids, ids_table) = shuffled(number, chunk, &[]);
        let order: Vec<i64> = (11..16).collect();
        for atoms in [&[0, 1, 2, 3, 4][..], &[1, 4]] {
            let identity = Identity {
                element: ids.clone(),
                order: order.clone(),
            };
            let mut reader = file.open(&Atoms::new(atoms, 5).unwrap(), Some(identity));
            let rows = [2, 0, 3, 1, 1];
            let ids_table = Table {
                rows: rows.to_vec(),
                ..ids_table.clone()
            };
            let n = atoms.len();
            let table = file.table(&rows);
            let block = read(&mut reader, n, &table, Some(&ids_table), (false, false)).unwrap();
            let plan = Plan::new("<f4", &[4, 7, 3], &[2, 4, 3], &[DEFLATE]);
            for (k, &row) in rows.iter().enumerate() {
                let frame = plan.expected(row as u64);
                let slot = |atom: &usize| (atom + 5 - row as usize) % 5;
                let wanted = atoms
                    .iter()
                    .flat_map(|atom| frame[3 * slot(atom)..][..3].to_vec());
                let found = &block.positions[3 * n * k..3 * n * (k + 1)];
                assert_eq!(found, wanted.collect::<Vec<_>>(), "row {row}");
            }
        }
    }
}

#[test]
fn an_atom_that_is_missing_or_there_twice_is_damage() {
    let (file, element, mut table) = shuffled("<i4", &[], &[(7, 13.0), (22, 0.0)]);
    let order: Vec<i64> = (11..16).collect();
    let mut reader = file.open(&Atoms::all(5), Some(Identity { element, order }));
    table.rows = vec![0, 1, 2, 3];
    let positions = file.table(&table.rows);
    let block = read(&mut reader, 5, &positions, Some(&table), (true, false)).unwrap();
    assert_eq!(block.fields, [1, 0, 1, 0]);
    let reasons: Vec<&str> = block.skipped.iter().map(|(_, why)| why.as_str()).collect();
    let wanted = |frame, row, found| {
        format!(
            "made-up.h5: frame {frame}, row {row} of /particles/all/position/value, byte {}: \
             expected each atom's number once, found {found}",
            100 + row * 28
        )
    };
    assert_eq!(
        reasons,
        [wanted(101, 1, "13 twice"), wanted(103, 3, "no 15")]
    );
    let refused = read(&mut reader, 5, &positions, Some(&table), (false, false));
    assert_eq!(refused.unwrap_err().to_string(), reasons[0]);
}

fn seeds() -> Vec<Vec<u8>> {
    let seeds = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/chunks");
    let files = std::fs::read_dir(seeds).unwrap();
    let mut paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    paths.sort();
    paths
        .iter()
        .map(|path| std::fs::read(path).unwrap())
        .collect()
}

#[test]
fn seeds_of_the_fuzz_target_hold() {
    let seeds = seeds();
    assert!(!seeds.is_empty());
    seeds.iter().for_each(|seed| check::check(seed));
}

#[test]
fn damage_at_random_is_never_worse_than_an_error() {
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    for seed in seeds() {
        for _ in 0..100 {
            let mut bytes = seed.clone();
            for _ in 0..1 + random.below(4) {
                let at = random.below(bytes.len());
                bytes[at] = random.below(256) as u8;
            }
            bytes.truncate(bytes.len() - random.below(3) * random.below(9));
            check::check(&bytes);
        }
    }
}

/// Xorshift generator: deterministic random numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }
}
