"""Advice about a run, as numbers and as text: its time, the limiting component, remedies."""

import math
import os
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from paceline._util.arguments import one_of
from paceline.performance.forecast import (
    Findings,
    Forecast,
    Recoded,
    StoreSpeed,
    is_wide_range,
)
from paceline.performance.model import FrameCost, Prices, most_that_pay
from paceline.performance.number_format import aligned, amount, many, percent, seconds
from paceline.performance.record import AT_BLOCKS

#: Minimum parallel efficiency of a recommended number of workers.
EFFICIENT = 0.7
#: An analysis counts as waiting if it uses no CPU in more than this fraction of its time.
WAITING = 0.5
#: Maximum number of workers per CPU in forecasts of a waiting analysis.
PER_CPU_WAITING = 8
#: Sample blocks are spread over the whole run if at least this fraction of its bytes is in memory.
EVERYWHERE = 0.99
#: Maximum number of characters in a line of the text of advice.
WIDTH = 88
#: Minimum fraction of the time that a recommended other file must save.
WORTHWHILE = 0.2
#: The advice mentions a lack of memory if less than this fraction of the bytes that were measured
#: from memory is still in memory.
RESIDENT = 0.95
#: Size of a chunk of H5MD below which larger chunks are recommended for a store, bytes.
SMALL_CHUNK = 256 << 10
#: The advice mentions other programs if they keep more than this number of CPUs busy.
BUSY = 0.2

#: Phrase for each component of a frame's cost, by the name of the component.
_ACTIVITIES = {part.label: part.activity for part in AT_BLOCKS}


def is_resident(cached: float | None) -> bool:
    """Return whether samples of the whole run can be measured from memory."""
    return cached is not None and cached >= EVERYWHERE


