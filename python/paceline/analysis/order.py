"""Order parameters of lipid bonds, or of other vectors, with respect to an axis."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from paceline.analysis.base import table_in_time
from paceline.analysis.distances import GroupsAnalysis
from paceline.analysis.guess_elements_and_donors import TAILS, elements_of
from paceline.analysis.kernels import CoreRows
from paceline.analysis.results import Results
from paceline.analysis.table import Table
from paceline.analysis.uncertainty import SeriesMean
from paceline.contract.analysis_declaration import PBC, Declaration, Member, Option
from paceline.contract.analysis_kinds import PerFrame
from paceline.contract.run_info_and_descriptions import describe_atoms
from paceline.contract.system_interface import Atoms, System, attribute_of, has_attribute
from paceline.errors import SelectionError, UnsupportedError
from paceline.transform.bonds_and_compounds import bonds_of
from paceline.transform.selections_and_weights import check_static, choose_atoms

#: Title of the column that contains half the widths of the 95 % intervals.
INTERVAL = "95 % interval"
AXES = {"x": (1.0, 0.0, 0.0), "y": (0.0, 1.0, 0.0), "z": (0.0, 0.0, 1.0)}


class OrderParameter(GroupsAnalysis):
    r"""Order parameter of vectors between atoms, with respect to an axis.

    $$S = \left\langle \tfrac{3}{2} \cos^2 \theta - \tfrac{1}{2} \right\rangle$$

    with the angle $\theta$ between a vector and the axis. S is 1 for parallel vectors, -0.5 for
    perpendicular vectors, and 0 for random directions. For bonds of coarse-grained lipids, S is the
    order parameter P2 (second Legendre polynomial).

    Parameters
    ----------
    ag1, ag2 : AtomGroup
        Groups with the same number of atoms, from one Universe. Vectors point from the atoms of
        the first group to the corresponding atoms of the second group.
    axis : {"x", "y", "z"} or sequence of float, shape (3,)
        Axis, such as the normal of the membrane.
    labels : sequence of str, optional
        Label of each vector; values are averaged over vectors with the same label. The default is
        the names of both atoms, such as "C1A-C2A", or a single label if the topology has no names.
    pbc : bool
        Use the nearest periodic images in the cell of each frame, if the frame has a cell.

    Attributes
    ----------
    results.timeseries : numpy.ndarray of float64, shape (n_frames, n_labels)
        Mean over the vectors of each label, in each frame; NaN if a position is NaN, and for
        damaged frames that were left out.
    results.mean : numpy.ndarray of float64, shape (n_labels,)
        Means of the time series over the frames that were not left out.
    results.error : numpy.ndarray of float64, shape (n_labels,)
        Standard errors of the means, by the statistical inefficiency of each series; NaN if frames
        are few or not in the order of time.
    results.interval : numpy.ndarray of float64, shape (n_labels,)
        Half the widths of the 95 % intervals, by Student's t; NaN like the errors.
    results.labels : numpy.ndarray of str, shape (n_labels,)
        Labels, in the order of their first vectors.
    results.frames : numpy.ndarray of int64, shape (n_frames,)
        Frame numbers.
    results.times : numpy.ndarray of float64, shape (n_frames,)
        Times of these frames, ps.

    Raises
    ------
    SelectionError
        The groups are empty or differ in size, or a vector begins and ends at the same atom.
    UnsupportedError
        A group is an UpdatingAtomGroup, or the groups belong to different Universes.
    ValueError
        The axis has no direction, or the number of labels is wrong. In the run, as
        `AnalysisError`: both atoms of a vector have the same position.

    Examples
    --------
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import Martini_membrane_gro
    >>> from paceline.analysis.order import OrderParameter
    >>> lipids = paceline.Universe(Martini_membrane_gro).select_atoms("resname DPPC")
    >>> first, second = (lipids.select_atoms(f"name {name}") for name in ("C1A", "C2A"))
    >>> OrderParameter(first, second).run().results.mean.round(3)
    array([0.514])
    """

    #: SYMBOL is the title of the order parameter in tables, and LABELLED the title of the column of
    #: labels. The figure shows SIGN times the order parameter, with the title DRAWN.
    SYMBOL, LABELLED = "P2", "vector"
    DRAWN, SIGN = "P2", 1

    def __init__(
        self,
        ag1: Atoms,
        ag2: Atoms,
        axis: Literal["x", "y", "z"] | Sequence[float] = "z",
        *,
        labels: Sequence[str] | np.ndarray | None = None,
        pbc: bool = True,
        verbose: bool = False,
    ):
        super().__init__({"ag1": ag1, "ag2": ag2}, pbc, verbose)
        self._check_equal_numbers()
        ends = list(self._groups.values())
        same = np.flatnonzero(ends[0].indices == ends[1].indices)
        if len(same):
            atom = ends[0].indices[same[0]]
            raise SelectionError(f"{self.name}: vector {same[0]} is from atom {atom} to itself")
        if labels is None:
            names = [attribute_of(group, "names") for group in ends]
            labels = ["all"] * len(ends[0])
            if names[0] is not None:
                labels = [f"{one}-{other}" for one, other in zip(*names, strict=True)]
        if len(labels) != len(ends[0]):
            raise ValueError(
                f"{self.name}: expected {len(ends[0])} labels, one per vector, found {len(labels)}"
            )
        self.axis, self._axis = axis, _direction(axis)
        self._labels, order, self._counts = _sorted_by_label(labels)
        self._groups = {name: group[order] for name, group in self._groups.items()}

    def parameters(self) -> dict[str, object]:
        """Return the parameters that are saved with the results."""
        first, second = self._groups.values()
        given = {"from": describe_atoms(first), "to": describe_atoms(second)}
        axis = self.axis if isinstance(self.axis, str) else " ".join(f"{x:g}" for x in self.axis)
        return {**given, "axis": axis, "pbc": self.pbc}

    def prepare(self) -> PerFrame:
        """Make the worker part from the number of vectors of each label, and the axis."""
        return CoreRows("order", self._counts, self._axis, self.pbc)

    def finish(self, value: np.ndarray) -> None:
        """Compute means over frames, with intervals."""
        titles = {f"{self.SYMBOL} of {label}": label for label in self._labels}
        columns = dict(zip(titles, value.T, strict=True))
        read = value[~self.left_out]
        mean = read.mean(axis=0) if len(read) else np.full(value.shape[1], np.nan)
        table = table_in_time(self, columns, titles, self.SYMBOL)
        known = list(table.means().values())
        if known and known[0].by_time:
            mean = np.where(np.isnan(mean), np.nan, [one.mean for one in known])
        error, interval = (
            np.where(np.isnan(mean), np.nan, [getattr(one, name) for one in known] or [np.nan])
            for name in ("error", "interval")
        )
        if len(titles) > 1:
            table = replace(table, drawn=self._profile(mean, interval, known))
        self.results = Results(
            table=table,
            provenance=self.record(),
            timeseries=value,
            mean=mean,
            error=error,
            interval=interval,
            labels=np.array(self._labels),
            frames=self.frames,
            times=self.times,
        )
        atoms, values = next(iter(self._groups.values())), np.repeat(mean, self._counts)
        _, first = np.unique(atoms.indices, return_index=True)
        self.results.with_values(self.on_first_frame(self.SYMBOL, atoms[first], values[first]))

    def _profile(
        self, mean: np.ndarray, interval: np.ndarray, series: Sequence[SeriesMean]
    ) -> Table:
        """Make the table that the figure shows: the mean of each label with its interval."""
        columns = {self.LABELLED: np.arange(len(mean)), self.DRAWN: self.SIGN * mean}
        name, bands, has_one = "mean", {}, np.isfinite(interval)
        if has_one.any():
            columns[INTERVAL] = interval
            name, bands = "mean and 95 % interval", {self.DRAWN: INTERVAL}
            few = sum(not one.converged for one in series)
            name += f", {few} of {len(mean)} not converged" if few else ""
        return Table(
            columns, self.LABELLED, {self.DRAWN: name}, self.DRAWN, ticks=self._labels, bands=bands
        )

    FURTHER_TABLES = ("means",)

    def further_tables(self) -> dict[str, Table]:
        """Return the table of the mean of each label over frames, with its interval.

        Returns
        -------
        dict of str to Table
            "means", with the same figure as the results.
        """
        found, known = self.results, list(self.results.means.values())
        independent = np.array([one.n_independent for one in known] or [np.nan] * len(found.mean))
        columns = {self.LABELLED: found.labels, self.SYMBOL: found.mean}
        columns |= {self.DRAWN: self.SIGN * found.mean}
        columns |= {"standard error": found.error, INTERVAL: found.interval}
        columns |= {"independent values": independent}
        drawn = found.table.drawn or self._profile(found.mean, found.interval, known)
        return {"means": Table(columns, self.LABELLED, {self.DRAWN: ""}, self.DRAWN, drawn=drawn)}


class SCH(OrderParameter):
    r"""Order parameters S_CH of carbon-hydrogen bonds in lipid tails.

    $$S_{CH} = \left\langle \tfrac{3}{2} \cos^2 \theta - \tfrac{1}{2} \right\rangle$$

    with the angle $\theta$ between a bond and the normal of the membrane, averaged over all bonds
    of the carbons with one name (Seelig & Seelig 1974, Biochemistry 13, 4839). In bilayers S_CH is
    negative; deuterium NMR measures its magnitude, |S_CD|.

    Hydrogens are atoms of the trajectory that are bonded to the carbon in the topology. United-atom
    and coarse-grained lipids have no such hydrogens, which is an error. For these lipids, use
    `OrderParameter` with other vectors.

    Parameters
    ----------
    atomgroup : AtomGroup
        Atoms of the lipids, or carbons of their tails. Only carbons with hydrogens are used. The
        topology must contain bonds.
    axis : {"x", "y", "z"} or sequence of float, shape (3,)
        Normal of the membrane.
    hydrogens : AtomGroup or str, optional
        Hydrogens or their selection; by default found by elements, or by masses.
    pbc : bool
        Use the nearest periodic images in the cell of each frame, if the frame has a cell.

    Attributes
    ----------
    results.timeseries : numpy.ndarray of float64, shape (n_frames, n_carbons)
        Mean over all bonds of the carbons of each name, in each frame; NaN if a position is NaN,
        and for damaged frames that were left out.
    results.mean : numpy.ndarray of float64, shape (n_carbons,)
        Means of the time series over the frames that were not left out.
    results.error : numpy.ndarray of float64, shape (n_carbons,)
        Standard errors of the means, by the statistical inefficiency of each series; NaN if frames
        are few or not in the order of time.
    results.interval : numpy.ndarray of float64, shape (n_carbons,)
        Half the widths of the 95 % intervals, by Student's t; NaN like the errors.
    results.labels : numpy.ndarray of str, shape (n_carbons,)
        Names of the carbons, in the order along the chains. If there are several kinds of lipids,
        each label begins with the name of the residue.
    results.frames : numpy.ndarray of int64, shape (n_frames,)
        Frame numbers.
    results.times : numpy.ndarray of float64, shape (n_frames,)
        Times of these frames, ps.

    Raises
    ------
    SelectionError
        No carbon of the group is bonded to a hydrogen.
    UnsupportedError
        A group is an UpdatingAtomGroup, or the topology lacks bonds or names.
    ValueError
        The axis has no direction. In the run, as `AnalysisError`: both atoms of a bond have the
        same position.

    Examples
    --------
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import PSF, DCD
    >>> from paceline.analysis.order import SCH
    >>> chains = paceline.Universe(PSF, DCD).select_atoms("resname LYS and name CB CG CD CE")
    >>> carbons = SCH(chains).run(stop=10)
    >>> carbons.results.labels, carbons.results.mean.round(2)
    (array(['CB', 'CG', 'CD', 'CE'], dtype='<U2'), array([-0.03, -0.02, -0.04, -0.02]))
    """

    declaration = Declaration(
        name="order",
        summary="order parameters of lipid tails",
        description=(
            "Order parameter S_CH of carbon-hydrogen bonds for each name of a carbon, averaged "
            "over lipids in each frame. With --select-2, order parameter of vectors from the "
            "atoms of --select to the corresponding atoms of --select-2. The figure shows -S_CD, "
            "which equals -S_CH, averaged over frames with its 95 % interval; --means saves these "
            "values."
        ),
        section="distributions.md#order-of-lipids",
        variants=("OrderParameter",),
        examples=(
            (
                'md.tpr md.xtc --select "resname POPC and name C2? C2?? C3? C3??" -o order.csv '
                "--plot order.png"
            ),
            'martini.tpr martini.xtc --select "name C1A C2A" --select-2 "name C2A C3A" -o p2.csv',
        ),
        options=(
            Option(
                "other",
                "atoms at the ends of vectors [hydrogens bonded to the atoms of --select]",
                flag="--select-2",
                metavar="TEXT",
            ),
            Option("hydrogens", "hydrogens [found by elements or masses]", metavar="TEXT"),
            "axis",
            PBC,
        ),
        further={"means": "write the mean of each carbon over frames, and its interval"},
        on_structure="order parameter by the name of each carbon",
        batteries=(Member("membrane", {"select": TAILS}, place=2),),
    )

    SYMBOL, LABELLED = "S_CH", "carbon"
    DRAWN, SIGN = "-S_CD", -1

    def __init__(
        self,
        atomgroup: Atoms | System,
        axis: Literal["x", "y", "z"] | Sequence[float] = "z",
        *,
        hydrogens: Atoms | str | None = None,
        pbc: bool = True,
        verbose: bool = False,
    ):
        check_static(atomgroup, "SCH")
        universe = atomgroup.universe
        if not has_attribute(universe.atoms, "names"):
            raise UnsupportedError("SCH needs names of carbons, but the topology has none")
        if isinstance(hydrogens, str):
            hydrogens = choose_atoms(universe, hydrogens, "hydrogens")
        bonds = bonds_of(universe, "SCH")
        carbons, bonded = _bonds_to_hydrogen(atomgroup.atoms, bonds, hydrogens)
        if len(carbons) == 0:
            raise SelectionError(
                f"SCH: no carbon of {len(atomgroup.atoms)} atoms is bonded to a hydrogen: use a "
                "topology with hydrogens and their bonds, let bonds be guessed by distance "
                "(guess_bonds=True, --guess-bonds), set hydrogens=, "
                "or use OrderParameter (--select-2) with other vectors for lipids without hydrogens"
            )
        ends = universe.atoms[carbons], universe.atoms[bonded]
        labels = ends[0].names.astype(str)
        kinds = attribute_of(ends[0], "resnames")
        if kinds is not None and len(set(kinds)) > 1:
            labels = np.char.add(np.char.add(kinds.astype(str), " "), labels)
        order = np.argsort(_along_chains(labels, carbons, bonds), kind="stable")
        first, second = (group[order] for group in ends)
        super().__init__(first, second, axis, labels=labels[order], pbc=pbc, verbose=verbose)


def _bonds_to_hydrogen(
    atoms: Atoms, bonds: np.ndarray, hydrogens: Atoms | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices of the carbon and the hydrogen of each C-H bond, sorted by carbon."""
    either_way = np.concatenate([bonds, bonds[:, ::-1]])
    places = np.full(len(atoms.universe.atoms), -1)
    places[atoms.indices[::-1]] = np.arange(len(atoms))[::-1]
    heavy, other = either_way[places[either_way[:, 0]] >= 0].T
    if hydrogens is None:
        is_hydrogen = _are(("H",), atoms.universe.atoms[other])
    else:
        check_static(hydrogens, "hydrogens")
        is_hydrogen = np.isin(other, hydrogens.atoms.indices)
    heavy, other = heavy[is_hydrogen], other[is_hydrogen]
    is_carbon = _are(("C", ""), atoms.universe.atoms[heavy])
    heavy, other = heavy[is_carbon], other[is_carbon]
    order = np.lexsort([other, places[heavy]])
    return heavy[order], other[order]


