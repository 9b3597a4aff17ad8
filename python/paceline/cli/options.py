"""Options that several commands share, and the functions that convert their values."""

import argparse
import contextlib
import math
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, Self

from paceline._util.option_values_and_selections import BACKENDS, ON_ERROR, SOLUTE, TRACE
from paceline.cli.parser_and_file_arguments import (
    CommandParser,
    FileForm,
    add_file_arguments,
    plain_text,
)
from paceline.contract.figure_options import OPTIONS, FigureOptions, checked_size, flag_of
from paceline.contract.time_units import TIME_UNITS
from paceline.errors import UnsupportedError

#: Seconds in a unit of time.
SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}

#: Filename extensions of saved tables, as a text for the help.
TABLE_ENDINGS = ".csv, .tsv, .npz or .xvg"

#: Help for --continuous.
CONTINUOUS = "order trajectories by time, and leave out frames that a later one repeats"

#: Value of an option for the first or last frame, as `bound` returns it: ("frame", number) or
#: ("time", picoseconds). None if the option is omitted.
Bound = tuple[str, float] | None


def add_table_arguments(parser: CommandParser, columns: str) -> None:
    """Add arguments for saved tables and their columns; `columns` describes the default columns."""
    parser.usage = "%(prog)s [options] TABLE [TABLE ...]"
    parser.section("files").add_argument(
        "tables", nargs="+", type=Path, metavar="TABLE", help=TABLE_ENDINGS
    )
    parser.section("calculation").add_argument(
        "--y",
        action="append",
        metavar="TITLE",
        help="column: its title or the beginning of its title, or the axis label of several "
        f"columns; may be repeated [{columns}]",
    )


def add_json_argument(section: Any, document: str = "Document") -> None:
    """Add the option for output as JSON.

    `document` is the name of the class in `json_output_schema` that declares the output.
    """
    what = "print one JSON document to stdout; 'paceline schema' describes its keys"
    action = section.add_argument("--json", action="store_true", help=what)
    vars(action)["document"] = document


def add_crate_argument(parser: CommandParser) -> None:
    """Add the option --crate, which describes a folder of results for a data repository."""
    parser.section("output").add_argument(
        "--crate",
        action="store_true",
        help="also describe files, inputs, command and versions as an RO-Crate, "
        "ro-crate-metadata.json",
    )


def print_json(command: str, **values: object) -> None:
    """Set the JSON document of a command, which is printed when the command ends."""
    from paceline.cli.json_output import answer_with  # deferred: --help does not need it

    answer_with(command, values)


def positive(text: str) -> int:
    """Convert a text to an integer above 0.

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
    """Convert a text to a finite number above 0.

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
    """Convert a size with its unit to a number of bytes.

    Examples
    --------
    >>> size("1.5GB")
    1500000000
    """
    from paceline._util.arguments import parse_size  # deferred: --help needs no NumPy

    try:
        return parse_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def memory(text: str) -> int:
    """Convert a size with its unit to a number of bytes, which may be 0.

    Examples
    --------
    >>> memory("2 KiB"), memory("0")
    (2048, 0)
    """
    return 0 if text.strip() == "0" else size(text)


def seconds(text: str) -> float:
    """Convert a time with its unit to seconds.

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


def listening(text: str) -> tuple[str, int]:
    """Convert PORT or HOST:PORT to host and port; the default host is 127.0.0.1.

    Examples
    --------
    >>> listening("8000"), listening("0.0.0.0:80"), listening("[::1]:0")
    (('127.0.0.1', 8000), ('0.0.0.0', 80), ('::1', 0))
    """
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if (colon and not host) or not (port.isascii() and port.isdigit() and int(port) < 2**16):
        raise argparse.ArgumentTypeError(
            f"expected a port such as 8000, or HOST:PORT, found {text!r}; ports are 0 to 65535"
        )
    return host or "127.0.0.1", int(port)


def duration(text: str) -> float:
    """Convert a time with its unit to picoseconds.

    Examples
    --------
    >>> duration("2fs")
    0.002
    """
    kind, value = bound(text)
    if kind != "time":
        raise argparse.ArgumentTypeError(
            f"expected a time with its unit such as 2ps, found {text}; "
            f"-dt {text} uses only frames at this interval in ps"
        )
    return value


def picoseconds(text: str) -> tuple[str, float]:
    """Convert a time in ps, or with its unit, to a `bound`.

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
    """Convert a time between frames to ps; it must be above 0."""
    _, value = picoseconds(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"expected a time above 0, found {text}")
    return value


