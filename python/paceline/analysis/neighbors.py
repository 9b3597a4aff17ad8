"""Neighbours of atoms within a cutoff: pair lists, and coordination numbers."""

from collections.abc import Iterator
from typing import Literal

import numpy as np

from paceline import _core
from paceline._util.arguments import length
from paceline._util.sorted_unique import sorted_unique
from paceline.analysis.base import shared_labels, table_in_time, table_of_records
from paceline.analysis.distances import GroupsAnalysis
from paceline.analysis.groups import map_table, timeline_table
from paceline.analysis.image_warnings import beyond_half_the_cell, least_width_of
from paceline.analysis.kernels import CorePart
from paceline.analysis.results import Results
from paceline.analysis.table import (
    MOST_FREQUENT,
    MOST_MAPPED,
    MOST_MARKED,
    Table,
    fractions_of_frames,
    residue_labels,
)
from paceline.block import Block, check_refused
from paceline.contract.analysis_declaration import PBC, Declaration, Member
from paceline.contract.analysis_kinds import PerFrame, Ragged
from paceline.contract.system_interface import Atoms
from paceline.transform.distances import PAIR

#: Maximum number of pairs that are counted at a time; a single frame may contain more.
COUNTED = 2**20


class _NearAtoms(GroupsAnalysis):
    """Base class of analyses that find the atoms of one or two groups within a cutoff."""

    needs_one_location = True

    def __init__(
        self,
        ag1: Atoms,
        ag2: Atoms | None = None,
        cutoff: float = 4.5,
        *,
        exclude_same: Literal["residue", "segment", "chain", "fragment"] | None = None,
        pbc: bool = True,
        verbose: bool = False,
    ):
        super().__init__({"ag1": ag1} | ({} if ag2 is None else {"ag2": ag2}), pbc, verbose)
        self.cutoff, self.exclude_same = length("cutoff", cutoff), exclude_same
        self._labels = None
        if exclude_same is not None:
            of_groups = [shared_labels(one, exclude_same) for one in self._groups.values()]
            numbers = np.unique(np.concatenate(of_groups), return_inverse=True)[1].reshape(-1)
            self._labels = np.split(numbers, [len(of_groups[0])])[: len(of_groups)]

    def parameters(self) -> dict[str, object]:
        """Return the parameters that are saved with the results."""
        given = {"cutoff": self.cutoff, "exclude_same": self.exclude_same or "none"}
        return {**super().parameters(), **given}

    def _near_pairs(self) -> "_NearPairs":
        """Make the worker part that finds near pairs; warn if the cutoff exceeds half the cell."""
        indices = [group.indices for group in self._groups.values()]
        if self.pbc:
            width = least_width_of(self.atomgroup.universe, self.frames)
            what = f"cutoff={self.cutoff:g}"
            self.remark("images", beyond_half_the_cell(self.name, what, self.cutoff, width))
        return _NearPairs(indices, self._labels, self._sizes, self.cutoff, self.pbc)


