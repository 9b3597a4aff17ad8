//! The index of a format whose frames have to be found: from a saved one, or from a scan.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use super::fingerprint::Fingerprint;
use super::framed::Framed;
use super::sample;
use super::scan::{Scan, scan};
use super::store::{self, Listing, Moments};
use super::walk::{Chain, Place, Trajectory, Walker};
use super::watch::Watch;
use super::{Frames, OpenOptions, Origin};
use crate::error::{Error, Fault, Result};
use crate::formats::Layout;
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
    if let Some(wanted) = options.sample
        && let Some(room) = sample::room(file, wanted, first.header.size)
        && let Some((chain, end)) = sample::sample(file, room, &Watch::new(options.progress, size))?
    {
        return Ok(sampled(layout, fingerprint, chain, end));
    }
    let (origin, found) = find(file, first, grown, options)?;
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
    grown: Option<(PathBuf, Listing)>,
    options: &OpenOptions<'_>,
) -> Result<(Origin, Scan)> {
    if let Some((path, listing)) = grown
        && let Some(found) = extend(file, &path, listing, options)?
    {
        return Ok((Origin::Extended, found));
    }
    let found = scan(file, first, options.n_threads, options.progress)?;
    Ok((Origin::Scanned, found))
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

/// Scan a file that has grown since it was listed, from its last frame on. Where there was damage,
/// from the last frame before it: bytes that come later may tell more about it.
fn extend(
    file: Trajectory<'_>,
    path: &Path,
    listed: Listing,
    options: &OpenOptions<'_>,
) -> Result<Option<Scan>> {
    let n_frames = listed.n_frames();
    let whole = listed.damaged.first().copied().unwrap_or(n_frames);
    let Some(kept) = whole.checked_sub(1).map(|kept| kept as usize) else {
        return Ok(None);
    };
    let Some(moments) = store::read_moments(path, &listed.fingerprint, n_frames) else {
        return Ok(None);
    };
    let mut walker = Walker::new(file, &|_| Ok(()));
    let Some(place) = walker.place(listed.borders[kept])? else {
        return Ok(None);
    };
    let mut scan = scan(file, place, options.n_threads, options.progress)?;
    let mut chain = Chain {
        starts: listed.borders[..kept].to_vec(),
        times: moments.times[..kept].to_vec(),
        steps: moments.steps[..kept].to_vec(),
    };
    chain.extend(&scan.chain, 0);
    scan.chain = chain;
    scan.damaged
        .iter_mut()
        .for_each(|number| *number += kept as u64);
    Ok(Some(scan))
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
