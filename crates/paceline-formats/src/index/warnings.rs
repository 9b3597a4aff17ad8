//! Messages that a user should be told when a file is opened.

use super::cache::Listing;

/// Damaged frames that are listed one by one.
const N_LISTED: usize = 5;

/// Return the message that there are zeros where the last frame, number `frame`, should begin.
pub fn hole(frame: u64, offset: u64) -> String {
    format!("frame {frame} (byte {offset}) was never finished: it begins with zeros")
}

/// `present` bytes of a last frame, number `frame`, are there; it would have `stated` bytes.
pub fn cut(frame: u64, offset: u64, present: u64, stated: Option<u64>) -> String {
    cut_where(
        frame,
        offset,
        &match stated {
            Some(stated) => format!("{present} of {stated} bytes are there"),
            None => format!("{present} bytes are there, not even a whole header"),
        },
    )
}

/// A last frame has fewer lines than it should.
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

/// The notes for the frames that a scan found.
pub fn of(listing: &Listing) -> Vec<String> {
    let mut notes = Vec::new();
    let (n_frames, size) = (listing.n_frames(), listing.fingerprint.size());
    let end = listing.borders.last().copied().unwrap_or(0);
    if end < size {
        notes.push(match listing.layout.format().abilities().is_text {
            true => cut_lines(n_frames, end),
            false => cut(n_frames, end, size - end, listing.cut),
        });
    }
    if !listing.damaged.is_empty() {
        notes.push(damaged(&listing.damaged, &listing.borders));
    }
    notes.extend(varying(&listing.atom_counts));
    notes
}

/// Note that the number of atoms varies, and where it first does; nothing where it does not.
pub fn varying(atom_counts: &[u32]) -> Option<String> {
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

/// Note that frames without headers are counted as one, where a damaged one is longer than others.
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
