//! Hydrogen bonds: triples of donor, hydrogen and acceptor that meet a criterion in a frame.
//!
//! With the criterion of MDAnalysis, the bonds, distances, angles and their order are the same as
//! those of `MDAnalysis.analysis.hydrogenbonds`. Distances and angles have the same bits if Rust's
//! `atan2` has the same bits as the C function.

use std::f64::consts::PI;

use super::cell::{Cell, dot, square};
use super::check_len;
use super::near_pairs::{Measure, Pair, Point, Search, cell_for, extent, finite};
use super::rdf::FEW;
use super::row_kernel::Frames;
use super::transform_common::Refused;
use crate::threads_within_frame::{compute_parts, part_len};
use paceline_base::error::{self, Error};

/// Minimum distance between donor and acceptor, Å, if the search starts from donors.
const LEAST: f64 = 1.0;

/// Minimum number of pairs in a part of a frame that one thread computes.
const LEAST_PAIRS: usize = 4096;

/// Number of donors whose hydrogens are always searched. These donors usually have at least `FEW`
/// hydrogens. From `FEW` donor–hydrogen pairs on, the rounding does not depend on the number of
/// pairs.
const SOME: usize = 4 * FEW;

/// Geometric criterion of a hydrogen bond: distances in Å, angles in degrees.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Criterion {
    /// Criterion of MDAnalysis: the donor and the acceptor are at most `distance` apart, and the
    /// angle at the hydrogen is larger than `angle`.
    DonorHydrogenAcceptor {
        /// Largest distance from donor to acceptor, Å.
        distance: f64,
        /// Lower bound of the angle, degrees.
        angle: f64,
    },
    /// Criterion of Baker & Hubbard: the hydrogen and the acceptor are less than `distance` apart,
    /// and the angle at the hydrogen is larger than `angle`.
    HydrogenAcceptor {
        /// Upper bound of the distance from hydrogen to acceptor, Å.
        distance: f64,
        /// Lower bound of the angle, degrees.
        angle: f64,
    },
    /// Criterion of Luzar & Chandler, and of GROMACS: the donor and the acceptor are at most
    /// `distance` apart, and the angle at the donor, between hydrogen and acceptor, is at most
    /// `angle`.
    AtDonor {
        /// Largest distance from donor to acceptor, Å.
        distance: f64,
        /// Largest angle, degrees.
        angle: f64,
    },
    /// Criterion of Wernet, Nilsson et al.: the donor and the acceptor are less than `distance` −
    /// `slope` δ² apart, where δ is the angle at the donor.
    Cone {
        /// Upper bound of the distance from donor to acceptor at δ = 0, Å.
        distance: f64,
        /// Decrease of the maximum distance with δ², Å per square degree.
        slope: f64,
    },
}

impl Criterion {
    /// Return the search distance (Å), and whether the search starts from hydrogens instead of
    /// donors.
    fn reach(&self) -> (f64, bool) {
        match *self {
            Criterion::HydrogenAcceptor { distance, .. } => (distance, true),
            Criterion::DonorHydrogenAcceptor { distance, .. }
            | Criterion::AtDonor { distance, .. }
            | Criterion::Cone { distance, .. } => (distance, false),
        }
    }
}

/// Donors and hydrogens, and the rule that pairs them.
#[derive(Debug, Clone)]
pub struct Donors {
    /// Indices of the donor atoms in the positions of a frame.
    pub donors: Vec<u32>,
    /// Indices of the hydrogens in the positions of a frame.
    pub hydrogens: Vec<u32>,
    /// `None` if `donors` and `hydrogens` are already paired, element by element. Otherwise the
    /// maximum distance (Å) of a pair; the pairs are then found in each frame.
    pub within: Option<f64>,
}

/// Classes of donors and of acceptors. A bond is possible only between a donor class and an
/// acceptor class that `allowed` permits. `allowed` has the shape (donor classes, `n_acceptors`).
#[derive(Debug, Clone)]
pub struct BondClasses {
    /// Class of each donor.
    pub donors: Vec<u32>,
    /// Class of each acceptor.
    pub acceptors: Vec<u32>,
    /// True for each pair of classes between which bonds are possible.
    pub allowed: Vec<bool>,
    /// Number of acceptor classes.
    pub n_acceptors: usize,
}

/// Hydrogen bond: indices of donor, hydrogen and acceptor; distance from donor to acceptor, Å;
/// angle at the hydrogen, degrees.
pub type Bond = ([u32; 3], f64, f64);

