//! Filters of the bytes of a chunk, and their inversion.

use std::borrow::Cow;
use std::ops::Range;

use super::decompress::{Decompressors, Method};

/// Filter of the pipeline: its registered number, its name in the file, and its parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    /// HDF5's registered number of the filter.
    pub number: u32,
    /// Name of the filter, for messages.
    pub name: String,
    /// Parameters of the filter in the dataset.
    pub values: Vec<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Shuffle of numbers of this size, bytes.
    Shuffle(usize),
    Fletcher32,
    Compression(Method),
}

/// Numbers of filters that are registered with HDF5.
const LZ4: u32 = 32004;
const ZSTD: u32 = 32015;

/// Return an upper bound of the number of decompressed bytes per stored byte of a dataset.
pub fn max_expansion(filters: &[Filter]) -> usize {
    match filters.iter().any(|filter| filter.number == ZSTD) {
        true => Method::Zstd.most(),
        false => Method::Deflate.most(),
    }
}

/// Contradiction in the bytes of a chunk: expected content, and found content.
pub type Contradiction = (String, String);

/// Filters of the chunks of a dataset, and the sizes that are needed to invert them.
#[derive(Debug)]
pub struct Pipeline {
    /// Filters, in the order of encoding.
    stages: Vec<Stage>,
    /// Size of a number, bytes.
    width: usize,
    /// Size of all numbers of a chunk, bytes.
    chunk_bytes: usize,
}

/// Decompressed numbers of a chunk.
#[derive(Debug, Default)]
pub struct Unpacked {
    pub bytes: Vec<u8>,
    /// True if numbers are still shuffled. Only the wanted numbers are then unshuffled.
    pub shuffled: bool,
}

/// # Errors
/// A message with the filter, and the feature of this crate that contains its codec.
fn compression(filter: &Filter, method: Method) -> Result<Stage, String> {
    let Filter { name, number, .. } = filter;
    match method.check_built() {
        Ok(()) => Ok(Stage::Compression(method)),
        Err(why) => Err(format!(
            "cannot undo the filter {name} (number {number}): {why}"
        )),
    }
}

impl Pipeline {
    /// Prepare the inversion of the filters, for chunks of `chunk_bytes` bytes and numbers of
    /// `width` bytes.
    ///
    /// # Errors
    /// A message with the name of an unsupported filter.
    pub fn new(filters: &[Filter], width: usize, chunk_bytes: usize) -> Result<Pipeline, String> {
        let stages = filters.iter().map(|filter| match filter.number {
            1 => compression(filter, Method::Deflate),
            2 => match filter.values.first() {
                None => Ok(Stage::Shuffle(width)),
                Some(&bytes @ 1..=0xffff) => Ok(Stage::Shuffle(bytes as usize)),
                Some(bytes) => Err(format!("cannot decompress a shuffle of {bytes} bytes")),
            },
            3 => Ok(Stage::Fletcher32),
            32000 => compression(filter, Method::Lzf),
            LZ4 => compression(filter, Method::Lz4),
            ZSTD => compression(filter, Method::Zstd),
            number => Err(format!(
                "cannot undo the filter {} (number {number})",
                filter.name
            )),
        });
        let stages: Vec<Stage> = stages.collect::<Result<_, _>>()?;
        let packs = |stage: &&Stage| matches!(stage, Stage::Compression(_));
        if stages.iter().filter(packs).count() > 1 || stages.len() > u32::BITS as usize {
            return Err("cannot decompress more than one compression".into());
        }
        Ok(Pipeline {
            stages,
            width,
            chunk_bytes,
        })
    }

    /// Return true if chunks are stored without filters.
    pub fn is_empty(&self) -> bool {
        self.stages.is_empty()
    }

    /// Return the filters of a chunk. Bit k of the mask means that filter k was skipped.
    fn stages(&self, mask: u32) -> impl DoubleEndedIterator<Item = Stage> + Clone {
        let stages = self.stages.iter().enumerate();
        stages.filter_map(move |(k, &stage)| (mask >> k & 1 == 0).then_some(stage))
    }

