"""Timings of one run."""

import csv
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import IO, Any, Self

from paceline._util.files import new_file
from paceline.errors import TimingsError
from paceline.performance.records import (
    PARTS,
    BlockTiming,
    DuplicateAttempt,
    WorkerTiming,
    sum_workers,
)
from paceline.performance.stragglers import Straggler, find_stragglers

_TABLE_COLUMNS = (
    ("blocks", "n_blocks", "{:d}"),
    ("frames", "n_frames", "{:d}"),
    ("open s", "t_init_traj", "{:.3f}"),
    ("read s", "t_io", "{:.3f}"),
    ("decode s", "t_decode", "{:.3f}"),
    ("transform s", "t_transform", "{:.3f}"),
    ("compute s", "t_compute", "{:.3f}"),
    ("wait s", "t_wait", "{:.3f}"),
    ("rest s", "t_overhead", "{:.3f}"),
    ("µs/frame", "seconds_per_frame", "{:.1f}"),
    ("MB read", "bytes", "{:.1f}"),
)
#: Only where there is something to tell.
_ABANDONED = ("abandoned s", "t_abandoned", "{:.3f}")
_SCALE = {"µs/frame": 1e6, "MB read": 1e-6}


def table(workers: Sequence[WorkerTiming], slow: Mapping[str, str]) -> Iterator[str]:
    """Lines of the printed table.

    Parameters
    ----------
    workers : sequence of WorkerTiming
        One a line.
    slow : mapping of str to str
        Workers that are stragglers, and why.

    Yields
    ------
    str
    """
    columns = list(_TABLE_COLUMNS)
    if any(worker.t_abandoned for worker in workers):
        columns.insert(-3, _ABANDONED)
    rows: list[Sequence[str]] = [("worker", *(title for title, _, _ in columns))]
    for worker in workers:
        cells = [
            form.format(getattr(worker, key) * _SCALE.get(title, 1)) for title, key, form in columns
        ]
        cause = slow.get(worker.worker)
        rows.append((worker.worker + (f" (straggler: {cause})" if cause else ""), *cells))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for name, *numbers in rows:
        cells = [cell.rjust(width) for cell, width in zip(numbers, widths[1:], strict=True)]
        yield "  ".join((name.ljust(widths[0]), *cells))