@dataclass(frozen=True)
class Advice:
    """Advice about a run: its time by number of workers, and remedies; print it for text.

    Attributes
    ----------
    what : str
        Names of the analyses.
    files : tuple of str
        Files of the trajectory.
    format : str
        Format of the first file.
    size : int
        Total size of the files, bytes.
    n_atoms, n_wanted : int
        Number of atoms of a frame, and number of decoded atoms.
    n_frames : int
        Number of frames in the run; estimated if `is_sample`.
    is_sample : bool
        True if the file has no index, so that only frames in its middle were sampled.
    cached : float or None
        Fraction, from 0 to 1, of the required bytes that were in memory before the measurements;
        None if unknown.
    findings : Findings
        Results of the sample runs.
    rates : tuple of float or None
        Bytes per second from the disk: for one reader, and in total for two readers. For an object
        store, both numbers are the rate of a run. None if unknown.
    others : tuple of Recoded
        Costs of the same frames in other files.
    of_mdanalysis : float or None
        Time in which MDAnalysis's own reader reads a frame of this file, s; None if it cannot.
    cpus : int
        Number of CPUs that this process may use.
    asked : int or None
        Number of workers that the user requested.
    store : StoreSpeed or None
        Speed of the object store or server that holds the trajectory; None for local files.
    prices : Prices or None
        Prices of the store.
    chunk_bytes : float
        Mean size of a chunk of an HDF5 file, bytes; infinite for other formats.
    seconds : float
        Duration of the measurements, s.
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
    others: tuple[Recoded, ...]
    of_mdanalysis: float | None
    cpus: int
    asked: int | None
    store: StoreSpeed | None
    prices: Prices | None
    chunk_bytes: float
    seconds: float

    @property
    def far(self) -> str:
        """Place of the bytes that are not in memory: "the disk" or "the store"."""
        return "the disk" if self.store is None else "the store"

    @property
    def n_bytes(self) -> float:
        """Number of bytes that a run reads, if none are in memory."""
        return self.n_frames * self.findings.in_memory.one.cost.bytes

    @property
    def n_requests(self) -> int:
        """Number of requests to the store during a run, without opening; 0 for local files."""
        return 0 if self.store is None else math.ceil(self.n_bytes / self.store.request_bytes)

    @property
    def price(self) -> float:
        """Price of a run, in the currency of the prices; NaN without prices."""
        return math.nan if self.prices is None else self.prices.of(self.n_bytes, self.n_requests)

    @property
    def t_copy(self) -> float:
        """Time to copy the trajectory from the store to a local disk, s; NaN for local files."""
        return math.nan if self.store is None else self.size / self.store.rate_of_copy

    @property
    def backend(self) -> str:
        """Name of the backend for which the run is forecast."""
        return self.findings.backend

    @property
    def waits(self) -> bool:
        """True if the analysis waits for something other than a CPU."""
        return self.findings.waiting > WAITING

    @cached_property
    def workers(self) -> tuple[int, ...]:
        """Numbers of workers for which the time is forecast, increasing."""
        if self.backend == "serial":
            return (1,)
        most = self.cpus * (PER_CPU_WAITING if self.waits else 1)
        powers = {2**k for k in range(most.bit_length())}
        return tuple(sorted(powers | {2, self.cpus} | ({self.asked} if self.asked else set())))

    def t_total(self, n_workers: int, file: str = "now") -> float:
        """Predict the time of the run.

        Parameters
        ----------
        n_workers : int
            Number of workers.
        file : {"now", "memory", "disk"}
            Location of the bytes: "now": as many in memory as now; "memory": all in memory;
            "disk": none in memory, but all on the disk or in the store.

        Returns
        -------
        float
            Time, s; NaN for "disk" if it could not be measured.
        """
        return sum(
            share * (forecast.t_total(n_workers) if forecast else math.nan)
            for forecast, share in self._forecasts(file)
        )

    def t_range(self, n_workers: int, file: str = "now") -> tuple[float, float]:
        """Predict a range that contains the time of nine runs out of ten.

        Parameters
        ----------
        n_workers : int
            Number of workers.
        file : {"now", "memory", "disk"}
            As for `t_total`.

        Returns
        -------
        tuple of float
            Minimum and maximum time, s; NaN for "disk" if it could not be measured.
        """
        low = high = 0.0
        for forecast, share in self._forecasts(file):
            ends = forecast.t_range(n_workers) if forecast else (math.nan, math.nan)
            low, high = low + share * ends[0], high + share * ends[1]
        return low, high

    def _forecasts(self, file: str) -> list[tuple[Forecast | None, float]]:
        """Return the forecast for each location of the bytes, with its fraction of the run."""
        one_of("file", file, "now", "memory", "disk")
        shares = {"memory": (1.0, 0.0), "disk": (0.0, 1.0), "now": (self._share, 1 - self._share)}
        both = zip((self.findings.in_memory, self.findings.from_disk), shares[file], strict=True)
        return [(forecast, share) for forecast, share in both if share]

    @property
    def _share(self) -> float:
        """Fraction of the bytes that is assumed to be in memory."""
        return 1.0 if self.cached is None or self.findings.from_disk is None else self.cached

    def efficiency(self, n_workers: int) -> float:
        """Parallel efficiency: speed of each of `n_workers` relative to that of a single worker."""
        return self.t_total(1) / (n_workers * self.t_total(n_workers))

    @cached_property
    def n_workers(self) -> int:
        """Last number in `workers` before the parallel efficiency falls below 0.7."""
        return most_that_pay({n: self.t_total(n) for n in self.workers}, EFFICIENT)

    @property
    def forecast(self) -> Forecast:
        """Forecast for the location where most bytes are now: memory or disk."""
        disk = self.findings.from_disk
        return self.findings.in_memory if disk is None or self._share >= 0.5 else disk

    @property
    def costs(self) -> FrameCost:
        """Cost of a frame for one worker at the recommended number of workers."""
        return self.forecast.cost(self.n_workers)

    @property
    def bound(self) -> str:
        """Largest part of a worker's time: "read", "decode", "transform", "compute" or "rest"."""
        parts = self.costs.parts
        return max(parts, key=parts.__getitem__)

    def t_other(self, file: Recoded, where: str) -> float:
        """Predict the time of the run on another file with `n_workers` workers.

        Parameters
        ----------
        file : Recoded
            Item of `others`.
        where : {"memory", "disk"}
            Location of the bytes.

        Returns
        -------
        float
            Time, s; NaN for "disk" if it could not be measured.
        """
        if where == "disk" and self.rates is None:
            return math.nan
        rate = self._rate if where == "disk" else None
        return self.findings.in_memory.t_recoded(file, self.n_workers, rate)

    @property
    def _rate(self) -> float | None:
        """Bytes per second from the disk for all `n_workers` together; None if unknown."""
        return None if self.rates is None else self.rates[min(self.n_workers, 2) - 1]

    def t_convert(self, file: Recoded) -> float:
        """Time to convert to another file with `n_workers`, s, without writing to the disk."""
        decoding = self.findings.in_memory.t_convert(file, self.n_workers)
        if self._rate is None or self.cached is None:
            return decoding
        return max(decoding, (1 - self.cached) * self.size / self._rate)

    def rows(self) -> Sequence[tuple[int, float, float, float, float, float, float]]:
        """Rows of a table: number of workers; times, s; parallel efficiency.

        The times are those from memory, from the disk, as now, minimum and maximum.
        """
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


