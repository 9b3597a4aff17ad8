"""Interfaces and common functions of transformations: selections, masses, references."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeGuard, cast

import numpy as np

from paceline import _core
from paceline._util.arguments import check_selection, one_of
from paceline._util.sorting import sorted_unique
from paceline.block import cell_of
from paceline.contract.atoms import (
    Atoms,
    Frames,
    Selected,
    System,
    UpdatingAtoms,
    attribute_of,
    has_attribute,
    topology_attribute_of,
)
from paceline.contract.transforms import Follower, Transform, WorkerScan, WorkerTransform
from paceline.errors import (
    DamagedFileError,
    MissingDataError,
    SelectionError,
    TransformError,
    UnsupportedError,
    warn,
    with_script_advice,
)
from paceline.performance.number_format import joined, many
from paceline.transform.bond_lists import give_bonds_to_select

if TYPE_CHECKING:
    from paceline.contract.analysis import Analysis

#: Function that transforms the positions of one frame in place: positions, cells.
_Step = Callable[[np.ndarray, np.ndarray], list[tuple[int, str]]]
#: Names of massless virtual sites in water models of four or five sites.
MASSLESS = ("MW", "EP", "LP", "OM")


def check_transforms(transforms: object) -> None:
    """Raise `TypeError` for anything but a sequence of transformations."""
    if isinstance(transforms, str) or not isinstance(transforms, Sequence):
        raise TypeError("transforms must be a list of transformations, such as [unwrap()]")
    for one in transforms:
        if isinstance(one, Transform):
            continue
        name = getattr(one, "__qualname__", repr(one))
        module = getattr(one, "__module__", "")
        advice = ""
        if module.startswith("paceline.transform"):
            advice = f": call it, as {name}()"
        elif module.startswith("MDAnalysis."):
            advice = "; add those of MDAnalysis to the trajectory (add_transformations)"
        raise TypeError(f"transforms must be those of paceline.transform, not {name}{advice}")


class TransformsOfEach:
    """Transformations of each analysis of a run, which may differ."""

    def __init__(self, of_each: "Sequence[tuple[Analysis, Sequence[Transform]]]"):
        self._of_each = {id(analysis): list(own) for analysis, own in of_each}

    def of(self, analysis: "Analysis") -> Sequence[Transform]:
        """Return the transformations of an analysis."""
        return self._of_each[id(analysis)]


def transforms_of(
    transforms: "Sequence[Transform] | TransformsOfEach", analysis: "Analysis"
) -> Sequence[Transform]:
    """Return an analysis's own transformations, or those of the run if it has none."""
    return transforms.of(analysis) if isinstance(transforms, TransformsOfEach) else transforms


def prepare_transforms(
    transforms: Sequence[Transform], wanted: np.ndarray, universe: System
) -> tuple[np.ndarray, list[WorkerTransform]]:
    """Make the worker parts of transformations, applied in this order.

    Returns the indices of all atoms that must be decoded to transform the atoms `wanted`, and the
    worker parts. Both arrays of indices are increasing.
    """
    atoms = wanted
    for transform in reversed(transforms):
        atoms = transform.atoms(atoms, universe)
    prepared: list[WorkerTransform] = []
    for transform in transforms:
        prepared.append(transform.prepare(atoms, universe, tuple(prepared)))
    return atoms, prepared


def find_scan(transforms: Sequence[Transform | WorkerTransform]) -> int | None:
    """Find the transformation that follows atoms from frame to frame; None without one."""
    return next((k for k, one in enumerate(transforms) if one.scans), None)


