//! One file a format. A decoder takes the bytes of one frame and opens nothing; an encoder gives
//! them.

pub mod dcd;
mod frame;
mod layout;
pub mod xdr;
pub mod xtc;

use crate::error::Fault;

pub use frame::{Fields, Frame, FrameIn, FrameOut, Run, Series};
pub use layout::{Format, Layout};

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

/// An encoder for one file. It belongs to one worker; frames are encoded in any order, each by
/// itself.
pub trait Encoder: Send {
    /// What stands before the first frame. Its size depends on the encoder alone.
    fn head(&self, series: &Series) -> Vec<u8>;

    /// Append one frame to `bytes`.
    ///
    /// # Errors
    /// What the format cannot hold, in a sentence that names the atom; `bytes` is then as before.
    fn encode(&mut self, frame: &FrameIn<'_>, bytes: &mut Vec<u8>) -> Result<(), String>;
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
