"""Arguments that several commands share, and how their values are read."""

import argparse
import contextlib
import json
import math
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, Self

from paceline._core import __version__
from paceline._util.choices import BACKENDS, ON_ERROR, SOLUTE, TRACE
from paceline._util.files import parse_size
from paceline.cli.parser import CommandParser, FileForm, add_file_arguments
from paceline.contract.figure_options import OPTIONS, FigureOptions, checked_size, flag_of
from paceline.contract.time_units import TIME_UNITS
from paceline.errors import UnsupportedError

#: Seconds in a unit of time.
SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}

#: Endings of tables.
TABLE_ENDINGS = ".csv, .tsv, .npz or .xvg"

#: Help for --continuous.
CONTINUOUS = "order trajectories by time, and leave out frames that a later one repeats"

#: Value of `bound`: ("frame", number) or ("time", picoseconds).
Bound = tuple[str, float] | None


def add_json_argument(section: Any) -> None:
    """Add output as JSON."""
    what = "one JSON document to stdout, as the manual describes"
    section.add_argument("--json", action="store_true", help=what)


def print_json(command: str, **values: object) -> None:
    """Print the JSON document of a command; numbers that are not finite are null."""
    print(json.dumps(_finite({"command": command, "paceline": __version__, **values}), indent=1))


def _finite(value: object) -> object:
    """Replace what JSON does not have: numbers that are not finite, and scalars of NumPy."""
    if isinstance(value, dict):
        return {str(key): _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, str | int | float | None) else str(value)


def positive(text: str) -> int:
    """Read an integer above 0.

    Examples
    --------
    >>> positive("12")
    12
    """
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected at least 1, found {text}")
    return value


def above_zero(text: str) -> float:
    """Read a finite number above 0.

    Examples
    --------
    >>> above_zero("0.001")
    0.001
    """
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"expected a number above 0, found {text}")
    return value


def size(text: str) -> int:
    """Read a number of bytes.

    Examples
    --------
    >>> size("1.5GB")
    1500000000
    """
    try:
        return parse_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def memory(text: str) -> int:
    """Read a number of bytes with its unit, which may be 0.

    Examples
    --------
    >>> memory("2 KiB"), memory("0")
    (2048, 0)
    """
    return 0 if text.strip() == "0" else size(text)


def seconds(text: str) -> float:
    """Read a time with its unit, as seconds.

    Examples
    --------
    >>> seconds("0.3ms"), seconds("2s")
    (0.0003, 2.0)
    """
    for unit in sorted(SECONDS, key=len, reverse=True):
        if text.endswith(unit):
            try:
                value = float(text.removesuffix(unit)) * SECONDS[unit]
            except ValueError:
                break
            if math.isfinite(value) and value >= 0:
                return value
            break
    raise argparse.ArgumentTypeError(f"expected a time such as 20us, 0.3ms or 2s, found {text!r}")


def duration(text: str) -> float:
    """Read a time with its unit, as picoseconds.

    Examples
    --------
    >>> duration("2fs")
    0.002
    """
    kind, value = bound(text)
    if kind != "time":
        raise argparse.ArgumentTypeError(
            f"expected a time with its unit such as 2ps, found {text}; "
            f"-dt {text} takes only frames so many ps apart"
        )
    return value


def picoseconds(text: str) -> tuple[str, float]:
    """Read a time in ps, or with its unit, as a `bound`.

    Examples
    --------
    >>> picoseconds("100"), picoseconds("2.5ns")
    (('time', 100.0), ('time', 2500.0))
    """
    value: float | None
    try:
        value = float(text)
    except ValueError:
        value = _with_unit(text)
    if value is None or not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"expected a time such as 100 (ps) or 2.5ns, found {text}")
    return "time", value


def interval(text: str) -> float:
    """Read a time between frames, ps."""
    _, value = picoseconds(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"expected a time above 0, found {text}")
    return value


def lag(text: str) -> float:
    """Read a time between frames, ps, which may be 0.

    Examples
    --------
    >>> lag("0"), lag("2.5ns")
    (0.0, 2500.0)
    """
    return picoseconds(text)[1]


