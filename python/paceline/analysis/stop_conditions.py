"""Conditions that end the analysis of a growing trajectory: means that are known well enough."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from paceline.analysis.convergence_of_table_series import MOST_SERIES, SeriesVerdict, table_verdicts
from paceline.analysis.saved_table_format import title_like
from paceline.analysis.series_verdict import SAMPLED
from paceline.analysis.table import Table, name_and_unit
from paceline.contract.analysis import Analysis, is_updated
from paceline.contract.read_catalogue import catalogue
from paceline.errors import UnsupportedError
from paceline.performance.number_format import joined

#: One condition, and the "and" before the next condition; a title may itself contain "and".
_CONDITION = re.compile(
    r"\s*(?P<series>\S.*?)\s+(?P<wanted>sampled|[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)"
    r"\s*(?:$|\band\b(?=\s+\S))",
    re.IGNORECASE,
)
#: Maximum number of series, and of analyses, that an error names.
MOST_NAMED, MOST_ANALYSES = 8, 30
EXAMPLES = (
    "expected 'NAME sampled', or NAME and half the width of the 95 % interval of its mean in the "
    "unit of the table, such as 'rmsd 0.1', joined by 'and'"
)


class ShownUpdate(Protocol):
    """Attributes of `paceline.live_runner.Update` that conditions need."""

    @property
    def analyses(self) -> Mapping[str, Analysis]:
        """Analyses whose results are up to date, by name."""


@dataclass(frozen=True)
class _Condition:
    """Condition on the mean of one series, or of each series of a table."""

    name: str
    column: str
    #: Maximum of half the width of the 95 % interval; None for any width.
    precision: float | None

    @property
    def text(self) -> str:
        """Name of the analysis, and of the column if the condition is on one series."""
        return f"{self.name}.{self.column}" if self.column else self.name

    def verdicts(self, table: Table | None) -> list[SeriesVerdict]:
        """Assess the table's series; raise `UnsupportedError` if there are none, or too many."""
        if table is None or not table.is_series:
            raise UnsupportedError(
                f"stop when {self.text!r}: the results of {self.name} are not time series, so "
                "there is no verdict on them"
            )
        panels = table.panels or [table]
        titles = list(dict.fromkeys(title for panel in panels for title in panel.y))
        if self.column:
            known = dict.fromkeys(titles)
            titles = [title_like(known, f"stop when {self.text!r}: {self.name}", self.column)]
        units = {name_and_unit(title)[1] for title in titles}
        if len(titles) > MOST_SERIES or (self.precision is not None and len(units) > 1):
            found = f"{len(titles)} series" + " of several units" * (len(units) > 1)
            raise UnsupportedError(
                f"stop when {self.text!r}: {self.name} has {found}; choose one of them as "
                f"'{self.name}.COLUMN': {joined(titles, MOST_NAMED)}"
            )
        verdicts: dict[str, SeriesVerdict] = {}
        for panel in panels:
            some = [title for title in titles if title in panel.y]
            if some:
                verdicts |= table_verdicts(panel, some, precision=self.precision)
        if not verdicts:
            raise UnsupportedError(
                f"stop when {self.text!r}: expected numbers at increasing times; the frames are "
                "not in the order of time, or the column is text"
            )
        return [*verdicts.values()]


class StopConditions:
    """Conditions that all must hold, such as "rmsd sampled and gyration 0.05".

    Parameters
    ----------
    text : str
        Conditions joined by "and". "NAME sampled" holds if the verdict on the series is "sampled".
        "NAME 0.1" holds if, in addition, half the width of the 95 % interval of the mean is at most
        0.1, in the unit of the table. NAME is an analysis, or NAME.COLUMN one of its series;
        without a column, the condition is on each series of the analysis.
    analyses : mapping of str to analysis
        Analyses by name. If the name of an analysis is that of its class, the text may also name
        the analysis by its command.
    aliases : mapping of str to str, optional
        Names of these analyses, by other names that the text may contain.

    Raises
    ------
    UnsupportedError
        The text is not a condition, or names an analysis that does not exist or has no results
        before the end.
    """

    def __init__(
        self,
        text: str,
        analyses: Mapping[str, Analysis],
        aliases: Mapping[str, str] | None = None,
    ):
        others = {name.lower(): key for name, key in (aliases or {}).items()}
        names = others | _names_of(analyses)
        self._conditions = [_made(*one, names, analyses) for one in _parsed(text)]

    def __call__(self, update: ShownUpdate) -> str | None:
        """Return the reason to stop if all conditions hold, otherwise None.

        Raises `UnsupportedError` if results are not time series, or a column does not exist.
        """
        verdicts = self._verdicts(update)
        if not all(some and all(map(_is_sampled, some)) for some in verdicts):
            return None
        texts = [
            f"{condition.text} is sampled: {_means(some)}"
            for condition, some in zip(self._conditions, verdicts, strict=True)
        ]
        return "; ".join(texts)

    def missing(self, update: ShownUpdate) -> str:
        """Describe the conditions that do not hold yet; empty if all hold."""
        texts = []
        for condition, some in zip(self._conditions, self._verdicts(update), strict=True):
            left = [one for one in some if not _is_sampled(one)]
            if not some:
                texts.append(f"{condition.text} has too few frames")
            elif left:
                reasons = "; ".join(left[0].found.reasons)
                texts.append(f"{condition.text} is {left[0].verdict} ({reasons})")
        return "; ".join(texts)

    def _verdicts(self, update: ShownUpdate) -> list[list[SeriesVerdict]]:
        """Assess the series of each condition; an analysis with too few frames so far has none."""
        found = []
        for one in self._conditions:
            analysis = update.analyses.get(one.name)
            found.append([] if analysis is None else one.verdicts(analysis.results.table))
        return found


