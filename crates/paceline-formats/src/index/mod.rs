//! Frame index: offset, size and encoding of each frame of a file.
//!
//! If frames have equal sizes, their offsets are computed. Other files are scanned, header by
//! header or line by line. The result of the scan is saved, and identified by the content of the
//! file. When the file is opened again, only a few pieces of it are read, to check that it is
//! still the same.
//!
//! Every byte of a scanned file up to the end of the last complete frame belongs to an entry of the
//! index: to a frame, or to damaged bytes up to the next valid header. For damaged bytes, the
//! decoder returns an error. No frame is lost, and later frames remain readable.

mod cache;
pub mod fixed_size;
pub(crate) mod header_scan;
pub(crate) mod scanned;
#[cfg(test)]
mod tests;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use xxhash_rust::xxh3::xxh3_128;

use self::cache::Listing;
use crate::error::{Error, Fault, Result};
use crate::fingerprint::{Fingerprint, Samples};
use crate::format_interface::{Format, Frames, HEAD_LEN, Layout, Opened, Registry, unsupported};
use crate::source::{Source, Traffic};

pub use crate::format_interface::{OpenOptions, Origin, Progress, Times};

/// Return the paths at which the index of the trajectory `path` may be saved: next to the
/// trajectory, and in the cache folder of the user.
pub fn index_files(path: &Path, cache: Option<&Path>) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let target = path.canonicalize();
    let path = match &target {
        Ok(target) if is_descriptor(path) => target,
        _ => path,
    };
    if let (Some(name), false) = (path.file_name(), is_descriptor(path)) {
        files.push(path.with_file_name(index_name(name)));
    }
    if let (Some(cache), Ok(path)) = (cache, target) {
        files.push(object_index_file(&path, cache));
    }
    files
}

/// Return the name of the index that is saved next to the trajectory `name`.
pub fn index_name(name: &OsStr) -> OsString {
    let mut hidden = OsString::from(".");
    hidden.push(name);
    hidden.push(".paceline-index");
    hidden
}

/// Return the path of an index in the cache folder. `path` is the resolved path of the trajectory,
/// or its address in an object store.
pub fn object_index_file(path: &Path, cache: &Path) -> PathBuf {
    let hash = xxh3_128(path.as_os_str().as_encoded_bytes());
    cache.join(format!("{hash:032x}.paceline-index"))
}

/// Return true if `source` is an object in an object store, and `file` is an index with the
/// fingerprint of this object. The rest of `file` is not checked.
pub fn is_index_of(file: &Path, source: &dyn Source) -> bool {
    let fingerprint = source.size().ok().zip(source.identity());
    let fingerprint = fingerprint.map(|(size, identity)| Fingerprint::of_identity(size, identity));
    fingerprint.is_some() && cache::fingerprint_of(file) == fingerprint
}

/// Return true if a path is the system's name for an open file, such as `/dev/stdin`. No index can
/// be saved next to such a path.
fn is_descriptor(path: &Path) -> bool {
    let folder = cache::folder_of(path).canonicalize();
    folder.is_ok_and(|folder| folder == Path::new("/dev") || folder.starts_with("/proc"))
}

/// Frame index of one file.
pub struct Index {
    opened: Opened,
    registry: &'static Registry,
    traffic: Traffic,
    /// Times, after they were read or scanned.
    times: OnceLock<Times>,
}

/// Recognise the format of a file by its first bytes; `None` if it is not in the registry.
///
/// # Errors
/// Errors of the source.
pub fn detect(source: &dyn Source, registry: &Registry) -> Result<Option<&'static dyn Format>> {
    Ok(registry.detect(&read_head(source, source.size()?)?))
}

/// Read the bytes that determine the format of a file of `size` bytes.
fn read_head(source: &dyn Source, size: u64) -> Result<Vec<u8>> {
    let mut head = vec![0; size.min(HEAD_LEN as u64) as usize];
    source.read_at(0, &mut head)?;
    Ok(head)
}

