"""Advice about a run: its time, what bounds it, and what would help; measured in some seconds."""

import math
import os
import textwrap
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from paceline._util.arguments import one_of
from paceline._util.choices import FORECAST, ON_ERROR
from paceline._util.machine import available_cpus
from paceline.contract.transforms import Transform
from paceline.errors import UnsupportedError
from paceline.performance.components import AT_BLOCKS
from paceline.performance.number_format import aligned, amount, percent
from paceline.runner import analyses_of
from paceline.scaling.sample_forecast import (
    Findings,
    Forecast,
    Pace,
    Recoded,
    is_wide_range,
    measure,
    recoded,
)
from paceline.scaling.sample_run import Costs, Outline, SampleRun, disk_rates, open_samples
from paceline.schedule.plan import choose_frames

__all__ = ["Advice", "Outline", "advise", "open_samples"]

#: More workers pay off as long as each does so much of what one alone does.
EFFICIENT = 0.7
#: An analysis that wants no processor for more than this part of the time waits.
WAITING = 0.5
#: Workers for each processor that are asked about where they wait.
PER_CPU_WAITING = 8
#: From so much in memory on, blocks of all of the run are measured.
EVERYWHERE = 0.99
#: Characters of a line of sentences.
WIDTH = 88
#: Another file is worth a word where it saves this part of the time.
WORTHWHILE = 0.2
#: Part of what is read from memory that should be there.
RESIDENT = 0.95
#: CPUs that others keep busy are worth a word from here on.
BUSY = 0.2

#: Components of a frame's cost in sentences.
_ACTIVITIES = {part.label: part.activity for part in AT_BLOCKS}


def is_resident(cached: float | None) -> bool:
    """Return whether all of the run can be measured from memory."""
    return cached is not None and cached >= EVERYWHERE


