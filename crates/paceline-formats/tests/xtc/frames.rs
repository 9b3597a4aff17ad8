//! XTC frames for the decoder: a small encoder that makes random choices wherever the format allows
//! several. A real encoder would choose the shortest result.

/// Small deterministic random generator (SplitMix64).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Return a number from 0 to `n - 1`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// Return a number from `-n` to `n`.
    pub fn around(&mut self, n: i64) -> i64 {
        (self.next() % (2 * n as u64 + 1)) as i64 - n
    }
}

#[derive(Clone)]
pub struct Frame {
    pub magic: i32,
    pub step: i32,
    pub time: f32,
    pub box_vectors: [f32; 9],
    pub precision: f32,
    /// First small index.
    pub small: usize,
    /// Maximum length of a run.
    pub run_max: usize,
    /// Positions in units of 1 / precision.
    pub atoms: Vec<[i32; 3]>,
}

impl Frame {
    pub fn new(atoms: Vec<[i32; 3]>) -> Self {
        Frame {
            magic: 1995,
            step: 5,
            time: 2.5,
            box_vectors: [3.0, 0.0, 0.0, 0.0, 4.0, 0.0, 0.0, 0.0, 5.0],
            precision: 1000.0,
            small: 24,
            run_max: 8,
            atoms,
        }
    }

    /// Return a chain of atoms, each within `step` of the previous one.
    pub fn chain(n: usize, step: i64, random: &mut Random) -> Self {
        let mut at = [0i64; 3];
        let atoms = (0..n).map(|_| {
            at = at.map(|x| x + random.around(step));
            at.map(|x| x as i32)
        });
        Frame::new(atoms.collect())
    }

    /// Return the positions that a reader must find, Å.
    pub fn positions(&self) -> Vec<f32> {
        let scale = 1.0 / self.precision;
        let flat = self.atoms.iter().flatten();
        if self.atoms.len() <= 9 {
            flat.map(|&x| x as f32 / self.precision * 10.0).collect()
        } else {
            flat.map(|&x| x as f32 * scale * 10.0).collect()
        }
    }

    pub fn encode(&self, random: &mut Random) -> Vec<u8> {
        let n = self.atoms.len() as i32;
        let mut bytes = Vec::new();
        put(&mut bytes, [self.magic, n, self.step]);
        put(&mut bytes, [self.time].map(f32::to_bits));
        put(&mut bytes, self.box_vectors.map(f32::to_bits));
        put(&mut bytes, [n]);
        if n <= 9 {
            for x in self.atoms.iter().flatten() {
                put(&mut bytes, [(*x as f32 / self.precision).to_bits()]);
            }
            return bytes;
        }
        let (minimum, maximum) = self.bounds();
        put(&mut bytes, [self.precision.to_bits()]);
        put(&mut bytes, minimum);
        put(&mut bytes, maximum);
        put(&mut bytes, [self.small as i32]);
        let packed = Encoder::new(minimum, maximum).encode(self, random);
        if self.magic == 2023 {
            put(&mut bytes, [0]);
        }
        put(&mut bytes, [packed.len() as i32]);
        bytes.extend(&packed);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn bounds(&self) -> ([i32; 3], [i32; 3]) {
        let axis = |axis: usize| self.atoms.iter().map(move |atom| atom[axis]);
        (
            [0, 1, 2].map(|i| axis(i).min().unwrap()),
            [0, 1, 2].map(|i| axis(i).max().unwrap()),
        )
    }
}

fn put<T: Into<i64>, const N: usize>(bytes: &mut Vec<u8>, numbers: [T; N]) {
    for number in numbers {
        bytes.extend((number.into() as u32).to_be_bytes());
    }
}

/// Return 2^(small / 3), rounded down, except for three entries of the table in the format.
fn small_size(small: usize) -> u64 {
    match small {
        37 => 5060,
        57 => 524_287,
        69 => 8_388_607,
        _ => 2f64.powf(small as f64 / 3.0 + 1e-9).floor() as u64,
    }
}

struct Encoder {
    minimum: [i32; 3],
    sizes: [u64; 3],
    bits: Vec<bool>,
}

impl Encoder {
    fn new(minimum: [i32; 3], maximum: [i32; 3]) -> Self {
        let size = |axis: usize| (i64::from(maximum[axis]) - i64::from(minimum[axis]) + 1) as u64;
        Encoder {
            minimum,
            sizes: [size(0), size(1), size(2)],
            bits: Vec::new(),
        }
    }

