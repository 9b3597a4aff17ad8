//! Encoding of frames with the same bytes as GROMACS.
//!
//! Positions are converted to integers by float32 operations, in the same order as in xdrfile and
//! in MDAnalysis's writer: Å × 0.1, × precision, add half a unit away from zero, truncate. The
//! format does not prescribe how atoms are grouped. The grouping here is that of GROMACS, and takes
//! no additional time.

use super::decode::{
    PRECISION_MIN, PRODUCT_SIZE_MAX, SMALL_MAX, SMALL_MIN, SMALL_SIZES, bit_length,
};
use super::mixed_radix::Layout;
use super::simd_vectors::{Floats, Four};
use super::{AT_BYTE_COUNT, MAGIC_1995, MAGIC_2023, PLAIN_ATOMS};
use crate::frame_codec::{check_finite, not_finite};
use crate::xdr::{self, NM_PER_ANGSTROM, padding};
use crate::{Encoder, FrameIn, Series};

/// Default precision of GROMACS, integers per nm.
pub const PRECISION: f32 = 1000.0;

/// Number of atoms above which GROMACS writes the magic number 2023, whatever the size of the
/// frame.
const ATOMS_1995: usize = 298_261_617;

/// Encodes the frames of one XTC file.
#[derive(Debug)]
pub struct XtcEncoder {
    n_atoms: usize,
    /// Precision, integers per nm.
    precision: f32,
    integers: Integers,
}

impl XtcEncoder {
    /// Create an encoder with a precision in integers per nm.
    ///
    /// # Errors
    /// The reason, as a message, if no XTC file can have this number of atoms or this precision.
    pub fn new(n_atoms: usize, precision: f32) -> Result<Self, String> {
        if i32::try_from(n_atoms).is_err() {
            return Err(format!(
                "XTC holds at most {} atoms, not {n_atoms}",
                i32::MAX
            ));
        }
        if !(precision > PRECISION_MIN && precision.is_finite()) {
            return Err(format!(
                "expected a finite precision above {PRECISION_MIN:e} integers per nm, found \
                 {precision}"
            ));
        }
        Ok(XtcEncoder {
            n_atoms,
            precision,
            integers: Integers::default(),
        })
    }

    fn check(&self, frame: &FrameIn<'_>) -> Result<(), String> {
        if frame.positions.len() != 3 * self.n_atoms {
            return Err(format!(
                "expected positions of {} atoms, found {}",
                self.n_atoms,
                frame.positions.len() / 3
            ));
        }
        if !(frame.velocities.is_empty() && frame.forces.is_empty()) {
            return Err("XTC holds positions only, no velocities or forces".into());
        }
        Ok(())
    }
}

impl Encoder for XtcEncoder {
    /// Return no bytes: XTC files have no header.
    fn head(&self, _series: &Series) -> Vec<u8> {
        Vec::new()
    }

    fn encode(&mut self, frame: &FrameIn<'_>, bytes: &mut Vec<u8>) -> Result<(), String> {
        self.check(frame)?;
        let start = Start::new(frame)?;
        if self.n_atoms <= PLAIN_ATOMS {
            check_finite(frame.positions, "position")?;
            start.put(MAGIC_1995, bytes);
            for position in frame.positions {
                bytes.extend((position * NM_PER_ANGSTROM).to_be_bytes());
            }
            return Ok(());
        }
        self.integers.take(frame.positions, self.precision)?;
        let integers = &self.integers;
        let most = max_bytes(integers);
        let long = self.n_atoms > ATOMS_1995 || i32::try_from(most).is_err();
        let frame_at = bytes.len();
        start.put(if long { MAGIC_2023 } else { MAGIC_1995 }, bytes);
        bytes.extend(self.precision.to_be_bytes());
        for value in [integers.minimum, integers.maximum].as_flattened() {
            bytes.extend(value.to_be_bytes());
        }
        bytes.extend((first_small(integers) as i32).to_be_bytes());
        bytes.extend_from_slice(if long { &[0; 8] } else { &[0; 4] });
        let start = bytes.len();
        bytes.resize(start + most, 0);
        let len = pack(integers, &mut bytes[start..]);
        bytes.resize(start + len, 0);
        bytes.resize(start + len + padding(len as u64) as usize, 0);
        let count_at = frame_at + AT_BYTE_COUNT;
        if long {
            bytes[count_at..start].copy_from_slice(&(len as u64).to_be_bytes());
        } else {
            bytes[count_at..start].copy_from_slice(&(len as u32).to_be_bytes());
        }
        Ok(())
    }
}

/// Beginning of a frame: the numbers before its unpacked positions, or before the precision of
/// packed positions.
struct Start {
    n_atoms: i32,
    step: i32,
    time: f32,
    box_vectors: [[f32; 3]; 3],
}

