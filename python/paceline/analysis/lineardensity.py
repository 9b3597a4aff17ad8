"""Densities along axes, with the parameters and results of MDAnalysis.analysis.lineardensity."""

import warnings
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from paceline import _core
from paceline._util.arguments import length
from paceline.analysis import name_of_mdanalysis
from paceline.analysis.base import AnalysisBase
from paceline.analysis.gyration import COMPOUNDS
from paceline.analysis.kernels import CoreRows, Moments, RowMoments, fill_row
from paceline.analysis.results import Results
from paceline.analysis.table import Table
from paceline.analysis.updating_groups import GroupFinder, follow_if_changing
from paceline.block import Block, upright_vectors
from paceline.contract.analysis_declaration import Declaration
from paceline.contract.analysis_kinds import PerFrame, Reduction
from paceline.contract.run_info_and_descriptions import describe_atoms
from paceline.contract.system_interface import has_attribute
from paceline.errors import UnsupportedError, with_script_advice
from paceline.transform.bonds_and_compounds import compound_of_atoms
from paceline.transform.masses import masses_of
from paceline.transform.selections_and_weights import check_not_empty

if TYPE_CHECKING:
    import MDAnalysis.analysis.lineardensity

#: Deprecated names of results in MDAnalysis, and their current names.
DEPRECATED = {
    "pos": "mass_density",
    "pos_std": "mass_density_stddev",
    "char": "charge_density",
    "char_std": "charge_density_stddev",
}


#: For each atom: index of its compound, and its mass (u).
Compounds = tuple[np.ndarray, np.ndarray]


class AxisResults(Results):
    """Results along one axis; MDAnalysis's deprecated names are accepted."""

    def __getitem__(self, name: str) -> object:
        return super().__getitem__(_current(name))


