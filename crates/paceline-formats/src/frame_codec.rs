//! Traits of decoders and encoders, which convert the bytes of one frame to numbers and back.

use crate::error::Fault;
use crate::{FrameIn, FrameOut, Series};

/// Byte range of a frame that a decoder needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Offset from the frame's first byte.
    pub start: u64,
    /// Number of bytes.
    pub len: u64,
}

impl Run {
    /// End of the range.
    pub fn end(&self) -> u64 {
        self.start + self.len
    }
}

/// Decoder for one file and one set of atoms. Each worker has its own decoder, which may learn from
/// each frame how many bytes of the next frame it needs.
pub trait Decoder: Send {
    /// Return offset and size of the first frame, if [`Decoder::learn`] must read it before any
    /// other frame is decoded.
    fn needs_first(&self) -> Option<(u64, u64)> {
        None
    }

    /// Read data that only the first frame contains.
    ///
    /// # Errors
    /// [`Fault::Bad`] if the bytes are not a valid first frame.
    fn learn(&mut self, _first: &[u8]) -> Result<(), Fault> {
        Ok(())
    }

    /// Return the byte ranges (runs) to read from frame number `frame`, which has `size` bytes.
    /// Runs are ascending and disjoint, and lie within the frame. The last run may be too short:
    /// [`Decoder::decode`] then returns [`Fault::Short`].
    fn runs(&mut self, frame: u64, size: u64) -> &[Run];

    /// Decode frame number `frame` from `bytes`, the concatenated runs.
    ///
    /// # Errors
    /// [`Fault::Short`] if the runs are too short. The caller must then call again with at least
    /// the first `needed` bytes of the frame instead of the runs. [`Fault::Bad`] if the frame is
    /// damaged; the content of `out` is then undefined.
    fn decode(
        &mut self,
        frame: u64,
        size: u64,
        bytes: &[u8],
        out: FrameOut<'_>,
    ) -> Result<(), Fault>;
}

/// Encoder for one file. Each worker has its own encoder. Frames are independent, and may be
/// encoded in any order.
pub trait Encoder: Send {
    /// Return the bytes before the first frame. Their number does not depend on `series`.
    fn head(&self, series: &Series) -> Vec<u8>;

    /// Append one frame to `bytes`.
    ///
    /// # Errors
    /// A message with the reason and, if the reason is a value of an atom, the atom. `bytes` is
    /// then unchanged.
    fn encode(&mut self, frame: &FrameIn<'_>, bytes: &mut Vec<u8>) -> Result<(), String>;
}

// Checks for numbers that no reader could use.

/// Upper bound of the time of a simulation, ps: 1000 s.
const TIME_MAX: f64 = 1e15;

/// Return a time, ps, or NaN if it is impossible in a simulation.
pub fn possible_time(time: f64) -> f64 {
    if time.abs() < TIME_MAX {
        time
    } else {
        f64::NAN
    }
}

/// Check a time, ps, at byte `at` of a frame.
///
/// # Errors
/// [`Fault::Bad`] if the time is impossible in a simulation.
pub fn check_time(at: usize, time: f64) -> Result<(), Fault> {
    match possible_time(time).is_nan() {
        true => Err(Fault::bad(at, "a time", format!("{time:e} ps"))),
        false => Ok(()),
    }
}

/// Refuse values that are not all finite. `one` is the name of the values of one atom in the
/// message, such as "position".
///
/// # Errors
/// A message that names the first atom that has a value that is not finite.
pub fn check_finite(values: &[f32], one: &str) -> Result<(), String> {
    if values.iter().fold(0, |odd, &x| odd | odd_bits(x)) == 0 {
        return Ok(());
    }
    let at = values.iter().position(|x| !x.is_finite()).unwrap_or(0);
    Err(not_finite(at / 3, one, values[at]))
}

/// Return the message for an atom with a value that is not finite.
pub fn not_finite(atom: usize, one: &str, found: f32) -> String {
    format!("atom {atom}: expected a finite {one}, found {found}")
}

/// Return 0 for a finite number, and the nonzero bits of x − x = NaN for any other. Combining these
/// bits for all numbers of a frame needs no branches, and takes a seventh of the time of a search.
#[expect(clippy::eq_op, reason = "not equal where x is NaN or infinite")]
pub fn odd_bits(x: f32) -> u32 {
    (x - x).to_bits()
}

// Combination of the byte ranges to read from a frame: wanted ranges, and short gaps between them.

/// Collector of the byte ranges (runs) to read from a frame, from its front to its end.
#[derive(Debug)]
pub struct ReadRanges {
    pub runs: Vec<Run>,
    /// Total number of bytes of the runs.
    pub len: u64,
    gap: u64,
    /// True if the next range may be merged with the last run.
    open: bool,
}

impl ReadRanges {
    /// Create an empty collection. Ranges that are at most `gap` bytes apart are read together.
    pub fn new(gap: u64) -> Self {
        ReadRanges {
            runs: Vec::new(),
            len: 0,
            gap,
            open: false,
        }
    }

