//! Where frames are: listed one by one, or told by arithmetic.

/// Where the frames of a file are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frames {
    /// Start of each frame, then the end of the last.
    Listed(Vec<u64>),
    /// The first frame may have another size than all the others.
    Regular {
        first: u64,
        first_size: u64,
        stride: u64,
        n: u64,
    },
    /// All frames lie in the same bytes: their parts are in different places there.
    Shared { start: u64, size: u64, n: u64 },
}

impl Frames {
    pub fn len(&self) -> u64 {
        match self {
            Frames::Listed(borders) => borders.len().saturating_sub(1) as u64,
            Frames::Regular { n, .. } | Frames::Shared { n, .. } => *n,
        }
    }

    /// Offset and size of a frame, in bytes.
    ///
    /// # Panics
    /// Where there is no such frame.
    pub fn extent(&self, frame: u64) -> (u64, u64) {
        assert!(frame < self.len(), "frame {frame} of {}", self.len());
        match self {
            Frames::Listed(borders) => {
                let (start, end) = (borders[frame as usize], borders[frame as usize + 1]);
                (start, end - start)
            }
            Frames::Regular {
                first, first_size, ..
            } if frame == 0 => (*first, *first_size),
            Frames::Regular {
                first,
                first_size,
                stride,
                ..
            } => (first + first_size + (frame - 1) * stride, *stride),
            Frames::Shared { start, size, .. } => (*start, *size),
        }
    }
}
