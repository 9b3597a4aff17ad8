//! One dataset, and how its bytes are laid out.

use super::filters::Filter;
use super::number::Number;

/// One dataset of numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct Dataset {
    /// Its path in the file.
    pub name: String,
    pub number: Number,
    /// (rows, atoms, components), (rows, components × atoms) or (rows, atoms).
    pub shape: Vec<u64>,
    /// Shape of a chunk, as many axes; none for a contiguous dataset.
    pub chunk: Option<Vec<u64>>,
    /// Stages through which a chunk's bytes went, the first first.
    pub filters: Vec<Filter>,
    /// Where a contiguous dataset begins in the file; 0 where nothing of it was ever written.
    pub offset: u64,
    /// One number as the file holds it, in place of those that were never written.
    pub fill: Vec<u8>,
}

impl Dataset {
    /// # Errors
    /// What contradicts itself in the description, in a sentence.
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
pub fn tuple(axes: &[u64]) -> String {
    let axes: Vec<String> = axes.iter().map(u64::to_string).collect();
    format!("({})", axes.join(", "))
}
