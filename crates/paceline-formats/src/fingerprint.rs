//! Identification of a file by its content, independent of its name and its modification time. An
//! object in an object store is identified by its version instead.

use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::str::FromStr;
use std::sync::atomic::{AtomicU32, Ordering};

use xxhash_rust::xxh3::{Xxh3, xxh3_64, xxh3_128};

use crate::error::{Error, Result};
use crate::source::{Access, Requests, Source, Traffic};

const SAMPLE: u64 = 4096;
/// Number of samples: the first bytes, the last bytes, and 16 samples between them.
const N_SAMPLES: u64 = 18;

/// Function that finds, in the first bytes of a file, the byte ranges of numbers that change while
/// the file grows, such as the number of frames.
type Counts<'a> = dyn Fn(&[u8]) -> Vec<Range<usize>> + 'a;
type StaticCounts = dyn Fn(&[u8]) -> Vec<Range<usize>> + Send + Sync;

/// Fingerprint of a file or of its beginning: the size and a hash. The hash is that of the size and
/// of samples of the bytes or, in an object store, that of the identity of the version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint {
    pub(crate) size: u64,
    pub(crate) hash: u128,
}

impl Fingerprint {
    /// Size in bytes of the file, or of the beginning of it that the fingerprint identifies.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Return the fingerprint of a version of an object in an object store. The store identifies
    /// the version by the text `identity`.
    pub(crate) fn of_identity(size: u64, identity: &str) -> Self {
        let hash = xxh3_128(identity.as_bytes());
        Fingerprint { size, hash }
    }

    /// Check that `source` still begins with the fingerprinted bytes. The file may have grown.
    ///
    /// # Errors
    /// [`Error::Changed`] if the bytes have changed.
    pub(crate) fn verify(&self, source: &dyn Source, counts: &Counts<'_>) -> Result<()> {
        self.verify_size(source)?;
        match Samples::of(source, self.size, counts)?.fingerprint == *self {
            true => Ok(()),
            false if source.identity().is_some() => Err(new_version(source)),
            false => changed(source, format!("other bytes among the first {}", self.size)),
        }
    }

    fn verify_size(&self, source: &dyn Source) -> Result<()> {
        let size = source.size()?;
        match size >= self.size {
            true => Ok(()),
            false => changed(source, format!("it had {} bytes and has {size}", self.size)),
        }
    }
}

fn new_version(source: &dyn Source) -> Error {
    Error::Changed {
        path: source.path().to_owned(),
        what: "the store has another version".into(),
    }
}

fn changed(source: &dyn Source, what: String) -> Result<()> {
    Err(Error::Changed {
        path: source.path().to_owned(),
        what,
    })
}

/// Fingerprint of a file, and a hash of each sample. With these, a process can verify the part of
/// the file that it reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Samples {
    /// Fingerprint of the whole file.
    pub fingerprint: Fingerprint,
    digests: Vec<u64>,
    /// Identity of the version in an object store; it replaces the digests.
    identity: Option<String>,
}

/// Bit of the first serialised number. It is set if an identity follows instead of digests.
const IDENTITY_BIT: u64 = 1 << 63;

impl Samples {
    /// Compute the samples of the first `size` bytes of `source`. The ranges that `counts` returns
    /// are excluded. If an object store identifies the version, no bytes are read.
    ///
    /// # Errors
    /// [`Error::Changed`] if the source has fewer bytes.
    pub(crate) fn of(source: &dyn Source, size: u64, counts: &Counts<'_>) -> Result<Self> {
        match source.identity() {
            Some(identity) => Ok(Samples::of_identity(size, identity)),
            None => Samples::of_content(source, size, counts),
        }
    }

    fn of_identity(size: u64, identity: &str) -> Self {
        Samples {
            fingerprint: Fingerprint::of_identity(size, identity),
            digests: Vec::new(),
            identity: Some(identity.to_owned()),
        }
    }

    /// Return the hash of each sample; no hashes if an object store identifies the version.
    pub(crate) fn digests(&self) -> &[u64] {
        &self.digests
    }

    /// Return the identity of the version in an object store; `None` if the content is sampled.
    pub fn identity(&self) -> Option<&str> {
        self.identity.as_deref()
    }

