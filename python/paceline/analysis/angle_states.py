"""States of dihedral angles: populations with 95 % intervals, transitions and histograms."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from paceline.analysis.table import States, Table, part_labels, titles_of_limits
from paceline.analysis.uncertainty import limits_of_fractions, mean_of_series
from paceline.performance.number_format import many

if TYPE_CHECKING:
    from paceline.analysis.base import AnalysisBase

#: States of an angle with a period of 360°.
STATES = ("gauche+", "trans", "gauche-")
#: States of a folded angle, whose period is 180°, such as χ2 of phenylalanine.
FOLDED_STATES = ("perpendicular", "planar")
ALL_STATES = (*STATES, *FOLDED_STATES)
#: Width of a state of an angle with a period of 360°, degrees.
WIDTH = 120
#: Range of the state "perpendicular" of folded angles, whose period is 180°, degrees.
PERPENDICULAR = (30, 150)
#: Width of the bins of a histogram, degrees.
BIN = 5
#: Maximum number of panels of a figure; more groups of angles are drawn as one map.
MOST_PANELS = 6
ANGLE, FRACTION = "angle (°)", f"fraction in {BIN}°"


@dataclass(frozen=True)
class AngleStates:
    """States of dihedral angles in all frames of a run.

    Attributes
    ----------
    angles : numpy.ndarray of float64, shape (n_frames, n_angles)
        Angles in degrees, from 0 to less than 360, or to less than 180 if folded.
    folded : numpy.ndarray of bool, shape (n_angles,)
        True for angles that are counted from 0 to 180°.
    populations : numpy.ndarray of float64, shape (n_angles, 5)
        Fraction of frames in each of `ALL_STATES`.
    intervals : numpy.ndarray of float64, shape (n_angles, 5, 2)
        Lower and upper limits of the 95 % intervals of these populations.
    independent : numpy.ndarray of float64, shape (n_angles,)
        Number of independent values of a series that is 1 in frames of a state and 0 in the others:
        the minimum over states. NaN if the state never changes, or if frames are not in the order
        of time.
    converged : numpy.ndarray of bool, shape (n_angles,)
        False if the population of a state is not converged.
    transitions : numpy.ndarray of int64, shape (n_angles,)
        Number of changes of the state from one frame to the next.
    rates : numpy.ndarray of float64, shape (n_angles,)
        Transitions per time, in `rate_unit`.
    rate_unit : str
        "1/ns", or "1/frame" if times are unknown.
    histogram : numpy.ndarray of float64, shape (72, n_angles)
        Fraction of frames in each bin of 5°; NaN from 180° on if folded.
    n_lost : int
        Number of angles that are NaN in at least one of the frames that were not left out.
    """

    angles: np.ndarray
    folded: np.ndarray
    populations: np.ndarray
    intervals: np.ndarray
    independent: np.ndarray
    converged: np.ndarray
    transitions: np.ndarray
    rates: np.ndarray
    rate_unit: str
    histogram: np.ndarray
    n_lost: int

    @property
    def shown(self) -> list[int]:
        """Indices in `ALL_STATES` of the states that these angles, folded or not, can have."""
        return [*range(3)] * bool((~self.folded).any()) + [3, 4] * bool(self.folded.any())

    def columns(self) -> dict[str, np.ndarray]:
        """Return the columns of a table with one row per angle."""
        found = {ALL_STATES[k]: self.populations[:, k] for k in self.shown}
        for k in self.shown:
            found |= zip(titles_of_limits(ALL_STATES[k]), self.intervals[:, k].T, strict=True)
        found["transitions"] = self.transitions
        found[f"transition rate ({self.rate_unit})"] = self.rates
        found["independent values"] = self.independent
        return found

    def table(
        self, of_rows: dict[str, np.ndarray], drawn: Table, keys: Sequence[str], left_out: str = ""
    ) -> Table:
        """Make a table of the angles, whose first columns are `of_rows`; `drawn` is the figure."""
        shown = [ALL_STATES[k] for k in self.shown]
        return Table(
            {**of_rows, **self.columns()},
            keys[0],
            {name: name for name in shown},
            "population",
            drawn,
            keys=keys,
            bands={name: titles_of_limits(name) for name in shown},
            counts=["transitions"],
            notes=self._notes(left_out),
        )

    def _notes(self, left_out: str) -> dict[str, str]:
        """Describe how many angles change their state, and how many are not converged."""
        n_angles, n_moving = len(self.folded), int(np.count_nonzero(self.transitions))
        n_poor = int(np.count_nonzero(~self.converged))
        text = f"{n_moving} of {many(n_angles, 'angle')} change their state"
        if n_poor:
            text += f", {n_poor} of them are not converged"
        if self.folded.any():
            count = np.count_nonzero(self.folded)
            text += f"; {count} of symmetric groups are counted from 0 to 180°"
        if self.n_lost:
            text += f"; {self.n_lost} are NaN in some frames, and use only the other frames"
        return {"dihedral angles": text} | ({"left out": left_out} if left_out else {})

    def figure(
        self, groups: Sequence[str], names: Sequence[str], numbers: np.ndarray, label: str
    ) -> Table:
        """Draw histograms: one panel for each group of angles, or a map if there are many groups.

        `groups` and `names` label each angle, such as "LYS 13" and "χ1". A map has the groups along
        its y axis with the title `label`; if there are too many names, it shows their `numbers`.
        """
        n_bins = len(self.histogram)
        titles = [f"{name} {group}".strip() for name, group in zip(names, groups, strict=True)]
        several = [*dict.fromkeys(groups)]
        panels = []
        if len(several) <= MOST_PANELS:
            # Lines continue across the periodic boundary.
            bins = np.arange(-1, n_bins + 1)
            columns = {ANGLE: (bins + 0.5) * BIN}
            for title, column, folded in zip(titles, self.histogram.T, self.folded, strict=True):
                turn = n_bins // 2 if folded else n_bins
                columns[title] = np.where(bins > turn, np.nan, column[bins % turn])
            for group in several:
                y = {t: n or t for t, n, g in zip(titles, names, groups, strict=True) if g == group}
                panels.append(Table(columns, ANGLE, y, f"{FRACTION}, {group}"))
            return Table(columns, ANGLE, {one: one for one in titles}, FRACTION, panels=panels)
        columns = {ANGLE: (np.arange(n_bins) + 0.5) * BIN}
        for name in dict.fromkeys(names):
            rows = [k for k, one in enumerate(names) if one == name]
            parts = part_labels([groups[row] for row in rows], numbers[rows])
            of_name = f"{label}, {name}" if name else label
            states = States(
                self.histogram[:, rows], parts, of_name, bar=FRACTION, colours="Blues", low=0
            )
            panels.append(Table(columns, ANGLE, {}, FRACTION, states=states))
        return Table(columns, ANGLE, {}, FRACTION, panels=panels)


def states_of(analysis: "AnalysisBase", angles: np.ndarray, folded: np.ndarray) -> AngleStates:
    """Find the states of angles in degrees, shape (n_frames, n_angles).

    Angles marked in `folded` are equivalent after rotation by 180°.
    """
    n_angles = angles.shape[1]
    turn = np.where(folded, 180.0, 360.0)
    angles = angles % turn
    angles[angles >= turn] = 0  # rounding of a small negative angle
    moments = analysis.times / 1000 if analysis.times_known else analysis.frames.astype(float)
    known = moments[~np.isnan(moments)]
    is_ordered = bool((np.diff(known) > 0).all())
    unordered = (
        f"{analysis.name}: frames are not in the order of time: populations have no intervals, and "
        "transitions are not counted"
    )
    analysis.remark("order", None if is_ordered else unordered)
    populations = np.full((n_angles, len(ALL_STATES)), np.nan)
    intervals = np.full((*populations.shape, 2), np.nan)
    independent, rates = np.full((2, n_angles), np.nan)
    converged = np.ones(n_angles, dtype=bool)
    transitions = np.zeros(n_angles, np.int64)
    n_bins = 360 // BIN
    histogram = np.full((n_bins, n_angles), np.nan)
    for k in range(n_angles):
        rows = np.flatnonzero(~np.isnan(angles[:, k]))
        column = angles[rows, k]
        bins = n_bins // 2 if folded[k] else n_bins
        counts = np.bincount((column // BIN).astype(np.int64), minlength=bins)
        histogram[:bins, k] = counts / (len(rows) or np.nan)
        numbers = _numbers(column, bool(folded[k]))
        states = [3, 4] if folded[k] else [0, 1, 2]
        counts = np.bincount(numbers, minlength=len(ALL_STATES))[states]
        populations[k, states] = counts / (len(rows) or np.nan)
        there = [state for state, count in zip(states, counts, strict=True) if count]
        if is_ordered and len(there) > 1:
            # For two states, the error of one is enough: their populations add up to 1, so that
            # their intervals have the same width.
            some = there[:1] if len(there) == 2 else there
            found = [mean_of_series(numbers == state, blocks=False) for state in some]
            half = np.array([one.interval for one in found])
            intervals[k, there] = limits_of_fractions(populations[k, there], half)
            independent[k] = min(one.n_independent for one in found)
            converged[k] = all(one.converged for one in found)
        if is_ordered:
            transitions[k] = np.count_nonzero(np.diff(numbers))
            if len(rows) > 1:
                rates[k] = transitions[k] / (moments[rows[-1]] - moments[rows[0]])
    unit = "1/ns" if analysis.times_known else "1/frame"
    return AngleStates(
        *(angles, folded, populations, intervals, independent, converged, transitions, rates, unit),
        histogram=histogram,
        n_lost=int(np.isnan(angles[~analysis.left_out]).any(axis=0).sum()),
    )


def _numbers(angles: np.ndarray, is_folded: bool) -> np.ndarray:
    """Index in `ALL_STATES` of the state of each angle."""
    if is_folded:
        low, high = PERPENDICULAR
        return np.where((angles >= low) & (angles < high), 3, 4)
    return (angles // WIDTH).astype(np.int64)
