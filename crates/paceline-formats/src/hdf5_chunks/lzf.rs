//! LZF, in the form of h5py.
//!
//! ```text
//! 000nnnnn                       the next n + 1 bytes as they are
//! nnnooooo oooooooo              n + 2 bytes from o + 1 bytes back; n is 1 to 6
//! 111ooooo nnnnnnnn oooooooo     n + 9 bytes from o + 1 bytes back
//! ```

/// Maximum number of literal bytes after one control byte, and maximum length of a reference.
const LITERAL: usize = 32;
const REFERENCE: usize = 264;
/// Maximum number of bytes by which a reference points back.
const BACK: usize = 1 << 13;
/// Number of bits of the hash of three bytes.
const BITS: u32 = 14;

/// Maximum number of decompressed bytes per compressed byte.
pub const MOST: usize = 88;

/// Decompress a whole stream into `out`.
///
/// # Errors
/// A description of what was found instead of a stream of `out.len()` bytes.
pub fn inflate(mut stream: &[u8], out: &mut [u8]) -> Result<(), String> {
    let mut done = 0;
    while let Some((&control, rest)) = stream.split_first() {
        stream = rest;
        let cut = || format!("a stream that ends after {done} bytes");
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

/// Copy `len` bytes to `at` from the position `back` bytes before. The source may overlap the copy.
fn repeat(out: &mut [u8], at: usize, back: usize, len: usize) {
    if back >= len {
        out.copy_within(at - back..at - back + len, at);
    } else {
        for k in at..at + len {
            out[k] = out[k - back];
        }
    }
}

/// LZF compressor of chunks, which reuses its memory.
pub struct Deflater {
    /// For each hash, the last position in the chunk of three bytes with this hash; 0 if there is
    /// none.
    last: Vec<u32>,
}

impl Default for Deflater {
    fn default() -> Self {
        Deflater {
            last: vec![0; 1 << BITS],
        }
    }
}

impl Deflater {
    /// Compress a chunk of less than 4 GiB, and append the result to `out`. Data without
    /// repetitions grow by 1/32.
    pub fn append(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        self.last.fill(0);
        let (mut at, mut literal) = (0, 0);
        while let Some(three) = bytes.get(at..at + 3) {
            let key = u32::from_le_bytes([three[0], three[1], three[2], 0]);
            let hash = (key.wrapping_mul(0x9e37_79b1) >> (u32::BITS - BITS)) as usize;
            let from = self.last[hash] as usize;
            self.last[hash] = at as u32;
            let back = at - from;
            if back == 0 || back > BACK || bytes[from..from + 3] != *three {
                at += 1;
                continue;
            }
            let ahead = &bytes[at..bytes.len().min(at + REFERENCE)];
            let same = ahead.iter().zip(&bytes[from..]);
            let len = same.take_while(|(a, b)| a == b).count();
            append_literal(&bytes[literal..at], out);
            let (high, low) = (((back - 1) >> 8) as u8, (back - 1) as u8);
            match len {
                ..9 => out.extend([((len - 2) as u8) << 5 | high, low]),
                _ => out.extend([7 << 5 | high, (len - 9) as u8, low]),
            }
            at += len;
            literal = at;
        }
        append_literal(&bytes[literal..], out);
    }
}

fn append_literal(bytes: &[u8], out: &mut Vec<u8>) {
    for piece in bytes.chunks(LITERAL) {
        out.push((piece.len() - 1) as u8);
        out.extend_from_slice(piece);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_and_references_come_out() {
        // "abc", then 4 bytes from 3 back, then 10 from 1 back.
        let stream = [2, b'a', b'b', b'c', 2 << 5, 2, 7 << 5, 1, 0];
        let mut out = [0; 17];
        assert_eq!(inflate(&stream, &mut out), Ok(()));
        assert_eq!(&out, b"abcabcaaaaaaaaaaa");
    }

    #[test]
    fn what_breaks_off_or_points_before_the_start_is_refused() {
        let refused = |stream: &[u8]| inflate(stream, &mut [0; 4]).unwrap_err();
        assert_eq!(refused(&[0, 1]), "a stream of 1 bytes");
        assert_eq!(refused(&[1, 1]), "a stream that ends after 0 bytes");
        assert_eq!(refused(&[0, 1, 224]), "a stream that ends after 1 bytes");
        assert_eq!(refused(&[0, 1, 32]), "a stream that ends after 1 bytes");
        assert_eq!(
            refused(&[0, 1, 32, 1]),
            "a reference to 2 bytes back after 1 bytes"
        );
        assert_eq!(refused(&[0, 1, 64, 0]), "a longer stream");
        assert_eq!(refused(&[4, 1, 2, 3, 4, 5]), "a longer stream");
    }

    #[test]
    fn what_was_written_comes_out() {
        let mut random = 1u32;
        let mut next = |most: u32| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (random >> 8) % most
        };
        let mut deflater = Deflater::default();
        for (n, kinds) in [
            (0, 1),
            (1, 1),
            (2, 1),
            (3, 1),
            (40, 1),
            (5_000, 1),
            (300, 2),
        ]
        .into_iter()
        .chain([(20_000, 3), (20_000, 256), (33, 256)])
        {
            let bytes: Vec<u8> = (0..n).map(|_| next(kinds) as u8).collect();
            let mut stream = vec![9];
            deflater.append(&bytes, &mut stream);
            let mut out = vec![0; n];
            assert_eq!(inflate(&stream[1..], &mut out), Ok(()));
            assert_eq!(out, bytes);
            assert!(stream.len() - 1 <= n + n.div_ceil(LITERAL));
            if n == 5_000 {
                assert_eq!(stream.len() - 1, 2 + 3 * 19);
            }
        }
    }

    #[test]
    fn references_reach_as_far_as_the_format() {
        for (gap, found) in [(BACK - 3, true), (BACK - 2, false)] {
            let mut bytes = b"xyz".to_vec();
            bytes.extend((0..gap).map(|k| (k % 251) as u8 | 0x80));
            bytes.extend(b"xyz");
            let mut stream = Vec::new();
            Deflater::default().append(&bytes, &mut stream);
            assert_eq!(stream.ends_with(&[1 << 5 | 31, 255]), found);
            let mut out = vec![0; bytes.len()];
            assert_eq!(inflate(&stream, &mut out), Ok(()));
            assert_eq!(out, bytes);
        }
    }
}
