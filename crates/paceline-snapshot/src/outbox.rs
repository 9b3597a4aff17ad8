//! A rank's own atoms by the batch in which they leave, and by the writer to whom they go.

use std::ops::Range;

use super::shares::Shares;

/// Atoms by batch and writer. It knows some batches at a time, so that it stays small.
pub struct Outbox<'a> {
    ids: &'a [i64],
    shares: Shares,
    n_writers: usize,
    /// Of each step.
    batch_of: Vec<u32>,
    /// Own atoms of each batch.
    n_own: Vec<u64>,
    /// The most places, of atoms and of writers' first ones, that it should know.
    room: usize,
    known: Range<usize>,
    /// Where, in `order`, the atoms of each known batch and writer begin, and where the last end.
    starts: Vec<u32>,
    /// Places in `ids`.
    order: Vec<u32>,
}

impl<'a> Outbox<'a> {
    /// Atoms of which `own` are in each step.
    pub fn new(
        ids: &'a [i64],
        shares: Shares,
        n_writers: usize,
        batches: &[Range<usize>],
        own: &[u64],
        room: usize,
    ) -> Self {
        let mut batch_of = Vec::with_capacity(own.len());
        for (number, batch) in batches.iter().enumerate() {
            batch_of.extend(batch.clone().map(|_| number as u32));
        }
        let n_own = batches.iter().map(|batch| own[batch.clone()].iter().sum());
        Outbox {
            ids,
            shares,
            n_writers,
            batch_of,
            n_own: n_own.collect(),
            room,
            known: 0..0,
            starts: Vec::new(),
            order: Vec::new(),
        }
    }

    /// Places of the atoms of a batch, by writer. Batches must be asked for in their order.
    pub fn batch(&mut self, batch: usize) -> impl Iterator<Item = &[u32]> {
        if !self.known.contains(&batch) {
            self.learn(batch);
        }
        let first = (batch - self.known.start) * self.n_writers;
        let starts = &self.starts[first..=first + self.n_writers];
        starts
            .windows(2)
            .map(|pair| &self.order[pair[0] as usize..pair[1] as usize])
    }

    /// Bytes of memory that it takes.
    pub fn n_bytes(&self) -> usize {
        4 * (self.batch_of.capacity() + self.starts.capacity() + self.order.capacity())
            + 8 * self.n_own.capacity()
    }

    /// Find the atoms of as many batches as there is room for.
    fn learn(&mut self, first: usize) {
        let (mut end, mut n_numbers) = (first, 0);
        // A place for each atom, and for each writer, who may get none.
        let numbers = |n_atoms: u64| n_atoms + self.n_writers as u64;
        while let Some(&n_atoms) = self.n_own.get(end)
            && (end == first || n_numbers + numbers(n_atoms) <= self.room as u64)
        {
            n_numbers += numbers(n_atoms);
            end += 1;
        }
        self.known = first..end;
        let bin = |&id: &i64| {
            let (writer, step) = self.shares.of(id as u64 - 1);
            let batch = self.batch_of[step] as usize;
            let known = (first..end).contains(&batch);
            known.then(|| (batch - first) * self.n_writers + writer)
        };
        // Two more than bins: first each counts in the second place after its own, then its atoms
        // take their places from the one after its own on, which so becomes its end.
        self.starts.clear();
        self.starts.resize((end - first) * self.n_writers + 2, 0);
        for bin in self.ids.iter().filter_map(bin) {
            self.starts[bin + 2] += 1;
        }
        let mut sum = 0;
        for start in &mut self.starts {
            sum += *start;
            *start = sum;
        }
        self.order.clear();
        self.order.resize(sum as usize, 0);
        for (place, id) in self.ids.iter().enumerate() {
            if let Some(bin) = bin(id) {
                let next = &mut self.starts[bin + 1];
                self.order[*next as usize] = place as u32;
                *next += 1;
            }
        }
    }
}