    /// Return true if deflate is the only filter of a chunk. The first numbers can then be decoded
    /// from the first bytes.
    pub fn has_beginning(&self, mask: u32) -> bool {
        self.stages(mask).eq([Stage::Compression(Method::Deflate)])
    }

    /// Refuse a chunk whose `size` stored bytes cannot yield the numbers of a chunk.
    ///
    /// # Errors
    /// The contradiction found.
    pub fn check_size(&self, mask: u32, size: u64) -> Result<(), Contradiction> {
        let checks = self
            .stages(mask)
            .filter(|&stage| stage == Stage::Fletcher32)
            .count() as u64;
        let most = self.stages(mask).find_map(|stage| match stage {
            Stage::Compression(method) => Some(method.most()),
            Stage::Shuffle(_) | Stage::Fletcher32 => None,
        });
        let whole = self.chunk_bytes as u64;
        let (fits, expected) = match most {
            None => (
                size == whole + 4 * checks,
                format!("{} bytes", whole + 4 * checks),
            ),
            Some(most) => (
                size.saturating_mul(most as u64) >= whole,
                format!(
                    "at least {} bytes for {whole} bytes of numbers",
                    whole / most as u64
                ),
            ),
        };
        match fits {
            true => Ok(()),
            false => Err((expected, format!("{size} bytes"))),
        }
    }

    /// Invert all filters of a chunk except a shuffle of its numbers, and verify all checksums.
    /// [`Pipeline::check_size`] must have accepted the chunk.
    ///
    /// # Errors
    /// The contradiction found.
    pub fn unpack(
        &self,
        mask: u32,
        stored: &[u8],
        decompressors: &mut Decompressors,
        room: Vec<u8>,
    ) -> Result<Unpacked, Contradiction> {
        let mut bytes = Cow::Borrowed(stored);
        let mut room = Some(room);
        let mut before = self.stages(mask).count();
        let mut shuffled = false;
        for stage in self.stages(mask).rev() {
            before -= 1;
            match stage {
                Stage::Fletcher32 => {
                    let len = strip_checksum(&bytes)?.len();
                    match &mut bytes {
                        Cow::Borrowed(bytes) => *bytes = &bytes[..len],
                        Cow::Owned(bytes) => bytes.truncate(len),
                    }
                }
                Stage::Shuffle(width) if before == 0 && width == self.width => shuffled = true,
                Stage::Shuffle(width) => bytes = unshuffle_all(&bytes, width).into(),
                Stage::Compression(method) => {
                    let checks = self.stages(mask).take(before);
                    let checks = checks.filter(|&stage| stage == Stage::Fletcher32).count();
                    let mut out = room.take().unwrap_or_default();
                    let len = self.chunk_bytes + 4 * checks;
                    let contradiction = |found| contradiction(method, len, found);
                    let stated = method.check_stated_size(&bytes, len);
                    stated.map_err(contradiction)?;
                    out.resize(len, 0);
                    let done = decompressors.decompress(method, &bytes, &mut out);
                    done.map_err(contradiction)?;
                    bytes = out.into();
                }
            }
        }
        if bytes.len() != self.chunk_bytes {
            let expected = format!("{} bytes of numbers", self.chunk_bytes);
            return Err((expected, format!("{} bytes", bytes.len())));
        }
        let bytes = match bytes {
            Cow::Owned(bytes) => bytes,
            Cow::Borrowed(bytes) => {
                let mut out = room.unwrap_or_default();
                out.clear();
                out.extend_from_slice(bytes);
                out
            }
        };
        Ok(Unpacked { bytes, shuffled })
    }
}

/// Return the contradiction for an invalid stream.
fn contradiction(method: Method, len: usize, found: String) -> Contradiction {
    (format!("{} stream of {len} bytes", method.name()), found)
}

