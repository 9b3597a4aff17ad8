"""What can be wrong with frames that decode: judged on arrays of all frames at once."""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from paceline.block import FIELDS

#: What a worker finds of each frame. `broken` is, for each of `FIELDS`, the first atom with a
#: number that is not finite, or -1; `reach` the largest |x|, |y| or |z|, Å, and `farthest` the
#: atom that has it. All are floats, so that a frame that was left out can be NaN.
ROW = np.dtype(
    [
        ("step", "f8"),
        ("cell", "f8", (6,)),
        ("broken", "f8", (len(FIELDS),)),
        ("reach", "f8"),
        ("farthest", "f8"),
    ]
)

#: How far out an atom may be: so many edges of the cell, and beside that so many times what the
#: frames around it, or half of all frames, reach. Molecules that were never wrapped diffuse some
#: thousand Å in a microsecond, but all frames of such a trajectory reach far.
CELL_EDGES, USUAL_REACHES = 10, 4
#: Frames before and behind that are compared with.
NEIGHBOURS = 5
#: No edge counts as less: cells of 1 Å stand for none, and a lone atom may sit in the origin, Å.
SMALLEST_EDGE = 10.0
#: What diffuses 0.01 mm along an axis needs a millisecond, Å.
TOO_FAR = 1e5

#: A cell whose volume is less than the square root of this times that of a right-angled one of
#: the same edges is flat.
FLAT = 1e-6
#: A volume so many times the median, or a fraction of it, is worth a remark.
VOLUME_FACTOR = 2

#: A gap is longer than so many times the usual time between frames.
GAP = 1.5
#: Where more of the times between frames are gaps, none is usual.
GAPS = 0.1


class Found(NamedTuple):
    """Something about a frame.

    Attributes
    ----------
    row : int
        Of the frame, among those judged; -1 where it is about all of them.
    bad : bool
        Whether the frame should not be used as it is, rather than merely looked at.
    what : str
        One line.
    """

    row: int
    bad: bool
    what: str


def judge(frames: np.ndarray, times: np.ndarray, rows: np.ndarray) -> Iterator[Found]:
    """Judge the frames that decode.

    Parameters
    ----------
    frames : numpy.ndarray of int64, shape (n_frames,)
        Their numbers, increasing.
    times : numpy.ndarray of float64, shape (n_frames,)
        ps; NaN where a file has none.
    rows : numpy.ndarray of `ROW`, shape (n_frames,)
        What workers found of them.

    Yields
    ------
    Found
        In no particular order.
    """
    if len(frames) == 0:
        return
    yield from _judge_finite(rows)
    yield from _judge_reach(rows)
    yield from _judge_cells(np.ascontiguousarray(rows["cell"].T))
    yield from _judge_times(frames, times, rows["step"])


def _judge_finite(rows: np.ndarray) -> Iterator[Found]:
    for k, field in enumerate(FIELDS):
        atoms = rows["broken"][:, k]
        for row in np.flatnonzero(atoms >= 0).tolist():
            yield Found(row, True, f"{field} are not finite, first that of atom {atoms[row]:.0f}")


def _judge_reach(rows: np.ndarray) -> Iterator[Found]:
    reach = rows["reach"]
    known = np.isfinite(reach)
    if not known.any():
        return
    usual = _lower_median(reach[known])
    edges = rows["cell"][:, :3].max(axis=1)
    edges = edges[np.isfinite(edges) & (edges > 0)]
    edge = float(np.median(edges)) if len(edges) else usual
    base = CELL_EDGES * max(edge, SMALLEST_EDGE)
    doubtful = np.flatnonzero(reach > base + USUAL_REACHES * usual)
    width = min(2 * NEIGHBOURS + 1, len(reach))
    around = np.clip(doubtful - NEIGHBOURS, 0, len(reach) - width)[:, None] + np.arange(width)
    nearby = _lower_median(np.where(known, reach, 0)[around])
    outside = (reach[doubtful] > base + USUAL_REACHES * nearby) | (
        reach[doubtful] > max(TOO_FAR, base)
    )
    cell = f", and the cell's longest edge is {edge:.6g} Å" if len(edges) else ""
    for row in doubtful[outside].tolist():
        yield Found(
            row,
            True,
            f"atom {rows['farthest'][row]:.0f} is out of reason: a coordinate of "
            f"{reach[row]:.6g} Å, where frames usually reach {usual:.6g} Å{cell}",
        )


def _lower_median(values: np.ndarray) -> np.ndarray:
    """Median along the last axis; of two in the middle the lower, that of the sounder frame."""
    middle = (values.shape[-1] - 1) // 2
    return np.partition(values, middle, axis=-1)[..., middle]


