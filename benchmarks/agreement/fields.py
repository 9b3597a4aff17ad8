"""Secondary structure, hydrogen bonds, surfaces, distributions, densities, displacements."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from benchmarks import bench_analyses
from benchmarks.agreement.case import (
    CELLS,
    CPPTRAJ,
    DIGITS,
    GROMACS,
    MDANALYSIS,
    MDTRAJ,
    PROTEIN,
    SINGLE,
    WATER,
    WHOLE,
    Case,
    Numbers,
    Peer,
    ours,
    theirs,
)
from benchmarks.agreement.systems import System
from benchmarks.bench_analyses import group, whole
from benchmarks.programs import DIGITS as ALL_DIGITS
from benchmarks.programs import mask

#: Number of frames for surfaces.
N_FRAMES = 3
#: Radial distribution function: number of atoms, width of a bin (Å), number of bins.
N_WATERS, WIDTH, N_BINS = 1000, 0.2, 44
#: Width of bins along an axis, and number of points along a grid's edges.
BIN, EDGE = 1.0, 20


def cases() -> Iterator[Case]:
    yield from _secondary_structure()
    yield from _surfaces()
    yield from _radial()
    yield from _radial_of_sites()
    yield from _grid()
    yield from _axes()
    yield from _dielectric()
    yield from _hydrogen_bonds()
    yield from _displacements()


def _secondary_structure() -> Iterator[Case]:
    def get(results: Any) -> np.ndarray:
        return results.dssp.astype("U1")

    arguments: dict[str, Any] = {"heavyatom_names": ("N", "CA", "C", "O O1 OT1")}

    def mdtraj_s(system: System) -> np.ndarray:
        import mdtraj

        frames = system.mdtraj.atom_slice(system.atoms(PROTEIN))
        found = mdtraj.compute_dssp(frames, simplified=True)
        return np.where(found == "C", "-", found).astype("U1")

    def cpptraj(system: System) -> np.ndarray:
        atoms = system.theirs.select_atoms(PROTEIN)
        hydrogen = "HN" if "HN" in atoms.names else "H"
        path = system.folder / "structure.dat"
        n_residues = len(atoms.residues)
        system.cpptraj_files(f"secstruct S :1-{n_residues} out {path} nameh {hydrogen}")
        numbers = np.loadtxt(path, ndmin=2)[:, 1:].astype(int)
        # Letters: none, extended, bridge, helices of 3, 4 and 5, turn, bend.
        return np.array(list("-EEHHH--"))[numbers]

    yield Case(
        "secondary structure in three letters",
        "%",
        ours("dssp", get, whole, **arguments),
        {
            MDANALYSIS: Peer(theirs("dssp", get, whole, **arguments), 0),
            MDTRAJ: Peer(
                mdtraj_s,
                6,
                "DSSP's own rules for bridges, bulges and breaks of the chain",
                "both, by definition: ours is pydssp's",
                0.5,
            ),
            CPPTRAJ: Peer(
                cpptraj,
                8,
                "the same, with the hydrogens of the file",
                "both, by definition: ours is pydssp's",
                0.5,
            ),
        },
    )


def _surfaces() -> Iterator[Case]:
    def own(
        n_points: int, get: Callable[[Any], Any] = lambda results: results.total, **options: Any
    ) -> Numbers:
        arguments = ("sasa", get, group(PROTEIN))
        return ours(*arguments, n_points=n_points, stop=N_FRAMES, **options)

    def mdtraj_s(n_points: int, system: System) -> np.ndarray:
        import mdtraj

        frames = system.mdtraj[:N_FRAMES].atom_slice(system.atoms(PROTEIN))
        return 100 * mdtraj.shrake_rupley(frames, n_sphere_points=n_points).sum(axis=1)

    def gromacs(n_points: int, system: System) -> np.ndarray:
        words = ("-surface", "atoms", "-ndots", n_points, "-o", "out.xvg")
        words += ("-e", system.time_of(N_FRAMES - 1))
        atoms = {"atoms": system.atoms(PROTEIN)}
        return 100 * system.gmx("sasa", *words, groups=atoms)[:N_FRAMES, 1]

    def cpptraj(line: str, system: System) -> np.ndarray:
        return system.cpptraj(line.format(atoms=system.mask(PROTEIN)))[:N_FRAMES, 0]

    by_spheres = "paceline: the area of two spheres"
    yield Case(
        "SASA, 960 points",
        "Å²",
        own(960),
        {
            MDTRAJ: Peer(partial(mdtraj_s, 960), 20, "points in single precision", by_spheres),
            GROMACS: Peer(partial(gromacs, 960), 30, "other points", "both: they agree with more"),
            CPPTRAJ: Peer(
                partial(cpptraj, "surf found {atoms}"),
                3000,
                "LCPO is an approximation from overlaps of pairs, without hydrogens",
                by_spheres,
                100,
            ),
        },
        systems=WHOLE,
    )
    yield Case(
        "SASA, each tool's number of points (paceline, MDTraj: 960, GROMACS: 24)",
        "Å²",
        own(960),
        {GROMACS: Peer(partial(gromacs, 24), 150, "24 points", by_spheres, 20)},
        systems=WHOLE,
    )
    yield Case(
        "SASA, many points",
        "Å²",
        own(20_000),
        {GROMACS: Peer(partial(gromacs, 5000), 4, "other points", "both: they agree with more")},
        systems=("tryptophan zipper", "cobrotoxin"),
    )
    yield Case(
        "SASA of a split molecule, 960 points",
        "Å²",
        own(960),
        {
            MDTRAJ: Peer(
                partial(mdtraj_s, 960),
                3000,
                "images in the cell are not neighbours",
                "paceline: two atoms at a border",
                200,
            ),
            GROMACS: Peer(partial(gromacs, 960), 30, "other points", "both: they agree with more"),
        },
        systems=("adk in water",),
    )

    def with_radii(system: System) -> np.ndarray:
        return own(20_000, radii=system.amber_radii(PROTEIN))(system)

    yield Case(
        "SASA with Amber's radii, many points",
        "Å²",
        with_radii,
        {
            CPPTRAJ: Peer(
                partial(cpptraj, "molsurf found {atoms} radii gb probe 0 offset 1.4"),
                3,
                "points; cpptraj's molsurf is analytic",
                "both",
            )
        },
        systems=("tryptophan zipper",),
    )


def _radial() -> Iterator[Case]:
    def water(universe: Any) -> Any:
        return universe.select_atoms(WATER)[:N_WATERS]

    # GROMACS's first bin has half the width, so that the other bins start at half a bin's width.
    borders = (WIDTH / 2, WIDTH / 2 + N_BINS * WIDTH)
    arguments: tuple[Any, ...] = ("rdf", lambda r: r.rdf, water, water, N_BINS)

    def mdtraj_s(per_pair: bool, system: System) -> np.ndarray:
        import mdtraj

        atoms = water(system.theirs).indices
        pairs = atoms[np.column_stack(np.triu_indices(len(atoms), k=1))]
        limits = np.array(borders) / 10
        _, found = mdtraj.compute_rdf(system.mdtraj, pairs, limits, n_bins=N_BINS)
        return found if per_pair else found * (1 - 1 / len(atoms))

    def gromacs(system: System) -> np.ndarray:
        words = ("-bin", WIDTH / 10, "-rmax", (borders[1] + WIDTH) / 10, "-o", "out.xvg")
        atoms = {"atoms": water(system.theirs).indices}
        found = system.gmx("rdf", *words, "-ref", "atoms", "-sel", "atoms", groups=atoms)
        return found[1 : N_BINS + 1, 1]

    def cpptraj(words: str, system: System) -> np.ndarray:
        """Return cpptraj's g(r); atoms are given by residues, since it crashes with long lists."""
        atoms = water(system.theirs)
        residues = f":{atoms.resindices[0] + 1}-{atoms.resindices[-1] + 1}@{atoms.names[0]}"
        path = system.folder / "radial.dat"
        system.cpptraj_files(
            f"radial R out {path} {WIDTH} {borders[1] + WIDTH} {residues} {words}",
            "run",
            f"writedata {path} R* noheader {ALL_DIGITS}",
        )
        return np.loadtxt(path, ndmin=2)[:N_BINS, 1]

    def from_zero(system: System) -> np.ndarray:
        """Use bins from 0, as cpptraj does; the first bin counts each atom with itself."""
        found = ours(*arguments, (0, N_BINS * WIDTH))(system)
        found[0] = 0
        return found

    per_pair = "counts n(n - 1) / 2 pairs of n atoms, not n² / 2", "both: times 1 - 1/n"
    yield Case(
        "RDF of water",
        "",
        ours(*arguments, borders),
        {
            MDANALYSIS: Peer(theirs(*arguments, borders), 1e-9),
            MDTRAJ: Peer(partial(mdtraj_s, True), 0.02, *per_pair, 5e-4),
            f"{MDTRAJ}, times 1 - 1/n": Peer(
                partial(mdtraj_s, False),
                2e-3,
                "mean of the inverse volumes; distances in single precision change bins",
                "MDTraj where the volume varies: an ideal gas; here by 0.1 %",
            ),
            GROMACS: Peer(gromacs, 2e-3, DIGITS),
        },
        systems=CELLS,
    )
    yield Case(
        "RDF of water, bins from 0",
        "",
        from_zero,
        {
            CPPTRAJ: Peer(
                partial(cpptraj, ""),
                30,
                "a density of 0.033456 Å⁻³ is assumed",
                "paceline: the density of the atoms in the cell",
                0.1,
            ),
            f"{CPPTRAJ}, volume": Peer(
                partial(cpptraj, "volume"),
                0.01,
                "counts n(n - 1) / 2 pairs of n atoms, not n² / 2",
                "both: times 1 - 1/n",
                5e-4,
            ),
        },
        systems=CELLS,
    )


