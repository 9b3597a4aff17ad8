//! Numbers that are hard to format, and many random numbers.

/// Deterministic random generator (splitmix64).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// Return a number from -1 to 1.
    pub fn unit(&mut self) -> f64 {
        (self.next() as i64) as f64 / i64::MAX as f64
    }
}

/// Return about `n` numbers of every kind.
pub fn all(n: usize) -> Vec<f64> {
    let mut random = Random(1);
    let mut values = special();
    for _ in 0..n / 4 {
        values.push(f64::from_bits(random.next()));
        // Numbers as in simulations, in double and single precision.
        let power = 10f64.powi(random.below(30) as i32 - 18);
        values.push(random.unit() * power);
        values.push(f64::from((random.unit() * power) as f32));
        values.push(tie(&mut random));
    }
    values
}

fn special() -> Vec<f64> {
    let mut values = vec![
        0.0,
        f64::MIN_POSITIVE,
        f64::MAX,
        f64::INFINITY,
        f64::NAN,
        5e-324,
    ];
    let mut around = |value: f64| values.extend([value.next_down(), value, value.next_up()]);
    for power in -320..=308 {
        let ten: f64 = format!("1e{power}").parse().unwrap();
        around(ten);
        // Numbers that round up to the next power if they are written with ten digits, eight
        // digits, or six or ten decimals.
        around(ten * 9.999_999_999_5);
        around(ten * 9.999_999_949_999_99);
        around(ten * 9.999_999_5);
    }
    for power in -1074..=1023 {
        around(2f64.powi(power));
    }
    for (width, decimals) in [(20, 10), (12, 6), (20, 6)] {
        around(10f64.powi(width - decimals - 1));
        around(10f64.powi(width - decimals - 2));
    }
    let negative: Vec<f64> = values.iter().map(|value| -value).collect();
    values.extend(negative);
    values
}

/// Return a number exactly halfway between two numbers of ten digits, or of six or ten decimals.
fn tie(random: &mut Random) -> f64 {
    let halves = 1 + random.below(14);
    let odd = (random.next() >> (10 + random.below(30))) | 1;
    (odd as f64 / 2f64.powi(halves as i32)) * if random.below(2) == 0 { 1.0 } else { -1.0 }
}
