"""Validate trajectory files: read, decode and check every frame."""

import os
import re
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from paceline.analysis.base import AnalysisBase
from paceline.block import FIELDS, Block
from paceline.contract.analysis_kinds import PerFrame
from paceline.contract.source import TIMES_REMEDY, TrajectoryFile
from paceline.contract.system_interface import Atoms
from paceline.errors import (
    DamagedFileError,
    PacelineError,
    PacelineWarning,
    UnsupportedError,
    WorkerError,
)
from paceline.hdf5.open_hdf5_trajectory import CONTRADICTS, TRUNCATED

if TYPE_CHECKING:
    from paceline.trajectory.file_trajectory import FileTrajectory

#: Values that a worker returns for each frame. `broken` contains, for each of `FIELDS`, the first
#: atom with a non-finite number, or -1. `reach` is the largest |x|, |y| or |z|, Å, and `farthest`
#: its atom. All values are floats, so that they can be NaN for a frame that was left out.
ROW = np.dtype(
    [
        ("step", "f8"),
        ("cell", "f8", (6,)),
        ("broken", "f8", (len(FIELDS),)),
        ("reach", "f8"),
        ("farthest", "f8"),
    ]
)

#: An atom is too far away if its largest coordinate exceeds the sum of `CELL_EDGES` times the
#: longest cell edge and `USUAL_REACHES` times the usual maximum.
CELL_EDGES = 10
#: Multiple of the usual maximum of coordinates in other frames. Unwrapped molecules diffuse some
#: thousand Å in a microsecond, but then coordinates are large in all frames.
USUAL_REACHES = 4
#: Number of frames before and after a frame with which the frame is compared.
NEIGHBOURS = 5
#: Minimum cell edge in the check for atoms that are too far away, Å; a cell of 1 Å may stand for no
#: cell.
SMALLEST_EDGE = 10.0
#: Coordinate that is too large even if it is as large in neighbouring frames, Å. A molecule needs
#: a millisecond to diffuse over this distance of 0.01 mm.
TOO_FAR = 1e5

#: A cell is flat if its squared volume is below this fraction of that of a rectangular cell with
#: the same edges.
FLAT = 1e-6
#: A remark is made if a volume is more than this factor above or below the median volume.
VOLUME_FACTOR = 2

#: Minimum length of a gap, as a multiple of the usual time between frames.
GAP = 1.5
#: If more than this fraction of the intervals are gaps, the intervals are irregular.
GAPS = 0.1


class Finding(NamedTuple):
    """Error or remark about a file, or about one of its frames.

    Attributes
    ----------
    frame : int or None
        Frame number from 0; None for the whole file.
    byte : int or None
        Byte offset of the damage, or else of the frame.
    time : float or None
        Time of the frame, ps.
    bad : bool
        True for an error in the data; False for unusual data.
    what : str
        Description in one line.
    """

    frame: int | None
    byte: int | None
    time: float | None
    bad: bool
    what: str


@dataclass(frozen=True)
class Verdict:
    """Findings about one file.

    Attributes
    ----------
    path : str
    n_frames, size : int
        Number of complete frames, and size in bytes; 0 if the file cannot be opened.
    seconds : float
        Time for opening, reading and checking the file, s.
    findings : list of Finding
        Findings by frame; findings about the whole file come first.
    """

    path: str
    n_frames: int
    size: int
    seconds: float
    findings: list[Finding]

    @property
    def bad(self) -> list[Finding]:
        """Findings that are errors."""
        return [finding for finding in self.findings if finding.bad]

    @property
    def remarks(self) -> list[Finding]:
        """Findings that are unusual, but may be right."""
        return [finding for finding in self.findings if not finding.bad]


