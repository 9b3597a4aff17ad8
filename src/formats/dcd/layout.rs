//! The head of a DCD file: what it says about every frame behind it.
//!
//! Fortran records, each between two equal markers of 4 or 8 bytes that hold its length:
//!
//! ```text
//! 84 bytes       "CORD", then 20 integers (or their place):
//!                  0 frames   1 first step   2 steps a frame   8 fixed atoms
//!                  9 step length: f32, or f64 in 9 and 10 (X-PLOR)
//!                 10 has a cell   11 has a 4th dimension   19 CHARMM's version, 0 for X-PLOR
//! any length     title
//! 4 bytes        number of atoms
//! 4 × free       numbers of the free atoms, from 1: only where some atoms are fixed
//! ```

use crate::error::Fault;

const HEAD_LEN: usize = 84;
/// CHARMM allows 32 title lines of 80 characters; a longer record is not a title.
const MAX_TITLE: u64 = 1 << 20;
/// CHARMM's unit of time in ps, divided as MDAnalysis does so that the same bits come out.
const AKMA: f64 = 1.0 / (1.0 / 4.888821e-2);
pub(super) const CELL_LEN: u64 = 48;

/// How one DCD file is laid out: everything a worker needs to find and decode any frame.
#[derive(Debug, Clone, PartialEq)]
pub struct Layout {
    pub(super) big_endian: bool,
    /// Bytes of a record marker: 4 or 8.
    pub(super) marker: u8,
    n_atoms: u32,
    /// The atoms that later frames hold, from 0 and ascending; `None` where no atom is fixed.
    free: Option<Vec<u32>>,
    pub(super) has_cell: bool,
    pub(super) four_dims: bool,
    title_len: u32,
    istart: i32,
    /// Steps from one frame to the next: at least 1, also where the header says otherwise.
    nsavc: i32,
    /// Length of a step, AKMA; `None` where the header holds no finite number.
    delta: Option<f64>,
    n_frames_claimed: i32,
}

impl Layout {
    /// Parse the head of a file of `file_size` bytes.
    ///
    /// # Errors
    /// [`Fault::Short`] asks for a longer slice, never for more than the file has.
    /// [`Fault::Bad`] where this is no DCD file of coordinates, where its head contradicts itself,
    /// or where the bytes behind the head are too few for one frame.
    pub fn parse(head: &[u8], file_size: u64) -> Result<Layout, Fault> {
        let (mut records, first) = Records::open(head, file_size)?;
        let title_len = records.title()?;
        let at = records.at + usize::from(records.marker);
        let record = records.expect(4)?;
        let n_atoms = records.integer(record, 0);
        let n_atoms = match u32::try_from(n_atoms) {
            Ok(n_atoms) if n_atoms > 0 => n_atoms,
            _ => return Err(Fault::bad(at, "at least 1 atom", n_atoms)),
        };
        let integer = |index: usize| records.integer(first, 4 + 4 * index);
        let charmm = integer(19) != 0;
        let mut layout = Layout {
            big_endian: records.big_endian,
            marker: records.marker,
            n_atoms,
            free: None,
            has_cell: charmm && integer(10) != 0,
            four_dims: charmm && integer(11) == 1,
            title_len,
            istart: integer(1),
            nsavc: integer(2).max(1),
            delta: records.delta(first, charmm),
            n_frames_claimed: integer(0),
        };
        let n_fixed = integer(8);
        if n_fixed != 0 {
            layout.free = Some(records.free_atoms(n_atoms, n_fixed)?);
        }
        layout.check_first_frame(file_size)?;
        Ok(layout)
    }

    /// A head without a frame behind it is an empty trajectory; a part of one frame is not.
    fn check_first_frame(&self, file_size: u64) -> Result<(), Fault> {
        let (start, size) = (self.header_size(), self.first_frame_size());
        let present = file_size.saturating_sub(start);
        if present == 0 || present >= size {
            return Ok(());
        }
        Err(Fault::Bad {
            at: start as usize,
            expected: format!("a first frame of {size} bytes for {} atoms", self.n_atoms),
            found: format!("{present} bytes to the end of the file"),
        })
    }

    pub fn n_atoms(&self) -> usize {
        self.n_atoms as usize
    }

    /// The atoms that later frames hold, from 0 and ascending; `None` where no atom is fixed.
    pub(super) fn free(&self) -> Option<&[u32]> {
        self.free.as_deref()
    }

    /// Offset of the first frame.
    pub fn header_size(&self) -> u64 {
        let (records, free) = match &self.free {
            Some(free) => (4, 4 * free.len() as u64),
            None => (3, 0),
        };
        records * 2 * u64::from(self.marker)
            + HEAD_LEN as u64
            + u64::from(self.title_len)
            + 4
            + free
    }

