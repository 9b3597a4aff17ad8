"""A case in which a file says little, with the value that is right."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Found:
    """What paceline computes in a case."""

    value: float | str
    #: What MDAnalysis computes from the same file; None where it has no such function.
    mdanalysis: float | str | None = None


@dataclass(frozen=True)
class RightValue:
    """One case: its name, the right value, and the function that asks paceline."""

    name: str
    #: "Å", "ps", "" …
    unit: str
    #: A number, or a piece of the sentence that the user must read.
    right: float | str
    #: Why that value is right: by construction, by brute force, by another program.
    because: str
    #: Given an empty folder for its files.
    compute: Callable[[Path], Found]
    #: Largest difference of a number from the right one.
    tolerance: float = 0.0

    def holds(self, found: Found) -> bool:
        """Return whether the value found is the right one."""
        if isinstance(self.right, str) or isinstance(found.value, str):
            return str(self.right) in str(found.value)
        return abs(found.value - self.right) <= self.tolerance
