"""Transformations of frames, before they are analysed.

Each has two halves, as an analysis has. The one that the user holds knows MDAnalysis's objects: it
says which atoms it needs (`atoms`) and makes the other half (`prepare`), which travels to the
workers and changes the positions of a block in place (`apply`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from paceline import _core
from paceline.errors import SelectionError, UnsupportedError

_COMPOUNDS = ("atoms", "group", "residues", "segments", "molecules", "fragments")
_NORMALS = {None: None, "yz": 0, "xz": 1, "xy": 2}
#: Corresponding atoms may differ in mass by this much, u.
_TOL_MASS = 0.1


class Prepared(Protocol):
    """The worker's half of a transformation."""

    def apply(self, positions: np.ndarray, dimensions: np.ndarray) -> list[tuple[int, str]]:
        """Change the positions of a block in place.

        Parameters
        ----------
        positions : numpy.ndarray of float32, shape (n_frames, n_atoms, 3)
            Å, of the atoms for which it was prepared. Frames of nothing but NaN stay so.
        dimensions : numpy.ndarray of float32, shape (n_frames, 6)
            Lengths of the cells (Å) and their angles (degrees); zeros where there is none.

        Returns
        -------
        list of (int, str)
            Rows that cannot be transformed, and why; their positions are NaN.
        """


class Transform(Protocol):
    """The user's half of a transformation; it serves any number of runs."""

    def atoms(self, wanted: np.ndarray, universe: Any) -> np.ndarray:
        """Atoms to be decoded, where those of `wanted` are to be seen after this transformation.

        Parameters
        ----------
        wanted : numpy.ndarray of int64, shape (n_wanted,)
            Indices, increasing.
        universe : Universe
            Their system.

        Returns
        -------
        numpy.ndarray of int64, shape (n_atoms,)
            Indices, increasing; those of `wanted` among them.
        """

    def prepare(self, atoms: np.ndarray, universe: Any, before: Sequence[Prepared]) -> Prepared:
        """Make the worker's half.

        Parameters
        ----------
        atoms : numpy.ndarray of int64, shape (n_atoms,)
            Indices of all atoms that are decoded, increasing.
        universe : Universe
            Their system.
        before : sequence of Prepared
            The transformations that come before this one.

        Returns
        -------
        Prepared
            Without any MDAnalysis object.
        """

    def parameters(self) -> str:
        """One line for the record that is saved with results."""


def unwrap(atomgroup: Any = None) -> Transform:
    """Make molecules whole along their bonds.

    The first atom of a molecule stays where it is, and from bond to bond every other atom takes
    the image that is nearest to its neighbour, in the order of
    `MDAnalysis.transformations.unwrap`. Only molecules of which an atom is analysed are decoded.

    Parameters
    ----------
    atomgroup : AtomGroup or str, optional
        Molecules of which to make whole those that have an atom in it, or a selection; by default
        all molecules.

    Returns
    -------
    Transform
        For `paceline.run(…, transforms=[…])`. In the run, it raises `UnsupportedError` where the
        topology has no bonds, or none for a residue of several atoms that is analysed. A residue
        whose atoms belong to several molecules is named in a warning.

    Examples
    --------
    >>> from paceline.transform import unwrap
    >>> unwrap("protein").parameters()
    "unwrap('protein')"
    """
    return _Unwrap(atomgroup)


def center(
    atomgroup: Any,
    *,
    weights: str | None = None,
    point: Sequence[float] | None = None,
    wrap: bool = False,
) -> Transform:
    """Bring the centre of a group to the middle of the cell, and all other atoms with it.

    It is `MDAnalysis.transformations.center_in_box`. The group must be whole.

    Parameters
    ----------
    atomgroup : AtomGroup or str
        The group, or its selection.
    weights : {"mass"}, optional
        Take the centre of mass; by default the centre of geometry.
    point : sequence of float, shape (3,), optional
        Where the centre shall come to lie, Å, instead of the middle of the cell.
    wrap : bool
        Take the centre of the atoms' images within the cell.

    Returns
    -------
    Transform
        For `paceline.run(…, transforms=[…])`.

    Raises
    ------
    ValueError
        Weights or a point that are none.

    Examples
    --------
    >>> from paceline.transform import center
    >>> center("protein", weights="mass").parameters()
    "center('protein', weights=mass)"
    """
    if point is not None:
        point = np.asarray(point, dtype=np.float64)
        if point.shape != (3,) or not np.isfinite(point).all():
            raise ValueError(f"point must be three finite numbers, not {point.tolist()}")
        point = tuple(point.tolist())
    return _Center(atomgroup, _known_weights(weights), point, wrap)


