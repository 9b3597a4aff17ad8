//! Atoms sorted into parcels: of each first all of one column, then all of the next.

use super::table::{View, Widths};

/// Atoms that are sorted at a time: where they go then stays at hand, column after column.
const BLOCK: usize = 4096;

/// Where an atom goes: the parcel, and the place in it.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    parcel: usize,
    place: usize,
}

/// Sort atoms into `n` parcels, `parcel_of` each atom's owner, in the order in which they come.
/// The parcels lie at the front of `bytes`, which grows if it must; the bytes of each.
pub fn pack(
    views: &[View<'_>],
    widths: &Widths,
    n: usize,
    parcel_of: impl Fn(u32) -> usize,
    bytes: &mut Vec<u8>,
) -> Vec<u64> {
    let mut counts = vec![0; n];
    for owner in views.iter().flat_map(View::owners) {
        counts[parcel_of(owner)] += 1;
    }
    let size: usize = widths.iter().sum();
    let total = size * counts.iter().sum::<usize>();
    grow(bytes, total);
    let starts = columns_of(&counts, widths);
    let mut filled = vec![0; n];
    let mut places = [Place::default(); BLOCK];
    for view in views {
        for first in (0..view.len()).step_by(BLOCK) {
            let owners = view.owners().skip(first).take(BLOCK);
            let places = &mut places[..owners.len()];
            for (place, owner) in places.iter_mut().zip(owners) {
                let parcel = parcel_of(owner);
                *place = Place {
                    parcel,
                    place: filled[parcel],
                };
                filled[parcel] += 1;
            }
            for (column, &width) in widths.iter().enumerate() {
                let source = &view.columns[column][first * width..][..places.len() * width];
                copy_to(places, source, width, &starts[column], bytes);
            }
        }
    }
    counts.iter().map(|&count| (count * size) as u64).collect()
}

/// Make bytes as long as that, if they are shorter, and no room for more.
pub fn grow(bytes: &mut Vec<u8>, len: usize) {
    if bytes.len() < len {
        bytes.reserve_exact(len - bytes.len());
        bytes.resize(len, 0);
    }
}

/// First byte of each column in each parcel.
fn columns_of(counts: &[usize], widths: &Widths) -> Vec<Vec<usize>> {
    let size: usize = widths.iter().sum();
    let mut before = 0;
    let ahead = widths.iter().map(|width| {
        before += width;
        before - width
    });
    ahead
        .map(|ahead| {
            let mut start = 0;
            let of_parcel = counts.iter().map(|&count| {
                start += size * count;
                start - size * count + ahead * count
            });
            of_parcel.collect()
        })
        .collect()
}

fn copy_to(places: &[Place], source: &[u8], width: usize, starts: &[usize], bytes: &mut [u8]) {
    match width {
        0 => {}
        4 => copy_wide::<4>(places, source, starts, bytes),
        8 => copy_wide::<8>(places, source, starts, bytes),
        12 => copy_wide::<12>(places, source, starts, bytes),
        24 => copy_wide::<24>(places, source, starts, bytes),
        width => unreachable!("no column is {width} bytes wide"),
    }
}

fn copy_wide<const WIDTH: usize>(
    places: &[Place],
    source: &[u8],
    starts: &[usize],
    bytes: &mut [u8],
) {
    let (values, _) = source.as_chunks::<WIDTH>();
    for (value, to) in values.iter().zip(places) {
        let at = starts[to.parcel] + to.place * WIDTH;
        bytes[at..at + WIDTH].copy_from_slice(value);
    }
}

/// The atoms of a parcel; nothing where these bytes are none.
pub fn unpack<'a>(parcel: &'a [u8], widths: &Widths) -> Option<View<'a>> {
    let size: usize = widths.iter().sum();
    if !parcel.len().is_multiple_of(size) {
        return None;
    }
    let n = parcel.len() / size;
    let mut rest = parcel;
    let columns = widths.map(|width| {
        let (column, behind) = rest.split_at(n * width);
        rest = behind;
        column
    });
    Some(View { columns })
}