def _are(elements: Sequence[str], atoms: Atoms) -> np.ndarray:
    """Return a mask of the atoms whose element is in `elements`."""
    return np.array([one in elements for one in elements_of(atoms)], dtype=bool)


def _along_chains(labels: np.ndarray, carbons: np.ndarray, bonds: np.ndarray) -> np.ndarray:
    """Return the number of each carbon's label; labels are numbered along bonds between carbons.

    Examples
    --------
    Two chains whose atoms alternate in the file:

    >>> carbons, bonds = np.array([3, 5, 7, 9]), np.array([[3, 7], [9, 5]])
    >>> _along_chains(np.array(["C22", "C32", "C23", "C33"]), carbons, bonds)
    array([0, 2, 1, 3])
    """
    names, order, sizes = _sorted_by_label(labels)
    numbers = np.empty(len(labels), dtype=np.int64)
    numbers[order] = np.repeat(np.arange(len(names)), sizes)
    of_atoms = np.full(max(carbons.max(), bonds.max()) + 1, -1)
    of_atoms[carbons] = numbers
    ends = of_atoms[bonds]
    ends = np.unique(ends[(ends >= 0).all(axis=1)], axis=0)
    ends = np.unique(np.concatenate([ends, ends[:, ::-1]]), axis=0)
    places: dict[int, int] = {}
    for first in range(len(names)):
        waiting = [first]
        while waiting:
            label = waiting.pop()
            if label not in places:
                places[label] = len(places)
                waiting += ends[ends[:, 0] == label, 1][::-1].tolist()
    return np.array([places[number] for number in range(len(names))])[numbers]


def _sorted_by_label(
    labels: Sequence[str] | np.ndarray,
) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Sort vectors by the first occurrence of their labels.

    Returns labels, the order of vectors, and the number of vectors per label.

    Examples
    --------
    >>> _sorted_by_label(["C3", "C2", "C3"])
    (['C3', 'C2'], array([0, 2, 1]), array([2, 1]))
    """
    known, first, numbers = np.unique(
        np.asarray(labels, dtype=str), return_index=True, return_inverse=True
    )
    by_first = np.argsort(first)
    numbers = np.argsort(by_first)[numbers.reshape(-1)]
    return known[by_first].tolist(), np.argsort(numbers, kind="stable"), np.bincount(numbers)


def _direction(axis: str | Sequence[float]) -> tuple[float, float, float]:
    """Convert an axis to a vector, which is not normalised."""
    if isinstance(axis, str) and axis in AXES:
        return AXES[axis]
    vector = np.zeros(0) if isinstance(axis, str) else np.asarray(axis, dtype=np.float64)
    if vector.shape != (3,) or not np.isfinite(vector).all() or not vector.any():
        raise ValueError(f"axis must be 'x', 'y', 'z' or a vector of three numbers, not {axis!r}")
    x, y, z = vector.tolist()
    return x, y, z
