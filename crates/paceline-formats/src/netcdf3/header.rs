//! Header of a NetCDF classic file:
//!
//! ```text
//! header      "CDF", version, number of records, dimensions, attributes, variables
//! a list      tag (0 for an empty one), number of entries, entries
//! dimension   name, length (0: that of the records)
//! attribute   name, type, number of values, values
//! variable    name, number of dimensions, their numbers, attributes, type, bytes, offset
//! name        number of bytes, bytes
//! ```
//!
//! All numbers are big-endian. Names and values are padded to a multiple of 4 bytes. Offsets have
//! 32 bits in version 1, and 64 bits in version 2. In version 5, counts have 64 bits, too.

use crate::error::Fault;
use crate::xdr::padding;

/// Tags of lists.
pub(super) const DIMENSIONS: u32 = 10;
pub(super) const VARIABLES: u32 = 11;
pub(super) const ATTRIBUTES: u32 = 12;

/// Types of values, by their numbers in files.
pub(super) const CHAR: u32 = 2;
pub(super) const FLOAT: u32 = 5;
pub(super) const DOUBLE: u32 = 6;

/// Content of the header of a NetCDF classic file.
#[derive(Debug)]
pub struct Header<'a> {
    /// Version of the format: 1, 2 or 5.
    pub version: u8,
    /// Size of the header, bytes.
    pub size: u64,
    /// Number of records; `None` if the header does not state it.
    pub n_records: Option<u64>,
    /// Dimensions, in the order of the header.
    pub dimensions: Vec<Dimension<'a>>,
    /// Attributes of the file.
    pub attributes: Vec<Attribute<'a>>,
    /// Variables, in the order of the header.
    pub variables: Vec<Variable<'a>>,
    /// Size of a record, bytes. A record contains one entry of each variable in records.
    pub record_size: u64,
}

/// A dimension of the file.
#[derive(Debug)]
pub struct Dimension<'a> {
    /// Name of the dimension.
    pub name: &'a [u8],
    /// Length; 0 for the dimension of records.
    pub len: u64,
}

/// An attribute of the file or of a variable.
#[derive(Debug)]
pub struct Attribute<'a> {
    /// Name of the attribute.
    pub name: &'a [u8],
    /// Type of the values, by its number in files.
    pub kind: u32,
    /// Values in the file: big-endian, without padding.
    pub values: &'a [u8],
}

/// A variable of the file.
#[derive(Debug)]
pub struct Variable<'a> {
    /// Name of the variable.
    pub name: &'a [u8],
    /// Indices of its dimensions in the list of the header.
    pub dimensions: Vec<usize>,
    /// Attributes of the variable.
    pub attributes: Vec<Attribute<'a>>,
    /// Type of the values, by its number in files.
    pub kind: u32,
    /// True if each record contains an entry of the variable.
    pub in_records: bool,
    /// Size of an entry, or of the whole variable if it is not in records, bytes.
    pub size: u64,
    /// Offset of the variable, or of its entry in the first record, bytes.
    pub begin: u64,
}

impl<'a> Header<'a> {
    /// Parse the header of a file of `file_size` bytes. `head` contains its first bytes.
    ///
    /// # Errors
    /// [`Fault::Short`] if more bytes of the file are needed. [`Fault::Bad`] if this is not a
    /// header.
    pub fn parse(head: &'a [u8], file_size: u64) -> Result<Self, Fault> {
        let mut cursor = Cursor::new(head, file_size);
        let version = cursor.version()?;
        cursor.wide_counts = version == 5;
        cursor.wide_offsets = version != 1;
        let n_records = cursor.n_records()?;
        let dimensions = cursor.list(DIMENSIONS, Cursor::dimension)?;
        let attributes = cursor.list(ATTRIBUTES, Cursor::attribute)?;
        let variables = cursor.list(VARIABLES, |cursor| cursor.variable(&dimensions))?;
        let record_size = record_size(&variables).ok_or_else(|| too_large(0))?;
        Ok(Header {
            version,
            size: cursor.at as u64,
            n_records,
            dimensions,
            attributes,
            variables,
            record_size,
        })
    }

