"""Parser of a command and of its files."""

import argparse
import contextlib
import os
import re
import shlex
import sys
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from paceline import _core
from paceline.errors import UnsupportedError

#: Sections of options in the help, in the order for every command.
SECTIONS = (
    *("files", "atoms", "frames", "transformations", "calculation", "output", "figure", "workers"),
    *("while the simulation runs",),
    *("file system", "HDF5 files", "H5MD files", "measuring", "other options"),
)

#: Commands of GROMACS, and paceline's commands for the same analysis.
COMMANDS_OF_GROMACS = {
    **{"angle": "angles", "densmap": "density", "distance": "distances", "do_dssp": "dssp"},
    **{"editconf": "convert", "filter": "convert", "principal": "gyration", "helix": "dssp"},
    **{"polystat": "gyration", "saltbr": "contacts", "spatial": "density"},
    **{"rms": "rmsd", "trjconv": "convert", "trjcat": "join", "check": "validate"},
    **{"dump": "info", "traj": "convert", "velacc": "velocity-autocorrelation"},
    **{"current": "current-autocorrelation", "dipoles": "dielectric", "gyrate": "gyration"},
    **{"hbond": "hbonds", "rama": "ramachandran", "covar": "pca", "anaeig": "pca"},
    **{"mdmat": "distance-map", "mindist": "distances", "pairdist": "distances"},
    **{"select": "selection", "gangle": "angles", "sham": "surface"},
    "eneconv": "energy",
}
#: Commands of cpptraj, and paceline's commands for the same analysis.
COMMANDS_OF_CPPTRAJ = {
    **{"atomicfluct": "rmsf", "autoimage": "convert", "dihedral": "dihedrals"},
    **{"diffusion": "msd", "nativecontacts": "contacts", "radgyr": "gyration", "radial": "rdf"},
    **{"rms2d": "rmsd-matrix", "secstruct": "dssp", "strip": "convert", "surf": "sasa"},
    **{"molsurf": "sasa", "trajin": "convert", "trajout": "convert", "volmap": "density"},
    **{"matrix": "pca", "multidihedral": "ramachandran", "watershell": "selection"},
    **{"lipidorder": "order", "velocityautocorr": "velocity-autocorrelation"},
}
#: Other names for analyses, and paceline's commands.
OTHER_NAMES = {
    **{"rg": "gyration", "radius-of-gyration": "gyration", "kmeans": "cluster"},
    **{"k-means": "cluster", "k-medoids": "cluster", "gromos": "cluster", "clusters": "cluster"},
    **{"hydrogen-bonds": "hbonds", "gr": "rdf", "distance": "distances", "fit": "align"},
    **{"superpose": "align", "ss": "dssp", "pmf": "surface", "fes": "surface"},
    **{"cat": "join", "concat": "join", "scaling": "bench", "benchmark": "bench"},
    **{"distance-matrix": "rmsd-matrix", "rmsd2d": "rmsd-matrix"},
    **{"vacf": "velocity-autocorrelation", "neighbours": "neighbors"},
    **{"diffusion-map": "diffusionmap", "dmap": "diffusionmap"},
    **{"native-contacts": "contacts", "clustering": "cluster"},
    **{"residence": "survival", "currents": "current-autocorrelation"},
    **{"scd": "order", "sch": "order", "leaflet": "leaflets"},
    **{"energies": "energy", "edr": "energy", "thermo": "energy"},
}
#: Maximum number of commands that a message lists.
FEW = 8
#: Minimum similarity, as measured by difflib, of a word that a message suggests.
CLOSE = 0.65
#: Texts for error messages: the kind of a value, by the function name of its argparse type; and its
#: unit, by the metavar of the option.
TYPES = {
    **{"float": "a number", "above_zero": "a number"},
    **{"int": "a whole number", "positive": "a whole number"},
}
UNITS = {"Å": " of Å", "DEGREES": " of degrees", "K": " of K"}
#: Options of GROMACS, and the options of paceline that replace them.
OPTIONS_OF_GROMACS = {
    "-bin": "--nbins N divides --range",
    "-dump": "-b T and -e T choose one time",
    "-mw": "--mass weighs atoms by their masses",
    "-ndec": "--precision 1000 keeps three decimals of nm",
    "-nobackup": "--overwrite replaces existing files; without it they are kept",
    "-nt": "--n-workers N",
    "-ntmpi": "--n-workers N",
    "-ntomp": "--n-workers N",
    "-pbc": "--unwrap makes molecules whole, --together complexes, --nojump undoes jumps, --wrap "
    "puts them into the cell",
    "-rmax": "--range 0 15 is from 0 to 15 Å",
    "-sel": "--select TEXT",
    "-skip": "--step N takes every Nth frame",
    "-sub": "--select TEXT",
    "-timestep": "--dt 2ps sets the time between frames",
    "-tu": "-b and -e accept times with a unit, such as 10ns; --time-unit ns is for figures",
    "-xvg": "-o TABLE.csv writes no lines for Grace, and -o TABLE.xvg writes them",
}

