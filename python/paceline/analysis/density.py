"""Densities on a grid, with the parameters and results of MDAnalysis.analysis.density."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Self

import numpy as np

from paceline import _core
from paceline._util.arguments import length
from paceline.analysis import name_of_mdanalysis
from paceline.analysis.base import AnalysisBase
from paceline.analysis.kernels import CoreHalf, SparseCounts, columns_of, merge_counts
from paceline.analysis.results import Results
from paceline.analysis.table import Image, Table
from paceline.analysis.updating import GroupFinder, follow_if_changing
from paceline.block import Block, check_refused
from paceline.contract.atoms import Atoms, System
from paceline.contract.declaration import Declaration, Option
from paceline.contract.kinds import Reduction
from paceline.contract.run_info import describe_atoms
from paceline.errors import UnsupportedError
from paceline.performance.number_format import percent
from paceline.transform.atom_choice import check_not_empty, check_positions

if TYPE_CHECKING:
    import MDAnalysis.analysis.density

#: Share of the atoms outside of the grid from which on it is worth a warning.
LEAST_OUTSIDE = 0.01


class DensityAnalysis(AnalysisBase):
    """Density of atoms on a grid, Å⁻³.

    Atoms are counted in voxels, where they are: molecules are not brought into the cell, and atoms
    outside the grid do not count. Tables say which share of them that is, and a warning if it is
    1 % or more and no grid was given, or if it is all. Center and fit the solute first, as with
    transformations of `paceline.transform`; give such a run a grid of its own, since the default
    one is that of the untransformed present frame.

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
        borders of the voxels, Å. `convert_density` changes the unit, `export` writes DX. For MRC
        take ``results.save("x.mrc")``: `export` of GridDataFormats 1.2 rounds the origin to whole
        voxels.
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

    declaration = Declaration(
        name="density",
        summary="density of atoms on a grid",
        description=(
            "Mean number of atoms in each voxel over its volume (Å⁻³). Center and fit the "
            "solute, and give the grid, where frames are transformed. Tables and figures have "
            "the mean along z; -o FILE.dx or FILE.mrc the grid, for programs that draw "
            "isosurfaces."
        ),
        section="distributions.md#density-on-a-grid",
        examples=(
            'md.tpr md.xtc --select "name OW" -o water.dx --plot water.png',
            (
                'md.tpr md.xtc --select "name OW" --unwrap --center --fit --gridcenter 40 40 40 '
                "--size 60 60 60 -o water.mrc"
            ),
        ),
        options=(
            "delta",
            "padding",
            Option(
                "gridcenter",
                "center of the grid, Å [that of the atoms in the first frame]",
                nargs=3,
                type="float",
                metavar=("X", "Y", "Z"),
            ),
            Option(
                "size",
                "edges of the grid, Å; with --gridcenter",
                nargs=3,
                type="float",
                metavar=("X", "Y", "Z"),
            ),
        ),
        counterpart="density.DensityAnalysis",
        files=(
            ".dx",
            ".mrc",
        ),
    )

    needs_one_location = needs_fit = True
    SHARED_RESULTS = ("density",)

    def __init__(
        self,
        atomgroup: Atoms | System,
        delta: float = 1.0,
        metadata: Mapping[str, object] | None = None,
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
        length("delta", delta, 0.2)
        from MDAnalysis.analysis import density as theirs

        check_positions(atomgroup.universe.trajectory, "the grid")
        grid = theirs.DensityAnalysis(
            atomgroup if self._finder else self.atomgroup,
            *(delta, None, padding, gridcenter, xdim, ydim, zdim),
        )
        self.metadata, self.delta, self._edges = metadata, delta, grid._edges
        self._is_given = gridcenter is not None

    @classmethod
    def like(cls, theirs: "MDAnalysis.analysis.density.DensityAnalysis") -> Self:
        """Make one with the grid of MDAnalysis's."""
        ours = cls.__new__(cls)
        ours._follow(theirs._atomgroup, verbose=False)
        if len(ours.atomgroup) == 0:
            raise UnsupportedError("DensityAnalysis: no atoms")
        ours.metadata, ours.delta, ours._edges = None, theirs._delta, theirs._edges
        ours._is_given = theirs._gridcenter is not None
        return ours

    def _follow(self, atomgroup: Atoms | System, verbose: bool) -> None:
        """Find what the workers need of a group, which may change from frame to frame."""
        atoms, self._finder, self._described = follow_if_changing(atomgroup, "DensityAnalysis")
        AnalysisBase.__init__(self, atoms, verbose=verbose)

    def parameters(self) -> dict[str, object]:
        """Parameters, for the record that is saved with the results."""
        limits = (f"{edges[0]:g} to {edges[-1]:g}" for edges in self._edges)
        return {
            "atoms": self._described or describe_atoms(self.atomgroup),
            "delta": self.delta,
            "grid (Å)": ", ".join(limits),
        }

    def _left_grid(self, outside: float) -> str | None:
        """Say which share of atoms, 0 to 1, was outside a grid that should hold them.

        One that is given may be smaller, but not without any atom.
        """
        if outside < (1.0 if self._is_given else LEAST_OUTSIDE):
            return None
        advice = (
            "give a grid where the atoms are"
            if self._is_given
            else (
                "the grid is that of the present frame: give one (--gridcenter, --size), or bring "
                "molecules into the cell (--wrap)"
            )
        )
        return (
            f"DensityAnalysis: {percent(outside)} of the atoms, over all frames, are outside the "
            f"grid and do not count; {advice}"
        )

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
        outside = 1 - int(counts.sum()) / value.n_asked if value.n_asked else 0.0
        self.remark("grid", self._left_grid(outside))
        self.results = DensityResults(
            table=_map_along_z(density),
            provenance={**self.record(), "atoms outside the grid": f"{100 * outside:.2g} %"},
            density=density,
            counts=counts,
        )


class DensityResults(Results):
    """A density, which is also saved as DX or MRC."""

    FILES = (".dx", ".mrc")

    def write_file(self, path: str, name: str) -> None:
        """Write the grid for programs that draw isosurfaces."""
        if path.lower().endswith(".dx"):
            self.density.export(path, type="double")
        else:
            _write_mrc(self.density, path)


def _write_mrc(density: "MDAnalysis.analysis.density.Density", path: str) -> None:
    """Write a grid as MRC 2014, with the center of its first voxel as the origin.

    That stands in the words 50 to 52 of the header, Å, and no voxels are skipped (words 5 to 7): so
    GridDataFormats, which adds up both, and ChimeraX, which takes the first unless it is 0, read
    the same. GridDataFormats itself writes a rounded number of voxels instead.
    """
    import mrcfile

    with mrcfile.new(path, overwrite=True) as file:
        file.set_data(np.ascontiguousarray(density.grid.T, dtype=np.float32))
        file.set_volume()
        file.voxel_size = tuple(map(float, density.delta))
        for axis, first in zip("xyz", density.origin, strict=True):
            file.header.origin[axis] = first


def _map_along_z(density: "MDAnalysis.analysis.density.Density") -> Table:
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


class _Voxels(CoreHalf, Reduction):
    """Find the voxels of atoms."""

    def __init__(self, edges: Sequence[np.ndarray], finder: GroupFinder | None):
        self._finder = finder
        self._edges = [np.ascontiguousarray(one, dtype=np.float64) for one in edges]
        self._n_voxels = int(np.prod([len(one) - 1 for one in self._edges]))

    def compute(self, block: Block) -> SparseCounts:
        if self._finder is not None:
            return self._voxels_of_frames(self._finder, block)
        columns = columns_of(block)
        if self._bound is None:
            self._bound = _core.Voxels(columns, *self._edges)
        n_asked = len(block) * len(columns)
        return SparseCounts(len(block), _found(self._bound, block), None, n_asked)

    def _voxels_of_frames(self, finder: GroupFinder, block: Block) -> SparseCounts:
        """Find the voxels of the atoms that a group has in each frame."""
        found, n_asked = [np.empty(0, dtype=np.uint32)], 0
        for row, (_, columns) in enumerate(finder.by_frame(block)):
            if len(columns):
                voxels = _core.Voxels(columns, *self._edges)
                found.append(_found(voxels, block[row : row + 1]))
                n_asked += len(columns)
        return SparseCounts(len(block), np.concatenate(found), None, n_asked)

    def merge(self, left: SparseCounts, right: SparseCounts) -> SparseCounts:
        return merge_counts(left, right, self._n_voxels)


def _found(voxels: _core.Voxels, block: Block) -> np.ndarray:
    """Find the voxels of the atoms of some frames; `ValueError` names one that has none."""
    found, refused = voxels.find(block.raw[0])
    check_refused(block, refused)
    return found


def __getattr__(name: str) -> object:
    return name_of_mdanalysis(__name__, name)
