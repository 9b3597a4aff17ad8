//! What it takes to copy whole frames into another HISTORY.

use super::layout::{Layout, LineLengths};

impl Layout {
    /// The head of a HISTORY of `n_frames` of this file's frames. `head` are the bytes before the
    /// first frame and the lines before its first atom.
    ///
    /// The numbers of frames and records become 0 where lines vary: DL_POLY then looks for frames
    /// itself. A head that has no such numbers, as DL_POLY Classic's, is left as it is.
    pub fn head_of(&self, head: &[u8], n_frames: u64) -> Vec<u8> {
        let start = self.start as usize;
        let counts = match self.lines {
            LineLengths::Varying => [0, 0],
            LineLengths::Equal(_) => {
                let before = head[start..].iter().filter(|&&byte| byte == b'\n').count() as u64;
                let lines = before + self.n_atoms * self.lines_of_atom();
                [n_frames, 2 + n_frames * lines]
            }
        };
        let mut out = head[..start].to_vec();
        if let Some([third, fourth, fifth]) = super::head::counts(head) {
            let field = |number: u64, width: usize| format!(" {number:>0$}", width - 1);
            let fields = [(counts[0], fourth - third), (counts[1], fifth - fourth)];
            let fields = fields.map(|(number, width)| field(number, width));
            out.splice(third..fifth, fields.concat().into_bytes());
        }
        out
    }
}