    fn encode(mut self, frame: &Frame, random: &mut Random) -> Vec<u8> {
        let atoms = &frame.atoms;
        let (mut small, mut run_before, mut first) = (frame.small, 0, 0);
        while first < atoms.len() {
            let longest = self.longest_run(&atoms[first..], small, frame.run_max);
            let run = match random.below(3) {
                0 => random.below(longest + 1),
                _ => longest,
            };
            let mut change = random.below(3);
            if !(9..=72).contains(&(small + change - 1)) || 3 * run + change > 31 {
                change = 1;
            }
            self.put_full(atoms[first + usize::from(run > 0)]);
            if run != run_before || change != 1 || random.below(8) == 0 {
                self.put(1, 1);
                self.put((3 * run + change) as u128, 5);
            } else {
                self.put(0, 1);
            }
            for (before, atom) in steps(&atoms[first..], run) {
                self.put_mixed(
                    distance(before, atom, small).unwrap(),
                    [small_size(small); 3],
                    small,
                );
            }
            (first, run_before, small) = (first + run + 1, run, small + change - 1);
        }
        let bytes = self.bits.chunks(8);
        bytes
            .map(|byte| (0..8).fold(0, |sum, i| sum << 1 | u8::from(byte.get(i) == Some(&true))))
            .collect()
    }

    fn longest_run(&self, atoms: &[[i32; 3]], small: usize, most: usize) -> usize {
        let most = most.min(atoms.len() - 1);
        let fits = |&run: &usize| {
            let mut steps = steps(atoms, run);
            steps.all(|(before, atom)| distance(before, atom, small).is_some())
        };
        (0..=most).rev().find(fits).unwrap()
    }

    fn put_full(&mut self, atom: [i32; 3]) {
        let digits = [0, 1, 2].map(|i| (i64::from(atom[i]) - i64::from(self.minimum[i])) as u64);
        let length = |number: u128| (128 - number.leading_zeros()) as usize;
        if self.sizes.iter().any(|&size| size > 0xff_ffff) {
            for (digit, size) in digits.into_iter().zip(self.sizes) {
                self.put(digit.into(), length(size.into()));
            }
        } else {
            let product = self.sizes.iter().map(|&size| u128::from(size)).product();
            self.put_mixed(digits, self.sizes, length(product));
        }
    }

    fn put_mixed(&mut self, digits: [u64; 3], sizes: [u64; 3], mut n: usize) {
        let [x, y, z] = digits.map(u128::from);
        let mut number = (x * u128::from(sizes[1]) + y) * u128::from(sizes[2]) + z;
        while n > 8 {
            self.put(number & 0xff, 8);
            (number, n) = (number >> 8, n - 8);
        }
        self.put(number, n);
    }

    fn put(&mut self, number: u128, n: usize) {
        self.bits.extend((0..n).rev().map(|i| number >> i & 1 == 1));
    }
}

/// Return the pairs of atoms whose differences are stored in a group of `run` + 1 atoms.
fn steps(atoms: &[[i32; 3]], run: usize) -> impl Iterator<Item = ([i32; 3], [i32; 3])> + '_ {
    (0..run).map(|i| match i {
        0 => (atoms[1], atoms[0]),
        1 => (atoms[0], atoms[2]),
        _ => (atoms[i], atoms[i + 1]),
    })
}

fn distance(before: [i32; 3], atom: [i32; 3], small: usize) -> Option<[u64; 3]> {
    let size = small_size(small) as i64;
    let axis = |i: usize| i64::from(atom[i]) - i64::from(before[i]) + size / 2;
    let digits = [axis(0), axis(1), axis(2)];
    let fits = digits.iter().all(|digit| (0..size).contains(digit));
    fits.then(|| digits.map(|digit| digit as u64))
}
