"""RMSD (also between all frames), RMSF, average structures and principal components."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from benchmarks.agreement.case import (
    CA,
    CPPTRAJ,
    DIGITS,
    GROMACS,
    MDANALYSIS,
    MDTRAJ,
    SINGLE,
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

BY_DEFINITION = "both, by definition"
BACKBONE, CB = "protein and backbone", "protein and name CB"
#: Number of compared eigenvalues.
N_COMPONENTS = 5
NEAR_ZERO = "single precision: near 0 it is the root of a rounded difference"


def cases() -> Iterator[Case]:
    yield from _rmsd()
    yield from _rmsf()
    yield from _matrices()
    yield from _structures()
    yield from _components()


def _rmsd() -> Iterator[Case]:
    def column(k: int) -> Callable[[Any], Any]:
        return lambda results: results.rmsd[:, k]

    def both(k: int = 2, **options: Any) -> tuple[Numbers, Numbers]:
        arguments = ("rmsd", column(k), whole)
        return ours(*arguments, **options), theirs(*arguments, **options)

    def gromacs(*words: str, groups: tuple[str, ...] = (CA,)) -> Numbers:
        """Run ``gmx rms`` with options: the first group is superposed, the last one is measured."""

        def numbers(system: System) -> np.ndarray:
            numbered = {f"group{k}": system.atoms(one) for k, one in enumerate(groups)}
            given = f"0 {len(groups) - 1}\n"
            rows = system.gmx("rms", *words, "-o", "out.xvg", groups=numbered, given=given)
            return 10 * rows[:, 1]

        return numbers

    def cpptraj(selection: str, *words: str) -> Numbers:
        line = f"rms found {{mask}} first {' '.join(words)}"
        return lambda system: system.cpptraj(line.format(mask=system.mask(selection)))[:, 0]

    def mdtraj_s(selection: str, system: System) -> np.ndarray:
        import mdtraj

        frames = system.mdtraj
        return 10 * mdtraj.rmsd(frames, frames, 0, atom_indices=system.atoms(selection))

    own, their = both(select=CA)
    yield Case(
        "RMSD of Cα",
        "Å",
        own,
        {
            MDANALYSIS: Peer(their, 3e-6, SINGLE),
            MDTRAJ: Peer(partial(mdtraj_s, CA), 6e-3, NEAR_ZERO, "paceline: 0 of frame 0", 1e-4),
            GROMACS: Peer(gromacs("-nomw", "-nopbc"), 1e-5, DIGITS),
            CPPTRAJ: Peer(cpptraj(CA), 2e-6),
        },
    )
    own, their = both(select=BACKBONE, weights="mass")
    yield Case(
        "RMSD of the backbone by mass",
        "Å",
        own,
        {
            MDANALYSIS: Peer(their, 5e-6, SINGLE),
            MDTRAJ: Peer(
                partial(mdtraj_s, BACKBONE), 0.2, "has no weights", "both, by definition", 1e-2
            ),
            GROMACS: Peer(gromacs("-nopbc", groups=(BACKBONE,)), 4e-5, SINGLE),
            CPPTRAJ: Peer(cpptraj(BACKBONE, "mass"), 2e-6),
        },
    )
    yield Case(
        "RMSD of Cα, defaults",
        "Å",
        both(select=CA)[0],
        {
            GROMACS: Peer(
                gromacs(),
                40,
                "molecules are made whole, weights are masses",
                "both: RMSD(weights='mass') with transforms.unwrap, below",
                5,
            )
        },
        systems=("adk in water",),
    )
    yield Case(
        "RMSD of Cα by mass, molecules made whole",
        "Å",
        unwrapped("rmsd", column(2), whole, select=CA, weights="mass"),
        {GROMACS: Peer(gromacs(), 1e-5, DIGITS)},
        systems=("adk in water", "tryptophan zipper", "cobrotoxin"),
    )

    def by_function(system: System) -> list[float]:
        from MDAnalysis.analysis.rms import rmsd

        found = each_frame(lambda u: u.select_atoms(CA).positions.astype(float))(system)
        return [rmsd(one, found[0]) for one in found]

    yield Case(
        "RMSD of Cα, not superposed",
        "Å",
        both(select=CA, superposition=False)[0],
        {
            f"{MDANALYSIS}, RMSD(superposition=False)": Peer(
                both(select=CA, superposition=False)[1],
                10,
                "the keyword is ignored: frames are superposed",
                "paceline: a shift of 3 Å is 3 Å",
                0.5,
            ),
            f"{MDANALYSIS}, rmsd()": Peer(by_function, 1e-9),
            GROMACS: Peer(gromacs("-nomw", "-nopbc", "-fit", "none"), 2e-5, SINGLE),
            CPPTRAJ: Peer(cpptraj(CA, "nofit"), 2e-6),
        },
    )

    def of_group(system: System) -> np.ndarray:
        """Return the RMSD of MDTraj's frames from the first, after superposition on other atoms."""
        frames = system.mdtraj[:]
        frames.superpose(frames, 0, atom_indices=system.atoms(CA))
        found = 10 * frames.xyz[:, system.atoms(CB)].astype(float)
        return np.sqrt(((found - found[0]) ** 2).sum(axis=2).mean(axis=1))

    own, their = both(3, select=CA, groupselections=[CB])
    lines = ("rms fit {ca} first", "rms found {cb} first nofit")
    yield Case(
        "RMSD of Cβ, superposed by Cα",
        "Å",
        own,
        {
            MDANALYSIS: Peer(their, 3e-6, SINGLE),
            MDTRAJ: Peer(of_group, 1e-5, SINGLE),
            GROMACS: Peer(gromacs("-nomw", "-nopbc", groups=(CA, CB)), 2e-5, SINGLE),
            CPPTRAJ: Peer(
                lambda system: system.cpptraj(
                    *(line.format(ca=system.mask(CA), cb=system.mask(CB)) for line in lines)
                )[:, 0],
                2e-6,
            ),
        },
    )


