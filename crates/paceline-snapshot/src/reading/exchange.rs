//! Carries atoms between ranks.

use std::time::Instant;

use paceline_formats::error::{Error, Result};

use super::ReadingCost;
use super::atom_table::{View, Widths};
use crate::Communicator;

/// Outgoing and incoming atoms, in buffers that are used again.
pub struct Exchange<'a> {
    pub comm: &'a dyn Communicator,
    pub cost: ReadingCost,
    widths: Widths,
    outgoing: Vec<u8>,
    incoming: Vec<u8>,
    /// Bytes that came from each rank.
    received: Vec<u64>,
}

impl<'a> Exchange<'a> {
    pub fn new(comm: &'a dyn Communicator, widths: Widths) -> Self {
        Exchange {
            comm,
            cost: ReadingCost::default(),
            widths,
            outgoing: Vec::new(),
            incoming: Vec::new(),
            received: vec![0; comm.size()],
        }
    }

    /// Send each of some atoms to a rank, which its owner tells. All ranks call it.
    pub fn send(&mut self, atoms: &View<'_>, to: impl Fn(u32) -> usize) -> Result<()> {
        let begun = Instant::now();
        let n = self.comm.size();
        let counts = pack(&[*atoms], &self.widths, n, to, &mut self.outgoing);
        self.cost.sort += begun.elapsed();
        self.exchange(&counts)
    }

    /// Send on what came: each atom to its owner, and to each owner one message.
    pub fn send_on(&mut self) -> Result<()> {
        let begun = Instant::now();
        let came = parcels(&self.incoming, &self.received, &self.widths)?;
        let (n, to) = (self.comm.size(), |owner| owner as usize);
        let counts = pack(&came, &self.widths, n, to, &mut self.outgoing);
        self.cost.sort += begun.elapsed();
        self.exchange(&counts)
    }

    /// Return the atoms that came, by rank.
    pub fn received(&self) -> Result<Vec<View<'_>>> {
        parcels(&self.incoming, &self.received, &self.widths)
    }

    /// Bytes that it holds.
    pub fn held(&self) -> usize {
        self.outgoing.capacity() + self.incoming.capacity()
    }

    fn exchange(&mut self, counts: &[u64]) -> Result<()> {
        let begun = Instant::now();
        self.received = self.comm.all_to_all(counts)?;
        let (sent, came) = (sum(counts), sum(&self.received));
        grow(&mut self.incoming, came);
        let (outgoing, incoming) = (&self.outgoing[..sent], &mut self.incoming[..came]);
        self.comm
            .exchange(outgoing, counts, incoming, &self.received)?;
        self.cost.communicate += begun.elapsed();
        for (rank, &count) in counts.iter().enumerate() {
            if count > 0 && rank != self.comm.rank() {
                self.cost.n_messages += 1;
                self.cost.bytes_sent += count;
            }
        }
        Ok(())
    }
}

fn sum(counts: &[u64]) -> usize {
    counts.iter().sum::<u64>() as usize
}

fn parcels<'a>(bytes: &'a [u8], counts: &[u64], widths: &Widths) -> Result<Vec<View<'a>>> {
    let mut rest = bytes;
    let parcels = counts.iter().map(|&count| {
        let (parcel, behind) = rest.split_at(count as usize);
        rest = behind;
        unpack(parcel, widths)
    });
    parcels.collect::<Option<_>>().ok_or_else(|| {
        Error::Argument("a rank sent atoms of other fields: all must read the same frame".into())
    })
}

// Atoms sorted into parcels: of each first all of one column, then all of the next.

/// Atoms that are sorted at a time: where they go then stays at hand, column after column.
const BLOCK: usize = 4096;

/// Destination of an atom: the parcel, and the place in it.
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