class LinearDensity(AnalysisBase):
    r"""Density of mass and charge along x, y and z.

    $$\rho(z) = \left\langle \frac{1}{V_\mathrm{slice}}
                \sum_{i:\, z_i \in \mathrm{slice}} m_i \right\rangle$$

    In each frame, the volume of a slice is the volume of the cell, divided by its height along the
    axis and multiplied by the bin width. Atoms are first wrapped into the box $a_x \times b_y
    \times c_z$ at the origin. For a rectangular cell this box is the cell itself. For other cells,
    its volume and its density are the same. In each frame the bins divide the longest edge of the
    box into the same number of parts, so the bin width varies with the cell. Along a shorter edge,
    the last bins are partly filled or empty.

    MDAnalysis uses the first cell, the product of its three lengths as volume, and a rounded number
    of slices; see "Where tools disagree" in the manual.

    Parameters
    ----------
    select : AtomGroup
        Atoms with masses. Without charges, charge densities are NaN, and tables contain only mass
        densities. For an UpdatingAtomGroup, workers evaluate the selection in each frame. Frames
        without selected atoms contribute densities of 0.
    grouping : {"atoms", "residues", "segments", "fragments"}
        Use the positions of atoms, or the centers of mass of residues, segments or fragments.
        Centers require whole molecules. Only the atoms of the group contribute.
    binsize : float
        Width of the bins in the current frame, Å. It is rounded up so that a whole number of bins
        fills the longest edge.

    Attributes
    ----------
    nbins : int
        Number of bins.
    results.x, results.y, results.z : Results
        Results along each axis; the following names are the same for y and z:
    results.x.dim : int
        0 for x, 1 for y, 2 for z.
    results.x.mass_density, results.x.mass_density_stddev : numpy.ndarray of float64, (nbins,)
        Mean and standard deviation over frames, g cm⁻³.
    results.x.charge_density, results.x.charge_density_stddev : numpy.ndarray of float64, (nbins,)
        Mean and standard deviation over frames, e mol cm⁻³.
    results.x.slice_volume : float
        Mean volume of a bin over frames, Å³.
    results.x.hist_bin_edges : numpy.ndarray of float32 or float64, shape (nbins + 1,)
        Mean limits of the bins over frames, Å: float64 for centers of mass, as in MDAnalysis.

    Raises
    ------
    SelectionError
        The group contains no atoms.
    UnsupportedError
        Workers cannot evaluate an UpdatingAtomGroup, the topology lacks masses or an attribute for
        the grouping, or the current frame has no cell.
    ValueError
        Parameters are invalid. In the run, as `AnalysisError`: a frame has no cell or an invalid
        one, positions are not finite, or all selected atoms of a residue, segment or fragment have
        no mass.

    Examples
    --------
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import TPR, XTC
    >>> u = paceline.Universe(TPR, XTC)
    >>> density = LinearDensity(u.atoms, binsize=20).run()
    >>> density.results.z.mass_density.round(2)
    array([1.02, 1.03, 0.84, 0.  ])

    Density of water near the protein only:

    >>> near = u.select_atoms("same residue as (name OW and around 4 protein)", updating=True)
    >>> density = LinearDensity(near, "residues", binsize=20).run(stop=2)
    >>> density.results.z.mass_density.round(2)
    array([0.09, 0.1 , 0.06, 0.  ])
    """

    declaration = Declaration(
        name="lineardensity",
        summary="density of mass and charge along x, y and z",
        title="density of mass and charge",
        description=(
            "Densities of mass (g cm⁻³) and charge (e mol cm⁻³) in slices of the cell along x, y "
            "and z, means over frames and standard deviations."
        ),
        section="distributions.md#density-along-an-axis",
        needs=("a cell",),
        select="all",
        examples=(
            "md.tpr md.xtc -o density.csv --plot density.png",
            (
                "md.tpr md.xtc --select POPC --binsize 0.5 --grouping residues --unwrap -o "
                "lipids.tsv"
            ),
        ),
        options=(
            "grouping",
            "binsize",
        ),
        counterpart="lineardensity.LinearDensity",
    )

    needs_one_location = True

    SHARED_RESULTS = ("x", "y", "z")

    def __init__(
        self,
        select: Any,
        grouping: Literal["atoms", "residues", "segments", "fragments"] = "atoms",
        binsize: float = 0.25,
        verbose: bool = False,
    ):
        atoms, self._finder, self._described = follow_if_changing(select, "LinearDensity")
        super().__init__(atoms, verbose=verbose)
        check_not_empty(self.atomgroup, "LinearDensity: select")
        if grouping != "atoms" and grouping not in COMPOUNDS:
            raise ValueError(
                f"{grouping!r} is not a valid value for grouping: expected 'atoms', 'residues', "
                "'segments' or 'fragments'"
            )
        self.grouping, self.binsize = grouping, binsize
        # The decoded atoms of an updating group include those on which its selection depends, and
        # their molecules need not be whole.
        self.needs_whole = grouping != "atoms" and self._finder is None
        #: True if the topology contains charges.
        self.has_charges = has_attribute(self.atomgroup, "charges")
        columns = [self._attribute_of_atoms("masses")]
        masses_of(self.atomgroup, self.name)  # warns of unknown masses
        columns.append(self._attribute_of_atoms("charges") if self.has_charges else 0 * columns[0])
        self._weights = np.column_stack(columns).astype(np.float64, copy=False)
        self._numbers = None
        if grouping != "atoms":
            self._numbers = compound_of_atoms(self.atomgroup, grouping, self.name)
        self._of_group: tuple[np.ndarray, Compounds | None] = self._weights, None
        if self._finder is None and self._numbers is not None:
            try:
                self._of_group = _sum_compounds(self._weights, self._numbers, grouping)
            except ValueError as error:
                raise UnsupportedError(f"LinearDensity: {error}") from None
        self.masses, self.charges = self._of_group[0].T
        self.nbins = self._number_of_bins()
        length("binsize", binsize, 0.1)

    @classmethod
    def from_mdanalysis(cls, theirs: "MDAnalysis.analysis.lineardensity.LinearDensity") -> Self:
        """Make an analysis with the parameters of MDAnalysis's analysis."""
        ours = cls(theirs._ags[0], theirs.grouping, theirs.binsize)
        ours.nbins = int(theirs.nbins)
        return ours

    def parameters(self) -> dict[str, object]:
        """Return the parameters that are saved with the results."""
        return {
            "atoms": self._described or describe_atoms(self.atomgroup),
            "grouping": self.grouping,
            "binsize": self.binsize,
            "nbins": self.nbins,
        }

    def prepare(self) -> Reduction:
        """Make the worker part from masses and charges."""
        if self._finder is None:
            return RowMoments(CoreRows("density_profiles", *self._of_group, self.nbins))
        given = self._finder, self._weights, self._numbers, self.grouping, self.nbins
        return RowMoments(_ChangingProfiles(*given))

    def finish(self, value: Moments) -> None:
        """Compute means and standard deviations of the densities."""
        from MDAnalysis.units import constants

        count, means, squares, _ = value
        mean, deviation = means[0], np.sqrt(squares[0] / count if count else np.nan * squares[0])
        (end, *slices), split = mean[6 * self.nbins :], (3, 2, self.nbins)
        densities, deviations = (
            values[: 6 * self.nbins].reshape(split)
            / (constants["N_Avogadro"] * 1e-24)  # convert Å³ to cm³ per mol
            for values in (mean, deviation)
        )
        kind = np.float32 if self.grouping == "atoms" else np.float64
        edges = np.histogram_bin_edges(np.empty(0, kind), self.nbins, (0.0, kind(end)))  # type: ignore[arg-type]
        columns = {"position (Å)": (edges[1:] + edges[:-1]) / 2}
        axes = {}
        if not self.has_charges:
            densities[:, 1] = deviations[:, 1] = np.nan
        for dim, axis in enumerate("xyz"):
            axes[axis] = AxisResults(
                dim=dim,
                slice_volume=slices[dim],
                mass_density=densities[dim, 0],
                mass_density_stddev=deviations[dim, 0],
                charge_density=densities[dim, 1],
                charge_density_stddev=deviations[dim, 1],
                hist_bin_edges=edges,
            )
            columns |= {
                f"{axis}: mass density (g cm⁻³)": densities[dim, 0],
                f"{axis}: mass density, standard deviation (g cm⁻³)": deviations[dim, 0],
            }
            if self.has_charges:
                title = f"{axis}: charge density"
                columns[f"{title} (e mol cm⁻³)"] = densities[dim, 1]
                columns[f"{title}, standard deviation (e mol cm⁻³)"] = deviations[dim, 1]
        drawn = {f"{axis}: mass density (g cm⁻³)": f"along {axis}" for axis in axes}
        table = Table(columns, "position (Å)", drawn, "mass density (g cm⁻³)")
        self.results = Results(table=table, provenance=self.record(), **axes)

    def _attribute_of_atoms(self, attribute: str) -> np.ndarray:
        """Return an attribute of the atoms; raise an error if the topology lacks it."""
        try:
            return np.asarray(getattr(self.atomgroup, attribute))
        except AttributeError:
            error = UnsupportedError(
                f"LinearDensity needs {attribute}, but the topology lacks them: use a topology "
                "with them"
            )
            advice = f", or add them, for example with add_TopologyAttr({attribute!r}, ...)"
            raise with_script_advice(error, advice) from None

    def _number_of_bins(self) -> int:
        """Compute the number of bins along the longest edge of the current frame's cell."""
        dimensions = self.atomgroup.universe.dimensions
        edges = np.zeros(3, dtype=np.float32)
        if dimensions is not None:
            cell = np.asarray(dimensions, dtype=np.float32)[None]
            edges = (
                upright_vectors(_core.cells_of_dimensions(cell))[0].diagonal().astype(np.float32)
            )
        if not edges.all():
            raise UnsupportedError(
                "LinearDensity needs a cell, but the present frame has none: go to a frame with "
                "a cell, or set the cell with MDAnalysis and write the trajectory again"
            )
        if not 0 < self.binsize <= edges.max():
            raise ValueError(
                f"binsize must be above 0 and at most the longest edge of the cell, "
                f"{edges.max():g} Å, not {self.binsize!r}"
            )
        return int(edges.max() // self.binsize)


class _ChangingProfiles(PerFrame):
    """Worker part for an updating group: densities of the selected atoms in each frame."""

    def __init__(
        self,
        finder: GroupFinder,
        weights: np.ndarray,
        numbers: np.ndarray | None,
        grouping: str,
        nbins: int,
    ):
        self._finder, self._weights, self._numbers = finder, weights, numbers
        self._grouping, self._nbins = grouping, nbins

    def compute(self, block: Block) -> np.ndarray:
        """Compute the rows of a block: float64, shape (n_frames, n_columns)."""
        rows = np.empty((len(block), 6 * self._nbins + 4))
        for row, (places, columns) in enumerate(self._finder.by_frame(block)):
            weights, compounds = self._weights[places], None
            if self._numbers is not None:
                try:
                    weights, compounds = _sum_compounds(
                        weights, self._numbers[places], self._grouping
                    )
                except ValueError as error:
                    raise ValueError(f"frame {block.frames[row]}: {error}") from None
            kernel = _core.RowKernel.density_profiles(columns, weights, compounds, self._nbins)
            fill_row(kernel, block, row, rows[row : row + 1])
        return rows


def _sum_compounds(
    weights: np.ndarray, numbers: np.ndarray, grouping: str
) -> tuple[np.ndarray, Compounds]:
    """Sum masses and charges of compounds; also return the compound and the mass of each atom.

    The sums have shape (n_compounds, 2). Raises `ValueError` if a compound has no mass.
    """
    found, places = np.unique(numbers, return_inverse=True)
    sums = [np.bincount(places, weights=one, minlength=len(found)) for one in weights.T]
    if not sums[0].all():
        number = found[np.flatnonzero(sums[0] == 0)[0]]
        raise ValueError(
            f"number {number} of the {grouping} has no mass, so it has no center of mass; exclude "
            "it, or use grouping='atoms'"
        )
    masses = np.ascontiguousarray(weights[:, 0])
    # If there are no atoms, `bincount` returns integers.
    return np.column_stack(sums).astype(np.float64, copy=False), (
        places.astype(np.int64, copy=False),
        masses,
    )


def _current(name: str) -> str:
    """Replace the deprecated name of a result, with a warning."""
    if name not in DEPRECATED:
        return name
    warnings.warn(
        f"`{name}` is deprecated and will be removed in version 3.0.0 of MDAnalysis. "
        f"Please use `{DEPRECATED[name]}` instead.",
        DeprecationWarning,
        stacklevel=4,
    )
    return DEPRECATED[name]


def __getattr__(name: str) -> object:
    return name_of_mdanalysis(__name__, name)
