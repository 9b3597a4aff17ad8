"""HTML page of a survey: the distribution of each quantity, with outliers, and all failures."""

import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from paceline._core import __version__
from paceline._util.files import new_file
from paceline.analysis.battery_page import warnings_sentence
from paceline.analysis.survey_result_encoding import around_middle
from paceline.analysis.survey_tables import MANIFEST, Survey
from paceline.errors import warn
from paceline.performance.analysis_results_page import (
    Overview,
    ResultDrawing,
    ResultSection,
    results_page,
)
from paceline.performance.figure_style_and_elements import STYLE, has_matplotlib, styled
from paceline.performance.html_elements import element
from paceline.performance.number_format import joined, many, shortened

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAGE, PAGES = "index.html", "pages"
#: Distance from the median beyond which a mean is an outlier, in standard deviations of the normal
#: distribution that has the same median absolute deviation.
FAR = 5.0
#: Ratio of a standard deviation to the median absolute deviation of a normal distribution.
OF_NORMAL = 1.4826
#: Minimum number of systems among which outliers are looked for.
LEAST_SYSTEMS = 8
#: Maximum number of listed outliers of a quantity, of quantities on the page, of groups that have
#: their own colour, and of listed failures.
MOST_OUTLIERS, MOST_QUANTITIES, MOST_GROUPS, MOST_FAILURES = 5, 60, 8, 50
#: Maximum number of different warnings on the page.
MOST_WARNINGS = 50
FIGURE_SIZE = (5.2, 2.9)
#: Pattern of the keys of trajectories, which are the names of the folders with pages.
_KEY = re.compile("[0-9a-f]{16}-[0-9a-f]{16}")
FOOTER = (
    "A distribution contains one mean of each system; the mean is that of the equilibrated frames. "
    f"Outliers are further than {FAR:g} standard deviations from the median of their group, where "
    "the standard deviation is 1.4826 times the median absolute deviation."
)

Key = tuple[str, str]


@dataclass(frozen=True)
class Distribution:
    """Means of one quantity in all systems.

    `keys` are ids and replicas, and `groups` the groups of the systems. `kind` is the kind of the
    quantity; angles are within half a turn of their circular mean.
    """

    analysis: str
    quantity: str
    unit: str
    keys: Sequence[Key]
    groups: Sequence[str]
    kind: str
    means: np.ndarray
    verdicts: Sequence[str]

    @property
    def title(self) -> str:
        """Quantity and analysis, as a heading."""
        if self.quantity.lower() == self.analysis.lower():
            return self.quantity
        return f"{self.analysis}: {self.quantity}"

    @property
    def label(self) -> str:
        """Quantity with unit, for an axis."""
        return f"{self.quantity} ({self.unit})" if self.unit else self.quantity

    def distances(self) -> np.ndarray:
        """Return the distance of each mean from its group's median, in standard deviations.

        It is 0 in groups that are too small for outliers, or in which most means are equal.
        """
        found = np.zeros(len(self.means))
        groups = np.array(self.groups)
        for group in dict.fromkeys(self.groups):
            members = groups == group
            values = self.means[members]
            middle = np.median(values)
            deviation = OF_NORMAL * np.median(np.abs(values - middle))
            if len(values) >= LEAST_SYSTEMS and deviation > 0:
                found[members] = np.abs(values - middle) / deviation
        return found

    @property
    def has_large_group(self) -> bool:
        """True if a group has enough systems for outliers to be looked for."""
        return any(self.groups.count(group) >= LEAST_SYSTEMS for group in set(self.groups))

    def outliers(self) -> list[tuple[Key, float, float]]:
        """Return key, mean and distance of the farthest outliers."""
        distances = self.distances()
        order = np.argsort(-distances, kind="stable")[:MOST_OUTLIERS]
        return [
            (self.keys[k], float(self.means[k]), float(distances[k]))
            for k in order.tolist()
            if distances[k] > FAR
        ]

    @property
    def n_outliers(self) -> int:
        """Number of outliers, including those that `outliers` does not return."""
        return int(np.sum(self.distances() > FAR))


