"""Describe the machine and the versions that a benchmark ran on."""

import shutil
import subprocess

from paceline import __version__
from paceline._util.machine import describe_machine, describe_system, describe_versions
from paceline.backends import available_cpus

PACKAGES = ("MDAnalysis", "mdtraj", "chemfiles", "numpy")


def describe() -> list[str]:
    """Lines to print above a table."""
    return [
        describe_machine(available_cpus()),
        describe_system(),
        f"paceline {__version__}, {describe_versions(PACKAGES)}",
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
