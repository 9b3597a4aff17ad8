"""Published values, from the tables in `benchmarks/published`."""

from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.experiments.experiment import Row, load, values_of
from benchmarks.experiments.scaling import Published

#: Frames of the trajectories of Khoshlessan et al. 2020 and of Jakupovic and Beckstein 2021.
FRAMES_2020, FRAMES_2021 = 2_512_200, 90_100
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


def of_table5(access: str, variant: tuple[Any, ...], *, gather: str = "mpi") -> list[Published]:
    """Return t_io + t_comp of Table 5 of Khoshlessan et al. 2020, µs a frame, of each cluster."""
    rows = published("khoshlessan2020_table5", access=access, gather=gather)
    return [
        Published(
            f"{cluster}, t_io + t_comp",
            {
                row["n_processes"]: 1e6 * (row["t_io"] + row["t_comp"]) / FRAMES_2020
                for row in rows
                if row["cluster"] == cluster
            },
            variant,
        )
        for cluster in values_of(rows, "cluster")
    ]


def of_h5md(layout: str, access: str, variant: tuple[Any, ...]) -> list[Published]:
    """Return the times that Jakupovic and Beckstein 2021 state for a file, ms a frame."""
    rows = published("jakupovic2021_figures", file=f"H5MD-{layout}", variant=access)
    return [
        Published(
            f"{system}, {quantity}",
            {
                row["n_processes"]: 1e3 * row["seconds"] / FRAMES_2021
                for row in rows
                if (row["system"], row["quantity"]) == (system, quantity)
            },
            variant,
        )
        for system, quantity in dict.fromkeys((row["system"], row["quantity"]) for row in rows)
    ]
