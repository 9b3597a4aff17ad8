"""Steps of all analysis commands: open the system, run over frames, and save the results."""

import argparse
import contextlib
import errno
import glob
import os
import sys
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from paceline import transform
from paceline._util.files import (
    check_distinct,
    check_local,
    check_output,
    is_address,
    is_stream,
    saved_together,
)
from paceline._util.python_object_digest import file_digest
from paceline.analysis.frames_by_table import times_of
from paceline.analysis.results import check_ending, check_figure_ending, further_results
from paceline.analysis.saved_table_format import CALL, COMMAND, FOLDER, INPUT, METADATA
from paceline.analysis.table import rounding_of
from paceline.checkpoint import Checkpoint
from paceline.cli.command_line import in_options
from paceline.cli.options import (
    Bound,
    DefaultSelection,
    figure_options,
    given_arguments,
    hdf5_options,
    print_json,
)
from paceline.cli.print_results import (
    STDOUT,
    files_of,
    json_of_battery,
    json_of_frames,
    json_of_results,
    json_of_timings,
    say,
    say_battery,
    say_results,
    say_update,
    show_table,
)
from paceline.contract.analysis_declaration import ON_STRUCTURE
from paceline.contract.figure_options import OF_ALL, FigureOptions
from paceline.contract.source import FrameInterval
from paceline.errors import SelectionError, UnsupportedError, kept_warnings, warn, with_hint
from paceline.performance.figure_style_and_elements import check_style
from paceline.performance.number_format import many
from paceline.trajectory.growth import growable, wait_for_frame, wait_for_reference
from paceline.trajectory.write_stream_to_file import growing_format
from paceline.transform.apply_transforms import check_positions
from paceline.transform.find_ligands import COMPLEXES, describe_complexes

if TYPE_CHECKING:
    from paceline.analysis.base import AnalysisBase
    from paceline.analysis.battery import Battery
    from paceline.analysis.replicas import Replicas
    from paceline.analysis.results import Results
    from paceline.analysis.stop_conditions import StopConditions
    from paceline.cli.universe_with_named_groups import GroupUniverse
    from paceline.contract.analysis import Analysis
    from paceline.contract.system_interface import Frames
    from paceline.contract.transform_interface import Transform
    from paceline.live_runner import LiveOptions, Update
    from paceline.timing import Timings

#: Filename extensions of files that contain several structures.
STRUCTURES = (".pdb", ".gro", ".xyz")
#: Filename extensions with which a further table is saved as a table; others are figures.
FURTHER = (".csv", ".tsv")
#: Maximum number of left-out frames that are printed, one per line.
MOST_LEFT_OUT = 20
#: Arguments that `further_inputs` ignores: outputs, and inputs that results record elsewhere.
NO_INPUTS = (
    *("output", "plot", "structures", "report", "checkpoint", "tee", "cache", "rmsd", "folder"),
    *("topology", "trajectory", "files", "group", "energies", "command_line", "form"),
)
#: Minimum time between two messages about a trajectory that grows, s.
QUIET_SECONDS = 10.0


def open_universe(args: argparse.Namespace) -> "GroupUniverse":
    """Open the Universe of a command, after checking that its output files can be written."""
    structures = args.structures
    further = further_files(args)
    outputs = args.output, args.plot, structures, args.report, args.checkpoint, args.tee
    check_distinct(*outputs, *further.values())
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
    """Return the files of the requested further tables, by the names of the tables."""
    paths = {name: vars(args)[name] for name in args.further}
    return {name: path for name, path in paths.items() if path is not None}