def _radial_of_sites() -> Iterator[Case]:
    def pair(universe: Any) -> list[tuple[Any, Any]]:
        return [(universe.select_atoms("protein and name CA")[:5], universe.select_atoms(WATER))]

    arguments = ("rdf-sites", lambda results: results.rdf[0], whole, pair, 20, (1.0, 9.0))
    yield Case(
        "RDF of water about each of five Cα",
        "",
        ours(*arguments),
        {MDANALYSIS: Peer(theirs(*arguments), 1e-9)},
        systems=CELLS,
    )


def _grid() -> Iterator[Case]:
    def center(system: System) -> np.ndarray:
        system.theirs.trajectory[0]
        return system.theirs.select_atoms(PROTEIN).positions.mean(axis=0).round()

    def density(make: Callable[..., Numbers], system: System) -> np.ndarray:
        sides = dict.fromkeys(("xdim", "ydim", "zdim"), EDGE)
        options = {"delta": 1.0, "gridcenter": center(system), **sides}
        arguments = ("density", lambda results: results.density.grid)
        return make(*arguments, group(WATER), **options)(system)

    def cpptraj(system: System) -> np.ndarray:
        from gridData import Grid

        x, y, z = center(system)
        atoms = system.theirs.select_atoms(WATER)
        residues = f":{atoms.resindices[0] + 1}-{atoms.resindices[-1] + 1}@{atoms.names[0]}"
        path = system.folder / "grid.dx"
        edges = f"{EDGE} 1 {EDGE} 1 {EDGE} 1 gridcenter {x} {y} {z}"
        system.cpptraj_files(f"grid {path} {edges} {residues} normframe")
        return Grid(str(path)).grid

    yield Case(
        "density of water on a grid",
        "Å⁻³",
        partial(density, ours),
        {MDANALYSIS: Peer(partial(density, theirs), 1e-9), CPPTRAJ: Peer(cpptraj, 1e-5, DIGITS)},
        systems=CELLS,
    )


