"""Timings of a run: which worker computed which block, when, and how long it took.

The quantities are those of Khoshlessan et al. 2020, Table 3, as far as they apply.
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
from paceline.performance.time_breakdown_and_stragglers import Straggler, find_stragglers, report_of

__all__ = ["BlockTiming", "DuplicateAttempt", "Straggler", "Timings", "WorkerTiming"]


@dataclass
class Timings(RunTimings):
    """Timings of one run; printing it shows a table.

    Attributes
    ----------
    backend : str
        Name of the backend.
    start, dealt, end : int
        Times at which the run began, blocks were first assigned, and the run ended: ns of this
        host's clock.
    t_init_top, t_init_traj : float
        Times to parse the topology, and to open the trajectory and its index, once, before the
        run, s. NaN if paceline did not do it.
    t_comm : float
        Time to receive and merge results, s, in the process that collects them.
    blocks : list of BlockTiming
        Timing of every block, in the order in which results were collected.
    abandoned : list of DuplicateAttempt
        Attempts at blocks that other workers finished first.
    n_workers : int
        Number of workers for which blocks were planned; some workers may have got no block.
    schedule : str
        "dynamic", or "static" if each worker had a fixed share.
    trajectory : str
        Files that were read.
    bytes_used : int
        Total size of the decoded values that the analyses used, bytes.
    host, date, version : str
        Host, date (ISO 8601 with time zone) and version of paceline, at the start of the run.
    n_chosen : int
        Total number of selected frames; 0 for older files of timings, which lack it.

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
        """Add the times of an earlier part of this run, which was resumed.

        The earlier part took `elapsed` ns, of which collecting results took `t_comm` s. It is
        treated as if it had ended immediately before this part began.
        """
        self.start -= elapsed
        self.dealt -= elapsed
        self.t_comm += t_comm

    def shift_blocks(self, first: int, shift: int) -> None:
        """Shift the times of the blocks from `first` on by `shift` ns.

        These blocks are from an earlier part of the run, whose times are readings of another clock.
        """
        self.blocks[first:] = [moved(block, shift) for block in self.blocks[first:]]

    def stragglers(self) -> list[Straggler]:
        """Workers that are slow for their frames, sorted by lost time.

        A worker is slow if its time per frame exceeds 1.5 times the median, or 2 times that of the
        fastest quarter, and it loses at least 0.1 s in total. Of two middle values, the faster one
        is the median, so that one of two workers can be slow.
        """
        return find_stragglers(self)

    def to_csv(self, path: str | os.PathLike, *, overwrite: bool = False) -> None:
        """Write a CSV file: one line per block, with times in ns, after comments about the run.

        Parameters
        ----------
        path : path-like
            File to write.
        overwrite : bool
            Replace an existing file.

        Raises
        ------
        FileExistsError
            `path` exists and `overwrite` is False.
        """
        with new_file(path, overwrite=overwrite) as file:
            _write_csv(file, self)

    @classmethod
    def from_csv(cls, path: str | os.PathLike) -> Self:
        """Read timings that `to_csv` wrote.

        Parameters
        ----------
        path : path-like
            File to read.

        Returns
        -------
        Timings

        Raises
        ------
        FileNotFoundError
            The file does not exist.
        TimingsError
            The file does not contain timings, or is damaged.
        """
        return cls(**_read_csv(path))

    def to_chrome_trace(self, path: str | os.PathLike, *, overwrite: bool = False) -> None:
        """Write a trace for the viewers Perfetto (ui.perfetto.dev) and chrome://tracing.

        Parameters
        ----------
        path : path-like
            File to write.
        overwrite : bool
            Replace an existing file.

        Raises
        ------
        FileExistsError
            `path` exists and `overwrite` is False.
        """
        trace = _chrome_trace(self)
        with new_file(path, overwrite=overwrite) as file:
            json.dump(trace, file)

    def report(self, path: str | os.PathLike, *, overwrite: bool = False) -> None:
        """Write a report about the time of the run: figures, tables and advice.

        Parameters
        ----------
        path : path-like
            File to write: .html (one self-contained page), .png or .svg (its figures as one).
        overwrite : bool
            Replace an existing file.

        Raises
        ------
        FileExistsError
            `path` exists and `overwrite` is False.
        UnsupportedError
            The file extension is another one, or matplotlib is not installed.

        Examples
        --------
        >>> import tempfile, paceline
        >>> from MDAnalysisTests.datafiles import PSF, DCD
        >>> from paceline.analysis.rms import RMSF
        >>> protein = paceline.Universe(PSF, DCD).select_atoms("protein")
        >>> RMSF(protein).run().timings.report(f"{tempfile.mkdtemp()}/run.html")
        """
        # Imported here, because most runs need no report, and should not load its modules.
        from paceline.performance.report import save_report

        save_report(self, path, overwrite=overwrite)

    def _repr_html_(self) -> str:
        from paceline.performance.report import notebook_timings

        return notebook_timings(self)

    def __str__(self) -> str:
        lines = [*_table(self), _last_line(self)]
        if any(block.requests for block in self.blocks):
            from paceline.performance.report import requests_text

            lines.append(f"requests: {requests_text(report_of(self))}")
        return "\n".join(lines)


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
    """Yield the lines of the printed table: titles, then one line per worker."""
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
    """Summarise the whole run in one line."""
    times = {
        "collecting results": timings.t_comm,
        "topology": timings.t_init_top,
        "trajectory": timings.t_init_traj,
    }
    parts = (f"{what} {t:.3f} s" for what, t in times.items() if not math.isnan(t))
    frames = f"{timings.n_frames} frame{'s' * (timings.n_frames != 1)}"
    if timings.n_threads > 1:
        each = "" if timings.n_frames == 1 else "up to "
        frames += f" on {each}{timings.n_threads} threads" + (" each" if each else "")
    return "; ".join((f"{timings.backend}: {frames} in {timings.t_total:.3f} s", *parts))


