"""Densities on a grid, with the parameters and results of MDAnalysis.analysis.density."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Self

import numpy as np

from paceline import _core
from paceline._util.arguments import length
from paceline.analysis import name_of_mdanalysis
from paceline.analysis.base import AnalysisBase
from paceline.analysis.kernels import CorePart, SparseCounts, columns_of, merge_counts
from paceline.analysis.results import Results
from paceline.analysis.table import Image, Table
from paceline.analysis.updating_groups import GroupFinder, follow_if_changing
from paceline.block import Block, check_refused
from paceline.contract.analysis_declaration import Declaration, Option
from paceline.contract.analysis_kinds import Reduction
from paceline.contract.run_info_and_descriptions import describe_atoms
from paceline.contract.system_interface import Atoms, System
from paceline.errors import UnsupportedError
from paceline.performance.number_format import percent
from paceline.transform.apply_transforms import check_positions
from paceline.transform.selections_and_weights import check_not_empty

if TYPE_CHECKING:
    import MDAnalysis.analysis.density

#: A warning is issued if at least this fraction of the atoms is outside the default grid.
LEAST_OUTSIDE = 0.01


class DensityAnalysis(AnalysisBase):
    """Density of atoms on a grid, Å⁻³.

    Atoms are counted in the voxels at their positions. Molecules are not wrapped into the cell, and
    atoms outside the grid are not counted. Tables contain the fraction of atoms outside. A warning
    is issued if the fraction is 1 % or more with the default grid, or if no atom is in the grid.
    Center and superpose the solute first, with transformations of `paceline.transform`. Such a run
    needs an explicit grid, because the default grid fits the current frame without transformations.

    Parameters
    ----------
    atomgroup : AtomGroup
        Atoms. For an UpdatingAtomGroup, workers evaluate the selection in each frame. Frames
        without selected atoms contribute zero to the mean.
    delta : float
        Edge length of the voxels, Å.
    metadata : dict, optional
        Notes that are stored in the `metadata` of the density.
    padding : float
        Space around the atoms of the current frame in the default grid, Å.
    gridcenter : array of float, shape (3,), optional
        Center of the grid, Å.
    xdim, ydim, zdim : float, optional
        Edge lengths of the grid, Å; required with `gridcenter`.

    Attributes
    ----------
    results.density : MDAnalysis.analysis.density.Density
        Density, Å⁻³. `grid` is the mean number of atoms in each voxel, divided by its volume, and
        `edges` are the borders of the voxels, Å. `convert_density` changes the unit, and `export`
        writes DX. For MRC use ``results.save("x.mrc")``, because `export` of GridDataFormats 1.2
        rounds the origin to whole voxels.
    results.counts : numpy.ndarray of uint64, shape of the grid
        Number of atoms in each voxel, summed over frames.

    Raises
    ------
    SelectionError
        The group is empty, and is not an UpdatingAtomGroup.
    UnsupportedError
        The group is an UpdatingAtomGroup that workers cannot evaluate.
    ValueError
        The grid is incomplete or invalid. Or there is no explicit grid, and an UpdatingAtomGroup
        has no atoms in the current frame. In the run, as `AnalysisError`: positions are not
        finite.

    Examples
    --------
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import TPR, XTC
    >>> water = paceline.Universe(TPR, XTC).select_atoms("name OW")
    >>> density = DensityAnalysis(water, delta=20.0).run().results.density
    >>> density.grid.shape, float(density.grid.max().round(4))
    ((7, 5, 4), 0.0334)

    Density of water near the protein only:

    >>> near = water.universe.select_atoms("name OW and around 4 protein", updating=True)
    >>> found = DensityAnalysis(near, delta=20.0).run(stop=2).results
    >>> int(found.counts.sum())
    2101
    """

    declaration = Declaration(
        name="density",
        summary="density of atoms on a grid",
        description=(
            "Mean number of atoms in each voxel, divided by its volume (Å⁻³). Center and superpose "
            "the solute, and set the grid if frames are transformed. Tables and figures contain "
            "the mean along z; -o FILE.dx or FILE.mrc writes the grid for programs that draw "
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
                "center of the grid, Å [center of the atoms in the first frame]",
                nargs=3,
                type="float",
                metavar=("X", "Y", "Z"),
            ),
            Option(
                "size",
                "edge lengths of the grid, Å; with --gridcenter",
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
        self._prepare_group(atomgroup, verbose)
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
    def from_mdanalysis(cls, theirs: "MDAnalysis.analysis.density.DensityAnalysis") -> Self:
        """Make an analysis with the grid of MDAnalysis's analysis."""
        ours = cls.__new__(cls)
        ours._prepare_group(theirs._atomgroup, verbose=False)
        if len(ours.atomgroup) == 0:
            raise UnsupportedError("DensityAnalysis: the group is empty")
        ours.metadata, ours.delta, ours._edges = None, theirs._delta, theirs._edges
        ours._is_given = theirs._gridcenter is not None
        return ours

    def _prepare_group(self, atomgroup: Atoms | System, verbose: bool) -> None:
        """Set the analysed atoms; for an updating group also the finder of its atoms in a frame."""
        atoms, self._finder, self._described = follow_if_changing(atomgroup, "DensityAnalysis")
        AnalysisBase.__init__(self, atoms, verbose=verbose)

    def parameters(self) -> dict[str, object]:
        """Return the parameters that are saved with the results."""
        limits = (f"{edges[0]:g} to {edges[-1]:g}" for edges in self._edges)
        return {
            "atoms": self._described or describe_atoms(self.atomgroup),
            "delta": self.delta,
            "grid (Å)": ", ".join(limits),
        }

    def _describe_outside(self, outside: float) -> str | None:
        """Describe the fraction of atoms, 0 to 1, outside the grid if it is unexpectedly large.

        An explicit grid may be smaller than the system, but must contain some atoms.
        """
        if outside < (1.0 if self._is_given else LEAST_OUTSIDE):
            return None
        advice = (
            "set a grid around the atoms"
            if self._is_given
            else (
                "the grid fits the present frame: set a grid (--gridcenter, --size), or wrap "
                "molecules into the cell (--wrap)"
            )
        )
        return (
            f"DensityAnalysis: {percent(outside)} of the atoms, over all frames, are outside the "
            f"grid and are not counted; {advice}"
        )

    def prepare(self) -> Reduction:
        """Make the worker part, which counts the atoms in the voxels of the grid."""
        return _Voxels(self._edges, self._finder)

    def finish(self, value: SparseCounts) -> None:
        """Divide the counts by the number of frames and by the volume of a voxel."""
        from MDAnalysis.analysis.density import Density

        shape = [len(edges) - 1 for edges in self._edges]
        counts = value.to_counts(int(np.prod(shape))).reshape(shape)
        mean = counts / value.n_frames if value.n_frames else np.full(shape, np.nan)
        density = Density(
            grid=mean,
            edges=self._edges,
            units={"length": "Angstrom"},
            parameters={"isDensity": False},
            metadata=self.metadata and dict(self.metadata),
        )
        density.make_density()
        outside = 1 - int(counts.sum()) / value.n_possible if value.n_possible else 0.0
        self.remark("grid", self._describe_outside(outside))
        self.results = DensityResults(
            table=_map_along_z(density),
            provenance={**self.record(), "atoms outside the grid": f"{100 * outside:.2g} %"},
            density=density,
            counts=counts,
        )


