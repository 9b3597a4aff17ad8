//! Formats whose frames each begin with a header that states the frame's size.

use crate::error::Fault;
use crate::{trr, xtc};

/// What a frame's header says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FrameHeader {
    /// Bytes of the whole frame, its header among them.
    pub size: u64,
    pub n_atoms: usize,
    pub step: i64,
    /// Time, ps.
    pub time: f64,
}

pub trait Framed: Sync {
    /// Bytes within which every header ends.
    fn header_max(&self) -> usize;

    /// What the first four bytes of a frame may be.
    fn magics(&self) -> &[[u8; 4]];

    /// Parse the header at the start of `bytes`.
    ///
    /// # Errors
    /// [`Fault::Short`] only where `bytes` is the beginning of a header that may be valid.
    fn header(&self, bytes: &[u8]) -> Result<FrameHeader, Fault>;
}

/// XTC's headers.
pub struct Xtc;

impl Framed for Xtc {
    fn header_max(&self) -> usize {
        xtc::HEADER_MAX
    }

    fn magics(&self) -> &[[u8; 4]] {
        const MAGICS: [[u8; 4]; 2] = [xtc::MAGIC_1995.to_be_bytes(), xtc::MAGIC_2023.to_be_bytes()];
        &MAGICS
    }

    fn header(&self, bytes: &[u8]) -> Result<FrameHeader, Fault> {
        let header = xtc::Header::parse(bytes)?;
        Ok(FrameHeader {
            size: header.size,
            n_atoms: header.n_atoms,
            step: header.step.into(),
            time: header.time.into(),
        })
    }
}

/// TRR's headers.
pub struct Trr;

impl Framed for Trr {
    fn header_max(&self) -> usize {
        trr::HEADER_MAX
    }

    fn magics(&self) -> &[[u8; 4]] {
        const MAGICS: [[u8; 4]; 1] = [trr::MAGIC.to_be_bytes()];
        &MAGICS
    }

    fn header(&self, bytes: &[u8]) -> Result<FrameHeader, Fault> {
        let header = trr::Header::parse(bytes)?;
        Ok(FrameHeader {
            size: header.size(),
            n_atoms: header.n_atoms,
            step: header.step.into(),
            time: header.time,
        })
    }
}
