//! Writer of small DCD files of every variant.

pub const NAMD_CELL: [f64; 6] = [30.0, 0.25, 40.0, -0.5, 0.125, 50.0];

/// Variant of a DCD file.
#[derive(Debug, Clone)]
pub struct File {
    pub n_atoms: usize,
    pub big_endian: bool,
    pub wide_markers: bool,
    pub x_plor: bool,
    pub cell: Option<[f64; 6]>,
    /// CHARMM version in the header, which is 0 if `x_plor` is true.
    pub version: i32,
    pub four_dims: bool,
    /// True if every third atom is fixed.
    pub fixed: bool,
    pub nsavc: i32,
    pub delta: f64,
    /// Number of title lines of 80 bytes.
    pub title_lines: usize,
}

/// Return all variants that differ in layout.
pub fn variants(n_atoms: usize) -> Vec<File> {
    let bit = |kind: u32, bit: u32| kind >> bit & 1 == 1;
    let file = |kind: u32| File {
        big_endian: bit(kind, 0),
        wide_markers: bit(kind, 1),
        fixed: bit(kind, 2),
        x_plor: bit(kind, 3),
        cell: (bit(kind, 4) && !bit(kind, 3)).then_some(NAMD_CELL),
        four_dims: bit(kind, 5) && !bit(kind, 3),
        ..File::new(n_atoms)
    };
    // X-PLOR has neither a cell nor a 4th dimension.
    (0..64)
        .filter(|&kind| !bit(kind, 3) || kind < 16)
        .map(file)
        .collect()
}

impl File {
    /// Return a file as written by NAMD: a frame every 50 steps of 0.04 AKMA units, from step 100.
    pub fn new(n_atoms: usize) -> Self {
        File {
            n_atoms,
            big_endian: false,
            wide_markers: false,
            x_plor: false,
            cell: None,
            version: 24,
            four_dims: false,
            fixed: false,
            nsavc: 50,
            delta: 0.04,
            title_lines: 1,
        }
    }

    pub fn free(&self) -> Vec<usize> {
        (0..self.n_atoms).filter(|atom| atom % 3 != 0).collect()
    }

    /// Return the positions that a reader must return. Fixed atoms have their positions in the
    /// first frame.
    pub fn positions(&self, frame: u64, atoms: &[usize]) -> Vec<f32> {
        let position = |atom: usize| {
            let frame = if self.fixed && atom.is_multiple_of(3) {
                0
            } else {
                frame
            };
            [0, 1, 2].map(|axis| coordinate(frame, atom, axis))
        };
        atoms.iter().flat_map(|&atom| position(atom)).collect()
    }

    pub fn bytes(&self, n_frames: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.record(&mut bytes, &self.head(n_frames));
        let title = vec![b' '; 80 * self.title_lines];
        let title = [&self.integer(self.title_lines as i32), title.as_slice()].concat();
        self.record(&mut bytes, &title);
        self.record(&mut bytes, &self.integer(self.n_atoms as i32));
        if self.fixed {
            let free = self.free().into_iter();
            let numbers: Vec<u8> = free
                .flat_map(|atom| self.integer(atom as i32 + 1))
                .collect();
            self.record(&mut bytes, &numbers);
        }
        for frame in 0..n_frames {
            self.frame(&mut bytes, frame);
        }
        bytes
    }

    fn head(&self, n_frames: u64) -> Vec<u8> {
        let mut integers = [0; 20];
        integers[0] = n_frames as i32;
        integers[1] = 100;
        integers[2] = self.nsavc;
        if self.fixed {
            integers[8] = (self.n_atoms - self.free().len()) as i32;
        }
        integers[10] = i32::from(self.cell.is_some());
        integers[11] = i32::from(self.four_dims);
        integers[19] = if self.x_plor { 0 } else { self.version };
        let mut head = b"CORD".to_vec();
        head.extend(integers.iter().flat_map(|&integer| self.integer(integer)));
        if self.x_plor {
            head[40..48].copy_from_slice(&self.ordered(self.delta.to_le_bytes()));
        } else {
            head[40..44].copy_from_slice(&self.ordered((self.delta as f32).to_le_bytes()));
        }
        head
    }

    fn frame(&self, bytes: &mut Vec<u8>, frame: u64) {
        if let Some(cell) = self.cell {
            let numbers = cell.iter();
            let cell: Vec<u8> = numbers
                .flat_map(|number| self.ordered(number.to_le_bytes()))
                .collect();
            self.record(bytes, &cell);
        }
        let stored = if self.fixed && frame > 0 {
            self.free()
        } else {
            (0..self.n_atoms).collect()
        };
        for axis in 0..if self.four_dims { 4 } else { 3 } {
            let numbers = stored.iter().map(|&atom| coordinate(frame, atom, axis));
            let record: Vec<u8> = numbers
                .flat_map(|number| self.ordered(number.to_le_bytes()))
                .collect();
            self.record(bytes, &record);
        }
    }

    fn record(&self, bytes: &mut Vec<u8>, record: &[u8]) {
        let marker = if self.wide_markers {
            self.ordered((record.len() as u64).to_le_bytes()).to_vec()
        } else {
            self.integer(record.len() as i32).to_vec()
        };
        bytes.extend_from_slice(&marker);
        bytes.extend_from_slice(record);
        bytes.extend_from_slice(&marker);
    }

    fn integer(&self, value: i32) -> [u8; 4] {
        self.ordered(value.to_le_bytes())
    }

    fn ordered<const N: usize>(&self, mut little_endian: [u8; N]) -> [u8; N] {
        if self.big_endian {
            little_endian.reverse();
        }
        little_endian
    }
}

/// Return a number that is unique to this atom, axis and frame.
fn coordinate(frame: u64, atom: usize, axis: usize) -> f32 {
    atom as f32 + 0.25 * axis as f32 + 0.0625 * frame as f32 - 7.0
}
