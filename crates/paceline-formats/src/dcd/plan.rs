//! Which bytes of a frame hold the wanted atoms, and where each of them goes.

use super::layout::{CELL_LEN, Layout};
use super::records::bytes_at;
use crate::Run;
use crate::atom_set::Atoms;
use crate::codec::Reading;
use crate::source::GAP;

/// What to read of a frame, and how to decode that.
#[derive(Debug)]
pub(super) struct Plan {
    /// Bytes of the whole frame.
    pub size: u64,
    pub runs: Vec<Run>,
    /// Bytes of all runs.
    pub len: u64,
    /// The record markers among the runs' bytes.
    pub markers: Vec<Marker>,
    /// Where the cell's numbers stand in the runs' bytes.
    pub cell: Option<usize>,
    /// Where the first wanted x, y and z stand in the runs' bytes.
    axes: [usize; 3],
    /// Bytes from the first wanted x to the end of the last one.
    span: usize,
    /// One axis's wanted numbers, whose places are the same for all three.
    pieces: Vec<Piece>,
}

/// A record marker that was read.
#[derive(Debug)]
pub(super) struct Marker {
    /// Offset in the frame.
    pub at: usize,
    /// Offset in the runs' bytes.
    pub source: usize,
    pub value: u64,
}

/// Atoms that are neighbours in a frame's records and among the wanted ones.
struct Neighbours {
    /// Place of the first one in each record.
    place: usize,
    /// Place of the first one among the wanted atoms.
    target: usize,
    n: usize,
}

/// The numbers of [`Neighbours`], found in the bytes that were read.
#[derive(Debug)]
struct Piece {
    /// Offset from the first wanted number of the same axis.
    source: usize,
    target: usize,
    n: usize,
}

impl Plan {
    /// The plan for a frame that holds all atoms.
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

    /// The plan for a frame that holds the `free` atoms only.
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

    /// The plan for a frame whose coordinate records hold `stored` atoms each.
    fn new(layout: &Layout, stored: usize, wanted: &[Neighbours]) -> Plan {
        let width = u64::from(layout.marker);
        let numbers = 4 * stored as u64;
        let record = |axis: u64| layout.cell_size() + axis * (numbers + 2 * width);
        let size = layout.size_of_frame(stored as u64);

        let mut frame = Marked {
            reading: Reading::new(GAP),
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
        // The wanted numbers have the same distances on every axis.
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

    /// Number of wanted atoms that the frame holds.
    pub fn n_atoms(&self) -> usize {
        self.pieces.iter().map(|piece| piece.n).sum()
    }

    /// Interleave the wanted atoms' x, y and z.
    pub fn gather<const BIG_ENDIAN: bool>(&self, bytes: &[u8], positions: &mut [f32]) {
        let [x, y, z] = self.axes.map(|at| &bytes[at..at + self.span]);
        for &Piece { source, target, n } in &self.pieces {
            let atoms = &mut positions[3 * target..3 * (target + n)];
            if n == 1 {
                // 0.7 of the time that the loop below takes for lone atoms.
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

/// Collects what to read of a frame, and the markers in it.
struct Marked {
    reading: Reading,
    markers: Vec<Marker>,
    /// Bytes of a record marker.
    width: u64,
}

impl Marked {
    /// Read a record marker, which must hold `value`.
    fn mark(&mut self, at: u64, value: u64) {
        self.markers.push(Marker {
            at: at as usize,
            source: self.reading.want(at, self.width),
            value,
        });
    }
}