/// Search for hydrogen bonds. Atoms are columns of a block.
#[derive(Debug, Clone)]
pub struct HydrogenBonds {
    donors: Donors,
    acceptors: Vec<u32>,
    parts: Option<BondClasses>,
    criterion: Criterion,
    /// Atoms from which the search starts; `None` if they change from frame to frame.
    probes: Option<Probes>,
    /// Groups of donors and of acceptors between which bonds are possible. `None` unless pairs are
    /// found in each frame and the search starts from donors.
    searches: Option<Vec<[Vec<u32>; 2]>>,
}

/// Atoms from which the search for acceptors starts, without repeats: donors or hydrogens.
#[derive(Debug, Clone, Default)]
struct Probes {
    atoms: Vec<u32>,
    /// Donor–hydrogen pairs of each atom, sorted by atom, and the index at which each atom's pairs
    /// begin.
    pairs: Vec<u32>,
    begins: Vec<u32>,
    /// Pairs of groups: hydrogens or donors, and the acceptors that they may bond to.
    searches: Vec<[Vec<u32>; 2]>,
}

impl HydrogenBonds {
    /// # Errors
    /// [`Error::Argument`] if the sizes of the lists do not match, or distances are invalid.
    pub fn new(
        donors: Donors,
        acceptors: Vec<u32>,
        parts: Option<BondClasses>,
        criterion: Criterion,
    ) -> error::Result<Self> {
        if donors.within.is_none() {
            check_len("hydrogens", donors.hydrogens.len(), donors.donors.len())?;
        }
        if let Some(parts) = &parts {
            check_len("parts of donors", parts.donors.len(), donors.donors.len())?;
            check_len("parts of acceptors", parts.acceptors.len(), acceptors.len())?;
            let n_donors = parts.allowed.len() / parts.n_acceptors.max(1);
            let is_known = parts.donors.iter().all(|&part| (part as usize) < n_donors)
                && parts
                    .acceptors
                    .iter()
                    .all(|&part| (part as usize) < parts.n_acceptors);
            if !is_known {
                return Err(Error::Argument(
                    "the class of a donor or an acceptor is out of range".to_string(),
                ));
            }
        }
        let is_length = |x: f64| x.is_finite() && x > 0.0;
        if !(is_length(criterion.reach().0) && donors.within.is_none_or(is_length)) {
            return Err(Error::Argument("expected distances above 0".to_string()));
        }
        let mut task = HydrogenBonds {
            donors,
            acceptors,
            parts,
            criterion,
            probes: None,
            searches: None,
        };
        if task.donors.within.is_some() && !criterion.reach().1 {
            let of_donors = task.parts.as_ref().map(|parts| parts.donors.clone());
            let n_donors = task.donors.donors.len();
            let of_donors = of_donors.unwrap_or_else(|| vec![0; n_donors]);
            task.searches = Some(task.searches_from(&of_donors));
        }
        if task.donors.within.is_none() {
            let pairs: Vec<_> = (0..task.donors.donors.len() as u32)
                .map(|k| [k, k])
                .collect();
            task.probes = Some(task.probes_of(&pairs));
        }
        Ok(task)
    }

    /// Find the bonds of each frame of a block. Pass them to `take` with the row of the frame, and
    /// append their number to `counts`. Return the first frame that cannot be searched, with the
    /// reason.
    ///
    /// # Errors
    /// [`Error::Argument`] if the block lacks some of the atoms.
    pub fn find(
        &self,
        frames: &Frames<'_>,
        counts: &mut Vec<i64>,
        mut take: impl FnMut(usize, &[Bond]),
    ) -> error::Result<Option<Refused>> {
        let lists = [&self.donors.donors, &self.donors.hydrogens, &self.acceptors];
        if let Some(&last) = lists.iter().copied().flatten().max()
            && last as usize >= frames.n_atoms()
        {
            return Err(Error::Argument(format!(
                "atom {last} is out of range for a block of {} atoms",
                frames.n_atoms()
            )));
        }
        let (mut scratch, mut bonds) = (Scratch::default(), Vec::new());
        Ok(frames.try_each(|frame, dimensions| {
            bonds.clear();
            self.frame(frame.as_chunks().0, dimensions, &mut scratch, &mut bonds)?;
            take(counts.len(), &bonds);
            counts.push(bonds.len() as i64);
            Ok(())
        }))
    }

    fn frame(
        &self,
        frame: &[Point],
        dimensions: [f32; 6],
        scratch: &mut Scratch,
        bonds: &mut Vec<Bond>,
    ) -> Result<(), String> {
        let (reach, _) = self.criterion.reach();
        let most = self.donors.within.map_or(reach, |within| reach.max(within));
        let cell = cell_for(dimensions, most, "the search for hydrogen bonds")?;
        // If the search for acceptors first is not possible or fails, hydrogens are searched first.
        // This second search reports any error.
        let measure = match self.acceptors_first(frame, cell, scratch) {
            Ok(Some(measure)) => measure,
            _ => self.hydrogens_first(frame, cell, scratch)?,
        };
        self.bonds_of(frame, &measure, scratch, bonds)
    }

