"""Clusters of frames, by the RMSD of each pair of frames after superposition.

Tiles of pairs of frames are compared as in `paceline.analysis.diffusionmap.DistanceMatrix`. Methods
with a cutoff store one bit per pair instead of a matrix.
"""

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np

from paceline._util.arguments import length, one_of, whole_number
from paceline._util.option_values_and_selections import TRACE
from paceline.analysis.base import AnalysisBase
from paceline.analysis.functions import TimeSeries
from paceline.analysis.jackknife_intervals import errors_of_states
from paceline.analysis.results import Results
from paceline.analysis.structure_writer import write_structures
from paceline.analysis.table import Table, fractions_of_frames
from paceline.analysis.tiles import PairRmsds, Positions, TileParts, Tiles, left_out
from paceline.block import Block
from paceline.contract.analysis_declaration import MASS, Declaration, Option
from paceline.contract.analysis_kinds import OverParts, PerFrame
from paceline.contract.system_interface import Atoms, System
from paceline.engine.stage_over_collected_rows import allocate_results
from paceline.transform.selections_and_weights import choose_atoms, relative_weights

#: Methods that need a cutoff.
BY_CUTOFF = ("gromos", "leader")
#: Methods that need a number of clusters.
BY_NUMBER = ("k-medoids",)
#: Cutoff below every RMSD, with which `PairRmsds` returns all RMSDs.
NO_CUTOFF = -1.0
#: Dtype of the RMSDs that k-medoids stores.
KEPT = np.dtype(np.float32)
#: Number of rows of neighbours that are processed at a time.
ROWS = 256
#: Sums of distances count as equal if they differ by less than this fraction.
ROUNDING = 1e-9