#: Kinds of files: "structure" is a topology with positions, "either" a topology or a trajectory.
TOPOLOGY, STRUCTURE, TRAJECTORY, EITHER = "topology", "structure", "trajectory", "either"
_SYSTEMS = (TOPOLOGY, STRUCTURE)
#: Filename extensions of each kind of file, and names of the binary formats. Files of these formats
#: are never topologies, whereas text files may be topologies, too.
_TOPOLOGIES = ("tpr", "psf", "prmtop", "parm7", "top", "itp")
_STRUCTURES = ("gro", "pdb", "ent", "pdbqt", "pqr", "crd", "mol2", "cif", "mmcif", "mmtf", "data")
_BINARY = [format for format in _core.formats() if not format.is_text]
_TRAJECTORIES = {ending for format in _BINARY for ending in format.extensions}
_PURE_TRAJECTORIES = {format.name for format in _BINARY}


def plain_text(text: str) -> str:
    """Return a text unchanged: type of options that name no file, such as --select or --dataset."""
    return text


class WrongArguments(SystemExit):
    """Exit because the command line cannot be read; the message has been printed.

    `message` is this message, and `program` is the command whose --help explains the options.
    """

    def __init__(self, message: str, program: str):
        super().__init__(2)
        self.message, self.program = message, program