def _axes() -> Iterator[Case]:
    def along(make: Callable[..., Numbers], name: str, system: System) -> np.ndarray:
        def get(results: Any) -> np.ndarray:
            return results.z[name]

        return make("lineardensity", get, group("all"), binsize=BIN)(system)

    def slices(name: str, system: System) -> np.ndarray:
        """Return paceline's densities in the bins up to the last one with atoms."""
        found = along(ours, name, system)
        n_bins = np.flatnonzero(found)[-1] + 1
        return found[:n_bins]

    def gromacs(kind: str, name: str, system: System) -> np.ndarray:
        n_bins = len(slices(name, system))
        words = ("-d", "Z", "-sl", n_bins, "-dens", kind, "-o", "out.xvg")
        atoms = {"atoms": np.arange(len(system.theirs.atoms))}
        # The unit is kg/m³ or e/nm³.
        unit = 1e3 if kind == "mass" else 602.214076
        return system.gmx("density", *words, groups=atoms, given="0\n")[:, 1] / unit

    units = {"mass": "g cm⁻³", "charge": "e mol cm⁻³"}
    for kind, unit in units.items():
        name = f"{kind}_density"
        yield Case(
            f"density of {kind} along z",
            unit,
            partial(along, ours, name),
            {
                MDANALYSIS: Peer(
                    partial(along, theirs, name),
                    0.2,
                    "volume and bins are those of a rectangular, constant cell",
                    "paceline: atoms anywhere in other cells",
                    1e-4,
                )
            },
            systems=CELLS,
        )
        yield Case(
            f"density of {kind} along z, whole bins",
            unit,
            partial(slices, name),
            {GROMACS: Peer(partial(gromacs, kind, name), 1e-4, SINGLE)},
            systems=("cobrotoxin",),
        )


