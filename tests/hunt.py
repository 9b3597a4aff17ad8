"""Search for silent errors: with damaged files, killed processes, and files of other programs.

    python tests/hunt.py mutations --seed 7 --runs 5000
    python tests/hunt.py kills --seed 7 --runs 100
    python tests/hunt.py workers --seed 7 --runs 200
    python tests/hunt.py files

Each command prints a table of outcomes, with columns separated by tabs. Unexpected outcomes are
printed on standard error, and make the exit status 1. Files that cause them are kept in a temporary
folder.
"""

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from helpers import foreign_files, kills, mutations, workers

#: Kind, outcome, whether it is allowed, message, and the bytes of a modified file.
Row = tuple[str, str, bool, str, bytes]


def table(rows: Iterable[tuple[str, str]]) -> str:
    """Count outcomes by kind."""
    counts = Counter(rows)
    outcomes = list(dict.fromkeys(outcome for _, outcome in sorted(counts)))
    lines = [["kind", "runs", *outcomes]]
    for kind in (*dict.fromkeys(kind for kind, _ in counts), "all"):
        numbers = [
            sum(n for (k, o), n in counts.items() if kind in (k, "all") and o == outcome)
            for outcome in outcomes
        ]
        lines.append([kind, str(sum(numbers)), *map(str, numbers)])
    return "\n".join("\t".join(line) for line in lines)


def rows_of(what: str, seed: int, runs: int, kinds: list[str]) -> Iterator[Row]:
    if what == "mutations":
        for found in mutations.survey(seed, runs, tuple(kinds or mutations.KINDS)):
            kind = f"{found.kind} {found.number}"
            allowed = found.outcome in mutations.ALLOWED
            yield kind, found.outcome, allowed, found.what, found.content
    elif what == "kills":
        for killed in kills.survey(seed, runs, tuple(kinds or kills.KINDS)):
            allowed = killed.outcome in kills.ALLOWED
            yield f"{killed.kind} ", killed.outcome, allowed, killed.what, b""
    elif what == "workers":
        for run in workers.survey(seed, runs, tuple(kinds or workers.KINDS)):
            yield f"{run.kind} ", run.outcome, run.outcome in workers.ALLOWED, run.what, b""
    else:
        for read in foreign_files.survey():
            allowed = read.outcome in foreign_files.ALLOWED
            yield f"{read.package} {read.name}", read.outcome, allowed, read.what, b""


def main() -> int:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("what", choices=["mutations", "kills", "workers", "files"])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--kinds", nargs="+", help="some kinds of those in the table")
    args = parser.parse_args()
    counted, n_bad = [], 0
    for name, outcome, allowed, what, content in rows_of(
        args.what, args.seed, args.runs, args.kinds
    ):
        kind = name.rpartition(" ")[0] if args.what != "files" else name.partition(" ")[0]
        counted.append((kind, outcome))
        if allowed:
            continue
        n_bad += 1
        line = f"{name}\t{outcome}\t{what}"
        if content:
            folder = Path(tempfile.gettempdir()) / f"paceline-hunt-{args.seed}"
            folder.mkdir(exist_ok=True)
            kept = folder / name.replace(",", "").replace(" ", "-")
            kept.write_bytes(content)
            line += f"\t{kept}"
        print(line, file=sys.stderr)
    print(table(counted))
    return 1 if n_bad else 0


if __name__ == "__main__":
    sys.exit(main())
