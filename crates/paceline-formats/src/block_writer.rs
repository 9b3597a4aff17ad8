//! Encoding of blocks of frames, into memory or into a file.

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::path::Path;

use crate::error::Error;
use crate::hdf5_chunks::encode::{ChunkBuffers, ChunkEncoder};
use crate::os_calls::write_all_at;
use crate::{CellRow, Encoder, FrameIn, Series, UnitCell};

/// Maximum size of the buffer that a thread reuses for its next block, bytes.
///
/// A block is written with one call. The operating system serialises the calls that write to one
/// file, so that threads that write pieces of a block wait for each other. With one call per block,
/// one thread decodes while another writes. Two threads then wrote new frames to memory in 25 µs
/// per frame instead of 31, and to ext4 in 17 instead of 23. The buffer is reused, because the
/// allocation of one for each block takes as long as writing.
const KEPT: usize = 64 << 20;

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Reason why a block was not written.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The format cannot represent a frame of the block: row and reason.
    #[error("row {0}: {1}")]
    Frame(usize, String),
    /// The file cannot be written, or the encoder cannot be created.
    #[error(transparent)]
    Error(Error),
}

/// Frames of a block: positions, velocities and forces of all frames. The slice of a field that is
/// not written is empty.
#[derive(Debug, Clone, Copy)]
pub struct Block<'a> {
    /// x, y, z of each atom of each frame in turn, Å.
    pub positions: &'a [f32],
    /// Velocities in Å/ps, 3 numbers for each atom of each frame.
    pub velocities: &'a [f32],
    /// Forces in kJ/(mol·Å), 3 numbers for each atom of each frame.
    pub forces: &'a [f32],
    /// Unit cell of each frame.
    pub cells: &'a [CellRow],
    /// Time of each frame, ps.
    pub times: &'a [f64],
    /// Step number of each frame in the simulation.
    pub steps: &'a [i64],
    /// λ of each frame of a free-energy calculation, else 0.
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

    /// Encode all frames of the block, and return the bytes.
    ///
    /// # Errors
    /// [`Failure::Frame`] if the format cannot represent a frame.
    pub fn encode(&self, encoder: &mut dyn Encoder) -> Result<Vec<u8>, Failure> {
        let mut bytes = Vec::new();
        for row in 0..self.times.len() {
            self.encode_row(row, encoder, &mut bytes)?;
        }
        Ok(bytes)
    }

    /// Write all frames to the existing file `path`. The first one becomes frame `first` of the
    /// file. All frames must have the same size in this format, because the size determines their
    /// offsets.
    ///
    /// # Errors
    /// [`Failure`]. Some frames may already be written.
    pub fn write(&self, encoder: &mut dyn Encoder, path: &Path, first: u64) -> Result<(), Failure> {
        let refused = |action| move |source| Failure::Error(Error::io(path, action, source));
        let file = OpenOptions::new()
            .write(true)
            .open(path)
            .map_err(refused("cannot open"))?;
        BUFFER.with_borrow_mut(|bytes| {
            let size = self.encode_alike(encoder, bytes)?;
            // An offset that is too large for 64 bits becomes the largest number, which the system
            // refuses.
            let offset = first
                .saturating_mul(size)
                .saturating_add(head_size(encoder));
            let written = write_all_at(&file, bytes, offset);
            bytes.clear();
            bytes.shrink_to(KEPT);
            written.map_err(refused("cannot write"))
        })
    }

    /// Encode the frames into `bytes`, after clearing it; return their common size.
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
                    "expected a frame of {size} bytes, like the one before, found {encoded}: the \
                     offsets of such frames are unknown"
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

// Writing of frames into allocated chunks, or contiguous space, of a dataset in an HDF5 file.

thread_local! {
    static ROOM: RefCell<ChunkBuffers> = RefCell::default();
}

/// Approximate number of bytes per write call. So few bytes are still in the processor's cache when
/// they are written, which reduces the time to three quarters. The buffer is also smaller than a
/// copy of the whole block.
const PORTION: usize = 4 << 20;

