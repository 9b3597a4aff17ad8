//! Shuffle: the first bytes of all numbers, then their second bytes, and so on.

use std::ops::Range;

/// Put together the numbers in a range of bytes of the unshuffled chunk, which begins and ends
/// between numbers of `width` bytes.
///
/// # Panics
/// Where the range is not one of numbers of the chunk.
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
    use super::*;

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
