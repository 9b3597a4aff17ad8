"""Conversion of some atoms of a trajectory to a new file, with each tool.

A function here prepares a tool (imports, topology, opening) and returns a run. Called with a number
of frames, the run converts these frames and returns the path of the new file. Each tool is used as
in its own documentation or program, on one core.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.data import Dataset
from benchmarks.measure import Run


@dataclass(frozen=True)
class Conversion:
    """Suffixes of source and target, and the atoms (None for all)."""

    data: Dataset
    source: str
    target: str
    atoms: np.ndarray | None
    folder: Path
    gzip: int | None = None  # level of an H5MD file's compression

    @property
    def trajectory(self) -> Path:
        """Return the file to convert."""
        return self.data.trajectory(self.source)

    def output(self, tool: str) -> Path:
        """Return the file that `tool` writes."""
        return self.folder / f"{tool}.{self.target}"


def mdanalysis(task: Conversion) -> Run:
    """MDAnalysis's writers, frame by frame."""
    import MDAnalysis

    universe = MDAnalysis.Universe(task.data.topology, task.trajectory)
    atoms = universe.atoms if task.atoms is None else universe.atoms[task.atoms]
    output = task.output("mdanalysis")
    options = {"compression": "gzip", "compression_opts": task.gzip} if task.gzip else {}

    def run(n: int) -> Path:
        with MDAnalysis.Writer(str(output), len(atoms), **options) as writer:
            for _ in universe.trajectory[:n]:
                writer.write(atoms)
            writer.close()  # leaving the block does not close an H5MD file
        return output

    return run


def paceline(task: Conversion, n_workers: int) -> Run:
    """Paceline on `n_workers` threads."""
    import paceline

    universe = paceline.Universe(task.data.topology, task.trajectory)
    atoms = universe.atoms if task.atoms is None else universe.atoms[task.atoms]
    output = task.output(f"paceline-{n_workers}")
    options = {"chunk": "frame"} if task.target == "h5md" else {}
    if task.gzip:
        options["compress"] = f"gzip:{task.gzip}"

    def run(n: int) -> Path:
        writing = paceline.Write(atoms, output, overwrite=True, **options)
        writing.run(stop=n, backend="threads", n_workers=n_workers)
        return output

    return run


def mdtraj(task: Conversion, chunk: int = 100) -> Run:
    """MDTraj's files of arrays, in chunks, as ``mdconvert`` uses them."""
    import mdtraj

    output = task.output("mdtraj")
    arrays = _MDTRAJ_ARRAYS[task.source, task.target]

    def run(n: int) -> Path:
        source = mdtraj.open(str(task.trajectory))
        target = mdtraj.open(str(output), "w", force_overwrite=True)
        with source, target:
            for start in range(0, n, chunk):
                read = source.read(n_frames=min(chunk, n - start), atom_indices=task.atoms)
                target.write(*arrays(*read, start))
        return output

    return run


def _same(*arrays_and_start):
    return arrays_and_start[:-1]


def _dcd_to_xtc(positions, lengths, angles, start):
    """Convert Å to nm, and cells to vectors."""
    from mdtraj.utils.unitcell import lengths_and_angles_to_box_vectors

    vectors = lengths_and_angles_to_box_vectors(*(lengths / 10).T, *angles.T)
    steps = np.arange(start, start + len(positions), dtype=np.int32)
    positions /= 10
    return positions, steps.astype(np.float32), steps, np.stack(vectors, axis=1)


def _xtc_to_dcd(positions, times, steps, box, start):
    """Convert nm to Å, and vectors to cells."""
    from mdtraj.utils.unitcell import box_vectors_to_lengths_and_angles

    cell = box_vectors_to_lengths_and_angles(*box.transpose(1, 0, 2))
    positions *= 10
    return positions, 10 * np.stack(cell[:3], axis=1), np.stack(cell[3:], axis=1)


_MDTRAJ_ARRAYS = {
    ("xtc", "xtc"): _same,
    ("dcd", "xtc"): _dcd_to_xtc,
    ("xtc", "dcd"): _xtc_to_dcd,
}
