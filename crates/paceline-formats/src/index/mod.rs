//! The frame index: for each frame of a file, where its bytes are and how they are coded.
//!
//! DCD and NetCDF need arithmetic and nothing else, and so do DL_POLY's files as it writes them.
//! XTC and TRR have to be scanned, header by header, and edited HISTORY files line by line; what the scan finds is saved and recognised by the file's content, so that the next
//! open reads none of the trajectory but some samples.
//!
//! Every byte of a scanned file belongs to a frame, as far as the last whole one. Where there is
//! damage, the bytes from there to the next valid header are one entry of the index, which the
//! decoder will refuse with its own words: no frame vanishes, and those behind stay reachable.

mod dlpoly;
mod fingerprint;
mod framed;
mod frames;
mod head;
mod listed;
mod notes;
mod regular;
mod sample;
mod scan;
mod segments;
mod store;
#[cfg(test)]
mod tests;
mod text;
mod walk;
mod watch;

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use xxhash_rust::xxh3::xxh3_128;

use crate::error::{Error, Fault, Result};
use crate::source::{Source, Traffic};
use crate::{Format, Layout, trr};

use framed::Framed;
use frames::Frames;

pub use fingerprint::Fingerprint;
pub use watch::Progress;

/// How an index came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// By arithmetic.
    Computed,
    /// From a scan of the whole file.
    Scanned,
    /// From a saved index and a scan of what the file has grown by.
    Extended,
    /// From a saved index.
    Loaded,
    /// From some frames in the middle of the file: there are others.
    Sampled,
}

/// How to open a file.
pub struct OpenOptions<'a> {
    /// Where a saved index may be, or be saved, in order of preference: see [`index_files`]. With
    /// none, nothing is saved.
    pub index_files: Vec<PathBuf>,
    /// Scan again, whatever is saved.
    pub refresh: bool,
    /// Of a long file that would have to be scanned, find only frames among about so many bytes
    /// in its middle, and save nothing.
    pub sample: Option<u64>,
    pub n_threads: usize,
    /// Called now and then, from the calling thread.
    pub progress: &'a Progress<'a>,
}

/// The places for the saved index of the trajectory `path`: beside it, and in the user's cache.
pub fn index_files(path: &Path, cache: Option<&Path>) -> Vec<PathBuf> {
    let mut files = Vec::new();
    if let Some(name) = path.file_name() {
        let mut hidden = OsString::from(".");
        hidden.push(name);
        hidden.push(".paceline-index");
        files.push(path.with_file_name(hidden));
    }
    if let (Some(cache), Ok(path)) = (cache, path.canonicalize()) {
        let hash = xxh3_128(path.as_os_str().as_bytes());
        files.push(cache.join(format!("{hash:032x}.paceline-index")));
    }
    files
}

/// When the frames of a file are.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Times {
    /// ps; NaN where a damaged frame's time is not known.
    pub times: Vec<f64>,
    /// Step of the simulation; 0 where it is not known.
    pub steps: Vec<i64>,
}

/// The frame index of one file.
pub struct Index {
    layout: Layout,
    frames: Frames,
    fingerprint: Fingerprint,
    notes: Vec<String>,
    damaged: Vec<u64>,
    origin: Origin,
    file: Option<PathBuf>,
    traffic: Traffic,
    moments: OnceLock<store::Moments>,
}

/// The format of a file by its first bytes; nothing where it is none of ours.
///
/// # Errors
/// What the source gives.
pub fn detect(source: &dyn Source) -> Result<Option<Format>> {
    Ok(Format::detect(&read_head(source, source.size()?)?))
}

/// The bytes that tell the format of a file of `size` bytes.
fn read_head(source: &dyn Source, size: u64) -> Result<Vec<u8>> {
    let mut head = vec![0; size.min(Format::HEAD_LEN as u64) as usize];
    source.read_at(0, &mut head)?;
    Ok(head)
}

/// Open a trajectory: recognise its format and find its frames.
///
/// # Errors
/// [`Error::Unsupported`] for a format that we do not index, [`Error::Damaged`] where not even
/// the first frame's header can be read, [`Error::Interrupted`] where the caller asks for it, and
/// what the source gives.
pub fn open(source: &dyn Source, options: &OpenOptions<'_>) -> Result<Index> {
    let size = source.size()?;
    let head = read_head(source, size)?;
    match Format::detect(&head) {
        Some(Format::Dcd) => Index::computed(source, size, regular::open_dcd(source, size)?),
        Some(Format::Netcdf3) => Index::computed(source, size, regular::open_netcdf(source, size)?),
        Some(Format::Config) => {
            Index::computed(source, size, dlpoly::open_config(source, size, options)?)
        }
        Some(Format::History) => match dlpoly::open_history(source, size, options)? {
            dlpoly::Opened::ByArithmetic(opened) => Index::computed(source, size, opened),
            dlpoly::Opened::ByScan(opened) => Ok(Index::from_listed(source, opened)),
        },
        Some(Format::Xtc) => {
            let layout = |n_atoms| Layout::Xtc { n_atoms };
            let opened = listed::open(source, &framed::Xtc, layout, size, options)?;
            Ok(Index::from_listed(source, opened))
        }
        Some(Format::Trr) => {
            let layout = |n_atoms| Layout::Trr { n_atoms };
            let opened = listed::open(source, &framed::Trr, layout, size, options)?;
            check_room(source.path(), &opened.listing)?;
            Ok(Index::from_listed(source, opened))
        }
        None => Err(unknown(source.path(), &head)),
    }
}

