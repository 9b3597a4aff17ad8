//! Datasets in the layout of HDF5, written without the HDF5 library.

use std::sync::Arc;

use libdeflater::{CompressionLvl, Compressor};
use lz4_flex::block::{compress_into, get_maximum_output_size};
use paceline_formats::atom_set::Atoms;
use paceline_formats::block_reader::hdf5_datasets::{ChunkReader, Element, Identity};
use paceline_formats::hdf5_chunks::{Dataset, Filter, Kind, Number, Units};

use crate::check::{Bytes, Table};

pub const DEFLATE: u32 = 1;
pub const SHUFFLE: u32 = 2;
pub const FLETCHER32: u32 = 3;
pub const LZF: u32 = 32000;
pub const LZ4: u32 = 32004;
pub const ZSTD: u32 = 32015;

/// File with one dataset.
#[derive(Debug, Clone)]
pub struct File {
    pub bytes: Vec<u8>,
    pub element: Element,
    /// Table of all chunks.
    pub table: Table,
}

/// Dataset to write, and its layout.
#[derive(Debug, Clone)]
pub struct Plan {
    pub number: &'static str,
    pub shape: Vec<u64>,
    pub chunk: Option<Vec<u64>>,
    pub filters: Vec<u32>,
    /// Mask of the filters that every second chunk skips.
    pub mask: u32,
    /// True if every third chunk is never written.
    pub has_holes: bool,
}

/// Return the number at an index of the dataset in C order. All types can represent it.
pub fn value(index: u64) -> f64 {
    (index * 37 % 101) as f64
}

impl Plan {
    pub fn new(number: &'static str, shape: &[u64], chunk: &[u64], filters: &[u32]) -> Plan {
        Plan {
            number,
            shape: shape.to_vec(),
            chunk: (!chunk.is_empty()).then(|| chunk.to_vec()),
            filters: filters.to_vec(),
            mask: 0,
            has_holes: false,
        }
    }

    pub fn write(&self) -> File {
        self.write_values(&value)
    }

    pub fn write_values(&self, value: &dyn Fn(u64) -> f64) -> File {
        let number = Number::parse(self.number).unwrap();
        let mut file = File {
            bytes: vec![0xaa; 100],
            element: Element {
                dataset: Dataset {
                    name: "/particles/all/position/value".into(),
                    number,
                    shape: self.shape.clone(),
                    chunk: self.chunk.clone(),
                    filters: self.filters.iter().map(|&number| filter(number)).collect(),
                    offset: 100,
                    fill: encode(number, 7.0),
                },
                units: Units {
                    divisor: if number.kind == Kind::Float { 1.0 } else { 8.0 },
                    factor: 10.0,
                    ..Units::NONE
                },
            },
            table: Table::default(),
        };
        match &self.chunk {
            None => {
                let n: u64 = self.shape.iter().product();
                file.bytes
                    .extend((0..n).flat_map(|index| encode(number, value(index))));
            }
            Some(chunk) => self.write_chunks(chunk, value, &mut file),
        }
        file.bytes.extend([0xbb; 10]);
        file
    }

    fn write_chunks(&self, chunk: &[u64], value: &dyn Fn(u64) -> f64, file: &mut File) {
        let number = file.element.dataset.number;
        let axes: Vec<u64> = self
            .shape
            .iter()
            .zip(chunk)
            .map(|(n, step)| n.div_ceil(*step))
            .collect();
        file.table.chunk_numbers = (0..axes[0]).collect();
        for (k, corner) in corners(&axes).into_iter().enumerate() {
            let inside = corners(chunk).into_iter().flat_map(|within| {
                let place = corner
                    .iter()
                    .zip(chunk)
                    .zip(&within)
                    .map(|((c, step), w)| c * step + w);
                let place: Vec<u64> = place.collect();
                let is_in = place.iter().zip(&self.shape).all(|(at, n)| at < n);
                let index = place
                    .iter()
                    .zip(&self.shape)
                    .fold(0, |index, (at, n)| index * n + at);
                // The content beyond the edge of the dataset is arbitrary.
                encode(number, if is_in { value(index) } else { 99.0 })
            });
            let mask = if k % 2 == 1 { self.mask } else { 0 };
            let hole = self.has_holes && k % 3 == 2;
            let stored = match hole {
                true => Vec::new(),
                false => pack(inside.collect(), &self.filters, mask, number.width),
            };
            file.table.offsets.push(file.bytes.len() as u64);
            file.table.sizes.push(stored.len() as u64);
            file.table.masks.push(mask);
            file.bytes.extend(stored);
            // Some chunks are separated by other bytes.
            file.bytes.extend(vec![0xcc; k % 4]);
        }
    }

    /// Return the expected numbers of a row: x, y, z of all atoms.
    pub fn expected(&self, row: u64) -> Vec<f32> {
        let n = self.shape[1..].iter().product::<u64>();
        let units = self.write_nothing().element.units;
        (row * n..(row + 1) * n)
            .map(|index| match self.is_hole(index) {
                true => 7.0,
                false => value(index),
            })
            .map(|x| (x / units.divisor) as f32 * units.factor)
            .collect()
    }

    fn write_nothing(&self) -> File {
        Plan {
            shape: vec![0; self.shape.len()],
            chunk: None,
            ..self.clone()
        }
        .write()
    }

