"""Advice in plain words, with its numbers."""

import math
import os
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from paceline.files import size_in_words
from paceline.report.words import percent

if TYPE_CHECKING:
    from paceline.advice.advice import Advice
    from paceline.advice.formats import Recoded

#: Characters of a line of sentences.
WIDTH = 88
#: Another file is worth a word where it saves this part of the time.
WORTHWHILE = 0.2
#: What is read from memory should be there: but for so much.
RESIDENT = 0.95

_DOING = {
    "read": "reading bytes",
    "decode": "decoding frames",
    "transform": "transforming positions",
    "compute": "the analysis itself",
    "rest": "dealing blocks, and waiting for the interpreter",
}


def told(advice: "Advice") -> str:
    """All of it.

    Parameters
    ----------
    advice : Advice
        The numbers.

    Returns
    -------
    str
        Several paragraphs, without a line break at the end.
    """
    paragraphs = (_subject, _frame, _times, _verdict, _other_files, _elsewhere)
    texts = ("\n".join(map(_wrapped, part(advice))) for part in paragraphs)
    return "\n\n".join(filter(None, texts))


def _wrapped(line: str) -> str:
    """An item of a list on as many lines as it takes."""
    if not line.startswith("- "):
        return line
    return textwrap.fill(line, WIDTH, subsequent_indent="  ", break_on_hyphens=False)


def _subject(advice: "Advice") -> Iterator[str]:
    first, *more = map(os.path.basename, advice.files)
    names = f"{first} and {len(more)} more" if more else first
    about = "about " if advice.is_sample else ""
    size = f", {size_in_words(advice.size)}" if advice.size else ""
    yield (
        f"{advice.what} of {advice.n_wanted} of {advice.n_atoms} atoms in {about}"
        f"{advice.n_frames} frame{'s' * (advice.n_frames != 1)} of {names} ({advice.format}{size})"
    )
    workers = "1 worker" if advice.backend == "serial" else f"1 and 2 {advice.backend}"
    yield f"measured in {advice.seconds:.1f} s with {workers}, in the middle of the trajectory"
    if advice.is_sample:
        yield "the number of frames is estimated: the file has no index yet (paceline index)"
    yield from _where(advice)


def _where(advice: "Advice") -> Iterator[str]:
    """Where the bytes are."""
    resident = advice.findings.resident
    if resident is not None and resident < RESIDENT:
        yield f"only {percent(resident)} of what was read from memory is still there: it lacks room"
    if advice.cached is None:
        yield "how much of what it reads is in memory now is not known here"
    elif advice.findings.from_disk is None:
        yield (
            f"{percent(advice.cached)} of what it reads is in memory now; how fast the rest comes "
            "from the disk could not be measured"
        )
    else:
        yield f"{percent(advice.cached)} of what it reads is in memory now"


def _frame(advice: "Advice") -> Iterator[str]:
    """What a frame costs."""
    columns = {"memory": advice.findings.in_memory}
    if advice.findings.from_disk is not None:
        columns["disk"] = advice.findings.from_disk
    counts = (1,) if advice.backend == "serial" else (1, 2)
    heads = [f"{where} ×{n}" for where in columns for n in counts]
    costs = [pace.costs(n) for pace in columns.values() for n in counts]
    rows = [(name, *(f"{one.parts[name] * 1e6:.1f}" for one in costs)) for name in costs[0].parts]
    rows.append(("all", *(f"{one.seconds * 1e6:.1f}" for one in costs)))
    yield from _aligned([("µs a frame, from, × workers", *heads), *rows])
    yield f"{size_in_words(round(advice.findings.in_memory.one.n_bytes))} are read of a frame"
    if advice.rates is not None:
        one, two = (f"{rate / 1e6:.0f} MB/s" for rate in advice.rates)
        yield f"one reader gets {one} from the disk, two together {two}"


def _times(advice: "Advice") -> Iterator[str]:
    """The whole run."""
    heads = ["workers", "from memory", "from the disk", "now", "efficiency"]
    rows = [
        (str(n), *(_seconds(value) for value in times), f"{efficiency:.2f}")
        for n, *times, efficiency in advice.rows()
    ]
    yield from _aligned([tuple(heads), *rows])


def _verdict(advice: "Advice") -> Iterator[str]:
    """What bounds it, and how many workers pay off."""
    costs, best = advice.costs, advice.n_workers
    share = costs.parts[advice.bound] / costs.seconds
    yield f"- {percent(share)} of the time of {_each(best)} is {_DOING[advice.bound]}."
    if advice.waits and advice.bound == "compute":
        yield (
            "- The analysis waits for something other than a processor: more workers than the "
            f"{advice.cpus} CPUs pay off."
        )
    if advice.backend != "serial":
        yield _paying(advice)
    yield from _lock(advice)


def _paying(advice: "Advice") -> str:
    best = advice.n_workers
    time = f"{_seconds(advice.t_total(best))}"
    beyond = [n for n in advice.workers if n > best]
    if beyond:
        more = (
            f"with {beyond[0]} ({_seconds(advice.t_total(beyond[0]))}) each would do "
            f"{percent(advice.efficiency(beyond[0]))} of what one does alone"
        )
    elif best > 2:
        more = "beyond 2 this is estimated"
    else:
        more = f"this process may use {advice.cpus} CPUs"
    workers = "1 worker pays" if best == 1 else f"{best} workers pay"
    return f"- {workers} off: {time}; {more}."