    /// Find acceptors near donors first, and then only the hydrogens of the donors found. Return
    /// `None` if the rounding of distances in MDAnalysis depends on the number of all
    /// donor–hydrogen pairs, which this search does not find.
    fn acceptors_first(
        &self,
        frame: &[Point],
        cell: Option<Cell>,
        scratch: &mut Scratch,
    ) -> Result<Option<Measure>, String> {
        let (Some(searches), Some(cutoff), true) =
            (&self.searches, self.donors.within, cell.is_some())
        else {
            return Ok(None);
        };
        let (reach, _) = self.criterion.reach();
        let donors = &self.donors.donors;
        let n_most = donors.len().saturating_mul(self.donors.hydrogens.len());
        let measure_of = |n_pairs| {
            let sizes = [n_pairs, self.acceptors.len()];
            Measure::new(cell, sizes, reach, Default::default)
        };
        let measure = measure_of(FEW);
        if n_most < FEW || measure.is_by_lists() != measure_of(n_most).is_by_lists() {
            return Ok(None);
        }
        scratch.found.clear();
        let columns = [&donors[..], &self.acceptors[..]];
        for [from, to] in searches {
            let (search, found) = (&mut scratch.search, &mut scratch.found);
            search.find(
                frame,
                &measure,
                Some(LEAST),
                columns,
                [from, to],
                found,
                |_| (),
            )?;
        }
        // The first `SOME` donors are added, so that usually at least `FEW` pairs are found.
        let mut chosen = vec![false; donors.len()];
        chosen.iter_mut().take(SOME).for_each(|one| *one = true);
        for pair in &scratch.found {
            chosen[pair.i as usize] = true;
        }
        let some = (0..).zip(&chosen).filter(|(_, chosen)| **chosen);
        let some: Vec<u32> = some.map(|(place, _)| place).collect();
        self.pair_up(frame, cell, cutoff, &some, scratch)?;
        // Pairs are sorted by the index of the donor.
        let (probes, n_pairs) = (&mut scratch.probes, scratch.pairs.len() as u32);
        probes.pairs.clear();
        probes.pairs.extend(0..n_pairs);
        probes.begins.clear();
        for (&[donor, _], pair) in scratch.pairs.iter().zip(0..) {
            let n_begun = probes.begins.len().max(donor as usize + 1);
            probes.begins.resize(n_begun, pair);
        }
        probes.begins.resize(donors.len() + 1, n_pairs);
        Ok((scratch.pairs.len() >= FEW).then_some(measure))
    }

    /// Find the hydrogens of all donors first, and then acceptors near donors that have a hydrogen.
    fn hydrogens_first(
        &self,
        frame: &[Point],
        cell: Option<Cell>,
        scratch: &mut Scratch,
    ) -> Result<Measure, String> {
        let (reach, from_hydrogens) = self.criterion.reach();
        if let Some(cutoff) = self.donors.within {
            let all: Vec<_> = (0..self.donors.donors.len() as u32).collect();
            self.pair_up(frame, cell, cutoff, &all, scratch)?;
            scratch.probes = self.probes_of(&scratch.pairs);
        }
        let probes = self.probes.as_ref().unwrap_or(&scratch.probes);
        let sizes = [probes.pairs.len(), self.acceptors.len()];
        let lists = [&probes.atoms[..], &self.acceptors];
        let measure = Measure::new(cell, sizes, reach, || extent(frame, lists));
        scratch.found.clear();
        let least = (!from_hydrogens).then_some(LEAST);
        for [from, to] in &probes.searches {
            let (search, found) = (&mut scratch.search, &mut scratch.found);
            search.find(frame, &measure, least, lists, [from, to], found, |_| ())?;
        }
        Ok(measure)
    }

    /// Find the hydrogens within `cutoff` (Å) of some donors, in the order of MDAnalysis.
    fn pair_up(
        &self,
        frame: &[Point],
        cell: Option<Cell>,
        cutoff: f64,
        some: &[u32],
        scratch: &mut Scratch,
    ) -> Result<(), String> {
        let columns = [&self.donors.donors[..], &self.donors.hydrogens];
        // The rounding of distances depends on all donors, not only on the donors of this search.
        let measure = Measure::new(cell, columns.map(<[u32]>::len), cutoff, || {
            extent(frame, columns)
        });
        let Scratch {
            search,
            near,
            pairs,
            places,
            all_hydrogens,
            ..
        } = scratch;
        all_hydrogens.clear();
        all_hydrogens.extend(0..columns[1].len() as u32);
        near.clear();
        pairs.clear();
        search.find(
            frame,
            &measure,
            None,
            columns,
            [some, all_hydrogens],
            near,
            |_| (),
        )?;
        let at = |list: &[u32], place: u32| frame[list[place as usize] as usize];
        in_order(near, places, |i, places| {
            measure.sort(at(columns[0], i), places, |j| at(columns[1], j))?;
            pairs.extend(places.iter().map(|&(j, _)| [i, j]));
            Ok(())
        })
    }

