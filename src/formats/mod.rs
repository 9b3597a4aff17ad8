//! One file a format. A decoder takes the bytes of one frame and opens nothing.

pub mod xdr;
pub mod xtc;

use crate::error::Fault;

/// Bytes of a frame that a decoder wants: offset from the frame's first byte, and number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    pub start: u64,
    pub len: u64,
}

/// Where one decoded frame goes. Units: Å, degrees, ps.
#[derive(Debug)]
pub struct FrameOut<'a> {
    /// x, y, z of each wanted atom in turn: 3 × atoms wanted, Å.
    pub positions: &'a mut [f32],
    /// Lengths of the cell (Å) and its angles α, β, γ (degrees), as MDAnalysis has them; all
    /// zero where the frame has no cell.
    pub dimensions: &'a mut [f32; 6],
    /// Time, ps.
    pub time: &'a mut f64,
    /// Step number of the simulation.
    pub step: &'a mut i64,
}

/// A decoder for one file and one set of atoms. It belongs to one worker and may learn from
/// each frame how much of the next one to ask for.
pub trait Decoder: Send {
    /// What to read of frame number `frame`, which has `size` bytes: ascending, disjoint runs.
    /// Never more than `size` bytes; the last run may be too short where only decoding tells how
    /// long it must be.
    fn runs(&mut self, frame: u64, size: u64) -> &[Run];

    /// Decode frame number `frame` from `bytes`, the runs asked for one after another.
    ///
    /// # Errors
    /// [`Fault::Short`] asks to be called again with at least `needed` bytes (counted from the
    /// frame's first byte; only a decoder with a single run, starting at 0, answers so).
    /// [`Fault::Bad`] says that this frame cannot be trusted; `out` then holds no meaning.
    fn decode(
        &mut self,
        frame: u64,
        size: u64,
        bytes: &[u8],
        out: FrameOut<'_>,
    ) -> Result<(), Fault>;
}

/// Cell vectors to MDAnalysis's `[lx, ly, lz, alpha, beta, gamma]`; all zero where they span no
/// volume. The formula and its order of operations follow `MDAnalysis.lib.mdamath.triclinic_box`
/// so that the same float32 numbers come out.
pub fn triclinic_box(x: [f64; 3], y: [f64; 3], z: [f64; 3]) -> [f32; 6] {
    let dot = |a: [f64; 3], b: [f64; 3]| a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
    let norm = |a: [f64; 3]| dot(a, a).sqrt();
    let (lx, ly, lz) = (norm(x), norm(y), norm(z));
    let angle = |cosine: f64| cosine.acos() * (180.0 / std::f64::consts::PI);
    let alpha = angle(dot(y, z) / (ly * lz));
    let beta = angle(dot(x, z) / (lx * lz));
    let gamma = angle(dot(x, y) / (lx * ly));
    let dimensions = [lx, ly, lz, alpha, beta, gamma].map(|value| value as f32);
    // A NaN fails both comparisons and so leaves no box, as it should.
    let valid = dimensions.iter().all(|&value| value > 0.0)
        && [alpha, beta, gamma].iter().all(|&angle| angle < 180.0);
    if valid { dimensions } else { [0.0; 6] }
}
