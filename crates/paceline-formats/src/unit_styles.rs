//! Unit styles of LAMMPS (`units real` in its input), and conversion factors.

// Values are from CODATA 2010, as in MDAnalysis.

/// 1 N in kJ/(mol·Å).
const NEWTON: f64 = 6.02214129e10;
/// 1 eV in kJ/mol.
const ELECTRONVOLT: f64 = 6.02214129e20 * 1.602176565e-19;
/// 1 bohr in Å.
const BOHR: f64 = 0.52917721092;
/// 1 hartree in kJ/mol.
const HARTREE: f64 = 27.21138505 * ELECTRONVOLT;

/// Units of a style.
struct Style {
    name: &'static str,
    /// Factors that convert length to Å, velocity to Å/ps, and force to kJ/(mol·Å).
    factors: [f64; 3],
    /// Unit of time, ps.
    time: f64,
    /// Default time step of LAMMPS, in the unit of time.
    step: f64,
}

const fn style(name: &'static str, factors: [f64; 3], time: f64, step: f64) -> Style {
    Style {
        name,
        factors,
        time,
        step,
    }
}

/// All styles (LAMMPS's manual, "units command").
///
/// Velocities of `electron` are in bohr/fs, because LAMMPS integrates them with its time in fs. The
/// manual of LAMMPS states another unit of time, 1.03275 fs.
const STYLES: [Style; 8] = [
    style("lj", [1.0; 3], 1.0, 0.005),
    style("real", [1.0, 1e3, 4.184], 1e-3, 1.0),
    style("metal", [1.0, 1.0, ELECTRONVOLT], 1.0, 0.001),
    style("si", [1e10, 1e-2, NEWTON], 1e12, 1e-8),
    style("cgs", [1e8, 1e-4, 1e-5 * NEWTON], 1e12, 1e-8),
    style("electron", [BOHR, 1e3 * BOHR, HARTREE / BOHR], 1e-3, 0.001),
    style("micro", [1e4, 1e-2, 1e-9 * NEWTON], 1e6, 2.0),
    style("nano", [10.0, 1e-2, 1e-12 * NEWTON], 1e3, 0.00045),
];

/// Unit style.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Units(u8);

impl Units {
    /// Warning about numbers without units.
    pub const REDUCED: &str = "numbers have no unit (units lj): they are not converted, but \
                               labelled Å, ps, Å/ps and kJ/(mol·Å)";

    /// Reason why the unit of lengths is unknown.
    pub const UNKNOWN: &str = "the file does not state the units of the simulation";

    /// Return the unit style with this name in LAMMPS's command `units`.
    pub fn named(name: &[u8]) -> Option<Units> {
        let place = STYLES
            .iter()
            .position(|style| style.name.as_bytes() == name);
        place.and_then(|place| Units::from_code(place as u8))
    }

    /// Return the message for an unknown unit style.
    pub fn unknown(name: &str) -> String {
        let expected = Units::names();
        format!("units= (--units) must be one of {expected}, not {name:?}")
    }

    /// Return the unit style for a result of [`Units::code`].
    pub fn from_code(code: u8) -> Option<Units> {
        STYLES.get(usize::from(code)).map(|_| Units(code))
    }

    /// Return the number of the unit style, for saved layouts.
    pub fn code(self) -> u8 {
        self.0
    }

    fn style(self) -> &'static Style {
        &STYLES[usize::from(self.0)]
    }

    /// Return the name of the unit style in LAMMPS's command `units`.
    pub fn name(self) -> &'static str {
        self.style().name
    }

    /// True for reduced units. Their numbers are not converted.
    pub fn is_reduced(self) -> bool {
        self.name() == "lj"
    }

    /// Return the factors that convert lengths, velocities and forces to Å, Å/ps and kJ/(mol·Å).
    pub fn factors(self) -> [f64; 3] {
        self.style().factors
    }

    /// Return the unit of time, ps; 1 for reduced units.
    pub fn time(self) -> f64 {
        self.style().time
    }

    /// Return the default time step of LAMMPS, in its unit of time.
    pub fn usual_step(self) -> f64 {
        self.style().step
    }

    /// Return the name of the unit of time.
    pub fn name_of_time(self) -> &'static str {
        match self.name() {
            "lj" => "\u{3c4}",
            "real" | "electron" => "fs",
            "metal" => "ps",
            "micro" => "\u{b5}s",
            "nano" => "ns",
            _ => "s",
        }
    }

    /// Return the names of all unit styles.
    pub fn names() -> String {
        STYLES.each_ref().map(|style| style.name).join(", ")
    }
}
