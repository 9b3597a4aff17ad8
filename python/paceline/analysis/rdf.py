"""Radial distribution functions, with the parameters and results of MDAnalysis.analysis.rdf."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from paceline import _core
from paceline.analysis import name_of_mdanalysis
from paceline.analysis.base import AnalysisBase, describe_atoms
from paceline.analysis.interfaces import Reduction
from paceline.analysis.results import Results
from paceline.analysis.table import Table
from paceline.block import Block
from paceline.errors import SelectionError, UnsupportedError
from paceline.transform.base import check_static

#: Titles of `rdf` in tables and figures, by its norm.
TITLES = {"rdf": "g(r)", "density": "n(r) (Å⁻³)", "none": "pairs per frame"}

#: Values of `exclude_same`, and the attributes of the topology that they compare.
SHARED = {"residue": "resindices", "segment": "segindices", "chain": "chainIDs"}


class InterRDF(AnalysisBase):
    r"""Radial distribution function between the atoms of two groups.

    $$g_{ab}(r) = \frac{V}{N_a N_b} \sum_{i=1}^{N_a} \sum_{j=1}^{N_b}
              \left\langle \delta(|\mathbf{r}_i - \mathbf{r}_j| - r) \right\rangle$$

    Distances are those of the nearest images in each frame's own cell, or plain ones in a frame
    without a cell. They are rounded as MDAnalysis rounds them, so that the counts agree: in files
    with a precision of 0.01 Å, many distances lie exactly between two bins. If `g1` and `g2` share
    atoms, the distance 0 of an atom to itself counts, as in MDAnalysis.

    Parameters
    ----------
    g1, g2 : AtomGroup
        The groups, of one Universe; they may be the same, or share atoms.
    nbins : int
        Number of bins.
    range : (float, float)
        Start of the first bin and end of the last one, Å.
    norm : {"rdf", "density", "none"}
        Make `results.rdf` $g_{ab}(r)$; the density of atoms of `g2` around each pair's first
        atom, summed over `g1` (Å⁻³); or the number of pairs, each per frame.
    exclusion_block : (int, int), optional
        Leave out pairs within a molecule, of which so many atoms in a row are in `g1` and `g2`.
    exclude_same : {"residue", "segment", "chain"}, optional
        Leave out pairs that share it. Unlike `exclusion_block`, it does not change the norm.
    backend : str
        Taken from calls that were written for MDAnalysis, and not needed.
    verbose : bool
        Show progress.

    Attributes
    ----------
    results.bins : numpy.ndarray of float64, shape (nbins,)
        Middles of the bins, Å.
    results.edges : numpy.ndarray of float64, shape (nbins + 1,)
        Their borders, Å.
    results.count : numpy.ndarray of float64, shape (nbins,)
        Pairs in each bin, of all frames: whole numbers.
    results.rdf : numpy.ndarray of float64, shape (nbins,)
        The function, by its norm.
    results.cdf : numpy.ndarray of float64, shape (nbins,)
        After `get_cdf`: running coordination number, up to the end of each bin.
    results.volume_cum : float
        Sum of the cells' volumes over frames, Å³; with ``norm="rdf"`` alone.

    Raises
    ------
    SelectionError
        A group holds no atoms.
    UnsupportedError
        A group updates itself, or the groups are of two Universes.
    ValueError
        Parameters that make no sense. In the run, as `AnalysisError`: a frame that has no cell
        with ``norm="rdf"``, or an impossible one, or positions that are not finite.

    Examples
    --------
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import GRO, XTC
    >>> water = paceline.Universe(GRO, XTC).select_atoms("name OW")
    >>> rdf = InterRDF(water, water, nbins=4, range=(2.0, 4.0)).run()
    >>> rdf.results.bins, rdf.results.rdf.round(2)
    (array([2.25, 2.75, 3.25, 3.75]), array([0.  , 2.09, 0.99, 0.98]))
    """

    def __init__(
        self,
        g1: Any,
        g2: Any,
        nbins: int = 75,
        range: Sequence[float] = (0.0, 15.0),
        norm: str = "rdf",
        exclusion_block: Sequence[int] | None = None,
        exclude_same: str | None = None,
        backend: str = "serial",
        verbose: bool = False,
    ):
        super().__init__(g1, verbose=verbose)
        check_static(g2, type(self).__name__)
        self.g1, self.g2 = g1.atoms, g2.atoms
        if self.g1.universe is not self.g2.universe:
            raise UnsupportedError("InterRDF: g1 and g2 must be atoms of the same Universe")
        for name, group in (("g1", self.g1), ("g2", self.g2)):
            if len(group) == 0:
                raise SelectionError(f"InterRDF: {name} holds no atoms")
        self.norm = str(norm).lower()
        if self.norm not in TITLES:
            raise ValueError(f"norm must be 'rdf', 'density' or 'none', not {norm!r}")
        self.nbins, self.range = nbins, range
        self._edges = _edges(nbins, range)
        self.exclusion_block, self.exclude_same = exclusion_block, exclude_same
        self._labels = self._find_labels()

    @property
    def indices(self) -> np.ndarray:
        """Atoms of `g1`, then those of `g2`."""
        return np.concatenate([self.g1.indices, self.g2.indices])

    SHARED_RESULTS = ("bins", "edges", "count", "rdf", "volume_cum")

    @classmethod
    def like(cls, theirs: Any) -> Self:
        """Make one with the parameters of MDAnalysis's."""
        attributes = {"resindices": "residue", "segindices": "segment", "chainIDs": "chain"}
        return cls(
            theirs.g1,
            theirs.g2,
            nbins=theirs.rdf_settings["bins"],
            range=theirs.rdf_settings["range"],
            norm=theirs.norm,
            exclusion_block=theirs._exclusion_block,
            exclude_same=attributes.get(theirs.exclude_same),
        )

    def parameters(self) -> dict[str, Any]:
        """Parameters, for the record that is saved with the results."""
        return {
            "g1": describe_atoms(self.g1),
            "g2": describe_atoms(self.g2),
            "nbins": self.nbins,
            "range": tuple(self.range),
            "norm": self.norm,
            "exclusion_block": self.exclusion_block or "none",
            "exclude_same": self.exclude_same or "none",
        }

    def prepare(self) -> Reduction:
        """Collect the groups, and the way to count their pairs."""
        first, second = self._labels or (None, None)
        same = np.array_equal(self.g1.indices, self.g2.indices)
        same = same and (self._labels is None or np.array_equal(*self._labels))
        groups = [_Group(len(self.g1), first), _Group(len(self.g2), second)]
        return _Distances(self._edges, groups, same=same, needs_cell=self.norm == "rdf")

    def finish(self, value: "_Counted") -> None:
        """Divide the counts by the norm."""
        edges = self._edges
        self._n_counted = value.n_frames
        bins = 0.5 * (edges[:-1] + edges[1:])
        count = value.counts.astype(np.float64)
        rdf = count / self._norms(value)
        title = TITLES[self.norm]
        columns = {"r (Å)": bins, title: rdf, "count": count}
        table = Table(columns, "r (Å)", {title: title}, title)
        arrays = {"bins": bins, "edges": edges, "count": count, "rdf": rdf}
        if self.norm == "rdf":
            arrays["volume_cum"] = value.volume
        self.results = Results(table=table, provenance=self.record(), **arrays)

    def get_cdf(self) -> np.ndarray:
        """Calculate the running coordination number, from the start of the range.

        Where the groups share atoms and the range begins at 0, each of these counts itself.

        Returns
        -------
        numpy.ndarray of float64, shape (nbins,)
            Atoms of `g2` around an atom of `g1`, up to the end of each bin: mean over the atoms of
            `g1` and over frames. It is in `results.cdf`, too.

        Raises
        ------
        AttributeError
            The analysis was not run.
        """
        counts = np.cumsum(self.results.count)
        n_centers = len(self.g1) * self._n_counted
        self.results.cdf = counts / n_centers if n_centers else np.full(self.nbins, math.nan)
        return self.results.cdf

    def _norms(self, value: "_Counted") -> np.ndarray:
        """Compute the norm of each bin."""
        norms = np.full(self.nbins, float(value.n_frames))
        if self.norm != "none":
            norms *= 4 / 3 * math.pi * np.diff(self._edges**3)
        if self.norm == "rdf":
            n_pairs: float = len(self.g1) * len(self.g2)
            if self.exclusion_block is not None:
                n_pairs -= len(self.g1) * self.exclusion_block[1]
            norms *= n_pairs / (value.volume / value.n_frames) if value.n_frames else math.nan
        return norms

    def _find_labels(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Label the atoms of both groups, if pairs of the same label are excluded."""
        if self.exclude_same is not None:
            if self.exclude_same not in SHARED:
                raise ValueError(
                    "exclude_same must be None, 'residue', 'segment' or 'chain', not "
                    f"{self.exclude_same!r}"
                )
            if self.exclusion_block is not None:
                raise ValueError("exclude_same and exclusion_block cannot both be given")
            return self._shared(SHARED[self.exclude_same])
        if self.exclusion_block is None:
            return None
        sizes = [int(size) for size in self.exclusion_block]
        if len(sizes) != 2 or min(sizes) < 1:
            raise ValueError(
                f"exclusion_block must be two numbers of atoms, not {self.exclusion_block!r}"
            )
        first, second = (
            (np.arange(len(group)) // size).astype(np.uint32)
            for group, size in zip((self.g1, self.g2), sizes, strict=True)
        )
        return first, second

    def _shared(self, attribute: str) -> tuple[np.ndarray, np.ndarray]:
        if not hasattr(self.g1, attribute):
            raise UnsupportedError(
                f"exclude_same={self.exclude_same!r} needs {attribute}, which the topology has not"
            )
        values = [np.asarray(getattr(group, attribute)) for group in (self.g1, self.g2)]
        _, labels = np.unique(np.concatenate(values), return_inverse=True)
        first, second = np.split(labels.astype(np.uint32), [len(self.g1)])
        return first, second


class _Group(NamedTuple):
    """Number of atoms of a group, and their labels."""

    n_atoms: int
    labels: np.ndarray | None


class _Counted(NamedTuple):
    """Frames, the sum of their volumes (Å³), and pairs in each bin."""

    n_frames: int
    volume: float
    counts: np.ndarray


class _Distances:
    """Count distances between the atoms of two groups, which follow each other in a block."""

    def __init__(
        self, edges: np.ndarray, groups: Sequence[_Group], *, same: bool, needs_cell: bool
    ):
        self._edges = edges
        self._groups = groups
        self._same = same
        self._needs_cell = needs_cell
        self._bound: _core.Rdf | None = None

    def compute(self, block: Block) -> _Counted:
        positions, columns = block.raw
        if self._bound is None:
            self._bound = self._bind(columns)
        counts = np.zeros(len(self._edges) - 1, dtype=np.uint64)
        volume, refused = self._bound.count(positions, block.dimensions, counts)
        if refused is not None:
            row, reason = refused
            raise ValueError(f"frame {block.frames[row]}: {reason}")
        return _Counted(len(block), volume, counts)

    def merge(self, left: _Counted, right: _Counted) -> _Counted:
        return _Counted(
            left.n_frames + right.n_frames, left.volume + right.volume, left.counts + right.counts
        )

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


def _edges(nbins: Any, range: Sequence[float]) -> np.ndarray:
    """Compute the borders of the bins, Å, as NumPy's histograms do."""
    if isinstance(nbins, bool) or not isinstance(nbins, int | np.integer) or nbins < 1:
        raise ValueError(f"nbins must be a whole number of at least 1, not {nbins!r}")
    limits = np.asarray(range, dtype=np.float64)
    if limits.shape != (2,) or not np.isfinite(limits).all() or limits[1] <= max(0, limits[0]):
        raise ValueError(
            f"range must be two finite numbers, the second above 0 and the first, not {range!r}"
        )
    return np.histogram_bin_edges([], int(nbins), (limits[0], limits[1]))


def __getattr__(name: str) -> Any:
    return name_of_mdanalysis(__name__, name)
