//! What it takes to copy whole frames into another DCD file.

use super::cell::is_charmms_own;
use super::layout::Layout;

impl Layout {
    /// Make `head`, the head of this file, that of a file of `n_frames` of its frames from number
    /// `first` on. Nothing, and `head` as it was, where a head has no room for such numbers.
    pub fn rewrite_head(&self, head: &mut [u8], first: u64, n_frames: u64) -> Option<()> {
        let n_frames = i32::try_from(n_frames).ok()?;
        let first_step = i32::try_from(self.step(first)).ok()?;
        // Integers 0 and 1 of the first record.
        let at = usize::from(self.marker) + b"CORD".len();
        let integers = head.get_mut(at..at + 8)?;
        let bytes = [n_frames, first_step].map(|value| match self.big_endian {
            true => value.to_be_bytes(),
            false => value.to_le_bytes(),
        });
        integers.copy_from_slice(&bytes.concat());
        Some(())
    }

    /// Atoms that only the first frame holds.
    pub fn n_fixed(&self) -> usize {
        let free = self.free.as_ref();
        free.map_or(0, |free| self.n_atoms() - free.len())
    }

    /// Whether frames have cells, and what these mean that only the head tells.
    fn cells(&self) -> &'static str {
        match (self.has_cell, is_charmms_own(self.version)) {
            (false, _) => "missing",
            (true, false) => "there",
            (true, true) => "there, as CHARMM's shape matrix",
        }
    }

    /// What files must have in common, beside their atoms, for the frames of one to continue
    /// those of the other: name and value.
    pub fn traits(&self) -> Vec<(&'static str, String)> {
        let order = if self.big_endian { "big" } else { "little" };
        let presence = |present| String::from(if present { "there" } else { "missing" });
        let step_ps = self.step_ps().map(|step| step.to_string());
        vec![
            ("byte order", format!("{order}-endian")),
            ("bytes of a record marker", self.marker.to_string()),
            ("unit cells", self.cells().to_owned()),
            ("4th dimension", presence(self.four_dims)),
            ("fixed atoms", self.n_fixed().to_string()),
            ("steps between frames", self.nsavc.to_string()),
            (
                "length of a step (ps)",
                step_ps.unwrap_or_else(|| "unknown".into()),
            ),
        ]
    }
}