def validate(
    path: str | os.PathLike,
    *,
    backend: object = None,
    n_workers: int | None = None,
    progress: bool | None = None,
    group: str | None = None,
    units: str | Mapping[str, str] | None = None,
    dataset: str | None = None,
    external: bool = False,
) -> Verdict:
    """Read, decode and check every frame of a trajectory.

    Parameters
    ----------
    path : path-like
        File in a format that paceline decodes; no topology is needed.
    backend : {"threads", "serial", "processes", "mpi"}, Executor or Backend, optional
        Backend that reads and checks the frames.
    n_workers : int, optional
        Number of workers; by default the CPUs that this process may use.
    progress : bool, optional
        Show progress; by default a bar on a terminal, or one line per minute in a log.
    group, units, dataset, external : optional
        Options for HDF5 files, as for `paceline.Universe`.

    Returns
    -------
    Verdict
        Findings. A file that cannot be opened, or has an unknown format, has an error.

    Raises
    ------
    UnsupportedError
        Only MDAnalysis can read files with this extension.
    WorkerError
        A worker process was killed.

    Examples
    --------
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import DCD
    >>> verdict = paceline.validate(DCD)
    >>> verdict.n_frames, verdict.bad
    (98, [])
    """
    path = os.fspath(path)
    begun = time.perf_counter()
    n_frames = size = 0
    check_decodable(path)
    try:
        files = _open(path, group=group, units=units, dataset=dataset, external=external)
        file = files.chain.files[0]
        n_frames, size = file.n_frames, file.size
        findings = [*_index_findings(file), *_frame_findings(files, backend, n_workers, progress)]
    except WorkerError:
        raise
    except PacelineError as error:
        findings = [_finding_of_error(path, error)]
    except OSError as error:
        if os.path.abspath(error.filename or "") != os.path.abspath(path):
            raise
        findings = [_finding_of_error(path, error)]
    findings.sort(key=lambda finding: -1 if finding.frame is None else finding.frame)
    return Verdict(path, n_frames, size, time.perf_counter() - begun, findings)


def check_decodable(path: str) -> None:
    """Raise `UnsupportedError` if only MDAnalysis can read files with this extension."""
    reader = reader_of_mdanalysis(path)
    if reader is not None:
        raise UnsupportedError(
            f"{path}: only MDAnalysis can read this format ({reader}), and it may not detect "
            "damage; convert the file to a format that paceline decodes"
        )


def reader_of_mdanalysis(path: str) -> str | None:
    """Return MDAnalysis's reader for a file extension that paceline does not read."""
    from paceline.trajectory.open import is_decoded

    try:
        if is_decoded(path):
            return None
        from MDAnalysis.coordinates.core import get_reader_for

        return str(get_reader_for(path).__name__)
    except (ImportError, OSError, ValueError):
        return None  # no reader knows the extension; opening the file reports the error


def _open(path: str, **options: Any) -> "FileTrajectory":
    """Open the file without warnings, because the notes on its index become findings."""
    import paceline

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PacelineWarning)
        return paceline.open(path, **options)


def _finding_of_error(path: str, error: Exception) -> Finding:
    """Convert an error to a finding about a file that cannot be read."""
    if isinstance(error, DamagedFileError):
        what = f"expected {error.expected}, found {error.found}"
        return Finding(error.frame, error.offset, None, True, what)
    text = (error.strerror if isinstance(error, OSError) else None) or str(error)
    for prefix in (path, os.path.abspath(path)):
        text = text.removeprefix(f"{prefix}: ")
    return Finding(None, None, None, True, text)


def _index_findings(file: TrajectoryFile) -> Iterator[Finding]:
    """Yield findings of the index, except damaged frames, which are reported one by one."""
    last = np.array([file.n_frames - 1], dtype=np.uint64)
    end = sum(int(part[0]) for part in file.extents(last))
    if file.time_doubt and file.n_frames > 1:
        yield Finding(None, None, None, False, f"{file.time_doubt}; {TIMES_REMEDY}")
    for note in file.notes:
        if f"(byte {end})" in note:
            yield Finding(file.n_frames, end, None, True, note)
        elif " damaged" not in note:
            yield Finding(None, None, None, note.startswith((TRUNCATED, CONTRADICTS)), note)


def _frame_findings(
    files: "FileTrajectory", backend: object, n_workers: int | None, progress: bool | None
) -> Iterator[Finding]:
    """Yield findings about single frames."""
    if files.chain.varying is not None:
        frames: _FramesApart | _FrameRows = _FramesApart(files)
    elif files.n_atoms == 0:
        yield Finding(None, None, None, True, "expected frames with atoms, found frames without")
        return
    else:
        frames = _FrameRows(cast(Atoms, files.atoms))
    file = files.chain.files[0]
    frames.run(backend=backend, n_workers=n_workers, progress=progress, on_error="skip")
    for frame, reason in frames.damaged:
        yield _finding_of_damaged(frame, reason.removeprefix(f"{file.path}: frame {frame}, "))
    whole = np.ones(len(frames.frames), dtype=bool)
    whole[[frame for frame, _ in frames.damaged]] = False
    sound = np.flatnonzero(whole)
    offsets, _ = file.extents(sound.astype(np.uint64))
    times = frames.times[whole]
    rows = frames.rows if whole.all() else frames.rows[whole]
    for row, bad, what in check_frames(sound, times, rows):
        if row < 0:
            yield Finding(None, None, None, bad, what)
        else:
            known = float(times[row]) if np.isfinite(times[row]) else None
            yield Finding(int(sound[row]), int(offsets[row]), known, bad, what)


