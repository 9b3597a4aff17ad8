//! Encodes frames in single precision, as GROMACS and MDAnalysis do: for the same frame the same
//! bytes.

use super::{BLOCKS, BOX, FIELDS, MAGIC, VERSION};
use crate::codec::not_finite;
use crate::xdr::{self, NM_PER_ANGSTROM};
use crate::{Encoder, FrameIn, Series};

const NAMES: [&str; 3] = ["position", "velocity", "force"];

/// To nm, nm/ps and kJ/(mol·nm), by the same float32 multiplications as MDAnalysis's writer.
const TO_FILE: [f32; 3] = [NM_PER_ANGSTROM, NM_PER_ANGSTROM, 10.0];

const CELL_LEN: usize = 36;

/// Encodes the frames of one TRR file.
#[derive(Debug)]
pub struct TrrEncoder {
    n_atoms: usize,
}

impl TrrEncoder {
    /// # Errors
    /// If no TRR file can have so many atoms: the reason, in a sentence.
    pub fn new(n_atoms: usize) -> Result<Self, String> {
        // A field's bytes are counted in 31 bits.
        let most = i32::MAX as usize / 12;
        match n_atoms {
            0 => Err("expected an atom at least, found none".into()),
            _ if n_atoms > most => Err(format!("TRR holds at most {most} atoms, not {n_atoms}")),
            _ => Ok(TrrEncoder { n_atoms }),
        }
    }
}

impl Encoder for TrrEncoder {
    /// TRR files begin with their first frame.
    fn head(&self, _series: &Series) -> Vec<u8> {
        Vec::new()
    }

    fn encode(&mut self, frame: &FrameIn<'_>, bytes: &mut Vec<u8>) -> Result<(), String> {
        let fields = [frame.positions, frame.velocities, frame.forces];
        for (values, name) in fields.into_iter().zip(NAMES) {
            if ![0, 3 * self.n_atoms].contains(&values.len()) {
                return Err(format!(
                    "expected a {name} of each of {} atoms, found {}",
                    self.n_atoms,
                    values.len() / 3
                ));
            }
        }
        let (step, time) = xdr::moment(frame, "TRR")?;
        // Zeros where there is no cell, as in GROMACS: where a frame holds no box at all,
        // MDAnalysis's reader shows whatever its memory held.
        let vectors = xdr::box_vectors(&frame.cell)?;
        let start = bytes.len();
        let sizes = fields.map(|values| 4 * values.len());
        put_header(self.n_atoms, sizes, step, [time, frame.lambda], bytes);
        for value in vectors.as_flattened() {
            bytes.extend(value.to_be_bytes());
        }
        for (field, values) in fields.into_iter().enumerate() {
            if !put_field(values, TO_FILE[field], bytes) {
                bytes.truncate(start);
                return Err(why_unsound(values, field));
            }
        }
        Ok(())
    }
}

/// `sizes` are the bytes of the fields; `reals` are the time, ps, and λ.
fn put_header(n_atoms: usize, sizes: [usize; 3], step: i32, reals: [f32; 2], bytes: &mut Vec<u8>) {
    let mut blocks = [0; BLOCKS.len()];
    blocks[BOX] = CELL_LEN;
    for (block, size) in FIELDS.into_iter().zip(sizes) {
        blocks[block] = size;
    }
    let len = VERSION.len() as i32;
    for integer in [MAGIC, len + 1, len] {
        bytes.extend(integer.to_be_bytes());
    }
    bytes.extend(VERSION);
    for size in blocks {
        bytes.extend((size as i32).to_be_bytes());
    }
    let energies = 0;
    for integer in [n_atoms as i32, step, energies] {
        bytes.extend(integer.to_be_bytes());
    }
    for real in reals {
        bytes.extend(real.to_be_bytes());
    }
}

/// Append the numbers of a field; whether all of them are finite in the file's unit.
fn put_field(values: &[f32], unit: f32, bytes: &mut Vec<u8>) -> bool {
    let start = bytes.len();
    bytes.resize(start + 4 * values.len(), 0);
    let (numbers, _) = bytes[start..].as_chunks_mut();
    let mut sound = true;
    for (number, &value) in numbers.iter_mut().zip(values) {
        let value = value * unit;
        sound &= value.is_finite();
        *number = value.to_be_bytes();
    }
    sound
}

/// Name the atom whose number cannot be written.
fn why_unsound(values: &[f32], field: usize) -> String {
    let unsound = |&value: &f32| !(value * TO_FILE[field]).is_finite();
    let at = values.iter().position(unsound).unwrap_or(0);
    let (atom, name, value) = (at / 3, NAMES[field], values[at]);
    match value.is_finite() {
        true => format!("atom {atom}: expected a {name} that fits in 32 bits, found {value}"),
        false => not_finite(atom, name, value),
    }
}
