//! Updating groups: evaluation of an MDAnalysis selection tree in each frame.
//!
//! Each node of the tree is applied to a group of atoms and returns atoms, like `Selection.apply`
//! of MDAnalysis. Distances and their limits are rounded as in MDAnalysis. Parts of the tree that
//! do not depend on positions are passed as lists of atoms. An atom is identified by its index
//! among the atoms that are read.

use super::cell::{Cell, is_placeholder};
use super::cells_in_standard_form::Placement;
use super::near_pairs::{Atoms, Measure, Point, Search, cell_for, extent_of, finite};
use super::row_kernel::{Frames, cell_or_none};
use super::transform_common::Refused;
use crate::threads_within_frame::{MANY, change};
use paceline_base::error::{self, Error};

/// Label of an atom that matches no other atom.
pub const NO_LABEL: u32 = u32::MAX;

/// Comparison of a coordinate with a number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Comparison {
    /// Greater than the number.
    Greater,
    /// Greater than the number, or equal to it.
    GreaterOrEqual,
    /// Less than the number.
    Less,
    /// Less than the number, or equal to it.
    LessOrEqual,
    /// Unequal to the number.
    NotEqual,
    /// Within this distance of the number, Å.
    Close(f32),
}

/// Node of a selection tree. A node refers to other nodes by their numbers, which must be smaller
/// than its own.
#[derive(Debug, Clone, PartialEq)]
pub enum Node {
    /// The group itself.
    All,
    /// The same atoms in each frame, for any group.
    Fixed(Vec<u32>),
    /// Atoms in both selections. The second selection is evaluated only for atoms in the first.
    And([usize; 2]),
    /// Atoms that are in at least one of two selections.
    Or([usize; 2]),
    /// Atoms of the group that are not in the selection.
    Not(usize),
    /// Selection that is applied to all atoms of the Universe instead of the group.
    Global(usize),
    /// Atoms of the group that are also in an updating group.
    Group(Group),
    /// Atoms within `outer` of any atom of another selection, and farther than `inner` from all of
    /// its atoms. Atoms of the other selection are excluded.
    Near {
        /// Number of the other selection.
        of: usize,
        /// Inner distance, Å.
        inner: Option<f64>,
        /// Outer distance, Å.
        outer: f64,
        /// True to measure distances between nearest images.
        periodic: bool,
    },
    /// Atoms within `outer` of a center, and farther than `inner` from it.
    Sphere {
        /// Center of the sphere.
        center: Center,
        /// Inner distance, Å.
        inner: Option<f64>,
        /// Outer distance, Å.
        outer: f64,
        /// True to measure distances between nearest images.
        periodic: bool,
    },
    /// Atoms in a cylinder along z around the center of another selection.
    Cylinder {
        /// Number of the other selection.
        of: usize,
        /// Square of the inner radius, Å².
        inner: Option<f64>,
        /// Square of the outer radius, Å².
        outer: f64,
        /// Outer radius, Å.
        radius: f64,
        /// Minimum and maximum height above the center, Å.
        z: [f64; 2],
        /// True to measure distances between nearest images.
        periodic: bool,
    },
    /// Atoms selected by comparing a coordinate with a number.
    Coordinate {
        /// 0 for x, 1 for y, 2 for z.
        axis: usize,
        /// True to compare the absolute value of the coordinate.
        absolute: bool,
        /// Comparison with the number.
        comparison: Comparison,
        /// Number to compare with, Å.
        value: f32,
    },
    /// Atoms with the label of an atom of another selection.
    Same {
        /// Number of the other selection.
        of: usize,
        /// Labels of the atoms; atoms with equal labels match.
        labels: Vec<u32>,
    },
    /// Atoms with a coordinate approximately equal to that of any atom of another selection.
    SameCoordinate {
        /// Number of the other selection.
        of: usize,
        /// 0 for x, 1 for y, 2 for z.
        axis: usize,
    },
}

/// Center of a sphere.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Center {
    /// Center of geometry of a selection.
    Of(usize),
    /// A fixed point, Å.
    At(Point),
}