impl Pipeline {
    /// Decompress a chunk whose only filter is a compression directly into `out`, the memory of its
    /// numbers. Return `None` for other filters.
    pub fn unpack_into(
        &self,
        mask: u32,
        stored: &[u8],
        decompressors: &mut Decompressors,
        out: &mut [u8],
    ) -> Option<Result<(), Contradiction>> {
        let mut stages = self.stages(mask);
        let (Some(Stage::Compression(method)), None) = (stages.next(), stages.next()) else {
            return None;
        };
        let len = out.len();
        let done = method.check_stated_size(stored, len);
        let done = done.and_then(|()| decompressors.decompress(method, stored, out));
        Some(done.map_err(|found| contradiction(method, len, found)))
    }
}

impl Unpacked {
    /// Copy the byte range `range` of the unshuffled numbers to `out`.
    pub fn copy_numbers(&self, range: Range<usize>, width: usize, out: &mut [u8]) {
        match self.shuffled {
            true => unshuffle(&self.bytes, width, range, out),
            false => out.copy_from_slice(&self.bytes[range]),
        }
    }

    /// Return the byte range `range` of the unshuffled numbers. `room` is the memory for
    /// unshuffling.
    pub fn numbers<'a>(
        &'a self,
        range: Range<usize>,
        width: usize,
        room: &'a mut Vec<u8>,
    ) -> &'a [u8] {
        if !self.shuffled {
            return &self.bytes[range];
        }
        room.resize(range.len(), 0);
        unshuffle(&self.bytes, width, range, room);
        room
    }
}

// Checksum that HDF5 appends to a chunk: Fletcher's, of 16-bit words.

/// Number of words after which both sums are reduced, long before the sum of sums can overflow 64
/// bits.
const WORDS: usize = 1 << 16;

/// Compute the checksum of some bytes. If their number is odd, the last byte is the high half of a
/// word.
fn fletcher32(bytes: &[u8]) -> u32 {
    let (mut sum, mut sums) = (0_u64, 0_u64);
    let (words, rest) = bytes.as_chunks();
    for words in words.chunks(WORDS) {
        for &word in words {
            sum += u64::from(u16::from_be_bytes(word));
            sums += sum;
        }
        (sum, sums) = (fold(sum), fold(sums));
    }
    if let [odd] = rest {
        sum = fold(sum + (u64::from(*odd) << 8));
        sums = fold(sums + sum);
    }
    (sums << 16 | sum) as u32
}

/// Reduce a sum modulo 65,535; the result is 0 only for 0.
fn fold(mut sum: u64) -> u64 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum
}

/// Remove the checksum from the end of some bytes, and verify it.
///
/// # Errors
/// Expected and found content as text, for the message: two checksums, or too few bytes.
fn strip_checksum(bytes: &[u8]) -> Result<&[u8], (String, String)> {
    let Some((data, stored)) = bytes.split_last_chunk() else {
        return Err((
            "a checksum of 4 bytes".into(),
            format!("{} bytes", bytes.len()),
        ));
    };
    let computed = fletcher32(data);
    // On some machines, HDF5 before 1.6.3 exchanged the two bytes in each half of the checksum.
    let [a, b, c, d] = *stored;
    let either = [[a, b, c, d], [b, a, d, c]].map(u32::from_le_bytes);
    match either.contains(&computed) {
        true => Ok(data),
        false => Err((
            format!("bytes with the checksum (fletcher32) {:08x}", either[0]),
            format!("{computed:08x}"),
        )),
    }
}

// Shuffle: the first bytes of all numbers, then all second bytes, and so on.

/// Write the byte range `range` of the unshuffled chunk to `out`. The range must begin and end
/// between numbers of `width` bytes.
///
/// # Panics
/// If the range is not a range of whole numbers of the chunk.
pub fn unshuffle(shuffled: &[u8], width: usize, range: Range<usize>, out: &mut [u8]) {
    match width {
        2 => weave::<2>(shuffled, range, out),
        4 => weave::<4>(shuffled, range, out),
        8 => weave::<8>(shuffled, range, out),
        _ => {
            let n = shuffled.len() / width.max(1);
            let (first, last) = (range.start / width, range.end / width);
            for plane in 0..width {
                let bytes = &shuffled[plane * n + first..plane * n + last];
                for (number, &byte) in out.chunks_exact_mut(width).zip(bytes) {
                    number[plane] = byte;
                }
            }
        }
    }
}

