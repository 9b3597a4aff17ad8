//! How the head of a DCD file tells the times of its frames.

use crate::Series;
use crate::dcd::layout::AKMA;

/// Frame k has the time (istart + k × nsavc) × delta, and the bracket is its step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Clock {
    pub(super) istart: i32,
    pub(super) nsavc: i32,
    /// AKMA. Its 24 bits limit how exact times are.
    pub(super) delta: f32,
}

/// Part of a time, or of the time between frames, that may be lost: little beside what `delta`
/// loses.
const TOLERANCE: f64 = 1e-9;

impl Clock {
    pub(super) fn new(series: &Series) -> Self {
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

    /// `step_length` in ps.
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

    /// The simulation's own steps, where the time of the first frame is theirs.
    fn of_steps(series: &Series) -> Option<Self> {
        let istart = i32::try_from(series.step).ok()?;
        let nsavc = i32::try_from(series.steps)
            .ok()
            .filter(|&steps| steps > 0)?;
        let step_length = series.dt / f64::from(nsavc);
        let off = (f64::from(istart) * step_length - series.time).abs();
        // Files that count time in float32 are off by as much.
        let most = f64::from(f32::EPSILON) * series.time.abs().max(series.dt.abs());
        (off <= most).then(|| Clock::with(istart, nsavc, step_length))
    }
}

/// The convergents of the continued fraction of `value` are the best fractions for their size: the
/// first of them that is near enough, or the last that fits.
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
    // Where not even the whole part fits, the times begin as late as they can.
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
