//! DCD, little-endian, with record markers of 4 bytes.

use paceline_formats::dcd::{self, DcdEncoder};
use paceline_formats::{Encoder, Fields, Series};

use super::{
    Contents, Existing, FrameOffsets, Heading, LONGEST_HEADER, Layout, Output, Piece, Settings,
    check_atom_count, damaged, lengths_and_cosines, oriented, unsupported, unwritable,
};
use crate::Result;

/// Number of integers in the first record after "CORD". The constants below are their indices.
const N_NUMBERS: usize = 20;
const COUNT: usize = 0;
const FIRST_STEP: usize = 1;
const STRIDE: usize = 2;
const STEPS: usize = 3;
const DELTA: usize = 9;
const CELL: usize = 10;
const FOUR_DIMS: usize = 11;
const VERSION: usize = 19;
/// Largest version of CHARMM that other programs state in their files. A file with a larger version
/// is CHARMM's own, whose cells are shape matrices.
const LAST_PRETENDED: i32 = 25;
/// CHARMM's unit of time, ps.
const AKMA: f64 = 0.04888821;
/// Size of a cell's record with its markers, bytes.
const CELL_RECORD: u64 = 48 + 8;

/// Layout of the file, and the times that readers compute from its header.
#[derive(Default)]
pub struct Dcd {
    numbers: [i32; N_NUMBERS],
    /// Times and steps of the first two frames.
    clock: Vec<(f64, i64)>,
    warned: bool,
}

impl Dcd {
    /// Encode a header, and return its bytes and numbers.
    fn encoded(
        settings: &Settings,
        has_cell: bool,
        series: &Series,
    ) -> Result<(Vec<u8>, [i32; N_NUMBERS])> {
        let encoder = usize::try_from(settings.n_atoms)
            .map_err(|error| error.to_string())
            .and_then(|n_atoms| DcdEncoder::new(n_atoms, has_cell))
            .map_err(unwritable(&settings.path))?;
        let head = encoder.head(series);
        let (words, _) = head[8..].as_chunks();
        let numbers = std::array::from_fn(|k| i32::from_le_bytes(words[k]));
        Ok((head, numbers))
    }

    /// Set the times in the header from the first two frames; return a warning if a later frame
    /// does not match them.
    fn tick(
        &mut self,
        settings: &Settings,
        contents: &Contents,
        heading: &Heading,
        n_frames: u64,
    ) -> Result<Option<String>> {
        if n_frames < 2 {
            self.clock.truncate(n_frames as usize);
            self.clock.push((heading.time, heading.step));
            let (time, step) = self.clock[0];
            let (last, last_step) = self.clock[self.clock.len() - 1];
            let series = Series {
                n_frames: self.clock.len() as u64,
                time,
                dt: last - time,
                step,
                steps: last_step.wrapping_sub(step),
            };
            let (_, encoded) = Dcd::encoded(settings, contents.has_cell, &series)?;
            for k in [FIRST_STEP, STRIDE, DELTA] {
                self.numbers[k] = encoded[k];
            }
        }
        let expected = self.time_of(n_frames);
        let between = (self.time_of(1) - self.time_of(0)).abs();
        let off = (heading.time - expected).abs();
        // `between` is 0 if the time between frames is too small for the header.
        if self.warned || off <= 0.01 * between || between == 0.0 {
            return Ok(None);
        }
        self.warned = true;
        Ok(Some(format!(
            "{}: a DCD file stores one time between frames, and frame {n_frames} of {} ps will be \
             read as one of {expected} ps",
            settings.path.display(),
            heading.time
        )))
    }

    /// Compute the time that readers will assign to a frame, ps.
    fn time_of(&self, frame: u64) -> f64 {
        let delta = f32::from_bits(self.numbers[DELTA] as u32);
        let step =
            f64::from(self.numbers[FIRST_STEP]) + frame as f64 * f64::from(self.numbers[STRIDE]);
        step * f64::from(delta) * AKMA
    }

    fn has_cell(&self) -> bool {
        self.numbers[CELL] != 0
    }
}

/// Offsets of the records of x, y and z, and of their end.
fn records(start: u64, has_cell: bool, n_atoms: u64) -> [u64; 4] {
    let first = start + if has_cell { CELL_RECORD } else { 0 };
    [0, 1, 2, 3].map(|k| first + k * (4 * n_atoms + 8))
}

impl Layout for Dcd {
    fn head(
        &mut self,
        settings: &Settings,
        contents: &Contents,
        heading: &Heading,
    ) -> Result<Vec<u8>> {
        self.clock.clear();
        let series = Series {
            n_frames: 0,
            time: heading.time,
            dt: 0.0,
            step: heading.step,
            steps: 0,
        };
        let (head, numbers) = Dcd::encoded(settings, contents.has_cell, &series)?;
        self.numbers = numbers;
        Ok(head)
    }

