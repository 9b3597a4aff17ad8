//! Fortran records: each stands between two equal markers of 4 or 8 bytes that hold its length.

use crate::error::Fault;

/// `N` bytes from `at` on; the caller knows that they are there.
pub(super) fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

fn marker_value(marker: &[u8], big_endian: bool) -> u64 {
    let push = |value: u64, &byte: &u8| value << 8 | u64::from(byte);
    if big_endian {
        marker.iter().fold(0, push)
    } else {
        marker.iter().rev().fold(0, push)
    }
}

/// Compare the marker that stands at `at` with the length that it must hold.
pub(super) fn check_marker(
    at: usize,
    marker: &[u8],
    big_endian: bool,
    len: u64,
) -> Result<(), Fault> {
    let value = marker_value(marker, big_endian);
    if value == len {
        return Ok(());
    }
    let found = format!("{value} (bytes {marker:02x?})");
    Err(Fault::bad(at, format!("a record marker of {len}"), found))
}

/// The records at the front of a file, one after another.
pub(super) struct Records<'a> {
    head: &'a [u8],
    file_size: u64,
    /// Offset of the next record.
    pub at: usize,
    /// Bytes of a marker.
    pub marker: u8,
    pub big_endian: bool,
}

impl<'a> Records<'a> {
    pub fn new(head: &'a [u8], file_size: u64) -> Self {
        Records {
            head,
            file_size,
            at: 0,
            marker: 4,
            big_endian: false,
        }
    }

    /// # Errors
    /// [`Fault::Short`] where the file holds these bytes, but the slice does not yet.
    pub fn bytes(&self, at: usize, len: u64) -> Result<&'a [u8], Fault> {
        let end = at as u64 + len;
        if end > self.file_size {
            return Err(Fault::bad(
                at,
                format!("a header of at least {end} bytes"),
                format!("a file of {} bytes", self.file_size),
            ));
        }
        let needed = usize::try_from(end).unwrap_or(usize::MAX);
        self.head.get(at..needed).ok_or(Fault::Short { needed })
    }

    /// The length that the next record's marker holds.
    pub fn next_len(&self) -> Result<u64, Fault> {
        let marker = self.bytes(self.at, u64::from(self.marker))?;
        Ok(marker_value(marker, self.big_endian))
    }

    /// The next record, which must have `len` bytes.
    pub fn next(&mut self, len: u64) -> Result<&'a [u8], Fault> {
        self.next_marked(len, len)
    }

    /// The next record, which has `len` bytes between markers that hold `marked`.
    pub fn next_marked(&mut self, marked: u64, len: u64) -> Result<&'a [u8], Fault> {
        let width = usize::from(self.marker);
        let leading = self.bytes(self.at, width as u64)?;
        check_marker(self.at, leading, self.big_endian, marked)?;
        let start = self.at + width;
        let record = self.bytes(start, len + width as u64)?;
        let (record, trailing) = record.split_at(record.len() - width);
        let end = start + record.len();
        check_marker(end, trailing, self.big_endian, marked)?;
        self.at = end + width;
        Ok(record)
    }

    /// The integer at `at` in a record.
    pub fn integer(&self, record: &[u8], at: usize) -> i32 {
        let bytes = bytes_at(record, at);
        if self.big_endian {
            i32::from_be_bytes(bytes)
        } else {
            i32::from_le_bytes(bytes)
        }
    }
}
