//! DCD, the trajectories of CHARMM, NAMD, X-PLOR, LAMMPS and OpenMM.
//!
//! After the header (see [`Layout`]), every frame consists of Fortran records:
//!
//! ```text
//! 48 bytes   cell, 6 f64 (optional): see `layout_and_cell`
//! 4 × atoms  all x, f32, Å (LAMMPS: unit of the simulation)
//! 4 × atoms  all y
//! 4 × atoms  all z
//! 4 × atoms  the 4th dimension (optional)
//! ```
//!
//! With fixed atoms, the first frame contains all atoms, and later frames contain only the free
//! atoms.

mod encode;
mod format_implementation;
mod header;
mod layout_and_cell;

use self::header::{bytes_at, check_marker};
use self::layout_and_cell::CELL_LEN;
use crate::atom_set::Atoms;
use crate::error::Fault;
use crate::frame_codec::ReadRanges;
use crate::source::GAP;
use crate::{Decoder, Fields, FrameOut, Run, UnitCell};

pub use self::encode::DcdEncoder;
pub use self::format_implementation::Dcd;
pub use self::layout_and_cell::Layout;

#[cfg(test)]
mod tests;

/// Decoder of the wanted atoms of one DCD file.
#[derive(Debug)]
pub struct DcdDecoder {
    layout: Layout,
    n_wanted: usize,
    first: Plan,
    /// Plan for the frames after the first one, if some atoms are fixed.
    later: Option<Plan>,
    fixed: Fixed,
}

/// Positions of the fixed atoms, which later frames do not contain.
#[derive(Debug)]
enum Fixed {
    /// No wanted atom is fixed.
    None,
    /// Some wanted atoms are fixed; their positions are not known yet.
    Unknown,
    /// Positions of all wanted atoms in the first frame.
    Known(Vec<f32>),
}

impl DcdDecoder {
    /// # Panics
    /// If `atoms` is not a selection of `layout.n_atoms()` atoms.
    pub fn new(layout: Layout, atoms: Atoms) -> Self {
        assert_eq!(atoms.n_total(), layout.n_atoms(), "atoms of another system");
        let free = layout.free.as_deref();
        let later = free.map(|free| Plan::partial(&layout, free, &atoms));
        let fixed = match &later {
            Some(later) if later.n_atoms() < atoms.len() => Fixed::Unknown,
            _ => Fixed::None,
        };
        DcdDecoder {
            n_wanted: atoms.len(),
            first: Plan::whole(&layout, &atoms),
            layout,
            later,
            fixed,
        }
    }

    /// True if [`DcdDecoder::set_first_frame`] must be called before any later frame is decoded:
    /// some wanted atoms are fixed, and only the first frame contains them.
    pub fn needs_first_frame(&self) -> bool {
        matches!(self.fixed, Fixed::Unknown)
    }

    /// Read the positions of the fixed atoms from all [`Layout::first_frame_size`] bytes of the
    /// first frame.
    ///
    /// # Errors
    /// [`Fault::Bad`] if the bytes are not a valid first frame.
    pub fn set_first_frame(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        self.check_size(&self.first, bytes.len() as u64)?;
        let mut wanted = Vec::new();
        for run in &self.first.runs {
            wanted.extend_from_slice(&bytes[run.start as usize..(run.start + run.len) as usize]);
        }
        let mut positions = vec![0.0; 3 * self.n_wanted];
        self.read(&self.first, &wanted, &mut positions)?;
        self.fixed = Fixed::Known(positions);
        Ok(())
    }

    fn plan(&self, frame: u64) -> &Plan {
        match &self.later {
            Some(later) if frame > 0 => later,
            _ => &self.first,
        }
    }

    fn check_size(&self, plan: &Plan, size: u64) -> Result<(), Fault> {
        if size == plan.size {
            return Ok(());
        }
        let expected = format!("a frame of {} bytes", plan.size);
        Err(Fault::bad(0, expected, format!("{size} bytes")))
    }

    /// Check the markers and read the wanted positions. `bytes` are the concatenated byte ranges
    /// (runs) of `plan`. Return the cell.
    fn read(&self, plan: &Plan, bytes: &[u8], positions: &mut [f32]) -> Result<UnitCell, Fault> {
        if bytes.len() as u64 != plan.len {
            let expected = format!("{} bytes of the frame's runs", plan.len);
            return Err(Fault::bad(0, expected, bytes.len()));
        }
        let width = usize::from(self.layout.marker);
        for marker in &plan.markers {
            let found = &bytes[marker.source..marker.source + width];
            check_marker(marker.at, found, self.layout.big_endian, marker.value)?;
        }
        if self.layout.big_endian {
            plan.gather::<true>(bytes, positions);
        } else {
            plan.gather::<false>(bytes, positions);
        }
        let cell = self.cell(plan, bytes);
        Ok(cell.map_or(UnitCell::NONE, |record| {
            layout_and_cell::unit_cell(self.layout.version, record)
        }))
    }

