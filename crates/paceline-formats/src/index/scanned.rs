//! Index of a format whose frames must be searched. It comes from a saved index, or from a scan.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use super::cache::{self, Listing};
use super::header_scan::ScanProgress;
use super::header_scan::{Chain, Framed, Place, Scan, Stop, Trajectory, Walker, scan};
use super::warnings_of;
use crate::disk_cache::CachedSource;
use crate::error::{Error, Fault, Result};
use crate::fingerprint::Samples;
use crate::format_interface::{Frames, Layout, OpenOptions, Opened, Origin, Times};
use crate::source::Source;

/// Scanner of one file for its frames.
pub trait Scanner {
    /// Find all frames of `source`, the scanned file. If the frames before the offset `end` are
    /// known, find only those from `end` on, and return `None` if no frame begins at `end`.
    ///
    /// # Errors
    /// [`Error::Interrupted`] if the caller requested a stop, and errors of the source.
    fn scan(&self, source: &dyn Source, end: Option<u64>) -> Result<Option<Scan>>;

    /// Approximate size of a frame, bytes.
    fn frame_size(&self) -> u64;

    /// Find consecutive frames in `bytes` bytes in the middle of the file. Return the frames and
    /// the end of the last one, or `None` if there are none. This method is called only for a file
    /// that is not scanned completely.
    ///
    /// # Errors
    /// As [`Scanner::scan`].
    fn sample(&self, bytes: u64) -> Result<Option<(Chain, u64)>>;
}

/// Load the saved index of the first `size` bytes of `source`. If the saved index covers fewer
/// bytes, extend it; without one, scan the file. A new index is saved if possible, unless it is a
/// sample.
///
/// # Errors
/// [`Error::Changed`] if the bytes changed during the scan, and errors of [`super::open`].
pub fn open(
    source: &dyn Source,
    format: &dyn Framed,
    layout: impl Fn(usize) -> Layout,
    size: u64,
    options: &OpenOptions<'_>,
) -> Result<Opened> {
    let (file, first) = begin(source, format, size)?;
    let scanner = HeaderScanner {
        file,
        first,
        options,
    };
    load_or_scan(source, layout(file.n_atoms), size, options, &scanner)
}

/// Scanner of a file in which each frame begins with a header.
struct HeaderScanner<'a> {
    file: Trajectory<'a>,
    first: Place,
    options: &'a OpenOptions<'a>,
}

impl Scanner for HeaderScanner<'_> {
    fn scan(&self, source: &dyn Source, end: Option<u64>) -> Result<Option<Scan>> {
        let file = Trajectory {
            source,
            ..self.file
        };
        let place = match end {
            Some(end) => Walker::new(file, &|_| Ok(())).place(end)?,
            None => Some(self.first),
        };
        let options = self.options;
        let scan_from = |place| scan(file, place, options.n_threads, options.progress);
        place.map(scan_from).transpose()
    }

    fn frame_size(&self) -> u64 {
        self.first.header.size
    }

    /// Find a chain of frames in `bytes` bytes around the middle of the file, and its end.
    ///
    /// A frame counts only if it ends at another header, since part of a frame can look like a
    /// header.
    fn sample(&self, bytes: u64) -> Result<Option<(Chain, u64)>> {
        let file = self.file;
        let watch = ScanProgress::new(self.options.progress, file.size);
        let reached = |at| watch.reached(at);
        let mut walker = Walker::new(file, &reached);
        let mut from = (file.size - bytes) / 2;
        let until = from + bytes;
        while let Some(place) = walker.find(from, until)? {
            let mut chain = Chain::default();
            let end = match walker.walk(place, until, &mut chain)? {
                Stop::Reached(next) | Stop::Lost(next) => next.at,
                Stop::End => file.size,
            };
            if !chain.starts.is_empty() {
                return Ok(Some((chain, end)));
            }
            from = place.at + 1;
        }
        Ok(None)
    }
}

