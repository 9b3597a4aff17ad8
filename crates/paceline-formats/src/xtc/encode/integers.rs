//! Positions as integers of a fixed precision, and what a header says of all of them.

use crate::finite::not_finite;
use crate::gromacs::NM_PER_ANGSTROM;
use crate::xtc::lanes::{Floats, Four};

/// What no integer of 32 bits reaches.
const LIMIT: f32 = 2_147_483_648.0;

/// The integers of one frame. Their room is kept for the next one.
#[derive(Debug, Default)]
pub(super) struct Integers {
    /// x, y, z and 0.
    pub(super) atoms: Vec<Four>,
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
        let mut range = Range::new();
        self.atoms.clear();
        self.atoms.extend(positions.iter().map(|&[x, y, z]| {
            let rounded = rounded([x, y, z, 0.0], precision);
            let atom = rounded.truncated();
            range.include(rounded, atom);
            atom
        }));
        if !range.is_sound() {
            return Err(why_unsound(positions, precision));
        }
        let (minimum, maximum) = (range.minimum.to_array(), range.maximum.to_array());
        for axis in 0..3 {
            // Differences have to fit in 32 bits, as they have for xdrfile.
            if maximum[axis].trunc() - minimum[axis].trunc() >= LIMIT {
                return Err(format!(
                    "{} from {} to {} Å is too wide a range for precision {precision}",
                    ["x", "y", "z"][axis],
                    minimum[axis] / precision / NM_PER_ANGSTROM,
                    maximum[axis] / precision / NM_PER_ANGSTROM,
                ));
            }
        }
        self.minimum = [0, 1, 2].map(|axis| minimum[axis] as i32);
        self.maximum = [0, 1, 2].map(|axis| maximum[axis] as i32);
        self.least = least_distance(&self.atoms);
        Ok(())
    }
}

/// What all rounded positions of a frame lie between.
struct Range {
    minimum: Floats,
    maximum: Floats,
    /// Negative where a number was too large or none.
    unsound: Four,
}

impl Range {
    fn new() -> Self {
        Range {
            minimum: Floats::new([f32::MAX; 4]),
            maximum: Floats::new([f32::MIN; 4]),
            unsound: Four::new([0; 4]),
        }
    }

    #[inline(always)]
    fn include(&mut self, rounded: Floats, whole: Four) {
        self.minimum = rounded.least(self.minimum);
        self.maximum = rounded.greatest(self.maximum);
        self.unsound = self.unsound.or(whole.equals(Four::new([i32::MIN; 4])));
    }

    fn is_sound(&self) -> bool {
        !self.unsound.any_negative()
    }
}

/// The numbers whose integer parts are the nearest integers. Half a unit is added in double
/// precision by xdrfile, and the sum rounded, which makes no difference.
#[inline(always)]
fn rounded(position: [f32; 4], precision: f32) -> Floats {
    let nm = Floats::new(position).times(NM_PER_ANGSTROM);
    nm.times(precision).half_further()
}

/// Sums that overflow wrap as they do in xdrfile.
fn least_distance(atoms: &[Four]) -> i32 {
    let distances = atoms.windows(2).map(|pair| {
        let [x, y, z, _] = pair[1].minus(pair[0]).to_array().map(i32::wrapping_abs);
        x.wrapping_add(y).wrapping_add(z)
    });
    distances.min().unwrap_or(i32::MAX)
}

#[cold]
fn why_unsound(positions: &[[f32; 3]], precision: f32) -> String {
    for (atom, &[x, y, z]) in positions.iter().enumerate() {
        let whole = rounded([x, y, z, 0.0], precision).truncated().to_array();
        for (x, whole) in [x, y, z].into_iter().zip(whole) {
            if !x.is_finite() {
                return not_finite(atom, "position", x);
            }
            if whole == i32::MIN {
                return format!("atom {atom}: {x} Å is too far out for precision {precision}");
            }
        }
    }
    format!("a position is too far out for precision {precision}")
}
