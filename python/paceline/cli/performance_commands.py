"""Commands about performance: report, advise, predict and bench."""

import argparse
import itertools
import math
import re
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline._util.files import check_distinct, check_output
from paceline._util.option_values_and_selections import FORECAST, ON_ERROR, PARALLEL, SCHEDULES
from paceline.cli.analysis_commands import (
    add_pair_arguments,
    add_rdf,
    add_rmsd,
    command_of,
    rdf_of,
)
from paceline.cli.options import (
    DefaultSelection,
    add_frame_arguments,
    add_json_argument,
    add_output_arguments,
    add_system_arguments,
    add_transform_arguments,
    positive,
    print_json,
    seconds,
    size,
)
from paceline.cli.parser_and_file_arguments import CommandParser, Commands, FileForm
from paceline.contract.figure_options import OF_MEASUREMENTS
from paceline.performance.model import (
    FILE_SYSTEMS,
    LAYOUTS,
    REQUEST_BYTES,
    FileSystem,
    Prediction,
    Prices,
)

if TYPE_CHECKING:
    from paceline.cli.json_output_schema import Predicted
    from paceline.performance.advice import Advice

REPORT_EXAMPLES = """\
examples:
  paceline rmsd md.tpr md.xtc -o rmsd.csv --report run.csv
  paceline report run.csv                  # makes run.html
  paceline report run.csv -o figures.png
"""

ADVISE_EXAMPLES = """\
examples:
  paceline advise md.tpr md.xtc
  paceline advise md.tpr md.xtc --for rmsf --unwrap --fit --begin 10ns
  paceline advise md.tpr md.xtc --for rdf --select "name OW" --range 0 10
  paceline advise md.tpr "md.part*.xtc" --select backbone --n-workers 16
  paceline advise md.tpr md.xtc --tsv | cut -f 1,4
  paceline advise md.tpr s3://bucket/md.xtc --price-per-gb 0.09 --price-per-1000-requests 0.0004
"""

PREDICT_EXAMPLES = """\
examples:
  paceline predict --frames 100000 --bytes 12kB --decode 30us --compute 90us --n-workers 16
  paceline predict --frames 2512200 --bytes 12kB --read 315us --compute 90us \\
      --file-system lustre --per-node 24 --n-workers 384 --plot scaling.png
  paceline predict --frames 1000000 --bytes 12kB --read 0.3ms --compute 0.1ms --request-frames 1 \\
      --file-system lustre --per-node 24 --n-workers 24 96 384 --layout shared split
  paceline predict --frames 1000000 --bytes 12kB --decode 30us --compute 10us --n-workers 16 \\
      --file-system store --latency 80ms --connection-bandwidth 40MB --price-per-gb 0.09
  paceline predict --frames 1000000 --bytes 12kB --decode 0.3ms --compute 0.1ms --per-node 24 \\
      --n-workers 384 --schedule static dynamic --slow-fraction 0.05 --slow-factor 3

The times are those of one frame on one worker alone. `paceline advise` measures them, and so does
--timings of a run with --n-workers 1. The manual explains the formula, under "The model".
"""

BENCH_EXAMPLES = """\
examples:
  paceline bench scaling rmsd md.tpr md.xtc -o scaling.csv --plot scaling.png
  paceline bench scaling rmsd md.tpr md.xtc --select backbone --workers 1,2,4,8 --repeats 3
  paceline bench scaling rmsf md.tpr md.xtc --end 10000 --strong --weak --cold -o scaling.csv
  paceline bench scaling rdf md.tpr md.xtc --select "name OW" --step 10 -o scaling.csv
  paceline bench scaling rmsd md.tpr md.xtc --backend mpi --launcher "srun --mpi=pmi2"
"""

BENCH_DESCRIPTION = """\
Run an analysis with 1, 2, 4 ... workers, several times each, on your own file and machine. Print
time, speed-up, efficiency, and the time of each phase. To measure a command, insert "bench scaling"
before its name. Results are compared, but not saved. Each run is a separate process; the first run
is not counted. Runs with different numbers of workers alternate, so that disturbances of the
machine affect all of them alike. Ctrl-C stops the measurement; completed runs are saved.
"""