    /// Compute the angles of the neighbours found, and append the bonds in the order of MDAnalysis.
    fn bonds_of(
        &self,
        frame: &[Point],
        measure: &Measure,
        scratch: &mut Scratch,
        bonds: &mut Vec<Bond>,
    ) -> Result<(), String> {
        let (_, from_hydrogens) = self.criterion.reach();
        let Donors {
            donors,
            hydrogens,
            within,
        } = &self.donors;
        let Scratch {
            found,
            pairs,
            probes,
            hits,
            places,
            ..
        } = scratch;
        let probes = self.probes.as_ref().unwrap_or(probes);
        let pair_of = |pair: u32| match within {
            None => [donors[pair as usize], hydrogens[pair as usize]],
            Some(_) => {
                let [i, j] = pairs[pair as usize];
                [donors[i as usize], hydrogens[j as usize]]
            }
        };
        hits.clear();
        let rule = Rule::new(self.criterion, measure);
        // The neighbour search checked that the positions of the probes are finite. Those of the
        // atoms bonded to the probes are checked below.
        let other = usize::from(!from_hydrogens);
        let test = |found: &[Pair], hits: &mut Vec<Hit>| {
            for &Pair { i, j, distance } in found {
                let acceptor = self.acceptors[j as usize];
                let own =
                    probes.begins[i as usize] as usize..probes.begins[i as usize + 1] as usize;
                for &pair in &probes.pairs[own] {
                    let [donor, hydrogen] = pair_of(pair);
                    if acceptor == donor || acceptor == hydrogen || donor == hydrogen {
                        continue;
                    }
                    let atoms = [donor, hydrogen, acceptor].map(|atom| frame[atom as usize]);
                    finite(atoms[other])?;
                    if rule.excludes(atoms) {
                        continue;
                    }
                    if let Some((distance, angle)) = rule.apply(measure, atoms, distance)? {
                        hits.push((pair, j, distance, angle));
                    }
                }
            }
            Ok::<(), String>(())
        };
        let len = part_len(found.len(), LEAST_PAIRS);
        if len >= found.len() {
            test(found, hits)?;
        } else {
            let parts = compute_parts(found.chunks(len), |found| {
                let mut hits = Vec::new();
                test(found, &mut hits).map(|()| hits)
            });
            for part in parts {
                hits.append(&mut part?);
            }
        }
        // Bonds are grouped by donor–hydrogen pair. Within a group, they have the order of
        // MDAnalysis.
        hits.sort_unstable_by_key(|&(pair, j, ..)| (pair, j));
        for of_pair in hits.chunk_by(|one, other| one.0 == other.0) {
            let [donor, hydrogen] = pair_of(of_pair[0].0);
            places.clear();
            places.extend(
                of_pair
                    .iter()
                    .zip(0_u32..)
                    .map(|(&(_, j, ..), k)| (j, f64::from(k))),
            );
            let probe = if from_hydrogens { hydrogen } else { donor };
            measure.sort(frame[probe as usize], places, |j| {
                frame[self.acceptors[j as usize] as usize]
            })?;
            for &(j, k) in places.iter() {
                let (_, _, distance, angle) = of_pair[k as usize];
                let atoms = [donor, hydrogen, self.acceptors[j as usize]];
                bonds.push((atoms, distance, angle));
            }
        }
        Ok(())
    }

    /// Sort donor–hydrogen pairs by the atom from which the search starts, and by the class of the
    /// donor.
    fn probes_of(&self, pairs: &[[u32; 2]]) -> Probes {
        let (_, from_hydrogens) = self.criterion.reach();
        let atom = |[i, j]: [u32; 2]| match from_hydrogens {
            true => self.donors.hydrogens[j as usize],
            false => self.donors.donors[i as usize],
        };
        let part = |i: u32| {
            self.parts
                .as_ref()
                .map_or(0, |parts| parts.donors[i as usize])
        };
        // The key contains the class too, because an atom may occur in two classes.
        let mut keys: Vec<_> = (0..)
            .zip(pairs)
            .map(|(k, &pair)| (atom(pair), part(pair[0]), k))
            .collect();
        keys.sort_unstable();
        let mut probes = Probes::default();
        let mut parts = Vec::new();
        let mut last = None;
        for (atom, part, pair) in keys {
            if last != Some((atom, part)) {
                last = Some((atom, part));
                probes.begins.push(probes.pairs.len() as u32);
                probes.atoms.push(atom);
                parts.push(part);
            }
            probes.pairs.push(pair);
        }
        probes.begins.push(probes.pairs.len() as u32);
        probes.searches = self.searches_from(&parts);
        probes
    }

