//! The file that a frame goes to.

use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::path::Path;

use super::{Batch, Plan, Records};
use crate::check::Result;
use crate::memory_budget::grow;
use crate::memory_budget::{Cost, timed};
use paceline_formats::error::Error;
use paceline_formats::system::{close, write_all_at};

/// A file that exists, open for writing.
pub struct Target<'a> {
    path: &'a Path,
    file: File,
    records: &'a dyn Records,
    /// First byte of each section.
    starts: &'a [u64],
    /// Atoms whose bytes are made at a time.
    at_a_time: usize,
}

impl<'a> Target<'a> {
    pub fn open(plan: &Plan<'a>) -> Result<Self> {
        let job = plan.job;
        let file = OpenOptions::new().write(true).open(job.path);
        Ok(Target {
            path: job.path,
            file: file.map_err(|source| Error::io(job.path, "cannot open", source))?,
            records: job.records,
            starts: job.starts,
            at_a_time: plan.budget.written,
        })
    }

    /// Make the bytes of some atoms, those from `at` on of the `n_atoms` whose bytes are made before
    /// they are written: in `text`, section after section.
    pub fn put(
        &self,
        text: &mut Vec<u8>,
        n_atoms: usize,
        at: usize,
        batch: &Batch<'_>,
        cost: &mut Cost,
    ) {
        let sizes = self.records.sections();
        grow(text, n_atoms * sizes.iter().sum::<usize>());
        let mut rest = &mut text[..];
        for (section, size) in sizes.iter().enumerate() {
            let (own, others) = rest.split_at_mut(n_atoms * size);
            let own = &mut own[at * size..(at + batch.len()) * size];
            timed(&mut cost.format, || self.records.put(section, batch, own));
            rest = others;
        }
    }

    /// Write the bytes of atoms that are neighbours in the file from `first` on, counted from 0.
    pub fn write_run(
        &self,
        mut text: &[u8],
        n_atoms: usize,
        first: u64,
        cost: &mut Cost,
    ) -> Result<()> {
        for (&start, &size) in self.starts.iter().zip(self.records.sections()) {
            let (own, others) = text.split_at(n_atoms * size);
            self.write(own, start + first * size as u64, cost)?;
            text = others;
        }
        Ok(())
    }

    /// Make the bytes of atoms, some at a time, and write each atom by itself.
    pub fn write_each(&self, text: &mut Vec<u8>, batch: &Batch<'_>, cost: &mut Cost) -> Result<()> {
        for part in parts(batch.len(), self.at_a_time) {
            let batch = batch.part(part);
            self.put(text, batch.len(), 0, &batch, cost);
            let mut text = &text[..];
            for (&start, &size) in self.starts.iter().zip(self.records.sections()) {
                let (own, others) = text.split_at(batch.len() * size);
                for (k, record) in own.chunks_exact(size).enumerate() {
                    self.write(record, start + (batch.id(k) - 1) * size as u64, cost)?;
                }
                text = others;
            }
        }
        Ok(())
    }

    /// Close the file: where it is to be on the disk, when it is there.
    pub fn close(self, sync: bool, cost: &mut Cost) -> Result<()> {
        let done = timed(&mut cost.write, || {
            if sync {
                self.file.sync_data()?;
            }
            close(self.file)
        });
        done.map_err(|source| Error::io(self.path, "cannot write to disk", source).into())
    }

    fn write(&self, text: &[u8], offset: u64, cost: &mut Cost) -> Result<()> {
        timed(&mut cost.write, || write_all_at(&self.file, text, offset))
            .map_err(|source| Error::io(self.path, "cannot write", source))?;
        cost.wrote(text.len());
        Ok(())
    }
}

/// Ranges of up to `most`.
pub fn parts(n_atoms: usize, most: usize) -> impl Iterator<Item = Range<usize>> {
    let starts = (0..n_atoms).step_by(most.max(1));
    starts.map(move |start| start..n_atoms.min(start + most))
}