#: Functions that add the commands of the analyses that `bench` can measure.
ANALYSES = (add_rmsd, command_of("rmsf").add, add_rdf)

#: Default selections of each analysis, as for its own command.
ADVISE_SELECT = {name: command_of(name).select for name in ("rmsd", "rmsf", "rdf")}

ADVISE_COLUMNS = (
    *("workers", "from memory (s)", "from the disk (s)", "now (s)", "at least (s)", "at most (s)"),
    "efficiency",
)

#: Prices of an object store: name of the option, and the quantity that has this price.
PRICES = (("per_gb", "10⁹ bytes that leave the store"), ("per_1000_requests", "1000 requests"))

#: Properties of a file system that options set: option, function that converts the value, unit and
#: meaning.
FIGURES = (
    ("server_bandwidth", size, "SIZE", "bytes per second to all workers together"),
    ("t_lock", seconds, "TIME", "time for which a request to a shared file locks it for its node"),
    ("latency", seconds, "TIME", "time until a store's response to a request begins"),
    ("connection_bandwidth", size, "SIZE", "bytes per second of one connection to a store"),
)


def add_report(commands: Commands) -> CommandParser:
    """Add the command `report` and its arguments."""
    parser = commands.add_parser(
        "report",
        help="report where the time of a run was spent, from saved timings",
        description="Make a report from timings that --report or Timings.to_csv saved: a page "
        "that works without a network, or only its figures.",
        epilog=REPORT_EXAMPLES,
    )
    parser.usage = "%(prog)s [options] TIMINGS"
    parser.section("files").add_argument(
        "timings",
        metavar="TIMINGS",
        type=Path,
        help="file that --report FILE.csv or Timings.to_csv wrote",
    )
    add = parser.section("output").add_argument
    add(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="page: .html; figures: .png, .svg [.html beside the timings]",
    )
    add("--overwrite", action="store_true", help="replace a file that exists")
    add_json_argument(parser.section("output"), "ReportDocument")
    parser.set_defaults(run=run_report)
    return parser


def run_report(args: argparse.Namespace) -> None:
    """Run the command `report`."""
    from paceline.performance.number_format import many
    from paceline.performance.report import check_report_ending
    from paceline.timing import Timings

    output = args.output or args.timings.with_suffix(".html")
    check_report_ending(output)
    check_output(output, overwrite=args.overwrite)
    timings = Timings.from_csv(args.timings)
    timings.report(output, overwrite=args.overwrite)
    frames = many(timings.n_frames, "frame")
    print(f"{output}: {frames} in {timings.t_total:.3f} s", file=sys.stderr)
    if args.json:
        from paceline.cli.print_results import json_of_timings

        print_json("report", timings=json_of_timings(timings), written=[output])


def add_advise(commands: Commands) -> CommandParser:
    """Add the command `advise` and its arguments."""
    parser = commands.add_parser(
        "advise",
        help="forecast the time of an analysis, what limits its speed, and what would help",
        description="Measure an analysis on a few blocks from the middle of the trajectory, which "
        "takes some seconds. Forecast the time of the whole analysis with 1, 2, 4 … workers, what "
        "limits its speed, how many workers are worthwhile, and whether another file would be "
        "faster.",
        epilog=ADVISE_EXAMPLES,
    )
    add_system_arguments(parser, select=("the default of the analysis",), alone=False)
    parser.set_defaults(select=None)
    calculation = parser.section("calculation")
    calculation.add_argument(
        "--for",
        dest="analysis",
        choices=tuple(ADVISE_SELECT),
        default="rmsd",
        help="analysis to measure [%(default)s]",
    )
    add_pair_arguments(calculation)
    add_frame_arguments(parser)
    add_transform_arguments(parser)
    add = parser.section("workers").add_argument
    add(
        "--backend",
        choices=FORECAST,
        help="backend of the forecast [threads]",
    )
    add("--n-workers", type=positive, metavar="N", help="forecast also for this number of workers")
    add(
        "--on-error",
        choices=ON_ERROR,
        default="raise",
        help="stop at a damaged frame, or leave it out [%(default)s]",
    )
    _add_prices(parser)
    how = parser.section("output").add_mutually_exclusive_group()
    how.add_argument("--tsv", action="store_true", help="print only the times, tab-separated")
    add_json_argument(how, "AdviseDocument")
    parser.set_defaults(run=run_advise)
    return parser


