//! Stages through which a chunk's bytes went, and the way back.

use std::borrow::Cow;
use std::ops::Range;

use libdeflater::{DecompressionError, Decompressor};
use zlib_rs::{Inflate, InflateError, InflateFlush, Status};

/// One stage: HDF5's number of it, what the file calls it, and its parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    pub number: u32,
    pub name: String,
    pub values: Vec<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Deflate,
    /// Shuffle of numbers of so many bytes.
    Shuffle(usize),
    Fletcher32,
    Lzf,
}

/// Contradiction: what is expected in a chunk's bytes, and what is found.
pub type Contradiction = (String, String);

/// All stages of a dataset's chunks.
#[derive(Debug)]
pub struct Pipeline {
    /// The first one first.
    stages: Vec<Stage>,
    /// Bytes of a number, and of a chunk's numbers.
    width: usize,
    chunk_bytes: usize,
}

/// A chunk's numbers.
#[derive(Debug, Default)]
pub struct Unpacked {
    pub bytes: Vec<u8>,
    /// They are still shuffled: to put together those that are wanted is enough.
    pub shuffled: bool,
}

impl Pipeline {
    /// # Errors
    /// A filter that we do not undo, by name.
    pub fn new(filters: &[Filter], width: usize, chunk_bytes: usize) -> Result<Pipeline, String> {
        let stages = filters.iter().map(|filter| match filter.number {
            1 => Ok(Stage::Deflate),
            2 => match filter.values.first() {
                None => Ok(Stage::Shuffle(width)),
                Some(&bytes @ 1..=0xffff) => Ok(Stage::Shuffle(bytes as usize)),
                Some(bytes) => Err(format!("cannot undo a shuffle of {bytes} bytes")),
            },
            3 => Ok(Stage::Fletcher32),
            32000 => Ok(Stage::Lzf),
            number => Err(format!(
                "cannot undo the filter {} (number {number})",
                filter.name
            )),
        });
        let stages: Vec<Stage> = stages.collect::<Result<_, _>>()?;
        let packs = |stage: &&Stage| matches!(stage, Stage::Deflate | Stage::Lzf);
        if stages.iter().filter(packs).count() > 1 || stages.len() > u32::BITS as usize {
            return Err("cannot undo more than one compression".into());
        }
        Ok(Pipeline {
            stages,
            width,
            chunk_bytes,
        })
    }

    /// True if chunks are stored as they are.
    pub fn is_empty(&self) -> bool {
        self.stages.is_empty()
    }

    /// Stages of a chunk: bit k of the mask says that stage k was left out.
    fn stages(&self, mask: u32) -> impl DoubleEndedIterator<Item = Stage> + Clone {
        let stages = self.stages.iter().enumerate();
        stages.filter_map(move |(k, &stage)| (mask >> k & 1 == 0).then_some(stage))
    }

    /// True if the beginning of a chunk's numbers can be had from the beginning of its bytes.
    pub fn has_beginning(&self, mask: u32) -> bool {
        self.stages(mask).eq([Stage::Deflate])
    }

