//! The file that a frame goes to.

use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::cost::{Cost, timed};
use super::failure::Result;
use super::records::Records;
use super::{Batch, Plan};
use crate::error::Error;

/// A file that exists, open for writing.
pub struct Target<'a> {
    path: &'a Path,
    file: File,
    starts: &'a [u64],
    records: &'a dyn Records,
    /// Atoms whose bytes are made at a time.
    at_a_time: usize,
    text: Vec<u8>,
}

impl<'a> Target<'a> {
    pub fn open(plan: &Plan<'a>) -> Result<Self> {
        let job = plan.job;
        let file = OpenOptions::new().write(true).open(job.path);
        Ok(Target {
            path: job.path,
            file: file.map_err(|source| Error::io(job.path, "cannot open", source))?,
            starts: job.starts,
            records: job.records,
            at_a_time: plan.room.written,
            text: Vec::new(),
        })
    }

    /// Write atoms that are neighbours in the file, `first` and those after it, counted from 0.
    pub fn write_run(&mut self, first: u64, batch: &Batch<'_>, cost: &mut Cost) -> Result<()> {
        for (section, &size) in self.records.sections().iter().enumerate() {
            for part in parts(batch.len(), self.at_a_time) {
                let atom = first + part.start as u64;
                self.format(section, size, &batch.part(part), cost);
                let offset = self.starts[section] + atom * size as u64;
                self.write(0..self.text.len(), offset, cost)?;
            }
        }
        Ok(())
    }

    /// Write each atom by itself.
    pub fn write_each(&mut self, batch: &Batch<'_>, cost: &mut Cost) -> Result<()> {
        for (section, &size) in self.records.sections().iter().enumerate() {
            for part in parts(batch.len(), self.at_a_time) {
                let batch = batch.part(part);
                self.format(section, size, &batch, cost);
                for k in 0..batch.len() {
                    let offset = self.starts[section] + (batch.id(k) - 1) * size as u64;
                    self.write(k * size..(k + 1) * size, offset, cost)?;
                }
            }
        }
        Ok(())
    }

    /// Bytes of memory that it takes.
    pub fn n_bytes(&self) -> usize {
        self.text.capacity()
    }

    /// Return when the disk has what was written.
    pub fn sync(&self, cost: &mut Cost) -> Result<()> {
        timed(&mut cost.write, || self.file.sync_data())
            .map_err(|source| Error::io(self.path, "cannot write to disk", source).into())
    }

    fn format(&mut self, section: usize, size: usize, batch: &Batch<'_>, cost: &mut Cost) {
        let n_bytes = size * batch.len();
        self.text.truncate(n_bytes);
        self.text.reserve_exact(n_bytes - self.text.len());
        self.text.resize(n_bytes, 0);
        timed(&mut cost.format, || {
            self.records.put(section, batch, &mut self.text);
        });
    }

    fn write(&self, text: Range<usize>, offset: u64, cost: &mut Cost) -> Result<()> {
        let text = &self.text[text];
        timed(&mut cost.write, || self.file.write_all_at(text, offset))
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