def run_advise(args: argparse.Namespace) -> None:
    """Run the command `advise`."""
    from paceline.advice import Outline, advise, open_samples
    from paceline.cli.shared_analysis_steps import frames_of, system_of, transforms_of

    if args.select is None:
        args.select = DefaultSelection(ADVISE_SELECT[args.analysis])
    # Read only parts of a long file instead of indexing it, because indexing may take a minute.
    opener = {} if args.continuous else {"opener": open_samples}
    universe = system_of(args, **opener)
    if sys.stderr.isatty():
        print("paceline: measuring, for some seconds", file=sys.stderr)
    outline = Outline.of(universe.trajectory)
    advice = advise(
        _analysis(universe, args),
        backend=args.backend,
        n_workers=args.n_workers,
        frames=frames_of(outline, args),
        transforms=transforms_of(args),
        on_error=args.on_error,
        prices=_prices(args),
    )
    columns = [name.replace("the disk", advice.far) for name in ADVISE_COLUMNS]
    if args.json:
        names = [re.sub(r" \((\w+)\)", r"_\1", name).replace(" ", "_") for name in columns]
        rows = [dict(zip(names, row, strict=True)) for row in advice.rows()]
        print_json("advise", times=rows, **_json_of_store(advice))
        return
    if not args.tsv:
        print(advice)
        return
    print(*columns, sep="\t")
    for n_workers, *times, efficiency in advice.rows():
        cells = ("-" if math.isnan(value) else f"{value:.4g}" for value in times)
        print(n_workers, *cells, f"{efficiency:.2f}", sep="\t")


def _json_of_store(advice: "Advice") -> dict[str, object]:
    """Return the speed of an object store, and requests, bytes and price of a run, as JSON values.

    Empty if the trajectory is not in an object store.
    """
    if advice.store is None:
        return {}
    run = {"requests": advice.n_requests, "bytes": advice.n_bytes, "price": advice.price}
    store = {
        "latency_s": advice.store.latency,
        "connection_bytes_per_s": advice.store.one,
        "bytes_per_s": advice.store.several,
    }
    return {"store": store, "run": run}


def _add_prices(parser: CommandParser) -> None:
    add = parser.section("file system").add_argument
    for name, what in PRICES:
        add(
            f"--price-{name.replace('_', '-')}",
            type=float,
            metavar="X",
            help=f"price of {what}, in any currency",
        )


def _prices(args: argparse.Namespace) -> Prices | None:
    """Return the prices of an object store that options set; None if no price is set."""
    given = {name: vars(args)[f"price_{name}"] for name, _ in PRICES}
    chosen = {name: value for name, value in given.items() if value is not None}
    return Prices(**chosen) if chosen else None


def _analysis(universe: object, args: argparse.Namespace) -> object:
    """Make the analysis for which advice is requested."""
    from paceline.analysis.rms import RMSD, RMSF
    from paceline.cli.shared_analysis_steps import select_nonempty

    if args.analysis == "rdf":
        return rdf_of(universe, args)
    return {"rmsd": RMSD, "rmsf": RMSF}[args.analysis](select_nonempty(universe, args.select))


def add_predict(commands: Commands) -> CommandParser:
    """Add the command `predict` and its arguments."""
    parser = commands.add_parser(
        "predict",
        help="predict the time of a run with any number of workers",
        description="Predict how long an analysis takes with any number of workers, from the time "
        "of one frame on one worker. The command only calculates: it reads no files.",
        epilog=PREDICT_EXAMPLES,
    )
    parser.usage = "%(prog)s --frames N --bytes SIZE [options]"
    _add_job(parser)
    _add_workers(parser)
    _add_file_system(parser)
    _add_prices(parser)
    add_output_arguments(parser, document="PredictDocument")
    parser.set_defaults(run=run_predict)
    return parser


def _add_job(parser: CommandParser) -> None:
    add = parser.section("calculation").add_argument
    add("--frames", type=positive, required=True, metavar="N", help="frames of the run")
    add("--bytes", type=size, required=True, metavar="SIZE", help="bytes read per frame")
    add(
        "--read",
        type=seconds,
        metavar="TIME",
        help="measured time to read a frame [from the properties of the file system]",
    )
    add("--decode", type=seconds, default=0.0, metavar="TIME", help="time to decode a frame [0s]")
    add("--compute", type=seconds, default=0.0, metavar="TIME", help="time to analyse a frame [0s]")


