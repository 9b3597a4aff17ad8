//! Assignment of atoms to their owner ranks, and the exchange of atoms between ranks.

use std::time::Instant;

use super::ReadingCost;
use super::atom_table_and_text_frames::Moment;
use super::atom_table_and_text_frames::{AtomTable, View, Widths};
use crate::Communicator;
use paceline_formats::error::{Error, Result};

/// Outgoing and incoming atoms, in reused buffers.
pub struct Exchange<'a> {
    pub comm: &'a dyn Communicator,
    pub cost: ReadingCost,
    widths: Widths,
    outgoing: Vec<u8>,
    incoming: Vec<u8>,
    /// Number of bytes received from each rank.
    received: Vec<u64>,
}

impl<'a> Exchange<'a> {
    pub fn new(comm: &'a dyn Communicator, widths: Widths) -> Self {
        Exchange {
            comm,
            cost: ReadingCost::default(),
            widths,
            outgoing: Vec::new(),
            incoming: Vec::new(),
            received: vec![0; comm.size()],
        }
    }

    /// Send atoms; `to` returns the rank to which atoms of an owner are sent. The call is
    /// collective.
    pub fn send(&mut self, atoms: &View<'_>, to: impl Fn(u32) -> usize) -> Result<()> {
        let begun = Instant::now();
        let n = self.comm.size();
        let counts = pack(&[*atoms], &self.widths, n, to, &mut self.outgoing);
        self.cost.sort += begun.elapsed();
        self.exchange(&counts)
    }

    /// Forward received atoms to their owners, with one message per owner.
    pub fn send_on(&mut self) -> Result<()> {
        let begun = Instant::now();
        let came = parcels(&self.incoming, &self.received, &self.widths)?;
        let (n, to) = (self.comm.size(), |owner| owner as usize);
        let counts = pack(&came, &self.widths, n, to, &mut self.outgoing);
        self.cost.sort += begun.elapsed();
        self.exchange(&counts)
    }

    /// Return the received atoms, one view for each sending rank.
    pub fn received(&self) -> Result<Vec<View<'_>>> {
        parcels(&self.incoming, &self.received, &self.widths)
    }

    /// Return the size of the buffers, bytes.
    pub fn held(&self) -> usize {
        self.outgoing.capacity() + self.incoming.capacity()
    }

    fn exchange(&mut self, counts: &[u64]) -> Result<()> {
        let begun = Instant::now();
        self.received = self.comm.all_to_all(counts)?;
        let (sent, came) = (sum(counts), sum(&self.received));
        grow(&mut self.incoming, came);
        let (outgoing, incoming) = (&self.outgoing[..sent], &mut self.incoming[..came]);
        self.comm
            .exchange(outgoing, counts, incoming, &self.received)?;
        self.cost.communicate += begun.elapsed();
        for (rank, &count) in counts.iter().enumerate() {
            if count > 0 && rank != self.comm.rank() {
                self.cost.n_messages += 1;
                self.cost.bytes_sent += count;
            }
        }
        Ok(())
    }
}

fn sum(counts: &[u64]) -> usize {
    counts.iter().sum::<u64>() as usize
}

fn parcels<'a>(bytes: &'a [u8], counts: &[u64], widths: &Widths) -> Result<Vec<View<'a>>> {
    let mut rest = bytes;
    let parcels = counts.iter().map(|&count| {
        let (parcel, behind) = rest.split_at(count as usize);
        rest = behind;
        unpack(parcel, widths)
    });
    parcels.collect::<Option<_>>().ok_or_else(|| {
        Error::Argument(
            "a rank sent atoms with other fields; all ranks must read the same frame".into(),
        )
    })
}

// Packing: atoms are sorted into parcels, and stored column by column in each parcel.

/// Number of atoms that are sorted at a time. Their destinations then stay in the cache while all
/// columns are copied.
const BLOCK: usize = 4096;

/// Destination of an atom: the parcel, and the index in the parcel.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    parcel: usize,
    place: usize,
}

