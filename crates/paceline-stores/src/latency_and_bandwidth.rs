//! Latency and bandwidth of a store, measured from its responses.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Maximum numbers of long and of short requests that a machine has in progress.
pub(crate) const LONG_REQUESTS: usize = 24;
pub(crate) const SHORT_REQUESTS: usize = 96;
/// Number of short requests that a reader of blocks of frames has in progress.
const TOGETHER: f64 = 32.0;
/// Latency that is assumed before the first response, s.
const LATENCY: f64 = 0.05;
/// Limits of the gap between two ranges that are requested together, bytes. A longer gap would fill
/// a whole request, of which no byte is used.
const SMALLEST_GAP: f64 = 65_536.0;
const LARGEST_GAP: f64 = 1_048_576.0;
/// Two limits while the bandwidth is unknown: the gap up to which ranges are requested together,
/// and the number of bytes of all gaps in a block of frames. Reading the gaps measures the
/// bandwidth.
const FIRST_GAP: u64 = 1 << 20;
const FIRST_GAPS: u64 = 8 << 20;
/// Maximum gap that is read to avoid a request that must wait for another request, bytes.
const LARGEST_HOP: f64 = 33_554_432.0;
/// Gap that is read, while the bandwidth is unknown, to avoid a request that must wait for another
/// request, bytes.
const FIRST_HOP: u64 = 4 << 20;
/// Weights of a new measurement in the estimate. Late responses and slow transfers have less
/// weight: other requests can only delay a response, and unused connections make transfers slower
/// than the bandwidth.
const LATER: f64 = 0.05;
const EARLIER: f64 = 0.5;
const FASTER: f64 = 0.5;
const SLOWER: f64 = 0.2;
/// Time of transfers after which the bandwidth is estimated again.
const SPAN: Duration = Duration::from_millis(50);
/// Time of transfers, or number of their bytes, after which the bandwidth is estimated for the
/// first time. All later requests depend on this estimate, and short requests do not measure it
/// again.
const FIRST_SPAN: Duration = Duration::from_millis(500);
const FIRST_BYTES: u64 = 4 << 20;

/// Number of processes that share this machine's limit of requests in flight.
pub(crate) static SHARERS: AtomicUsize = AtomicUsize::new(1);

/// Return the number of processes that share this machine's limit of requests in flight.
pub(crate) fn sharers() -> usize {
    SHARERS.load(Ordering::Relaxed)
}

/// Latency and bandwidth of a store, as measured by one process for others.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// Time to the beginning of a response, s.
    pub latency: f64,
    /// Bytes per second of all connections of this machine.
    pub bandwidth: f64,
}

/// Measured latency of a store's responses, and bandwidth of all connections together.
#[derive(Debug, Default)]
pub(crate) struct Pace(Mutex<Measured>);

#[derive(Debug, Clone, Copy, Default)]
struct Measured {
    /// Time to the beginning of a response, s.
    latency: Option<f64>,
    /// Bytes per second of all connections of this machine, once responses have begun.
    bandwidth: Option<f64>,
    /// Number of responses that are being received, and the instant up to which `busy` counts their
    /// time.
    receiving: usize,
    counted: Option<Instant>,
    /// Time during which responses were received, and number of their bytes, since the last
    /// estimate.
    busy: Duration,
    bytes: u64,
}

/// Response that is being received. Its parts are used to measure the bandwidth of the store.
pub(crate) struct Response<'a> {
    pace: &'a Pace,
    /// True if the first part has arrived.
    begun: bool,
}

impl Response<'_> {
    /// Record that a part has arrived. The first part comes with the beginning of the response, so
    /// that its time is the latency. A short response has no other parts.
    pub(crate) fn arrived(&mut self, len: usize) {
        let is_first = !std::mem::replace(&mut self.begun, true);
        self.pace.lock().arrived(Instant::now(), is_first, len);
    }
}

impl Drop for Response<'_> {
    fn drop(&mut self) {
        let mut measured = self.pace.lock();
        measured.count_time(Instant::now());
        measured.receiving -= usize::from(self.begun);
    }
}

impl Measured {
    fn arrived(&mut self, now: Instant, is_first: bool, len: usize) {
        self.count_time(now);
        if is_first {
            self.receiving += 1;
        } else {
            self.bytes += len as u64;
            self.estimate(sharers());
        }
    }

    /// Update the estimate of the latency with that of a response.
    fn begun(&mut self, latency: Duration) {
        let found = latency.as_secs_f64();
        let known = self.latency.unwrap_or(found);
        let weight = if found > known { LATER } else { EARLIER };
        self.latency = Some(known + weight * (found - known));
    }

    /// Count the time since the last call, if responses were being received.
    fn count_time(&mut self, now: Instant) {
        if let Some(counted) = self.counted.replace(now)
            && self.receiving > 0
        {
            self.busy += now.saturating_duration_since(counted);
        }
    }

