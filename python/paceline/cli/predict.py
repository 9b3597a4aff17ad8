"""paceline predict."""

import argparse
import itertools
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from paceline.cli.quantities import seconds
from paceline.cli.values import positive, size
from paceline.model import FILE_SYSTEMS, LAYOUTS, NETWORKS, SCHEDULES, FileSystem

EXAMPLES = """\
examples:
  paceline predict --frames 100000 --bytes 12kB --decode 30us --compute 90us --n-workers 16
  paceline predict --frames 2512200 --bytes 12kB --read 315us --compute 90us \\
      --file-system lustre --network infiniband --per-node 24 --n-workers 384 --plot scaling.png
  paceline predict --frames 1000000 --bytes 570kB --decode 1.5ms --compute 2ms \\
      --file-system nfs --per-node 24 --n-workers 24 96 384 --layout shared split h5md
  paceline predict --frames 1000000 --bytes 12kB --decode 0.3ms --compute 0.1ms --per-node 24 \\
      --n-workers 384 --schedule static dynamic --slow-fraction 0.05 --slow-factor 3

The times are those of one frame on one worker alone: `paceline advise`, or --timings of a run with
--n-workers 1, tell them. The formula is in the manual, under "The model".
"""
#: Figures of a file system that can be given: option, how it is read, what it is.
FIGURES = (
    ("servers", positive, "N", "servers or disks that hold data"),
    ("stripe_count", positive, "N", "those among which one file is divided"),
    ("server_bandwidth", size, "SIZE", "bytes per second from each of them"),
    ("node_bandwidth", size, "SIZE", "bytes per second into one node"),
    ("latency", seconds, "TIME", "from asking for bytes to the first of them"),
    ("t_request", seconds, "TIME", "what a request costs a server, beside its bytes"),
    ("t_lock", seconds, "TIME", "how long a request to a shared file holds its node's lock"),
    ("t_open", seconds, "TIME", "what a file takes that all open, one after another"),
    ("t_metadata", seconds, "TIME", "what any open costs the metadata server"),
)


