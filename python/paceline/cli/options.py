"""Parsers of commands, the arguments that several share, and how their values are read."""

import argparse
import contextlib
import difflib
import json
import math
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline._core import __version__
from paceline._util.files import parse_size
from paceline.errors import UnsupportedError

#: Seconds in a unit of time.
SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}
#: Picoseconds in a unit of time.
UNITS = {"fs": 1e-3, "ps": 1.0, "ns": 1e3, "us": 1e6, "µs": 1e6, "ms": 1e9}

#: Groups of options, in the order in which the help of every command has them.
SECTIONS = (
    *("files", "atoms", "frames", "transformations", "calculation", "output", "workers"),
    *("file system", "HDF5 files", "H5MD files", "measuring", "other options"),
)

#: Endings of tables.
TABLE_ENDINGS = ".csv, .tsv, .npz or .xvg"

#: Commands of GROMACS, and what they are called here.
COMMANDS_OF_GROMACS = {
    **{"rms": "rmsd", "trjconv": "convert", "trjcat": "join", "check": "validate"},
    **{"dump": "info", "traj": "convert"},
}
#: Options of GROMACS, and what does the same here.
OPTIONS_OF_GROMACS = {
    "-bin": "--nbins N divides --range",
    "-dump": "-b T and -e T choose one time",
    "-mw": "--mass weighs atoms by their masses",
    "-ndec": "--precision 1000 keeps three decimals of nm",
    "-nt": "--n-workers N",
    "-ntmpi": "--n-workers N",
    "-ntomp": "--n-workers N",
    "-pbc": "--unwrap makes molecules whole, --wrap puts them into the cell",
    "-rmax": "--range 0 15 is from 0 to 15 Å",
    "-sel": "--select TEXT",
    "-skip": "--step N takes every Nth frame",
    "-sub": "--select TEXT",
    "-timestep": "--dt 2ps sets the time between frames",
    "-tu": "-b and -e take times with a unit, such as 10ns",
}

#: Kinds of files: a structure has positions, too, and either may be a trajectory of its own.
TOPOLOGY, STRUCTURE, TRAJECTORY, EITHER = "topology", "structure", "trajectory", "either"
_SYSTEMS = (TOPOLOGY, STRUCTURE)
#: Endings of each kind, and formats that never describe a system.
_TOPOLOGIES = ("tpr", "psf", "prmtop", "parm7", "top", "itp")
_STRUCTURES = ("gro", "pdb", "ent", "pdbqt", "pqr", "crd", "mol2", "cif", "mmcif", "mmtf", "data")
_TRAJECTORIES = ("xtc", "trr", "dcd", "nc", "ncdf")
_PURE_TRAJECTORIES = ("XTC", "TRR", "DCD", "NetCDF")

#: Value of `bound`: ("frame", number) or ("time", picoseconds).
Bound = tuple[str, float] | None


