"""Who did what, when, for how long.

The quantities are those of Khoshlessan et al. 2020, Table 3, where they still exist here.
"""

import csv
import itertools
import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field

import numpy as np

from paceline.files import new_file

#: A worker whose seconds per frame exceed the median's by this factor is a straggler.
STRAGGLER = 1.5


@dataclass(frozen=True, slots=True)
class BlockTiming:
    """What one block took. Times are nanoseconds; `start` and `end` those of the host's clock.

    Attributes
    ----------
    block, first_frame, n_frames : int
        The block, the number of its first frame, and its frames.
    worker : str
        host:process:thread.
    start, end : int
    open, read, decode, compute : int
        Opening the file, waiting for bytes, decoding, and the analyses' own time.
    bytes, calls : int
        Read from the file.
    """

    block: int
    first_frame: int
    n_frames: int
    worker: str
    start: int
    end: int
    open: int
    read: int
    decode: int
    compute: int
    bytes: int
    calls: int


@dataclass(frozen=True, slots=True)
class WorkerTiming:
    """Sums over the blocks of one worker, seconds.

    `t_io` is what reading took. Bytes are fetched in the background ahead of it, so all of it
    was spent waiting: `t_io_stall` is the same number. `t_wait` is the time between blocks and
    until the last worker ended; `t_overhead` the rest.
    """

    worker: str
    n_blocks: int
    n_frames: int
    t_init_traj: float
    t_io: float
    t_decode: float
    t_compute: float
    t_wait: float
    t_overhead: float
    bytes: int
    calls: int

    @property
    def t_io_stall(self) -> float:
        """The part of reading that was not hidden, seconds."""
        return self.t_io

    @property
    def seconds_per_frame(self) -> float:
        """Time at work per frame."""
        busy = self.t_init_traj + self.t_io + self.t_decode + self.t_compute + self.t_overhead
        return busy / max(self.n_frames, 1)


@dataclass
class Timings:
    """Timings of one run; print it for a table.

    Attributes
    ----------
    backend : str
    start, end : int
        Of the whole run, nanoseconds of this host's clock.
    t_init_traj : float
        Opening the trajectory and its index, seconds, once.
    t_comm : float
        Receiving and merging results, seconds, in the process that collects them.
    blocks : list of BlockTiming
    """

    backend: str = ""
    start: int = 0
    end: int = 0
    t_init_traj: float = 0.0
    t_comm: float = 0.0
    blocks: list[BlockTiming] = field(default_factory=list)

    @property
    def t_total(self) -> float:
        """The whole run, seconds."""
        return (self.end - self.start) / 1e9

    @property
    def n_frames(self) -> int:
        """Frames analysed."""
        return sum(block.n_frames for block in self.blocks)

    def workers(self) -> list[WorkerTiming]:
        """Sums for each worker, in the order of their names."""
        blocks_of: dict[str, list[BlockTiming]] = {}
        for block in self.blocks:
            blocks_of.setdefault(block.worker, []).append(block)
        last = max((block.end for block in self.blocks), default=0)
        return [_sum_worker(name, blocks_of[name], last) for name in sorted(blocks_of)]

    def stragglers(self) -> list[WorkerTiming]:
        """Workers whose seconds per frame exceed 1.5 times the median."""
        workers = self.workers()
        if len(workers) < 2:
            return []
        median = np.median([worker.seconds_per_frame for worker in workers])
        return [w for w in workers if w.seconds_per_frame > STRAGGLER * median]

    def to_csv(self, path: str | os.PathLike, *, overwrite: bool = False) -> None:
        """Write one line a block; times in nanoseconds.

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
        """Write a trace that Perfetto and chrome://tracing show.

        Raises
        ------
        FileExistsError
            `path` exists and is not to be overwritten.
        """
        rows = {name: row for row, name in enumerate(sorted({b.worker for b in self.blocks}))}
        events: list[dict] = [
            {"ph": "M", "name": "thread_name", "pid": 0, "tid": row, "args": {"name": name}}
            for name, row in rows.items()
        ]
        for block in self.blocks:
            events.extend(_trace_events(block, rows[block.worker], self.start))
        with new_file(path, overwrite=overwrite) as file:
            json.dump({"traceEvents": events, "displayTimeUnit": "ms"}, file)

    def __str__(self) -> str:
        return "\n".join(_table(self))


def _sum_worker(name: str, blocks: Iterable[BlockTiming], last: int) -> WorkerTiming:
    blocks = sorted(blocks, key=lambda block: block.start)
    idle = sum(b.start - a.end for a, b in itertools.pairwise(blocks))
    parts = {key: sum(getattr(b, key) for b in blocks) for key in _PARTS}
    busy = sum(block.end - block.start for block in blocks)
    return WorkerTiming(
        worker=name,
        n_blocks=len(blocks),
        n_frames=sum(block.n_frames for block in blocks),
        t_init_traj=parts["open"] / 1e9,
        t_io=parts["read"] / 1e9,
        t_decode=parts["decode"] / 1e9,
        t_compute=parts["compute"] / 1e9,
        t_wait=max(idle + last - blocks[-1].end, 0) / 1e9,
        t_overhead=max(busy - sum(parts.values()), 0) / 1e9,
        bytes=sum(block.bytes for block in blocks),
        calls=sum(block.calls for block in blocks),
    )


_PARTS = ("open", "read", "decode", "compute")


def _trace_events(block: BlockTiming, row: int, origin: int) -> Iterable[dict]:
    """The block, and in it its parts one after another; microseconds."""
    common = {"ph": "X", "pid": 0, "tid": row}
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
    ("compute s", "t_compute", "{:.3f}"),
    ("wait s", "t_wait", "{:.3f}"),
    ("rest s", "t_overhead", "{:.3f}"),
    ("µs/frame", "seconds_per_frame", "{:.1f}"),
    ("MB read", "bytes", "{:.1f}"),
)


def _table(timings: Timings) -> Iterable[str]:
    """Lines of the printed table."""
    scale = {"µs/frame": 1e6, "MB read": 1e-6}
    slow = {worker.worker for worker in timings.stragglers()}
    rows = [("worker", *(title for title, _, _ in _COLUMNS))]
    for worker in timings.workers():
        cells = [
            form.format(getattr(worker, key) * scale.get(title, 1)) for title, key, form in _COLUMNS
        ]
        rows.append((worker.worker + (" (straggler)" if worker.worker in slow else ""), *cells))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for name, *cells in rows:
        numbers = (cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True))
        yield "  ".join((name.ljust(widths[0]), *numbers))
    yield (
        f"{timings.backend}: {timings.n_frames} frames in {timings.t_total:.3f} s; "
        f"opening {timings.t_init_traj:.3f} s, collecting results {timings.t_comm:.3f} s"
    )