def _add_workers(parser: CommandParser) -> None:
    add = parser.section("workers").add_argument
    add(
        "--n-workers",
        type=positive,
        nargs="+",
        default=[64],
        metavar="N",
        help="numbers of workers; a single number N means 1, 2, 4 … N [64]",
    )
    add("--per-node", type=positive, metavar="N", help="workers per node [all on one node]")
    add(
        "--schedule",
        choices=SCHEDULES,
        nargs="+",
        default=["dynamic"],
        help="assign blocks to idle workers, or equal shares to all; compares both [dynamic]",
    )
    add("--block-frames", type=positive, metavar="N", help="frames per block [as in a run]")
    add("--start", type=seconds, default=0.0, metavar="TIME", help="time until workers start [0s]")
    add(
        "--slow-fraction",
        type=float,
        default=0.0,
        metavar="X",
        help="fraction of workers that are slow [0]",
    )
    add(
        "--slow-factor",
        type=float,
        default=1.0,
        metavar="X",
        help="ratio of the times of a slow and of a normal worker [1]",
    )
    add(
        "--late",
        type=seconds,
        default=0.0,
        metavar="TIME",
        help="additional time until slow workers start [0s]",
    )


def _add_file_system(parser: CommandParser) -> None:
    add = parser.section("file system").add_argument
    add(
        "--file-system",
        choices=FILE_SYSTEMS,
        default="ssd",
        help="preset of a file system; rough, except for the lock of lustre [%(default)s]",
    )
    for name, read, metavar, what in FIGURES:
        add(f"--{name.replace('_', '-')}", type=read, metavar=metavar, help=what)
    add(
        "--layout",
        choices=LAYOUTS,
        nargs="+",
        default=["shared"],
        help="shared: one file that all workers open; split: no lock, as with a file per worker or "
        "MPI-IO; several layouts are compared [shared]",
    )
    add("--request-frames", type=positive, metavar="N", help="frames read at a time [a block]")


def run_predict(args: argparse.Namespace) -> None:
    """Run the command `predict`."""
    from paceline.analysis.results import Results, check_ending, check_figure_ending
    from paceline.performance.model import EFFICIENCY, fastest, last_that_pays
    from paceline.performance.number_format import amount, many, percent
    from paceline.performance.number_format import seconds as seconds_in_words
    from paceline.performance.scaling_figures import draw_predictions, save_figure

    check_distinct(args.output, args.plot)
    for path, check in ((args.output, check_ending), (args.plot, check_figure_ending)):
        if path is not None:
            check(path)
            check_output(path, overwrite=args.overwrite)
    curves = _curves(args)
    prices = _prices(args)
    results = Results(table=_table(curves), provenance={"command": args.command_line})
    if args.plot is not None:
        save_figure(draw_predictions(curves), args.plot, overwrite=args.overwrite)
    for (schedule, layout), found in curves.items():
        best, last = fastest(found), last_that_pays(found)
        print(
            f"paceline: {schedule}, {layout}: fastest with {many(best.n_workers, 'worker')}, "
            f"{seconds_in_words(best.t_total)}; efficiency is {percent(EFFICIENCY)} or more up to "
            f"{last.n_workers}",
            file=sys.stderr,
        )
    price = None
    if prices is not None:
        n_bytes = args.frames * args.bytes
        per_request = (args.request_frames or 0) * args.bytes or REQUEST_BYTES
        n_requests = math.ceil(n_bytes / per_request)
        price = prices.of(n_bytes, n_requests)
        print(
            f"paceline: {amount(n_bytes)} in {n_requests} requests cost {price:.2g}",
            file=sys.stderr,
        )
    if args.output is not None:
        results.save(args.output, overwrite=args.overwrite)
    if args.json:
        written = [path for path in (args.output, args.plot) if path is not None]
        print_json("predict", predictions=_json_of_curves(curves), price=price, written=written)
    elif args.output is None:
        results.write_table(sys.stdout, delimiter="\t")
        sys.stdout.flush()


