"""Analyses by MDTraj, GROMACS and cpptraj, for the benchmark of analyses."""

import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import programs
from benchmarks.agreement.systems import make_tpr, write_psf
from benchmarks.data import TIME_STEP, Dataset

ACIDIC = "(resname ARG LYS) and (name NH* NZ)"
BASIC = "(resname ASP GLU) and (name OE* OD*)"
WATER = "name OW"
#: MDAnalysis's criteria for hydrogen bonds, as cpptraj options.
HBOND = "dist 3.0 angle 150 image"
#: Grid of the density, Å, around all water; cpptraj requires even numbers of voxels.
GRID: dict[str, Any] = {"gridcenter": [60, 40, 28], "xdim": 124, "ydim": 86, "zdim": 62}


class Job:
    """Files of a data set for GROMACS and cpptraj, in a separate folder."""

    def __init__(self, data: Dataset):
        import MDAnalysis

        warnings.simplefilter("ignore")
        self._temporary = tempfile.TemporaryDirectory()
        self.folder, self.data = Path(self._temporary.name), data
        self.trajectory = data.trajectory("xtc").resolve()
        self.universe = MDAnalysis.Universe(data.topology, self.trajectory)
        self._made: dict[str, Path] = {}
        #: Donors and acceptors of hydrogen bonds, after they were found.
        self.hydrogen_bonds: tuple[np.ndarray, ...] = ()

    def atoms(self, selection: str) -> np.ndarray:
        """Return atom indices from 0."""
        return self.universe.select_atoms(selection).indices

    def gmx(
        self, n: int, command: str, *words: Any, atoms: np.ndarray, given: str = "0\n"
    ) -> np.ndarray:
        """Run a GROMACS command on n frames and one group; return the columns that it writes."""
        if "tpr" not in self._made:
            self._made["tpr"] = make_tpr(self.universe, self.trajectory, self.folder)
        index = programs.write_index(self.folder / "atoms.ndx", {"atoms": atoms})
        files = ("-s", self._made["tpr"], "-f", self.trajectory, "-n", index)
        last = (n - 1) * TIME_STEP
        programs.gmx(
            self.folder, command, *files, *words, "-e", last, given=given, expect="out.xvg"
        )
        return programs.xvg(self.folder / "out.xvg")

    def run(self, n: int, *lines: str) -> Path:
        """Run cpptraj lines on n frames; return the folder of their output."""
        if "psf" not in self._made:
            path = self.folder / "atoms.psf"
            self._made["psf"] = write_psf(self.universe.atoms, path)
        return programs.cpptraj(self.folder, self._made["psf"], self.trajectory, *lines, stop=n)

    def series(self, n: int, *lines: str) -> np.ndarray:
        """Run cpptraj lines; return the data sets named ``found``, one row per frame."""
        write = f"writedata found.dat found* noheader {programs.DIGITS}"
        return np.loadtxt(self.run(n, *lines, "run", write) / "found.dat", ndmin=2)[:, 1:]


def gyration_of_mdtraj(trajectory: Any, masses: np.ndarray) -> np.ndarray:
    """Return MDTraj's radius of gyration, Å, about the geometric center."""
    import mdtraj

    return 10 * mdtraj.compute_rg(trajectory, masses=masses)


def phi_psi_of_mdtraj(trajectory: Any, _: np.ndarray) -> np.ndarray:
    """Return φ and ψ of residues that have both angles, degrees."""
    import mdtraj

    (_, phi), (_, psi) = mdtraj.compute_phi(trajectory), mdtraj.compute_psi(trajectory)
    return np.degrees(np.stack([phi[:, :-1], psi[:, 1:]], axis=2))


def sasa_of_mdtraj(n_points: int) -> Callable[[Any, np.ndarray], np.ndarray]:
    """Return the areas of residues, Å²."""

    def compute(trajectory: Any, _: np.ndarray) -> np.ndarray:
        import mdtraj

        return 100 * mdtraj.shrake_rupley(trajectory, n_sphere_points=n_points).sum(axis=1)

    return compute


def distances_of_mdtraj(trajectory: Any, _: np.ndarray) -> np.ndarray:
    """Return the distances of all pairs of Cα atoms, Å."""
    import mdtraj

    atoms = trajectory.topology.select("name CA")
    pairs = atoms[np.column_stack(np.triu_indices(len(atoms), k=1))]
    return 10 * mdtraj.compute_distances(trajectory, pairs, periodic=False)


