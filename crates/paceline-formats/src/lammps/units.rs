//! LAMMPS's styles of units (`units real` in its input), and what converts their numbers.

/// kJ/(mol·Å) in a newton, and kJ/mol in an electronvolt: CODATA 2010, as MDAnalysis has them.
const NEWTON: f64 = 6.02214129e10;
const ELECTRONVOLT: f64 = 6.02214129e20 * 1.602176565e-19;
/// Å in a bohr, and kJ/mol in a hartree: CODATA 2010.
const BOHR: f64 = 0.52917721092;
const HARTREE: f64 = 27.21138505 * ELECTRONVOLT;

/// Each style, with the Å of its length, the Å/ps of its velocity and the kJ/(mol·Å) of its force.
///
/// Velocities of `electron` are those that LAMMPS integrates over its time, fs: bohr/fs. Its manual
/// names another unit of time, of 1.03275 fs.
const STYLES: [(&str, [f64; 3]); 8] = [
    ("lj", [1.0; 3]),
    ("real", [1.0, 1e3, 4.184]),
    ("metal", [1.0, 1.0, ELECTRONVOLT]),
    ("si", [1e10, 1e-2, NEWTON]),
    ("cgs", [1e8, 1e-4, 1e-5 * NEWTON]),
    ("electron", [BOHR, 1e3 * BOHR, HARTREE / BOHR]),
    ("micro", [1e4, 1e-2, 1e-9 * NEWTON]),
    ("nano", [10.0, 1e-2, 1e-12 * NEWTON]),
];

/// A style of units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Units(u8);

impl Units {
    pub fn named(name: &[u8]) -> Option<Units> {
        let place = STYLES
            .iter()
            .position(|(style, _)| style.as_bytes() == name);
        place.and_then(|place| Units::from_code(place as u8))
    }

    /// The style of a number that [`Units::code`] gave.
    pub fn from_code(code: u8) -> Option<Units> {
        STYLES.get(usize::from(code)).map(|_| Units(code))
    }

    pub fn code(self) -> u8 {
        self.0
    }

    pub fn name(self) -> &'static str {
        STYLES[usize::from(self.0)].0
    }

    /// True for numbers without units, which stay as they are.
    pub fn is_reduced(self) -> bool {
        self.name() == "lj"
    }

    /// Factors of lengths, velocities and forces: to Å, Å/ps and kJ/(mol·Å).
    pub fn factors(self) -> [f64; 3] {
        STYLES[usize::from(self.0)].1
    }

    /// Names of all styles.
    pub fn names() -> String {
        STYLES.map(|(style, _)| style).join(", ")
    }
}
