"""Timings of a run: which worker computed which block, when, and for how long.

The quantities are those of Khoshlessan et al. 2020, Table 3, where they still exist here.
"""

import csv
import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import IO, Any, Self

from paceline._util.files import new_file
from paceline.errors import TimingsError
from paceline.performance.number_format import aligned, shortened
from paceline.performance.record import (
    ABANDONED,
    MEASURED,
    OVERHEAD,
    PARTS,
    WAIT,
    BlockTiming,
    DuplicateAttempt,
    RunTimings,
    WorkerTiming,
    moved,
)
from paceline.performance.summary import Straggler, find_stragglers

__all__ = ["BlockTiming", "DuplicateAttempt", "Straggler", "Timings", "WorkerTiming"]


@dataclass
class Timings(RunTimings):
    """Timings of one run; print it for a table.

    Attributes
    ----------
    backend : str
        Where blocks were computed.
    start, dealt, end : int
        When the run began, when blocks were first assigned, and when all was done: nanoseconds of
        this host's clock.
    t_init_top, t_init_traj : float
        Parsing the topology, and opening the trajectory and its index, s: once, before the run.
        NaN for what was not ours to do.
    t_comm : float
        Receiving and merging results, s, in the process that collects them.
    blocks : list of BlockTiming
        Every block, in the order in which they were done.
    abandoned : list of DuplicateAttempt
        Attempts at blocks that other workers were done with sooner.
    n_workers : int
        For how many workers blocks were cut; some may have come to none.
    schedule : str
        "dynamic", or "static" where each worker had a share of its own.
    trajectory : str
        The files that were read.
    bytes_used : int
        Size of the decoded numbers that the analyses asked for, of all frames.
    host, date, version : str
        Where the run was begun, when (ISO 8601, with the zone), and by which paceline.
    n_chosen : int
        Frames that were chosen of all trajectories; 0 in files of timings that do not say it.

    Examples
    --------
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import PSF, DCD
    >>> from paceline.analysis.rms import RMSF
    >>> protein = paceline.Universe(PSF, DCD).select_atoms("protein")
    >>> timings = RMSF(protein).run(backend="serial").timings
    >>> [worker.n_frames for worker in timings.workers()]
    [98]
    >>> timings.stragglers()
    []
    """

    def precede(self, elapsed: int, t_comm: float) -> None:
        """Count an earlier part of the run, of `elapsed` ns and `t_comm` s, as if it ended now."""
        self.start -= elapsed
        self.dealt -= elapsed
        self.t_comm += t_comm

    def shift_blocks(self, first: int, shift: int) -> None:
        """Move the blocks from `first` on by `shift` ns: they are of an earlier part's clock."""
        self.blocks[first:] = [moved(block, shift) for block in self.blocks[first:]]

    def stragglers(self) -> list[Straggler]:
        """Workers that are slow for their frames, those first that lost most time.

        Their time per frame is over 1.5 times the median, or over 2 times that of the fastest
        quarter, by 0.1 s in all or more. Of two in the middle, the faster is the median: so one
        of two workers can be slow.
        """
        return find_stragglers(self)

    def to_csv(self, path: str | os.PathLike, *, overwrite: bool = False) -> None:
        """Write one line a block; times in nanoseconds. What the whole run took is in comments.

        Parameters
        ----------
        path : path-like
            What to write.
        overwrite : bool
            Whether an existing file may be replaced.

        Raises
        ------
        FileExistsError
            `path` exists and is not to be overwritten.
        """
        with new_file(path, overwrite=overwrite) as file:
            _write_csv(file, self)

    @classmethod
    def from_csv(cls, path: str | os.PathLike) -> Self:
        """Read what `to_csv` wrote.

        Parameters
        ----------
        path : path-like
            What to read.

        Returns
        -------
        Timings

        Raises
        ------
        FileNotFoundError
            There is no such file.
        TimingsError
            It is another file, or damaged.
        """
        return cls(**_read_csv(path))

    def to_chrome_trace(self, path: str | os.PathLike, *, overwrite: bool = False) -> None:
        """Write a trace that Perfetto (ui.perfetto.dev) and chrome://tracing show.

        Parameters
        ----------
        path : path-like
            What to write.
        overwrite : bool
            Whether an existing file may be replaced.

        Raises
        ------
        FileExistsError
            `path` exists and is not to be overwritten.
        """
        trace = _chrome_trace(self)
        with new_file(path, overwrite=overwrite) as file:
            json.dump(trace, file)

    def report(self, path: str | os.PathLike, *, overwrite: bool = False) -> None:
        """Write what the run spent its time on: figures, tables and advice.

        Parameters
        ----------
        path : path-like
            Ending in .html (one page that needs nothing else), .png or .svg (its figures as one).
        overwrite : bool
            Whether an existing file may be replaced.

        Raises
        ------
        FileExistsError
            `path` exists and is not to be overwritten.
        UnsupportedError
            Another ending.

        Examples
        --------
        >>> import tempfile, paceline
        >>> from MDAnalysisTests.datafiles import PSF, DCD
        >>> from paceline.analysis.rms import RMSF
        >>> protein = paceline.Universe(PSF, DCD).select_atoms("protein")
        >>> RMSF(protein).run().timings.report(f"{tempfile.mkdtemp()}/run.html")
        """
        # Few runs are reported on: the others do not wait for templates and figures.
        from paceline.performance.report import save_report

        save_report(self, path, overwrite=overwrite)

    def _repr_html_(self) -> str:
        from paceline.performance.report import notebook_timings

        return notebook_timings(self)

    def __str__(self) -> str:
        return "\n".join((*_table(self), _last_line(self)))


