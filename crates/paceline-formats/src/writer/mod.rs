//! Blocks of frames encoded, into memory or into their place in a file: the only place that writes
//! trajectories.

pub mod allocated_chunks;

use std::cell::RefCell;
use std::fs::OpenOptions;
use std::path::Path;

use crate::error::Error;
use crate::system::write_all_at;
use crate::{CellRow, Encoder, FrameIn, Series, UnitCell};

/// Bytes of memory that a thread keeps for its next block.
///
/// A block is written by one call. The system lets one call at a time write to a file, so that
/// threads that write a block in pieces soon do so at the same time and wait for each other, while
/// with one call one decodes when another writes: two threads wrote new frames to memory at 25 µs a
/// frame rather than 31, to ext4 at 17 rather than 23. Memory that is new for each block would cost
/// as much as the writing itself.
const KEPT: usize = 64 << 20;

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Why a block was not written.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The format cannot hold a frame of the block: its row, and why.
    #[error("row {0}: {1}")]
    Frame(usize, String),
    /// The file cannot be written, or the encoder not be made.
    #[error(transparent)]
    Error(Error),
}

/// The frames of a block: positions, velocities and forces of all of them, empty for a field that
/// is not written.
#[derive(Debug, Clone, Copy)]
pub struct Block<'a> {
    /// x, y, z of each atom of each frame in turn, Å.
    pub positions: &'a [f32],
    /// Velocities, Å/ps.
    pub velocities: &'a [f32],
    /// Forces, kJ/(mol·Å).
    pub forces: &'a [f32],
    /// Unit cell of each frame.
    pub cells: &'a [CellRow],
    /// Time of each frame, ps.
    pub times: &'a [f64],
    /// Step of each frame.
    pub steps: &'a [i64],
    /// λ of each frame of a free-energy run, else 0.
    pub lambdas: &'a [f32],
}

impl Block<'_> {
    fn frame(&self, row: usize) -> FrameIn<'_> {
        let n_frames = self.times.len();
        let of_row = |numbers: &'_ [f32]| {
            let n = numbers.len() / n_frames;
            row * n..(row + 1) * n
        };
        FrameIn {
            positions: &self.positions[of_row(self.positions)],
            velocities: &self.velocities[of_row(self.velocities)],
            forces: &self.forces[of_row(self.forces)],
            cell: UnitCell::of_row(&self.cells[row]),
            time: self.times[row],
            step: self.steps[row],
            lambda: self.lambdas[row],
        }
    }

    /// The bytes of all frames.
    ///
    /// # Errors
    /// [`Failure::Frame`].
    pub fn encode(&self, encoder: &mut dyn Encoder) -> Result<Vec<u8>, Failure> {
        let mut bytes = Vec::new();
        for row in 0..self.times.len() {
            self.encode_row(row, encoder, &mut bytes)?;
        }
        Ok(bytes)
    }

    /// Write all frames into the file `path`, which must exist, as its frames from number `first`
    /// on. The format must give all frames the same size, so that each has its own offset.
    ///
    /// # Errors
    /// [`Failure`]; some frames may then be written.
    pub fn write(&self, encoder: &mut dyn Encoder, path: &Path, first: u64) -> Result<(), Failure> {
        let refused = |action| move |source| Failure::Error(Error::io(path, action, source));
        let file = OpenOptions::new()
            .write(true)
            .open(path)
            .map_err(refused("cannot open"))?;
        BUFFER.with_borrow_mut(|bytes| {
            let size = self.encode_alike(encoder, bytes)?;
            // The system refuses an offset that no file can have.
            let offset = first
                .saturating_mul(size)
                .saturating_add(head_size(encoder));
            let written = write_all_at(&file, bytes, offset);
            bytes.clear();
            bytes.shrink_to(KEPT);
            written.map_err(refused("cannot write"))
        })
    }

    /// Put the frames into `bytes` and nothing else; their size, which must be one.
    fn encode_alike(&self, encoder: &mut dyn Encoder, bytes: &mut Vec<u8>) -> Result<u64, Failure> {
        bytes.clear();
        let mut size = 0;
        for row in 0..self.times.len() {
            let before = bytes.len();
            self.encode_row(row, encoder, bytes)?;
            let encoded = bytes.len() - before;
            if row == 0 {
                size = encoded;
                bytes.reserve_exact(size * (self.times.len() - 1));
            } else if encoded != size {
                let reason = format!(
                    "expected a frame of {size} bytes, as before it, found {encoded}: such frames \
                     have no place of their own in a file"
                );
                return Err(Failure::Frame(row, reason));
            }
        }
        Ok(size as u64)
    }

    fn encode_row(
        &self,
        row: usize,
        encoder: &mut dyn Encoder,
        bytes: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        encoder
            .encode(&self.frame(row), bytes)
            .map_err(|reason| Failure::Frame(row, reason))
    }
}