def distributions(survey: Survey) -> list[Distribution]:
    """Collect the means of each quantity, in the order of the table."""
    names = ("id", "replica", "group", "analysis", "quantity", "unit", "mean", "verdict", "kind")
    columns = [survey.quantities[name].to_pylist() for name in names]
    Row = tuple[str, str, str, str, str, str, float, str, str]
    found: dict[tuple[str, str, str], list[Row]] = {}
    for row in zip(*columns, strict=True):
        if np.isfinite(row[6]):
            found.setdefault(row[3:6], []).append(row)
    return [
        Distribution(
            *name,
            keys=[(row[0], row[1]) for row in rows],
            groups=[row[2] for row in rows],
            kind=rows[0][8],
            means=around_middle(np.array([row[6] for row in rows]), rows[0][8]),
            verdicts=[row[7] for row in rows],
        )
        for name, rows in found.items()
    ]


def farthest(found: Sequence[Distribution], most: int) -> list[Key]:
    """Return the systems with the farthest outliers of all quantities."""
    distances: dict[Key, float] = {}
    for one in found:
        for key, _, distance in one.outliers():
            distances[key] = max(distance, distances.get(key, 0.0))
    return sorted(distances, key=lambda key: (-distances[key], key))[:most]


def warnings_of_systems(survey: Survey) -> list[str]:
    """List the different warnings, each with its system or the number of systems; rarest first."""
    systems: dict[str, dict[Key, None]] = {}
    for one in survey.warnings.to_pylist():
        text = f"{one['analysis']}: {one['message']}" if one["analysis"] else one["message"]
        systems.setdefault(text, {})[one["id"], one["replica"]] = None
    texts = []
    for text, keys in sorted(systems.items(), key=lambda item: len(item[1])):
        first = system_name(next(iter(keys)))
        named = first if len(keys) == 1 else f"{many(len(keys), 'system')}, such as {first}"
        texts.append(f"{named}: {text}")
    return texts


def system_name(key: Key) -> str:
    """Return the name of a system in texts: its id, and the replica if there is one.

    Examples
    --------
    >>> system_name(("1abc", "2")), system_name(("1abc", ""))
    ('1abc (2)', '1abc')
    """
    return f"{key[0]} ({key[1]})" if key[1] else key[0]


def save_pages(survey: Survey, most: int, save_system: Callable[[Key, Path, str], None]) -> None:
    """Write the page of a survey, and pages of the farthest outliers.

    `save_system` analyses a system again, and writes its results into a folder, with a title.
    """
    if not has_matplotlib():
        return
    found = distributions(survey)
    keys = dict(zip(_keys_of(survey), survey.systems["key"].to_pylist(), strict=True))
    links: dict[Key, str] = {}
    for key in farthest(found, most):
        folder = survey.folder / PAGES / keys[key]
        try:
            if not (folder / PAGE).exists():
                save_system(key, folder, system_name(key))
        except Exception as error:  # the tables do not depend on this page
            warn(f"{' '.join(key)}: its page was not written: {error}")
            continue
        links[key] = f"{PAGES}/{folder.name}/{PAGE}"
    _remove_others(survey.folder / PAGES, links.values())
    with new_file(survey.folder / PAGE, overwrite=True) as file:
        file.write(page_of_survey(survey, found, links))


def _keys_of(survey: Survey) -> list[Key]:
    systems = survey.systems
    return list(zip(systems["id"].to_pylist(), systems["replica"].to_pylist(), strict=True))


def _remove_others(folder: Path, kept: Iterable[str]) -> None:
    """Remove pages of systems that are no longer among the outliers."""
    names = {link.split("/")[1] for link in kept}
    for path in folder.glob("*") if folder.is_dir() else ():
        if path.name not in names and _KEY.fullmatch(path.name):
            shutil.rmtree(path)


def page_of_survey(survey: Survey, found: Sequence[Distribution], links: Mapping[Key, str]) -> str:
    """Make the page of a survey, with `links` to the pages of some systems."""
    with styled(STYLE):
        sections = [page_section(one, links) for one in found[:MOST_QUANTITIES]]
    failures = survey.failures.to_pylist()
    if failures:
        sections.append(_failures(failures))
    systems = survey.facts["tables"]["systems"]["rows"]
    failed = len({(one["id"], one["replica"]) for one in failures})
    paragraphs = [f"{many(systems, 'system')}, {failed:,} of them with failures."]
    paragraphs.append(_sentence_on_outliers(found))
    warned = warnings_of_systems(survey)
    paragraphs.append(warnings_sentence(warned))
    if len(warned) > MOST_WARNINGS:
        further = many(len(warned) - MOST_WARNINGS, "further warning")
        warned[MOST_WARNINGS:] = [f"{further} in warnings.parquet"]
    if len(found) > MOST_QUANTITIES:
        more = len(found) - MOST_QUANTITIES
        paragraphs.append(f"{more:,} further quantities are in quantities.parquet.")
    facts = [("catalogue", survey.facts["catalogue"]["folder"]), ("paceline", __version__)]
    title = f"Survey of {many(systems, 'system')}"
    overview = Overview(title, [*filter(None, paragraphs)], facts, warned)
    files = [f"{name}.parquet" for name in survey.facts["tables"]]
    return results_page(overview, sections, FOOTER, run_files=[*files, MANIFEST])


