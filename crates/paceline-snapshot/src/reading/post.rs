//! Carries atoms between ranks.

use std::time::Instant;

use super::ReadingCost;
use super::parcel::{grow, pack, unpack};
use super::table::{View, Widths};
use crate::Communicator;
use paceline_formats::error::{Error, Result};

/// What goes out and what comes in, in buffers that are used again.
pub struct Post<'a> {
    pub comm: &'a dyn Communicator,
    pub cost: ReadingCost,
    widths: Widths,
    outgoing: Vec<u8>,
    incoming: Vec<u8>,
    /// Bytes that came from each rank.
    received: Vec<u64>,
}

impl<'a> Post<'a> {
    pub fn new(comm: &'a dyn Communicator, widths: Widths) -> Self {
        Post {
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

    /// What came, by rank.
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
