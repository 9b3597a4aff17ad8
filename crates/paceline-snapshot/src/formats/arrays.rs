//! Numbers of an atom in files of arrays: H5MD, NetCDF, DCD.

use super::finite::all_finite;
use crate::{Atoms, Batch, Records, Vectors};
use paceline_formats::Fields;

/// How a number is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Float {
    F4 { big_endian: bool },
    F8 { big_endian: bool },
}

impl Float {
    /// By NumPy's name for it: `<f4`, `>f4`, `<f8`, `>f8`.
    pub fn from_name(name: &str) -> Option<Self> {
        let big_endian = name.starts_with('>');
        match name {
            "<f4" | ">f4" => Some(Float::F4 { big_endian }),
            "<f8" | ">f8" => Some(Float::F8 { big_endian }),
            _ => None,
        }
    }

    fn size(self) -> usize {
        match self {
            Float::F4 { .. } => 4,
            Float::F8 { .. } => 8,
        }
    }

    /// Whether a finite number stays finite.
    fn holds(self, value: f64) -> bool {
        match self {
            Float::F4 { .. } => (value as f32).is_finite(),
            Float::F8 { .. } => value.is_finite(),
        }
    }

    fn put(self, value: f64, bytes: &mut [u8]) {
        match self {
            Float::F4 { big_endian: false } => {
                bytes.copy_from_slice(&(value as f32).to_le_bytes());
            }
            Float::F4 { big_endian: true } => bytes.copy_from_slice(&(value as f32).to_be_bytes()),
            Float::F8 { big_endian: false } => bytes.copy_from_slice(&value.to_le_bytes()),
            Float::F8 { big_endian: true } => bytes.copy_from_slice(&value.to_be_bytes()),
        }
    }
}

/// Vectors as arrays: one section of vectors each, or one of each coordinate.
#[derive(Debug, Clone)]
pub struct Arrays {
    fields: Fields,
    float: Float,
    /// What positions, velocities and forces are multiplied by.
    factors: [f64; 3],
    /// Which vector, and which of its coordinates where it is not all three.
    contents: Vec<(usize, Option<usize>)>,
    sizes: Vec<usize>,
}

impl Arrays {
    /// One section for each of `fields`.
    pub fn new(fields: Fields, float: Float, factors: [f64; 3]) -> Self {
        let vectors = [fields.positions, fields.velocities, fields.forces];
        let written = (0..3).filter(|&vector| vectors[vector]);
        let contents: Vec<_> = written.map(|vector| (vector, None)).collect();
        Arrays {
            fields,
            float,
            factors,
            sizes: vec![3 * float.size(); contents.len()],
            contents,
        }
    }

    /// All x, all y, all z of positions, as DCD has them.
    pub fn coordinates(float: Float) -> Self {
        Arrays {
            fields: Fields::POSITIONS,
            float,
            factors: [1.0; 3],
            contents: (0..3).map(|axis| (0, Some(axis))).collect(),
            sizes: vec![float.size(); 3],
        }
    }

    /// Refuse a vector of which a number is not finite in the file.
    fn check_vector(&self, found: [f64; 3], vector: usize, one: &str) -> Result<(), String> {
        for value in found {
            if !value.is_finite() {
                return Err(format!("expected a finite {one}, found {value}"));
            }
            let stored = value * self.factors[vector];
            if !self.float.holds(stored) {
                return Err(format!(
                    "expected a {one} that fits in {} bytes, found {value:?}",
                    self.float.size()
                ));
            }
        }
        Ok(())
    }

    /// Whether all numbers surely stay finite.
    fn fit(&self, vectors: &Vectors<'_>, vector: usize) -> bool {
        let same = matches!(vectors, Vectors::F32(_)) || self.float.size() == 8;
        same && self.factors[vector].abs() <= 1.0 && all_finite(vectors)
    }
}

impl Records for Arrays {
    fn sections(&self) -> &[usize] {
        &self.sizes
    }

    fn fields(&self) -> Fields {
        self.fields
    }

    fn has_names(&self) -> bool {
        false
    }

    fn has_masses(&self) -> bool {
        false
    }

    fn check(&self, atoms: &Atoms<'_>) -> Result<(), (usize, String)> {
        let written = [
            self.fields.positions,
            self.fields.velocities,
            self.fields.forces,
        ];
        for (k, (one, vectors)) in atoms.vectors().into_iter().enumerate() {
            let Some(vectors) = vectors.filter(|_| written[k]) else {
                continue;
            };
            if self.fit(&vectors, k) {
                continue;
            }
            for atom in 0..atoms.len() {
                self.check_vector(vectors.get(atom), k, one)
                    .map_err(|reason| (atom, reason))?;
            }
        }
        Ok(())
    }

    fn put(&self, section: usize, batch: &Batch<'_>, bytes: &mut [u8]) {
        let (vector, axis) = self.contents[section];
        let get = match vector {
            0 => Batch::position,
            1 => Batch::velocity,
            _ => Batch::force,
        };
        let axes = axis.map_or(0..3, |axis| axis..axis + 1);
        let factor = self.factors[vector];
        let numbers = bytes.chunks_exact_mut(self.sizes[section]);
        for (k, bytes) in numbers.enumerate() {
            let values = get(batch, k);
            let values = axes.clone().map(|axis| values[axis] * factor);
            for (value, bytes) in values.zip(bytes.chunks_exact_mut(self.float.size())) {
                self.float.put(value, bytes);
            }
        }
    }
}
