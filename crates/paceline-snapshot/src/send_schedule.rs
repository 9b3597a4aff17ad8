//! Divide the atoms among writers and steps, and schedule when a rank sends its own.

use std::ops::Range;

use crate::memory_budget::MemoryBudget;

/// Atoms by batch and writer. It knows some batches at a time, so that it stays small.
pub struct SendSchedule<'a> {
    ids: &'a [i64],
    partition: Partition,
    n_writers: usize,
    /// Batch of each step.
    batch_of: Vec<u32>,
    /// Own atoms of each batch.
    n_own: Vec<u64>,
    /// The most places, of atoms and of writers' first ones, that it should know.
    budget: usize,
    known: Range<usize>,
    /// Starts, in `order`, of the atoms of each known batch and writer, and the end of the last.
    starts: Vec<u32>,
    /// Places in `ids`.
    order: Vec<u32>,
}

impl<'a> SendSchedule<'a> {
    /// Atoms of which `own` are in each step.
    pub fn new(
        ids: &'a [i64],
        partition: Partition,
        n_writers: usize,
        batches: &[Range<usize>],
        own: &[u64],
        budget: usize,
    ) -> Self {
        let mut batch_of = Vec::with_capacity(own.len());
        for (number, batch) in batches.iter().enumerate() {
            batch_of.extend(batch.clone().map(|_| number as u32));
        }
        let n_own = batches.iter().map(|batch| own[batch.clone()].iter().sum());
        SendSchedule {
            ids,
            partition,
            n_writers,
            batch_of,
            n_own: n_own.collect(),
            budget,
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

    /// Find the atoms of as many batches as fit the budget.
    fn learn(&mut self, first: usize) {
        let (mut end, mut n_numbers) = (first, 0);
        // A place for each atom, and for each writer, who may get none.
        let numbers = |n_atoms: u64| n_atoms + self.n_writers as u64;
        while let Some(&n_atoms) = self.n_own.get(end)
            && (end == first || n_numbers + numbers(n_atoms) <= self.budget as u64)
        {
            n_numbers += numbers(n_atoms);
            end += 1;
        }
        self.known = first..end;
        let bin = |&id: &i64| {
            let (writer, step) = self.partition.of(id as u64 - 1);
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

// Assign atoms to the writers that put them in order, and to steps.
//
// The ids are cut into one range a writer, and each range into the same number of steps, fine
// enough that one step of all writers fits in any rank's memory, whoever has the atoms. Steps are
// then taken together, as many as fit, to batches.

/// Steps of a batch for which there is memory, where atoms are spread evenly.
const FINENESS: usize = 8;

/// Ranges of ids, counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Partition {
    n_atoms: u64,
    /// Steps of each writer, but for the last ones, which may have fewer.
    n_steps: u64,
    /// Atoms of a step of one writer.
    step: u64,
}

impl Partition {
    pub fn new(n_atoms: u64, n_writers: usize, budget: &MemoryBudget) -> Self {
        let n_writers = n_writers as u64;
        let range = n_atoms.div_ceil(n_writers).max(1);
        let finest = (budget.sorted / FINENESS).min(budget.packed / n_writers as usize);
        let n_steps = range.div_ceil(finest.max(1) as u64);
        let step = range.div_ceil(n_steps);
        Partition {
            n_atoms,
            n_steps,
            step,
        }
    }

    pub fn n_steps(&self) -> usize {
        self.n_steps as usize
    }

    /// The writer of an atom, and its step.
    pub fn of(&self, atom: u64) -> (usize, usize) {
        let cell = atom / self.step;
        (
            (cell / self.n_steps) as usize,
            (cell % self.n_steps) as usize,
        )
    }

    /// The atoms of some steps of a writer.
    pub fn atoms(&self, writer: usize, steps: &Range<usize>) -> Range<u64> {
        let first = writer as u64 * self.n_steps;
        let start = |step: usize| ((first + step as u64) * self.step).min(self.n_atoms);
        start(steps.start)..start(steps.end)
    }

    /// Take steps together as long as their atoms fit: those of a writer, and those that any rank
    /// has of them, at the most, of each step.
    pub fn batches(&self, held: &[u64], budget: &MemoryBudget) -> Vec<Range<usize>> {
        let mut batches: Vec<Range<usize>> = Vec::new();
        let mut sent = 0;
        for (step, &held) in held.iter().enumerate() {
            sent += held;
            match batches.last_mut() {
                Some(batch)
                    if sent <= budget.packed as u64
                        && (batch.len() as u64 + 1) * self.step <= budget.sorted as u64 =>
                {
                    batch.end = step + 1;
                }
                _ => {
                    sent = held;
                    batches.push(step..step + 1);
                }
            }
        }
        batches
    }
}