    /// Request `len` bytes at the offset `start`, which must not be below the start of any range
    /// requested before. Return the offset of the first byte in the concatenated runs.
    pub fn want(&mut self, start: u64, len: u64) -> usize {
        let end = start + len;
        match self.runs.last_mut() {
            Some(last) if self.open && start <= last.end().saturating_add(self.gap) => {
                let more = end.saturating_sub(last.end());
                last.len += more;
                self.len += more;
            }
            _ => {
                self.runs.push(Run { start, len });
                self.len += len;
                self.open = true;
            }
        }
        (self.len - (self.end() - start)) as usize
    }

    /// Make the next range start a separate run, even if it is close to the last run.
    pub fn close(&mut self) {
        self.open = false;
    }

    /// Return the end of the last run.
    pub fn end(&self) -> u64 {
        self.runs.last().map_or(0, Run::end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_atom_with_a_number_that_is_not_finite_is_named() {
        for n_atoms in [1, 2, 7, 100] {
            let mut values = vec![f32::MAX; 3 * n_atoms];
            values[0] = -0.0;
            values[1] = 1e-45;
            assert_eq!(check_finite(&values, "force"), Ok(()));
            values[3 * n_atoms - 1] = f32::NAN;
            for (found, name) in [
                (f32::NAN, "NaN"),
                (-f32::NAN, "NaN"),
                (f32::INFINITY, "inf"),
                (f32::NEG_INFINITY, "-inf"),
            ] {
                for at in 0..3 * n_atoms {
                    let mut values = values.clone();
                    values[at] = found;
                    let atom = at / 3;
                    let expected = format!("atom {atom}: expected a finite force, found {name}");
                    assert_eq!(check_finite(&values, "force"), Err(expected));
                }
            }
        }
        assert_eq!(check_finite(&[], "force"), Ok(()));
    }

    #[test]
    fn what_is_near_is_read_together() {
        let mut reading = ReadRanges::new(10);
        let places =
            [(5, 10), (12, 2), (25, 1), (37, 4)].map(|(start, len)| reading.want(start, len));
        assert_eq!(places, [0, 7, 20, 21]);
        let run = |start, len| Run { start, len };
        assert_eq!(reading.runs, [run(5, 21), run(37, 4)]);
        reading.close();
        assert_eq!(reading.want(41, 1), 25);
        assert_eq!(reading.runs[2], run(41, 1));
        assert_eq!((reading.len, reading.end()), (26, 42));
    }

    #[test]
    fn no_gap_is_too_wide_for_all() {
        let mut reading = ReadRanges::new(u64::MAX);
        assert_eq!(reading.want(0, 92), 0);
        assert_eq!(reading.want(1 << 40, 3), 1 << 40);
        assert_eq!(reading.runs.len(), 1);
    }
}