/// Open a trajectory: recognise its format, and find its frames.
///
/// # Errors
/// [`Error::Unsupported`] for an unrecognised format, [`Error::Damaged`] if the header of the first
/// frame cannot be read, [`Error::Interrupted`] if the caller requested a stop, and errors of the
/// source.
pub fn open(source: &dyn Source, options: &OpenOptions<'_>) -> Result<Index> {
    let size = source.size()?;
    let head = read_head(source, size)?;
    let Some(format) = options.registry.detect(&head) else {
        return Err(unknown(source.path(), &head, options.registry));
    };
    if options.units.is_some() && !format.abilities().has_units {
        let mut others = options.registry.names(|abilities| abilities.has_units);
        let last = others.pop().unwrap_or_default();
        others.insert(0, "HDF5");
        let what = format!(
            "units= (--units) is for {} and {last} files, and this one is {}",
            others.join(", "),
            format.name()
        );
        return Err(unsupported(source.path(), what));
    }
    if options.n_atoms.is_none() && format.abilities().needs_n_atoms {
        let what = format!(
            "{} files do not state their number of atoms: give a topology, or n_atoms=",
            format.name()
        );
        return Err(unsupported(source.path(), what));
    }
    let mut opened = format.open(source, size, options)?;
    Ok(Index {
        registry: options.registry,
        traffic: source.traffic(),
        times: opened
            .times
            .take()
            .map(|times| scaled(&opened.layout, times))
            .map_or_else(OnceLock::new, OnceLock::from),
        opened,
    })
}

fn unknown(path: &Path, head: &[u8], registry: &Registry) -> Error {
    /// Number of bytes in the message, enough for the magic numbers of other formats.
    const SHOWN: usize = 12;
    // HDF5 is not in the registry, since other code opens HDF5 files.
    let known = format!("{} or HDF5", registry.names(|_| true).join(", "));
    if head.is_empty() {
        return Error::Damaged {
            path: path.to_owned(),
            frame: None,
            offset: 0,
            expected: format!("a trajectory ({known})"),
            found: "an empty file".into(),
        };
    }
    let begin = head[..head.len().min(SHOWN)].escape_ascii();
    let advice = match head {
        [0x1f, 0x8b, ..] => "; it is compressed with gzip: unpack it first",
        [b'B', b'Z', b'h', ..] => "; it is compressed with bzip2: unpack it first",
        [0x89, b'H', b'D', b'F', ..] => {
            "; it is an HDF5 file: give it an ending that says so, such as .h5md"
        }
        _ => "",
    };
    unsupported(
        path,
        format!("expected {known}, found a file that begins with \"{begin}\"{advice}"),
    )
}

/// Convert the times of a scan to ps.
fn scaled(layout: &Layout, found: Times) -> Times {
    let times = found.times.iter().map(|&time| layout.time_of(time));
    Times {
        times: times.collect(),
        steps: found.steps,
    }
}

impl Index {
    /// Number of frames.
    pub fn n_frames(&self) -> u64 {
        self.opened.frames.len()
    }

    /// Number of atoms in a frame.
    pub fn n_atoms(&self) -> usize {
        self.opened.layout.n_atoms()
    }

    /// Layout of the frames, which determines how they are decoded.
    pub fn layout(&self) -> &Layout {
        &self.opened.layout
    }

    /// Return offset and size of a frame, bytes.
    ///
    /// # Panics
    /// If the frame does not exist.
    pub fn extent(&self, frame: u64) -> (u64, u64) {
        self.opened.frames.extent(frame)
    }

    /// Number of atoms of each frame, if it varies; 0 if unknown in a damaged frame.
    pub fn atom_counts(&self) -> Option<&[u32]> {
        self.opened.atom_counts.as_deref()
    }

    /// Return a message that describes how the number of atoms varies, if it does.
    pub fn varying(&self) -> Option<String> {
        self.atom_counts().and_then(varying)
    }

