//! Conventions of Amber for trajectories and restart files: names and units of the variables in a
//! NetCDF file.

use super::header::{Attribute, CHAR, DOUBLE, FLOAT, Header, Variable, attribute};
use super::header::{Number, Scale};
use super::layout::{self, Arrangement, Layout, Role, TimesState};
use super::units;
use crate::error::Fault;

/// Return the name and the unit that a variable with this role has in Amber files. The unit is
/// assumed if the file does not state one for the variable.
pub(super) fn convention(role: Role) -> (&'static str, &'static str) {
    match role {
        Role::Positions => ("coordinates", "angstrom"),
        Role::Velocities => ("velocities", "angstrom/picosecond"),
        Role::Forces => ("forces", "kilocalorie/mole/angstrom"),
        Role::Time => ("time", "picosecond"),
        Role::Lengths => ("cell_lengths", "angstrom"),
        Role::Angles => ("cell_angles", "degree"),
    }
}

impl Layout {
    /// Parse the header of a file of `file_size` bytes. `head` contains its first bytes.
    ///
    /// # Errors
    /// [`Fault::Short`] if more bytes of the file are needed. [`Fault::Bad`] if this is not a
    /// NetCDF file. The inner error is a message about a NetCDF file that does not follow Amber's
    /// conventions, or uses unsupported features.
    pub fn parse(head: &[u8], file_size: u64) -> Result<Result<Layout, String>, Fault> {
        let found = Layout::parse_noting(head, file_size)?;
        Ok(found.map(|(layout, _)| layout))
    }

    /// Parse the header as [`Layout::parse`] does. Also return notes on variables that are ignored
    /// because they cannot be read.
    ///
    /// # Errors
    /// As [`Layout::parse`].
    pub fn parse_noting(
        head: &[u8],
        file_size: u64,
    ) -> Result<Result<(Layout, Vec<String>), String>, Fault> {
        let header = Header::parse(head, file_size)?;
        Ok(HeaderReading::new(&header).and_then(|reading| reading.layout(file_size)))
    }
}

/// Variable of each [`Role`].
type Variables<'h> = [Option<&'h Variable<'h>>; Role::ALL.len()];

/// Interpretation of a header by Amber's conventions.
struct HeaderReading<'h> {
    header: &'h Header<'h>,
    n_atoms: u64,
    /// Index of the dimension of the frames; `None` for a restart file, which has none.
    frame: Option<usize>,
}

impl<'h> HeaderReading<'h> {
    fn new(header: &'h Header<'h>) -> Result<Self, String> {
        let is_restart = is_restart(header)?;
        let n_atoms = match header.dimension("atom") {
            Some(n_atoms) if n_atoms > 0 => n_atoms,
            found => return Err(expected("a dimension \"atom\" of at least 1", found)),
        };
        match header.dimension("spatial") {
            Some(3) => {}
            found => return Err(expected("a dimension \"spatial\" of 3", found)),
        }
        let mut dimensions = header.dimensions.iter();
        let frame = dimensions.position(|dimension| dimension.name == b"frame");
        if !is_restart && frame.is_none() {
            return Err(expected("a dimension \"frame\"", None));
        }
        Ok(HeaderReading {
            header,
            n_atoms,
            frame: frame.filter(|_| !is_restart),
        })
    }

