"""HTML page with the results of a battery: summary of the system, and a card per analysis."""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from paceline._core import __version__
from paceline.analysis.convergence_of_table_series import (
    MOST_SERIES,
    count_verdicts,
    system_verdict,
    usual_verdicts,
    verdicts_of,
)
from paceline.analysis.describe_system_and_frames import describe_span, describe_system
from paceline.analysis.energies import Energies
from paceline.analysis.interactive_charts import charts_of
from paceline.analysis.results import Results, kind_of
from paceline.analysis.table import Table, name_and_unit
from paceline.analysis.uncertainty import ENOUGH, SeriesMean
from paceline.contract.figure_options import FigureOptions
from paceline.contract.read_catalogue import catalogue
from paceline.contract.run_info_and_descriptions import describe_frames
from paceline.contract.source import UNKNOWN_TIMES
from paceline.contract.system_interface import System
from paceline.performance.analysis_results_page import (
    Overview,
    PageState,
    ResultDrawing,
    ResultSection,
    results_page,
)
from paceline.performance.figure_style_and_elements import STYLE, styled
from paceline.performance.number_format import joined, many

if TYPE_CHECKING:
    from paceline.analysis.base import AnalysisBase

#: Beginning of the heading of an entry of a default battery, by the kind of molecule it analyses.
OF_SYSTEMS = {"ligand": "Ligand", "ligand in water": "Ligand", "liquid": "Water"}
#: Words for common selections in headings.
OF_ATOMS = {
    **{"backbone": "backbone", "protein": "protein", "nucleic": "nucleic acid"},
    **{
        "nucleicbackbone": "nucleic acid backbone",
        "protein and same residue as name CA": "protein",
    },
    **{"name CA": "Cα", "protein and name CA": "Cα"},
}
LONGEST = 40
#: Maximum number of series in the card of an analysis.
LISTED = 20
#: Maximum number of series in an analysis's sentence of the summary.
SUMMARISED = 3
#: Maximum length of a warning that the summary repeats, characters.
SHORT_WARNING = 240
#: Size of a figure, inches.
FIGURE_SIZE = (5.2, 2.9)
#: Size of the figure of a further table, inches; it is higher, because rows may have names.
FURTHER_SIZE = (5.2, 3.6)
#: Column titles of the table of means.
OF_MEANS = ("series", "mean ± 95 %", "independent", "equilibrated", "mean from there on", "verdict")
FOOTER = (
    "Intervals are 95 % intervals, by the spectrum of each series at low frequencies. A mean is "
    f"sampled if {ENOUGH} or more of its values are independent (probability 95 %), nothing shows "
    "a drift, and two states, if there are two, were left 10 times or more."
)


class ShownBattery(Protocol):
    """Attributes of `paceline.analysis.battery.Battery` that its page shows."""

    universe: System
    analyses: "dict[str, AnalysisBase]"
    left_out: dict[str, str]
    warnings: list[str]

    @property
    def shown(self) -> dict[str, Any]:
        """Analyses by name, including the energies."""

    @property
    def described(self) -> dict[str, Mapping[str, Any]]:
        """Parameters of the analyses, by name."""


def heading(
    name: str, analysis: "AnalysisBase | Energies", description: Mapping[str, object]
) -> str:
    """Make the heading of an analysis, such as "Backbone RMSD".

    If the user named the analysis, the heading begins with this name. If an entry of a default
    battery is not named after its analysis, the heading begins with the kind of molecule.
    """
    if isinstance(analysis, Energies):
        return "Energies"
    declared = {one["class"].partition(".")[2]: one for one in catalogue().values()}
    entry = declared.get(type(analysis).__name__, {"name": name, "title": analysis.name})
    select, title = description.get("select"), entry["title"]
    groups = description.get("groupselections")
    if isinstance(groups, list | tuple) and groups:
        of = " and ".join(map(str, groups))
        title = f"{title} of {of if len(of) <= LONGEST else 'further atoms'}"
        title += f" after superposition of {OF_ATOMS.get(f'{select}', select)}"
    elif select in OF_ATOMS:
        title = f"{OF_ATOMS[select]} {title}"
    elif isinstance(select, str) and select != "all" and len(select) <= LONGEST:
        title = f"{title} of {select}"
    title = title[0].upper() + title[1:]
    if name in (entry["name"], description.get("analysis")):
        return title
    systems = {one["name"]: one["system"] for one in entry.get("batteries", ())}
    part = OF_SYSTEMS.get(systems[name]) if name in systems else name
    return f"{part}: {in_sentence(title)}" if part else title


