//! Saved index: a cache that is rebuilt if it does not match the file.
//!
//! ```text
//! byte  0  "paceline"
//!       8  version               u32   all numbers little-endian
//!      12  layout's length       u32
//!      16  fingerprint           u64 size of the file, u128 hash
//!      40  frames n              u64
//!      48  damaged frames d      u64
//!      56  size of the cut frame u64   0 if none is known
//!      64  numbers of atoms a    u64   n if they vary, else 0
//!      72  samples s             u64   0 if an object store identifies the file
//!      80  layout
//!          borders               (n + 1) u64
//!          damaged frames        d u64
//!          numbers of atoms      a u64
//!          samples               s u64 XXH3 of each sample of the file
//!          checksum              u64   XXH3 of all bytes before
//!          times                 n f64, ps
//!          steps                 n i64
//!          checksum              u64   XXH3 of times and steps, seeded with the first checksum
//! ```
//!
//! The part after the first checksum is read only when times are requested.

use std::fs::{self, File, Permissions};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use xxhash_rust::xxh3::xxh3_64_with_seed as checksum;

use crate::fingerprint::Fingerprint;
use crate::format_interface::{Layout, Times};
use crate::os_calls;
use crate::source::{FileSource, Source};

const MAGIC: [u8; 8] = *b"paceline";
const VERSION: u32 = 5;
const HEAD_LEN: usize = 80;
const CHECKSUM_LEN: u64 = 8;
/// Size of a frame's time alone, and size of its time and step together, bytes.
const TIME_LEN: usize = 8;
const MOMENT_LEN: u64 = 16;
/// Time for which a folder with at least `MANY` entries is not searched again for temporary files
/// of killed processes. If it were searched for each saved index, the time to save many indexes
/// would grow as the square of their number.
const SEARCHED_FOR: Duration = Duration::from_secs(1);
const MANY: usize = 128;
/// Number of random digits at the end of the name of a temporary file.
const RANDOM_DIGITS: usize = 16;

/// Frame offsets of a file, found by a scan.
#[derive(Debug, Clone, PartialEq)]
pub struct Listing {
    pub layout: Layout,
    pub fingerprint: Fingerprint,
    /// Hash of each sample of the file; empty if an object store identifies the file.
    pub digests: Vec<u64>,
    /// Offset of each frame, and end of the last one.
    pub borders: Vec<u64>,
    /// Numbers of the damaged frames: entries of `borders` that are not complete frames.
    pub damaged: Vec<u64>,
    /// Number of atoms of each frame, if it varies; else empty.
    pub atom_counts: Vec<u32>,
    /// Size that the truncated last frame states in its header. `None` if no frame is truncated, if
    /// the header of the truncated frame is incomplete, or in text formats.
    pub cut: Option<u64>,
}

impl Listing {
    pub fn n_frames(&self) -> u64 {
        self.borders.len() as u64 - 1
    }

    /// Check the invariants of a listing.
    fn is_sound(&self) -> bool {
        let ends_within = |&end: &u64| end <= self.fingerprint.size;
        self.borders.first() == Some(&self.layout.start())
            && self.borders.last().is_some_and(ends_within)
            && self.borders.is_sorted_by(|a, b| a < b)
            && self.damaged.is_sorted_by(|a, b| a < b)
            && [0, self.n_frames()].contains(&(self.atom_counts.len() as u64))
            && self
                .damaged
                .last()
                .is_none_or(|&last| last < self.n_frames())
    }
}

