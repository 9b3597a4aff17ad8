//! Distribution of the atoms of one ordered file to the ranks that own them.
//!
//! Some ranks read the file, batch by batch. In each batch, a reader decodes its part. The readers
//! then exchange atoms, so that one reader has all atoms of an owner. Finally each owner gets one
//! long message (Todorov & Bush, HPCxTR0806, section 5).

mod atom_table_and_text_frames;
mod atoms_to_owners;
pub mod frames;
mod ghosts;
#[cfg(all(unix, target_pointer_width = "64"))]
mod h5md_frames;

use std::ops::Range;
use std::time::{Duration, Instant};

use paceline_formats::error::{Error, Result};

use self::atom_table_and_text_frames::PART;
use self::atom_table_and_text_frames::{OWNERS, Widths};
use self::atoms_to_owners::Exchange;
use self::atoms_to_owners::check_ranks;
use crate::agreement_and_communicator::check_ids;
use crate::{Communicator, Failure, Reduce};

pub use self::atom_table_and_text_frames::{AtomSource, Moment, Text};
pub use self::atom_table_and_text_frames::{
    AtomTable, CHARGES, FORCES, IDS, Known, MASSES, NAMES, POSITIONS, VELOCITIES, widths,
};
pub use self::atoms_to_owners::{ById, Grid, Owners};
pub use self::ghosts::{Halo, WithGhosts};

#[cfg(test)]
mod tests;

// Atoms from readers to owners, batch by batch.

/// Reading ranks, and limits of the memory that they use.
#[derive(Debug, Clone, Copy)]
pub struct Settings<'a> {
    /// File and frame, for messages.
    pub moment: &'a Moment,
    /// Number of atoms in the frame.
    pub n_atoms: u64,
    /// Number of atom slots in the file, some of which may be empty.
    pub n_places: u64,
    /// Column widths of the known properties, bytes. The column of owners is not included.
    pub widths: Widths,
    /// Reading ranks in increasing order.
    pub readers: &'a [usize],
    /// Maximum memory of a rank in addition to its own atoms, bytes.
    pub buffer: usize,
    /// True if each owner has a contiguous range of the atoms in the file.
    pub ranges: bool,
}

impl Settings<'_> {
    /// Return, for each of `n_ranks` owners, the reader that sends it atoms. Consecutive owners
    /// share a reader.
    fn readers_of(&self, n_ranks: usize) -> Vec<usize> {
        let reader = |owner| self.readers[owner * self.readers.len() / n_ranks];
        (0..n_ranks).map(reader).collect()
    }
}

/// Cost of one frame on one rank.
#[derive(Debug, Clone, Copy, Default)]
pub struct ReadingCost {
    /// Time of reading and parsing.
    pub read: Duration,
    /// Time of determining owners, packing and unpacking.
    pub sort: Duration,
    /// Time of communication with other ranks, including waiting.
    pub communicate: Duration,
    /// Number of messages to other ranks.
    pub n_messages: u64,
    /// Bytes sent to other ranks.
    pub bytes_sent: u64,
    /// Number of batches. All ranks take part in the exchange of a batch.
    pub n_batches: u64,
    /// Maximum memory in addition to the rank's own atoms, bytes.
    pub peak_buffer: usize,
}

/// Maximum number of copies of a batch in a reader's memory, not counting the list of owners. One
/// copy is the batch itself. The buffers for outgoing and for incoming atoms may each have up to
/// twice the size of a batch, since owners get unequal parts of a batch.
const TIMES_HELD: usize = 1 + 2 + 2;

/// Memory that can be allocated on any machine, bytes.
const ROOM: usize = 256 << 20;

/// Maximum number of atoms of a batch, given the memory for it (`buffer`, bytes).
fn most_atoms(buffer: usize, travelling: &Widths) -> usize {
    let size: usize = travelling.iter().sum();
    let of_an_atom = TIMES_HELD * size + size_of::<i64>();
    ((buffer - buffer / PART) / of_an_atom).max(1)
}