    /// Return the groups of atoms and of acceptors between which bonds are possible, given the
    /// class of each atom.
    fn searches_from(&self, parts: &[u32]) -> Vec<[Vec<u32>; 2]> {
        let n_acceptors = self.acceptors.len() as u32;
        let Some(rules) = &self.parts else {
            return vec![[
                (0..parts.len() as u32).collect(),
                (0..n_acceptors).collect(),
            ]];
        };
        let mut searches = Vec::new();
        for (part, allowed) in (0..).zip(rules.allowed.chunks(rules.n_acceptors.max(1))) {
            let from: Vec<u32> = (0..)
                .zip(parts)
                .filter(|(_, of)| **of == part)
                .map(|(k, _)| k)
                .collect();
            let to = (0..n_acceptors).zip(&rules.acceptors);
            let to: Vec<u32> = to
                .filter(|(_, of)| allowed[**of as usize])
                .map(|(k, _)| k)
                .collect();
            if !from.is_empty() && !to.is_empty() {
                searches.push([from, to]);
            }
        }
        searches
    }
}

/// Index of the donor–hydrogen pair, index of the acceptor, distance (Å) and angle (degrees).
type Hit = (u32, u32, f64, f64);

#[derive(Debug, Default)]
struct Scratch {
    search: Search,
    /// Pairs of indices: of a probe or donor, and of an acceptor near it.
    found: Vec<Pair>,
    /// Pairs of indices: of a donor, and of a hydrogen near it.
    near: Vec<Pair>,
    pairs: Vec<[u32; 2]>,
    /// Probes of the current frame, if pairs are found in each frame.
    probes: Probes,
    all_hydrogens: Vec<u32>,
    hits: Vec<Hit>,
    places: Vec<(u32, f64)>,
}

/// Call `task` with the neighbours of each atom of the first group, in the order of these atoms.
fn in_order(
    found: &mut [Pair],
    places: &mut Vec<(u32, f64)>,
    mut task: impl FnMut(u32, &mut [(u32, f64)]) -> Result<(), String>,
) -> Result<(), String> {
    found.sort_unstable_by_key(|pair| (pair.i, pair.j));
    for of_one in found.chunk_by(|one, other| one.i == other.i) {
        places.clear();
        places.extend(of_one.iter().map(|pair| (pair.j, pair.distance)));
        task(of_one[0].i, places)?;
    }
    Ok(())
}

/// A criterion, with precomputed limits that exclude most angles without `atan2`.
struct Rule {
    criterion: Criterion,
    /// Upper limit of the cosine of an accepted angle.
    most: f64,
    /// Square of the distance (Å²) below which two positions are already nearest images.
    near: f32,
}

/// Bounds of the rounding error of a cosine: `ROUNDED` in double precision, and `ROUGHLY` in single
/// precision. `ROUGHLY` holds if the squared distances of the other two atoms from the hydrogen are
/// at least `APART` (Å²), and the coordinates of the hydrogen are below `FAR` (Å).
const ROUNDED: f64 = 1e-9;
const ROUGHLY: f32 = 0.01;
const APART: f32 = 0.25;
const FAR: f32 = 1000.0;

impl Rule {
    fn new(criterion: Criterion, measure: &Measure) -> Self {
        let most = match criterion {
            Criterion::DonorHydrogenAcceptor { angle, .. }
            | Criterion::HydrogenAcceptor { angle, .. } => angle.to_radians().cos() + ROUNDED,
            _ => 2.0,
        };
        Rule {
            criterion,
            most,
            near: measure.near() as f32,
        }
    }

    /// Return true if the angle at the hydrogen is clearly too small, whatever the rounding. This
    /// cheap test excludes most triples.
    fn excludes(&self, [donor, hydrogen, acceptor]: [Point; 3]) -> bool {
        let [a, b] = [donor, acceptor].map(|x| -> Point { [0, 1, 2].map(|k| x[k] - hydrogen[k]) });
        let dot = |a: Point, b: Point| a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
        let squares = [dot(a, a), dot(b, b)];
        let lengths = (squares[0] * squares[1]).sqrt();
        squares.iter().all(|x| (APART..self.near).contains(x))
            && hydrogen.iter().all(|x| x.abs() < FAR)
            && dot(a, b) > (self.most as f32 + ROUGHLY) * lengths
    }