/// Call a function with the buffers of this thread, which are reused.
pub fn with_buffers<T>(function: impl FnOnce(&mut ChunkBuffers) -> T) -> T {
    ROOM.with_borrow_mut(|room| {
        let value = function(room);
        room.tidy();
        value
    })
}

/// Write frames into the existing file `path`.
///
/// `places` contains the file offsets of all chunks that contain any of the frames, in C order. In
/// each of the first chunks, `lead` earlier frames precede these frames. Contiguous space counts as
/// one chunk per frame.
///
/// # Errors
/// [`Failure`]. Some frames may already be written.
pub fn write_chunks(
    encoder: &ChunkEncoder,
    path: &Path,
    places: &[u64],
    lead: usize,
    values: &[f32],
    n_atoms: usize,
) -> Result<(), Failure> {
    encoder
        .check(values, n_atoms)
        .map_err(|(row, reason)| Failure::Frame(row, reason))?;
    let n_frames = values.len() / (3 * n_atoms);
    let (rows, columns) = encoder.grid(lead + n_frames, n_atoms);
    let argument = |reason: String| Failure::Error(Error::Argument(reason));
    if encoder.settings().compression.is_some() {
        let reason = "compressed chunks have no offset before they are compressed";
        return Err(argument(reason.into()));
    }
    if lead >= encoder.settings().frames || places.len() != rows * columns {
        let found = places.len();
        return Err(argument(format!(
            "expected the offsets of {rows} × {columns} chunks, found {found}, and {lead} frames \
             before"
        )));
    }
    let refused = |action| move |source| Failure::Error(Error::io(path, action, source));
    let file = OpenOptions::new()
        .write(true)
        .open(path)
        .map_err(refused("cannot open"))?;
    with_buffers(|room| {
        let mut run = Run::new(&file, &mut room.packed);
        for (k, &place) in places.iter().enumerate() {
            let (row, column) = (k / columns, k % columns);
            let first = row * encoder.settings().frames;
            let frames = first.max(lead)..(first + encoder.settings().frames).min(lead + n_frames);
            // An offset that is too large for 64 bits becomes the largest number, which the system
            // refuses.
            let before = (frames.start - first) * encoder.frame_bytes();
            run.go_to(place.saturating_add(before as u64))?;
            let ours = frames.start - lead..frames.end - lead;
            encoder.put(values, n_atoms, ours, column, run.bytes);
        }
        run.end()
    })
    .map_err(refused("cannot write"))
}

/// Contiguous bytes of a file that are written with one call.
struct Run<'a> {
    file: &'a File,
    start: u64,
    bytes: &'a mut Vec<u8>,
}

impl<'a> Run<'a> {
    fn new(file: &'a File, bytes: &'a mut Vec<u8>) -> Self {
        bytes.clear();
        let start = 0;
        Run { file, start, bytes }
    }

    /// Set the file offset of the bytes that are appended next. Write the previous bytes if they
    /// are many, or do not end at this offset.
    fn go_to(&mut self, offset: u64) -> std::io::Result<()> {
        let full = self.bytes.len() >= PORTION;
        if full || self.start + self.bytes.len() as u64 != offset {
            self.end()?;
            self.start = offset;
        }
        Ok(())
    }

    fn end(&mut self) -> std::io::Result<()> {
        write_all_at(self.file, self.bytes, self.start)?;
        self.bytes.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fields;
    use crate::dcd::DcdEncoder;
    use crate::hdf5_chunks::encode::Settings;
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
        /// Create frames that are all different.
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
        // All atoms of the first frame are at the same position, so that the first frame is smaller
        // than the next one.
        arrays.positions[..3 * N_ATOMS].fill(1.0);
        let path = file("uneven");
        std::fs::write(&path, b"").unwrap();
        let mut encoder = XtcEncoder::new(N_ATOMS, PRECISION).unwrap();
        let written = arrays.rows(0, 2).write(&mut encoder, &path, 0);
        std::fs::remove_file(&path).unwrap();
        assert!(
            matches!(&written, Err(Failure::Frame(1, reason)) if reason.contains("offsets of such frames")),
            "{written:?}"
        );
    }