def _judge_cells(cells: np.ndarray) -> Iterator[Found]:
    """The same of cells, shape (6, n_frames): so NumPy compares them 4 times as fast."""
    missing = np.invert(cells.any(axis=0))
    if missing.all():
        return
    finite = np.isfinite(cells).all(axis=0)
    volumes = np.where(finite & ~missing, _volumes(np.where(finite, cells, 0)), np.nan)
    flat = volumes == 0
    usual = float(np.median(volumes[volumes > 0])) if (volumes > 0).any() else np.nan
    odd = (volumes > VOLUME_FACTOR * usual) | ((volumes < usual / VOLUME_FACTOR) & ~flat)
    for row, more in _stretches(missing):
        yield Found(row, True, f"no cell, but other frames have one{more}")
    for row, more in _stretches(~finite):
        yield Found(row, True, f"the cell is not finite: {_cell(cells[:, row])}{more}")
    for row, more in _stretches(flat):
        yield Found(row, True, f"the cell spans no volume: {_cell(cells[:, row])}{more}")
    for row, more in _stretches(odd):
        what = f"a cell of {volumes[row]:.6g} Å³, where {usual:.6g} Å³ are usual{more}"
        yield Found(row, False, what)


def _volumes(cells: np.ndarray) -> np.ndarray:
    """Volumes, Å³; 0 for what is no cell."""
    lengths, angles = cells[:3], cells[3:]
    cosines = np.cos(np.deg2rad(angles))
    # The square of the volume of a cell with these angles and edges of length 1.
    square = 1 - (cosines**2).sum(axis=0) + 2 * cosines.prod(axis=0)
    real = (lengths > 0).all(axis=0) & ((angles > 0) & (angles < 180)).all(axis=0)
    real &= square > FLAT
    return np.where(real, lengths.prod(axis=0) * np.sqrt(np.maximum(square, 0)), 0)


def _cell(cell: np.ndarray) -> str:
    lengths, angles = (" ".join(f"{value:g}" for value in part) for part in (cell[:3], cell[3:]))
    return f"{lengths} Å, {angles} degrees"


def _judge_times(frames: np.ndarray, times: np.ndarray, steps: np.ndarray) -> Iterator[Found]:
    known = np.isfinite(times)
    if not known.any():
        yield Found(-1, False, "no frame has a time")
    else:
        for row, more in _stretches(~known):
            yield Found(row, True, f"the time is not finite{more}")
    rows = np.flatnonzero(known)
    if len(rows) > 1 and np.ptp(times[rows]) == 0:
        yield Found(-1, False, f"all frames have the same time, {times[rows[0]]:.8g} ps")
        rows = rows[:0]
    back = np.zeros(len(frames), dtype=bool)
    for place, what in _setbacks(times[rows], "time", " ps"):
        back[rows[place]] = True
        yield Found(rows[place], True, what)
    if np.ptp(steps) > 0:
        for row, what in _setbacks(steps, "step", ""):
            # Where times increase, a run may have counted its steps anew.
            if not back[row]:
                yield Found(row, len(rows) == 0, what)
    for place, what in _gaps(frames[rows], times[rows]):
        yield Found(-1 if place < 0 else rows[place], False, what)


def _setbacks(values: np.ndarray, name: str, unit: str) -> Iterator[tuple[int, str]]:
    """Where values do not increase, and how many from there on are those of earlier frames."""
    repeated = np.ones(len(values), dtype=bool)
    repeated[np.unique(values, return_index=True)[1]] = False
    back = np.flatnonzero(np.diff(values) <= 0) + 1
    for first, stop in pairwise(np.append(back, len(values)).tolist()):
        n = np.count_nonzero(repeated[first:stop])
        what = f"{name} does not increase: {values[first]:.8g}{unit} "
        what += f"after {values[first - 1]:.8g}{unit}"
        if n:
            have = "1 frame has" if n == 1 else f"{n} frames have"
            what += f"; from here on {have} the {name} of an earlier one"
        yield first, what


def _gaps(frames: np.ndarray, times: np.ndarray) -> Iterator[tuple[int, str]]:
    """Where the time between two neighbours is longer than usual."""
    between = np.diff(times)
    # What lies between others was left out, and may be many frames.
    counted = (between > 0) & (np.diff(frames) == 1)
    if not counted.any():
        return
    usual = np.median(between[counted])
    # Times may be 32-bit: neighbours are rounded apart by this much.
    rounding = 2 * np.spacing(np.float32(np.abs(times).max()))
    gaps = np.flatnonzero(counted & (between > GAP * usual + rounding))
    if len(gaps) > max(1, GAPS * np.count_nonzero(counted)):
        least, most = between[counted].min(), between[counted].max()
        yield -1, f"the time between frames varies from {least:.8g} to {most:.8g} ps"
        return
    for gap in gaps:
        what = f"a gap: {times[gap + 1]:.8g} ps after {times[gap]:.8g} ps"
        yield int(gap) + 1, f"{what}, where frames are usually {usual:.8g} ps apart"


def _stretches(mask: np.ndarray) -> Iterator[tuple[int, str]]:
    """First of each row of neighbours in `mask`, and words for the others."""
    borders = np.flatnonzero(np.diff(np.concatenate([[0], mask.view(np.int8), [0]])))
    for first, stop in borders.reshape(-1, 2).tolist():
        n = stop - first - 1
        yield first, "" if n == 0 else f"; the same in the next {n} frame{'s' * (n > 1)}"