    fn layout(&self, file_size: u64) -> Result<(Layout, Vec<String>), String> {
        let (found, left_out) = self.variables(file_size)?;
        let Some(first) = found[..3].iter().flatten().next() else {
            let expected = "expected the variable \"coordinates\", \"velocities\" or \"forces\"";
            return Err(format!("{expected}, found none of them"));
        };
        if found[Role::Lengths as usize].is_some() != found[Role::Angles as usize].is_some() {
            let expected = "expected both \"cell_lengths\" and \"cell_angles\"";
            return Err(format!("{expected}, found one of them"));
        }
        self.check_records()?;
        let time = found[Role::Time as usize];
        let place = match time.is_some_and(|time| first.in_records && !time.in_records) {
            true => one_frame(&found, file_size),
            false => self.place(first, &found, file_size),
        };
        let mut variables = [None; Role::ALL.len()];
        for role in Role::ALL {
            if let Some(found) = found[role as usize] {
                variables[role as usize] = Some(place.part(role, found)?);
            }
        }
        let layout = Layout {
            n_atoms: self.n_atoms,
            start: place.start,
            size: place.size,
            frames: place.frames,
            lost_from: None,
            variables,
            times: match (time, self.header.variable(convention(Role::Time).0)) {
                (Some(_), _) => TimesState::Stated,
                (None, None) => TimesState::Absent,
                (None, Some(_)) => TimesState::Unreadable,
            },
        };
        let is_empty = match place.frames {
            // This check precedes `is_sound`, since some writers define the offsets of variables
            // only when they write the first record.
            Arrangement::Records { .. } => file_size <= place.start,
            Arrangement::Arrays { n, .. } => n == 0,
        };
        if is_empty {
            return Err("expected at least one complete frame, found none".into());
        }
        if !layout.is_sound() {
            return Err("its variables overlap or lie outside of their record".into());
        }
        Ok((layout, left_out))
    }

    /// Return the variables to read, and the reasons why others are ignored.
    ///
    /// A file with unreadable times is read without times. Unreadable velocities or forces are
    /// ignored if the file has other data of its atoms.
    fn variables(&self, file_size: u64) -> Result<(Variables<'h>, Vec<String>), String> {
        let (mut found, mut left_out) = ([None; Role::ALL.len()], Vec::new());
        for role in Role::ALL {
            let readable = self.variable(role, file_size).and_then(|variable| {
                variable.map_or(Ok(()), |variable| Coding::of(role, variable).map(drop))?;
                Ok(variable)
            });
            let others = &found[..role as usize];
            let is_spare = match role {
                Role::Velocities | Role::Forces => others.iter().any(Option::is_some),
                Role::Time => true,
                Role::Positions | Role::Lengths | Role::Angles => false,
            };
            match readable {
                Ok(variable) => found[role as usize] = variable,
                Err(why) if is_spare => {
                    let (name, _) = convention(role);
                    left_out.push(format!("\"{name}\" cannot be read, and is left out: {why}"));
                }
                Err(why) => return Err(why),
            }
        }
        Ok((found, left_out))
    }

    /// Refuse a header that counts records but has no variable in records, because a length of a
    /// dimension must then be damaged.
    fn check_records(&self) -> Result<(), String> {
        let has_any = self.header.variables.iter().any(|other| other.in_records);
        match self.header.n_records {
            Some(n @ 1..) if !has_any => {
                let expected = "expected a variable in the records, of which the header counts";
                Err(format!("{expected} {n}, found none"))
            }
            _ => Ok(()),
        }
    }

    /// Return the variable with this role, if the file has it. Refuse unsupported dimensions.
    fn variable(&self, role: Role, file_size: u64) -> Result<Option<&'h Variable<'h>>, String> {
        let (name, _) = convention(role);
        let Some(variable) = self.header.variable(name) else {
            return Ok(None);
        };
        if !self.has_shape(variable, role) && !self.is_time_of_one_frame(variable, role, file_size)
        {
            let mut expected: Vec<&str> = self.frame.map(|_| "frame").into_iter().collect();
            let inner: &[&str] = match role {
                Role::Positions | Role::Velocities | Role::Forces => &["atom", "spatial"],
                Role::Lengths => &["cell_spatial"],
                Role::Angles => &["cell_angular"],
                Role::Time => &[],
            };
            expected.extend(inner);
            return Err(format!(
                "expected the dimensions ({}) of \"{name}\", found ({})",
                expected.join(", "),
                self.named(&variable.dimensions)
            ));
        }
        Ok(Some(variable))
    }

