//! Encoder of DCD files, in the variant that NAMD, VMD and MDAnalysis write: little-endian, markers
//! of 4 bytes, CHARMM version 24, and a cell of lengths and cosines.

use super::header::FIRST_LEN;
use super::layout_and_cell::{AKMA, CELL_LEN};
use crate::frame_codec::{check_finite, odd_bits};
use crate::{Encoder, FrameIn, Series};

/// CHARMM version in the header. Because it is not 0, readers expect CHARMM's variant of DCD.
const CHARMM_VERSION: i32 = 24;

const TITLE: &str = "CREATED BY PACELINE";
const TITLE_LINE: usize = 80;

/// Encoder of the frames of one DCD file.
#[derive(Debug)]
pub struct DcdEncoder {
    n_atoms: i32,
    has_cell: bool,
}

impl DcdEncoder {
    /// Create an encoder. If `has_cell` is true, a cell is written in every frame; for a frame
    /// without a cell, it consists of zeros.
    ///
    /// # Errors
    /// A message that states how many atoms a DCD file can contain.
    pub fn new(n_atoms: usize, has_cell: bool) -> Result<Self, String> {
        // A marker contains the size of a record, which has 4 bytes per atom. Readers treat the
        // marker as a signed 32-bit number, which limits the number of atoms.
        let most = i32::MAX / 4;
        match i32::try_from(n_atoms) {
            Ok(n_atoms) if (1..=most).contains(&n_atoms) => Ok(DcdEncoder { n_atoms, has_cell }),
            _ => Err(format!("DCD holds 1 to {most} atoms, not {n_atoms}")),
        }
    }

    fn check(&self, frame: &FrameIn<'_>) -> Result<(), String> {
        let n_atoms = self.n_atoms as usize;
        if frame.positions.len() != 3 * n_atoms {
            let found = frame.positions.len() / 3;
            return Err(format!(
                "expected positions of {n_atoms} atoms, found {found}"
            ));
        }
        if !(frame.velocities.is_empty() && frame.forces.is_empty()) {
            return Err("DCD holds positions only, no velocities or forces".into());
        }
        let cell = &frame.cell.dimensions;
        if !self.has_cell && *cell != [0.0; 6] {
            return Err("expected no unit cell, as in the file's first frame, found one".into());
        }
        let sound = |&value: &f32| value.is_finite() && value >= 0.0;
        if let Some(value) = cell.iter().find(|value| !sound(value)) {
            return Err(format!(
                "expected a finite unit cell, none of it negative, found {value}"
            ));
        }
        match cell[3..].iter().find(|&&angle| angle > 180.0) {
            Some(angle) => Err(format!(
                "expected angles of up to 180 degrees, found {angle}"
            )),
            None => Ok(()),
        }
    }
}

impl Encoder for DcdEncoder {
    fn head(&self, series: &Series) -> Vec<u8> {
        let clock = Clock::new(series);
        let n_frames = i32::try_from(series.n_frames).unwrap_or(i32::MAX);
        let mut integers = [0; 20];
        integers[0] = n_frames;
        integers[1] = clock.istart;
        integers[2] = clock.nsavc;
        integers[3] = n_frames.saturating_mul(clock.nsavc);
        integers[9] = clock.delta.to_bits() as i32;
        integers[10] = i32::from(self.has_cell);
        integers[19] = CHARMM_VERSION;

        let mut bytes = Vec::new();
        put_record(&mut bytes, FIRST_LEN as usize, |bytes| {
            bytes.extend(b"CORD");
            put_all(bytes, &integers, i32::to_le_bytes);
        });
        put_record(&mut bytes, 4 + TITLE_LINE, |bytes| {
            bytes.extend(1i32.to_le_bytes());
            bytes.extend(format!("{TITLE:TITLE_LINE$}").bytes());
        });
        put_record(&mut bytes, 4, |bytes| {
            bytes.extend(self.n_atoms.to_le_bytes())
        });
        bytes
    }

