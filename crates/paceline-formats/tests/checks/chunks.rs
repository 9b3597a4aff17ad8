//! Checks that must pass for any bytes, read as chunks of an HDF5 dataset.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use paceline_formats::atom_set::Atoms;
use paceline_formats::block_reader::hdf5_datasets::{
    ChunkReader, Element, Identity, ReadRequest, Slice,
};
use paceline_formats::block_reader::{BlockOut, Numbers};
use paceline_formats::error::Result;
use paceline_formats::hdf5_chunks::{Dataset, Filter, Number, Units};
use paceline_formats::source::{Source, Traffic};
use paceline_formats::{CELL_WIDTH, Fields};

/// Number of bytes at the front of the input that choose the layout of the dataset. The table of
/// chunks follows these bytes.
const HEAD: usize = 12;

/// All types of numbers that paceline can decode.
pub const NUMBERS: [&str; 20] = [
    "<f4", ">f4", "<f8", ">f8", "<i2", ">i2", "<i4", ">i4", "<i8", ">i8", "<u2", ">u2", "<u4",
    ">u4", "<u8", ">u8", "|i1", "|u1", "<i1", ">u1",
];

/// File in memory that counts the bytes read.
#[derive(Default)]
pub struct Bytes {
    pub bytes: Vec<u8>,
    n_bytes: AtomicU64,
    n_calls: AtomicU64,
}

impl Bytes {
    pub fn new(bytes: Vec<u8>) -> Bytes {
        Bytes {
            bytes,
            ..Bytes::default()
        }
    }
}

impl Source for Bytes {
    fn path(&self) -> &Path {
        Path::new("made-up.h5")
    }

    fn size(&self) -> Result<u64> {
        Ok(self.bytes.len() as u64)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let start = usize::try_from(offset).expect("within the file");
        buffer.copy_from_slice(&self.bytes[start..start + buffer.len()]);
        self.n_bytes
            .fetch_add(buffer.len() as u64, Ordering::Relaxed);
        self.n_calls.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn will_need(&self, _offset: u64, _len: u64) {}

    fn traffic(&self) -> Traffic {
        Traffic {
            bytes: self.n_bytes.load(Ordering::Relaxed),
            calls: self.n_calls.load(Ordering::Relaxed),
        }
    }
}

/// Locations of the rows of a dataset.
#[derive(Debug, Clone, Default)]
pub struct Table {
    pub rows: Vec<i64>,
    pub chunk_numbers: Vec<u64>,
    pub offsets: Vec<u64>,
    pub sizes: Vec<u64>,
    pub masks: Vec<u32>,
}

impl Table {
    pub fn slice(&self) -> Slice<'_> {
        Slice {
            rows: &self.rows,
            chunk_numbers: &self.chunk_numbers,
            offsets: &self.offsets,
            sizes: &self.sizes,
            masks: &self.masks,
        }
    }
}

/// Result of reading a block: positions, and the reasons for skipped frames.
#[derive(Debug, Clone, PartialEq)]
pub struct Read {
    pub positions: Vec<f32>,
    pub fields: Vec<u8>,
    pub skipped: Vec<(usize, String)>,
    pub traffic: Traffic,
}

/// Read positions of `n_wanted` atoms in some rows of a table.
pub fn read(
    reader: &mut ChunkReader,
    n_wanted: usize,
    table: &Table,
    ids: Option<&Table>,
    (skip, whole): (bool, bool),
) -> Result<Read> {
    let n = table.rows.len();
    let frames: Vec<i64> = (100..).take(n).collect();
    let mut positions = vec![-1.0; 3 * n * n_wanted];
    let mut fields = vec![9; n];
    let out = BlockOut {
        numbers: Numbers::Kept {
            positions: &mut positions,
            velocities: &mut [],
            forces: &mut [],
        },
        cells: &mut vec![[0.0; CELL_WIDTH]; n],
        times: &mut vec![0.0; n],
        steps: &mut vec![0; n],
        lambdas: &mut vec![0.0; n],
        fields: &mut fields,
    };
    let request = ReadRequest {
        frames: &frames,
        slices: [Some(table.slice()), None, None],
        ids: ids.map(Table::slice),
        required: Fields::default(),
        skip,
        whole,
    };
    let report = reader.read(request, out)?;
    let skipped = report.skipped.iter();
    Ok(Read {
        positions,
        fields,
        skipped: skipped
            .map(|(row, error)| (*row, error.to_string()))
            .collect(),
        traffic: Traffic {
            bytes: report.bytes,
            calls: report.calls,
        },
    })
}

/// Choices that the first bytes of the input make.
struct Chosen {
    n_rows: u64,
    n_atoms: usize,
    stride: usize,
    element: Element,
    table: Table,
    ids: Option<Element>,
}