/// Read a frame. Return the atoms of this rank in the order of their ids, or `None` if another rank
/// failed. The call is collective; a reading rank passes the source of its atoms as `supply`.
///
/// # Errors
/// Any error of `supply` and `owners` on this rank. On all ranks, [`Error::Unsupported`] if an atom
/// is missing or duplicate.
///
/// # Panics
/// If there are no readers.
pub fn distribute(
    comm: &dyn Communicator,
    settings: Settings<'_>,
    mut supply: Option<&mut dyn AtomSource>,
    owners: &mut dyn Owners,
) -> Result<Option<(AtomTable, ReadingCost)>> {
    let mut distribution = Distribution::new(comm, settings);
    for batch in 0..distribution.partition.n_batches() {
        let decoded = match &mut supply {
            Some(supply) => distribution.decode(batch, &mut **supply, owners),
            None => Ok(()),
        };
        let Some(load) = distribution.agree(decoded)? else {
            return Ok(None);
        };
        distribution.deliver(batch, load)?;
        distribution.note(supply.as_ref().map_or(0, |supply| supply.held()));
    }
    let Distribution { mut own, post, .. } = distribution;
    let cost = post.cost;
    // Received atoms are already sorted if the file is sorted.
    own.sort();
    match check_ids(comm, settings.n_atoms, &own.id_slice()) {
        Ok(()) => Ok(Some((own, cost))),
        Err(Failure::Error(error)) => Err(error),
        Err(failure) => Err(settings.moment.unsupported(failure.to_string())),
    }
}

/// State of one rank during the reading of one frame.
struct Distribution<'a> {
    settings: Settings<'a>,
    partition: Partition,
    /// Maximum number of atoms that a reader may receive in one exchange.
    room: u64,
    /// Index of this rank among the readers.
    reader: Option<usize>,
    /// Reader that sends atoms to each owner.
    reader_of: Vec<usize>,
    /// Owners of the atoms in the batch.
    ranks: Vec<i64>,
    batch: AtomTable,
    own: AtomTable,
    post: Exchange<'a>,
}

impl<'a> Distribution<'a> {
    fn new(comm: &'a dyn Communicator, settings: Settings<'a>) -> Self {
        assert!(!settings.readers.is_empty(), "nobody reads");
        let mut travelling = settings.widths;
        travelling[OWNERS] = size_of::<u32>();
        let most = most_atoms(settings.buffer, &travelling);
        let (n_atoms, n_readers) = (settings.n_atoms, settings.readers.len());
        let rank = comm.rank();
        // Growing with each batch would copy the atoms of this rank repeatedly, and fragment
        // memory. Reserved but unused capacity takes no physical memory. A rank therefore reserves
        // memory for all atoms if they are few, and otherwise for slightly more than an equal
        // share.
        let mut own = AtomTable::new(settings.widths);
        let share = n_atoms.div_ceil(comm.size() as u64) as usize;
        let few = ROOM / settings.widths.iter().sum::<usize>();
        own.expect((share + share / 16).max(few).min(n_atoms as usize));
        Distribution {
            settings,
            partition: Partition::new(settings.n_places, n_readers, most, settings.ranges),
            room: 2 * most as u64,
            reader: settings.readers.iter().position(|&reader| reader == rank),
            reader_of: settings.readers_of(comm.size()),
            ranks: Vec::new(),
            batch: AtomTable::new(travelling),
            own,
            post: Exchange::new(comm, travelling),
        }
    }

    /// Decode this rank's part of a batch, and find the owners of its atoms.
    fn decode(
        &mut self,
        batch: u64,
        supply: &mut dyn AtomSource,
        owners: &mut dyn Owners,
    ) -> Result<()> {
        let Some(reader) = self.reader else {
            return Ok(());
        };
        let places = self.partition.part(batch, reader);
        let n = (places.end - places.start) as usize;
        let begun = Instant::now();
        self.batch.make_room(n);
        supply.read(places, &mut self.batch)?;
        self.post.cost.read += begun.elapsed();
        let begun = Instant::now();
        self.find_owners(owners)?;
        self.post.cost.sort += begun.elapsed();
        match self.batch.len() <= n && self.batch.is_even() {
            true => Ok(()),
            false => Err(Error::Argument(format!(
                "expected {n} atoms of the frame at most, found {}",
                self.batch.len()
            ))),
        }
    }

    /// Fill the column of owners in the batch.
    fn find_owners(&mut self, owners: &mut dyn Owners) -> Result<()> {
        let (ranks, batch) = (&mut self.ranks, &mut self.batch);
        ranks.clear();
        ranks.reserve_exact(batch.len());
        owners.find(batch, ranks)?;
        check_ranks(self.settings.moment, batch, ranks, self.reader_of.len())?;
        let column = batch.column_mut(OWNERS);
        column.resize(ranks.len() * size_of::<u32>(), 0);
        for (owner, &rank) in column.as_chunks_mut().0.iter_mut().zip(ranks.iter()) {
            *owner = (rank as u32).to_ne_bytes();
        }
        Ok(())
    }

