//! How a variable codes its numbers, and what MDAnalysis makes of them.

/// Coding of a variable's numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Number {
    /// f64, not f32.
    pub double: bool,
    pub scale: Scale,
}

/// The attribute `scale_factor`, by which numbers are multiplied.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Scale {
    None,
    Single(f32),
    Double(f64),
}

impl Number {
    /// Bytes of a number.
    pub fn width(self) -> u64 {
        if self.double { 8 } else { 4 }
    }

    /// The number that `bytes` begin with. An f32 is scaled in f32 where the factor is one too,
    /// and in f64 otherwise: NumPy's rule, so that MDAnalysis's bits come out.
    ///
    /// # Panics
    /// Where there are fewer bytes than [`Number::width`].
    pub fn value(self, bytes: &[u8]) -> f64 {
        if self.double {
            let value = f64::from_be_bytes(first(bytes));
            match self.scale {
                Scale::None => value,
                Scale::Single(factor) => value * f64::from(factor),
                Scale::Double(factor) => value * factor,
            }
        } else {
            let value = f32::from_be_bytes(first(bytes));
            match self.scale {
                Scale::None => f64::from(value),
                Scale::Single(factor) => f64::from(value * factor),
                Scale::Double(factor) => f64::from(value) * factor,
            }
        }
    }
}

impl Scale {
    /// A factor that MDAnalysis takes for 1 is none.
    pub fn single(factor: f32) -> Scale {
        match is_one(f64::from(factor)) {
            true => Scale::None,
            false => Scale::Single(factor),
        }
    }

    pub fn double(factor: f64) -> Scale {
        match is_one(factor) {
            true => Scale::None,
            false => Scale::Double(factor),
        }
    }

    pub fn is_sound(self) -> bool {
        match self {
            Scale::None => true,
            Scale::Single(factor) => factor.is_finite() && Scale::single(factor) == self,
            Scale::Double(factor) => factor.is_finite() && Scale::double(factor) == self,
        }
    }
}

/// Python's `math.isclose(factor, 1)`.
fn is_one(factor: f64) -> bool {
    (factor - 1.0).abs() <= 1e-9 * factor.abs().max(1.0)
}

fn first<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[..N]);
    out
}
