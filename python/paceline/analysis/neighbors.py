"""Neighbours of atoms within a cutoff: lists of pairs, and coordination numbers."""

from collections.abc import Iterator
from typing import Literal

import numpy as np

from paceline import _core
from paceline._util.arguments import length
from paceline._util.sorting import sorted_unique
from paceline.analysis.base import shared_labels, table_in_time, table_of_records
from paceline.analysis.distances import GroupsAnalysis
from paceline.analysis.groups import map_table, timeline_table
from paceline.analysis.images import beyond_half_the_cell, least_width_of
from paceline.analysis.kernels import CoreHalf
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
from paceline.contract.atoms import Atoms
from paceline.contract.declaration import PBC, Declaration, Member
from paceline.contract.kinds import PerFrame, Ragged
from paceline.transform.distances import PAIR

#: Maximum number of pairs that are counted in one call, if it has several frames.
COUNTED = 2**20


class _NearAtoms(GroupsAnalysis):
    """Atoms of one or two groups that are within a cutoff of each other."""

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
        """Parameters, for the record that is saved with the results."""
        given = {"cutoff": self.cutoff, "exclude_same": self.exclude_same or "none"}
        return {**super().parameters(), **given}

    def _near_pairs(self) -> "_NearPairs":
        """Number the atoms of both groups, and what they may not share."""
        indices = [group.indices for group in self._groups.values()]
        if self.pbc:
            width = least_width_of(self.atomgroup.universe, self.frames)
            what = f"cutoff={self.cutoff:g}"
            self.remark("images", beyond_half_the_cell(self.name, what, self.cutoff, width))
        return _NearPairs(indices, self._labels, self._sizes, self.cutoff, self.pbc)


