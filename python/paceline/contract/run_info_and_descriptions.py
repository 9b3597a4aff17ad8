"""Options of a run over one trajectory, and facts about its frames."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from paceline.contract.system_interface import Atoms
from paceline.contract.time_units import TIME_UNITS, readable_unit
from paceline.contract.transform_interface import Transform


@dataclass(frozen=True)
class RunContext:
    """Options of a run that change the frames or positions that an analysis receives."""

    #: Transformations, in order of application.
    transforms: Sequence[Transform] = ()
    #: True if unreadable frames are skipped.
    skip_damaged: bool = False


@dataclass(frozen=True)
class RunInfo:
    """Facts about the frames of a run; the engine replaces the object as it learns more facts."""

    #: Frame numbers, int64, shape (n_frames,).
    frames: np.ndarray
    #: Description of files and transformations, with warnings about them.
    provenance: dict[str, Any]
    #: Times of the frames, ps, float64, shape (n_frames,); NaN for skipped frames. None until a
    #: pass has read the frames.
    times: Any = None
    #: Frame number and reason of each frame that was skipped so far.
    damaged: list[tuple[int, str]] = field(default_factory=list)
    #: Timings of the run; None until the run has ended.
    timings: Any = None

    def with_warnings(self, warnings: Sequence[str]) -> "RunInfo":
        """Copy the facts and add warnings to the provenance."""
        if not warnings:
            return self
        known = self.provenance.get("warnings")
        text = "; ".join([*([known] if known else []), *warnings])
        return replace(self, provenance=self.provenance | {"warnings": text})


#: `RunInfo` of an analysis that has not been run.
NO_RUN: Any = RunInfo(None, None, damaged=None)  # type: ignore[arg-type]
#: Names of the attributes that a run sets on an analysis.
RUN_ATTRIBUTES = tuple(one.name for one in fields(RunInfo))


def describe_atoms(atomgroup: Atoms) -> str:
    """Describe atoms in one line: their number, and their indices as ranges.

    If there are many ranges, the first ones are followed by a digest of all indices.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> describe_atoms(SimpleNamespace(indices=np.array([0, 1, 2, 7])))
    '4 atoms, indices 0-2 7'
    """
    indices = atomgroup.indices
    if len(indices) == 0:
        return "0 atoms"
    gaps = (indices[1:] != indices[:-1] + 1).nonzero()[0]
    firsts, lasts = indices[[0, *(gaps[:19] + 1)]], indices[[*gaps[:20], -1]][:20]
    pairs = zip(firsts.tolist(), lasts.tolist(), strict=True)
    text = " ".join(f"{first}-{last}" if last > first else f"{first}" for first, last in pairs)
    more = f" …, digest {_digest_of(indices)}" if len(gaps) >= 20 else ""
    return f"{len(indices)} atoms, indices {text}{more}"


def describe_selection(select: object, atoms: Atoms) -> str:
    """Describe the selection of some atoms; if "all" refers to a group, state its number of atoms.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> universe = SimpleNamespace(atoms=range(9))
    >>> describe_selection("all", SimpleNamespace(indices=[0, 1], universe=universe))
    'all of 2 given atoms'
    >>> describe_selection("name CA", SimpleNamespace(indices=[0, 1], universe=universe))
    'name CA'
    """
    if select is not None and select != "all":
        return f"{select}"
    n_atoms = len(atoms.indices)
    return f"all of {n_atoms} given atoms" if n_atoms < len(atoms.universe.atoms) else "all"


def _digest_of(numbers: np.ndarray) -> str:
    """Digest of whole numbers in their order, 16 hex digits."""
    return hashlib.sha256(np.asarray(numbers, "<i8").tobytes()).hexdigest()[:16]


def describe_frames(frames: np.ndarray, times: np.ndarray | None = None) -> str:
    """Describe frames in one line: number, first and last frame, and times, ps, if known.

    Examples
    --------
    >>> describe_frames(np.arange(0, 100, 10)), describe_frames(np.array([7, 3, 4]))
    ('10 frames, every 10th frame from 0 to 90', '3 frames from 7 to 4')
    >>> describe_frames(np.arange(98), np.arange(98) + 1.0)
    '98 frames, 1 to 98 ps, every frame from 0 to 97'
    """
    steps = np.unique(np.diff(frames))
    span = "" if times is None else describe_times(times)
    at = f", {span}" if span else ""
    if len(steps) == 0:
        return f"frame {frames[0]}{at}"
    ends = f"from {frames[0]} to {frames[-1]}"
    if len(steps) > 1 or steps[0] <= 0:
        return f"{len(frames)} frames {ends}{at}"
    each = "" if steps[0] == 1 else f" {_ordinal(steps[0])}"
    return f"{len(frames)} frames{at}, every{each} frame {ends}"


def describe_exactly(frames: np.ndarray, times: np.ndarray | None = None) -> str:
    """Describe frames as `describe_frames` does, and add a digest if their steps are not equal.

    Examples
    --------
    >>> describe_exactly(np.array([7, 3, 4]))
    '3 frames from 7 to 4, digest 8026fc4faab7932e'
    """
    text = describe_frames(frames, times)
    return text if ", every" in text or len(frames) == 1 else f"{text}, digest {_digest_of(frames)}"


def describe_times(times: np.ndarray) -> str:
    """Describe times, ps, by the earliest and the latest time; NaN is ignored.

    Examples
    --------
    >>> describe_times(np.array([np.nan, 0.9999999, 98])), describe_times(np.array([2.5]))
    ('1 to 98 ps', '2.5 ps')
    >>> describe_times(np.array([0, 250_000]))
    '0 to 250 ns'
    """
    known = times[~np.isnan(times)]
    if len(known) == 0:
        return ""
    unit = readable_unit(np.abs(known).max())
    ends = dict.fromkeys(f"{time / TIME_UNITS[unit]:.6g}" for time in (known.min(), known.max()))
    return f"{' to '.join(ends)} {unit}"


def _ordinal(number: int) -> str:
    """Return an ordinal number, such as "2nd"."""
    ends = {1: "st", 2: "nd", 3: "rd"}
    return f"{number}{'th' if number % 100 // 10 == 1 else ends.get(number % 10, 'th')}"