class _HelpFormatter(argparse.HelpFormatter):
    """Help formatter that wraps descriptions, but not the lines of examples."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if text.startswith("examples:"):
            return "".join(indent + line for line in text.splitlines(keepends=True))
        return super()._fill_text(text, width, indent)

    def _format_action(self, action: argparse.Action) -> str:
        """Put the heading of a section of commands above its first command."""
        heading = vars(action).get("heading", "")
        return f"\n  {heading}:\n" * bool(heading) + super()._format_action(action)


class CommandParser(argparse.ArgumentParser):
    """Parser of a command; files may stand anywhere between options, and errors are short."""

    def __init__(self, **kwargs: Any):
        super().__init__(**{"formatter_class": _HelpFormatter, "add_help": False, **kwargs})
        # Functions that all commands call read these arguments, which many commands lack.
        self.set_defaults(
            structures=None,
            output_files=(),
            further=(),
            form=None,
            json=False,
            only_tables=False,
            folder=None,
            analysis_names=(),
        )
        self._given: list[str] = []
        self._sections = {title: self.add_argument_group(title) for title in SECTIONS}
        explain = "show this help message and exit"
        self.section("other options").add_argument("-h", "--help", action="help", help=explain)

    def section(self, title: str) -> argparse._ArgumentGroup:
        """Return the section of options with this title."""
        return self._sections[title]

    def of_command(self, name: str) -> "CommandParser":
        """Return the parser of a command."""
        assert self._subparsers is not None
        [action] = self._subparsers._group_actions
        found: CommandParser = dict(action.choices or {})[name]
        return found

    def set_form(self, form: "FileForm") -> None:
        """Replace the form of the files that `add_file_arguments` has set."""
        self._option_string_actions["-s"].help = form.topology_help
        self.set_defaults(form=form)

    @property
    def option_names(self) -> dict[str, str]:
        """Map from the name under which argparse stores a value to the option.

        A flag whose value is stored under another name than its own is left out.
        """
        found: dict[str, str] = {}
        for action in self._actions:
            for option in action.option_strings:
                is_flag = action.nargs == 0 and option[2:].replace("-", "_") != action.dest
                if option.startswith("--") and not is_flag:
                    found.setdefault(action.dest, option)
        return found

    @property
    def text_options(self) -> dict[str, str]:
        """Map from each option of type `plain_text` to the name under which argparse stores it."""
        texts = [action for action in self._actions if action.type is plain_text]
        return {option: action.dest for action in texts for option in action.option_strings}

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse arguments; files may stand between options."""
        given = self._given = list(args or ())
        if "_ARGCOMPLETE" not in os.environ:
            if self._subparsers is None:
                self._check_dashes(given)
            else:
                leading = takewhile(lambda text: text.startswith("-"), given)
                self._check_leading([text for text in leading if not self._knows(text)], given)
        found, rest = super().parse_known_args(given, namespace)
        if "option_names" not in found:  # otherwise the parser of a subcommand has set it
            found.option_names = self.option_names
            found.text_names = frozenset(self.text_options.values())
        if self._subparsers is not None:
            self._check_leading(rest, given)
        else:
            for text in rest:
                if text.startswith("-") and text not in ("-", "--"):
                    self.error(f"no option {text}{self._suggest_option(text)}")
            files = [text for text in rest if text != "--"]
            if files and "files" not in found:
                self.error(f"unexpected argument {files[0]!r}")
            if files:
                found.files = [*found.files, *files]
        return found, []

    def error(self, message: str) -> Any:
        """Print a message of one line, and exit."""
        if " required" in message:  # perhaps an option that is required was misspelled
            options = takewhile(lambda text: text != "--", self._given)
            unknown = (one for one in options if one.startswith("--") and not self._knows(one))
            if text := next(unknown, ""):
                message = f"no option {text}{self._suggest_option(text)}"
        print(f"paceline: error: {message} ({self.prog} --help explains)", file=sys.stderr)
        raise WrongArguments(message, self.prog)

    def _check_dashes(self, given: Sequence[str]) -> None:
        """Exit if a long option has only one dash, because argparse would read a short option.

        Also exit for an option of GROMACS that an option of this command replaces.
        """
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
                self.error(f"no option {text}: instead of this GROMACS option, {hint}")

    def _knows(self, text: str) -> bool:
        """Check whether this parser has an option, perhaps abbreviated or followed by a value."""
        option = text.partition("=")[0]
        return text == "--" or any(
            known.startswith(option) if option.startswith("--") else option.startswith(known)
            for known in self._option_string_actions
        )

    def _check_leading(self, options: Sequence[str], given: Sequence[str]) -> None:
        """Exit for options before the name of their subcommand, where they would be ignored."""
        assert self._subparsers is not None
        if not options:
            return
        [action] = self._subparsers._group_actions
        name = next((text for text in given if text in (action.choices or ())), None)
        if name is None:
            self.error(f"no option {options[0]}")
        self.error(
            f"{options[0]} stands before the {str(action.metavar).lower()}: put options after "
            f'it, as in "{self.prog} {name} {shlex.quote(options[0])}"'
        )

    def _suggest_option(self, text: str) -> str:
        """Suggest the option that the user may have meant."""
        hint = OPTIONS_OF_GROMACS.get(text.partition("=")[0][1:], "")
        if hint and hint.split()[0] in self._option_string_actions:
            return f": {hint}"
        if text.partition("=")[0] == "--group" and "--select" in self._option_string_actions:
            return (
                ": run the command once for each group with --select; 'paceline plot' draws the "
                "tables of all groups into one figure"
            )
        names = [name[2:] for name in self._option_string_actions if name.startswith("--")]
        near = close_matches(text.partition("=")[0].lstrip("-"), names)
        return f": did you mean --{near[0]}?" if near else ""

    def _get_value(self, action: argparse.Action, arg_string: str) -> object:
        """Convert a value; an error message describes the expected value, not its Python type."""
        try:
            return super()._get_value(action, arg_string)
        except argparse.ArgumentError as error:
            expected = TYPES.get(getattr(action.type, "__name__", ""))
            if expected is None or isinstance(error.__context__, argparse.ArgumentTypeError):
                raise  # the message is complete
            unit = UNITS.get(f"{action.metavar}", "")
            raise argparse.ArgumentError(
                action, f"expected {expected}{unit}, found {arg_string!r}"
            ) from None

    def _check_value(self, action: argparse.Action, value: object) -> None:
        """Exit if a value is not one of the choices, and suggest the most similar choice."""
        choices = None if action.choices is None else [str(choice) for choice in action.choices]
        if choices is None or value in choices:
            return
        near = close_matches(str(value), choices)
        if isinstance(action, argparse._SubParsersAction):
            word = str(value).lower()
            near = [one for one in choices if sorted(one) == sorted(word)] or near
            near = [OTHER_NAMES[word]] if OTHER_NAMES.get(word) in choices else near
            others = (("gmx", COMMANDS_OF_GROMACS), ("cpptraj's", COMMANDS_OF_CPPTRAJ))
            for program, commands in others:
                if commands.get(word) in choices:
                    same = f"{program} {word} is '{self.prog} {commands[word]}'"
                    self.error(f"no command {value!r}: {same}")
            few = f": expected one of {', '.join(choices)}" if len(choices) <= FEW else ""
            hint = f": did you mean '{self.prog} {near[0]}'?" if near else few
            what = str(action.metavar).lower()
            self.error(f"no {what} {value!r}{hint}")
        hint = f"; did you mean {near[0]}?" if near else ""
        listed = ", ".join(choices)
        raise argparse.ArgumentError(
            action, f"invalid choice: {value!r} (choose from {listed}){hint}"
        )


