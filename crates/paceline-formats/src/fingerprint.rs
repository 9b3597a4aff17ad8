//! Recognises a file by what it holds, not by its name or its times.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use xxhash_rust::xxh3::Xxh3;

use crate::error::{Error, Result};
use crate::source::Source;

const SAMPLE: u64 = 4096;
/// The first bytes, the last bytes, and 16 samples between them.
const N_SAMPLES: u64 = 18;

/// Finds the numbers of frames, and what goes with them, in the first bytes of a file.
type Counts<'a> = dyn Fn(&[u8]) -> Vec<Range<usize>> + 'a;

/// The size of a file, or of its beginning, and a hash of that size and of samples of the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint {
    pub(crate) size: u64,
    pub(crate) hash: u128,
}

impl Fingerprint {
    /// The fingerprint of the first `size` bytes of `source`, but for what `counts` names in them.
    ///
    /// # Errors
    /// [`Error::Changed`] where the source has fewer bytes.
    pub(crate) fn of(source: &dyn Source, size: u64, counts: &Counts<'_>) -> Result<Self> {
        let mut hasher = Xxh3::new();
        hasher.update(&size.to_le_bytes());
        let mut buffer = [0; (SAMPLE * N_SAMPLES) as usize];
        if let Some(whole) = buffer.get_mut(..size.min(u64::MAX >> 1) as usize) {
            source.read_at(0, whole)?;
            mask(whole, counts);
            hasher.update(whole);
        } else {
            // Asked for together, they take a distant file system about as long as one of them.
            for number in 0..N_SAMPLES {
                source.will_need(place(size, number), SAMPLE);
            }
            for (sample, number) in buffer.chunks_exact_mut(SAMPLE as usize).zip(0..) {
                let at = place(size, number);
                source.read_at(at, sample)?;
                if at == 0 {
                    mask(sample, counts);
                }
                hasher.update(sample);
            }
        }
        Ok(Fingerprint {
            size,
            hash: hasher.digest128(),
        })
    }

    /// Bytes of the file that the fingerprint stands for.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Make sure that `source` still begins with the bytes that the fingerprint was taken of. It
    /// may have grown.
    ///
    /// # Errors
    /// [`Error::Changed`] where it does not.
    pub(crate) fn verify(&self, source: &dyn Source, counts: &Counts<'_>) -> Result<()> {
        let size = source.size()?;
        let what = if size < self.size {
            format!("it had {} bytes and has {size}", self.size)
        } else if Fingerprint::of(source, self.size, counts)? != *self {
            format!("other bytes among the first {}", self.size)
        } else {
            return Ok(());
        };
        Err(Error::Changed {
            path: source.path().to_owned(),
            what,
        })
    }
}

/// Return the offset at which sample `number` begins in a file of `size` bytes, which are more than
/// those of all samples.
fn place(size: u64, number: u64) -> u64 {
    // No more than `size - SAMPLE`, as the number is less than that of the samples.
    (u128::from(size - SAMPLE) * u128::from(number) / u128::from(N_SAMPLES - 1)) as u64
}

/// Take out of the head what a running simulation writes anew with every frame, so that the file
/// is still the same.
fn mask(head: &mut [u8], counts: &Counts<'_>) {
    for range in counts(head) {
        if let Some(count) = head.get_mut(range) {
            count.fill(0);
        }
    }
}

/// 48 hexadecimal digits: the size, then the hash.
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
                "a fingerprint has 48 hexadecimal digits; {text:?} is none"
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::STANDARD;
    use crate::source::MemorySource;

    fn bytes(len: usize) -> Vec<u8> {
        (0..len).map(|at| ((at * at) >> 8) as u8).collect()
    }

    #[test]
    fn text_and_back() {
        let print = STANDARD
            .fingerprint(&MemorySource(bytes(100_000)), 100_000)
            .unwrap();
        assert_eq!(print.to_string().parse::<Fingerprint>().unwrap(), print);
        for text in ["", "12", &"g".repeat(48), &"ä".repeat(24), &"+".repeat(48)] {
            assert!(text.parse::<Fingerprint>().is_err(), "{text}");
        }
    }

    #[test]
    fn every_byte_of_a_small_file_counts() {
        let bytes = bytes(300);
        let print = STANDARD
            .fingerprint(&MemorySource(bytes.clone()), 300)
            .unwrap();
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
                .fingerprint(&MemorySource(all[..len].to_vec()), len as u64)
                .unwrap();
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
                .fingerprint(&MemorySource(bytes.clone()), len as u64)
                .unwrap();
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
                .fingerprint(&MemorySource(bytes.clone()), 300)
                .unwrap();
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
            .fingerprint(&MemorySource(bytes.clone()), 200_000)
            .unwrap();
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