    fn encode(&mut self, frame: &FrameIn<'_>, bytes: &mut Vec<u8>) -> Result<(), String> {
        self.check(frame)?;
        let start = bytes.len();
        if self.has_cell {
            let cell = cell(&frame.cell.dimensions);
            put_record(bytes, CELL_LEN as usize, |bytes| {
                put_all(bytes, &cell, f64::to_le_bytes);
            });
        }
        let (positions, _) = frame.positions.as_chunks::<3>();
        // Numbers are checked during the conversion, because a separate pass would take a third of
        // the total time.
        let mut odd = 0;
        for axis in 0..3 {
            put_record(bytes, 4 * positions.len(), |bytes| {
                bytes.extend(positions.iter().flat_map(|position| {
                    odd |= odd_bits(position[axis]);
                    position[axis].to_le_bytes()
                }));
            });
        }
        if odd == 0 {
            return Ok(());
        }
        bytes.truncate(start);
        check_finite(frame.positions, "position")
    }
}

/// Append a Fortran record of `len` bytes.
fn put_record(bytes: &mut Vec<u8>, len: usize, put: impl FnOnce(&mut Vec<u8>)) {
    let marker = (len as u32).to_le_bytes();
    bytes.extend(marker);
    put(bytes);
    bytes.extend(marker);
}

fn put_all<T: Copy, const N: usize>(bytes: &mut Vec<u8>, numbers: &[T], put: fn(T) -> [u8; N]) {
    bytes.extend(numbers.iter().flat_map(|&number| put(number)));
}

/// Create the cell record: A, cos γ, B, cos β, cos α, C. NAMD and VMD write cosines, too. All
/// readers distinguish cosines from degrees. In double precision, cosines and degrees yield the
/// same angles.
fn cell(dimensions: &[f32; 6]) -> [f64; 6] {
    if dimensions[..3] == [0.0; 3] {
        return [0.0; 6];
    }
    let [a, b, c, alpha, beta, gamma] = dimensions.map(f64::from);
    // Computed as a sine, the cosine of a right angle is exactly 0.
    let cosine = |angle: f64| (90.0 - angle).to_radians().sin();
    [a, cosine(gamma), b, cosine(beta), cosine(alpha), c]
}

// Encoding of the times of frames in the header of a DCD file.

/// Time axis of a DCD file: frame k has the step number istart + k × nsavc, and the time
/// (istart + k × nsavc) × delta.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Clock {
    istart: i32,
    nsavc: i32,
    /// Length of a step, AKMA units, in single precision (24 bits), which limits the precision of
    /// times.
    delta: f32,
}

/// Maximum error of the first frame's time, as a fraction of this time or of the time between
/// frames, whichever is larger. It is small compared with the rounding error of `delta`.
const TOLERANCE: f64 = 1e-9;

impl Clock {
    fn new(series: &Series) -> Self {
        let Series { time, dt, .. } = *series;
        let time = if time.is_finite() { time } else { 0.0 };
        if series.n_frames < 2 || dt == 0.0 || !dt.is_finite() {
            return Clock::of_one(time, series.step);
        }
        Clock::of_steps(series).unwrap_or_else(|| {
            let (istart, nsavc) = fraction(time / dt, TOLERANCE * (time / dt).abs().max(1.0));
            Clock::with(istart, nsavc, dt / f64::from(nsavc))
        })
    }

    /// Create the time axis from `step_length` in ps.
    fn with(istart: i32, nsavc: i32, step_length: f64) -> Self {
        let delta = (step_length / AKMA) as f32;
        Clock {
            istart,
            nsavc,
            delta,
        }
    }

    fn of_one(time: f64, step: i64) -> Self {
        match i32::try_from(step) {
            _ if time == 0.0 => Clock::with(0, 1, 1.0),
            Ok(step) if step != 0 => Clock::with(step, 1, time / f64::from(step)),
            _ => Clock::with(1, 1, time),
        }
    }