/// Load the saved index of a file with this layout. If there is none, scan the file, and save the
/// index.
///
/// # Errors
/// [`Error::Changed`] if the bytes changed in the meantime, and errors of `scanner`.
pub fn load_or_scan(
    source: &dyn Source,
    layout: Layout,
    size: u64,
    options: &OpenOptions<'_>,
    scanner: &dyn Scanner,
) -> Result<Opened> {
    let saved = match options.refresh {
        true => None,
        false => load(source, size, &layout, options)?,
    };
    let grown = match saved {
        Some(Saved {
            path,
            listing,
            samples,
        }) if listing.fingerprint.size() == size => {
            let (listing, times) = of_store(listing, &samples, &path);
            return Ok(opened(listing, samples, times, Origin::Loaded, Some(path)));
        }
        grown => grown,
    };
    let samples = options.registry.samples(source, size)?;
    if let Some((chain, end)) = sample(size, options, scanner)? {
        return Ok(sampled(layout, samples, chain, end));
    }
    let known = grown.and_then(Known::of);
    let (origin, found) = match in_cache(source, &samples, options, scanner) {
        Some(cached) => find(known, scanner, &cached)?,
        None => find(known, scanner, source)?,
    };
    // If the bytes changed during the scan, the index would otherwise be saved with the fingerprint
    // of other bytes, and loaded whenever the file is opened.
    options.registry.verify(source, &samples.fingerprint)?;
    let mut chain = found.chain;
    let atom_counts = varying(&mut chain, &layout);
    let (borders, times) = borders_and_times(chain, found.end);
    let listing = Listing {
        layout,
        fingerprint: samples.fingerprint,
        digests: samples.digests().to_vec(),
        borders,
        damaged: found.damaged,
        atom_counts,
        cut: found.cut,
    };
    let saved_in = |path: &&PathBuf| cache::write(path, &listing, &times).is_ok();
    let file = options.index_files.iter().find(saved_in).cloned();
    Ok(opened(listing, samples, Some(times), origin, file))
}

/// If the index was made from a copy of the object on a disk, save it again with the fingerprint of
/// the object, so that the content need not be compared again. Return the listing, and the times if
/// they were read to save it.
fn of_store(mut listing: Listing, samples: &Samples, path: &Path) -> (Listing, Option<Times>) {
    if listing.fingerprint == samples.fingerprint {
        return (listing, None);
    }
    let times = cache::read_times(path, &listing.fingerprint, listing.n_frames());
    listing.fingerprint = samples.fingerprint;
    listing.digests = samples.digests().to_vec();
    if let Some(times) = &times {
        // If the index cannot be saved, the next opening compares the content again.
        let _ = cache::write(path, &listing, times);
    }
    (listing, times)
}

/// Create the result for a sample of frames, as if the file contained no other frames.
fn sampled(layout: Layout, samples: Samples, mut chain: Chain, end: u64) -> Opened {
    let atom_counts = varying(&mut chain, &layout);
    let (borders, times) = borders_and_times(chain, end);
    let listing = Listing {
        layout,
        fingerprint: samples.fingerprint,
        digests: samples.digests().to_vec(),
        borders,
        damaged: Vec::new(),
        atom_counts,
        cut: None,
    };
    opened(listing, samples, Some(times), Origin::Sampled, None)
}

fn opened(
    listing: Listing,
    samples: Samples,
    times: Option<Times>,
    origin: Origin,
    file: Option<PathBuf>,
) -> Opened {
    let notes = match origin {
        Origin::Sampled => Vec::new(),
        _ => warnings_of(&listing),
    };
    Opened {
        layout: listing.layout,
        frames: Frames::Listed(listing.borders),
        samples,
        notes,
        damaged: listing.damaged,
        atom_counts: (!listing.atom_counts.is_empty()).then_some(listing.atom_counts),
        origin,
        file,
        times,
    }
}

