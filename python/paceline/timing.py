"""Who did what, when, for how long.

The quantities are those of Khoshlessan et al. 2020, Table 3, where they still exist here.
"""

import csv
import json
import math
import os
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace

from paceline.files import new_file

#: A worker whose seconds per frame exceed the median's by this factor is a straggler …
STRAGGLER = 1.5
#: … if its frames took so many seconds more than at the median's pace; less is chance.
NOTICEABLE = 0.1
#: Parts of a block, in the order in which they happen.
_PARTS = ("open", "read", "decode", "transform", "compute")


@dataclass(frozen=True, slots=True)
class BlockTiming:
    """What one block took. Times are nanoseconds; `start` and `end` those of the host's clock.

    Attributes
    ----------
    job, block, first_frame, n_frames : int
        The trajectory, where a run has several; the block, the number of its first frame, and its
        frames.
    worker : str
        host:process:thread.
    start, end : int
        When the worker took the block, and when it was done with it.
    wait : int
        Before `start`, since the worker was free.
    open, read, decode, transform, compute : int
        Opening the file, waiting for bytes, decoding, transforming positions, and the analyses'
        own time.
    comm : int
        From `end` until the results were in their place; the worker may be at its next block.
    bytes, calls : int
        Bytes read from the file, and in how many calls.
    """

    job: int
    block: int
    first_frame: int
    n_frames: int
    worker: str
    start: int
    end: int
    wait: int
    open: int
    read: int
    decode: int
    transform: int
    compute: int
    comm: int
    bytes: int
    calls: int


@dataclass(frozen=True, slots=True)
class WorkerTiming:
    """Sums over the blocks of one worker, seconds.

    The parts `t_init_traj`, `t_io`, `t_decode`, `t_transform`, `t_compute`, `t_wait` and
    `t_overhead` add up to the time from when blocks were first dealt until the last worker was
    done.

    Attributes
    ----------
    worker : str
        host:process:thread.
    n_blocks, n_frames : int
        What it did.
    t_init_traj : float
        Opening the file, s.
    t_io : float
        Reading, s. Bytes are fetched in the background ahead of it, so this is waiting alone.
    t_decode, t_transform, t_compute : float
        Decoding, transforming positions, and the analyses' own time, s.
    t_wait : float
        Idle, s: until the first block (a process must start), between blocks, and at the end.
    t_overhead : float
        The rest of the time at blocks, s.
    t_comm : float
        Returning results, s: mostly while the worker is at its next block, so no part of the sum.
    bytes, calls : int
        Bytes read from the file, and in how many calls.
    """

    worker: str
    n_blocks: int
    n_frames: int
    t_init_traj: float
    t_io: float
    t_decode: float
    t_transform: float
    t_compute: float
    t_wait: float
    t_overhead: float
    t_comm: float
    bytes: int
    calls: int

    @property
    def t_io_stall(self) -> float:
        """The part of reading that was not hidden, s: as the rest is not counted, `t_io`."""
        return self.t_io

    @property
    def seconds_per_frame(self) -> float:
        """Time at work per frame, s."""
        opening_and_reading = self.t_init_traj + self.t_io
        working = self.t_decode + self.t_transform + self.t_compute + self.t_overhead
        return (opening_and_reading + working) / max(self.n_frames, 1)


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
        blocks_of: dict[str, list[BlockTiming]] = {}
        for block in self.blocks:
            blocks_of.setdefault(block.worker, []).append(block)
        last = max((block.end for block in self.blocks), default=0)
        return [_sum_worker(name, blocks_of[name], self.dealt, last) for name in sorted(blocks_of)]

    def stragglers(self) -> list[WorkerTiming]:
        """Workers whose time per frame is over 1.5 times the median, by 0.1 s in all or more.

        Of two in the middle, the faster is the median: so one of two workers can be slow.
        """
        workers = self.workers()
        if len(workers) < 2:
            return []
        median = statistics.median_low(worker.seconds_per_frame for worker in workers)
        return [
            worker
            for worker in workers
            if worker.seconds_per_frame > STRAGGLER * median
            and (worker.seconds_per_frame - median) * worker.n_frames >= NOTICEABLE
        ]

    def to_csv(self, path: str | os.PathLike, *, overwrite: bool = False) -> None:
        """Write one line a block; times in nanoseconds.

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
            table = csv.DictWriter(file, BlockTiming.__slots__)
            table.writeheader()
            table.writerows(asdict(block) for block in self.blocks)

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
        names = sorted({block.worker for block in self.blocks})
        # Perfetto tells rows apart by number, and takes process 0 for the system's idle one.
        rows = {name: row for row, name in enumerate(names, start=1)}
        events = [_trace_name("process_name", 0, f"paceline, {self.backend}")]
        events += [_trace_name("thread_name", row, name) for name, row in rows.items()]
        for block in self.blocks:
            events.extend(_trace_events(block, rows[block.worker], self.start))
        with new_file(path, overwrite=overwrite) as file:
            json.dump({"traceEvents": events, "displayTimeUnit": "ms"}, file)

    def __str__(self) -> str:
        return "\n".join(_table(self))


def _sum_worker(name: str, blocks: Iterable[BlockTiming], dealt: int, last: int) -> WorkerTiming:
    """Sums over one worker's blocks; `dealt` and `last` are the ends of its wall time."""
    blocks = sorted(blocks, key=lambda block: block.start)
    parts = {key: sum(getattr(block, key) for block in blocks) for key in _PARTS}
    busy = sum(block.end - block.start for block in blocks)
    return WorkerTiming(
        worker=name,
        n_blocks=len(blocks),
        n_frames=sum(block.n_frames for block in blocks),
        t_init_traj=parts["open"] / 1e9,
        t_io=parts["read"] / 1e9,
        t_decode=parts["decode"] / 1e9,
        t_transform=parts["transform"] / 1e9,
        t_compute=parts["compute"] / 1e9,
        t_wait=(last - dealt - busy) / 1e9,
        t_overhead=(busy - sum(parts.values())) / 1e9,
        t_comm=sum(block.comm for block in blocks) / 1e9,
        bytes=sum(block.bytes for block in blocks),
        calls=sum(block.calls for block in blocks),
    )