def wrap(atomgroup: Any = None, *, compound: str = "atoms") -> Transform:
    """Bring atoms, or compounds of atoms as a whole, back into the cell.

    It is `MDAnalysis.transformations.wrap`: of a compound, the centre of mass comes to lie within
    the cell. Only compounds of which an atom is analysed are decoded.

    Parameters
    ----------
    atomgroup : AtomGroup or str, optional
        The atoms, or their selection; by default all atoms. Atoms of a compound that are not in it
        do not move, and do not count for its centre.
    compound : {"atoms", "group", "residues", "segments", "molecules", "fragments"}
        What stays together.

    Returns
    -------
    Transform
        For `paceline.run(…, transforms=[…])`. In the run, it raises `UnsupportedError` where the
        topology does not know the compounds, or masses.

    Raises
    ------
    ValueError
        An unknown compound.

    Examples
    --------
    >>> from paceline.transform import wrap
    >>> wrap(compound="residues").parameters()
    'wrap(compound=residues)'
    """
    if compound not in _COMPOUNDS:
        raise ValueError(f"compound must be one of {', '.join(_COMPOUNDS)}, not {compound!r}")
    return _Wrap(atomgroup, compound)


def fit(
    atomgroup: Any,
    reference: Any = None,
    *,
    weights: str | None = None,
    rotation: bool = True,
    plane: str | None = None,
) -> Transform:
    """Move all atoms as a rigid body, so that a group lies on its reference.

    It is `MDAnalysis.transformations.fit_rot_trans`, or without rotation `fit_translation`. The
    rotation is that of the least RMSD (QCP: Theobald 2005, Acta Cryst. A61, 478; Liu, Agrafiotis &
    Theobald 2010, J. Comput. Chem. 31, 1561). The group must be whole.

    Parameters
    ----------
    atomgroup : AtomGroup or str
        The group, or its selection.
    reference : AtomGroup or Universe, optional
        As many atoms to move it onto; of these, a selection takes its part. By default the same
        atoms in the first frame of the trajectory. Positions in the trajectory that is analysed
        (the first frame, or the current one where a reference was taken from it) are changed by
        the transformations before this one; those of another Universe are taken as they are.
    weights : {"mass"}, optional
        Weigh the atoms by mass.
    rotation : bool
        False only makes the centres meet.
    plane : {"xy", "yz", "xz"}, optional
        Move only in this plane, and rotate only about its normal: of the best rotation's angles
        about the axes x, y, z, that one.

    Returns
    -------
    Transform
        For `paceline.run(…, transforms=[…])`. In the run, it raises `SelectionError` where the
        group and its reference do not correspond.

    Raises
    ------
    ValueError
        An unknown plane or weights.

    Examples
    --------
    >>> from paceline.transform import fit
    >>> fit("name CA", weights="mass").parameters()
    "fit('name CA', reference=frame 0, weights=mass)"
    """
    if plane not in _NORMALS:
        raise ValueError(f"plane must be 'xy', 'yz' or 'xz', not {plane!r}")
    return _Fit(atomgroup, reference, _known_weights(weights), rotation, plane)


class _Prepared:
    """A transformation of the core, that is made anew where it is unpickled."""

    def __init__(self, kind: str, *arguments: Any):
        self._made_of = kind, *arguments
        self._core: _core.Transform = getattr(_core.Transform, kind)(*arguments)

    def __reduce__(self) -> tuple[type, tuple]:
        return _Prepared, self._made_of

    def apply(self, positions: np.ndarray, dimensions: np.ndarray) -> list[tuple[int, str]]:
        return self._core.apply(positions, dimensions)