@dataclass(frozen=True)
class Advice:
    """Advice about a run: its time by number of workers, and what would help; print it for text.

    Attributes
    ----------
    what : str
        The analyses.
    files : tuple of str
        The trajectory.
    format : str
        Of the first file.
    size : int
        Of all files, bytes.
    n_atoms, n_wanted : int
        Atoms of a frame, and those that are decoded.
    n_frames : int
        Frames of the run; estimated if `is_sample`.
    is_sample : bool
        Whether the file has no index yet, and only frames in its middle were looked for.
    cached : float or None
        Share of what the run reads that was in memory before, from 0 to 1; None where it is
        unknown.
    findings : Findings
        Results of the sample runs.
    rates : tuple of float or None
        Bytes a second that one reader gets from the disk, and two together.
    forecast : Forecast
        Arithmetic that predicts times from these.
    others : tuple of Recoded
        The same frames in other files.
    cpus : int
        CPUs that this process may use.
    asked : int or None
        Workers that the user asked about.
    seconds : float
        Time that all this took.
    """

    what: str
    files: tuple[str, ...]
    format: str
    size: int
    n_atoms: int
    n_wanted: int
    n_frames: int
    is_sample: bool
    cached: float | None
    findings: Findings
    rates: tuple[float, float] | None
    forecast: Forecast
    others: tuple[Recoded, ...]
    cpus: int
    asked: int | None
    seconds: float

    @property
    def backend(self) -> str:
        """Backend that blocks would be computed on."""
        return self.findings.backend

    @property
    def waits(self) -> bool:
        """True where the analysis waits for something that is no processor."""
        return self.findings.waiting > WAITING

    @cached_property
    def workers(self) -> tuple[int, ...]:
        """Numbers of workers that are asked about."""
        if self.backend == "serial":
            return (1,)
        most = self.cpus * (PER_CPU_WAITING if self.waits else 1)
        powers = {2**k for k in range(most.bit_length())}
        return tuple(sorted(powers | {2, self.cpus} | ({self.asked} if self.asked else set())))

    def t_total(self, n_workers: int, file: str = "now") -> float:
        """Predict how long the run would take.

        Parameters
        ----------
        n_workers : int
            Workers.
        file : {"now", "memory", "disk"}
            Where its bytes are: as much in memory as now, all of them, or none.

        Returns
        -------
        float
            Seconds; of "disk" NaN where that could not be measured.
        """
        return sum(
            share * self.forecast.t_total(pace, n_workers) if pace else math.nan
            for pace, share in self._paces(file)
        )

    def t_range(self, n_workers: int, file: str = "now") -> tuple[float, float]:
        """Predict between which times the run would take, in nine cases of ten.

        Parameters
        ----------
        n_workers : int
            Workers.
        file : {"now", "memory", "disk"}
            As for `t_total`.

        Returns
        -------
        tuple of float
            Seconds, at least and at most; of "disk" NaN where that could not be measured.
        """
        low = high = 0.0
        for pace, share in self._paces(file):
            ends = self.forecast.t_range(pace, n_workers) if pace else (math.nan, math.nan)
            low, high = low + share * ends[0], high + share * ends[1]
        return low, high

    def _paces(self, file: str) -> list[tuple[Pace | None, float]]:
        """Costs of frames where the bytes are, and their shares of the run."""
        memory, disk = self.findings.in_memory, self.findings.from_disk
        if file == "memory" or (file == "now" and self._share == 1):
            return [(memory, 1.0)]
        if file == "disk":
            return [(disk, 1.0)]
        one_of("file", file, "now", "memory", "disk")
        return [(memory, self._share), (disk, 1 - self._share)]

    @property
    def _share(self) -> float:
        """Share of the bytes that is taken to be in memory."""
        return 1.0 if self.cached is None or self.findings.from_disk is None else self.cached

    def efficiency(self, n_workers: int) -> float:
        """Work of each of so many workers over that of one alone."""
        return self.t_total(1) / (n_workers * self.t_total(n_workers))

    @cached_property
    def n_workers(self) -> int:
        """The most workers that pay off: each does 0.7 or more of what one alone does."""
        best = 1
        for n_workers in self.workers:
            if self.efficiency(n_workers) < EFFICIENT:
                break
            best = n_workers
        return best

    @property
    def pace(self) -> Pace:
        """Cost of frames where most bytes are now."""
        disk = self.findings.from_disk
        return self.findings.in_memory if disk is None or self._share >= 0.5 else disk

    @property
    def costs(self) -> Costs:
        """Cost of a frame for one of `n_workers`, now."""
        return self.pace.costs(self.n_workers)

    @property
    def bound(self) -> str:
        """Largest part of a worker's time: "read", "decode", "transform", "compute" or "rest"."""
        parts = self.costs.parts
        return max(parts, key=parts.__getitem__)

    def t_other(self, file: Recoded, where: str) -> float:
        """Predict how long the run would take on another file, by `n_workers`.

        Parameters
        ----------
        file : Recoded
            Of `others`.
        where : {"memory", "disk"}
            Where its bytes are.

        Returns
        -------
        float
            Seconds; of "disk" NaN where that could not be measured.
        """
        rate = None
        if where == "disk":
            if self.rates is None:
                return float("nan")
            rate = self.rates[min(self.n_workers, 2) - 1]
        return self.forecast.t_recoded(self.findings.in_memory, file, self.n_workers, rate)

    def t_convert(self, file: Recoded) -> float:
        """Time to make another file by `n_workers`, s, but for what the disk takes to write it."""
        decoding = self.forecast.t_convert(file, self.n_workers)
        if self.rates is None or self.cached is None:
            return decoding
        from_disk = (1 - self.cached) * self.size / self.rates[min(self.n_workers, 2) - 1]
        return max(decoding, from_disk)

    def rows(self) -> Sequence[tuple[int, float, float, float, float, float, float]]:
        """Workers; seconds in memory, from the disk, now, at least and at most; efficiency."""
        return [
            (
                n,
                self.t_total(n, "memory"),
                self.t_total(n, "disk"),
                self.t_total(n),
                *self.t_range(n),
                self.efficiency(n),
            )
            for n in self.workers
        ]

    def __str__(self) -> str:
        return _text(self)