class Clustering(AnalysisBase):
    r"""Clusters of similar frames, by the RMSD after superposition of each pair.

    There are three methods. Two frames are neighbours if their RMSD is less than the cutoff (not
    equal to it), as in GROMACS. Among equally good frames, the earliest frame of the run is used.

    - ``gromos`` (Daura et al. 1999, Angew. Chem. Int. Ed. 38, 236): the frame with the most
      neighbours is the center of a cluster, and its neighbours are the other members. The frames of
      this cluster are removed, and the next cluster is made from the remaining frames.
    - ``leader`` (Hartigan 1975, Clustering Algorithms, ch. 3): in the order of the run, each frame
      joins the first leader that is its neighbour; if there is none, the frame becomes a leader.
    - ``k-medoids`` (Kaufman & Rousseeuw 1990, Finding Groups in Data, ch. 2: PAM): k frames, the
      medoids, that minimise the sum of distances of all frames from the nearest medoid. Medoids
      are added one by one, each the frame that lowers the sum most (BUILD). Then a medoid is
      exchanged for the frame that lowers the sum most, until no exchange lowers it (SWAP, with the
      sums of Schubert & Rousseeuw 2021, Inf. Syst. 101, 101804).

    Molecules must be whole.

    Parameters
    ----------
    universe : AtomGroup or Universe
        Atoms from which `select` selects.
    select : str
        Selection of the atoms that are superposed and compared.
    method : {"gromos", "leader", "k-medoids"}
        Clustering method.
    cutoff : float, optional
        RMSD below which frames are neighbours, Å; required for gromos and leader only.
    n_clusters : int, optional
        Number of clusters; required for k-medoids only.
    weights : None, "mass" or array of float, shape (n_atoms,)
        Weights of the atoms in superposition and RMSD.
    written : str, optional
        Selection of the atoms of `results.universe` from the whole system; by default the atoms of
        `select`. With another selection, the frames of the centers are read again.
    errors : bool
        Also compute 95 % intervals of the populations, from parts of the run.

    Attributes
    ----------
    results.labels : numpy.ndarray of int64, shape (n_frames,)
        Number of the cluster of each frame. Clusters are numbered from 0 by decreasing size; among
        equal sizes, the one with the earliest center comes first. -1 for damaged frames that were
        left out, and for frames with NaN positions.
    results.sizes : numpy.ndarray of int64, shape (n_clusters,)
        Number of frames in each cluster.
    results.populations : numpy.ndarray of float64, shape (n_clusters,)
        With `errors`: fraction of frames in each cluster.
    results.population_intervals : numpy.ndarray of float64, shape (n_clusters, 2)
        With `errors`: lower and upper limits of the 95 % intervals of `populations`, for these
        clusters as they are. Errors of the clusters themselves are not included. NaN for a
        population that is the same in all parts of the run, such as that of a single cluster, and
        for runs of fewer than 4 parts. See
        `paceline.analysis.jackknife_intervals`.
    results.centers : numpy.ndarray of int64, shape (n_clusters,)
        Index in the run of the center, leader or medoid of each cluster.
    results.center_frames : numpy.ndarray of int64, shape (n_clusters,)
        Frame number of the center, leader or medoid of each cluster.
    results.universe : MDAnalysis.Universe
        Universe of the compared atoms, or of the atoms of `written`, with one frame per center:
        positions as in the run, and the cell of the frame. Positions of more than 256 MiB are
        stored in a file in the temporary folder.
    results.frames : numpy.ndarray of int64, shape (n_frames,)
        Frame numbers.
    results.times : numpy.ndarray of float64, shape (n_frames,)
        Times of these frames, ps.
    atoms : AtomGroup
        The atoms that are superposed and compared.

    Raises
    ------
    SelectionError
        The selection is empty.
    TypeError, ValueError
        The method is unknown, a cutoff or a number does not belong to the method, weights are
        invalid, or there are fewer frames than clusters.
    UnsupportedError
        The group is an UpdatingAtomGroup, or positions and pairs exceed the free space in the
        temporary folder.

    Examples
    --------
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import PSF, DCD
    >>> u = paceline.Universe(PSF, DCD)
    >>> clusters = Clustering(u, "name CA", cutoff=2.0).run()
    >>> clusters.results.sizes, clusters.results.center_frames
    (array([57, 38,  2,  1]), array([61, 19,  0, 40]))
    >>> clusters.members(2)
    array([0, 1])
    """

    declaration = Declaration(
        name="cluster",
        summary="clusters of similar frames",
        description=(
            "Cluster of each frame, by the RMSD of each pair of frames after superposition. "
            "Clusters are numbered from 0 by decreasing size. With gromos, the frame with the most "
            "neighbours and its neighbours are the first cluster; the next cluster is made from "
            "the remaining frames. Molecules must be whole (--unwrap)."
        ),
        section="matrices-clusters.md#clusters-of-frames",
        select=TRACE,
        examples=(
            "adk.psf adk.dcd --cutoff 1.5 -o clusters.csv --plot clusters.png",
            (
                "md.tpr md.xtc --unwrap --select backbone --method k-medoids --n-clusters 5 "
                '--structures medoids.pdb --select-2 "protein or resname LIG"'
            ),
        ),
        options=(
            Option(
                "method",
                ("method; gromos and leader need --cutoff, k-medoids --n-clusters [%(default)s]"),
            ),
            "cutoff",
            "n_clusters",
            MASS,
            Option(
                "written",
                "atoms of --structures [the atoms of --select]",
                flag="--select-2",
                metavar="TEXT",
            ),
            "errors",
        ),
        further={"sizes": "write the size of each cluster, and the frame of its center"},
        structures="write the atoms of --select-2 in the frame of each cluster's center",
    )

    needs_whole = needs_together = True
    stages = 2
    over_parts = True

    def __init__(
        self,
        universe: Atoms | System,
        select: str = "all",
        method: Literal["gromos", "leader", "k-medoids"] = "gromos",
        *,
        cutoff: float | None = None,
        n_clusters: int | None = None,
        weights: object = None,
        written: str | None = None,
        errors: bool = False,
        verbose: bool = False,
    ):
        atoms = choose_atoms(universe, select, "select")
        self._written = None
        if written is not None:
            self._written = choose_atoms(atoms.universe, written, "written")
        self._select_written = written
        super().__init__(atoms, verbose=verbose)
        _check_method(method, cutoff, n_clusters)
        self.atoms, self._select, self.errors = atoms, select, errors
        self.method, self.cutoff, self.n_clusters = method, cutoff, None
        if n_clusters is not None:
            self.n_clusters = whole_number("n_clusters", n_clusters, 1)
        self._weights = weights
        self._relative = relative_weights(atoms, weights)
        self.row_bytes = 12 * len(atoms)

    def parameters(self) -> dict[str, object]:
        """Return the parameters that are saved with the results."""
        return {
            **super().parameters(),
            "select": self._select,
            "method": self.method,
            "cutoff": self.cutoff,
            "n_clusters": self.n_clusters,
            "weights": self._weights if isinstance(self._weights, str | None) else "given",
            **({} if self._written is None else {"written": self._select_written}),
        }

    def stored_bytes(self, n_frames: int) -> int:
        """Size of the positions, and of the bits or RMSDs of pairs, of `n_frames` frames, bytes."""
        if self.n_clusters is None:
            of_pairs = n_frames * -(-n_frames // 8)
        else:
            of_pairs = n_frames * (n_frames - 1) // 2 * KEPT.itemsize
        return super().stored_bytes(n_frames) + of_pairs

    def prepare(self) -> PerFrame:
        """Make the worker part that returns the positions."""
        self._check_number(len(self.frames))
        return Positions()

    def next_stage(self, value: np.ndarray) -> OverParts:
        """Divide the pairs of frames into tiles, which the workers compare."""
        how = len(self.atoms), self._relative, True, NO_CUTOFF
        if self.cutoff is None:
            return Tiles(value, PairRmsds(*how, KEPT), KEPT, condensed=True)
        return Neighbors(value, _Near(PairRmsds(*how, np.dtype(np.float64)), self.cutoff))

    def finish(self, value: Any) -> None:
        """Compute the clusters from the bits or distances of pairs."""
        rows, n = value.rows, len(value.rows)
        known = np.concatenate([~left_out(rows[k : k + ROWS]) for k in range(0, n, ROWS)])
        if not known.any():
            raise ValueError("no frame is left to cluster: all are damaged, or have NaN positions")
        if isinstance(value, Neighbors):
            find = gromos if self.method == "gromos" else leader
            labels, centers = find(value.near)
        else:
            self._check_number(int(known.sum()))
            labels, centers = k_medoids(Pairs(value.matrix, known), self.n_clusters or 1)
        labels, centers, sizes = _by_size(labels, centers)
        method, arrays = {}, {}
        if self.errors:
            populations, found = errors_of_states(self, labels, len(sizes))
            method = {"intervals": found.method}
            arrays = {
                "populations": populations,
                "population_intervals": found.limits(populations),
            }
        self.results = ClusterResults(
            table=_table(labels, self.frames, self.times),
            provenance={**self.record(), **method},
            labels=labels,
            sizes=sizes,
            centers=centers,
            center_frames=self.frames[centers],
            universe=self._centers(rows, centers),
            frames=self.frames,
            times=self.times,
            **arrays,
        )

    def _centers(self, rows: np.ndarray, centers: np.ndarray) -> object:
        """Make a Universe with one frame per center, and the cell of this frame."""
        from MDAnalysis import Merge

        atoms = self.atoms if self._written is None else self._written
        once_more: Any = {"frames": self.frames[centers], "backend": "serial", "progress": False}
        if self._written is None:
            positions = allocate_results((len(centers), *rows.shape[1:]), np.dtype(np.float32))
            for k, center in enumerate(centers):
                positions[k] = rows[center]
        else:
            skipping: Any = {"on_error": "skip"} if self.skip_damaged else {}
            series = TimeSeries(_positions, atoms)
            series.run(**once_more, **skipping, transforms=self.transforms)
            positions = series.results.timeseries
        universe = Merge(atoms)
        cells = TimeSeries(_cells, atoms[:1]).run(**once_more).results.timeseries
        universe.load_new(positions, dimensions=cells)
        return universe

    FURTHER_TABLES = ("sizes",)

    def further_tables(self) -> dict[str, Table]:
        """Make a table with the size of each cluster, and the frame of its center.

        Returns
        -------
        dict of str to Table
            "sizes", with one row per cluster, the largest cluster first.
        """
        results = self.results
        columns = {
            "center (frame)": results.center_frames,
            "center (ps)": results.times[results.centers],
        }
        names = [str(number) for number in range(len(results.sizes))]
        n_frames = int(results.sizes.sum())
        intervals = results.population_intervals if self.errors else None
        return {
            "sizes": fractions_of_frames(
                "cluster", names, columns, results.sizes, n_frames, intervals
            )
        }

    def _check_number(self, n_frames: int) -> None:
        if self.n_clusters is not None and self.n_clusters > n_frames:
            raise ValueError(f"there are only {n_frames} frames for {self.n_clusters} clusters")

    def members(self, cluster: int) -> np.ndarray:
        """Return the frame numbers of the members of a cluster.

        Parameters
        ----------
        cluster : int
            Number of the cluster, from 0.

        Returns
        -------
        numpy.ndarray of int64, shape (n_members,)
            Frame numbers, in the order of the run.

        Raises
        ------
        NotRunError
            The analysis has not run.
        ValueError
            The cluster does not exist.
        """
        n = len(self.results.sizes)
        if not 0 <= whole_number("cluster", cluster) < n:
            raise ValueError(f"there is no cluster {cluster}: clusters are 0 to {n - 1}")
        return self.results.frames[self.results.labels == cluster]


class ClusterResults(Results):
    """Clusters whose centers can be saved as a file of several structures."""

    FILES = (".pdb", ".gro", ".xyz")

    def write_file(self, path: str, name: str) -> None:
        """Write the centers, one model per center."""
        write_structures(self.universe, path, named=name)


def _check_method(method: str, cutoff: float | None, n_clusters: int | None) -> None:
    """Raise an error if the method is unknown, or if its parameter is missing or wrong."""
    one_of("method", method, *BY_CUTOFF, *BY_NUMBER)
    if method in BY_CUTOFF:
        if cutoff is None:
            raise ValueError(f"{method} needs cutoff=, an RMSD in Å above 0, found none")
        length("cutoff", cutoff, 0.5)
        if n_clusters is not None:
            raise ValueError(f"{method} needs cutoff=; n_clusters= is for k-medoids")
    elif cutoff is not None:
        raise ValueError(f"{method} needs n_clusters=; cutoff= is for gromos and leader")
    elif n_clusters is None:
        raise ValueError(f"{method} needs n_clusters=, a whole number above 0, found none")


class _Near:
    """Worker part that returns one bit per pair of frames of two ranges: 1 for neighbours."""

    def __init__(self, rmsds: PairRmsds, cutoff: float):
        self._rmsds, self._cutoff = rmsds, cutoff

    def compute(self, size: int, first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray]:
        """Return the bits for each frame of the first range, eight bits per byte."""
        (distances,) = self._rmsds.compute(size, first, second)
        return (np.packbits(distances < self._cutoff, axis=1),)


class Neighbors(TileParts):
    """Tiles of all pairs of frames, in which each pair is stored as one bit.

    Attributes
    ----------
    near : numpy.ndarray of uint8, shape (n, n / 8, rounded up)
        Bits of neighbours, as by `numpy.packbits`. A frame that was not left out is its own
        neighbour.
    """

    def __init__(self, rows: np.ndarray, worker: object):
        super().__init__(rows, worker)
        self.near = allocate_results((len(rows), -(-len(rows) // 8)), np.dtype(np.uint8))

    def put(self, number: int, *values: np.ndarray) -> None:
        """Write a tile into the bits of all frames."""
        first, second = self.frames(number)
        tile = np.unpackbits(values[0], axis=1).view(bool)
        tile = tile[: first.stop - first.start, : second.stop - second.start]
        if first == second:
            tile = np.triu(tile, 1)
            tile |= tile.T
            np.fill_diagonal(tile, ~left_out(self.rows[first]))
        else:
            self.near[second, _bytes(first)] = np.packbits(tile.T, axis=1)
        self.near[first, _bytes(second)] = np.packbits(tile, axis=1)

    def get(self, number: int) -> tuple[np.ndarray]:
        """Return the tile with a number, as it was passed to `put`."""
        first, second = self.frames(number)
        tile = np.zeros((self.size, self.size // 8), np.uint8)
        found = self.near[first, _bytes(second)]
        tile[: found.shape[0], : found.shape[1]] = found
        return (tile,)


def _bytes(frames: slice) -> slice:
    """Return the range of the bytes that contain the bits of some frames."""
    return slice(frames.start // 8, -(-frames.stop // 8))


def gromos(near: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Find the cluster of each frame and the center of each cluster from bits of neighbours.

    Examples
    --------
    Frames 1 and 2 are neighbours, and so are frames 2 and 3, and frames 3 and 4:

    >>> near = np.eye(5, dtype=bool)
    >>> near[[1, 2, 2, 3, 3, 4], [2, 1, 3, 2, 4, 3]] = True
    >>> gromos(np.packbits(near, axis=1))
    (array([1, 0, 0, 0, 2]), array([2, 0, 4]))
    """
    n = len(near)
    counts = np.concatenate(
        [
            np.bitwise_count(near[k : k + ROWS]).sum(axis=1, dtype=np.int64)
            for k in range(0, n, ROWS)
        ]
    )
    labels = np.full(n, -1)
    centers: list[int] = []
    while counts.max() > 0:
        center = int(counts.argmax())
        members = np.flatnonzero(_bits(near[center], n) & (labels < 0))
        labels[members] = len(centers)
        centers.append(center)
        for k in range(0, len(members), ROWS):
            counts -= _bits(near[members[k : k + ROWS]], n).sum(axis=0, dtype=np.int64)
        counts[members] = 0
    return labels, np.array(centers)


def leader(near: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Find the cluster of each frame and the leader of each cluster from bits of neighbours."""
    n = len(near)
    labels = np.full(n, -1)
    leaders: list[int] = []
    for frame in range(n):
        if labels[frame] < 0:
            members = np.flatnonzero(_bits(near[frame], n) & (labels < 0))
            if len(members):
                labels[members] = len(leaders)
                leaders.append(frame)
    return labels, np.array(leaders)


def _bits(packed: np.ndarray, n: int) -> np.ndarray:
    """Unpack bits to an array of bool, `n` in each row."""
    return np.unpackbits(packed, axis=-1, count=n).view(bool)


class Pairs:
    """Distances of all pairs of readable frames, from a condensed matrix."""

    def __init__(self, condensed: np.ndarray, known: np.ndarray):
        self._condensed, self._n = condensed, len(known)
        self.places = np.flatnonzero(known)

    def __len__(self) -> int:
        return len(self.places)

    def _pairs(self, first: Any, second: Any) -> Any:
        """Indices of pairs in the condensed matrix; the first frame must be before the second."""
        return first * self._n - first * (first + 1) // 2 + second - first - 1

    def rows(self) -> Iterator[tuple[int, np.ndarray]]:
        """Yield each frame, with its distances from all later frames."""
        for k, place in enumerate(self.places.tolist()):
            later = self._pairs(place, self.places[k + 1 :])
            yield k, self._condensed[later].astype(np.float64)

    def row(self, k: int) -> np.ndarray:
        """Distances of one frame from all frames."""
        first = np.minimum(self.places, self.places[k])
        second = np.maximum(self.places, self.places[k])
        found, others = np.zeros(len(self)), first != second
        found[others] = self._condensed[self._pairs(first[others], second[others])]
        return found


def k_medoids(pairs: Pairs, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Find the cluster of each frame, and the medoid of each cluster.

    Examples
    --------
    Points on a line:

    >>> x = np.array([0.0, 5.0, 1.0, 6.0, 2.0])
    >>> condensed = np.abs(np.subtract.outer(x, x))[np.triu_indices(5, 1)]
    >>> k_medoids(Pairs(condensed, np.ones(5, bool)), 2)
    (array([1, 0, 1, 0, 1]), array([1, 2]))
    """
    medoids = _build(pairs, k)
    while k > 1:
        distances = np.array([pairs.row(medoid) for medoid in medoids])
        gained = _best_exchange(pairs, medoids, distances)
        if gained is None:
            break
        number, frame = gained
        medoids[number] = frame
    medoids.sort()
    # A medoid belongs to its own cluster, even if its distance from another medoid is 0.
    nearest = np.array([pairs.row(medoid) for medoid in medoids]).argmin(axis=0)
    nearest[medoids] = np.arange(k)
    labels = np.full(pairs._n, -1)
    labels[pairs.places] = nearest
    return labels, pairs.places[medoids]


def _build(pairs: Pairs, k: int) -> list[int]:
    """Choose the initial medoids one by one."""
    sums = np.zeros(len(pairs))
    for i, later in pairs.rows():
        sums[i] += later.sum()
        sums[i + 1 :] += later
    medoids = [_first_least(sums, sums.min())]
    nearest = pairs.row(medoids[0])
    while len(medoids) < k:
        # The distance of a frame from its nearest medoid vanishes if it becomes a medoid.
        gains = nearest.copy()
        for i, later in pairs.rows():
            gains[i] += np.maximum(nearest[i + 1 :] - later, 0).sum()
            gains[i + 1 :] += np.maximum(nearest[i] - later, 0)
        gains[medoids] = -1
        medoids.append(_first_least(-gains, nearest.sum()))
        nearest = np.minimum(nearest, pairs.row(medoids[-1]))
    return medoids


def _best_exchange(
    pairs: Pairs, medoids: list[int], distances: np.ndarray
) -> tuple[int, int] | None:
    """Find the exchange of a medoid for a frame that lowers the sum of distances most.

    `distances`, shape (k, n), are distances from the medoids. The change of the sum by an exchange
    is computed as two terms: one does not depend on the removed medoid, and the other sums over the
    frames whose nearest medoid is the removed one.
    """
    n, places = len(pairs), np.arange(len(pairs))
    near = distances.argmin(axis=0)
    nearest = distances[near, places]
    others = distances.copy()
    others[near, places] = np.inf
    second = others.min(axis=0)
    shared = -nearest
    changes = np.zeros((len(medoids), n))
    changes[near, places] = nearest - second
    for i, later in pairs.rows():
        rest = slice(i + 1, None)
        gained = np.minimum(later - nearest[rest], 0)
        own = np.minimum(later, second[rest]) - second[rest] - gained
        shared[i] += gained.sum()
        changes[:, i] += np.bincount(near[rest], own, len(medoids))
        gained = np.minimum(later - nearest[i], 0)
        shared[rest] += gained
        changes[near[i], rest] += np.minimum(later, second[i]) - second[i] - gained
    changes += shared
    changes += np.bincount(near, second - nearest, len(medoids))[:, np.newaxis]
    changes[:, medoids] = np.inf
    # Order by frame first: among equally good exchanges, choose the earliest frame.
    place = _first_least(changes.T.ravel(), nearest.sum())
    frame, number = divmod(place, len(medoids))
    return (number, frame) if changes[number, frame] < -ROUNDING * nearest.sum() else None


def _first_least(values: np.ndarray, total: float) -> int:
    """Return the index of the first value that equals the minimum within rounding of `total`."""
    return int(np.argmax(values <= values.min() + ROUNDING * total))


def _by_size(labels: np.ndarray, centers: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Number clusters by decreasing size, then by center; return labels, centers and sizes."""
    sizes = np.bincount(labels[labels >= 0], minlength=len(centers))
    order = np.lexsort((centers, -sizes))
    numbers = np.empty(len(order) + 1, np.int64)
    numbers[order] = np.arange(len(order))
    numbers[-1] = -1  # the label -1 of left-out frames indexes this element
    return numbers[labels], centers[order], sizes[order]


def _table(labels: np.ndarray, frames: np.ndarray, times: np.ndarray) -> Table:
    """Make a table with the cluster of each frame, drawn as points."""
    columns = {"frame": frames, "time (ps)": times, "cluster": labels}
    drawn = columns | {"cluster": np.where(labels < 0, np.nan, labels)}
    y = {"cluster": "cluster"}
    sizes = np.bincount(labels[labels >= 0])
    largest = ", ".join(f"{size:,}" for size in sizes[:3])
    notes = {"clusters": f"{len(sizes):,}, the largest of {largest} frames"} if len(sizes) else {}
    points = Table(drawn, "time (ps)", y, "cluster", no_mean=True)
    return Table(columns, "time (ps)", y, "cluster", points, no_mean=True, notes=notes)


def _cells(block: Block) -> np.ndarray:
    """Return lengths and angles of the cells of a block; zeros for frames without a cell."""
    return block.dimensions


def _positions(block: Block) -> np.ndarray:
    """Return the positions of a block."""
    return block.positions
