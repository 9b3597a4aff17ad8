"""Radii of gyration, distances and contacts."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from benchmarks.agreement.case import (
    CA,
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
    each_frame,
    ours,
    theirs,
    unwrapped,
)
from benchmarks.agreement.systems import System
from benchmarks.bench_analyses import group, whole
from benchmarks.programs import DIGITS as ALL_DIGITS


def cases() -> Iterator[Case]:
    yield from _gyration()
    yield from _distances()
    yield from _contacts()


def _gyration() -> Iterator[Case]:
    def get(name: str) -> Callable[[Any], Any]:
        return lambda results: results[name]

    def own(name: str, **options: Any) -> Numbers:
        return ours("gyration", get(name), group(PROTEIN), **options)

    def method(name: str) -> Numbers:
        return each_frame(lambda universe: getattr(universe.select_atoms(PROTEIN), name)())

    def mdtraj_s(
        name: str, factor: float, system: System, whole: bool = False, **options: Any
    ) -> np.ndarray:
        import mdtraj

        frames = system.mdtraj.atom_slice(system.atoms(PROTEIN))
        if whole:
            frames = frames.make_molecules_whole()
        return factor * getattr(mdtraj, name)(frames, **options)

    def weighed(system: System) -> np.ndarray:
        masses = system.theirs.select_atoms(PROTEIN).masses
        return mdtraj_s("compute_rg", 10, system, masses=masses)

    def gromacs(columns: slice | int, system: System) -> np.ndarray:
        atoms = {"atoms": system.atoms(PROTEIN)}
        return 10 * system.gmx("gyrate", "-o", "out.xvg", groups=atoms, given="0\n")[:, columns]

    def cpptraj(words: str, system: System) -> np.ndarray:
        return system.cpptraj(f"radgyr found {system.mask(PROTEIN)} nomax {words}")[:, 0]

    def moments(words: str, system: System) -> np.ndarray:
        """Return eigenvalues of cpptraj's tensor, which is printed as xx, yy, zz, xy, xz, yz."""
        path = system.folder / "tensor.dat"
        system.cpptraj_files(
            f"radgyr R {system.mask(PROTEIN)} nomax tensor {words}",
            "run",
            f"writedata {path} R[Tensor] noheader {ALL_DIGITS}",
        )
        columns = np.loadtxt(path, ndmin=2)[:, 1:]
        return np.linalg.eigvalsh(columns[:, [0, 3, 4, 3, 1, 5, 4, 5, 2]].reshape(-1, 3, 3))

    yield Case(
        "radius of gyration by mass",
        "Å",
        own("rg"),
        {
            MDANALYSIS: Peer(method("radius_of_gyration"), 1e-9),
            MDTRAJ: Peer(
                weighed,
                0.02,
                "distances are from the geometric center",
                "paceline: two atoms of masses 3 and 1",
                1e-3,
            ),
            GROMACS: Peer(partial(gromacs, 1), 3e-4, SINGLE),
            CPPTRAJ: Peer(partial(cpptraj, "mass"), 1e-6),
        },
        systems=WHOLE,
    )
    yield Case(
        "radius of gyration, atoms alike",
        "Å",
        own("rg", weights=None),
        {
            MDTRAJ: Peer(partial(mdtraj_s, "compute_rg", 10), 5e-6, SINGLE),
            CPPTRAJ: Peer(partial(cpptraj, ""), 1e-6),
        },
    )
    yield Case(
        "radius of gyration by mass, split molecule",
        "Å",
        own("rg"),
        {
            MDANALYSIS: Peer(method("radius_of_gyration"), 1e-9),
            GROMACS: Peer(
                partial(gromacs, 1),
                20,
                "molecules are made whole",
                "both: transforms.unwrap, below",
                1,
            ),
            CPPTRAJ: Peer(partial(cpptraj, "mass"), 1e-6),
        },
        systems=("adk in water",),
    )
    yield Case(
        "radius of gyration and its components by mass, molecules made whole",
        "Å",
        unwrapped(
            *("gyration", lambda r: np.column_stack([r.rg, r.rg_components])),
            group(PROTEIN),
        ),
        {GROMACS: Peer(partial(gromacs, slice(1, 5)), 3e-4, SINGLE)},
        systems=CELLS,
    )
    yield Case(
        "gyration moments by mass",
        "Å²",
        own("gyration_moments"),
        {
            MDANALYSIS: Peer(method("gyration_moments"), 1e-8),
            CPPTRAJ: Peer(partial(moments, "mass"), 1e-5),
        },
    )
    yield Case(
        "gyration moments, atoms alike",
        "Å²",
        own("gyration_moments", weights=None),
        {
            MDTRAJ: Peer(partial(mdtraj_s, "principal_moments", 100), 5e-5, SINGLE),
            CPPTRAJ: Peer(partial(moments, ""), 1e-5),
        },
    )
    yield Case(
        "asphericity by mass",
        "",
        own("asphericity"),
        {MDANALYSIS: Peer(method("asphericity"), 1e-9)},
    )
    yield Case(
        "asphericity, atoms alike",
        "",
        own("asphericity", weights=None),
        {
            f"{MDTRAJ}, relative_shape_antisotropy": Peer(
                partial(mdtraj_s, "relative_shape_antisotropy", 1), 1e-6, SINGLE
            ),
            f"{MDTRAJ}, asphericity": Peer(
                partial(mdtraj_s, "asphericity", 1),
                10,
                "another quantity: largest moment less the mean of the others, nm²",
                "both, by definition: that of a rod is 1",
                0.1,
            ),
        },
    )
    yield Case(
        "shape parameter by mass",
        "",
        own("shape_parameter"),
        {MDANALYSIS: Peer(method("shape_parameter"), 1e-9)},
    )


