"""Define an experiment; save, load and summarise its rows."""

import csv
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.data import TILED, Dataset, prepare_set
from benchmarks.measure import Spread
from benchmarks.table import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from benchmarks.experiments.scaling import Scaling

#: Measured values of one case in one round.
Row = dict[str, Any]


@dataclass(frozen=True)
class Setting:
    """Setting of measurements.

    Attributes
    ----------
    data, water : Dataset
        The small and the large system.
    scratch : Path
        Folder for new files.
    repeats : int
        Number of rounds.
    part : float
        Amount of work, relative to the short form.
    scale : float or None
        Fraction of the frames of the data; None for the papers' numbers of frames.
    ranks : tuple of int
        Numbers of ranks; empty for those of each experiment.
    """

    data: Dataset
    water: Dataset
    scratch: Path
    repeats: int
    part: float
    scale: float | None
    ranks: tuple[int, ...] = ()

    @cached_property
    def tiled(self) -> Dataset:
        """Return the larger system, which is created when first needed."""
        return prepare_set(TILED, self.data.folder.parent, self.scale)

    def amount(self, whole: int, least: int = 1) -> int:
        """Return an amount of work, scaled from that of the short form."""
        return max(least, round(whole * self.part))

    def frames(self, whole: int, data: Dataset, least: int = 1) -> int:
        """Return a number of frames, scaled from that of the short form; at the papers' scale all.

        Every rank gets at least one frame, if there are enough.
        """
        if self.scale is None:
            return data.n_frames
        return min(max(self.amount(whole, least), *self.ranks, 1), data.n_frames)

    def ranks_or(self, usual: tuple[int, ...]) -> tuple[int, ...]:
        """Return the chosen numbers of ranks, or the usual ones of an experiment."""
        return self.ranks or usual


@dataclass(frozen=True)
class Experiment:
    """One experiment.

    Attributes
    ----------
    title : str
        Title of its section.
    source : str
        Figures and tables of the paper.
    question : str
        Method and result of the papers.
    measure : callable
        Function that measures all cases in turn, round after round, and returns the rows.
    table : callable
        Function that creates a table of medians, with the published values.
    draw : callable
        Function that draws the rows.
    finding : callable
        Function that returns one or two sentences with numbers from the rows.
    why : str
        Reasons for differences from the papers, without measured numbers, which may change.
    rounds : callable
        Function that returns the number of rounds.
    scaling : Scaling, optional
        Columns for figures against the number of ranks, for experiments that run on ranks.
    """

    title: str
    source: str
    question: str
    measure: Callable[[Setting], list[Row]]
    table: Callable[[list[Row]], Table]
    draw: Callable[[list[Row]], "Figure"]
    finding: Callable[[list[Row]], str]
    why: str
    rounds: Callable[[Setting], int] = attrgetter("repeats")
    scaling: "Scaling | None" = None


def rounds_of(rows: Iterable[Row], column: str, **case: Any) -> list[float]:
    """Return one value per round from the rows that match the case."""
    chosen = [row[column] for row in rows if all(row[key] == case[key] for key in case)]
    if not chosen:
        raise KeyError(f"no row has {case}")
    return chosen


def median(rows: Iterable[Row], column: str, **case: Any) -> float:
    """Return the median over the rounds of a case."""
    return Spread.of(rounds_of(rows, column, **case)).median


def spread(rows: Iterable[Row], column: str, scale: float = 1.0, **case: Any) -> Spread:
    """Return median and range over the rounds of a case."""
    return Spread.of(value * scale for value in rounds_of(rows, column, **case))


def ratio(rows: Sequence[Row], column: str, above: Row, below: Row, **case: Any) -> Spread:
    """Return ratios of two cases by round; `case` has the columns that both share."""
    both = (rounds_of(rows, column, **case, **one) for one in (above, below))
    return Spread.of(one / other for one, other in zip(*both, strict=True))


def cell(values: Spread) -> str:
    """Format median and range, with three digits each."""
    if values.low == values.high:
        return digits(values.median)
    return f"{digits(values.median)} ({digits(values.low)}–{digits(values.high)})"


def digits(value: float) -> str:
    """Format a number with three significant digits, without exponent."""
    if value >= 100 or float(value).is_integer():
        return f"{value:,.0f}"
    return f"{value:#.3g}".rstrip(".") if abs(value) >= 1e-4 else f"{value:g}"


def values_of(rows: Iterable[Row], column: str) -> list[Any]:
    """Return the distinct values of a column, in order of appearance."""
    return list(dict.fromkeys(row[column] for row in rows))


def save(rows: Sequence[Row], path: Path, head: Iterable[str]) -> None:
    """Write rows, tab-separated, after comment lines."""
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.writelines(f"# {line}\n" for line in head)
        table = csv.DictWriter(file, list(rows[0]), delimiter="\t", lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


def load(path: Path) -> tuple[list[str], list[Row]]:
    """Return the comment lines of a table, and its rows with numbers parsed."""
    lines = path.read_text(encoding="utf-8").splitlines()
    head = [line.removeprefix("#").strip() for line in lines if line.startswith("#")]
    delimiter = "\t" if path.suffix == ".tsv" else ","
    rest = (line for line in lines if not line.startswith("#"))
    rows = csv.DictReader(rest, delimiter=delimiter)
    return head, [{key: _number(value) for key, value in row.items()} for row in rows]


def _number(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
