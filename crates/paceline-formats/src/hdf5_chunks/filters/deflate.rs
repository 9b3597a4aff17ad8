//! Deflate: whole streams, and the beginnings of streams.

use libdeflater::{DecompressionError, Decompressor};
use zlib_rs::{Inflate, InflateError, InflateFlush, Status};

/// The most bytes that one byte can become.
pub const MOST: usize = 1032;

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
    /// What is found in place of a stream of as many bytes.
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
    /// What is found in place of a stream of as many bytes, or more.
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
}
