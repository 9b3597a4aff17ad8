"""Describe the machine and the versions that a benchmark ran on."""

from benchmarks import programs
from benchmarks.measure import Unavailable
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
        f"GROMACS {version('gmx')}, cpptraj {version('cpptraj')}",
    ]


def version(program: str) -> str:
    """The version of a program that is compared, if it is here."""
    try:
        return programs.version(program)
    except Unavailable:
        return "absent"