def pairs_of(universe: Any) -> tuple[Any, Any]:
    """Return a hundred pairs of a Cα and a water oxygen (or a Cβ without water)."""
    random = np.random.default_rng(1)
    others = universe.select_atoms(WATER) or universe.select_atoms("name CB")
    return tuple(one[random.choice(len(one), 100)] for one in (universe.select_atoms(CA), others))


def atom_lines(command: str, atoms: np.ndarray) -> list[str]:
    """Return one cpptraj line for each row of atom indices."""
    return [
        f"{command} found{k} {' '.join(f'@{index + 1}' for index in row)}"
        for k, row in enumerate(atoms)
    ]


def _distances() -> Iterator[Case]:
    def get(results: Any) -> Any:
        return results.distances

    def chosen(system: System) -> np.ndarray:
        return np.column_stack([one.indices for one in pairs_of(system.theirs)])

    def bonds(universe: Any) -> np.ndarray:
        from MDAnalysis.lib.distances import calc_bonds

        first, second = pairs_of(universe)
        return calc_bonds(first.positions, second.positions, box=universe.dimensions)

    def mdtraj_s(atoms: Callable[[System], np.ndarray], system: System) -> np.ndarray:
        import mdtraj

        return 10 * mdtraj.compute_distances(system.mdtraj, atoms(system))

    def gromacs(system: System) -> np.ndarray:
        atoms = {"atoms": chosen(system).ravel()}
        return (
            10 * system.gmx("distance", "-oall", "out.xvg", "-select", "atoms", groups=atoms)[:, 1:]
        )

    yield Case(
        "distances of pairs, nearest images",
        "Å",
        ours("distances", get, *(lambda u, k=k: pairs_of(u)[k] for k in (0, 1))),
        {
            MDANALYSIS: Peer(each_frame(bonds), 3e-5, SINGLE),
            MDTRAJ: Peer(partial(mdtraj_s, chosen), 5e-5, SINGLE),
            GROMACS: Peer(gromacs, 6e-3, DIGITS),
            CPPTRAJ: Peer(
                lambda system: system.cpptraj(*atom_lines("distance", chosen(system))), 5e-5
            ),
        },
    )

    def self_distances(universe: Any) -> np.ndarray:
        from MDAnalysis.lib.distances import self_distance_array

        positions = universe.select_atoms(CA).positions
        return self_distance_array(positions, box=universe.dimensions)

    def every(system: System) -> np.ndarray:
        atoms = system.atoms(CA)
        return atoms[np.column_stack(np.triu_indices(len(atoms), k=1))]

    def pairdist(system: System) -> np.ndarray:
        atoms = system.atoms(CA)
        words = ("-refgrouping", "none", "-selgrouping", "none", "-ref", "atoms", "-sel", "atoms")
        rows = 10 * system.gmx("pairdist", *words, "-o", "out.xvg", groups={"atoms": atoms})[:, 1:]
        upper = np.triu_indices(len(atoms), k=1)
        return rows.reshape(-1, len(atoms), len(atoms))[:, upper[0], upper[1]]

    yield Case(
        "distances of Cα, all against all",
        "Å",
        ours("distances.DistanceMatrixSeries", get, group(CA)),
        {
            MDANALYSIS: Peer(each_frame(self_distances), 3e-5, SINGLE),
            MDTRAJ: Peer(partial(mdtraj_s, every), 6e-5, SINGLE),
            GROMACS: Peer(pairdist, 6e-3, DIGITS),
        },
    )
    parts = ("protein and resid 1-4", "protein and resid 9-12")

    def centers(name: str, universe: Any) -> float:
        from MDAnalysis.lib.distances import calc_bonds

        ends = (getattr(universe.select_atoms(part), name)() for part in parts)
        return calc_bonds(*ends, box=universe.dimensions)

    def gromacs_centers(name: str, system: System) -> np.ndarray:
        atoms = {f"part{k}": system.atoms(part) for k, part in enumerate(parts)}
        select = f"{name} of group part0 plus {name} of group part1"
        words = ("-normpbc", "-oall", "out.xvg", "-select", select)
        return 10 * system.gmx("distance", *words, groups=atoms)[:, 1]

    def cpptraj(words: str, system: System) -> np.ndarray:
        first, second = (system.mask(part) for part in parts)
        return system.cpptraj(f"distance found {first} {second} {words}")[:, 0]

    def mdtraj_centers(system: System) -> np.ndarray:
        import mdtraj

        first, second = (
            mdtraj.compute_center_of_mass(system.mdtraj.atom_slice(system.atoms(part)))
            for part in parts
        )
        return 10 * np.linalg.norm(first - second, axis=1)

    yield Case(
        "distance of centers of mass",
        "Å",
        ours("center-distance", get, *map(group, parts)),
        {
            MDANALYSIS: Peer(each_frame(partial(centers, "center_of_mass")), 3e-5, SINGLE),
            MDTRAJ: Peer(mdtraj_centers, 3e-4, "masses are those of its elements"),
            GROMACS: Peer(partial(gromacs_centers, "com"), 6e-3, DIGITS),
            CPPTRAJ: Peer(partial(cpptraj, ""), 1e-5),
        },
    )
    yield Case(
        "distance of centers of geometry",
        "Å",
        ours("center-distance", get, *map(group, parts), weights=None),
        {
            MDANALYSIS: Peer(each_frame(partial(centers, "center_of_geometry")), 3e-5, SINGLE),
            GROMACS: Peer(partial(gromacs_centers, "cog"), 6e-3, DIGITS),
            CPPTRAJ: Peer(partial(cpptraj, "geom"), 1e-5),
        },
    )

    def nearest(universe: Any) -> float:
        from MDAnalysis.lib.distances import distance_array

        first, second = (universe.select_atoms(part).positions for part in parts)
        return distance_array(first, second, box=universe.dimensions).min()

    def mindist(system: System) -> np.ndarray:
        atoms = {f"part{k}": system.atoms(part) for k, part in enumerate(parts)}
        return 10 * system.gmx("mindist", "-od", "out.xvg", groups=atoms, given="0 1\n")[:, 1]

    def mdtraj_nearest(system: System) -> np.ndarray:
        pairs = np.array(list(product(*(system.atoms(part) for part in parts))))
        return mdtraj_s(lambda _: pairs, system).min(axis=1)

    def native(system: System) -> np.ndarray:
        path = system.folder / "nearest.dat"
        system.cpptraj_files(
            f"nativecontacts name N {' '.join(system.mask(part) for part in parts)} mindist",
            "run",
            f"writedata {path} N[mindist] noheader {ALL_DIGITS}",
        )
        return np.loadtxt(path, ndmin=2)[:, 1]

    yield Case(
        "minimum distance",
        "Å",
        ours("minimum-distance", get, *map(group, parts)),
        {
            MDANALYSIS: Peer(each_frame(nearest), 1e-5, SINGLE),
            MDTRAJ: Peer(mdtraj_nearest, 2e-5, SINGLE),
            GROMACS: Peer(mindist, 3e-5, SINGLE),
            CPPTRAJ: Peer(native, 2e-5),
        },
    )


