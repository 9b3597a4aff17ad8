//! Decompression of chunks: deflate, LZF, LZ4 and Zstandard.

#[cfg(feature = "deflate")]
use libdeflater::{DecompressionError, Decompressor};
#[cfg(feature = "deflate")]
use zlib_rs::{Inflate, InflateError, InflateFlush, Status};
#[cfg(feature = "zstd")]
use zstd_safe::DCtx;

use super::lzf;

/// Compression method of chunks. Each method except LZF needs a feature of this crate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    Deflate,
    Lzf,
    Lz4,
    Zstd,
}

impl Method {
    pub fn name(self) -> &'static str {
        match self {
            Method::Deflate => "a deflate",
            Method::Lzf => "an LZF",
            Method::Lz4 => "an LZ4",
            Method::Zstd => "a Zstandard",
        }
    }

    /// Refuse a method whose codec is not included in this build.
    ///
    /// # Errors
    /// A message with the name of the missing feature.
    pub fn check_built(self) -> Result<(), String> {
        let (feature, built) = match self {
            Method::Lzf => return Ok(()),
            Method::Deflate => ("deflate", cfg!(feature = "deflate")),
            Method::Lz4 => ("lz4", cfg!(feature = "lz4")),
            Method::Zstd => ("zstd", cfg!(feature = "zstd")),
        };
        match built {
            true => Ok(()),
            false => Err(format!(
                "the crate paceline-formats was built without its feature {feature:?}"
            )),
        }
    }

    /// Return the maximum number of decompressed bytes per compressed byte.
    pub fn most(self) -> usize {
        match self {
            Method::Deflate => DEFLATE_MOST,
            Method::Lzf => lzf::MOST,
            Method::Lz4 => LZ4_MOST,
            Method::Zstd => ZSTD_MOST,
        }
    }
}

/// Decompressors of chunks for all methods, reused for each chunk.
#[derive(Default)]
pub struct Decompressors {
    #[cfg(feature = "deflate")]
    deflate: Deflate,
    /// Zstandard context, created for the first chunk that needs it, since it takes 160 kB.
    #[cfg(feature = "zstd")]
    zstd: Option<DCtx<'static>>,
}

/// Deflate decoders: one for whole streams, one for the beginnings of streams.
#[cfg(feature = "deflate")]
struct Deflate {
    whole: Decompressor,
    beginning: Inflate,
}

#[cfg(feature = "deflate")]
impl Default for Deflate {
    fn default() -> Self {
        Deflate {
            whole: Decompressor::new(),
            beginning: Inflate::new(true, 15),
        }
    }
}

impl Decompressors {
    /// Decompress a whole stream into `out`, and verify its checksum, if it has one.
    ///
    /// # Errors
    /// A description of what was found instead of a stream of `out.len()` bytes.
    pub fn decompress(
        &mut self,
        method: Method,
        stream: &[u8],
        out: &mut [u8],
    ) -> Result<(), String> {
        match method {
            Method::Lzf => lzf::inflate(stream, out),
            #[cfg(feature = "deflate")]
            Method::Deflate => self.inflate(stream, out),
            #[cfg(feature = "lz4")]
            Method::Lz4 => decompress_lz4(stream, out),
            #[cfg(feature = "zstd")]
            Method::Zstd => self.decompress_zstd(stream, out),
            #[cfg(not(all(feature = "deflate", feature = "lz4", feature = "zstd")))]
            left_out => left_out.check_built(),
        }
    }
}

impl Method {
    /// Refuse a stream that states a decompressed size other than `len`. So the caller can check
    /// the size before it allocates memory.
    ///
    /// # Errors
    /// A description of what was found instead of a stream of `len` bytes.
    pub fn check_stated_size(self, stream: &[u8], len: usize) -> Result<(), String> {
        let stated = match self {
            Method::Deflate | Method::Lzf => None,
            Method::Lz4 => lz4_size(stream),
            #[cfg(feature = "zstd")]
            Method::Zstd => zstd_safe::get_frame_content_size(stream).unwrap_or_default(),
            #[cfg(not(feature = "zstd"))]
            Method::Zstd => None,
        };
        match stated.filter(|&stated| stated != len as u64) {
            None => Ok(()),
            Some(stated) => Err(format!("a stream that states {stated} bytes")),
        }
    }
}

// Deflate: decompression of whole streams, and of beginnings of streams.

/// Maximum number of decompressed bytes per compressed byte.
const DEFLATE_MOST: usize = 1032;

