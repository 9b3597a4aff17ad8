"""Apply transformations in order, to the blocks of a run and to single frames."""

import itertools
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from types import FunctionType
from typing import TYPE_CHECKING, cast

import numpy as np

from paceline._util.sorted_unique import sorted_unique
from paceline.block import cell_of
from paceline.contract.system_interface import (
    Atoms,
    Frames,
    System,
    positions_in,
)
from paceline.contract.transform_interface import (
    Follower,
    Transform,
    WorkerScan,
    WorkerTransform,
    advice_without_cell,
    find_scan,
)
from paceline.errors import (
    DamagedFileError,
    MissingDataError,
    TransformError,
)

if TYPE_CHECKING:
    from paceline.contract.analysis import Analysis


#: Function of positions and cells that transforms the positions of one frame in place. It returns
#: the rows that it could not transform, with reasons.
_Step = Callable[[np.ndarray, np.ndarray], list[tuple[int, str]]]


def check_transforms(transforms: object) -> None:
    """Raise `TypeError` if the argument is not a sequence of transformations."""
    if isinstance(transforms, str) or not isinstance(transforms, Sequence):
        raise TypeError("transforms must be a list of transformations, such as [unwrap()]")
    for one in transforms:
        if isinstance(one, Transform):
            continue
        named = one if isinstance(one, FunctionType | type) else type(one)
        name, module = repr(one) if named is not one else named.__qualname__, named.__module__
        advice = ""
        if module.startswith("paceline.transform"):
            advice = f": call it, as {name}()"
        elif module.startswith("MDAnalysis."):
            advice = "; add MDAnalysis's transformations to the trajectory (add_transformations)"
        raise TypeError(f"transforms must be those of paceline.transform, not {name}{advice}")


class TransformsOfEach:
    """Transformations of each analysis, for a run in which analyses have different ones."""

    def __init__(self, of_each: "Sequence[tuple[Analysis, Sequence[Transform]]]"):
        self._of_each = {id(analysis): list(own) for analysis, own in of_each}

    def of(self, analysis: "Analysis") -> Sequence[Transform]:
        """Return the transformations of an analysis."""
        return self._of_each[id(analysis)]


def transforms_of(
    transforms: "Sequence[Transform] | TransformsOfEach", analysis: "Analysis"
) -> Sequence[Transform]:
    """Return the transformations of an analysis; a sequence applies to all analyses of the run."""
    return transforms.of(analysis) if isinstance(transforms, TransformsOfEach) else transforms


def prepare_transforms(
    transforms: Sequence[Transform], wanted: np.ndarray, universe: System
) -> tuple[np.ndarray, list[WorkerTransform]]:
    """Create the worker parts of transformations, in order of application.

    Returns the indices of all atoms that must be decoded to transform the atoms `wanted`, and the
    worker parts. `wanted` and the returned indices are increasing.
    """
    atoms = wanted
    for transform in reversed(transforms):
        atoms = transform.atoms(atoms, universe)
    prepared: list[WorkerTransform] = []
    for transform in transforms:
        prepared.append(transform.prepare(atoms, universe, tuple(prepared)))
    return atoms, prepared


def reference_positions(
    atomgroup: Atoms,
    frame: int,
    transforms: Sequence[Transform] = (),
    *,
    skip_damaged: bool = False,
) -> np.ndarray:
    """Read transformed positions of a group in one frame; the current frame stays the same.

    Returns float32, shape (n_atoms, 3), Å. See `read_frame` for `skip_damaged`. Raises `IndexError`
    for a frame that does not exist, and `TransformError` for a frame that cannot be transformed.
    """
    universe, indices = atomgroup.universe, atomgroup.indices
    n_frames = universe.trajectory.n_frames
    if not -n_frames <= frame < n_frames:
        raise IndexError(f"reference frame {frame}: the trajectory has {n_frames} frames")
    frame %= n_frames
    atoms, prepared = prepare_transforms(transforms, sorted_unique(indices), universe)
    positions = read_frame(universe, frame, atoms, prepared, skip_damaged=skip_damaged)
    return positions[np.searchsorted(atoms, indices)]


