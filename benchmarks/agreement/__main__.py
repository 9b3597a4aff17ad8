"""Compare each native analysis with MDAnalysis, MDTraj, GROMACS and cpptraj on the same files.

    python -m benchmarks.agreement [WORD …] [--tsv FILE] [--markdown FILE]

With words, only analyses whose names contain one of them are compared. The systems are those of
MDAnalysisTests (`benchmarks.agreement.systems`). The table lists for each tool the largest
difference over the systems, its cause, and which tool is right. The exit status is 1 if a tool
fails, or if a difference is larger or smaller than its stated cause explains.

``gmx`` and ``cpptraj`` are searched on PATH, or at the paths in PACELINE_GMX and PACELINE_CPPTRAJ.
Missing tools are listed as skipped.
"""

import argparse
import sys
import tempfile
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path

from benchmarks import programs
from benchmarks.agreement import angles, fields, geometry, superposed
from benchmarks.agreement.case import CPPTRAJ, GROMACS, Case, Peer, difference
from benchmarks.agreement.systems import RECIPES, System
from benchmarks.measure import Unavailable
from benchmarks.table import Table

PROGRAMS = {GROMACS: "gmx", CPPTRAJ: "cpptraj"}
TSV = (
    *("analysis", "tool", "version", "system", "difference", "unit", "at least", "at most"),
    *("cause", "right", "verdict"),
)
AS_STATED = "as stated"


@dataclass
class Compared:
    """Differences of a tool in each system, or the errors that it raised."""

    case: Case
    tool: str
    peer: Peer
    found: dict[str, float] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    @property
    def worst(self) -> tuple[str, float]:
        """Return the system with the largest difference, and the difference."""
        return max(self.found.items(), key=lambda item: item[1])

    @property
    def verdict(self) -> str:
        """Describe whether the differences are as stated."""
        if self.failed:
            return "failed in " + "; ".join(f"{name}: {why}" for name, why in self.failed.items())
        _, worst = self.worst
        if not worst <= self.peer.at_most:
            return f"more than the stated {self.peer.at_most:g}"
        if worst < self.peer.at_least:
            return f"less than the stated {self.peer.at_least:g}: has the cause gone?"
        return AS_STATED


def compare(cases: Iterable[Case], folder: Path) -> tuple[list[Compared], dict[str, str]]:
    """Compare all available tools; also return missing tools with the reason."""
    get, done, missing = cache(lambda name: System(name, folder)), [], {}
    for case in cases:
        print(case.analysis, file=sys.stderr, flush=True)
        rows = []
        for tool, peer in case.peers.items():
            try:
                version(tool)
                rows.append(Compared(case, tool, peer))
            except (ImportError, Unavailable) as reason:
                missing[_base(tool)] = f"{reason}"
        for name in case.systems if rows else ():
            system = get(name)
            expected = case.ours(system)
            for row in rows:
                try:
                    numbers = row.peer.numbers(system)
                    row.found[name] = difference(numbers, expected, case.period)
                except Exception as error:
                    row.failed[name] = " ".join(f"{type(error).__name__}: {error}".split())[-500:]
        done += rows
    return done, missing


@cache
def version(tool: str) -> str:
    """Return the version of a tool; raise if the tool is missing."""
    name = _base(tool)
    if name in PROGRAMS:
        return programs.version(PROGRAMS[name])
    return str(import_module({"MDTraj": "mdtraj"}.get(name, name)).__version__)


def tabulate(rows: Sequence[Compared]) -> Table:
    """Create one row per tool and system."""
    table = Table("where tools disagree", TSV)
    for row in rows:
        case, peer = row.case, row.peer
        for name in (*row.found, *row.failed):
            apart = f"{row.found[name]:.3g}" if name in row.found else "-"
            table.rows.append(
                (
                    *(case.analysis, row.tool, version(row.tool), name, apart, case.unit),
                    *(f"{peer.at_least:g}", f"{peer.at_most:g}", peer.cause, peer.right),
                    row.verdict,
                )
            )
    return table


def markdown(rows: Sequence[Compared]) -> str:
    """Create two tables: differences by definition, and agreement."""
    tools = dict.fromkeys(_base(row.tool) for row in rows)
    versions = ", ".join(f"{tool} {version(tool)}" for tool in tools)
    parts = [f"Measured with {versions}."]
    kinds = {
        "They differ": [row for row in rows if row.found and row.peer.at_least > 0],
        "They agree": [row for row in rows if row.found and row.peer.at_least == 0],
    }
    for title, some in kinds.items():
        lines = ["| analysis | tool | largest difference | cause | who is right |"]
        lines += ["| --- | --- | --- | --- | --- |"]
        for row in some:
            name, worst = row.worst
            digits = f"{worst:,.0f}" if worst >= 10 else f"{worst:.2g}"
            apart = f"{digits} {row.case.unit}".strip() + (f" ({name})" if worst else "")
            cells = (row.case.analysis, row.tool, apart, row.peer.cause, row.peer.right)
            lines.append(f"| {' | '.join(cells)} |")
        parts += [f"**{title}**", "\n".join(lines)]
    return "\n\n".join(parts) + "\n"


def _base(tool: str) -> str:
    """Return the tool in a label that also contains a function's name."""
    return tool.split(",")[0]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", help="only analyses with one of these in their names")
    parser.add_argument("--tsv", type=Path, help="write all rows, separated by tabs")
    parser.add_argument("--markdown", type=Path, help="write the tables of the manual")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    cases = [case for module in (superposed, geometry, angles, fields) for case in module.cases()]
    if asked.words:
        cases = [case for case in cases if any(word in case.analysis for word in asked.words)]
    if not cases:
        parser.error(f"no analysis has one of {' '.join(asked.words)} in its name")
    with tempfile.TemporaryDirectory() as folder:
        rows, missing = compare(cases, Path(folder))
    table = tabulate(rows)
    if asked.tsv:
        asked.tsv.write_text(table.render(tsv=True) + "\n")
    if asked.markdown:
        asked.markdown.write_text(markdown(rows))
    print(markdown(rows) if rows else "nothing was compared")
    for tool, why in missing.items():
        print(f"skipped: {tool}: {why}")
    wrong = [row for row in rows if row.verdict != AS_STATED]
    for row in wrong:
        print(f"{row.case.analysis}: {row.tool}: {row.found}: {row.verdict}")
    systems = dict.fromkeys(name for row in rows for name in row.found)
    print(f"{len(rows)} comparisons in {len(systems)} of {len(RECIPES)} systems", end=", ")
    print(f"{len(wrong)} not as stated" if wrong else "all differences are as stated")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