def trace_of(
    title: str, blocks: Sequence[BlockTiming], abandoned: Sequence[DuplicateAttempt], origin: int
) -> dict[str, Any]:
    """A row for each worker, on it its blocks, in these their parts.

    Parameters
    ----------
    title : str
        Of the whole.
    blocks : sequence of BlockTiming
        Every block that counts.
    abandoned : sequence of DuplicateAttempt
        Attempts that do not.
    origin : int
        Where the time axis begins, ns.

    Returns
    -------
    dict
        To be written as JSON.
    """
    attempts = [attempt.timing for attempt in abandoned if attempt.timing.worker]
    names = sorted({timing.worker for timing in (*blocks, *attempts)})
    # Perfetto tells rows apart by number, and takes process 0 for the system's idle one.
    rows = {name: row for row, name in enumerate(names, start=1)}
    events = [_name("process_name", 0, title)]
    events += [_name("thread_name", row, name) for name, row in rows.items()]
    for block in blocks:
        events.extend(_slices(f"block {block.block}", block, rows[block.worker], origin))
    for attempt in attempts:
        name = f"block {attempt.block}, abandoned"
        events.extend(_slices(name, attempt, rows[attempt.worker], origin))
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _name(kind: str, row: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": 1, "tid": row, "args": {"name": name}}


def _slices(name: str, timing: BlockTiming, row: int, origin: int) -> Iterator[dict[str, Any]]:
    """The block, and in it its parts one after another; microseconds."""
    common = {"ph": "X", "pid": 1, "tid": row}
    args = {"first frame": timing.first_frame, "frames": timing.n_frames, "bytes": timing.bytes}
    start = (timing.start - origin) / 1e3
    length = (timing.end - timing.start) / 1e3
    yield {**common, "name": name, "ts": start, "dur": length, "args": args}
    for part in PARTS:
        length = getattr(timing, part) / 1e3
        yield {**common, "name": part, "ts": start, "dur": length}
        start += length


#: By which such a file is known.
_KIND = "# paceline: block timings, 1"
_COLUMNS = tuple(column.name for column in fields(BlockTiming))
#: Times of hosts' clocks may be less than zero; what is measured is not.
_SIGNED = ("start", "end")

Facts = dict[str, Any]


def write_saved(
    file: IO[str],
    facts: Mapping[str, Any],
    blocks: Iterable[BlockTiming],
    abandoned: Iterable[DuplicateAttempt],
) -> None:
    """Write timings.

    Parameters
    ----------
    file : file object
        Text, to be written.
    facts : mapping of str to int, float or str
        Of the whole run.
    blocks : iterable of BlockTiming
        Every block that counts.
    abandoned : iterable of DuplicateAttempt
        Attempts that do not: in comments, so that sums over the lines count no frame twice.
    """
    blocks = list(blocks)
    print(_KIND, file=file)
    for name, value in {**facts, "n_blocks": len(blocks)}.items():
        print(f"# {name}: {json.dumps(value)}", file=file)
    for attempt in abandoned:
        print(f"# abandoned: {json.dumps(asdict(attempt))}", file=file)
    table = csv.DictWriter(file, _COLUMNS, lineterminator="\n")
    table.writeheader()
    table.writerows(asdict(block) for block in blocks)


def read_saved(
    path: str | os.PathLike, kinds: Mapping[str, type]
) -> tuple[Facts, list[BlockTiming], list[DuplicateAttempt]]:
    """Read timings back.

    Parameters
    ----------
    path : path-like
        What `write_saved` wrote.
    kinds : mapping of str to type
        Of each fact of the whole run.

    Returns
    -------
    facts : dict
        Of the whole run.
    blocks : list of BlockTiming
        Every block that counts.
    abandoned : list of DuplicateAttempt
        Attempts that do not.

    Raises
    ------
    FileNotFoundError
        There is no such file.
    TimingsError
        It is another file, or damaged.
    """
    with open(path, encoding="utf-8", newline="") as file:
        lines = _Lines(file)
        try:
            return _read(lines, {**kinds, "n_blocks": int})
        except _Unexpected as error:
            raise TimingsError(f"{os.fspath(path)}: line {lines.number}: {error}") from None
        except (UnicodeDecodeError, csv.Error) as error:
            raise TimingsError(
                f"{os.fspath(path)}: expected timings that paceline wrote, found no table: {error}"
            ) from None


class _Unexpected(Exception):
    def __init__(self, expected: str, found: str):
        shown = found if len(found) <= 60 else found[:57] + "..."
        super().__init__(f"expected {expected}, found {shown!r}")


class _Lines:
    """Lines without their ends, and which one was the last."""

    def __init__(self, file: IO[str]):
        self._file = file
        self.number = 0

    def __iter__(self) -> Iterator[str]:
        for line in self._file:
            self.number += 1
            yield line.rstrip("\r\n")


def _read(
    lines: _Lines, kinds: Mapping[str, type]
) -> tuple[Facts, list[BlockTiming], list[DuplicateAttempt]]:
    facts: Facts = {}
    abandoned: list[DuplicateAttempt] = []
    rest = iter(lines)
    if (first := next(rest, "")) != _KIND:
        raise _Unexpected(f"{_KIND!r}, as in the timings that paceline writes", first)
    for line in rest:
        if not line.startswith("# "):
            break
        name, _, value = line[2:].partition(": ")
        if name == "abandoned":
            abandoned.append(_attempt(value))
        else:
            facts[name] = _fact(name, value, kinds)
    else:
        line = ""
    if missing := kinds.keys() - facts.keys():
        raise _Unexpected(f"a line '# {min(missing)}: ' before the table", line)
    if line != ",".join(_COLUMNS):
        raise _Unexpected("the names of the columns", line)
    blocks = [_row(row) for row in csv.reader(rest)]
    n_blocks = facts.pop("n_blocks")
    if len(blocks) != n_blocks:
        raise _Unexpected(f"{n_blocks} blocks", f"{len(blocks)}")
    return facts, blocks, abandoned


def _fact(name: str, value: str, kinds: Mapping[str, type]) -> Any:
    if name not in kinds:
        raise _Unexpected("a fact that this version of paceline knows", name)
    fact = _json(value)
    if type(fact) is not kinds[name] or fact in (math.inf, -math.inf):
        raise _Unexpected(f"{name} as {kinds[name].__name__}", value)
    return fact


def _attempt(value: str) -> DuplicateAttempt:
    found = _json(value)
    match found:
        case {"timing": {**cells}, "came": bool(came)} if cells.keys() == set(_COLUMNS):
            return DuplicateAttempt(_block(cells), came)
    raise _Unexpected("an attempt with its timing", value)


def _json(value: str) -> Any:
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        raise _Unexpected("a value as JSON writes it", value) from None


def _row(cells: Sequence[str]) -> BlockTiming:
    if len(cells) != len(_COLUMNS):
        raise _Unexpected(f"{len(_COLUMNS)} columns", ",".join(cells))
    return _block(dict(zip(_COLUMNS, cells, strict=True)))


def _block(cells: Mapping[Any, Any]) -> BlockTiming:
    values: dict[str, Any] = {
        name: str(cell) if name == "worker" else _number(name, cell) for name, cell in cells.items()
    }
    block = BlockTiming(**values)
    if block.end < block.start:
        raise _Unexpected(f"an end after the start {block.start}", str(block.end))
    return block


def _number(name: str, cell: Any) -> int:
    try:
        number = int(cell)
    except (TypeError, ValueError):
        raise _Unexpected(f"a whole number as {name}", str(cell)) from None
    least = -(2**63) if name in _SIGNED else 1 if name == "n_frames" else 0
    if not least <= number < 2**63:
        raise _Unexpected(f"{name} from {least} to 2**63 - 1", str(cell))
    return number


@dataclass
class Timings:
    """Timings of one run; print it for a table.

    Attributes
    ----------
    backend : str
        Where blocks were computed.
    start, dealt, end : int
        When the run began, when blocks were first dealt, and when all was done: nanoseconds of
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

    backend: str = ""
    start: int = 0
    dealt: int = 0
    end: int = 0
    t_init_top: float = math.nan
    t_init_traj: float = math.nan
    t_comm: float = 0.0
    blocks: list[BlockTiming] = field(default_factory=list)
    abandoned: list[DuplicateAttempt] = field(default_factory=list)
    n_workers: int = 0
    schedule: str = "dynamic"
    trajectory: str = ""
    bytes_used: int = 0
    host: str = ""
    date: str = ""
    version: str = ""

    @property
    def t_total(self) -> float:
        """The whole run, s."""
        return (self.end - self.start) / 1e9

    @property
    def n_frames(self) -> int:
        """Frames analysed."""
        return sum(block.n_frames for block in self.blocks)

    def precede(self, elapsed: int, dealt: int, t_comm: float) -> None:
        """Count an earlier part of the run, whose blocks were put here, as if it ended just now.

        Parameters
        ----------
        elapsed : int
            How long that part took since it first dealt blocks, ns.
        dealt : int
            When it first dealt blocks, ns of its own clock.
        t_comm : float
            Receiving and merging results there, s.
        """
        self.start -= elapsed
        self.dealt -= elapsed
        shift = self.dealt - dealt
        self.blocks = [
            replace(block, start=block.start + shift, end=block.end + shift)
            for block in self.blocks
        ]
        self.t_comm += t_comm

    def workers(self) -> list[WorkerTiming]:
        """Sums for each worker, in the order of their names."""
        return sum_workers(self.blocks, self.abandoned, self.dealt)

    def stragglers(self) -> list[Straggler]:
        """Workers that are slow for their frames, those first that lost most time.

        Their time per frame is over 1.5 times the median, or over 2 times that of the fastest
        quarter, by 0.1 s in all or more. Of two in the middle, the faster is the median: so one
        of two workers can be slow.
        """
        static = self.schedule == "static"
        return find_stragglers(self.blocks, self.abandoned, dealt=self.dealt, static=static)

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
        facts = {name: getattr(self, name) for name in _kinds()}
        with new_file(path, overwrite=overwrite) as file:
            write_saved(file, facts, self.blocks, self.abandoned)

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
        facts, blocks, abandoned = read_saved(path, _kinds())
        return cls(**facts, blocks=blocks, abandoned=abandoned)

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
        trace = trace_of(f"paceline, {self.backend}", self.blocks, self.abandoned, self.start)
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
        # What shows timings knows them, so it is known here by name alone.
        from paceline.performance.html import save_report

        save_report(self, path, overwrite=overwrite)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield from table(self.workers(), {one.worker: one.cause for one in self.stragglers()})
        opening = {"topology": self.t_init_top, "trajectory": self.t_init_traj}
        before = (f"{what} {t:.3f} s" for what, t in opening.items() if not math.isnan(t))
        yield "; ".join(
            (
                f"{self.backend}: {self.n_frames} frame{'s' * (self.n_frames != 1)} "
                f"in {self.t_total:.3f} s",
                f"collecting results {self.t_comm:.3f} s",
                *before,
            )
        )


def _kinds() -> dict[str, type]:
    """What is known of a whole run, and of which type it is."""
    return {
        one.name: type(one.default)
        for one in fields(Timings)
        if one.name not in ("blocks", "abandoned")
    }
