//! Header of a DCD file:
//!
//! ```text
//! 84 bytes   "CORD", then 20 integers:
//!              0 frames   1 first step   2 steps between frames   8 fixed atoms
//!              9 step length: f32, or f64 in 9 and 10 (X-PLOR)
//!             10 has a cell   11 has a 4th dimension   19 CHARMM's version, 0 for X-PLOR
//! 4 + 80 n   title: number n of its lines, and the lines
//! 4 bytes    number of atoms
//! 4 × free   numbers of the free atoms, from 1: only where some atoms are fixed
//! ```

use super::layout_and_cell::{Layout, Writer};
use crate::error::{Fault, Result};

/// Length of the first record.
pub(super) const FIRST_LEN: u64 = 84;
/// Maximum accepted length of a title, bytes. It is larger than CHARMM's limit of 32 lines.
pub(super) const MAX_TITLE: u64 = 1 << 20;

impl Layout {
    /// Parse the header of a file of `file_size` bytes.
    ///
    /// # Errors
    /// [`Fault::Short`] if the slice contains only a part of the header, and the file contains more
    /// of it. [`Fault::Bad`] if this is not a DCD file of coordinates, its header is inconsistent,
    /// or too few bytes for one frame follow the header.
    pub fn parse(head: &[u8], file_size: u64) -> Result<Layout, Fault> {
        let mut records = open(head, file_size)?;
        let first = records.next(FIRST_LEN)?;
        let title = title(&mut records)?;
        let n_atoms = n_atoms(&mut records)?;
        let integer = |index: usize| records.integer(first, 4 + 4 * index);
        let version = integer(19);
        let charmm = version != 0;
        let n_fixed = integer(8);
        let (istart, nsavc) = (integer(1), integer(2).max(1));
        let delta = Some(delta(&records, first, charmm)).filter(|delta| delta.is_finite());
        let mut layout = Layout {
            big_endian: records.big_endian,
            marker: records.marker,
            n_atoms,
            free: None,
            has_cell: charmm && integer(10) != 0,
            version,
            four_dims: charmm && integer(11) == 1,
            title_len: title.len() as u32,
            istart,
            nsavc,
            delta,
            writer: Writer::of(title, istart, nsavc, delta),
            n_frames_claimed: integer(0),
        };
        if n_fixed != 0 {
            layout.free = Some(free_atoms(&mut records, n_atoms, n_fixed)?);
        }
        check_first_frame(&layout, file_size)?;
        Ok(layout)
    }
}

/// Determine the byte order and the size of the markers.
fn open(head: &[u8], file_size: u64) -> Result<Records<'_>, Fault> {
    let mut records = Records::new(head, file_size);
    let start = records.bytes(0, 12)?;
    if &start[8..12] == b"CORD" {
        records.marker = 8;
    } else if &start[4..8] != b"CORD" {
        let found = format!("\"{}\"", start[4..12].escape_ascii());
        return Err(Fault::bad(
            4,
            "\"CORD\" of a DCD file of coordinates",
            found,
        ));
    }
    // The first marker contains 84. In big-endian order, this is its last byte, and the first is 0.
    records.big_endian = start[0] == 0;
    Ok(records)
}

/// Read the record of the title.
fn title<'a>(records: &mut Records<'a>) -> Result<&'a [u8], Fault> {
    let at = records.at;
    let marked = records.next_len()?;
    if marked > MAX_TITLE {
        let expected = format!("a title of at most {MAX_TITLE} bytes");
        return Err(Fault::bad(at, expected, format!("{marked} bytes")));
    }
    let start = records.bytes(at + usize::from(records.marker), 4)?;
    let counted = 4 + 80 * i64::from(records.integer(start, 0));
    match records.next(marked) {
        // Old versions of MDAnalysis wrote three lines of title, with the length of two lines in
        // the markers.
        Err(Fault::Bad { .. }) if (4..=MAX_TITLE as i64).contains(&counted) => {
            records.next_marked(marked, counted as u64)
        }
        title => title,
    }
}