def check_outputs(args: argparse.Namespace, table: Path | None, files: Sequence[str] = ()) -> None:
    """Raise an error if table or figure cannot be written.

    `files` are further filename extensions that are allowed for the table.
    """
    if args.json and table == STDOUT:
        raise UnsupportedError(
            "-o - and --json both print to standard output: give -o the name of a file"
        )
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
    """Open topology and trajectory, with the groups of the index file.

    `options` are keywords of the Universe.
    """
    from paceline.cli.universe_with_named_groups import (
        GroupUniverse,  # imported here, because conversions of trajectories do not need it
    )

    if vars(args).get("guess_bonds"):
        options["guess_bonds"] = True
    for path in (args.topology, *args.trajectory):
        if not (is_stream(path) or is_address(path)):
            check_local(path)  # needed here, because a battery or a table may name the files
        # Check that files exist, because MDAnalysis reports a missing file with an unknown
        # extension as a file of unknown format.
        if is_stream(path):
            args.follow = True
            options |= {"tee": args.tee, "timeout": args.idle}
        elif not (is_address(path) or glob.has_magic(str(path)) or os.path.exists(path)):
            if path in args.trajectory and vars(args).get("follow"):
                continue
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    if "follow" in args:
        _check_following(args)
    if vars(args).get("follow") and args.stop_when is not None and args.analysis_names:
        from paceline.analysis.stop_conditions import check_names

        check_names(args.stop_when, args.analysis_names)
    if vars(args).get("follow") and args.trajectory and not is_stream(args.trajectory[-1]):
        wait_for_frame(args.trajectory[-1], args.idle, say)
    options |= chain_options(args)
    # Connect to a stream later, except if bonds are guessed, because guessing needs positions.
    late = [*map(is_stream, args.trajectory)] == [True] and "guess_bonds" not in options
    if late:
        of_topology = {key: options[key] for key in ("external", "group") if key in options}
        universe = GroupUniverse(args.topology, **of_topology)
        universe.connect_later(args.trajectory[0], **options)
    else:
        universe = GroupUniverse(args.topology, *args.trajectory, **options)
    if not late and args.dt is not None and type(universe.trajectory).__name__ == "DumpReader":
        raise UnsupportedError(
            f"{universe.trajectory.filename}: MDAnalysis reads this file and uses --dt as the "
            "time between steps; unpack the file, so that paceline can read it"
        )
    with kept_warnings(universe.opening_warnings):
        use_index_file(args, universe)
        choose_defaults(args, universe)
    return universe


def choose_defaults(args: argparse.Namespace, universe: "GroupUniverse") -> None:
    """Replace each default selection without atoms by the next one with atoms, and warn of it."""
    for name in ("select", "fit", "center"):
        default = vars(args).get(name)
        if not isinstance(default, DefaultSelection):
            continue
        found = next((text for text in default.alternatives if _finds(universe, text)), None)
        if found is None:
            continue  # `select_nonempty` raises the error
        if found != default:
            atoms = many(len(universe.select_atoms(found)), "atom")
            warn(
                f"--{name}: the default, '{default}', finds no atoms; '{found}' is used instead, "
                f"{atoms}: --{name} sets another selection"
            )
        vars(args)[name] = str(found)


def _finds(universe: "GroupUniverse", text: str) -> bool:
    """Check whether a selection finds atoms."""
    try:
        return len(universe.select_atoms(text)) > 0
    except (AttributeError, SelectionError):  # topology without names, or unknown group
        return False


def use_index_file(args: argparse.Namespace, universe: "GroupUniverse") -> None:
    """Use the groups of the index file, if the command line has one."""
    if args.index is not None:
        from paceline.cli.universe_with_named_groups import read_index_file

        universe.use_index_file(read_index_file(args.index, len(universe.atoms)))


def reference_of(universe: "GroupUniverse", path: str) -> "GroupUniverse":
    """Open a reference structure, with the groups in the .ndx file of `universe`."""
    reference = type(universe)(path)
    reference.use_index_file(universe.index_file)
    return reference


def reference_and_frame(universe: "GroupUniverse", ref: str) -> tuple["GroupUniverse | None", int]:
    """Return the reference that `ref` names.

    For a structure file: its Universe and 0. For a frame of the trajectory: None and its number.
    """
    is_frame = ref.lstrip("-").isdigit()
    return (None, int(ref)) if is_frame else (reference_of(universe, ref), 0)


