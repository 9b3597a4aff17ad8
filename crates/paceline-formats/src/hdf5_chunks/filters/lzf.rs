//! LZF, as h5py stores it.
//!
//! ```text
//! 000nnnnn                       the next n + 1 bytes as they are
//! nnnooooo oooooooo              n + 2 bytes from o + 1 bytes back; n is 1 to 6
//! 111ooooo nnnnnnnn oooooooo     n + 9 bytes from o + 1 bytes back
//! ```

/// The most bytes that one byte can become.
pub const MOST: usize = 88;

/// Fill `out` from a whole stream.
///
/// # Errors
/// What is found in place of a stream of as many bytes.
pub fn inflate(mut stream: &[u8], out: &mut [u8]) -> Result<(), String> {
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
}