/// Updating group: the atoms that each of some selections finds in a base group.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// Selection of the base group from all atoms.
    pub base: usize,
    /// Number of atoms of the base group, including atoms that are not read; `None` if it varies.
    pub n_base: Option<usize>,
    /// Selections that are applied to the base group, each by itself. Their atoms are joined in
    /// this order.
    pub selections: Vec<usize>,
}

/// Finds the atoms of an updating group in each frame.
#[derive(Debug, Clone)]
pub struct Selected {
    nodes: Vec<Node>,
    group: Group,
    /// Columns of the atoms in a block; `None` if the atoms are all columns, in order.
    columns: Option<Vec<u32>>,
    n_atoms: usize,
    n_universe: usize,
    /// False if groups contain atoms that are not read. Frames without a cell are then refused by
    /// searches for near atoms, because these searches depend on the extent of all atoms.
    complete: bool,
}

type Mask = Vec<bool>;

/// Atoms to which a selection is applied.
struct Domain {
    mask: Mask,
    /// Number of atoms, including atoms that are not read.
    total: usize,
}

/// Masks and lists that are reused from frame to frame.
#[derive(Default)]
struct Scratch {
    spare: Vec<Mask>,
    search: Search,
}

/// Data of one frame.
struct Context<'a> {
    positions: &'a [Point],
    /// Positions in the orientation of the file.
    stored: &'a [Point],
    /// Placement of the frame, if it was converted.
    placement: Option<&'a Placement>,
    columns: Option<&'a [u32]>,
    dimensions: [f32; 6],
    n_atoms: usize,
    scratch: &'a mut Scratch,
}

impl Context<'_> {
    fn at(&self, place: u32) -> Point {
        self.positions[column(self.columns, place)]
    }

    /// Return a coordinate in the orientation of the file, Å.
    fn coordinate(&self, place: u32, axis: usize) -> Result<f32, String> {
        Ok(finite(self.stored[column(self.columns, place)])?[axis])
    }

    /// Return a mask that is set for all atoms, or for none.
    fn mask(&mut self, of: bool) -> Mask {
        let mut mask = self.scratch.spare.pop().unwrap_or_default();
        mask.clear();
        mask.resize(self.n_atoms, of);
        mask
    }

    fn recycle(&mut self, mask: Mask) {
        self.scratch.spare.push(mask);
    }

    /// Return the cell of the frame; `None` if it has none, or the search is not periodic.
    fn cell(&self, periodic: bool, needed_by: &str) -> Result<Option<Cell>, String> {
        if !periodic || is_placeholder(self.dimensions) {
            return Ok(None);
        }
        cell_or_none(self.dimensions, needed_by)
    }

    /// Compute the center of some atoms, summed in their order.
    fn center(&self, atoms: &[u32]) -> Result<[f64; 3], String> {
        let mut sum = [0.0; 3];
        for &atom in atoms {
            for (sum, x) in sum.iter_mut().zip(finite(self.at(atom))?) {
                *sum += f64::from(x);
            }
        }
        Ok(sum.map(|sum| sum / atoms.len() as f64))
    }
}

fn column(columns: Option<&[u32]>, place: u32) -> usize {
    columns.map_or(place as usize, |all| all[place as usize] as usize)
}

impl Selected {
    /// Create a search. `n_atoms` atoms are read, in `columns` of a block, from a Universe of
    /// `n_universe` atoms. `complete` is true if the groups of all nodes contain only atoms that
    /// are read.
    ///
    /// # Errors
    /// [`Error::Argument`] if a node or an atom is out of range.
    pub fn new(
        nodes: Vec<Node>,
        group: Group,
        columns: Option<Vec<u32>>,
        [n_atoms, n_universe]: [usize; 2],
        complete: bool,
    ) -> error::Result<Self> {
        let known = |inputs: &[usize], before: usize| inputs.iter().all(|&input| input < before);
        for (number, node) in nodes.iter().enumerate() {
            let is_known = match node {
                Node::All | Node::Coordinate { axis: 0..3, .. } => true,
                Node::Coordinate { .. } => false,
                Node::Fixed(atoms) => atoms.iter().all(|&atom| (atom as usize) < n_atoms),
                Node::And(inputs) | Node::Or(inputs) => known(inputs, number),
                Node::Not(of) | Node::Global(of) | Node::Near { of, .. } => *of < number,
                Node::Cylinder { of, .. } => *of < number,
                Node::Group(group) => group.base < number && known(&group.selections, number),
                Node::Sphere { center, .. } => !matches!(center, Center::Of(of) if *of >= number),
                Node::Same { of, labels } => *of < number && labels.len() == n_atoms,
                Node::SameCoordinate { of, axis } => *of < number && *axis < 3,
            };
            if !is_known {
                return Err(Error::Argument(format!("selection {number} is incomplete")));
            }
        }
        if group.base >= nodes.len() || !known(&group.selections, nodes.len()) {
            return Err(Error::Argument("a selection is missing".to_string()));
        }
        if columns.as_ref().is_some_and(|all| all.len() != n_atoms) {
            return Err(Error::Argument(format!("expected {n_atoms} columns")));
        }
        Ok(Selected {
            nodes,
            group,
            columns,
            n_atoms,
            n_universe,
            complete,
        })
    }

