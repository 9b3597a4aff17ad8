"""Timings as a printed table."""

from collections.abc import Iterator, Mapping, Sequence

from paceline.timing.records import WorkerTiming

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
    columns = list(_COLUMNS)
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