    /// Return the layout of one frame. It is the common layout unless the number of atoms varies.
    ///
    /// # Errors
    /// [`Error::Damaged`] if the bytes of the frame are too few for its atoms.
    ///
    /// # Panics
    /// If the frame does not exist.
    pub fn layout_of(&self, source: &dyn Source, frame: u64) -> Result<Layout> {
        let (start, size) = self.extent(frame);
        let layout = self.layout();
        let count = self
            .atom_counts()
            .map_or(0, |counts| counts[frame as usize]);
        if count == 0 {
            return Ok(layout.clone());
        }
        layout.of_frame(count as usize, size).ok_or_else(|| {
            let fault = Fault::bad(0, format!("atoms that {size} bytes can hold"), count);
            Error::damaged(source.path(), Some(frame), start, size, fault)
        })
    }

    /// Fingerprint of the indexed content.
    pub fn fingerprint(&self) -> &Fingerprint {
        &self.opened.samples.fingerprint
    }

    /// Return the samples with which other processes verify the parts of the file that they read.
    pub fn samples(&self) -> &Samples {
        &self.opened.samples
    }

    /// Check that `source` still begins with the indexed content.
    ///
    /// # Errors
    /// [`Error::Changed`] if the content has changed.
    pub fn verify(&self, source: &dyn Source) -> Result<()> {
        self.registry.verify(source, self.fingerprint())
    }

    /// Return how many bytes and calls were needed to find the frames or to verify the file.
    pub fn traffic(&self) -> Traffic {
        self.traffic
    }

    /// Return the warnings about the file, a sentence each.
    pub fn notes(&self) -> &[String] {
        &self.opened.notes
    }

    /// Numbers of damaged frames that a scan found; empty if frame offsets were computed.
    pub fn damaged(&self) -> &[u64] {
        &self.opened.damaged
    }

    /// Return how the frames were found.
    pub fn origin(&self) -> Origin {
        self.opened.origin
    }

    /// Return the path of the saved index, or `None` if it is not saved.
    pub fn index_file(&self) -> Option<&Path> {
        self.opened.file.as_deref()
    }

    /// Return time and step of every frame of `source`, the indexed file. If the file was scanned,
    /// times and steps are read only once.
    ///
    /// # Errors
    /// Errors of reading the trajectory, if the saved index is missing or damaged.
    pub fn times(&self, source: &dyn Source) -> Result<Times> {
        let Opened {
            layout,
            frames,
            file,
            ..
        } = &self.opened;
        let fingerprint = self.fingerprint();
        let read = || layout.times(source, fingerprint.size(), frames);
        let Frames::Listed(_) = frames else {
            return read();
        };
        if let Some(times) = self.times.get() {
            return Ok(times.clone());
        }
        let saved = |file| cache::read_times(file, fingerprint, frames.len());
        let times = match file.as_deref().and_then(saved) {
            Some(times) => scaled(layout, times),
            None => read()?,
        };
        Ok(self.times.get_or_init(|| times).clone())
    }

    /// Return the header of a file to which `n_frames` of these frames are copied, starting at
    /// frame `first`. The header is empty in formats without a file header. `source` is the indexed
    /// file.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if these frames cannot be copied into another file, and errors of the
    /// source.
    pub fn head(&self, source: &dyn Source, first: u64, n_frames: u64) -> Result<Vec<u8>> {
        let layout = self.layout();
        if let Some(head) = layout.head(source, first, n_frames)? {
            return Ok(head);
        }
        let mut others = self.registry.names(|abilities| abilities.appends);
        let last = others.pop().unwrap_or_default();
        let what = format!(
            "frames of {} cannot be copied as bytes, only those of {} and {last}",
            layout.name(),
            others.join(", ")
        );
        Err(unsupported(source.path(), what))
    }
}

// Warnings when a file is opened.

/// Maximum number of damaged frames that are listed one by one.
const N_LISTED: usize = 5;

