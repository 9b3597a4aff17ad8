"""Change bytes of valid files at random, and check the outcome.

Each changed file is opened, read frame by frame, validated and analysed in a child process with
limits of memory and time. A child processes many files. If it dies, hangs or uses too much memory,
the next child continues after the file that caused this.
"""

import contextlib
import multiprocessing
import os
import pickle
import resource
import shutil
import signal
import tempfile
import time
import traceback
import zlib
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import numpy as np

from helpers.sound_files import MAKERS, SoundFile
from helpers.trials import ALLOWED, CheckpointTrial, Forbidden, IndexTrial, TrajectoryTrial
from helpers.waiting import PATIENCE
from paceline.hdf5 import sandbox

#: Memory that a file of some kB may use, in addition to that of the process, bytes. The process
#: that calls HDF5's library has its own limit.
MEMORY = 1200 << 20
#: Changes that keep the size of a file, and other changes.
IN_PLACE = ("flip", "flip", "byte", "number", "zero")
SHIFTING = ("insert", "delete", "cut", "twice")
TRIALS = dict.fromkeys(MAKERS, TrajectoryTrial) | {
    "index": IndexTrial,
    "checkpoint": CheckpointTrial,
}
KINDS = tuple(TRIALS)


class Found(NamedTuple):
    """Outcome of one changed file."""

    kind: str
    number: int
    outcome: str
    #: Message.
    what: str
    #: The changed content, if the outcome is not allowed.
    content: bytes = b""


def changed(content: bytes, borders: tuple[int, ...], random: np.random.Generator) -> bytes:
    """Make one to three changes, half of them near the beginning of the file or of a frame.

    A file that cannot be opened tests little; most files without separate frames therefore keep
    their size.
    """
    for _ in range(random.choice([1, 1, 1, 2, 3])):
        size = len(content)
        at = int(random.integers(size + 1))
        if random.random() < 0.5:
            start = int(random.choice([0, 0, *borders]))
            at = min(start + int(random.integers(200)), size)
        length = int(random.choice([1, 2, 4, 8, 40, 400]))
        end = min(at + length, size)
        how = random.choice(IN_PLACE if random.random() < (0.5 if borders else 0.9) else SHIFTING)
        if how == "flip":
            at = min(at, size - 1)
            new = bytes([content[at] ^ 1 << int(random.integers(8))])
            content = content[:at] + new + content[at + 1 :]
        elif how == "byte":
            content = content[:at] + random.bytes(end - at) + content[end:]
        elif how == "number":
            width = int(random.choice([2, 4, 8]))
            most = 2 ** (8 * width - 1) - 1
            value = int(random.choice([0, 1, -1, most, -most - 1]))
            order = "little" if random.random() < 0.5 else "big"
            new = value.to_bytes(width, order, signed=True)
            content = content[:at] + new + content[at + width :]
        elif how == "insert":
            content = content[:at] + random.bytes(length) + content[at:]
        elif how == "delete":
            content = content[:at] + content[end:]
        elif how == "zero":
            content = content[:at] + bytes(end - at) + content[end:]
        elif how == "cut":
            content = content[:at]
        else:
            content = content[:end] + content[at:end] + content[end:]
        content = content or b"\0"
    return content


def mutation(kind: str, sound: SoundFile, seed: int, number: int) -> bytes:
    """Return changed content; equal arguments give equal content."""
    random = np.random.default_rng([seed, zlib.crc32(kind.encode()), number])
    while (content := changed(sound.content, sound.borders, random)) == sound.content:
        pass
    return content


def _child(pipe: Connection, kind: str, seed: int, first: int, stop: int, folder: Path) -> None:
    """Judge changed files; before each file send its number, and afterwards its outcome."""
    os.setsid()
    trial = TRIALS[kind](kind, folder)
    resource.setrlimit(resource.RLIMIT_AS, (_virtual_memory() + 3 * MEMORY,) * 2)
    # Judge the valid file, so that memory for start-up is not counted for the changed files.
    trial.judge(folder, trial.sound.content, np.random.default_rng(0))
    base = _peak()
    for number in range(first, stop):
        content = mutation(kind, trial.sound, seed, number)
        pipe.send(number)
        for left in folder.glob(".*paceline-index"):
            left.unlink()
        try:
            random = np.random.default_rng([seed, number])
            outcome, what = trial.judge(folder, content, random)
            if _peak() - base > MEMORY:
                outcome, what, base = "memory", f"{_peak() - base >> 20} MiB", _peak()
        except Forbidden as error:
            outcome, what = str(error).partition(":")[0], str(error)
        except MemoryError as error:
            outcome, what = "memory", repr(error)
        except BaseException as error:
            outcome, what = "foreign error", "".join(traceback.format_exception(error))
        allowed = outcome in ALLOWED
        pipe.send(Found(kind, number, outcome, what, b"" if allowed else content))
    sandbox._helper.end()
    pipe.send(None)


def _peak() -> int:
    """Return the peak memory of this process and of the one that opens HDF5 files, bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    helper = sandbox._helper._process
    if helper is not None:
        with contextlib.suppress(OSError, IndexError):
            status = Path(f"/proc/{helper.pid}/status").read_text()
            peak += int(status.partition("VmHWM:")[2].split()[0]) << 10
    return peak


def _virtual_memory() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def survey(seed: int, n: int, kinds: tuple[str, ...] = KINDS) -> Iterator[Found]:
    """Judge this number of changed files, equally many of each kind."""
    context = multiprocessing.get_context("fork")
    for place, kind in enumerate(kinds):
        next_one, stop = 0, n // len(kinds) + (place < n % len(kinds))
        while next_one < stop:
            memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
            folder = Path(tempfile.mkdtemp(prefix="paceline-hunt-", dir=memory))
            ours, theirs = context.Pipe()
            process = context.Process(
                target=_child, args=(theirs, kind, seed, next_one, stop, folder)
            )
            process.start()
            theirs.close()
            try:
                for found in _followed(ours, process, kind, next_one):
                    yield found
                    next_one = found.number + 1
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.join()
                ours.close()
                shutil.rmtree(folder, ignore_errors=True)


def _followed(pipe: Connection, process, kind: str, first: int) -> Iterator[Found]:
    """Yield the findings of a child; the last one reports an early end."""
    number, begun = None, time.monotonic()
    try:
        while True:
            if not pipe.poll(PATIENCE):
                if number is None:
                    raise RuntimeError(f"{kind}: the sound file takes {PATIENCE:.0f} s")
                yield Found(kind, number, "hang", f"{time.monotonic() - begun:.0f} s")
                return
            said = pipe.recv()
            if said is None:
                return
            if isinstance(said, Found):
                yield said
                number = None
            else:
                number, begun = said, time.monotonic()
    except (EOFError, ConnectionResetError, pickle.UnpicklingError):
        process.join()
        if number is None:
            raise RuntimeError(f"{kind}: the child ended early ({process.exitcode})") from None
        yield Found(kind, number, "crash", f"status {process.exitcode}")
