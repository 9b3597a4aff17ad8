//! What stands before the frames of a file, made anew for a file of some of them.

use super::Index;
use crate::Layout;
use crate::dlpoly::Kind;
use crate::error::{Error, Result};
use crate::source::Source;

impl Index {
    /// What a file of `n_frames` of these frames, from number `first` on, begins with: nothing in
    /// formats whose frames stand alone. `source` is the file that was indexed.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where such frames cannot stand in a file of their own, and what the
    /// source gives.
    pub fn head(&self, source: &dyn Source, first: u64, n_frames: u64) -> Result<Vec<u8>> {
        let unsupported = |what| {
            Err(Error::Unsupported {
                path: source.path().to_owned(),
                what,
            })
        };
        let layout = match self.layout() {
            Layout::Xtc { .. } | Layout::Trr { .. } => return Ok(Vec::new()),
            Layout::Dcd(layout) => layout,
            Layout::Dlpoly(layout) if layout.kind() == Kind::History => {
                let atoms = layout.bytes_of(0..0).map_or(0, |atoms| atoms.start);
                let mut head = vec![0; (layout.start() + atoms) as usize];
                source.read_at(0, &mut head)?;
                return Ok(layout.head_of(&head, n_frames));
            }
            Layout::Netcdf3(_) | Layout::Dlpoly(_) => {
                return unsupported(format!(
                    "frames of {} cannot be copied as bytes, only those of XTC, TRR, DCD and \
                     HISTORY",
                    self.layout().name()
                ));
            }
        };
        let n_fixed = layout.n_fixed();
        if n_fixed > 0 {
            return unsupported(format!(
                "{n_fixed} of {} atoms are fixed, and only the first frame holds them: a copy of \
                 other frames' bytes would lack them",
                layout.n_atoms()
            ));
        }
        // The file was long enough for it when it was parsed.
        let mut head = vec![0; layout.header_size() as usize];
        source.read_at(0, &mut head)?;
        match layout.rewrite_head(&mut head, first, n_frames) {
            Some(()) => Ok(head),
            None => unsupported(format!(
                "a DCD file counts frames and steps in 31 bits, too few for {n_frames} frames \
                 from step {} on",
                layout.step(first)
            )),
        }
    }
}