impl Start {
    fn new(frame: &FrameIn<'_>) -> Result<Self, String> {
        let (step, time) = xdr::moment(frame, "XTC")?;
        Ok(Start {
            n_atoms: (frame.positions.len() / 3) as i32,
            step,
            time,
            box_vectors: xdr::box_vectors(&frame.cell)?,
        })
    }

    fn put(&self, magic: i32, bytes: &mut Vec<u8>) {
        for number in [magic, self.n_atoms, self.step] {
            bytes.extend(number.to_be_bytes());
        }
        bytes.extend(self.time.to_be_bytes());
        for value in self.box_vectors.as_flattened() {
            bytes.extend(value.to_be_bytes());
        }
        bytes.extend(self.n_atoms.to_be_bytes());
    }
}

// Choice of the groups: the atoms of each group, and the number of bits of the differences. Then
// the groups are packed.
//
// The choices are those of GROMACS's routine of 1995. A run continues while the next atom is near
// the previous one, for at most 8 atoms. After each group the small index may change by one. It
// increases if the first atom of the group was near the last atom of the previous group. It
// decreases if all differences in the run fit the smaller range.

/// Maximum number of atoms in a run; the format allows 10.
const RUN_MAX: usize = 8;

/// Maximum difference between two small indices (`smallidx` in xdrfile) of one frame.
const SMALL_SPAN: usize = 8;

/// Parameters of a small index.
#[derive(Clone, Copy)]
struct Small {
    radix: Radix,
    /// Half of the range of a difference, along each axis.
    half: [i32; 4],
    /// Maximum absolute value of a difference, along each axis.
    below: [i32; 4],
}

static SMALL: [Small; SMALL_MAX + 1] = {
    let nothing = Small {
        radix: Radix::new(1, 0, 0),
        half: [0; 4],
        below: [-1; 4],
    };
    let mut table = [nothing; SMALL_MAX + 1];
    let mut index = SMALL_MIN;
    while index <= SMALL_MAX {
        let size = SMALL_SIZES[index];
        let half = size as i32 / 2;
        table[index] = Small {
            radix: Radix::new(index as u32, size, size),
            half: [half, half, half, 0],
            below: [half - 1, half - 1, half - 1, 0],
        };
        index += 1;
    }
    table
};

/// Choose the small index of the first group.
fn first_small(integers: &Integers) -> usize {
    let large_enough = |&index: &usize| SMALL_SIZES[index] as i32 >= integers.least;
    (SMALL_MIN..SMALL_MAX)
        .find(large_enough)
        .unwrap_or(SMALL_MAX)
}

fn largest_small(integers: &Integers) -> usize {
    (first_small(integers) + SMALL_SPAN).min(SMALL_MAX)
}

/// Return the maximum number of bytes that [`pack`] needs.
fn max_bytes(integers: &Integers) -> usize {
    let whole = Whole::new(integers).n_bits() + 6;
    let atom = whole.max(largest_small(integers) as u32) as usize;
    (integers.atoms.len() * atom).div_ceil(8) + SLACK
}

/// Encoding of full positions, relative to the minimum.
enum Whole {
    Mixed(Radix),
    /// Numbers of bits of x, y and z, if a range is too large for a combined number.
    Apart([u32; 3]),
}

impl Whole {
    fn new(integers: &Integers) -> Self {
        let axes = [0, 1, 2];
        let sizes = axes.map(|axis| integers.maximum[axis].abs_diff(integers.minimum[axis]) + 1);
        if sizes.iter().any(|&size| size > PRODUCT_SIZE_MAX) {
            return Whole::Apart(sizes.map(|size| bit_length(size.into())));
        }
        let n = bit_length(sizes.iter().map(|&size| u128::from(size)).product());
        Whole::Mixed(Radix::new(n, sizes[1], sizes[2]))
    }

    fn n_bits(&self) -> u32 {
        match self {
            Whole::Mixed(radix) => radix.bits,
            Whole::Apart(bits) => bits.iter().sum(),
        }
    }

    #[inline(always)]
    fn put(&self, digits: [i32; 4], bits: &mut Bits<'_>) {
        match self {
            Whole::Mixed(radix) => radix.put(digits, bits),
            Whole::Apart(lengths) => {
                for (digit, length) in digits.into_iter().zip(lengths) {
                    bits.put(u64::from(digit as u32) << (64 - length), *length);
                }
            }
        }
    }
}