class CoreTransform(WorkerTransform):
    """Picklable transformation of the compiled module, `_core.Transform.kind(*arguments)`."""

    def __init__(self, kind: str, *arguments: object):
        self._made_of = kind, *arguments
        self._core: _core.Transform = getattr(_core.Transform, kind)(*arguments)

    def __reduce__(self) -> tuple[type, tuple]:
        return CoreTransform, self._made_of

    def apply(
        self, positions: np.ndarray, cells: np.ndarray, vectors: Sequence[np.ndarray] = ()
    ) -> list[tuple[int, str]]:
        """Change the positions of a block in place; rotate velocities and forces with them.

        Parameters
        ----------
        positions : numpy.ndarray of float32, shape (n_frames, n_atoms, 3)
            Positions, Å. Frames that contain only NaN are unchanged.
        cells : numpy.ndarray of float64, shape (n_frames, 19)
            As in `paceline.block.FrameBuffer`.
        vectors : sequence of numpy.ndarray of float32, shape (n_frames, n_atoms, 3)
            Velocities and forces, Å/ps and kJ/(mol·Å).

        Returns
        -------
        list of (int, str)
            Rows that cannot be transformed, and the reasons; their positions are set to NaN.
        """
        return self.apply_noting(positions, cells, vectors)[0]

    def apply_noting(
        self, positions: np.ndarray, cells: np.ndarray, vectors: Sequence[np.ndarray] = ()
    ) -> tuple[list[tuple[int, str]], list[tuple[int, int, list[int], float]]]:
        """Change positions as `apply` does; also return the rows with bonds that are too long."""
        return self._core.apply(positions, cells, list(vectors))


def describe(name: str, atomgroup: Selected | None, **options: object) -> str:
    """Describe a call in one line for the provenance, without options that are None.

    Examples
    --------
    >>> describe("center", "protein", weights="mass", point=None)
    "center('protein', weights=mass)"
    """
    words = [f"{key}={value}" for key, value in options.items() if value is not None]
    if isinstance(atomgroup, str):
        words.insert(0, repr(atomgroup))
    elif atomgroup is not None:
        indices = atomgroup.atoms.indices
        words.insert(0, f"{len(indices)} atoms, indices {indices.min()} to {indices.max()}")
    return f"{name}({', '.join(words)})"


def select(atomgroup: Selected, universe: System, name: str) -> Atoms:
    """Select the atoms of a transformation `name`: a group, or a selection of the Universe.

    Raises `SelectionError` for an empty selection, and `UnsupportedError` for atoms of another
    Universe or a group that updates itself.
    """
    if isinstance(atomgroup, str):
        check_selection(atomgroup)
        group = universe.select_atoms(atomgroup)
    else:
        check_static(atomgroup, name)
        group = atomgroup.atoms
    if len(group) == 0:
        raise SelectionError(f"{name}: no atoms match {atomgroup!r}")
    if group.universe is not universe:
        raise UnsupportedError(
            f"{name}: its atoms belong to another Universe than the analysis; "
            "give a selection, as text"
        )
    return group


def updates_itself(atomgroup: object) -> TypeGuard[UpdatingAtoms]:
    """True for an updating group; only such groups have the attribute `is_uptodate`."""
    return hasattr(atomgroup, "is_uptodate")


def check_static(atomgroup: object, name: str, instead: str = "") -> None:
    """Raise `UnsupportedError` for a group that updates itself, if atoms must stay the same.

    `instead` names a function that accepts such groups. Raises `TypeError` for an object that is
    not a group.
    """
    if not has_attribute(atomgroup, "atoms"):
        raise TypeError(f"expected an AtomGroup or a Universe, found {atomgroup!r}")
    if updates_itself(atomgroup):
        instead = instead or "write a function for paceline.TimeSeries or Reduce, which find"
        error = UnsupportedError(
            f"{name}: an UpdatingAtomGroup changes from frame to frame, and the same atoms are "
            "needed in each"
        )
        advice = f": give a fixed selection (updating=False), or {instead} its atoms anew"
        raise with_script_advice(error, advice)


def check_not_empty(atoms: Atoms, what: str) -> None:
    """Raise `SelectionError` for an empty group."""
    if len(atoms) == 0:
        raise SelectionError(f"{what} holds no atoms")


def check_positions(trajectory: Frames, what: str) -> None:
    """Raise `MissingDataError` if the present frame has no positions, which `what` needs."""
    ts = trajectory.ts
    if not ts.has_positions:
        raise MissingDataError(
            f"{trajectory.filename}: frame {ts.frame} has no positions, which {what} needs: give a "
            "file that holds them"
        )


def known_weights(weights: str | None) -> str | None:
    """Raise `ValueError` unless weights are None or "mass"."""
    one_of("weights", weights, None, "mass")
    return weights