    /// Find the atoms in each frame of a block. Append them to `atoms`, frame by frame and in
    /// ascending order for each selection, and their number to `counts`. Return the first frame
    /// that cannot be searched, with the reason.
    ///
    /// # Errors
    /// [`Error::Argument`] if the block lacks some of the atoms.
    pub fn find(
        &self,
        frames: &Frames<'_>,
        counts: &mut Vec<i64>,
        atoms: &mut Vec<u32>,
    ) -> error::Result<Option<Refused>> {
        let last = match &self.columns {
            Some(columns) => columns.iter().max().map_or(0, |&last| last as usize + 1),
            None => self.n_atoms,
        };
        if last > frames.n_atoms() {
            return Err(Error::Argument("an atom is out of range".to_string()));
        }
        let mut scratch = Scratch::default();
        Ok(frames.try_each_row(|row, frame, dimensions| {
            let (stored, placement) = frames.before(row);
            let mut context = Context {
                positions: frame.as_chunks().0,
                stored: stored.as_chunks().0,
                placement,
                columns: self.columns.as_deref(),
                dimensions,
                n_atoms: self.n_atoms,
                scratch: &mut scratch,
            };
            let before = atoms.len();
            self.frame(&mut context, atoms)?;
            counts.push((atoms.len() - before) as i64);
            Ok(())
        }))
    }

    fn frame(&self, context: &mut Context<'_>, atoms: &mut Vec<u32>) -> Result<(), String> {
        let base = self.base(&self.group, context)?;
        for &selection in &self.group.selections {
            let mask = self.apply(selection, &base, None, context)?;
            atoms.extend(places(&mask));
            context.recycle(mask);
        }
        context.recycle(base.mask);
        Ok(())
    }

    /// Return the base group of an updating group.
    fn base(&self, group: &Group, context: &mut Context<'_>) -> Result<Domain, String> {
        let all = Domain {
            mask: context.mask(true),
            total: self.n_universe,
        };
        let mask = self.apply(group.base, &all, None, context)?;
        context.recycle(all.mask);
        let total = group.n_base.unwrap_or_else(|| count(&mask));
        Ok(Domain { mask, total })
    }