    /// Create the time axis from the step numbers of the simulation. Return `None` if they do not
    /// yield the time of the first frame, or do not fit into the header.
    fn of_steps(series: &Series) -> Option<Self> {
        let istart = i32::try_from(series.step).ok()?;
        let nsavc = i32::try_from(series.steps)
            .ok()
            .filter(|&steps| steps > 0)?;
        let step_length = series.dt / f64::from(nsavc);
        let off = (f64::from(istart) * step_length - series.time).abs();
        // Times in float32 have this rounding error.
        let most = f64::from(f32::EPSILON) * series.time.abs().max(series.dt.abs());
        (off <= most).then(|| Clock::with(istart, nsavc, step_length))
    }
}

/// Approximate `value` by a fraction; return its numerator and denominator. The fraction is the
/// first convergent of the continued fraction of `value` that is precise enough, or else the last
/// one that fits into 32 bits.
fn fraction(value: f64, tolerance: f64) -> (i32, i32) {
    let most = f64::from(i32::MAX);
    let mut rest = value;
    let (mut before, mut best) = ((0.0, 1.0), (1.0, 0.0));
    loop {
        let whole = rest.floor();
        let next = (whole * best.0 + before.0, whole * best.1 + before.1);
        if !(next.0.abs() <= most && next.1 <= most) {
            break;
        }
        (before, best) = (best, next);
        if (best.0 / best.1 - value).abs() <= tolerance {
            break;
        }
        rest = 1.0 / (rest - whole);
    }
    // If even the integer part of `value` does not fit, the largest possible value is used.
    if best.1 == 0.0 {
        best = (most.copysign(value), 1.0);
    }
    (best.0 as i32, best.1 as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(n_frames: u64, time: f64, dt: f64, step: i64, steps: i64) -> Series {
        Series {
            n_frames,
            time,
            dt,
            step,
            steps,
        }
    }

    #[test]
    fn times_come_back_as_exactly_as_delta_allows() {
        for series in [
            series(10, 0.0, 1.0, 0, 500),
            series(10, 100.0, 100.0, 50_000, 50_000),
            series(10, 5.0, 2.0, 0, 0),
            series(10, 0.1, 0.3, 7, 7),
            series(10, 1.0, std::f64::consts::PI, 1, 1),
            series(10, -7.5, 2.5, -3, 1),
            series(10, 123_456_789.1, 0.2, 0, -1),
            series(10, 1e6, 25.0, 1 << 40, 10),
            series(10, 20.0, -2.0, 0, 0),
            series(1, 17.5, 0.0, 35, 0),
            series(1, 17.5, 0.0, 0, 0),
            series(1, 0.0, 0.0, 12, 0),
        ] {
            let clock = Clock::new(&series);
            for frame in [0, series.n_frames - 1] {
                let steps = f64::from(clock.istart) + frame as f64 * f64::from(clock.nsavc);
                let time = steps * f64::from(clock.delta) * AKMA;
                let expected = series.time + frame as f64 * series.dt;
                let scale = expected.abs().max(series.time.abs());
                assert!(
                    (time - expected).abs() <= 1e-7 * scale,
                    "{series:?} {clock:?}: {time}"
                );
            }
        }
    }

    #[test]
    fn steps_of_the_simulation_are_kept_where_they_tell_the_time() {
        let kept = Clock::new(&series(5, 20.0, 10.0, 10_000, 5_000));
        assert_eq!((kept.istart, kept.nsavc), (10_000, 5_000));
        let shifted = Clock::new(&series(5, 23.0, 10.0, 10_000, 5_000));
        assert_eq!((shifted.istart, shifted.nsavc), (23, 10));
    }

    #[test]
    fn no_series_is_too_odd() {
        let odd = [0.0, -0.0, 1e-300, -1e300, f64::NAN, f64::INFINITY, 3.5];
        for time in odd {
            for dt in odd {
                let clock = Clock::new(&series(u64::MAX, time, dt, i64::MIN, i64::MAX));
                assert!(clock.nsavc >= 1);
            }
        }
    }
}