    /// Return the size of a file with this header, without final padding, bytes; `None` if the
    /// header does not state the number of records.
    pub fn file_size(&self) -> Option<u64> {
        let mut variables = self.variables.iter();
        let has_records = variables.any(|variable| variable.in_records);
        let n_records = if has_records { self.n_records? } else { 0 };
        let ends = self.variables.iter().map(|variable| {
            let len = match variable.in_records {
                true if n_records == 0 => return Some(0),
                true => self
                    .record_size
                    .checked_mul(n_records - 1)?
                    .checked_add(variable.size)?,
                false => variable.size,
            };
            variable.begin.checked_add(len)
        });
        let ends: Option<Vec<u64>> = ends.collect();
        Some(ends?.into_iter().fold(self.size, u64::max))
    }

    /// Return the length of the dimension of this name; 0 for the dimension of records.
    pub fn dimension(&self, name: &str) -> Option<u64> {
        let named = |dimension: &&Dimension<'_>| dimension.name == name.as_bytes();
        self.dimensions
            .iter()
            .find(named)
            .map(|dimension| dimension.len)
    }

    /// Return the variable of this name.
    pub fn variable(&self, name: &str) -> Option<&Variable<'a>> {
        let named = |variable: &&Variable<'_>| variable.name == name.as_bytes();
        self.variables.iter().find(named)
    }
}

/// Return the attribute of this name.
pub(super) fn attribute<'h, 'a>(
    attributes: &'h [Attribute<'a>],
    name: &str,
) -> Option<&'h Attribute<'a>> {
    let named = |attribute: &&Attribute<'_>| attribute.name == name.as_bytes();
    attributes.iter().find(named)
}