def _rmsf() -> Iterator[Case]:
    def fluctuations(results: Any) -> np.ndarray:
        return results.rmsf

    def fitted(**options: Any) -> Numbers:
        import paceline

        transforms = [paceline.transform.fit(CA, **options)]
        return ours("rmsf", fluctuations, group(CA), transforms=transforms)

    def gromacs(*words: str) -> Numbers:
        def numbers(system: System) -> np.ndarray:
            atoms = {"atoms": system.atoms(CA)}
            return 10 * system.gmx("rmsf", *words, "-o", "out.xvg", groups=atoms, given="0\n")[:, 1]

        return numbers

    def cpptraj(*before: str) -> Numbers:
        def numbers(system: System) -> np.ndarray:
            lines = (*before, "atomicfluct found {ca}")
            return system.cpptraj(*(line.format(ca=system.mask(CA)) for line in lines))[:, 0]

        return numbers

    def mdtraj_s(reference: int | None, times: int, system: System) -> np.ndarray:
        """Return MDTraj's RMSF after superposition on frame 0, then on the average, or without."""
        import mdtraj

        frames = system.mdtraj.atom_slice(system.atoms(CA))
        for k in range(times):
            target = frames[:1]
            if k == 1:
                target.xyz = frames.xyz.mean(axis=0, keepdims=True)
            frames.superpose(target, 0)
        first = None if reference is None else frames
        return 10 * mdtraj.rmsf(frames, first, reference or 0)

    yield Case(
        "RMSF of Cα, not superposed",
        "Å",
        ours("rmsf", fluctuations, group(CA)),
        {
            MDANALYSIS: Peer(theirs("rmsf", fluctuations, group(CA)), 1e-9),
            MDTRAJ: Peer(
                partial(mdtraj_s, None, 0),
                20,
                "rmsf(reference=None) superposes nothing, but moves each frame's center to 0",
                "both, by definition",
                0.01,
            ),
            GROMACS: Peer(gromacs("-nofit"), 6e-4, DIGITS),
            CPPTRAJ: Peer(cpptraj(), 4e-6),
        },
    )
    yield Case(
        "RMSF of Cα, superposed on frame 0",
        "Å",
        fitted(),
        {
            MDTRAJ: Peer(partial(mdtraj_s, 0, 0), 1e-5, SINGLE),
            CPPTRAJ: Peer(cpptraj("rms {ca} first"), 4e-6),
        },
    )
    yield Case(
        "RMSF of Cα, superposed on frame 0 by mass",
        "Å",
        fitted(weights="mass"),
        {GROMACS: Peer(gromacs(), 6e-4, DIGITS)},
        systems=WHOLE,
    )

    def about(system: System) -> np.ndarray:
        """Run MDAnalysis's three classes one after another."""
        from MDAnalysis.analysis import align, rms

        universe = system.in_memory()
        average = align.AverageStructure(universe, select=CA).run().results.universe
        align.AlignTraj(universe, average, select=CA, in_memory=True).run()
        return rms.RMSF(universe.select_atoms(CA)).run().results.rmsf

    steps = ("rms {ca} first", "average crdset AVERAGE", "run", "rms {ca} ref AVERAGE")
    yield Case(
        "RMSF of Cα, superposed on the average structure",
        "Å",
        ours("rmsf", fluctuations, group(CA), align=True),
        {
            MDANALYSIS: Peer(about, 1e-5, SINGLE),
            MDTRAJ: Peer(partial(mdtraj_s, None, 2), 1e-5, SINGLE),
            CPPTRAJ: Peer(cpptraj(*steps), 4e-6),
        },
    )