def check_masses(
    mobile: Atoms, fixed: Atoms, tolerance: float, name: str, advice: str = ""
) -> None:
    """Raise `SelectionError` if known masses of corresponding atoms differ too much."""
    masses, others = attribute_of(mobile, "masses"), attribute_of(fixed, "masses")
    if masses is None or others is None:
        return
    differing = np.flatnonzero(np.abs(masses - others) > tolerance)
    if len(differing):
        first = differing[0]
        error = SelectionError(
            f"{name}: {len(differing)} pairs of atoms differ in mass by more than {tolerance} u, "
            f"the first is {mobile[first]} ({mobile[first].mass:.3f} u) and "
            f"{fixed[first]} ({fixed[first].mass:.3f} u) of the reference"
        )
        raise with_script_advice(error, advice)


def masses_of(group: Atoms, name: str) -> np.ndarray:
    """Return the masses of atoms, u; raise `UnsupportedError` if the topology has none.

    Warn of masses that MDAnalysis could not guess and has set to 0.
    """
    if (known := attribute_of(group, "masses")) is None:
        raise UnsupportedError(f"{name} needs masses, and the topology has none")
    masses: np.ndarray = known.astype(np.float64)
    attribute = topology_attribute_of(group.universe, "masses")
    if attribute is not None and attribute.is_guessed and not masses.all():
        # MDAnalysis guesses masses from one of these attributes.
        found = (attribute_of(group, kind) for kind in ("names", "types", "elements"))
        labels = next(one for one in found if one is not None)
        unknown = [str(one) for one in labels[masses == 0] if not str(one).startswith(MASSLESS)]
        if unknown:
            warn(
                f"{name} needs masses, and those of {many(len(unknown), 'atom')}, such as "
                f"{joined(list(dict.fromkeys(unknown))[:3])}, are not known: they are 0, as if "
                "these atoms were not there; take a topology that has masses (TPR, PSF, PRMTOP, …)"
            )
    return masses


