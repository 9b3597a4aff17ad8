"""Verdicts on the time series of tables, as text with units."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from paceline.analysis.convergence import MOST_R_HAT, assess, convergence, latest_start
from paceline.analysis.describe_system_and_frames import time_text, unit_of_time
from paceline.analysis.series_verdict import (
    DRIFTING,
    LEAST_OF_VERDICT,
    NOT_SHOWN,
    SAMPLED,
    Convergence,
    Kind,
)
from paceline.analysis.table import Table, name_and_unit, rounding_of
from paceline.analysis.uncertainty import (
    BY_TIME,
    ReplicaMean,
    decimals_of,
    digits,
    in_order,
    mean_of_replicas,
    with_decimals_of,
    with_error,
)
from paceline.contract.time_units import UNITS_IN_TITLES
from paceline.errors import UnsupportedError
from paceline.performance.number_format import joined

#: Maximum number of series of a table that are assessed together. If a table has more series, none
#: is assessed, unless the user chooses some of them.
MOST_SERIES = 16
#: Maximum number of series whose verdicts are counted (each takes 2 ms), and maximum number of all
#: their values.
MOST_COUNTED, MOST_VALUES = 64, 4_000_000
#: Units of angles in tables of paceline and of other programs.
DEGREES = ("°", "deg", "degree", "degrees")
#: Maximum number of digits of a time.
MOST_DIGITS = 12
#: Numbers from this one on are written with commas.
LARGE = 1e6
#: Maximum number of series that a sentence names.
MOST_NAMED = 5
#: Maximum needed time (ps) or number of frames that is written as a number, because no simulation
#: of molecules has lasted a second.
LONGEST = 1e12
#: Maximum R̂ that is written as a number.
MOST_SHOWN = 100


@dataclass(frozen=True)
class SeriesVerdict:
    """Verdict on a series of a table.

    Attributes
    ----------
    title : str
        Title of the column, with unit.
    found : Convergence
        Verdict.
    x_title : str
        Title of the times or frame numbers, with unit.
    kind : {"linear", "angle", "states"}
        Meaning of the values.
    label : str
        Label of the y axis, which may name the quantity if the title names atoms only.
    """

    title: str
    found: Convergence
    x_title: str
    kind: Kind = "linear"
    label: str = ""

    @property
    def unit(self) -> str:
        """Unit of the mean after a blank; no blank before °, and no unit for populations."""
        unit = "" if self.kind == "states" else name_and_unit(self.title)[1]
        return unit if unit in ("", "°") else f" {unit}"

    @property
    def axis(self) -> str:
        """Name of the quantity on the x axis: "time" for times in any known unit."""
        return "time" if name_and_unit(self.x_title)[1] in UNITS_IN_TITLES else self.x_title

    @property
    def start(self) -> float:
        """Start of the equilibrated part, ps; in the unit of the x axis if it shows no times."""
        unit = UNITS_IN_TITLES.get(name_and_unit(self.x_title)[1], 1.0)
        return self.found.equilibrated_at * unit

    @property
    def start_text(self) -> str:
        """Time or frame of the first equilibrated value."""
        start, step = self.found.equilibrated_at, self.found.length / max(1, self.found.n_values)
        if np.isnan(start):
            return "–"
        # Times may begin late, so the number of digits depends on the distance from the first time,
        # or on the step.
        distance = step * (self.found.equilibrated_from or 1000)
        if not (start and distance > 0):
            return duration(start, self.x_title)
        n_digits = 4 + math.floor(math.log10(abs(start))) - math.floor(math.log10(distance))
        return duration(start, self.x_title, min(max(4, n_digits), MOST_DIGITS))

    @property
    def mean_text(self) -> str:
        """Mean of the equilibrated part, or population of a state, with its 95 % interval."""
        half = self.found.half_width
        if np.isnan(self.found.mean):
            return "–"
        if not half > 0:
            return f"{digits(self.found.mean, 4)}{self.unit}"
        if self.kind == "states":  # the limits are not at equal distances from the mean
            low, high = self.found.interval
            decimals = self._decimals_of_states
            numbers = (f"{value:.{decimals}f}" for value in (self.found.mean, low, high))
            which = f"state {self.found.state}: " if self.found.state else ""
            return which + "{} ({} to {})".format(*numbers)
        return f"{with_error(self.found.mean, half)}{self.unit}"

    def in_legend(self, since: str) -> str:
        """Format, for a legend, the mean of the equilibrated part, and the verdict.

        `since` is the formatted start of this part. The unit is only added for angles; for other
        values, it is on the axis.
        """
        found, unit = self.found, self.unit if self.kind == "angle" else ""
        if np.isnan(found.mean):
            return "no mean"
        mean, of_all = (
            f"{text.removesuffix(self.unit)}{unit}"
            for text in (self.mean_text, self.mean_of_all_text)
        )
        if found.n_values == 1:
            return mean
        if found.is_constant:
            return f"mean {mean}, constant"
        if found.verdict == DRIFTING:
            return f"mean of all {of_all}, drifting"
        text = f"mean {mean}{' (95 %)' * (found.half_width > 0)}"
        if self.kind == "states":
            text = f"population of {mean.removesuffix(')')}{', 95 %)' * mean.endswith(')')}"
        notes = [f"from {since} on"] * bool(found.equilibrated_from)
        notes += ["weighted by time"] * (BY_TIME in found.reasons)
        notes += [found.verdict] * (found.verdict != SAMPLED)
        notes += [f"R̂ {self.r_hat_text}"] * (self.r_hat_text != "")
        return ", ".join([text, *notes])

    @property
    def r_hat_text(self) -> str:
        """R̂ of replicas with two decimals; empty for one simulation."""
        r_hat = self.found.r_hat
        if np.isnan(r_hat):
            return ""
        return f"{r_hat:.2f}" if r_hat < MOST_SHOWN else f"above {MOST_SHOWN}"

    @property
    def mean_of_all_text(self) -> str:
        """Mean of all values, with as many decimals as the mean of the equilibrated part."""
        if np.isnan(self.found.mean_of_all):
            return "–"
        if self.kind == "states" and self.found.half_width > 0:
            return f"{self.found.mean_of_all:.{self._decimals_of_states}f}"
        return f"{with_decimals_of(self.found.mean_of_all, self.found.half_width)}{self.unit}"

    @property
    def _decimals_of_states(self) -> int:
        """Number of decimals of populations."""
        return max(2, decimals_of(self.found.half_width))

    @property
    def needed_text(self) -> str:
        """Additional simulation time that is needed; empty if none is needed, or if unknown."""
        low, high = self.found.needed_interval
        if not high > 0 or self.found.verdict == SAMPLED:
            return ""
        return more_needed(low, high, self.x_title)

    @property
    def advice(self) -> str:
        """Additional simulation time that is needed, or advice for a series that drifts."""
        if self.found.verdict == DRIFTING:
            return "no equilibrium mean yet: simulate longer"
        return self.needed_text

    @property
    def verdict(self) -> str:
        """Verdict, and the additional simulation time that is needed."""
        return f"{self.found.verdict}{', ' * bool(self.needed_text)}{self.needed_text}"

    @property
    def short(self) -> str:
        """Verdict, mean of the equilibrated part if it starts later, and the needed time."""
        later = ""
        if self.found.equilibrated_from:
            later = f" from {self.start_text} on (mean {self.mean_text})"
        return f"{self.found.verdict}{later}{', ' * bool(self.advice)}{self.advice}"

    def __str__(self) -> str:
        return "; ".join((self.short, *self.found.reasons))


def duration(value: float, title: str, n_digits: int = 4) -> str:
    """Format a time with a readable unit, or the number of a frame.

    Examples
    --------
    >>> duration(12_400.0, "time (ps)"), duration(120.0, "frame"), duration(19.5, "time (ns)")
    ('12.4 ns', 'frame 120', '19.5 ns')
    >>> duration(1_000_156.0, "time (ps)", 8), duration(2_000_001, "frame")
    ('1.000156 µs', 'frame 2,000,001')
    """
    name, unit = name_and_unit(title)
    rounded = float(f"{value:.{n_digits}g}")
    if unit == "ps":
        return time_text(rounded, max(6, n_digits))
    if unit:
        return f"{_plain(rounded, n_digits)} {unit}"
    return f"{name} {_plain(value, n_digits)}"


def more_needed(low: float, high: float, title: str) -> str:
    """Format a probable and a cautious length of further simulation, with two digits.

    Examples
    --------
    >>> more_needed(7100.0, 15_000.0, "time (ps)"), more_needed(5.9e4, 6e4, "time (ns)")
    ('7.1 to 15 ns more needed', 'about 60 µs more needed')
    >>> more_needed(2.5e5, 6.4e13, "time (ps)"), more_needed(3900.0, 5300.0, "frame")
    ('250 ns to more than 1 s more needed', '3900 to 5300 frames more needed')
    >>> more_needed(2.4e13, 2.8e13, "time (ps)")
    'more than 1 s more needed (longer than any simulation)'
    """
    scale = UNITS_IN_TITLES.get(name_and_unit(title)[1])
    low, high = (float(f"{one * (scale or 1.0):.2g}") for one in (low, high))
    longest = f"more than {' '.join(_length(LONGEST, LONGEST, title))}"
    if low >= LONGEST:
        return f"{longest} more needed{' (longer than any simulation)' * (scale is not None)}"
    number, unit = _length(high, high, title)
    end = longest if high > LONGEST else f"{number} {unit}"
    if low <= 0:
        return f"up to {end} more needed"
    if np.isnan(low) or high < 1.1 * low:
        return f"about {end} more needed"
    # A lower limit below 1 would be hard to read, so that it then has a unit of its own.
    least, of = _length(low, high if low >= unit_of_time(high)[1] else low, title)
    same = of == unit and high <= LONGEST
    return f"{least}{'' if same else f' {of}'} to {end} more needed"


def _length(value: float, like: float, title: str) -> tuple[str, str]:
    """Format a time (ps), or a number of frames; return the number and the unit.

    The unit of a time is the one that suits the time `like`.
    """
    name, unit = name_and_unit(title)
    if unit in UNITS_IN_TITLES:
        shown, length = unit_of_time(like)
        return _plain(value / length), shown
    singular, plural = (
        (name, f"{name}s") if name.lower() != "time" else ("unit of time", "units of time")
    )
    return _plain(value), unit or (singular if value == 1 else plural)


def _plain(value: float, n_digits: int = 6) -> str:
    """Format a number without a power of 10; large numbers with commas."""
    if abs(value) < LARGE:
        return f"{value:.{max(6, n_digits)}g}"
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.2f}"


def table_verdicts(
    table: Table,
    titles: Sequence[str] | None = None,
    *,
    kind: Kind | None = None,
    precision: float | None = None,
) -> dict[str, SeriesVerdict]:
    """Assess all or some time series of a table, by title; none if rows are not frames in order.

    Periodic angles are assessed as angles, and numbers of clusters as states. The tests for starts
    and drifts allow for the number of all series of the table, also of those in other panels, so
    that a verdict does not depend on the choice of series.
    """
    if not table.in_order:
        return {}
    x_title = table.abscissa
    x = np.asarray(table.columns[x_title], dtype=float)
    found = {}
    for title in titles or table.y:
        values = np.asarray(table.columns[title])
        meaning = kind or kind_of_series(table, title)
        if values.dtype.kind not in "iufb" and meaning != "states":
            continue
        one = convergence(values, x, kind=meaning, precision=precision, n_series=table.n_series)
        found[title] = SeriesVerdict(title, one, x_title, meaning, table.y_label)
    return found


def kind_of_series(table: Table, title: str) -> Kind:
    """Return the meaning of a column: numbers, periodic angles, or states."""
    if not table.no_mean:
        return "angle" if _turns(table, title) else "linear"
    return "angle" if name_and_unit(title)[1] == "°" else "states"


def common_kind(tables: Iterable[Table], title: str) -> Kind:
    """Return the meaning of a column that several tables have.

    If the column contains periodic angles in one table, it does so in all tables: the angles of
    some replicas may not pass from one end of their range to the other.
    """
    kinds = {kind_of_series(one, title) for one in tables}
    return "angle" if "angle" in kinds else "states" if "states" in kinds else "linear"


def _turns(table: Table, title: str) -> bool:
    """True for a column of degrees that passes from one end of its range to the other."""
    values = np.asarray(table.columns[title])
    if name_and_unit(title)[1] not in DEGREES or values.dtype.kind not in "iuf":
        return False
    known = values[np.isfinite(values)]
    return bool(np.all(np.abs(known) <= 360) and np.any(np.abs(np.diff(known)) > 180))


def verdicts_with_angles(table: Table) -> dict[str, SeriesVerdict]:
    """Assess the series of a table, with angles and states; none if more than `MOST_SERIES`."""
    if len(table.y) > MOST_SERIES:
        return {}
    if not table.no_mean:
        return table_verdicts(table)
    titles = [title for title in table.y if _is_angle_or_state(table, title)]
    return table_verdicts(table, titles) if titles else {}


def count_verdicts(table: Table) -> str:
    """Count the verdicts on series of a table, including angles and states; empty if it has none.

    If there are very many series or values, only every n-th series is assessed.
    """
    if not table.is_series:
        return ""
    titles = [one for one in table.y if not table.no_mean or _is_angle_or_state(table, one)]
    n_values = len(titles) * len(table.columns[table.x])
    step = max(1, -(-len(titles) // MOST_COUNTED), -(-n_values // MOST_VALUES))
    found = table_verdicts(table, titles[::step]) if titles else {}
    if not found:
        return ""
    numbers = Counter(
        "constant" if one.found.is_constant else one.found.verdict for one in found.values()
    )
    parts = [
        f"{numbers[grade] or 'none'} {is_one if numbers[grade] < 2 else are}"
        for grade, is_one, are in (
            (SAMPLED, "is sampled", "are sampled"),
            (NOT_SHOWN, "is not shown to be", "are not shown to be"),
            (DRIFTING, "drifts", "drift"),
            ("constant", "is constant", "are constant"),
        )
        if numbers[grade] or grade == SAMPLED
    ]
    some = f"{len(found):,} of " if len(found) < len(titles) else ""
    return f"of {some}{len(titles):,} series, {joined(parts)}"


def _is_angle_or_state(table: Table, title: str) -> bool:
    """True for periodic angles, and for columns with a few states."""
    if kind_of_series(table, title) == "angle":
        return True
    values = np.asarray(table.columns[title])
    if values.dtype.kind == "f":
        values = values[np.isfinite(values)]
    if values.dtype.kind not in "iufb" or np.any(values != np.round(values)):
        return False
    return len(np.unique(values)) <= MOST_SERIES


def replica_verdict(
    tables: Mapping[str, Table],
    title: str,
    *,
    kind: Kind | None = None,
    precision: float | None = None,
) -> SeriesVerdict:
    """Assess a series between different replicas, whose tables are given by their names.

    Copies are not looked for, since a single series may be equal in different replicas. Raises
    `ValueError` if the times of a table decrease.
    """
    first = next(iter(tables.values()))
    kind = kind or common_kind(tables.values(), title)
    values = [np.asarray(one.columns[title]) for one in tables.values()]
    found = assess(
        np.concatenate(values),
        np.concatenate([np.asarray(t.columns[t.abscissa], float) for t in tables.values()]),
        np.repeat([*tables], [len(one) for one in values]),
        kind,
        precision,
        max(one.n_series for one in tables.values()),
        leave_out=False,
    )
    return SeriesVerdict(title, found, first.abscissa, kind, first.y_label)


def equilibrated_mean(verdict: SeriesVerdict) -> ReplicaMean:
    """Return the mean between the equilibrated parts of replicas; NaN if one drifts."""
    means = verdict.found.replica_means
    return mean_of_replicas(means if verdict.found.verdict != DRIFTING else [np.nan] * len(means))


def verdicts_of_replicas(
    tables: Mapping[str, Table], others: Iterable[Table] = ()
) -> dict[str, SeriesVerdict]:
    """Assess the series that all tables of replicas have; none if more than `MOST_SERIES`.

    A series is of one kind (numbers, angles or states) in these tables and in `others`, the tables
    of other groups. Empty if rows are not frames in the order of time.
    """
    if not tables or not all(one.in_order for one in tables.values()):
        return {}
    titles = [
        title
        for title in next(iter(tables.values())).y
        if all(title in one.columns for one in tables.values())
    ]
    if len(titles) > MOST_SERIES:
        return {}
    every = [*tables.values(), *others]
    found = {}
    for title in titles:
        kind = common_kind([one for one in every if title in one.columns], title)
        found[title] = replica_verdict(tables, title, kind=kind)
    return found


def place_out_of_order(table: Table) -> str:
    """Describe the first row whose time is not later than that of the previous row; else empty."""
    x = np.asarray(table.columns[table.abscissa])
    if x.dtype.kind not in "iuf":
        return ""
    rows = np.flatnonzero(~np.isnan(x.astype(np.float64)))
    steps = np.diff(x[rows])
    # Return the first decrease, if there is one: a repeated time before it may be harmless.
    wrong = np.flatnonzero(steps < 0 if np.any(steps < 0) else steps == 0)
    if not len(wrong):
        return ""
    row = rows[wrong[0] + 1]
    return f"row {row + 1} has {table.abscissa} {x[row]:g} after {x[rows[wrong[0]]]:g}"


def usual_verdicts(table: Table, titles: Sequence[str] | None = None) -> dict[str, SeriesVerdict]:
    """Assess the series of a table with means; return no verdicts for more than `MOST_SERIES`."""
    titles = list(titles or table.y)
    if table.no_mean or len(titles) > MOST_SERIES:
        return {}
    return table_verdicts(table, titles)


def verdicts_of(tables: Mapping[str, Table | None]) -> dict[str, SeriesVerdict]:
    """Assess the series with means of several tables, which are given by their names.

    The name of a verdict is the name of the table. If a table has several series, the name of the
    series follows in parentheses.
    """
    found: dict[str, SeriesVerdict] = {}
    for name, table in tables.items():
        if table is None or table.notes:
            continue
        found |= named_verdicts(name, usual_verdicts(table, table.answering))
    return found


def equilibrated_start(
    tables: Mapping[str, Table | None],
    of: str = "",
    frame_times: Mapping[str, np.ndarray] | None = None,
) -> tuple[int, str]:
    """Return the number of first frames that are not equilibrated, with the reason.

    Rows of most tables are frames. For a table with other rows, such as energies, `frame_times`
    contains the times of the frames, ps, by the name of the table. If these times cannot be
    compared with those of the table, its start is ignored. Raises `UnsupportedError`, whose message
    begins with `of`, if a series drifts.
    """
    found: dict[str, SeriesVerdict] = {}
    starts: dict[str, tuple[int, float]] = {}
    for name, table in tables.items():
        own = verdicts_of({name: table})
        found |= own
        for series, one in own.items():
            row = one.found.equilibrated_from or 0
            if frame_times is not None and name in frame_times:
                row = _frame_at(one, frame_times[name])
            if row >= 0:
                starts[series] = row, one.start
    drifting = next((name for name in found if found[name].found.verdict == DRIFTING), None)
    if drifting is not None:
        raise UnsupportedError(
            f"{of}no frames are equilibrated: {drifting} drifts until the second half of the run "
            f"({found[drifting].found.reasons[0]}); simulate longer, or run without --equilibrated"
        )
    if not starts:
        return 0, ""
    last = max(starts, key=lambda name: (starts[name][0], np.nan_to_num(starts[name][1])))
    others = ", and all others before" if len(starts) > 1 else ""
    return starts[last][0], f"{last} is equilibrated from {found[last].start_text} on{others}"


def _frame_at(verdict: SeriesVerdict, times: np.ndarray) -> int:
    """Return the index of the first frame in the equilibrated part of a series.

    Returns -1 if the times of the series cannot be compared with those of the frames.
    """
    known = verdict.axis == "time" and len(times) and np.isfinite(times).all() and in_order(times)
    slack = rounding_of(times, [verdict.start])
    later = times >= verdict.start - slack if known else np.zeros(1, dtype=bool)
    return int(np.argmax(later)) if later.any() else -1


def _latest_start(found: Mapping[str, SeriesVerdict]) -> tuple[int | None, str]:
    """Return the result of `latest_start` for series whose times may have different units."""
    verdicts = {name: one.found for name, one in found.items()}
    return latest_start(verdicts, {name: one.start for name, one in found.items()})


def named_verdicts(name: str, some: Mapping[str, SeriesVerdict]) -> dict[str, SeriesVerdict]:
    """Name verdicts by their analysis, and by their series if there are several."""
    return {
        f"{name} ({name_and_unit(title)[0]})" if len(some) > 1 else name: one
        for title, one in some.items()
    }


def system_verdict(found: Mapping[str, SeriesVerdict]) -> str:
    """Summarise in words whether a simulation is long enough, from verdicts by name.

    Constant series are ignored.
    """
    found = {name: one for name, one in found.items() if not one.found.is_constant}
    if not found:
        return ""
    answer = f"{_answer(found)} {_agreement(found)}".rstrip()
    if all("rmsd" in f"{one.title} {one.label}".lower() for one in found.values()):
        return f"{answer} This is a verdict on RMSD alone, which many different structures share."
    return answer


def _agreement(found: Mapping[str, SeriesVerdict]) -> str:
    """Say whether replicas agree; empty for one simulation."""
    known = {name: one.found.r_hat for name, one in found.items() if one.r_hat_text}
    if not known:
        return ""
    worst = max(known, key=lambda name: known[name])
    shown = f"R̂ {found[worst].r_hat_text}"
    differ = [name for name, r_hat in known.items() if r_hat > MOST_R_HAT]
    if not differ:
        return f"Replicas agree ({shown} at most)."
    most = f", most in {worst}" if len(differ) > 1 else ""
    differing = joined(differ, MOST_NAMED)
    expected = f"({shown}; {MOST_R_HAT} or less is expected)"
    return f"Replicas, or their halves, differ in {differing}{most} {expected}."


def _answer(found: Mapping[str, SeriesVerdict]) -> str:
    """Return a sentence: the start of equilibrium, and the series without a sampled mean.

    If there is only one series, the sentence names it. A start in frames cannot be compared with a
    start in time, so series against frames and series against times get separate sentences.
    """
    start, last = _latest_start(found)
    at_once = not any(one.found.equilibrated_from for one in found.values())
    if start is not None and not at_once and len({one.axis for one in found.values()}) > 1:
        axes: dict[str, dict[str, SeriesVerdict]] = {}
        for name, one in found.items():
            axes.setdefault(one.axis, {})[name] = one
        return " ".join(map(_answer, axes.values()))
    grades: dict[str, list[str]] = {}
    for name, one in found.items():
        grades.setdefault(one.found.verdict, []).append(name)
    n_sampled = len(grades.get(SAMPLED, ()))
    if start is None:
        drift = "drifts" if len(grades[DRIFTING]) == 1 else "drift"
        begin = f"{joined(grades[DRIFTING], MOST_NAMED)} {drift}"
        whole = "The system is not equilibrated:" if len(found) > 1 else "The series"
        begin = f"{whole} {begin}"
    else:
        since = "the first frame" if at_once else found[last].start_text
        last_one = f" ({last} is last)" if not at_once and len(found) > 1 else ""
        if n_sampled == len(found) == 1:
            return f"The series {last} is equilibrated from {since} on, and its mean is sampled."
        if n_sampled == len(found):
            how = "both means are" if n_sampled == 2 else f"all {n_sampled} means are"
            return f"The system is equilibrated from {since} on{last_one}, and {how} sampled."
        begin = f"No drift is seen from {since} on{last_one}"
        if all(one.found.n_values < LEAST_OF_VERDICT for one in found.values()):
            begin = "There are too few values to see a drift"
    rest = grades.get(NOT_SHOWN, [])
    if rest:
        return f"{begin}; not shown to be sampled: {joined(rest, MOST_NAMED)}."
    return f"{begin}."