def _matrices() -> Iterator[Case]:
    def get(results: Any) -> np.ndarray:
        return results.dist_matrix

    def mdtraj_s(system: System) -> np.ndarray:
        import mdtraj

        frames = system.mdtraj.atom_slice(system.atoms(CA))
        found = [mdtraj.rmsd(frames, frames, k) for k in range(len(frames))]
        return 10 * np.array(found) * (1 - np.eye(len(frames)))

    def cpptraj(words: str) -> Numbers:
        def numbers(system: System) -> np.ndarray:
            path = system.folder / "matrix.dat"
            system.cpptraj_files(
                f"rms2d {system.mask(CA)} {words} out {path} square2d {ALL_DIGITS}"
            )
            return np.loadtxt(path)[:, 1:]

        return numbers

    arguments = ("rmsd-matrix", get, whole)
    yield Case(
        "RMSD of Cα between all frames",
        "Å",
        ours(*arguments, select=CA, superposition=True),
        {
            MDTRAJ: Peer(mdtraj_s, 2e-3, SINGLE),
            CPPTRAJ: Peer(cpptraj(""), 1e-4),
            f"{MDANALYSIS}, DistanceMatrix": Peer(
                theirs(*arguments, select=CA),
                10,
                "does not superpose, nor does DistanceMatrix without superposition=True",
                BY_DEFINITION,
                0.5,
            ),
        },
        systems=WHOLE,
    )
    yield Case(
        "RMSD of Cα between all frames, not superposed",
        "Å",
        ours(*arguments, select=CA),
        {
            MDANALYSIS: Peer(theirs(*arguments, select=CA), 1e-5, SINGLE),
            CPPTRAJ: Peer(cpptraj("nofit"), 1e-4),
        },
        systems=WHOLE,
    )