#: Columns of the printed table: title, attribute of `WorkerTiming`, format and factor.
_COLUMNS = (
    ("blocks", "n_blocks", "{:d}", 1),
    ("frames", "n_frames", "{:d}", 1),
    *((f"{part.label} s", part.quantity, "{:.3f}", 1) for part in (*MEASURED, WAIT, ABANDONED)),
    (f"{OVERHEAD.label} s", OVERHEAD.quantity, "{:.3f}", 1),
    ("µs/frame", "seconds_per_frame", "{:.1f}", 1e6),
    ("MB read", "bytes", "{:.1f}", 1e-6),
)


def _table(timings: Timings) -> Iterator[str]:
    """Yield lines of the printed table."""
    workers = timings.workers()
    slow = {one.worker: f" (straggler: {one.cause})" for one in timings.stragglers()}
    any_abandoned = any(one.t_abandoned for one in workers)
    columns = [one for one in _COLUMNS if any_abandoned or one[1] != ABANDONED.quantity]
    rows = [("worker", *(title for title, *_ in columns))]
    for worker in workers:
        cells = (form.format(getattr(worker, name) * factor) for _, name, form, factor in columns)
        rows.append((worker.worker + slow.get(worker.worker, ""), *cells))
    yield from aligned(rows)


def _last_line(timings: Timings) -> str:
    """Sum up the whole run in one line."""
    times = {
        "collecting results": timings.t_comm,
        "topology": timings.t_init_top,
        "trajectory": timings.t_init_traj,
    }
    parts = (f"{what} {t:.3f} s" for what, t in times.items() if not math.isnan(t))
    frames = f"{timings.n_frames} frame{'s' * (timings.n_frames != 1)}"
    return "; ".join((f"{timings.backend}: {frames} in {timings.t_total:.3f} s", *parts))


def _chrome_trace(timings: Timings) -> dict[str, object]:
    """Make a row for each worker, on it its blocks, and in these their parts."""
    named = [(f"block {one.block}", one) for one in timings.blocks]
    attempts = (attempt.timing for attempt in timings.abandoned if attempt.timing.worker)
    named += [(f"block {one.block}, abandoned", one) for one in attempts]
    # Perfetto tells rows apart by number, and takes process 0 for the system's idle one.
    workers = sorted({timing.worker for _, timing in named})
    rows = {worker: row for row, worker in enumerate(workers, start=1)}
    labels = [("process_name", 0, f"paceline, {timings.backend}")]
    labels += [("thread_name", row, name) for name, row in rows.items()]
    events: list[dict[str, object]] = [
        {"ph": "M", "name": kind, "pid": 1, "tid": row, "args": {"name": name}}
        for kind, row, name in labels
    ]
    for name, timing in named:
        events += _slices(name, timing, rows[timing.worker], timings.start)
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _slices(name: str, timing: BlockTiming, row: int, origin: int) -> Iterator[dict[str, object]]:
    """Yield the block, and in it its parts one after another; microseconds."""
    common = {"ph": "X", "pid": 1, "tid": row}
    args = {"first frame": timing.first_frame, "frames": timing.n_frames, "bytes": timing.bytes}
    start, length = (timing.start - origin) / 1e3, (timing.end - timing.start) / 1e3
    yield {**common, "name": name, "ts": start, "dur": length, "args": args}
    measured = asdict(timing)
    for part in PARTS:
        length = measured[part] / 1e3
        yield {**common, "name": part, "ts": start, "dur": length}
        start += length