/// Save an index atomically: write a temporary file, and rename it to `file`.
pub fn write(file: &Path, listing: &Listing, times: &Times) -> io::Result<()> {
    fs::create_dir_all(folder_of(file))?;
    let (file, permissions) = resolve_target(file)?;
    remove_leftovers(&file);
    let temporary = temporary_name(&file);
    // The temporary file stays open, and therefore locked, until it is renamed.
    let written = write_new(&temporary, listing, times, permissions)
        .and_then(|_open| fs::rename(&temporary, &file));
    if written.is_err() {
        // The temporary file may not exist. An error here is ignored, since the first error is more
        // informative.
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// Return the resolved path of a file, and its permissions if it exists; an error if the path is
/// not a file.
fn resolve_target(file: &Path) -> io::Result<(PathBuf, Option<Permissions>)> {
    match fs::symlink_metadata(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok((file.to_owned(), None)),
        Err(error) => Err(error),
        Ok(_) => {
            let metadata = fs::metadata(file)?;
            if !metadata.is_file() {
                return Err(io::Error::other("not a regular file"));
            }
            Ok((fs::canonicalize(file)?, Some(metadata.permissions())))
        }
    }
}

/// Create an unpredictable name, from random keys of the system.
fn temporary_name(file: &Path) -> PathBuf {
    let number = RandomState::new().hash_one(std::process::id());
    let mut name = file.as_os_str().to_owned();
    name.push(format!(".{number:0RANDOM_DIGITS$x}"));
    PathBuf::from(name)
}

/// Return the folder of a file, as a path that can be opened.
pub fn folder_of(file: &Path) -> &Path {
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Delete the temporary files of killed processes: files that no running process has locked.
///
/// This may also delete a new file that is not locked yet. The process that created it then saves
/// its index at the next of its paths.
fn remove_leftovers(file: &Path) {
    static SEARCHED: Mutex<Option<(PathBuf, Instant)>> = Mutex::new(None);
    // Other threads wait for the search, instead of searching the folder, too.
    let mut searched = SEARCHED.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = folder_of(file);
    if let Some((known, at)) = &*searched
        && known == folder
        && at.elapsed() < SEARCHED_FOR
    {
        return;
    }
    let name = file.file_name().unwrap_or_default().as_encoded_bytes();
    let mut n_entries = 0;
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        n_entries += 1;
        let regular = entry.file_type().is_ok_and(|kind| kind.is_file());
        if regular
            && is_temporary(entry.file_name().as_encoded_bytes(), name)
            && is_abandoned(&entry.path())
        {
            // Another process may have deleted it already.
            let _ = fs::remove_file(entry.path());
        }
    }
    if n_entries >= MANY {
        *searched = Some((folder.to_owned(), Instant::now()));
    }
}

/// Return true if `name` has the form of names that [`temporary_name`] creates for the file `of`.
fn is_temporary(name: &[u8], of: &[u8]) -> bool {
    let digits = name
        .strip_prefix(of)
        .and_then(|rest| rest.strip_prefix(b"."));
    digits.is_some_and(|digits| {
        digits.len() == RANDOM_DIGITS && digits.iter().all(u8::is_ascii_hexdigit)
    })
}

/// Return true if no process has locked the file.
fn is_abandoned(path: &Path) -> bool {
    os_calls::open_unless_link(path).is_ok_and(|file| file.try_lock().is_ok())
}

fn write_new(
    file: &Path,
    listing: &Listing,
    times: &Times,
    permissions: Option<Permissions>,
) -> io::Result<File> {
    let mut file = os_calls::create_new(file, permissions.is_some())?;
    // The file is locked until it is closed. On a file system without locks, temporary files of
    // killed processes remain.
    let _ = file.try_lock();
    let first = first_part(listing);
    let first_sum = checksum(&first, 0);
    file.write_all(&first)?;
    file.write_all(&first_sum.to_le_bytes())?;
    let second = second_part(times);
    file.write_all(&second)?;
    file.write_all(&checksum(&second, first_sum).to_le_bytes())?;
    if let Some(permissions) = permissions {
        file.set_permissions(permissions)?;
    }
    file.sync_all()?;
    Ok(file)
}

fn first_part(listing: &Listing) -> Vec<u8> {
    let layout = listing.layout.to_bytes();
    let mut bytes = MAGIC.to_vec();
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend((layout.len() as u32).to_le_bytes());
    bytes.extend(listing.fingerprint.size.to_le_bytes());
    bytes.extend(listing.fingerprint.hash.to_le_bytes());
    bytes.extend(listing.n_frames().to_le_bytes());
    bytes.extend((listing.damaged.len() as u64).to_le_bytes());
    bytes.extend(listing.cut.unwrap_or(0).to_le_bytes());
    bytes.extend((listing.atom_counts.len() as u64).to_le_bytes());
    bytes.extend((listing.digests.len() as u64).to_le_bytes());
    bytes.extend(layout);
    for number in listing.borders.iter().chain(&listing.damaged) {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    for &count in &listing.atom_counts {
        bytes.extend(u64::from(count).to_le_bytes());
    }
    for digest in &listing.digests {
        bytes.extend(digest.to_le_bytes());
    }
    bytes
}

fn second_part(times: &Times) -> Vec<u8> {
    let mut bytes = Vec::new();
    for time in &times.times {
        bytes.extend_from_slice(&time.to_le_bytes());
    }
    for step in &times.steps {
        bytes.extend_from_slice(&step.to_le_bytes());
    }
    bytes
}

/// Read the listing in `file`; `None` if it is not a complete index of this version and layout.
pub fn read(file: &Path, layout: &Layout) -> Option<Listing> {
    let source = FileSource::open(file).ok()?;
    let head = Head::read(&source)?;
    let first = read_checked(&source, 0, head.first_len()?, 0)?;
    // `first` begins with the header again, which another process may have changed in the meantime.
    if Head::parse(first.get(..HEAD_LEN)?)? != head {
        return None;
    }
    let (saved_layout, numbers) = first[HEAD_LEN..].split_at_checked(head.layout_len as usize)?;
    if saved_layout != layout.to_bytes() {
        return None;
    }
    let numbers = numbers.chunks_exact(8);
    let mut borders: Vec<u64> = numbers
        .map(|number| u64::from_le_bytes(array(number)))
        .collect();
    let digests = borders.split_off(borders.len().checked_sub(head.n_digests as usize)?);
    let atom_counts = borders.split_off(borders.len().checked_sub(head.n_counts as usize)?);
    let atom_counts = atom_counts.into_iter().map(u32::try_from);
    let damaged = borders.split_off(borders.len().checked_sub(head.n_damaged as usize)?);
    let listing = Listing {
        layout: layout.clone(),
        fingerprint: head.fingerprint,
        digests,
        borders,
        damaged,
        atom_counts: atom_counts.collect::<Result<_, _>>().ok()?,
        cut: Some(head.cut).filter(|&size| size > 0),
    };
    listing.is_sound().then_some(listing)
}

/// Return the fingerprint of the trajectory whose index is saved in `file`; `None` if `file` is not
/// an index.
pub fn fingerprint_of(file: &Path) -> Option<Fingerprint> {
    let source = FileSource::open(file).ok()?;
    Some(Head::read(&source)?.fingerprint)
}

/// Read times and steps of all `n_frames` frames of a trajectory from its saved index `file`.
/// Return `None` if `file` is no longer the index of a trajectory with this fingerprint.
pub fn read_times(file: &Path, fingerprint: &Fingerprint, n_frames: u64) -> Option<Times> {
    let source = FileSource::open(file).ok()?;
    let head = Head::read(&source)?;
    if head.fingerprint != *fingerprint || head.n_frames != n_frames {
        return None;
    }
    let start = head.first_len()?;
    let mut seed = [0; CHECKSUM_LEN as usize];
    source.read_at(start - CHECKSUM_LEN, &mut seed).ok()?;
    let len = head.second_len()?;
    let second = read_checked(&source, start, len, u64::from_le_bytes(seed))?;
    let (times, steps) = second.split_at(second.len() / MOMENT_LEN as usize * TIME_LEN);
    let times = times.chunks_exact(TIME_LEN);
    let steps = steps.chunks_exact(8);
    Some(Times {
        times: times.map(|time| f64::from_le_bytes(array(time))).collect(),
        steps: steps.map(|step| i64::from_le_bytes(array(step))).collect(),
    })
}

/// Read `len` bytes from `start` on, and check the checksum at their end. Return the bytes before
/// the checksum.
fn read_checked(source: &FileSource, start: u64, len: u64, seed: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(len).ok()?];
    source.read_at(start, &mut bytes).ok()?;
    let content = bytes.len().checked_sub(CHECKSUM_LEN as usize)?;
    let expected = u64::from_le_bytes(array(&bytes[content..]));
    bytes.truncate(content);
    (checksum(&bytes, seed) == expected).then_some(bytes)
}

/// Numbers at the beginning of a saved index.
#[derive(Debug, PartialEq)]
struct Head {
    layout_len: u32,
    fingerprint: Fingerprint,
    n_frames: u64,
    n_damaged: u64,
    cut: u64,
    /// Number of entries of atom counts: 0, or one per frame.
    n_counts: u64,
    n_digests: u64,
}

impl Head {
    /// Read the header. Before memory is allocated, check that the lengths in the header match the
    /// size of the file.
    fn read(source: &FileSource) -> Option<Head> {
        let mut bytes = [0; HEAD_LEN];
        source.read_at(0, &mut bytes).ok()?;
        let head = Head::parse(&bytes)?;
        let stated = head.first_len()?.checked_add(head.second_len()?)?;
        (source.size().ok()? == stated).then_some(head)
    }

    fn parse(bytes: &[u8]) -> Option<Head> {
        let number = |at: usize| u64::from_le_bytes(array(&bytes[at..at + 8]));
        let half = |at: usize| u32::from_le_bytes(array(&bytes[at..at + 4]));
        if bytes[..8] != MAGIC || half(8) != VERSION {
            return None;
        }
        Some(Head {
            layout_len: half(12),
            fingerprint: Fingerprint {
                size: number(16),
                hash: u128::from_le_bytes(array(&bytes[24..40])),
            },
            n_frames: number(40),
            n_damaged: number(48),
            cut: number(56),
            n_counts: number(64),
            n_digests: number(72),
        })
    }

    fn first_len(&self) -> Option<u64> {
        let numbers = self.n_frames.checked_add(1)?.checked_add(self.n_damaged)?;
        let numbers = numbers.checked_add(self.n_counts)?;
        let numbers = numbers.checked_add(self.n_digests)?;
        let fixed = HEAD_LEN as u64 + u64::from(self.layout_len) + CHECKSUM_LEN;
        numbers.checked_mul(8)?.checked_add(fixed)
    }

    fn second_len(&self) -> Option<u64> {
        self.n_frames
            .checked_mul(MOMENT_LEN)?
            .checked_add(CHECKSUM_LEN)
    }
}

/// Convert `bytes` to an array. Callers pass slices of `N` bytes.
fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.try_into().unwrap_or([0; N])
}