/// Compute the size of a record. Entries are padded to a multiple of 4 bytes, unless there is only
/// one variable.
fn record_size(variables: &[Variable<'_>]) -> Option<u64> {
    let mut sizes = variables
        .iter()
        .filter(|variable| variable.in_records)
        .map(|variable| variable.size);
    let first = sizes.next().unwrap_or(0);
    let padded = |size: u64| size.checked_add(padding(size));
    match sizes.next() {
        None => Some(first),
        Some(second) => sizes
            .try_fold(padded(first)?.checked_add(padded(second)?)?, |sum, size| {
                sum.checked_add(padded(size)?)
            }),
    }
}

fn too_large(at: usize) -> Fault {
    Fault::bad(at, "variables of fewer than 2^64 bytes", "larger ones")
}

/// Return the size of a value, bytes. `kind` is the number of its type in files; `None` if there is
/// no such type.
pub fn width(kind: u32) -> Option<u64> {
    match kind {
        1 | 2 | 7 => Some(1),
        3 | 8 => Some(2),
        4 | 5 | 9 => Some(4),
        6 | 10 | 11 => Some(8),
        _ => None,
    }
}

impl<'a> Cursor<'a> {
    fn version(&mut self) -> Result<u8, Fault> {
        match self.number()? {
            [b'C', b'D', b'F', version @ (1 | 2 | 5)] => Ok(version),
            found => Err(Fault::bad(
                0,
                "\"CDF\" and version 1, 2 or 5",
                format!("\"{}\"", found.escape_ascii()),
            )),
        }
    }

    fn n_records(&mut self) -> Result<Option<u64>, Fault> {
        let open = if self.wide_counts {
            u64::MAX
        } else {
            u64::from(u32::MAX)
        };
        Ok(Some(self.count()?).filter(|&n| n != open))
    }

    fn dimension(&mut self) -> Result<Dimension<'a>, Fault> {
        Ok(Dimension {
            name: self.name()?,
            len: self.count()?,
        })
    }

    /// Read a type, and return it with the size of its values.
    fn kind(&mut self) -> Result<(u32, u64), Fault> {
        let at = self.at;
        let kind = self.word()?;
        match width(kind) {
            Some(width) => Ok((kind, width)),
            None => Err(Fault::bad(at, "a type from 1 to 11", kind)),
        }
    }

    fn attribute(&mut self) -> Result<Attribute<'a>, Fault> {
        let name = self.name()?;
        let (kind, width) = self.kind()?;
        let n = self.count()?;
        let values = self.padded(n.saturating_mul(width))?;
        Ok(Attribute { name, kind, values })
    }

    fn variable(&mut self, known: &[Dimension<'_>]) -> Result<Variable<'a>, Fault> {
        let start = self.at;
        let name = self.name()?;
        let n_dimensions = self.count()?;
        let dimensions = (0..n_dimensions)
            .map(|_| self.dimension_number(known.len()))
            .collect::<Result<Vec<_>, _>>()?;
        let attributes = self.list(ATTRIBUTES, Cursor::attribute)?;
        let (kind, width) = self.kind()?;
        // The stated size is ignored, because it is wrong for large variables and in files of old
        // writers.
        self.count()?;
        let begin = self.offset()?;
        let mut lens = dimensions.iter().map(|&number| known[number].len);
        let in_records = lens.clone().next() == Some(0);
        if in_records {
            lens.next();
        }
        let size = lens.try_fold(width, u64::checked_mul);
        Ok(Variable {
            name,
            dimensions,
            attributes,
            kind,
            in_records,
            size: size.ok_or_else(|| too_large(start))?,
            begin,
        })
    }

    fn dimension_number(&mut self, n_known: usize) -> Result<usize, Fault> {
        let at = self.at;
        let number = self.count()?;
        match usize::try_from(number) {
            Ok(number) if number < n_known => Ok(number),
            _ => {
                let expected = format!("one of {n_known} dimensions, counted from 0");
                Err(Fault::bad(at, expected, number))
            }
        }
    }
}

// Reading of counts, names and lists from a header.

/// Maximum size of a header, bytes. Headers of Amber have about 2,000 bytes.
const MAX_LEN: u64 = 1 << 20;

/// Reader of the parts of a header, in order.
struct Cursor<'a> {
    head: &'a [u8],
    file_size: u64,
    /// Offset of the next part.
    pub at: usize,
    pub wide_counts: bool,
    pub wide_offsets: bool,
}

impl<'a> Cursor<'a> {
    pub fn new(head: &'a [u8], file_size: u64) -> Self {
        Cursor {
            head,
            file_size,
            at: 0,
            wide_counts: false,
            wide_offsets: false,
        }
    }