class NeighborList(_NearAtoms):  # numpydoc ignore=PR02
    """Pairs of atoms within a cutoff, listed for each frame.

    The time grows with the number of atoms, not of pairs of them. Distances are rounded as
    MDAnalysis's `capped_distance` rounds them, so that the pairs are the same.

    Parameters
    ----------
    ag1 : AtomGroup
        First group.
    ag2 : AtomGroup, optional
        Second group, of the same Universe; without it, each pair of the first is listed once.
    cutoff : float
        Largest distance of pairs, Å. Those at this distance count.
    exclude_same : {"residue", "segment", "chain", "fragment"}, optional
        Leave out pairs of atoms in the same one. A pair of an atom with itself is always left out.
    pbc : bool
        Take the nearest images, in each frame's own cell. Frames without a cell are not periodic.

    Attributes
    ----------
    results.pairs : numpy.ndarray of records, shape (n_pairs,)
        Of each pair the fields `first` and `second`, indices of the atoms, int32, and `distance`,
        float64, Å; in the order of frames, and in each frame in that of the groups. More than
        1 GiB are in a temporary file.
    results.counts : numpy.ndarray of int64, shape (n_frames,)
        Number of pairs in each frame. If damaged frames were left out it is of float64, and NaN
        for these, which have no pairs.
    results.offsets : numpy.ndarray of int64, shape (n_frames + 1,)
        Index of each frame's first pair, and of the end.
    results.frames : numpy.ndarray of int64, shape (n_frames,)
        Frame numbers.
    results.times : numpy.ndarray of float64, shape (n_frames,)
        Their times, ps.

    Raises
    ------
    SelectionError
        A group holds no atoms.
    UnsupportedError
        A group updates itself, the groups are of two Universes, or `exclude_same` needs
        what the topology lacks.
    ValueError
        A cutoff that is no length, or an unknown `exclude_same`. In the run, as `AnalysisError`: a
        position that is NaN, or a cell that is impossible or lower than the cutoff.

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
        summary="pairs of atoms within a distance: their number, and as .npz each of them",
        description=(
            "Number of pairs of an atom of --select and one of --select-2 within a distance, in "
            "each frame; as .npz also each pair: indices of both atoms, and the distance (Å)."
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
            "frequent": "write in which fraction of the frames two residues have a pair",
            "timeline": "write in which frames the 20 most frequent pairs of residues are; as a "
            "figure, a bar code",
            "residues": "write the number of pairs of each residue of --select-2 in each frame; as "
            "a figure, a map of residues and time",
            "closest": "write the distance of the nearest pair of each residue of --select-2 in "
            "each frame; as a figure, a map",
        },
        groups=("the other atoms of the pairs",),
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
        """Number the atoms of both groups, and what they may not share."""
        return self._near_pairs()

    def finish(self, value: tuple[np.ndarray, np.ndarray]) -> None:
        """Keep the pairs, and count them."""
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
            That of an AtomGroup: "types", "names", "resnames", "elements", ….

        Returns
        -------
        list of (str, str, int)
            Values of the first and of the second atom, and the number of pairs; the most frequent
            first, and of equals in alphabetical order. Of one group, the lesser value comes first.

        Raises
        ------
        ValueError
            An attribute that has several numbers an atom, such as positions.
        """
        values = np.asarray(getattr(self.atomgroup.universe.atoms, attribute))
        if values.ndim != 1:
            raise ValueError(f"attribute must be one value an atom, not {attribute!r}")
        kinds, numbers = np.unique(values.astype(str), return_inverse=True)
        pairs, counts = self._unique(numbers.reshape(-1), per_frame=False)
        found = [
            (str(kinds[i]), str(kinds[j]), int(n)) for (i, j), n in zip(pairs, counts, strict=True)
        ]
        return sorted(found, key=lambda one: (-one[2], one[:2]))

    def count_by_residue(self) -> list[tuple[int, int, int]]:
        """Count the frames in which two residues have a pair: a fingerprint of their interactions.

        Returns
        -------
        list of (int, int, int)
            Indices of the residues (`resindices`) of the first and of the second atom, and the
            number of frames; the most frequent first, and of equals the lowest. Of one group, the
            lower index comes first.
        """
        numbers = self.atomgroup.universe.atoms.resindices
        pairs, counts = self._unique(numbers, per_frame=True)
        found = [(int(i), int(j), int(n)) for (i, j), n in zip(pairs, counts, strict=True)]
        return sorted(found, key=lambda one: (-one[2], one[:2]))

    FURTHER_TABLES = ("frequent", "timeline", "residues", "closest")

    def further_tables(self) -> dict[str, Table]:
        """Tabulate the pairs of residues that are in most frames, at most 1,000, by their names.

        Also the frames in which the first of them are; and of each residue of the second group,
        or the only one, the number of pairs and the distance of the nearest, frame by frame.
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
            **self._of_residues(),
        }

    def _of_residues(self) -> dict[str, Table]:
        """Map the pairs of residues of the second group, or the only one, frame by frame.

        Those that have pairs in most frames, at most 200, in their order.
        """
        residues = self.atomgroup.universe.residues
        in_frames, total = np.zeros((2, len(residues)), np.int64)
        for begin, end in self._some_frames():
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
        for begin, end in self._some_frames():
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
        """Row, residue and distance of the ends of pairs in some frames that are mapped.

        Of one group these are both ends, or one within a residue.
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

    def _some_frames(self) -> Iterator[tuple[int, int]]:
        """Split the frames of the run into parts that have few pairs, or are single frames."""
        offsets, begin = self.results.offsets, 0
        while begin < len(offsets) - 1:
            end = int(np.searchsorted(offsets, offsets[begin] + COUNTED, side="right")) - 1
            end = max(begin + 1, end)
            yield begin, end
            begin = end

    def _timeline(self, labels: list[str], residues: np.ndarray) -> Table:
        """Tabulate in which frames pairs of residues, shape (n, 2), have a pair of atoms."""
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
        """Number the ends of pairs, in increasing order if there is one group: shape (n, 2)."""
        ends = np.column_stack([numbers[pairs["first"]], numbers[pairs["second"]]])
        if len(self._groups) == 1:
            ends.sort(axis=1)
        return ends

    def _unique(self, numbers: np.ndarray, *, per_frame: bool) -> tuple[np.ndarray, np.ndarray]:
        """Count pairs of numbers of the atoms; each once a frame, with `per_frame`.

        Some frames at a time, since the keys of all pairs would take several times their memory.
        """
        pairs, offsets = self.results.pairs, self.results.offsets
        n = int(numbers.max()) + 1
        keys, counts = np.empty(0, np.int64), np.empty(0, np.int64)
        for begin, end in self._some_frames():
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

    Pairs are those of `NeighborList`.

    Parameters
    ----------
    ag1 : AtomGroup
        Atoms whose neighbours are counted.
    ag2 : AtomGroup, optional
        The neighbours, of the same Universe; without it, the other atoms of the first group.
    cutoff : float
        Largest distance of neighbours, Å. Those at this distance count.
    exclude_same : {"residue", "segment", "chain", "fragment"}, optional
        Do not count atoms in the same one. An atom is never its own neighbour.
    pbc : bool
        Take the nearest images, in each frame's own cell. Frames without a cell are not periodic.

    Attributes
    ----------
    results.coordination : numpy.ndarray of int32, shape (n_frames, n_atoms)
        Neighbours of each atom of `ag1`. If damaged frames were left out it is of float64, and NaN
        for these.
    results.mean : numpy.ndarray of float64, shape (n_frames,)
        Mean over these atoms.
    results.frames : numpy.ndarray of int64, shape (n_frames,)
        Frame numbers.
    results.times : numpy.ndarray of float64, shape (n_frames,)
        Their times, ps.

    Raises
    ------
    SelectionError
        A group holds no atoms.
    UnsupportedError
        As of `NeighborList`.
    ValueError
        As of `NeighborList`.

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
            "Mean number of the atoms of --select-2 within a distance of each atom of --select; "
            "as .npz also that of each atom in each frame."
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
        """Bytes of a frame's row."""
        return 4 * self._sizes[0]

    def prepare(self) -> PerFrame:
        """Number the atoms of both groups, and what they may not share."""
        return _Neighbours(self._near_pairs(), self._sizes[0])

    def finish(self, value: np.ndarray) -> None:
        """Keep the numbers, with frames and times."""
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


