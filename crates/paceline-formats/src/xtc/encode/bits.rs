//! Puts numbers into a row of bits.

use crate::xtc::radix::Layout;

/// Bits that one word takes beside up to seven bits before them.
pub(super) const WORD: u32 = 56;

/// Bytes behind the last bit that are overwritten.
pub(super) const SLACK: usize = 8;

/// Fills bytes from the front, the highest bit of each first.
pub(super) struct Bits<'a> {
    bytes: &'a mut [u8],
    /// Whole bytes so far.
    at: usize,
    /// The bits of the byte that has begun, at the top.
    begun: u64,
    /// Their number.
    n: u32,
}

impl<'a> Bits<'a> {
    pub(super) fn new(bytes: &'a mut [u8]) -> Self {
        Bits {
            bytes,
            at: 0,
            begun: 0,
            n: 0,
        }
    }

    /// Put the highest `n` bits of `word`, at most [`WORD`]; all lower ones are 0.
    #[inline(always)]
    pub(super) fn put(&mut self, word: u64, n: u32) {
        let bits = self.begun | word >> self.n;
        self.bytes[self.at..self.at + 8].copy_from_slice(&bits.to_be_bytes());
        self.n += n;
        self.at += self.n as usize / 8;
        self.begun = bits << (self.n & !7);
        self.n &= 7;
    }

    /// Put a number of `n` bits, 1 to 72, from its lowest byte to its highest, which is cut to the
    /// bits that remain.
    #[cold]
    pub(super) fn put_long(&mut self, mut number: u128, mut n: u32) {
        while n > 8 {
            self.put((number as u64) << 56, 8);
            (number, n) = (number >> 8, n - 8);
        }
        self.put((number as u64) << (64 - n), n);
    }

    /// Bytes that hold all bits.
    pub(super) fn len(&self) -> usize {
        self.at + usize::from(self.n > 0)
    }
}

/// Numbers of three digits, of which the last counts most rapidly.
#[derive(Debug, Clone, Copy)]
pub(super) struct Radix {
    pub(super) bits: u32,
    size_y: u64,
    size_z: u64,
    layout: Layout,
}

impl Radix {
    pub(super) const fn new(bits: u32, size_y: u32, size_z: u32) -> Self {
        Radix {
            bits,
            size_y: size_y as u64,
            size_z: size_z as u64,
            layout: Layout::new(if bits > WORD { WORD } else { bits }),
        }
    }

    #[inline(always)]
    pub(super) fn put(&self, digits: [i32; 4], bits: &mut Bits<'_>) {
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
