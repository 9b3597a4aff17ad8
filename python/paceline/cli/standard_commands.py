"""Commands of analyses that take a selection and few parameters, from one table."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paceline.cli.analysis_commands import run_analysis_command
from paceline.cli.options import add_analysis_arguments, positive
from paceline.cli.parser import CommandParser
from paceline.errors import SelectionError, UnsupportedError

#: Makes an analysis: of the Universe, the arguments, the atoms of each selection, and options.
Make = Callable[[Any, argparse.Namespace, list[Any], dict[str, Any]], Any]


@dataclass(frozen=True)
class Command:
    """A command, and the analysis that it runs.

    Attributes
    ----------
    name : str
        Name of the command, and of the analysis in a battery.
    select : str
        Atoms by default; empty where they must be given.
    summary, description : str
        What it computes, in a line and in a few.
    examples : sequence of str
        Arguments of example calls.
    options : mapping
        Keywords of the class, with the arguments of their options; `flag` is the option's name
        where that is another.
    groups : sequence of str
        Help for --select-2 and so on, which must be given.
    files : sequence of str
        Endings of other files than tables that -o may have.
    make : callable, optional
        Makes the analysis, where it takes more than the atoms and the options.
    structures : str
        Help for --structures, where results are also saved as structures.
    updating : bool
        True if atoms are selected anew in each frame.
    further : mapping
        Names of further tables of the analysis, with the help of options that save them.
    """

    name: str
    select: str
    summary: str
    description: str
    examples: Sequence[str]
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    groups: Sequence[str] = ()
    files: Sequence[str] = ()
    make: Make | None = None
    structures: str = ""
    updating: bool = False
    further: Mapping[str, str] = field(default_factory=dict)

    def add(self, commands: Any) -> CommandParser:
        """Add the command and its arguments."""
        lines = [f"  paceline {self.name} {example}" for example in self.examples]
        parser: CommandParser = commands.add_parser(
            self.name,
            help=self.summary,
            description=self.description,
            epilog="\n".join(["examples:", *lines]) + "\n",
        )
        add_analysis_arguments(parser, select=self.select, files=self.files)
        for number, explained in enumerate(self.groups, start=2):
            parser.section("atoms").add_argument(
                f"--select-{number}", required=True, metavar="TEXT", help=explained
            )
        if self.structures:
            parser.section("output").add_argument(
                "--structures", type=Path, metavar="FILE", help=f"{self.structures}: .pdb or .xyz"
            )
        for name, explained in self.further.items():
            parser.section("output").add_argument(
                f"--{name}", type=Path, metavar="FILE", help=f"{explained}: .csv, .tsv, or a figure"
            )
        for keyword, given in self.options.items():
            arguments = dict(given)
            flag = arguments.pop("flag", f"--{keyword.replace('_', '-')}")
            parser.section("calculation").add_argument(flag, dest=keyword, **arguments)
        parser.set_defaults(
            run=run_analysis_command, analysis_of=self.analysis_of, further=[*self.further]
        )
        return parser

    def analysis_of(self, args: argparse.Namespace) -> Any:
        """Open the Universe, and make the analysis that arguments ask for."""
        from paceline.analysis.battery import class_of
        from paceline.cli.analysis_steps import open_universe, selected

        universe = open_universe(args)
        options = {name: getattr(args, name) for name in self.options}
        texts = [
            args.select or "all",
            *(getattr(args, f"select_{k + 2}") for k in range(len(self.groups))),
        ]
        groups = [selected(universe, text, updating=self.updating) for text in texts]
        if self.make is not None:
            return self.make(universe, args, groups, options)
        return class_of(self.name)(*groups, **options)


def _contacts(universe: Any, args: argparse.Namespace, groups: list[Any], options: Any) -> Any:
    from paceline.analysis.contacts import Contacts
    from paceline.cli.analysis_steps import reference_at, selected

    reference = reference_at(universe, options.pop("ref"))
    there = tuple(selected(reference, text) for text in (args.select, args.select_2))
    return Contacts(universe, tuple(groups), there, **options)


def _distances(universe: Any, args: argparse.Namespace, groups: list[Any], options: Any) -> Any:
    from paceline.analysis import distances

    between, weights = options.pop("between"), options.pop("weights")
    if between == "centers":
        given = None if weights == "none" else weights
        return distances.CenterDistance(*groups, weights=given, **options)
    if between == "all":
        if args.plot is not None or args.output is None or args.output.suffix.lower() != ".npz":
            raise UnsupportedError(
                "distances of all pairs are no table: save them with -o FILE.npz, and without "
                "--plot; 'paceline distance-map' has their means, and a figure"
            )
        return distances.DistanceMatrixSeries(*groups, **options)
    kinds = {"pairs": distances.AtomicDistances, "minimum": distances.MinimumDistance}
    return kinds[between](*groups, **options)


def _dihedrals(universe: Any, args: argparse.Namespace, groups: list[Any], options: Any) -> Any:
    from paceline.analysis.dihedrals import Dihedral

    counts = {len(group) for group in groups}
    if len(counts) > 1:
        found = ", ".join(str(len(group)) for group in groups)
        raise SelectionError(
            f"dihedrals: the four selections must have as many atoms each, not {found}"
        )
    atoms = zip(*(group.indices for group in groups), strict=True)
    return Dihedral([universe.atoms[list(four)] for four in atoms])


def _distance_map(universe: Any, args: argparse.Namespace, groups: list[Any], options: Any) -> Any:
    from paceline.analysis.distances import DistanceMap
    from paceline.cli.analysis_steps import selected

    other = options.pop("other")
    second = None if other is None else selected(universe, other)
    return DistanceMap(groups[0], second, **options)


def _density(universe: Any, args: argparse.Namespace, groups: list[Any], options: Any) -> Any:
    from paceline.analysis.density import DensityAnalysis

    size = options.pop("size")
    if (size is None) != (options["gridcenter"] is None):
        raise UnsupportedError("give both --gridcenter and --size, or none of them")
    edges = {} if size is None else dict(zip(("xdim", "ydim", "zdim"), size, strict=True))
    return DensityAnalysis(groups[0], **options, **edges)


def _average(universe: Any, args: argparse.Namespace, groups: list[Any], options: Any) -> Any:
    from paceline.analysis.align import AverageStructure
    from paceline.cli.analysis_steps import reference_of

    ref, is_frame = args.ref, args.ref.lstrip("-").isdigit()
    return AverageStructure(
        universe,
        None if is_frame else reference_of(universe, ref),
        select=args.select,
        weights=options["weights"],
        ref_frame=int(ref) if is_frame else 0,
    )


def _msd(universe: Any, args: argparse.Namespace, groups: list[Any], options: Any) -> Any:
    from paceline.analysis.msd import EinsteinMSD

    # --unwrap makes molecules whole, in this command as in all.
    return EinsteinMSD(*groups, unwrap=options.pop("unwrap_particles"), **options)


def _velocities(universe: Any, args: argparse.Namespace, groups: list[Any], options: Any) -> Any:
    from paceline.analysis.correlation import VelocityAutocorrelation

    return VelocityAutocorrelation(*groups)


def _currents(universe: Any, args: argparse.Namespace, groups: list[Any], options: Any) -> Any:
    from paceline.analysis.correlation import CurrentAutocorrelation

    return CurrentAutocorrelation(*groups, **options)


def _survival(universe: Any, args: argparse.Namespace, groups: list[Any], options: Any) -> Any:
    from paceline.analysis.waterdynamics import SurvivalProbability

    return SurvivalProbability(universe, args.select, **options)


def _order(universe: Any, args: argparse.Namespace, groups: list[Any], options: Any) -> Any:
    from paceline.analysis.order import SCH, OrderParameter
    from paceline.cli.analysis_steps import selected

    other, hydrogens = options.pop("other"), options.pop("hydrogens")
    if other is None:
        chosen = None if hydrogens is None else selected(universe, hydrogens)
        return SCH(groups[0], hydrogens=chosen, **options)
    if hydrogens is not None:
        raise UnsupportedError("--select-2 is of other vectors than bonds to --hydrogens: give one")
    return OrderParameter(groups[0], selected(universe, other), **options)


#: Options that several commands have.
REF = {
    "default": "0",
    "metavar": "FRAME|FILE",
    "help": "reference: a frame number of the trajectory, or a structure file, taken as it is "
    "[%(default)s]",
}
PBC = {
    "flag": "--no-pbc",
    "action": "store_false",
    "default": True,
    "help": "take positions as they are, and no nearest images",
}
MASS = {
    "flag": "--mass",
    "action": "store_const",
    "const": "mass",
    "default": None,
    "help": "weigh atoms by their masses",
}

TEMPERATURE = {
    "type": float,
    "default": 300.0,
    "metavar": "K",
    "help": "temperature of the simulation, K [%(default)g]",
}

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
        "by hydrogen bonds between backbone atoms; or in the letters of the program DSSP.",
        (
            "adk.psf adk.dcd -o dssp.csv --plot dssp.png",
            "md.tpr md.xtc --variant dssp4 -o dssp.csv --plot dssp.png",
        ),
        {
            "variant": {
                "choices": ("dssp2", "dssp4"),
                "default": None,
                "help": "letters of DSSP 2.2 (H B E G I T S) or 4 (P, too) [H and E alone]",
            },
        },
    ),
    Command(
        "hbonds",
        "protein",
        "hydrogen bonds: their number, and as .npz each of them",
        "Number of hydrogen bonds in each frame; as .npz also each bond: frame, donor, hydrogen, "
        "acceptor, distance (Å) and angle (degrees). Donors are known by bonds, hydrogens and "
        "acceptors by mass and charge, of the selected atoms.",
        (
            "adk.psf adk.dcd -o hbonds.csv --plot hbonds.png --frequent frequent.csv",
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
        further={"frequent": "write in which fraction of the frames each bond is"},
    ),
    Command(
        "selection",
        "",
        "atoms selected anew in each frame: their number, and as .npz each of them",
        "Number of atoms that a selection finds in each frame, such as the waters of the first "
        "shell; as .npz also their indices (atoms), those of frame k from offsets[k] to "
        "offsets[k + 1].",
        (
            'md.tpr md.xtc --select "name OW and around 3.5 protein" -o shell.csv --plot shell.png',
            'md.tpr md.xtc --select "resname SOL and cyzone 4 12 -12 protein" -o pore.npz',
        ),
        updating=True,
    ),
    Command(
        "survival",
        "",
        "survival probability of atoms or residues in a region",
        "Mean fraction of the atoms in a region that are there in each frame of the time that "
        "follows (waterdynamics.SurvivalProbability), against that time. The region is a "
        "selection, evaluated in each frame.",
        (
            'md.tpr md.xtc --select "name OW and around 3.5 protein" -o survival.csv',
            'md.tpr md.xtc --select "resname SOL and sphzone 6 resid 10" --residues --tau-max 50 '
            "--intermittency 2 --plot survival.png",
        ),
        {
            "tau_max": {
                "type": positive,
                "default": 20,
                "metavar": "N",
                "help": "largest time, frames [%(default)s]",
            },
            "window_step": {
                "type": positive,
                "default": 1,
                "metavar": "N",
                "help": "frames from one origin to the next [%(default)s]",
            },
            "intermittency": {
                "type": int,
                "default": 0,
                "metavar": "N",
                "help": "an absence of up to N frames does not count [%(default)s]",
            },
            "residues": {
                "action": "store_true",
                "default": False,
                "help": "follow residues, which are there while any of their atoms is",
            },
        },
        make=_survival,
        updating=True,
    ),
    Command(
        "coordination",
        "",
        "coordination numbers: neighbours of each atom",
        "Mean number of the atoms of --select-2 within a distance of each atom of --select; as "
        ".npz also that of each atom in each frame.",
        (
            'md.tpr md.xtc --select "resname NA" --select-2 "name OW" --cutoff 3.2 -o na.csv',
            'md.tpr md.xtc --select "resname NA" --select-2 "name OW" --cutoff 3.2 -o na.npz',
        ),
        {
            "cutoff": {
                "type": float,
                "default": 4.5,
                "metavar": "Å",
                "help": "largest distance of neighbours, Å [%(default)s]",
            },
            "exclude_same": {
                "choices": ("residue", "segment", "chain", "fragment"),
                "default": None,
                "help": "do not count atoms in the same one",
            },
            "pbc": PBC,
        },
        groups=("the neighbours",),
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
    ),
    Command(
        "contacts",
        "",
        "fraction of native contacts",
        "Fraction Q of the contacts of a reference that each frame has: pairs of an atom of "
        "--select and one of --select-2 that are within --radius there.",
        (
            'md.tpr md.xtc --select "protein and name CA" --select-2 "protein and name CA" '
            "--radius 8 -o q.csv --plot q.png",
            'md.tpr md.xtc --select "resname ASP GLU and name OE* OD*" '
            '--select-2 "resname LYS ARG and name NZ NH*" --method soft_cut --ref crystal.pdb',
        ),
        {
            "radius": {
                "type": float,
                "default": 4.5,
                "metavar": "Å",
                "help": "pairs as near in the reference are contacts, Å [%(default)s]",
            },
            "method": {
                "choices": ("hard_cut", "soft_cut", "radius_cut"),
                "default": "hard_cut",
                "help": "a contact counts if it is not longer than in the reference, by a smooth "
                "step, or if it is within the radius [%(default)s]",
            },
            "ref": REF,
            "pbc": PBC,
        },
        groups=("atoms of the second group",),
        make=_contacts,
    ),
    Command(
        "contact-map",
        "protein",
        "how often residues are in contact",
        "Fraction of frames in which two residues are in contact: the shortest distance between "
        "their atoms, which the scheme chooses, is at most --cutoff.",
        (
            "adk.psf adk.dcd -o contacts.tsv --plot contacts.png",
            "adk.psf adk.dcd --scheme ca --cutoff 8 --plot contacts.pdf",
        ),
        {
            "cutoff": {
                "type": float,
                "default": 4.5,
                "metavar": "Å",
                "help": "longest distance of a contact, Å [%(default)s]",
            },
            "scheme": {
                "choices": ("ca", "closest", "closest-heavy", "sidechain", "sidechain-heavy"),
                "default": "closest-heavy",
                "help": "atoms of a residue that count, as in MDTraj [%(default)s]",
            },
            "pbc": PBC,
        },
    ),
    Command(
        "distances",
        "",
        "distances between two groups: pairs, centers, least, or all",
        "Distances (Å) of each frame between two groups of atoms, by nearest images: of the first "
        "atom to the first, the second to the second; of the centers of the groups; of the atoms "
        "that are nearest to each other; or of all pairs.",
        (
            'adk.psf adk.dcd --select "resid 55 and name CA" --select-2 "resid 169 and name CA"',
            'adk.psf adk.dcd --select "resid 1-29" --select-2 "resid 122-159" --between centers '
            "-o lid.csv --plot lid.png",
            'adk.psf adk.dcd --select "resid 1-29" --select-2 "resid 122-159" --between minimum',
        ),
        {
            "between": {
                "choices": ("pairs", "centers", "minimum", "all"),
                "default": "pairs",
                "help": "distances to compute [%(default)s]; of all pairs only as .npz",
            },
            "weights": {
                "choices": ("mass", "none"),
                "default": "mass",
                "help": "centers of mass, or of geometry [%(default)s]",
            },
            "pbc": PBC,
        },
        groups=("atoms of the second group",),
        make=_distances,
    ),
    Command(
        "distance-map",
        "protein and name CA",
        "mean distance of each pair of atoms",
        "Mean distance (Å) of each pair of atoms over all frames, and its standard deviation, by "
        "nearest images.",
        (
            "adk.psf adk.dcd -o map.tsv --plot map.png",
            'adk.psf adk.dcd --select "resid 1-29 and name CA" '
            '--select-2 "resid 122-159 and name CA" --plot lid.png',
        ),
        {
            "other": {
                "flag": "--select-2",
                "default": None,
                "metavar": "TEXT",
                "help": "atoms of the second group [pairs within the first]",
            },
            "pbc": PBC,
        },
        make=_distance_map,
    ),
    Command(
        "angles",
        "",
        "angles between three atoms",
        "Angles (degrees, 0 to 180) of each frame, at the atoms of --select-2: the first of each "
        "selection make the first angle, the second the second.",
        (
            'adk.psf adk.dcd --select "resid 30 and name N" --select-2 "resid 30 and name CA" '
            '--select-3 "resid 30 and name C" -o angle.csv --plot angle.png',
        ),
        {"pbc": PBC},
        groups=("atoms at which the angles are", "atoms at the other ends"),
    ),
    Command(
        "dihedrals",
        "",
        "dihedral angles between four atoms",
        "Dihedral angles (degrees, -180 to 180) of each frame: the first atoms of the four "
        "selections make the first angle, the second the second.",
        (
            'adk.psf adk.dcd --select "resid 13 and name N" --select-2 "resid 13 and name CA" '
            '--select-3 "resid 13 and name CB" --select-4 "resid 13 and name CG" '
            "-o chi1.csv --plot chi1.png",
        ),
        groups=("the second atoms", "the third atoms", "the fourth atoms"),
        make=_dihedrals,
    ),
    Command(
        "density",
        "",
        "density of atoms on a grid",
        "Mean number of atoms in each voxel over its volume (Å⁻³). Center and fit the solute, and "
        "give the grid, where frames are transformed. Tables and figures have the mean along z; "
        "-o FILE.dx or FILE.mrc the grid, for programs that draw isosurfaces.",
        (
            'md.tpr md.xtc --select "name OW" -o water.dx --plot water.png',
            'md.tpr md.xtc --select "name OW" --unwrap --center --fit --gridcenter 40 40 40 '
            "--size 60 60 60 -o water.mrc",
        ),
        {
            "delta": {
                "type": float,
                "default": 1.0,
                "metavar": "Å",
                "help": "edge of the voxels, Å [%(default)s]",
            },
            "padding": {
                "type": float,
                "default": 2.0,
                "metavar": "Å",
                "help": "space around the atoms of the first frame, Å [%(default)s]",
            },
            "gridcenter": {
                "nargs": 3,
                "type": float,
                "default": None,
                "metavar": ("X", "Y", "Z"),
                "help": "center of the grid, Å [that of the atoms in the first frame]",
            },
            "size": {
                "nargs": 3,
                "type": float,
                "default": None,
                "metavar": ("X", "Y", "Z"),
                "help": "edges of the grid, Å; with --gridcenter",
            },
        },
        files=(".dx", ".mrc"),
        make=_density,
    ),
    Command(
        "lineardensity",
        "all",
        "density of mass and charge along x, y and z",
        "Densities of mass (g cm⁻³) and charge (e mol cm⁻³) in slices of the cell along x, y and "
        "z, means over frames and standard deviations.",
        (
            "md.tpr md.xtc -o density.csv --plot density.png",
            "md.tpr md.xtc --select POPC --binsize 0.5 --grouping residues --unwrap -o lipids.tsv",
        ),
        {
            "grouping": {
                "choices": ("atoms", "residues", "segments", "fragments"),
                "default": "atoms",
                "help": "count atoms, or parts at their centers of mass [%(default)s]",
            },
            "binsize": {
                "type": float,
                "default": 0.25,
                "metavar": "Å",
                "help": "width of the slices, Å [%(default)s]",
            },
        },
    ),
    Command(
        "dielectric",
        "all",
        "static dielectric constant",
        "Dielectric constant from the fluctuations of the dipole moment, and dipole moments (e Å) "
        "of all frames. The figure shows the constant of the frames so far: is it converged?",
        (
            "water.tpr water.xtc -o dielectric.csv --plot dielectric.png",
            "md.tpr md.xtc --select water --temperature 310 -b 10ns",
        ),
        {"temperature": TEMPERATURE},
    ),
    Command(
        "average",
        "protein",
        "average structure",
        "Mean positions (Å) of atoms, of frames superposed on a reference, and RMSF about them; "
        "-o FILE.pdb or FILE.gro writes the structure. Molecules must be whole: --unwrap makes "
        "them so.",
        (
            "adk.psf adk.dcd -o average.pdb --plot rmsf.png",
            "md.tpr md.xtc --unwrap --select backbone --ref crystal.pdb --mass -o average.gro",
        ),
        {"ref": REF, "weights": MASS},
        files=(".pdb", ".gro", ".crd", ".xyz"),
        make=_average,
    ),
    Command(
        "rmsd-matrix",
        "protein and name CA",
        "RMSD of each frame from each other",
        "RMSD (Å) of each frame from each other one, superposed pair by pair: a table of means, a "
        "figure of the matrix, or as .npz all numbers. Molecules must be whole: --unwrap makes "
        "them so.",
        (
            "adk.psf adk.dcd --plot matrix.png -o matrix.npz",
            "md.tpr md.xtc --unwrap --select backbone --mass --step 10 --plot matrix.png",
        ),
        {
            "superposition": {
                "flag": "--no-superposition",
                "action": "store_false",
                "default": True,
                "help": "compare positions as they are",
            },
            "weights": MASS,
        },
    ),
    Command(
        "cluster",
        "protein and name CA",
        "clusters of similar frames",
        "Cluster of each frame, by the RMSD of each pair of frames after superposition: from 0, by "
        "size, the largest first. With gromos, the frame with most neighbours and these are a "
        "cluster, and so on with what remains. Molecules must be whole: --unwrap makes them so.",
        (
            "adk.psf adk.dcd --cutoff 1.5 -o clusters.csv --plot clusters.png",
            "md.tpr md.xtc --unwrap --select backbone --method k-medoids --n-clusters 5 "
            "--structures medoids.pdb",
        ),
        {
            "method": {
                "choices": ("gromos", "leader", "k-medoids"),
                "default": "gromos",
                "help": "method; gromos and leader need --cutoff, k-medoids --n-clusters "
                "[%(default)s]",
            },
            "cutoff": {
                "type": float,
                "default": None,
                "metavar": "Å",
                "help": "frames with a smaller RMSD are neighbours, Å",
            },
            "n_clusters": {
                "type": positive,
                "default": None,
                "metavar": "N",
                "help": "number of clusters",
            },
            "weights": MASS,
        },
        structures="write the selected atoms of the frame at the center of each cluster",
    ),
    Command(
        "msd",
        "",
        "mean squared displacement, and diffusion coefficient",
        "Mean squared displacement (Å²) against the time between frames, and the diffusion "
        "coefficient (cm²/s) of a straight line that is fitted, with its standard error over "
        "particles. Positions must be unwrapped: --unwrap-particles undoes jumps of particles "
        "through the borders of the cell, --nojump those of all atoms.",
        (
            'md.tpr md.xtc --select "name OW" --unwrap-particles tor -o msd.csv --plot msd.png',
            "md.tpr md.xtc --select POPC --unwrap --compound fragments --unwrap-particles tor "
            "--msd-type xy --fit-range 1000 10000 --plot msd.png",
        ),
        {
            "msd_type": {
                "choices": ("xyz", "xy", "yz", "xz", "x", "y", "z"),
                "default": "xyz",
                "help": "dimensions that count [%(default)s]",
            },
            "compound": {
                "choices": ("atoms", "residues", "segments", "fragments"),
                "default": "atoms",
                "help": "atoms, or centers of mass of residues, segments or molecules "
                "[%(default)s]",
            },
            "unwrap_particles": {
                "choices": ("tor", "lattice"),
                "default": None,
                "help": "undo their jumps across the cell: tor adds up shortest steps, right for "
                "diffusion in a varying cell, lattice is as --nojump [neither]",
            },
            "fit_range": {
                "nargs": 2,
                "type": float,
                "default": (None, None),
                "metavar": ("FIRST", "LAST"),
                "help": "times between frames of the fit, ps [10 and 50 %% of the longest]",
            },
        },
        make=_msd,
    ),
    Command(
        "velocity-autocorrelation",
        "all",
        "autocorrelation of velocities, and its spectrum",
        "Autocorrelation of the velocities (Å²/ps²) of atoms against the time between frames; as "
        ".npz also its spectrum (Å²/ps) against frequencies (THz), and its integral. The "
        "trajectory must hold velocities.",
        ('md.tpr md.trr --select "name OW" -o velocities.csv --plot velocities.png',),
        make=_velocities,
    ),
    Command(
        "dipole-autocorrelation",
        "all",
        "autocorrelation of the dipole moment, and its relaxation time",
        "Autocorrelation of the dipole moment ((e Å)²) of whole neutral molecules against the time "
        "between frames, and its integral over its first value (ps): up to where it is not above "
        "0, the relaxation time, in the lines above the table.",
        (
            "water.tpr water.xtc -o dipole.csv --plot dipole.png",
            "md.tpr md.xtc --select water -b 10ns -o dipole.npz",
        ),
    ),
    Command(
        "current-autocorrelation",
        "all",
        "autocorrelation of the electric current, and ionic conductivity",
        "Autocorrelation of the current ((e Å/ps)²) of charged atoms against the time between "
        "frames, and the ionic conductivity (S/m) by the integral up to there (Green and Kubo): "
        "the figure shows where it levels off. The trajectory must hold velocities.",
        ('md.tpr md.trr --select "resname NA CL" --temperature 310 -o current.csv --plot s.png',),
        {"temperature": TEMPERATURE},
        make=_currents,
    ),
    Command(
        "leaflets",
        "",
        "leaflets of a membrane, and lipids that change them",
        "Number of headgroups in each leaflet, in each frame: the two largest connected components "
        "of headgroups within --cutoff of each other; as .npz also the component and the leaflet "
        "of each, and how often it changed them.",
        (
            'md.tpr md.xtc --select "name P" -o leaflets.csv --plot leaflets.png',
            'martini.gro martini.xtc --select "name PO4 ROH" --cutoff 12 -o leaflets.npz',
        ),
        {
            "cutoff": {
                "type": float,
                "default": 15.0,
                "metavar": "Å",
                "help": "headgroups as near are in the same leaflet, Å [%(default)s]",
            },
            "pbc": PBC,
        },
    ),
    Command(
        "order",
        "",
        "order parameters of lipid tails",
        "Order parameter S_CH of the bonds between carbon and hydrogen, by the name of the carbon, "
        "means over lipids of each frame; with --select-2 that of vectors from the first atom of "
        "--select to the first one of --select-2, and so on. The figure shows means over frames.",
        (
            'md.tpr md.xtc --select "resname POPC and name C2? C2?? C3? C3??" -o order.csv '
            "--plot order.png",
            'martini.tpr martini.xtc --select "name C1A C2A" --select-2 "name C2A C3A" -o p2.csv',
        ),
        {
            "other": {
                "flag": "--select-2",
                "default": None,
                "metavar": "TEXT",
                "help": "atoms to which vectors are [hydrogens that are bonded]",
            },
            "hydrogens": {
                "default": None,
                "metavar": "TEXT",
                "help": "hydrogens [known by elements or masses]",
            },
            "axis": {
                "choices": ("x", "y", "z"),
                "default": "z",
                "help": "normal of the membrane [%(default)s]",
            },
            "pbc": PBC,
        },
        make=_order,
    ),
)