    /// Check that no rank failed. Return the maximum number of atoms that any reader receives if
    /// the batch is sent in one exchange; `None` if another rank failed.
    fn agree(&mut self, decoded: Result<()>) -> Result<Option<u64>> {
        let mut counts = vec![0; self.post.comm.size()];
        if decoded.is_ok() && self.reader.is_some() {
            for owner in self.batch.view(0..self.batch.len()).owners() {
                counts[self.reader_of[owner as usize]] += 1;
            }
        }
        let begun = Instant::now();
        let load = self.post.comm.all_to_all(&counts)?.iter().sum();
        let mut most = [u64::from(decoded.is_err()), load];
        self.post.comm.all_reduce(&mut most, Reduce::Max)?;
        self.post.cost.communicate += begun.elapsed();
        decoded?;
        let [failed, load] = most;
        Ok((failed == 0).then_some(load))
    }

    /// Send the batch to its owners. If one exchange could exceed the memory of a reader, divide it
    /// into several steps.
    fn deliver(&mut self, batch: u64, load: u64) -> Result<()> {
        let size = |reader| {
            let Range { start, end } = self.partition.part(batch, reader);
            end - start
        };
        let before: u64 = (0..self.reader.unwrap_or(0)).map(size).sum();
        let n_atoms: u64 = (0..self.settings.readers.len()).map(size).sum();
        let n_steps = match load <= self.room {
            true => 1,
            false => n_atoms.div_ceil(self.room),
        };
        for step in 0..n_steps {
            // A step is a range of the atoms of all readers together, so that owners get their
            // atoms in order.
            let atoms = share(0..n_atoms, step, n_steps);
            let n = self.batch.len() as u64;
            let own = |atom: u64| atom.saturating_sub(before).min(n) as usize;
            self.forward(own(atoms.start)..own(atoms.end))?;
        }
        self.post.cost.n_batches += 1;
        Ok(())
    }

    /// Send atoms of the batch first to the readers that serve their owners, then to the owners.
    fn forward(&mut self, atoms: Range<usize>) -> Result<()> {
        let n_readers = self.settings.readers.len();
        let atoms = self.batch.view(atoms);
        if n_readers == 1 {
            self.post.send(&atoms, |owner| owner as usize)?;
        } else {
            let reader_of = &self.reader_of;
            self.post.send(&atoms, |owner| reader_of[owner as usize])?;
            if n_readers < reader_of.len() {
                self.post.send_on()?;
            }
        }
        let begun = Instant::now();
        for came in self.post.received()? {
            self.own.append(&came);
        }
        self.post.cost.sort += begun.elapsed();
        Ok(())
    }

    /// Record the memory in use, not counting the atoms of this rank.
    fn note(&mut self, by_supply: usize) {
        let ranks = size_of::<i64>() * self.ranks.capacity();
        let held = self.batch.capacity() + ranks + self.post.held() + by_supply;
        self.post.cost.peak_buffer = self.post.cost.peak_buffer.max(held);
    }
}

// Partition of the atoms of a frame into parts, one per reader and batch.

/// Atoms of a frame, divided into batches for some readers.
#[derive(Debug, Clone, Copy)]
pub struct Partition {
    n_atoms: u64,
    n_readers: u64,
    n_batches: u64,
    apart: bool,
}

impl Partition {
    /// Create a partition with at most `most` atoms per reader and batch.
    ///
    /// By default, the readers read consecutive parts of one range of the file in each batch, so
    /// that owners get their atoms in the order of the file. With `apart`, each reader reads the
    /// ranges of its own owners; this requires owners with contiguous ranges.
    pub fn new(n_atoms: u64, n_readers: usize, most: usize, apart: bool) -> Self {
        let n_readers = n_readers as u64;
        let n_batches = n_atoms.div_ceil(n_readers).div_ceil(most.max(1) as u64);
        Partition {
            n_atoms,
            n_readers,
            n_batches,
            apart,
        }
    }

    /// Return the number of batches of the frame.
    pub fn n_batches(&self) -> u64 {
        self.n_batches
    }

    /// Return the indices that a reader reads in a batch.
    pub fn part(&self, batch: u64, reader: usize) -> Range<u64> {
        let (all, reader) = (0..self.n_atoms, reader as u64);
        match self.apart {
            true => {
                let own = share(all, reader, self.n_readers);
                share(own, batch, self.n_batches)
            }
            false => {
                let together = share(all, batch, self.n_batches);
                share(together, reader, self.n_readers)
            }
        }
    }
}

/// Return part number `one` of `n` equal parts of a range.
pub fn share(range: Range<u64>, one: u64, n: u64) -> Range<u64> {
    let len = u128::from(range.end - range.start);
    let border = |k: u64| range.start + (len * u128::from(k) / u128::from(n)) as u64;
    border(one)..border(one + 1)
}