def reference_at(universe: "GroupUniverse", ref: str, idle: float | None = None) -> "GroupUniverse":
    """Open a reference: a copy of the Universe at a frame, or a structure file.

    With `idle`, the trajectory may still grow: wait for the frame, until no frame has come for
    `idle` seconds.
    """
    reference, frame = reference_and_frame(universe, ref)
    if reference is not None:
        return reference
    if is_stream(universe.trajectory.filename):
        if frame:
            raise UnsupportedError(
                f"{universe.trajectory.filename}: --ref {frame}: of a stream, only the first frame "
                "can be the reference of this analysis: use --ref 0, or --ref FILE"
            )
        return universe  # it is at frame 0, and a stream cannot be copied
    if idle is not None:
        wait_for_reference(growable(universe.trajectory), frame, idle)
    n_frames = universe.trajectory.n_frames
    if not -n_frames <= frame < n_frames:
        raise IndexError(f"reference frame {frame}: the trajectory has {n_frames} frames")
    reference = universe.copy()
    reference.use_index_file(universe.index_file)
    reference.trajectory[frame]
    return reference


def chain_options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the keywords of a Universe that describe how trajectories are read."""
    # Pass only options that are set: MDAnalysis's readers accept `continuous` only for chains of
    # files, and no HDF5 keywords.
    continuous = {"continuous": True} if args.continuous else {}
    dt = {} if args.dt is None else {"dt": FrameInterval(args.dt)}
    cache = given_arguments(args, "cache", "cache_size")
    return {**continuous, **dt, **cache, **hdf5_options(args)}


def select_nonempty(universe: Any, text: str, *, updating: bool = False) -> Any:
    """Select at least one atom; raise `SelectionError` if that is impossible.

    With `updating`, atoms are selected again in each frame, and the selection may be empty.
    """
    try:
        atoms = universe.select_atoms(text, updating=updating)
    except AttributeError as error:
        if "coordinates" in str(error):  # a selection by distance needs coordinates
            check_positions(universe.trajectory, repr(text))
        # MDAnalysis raises this if, for example, the topology has no residue names.
        lacking = SelectionError(f"{text!r} needs an attribute that the topology lacks ({error})")
        hint = "use another --select, such as all, or another topology"
        raise with_hint(lacking, hint, ": ") from None
    if len(atoms) == 0 and not updating:
        none = SelectionError(f"no atoms match {str(text)!r}")
        is_default = isinstance(text, DefaultSelection)
        raise with_hint(none, "set --select", ", the default: ") if is_default else none
    return atoms


def transforms_of(args: argparse.Namespace) -> "list[Transform]":
    """Make the requested transformations, in the order in which they are applied."""
    chosen: list[Transform] = []
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
        # Of the commands that call this function, only those of batteries have --no-unwrap; if it
        # is omitted, they unwrap.
        unwraps |= not getattr(args, "no_unwrap", True)
        together = together if unwraps else None
        chosen.append(transform.wrap(compound="fragments", together=together))
    if args.fit is not None:
        chosen.append(transform.fit(args.fit))
    return chosen


def frames_between(trajectory: "Frames", begin: Bound, end: Bound) -> np.ndarray:
    """Return the frame numbers between two bounds, in increasing order.

    An end given as a frame number is excluded; an end given as a time is included. Raises
    `ValueError` if the first frame does not exist, if no frame has a time between the bounds, or if
    the bounds are in the wrong order.
    """
    first, earliest = _split(begin, -np.inf)
    last, latest = _split(end, np.inf)
    if first is not None and first >= trajectory.n_frames:
        raise ValueError(
            f"--begin {first}: frame numbers are 0 to {trajectory.n_frames - 1}; a time needs a "
            f"unit: --begin {first}ps"
        )
    numbers = np.arange(trajectory.n_frames)[first:last]
    if np.isinf([earliest, latest]).all():
        return numbers
    if latest < earliest:
        raise ValueError(f"the last time, {latest:g} ps, is before the first, {earliest:g} ps")
    return numbers[_between(times_of(trajectory)[numbers], earliest, latest)]


def frames_of(trajectory: "Frames", args: argparse.Namespace) -> np.ndarray:
    """Return the frame numbers that the arguments select, in increasing order."""
    numbers = frames_between(trajectory, args.begin, args.end)
    if args.every is None:
        return numbers[:: args.step]
    return numbers[_at_interval(times_of(trajectory), numbers, args.every)]


def _at_interval(times: np.ndarray, numbers: np.ndarray, every: float) -> np.ndarray:
    """Make a mask of the frames whose time after the first time is a multiple of `every` (ps).

    As in GROMACS, the first time is that of the trajectory's first frame. If this frame is not
    analysed, the first time is 0 ps. Raises `ValueError` if no frame remains.
    """
    origin = times[0] if len(numbers) and numbers[0] == 0 else 0.0
    chosen = times[numbers] - origin
    rounding = rounding_of(times, [every])
    slack = np.minimum(rounding[numbers] + (rounding[0] if origin else 0.0), every / 10)
    apart = np.abs(chosen - every * np.round(chosen / every)) <= slack
    if len(numbers) and not apart.any():
        raise ValueError(f"no frame has a time that is a multiple of {every:g} ps (-dt)")
    return apart


def _split(bound: Bound, no_time: float) -> tuple[int | None, float]:
    """Split a bound into a frame number and a time in ps.

    A bound sets only one of them: the frame is None for a time, and the time is `no_time` for a
    frame.
    """
    if bound is None:
        return None, no_time
    kind, value = bound
    return (int(value), no_time) if kind == "frame" else (None, value)


def _between(times: np.ndarray, earliest: float, latest: float) -> np.ndarray:
    """Mask of the times (ps) from `earliest` to `latest`, both included."""
    known = times[np.isfinite(times)]
    if len(known) == 0:
        raise ValueError("no frame lies between the requested times: no frame has a time")
    slack = rounding_of(times, [earliest, latest])
    inside = (times >= earliest - slack) & (times <= latest + slack)
    if not inside.any():
        raise ValueError(
            "no frame lies between the requested times: times of the trajectory are "
            f"{known.min():g} to {known.max():g} ps"
        )
    return inside


def _checkpoint(args: argparse.Namespace) -> contextlib.AbstractContextManager[Checkpoint | None]:
    """Open the checkpoint of --checkpoint; None without this option.

    The command deletes the checkpoint only after the results are saved, because saving may fail.
    """
    return contextlib.nullcontext() if args.checkpoint is None else Checkpoint(args.checkpoint)


def run_and_report(args: argparse.Namespace, analysis: "AnalysisBase") -> None:
    """Run an analysis and write the requested results."""
    if args.output is not None and args.output.suffix.lower() in ON_STRUCTURE:
        from paceline.analysis.structure_writer import check_structure

        check_structure(args.output.with_suffix(".pdb"), analysis.atomgroup)
    error: Exception | None = None
    with contextlib.ExitStack() as serving, _checkpoint(args) as kept:
        if args.follow:
            conditions = _stop_conditions(args, analysis)
            outputs = (args.output, args.plot, args.structures, *further_files(args).values())
            serving.enter_context(_server(args, [path for path in outputs if path]))
            error = follow(
                args,
                analysis,
                conditions,
                lambda _: _write_results(args, analysis, shows_table=False),
                max_memory=args.max_memory,
            )
        else:
            run_analysis(args, analysis, checkpoint=kept, max_memory=args.max_memory)
        finish = kept.finish if kept else None
        further, failed, left_out = _write_results(args, analysis, finish)
    paths = (args.output, args.plot, args.structures, *further, args.report)
    say_results(analysis.results, *paths, left_out=left_out)
    if args.json:
        print_analysis(args.command, analysis, *paths)
    if error is not None:
        raise error
    if failed is not None:
        raise UnsupportedError(f"{failed}; all other results are written") from failed


def print_analysis(command: str, analysis: "AnalysisBase", *paths: Path | None) -> None:
    """Print the results of an analysis as JSON; `paths` are the written files."""
    print_json(
        command,
        **json_of_results(analysis.results),
        left_out_frames=json_of_frames(analysis.damaged),
        timings=json_of_timings(analysis.timings),
        written=files_of(*paths),
    )


def _write_results(
    args: argparse.Namespace,
    analysis: "AnalysisBase",
    finish: Callable[[], None] | None = None,
    *,
    shows_table: bool = True,
) -> "tuple[dict[Path, Results], ValueError | None, str]":
    """Write all requested files.

    Returns the further results by file; the error of a correlation that could not be computed, or
    None; and a note about the part of the table that is not shown. With `shows_table`, a table
    without a file is printed. `finish` is called before the written files get their final names.
    """
    further, failed = _further(args, analysis)
    with saved_together(finish):
        for path, results in further.items():
            if path.suffix.lower() in FURTHER:
                results.save(path, overwrite=args.overwrite)
            else:
                options = _common_figure_options(args) | {"title": args.title}
                results.save_figure(path, overwrite=args.overwrite, **options)
        left_out = save_results(args, analysis.results, shows_table=shows_table)
        save_report(args, analysis.timings)
    return further, failed, left_out


def _common_figure_options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the figure options that all kinds of figures have."""
    return {name: vars(args)[name] for name in OF_ALL}


