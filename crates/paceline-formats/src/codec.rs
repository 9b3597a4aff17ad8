//! The traits of a decoder and an encoder: the bytes of one frame to numbers and back.

use crate::error::Fault;
use crate::frame::{FrameIn, FrameOut, Run, Series};

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
    /// [`Fault::Short`] asks to be called again with the first `needed` bytes of the frame, or
    /// more, in place of the runs'.
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