def _dielectric() -> Iterator[Case]:
    def water(universe: Any) -> Any:
        return universe.select_atoms(f"byres ({WATER})")

    arguments = ("dielectric", lambda results: results.eps_mean, water)

    def mdtraj_s(system: System) -> float:
        import mdtraj

        atoms = water(system.theirs)
        frames = system.mdtraj.atom_slice(atoms.indices)
        return mdtraj.geometry.static_dielectric(frames, atoms.charges, 300)

    def gromacs(system: System) -> float:
        words = ("-temp", "300", "-eps", "out.xvg", "-o", "moment.xvg")
        (system.folder / "moment.xvg").unlink(missing_ok=True)
        atoms = {"atoms": water(system.theirs).indices}
        return system.gmx("dipoles", *words, groups=atoms, given="0\n")[-1, 1]

    yield Case(
        "dielectric constant of water",
        "",
        ours(*arguments, temperature=300),
        {
            MDANALYSIS: Peer(theirs(*arguments, temperature=300), 1e-3, SINGLE),
            MDTRAJ: Peer(mdtraj_s, 1e-3, SINGLE),
            GROMACS: Peer(gromacs, 0.02, DIGITS),
        },
        systems=("tryptophan zipper",),
    )


def _hydrogen_bonds() -> Iterator[Case]:
    """Compare hydrogen bonds of the backbone by their number in each frame."""

    def donors(universe: Any) -> Any:
        """Return residues with one hydrogen at N: not proline, and not the first in a chain."""
        residues = universe.select_atoms(PROTEIN).residues
        counts = [len(one.atoms.select_atoms("name H HN")) for one in residues]
        return residues[np.array(counts) == 1].atoms

    def parts(universe: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        found = donors(universe)
        acceptors = universe.select_atoms("protein and name O")
        hydrogens = found.select_atoms("name H HN")
        return found.select_atoms("name N").indices, hydrogens.indices, acceptors.indices

    def selections(universe: Any) -> dict[str, str]:
        names = ("donors_sel", "hydrogens_sel", "acceptors_sel")
        atoms = (" ".join(map(str, one)) for one in parts(universe))
        return {name: f"index {one}" for name, one in zip(names, atoms, strict=True)}

    def all_counts(package: str, system: System, **options: Any) -> np.ndarray:
        is_own = package == "paceline"
        universe = system.ours if is_own else system.theirs
        make = bench_analyses.ours if is_own else bench_analyses.theirs
        made = make("hbonds", whole, **options)(universe).run()
        frames = made.results.hbonds[:, 0].astype(int)
        return np.bincount(frames, minlength=len(universe.trajectory))

    def counts(package: str, system: System, **options: Any) -> np.ndarray:
        return all_counts(package, system, **selections(system.theirs), **options)

    def cpptraj(system: System) -> np.ndarray:
        donor, hydrogen, acceptor = (mask(one) for one in parts(system.theirs))
        masks = f"donormask {donor} donorhmask {hydrogen} acceptormask {acceptor}"
        path = system.folder / "bonds.dat"
        system.cpptraj_files(f"hbond H {masks} dist 3.0 angle 150 image out {path}")
        return np.loadtxt(path, ndmin=2)[:, 1]

    def gromacs(system: System) -> np.ndarray:
        atoms = {"atoms": np.sort(np.concatenate(parts(system.theirs)))}
        words = ("-num", "out.xvg", "-nonitacc")
        return system.gmx("hbond", *words, groups=atoms, given="0 0\n")[:, 1]

    def cpptraj_of_all(system: System, *, apart: bool) -> np.ndarray:
        """Count bonds of all donors and acceptors in each frame.

        With `apart`, a second run adds bonds to acceptors that are also donors.
        """
        made = bench_analyses.theirs("hbonds", whole)(system.theirs)
        atoms = system.theirs.atoms
        hydrogens, acceptors = map(atoms.select_atoms, (made.hydrogens_sel, made.acceptors_sel))
        donors = atoms[np.unique([one.bonded_atoms[0].index for one in hydrogens])]
        asked = [(donors, acceptors)]
        if apart:
            asked.append((donors - acceptors, donors & acceptors))
        found = 0
        for number, (first, second) in enumerate(asked):
            masks = f"donormask {mask(first.indices)} acceptormask {mask(second.indices)}"
            path = system.folder / f"bonds{number}.dat"
            system.cpptraj_files(f"hbond H {masks} dist 3.0 angle 150 image out {path}")
            found = found + np.loadtxt(path, ndmin=2)[:, 1]
        return found

    yield Case(
        "hydrogen bonds of the protein, 3 Å and 150°",
        "",
        partial(all_counts, "paceline"),
        {
            MDANALYSIS: Peer(partial(all_counts, "MDAnalysis"), 0),
            CPPTRAJ: Peer(
                partial(cpptraj_of_all, apart=False),
                3,
                "no bond of a donor alone to what is a donor, too",
                "paceline: the geometry of each, above",
                1,
            ),
            f"{CPPTRAJ}, these by a second line": Peer(partial(cpptraj_of_all, apart=True), 0),
        },
        systems=("adk",),
    )
    yield Case(
        "hydrogen bonds of the backbone, 3 Å and 150°",
        "",
        partial(counts, "paceline"),
        {MDANALYSIS: Peer(partial(counts, "MDAnalysis"), 0), CPPTRAJ: Peer(cpptraj, 0)},
    )
    yield Case(
        "hydrogen bonds of the backbone, as GROMACS counts (3.5 Å, 30°)",
        "",
        partial(counts, "paceline", criterion="gromacs"),
        {GROMACS: Peer(gromacs, 0)},
        # Only systems with a cell: without one, GROMACS uses a cell that is too large for its grid.
        systems=CELLS,
    )


def _displacements() -> Iterator[Case]:
    arguments = ("msd", lambda results: results.timeseries, whole)
    options = {"select": "protein and name CA", "fft": False}

    def gromacs(system: System) -> np.ndarray:
        words = ("-sel", "atoms", "-trestart", 1, "-o", "out.xvg", "-normpbc")
        atoms = {"atoms": system.atoms(options["select"])}
        return 100 * system.gmx("msd", *words, groups=atoms)[:, 1]

    yield Case(
        "mean squared displacement of Cα",
        "Å²",
        ours(*arguments, **options),
        {
            MDANALYSIS: Peer(theirs(*arguments, **options), 1e-4, SINGLE),
            GROMACS: Peer(gromacs, 1e-2, DIGITS),
        },
        systems=("adk",),
    )
