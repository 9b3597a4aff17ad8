//! Map the wanted numbers of a row to places among the chunks and in the frame.
//!
//! A row, all numbers of one frame, is a table of points (atoms; or numbers, where the dataset has
//! no axis of components) by components. Chunks cut it into columns, in C order; a contiguous
//! dataset is one chunk. At the edge of the dataset chunks are stored whole.

use std::ops::Range;

use super::{Dataset, Number, Units, Value, with_decoder};
use crate::atom_set::Atoms;
use crate::source::GAP;

/// How the rows of a dataset are cut, and what is wanted of them.
#[derive(Debug)]
pub struct Grid {
    /// Rows of the dataset, and of a chunk.
    pub n_rows: u64,
    pub chunk_rows: u64,
    /// Bytes of a row of a chunk, and of a chunk.
    pub row_bytes: usize,
    pub chunk_bytes: usize,
    /// Chunks side by side, of one number along the axis of rows, wanted or not.
    pub n_columns: usize,
    /// Columns that hold anything wanted, rising.
    pub columns: Vec<Column>,
    /// Chunks along each of the other axes.
    axes: Vec<u64>,
}

/// Part that is wanted of each row of the chunks in one column.
#[derive(Debug)]
pub struct Column {
    /// Its place among the columns.
    pub index: usize,
    /// In the order of their bytes.
    pub parts: Vec<Part>,
}

/// Wanted numbers that lie close together.
#[derive(Debug)]
pub struct Part {
    /// Byte in the chunk's row.
    pub start: usize,
    /// Bytes.
    pub len: usize,
    pub copies: Copies,
}

impl Column {
    /// One past the last wanted byte of a row.
    pub fn end(&self) -> usize {
        self.parts.last().map_or(0, |part| part.start + part.len)
    }
}

impl Grid {
    /// The grid of a sound dataset ([`Dataset::check`]), whose second axis has as many atoms, or
    /// three times as many numbers.
    pub fn new(dataset: &Dataset, atoms: &Atoms, per_atom: usize) -> Grid {
        let chunk = dataset.chunk.as_ref().unwrap_or(&dataset.shape);
        let numbers = |axes: &[u64]| axes.iter().product::<u64>() as usize;
        let row_bytes = numbers(&chunk[1..]) * dataset.number.width;
        let axes: Vec<u64> = dataset.shape[1..]
            .iter()
            .zip(&chunk[1..])
            .map(|(&n, &step)| n.div_ceil(step.max(1)))
            .collect();
        let (points, components) = match dataset.shape.len() {
            3 => (1, per_atom),
            _ => (per_atom, 1),
        };
        let runs = atoms.runs().iter();
        let runs = runs.map(|&(first, n)| (first * points, n * points));
        let cut = Cut {
            width: dataset.number.width,
            components,
            chunk_points: chunk[1] as usize,
            chunk_components: chunk.get(2).map_or(1, |&n| n as usize),
        };
        Grid {
            n_rows: dataset.shape[0],
            chunk_rows: chunk[0],
            row_bytes,
            chunk_bytes: row_bytes * chunk[0] as usize,
            n_columns: numbers(&axes),
            columns: cut.columns(runs),
            axes,
        }
    }

    /// Return the coordinates of a chunk in the grid of chunks.
    pub fn coordinates(&self, chunk_number: u64, column: usize) -> Vec<u64> {
        let column = column as u64;
        match self.axes[..] {
            [_, across] => vec![chunk_number, column / across.max(1), column % across.max(1)],
            _ => vec![chunk_number, column],
        }
    }
}

/// How a row is cut into columns.
struct Cut {
    /// Bytes of a number.
    width: usize,
    components: usize,
    chunk_points: usize,
    chunk_components: usize,
}

impl Cut {
    /// The columns that hold any of some runs of points.
    fn columns(&self, runs: impl Iterator<Item = (usize, usize)>) -> Vec<Column> {
        let across = self.components.div_ceil(self.chunk_components);
        let mut columns = Vec::new();
        // Points of the column at hand: first one in the column, place among those wanted, number.
        let mut here: Vec<(usize, usize, usize)> = Vec::new();
        let mut down = 0;
        let mut target = 0;
        for (mut first, mut n) in runs {
            while n > 0 {
                if first / self.chunk_points != down {
                    self.cut_across(down, across, &here, &mut columns);
                    here.clear();
                    down = first / self.chunk_points;
                }
                let local = first % self.chunk_points;
                let fit = n.min(self.chunk_points - local);
                here.push((local, target, fit));
                (first, n, target) = (first + fit, n - fit, target + fit);
            }
        }
        self.cut_across(down, across, &here, &mut columns);
        columns
    }

    fn cut_across(
        &self,
        down: usize,
        across: usize,
        points: &[(usize, usize, usize)],
        columns: &mut Vec<Column>,
    ) {
        if points.is_empty() {
            return;
        }
        columns.extend((0..across).map(|k| Column {
            index: down * across + k,
            parts: self.parts(k * self.chunk_components, points),
        }));
    }

