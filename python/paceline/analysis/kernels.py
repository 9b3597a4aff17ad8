"""Worker parts of analyses that call the compiled kernels. Does not import MDAnalysis."""

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from paceline import _core
from paceline.block import PERIODIC, Block, check_refused
from paceline.contract.analysis_kinds import PerFrame, Ragged, Reduction

if TYPE_CHECKING:
    from paceline.analysis.updating_groups import FixedGroup, GroupFinder
    from paceline.transform.bonds_and_compounds import CompoundCenters


class CorePart:
    """Worker part with a compiled kernel, which is made for the first block and not pickled."""

    returns_new = True
    _bound: Any = None

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "_bound": None}


def columns_of(block: Block) -> np.ndarray:
    """Columns of a block's atoms in the decoded coordinates."""
    positions, columns = block.raw
    return np.arange(positions.shape[1]) if columns is None else columns


def least_width(cells: np.ndarray) -> float:
    """Find the smallest distance between opposite faces of the cells of a block, Å.

    Only faces along periodic vectors are used. The result is infinite without such faces.
    """
    # Python is ten times as fast as NumPy for these few, mostly equal values.
    shapes = {*zip(map(tuple, cells[:, :6].tolist()), cells[:, PERIODIC].tolist(), strict=True)}
    return min((_least_height(*shape) for shape in shapes), default=math.inf)


def _least_height(cell: tuple[float, ...], periodic: float) -> float:
    """Smallest height of a cell, Å; a height is the volume divided by the area of a face.

    `cell` contains three lengths (Å) and three angles (degrees), `periodic` one bit per vector.
    Only heights along periodic vectors are used. Infinite if lengths and angles form no cell.
    """
    lengths = cell[:3]
    if not (all(map(math.isfinite, (*cell, periodic))) and min(lengths) > 0):
        return math.inf
    cosines = [math.cos(math.radians(angle)) for angle in cell[3:]]
    squares = [cosine * cosine for cosine in cosines]
    if max(squares) >= 1:
        return math.inf
    volume = math.sqrt(max(0.0, 1 - sum(squares) + 2 * math.prod(cosines)))
    faces = (math.sqrt(1 - square) for square in squares)
    heights = [length * volume / face for length, face in zip(lengths, faces, strict=True)]
    return min((heights[k] for k in range(3) if int(periodic) >> k & 1), default=math.inf)


def check_finite(block: Block, is_lost: np.ndarray, what: str = "positions") -> None:
    """Raise `ValueError` for the first frame in a mask of frames with non-finite values."""
    if is_lost.any():
        raise ValueError(f"frame {block.frames[is_lost][0]}: {what} are not all finite numbers")


def fill_row(kernel: _core.RowKernel, block: Block, row: int, out: np.ndarray) -> None:
    """Compute the row of one frame of a block into `out`: float64, shape (1, n_columns)."""
    only = slice(row, row + 1)
    check_refused(block[only], kernel.compute(block.raw[0][only], block.cells[only], out))


#: Kinds of rows whose kernels compute parts of a frame on several threads.
_SPLIT = ("contacts", "density_profiles", "pair_distances", "sasa")