/// Sort atoms into `n` parcels, and keep their order in each parcel. `parcel_of` returns the parcel
/// for the owner of an atom. Parcels are written to the front of `bytes`, which grows if necessary.
/// Return the sizes of the parcels, bytes.
pub fn pack(
    views: &[View<'_>],
    widths: &Widths,
    n: usize,
    parcel_of: impl Fn(u32) -> usize,
    bytes: &mut Vec<u8>,
) -> Vec<u64> {
    let mut counts = vec![0; n];
    for owner in views.iter().flat_map(View::owners) {
        counts[parcel_of(owner)] += 1;
    }
    let size: usize = widths.iter().sum();
    let total = size * counts.iter().sum::<usize>();
    grow(bytes, total);
    let starts = columns_of(&counts, widths);
    let mut filled = vec![0; n];
    let mut places = [Place::default(); BLOCK];
    for view in views {
        for first in (0..view.len()).step_by(BLOCK) {
            let owners = view.owners().skip(first).take(BLOCK);
            let places = &mut places[..owners.len()];
            for (place, owner) in places.iter_mut().zip(owners) {
                let parcel = parcel_of(owner);
                *place = Place {
                    parcel,
                    place: filled[parcel],
                };
                filled[parcel] += 1;
            }
            for (column, &width) in widths.iter().enumerate() {
                let source = &view.columns[column][first * width..][..places.len() * width];
                copy_to(places, source, width, &starts[column], bytes);
            }
        }
    }
    counts.iter().map(|&count| (count * size) as u64).collect()
}

/// Extend `bytes` to a length if it is shorter, without excess capacity.
pub fn grow(bytes: &mut Vec<u8>, len: usize) {
    if bytes.len() < len {
        bytes.reserve_exact(len - bytes.len());
        bytes.resize(len, 0);
    }
}

/// Return the offset of each column in each parcel. The outer list is over columns.
fn columns_of(counts: &[usize], widths: &Widths) -> Vec<Vec<usize>> {
    let size: usize = widths.iter().sum();
    let mut before = 0;
    let ahead = widths.iter().map(|width| {
        before += width;
        before - width
    });
    ahead
        .map(|ahead| {
            let mut start = 0;
            let of_parcel = counts.iter().map(|&count| {
                start += size * count;
                start - size * count + ahead * count
            });
            of_parcel.collect()
        })
        .collect()
}

fn copy_to(places: &[Place], source: &[u8], width: usize, starts: &[usize], bytes: &mut [u8]) {
    match width {
        0 => {}
        4 => copy_wide::<4>(places, source, starts, bytes),
        8 => copy_wide::<8>(places, source, starts, bytes),
        12 => copy_wide::<12>(places, source, starts, bytes),
        24 => copy_wide::<24>(places, source, starts, bytes),
        width => unreachable!("no column is {width} bytes wide"),
    }
}

fn copy_wide<const WIDTH: usize>(
    places: &[Place],
    source: &[u8],
    starts: &[usize],
    bytes: &mut [u8],
) {
    let (values, _) = source.as_chunks::<WIDTH>();
    for (value, to) in values.iter().zip(places) {
        let at = starts[to.parcel] + to.place * WIDTH;
        bytes[at..at + WIDTH].copy_from_slice(value);
    }
}

/// View the atoms of a parcel; `None` if the bytes are invalid.
pub fn unpack<'a>(parcel: &'a [u8], widths: &Widths) -> Option<View<'a>> {
    let size: usize = widths.iter().sum();
    if !parcel.len().is_multiple_of(size) {
        return None;
    }
    let n = parcel.len() / size;
    let mut rest = parcel;
    let columns = widths.map(|width| {
        let (column, behind) = rest.split_at(n * width);
        rest = behind;
        column
    });
    Some(View { columns })
}

// Map atoms to their owner ranks.

/// Rule that maps atoms to their owner ranks.
pub trait Owners {
    /// Append the owner of each atom of the table to `ranks`.
    ///
    /// # Errors
    /// Any error because of which the owner of an atom cannot be determined.
    fn find(&mut self, table: &AtomTable, ranks: &mut Vec<i64>) -> Result<()>;
}

/// Owners with equal ranges of ids.
#[derive(Debug, Clone, Copy)]
pub struct ById {
    /// Number of atoms of the frame.
    pub n_atoms: u64,
    /// Number of ranks.
    pub n_ranks: u32,
}

impl ById {
    /// Return the rank that owns this id (from 1). The ids are divided into equal ranges by
    /// [`super::share`].
    fn owner(&self, id: i64) -> u32 {
        let ranks = u128::from(self.n_ranks);
        ((u128::from(id.unsigned_abs()) * ranks - 1) / u128::from(self.n_atoms)) as u32
    }
}

impl Owners for ById {
    fn find(&mut self, table: &AtomTable, ranks: &mut Vec<i64>) -> Result<()> {
        ranks.extend(table.ids().map(|id| i64::from(self.owner(id))));
        Ok(())
    }
}