class NeighborList(_NearAtoms):  # numpydoc ignore=PR02
    """List of the pairs of atoms within a cutoff, for each frame.

    The time grows with the number of atoms, not with its square. Distances are rounded as in
    MDAnalysis's `capped_distance`, so that the pairs are the same.

    Parameters
    ----------
    ag1 : AtomGroup
        First group.
    ag2 : AtomGroup, optional
        Second group, from the same Universe; by default pairs within the first group are listed.
    cutoff : float
        Maximum distance of pairs, Å. Pairs at exactly this distance are included.
    exclude_same : {"residue", "segment", "chain", "fragment"}, optional
        Leave out pairs of atoms in the same residue, segment, chain or fragment. An atom is never
        paired with itself.
    pbc : bool
        Use the nearest periodic images in the cell of each frame, if the frame has a cell.

    Attributes
    ----------
    results.pairs : numpy.ndarray of records, shape (n_pairs,)
        Pairs with the fields `first` and `second` (indices of the atoms, int32) and `distance` (Å,
        float64). They are sorted by frame, and within a frame in the order of the groups. An array
        of more than 1 GiB is stored in a temporary file.
    results.counts : numpy.ndarray of int64, shape (n_frames,)
        Number of pairs in each frame. If damaged frames were left out, the dtype is float64, and
        the number is NaN for these frames, which have no pairs.
    results.offsets : numpy.ndarray of int64, shape (n_frames + 1,)
        Index of each frame's first pair, and the total number of pairs.
    results.frames : numpy.ndarray of int64, shape (n_frames,)
        Frame numbers.
    results.times : numpy.ndarray of float64, shape (n_frames,)
        Times of these frames, ps.

    Raises
    ------
    SelectionError
        A group contains no atoms.
    UnsupportedError
        A group is an UpdatingAtomGroup, the groups belong to different Universes, or the topology
        lacks an attribute for `exclude_same`.
    ValueError
        The cutoff is not a length, or `exclude_same` is unknown. In the run, as `AnalysisError`: a
        position is NaN, or a cell is invalid or smaller than the cutoff.

    Examples
    --------
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import PSF, DCD
    >>> u = paceline.Universe(PSF, DCD)
    >>> acidic = u.select_atoms("resname ASP GLU and name OE* OD*")
    >>> basic = u.select_atoms("resname ARG LYS and name NH* NZ")
    >>> bridges = NeighborList(acidic, basic, cutoff=4.0).run(stop=3)
    >>> bridges.results.counts
    array([61, 65, 68])
    >>> bridges.count_by_residue()[:2]
    [(21, 205, 3), (32, 35, 3)]
    >>> bridges.count_by_type("resnames")[0]
    ('ASP', 'ARG', 63)
    """

    declaration = Declaration(
        name="neighbors",
        summary="number of pairs of atoms within a distance, and as .npz the pairs themselves",
        description=(
            "Number of pairs of atoms of --select and --select-2 within a distance, in each frame. "
            "A .npz file also contains each pair: indices of both atoms, and the distance (Å)."
        ),
        section="hydrogen-bonds.md#neighbours-and-coordination-numbers",
        examples=(
            'md.tpr md.xtc --select "resname LIG" --select-2 protein --frequent residues.csv',
            (
                'md.tpr md.xtc --select "resname ASP GLU and name OD* OE*" --select-2 "resname '
                'ARG LYS and name NH* NZ" --cutoff 4 -o bridges.npz'
            ),
        ),
        options=(
            "cutoff",
            "exclude_same",
            PBC,
        ),
        further={
            "frequent": "write the fraction of frames in which two residues have a pair",
            "timeline": "write the frames in which the 20 most frequent pairs of residues exist; "
            "as a figure, a bar code",
            "residues": "write the number of pairs of each residue of --select-2 in each frame; as "
            "a figure, a map of residues and time",
            "closest": "write the shortest distance of a pair of each residue of --select-2 in "
            "each frame; as a figure, a map",
        },
        groups=("atoms of the second group",),
        batteries=(
            Member(
                "ligand",
                {"ag1": "{ligand}", "ag2": "protein"},
                name="ligand-contacts",
                place=2,
            ),
        ),
    )

    def prepare(self) -> Ragged:
        """Make the worker part that finds the pairs."""
        return self._near_pairs()

    def finish(self, value: tuple[np.ndarray, np.ndarray]) -> None:
        """Store the pairs, and their number in each frame, as results."""
        offsets, pairs = value
        if pairs.dtype != PAIR:  # no frame could be read
            pairs = np.empty(0, PAIR)
        counts = self.record_counts(offsets)
        label = f"pairs within {self.cutoff:g} Å"
        self.results = Results(
            table=table_of_records(self, "pairs", counts, label),
            provenance=self.record(),
            pairs=pairs,
            counts=counts,
            offsets=offsets,
            frames=self.frames,
            times=self.times,
        )

    def count_by_type(self, attribute: str = "types") -> list[tuple[str, str, int]]:
        """Count the pairs of all frames by an attribute of their atoms.

        Parameters
        ----------
        attribute : str
            Attribute of an AtomGroup: "types", "names", "resnames", "elements", ….

        Returns
        -------
        list of (str, str, int)
            Values of the first and of the second atom, and the number of pairs. The most frequent
            come first; those with equal numbers are in alphabetical order. If there is only one
            group, the lower value of a pair comes first.

        Raises
        ------
        ValueError
            The attribute has several values per atom, such as positions.
        """
        values = np.asarray(getattr(self.atomgroup.universe.atoms, attribute))
        if values.ndim != 1:
            raise ValueError(f"attribute must have one value per atom, not {attribute!r}")
        kinds, numbers = np.unique(values.astype(str), return_inverse=True)
        pairs, counts = self._unique(numbers.reshape(-1), per_frame=False)
        found = [
            (str(kinds[i]), str(kinds[j]), int(n)) for (i, j), n in zip(pairs, counts, strict=True)
        ]
        return sorted(found, key=lambda one: (-one[2], one[:2]))

    def count_by_residue(self) -> list[tuple[int, int, int]]:
        """Count, for any two residues, the frames in which they have a pair (fingerprint).

        Returns
        -------
        list of (int, int, int)
            Indices of the residues (`resindices`) of the first and of the second atom, and the
            number of frames. The most frequent come first; those with equal numbers are in the
            order of indices. If there is only one group, the lower index of a pair comes first.
        """
        numbers = self.atomgroup.universe.atoms.resindices
        pairs, counts = self._unique(numbers, per_frame=True)
        found = [(int(i), int(j), int(n)) for (i, j), n in zip(pairs, counts, strict=True)]
        return sorted(found, key=lambda one: (-one[2], one[:2]))

    FURTHER_TABLES = ("frequent", "timeline", "residues", "closest")

    def further_tables(self) -> dict[str, Table]:
        """Return tables of pairs by residue.

        "frequent" contains the names of the most frequent pairs of residues, at most 1,000.
        "timeline" contains the frames in which the 20 most frequent pairs of residues exist. The
        two other tables contain, for each residue of the last group in each frame, the number of
        pairs ("residues") and the shortest distance ("closest").
        """
        found = np.array(self.count_by_residue()[:MOST_FREQUENT], dtype=np.int64).reshape(-1, 3)
        first, second, counts = found.T
        names = residue_labels(self.atomgroup.universe.residues, np.unique(found[:, :2]))
        labels = [f"{names[i]}–{names[j]}" for i, j, _ in found.tolist()]
        columns = {"first": first, "second": second}
        n_frames = self.n_frames - len(self.damaged)
        return {
            "frequent": fractions_of_frames("residues", labels, columns, counts, n_frames),
            "timeline": self._timeline(labels[:MOST_MARKED], found[:MOST_MARKED, :2]),
            **self._map_residues(),
        }

    def _map_residues(self) -> dict[str, Table]:
        """Make the tables "residues" and "closest": maps of the last group's residues and time.

        The maps show the residues that have pairs in the largest numbers of frames, at most 200, in
        the order of the topology.
        """
        residues = self.atomgroup.universe.residues
        in_frames, total = np.zeros((2, len(residues)), np.int64)
        for begin, end in self._frame_ranges():
            rows, of_ends, _ = self._ends_by_residue(begin, end)
            keys = np.unique(rows * len(residues) + of_ends)
            in_frames += np.bincount(keys % len(residues), minlength=len(residues))
            total += np.bincount(of_ends, minlength=len(residues))
        order = np.lexsort((-total, -in_frames))[:MOST_MAPPED]
        chosen = np.sort(order[in_frames[order] > 0])
        place_of = np.full(len(residues), -1)
        place_of[chosen] = np.arange(len(chosen))
        shape = self.n_frames, len(chosen)
        counts, nearest = np.zeros(shape, np.int64), np.full(shape, np.nan)
        for begin, end in self._frame_ranges():
            rows, of_ends, distances = self._ends_by_residue(begin, end)
            places = place_of[of_ends]
            cells = begin + rows[places >= 0], places[places >= 0]
            np.add.at(counts, cells, 1)
            np.fmin.at(nearest, cells, distances[places >= 0])
        n_near = np.count_nonzero(in_frames)
        few = f", {len(chosen)} of {n_near} with pairs" if n_near > len(chosen) else ""
        label, within = f"residue{few}", f"within {self.cutoff:g} Å"
        given = self, residues[chosen]
        return {
            "residues": map_table(*given, counts, f"pairs {within}", label, "Blues"),
            "closest": map_table(*given, nearest, f"closest atom {within} (Å)", label),
        }

    def _ends_by_residue(self, begin: int, end: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return frame index, residue and distance for the second atom of each pair in some frames.

        The frames are `begin` to `end`, and the frame index is counted from `begin`. If there is
        only one group, values for the first atom of each pair follow, except for pairs within a
        residue.
        """
        offsets, numbers = self.results.offsets, self.atomgroup.universe.atoms.resindices
        pairs = self.results.pairs[offsets[begin] : offsets[end]]
        rows = np.repeat(np.arange(end - begin), np.diff(offsets[begin : end + 1]))
        residues, distances = numbers[pairs["second"]], pairs["distance"]
        if len(self._groups) == 2:
            return rows, residues, distances
        first = numbers[pairs["first"]]
        apart = first != residues
        return (
            np.concatenate([rows, rows[apart]]),
            np.concatenate([residues, first[apart]]),
            np.concatenate([distances, distances[apart]]),
        )

    def _frame_ranges(self) -> Iterator[tuple[int, int]]:
        """Yield ranges of frames with at most `COUNTED` pairs, or single frames with more pairs."""
        offsets, begin = self.results.offsets, 0
        while begin < len(offsets) - 1:
            end = int(np.searchsorted(offsets, offsets[begin] + COUNTED, side="right")) - 1
            end = max(begin + 1, end)
            yield begin, end
            begin = end

    def _timeline(self, labels: list[str], residues: np.ndarray) -> Table:
        """Make a table of the frames in which pairs of residues, shape (n, 2), exist."""
        numbers = self.atomgroup.universe.atoms.resindices
        pairs, offsets = self.results.pairs, self.results.offsets
        n = int(numbers.max()) + 1
        wanted = residues[:, 0] * n + residues[:, 1]
        order = np.argsort(wanted)
        found: list[np.ndarray] = [np.empty(0, np.int64)]
        for first in range(0, len(pairs) if len(wanted) else 0, COUNTED):
            some = pairs[first : first + COUNTED]
            ends = self._residues_of(some, numbers)
            keys = ends[:, 0].astype(np.int64) * n + ends[:, 1]
            near = np.minimum(np.searchsorted(wanted[order], keys), len(wanted) - 1)
            is_wanted = np.flatnonzero(wanted[order][near] == keys)
            rows = np.searchsorted(offsets, first + is_wanted, side="right") - 1
            found.append(np.unique(rows * len(wanted) + order[near[is_wanted]]))
        rows, places = np.divmod(np.concatenate(found), max(1, len(wanted)))
        return timeline_table(self, "residues", labels, rows, places)

    def _residues_of(self, pairs: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """Map both atoms of each pair to `numbers`, such as their residues: shape (n, 2).

        If there is one group, the numbers of a pair are in increasing order.
        """
        ends = np.column_stack([numbers[pairs["first"]], numbers[pairs["second"]]])
        if len(self._groups) == 1:
            ends.sort(axis=1)
        return ends

    def _unique(self, numbers: np.ndarray, *, per_frame: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return the distinct pairs of `numbers` (such as residues), and how often each occurs.

        With `per_frame`, equal pairs of a frame count once. Ranges of frames are processed in turn,
        because the keys of all pairs need several times the memory of the pairs.
        """
        pairs, offsets = self.results.pairs, self.results.offsets
        n = int(numbers.max()) + 1
        keys, counts = np.empty(0, np.int64), np.empty(0, np.int64)
        for begin, end in self._frame_ranges():
            some = pairs[offsets[begin] : offsets[end]]
            ends = self._residues_of(some, numbers)
            found = ends[:, 0].astype(np.int64) * n + ends[:, 1]
            if per_frame:
                rows = np.repeat(np.arange(end - begin), np.diff(offsets[begin : end + 1]))
                known, places = np.unique(found, return_inverse=True)
                once = sorted_unique(places.reshape(-1) * (end - begin) + rows)
                found = known[once // (end - begin)]
            found, times = np.unique(found, return_counts=True)
            keys, places = np.unique(np.concatenate([keys, found]), return_inverse=True)
            total = np.zeros(len(keys), np.int64)
            np.add.at(total, places.reshape(-1), np.concatenate([counts, times]))
            counts = total
        return np.column_stack(np.divmod(keys, n)), counts


class CoordinationNumbers(_NearAtoms):  # numpydoc ignore=PR02
    """Number of neighbours of each atom within a cutoff, in each frame.

    Neighbours are found as in `NeighborList`.

    Parameters
    ----------
    ag1 : AtomGroup
        Atoms whose neighbours are counted.
    ag2 : AtomGroup, optional
        Neighbours, from the same Universe; by default the other atoms of the first group.
    cutoff : float
        Maximum distance of neighbours, Å. Neighbours at exactly this distance are included.
    exclude_same : {"residue", "segment", "chain", "fragment"}, optional
        Leave out neighbours in the same residue, segment, chain or fragment. An atom is never its
        own neighbour.
    pbc : bool
        Use the nearest periodic images in the cell of each frame, if the frame has a cell.

    Attributes
    ----------
    results.coordination : numpy.ndarray of int32, shape (n_frames, n_atoms)
        Number of neighbours of each atom of `ag1`. If damaged frames were left out, the dtype is
        float64, with NaN for these frames.
    results.mean : numpy.ndarray of float64, shape (n_frames,)
        Mean over the atoms of `ag1`.
    results.frames : numpy.ndarray of int64, shape (n_frames,)
        Frame numbers.
    results.times : numpy.ndarray of float64, shape (n_frames,)
        Times of these frames, ps.

    Raises
    ------
    SelectionError
        A group contains no atoms.
    UnsupportedError
        As for `NeighborList`.
    ValueError
        As for `NeighborList`.

    Examples
    --------
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import PSF, DCD
    >>> u = paceline.Universe(PSF, DCD)
    >>> charged, polar = u.select_atoms("name NZ and resid 1-30"), u.select_atoms("name O*")
    >>> shells = CoordinationNumbers(charged, polar, cutoff=4.0).run(stop=2)
    >>> shells.results.coordination
    array([[3, 4],
           [3, 3]], dtype=int32)
    """

    declaration = Declaration(
        name="coordination",
        summary="coordination numbers: neighbours of each atom",
        description=(
            "Mean number of the atoms of --select-2 within a distance of each atom of --select. "
            "A .npz file also contains the number for each atom in each frame."
        ),
        section="hydrogen-bonds.md#neighbours-and-coordination-numbers",
        examples=(
            'md.tpr md.xtc --select "resname NA" --select-2 "name OW" --cutoff 3.2 -o na.csv',
            'md.tpr md.xtc --select "resname NA" --select-2 "name OW" --cutoff 3.2 -o na.npz',
        ),
        options=(
            "cutoff",
            "exclude_same",
            PBC,
        ),
        groups=("the neighbours",),
    )

    @property
    def row_bytes(self) -> int:  # type: ignore[override]
        """Size of the results of one frame, bytes."""
        return 4 * self._sizes[0]

    def prepare(self) -> PerFrame:
        """Make the worker part that counts the neighbours of each atom."""
        return _Neighbours(self._near_pairs(), self._sizes[0])

    def finish(self, value: np.ndarray) -> None:
        """Store the numbers of neighbours as results, with frames and times."""
        mean = value.mean(axis=1, dtype=np.float64)
        name = "coordination number"
        label = f"neighbours within {self.cutoff:g} Å"
        self.results = Results(
            table=table_in_time(self, {name: mean}, {name: name}, label, partial=True),
            provenance=self.record(),
            coordination=value,
            mean=mean,
            frames=self.frames,
            times=self.times,
        )


class _NearPairs(CorePart, Ragged):
    """Worker part of `NeighborList`, which finds the pairs of both groups in each frame."""

    splits_frames = True

    def __init__(
        self,
        indices: list[np.ndarray],
        labels: list[np.ndarray] | None,
        sizes: tuple[int, ...],
        cutoff: float,
        periodic: bool,
    ):
        # If there is only one group, both entries contain its atoms.
        self._indices = _both_groups(indices)
        self._labels = None if labels is None else _both_groups(labels)
        self._sizes, self._cutoff, self._periodic = sizes, cutoff, periodic

    def bind(self, block: Block) -> _core.NearPairs:
        """Return the kernel for the columns of a block."""
        if self._bound is None:
            first = np.arange(self._sizes[0])
            second = None
            if len(self._sizes) == 2:
                second = np.arange(self._sizes[0], sum(self._sizes))
            given = self._cutoff, self._periodic, self._indices, self._labels
            self._bound = _core.NearPairs(block.raw[1], first, second, *given)
        return self._bound

    def compute_records(self, block: Block) -> tuple[np.ndarray, np.ndarray]:
        """Return the number of pairs in each frame of a block, and all pairs."""
        counts, records, refused = self.bind(block).find(block.raw[0], block.cells)
        check_refused(block, refused)
        return counts, records.view(PAIR)


def _both_groups(numbers: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers (indices or labels) of both groups; a single group is returned twice."""
    return np.ascontiguousarray(numbers[0]), np.ascontiguousarray(numbers[-1])


class _Neighbours(PerFrame):
    """Worker part of `CoordinationNumbers`, which uses the worker part of `NeighborList`."""

    returns_new = splits_frames = True

    def __init__(self, pairs: _NearPairs, n_atoms: int):
        self._pairs, self._n_atoms = pairs, n_atoms

    def compute(self, block: Block) -> np.ndarray:
        """Count the neighbours of each atom: int32, shape (n_frames, n_atoms)."""
        counts = np.zeros((len(block), self._n_atoms), np.int32)
        readable = np.flatnonzero(block.held)
        if len(readable) == 0:
            return counts
        some = block if len(readable) == len(block) else block[readable]
        found = counts[readable]
        check_refused(some, self._pairs.bind(some).count(some.raw[0], some.cells, found))
        counts[readable] = found
        return counts
