"""Steps of commands that analyse: open the system, run over the frames asked for, save results."""

import argparse
import contextlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from paceline import transform
from paceline._util.files import check_distinct, check_output, saved_together
from paceline.analysis.chosen_frames import times_of
from paceline.analysis.results import check_ending, check_figure_ending, further_results
from paceline.analysis.table import rounding_of
from paceline.checkpoint import Checkpoint
from paceline.cli.answer import STDOUT, say_battery, say_results, show_table
from paceline.cli.command_line import in_options
from paceline.cli.options import Bound, DefaultSelection, figure_options, hdf5_options
from paceline.contract.declaration import ON_STRUCTURE
from paceline.contract.figure_options import OF_ALL, FigureOptions
from paceline.contract.source import FrameInterval
from paceline.errors import SelectionError, UnsupportedError, kept_warnings, warn
from paceline.performance.figure_style import check_style
from paceline.performance.number_format import many
from paceline.transform.atom_choice import check_positions
from paceline.transform.ligands import COMPLEXES, describe_complexes

if TYPE_CHECKING:
    from paceline.analysis.results import Results
    from paceline.cli.atom_groups import GroupUniverse

#: Endings of files of several structures.
STRUCTURES = (".pdb", ".gro", ".xyz")
#: Endings of further tables.
FURTHER = (".csv", ".tsv")
#: Frames that were left out, of which each has a line.
MOST_LEFT_OUT = 20


def open_universe(args: argparse.Namespace) -> Any:
    """Open the Universe of the command, once its outputs are known to be possible."""
    structures = args.structures
    further = further_files(args)
    check_distinct(
        args.output, args.plot, structures, args.report, args.checkpoint, *further.values()
    )
    check_outputs(args, args.output, args.output_files)
    if structures is not None:
        if structures.suffix.lower() not in STRUCTURES:
            raise UnsupportedError(f"{structures} must end in {', '.join(STRUCTURES)}")
        check_output(structures, overwrite=args.overwrite)
    for path in further.values():
        if path.suffix.lower() not in FURTHER:
            check_figure_ending(path, FURTHER)
        check_output(path, overwrite=args.overwrite)
    check_report(args)
    return system_of(args)


def further_files(args: argparse.Namespace) -> dict[str, Path]:
    """Files of further tables that are asked for, by the names of these."""
    paths = {name: vars(args)[name] for name in args.further}
    return {name: path for name, path in paths.items() if path is not None}


def check_outputs(args: argparse.Namespace, table: Path | None, files: Sequence[str] = ()) -> None:
    """Raise where a table, or a file of another ending of `files`, or the figure cannot be made."""
    if table not in (None, STDOUT):
        check_ending(table, files)
        check_output(table, overwrite=args.overwrite)
        if table.suffix.lower() in ON_STRUCTURE:
            check_output(table.with_suffix(".pdb"), overwrite=args.overwrite)
    figures = (path for path in further_files(args).values() if path.suffix.lower() not in FURTHER)
    options = figure_options(args, args.plot, *figures)
    if args.plot is not None:
        check_figure_ending(args.plot, style=options.style)
        check_output(args.plot, overwrite=args.overwrite)


def system_of(args: argparse.Namespace, **options: object) -> "GroupUniverse":
    """Open topology and trajectory, with the groups of the index file; `options` are of it."""
    from paceline.cli.atom_groups import GroupUniverse  # not where a trajectory is converted alone

    if vars(args).get("guess_bonds"):
        options["guess_bonds"] = True
    universe = GroupUniverse(args.topology, *args.trajectory, **chain_options(args), **options)
    if args.dt is not None and type(universe.trajectory).__name__ == "DumpReader":
        raise UnsupportedError(
            f"{universe.trajectory.filename}: MDAnalysis reads it, and takes --dt for the time "
            "between steps; unpack it, and paceline reads it"
        )
    with kept_warnings(universe.opening_warnings):
        use_index_file(args, universe)
        choose_defaults(args, universe)
    return universe


def choose_defaults(args: argparse.Namespace, universe: "GroupUniverse") -> None:
    """Replace default selections that find no atoms by the next ones that do, and warn of it."""
    for name in ("select", "fit", "center"):
        default = vars(args).get(name)
        if not isinstance(default, DefaultSelection):
            continue
        found = next((text for text in default.alternatives if _finds(universe, text)), None)
        if found is None:
            continue  # `selected` says so
        if found != default:
            atoms = many(len(universe.select_atoms(found)), "atom")
            warn(
                f"--{name}: the system has no atoms of '{default}', the default; those of "
                f"'{found}' are taken, {atoms}: --{name} chooses others"
            )
        vars(args)[name] = str(found)


