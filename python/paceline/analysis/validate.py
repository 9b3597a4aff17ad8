"""Whether trajectory files are sound: every frame read, decoded and judged."""

import os
import re
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from paceline.analysis.base import AnalysisBase
from paceline.analysis.judge import ROW, judge
from paceline.block import FIELDS, Block
from paceline.errors import (
    DamagedFileError,
    FileChangedError,
    PacelineWarning,
    UnsupportedError,
)
from paceline.hdf5.file import WAS_CUT
from paceline.indexed import TrajectoryFile

if TYPE_CHECKING:
    from paceline.reader import Reader


class Finding(NamedTuple):
    """Something about a file, or about one of its frames.

    Attributes
    ----------
    frame : int or None
        Counted from 0; None for the file as a whole.
    byte : int or None
        Where the damage is, or else the frame begins.
    time : float or None
        Of the frame, ps.
    bad : bool
        Whether the data are at fault, rather than merely unusual.
    what : str
        One line.
    """

    frame: int | None
    byte: int | None
    time: float | None
    bad: bool
    what: str


@dataclass(frozen=True)
class Verdict:
    """What was found of one file.

    Attributes
    ----------
    path : str
    n_frames, size : int
        Whole frames, and bytes; 0 where the file cannot be opened.
    seconds : float
        What opening, reading and judging took.
    findings : list of Finding
        By frame; those about the whole file come first.
    """

    path: str
    n_frames: int
    size: int
    seconds: float
    findings: list[Finding]

    @property
    def bad(self) -> list[Finding]:
        """Findings that make the file bad."""
        return [finding for finding in self.findings if finding.bad]

    @property
    def remarks(self) -> list[Finding]:
        """What is unusual and may be right."""
        return [finding for finding in self.findings if not finding.bad]


def validate(
    path: str | os.PathLike,
    *,
    backend: Any = None,
    n_workers: int | None = None,
    progress: bool | None = None,
    group: str | None = None,
    units: str | Mapping[str, str] | None = None,
    dataset: str | None = None,
) -> Verdict:
    """Read, decode and judge every frame of a trajectory.

    Parameters
    ----------
    path : path-like
        A file of a format that paceline decodes. It needs no topology.
    backend : {"threads", "serial", "processes", "mpi"}, Executor or Backend, optional
        Where frames are judged.
    n_workers : int, optional
        By default the CPUs that this process may use.
    progress : bool, optional
        Whether to show progress; by default a bar on a terminal, a line a minute in a log.
    group, units, dataset : optional
        Of an HDF5 file, as for `paceline.Universe`.

    Returns
    -------
    Verdict
        A file that cannot be opened, or is of no format at all, has one too: a bad one.

    Raises
    ------
    UnsupportedError
        The file's name says that only MDAnalysis can read it.
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
    refuse_foreign(path)
    try:
        reader = _open(path, group=group, units=units, dataset=dataset)
        n_frames, size = reader.n_frames, reader.core.size
        findings = [*_of_file(reader.core), *_of_frames(reader, backend, n_workers, progress)]
    except (DamagedFileError, FileChangedError, UnsupportedError) as error:
        findings = [_of_error(path, error)]
    except OSError as error:
        if os.path.abspath(error.filename or "") != os.path.abspath(path):
            raise
        findings = [_of_error(path, error)]
    findings.sort(key=lambda finding: -1 if finding.frame is None else finding.frame)
    return Verdict(path, n_frames, size, time.perf_counter() - begun, findings)


def refuse_foreign(path: str) -> None:
    """Raise where a file is one that only MDAnalysis can read, by its name.

    Parameters
    ----------
    path : str
        The file.

    Raises
    ------
    UnsupportedError
        It is.
    """
    from MDAnalysis.coordinates.core import get_reader_for

    from paceline.universe import is_ours

    try:
        if is_ours(path):
            return
        theirs = get_reader_for(path)
    except (OSError, ValueError):
        return  # nobody's: what is wrong with it shows when it is opened
    raise UnsupportedError(
        f"{path}: only MDAnalysis can read this ({theirs.__name__}), and what it makes of damaged "
        "files is no proof; convert it to a format that paceline decodes"
    )


def _open(path: str, **asked: Any) -> "Reader":
    """The file, without what opening it has to say: that is among the findings."""
    from paceline.reader import Reader

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PacelineWarning)
        return Reader(path, **asked)


def _of_error(path: str, error: Exception) -> Finding:
    """What keeps a file from being read."""
    if isinstance(error, DamagedFileError):
        what = f"expected {error.expected}, found {error.found}"
        return Finding(error.frame, error.offset, None, True, what)
    text = getattr(error, "strerror", None) or str(error)
    for prefix in (path, os.path.abspath(path)):
        text = text.removeprefix(f"{prefix}: ")
    return Finding(None, None, None, True, text)


def _of_file(core: TrajectoryFile) -> Iterator[Finding]:
    """What the index knows of the file, beside its damaged frames: these are found one by one."""
    last = np.array([core.n_frames - 1], dtype=np.uint64)
    end = sum(int(part[0]) for part in core.extents(last))
    for note in core.notes:
        if f"(byte {end})" in note:
            yield Finding(core.n_frames, end, None, True, note)
        elif " damaged" not in note:
            yield Finding(None, None, None, note.startswith(WAS_CUT), note)


def _of_frames(
    reader: "Reader", backend: Any, n_workers: int | None, progress: bool | None
) -> Iterator[Finding]:
    """What is wrong with single frames."""
    import MDAnalysis

    if reader.n_atoms == 0:
        yield Finding(None, None, None, True, "expected frames of some atoms, found none in them")
        return
    universe = MDAnalysis.Universe.empty(reader.n_atoms)
    universe.trajectory = reader
    frames = _Frames(universe.atoms)
    frames.run(backend=backend, n_workers=n_workers, progress=progress, on_error="skip")
    for frame, reason in frames.damaged:
        yield _of_damaged(frame, reason.removeprefix(f"{reader.core.path}: frame {frame}, "))
    whole = np.ones(len(frames.frames), dtype=bool)
    whole[[frame for frame, _ in frames.damaged]] = False
    sound = np.flatnonzero(whole)
    offsets, _ = reader.core.extents(sound.astype(np.uint64))
    times = frames.times[whole]
    rows = frames.rows if whole.all() else frames.rows[whole]
    for row, bad, what in judge(sound, times, rows):
        if row < 0:
            yield Finding(None, None, None, bad, what)
        else:
            known = float(times[row]) if np.isfinite(times[row]) else None
            yield Finding(int(sound[row]), int(offsets[row]), known, bad, what)


def _of_damaged(frame: int, reason: str) -> Finding:
    """What reading a frame said, without the place: its bytes, and in HDF5 its dataset too."""
    found = re.match(r"(?:(.*), )?byte (\d+): (.*)", reason)
    if found is None:
        return Finding(frame, None, None, True, reason)
    within, byte, what = found.groups()
    return Finding(frame, int(byte), None, True, f"{within}: {what}" if within else what)


class _Frames(AnalysisBase):
    """What `judge` must know of each frame."""

    fields = ()
    optional_fields = FIELDS

    def prepare(self) -> "_Scan":
        return _Scan()

    def finish(self, value: np.ndarray) -> None:
        self.rows = value.view(ROW)[:, 0]


class _Scan:
    """The worker's half: one `ROW` a frame."""

    judges: Literal[True] = True

    def compute(self, block: Block) -> np.ndarray:
        # The columns of `ROW`.
        return np.column_stack([block.steps, block.dimensions, block.judgements])