def _finding_of_damaged(frame: int, reason: str) -> Finding:
    """Make the finding about a frame that cannot be read, from the reason of the reader."""
    found = re.match(r"(?:(.*), )?byte (\d+): (.*)", reason)
    if found is None:
        return Finding(frame, None, None, True, reason)
    within, byte, what = found.groups()
    return Finding(frame, int(byte), None, True, f"{within}: {what}" if within else what)


class _FrameRows(AnalysisBase):
    """Collects the data of each frame that `check_frames` needs."""

    fields = ()
    optional_fields = FIELDS

    def prepare(self) -> "_MakeRows":
        return _MakeRows()

    def finish(self, value: np.ndarray) -> None:
        self.rows = value.view(ROW)[:, 0]


class _FramesApart:
    """Collects the data of `_FrameRows` from frames with different numbers of atoms, one by one."""

    def __init__(self, files: "FileTrajectory"):
        self._files = files
        self.frames, self.times = np.arange(files.n_frames), files.times

    def run(self, **options: object) -> None:
        """Read all frames in this thread."""
        self.damaged: list[tuple[int, str]] = []
        rows = np.full((len(self.frames), ROW.itemsize // 8), np.nan)
        for frame in range(len(rows)):
            try:
                decoded = self._files.read_varying_frame(frame, check_validity=True)
            except DamagedFileError as error:
                self.damaged.append((frame, str(error)))
            else:
                rows[frame] = _MakeRows().compute(Block(decoded, None, {}))[0]
        self.rows = rows.view(ROW)[:, 0]


class _MakeRows(PerFrame):
    """Worker part that returns one `ROW` per frame."""

    checks_validity = True

    def compute(self, block: Block) -> np.ndarray:
        # The columns of `ROW`.
        return np.column_stack([block.steps, block.dimensions, block.validity])


class RowFinding(NamedTuple):
    """Finding about one of the checked rows, or about all of them (row -1)."""

    row: int
    bad: bool
    what: str


def check_frames(frames: np.ndarray, times: np.ndarray, rows: np.ndarray) -> Iterator[RowFinding]:
    """Check frames that can be decoded; yield findings in no particular order.

    `frames` are increasing frame numbers, `times` are in ps or NaN, and `rows` have the type `ROW`.
    """
    if len(frames) == 0:
        return
    yield from _check_finite(rows)
    yield from _check_reach(rows)
    yield from _check_cells(np.ascontiguousarray(rows["cell"].T))
    yield from _check_times(frames, times, rows["step"])


def _check_finite(rows: np.ndarray) -> Iterator[RowFinding]:
    """Find frames with non-finite numbers."""
    for k, field in enumerate(FIELDS):
        atoms = rows["broken"][:, k]
        for row in np.flatnonzero(atoms >= 0).tolist():
            yield RowFinding(
                row, True, f"{field} are not finite, first that of atom {atoms[row]:.0f}"
            )


def _check_reach(rows: np.ndarray) -> Iterator[RowFinding]:
    """Find frames with an atom that is much farther from the origin than atoms usually are."""
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
        yield RowFinding(
            row,
            True,
            f"atom {rows['farthest'][row]:.0f} is too far away: a coordinate is "
            f"{reach[row]:.6g} Å, but the usual maximum is {usual:.6g} Å{cell}",
        )


def _lower_median(values: np.ndarray) -> np.ndarray:
    """Median along the last axis; of two middle values the lower one, which is more plausible."""
    middle = (values.shape[-1] - 1) // 2
    return np.partition(values, middle, axis=-1)[..., middle]


def _check_cells(cells: np.ndarray) -> Iterator[RowFinding]:
    """Check cells, shape (6, n_frames); with this shape, NumPy is 4 times as fast."""
    missing = np.invert(cells.any(axis=0))
    if missing.all():
        return
    finite = np.isfinite(cells).all(axis=0)
    volumes = np.where(finite & ~missing, _volumes(np.where(finite, cells, 0)), np.nan)
    flat = volumes == 0
    usual = float(np.median(volumes[volumes > 0])) if (volumes > 0).any() else np.nan
    odd = (volumes > VOLUME_FACTOR * usual) | ((volumes < usual / VOLUME_FACTOR) & ~flat)
    for row, more in _stretches(missing):
        yield RowFinding(row, True, f"no cell, but other frames have a cell{more}")
    for row, more in _stretches(~finite):
        yield RowFinding(row, True, f"the cell is not finite: {_cell(cells[:, row])}{more}")
    for row, more in _stretches(flat):
        yield RowFinding(row, True, f"the cell spans no volume: {_cell(cells[:, row])}{more}")
    for row, more in _stretches(odd):
        what = f"a cell of {volumes[row]:.6g} Å³, but {usual:.6g} Å³ are usual{more}"
        yield RowFinding(row, False, what)


def _volumes(cells: np.ndarray) -> np.ndarray:
    """Volumes, Å³; 0 if lengths and angles do not form a cell."""
    lengths, angles = cells[:3], cells[3:]
    cosines = np.cos(np.deg2rad(angles))
    # Squared volume of a cell with these angles and edges of length 1.
    square = 1 - (cosines**2).sum(axis=0) + 2 * cosines.prod(axis=0)
    real = (lengths > 0).all(axis=0) & ((angles > 0) & (angles < 180)).all(axis=0)
    real &= square > FLAT
    return np.where(real, lengths.prod(axis=0) * np.sqrt(np.maximum(square, 0)), 0)


def _cell(cell: np.ndarray) -> str:
    """Format lengths and angles of a cell."""
    lengths, angles = (" ".join(f"{value:g}" for value in part) for part in (cell[:3], cell[3:]))
    return f"{lengths} Å, {angles} degrees"


def _check_times(frames: np.ndarray, times: np.ndarray, steps: np.ndarray) -> Iterator[RowFinding]:
    """Find times and steps that are missing, decrease, or have gaps."""
    known = np.isfinite(times)
    if not known.any():
        yield RowFinding(-1, False, "no frame has a time")
    else:
        for row, more in _stretches(~known):
            yield RowFinding(row, True, f"the time is not finite{more}")
    rows = np.flatnonzero(known)
    if len(rows) > 1 and np.ptp(times[rows]) == 0:
        yield RowFinding(-1, False, f"all frames have the same time, {times[rows[0]]:.8g} ps")
        rows = rows[:0]
    back = np.zeros(len(frames), dtype=bool)
    for place, what in _setbacks(times[rows], "time", " ps"):
        back[rows[place]] = True
        yield RowFinding(rows[place], True, what)
    if np.ptp(steps) > 0:
        for row, what in _setbacks(steps, "step", ""):
            # A time that does not increase has been reported. If times increase, this is only a
            # remark: a later run may have restarted its step counter.
            if not back[row]:
                yield RowFinding(row, len(rows) == 0, what)
    for place, what in _gaps(frames[rows], times[rows]):
        yield RowFinding(-1 if place < 0 else rows[place], False, what)


def _setbacks(values: np.ndarray, name: str, unit: str) -> Iterator[tuple[int, str]]:
    """Yield the index of each value that does not increase, with a text that counts repetitions."""
    repeated = np.ones(len(values), dtype=bool)
    repeated[np.unique(values, return_index=True)[1]] = False
    back = np.flatnonzero(np.diff(values) <= 0) + 1
    for first, stop in pairwise(np.append(back, len(values)).tolist()):
        n = np.count_nonzero(repeated[first:stop])
        what = f"{name} does not increase: {values[first]:.8g}{unit} "
        what += f"after {values[first - 1]:.8g}{unit}"
        if n:
            have = "1 frame has" if n == 1 else f"{n} frames have"
            what += f"; from here on {have} the {name} of an earlier frame"
        yield first, what


def _gaps(frames: np.ndarray, times: np.ndarray) -> Iterator[tuple[int, str]]:
    """Find intervals between adjacent frames that are longer than usual."""
    between = np.diff(times)
    # Ignore intervals across frames that were left out.
    counted = (between > 0) & (np.diff(frames) == 1)
    if not counted.any():
        return
    usual = np.median(between[counted])
    # Times may be 32-bit floats; rounding changes intervals by up to this value.
    rounding = 2.0**-22 * np.abs(times).max()
    gaps = np.flatnonzero(counted & (between > GAP * usual + rounding))
    if len(gaps) > max(1, GAPS * np.count_nonzero(counted)):
        least, most = between[counted].min(), between[counted].max()
        yield -1, f"the time between frames varies from {least:.8g} to {most:.8g} ps"
        return
    for gap in gaps:
        what = f"a gap: {times[gap + 1]:.8g} ps after {times[gap]:.8g} ps"
        yield int(gap) + 1, f"{what}, but frames are usually {usual:.8g} ps apart"


def _stretches(mask: np.ndarray) -> Iterator[tuple[int, str]]:
    """Yield the first index of each run of True values, and a text on the run's further frames."""
    borders = np.flatnonzero(np.diff(np.concatenate([[0], mask.view(np.int8), [0]])))
    for first, stop in borders.reshape(-1, 2).tolist():
        n = stop - first - 1
        yield first, "" if n == 0 else f"; the same in the next {n} frame{'s' * (n > 1)}"
