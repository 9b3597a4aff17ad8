"""Time several subjects fairly: each in its own process, all in turn.

On a machine that others use too, speeds drift by tens of per cent within minutes. So every round
runs every subject once, and subjects are compared within a round before the median is taken over
rounds. The time per item is the slope between a run of n items and one of 2n, which frees it of
whatever a run costs once.
"""

import multiprocessing
import os
import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

#: Does n items of work; what it returns is passed on, untimed.
Run = Callable[[int], Any]

PROCESS_IO = Path("/proc/self/io")
PROCESS_STATUS = Path("/proc/self/status")


class Unavailable(Exception):
    """Raised if something cannot be measured here."""


@dataclass(frozen=True)
class Sample:
    """A run: its wall and processor time, the bytes from the disk, and what it returned."""

    seconds: float
    cpu_seconds: float
    disk_bytes: int | None
    values: Any


@dataclass(frozen=True)
class Spread:
    """Median and range of repeated measurements."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> "Spread":
        numbers = np.asarray(list(values), dtype=float)
        return cls(float(np.median(numbers)), float(numbers.min()), float(numbers.max()))


@dataclass(frozen=True)
class Slope:
    """Seconds that runs of n and of 2n items took, one pair a round."""

    n: int
    short: np.ndarray
    long: np.ndarray
    cpu_short: np.ndarray
    cpu_long: np.ndarray

    @property
    def per_item(self) -> np.ndarray:
        """Seconds per item in each round."""
        return (self.long - self.short) / self.n

    @property
    def cpu_per_item(self) -> np.ndarray:
        """Processor seconds per item in each round: what others' load disturbs least."""
        return (self.cpu_long - self.cpu_short) / self.n

    @property
    def fixed(self) -> np.ndarray:
        """Seconds that a run costs whatever its length, in each round."""
        return 2 * self.short - self.long


class Subject:
    """A process that prepares once and then runs on request.

    Parameters
    ----------
    name : str
        Its row in a table.
    prepare : callable
        Called in the process with `arguments`; returns the `Run` to be timed. Raises
        `Unavailable` or `ImportError` where that isn't possible.
    """

    def __init__(self, name: str, prepare: Callable[..., Run], *arguments: Any) -> None:
        self.name = name
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, prepare, arguments))
        self._process.start()
        theirs.close()

    def wait(self) -> None:
        """Return when the process is prepared; `Unavailable` if it can't be."""
        self._receive()

    def run(self, n: int, *, at_least: float = 0.0, cold: Path | None = None) -> Sample:
        """Do `n` items, again and again for `at_least` seconds, and give the mean of these runs.

        The file `cold` is dropped from the page cache before the first.
        """
        if cold is not None:
            # Here, and imported here alone: the process's memory is measured, too.
            from paceline._util.os_calls import drop_from_cache

            drop_from_cache(cold)
        return self._ask("run", n, at_least)

    def peak_memory(self) -> float:
        """Most memory that the process has held so far, MB."""
        return self._ask("peak_memory")

    def close(self) -> None:
        """End the process."""
        self._pipe.close()
        self._process.join()

    def _ask(self, *request: Any) -> Any:
        self._pipe.send(request)
        return self._receive()

    def _receive(self) -> Any:
        try:
            answer = self._pipe.recv()
        except EOFError:
            self._process.join()
            raise RuntimeError(f"{self.name}: ended with code {self._process.exitcode}") from None
        if isinstance(answer, Exception):
            answer.add_note(f"in the process of {self.name}")
            raise answer
        return answer


@dataclass(frozen=True)
class Here:
    """A subject timed in this process, because starting its own would take longer."""

    name: Any
    do: Run

    def run(self, n: int, *, at_least: float = 0.0) -> Sample:
        """Do `n` items, again and again for `at_least` seconds, and give the mean of these runs."""
        return _timed(self.do, n, at_least)