    fn open(&mut self, settings: &Settings, output: &Output) -> Result<Existing> {
        let path = &settings.path;
        // The header may be followed by the indices of free atoms: 4 bytes each, for at most all
        // atoms.
        let most = (settings.n_atoms.saturating_mul(4)).min(output.size()?) as usize;
        let bytes = output.read(0, LONGEST_HEADER + most + 1024)?;
        let header = dcd::Layout::parse(&bytes, u64::MAX)
            .map_err(|fault| damaged(path, bytes.len(), fault))?;
        if header.is_big_endian() || header.marker_size() != 4 {
            let found = bytes[..bytes.len().min(8)].escape_ascii().to_string();
            let fault = paceline_formats::error::Fault::bad(
                0,
                "a little-endian DCD file with markers of 4 bytes",
                found,
            );
            return Err(damaged(path, bytes.len(), fault));
        }
        let numbers = header.integers(&bytes);
        self.numbers = std::array::from_fn(|k| numbers.get(k).copied().unwrap_or(0));
        let version = self.numbers[VERSION];
        let refused = [
            (
                header.n_fixed() > 0,
                "has fixed atoms: it cannot be continued",
            ),
            (
                self.numbers[FOUR_DIMS] != 0,
                "has a fourth dimension: it cannot be continued",
            ),
            (
                version == 0,
                "is an X-PLOR DCD file: only CHARMM's can be continued",
            ),
            (
                version > LAST_PRETENDED && self.has_cell(),
                "stores cells as matrices, as CHARMM does: it cannot be continued",
            ),
        ];
        if let Some((_, what)) = refused.iter().find(|(wrong, _)| *wrong) {
            return Err(unsupported(path, format!("it {what}")));
        }
        check_atom_count(settings, header.n_atoms() as u64)?;
        if self.numbers[COUNT] == 1 {
            self.clock = vec![(self.time_of(0), self.numbers[FIRST_STEP].into())];
        }
        Ok(Existing {
            contents: Contents {
                fields: Fields::POSITIONS,
                has_cell: self.has_cell(),
            },
            first: header.header_size(),
            frame_size: header.frame_size(),
            counted: u64::try_from(self.numbers[COUNT]).unwrap_or(0),
        })
    }

    /// Check the record markers of x, y and z, which are written after the atoms.
    fn is_whole(&self, settings: &Settings, output: &Output, start: u64) -> Result<bool> {
        let size = 4 * settings.n_atoms;
        let marker = (size as u32).to_le_bytes();
        for record in &records(start, self.has_cell(), settings.n_atoms)[..3] {
            for at in [*record, record + 4 + size] {
                if output.read(at, 4)? != marker {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    fn next(
        &mut self,
        settings: &Settings,
        contents: &Contents,
        heading: &Heading,
        n_frames: u64,
        start: u64,
    ) -> Result<FrameOffsets> {
        let size = 4 * settings.n_atoms;
        let marker = (size as u32).to_le_bytes().to_vec();
        let records = records(start, contents.has_cell, settings.n_atoms);
        let mut framing = Vec::new();
        if contents.has_cell {
            let cell = oriented(&settings.path, &heading.cell)?;
            let ([a, b, c], [cos_a, cos_b, cos_c]) = lengths_and_cosines(cell);
            let mut record = 48_i32.to_le_bytes().to_vec();
            record.extend(
                [a, cos_c, b, cos_b, cos_a, c]
                    .map(f64::to_le_bytes)
                    .as_flattened(),
            );
            record.extend(48_i32.to_le_bytes());
            framing.push((start, record));
        }
        for &record in &records[..3] {
            framing.push((record, marker.clone()));
            framing.push((record + 4 + size, marker.clone()));
        }
        Ok(FrameOffsets {
            starts: records[..3].iter().map(|record| record + 4).collect(),
            framing,
            end: records[3],
            warning: self.tick(settings, contents, heading, n_frames)?,
        })
    }

    fn counts(&mut self, _: &Settings, _: &Contents, n_frames: u64) -> Result<Vec<Piece>> {
        let limited = |n: i128| i32::try_from(n).unwrap_or(i32::MAX);
        self.numbers[COUNT] = limited(n_frames.into());
        self.numbers[STEPS] = limited(i128::from(n_frames) * i128::from(self.numbers[STRIDE]));
        let mut record = 84_i32.to_le_bytes().to_vec();
        record.extend(b"CORD");
        record.extend(self.numbers.map(i32::to_le_bytes).as_flattened());
        record.extend(84_i32.to_le_bytes());
        Ok(vec![(0, record)])
    }
}