def _json_of_curves(curves: Mapping[tuple[str, str], Sequence[Prediction]]) -> "list[Predicted]":
    """Convert predictions to JSON values."""
    rows: list[Predicted] = []
    for (schedule, layout), found in curves.items():
        work = found[0].n_workers * found[0].t_total
        for one in found:
            rows.append(
                {
                    "schedule": schedule,
                    "layout": layout,
                    "workers": one.n_workers,
                    "seconds": one.t_total,
                    "speed_up": work / one.t_total,
                    "efficiency": work / one.t_total / one.n_workers,
                }
            )
    return rows


def _table(curves: Mapping[tuple[str, str], Sequence[Prediction]]) -> Any:
    """Make a table of predictions, one row per prediction."""
    import numpy as np

    from paceline.analysis.table import Table

    parts = ("t_start", "t_io", "t_decode", "t_comp", "t_wait")
    rows: list[tuple[object, ...]] = []
    for (schedule, layout), found in curves.items():
        work = found[0].n_workers * found[0].t_total
        for one in found:
            speed_up = work / one.t_total
            numbers = (one.t_total, speed_up, speed_up / one.n_workers)
            times = (getattr(one, part) for part in parts)
            # Predictions are not accurate to more digits.
            cells = (float(f"{value:.4g}") for value in (*numbers, *times))
            rows.append((schedule, layout, one.n_workers, *cells))
    titles = ["schedule", "layout", "workers", "t_total (s)", "speed-up", "efficiency"]
    titles += [f"{part} (s)" for part in parts]
    columns = zip(titles, map(np.array, zip(*rows, strict=True)), strict=True)
    shown = {"t_total (s)": "t_total"}
    return Table(dict(columns), x="workers", y=shown, y_label="t_total (s)")


def _curves(args: argparse.Namespace) -> dict[tuple[str, str], list[Any]]:
    """Predict the times for each requested schedule and layout."""
    from paceline.performance.model import FrameCost, Unevenness, doublings, sweep

    system = _file_system(args)
    read = args.read
    if read is None:
        read = system.read_time(args.bytes, args.request_frames)
        if system.latency and not args.request_frames:
            # paceline requests bytes in advance, while it decodes and computes. Only the time that
            # exceeds the time to decode and compute is a wait.
            read = max(0.0, read - args.decode - args.compute)
    cost = FrameCost(read=read, decode=args.decode, compute=args.compute, bytes=args.bytes)
    # Always include one worker, because efficiencies are relative to one worker.
    wanted = args.n_workers if len(args.n_workers) > 1 else doublings(args.n_workers[0])
    return {
        (schedule, layout): sweep(
            cost,
            args.frames,
            sorted({1, *wanted}),
            file_system=system,
            per_node=args.per_node,
            schedule=schedule,
            layout=layout,
            uneven=Unevenness(
                slow_fraction=args.slow_fraction, slow_factor=args.slow_factor, late=args.late
            ),
            block_frames=args.block_frames,
            request_frames=args.request_frames,
            t_start=args.start,
        )
        for schedule, layout in itertools.product(args.schedule, args.layout)
    }


def _file_system(args: argparse.Namespace) -> FileSystem:
    """Return the preset of the file system, with the properties that options set."""
    given = {field.name: vars(args)[field.name] for field in fields(FileSystem)}
    chosen = {name: value for name, value in given.items() if value is not None}
    return replace(FILE_SYSTEMS[args.file_system], **chosen)


