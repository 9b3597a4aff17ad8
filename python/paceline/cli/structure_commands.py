"""Commands of structures: shape, angles, distances, contacts, principal components, clusters."""

import argparse
from typing import Any

from paceline.cli.analysis_commands import (
    CORRELATION,
    LAGS,
    MASS,
    PBC,
    REF,
    Command,
    choice,
    correlation_lags,
    count,
    number,
)
from paceline.errors import SelectionError, UnsupportedError


def _contacts(universe: Any, args: argparse.Namespace, groups: list[Any], options: Any) -> Any:
    from paceline.analysis.contacts import Contacts
    from paceline.cli.analysis_steps import reference_at, selected

    reference = reference_at(universe, options.pop("ref"))
    there = tuple(selected(reference, text) for text in (args.select, args.select_2))
    return Contacts(universe, tuple(groups), there, **options)


def _hydrogen_bonds(
    universe: Any, args: argparse.Namespace, groups: list[Any], options: Any
) -> Any:
    from paceline.analysis.hydrogenbonds import HydrogenBondAnalysis
    from paceline.cli.analysis_steps import selected

    lags, between = correlation_lags(args), options["between"]
    del options["tau_max"]
    some = [selected(universe, text) for text in between or ()]
    if args.select is not None:
        atoms, which = groups[0], f"--select {args.select!r}"
    elif between is not None:
        atoms, which = sum(some[1:], some[0]), f"--between {between[0]!r} {between[1]!r}"
    else:
        atoms, which = selected(universe, "protein"), "--select 'protein'"
    analysis = HydrogenBondAnalysis(atoms, **options)
    analysis.correlation_lags, analysis.which_atoms = lags, f"of {which}"
    return analysis


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


def _diffusion_map(universe: Any, args: argparse.Namespace, groups: list[Any], options: Any) -> Any:
    from paceline.analysis.diffusionmap import DiffusionMap

    return DiffusionMap(*groups, **options)


def _average(universe: Any, args: argparse.Namespace, groups: list[Any], options: Any) -> Any:
    from paceline.analysis.align import AverageStructure
    from paceline.cli.analysis_steps import reference_and_frame

    reference, frame = reference_and_frame(universe, args.ref)
    return AverageStructure(
        universe, reference, select=args.select, weights=options["weights"], ref_frame=frame
    )


