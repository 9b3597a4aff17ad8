"""Density profiles of groups of atoms along one axis of the cell."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from paceline import _core
from paceline._util.arguments import length, one_of
from paceline.analysis.base import AnalysisBase
from paceline.analysis.guess_elements_and_donors import elements_of
from paceline.analysis.kernels import check_finite
from paceline.analysis.results import Results
from paceline.analysis.table import Table
from paceline.analysis.uncertainty import mean_of_series
from paceline.block import Block, upright_vectors
from paceline.contract.analysis_declaration import Declaration, Option
from paceline.contract.analysis_kinds import PerFrame
from paceline.contract.run_info_and_descriptions import describe_atoms
from paceline.contract.system_interface import Atoms, Selected, are_several, attribute_of
from paceline.errors import SelectionError, UnsupportedError
from paceline.performance.number_format import many, percent
from paceline.transform.compare_atom_names import name_atom
from paceline.transform.masses import masses_of, missing_masses_reason
from paceline.transform.selections_and_weights import check_not_empty, check_static, select

#: Titles of the densities with their units, by quantity.
UNITS = {
    "mass": "mass density (g cm⁻³)",
    "number": "number density (Å⁻³)",
    "charge": "charge density (e Å⁻³)",
    "electron": "electron density (e Å⁻³)",
}
#: Number of further values per frame: height and corner of the cell along the axis (Å), number of
#: atoms outside a non-periodic cell, and length of the mean direction of the origin group.
N_OTHERS = 4
#: Minimum length of the mean direction; if it is shorter, atoms are spread along the cell and have
#: no center.
LEAST_DIRECTION = 0.1
#: Components of a cell vector up to this fraction of its length count as 0.
UPRIGHT = 1e-4


class DensityProfile(AnalysisBase):
    r"""Density of one or several groups along one axis, such as across a slab or a membrane.

    $$\rho(z) = \left\langle \frac{n_\mathrm{bins}}{V}
                \sum_{i:\, z_i \in \mathrm{bin}} w_i \right\rangle$$

    with the volume $V$ of the cell in each frame. Bins are relative: in each frame they divide the
    height of the cell along the axis into the same number of parts. Positions of bins are those in
    the mean cell. Atoms are first wrapped into the cell along its periodic vectors. This is the
    definition of `gmx density -relative`, with the origin of -center and the symmetry of -symm.
    Intervals of means use the statistical inefficiency of each bin's time series.

    Parameters
    ----------
    atomgroups : AtomGroup, list of AtomGroup, or mapping of str to AtomGroup
        Groups, each with its own profile; the keys of a mapping are the names.
    axis : {"x", "y", "z"}
        Axis of the profile.
    quantity : {"mass", "number", "charge", "electron"}
        Density of mass, of atoms, of charges or of electrons. Numbers of electrons are those of
        neutral atoms, found by elements or masses.
    binsize : float
        Width of bins in the current frame, Å; rounded so that a whole number of bins fills the
        cell.
    origin : AtomGroup or str, optional
        Atoms whose center of mass along the axis is position 0 in each frame. They may cross the
        border of the cell. By default position 0 is the corner of the cell.
    symmetrize : bool
        Average both sides of the origin.

    Attributes
    ----------
    results.position : numpy.ndarray of float64, shape (n_bins,)
        Centers of the bins in the mean cell, Å.
    results.edges : numpy.ndarray of float64, shape (n_bins + 1,)
        Borders of the bins, Å.
    results.density : numpy.ndarray of float64, shape (n_groups, n_bins)
        Mean densities: g cm⁻³ for mass, Å⁻³ for numbers, e Å⁻³ for charges and electrons.
    results.interval : numpy.ndarray of float64, shape (n_groups, n_bins)
        Half the widths of the 95 % intervals, in the same units; NaN for less than four frames.
    results.densities : numpy.ndarray of float64, shape (n_frames, n_groups, n_bins)
        Densities in each frame; NaN in frames that were left out.
    results.names : list of str
        Names of the groups.

    Raises
    ------
    SelectionError
        A group contains no atoms.
    UnsupportedError
        A group is an UpdatingAtomGroup, the topology lacks masses, charges or elements for the
        quantity, the current frame has no cell, or `symmetrize` is True without an origin.
    ValueError
        The axis or quantity is unknown, or the bin width is not a length in the cell. In the run,
        as `AnalysisError`: a frame has no cell, or a rotated cell.

    Examples
    --------
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import Martini_membrane_gro
    >>> from paceline.analysis.density_profile import DensityProfile
    >>> u = paceline.Universe(Martini_membrane_gro)
    >>> heads, lipids = u.select_atoms("name PO4"), u.select_atoms("resname DPPC")
    >>> profile = DensityProfile({"heads": heads}, quantity="number", origin=lipids, binsize=10)
    >>> profile.run().results.density.round(4)
    array([[0.    , 0.    , 0.    , 0.0014, 0.    , 0.    , 0.    , 0.0014,
            0.    , 0.    , 0.    ]])
    """

    declaration = Declaration(
        name="density-profile",
        summary="density of groups of atoms along one axis",
        title="density along an axis",
        description=(
            "Density of mass (g cm⁻³), atoms (Å⁻³), charge or electrons (e Å⁻³) of one or several "
            "groups along x, y or z: means over frames with 95 % intervals. Bins divide the cell "
            "of each frame into the same number of parts. With --origin, positions are relative "
            "to the center of other atoms in each frame."
        ),
        section="distributions.md#profiles-of-several-groups",
        needs=("a cell",),
        select="all",
        examples=(
            (
                'md.tpr md.xtc --select "resname SOL" --group protein -o profiles.csv '
                "--plot profiles.png"
            ),
            (
                "md.tpr md.xtc --select POPC --group water --quantity electron --origin POPC "
                "--symmetrize --plot electrons.png"
            ),
        ),
        options=(
            Option(
                "groups",
                "a further group with its own profile; may be repeated",
                flag="--group",
                default=(),
                metavar="TEXT",
                action="append",
            ),
            "axis",
            "quantity",
            "binsize",
            Option(
                "origin",
                "atoms whose center along the axis is 0 in each frame [the corner of the cell]",
                metavar="TEXT",
            ),
            "symmetrize",
        ),
    )

    needs_one_location = True

    def __init__(
        self,
        atomgroups: Atoms | Sequence[Atoms] | Mapping[str, Atoms],
        *,
        axis: Literal["x", "y", "z"] = "z",
        quantity: Literal["mass", "number", "charge", "electron"] = "mass",
        binsize: float = 0.5,
        origin: Selected | None = None,
        symmetrize: bool = False,
        verbose: bool = False,
    ):
        one_of("axis", axis, "x", "y", "z")
        one_of("quantity", quantity, *UNITS)
        named = _name_groups(atomgroups)
        self._groups = [one.unique for one in named.values()]
        universe, every = self._groups[0].universe, self._groups
        self.origin = None
        if origin is not None:
            self.origin = select(origin, universe, "DensityProfile: origin").unique
            every = [*every, self.origin]
        if any(one.universe is not universe for one in every):
            raise UnsupportedError("DensityProfile: all groups must belong to one Universe")
        indices = np.unique(np.concatenate([one.indices for one in every]))
        super().__init__(universe.atoms[indices], verbose=verbose)
        if symmetrize and origin is None:
            raise UnsupportedError(
                "symmetrize (--symmetrize) averages both sides of an origin: set the atoms of "
                "the origin (--origin)"
            )
        self.names, self.axis, self.quantity = [*named], axis, quantity
        self.symmetrize = symmetrize
        self._weights = [_weights_of(one, quantity) for one in self._groups]
        self.binsize = length("binsize", binsize, 0.05)
        self.nbins = self._number_of_bins()
        self.row_bytes = 8 * (len(self._groups) * self.nbins + N_OTHERS)

    @property
    def indices(self) -> np.ndarray:
        """Indices of the atoms of all groups and of the origin."""
        return self.atomgroup.indices

    def parameters(self) -> dict[str, object]:
        """Return the parameters that are saved with the results."""
        groups = zip(self.names, self._groups, strict=True)
        return {
            "groups": "; ".join(f"{name}: {describe_atoms(group)}" for name, group in groups),
            "axis": self.axis,
            "quantity": self.quantity,
            "binsize": self.binsize,
            "nbins": self.nbins,
            "origin": "none" if self.origin is None else describe_atoms(self.origin),
            "symmetrize": self.symmetrize,
        }

    def prepare(self) -> PerFrame:
        """Make the worker part from the columns and weights of the atoms."""
        groups = [
            _Group(self._columns_of(one), weights)
            for one, weights in zip(self._groups, self._weights, strict=True)
        ]
        origin = None
        if self.origin is not None:
            masses = attribute_of(self.origin, "masses")
            if lack := missing_masses_reason(self.origin):
                text = f"DensityProfile: all atoms of the origin have equal weights: {lack}"
                self.remark("masses", text)
                masses = None
            if masses is None or not (masses > 0).any():
                masses = np.ones(len(self.origin))
            origin = _Group(self._columns_of(self.origin), masses.astype(np.float64))
        return _Profiles(groups, origin, "xyz".index(self.axis), self.nbins)

    def _columns_of(self, group: Atoms) -> np.ndarray:
        return np.searchsorted(self.indices, group.indices)

    def finish(self, value: np.ndarray) -> None:
        """Average densities over frames, and find the positions of bins in the mean cell."""
        others, shape = value[:, -N_OTHERS:], (len(value), len(self._groups), self.nbins)
        densities = value[:, :-N_OTHERS].reshape(shape) * self._unit()
        if self.symmetrize:
            densities = (densities + densities[..., ::-1]) / 2
        means = [mean_of_series(one) for one in densities.reshape(len(value), -1).T]
        density = np.array([one.mean for one in means]).reshape(shape[1:])
        interval = np.array([0.0 if one.error == 0 else one.interval for one in means])
        interval = interval.reshape(shape[1:])
        read = ~np.isnan(others[:, 0])
        height, corner, outside = others[read, :3].mean(axis=0) if read.any() else 3 * [np.nan]
        parts = np.linspace(0, 1, self.nbins + 1)
        edges = corner + height * parts if self.origin is None else height * (parts - 0.5)
        self._note(others[read], outside)
        self._fill(edges, density, interval, densities)

    def _unit(self) -> float:
        """Conversion factor from a sum of weights per Å³ to the unit of the density."""
        if self.quantity != "mass":
            return 1.0
        from MDAnalysis.units import constants

        return float(1 / (constants["N_Avogadro"] * 1e-24))

    def _note(self, others: np.ndarray, outside: float) -> None:
        """Warn of atoms outside the bins, and of an origin without a center."""
        lost = None
        n_atoms = sum(map(len, self._groups))
        if outside > 0:
            lost = (
                f"DensityProfile: {percent(outside / n_atoms)} of the atoms, over all frames, are "
                "outside the bins and are not counted: the cell is not periodic along the axis"
            )
        self.remark("outside", lost)
        n_spread, spread = int((others[:, 3] < LEAST_DIRECTION).sum()), None
        if n_spread:
            spread = (
                f"DensityProfile: in {many(n_spread, 'frame')} of {len(others)} the atoms of the "
                "origin are spread along the whole cell, so that they have no center: use a "
                "slab or another group (--origin)"
            )
        self.remark("origin", spread)

    def _fill(
        self, edges: np.ndarray, density: np.ndarray, interval: np.ndarray, densities: np.ndarray
    ) -> None:
        """Store densities, intervals and edges of bins as results, with a table."""
        label, middles = UNITS[self.quantity], (edges[1:] + edges[:-1]) / 2
        x = f"{self.axis} (Å)" if self.origin is None else f"{self.axis} from the origin (Å)"
        columns, legend, bands = {x: middles}, {}, {}
        kind, _, unit = label.partition(" (")
        for name, mean, half in zip(self.names, density, interval, strict=True):
            title, band = f"{name}: {label}", f"{name}: {kind}, 95 % ± ({unit}"
            columns |= {title: mean, band: half}
            legend[title], bands[title] = name, band
        notes = {
            "bins": f"{self.nbins} of {edges[1] - edges[0]:.4g} Å on average, in the cell of each "
            "frame"
        }
        self.results = Results(
            table=Table(columns, x, legend, label, notes=notes, bands=bands),
            provenance={**self.record(), **notes},
            position=middles,
            edges=edges,
            density=density,
            interval=interval,
            densities=densities,
            names=self.names,
        )

    def _number_of_bins(self) -> int:
        """Compute the number of bins from the height of the current frame's cell along the axis."""
        dimensions, height = self.atomgroup.universe.dimensions, 0.0
        if dimensions is not None:
            cell = _core.cells_of_dimensions(np.asarray(dimensions, dtype=np.float32)[None])
            height = float(upright_vectors(cell)[0].diagonal()["xyz".index(self.axis)])
        if not height > 0:
            raise UnsupportedError(
                "DensityProfile needs a cell, but the present frame has none: go to a frame with "
                "a cell, or set the cell with MDAnalysis and write the trajectory again"
            )
        if self.binsize > height:
            raise ValueError(
                f"binsize must be at most the height of the cell along {self.axis}, "
                f"{height:g} Å, not {self.binsize!r}"
            )
        return max(1, round(height / self.binsize))