    /// Apply a selection to a group, and keep only atoms in `wanted`; `None` keeps all atoms.
    fn apply(
        &self,
        number: usize,
        domain: &Domain,
        wanted: Option<&[bool]>,
        context: &mut Context<'_>,
    ) -> Result<Mask, String> {
        let mut found = context.mask(false);
        match &self.nodes[number] {
            Node::All => copy_within(&mut found, &domain.mask, wanted),
            Node::Fixed(atoms) => {
                for &atom in atoms {
                    found[atom as usize] = wanted.is_none_or(|wanted| wanted[atom as usize]);
                }
            }
            Node::And([first, second]) => {
                let first = self.apply(*first, domain, wanted, context)?;
                let both = self.apply(*second, domain, Some(&first), context)?;
                context.recycle(first);
                context.recycle(std::mem::replace(&mut found, both));
            }
            Node::Or(inputs) => {
                for &input in inputs {
                    let one = self.apply(input, domain, wanted, context)?;
                    add(&mut found, &one);
                    context.recycle(one);
                }
            }
            Node::Not(of) => {
                let of = self.apply(*of, domain, wanted, context)?;
                copy_within(&mut found, &domain.mask, wanted);
                remove(&mut found, &of);
                context.recycle(of);
            }
            Node::Global(of) => {
                let all = Domain {
                    mask: context.mask(true),
                    total: self.n_universe,
                };
                let of = self.apply(*of, &all, wanted, context)?;
                context.recycle(all.mask);
                context.recycle(std::mem::replace(&mut found, of));
            }
            Node::Group(group) => {
                let base = self.base(group, context)?;
                for &selection in &group.selections {
                    let one = self.apply(selection, &base, wanted, context)?;
                    add(&mut found, &one);
                    context.recycle(one);
                }
                context.recycle(base.mask);
                keep(&mut found, &domain.mask);
            }
            Node::Near {
                of,
                inner,
                outer,
                periodic,
            } => {
                let of = self.apply(*of, domain, None, context)?;
                let limits = (*inner, *outer, *periodic);
                self.near(&of, limits, domain, wanted, &mut found, context)?;
                context.recycle(of);
            }
            Node::Sphere {
                center,
                inner,
                outer,
                periodic,
            } => {
                let center = match center {
                    Center::At(center) => Some(match context.placement {
                        Some(placement) => placement.placed(*center),
                        None => *center,
                    }),
                    Center::Of(of) => {
                        let center = self.center_of(*of, domain, context)?;
                        center.map(|center| center.map(|x| x as f32))
                    }
                };
                copy_within(&mut found, &domain.mask, wanted);
                let limits = (*inner, *outer, *periodic);
                keep_in_sphere(&mut found, center, limits, domain.total, context)?;
            }
            Node::Cylinder { of, periodic, .. } => {
                let center = self.center_of(*of, domain, context)?;
                if let Some(center) = center.filter(|_| domain.total > 0) {
                    let needed_by = "a selection within a cylinder";
                    let cell = context.cell(*periodic, needed_by)?;
                    if context.placement.is_some() {
                        return Err(format!(
                            "{needed_by} along z needs a cell that is upright and periodic, with \
                             short vectors, and the cell of this frame is not: remove a fit that rotates, \
                             or fit with rotation=False"
                        ));
                    }
                    copy_within(&mut found, &domain.mask, wanted);
                    let cell = cell.map(|cell| (cell, context.dimensions));
                    let is_in = cylinder(&self.nodes[number], center, cell)?;
                    keep_where(&mut found, |place| Ok(is_in(finite(context.at(place))?)))?;
                }
            }
            Node::Coordinate {
                axis,
                absolute,
                comparison,
                value,
            } => {
                copy_within(&mut found, &domain.mask, wanted);
                for (found, place) in found.iter_mut().zip(0..).filter(|(found, _)| **found) {
                    let x = context.coordinate(place, *axis)?;
                    let x = if *absolute { x.abs() } else { x };
                    *found = comparison.holds(x, *value);
                }
            }
            Node::Same { of, labels } => {
                let of = self.apply(*of, domain, None, context)?;
                let known = labels.iter().filter(|&&label| label != NO_LABEL);
                let mut chosen = vec![false; known.max().map_or(0, |&last| last as usize + 1)];
                for place in places(&of) {
                    if let Some(chosen) = chosen.get_mut(labels[place as usize] as usize) {
                        *chosen = true;
                    }
                }
                context.recycle(of);
                copy_within(&mut found, &domain.mask, wanted);
                for (found, &label) in found.iter_mut().zip(labels) {
                    *found &= chosen.get(label as usize).is_some_and(|&chosen| chosen);
                }
            }
            Node::SameCoordinate { of, axis } => {
                let of = self.apply(*of, domain, None, context)?;
                let mut values = Vec::new();
                for place in places(&of) {
                    values.push(context.coordinate(place, *axis)?);
                }
                context.recycle(of);
                values.sort_unstable_by(f32::total_cmp);
                copy_within(&mut found, &domain.mask, wanted);
                for (found, place) in found.iter_mut().zip(0..).filter(|(found, _)| **found) {
                    *found = is_close_to_any(context.coordinate(place, *axis)?, &values);
                }
            }
        }
        Ok(found)
    }