/// A TRR frame may hold a box alone, whatever the number of atoms that it states: refuse one of
/// which no frame of the file can hold anything, before anybody makes room for so many.
fn check_room(path: &Path, listing: &store::Listing) -> Result<()> {
    let size = listing.fingerprint.size();
    let room = size / trr::ATOM_BYTES_MIN;
    let n_atoms = listing.layout.n_atoms() as u64;
    if listing.n_frames() == 0 || n_atoms <= room {
        return Ok(());
    }
    let expected = format!("at most {room} atoms, as many as {size} bytes can hold");
    let fault = Fault::bad(trr::AT_ATOMS, expected, n_atoms);
    Err(Error::damaged(path, Some(0), 0, size, fault))
}

fn unknown(path: &Path, head: &[u8]) -> Error {
    /// Enough for the magic numbers of other formats.
    const SHOWN: usize = 12;
    // HDF5 files are opened elsewhere: those that come here are none.
    let known = format!("{} or HDF5", Format::ALL.map(Format::name).join(", "));
    if head.is_empty() {
        return Error::Damaged {
            path: path.to_owned(),
            frame: None,
            offset: 0,
            expected: format!("a trajectory ({known})"),
            found: "an empty file".into(),
        };
    }
    Error::Unsupported {
        path: path.to_owned(),
        what: format!(
            "expected {known}, found a file that begins with \"{}\"",
            head[..head.len().min(SHOWN)].escape_ascii()
        ),
    }
}

impl Index {
    fn computed(source: &dyn Source, size: u64, opened: regular::Opened) -> Result<Index> {
        Ok(Index {
            fingerprint: Fingerprint::of(source, size)?,
            layout: opened.layout,
            frames: opened.frames,
            notes: opened.notes,
            damaged: Vec::new(),
            origin: Origin::Computed,
            file: None,
            traffic: source.traffic(),
            moments: OnceLock::new(),
        })
    }

    fn from_listed(source: &dyn Source, opened: listed::Opened) -> Index {
        let notes = match opened.origin {
            Origin::Sampled => Vec::new(),
            _ => notes::of(&opened.listing),
        };
        let store::Listing {
            layout,
            fingerprint,
            borders,
            damaged,
            ..
        } = opened.listing;
        Index {
            layout,
            frames: Frames::Listed(borders),
            fingerprint,
            notes,
            damaged,
            origin: opened.origin,
            file: opened.file,
            traffic: source.traffic(),
            moments: opened.moments.map_or_else(OnceLock::new, OnceLock::from),
        }
    }

    pub fn n_frames(&self) -> u64 {
        self.frames.len()
    }

    pub fn n_atoms(&self) -> usize {
        self.layout.n_atoms()
    }

    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Offset and size of a frame, in bytes.
    ///
    /// # Panics
    /// Where there is no such frame.
    pub fn extent(&self, frame: u64) -> (u64, u64) {
        self.frames.extent(frame)
    }

    /// The content that the index was made of.
    pub fn fingerprint(&self) -> &Fingerprint {
        &self.fingerprint
    }

    /// What has been read of the trajectory to find its frames or recognise it.
    pub fn traffic(&self) -> Traffic {
        self.traffic
    }

    /// What a user should be told when the file is opened.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Frames that a scan found to be damaged; none where frames are found by arithmetic.
    pub fn damaged(&self) -> &[u64] {
        &self.damaged
    }

    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// Where the index is saved; nothing where it is not.
    pub fn index_file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Time and step of every frame of `source`, the file that was indexed. They are read when
    /// first asked for.
    ///
    /// # Errors
    /// What reading the trajectory gives, where the saved index has gone or is damaged.
    pub fn times(&self, source: &dyn Source) -> Result<Times> {
        match &self.layout {
            Layout::Xtc { .. } => self.framed_times(source, &framed::Xtc),
            Layout::Trr { .. } => self.framed_times(source, &framed::Trr),
            Layout::Dcd(layout) => Ok(regular::dcd_times(layout, self.n_frames())),
            Layout::Netcdf3(layout) => regular::netcdf_times(source, layout, self.n_frames()),
            Layout::Dlpoly(layout) => {
                let size = self.fingerprint.size();
                match &self.frames {
                    Frames::Listed(_) => self
                        .listed_times(|| dlpoly::read_moments(source, layout, size, &self.frames)),
                    _ => dlpoly::regular_times(source, layout, size, self.n_frames()),
                }
            }
        }
    }

    fn framed_times(&self, source: &dyn Source, format: &dyn Framed) -> Result<Times> {
        self.listed_times(|| {
            listed::read_moments(source, format, self.fingerprint.size(), &self.frames)
        })
    }

    /// The times in memory, else those of the saved index, else what `read` gives.
    fn listed_times(&self, read: impl FnOnce() -> Result<store::Moments>) -> Result<Times> {
        let saved = |file| store::read_moments(file, &self.fingerprint, self.n_frames());
        let moments = match self.moments.get() {
            Some(moments) => moments,
            None => {
                let moments = match self.file.as_deref().and_then(saved) {
                    Some(moments) => moments,
                    None => read()?,
                };
                self.moments.get_or_init(|| moments)
            }
        };
        Ok(Times {
            times: moments.times.clone(),
            steps: moments.steps.clone(),
        })
    }
}
