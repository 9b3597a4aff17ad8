"""Describe the machine, the software versions and the command of a run."""

import functools
import hashlib
import math
import os
import platform
import re
import shlex
import sys
import threading
import time
import uuid
import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import ClassVar

from paceline import _core
from paceline._util.os_calls import clock_ticks, full_name, load_averages, total_memory, usable_cpus

#: Linux's file of total and free memory.
MEMINFO = Path("/proc/meminfo")
CGROUPS, OWN_CGROUP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
#: First bytes of Mach-O files, and of the GNU note in ELF files. The linker stores an identifier of
#: the whole file in the head of such files: in the load command LC_UUID, and in this note.
_MACH_O = (b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe")
_GNU_BUILD_ID = b"\x03\0\0\0GNU\0"
_HEAD_BYTES = 2**16


class MemoryLimit:
    """Maximum memory for one process's results and decoded frames together, bytes.

    A limit that is unpickled in another process becomes that process's own limit. With `limit`
    None, memory is not limited.

    Examples
    --------
    >>> memory = MemoryLimit(1000)
    >>> memory.reserve(800), memory.reserve(800)
    (True, False)
    """

    #: Limits of this process, by the key that is pickled with each limit.
    _of_process: ClassVar[weakref.WeakValueDictionary[str, "MemoryLimit"]] = (
        weakref.WeakValueDictionary()
    )

    def __init__(self, limit: int | None, key: str = ""):
        self.limit, self._key = limit, key or uuid.uuid4().hex
        self._held, self._lock = 0, threading.RLock()
        self._of_process[self._key] = self

    def __reduce__(self) -> tuple[object, ...]:
        return MemoryLimit.of_this_process, (self.limit, self._key)

    @classmethod
    def of_this_process(cls, limit: int | None, key: str) -> "MemoryLimit":
        """Return the limit of this process with the same key; create it if necessary."""
        return cls._of_process.get(key) or cls(limit, key)

    def reserve(self, n_bytes: int) -> bool:
        """Reserve bytes; return False if too few are available."""
        with self._lock:
            if self.limit is not None and self._held + n_bytes > self.limit:
                return False
            self._held += n_bytes
            return True

    def release(self, n_bytes: int) -> None:
        """Release reserved bytes."""
        with self._lock:
            self._held -= n_bytes

    @property
    def available(self) -> int | None:
        """Number of bytes that can still be reserved; None without a limit."""
        return None if self.limit is None else self.limit - self._held


def describe_machine(n_cpus: int) -> str:
    """Describe processor and number of CPUs, and memory and load if known, in one line."""
    parts = [_processor(), f"{n_cpus} CPUs usable"]
    if memory := total_memory():
        parts.append(f"{memory / 1e9:.0f} GB")
    if loads := load_averages():
        parts.append("load " + "/".join(f"{value:.1f}" for value in loads))
    return ", ".join(parts)


@functools.cache
def software() -> dict[str, str]:
    """Return the software and the processor, by name, because the bits of results depend on them.

    The values are the versions of paceline, Python and NumPy, a digest of the compiled module, and
    the processor with the instruction set that kernels use.
    """
    import numpy as np  # imported here: `paceline --help` does not need NumPy

    return {
        "paceline": _core.__version__,
        "build": _build(Path(_core.__file__ or "")),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "processor": f"{_processor()}, {_core.instruction_set()}",
    }


def _build(path: Path) -> str:
    """Compute a digest of a compiled module, 16 hex digits.

    If the head of the file contains an identifier of the whole file, only the head is read.
    """
    with open(path, "rb") as file:
        content = file.read(_HEAD_BYTES)
        if not (content.startswith(_MACH_O) or _GNU_BUILD_ID in content):
            content += file.read()
    return hashlib.sha256(content).hexdigest()[:16]


def describe_system() -> str:
    """Describe operating system and Python in one line."""
    return f"{platform.platform()}, Python {platform.python_version()}"


def describe_versions(packages: Iterable[str]) -> str:
    """List versions of installed packages in one line.

    Examples
    --------
    >>> describe_versions(["no such package"])
    'no such package absent'
    """
    return ", ".join(f"{package} {_version(package)}" for package in packages)


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:  # lists all processors: read one
            for line in lines:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass  # another system than Linux
    return platform.processor() or platform.machine()


def _version(package: str) -> str:
    from importlib import metadata  # imported here: it takes 20 ms, and workers do not need it

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "absent"


def current_user() -> str:
    """Full name of this process's user if the system stores it, else login name or "unknown"."""
    import getpass

    try:
        login = getpass.getuser()
    except (OSError, KeyError, ImportError):  # KeyError and ImportError on Windows without USERNAME
        return "unknown"
    return full_name(login) or login


def current_command() -> str:
    """Return the command line of this process, with the program name without its folder."""
    return shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]).strip()


