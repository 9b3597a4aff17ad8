//! Check of the numbers of a frame: whether all are finite, and the largest coordinate.

use paceline_base::Fields;

/// Result of a check. The first three numbers are the first atom with a number that is not finite
/// (−1 for none), in positions, velocities and forces. The fourth is the largest |x|, |y| or |z| of
/// all positions, Å, and the fifth is the first atom with this coordinate. The last two are NaN if
/// positions are missing or not all finite.
pub type Validity = [f64; 5];

/// Number of partial results. The compiler vectorises over them.
const LANES: usize = 16;
type Lanes = [f32; LANES];

/// Number of values in a stretch. The atom with the largest coordinate is searched only from the
/// start of its stretch on. The values of this stretch are then usually still in the cache.
const STRETCH: usize = 256 * LANES;

/// Check the positions, velocities and forces of a frame. `held` are the fields that the frame
/// contains. A slice is empty if its field is not wanted.
///
/// Call this function from a visitor of `paceline-formats`, right after a frame is decoded and
/// still in the cache. A check of a whole block at once takes 3 times as long.
pub fn check(numbers: [&[f32]; 3], held: Fields) -> Validity {
    let mut validity = [-1.0, -1.0, -1.0, f64::NAN, f64::NAN];
    let held = [held.positions, held.velocities, held.forces];
    for (field, values) in numbers.into_iter().enumerate() {
        if !held[field] || values.is_empty() {
            continue;
        }
        match largest(values) {
            Ok((size, atom)) if field == 0 => {
                (validity[3], validity[4]) = (f64::from(size), atom as f64);
            }
            Ok(_) => {}
            Err(atom) => validity[field] = atom as f64,
        }
    }
    validity
}

/// Return the largest magnitude, and the first atom with it. If a number is not finite, return the
/// first atom with such a number as the error.
fn largest(values: &[f32]) -> Result<(f32, usize), usize> {
    let (mut reach, mut farthest) = (0.0, 0);
    for (k, stretch) in values.chunks(STRETCH).enumerate() {
        let (sum, largest) = scan(stretch);
        // The sum of finite numbers can overflow, so each number is checked if the sum is not
        // finite.
        if !sum.is_finite()
            && let Some(place) = stretch.iter().position(|x| !x.is_finite())
        {
            return Err((k * STRETCH + place) / 3);
        }
        if largest > reach {
            (reach, farthest) = (largest, k * STRETCH);
        }
    }
    Ok((reach, (farthest + index_of(reach, &values[farthest..])) / 3))
}

/// Return the index of the first number with this magnitude; the caller guarantees that there is
/// one.
fn index_of(size: f32, values: &[f32]) -> usize {
    let (chunks, _) = values.as_chunks::<LANES>();
    // All lanes are compared at once: stopping at the first takes 6 times as long.
    let lacks = |chunk: &&Lanes| !chunk.iter().fold(false, |any, x| any | (x.abs() == size));
    let before = LANES * chunks.iter().take_while(lacks).count();
    let rest = values[before..].iter();
    before + rest.map(|x| x.abs()).position(|x| x == size).unwrap_or(0)
}

/// Return the sum of all magnitudes, in some order, and the largest magnitude that is not NaN.
fn scan(values: &[f32]) -> (f32, f32) {
    let (mut sums, mut largest) = ([0.0; LANES], [0.0; LANES]);
    let (chunks, rest) = values.as_chunks();
    let mut padded = [0.0; LANES];
    padded[..rest.len()].copy_from_slice(rest);
    add(&mut sums, &mut largest, chunks);
    add(&mut sums, &mut largest, &[padded]);
    (sums.iter().sum(), largest.into_iter().fold(0.0, larger))
}

/// Add magnitudes to the sum, and update the maximum, for each lane.
///
/// Deliberately not inlined: if this loop is compiled together with the sum over lanes, the
/// compiler shuffles every number, which takes 1.3 times as long. A comparison of bit patterns
/// would need no sum, but takes 1.8 times as long, because SSE2 has no instruction for it.
#[inline(never)]
fn add(sums: &mut Lanes, largest: &mut Lanes, chunks: &[Lanes]) {
    let (mut sums_here, mut largest_here) = (*sums, *largest);
    for chunk in chunks {
        for lane in 0..LANES {
            let size = chunk[lane].abs();
            sums_here[lane] += size;
            largest_here[lane] = larger(largest_here[lane], size);
        }
    }
    (*sums, *largest) = (sums_here, largest_here);
}

/// Return the larger number with one instruction. `f32::max` needs several, because it handles NaN
/// on both sides.
fn larger(largest: f32, size: f32) -> f32 {
    if size > largest { size } else { largest }
}

#[cfg(test)]
mod tests {
    use super::*;

    const N_ATOMS: usize = 2000;

    /// Numbers from -25 to 25.
    fn values() -> Vec<f32> {
        let spread = |k: usize| (k * 7919 % 9973) as f32 / 9973.0;
        (0..3 * N_ATOMS).map(|k| 50.0 * spread(k) - 25.0).collect()
    }

    /// Indices at the ends of lanes and stretches, and at both ends of the array.
    const PLACES: [usize; 9] = [0, 1, 15, 16, 4094, 4095, 4096, 5997, 5999];

    #[test]
    fn the_farthest_atom_is_found_wherever_it_stands() {
        for place in PLACES {
            for far in [1e9, -26.0] {
                let mut values = values();
                values[place] = far;
                let wanted = Ok((far.abs(), place / 3));
                assert_eq!(largest(&values), wanted, "{far} at {place}");
            }
        }
    }

    #[test]
    fn the_first_atom_that_is_not_finite_is_named() {
        for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for place in PLACES {
                let mut values = values();
                (values[place], values[5999]) = (value, value);
                assert_eq!(largest(&values), Err(place / 3), "{value} at {place}");
            }
        }
    }

    #[test]
    fn few_and_extreme_numbers_are_checked_too() {
        assert_eq!(largest(&[0.0, 0.0, -0.0]), Ok((0.0, 0)));
        assert_eq!(largest(&[0.0, f32::MIN, 1e-40]), Ok((f32::MAX, 0)));
        assert_eq!(largest(&[f32::MAX; 9000]), Ok((f32::MAX, 0)));
        assert_eq!(largest(&[]), Ok((0.0, 0)));
    }

    #[test]
    fn only_what_a_frame_holds_and_has_room_for_is_checked() {
        let positions = vec![0.0, 1.0, 2.0, 3.0, -7.0, 5.0];
        let velocities = vec![0.0, 0.0, 0.0, 0.0, f32::NAN, 0.0];
        let mut numbers = [positions, velocities, vec![]];
        let check = |numbers: &[Vec<f32>; 3], held| check(numbers.each_ref().map(|x| &x[..]), held);
        let checked = |bits| check(&numbers, Fields::from_bits(bits));
        assert_eq!(checked(0b111), [-1.0, 1.0, -1.0, 7.0, 1.0]);
        assert_eq!(checked(0b101), [-1.0, -1.0, -1.0, 7.0, 1.0]);
        for nothing in [checked(0b010), check(&Default::default(), Fields::ALL)] {
            assert!(nothing[3].is_nan() && nothing[4].is_nan(), "{nothing:?}");
        }
        numbers[0][0] = f32::INFINITY;
        let broken = check(&numbers, Fields::POSITIONS);
        assert_eq!(broken[..3], [0.0, -1.0, -1.0]);
        assert!(broken[3].is_nan() && broken[4].is_nan(), "{broken:?}");
    }
}
