//! The index of a format whose frames have to be found: from a saved one, or from a scan.

use std::ops::ControlFlow;
use std::path::PathBuf;

use super::fingerprint::Fingerprint;
use super::framed::Framed;
use super::sample;
use super::scan::{Scan, scan};
use super::store::{self, Listing, Moments};
use super::walk::{Chain, Place, Trajectory, Walker};
use super::watch::Watch;
use super::{Frames, OpenOptions, Origin};
use crate::Layout;
use crate::error::{Error, Fault, Result};
use crate::source::Source;

/// A listing, and how it came about.
pub struct Opened {
    pub listing: Listing,
    /// Nothing where they are left in the saved index.
    pub moments: Option<Moments>,
    pub origin: Origin,
    /// Where the index is saved.
    pub file: Option<PathBuf>,
}

/// What was found of a file that has no saved index.
pub enum Found {
    /// All frames.
    Whole(Origin, Scan),
    /// Some frames, and where the last one ends.
    Sample(Chain, u64),
}

/// A saved index of fewer bytes than the file has.
pub type Grown = Option<(PathBuf, Listing)>;

/// Load the saved index of the first `size` bytes of `source`, extend that of fewer bytes, or
/// scan. Whatever was not loaded is saved where that is possible, but for a sample.
///
/// # Errors
/// [`Error::Changed`] where bytes changed during the scan, and those of [`super::open`].
pub fn open(
    source: &dyn Source,
    format: &dyn Framed,
    layout: impl Fn(usize) -> Layout,
    size: u64,
    options: &OpenOptions<'_>,
) -> Result<Opened> {
    let (file, first) = begin(source, format, size)?;
    let layout = layout(file.n_atoms);
    load_or_find(source, layout, size, options, |grown| {
        if let Some(wanted) = options.sample
            && let Some(room) = sample::room(size, wanted, first.header.size)
            && let Some((chain, end)) =
                sample::sample(file, room, &Watch::new(options.progress, size))?
        {
            return Ok(Found::Sample(chain, end));
        }
        let (origin, scan) = find(file, first, grown, options)?;
        Ok(Found::Whole(origin, scan))
    })
}

/// Load the saved index of a file of this layout, or have it found and save it.
///
/// # Errors
/// [`Error::Changed`] where bytes changed meanwhile, and those of `find`.
pub fn load_or_find(
    source: &dyn Source,
    layout: Layout,
    size: u64,
    options: &OpenOptions<'_>,
    find: impl FnOnce(Grown) -> Result<Found>,
) -> Result<Opened> {
    let saved = match options.refresh {
        true => None,
        false => load(source, size, &layout, &options.index_files)?,
    };
    let grown = match saved {
        Some((path, listing)) if listing.fingerprint.size() == size => {
            return Ok(Opened {
                listing,
                moments: None,
                origin: Origin::Loaded,
                file: Some(path),
            });
        }
        grown => grown,
    };
    let fingerprint = Fingerprint::of(source, size)?;
    let (origin, found) = match find(grown)? {
        Found::Whole(origin, scan) => (origin, scan),
        Found::Sample(chain, end) => return Ok(sampled(layout, fingerprint, chain, end)),
    };
    // Saved with the fingerprint of other bytes, the frames would be found again and again.
    fingerprint.verify(source)?;
    let (borders, moments) = borders_and_moments(found.chain, found.end);
    let listing = Listing {
        layout,
        fingerprint,
        borders,
        damaged: found.damaged,
        cut: found.cut,
    };
    let saved_in = |path: &&PathBuf| store::write(path, &listing, &moments).is_ok();
    let file = options.index_files.iter().find(saved_in).cloned();
    Ok(Opened {
        listing,
        moments: Some(moments),
        origin,
        file,
    })
}

/// Some frames of a file, as if it held no others.
fn sampled(layout: Layout, fingerprint: Fingerprint, chain: Chain, end: u64) -> Opened {
    let (borders, moments) = borders_and_moments(chain, end);
    Opened {
        listing: Listing {
            layout,
            fingerprint,
            borders,
            damaged: Vec::new(),
            cut: None,
        },
        moments: Some(moments),
        origin: Origin::Sampled,
        file: None,
    }
}