    /// Return the center of the atoms selected from a group; `None` if there are no atoms.
    fn center_of(
        &self,
        number: usize,
        domain: &Domain,
        context: &mut Context<'_>,
    ) -> Result<Option<[f64; 3]>, String> {
        let of = self.apply(number, domain, None, context)?;
        let atoms = places(&of);
        context.recycle(of);
        match &atoms[..] {
            [] => Ok(None),
            some => context.center(some).map(Some),
        }
    }

    /// Add the atoms of a group within a distance of other atoms, excluding the other atoms
    /// themselves.
    fn near(
        &self,
        of: &[bool],
        (inner, outer, periodic): (Option<f64>, f64, bool),
        domain: &Domain,
        wanted: Option<&[bool]>,
        found: &mut Mask,
        context: &mut Context<'_>,
    ) -> Result<(), String> {
        let n_others = of
            .iter()
            .zip(&domain.mask)
            .filter(|(of, is_in)| **of && **is_in);
        let sizes = [count(of), domain.total - n_others.count()];
        if sizes.contains(&0) {
            return Ok(());
        }
        copy_within(found, &domain.mask, wanted);
        remove(found, of);
        let (of_places, candidates) = (places(of), places(found));
        found.fill(false);
        let needed_by = "a selection around others";
        let cell = match periodic {
            true => cell_for(context.dimensions, outer, needed_by)?,
            false => None,
        };
        if periodic && cell.is_none() && !self.complete {
            let missing = super::cell::NoCell::Missing;
            return Err(format!(
                "{}: the current frame of the Universe has a cell; go to one without a cell, or \
                 select with periodic=False",
                missing.reason(needed_by)
            ));
        }
        let (frame, columns) = (context.positions, context.columns);
        let atoms = |places| Atoms {
            frame,
            columns,
            places,
        };
        let of_atoms = atoms(&of_places);
        let extent = || {
            let others = (0..).zip(domain.mask.iter().zip(of));
            let others = others.filter(|(_, (is_in, is_of))| **is_in && !**is_of);
            let others = others.map(|(place, _)| of_atoms.at(place));
            extent_of(others.chain(of_atoms.positions()))
        };
        let search = &mut context.scratch.search;
        let measure = Measure::new(cell, sizes, outer, extent);
        search.mark_near(&measure, of_atoms, atoms(&candidates), found)?;
        if let Some(inner) = inner {
            let mut nearer = vec![false; found.len()];
            let measure = Measure::new(cell, sizes, inner, extent);
            search.mark_near(&measure, of_atoms, atoms(&places(found)), &mut nearer)?;
            remove(found, &nearer);
        }
        Ok(())
    }
}

impl Comparison {
    fn holds(self, x: f32, value: f32) -> bool {
        match self {
            Comparison::Greater => x > value,
            Comparison::GreaterOrEqual => x >= value,
            Comparison::Less => x < value,
            Comparison::LessOrEqual => x <= value,
            Comparison::NotEqual => x != value,
            Comparison::Close(tolerance) => (x - value).abs() <= tolerance,
        }
    }
}

/// Keep atoms within `outer` of a center, and farther than `inner`. Without a center, keep no
/// atoms.
fn keep_in_sphere(
    found: &mut Mask,
    center: Option<Point>,
    (inner, outer, periodic): (Option<f64>, f64, bool),
    total: usize,
    context: &Context<'_>,
) -> Result<(), String> {
    let cell = context.cell(periodic, "a selection within a sphere")?;
    let measure = Measure::new(cell, [1, total], outer, || [[0.0; 3]; 2]);
    keep_where(found, |place| {
        let x = finite(context.at(place))?;
        match center {
            Some(center) => {
                let distance = measure.within(center, x)?;
                Ok(distance.is_some_and(|distance| inner.is_none_or(|inner| distance > inner)))
            }
            None => Ok(false),
        }
    })
}

