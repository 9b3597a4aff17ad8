"""Declaration of an analysis: what its signature and its docstring do not say."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Option:
    """Option of a command. A field that is None follows from the parameter of the same name."""

    #: The parameter, or a name of the command's own.
    keyword: str
    #: First sentence of the parameter's description, with its default.
    help: str | None = None
    #: "--" and the keyword; "--no-" and the keyword of what is True by default.
    flag: str | None = None
    #: Value without the option.
    default: Any = None
    #: Arguments of `argparse`; `type` is the name of a function in `paceline.cli.options`, or of
    #: a type.
    choices: tuple[str, ...] | None = None
    type: str | None = None
    nargs: int | str | None = None
    metavar: str | tuple[str, ...] | None = None
    action: str | None = None
    const: Any = None


@dataclass(frozen=True)
class Member:
    """Entry of the default battery of a system."""

    #: Key of `paceline.analysis.battery.SYSTEMS`.
    system: str
    #: Parameters, as in a battery file.
    parameters: Mapping[str, Any]
    #: Name of the entry's files; by default that of the analysis.
    name: str = ""
    #: Place among the system's entries, which are in this order.
    place: int = 100


@dataclass(frozen=True)
class Declaration:
    """Declaration of an analysis, the attribute `declaration` of its class.

    Parameters, choices, defaults, units, help of options and results are read from the class:
    signature, type hints and numpydoc docstring (`paceline.analysis.write_catalogue`).
    """

    #: Name of the command, and of the analysis in batteries.
    name: str
    #: What it computes, in a line.
    summary: str
    #: What the command computes, in a few lines; by default the summary of the docstring.
    description: str = ""
    #: Section of the manual: file of `docs`, and anchor.
    section: str = ""
    #: Other classes and functions of the module that compute the like.
    variants: tuple[str, ...] = ()
    #: Atoms by default; empty where they must be given. Of several selections, the first that
    #: finds atoms.
    select: str | tuple[str, ...] = ""
    #: Arguments of example calls of the command.
    examples: tuple[str, ...] = ()
    #: Options of the command: parameters by name, or options that need more than that.
    options: tuple[str | Option, ...] = ()
    #: Default batteries that it belongs to.
    batteries: tuple[Member, ...] = ()
    #: Class of MDAnalysis that computes the same, as module.Class below `MDAnalysis.analysis`.
    counterpart: str = ""
    #: Needs of the topology or of frames that no attribute of the class declares.
    needs: tuple[str, ...] = ()
    #: Names of further tables, with the help of options that save them.
    further: Mapping[str, str] = field(default_factory=dict)
    #: Help for --select-2 and so on, which must be given.
    groups: tuple[str, ...] = ()
    #: True if the command superposes frames (parameter `align`) where it is not told otherwise.
    fits: bool = False
    #: Endings of other files than tables that -o may have.
    files: tuple[str, ...] = ()
    #: Help for --structures, where results are also saved as structures.
    structures: str = ""
    #: True if atoms are selected anew in each frame.
    updating: bool = False
    #: True if the command chooses the atoms where --select is not given, as `select` says.
    chooses: bool = False
    #: False if only batteries have it by this name.
    has_command: bool = True
    #: False if no battery has it by this name.
    in_batteries: bool = True


#: Options that several commands have.
PBC = Option("pbc", "take positions as they are, and no nearest images")
MASS = Option(
    "weights", "weigh atoms by their masses", flag="--mass", action="store_const", const="mass"
)
REF = Option(
    "ref",
    "reference: a frame number of the trajectory, or a structure file, taken as it is "
    "[%(default)s]",
    default="0",
    metavar="FRAME|FILE",
)
NO_SUPERPOSITION = Option("superposition", "compare positions as they are", default=True)
#: Longest lag of the further table of correlations, and that table's help.
LAGS = Option("tau_max", "longest lag of --correlation, frames [20]", type="positive", metavar="N")
CORRELATION = (
    "write the fraction of {} that are there after a lag, too: again (intermittent), or without a "
    "break (continuous)"
)
