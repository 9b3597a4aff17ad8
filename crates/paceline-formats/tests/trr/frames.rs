//! TRR frames, written directly by the description of the format.

use paceline_formats::Fields;

/// Variant of a frame.
#[derive(Debug, Clone, Copy)]
pub struct Variant {
    pub n_atoms: usize,
    /// True for f64.
    pub double: bool,
    pub fields: Fields,
    pub cell: bool,
    /// True if the frame contains virial and pressure.
    pub tensors: bool,
    /// Sizes of the blocks that only old programs wrote (ir, e, top, sym), bytes.
    pub others: [usize; 4],
}

impl Variant {
    pub fn new(n_atoms: usize, double: bool, fields: u8) -> Variant {
        Variant {
            n_atoms,
            double,
            fields: Fields::from_bits(fields),
            cell: true,
            tensors: false,
            others: [0; 4],
        }
    }

    /// Return every combination of the content of a frame.
    pub fn all(n_atoms: usize) -> Vec<Variant> {
        let mut all = Vec::new();
        for bits in 1..64 {
            let variant = Variant {
                cell: bits & 8 != 0,
                tensors: bits & 16 != 0,
                ..Variant::new(n_atoms, bits & 32 != 0, bits & 7)
            };
            // Without any of these blocks, the size of a number is undefined.
            if bits & 15 != 0 {
                all.push(variant);
            }
        }
        all
    }

    fn width(&self) -> usize {
        if self.double { 8 } else { 4 }
    }

    /// Return the size of each block: ir, e, box, vir, pres, top, sym, x, v, f.
    fn sizes(&self) -> [usize; 10] {
        let [ir, e, top, sym] = self.others;
        let cell = |there| if there { 9 * self.width() } else { 0 };
        let vectors = |there| {
            if there {
                3 * self.n_atoms * self.width()
            } else {
                0
            }
        };
        let (held, tensor) = (self.fields, cell(self.tensors));
        [
            ir,
            e,
            cell(self.cell),
            tensor,
            tensor,
            top,
            sym,
            vectors(held.positions),
            vectors(held.velocities),
            vectors(held.forces),
        ]
    }

    /// Return frame `number`, with step 10 × number.
    pub fn bytes(&self, number: i32) -> Vec<u8> {
        let mut bytes = Vec::new();
        for integer in [1993, 13, 12] {
            bytes.extend(i32::to_be_bytes(integer));
        }
        bytes.extend(b"GMX_trn_file");
        let sizes = self.sizes();
        for size in sizes {
            bytes.extend((size as i32).to_be_bytes());
        }
        for integer in [self.n_atoms as i32, 10 * number, 0] {
            bytes.extend(integer.to_be_bytes());
        }
        self.push(&mut bytes, &[time(number), 0.5]);
        for (block, size) in sizes.into_iter().enumerate() {
            match block {
                2 if self.cell => self.push(&mut bytes, &cell()),
                7.. => {
                    let numbers = 0..size / self.width();
                    let values: Vec<f64> = numbers.map(|i| value(block - 7, i, number)).collect();
                    self.push(&mut bytes, &values);
                }
                _ => bytes.extend(vec![0xa5; size]),
            }
        }
        bytes
    }

    fn push(&self, bytes: &mut Vec<u8>, reals: &[f64]) {
        for &real in reals {
            match self.double {
                true => bytes.extend(real.to_be_bytes()),
                false => bytes.extend((real as f32).to_be_bytes()),
            }
        }
    }
}

/// Return the time of a frame, ps.
pub fn time(number: i32) -> f64 {
    f64::from(number) / 10.0 + 0.1
}

/// Return box vectors, nm: lengths 3, 4 and 5, at right angles.
fn cell() -> [f64; 9] {
    [3.0, 0.0, 0.0, 0.0, 4.0, 0.0, 0.0, 0.0, 5.0]
}

/// Return number `i` of a field. No f32 equals it.
pub fn value(field: usize, i: usize, number: i32) -> f64 {
    (field as f64 + 1.1) * (i as f64 - 7.3) + f64::from(number) / 3.0
}
