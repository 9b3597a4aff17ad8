"""Case in which a file contains little information, with the right value."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Found:
    """Values that paceline and MDAnalysis compute in a case."""

    value: float | str
    #: Value that MDAnalysis computes from the same file; None if it has no such function.
    mdanalysis: float | str | None = None


@dataclass(frozen=True)
class RightValue:
    """A case: its name, the right value, and the function that computes paceline's value."""

    name: str
    #: Unit of the value, such as "Å" or "ps"; empty without a unit.
    unit: str
    #: Number, or part of the sentence that paceline must print.
    right: float | str
    #: Reason why the value is right: by construction, by brute force, or by another program.
    because: str
    #: Function that computes the values, with an empty folder for its files.
    compute: Callable[[Path], Found]
    #: Allowed difference from the right number.
    tolerance: float = 0.0

    def holds(self, found: Found) -> bool:
        """Return whether paceline's value is right."""
        if isinstance(self.right, str) or isinstance(found.value, str):
            return str(self.right) in str(found.value)
        return abs(found.value - self.right) <= self.tolerance
