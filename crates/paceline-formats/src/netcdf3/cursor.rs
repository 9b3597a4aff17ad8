//! Takes counts, names and lists from the front of a header.

use crate::error::Fault;
use crate::xdr::padding;

/// Amber's headers have about 2,000 bytes.
const MAX_LEN: u64 = 1 << 20;

/// Takes what stands next in a header.
pub(super) struct Cursor<'a> {
    head: &'a [u8],
    file_size: u64,
    /// Offset of what stands next.
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

    /// # Errors
    /// [`Fault::Short`] where the file holds these bytes, but the slice does not yet; so for all
    /// below.
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

    /// A list of entries, each of which takes bytes: so no more are made than there are bytes.
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

    /// Bytes that are filled up to a multiple of four.
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
