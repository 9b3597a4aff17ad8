"""Commands of liquids and membranes: densities, neighbours, diffusion, currents, order."""

import argparse
from typing import Any

from paceline.cli.analysis_commands import (
    CORRELATION,
    LAGS,
    PBC,
    TEMPERATURE,
    Command,
    choice,
    correlation_lags,
    count,
    number,
)
from paceline.cli.options import lag
from paceline.errors import UnsupportedError


def _density(universe: Any, args: argparse.Namespace, groups: list[Any], options: Any) -> Any:
    from paceline.analysis.density import DensityAnalysis

    size = options.pop("size")
    if (size is None) != (options["gridcenter"] is None):
        raise UnsupportedError("give both --gridcenter and --size, or none of them")
    if size is not None and not min(size) > 0:
        raise UnsupportedError(f"--size must be three lengths above 0, in Å, not {size}")
    edges = {} if size is None else dict(zip(("xdim", "ydim", "zdim"), size, strict=True))
    return DensityAnalysis(groups[0], **options, **edges)


def _msd(universe: Any, args: argparse.Namespace, groups: list[Any], options: Any) -> Any:
    from paceline.analysis.msd import EinsteinMSD

    # --unwrap makes molecules whole, in this command as in all.
    scheme = options.pop("unwrap_particles")
    return EinsteinMSD(*groups, unwrap=None if scheme == "none" else scheme, **options)


def _selected(universe: Any, args: argparse.Namespace, groups: list[Any], options: Any) -> Any:
    from paceline.analysis.groups import SelectedAtoms

    analysis = SelectedAtoms(*groups)
    analysis.correlation_lags = correlation_lags(args)
    return analysis


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


#: Options of commands that search neighbours.
NEIGHBOURS: dict[str, dict[str, Any]] = {
    "cutoff": number("largest distance of neighbours, Å [%(default)s]", 4.5, "Å"),
    "exclude_same": choice(
        "leave out atoms in the same one", ("residue", "segment", "chain", "fragment"), None
    ),
    "pbc": PBC,
}