def _finds(universe: "GroupUniverse", text: str) -> bool:
    """Check whether a selection finds atoms."""
    try:
        return len(universe.select_atoms(text)) > 0
    except (AttributeError, SelectionError):  # the topology lacks names; no such group
        return False


def use_index_file(args: argparse.Namespace, universe: "GroupUniverse") -> None:
    """Take groups from the index file, if one was given."""
    if args.index is not None:
        from paceline.cli.atom_groups import read_index_file

        universe.use_index_file(read_index_file(args.index, len(universe.atoms)))


def reference_of(universe: "GroupUniverse", path: str) -> "GroupUniverse":
    """Open a structure to compare with, of which groups have the same names."""
    reference = type(universe)(path)
    reference.use_index_file(universe.index_file)
    return reference


def reference_and_frame(universe: "GroupUniverse", ref: str) -> tuple["GroupUniverse | None", int]:
    """Take a frame of the trajectory itself as the reference, or open a structure file."""
    is_frame = ref.lstrip("-").isdigit()
    return (None, int(ref)) if is_frame else (reference_of(universe, ref), 0)


def reference_at(universe: "GroupUniverse", ref: str) -> "GroupUniverse":
    """Open a reference: a copy of the Universe at a frame, or a structure file."""
    reference, frame = reference_and_frame(universe, ref)
    if reference is not None:
        return reference
    n_frames = universe.trajectory.n_frames
    if not -n_frames <= frame < n_frames:
        raise IndexError(f"reference frame {frame}: the trajectory has {n_frames} frames")
    reference = universe.copy()
    reference.use_index_file(universe.index_file)
    reference.trajectory[frame]
    return reference


def chain_options(args: argparse.Namespace) -> dict[str, Any]:
    """Keywords for a Universe: how it takes its trajectories."""
    # MDAnalysis's own readers know `continuous` for chains of files alone, and none of HDF5's.
    continuous = {"continuous": True} if args.continuous else {}
    dt = {} if args.dt is None else {"dt": FrameInterval(args.dt)}
    return {**continuous, **dt, **hdf5_options(args)}


def selected(universe: Any, text: str, *, updating: bool = False) -> Any:
    """Select at least one atom; `SelectionError` where that is not possible.

    With `updating`, atoms are selected anew in each frame, and may be none.
    """
    try:
        atoms = universe.select_atoms(text, updating=updating)
    except AttributeError as error:
        if "coordinates" in str(error):  # of a selection by distance
            check_positions(universe.trajectory, repr(text))
        # MDAnalysis's way to say that a topology has no residues' names, for one.
        raise SelectionError(
            f"{text!r} needs an attribute that the topology lacks ({error}): give another "
            "--select, such as all, or another topology"
        ) from None
    if len(atoms) == 0 and not updating:
        advice = ", the default: give --select" if isinstance(text, DefaultSelection) else ""
        raise SelectionError(f"no atoms match {str(text)!r}{advice}")
    return atoms


def transforms_of(args: argparse.Namespace) -> list[Any]:
    """Make the transformations asked for, in the order in which they make sense."""
    chosen: list[object] = []
    together = COMPLEXES if args.together is None else args.together
    together = None if together == "none" else together
    unwraps = args.unwrap or args.together is not None
    if unwraps:
        chosen.append(transform.unwrap(together=together))
    if args.nojump:
        chosen.append(transform.nojump())
    if args.center is not None:
        chosen.append(transform.center(args.center))
    if args.wrap:
        unwraps |= not getattr(args, "no_unwrap", True)  # batteries do so by themselves
        together = together if unwraps else None
        chosen.append(transform.wrap(compound="fragments", together=together))
    if args.fit is not None:
        chosen.append(transform.fit(args.fit))
    return chosen


def frames_between(trajectory: Any, begin: Bound, end: Bound) -> np.ndarray:
    """Frame numbers between two bounds, in increasing order.

    An end that is a frame is itself left out, one that is a time is not. `ValueError` is raised
    where the first frame does not exist, where no frame has a time between the bounds, or where
    these are swapped.
    """
    first, earliest = _split(begin, -np.inf)
    last, latest = _split(end, np.inf)
    if first is not None and first >= trajectory.n_frames:
        raise ValueError(
            f"--begin {first}: frames go from 0 to {trajectory.n_frames - 1}; a time needs its "
            f"unit: --begin {first}ps"
        )
    numbers = np.arange(trajectory.n_frames)[first:last]
    if np.isinf([earliest, latest]).all():
        return numbers
    if latest < earliest:
        raise ValueError(f"the last time, {latest:g} ps, is before the first, {earliest:g} ps")
    return numbers[_between(times_of(trajectory)[numbers], earliest, latest)]