    /// Convert lengths to Å, if the file has another unit.
    fn convert(&self, positions: &mut [f32], cell: &mut UnitCell) {
        let factor = self.layout.length();
        if factor == 1.0 {
            return;
        }
        let lengths = positions.iter_mut().chain(&mut cell.dimensions[..3]);
        lengths.for_each(|length| *length = (f64::from(*length) * factor) as f32);
        let vectors = cell.vectors.as_flattened_mut();
        vectors.iter_mut().for_each(|number| *number *= factor);
    }

    /// Read the cell record from `bytes`, the concatenated runs of `plan`; `None` if the frames
    /// have no cell.
    fn cell(&self, plan: &Plan, bytes: &[u8]) -> Option<[f64; 6]> {
        let number = match self.layout.big_endian {
            true => f64::from_be_bytes,
            false => f64::from_le_bytes,
        };
        let at = plan.cell?;
        Some(std::array::from_fn(|i| number(bytes_at(bytes, at + 8 * i))))
    }

    /// Return a warning if the cell record of a frame can be read in two ways. `bytes` are the
    /// concatenated runs of the frame, which [`Decoder::decode`] has accepted.
    pub fn cell_doubt(&self, frame: u64, bytes: &[u8]) -> Option<String> {
        let cell = self.cell(self.plan(frame), bytes)?;
        layout_and_cell::doubt(self.layout.version, cell)
    }
}

impl Decoder for DcdDecoder {
    fn needs_first(&self) -> Option<(u64, u64)> {
        self.needs_first_frame()
            .then(|| (self.layout.header_size(), self.layout.first_frame_size()))
    }

    fn learn(&mut self, first: &[u8]) -> Result<(), Fault> {
        self.set_first_frame(first)
    }

    fn runs(&mut self, frame: u64, size: u64) -> &[Run] {
        let plan = self.plan(frame);
        if size == plan.size { &plan.runs } else { &[] }
    }

    fn decode(
        &mut self,
        frame: u64,
        size: u64,
        bytes: &[u8],
        out: FrameOut<'_>,
    ) -> Result<(), Fault> {
        let plan = self.plan(frame);
        self.check_size(plan, size)?;
        if out.positions.len() != 3 * self.n_wanted {
            let expected = format!("room for {} atoms", self.n_wanted);
            return Err(Fault::bad(0, expected, out.positions.len() / 3));
        }
        if frame > 0 {
            match &self.fixed {
                Fixed::None => {}
                Fixed::Known(positions) => out.positions.copy_from_slice(positions),
                Fixed::Unknown => {
                    return Err(Fault::bad(0, "the first frame's fixed atoms", "none"));
                }
            }
        }
        let mut cell = self.read(plan, bytes, out.positions)?;
        self.convert(out.positions, &mut cell);
        *out.cell = cell.row();
        *out.fields = Fields::POSITIONS;
        *out.time = self.layout.time(frame);
        *out.step = self.layout.step(frame);
        Ok(())
    }
}

// Plan for a frame: the bytes to read, and the destination of each number.

/// Plan for reading and decoding a frame.
#[derive(Debug)]
struct Plan {
    /// Size of the whole frame, bytes.
    pub size: u64,
    pub runs: Vec<Run>,
    /// Total number of bytes of the runs.
    pub len: u64,
    /// Record markers in the concatenated runs.
    pub markers: Vec<Marker>,
    /// Offset of the cell's numbers in the concatenated runs.
    pub cell: Option<usize>,
    /// Offsets of the first wanted x, y and z in the concatenated runs.
    axes: [usize; 3],
    /// Number of bytes from the first wanted x to the end of the last one.
    span: usize,
    /// Wanted coordinates on one axis. Their offsets from the first wanted coordinate are the same
    /// for all three axes.
    pieces: Vec<Piece>,
}

/// Record marker to check, and the value that it must have.
#[derive(Debug)]
struct Marker {
    /// Offset in the frame.
    pub at: usize,
    /// Offset in the concatenated runs.
    pub source: usize,
    pub value: u64,
}

/// Atoms that are adjacent both in the records of a frame and among the wanted atoms.
struct Neighbours {
    /// Index of the first atom among the atoms in a coordinate record.
    place: usize,
    /// Index of the first atom among the wanted atoms.
    target: usize,
    n: usize,
}

/// Coordinates of some [`Neighbours`] on one axis, in the concatenated runs.
#[derive(Debug)]
struct Piece {
    /// Offset from the first wanted coordinate on the same axis, bytes.
    source: usize,
    target: usize,
    n: usize,
}

impl Plan {
    /// Create the plan for a frame that contains all atoms.
    pub fn whole(layout: &Layout, atoms: &Atoms) -> Plan {
        let mut target = 0;
        let wanted = atoms.runs().iter().map(|&(place, n)| {
            target += n;
            Neighbours {
                place,
                target: target - n,
                n,
            }
        });
        Plan::new(layout, layout.n_atoms(), &wanted.collect::<Vec<_>>())
    }