class _HelpFormatter(argparse.HelpFormatter):
    """Wrap descriptions, and leave the lines of examples as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if text.startswith("examples:"):
            return "".join(indent + line for line in text.splitlines(keepends=True))
        return super()._fill_text(text, width, indent)


class CommandParser(argparse.ArgumentParser):
    """Parser of a command: options in `SECTIONS`, files anywhere between them, short errors."""

    def __init__(self, **kwargs: Any):
        super().__init__(**{"formatter_class": _HelpFormatter, "add_help": False, **kwargs})
        self._sections = {title: self.add_argument_group(title) for title in SECTIONS}
        explain = "show this help message and exit"
        self.section("other options").add_argument("-h", "--help", action="help", help=explain)

    def section(self, title: str) -> Any:
        """Get the group of options of this title."""
        return self._sections[title]

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse arguments; files may stand between options."""
        given = list(args or ())
        if self._subparsers is None and "_ARGCOMPLETE" not in os.environ:
            self._check_dashes(given)
        found, rest = super().parse_known_args(given, namespace)
        if self._subparsers is None:
            for text in rest:
                if text.startswith("-") and text not in ("-", "--"):
                    self.error(f"no option {text}{self._near_option(text)}")
            files = [text for text in rest if text != "--"]
            if files and not hasattr(found, "files"):
                self.error(f"unexpected argument {files[0]!r}")
            if files:
                found.files = [*found.files, *files]
        return found, []

    def error(self, message: str) -> Any:
        """End with a message of one line."""
        self.exit(2, f"paceline: error: {message} ({self.prog} --help explains)\n")

    def _check_dashes(self, given: Sequence[str]) -> None:
        """Refuse long options with one dash, which would be read as short ones with a value."""
        known = self._option_string_actions
        for text in given:
            if text == "--":
                return
            if text in known or not re.fullmatch("-[A-Za-z][A-Za-z-]+", text):
                continue
            if f"-{text}" in known:
                self.error(f"no option {text}: did you mean -{text}?")
            hint = OPTIONS_OF_GROMACS.get(text)
            if hint and hint.split()[0] in known:
                self.error(f"no option {text}, which GROMACS has: here {hint}")

    def _near_option(self, text: str) -> str:
        """Ask for the option that was perhaps meant."""
        options = [option for option in self._option_string_actions if option.startswith("--")]
        near = difflib.get_close_matches(text.partition("=")[0], options, 1)
        return f": did you mean {near[0]}?" if near else ""

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse a value that is none of the choices, and name the nearest one."""
        choices = None if action.choices is None else [str(choice) for choice in action.choices]
        if choices is None or value in choices:
            return
        near = difflib.get_close_matches(str(value), choices, 1)
        if isinstance(action, argparse._SubParsersAction):
            there = COMMANDS_OF_GROMACS.get(value)
            if there in choices:
                self.error(f"no command {value!r}, which GROMACS has: here it is {there}")
            hint = f"did you mean {near[0]}?" if near else f"expected one of {', '.join(choices)}"
            what = str(action.metavar).lower()
            self.error(f"no {what} {value!r}: {hint}")
        hint = f"; did you mean {near[0]}?" if near else ""
        listed = ", ".join(choices)
        raise argparse.ArgumentError(
            action, f"invalid choice: {value!r} (choose from {listed}){hint}"
        )


@dataclass(frozen=True)
class FileForm:
    """Files that a command takes, in their order: topology, trajectories, output.

    Attributes
    ----------
    topology, trajectory, output : str
        "required", "optional" or "" (none).
    several : bool
        More than one trajectory is allowed.
    """

    topology: str = ""
    trajectory: str = "required"
    output: str = ""
    several: bool = True

    @property
    def by_place(self) -> str:
        """Files as they are named by their place."""
        dots = "..." if self.several else ""
        files = ((self.topology, "TOPOLOGY"), (self.trajectory, f"TRAJECTORY{dots}"))
        return _form((*files, (self.output, "OUTPUT")))

    @property
    def by_option(self) -> str:
        """Files as they are named by options."""
        dots = "..." if self.several else ""
        files = ((self.topology, "-s TOPOLOGY"), (self.trajectory, f"-f TRAJECTORY{dots}"))
        return _form((*files, (self.output, "-o OUTPUT")))


def _form(files: Sequence[tuple[str, str]]) -> str:
    """Join the names of files, optional ones in brackets."""
    return " ".join(
        name if needed == "required" else f"[{name}]" for needed, name in files if needed
    )


def add_file_arguments(
    parser: CommandParser, form: FileForm, *, formats: str, more: str = "", chain: bool = True
) -> None:
    """Add the files of a command, by place and by option; `more` is other usage.

    With `chain`, several trajectories are one; else each is taken by itself.
    """
    more = f" {more}" if more else ""
    parser.usage = (
        f"%(prog)s [options] {form.by_place}{more}\n       "
        f"%(prog)s [options] {form.by_option}{more}"
    )
    add = parser.section("files").add_argument
    add("files", nargs="*", metavar=form.by_place, help="by place, or with these options:")
    if form.topology:
        add(
            "-s",
            "--topology",
            metavar="FILE",
            help="file that describes the system: TPR, GRO, PDB, PSF, PRMTOP ...",
        )
    several = '; several, or a pattern such as "md.part*.xtc", are one after another'
    add(
        "-f",
        "--trajectory",
        nargs="+",
        action="extend",
        metavar="FILE",
        help=f"{formats}{several if form.several and chain else ''}",
    )
    if form.output:
        add("-o", "--output", type=Path, metavar="FILE", help="what to write")
    parser.set_defaults(form=form)


def resolve_files(args: argparse.Namespace) -> None:
    """Set topology, trajectories and output from where they were given.

    Raises
    ------
    UnsupportedError
        One is missing, given twice, or stands in the place of another.
    """
    form = getattr(args, "form", None)
    if form is None:
        return
    for option in ("center", "fit"):
        if os.path.isfile(getattr(args, option, None) or ""):
            raise UnsupportedError(
                f"--{option} takes {getattr(args, option)} for its selection: give files before it"
            )
    expected = f"expected {form.by_place}, or {form.by_option}"
    places = list(args.files)
    if form.output and args.output is None:
        if len(places) > (0 if args.trajectory else 1):
            args.output = Path(places.pop())
        elif form.output == "required":
            hint = "; -f takes all files behind it: name the output with -o"
            raise UnsupportedError(f"{expected}, found no output{hint if args.trajectory else ''}")
    topology = args.topology if form.topology else None
    if form.topology and places:
        leads = form.topology == "required" or kind_of(places[0]) in (TOPOLOGY, STRUCTURE)
        if topology is None and leads:
            args.topology = topology = places.pop(0)
        elif topology and _is_second_topology(places):
            raise UnsupportedError(
                f"the topology is given twice: {topology} with -s, and {places[0]} in its place"
            )
    if args.trajectory and places:
        raise UnsupportedError(
            f"the trajectory is given twice: {args.trajectory[0]} with -f, and {places[0]} in its "
            "place"
        )
    args.trajectory = args.trajectory or places
    _check_kinds(form, topology, args.trajectory)
    if form.topology == "required" and topology is None:
        found = f"found {args.trajectory[0]} alone" if args.trajectory else "found none of them"
        raise UnsupportedError(f"{expected}, {found}")
    if not args.trajectory and (form.trajectory == "required" or topology is None):
        raise UnsupportedError(
            f"{expected}, found {f'the topology {topology} alone' if topology else 'no trajectory'}"
        )
    if len(args.trajectory) > 1 and not form.several:
        raise UnsupportedError(f"expected one trajectory, found {', '.join(args.trajectory)}")


def add_json_argument(section: Any) -> None:
    """Add output as JSON."""
    what = "one JSON document to stdout, as the manual describes"
    section.add_argument("--json", action="store_true", help=what)


def print_json(command: str, **values: Any) -> None:
    """Print the JSON document of a command; numbers that are not finite are null."""
    print(json.dumps(_finite({"command": command, "paceline": __version__, **values}), indent=1))


def _finite(value: Any) -> Any:
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


def _is_second_topology(places: Sequence[str]) -> bool:
    """Check for a topology in its place, where it was given with -s as well."""
    kinds = [kind_of(place) for place in places[:2]]
    # A structure file may be a trajectory that MDAnalysis reads.
    return kinds[0] == TOPOLOGY or (kinds[0] == STRUCTURE and kinds[1:] == [TRAJECTORY])


def _check_kinds(form: FileForm, topology: str | None, trajectories: Sequence[str]) -> None:
    """Raise `UnsupportedError` for files that were swapped."""
    kinds = [kind_of(name) for name in trajectories]
    # MDAnalysis reads some structures as trajectories; without a topology, nobody converts them.
    needs_system = form.topology and form.output and topology is None
    wrong = (TOPOLOGY, STRUCTURE) if needs_system else (TOPOLOGY,)
    misplaced = [name for name, kind in zip(trajectories, kinds, strict=True) if kind in wrong]
    if topology is not None and kind_of(topology) == TRAJECTORY:
        others = [name for name, kind in zip(trajectories, kinds, strict=True) if kind in _SYSTEMS]
        if others:
            raise UnsupportedError(
                f"{topology} is a trajectory and {others[0]} a topology: the topology comes first "
                f"({form.by_place})"
            )
        raise UnsupportedError(
            f"expected a topology before the trajectory, found {topology}, which is a trajectory"
        )
    if misplaced:
        if not form.topology:
            how = "this command needs none"
        elif topology is None:
            how = f"give it as {form.by_place}, or {form.by_option}"
        else:
            how = f"the topology is {topology}"
        raise UnsupportedError(f"expected a trajectory, found {misplaced[0]}, a topology: {how}")


def kind_of(path: str) -> str:
    """Tell topologies from trajectories, by content where that says it, else by ending.

    Examples
    --------
    >>> kind_of("md.tpr"), kind_of("md.xtc"), kind_of("md.gro"), kind_of("md.h5md")
    ('topology', 'trajectory', 'structure', 'either')
    """
    ending = Path(re.sub(r"\.(gz|bz2)$", "", path.lower())).suffix[1:]
    if os.path.isfile(path):
        from paceline._core import detect_format

        with contextlib.suppress(OSError, ValueError):
            found = detect_format(path)
            if found is not None:
                return TRAJECTORY if found in _PURE_TRAJECTORIES else EITHER
    kinds = {TRAJECTORY: _TRAJECTORIES, TOPOLOGY: _TOPOLOGIES, STRUCTURE: _STRUCTURES}
    return next((kind for kind, endings in kinds.items() if ending in endings), EITHER)


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
    try:
        value = float(text)
    except ValueError:
        _, value = bound(text)
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"expected a time such as 100 (ps) or 2.5ns, found {text}")
    return "time", value


def interval(text: str) -> float:
    """Read a time between frames, ps."""
    _, value = picoseconds(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"expected a time above 0, found {text}")
    return value


def bound(text: str) -> tuple[str, float]:
    """Read a frame number, or a time with its unit.

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


