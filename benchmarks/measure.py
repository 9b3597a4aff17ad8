"""Time several subjects fairly: each in a separate process, all in turn.

On a machine with other users, speeds drift by tens of per cent within minutes. Therefore every
round runs every subject once. Subjects are compared within a round, and then the median over rounds
is taken. The time per item is the slope between a run of n items and one of 2n, which excludes the
fixed costs of a run.
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

#: Function that does the work of n items; its return value is passed on, untimed.
Run = Callable[[int], Any]

PROCESS_IO = Path("/proc/self/io")
PROCESS_STATUS = Path("/proc/self/status")


class Unavailable(Exception):
    """Raised if something cannot be measured on this machine."""


@dataclass(frozen=True)
class Sample:
    """A run: wall time, CPU time, bytes from the disk, and return value."""

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
    """Times of runs of n and of 2n items, s, one pair per round."""

    n: int
    short: np.ndarray
    long: np.ndarray
    cpu_short: np.ndarray
    cpu_long: np.ndarray

    @property
    def per_item(self) -> np.ndarray:
        """Time per item in each round, s."""
        return (self.long - self.short) / self.n

    @property
    def cpu_per_item(self) -> np.ndarray:
        """CPU time per item in each round, s, which other programs disturb least."""
        return (self.cpu_long - self.cpu_short) / self.n

    @property
    def fixed(self) -> np.ndarray:
        """Fixed cost of a run, independent of its length, in each round, s."""
        return 2 * self.short - self.long


class Subject:
    """Process that prepares once and then runs on request.

    Parameters
    ----------
    name : str
        Name of the subject's row in a table.
    prepare : callable
        Function that is called in the process with `arguments`, and returns the `Run` to time.
        Raises `Unavailable` or `ImportError` if it cannot.
    """

    def __init__(self, name: str, prepare: Callable[..., Run], *arguments: Any) -> None:
        self.name = name
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, prepare, arguments))
        self._process.start()
        theirs.close()

    def wait(self) -> None:
        """Wait until the process is prepared; raise `Unavailable` if it cannot be."""
        self._receive()

    def run(self, n: int, *, at_least: float = 0.0, cold: Path | None = None) -> Sample:
        """Run `n` items repeatedly for at least `at_least` seconds; return the mean of the runs.

        The file `cold` is dropped from the page cache before the first run.
        """
        if cold is not None:
            # Imported here only, because the memory of the process is measured, too.
            from paceline._util.os_calls import drop_from_cache

            drop_from_cache(cold)
        return self._ask("run", n, at_least)

    def peak_memory(self) -> float:
        """Return the peak memory of the process so far, MB."""
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
    """Subject that is timed in this process, because it starts processes itself."""

    name: Any
    do: Run

    def run(self, n: int, *, at_least: float = 0.0) -> Sample:
        """Run `n` items repeatedly for at least `at_least` seconds; return the mean of the runs."""
        return _timed(self.do, n, at_least)


@contextmanager
def subjects(wanted: dict[str, tuple[Any, ...]]) -> Iterator[tuple[list[Subject], dict[str, str]]]:
    """Start a subject for each name, and end all of them on exit.

    Yields
    ------
    ready : list of Subject
    skipped : dict
        Reason for each missing subject.
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
    """Time n and 2n items of every subject, `repeats` times in turn; slow subjects get `fewer`.

    Before each run, `touched` bytes of memory are touched (see `resident.touch`).
    """
    from benchmarks.resident import touch  # deferred: not needed in the measured processes

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
    """Answer requests in the subject's process until the pipe closes."""
    sys.stdout.flush()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # libraries would print into a table
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
    """Return the CPU time of this process, its threads and its ended children, s."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def _disk_bytes() -> int | None:
    """Return bytes read from the disk by this process and its ended children, on Linux."""
    return _proc_number(PROCESS_IO, "read_bytes:")


def _peak_memory() -> float:
    """Return the peak memory, MB; a child program counts if it used more than this process."""
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