    fn has_shape(&self, variable: &Variable<'_>, role: Role) -> bool {
        let inner = match (self.frame, variable.dimensions.split_first()) {
            (None, _) => &variable.dimensions[..],
            (Some(frame), Some((&first, inner))) if first == frame => inner,
            _ => return false,
        };
        let len = |&number: &usize| self.header.dimensions[number].len;
        let lens: Vec<u64> = inner.iter().map(len).collect();
        match role {
            Role::Positions | Role::Velocities | Role::Forces => lens == [self.n_atoms, 3],
            Role::Lengths | Role::Angles => lens == [3],
            // In a restart file the time may have its own dimension.
            Role::Time => lens.is_empty() || (self.frame.is_none() && lens == [1]),
        }
    }

    /// Return true if `time` is a variable of times with its own dimension of length 1, in a file
    /// with one frame.
    fn is_time_of_one_frame(&self, time: &Variable<'_>, role: Role, file_size: u64) -> bool {
        let lens = |variable: &Variable<'_>| -> Vec<u64> {
            let len = |&number: &usize| self.header.dimensions[number].len;
            variable.dimensions.iter().map(len).collect()
        };
        if role != Role::Time || time.in_records || lens(time) != [1] {
            return false;
        }
        let Some(frame) = self.frame.map(|frame| self.header.dimensions[frame].len) else {
            return false;
        };
        let variables = self.header.variables.iter();
        let begins = variables.filter(|other| other.in_records);
        let start = begins.map(|other| other.begin).min().unwrap_or(0);
        let n_records = file_size.saturating_sub(start) / self.header.record_size.max(1);
        let is_one_record = n_records == 1 && self.header.n_records.is_none_or(|n| n <= 1);
        frame == 1 || (frame == 0 && is_one_record)
    }

    fn named(&self, dimensions: &[usize]) -> String {
        let name = |&number: &usize| {
            let dimension = &self.header.dimensions[number];
            let name = dimension.name.escape_ascii();
            match dimension.len {
                0 => name.to_string(),
                len => format!("{name} {len}"),
            }
        };
        let names: Vec<String> = dimensions.iter().map(name).collect();
        names.join(", ")
    }

    /// Return the location of the frames in the file. Frames are records if the variable `first` is
    /// in records; otherwise they are parts of arrays, which contain one variable for all frames.
    fn place(
        &self,
        first: &Variable<'_>,
        found: &[Option<&Variable<'_>>],
        file_size: u64,
    ) -> Place {
        if first.in_records {
            let mut records = self.header.variables.iter();
            let begins = records.by_ref().filter(|other| other.in_records);
            return Place {
                start: begins.map(|other| other.begin).min().unwrap_or(0),
                size: self.header.record_size,
                frames: Arrangement::Records {
                    n_claimed: self.header.n_records,
                },
            };
        }
        let frame = self.frame.map(|frame| &self.header.dimensions[frame]);
        let n_claimed = frame.map_or(1, |frame| frame.len);
        let found = || found.iter().flatten();
        let ends = found().map(|variable| variable.begin.saturating_add(variable.size));
        let start = found().map(|variable| variable.begin).min().unwrap_or(0);
        let end = ends.max().unwrap_or(0).min(file_size);
        let n_present = found().map(|variable| {
            let present = file_size.saturating_sub(variable.begin);
            present / (variable.size / n_claimed.max(1)).max(1)
        });
        Place {
            start,
            size: end.saturating_sub(start),
            frames: Arrangement::Arrays {
                n: n_present.min().unwrap_or(0).min(n_claimed),
                n_claimed,
            },
        }
    }
}

/// Location of the frames of a file.
struct Place {
    start: u64,
    size: u64,
    frames: Arrangement,
}

impl Place {
    /// Return the location of a variable in a frame, and its encoding.
    fn part(&self, role: Role, variable: &Variable<'_>) -> Result<layout::Variable, String> {
        let Coding { number, factor } = Coding::of(role, variable)?;
        Ok(layout::Variable {
            // The offset of the variable is at least `start`, the smallest of all offsets.
            at: variable.begin.saturating_sub(self.start),
            step: match self.frames {
                Arrangement::Records { .. } => 0,
                Arrangement::Arrays { n_claimed, .. } => variable.size / n_claimed.max(1),
            },
            number,
            factor,
        })
    }
}