def page_of_battery(
    battery: ShownBattery,
    saved: Mapping[str, str],
    further: Mapping[str, Mapping[str, Results]],
    options: FigureOptions,
    state: PageState | None = None,
    title: str | None = None,
) -> str:
    """Make the page of a battery, with the name of the trajectory file as the default title.

    `saved` are filenames of tables, and `further` the results of further tables, both by the name
    of the analysis.
    """
    headings = {
        name: heading(name, analysis, battery.described[name])
        for name, analysis in battery.shown.items()
    }
    sections = [
        _section(
            *(battery, name, headings[name], saved[name], further[name], options),
            is_live=state is not None,
        )
        for name in headings
    ]
    one = next(iter(battery.analyses.values()))
    title = title or Path(str(one.provenance["trajectory"]).partition(", ")[0]).name
    later = state.later if state else ()
    lacking = {name: why for name, why in battery.left_out.items() if name not in later}
    warnings = warnings_of([f"{name}: {why}" for name, why in lacking.items()], battery.warnings)
    counts = _counts(battery, headings, further)
    paragraphs = _paragraphs(battery, one, headings, warnings, counts)
    overview = Overview(title, [*filter(None, paragraphs)], _facts(battery, one), warnings, state)
    return results_page(overview, sections, FOOTER)


def warnings_of(left_out: Sequence[str], warnings: Sequence[str]) -> list[str]:
    """List the reasons for analyses that were left out, and all other warnings."""
    reasons = [f"left out: {reason}" for reason in left_out]
    said = [one for one in warnings if not one.startswith("left out of the battery: ")]
    return list(dict.fromkeys([*reasons, *said]))


def _facts(battery: ShownBattery, one: "AnalysisBase") -> list[tuple[str, str]]:
    """Return facts about the run of the battery; `one` is any of its analyses."""
    atoms, timings = battery.universe.atoms, one.timings
    times = one.times if one.times_known else None
    unknown = "" if one.times_known else f"; times unknown: {one.provenance[UNKNOWN_TIMES]}"
    facts = {
        "trajectory": str(one.provenance["trajectory"]),
        "atoms": f"{len(atoms):,} in {len(atoms.residues):,} residues",
        "frames": describe_frames(one.frames, times) + unknown,
        "damaged frames": f"{len(one.damaged):,} left out" if one.damaged else "",
        "transformations": transformations_of(battery.analyses),
        "computed": f"{timings.date} by paceline {__version__}, {timings.backend}, "
        f"{many(timings.n_workers, 'worker')}, {timings.t_total:.1f} s",
    }
    return [fact for fact in facts.items() if fact[1]]


def transformations_of(
    analyses: "Mapping[str, AnalysisBase] | Mapping[tuple[str, int, str], AnalysisBase]",
) -> str:
    """Describe the transformations of a run; name the analyses if transformations differ."""
    of: dict[str, list[str]] = {}
    for name, one in analyses.items():
        of.setdefault(one.provenance.get("transforms", ""), []).append(f"{name}")
    if len(of) == 1:
        return next(iter(of))
    return "; ".join(f"{joined(names)}: {done or 'none'}" for done, names in of.items())


def _counts(
    battery: ShownBattery, headings: Mapping[str, str], further: Mapping[str, Mapping[str, Results]]
) -> list[str]:
    """Count the verdicts on series that the summary does not name, in a sentence per table.

    These series are angles, states, the series of a table with very many series, and the series of
    further tables.
    """
    found = []
    for name, analysis in battery.shown.items():
        tables = [analysis.results.table, *(one.table for one in further[name].values())]
        for table in tables:
            if table is None:
                continue
            is_first = table is tables[0]
            is_named = is_first and not table.no_mean and len(table.y) <= MOST_SERIES
            # A further table with states shows in which frames records exist: the first table
            # counts the same records.
            is_repeated = not is_first and table.states is not None
            if not (is_named or is_repeated) and (counts := count_verdicts(table)):
                found.append(f"{headings[name]}: {counts}.")
    return found


def _paragraphs(
    battery: ShownBattery,
    one: "AnalysisBase",
    headings: Mapping[str, str],
    warnings: Sequence[str],
    counts: Sequence[str],
) -> Iterator[str]:
    """Write the paragraphs of the summary: system, frames, results, and doubtful results."""
    span = describe_span(one.frames, one.times if one.times_known else None)
    found: list[str] = []
    more: list[str] = []
    for name, analysis in battery.shown.items():
        title, table = in_sentence(headings[name]), analysis.results.table
        means = {} if table is None or table.notes else table.means(table.answering[:LISTED])
        if means:
            texts = _brief(table, means)
            found.append(
                f"{title} ({', '.join(texts)})" if len(texts) > 1 else f"{title} {texts[0]}"
            )
        elif table is not None and _sentences(analysis.results, table):
            more.append(f"{headings[name]}: {'; '.join(_sentences(analysis.results, table))}")
    tables = {in_sentence(headings[name]): one.results.table for name, one in battery.shown.items()}
    answer = system_verdict(verdicts_of(tables))
    parts = [answer, *counts, system_sentence(battery.universe), f"The results are of {span}."]
    yield " ".join(filter(None, parts))
    if found:
        yield f"Means with 95 % intervals: {'; '.join(found)}."
    yield from (f"{text}." for text in more)
    if one.damaged:
        yield f"{many(len(one.damaged), 'damaged frame')} left out."
    yield warnings_sentence(warnings)


def system_sentence(universe: System) -> str:
    """Describe the molecules in a system."""
    n_atoms = many(len(universe.atoms), "atom")
    return f"The system contains {describe_system(universe)}: {n_atoms} in all."


