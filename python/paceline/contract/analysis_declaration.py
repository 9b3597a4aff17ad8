"""Declaration of an analysis: facts that its signature and docstring do not contain."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

#: Description of one analysis in a battery: its class, and its parameters as in Python.
Description = Mapping[str, Any]


@dataclass(frozen=True)
class Option:
    """Option of a command. Fields that are None are filled in from the parameter `keyword`."""

    #: Name of the parameter, or of an argument that exists only in the command.
    keyword: str
    #: Help text; by default the first sentence of the parameter's description and the default
    #: value.
    help: str | None = None
    #: Flag; by default "--" and the keyword, or "--no-" and the keyword if the default is True.
    flag: str | None = None
    #: Value if the option is not given.
    default: Any = None
    #: Keywords of `argparse.add_argument`; `type` names a type, or a function in
    #: `paceline.cli.options`.
    choices: tuple[str, ...] | None = None
    type: str | None = None
    nargs: int | str | None = None
    metavar: str | tuple[str, ...] | None = None
    action: str | None = None
    const: object = None


@dataclass(frozen=True)
class Member:
    """Entry of an analysis in the default battery of a kind of system."""

    #: Key of `paceline.analysis.battery_definitions.SYSTEMS`.
    system: str
    #: Parameters, as in a battery file.
    parameters: Mapping[str, object]
    #: Name of the entry's files; by default the name of the analysis.
    name: str = ""
    #: Sort key of the entry among the system's entries.
    place: int = 100


@dataclass(frozen=True)
class Declaration:
    """Declaration of an analysis: the class attribute `declaration`.

    Parameters, choices, defaults, units, option help and results are read from the class:
    signature, type hints and numpydoc docstring (`paceline.analysis.write_catalogue`).
    """

    #: Name of the command, and of the analysis in batteries.
    name: str
    #: Computed quantity, in one line.
    summary: str
    #: Title of the results, without the atoms; by default the summary up to ":" or ",".
    title: str = ""
    #: Description for the command's help, a few lines; by default the docstring's summary.
    description: str = ""
    #: Section of the manual: a file of `docs` and an anchor.
    section: str = ""
    #: Other classes and functions of the module that compute similar quantities.
    variants: tuple[str, ...] = ()
    #: Default atom selection; empty if the user must name the atoms. If several selections are
    #: listed, the first that matches atoms is used.
    select: str | tuple[str, ...] = ""
    #: Arguments of example calls of the command.
    examples: tuple[str, ...] = ()
    #: Options of the command: names of parameters, or `Option` objects.
    options: tuple[str | Option, ...] = ()
    #: Default batteries that contain the analysis.
    batteries: tuple[Member, ...] = ()
    #: MDAnalysis class that computes the same quantity, as module.Class below
    #: `MDAnalysis.analysis`.
    counterpart: str = ""
    #: Requirements on the topology or frames that no class attribute declares.
    needs: tuple[str, ...] = ()
    #: Additional tables by name; the value is the help of the option that saves the table.
    further: Mapping[str, str] = field(default_factory=dict)
    #: Help texts of --select-2 and further required atom selections.
    groups: tuple[str, ...] = ()
    #: True if the command superposes frames (parameter `align`) by default.
    fits: bool = False
    #: File name extensions that -o accepts besides those of tables.
    files: tuple[str, ...] = ()
    #: Values of atoms or residues that -o also writes as B-factors of a structure; empty if none.
    on_structure: str = ""
    #: Help of --structures, for analyses that also save results as structures.
    structures: str = ""
    #: True if the atom selection is evaluated again in each frame.
    updating: bool = False
    #: True if --select is optional: without it, the command chooses atoms as `select` describes.
    chooses: bool = False
    #: False if the analysis has no command of this name, only battery entries.
    has_command: bool = True
    #: False if batteries cannot contain the analysis under this name.
    in_batteries: bool = True


#: File name extensions for values on a structure: PDB, and scripts for PyMOL, ChimeraX and VMD.
ON_STRUCTURE = (".pdb", ".pml", ".cxc", ".tcl")
#: Options that several commands share.
PBC = Option("pbc", "use positions unchanged, without minimum images")
MASS = Option(
    "weights", "weight atoms by their masses", flag="--mass", action="store_const", const="mass"
)
REF = Option(
    "ref",
    "reference: a frame number of the trajectory, or a structure file, used unchanged "
    "[%(default)s]",
    default="0",
    metavar="FRAME|FILE",
)
NO_SUPERPOSITION = Option("superposition", "compare positions without superposition", default=True)
#: Longest lag in the additional table of correlations, and the help text of that table.
LAGS = Option("tau_max", "longest lag of --correlation, frames [20]", type="positive", metavar="N")
CORRELATION = (
    "also write the fraction of {} that exist after a lag: again (intermittent), or without a "
    "break (continuous)"
)