class CoreRows(CorePart, PerFrame):
    """Worker part with a row kernel, `_core.RowKernel.kind(columns, *arguments)`.

    With `shape`, the values of a frame are reshaped. With `dtype`, rows are converted to integers,
    which are 0 for frames that were left out.
    """

    def __init__(
        self,
        kind: str,
        *arguments: object,
        shape: tuple[int, ...] | None = None,
        dtype: "DTypeLike | None" = None,
    ):
        self._kind, self._arguments, self._shape, self._dtype = kind, arguments, shape, dtype
        self.splits_frames = kind in _SPLIT

    @property
    def fills_rows(self) -> bool:
        """True if rows can be written to a given array."""
        return self._dtype is None

    def compute(self, block: Block, rows: np.ndarray | None = None) -> np.ndarray:
        """Compute the rows of a block: float64 unless `dtype` is set, shape (n_frames, …).

        The rows are a new array, or written to `rows`.
        """
        positions, columns = block.raw
        if self._bound is None:
            self._bound = getattr(_core.RowKernel, self._kind)(columns, *self._arguments)
        shape = len(positions), self._bound.n_columns
        if rows is not None:
            check_refused(block, self._bound.compute(positions, block.cells, rows.reshape(shape)))
            return rows
        out = np.empty(shape)
        check_refused(block, self._bound.compute(positions, block.cells, out))
        if self._dtype is not None:
            check_finite(block, np.isnan(out[:, :1]).any(axis=1) & (block.held != 0))
            # Integers have no NaN. The rows of frames that were left out are filled later.
            out = np.nan_to_num(out, copy=False).astype(self._dtype)
        return out if self._shape is None else out.reshape(len(out), *self._shape)


class CoreSuperposed(CorePart):
    """Base class of sums over frames of positions, with or without superposition.

    `reference` contains positions (Å) of the first atoms of the analysis. If it is set, these atoms
    are superposed on it with `weights`, and all other atoms move with them. Only the atoms of
    `moved` are accumulated. With `finite`, non-finite positions are an error; otherwise dependent
    values are NaN.
    """

    def __init__(
        self,
        reference: np.ndarray | None = None,
        weights: np.ndarray | None = None,
        moved: slice = slice(None),
        *,
        finite: bool = False,
    ):
        self._reference, self._weights, self._moved = reference, weights, moved
        self._finite = finite

    def bind(self, block: Block) -> tuple[_core.Superposed, int]:
        """Return the kernel for the columns of a block, and the number of atoms of `moved`."""
        if self._bound is None:
            columns, fit = columns_of(block), None
            if self._reference is not None:
                fit = columns[: len(self._reference)], self._reference, self._weights
            moved = columns[self._moved]
            self._bound = _core.Superposed(moved, fit), len(moved)
        return self._bound

    def check(self, block: Block, mean: np.ndarray) -> None:
        """Raise `ValueError` if a non-finite position made the mean NaN."""
        if self._finite and not np.isfinite(mean).all():
            n_fitted = 0 if self._reference is None else len(self._reference)
            groups = block.positions[:, :n_fitted], block.positions[:, self._moved]
            fitted, moved = (~np.isfinite(group).all(axis=(1, 2)) for group in groups)
            check_finite(block, fitted | moved)


#: Number of frames; mean of each value, and sum of squared deviations from it; sum of the RMSDs of
#: frames (Å) after superposition. A plain tuple, because checkpoints store it.
Moments = tuple[int, np.ndarray, np.ndarray, float]


def merge_moments(left: Moments, right: Moments) -> Moments:
    """Add the moments of later frames to the moments of earlier frames in place."""
    count = _core.merge_moments(*left[:3], *right[:3])
    return count, left[1], left[2], left[3] + right[3]


class CoreMoments(CoreSuperposed, Reduction):
    """Moments of each coordinate (Å, Å²), and the sum of the RMSDs after superposition."""

    def compute(self, block: Block) -> Moments:
        """Accumulate the moments of the frames of a block."""
        core, n_atoms = self.bind(block)
        mean, squares = np.zeros((n_atoms, 3)), np.zeros((n_atoms, 3))
        count, rmsd = core.add_to_moments(block.raw[0], mean, squares)
        self.check(block, mean)
        return count, mean, squares, rmsd

    def merge(self, left: Moments, right: Moments) -> Moments:
        """Merge the moments of two adjacent ranges of frames."""
        return merge_moments(left, right)


