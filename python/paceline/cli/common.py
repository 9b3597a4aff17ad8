"""Arguments and steps that the analyses' commands share."""

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

from paceline.files import refuse_existing

#: Picoseconds in a unit of time.
UNITS = {"fs": 1e-3, "ps": 1.0, "ns": 1e3, "us": 1e6, "µs": 1e6, "ms": 1e9}


def add_analysis_arguments(parser: argparse.ArgumentParser, *, select: str) -> None:
    """What every analysis can be told."""
    add = parser.add_argument
    add("topology", help="file that describes the system: PSF, GRO, PDB, TPR, PRMTOP …")
    add("trajectory", nargs="+", help="trajectory; several are taken one after another")
    add("--select", default=select, metavar="TEXT", help="atoms, in MDAnalysis's words [%(default)s]")
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
    add("-o", "--output", type=Path, metavar="FILE", help=".csv, .tsv or .npz [table to stdout]")
    add("--plot", type=Path, metavar="FILE", help="draw a figure: .png, .svg, .pdf")
    add("--overwrite", action="store_true", help="replace files that exist")
    add("--timings", action="store_true", help="show who did what for how long")


def positive(text: str) -> int:
    """An integer above 0."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected at least 1, found {text}")
    return value


def bound(text: str) -> tuple[str, float]:
    """A frame number, or a time: ("frame", 100) or ("time", picoseconds)."""
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
    """The Universe of the command, once its outputs are known to be possible."""
    from paceline.universe import Universe

    for path in (args.output, args.plot):
        if path is None:
            continue
        refuse_existing(path, overwrite=args.overwrite)
        if not path.parent.is_dir():
            raise FileNotFoundError(f"{path}: there is no folder {path.parent}")
    return Universe(args.topology, *args.trajectory)


def frames_of(args: argparse.Namespace, trajectory: Any) -> np.ndarray | range:
    """Frame numbers between the bounds."""
    numbers = range(trajectory.n_frames)
    limits = {"begin": args.begin, "end": args.end}
    by_frame = {side: int(at[1]) for side, at in limits.items() if at and at[0] == "frame"}
    by_time = {side: at[1] for side, at in limits.items() if at and at[0] == "time"}
    numbers = numbers[by_frame.get("begin") : by_frame.get("end")]
    if not by_time:
        return numbers[:: args.step]
    times = _times(trajectory)[numbers.start : numbers.stop]
    inside = (times >= by_time.get("begin", -np.inf)) & (times <= by_time.get("end", np.inf))
    if not inside.any():
        raise ValueError(
            f"no frame lies between the times asked for: the trajectory goes from "
            f"{np.nanmin(times):g} to {np.nanmax(times):g} ps"
        )
    return np.asarray(numbers)[inside][:: args.step]


def _times(trajectory: Any) -> np.ndarray:
    """Times of all frames, ps; from the index where there is one."""
    core = getattr(trajectory, "core", None)
    return core.times()[0] if core else np.array([ts.time for ts in trajectory])


def run_and_report(args: argparse.Namespace, universe: Any, analysis: Any) -> None:
    """Run an analysis and write what was asked for."""
    analysis.run(
        backend=args.backend,
        n_workers=args.n_workers,
        frames=frames_of(args, universe.trajectory),
        on_error=args.on_error,
    )
    for frame, reason in analysis.damaged:
        print(f"paceline: left out frame {frame}: {reason}", file=sys.stderr)
    if args.timings:
        print(analysis.timings, file=sys.stderr)
    if args.output is None:
        analysis.results.write_table(sys.stdout, delimiter="\t")
    else:
        analysis.results.save(args.output, overwrite=args.overwrite)
    if args.plot is not None:
        analysis.results.save_figure(args.plot, overwrite=args.overwrite)