/// Pack all atoms into `bytes`, which has [`max_bytes`] bytes; return the number of bytes used.
fn pack(integers: &Integers, bytes: &mut [u8]) -> usize {
    let whole = Whole::new(integers);
    let [x, y, z] = integers.minimum;
    let minimum = Four::new([x, y, z, 0]);
    let mut bits = Bits::new(bytes);
    let mut groups = Groups::new(integers);
    let mut run_before = usize::MAX;
    while let Some(&first) = groups.atoms.get(groups.at) {
        let radix = &SMALL[groups.small].radix;
        let Group { full, run, change } = groups.next(first);
        whole.put(full.minus(minimum).to_array(), &mut bits);
        // The code is computed in any case: a branch would be mispredicted half of the time.
        let code = (0b10_0000 | (3 * run as i32 + change + 1) as u64) << 58;
        let same = run == run_before && change == 0;
        let (word, n) = if same { (0, 1) } else { (code, 6) };
        bits.put(word, n);
        run_before = run;
        for &digits in &groups.digits[..run] {
            radix.put(digits, &mut bits);
        }
    }
    bits.len()
}

/// Group: one atom with its full position, and a run of atoms stored as differences.
struct Group {
    full: Four,
    run: usize,
    /// Change of the small index for the next group.
    change: i32,
}

/// Finds one group after the other.
struct Groups<'a> {
    atoms: &'a [Four],
    /// Index of the first atom of the next group.
    at: usize,
    /// Last atom of the previous group.
    last: Four,
    small: usize,
    smallest: usize,
    largest: usize,
    /// Differences in the run, relative to the lowest representable difference.
    digits: [[i32; 4]; RUN_MAX],
}

impl<'a> Groups<'a> {
    fn new(integers: &'a Integers) -> Self {
        let largest = largest_small(integers);
        Groups {
            atoms: &integers.atoms,
            at: 0,
            last: Four::new([0; 4]),
            small: first_small(integers),
            smallest: largest - SMALL_SPAN,
            largest,
            digits: [[0; 4]; RUN_MAX],
        }
    }

    /// Find the group that begins with the atom `first`.
    #[inline(always)]
    fn next(&mut self, first: Four) -> Group {
        let below = Four::new(SMALL[self.small].below);
        let change = self.likely_change(first);
        // The second atom is stored with its full position, so that an oxygen is stored between its
        // hydrogens.
        let group = match self.atoms.get(self.at + 1) {
            Some(&second) if near(first.minus(second), below) => {
                self.find_run(first, second, change)
            }
            _ => {
                self.last = first;
                Group {
                    full: first,
                    run: 0,
                    change: change.max(0),
                }
            }
        };
        self.at += 1 + group.run;
        self.small = self.small.wrapping_add_signed(group.change as isize);
        group
    }

    /// Return the change of the small index after the group of `first`. [`Groups::find_run`]
    /// replaces -1 by 0 if a difference is too large for the smaller range.
    #[inline(always)]
    fn likely_change(&self, first: Four) -> i32 {
        let larger = Four::new(SMALL[self.largest].below);
        let up = (self.at > 0) & (self.small < self.largest) & near(first.minus(self.last), larger);
        if up {
            1
        } else {
            -i32::from(self.small > self.smallest)
        }
    }

    /// Find the run that begins with the atom `first`. The difference of this atom is relative to
    /// `full`.
    #[inline(always)]
    fn find_run(&mut self, first: Four, full: Four, mut change: i32) -> Group {
        let Small { half, below, .. } = &SMALL[self.small];
        let (half, below) = (Four::new(*half), Four::new(*below));
        let smaller = SMALL[self.small - 1].half[0];
        let (mut atom, mut step) = (first, first.minus(full));
        let mut run = 0;
        loop {
            if change == -1 && square(step) >= smaller.wrapping_mul(smaller) {
                change = 0;
            }
            self.digits[run] = step.plus(half).to_array();
            run += 1;
            match self.atoms.get(self.at + 1 + run) {
                Some(&next) if run < RUN_MAX && near(next.minus(atom), below) => {
                    step = next.minus(atom);
                    atom = next;
                }
                _ => break,
            }
        }
        self.last = atom;
        Group { full, run, change }
    }
}

/// Return true if all lanes of a difference are from `-below` to `below`. Sums that overflow become
/// negative, so that the result is false.
#[inline(always)]
fn near(difference: Four, below: Four) -> bool {
    !below
        .minus(difference)
        .or(below.plus(difference))
        .any_negative()
}

/// Return the squared length. Squares that overflow wrap, as in GROMACS.
#[inline(always)]
fn square(step: Four) -> i32 {
    let [x, y, z, _] = step.to_array().map(|x| x.wrapping_mul(x));
    x.wrapping_add(y).wrapping_add(z)
}

// Positions as integers of a fixed precision, and their statistics for the header.

/// Upper bound of 32-bit integers.
const LIMIT: f32 = 2_147_483_648.0;

