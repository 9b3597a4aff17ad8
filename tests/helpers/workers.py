"""Kill a worker process of short runs (`kill -9`), each at a random moment.

Each run must end by itself, with the same bits as an undisturbed run; the process must end after
the last run.
"""

import contextlib
import faulthandler
import multiprocessing
import os
import shutil
import signal
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil
from MDAnalysisTests.datafiles import DCD, GRO, PSF, XTC

import paceline
from helpers.kills import same_file
from helpers.waiting import PATIENCE, until
from paceline.analysis.diffusionmap import DistanceMatrix
from paceline.transform import nojump

#: Allowed outcomes after a kill.
ALLOWED = ("same bits",)
#: Seconds after which a run counts as hanging. An undisturbed run takes some tenths of a second.
#: After a kill, a run waits for the imports of new workers, which may take a minute on a busy
#: machine.
LONGEST = PATIENCE

#: One out of this number of runs starts with new workers, whose imports take some seconds.
AT_START, IMPORTS = 4, 1.5

#: Function that runs the analyses of a kind, and returns their output file.
_Work = Callable[[Path], Path]


class Killed(NamedTuple):
    """Outcome of one run."""

    kind: str
    outcome: str
    what: str = ""


def _large_results(folder: Path) -> Path:
    """Rows of 10 kB per frame, and of 180 kB per block: more than a pipe can buffer."""
    atoms = paceline.Universe(PSF, DCD).select_atoms("protein and name CA C N O")

    def positions(block: Any) -> np.ndarray:
        return block.positions.copy()

    analyses = [paceline.TimeSeries(positions, atoms), DistanceMatrix(atoms[::4])]
    paceline.run(analyses, backend="processes", n_workers=2, block_frames=4)
    path = folder / "rows.npy"
    np.save(path, analyses[0].results.timeseries)
    return path


def _large_states(folder: Path) -> Path:
    """States of 140 kB for each block, and steps of the same size from each previous block."""
    path = folder / "a.h5md"
    atoms = paceline.Universe(GRO, [XTC] * 3).select_atoms("all")
    writer = paceline.Write(atoms, path, overwrite=True, compress="zstd:1")
    writer.run(backend="processes", n_workers=2, block_frames=1, transforms=[nojump()])
    return path


WORK: dict[str, _Work] = {"large results": _large_results, "convert --nojump": _large_states}
KINDS = tuple(WORK)


def _kill_one(after: float, choice: float) -> None:
    """Kill one of the workers of this process."""
    time.sleep(after)
    if workers := loky_workers():
        with contextlib.suppress(ProcessLookupError):
            os.kill(workers[int(choice * len(workers))], signal.SIGKILL)


def loky_workers() -> list[int]:
    """Return the processes that loky has started."""
    pids = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            if any("popen_loky" in word for word in child.cmdline()):
                pids.append(child.pid)
    return sorted(pids)


def end_workers() -> None:
    """Kill all processes that loky has started, and wait until they have ended."""
    for pid in loky_workers():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    until(lambda: not loky_workers())


def _child(pipe: Connection, kind: str, seeds: list[int], folder: Path) -> None:
    """Run once undisturbed, and once for each seed; send the outcome of each."""
    os.setsid()
    warnings.simplefilter("ignore")
    work = WORK[kind]
    (folder / "whole").mkdir(parents=True)
    work(folder / "whole")  # starts the workers
    begun = time.monotonic()
    whole = work(folder / "whole")
    seconds = time.monotonic() - begun
    pipe.send(("", ""))
    for seed in seeds:
        random = np.random.default_rng(seed)
        place = folder / str(seed)
        place.mkdir()
        within = seconds
        if seed % AT_START == 0:
            end_workers()
            within += IMPORTS
        killer = threading.Thread(target=_kill_one, args=random.uniform(0, (within, 1)))
        killer.start()
        outcome: tuple[str, str] = "same bits", ""
        faulthandler.dump_traceback_later(LONGEST - 5)
        try:
            if not same_file(work(place), whole):
                outcome = "other bits", ""
        except Exception as error:
            outcome = "error", f"{type(error).__name__}: {error}"
        faulthandler.cancel_dump_traceback_later()
        killer.join()
        shutil.rmtree(place)
        pipe.send(outcome)
    _kill_one(0.0, 0.5)


def survey(seed: int, n: int, kinds: tuple[str, ...] = KINDS) -> Iterator[Killed]:
    """Kill a worker in each of `n` runs, of all kinds in turn."""
    for number, kind in enumerate(kinds):
        seeds = list(range(seed + number, seed + n, len(kinds)))
        while seeds:
            with tempfile.TemporaryDirectory(prefix="paceline-workers-") as name:
                for outcome, what in _followed(kind, seeds, Path(name)):
                    yield Killed(kind, outcome, f"seed {seeds.pop(0)} {what}")


def _followed(kind: str, seeds: list[int], folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the outcomes that a process sends; end the process if it hangs."""
    context = multiprocessing.get_context("fork")
    pipe, end = context.Pipe()
    process = context.Process(target=_child, args=(end, kind, list(seeds), folder))
    process.start()
    end.close()
    try:
        if not pipe.poll(2 * LONGEST):
            raise RuntimeError(f"{kind}: undisturbed it does not end")
        pipe.recv()
        for _ in range(len(seeds) - 1):
            if not pipe.poll(LONGEST):
                yield "hang", ""
                return
            yield pipe.recv()
        last = pipe.recv() if pipe.poll(LONGEST) else ("hang", "")
        process.join(LONGEST)
        yield ("hang", "at the end of the process") if process.is_alive() else last
    except EOFError:
        yield "crash", ""
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.join()