#[cfg(feature = "deflate")]
impl Decompressors {
    /// Decompress a whole stream into `out`, and verify its checksum.
    ///
    /// # Errors
    /// A description of what was found instead of a stream of `out.len()` bytes.
    pub fn inflate(&mut self, stream: &[u8], out: &mut [u8]) -> Result<(), String> {
        match self.deflate.whole.zlib_decompress(stream, out) {
            Ok(n) if n == out.len() => Ok(()),
            Ok(n) => Err(format!("a stream of {n} bytes")),
            Err(DecompressionError::InsufficientSpace) => Err("a longer stream".into()),
            Err(DecompressionError::BadData) => {
                Err("one that is corrupt, or has another checksum".into())
            }
        }
    }

    /// Start the decompression of the beginning of a stream.
    pub fn begin(&mut self) {
        self.deflate.beginning.reset(true);
    }

    /// Decompress the next bytes of the stream; return whether the output is full.
    ///
    /// # Errors
    /// A description of what was found instead of a stream of at least `out.len()` bytes.
    pub fn decompress_more(&mut self, mut stream: &[u8], out: &mut [u8]) -> Result<bool, String> {
        loop {
            let (taken, done) = (self.deflate.beginning.total_in(), self.done());
            if done == out.len() {
                return Ok(true);
            }
            let flush = InflateFlush::NoFlush;
            let status = self
                .deflate
                .beginning
                .decompress(stream, &mut out[done..], flush);
            stream = &stream[(self.deflate.beginning.total_in() - taken) as usize..];
            match status {
                Ok(Status::StreamEnd) if self.done() < out.len() => {
                    return Err(format!("a stream of {} bytes", self.done()));
                }
                Ok(_) if self.done() == out.len() => return Ok(true),
                Ok(_) if stream.is_empty() => return Ok(false),
                Ok(_) if self.done() > done => {}
                Ok(_) | Err(InflateError::DataError | InflateError::NeedDict { .. }) => {
                    return Err(format!("one that is corrupt after byte {}", self.done()));
                }
                Err(error) => return Err(error.as_str().into()),
            }
        }
    }

    /// Return the number of bytes of the stream used so far.
    pub fn used(&self) -> u64 {
        self.deflate.beginning.total_in()
    }

    fn done(&self) -> usize {
        self.deflate.beginning.total_out() as usize
    }
}

/// Substitute for a codec that is not included in this build. It is never called, because
/// [`Method::check_built`] refuses the datasets that need the codec.
#[cfg(not(feature = "deflate"))]
impl Decompressors {
    pub fn begin(&mut self) {}

    pub fn decompress_more(&mut self, _: &[u8], _: &mut [u8]) -> Result<bool, String> {
        Method::Deflate.check_built().map(|()| false)
    }

    pub fn used(&self) -> u64 {
        0
    }
}

// Zstandard: one frame.

/// Maximum number of decompressed bytes per compressed byte: a block of 4 bytes can repeat one byte
/// 128 Ki times.
const ZSTD_MOST: usize = 1 << 15;

#[cfg(feature = "zstd")]
impl Decompressors {
    fn decompress_zstd(&mut self, frame: &[u8], out: &mut [u8]) -> Result<(), String> {
        let context = self.zstd.get_or_insert_with(DCtx::create);
        match context.decompress(out, frame) {
            Ok(n) if n == out.len() => Ok(()),
            Ok(n) => Err(format!("a stream of {n} bytes")),
            Err(code) => {
                let why = zstd_safe::get_error_name(code).to_lowercase();
                Err(format!("one that is corrupt ({why})"))
            }
        }
    }
}

// LZ4, in the form of HDF5's registered filter. All numbers are big-endian.
//
// ```text
// u64   size of the chunk, bytes
// u32   size of a block, bytes; the last block may be shorter
// for each block:
// u32   size of the data that follow, bytes
//       LZ4 block format; if the size equals that of the block, the uncompressed block
// ```

/// Maximum number of decompressed bytes per compressed byte.
const LZ4_MOST: usize = 255;

/// Return the decompressed size stated in a stream; `None` if the stream is too short.
fn lz4_size(stream: &[u8]) -> Option<u64> {
    let (&size, _) = stream.split_first_chunk()?;
    Some(u64::from_be_bytes(size))
}

/// Decompress a whole stream into `out`.
///
/// # Errors
/// A description of what was found instead of a stream of `out.len()` bytes.
#[cfg(feature = "lz4")]
fn decompress_lz4(stream: &[u8], out: &mut [u8]) -> Result<(), String> {
    let cut = |done: usize| format!("a stream that ends after {done} bytes");
    let rest = stream.get(size_of::<u64>()..).ok_or_else(|| cut(0))?;
    let (block, mut rest) = split_number(rest).ok_or_else(|| cut(0))?;
    let block = block.min(out.len());
    if block == 0 {
        return Err("a stream in blocks of 0 bytes".into());
    }
    let mut done = 0;
    for block in out.chunks_mut(block) {
        let (size, after) = split_number(rest).ok_or_else(|| cut(done))?;
        let (packed, after) = after.split_at_checked(size).ok_or_else(|| cut(done))?;
        if size == block.len() {
            block.copy_from_slice(packed);
        } else {
            match lz4_flex::block::decompress_into(packed, block) {
                Ok(n) if n == block.len() => {}
                Ok(n) => return Err(format!("a block of {n} bytes after {done} bytes")),
                Err(why) => return Err(format!("one that is corrupt after {done} bytes ({why})")),
            }
        }
        (rest, done) = (after, done + block.len());
    }
    match rest.len() {
        0 => Ok(()),
        n => Err(format!("a stream with {n} bytes after its end")),
    }
}

