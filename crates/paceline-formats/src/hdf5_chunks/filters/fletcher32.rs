//! The checksum that HDF5 puts behind a chunk: Fletcher's, of 16-bit words.

/// Words that can be added up before a sum of sums overflows 64 bits, by a wide margin.
const WORDS: usize = 1 << 16;

/// The checksum of some bytes, an odd one at the end taken for the high half of a word.
pub fn fletcher32(bytes: &[u8]) -> u32 {
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
pub fn strip(bytes: &[u8]) -> Result<&[u8], (String, String)> {
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

#[cfg(test)]
mod tests {
    use super::*;

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
            assert_eq!(strip(&bytes), Ok(&[1, 2, 3, 4][..]));
        }
        let (expected, found) = strip(&[1, 2, 3, 5, 6, 4, 8, 5]).unwrap_err();
        assert!(expected.ends_with("05080406"), "{expected}");
        assert_eq!(found, "05090407");
        assert!(strip(&[1, 2, 3]).is_err());
    }
}