    /// Return the distance from donor to acceptor (Å) and the angle at the hydrogen (degrees) if
    /// the triple is a bond. `distance` is the distance that the search measured (Å).
    fn apply(
        &self,
        measure: &Measure,
        [donor, hydrogen, acceptor]: [Point; 3],
        distance: f64,
    ) -> Result<Option<(f64, f64)>, String> {
        let to_donor = measure.difference(hydrogen, donor)?;
        let to_acceptor = measure.difference(hydrogen, acceptor)?;
        let at_hydrogen = || degrees(to_donor, to_acceptor);
        let is_narrow = || {
            let lengths = (square(to_donor) * square(to_acceptor)).sqrt();
            dot(to_donor, to_acceptor) > self.most * lengths && lengths > 0.0
        };
        let from_donor = || -> Result<[f64; 3], String> { measure.difference(donor, acceptor) };
        let at_donor = |to_acceptor| degrees(to_donor.map(|x| -x), to_acceptor);
        Ok(match self.criterion {
            Criterion::DonorHydrogenAcceptor { angle, .. } => {
                if is_narrow() {
                    return Ok(None);
                }
                let found = at_hydrogen();
                (found > angle).then_some((distance, found))
            }
            Criterion::HydrogenAcceptor {
                distance: limit,
                angle,
            } => {
                if distance >= limit || is_narrow() {
                    return Ok(None);
                }
                let found = at_hydrogen();
                if found > angle {
                    Some((square(from_donor()?).sqrt(), found))
                } else {
                    None
                }
            }
            Criterion::AtDonor { angle, .. } => {
                let found = at_donor(from_donor()?);
                (found <= angle).then(|| (distance, at_hydrogen()))
            }
            Criterion::Cone {
                distance: limit,
                slope,
            } => {
                let found = at_donor(from_donor()?);
                (distance < limit - slope * found * found).then(|| (distance, at_hydrogen()))
            }
        })
    }
}

