"""Timings as a trace that Perfetto and chrome://tracing show."""

from collections.abc import Iterator, Sequence
from typing import Any

from paceline.timing.records import PARTS, Abandoned, BlockTiming


def trace_of(
    title: str, blocks: Sequence[BlockTiming], abandoned: Sequence[Abandoned], origin: int
) -> dict[str, Any]:
    """A row for each worker, on it its blocks, in these their parts.

    Parameters
    ----------
    title : str
        Of the whole.
    blocks : sequence of BlockTiming
        Every block that counts.
    abandoned : sequence of Abandoned
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