/// Check a reader. The first bytes choose the dataset and its chunks; the file consists of all
/// bytes.
pub fn check(data: &[u8]) {
    let Some(chosen) = choose(data) else {
        return;
    };
    let n = chosen.n_atoms;
    let some: Vec<usize> = (0..n).step_by(chosen.stride).collect();
    let some_atoms = Atoms::new(&some, n).expect("increasing indices");
    let file = Arc::new(Bytes::new(data.to_vec()));
    let rows: Vec<i64> = (0..chosen.n_rows as i64).collect();
    let ids = chosen.ids.as_ref().map(|_| Table {
        rows: rows.clone(),
        ..Table::default()
    });
    let Ok(mut all) = reader(&file, &chosen, &Atoms::all(n)) else {
        return;
    };
    let Ok(mut part) = reader(&file, &chosen, &some_atoms) else {
        panic!("some atoms are refused, and all are not");
    };
    let table = Table {
        rows,
        ..chosen.table.clone()
    };
    // Read the rows in order with all atoms, then to the end, then row by row with some atoms.
    let read_all = |all: &mut ChunkReader, whole| {
        read(all, n, &table, ids.as_ref(), (true, whole)).expect("damage is skipped")
    };
    let at_once = read_all(&mut all, false);
    let whole = read_all(&mut all, true);
    for row in (0..chosen.n_rows as usize).rev() {
        let of_row = |table: &Table| Table {
            rows: vec![table.rows[row]],
            ..table.clone()
        };
        let ids = ids.as_ref().map(of_row);
        let one = read(
            &mut part,
            some.len(),
            &of_row(&table),
            ids.as_ref(),
            (true, false),
        );
        let one = one.expect("damage is skipped");
        let skipped = |read: &Read| read.skipped.iter().any(|&(other, _)| other == row);
        if !skipped(&whole) {
            assert!(!skipped(&at_once));
        }
        if !skipped(&at_once) {
            assert_eq!(one.skipped, []);
            let frame = &at_once.positions[3 * n * row..3 * n * (row + 1)];
            let gathered = some.iter().flat_map(|&atom| &frame[3 * atom..3 * atom + 3]);
            let gathered: Vec<u32> = gathered.map(bits).collect();
            assert_eq!(one.positions.iter().map(bits).collect::<Vec<_>>(), gathered);
        }
    }
}

/// Return the bits, so that NaN equals NaN.
fn bits(number: &f32) -> u32 {
    match number.is_nan() {
        true => u32::MAX,
        false => number.to_bits(),
    }
}

fn reader(file: &Arc<Bytes>, chosen: &Chosen, atoms: &Atoms) -> Result<ChunkReader> {
    let ids = chosen.ids.clone().map(|element| Identity {
        element,
        order: (1..=chosen.n_atoms as i64).collect(),
    });
    let elements = [Some(chosen.element.clone()), None, None];
    ChunkReader::new(file.clone(), elements, atoms, ids)
}

fn choose(data: &[u8]) -> Option<Chosen> {
    let (&head, rest) = data.split_first_chunk::<HEAD>()?;
    let [
        number,
        rows,
        atoms,
        kind,
        a,
        b,
        c,
        stages,
        mask,
        stride,
        fill,
        offset,
    ] = head;
    let number = Number::parse(NUMBERS[usize::from(number) % NUMBERS.len()])?;
    let (n_rows, n_atoms) = (u64::from(rows % 17), u64::from(atoms % 25));
    let flat = kind & 1 != 0;
    let shape = match flat {
        true => vec![n_rows, 3 * n_atoms],
        false => vec![n_rows, n_atoms, 3],
    };
    let chunk = [a, b, c].map(|axis| 1 + u64::from(axis % 80));
    let chunk = (kind & 2 != 0).then(|| chunk[..shape.len()].to_vec());
    let table = table(&shape, chunk.as_deref(), mask, rest);
    let offset = u64::from(offset) * 8;
    let dataset = Dataset {
        name: "/made/up".into(),
        number,
        filters: chunk
            .iter()
            .flat_map(|_| filters(stages, kind & 8 != 0))
            .collect(),
        fill: vec![fill; number.width],
        shape,
        chunk,
        offset,
    };
    let units = Units {
        factor: 10.0,
        ..Units::NONE
    };
    let ids = (kind & 4 != 0).then(|| Element {
        dataset: Dataset {
            name: "/made/ids".into(),
            number: Number::parse("|u1").expect("a number"),
            shape: vec![n_rows, n_atoms],
            chunk: None,
            filters: Vec::new(),
            offset,
            fill: Vec::new(),
        },
        units: Units::NONE,
    });
    Some(Chosen {
        n_rows,
        n_atoms: n_atoms as usize,
        stride: 1 + usize::from(stride),
        element: Element { dataset, units },
        table,
        ids,
    })
}

/// Return filters. Two bits choose each stage; the highest two choose deflate, LZF, LZ4 or
/// Zstandard.
fn filters(stages: u8, odd_shuffle: bool) -> Vec<Filter> {
    let stage = |shift: u8| match stages >> shift & 3 {
        0 => None,
        1 => Some(([1, 32000, 32004, 32015][usize::from(stages >> 6)], vec![])),
        2 if odd_shuffle => Some((2, vec![3])),
        2 => Some((2, vec![])),
        _ => Some((3, vec![])),
    };
    let stages = [0, 2, 4].into_iter().filter_map(stage);
    let filters = stages.map(|(number, values)| Filter {
        number,
        name: "a filter".into(),
        values,
    });
    filters.collect()
}

/// Return offset and size of each chunk, two bytes each. Chunks beyond the bytes are missing.
fn table(shape: &[u64], chunk: Option<&[u64]>, mask: u8, bytes: &[u8]) -> Table {
    let Some(chunk) = chunk else {
        return Table::default();
    };
    let axes: Vec<u64> = shape
        .iter()
        .zip(chunk)
        .map(|(&n, &step)| n.div_ceil(step))
        .collect();
    let n_chunks = axes.iter().product::<u64>() as usize;
    let (entries, _) = bytes.as_chunks::<4>();
    let mut entries = entries.iter();
    let mut table = Table {
        chunk_numbers: (0..axes[0]).collect(),
        ..Table::default()
    };
    for k in 0..n_chunks {
        let [a, b, c, d] = entries.next().copied().unwrap_or_default();
        table.offsets.push(u64::from(u16::from_le_bytes([a, b])));
        table.sizes.push(u64::from(u16::from_le_bytes([c, d])));
        table
            .masks
            .push(if k % 2 == 0 { 0 } else { u32::from(mask) });
    }
    table
}
