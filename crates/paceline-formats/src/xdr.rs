//! XDR, the big-endian encoding of XTC and TRR (RFC 4506), and other common parts of both formats:
//! a box in nm, and a step of 32 bits.

use crate::error::Fault;
use crate::triclinic_box;
use crate::{FrameIn, UnitCell, triclinic_vectors};

/// Reads numbers from the bytes of a frame, front to back.
#[derive(Debug, Clone)]
pub struct Xdr<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Xdr<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Xdr { bytes, at: 0 }
    }

    /// Return the offset of the next number in the frame.
    pub fn at(&self) -> usize {
        self.at
    }

    /// # Errors
    /// [`Fault::Short`] if the bytes end before the number; the same holds for the following
    /// methods.
    pub fn i32(&mut self) -> Result<i32, Fault> {
        self.take().map(i32::from_be_bytes)
    }

    pub fn i64(&mut self) -> Result<i64, Fault> {
        self.take().map(i64::from_be_bytes)
    }

    pub fn f32(&mut self) -> Result<f32, Fault> {
        self.take().map(f32::from_be_bytes)
    }

    pub fn f64(&mut self) -> Result<f64, Fault> {
        self.take().map(f64::from_be_bytes)
    }

    /// Read the bytes of a string or an opaque field. The caller handles length and padding.
    pub fn bytes<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        self.take()
    }

    /// Read three consecutive numbers: a vector.
    pub fn i32x3(&mut self) -> Result<[i32; 3], Fault> {
        Ok([self.i32()?, self.i32()?, self.i32()?])
    }

    pub fn f32x3(&mut self) -> Result<[f32; 3], Fault> {
        Ok([self.f32()?, self.f32()?, self.f32()?])
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let Some(number) = rest.first_chunk::<N>() else {
            return Err(Fault::Short {
                needed: self.at + N,
            });
        };
        self.at += N;
        Ok(*number)
    }
}

/// Return the number of padding bytes after an opaque field of `len` bytes.
pub fn padding(len: u64) -> u64 {
    len.wrapping_neg() % 4
}

pub const NM_PER_ANGSTROM: f32 = 0.1;

/// Convert a box in nm to a unit cell. Lengths and angles are computed with MDAnalysis's order of
/// operations.
pub fn unit_cell(vectors: [[f64; 3]; 3]) -> UnitCell {
    let [x, y, z] = vectors.map(|vector| vector.map(|value| f64::from(value as f32)));
    let [lx, ly, lz, alpha, beta, gamma] = triclinic_box(x, y, z);
    let lengths = [lx * 10.0, ly * 10.0, lz * 10.0];
    if lx == 0.0 || !lengths.iter().all(|length| length.is_finite()) {
        return UnitCell::NONE;
    }
    UnitCell {
        dimensions: [lengths[0], lengths[1], lengths[2], alpha, beta, gamma],
        vectors: vectors.map(|vector| vector.map(|value| 10.0 * value)),
        ..UnitCell::NONE
    }
}

/// Return the box of a cell, nm; zeros if there is no cell.
///
/// # Errors
/// A message if the cell does not span a volume.
pub fn box_vectors(cell: &UnitCell) -> Result<[[f32; 3]; 3], String> {
    if !cell.is_upright() {
        let nm = |value: f64| (value / 10.0) as f32;
        return Ok(cell.vectors.map(|vector| vector.map(nm)));
    }
    let dimensions = &cell.dimensions;
    let [lx, ly, lz, alpha, beta, gamma] = *dimensions;
    let [lx, ly, lz] = [lx, ly, lz].map(|length| length * NM_PER_ANGSTROM);
    match triclinic_vectors(&[lx, ly, lz, alpha, beta, gamma]) {
        Some(vectors) => Ok(vectors),
        None if *dimensions == [0.0; 6] => Ok([[0.0; 3]; 3]),
        None => Err(format!(
            "expected a unit cell or zeros, found {dimensions:?}, which span no volume"
        )),
    }
}

/// Convert step and time (ps) of a frame to the types of the file. `name` is the format, for
/// messages.
///
/// # Errors
/// A message if the step or the time does not fit.
pub fn moment(frame: &FrameIn<'_>, name: &str) -> Result<(i32, f32), String> {
    let step = i32::try_from(frame.step)
        .map_err(|_| format!("step {} does not fit in the 32 bits of {name}", frame.step))?;
    let time = frame.time as f32;
    if !time.is_finite() {
        return Err(format!(
            "expected a time that fits in 32 bits, found {} ps",
            frame.time
        ));
    }
    Ok((step, time))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_in_order_until_the_bytes_end() {
        let bytes = [
            0, 0, 7, 203, 255, 255, 255, 255, 255, 255, 255, 254, 63, 128,
        ];
        let mut xdr = Xdr::new(&bytes);
        assert_eq!(xdr.i32(), Ok(1995));
        assert_eq!(xdr.i64(), Ok(-2));
        assert_eq!(xdr.f32(), Err(Fault::Short { needed: 16 }));
        assert_eq!(xdr.bytes(), Ok([63, 128]));
        assert_eq!(xdr.at(), 14);
        let mut xdr = Xdr::new(&[192, 4, 0, 0, 0, 0, 0, 0]);
        assert_eq!(xdr.f64(), Ok(-2.5));
    }

    #[test]
    fn a_box_that_is_not_finite_in_angstrom_is_none() {
        let vectors = |x: f64| [[x, 0.0, 0.0], [0.0, 4.0, 0.0], [0.0, 0.0, 5.0]];
        let expected = [30.0, 40.0, 50.0, 90.0, 90.0, 90.0];
        assert_eq!(unit_cell(vectors(3.0)).dimensions, expected);
        for x in [f64::INFINITY, f64::NAN, f64::from(f32::MAX)] {
            assert_eq!(unit_cell(vectors(x)), UnitCell::NONE, "{x}");
        }
    }

    #[test]
    fn fields_are_padded_to_four_bytes() {
        assert_eq!([0, 1, 2, 3, 4].map(padding), [0, 3, 2, 1, 0]);
    }
}
