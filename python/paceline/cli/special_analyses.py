"""Construction of analyses whose arguments are not just selections and options of the command."""

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from paceline._util.json_types import JsonObject
from paceline.errors import SelectionError, UnsupportedError

if TYPE_CHECKING:
    from paceline.analysis.base import AnalysisBase
    from paceline.analysis.diffusionmap import DiffusionMap
    from paceline.cli.universe_with_named_groups import GroupUniverse
    from paceline.contract.system_interface import Atoms, UpdatingAtoms

#: Function that makes an analysis from Universe, arguments, atoms of each selection, and options.
Make = Callable[
    ["GroupUniverse", argparse.Namespace, "list[Atoms]", JsonObject], "AnalysisBase | DiffusionMap"
]


def correlation_lags(args: argparse.Namespace) -> int | None:
    """Return the longest lag of the table of correlations, frames; None without such a table."""
    if args.correlation is not None:
        return args.tau_max or 20
    if args.tau_max is not None:
        raise UnsupportedError("--tau-max is the longest lag of --correlation: add --correlation")
    return None


def _contacts(
    universe: "GroupUniverse", args: argparse.Namespace, groups: "list[Atoms]", options: JsonObject
) -> "AnalysisBase":
    from paceline.analysis.contacts import Contacts
    from paceline.cli.shared_analysis_steps import reference_at, select_nonempty

    idle = args.idle if args.follow else None
    reference = reference_at(universe, options.pop("ref"), idle)
    there = tuple(select_nonempty(reference, text) for text in (args.select, args.select_2))
    return Contacts(universe, tuple(groups), there, **options)


def _hydrogen_bonds(
    universe: "GroupUniverse", args: argparse.Namespace, groups: "list[Atoms]", options: JsonObject
) -> "AnalysisBase":
    from paceline.analysis.hydrogenbonds import HydrogenBondAnalysis
    from paceline.cli.shared_analysis_steps import select_nonempty

    lags, between = correlation_lags(args), options["between"]
    del options["tau_max"]
    some = [select_nonempty(universe, text) for text in between or ()]
    if args.select is not None:
        atoms, which = groups[0], f"--select {args.select!r}"
    elif between is not None:
        atoms, which = sum(some[1:], some[0]), f"--between {between[0]!r} {between[1]!r}"
    else:
        atoms, which = select_nonempty(universe, "protein"), "--select 'protein'"
    analysis = HydrogenBondAnalysis(atoms, **options)
    analysis.correlation_lags, analysis.which_atoms = lags, f"of {which}"
    selected = {} if args.select is None else {"select": f"{args.select}"}
    if between is not None:
        selected["between"] = " and ".join(map(repr, between))
    analysis.atom_selections = selected or {"select": "protein"}
    return analysis


def _distances(
    universe: "GroupUniverse", args: argparse.Namespace, groups: "list[Atoms]", options: JsonObject
) -> "AnalysisBase":
    from paceline.analysis import distances

    between, weights = options.pop("between"), options.pop("weights")
    if between == "centers":
        given = None if weights == "none" else weights
        return distances.CenterDistance(*groups, weights=given, **options)
    if between == "all":
        if args.plot is not None or args.output is None or args.output.suffix.lower() != ".npz":
            raise UnsupportedError(
                "distances of all pairs do not fit into a table: save them with -o FILE.npz, "
                "without --plot; 'paceline distance-map' makes their means, and a figure"
            )
        return distances.DistanceMatrixSeries(*groups, **options)
    if between == "pairs" and len({len(group) for group in groups}) > 1:
        first, second = map(len, groups)
        raise SelectionError(
            "distances of pairs need equally many atoms in both groups, found others (--select: "
            f"{first}, --select-2: {second}): change one, or use --between centers, minimum or all"
        )
    kinds = {"pairs": distances.AtomicDistances, "minimum": distances.MinimumDistance}
    return kinds[between](*groups, **options)


def _dihedrals(
    universe: "GroupUniverse", args: argparse.Namespace, groups: "list[Atoms]", options: JsonObject
) -> "AnalysisBase":
    from paceline.analysis.dihedrals import Dihedral

    counts = {len(group) for group in groups}
    if len(counts) > 1:
        found = ", ".join(str(len(group)) for group in groups)
        raise SelectionError(
            f"dihedrals: the four selections must have equally many atoms, found {found}"
        )
    atoms = zip(*(group.indices for group in groups), strict=True)
    return Dihedral([universe.atoms[list(four)] for four in atoms])


def _distance_map(
    universe: "GroupUniverse", args: argparse.Namespace, groups: "list[Atoms]", options: JsonObject
) -> "AnalysisBase":
    from paceline.analysis.distances import DistanceMap
    from paceline.cli.shared_analysis_steps import select_nonempty

    other = options.pop("other")
    second = None if other is None else select_nonempty(universe, other)
    return DistanceMap(groups[0], second, **options)


def _diffusion_map(
    universe: "GroupUniverse", args: argparse.Namespace, groups: "list[Atoms]", options: JsonObject
) -> "DiffusionMap":
    from paceline.analysis.diffusionmap import DiffusionMap

    return DiffusionMap(groups[0], **options)


def _average(
    universe: "GroupUniverse", args: argparse.Namespace, groups: "list[Atoms]", options: JsonObject
) -> "AnalysisBase":
    from paceline.analysis.align import AverageStructure
    from paceline.cli.shared_analysis_steps import reference_and_frame

    reference, frame = reference_and_frame(universe, args.ref)
    return AverageStructure(
        universe, reference, select=args.select, weights=options["weights"], ref_frame=frame
    )