    fn is_hole(&self, mut index: u64) -> bool {
        let Some(chunk) = self.chunk.as_ref().filter(|_| self.has_holes) else {
            return false;
        };
        let (mut k, mut times) = (0, 1);
        for (n, step) in self.shape.iter().zip(chunk).rev() {
            k += index % n / step * times;
            times *= n.div_ceil(*step);
            index /= n;
        }
        k % 3 == 2
    }
}

impl File {
    pub fn table(&self, rows: &[i64]) -> Table {
        Table {
            rows: rows.to_vec(),
            ..self.table.clone()
        }
    }

    pub fn open(&self, atoms: &Atoms, ids: Option<Identity>) -> ChunkReader {
        let file = Arc::new(Bytes::new(self.bytes.clone()));
        let elements = [Some(self.element.clone()), None, None];
        ChunkReader::new(file, elements, atoms, ids).unwrap()
    }
}

/// Return all positions of a grid in C order.
fn corners(axes: &[u64]) -> Vec<Vec<u64>> {
    axes.iter().fold(vec![vec![]], |before, &n| {
        let longer = |place: &Vec<u64>| {
            let place = place.clone();
            (0..n).map(move |at| [&place[..], &[at]].concat())
        };
        before.iter().flat_map(longer).collect()
    })
}

fn filter(number: u32) -> Filter {
    Filter {
        number,
        name: format!("filter {number}"),
        values: vec![],
    }
}

pub fn encode(number: Number, value: f64) -> Vec<u8> {
    let mut bytes = match (number.kind, number.width) {
        (Kind::Float, 4) => (value as f32).to_le_bytes().to_vec(),
        (Kind::Float, _) => value.to_le_bytes().to_vec(),
        (_, width) => (value as i64).to_le_bytes()[..width].to_vec(),
    };
    if number.big_endian {
        bytes.reverse();
    }
    bytes
}

/// Apply filters to the numbers of a chunk.
fn pack(mut bytes: Vec<u8>, filters: &[u32], mask: u32, width: usize) -> Vec<u8> {
    for (k, &stage) in filters.iter().enumerate() {
        if mask >> k & 1 == 1 {
            continue;
        }
        bytes = match stage {
            DEFLATE => deflate(&bytes),
            SHUFFLE => shuffle(&bytes, width),
            FLETCHER32 => [&bytes[..], &fletcher32(&bytes).to_le_bytes()].concat(),
            LZ4 => lz4(&bytes),
            ZSTD => zstd(&bytes),
            _ => lzf(&bytes),
        };
    }
    bytes
}

/// Shuffle a chunk. Bytes after the last whole number do not change.
fn shuffle(bytes: &[u8], width: usize) -> Vec<u8> {
    let (numbers, rest) = bytes.split_at(bytes.len() / width * width);
    let plane = |plane| numbers.iter().skip(plane).step_by(width).copied();
    (0..width)
        .flat_map(plane)
        .chain(rest.iter().copied())
        .collect()
}

fn deflate(bytes: &[u8]) -> Vec<u8> {
    let mut compressor = Compressor::new(CompressionLvl::default());
    let mut out = vec![0; compressor.zlib_compress_bound(bytes.len())];
    let n = compressor.zlib_compress(bytes, &mut out).unwrap();
    out.truncate(n);
    out
}

/// Compress in blocks of 200 bytes. A block is stored uncompressed if it would not become shorter.
fn lz4(bytes: &[u8]) -> Vec<u8> {
    let mut out = (bytes.len() as u64).to_be_bytes().to_vec();
    out.extend(200_u32.to_be_bytes());
    for block in bytes.chunks(200) {
        let mut packed = vec![0; get_maximum_output_size(block.len())];
        let size = compress_into(block, &mut packed).unwrap();
        let stored = if size < block.len() {
            &packed[..size]
        } else {
            block
        };
        out.extend((stored.len() as u32).to_be_bytes());
        out.extend(stored);
    }
    out
}

/// Compress to a frame without a checksum, like some other programs.
fn zstd(bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![0; zstd_safe::compress_bound(bytes.len())];
    let n = zstd_safe::compress(&mut out[..], bytes, 3).unwrap();
    out.truncate(n);
    out
}

/// Compute sums modulo 65,535, with 65,535 instead of 0.
fn fletcher32(bytes: &[u8]) -> u32 {
    let (mut sum, mut sums) = (0_u32, 0_u32);
    for word in bytes.chunks(2) {
        sum += u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0));
        sum = if sum > 0xffff { sum - 0xffff } else { sum };
        sums += sum;
        sums = if sums > 0xffff { sums - 0xffff } else { sums };
    }
    sums << 16 | sum
}

/// Compress to literals and references to earlier bytes.
fn lzf(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let same = |back: usize| {
            let ahead = bytes[at..].iter().zip(&bytes[at - back..]);
            (ahead.take(264).take_while(|(a, b)| a == b).count(), back)
        };
        let (len, back) = (1..=at.min(500)).map(same).max().unwrap_or_default();
        if len < 3 {
            out.extend([0, bytes[at]]);
            at += 1;
            continue;
        }
        let (high, low) = (((back - 1) >> 8) as u8, (back - 1) as u8);
        match len {
            ..9 => out.extend([(len as u8 - 2) << 5 | high, low]),
            _ => out.extend([7 << 5 | high, (len - 9) as u8, low]),
        }
        at += len;
    }
    out
}