/// Keep the atoms of a mask whose positions meet a condition.
fn keep_where(
    found: &mut Mask,
    holds: impl Fn(u32) -> Result<bool, String> + Sync,
) -> Result<(), String> {
    let done = change(found, MANY, |first, found| {
        let places = first as u32..;
        for (is_in, place) in found.iter_mut().zip(places).filter(|(is_in, _)| **is_in) {
            *is_in = holds(place)?;
        }
        Ok(())
    });
    done.into_iter().collect()
}

/// Return a test whether a position is in a cylinder around a center, with nearest images if there
/// is a cell.
fn cylinder(
    node: &Node,
    center: [f64; 3],
    cell: Option<(Cell, [f32; 6])>,
) -> Result<impl Fn(Point) -> bool + Sync + use<>, String> {
    let Node::Cylinder {
        inner,
        outer,
        radius,
        z: [low, high],
        ..
    } = *node
    else {
        return Err("not a cylinder".to_string());
    };
    if let Some((_, dimensions)) = &cell {
        let sizes = [2.0 * radius, 2.0 * radius, high - low];
        let names = ["diameter", "diameter", "height"];
        for (k, axis) in ["x", "y", "z"].into_iter().enumerate() {
            if sizes[k] as f32 > dimensions[k] {
                return Err(format!(
                    "the {} of a cylinder, {} Å, is larger than the cell along {axis}, {} Å",
                    names[k], sizes[k], dimensions[k]
                ));
            }
        }
    }
    Ok(move |x: Point| {
        let mut d: [f64; 3] = std::array::from_fn(|k| f64::from(x[k]) - center[k]);
        match &cell {
            Some((cell, _)) if cell.is_triclinic() => {
                for axis in [2, 1, 0] {
                    let vector = cell.vectors()[axis];
                    let number = (d[axis] / vector[axis]).round_ties_even();
                    d = std::array::from_fn(|k| d[k] - vector[k] * number);
                }
            }
            Some((_, dimensions)) => {
                d = std::array::from_fn(|k| {
                    let edge = f64::from(dimensions[k]);
                    d[k] - edge * (d[k] / edge).round_ties_even()
                });
            }
            None => {}
        }
        let square = d[0] * d[0] + d[1] * d[1];
        d[2] > low && d[2] < high && square < outer && inner.is_none_or(|inner| square > inner)
    })
}

/// Return true if a number is close to any of the sorted `values`, with the default tolerances of
/// `numpy.isclose`.
fn is_close_to_any(x: f32, values: &[f32]) -> bool {
    let (relative, absolute) = (1e-5_f32, 1e-8_f32);
    // This bound exceeds the tolerance, whichever of the two numbers is larger.
    let beyond = 1e-7 + 2e-5 * f64::from(x).abs();
    let first = values.partition_point(|&v| f64::from(v) < f64::from(x) - beyond);
    values[first..]
        .iter()
        .take_while(|&&v| f64::from(v) <= f64::from(x) + beyond)
        .any(|&v| (x - v).abs() <= absolute + relative * v.abs())
}

/// Return the indices set in a mask. The loop has no branches: it writes each index, and advances
/// only if the mask is set.
fn places(mask: &[bool]) -> Vec<u32> {
    let mut places = vec![0; mask.len()];
    let mut n = 0;
    for (place, &is_in) in (0..).zip(mask) {
        places[n] = place;
        n += usize::from(is_in);
    }
    places.truncate(n);
    places
}

fn count(mask: &[bool]) -> usize {
    mask.iter().filter(|&&is_in| is_in).count()
}

fn copy_within(to: &mut [bool], from: &[bool], wanted: Option<&[bool]>) {
    match wanted {
        None => to.copy_from_slice(from),
        Some(wanted) => {
            for ((to, &from), &wanted) in to.iter_mut().zip(from).zip(wanted) {
                *to = from & wanted;
            }
        }
    }
}

fn add(to: &mut [bool], other: &[bool]) {
    to.iter_mut()
        .zip(other)
        .for_each(|(to, &other)| *to |= other);
}

fn keep(to: &mut [bool], other: &[bool]) {
    to.iter_mut()
        .zip(other)
        .for_each(|(to, &other)| *to &= other);
}

fn remove(to: &mut [bool], other: &[bool]) {
    to.iter_mut()
        .zip(other)
        .for_each(|(to, &other)| *to &= !other);
}

#[cfg(test)]
mod tests;