class DensityResults(Results):
    """Density that can also be saved as DX or MRC."""

    FILES = (".dx", ".mrc")

    def write_file(self, path: str, name: str) -> None:
        """Write the grid in a format of programs that draw isosurfaces."""
        if path.lower().endswith(".dx"):
            self.density.export(path, type="double")
        else:
            _write_mrc(self.density, path)


def _write_mrc(density: "MDAnalysis.analysis.density.Density", path: str) -> None:
    """Write a grid as MRC 2014, with the center of its first voxel as the origin.

    The origin (Å) is in words 50 to 52 of the header, and the start in voxels, words 5 to 7, is 0.
    GridDataFormats reads the sum of both, and ChimeraX reads the origin unless it is 0, so both
    programs find the same grid. The writer of GridDataFormats is not used, because it writes the
    start, in whole voxels.
    """
    import mrcfile

    with mrcfile.new(path, overwrite=True) as file:
        file.set_data(np.ascontiguousarray(density.grid.T, dtype=np.float32))
        file.set_volume()
        file.voxel_size = tuple(map(float, density.delta))
        for axis, first in zip("xyz", density.origin, strict=True):
            file.header.origin[axis] = first


def _map_along_z(density: "MDAnalysis.analysis.density.Density") -> Table:
    """Make a table and an image of the density, averaged along z."""
    label = "density, mean along z (Å⁻³)"
    values = density.grid.mean(axis=2)
    edges = density.edges[:2]
    x, y = np.meshgrid(*((one[1:] + one[:-1]) / 2 for one in edges), indexing="ij")
    columns = {"x (Å)": x.ravel(), "y (Å)": y.ravel(), label: values.ravel()}
    image = Image(values, edges[0], edges[1], "x (Å)", "y (Å)", label, equal=True)
    keys = ("x (Å)", "y (Å)")
    y_of = {label: "density"}
    return Table(columns, keys[0], y_of, label, image=image, keys=keys, partial=True)


class _Voxels(CorePart, Reduction):
    """Worker part: number of atoms in each voxel."""

    def __init__(self, edges: Sequence[np.ndarray], finder: GroupFinder | None):
        self._finder = finder
        # With several threads, counting on a grid was slower, so threads only help to select atoms.
        self.splits_frames = finder is not None
        self._edges = [np.ascontiguousarray(one, dtype=np.float64) for one in edges]
        self._n_voxels = int(np.prod([len(one) - 1 for one in self._edges]))

    def compute(self, block: Block) -> SparseCounts:
        if self._finder is not None:
            return self._voxels_of_frames(self._finder, block)
        columns = columns_of(block)
        if self._bound is None:
            self._bound = _core.Voxels(columns, *self._edges)
        n_possible = len(block) * len(columns)
        return SparseCounts(len(block), _find_voxels(self._bound, block), None, n_possible)

    def _voxels_of_frames(self, finder: GroupFinder, block: Block) -> SparseCounts:
        """Find the voxels of the atoms that a group contains in each frame."""
        found, n_possible = [np.empty(0, dtype=np.uint32)], 0
        for row, (_, columns) in enumerate(finder.by_frame(block)):
            if len(columns):
                voxels = _core.Voxels(columns, *self._edges)
                found.append(_find_voxels(voxels, block[row : row + 1]))
                n_possible += len(columns)
        return SparseCounts(len(block), np.concatenate(found), None, n_possible)

    def merge(self, left: SparseCounts, right: SparseCounts) -> SparseCounts:
        return merge_counts(left, right, self._n_voxels)


def _find_voxels(voxels: _core.Voxels, block: Block) -> np.ndarray:
    """Find the voxels of atoms; raise `ValueError` for an atom whose position is not finite."""
    found, refused = voxels.find(block.raw[0])
    check_refused(block, refused)
    return found


def __getattr__(name: str) -> object:
    return name_of_mdanalysis(__name__, name)