    /// Group what lies within reach of one call.
    fn parts(&self, component: usize, points: &[(usize, usize, usize)]) -> Vec<Part> {
        let width = self.chunk_components.min(self.components - component);
        let mut parts: Vec<Part> = Vec::new();
        for &(point, target, n) in points {
            let source = point * self.chunk_components;
            let end = source + (n - 1) * self.chunk_components + width;
            let (start, end) = (source * self.width, end * self.width);
            let near = |part: &Part| (start - part.start - part.len) as u64 <= GAP;
            if !parts.last().is_some_and(near) {
                let copies = Copies::new(width, self.chunk_components, self.components);
                parts.push(Part {
                    start,
                    len: 0,
                    copies,
                });
            }
            if let Some(part) = parts.last_mut() {
                part.len = end - part.start;
                part.copies.push(Copy {
                    source: source - part.start / self.width,
                    target: target * self.components + component,
                    n,
                });
            }
        }
        parts
    }
}

// Brings numbers of a chunk's row to their places in a frame.

/// Points that are neighbours on both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copy {
    /// Number, in the part of the row, at which they begin; place of that in the frame.
    pub source: usize,
    pub target: usize,
    /// Points; or numbers, where nothing lies between points on either side.
    pub n: usize,
}

/// All that is copied of a part of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copies {
    /// Numbers of a point that are copied.
    width: usize,
    /// Numbers from point to point.
    source_step: usize,
    target_step: usize,
    copies: Vec<Copy>,
}

impl Copies {
    pub fn new(width: usize, source_step: usize, target_step: usize) -> Copies {
        Copies {
            width,
            source_step,
            target_step,
            copies: Vec::new(),
        }
    }

    pub fn push(&mut self, mut copy: Copy) {
        if self.is_dense() {
            copy.n *= self.width;
        }
        self.copies.push(copy);
    }

    /// True if nothing lies between points on either side.
    fn is_dense(&self) -> bool {
        self.width == self.source_step && self.width == self.target_step
    }

    /// Return the range that all numbers of the part go to, if they stay together.
    pub fn straight(&self) -> Option<Range<usize>> {
        match self.copies[..] {
            [copy] if self.is_dense() => Some(copy.target..copy.target + copy.n),
            _ => None,
        }
    }

    /// Decode a part of a row into a frame.
    pub fn scatter<T: Value>(&self, number: Number, units: Units, bytes: &[u8], frame: &mut [T]) {
        with_decoder!(number, units, T, scatter(self, bytes, frame));
    }

    /// Put one number in all places.
    pub fn fill<T: Value>(&self, value: T, frame: &mut [T]) {
        for copy in &self.copies {
            if self.is_dense() {
                frame[copy.target..copy.target + copy.n].fill(value);
            } else {
                let points = frame[copy.target..].chunks_mut(self.target_step);
                points
                    .take(copy.n)
                    .for_each(|point| point[..self.width].fill(value));
            }
        }
    }
}

fn scatter<const WIDTH: usize, T: Value>(
    copies: &Copies,
    bytes: &[u8],
    frame: &mut [T],
    value: impl Fn([u8; WIDTH]) -> T,
) {
    let (numbers, _) = bytes.as_chunks::<WIDTH>();
    if copies.is_dense() {
        for &Copy { source, target, n } in &copies.copies {
            let numbers = &numbers[source..source + n];
            for (out, &number) in frame[target..target + n].iter_mut().zip(numbers) {
                *out = value(number);
            }
        }
        return;
    }
    for &Copy { source, target, n } in &copies.copies {
        let (source, target) = (&numbers[source..], &mut frame[target..]);
        if copies.width == 1 && copies.source_step == 1 {
            // One component alone, as automatic chunks have it: the loop below took 3 times as long.
            let targets = target.iter_mut().step_by(copies.target_step);
            for (out, &number) in targets.zip(&source[..n]) {
                *out = value(number);
            }
            continue;
        }
        let targets = target.chunks_mut(copies.target_step);
        for (source, target) in source.chunks(copies.source_step).zip(targets).take(n) {
            for (out, &number) in target.iter_mut().zip(&source[..copies.width]) {
                *out = value(number);
            }
        }
    }
}

/// One number.
pub fn decode_one<T: Value>(number: Number, units: Units, bytes: &[u8]) -> T {
    let mut value = [T::default()];
    let mut copies = Copies::new(1, 1, 1);
    copies.push(Copy {
        source: 0,
        target: 0,
        n: 1,
    });
    copies.scatter(number, units, bytes, &mut value);
    value[0]
}

/// Make values, in place, of numbers that were read as they are stored ([`Value::as_stored`]).
pub fn decode_in_place(big_endian: bool, units: Units, values: &mut [f32]) {
    if big_endian != cfg!(target_endian = "big") {
        for value in values.iter_mut() {
            *value = f32::from_bits(value.to_bits().swap_bytes());
        }
    }
    if units != Units::NONE {
        for value in values {
            *value = f32::of_single(*value, units);
        }
    }
}