def chunk(text: str) -> str:
    """Check the shape of chunks."""
    from paceline.hdf5.storage_layout import parse_chunk

    return _checked(parse_chunk, text)


def compression(text: str) -> str:
    """Check a way to compress."""
    from paceline.hdf5.storage_layout import parse_compression

    return _checked(parse_compression, text)


def _checked(parse: Callable[[str], Any], text: str) -> str:
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
    found = {name: getattr(args, called) for name, called in there.items()}
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


def add_analysis_arguments(parser: CommandParser, *, select: str) -> None:
    """Add the arguments of every analysis."""
    add_system_arguments(parser, select=select)
    add_frame_arguments(parser)
    add_transform_arguments(parser)
    add = parser.section("output").add_argument
    add("-o", "--output", type=Path, metavar="FILE", help=f"{TABLE_ENDINGS} [table to stdout]")
    add("--plot", type=Path, metavar="FILE", help="draw a figure: .png, .svg, .pdf")
    add("--overwrite", action="store_true", help="replace files that exist")
    add_worker_arguments(parser)
    parser.section("workers").add_argument(
        "--checkpoint",
        type=Path,
        metavar="FILE",
        help="keep what is done in FILE until the end; if the command is killed, the same one goes "
        "on from there",
    )


def add_system_arguments(parser: CommandParser, *, select: str) -> None:
    """Add topology, trajectory and atoms."""
    add_file_arguments(parser, FileForm(topology="required"), formats="trajectory")
    add_selection_arguments(parser, select=select)


