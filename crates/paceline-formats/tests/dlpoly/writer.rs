//! Writer of files in the forms of DL_POLY 4 and 5, of DL_POLY Classic, and of editors.

use paceline_formats::dlpoly::encode::{self, Atom, Cell, FORCE, Moment};

/// Form of a HISTORY.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// Records of 73 bytes.
    Records,
    /// Records of 35 bytes.
    Compressed,
    /// Lines of minimum length, without a number of frames and without times.
    Classic,
    /// Lines without trailing blanks, and blank lines between them.
    Edited,
    /// Records with the line ends of Windows.
    Windows,
}

/// File to write.
#[derive(Debug, Clone, Copy)]
pub struct File {
    pub dialect: Dialect,
    pub level: u8,
    pub n_atoms: usize,
    pub cell: Option<Cell>,
    /// True if atoms are not in the order of their ids.
    pub shuffled: bool,
}

pub const CELL: Cell = [[18.5, 0.25, 0.0], [0.0, 17.0, -0.5], [0.125, 0.0, 16.0]];

/// Return every form with every level, with and without cells.
pub fn variants(n_atoms: usize) -> Vec<File> {
    use Dialect::{Classic, Compressed, Edited, Records, Windows};
    let mut files = Vec::new();
    for dialect in [Records, Compressed, Classic, Edited, Windows] {
        for level in 0..=if dialect == Compressed { 0 } else { 2 } {
            for cell in [None, Some(CELL)] {
                for shuffled in [false, true] {
                    files.push(File {
                        dialect,
                        level,
                        n_atoms,
                        cell,
                        shuffled: shuffled && dialect != Compressed,
                    });
                }
            }
        }
    }
    files
}

/// Return position (Å), velocity (Å/ps) and force (kJ/(mol·Å)) of an atom, with few digits.
pub fn vectors(frame: usize, atom: usize) -> [[f64; 3]; 3] {
    let number = |k: usize| ((frame * 31 + atom * 7 + k * 13) % 200) as f64 * 0.1 - 10.0;
    let vector = |k: usize| [number(k), number(k + 1), number(k + 2)];
    [vector(0), vector(3), vector(6)]
}

impl File {
    /// Return `n_frames` frames, and the offset of each.
    pub fn history(&self, n_frames: usize) -> (Vec<u8>, Vec<usize>) {
        let mut bytes = self.head(n_frames);
        let mut starts = Vec::new();
        for frame in 0..n_frames {
            starts.push(bytes.len());
            bytes.extend(self.frame(frame));
        }
        (bytes, starts)
    }

    /// Return the bytes of a CONFIG.
    pub fn config(&self) -> Vec<u8> {
        let moment = self.moment(3);
        let level = usize::from(self.level);
        let mut bytes =
            encode::config_head("made up", level, self.n_atoms as u64, &moment).unwrap();
        for atom in self.order() {
            bytes.extend(self.records(3, atom, |atom, bytes| atom.put_config(bytes)));
        }
        self.finished(bytes)
    }

    fn imcon(&self) -> i64 {
        encode::imcon(self.cell.as_ref()).unwrap()
    }

