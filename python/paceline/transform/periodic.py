"""Transformations in periodic cells: center a group, wrap atoms, and undo jumps across the cell."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from paceline._util.arguments import one_of
from paceline._util.sorted_unique import sorted_unique
from paceline.contract.system_interface import Selected, System
from paceline.contract.transform_interface import CoreTransform, Transform, WorkerTransform
from paceline.errors import SelectionError, UnsupportedError
from paceline.transform.bonds_and_compounds import (
    advice_on_sites,
    compound_of_atoms,
    molecular_bonds_of,
    molecules_with,
    with_all,
    with_any,
)
from paceline.transform.compare_atom_names import name_atom
from paceline.transform.masses import masses_of
from paceline.transform.molecules import contacts_between
from paceline.transform.nojump_workers import CoreNoJump, CoreSteps
from paceline.transform.selections_and_weights import describe, known_weights, select

_COMPOUNDS = ("atoms", "group", "residues", "segments", "molecules", "fragments")


def center(
    atomgroup: Selected,
    *,
    weights: str | None = None,
    point: Sequence[float] | None = None,
    wrap: bool = False,
) -> Transform:
    """Move the centre of a group to the middle of the cell, and all other atoms by the same vector.

    Equivalent of `MDAnalysis.transformations.center_in_box`. The group must be whole.

    Parameters
    ----------
    atomgroup : AtomGroup or str
        The group, or a selection of it.
    weights : {"mass"}, optional
        Use the centre of mass; by default the centre of geometry.
    point : sequence of float, shape (3,), optional
        Position of the centre, Å, instead of the middle of the cell.
    wrap : bool
        Use the centre of the atoms' images within the cell.

    Returns
    -------
    Transform
        For `paceline.run(…, transforms=[…])`. The run raises `TransformError` for a frame in which
        a position of the group is not finite, or which lacks a cell although one is needed.

    Raises
    ------
    ValueError
        Invalid weights or point.

    Examples
    --------
    >>> from paceline.transform import center
    >>> center("protein", weights="mass").parameters()
    "center('protein', weights=mass)"
    """
    if point is not None:
        point = tuple(float(x) for x in point)
        if len(point) != 3 or not np.isfinite(point).all():
            raise ValueError(f"point must be three finite numbers, not {point}")
    return _Center(atomgroup, known_weights(weights), point, wrap)


def wrap(
    atomgroup: Selected | None = None,
    *,
    compound: str = "atoms",
    together: Selected | None = None,
) -> Transform:
    """Move atoms, or whole compounds of atoms, back into the cell.

    Equivalent of `MDAnalysis.transformations.wrap`: the centre of mass of each compound is moved
    into the cell. Only compounds with an analysed atom are decoded.

    Parameters
    ----------
    atomgroup : AtomGroup or str, optional
        The atoms, or a selection of them; by default all atoms. Atoms outside the group do not
        move, and do not count for the centre of their compound.
    compound : {"atoms", "group", "residues", "segments", "molecules", "fragments"}
        Compounds that stay together; "fragments" are sets of bonded atoms with their virtual sites,
        as in `unwrap`.
    together : AtomGroup or str, optional
        Group or selection of fragments; fragments that form a complex move together. "complexes" is
        allowed as in `unwrap`, which must have put the fragments side by side before.

    Returns
    -------
    Transform
        For `paceline.run(…, transforms=[…])`. The run raises `UnsupportedError` if the topology
        does not define the compounds or masses.

    Raises
    ------
    ValueError
        An unknown compound, or `together` with other compounds than fragments.

    Examples
    --------
    >>> from paceline.transform import wrap
    >>> wrap(compound="residues").parameters()
    'wrap(compound=residues)'
    """
    one_of("compound", compound, *_COMPOUNDS)
    if together is not None and compound != "fragments":
        raise ValueError(f"together requires compound='fragments', not {compound!r}")
    return _Wrap(atomgroup, compound, together)


def nojump(atomgroup: Selected | None = None, *, scheme: str = "lattice") -> Transform:
    """Undo jumps of atoms across the cell, caused by wrapping in the simulation.

    Equivalent of `MDAnalysis.transformations.NoJump`. From each frame to the next, an atom moves to
    the image nearest to its last position along each cell vector: w + n·L, where w is the position
    in the file, L the cell vector, and n a whole number, which is 0 in the first frame of the
    trajectory (Kulke & Vermaas 2022, J. Chem. Theory Comput. 18, 6161, equation B6). For any
    `step`, each frame up to the last analysed one is read, because an atom must move by less than
    half a cell between two frames. Up to 32 threads of one process pass the images from block to
    block, and read the file once. Other backends, runs with a checkpoint, and frames chosen one by
    one need two passes, or one pass if memory can store the decoded frames.

    If the cell varies, n·L also scales all earlier crossings with the current cell. This is correct
    for distances between atoms, but not for diffusion (von Bülow, Bullerjahn & Hummer 2020, J.
    Chem. Phys. 153, 021101). For diffusion, `scheme="tor"` moves whole molecules, so `unwrap` must
    come before it. The center of mass of each molecule moves from frame to frame by the shortest
    step, the steps add up, and the atoms of the molecule move with its center. Virtual sites move
    with their molecule, as in `unwrap`. The relative positions of molecules are lost.

    Parameters
    ----------
    atomgroup : AtomGroup or str, optional
        The atoms, or a selection of them; by default all analysed atoms. With "tor", the molecules
        that have an atom in the group; all atoms of these molecules are read.
    scheme : {"lattice", "tor"}
        Cell by which atoms are moved: "lattice" uses the cell of the current frame, as MDAnalysis's
        `NoJump`; "tor" uses the cell at the time of each crossing, and moves whole molecules.

    Returns
    -------
    Transform
        For `paceline.run(…, transforms=[…])`. The run raises `TransformError` for a frame without a
        cell, or with an atom more than 16,383 cells away. It raises `UnsupportedError` if frames
        are not in order, if images for a second pass need more than 2 GiB, or if the topology lacks
        bonds or masses for "tor". A warning names frames that ``on_error="skip"`` leaves out,
        because an atom may move by more than half a cell in the meantime.

    Raises
    ------
    ValueError
        An unknown `scheme`.

    Examples
    --------
    >>> from paceline.transform import nojump
    >>> nojump("name OW").parameters()
    "nojump('name OW')"
    >>> nojump(scheme="tor").parameters()
    'nojump(scheme=tor)'
    """
    one_of("scheme", scheme, "lattice", "tor")
    return _NoJump(atomgroup) if scheme == "lattice" else _NoJumpOfMolecules(atomgroup)


@dataclass(frozen=True)
class _Center(Transform):
    atomgroup: Selected
    weights: str | None
    point: tuple[float, ...] | None
    wrap: bool

    def atoms(self, wanted: np.ndarray, universe: System) -> np.ndarray:
        return sorted_unique(wanted, select(self.atomgroup, universe, "center").indices)

    def prepare(
        self, atoms: np.ndarray, universe: System, before: Sequence[WorkerTransform]
    ) -> WorkerTransform:
        group = select(self.atomgroup, universe, "center")
        columns = np.searchsorted(atoms, group.indices)
        masses = None if self.weights is None else masses_of(group, "center")
        return CoreTransform("center", len(atoms), columns, masses, self.point, self.wrap)

    def whole_atoms(self, universe: System) -> np.ndarray:
        return select(self.atomgroup, universe, "center").indices

    def parameters(self) -> str:
        options = {"weights": self.weights, "point": self.point, "wrap": self.wrap or None}
        return describe("center", self.atomgroup, **options)


@dataclass(frozen=True)
class _Wrap(Transform):
    atomgroup: Selected | None
    compound: str
    together: Selected | None = None
    breaks = True

    def atoms(self, wanted: np.ndarray, universe: System) -> np.ndarray:
        members, compounds = self._compounds(universe)
        return sorted_unique(wanted, with_any(members, compounds, wanted))

    def prepare(
        self, atoms: np.ndarray, universe: System, before: Sequence[WorkerTransform]
    ) -> WorkerTransform:
        members, compounds = self._compounds(universe)
        kept = np.isin(members, with_all(members, compounds, atoms))
        members, compounds = members[kept], compounds[kept]
        order = np.argsort(compounds, kind="stable")
        members = members[order]
        _, sizes = np.unique(compounds, return_counts=True)
        masses = None
        if (sizes > 1).any():
            masses = masses_of(universe.atoms[members], "wrap")
            # The centre of a lone virtual site is its position, although its mass is 0.
            masses[np.repeat(sizes, sizes) == 1] = 1.0
        columns = np.searchsorted(atoms, members)
        return CoreTransform("wrap", len(atoms), columns, sizes.astype(np.int64), masses)

    def _compounds(self, universe: System) -> tuple[np.ndarray, np.ndarray]:
        """Find the atoms to wrap, and the compound of each atom."""
        group = universe.atoms
        if self.atomgroup is not None:
            group = select(self.atomgroup, universe, "wrap").unique
        members = group.indices
        if self.compound == "atoms":
            return members, members
        if self.compound == "group":
            return members, np.zeros_like(members)
        if self.together is not None:
            bonds = molecular_bonds_of(universe, "wrap")
            contacts = contacts_between(universe, bonds, self.together)
            return members, bonds.with_pairs(contacts).fragments[members]
        return members, compound_of_atoms(group, self.compound, "wrap")

    def parameters(self) -> str:
        together = self.together
        if together is not None and not isinstance(together, str):
            together = describe("atoms", together)
        return describe("wrap", self.atomgroup, compound=self.compound, together=together)


@dataclass(frozen=True)
class _NoJump(Transform):
    atomgroup: Selected | None
    scans = True

    def atoms(self, wanted: np.ndarray, universe: System) -> np.ndarray:
        return wanted

    def prepare(
        self, atoms: np.ndarray, universe: System, before: Sequence[WorkerTransform]
    ) -> WorkerTransform:
        _check_first(before)
        followed = np.arange(len(atoms))
        if self.atomgroup is not None:
            group = select(self.atomgroup, universe, "nojump")
            followed = np.flatnonzero(np.isin(atoms, group.indices))
        return CoreNoJump(len(atoms), followed)

    def parameters(self) -> str:
        return describe("nojump", self.atomgroup)


def _check_first(before: Sequence[WorkerTransform]) -> None:
    if any(one.scans for one in before):
        raise UnsupportedError("nojump is given twice: once is enough, for all atoms")


@dataclass(frozen=True)
class _NoJumpOfMolecules(Transform):
    atomgroup: Selected | None
    scans = True

    def atoms(self, wanted: np.ndarray, universe: System) -> np.ndarray:
        members, molecules = self._members(universe)
        return sorted_unique(wanted, with_any(members, molecules[members], wanted))

    def prepare(
        self, atoms: np.ndarray, universe: System, before: Sequence[WorkerTransform]
    ) -> WorkerTransform:
        _check_first(before)
        members, molecules = self._members(universe)
        members = with_all(members, molecules[members], atoms)
        members = members[np.argsort(molecules[members], kind="stable")]
        _, firsts = np.unique(molecules[members], return_index=True)
        masses = masses_of(universe.atoms[members], "nojump by tor")
        total = np.add.reduceat(masses, firsts)
        if not (total > 0).all():
            first = universe.atoms[members[firsts[np.argmin(total > 0)]]]
            raise SelectionError(
                f"nojump by tor: the molecule of {name_atom(first)} has no mass, so no center; "
                f"choose the other molecules by a selection{advice_on_sites(universe)}"
            )
        weights = masses / np.repeat(total, np.diff(firsts, append=len(members)))
        return CoreSteps(len(atoms), np.searchsorted(atoms, members), weights, firsts)

    def _members(self, universe: System) -> tuple[np.ndarray, np.ndarray]:
        """Find the atoms of all tracked molecules, and the molecule of every atom."""
        molecules = molecular_bonds_of(universe, "nojump by tor").fragments
        return molecules_with(universe, self.atomgroup, molecules, "nojump"), molecules

    def parameters(self) -> str:
        return describe("nojump", self.atomgroup, scheme="tor")