def _name_groups(groups: Any) -> dict[str, Atoms]:
    """Name the groups by the keys of a mapping, or by numbers; a single group is "atoms"."""
    if isinstance(groups, Mapping):
        named = {str(name): one for name, one in groups.items()}
    elif are_several(groups):
        named = {f"group {k}": one for k, one in enumerate(groups, start=1)}
    else:
        named = {"atoms": groups}
    for name, one in named.items():
        check_static(one, "DensityProfile")
        check_not_empty(one.atoms, f"DensityProfile: {name}")
    if not named:
        raise SelectionError("DensityProfile: expected at least one group, found none")
    return {name: one.atoms for name, one in named.items()}


def _weights_of(group: Atoms, quantity: str) -> np.ndarray:
    """Return the weights of atoms in a density: mass, 1, charge, or number of electrons."""
    if quantity == "number":
        return np.ones(len(group))
    if quantity == "mass":
        return masses_of(group, "DensityProfile")
    if quantity == "charge":
        charges = attribute_of(group, "charges")
        if charges is None:
            raise UnsupportedError(
                "DensityProfile: a density of charge needs charges, but the topology has none: use "
                "one with charges (TPR, PSF, PRMTOP, …), or another quantity (--quantity)"
            )
        return np.asarray(charges, dtype=np.float64)
    from MDAnalysis.guesser.tables import SYMB2Z

    elements = elements_of(group)
    known = {**SYMB2Z, "D": 1}
    numbers = np.array([known.get(one.capitalize(), 0) for one in elements], dtype=np.float64)
    if not numbers.all():
        first, n_unknown = group[int(np.argmin(numbers))], int((numbers == 0).sum())
        raise UnsupportedError(
            f"DensityProfile: the element of {many(n_unknown, 'atom')} is unknown (the first is "
            f"{name_atom(first)}), and so is the number of electrons: use a topology with "
            "elements, or another quantity (--quantity)"
        )
    return numbers