def _text(advice: Advice) -> str:
    """Format the advice as several paragraphs, without a final line break."""
    paragraphs = (_answer, _subject, _frame, _times, _verdict, _of_store, _other_files, _elsewhere)
    texts = ("\n".join(map(_wrapped, part(advice))) for part in paragraphs)
    return "\n\n".join(filter(None, texts))


def _wrapped(line: str) -> str:
    """Wrap a line if it is an item of a list."""
    if not line.startswith("- "):
        return line
    return textwrap.fill(line, WIDTH, subsequent_indent="  ", break_on_hyphens=False)


def _answer(advice: Advice) -> Iterator[str]:
    """Summarise in one line: the time with the recommended workers, and its largest component."""
    best, costs = advice.n_workers, advice.costs
    share = percent(costs.parts[advice.bound] / costs.seconds)
    yield (
        f"{seconds(advice.t_total(best))} with {many(best, 'worker')} (--n-workers {best}); "
        f"{share} of it is {_ACTIVITIES[advice.bound]}"
    )


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
    if advice.store is not None:
        yield (
            f"this took {advice.store.n_requests} requests and {amount(advice.store.n_bytes)} from "
            "the store"
        )
    others = advice.findings.others
    if others is not None and others > BUSY:
        yield f"meanwhile other programs kept {others:.1f} CPUs busy; this is assumed to go on"


def _where(advice: Advice) -> Iterator[str]:
    """State how many of the bytes that a run reads are in memory, on the disk or in a store."""
    if advice.store is not None:
        yield f"the bytes come from the store of {os.path.dirname(advice.files[0])}"
        return
    resident = advice.findings.resident
    if resident is not None and resident < RESIDENT:
        yield f"only {percent(resident)} of what was read is still in memory: it lacks space"
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
    """Yield a table of the cost of a frame, and sentences on its bytes and the reading speed."""
    columns = {"memory": advice.findings.in_memory}
    if advice.findings.from_disk is not None:
        columns[advice.far.removeprefix("the ")] = advice.findings.from_disk
    counts = (1,) if advice.backend == "serial" else (1, 2)
    heads = [f"{where} ×{n}" for where in columns for n in counts]
    costs = [forecast.cost(n) for forecast in columns.values() for n in counts]
    rows = [(name, *(f"{one.parts[name] * 1e6:.1f}" for one in costs)) for name in costs[0].parts]
    rows.append(("all", *(f"{one.seconds * 1e6:.1f}" for one in costs)))
    yield from aligned([("µs a frame, from, × workers", *heads), *rows])
    yield f"{amount(advice.findings.in_memory.one.cost.bytes)} are read of a frame"
    if advice.store is not None:
        store = advice.store
        one, several = (f"{value / 1e6:.0f} MB/s" for value in (store.one, store.several))
        yield (
            f"the store answers after {seconds(store.latency)}; one connection brings {one}, all "
            f"connections of this machine {several}"
        )
    elif advice.rates is not None:
        one, two = (f"{rate / 1e6:.0f} MB/s" for rate in advice.rates)
        yield f"one reader gets {one} from the disk, two together {two}"


