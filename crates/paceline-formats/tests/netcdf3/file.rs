//! Writer of small Amber NetCDF files of every variant.

use paceline_formats::Fields;

pub const VELOCITY_SCALE: f32 = 20.455;

/// Arrangement of the frames in the file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    Records,
    Arrays,
    Restart,
}

/// Variant of a file.
#[derive(Debug, Clone)]
pub struct File {
    pub version: u8,
    pub kind: Kind,
    pub double: bool,
    pub fields: Fields,
    pub has_time: bool,
    pub has_cell: bool,
    /// True if the scale factor of velocities is f64, and not f32.
    pub scale_in_double: bool,
    pub n_atoms: u64,
    pub n_frames: u64,
}

/// Return all variants that differ in layout.
pub fn variants(n_atoms: u64) -> Vec<File> {
    let mut files = Vec::new();
    for version in [1, 2, 5] {
        for kind in [Kind::Records, Kind::Arrays, Kind::Restart] {
            for bits in 0..32 {
                let file = File {
                    version,
                    kind,
                    double: bits & 1 != 0,
                    fields: Fields::from_bits([1, 2, 3, 7][bits >> 1 & 3]),
                    has_time: bits & 8 != 0,
                    has_cell: bits & 16 != 0,
                    scale_in_double: bits & 9 == 9,
                    n_atoms,
                    n_frames: if kind == Kind::Restart { 1 } else { 3 },
                };
                files.push(file);
            }
        }
    }
    files
}

/// Variable to write. Dimensions are given by their numbers.
struct Variable {
    name: &'static str,
    dimensions: Vec<u64>,
    double: bool,
    units: &'static str,
    scale: Option<bool>,
    n_numbers: u64,
    first: f32,
}

/// Return a number that is unique to this atom, axis and frame of a variable.
pub fn number(first: f32, frame: u64, index: u64) -> f32 {
    first + 0.25 * index as f32 + 0.0625 * frame as f32
}

impl File {
    fn variables(&self) -> Vec<Variable> {
        let variable = |name, inner: &[u64], units, n_numbers, first| Variable {
            name,
            dimensions: match self.kind {
                Kind::Restart => inner.to_vec(),
                _ => [&[0], inner].concat(),
            },
            double: self.double,
            units,
            scale: (name == "velocities").then_some(self.scale_in_double),
            n_numbers,
            first,
        };
        let atoms = 3 * self.n_atoms;
        let mut variables = Vec::new();
        if self.has_time {
            variables.push(variable("time", &[], "picosecond", 1, 100.0));
        }
        if self.fields.positions {
            variables.push(variable("coordinates", &[1, 2], "angstrom", atoms, -7.0));
        }
        if self.has_cell {
            variables.push(variable("cell_lengths", &[2], "angstrom", 3, 40.0));
            variables.push(variable("cell_angles", &[2], "degree", 3, 80.0));
        }
        if self.fields.velocities {
            let units = "angstrom/picosecond";
            variables.push(variable("velocities", &[1, 2], units, atoms, 0.5));
        }
        if self.fields.forces {
            let units = "kilocalorie/mole/angstrom";
            variables.push(variable("forces", &[1, 2], units, atoms, 3.0));
        }
        variables
    }

    pub fn bytes(&self) -> Vec<u8> {
        let variables = self.variables();
        let size = self.head(&variables, 0).len() as u64;
        let mut bytes = self.head(&variables, size);
        match self.kind {
            Kind::Records => {
                for frame in 0..self.n_frames {
                    for variable in &variables {
                        variable.put(&mut bytes, frame);
                    }
                }
            }
            _ => {
                for variable in &variables {
                    for frame in 0..self.n_frames {
                        variable.put(&mut bytes, frame);
                    }
                }
            }
        }
        bytes
    }

    /// Return the header of a file whose data begin at `begin`.
    fn head(&self, variables: &[Variable], mut begin: u64) -> Vec<u8> {
        let mut head = Head {
            bytes: vec![b'C', b'D', b'F', self.version],
            version: self.version,
        };
        let (conventions, frame_len, claimed) = match self.kind {
            Kind::Records => ("AMBER", 0, self.n_frames),
            Kind::Arrays => ("AMBER", self.n_frames, 0),
            Kind::Restart => ("AMBERRESTART", 0, 0),
        };
        head.count(claimed);
        head.list(10, 3);
        for (name, len) in [("frame", frame_len), ("atom", self.n_atoms), ("spatial", 3)] {
            head.text(name);
            head.count(len);
        }
        head.list(12, 1);
        head.text_attribute("Conventions", conventions);
        head.list(11, variables.len() as u64);
        for variable in variables {
            begin += head.variable(variable, begin, self.frames_apart());
        }
        head.bytes
    }

    /// Return the number of frames if each variable is an array over frames.
    fn frames_apart(&self) -> u64 {
        match self.kind {
            Kind::Records => 1,
            _ => self.n_frames,
        }
    }
}

impl Variable {
    fn put(&self, bytes: &mut Vec<u8>, frame: u64) {
        for index in 0..self.n_numbers {
            let number = number(self.first, frame, index);
            match self.double {
                true => bytes.extend(f64::from(number).to_be_bytes()),
                false => bytes.extend(number.to_be_bytes()),
            }
        }
    }
}

struct Head {
    bytes: Vec<u8>,
    version: u8,
}

impl Head {
    fn word(&mut self, value: u32) {
        self.bytes.extend(value.to_be_bytes());
    }

    fn count(&mut self, value: u64) {
        match self.version {
            5 => self.bytes.extend(value.to_be_bytes()),
            _ => self.word(value as u32),
        }
    }

    fn list(&mut self, tag: u32, n: u64) {
        self.word(tag);
        self.count(n);
    }

    fn text(&mut self, text: &str) {
        self.count(text.len() as u64);
        self.bytes.extend(text.as_bytes());
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn text_attribute(&mut self, name: &str, text: &str) {
        self.text(name);
        self.word(2);
        self.text(text);
    }

    /// Describe a variable of `n_frames` frames at `begin`; return its size in bytes.
    fn variable(&mut self, variable: &Variable, begin: u64, n_frames: u64) -> u64 {
        self.text(variable.name);
        self.count(variable.dimensions.len() as u64);
        for &dimension in &variable.dimensions {
            self.count(dimension);
        }
        self.list(12, 1 + u64::from(variable.scale.is_some()));
        self.text_attribute("units", variable.units);
        if let Some(double) = variable.scale {
            self.text("scale_factor");
            self.word(if double { 6 } else { 5 });
            self.count(1);
            match double {
                true => self.bytes.extend(f64::from(VELOCITY_SCALE).to_be_bytes()),
                false => self.bytes.extend(VELOCITY_SCALE.to_be_bytes()),
            }
        }
        self.word(if variable.double { 6 } else { 5 });
        let width = if variable.double { 8 } else { 4 };
        let size = n_frames * variable.n_numbers * width;
        self.count(size);
        match self.version {
            1 => self.word(begin as u32),
            _ => self.bytes.extend(begin.to_be_bytes()),
        }
        size
    }
}
