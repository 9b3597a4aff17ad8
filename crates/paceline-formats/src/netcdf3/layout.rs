//! Offsets of the numbers of a frame, and their encoding.

use super::FILL;
use super::header::{Number, Scale};
use crate::Fields;
use crate::format_interface::Clock;
use crate::frame_codec::possible_time;

/// Layout of one Amber NetCDF file: all data that a worker needs to find and decode any frame.
///
/// Each frame has an extent: a byte range in which each variable has an offset. If frames are
/// records, the extent is the record. Otherwise each variable is an array over all frames; the
/// extent then contains all variables, and is the same for all frames.
#[derive(Debug, Clone, PartialEq)]
pub struct Layout {
    pub(super) n_atoms: u64,
    /// Offset of the first extent in the file.
    pub(super) start: u64,
    /// Size of an extent, bytes.
    pub(super) size: u64,
    pub(super) frames: Arrangement,
    /// First frame that may be wrong: bytes were lost or inserted in it or in a later frame.
    pub(super) lost_from: Option<u64>,
    /// Variable of each [`Role`].
    pub(super) variables: [Option<Variable>; Role::ALL.len()],
    pub(super) times: TimesState,
}

/// State of the times in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TimesState {
    Stated,
    Absent,
    /// Times are in unsupported units or types.
    Unreadable,
    /// There is a variable for times, but it was never written.
    Unwritten,
}

impl TimesState {
    const ALL: [TimesState; 4] = [
        TimesState::Stated,
        TimesState::Absent,
        TimesState::Unreadable,
        TimesState::Unwritten,
    ];
}

/// Arrangement of the frames in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrangement {
    /// Consecutive records. The header states their number, or leaves it open.
    Records {
        /// Number of frames according to the header; `None` if the header leaves it open.
        n_claimed: Option<u64>,
    },
    /// Each variable is an array over all frames. The file contains `n` complete frames, at least
    /// one.
    Arrays {
        /// Number of complete frames.
        n: u64,
        /// Number of frames according to the header.
        n_claimed: u64,
    },
}

/// Role of a variable: the kind of its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Positions,
    Velocities,
    Forces,
    Time,
    Lengths,
    Angles,
}

/// Location and encoding of a variable that is read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Variable {
    /// Offset of the variable's data for the first frame, from the beginning of the extent, bytes.
    pub at: u64,
    /// Distance between the variable's data of consecutive frames within the extent, bytes; 0 if
    /// frames are records.
    pub step: u64,
    pub number: Number,
    /// Factor that converts the variable's unit to paceline's unit.
    pub factor: f64,
}

impl Layout {
    /// Number of atoms in a frame.
    pub fn n_atoms(&self) -> usize {
        self.n_atoms as usize
    }

    /// Return the offset of the extent of the first frame.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Return the size of the extent of a frame, bytes.
    pub fn frame_size(&self) -> u64 {
        self.size
    }

    /// Arrangement of the frames in the file.
    pub fn arrangement(&self) -> Arrangement {
        self.frames
    }

    /// Return the fields that frames contain.
    pub fn fields(&self) -> Fields {
        Fields {
            positions: self.variable(Role::Positions).is_some(),
            velocities: self.variable(Role::Velocities).is_some(),
            forces: self.variable(Role::Forces).is_some(),
        }
    }

    /// Return true if a frame may be wrong, because bytes may have been lost or inserted before its
    /// end.
    pub fn is_lost(&self, frame: u64) -> bool {
        self.lost_from.is_some_and(|first| frame >= first)
    }

    pub(super) fn variable(&self, role: Role) -> Option<Variable> {
        self.variables[role as usize]
    }

    /// Return the offset of the first frame's time in the file, the size of a time, and the number
    /// of bytes from one time to the next; `None` if the file contains no times.
    pub fn times_at(&self) -> Option<(u64, u64, u64)> {
        let time = self.variable(Role::Time)?;
        let step = match self.frames {
            Arrangement::Records { .. } => self.size,
            Arrangement::Arrays { .. } => time.step,
        };
        Some((self.start + time.at, time.number.width(), step))
    }