def _further(
    args: argparse.Namespace, analysis: Any
) -> tuple[dict[Path, "Results"], ValueError | None]:
    """Make the requested further results; also return the error of the correlation, if any.

    If the correlation turns out to be impossible at the end, all other results are still saved.
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


def check_battery_options(
    args: argparse.Namespace, names: Iterable[str], *, grows: bool, replicas: bool
) -> None:
    """Raise an error for options and files that prevent a battery, before a system is opened.

    `names` are names of the battery's analyses, as far as they are known. `grows` is True for a
    trajectory that is followed, or a stream.
    """
    from paceline.analysis.battery import COMMON_FILES

    check_style(args.style)
    if args.output.exists() and not args.output.is_dir():
        raise UnsupportedError(f"{args.output} is a file: -o must name a folder for the results")
    files = [*COMMON_FILES, *([] if replicas else (f"{name}.csv" for name in names))]
    _check_files(args, [args.output / name for name in files])
    check_report(args)
    if args.no_unwrap and (args.unwrap or args.together is not None):
        raise UnsupportedError("--no-unwrap contradicts --unwrap and --together: use one of them")
    if grows and replicas:
        raise UnsupportedError("--follow needs a single trajectory, not replicas")
    if args.equilibrated:
        if grows:
            raise UnsupportedError("--equilibrated needs a complete trajectory, not one that grows")
        if args.checkpoint is not None:
            raise UnsupportedError("--equilibrated runs twice, and has no --checkpoint")


def _check_files(args: argparse.Namespace, files: Sequence[Path]) -> None:
    """Raise an error if a file of a battery cannot be written, or is also another output."""
    check_distinct(args.report, args.checkpoint, args.tee, *files)
    crate = [args.output / METADATA] if args.crate else []
    for path in (*files, *crate):
        if path.parent.exists():
            check_output(path, overwrite=args.overwrite)


def run_battery_of(args: argparse.Namespace, battery: "Battery | Replicas") -> None:
    """Run a battery and write all results into the requested folder."""
    from paceline.analysis.battery import Battery, check_writes_nothing
    from paceline.analysis.crate import write_crate

    if args.only_tables:
        check_writes_nothing(battery.analyses.values())
    outputs = battery.outputs(args.output)
    _check_files(args, outputs)
    options = {"max_memory": args.max_memory, "unwrap": not args.no_unwrap}
    if args.equilibrated:
        options["equilibrated"] = True
    error: Exception | None = None
    with contextlib.ExitStack() as serving, _checkpoint(args) as kept:
        if args.follow:
            assert isinstance(battery, Battery), "replicas are not followed"
            conditions = _stop_conditions(args, battery)
            serving.enter_context(_server(args, outputs))
            error = follow(
                args,
                battery,
                conditions,
                lambda update: _write_page(args, battery, update, conditions),
                **options,
            )
        else:
            run_analysis(args, battery, is_battery=True, checkpoint=kept, **options)
        if args.only_tables:
            battery.save_tables(args.output)
            return
        with saved_together(kept.finish if kept else None):
            battery.save(args.output, overwrite=args.overwrite, **_common_figure_options(args))
            save_report(args, battery.timings)
    made = [path for path in outputs if path.exists()]
    if args.crate:
        try:
            write_crate(args.output, outputs, overwrite=args.overwrite)
            made.append(args.output / METADATA)
        except Exception as stop:  # first report the results, which are written already
            error = error or stop
    say_battery(battery, args.report)
    page = args.output / "index.html"
    if args.json:
        facts = {"folder": args.output, "page": page, **json_of_battery(battery)}
        print_json(args.command, **facts, written=files_of(*made, args.report))
    else:
        print(page)
    if error is not None:
        raise error


def run_analysis(
    args: argparse.Namespace,
    analysis: Any,
    *,
    is_battery: bool = False,
    most_frames: int | None = None,
    frames: np.ndarray | None = None,
    **options: object,
) -> None:
    """Run an analysis or a battery over the requested frames, and print the left-out frames.

    `is_battery` is True for a battery and for its replicas. `frames` replaces the frames that the
    arguments select. `options` are further keywords of `paceline.run`.
    """
    chosen: dict[str, object] = {**_run_options(args)}
    if frames is not None or most_frames is not None:
        chosen["frames"] = (
            frames
            if frames is not None
            else (lambda trajectory: frames_of(trajectory, args)[:most_frames])
        )
    analysis.run(**chosen, **options)
    _say_run(args, analysis, analysis.analyses.values() if is_battery else [analysis])


def _run_options(args: argparse.Namespace) -> "LiveOptions":
    """Return the options of `paceline.run` that all commands pass to it."""
    return {
        "backend": args.backend,
        "n_workers": args.n_workers,
        "frames": lambda trajectory: frames_of(trajectory, args),
        "transforms": transforms_of(args),
        "on_error": args.on_error,
    }


def _check_following(args: argparse.Namespace) -> None:
    """Raise an error for options that need --follow or --tee, or that --follow does not support.

    No connection to a stream is opened.
    """
    for flag, value in {"--serve": args.serve, "--stop-when": args.stop_when}.items():
        if value is not None and not args.follow:
            raise UnsupportedError(f"{flag} applies to a trajectory that grows: add --follow")
    if args.follow and not args.idle:
        raise UnsupportedError("--idle: expected a time above 0")
    if args.follow and args.checkpoint is not None:
        raise UnsupportedError(
            "results of a trajectory that grows stay in memory: omit --checkpoint"
        )
    if args.tee is not None and not any(map(is_stream, args.trajectory)):
        raise UnsupportedError("--tee keeps the frames of a stream, imd://HOST:PORT, in a file")
    for flag, value in {"--tee-atoms": args.tee_atoms, "--tee-step": args.tee_step}.items():
        if value is not None and args.tee is None:
            raise UnsupportedError(f"{flag} chooses what a file contains: name the file, --tee")
    if args.tee is not None:
        growing_format(args.tee)
        check_output(args.tee, overwrite=args.overwrite)


def _server(
    args: argparse.Namespace, outputs: Sequence[Path]
) -> "contextlib.AbstractContextManager[object]":
    """Open the server of --serve, and print its address; without --serve, do nothing."""
    if args.serve is None:
        return contextlib.nullcontext()
    from paceline.cli.results_server import ResultsServer

    files = {path.name: path for path in outputs if path != STDOUT}
    if not files:
        raise UnsupportedError("--serve shows files: name them with -o or --plot")
    title = ", ".join(map(str, args.trajectory)) or str(args.topology)
    host, port = args.serve
    server = ResultsServer(host, port, files, title=title, every=args.update_seconds)
    say(f"results are shown at {server.address} until this command ends")
    return server


def _write_page(
    args: argparse.Namespace,
    battery: "Battery",
    update: "Update",
    conditions: "StopConditions | None",
) -> None:
    """Write the results of a battery at an update; the page also shows the state of the run."""
    from paceline.performance.analysis_results_page import PageState

    during = battery.during()
    later = [name for name in battery.every if name not in during.every]
    missing = conditions.missing(update) if conditions and not update.ended else ""
    text = f"{update}; not known yet: {missing}" if missing else f"{update}"
    during.save(
        args.output,
        overwrite=args.overwrite,
        state=PageState(text, args.update_seconds, later, bool(update.ended)),
        **_common_figure_options(args),
    )


def follow(
    args: argparse.Namespace,
    analysis: "AnalysisBase | Battery",
    conditions: "StopConditions | None",
    write: "Callable[[Update], object]",
    **options: "Unpack[LiveOptions]",
) -> Exception | None:
    """Run an analysis or a battery while its trajectory grows.

    `write` writes the results of an update, and is called for each update except the last one.
    Returns the error after which no more frames were read, or None. The caller raises this error
    after it has written the last results.
    """
    from paceline import runner
    from paceline.analysis.battery import Battery
    from paceline.live_runner import Update

    reported = time.monotonic() - QUIET_SECONDS
    chosen: LiveOptions = {**_run_options(args), **options}
    work = analysis if isinstance(analysis, Battery) else runner.ListedAnalyses(analysis)
    updates = runner.follow(
        work,
        Update,
        every=args.update_seconds,
        idle=args.idle,
        tee=args.tee,
        tee_atoms=args.tee_atoms,
        tee_step=args.tee_step,
        overwrite=args.overwrite,
        stop_when=conditions,
        enough=lambda update: _end_of_frames(args, update),
        **chosen,  # type: ignore[misc]  # a battery also has unwrap
    )
    update = next(updates)
    said_end = False
    while True:
        try:
            # The whole loop is in this block, because Ctrl-C may come between two updates.
            while not update.is_last:
                said_end = update.ended is not None
                if said_end or time.monotonic() - reported >= QUIET_SECONDS:
                    say_update(update)
                    reported = time.monotonic()
                _note_command(args, analysis, update.analyses.values())
                if update.analyses:
                    try:
                        write(update)
                    finally:  # later updates replace these files, also after Ctrl-C during this one
                        args.overwrite = True
                update = next(updates)
            break
        except KeyboardInterrupt:
            # Ctrl-C must end the trajectory also while results are written, because writing takes
            # much of the time.
            update = updates.throw(KeyboardInterrupt())
    if not said_end:
        say_update(update)
    _say_run(args, analysis, update.analyses.values())
    return update.error


def _stop_conditions(
    args: argparse.Namespace, analysis: "AnalysisBase | Battery"
) -> "StopConditions | None":
    """Return the conditions of --stop-when; None without them."""
    if args.stop_when is None:
        return None
    from paceline.analysis.battery import Battery
    from paceline.analysis.stop_conditions import StopConditions

    if isinstance(analysis, Battery):
        return StopConditions(args.stop_when, analysis.every)
    name = type(analysis).__name__
    aliases = dict.fromkeys(args.analysis_names, name)
    return StopConditions(args.stop_when, {name: analysis}, aliases)


def _end_of_frames(args: argparse.Namespace, update: "Update") -> str | None:
    """Return the reason to stop if the trajectory has passed --end; None if it has not."""
    last, latest = _split(args.end, np.inf)
    trajectory = update.trajectory
    if last is not None and last >= 0 and trajectory.n_frames >= last:
        return f"--end {last} is reached"
    if np.isfinite(latest) and times_of(trajectory)[-1] >= latest:
        return f"--end {latest:g} ps is reached"
    return None


def _say_run(
    args: argparse.Namespace,
    analysis: "AnalysisBase | Battery",
    analyses: "Collection[Analysis]",
) -> None:
    """Record the command, and print the run's notes, left-out frames and timings."""
    _note_command(args, analysis, analyses)
    notes = (one.results.provenance.get("bonds") for one in analyses)
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