    const FEW_ATOMS: usize = 5;

    fn encoder(frames: usize, atoms: usize) -> ChunkEncoder {
        ChunkEncoder::new(Settings::new(frames, atoms)).unwrap()
    }

    fn chunk_file(name: &str) -> std::path::PathBuf {
        std::env::temp_dir().join(format!("paceline-chunks-{name}-{}", std::process::id()))
    }

    #[test]
    fn frames_in_pieces_make_the_chunks_made_at_once() {
        let n_frames = 9;
        let values: Vec<f32> = (0..3 * FEW_ATOMS * n_frames).map(|k| k as f32).collect();
        for (frames, atoms) in [(1, 5), (4, 5), (4, 2), (16, 3)] {
            let encoder = encoder(frames, atoms);
            let size = (frames * encoder.frame_bytes()) as u64;
            let (rows, columns) = encoder.grid(n_frames, FEW_ATOMS);
            // Chunks are adjacent in the file, except for a gap after the third chunk.
            let places: Vec<u64> = (0..(rows * columns) as u64)
                .map(|k| 100 + k * size + if k > 2 { 40 } else { 0 })
                .collect();
            let path = chunk_file(&format!("{frames}x{atoms}"));
            std::fs::write(&path, b"").unwrap();
            for (first, stop) in [(6, 9), (0, 3), (3, 6)] {
                let some = &values[3 * FEW_ATOMS * first..3 * FEW_ATOMS * stop];
                let rows = first / frames * columns..stop.div_ceil(frames) * columns;
                let lead = first % frames;
                write_chunks(&encoder, &path, &places[rows], lead, some, FEW_ATOMS).unwrap();
            }
            let mut found = std::fs::read(&path).unwrap();
            std::fs::remove_file(&path).unwrap();
            found.resize(places[places.len() - 1] as usize + size as usize, 0);
            let mut room = ChunkBuffers::default();
            encoder.encode(&values, FEW_ATOMS, &mut room).unwrap();
            for (&place, chunk) in places.iter().zip(room.packed.chunks_exact(size as usize)) {
                assert_eq!(&found[place as usize..][..size as usize], chunk);
            }
        }
    }

    #[test]
    fn blocks_are_written_in_portions() {
        let (n_atoms, n_frames) = (100_000, 12);
        let values = vec![1.0; 3 * n_atoms * n_frames];
        let encoder = encoder(1, n_atoms);
        let places: Vec<u64> = (0..n_frames)
            .map(|k| (k * encoder.frame_bytes()) as u64)
            .collect();
        let path = chunk_file("portions");
        std::fs::write(&path, b"").unwrap();
        write_chunks(&encoder, &path, &places, 0, &values, n_atoms).unwrap();
        let size = std::fs::metadata(&path).unwrap().len();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(size, (n_frames * encoder.frame_bytes()) as u64);
        let most = with_buffers(|room| room.packed.capacity());
        assert!(
            most <= 2 * (PORTION + encoder.frame_bytes()),
            "{most} bytes"
        );
    }

    #[test]
    fn frames_and_places_that_do_not_fit_are_refused() {
        let values = [0.0; 3 * FEW_ATOMS * 3];
        let path = chunk_file("missing");
        for (places, lead) in [(&[0u64, 8][..], 0), (&[0], 0), (&[0, 8, 16], 2)] {
            let written = write_chunks(&encoder(2, 5), &path, places, lead, &values, FEW_ATOMS);
            assert!(
                matches!(&written, Err(Failure::Error(Error::Argument(_)))) == (places != [0, 8]),
                "{written:?}"
            );
        }
        assert!(!path.exists());
    }
}
