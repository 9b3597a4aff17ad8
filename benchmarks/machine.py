"""Describe the machine and the versions that a benchmark ran on."""

import os
import platform
import shutil
import subprocess
from importlib import metadata
from pathlib import Path

PACKAGES = ("paceline", "MDAnalysis", "mdtraj", "chemfiles", "numpy")


def describe() -> list[str]:
    """Lines to print above a table."""
    load = "/".join(f"{value:.1f}" for value in os.getloadavg())
    return [
        f"{_processor()}, {_usable_cores()} cores usable, {_memory_gb():.0f} GB, load {load}",
        f"{platform.platform()}, Python {platform.python_version()}",
        ", ".join(f"{package} {_version(package)}" for package in PACKAGES),
        f"GROMACS {gromacs_version() or 'absent'}",
    ]


def gromacs_version() -> str | None:
    """The version of the ``gmx`` on PATH, if there is one."""
    gmx = shutil.which("gmx")
    if gmx is None:
        return None
    lines = subprocess.run([gmx, "--version"], capture_output=True, text=True).stdout.splitlines()
    versions = (line.partition(":")[2].strip() for line in lines if "version:" in line)
    return next(versions, "of unknown version")


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def _usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _memory_gb() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "absent"
