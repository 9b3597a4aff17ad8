//! Implementation of the format interface for XTC.

use std::any::Any;

use super::{
    HEADER_MAX, Header, MAGIC_1995, MAGIC_2023, PRECISION, XtcDecoder, XtcEncoder, frame_min,
};
use crate::atom_set::Atoms;
use crate::error::{Fault, Result};
use crate::format_interface::{
    Abilities, EncoderSettings, FileLayout, Format, Frames, Layout, OpenOptions, Opened, Times,
    n_atoms_of,
};
use crate::index::header_scan::{FrameHeader, Framed};
use crate::index::scanned;
use crate::source::Source;
use crate::{Decoder, Encoder, Fields};

/// The format XTC.
#[derive(Debug)]
pub struct Xtc;

impl Format for Xtc {
    fn name(&self) -> &'static str {
        "XTC"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["xtc"]
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            reads: Fields::POSITIONS,
            writes: Fields::POSITIONS,
            precision: true,
            stores_cell_vectors: true,
            appends: true,
            ..Abilities::default()
        }
    }

    fn probe(&self, head: &[u8]) -> bool {
        self.magics().iter().any(|magic| head.starts_with(magic))
    }

    fn open(&self, source: &dyn Source, size: u64, options: &OpenOptions<'_>) -> Result<Opened> {
        let layout = |n_atoms| Layout::new(XtcLayout { n_atoms });
        scanned::open(source, self, layout, size, options)
    }

    fn code(&self) -> u8 {
        1
    }

    fn layout(&self, bytes: &[u8]) -> Option<Layout> {
        let n_atoms = n_atoms_of(bytes)?;
        Some(Layout::new(XtcLayout { n_atoms }))
    }

    fn encoder(&self, settings: &EncoderSettings<'_>) -> Result<Box<dyn Encoder>, String> {
        let precision = settings.precision.unwrap_or(PRECISION);
        Ok(Box::new(XtcEncoder::new(settings.n_atoms, precision)?))
    }
}

impl Framed for Xtc {
    fn header_max(&self) -> usize {
        HEADER_MAX
    }

    fn frame_min(&self, n_atoms: usize) -> u64 {
        frame_min(n_atoms as u64)
    }

    fn magics(&self) -> &[[u8; 4]] {
        const MAGICS: [[u8; 4]; 2] = [MAGIC_1995.to_be_bytes(), MAGIC_2023.to_be_bytes()];
        &MAGICS
    }

    fn header(&self, bytes: &[u8]) -> Result<FrameHeader, Fault> {
        let header = Header::parse(bytes)?;
        Ok(FrameHeader {
            size: header.size,
            n_atoms: header.n_atoms,
            step: header.step.into(),
            time: header.time.into(),
        })
    }
}

/// Layout of the frames of an XTC file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct XtcLayout {
    /// Number of atoms in a frame.
    pub n_atoms: usize,
}

impl FileLayout for XtcLayout {
    fn format(&self) -> &'static dyn Format {
        &Xtc
    }

    fn n_atoms(&self) -> usize {
        self.n_atoms
    }

    fn to_bytes(&self) -> Vec<u8> {
        (self.n_atoms as u64).to_le_bytes().to_vec()
    }

    fn decoder(&self, atoms: Atoms, wanted: Fields) -> Result<Box<dyn Decoder>> {
        Ok(Box::new(XtcDecoder::new(atoms.only_if(wanted.positions))))
    }

    fn times(&self, source: &dyn Source, size: u64, frames: &Frames) -> Result<Times> {
        scanned::read_times(source, &Xtc, size, frames)
    }

    fn head(&self, _source: &dyn Source, _first: u64, _n_frames: u64) -> Result<Option<Vec<u8>>> {
        Ok(Some(Vec::new()))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