def frames_of(trajectory: object, args: argparse.Namespace) -> np.ndarray:
    """Frame numbers that arguments ask for, in increasing order."""
    numbers = frames_between(trajectory, args.begin, args.end)
    if args.every is None:
        return numbers[:: args.step]
    return numbers[_apart(times_of(trajectory), numbers, args.every)]


def _apart(times: np.ndarray, numbers: np.ndarray, every: float) -> np.ndarray:
    """Mask of the frames whose times (ps) are multiples of `every` behind the first.

    As in GROMACS, multiples count from the trajectory's first frame or, if that is left out, from
    0 ps. `ValueError` is raised where no frame is left.
    """
    origin = times[0] if len(numbers) and numbers[0] == 0 else 0.0
    chosen = times[numbers] - origin
    slack = rounding_of(times)
    apart = np.abs(chosen - every * np.round(chosen / every)) <= slack
    if len(numbers) and not apart.any():
        raise ValueError(f"no frame has a time that is a multiple of {every:g} ps (-dt)")
    return apart


def _split(bound: Bound, no_time: float) -> tuple[int | None, float]:
    """The frame and the time of a bound, one of which says nothing."""
    if bound is None:
        return None, no_time
    kind, value = bound
    return (int(value), no_time) if kind == "frame" else (None, value)


def _between(times: np.ndarray, earliest: float, latest: float) -> np.ndarray:
    """Mask of the times (ps) between two, these included."""
    known = times[np.isfinite(times)]
    if len(known) == 0:
        raise ValueError("no frame lies between the times asked for: none has a time")
    slack = rounding_of(known)
    inside = (times >= earliest - slack) & (times <= latest + slack)
    if not inside.any():
        raise ValueError(
            "no frame lies between the times asked for: those of the trajectory go from "
            f"{known.min():g} to {known.max():g} ps"
        )
    return inside


def _checkpoint(args: argparse.Namespace) -> contextlib.AbstractContextManager[Checkpoint | None]:
    """Open the checkpoint, if one is asked for, until results are saved: a disk may be full."""
    return contextlib.nullcontext() if args.checkpoint is None else Checkpoint(args.checkpoint)


def run_and_report(args: argparse.Namespace, analysis: Any) -> None:
    """Run an analysis and write the results that were asked for."""
    if args.output is not None and args.output.suffix.lower() in ON_STRUCTURE:
        from paceline.analysis.structures import check_structure

        check_structure(args.output.with_suffix(".pdb"), analysis.atomgroup)
    with _checkpoint(args) as kept:
        run_analysis(args, analysis, checkpoint=kept, max_memory=args.max_memory)
        further, failed = _further(args, analysis)
        with saved_together(kept.finish if kept else None):
            for path, results in further.items():
                if path.suffix.lower() in FURTHER:
                    results.save(path, overwrite=args.overwrite)
                else:
                    options = _of_all_figures(args) | {"title": args.title}
                    results.save_figure(path, overwrite=args.overwrite, **options)
            left_out = save_results(args, analysis.results)
            save_report(args, analysis.timings)
    paths = (args.output, args.plot, args.structures, *further, args.report)
    say_results(analysis.results, *paths, left_out=left_out)
    if failed is not None:
        raise UnsupportedError(f"{failed}; other results are written") from failed


def _of_all_figures(args: argparse.Namespace) -> dict[str, Any]:
    """Options of figures that do not depend on what they show."""
    return {name: vars(args)[name] for name in OF_ALL}


def _further(
    args: argparse.Namespace, analysis: Any
) -> tuple[dict[Path, "Results"], ValueError | None]:
    """Make the further results that are asked for; and the error of correlations, if any.

    What a run has computed is not lost where only its end shows that there is no correlation.
    """
    files, failed = further_files(args), None
    if not files:
        return {}, None
    try:
        found = further_results(analysis)
    except ValueError as error:
        if files.pop("correlation", None) is None:
            raise
        failed, analysis.correlation_lags = error, None
        found = further_results(analysis) if files else {}
    return {path: found[name] for name, path in files.items()}, failed


