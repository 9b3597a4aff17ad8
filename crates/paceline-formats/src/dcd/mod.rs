//! DCD, the trajectories of CHARMM, NAMD, X-PLOR, LAMMPS and OpenMM.
//!
//! Behind the head (see [`Layout`]) every frame is a few Fortran records:
//!
//! ```text
//! 48 bytes   cell, 6 f64 (optional): see `cell`
//! 4 × atoms  all x, f32, Å
//! 4 × atoms  all y
//! 4 × atoms  all z
//! 4 × atoms  the 4th dimension (optional)
//! ```
//!
//! With fixed atoms the first frame holds all atoms and later ones only the free ones.

mod cell;
mod copying;
mod encode;
mod format;
mod header;
mod layout;
mod plan;
mod records;
#[cfg(test)]
mod tests;

use self::plan::Plan;
use self::records::{bytes_at, check_marker};
use crate::atom_set::Atoms;
use crate::error::Fault;
use crate::{Decoder, Fields, FrameOut, Run};

pub use self::encode::DcdEncoder;
pub use self::format::Dcd;
pub use self::layout::Layout;

/// Decodes the wanted atoms of one DCD file.
#[derive(Debug)]
pub struct DcdDecoder {
    layout: Layout,
    n_wanted: usize,
    first: Plan,
    /// For the frames after the first, where some atoms are fixed.
    later: Option<Plan>,
    fixed: Fixed,
}

/// What later frames do not hold.
#[derive(Debug)]
enum Fixed {
    /// No wanted atom is fixed.
    None,
    /// Some are; their positions are not known yet.
    Unknown,
    /// Positions of all wanted atoms in the first frame.
    Known(Vec<f32>),
}

impl DcdDecoder {
    /// # Panics
    /// Where `atoms` are not chosen out of `layout.n_atoms()`.
    pub fn new(layout: Layout, atoms: Atoms) -> Self {
        assert_eq!(atoms.n_total(), layout.n_atoms(), "atoms of another system");
        let free = layout.free.as_deref();
        let later = free.map(|free| Plan::partial(&layout, free, &atoms));
        let fixed = match &later {
            Some(later) if later.n_atoms() < atoms.len() => Fixed::Unknown,
            _ => Fixed::None,
        };
        DcdDecoder {
            n_wanted: atoms.len(),
            first: Plan::whole(&layout, &atoms),
            layout,
            later,
            fixed,
        }
    }

    /// Whether [`DcdDecoder::set_first_frame`] must be called before any frame but the first is
    /// decoded: some wanted atoms are fixed, and only the first frame holds them.
    pub fn needs_first_frame(&self) -> bool {
        matches!(self.fixed, Fixed::Unknown)
    }

    /// Learn the fixed atoms' positions from all [`Layout::first_frame_size`] bytes of the first
    /// frame.
    ///
    /// # Errors
    /// [`Fault::Bad`] where these are not the bytes of a first frame.
    pub fn set_first_frame(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        self.check_size(&self.first, bytes.len() as u64)?;
        let mut wanted = Vec::new();
        for run in &self.first.runs {
            wanted.extend_from_slice(&bytes[run.start as usize..(run.start + run.len) as usize]);
        }
        let mut positions = vec![0.0; 3 * self.n_wanted];
        self.read(&self.first, &wanted, &mut positions)?;
        self.fixed = Fixed::Known(positions);
        Ok(())
    }

    fn plan(&self, frame: u64) -> &Plan {
        match &self.later {
            Some(later) if frame > 0 => later,
            _ => &self.first,
        }
    }

    fn check_size(&self, plan: &Plan, size: u64) -> Result<(), Fault> {
        if size == plan.size {
            return Ok(());
        }
        let expected = format!("a frame of {} bytes", plan.size);
        Err(Fault::bad(0, expected, format!("{size} bytes")))
    }

    /// Check the markers among the bytes of a plan's runs, take the wanted positions, and return
    /// the cell.
    fn read(&self, plan: &Plan, bytes: &[u8], positions: &mut [f32]) -> Result<[f32; 6], Fault> {
        if bytes.len() as u64 != plan.len {
            let expected = format!("{} bytes of the frame's runs", plan.len);
            return Err(Fault::bad(0, expected, bytes.len()));
        }
        let width = usize::from(self.layout.marker);
        for marker in &plan.markers {
            let found = &bytes[marker.source..marker.source + width];
            check_marker(marker.at, found, self.layout.big_endian, marker.value)?;
        }
        if self.layout.big_endian {
            plan.gather::<true>(bytes, positions);
        } else {
            plan.gather::<false>(bytes, positions);
        }
        let cell = self.cell(plan, bytes);
        Ok(cell.map_or([0.0; 6], |cell| cell::dimensions(self.layout.version, cell)))
    }

    /// The numbers of the cell record among the bytes of a plan's runs.
    fn cell(&self, plan: &Plan, bytes: &[u8]) -> Option<[f64; 6]> {
        let number = match self.layout.big_endian {
            true => f64::from_be_bytes,
            false => f64::from_le_bytes,
        };
        let at = plan.cell?;
        Some(std::array::from_fn(|i| number(bytes_at(bytes, at + 8 * i))))
    }

    /// What a user should be told of the cell among the bytes of a frame's runs, which
    /// [`Decoder::decode`] has accepted.
    pub fn cell_doubt(&self, frame: u64, bytes: &[u8]) -> Option<String> {
        let cell = self.cell(self.plan(frame), bytes)?;
        cell::doubt(self.layout.version, cell)
    }
}

impl Decoder for DcdDecoder {
    fn needs_first(&self) -> Option<(u64, u64)> {
        self.needs_first_frame()
            .then(|| (self.layout.header_size(), self.layout.first_frame_size()))
    }

    fn learn(&mut self, first: &[u8]) -> Result<(), Fault> {
        self.set_first_frame(first)
    }

    fn runs(&mut self, frame: u64, size: u64) -> &[Run] {
        let plan = self.plan(frame);
        if size == plan.size { &plan.runs } else { &[] }
    }

    fn decode(
        &mut self,
        frame: u64,
        size: u64,
        bytes: &[u8],
        out: FrameOut<'_>,
    ) -> Result<(), Fault> {
        let plan = self.plan(frame);
        self.check_size(plan, size)?;
        if out.positions.len() != 3 * self.n_wanted {
            let expected = format!("room for {} atoms", self.n_wanted);
            return Err(Fault::bad(0, expected, out.positions.len() / 3));
        }
        if frame > 0 {
            match &self.fixed {
                Fixed::None => {}
                Fixed::Known(positions) => out.positions.copy_from_slice(positions),
                Fixed::Unknown => {
                    return Err(Fault::bad(0, "the first frame's fixed atoms", "none"));
                }
            }
        }
        *out.dimensions = self.read(plan, bytes, out.positions)?;
        *out.fields = Fields::POSITIONS;
        *out.time = self.layout.time(frame);
        *out.step = self.layout.step(frame);
        Ok(())
    }
}