@dataclass(frozen=True)
class _Unwrap:
    atomgroup: Any

    def atoms(self, wanted: np.ndarray, universe: Any) -> np.ndarray:
        members, fragments = self._molecules(universe, _bonds(universe, "unwrap"))
        touched = _touched(members, fragments, wanted)
        _check_residues(universe, np.intersect1d(wanted, touched))
        return np.union1d(wanted, touched)

    def prepare(self, atoms: np.ndarray, universe: Any, before: Sequence[Prepared]) -> Prepared:
        bonds = _bonds(universe, "unwrap")
        members, fragments = self._molecules(universe, bonds)
        whole = _complete(members, fragments, atoms)
        bonds = bonds[np.isin(bonds[:, 0], whole)]
        return _Prepared("unwrap", len(atoms), np.searchsorted(atoms, bonds))

    def _molecules(self, universe: Any, bonds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Atoms of all molecules that are made whole, and which molecule each belongs to."""
        fragments = _core.fragments(len(universe.atoms), bonds)
        if self.atomgroup is None:
            return np.arange(len(fragments)), fragments
        group = _select(self.atomgroup, universe, "unwrap")
        members = np.flatnonzero(np.isin(fragments, fragments[group.indices]))
        return members, fragments[members]

    def parameters(self) -> str:
        return _line("unwrap", self.atomgroup)


@dataclass(frozen=True)
class _Center:
    atomgroup: Any
    weights: str | None
    point: tuple[float, ...] | None
    wrap: bool

    def atoms(self, wanted: np.ndarray, universe: Any) -> np.ndarray:
        return np.union1d(wanted, _select(self.atomgroup, universe, "center").indices)

    def prepare(self, atoms: np.ndarray, universe: Any, before: Sequence[Prepared]) -> Prepared:
        group = _select(self.atomgroup, universe, "center")
        columns = np.searchsorted(atoms, group.indices)
        masses = None if self.weights is None else _masses(group, "center")
        return _Prepared("center", len(atoms), columns, masses, self.point, self.wrap)

    def parameters(self) -> str:
        options = {"weights": self.weights, "point": self.point, "wrap": self.wrap or None}
        return _line("center", self.atomgroup, **options)


@dataclass(frozen=True)
class _Wrap:
    atomgroup: Any
    compound: str

    def atoms(self, wanted: np.ndarray, universe: Any) -> np.ndarray:
        members, compounds = self._compounds(universe)
        return np.union1d(wanted, _touched(members, compounds, wanted))

    def prepare(self, atoms: np.ndarray, universe: Any, before: Sequence[Prepared]) -> Prepared:
        members, compounds = self._compounds(universe)
        kept = np.isin(members, _complete(members, compounds, atoms))
        members, compounds = members[kept], compounds[kept]
        order = np.argsort(compounds, kind="stable")
        members = members[order]
        _, sizes = np.unique(compounds, return_counts=True)
        masses = None
        if (sizes > 1).any():
            masses = _masses(universe.atoms[members], "wrap").copy()
            # A virtual site alone is its own centre, whatever it weighs.
            masses[np.repeat(sizes, sizes) == 1] = 1.0
        columns = np.searchsorted(atoms, members)
        return _Prepared("wrap", len(atoms), columns, sizes.astype(np.int64), masses)

    def _compounds(self, universe: Any) -> tuple[np.ndarray, np.ndarray]:
        """Atoms that are wrapped, and which compound each belongs to."""
        group = universe.atoms
        if self.atomgroup is not None:
            group = _select(self.atomgroup, universe, "wrap").unique
        members = group.indices
        if self.compound == "atoms":
            return members, members
        if self.compound == "group":
            return members, np.zeros_like(members)
        if self.compound == "fragments":
            bonds = _bonds(universe, "wrap by fragments")
            return members, _core.fragments(len(universe.atoms), bonds)[members]
        if self.compound == "molecules":
            if not hasattr(group, "molnums"):
                raise UnsupportedError(
                    "wrap by molecules needs their numbers, which only a TPR file has; "
                    "wrap by fragments takes what bonds connect"
                )
            return members, group.molnums
        return members, group.resindices if self.compound == "residues" else group.segindices

    def parameters(self) -> str:
        return _line("wrap", self.atomgroup, compound=self.compound)


@dataclass(frozen=True)
class _Fit:
    atomgroup: Any
    reference: Any
    weights: str | None
    rotation: bool
    plane: str | None

    def atoms(self, wanted: np.ndarray, universe: Any) -> np.ndarray:
        mobile, fixed = self._groups(universe)
        wanted = np.union1d(wanted, mobile.indices)
        return np.union1d(wanted, fixed.indices) if fixed.universe is universe else wanted

    def prepare(self, atoms: np.ndarray, universe: Any, before: Sequence[Prepared]) -> Prepared:
        mobile, fixed = self._groups(universe)
        if fixed.universe is universe:
            frame = 0 if self.reference is None else universe.trajectory.ts.frame
            positions = _read_frame(universe, frame, atoms, before)
            positions = positions[np.searchsorted(atoms, fixed.indices)]
        else:
            positions = fixed.positions
        return _Prepared(
            "fit",
            len(atoms),
            np.searchsorted(atoms, mobile.indices),
            positions.astype(np.float64),
            None if self.weights is None else _masses(mobile, "fit"),
            self.rotation,
            _NORMALS[self.plane],
        )

    def _groups(self, universe: Any) -> tuple[Any, Any]:
        """Atoms that move, and atoms that they are moved onto."""
        mobile = fixed = _select(self.atomgroup, universe, "fit")
        if self.reference is not None:
            _refuse_updating(self.reference, "fit")
            fixed = self.reference.atoms
            if isinstance(self.atomgroup, str):
                fixed = fixed.select_atoms(self.atomgroup)
        if len(mobile) != len(fixed):
            raise SelectionError(
                f"fit: {len(mobile)} atoms cannot be moved onto {len(fixed)} atoms of the reference"
            )
        if self.rotation and len(mobile) < 3:
            raise SelectionError(
                f"fit: {len(mobile)} atoms have no orientation; take three or more, "
                "or rotation=False"
            )
        _check_masses(mobile, fixed)
        return mobile, fixed

    def parameters(self) -> str:
        reference = "frame 0" if self.reference is None else f"{self.reference}"
        rotation = None if self.rotation else False
        options = {"weights": self.weights, "rotation": rotation, "plane": self.plane}
        return _line("fit", self.atomgroup, reference=reference, **options)


def _known_weights(weights: str | None) -> str | None:
    if weights not in (None, "mass"):
        raise ValueError(f"weights must be None or 'mass', not {weights!r}")
    return weights


def _line(name: str, atomgroup: Any, **options: Any) -> str:
    """A call as it is kept in a record, without the options that were not given."""
    words = [f"{key}={value}" for key, value in options.items() if value is not None]
    if isinstance(atomgroup, str):
        words.insert(0, repr(atomgroup))
    elif atomgroup is not None:
        indices = atomgroup.atoms.indices
        words.insert(0, f"{len(indices)} atoms, indices {indices.min()} to {indices.max()}")
    return f"{name}({', '.join(words)})"


def _select(atomgroup: Any, universe: Any, name: str) -> Any:
    """The group of atoms that a transformation was given, or its selection from the Universe."""
    if isinstance(atomgroup, str):
        group = universe.select_atoms(atomgroup)
    else:
        _refuse_updating(atomgroup, name)
        group = atomgroup.atoms
    if len(group) == 0:
        raise SelectionError(f"{name}: no atoms match {atomgroup!r}")
    if group.universe is not universe:
        raise UnsupportedError(
            f"{name}: its atoms belong to another Universe than the analysis; "
            "give a selection, as text"
        )
    return group


def _refuse_updating(atomgroup: Any, name: str) -> None:
    # Only groups that update themselves know whether they are up to date.
    if hasattr(atomgroup, "is_uptodate"):
        raise UnsupportedError(
            f"{name}: an UpdatingAtomGroup changes from frame to frame; "
            "give a fixed selection (updating=False)"
        )


def _masses(group: Any, name: str) -> np.ndarray:
    if not hasattr(group, "masses"):
        raise UnsupportedError(f"{name} needs masses, and the topology has none")
    return group.masses.astype(np.float64)


def _check_masses(mobile: Any, fixed: Any) -> None:
    if not (hasattr(mobile, "masses") and hasattr(fixed, "masses")):
        return
    differing = np.flatnonzero(np.abs(mobile.masses - fixed.masses) > _TOL_MASS)
    if len(differing):
        first = differing[0]
        raise SelectionError(
            f"fit: {len(differing)} pairs of atoms differ in mass by more than {_TOL_MASS} u, the "
            f"first is {mobile[first]} and {fixed[first]} of the reference"
        )


def _bonds(universe: Any, name: str) -> np.ndarray:
    """Pairs of bonded atoms: ndarray of int64, shape (n_bonds, 2)."""
    # Universe.bonds makes an object of them first: 0.3 s for 25,000 bonds, and this 0.02 s.
    bonds = getattr(universe._topology, "bonds", None)
    if bonds is None or len(bonds.values) == 0:
        raise UnsupportedError(
            f"{name} needs bonds, and the topology has none; load a topology that has them (TPR, "
            "PSF, PRMTOP, MOL2, …), or guess them with universe.atoms.guess_bonds()"
        )
    return np.array(bonds.values, dtype=np.int64)


def _touched(members: np.ndarray, compounds: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Members of the compounds that have a wanted atom."""
    return members[np.isin(compounds, compounds[np.isin(members, wanted)])]


def _complete(members: np.ndarray, compounds: np.ndarray, atoms: np.ndarray) -> np.ndarray:
    """Members of the compounds that have all their atoms; nobody asked for the others."""
    return members[~np.isin(compounds, compounds[~np.isin(members, atoms)])]


def _check_residues(universe: Any, atoms: np.ndarray) -> None:
    """Say where bonds are missing: in residues whose atoms belong to several fragments."""
    fragments = _core.fragments(len(universe.atoms), _bonds(universe, "unwrap"))
    residue_of = universe.atoms.resindices
    concerned = np.isin(residue_of, residue_of[atoms])
    parts = np.unique(np.stack([residue_of[concerned], fragments[concerned]]), axis=1)
    residues, n_parts = np.unique(parts[0], return_counts=True)
    n_atoms = np.bincount(residue_of[concerned])[residues]
    unbonded = residues[(n_atoms > 1) & (n_parts == n_atoms)]
    if len(unbonded):
        raise UnsupportedError(
            f"unwrap: the topology has no bonds for {_names(universe, unbonded)}; load a topology "
            "that has them, guess them with universe.atoms.guess_bonds(), or name the molecules "
            "that have bonds: unwrap(atomgroup)"
        )
    divided = residues[n_parts > 1]
    if len(divided):
        # Another module of the user's half; worker processes import this one.
        from paceline.reader import warn

        warn(
            f"unwrap: the topology has no bonds between some atoms of "
            f"{_names(universe, divided)}; these atoms may come to lie in different images"
        )


def _names(universe: Any, resindices: np.ndarray) -> str:
    """How many residues, and the first of them by name."""
    residues = universe.residues[resindices[:3]]
    columns = [getattr(residues, name, None) for name in ("resnames", "resids")]
    columns = [column for column in columns if column is not None]
    names = [" ".join(str(value) for value in row) for row in zip(*columns, strict=True)]
    more = ", …" if len(resindices) > 3 else ""
    return f"{len(resindices)} residues ({', '.join(names)}{more})"


def _read_frame(
    universe: Any, frame: int, atoms: np.ndarray, before: Sequence[Prepared]
) -> np.ndarray:
    """Positions of a frame after some transformations, Å: float32, shape (n_atoms, 3)."""
    trajectory = universe.trajectory
    current = trajectory.ts.frame
    try:
        ts = trajectory.ts if current == frame else trajectory[frame]
        positions = ts.positions[np.newaxis, atoms]
        cell = np.zeros(6) if ts.dimensions is None else ts.dimensions
        dimensions = np.array([cell], dtype=np.float32)
    finally:
        if current != frame:
            trajectory[current]
    for step in before:
        for _, reason in step.apply(positions, dimensions):
            raise UnsupportedError(
                f"frame {frame} cannot be the reference of a fit: {reason}; give another reference"
            )
    return positions[0]
