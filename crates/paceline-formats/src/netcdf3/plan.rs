//! Which bytes of a frame's extent hold what is wanted, and where each number goes.

use super::layout::{Layout, Role, Variable};
use super::number::{Number, Scale};
use crate::atom_set::Atoms;
use crate::reading::Reading;
use crate::source::GAP;
use crate::{Fields, Run};

/// What to read of a frame, and how to decode that.
#[derive(Debug)]
pub(super) struct Plan {
    /// What to read of the first frame.
    pub runs: Vec<Run>,
    /// How far each of the runs moves from frame to frame.
    pub steps: Vec<u64>,
    /// Bytes of all runs.
    pub len: u64,
    /// One for each [`Role`].
    parts: [Option<Part>; Role::ALL.len()],
}

/// The wanted numbers of one variable.
#[derive(Debug)]
pub(super) struct Part {
    number: Number,
    pieces: Vec<Piece>,
}

/// Numbers that stand together.
#[derive(Debug)]
struct Piece {
    /// Offset in the runs' bytes.
    source: usize,
    /// Place of the first one among the wanted numbers.
    target: usize,
    n: usize,
}

impl Plan {
    pub fn new(layout: &Layout, atoms: &Atoms, wanted: Fields) -> Plan {
        let is_wanted = |role: &Role| match role {
            Role::Positions => wanted.positions,
            Role::Velocities => wanted.velocities,
            Role::Forces => wanted.forces,
            Role::Time | Role::Lengths | Role::Angles => true,
        };
        let mut variables: Vec<(Role, Variable)> = Role::ALL
            .into_iter()
            .filter(is_wanted)
            .filter_map(|role| Some((role, layout.variable(role)?)))
            .collect();
        // Runs must ascend.
        variables.sort_by_key(|(_, variable)| variable.at);
        let mut reading = Reading::new(GAP);
        let mut steps = Vec::new();
        let mut parts = [const { None }; Role::ALL.len()];
        for (role, variable) in variables {
            // Runs that move apart are not one.
            if steps.last() != Some(&variable.step) {
                reading.close();
            }
            parts[role as usize] = Some(Part::new(role, variable, atoms, &mut reading));
            steps.resize(reading.runs.len(), variable.step);
        }
        Plan {
            runs: reading.runs,
            steps,
            len: reading.len,
            parts,
        }
    }

    pub fn part_of(&self, role: Role) -> Option<&Part> {
        self.parts[role as usize].as_ref()
    }
}

impl Part {
    /// Read what is wanted of a variable.
    fn new(role: Role, variable: Variable, atoms: &Atoms, reading: &mut Reading) -> Part {
        let number = variable.number;
        let runs: Vec<(usize, usize)> = if role.is_of_atoms() {
            let runs = atoms.runs().iter();
            runs.map(|&(first, n)| (3 * first, 3 * n)).collect()
        } else {
            vec![(0, role.n_numbers(0) as usize)]
        };
        let mut target = 0;
        let pieces = runs.into_iter().map(|(first, n)| {
            let start = variable.at + first as u64 * number.width();
            target += n;
            Piece {
                source: reading.want(start, n as u64 * number.width()),
                target: target - n,
                n,
            }
        });
        Part {
            pieces: pieces.collect(),
            number,
        }
    }

    /// The first number.
    pub fn first(&self, bytes: &[u8]) -> Option<f64> {
        let piece = self.pieces.first()?;
        Some(self.number.value(&bytes[piece.source..]))
    }

    /// All numbers, as f32.
    pub fn gather(&self, bytes: &[u8], out: &mut [f32]) {
        let number = self.number;
        match (number.double, number.scale) {
            (false, Scale::None) => self.convert::<4>(bytes, out, f32::from_be_bytes),
            (false, _) => self.convert::<4>(bytes, out, |bytes| number.value(&bytes) as f32),
            (true, _) => self.convert::<8>(bytes, out, |bytes| number.value(&bytes) as f32),
        }
    }

    fn convert<const WIDTH: usize>(
        &self,
        bytes: &[u8],
        out: &mut [f32],
        value: impl Fn([u8; WIDTH]) -> f32,
    ) {
        for &Piece { source, target, n } in &self.pieces {
            let (numbers, _) = bytes[source..source + n * WIDTH].as_chunks::<WIDTH>();
            for (out, &number) in out[target..target + n].iter_mut().zip(numbers) {
                *out = value(number);
            }
        }
    }
}