/// Extend what was saved when the file was shorter, or scan all of it.
fn find(
    file: Trajectory<'_>,
    first: Place,
    grown: Grown,
    options: &OpenOptions<'_>,
) -> Result<(Origin, Scan)> {
    let scan_from = |place| scan(file, place, options.n_threads, options.progress);
    if let Some(known) = grown.and_then(Known::of)
        && let Some(place) = Walker::new(file, &|_| Ok(())).place(known.end)?
    {
        return Ok((Origin::Extended, known.extended(scan_from(place)?)));
    }
    Ok((Origin::Scanned, scan_from(first)?))
}

/// The times of `frames`, which a scan of the first `size` bytes of `source` gave, read from the
/// trajectory itself.
///
/// # Errors
/// [`Error::Changed`] where the frames are at other places now.
pub fn read_moments(
    source: &dyn Source,
    format: &dyn Framed,
    size: u64,
    frames: &Frames,
) -> Result<Moments> {
    let (file, first) = begin(source, format, size)?;
    let found = scan(file, first, 1, &|_, _| ControlFlow::Continue(()))?;
    moments_of(source, found, frames)
}

/// The times that a scan found, if it found `frames`.
///
/// # Errors
/// [`Error::Changed`] where the frames are at other places now.
pub fn moments_of(source: &dyn Source, found: Scan, frames: &Frames) -> Result<Moments> {
    let (borders, moments) = borders_and_moments(found.chain, found.end);
    match Frames::Listed(borders) == *frames {
        true => Ok(moments),
        false => Err(Error::Changed {
            path: source.path().to_owned(),
            what: "its frames are at other places".into(),
        }),
    }
}

/// The file, and the place at its beginning.
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

/// Of the saved indexes that fit the file's first bytes, the one of the most bytes.
fn load(
    source: &dyn Source,
    size: u64,
    layout: &Layout,
    files: &[PathBuf],
) -> Result<Option<(PathBuf, Listing)>> {
    let mut best: Option<(PathBuf, Listing)> = None;
    for path in files {
        let known = best.as_ref().map(|(_, listing)| listing.fingerprint.size());
        if known == Some(size) {
            break;
        }
        if let Some(listing) = store::read(path)
            && listing.layout == *layout
            && listing.fingerprint.size() <= size
            && Some(listing.fingerprint.size()) > known
            && Fingerprint::of(source, listing.fingerprint.size())? == listing.fingerprint
        {
            best = Some((path.clone(), listing));
        }
    }
    Ok(best)
}

/// What a saved index still tells of a file that has grown: all frames before the last one, or
/// before the first damaged one. Bytes that come later may tell more about those.
pub struct Known {
    chain: Chain,
    /// Where these frames end.
    pub end: u64,
}

impl Known {
    pub fn of((path, listed): (PathBuf, Listing)) -> Option<Known> {
        let n_frames = listed.n_frames();
        let whole = listed.damaged.first().copied().unwrap_or(n_frames);
        let kept = whole.checked_sub(1)? as usize;
        let moments = store::read_moments(&path, &listed.fingerprint, n_frames)?;
        let chain = Chain {
            starts: listed.borders[..kept].to_vec(),
            times: moments.times[..kept].to_vec(),
            steps: moments.steps[..kept].to_vec(),
        };
        Some(Known {
            chain,
            end: listed.borders[kept],
        })
    }

    /// The frames of a scan that went on where these end, behind these.
    pub fn extended(mut self, mut scan: Scan) -> Scan {
        let kept = self.chain.starts.len() as u64;
        self.chain.extend(&scan.chain, 0);
        scan.chain = self.chain;
        scan.damaged.iter_mut().for_each(|number| *number += kept);
        scan
    }
}

fn borders_and_moments(chain: Chain, end: u64) -> (Vec<u64>, Moments) {
    let mut borders = chain.starts;
    borders.push(end);
    let moments = Moments {
        times: chain.times,
        steps: chain.steps,
    };
    (borders, moments)
}