def _density(
    universe: "GroupUniverse", args: argparse.Namespace, groups: "list[Atoms]", options: JsonObject
) -> "AnalysisBase":
    from paceline.analysis.density import DensityAnalysis

    size = options.pop("size")
    if (size is None) != (options["gridcenter"] is None):
        raise UnsupportedError("expected both --gridcenter and --size, or neither")
    if size is not None and not min(size) > 0:
        raise UnsupportedError(f"--size must be three lengths above 0, in Å, not {size}")
    edges = {} if size is None else dict(zip(("xdim", "ydim", "zdim"), size, strict=True))
    return DensityAnalysis(groups[0], **options, **edges)


def _density_profile(
    universe: "GroupUniverse", args: argparse.Namespace, groups: "list[Atoms]", options: JsonObject
) -> "AnalysisBase":
    from paceline.analysis.density_profile import DensityProfile
    from paceline.cli.shared_analysis_steps import select_nonempty

    named = {str(args.select): groups[0]}
    for text in options.pop("groups"):
        if text in named:
            raise UnsupportedError(f"--group {text!r} occurs twice: use each selection once")
        named[text] = select_nonempty(universe, text)
    origin = options.pop("origin")
    atoms = None if origin is None else select_nonempty(universe, origin)
    return DensityProfile(named, origin=atoms, **options)


def _msd(
    universe: "GroupUniverse", args: argparse.Namespace, groups: "list[Atoms]", options: JsonObject
) -> "AnalysisBase":
    from paceline.analysis.msd import EinsteinMSD

    # In all commands, --unwrap makes molecules whole. Therefore another option sets the keyword
    # `unwrap` of this analysis.
    scheme = options.pop("unwrap_particles")
    return EinsteinMSD(groups[0], unwrap=None if scheme == "none" else scheme, **options)


def _selected(
    universe: "GroupUniverse", args: argparse.Namespace, groups: "list[Atoms]", options: JsonObject
) -> "AnalysisBase":
    from paceline.analysis.groups import SelectedAtoms

    analysis = SelectedAtoms(cast("UpdatingAtoms", groups[0]))
    analysis.correlation_lags = correlation_lags(args)
    return analysis


def _survival(
    universe: "GroupUniverse", args: argparse.Namespace, groups: "list[Atoms]", options: JsonObject
) -> "AnalysisBase":
    from paceline.analysis.waterdynamics import SurvivalProbability

    return SurvivalProbability(universe, args.select, **options)


def _order(
    universe: "GroupUniverse", args: argparse.Namespace, groups: "list[Atoms]", options: JsonObject
) -> "AnalysisBase":
    from paceline.analysis.order import SCH, OrderParameter
    from paceline.cli.shared_analysis_steps import select_nonempty

    other, hydrogens = options.pop("other"), options.pop("hydrogens")
    if other is None:
        chosen = None if hydrogens is None else select_nonempty(universe, hydrogens)
        return SCH(groups[0], hydrogens=chosen, **options)
    if hydrogens is not None:
        raise UnsupportedError("--hydrogens is for bonds, --select-2 for other vectors: use one")
    return OrderParameter(groups[0], select_nonempty(universe, other), **options)


def _sasa(
    universe: "GroupUniverse", args: argparse.Namespace, groups: "list[Atoms]", options: JsonObject
) -> "AnalysisBase":
    from paceline.analysis.sasa import SASA
    from paceline.cli.shared_analysis_steps import select_nonempty
    from paceline.contract.analysis_declaration import ON_STRUCTURE

    whole = options["compound"] == "group"
    if whole and args.output is not None and args.output.suffix.lower() in ON_STRUCTURE:
        raise UnsupportedError(
            f"{args.output} is for residues or atoms: use --compound residues, or atoms"
        )
    if (surface := options.pop("surface")) is not None:
        options["surface"] = select_nonempty(universe, surface)
    analysis = SASA(groups[0], **options)
    analysis.maps_residues = args.residues is not None
    if analysis.maps_residues and options["compound"] != "residues":
        raise UnsupportedError("--residues needs the area of each residue: use --compound residues")
    return analysis


def _pca(
    universe: "GroupUniverse", args: argparse.Namespace, groups: "list[Atoms]", options: JsonObject
) -> "AnalysisBase":
    from paceline.analysis.pca import PCA

    if args.projections is not None and not options["n_projected"]:
        options["n_projected"] = 2
    return PCA(groups[0], **options)


def _polymer(
    universe: "GroupUniverse", args: argparse.Namespace, groups: "list[Atoms]", options: JsonObject
) -> "AnalysisBase":
    from paceline.analysis.polymer import Polymer

    analysis = Polymer(*groups, **options)
    analysis.correlated = args.correlation is not None
    return analysis


#: Functions that make the analyses, by command.
MAKE: dict[str, Make] = {
    "average": _average,
    "contacts": _contacts,
    "density": _density,
    "density-profile": _density_profile,
    "diffusionmap": _diffusion_map,
    "dihedrals": _dihedrals,
    "distance-map": _distance_map,
    "distances": _distances,
    "hbonds": _hydrogen_bonds,
    "msd": _msd,
    "order": _order,
    "pca": _pca,
    "polymer": _polymer,
    "sasa": _sasa,
    "selection": _selected,
    "survival": _survival,
}
