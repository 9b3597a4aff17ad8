//! Numbers in HDF5 datasets: how they lie in chunks, how those are coded, and where each number
//! goes.
//!
//! HDF5's own library finds datasets and chunks. What stands here begins where it has named the
//! bytes: it opens nothing.

mod decompress;
pub mod encode;
mod filters;
mod grid;

pub(crate) use decompress::Decompressors;
pub use filters::Filter;
pub(crate) use filters::{Pipeline, Unpacked, most_of};
pub(crate) use grid::{Column, Grid, Part, decode_in_place, decode_one};

// One dataset, and how its bytes are laid out.

/// One dataset of numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct Dataset {
    /// Its path in the file.
    pub name: String,
    /// Type of its numbers.
    pub number: Number,
    /// (rows, atoms, components), (rows, components × atoms) or (rows, atoms).
    pub shape: Vec<u64>,
    /// Shape of a chunk, as many axes; none for a contiguous dataset.
    pub chunk: Option<Vec<u64>>,
    /// Stages through which a chunk's bytes went, the first first.
    pub filters: Vec<Filter>,
    /// Offset of a contiguous dataset in the file; 0 where nothing of it was ever written.
    pub offset: u64,
    /// One number as the file holds it, in place of those that were never written.
    pub fill: Vec<u8>,
}

impl Dataset {
    /// # Errors
    /// Sentence that says what contradicts itself in the description.
    pub fn check(&self) -> Result<(), String> {
        let chunk = self.chunk.as_ref().unwrap_or(&self.shape);
        if !matches!(self.shape.len(), 2 | 3) || chunk.len() != self.shape.len() {
            return Err(format!(
                "{}: expected 2 or 3 axes, and as many of a chunk, found shape {} in chunks of {}",
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
                "{}: expected no more bytes than there are addresses, found shape {} in chunks \
                 of {}",
                self.name,
                tuple(&self.shape),
                tuple(chunk)
            ));
        }
        if self.offset > i64::MAX as u64 {
            return Err(format!(
                "{}: expected its first byte within a file, found it at byte {}",
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

    /// Bytes of so many numbers; nothing where they overflow.
    fn bytes_of(&self, axes: &[u64]) -> Option<u64> {
        // That there are no rows is no licence for an absurd number of atoms.
        let mut axes = axes.iter().map(|&axis| axis.max(1));
        let numbers = axes.try_fold(1_u64, |n, axis| n.checked_mul(axis))?;
        let bytes = numbers.checked_mul(self.number.width as u64)?;
        (bytes <= i64::MAX as u64).then_some(bytes)
    }
}

/// Numbers as HDF5's tools show a shape.
pub(crate) fn tuple(axes: &[u64]) -> String {
    let axes: Vec<String> = axes.iter().map(u64::to_string).collect();
    format!("({})", axes.join(", "))
}

// How a dataset codes its numbers, and what becomes of them.

/// Coding of a dataset's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Number {
    /// Float or integer.
    pub kind: Kind,
    /// Bytes: 4 or 8, of integers also 1 or 2.
    pub width: usize,
    /// True if the highest byte comes first.
    pub big_endian: bool,
}

/// Kind of a dataset's numbers.
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
    /// Parse NumPy's name of a type, "<f4", ">i8", "|u1" and the like; nothing for what we do not
    /// decode.
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

    /// True if memory holds f32 as the file does, but for the order of their bytes.
    pub fn is_single(self) -> bool {
        self.kind == Kind::Float && self.width == 4
    }
}

/// Conversion of a stored number to our units.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Units {
    /// Divides numbers, in f64: those that were stored as integers.
    pub divisor: f64,
    /// Then multiplies them, in f64: the file's own scale.
    pub scale: f64,
    /// Then multiplies them, in f32: so that MDAnalysis's bits come out.
    pub factor: f32,
}

impl Units {
    /// Numbers that are taken as they are.
    pub const NONE: Units = Units {
        divisor: 1.0,
        scale: 1.0,
        factor: 1.0,
    };
}

/// Type that stored numbers become: f32 in our units, or integers as they are.
pub(crate) trait Value: Copy + Default {
    /// Room for numbers as the file holds them, where they become values in place.
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

/// Call `$go` with the width of a number's bytes and what makes a value of them.
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

use with_decoder;