    /// Compute the samples of the first `size` bytes of `source` from their content.
    ///
    /// # Errors
    /// [`Error::Changed`] if the source has fewer bytes.
    pub(crate) fn of_content(source: &dyn Source, size: u64, counts: &Counts<'_>) -> Result<Self> {
        let mut hasher = Xxh3::new();
        hasher.update(&size.to_le_bytes());
        let places = places(size);
        // All samples are prefetched together. On a remote file system, this takes about as long as
        // fetching one sample.
        prefetch(source, &places);
        let mut digests = Vec::new();
        for place in &places {
            let sample = read(source, place, counts)?;
            hasher.update(&sample);
            digests.push(xxh3_64(&sample));
        }
        let hash = hasher.digest128();
        Ok(Samples {
            fingerprint: Fingerprint { size, hash },
            digests,
            identity: None,
        })
    }

    /// Serialise the samples for another process, which reads them with [`Samples::from_bytes`].
    pub fn to_bytes(&self) -> Vec<u8> {
        let Fingerprint { size, hash } = self.fingerprint;
        if let Some(identity) = &self.identity {
            let marked = (size | IDENTITY_BIT).to_le_bytes();
            return [&marked[..], identity.as_bytes()].concat();
        }
        let mut bytes = [&size.to_le_bytes()[..], &hash.to_le_bytes()].concat();
        bytes.extend(self.digests.iter().flat_map(|digest| digest.to_le_bytes()));
        bytes
    }

    /// Parse the result of [`Samples::to_bytes`]; `None` for invalid bytes.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (size, rest) = bytes.split_first_chunk()?;
        let stated = u64::from_le_bytes(*size);
        if stated & IDENTITY_BIT != 0 {
            let identity = std::str::from_utf8(rest).ok()?;
            return Some(Samples::of_identity(stated & !IDENTITY_BIT, identity));
        }
        let (hash, rest) = rest.split_first_chunk()?;
        let (digests, []) = rest.as_chunks() else {
            return None;
        };
        let fingerprint = Fingerprint {
            size: stated,
            hash: u128::from_le_bytes(*hash),
        };
        let digests: Vec<u64> = digests.iter().map(|&one| u64::from_le_bytes(one)).collect();
        (digests.len() == places(fingerprint.size).len()).then_some(Samples {
            fingerprint,
            digests,
            identity: None,
        })
    }
}

/// Return the byte ranges of the samples of a file of `size` bytes, in order. A small file has one
/// sample.
fn places(size: u64) -> Vec<Range<u64>> {
    if size <= SAMPLE * N_SAMPLES {
        return std::iter::once(0..size).collect();
    }
    let place = |number| {
        let start = u128::from(size - SAMPLE) * number / u128::from(N_SAMPLES - 1);
        start as u64..start as u64 + SAMPLE
    };
    (0..u128::from(N_SAMPLES)).map(place).collect()
}

/// Return true if `source` has `size` bytes, and some of its samples, which are compared, have the
/// hashes in `digests`: the first, the last and, in a large file, two between them. Not all samples
/// are compared, because each needs one request to the object store.
///
/// # Errors
/// Errors of the source.
pub(crate) fn has_samples(
    source: &dyn Source,
    size: u64,
    digests: &[u64],
    counts: &Counts<'_>,
) -> Result<bool> {
    const INTERVALS: usize = 3;
    let places = places(size);
    if source.size()? != size || digests.len() != places.len() {
        return Ok(false);
    }
    let mut compared: Vec<_> = (0..=INTERVALS)
        .map(|k| k * (places.len() - 1) / INTERVALS)
        .collect();
    compared.dedup();
    prefetch(source, compared.iter().map(|&number| &places[number]));
    for number in compared {
        if xxh3_64(&read(source, &places[number], counts)?) != digests[number] {
            return Ok(false);
        }
    }
    Ok(true)
}

fn prefetch<'a>(source: &dyn Source, places: impl IntoIterator<Item = &'a Range<u64>>) {
    for place in places {
        source.will_need(place.start, place.end - place.start);
    }
}

/// Read a sample, and replace the ranges that `counts` returns by zeros.
fn read(source: &dyn Source, place: &Range<u64>, counts: &Counts<'_>) -> Result<Vec<u8>> {
    let mut sample = vec![0; (place.end - place.start) as usize];
    source.read_at(place.start, &mut sample)?;
    if place.start == 0 {
        mask(&mut sample, counts);
    }
    Ok(sample)
}

/// Replace the counts in a header by zeros. A running simulation updates these counts with every
/// frame, and they must not change the fingerprint.
fn mask(head: &mut [u8], counts: &Counts<'_>) {
    for range in counts(head) {
        if let Some(count) = head.get_mut(range) {
            count.fill(0);
        }
    }
}