def reference_positions(
    atomgroup: Atoms,
    frame: int,
    transforms: Sequence[Transform] = (),
    *,
    skip_damaged: bool = False,
) -> np.ndarray:
    """Read positions of a group in one frame, after transformations; the trajectory does not move.

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


def read_frame(
    universe: System,
    frame: int,
    atoms: np.ndarray,
    before: Sequence[WorkerTransform],
    *,
    skip_damaged: bool = False,
) -> np.ndarray:
    """Read positions in one frame, after transformations that are prepared for these atoms.

    The present frame of the trajectory is unchanged. If a transformation follows atoms from frame
    to frame, all earlier frames are read too. With `skip_damaged`, unreadable frames among them are
    skipped, as in a run. Returns float32, shape (n_atoms, 3), Å. Raises `TransformError` if the
    frame cannot be transformed.
    """
    trajectory = universe.trajectory
    current = trajectory.ts.frame
    place = find_scan(before)
    steps: list[_Step] = [one.apply for one in before]
    try:
        if place is not None:
            steps[place] = _moving_on(cast(WorkerScan, before[place]).follower(skip_damaged))
            for number in range(frame):
                try:
                    _transformed(trajectory, number, atoms, steps[: place + 1], frame)
                except (DamagedFileError, MissingDataError, TransformError):
                    if not skip_damaged:
                        raise
        return _transformed(trajectory, frame, atoms, steps, frame)
    finally:
        trajectory[current]


def _moving_on(follower: Follower) -> _Step:
    """Make the function that transforms the readable frames in order."""
    turns = itertools.count()

    def move_on(positions: np.ndarray, cells: np.ndarray) -> list[tuple[int, str]]:
        return follower.move_on(next(turns), positions, cells) or []

    return move_on


def _transformed(
    trajectory: Frames, number: int, atoms: np.ndarray, steps: Sequence[_Step], reference: int
) -> np.ndarray:
    """Read positions in one frame on the way to the reference frame, and transform them."""
    ts = trajectory[number]
    check_positions(trajectory, f"{'a' if number == reference else 'the way to a'} reference")
    positions = ts.positions[np.newaxis, atoms]
    cells = cell_of(trajectory)
    for step in steps:
        for _, reason in step(positions, cells):
            where = "" if number == reference else f"on the way to it, in frame {number}, "
            raise TransformError(
                f"frame {reference} cannot be the reference: {where}{reason}; give another "
                "reference"
            )
    return positions[0]


def first_positions(
    atomgroup: Atoms, frames: np.ndarray, transforms: Sequence[Transform], skip_damaged: bool
) -> np.ndarray:
    """Read positions in the first of some frames, float64, Å, after transformations.

    With `skip_damaged`, frames that cannot be read or transformed are skipped.
    """
    read = partial(reference_positions, atomgroup, transforms=transforms, skip_damaged=skip_damaged)
    for frame in frames[:-1].tolist() if skip_damaged else []:
        with suppress(DamagedFileError, TransformError):
            return read(frame).astype(np.float64)
    return read(int(frames[-1 if skip_damaged else 0])).astype(np.float64)


def pair_of_selections(select: object, what: str) -> tuple[Any, Any]:
    """Find the selections of the atoms that move, and of the reference atoms."""
    if isinstance(select, dict):
        if not {"mobile", "reference"} <= select.keys():
            raise KeyError(f"{what} as a dict needs the keys 'mobile' and 'reference'")
        return select["mobile"], select["reference"]
    if isinstance(select, tuple):
        if len(select) != 2:
            raise ValueError(f"{what} as a tuple is (mobile, reference), not {len(select)} items")
        return select
    if select is None or isinstance(select, str | list):
        return select, select
    raise TypeError(f"{what} must be a str, a tuple, a dict or None, not {select!r}")


def pair_of_groups(
    select: object, mobile: Atoms | System, reference: Atoms | System, what: str
) -> tuple[Atoms, Atoms]:
    """Select the atoms that move, and the reference atoms."""
    of_mobile, of_reference = pair_of_selections(select, what)
    # An empty reference is allowed here: the error below names both numbers.
    fixed = choose_atoms(reference, of_reference, what, least=0)
    chosen = choose_atoms(mobile, of_mobile, what), fixed
    if len(chosen[0]) != len(chosen[1]):
        raise SelectionError(
            f"{what}: {len(chosen[0])} atoms of {of_mobile!r} cannot be compared with "
            f"{len(chosen[1])} atoms of {of_reference!r} in the reference"
        )
    return chosen


def choose_atoms(
    group: Atoms | System, selection: str | list[str] | None, what: str, *, least: int = 1
) -> Atoms:
    """Select atoms of a group that does not update itself, for the argument `what`."""
    check_static(group, what)
    texts = [selection] if isinstance(selection, str) else selection
    atoms = group.atoms if texts is None else select_atoms(group, texts, what)
    if len(atoms) < least:
        nothing = "the group holds no atoms" if texts is None else f"no atoms match {selection!r}"
        raise SelectionError(f"{what}: {nothing}")
    return atoms


def select_atoms(
    group: Atoms | System, texts: list[str], what: str, *, updating: bool = False
) -> Atoms:
    """Select atoms by texts, for the argument `what`."""
    for text in texts:
        check_selection(text)
    give_bonds_to_select(group, *texts)
    with naming_lacks(what, *texts):
        return group.select_atoms(*texts, updating=updating)


@contextmanager
def naming_lacks(what: str, *texts: str) -> Iterator[None]:
    """Context that raises `SelectionError` for selections by attributes that the topology lacks."""
    try:
        yield
    except AttributeError as error:
        # MDAnalysis raises this error if a topology has no residue names, for example.
        raise SelectionError(
            f"{what}: {' and '.join(map(repr, texts))} needs an attribute that the topology lacks "
            f"({error}): select otherwise, such as all, or take another topology"
        ) from None


def relative_weights(atoms: Atoms, weights: object) -> np.ndarray | None:
    """Convert weights to numbers relative to their mean; None if all are equal."""
    if weights is None:
        return None
    if isinstance(weights, str):
        if weights != "mass":
            raise TypeError(f"weights must be None, 'mass' or an array, not {weights!r}")
        weights = masses_of(atoms, "weights='mass'")
    try:
        values = np.asarray(weights, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError("weights must be None, 'mass' or a 1D array of float") from error
    if values.shape != (len(atoms),):
        raise ValueError(
            f"weights must have one number for each of {len(atoms)} atoms, not shape {values.shape}"
        )
    if not (np.isfinite(values).all() and (values >= 0).all() and values.any()):
        raise ValueError("weights must be finite, none negative, and not all zero")
    return values / values.mean()
