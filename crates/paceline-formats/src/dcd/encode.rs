//! Encodes DCD as NAMD, VMD and MDAnalysis write it: little-endian, markers of 4 bytes, CHARMM's
//! version 24, and a cell of lengths and cosines.

mod clock;

use self::clock::Clock;
use super::header::FIRST_LEN;
use super::layout::CELL_LEN;
use crate::codec::{check_finite, odd_bits};
use crate::{Encoder, FrameIn, Series};

/// What CHARMM's readers take for a file of theirs.
const CHARMM_VERSION: i32 = 24;

const TITLE: &str = "CREATED BY PACELINE";
const TITLE_LINE: usize = 80;

/// Encodes the frames of one DCD file.
#[derive(Debug)]
pub struct DcdEncoder {
    n_atoms: i32,
    has_cell: bool,
}

impl DcdEncoder {
    /// With `has_cell`, every frame holds a cell, of zeros where it has none.
    ///
    /// # Errors
    /// What no DCD file can have, in a sentence.
    pub fn new(n_atoms: usize, has_cell: bool) -> Result<Self, String> {
        // Readers take the markers for signed.
        let most = i32::MAX / 4;
        match i32::try_from(n_atoms) {
            Ok(n_atoms) if (1..=most).contains(&n_atoms) => Ok(DcdEncoder { n_atoms, has_cell }),
            _ => Err(format!("DCD holds 1 to {most} atoms, not {n_atoms}")),
        }
    }

    fn check(&self, frame: &FrameIn<'_>) -> Result<(), String> {
        let n_atoms = self.n_atoms as usize;
        if frame.positions.len() != 3 * n_atoms {
            let found = frame.positions.len() / 3;
            return Err(format!(
                "expected positions of {n_atoms} atoms, found {found}"
            ));
        }
        if !(frame.velocities.is_empty() && frame.forces.is_empty()) {
            return Err("DCD holds positions only, no velocities or forces".into());
        }
        let cell = frame.dimensions;
        if !self.has_cell && *cell != [0.0; 6] {
            return Err("expected no unit cell, as in the file's first frame, found one".into());
        }
        let sound = |&value: &f32| value.is_finite() && value >= 0.0;
        if let Some(value) = cell.iter().find(|value| !sound(value)) {
            return Err(format!(
                "expected a finite unit cell, none of it negative, found {value}"
            ));
        }
        match cell[3..].iter().find(|&&angle| angle > 180.0) {
            Some(angle) => Err(format!(
                "expected angles of up to 180 degrees, found {angle}"
            )),
            None => Ok(()),
        }
    }
}

impl Encoder for DcdEncoder {
    fn head(&self, series: &Series) -> Vec<u8> {
        let clock = Clock::new(series);
        let n_frames = i32::try_from(series.n_frames).unwrap_or(i32::MAX);
        let mut integers = [0; 20];
        integers[0] = n_frames;
        integers[1] = clock.istart;
        integers[2] = clock.nsavc;
        integers[3] = n_frames.saturating_mul(clock.nsavc);
        integers[9] = clock.delta.to_bits() as i32;
        integers[10] = i32::from(self.has_cell);
        integers[19] = CHARMM_VERSION;

        let mut bytes = Vec::new();
        put_record(&mut bytes, FIRST_LEN as usize, |bytes| {
            bytes.extend(b"CORD");
            put_all(bytes, &integers, i32::to_le_bytes);
        });
        put_record(&mut bytes, 4 + TITLE_LINE, |bytes| {
            bytes.extend(1i32.to_le_bytes());
            bytes.extend(format!("{TITLE:TITLE_LINE$}").bytes());
        });
        put_record(&mut bytes, 4, |bytes| {
            bytes.extend(self.n_atoms.to_le_bytes())
        });
        bytes
    }

    fn encode(&mut self, frame: &FrameIn<'_>, bytes: &mut Vec<u8>) -> Result<(), String> {
        self.check(frame)?;
        let start = bytes.len();
        if self.has_cell {
            let cell = cell(frame.dimensions);
            put_record(bytes, CELL_LEN as usize, |bytes| {
                put_all(bytes, &cell, f64::to_le_bytes);
            });
        }
        let (positions, _) = frame.positions.as_chunks::<3>();
        // Seen on the way, where it costs nothing: a pass of its own took a third of the whole.
        let mut odd = 0;
        for axis in 0..3 {
            put_record(bytes, 4 * positions.len(), |bytes| {
                bytes.extend(positions.iter().flat_map(|position| {
                    odd |= odd_bits(position[axis]);
                    position[axis].to_le_bytes()
                }));
            });
        }
        if odd == 0 {
            return Ok(());
        }
        bytes.truncate(start);
        check_finite(frame.positions, "position")
    }
}

/// A Fortran record of `len` bytes.
fn put_record(bytes: &mut Vec<u8>, len: usize, put: impl FnOnce(&mut Vec<u8>)) {
    let marker = (len as u32).to_le_bytes();
    bytes.extend(marker);
    put(bytes);
    bytes.extend(marker);
}

fn put_all<T: Copy, const N: usize>(bytes: &mut Vec<u8>, numbers: &[T], put: fn(T) -> [u8; N]) {
    bytes.extend(numbers.iter().flat_map(|&number| put(number)));
}

/// The cell record: A, cos γ, B, cos β, cos α, C. Cosines are what NAMD and VMD write, what all
/// readers tell from degrees, and, in double precision, what gives back the same angles.
fn cell(dimensions: &[f32; 6]) -> [f64; 6] {
    if dimensions[..3] == [0.0; 3] {
        return [0.0; 6];
    }
    let [a, b, c, alpha, beta, gamma] = dimensions.map(f64::from);
    // The sine makes a right angle exactly 0.
    let cosine = |angle: f64| (90.0 - angle).to_radians().sin();
    [a, cosine(gamma), b, cosine(beta), cosine(alpha), c]
}
