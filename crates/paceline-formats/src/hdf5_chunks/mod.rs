//! Numbers in HDF5 datasets: layout of chunks, encoding, and the destination of each number.
//!
//! The HDF5 library finds datasets and chunks. This module decodes their bytes, and opens no files.

mod decompress;
pub mod encode;
mod invert_filters;
mod lzf;

use std::ops::Range;

use crate::atom_set::Atoms;
use crate::source::GAP;

pub(crate) use decompress::Decompressors;
pub use invert_filters::Filter;
pub(crate) use invert_filters::{Pipeline, Unpacked, max_expansion};

// Datasets, and the layout of their bytes.

/// Description of an HDF5 dataset of numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct Dataset {
    /// Path in the file.
    pub name: String,
    /// Type of the numbers.
    pub number: Number,
    /// Shape: (rows, atoms, components), (rows, components × atoms) or (rows, atoms).
    pub shape: Vec<u64>,
    /// Shape of a chunk, with the same number of axes; `None` for a contiguous dataset.
    pub chunk: Option<Vec<u64>>,
    /// Filters of the bytes of a chunk, in the order of encoding.
    pub filters: Vec<Filter>,
    /// Offset of a contiguous dataset in the file; 0 if it was never written.
    pub offset: u64,
    /// Fill value for numbers that were never written, encoded as in the file.
    pub fill: Vec<u8>,
}

impl Dataset {
    /// # Errors
    /// A message about a contradiction in the description.
    pub fn check(&self) -> Result<(), String> {
        let chunk = self.chunk.as_ref().unwrap_or(&self.shape);
        if !matches!(self.shape.len(), 2 | 3) || chunk.len() != self.shape.len() {
            return Err(format!(
                "{}: expected 2 or 3 axes, and the same number for chunks, found shape {} in \
                 chunks of {}",
                self.name,
                tuple(&self.shape),
                tuple(chunk)
            ));
        }
        if self.chunk.is_some() && chunk.contains(&0) {
            return Err(format!(
                "{}: expected chunks of at least one number, found {}",
                self.name,
                tuple(chunk)
            ));
        }
        if [&self.shape, chunk]
            .iter()
            .any(|axes| self.bytes_of(axes).is_none())
        {
            return Err(format!(
                "{}: expected a size below 2^63 bytes, found shape {} in chunks \
                 of {}",
                self.name,
                tuple(&self.shape),
                tuple(chunk)
            ));
        }
        if self.offset > i64::MAX as u64 {
            return Err(format!(
                "{}: expected an offset within the file, found byte {}",
                self.name, self.offset
            ));
        }
        if !self.fill.is_empty() && self.fill.len() != self.number.width {
            return Err(format!(
                "{}: expected a fill value of {} bytes, found {}",
                self.name,
                self.number.width,
                self.fill.len()
            ));
        }
        Ok(())
    }

    /// Return the number of bytes for this shape; `None` if the number exceeds 63 bits.
    fn bytes_of(&self, axes: &[u64]) -> Option<u64> {
        // An axis of length 0 counts as 1: even without rows, the number of atoms must be
        // plausible.
        let mut axes = axes.iter().map(|&axis| axis.max(1));
        let numbers = axes.try_fold(1_u64, |n, axis| n.checked_mul(axis))?;
        let bytes = numbers.checked_mul(self.number.width as u64)?;
        (bytes <= i64::MAX as u64).then_some(bytes)
    }
}

/// Format a shape like the tools of HDF5.
pub(crate) fn tuple(axes: &[u64]) -> String {
    let axes: Vec<String> = axes.iter().map(u64::to_string).collect();
    format!("({})", axes.join(", "))
}

// Encoding of the numbers of a dataset, and their conversion.

/// Encoding of the numbers of a dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Number {
    /// Floats or integers.
    pub kind: Kind,
    /// Size in bytes: 4 or 8, for integers also 1 or 2.
    pub width: usize,
    /// True for big-endian byte order.
    pub big_endian: bool,
}

/// Kind of the numbers of a dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// IEEE 754 floating point.
    Float,
    /// Integers in two's complement.
    Signed,
    /// Unsigned integers.
    Unsigned,
}

impl Number {
    /// Parse NumPy's name of a type, such as "<f4", ">i8" or "|u1"; `None` if the type is
    /// unsupported.
    pub fn parse(name: &str) -> Option<Number> {
        let (order, rest) = name.split_at_checked(1)?;
        let (kind, width) = rest.split_at_checked(1)?;
        let kind = match kind {
            "f" => Kind::Float,
            "i" => Kind::Signed,
            "u" => Kind::Unsigned,
            _ => return None,
        };
        let width = match (kind, width) {
            (Kind::Float, "4" | "8") | (_, "4" | "8") => width.parse().ok()?,
            (Kind::Signed | Kind::Unsigned, "1" | "2") => width.parse().ok()?,
            _ => return None,
        };
        let big_endian = match order {
            "<" => false,
            ">" => true,
            "|" if width == 1 => false,
            _ => return None,
        };
        Some(Number {
            kind,
            width,
            big_endian,
        })
    }