    /// Estimate the bandwidth, if enough bytes have come since the last time.
    fn estimate(&mut self, n_processes: usize) {
        let is_enough = match self.bandwidth {
            None => self.busy >= FIRST_SPAN || self.bytes >= FIRST_BYTES,
            Some(_) => self.busy >= SPAN,
        };
        if !is_enough {
            return;
        }
        let own = self.bytes as f64 / self.busy.as_secs_f64().max(1e-6);
        let found = own * n_processes as f64;
        let known = self.bandwidth.unwrap_or(found);
        let weight = if found > known { FASTER } else { SLOWER };
        self.bandwidth = Some(known + weight * (found - known));
        (self.busy, self.bytes) = (Duration::ZERO, 0);
    }

    /// Return the number of bytes whose transfer takes as long as a share of the latency; `None`
    /// while the bandwidth is unknown.
    fn bytes_in_latency(&self, share: f64) -> Option<f64> {
        let bandwidth = self.bandwidth?;
        Some(share * self.latency.unwrap_or(LATENCY) * bandwidth)
    }
}

impl Pace {
    /// Create a pace that starts with the estimate of another process, if there is one.
    pub(crate) fn of(known: Option<Estimate>) -> Self {
        Pace(Mutex::new(Measured {
            latency: known.map(|known| known.latency),
            bandwidth: known.map(|known| known.bandwidth),
            ..Measured::default()
        }))
    }

    /// Return latency and bandwidth, if both are known.
    pub(crate) fn estimate(&self) -> Option<Estimate> {
        let measured = *self.lock();
        Some(Estimate {
            latency: measured.latency?,
            bandwidth: measured.bandwidth?,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Measured> {
        self.0.lock().unwrap_or_else(|lock| lock.into_inner())
    }

    /// Record the beginning of a response, and the time from the request to it.
    pub(crate) fn begin(&self, latency: Duration) -> Response<'_> {
        self.lock().begun(latency);
        Response {
            pace: self,
            begun: false,
        }
    }

    /// Return the number of bytes whose transfer takes as long as one more short request, if many
    /// short requests are in progress at the same time.
    pub(crate) fn gap(&self) -> u64 {
        let bytes = self.lock().bytes_in_latency(1.0 / TOGETHER);
        bytes.map_or(FIRST_GAP, |bytes| {
            bytes.clamp(SMALLEST_GAP, LARGEST_GAP) as u64
        })
    }

    /// Return the maximum number of bytes of gaps in a block of frames.
    pub(crate) fn gaps(&self) -> u64 {
        match self.lock().bandwidth {
            Some(_) => u64::MAX,
            None => FIRST_GAPS,
        }
    }

    /// Return the number of bytes whose transfer takes as long as one more request that is sent
    /// only after another has ended.
    pub(crate) fn hop(&self) -> u64 {
        let bytes = self.lock().bytes_in_latency(1.0);
        bytes.map_or(FIRST_HOP, |bytes| {
            bytes.clamp(SMALLEST_GAP, LARGEST_HOP) as u64
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATENCY: Duration = Duration::from_millis(80);
    const PART: usize = 64 << 10;

    /// Simulate a response that arrives in parts, and return the time of its end.
    fn receive(pace: &Pace, at: Instant, n_parts: usize, apart: Duration) -> Instant {
        let mut measured = pace.lock();
        measured.begun(LATENCY);
        let mut now = at;
        for part in 0..n_parts {
            now += apart;
            measured.arrived(now, part == 0, PART);
        }
        measured.count_time(now);
        measured.receiving -= 1;
        now
    }

    #[test]
    fn short_responses_measure_no_bandwidth() {
        let pace = Pace::default();
        let mut now = Instant::now();
        for _ in 0..1000 {
            now = receive(&pace, now + LATENCY, 1, Duration::ZERO);
        }
        assert_eq!((pace.gap(), pace.hop()), (FIRST_GAP, FIRST_HOP));
        assert_eq!(pace.gaps(), FIRST_GAPS);
        let measured = *pace.lock();
        assert_eq!(measured.latency, Some(0.08));
        assert_eq!((measured.bandwidth, measured.bytes), (None, 0));
        assert_eq!(measured.busy, Duration::ZERO);
    }

    #[test]
    fn the_bandwidth_is_measured_without_the_latency() {
        let pace = Pace::default();
        let mut now = Instant::now();
        // 64 KiB every 1.6384 ms are 40 MB/s.
        for _ in 0..20 {
            now = receive(&pace, now + LATENCY, 65, Duration::from_nanos(1_638_400));
        }
        let near = |bytes: u64, expected: f64| (bytes as f64 / expected - 1.0).abs() < 1e-3;
        assert!(near(pace.hop(), 0.08 * 40e6), "{}", pace.hop());
        assert!(near(pace.gap(), 0.08 * 40e6 / TOGETHER), "{}", pace.gap());
        assert_eq!(pace.gaps(), u64::MAX);
        // Short requests after that do not change the bandwidth.
        for _ in 0..1000 {
            now = receive(&pace, now + LATENCY, 1, Duration::ZERO);
        }
        assert!(near(pace.hop(), 0.08 * 40e6), "{}", pace.hop());
    }

    #[test]
    fn the_latency_is_that_of_responses_without_delay() {
        let mut measured = Measured::default();
        for delay in (0..100).map(|k| Duration::from_millis(20 * (k % 5))) {
            measured.begun(LATENCY + delay);
        }
        let latency = measured.latency.unwrap();
        assert!((0.08..0.1).contains(&latency), "{latency}");
    }
}