def check_names(text: str, names: Collection[str]) -> None:
    """Raise `UnsupportedError` if a condition is not on one of the analyses `names`.

    This check reports a mistake before the program waits for the simulation.
    """
    lowered = {name.lower(): name for name in reversed([*names])}
    for series, _ in _parsed(text):
        if _named(series, lowered) is None:
            possible = joined(sorted(lowered.values()), MOST_ANALYSES)
            raise UnsupportedError(_unknown(series, f"possible: {possible}"))


def _parsed(text: str) -> list[tuple[str, str]]:
    """Return the series of each condition, and "sampled" or half the width of the interval."""
    found: list[tuple[str, str]] = []
    at = 0
    while at < len(text) or not found:
        one = _CONDITION.match(text, at)
        if one is None:
            raise UnsupportedError(f"stop when {text!r}: {EXAMPLES}")
        found.append((one["series"], one["wanted"]))
        at = one.end()
    return found


def _named(series: str, names: Collection[str]) -> str | None:
    """Return the longest of the lowercase `names` that equals `series` or its text before a dot."""
    lowered = series.lower()
    fitting = [one for one in names if lowered == one or lowered.startswith(f"{one}.")]
    return max(fitting, key=len, default=None)


def _unknown(series: str, possible: str) -> str:
    return f"stop when {series!r}: there is no such analysis; {possible}"


def _made(
    series: str, wanted: str, names: Mapping[str, str], analyses: Mapping[str, Analysis]
) -> _Condition:
    """Make a condition on an analysis, or on one of its series."""
    shown = {name: key for key, name in reversed([*names.items()])}
    updated = sorted(key for name, key in shown.items() if is_updated(analyses[name]))
    possible = f"possible: {joined(updated)}" if updated else "all analyses are computed at the end"
    key = _named(series, names)
    if key is None:
        raise UnsupportedError(_unknown(series, possible))
    name = names[key]
    if not is_updated(analyses[name]):
        raise UnsupportedError(
            f"stop when {series!r}: {name} is computed when the trajectory has ended; {possible}"
        )
    precision = None if wanted.lower() == "sampled" else float(wanted)
    if precision is not None and not precision > 0:
        raise UnsupportedError(f"stop when '{series} {wanted}': expected a number above 0")
    return _Condition(name, series[len(key) + 1 :].strip(), precision)


def _names_of(analyses: Mapping[str, Analysis]) -> dict[str, str]:
    """Map names that the text may contain, in lower case, to the names of analyses.

    These are the names of analyses, and for some analyses the names of their commands.
    """
    commands = {one["class"].partition(".")[2]: one["name"] for one in catalogue().values()}
    found = {}
    for name, one in analyses.items():
        command = commands.get(type(one).__name__)
        # An analysis with the name of its class also gets the name of its command, but below, the
        # names of analyses take precedence.
        if command is not None and name == type(one).__name__:
            found[command.lower()] = name
    return found | {name.lower(): name for name in analyses}


def _is_sampled(one: SeriesVerdict) -> bool:
    return one.found.verdict == SAMPLED


def _means(verdicts: Sequence[SeriesVerdict]) -> str:
    """Format the means of series, with their intervals."""
    if len(verdicts) == 1:
        return f"mean {verdicts[0].mean_text}, {verdicts[0].found.reasons[0]}"
    return ", ".join(f"{name_and_unit(one.title)[0]} {one.mean_text}" for one in verdicts)