/// Remove a 32-bit number from the front of a slice.
#[cfg(feature = "lz4")]
fn split_number(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (&number, rest) = bytes.split_first_chunk()?;
    Some((u32::from_be_bytes(number) as usize, rest))
}

#[cfg(all(test, feature = "deflate", feature = "lz4", feature = "zstd"))]
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
        let mut inflater = Decompressors::default();
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
                full = inflater.decompress_more(piece, &mut some).unwrap();
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
        let mut inflater = Decompressors::default();
        for (n, found) in [
            (99_999, "a longer stream"),
            (100_001, "a stream of 100000 bytes"),
        ] {
            let refused = inflater.inflate(&stream, &mut vec![0; n]).unwrap_err();
            assert_eq!(refused, found);
        }
        inflater.begin();
        let refused = inflater
            .decompress_more(&stream, &mut vec![0; data.len() + 1])
            .unwrap_err();
        assert_eq!(refused, "a stream of 100000 bytes");
        // Only a reader of the whole stream can notice a wrong checksum at its end.
        *stream.last_mut().unwrap() ^= 1;
        assert!(inflater.inflate(&stream, &mut vec![0; data.len()]).is_err());
        inflater.begin();
        assert_eq!(
            inflater.decompress_more(&stream, &mut vec![0; 50_000]),
            Ok(true)
        );
        stream[..100].fill(0xff);
        inflater.begin();
        assert!(
            inflater
                .decompress_more(&stream, &mut vec![0; 50_000])
                .is_err()
        );
    }

    /// Return a stream of uncompressed blocks.
    fn plain(chunk: &[u8], block: usize) -> Vec<u8> {
        let mut stream = (chunk.len() as u64).to_be_bytes().to_vec();
        stream.extend((block as u32).to_be_bytes());
        for block in chunk.chunks(block) {
            stream.extend((block.len() as u32).to_be_bytes());
            stream.extend(block);
        }
        stream
    }

    #[test]
    fn blocks_of_any_size_come_out() {
        for block in [3, 10, 99] {
            let mut out = [0; 10];
            decompress_lz4(&plain(b"abcdefghij", block), &mut out).unwrap();
            assert_eq!(&out, b"abcdefghij");
        }
        // "abc", 13 bytes copied from 3 bytes back, and "abcde"; then an uncompressed block of 3
        // bytes.
        let packed = [
            0x39, b'a', b'b', b'c', 3, 0, 0x50, b'a', b'b', b'c', b'd', b'e',
        ];
        let stream = [
            &[0, 0, 0, 0, 0, 0, 0, 24, 0, 0, 0, 21, 0, 0, 0, 12][..],
            &packed,
            &[0, 0, 0, 3, b'x', b'y', b'z'],
        ];
        let mut out = [0; 24];
        decompress_lz4(&stream.concat(), &mut out).unwrap();
        assert_eq!(&out, b"abcabcabcabcabcaabcdexyz");
    }

    #[test]
    fn streams_that_break_off_or_go_on_are_refused() {
        let stream = plain(b"abcdefghij", 4);
        let refused = |stream: &[u8]| decompress_lz4(stream, &mut [0; 10]).unwrap_err();
        for (n, done) in [
            (0, 0),
            (8, 0),
            (11, 0),
            (12, 0),
            (16, 0),
            (19, 0),
            (20, 4),
            (33, 8),
        ] {
            let expected = format!("a stream that ends after {done} bytes");
            assert_eq!(refused(&stream[..n]), expected, "{n} bytes");
        }
        let longer = [&stream[..], &[0]].concat();
        assert_eq!(refused(&longer), "a stream with 1 bytes after its end");
        let with_block = |block: u32| {
            let mut stream = stream.clone();
            stream[8..12].copy_from_slice(&block.to_be_bytes());
            refused(&stream)
        };
        assert_eq!(with_block(0), "a stream in blocks of 0 bytes");
        assert!(with_block(5).contains("after 0 bytes"));
        assert!(with_block(u32::MAX).contains("after 0 bytes"));
        let mut huge = stream.clone();
        huge[12..16].fill(0xff);
        assert_eq!(refused(&huge), "a stream that ends after 0 bytes");
    }
}