fn n_atoms(records: &mut Records<'_>) -> Result<u32, Fault> {
    let at = records.at + usize::from(records.marker);
    let record = records.next(4)?;
    let n_atoms = records.integer(record, 0);
    match u32::try_from(n_atoms) {
        Ok(n_atoms) if n_atoms > 0 => Ok(n_atoms),
        _ => Err(Fault::bad(at, "at least 1 atom", n_atoms)),
    }
}

/// Return the length of a simulation step, in the unit of the program that wrote the file.
fn delta(records: &Records<'_>, first: &[u8], charmm: bool) -> f64 {
    const AT: usize = 40;
    match (charmm, records.big_endian) {
        (true, true) => f64::from(f32::from_be_bytes(bytes_at(first, AT))),
        (true, false) => f64::from(f32::from_le_bytes(bytes_at(first, AT))),
        (false, true) => f64::from_be_bytes(bytes_at(first, AT)),
        (false, false) => f64::from_le_bytes(bytes_at(first, AT)),
    }
}

/// Read the indices of the free atoms, from 0. Memory is allocated only if the file contains the
/// whole record of these atoms.
fn free_atoms(records: &mut Records<'_>, n_atoms: u32, n_fixed: i32) -> Result<Vec<u32>, Fault> {
    let width = usize::from(records.marker);
    let n_free = match u32::try_from(n_fixed) {
        Ok(n_fixed) if n_fixed < n_atoms => n_atoms - n_fixed,
        _ => {
            let expected = format!("fewer fixed atoms than the {n_atoms} atoms");
            return Err(Fault::bad(width + 36, expected, n_fixed));
        }
    };
    let start = records.at + width;
    let record = records.next(4 * u64::from(n_free))?;
    let mut free: Vec<u32> = Vec::with_capacity(n_free as usize);
    for at in (0..record.len()).step_by(4) {
        let number = records.integer(record, at);
        let least = free.last().map_or(1, |&last| last + 2);
        match u32::try_from(number) {
            Ok(number) if (least..=n_atoms).contains(&number) => free.push(number - 1),
            _ => {
                let expected = format!("a free atom from {least} to {n_atoms}");
                return Err(Fault::bad(start + at, expected, number));
            }
        }
    }
    Ok(free)
}

/// Check that the file contains a complete first frame, or no frame: a header without frames is an
/// empty trajectory. An incomplete first frame means that the number of atoms is wrong, or that the
/// simulation was killed at its start. In both cases, no frame can be read.
fn check_first_frame(layout: &Layout, file_size: u64) -> Result<(), Fault> {
    let (start, size) = (layout.header_size(), layout.first_frame_size());
    let present = file_size.saturating_sub(start);
    if present == 0 || present >= size {
        return Ok(());
    }
    Err(Fault::bad(
        start as usize,
        format!("a first frame of {size} bytes for {} atoms", layout.n_atoms),
        format!("{present} bytes to the end of the file"),
    ))
}

// Fortran records: each record is enclosed by two equal markers of 4 or 8 bytes, which contain its
// length.

/// Return `N` bytes from `at` on. The caller must check that they exist.
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

/// Compare the marker at offset `at` with the expected length.
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

/// Iterator over the Fortran records at the front of a file.
pub(super) struct Records<'a> {
    head: &'a [u8],
    file_size: u64,
    /// Offset of the next record.
    pub at: usize,
    /// Size of a marker, bytes: 4 or 8.
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
    /// [`Fault::Short`] if the file contains these bytes, but the slice does not.
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

    /// Return the length in the marker of the next record.
    pub fn next_len(&self) -> Result<u64, Fault> {
        let marker = self.bytes(self.at, u64::from(self.marker))?;
        Ok(marker_value(marker, self.big_endian))
    }

    /// Return the next record, which must have `len` bytes.
    pub fn next(&mut self, len: u64) -> Result<&'a [u8], Fault> {
        self.next_marked(len, len)
    }

    /// Return the next record. It has `len` bytes, but its markers contain `marked`.
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

    /// Return the integer at offset `at` in a record.
    pub fn integer(&self, record: &[u8], at: usize) -> i32 {
        let bytes = bytes_at(record, at);
        if self.big_endian {
            i32::from_be_bytes(bytes)
        } else {
            i32::from_le_bytes(bytes)
        }
    }
}
