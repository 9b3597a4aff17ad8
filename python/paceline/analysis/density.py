"""Densities on a grid, with the parameters and results of MDAnalysis.analysis.density."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from paceline import _core
from paceline.analysis import name_of_mdanalysis
from paceline.analysis.base import AnalysisBase, describe_atoms
from paceline.analysis.interfaces import Reduction
from paceline.analysis.kernels import CoreHalf, SparseCounts, columns_of, merge_counts
from paceline.analysis.results import Results
from paceline.analysis.table import Image, Table
from paceline.analysis.updating import GroupFinder, follow_if_changing
from paceline.block import Block, check_refused
from paceline.errors import UnsupportedError
from paceline.transform.base import check_not_empty, check_positions


class DensityAnalysis(AnalysisBase):
    """Density of atoms on a grid, Å⁻³.

    Atoms are counted in voxels, where they are: molecules are not brought into the cell, and atoms
    outside the grid do not count. Center and fit the solute first, as with transformations of
    `paceline.transform`; give such a run a grid of its own, since the default one is that of the
    untransformed present frame.

    Parameters
    ----------
    atomgroup : AtomGroup
        The atoms; also a group that updates itself, whose atoms workers find in each frame. In
        frames in which it has none, none are counted; the mean is over all frames.
    delta : float
        Edge of the voxels, Å.
    metadata : dict, optional
        Notes that the density keeps, in its `metadata`.
    padding : float
        Space around the atoms of the present frame where no grid is given, Å.
    gridcenter : array of float, shape (3,), optional
        Center of the grid, Å.
    xdim, ydim, zdim : float, optional
        Edges of the grid, Å; with `gridcenter`.

    Attributes
    ----------
    results.density : MDAnalysis.analysis.density.Density
        Its `grid` is the mean number of atoms in each voxel over its volume, `edges` are the
        borders of the voxels, Å. `convert_density` changes the unit, `export` writes DX or MRC.
    results.counts : numpy.ndarray of uint64, shape of the grid
        Atoms in each voxel, of all frames.

    Raises
    ------
    SelectionError
        The group holds no atoms, and does not update itself.
    UnsupportedError
        The group updates itself, and workers cannot evaluate it.
    ValueError
        A grid that is not complete, or makes no sense; or none is given, and a group that updates
        itself has no atoms in the present frame. In the run, as `AnalysisError`: positions
        that are not finite.

    Examples
    --------
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import TPR, XTC
    >>> water = paceline.Universe(TPR, XTC).select_atoms("name OW")
    >>> density = DensityAnalysis(water, delta=20.0).run().results.density
    >>> density.grid.shape, float(density.grid.max().round(4))
    ((7, 5, 4), 0.0334)

    Of water near the protein alone:

    >>> near = water.universe.select_atoms("name OW and around 4 protein", updating=True)
    >>> found = DensityAnalysis(near, delta=20.0).run(stop=2).results
    >>> int(found.counts.sum())
    2101
    """

    SHARED_RESULTS = ("density",)

    def __init__(
        self,
        atomgroup: Any,
        delta: float = 1.0,
        metadata: Mapping[str, Any] | None = None,
        padding: float = 2.0,
        gridcenter: Sequence[float] | np.ndarray | None = None,
        xdim: float | None = None,
        ydim: float | None = None,
        zdim: float | None = None,
        verbose: bool = False,
    ):
        self._follow(atomgroup, verbose)
        check_not_empty(self.atomgroup, "DensityAnalysis: atomgroup")
        if not 0 < delta < np.inf:
            raise ValueError(f"delta must be a finite number above 0, not {delta!r}")
        from MDAnalysis.analysis import density as theirs

        check_positions(atomgroup.universe.trajectory, "the grid")
        grid = theirs.DensityAnalysis(
            atomgroup if self._finder else self.atomgroup,
            *(delta, None, padding, gridcenter, xdim, ydim, zdim),
        )
        self.metadata, self.delta, self._edges = metadata, delta, grid._edges

    @classmethod
    def like(cls, theirs: Any) -> Self:
        """Make one with the grid of MDAnalysis's."""
        ours = cls.__new__(cls)
        ours._follow(theirs._atomgroup, verbose=False)
        if len(ours.atomgroup) == 0:
            raise UnsupportedError("DensityAnalysis: no atoms")
        ours.metadata, ours.delta, ours._edges = None, theirs._delta, theirs._edges
        return ours

    def _follow(self, atomgroup: Any, verbose: bool) -> None:
        """Find what the workers need of a group, which may change from frame to frame."""
        atoms, self._finder, self._described = follow_if_changing(atomgroup, "DensityAnalysis")
        AnalysisBase.__init__(self, atoms, verbose=verbose)

    def parameters(self) -> dict[str, Any]:
        """Parameters, for the record that is saved with the results."""
        limits = (f"{edges[0]:g} to {edges[-1]:g}" for edges in self._edges)
        return {
            "atoms": self._described or describe_atoms(self.atomgroup),
            "delta": self.delta,
            "grid (Å)": ", ".join(limits),
        }

    def prepare(self) -> Reduction:
        """Counting needs the grid."""
        return _Voxels(self._edges, self._finder)

    def finish(self, value: SparseCounts) -> None:
        """Divide the counts by the number of frames and the volume of a voxel."""
        from MDAnalysis.analysis.density import Density

        shape = [len(edges) - 1 for edges in self._edges]
        counts = value.counted(int(np.prod(shape))).reshape(shape)
        mean = counts / value.n_frames if value.n_frames else np.full(shape, np.nan)
        density = Density(
            grid=mean,
            edges=self._edges,
            units={"length": "Angstrom"},
            parameters={"isDensity": False},
            metadata=self.metadata and dict(self.metadata),
        )
        density.make_density()
        self.results = DensityResults(
            table=_map_along_z(density),
            provenance=self.record(),
            density=density,
            counts=counts,
        )