class _Group(NamedTuple):
    """Columns of a group's atoms in the decoded coordinates, and their weights."""

    places: np.ndarray
    weights: np.ndarray


class _Profiles(PerFrame):
    """Worker part: for each frame the densities of groups in bins, and `N_OTHERS` values."""

    def __init__(self, groups: list[_Group], origin: _Group | None, axis: int, nbins: int):
        self._groups, self._origin = groups, origin
        self._axis, self._nbins = axis, nbins

    def compute(self, block: Block) -> np.ndarray:
        """Compute the rows of a block: float64, shape (n_frames, n_groups · n_bins + N_OTHERS)."""
        rows = np.empty((len(block), len(self._groups) * self._nbins + N_OTHERS))
        positions, columns = block.raw
        for row in range(len(block)):
            at = positions[row] if columns is None else positions[row, columns]
            check_finite(block[row : row + 1], np.array([not np.isfinite(at).all()]))
            vectors, periodic = block.cell_vectors[row], block.periodic[row]
            self._check_cell(vectors, block.frames[row])
            corner = block.cell_origins[row]
            parts = self._fractions_along_axis(at.astype(np.float64) - corner, vectors, periodic)
            rows[row] = self._profile_of_frame(parts, vectors, bool(periodic[self._axis]))
            rows[row, -3] = corner[self._axis]
        return rows

    def _check_cell(self, vectors: np.ndarray, frame: int) -> None:
        """Raise `ValueError` for a frame without a cell, or with a rotated one."""
        if not (vectors.diagonal() > 0).all():
            raise ValueError(f"frame {frame}: a density needs a cell, but the frame has none")
        tilted = np.triu(vectors, 1)[:, 2 if self._axis == 2 else slice(None)]
        if (np.abs(tilted) > UPRIGHT * np.abs(vectors).max()).any():
            expected = "its first two vectors in the xy plane"
            if self._axis != 2:
                expected = f"its first vector along x, and {expected[4:]}"
            raise ValueError(f"frame {frame}: its cell is rotated: expected {expected}")

    def _fractions_along_axis(
        self, at: np.ndarray, vectors: np.ndarray, periodic: np.ndarray
    ) -> np.ndarray:
        """Return wrapped positions along the axis, as fractions of the cell's height."""
        for k in range(2, self._axis, -1):
            if periodic[k]:
                at -= np.floor(at[:, k : k + 1] / vectors[k, k]) * vectors[k]
        parts = at[:, self._axis] / vectors[self._axis, self._axis]
        return parts - np.floor(parts) if periodic[self._axis] else parts

    def _profile_of_frame(
        self, parts: np.ndarray, vectors: np.ndarray, is_periodic: bool
    ) -> np.ndarray:
        """Compute the row of a frame, except for the corner of the cell."""
        direction = np.inf
        if self._origin is not None:
            center, direction = _center(parts, self._origin, is_periodic)
            parts = parts - center
            parts = parts - np.round(parts) + 0.5 if is_periodic else parts + 0.5
        bins = np.floor(parts * self._nbins).astype(np.int64)
        if is_periodic:
            bins = np.clip(bins, 0, self._nbins - 1)  # rounding may give a fraction of 1
        height = vectors[self._axis, self._axis]
        volume, outside, found = abs(np.linalg.det(vectors)), 0, []
        for places, weights in self._groups:
            some = bins[places]
            inside = (some >= 0) & (some < self._nbins)
            outside += len(some) - int(inside.sum())
            found.append(np.bincount(some[inside], weights[inside], self._nbins))
        densities = np.concatenate(found) * (self._nbins / volume)
        return np.concatenate([densities, [height, np.nan, outside, direction]])


def _center(parts: np.ndarray, group: _Group, is_periodic: bool) -> tuple[float, float]:
    """Find the center of a group along the axis, and the length of its mean direction.

    In a periodic cell, the mean direction on a circle is the first estimate (Bai & Breen 2008, J.
    Graph. Tools 13, 53). The center is then the mean of the images nearest to this estimate.
    """
    some, weights = parts[group.places], group.weights / group.weights.sum()
    if not is_periodic:
        return float(weights @ some), np.inf
    angles = 2 * np.pi * some
    x, y = float(weights @ np.cos(angles)), float(weights @ np.sin(angles))
    center = np.arctan2(y, x) / (2 * np.pi)
    off = some - center
    return center + float(weights @ (off - np.round(off))), float(np.hypot(x, y))
