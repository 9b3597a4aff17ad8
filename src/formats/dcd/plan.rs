//! Which bytes of a frame hold the wanted atoms, and where each of them goes.

use super::layout::{CELL_LEN, Layout, bytes_at};
use crate::atoms::Atoms;
use crate::formats::Run;

/// Runs whose gap is at most this many bytes become one: reading on costs less than another call.
const MAX_GAP: u64 = 4096;

/// What to read of a frame, and how to decode that.
#[derive(Debug)]
pub(super) struct Plan {
    /// Bytes of the whole frame.
    pub size: u64,
    pub runs: Vec<Run>,
    /// Bytes of all runs.
    pub len: usize,
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

/// Neighbouring atoms both in a record and among the wanted ones.
#[derive(Debug, Clone, Copy)]
struct Piece {
    /// The first one: its place in the record; in a finished plan, the bytes that are read
    /// between the first wanted number and its own.
    source: usize,
    /// Place among the wanted atoms.
    target: usize,
    n: usize,
}

impl Plan {
    /// The plan for a frame that holds all atoms.
    pub fn whole(layout: &Layout, atoms: &Atoms) -> Plan {
        let mut target = 0;
        let pieces = atoms.runs().iter().map(|&(source, n)| {
            target += n;
            Piece {
                source,
                target: target - n,
                n,
            }
        });
        Plan::new(layout, layout.n_atoms(), pieces.collect())
    }

    /// The plan for every frame but the first, which holds the free atoms.
    pub fn later(layout: &Layout, atoms: &Atoms) -> Plan {
        let Some(free) = layout.free() else {
            return Plan::whole(layout, atoms);
        };
        let mut pieces: Vec<Piece> = Vec::new();
        let mut target = 0;
        for &(first, n) in atoms.runs() {
            let start = free.partition_point(|&atom| (atom as usize) < first);
            let wanted = free[start..].iter().enumerate();
            for (i, &atom) in wanted.take_while(|&(_, &atom)| (atom as usize) < first + n) {
                let (source, target) = (start + i, target + atom as usize - first);
                match pieces.last_mut() {
                    Some(last)
                        if last.source + last.n == source && last.target + last.n == target =>
                    {
                        last.n += 1;
                    }
                    _ => pieces.push(Piece {
                        source,
                        target,
                        n: 1,
                    }),
                }
            }
            target += n;
        }
        Plan::new(layout, free.len(), pieces)
    }

    /// The plan for a frame whose coordinate records hold `stored` atoms each.
    fn new(layout: &Layout, stored: usize, mut pieces: Vec<Piece>) -> Plan {
        let width = u64::from(layout.marker);
        let numbers = 4 * stored as u64;
        let record = |axis: u64| layout.cell_size() + axis * (numbers + 2 * width);
        let size = record(if layout.four_dims { 4 } else { 3 });

        let mut reading = Reading::new(width);
        let cell = layout.has_cell.then(|| {
            reading.mark(0, CELL_LEN);
            let cell = reading.want(width, CELL_LEN);
            reading.mark(width + CELL_LEN, CELL_LEN);
            cell
        });
        let mut places = Vec::new();
        let axes = [0, 1, 2].map(|axis| {
            if axis > 0 {
                reading.mark(record(axis) - width, numbers);
            }
            reading.mark(record(axis), numbers);
            let start = record(axis) + width;
            let wanted = pieces
                .iter()
                .map(|piece| reading.want(start + 4 * piece.source as u64, 4 * piece.n as u64));
            places = wanted.collect();
            places.first().copied().unwrap_or(0)
        });
        if size - reading.end() <= MAX_GAP {
            reading.mark(record(3) - width, numbers);
            if layout.four_dims {
                reading.mark(record(3), numbers);
                reading.mark(size - width, numbers);
            }
        }
        for (piece, place) in pieces.iter_mut().zip(&places) {
            piece.source = place - axes[2];
        }
        Plan {
            size,
            runs: reading.runs,
            len: reading.len,
            markers: reading.markers,
            cell,
            axes,
            span: pieces.last().map_or(0, |last| last.source + 4 * last.n),
            pieces,
        }
    }

    /// Number of wanted atoms that the frame holds.
    pub fn n_stored(&self) -> usize {
        self.pieces.iter().map(|piece| piece.n).sum()
    }

    /// Interleave the wanted atoms' x, y and z.
    pub fn gather<const BIG_ENDIAN: bool>(&self, bytes: &[u8], positions: &mut [f32]) {
        let [x, y, z] = self.axes.map(|at| &bytes[at..at + self.span]);
        for piece in &self.pieces {
            let [x, y, z] = [x, y, z].map(|axis| &axis[piece.source..piece.source + 4 * piece.n]);
            let atoms =
                positions[3 * piece.target..3 * (piece.target + piece.n)].chunks_exact_mut(3);
            let numbers = x
                .chunks_exact(4)
                .zip(y.chunks_exact(4))
                .zip(z.chunks_exact(4));
            for (atom, ((x, y), z)) in atoms.zip(numbers) {
                atom[0] = number::<BIG_ENDIAN>(x);
                atom[1] = number::<BIG_ENDIAN>(y);
                atom[2] = number::<BIG_ENDIAN>(z);
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

/// Collects, from the front of a frame to its back, what to read.
struct Reading {
    runs: Vec<Run>,
    len: usize,
    markers: Vec<Marker>,
    /// Bytes of a record marker.
    width: u64,
}

impl Reading {
    fn new(width: u64) -> Self {
        Reading {
            runs: Vec::new(),
            len: 0,
            markers: Vec::new(),
            width,
        }
    }

    /// One past the last byte wanted so far.
    fn end(&self) -> u64 {
        self.runs.last().map_or(0, |run| run.start + run.len)
    }

    /// Read `len` bytes from `start` on; where they will stand in the runs' bytes.
    fn want(&mut self, start: u64, len: u64) -> usize {
        let gap = start - self.end();
        match self.runs.last_mut() {
            Some(last) if gap <= MAX_GAP => {
                last.len += gap + len;
                self.len += gap as usize;
            }
            _ => self.runs.push(Run { start, len }),
        }
        self.len += len as usize;
        self.len - len as usize
    }

    /// Read a record marker, which must hold `value`.
    fn mark(&mut self, at: u64, value: u64) {
        let source = self.want(at, self.width);
        self.markers.push(Marker {
            at: at as usize,
            source,
            value,
        });
    }
}