    /// Create the plan for a frame that contains only the `free` atoms.
    pub fn partial(layout: &Layout, free: &[u32], atoms: &Atoms) -> Plan {
        let mut wanted: Vec<Neighbours> = Vec::new();
        let mut before = 0;
        for &(first, n) in atoms.runs() {
            let start = free.partition_point(|&atom| (atom as usize) < first);
            let end = free.partition_point(|&atom| (atom as usize) < first + n);
            for (place, &atom) in free.iter().enumerate().take(end).skip(start) {
                let target = before + atom as usize - first;
                match wanted.last_mut() {
                    Some(last)
                        if last.place + last.n == place && last.target + last.n == target =>
                    {
                        last.n += 1;
                    }
                    _ => wanted.push(Neighbours {
                        place,
                        target,
                        n: 1,
                    }),
                }
            }
            before += n;
        }
        Plan::new(layout, free.len(), &wanted)
    }

    /// Create the plan for a frame whose coordinate records contain `stored` atoms each.
    fn new(layout: &Layout, stored: usize, wanted: &[Neighbours]) -> Plan {
        let width = u64::from(layout.marker);
        let numbers = 4 * stored as u64;
        let record = |axis: u64| layout.cell_size() + axis * (numbers + 2 * width);
        let size = layout.size_of_frame(stored as u64);

        let mut frame = Marked {
            reading: ReadRanges::new(GAP),
            markers: Vec::new(),
            width,
        };
        let cell = layout.has_cell.then(|| {
            frame.mark(0, CELL_LEN);
            let cell = frame.reading.want(width, CELL_LEN);
            frame.mark(width + CELL_LEN, CELL_LEN);
            cell
        });
        let mut places = Vec::new();
        let axes = [0, 1, 2].map(|axis| {
            if axis > 0 {
                frame.mark(record(axis) - width, numbers);
            }
            frame.mark(record(axis), numbers);
            let start = record(axis) + width;
            let numbers = wanted.iter().map(|atoms| {
                frame
                    .reading
                    .want(start + 4 * atoms.place as u64, 4 * atoms.n as u64)
            });
            places = numbers.collect();
            places.first().copied().unwrap_or(0)
        });
        if size - frame.reading.end() <= GAP {
            frame.mark(record(3) - width, numbers);
            if layout.four_dims {
                frame.mark(record(3), numbers);
                frame.mark(size - width, numbers);
            }
        }
        // The offsets from the first wanted coordinate are the same on every axis.
        let pieces: Vec<Piece> = wanted
            .iter()
            .zip(&places)
            .map(|(atoms, place)| Piece {
                source: place - axes[2],
                target: atoms.target,
                n: atoms.n,
            })
            .collect();
        Plan {
            size,
            runs: frame.reading.runs,
            len: frame.reading.len,
            markers: frame.markers,
            cell,
            axes,
            span: pieces.last().map_or(0, |last| last.source + 4 * last.n),
            pieces,
        }
    }

    /// Number of wanted atoms in the frame.
    pub fn n_atoms(&self) -> usize {
        self.pieces.iter().map(|piece| piece.n).sum()
    }

    /// Interleave x, y and z of the wanted atoms.
    pub fn gather<const BIG_ENDIAN: bool>(&self, bytes: &[u8], positions: &mut [f32]) {
        let [x, y, z] = self.axes.map(|at| &bytes[at..at + self.span]);
        for &Piece { source, target, n } in &self.pieces {
            let atoms = &mut positions[3 * target..3 * (target + n)];
            if n == 1 {
                // For single atoms, this takes 0.7 of the time of the loop below.
                atoms[0] = number::<BIG_ENDIAN>(&x[source..source + 4]);
                atoms[1] = number::<BIG_ENDIAN>(&y[source..source + 4]);
                atoms[2] = number::<BIG_ENDIAN>(&z[source..source + 4]);
                continue;
            }
            let numbers = [x, y, z].map(|axis| axis[source..source + 4 * n].chunks_exact(4));
            let [x, y, z] = numbers.map(|axis| axis.map(number::<BIG_ENDIAN>));
            for (atom, ((x, y), z)) in atoms.chunks_exact_mut(3).zip(x.zip(y).zip(z)) {
                atom.copy_from_slice(&[x, y, z]);
            }
        }
    }
}

fn number<const BIG_ENDIAN: bool>(bytes: &[u8]) -> f32 {
    if BIG_ENDIAN {
        f32::from_be_bytes(bytes_at(bytes, 0))
    } else {
        f32::from_le_bytes(bytes_at(bytes, 0))
    }
}

/// Collector of the byte ranges to read from a frame, and of the markers in these ranges.
struct Marked {
    reading: ReadRanges,
    markers: Vec<Marker>,
    /// Size of a record marker, bytes.
    width: u64,
}

impl Marked {
    /// Add a record marker, which must contain `value`.
    fn mark(&mut self, at: u64, value: u64) {
        self.markers.push(Marker {
            at: at as usize,
            source: self.reading.want(at, self.width),
            value,
        });
    }
}