def run_battery_of(args: argparse.Namespace, battery: Any) -> None:
    """Run a battery and write all results into the folder that was asked for."""
    check_style(args.style)
    outputs = battery.outputs(args.output)
    check_distinct(args.report, args.checkpoint, *outputs)
    if args.output.exists() and not args.output.is_dir():
        raise UnsupportedError(f"{args.output} is a file: results go to a folder (-o)")
    for path in outputs:
        if path.parent.exists():
            check_output(path, overwrite=args.overwrite)
    check_report(args)
    if args.no_unwrap and (args.unwrap or args.together is not None):
        raise UnsupportedError("--no-unwrap contradicts --unwrap and --together: give one of them")
    options = {"max_memory": args.max_memory, "unwrap": not args.no_unwrap}
    with _checkpoint(args) as kept:
        run_analysis(args, battery, is_battery=True, checkpoint=kept, **options)
        with saved_together(kept.finish if kept else None):
            battery.save(args.output, overwrite=args.overwrite, **_of_all_figures(args))
            save_report(args, battery.timings)
    say_battery(battery, args.report)
    print(args.output / "index.html")


def run_analysis(
    args: argparse.Namespace,
    analysis: Any,
    *,
    is_battery: bool = False,
    most_frames: int | None = None,
    frames: np.ndarray | None = None,
    **options: object,
) -> None:
    """Run an analysis or a battery over the frames asked for, and list what was left out.

    `is_battery` is also True for replicas of one. The frames are those of arguments unless they
    are given. `options` are further ones of `paceline.run`.
    """
    analysis.run(
        backend=args.backend,
        n_workers=args.n_workers,
        frames=(lambda trajectory: frames_of(trajectory, args)[:most_frames])
        if frames is None
        else frames,
        transforms=transforms_of(args),
        on_error=args.on_error,
        **options,
    )
    analyses = analysis.analyses if is_battery else {"": analysis}
    for one in analyses.values():
        one.results.provenance["command"] = args.command_line
    notes = (one.results.provenance.get("bonds") for one in analyses.values())
    if note := next(filter(None, notes), None):
        print(f"paceline: bonds: {in_options(note, args.option_names)}", file=sys.stderr)
    _say_complexes(analyses)
    for frame, reason in analysis.damaged[:MOST_LEFT_OUT]:
        print(f"paceline: left out frame {frame}: {reason}", file=sys.stderr)
    if len(analysis.damaged) > MOST_LEFT_OUT:
        further = [frame for frame, _ in analysis.damaged[MOST_LEFT_OUT:]]
        text = f"paceline: left out {many(len(further), 'further frame')}, {further[0]} to"
        print(f"{text} {further[-1]}: 'damaged frames' of the table lists them", file=sys.stderr)
    if args.timings:
        print(analysis.timings, file=sys.stderr)


def _say_complexes(analyses: Mapping[str, Any]) -> None:
    """Print the molecules that were kept side by side by default."""
    some = [
        one
        for one in analyses.values()
        if f"together={COMPLEXES}" in one.results.provenance.get("transforms", "")
    ]
    found = describe_complexes(some[0].atomgroup.universe) if some else ""
    if found:
        print(
            f"paceline: unwrap kept side by side, by their contacts in the first frame: {found} "
            "(--together chooses others)",
            file=sys.stderr,
        )


def save_results(args: argparse.Namespace, results: Any) -> str:
    """Write results where they are wanted; return what a terminal does not show of the table."""
    if args.plot is not None:
        save_figure(args, results)
    if args.structures is not None:
        results.save(args.structures, overwrite=args.overwrite)
    if args.output not in (None, STDOUT):
        results.save(args.output, overwrite=args.overwrite)
        return ""
    with contextlib.suppress(BrokenPipeError):  # the reader has enough
        if args.output is None and sys.stdout.isatty():
            return "" if args.plot is not None else show_table(results)
        results.write_table(sys.stdout, delimiter="\t")
        sys.stdout.flush()
    return ""


def save_figure(args: argparse.Namespace, results: "Results") -> None:
    """Draw the figure that is asked for, with its options."""
    results.save_figure(args.plot, overwrite=args.overwrite, **vars(FigureOptions.of(args)))


def check_report(args: argparse.Namespace) -> None:
    """Raise where the report that is asked for cannot be made."""
    if args.report is None:
        return
    from paceline.performance.report import check_report_ending

    if not _is_table(args.report):
        check_report_ending(args.report, "timings as .csv")
    check_output(args.report, overwrite=args.overwrite)


def save_report(args: argparse.Namespace, timings: Any) -> None:
    """Write the report that is asked for, if one is."""
    if args.report is None:
        return
    save = timings.to_csv if _is_table(args.report) else timings.report
    save(args.report, overwrite=args.overwrite)


def _is_table(path: Path) -> bool:
    return path.suffix.lower() == ".csv"
