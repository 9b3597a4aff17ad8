"""Cases to compare: an analysis in each tool, and the expected difference."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks import bench_analyses
from benchmarks.agreement.systems import RECIPES, System

MDANALYSIS, MDTRAJ, GROMACS, CPPTRAJ = "MDAnalysis", "MDTraj", "GROMACS", "cpptraj"
TOOLS = (MDANALYSIS, MDTRAJ, GROMACS, CPPTRAJ)
EVERYWHERE = tuple(RECIPES)
#: Systems whose files contain whole proteins, and systems with water in a cell.
WHOLE = ("adk", "tryptophan zipper", "cobrotoxin")
CELLS = ("adk in water", "tryptophan zipper", "cobrotoxin")

PROTEIN, CA = "protein", "protein and name CA"
#: Water oxygens by the names of CHARMM, Amber and GROMACS.
WATER = "name OW OH2 or (resname WAT and name O)"

ROUNDING, SINGLE, DIGITS = "rounding", "single precision", "digits that are printed"

#: Function that returns numbers, or letters, of all frames.
Numbers = Callable[[System], Any]


@dataclass(frozen=True)
class Peer:
    """Numbers of another tool, and the largest difference that `cause` explains on these files.

    A difference below `at_least` means that the cause no longer exists.
    """

    numbers: Numbers
    at_most: float
    cause: str = ROUNDING
    right: str = "both"
    at_least: float = 0.0


@dataclass(frozen=True)
class Case:
    """An analysis with its parameters, on some systems.

    `period` is the period of angles. For letters, the difference is the percentage of unequal ones.
    """

    analysis: str
    unit: str
    ours: Numbers
    peers: Mapping[str, Peer]
    systems: tuple[str, ...] = EVERYWHERE
    period: float | None = None


def ours(name: str, get: Callable[[Any], Any], *arguments: Any, **options: Any) -> Numbers:
    """Numbers of an analysis, by its name in the catalogue or module.Class.

    The options ``transforms`` and ``stop`` are passed to run.
    """
    how = {key: options.pop(key) for key in ("transforms", "stop") if key in options}

    def numbers(system: System) -> Any:
        system.ours.trajectory[0]
        made = bench_analyses.ours(name, *arguments, **options)(system.ours)
        return get(made.run(backend="serial", **how).results)

    return numbers


def unwrapped(*arguments: Any, **options: Any) -> Numbers:
    """Numbers of an analysis, with molecules made whole."""
    import paceline

    return ours(*arguments, transforms=[paceline.transform.unwrap()], **options)


def theirs(name: str, get: Callable[[Any], Any], *arguments: Any, **options: Any) -> Numbers:
    """Numbers of MDAnalysis's counterpart of an analysis."""

    def numbers(system: System) -> Any:
        system.theirs.trajectory[0]
        made = bench_analyses.theirs(name, *arguments, **options)(system.theirs)
        return get(made.run().results)

    return numbers


def each_frame(compute: Callable[[Any], Any]) -> Numbers:
    """Numbers that a function of MDAnalysis's Universe returns for each frame."""

    def numbers(system: System) -> np.ndarray:
        return np.array([compute(system.theirs) for _ in system.theirs.trajectory])

    return numbers


def difference(found: Any, expected: Any, period: float | None = None) -> float:
    """Return the largest difference of two arrays; infinite if only one value is NaN."""
    found, expected = np.asarray(found), np.asarray(expected)
    if found.shape != expected.shape:
        raise ValueError(f"expected an array of shape {expected.shape}, found {found.shape}")
    if expected.dtype.kind == "U":
        return 100 * float((found != expected).mean())
    apart = np.abs(found.astype(float) - expected.astype(float))
    if period is not None:
        apart = np.minimum(apart % period, period - apart % period)
    unknown = np.isnan(found) & np.isnan(expected)
    return float(np.nan_to_num(np.where(unknown, 0, apart), nan=np.inf).max())