/// Equal domains of a cell, one per rank: rank x + nx (y + ny z) owns domain (x, y, z), in
/// DL_POLY's order.
#[derive(Debug, Clone)]
pub struct Grid {
    pub(super) moment: Moment,
    pub(super) shape: [u32; 3],
    vectors: [[f64; 3]; 3],
    /// Columns of the inverse cell matrix, which converts a position to fractional coordinates.
    inverse: [[f64; 3]; 3],
    /// Lower end of the cell in fractional coordinates: -1/2 if the cell is centred on the origin.
    start: f64,
}

impl Grid {
    /// Create the domains of a cell with these vectors (Å). The cell begins at the origin, or is
    /// centred on it.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the vectors span no volume, [`Error::Argument`] if a grid has no
    /// domains.
    pub fn new(
        moment: Moment,
        shape: [u32; 3],
        vectors: [[f64; 3]; 3],
        centred: bool,
    ) -> Result<Self> {
        if shape.contains(&0) {
            let [x, y, z] = shape;
            return Err(Error::Argument(format!(
                "expected a grid of at least one domain along each vector, found {x} × {y} × {z}"
            )));
        }
        let [a, b, c] = vectors;
        let volume = dot(a, cross(b, c));
        if !(volume.is_normal()) {
            let what = "its cell has no volume to divide into domains; pass owner=";
            return Err(moment.unsupported(what));
        }
        let inverse = [cross(b, c), cross(c, a), cross(a, b)].map(|n| n.map(|x| x / volume));
        Ok(Grid {
            moment,
            shape,
            vectors,
            inverse,
            start: if centred { -0.5 } else { 0.0 },
        })
    }

    /// Return the rank whose domain contains the periodic image of a position; `None` if the
    /// position is not finite.
    pub fn owner(&self, position: [f64; 3]) -> Option<u32> {
        let mut domain = [0; 3];
        for (axis, (domain, part)) in domain.iter_mut().zip(self.parts(position)).enumerate() {
            if !part.is_finite() {
                return None;
            }
            // For a tiny negative number, the fraction is rounded to 1, which is beyond the last
            // domain.
            let n = self.shape[axis];
            *domain = (((part - part.floor()) * f64::from(n)) as u32).min(n - 1);
        }
        Some(self.rank_of(domain))
    }

    /// Fractional coordinates of a position, from the start of the cell.
    pub(super) fn parts(&self, position: [f64; 3]) -> [f64; 3] {
        self.inverse.map(|axis| dot(position, axis) - self.start)
    }

    /// Rank that owns a domain.
    pub(super) fn rank_of(&self, [x, y, z]: [u32; 3]) -> u32 {
        let [nx, ny, _] = self.shape;
        x + nx * (y + ny * z)
    }

    /// Domain that a rank owns.
    pub(super) fn domain_of(&self, rank: u32) -> [u32; 3] {
        let [nx, ny, _] = self.shape;
        [rank % nx, rank / nx % ny, rank / nx / ny]
    }

    /// Distances between opposite faces of the cell, Å.
    pub(super) fn heights(&self) -> [f64; 3] {
        self.inverse.map(|axis| 1.0 / dot(axis, axis).sqrt())
    }

    /// A position plus whole multiples of the cell's vectors, Å.
    pub(super) fn moved(&self, position: [f64; 3], images: [i32; 3]) -> [f64; 3] {
        let [a, b, c] = self.vectors;
        let [i, j, k] = images.map(f64::from);
        std::array::from_fn(|axis| position[axis] + (i * a[axis] + j * b[axis] + k * c[axis]))
    }
}

impl Owners for Grid {
    fn find(&mut self, table: &AtomTable, ranks: &mut Vec<i64>) -> Result<()> {
        for (atom, id) in table.ids().enumerate() {
            let position = table.position(atom);
            let Some(rank) = self.owner(position) else {
                let [x, y, z] = position;
                return Err(self.moment.unsupported(format!(
                    "atom {id} is at ({x}, {y}, {z}), in no domain; read the frame without grid="
                )));
            };
            ranks.push(rank.into());
        }
        Ok(())
    }
}

/// Check that each atom has an owner, and that each owner is a rank.
///
/// # Errors
/// [`Error::Unsupported`] with the first atom that fails the check.
pub fn check_ranks(
    moment: &Moment,
    table: &AtomTable,
    ranks: &[i64],
    n_ranks: usize,
) -> Result<()> {
    if ranks.len() != table.len() {
        return Err(moment.unsupported(format!(
            "expected an owner for each of {} atoms, found {}",
            table.len(),
            ranks.len()
        )));
    }
    let real = 0..n_ranks as i64;
    let odd = table
        .ids()
        .zip(ranks)
        .find(|(_, rank)| !real.contains(rank));
    match odd {
        None => Ok(()),
        Some((id, rank)) => Err(moment.unsupported(format!(
            "atom {id} belongs to rank {rank}, but there are {n_ranks} ranks, counted from 0"
        ))),
    }
}