def bound(text: str) -> tuple[str, float]:
    """Read a frame number, or a time with its unit.

    Examples
    --------
    >>> bound("100"), bound("2.5ns")
    (('frame', 100), ('time', 2500.0))
    """
    time = _with_unit(text)
    if time is not None:
        return "time", time
    try:
        return "frame", int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"expected a frame number or a time such as 100ps or 2.5ns, found {text!r}"
        ) from None


def _with_unit(text: str) -> float | None:
    """Read a time with its unit, ps; None if it is none."""
    for unit, factor in sorted(TIME_UNITS.items(), key=lambda item: -len(item[0])):
        if text.endswith(unit):
            with contextlib.suppress(ValueError):
                return float(text.removesuffix(unit)) * factor
            return None
    return None


def chunk(text: str) -> str:
    """Check the shape of chunks."""
    from paceline.hdf5.storage_layout import parse_chunk

    return _checked(parse_chunk, text)


def compression(text: str) -> str:
    """Check a way to compress."""
    from paceline.hdf5.storage_layout import parse_compression

    return _checked(parse_compression, text)


def _checked(parse: Callable[[str], object], text: str) -> str:
    try:
        parse(text)
    except UnsupportedError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def given(args: argparse.Namespace, *names: str, **renamed: str) -> dict[str, Any]:
    """Keywords for those of some arguments that were given; renamed ones as keyword=argument.

    Examples
    --------
    >>> given(argparse.Namespace(step=2, begin=None, particles="all"), "begin", group="particles")
    {'group': 'all'}
    """
    there = {**dict(zip(names, names, strict=True)), **renamed}
    found = {name: vars(args)[called] for name, called in there.items()}
    return {name: value for name, value in found.items() if value is not None}


def hdf5_options(args: argparse.Namespace) -> dict[str, Any]:
    """Keywords about HDF5 files that were given."""
    return given(args, "units", "dataset", "external", group="particles")


def layout_options(args: argparse.Namespace) -> dict[str, Any]:
    """Keywords for the layout of an H5MD file; `UnsupportedError` if they contradict each other."""
    if args.compress is not None:
        from paceline.hdf5.storage_layout import check_compressible, parse_compression

        check_compressible(args.chunk == "contiguous", parse_compression(args.compress))
    return given(args, "chunk", "for_", "align", "compress")


def add_analysis_arguments(
    parser: CommandParser, *, select: Sequence[str], files: Sequence[str] = ()
) -> None:
    """Add the arguments of every analysis; `files` are endings of -o beside those of tables."""
    add_system_arguments(parser, select=select)
    add_frame_arguments(parser)
    add_transform_arguments(parser)
    add_output_arguments(parser, files)
    add_worker_arguments(parser)
    add_checkpoint_argument(parser)
    add_memory_argument(parser)


def add_output_arguments(parser: CommandParser, files: Sequence[str] = ()) -> None:
    """Add the files of results."""
    add = parser.section("output").add_argument
    endings = ", ".join((*files, TABLE_ENDINGS))
    add(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help=f"{endings}; - for stdout [a pipe, or the beginning of the table on a terminal]",
    )
    parser.set_defaults(output_files=files)
    add("--plot", type=Path, metavar="FILE", help="draw a figure: .png, .svg, .pdf")
    add("--overwrite", action="store_true", help="replace files that exist")
    add_figure_arguments(parser)


def add_figure_arguments(parser: CommandParser, names: Collection[str] = tuple(OPTIONS)) -> None:
    """Add options of a figure, by default all, as `FigureOptions` declares them."""
    readers = {"float": float, "figure_size": figure_size}
    for name, default in vars(FigureOptions()).items():
        if name not in names:
            continue
        given = {"default": default or None, **OPTIONS[name]}
        given.pop("flag", None)
        if "type" in given:
            given["type"] = readers[given["type"]]
        parser.section("figure").add_argument(flag_of(name), dest=name, **given)


def figure_size(text: str) -> tuple[float, float, str]:
    """Read the size of a figure.

    Examples
    --------
    >>> figure_size("8x6cm")
    (8.0, 6.0, 'cm')
    """
    try:
        return checked_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error).removeprefix("figsize ")) from None


def figure_options(args: argparse.Namespace, *figures: Path | None) -> FigureOptions:
    """Options of the figure that are given; `UnsupportedError` where there are no figures."""
    options = FigureOptions.of(args)
    if options.given and not any(figures):
        raise UnsupportedError(f"{flag_of(options.given[0])} is of a figure: give --plot")
    return options


