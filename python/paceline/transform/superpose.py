"""Rigid-body superposition onto a reference."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from paceline._util.arguments import one_of
from paceline._util.sorted_unique import sorted_unique
from paceline.contract.run_info_and_descriptions import describe_atoms
from paceline.contract.system_interface import Atoms, Selected, System, trajectory_name
from paceline.contract.transform_interface import CoreTransform, Transform, WorkerTransform
from paceline.errors import SelectionError
from paceline.transform.apply_transforms import check_positions, read_frame
from paceline.transform.broken_reference import warn_of_broken_reference
from paceline.transform.compare_atom_names import warn_of_other_order
from paceline.transform.masses import masses_of
from paceline.transform.selections_and_weights import (
    check_masses,
    check_static,
    describe,
    known_weights,
    relative_weights,
    select,
)

#: Weights of atoms, shape (n_atoms,).
Weights = np.ndarray | list[float] | tuple[float, ...]

_NORMALS = {None: None, "yz": 0, "xz": 1, "xy": 2}


def fit(
    atomgroup: Selected,
    reference: Atoms | System | None = None,
    *,
    weights: str | Weights | None = None,
    rotation: bool = True,
    plane: str | None = None,
    tol_mass: float = 0.1,
) -> Transform:
    """Move all atoms as a rigid body, so that a group is superposed on its reference.

    Equivalent of `MDAnalysis.transformations.fit_rot_trans`, or of `fit_translation` without
    rotation. The rotation minimises the RMSD (QCP: Theobald 2005, Acta Cryst. A61, 478; Liu,
    Agrafiotis & Theobald 2010, J. Comput. Chem. 31, 1561). The group must be whole.

    Parameters
    ----------
    atomgroup : AtomGroup or str
        The group, or a selection of it.
    reference : AtomGroup or Universe, optional
        Reference with the same number of atoms. If `atomgroup` is a selection, it is applied to the
        reference, too. By default, the reference is the same group in the first frame of the
        trajectory. If the reference is in the analysed trajectory (its first frame, or the current
        frame of the given atoms), the transformations before this one are applied to it. Positions
        of another Universe are not transformed.
    weights : "mass" or array of float, shape (n_atoms,), optional
        Weight the atoms by mass, or by these numbers.
    rotation : bool
        If False, only move the centre of the group onto the centre of the reference.
    plane : {"xy", "yz", "xz"}, optional
        Move only in this plane, and rotate only about its normal. The angle is that of the best
        rotation about this axis.
    tol_mass : float
        Maximum mass difference of corresponding atoms, u.

    Returns
    -------
    Transform
        For `paceline.run(…, transforms=[…])`. The run raises `SelectionError` if the group and its
        reference do not correspond, and `TransformError` for a frame in which a position of the
        group is not finite.

    Raises
    ------
    ValueError
        The plane or the weights are unknown; in the run, the number of weights is wrong.

    Examples
    --------
    >>> from paceline.transform import fit
    >>> fit("name CA", weights="mass").parameters()
    "fit('name CA', reference=frame 0, weights=mass)"
    """
    one_of("plane", plane, *_NORMALS)
    if not isinstance(weights, np.ndarray | list | tuple):
        weights = known_weights(weights)
    return _Fit(atomgroup, reference, weights, rotation, plane, tol_mass)


@dataclass(frozen=True, eq=False)
class _Fit(Transform):
    atomgroup: Selected
    reference: Atoms | System | None
    weights: str | Weights | None
    rotation: bool
    plane: str | None
    tol_mass: float

    @property
    def rotates(self) -> bool:
        return self.rotation

    def atoms(self, wanted: np.ndarray, universe: System) -> np.ndarray:
        mobile, fixed = self._groups(universe)
        wanted = sorted_unique(wanted, mobile.indices)
        return sorted_unique(wanted, fixed.indices) if fixed.universe is universe else wanted

    def prepare(
        self, atoms: np.ndarray, universe: System, before: Sequence[WorkerTransform]
    ) -> WorkerTransform:
        mobile, fixed = self._groups(universe)
        warn_of_other_order(mobile, fixed, "fit")
        if fixed.universe is universe:
            frame = 0 if self.reference is None else universe.trajectory.ts.frame
            positions = read_frame(universe, frame, atoms, before)
            positions = positions[np.searchsorted(atoms, fixed.indices)]
        else:
            check_positions(fixed.universe.trajectory, "a reference")
            warn_of_broken_reference(fixed, "fit")
            positions = fixed.positions
        return CoreTransform(
            "fit",
            len(atoms),
            np.searchsorted(atoms, mobile.indices),
            positions.astype(np.float64),
            self._weights_of(mobile),
            self.rotation,
            _NORMALS[self.plane],
        )

    def whole_atoms(self, universe: System) -> np.ndarray:
        return self._groups(universe)[0].indices

    def _weights_of(self, mobile: Atoms) -> np.ndarray | None:
        if isinstance(self.weights, str):
            return masses_of(mobile, "fit")
        return relative_weights(mobile, self.weights)

    def _groups(self, universe: System) -> tuple[Atoms, Atoms]:
        """Select the mobile atoms and the reference atoms."""
        mobile = fixed = select(self.atomgroup, universe, "fit")
        if self.reference is not None:
            check_static(self.reference, "fit")
            fixed = self.reference.atoms
            if isinstance(self.atomgroup, str):
                fixed = fixed.select_atoms(self.atomgroup)
        if len(mobile) != len(fixed):
            raise SelectionError(
                f"fit: {len(mobile)} atoms cannot be moved onto {len(fixed)} atoms of the reference"
            )
        if self.rotation and len(mobile) < 3:
            raise SelectionError(
                f"fit: {len(mobile)} atoms have no orientation; choose three or more, "
                "or rotation=False"
            )
        check_masses(mobile, fixed, self.tol_mass, "fit")
        return mobile, fixed

    def parameters(self) -> str:
        reference = "frame 0"
        if self.reference is not None:
            fixed = self.reference.atoms
            reference = f"{describe_atoms(fixed)} of {trajectory_name(fixed.universe)}"
        rotation = None if self.rotation else False
        weights = self.weights if isinstance(self.weights, str | None) else "given"
        options = {"weights": weights, "rotation": rotation, "plane": self.plane}
        return describe("fit", self.atomgroup, reference=reference, **options)
