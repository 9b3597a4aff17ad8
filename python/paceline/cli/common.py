"""Arguments and steps that the analyses' commands share."""

import argparse
import sys
from pathlib import Path
from typing import Any

from paceline.files import refuse_impossible

#: Picoseconds in a unit of time.
UNITS = {"fs": 1e-3, "ps": 1.0, "ns": 1e3, "us": 1e6, "µs": 1e6, "ms": 1e9}


def add_analysis_arguments(parser: argparse.ArgumentParser, *, select: str) -> None:
    """Add what every analysis can be told.

    Parameters
    ----------
    parser : argparse.ArgumentParser
        Of the command.
    select : str
        Default selection.
    """
    add = parser.add_argument
    add("topology", help="file that describes the system: PSF, GRO, PDB, TPR, PRMTOP …")
    add(
        "trajectory",
        nargs="+",
        help='trajectory; several, or a pattern such as "md.part*.xtc", are one after another',
    )
    add(
        "--select",
        default=select,
        metavar="TEXT",
        help="atoms, in MDAnalysis's words [%(default)s]",
    )
    add_frame_arguments(parser)
    add_transform_arguments(parser)
    add_worker_arguments(parser)
    add("-o", "--output", type=Path, metavar="FILE", help=".csv, .tsv or .npz [table to stdout]")
    add("--plot", type=Path, metavar="FILE", help="draw a figure: .png, .svg, .pdf")
    add("--overwrite", action="store_true", help="replace files that exist")


def add_frame_arguments(parser: argparse.ArgumentParser) -> None:
    """Add which frames are taken.

    Parameters
    ----------
    parser : argparse.ArgumentParser
        Of the command.
    """
    add = parser.add_argument
    bounds = "a frame number, or a time with its unit, such as 100ps or 2.5ns"
    add("--begin", type=bound, metavar="T", help=f"first frame: {bounds}")
    add(
        "--end",
        type=bound,
        metavar="T",
        help="end: a frame number, itself left out as in a Python slice, or a time, included",
    )
    add("--step", type=positive, default=1, metavar="N", help="take every Nth frame [%(default)s]")
    add(
        "--continuous",
        action="store_true",
        help="order trajectories by time, and leave out frames that a later one repeats",
    )


