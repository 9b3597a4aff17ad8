"""Sentences that describe a system, and the frames and times of a run."""

import numpy as np

from paceline._util.option_values_and_selections import LIPIDS, WATER_BEADS, WATER_OXYGENS
from paceline.contract.system_interface import System, has_attribute
from paceline.performance.number_format import joined, many

#: Maximum number of kinds of residues that are named.
MOST_KINDS = 6
#: Units of time: name, length in ps, and smallest time in ps for which the unit is used.
TIME_UNITS = (
    ("s", 1e12, 1e12),
    ("ms", 1e9, 1e9),
    ("µs", 1e6, 1e6),
    ("ns", 1e3, 1e4),
    ("ps", 1.0, 0.0),
)


def describe_system(universe: System) -> str:
    """Describe the molecules of a system, such as "a protein of 214 residues and 11,084 waters"."""
    residues = universe.residues
    rest = np.ones(len(residues), dtype=bool)
    parts = []
    for name, selection in (("protein", "protein"), ("nucleic acid", "nucleic")):
        found = _residues(universe, selection, rest)
        rest[found] = False
        if len(found):
            n_chains = len(np.unique(residues.segindices[found]))
            chains = f" in {n_chains:,} segments" if n_chains > 1 else ""
            parts.append(f"{_a(name)} of {many(len(found), 'residue')}{chains}")
    waters = (("water bead", WATER_BEADS), ("water", WATER_OXYGENS))
    for name, selection in (("lipid", LIPIDS), *waters):
        found = _residues(universe, selection, rest)
        rest[found] = False
        parts += [many(len(found), name)] if len(found) else []
    others = len(np.flatnonzero(rest))
    if parts and others and has_attribute(residues, "resnames"):
        names, counts = np.unique(residues.resnames[rest].astype(str), return_counts=True)
        order = np.argsort(-counts, kind="stable")
        parts += [f"{counts[k]:,} {names[k]}" for k in order[:MOST_KINDS]]
        more = counts[order[MOST_KINDS:]].sum()
        parts += [many(int(more), "other residue")] if more else []
    elif others:
        parts.append(many(others, "other residue" if parts else "residue"))
    return joined(parts)


def _a(noun: str) -> str:
    return f"a {noun}"


def _residues(universe: System, selection: str, among: np.ndarray) -> np.ndarray:
    """Indices of residues in the mask `among` that have atoms of a selection.

    The result is empty if the topology has no names.
    """
    try:
        found = np.unique(universe.select_atoms(selection).resindices)
    except AttributeError:
        return np.empty(0, dtype=np.int64)
    return found[among[found]]


def describe_span(frames: np.ndarray, times: np.ndarray | None) -> str:
    """Describe frames and their times (ps; NaN if unknown), as the subject of a sentence.

    Examples
    --------
    >>> describe_span(np.arange(98), np.arange(98) + 1.0)
    '98 frames from 1 to 98 ps, 1 ps apart'
    >>> describe_span(np.array([0, 1, 3]), np.array([0.0, 5e5, 1.5e6]))
    '3 frames from 0 to 1.5 µs, at unequal intervals'
    """
    n_frames = many(len(frames), "frame")
    known = times[np.isfinite(times)] if times is not None else np.empty(0)
    if len(known) == 0:
        ends = f"number {frames[0]:,}" if len(frames) == 1 else f"{frames[0]:,} to {frames[-1]:,}"
        return f"{n_frames}, {ends}, whose times are unknown"
    if len(known) == 1 or known.max() == known.min():
        return f"{n_frames} at {time_text(known[0])}"
    steps = np.diff(known)
    # Allow for rounding: files store times in single precision.
    even = np.ptp(steps) <= max(1e-6 * np.abs(known).max(), 1e-3 * abs(steps[0]))
    apart = f"{time_text(float(np.median(steps)))} apart" if even else "at unequal intervals"
    unit, length = unit_of_time(known.max())
    low, high = (f"{value / length:.6g}" for value in (known.min(), known.max()))
    return f"{n_frames} from {low} to {high} {unit}, {apart}"


def unit_of_time(time: float) -> tuple[str, float]:
    """Return a unit in which a time (ps) is easy to read, and its length, ps."""
    return next((name, length) for name, length, least in TIME_UNITS if abs(time) >= least)


def time_text(time: float, n_digits: int = 6) -> str:
    """Format a time (ps) in a readable unit."""
    unit, length = unit_of_time(time)
    return f"{time / length:.{n_digits}g} {unit}"