def available_cpus() -> int:
    """Count the CPUs that this process may use: the minimum of affinity, cgroup and Slurm limits.

    Examples
    --------
    >>> 1 <= available_cpus() <= os.cpu_count()
    True
    """
    counts = [os.cpu_count() or 1, len(usable_cpus()), *_cgroup_quotas()]
    slurm = os.environ.get("SLURM_CPUS_PER_TASK", "")
    if slurm.isdigit():
        counts.append(int(slurm))
    return max(1, min(counts))


def free_memory_fraction(
    meminfo: Path = MEMINFO, root: Path = CGROUPS, own: Path = OWN_CGROUP
) -> float:
    """Fraction of the memory that is free: the minimum over the machine and its cgroups.

    Returns 0 if the system does not report free memory.

    Examples
    --------
    >>> 0 <= free_memory_fraction() <= 1
    True
    """
    return max(0.0, min((free / most for most, free in _memory(meminfo, root, own)), default=0.0))


def free_memory() -> int | None:
    """Free memory, bytes: the minimum over the machine and its cgroups; None if unknown.

    Examples
    --------
    >>> free_memory() is None or free_memory() > 0
    True
    """
    free = [free for _, free in _memory(MEMINFO, CGROUPS, OWN_CGROUP)]
    return max(0, min(free)) if free else None


def _memory(meminfo: Path, root: Path, own: Path) -> list[tuple[int, int]]:
    """Total and free memory of the machine, then of each cgroup that limits it, bytes.

    Returns an empty list if the system does not report memory.
    """
    sizes = {name: 1024 * int(kb) for name, kb in re.findall(r"(\w+): +(\d+) kB", _words(meminfo))}
    if "MemAvailable" not in sizes:
        return []
    every = sizes["MemTotal"]
    limited = [one for one in _cgroup_memory(root, own) if 0 < one[0] < every]
    return [(every, sizes["MemAvailable"]), *limited]


class OtherWork:
    """CPU load of other programs on this process's CPUs, since this object was created."""

    def __init__(self) -> None:
        self._begun = time.perf_counter(), self._seconds()

    def cpus(self) -> float | None:
        """Mean number of CPUs kept busy by other programs; None if not reported by the system."""
        wall, seconds = time.perf_counter() - self._begun[0], self._seconds()
        if seconds is None or self._begun[1] is None or wall <= 0:
            return None
        return max(0.0, (seconds - self._begun[1]) / wall)

    @staticmethod
    def _seconds(file: Path = Path("/proc/stat")) -> float | None:
        """CPU time of other programs, s: total minus idle time minus the time of this process."""
        try:
            lines = [line.split() for line in file.read_text(encoding="utf-8").splitlines()]
        except OSError:
            return None
        ours = {f"cpu{number}" for number in usable_cpus()}
        # Fields of each CPU: user, nice, system, idle, iowait, irq, softirq and steal, in ticks.
        ticks = [[int(word) for word in words[1:9]] for words in lines if words[0] in ours]
        busy = sum(sum(one) - one[3] - one[4] for one in ticks) / clock_ticks()
        return busy - time.process_time()


@functools.cache
def _cgroup_quotas(
    root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")
) -> tuple[int, ...]:
    """Read the quotas of this process's cgroup and its parents, CPUs, rounded up; cached."""
    found = []
    for version, folder in _cgroup_folders("cpu", root, own):
        if version == 2:  # "max 100000" or "150000 100000"
            quota, _, period = _words(folder / "cpu.max").partition(" ")
        else:  # microseconds, -1 without a quota
            quota = _words(folder / "cpu.cfs_quota_us")
            period = _words(folder / "cpu.cfs_period_us")
        if quota.isdigit() and period.isdigit():
            found.append(math.ceil(int(quota) / int(period)))
    return tuple(found)


def _cgroup_memory(root: Path, own: Path) -> Iterator[tuple[int, int]]:
    """Read memory limits and free memory of this process's cgroup and its parents, bytes."""
    for version, folder in _cgroup_folders("memory", root, own):
        limit, used = (
            ("memory.max", "memory.current")
            if version == 2
            else ("memory.limit_in_bytes", "memory.usage_in_bytes")
        )
        most, taken = _words(folder / limit), _words(folder / used)
        if most.isdigit() and taken.isdigit():
            # The page cache counts as used memory, but the kernel releases it on demand.
            found = re.search(r"^inactive_file (\d+)", _words(folder / "memory.stat"), re.MULTILINE)
            yield int(most), int(most) - int(taken) + int(found[1] if found else 0)


def _cgroup_folders(controller: str, root: Path, own: Path) -> Iterator[tuple[int, Path]]:
    """Find the folders of this process's cgroup and its parents, with the cgroup version."""
    try:
        lines = own.read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            yield from ((2, folder) for folder in _upwards(root, path))
        elif controller in controllers.split(","):
            yield from ((1, folder) for folder in _upwards(root / controller, path))


def _upwards(root: Path, path: str) -> Iterator[Path]:
    folder = root / path.strip("/")
    while folder != root:
        yield folder
        folder = folder.parent
    yield root


def _words(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""