/// Encoding of the numbers of a variable.
struct Coding {
    number: Number,
    factor: f64,
}

impl Coding {
    /// Determine the encoding of a variable. The error is the reason why it is unsupported.
    fn of(role: Role, variable: &Variable<'_>) -> Result<Coding, String> {
        let name = variable.name.escape_ascii();
        let double = match variable.kind {
            FLOAT => false,
            DOUBLE => true,
            kind => {
                return Err(format!(
                    "expected \"{name}\" as float or double, found type {kind}"
                ));
            }
        };
        let Some(scale) = scale(variable) else {
            return Err(format!(
                "expected one finite float or double as scale_factor of \"{name}\", found another"
            ));
        };
        Ok(Coding {
            number: Number { double, scale },
            factor: factor(role, variable)?,
        })
    }
}

/// Return the location of the only frame in a file in which the time is not in a record, but other
/// variables are.
fn one_frame(found: &[Option<&Variable<'_>>], file_size: u64) -> Place {
    let found = || found.iter().flatten();
    let ends = found().map(|variable| variable.begin.saturating_add(variable.size));
    let start = found().map(|variable| variable.begin).min().unwrap_or(0);
    Place {
        start,
        size: ends.max().unwrap_or(0).min(file_size).saturating_sub(start),
        frames: Arrangement::Arrays { n: 1, n_claimed: 1 },
    }
}

/// Return true if this is a restart file, and not a trajectory.
fn is_restart(header: &Header<'_>) -> Result<bool, String> {
    let conventions = attribute(&header.attributes, "Conventions").map(text);
    let mut tokens = conventions
        .unwrap_or_default()
        .split(|byte| matches!(byte, b',' | b' '));
    match tokens.find(|token| [&b"AMBER"[..], b"AMBERRESTART"].contains(token)) {
        Some(token) => Ok(token == b"AMBERRESTART"),
        None => Err(format!(
            "expected a NetCDF file whose attribute Conventions names AMBER or AMBERRESTART, found {}",
            match conventions {
                Some(text) => format!("\"{}\"", text.escape_ascii()),
                None => "none".into(),
            }
        )),
    }
}

/// Return the factor that converts the numbers of a variable to paceline's unit. The error is the
/// reason why there is no factor.
fn factor(role: Role, variable: &Variable<'_>) -> Result<f64, String> {
    let (name, ambers) = convention(role);
    let units = attribute(&variable.attributes, "units");
    let stated = units.map_or(Some(ambers), |units| {
        str::from_utf8(text(units))
            .ok()
            .filter(|_| units.kind == CHAR)
    });
    let factor = stated.and_then(|stated| units::factor(stated, ambers));
    factor.ok_or_else(|| {
        let found = units.map(text).unwrap_or_default().escape_ascii();
        format!("expected \"{name}\" in units of {ambers}, found \"{found}\"")
    })
}

fn expected(what: &str, found: Option<u64>) -> String {
    match found {
        Some(found) => format!("expected {what}, found {found}"),
        None => format!("expected {what}, found none"),
    }
}

/// Return the text of an attribute without the NULs and blanks that some writers append.
fn text<'a>(attribute: &Attribute<'a>) -> &'a [u8] {
    let is_end = |byte: &u8| matches!(byte, 0 | b' ');
    let end = attribute.values.iter().rposition(|byte| !is_end(byte));
    &attribute.values[..end.map_or(0, |last| last + 1)]
}

/// Return the scale factor of a variable; `None` if it is not a single finite number.
fn scale(variable: &Variable<'_>) -> Option<Scale> {
    let Some(factor) = attribute(&variable.attributes, "scale_factor") else {
        return Some(Scale::None);
    };
    let scale = match factor.kind {
        FLOAT => Scale::single(f32::from_be_bytes(factor.values.try_into().ok()?)),
        DOUBLE => Scale::double(f64::from_be_bytes(factor.values.try_into().ok()?)),
        _ => return None,
    };
    scale.is_sound().then_some(scale)
}