    /// Read the next `len` bytes.
    ///
    /// # Errors
    /// [`Fault::Short`] if the file contains these bytes, but the slice does not. [`Fault::Bad`] if
    /// the file ends before them, or if the header is longer than [`MAX_LEN`].
    fn bytes(&mut self, len: u64) -> Result<&'a [u8], Fault> {
        let end = (self.at as u64).saturating_add(len);
        if end > self.file_size {
            let found = format!("{} bytes to the end of the file", self.file_size);
            return Err(Fault::bad(
                self.at,
                format!("a header of at least {end} bytes"),
                found,
            ));
        }
        if end > MAX_LEN {
            let expected = format!("a header of at most {MAX_LEN} bytes");
            return Err(Fault::bad(
                self.at,
                expected,
                format!("one of at least {end}"),
            ));
        }
        let end = end as usize;
        let Some(bytes) = self.head.get(self.at..end) else {
            return Err(Fault::Short { needed: end });
        };
        self.at = end;
        Ok(bytes)
    }

    pub fn number<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let mut number = [0; N];
        number.copy_from_slice(self.bytes(N as u64)?);
        Ok(number)
    }

    pub fn word(&mut self) -> Result<u32, Fault> {
        self.number().map(u32::from_be_bytes)
    }

    fn wide_or_word(&mut self, wide: bool) -> Result<u64, Fault> {
        if wide {
            self.number().map(u64::from_be_bytes)
        } else {
            self.word().map(u64::from)
        }
    }

    pub fn count(&mut self) -> Result<u64, Fault> {
        self.wide_or_word(self.wide_counts)
    }

    pub fn offset(&mut self) -> Result<u64, Fault> {
        self.wide_or_word(self.wide_offsets)
    }

    /// Read a list of entries. The number of entries is limited, because each needs some bytes.
    pub fn list<T>(
        &mut self,
        tag: u32,
        mut entry: impl FnMut(&mut Self) -> Result<T, Fault>,
    ) -> Result<Vec<T>, Fault> {
        let at = self.at;
        let (found, n) = (self.word()?, self.count()?);
        if found != tag && (found, n) != (0, 0) {
            return Err(Fault::bad(at, format!("a list with tag {tag}"), found));
        }
        (0..n).map(|_| entry(self)).collect()
    }

    /// Read bytes with padding to a multiple of four.
    pub fn padded(&mut self, len: u64) -> Result<&'a [u8], Fault> {
        let bytes = self.bytes(len)?;
        self.bytes(padding(len))?;
        Ok(bytes)
    }

    pub fn name(&mut self) -> Result<&'a [u8], Fault> {
        let len = self.count()?;
        self.padded(len)
    }
}

// Encoding of the numbers of a variable, and their conversion as in MDAnalysis.

/// Encoding of a variable's numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Number {
    /// True for f64, false for f32.
    pub double: bool,
    pub scale: Scale,
}

/// Attribute `scale_factor`, by which numbers are multiplied.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Scale {
    None,
    Single(f32),
    Double(f64),
}

impl Number {
    /// Size of a number, bytes.
    pub fn width(self) -> u64 {
        if self.double { 8 } else { 4 }
    }

    /// Decode the number at the start of `bytes`. An f32 is scaled in f32 if the factor is an f32,
    /// else in f64. This is the rule of NumPy, and yields the same bits as MDAnalysis.
    ///
    /// # Panics
    /// If there are fewer bytes than [`Number::width`].
    pub fn value(self, bytes: &[u8]) -> f64 {
        if self.double {
            let value = f64::from_be_bytes(first(bytes));
            match self.scale {
                Scale::None => value,
                Scale::Single(factor) => value * f64::from(factor),
                Scale::Double(factor) => value * factor,
            }
        } else {
            let value = f32::from_be_bytes(first(bytes));
            match self.scale {
                Scale::None => f64::from(value),
                Scale::Single(factor) => f64::from(value * factor),
                Scale::Double(factor) => f64::from(value) * factor,
            }
        }
    }
}

impl Scale {
    /// Create a factor. A factor that MDAnalysis reads as 1 has no effect.
    pub fn single(factor: f32) -> Scale {
        match is_one(f64::from(factor)) {
            true => Scale::None,
            false => Scale::Single(factor),
        }
    }

    pub fn double(factor: f64) -> Scale {
        match is_one(factor) {
            true => Scale::None,
            false => Scale::Double(factor),
        }
    }

    /// Return the sign that a positive number has after scaling.
    pub fn sign(self) -> f32 {
        match self {
            Scale::None => 1.0,
            Scale::Single(factor) => factor.signum(),
            Scale::Double(factor) => factor.signum() as f32,
        }
    }

    pub fn is_sound(self) -> bool {
        match self {
            Scale::None => true,
            Scale::Single(factor) => factor.is_finite() && Scale::single(factor) == self,
            Scale::Double(factor) => factor.is_finite() && Scale::double(factor) == self,
        }
    }
}

/// Equivalent of Python's `math.isclose(factor, 1)`.
fn is_one(factor: f64) -> bool {
    (factor - 1.0).abs() <= 1e-9 * factor.abs().max(1.0)
}

fn first<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[..N]);
    out
}