fn weave<const WIDTH: usize>(shuffled: &[u8], range: Range<usize>, out: &mut [u8]) {
    let n = shuffled.len() / WIDTH;
    let (first, last) = (range.start / WIDTH, range.end / WIDTH);
    let (numbers, _) = out.as_chunks_mut::<WIDTH>();
    let numbers = &mut numbers[..last - first];
    let planes: [&[u8]; WIDTH] =
        std::array::from_fn(|plane| &shuffled[plane * n + first..plane * n + last]);
    for (k, number) in numbers.iter_mut().enumerate() {
        *number = planes.map(|plane| plane[k]);
    }
}

/// Unshuffle a whole chunk. Bytes after the last complete number do not change.
pub fn unshuffle_all(shuffled: &[u8], width: usize) -> Vec<u8> {
    let mut out = shuffled.to_vec();
    let whole = shuffled.len() / width * width;
    unshuffle(&shuffled[..whole], width, 0..whole, &mut out[..whole]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_codec_left_out_is_named() {
        for (number, method, feature, built) in [
            (1, "deflate", "deflate", cfg!(feature = "deflate")),
            (LZ4, "lz4", "lz4", cfg!(feature = "lz4")),
            (ZSTD, "zstd", "zstd", cfg!(feature = "zstd")),
            (32000, "lzf", "", true),
        ] {
            let name = method.to_owned();
            let values = Vec::new();
            let filter = Filter {
                number,
                name,
                values,
            };
            let refused = Pipeline::new(&[filter], 4, 12).err();
            let expected = format!(
                "cannot undo the filter {method} (number {number}): the crate paceline-formats was \
                 built without its feature {feature:?}"
            );
            assert_eq!(refused, (!built).then_some(expected));
        }
    }

    #[test]
    fn known_checksums_come_out() {
        // For the words 0x0102 and 0x0304, the sums are 0x0406 and 0x0102 + 0x0406.
        assert_eq!(fletcher32(&[1, 2, 3, 4]), 0x0508_0406);
        assert_eq!(fletcher32(&[1, 2, 3]), 0x0504_0402);
        assert_eq!(fletcher32(&[]), 0);
        // Sums that are a nonzero multiple of 65,535 are not reduced to 0.
        assert_eq!(fletcher32(&[0xff; 1000]), 0xffff_ffff);
    }

    #[test]
    fn a_checksum_is_taken_off_or_refused() {
        for stored in [[6, 4, 8, 5], [4, 6, 5, 8]] {
            let bytes = [&[1, 2, 3, 4][..], &stored].concat();
            assert_eq!(strip_checksum(&bytes), Ok(&[1, 2, 3, 4][..]));
        }
        let (expected, found) = strip_checksum(&[1, 2, 3, 5, 6, 4, 8, 5]).unwrap_err();
        assert!(expected.ends_with("05080406"), "{expected}");
        assert_eq!(found, "05090407");
        assert!(strip_checksum(&[1, 2, 3]).is_err());
    }

    #[test]
    fn numbers_are_put_together_whatever_their_width() {
        for width in 1..=9 {
            let numbers: Vec<u8> = (0..7 * width as u8).collect();
            let shuffled: Vec<u8> = (0..width)
                .flat_map(|plane| numbers.iter().skip(plane).step_by(width).copied())
                .collect();
            let mut some = vec![0; 3 * width];
            unshuffle(&shuffled, width, 2 * width..5 * width, &mut some);
            assert_eq!(some, numbers[2 * width..5 * width], "{width} bytes");
            let behind = vec![200; width - 1];
            let whole = unshuffle_all(&[&shuffled[..], &behind].concat(), width);
            assert_eq!(whole, [numbers, behind].concat(), "{width} bytes");
        }
    }
}