#: Type of the object that adds the parsers of commands.
Commands: TypeAlias = "argparse._SubParsersAction[CommandParser]"


class FileForm(NamedTuple):
    """Files of a command, in this order: topology, trajectories, output."""

    #: For each kind of file: "required", "optional" or "" (not allowed).
    topology: str = ""
    trajectory: str = "required"
    output: str = ""
    #: True if several trajectories are allowed.
    several: bool = True
    #: True if a structure may be used without a trajectory.
    alone: bool = False
    #: False if the command line may omit all files, because the command finds them elsewhere.
    needed: bool = True

    @property
    def topology_help(self) -> str:
        """Help text for the topology."""
        alone = "; a structure, such as GRO or PDB, needs no trajectory" * self.alone
        return f"file that describes the system: TPR, GRO, PDB, PSF, PRMTOP ...{alone}"

    @property
    def positional_usage(self) -> str:
        """Usage of the files as positional arguments."""
        return self._usage("", "", "")

    @property
    def option_usage(self) -> str:
        """Usage of the files as options."""
        return self._usage("-s ", "-f ", "-o ")

    def _usage(self, s: str, f: str, o: str) -> str:
        """Join the names of files after their options, with optional ones in brackets."""
        files = (
            (self.topology, f"{s}TOPOLOGY"),
            (self.trajectory, f"{f}TRAJECTORY{'...' * self.several}"),
            (self.output, f"{o}OUTPUT"),
        )
        return " ".join(
            name if needed == "required" else f"[{name}]" for needed, name in files if needed
        )


def close_matches(word: str, known: Sequence[str]) -> list[str]:
    """Return a list with the known word that is most similar; an empty list if none is similar."""
    import difflib  # deferred, because `paceline --version` imports this module

    return difflib.get_close_matches(word, known, 1, CLOSE)


def add_file_arguments(
    parser: CommandParser, form: FileForm, *, formats: str, more: str = "", chain: bool = True
) -> None:
    """Add the files of a command, as positional arguments and as options.

    `more` is added to the usage. With `chain`, several trajectories are read as one.
    """
    more = f" {more}" if more else ""
    parser.usage = (
        f"%(prog)s [options] {form.positional_usage}{more}\n       "
        f"%(prog)s [options] {form.option_usage}{more}"
    )
    add = parser.section("files").add_argument
    add(
        "files",
        nargs="*",
        metavar=form.positional_usage,
        help="in this order, or with these options:",
    )
    if form.topology:
        add(
            "-s",
            "--topology",
            metavar="FILE",
            help=form.topology_help,
        )
    several = '; several files, or a pattern such as "md.part*.xtc", are read as one trajectory'
    add(
        "-f",
        "--trajectory",
        nargs="+",
        action="extend",
        metavar="FILE",
        help=f"{formats}{several if form.several and chain else ''}",
    )
    if form.output:
        add("-o", "--output", type=Path, metavar="FILE", help="output file")
    parser.set_defaults(form=form)