    /// Return the time of a frame, ps, from the bytes at [`Layout::times_at`]; NaN if it is
    /// impossible. Without times, frames are 1 ps apart, as in MDAnalysis.
    pub fn time(&self, frame: u64, bytes: &[u8]) -> f64 {
        if self.is_lost(frame) {
            return f64::NAN;
        }
        match self.variable(Role::Time) {
            Some(time) => possible_time(time.number.value(bytes) * time.factor),
            None => frame as f64,
        }
    }

    /// Return the time between frames, 1 ps, if the file contains no times; else `None`.
    pub fn dt(&self) -> Option<f64> {
        match self.variable(Role::Time) {
            Some(_) => None,
            None => Some(1.0),
        }
    }

    /// Return whether the times are known, and if not, the reason.
    pub fn clock(&self) -> Clock {
        const COUNTED: &str = "its frames count as 1 ps apart";
        Clock::Counted(match self.times {
            TimesState::Stated => return Clock::Known,
            TimesState::Absent => format!("the file contains no times; {COUNTED}"),
            TimesState::Unreadable => format!("those of the file cannot be read; {COUNTED}"),
            TimesState::Unwritten => {
                format!("the file has a variable for times, but no time was written; {COUNTED}")
            }
        })
    }

    /// Return the layout without times, for a file in which they were never written.
    pub(super) fn without_times(mut self) -> Layout {
        self.variables[Role::Time as usize] = None;
        self.times = TimesState::Unwritten;
        self
    }

    /// Return the frame number as the step number, since the format has no step numbers.
    pub fn step(&self, frame: u64) -> i64 {
        i64::try_from(frame).unwrap_or(i64::MAX)
    }

    /// Serialise the layout. [`Layout::from_bytes`] of the same version of this crate can parse it.
    pub fn to_bytes(&self) -> Vec<u8> {
        let (in_arrays, n, n_claimed) = match self.frames {
            Arrangement::Records { n_claimed } => (false, 0, n_claimed),
            Arrangement::Arrays { n, n_claimed } => (true, n, Some(n_claimed)),
        };
        let flags = [in_arrays, n_claimed.is_some(), self.lost_from.is_some()];
        let flags: u8 = (0..3).map(|bit| u8::from(flags[bit]) << bit).sum();
        let mut bytes = vec![flags | (self.times as u8) << 3];
        for number in [
            self.n_atoms,
            self.start,
            self.size,
            n,
            n_claimed.unwrap_or(0),
            self.lost_from.unwrap_or(0),
        ] {
            bytes.extend(number.to_le_bytes());
        }
        for variable in self.variables {
            match variable {
                None => bytes.push(0),
                Some(variable) => variable.append_to(&mut bytes),
            }
        }
        bytes
    }

    /// Parse the result of [`Layout::to_bytes`]; `None` for invalid bytes.
    pub fn from_bytes(bytes: &[u8]) -> Option<Layout> {
        let mut rest = bytes;
        let [flags] = take(&mut rest)?;
        let mut number = || take(&mut rest).map(u64::from_le_bytes);
        let (n_atoms, start, size) = (number()?, number()?, number()?);
        let (n, n_claimed, lost_from) = (number()?, number()?, number()?);
        let frames = match flags & 3 {
            0 => Arrangement::Records { n_claimed: None },
            2 => Arrangement::Records {
                n_claimed: Some(n_claimed),
            },
            3 => Arrangement::Arrays { n, n_claimed },
            _ => return None,
        };
        let mut variables = [None; Role::ALL.len()];
        for variable in &mut variables {
            *variable = Variable::take_from(&mut rest)?;
        }
        let layout = Layout {
            n_atoms,
            start,
            size,
            frames,
            lost_from: (flags & 4 != 0).then_some(lost_from),
            variables,
            times: *TimesState::ALL.get(usize::from(flags >> 3))?,
        };
        (layout.is_sound() && layout.to_bytes() == bytes).then_some(layout)
    }