def _chrome_trace(timings: Timings) -> dict[str, object]:
    """Return a trace with a row for each worker, which shows its blocks and their components."""
    named = [(f"block {one.block}", one) for one in timings.blocks]
    attempts = (attempt.timing for attempt in timings.abandoned if attempt.timing.worker)
    named += [(f"block {one.block}, abandoned", one) for one in attempts]
    # Perfetto identifies rows by number, and treats process 0 as the system's idle process.
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
    """Yield the trace events of a block and of its consecutive components; times in µs."""
    common = {"ph": "X", "pid": 1, "tid": row}
    args = {"first frame": timing.first_frame, "frames": timing.n_frames, "bytes": timing.bytes}
    start, length = (timing.start - origin) / 1e3, (timing.end - timing.start) / 1e3
    yield {**common, "name": name, "ts": start, "dur": length, "args": args}
    measured = asdict(timing)
    for part in PARTS:
        length = measured[part] / 1e3
        yield {**common, "name": part, "ts": start, "dur": length}
        start += length


#: First line of a file of timings; the names of its columns follow.
_FIRST_LINE = "# paceline: block timings, 1"
_CELLS = tuple(column.name for column in fields(BlockTiming))
#: Number of last columns that files of older versions may lack.
_N_NEW = 6
#: Facts of the run, written before the table, with their types; older files lack `n_chosen`.
_FACTS = {
    one.name: type(one.default)
    for one in fields(RunTimings)
    if one.name not in ("blocks", "abandoned")
} | {"n_blocks": int}
#: Columns that may be negative: times of hosts' clocks. Durations cannot be negative.
_SIGNED = ("start", "end")