    /// Bytes of the first frame, which holds all atoms.
    pub fn first_frame_size(&self) -> u64 {
        self.size_of_frame(u64::from(self.n_atoms))
    }

    /// Bytes of each later frame, which holds the free atoms.
    pub fn frame_size(&self) -> u64 {
        let stored = self.free.as_ref().map(|free| free.len() as u64);
        self.size_of_frame(stored.unwrap_or(u64::from(self.n_atoms)))
    }

    fn size_of_frame(&self, stored: u64) -> u64 {
        let markers = 2 * u64::from(self.marker);
        let coordinates = if self.four_dims { 4 } else { 3 };
        self.cell_size() + coordinates * (markers + 4 * stored)
    }

    /// Bytes of a frame's cell record with its markers.
    pub(super) fn cell_size(&self) -> u64 {
        if self.has_cell {
            CELL_LEN + 2 * u64::from(self.marker)
        } else {
            0
        }
    }

    /// The header's count of frames. It can be 0 or wrong: a killed run leaves it so.
    pub fn n_frames_claimed(&self) -> i64 {
        i64::from(self.n_frames_claimed)
    }

    /// Time of a frame, ps. NaN where the header's step length is not a finite number.
    pub fn time(&self, frame: u64) -> f64 {
        (frame as f64 + f64::from(self.istart) / f64::from(self.nsavc)) * self.dt()
    }

    /// Number of a frame's step in the simulation. A header that saves every 0 or -n steps is
    /// taken to save every step.
    pub fn step(&self, frame: u64) -> i64 {
        let frame = i64::try_from(frame).unwrap_or(i64::MAX);
        frame
            .saturating_mul(i64::from(self.nsavc))
            .saturating_add(i64::from(self.istart))
    }

    /// Time from one frame to the next, ps. NaN where the step length is not a finite number.
    pub fn dt(&self) -> f64 {
        self.delta.unwrap_or(f64::NAN) * AKMA * f64::from(self.nsavc)
    }

    /// The layout in few bytes, for [`Layout::from_bytes`] of the same version of this crate.
    pub fn to_bytes(&self) -> Vec<u8> {
        let flags = u8::from(self.big_endian)
            | u8::from(self.has_cell) << 1
            | u8::from(self.four_dims) << 2
            | u8::from(self.free.is_some()) << 3
            | u8::from(self.delta.is_some()) << 4;
        let mut bytes = vec![flags, self.marker];
        bytes.extend(self.n_atoms.to_le_bytes());
        bytes.extend(self.title_len.to_le_bytes());
        bytes.extend(self.istart.to_le_bytes());
        bytes.extend(self.nsavc.to_le_bytes());
        bytes.extend(self.n_frames_claimed.to_le_bytes());
        bytes.extend(self.delta.unwrap_or(0.0).to_le_bytes());
        for atom in self.free.iter().flatten() {
            bytes.extend(atom.to_le_bytes());
        }
        bytes
    }

    /// What [`Layout::to_bytes`] gave; `None` for bytes that it cannot have given.
    pub fn from_bytes(bytes: &[u8]) -> Option<Layout> {
        let mut rest = bytes;
        let [flags, marker] = take(&mut rest)?;
        let has = |bit: u8| flags >> bit & 1 == 1;
        let mut layout = Layout {
            big_endian: has(0),
            marker,
            has_cell: has(1),
            four_dims: has(2),
            n_atoms: u32::from_le_bytes(take(&mut rest)?),
            title_len: u32::from_le_bytes(take(&mut rest)?),
            istart: i32::from_le_bytes(take(&mut rest)?),
            nsavc: i32::from_le_bytes(take(&mut rest)?),
            n_frames_claimed: i32::from_le_bytes(take(&mut rest)?),
            delta: Some(f64::from_le_bytes(take(&mut rest)?)).filter(|_| has(4)),
            free: None,
        };
        if has(3) {
            let atoms = std::iter::from_fn(|| take(&mut rest).map(u32::from_le_bytes));
            layout.free = Some(atoms.collect());
        }
        (layout.is_sound() && layout.to_bytes() == bytes).then_some(layout)
    }

    /// What holds for every layout that was parsed.
    fn is_sound(&self) -> bool {
        let free_is_sound = self.free.as_ref().is_none_or(|free| {
            free.is_sorted_by(|a, b| a < b)
                && free.last().is_some_and(|&last| last < self.n_atoms)
                && free.len() < self.n_atoms as usize
        });
        matches!(self.marker, 4 | 8)
            && (1..=i32::MAX as u32).contains(&self.n_atoms)
            && u64::from(self.title_len) <= MAX_TITLE
            && self.nsavc >= 1
            && self.delta.is_none_or(f64::is_finite)
            && free_is_sound
    }
}