    /// True for f32, in any byte order.
    pub fn is_single(self) -> bool {
        self.kind == Kind::Float && self.width == 4
    }
}

/// Conversion of a stored number to paceline's units.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Units {
    /// Divisor of numbers that are stored as integers, applied in f64.
    pub divisor: f64,
    /// Scale factor in the file, applied next, in f64.
    pub scale: f64,
    /// Factor that is applied last, in f32, to get the same bits as MDAnalysis.
    pub factor: f32,
}

impl Units {
    /// Conversion that leaves numbers unchanged.
    pub const NONE: Units = Units {
        divisor: 1.0,
        scale: 1.0,
        factor: 1.0,
    };
}

/// Type to which stored numbers are converted: f32 in paceline's units, or unchanged integers.
pub(crate) trait Value: Copy + Default {
    /// Return `values` as memory into which stored numbers are read, to be converted in place;
    /// `None` if stored numbers have another type.
    fn as_stored(values: &mut [Self], number: Number) -> Option<&mut [f32]>;
    fn of_single(x: f32, units: Units) -> Self;
    fn of_double(x: f64, units: Units) -> Self;
    fn of_signed(x: i64, units: Units) -> Self;
    fn of_unsigned(x: u64, units: Units) -> Self;
}

impl Value for f32 {
    fn as_stored(values: &mut [f32], number: Number) -> Option<&mut [f32]> {
        number.is_single().then_some(values)
    }

    #[inline(always)]
    fn of_single(x: f32, units: Units) -> f32 {
        if units.divisor == 1.0 && units.scale == 1.0 {
            x * units.factor
        } else {
            f32::of_double(f64::from(x), units)
        }
    }

    #[inline(always)]
    fn of_double(x: f64, units: Units) -> f32 {
        (x / units.divisor * units.scale) as f32 * units.factor
    }

    #[inline(always)]
    fn of_signed(x: i64, units: Units) -> f32 {
        f32::of_double(x as f64, units)
    }

    #[inline(always)]
    fn of_unsigned(x: u64, units: Units) -> f32 {
        f32::of_double(x as f64, units)
    }
}

impl Value for i64 {
    fn as_stored(_: &mut [i64], _: Number) -> Option<&mut [f32]> {
        None
    }

    fn of_single(x: f32, _: Units) -> i64 {
        x as i64
    }

    fn of_double(x: f64, _: Units) -> i64 {
        x as i64
    }

    fn of_signed(x: i64, _: Units) -> i64 {
        x
    }

    fn of_unsigned(x: u64, _: Units) -> i64 {
        i64::try_from(x).unwrap_or(i64::MAX)
    }
}

/// Call `$go` with the size of a number and the function that decodes it.
macro_rules! with_decoder {
    ($number:expr, $units:expr, $value:ty, $go:ident ( $($argument:expr),* )) => {{
        use $crate::hdf5_chunks::Kind::{Float, Signed, Unsigned};
        let units = $units;
        macro_rules! decode {
            ($type:ty, $read:ident, $of:ident, $via:ty) => {
                $go::<{ size_of::<$type>() }, $value>(
                    $($argument,)*
                    |bytes| <$value>::$of(<$type>::$read(bytes) as $via, units),
                )
            };
        }
        let number = $number;
        match (number.kind, number.width, number.big_endian) {
            (Float, 4, false) => decode!(f32, from_le_bytes, of_single, f32),
            (Float, 4, true) => decode!(f32, from_be_bytes, of_single, f32),
            (Float, _, false) => decode!(f64, from_le_bytes, of_double, f64),
            (Float, _, true) => decode!(f64, from_be_bytes, of_double, f64),
            (Signed, 1, _) => decode!(i8, from_le_bytes, of_signed, i64),
            (Signed, 2, false) => decode!(i16, from_le_bytes, of_signed, i64),
            (Signed, 2, true) => decode!(i16, from_be_bytes, of_signed, i64),
            (Signed, 4, false) => decode!(i32, from_le_bytes, of_signed, i64),
            (Signed, 4, true) => decode!(i32, from_be_bytes, of_signed, i64),
            (Signed, _, false) => decode!(i64, from_le_bytes, of_signed, i64),
            (Signed, _, true) => decode!(i64, from_be_bytes, of_signed, i64),
            (Unsigned, 1, _) => decode!(u8, from_le_bytes, of_unsigned, u64),
            (Unsigned, 2, false) => decode!(u16, from_le_bytes, of_unsigned, u64),
            (Unsigned, 2, true) => decode!(u16, from_be_bytes, of_unsigned, u64),
            (Unsigned, 4, false) => decode!(u32, from_le_bytes, of_unsigned, u64),
            (Unsigned, 4, true) => decode!(u32, from_be_bytes, of_unsigned, u64),
            (Unsigned, _, false) => decode!(u64, from_le_bytes, of_unsigned, u64),
            (Unsigned, _, true) => decode!(u64, from_be_bytes, of_unsigned, u64),
        }
    }};
}