def _lock(advice: "Advice") -> Iterator[str]:
    """Threads that hold each other up, and whether processes do not."""
    processes = advice.findings.processes
    if processes is None:
        return
    threads = advice.findings.in_memory
    slower = threads.two.costs.compute / threads.one.costs.compute
    one = f"Each of two threads computes for {slower:.1f} times as long as one alone"
    by_processes = advice.forecast.t_total(processes, 2)
    by_threads = advice.t_total(2, "memory")
    start = f"{_seconds(processes.two.fixed)} for their start among it"
    if by_processes < by_threads:
        yield (
            f"- {one}: it needs Python's interpreter, which threads share. 2 processes would take "
            f"{_seconds(by_processes)} in place of {_seconds(by_threads)}, {start}: "
            "backend processes."
        )
    elif processes.two.costs.seconds < threads.two.costs.seconds / (1 + WORTHWHILE):
        yield (
            f"- {one}: it needs Python's interpreter, which threads share. Processes would not, "
            f"but 2 of them would take {_seconds(by_processes)} of so short a run, {start}."
        )
    else:
        yield f"- {one}, and so does each of two processes: other work slows this machine down."


def _other_files(advice: "Advice") -> Iterator[str]:
    """Other formats and layouts."""
    if not advice.others:
        return
    best = advice.n_workers
    heads = (f"with {_workers(best)}", "size", "read a frame", "from memory")
    here = (
        f"this file ({advice.format})",
        size_in_words(advice.size),
        size_in_words(round(advice.findings.in_memory.one.n_bytes)),
        _seconds(advice.t_total(best, "memory")),
        _seconds(advice.t_total(best, "disk")),
        "-",
    )
    rows = [
        (
            _name(file),
            size_in_words(round(file.frame_bytes * advice.n_frames)),
            size_in_words(round(file.n_bytes)),
            _seconds(advice.t_other(file, "memory")),
            _seconds(advice.t_other(file, "disk")),
            _seconds(advice.t_convert(file)),
        )
        for file in advice.others
    ]
    yield from _aligned([(*heads, "from the disk", "to make it"), here, *rows])
    yield ""
    yield from _best_file(advice)
    yield _splitting(advice)


def _best_file(advice: "Advice") -> Iterator[str]:
    """The file that would save most, if one does."""
    # Files of which the disk's part is not known are compared by the rest.
    from_disk = advice.pace is advice.findings.from_disk and advice.rates is not None
    where = "disk" if from_disk else "memory"
    now = advice.t_total(advice.n_workers, where)
    best = min(advice.others, key=lambda file: advice.t_other(file, where))
    saved = now - advice.t_other(best, where)
    if saved < WORTHWHILE * now:
        yield f"- No other file would save more than {percent(WORTHWHILE)} of the time."
        return
    runs = math.ceil(advice.t_convert(best) / saved)
    after = f"from run {runs + 1} on" if runs > 1 else "with the second run"
    rounded = ", positions rounded to 0.01 Å" if best.format == "XTC" != advice.format else ""
    yield (
        f"- {_name(best)}{rounded}, would take {_seconds(now - saved)} in place of "
        f"{_seconds(now)}; making it costs {_seconds(advice.t_convert(best))} and what the disk "
        f"takes to write it, and pays off {after}."
    )


def _splitting(advice: "Advice") -> str:
    opening = _seconds(advice.findings.in_memory.two.opening)
    return (
        "- Splitting the file would change nothing on this machine: workers read one file side by "
        f"side, and opening it takes each {opening}."
    )


def _elsewhere(advice: "Advice") -> Iterator[str]:
    """What one machine cannot tell."""
    one = advice.findings.in_memory.one
    costs = one.costs
    computing = costs.compute + costs.transform + costs.rest
    yield "How a file system serves several nodes cannot be known from one; with its figures, try"
    yield (
        f"  paceline predict --frames {advice.n_frames} --bytes {one.n_bytes:.0f} "
        f"--decode {_given(costs.decode)} --compute {_given(computing)} \\\n"
        "    --file-system lustre --layout shared split --per-node 24 --n-workers 384"
    )


def _name(file: "Recoded") -> str:
    return f"{file.format}, {'selected' if file.selected else 'all'} atoms"


def _workers(n: int) -> str:
    return "1 worker" if n == 1 else f"{n} workers"


def _each(n: int) -> str:
    return "the worker" if n == 1 else f"each of {n} workers"


def _seconds(value: float) -> str:
    """A time that a person can take in."""
    if math.isnan(value):
        return "-"
    if value < 0.1:
        return f"{value * 1e3:.1f} ms"
    if value < 100:
        return f"{value:.2f} s" if value < 10 else f"{value:.1f} s"
    if value < 6000:
        return f"{value / 60:.1f} min"
    return f"{value / 3600:.1f} h"


def _given(value: float) -> str:
    """A time as `paceline predict` takes it."""
    unit, factor = ("us", 1e6) if value < 1e-3 else ("ms", 1e3) if value < 1 else ("s", 1.0)
    return f"{float(f'{value * factor:.3g}'):g}{unit}"


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *others in rows:
        cells = (cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))
        yield "  ".join((first.ljust(widths[0]), *cells))