    /// Refuse a chunk whose bytes could never become those that it is said to have.
    ///
    /// # Errors
    /// Contradiction that was met.
    pub fn check_size(&self, mask: u32, size: u64) -> Result<(), Contradiction> {
        let checks = self
            .stages(mask)
            .filter(|&stage| stage == Stage::Fletcher32)
            .count() as u64;
        let most = self.stages(mask).find_map(|stage| match stage {
            Stage::Deflate => Some(DEFLATE_MOST),
            Stage::Lzf => Some(LZF_MOST),
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

    /// Undo all stages of a chunk that [`Pipeline::check_size`] lets pass, but for a shuffle of
    /// its numbers; every checksum on the way is proved.
    ///
    /// # Errors
    /// Contradiction that was met.
    pub fn unpack(
        &self,
        mask: u32,
        stored: &[u8],
        inflater: &mut Inflater,
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
                Stage::Deflate | Stage::Lzf => {
                    let checks = self.stages(mask).take(before);
                    let checks = checks.filter(|&stage| stage == Stage::Fletcher32).count();
                    let mut out = room.take().unwrap_or_default();
                    out.resize(self.chunk_bytes + 4 * checks, 0);
                    let (name, done) = match stage {
                        Stage::Deflate => ("a deflate", inflater.inflate(&bytes, &mut out)),
                        _ => ("an LZF", inflate_lzf(&bytes, &mut out)),
                    };
                    done.map_err(|found| (format!("{name} stream of {} bytes", out.len()), found))?;
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

impl Unpacked {
    /// Some of the numbers, put together where need be.
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

// Deflate: whole streams, and the beginnings of streams.

/// The most bytes that one byte can become.
pub const DEFLATE_MOST: usize = 1032;

/// Undoes deflate.
pub struct Inflater {
    whole: Decompressor,
    beginning: Inflate,
}

impl Default for Inflater {
    fn default() -> Self {
        Inflater {
            whole: Decompressor::new(),
            beginning: Inflate::new(true, 15),
        }
    }
}

impl Inflater {
    /// Fill `out` from a whole stream, and prove its checksum.
    ///
    /// # Errors
    /// Description of what is found in place of a stream of as many bytes.
    pub fn inflate(&mut self, stream: &[u8], out: &mut [u8]) -> Result<(), String> {
        match self.whole.zlib_decompress(stream, out) {
            Ok(n) if n == out.len() => Ok(()),
            Ok(n) => Err(format!("a stream of {n} bytes")),
            Err(DecompressionError::InsufficientSpace) => Err("a longer stream".into()),
            Err(DecompressionError::BadData) => {
                Err("one that is corrupt, or has another checksum".into())
            }
        }
    }

    /// Begin to fill something from the beginning of a stream.
    pub fn begin(&mut self) {
        self.beginning.reset(true);
    }

    /// Go on with the next bytes of the stream, to what is filled from its front on; whether it
    /// is full.
    ///
    /// # Errors
    /// Description of what is found in place of a stream of as many bytes, or more.
    pub fn go_on(&mut self, mut stream: &[u8], out: &mut [u8]) -> Result<bool, String> {
        loop {
            let (taken, done) = (self.beginning.total_in(), self.done());
            if done == out.len() {
                return Ok(true);
            }
            let flush = InflateFlush::NoFlush;
            let status = self.beginning.decompress(stream, &mut out[done..], flush);
            stream = &stream[(self.beginning.total_in() - taken) as usize..];
            match status {
                Ok(Status::StreamEnd) if self.done() < out.len() => {
                    return Err(format!("a stream of {} bytes", self.done()));
                }
                Ok(_) if self.done() == out.len() => return Ok(true),
                Ok(_) if stream.is_empty() => return Ok(false),
                Ok(_) if self.done() > done => {}
                Ok(_) | Err(InflateError::DataError | InflateError::NeedDict { .. }) => {
                    return Err(format!("one that is corrupt behind byte {}", self.done()));
                }
                Err(error) => return Err(error.as_str().into()),
            }
        }
    }

    /// Bytes of the stream that were used so far.
    pub fn used(&self) -> u64 {
        self.beginning.total_in()
    }

    fn done(&self) -> usize {
        self.beginning.total_out() as usize
    }
}

// The checksum that HDF5 puts behind a chunk: Fletcher's, of 16-bit words.

/// Words that can be added up before a sum of sums overflows 64 bits, by a wide margin.
const WORDS: usize = 1 << 16;

/// The checksum of some bytes, an odd one at the end taken for the high half of a word.
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

/// The sum modulo 65,535, which is 0 only for 0.
fn fold(mut sum: u64) -> u64 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum
}

/// Take the checksum off the end of some bytes; what was expected and found where it is another.
///
/// # Errors
/// The two checksums, in words.
fn strip_checksum(bytes: &[u8]) -> Result<&[u8], (String, String)> {
    let Some((data, stored)) = bytes.split_last_chunk() else {
        return Err((
            "a checksum of 4 bytes".into(),
            format!("{} bytes", bytes.len()),
        ));
    };
    let computed = fletcher32(data);
    // HDF5 before 1.6.3 exchanged the bytes of each half on some machines.
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

// LZF, as h5py stores it.
//
// ```text
// 000nnnnn                       the next n + 1 bytes as they are
// nnnooooo oooooooo              n + 2 bytes from o + 1 bytes back; n is 1 to 6
// 111ooooo nnnnnnnn oooooooo     n + 9 bytes from o + 1 bytes back
// ```

/// The most bytes that one byte can become.
const LZF_MOST: usize = 88;

/// Fill `out` from a whole stream.
///
/// # Errors
/// Description of what is found in place of a stream of as many bytes.
fn inflate_lzf(mut stream: &[u8], out: &mut [u8]) -> Result<(), String> {
    let mut done = 0;
    while let Some((&control, rest)) = stream.split_first() {
        stream = rest;
        let cut = || format!("a stream that breaks off after {done} bytes");
        if control < 32 {
            let len = usize::from(control) + 1;
            let (literal, rest) = stream.split_at_checked(len).ok_or_else(cut)?;
            let room = out.get_mut(done..done + len).ok_or("a longer stream")?;
            room.copy_from_slice(literal);
            (stream, done) = (rest, done + len);
            continue;
        }
        let mut len = usize::from(control >> 5) + 2;
        if len == 9 {
            let (&more, rest) = stream.split_first().ok_or_else(cut)?;
            (len, stream) = (len + usize::from(more), rest);
        }
        let (&low, rest) = stream.split_first().ok_or_else(cut)?;
        stream = rest;
        let back = (usize::from(control & 31) << 8 | usize::from(low)) + 1;
        if back > done {
            return Err(format!(
                "a reference to {back} bytes back after {done} bytes"
            ));
        }
        if out.len() - done < len {
            return Err("a longer stream".into());
        }
        repeat(out, done, back, len);
        done += len;
    }
    match done == out.len() {
        true => Ok(()),
        false => Err(format!("a stream of {done} bytes")),
    }
}

/// Repeat what stands `back` bytes before `at`; what is written may be read again.
fn repeat(out: &mut [u8], at: usize, back: usize, len: usize) {
    if back >= len {
        out.copy_within(at - back..at - back + len, at);
    } else {
        for k in at..at + len {
            out[k] = out[k - back];
        }
    }
}

// Shuffle: the first bytes of all numbers, then their second bytes, and so on.

/// Put together the numbers in a range of bytes of the unshuffled chunk, which begins and ends
/// between numbers of `width` bytes.
///
/// # Panics
/// If the range is not one of numbers of the chunk.
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

/// Put together a whole chunk; bytes behind the last whole number are as they were.
pub fn unshuffle_all(shuffled: &[u8], width: usize) -> Vec<u8> {
    let mut out = shuffled.to_vec();
    let whole = shuffled.len() / width * width;
    unshuffle(&shuffled[..whole], width, 0..whole, &mut out[..whole]);
    out
}

#[cfg(test)]
mod tests {
    use libdeflater::{CompressionLvl, Compressor};

    use super::*;

    fn deflate(bytes: &[u8]) -> Vec<u8> {
        let mut compressor = Compressor::new(CompressionLvl::default());
        let mut out = vec![0; compressor.zlib_compress_bound(bytes.len())];
        let n = compressor.zlib_compress(bytes, &mut out).unwrap();
        out.truncate(n);
        out
    }

    fn data() -> Vec<u8> {
        (0..100_000_u64).map(|k| (k * k % 251) as u8).collect()
    }

    #[test]
    fn a_beginning_is_the_beginning_of_the_whole_however_it_arrives() {
        let (data, stream) = (data(), deflate(&data()));
        let mut inflater = Inflater::default();
        let mut whole = vec![0; data.len()];
        inflater.inflate(&stream, &mut whole).unwrap();
        assert_eq!(whole, data);
        for (n, step) in [
            (0, 7),
            (1, 1),
            (40_000, 5),
            (100_000, 1000),
            (70_000, 1 << 20),
        ] {
            let mut some = vec![0; n];
            inflater.begin();
            let mut full = false;
            for piece in stream.chunks(step) {
                full = inflater.go_on(piece, &mut some).unwrap();
                if full {
                    break;
                }
            }
            assert!(full && inflater.used() <= stream.len() as u64, "{n} bytes");
            assert_eq!(some, data[..n]);
        }
    }

    #[test]
    fn streams_that_are_corrupt_or_of_another_length_are_refused() {
        let (data, mut stream) = (data(), deflate(&data()));
        let mut inflater = Inflater::default();
        for (n, found) in [
            (99_999, "a longer stream"),
            (100_001, "a stream of 100000 bytes"),
        ] {
            let refused = inflater.inflate(&stream, &mut vec![0; n]).unwrap_err();
            assert_eq!(refused, found);
        }
        inflater.begin();
        let refused = inflater
            .go_on(&stream, &mut vec![0; data.len() + 1])
            .unwrap_err();
        assert_eq!(refused, "a stream of 100000 bytes");
        // A checksum at the end is only for who reads to the end.
        *stream.last_mut().unwrap() ^= 1;
        assert!(inflater.inflate(&stream, &mut vec![0; data.len()]).is_err());
        inflater.begin();
        assert_eq!(inflater.go_on(&stream, &mut vec![0; 50_000]), Ok(true));
        stream[..100].fill(0xff);
        inflater.begin();
        assert!(inflater.go_on(&stream, &mut vec![0; 50_000]).is_err());
    }

    #[test]
    fn known_checksums_come_out() {
        // Of the words 0x0102 and 0x0304: 0x0406, and 0x0102 + 0x0406.
        assert_eq!(fletcher32(&[1, 2, 3, 4]), 0x0508_0406);
        assert_eq!(fletcher32(&[1, 2, 3]), 0x0504_0402);
        assert_eq!(fletcher32(&[]), 0);
        // Sums that are a multiple of 65,535 are not 0.
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
    fn literals_and_references_come_out() {
        // "abc", then 4 bytes from 3 back, then 10 from 1 back.
        let stream = [2, b'a', b'b', b'c', 2 << 5, 2, 7 << 5, 1, 0];
        let mut out = [0; 17];
        assert_eq!(inflate_lzf(&stream, &mut out), Ok(()));
        assert_eq!(&out, b"abcabcaaaaaaaaaaa");
    }

    #[test]
    fn what_breaks_off_or_points_before_the_start_is_refused() {
        let refused = |stream: &[u8]| inflate_lzf(stream, &mut [0; 4]).unwrap_err();
        assert_eq!(refused(&[0, 1]), "a stream of 1 bytes");
        assert_eq!(refused(&[1, 1]), "a stream that breaks off after 0 bytes");
        assert_eq!(
            refused(&[0, 1, 224]),
            "a stream that breaks off after 1 bytes"
        );
        assert_eq!(
            refused(&[0, 1, 32]),
            "a stream that breaks off after 1 bytes"
        );
        assert_eq!(
            refused(&[0, 1, 32, 1]),
            "a reference to 2 bytes back after 1 bytes"
        );
        assert_eq!(refused(&[0, 1, 64, 0]), "a longer stream");
        assert_eq!(refused(&[4, 1, 2, 3, 4, 5]), "a longer stream");
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