def warnings_sentence(warnings: Sequence[str]) -> str:
    """Repeat a single warning, or count several warnings."""
    if len(warnings) == 1 and len(warnings[0]) <= SHORT_WARNING:
        return f"There is one warning: {warnings[0].rstrip('.')}."
    if not warnings:
        return ""
    are = "is" if len(warnings) == 1 else "are"
    return f"There {are} {many(len(warnings), 'warning')}, listed below the results."


def in_sentence(title: str) -> str:
    """Change the case of a heading for use within a sentence.

    Examples
    --------
    >>> in_sentence("Backbone RMSD"), in_sentence("RMSF of name CA"), in_sentence("Cα RMSF")
    ('backbone RMSD', 'RMSF of name CA', 'Cα RMSF')
    """
    first = re.split(r"\W", title)[0]
    is_word = len(first) > 1 and first[1:].islower() and first.isascii()
    return title[0].lower() + title[1:] if is_word else title


def _sentences(results: Results, table: Table) -> list[str]:
    """Describe the `notes` of a table, or a profile with one column; empty for other tables."""
    is_profile = len(table.y) == 1 and len(table.keys or [table.x]) == 1 and not table.bars
    if table.notes:
        return results.summary()
    return [one.partition(": ")[2] for one in results.summary()] if is_profile else []


def _brief(table: Table, means: Mapping[str, SeriesMean]) -> list[str]:
    """Format means with units, and with names if the table has several series.

    Of more than `SUMMARISED` means, only the first is formatted.
    """
    texts = {title: mean_with_interval(mean, title) for title, mean in means.items()}
    if len(table.y) == 1:
        return list(texts.values())
    named = [f"{name_and_unit(title)[0]} {text}" for title, text in texts.items()]
    return named if len(named) <= SUMMARISED else named[:1]


def mean_with_interval(mean: SeriesMean, title: str = "") -> str:
    """Format a mean with its interval, in the unit from the title of its series."""
    found = re.split(r" \(95 %\)|, ", mean.with_unit(name_and_unit(title)[1]))[0]
    return f"{found}{', weighted by time' * mean.by_time}"


def _section(
    battery: ShownBattery,
    name: str,
    title: str,
    file: str,
    further: Mapping[str, Results],
    options: FigureOptions,
    *,
    is_live: bool,
) -> ResultSection:
    """Make the card of an analysis on the page: figures, means, parameters and files."""
    draw = partial(_drawing, options=options, is_live=is_live)
    analysis = battery.shown[name]
    results, table = analysis.results, analysis.results.table
    given = battery.described[name].items()
    parameters = "; ".join(f"{key} = {value}" for key, value in given if key != "analysis")
    files, drawings = [file], []
    titles: Sequence[str] = ("result", "kind")
    if table is None:
        lines: list[Sequence[str]] = [(key, kind_of(value)) for key, value in results.items()]
        answers: list[str] = []
    else:
        means = table.means(table.answering[:LISTED])
        titles, lines = (OF_MEANS, _lines(means, table)) if means else ((), [])
        if means and not table.notes:
            answers = _brief(table, means)[:SUMMARISED]
        else:
            answers = _sentences(results, table)
        drawings.append(draw(results, FIGURE_SIZE, table))
        files += [f"{name}.npz"] if table.partial else []
        files.append(f"{name}.svg")
    for key, more in further.items():
        shown = more.whole_table()
        if table is None or shown.drawn is None or shown.drawn is not table.drawn:
            drawings.append(draw(more, FURTHER_SIZE, shown))
        files += [f"{name}-{key}.csv", f"{name}-{key}.svg"]
    return ResultSection(
        title,
        parameters and f"Parameters: {parameters}",
        drawings,
        answers,
        titles,
        lines,
        files,
    )


def _lines(means: Mapping[str, SeriesMean], table: Table) -> list[Sequence[str]]:
    """Format the rows of the table of means in the card of an analysis."""
    verdicts = usual_verdicts(table, [*means])
    rows: list[Sequence[str]] = []
    for title, mean in means.items():
        independent = "–"
        if mean.inefficiency > 0:
            independent = f"{mean.n_independent:.0f} of {mean.n_values:,}"
        one = verdicts.get(title)
        texts = ("–", "–", "–")
        if one is not None:
            later = "–" if one.found.equilibrated_from is None else one.mean_text
            texts = (one.start_text, later, one.verdict)
        if mean.error == 0:
            texts = ("–", "–", "constant")
        rows.append((title, mean_with_interval(mean), independent, *texts))
    return rows


def _drawing(
    results: Results,
    size: tuple[float, float],
    table: Table,
    options: FigureOptions,
    *,
    is_live: bool,
) -> ResultDrawing:
    """Draw results for the page; the figure includes data for interactive charts."""
    from matplotlib.figure import Figure

    suitable = results.options_of(options)
    with styled(STYLE, options.style):
        figure = Figure(figsize=size, layout="constrained")
        results.plot(figure.subplots(), **suitable)
    drawn = table.drawn or table
    return ResultDrawing(
        figure,
        charts_of(table, suitable["time_unit"], is_live=is_live),
        drawn.states is None and drawn.image is None,
    )