def matrix_of_mdtraj(trajectory: Any, _: np.ndarray) -> np.ndarray:
    """Return RMSDs from the first frame, Å, after computing as many pairs as above the diagonal."""
    import mdtraj

    ca = trajectory.atom_slice(trajectory.topology.select("name CA"))
    ca.center_coordinates()
    rows = [mdtraj.rmsd(ca, ca, k, precentered=True) for k in range((len(ca) + 1) // 2)]
    return 10 * rows[0]


def gyration_of_gromacs(job: Job, n: int) -> np.ndarray:
    """Radius of gyration, Å."""
    return 10 * job.gmx(n, "gyrate", "-o", "out.xvg", atoms=job.atoms("protein"))[:, 1]


def distances_of_gromacs(job: Job, n: int) -> np.ndarray:
    """Return the distances of all pairs of Cα atoms, Å: each pair twice, and self-distances."""
    atoms = job.atoms("name CA")
    words = ("-nopbc", "-normpbc", "-refgrouping", "none", "-selgrouping", "none")
    words += ("-ref", "atoms", "-sel", "atoms")
    rows = job.gmx(n, "pairdist", *words, "-o", "out.xvg", atoms=atoms, given="")[:, 1:]
    upper = np.triu_indices(len(atoms), k=1)
    return 10 * rows.reshape(-1, len(atoms), len(atoms))[:, upper[0], upper[1]]


def phi_psi_of_gromacs(job: Job, n: int) -> np.ndarray:
    """Return φ and ψ of residues that have both angles, degrees."""
    from MDAnalysis.analysis.dihedrals import Ramachandran

    made = Ramachandran(job.universe.select_atoms("protein"))
    before, nitrogen, ca, c, after = (
        one.indices for one in (made.ag1, made.ag2, made.ag3, made.ag4, made.ag5)
    )
    phi, psi = [before, nitrogen, ca, c], [nitrogen, ca, c, after]
    atoms = np.stack([phi, psi]).transpose(2, 0, 1).ravel()
    words = ("-g1", "dihedral", "-group1", "atoms", "-oall", "out.xvg")
    rows = job.gmx(n, "gangle", *words, atoms=atoms, given="")[:, 1:]
    return rows.reshape(len(rows), -1, 2)


def sasa_of_gromacs(n_points: int) -> Callable[[Job, int], np.ndarray]:
    """Return areas, Å²."""

    def compute(job: Job, n: int) -> np.ndarray:
        words = ("-surface", "atoms", "-ndots", n_points, "-o", "out.xvg")
        return 100 * job.gmx(n, "sasa", *words, atoms=job.atoms("protein"), given="")[:, 1]

    return compute


def covariance_of_gromacs(job: Job, n: int) -> np.ndarray:
    """Return the first eigenvalues, Å², divided by n - 1."""
    words = ("-nofit", "-nopbc", "-o", "out.xvg", "-last", 3)
    rows = job.gmx(n, "covar", *words, atoms=job.atoms("name CA"), given="0 0\n")
    return 100 * rows[:3, 1] * n / max(n - 1, 1)


def axis_of_gromacs(job: Job, n: int) -> np.ndarray:
    """Return the density along z only, in slices of another width."""
    n_slices = int(job.universe.dimensions[:3].max() // 0.25)
    words = ("-d", "Z", "-sl", n_slices, "-o", "out.xvg")
    return job.gmx(n, "density", *words, atoms=job.atoms("all"))[:, 1] / 1000


def gyration_of_cpptraj(job: Job, n: int) -> np.ndarray:
    """Radius of gyration, Å."""
    return job.series(n, f"radgyr found {programs.mask(job.atoms('protein'))} mass nomax")[:, 0]


def contacts_of_cpptraj(job: Job, n: int) -> np.ndarray:
    """Return the fraction of the first frame's salt bridges."""
    groups = " ".join(programs.mask(job.atoms(one)) for one in (ACIDIC, BASIC))
    job.run(
        n,
        f"nativecontacts name N {groups} distance 4.5 first",
        "run",
        f"writedata q.dat N[native] noheader {programs.DIGITS}",
    )
    counts = np.loadtxt(job.folder / "q.dat", ndmin=2)[:, 1]
    return counts / counts[0]


def phi_psi_of_cpptraj(job: Job, n: int) -> np.ndarray:
    """Return φ and ψ of residues that have both angles, degrees."""
    last = len(job.universe.select_atoms("protein").residues)
    write = (f"writedata {one}.dat D[{one}] noheader {programs.DIGITS}" for one in ("phi", "psi"))
    folder = job.run(n, f"multidihedral D phi psi resrange 1-{last}", "run", *write)
    phi, psi = (np.loadtxt(folder / f"{one}.dat", ndmin=2)[:, 1:] for one in ("phi", "psi"))
    return np.stack([phi[:, :-1], psi[:, 1:]], axis=2)


def bonds_of_cpptraj(job: Job, n: int) -> np.ndarray:
    """Count hydrogen bonds in each frame, with MDAnalysis's donors and acceptors."""
    return _bonds(job, n, _donors_and_acceptors(job))


def bonds_to_water_of_cpptraj(job: Job, n: int) -> np.ndarray:
    """Count hydrogen bonds between protein and water, in both directions, in each frame."""
    donors, acceptors = _donors_and_acceptors(job)
    groups = job.atoms("protein"), job.atoms(WATER)
    return _bonds(
        *(job, n),
        *(
            (np.intersect1d(donors, one), np.intersect1d(acceptors, other))
            for one, other in (groups, groups[::-1])
        ),
    )


def _bonds(job: Job, n: int, *sides: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Count hydrogen bonds in each frame for pairs of donors and acceptors."""
    names = []
    lines = []
    for number, masks in enumerate(sides):
        # Oxygens of four-site water have no charge, and so are not guessed as acceptors.
        if all(map(len, masks)):
            names.append(f"bonds{number}.dat")
            words = "donormask {} acceptormask {}".format(*map(programs.mask, masks))
            lines.append(f"hbond H{number} {words} {HBOND} out {job.folder / names[-1]}")
    job.run(n, *lines)
    counts = (np.loadtxt(job.folder / name, usecols=[1], ndmin=1) for name in names)
    return np.sum(list(counts), axis=0)


def _donors_and_acceptors(job: Job) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices that MDAnalysis guesses."""
    from MDAnalysis.analysis.hydrogenbonds import HydrogenBondAnalysis

    if not job.hydrogen_bonds:
        found = HydrogenBondAnalysis(job.universe)
        hydrogens = job.universe.select_atoms(found.hydrogens_sel)
        donors = np.unique([one.bonded_atoms[0].index for one in hydrogens])
        job.hydrogen_bonds = donors, job.atoms(found.acceptors_sel)
    return job.hydrogen_bonds


def structure_of_cpptraj(job: Job, n: int) -> np.ndarray:
    """Return the secondary structure as cpptraj's numbers."""
    last = len(job.universe.select_atoms("protein").residues)
    folder = job.run(n, f"secstruct S :1-{last} out structure.dat nameh HN")
    return np.loadtxt(folder / "structure.dat", ndmin=2)[:, 1:]


def sasa_of_cpptraj(job: Job, n: int) -> np.ndarray:
    """Return areas by LCPO, an approximation without points, Å²."""
    return job.series(n, f"surf found {programs.mask(job.atoms('protein'))}")[:, 0]


def average_of_cpptraj(job: Job, n: int) -> np.ndarray:
    """Return the average positions of all atoms, Å."""
    from netCDF4 import Dataset as Written

    folder = job.run(n, "rms first", "average average.nc netcdf")
    with Written(folder / "average.nc") as written:
        return written["coordinates"][0].filled()


def covariance_of_cpptraj(job: Job, n: int) -> np.ndarray:
    """Return the first eigenvalues, Å², divided by n - 1."""
    atoms = programs.mask(job.atoms("name CA"))
    lines = (f"matrix covar name C {atoms}", "run", "diagmatrix C out modes.dat vecs 3 name V")
    _, *parts = (job.run(n, *lines) / "modes.dat").read_text().split("****")
    return np.array([float(part.split()[1]) for part in parts]) * n / max(n - 1, 1)


def matrix_of_cpptraj(job: Job, n: int) -> np.ndarray:
    """Return RMSDs from the first frame, Å, from the matrix of all pairs."""
    words = f"out matrix.dat square2d {programs.DIGITS}"
    folder = job.run(n, f"rms2d {programs.mask(job.atoms('name CA'))} {words}")
    return np.loadtxt(folder / "matrix.dat", ndmin=2)[0, 1:]


def displacement_of_gromacs(job: Job, n: int) -> np.ndarray:
    """Return the mean squared displacement of water from all time origins, Å²."""
    words = ("-sel", "atoms", "-trestart", TIME_STEP, "-normpbc", "-o", "out.xvg")
    return 100 * job.gmx(n, "msd", *words, atoms=job.atoms(WATER), given="")[:, 1]


def displacement_of_cpptraj(job: Job, n: int) -> np.ndarray:
    """Return the mean squared displacement of water from the first frame, Å²."""
    atoms = job.universe.select_atoms(WATER)
    mask = f":{atoms.resindices[0] + 1}-{atoms.resindices[-1] + 1}@{atoms.names[0]}"
    job.run(n, f"diffusion {mask} noimage nocalc out msd.dat {programs.DIGITS}")
    return np.loadtxt(job.folder / "msd.dat", ndmin=2)[:, -1]


def density_of_cpptraj(job: Job, n: int) -> np.ndarray:
    """Return the density of water in voxels of 1 Å."""
    from gridData import Grid

    atoms = job.universe.select_atoms(WATER)
    size = " ".join(f"{GRID[side]} 1" for side in ("xdim", "ydim", "zdim"))
    center = " ".join(map(str, GRID["gridcenter"]))
    mask = f":{atoms.resindices[0] + 1}-{atoms.resindices[-1] + 1}@{atoms.names[0]}"
    folder = job.run(n, f"grid grid.dx {size} gridcenter {center} {mask} normframe")
    return Grid(str(folder / "grid.dx")).grid


def axis_of_cpptraj(job: Job, n: int) -> np.ndarray:
    """Return the density along z only, in cpptraj's own slices."""
    folder = job.run(n, "density out density.dat name D mass delta 0.25 z @*")
    return np.loadtxt(folder / "density.dat", ndmin=2)[:, 1]
