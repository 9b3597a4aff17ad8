//! Positions as integers of a fixed precision, and what a header says of all of them.

use super::NM_PER_ANGSTROM;

/// What no integer of 32 bits reaches.
const LIMIT: f32 = 2_147_483_648.0;

/// The integers of one frame. Their room is kept for the next one.
#[derive(Debug, Default)]
pub(super) struct Integers {
    pub(super) atoms: Vec<[i32; 3]>,
    pub(super) minimum: [i32; 3],
    pub(super) maximum: [i32; 3],
    /// Least distance of neighbours in the order of atoms: |x| + |y| + |z|.
    pub(super) least: i32,
}

impl Integers {
    /// Take the positions (Å) of a frame; `precision` is a number per nm.
    ///
    /// # Errors
    /// The atom that has no integers, in a sentence.
    pub(super) fn take(&mut self, positions: &[f32], precision: f32) -> Result<(), String> {
        let (positions, _) = positions.as_chunks::<3>();
        let (mut minimum, mut maximum) = ([f32::MAX; 3], [f32::MIN; 3]);
        let mut sound = true;
        self.atoms.clear();
        self.atoms.extend(positions.iter().map(|position| {
            let rounded = position.map(|x| rounded(x, precision));
            for axis in 0..3 {
                sound &= rounded[axis].abs() < LIMIT;
                minimum[axis] = if rounded[axis] < minimum[axis] {
                    rounded[axis]
                } else {
                    minimum[axis]
                };
                maximum[axis] = if rounded[axis] > maximum[axis] {
                    rounded[axis]
                } else {
                    maximum[axis]
                };
            }
            rounded.map(|x| x as i32)
        }));
        if !sound {
            return Err(why_unsound(positions, precision));
        }
        for axis in 0..3 {
            // As in xdrfile, whose readers take differences of 32 bits.
            if maximum[axis].trunc() - minimum[axis].trunc() >= LIMIT {
                return Err(format!(
                    "{} from {} to {} Å is too wide a range for precision {precision}",
                    ["x", "y", "z"][axis],
                    minimum[axis] / precision / NM_PER_ANGSTROM,
                    maximum[axis] / precision / NM_PER_ANGSTROM,
                ));
            }
        }
        self.minimum = minimum.map(|x| x as i32);
        self.maximum = maximum.map(|x| x as i32);
        self.least = least_distance(&self.atoms);
        Ok(())
    }
}

/// The number whose integer part is the nearest integer. Half a unit is added in double precision
/// by xdrfile, and the sum rounded, which makes no difference.
#[inline(always)]
fn rounded(position: f32, precision: f32) -> f32 {
    let scaled = position * NM_PER_ANGSTROM * precision;
    scaled + 0.5f32.copysign(scaled)
}

/// Sums that overflow wrap as they do in xdrfile.
fn least_distance(atoms: &[[i32; 3]]) -> i32 {
    let distances = atoms.windows(2).map(|pair| {
        let along = |axis: usize| pair[1][axis].wrapping_sub(pair[0][axis]).wrapping_abs();
        along(0).wrapping_add(along(1)).wrapping_add(along(2))
    });
    distances.min().unwrap_or(i32::MAX)
}

/// # Errors
/// The first atom whose position is no number, in a sentence.
pub(super) fn check_finite(positions: &[f32]) -> Result<(), String> {
    match positions.iter().position(|x| !x.is_finite()) {
        Some(at) => Err(not_finite(at / 3, positions[at])),
        None => Ok(()),
    }
}

fn not_finite(atom: usize, found: f32) -> String {
    format!("atom {atom}: expected a finite position, found {found}")
}

#[cold]
fn why_unsound(positions: &[[f32; 3]], precision: f32) -> String {
    for (atom, position) in positions.iter().enumerate() {
        for &x in position {
            if !x.is_finite() {
                return not_finite(atom, x);
            }
            if !(rounded(x, precision).abs() < LIMIT) {
                return format!("atom {atom}: {x} Å is too far out for precision {precision}");
            }
        }
    }
    format!("a position is too far out for precision {precision}")
}
