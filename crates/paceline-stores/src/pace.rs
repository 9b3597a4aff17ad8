//! Latency and throughput of a store, measured from its responses.

use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Maximum numbers of long and of short requests in progress.
pub(crate) const LONG_REQUESTS: usize = 24;
pub(crate) const SHORT_REQUESTS: usize = 96;
/// Latency and throughput that are assumed before the first measurement.
const LATENCY: f64 = 0.05;
const THROUGHPUT: f64 = 50e6;
/// Limits of the gap between two ranges that are requested together, bytes.
const SMALLEST_GAP: f64 = 65_536.0;
const LARGEST_GAP: f64 = 4_194_304.0;
/// Maximum gap that is read between requests of which one waits for the other, bytes.
const LARGEST_HOP: f64 = 33_554_432.0;
/// Weight of a new measurement.
const WEIGHT: f64 = 0.2;
/// Minimum time over which the throughput is measured.
const SPAN: Duration = Duration::from_millis(200);

/// Latency of a request, and throughput of all requests together.
#[derive(Debug)]
pub(crate) struct Pace(Mutex<Measured>);

#[derive(Debug, Clone, Copy)]
struct Measured {
    /// Time to the beginning of a response, s.
    latency: f64,
    /// Total throughput of all connections, bytes per second.
    throughput: f64,
    /// Number of requests in progress, the time at which the first of them was sent, and the bytes
    /// received since then.
    in_flight: usize,
    since: Instant,
    bytes: usize,
}

/// Request in progress.
pub(crate) struct InFlight<'a>(&'a Pace);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.lock().in_flight -= 1;
    }
}

impl Pace {
    pub(crate) fn new() -> Self {
        Pace(Mutex::new(Measured {
            latency: LATENCY,
            throughput: THROUGHPUT,
            in_flight: 0,
            since: Instant::now(),
            bytes: 0,
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Measured> {
        self.0.lock().unwrap_or_else(|lock| lock.into_inner())
    }

    /// Record that a request is sent.
    pub(crate) fn begin(&self) -> InFlight<'_> {
        let mut measured = self.lock();
        if measured.in_flight == 0 {
            (measured.since, measured.bytes) = (Instant::now(), 0);
        }
        measured.in_flight += 1;
        InFlight(self)
    }

    /// Record a response of `len` bytes, and the time to its beginning.
    pub(crate) fn record(&self, first: Duration, len: usize) {
        let mut measured = self.lock();
        measured.latency += WEIGHT * (first.as_secs_f64() - measured.latency);
        measured.bytes += len;
        let span = measured.since.elapsed();
        if span >= SPAN {
            let found = measured.bytes as f64 / span.as_secs_f64();
            // With few requests, the measured throughput is below that of the connection.
            let weight = if found > measured.throughput {
                1.0
            } else {
                WEIGHT
            };
            measured.throughput += weight * (found - measured.throughput);
            (measured.since, measured.bytes) = (Instant::now(), 0);
        }
    }

    /// Return the number of bytes whose transfer takes as long as one more short request, if many
    /// are in progress at the same time.
    pub(crate) fn gap(&self) -> u64 {
        self.bytes_in_latency(1.0 / SHORT_REQUESTS as f64, LARGEST_GAP)
    }

    /// Return the number of bytes whose transfer takes as long as one more request that is sent
    /// only after another has ended.
    pub(crate) fn hop(&self) -> u64 {
        self.bytes_in_latency(1.0, LARGEST_HOP)
    }

    fn bytes_in_latency(&self, share: f64, most: f64) -> u64 {
        let measured = *self.lock();
        let bytes = share * measured.latency * measured.throughput;
        bytes.clamp(SMALLEST_GAP, most) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_follow_latency_and_throughput() {
        let pace = Pace::new();
        assert_eq!(pace.gap(), SMALLEST_GAP as u64);
        for _ in 0..50 {
            pace.record(Duration::from_millis(30), 0);
        }
        // 30 ms at 50 MB/s.
        assert!(
            (1_480_000..1_520_000).contains(&pace.hop()),
            "{}",
            pace.hop()
        );
        let in_flight = pace.begin();
        pace.lock().since = Instant::now() - Duration::from_secs(1);
        pace.record(Duration::from_millis(30), 500_000_000);
        // 30 ms / 96 at 500 MB/s.
        assert!((150_000..160_000).contains(&pace.gap()), "{}", pace.gap());
        drop(in_flight);
        assert_eq!(pace.lock().in_flight, 0);
    }
}