def advise(
    analyses: Any,
    *,
    backend: str | None = None,
    n_workers: int | None = None,
    start: int | None = None,
    stop: int | None = None,
    step: int | None = None,
    frames: Sequence[int] | np.ndarray | None = None,
    transforms: Sequence[Transform] = (),
    on_error: str = "raise",
) -> Advice:
    """Measure in some seconds what a run would take, what bounds it, and what would help.

    A few blocks are analysed by one worker and by two, from memory and from the disk, and the whole
    run is predicted from that (see `paceline.model`). They are from all of the run where all of it
    is in memory, and else from its middle. The analyses are left as they are.

    Parameters
    ----------
    analyses : analysis or sequence of analyses
        As for `paceline.run`, of one Universe.
    backend : {"threads", "processes", "serial"}, optional
        Where blocks of frames would be computed; "threads" by default. Where threads hold each
        other up, processes are tried as well.
    n_workers : int, optional
        Workers that are asked about, beside 1, 2, 4 … up to the CPUs that this process may use.
    start, stop, step : int, optional
        Frames, as in a slice.
    frames : sequence of int or of bool, optional
        Frames one by one, instead of a slice.
    transforms : sequence of transformations
        What is done to positions first.
    on_error : {"raise", "skip"}
        What to do with a frame that cannot be read or transformed.

    Returns
    -------
    Advice
        Print it for the text; its attributes are the numbers.

    Raises
    ------
    UnsupportedError
        Another backend, several Universes, or an analysis that writes a file or passes over the
        frames several times.
    ValueError
        No frames, or fewer than one worker.

    Examples
    --------
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import PSF, DCD
    >>> from paceline.analysis.rms import RMSD
    >>> advice = paceline.advise(RMSD(paceline.Universe(PSF, DCD), select="name CA"))
    >>> advice.n_frames, advice.format, advice.workers[:2]
    (98, 'DCD', (1, 2))
    """
    begun = time.perf_counter()
    one_of("on_error", on_error, *ON_ERROR)
    if n_workers is not None and n_workers < 1:
        raise ValueError(f"n_workers must be at least 1, not {n_workers}")
    if backend not in (None, *FORECAST):
        raise UnsupportedError(
            f"advice is about workers of this machine ({', '.join(FORECAST)}), not {backend!r}; "
            f"paceline.model.predict tells of others"
        )
    asked = analyses_of(analyses)
    universe = asked[0].atomgroup.universe
    if any(one.atomgroup.universe is not universe for one in asked):
        raise UnsupportedError("advice is about the analyses of one Universe at a time")
    chosen = choose_frames(Outline.of(universe.trajectory).n_frames, start, stop, step, frames)
    sample = SampleRun(asked, transforms, chosen, skip_damaged=on_error == "skip")
    if not sample.trajectory.shareable:
        backend = "serial"
    # Before anything is read or let go of.
    cached = sample.in_memory_now()
    forecast = Forecast(len(chosen), sample.block_frames)
    findings = measure(sample, backend or FORECAST[0], forecast, everywhere=is_resident(cached))
    what = " and ".join(one.name for one in asked)
    return _advice(sample, findings, what, forecast, cached, n_workers, begun)


def _advice(
    sample: SampleRun,
    findings: Findings,
    what: str,
    forecast: Forecast,
    cached: float | None,
    n_workers: int | None,
    begun: float,
) -> Advice:
    """Put together all that was measured."""
    trajectory = sample.trajectory
    chain = getattr(trajectory, "chain", None)
    sizes = {} if chain is None else {file.path: file.size for file in chain.files}
    largest = max(sizes, key=sizes.__getitem__, default=None)
    return Advice(
        what=what,
        files=tuple(sizes) or (str(trajectory.provenance()["trajectory"]),),
        format="read by MDAnalysis" if chain is None else chain.files[0].format,
        size=sum(sizes.values()),
        n_atoms=trajectory.n_atoms,
        n_wanted=sample.source.n_wanted,
        n_frames=forecast.n_frames,
        is_sample=sample.is_sample,
        cached=cached,
        findings=findings,
        rates=None if largest is None else disk_rates(largest),
        forecast=forecast,
        others=tuple([] if chain is None else recoded(chain, sample.source, sample.middle(64))),
        cpus=available_cpus(),
        asked=n_workers,
        seconds=time.perf_counter() - begun,
    )