/// Compute the angle between two vectors in degrees, with the rounding of MDAnalysis.
fn degrees(a: [f64; 3], b: [f64; 3]) -> f64 {
    let cross = [
        a[1] * b[2] - a[2] * b[1],
        -a[0] * b[2] + a[2] * b[0],
        a[0] * b[1] - a[1] * b[0],
    ];
    square(cross).sqrt().atan2(dot(a, b)) * (180.0 / PI)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::Random;

    const NONE: [f32; 6] = [0.0; 6];
    const MDANALYSIS: Criterion = Criterion::DonorHydrogenAcceptor {
        distance: 3.0,
        angle: 150.0,
    };

    fn bonded(within: Option<f64>) -> Donors {
        Donors {
            donors: vec![0],
            hydrogens: vec![1],
            within,
        }
    }

    fn found(task: &HydrogenBonds, frame: &[f32], cell: [f32; 6]) -> Result<Vec<Bond>, String> {
        let frames = Frames::new(frame, frame.len() / 3, &cell).expect("a frame");
        let (mut counts, mut bonds) = (Vec::new(), Vec::new());
        match task
            .find(&frames, &mut counts, |_, found| bonds.extend(found))
            .expect("a block")
        {
            Some((_, reason)) => Err(reason),
            None => Ok(bonds),
        }
    }

    /// Return a donor at the origin, its hydrogen 1 Å away along x, and an acceptor.
    fn frame(distance: f64, degrees_at_donor: f64) -> Vec<f32> {
        let (sin, cos) = degrees_at_donor.to_radians().sin_cos();
        let acceptor = [distance * cos, distance * sin, 0.0].map(|x| x as f32);
        [&[0.0, 0.0, 0.0, 1.0, 0.0, 0.0], &acceptor[..]].concat()
    }

    #[test]
    fn each_criterion_is_that_of_its_authors() {
        let baker = Criterion::HydrogenAcceptor {
            distance: 2.5,
            angle: 120.0,
        };
        let luzar = Criterion::AtDonor {
            distance: 3.5,
            angle: 30.0,
        };
        let wernet = Criterion::Cone {
            distance: 3.3,
            slope: 0.00044,
        };
        // Distance (Å) and angle (degrees) at the donor. In the first four rows, the angles at the
        // hydrogen are 180, 157.4, 137.5 and 134.9°.
        for (distance, degrees, wanted) in [
            (2.9, 0.0, [true, true, true, true]),
            (2.9, 15.0, [true, true, true, true]),
            (2.9, 29.0, [false, true, true, true]),
            (2.9, 31.0, [false, true, false, false]),
            (3.2, 0.0, [false, true, true, true]),
            (3.4, 0.0, [false, true, true, false]),
            (3.2, 20.0, [false, true, true, false]),
            (3.6, 0.0, [false, false, false, false]),
            (1.5, 55.0, [false, false, false, true]),
            (1.0, 0.0, [false, false, false, false]),
        ] {
            let frame = frame(distance, degrees);
            let all = [MDANALYSIS, baker, luzar, wernet].map(|criterion| {
                let task = HydrogenBonds::new(bonded(None), vec![2], None, criterion);
                let bonds = found(&task.expect("atoms"), &frame, NONE).expect("a frame");
                if let [(atoms, length, _)] = bonds[..] {
                    assert_eq!(atoms, [0, 1, 2]);
                    assert!((length - distance).abs() < 1e-6);
                }
                bonds.len() == 1
            });
            if distance == 1.5 {
                // The angle at the donor is large: of the two criteria that use this angle, only
                // the cone accepts it.
                assert_eq!(all[2..], [false, wanted[3]], "{distance} Å, {degrees}°");
            } else {
                assert_eq!(all, wanted, "{distance} Å, {degrees}°");
            }
        }
    }

    #[test]
    fn images_of_atoms_do_not_matter() {
        let mut random = Random(72);
        for cell in [
            [20.0, 24.0, 28.0, 90.0, 90.0, 90.0],
            [30.0, 30.0, 30.0, 60.0, 60.0, 90.0],
            [31.0, 23.0, 27.0, 80.0, 100.0, 115.0],
        ] {
            let vectors = *Cell::new(cell).expect("a cell").vectors();
            for _ in 0..50 {
                let mut atoms = frame(2.8, 10.0);
                for atom in atoms.as_chunks_mut::<3>().0 {
                    let images = random.vector::<3>().map(|x| (2.4 * x).round());
                    for (k, x) in atom.iter_mut().enumerate() {
                        *x += (0..3)
                            .map(|axis| images[axis] * vectors[axis][k])
                            .sum::<f64>() as f32;
                    }
                }
                for within in [None, Some(1.2)] {
                    let task = HydrogenBonds::new(bonded(within), vec![2], None, MDANALYSIS);
                    let bonds = found(&task.expect("atoms"), &atoms, cell).expect("a cell");
                    assert_eq!(bonds.len(), 1, "{cell:?}");
                    assert!((bonds[0].1 - 2.8).abs() < 1e-4);
                }
            }
        }
    }

    #[test]
    fn parts_and_atoms_that_are_given_twice() {
        // Two donors, each with a hydrogen, share an acceptor. The first donor is listed twice.
        let frame = [
            0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 5.6, 0.0, 0.0, 4.6, 0.0, 0.0, 2.8, 0.0, 0.0,
        ];
        let donors = Donors {
            donors: vec![2, 0, 0],
            hydrogens: vec![3, 1, 1],
            within: None,
        };
        let names = |parts| {
            let task = HydrogenBonds::new(donors.clone(), vec![4, 0], parts, MDANALYSIS);
            let bonds = found(&task.expect("atoms"), &frame, NONE).expect("a frame");
            bonds.iter().map(|bond| bond.0).collect::<Vec<_>>()
        };
        assert_eq!(names(None), [[2, 3, 4], [0, 1, 4], [0, 1, 4]]);
        let parts = |allowed| BondClasses {
            donors: vec![1, 0, 0],
            acceptors: vec![1, 0],
            allowed,
            n_acceptors: 2,
        };
        assert_eq!(
            names(Some(parts(vec![true, false, true, true]))),
            [[2, 3, 4]]
        );
        assert!(names(Some(parts(vec![false; 4]))).is_empty());
    }

    /// Return molecules of a donor with two hydrogens. Some molecules lie some cells away.
    fn molecules(random: &mut Random, n: usize, cell: [f32; 6]) -> Vec<f32> {
        let cell = Cell::new(cell).ok();
        let mut frame = Vec::new();
        for _ in 0..n {
            let at = random.vector::<3>().map(|x| 15.0 * (x + 1.0));
            let images = random.vector::<3>().map(|x| (1.4 * x).round());
            let at = cell.map_or(at, |cell| cell.shifted(at, images));
            let bonds = [[0.0; 3], random.vector(), random.vector()];
            for bond in bonds {
                frame.extend((0..3).map(|k| (at[k] + 0.7 * bond[k]) as f32));
            }
        }
        frame
    }

    #[test]
    fn either_order_of_searches_finds_the_same_to_the_bit() {
        let mut random = Random(76);
        let gromacs = Criterion::AtDonor {
            distance: 3.5,
            angle: 60.0,
        };
        let cone = Criterion::Cone {
            distance: 4.0,
            slope: 0.0004,
        };
        let mut n_found = 0;
        for cell in [
            [30.0, 30.0, 30.0, 90.0, 90.0, 90.0],
            // In this cell the search compares all pairs, unless there are very many.
            [9.0, 30.0, 30.0, 90.0, 90.0, 90.0],
            [30.0, 30.0, 30.0, 60.0, 60.0, 90.0],
            [31.0, 28.0, 27.0, 80.0, 100.0, 115.0],
            NONE,
        ] {
            for (n, with_parts) in [(400, true), (400, false), (8, false), (2, true), (40, true)] {
                let frame = molecules(&mut random, n, cell);
                // The last donor is listed twice. Most donors have two hydrogens; some have none or
                // more than two.
                let mut donors: Vec<u32> = (0..n as u32).map(|k| 3 * k).rev().collect();
                donors.push(donors[n - 1]);
                let hydrogens = (0..3 * n as u32).filter(|k| k % 3 > 0).collect();
                let acceptors: Vec<u32> = (0..n as u32).map(|k| 3 * k).collect();
                // Only bonds between the first tenth of the molecules and the others are allowed.
                let part = |atoms: &[u32]| -> Vec<u32> {
                    let is_other = |&atom: &u32| u32::from(10 * atom >= 3 * n as u32);
                    atoms.iter().map(is_other).collect()
                };
                let parts = with_parts.then(|| BondClasses {
                    donors: part(&donors),
                    acceptors: part(&acceptors),
                    allowed: vec![false, true, true, false],
                    n_acceptors: 2,
                });
                let donors = Donors {
                    donors,
                    hydrogens,
                    within: Some(1.1),
                };
                for criterion in [MDANALYSIS, gromacs, cone] {
                    let task = HydrogenBonds::new(
                        donors.clone(),
                        acceptors.clone(),
                        parts.clone(),
                        criterion,
                    );
                    let task = task.expect("atoms");
                    let other_way = HydrogenBonds {
                        searches: None,
                        ..task.clone()
                    };
                    let [bonds, wanted] =
                        [&task, &other_way].map(|task| found(task, &frame, cell).expect("a cell"));
                    n_found += wanted.len();
                    let bits = |bonds: &[Bond]| -> Vec<_> {
                        let bits = |&(atoms, x, y): &Bond| (atoms, x.to_bits(), y.to_bits());
                        bonds.iter().map(bits).collect()
                    };
                    assert_eq!(bits(&bonds), bits(&wanted), "{cell:?} {n} {criterion:?}");
                    let mut lost = frame.clone();
                    lost[3 * (3 * n - 1)] = f32::NAN;
                    let reasons = [&task, &other_way].map(|task| found(task, &lost, cell));
                    assert_eq!(reasons[0], reasons[1]);
                    assert!(reasons[0].is_err());
                }
            }
        }
        assert!(n_found > 1000, "{n_found}");
    }

    #[test]
    fn an_atom_is_no_donor_of_itself() {
        let at_donor = Criterion::AtDonor {
            distance: 3.5,
            angle: 30.0,
        };
        let cone = Criterion::Cone {
            distance: 3.3,
            slope: 0.00044,
        };
        let frame = [0.0, 0.0, 0.0, 1.0, 0.0, 0.0, -1.6, -1.6, -1.6];
        for criterion in [MDANALYSIS, at_donor, cone] {
            for within in [None, Some(0.5)] {
                let donors = Donors {
                    donors: vec![0],
                    hydrogens: vec![0],
                    within,
                };
                let task = HydrogenBonds::new(donors, vec![2], None, criterion).expect("atoms");
                assert_eq!(found(&task, &frame, NONE), Ok(vec![]), "{criterion:?}");
            }
        }
    }

    #[test]
    fn what_does_not_belong_together_is_refused() {
        let task = |donors, criterion| HydrogenBonds::new(donors, vec![2], None, criterion);
        let two = Donors {
            hydrogens: vec![1, 2],
            ..bonded(None)
        };
        assert!(task(two, MDANALYSIS).is_err());
        assert!(task(bonded(Some(0.0)), MDANALYSIS).is_err());
        let none = Criterion::AtDonor {
            distance: -1.0,
            angle: 30.0,
        };
        assert!(task(bonded(None), none).is_err());
        let baker = Criterion::HydrogenAcceptor {
            distance: 2.5,
            angle: 120.0,
        };
        for criterion in [MDANALYSIS, baker] {
            let task = task(bonded(None), criterion).expect("atoms");
            for lost in [0, 3, 6] {
                let mut frame = frame(2.8, 5.0);
                frame[lost] = f32::NAN;
                let refused = found(&task, &frame, NONE);
                assert!(refused.is_err_and(|reason| reason.contains("finite")));
            }
        }
        let task = task(bonded(None), MDANALYSIS).expect("atoms");
        let frames = Frames::new(&[0.0; 6], 2, &NONE).expect("a frame");
        assert!(task.find(&frames, &mut Vec::new(), |_, _| ()).is_err());
    }
}