def lag(text: str) -> float:
    """Convert a time between frames to ps; it may be 0.

    Examples
    --------
    >>> lag("0"), lag("2.5ns")
    (0.0, 2500.0)
    """
    return picoseconds(text)[1]


def bound(text: str) -> tuple[str, float]:
    """Convert a frame number, or a time with its unit, to a `bound`.

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
    """Convert a time with its unit to ps; return None for any other text."""
    for unit, factor in sorted(TIME_UNITS.items(), key=lambda item: -len(item[0])):
        if text.endswith(unit):
            with contextlib.suppress(ValueError):
                return float(text.removesuffix(unit)) * factor
            return None
    return None


def chunk(text: str) -> str:
    """Check a text that describes the shape of chunks, and return it."""
    from paceline.hdf5.h5md_storage_layout import parse_chunk

    return _checked_text(parse_chunk, text)


def compression(text: str) -> str:
    """Check a text that describes a compression, and return it."""
    from paceline.hdf5.h5md_storage_layout import parse_compression

    return _checked_text(parse_compression, text)


def _checked_text(parse: Callable[[str], object], text: str) -> str:
    try:
        parse(text)
    except UnsupportedError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def given_arguments(args: argparse.Namespace, *names: str, **renamed: str) -> dict[str, Any]:
    """Return the arguments that are set, as keywords of a function.

    `names` are arguments with the name of their keyword; others are passed as keyword=argument.

    Examples
    --------
    >>> arguments = argparse.Namespace(step=2, begin=None, particles="all")
    >>> given_arguments(arguments, "begin", group="particles")
    {'group': 'all'}
    """
    there = {**dict(zip(names, names, strict=True)), **renamed}
    found = {name: vars(args)[called] for name, called in there.items()}
    return {name: value for name, value in found.items() if value is not None}


def hdf5_options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the options for HDF5 files that the user has set, as keywords of functions."""
    return given_arguments(args, "units", "dataset", "external", group="particles")


def layout_options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the options for the layout of an H5MD file that the user has set, as keywords.

    Raises `UnsupportedError` for a compression without chunks.
    """
    if args.compress is not None:
        from paceline.hdf5.h5md_storage_layout import check_compressible, parse_compression

        check_compressible(args.chunk == "contiguous", parse_compression(args.compress))
    return given_arguments(args, "chunk", "for_", "align", "compress")


def add_analysis_arguments(
    parser: CommandParser, *, select: Sequence[str], files: Sequence[str] = ()
) -> None:
    """Add the options of all analyses; `files` are further filename extensions of -o."""
    add_system_arguments(parser, select=select)
    add_frame_arguments(parser)
    add_transform_arguments(parser)
    add_output_arguments(parser, files)
    add_worker_arguments(parser)
    add_checkpoint_argument(parser)
    add_memory_argument(parser)


def add_output_arguments(
    parser: CommandParser, files: Sequence[str] = (), document: str = "AnalysisDocument"
) -> None:
    """Add the options for output files and JSON.

    `files` are further filename extensions of -o. `document` is the name of the class that declares
    the JSON output, as in `add_json_argument`.
    """
    add = parser.section("output").add_argument
    endings = ", ".join((*files, TABLE_ENDINGS))
    add(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help=f"{endings}; - for stdout [stdout; on a terminal only the first rows of the table]",
    )
    parser.set_defaults(output_files=files)
    add("--plot", type=Path, metavar="FILE", help="draw a figure: .png, .svg, .pdf")
    add("--overwrite", action="store_true", help="replace files that exist")
    add_json_argument(parser.section("output"), document)
    add_figure_arguments(parser)


def add_figure_arguments(parser: CommandParser, names: Collection[str] = tuple(OPTIONS)) -> None:
    """Add figure options as `FigureOptions` declares them, by default all of them."""
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
    """Convert the size of a figure to width, height and unit.

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
    """Return the figure options that are set; raise `UnsupportedError` if there is no figure."""
    options = FigureOptions.of(args)
    if options.given and not any(figures):
        raise UnsupportedError(f"{flag_of(options.given[0])} needs a figure: add --plot")
    return options