fn dot(a: [f64; 3], b: [f64; 3]) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

fn cross(a: [f64; 3], b: [f64; 3]) -> [f64; 3] {
    std::array::from_fn(|k| {
        let (i, j) = ((k + 1) % 3, (k + 2) % 3);
        a[i] * b[j] - a[j] * b[i]
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::share;

    fn grid(shape: [u32; 3], vectors: [[f64; 3]; 3], centred: bool) -> Result<Grid> {
        let moment = Moment {
            path: "CONFIG".into(),
            frame: 0,
        };
        Grid::new(moment, shape, vectors, centred)
    }

    const CUBE: [[f64; 3]; 3] = [[10.0, 0.0, 0.0], [0.0, 10.0, 0.0], [0.0, 0.0, 10.0]];

    #[test]
    fn numbers_belong_to_the_share_that_holds_them() {
        for (n_atoms, n_ranks) in [(1, 1), (10, 3), (100, 7), (3, 8), (1 << 62, 5)] {
            let owners = ById { n_atoms, n_ranks };
            for rank in 0..n_ranks {
                let own = share(0..n_atoms, rank.into(), n_ranks.into());
                if !own.is_empty() {
                    assert_eq!(owners.owner(own.start as i64 + 1), rank);
                    assert_eq!(owners.owner(own.end as i64), rank);
                }
            }
        }
    }

    #[test]
    fn domains_are_counted_as_dl_poly_does() {
        let centred = grid([2, 3, 4], CUBE, true).unwrap();
        assert_eq!(centred.owner([-5.0, -5.0, -5.0]), Some(0));
        assert_eq!(centred.owner([0.0, -5.0, -5.0]), Some(1));
        assert_eq!(centred.owner([-0.1, 0.0, -2.5]), Some(2 + 6));
        assert_eq!(centred.owner([4.9, 4.9, 4.9]), Some(23));
        let cornered = grid([2, 3, 4], CUBE, false).unwrap();
        assert_eq!(cornered.owner([0.0; 3]), Some(0));
        assert_eq!(cornered.owner([9.9; 3]), Some(23));
    }

    #[test]
    fn images_belong_to_one_domain() {
        let grid = grid([3, 1, 2], CUBE, false).unwrap();
        let owner = grid.owner([4.0, 3.0, 7.0]);
        assert_eq!(owner, Some(1 + 3));
        assert_eq!(grid.owner([-26.0, 103.0, 7.0]), owner);
        // A position just outside the cell is moved to the opposite end.
        assert_eq!(grid.owner([-1e-30, 0.0, 0.0]), Some(2));
        assert_eq!(grid.owner([10.0, 10.0, 10.0]), Some(0));
        for position in [[f64::NAN, 0.0, 0.0], [0.0, f64::INFINITY, 0.0]] {
            assert_eq!(grid.owner(position), None);
        }
    }

    #[test]
    fn a_slanted_cell_is_cut_along_its_vectors() {
        let vectors = [[10.0, 0.0, 0.0], [5.0, 8.0, 0.0], [-2.0, 3.0, 9.0]];
        let grid = grid([4, 5, 6], vectors, false).unwrap();
        for (parts, domain) in [([0.6, 0.1, 0.9], [2, 0, 5]), ([0.1, 0.95, 0.5], [0, 4, 3])] {
            let position: [f64; 3] =
                std::array::from_fn(|k| (0..3).map(|i| parts[i] * vectors[i][k]).sum());
            assert_eq!(
                grid.owner(position),
                Some(domain[0] + 4 * (domain[1] + 5 * domain[2]))
            );
        }
    }

    #[test]
    fn no_volume_and_no_domains_are_refused() {
        let flat = [[1.0, 0.0, 0.0], [2.0, 0.0, 0.0], [0.0, 0.0, 1.0]];
        let words = |made: Result<Grid>| made.unwrap_err().to_string();
        assert!(words(grid([1, 1, 1], flat, true)).contains("has no volume"));
        assert!(words(grid([1, 1, 1], [[f64::NAN; 3]; 3], true)).contains("has no volume"));
        assert!(words(grid([1, 0, 1], CUBE, true)).contains("1 × 0 × 1"));
    }
}