class RowMoments(Reduction):
    """Moments of each column of rows; long rows are computed for `most` frames at a time."""

    def __init__(self, rows: PerFrame, most: int | None = None):
        self._rows, self._most = rows, most
        self.splits_frames = rows.splits_frames

    def compute(self, block: Block) -> Moments:
        """Compute the moments over the frames of a block: shape (1, n_columns)."""
        if self._most is None or self._most >= len(block):
            return self._accumulate(block)
        parts = (block[k : k + self._most] for k in range(0, len(block), self._most))
        return reduce(merge_moments, map(self._accumulate, parts))

    def _accumulate(self, block: Block) -> Moments:
        rows = self._rows.compute(block)
        mean, squares = np.zeros((1, rows.shape[1])), np.zeros((1, rows.shape[1]))
        return _core.accumulate_rows(rows, mean, squares), mean, squares, 0.0

    def merge(self, left: Moments, right: Moments) -> Moments:
        """Merge the moments of two adjacent ranges of frames."""
        return merge_moments(left, right)


#: Number of frames; mean of each coordinate (Å); sums of the products of deviations (Å²), as the
#: upper triangle of the matrix, row by row.
CovarianceSums = tuple[int, np.ndarray, np.ndarray]


class CoreCovariance(CoreSuperposed, Reduction):
    """Means and sums of products of deviations of all coordinates."""

    def compute(self, block: Block) -> CovarianceSums:
        """Accumulate the means and products of the frames of a block."""
        core, n_atoms = self.bind(block)
        n = 3 * n_atoms
        mean, products = np.zeros((n_atoms, 3)), np.zeros(n * (n + 1) // 2)
        count = core.add_to_covariance(block.raw[0], mean, products)
        self.check(block, mean)
        return count, mean, products

    def merge(self, left: CovarianceSums, right: CovarianceSums) -> CovarianceSums:
        """Merge the sums of two adjacent ranges of frames."""
        count = _core.merge_covariance(*left, *right)
        return count, left[1], left[2]


class SparseCounts(NamedTuple):
    """Counts of items (such as pairs of atoms) in bins, stored as few bin indices or as all counts.

    In a few frames, most bins are empty, so the list of the bin indices of all items is small. The
    list is converted to an array of counts when this takes less memory; until then, `counts` is
    None. If `n_possible` is set, it is the number of items inside and outside the bins.
    """

    n_frames: int
    indices: np.ndarray
    counts: np.ndarray | None
    n_possible: int = 0

    def to_counts(self, n_counts: int) -> np.ndarray:
        """Count how often each index occurs: uint64, shape (n_counts,)."""
        if self.counts is not None:
            return self.counts
        counts = np.zeros(n_counts, dtype=np.uint64)
        _core.count_indices(self.indices, counts)
        return counts


def merge_counts(left: SparseCounts, right: SparseCounts, n_counts: int) -> SparseCounts:
    """Merge the counts of two adjacent ranges of frames; only `left` may change in place."""
    n_frames, n_possible = left.n_frames + right.n_frames, left.n_possible + right.n_possible
    few = 2 * (len(left.indices) + len(right.indices)) < n_counts
    if left.counts is None and right.counts is None and few:
        return SparseCounts(
            n_frames, np.concatenate([left.indices, right.indices]), None, n_possible
        )
    counts = left.to_counts(n_counts)
    if right.counts is None:
        _core.count_indices(right.indices, counts)
    else:
        counts += right.counts
    return SparseCounts(n_frames, np.empty(0, dtype=np.uint32), counts, n_possible)


class RdfGroup(NamedTuple):
    """Number of atoms in a group, and their labels: atoms with equal labels are not a pair."""

    n_atoms: int
    labels: np.ndarray | None


class RdfCounts(NamedTuple):
    """Number of frames, the sum of their volumes (Å³), and the number of pairs in each bin.

    Also sums over frames: the number of atoms in the first group, and the number of all pairs.
    Finally the smallest distance between opposite faces of the cells, Å.
    """

    n_frames: int
    volume: float
    counts: np.ndarray
    n_first: int
    n_pairs: int
    width: float = float("inf")


def merge_rdf(left: RdfCounts, right: RdfCounts) -> RdfCounts:
    """Add the counts of two adjacent ranges of frames."""
    return RdfCounts(
        *(left.n_frames + right.n_frames, left.volume + right.volume, left.counts + right.counts),
        *(left.n_first + right.n_first, left.n_pairs + right.n_pairs),
        width=min(left.width, right.width),
    )


class CoreRdf(CorePart, Reduction):
    """Counts of distances between two groups, whose atoms follow one another in a block.

    With `centers`, centers of compounds replace the positions of atoms.
    """

    splits_frames = True

    def __init__(
        self,
        edges: np.ndarray,
        groups: Sequence[RdfGroup],
        *,
        same: bool,
        needs_cell: bool,
        centers: "CompoundCenters | None",
    ):
        self._edges, self._centers = edges, centers
        self._groups = groups
        self._same = same
        self._needs_cell = needs_cell

    def compute(self, block: Block) -> RdfCounts:
        """Count the distances in each bin over the frames of a block."""
        if self._centers is None:
            positions, columns = block.raw
        else:
            positions, columns = self._centers.of(block), None
        if self._bound is None:
            self._bound = self._bind(columns)
        counts = np.zeros(len(self._edges) - 1, dtype=np.uint64)
        volume, refused = self._bound.count(positions, block.cells, counts)
        check_refused(block, refused)
        n_first = len(block) * self._groups[0].n_atoms
        n_pairs = n_first * self._groups[1].n_atoms
        width = least_width(block.cells)
        return RdfCounts(len(block), volume, counts, n_first, n_pairs, width)

    def merge(self, left: RdfCounts, right: RdfCounts) -> RdfCounts:
        """Add the counts of two adjacent ranges of frames."""
        return merge_rdf(left, right)

    def _bind(self, columns: np.ndarray | None) -> _core.Rdf:
        first, second = self._groups
        if columns is None:
            columns = np.arange(first.n_atoms + second.n_atoms)
        groups = (columns[: first.n_atoms], first.labels), (columns[first.n_atoms :], second.labels)
        return _core.Rdf(
            self._edges,
            groups[0],
            None if self._same else groups[1],
            needs_cell=self._needs_cell,
        )


class ChangingCompounds(NamedTuple):
    """For each atom in `read` of an updating group: its compound, and its index in `Compounds`.

    The index is -1 for an atom without mass, which does not contribute to the center.
    """

    compounds: np.ndarray
    places: np.ndarray

    def of(self, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Find the compounds of the atoms `chosen`, which are indices in `read` of the group.

        Returns, for each compound, the index in `read` of its first atom, and its number of atoms;
        and the indices in `Compounds` of all these atoms, compound by compound. Raises `ValueError`
        if no atom of a compound has mass.
        """
        places = self.places[chosen]
        order = np.argsort(places)[np.count_nonzero(places < 0) :]
        found, firsts, sizes = np.unique(
            self.compounds[chosen[order]], return_index=True, return_counts=True
        )
        if not np.isin(self.compounds[chosen], found).all():
            raise ValueError("only massless atoms of a compound are in the group: no center")
        return chosen[order[firsts]], sizes, places[order]


#: Atoms or centers in a frame: their indices in the array of labels, and their columns in the array
#: of positions.
Sites = tuple[np.ndarray, np.ndarray]


class ChangingCenters:
    """Centers of the compounds of two updating groups in each frame.

    `centers` contains all compounds with an atom that may be selected.
    """

    def __init__(self, centers: "CompoundCenters", groups: Sequence[ChangingCompounds]):
        self._centers, self._groups = centers, groups

    @property
    def n_atoms(self) -> int:
        """Number of atoms that the centers need; these atoms come first in a block."""
        return len(self._centers.indices)

    def of(
        self, block: Block, members: Sequence[Sequence[Sites]]
    ) -> Iterator[tuple[np.ndarray, list[Sites]]]:
        """Yield the centers of both groups (Å) and their sites in each frame."""
        whole = self._centers.positions(block)
        for row, of_groups in enumerate(members):
            parts, sites, first = [], [], 0
            for number, (group, (chosen, _)) in enumerate(
                zip(self._groups, of_groups, strict=True)
            ):
                try:
                    labelled, sizes, atoms = group.of(chosen)
                except ValueError as error:
                    raise ValueError(f"frame {block.frames[row]}: {error}") from None
                parts.append(self._centers.of_some(whole[row : row + 1], number, atoms, sizes))
                sites.append((labelled, np.arange(first, first + len(sizes))))
                first += len(sizes)
            # If there is no center, the sites are empty, and use none of the yielded positions.
            yield np.concatenate(parts, axis=1) if first else whole[row : row + 1], sites


class ChangingRdf(Reduction):
    """Counts of distances between two groups, at least one of which is updated in each frame.

    A block contains the atoms in `read` of the first group, then those of the second group;
    `labels` have the same order. With `centers`, the centers of compounds replace positions of
    atoms, and a block begins with the atoms that are needed to compute them.
    """

    splits_frames = True

    def __init__(
        self,
        edges: np.ndarray,
        groups: Sequence["GroupFinder | FixedGroup"],
        labels: Sequence[np.ndarray] | None,
        *,
        needs_cell: bool,
        centers: ChangingCenters | None,
    ):
        self._edges, self._groups = edges, groups
        self._labels, self._needs_cell, self._centers = labels, needs_cell, centers

    def compute(self, block: Block) -> RdfCounts:
        """Count the distances in each bin over the frames of a block."""
        counts = np.zeros(len(self._edges) - 1, dtype=np.uint64)
        volume, n_first, n_pairs = 0.0, 0, 0
        for row, (positions, (one, other)) in enumerate(self._sites(block)):
            of_frame, refused = self._bind(one, other).count(
                positions, block.cells[row : row + 1], counts
            )
            check_refused(block[row : row + 1], refused)
            volume += of_frame
            n_first += len(one[0])
            n_pairs += len(one[0]) * len(other[0])
        width = least_width(block.cells)
        return RdfCounts(len(block), volume, counts, n_first, n_pairs, width)

    def merge(self, left: RdfCounts, right: RdfCounts) -> RdfCounts:
        """Add the counts of two adjacent ranges of frames."""
        return merge_rdf(left, right)

    def _sites(self, block: Block) -> Iterable[tuple[np.ndarray, Sequence[Sites]]]:
        """Find the positions of each frame, and the sites of both groups."""
        first = 0 if self._centers is None else self._centers.n_atoms
        members = []
        for group in self._groups:
            members.append(group.by_frame(block, first))
            first += len(group.read)
        of_frames = list(zip(*members, strict=True))
        if self._centers is not None:
            return self._centers.of(block, of_frames)
        return ((block.raw[0][row : row + 1], sites) for row, sites in enumerate(of_frames))

    def _bind(self, one: Sites, other: Sites) -> _core.Rdf:
        """Make the kernel for the sites of a frame."""
        labels = self._labels or (None, None)
        groups = [
            (columns, None if values is None else values[places])
            for (places, columns), values in zip((one, other), labels, strict=True)
        ]
        same = np.array_equal(one[1], other[1])
        return _core.Rdf(
            self._edges, groups[0], None if same else groups[1], needs_cell=self._needs_cell
        )


class CoreSitePairs(CorePart, Reduction):
    """Bins of the distances of single pairs of atoms; in a block, the groups follow one another."""

    splits_frames = True

    def __init__(
        self,
        sizes: np.ndarray,
        pairs: np.ndarray,
        limits: tuple[float, float],
        nbins: int,
        n_counts: int,
        *,
        needs_cell: bool,
    ):
        self._arguments = sizes.astype(np.int64), pairs.astype(np.int64), limits, int(nbins)
        self._n_counts, self._needs_cell = n_counts, needs_cell

    def compute(self, block: Block) -> tuple[float, SparseCounts, float]:
        """Count the distances in each bin over the frames of a block.

        Returns the sum of the cell volumes, Å³, the counts, and the smallest cell height, Å.
        """
        if self._bound is None:
            arguments = columns_of(block), *self._arguments
            self._bound = _core.SitePairs(*arguments, needs_cell=self._needs_cell)
        found, volume, refused = self._bound.find(block.raw[0], block.cells)
        check_refused(block, refused)
        return volume, SparseCounts(len(block), found, None), least_width(block.cells)

    def merge(
        self, left: tuple[float, SparseCounts, float], right: tuple[float, SparseCounts, float]
    ) -> tuple[float, SparseCounts, float]:
        """Add the counts of two adjacent ranges of frames."""
        counts = merge_counts(left[1], right[1], self._n_counts)
        return left[0] + right[0], counts, min(left[2], right[2])


class CoreBonds(CorePart, Ragged):
    """Records of hydrogen bonds: frame, donor, hydrogen, acceptor, distance (Å), angle (°)."""

    splits_frames = True

    def __init__(self, indices: np.ndarray, arguments: tuple[Any, ...]):
        self._indices, self._arguments = indices, arguments

    def compute_records(self, block: Block) -> tuple[np.ndarray, np.ndarray]:
        """Find the hydrogen bonds in each frame of a block; return their numbers and records."""
        positions, columns = block.raw
        if self._bound is None:
            atoms = self._indices
            if columns is not None:
                atoms = np.zeros(positions.shape[1], np.int64)
                atoms[columns] = self._indices
            self._bound = _core.HydrogenBonds(columns, *self._arguments), atoms
        core, atoms = self._bound
        frames = np.ascontiguousarray(block.frames)
        counts, records, refused = core.find(positions, block.cells, frames, atoms)
        check_refused(block, refused)
        return counts, records


class ChangingBonds(Ragged):
    """Hydrogen bonds with donors, hydrogens or acceptors that are selected in each frame.

    A block contains the atoms in `read` of the three groups, one group after another. `parts`
    contains a number for each donor, a number for each acceptor, and a mask of the pairs of these
    numbers that may form bonds. A hydrogen belongs to each donor within the distance `within` (Å).
    If `within` is None, the first group contains the donor of each atom in `read` of the hydrogens.
    """

    returns_new = splits_frames = True

    def __init__(
        self,
        indices: np.ndarray,
        groups: Sequence["GroupFinder | FixedGroup"],
        within: float | None,
        parts: tuple[np.ndarray, np.ndarray, np.ndarray] | None,
        criterion: tuple[str, float, float],
    ):
        self._indices, self._groups, self._within = indices, groups, within
        self._parts, self._criterion = parts, criterion

    def compute_records(self, block: Block) -> tuple[np.ndarray, np.ndarray]:
        """Find the hydrogen bonds in each frame of a block; return their numbers and records."""
        positions, columns = block.raw
        atoms = np.zeros(positions.shape[1], np.int64)
        atoms[slice(None) if columns is None else columns] = self._indices
        found, first = [], 0
        for group in self._groups:
            found.append(group.by_frame(block, first))
            first += len(group.read)
        counts, records = np.zeros(len(block), np.int64), [np.empty((0, 6))]
        for row, (donors, hydrogens, acceptors) in enumerate(zip(*found, strict=True)):
            only, places, ends = slice(row, row + 1), donors[0], donors[1]
            if self._within is None:
                places, ends = hydrogens[0], ends[hydrogens[0]]
            parts = None
            if self._parts is not None:
                of_donors, of_acceptors, allowed = self._parts
                parts = of_donors[places], of_acceptors[acceptors[0]], allowed
            pairs = ends, hydrogens[1], self._within
            core = _core.HydrogenBonds(None, pairs, acceptors[1], parts, self._criterion)
            frames = np.ascontiguousarray(block.frames[only])
            count, some, refused = core.find(positions[only], block.cells[only], frames, atoms)
            check_refused(block[only], refused)
            counts[only] = count
            records.append(some)
        return counts, np.concatenate(records)