def label_tables(options: FigureOptions, paths: Sequence[Path]) -> None:
    """Label the tables of one figure by their files, if there are several; keep given labels."""
    if len(paths) > 1:
        options.label = (*options.label, *short_names(paths)[len(options.label) :])


def short_names(paths: Sequence[Path]) -> list[str]:
    """Name files by their stems, with as many parent folders as are needed for different names.

    Examples
    --------
    >>> short_names([Path("wt/1/rmsd.csv"), Path("wt/2/rmsd.csv")]), short_names([Path("a/b.csv")])
    (['1/rmsd', '2/rmsd'], ['b'])
    """
    parts = [path.absolute().with_suffix("").parts for path in paths]
    for n in range(1, max(map(len, parts)) + 1):
        names = ["/".join(one[-n:]) for one in parts]
        if len({*names}) == len({*parts}):
            break
    return names


def add_checkpoint_argument(parser: CommandParser) -> None:
    """Add the option for a checkpoint, and those for a trajectory that grows."""
    parser.section("workers").add_argument(
        "--checkpoint",
        type=Path,
        metavar="FILE",
        help="save progress in FILE during the run; after an interruption, the same command "
        "resumes from FILE",
    )
    add = parser.section("while the simulation runs").add_argument
    add(
        "--follow",
        action="store_true",
        help="analyse a trajectory that a simulation is writing; write the results again and again "
        "as it grows, until it ends, or Ctrl-C; such as: --follow --every 10s --serve 8000",
    )
    add(
        "--every",
        dest="update_seconds",
        type=seconds,
        default=5.0,
        metavar="TIME",
        help="minimum time between two updates, such as 0.5s or 1min [5s]",
    )
    add(
        "--idle",
        type=seconds,
        default=60.0,
        metavar="TIME",
        help="time without a new frame after which the trajectory is complete; of a stream, "
        "time without a byte after which the simulation is taken to hang [60s]",
    )
    add(
        "--tee",
        type=Path,
        metavar="FILE",
        help="write the frames of a stream, imd://HOST:PORT, to this file: .xtc, .trr, .dcd, .nc "
        "[a temporary TRR file]",
    )
    add(
        "--tee-atoms",
        metavar="TEXT",
        help="write only these atoms to the file of --tee; all atoms and frames are then in a "
        "temporary file, which the analysis reads [all]",
    )
    add(
        "--tee-step",
        type=positive,
        metavar="N",
        help="write only every Nth frame to the file of --tee, as with --tee-atoms [1]",
    )
    add(
        "--serve",
        type=listening,
        metavar="PORT",
        help="show the results in a browser while they are written: 8000, or HOST:PORT; 0 for a "
        "free port [host 127.0.0.1, which other machines cannot reach]",
    )
    add(
        "--stop-when",
        metavar="TEXT",
        help='end when means are known: "rmsd sampled", or "rmsd 0.1" for half the width of the '
        "95 %% interval in the unit of the table; rmsd.COLUMN names one series; 'and' joins "
        "conditions; the simulation of a stream is ended, too",
    )


def add_system_arguments(
    parser: CommandParser, *, select: Sequence[str], alone: bool = True
) -> None:
    """Add the arguments for topology, trajectory and selected atoms.

    With `alone`, a structure needs no trajectory.
    """
    form = FileForm(topology="required", alone=alone)
    add_file_arguments(parser, form, formats="trajectory")
    add_selection_arguments(parser, select=select)


class DefaultSelection(str):
    """Default selection: a list of selections, of which the first one that finds atoms is used."""

    alternatives: tuple[str, ...]

    def __new__(cls, alternatives: Sequence[str]) -> Self:
        """Make a default selection from selections, in the order in which they are tried."""
        made = super().__new__(cls, alternatives[0])
        made.alternatives = tuple(alternatives)
        return made

    @property
    def shown(self) -> str:
        """Text for the help: the selections, in the order in which they are tried."""
        return ", else ".join(self.alternatives)