/// Positions of one frame as integers. Their memory is reused for the next frame.
#[derive(Debug, Default)]
struct Integers {
    /// Lanes x, y, z and 0 of each atom.
    atoms: Vec<Four>,
    minimum: [i32; 3],
    maximum: [i32; 3],
    /// Minimum of |Δx| + |Δy| + |Δz| over all pairs of consecutive atoms.
    least: i32,
}

impl Integers {
    /// Convert the positions (Å) of a frame; `precision` is in integers per nm.
    ///
    /// # Errors
    /// A message if the position of an atom does not fit.
    fn take(&mut self, positions: &[f32], precision: f32) -> Result<(), String> {
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
            return Err(invalid_value_reason(positions, precision));
        }
        let (minimum, maximum) = (range.minimum.to_array(), range.maximum.to_array());
        for axis in 0..3 {
            // Differences must fit into signed 32-bit integers, as in xdrfile.
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

/// Bounds of all rounded positions of a frame.
struct Range {
    minimum: Floats,
    maximum: Floats,
    /// Negative lanes if a number was too large or NaN.
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

/// Return numbers whose integer parts are the nearest integers. xdrfile adds half a unit in double
/// precision, and rounds the sum to float32; the results are the same.
#[inline(always)]
fn rounded(position: [f32; 4], precision: f32) -> Floats {
    let nm = Floats::new(position).times(NM_PER_ANGSTROM);
    nm.times(precision).add_half_away_from_zero()
}

/// Compute the minimum of |Δx| + |Δy| + |Δz| over all pairs of consecutive atoms. Sums that
/// overflow wrap, as in xdrfile.
fn least_distance(atoms: &[Four]) -> i32 {
    let distances = atoms.windows(2).map(|pair| {
        let [x, y, z, _] = pair[1].minus(pair[0]).to_array().map(i32::wrapping_abs);
        x.wrapping_add(y).wrapping_add(z)
    });
    distances.min().unwrap_or(i32::MAX)
}

#[cold]
fn invalid_value_reason(positions: &[[f32; 3]], precision: f32) -> String {
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

// Writing of numbers into a bit stream.

/// Maximum number of bits of a word for [`Bits::put`], because up to seven bits are already
/// pending.
const WORD: u32 = 56;

/// Number of bytes after the last bit that [`Bits::put`] may overwrite.
const SLACK: usize = 8;

/// Bit stream: bytes are filled from the front, the highest bit first.
struct Bits<'a> {
    bytes: &'a mut [u8],
    /// Number of complete bytes.
    at: usize,
    /// Bits of the incomplete byte, aligned to the top of the word.
    begun: u64,
    /// Number of bits of the incomplete byte.
    n: u32,
}

impl<'a> Bits<'a> {
    fn new(bytes: &'a mut [u8]) -> Self {
        Bits {
            bytes,
            at: 0,
            begun: 0,
            n: 0,
        }
    }

    /// Write the highest `n` bits of `word`; `n` is at most [`WORD`], and all lower bits must be 0.
    #[inline(always)]
    fn put(&mut self, word: u64, n: u32) {
        let bits = self.begun | word >> self.n;
        self.bytes[self.at..self.at + 8].copy_from_slice(&bits.to_be_bytes());
        self.n += n;
        self.at += self.n as usize / 8;
        self.begun = bits << (self.n & !7);
        self.n &= 7;
    }

    /// Write a number of `n` bits (1 to 72) from its lowest byte to its highest byte. The highest
    /// byte is cut to the remaining bits.
    #[cold]
    fn put_long(&mut self, mut number: u128, mut n: u32) {
        while n > 8 {
            self.put((number as u64) << 56, 8);
            (number, n) = (number >> 8, n - 8);
        }
        self.put((number as u64) << (64 - n), n);
    }

    /// Return the number of bytes that contain all bits.
    fn len(&self) -> usize {
        self.at + usize::from(self.n > 0)
    }
}

/// Mixed-radix numbers of three digits. The last digit varies fastest.
#[derive(Debug, Clone, Copy)]
struct Radix {
    bits: u32,
    size_y: u64,
    size_z: u64,
    layout: Layout,
}

impl Radix {
    const fn new(bits: u32, size_y: u32, size_z: u32) -> Self {
        Radix {
            bits,
            size_y: size_y as u64,
            size_z: size_z as u64,
            layout: Layout::new(if bits > WORD { WORD } else { bits }),
        }
    }

    #[inline(always)]
    fn put(&self, digits: [i32; 4], bits: &mut Bits<'_>) {
        let [x, y, z, _] = digits.map(|digit| u64::from(digit as u32));
        if self.bits <= WORD {
            let number = (x * self.size_y + y) * self.size_z + z;
            bits.put(self.layout.word(number), self.bits);
        } else {
            let xy = u128::from(x * self.size_y + y);
            bits.put_long(xy * u128::from(self.size_z) + u128::from(z), self.bits);
        }
    }
}