/// Source that verifies samples before it returns bytes. The samples inside and on both sides of a
/// requested range are compared with the hashes from another process. Each sample is compared once.
///
/// A process that reads a part of the file therefore reads few samples. It still detects any change
/// near this part that affects a sample.
pub struct VerifiedSource<S> {
    source: S,
    counts: Box<StaticCounts>,
    samples: Samples,
    places: Vec<Range<u64>>,
    /// Bit mask of the samples that were compared and are equal.
    compared: AtomicU32,
}

impl<S: Source> VerifiedSource<S> {
    /// # Errors
    /// [`Error::Changed`] if the source has fewer bytes, and errors of the source.
    pub(crate) fn new(source: S, samples: Samples, counts: Box<StaticCounts>) -> Result<Self> {
        samples.fingerprint.verify_size(&source)?;
        let places = match samples.identity() {
            None => places(samples.fingerprint.size),
            // No samples are compared, because the object store compares versions at each request.
            identity if identity == source.identity() => Vec::new(),
            _ => return Err(new_version(&source)),
        };
        Ok(VerifiedSource {
            places,
            source,
            counts,
            samples,
            compared: AtomicU32::new(0),
        })
    }

    /// Return the fingerprint of the expected file.
    pub fn fingerprint(&self) -> Fingerprint {
        self.samples.fingerprint
    }

    /// Return the indices of the samples around a byte range that were not compared yet.
    fn not_compared(&self, bytes: Range<u64>) -> impl Iterator<Item = usize> + Clone {
        let compared = self.compared.load(Ordering::Relaxed);
        let begun = |place: &Range<u64>| place.start <= bytes.start;
        let before = |place: &Range<u64>| place.end < bytes.end;
        let first = self.places.partition_point(begun).saturating_sub(1);
        let last = self.places.partition_point(before);
        let around = first..self.places.len().min(last + 1);
        around.filter(move |number| compared & 1 << number == 0)
    }

    fn compare(&self, number: usize) -> Result<()> {
        let place = &self.places[number];
        let sample = read(&self.source, place, &*self.counts)?;
        if xxh3_64(&sample) != self.samples.digests[number] {
            let what = format!("other bytes from {} to {}", place.start, place.end);
            return changed(&self.source, what);
        }
        self.compared.fetch_or(1 << number, Ordering::Relaxed);
        Ok(())
    }
}

impl<S: Source> Source for VerifiedSource<S> {
    fn path(&self) -> &Path {
        self.source.path()
    }

    fn size(&self) -> Result<u64> {
        self.source.size()
    }

    fn version(&self) -> Result<u64> {
        self.source.version()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let bytes = offset..offset.saturating_add(buffer.len() as u64);
        let samples = self.not_compared(bytes);
        // Samples are prefetched while the requested bytes are read.
        let places = samples.clone().map(|number| &self.places[number]);
        prefetch(&self.source, places);
        self.source.read_at(offset, buffer)?;
        samples
            .into_iter()
            .try_for_each(|number| self.compare(number))
    }

    fn will_need(&self, offset: u64, len: u64) {
        self.source.will_need(offset, len);
    }

    fn access(&self) -> Access {
        self.source.access()
    }

    fn identity(&self) -> Option<&str> {
        self.source.identity()
    }

    fn take_requests(&self) -> Requests {
        self.source.take_requests()
    }

    /// Return the traffic, not counting the samples, which callers have not requested.
    fn traffic(&self) -> Traffic {
        let mut traffic = self.source.traffic();
        let compared = self.compared.load(Ordering::Relaxed);
        for (number, place) in self.places.iter().enumerate() {
            if compared >> number & 1 == 1 {
                traffic.bytes = traffic.bytes.saturating_sub(place.end - place.start);
                traffic.calls = traffic.calls.saturating_sub(1);
            }
        }
        traffic
    }
}

/// Format as 48 hexadecimal digits: the size, then the hash.
impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}{:032x}", self.size, self.hash)
    }
}