def _note_command(
    args: argparse.Namespace,
    analysis: "AnalysisBase | Battery",
    analyses: "Collection[Analysis]",
) -> None:
    """Record the command with the results of analyses, and with the energies of a battery."""
    for one in analyses:
        note_command(args, one.results)
    energies = vars(analysis).get("energies")
    if energies is not None:
        note_command(args, energies.results)


def note_command(args: argparse.Namespace, results: "Results") -> None:
    """Record with results the command, its folder, and digests of the files that it read."""
    facts = results.provenance
    facts.pop(CALL, None)  # the command replaces the call of the analysis in Python
    facts |= {COMMAND: args.command_line, FOLDER: args.folder or _current_folder()}
    for name in further_inputs(args):
        if content := file_digest(name):
            facts[f"{INPUT}{name}"] = content


def _current_folder() -> str:
    """Path of the current folder; empty if it was deleted."""
    try:
        return os.getcwd()
    except OSError:
        return ""


def further_inputs(args: argparse.Namespace) -> list[str]:
    """Files that the arguments name, except outputs, topology and trajectories."""
    names = vars(args).keys() - {*NO_INPUTS, *args.further}
    values: list[object] = [vars(args)[name] for name in sorted(names)]
    found = []
    for value in values:
        if isinstance(value, list | tuple):
            values.extend(value)
        elif isinstance(value, str | Path) and not isinstance(value, DefaultSelection):
            found += [str(value)] if os.path.isfile(value) else []
    return [*dict.fromkeys(found)]