    /// Check the invariants of a parsed layout: variables lie within the extent, and do not
    /// overlap.
    pub(super) fn is_sound(&self) -> bool {
        let mut places = Vec::new();
        for role in Role::ALL {
            let Some(variable) = self.variable(role) else {
                continue;
            };
            match variable.place(role.n_numbers(self.n_atoms), self.frames) {
                Some(place) if variable.is_sound() => places.push(place),
                _ => return false,
            }
        }
        places.sort_unstable();
        let disjoint = places.is_sorted_by(|(_, end), (start, _)| end <= start);
        let within = places.last().is_none_or(|&(_, end)| end <= self.size);
        let n_atoms = usize::try_from(self.n_atoms);
        let has_atoms = n_atoms.is_ok_and(|n| n > 0) && self.fields() != Fields::default();
        let one_extent = self.start.checked_add(self.size).is_some();
        let has = |role| self.variable(role).is_some();
        let whole_cell = has(Role::Lengths) == has(Role::Angles);
        let times_stated = has(Role::Time) == (self.times == TimesState::Stated);
        times_stated && disjoint && within && has_atoms && one_extent && whole_cell
    }
}

impl Role {
    pub const ALL: [Role; 6] = [
        Role::Positions,
        Role::Velocities,
        Role::Forces,
        Role::Time,
        Role::Lengths,
        Role::Angles,
    ];

    /// Return true if each atom has three numbers.
    pub fn is_of_atoms(self) -> bool {
        matches!(self, Role::Positions | Role::Velocities | Role::Forces)
    }

    /// Number of values of the variable in each frame.
    pub fn n_numbers(self, n_atoms: u64) -> u64 {
        match self {
            Role::Time => 1,
            Role::Lengths | Role::Angles => 3,
            Role::Positions | Role::Velocities | Role::Forces => n_atoms.saturating_mul(3),
        }
    }
}

impl Variable {
    /// Return true if `bytes` begin with NaN, or with the value by which the NetCDF library marks
    /// numbers that were never written.
    pub(super) fn is_unwritten(self, bytes: &[u8]) -> bool {
        let scale = Scale::None;
        let value = Number {
            scale,
            ..self.number
        }
        .value(bytes);
        value.is_nan() || value as f32 == FILL
    }

    /// Return true if the numbers can be converted.
    fn is_sound(self) -> bool {
        self.number.scale.is_sound() && self.factor.is_finite() && self.factor > 0.0
    }

    /// Return first byte and end of the data of the variable in the extent: those of one frame if
    /// frames are records, those of all frames if frames are in arrays. `None` if the steps
    /// contradict the arrangement.
    fn place(self, n_numbers: u64, frames: Arrangement) -> Option<(u64, u64)> {
        let in_frame = n_numbers.checked_mul(self.number.width())?;
        let (step, len) = match frames {
            Arrangement::Records { .. } => (0, in_frame),
            Arrangement::Arrays { n: 0, .. } => return None,
            Arrangement::Arrays { n, .. } => (in_frame, n.checked_mul(in_frame)?),
        };
        (self.step == step).then_some((self.at, self.at.checked_add(len)?))
    }

    fn append_to(self, bytes: &mut Vec<u8>) {
        let (kind, factor) = match self.number.scale {
            Scale::None => (0, [0; 8]),
            Scale::Single(factor) => (1, f64::from(factor).to_le_bytes()),
            Scale::Double(factor) => (2, factor.to_le_bytes()),
        };
        bytes.push(1 | u8::from(self.number.double) << 1 | kind << 2);
        bytes.extend(self.at.to_le_bytes());
        bytes.extend(self.step.to_le_bytes());
        bytes.extend(factor);
        bytes.extend(self.factor.to_le_bytes());
    }

    /// Remove and return the next serialised variable: `Some(None)` for an absent variable, `None`
    /// for invalid bytes.
    fn take_from(bytes: &mut &[u8]) -> Option<Option<Variable>> {
        let [flags] = take(bytes)?;
        if flags == 0 {
            return Some(None);
        }
        let at = u64::from_le_bytes(take(bytes)?);
        let step = u64::from_le_bytes(take(bytes)?);
        let factor = f64::from_le_bytes(take(bytes)?);
        let scale = match flags >> 2 {
            0 => Scale::None,
            1 => Scale::Single(factor as f32),
            2 => Scale::Double(factor),
            _ => return None,
        };
        let double = flags & 2 != 0;
        Some(Some(Variable {
            at,
            step,
            number: Number { double, scale },
            factor: f64::from_le_bytes(take(bytes)?),
        }))
    }
}

/// Remove and return the next bytes of a slice.
fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*first)
}
