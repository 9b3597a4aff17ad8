//! Write frames into chunks, or contiguous space, that a dataset of an HDF5 file has already.

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::path::Path;

use super::Failure;
use crate::error::Error;
use crate::hdf5_chunks::encode::{ChunkEncoder, Room};
use crate::system::write_all_at;

thread_local! {
    static ROOM: RefCell<Room> = RefCell::default();
}

/// Bytes that are written by one call, about: they are still close to the processor then, which
/// took three quarters of the time, and no block has a copy beside it.
const PORTION: usize = 4 << 20;

/// Call a function with memory that this thread uses again and again.
pub fn with_room<T>(function: impl FnOnce(&mut Room) -> T) -> T {
    ROOM.with_borrow_mut(|room| {
        let value = function(room);
        room.tidy();
        value
    })
}

/// Write frames into the file `path`, which must exist.
///
/// `places` are the first bytes of all chunks that hold any of the frames, in C order; `lead`
/// frames stand in the first of them before ours. Contiguous space is one chunk a frame.
///
/// # Errors
/// [`Failure`]; some frames may then be written.
pub fn write(
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
        let reason = "chunks that are compressed have no place before they are";
        return Err(argument(reason.into()));
    }
    if lead >= encoder.settings().frames || places.len() != rows * columns {
        let found = places.len();
        return Err(argument(format!(
            "expected the places of {rows} × {columns} chunks, found {found}, and {lead} frames \
             before"
        )));
    }
    let refused = |action| move |source| Failure::Error(Error::io(path, action, source));
    let file = OpenOptions::new()
        .write(true)
        .open(path)
        .map_err(refused("cannot open"))?;
    with_room(|room| {
        let mut run = Run::new(&file, &mut room.packed);
        for (k, &place) in places.iter().enumerate() {
            let (row, column) = (k / columns, k % columns);
            let first = row * encoder.settings().frames;
            let frames = first.max(lead)..(first + encoder.settings().frames).min(lead + n_frames);
            // The system refuses an offset that no file can have.
            let before = (frames.start - first) * encoder.frame_bytes();
            run.go_to(place.saturating_add(before as u64))?;
            let ours = frames.start - lead..frames.end - lead;
            encoder.put(values, n_atoms, ours, column, run.bytes);
        }
        run.end()
    })
    .map_err(refused("cannot write"))
}

/// Bytes that stand together in a file and are written by one call.
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

    /// Go to `offset`, where the bytes that come next belong.
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
    use crate::hdf5_chunks::encode::{Float, Settings};

    const N_ATOMS: usize = 5;

    fn encoder(frames: usize, atoms: usize) -> ChunkEncoder {
        ChunkEncoder::new(Settings {
            float: Float::F4,
            frames,
            atoms,
            shuffle: false,
            compression: None,
            precision: None,
            factor: 1.0,
            what: "position".into(),
        })
        .unwrap()
    }

    fn file(name: &str) -> std::path::PathBuf {
        std::env::temp_dir().join(format!("paceline-chunks-{name}-{}", std::process::id()))
    }

    #[test]
    fn frames_in_pieces_make_the_chunks_made_at_once() {
        let n_frames = 9;
        let values: Vec<f32> = (0..3 * N_ATOMS * n_frames).map(|k| k as f32).collect();
        for (frames, atoms) in [(1, 5), (4, 5), (4, 2), (16, 3)] {
            let encoder = encoder(frames, atoms);
            let size = (frames * encoder.frame_bytes()) as u64;
            let (rows, columns) = encoder.grid(n_frames, N_ATOMS);
            // Neighbours in the file, but for a gap in the middle.
            let places: Vec<u64> = (0..(rows * columns) as u64)
                .map(|k| 100 + k * size + if k > 2 { 40 } else { 0 })
                .collect();
            let path = file(&format!("{frames}x{atoms}"));
            std::fs::write(&path, b"").unwrap();
            for (first, stop) in [(6, 9), (0, 3), (3, 6)] {
                let some = &values[3 * N_ATOMS * first..3 * N_ATOMS * stop];
                let rows = first / frames * columns..stop.div_ceil(frames) * columns;
                let lead = first % frames;
                write(&encoder, &path, &places[rows], lead, some, N_ATOMS).unwrap();
            }
            let mut found = std::fs::read(&path).unwrap();
            std::fs::remove_file(&path).unwrap();
            found.resize(places[places.len() - 1] as usize + size as usize, 0);
            let mut room = Room::default();
            encoder.encode(&values, N_ATOMS, &mut room).unwrap();
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
        let path = file("portions");
        std::fs::write(&path, b"").unwrap();
        write(&encoder, &path, &places, 0, &values, n_atoms).unwrap();
        let size = std::fs::metadata(&path).unwrap().len();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(size, (n_frames * encoder.frame_bytes()) as u64);
        let most = with_room(|room| room.packed.capacity());
        assert!(
            most <= 2 * (PORTION + encoder.frame_bytes()),
            "{most} bytes"
        );
    }

    #[test]
    fn frames_and_places_that_do_not_fit_are_refused() {
        let values = [0.0; 3 * N_ATOMS * 3];
        let path = file("missing");
        for (places, lead) in [(&[0u64, 8][..], 0), (&[0], 0), (&[0, 8, 16], 2)] {
            let written = write(&encoder(2, 5), &path, places, lead, &values, N_ATOMS);
            assert!(
                matches!(&written, Err(Failure::Error(Error::Argument(_)))) == (places != [0, 8]),
                "{written:?}"
            );
        }
        assert!(!path.exists());
    }
}