/// The next bytes of a slice, taken off its front.
fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*first)
}

/// `N` bytes from `at` on; the caller knows that they are there.
pub(super) fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

/// The length that a record marker of 4 or 8 bytes holds.
pub(super) fn marker_value(marker: &[u8], big_endian: bool) -> u64 {
    let push = |value: u64, &byte: &u8| value << 8 | u64::from(byte);
    if big_endian {
        marker.iter().fold(0, push)
    } else {
        marker.iter().rev().fold(0, push)
    }
}

/// Compare a record marker at `at` with the length that it must hold.
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

/// The records of the head, read one after another.
struct Records<'a> {
    head: &'a [u8],
    file_size: u64,
    at: usize,
    marker: u8,
    big_endian: bool,
}

impl<'a> Records<'a> {
    /// Find byte order and width of the markers, and read the first record.
    fn open(head: &'a [u8], file_size: u64) -> Result<(Self, &'a [u8]), Fault> {
        let mut records = Records {
            head,
            file_size,
            at: 0,
            marker: 4,
            big_endian: false,
        };
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
        records.big_endian = start[0] == 0;
        let first = records.expect(HEAD_LEN as u64)?;
        Ok((records, first))
    }

    fn bytes(&self, at: usize, len: u64) -> Result<&'a [u8], Fault> {
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

    /// The length of the next record, from its leading marker.
    fn next_len(&self) -> Result<u64, Fault> {
        let marker = self.bytes(self.at, u64::from(self.marker))?;
        Ok(marker_value(marker, self.big_endian))
    }

    /// The next record, which must have `len` bytes.
    fn expect(&mut self, len: u64) -> Result<&'a [u8], Fault> {
        let width = usize::from(self.marker);
        let leading = self.bytes(self.at, width as u64)?;
        check_marker(self.at, leading, self.big_endian, len)?;
        let record = self.bytes(self.at + width, len + width as u64)?;
        let (record, trailing) = record.split_at(record.len() - width);
        self.at += width + record.len();
        check_marker(self.at, trailing, self.big_endian, len)?;
        self.at += width;
        Ok(record)
    }

    /// Skip the title; its length.
    fn title(&mut self) -> Result<u32, Fault> {
        let len = self.next_len()?;
        match u32::try_from(len) {
            Ok(title_len) if len <= MAX_TITLE => {
                self.expect(len)?;
                Ok(title_len)
            }
            _ => {
                let expected = format!("a title of at most {MAX_TITLE} bytes");
                Err(Fault::bad(self.at, expected, format!("{len} bytes")))
            }
        }
    }

    fn integer(&self, record: &[u8], at: usize) -> i32 {
        let bytes = bytes_at(record, at);
        if self.big_endian {
            i32::from_be_bytes(bytes)
        } else {
            i32::from_le_bytes(bytes)
        }
    }

    /// The length of a step from the first record, if it is a number.
    fn delta(&self, first: &[u8], charmm: bool) -> Option<f64> {
        const AT: usize = 40;
        let delta = match (charmm, self.big_endian) {
            (true, true) => f64::from(f32::from_be_bytes(bytes_at(first, AT))),
            (true, false) => f64::from(f32::from_le_bytes(bytes_at(first, AT))),
            (false, true) => f64::from_be_bytes(bytes_at(first, AT)),
            (false, false) => f64::from_le_bytes(bytes_at(first, AT)),
        };
        Some(delta).filter(|delta| delta.is_finite())
    }

    /// The numbers of the free atoms, from 0. Their record's length is checked against the file
    /// before anything is allocated.
    fn free_atoms(&mut self, n_atoms: u32, n_fixed: i32) -> Result<Vec<u32>, Fault> {
        let n_free = match u32::try_from(n_fixed) {
            Ok(n_fixed) if n_fixed < n_atoms => n_atoms - n_fixed,
            _ => {
                let at = usize::from(self.marker) + 36;
                let expected = format!("fewer fixed atoms than the {n_atoms} atoms");
                return Err(Fault::bad(at, expected, n_fixed));
            }
        };
        let start = self.at + usize::from(self.marker);
        let record = self.expect(4 * u64::from(n_free))?;
        let mut free: Vec<u32> = Vec::with_capacity(n_free as usize);
        for at in (0..record.len()).step_by(4) {
            let atom = self.integer(record, at);
            // Later atoms have greater numbers; atom n is our n - 1.
            let least = free.last().map_or(1, |&last| last + 2);
            match u32::try_from(atom) {
                Ok(atom) if (least..=n_atoms).contains(&atom) => free.push(atom - 1),
                _ => {
                    let expected = format!("a free atom from {least} to {n_atoms}");
                    return Err(Fault::bad(start + at, expected, atom));
                }
            }
        }
        Ok(free)
    }
}