/// Extend the index that was saved when the file was shorter, or scan the whole file.
fn find(
    known: Option<Known>,
    scanner: &dyn Scanner,
    source: &dyn Source,
) -> Result<(Origin, Scan)> {
    if let Some(known) = known
        && let Some(scan) = scanner.scan(source, Some(known.end))?
    {
        return Ok((Origin::Extended, known.extended(scan)));
    }
    let scan = scanner.scan(source, None)?;
    Ok((Origin::Scanned, scan.unwrap_or_default()))
}

/// Wrap an object of an object store, so that the bytes that a scan reads are stored in the cache
/// of `options`. Return `None` for other sources, if `options` contain no cache, or if the scan
/// skips most bytes.
fn in_cache<'a>(
    source: &'a dyn Source,
    samples: &Samples,
    options: &OpenOptions<'_>,
    scanner: &dyn Scanner,
) -> Option<CachedSource<&'a dyn Source>> {
    let cache = options.cache.as_ref()?;
    source.identity()?;
    if scanner.frame_size() > source.access().hop {
        return None;
    }
    // If the cache cannot be opened, the scan proceeds without it.
    let verified = options.registry.verified(source, samples.clone());
    CachedSource::open(verified.ok()?, cache).ok()
}

/// Find frames in the middle of a long file, if `options` request a sample. Return `None` if the
/// whole file must be scanned. Only this function decides whether a sample suffices.
fn sample(
    size: u64,
    options: &OpenOptions<'_>,
    scanner: &dyn Scanner,
) -> Result<Option<(Chain, u64)>> {
    /// Minimum number of frames of a sample, for any size of frames.
    const FRAMES: u64 = 32;
    /// A sample has at most 1/8 of the bytes of a file; otherwise the whole file is scanned.
    const SAMPLES_IN_A_LONG_FILE: u64 = 8;
    let Some(bytes) = options.sample else {
        return Ok(None);
    };
    let room = scanner.frame_size().saturating_mul(FRAMES).max(bytes);
    match room.saturating_mul(SAMPLES_IN_A_LONG_FILE) < size {
        true => scanner.sample(room),
        false => Ok(None),
    }
}

/// Read the times of `frames` from the trajectory itself: scan the first `size` bytes of `source`
/// again. An earlier scan found `frames`.
///
/// # Errors
/// [`Error::Changed`] if the frames are no longer at these offsets.
pub fn read_times(
    source: &dyn Source,
    format: &dyn Framed,
    size: u64,
    frames: &Frames,
) -> Result<Times> {
    let (file, first) = begin(source, format, size)?;
    let found = scan(file, first, 1, &|_, _| ControlFlow::Continue(()))?;
    times_of(source, found, frames)
}

/// Return the times of a scan, if it found `frames`.
///
/// # Errors
/// [`Error::Changed`] if the frames are no longer at these offsets.
pub fn times_of(source: &dyn Source, found: Scan, frames: &Frames) -> Result<Times> {
    let (borders, times) = borders_and_times(found.chain, found.end);
    match Frames::Listed(borders) == *frames {
        true => Ok(times),
        false => Err(Error::Changed {
            path: source.path().to_owned(),
            what: "its frames are at other offsets".into(),
        }),
    }
}

/// Return the file to scan, and the place at its beginning.
fn begin<'a>(
    source: &'a dyn Source,
    format: &'a dyn Framed,
    size: u64,
) -> Result<(Trajectory<'a>, Place)> {
    let mut head = vec![0; size.min(format.header_max() as u64) as usize];
    source.read_at(0, &mut head)?;
    let header = format.header(&head).and_then(|header| match header.size {
        0 => Err(Fault::bad(0, "a frame of some bytes", 0)),
        _ => Ok(header),
    });
    let len = head.len() as u64;
    let header = header.map_err(|fault| Error::damaged(source.path(), Some(0), 0, len, fault))?;
    let file = Trajectory {
        source,
        format,
        n_atoms: header.n_atoms,
        size,
    };
    Ok((file, Place { at: 0, header }))
}

