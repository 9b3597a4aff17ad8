"""Systems on which tools are compared: files of MDAnalysisTests in formats that each tool reads.

Each tool reads the original trajectory if it supports the format; for GROMACS, other formats are
converted to TRR. Topologies in formats that not all tools read are converted to PSF, and to TPR by
``gmx grompp``. Masses, charges and bonds are the same for all tools.
"""

import bz2
import shutil
from collections.abc import Sequence
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import programs


class Recipe(NamedTuple):
    """File names in MDAnalysisTests, and a description of the content."""

    topology: str
    trajectory: str
    holds: str


RECIPES = {
    "adk": Recipe("PSF", "DCD", "protein, no cell"),
    "adk in water": Recipe("TPR", "XTC", "rhombic dodecahedron"),
    "tryptophan zipper": Recipe("PRM7", "NCDFtruncoct", "truncated octahedron"),
    "cobrotoxin": Recipe("TPR_xvf", "TRR_xvf", "cube"),
}
#: Cell for GROMACS if a system has none, too large for any nearby image.
NO_CELL = (5000.0, 5000.0, 5000.0, 90.0, 90.0, 90.0)
#: Parameters for ``gmx grompp``: nothing is simulated.
PARAMETERS = """integrator = md
nsteps = 0
cutoff-scheme = Verlet
rcoulomb = 0.5
rvdw = 0.5
"""


class System:
    """System whose files are in a separate folder."""

    def __init__(self, name: str, folder: Path):
        self.name, self.recipe = name, RECIPES[name]
        self.folder = folder / name.replace(" ", "-")
        self.folder.mkdir()
        from MDAnalysisTests import datafiles

        self._source = self._copy(getattr(datafiles, self.recipe.topology))
        self.trajectory = self._copy(getattr(datafiles, self.recipe.trajectory))

    @property
    def files(self) -> str:
        """Names of the files."""
        return f"{self._source.name}, {self.trajectory.name}"

    @cached_property
    def theirs(self) -> Any:
        """Universe with MDAnalysis's own reader."""
        import MDAnalysis

        return MDAnalysis.Universe(str(self._source), str(self.trajectory))

    @cached_property
    def ours(self) -> Any:
        """Universe with paceline's reader."""
        import paceline

        return paceline.Universe(str(self._source), str(self.trajectory))

    @cached_property
    def mdtraj(self) -> Any:
        """MDTraj trajectory with all frames in memory."""
        import mdtraj

        return mdtraj.load(str(self.trajectory), top=str(self.topology))

    @cached_property
    def topology(self) -> Path:
        """Topology as PSF or in Amber's format, for MDTraj and cpptraj."""
        if self._source.suffix in (".psf", ".parm7"):
            return self._source
        return write_psf(self.theirs.atoms, self.folder / "atoms.psf")

    @cached_property
    def tpr(self) -> Path:
        """Topology as TPR, for GROMACS."""
        return make_tpr(self.theirs, self.frames, self.folder)

    @cached_property
    def frames(self) -> Path:
        """Trajectory in a format that GROMACS reads."""
        if self.trajectory.suffix in (".xtc", ".trr"):
            return self.trajectory
        import MDAnalysis

        path = self.folder / "frames.trr"
        with MDAnalysis.Writer(str(path), len(self.theirs.atoms)) as writer:
            for ts in self.theirs.trajectory:
                ts.time = float(ts.frame)
                if ts.dimensions is None:
                    ts.dimensions = NO_CELL
                writer.write(self.theirs.atoms)
        return path

    def time_of(self, frame: int) -> float:
        """Return the time of a frame in the file that GROMACS reads, ps."""
        if self.frames != self.trajectory:
            return float(frame)
        return float(self.theirs.trajectory[frame].time)

    @cached_property
    def ramachandran(self) -> Any:
        """MDAnalysis's analysis of the protein, which selects the atoms of φ and ψ."""
        from MDAnalysis.analysis.dihedrals import Ramachandran

        return Ramachandran(self.theirs.select_atoms("protein"))

    def atoms(self, selection: str) -> np.ndarray:
        """Return atom indices from 0."""
        return self.theirs.select_atoms(selection).indices

    def amber_radii(self, selection: str) -> np.ndarray:
        """Return radii in Amber's topology, Å."""
        _, found = self.topology.read_text().split("%FLAG RADII")
        rows = found.split("%FLAG")[0].split("\n", 2)[2]
        return np.array(rows.split(), dtype=float)[self.atoms(selection)]

    def mask(self, selection: str) -> str:
        """Convert a selection to a cpptraj mask."""
        return programs.mask(self.atoms(selection))

    def in_memory(self) -> Any:
        """Create an MDAnalysis Universe in memory, whose frames may be changed."""
        import MDAnalysis

        return MDAnalysis.Universe(str(self._source), str(self.trajectory), in_memory=True)

    def cpptraj(self, *lines: str) -> np.ndarray:
        """Run cpptraj lines; return data sets named ``found``, one row per frame."""
        return programs.series(self.folder, self.topology, self.trajectory, *lines)

    def cpptraj_files(self, *lines: str) -> Path:
        """Run cpptraj lines; return the folder of the files that they write."""
        return programs.cpptraj(self.folder, self.topology, self.trajectory, *lines)

    def gmx(
        self,
        command: str,
        *words: Any,
        groups: dict[str, Sequence[int]] | None = None,
        given: str = "",
        out: str = "out.xvg",
    ) -> np.ndarray:
        """Run a GROMACS command on all frames; return the columns that it writes to `out`."""
        index: list[Any] = []
        if groups is not None:
            index = ["-n", programs.write_index(self.folder / "groups.ndx", groups)]
        words = ("-s", self.tpr, "-f", self.frames, *index, *words)
        programs.gmx(self.folder, command, *words, given=given, expect=out)
        return programs.xvg(self.folder / out)

    def _copy(self, path: Any) -> Path:
        """Copy and decompress a file, so that indexes are not written to the package's folder."""
        source = Path(path)
        if source.suffix == ".bz2":
            copy = self.folder / source.stem
            copy.write_bytes(bz2.decompress(source.read_bytes()))
            return copy
        return Path(shutil.copy(source, self.folder))