def add_to(commands: Any) -> argparse.ArgumentParser:
    """Add the command and its arguments."""
    parser = commands.add_parser(
        "predict",
        help="how long a run would take on so many workers",
        description="Predict how long an analysis takes on any number of workers, from what one "
        "frame costs one worker. It is arithmetic: nothing is read or run.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_job(parser)
    _add_workers(parser)
    _add_file_system(parser)
    add = parser.add_argument
    add("-o", "--output", type=Path, metavar="FILE", help=".csv, .tsv or .npz [table to stdout]")
    add("--plot", type=Path, metavar="FILE", help="draw a figure: .png, .svg, .pdf")
    add("--overwrite", action="store_true", help="replace files that exist")
    return parser


def _add_job(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("the job").add_argument
    add("--frames", type=positive, required=True, metavar="N", help="frames of the run")
    add("--bytes", type=size, required=True, metavar="SIZE", help="to be read of a frame")
    add(
        "--read",
        type=seconds,
        metavar="TIME",
        help="waiting for a frame's bytes, as measured there [from the file system's figures]",
    )
    add("--decode", type=seconds, default=0.0, metavar="TIME", help="decoding a frame [0s]")
    add("--compute", type=seconds, default=0.0, metavar="TIME", help="analysing a frame [0s]")
    add("--result-bytes", type=size, default=16.0, metavar="SIZE", help="results of a frame [16]")


def _add_workers(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("workers").add_argument
    add(
        "--n-workers",
        type=positive,
        nargs="+",
        default=[64],
        metavar="N",
        help="these numbers of workers; one number: 1, 2, 4 … up to it [64]",
    )
    add("--per-node", type=positive, metavar="N", help="workers on a node [all on one]")
    add(
        "--schedule",
        choices=SCHEDULES,
        nargs="+",
        default=["dynamic"],
        help="blocks dealt as workers come free, or equal shares; both: compared [dynamic]",
    )
    add("--block-frames", type=positive, metavar="N", help="frames of a block [as paceline cuts]")
    add("--start", type=seconds, default=0.0, metavar="TIME", help="until workers begin [0s]")
    add(
        "--t-deal",
        type=seconds,
        default=0.0,
        metavar="TIME",
        help="what a block costs the process that deals [0s]",
    )
    add("--spread", type=float, default=0.0, metavar="X", help="workers' standard deviation [0]")
    add("--slow-fraction", type=float, default=0.0, metavar="X", help="part that is slow [0]")
    add("--slow-factor", type=float, default=1.0, metavar="X", help="times as long they take [1]")


def _add_file_system(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("file system and network").add_argument
    add(
        "--file-system",
        choices=FILE_SYSTEMS,
        default="ssd",
        help="ready figures, of data sheets but for comet, which is fitted [%(default)s]",
    )
    for name, read, metavar, what in FIGURES:
        add(f"--{name.replace('_', '-')}", type=read, metavar=metavar, help=what)
    add(
        "--layout",
        choices=LAYOUTS,
        nargs="+",
        default=["shared"],
        help="one file that all open, one file a worker, or one opened together; several: compared "
        "[shared]",
    )
    add("--request-frames", type=positive, metavar="N", help="frames read at once [a block]")
    add("--network", choices=NETWORKS, default="none", help="over which results come [%(default)s]")


def run(args: argparse.Namespace) -> None:
    """Do it."""
    from paceline.analysis.results import Results, refuse_unknown_ending, refuse_unknown_figure
    from paceline.cli.curves import save_curves, table_of
    from paceline.files import refuse_clashes, refuse_impossible
    from paceline.model.sweep import EFFICIENCY, fastest, last_that_pays
    from paceline.report.wording import many
    from paceline.report.words import percent
    from paceline.report.words import seconds as seconds_in_words

    refuse_clashes(args.output, args.plot)
    for path, refuse in ((args.output, refuse_unknown_ending), (args.plot, refuse_unknown_figure)):
        if path is not None:
            refuse(path)
            refuse_impossible(path, overwrite=args.overwrite)
    curves = _curves(args)
    results = Results(table=table_of(curves), provenance={"command": args.command_line})
    if args.plot is not None:
        save_curves(curves, args.plot, overwrite=args.overwrite)
    for (schedule, layout), found in curves.items():
        best, last = fastest(found), last_that_pays(found)
        print(
            f"paceline: {schedule}, {layout}: fastest with {many(best.n_workers, 'worker')}, "
            f"{seconds_in_words(best.t_total)}; efficiency is {percent(EFFICIENCY)} or more up to "
            f"{last.n_workers}",
            file=sys.stderr,
        )
    if args.output is not None:
        results.save(args.output, overwrite=args.overwrite)
    else:
        results.write_table(sys.stdout, delimiter="\t")
        sys.stdout.flush()


def _curves(args: argparse.Namespace) -> dict[tuple[str, str], list[Any]]:
    """Predictions for each schedule and layout that was asked for."""
    from paceline.model import FrameCost, Unevenness
    from paceline.model.sweep import doublings, sweep
    from paceline.plan import LEAF_FRAMES

    system = _file_system(args)
    read = args.read
    if read is None:
        read = system.read_time(args.bytes, args.request_frames or args.block_frames or LEAF_FRAMES)
    cost = FrameCost(read=read, decode=args.decode, compute=args.compute, bytes=args.bytes)
    # Efficiencies are relative to one worker.
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
            network=NETWORKS[args.network],
            uneven=Unevenness(args.spread, args.slow_fraction, args.slow_factor),
            block_frames=args.block_frames,
            request_frames=args.request_frames,
            result_bytes=args.result_bytes,
            t_start=args.start,
            t_deal=args.t_deal,
        )
        for schedule, layout in itertools.product(args.schedule, args.layout)
    }


def _file_system(args: argparse.Namespace) -> FileSystem:
    """The chosen one, with the figures that were given in place of its own."""
    given = {field.name: getattr(args, field.name) for field in fields(FileSystem)}
    chosen = {name: value for name, value in given.items() if value is not None}
    return replace(FILE_SYSTEMS[args.file_system], **chosen)