@contextmanager
def subjects(wanted: dict[str, tuple[Any, ...]]) -> Iterator[tuple[list[Subject], dict[str, str]]]:
    """Start a subject for each name, and end them all on leaving.

    Yields
    ------
    ready : list of Subject
    skipped : dict
        For the others, why they are missing.
    """
    ready, skipped = [], {}
    with ExitStack() as stack:
        started = [Subject(name, *how) for name, how in wanted.items()]
        for subject in started:
            stack.callback(subject.close)
        for subject in started:
            try:
                subject.wait()
                ready.append(subject)
            except (Unavailable, ImportError) as reason:
                skipped[subject.name] = str(reason)
        yield ready, skipped


def slopes(
    subjects: Sequence["Subject | Here"],
    n: int,
    repeats: int,
    at_least: float,
    fewer: Mapping[str, int] | None = None,
    touched: int = 0,
) -> dict[str, Slope]:
    """Time n and 2n items of every subject, `repeats` times in turn; of slow ones `fewer`.

    Before each run so many bytes of memory are `touched`, see `resident.touch`.
    """
    from benchmarks.resident import touch  # which subjects, whose memory is measured, do not need

    items = {subject.name: (fewer or {}).get(subject.name, n) for subject in subjects}
    seconds: dict[str, list[tuple[float, ...]]] = {subject.name: [] for subject in subjects}
    for _ in range(repeats):
        for subject in subjects:
            runs = []
            for m in (1, 2):
                touch(touched)
                runs.append(subject.run(m * items[subject.name], at_least=at_least))
            short, long = runs
            seconds[subject.name].append(
                (short.seconds, long.seconds, short.cpu_seconds, long.cpu_seconds)
            )
    return {name: Slope(items[name], *np.transpose(rounds)) for name, rounds in seconds.items()}


def samples(
    subjects: list[Subject], n: int, repeats: int, cold: Path | None = None
) -> dict[str, list[Sample]]:
    """Run n items of every subject, `repeats` times in turn."""
    taken: dict[str, list[Sample]] = {subject.name: [] for subject in subjects}
    for _ in range(repeats):
        for subject in subjects:
            taken[subject.name].append(subject.run(n, cold=cold))
    return taken


def _serve(pipe: Connection, prepare: Callable[..., Run], arguments: tuple[Any, ...]) -> None:
    """The subject's process: answer requests until the pipe closes."""
    sys.stdout.flush()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # libraries that chat would do so amid a table
    with suppress(EOFError, BrokenPipeError):
        try:
            run = prepare(*arguments)
        except Exception as error:
            pipe.send(error)
            return
        pipe.send(None)
        while True:
            request, *operands = pipe.recv()
            try:
                answer: Any = _timed(run, *operands) if request == "run" else _peak_memory()
            except Exception as error:
                answer = error
            pipe.send(answer)


def _timed(run: Run, n: int, at_least: float) -> Sample:
    disk_before = _disk_bytes()
    runs = 0
    cpu_start = _cpu_seconds()
    start = time.perf_counter()
    while True:
        values = run(n)
        runs += 1
        elapsed = time.perf_counter() - start
        if elapsed >= at_least:
            break
    cpu = _cpu_seconds() - cpu_start
    disk_after = _disk_bytes()
    read = None if disk_before is None or disk_after is None else disk_after - disk_before
    return Sample(elapsed / runs, cpu / runs, read, values)


def _cpu_seconds() -> float:
    """Processor time of this process, its threads and its ended children."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def _disk_bytes() -> int | None:
    """Bytes that this process and its ended children have made the disk deliver, on Linux."""
    return _proc_number(PROCESS_IO, "read_bytes:")


def _peak_memory() -> float:
    """MB. A program that the process ran counts, if it held more than the process itself."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    kilobytes = _proc_number(PROCESS_STATUS, "VmHWM:")
    if kilobytes is None:
        own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return max(own, children) / (1e6 if sys.platform == "darwin" else 1e3)
    return max(kilobytes, children) / 1e3


def _proc_number(path: Path, key: str) -> int | None:
    if not path.exists():
        return None
    words = path.read_text().split()
    return int(words[words.index(key) + 1])
