"""Figures and tables of experiments against the number of ranks, as in the papers."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from benchmarks.experiments.experiment import Row, cell, digits, load, save, values_of
from benchmarks.experiments.style import (
    COLOURS,
    DPI,
    PAPER,
    PARTS,
    RC,
    logarithmic,
    points,
    stacked,
)
from benchmarks.measure import Spread
from benchmarks.table import Table

if TYPE_CHECKING:
    from benchmarks.experiments.experiment import Experiment

#: Key of a row with the parts of the time of every rank, which are saved in a file of their own.
BY_RANK = "by_rank"
#: Colours of lines other than the two tools, and styles of published values.
PALETTE = ("#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
STYLES = ("o-", "s--", "^:", "v-.", "D-", "P--")
#: Width of a figure, and height of a row of panels and of a bar, inches.
WIDTH, HEIGHT, BAR = 9.5, 2.7, 0.17

INTRODUCTION = """\
# Experiments against the number of ranks

The experiments of Khoshlessan et al. (2020), Jakupovic and Beckstein (2021), and Todorov and Bush
(HPCxTR0806) on MPI ranks: the papers' way (each rank opens its own MDAnalysis Universe, reads an
equal share frame by frame, and takes part in a gather at the end; called MDAnalysis) beside
paceline's. A figure has a row of panels for each case: the time, the speed-up over the fewest
ranks, and the shares of the parts of the time, as means over ranks. A second figure has the parts
of each of the most ranks in the first round. Values of the papers are grey; of their Table 5 the
time is the sum of reading and computing, without opening and communicating. The speed-up of values
that begin at more ranks is ideal up to there. Tables have the median and the range of all rounds.
"""


@dataclass(frozen=True)
class Published:
    """Published values of one case, by the number of ranks.

    Attributes
    ----------
    name : str
        Name of the machine and of what was measured there.
    values : mapping of int to float
        Values in the unit of the experiment, or speed-ups over one process.
    variant : tuple
        Values of the columns `Scaling.variants`.
    speed_up : bool
        The values are speed-ups.
    """

    name: str
    values: Mapping[int, float]
    variant: tuple[Any, ...] = ()
    speed_up: bool = False

    def speed_ups(self, fewest: int) -> Mapping[int, float]:
        """Return speed-ups over `fewest` ranks; empty for a single value.

        Up to the first published number of ranks, ideal scaling is assumed.
        """
        if self.speed_up:
            return self.values
        if len(self.values) < 2:
            return {}
        first, *_ = self.values
        slowest = self.values[first] * first / fewest
        return {n: slowest / value for n, value in self.values.items()}


@dataclass(frozen=True)
class Scaling:
    """Columns of an experiment that are drawn against the number of ranks.

    Attributes
    ----------
    label : str
        Unit of the values.
    value : callable
        Function that returns the value of a row, which is smaller for faster jobs.
    line : str
        Column of tools or methods; each has a line.
    variants : tuple of str
        Columns of cases; each combination has a row of panels.
    parts : mapping of str to (str, str)
        Columns of parts of `t_total`, s, with their labels and colours.
    published : callable
        Function that returns published values.
    x : str
        Column of the number of ranks.
    """

    label: str
    value: Callable[[Row], float]
    line: str = "tool"
    variants: tuple[str, ...] = ()
    parts: Mapping[str, tuple[str, str]] = field(default_factory=lambda: PARTS)
    published: Callable[[], Iterable[Published]] = tuple
    x: str = "ranks"

    def cases(self, rows: Sequence[Row]) -> dict[tuple[Any, ...], list[Row]]:
        """Return the rows of each combination of variants."""
        found: dict[tuple[Any, ...], list[Row]] = {}
        for row in rows:
            found.setdefault(tuple(row[name] for name in self.variants), []).append(row)
        return found

    def rounds(self, rows: Sequence[Row], line: Any, n: int) -> np.ndarray:
        """Return the values of a line at a number of ranks, one a round."""
        chosen = [row for row in rows if row[self.line] == line and row[self.x] == n]
        return np.array([self.value(row) for row in chosen])

    def ranks_of(self, rows: Sequence[Row], line: Any) -> list[int]:
        """Return the numbers of ranks of a line."""
        return values_of([row for row in rows if row[self.line] == line], self.x)

    def speed_up(self, rows: Sequence[Row], line: Any, n: int) -> Spread:
        """Return the speed-up over the fewest ranks of all lines, by round."""
        fewest = self.ranks_of(rows, line)[0]
        ideal = fewest / min(row[self.x] for row in rows)
        first = self.rounds(rows, line, fewest)
        return Spread.of(ideal * first / self.rounds(rows, line, n))

    def parts_of(self, rows: Sequence[Row], line: Any, n: int) -> dict[str, float]:
        """Return medians of the parts in the unit of the values."""
        chosen = [row for row in rows if row[self.line] == line and row[self.x] == n]
        return {
            part: float(np.median([self.value(row) * row[part] / row["t_total"] for row in chosen]))
            for part in self.parts
        }

    def name(self, line: Any) -> str:
        """Return the name of a line; numbers get that of their column."""
        return line if isinstance(line, str) else f"{self.line} {line}"

    def of_variant(self, variant: tuple[Any, ...]) -> list[Published]:
        """Return the published values of a combination of variants."""
        return [one for one in self.published() if one.variant == variant]


def save_ranks(rows: Sequence[Row], folder: Path, name: str, head: Iterable[str]) -> None:
    """Save rows, and the parts of the time of each of the most ranks in the first round."""
    by_rank: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        each = row.pop(BY_RANK, None) or []
        case = {key: value for key, value in row.items() if not isinstance(value, float)}
        case.pop("ranks", None)
        known = by_rank.setdefault(tuple(case.values()), [])
        if len(each) > len(known):
            known[:] = [{**case, "rank": k, **parts} for k, parts in enumerate(each)]
    save(rows, folder / f"{name}.tsv", head)
    if saved := [row for some in by_rank.values() for row in some]:
        save(saved, folder / f"{name}.by-rank.tsv", head)


def write_ranks_page(folder: Path, experiments: Mapping[str, "Experiment"]) -> None:
    """Draw every experiment whose rows against ranks are saved, and write the page."""
    found = [
        _section(folder, name, experiment, experiment.scaling)
        for name, experiment in experiments.items()
        if experiment.scaling and (folder / f"{name}.tsv").exists()
    ]
    if found:
        text = "\n".join([INTRODUCTION, *found])
        (folder / "index.md").write_text(text, encoding="utf-8")


def _section(folder: Path, name: str, experiment: "Experiment", scaling: Scaling) -> str:
    head, rows = load(folder / f"{name}.tsv")
    figures = {f"{name}.png": draw(scaling, rows)}
    each = folder / f"{name}.by-rank.tsv"
    if each.exists():
        figures[f"{name}.by-rank.png"] = draw_by_rank(scaling, load(each)[1])
    with rc_context(RC):
        for file, figure in figures.items():
            figure.savefig(folder / file, dpi=DPI)
    return "\n\n".join(
        (
            f"## {experiment.title}",
            f"*{experiment.source}.* {experiment.question}",
            *(f"![{experiment.title}]({file})" for file in figures),
            table(scaling, rows).markdown(),
            f"`{name}`, [rows]({name}.tsv): {'; '.join(head)}.",
            "",
        )
    )


def table(scaling: Scaling, rows: Sequence[Row]) -> Table:
    """Create a table of values, speed-ups and parts, with published values."""
    parts = [label for label, _ in scaling.parts.values()]
    heads = (*scaling.variants, scaling.line, scaling.x, scaling.label, "speed-up", *parts)
    found = Table(f"{scaling.label}; parts are means over ranks", heads)
    for variant, some in scaling.cases(rows).items():
        lines = values_of(some, scaling.line)
        for line in lines:
            for n in scaling.ranks_of(some, line):
                value = cell(Spread.of(scaling.rounds(some, line, n)))
                speed = cell(scaling.speed_up(some, line, n))
                shown = [digits(one) for one in scaling.parts_of(some, line, n).values()]
                found.rows.append((*map(str, variant), str(line), str(n), value, speed, *shown))
        for one in scaling.of_variant(variant):
            speeds = one.speed_ups(min(scaling.ranks_of(some, line) for line in lines)[0])
            for n, value in one.values.items():
                numbers = (
                    "–" if one.speed_up else digits(value),
                    digits(speeds[n]) if speeds else "–",
                )
                name = f"published: {one.name}"
                found.rows.append((*map(str, variant), name, str(n), *numbers, *["–"] * len(parts)))
    return found


def draw(scaling: Scaling, rows: Sequence[Row]) -> Figure:
    """Draw a row of panels for each variant: value, speed-up, and parts."""
    cases = scaling.cases(rows)
    n_bars = [len({(row[scaling.line], row[scaling.x]) for row in some}) for some in cases.values()]
    heights = [max(HEIGHT, 0.9 + BAR * n * bool(scaling.parts)) for n in n_bars]
    with rc_context(RC):
        figure = Figure(figsize=(WIDTH, sum(heights) + 0.4), layout="constrained")
        n_panels = 3 if scaling.parts else 2
        grid = figure.subplots(len(cases), n_panels, squeeze=False, height_ratios=heights)
        for panes, (variant, some) in zip(grid, cases.items(), strict=True):
            _draw_values(scaling, panes, variant, some)
            if scaling.parts:
                _draw_parts(scaling, panes[2], some)
                panes[2].set(xlabel="share of the time, mean of ranks", xlim=(0, 1))
        if scaling.parts:
            handles, labels = grid[0][2].get_legend_handles_labels()
            figure.legend(handles, labels, loc="outside lower right", ncols=len(labels))
    return figure


def _draw_values(
    scaling: Scaling, panes: Sequence[Axes], variant: tuple[Any, ...], rows: Sequence[Row]
) -> None:
    left, right = panes[:2]
    theirs = scaling.of_variant(variant)
    ranks = values_of(rows, scaling.x)
    lines = values_of(rows, scaling.line)
    palette = cycle(PALETTE)
    for line in lines:
        own = scaling.ranks_of(rows, line)
        values = [Spread.of(scaling.rounds(rows, line, n)) for n in own]
        colour = COLOURS.get(line) or next(palette)
        points(left, own, values, colour, scaling.name(line))
        points(right, own, [scaling.speed_up(rows, line, n) for n in own], colour, "")
    for one, style in zip(theirs, cycle(STYLES)):
        speeds = one.speed_ups(ranks[0])
        options = {"color": PAPER, "markersize": 4, "linewidth": 1, "label": one.name}
        if not one.speed_up:
            left.plot(list(one.values), list(one.values.values()), style, **options)
        if speeds:
            right.plot(list(speeds), list(speeds.values()), style, **options)
    every = {*ranks, *(n for one in theirs for n in one.values)}
    far = [n for n in every if all(n > 1.7 * own or own > 1.7 * n for own in ranks)]
    ticks = sorted({*ranks, *far} if len(far) <= 2 else {*ranks, max(far)})
    ideal = [min(every), max(every)]
    right.plot(ideal, np.divide(ideal, ranks[0]), color="#bbbbbb", linewidth=1, zorder=0)
    for axes in (left, right):
        logarithmic(axes, ticks, [str(n) for n in ticks])
        axes.set(xlabel=scaling.x)
    left.set(title=_title(scaling, variant), ylabel=scaling.label)
    right.set(ylabel=f"speed-up over {ranks[0]}")
    left.legend(fontsize=6.5, frameon=True, framealpha=0.7, edgecolor="none")


def _draw_parts(scaling: Scaling, axes: Axes, rows: Sequence[Row]) -> None:
    lines = values_of(rows, scaling.line)
    cases = [(line, n) for line in lines for n in scaling.ranks_of(rows, line)]
    names = [f"{scaling.name(line)}, {n}" for line, n in cases]
    parts = [scaling.parts_of(rows, line, n) for line, n in cases]
    wholes = [sum(one.values()) or 1.0 for one in parts]
    shares = [
        {key: value / whole for key, value in one.items()}
        for one, whole in zip(parts, wholes, strict=True)
    ]
    stacked(axes, names, shares, scaling.parts)
    axes.tick_params(axis="y", labelsize=7)


def _title(scaling: Scaling, variant: tuple[Any, ...]) -> str:
    words = (f"{name} {value}" for name, value in zip(scaling.variants, variant, strict=True))
    return ", ".join(words)


def draw_by_rank(scaling: Scaling, rows: Sequence[Row]) -> Figure:
    """Draw the parts of the time of each rank: a row for each variant, a panel for each line."""
    cases = scaling.cases(rows)
    lines = values_of(rows, scaling.line)
    parts = {key: look for key, look in scaling.parts.items() if key in rows[0]}
    with rc_context(RC):
        size = (WIDTH, 2.2 * len(cases) + 0.4)
        figure = Figure(figsize=size, layout="constrained")
        grid = figure.subplots(len(cases), len(lines), squeeze=False)
        for panes, (variant, some) in zip(grid, cases.items(), strict=True):
            for axes, line in zip(panes, lines, strict=True):
                each = [row for row in some if row[scaling.line] == line]
                base = np.zeros(len(each))
                for key, (label, colour) in parts.items():
                    heights = np.array([row[key] / row.get("passes", 1) for row in each])
                    places = range(len(each))
                    axes.bar(places, heights, 1.0, base, label=label, color=colour)
                    base += heights
                axes.set(title=", ".join([*filter(None, [_title(scaling, variant)]), str(line)]))
                axes.set(xlabel="rank", xlim=(-0.6, max(len(each), 1) - 0.4))
                axes.xaxis.set_major_locator(MaxNLocator(integer=True))
            panes[0].set_ylabel("s, each frame once")
        handles, labels = grid[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower right", ncols=len(labels))
    return figure