    fn moment(&self, frame: usize) -> Moment<'_> {
        Moment {
            step: 100 * frame as i64,
            dt: 0.0005,
            time: 0.05 * frame as f64,
            cell: self.cell.as_ref(),
        }
    }

    /// Return the atoms in the order in which they are written.
    fn order(&self) -> Vec<usize> {
        let n = self.n_atoms;
        // The factor is prime, so that each index occurs once.
        let place = |k| if self.shuffled { k * 7919 % n } else { k };
        (0..n).map(place).collect()
    }

    fn head(&self, n_frames: usize) -> Vec<u8> {
        let (level, imcon, n_atoms) = (self.level, self.imcon(), self.n_atoms);
        match self.dialect {
            Dialect::Compressed => {
                let n_records = 2 + n_frames * (4 + n_atoms);
                let counts = format!("{n_atoms:10}{n_frames:10}{n_records:10}");
                format!("{:34}\n 3{imcon:2}{counts}\n", "made up").into_bytes()
            }
            Dialect::Classic => {
                format!("{:80}\n{level:10}{imcon:10}{n_atoms:10}\n", "made up").into_bytes()
            }
            _ => {
                let level = usize::from(level);
                let (n_atoms, n_frames) = (n_atoms as u64, n_frames as u64);
                let head = encode::history_head("made up", level, imcon, n_atoms, n_frames);
                self.finished(head.unwrap())
            }
        }
    }

    fn frame(&self, frame: usize) -> Vec<u8> {
        match self.dialect {
            Dialect::Compressed => self.compressed_frame(frame),
            Dialect::Classic => self.classic_frame(frame),
            _ => {
                let (level, n_atoms) = (usize::from(self.level), self.n_atoms as u64);
                let head = encode::frame_head(level, n_atoms, &self.moment(frame));
                let atoms = self.order().into_iter();
                let put = |atom: &Atom<'_>, bytes: &mut [u8]| atom.put_history(bytes);
                let atoms = atoms.flat_map(|atom| self.records(frame, atom, put));
                self.finished([head.unwrap(), atoms.collect()].concat())
            }
        }
    }

    fn compressed_frame(&self, frame: usize) -> Vec<u8> {
        let moment = self.moment(frame);
        // With this time, adjacent columns have no blank between them.
        let time = moment.time + 100_000.0;
        let mut text = format!("timestep{:6}{:8.5}{time:12.5}\n", moment.step, moment.dt);
        for [x, y, z] in self.cell.unwrap_or_default() {
            text += &format!("{x:10.3}{y:10.3}{z:10.3}    \n");
        }
        for atom in 0..self.n_atoms {
            let [[x, y, z], ..] = vectors(frame, atom);
            let x = x - 1000.0 * (atom % 2) as f64;
            text += &format!("{:6}{x:7.1}{y:7.1}{z:7.1}{:7.1}\n", "Na+", 0.0);
        }
        text.into_bytes()
    }

    fn classic_frame(&self, frame: usize) -> Vec<u8> {
        let Moment { step, dt, .. } = self.moment(frame);
        let (n_atoms, level, imcon) = (self.n_atoms, self.level, self.imcon());
        let mut text = format!("timestep{step:10}{n_atoms:10}{level:10}{imcon:10}{dt:12.6}\n");
        for [x, y, z] in self.cell.into_iter().flatten() {
            text += &format!("{x:12.4}{y:12.4}{z:12.4}\n");
        }
        for atom in self.order() {
            text += &format!("{:8}{:10}{:12.6}{:12.6}\n", "Na+", atom + 1, 22.99, 1.0);
            let [position, velocity, force] = vectors(frame, atom);
            let force = force.map(|value| value * FORCE);
            for [x, y, z] in [position, velocity, force]
                .iter()
                .take(1 + usize::from(level))
            {
                text += &format!("{x:12.4E}{y:12.4E}{z:12.4E}\n");
            }
        }
        text.into_bytes()
    }

    fn records(&self, frame: usize, atom: usize, put: impl Fn(&Atom<'_>, &mut [u8])) -> Vec<u8> {
        let level = usize::from(self.level);
        let [position, velocity, force] = vectors(frame, atom);
        let vectors = [position, velocity, force.map(|value| value * FORCE)];
        let mut bytes = vec![0; encode::atom_size(level)];
        let atom = Atom {
            id: atom as u64 + 1,
            name: *b"Na+     ",
            mass: 22.99,
            charge: 1.0,
            vectors: &vectors[..=level],
        };
        put(&atom, &mut bytes);
        bytes
    }

    /// Convert records to the form of the file.
    fn finished(&self, records: Vec<u8>) -> Vec<u8> {
        let lines = records.split_inclusive(|&byte| byte == b'\n');
        match self.dialect {
            Dialect::Edited => lines
                .enumerate()
                .flat_map(|(k, line)| {
                    let blanks: &[u8] = if k % 5 == 4 { b"\n  \n" } else { b"\n" };
                    [line.trim_ascii_end(), blanks].concat()
                })
                .collect(),
            Dialect::Windows => lines
                .flat_map(|line| [&line[..line.len() - 1], b"\r\n"].concat())
                .collect(),
            _ => records,
        }
    }
}