def resolve_files(args: argparse.Namespace) -> None:
    """Set topology, trajectories and output from positional arguments and options.

    Raises `UnsupportedError` for a file that is missing, given twice, or in the wrong position.
    """
    form = args.form
    if form is None:
        return
    for option in ("align", "center", "fit", "together"):
        given = vars(args).get(option)
        if isinstance(given, str) and os.path.isfile(given):
            raise UnsupportedError(
                f"--{option} reads {given} as its selection: put files before this option"
            )
    expected = f"expected {form.positional_usage}, or {form.option_usage}"
    places = list(args.files)
    if not (form.needed or places or args.topology or args.trajectory):
        args.trajectory = []
        return
    is_output_by_place = bool(form.output) and args.output is None
    if is_output_by_place:
        if len(places) > (0 if args.trajectory else 1):
            args.output = Path(places.pop())
        elif form.output == "required":
            hint = "; -f takes all files after it: name the output with -o"
            raise UnsupportedError(f"{expected}, found no output{hint if args.trajectory else ''}")
        if args.output is not None and kind_of(str(args.output)) == TOPOLOGY:
            raise UnsupportedError(f"{expected}, found {args.output}, a topology, as the output")
    topology = args.topology if form.topology else None
    if form.topology and places:
        leads = form.topology == "required" or kind_of(places[0]) in (TOPOLOGY, STRUCTURE)
        if topology is None and leads:
            args.topology = topology = places.pop(0)
        elif topology and _is_second_topology(places):
            raise UnsupportedError(
                f"the topology is given twice: {topology} with -s, and {places[0]} without option"
            )
    if args.trajectory and places:
        raise UnsupportedError(
            f"the trajectory is given twice: {args.trajectory[0]} with -f, and {places[0]} "
            "without option"
        )
    args.trajectory = args.trajectory or places
    _check_kinds(form, topology, args.trajectory)
    if form.topology == "required" and topology is None:
        found = f"found only {args.trajectory[0]}" if args.trajectory else "found none of them"
        raise UnsupportedError(f"{expected}, {found}")
    # Without -o, a file after a structure may be meant as the trajectory, not as the output.
    may_be_alone = form.alone and not is_output_by_place
    is_alone = may_be_alone and topology is not None and kind_of(topology) != TOPOLOGY
    if not (args.trajectory or is_alone) and (form.trajectory == "required" or topology is None):
        hint = ": only a structure, such as GRO or PDB, needs no trajectory" if form.alone else ""
        hint += ", and then -o must name the output" if hint and not may_be_alone else ""
        found = f"only the topology {topology}{hint}" if topology else "no trajectory"
        raise UnsupportedError(f"{expected}, found {found}")
    if len(args.trajectory) > 1 and not form.several:
        raise UnsupportedError(f"expected one trajectory, found {', '.join(args.trajectory)}")


def _is_second_topology(places: Sequence[str]) -> bool:
    """Check whether a positional argument is a second topology, in addition to -s."""
    kinds = [kind_of(place) for place in places[:2]]
    # A structure alone may be the trajectory, because MDAnalysis reads structures as trajectories.
    return kinds[0] == TOPOLOGY or (kinds[0] == STRUCTURE and kinds[1:] == [TRAJECTORY])


def _check_kinds(form: FileForm, topology: str | None, trajectories: Sequence[str]) -> None:
    """Raise `UnsupportedError` for swapped files, and for folders."""
    for name in trajectories:
        if os.path.isdir(name):
            raise UnsupportedError(f"expected a trajectory, found {name}, a folder")
    kinds = [kind_of(name) for name in trajectories]
    # MDAnalysis reads some structures as trajectories, but converting them requires a topology.
    needs_system = form.topology and form.output and topology is None
    wrong = (TOPOLOGY, STRUCTURE) if needs_system else (TOPOLOGY,)
    misplaced = [name for name, kind in zip(trajectories, kinds, strict=True) if kind in wrong]
    if topology is not None and kind_of(topology) == TRAJECTORY:
        others = [name for name, kind in zip(trajectories, kinds, strict=True) if kind in _SYSTEMS]
        if others:
            raise UnsupportedError(
                f"{topology} is a trajectory and {others[0]} a topology: the topology comes first "
                f"({form.positional_usage})"
            )
        raise UnsupportedError(
            f"expected a topology before the trajectory, found {topology}, which is a trajectory"
        )
    if misplaced:
        if not form.topology:
            how = "this command needs no topology"
        elif topology is None:
            how = f"pass files as {form.positional_usage}, or {form.option_usage}"
        else:
            how = f"the topology is {topology}"
        raise UnsupportedError(f"expected a trajectory, found {misplaced[0]}, a topology: {how}")


def kind_of(path: str) -> str:
    """Classify a file by its content if possible, otherwise by its extension.

    Examples
    --------
    >>> kind_of("md.tpr"), kind_of("md.xtc"), kind_of("md.gro"), kind_of("md.h5md")
    ('topology', 'trajectory', 'structure', 'either')
    """
    ending = Path(re.sub(r"\.(gz|bz2)$", "", path.lower())).suffix[1:]
    if os.path.isfile(path):
        with contextlib.suppress(OSError, ValueError):
            found = _core.detect_format(path)
            if found is not None:
                return TRAJECTORY if found in _PURE_TRAJECTORIES else EITHER
    kinds = {TRAJECTORY: _TRAJECTORIES, TOPOLOGY: _TOPOLOGIES, STRUCTURE: _STRUCTURES}
    return next((kind for kind, endings in kinds.items() if ending in endings), EITHER)