def add_checkpoint_argument(parser: CommandParser) -> None:
    """Add the checkpoint."""
    parser.section("workers").add_argument(
        "--checkpoint",
        type=Path,
        metavar="FILE",
        help="save progress in FILE until the end; the same command resumes from it "
        "after it was killed",
    )


def add_system_arguments(
    parser: CommandParser, *, select: Sequence[str], alone: bool = True
) -> None:
    """Add topology, trajectory and atoms; if `alone`, a structure may be the trajectory, too."""
    form = FileForm(topology="required", alone=alone)
    add_file_arguments(parser, form, formats="trajectory")
    add_selection_arguments(parser, select=select)


class DefaultSelection(str):
    """First of several selections, which stands for the first that finds atoms."""

    alternatives: tuple[str, ...]

    def __new__(cls, alternatives: Sequence[str]) -> Self:
        """Make one of selections in the order in which they are tried."""
        made = super().__new__(cls, alternatives[0])
        made.alternatives = tuple(alternatives)
        return made

    @property
    def shown(self) -> str:
        """Selections in the order in which they are tried, for help."""
        return ", else ".join(self.alternatives)


def add_selection_arguments(parser: CommandParser, *, select: Sequence[str]) -> None:
    """Add the choice of atoms."""
    add = parser.section("atoms").add_argument
    default = DefaultSelection(select) if select else None
    add(
        "--select",
        default=None if default == "all" else default,
        required=not select,
        metavar="TEXT",
        help="atoms, in MDAnalysis's words, or the name of a group, such as Backbone"
        + ("" if default is None else f" [{default.shown}]"),
    )
    add_index_argument(parser)


def add_index_argument(parser: CommandParser) -> None:
    """Add the index file."""
    parser.section("atoms").add_argument(
        "-n",
        "--index",
        metavar="FILE",
        help="index file of GROMACS: its groups, by name or number, in place of the default ones",
    )


def add_bound_arguments(section: Any) -> None:
    """Add the first and the last frame, or their times."""
    begin = section.add_mutually_exclusive_group()
    bounds = "a frame number, or a time with its unit, such as 100ps or 2.5ns"
    begin.add_argument("--begin", "--start", type=bound, metavar="T", help=f"first frame: {bounds}")
    gromacs = "as in GROMACS: ps, or with a unit"
    begin.add_argument(
        "-b", dest="begin", type=picoseconds, metavar="TIME", help=f"first time, {gromacs}"
    )
    end = section.add_mutually_exclusive_group()
    end.add_argument(
        "--end",
        "--stop",
        type=bound,
        metavar="T",
        help="end: a frame number, itself left out as in a Python slice, or a time, included",
    )
    end.add_argument("-e", dest="end", type=picoseconds, metavar="TIME", help="last time, included")


def add_frame_arguments(parser: CommandParser) -> None:
    """Add the choice of frames."""
    section = parser.section("frames")
    add_bound_arguments(section)
    every = section.add_mutually_exclusive_group()
    every.add_argument(
        "--step", type=positive, default=1, metavar="N", help="take every Nth frame [%(default)s]"
    )
    every.add_argument(
        "-dt",
        dest="every",
        type=interval,
        metavar="TIME",
        help="only frames at multiples of this time (ps) from the first one",
    )
    add_chain_arguments(parser)


def add_chain_arguments(parser: CommandParser) -> None:
    """Add how trajectories are joined, and what their files lack."""
    add = parser.section("frames").add_argument
    add(
        "--continuous",
        action="store_true",
        help=CONTINUOUS,
    )
    add(
        "--dt",
        type=duration,
        metavar="T",
        help="time between frames, such as 2ps, in place of the times that the files have",
    )
    add_hdf5_arguments(parser)


def add_hdf5_arguments(parser: CommandParser) -> None:
    """Add facts that some HDF5 files lack."""
    add = parser.section("HDF5 files").add_argument
    # Not --group, which is a selection where atoms are superimposed.
    add("--particles", metavar="NAME", help="group of H5MD, where there are several")
    add(
        "--units",
        metavar="TEXT",
        help='units of a file that states none: "nm, ps"; of LAMMPS: real',
    )
    add(
        "--dataset",
        metavar="NAME",
        help="dataset of positions, in an HDF5 file of unknown structure",
    )
    follow = "follow the file's links into other files"
    add("--external", action="store_const", const=True, help=follow)