#: First line of a file of timings, and the names of its columns.
_FIRST_LINE = "# paceline: block timings, 1"
_CELLS = tuple(column.name for column in fields(BlockTiming))
#: Facts of the run, which come before the table, and their types; older files lack `n_chosen`.
_FACTS = {
    one.name: type(one.default)
    for one in fields(RunTimings)
    if one.name not in ("blocks", "abandoned")
} | {"n_blocks": int}
#: Times of hosts' clocks may be less than zero; what is measured is not.
_SIGNED = ("start", "end")


def _write_csv(file: IO[str], timings: Timings) -> None:
    """Write facts of the run, then a line a block.

    Attempts that do not count are in comments, so that sums over the lines count no frame twice.
    """
    print(_FIRST_LINE, file=file)
    for name in _FACTS:
        value = len(timings.blocks) if name == "n_blocks" else getattr(timings, name)
        print(f"# {name}: {json.dumps(value)}", file=file)
    for attempt in timings.abandoned:
        print(f"# abandoned: {json.dumps(asdict(attempt))}", file=file)
    table = csv.DictWriter(file, _CELLS, lineterminator="\n")
    table.writeheader()
    table.writerows(asdict(block) for block in timings.blocks)


def _read_csv(path: str | os.PathLike) -> dict[str, Any]:
    """Read arguments of `Timings`."""
    reader = _Reader()
    try:
        with open(path, encoding="utf-8", newline="") as file:
            for line in file:
                reader.take(line.rstrip("\r\n"))
        return reader.finish()
    # Errors of JSON and UTF-8 are ValueErrors.
    except (csv.Error, RecursionError, TypeError, ValueError):
        raise TimingsError(
            f"{os.fspath(path)}: line {reader.number}: expected {reader.expected}, found "
            f"{shortened(reader.line, 60)!r}"
        ) from None


class _Reader:
    """Reader of the lines of saved timings; raises `ValueError` for one that is damaged."""

    def __init__(self) -> None:
        self.number, self.line = 0, ""
        #: Describes the line that is being read.
        self.expected = f"{_FIRST_LINE!r}, as in the timings that paceline writes"
        self._facts: dict[str, Any] = {}
        self._blocks: list[BlockTiming] = []
        self._abandoned: list[DuplicateAttempt] = []
        self._in_table = False

    def take(self, line: str) -> None:
        """Read the next line."""
        self.number, self.line = self.number + 1, line
        if self.number == 1:
            _check(line == _FIRST_LINE)
        elif self._in_table:
            self.expected = f"{len(_CELLS)} columns, whole numbers within range but for the worker"
            (cells,) = csv.reader([line])
            self._blocks.append(_block(dict(zip(_CELLS, cells, strict=True))))
        elif line.startswith("# "):
            self._take_fact(*line[2:].partition(": ")[::2])
        else:
            missing = _FACTS.keys() - self._facts.keys() - {"n_chosen"}  # older files lack it
            self.expected = f"a line '# {min(missing, default='')}: ' before the table"
            _check(not missing)
            self.expected = "the names of the columns"
            _check(line == ",".join(_CELLS))
            self._in_table = True

    def _take_fact(self, name: str, text: str) -> None:
        if name == "abandoned":
            self.expected = "an attempt with its timing"
            attempt = json.loads(text)
            _check(attempt.keys() == {"timing", "came"} and type(attempt["came"]) is bool)
            self._abandoned.append(DuplicateAttempt(_block(attempt["timing"]), attempt["came"]))
            return
        self.expected = "a fact that this version of paceline knows"
        _check(name in _FACTS)
        self.expected = f"{name} as {_FACTS[name].__name__} in JSON"
        value = self._facts[name] = json.loads(text)
        _check(type(value) is _FACTS[name] and value not in (math.inf, -math.inf))

    def finish(self) -> dict[str, Any]:
        """Return arguments of `Timings`."""
        n_blocks = self._facts.pop("n_blocks", 0)
        if self._in_table:
            self.expected = f"{n_blocks} blocks in place of {len(self._blocks)}"
        _check(self._in_table and len(self._blocks) == n_blocks)
        return {**self._facts, "blocks": self._blocks, "abandoned": self._abandoned}


def _check(right: bool) -> None:
    if not right:
        raise ValueError


def _block(cells: Mapping[str, Any]) -> BlockTiming:
    """Make a block of its cells; `ValueError` where one is missing or out of range."""
    _check(cells.keys() == set(_CELLS))
    values: dict[str, Any] = {
        name: str(cell) if name == "worker" else int(cell) for name, cell in cells.items()
    }
    for name, value in values.items():
        least = -(2**63) if name in _SIGNED else int(name == "n_frames")
        _check(name == "worker" or least <= value < 2**63)
    _check(values["start"] <= values["end"])
    return BlockTiming(**values)