/// Return the warning about zeros where the last frame, number `frame`, should begin.
pub(crate) fn hole_warning(frame: u64, offset: u64) -> String {
    format!("frame {frame} (byte {offset}) was never finished: it begins with zeros")
}

/// Return the warning that the last frame, number `frame`, has only `present` of `stated` bytes.
pub(crate) fn cut_warning(frame: u64, offset: u64, present: u64, stated: Option<u64>) -> String {
    cut_where(
        frame,
        offset,
        &match stated {
            Some(stated) => format!("{present} of {stated} bytes are there"),
            None => format!("{present} bytes are there, not even a whole header"),
        },
    )
}

/// Return the warning that the last frame has too few lines.
fn cut_lines(frame: u64, offset: u64) -> String {
    let there = "lines are missing at its end, or the last one has no line feed";
    cut_where(frame, offset, there)
}

fn cut_where(frame: u64, offset: u64, there: &str) -> String {
    let before = match frame {
        0 => "there is no frame before it".to_owned(),
        1 => "the frame before it can be read".to_owned(),
        _ => format!("the {frame} frames before it can be read"),
    };
    format!("frame {frame} (byte {offset}) is cut: {there}; {before}")
}

/// Return the warnings about frames that a scan found.
fn warnings_of(listing: &Listing) -> Vec<String> {
    let mut notes = Vec::new();
    let (n_frames, size) = (listing.n_frames(), listing.fingerprint.size());
    let end = listing.borders.last().copied().unwrap_or(0);
    if end < size {
        notes.push(match listing.layout.format().abilities().is_text {
            true => cut_lines(n_frames, end),
            false => cut_warning(n_frames, end, size - end, listing.cut),
        });
    }
    if !listing.damaged.is_empty() {
        notes.push(damaged(&listing.damaged, &listing.borders));
    }
    notes.extend(varying(&listing.atom_counts));
    notes
}

/// Return the warning that the number of atoms varies, with the first change; `None` if it is
/// constant.
fn varying(atom_counts: &[u32]) -> Option<String> {
    let known = || (0..).zip(atom_counts).filter(|&(_, &n)| n != 0);
    let (first, &n_atoms) = known().next()?;
    let (other, n_others) = known().find(|&(_, &n)| n != n_atoms)?;
    Some(format!(
        "the number of atoms varies: {n_atoms} in frame {first}, {n_others} in frame {other}"
    ))
}

fn damaged(frames: &[u64], borders: &[u64]) -> String {
    let place = |&frame: &u64| format!("frame {frame} (byte {})", borders[frame as usize]);
    let listed: Vec<String> = frames.iter().take(N_LISTED).map(place).collect();
    let more = match frames.len().saturating_sub(N_LISTED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let are = if frames.len() == 1 { "is" } else { "are" };
    format!(
        "{} of {} frames {are} damaged: {}{more}{}",
        frames.len(),
        borders.len() - 1,
        listed.join(", "),
        several_in_one(frames, borders).unwrap_or_default()
    )
}

/// Return the note that a damaged entry, which counts as one frame, is as long as several frames;
/// `None` if no damaged entry is so long.
fn several_in_one(frames: &[u64], borders: &[u64]) -> Option<String> {
    let size = |frame: usize| borders[frame + 1] - borders[frame];
    let n_frames = borders.len() - 1;
    let is_whole = |&frame: &usize| frames.binary_search(&(frame as u64)).is_err();
    let longest = (0..n_frames).filter(is_whole).map(size).max()?;
    let followed = frames.iter().map(|&frame| frame as usize);
    let (frame, about) = followed
        .filter(|frame| frame + 1 < n_frames)
        .map(|frame| (frame, (size(frame) + longest / 2) / longest.max(1)))
        .find(|&(_, about)| about > 1)?;
    Some(format!(
        "; frame {frame} is as long as {about} frames: if it was so many, later ones are numbered too \
         low, and their times are right"
    ))
}