impl FromStr for Fingerprint {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let digits = text.len() == 48 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let parsed = digits.then(|| {
            let (size, hash) = text.split_at(16);
            Some(Fingerprint {
                size: u64::from_str_radix(size, 16).ok()?,
                hash: u128::from_str_radix(hash, 16).ok()?,
            })
        });
        parsed.flatten().ok_or_else(|| {
            let text: String = text.chars().take(60).collect();
            Error::Argument(format!(
                "expected a fingerprint of 48 hexadecimal digits, found {text:?}"
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::format_list::STANDARD;
    use crate::source::MemorySource;

    fn bytes(len: usize) -> Vec<u8> {
        (0..len).map(|at| ((at * at) >> 8) as u8).collect()
    }

    /// Source that records the ranges that are read.
    struct Noting(MemorySource, Mutex<Vec<Range<u64>>>);

    impl Source for Noting {
        fn path(&self) -> &Path {
            self.0.path()
        }

        fn size(&self) -> Result<u64> {
            self.0.size()
        }

        fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
            let bytes = offset..offset + buffer.len() as u64;
            self.1.lock().unwrap().push(bytes);
            self.0.read_at(offset, buffer)
        }

        fn will_need(&self, _offset: u64, _len: u64) {}

        fn traffic(&self) -> Traffic {
            let reads = self.1.lock().unwrap();
            Traffic {
                bytes: reads.iter().map(|read| read.end - read.start).sum(),
                calls: reads.len() as u64,
            }
        }
    }

    /// Return the source of a worker that reads these bytes, and expects the file of `samples`.
    fn worker(bytes: Vec<u8>, samples: &Samples) -> VerifiedSource<Noting> {
        let source = Noting(MemorySource(bytes), Mutex::default());
        STANDARD.verified(source, samples.clone()).unwrap()
    }

    #[test]
    fn samples_to_bytes_and_back() {
        for len in [0, 1, 73_728, 73_729, 200_000] {
            let source = MemorySource(bytes(len));
            let saved = STANDARD.samples(&source, len as u64).unwrap();
            let mut bytes = saved.to_bytes();
            assert_eq!(Samples::from_bytes(&bytes), Some(saved));
            bytes.push(0);
            assert_eq!(Samples::from_bytes(&bytes), None);
            for short in 0..bytes.len() - 1 {
                assert_eq!(Samples::from_bytes(&bytes[..short]), None, "{short}");
            }
        }
    }

    #[test]
    fn a_worker_reads_the_samples_around_its_share_once() {
        let len = 2_000_000;
        let samples = STANDARD.samples(&MemorySource(bytes(len)), len as u64);
        let samples = samples.unwrap();
        let places = places(len as u64);
        let mut buffer = [0; 1000];
        let source = worker(bytes(len), &samples);
        for at in [300_000, 300_500, 300_000] {
            source.read_at(at, &mut buffer).unwrap();
            assert_eq!(buffer[..], bytes(len)[at as usize..][..1000]);
        }
        let own = |at| at..at + 1000;
        let reads = std::mem::take(&mut *source.source.1.lock().unwrap());
        let around = [places[2].clone(), places[3].clone()];
        let [first, second] = around;
        let first_block = [own(300_000), first, second];
        assert_eq!(
            reads,
            [&first_block[..], &[own(300_500), own(300_000)]].concat()
        );

        let source = worker(bytes(len), &samples);
        source.read_at(places[4].start + 5, &mut buffer).unwrap();
        source.read_at(0, &mut buffer).unwrap();
        source.read_at(len as u64 - 1000, &mut buffer).unwrap();
        let reads = source.source.1.lock().unwrap().clone();
        let read = |place: &Range<u64>| reads.contains(place);
        let found: Vec<usize> = (0..18).filter(|&k| read(&places[k])).collect();
        assert_eq!(found, [0, 4, 17]);
        let asked = Traffic {
            bytes: 3000,
            calls: 3,
        };
        assert_eq!(source.traffic(), asked);
        source.read_at(0, &mut vec![0; len]).unwrap();
        let n_reads = source.source.1.lock().unwrap().len();
        assert_eq!(n_reads, 3 + 1 + 18);
    }

    #[test]
    fn a_change_that_reaches_into_a_sample_is_noticed_wherever_it_is_read() {
        let len = 400_000;
        let samples = STANDARD.samples(&MemorySource(bytes(len)), len as u64);
        let samples = samples.unwrap();
        let step = 1789;
        for sample in &places(len as u64) {
            let (start, end) = (sample.start as usize, sample.end as usize);
            for stretch in [
                start..start + 1,
                start.saturating_sub(50_000)..start + 1,
                end - 1..len.min(end + 50_000),
            ] {
                let mut other = bytes(len);
                other[stretch.clone()].iter_mut().for_each(|b| *b ^= 1);
                for at in (0..len - step).step_by(step) {
                    let source = worker(other.clone(), &samples);
                    let read = source.read_at(at as u64, &mut vec![0; step]);
                    if at < stretch.end && stretch.start < at + step {
                        assert!(matches!(read, Err(Error::Changed { .. })));
                    }
                }
            }
        }
    }

    #[test]
    fn a_worker_refuses_a_file_that_was_cut_and_reads_one_that_has_grown() {
        let print = STANDARD.samples(&MemorySource(bytes(100_000)), 99_000);
        let print = print.unwrap();
        let cut = STANDARD.verified(MemorySource(bytes(98_999)), print.clone());
        let message = cut.err().unwrap().to_string();
        assert!(message.contains("it had 99000 bytes and has 98999"));
        let source = worker(bytes(100_000), &print);
        source.read_at(98_500, &mut [0; 1000]).unwrap();
    }

    #[test]
    fn text_and_back() {
        let print = STANDARD
            .samples(&MemorySource(bytes(100_000)), 100_000)
            .unwrap()
            .fingerprint;
        assert_eq!(print.to_string().parse::<Fingerprint>().unwrap(), print);
        for text in ["", "12", &"g".repeat(48), &"ä".repeat(24), &"+".repeat(48)] {
            assert!(text.parse::<Fingerprint>().is_err(), "{text}");
        }
    }

    #[test]
    fn every_byte_of_a_small_file_counts() {
        let bytes = bytes(300);
        let print = STANDARD
            .samples(&MemorySource(bytes.clone()), 300)
            .unwrap()
            .fingerprint;
        for at in 0..300 {
            let mut other = bytes.clone();
            other[at] ^= 1;
            let error = STANDARD.verify(&MemorySource(other), &print).unwrap_err();
            assert!(matches!(error, Error::Changed { .. }));
        }
    }

    #[test]
    fn growth_is_the_same_file_and_a_cut_is_not() {
        for len in [1, 4096, 73_728, 73_729, 200_000] {
            let all = bytes(len + 5000);
            let print = STANDARD
                .samples(&MemorySource(all[..len].to_vec()), len as u64)
                .unwrap()
                .fingerprint;
            STANDARD
                .verify(&MemorySource(all[..len].to_vec()), &print)
                .unwrap();
            STANDARD.verify(&MemorySource(all.clone()), &print).unwrap();
            let cut = MemorySource(all[..len - 1].to_vec());
            assert!(matches!(
                STANDARD.verify(&cut, &print),
                Err(Error::Changed { .. })
            ));
        }
    }

    #[test]
    fn a_running_simulation_may_count_its_frames() {
        for (start, len) in [(4, 300), (8, 300), (4, 100_000), (8, 16)] {
            let mut bytes = bytes(len);
            bytes[..start].fill(0);
            bytes[0] = 84;
            bytes[start..start + 4].copy_from_slice(b"CORD");
            let print = STANDARD
                .samples(&MemorySource(bytes.clone()), len as u64)
                .unwrap()
                .fingerprint;
            for (at, counts) in [(4, true), (7, true), (8, false), (16, true), (20, false)] {
                if let Some(byte) = bytes.get_mut(start + at) {
                    *byte ^= 1;
                    let verified = STANDARD.verify(&MemorySource(bytes.clone()), &print);
                    assert_eq!(verified.is_ok(), counts, "byte {at}");
                    bytes[start + at] ^= 1;
                }
            }
        }
    }

    #[test]
    fn a_running_simulation_may_count_its_records() {
        for (version, counted) in [(1, 4..8), (2, 4..8), (5, 4..12)] {
            let mut bytes = bytes(300);
            bytes[..4].copy_from_slice(&[b'C', b'D', b'F', version]);
            let print = STANDARD
                .samples(&MemorySource(bytes.clone()), 300)
                .unwrap()
                .fingerprint;
            for at in 0..20 {
                bytes[at] ^= 8;
                let verified = STANDARD.verify(&MemorySource(bytes.clone()), &print);
                assert_eq!(verified.is_ok(), counted.contains(&at), "byte {at}");
                bytes[at] ^= 8;
            }
        }
    }

    #[test]
    fn the_first_and_last_bytes_of_a_large_file_count() {
        let bytes = bytes(200_000);
        let print = STANDARD
            .samples(&MemorySource(bytes.clone()), 200_000)
            .unwrap()
            .fingerprint;
        for at in [0, 4095, 200_000 - 4096, 199_999] {
            let mut other = bytes.clone();
            other[at] ^= 1;
            assert!(
                STANDARD.verify(&MemorySource(other), &print).is_err(),
                "byte {at}"
            );
        }
    }
}
