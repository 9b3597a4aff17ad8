"""Angles and dihedral angles."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from benchmarks.agreement.case import (
    CELLS,
    CPPTRAJ,
    DIGITS,
    GROMACS,
    MDANALYSIS,
    MDTRAJ,
    PROTEIN,
    SINGLE,
    WHOLE,
    Case,
    Numbers,
    Peer,
    each_frame,
    ours,
    theirs,
)
from benchmarks.agreement.geometry import atom_lines, pairs_of
from benchmarks.agreement.systems import System
from benchmarks.bench_analyses import group
from benchmarks.programs import DIGITS as ALL_DIGITS

NO_IMAGES = "bonds have no images: molecules must be whole and together"
BY_IMAGES = "paceline: dihedral angles in a triclinic cell"

#: Arguments of a `Peer` after its numbers.
Limits = tuple[Any, ...]


def cases() -> Iterator[Case]:
    yield from _angles()
    yield from _dihedrals()
    yield from _chi()


def _angles() -> Iterator[Case]:
    def backbone(universe: Any) -> list[Any]:
        atoms = universe.select_atoms("protein and resid 2-11")
        return [atoms.select_atoms(f"name {name}") for name in ("N", "CA", "C")]

    def wide(universe: Any) -> list[Any]:
        """Angles between a Cα, a water and another Cα, anywhere in the cell."""
        first, second = pairs_of(universe)
        return [first[:30], second[:30], first[30:60]]

    def case(
        title: str, find: Callable[[Any], list[Any]], in_mdtraj: Limits, in_cpptraj: Limits
    ) -> Case:
        def indices(system: System) -> np.ndarray:
            return np.column_stack([one.indices for one in find(system.theirs)])

        def angles(universe: Any) -> np.ndarray:
            from MDAnalysis.lib.distances import calc_angles

            positions = (one.positions for one in find(universe))
            return np.degrees(calc_angles(*positions, box=universe.dimensions))

        def mdtraj_s(system: System) -> np.ndarray:
            import mdtraj

            return np.degrees(mdtraj.compute_angles(system.mdtraj, indices(system)))

        def gromacs(system: System) -> np.ndarray:
            words = ("-g1", "angle", "-group1", "atoms", "-oall", "out.xvg")
            return system.gmx("gangle", *words, groups={"atoms": indices(system).ravel()})[:, 1:]

        def cpptraj(system: System) -> np.ndarray:
            return system.cpptraj(*atom_lines("angle", indices(system)))

        atoms = [lambda u, k=k: find(u)[k] for k in range(3)]
        return Case(
            title,
            "°",
            ours("angles", lambda results: results.angles, *atoms),
            {
                MDANALYSIS: Peer(each_frame(angles), 2e-3, SINGLE),
                MDTRAJ: Peer(mdtraj_s, *in_mdtraj),
                GROMACS: Peer(gromacs, 1.5e-3, DIGITS),
                CPPTRAJ: Peer(cpptraj, *in_cpptraj),
            },
        )

    yield case("angles of the backbone", backbone, (2e-3, SINGLE), (2e-3, SINGLE))
    near_ends = "arccos in single precision, near 0 and 180°", "paceline: an angle of 179.99°"
    no_images = (180, NO_IMAGES, BY_IMAGES, 90)
    yield case("angles, nearest images", wide, (0.06, *near_ends, 1e-3), no_images)


def _dihedrals() -> Iterator[Case]:
    def get(results: Any) -> np.ndarray:
        return results.angles

    def indices(system: System) -> np.ndarray:
        """Return the atoms of φ and then of ψ for each residue that has both."""
        made = system.ramachandran
        ends = (made.ag1, made.ag2, made.ag3, made.ag4, made.ag5)
        before, n, ca, c, after = (one.indices for one in ends)
        return np.stack([[before, n, ca, c], [n, ca, c, after]]).transpose(2, 0, 1).reshape(-1, 4)

    def mdtraj_s(system: System) -> np.ndarray:
        import mdtraj

        return np.degrees(mdtraj.compute_dihedrals(system.mdtraj, indices(system)))

    def gromacs(atoms: Callable[[System], np.ndarray], system: System) -> np.ndarray:
        words = ("-g1", "dihedral", "-group1", "atoms", "-oall", "out.xvg")
        return system.gmx("gangle", *words, groups={"atoms": atoms(system).ravel()})[:, 1:]

    def cpptraj(atoms: Callable[[System], np.ndarray], system: System) -> np.ndarray:
        return system.cpptraj(*atom_lines("dihedral", atoms(system)))

    def flat(numbers: Numbers) -> Numbers:
        return lambda system: numbers(system).reshape(len(system.theirs.trajectory), -1)

    split = ("adk in water",)
    for systems, limits in ((WHOLE, (3e-3, SINGLE)), (split, (180, NO_IMAGES, BY_IMAGES, 90))):
        yield Case(
            "φ and ψ" + (" of a split molecule" if systems == split else ""),
            "°",
            flat(ours("ramachandran", get, group(PROTEIN))),
            {
                MDANALYSIS: Peer(
                    flat(theirs("ramachandran", get, group(PROTEIN))),
                    3e-3,
                    "images of bonds in single precision",
                    "paceline: dihedral angles in a triclinic cell",
                ),
                MDTRAJ: Peer(mdtraj_s, 3e-3, SINGLE),
                GROMACS: Peer(partial(gromacs, indices), 3e-3, DIGITS),
                CPPTRAJ: Peer(partial(cpptraj, indices), *limits),
            },
            systems=systems,
            period=360,
        )
    yield Case(
        "χ1 and χ2 by Janin",
        "°",
        ours("dihedrals.Janin", get, group(PROTEIN)),
        {
            MDANALYSIS: Peer(
                theirs("dihedrals.Janin", get, group(PROTEIN)),
                3e-3,
                "images of bonds in single precision",
                "paceline: dihedral angles in a triclinic cell",
            )
        },
        period=360,
    )

    def wide(universe: Any) -> list[Any]:
        first, second = pairs_of(universe)
        atoms = zip(first[:30], second[:30], first[30:60], second[30:60], strict=True)
        return [sum(four[1:], four[0]) for four in atoms if len(set(four)) == 4]

    def of_pairs(system: System) -> np.ndarray:
        return np.array([four.indices for four in wide(system.theirs)])

    def mdtraj_pairs(system: System) -> np.ndarray:
        import mdtraj

        return np.degrees(mdtraj.compute_dihedrals(system.mdtraj, of_pairs(system)))

    yield Case(
        "dihedral angles, nearest images",
        "°",
        ours("dihedrals", get, wide),
        {
            MDANALYSIS: Peer(theirs("dihedrals", get, wide), 3e-3, SINGLE),
            MDTRAJ: Peer(mdtraj_pairs, 3e-3, SINGLE),
            GROMACS: Peer(partial(gromacs, of_pairs), 3e-3, DIGITS),
            CPPTRAJ: Peer(partial(cpptraj, of_pairs), 180, NO_IMAGES, BY_IMAGES, 90),
        },
        systems=CELLS,
        period=360,
    )


def _chi() -> Iterator[Case]:
    """Angles of side chains."""
    systems = ("adk", "cobrotoxin")
    chi = ours("chi", lambda results: results, group(PROTEIN))

    def own(k: int) -> Numbers:
        return lambda system: chi(system).angles[:, chi(system).chi == k]

    def mdtraj_s(k: int, system: System) -> np.ndarray:
        import mdtraj

        frames = system.mdtraj.atom_slice(system.atoms(PROTEIN))
        return np.degrees(getattr(mdtraj, f"compute_chi{k}")(frames)[1])

    def cpptraj(k: int, system: System) -> dict[int, np.ndarray]:
        """Return the angles of each residue, by residue index."""
        path = system.folder / f"chi{k}.dat"
        residues = system.theirs.select_atoms(PROTEIN).residues
        system.cpptraj_files(
            f"multidihedral D {'chip' if k == 1 else f'chi{k}'} resrange 1-{len(residues)}",
            "run",
            f"writedata {path} D[*] {ALL_DIGITS}",
        )
        names = path.read_text().splitlines()[0].split()[1:]
        columns = np.loadtxt(path, ndmin=2)[:, 1:].T
        return {int(name.split(":")[1]) - 1: one for name, one in zip(names, columns, strict=True)}

    def of_known(k: int, system: System) -> np.ndarray:
        """Return cpptraj's angles, with paceline's for residues that cpptraj leaves out."""
        known, results = cpptraj(k, system), chi(system)
        residues = results.resindices[results.chi == k]
        columns = zip(residues, results.angles[:, results.chi == k].T, strict=True)
        return np.column_stack([known.get(residue, mine) for residue, mine in columns])

    def found(residues: Any, system: System) -> np.ndarray:
        """Return a letter for each residue: "y" if `residues` contains it, else "n"."""
        numbers = np.arange(len(system.theirs.select_atoms(PROTEIN).residues))
        return np.where(np.isin(numbers, list(residues)), "y", "n")

    for k in range(1, 6):
        yield Case(
            f"χ{k}",
            "°",
            own(k),
            {
                MDTRAJ: Peer(partial(mdtraj_s, k), 3e-3, SINGLE),
                CPPTRAJ: Peer(partial(of_known, k), 3e-3, SINGLE),
            },
            systems=systems,
            period=360,
        )
    yield Case(
        "residues that have a χ2",
        "%",
        lambda system: found(chi(system).resindices[chi(system).chi == 2], system),
        {
            CPPTRAJ: Peer(
                lambda system: found(cpptraj(2, system), system),
                10,
                "isoleucine's last atom is CD1 only, not CD",
                "paceline: isoleucine has a χ2, whatever the name",
                1,
            )
        },
        systems=systems,
    )
