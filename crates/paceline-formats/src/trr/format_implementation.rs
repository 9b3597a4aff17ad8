//! Implementation of the format interface for TRR.

use std::any::Any;
use std::path::Path;

use super::{
    AT_ATOMS, ATOM_BYTES_MIN, HEADER_MAX, HEADER_MIN, Header, MAGIC, TrrDecoder, TrrEncoder,
};
use crate::atom_set::Atoms;
use crate::error::{Error, Fault, Result};
use crate::format_interface::{
    Abilities, EncoderSettings, FileLayout, Format, Frames, Layout, OpenOptions, Opened, Times,
    n_atoms_of,
};
use crate::index::header_scan::{FrameHeader, Framed};
use crate::index::scanned;
use crate::source::Source;
use crate::{Decoder, Encoder, Fields};

/// The format TRR.
#[derive(Debug)]
pub struct Trr;

impl Format for Trr {
    fn name(&self) -> &'static str {
        "TRR"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["trr"]
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            reads: Fields::ALL,
            writes: Fields::ALL,
            mixed_fields: true,
            lambda: true,
            stores_cell_vectors: true,
            appends: true,
            ..Abilities::default()
        }
    }

    fn probe(&self, head: &[u8]) -> bool {
        self.magics().iter().any(|magic| head.starts_with(magic))
    }

    fn open(&self, source: &dyn Source, size: u64, options: &OpenOptions<'_>) -> Result<Opened> {
        let layout = |n_atoms| Layout::new(TrrLayout { n_atoms });
        let opened = scanned::open(source, self, layout, size, options)?;
        check_room(source.path(), &opened)?;
        Ok(opened)
    }

    fn code(&self) -> u8 {
        3
    }

    fn layout(&self, bytes: &[u8]) -> Option<Layout> {
        let n_atoms = n_atoms_of(bytes)?;
        Some(Layout::new(TrrLayout { n_atoms }))
    }

    fn encoder(&self, settings: &EncoderSettings<'_>) -> Result<Box<dyn Encoder>, String> {
        Ok(Box::new(TrrEncoder::new(settings.n_atoms)?))
    }
}

/// Refuse a number of atoms that is too large: no frame of the file could contain data of so many
/// atoms. The check runs before memory is allocated, because a TRR frame may contain only a box and
/// state any number of atoms.
fn check_room(path: &Path, opened: &Opened) -> Result<()> {
    let size = opened.samples.fingerprint.size();
    let room = size / ATOM_BYTES_MIN;
    let n_atoms = opened.layout.n_atoms() as u64;
    if opened.frames.is_empty() || n_atoms <= room {
        return Ok(());
    }
    let expected = format!("at most {room} atoms, as many as {size} bytes can hold");
    let fault = Fault::bad(AT_ATOMS, expected, n_atoms);
    Err(Error::damaged(path, Some(0), 0, size, fault))
}

impl Framed for Trr {
    fn header_max(&self) -> usize {
        HEADER_MAX
    }

    fn frame_min(&self, n_atoms: usize) -> u64 {
        HEADER_MIN + ATOM_BYTES_MIN * n_atoms as u64
    }

    fn magics(&self) -> &[[u8; 4]] {
        const MAGICS: [[u8; 4]; 1] = [MAGIC.to_be_bytes()];
        &MAGICS
    }

    fn header(&self, bytes: &[u8]) -> Result<FrameHeader, Fault> {
        let header = Header::parse(bytes)?;
        Ok(FrameHeader {
            size: header.size(),
            n_atoms: header.n_atoms,
            step: header.step.into(),
            time: header.time,
        })
    }
}

/// Layout of the frames of a TRR file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrrLayout {
    /// Number of atoms in a frame.
    pub n_atoms: usize,
}

impl FileLayout for TrrLayout {
    fn format(&self) -> &'static dyn Format {
        &Trr
    }

    fn n_atoms(&self) -> usize {
        self.n_atoms
    }

    fn to_bytes(&self) -> Vec<u8> {
        (self.n_atoms as u64).to_le_bytes().to_vec()
    }

    fn decoder(&self, atoms: Atoms, wanted: Fields) -> Result<Box<dyn Decoder>> {
        Ok(Box::new(TrrDecoder::new(atoms, wanted)))
    }

    fn times(&self, source: &dyn Source, size: u64, frames: &Frames) -> Result<Times> {
        scanned::read_times(source, &Trr, size, frames)
    }

    fn head(&self, _source: &dyn Source, _first: u64, _n_frames: u64) -> Result<Option<Vec<u8>>> {
        Ok(Some(Vec::new()))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