def _text(advice: Advice) -> str:
    """Write advice about a run in several paragraphs, without a line break at the end."""
    paragraphs = (_subject, _frame, _times, _verdict, _other_files, _elsewhere)
    texts = ("\n".join(map(_wrapped, part(advice))) for part in paragraphs)
    return "\n\n".join(filter(None, texts))


def _wrapped(line: str) -> str:
    """Wrap an item of a list."""
    if not line.startswith("- "):
        return line
    return textwrap.fill(line, WIDTH, subsequent_indent="  ", break_on_hyphens=False)


def _subject(advice: Advice) -> Iterator[str]:
    first, *more = map(os.path.basename, advice.files)
    names = f"{first} and {len(more)} more" if more else first
    about = "about " if advice.is_sample else ""
    size = f", {amount(advice.size)}" if advice.size else ""
    yield (
        f"{advice.what} of {advice.n_wanted} of {advice.n_atoms} atoms in {about}"
        f"{advice.n_frames} frame{'s' * (advice.n_frames != 1)} of {names} ({advice.format}{size})"
    )
    workers = "1 worker" if advice.backend == "serial" else f"1 and 2 {advice.backend}"
    places = "all over the run" if is_resident(advice.cached) else "in the middle of the trajectory"
    yield f"measured in {advice.seconds:.1f} s with {workers}, {places}"
    if advice.is_sample:
        yield "the number of frames is estimated: the file has no index yet (paceline index)"
    yield from _where(advice)
    others = advice.findings.others
    if others is not None and others > BUSY:
        yield f"meanwhile other programs kept {others:.1f} CPUs busy; it is assumed that they go on"


def _where(advice: Advice) -> Iterator[str]:
    """Say where the bytes are."""
    resident = advice.findings.resident
    if resident is not None and resident < RESIDENT:
        yield f"only {percent(resident)} of what was read from memory is still there: it lacks room"
    if advice.cached is None:
        yield "how much of what it reads is in memory now is not known here"
    elif advice.findings.from_disk is None:
        yield (
            f"{percent(advice.cached)} of what it reads is in memory now; the disk could not be "
            "measured"
        )
    else:
        yield f"{percent(advice.cached)} of what it reads is in memory now"


def _frame(advice: Advice) -> Iterator[str]:
    """Table of what a frame costs."""
    columns = {"memory": advice.findings.in_memory}
    if advice.findings.from_disk is not None:
        columns["disk"] = advice.findings.from_disk
    counts = (1,) if advice.backend == "serial" else (1, 2)
    heads = [f"{where} ×{n}" for where in columns for n in counts]
    costs = [pace.costs(n) for pace in columns.values() for n in counts]
    rows = [(name, *(f"{one.parts[name] * 1e6:.1f}" for one in costs)) for name in costs[0].parts]
    rows.append(("all", *(f"{one.seconds * 1e6:.1f}" for one in costs)))
    yield from aligned([("µs a frame, from, × workers", *heads), *rows])
    yield f"{amount(advice.findings.in_memory.one.n_bytes)} are read of a frame"
    if advice.rates is not None:
        one, two = (f"{rate / 1e6:.0f} MB/s" for rate in advice.rates)
        yield f"one reader gets {one} from the disk, two together {two}"