def _say_complexes(analyses: "Collection[Analysis]") -> None:
    """Print the molecules that `unwrap` kept side by side because of contacts."""
    some = [
        one
        for one in analyses
        if f"together={COMPLEXES}" in one.results.provenance.get("transforms", "")
    ]
    found = describe_complexes(some[0].atomgroup.universe) if some else ""
    if found:
        print(
            f"paceline: unwrap kept side by side, by their contacts in the first frame: {found} "
            "(use --together for other molecules)",
            file=sys.stderr,
        )


def save_results(args: argparse.Namespace, results: "Results", *, shows_table: bool = True) -> str:
    """Write results to the requested files; return a note about table parts that are not shown."""
    if args.plot is not None:
        save_figure(args, results)
    if args.structures is not None:
        results.save(args.structures, overwrite=args.overwrite)
    if args.output not in (None, STDOUT):
        results.save(args.output, overwrite=args.overwrite)
        return ""
    if args.json or not shows_table:
        return ""
    with contextlib.suppress(BrokenPipeError):  # the reader of the pipe has stopped reading
        if args.output is None and sys.stdout.isatty():
            return "" if args.plot is not None else show_table(results)
        results.write_table(sys.stdout, delimiter="\t")
        sys.stdout.flush()
    return ""


def save_figure(args: argparse.Namespace, results: "Results") -> None:
    """Draw the figure of --plot."""
    results.save_figure(args.plot, overwrite=args.overwrite, **vars(FigureOptions.of(args)))


def check_report(args: argparse.Namespace) -> None:
    """Raise an error if the report of --report cannot be written."""
    if args.report is None:
        return
    from paceline.performance.report import check_report_ending

    if not _is_table(args.report):
        check_report_ending(args.report, "timings as .csv")
    check_output(args.report, overwrite=args.overwrite)


def save_report(args: argparse.Namespace, timings: "Timings") -> None:
    """Write the report of --report; do nothing without this option."""
    if args.report is None:
        return
    save = timings.to_csv if _is_table(args.report) else timings.report
    save(args.report, overwrite=args.overwrite)


def _is_table(path: Path) -> bool:
    return path.suffix.lower() == ".csv"