def _write_csv(file: IO[str], timings: Timings) -> None:
    """Write facts of the run, then one line per block.

    Unused attempts are written as comments, so that sums over the lines count each frame once.
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
    """Read the arguments of `Timings` from a file."""
    reader = _Reader()
    try:
        with open(path, encoding="utf-8", newline="") as file:
            for line in file:
                reader.take(line.rstrip("\r\n"))
        return reader.finish()
    # JSON and UTF-8 errors are ValueErrors.
    except (csv.Error, RecursionError, TypeError, ValueError):
        raise TimingsError(
            f"{os.fspath(path)}: line {reader.number}: expected {reader.expected}, found "
            f"{shortened(reader.line, 60)!r}"
        ) from None


class _Reader:
    """Parser of the lines of a file of timings; raises `ValueError` for a damaged line."""

    def __init__(self) -> None:
        self.number, self.line = 0, ""
        #: Description of the line that is expected next.
        self.expected = f"{_FIRST_LINE!r}, as in the timings that paceline writes"
        self._facts: dict[str, object] = {}
        self._blocks: list[BlockTiming] = []
        self._abandoned: list[DuplicateAttempt] = []
        self._in_table = False
        self._columns: tuple[str, ...] = ()

    def take(self, line: str) -> None:
        """Read one line of the file; call it for all lines in order."""
        self.number, self.line = self.number + 1, line
        if self.number == 1:
            _check(line == _FIRST_LINE)
        elif self._in_table:
            n_columns = len(self._columns)
            self.expected = f"{n_columns} columns, whole numbers within range but for the worker"
            (cells,) = csv.reader([line])
            self._blocks.append(_block(dict(zip(self._columns, cells, strict=True))))
        elif line.startswith("# "):
            self._take_fact(*line[2:].partition(": ")[::2])
        else:
            missing = _FACTS.keys() - self._facts.keys() - {"n_chosen"}  # older files lack it
            self.expected = f"a line '# {min(missing, default='')}: ' before the table"
            _check(not missing)
            self.expected = "the names of the columns"
            self._columns = tuple(line.split(","))
            _check(self._columns in [_CELLS[: len(_CELLS) - k] for k in range(_N_NEW + 1)])
            self._in_table = True

    def _take_fact(self, name: str, text: str) -> None:
        if name == "abandoned":
            self.expected = "an attempt with its timing"
            attempt = json.loads(text)
            _check(attempt.keys() == {"timing", "came"} and type(attempt["came"]) is bool)
            self._abandoned.append(DuplicateAttempt(_block(attempt["timing"]), attempt["came"]))
            return
        self.expected = "a fact that this version of paceline supports"
        _check(name in _FACTS)
        self.expected = f"{name} as {_FACTS[name].__name__} in JSON"
        value = self._facts[name] = json.loads(text)
        _check(type(value) is _FACTS[name] and value not in (math.inf, -math.inf))

    def finish(self) -> dict[str, Any]:
        """Return the arguments of `Timings` after the last line."""
        n_blocks = self._facts.pop("n_blocks", 0)
        if self._in_table:
            self.expected = f"{n_blocks} blocks in place of {len(self._blocks)}"
        _check(self._in_table and len(self._blocks) == n_blocks)
        return {**self._facts, "blocks": self._blocks, "abandoned": self._abandoned}


def _check(right: bool) -> None:
    if not right:
        raise ValueError


def _block(cells: Mapping[str, Any]) -> BlockTiming:
    """Create a block from its cells; `ValueError` if a cell is missing or out of range."""
    _check(cells.keys() | set(_CELLS[-_N_NEW:]) == set(_CELLS))
    values: dict[str, Any] = {
        name: str(cell) if name == "worker" else int(cell) for name, cell in cells.items()
    }
    for name, value in values.items():
        least = -(2**63) if name in _SIGNED else int(name in ("n_frames", "threads"))
        _check(name == "worker" or least <= value < 2**63)
    _check(values["start"] <= values["end"])
    return BlockTiming(**values)
