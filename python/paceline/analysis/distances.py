"""Distances and angles. Classes that also exist in MDAnalysis have its parameters and results."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, Self

import numpy as np

from paceline._util.option_values_and_selections import TRACE
from paceline.analysis import name_of_mdanalysis
from paceline.analysis.base import AnalysisBase, table_in_time
from paceline.analysis.image_warnings import nearer_images
from paceline.analysis.kernels import CoreRows, Moments, RowMoments
from paceline.analysis.results import Results
from paceline.analysis.table import Image, Table, telling_columns
from paceline.contract.analysis_declaration import PBC, Declaration, Option
from paceline.contract.analysis_kinds import PerFrame, Reduction
from paceline.contract.run_info_and_descriptions import describe_atoms
from paceline.contract.system_interface import Atoms, has_attribute
from paceline.errors import SelectionError, UnsupportedError
from paceline.transform.masses import masses_of
from paceline.transform.selections_and_weights import check_not_empty, check_static, known_weights

if TYPE_CHECKING:
    import MDAnalysis.analysis.atomicdistances

#: Maximum number of curves in a figure of many distances.
LINES = 8
#: Maximum size of the distances of all pairs that are computed at a time, bytes.
LARGEST_ROWS = 2**25


class GroupsAnalysis(AnalysisBase):
    """Base class of analyses with one row per frame, computed from groups of one Universe.

    Nearest images are used if `pbc` is true. `groups` contains the groups by parameter name. In a
    block, the atoms of the groups follow one another.
    """

    def __init__(self, groups: dict[str, Atoms], pbc: bool, verbose: bool):
        first = next(iter(groups.values()))
        super().__init__(first, verbose=verbose)
        name = type(self).__name__
        for parameter, group in groups.items():
            check_static(group, name)
            if group.universe is not first.universe:
                raise UnsupportedError(
                    f"{name}: {parameter} must belong to the same Universe as the first group"
                )
            check_not_empty(group.atoms, f"{name}: {parameter}")
        self._groups = {parameter: group.atoms for parameter, group in groups.items()}
        self.pbc = bool(pbc)

    def _remark_on_images(self, kind: str = "all") -> None:
        """Warn if atoms of one molecule are nearer to images of each other than to each other."""
        if self.pbc:
            groups = list(self._groups.values())
            self.remark("images", nearer_images(self.name, groups, self.frames, kind))

    def _check_equal_numbers(self) -> None:
        """Raise `SelectionError` unless all groups have the same number of atoms."""
        counts = {len(group) for group in self._groups.values()}
        if len(counts) > 1:
            found = ", ".join(f"{name}: {len(group)}" for name, group in self._groups.items())
            raise SelectionError(
                f"{type(self).__name__}: AtomGroups do not have the same number of atoms ({found})"
            )

    @property
    def indices(self) -> np.ndarray:
        """Indices of the atoms of all groups, group by group."""
        return np.concatenate([group.indices for group in self._groups.values()])

    @property
    def _sizes(self) -> tuple[int, ...]:
        return tuple(len(group) for group in self._groups.values())

    def parameters(self) -> dict[str, object]:
        """Return the parameters that are saved with the results."""
        groups = {name: describe_atoms(group) for name, group in self._groups.items()}
        return {**groups, "pbc": self.pbc}

    def _series(self, name: str, titles: Sequence[str], values: np.ndarray, label: str) -> None:
        """Store time series as the result `name`, with frames and times."""
        columns = dict(zip(titles, np.atleast_2d(values.T), strict=True))
        # The legend omits the number of the pair.
        legend = {title: title.rpartition(" (")[0].rpartition(": ")[2] for title in titles}
        drawn = None
        if len(legend) > LINES:
            some = dict(list(legend.items())[:LINES])
            first = f"{label}, the first {LINES} of {len(legend)}"
            drawn = table_in_time(self, columns, some, first)
        self.results = Results(
            table=table_in_time(self, columns, legend, label, drawn),
            provenance=self.record(),
            frames=self.frames,
            times=self.times,
            **{name: values},
        )


class AtomicDistances(GroupsAnalysis):
    """Distances between corresponding atoms of two groups.

    Parameters
    ----------
    ag1, ag2 : AtomGroup
        Groups with the same number of atoms, from one Universe.
    pbc : bool
        Use the nearest periodic images in the cell of each frame, if the frame has a cell.

    Attributes
    ----------
    results.distances : numpy.ndarray of float64, shape (n_frames, n_atoms)
        Distances, Å; NaN if a position is NaN, and for damaged frames that were left out.
    results.frames : numpy.ndarray of int64, shape (n_frames,)
        Frame numbers.
    results.times : numpy.ndarray of float64, shape (n_frames,)
        Times of these frames, ps.
    n_atoms : int
        Number of atoms in each group.

    Raises
    ------
    SelectionError
        The groups are empty or differ in size.
    UnsupportedError
        A group is an UpdatingAtomGroup, or the groups belong to different Universes.

    Examples
    --------
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import GRO, XTC
    >>> u = paceline.Universe(GRO, XTC)
    >>> distances = AtomicDistances(u.atoms[100:103], u.atoms[4000:4003]).run(stop=2)
    >>> distances.results.distances.round(2)
    array([[37.81, 33.26, 34.94],
           [27.12, 31.2 , 31.69]])
    """

    declaration = Declaration(
        name="distances",
        summary="distances between two groups: of pairs, of centers, minimum, or all",
        description=(
            "Distances (Å) between two groups of atoms in each frame, by nearest images: between "
            "corresponding atoms, between the centers of the groups, the shortest distance, or the "
            "distances of all pairs."
        ),
        section="hydrogen-bonds.md#distances-and-angles",
        variants=("DistanceMatrixSeries",),
        examples=(
            'adk.psf adk.dcd --select "resid 55 and name CA" --select-2 "resid 169 and name CA"',
            (
                'adk.psf adk.dcd --select "resid 1-29" --select-2 "resid 122-159" --between '
                "centers -o lid.csv --plot lid.png"
            ),
            'adk.psf adk.dcd --select "resid 1-29" --select-2 "resid 122-159" --between minimum',
        ),
        options=(
            Option(
                "between",
                "distances to compute [%(default)s]; all needs an output file .npz",
                choices=("pairs", "centers", "minimum", "all"),
                default="pairs",
            ),
            Option(
                "weights",
                "centers of mass, or centers of geometry [%(default)s]",
                choices=("mass", "none"),
                default="mass",
            ),
            PBC,
        ),
        counterpart="atomicdistances.AtomicDistances",
        groups=("atoms of the second group",),
    )

    def __init__(self, ag1: Atoms, ag2: Atoms, pbc: bool = True, *, verbose: bool = False):
        super().__init__({"ag1": ag1, "ag2": ag2}, pbc, verbose)
        self._check_equal_numbers()
        self.n_atoms = len(self.atomgroup)

    SHARED_RESULTS = ("distances",)

    @classmethod
    def from_mdanalysis(cls, theirs: "MDAnalysis.analysis.atomicdistances.AtomicDistances") -> Self:
        """Make an analysis with the parameters of MDAnalysis's analysis."""
        if len(theirs._ag1.atoms) == 0:  # paceline's constructor raises an error
            raise UnsupportedError("AtomicDistances: the groups are empty")
        return cls(theirs._ag1, theirs._ag2, theirs._pbc)

    def prepare(self) -> PerFrame:
        """Make the worker part from the number of pairs."""
        self._remark_on_images("pairs")
        return CoreRows("atomic_distances", self.n_atoms, self.pbc)

    def finish(self, value: np.ndarray) -> None:
        """Store the distances, with frames and times."""
        first, second = self._groups.values()
        pairs = zip(first.indices, second.indices, strict=True)
        titles = [f"distance {k}: atoms {i}-{j} (Å)" for k, (i, j) in enumerate(pairs)]
        self._series("distances", titles, value, "distance (Å)")