class DensityResults(Results):
    """A density, which is also saved as DX or MRC."""

    FILES = (".dx", ".mrc")

    def write_file(self, path: str) -> None:
        """Write the grid for programs that draw isosurfaces."""
        self.density.export(path, type="double" if path.lower().endswith(".dx") else None)


def _map_along_z(density: Any) -> Table:
    """Make a table and an image of the density, mean along z."""
    label = "density, mean along z (Å⁻³)"
    values = density.grid.mean(axis=2)
    edges = density.edges[:2]
    x, y = np.meshgrid(*((one[1:] + one[:-1]) / 2 for one in edges), indexing="ij")
    columns = {"x (Å)": x.ravel(), "y (Å)": y.ravel(), label: values.ravel()}
    image = Image(values, edges[0], edges[1], "x (Å)", "y (Å)", label, equal=True)
    keys = ("x (Å)", "y (Å)")
    y_of = {label: "density"}
    return Table(columns, keys[0], y_of, label, image=image, keys=keys, partial=True)


class _Voxels(CoreHalf):
    """Find the voxels of atoms."""

    def __init__(self, edges: Sequence[np.ndarray], finder: GroupFinder | None):
        self._finder = finder
        self._edges = [np.ascontiguousarray(one, dtype=np.float64) for one in edges]
        self._n_voxels = int(np.prod([len(one) - 1 for one in self._edges]))

    def compute(self, block: Block) -> SparseCounts:
        if self._finder is not None:
            return SparseCounts(len(block), self._of_frames(self._finder, block), None)
        if self._bound is None:
            self._bound = _core.Voxels(columns_of(block), *self._edges)
        return SparseCounts(len(block), _found(self._bound, block), None)

    def _of_frames(self, finder: GroupFinder, block: Block) -> np.ndarray:
        """Find the voxels of the atoms that a group has in each frame."""
        found = [np.empty(0, dtype=np.uint32)]
        for row, (_, columns) in enumerate(finder.by_frame(block)):
            if len(columns):
                voxels = _core.Voxels(columns, *self._edges)
                found.append(_found(voxels, block[row : row + 1]))
        return np.concatenate(found)

    def merge(self, left: SparseCounts, right: SparseCounts) -> SparseCounts:
        return merge_counts(left, right, self._n_voxels)


def _found(voxels: _core.Voxels, block: Block) -> np.ndarray:
    """Find the voxels of the atoms of some frames; `ValueError` names one that has none."""
    found, refused = voxels.find(block.raw[0])
    check_refused(block, refused)
    return found


def __getattr__(name: str) -> Any:
    return name_of_mdanalysis(__name__, name)
