"""Published values, from the tables in `benchmarks/published`."""

from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.experiments.experiment import Row, load

FOLDER = Path(__file__).parents[1] / "published"


@cache
def _table(name: str) -> tuple[Row, ...]:
    return tuple(load(FOLDER / f"{name}.csv")[1])


def published(name: str, /, **case: Any) -> list[Row]:
    """Return the rows of a table that match the case."""
    return [row for row in _table(name) if all(row[key] == case[key] for key in case)]


def stated(name: str, /, **case: Any) -> float:
    """Return the value that a paper's text states for a case."""
    (row,) = published(name, **case)
    return row["value"]
