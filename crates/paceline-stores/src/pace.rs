//! Latency and bandwidth of a store, measured from its responses.

use std::sync::Mutex;
use std::time::Duration;

/// Values before the first measurement.
const LATENCY: f64 = 0.05;
const BANDWIDTH: f64 = 10e6;
/// Limits of the gap between ranges that are requested together, bytes.
const SMALLEST_GAP: f64 = 65_536.0;
const LARGEST_GAP: f64 = 4_194_304.0;
/// Weight of a new measurement.
const WEIGHT: f64 = 0.2;
/// Minimum number of bytes of a response that shows the bandwidth.
const LONG: usize = 256 << 10;

/// Latency and bandwidth of one connection.
#[derive(Debug)]
pub(crate) struct Pace(Mutex<Measured>);

#[derive(Debug, Clone, Copy)]
struct Measured {
    /// Time to the beginning of a response, s.
    latency: f64,
    /// Bytes per second of one connection while others are used.
    bandwidth: f64,
}

impl Pace {
    pub(crate) fn new() -> Self {
        Pace(Mutex::new(Measured {
            latency: LATENCY,
            bandwidth: BANDWIDTH,
        }))
    }

    /// Record a response of `len` bytes: the time to its beginning, and of its body.
    pub(crate) fn record(&self, first: Duration, body: Duration, len: usize) {
        let mut measured = self.0.lock().unwrap_or_else(|lock| lock.into_inner());
        measured.latency += WEIGHT * (first.as_secs_f64() - measured.latency);
        if len >= LONG {
            let bandwidth = len as f64 / body.as_secs_f64().max(1e-4);
            measured.bandwidth += WEIGHT * (bandwidth - measured.bandwidth);
        }
    }

    /// Return the number of bytes that take as long as another request.
    pub(crate) fn gap(&self) -> u64 {
        let measured = *self.0.lock().unwrap_or_else(|lock| lock.into_inner());
        let gap = measured.latency * measured.bandwidth;
        gap.clamp(SMALLEST_GAP, LARGEST_GAP) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gap_follows_latency_and_bandwidth() {
        let pace = Pace::new();
        let fill = |first, body| {
            for _ in 0..50 {
                pace.record(
                    Duration::from_millis(first),
                    Duration::from_millis(body),
                    1 << 20,
                );
            }
            pace.gap()
        };
        let near = fill(1, 10);
        let far = fill(100, 100);
        assert!((100_000..110_000).contains(&near), "{near}");
        assert!((1_000_000..1_100_000).contains(&far), "{far}");
    }
}
