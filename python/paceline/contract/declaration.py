"""Declaration of an analysis: facts that its signature and its docstring do not contain."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Option:
    """Option of a command. A field that is None is taken from the parameter of the same name."""

    #: Name of the parameter, or of an argument that only the command has.
    keyword: str
    #: Help text; by default the first sentence of the parameter's description, with its default.
    help: str | None = None
    #: Flag; by default "--" and the keyword, or "--no-" and the keyword if the default is True.
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
    const: object = None


@dataclass(frozen=True)
class Member:
    """Entry of the default battery of a system."""

    #: Key of `paceline.analysis.default_batteries.SYSTEMS`.
    system: str
    #: Parameters, as in a battery file.
    parameters: Mapping[str, object]
    #: Name of the entry's files; by default the name of the analysis.
    name: str = ""
    #: Sort key of the entry among the system's entries.
    place: int = 100


@dataclass(frozen=True)
class Declaration:
    """Declaration of an analysis, the attribute `declaration` of its class.

    Parameters, choices, defaults, units, help of options and results are read from the class:
    signature, type hints and numpydoc docstring (`paceline.analysis.write_catalogue`).
    """

    #: Name of the command, and of the analysis in batteries.
    name: str
    #: Computed quantity, in one line.
    summary: str
    #: Heading of its results, without the atoms; by default the summary up to ":" or ",".
    title: str = ""
    #: Computed quantity, in a few lines, for the command's help; by default the docstring's
    #: summary.
    description: str = ""
    #: Section of the manual: a file of `docs` and an anchor.
    section: str = ""
    #: Other classes and functions of the module that compute similar quantities.
    variants: tuple[str, ...] = ()
    #: Default atom selection; empty if atoms must be given. Of several selections, the first that
    #: finds atoms.
    select: str | tuple[str, ...] = ""
    #: Arguments of example calls of the command.
    examples: tuple[str, ...] = ()
    #: Options of the command: names of parameters, or `Option` objects.
    options: tuple[str | Option, ...] = ()
    #: Default batteries that contain the analysis.
    batteries: tuple[Member, ...] = ()
    #: Class of MDAnalysis that computes the same quantity, as module.Class below
    #: `MDAnalysis.analysis`.
    counterpart: str = ""
    #: Requirements on the topology or on frames that no attribute of the class declares.
    needs: tuple[str, ...] = ()
    #: Names of additional tables; the value is the help of the option that saves the table.
    further: Mapping[str, str] = field(default_factory=dict)
    #: Help of --select-2 and further atom selections, which are required.
    groups: tuple[str, ...] = ()
    #: True if the command superposes frames (parameter `align`) by default.
    fits: bool = False
    #: File name extensions that -o accepts besides those of tables.
    files: tuple[str, ...] = ()
    #: Values of atoms or residues that -o also writes as the B-factors of a structure.
    on_structure: str = ""
    #: Help of --structures, for analyses that also save results as structures.
    structures: str = ""
    #: True if atoms are selected anew in each frame.
    updating: bool = False
    #: True if the command chooses the atoms without --select, as `select` describes.
    chooses: bool = False
    #: False if the analysis has no command of this name, only battery entries.
    has_command: bool = True
    #: False if batteries cannot contain the analysis under this name.
    in_batteries: bool = True


#: Endings of values on a structure: PDB, and scripts of PyMOL, ChimeraX and VMD beside one.
ON_STRUCTURE = (".pdb", ".pml", ".cxc", ".tcl")
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
#: Longest lag of the additional table of correlations, and the help of that table.
LAGS = Option("tau_max", "longest lag of --correlation, frames [20]", type="positive", metavar="N")
CORRELATION = (
    "write the fraction of {} that are there after a lag, too: again (intermittent), or without a "
    "break (continuous)"
)
