"""Runs at several numbers of workers, summed up: speed-up, efficiency, spread. Pure."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from paceline.scaling.runs import ScalingRun

TOTAL, COMMAND = "t_total (s)", "t_command (s)"


@dataclass(frozen=True)
class Spread:
    """A mean, and how far single values are from it.

    Attributes
    ----------
    mean : float
        Of the values.
    sd : float
        Their standard deviation, that of a sample; NaN for one value.
    n : int
        Number of values.

    Examples
    --------
    >>> Spread.of([1.0, 2.0, 3.0])
    Spread(mean=2.0, sd=1.0, n=3)
    """

    mean: float
    sd: float
    n: int

    @classmethod
    def of(cls, values: Iterable[float]) -> Self:
        """Sum up values, of which there may be none.

        Parameters
        ----------
        values : iterable of float
            In any order.

        Returns
        -------
        Spread
        """
        values = list(values)
        mean = statistics.fmean(values) if values else math.nan
        sd = statistics.stdev(values) if len(values) > 1 else math.nan
        return cls(mean, sd, len(values))


@dataclass(frozen=True)
class Point:
    """All runs at one number of workers.

    Attributes
    ----------
    workers : int
        Their number.
    base : int
        The least number of workers that was measured, of which speed-ups are told.
    speed_up, efficiency : Spread
        Of the run.
    command_speed_up, command_efficiency : Spread
        Of the whole command: with the start of processes, imports and opening.
    columns : mapping of str to Spread
        Every column of the table, s or as its name says.
    """

    workers: int
    base: int
    speed_up: Spread
    efficiency: Spread
    command_speed_up: Spread
    command_efficiency: Spread
    columns: Mapping[str, Spread]


def points(runs: Sequence[ScalingRun]) -> list[Point]:
    """Sum up runs of one mode and backend.

    For strong scaling S(N) = t(1) / t(N), for weak scaling N t(1) / t(N); E(N) = S(N) / N
    (Khoshlessan et al. 2020, Eqs. 2 and 3). Where one worker was not measured, the least number n
    takes its place, with S(n) = n. They are means over repeats, in each of which the runs were
    done in turn: noise that lasts longer than they do is in both times alike.

    Parameters
    ----------
    runs : sequence of ScalingRun
        In any order; repeats may be incomplete.

    Returns
    -------
    list of Point
        By number of workers.

    Examples
    --------
    >>> runs = [ScalingRun("strong", "threads", n, 1, {"t_total (s)": t, "t_command (s)": t}, "")
    ...     for n, t in [(1, 8.0), (2, 5.0)]]
    >>> [(point.workers, point.speed_up.mean, point.efficiency.mean) for point in points(runs)]
    [(1, 1.0, 1.0), (2, 1.6, 0.8)]
    """
    counts = sorted({run.workers for run in runs})
    return [_point(n, counts[0], runs) for n in counts]


def _point(n: int, base: int, runs: Sequence[ScalingRun]) -> Point:
    here = [run for run in runs if run.workers == n]
    run_ups, command_ups = (_speed_ups(n, base, runs, column) for column in (TOTAL, COMMAND))
    return Point(
        n,
        base,
        Spread.of(run_ups),
        Spread.of(one / n for one in run_ups),
        Spread.of(command_ups),
        Spread.of(one / n for one in command_ups),
        {name: Spread.of(run.values[name] for run in here) for name in here[0].values},
    )


def _speed_ups(n: int, base: int, runs: Sequence[ScalingRun], column: str) -> list[float]:
    """Of each repeat that has both."""
    times = {(run.workers, run.repeat): run.values[column] for run in runs}
    repeats = sorted({run.repeat for run in runs})
    # As much more work as there are more workers, where each has its own.
    ideal = n if runs[0].mode == "weak" else base
    return [
        ideal * times[base, one] / times[n, one]
        for one in repeats
        if (base, one) in times and (n, one) in times
    ]
