"""Whether trajectories can stand one after another, and what becomes of their times."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from paceline.errors import UnsupportedError
from paceline.indexed import TrajectoryFile
from paceline.opening import warn

#: What the times of frames may be off by, in times between frames.
ROUNDING = 1e-3


def refuse_different(cores: Sequence[TrajectoryFile]) -> None:
    """Raise for files whose frames cannot stand one after the other.

    Parameters
    ----------
    cores : sequence of TrajectoryFile
        What is to be joined.

    Raises
    ------
    UnsupportedError
        They differ in more than their frames.
    """
    first = cores[0]
    for other in cores[1:]:
        pairs = zip(first.traits, other.traits, strict=False)
        differences = [f"{name} {one} and {two}" for (name, one), (_, two) in pairs if one != two]
        if differences:
            raise UnsupportedError(
                f"{first.path} and {other.path} cannot be joined: {'; '.join(differences)}"
            )


def warn_of_times(cores: Sequence[TrajectoryFile], output: Path) -> None:
    """Tell where files overlap in time, or where frames get other times than they had.

    Parameters
    ----------
    cores : sequence of TrajectoryFile
        What is joined, in this order.
    output : pathlib.Path
        The whole.
    """
    latest, source, n_before = -np.inf, "", 0
    for core in cores:
        if core.dt is not None:
            _warn_of_shift(core, cores[0], n_before, output)
        else:
            times, _ = core.times()
            repeated = int(np.count_nonzero(times <= latest))
            if repeated:
                warn(
                    f"{core.path}: {repeated} of {core.n_frames} frames are not later than "
                    f"{latest:g} ps, where {source} ends; all of them are kept"
                )
            end = np.fmax.reduce(times)
            if end > latest:
                latest, source = end, core.path
        n_before += core.n_frames


def _warn_of_shift(
    core: TrajectoryFile, first: TrajectoryFile, n_before: int, output: Path
) -> None:
    expected, found = first.first + n_before, core.first
    if abs(expected - found) > ROUNDING and core.dt is not None:
        warn(
            f"{core.path} begins at {found * core.dt:g} ps, and in {output} its first frame comes "
            f"at {expected * core.dt:g} ps: a DCD file has no times of its own for its frames"
        )