#: Of commands that compare frames with each other.
SUPERPOSITION: dict[str, Any] = {
    "flag": "--no-superposition",
    "action": "store_false",
    "default": True,
    "help": "compare positions as they are",
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
            "compound": choice(
                "all atoms together, or each residue, segment or molecule by itself [%(default)s]",
                ("group", "residues", "segments", "fragments"),
                "group",
            ),
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
            "variant": choice(
                "letters of DSSP 2.2 (H B E G I T S) or 4 (P, too) [H and E alone]",
                ("dssp2", "dssp4"),
                None,
            ),
        },
    ),
    Command(
        "hbonds",
        "protein, or the atoms of --between",
        "hydrogen bonds: their number, and as .npz each of them",
        "Number of hydrogen bonds in each frame; as .npz also each bond: frame, donor, hydrogen, "
        "acceptor, distance (Å) and angle (degrees). Donors are known by bonds, hydrogens and "
        "acceptors by mass and charge, of the selected atoms.",
        (
            "adk.psf adk.dcd -o hbonds.csv --plot hbonds.png --frequent frequent.csv",
            'md.tpr md.xtc --between protein "resname SOL" --correlation correlation.csv',
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
            "d_a_cutoff": number(
                "largest distance from donor to acceptor, Å [%(default)s]", 3.0, "Å"
            ),
            "d_h_a_angle_cutoff": number(
                "smallest angle at the hydrogen [%(default)s]", 150.0, "DEGREES"
            ),
            "criterion": choice(
                "another criterion, which has its own limits [%(default)s]",
                ("mdanalysis", "baker_hubbard", "wernet_nilsson", "gromacs"),
                "mdanalysis",
            ),
            "tau_max": LAGS,
        },
        make=_hydrogen_bonds,
        chooses=True,
        further={
            "frequent": "write in which fraction of the frames each bond is",
            "correlation": CORRELATION.format("bonds"),
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
            "n_points": count("points on each sphere [%(default)s]", 960),
            "probe_radius": number("radius of the solvent, Å [%(default)s]", 1.4, "Å"),
            "compound": choice(
                "area of all atoms together, or as .npz also of each residue or atom [%(default)s]",
                ("group", "residues", "atoms"),
                "group",
            ),
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
            "n_components": count("components to keep [all]", None),
            "n_projected": count("components that all frames are projected on [none]", 0),
        },
    ),
    Command(
        "contacts",
        "",
        "fraction of native contacts",
        "Fraction Q of the contacts of a reference that each frame has: pairs of an atom of "
        "--select and one of --select-2 that are within --radius there. Take --method soft_cut "
        "for the Q of a fold: by hard_cut, the default, thermal motion alone loses most contacts "
        "(heavy atoms of adenylate kinase, folded: Q = 0.31 by hard_cut, 0.97 by soft_cut).",
        (
            'md.tpr md.xtc --select "protein and name CA" --select-2 "protein and name CA" '
            "--radius 8 --residues-apart 4 --method soft_cut -o q.csv --plot q.png",
            'md.tpr md.xtc --select "resname ASP GLU and name OE* OD*" '
            '--select-2 "resname LYS ARG and name NZ NH*" --method soft_cut --ref crystal.pdb',
        ),
        {
            "radius": number(
                "pairs as near in the reference are contacts, Å [%(default)s]", 4.5, "Å"
            ),
            "method": choice(
                "a contact counts if it is not longer than in the reference, by a smooth "
                "step (recommended), or if it is within the radius [%(default)s]",
                ("hard_cut", "soft_cut", "radius_cut"),
                "hard_cut",
            ),
            "residues_apart": {
                "type": int,
                "default": 0,
                "metavar": "N",
                "help": "no contacts are pairs of residues that are fewer apart in the chain: 1 "
                "leaves out those within a residue, 4 those of neighbours too [%(default)s]",
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
            "cutoff": number("longest distance of a contact, Å [%(default)s]", 4.5, "Å"),
            "scheme": choice(
                "atoms of a residue that count, as in MDTraj [%(default)s]",
                ("ca", "closest", "closest-heavy", "sidechain", "sidechain-heavy"),
                "closest-heavy",
            ),
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
            "between": choice(
                "distances to compute [%(default)s]; of all pairs only as .npz",
                ("pairs", "centers", "minimum", "all"),
                "pairs",
            ),
            "weights": choice(
                "centers of mass, or of geometry [%(default)s]", ("mass", "none"), "mass"
            ),
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
            "superposition": SUPERPOSITION,
            "weights": MASS,
        },
    ),
    Command(
        "diffusionmap",
        "protein and name CA",
        "diffusion map of the frames",
        "Diffusion coordinates of each frame: eigenvectors of a kernel of the RMSD (Å) between "
        "frames, superposed pair by pair, times their eigenvalues; the figure has the first two, "
        "and .npz also has all eigenvectors. Time grows as the cube of the number of frames. "
        "Molecules must be whole: --unwrap makes them so.",
        (
            "adk.psf adk.dcd --epsilon 4 -o map.csv --plot map.png --eigenvalues eigenvalues.png",
            "md.tpr md.xtc --unwrap --select backbone --step 10 --epsilon 2 -o map.npz",
        ),
        {
            "epsilon": number(
                "scale of the kernel exp(-RMSD² / epsilon), Å² [%(default)g]", 1.0, "Å²"
            ),
            "n_eigenvectors": count(
                "coordinates of each frame [10, or as many as there are]", None
            ),
            "time": number("exponent of the eigenvalues [%(default)g]", 1.0, "T"),
            "superposition": SUPERPOSITION,
            "weights": MASS,
        },
        make=_diffusion_map,
        further={"eigenvalues": "write all eigenvalues"},
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
            "method": choice(
                "method; gromos and leader need --cutoff, k-medoids --n-clusters [%(default)s]",
                ("gromos", "leader", "k-medoids"),
                "gromos",
            ),
            "cutoff": number("frames with a smaller RMSD are neighbours, Å", None, "Å"),
            "n_clusters": count("number of clusters", None),
            "weights": MASS,
        },
        structures="write the selected atoms of the frame at the center of each cluster",
        further={"sizes": "write the size of each cluster, and the frame at its center"},
    ),
)

PARSERS = {command.name: command.add for command in COMMANDS}