def frames_until(reference: Atoms, frame: int, universe: System) -> int:
    """Return the number of frames that a trajectory must have to contain the frame `frame`.

    Return 1 if the reference is in the trajectory of another system, so that the trajectory of
    `universe` needs no particular frame.
    """
    if reference.universe is not universe:
        return 1
    return frame + 1 if frame >= 0 else -frame


def read_frame(
    universe: System,
    frame: int,
    atoms: np.ndarray,
    before: Sequence[WorkerTransform],
    *,
    skip_damaged: bool = False,
) -> np.ndarray:
    """Read positions in one frame, and transform them by the worker parts `before`.

    The current frame of the trajectory does not change. If a transformation tracks atoms from frame
    to frame, all earlier frames are read too. With `skip_damaged`, unreadable earlier frames are
    skipped, as in a run. Returns float32, shape (n_atoms, 3), Å. Raises `TransformError` if the
    frame cannot be transformed.
    """
    trajectory = universe.trajectory
    current = trajectory.ts.frame
    place = find_scan(before)
    steps: list[_Step] = [one.apply for one in before]
    try:
        if place is not None:
            steps[place] = _step_of(cast(WorkerScan, before[place]).follower(skip_damaged))
            for number in range(frame):
                try:
                    _read_transformed(trajectory, number, atoms, steps[: place + 1], frame)
                except (DamagedFileError, MissingDataError, TransformError):
                    if not skip_damaged:
                        raise
        return _read_transformed(trajectory, frame, atoms, steps, frame)
    finally:
        if trajectory.ts.frame != current:
            trajectory[current]


def _step_of(follower: Follower) -> _Step:
    """Create a function that transforms one frame by a follower; call it for frames in order."""
    turns = itertools.count()

    def move_on(positions: np.ndarray, cells: np.ndarray) -> list[tuple[int, str]]:
        return follower.move_on(next(turns), positions, cells) or []

    return move_on


def _read_transformed(
    trajectory: Frames, number: int, atoms: np.ndarray, steps: Sequence[_Step], reference: int
) -> np.ndarray:
    """Read and transform positions in the reference frame, or in a frame before it."""
    trajectory[number]
    check_positions(trajectory, f"{'a' if number == reference else 'the way to a'} reference")
    positions = positions_in(trajectory, atoms)[np.newaxis]
    cells = cell_of(trajectory)
    for step in steps:
        for _, reason in step(positions, cells):
            where = "" if number == reference else f"on the way to it, in frame {number}, "
            raise TransformError(
                f"frame {reference} cannot be the reference: {where}{reason}"
                f"{advice_without_cell(reason) or '; choose another reference'}"
            )
    return positions[0]


def first_positions(
    atomgroup: Atoms, frames: np.ndarray, transforms: Sequence[Transform], skip_damaged: bool
) -> np.ndarray:
    """Return transformed positions of a group in the first of `frames`, float64, Å.

    With `skip_damaged`, frames that cannot be read or transformed are skipped.
    """
    read = partial(reference_positions, atomgroup, transforms=transforms, skip_damaged=skip_damaged)
    for frame in frames[:-1].tolist() if skip_damaged else []:
        with suppress(DamagedFileError, TransformError):
            return read(frame).astype(np.float64)
    return read(int(frames[-1 if skip_damaged else 0])).astype(np.float64)


def check_positions(trajectory: Frames, what: str) -> None:
    """Raise `MissingDataError` if the current frame lacks positions, which `what` needs."""
    ts = trajectory.ts
    if not ts.has_positions:
        raise MissingDataError(
            f"{trajectory.filename}: frame {ts.frame} has no positions, which {what} needs: use a "
            "file that contains positions"
        )