def add_selection_arguments(parser: CommandParser, *, select: str) -> None:
    """Add the choice of atoms."""
    add = parser.section("atoms").add_argument
    add(
        "--select",
        default=None if select == "all" else select,
        metavar="TEXT",
        help=f"atoms, in MDAnalysis's words, or the name of a group, such as Backbone [{select}]",
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


def add_frame_arguments(parser: CommandParser) -> None:
    """Add the choice of frames."""
    section = parser.section("frames")
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
    every = section.add_mutually_exclusive_group()
    every.add_argument(
        "--step", type=positive, default=1, metavar="N", help="take every Nth frame [%(default)s]"
    )
    every.add_argument(
        "-dt",
        dest="every",
        type=interval,
        metavar="TIME",
        help="only frames whose times are that of the first one and multiples of it, ps",
    )
    add = section.add_argument
    add(
        "--continuous",
        action="store_true",
        help="order trajectories by time, and leave out frames that a later one repeats",
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
    add("--units", metavar="TEXT", help='of numbers that have none: "nm, ps"')
    add("--dataset", metavar="NAME", help="positions, in a file of no known structure")
    follow = "follow the file's links into other files"
    add("--external", action="store_const", const=True, help=follow)


def add_transform_arguments(parser: CommandParser) -> None:
    """Add transformations of positions."""
    add = parser.section("transformations").add_argument
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


def add_worker_arguments(parser: CommandParser) -> None:
    """Add the backend, the treatment of damaged frames, and timings."""
    add_backend_arguments(parser)
    add = parser.section("workers").add_argument
    add(
        "--on-error",
        choices=("raise", "skip"),
        default="raise",
        help="end at a damaged frame, or leave it out and list it [%(default)s]",
    )
    add = parser.section("output").add_argument
    add("--timings", action="store_true", help="show who did what for how long")
    add(
        "--report",
        type=Path,
        metavar="FILE",
        help="say where the time went: a page .html, figures .png, .svg, or timings .csv, of which "
        "'paceline report' makes either later",
    )


def add_backend_arguments(parser: CommandParser) -> None:
    """Add the backend and its number of workers."""
    add = parser.section("workers").add_argument
    add(
        "--backend",
        choices=("threads", "processes", "serial", "dask", "mpi"),
        help="where blocks of frames are computed [threads; under mpirun or srun, mpi]",
    )
    meaning = "workers [the CPUs this process may use]; of mpi, threads on each rank [1]"
    add_thread_argument(parser, meaning)


def add_thread_argument(parser: CommandParser, meaning: str) -> None:
    """Add the number of workers, threads or files at a time."""
    parser.section("workers").add_argument("--n-workers", type=positive, metavar="N", help=meaning)


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
        help="none, gzip:1 to gzip:9 or, smaller but read more slowly where few atoms are wanted, "
        f"shuffle+gzip:4 [{compress}]",
    )