def _contacts() -> Iterator[Case]:
    heavy = "and not name H* and not name 1H* 2H* 3H*"
    parts = (f"protein and resid 1-6 {heavy}", f"protein and resid 7-12 {heavy}")
    groups = (
        whole,
        lambda u: parts,
        lambda u: tuple(u.select_atoms(part) for part in parts),
    )

    def get(results: Any) -> np.ndarray:
        return results.timeseries[:, 1]

    def mdtraj_s(q: Callable[[np.ndarray, np.ndarray], np.ndarray], system: System) -> np.ndarray:
        import mdtraj

        pairs = np.array(list(product(*(system.atoms(part) for part in parts))))
        distances = 10 * mdtraj.compute_distances(system.mdtraj, pairs).astype(float)
        native = distances[0] <= 6
        return q(distances[:, native], distances[0, native]).mean(axis=1)

    def cpptraj(system: System) -> np.ndarray:
        path = system.folder / "native.dat"
        masks = " ".join(system.mask(part) for part in parts)
        system.cpptraj_files(
            f"nativecontacts name N {masks} distance 6.0 first",
            "run",
            f"writedata {path} N[native] noheader {ALL_DIGITS}",
        )
        counts = np.loadtxt(path, ndmin=2)[:, 1]
        return counts / counts[0]

    methods = {
        "radius_cut": lambda r, r0: r <= 6,
        "hard_cut": lambda r, r0: r <= r0,
        "soft_cut": lambda r, r0: 1 / (1 + np.exp(5 * (r - 1.8 * r0))),
    }
    for method, q in methods.items():
        arguments = ("contacts", get, *groups)
        options: dict[str, Any] = {"method": method, "radius": 6.0}
        peers = {
            MDANALYSIS: Peer(theirs(*arguments, **options), 1e-9),
            MDTRAJ: Peer(partial(mdtraj_s, q), 1e-6, SINGLE),
        }
        if method == "radius_cut":
            peers[CPPTRAJ] = Peer(cpptraj, 1e-9)
        yield Case(f"contacts Q, {method}", "", ours(*arguments, **options), peers)

    def frequencies(results: Any) -> np.ndarray:
        return results.frequencies[np.triu_indices(len(results.frequencies), k=1)]

    def contacts(scheme: str, cutoff: float, system: System, ends: int = 0) -> np.ndarray:
        """Return MDTraj's contact frequencies, without `ends` residues at each end."""
        import mdtraj

        frames = system.mdtraj.atom_slice(system.atoms(PROTEIN))
        pairs = ends + np.column_stack(np.triu_indices(frames.n_residues - 2 * ends, k=1))
        found, _ = mdtraj.compute_contacts(frames, pairs, scheme=scheme, ignore_nonprotein=False)
        return (10 * found <= cutoff).mean(axis=0)

    # Only small systems: MDTraj needs ten seconds for all atoms of adenylate kinase, and does not
    # recognise its residues LYSH and HISB.
    small = ("tryptophan zipper", "cobrotoxin")
    for scheme, cutoff in (("ca", 8.0), ("closest", 4.5), ("closest-heavy", 4.5)):
        yield Case(
            f"contact map, {scheme}",
            "",
            ours("contact-map", frequencies, group(PROTEIN), cutoff, scheme=scheme),
            {MDTRAJ: Peer(partial(contacts, scheme, cutoff), 1e-9)},
            systems=small if scheme == "closest" else ("adk in water", *small),
        )

    def inner(results: Any) -> np.ndarray:
        matrix = results.frequencies[1:-1, 1:-1]
        return matrix[np.triu_indices(len(matrix), k=1)]

    for scheme in ("sidechain", "sidechain-heavy"):
        yield Case(
            f"contact map, {scheme}, without the ends of the chain",
            "",
            ours("contact-map", inner, group(PROTEIN), 4.5, scheme=scheme),
            {MDTRAJ: Peer(partial(contacts, scheme, 4.5, ends=1), 1e-9)},
            systems=small,
        )
        yield Case(
            f"contact map, {scheme}",
            "",
            ours("contact-map", frequencies, group(PROTEIN), 4.5, scheme=scheme),
            {
                MDTRAJ: Peer(
                    partial(contacts, scheme, 4.5),
                    1,
                    "H2, H3 and OXT at the ends of a chain count as side chain",
                    "paceline: two glycines",
                    0.1,
                )
            },
            systems=small,
        )
