//! Who puts which atoms in order, and when.
//!
//! The ids are cut into one range a writer, and each range into the same number of steps, fine
//! enough that one step of all writers fits in any rank's memory, whoever has the atoms. Steps are
//! then taken together, as many as fit, to batches.

use std::ops::Range;

use super::room::Room;

/// Steps of a batch for which there is memory, where atoms are spread evenly.
const FINENESS: usize = 8;

/// Ranges of ids, counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shares {
    n_atoms: u64,
    /// Of each writer, but for the last ones, which may have less.
    n_steps: u64,
    /// Atoms of a step of one writer.
    step: u64,
}

impl Shares {
    pub fn new(n_atoms: u64, n_writers: usize, room: &Room) -> Self {
        let n_writers = n_writers as u64;
        let range = n_atoms.div_ceil(n_writers).max(1);
        let finest = (room.sorted / FINENESS).min(room.packed / n_writers as usize);
        let n_steps = range.div_ceil(finest.max(1) as u64);
        let step = range.div_ceil(n_steps);
        Shares {
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
    pub fn batches(&self, held: &[u64], room: &Room) -> Vec<Range<usize>> {
        let mut batches: Vec<Range<usize>> = Vec::new();
        let mut sent = 0;
        for (step, &held) in held.iter().enumerate() {
            sent += held;
            match batches.last_mut() {
                Some(batch)
                    if sent <= room.packed as u64
                        && (batch.len() as u64 + 1) * self.step <= room.sorted as u64 =>
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