def _times(advice: Advice) -> Iterator[str]:
    """Yield a table of the time and efficiency of the whole run by number of workers."""
    heads = (
        "workers",
        "from memory",
        f"from {advice.far}",
        "now",
        "at least",
        "at most",
        "efficiency",
    )
    rows = [
        (str(n), *(seconds(value) for value in times), f"{efficiency:.2f}")
        for n, *times, efficiency in advice.rows()
    ]
    yield from aligned([heads, *rows])


def _verdict(advice: Advice) -> Iterator[str]:
    """Describe the limit of the run, and the recommended number of workers."""
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
    time = f"{seconds(advice.t_total(best))}"
    beyond = [n for n in advice.workers if n > best]
    if beyond:
        more = (
            f"with {beyond[0]} ({seconds(advice.t_total(beyond[0]))}) each would do "
            f"{percent(advice.efficiency(beyond[0]))} of what one does alone"
        )
    elif best > 2:
        more = "beyond 2 this is estimated"
    else:
        more = f"this process may use {advice.cpus} CPUs"
    workers = "1 worker pays" if best == 1 else f"{best} workers pay"
    return f"- {workers} off: {time}; {more}."


def _width(advice: Advice) -> Iterator[str]:
    """State the range of the predicted time, and why it is wide; nothing if it is narrow."""
    low, high = advice.t_range(advice.n_workers)
    if is_wide_range(low, high):
        yield (
            f"- The time lies between {seconds(low)} and {seconds(high)}, in nine runs of ten: "
            f"{len(advice.forecast.rounds)} measurements differ too much for a narrower range."
        )


def _lock(advice: Advice) -> Iterator[str]:
    """Report threads that slow each other down, and whether processes avoid this."""
    processes = advice.findings.processes
    if processes is None:
        return
    threads = advice.findings.in_memory
    slower = threads.two.cost.compute / threads.one.cost.compute
    one = f"Each of two threads computes for {slower:.1f} times as long as one alone"
    by_processes = processes.t_total(2)
    by_threads = advice.t_total(2, "memory")
    start = f"{seconds(processes.two.fixed)} for their start among it"
    if by_processes < by_threads:
        yield (
            f"- {one}: it needs Python's interpreter, which threads share. 2 processes would take "
            f"{seconds(by_processes)} instead of {seconds(by_threads)}, {start}: "
            "backend processes."
        )
    elif processes.two.cost.seconds < threads.two.cost.seconds / (1 + WORTHWHILE):
        yield (
            f"- {one}: it needs Python's interpreter, which threads share. Processes would not, "
            f"but 2 of them would take {seconds(by_processes)} for so short a run, {start}."
        )
    else:
        yield f"- {one}, and so does each of two processes: other work slows this machine down."


def _of_store(advice: Advice) -> Iterator[str]:
    """Describe requests and prices of a run, and how later runs avoid them."""
    if advice.store is None:
        return
    requests = many(advice.n_requests, "request")
    price = "" if advice.prices is None else f", which costs {advice.price:.2g}"
    yield (
        f"- A run transfers {amount(advice.n_bytes)} in about {requests} of "
        f"{amount(advice.store.request_bytes)}{price}."
    )
    if advice.chunk_bytes < SMALL_CHUNK:
        yield (
            f"- The file has a chunk per {amount(advice.chunk_bytes)}, and the address of each is "
            "looked up when it is opened. Chunks of about 1 MiB need fewer requests: paceline "
            "repack."
        )
    if advice.is_sample:
        yield (
            "- Without an index, the first run fetches all objects, in about "
            f"{seconds(advice.t_copy)}, before it analyses them. An index beside each object "
            "spares it: paceline index ADDRESS -o FILE writes one."
        )
    best = advice.n_workers
    saved = advice.t_total(best) - advice.t_total(best, "memory")
    if saved < WORTHWHILE * advice.t_total(best):
        yield f"- A copy on this machine would save less than {percent(WORTHWHILE)} of the time."
        return
    runs = math.ceil(advice.t_copy / saved)
    after = "with the second run" if runs < 2 else f"from run {runs + 1} on"
    yield (
        "- For several runs, keep the bytes on a local disk: --cache FOLDER does so as they are "
        f"read. Copying {amount(advice.size)} first takes {seconds(advice.t_copy)}, and saves "
        f"{seconds(saved)} in each run, if the disk is as fast as memory: it pays off {after}."
    )