// Mapping of the wanted numbers of a row to positions in chunks and in the frame.
//
// A row contains all numbers of one frame, in the order (point, component). A point is an atom, or
// a single number if the dataset has no axis of components. Chunks divide a row into columns, in C
// order. A contiguous dataset counts as one chunk. Chunks that extend beyond the edge of the
// dataset are stored in full size.

/// Division of the rows of a dataset into chunks, and the wanted parts of rows.
#[derive(Debug)]
pub(crate) struct Grid {
    /// Number of rows of the dataset.
    pub n_rows: u64,
    /// Number of rows of a chunk.
    pub chunk_rows: u64,
    /// Size of a row of a chunk, bytes.
    pub row_bytes: usize,
    /// Size of a chunk, bytes.
    pub chunk_bytes: usize,
    /// Number of columns, wanted or not: the chunks into which one row is divided.
    pub n_columns: usize,
    /// Columns with wanted numbers, in increasing order.
    pub columns: Vec<Column>,
    /// Number of chunks along each axis except that of the rows.
    axes: Vec<u64>,
}

/// Wanted parts of each row of the chunks in one column.
#[derive(Debug)]
pub(crate) struct Column {
    /// Index of the column among all columns.
    pub index: usize,
    /// Parts in the order of their bytes.
    pub parts: Vec<Part>,
}

/// Wanted numbers of a row that are so close together that they are read with one call.
#[derive(Debug)]
pub(crate) struct Part {
    /// Offset in the chunk's row, bytes.
    pub start: usize,
    /// Size of the part, bytes.
    pub len: usize,
    pub copies: Copies,
}

impl Column {
    /// Return the end of the wanted bytes of a row.
    pub fn end(&self) -> usize {
        self.parts.last().map_or(0, |part| part.start + part.len)
    }
}

impl Grid {
    /// Create the grid of a valid dataset (see [`Dataset::check`]). The length of its second axis
    /// is the number of atoms, or `per_atom` times this number.
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

/// Division of a row into columns by chunks.
struct Cut {
    /// Size of a number, bytes.
    width: usize,
    components: usize,
    chunk_points: usize,
    chunk_components: usize,
}

impl Cut {
    /// Return the columns with wanted points. For each group of adjacent wanted points, `runs`
    /// contains its first point and its number of points.
    fn columns(&self, runs: impl Iterator<Item = (usize, usize)>) -> Vec<Column> {
        let across = self.components.div_ceil(self.chunk_components);
        let mut columns = Vec::new();
        // Points of the current column: first point, index among the wanted points, and number of
        // points.
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

    /// Merge wanted ranges that are close together into parts. Each part needs one read call.
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
                part.copies.push(Transfer {
                    source: source - part.start / self.width,
                    target: target * self.components + component,
                    n,
                });
            }
        }
        parts
    }
}

// Copying of numbers from the row of a chunk to a frame.

/// Copy of points that are adjacent both in the row of the chunk and in the frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Transfer {
    /// Index of the first number in the part of the row.
    pub source: usize,
    /// Index of the first number in the frame.
    pub target: usize,
    /// Number of points, or of values if [`Copies::is_dense`].
    pub n: usize,
}

/// All ranges of numbers to copy from one part of a row of a chunk to a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Copies {
    /// Number of values that are copied per point.
    width: usize,
    /// Distance between points in the row of the chunk, and in the frame, in numbers.
    source_step: usize,
    target_step: usize,
    copies: Vec<Transfer>,
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

    pub fn push(&mut self, mut copy: Transfer) {
        if self.is_dense() {
            copy.n *= self.width;
        }
        self.copies.push(copy);
    }

    /// Return true if no values lie between the copied values of adjacent points, neither in the
    /// chunk nor in the frame.
    fn is_dense(&self) -> bool {
        self.width == self.source_step && self.width == self.target_step
    }

    /// Return the destination range of all numbers of the part, if the range is contiguous.
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

    /// Write `value` to all destinations.
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
        for &Transfer { source, target, n } in &copies.copies {
            let numbers = &numbers[source..source + n];
            for (out, &number) in frame[target..target + n].iter_mut().zip(numbers) {
                *out = value(number);
            }
        }
        return;
    }
    for &Transfer { source, target, n } in &copies.copies {
        let (source, target) = (&numbers[source..], &mut frame[target..]);
        if copies.width == 1 && copies.source_step == 1 {
            // Fast path for chunks with a single component, which occur if the shape of chunks was
            // chosen automatically. The loop below would take 3 times as long.
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

/// Decode the number in `bytes`.
pub(crate) fn decode_one<T: Value>(number: Number, units: Units, bytes: &[u8]) -> T {
    let mut value = [T::default()];
    let mut copies = Copies::new(1, 1, 1);
    copies.push(Transfer {
        source: 0,
        target: 0,
        n: 1,
    });
    copies.scatter(number, units, bytes, &mut value);
    value[0]
}

/// Convert stored numbers to values in place (see [`Value::as_stored`]).
pub(crate) fn decode_in_place(big_endian: bool, units: Units, values: &mut [f32]) {
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