def add_selection_arguments(parser: CommandParser, *, select: Sequence[str]) -> None:
    """Add the options that select atoms."""
    add = parser.section("atoms").add_argument
    default = DefaultSelection(select) if select else None
    add(
        "--select",
        default=None if default == "all" else default,
        required=not select,
        type=plain_text,
        metavar="TEXT",
        help="atoms: a selection of MDAnalysis, or the name of a group, such as Backbone"
        + ("" if default is None else f" [{default.shown}]"),
    )
    add_index_argument(parser)


def add_index_argument(parser: CommandParser) -> None:
    """Add the option for an index file."""
    parser.section("atoms").add_argument(
        "-n",
        "--index",
        metavar="FILE",
        help="index file of GROMACS, whose groups (by name or number) replace the default groups",
    )


def add_bound_arguments(section: Any) -> None:
    """Add the options for the first and the last frame, or their times."""
    begin = section.add_mutually_exclusive_group()
    bounds = "a frame number, or a time with its unit, such as 100ps or 2.5ns"
    begin.add_argument("--begin", "--start", type=bound, metavar="T", help=f"first frame: {bounds}")
    gromacs = "as in GROMACS: in ps, or with a unit"
    begin.add_argument(
        "-b", dest="begin", type=picoseconds, metavar="TIME", help=f"first time, {gromacs}"
    )
    end = section.add_mutually_exclusive_group()
    end.add_argument(
        "--end",
        "--stop",
        type=bound,
        metavar="T",
        help="end: a frame number, excluded as in a Python slice, or a time, included",
    )
    end.add_argument("-e", dest="end", type=picoseconds, metavar="TIME", help="last time, included")


def add_choice_of_frames(section: argparse._ArgumentGroup) -> None:
    """Add the options for the first and the last frame, and for the frames between them."""
    add_bound_arguments(section)
    every = section.add_mutually_exclusive_group()
    every.add_argument(
        "--step", type=positive, default=1, metavar="N", help="use every Nth frame [%(default)s]"
    )
    every.add_argument(
        "-dt",
        dest="every",
        type=interval,
        metavar="TIME",
        help="use only frames at multiples of this time (ps) after the first frame",
    )


def add_frame_arguments(parser: CommandParser) -> None:
    """Add the options that select frames."""
    add_choice_of_frames(parser.section("frames"))
    add_chain_arguments(parser)


def add_chain_arguments(parser: CommandParser) -> None:
    """Add options for joining trajectories, and for data that their files lack."""
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
        help="time between frames, such as 2ps; it replaces the times in the files",
    )
    add_hdf5_arguments(parser)
    add_cache_arguments(parser)


def add_cache_arguments(parser: CommandParser) -> None:
    """Add options for a cache of blocks of the trajectory files."""
    add = parser.section("workers").add_argument
    add(
        "--cache",
        metavar="FOLDER",
        help="folder on the local disk of each node that keeps blocks of the files for later runs",
    )
    add(
        "--cache-size",
        type=size,
        metavar="SIZE",
        help="maximum size of the cache on each node, such as 50GB [half of the free space]",
    )


def add_hdf5_arguments(parser: CommandParser) -> None:
    """Add options for facts that some HDF5 files lack."""
    add_group_and_units(parser)
    add = parser.section("HDF5 files").add_argument
    add(
        "--dataset",
        type=plain_text,
        metavar="NAME",
        help="dataset of positions, in an HDF5 file of unknown structure",
    )
    follow = "follow links of the file to other files"
    add("--external", action="store_const", const=True, help=follow)


def add_group_and_units(parser: CommandParser) -> None:
    """Add options for the group of particles and the units of an H5MD file."""
    add = parser.section("HDF5 files").add_argument
    # The option is not called --group: in other commands, --group selects atoms.
    add(
        "--particles",
        type=plain_text,
        metavar="NAME",
        help="particles group of an H5MD file with several groups",
    )
    add(
        "--units",
        type=plain_text,
        metavar="TEXT",
        help='units of a file without units: "nm, ps"; for LAMMPS: real',
    )