def _other_files(advice: Advice) -> Iterator[str]:
    """Yield a table of costs of other formats and compressions, and conclusions from it."""
    if not advice.others:
        return
    best = advice.n_workers
    heads = (f"with {many(best, 'worker')}", "size", "read a frame", "from memory")
    here = (
        f"this file ({advice.format})",
        amount(advice.size),
        amount(advice.findings.in_memory.one.cost.bytes),
        seconds(advice.t_total(best, "memory")),
        seconds(advice.t_total(best, "disk")),
        "–",
    )
    rows = [
        (
            _name(file),
            amount(file.frame_bytes * advice.n_frames),
            amount(file.n_bytes),
            seconds(advice.t_other(file, "memory")),
            seconds(advice.t_other(file, "disk")),
            seconds(advice.t_convert(file)),
        )
        for file in advice.others
    ]
    yield from aligned([(*heads, f"from {advice.far}", "to make it"), here, *rows])
    yield ""
    yield from _best_file(advice)
    yield from _mdanalysis(advice)
    yield _splitting(advice)


def _best_file(advice: Advice) -> Iterator[str]:
    """Name the file that would save the most time, if it is worthwhile."""
    # If the read rate from the disk is unknown, compare the times from memory.
    from_disk = advice.forecast is advice.findings.from_disk and advice.rates is not None
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
        f"- {_name(best)}{rounded}, would take {seconds(now - saved)} instead of "
        f"{seconds(now)}; making it takes {seconds(advice.t_convert(best))} plus the time to "
        f"write it to the disk, and pays off {after}."
    )


def _mdanalysis(advice: Advice) -> Iterator[str]:
    """Compare with a loop over MDAnalysis's own reader."""
    if advice.of_mdanalysis is None:
        return
    loop, best = advice.of_mdanalysis * advice.n_frames, advice.n_workers
    yield (
        f"- MDAnalysis's own reader takes {seconds(advice.of_mdanalysis)} a frame from memory: a "
        f"loop over all frames takes {seconds(loop)} without any analysis, and this run takes "
        f"{seconds(advice.t_total(best, 'memory'))} with {many(best, 'worker')}."
    )


def _splitting(advice: Advice) -> str:
    opening = seconds(advice.findings.in_memory.two.opening)
    if advice.store is not None:
        return (
            "- Splitting the object would change nothing: workers read its parts side by side, "
            "through the same connections."
        )
    return (
        "- Splitting the file would change nothing on this machine: workers read one file side by "
        f"side, and opening it takes each {opening}."
    )


def _elsewhere(advice: Advice) -> Iterator[str]:
    """Describe limits of the forecast, which is valid for one machine."""
    cost = advice.findings.in_memory.one.cost
    computing = cost.compute + cost.transform + cost.rest
    if advice.store is None:
        what = "a file system serves"
        options = "--file-system lustre --layout shared split"
    else:
        what, options = (
            "a store serves",
            f"--file-system store --latency {_given(advice.store.latency)}",
        )
        options += f" --connection-bandwidth {max(1.0, advice.store.one / 1e3):.0f}kB"
    yield f"How {what} several nodes cannot be measured on one; with its figures, try"
    yield (
        f"  paceline predict --frames {advice.n_frames} --bytes {cost.bytes:.0f} "
        f"--decode {_given(cost.decode)} --compute {_given(computing)} \\\n"
        f"    {options} --per-node 24 --n-workers 384"
    )


def _name(file: Recoded) -> str:
    atoms = f"{'selected' if file.selected else 'all'} atoms"
    return ", ".join(filter(None, (file.format, file.compression, atoms)))


def _given(value: float) -> str:
    """Format a time in s as an argument of `paceline predict`, such as "2.5ms"."""
    unit, factor = ("us", 1e6) if value < 1e-3 else ("ms", 1e3) if value < 1 else ("s", 1.0)
    return f"{float(f'{value * factor:.3g}'):g}{unit}"
