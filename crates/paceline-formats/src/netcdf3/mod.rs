//! Amber NetCDF: trajectories and restart files of Amber, cpptraj, MDAnalysis, MDTraj and OpenMM
//! in NetCDF's classic formats, which are called CDF-1, CDF-2 and CDF-5.
//!
//! Behind the header (see `header.rs`) stand first the variables that have one value for the
//! whole file, then, as in nearly all trajectories, a record for each frame:
//!
//! ```text
//! time            ps
//! cell_lengths    3 numbers, Å
//! cell_angles     3 numbers, degrees
//! coordinates     3 numbers an atom, Å
//! velocities      3 numbers an atom, Å/ps once they are multiplied by `scale_factor`
//! forces          3 numbers an atom, kcal/(mol·Å)
//! ```
//!
//! in any order, each optional and possibly among others, each f32 or f64. Where the file has room
//! for a certain number of frames, and in restart files, they are no records: see [`Layout`].

mod amber;
mod cursor;
mod encode;
mod header;
mod layout;
mod number;
mod plan;

use self::layout::Role;
use self::plan::Plan;
use crate::atom_set::Atoms;
use crate::error::Fault;
use crate::{Decoder, Fields, FrameOut, Run};

pub use self::encode::NetcdfEncoder;
pub use self::layout::{Arrangement, Layout};

/// kJ in a kcal; MDAnalysis multiplies forces in f32.
const KILOJOULES: f32 = 4.184;

/// Decodes what is wanted of one Amber NetCDF file.
#[derive(Debug)]
pub struct NetcdfDecoder {
    layout: Layout,
    plan: Plan,
    wanted: Fields,
    n_wanted: usize,
    /// The plan's runs, moved to the frame that was asked for.
    runs: Vec<Run>,
}

impl NetcdfDecoder {
    /// # Panics
    /// Where `atoms` are not chosen out of `layout.n_atoms()`.
    pub fn new(layout: Layout, atoms: Atoms, wanted: Fields) -> Self {
        assert_eq!(atoms.n_total(), layout.n_atoms(), "atoms of another system");
        let plan = Plan::new(&layout, &atoms, wanted);
        NetcdfDecoder {
            runs: plan.runs.clone(),
            plan,
            layout,
            wanted,
            n_wanted: atoms.len(),
        }
    }

    /// Whether the extent of frame number `frame` can be one of `size` bytes.
    fn has_frame(&self, frame: u64, size: u64) -> bool {
        let in_file = match self.layout.arrangement() {
            Arrangement::Records { .. } => true,
            Arrangement::Arrays { n, .. } => frame < n,
        };
        in_file && size == self.layout.frame_size()
    }

    fn check(&self, frame: u64, size: u64, bytes: &[u8], out: &FrameOut<'_>) -> Result<(), Fault> {
        if !self.has_frame(frame, size) {
            let expected = format!("a frame of {} bytes", self.layout.frame_size());
            return Err(Fault::bad(0, expected, format!("{size} bytes")));
        }
        if bytes.len() as u64 != self.plan.len {
            let expected = format!("{} bytes of the frame's runs", self.plan.len);
            return Err(Fault::bad(0, expected, bytes.len()));
        }
        let (wanted, width) = (self.wanted, 3 * self.n_wanted);
        let room = |wanted: bool, values: &[f32]| !wanted || values.len() == width;
        if room(wanted.positions, out.positions)
            && room(wanted.velocities, out.velocities)
            && room(wanted.forces, out.forces)
        {
            return Ok(());
        }
        let expected = format!("room for {} atoms", self.n_wanted);
        Err(Fault::bad(0, expected, "room for others"))
    }

    fn dimensions(&self, bytes: &[u8]) -> [f32; 6] {
        let mut dimensions = [0.0; 6];
        let (lengths, angles) = dimensions.split_at_mut(3);
        for (role, values) in [(Role::Lengths, lengths), (Role::Angles, angles)] {
            if let Some(part) = self.plan.part_of(role) {
                part.gather(bytes, values);
            }
        }
        // Angles without lengths are no cell.
        if dimensions[..3] == [0.0; 3] {
            return [0.0; 6];
        }
        dimensions
    }
}

impl Decoder for NetcdfDecoder {
    fn runs(&mut self, frame: u64, size: u64) -> &[Run] {
        if !self.has_frame(frame, size) {
            return &[];
        }
        for ((run, first), step) in self
            .runs
            .iter_mut()
            .zip(&self.plan.runs)
            .zip(&self.plan.steps)
        {
            run.start = first.start + frame * step;
        }
        &self.runs
    }

    fn decode(
        &mut self,
        frame: u64,
        size: u64,
        bytes: &[u8],
        out: FrameOut<'_>,
    ) -> Result<(), Fault> {
        self.check(frame, size, bytes, &out)?;
        for (role, values) in [
            (Role::Positions, out.positions),
            (Role::Velocities, out.velocities),
            (Role::Forces, out.forces),
        ] {
            if let Some(part) = self.plan.part_of(role) {
                part.gather(bytes, values);
                if role == Role::Forces {
                    values.iter_mut().for_each(|force| *force *= KILOJOULES);
                }
            }
        }
        *out.dimensions = self.dimensions(bytes);
        let time = self.plan.part_of(Role::Time);
        *out.time = time
            .and_then(|time| time.first(bytes))
            .unwrap_or(frame as f64);
        *out.step = self.layout.step(frame);
        *out.fields = self.layout.fields();
        Ok(())
    }
}