def add_transform_arguments(parser: CommandParser) -> None:
    """Add transformations of positions."""
    solute, trace = DefaultSelection(SOLUTE), DefaultSelection(TRACE)
    add = parser.section("transformations").add_argument
    add("--unwrap", action="store_true", help="make molecules whole along their bonds")
    add(
        "--guess-bonds",
        action="store_true",
        help="where the topology has no bonds, guess those of other than standard residues by "
        "distance in the first frame",
    )
    add(
        "--together",
        nargs="?",
        const="complexes",
        metavar="TEXT",
        help="keep these molecules side by side, by their contacts in the first frame, or each by "
        "itself (none); --unwrap is then implied [complexes: proteins, nucleic acids and ligands "
        "within 5 Å of each other]",
    )
    add(
        "--nojump",
        action="store_true",
        help="then keep atoms from jumping across the cell, from the first frame of the file on",
    )
    add(
        "--center",
        nargs="?",
        const=solute,
        metavar="TEXT",
        help=f"then move the center of these atoms to that of the cell [{solute.shown}]",
    )
    add(
        "--wrap",
        action="store_true",
        help="then put molecules, and complexes of --unwrap, back into the cell, each as a whole",
    )
    add(
        "--fit",
        nargs="?",
        const=trace,
        metavar="TEXT",
        help=f"then superpose these atoms on those of the first frame [{trace.shown}]",
    )


def add_worker_arguments(parser: CommandParser) -> None:
    """Add the backend, the treatment of damaged frames, and timings."""
    add_backend_arguments(parser)
    add = parser.section("workers").add_argument
    add(
        "--on-error",
        choices=ON_ERROR,
        default="raise",
        help="end at a damaged frame, or leave it out and list it [%(default)s]",
    )
    add = parser.section("output").add_argument
    add(
        "--timings",
        action="store_true",
        help="print how long each worker read, computed and waited",
    )
    add(
        "--report",
        type=Path,
        metavar="FILE",
        help="write where the time went: a page .html, figures .png, .svg, or timings .csv, of "
        "which 'paceline report' makes either later",
    )


def add_backend_arguments(parser: CommandParser) -> None:
    """Add the backend and its number of workers."""
    add = parser.section("workers").add_argument
    add(
        "--backend",
        choices=BACKENDS,
        help=f"where blocks of frames are computed [{BACKENDS[0]}; under mpirun or srun, mpi]",
    )
    meaning = "workers [the CPUs this process may use]; of mpi, threads on each rank [1]"
    add_thread_argument(parser, meaning)


def add_thread_argument(parser: CommandParser, meaning: str) -> None:
    """Add the number of workers, threads or files at a time."""
    parser.section("workers").add_argument("--n-workers", type=positive, metavar="N", help=meaning)


def add_memory_argument(parser: CommandParser) -> None:
    """Add the memory that a run may hold."""
    parser.section("workers").add_argument(
        "--max-memory",
        type=memory,
        metavar="SIZE",
        help="memory of each process for results, and for frames that are needed again, such as "
        "2GiB: what exceeds it is in temporary files [1 GiB for each array of results; frames "
        "while half of the memory is free]",
    )


def add_layout_arguments(parser: CommandParser, *, compress: str = "none") -> None:
    """Add the layout of numbers in an H5MD file."""
    add = parser.section("H5MD files").add_argument
    add(
        "--chunk",
        type=chunk,
        metavar="SHAPE",
        help="frame: one frame a chunk; FRAMESxATOMS, such as 16x1000; contiguous: no chunks; "
        "auto: what suits --for [auto]",
    )
    add(
        "--for",
        dest="for_",
        choices=("frames", "atoms", "both"),
        help="what the file will be read for: whole frames, few atoms through all frames, or both "
        "[frames]",
    )
    add(
        "--align",
        type=size,
        metavar="SIZE",
        help="begin chunks at multiples of it, such as the stripe of a file system: 1MiB",
    )
    add(
        "--compress",
        type=compression,
        metavar="HOW",
        help="none, gzip:1 to gzip:9, zstd:1 to zstd:19 or lz4, which other programs read with "
        "hdf5plugin, or, smaller but read more slowly where few atoms are wanted, shuffle+gzip:4 "
        f"and so on [{compress}]",
    )
