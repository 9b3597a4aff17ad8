"""Command bench: measure an analysis with 1, 2, 4 … workers."""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paceline.cli.analyses import add_rdf, add_rmsd, add_rmsf
from paceline.cli.options import positive

BENCH_EXAMPLES = """\
examples:
  paceline bench scaling rmsd md.tpr md.xtc -o scaling.csv --plot scaling.png
  paceline bench scaling rmsd md.tpr md.xtc --select backbone --workers 1,2,4,8 --repeats 3
  paceline bench scaling rmsf md.tpr md.xtc --end 10000 --strong --weak --cold -o scaling.csv
  paceline bench scaling rdf md.tpr md.xtc --select "name OW" --step 10 -o scaling.csv
  paceline bench scaling rmsd md.tpr md.xtc --backend mpi --launcher "srun --mpi=pmi2"
"""

BENCH_DESCRIPTION = """\
Run an analysis with 1, 2, 4 ... workers, several times each, on your own file and machine: time,
speed-up, efficiency, and what the time went to. Put "bench scaling" into the command that you
want to know about. Results are compared, and not kept. Each run is a process of its own; one that
is not counted comes first. Runs go on in turn over the numbers of workers, so that what disturbs
the machine disturbs all alike. Ctrl-C ends it; what was measured until then is kept.
"""

#: Analyses of the command line that can be measured.
ANALYSES = (add_rmsd, add_rmsf, add_rdf)


def add_bench(commands: Any) -> argparse.ArgumentParser:
    """Add the command and its arguments."""
    bench: argparse.ArgumentParser = commands.add_parser(
        "bench",
        help="measure an analysis with 1, 2, 4 ... workers",
        description="Measure paceline on your own files and machine.",
        epilog=BENCH_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    kinds = bench.add_subparsers(
        title="benchmarks", metavar="BENCHMARK", required=True, parser_class=_DashesAllowed
    )
    scaling = kinds.add_parser(
        "scaling",
        help="time, speed-up and efficiency by number of workers",
        description=BENCH_DESCRIPTION,
        epilog=BENCH_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_options(scaling)
    scaling.set_defaults(
        workers=None,
        repeats=5,
        strong=False,
        weak=False,
        cold=False,
        copies=False,
        launcher=None,
        output=None,
        plot=[],
        overwrite=False,
        backend=None,
        debug=False,
        one_run=None,
    )
    analyses = scaling.add_subparsers(
        dest="analysis",
        title="analyses",
        metavar="ANALYSIS",
        required=True,
        parser_class=argparse.ArgumentParser,
    )
    for add_analysis in ANALYSES:
        parser = add_analysis(analyses)
        parser.description, parser.epilog = BENCH_DESCRIPTION, BENCH_EXAMPLES
        parser.conflict_handler = "resolve"
        _add_options(parser)
        parser.set_defaults(run=run_bench)
    bench.set_defaults(run=run_bench)
    return bench


def run_bench(args: argparse.Namespace) -> None:
    """Run the command: all runs, or one of them in a process of its own."""
    begun = time.time()  # imports are part of a run's time
    from paceline.cli.bench_runs import measure, one_run

    if args.one_run is not None:
        one_run(args, begun)
    else:
        measure(args)


def _add_options(parser: argparse.ArgumentParser) -> None:
    """Add options of the measurement, before the name of the analysis or after it.

    The analysis's own options of these names are replaced. What is not given leaves no trace, so
    that it does not hide what was given before the name.
    """
    group = parser.add_argument_group("measuring", argument_default=argparse.SUPPRESS)
    add = group.add_argument
    add(
        "--workers",
        "--n-workers",
        dest="workers",
        type=counts,
        metavar="N,N,…",
        help="numbers of workers, or of ranks [powers of two up to the CPUs, and all CPUs]",
    )
    add("--repeats", type=positive, metavar="N", help="runs at each [5]")
    add("--strong", action="store_true", help="the same frames for any number; so by default")
    add(
        "--weak",
        action="store_true",
        help="as many frames for each worker, so that more of them do more",
    )
    add(
        "--backend",
        choices=("threads", "processes", "dask", "mpi"),
        help="what the workers are [threads]",
    )
    add(
        "--launcher",
        metavar="TEXT",
        help="command that starts ranks of mpi; -n and their number are added [mpiexec, mpirun or "
        "srun]",
    )
    cache = group.add_mutually_exclusive_group()
    cache.add_argument(
        "--cold",
        action="store_true",
        default=argparse.SUPPRESS,
        help="drop the trajectory from this machine's memory before each run, and see that it went",
    )
    cache.add_argument(
        "--copies",
        action="store_true",
        default=argparse.SUPPRESS,
        help="make a new copy of the trajectory, beside it, for each run, and drop it likewise",
    )
    add("-o", "--output", type=Path, metavar="FILE", help="one line a run: .csv")
    add(
        "--plot",
        type=Path,
        action="append",
        metavar="FILE",
        help="draw the figure: .png, .svg, .pdf; may be repeated",
    )
    add("--overwrite", action="store_true", help="replace files that exist")
    add("--debug", action="store_true", help="show where an error arose")
    add("--one-run", help=argparse.SUPPRESS)
    add(
        "--checkpoint",
        "--timings",
        "--report",
        action=_NotMeasured,
        nargs="?",
        help=argparse.SUPPRESS,
    )


def counts(text: str) -> list[int]:
    """Read numbers of workers, in increasing order, each once.

    Examples
    --------
    >>> counts("1,4,2"), counts("8 16")
    ([1, 2, 4], [8, 16])
    """
    try:
        found = {positive(word) for word in text.replace(",", " ").split()}
    except ValueError:
        found = set()
    if not found:
        raise argparse.ArgumentTypeError(f"expected numbers such as 1,2,4, found {text!r}")
    return sorted(found)


class _DashesAllowed(argparse.ArgumentParser):
    """Takes a -- before the name of the analysis, as Python's own does from 3.13 on."""

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[argparse.Namespace, list[str]]:
        given = list(args or ())
        if "--" in given:
            given.remove("--")
        return super().parse_known_args(given, namespace)


class _NotMeasured(argparse.Action):
    """Refuse an option of analyses that makes no sense where results are not kept."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        parser.error(f"{option_string} is not for runs that are measured: leave it out")