class _NearPairs(CoreHalf, Ragged):
    """Worker part of `NeighborList`: indices and labels of the atoms of each group."""

    def __init__(
        self,
        indices: list[np.ndarray],
        labels: list[np.ndarray] | None,
        sizes: tuple[int, ...],
        cutoff: float,
        periodic: bool,
    ):
        # The first group's again if there is one.
        self._indices = _ends(indices)
        self._labels = None if labels is None else _ends(labels)
        self._sizes, self._cutoff, self._periodic = sizes, cutoff, periodic

    def bind(self, block: Block) -> _core.NearPairs:
        """Find the columns of a block; the core's half."""
        if self._bound is None:
            first = np.arange(self._sizes[0])
            second = None
            if len(self._sizes) == 2:
                second = np.arange(self._sizes[0], sum(self._sizes))
            given = self._cutoff, self._periodic, self._indices, self._labels
            self._bound = _core.NearPairs(block.raw[1], first, second, *given)
        return self._bound

    def compute_records(self, block: Block) -> tuple[np.ndarray, np.ndarray]:
        """Find the pairs of a block."""
        counts, records, refused = self.bind(block).find(block.raw[0], block.cells)
        check_refused(block, refused)
        return counts, records.view(PAIR)


def _ends(numbers: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of both groups."""
    return np.ascontiguousarray(numbers[0]), np.ascontiguousarray(numbers[-1])


class _Neighbours(PerFrame):
    """Worker part of `CoordinationNumbers`, by that of `NeighborList`."""

    returns_new = True

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