def add_transform_arguments(parser: CommandParser) -> None:
    """Add the options for transformations of positions."""
    solute, trace = DefaultSelection(SOLUTE), DefaultSelection(TRACE)
    add = parser.section("transformations").add_argument
    add("--unwrap", action="store_true", help="make molecules whole along their bonds")
    add(
        "--guess-bonds",
        action="store_true",
        help="if the topology has no bonds, guess bonds of nonstandard residues by distance in the "
        "first frame",
    )
    add(
        "--together",
        nargs="?",
        const="complexes",
        metavar="TEXT",
        help="keep these molecules together as a complex, by their contacts in the first frame, or "
        "keep none together (none); implies --unwrap [complexes: proteins, nucleic acids and "
        "ligands within 5 Å of each other]",
    )
    add(
        "--nojump",
        action="store_true",
        help="then remove jumps of atoms across the cell, from the first frame of the file on",
    )
    add(
        "--center",
        nargs="?",
        const=solute,
        metavar="TEXT",
        help=f"then move the center of these atoms to the center of the cell [{solute.shown}]",
    )
    add(
        "--wrap",
        action="store_true",
        help="then put molecules back into the cell, each molecule or complex as a whole",
    )
    add(
        "--fit",
        nargs="?",
        const=trace,
        metavar="TEXT",
        help=f"then superpose these atoms on their positions in the first frame [{trace.shown}]",
    )


def add_worker_arguments(parser: CommandParser) -> None:
    """Add options for the backend, damaged frames, and timings."""
    add_backend_arguments(parser)
    add = parser.section("workers").add_argument
    add(
        "--on-error",
        choices=ON_ERROR,
        default="raise",
        help="stop at a damaged frame, or leave it out and list it [%(default)s]",
    )
    add = parser.section("output").add_argument
    add(
        "--timings",
        action="store_true",
        help="print the time that each worker read, computed and waited",
    )
    add(
        "--report",
        type=Path,
        metavar="FILE",
        help="write a report of the run time: a page .html, figures .png, .svg, or timings .csv, "
        "from which 'paceline report' can make the page or figures later",
    )


def add_backend_arguments(parser: CommandParser) -> None:
    """Add options for the backend and the number of workers."""
    add = parser.section("workers").add_argument
    add(
        "--backend",
        choices=BACKENDS,
        help=f"workers that compute the blocks of frames [{BACKENDS[0]}; mpi with mpirun or srun]",
    )
    meaning = "number of workers [the CPUs this process may use]; for mpi, threads per rank [1]"
    add_thread_argument(parser, meaning)


def add_thread_argument(parser: CommandParser, meaning: str) -> None:
    """Add the option for the number of workers, of threads, or of files at a time."""
    parser.section("workers").add_argument("--n-workers", type=positive, metavar="N", help=meaning)


def add_memory_argument(parser: CommandParser) -> None:
    """Add the option for the memory of a run."""
    parser.section("workers").add_argument(
        "--max-memory",
        type=memory,
        metavar="SIZE",
        help="memory of each process for results and for frames that are needed again, such as "
        "2GiB; larger results are in temporary files [1 GiB for each array of results; frames "
        "while half of the memory is free]",
    )


def add_layout_arguments(parser: CommandParser, *, compress: str = "none") -> None:
    """Add options for the storage layout of an H5MD file."""
    add = parser.section("H5MD files").add_argument
    add(
        "--chunk",
        type=chunk,
        metavar="SHAPE",
        help="frame: one frame per chunk; FRAMESxATOMS, such as 16x1000; contiguous: no chunks; "
        "auto: chosen by --for [auto]",
    )
    add(
        "--for",
        dest="for_",
        choices=("frames", "atoms", "both"),
        help="main use of the file: reading whole frames, few atoms in all frames, or both "
        "[frames]",
    )
    add(
        "--align",
        type=size,
        metavar="SIZE",
        help="start chunks at multiples of this size, such as the stripe of a file system: 1MiB",
    )
    add(
        "--compress",
        type=compression,
        metavar="HOW",
        help="none, gzip:1 to gzip:9, lzf, zstd:1 to zstd:19 or lz4; other programs need "
        "hdf5plugin to read zstd and lz4; shuffle+gzip:4 and so on are smaller, but slower to read "
        f"for few atoms [{compress}]",
    )
