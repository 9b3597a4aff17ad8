"""Timings of one run, and the forms in which they are shown and saved."""

import csv
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import IO, Any, Self

from paceline._util.files import new_file
from paceline.errors import TimingsError
from paceline.performance.components import (
    ABANDONED,
    COMPUTE,
    DECODE,
    OPEN,
    OVERHEAD,
    READ,
    TRANSFORM,
    WAIT,
)
from paceline.performance.number_format import aligned
from paceline.performance.records import (
    PARTS,
    BlockTiming,
    DuplicateAttempt,
    RunTimings,
    moved,
)
from paceline.performance.stragglers import Straggler, find_stragglers


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
        facts, blocks, abandoned = _read_csv(path)
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
        from paceline.performance.html import save_report

        save_report(self, path, overwrite=overwrite)

    def _repr_html_(self) -> str:
        from paceline.performance.html import notebook_timings

        return notebook_timings(self)

    def __str__(self) -> str:
        return "\n".join((*_table(self), _last_line(self)))


#: Columns of the printed table: title, attribute of `WorkerTiming`, format and factor.
_COUNTS = (("blocks", "n_blocks", "{:d}", 1), ("frames", "n_frames", "{:d}", 1))
_SECONDS = tuple(
    (f"{part.label} s", part.quantity, "{:.3f}", 1)
    for part in (OPEN, READ, DECODE, TRANSFORM, COMPUTE, WAIT, ABANDONED, OVERHEAD)
)
_RATES = (
    ("µs/frame", "seconds_per_frame", "{:.1f}", 1e6),
    ("MB read", "bytes", "{:.1f}", 1e-6),
)


def _table(timings: Timings) -> Iterator[str]:
    """Yield lines of the printed table."""
    workers = timings.workers()
    slow = {one.worker: f" (straggler: {one.cause})" for one in timings.stragglers()}
    columns = [
        column
        for column in (*_COUNTS, *_SECONDS, *_RATES)
        if column[1] != ABANDONED.quantity or any(one.t_abandoned for one in workers)
    ]
    rows = [("worker", *(title for title, *_ in columns))]
    for worker in workers:
        cells = (form.format(getattr(worker, name) * factor) for _, name, form, factor in columns)
        rows.append((worker.worker + slow.get(worker.worker, ""), *cells))
    yield from aligned(rows)


def _last_line(timings: Timings) -> str:
    """Sum up the whole run in one line."""
    opening = {"topology": timings.t_init_top, "trajectory": timings.t_init_traj}
    n_frames = timings.n_frames
    return "; ".join(
        (
            f"{timings.backend}: {n_frames} frame{'s' * (n_frames != 1)} "
            f"in {timings.t_total:.3f} s",
            f"collecting results {timings.t_comm:.3f} s",
            *(f"{what} {t:.3f} s" for what, t in opening.items() if not math.isnan(t)),
        )
    )


def _chrome_trace(timings: Timings) -> dict[str, Any]:
    """Make a row for each worker, on it its blocks, and in these their parts."""
    attempts = [attempt.timing for attempt in timings.abandoned if attempt.timing.worker]
    names = sorted({timing.worker for timing in (*timings.blocks, *attempts)})
    # Perfetto tells rows apart by number, and takes process 0 for the system's idle one.
    rows = {name: row for row, name in enumerate(names, start=1)}
    events = [_trace_name("process_name", 0, f"paceline, {timings.backend}")]
    events += [_trace_name("thread_name", row, name) for name, row in rows.items()]
    for block in timings.blocks:
        events += _slices(f"block {block.block}", block, rows[block.worker], timings.start)
    for attempt in attempts:
        name = f"block {attempt.block}, abandoned"
        events += _slices(name, attempt, rows[attempt.worker], timings.start)
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _trace_name(kind: str, row: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": 1, "tid": row, "args": {"name": name}}


def _slices(name: str, timing: BlockTiming, row: int, origin: int) -> Iterator[dict[str, Any]]:
    """Yield the block, and in it its parts one after another; microseconds."""
    common = {"ph": "X", "pid": 1, "tid": row}
    args = {"first frame": timing.first_frame, "frames": timing.n_frames, "bytes": timing.bytes}
    start = (timing.start - origin) / 1e3
    length = (timing.end - timing.start) / 1e3
    yield {**common, "name": name, "ts": start, "dur": length, "args": args}
    for part in PARTS:
        length = getattr(timing, part) / 1e3
        yield {**common, "name": part, "ts": start, "dur": length}
        start += length


#: First line of a file of timings.
_FIRST_LINE = "# paceline: block timings, 1"
_COLUMNS = tuple(column.name for column in fields(BlockTiming))
#: Times of hosts' clocks may be less than zero; what is measured is not.
_SIGNED = ("start", "end")
#: Facts of the whole run and their types.
_FACTS = {
    one.name: type(one.default)
    for one in fields(Timings)
    if one.name not in ("blocks", "abandoned")
}

_Facts = dict[str, Any]


def _write_csv(file: IO[str], timings: Timings) -> None:
    """Write facts of the run, then a line a block.

    Attempts that do not count are in comments, so that sums over the lines count no frame twice.
    """
    facts = {name: getattr(timings, name) for name in _FACTS}
    print(_FIRST_LINE, file=file)
    for name, value in {**facts, "n_blocks": len(timings.blocks)}.items():
        print(f"# {name}: {json.dumps(value)}", file=file)
    for attempt in timings.abandoned:
        print(f"# abandoned: {json.dumps(asdict(attempt))}", file=file)
    table = csv.DictWriter(file, _COLUMNS, lineterminator="\n")
    table.writeheader()
    table.writerows(asdict(block) for block in timings.blocks)


def _read_csv(
    path: str | os.PathLike,
) -> tuple[_Facts, list[BlockTiming], list[DuplicateAttempt]]:
    """Read facts of the run, blocks that count, and attempts that do not."""
    with open(path, encoding="utf-8", newline="") as file:
        lines = _Lines(file)
        try:
            return _parse(lines)
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
    """Lines without their ends, and the number of the last one."""

    def __init__(self, file: IO[str]):
        self._file = file
        self.number = 0

    def __iter__(self) -> Iterator[str]:
        for line in self._file:
            self.number += 1
            yield line.rstrip("\r\n")


def _parse(lines: _Lines) -> tuple[_Facts, list[BlockTiming], list[DuplicateAttempt]]:
    facts: _Facts = {}
    abandoned: list[DuplicateAttempt] = []
    kinds = {**_FACTS, "n_blocks": int}
    rest = iter(lines)
    if (first := next(rest, "")) != _FIRST_LINE:
        raise _Unexpected(f"{_FIRST_LINE!r}, as in the timings that paceline writes", first)
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
    if missing := kinds.keys() - facts.keys() - {"n_chosen"}:  # which older files do not have
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