def _sentence_on_outliers(found: Sequence[Distribution]) -> str:
    """Name the quantities with outliers; or state that there are none, or that none are sought."""
    if not found:
        return ""
    if far := [one.title for one in found if one.outliers()]:
        return f"Outliers were found in {joined(far)}."
    if any(one.has_large_group for one in found):
        return "No system is an outlier."
    return f"Outliers are looked for only in groups of {LEAST_SYSTEMS} systems or more."


def page_section(one: Distribution, links: Mapping[Key, str]) -> ResultSection:
    """Make the section of a quantity: its distribution, and its outliers."""
    low, middle, high = np.percentile(one.means, [5, 50, 95])
    unit = f" {one.unit}" if one.unit and one.unit != "°" else one.unit
    answers = [
        f"median {middle:.4g}{unit}, 5 % to 95 % of the systems {low:.4g} to {high:.4g}{unit}"
    ]
    judged = [verdict for verdict in one.verdicts if verdict]
    if judged:
        counts = {text: judged.count(text) for text in dict.fromkeys(sorted(judged))}
        answers.append(", ".join(f"{count:,} {text}" for text, count in counts.items()))
    lines = [
        (_link(key, links), f"{mean:.4g}", f"{distance:.1f}")
        for key, mean, distance in one.outliers()
    ]
    more = one.n_outliers - len(lines)
    remarks = [f"{many(more, 'outlier')} nearer to the median not listed"] if more else []
    return ResultSection(
        one.title,
        "",
        [ResultDrawing(_histogram(one))],
        answers,
        ("outlier", one.label, "deviations"),
        lines,
        remarks=remarks,
    )


def _link(key: Key, links: Mapping[Key, str]) -> str:
    name = system_name(key)
    return element("a", name, href=links[key]) if key in links else name


def _histogram(one: Distribution) -> "Figure":
    """Draw the distribution of a quantity, with a colour for each group."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=FIGURE_SIZE, layout="constrained")
    axes = figure.subplots()
    edges = np.histogram_bin_edges(one.means, "auto" if len(one.means) < 1000 else 50)
    parts = list(_parts(one))
    kind: Literal["stepfilled", "step"] = "stepfilled" if len(parts) == 1 else "step"
    for name, values in parts:
        axes.hist(values, edges.tolist(), histtype=kind, label=_plain(name), linewidth=1.2)
    if len(parts) > 1:
        axes.legend(title="group")
    axes.set(xlabel=_plain(one.label), ylabel="systems")
    return figure


def _plain(text: str) -> str:
    """Return a text for a figure, without formulas between dollar signs."""
    return text.replace("$", r"\$")


def _parts(one: Distribution) -> Iterator[tuple[str, np.ndarray]]:
    """Yield name and means of each group; if there are many groups, all means as one group."""
    groups = np.array(one.groups)
    names = sorted(set(one.groups))
    if len(names) > MOST_GROUPS:
        yield "all", one.means
        return
    for name in names:
        yield name or "none", one.means[groups == name]


def _failures(failures: Sequence[Mapping[str, str]]) -> ResultSection:
    """Make the section of the page that lists failures."""
    lines = [
        (one["id"], one["replica"], one["analysis"] or "all", shortened(one["message"]))
        for one in failures[:MOST_FAILURES]
    ]
    more = len(failures) - MOST_FAILURES
    remarks = [f"{many(more, 'further failure')} in failures.parquet"] if more > 0 else []
    titles = ("id", "replica", "analysis", "reason")
    return ResultSection("Failures", "", [], (), titles, lines, remarks=remarks)