def _trace_name(kind: str, row: int, name: str) -> dict:
    return {"ph": "M", "name": kind, "pid": 1, "tid": row, "args": {"name": name}}


def _trace_events(block: BlockTiming, row: int, origin: int) -> Iterator[dict]:
    """The block, and in it its parts one after another; microseconds."""
    common = {"ph": "X", "pid": 1, "tid": row}
    args = {"first frame": block.first_frame, "frames": block.n_frames, "bytes": block.bytes}
    start = (block.start - origin) / 1e3
    length = (block.end - block.start) / 1e3
    yield {**common, "name": f"block {block.block}", "ts": start, "dur": length, "args": args}
    for part in _PARTS:
        length = getattr(block, part) / 1e3
        yield {**common, "name": part, "ts": start, "dur": length}
        start += length


_COLUMNS = (
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


def _table(timings: Timings) -> Iterator[str]:
    """Lines of the printed table."""
    scale = {"µs/frame": 1e6, "MB read": 1e-6}
    slow = {worker.worker for worker in timings.stragglers()}
    rows: list[Sequence[str]] = [("worker", *(title for title, _, _ in _COLUMNS))]
    for worker in timings.workers():
        cells = [
            form.format(getattr(worker, key) * scale.get(title, 1)) for title, key, form in _COLUMNS
        ]
        rows.append((worker.worker + (" (straggler)" if worker.worker in slow else ""), *cells))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for name, *numbers in rows:
        cells = [cell.rjust(width) for cell, width in zip(numbers, widths[1:], strict=True)]
        yield "  ".join((name.ljust(widths[0]), *cells))
    opening = {"topology": timings.t_init_top, "trajectory": timings.t_init_traj}
    before = (f"{what} {t:.3f} s" for what, t in opening.items() if not math.isnan(t))
    yield "; ".join(
        (
            f"{timings.backend}: {timings.n_frames} frames in {timings.t_total:.3f} s",
            f"collecting results {timings.t_comm:.3f} s",
            *before,
        )
    )