def _structures() -> Iterator[Case]:
    arguments = ("average", lambda results: results.positions, whole)

    def mdtraj_s(system: System) -> np.ndarray:
        frames = system.mdtraj.atom_slice(system.atoms(CA))
        frames.superpose(frames, 0)
        return 10 * frames.xyz.mean(axis=0, dtype=float)

    def cpptraj(system: System) -> np.ndarray:
        from netCDF4 import Dataset

        atoms = system.mask(CA)
        system.cpptraj_files(f"rms {atoms} first", f"average average.nc {atoms} netcdf")
        with Dataset(system.folder / "average.nc") as written:
            return written["coordinates"][0].filled()

    yield Case(
        "average structure of Cα",
        "Å",
        ours(*arguments, select=CA),
        {
            MDANALYSIS: Peer(theirs(*arguments, select=CA), 1e-5, SINGLE),
            MDTRAJ: Peer(mdtraj_s, 1e-5, SINGLE),
            CPPTRAJ: Peer(cpptraj, 1e-5, SINGLE),
        },
    )


def _components() -> Iterator[Case]:
    systems = ("adk", "tryptophan zipper")

    def variance(results: Any) -> np.ndarray:
        return results.variance[:N_COMPONENTS]

    def gromacs(system: System) -> np.ndarray:
        atoms = {"atoms": system.atoms(CA)}
        words = ("-nopbc", "-o", "out.xvg", "-last", "10")
        return 100 * system.gmx("covar", *words, groups=atoms, given="0 0\n")[:N_COMPONENTS, 1]

    def cpptraj(system: System) -> tuple[np.ndarray, np.ndarray]:
        """Return eigenvalues and eigenvectors."""
        atoms = system.mask(CA)
        lines = (f"rms {atoms} first", f"matrix covar name C {atoms}", "run")
        diagonal = f"diagmatrix C out modes.dat vecs {N_COMPONENTS} name V"
        folder = system.cpptraj_files(*lines, diagonal)
        _, *parts = (folder / "modes.dat").read_text().split("****")
        rows = np.array([part.split() for part in parts], dtype=float)
        return rows[:, 1], rows[:, 2:]

    def more(numbers: Numbers) -> Numbers:
        """Multiply by n / (n - 1), for n frames."""

        def corrected(system: System) -> Any:
            n = len(system.theirs.trajectory)
            return numbers(system) * n / (n - 1)

        return corrected

    def values(system: System) -> np.ndarray:
        return cpptraj(system)[0]

    arguments = ("pca", variance, whole)
    by_n = "divides by the number of frames n, not n - 1", "both, by definition: times n / (n - 1)"
    yield Case(
        "PCA of Cα, first eigenvalues",
        "Å²",
        ours(*arguments, select=CA, align=True),
        {
            MDANALYSIS: Peer(theirs(*arguments, select=CA, align=True), 1e-4, SINGLE),
            GROMACS: Peer(gromacs, 20, *by_n, 5),
            CPPTRAJ: Peer(values, 20, *by_n, 5),
            f"{GROMACS}, times n / (n - 1)": Peer(more(gromacs), 0.01, DIGITS),
            f"{CPPTRAJ}, times n / (n - 1)": Peer(more(values), 1e-4, DIGITS),
        },
        systems=systems,
    )

    def overlap(other: Callable[[System], np.ndarray]) -> Numbers:
        """Return 1 minus the root mean square inner product with paceline's components."""
        components = ours("pca", lambda r: r.p_components, whole, select=CA, align=True)

        def numbers(system: System) -> float:
            mine = components(system)[:, :N_COMPONENTS]
            return 1 - np.sqrt(((other(system) @ mine) ** 2).sum() / N_COMPONENTS)

        return numbers

    their_components = theirs(
        "pca", lambda r: r.p_components[:, :N_COMPONENTS].T, whole, select=CA, align=True
    )
    yield Case(
        "PCA of Cα, subspace of the first components (1 - RMSIP)",
        "",
        lambda system: 0.0,
        {
            MDANALYSIS: Peer(overlap(their_components), 1e-6),
            CPPTRAJ: Peer(overlap(lambda system: cpptraj(system)[1]), 1e-5, DIGITS),
        },
        systems=systems,
    )