def _times(advice: Advice) -> Iterator[str]:
    """Table of the whole run."""
    heads = ("workers", "from memory", "from the disk", "now", "at least", "at most", "efficiency")
    rows = [
        (str(n), *(_seconds(value) for value in times), f"{efficiency:.2f}")
        for n, *times, efficiency in advice.rows()
    ]
    yield from aligned([heads, *rows])


def _verdict(advice: Advice) -> Iterator[str]:
    """Say what bounds the run, and how many workers pay off."""
    costs, best = advice.costs, advice.n_workers
    share = costs.parts[advice.bound] / costs.seconds
    whose = "the worker" if best == 1 else f"each of {best} workers"
    yield f"- {percent(share)} of the time of {whose} is {_ACTIVITIES[advice.bound]}."
    if advice.waits and advice.bound == "compute":
        yield (
            "- The analysis waits for something other than a processor: more workers than the "
            f"{advice.cpus} CPUs pay off."
        )
    if advice.backend != "serial":
        yield _paying(advice)
    yield from _width(advice)
    yield from _lock(advice)


def _paying(advice: Advice) -> str:
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


def _width(advice: Advice) -> Iterator[str]:
    """Say why no narrow range can be given, where that is so."""
    low, high = advice.t_range(advice.n_workers)
    if is_wide_range(low, high):
        yield (
            f"- The time lies between {_seconds(low)} and {_seconds(high)}, in nine runs of ten: "
            f"{len(advice.pace.rounds)} measurements differ too much for a narrower range."
        )


def _lock(advice: Advice) -> Iterator[str]:
    """Say whether threads hold each other up, and processes do not."""
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


def _other_files(advice: Advice) -> Iterator[str]:
    """Table of other formats and layouts."""
    if not advice.others:
        return
    best = advice.n_workers
    heads = (f"with {_workers(best)}", "size", "read a frame", "from memory")
    here = (
        f"this file ({advice.format})",
        amount(advice.size),
        amount(advice.findings.in_memory.one.n_bytes),
        _seconds(advice.t_total(best, "memory")),
        _seconds(advice.t_total(best, "disk")),
        "-",
    )
    rows = [
        (
            _name(file),
            amount(file.frame_bytes * advice.n_frames),
            amount(file.n_bytes),
            _seconds(advice.t_other(file, "memory")),
            _seconds(advice.t_other(file, "disk")),
            _seconds(advice.t_convert(file)),
        )
        for file in advice.others
    ]
    yield from aligned([(*heads, "from the disk", "to make it"), here, *rows])
    yield ""
    yield from _best_file(advice)
    yield _splitting(advice)


def _best_file(advice: Advice) -> Iterator[str]:
    """Name the file that would save most, if one does."""
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


def _splitting(advice: Advice) -> str:
    opening = _seconds(advice.findings.in_memory.two.opening)
    return (
        "- Splitting the file would change nothing on this machine: workers read one file side by "
        f"side, and opening it takes each {opening}."
    )


def _elsewhere(advice: Advice) -> Iterator[str]:
    """Say what one machine cannot tell."""
    one = advice.findings.in_memory.one
    costs = one.costs
    computing = costs.compute + costs.transform + costs.rest
    yield "How a file system serves several nodes cannot be known from one; with its figures, try"
    yield (
        f"  paceline predict --frames {advice.n_frames} --bytes {one.n_bytes:.0f} "
        f"--decode {_given(costs.decode)} --compute {_given(computing)} \\\n"
        "    --file-system lustre --layout shared split --per-node 24 --n-workers 384"
    )


def _name(file: Recoded) -> str:
    return f"{file.format}, {'selected' if file.selected else 'all'} atoms"


def _workers(n: int) -> str:
    return "1 worker" if n == 1 else f"{n} workers"


def _seconds(value: float) -> str:
    """Format a time for a person."""
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
    """Format a time for `paceline predict`."""
    unit, factor = ("us", 1e6) if value < 1e-3 else ("ms", 1e3) if value < 1 else ("s", 1.0)
    return f"{float(f'{value * factor:.3g}'):g}{unit}"
