"""Commands of analyses that take a selection and few parameters, from one table."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from paceline.cli.analysis_commands import run_analysis_command
from paceline.cli.options import add_analysis_arguments, add_memory_argument, positive
from paceline.cli.parser import CommandParser


@dataclass(frozen=True)
class Command:
    """A command, and the analysis that it runs.

    Attributes
    ----------
    name : str
        Name of the command, and of the analysis in a battery.
    select : str
        Atoms by default.
    summary, description : str
        What it computes, in a line and in a few.
    examples : sequence of str
        Arguments of example calls.
    options : mapping
        Keywords of the class, with the arguments of their options.
    stages : bool
        True if it may pass over the frames several times.
    """

    name: str
    select: str
    summary: str
    description: str
    examples: Sequence[str]
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    stages: bool = False

    def add(self, commands: Any) -> CommandParser:
        """Add the command and its arguments."""
        lines = [f"  paceline {self.name} {example}" for example in self.examples]
        parser: CommandParser = commands.add_parser(
            self.name,
            help=self.summary,
            description=self.description,
            epilog="\n".join(["examples:", *lines]) + "\n",
        )
        add_analysis_arguments(parser, select=self.select)
        if self.stages:
            add_memory_argument(parser)
        for keyword, given in self.options.items():
            option = f"--{keyword.replace('_', '-')}"
            parser.section("calculation").add_argument(option, **given)
        parser.set_defaults(run=run_analysis_command, analysis_of=self.analysis_of)
        return parser

    def analysis_of(self, args: argparse.Namespace) -> Any:
        """Open the Universe, and make the analysis that arguments ask for."""
        from paceline.analysis.battery import class_of
        from paceline.cli.analysis_steps import open_universe, selected

        universe = open_universe(args)
        options = {name: getattr(args, name) for name in self.options}
        return class_of(self.name)(selected(universe, args.select), **options)


COMMANDS = (
    Command(
        "gyration",
        "protein",
        "radius of gyration and shape",
        "Radius of gyration (Å), also about x, y and z, moments of the gyration tensor (Å²), "
        "asphericity and shape parameter of each frame, weighted by mass. Molecules must be whole: "
        "--unwrap makes them so.",
        (
            "adk.psf adk.dcd -o gyration.csv --plot gyration.png",
            "md.tpr md.xtc --select protein --unwrap --compound segments -o gyration.npz",
        ),
        {
            "compound": {
                "choices": ("group", "residues", "segments", "fragments"),
                "default": "group",
                "help": "all atoms together, or each residue, segment or molecule by itself "
                "[%(default)s]",
            },
        },
    ),
    Command(
        "ramachandran",
        "protein",
        "backbone dihedrals φ and ψ of each residue",
        "Dihedral angles φ and ψ (degrees) of each residue that has both, and their plot.",
        (
            "adk.psf adk.dcd -o angles.csv --plot ramachandran.png",
            'md.tpr md.xtc --select "resid 10-20" -o angles.npz',
        ),
    ),
    Command(
        "chi",
        "protein",
        "side-chain dihedrals χ1 to χ5 of each residue",
        "Dihedral angles χ1 to χ5 (degrees) of the side chains of all residues that have them.",
        ('md.tpr md.xtc --select "resid 10-20" -o chi.csv --plot chi.png',),
    ),
    Command(
        "dssp",
        "protein",
        "secondary structure of each residue",
        "Secondary structure of each residue in each frame: helix (H), strand (E) or neither (-), "
        "by hydrogen bonds between backbone atoms.",
        ("adk.psf adk.dcd -o dssp.csv --plot dssp.png",),
    ),
    Command(
        "hbonds",
        "protein",
        "hydrogen bonds: their number, and as .npz each of them",
        "Number of hydrogen bonds in each frame; as .npz also each bond: frame, donor, hydrogen, "
        "acceptor, distance (Å) and angle (degrees). Donors are known by bonds, hydrogens and "
        "acceptors by mass and charge, of the selected atoms.",
        (
            "adk.psf adk.dcd -o hbonds.csv --plot hbonds.png",
            'md.tpr md.xtc --select all --between protein "resname SOL" -o hbonds.npz',
        ),
        {
            "between": {
                "nargs": 2,
                "default": None,
                "metavar": "SELECTION",
                "help": "only bonds between atoms of these two",
            },
            "donors_sel": {
                "default": None,
                "metavar": "SELECTION",
                "help": "donors, which are then known by their distance from hydrogens",
            },
            "hydrogens_sel": {"default": None, "metavar": "SELECTION", "help": "hydrogens"},
            "acceptors_sel": {"default": None, "metavar": "SELECTION", "help": "acceptors"},
            "d_a_cutoff": {
                "type": float,
                "default": 3.0,
                "metavar": "Å",
                "help": "largest distance from donor to acceptor, Å [%(default)s]",
            },
            "d_h_a_angle_cutoff": {
                "type": float,
                "default": 150.0,
                "metavar": "DEGREES",
                "help": "smallest angle at the hydrogen [%(default)s]",
            },
            "criterion": {
                "choices": ("mdanalysis", "baker_hubbard", "wernet_nilsson", "gromacs"),
                "default": "mdanalysis",
                "help": "another criterion, which has its own limits [%(default)s]",
            },
        },
    ),
    Command(
        "sasa",
        "protein",
        "solvent-accessible surface area",
        "Solvent-accessible surface area (Å²) of each frame, by points on spheres (Shrake & "
        "Rupley), of the selected atoms as if there were no others.",
        (
            "adk.psf adk.dcd -o sasa.csv --plot sasa.png",
            "md.tpr md.xtc --select protein --unwrap --compound residues -o sasa.npz",
        ),
        {
            "n_points": {
                "type": positive,
                "default": 960,
                "metavar": "N",
                "help": "points on each sphere [%(default)s]",
            },
            "probe_radius": {
                "type": float,
                "default": 1.4,
                "metavar": "Å",
                "help": "radius of the solvent, Å [%(default)s]",
            },
            "compound": {
                "choices": ("group", "residues", "atoms"),
                "default": "group",
                "help": "area of all atoms together, of each residue, or of each atom "
                "[%(default)s]",
            },
        },
    ),
    Command(
        "pca",
        "protein and name CA",
        "principal components of the motion",
        "Principal components of the positions, in decreasing order of their variance (Å²): a "
        "table of variances, or as .npz all components, and projections of all frames on some.",
        (
            "adk.psf adk.dcd --align -o pca.csv --plot pca.png",
            "md.tpr md.xtc --unwrap --align --n-components 10 --n-projected 3 -o pca.npz",
        ),
        {
            "align": {
                "action": "store_true",
                "default": False,
                "help": "superpose each frame on the first one before",
            },
            "n_components": {
                "type": positive,
                "default": None,
                "metavar": "N",
                "help": "components to keep [all]",
            },
            "n_projected": {
                "type": positive,
                "default": 0,
                "metavar": "N",
                "help": "components that all frames are projected on [none]",
            },
        },
        stages=True,
    ),
)