COMMANDS = (
    Command(
        "selection",
        "",
        "atoms selected anew in each frame: their number, and as .npz each of them",
        "Number of atoms that a selection finds in each frame, such as the waters of the first "
        "shell; as .npz also their indices (atoms), those of frame k from offsets[k] to "
        "offsets[k + 1].",
        (
            'md.tpr md.xtc --select "name OW and around 3.5 protein" -o shell.csv --plot shell.png',
            'md.tpr md.xtc --select "name OW and cyzone 4 12 -12 protein" --correlation pore.csv',
        ),
        {"tau_max": LAGS},
        make=_selected,
        updating=True,
        further={"correlation": CORRELATION.format("atoms")},
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
            "tau_max": count("largest time, frames [20, or as many as there are]", None),
            "window_step": count("frames from one origin to the next [%(default)s]", 1),
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
        NEIGHBOURS,
        groups=("the neighbours",),
    ),
    Command(
        "neighbors",
        "",
        "pairs of atoms within a distance: their number, and as .npz each of them",
        "Number of pairs of an atom of --select and one of --select-2 within a distance, in each "
        "frame; as .npz also each pair: indices of both atoms, and the distance (Å).",
        (
            'md.tpr md.xtc --select "resname LIG" --select-2 protein --frequent residues.csv',
            'md.tpr md.xtc --select "resname ASP GLU and name OD* OE*" '
            '--select-2 "resname ARG LYS and name NH* NZ" --cutoff 4 -o bridges.npz',
        ),
        NEIGHBOURS,
        groups=("the other atoms of the pairs",),
        further={"frequent": "write in which fraction of the frames two residues have a pair"},
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
            "delta": number("edge of the voxels, Å [%(default)s]", 1.0, "Å"),
            "padding": number(
                "space around the atoms of the first frame, Å [%(default)s]", 2.0, "Å"
            ),
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
            "grouping": choice(
                "count atoms, or parts at their centers of mass [%(default)s]",
                ("atoms", "residues", "segments", "fragments"),
                "atoms",
            ),
            "binsize": number("width of the slices, Å [%(default)s]", 0.25, "Å"),
        },
    ),
    Command(
        "dielectric",
        "all",
        "static dielectric constant",
        "Dielectric constant from the fluctuations of the dipole moment, and dipole moments (e Å) "
        "of all frames. The lines above the table have the 95 % interval of the constant, and say "
        "where it is not converged; the figure shows the constant of the frames so far.",
        (
            "water.tpr water.xtc -o dielectric.csv --plot dielectric.png",
            "md.tpr md.xtc --select water --temperature 310 -b 10ns",
        ),
        {"temperature": TEMPERATURE},
    ),
    Command(
        "msd",
        "",
        "mean squared displacement, and diffusion coefficient",
        "Mean squared displacement (Å²) against the time between frames, and the diffusion "
        "coefficient (cm²/s) of a straight line that is fitted, with its 95 % interval by "
        "molecules, or by blocks of time. Positions must be unwrapped: --unwrap-particles undoes "
        "jumps of particles through the borders of the cell, --nojump those of all atoms.",
        (
            'md.tpr md.xtc --select "name OW" --unwrap-particles tor -o msd.csv --plot msd.png',
            "md.tpr md.xtc --select POPC --unwrap --compound fragments "
            "--msd-type xy --fit-range 1000 10000 --plot msd.png",
        ),
        {
            "msd_type": choice(
                "dimensions that count [%(default)s]",
                ("xyz", "xy", "yz", "xz", "x", "y", "z"),
                "xyz",
            ),
            "compound": choice(
                "atoms, or centers of mass of residues, segments or molecules [%(default)s]",
                ("atoms", "residues", "segments", "fragments"),
                "atoms",
            ),
            "unwrap_particles": choice(
                "undo their jumps across the cell: tor adds up shortest steps, right for "
                "diffusion in a varying cell, lattice is as --nojump; auto is tor for centers, "
                "none for atoms [%(default)s]",
                ("auto", "tor", "lattice", "none"),
                "auto",
            ),
            "fit_range": {
                "nargs": 2,
                "type": lag,
                "default": (None, None),
                "metavar": ("FIRST", "LAST"),
                "help": "times between frames of the fit: ps, or with a unit [10 and 50 %% of the "
                "longest]",
            },
        },
        make=_msd,
    ),
    Command(
        "velocity-autocorrelation",
        "all",
        "autocorrelation of velocities, and its spectrum",
        "Autocorrelation of the velocities (Å²/ps²) of atoms against the time between frames, "
        "and the diffusion coefficient (10⁻⁵ cm²/s) by the integral up to there. The trajectory "
        "must hold velocities.",
        (
            'md.tpr md.trr --select "name OW" -o velocities.csv --plot velocities.png '
            "--spectrum spectrum.png",
        ),
        further={"spectrum": "write the spectrum (Å²/ps) against frequencies (THz)"},
    ),
    Command(
        "dipole-autocorrelation",
        "all",
        "autocorrelation of the dipole moment, and its relaxation time",
        "Autocorrelation of the dipole moment ((e Å)²) of whole neutral molecules against the time "
        "between frames, and its integral over its first value (ps): up to where it is not above "
        "0, the relaxation time, in the lines above the table with its 95 % interval.",
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
        "the figure shows where it levels off, in the band of its 95 % interval. The trajectory "
        "must hold velocities.",
        ('md.tpr md.trr --select "resname NA CL" --temperature 310 -o current.csv --plot s.png',),
        {"temperature": TEMPERATURE},
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
            "cutoff": number(
                "headgroups as near are in the same leaflet, Å [%(default)s]", 15.0, "Å"
            ),
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
            "axis": choice("normal of the membrane [%(default)s]", ("x", "y", "z"), "z"),
            "pbc": PBC,
        },
        make=_order,
    ),
)

PARSERS = {command.name: command.add for command in COMMANDS}