def add_bench(commands: Commands) -> CommandParser:
    """Add the command `bench` and its arguments."""
    bench: CommandParser = commands.add_parser(
        "bench",
        help="measure an analysis with 1, 2, 4 ... workers",
        description="Measure paceline on your own files and machine.",
        epilog=BENCH_EXAMPLES,
    )
    kinds = bench.add_subparsers(
        title="benchmarks", metavar="BENCHMARK", required=True, parser_class=_DashesAllowed
    )
    scaling = kinds.add_parser(
        "scaling",
        help="time, speed-up and efficiency by number of workers",
        description=BENCH_DESCRIPTION,
        epilog=BENCH_EXAMPLES,
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
        json=False,
        backend=None,
        debug=False,
        one_run=None,
    )
    analyses = scaling.add_subparsers(
        dest="analysis",
        title="analyses",
        metavar="ANALYSIS",
        required=True,
        parser_class=CommandParser,
    )
    for add_analysis in ANALYSES:
        parser = add_analysis(analyses)
        parser.description, parser.epilog = BENCH_DESCRIPTION, BENCH_EXAMPLES
        _add_options(parser)
        parser.set_form(FileForm(topology="required"))
        parser.set_defaults(run=run_bench)
    # Set the usage after the subcommands were made: otherwise their names would begin with it.
    scaling.usage = f"{scaling.prog} [options] ANALYSIS TOPOLOGY TRAJECTORY..."
    bench.usage = f"{bench.prog} BENCHMARK ANALYSIS TOPOLOGY TRAJECTORY..."
    bench.set_defaults(run=run_bench)
    return bench


def run_bench(args: argparse.Namespace) -> None:
    """Run the command `bench`: all runs, or a single run in this process."""
    begun = time.time()  # the time of a run includes imports
    from paceline.cli.bench import measure, one_run

    if args.one_run is not None:
        one_run(args, begun)
    else:
        measure(args)


def _add_options(parser: CommandParser) -> None:
    """Add the options of the measurement, before or after the name of the analysis.

    These options replace options of the analysis with the same names. They have no default values
    here, so that an omitted option does not hide a value given before the name.
    """
    group = parser.section("measuring")
    group.argument_default, group.conflict_handler = argparse.SUPPRESS, "resolve"
    add = group.add_argument
    add(
        "--workers",
        "--n-workers",
        dest="workers",
        type=counts,
        metavar="N,N,…",
        help="numbers of workers, or of ranks [powers of two up to the CPUs, and all CPUs]",
    )
    add("--repeats", type=positive, metavar="N", help="runs for each number of workers [5]")
    add("--strong", action="store_true", help="the same frames for any number of workers [default]")
    add(
        "--weak",
        action="store_true",
        help="the same number of frames for each worker",
    )
    add(
        "--backend",
        choices=PARALLEL,
        help="kind of workers [threads]",
    )
    add(
        "--launcher",
        metavar="TEXT",
        help="command that starts MPI ranks; -n and the number of ranks are appended [mpiexec, "
        "mpirun or srun]",
    )
    cache = group.add_mutually_exclusive_group()
    cache.add_argument(
        "--cold",
        action="store_true",
        default=argparse.SUPPRESS,
        help="drop the trajectory from memory before each run, and check the result",
    )
    cache.add_argument(
        "--copies",
        action="store_true",
        default=argparse.SUPPRESS,
        help="make a new copy of the trajectory beside it for each run, and drop it from memory",
    )
    add("-o", "--output", type=Path, metavar="FILE", help="table with one line per run: .csv")
    add_json_argument(group, "BenchDocument")
    add(
        "--plot",
        type=Path,
        action="append",
        metavar="FILE",
        help="draw the figure: .png, .svg, .pdf; may be repeated",
    )
    # Hide figure options of the analysis that the figure of a measurement does not have.
    for action in parser.section("figure")._group_actions:
        if action.dest not in OF_MEASUREMENTS:
            action.help = argparse.SUPPRESS
    add("--overwrite", action="store_true", help="replace files that exist")
    add("--debug", action="store_true", help="print the traceback of an error")
    add("--one-run", help=argparse.SUPPRESS)
    add(
        "--checkpoint",
        "--timings",
        "--report",
        action=_RefusedOption,
        nargs="?",
        help=argparse.SUPPRESS,
    )


def counts(text: str) -> list[int]:
    """Convert a text to different numbers of workers, in increasing order.

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


class _DashesAllowed(CommandParser):
    """Accept -- before the name of the analysis, as argparse does from Python 3.13 on."""

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        given = list(args or ())
        if "--" in given:
            given.remove("--")
        return super().parse_known_args(given, namespace)


class _RefusedOption(argparse.Action):
    """Refuse an option of an analysis that is useless if results are not saved."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        parser.error(f"{option_string} cannot be used in a measurement: omit it")


PARSERS = {
    "report": add_report,
    "advise": add_advise,
    "predict": add_predict,
    "bench": add_bench,
}