def add_transform_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what is done to positions first.

    Parameters
    ----------
    parser : argparse.ArgumentParser
        Of the command.
    """
    add = parser.add_argument
    add("--unwrap", action="store_true", help="make molecules whole along their bonds")
    add(
        "--center",
        nargs="?",
        const="protein",
        metavar="TEXT",
        help="then move the center of these atoms to that of the cell [%(const)s]",
    )
    add(
        "--wrap",
        action="store_true",
        help="then put molecules back into the cell, each as a whole",
    )
    add(
        "--fit",
        nargs="?",
        const="protein and name CA",
        metavar="TEXT",
        help="then superpose these atoms on those of the first frame [%(const)s]",
    )


def add_worker_arguments(parser: argparse.ArgumentParser) -> None:
    """Add where blocks are computed, and what happens to damaged frames.

    Parameters
    ----------
    parser : argparse.ArgumentParser
        Of the command.
    """
    add = parser.add_argument
    add(
        "--backend",
        choices=("threads", "processes", "serial"),
        default="threads",
        help="where blocks of frames are computed [%(default)s]",
    )
    add("--n-workers", type=positive, metavar="N", help="workers [the CPUs this process may use]")
    add(
        "--on-error",
        choices=("raise", "skip"),
        default="raise",
        help="end at a damaged frame, or leave it out and list it [%(default)s]",
    )
    add("--timings", action="store_true", help="show who did what for how long")


def positive(text: str) -> int:
    """Read an integer above 0.

    Parameters
    ----------
    text : str
        What the user wrote.

    Returns
    -------
    int
        The number.

    Examples
    --------
    >>> positive("12")
    12
    """
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected at least 1, found {text}")
    return value


def bound(text: str) -> tuple[str, float]:
    """Read a frame number, or a time with its unit.

    Parameters
    ----------
    text : str
        What the user wrote.

    Returns
    -------
    tuple
        ("frame", number) or ("time", picoseconds).

    Examples
    --------
    >>> bound("100"), bound("2.5ns")
    (('frame', 100), ('time', 2500.0))
    """
    for unit, factor in sorted(UNITS.items(), key=lambda item: -len(item[0])):
        if text.endswith(unit):
            try:
                return "time", float(text.removesuffix(unit)) * factor
            except ValueError:
                break
    try:
        return "frame", int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"expected a frame number or a time such as 100ps or 2.5ns, found {text!r}"
        ) from None


def open_universe(args: argparse.Namespace) -> Any:
    """Open the Universe of the command, once its outputs are known to be possible.

    Parameters
    ----------
    args : argparse.Namespace
        The command's arguments.

    Returns
    -------
    paceline.Universe
        Of the topology and the trajectories.
    """
    from paceline.analysis.results import refuse_unknown_ending, refuse_unknown_figure
    from paceline.universe import Universe

    for path, refuse in ((args.output, refuse_unknown_ending), (args.plot, refuse_unknown_figure)):
        if path is not None:
            refuse(path)
            refuse_impossible(path, overwrite=args.overwrite)
    return Universe(args.topology, *args.trajectory, **chain_options(args))


def chain_options(args: argparse.Namespace) -> dict[str, Any]:
    """How a Universe takes several trajectories.

    Parameters
    ----------
    args : argparse.Namespace
        The command's arguments.

    Returns
    -------
    dict
        Keywords for a Universe.
    """
    # MDAnalysis's own readers know it for chains of files alone.
    return {"continuous": True} if args.continuous else {}


def run_and_report(args: argparse.Namespace, universe: Any, analysis: Any) -> None:
    """Run an analysis and write what was asked for.

    Parameters
    ----------
    args : argparse.Namespace
        The command's arguments.
    universe : paceline.Universe
        Whose trajectory is analysed.
    analysis : AnalysisBase
        Of this Universe.
    """
    run_analysis(args, universe, analysis)
    if args.plot is not None:
        analysis.results.save_figure(args.plot, overwrite=args.overwrite)
    if args.output is not None:
        analysis.results.save(args.output, overwrite=args.overwrite)
    else:
        # Last: who reads it may stop reading, and that ends the command.
        analysis.results.write_table(sys.stdout, delimiter="\t")


def run_analysis(args: argparse.Namespace, universe: Any, analysis: Any) -> None:
    """Run an analysis over the frames that were asked for, and tell what was left out.

    Parameters
    ----------
    args : argparse.Namespace
        The command's arguments.
    universe : paceline.Universe
        Whose trajectory is analysed.
    analysis : AnalysisBase
        Of this Universe.
    """
    from paceline.cli.frames import frames_between

    analysis.run(
        backend=args.backend,
        n_workers=args.n_workers,
        frames=frames_between(universe.trajectory, args.begin, args.end)[:: args.step],
        transforms=_transforms(args),
        on_error=args.on_error,
    )
    analysis.results.provenance["command"] = args.command_line
    for frame, reason in analysis.damaged:
        print(f"paceline: left out frame {frame}: {reason}", file=sys.stderr)
    if args.timings:
        print(analysis.timings, file=sys.stderr)


def _transforms(args: argparse.Namespace) -> list[Any]:
    """What is done to positions, in the order in which it makes sense."""
    from paceline import transform

    chosen: list[Any] = []
    if args.unwrap:
        chosen.append(transform.unwrap())
    if args.center is not None:
        chosen.append(transform.center(args.center))
    if args.wrap:
        chosen.append(transform.wrap(compound="fragments"))
    if args.fit is not None:
        chosen.append(transform.fit(args.fit))
    return chosen