def write_psf(atoms: Any, path: Path) -> Path:
    """Write names, masses, charges and bonds as PSF, in space-separated columns."""
    lines = ["PSF EXT", "", f"{1:>10} !NTITLE", "* atoms", "", f"{len(atoms):>10} !NATOM"]
    columns = (atoms.resids, atoms.resnames, atoms.names, atoms.charges, atoms.masses)
    for number, (resid, resname, name, charge, mass) in enumerate(
        zip(*columns, strict=True), start=1
    ):
        lines.append(
            f"{number:>10} {'A':<8} {resid:<8} {resname:<8} {name:<8} {name:<6} "
            f"{charge:>10.6f} {mass:>13.5f} {0:>11}"
        )
    numbers = (atoms.bonds.indices + 1).ravel()
    lines += ["", f"{len(atoms.bonds):>10} !NBOND: bonds"]
    lines += ["".join(f"{n:>10}" for n in part) for part in _parts(numbers, 8)]
    for section in ("NTHETA: angles", "NPHI: dihedrals", "NIMPHI: impropers"):
        lines += ["", f"{0:>10} !{section}"]
    path.write_text("\n".join([*lines, ""]))
    return path


def make_tpr(universe: Any, frames: Path, folder: Path) -> Path:
    """Create a TPR with masses, charges and bonds of a Universe, and its first frame."""
    atoms = universe.atoms
    ts, names = universe.trajectory[0], folder / "start.gro"
    if ts.dimensions is None:
        ts.dimensions = NO_CELL
    atoms.write(str(names))
    universe.trajectory[0]
    kinds: dict[str, str] = {}
    molecules, texts = [], []
    for fragment in sorted(atoms.fragments, key=lambda one: one.indices[0]):
        first = fragment.indices[0]
        if not np.array_equal(fragment.indices, np.arange(first, first + len(fragment))):
            raise ValueError(f"the atoms of the molecule of atom {first} do not follow each other")
        columns = (fragment.resids - fragment.resids[0] + 1, fragment.resnames, fragment.names)
        lines = [
            f"{k} {'X' if mass else 'V'} {resid} {resname} {name} {k} {charge:.6f} {mass:.5f}"
            for k, (resid, resname, name, charge, mass) in enumerate(
                zip(*columns, fragment.charges, fragment.masses, strict=True), start=1
            )
        ]
        bonds = [
            f"{a - first + 1} {b - first + 1} 5" for a, b in sorted(fragment.bonds.indices.tolist())
        ]
        text = "\n".join(["[ atoms ]", *lines, "[ bonds ]", *bonds, ""])
        kind = kinds.setdefault(text, f"M{len(kinds)}")
        if len(kinds) > len(texts):
            texts.append(f"[ moleculetype ]\n{kind} 1\n{text}")
        molecules.append(kind)
    listed = "\n".join(f"{kind} {len(list(run))}" for kind, run in groupby(molecules))
    (folder / "made.top").write_text(
        "[ defaults ]\n1 2 no 1 1\n[ atomtypes ]\nX 6 12 0 A 0 0\nV 0 0 0 V 0 0\n"
        + "\n".join(texts)
        + f"\n[ system ]\nmade\n[ molecules ]\n{listed}\n"
    )
    (folder / "made.mdp").write_text(PARAMETERS)
    # The structure has as many digits as the frames.
    words = ("-s", names, "-f", frames, "-dump", "0", "-o", "start.g96")
    programs.gmx(folder, "trjconv", *words, given="0\n")
    words = (
        "-f",
        "made.mdp",
        "-c",
        "start.g96",
        "-p",
        "made.top",
        "-o",
        "made.tpr",
        "-maxwarn",
        "9",
    )
    programs.gmx(folder, "grompp", *words)
    return folder / "made.tpr"


def _parts(values: np.ndarray, size: int) -> list[np.ndarray]:
    return [values[k : k + size] for k in range(0, len(values), size)]
