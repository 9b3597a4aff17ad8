"""HTML page with the results of replicas: means of groups, their differences, and all curves."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Protocol

import numpy as np

from paceline._core import __version__
from paceline.analysis.battery_page import (
    LISTED,
    ShownBattery,
    heading,
    in_sentence,
    system_sentence,
    warnings_of,
    warnings_sentence,
)
from paceline.analysis.convergence import MOST_R_HAT
from paceline.analysis.convergence_of_table_series import (
    SeriesVerdict,
    named_verdicts,
    system_verdict,
)
from paceline.analysis.describe_system_and_frames import describe_span
from paceline.analysis.duplicate_replicas import files_of
from paceline.analysis.interactive_charts import charts_of_profile, charts_of_replicas
from paceline.analysis.replica_figures import (
    Profile,
    add_to_title,
    detectable_in_rows,
    differences,
    profile_of,
)
from paceline.analysis.series_verdict import DRIFTING
from paceline.analysis.table import Table, name_and_unit
from paceline.analysis.uncertainty import (
    ENOUGH,
    FALSE_DISCOVERIES,
    LEAST_VALUES,
    GroupDifference,
    ReplicaMean,
    adjusted_p_values,
    digits,
)
from paceline.contract.figure_options import FigureOptions
from paceline.performance.analysis_results_page import (
    Overview,
    ResultDrawing,
    ResultSection,
    results_page,
)
from paceline.performance.figure_style_and_elements import STYLE, styled
from paceline.performance.number_format import joined, many
from paceline.timing import Timings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Width of figures on the page, inches.
WIDTH = 5.2
#: Maximum number of residues, or of series, that one sentence names.
REMARKED = 12
#: Words in the titles of means and differences over equilibrated frames.
EQUILIBRATED = "equilibrated"
#: Text for the mean over equilibrated frames of a group in which a replica drifts.
DRIFTS = "unknown: a replica drifts"
FOOTER = (
    "Intervals are 95 % intervals: for a mean by Student's t between replicas, each with equal "
    "weight, and for a difference by Welch's t (1947). They are not corrected for multiple "
    "comparisons: even if groups do not differ, one interval in twenty excludes 0. Numbers of "
    "residues that differ are corrected (Benjamini & Hochberg 1995). A mean is sampled if nothing "
    f"shows a drift in a replica, {ENOUGH} or more values are independent, and replicas agree: "
    f"rank-normalised split-R̂ (Vehtari et al. 2021) is {MOST_R_HAT} or less."
)


class ShownReplicas(Protocol):
    """Attributes of `paceline.analysis.replicas.Replicas` that its page shows."""

    warnings: list[str]

    @property
    def groups(self) -> Mapping[str, Sequence[ShownBattery]]:
        """Batteries of the replicas in each group, by the name of the group."""

    @property
    def numbers(self) -> Mapping[str, Sequence[int]]:
        """Numbers, from 1, of the replicas in each group."""

    @property
    def batteries(self) -> Sequence[ShownBattery]:
        """Batteries of all replicas, group by group."""

    @property
    def names(self) -> list[str]:
        """Names of the analyses in any replica."""

    @property
    def timings(self) -> Timings:
        """Timings of the run."""

    @property
    def damaged(self) -> list[tuple[int, str]]:
        """Number of each frame that was left out, and the reason."""

    @property
    def means(self) -> dict[str, dict[str, dict[str, ReplicaMean]]]:
        """Means of series by name of the analysis, title of the series, and group."""

    def verdicts(self, name: str) -> Mapping[str, Mapping[str, SeriesVerdict]]:
        """Return verdicts on the series of an analysis, by title of the series and group."""

    def equilibrated_means(self, name: str) -> dict[str, dict[str, ReplicaMean]]:
        """Return means over the equilibrated frames of each replica, by title and group."""

    def equilibrated_differences(self, name: str) -> dict[str, dict[str, GroupDifference]]:
        """Return differences of `equilibrated_means`, by title and "SECOND - FIRST" group."""

    def tables(self, name: str) -> dict[str, list[Table | None]]:
        """Return the table of an analysis in each replica, by group."""

    def profile(self, name: str) -> Profile | None:
        """Return the profiles of an analysis in all replicas, at common positions; None without."""

    def figures(
        self, name: str, width: float = ..., *, options: FigureOptions | None = ...
    ) -> "dict[str, Figure]":
        """Draw the figures of an analysis; return them by the endings of their filenames."""

    def remarks(self, name: str) -> list[str]:
        """Return sentences on results that cannot be compared, or are not converged."""


def page_of_replicas(
    replicas: ShownReplicas, shared_files: Sequence[str], options: FigureOptions
) -> str:
    """Make the page of replicas; `shared_files` are names of the tables that cover all analyses."""
    headings = {}
    for name in replicas.names:
        battery = next(one for one in replicas.batteries if name in one.shown)
        headings[name] = heading(name, battery.shown[name], battery.described[name])
    reasons = {f"{name}: {why}" for one in replicas.batteries for name, why in one.left_out.items()}
    warnings = warnings_of(sorted(reasons), replicas.warnings)
    overview = Overview(
        " and ".join(replicas.groups),
        [*filter(None, _paragraphs(replicas, headings, warnings))],
        _facts(replicas),
        warnings,
    )
    sections = [_section(replicas, name, title, options) for name, title in headings.items()]
    return results_page(overview, sections, FOOTER, shared_files)


def _facts(replicas: ShownReplicas) -> list[tuple[str, str]]:
    """Return pairs of a title and a text: facts about each group, and about the run."""
    facts = []
    for group, batteries in replicas.groups.items():
        numbers = [len(next(iter(one.analyses.values())).frames) for one in batteries]
        frames = f"{numbers[0]:,}" if len(set(numbers)) == 1 else joined([*map(str, numbers)])
        files = ", ".join(chain.from_iterable(files_of(one.universe) for one in batteries))
        n_atoms = len(batteries[0].universe.atoms)
        about = f"{many(len(batteries), 'replica')} of {frames} frames, {n_atoms:,} atoms"
        facts.append((group, f"{about}: {files or 'in memory'}"))
    timings, n_damaged = replicas.timings, len(replicas.damaged)
    if n_damaged:
        facts.append(("damaged frames", f"{n_damaged:,} left out"))
    workers = many(timings.n_workers, "worker")
    by = f"paceline {__version__}, {timings.backend}, {workers}, {timings.t_total:.1f} s"
    return [*facts, ("computed", f"{timings.date} by {by}")]


def _paragraphs(
    replicas: ShownReplicas, headings: Mapping[str, str], warnings: Sequence[str]
) -> Iterator[str]:
    """Write the paragraphs of the summary: sampling, groups, systems, means, and differences."""
    yield from answers_of_groups(replicas, {name: in_sentence(headings[name]) for name in headings})
    systems = {}
    for group, batteries in replicas.groups.items():
        one = next(iter(batteries[0].analyses.values()))
        span = describe_span(one.frames, one.times if one.times_known else None)
        first = "the first of " if len(batteries) > 1 else ""
        yield f"{group}: {many(len(batteries), 'replica')}, {first}{span}."
        systems[group] = system_sentence(batteries[0].universe)
    if len(set(systems.values())) == 1:
        yield next(iter(systems.values()))
    else:
        yield " ".join(f"{group}: {text}" for group, text in systems.items())
    found: list[str] = []
    beyond: list[str] = []
    n_differences = 0
    for name, means_of_series in replicas.means.items():
        title, of_series = in_sentence(headings[name]), _answering(replicas, name, means_of_series)
        for series, means in list(of_series.items())[:1]:
            of_groups = [
                _brief(f"{mean}", series) + (f" ({group})" if len(replicas.groups) > 1 else "")
                for group, mean in means.items()
            ]
            named = f", {name_and_unit(series)[0]}" if len(of_series) > 1 else ""
            found.append(f"{title}{named} {', '.join(of_groups)}")
        for series, means in of_series.items():
            later = _later_differences(replicas, name, series)
            for pair, difference in differences(means).items():
                n_differences += 1
                if _is_beyond(difference):
                    note = ""
                    if pair in later:
                        part = _brief(_text_of(later[pair]), series)
                        note = f" (in equilibrated frames {part})"
                    named = f"{title}, {name_and_unit(series)[0]}"
                    beyond.append(f"{named}: {pair} {_brief(f'{difference}', series)}{note}")
    if found:
        yield f"Means between replicas, with 95 % intervals: {'; '.join(found)}."
    if beyond:
        yield (
            f"Differences beyond their 95 % intervals, {len(beyond)} of {n_differences}: "
            f"{'; '.join(beyond)}."
        )
    elif n_differences:
        yield f"None of {many(n_differences, 'difference')} is beyond its 95 % interval."
    if replicas.damaged:
        yield f"{many(len(replicas.damaged), 'damaged frame')} left out."
    yield warnings_sentence(warnings)


def answers_of_groups(replicas: ShownReplicas, names: Mapping[str, str]) -> list[str]:
    """Answer for each group whether its replicas are equilibrated, sampled, and agree.

    `names` maps each analysis to its name in sentences. Analyses whose table has notes, or no
    means, such as those of angles and of states, are ignored.
    """
    answers = []
    for group in replicas.groups:
        found: dict[str, SeriesVerdict] = {}
        for name, title in names.items():
            table = next(filter(None, replicas.tables(name).get(group, ())), None)
            if table is None or table.notes or table.no_mean:
                continue
            of_series = replicas.verdicts(name)
            own = {t: of_series[t][group] for t in table.answering if group in of_series.get(t, ())}
            found |= named_verdicts(title, own)
        if answer := system_verdict(found):
            answers.append(f"{group}: {answer}" if len(replicas.groups) > 1 else answer)
    return answers


def _verdict_lines(
    replicas: ShownReplicas, name: str, most: int = LISTED
) -> Iterator[tuple[str, str]]:
    """Yield lines on the sampling of the first `most` series, with reasons."""
    for title, of_groups in list(replicas.verdicts(name).items())[:most]:
        for group, one in of_groups.items():
            series = _title_of_group(replicas, name_and_unit(title)[0], group)
            yield f"{series}, sampling", f"{one}"


def _brief(text: str, title: str) -> str:
    """Shorten a mean or difference to the number with its interval, and append the unit."""
    if text == DRIFTS:
        return text
    return f"{re.split(r' [(]95 %|, ', text)[0]} {name_and_unit(title)[1]}".rstrip()


def _section(
    replicas: ShownReplicas, name: str, title: str, options: FigureOptions
) -> ResultSection:
    """Make the section of an analysis on the page."""
    described = [one.described[name] for one in replicas.batteries if name in one.shown]
    # Leave out facts that differ between replicas, such as the files of energies.
    given = [
        f"{key} = {value}"
        for key, value in described[0].items()
        if key != "analysis" and all(one.get(key) == value for one in described)
    ]
    profile = replicas.profile(name)
    charts = {"": charts_of_replicas(replicas.tables(name), replicas.numbers, options.time_unit)}
    charts["-frequent"] = []
    charts["-profile"] = [] if profile is None else charts_of_profile(profile)
    with styled(STYLE, options.style):
        figures = replicas.figures(name, WIDTH, options=options)
    of_series = _answering(replicas, name, replicas.means[name])
    answers = [
        f"{_title_of_group(replicas, name_and_unit(series)[0], group)}: {_brief(f'{mean}', series)}"
        for series, means in list(of_series.items())[:1]
        for group, mean in means.items()
    ]
    files = [f"{name}{ending}.svg" for ending in figures]
    files += [f"{name}-profile.csv"] if profile is not None else []
    lines = [*lines_of(replicas, name), *_verdict_lines(replicas, name)]
    lines += lines_of_profile(profile) if profile else ()
    return ResultSection(
        title,
        f"Parameters: {'; '.join(given)}" if given else "",
        [ResultDrawing(figure, charts[ending]) for ending, figure in figures.items()],
        answers,
        ("series", "mean, difference or sampling") if lines else (),
        lines,
        files,
        replicas.remarks(name),
    )


def _answering(
    replicas: ShownReplicas, name: str, means: Mapping[str, dict[str, ReplicaMean]]
) -> dict[str, dict[str, ReplicaMean]]:
    """Sort means by series and group: series that sentences name first (headlines) come first."""
    tables = filter(None, chain.from_iterable(replicas.tables(name).values()))
    headlines = {title for table in tables for title in table.headlines}
    return dict(sorted(means.items(), key=lambda one: one[0] not in headlines))


def _title_of_group(replicas: ShownReplicas, title: str, group: str) -> str:
    """Insert the name of a group into a title, unless there is only one group."""
    return add_to_title(title, group) if len(replicas.groups) > 1 else title


def lines_of(replicas: ShownReplicas, name: str, most: int = LISTED) -> Iterator[tuple[str, str]]:
    """Yield lines on the means of groups, and their differences, for the first `most` series."""
    for title, means in list(_answering(replicas, name, replicas.means[name]).items())[:most]:
        later = _later_means(replicas, name, title)
        for group, mean in means.items():
            yield _title_of_group(replicas, title, group), f"{mean}"
            if group in later:
                named = add_to_title(_title_of_group(replicas, title, group), EQUILIBRATED)
                yield named, _text_of(later[group])
        first, *others = means.values()
        parts = _later_differences(replicas, name, title)
        for other, (pair, difference) in zip(others, differences(means).items(), strict=True):
            yield add_to_title(title, pair), f"{difference}"
            if pair in parts:
                yield add_to_title(title, f"{pair}, {EQUILIBRATED}"), _text_of(parts[pair])
            if difference.detectable > 0:
                least = f"{digits(float(difference.detectable), 2)} {name_and_unit(title)[1]}"
                yield (
                    add_to_title(title, f"{pair}, power"),
                    f"{other.n_replicas} replicas against {first.n_replicas} are too few to show "
                    f"less than {least.strip()} (two-sided 5 %, power 80 %)",
                )


def _later_means(replicas: ShownReplicas, name: str, title: str) -> dict[str, ReplicaMean]:
    """Return means over equilibrated frames, for groups where they differ from those of all frames.

    A mean is NaN if a replica of the group drifts. A group whose mean is NaN for another reason is
    left out.
    """
    means, verdicts = replicas.means[name][title], replicas.verdicts(name).get(title, {})
    return {
        group: one
        for group, one in replicas.equilibrated_means(name).get(title, {}).items()
        if _differs(one.mean, means[group].mean, verdicts[group])
    }


def _later_differences(
    replicas: ShownReplicas, name: str, title: str
) -> dict[str, GroupDifference]:
    """Return the differences of equilibrated frames that are not equal to those of all frames."""
    of_all = differences(replicas.means[name][title])
    verdicts = replicas.verdicts(name).get(title, {}).values()
    return {
        pair: one
        for pair, one in replicas.equilibrated_differences(name).get(title, {}).items()
        if pair in of_all and _differs(one.difference, of_all[pair].difference, *verdicts)
    }


def _differs(equilibrated: np.ndarray, of_all: np.ndarray, *verdicts: SeriesVerdict) -> bool:
    """True if the value of equilibrated frames is not `of_all`, or is NaN because of a drift."""
    if np.isnan(equilibrated):
        return any(one.found.verdict == DRIFTING for one in verdicts)
    return not bool(np.isclose(equilibrated, of_all, 1e-9, 0))


def _is_beyond(difference: GroupDifference) -> bool:
    """True if the 95 % interval of a difference does not include 0."""
    return bool(abs(difference.difference) > difference.interval)


def _text_of(found: ReplicaMean | GroupDifference) -> str:
    """Format a mean or a difference over equilibrated frames, which may be unknown."""
    value = found.mean if isinstance(found, ReplicaMean) else found.difference
    return DRIFTS if np.isnan(value) else f"{found}"


def _remarks_on_starts(replicas: ShownReplicas, name: str) -> Iterator[str]:
    """Yield sentences on means and differences that depend on frames before equilibration."""
    starts: list[str] = []
    drifts: list[str] = []
    left_out: list[str] = []
    for title, means in replicas.means[name].items():
        for group, one in _later_means(replicas, name, title).items():
            named = _title_of_group(replicas, name_and_unit(title)[0], group)
            found = replicas.verdicts(name)[title][group].found
            if found.verdict == DRIFTING:
                drifts.append(named)
            elif found.equilibrated_from:
                starts.append(named)
            if one.n_replicas < means[group].n_replicas and found.verdict != DRIFTING:
                left_out.append(named)
        parts = _later_differences(replicas, name, title)
        for pair, difference in differences(means).items():
            if pair not in parts or not _is_beyond(difference) or _is_beyond(parts[pair]):
                continue
            of_all, later = (_brief(one, title) for one in (f"{difference}", _text_of(parts[pair])))
            ending = f"is {later}" if later == DRIFTS else f"is not: {later}"
            yield (
                f"{add_to_title(name_and_unit(title)[0], pair)}: the difference of all frames, "
                f"{of_all}, is beyond its interval; that of the equilibrated frames {ending}."
            )
    for some, why in (
        (starts, "the first frames of a replica are not equilibrated, and means of all frames"),
        (
            drifts,
            "a replica drifts, so there is no mean of equilibrated frames; means of all frames",
        ),
    ):
        if some:
            yield f"{joined(some, REMARKED)}: {why} depend on the length of the runs."
    if left_out:
        yield (
            f"{joined(left_out, REMARKED)}: replicas with less than {LEAST_VALUES} values are left "
            "out of the verdict and of means of equilibrated frames, not of means of all frames."
        )


def remarks_of(replicas: ShownReplicas, name: str) -> list[str]:
    """Describe results that cannot be compared, and results that are not converged."""
    found = []
    lacking = []
    for group, of_group in replicas.groups.items():
        n_known = sum(name in one.shown for one in of_group)
        if not n_known:
            lacking.append(group)
        elif n_known < len(of_group):
            found.append(f"{group}: {name} of {n_known} of {len(of_group)} replicas.")
    if lacking:
        found.append(f"{joined(lacking)}: not computed.")
    tables = replicas.tables(name)
    known = [table for table in chain.from_iterable(tables.values()) if table is not None]
    if not known:
        return [*found, "Without a table, there is no mean between replicas: arrays are saved."]
    if known[0].no_mean:
        found.append(
            "No mean is given: it is meaningless for periodic angles, and for numbers of clusters."
        )
    single = [group for group, of_group in tables.items() if len(of_group) == 1]
    if single:
        found.append(f"{joined(single)}: there is only one replica, so there is no interval.")
    alike = [
        add_to_title(title, group)
        for title, means in replicas.means[name].items()
        for group, mean in means.items()
        if mean.n_replicas > 1 and mean.deviation == 0
    ]
    if alike:
        found.append(f"{joined(alike)}: all replicas have the same mean, so there is no interval.")
    firsts = {group: next(filter(None, of_group), None) for group, of_group in tables.items()}
    titles = {group: set(first.y) for group, first in firsts.items() if first is not None}
    for group, own in titles.items() if known[0].is_series and not known[0].no_mean else ():
        if n_alone := len([one for one in own if not all(one in of for of in titles.values())]):
            found.append(f"{group}: {n_alone} of {len(own)} series are not in all groups.")
    found += _remarks_on_starts(replicas, name)
    means = [mean for one in known for mean in one.means().values()]
    open_ones = sum(not mean.converged for mean in means)
    if open_ones:
        found.append(
            f"{open_ones} of {len(means)} series of single replicas may have fewer than "
            f"{ENOUGH} independent values: their means are not converged."
        )
    return [*found, *_missing(replicas, name)]


def _missing(replicas: ShownReplicas, name: str) -> Iterator[str]:
    """Yield sentences about positions of a profile where a group has no value."""
    profile = replicas.profile(name)
    if profile is None:
        if any(profile_of(one) for one in chain.from_iterable(replicas.tables(name).values())):
            yield "Rows of replicas do not correspond: there is no mean profile."
        return
    label, places = next(iter(profile.keys.items()))
    title, of_groups = next(iter(profile.values.items()))
    means = profile.means(title)
    for group, values in of_groups.items():
        nowhere = np.isnan(values).all(axis=0)
        partly = np.isnan(means[group].mean) & ~nowhere
        for where, gone in ((group, nowhere), (f"all replicas of {group}", partly)):
            if 0 < gone.sum() < len(places):
                # Rows of pairs have the numbers of two residues.
                rows = zip(*(one[gone][:REMARKED] for one in profile.keys.values()), strict=True)
                some = ", ".join("–".join(f"{one:g}" for one in row) for row in rows)
                more = f" and {gone.sum() - REMARKED} more" if gone.sum() > REMARKED else ""
                yield f"Not in {where}, and therefore not compared: {label} {some}{more}."


def lines_of_profile(profile: Profile) -> Iterator[tuple[str, str]]:
    """Yield lines that name the rows of a profile (such as residues) in which groups differ."""
    label, places = next(iter(profile.keys.items()))
    several_chains = len(np.unique(profile.chains)) > 1
    for title in profile.values:
        means = profile.means(title)
        first, *others = (int(one.n_replicas.max(initial=0)) for one in means.values())
        for number, (pair, difference) in zip(others, differences(means).items(), strict=True):
            adjusted = adjusted_p_values(difference.p_value)
            n_known = int((~np.isnan(adjusted)).sum())
            if not n_known:
                continue
            rows = np.flatnonzero(adjusted <= FALSE_DISCOVERIES)
            names = [
                f"{places[row]:g}" + f" of chain {profile.chains[row] + 1}" * several_chains
                for row in rows
            ]
            found = (
                f"{len(rows)} of {n_known:,} differ, and at most 5 % of them are expected to be "
                f"false: {label} {joined(names, REMARKED)}"
                if names
                else f"none of {n_known:,} differs"
            )
            detectable = detectable_in_rows(difference)
            least, middle = (
                f"{digits(float(one), 2)} {name_and_unit(title)[1]}".strip()
                for one in (np.nanmin(detectable), np.nanmedian(detectable))
            )
            of_rows = "" if least == middle else f" in any row, or {middle} in half of the rows"
            yield (
                f"{name_and_unit(title)[0]}, {pair}, along {name_and_unit(label)[0]}",
                f"{found} (corrected for all rows, Benjamini–Hochberg); {number} replicas "
                f"against {first} are too few to show less than {least}{of_rows}, with a "
                "probability of 80 %",
            )
