"""Describe the machine and the versions that something was measured on."""

import os
import platform
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path


def describe_machine(n_cpus: int) -> str:
    """Processor, memory and load.

    Parameters
    ----------
    n_cpus : int
        CPUs that may be used.

    Returns
    -------
    str
        One line.
    """
    gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    load = "/".join(f"{value:.1f}" for value in os.getloadavg())
    return f"{_processor()}, {n_cpus} CPUs usable, {gb:.0f} GB, load {load}"


def describe_system() -> str:
    """Operating system and Python.

    Returns
    -------
    str
        One line.
    """
    return f"{platform.platform()}, Python {platform.python_version()}"


def describe_versions(packages: Iterable[str]) -> str:
    """Versions of packages.

    Parameters
    ----------
    packages : iterable of str
        Names by which they are installed.

    Returns
    -------
    str
        One line.

    Examples
    --------
    >>> describe_versions(["no such package"])
    'no such package absent'
    """
    return ", ".join(f"{package} {_version(package)}" for package in packages)


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "absent"