class _AllDistances(GroupsAnalysis):
    """Base class for distances between all atoms of two groups, or within one group."""

    def __init__(
        self, ag1: Atoms, ag2: Atoms | None = None, *, pbc: bool = True, verbose: bool = False
    ):
        super().__init__({"ag1": ag1} | ({} if ag2 is None else {"ag2": ag2}), pbc, verbose)
        if ag2 is None and len(self.atomgroup) < 2:
            raise SelectionError(
                f"{self.name}: ag1 contains only one atom, so there are no distances: use more "
                "atoms, or another group as ag2"
            )


class DistanceMatrixSeries(_AllDistances):
    """Distances between all atoms of two groups, or within one group, in each frame.

    The order of pairs is that of `MDAnalysis.lib.distances.self_distance_array` and
    `distance_array`. Large results are stored in an anonymous temporary file (folder `TMPDIR`).

    Parameters
    ----------
    ag1 : AtomGroup or Universe
        Atoms of the first group.
    ag2 : AtomGroup, optional
        Atoms of a second group in the same Universe; by default distances are within `ag1`.
    pbc : bool
        Use the nearest periodic images in the cell of each frame, if the frame has a cell.

    Attributes
    ----------
    results.distances : numpy.ndarray of float64, shape (n_frames, n1 * (n1 - 1) / 2)
        Distances, Å. Within one group, each atom is paired with all later atoms;
        `scipy.spatial.distance.squareform` converts a row to a matrix. For two groups the shape is
        (n_frames, n1, n2). NaN if a position is NaN, and for damaged frames that were left out.
    results.frames : numpy.ndarray of int64, shape (n_frames,)
        Frame numbers.
    results.times : numpy.ndarray of float64, shape (n_frames,)
        Times of these frames, ps.

    Raises
    ------
    SelectionError
        A group is empty, or the only group has one atom.
    UnsupportedError
        A group is an UpdatingAtomGroup, the groups belong to different Universes, or, in the run,
        the results exceed the free space.

    Examples
    --------
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import PSF, DCD
    >>> ca = paceline.Universe(PSF, DCD).select_atoms("name CA")
    >>> DistanceMatrixSeries(ca).run(stop=3).results.distances.shape
    (3, 22791)
    """

    def __init__(
        self, ag1: Atoms, ag2: Atoms | None = None, *, pbc: bool = True, verbose: bool = False
    ):
        super().__init__(ag1, ag2, pbc=pbc, verbose=verbose)
        first, *rest = self._sizes
        self.row_bytes = 8 * (first * rest[0] if rest else first * (first - 1) // 2)

    def prepare(self) -> PerFrame:
        """Make the worker part from the sizes of the groups."""
        self._remark_on_images()
        first, *rest = self._sizes
        shape = (first, rest[0]) if rest else None
        second = rest[0] if rest else None
        return CoreRows("distance_matrix", first, second, self.pbc, shape=shape)

    def finish(self, value: np.ndarray) -> None:
        """Store the distances, with frames and times."""
        results = Results(
            provenance=self.record(), distances=value, frames=self.frames, times=self.times
        )
        self.results = results.with_series("distances", "distance (Å)")


class DistanceMap(_AllDistances):  # numpydoc ignore=PR02
    """Mean and standard deviation over frames of the distance of each pair of atoms.

    Parameters
    ----------
    ag1 : AtomGroup or Universe
        Atoms of the first group, such as all CA.
    ag2 : AtomGroup, optional
        Atoms of a second group in the same Universe; by default distances are within `ag1`.
    pbc : bool
        Use the nearest periodic images in the cell of each frame, if the frame has a cell.

    Attributes
    ----------
    results.mean : numpy.ndarray of float64, shape (n1, n2)
        Mean distances, Å; within one group symmetric, with 0 on the diagonal. NaN if a position is
        NaN.
    results.deviation : numpy.ndarray of float64, shape (n1, n2)
        Standard deviation over frames, Å.
    results.n_frames : int
        Number of analysed frames.

    Raises
    ------
    SelectionError
        A group is empty, or the only group has one atom.
    UnsupportedError
        A group is an UpdatingAtomGroup, or the groups belong to different Universes.

    Examples
    --------
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import PSF, DCD
    >>> ca = paceline.Universe(PSF, DCD).select_atoms("name CA")
    >>> DistanceMap(ca).run().results.mean[0, :4].round(2)
    array([0.  , 3.85, 6.09, 9.95])
    """

    declaration = Declaration(
        name="distance-map",
        summary="mean distance of each pair of atoms",
        description=(
            "Mean distance (Å) of each pair of atoms over all frames, and its standard "
            "deviation, by nearest images."
        ),
        section="hydrogen-bonds.md#distances-and-angles",
        select=TRACE,
        examples=(
            "adk.psf adk.dcd -o map.tsv --plot map.png",
            (
                'adk.psf adk.dcd --select "resid 1-29 and name CA" --select-2 "resid 122-159 and '
                'name CA" --plot lid.png'
            ),
        ),
        options=(
            Option(
                "other",
                "atoms of the second group [pairs within the first group]",
                flag="--select-2",
                metavar="TEXT",
            ),
            PBC,
        ),
    )

    def prepare(self) -> Reduction:
        """Make the worker part, and limit the number of frames that it processes at a time."""
        self._remark_on_images()
        first, *rest = self._sizes
        second = rest[0] if rest else None
        n_pairs = first * (second or first)
        rows = CoreRows("distance_matrix", first, second, self.pbc)
        return RowMoments(rows, max(1, LARGEST_ROWS // (8 * n_pairs)))

    def finish(self, value: Moments) -> None:
        """Make matrices from the means and variances of pairs."""
        count, mean, squares, _ = value
        with np.errstate(invalid="ignore"):
            deviation = np.sqrt(squares[0] / (count or np.nan))
        mean = mean[0] if count else np.full_like(mean[0], np.nan)
        groups = list(self._groups.values())
        first, second = groups[0], groups[-1]
        if len(groups) == 1:
            rows, columns = np.triu_indices(len(first), k=1)
        else:
            rows, columns = (axis.ravel() for axis in np.indices(self._sizes))
        matrices = []
        for values in (mean, deviation):
            matrix = np.zeros((len(first), len(second)))
            matrix[rows, columns] = values
            if len(groups) == 1:
                matrix[columns, rows] = values
            matrices.append(matrix)
        label = "mean distance (Å)"
        table = {
            "atom index": first.indices[rows],
            "other atom index": second.indices[columns],
            label: mean,
            "standard deviation (Å)": deviation,
        }
        image = _map_of(first, second, matrices[0], label)
        keys = "atom index", "other atom index"
        if (image.x_label, image.y_label) == ("residue", "residue"):
            keys = "residue", "other residue"
            table |= dict(zip(keys, (first.resids[rows], second.resids[columns]), strict=True))
            residues = first.universe.residues[np.union1d(first.resindices, second.resindices)]
            places = [
                np.searchsorted(residues.resindices, group.resindices[some])
                for group, some in ((first, rows), (second, columns))
            ]
            table |= telling_columns(residues, dict(zip(("", "other "), places, strict=True)))
        self.results = Results(
            table=Table(table, keys[0], {label: "mean"}, label, image=image, keys=keys),
            provenance=self.record(),
            mean=matrices[0],
            deviation=matrices[1],
            n_frames=count,
        )


def _map_of(first: Atoms, second: Atoms, values: np.ndarray, label: str) -> Image:
    """Make an image with residue numbers or atom indices along both axes."""
    parts, labels = [], []
    for group in (first, second):
        of_residues = has_attribute(group, "resids") and len(group.residues) == len(group)
        parts.append(group.resids if of_residues else group.indices)
        labels.append("residue" if of_residues else "atom index")
    edges = [np.arange(len(group) + 1) - 0.5 for group in (first, second)]
    both = parts[0], parts[1]
    return Image(values, edges[0], edges[1], labels[0], labels[1], label, both)


class CenterDistance(GroupsAnalysis):
    """Distance between the centers of two groups.

    Positions are used unchanged, so each group must be whole.

    Parameters
    ----------
    ag1, ag2 : AtomGroup
        Groups from one Universe.
    weights : {"mass", None}
        "mass" for centers of mass, None for centers of geometry.
    pbc : bool
        Use the nearest periodic image of the other center in the cell of each frame, if the frame
        has a cell.

    Attributes
    ----------
    results.distances : numpy.ndarray of float64, shape (n_frames,)
        Distances, Å; NaN if a position is NaN, and for damaged frames that were left out.
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
        has no masses.
    ValueError
        Parameters are invalid, or all masses of a group are zero.

    Examples
    --------
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import PSF, DCD
    >>> u = paceline.Universe(PSF, DCD)
    >>> lid, core = u.select_atoms("resid 122-159"), u.select_atoms("resid 1-29")
    >>> CenterDistance(lid, core).run(stop=3).results.distances.round(2)
    array([17.87, 17.88, 17.9 ])
    """

    declaration = Declaration(
        name="center-distance",
        summary="distance between the centers of two groups",
        section="hydrogen-bonds.md#distances-and-angles",
        has_command=False,
    )

    needs_one_location = True

    needs_whole = True

    def __init__(
        self,
        ag1: Atoms,
        ag2: Atoms,
        *,
        weights: Literal["mass"] | None = "mass",
        pbc: bool = True,
        verbose: bool = False,
    ):
        super().__init__({"ag1": ag1, "ag2": ag2}, pbc, verbose)
        self.weights = known_weights(weights)
        self._weights = None
        if weights is not None:
            own = "CenterDistance, weights='mass',"
            masses = [masses_of(group, own) for group in self._groups.values()]
            for parameter, values in zip(self._groups, masses, strict=True):
                sound = np.isfinite(values).all() and (values >= 0).all() and values.any()
                if not sound:
                    raise ValueError(
                        f"CenterDistance: masses of {parameter} must be finite, none negative, "
                        "and not all zero; weights=None uses the center of geometry"
                    )
            self._weights = np.concatenate(masses)

    def parameters(self) -> dict[str, object]:
        """Return the parameters that are saved with the results."""
        return {**super().parameters(), "weights": self.weights or "none"}

    def prepare(self) -> PerFrame:
        """Make the worker part from the sizes and weights of the groups."""
        self._remark_on_images("centers")
        return CoreRows("center_distance", self._sizes, self._weights, self.pbc)

    def finish(self, value: np.ndarray) -> None:
        """Store the distances, with frames and times."""
        label = "distance of centers (Å)"
        self._series("distances", [label], value[:, 0], label)


class MinimumDistance(GroupsAnalysis):
    """Shortest distance between the atoms of two groups, and the two atoms.

    Parameters
    ----------
    ag1, ag2 : AtomGroup
        Groups from one Universe, without common atoms.
    pbc : bool
        Use the nearest periodic images in the cell of each frame, if the frame has a cell.

    Attributes
    ----------
    results.distances : numpy.ndarray of float64, shape (n_frames,)
        Distances, Å; NaN if a position of the groups is not finite, and for damaged frames that
        were left out.
    results.pairs : numpy.ndarray of int64, shape (n_frames, 2)
        Indices in the Universe of the two atoms, from `ag1` and `ag2`. If several pairs have this
        distance, the first pair in the order of the groups is used. -1 if the distance is NaN.
    results.frames : numpy.ndarray of int64, shape (n_frames,)
        Frame numbers.
    results.times : numpy.ndarray of float64, shape (n_frames,)
        Times of these frames, ps.

    Raises
    ------
    SelectionError
        A group is empty, or the groups have common atoms.
    UnsupportedError
        A group is an UpdatingAtomGroup, or the groups belong to different Universes.

    Examples
    --------
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import PSF, DCD
    >>> u = paceline.Universe(PSF, DCD)
    >>> closest = MinimumDistance(u.select_atoms("resid 1-29"), u.select_atoms("resid 122-159"))
    >>> closest.run(stop=2).results.distances.round(2)
    array([1.85, 2.36])
    """

    declaration = Declaration(
        name="minimum-distance",
        summary="shortest distance between two groups",
        section="hydrogen-bonds.md#distances-and-angles",
        has_command=False,
    )

    def __init__(self, ag1: Atoms, ag2: Atoms, *, pbc: bool = True, verbose: bool = False):
        super().__init__({"ag1": ag1, "ag2": ag2}, pbc, verbose)
        shared = np.intersect1d(ag1.atoms.indices, ag2.atoms.indices)
        if len(shared):
            raise SelectionError(
                f"MinimumDistance: {len(shared)} atoms are in both groups, the first one with "
                f"index {shared[0]}; remove common atoms from one group"
            )

    def prepare(self) -> PerFrame:
        """Make the worker part from the sizes of the groups."""
        return CoreRows("minimum_distance", self._sizes, self.pbc)

    def finish(self, value: np.ndarray) -> None:
        """Store the distances and the indices of the atoms, with frames and times."""
        known = ~np.isnan(value[:, 0])
        pairs = np.full((len(value), 2), -1, dtype=np.int64)
        for k, group in enumerate(self._groups.values()):
            pairs[known, k] = group.indices[value[known, k + 1].astype(np.int64)]
        label = "minimum distance (Å)"
        self._series("distances", [label], value[:, 0], label)
        self.results.pairs = pairs


class Angles(GroupsAnalysis):
    r"""Angles between three atoms, at the second one.

    $$\theta = \operatorname{atan2}\left(|\mathbf{a} \times \mathbf{b}|,
               \mathbf{a} \cdot \mathbf{b}\right)$$

    with the vectors $\mathbf{a}$ and $\mathbf{b}$ from an atom of `ag2` to the corresponding atoms
    of `ag1` and `ag3`, as in `MDAnalysis.lib.distances.calc_angles` (which returns radians).

    Parameters
    ----------
    ag1, ag2, ag3 : AtomGroup
        Groups with the same number of atoms, from one Universe.
    pbc : bool
        Use the nearest periodic images in the cell of each frame, if the frame has a cell.

    Attributes
    ----------
    results.angles : numpy.ndarray of float64, shape (n_frames, n_atoms)
        Angles in degrees, from 0 to 180; NaN if a position is NaN, and for damaged frames that were
        left out.
    results.frames : numpy.ndarray of int64, shape (n_frames,)
        Frame numbers.
    results.times : numpy.ndarray of float64, shape (n_frames,)
        Times of these frames, ps.

    Raises
    ------
    SelectionError
        The groups are empty or differ in size, or an angle has the same atom in the middle and at
        an end.
    UnsupportedError
        A group is an UpdatingAtomGroup, or the groups belong to different Universes.
    ValueError
        In the run, as `AnalysisError`: two atoms of an angle have the same position.

    Examples
    --------
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import PSF, DCD
    >>> u = paceline.Universe(PSF, DCD)
    >>> n, ca, c = (u.select_atoms(f"resid 2-4 and name {name}") for name in ("N", "CA", "C"))
    >>> Angles(n, ca, c).run(stop=2).results.angles.round(1)
    array([[109.3, 109.1, 107.4],
           [114.9, 110.4, 114.1]])
    """

    declaration = Declaration(
        name="angles",
        summary="angles between three atoms",
        description=(
            "Angles (degrees, 0 to 180) of each frame, at the atoms of --select-2. The first angle "
            "is between the first atoms of the selections, the second between the second atoms."
        ),
        section="hydrogen-bonds.md#distances-and-angles",
        examples=(
            (
                'adk.psf adk.dcd --select "resid 30 and name N" --select-2 "resid 30 and name '
                'CA" --select-3 "resid 30 and name C" -o angle.csv --plot angle.png'
            ),
        ),
        options=(PBC,),
        groups=(
            "atoms at the vertices of the angles",
            "atoms at the other ends of the angles",
        ),
    )

    def __init__(
        self, ag1: Atoms, ag2: Atoms, ag3: Atoms, *, pbc: bool = True, verbose: bool = False
    ):
        super().__init__({"ag1": ag1, "ag2": ag2, "ag3": ag3}, pbc, verbose)
        self._check_equal_numbers()
        first, middle, third = (group.indices for group in self._groups.values())
        twice = np.flatnonzero((first == middle) | (third == middle))
        if len(twice):
            raise SelectionError(
                f"Angles: angle {twice[0]} has the atom with index {middle[twice[0]]} twice, once "
                "in the middle: use another atom"
            )

    def prepare(self) -> PerFrame:
        """Make the worker part from the number of angles."""
        return CoreRows("angles", len(self.atomgroup), self.pbc)

    def finish(self, value: np.ndarray) -> None:
        """Store the angles, with frames and times."""
        triples = zip(*(group.indices for group in self._groups.values()), strict=True)
        titles = [f"angle {n}: atoms {i}-{j}-{k} (°)" for n, (i, j, k) in enumerate(triples)]
        self._series("angles", titles, value, "angle (°)")


def __getattr__(name: str) -> object:
    return name_of_mdanalysis(__name__, name)
