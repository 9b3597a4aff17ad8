"""Describe the machine and the software versions of a benchmark."""

from benchmarks import programs
from benchmarks.measure import Unavailable
from paceline import __version__
from paceline._util.machine_and_software import describe_machine, describe_system, describe_versions
from paceline.backends import available_cpus

PACKAGES = ("MDAnalysis", "mdtraj", "chemfiles", "numpy")


def describe() -> list[str]:
    """Return lines to print above a table."""
    return [
        describe_machine(available_cpus()),
        describe_system(),
        f"paceline {__version__}, {describe_versions(PACKAGES)}",
        f"GROMACS {version('gmx')}, cpptraj {version('cpptraj')}",
    ]


def version(program: str) -> str:
    """Return the version of a compared program, if it is installed."""
    try:
        return programs.version(program)
    except Unavailable:
        return "absent"