/// Saved index that matches the file or its beginning, and the samples of the matching bytes.
struct Saved {
    path: PathBuf,
    listing: Listing,
    samples: Samples,
}

/// Load the saved index that covers the most bytes, among those that match the file.
fn load(
    source: &dyn Source,
    size: u64,
    layout: &Layout,
    options: &OpenOptions<'_>,
) -> Result<Option<Saved>> {
    let mut best: Option<Saved> = None;
    for path in &options.index_files {
        let known = best.as_ref().map(|saved| saved.listing.fingerprint.size());
        if known == Some(size) {
            break;
        }
        if let Some(listing) = cache::read(path, layout)
            && listing.fingerprint.size() <= size
            && Some(listing.fingerprint.size()) > known
        {
            let samples = options
                .registry
                .samples(source, listing.fingerprint.size())?;
            let same = samples.fingerprint == listing.fingerprint;
            if same || is_index_of_a_copy(source, size, &listing, options)? {
                best = Some(Saved {
                    path: path.clone(),
                    listing,
                    samples,
                });
            }
        }
    }
    Ok(best)
}

/// Return true if a listing made from a copy on a disk is valid for an object of an object store.
fn is_index_of_a_copy(
    source: &dyn Source,
    size: u64,
    listing: &Listing,
    options: &OpenOptions<'_>,
) -> Result<bool> {
    if source.identity().is_none() || listing.fingerprint.size() != size {
        return Ok(false);
    }
    options.registry.has_samples(source, size, &listing.digests)
}

/// Frames of a grown file for which the saved index is still valid. These are all frames before the
/// first damaged one, except the last of them, because appended bytes may change whether later
/// frames count as damaged.
struct Known {
    chain: Chain,
    /// End of the last of these frames.
    end: u64,
}

impl Known {
    fn of(saved: Saved) -> Option<Known> {
        let listed = saved.listing;
        let n_frames = listed.n_frames();
        let whole = listed.damaged.first().copied().unwrap_or(n_frames);
        let kept = whole.checked_sub(1)? as usize;
        let times = cache::read_times(&saved.path, &listed.fingerprint, n_frames)?;
        let atom_counts = match listed.atom_counts.get(..kept) {
            Some(counts) => counts.to_vec(),
            None => vec![listed.layout.n_atoms() as u32; kept],
        };
        let chain = Chain {
            starts: listed.borders[..kept].to_vec(),
            times: times.times[..kept].to_vec(),
            steps: times.steps[..kept].to_vec(),
            atom_counts,
        };
        Some(Known {
            chain,
            end: listed.borders[kept],
        })
    }

    /// Append the frames of a scan that started after these frames.
    fn extended(mut self, mut scan: Scan) -> Scan {
        let kept = self.chain.starts.len() as u64;
        self.chain.extend(&scan.chain, 0);
        scan.chain = self.chain;
        scan.damaged.iter_mut().for_each(|number| *number += kept);
        scan
    }
}

/// Remove and return the numbers of atoms of a chain; empty if they do not vary.
fn varying(chain: &mut Chain, layout: &Layout) -> Vec<u32> {
    let counts = std::mem::take(&mut chain.atom_counts);
    let usual = layout.n_atoms() as u32;
    let varies = layout.format().abilities().varying_atoms && counts.len() == chain.starts.len();
    match varies && counts.iter().any(|&n| n != 0 && n != usual) {
        true => counts,
        false => Vec::new(),
    }
}

fn borders_and_times(chain: Chain, end: u64) -> (Vec<u64>, Times) {
    let mut borders = chain.starts;
    borders.push(end);
    let times = Times {
        times: chain.times,
        steps: chain.steps,
    };
    (borders, times)
}