fn head_size(encoder: &dyn Encoder) -> u64 {
    let series = Series {
        n_frames: 0,
        time: 0.0,
        dt: 0.0,
        step: 0,
        steps: 0,
    };
    encoder.head(&series).len() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fields;
    use crate::dcd::DcdEncoder;
    use crate::netcdf3::NetcdfEncoder;
    use crate::xtc::{PRECISION, XtcEncoder};

    const N_ATOMS: usize = 1000;
    const N_FRAMES: usize = 5;

    struct Arrays {
        positions: Vec<f32>,
        cells: Vec<CellRow>,
        times: Vec<f64>,
        steps: Vec<i64>,
        lambdas: Vec<f32>,
    }

    impl Arrays {
        /// Frames that are all different.
        fn new() -> Self {
            let cell = UnitCell::of_dimensions([80.0, 80.0, 80.0, 90.0, 90.0, 90.0]);
            Arrays {
                positions: (0..N_FRAMES * 3 * N_ATOMS).map(|k| k as f32).collect(),
                cells: vec![cell.row(); N_FRAMES],
                times: (0..N_FRAMES).map(|k| k as f64).collect(),
                steps: (0..N_FRAMES as i64).collect(),
                lambdas: vec![0.0; N_FRAMES],
            }
        }

        fn rows(&self, first: usize, stop: usize) -> Block<'_> {
            Block {
                positions: &self.positions[first * 3 * N_ATOMS..stop * 3 * N_ATOMS],
                velocities: &[],
                forces: &[],
                cells: &self.cells[first..stop],
                times: &self.times[first..stop],
                steps: &self.steps[first..stop],
                lambdas: &self.lambdas[first..stop],
            }
        }
    }

    fn file(name: &str) -> std::path::PathBuf {
        std::env::temp_dir().join(format!("paceline-write-{name}-{}", std::process::id()))
    }

    #[test]
    fn blocks_in_any_order_make_the_same_file() {
        let arrays = Arrays::new();
        let encoders: [Box<dyn Encoder>; 2] = [
            Box::new(DcdEncoder::new(N_ATOMS, true).unwrap()),
            Box::new(NetcdfEncoder::new(N_ATOMS, true, Fields::POSITIONS).unwrap()),
        ];
        for (k, mut encoder) in encoders.into_iter().enumerate() {
            let path = file(&k.to_string());
            std::fs::write(&path, b"").unwrap();
            let encoder = &mut *encoder;
            arrays.rows(3, 5).write(encoder, &path, 3).unwrap();
            arrays.rows(0, 3).write(encoder, &path, 0).unwrap();
            let found = std::fs::read(&path).unwrap();
            std::fs::remove_file(&path).unwrap();
            let (head, frames) = found.split_at(head_size(encoder) as usize);
            assert!(head.iter().all(|&byte| byte == 0));
            let whole = arrays.rows(0, N_FRAMES).encode(encoder).unwrap();
            assert!(frames == whole);
        }
    }

    #[test]
    fn a_file_that_is_not_there_is_not_made() {
        let path = file("missing");
        let mut encoder = DcdEncoder::new(N_ATOMS, true).unwrap();
        match Arrays::new().rows(0, 1).write(&mut encoder, &path, 0) {
            Err(Failure::Error(Error::Io { action, .. })) => assert_eq!(action, "cannot open"),
            other => panic!("{other:?}"),
        }
        assert!(!path.exists());
    }

    #[test]
    fn frames_of_different_sizes_are_refused() {
        let mut arrays = Arrays::new();
        // Atoms that are all in one place pack better than those of the next frame.
        arrays.positions[..3 * N_ATOMS].fill(1.0);
        let path = file("uneven");
        std::fs::write(&path, b"").unwrap();
        let mut encoder = XtcEncoder::new(N_ATOMS, PRECISION).unwrap();
        let written = arrays.rows(0, 2).write(&mut encoder, &path, 0);
        std::fs::remove_file(&path).unwrap();
        assert!(
            matches!(&written, Err(Failure::Frame(1, reason)) if reason.contains("no place")),
            "{written:?}"
        );
    }
}
