"""One analysis, the RMSD of 214 Cα atoms after superposition, with each tool.

A function here prepares a tool on a trajectory (imports, topology, opening) and returns a run.
Called with a number of frames, the run reads these frames from the file and returns their RMSD from
the first frame, Å. Each tool is used as in its own documentation, on one core, and reads as little
of a frame as it can.
"""

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from benchmarks import programs
from benchmarks.data import SELECTION, TIME_STEP, Dataset
from benchmarks.measure import Run, Unavailable

YARDSTICK = Path(__file__).with_name("yardstick.c")


def frames_of(data: Dataset, suffix: str) -> str | np.ndarray:
    """Return the path of the trajectory; for the suffix "memory", its positions in an array."""
    if suffix != "memory":
        return str(data.trajectory(suffix))
    import paceline

    return paceline.open(data.trajectory("dcd")).positions()


def mdanalysis(data: Dataset, suffix: str) -> Run:
    """MDAnalysis, serial."""
    import MDAnalysis
    from MDAnalysis.analysis.rms import RMSD

    universe = MDAnalysis.Universe(data.topology)
    ca = universe.select_atoms(SELECTION)
    frames = frames_of(data, suffix)

    def run(n: int) -> np.ndarray:
        universe.load_new(frames)
        values = RMSD(ca).run(stop=n).results.rmsd[:, 2]
        # Close the file, because MDAnalysis maps NetCDF files, and mapped pages stay in the page
        # cache even if they are dropped for the next run.
        universe.trajectory.close()
        return values

    return run


def paceline(data: Dataset, suffix: str, n_workers: int) -> Run:
    """Paceline on `n_workers` threads; after the file's last frame, it restarts at the first."""
    import paceline
    from paceline.analysis.rms import RMSD

    universe = paceline.Universe(data.topology, frames_of(data, suffix))
    ca = universe.select_atoms(SELECTION)

    def run(n: int) -> np.ndarray:
        frames = {"stop": n} if n <= data.n_frames else {"frames": np.arange(n) % data.n_frames}
        analysis = RMSD(ca).run(backend="threads", n_workers=n_workers, **frames)
        return analysis.results.rmsd[:, 2]

    return run


def h5py_by_hand(data: Dataset, suffix: str, chunk: int = 100) -> Run:
    """h5py reads whole frames into one array; NumPy superposes."""
    import h5py

    ca = np.loadtxt(data.atoms, dtype=int)
    path = data.trajectory(suffix)

    def run(n: int) -> np.ndarray:
        values = np.empty(n)
        first = None
        with h5py.File(path) as file:
            (group,) = file["particles"].values()
            stored = group["position/value"]
            frame = np.empty(stored.shape[1:], np.float32)
            positions = np.empty((chunk, len(ca), 3))
            for start in range(0, n, chunk):
                some = min(chunk, n - start)
                for i in range(some):
                    stored.read_direct(frame, np.s_[start + i])
                    positions[i] = frame[ca]
                first = positions[0].copy() if first is None else first
                values[start : start + some] = _rmsd(positions[:some], first)
        return values

    return run


def mdtraj(data: Dataset, suffix: str, chunk: int = 1000) -> Run:
    """MDTraj in chunks, with its own superposition; smaller chunks were slower."""
    import mdtraj

    topology = mdtraj.load_topology(str(data.first_frame))
    ca = np.loadtxt(data.atoms, dtype=int)
    path = str(data.trajectory(suffix))

    def run(n: int) -> np.ndarray:
        first = mdtraj.load_frame(path, 0, top=topology, atom_indices=ca)
        first.center_coordinates()
        values = []
        with mdtraj.open(path) as file:
            for start in range(0, n, chunk):
                wanted = min(chunk, n - start)
                frames = file.read_as_traj(topology, n_frames=wanted, atom_indices=ca)
                frames.center_coordinates()
                values.append(mdtraj.rmsd(frames, first, parallel=False, precentered=True))
        return 10 * np.concatenate(values)

    return run


def chemfiles(data: Dataset, suffix: str, chunk: int = 100) -> Run:
    """Chemfiles reads, NumPy superposes."""
    import chemfiles

    ca = np.loadtxt(data.atoms, dtype=int)
    path = str(data.trajectory(suffix))

    def run(n: int) -> np.ndarray:
        positions = np.empty((chunk, len(ca), 3))
        values = np.empty(n)
        first = None
        with chemfiles.Trajectory(path) as trajectory:
            for start in range(0, n, chunk):
                some = min(chunk, n - start)
                for i in range(some):
                    frame = trajectory.read()  # kept in a variable: its positions die with it
                    positions[i] = frame.positions[ca]
                first = positions[0].copy() if first is None else first
                values[start : start + some] = _rmsd(positions[:some], first)
        return values

    return run


def gromacs(data: Dataset, suffix: str) -> Run:
    """``gmx rms``, which reads XTC and TRR."""
    gmx = programs.find("gmx")
    if suffix not in ("xtc", "trr"):
        raise Unavailable(f"gmx reads no {suffix.upper()}")
    temporary = tempfile.TemporaryDirectory()
    folder = Path(temporary.name)
    numbers = " ".join(str(index + 1) for index in np.loadtxt(data.atoms, dtype=int))
    (folder / "ca.ndx").write_text(f"[ ca ]\n{numbers}\n")
    path = str(data.trajectory(suffix))
    # The reference is a structure with as many digits as the trajectory.
    cut = [gmx, "-quiet", "trjconv", "-s", str(data.first_frame), "-f", path, "-dump", "0"]
    _execute([*cut, "-o", "first.g96"], cwd=folder, given="0")
    command = [gmx, "-quiet", "rms", "-xvg", "none", "-nomw", "-nopbc"]
    command += ["-s", "first.g96", "-f", path, "-n", "ca.ndx", "-o", "rmsd.xvg"]

    def run(n: int) -> np.ndarray:
        last = str((n - 1) * TIME_STEP)
        (folder / "rmsd.xvg").unlink(missing_ok=True)  # otherwise gmx keeps backups
        _execute([*command, "-e", last], cwd=folder, given="0 0")
        return 10 * np.loadtxt(Path(temporary.name) / "rmsd.xvg")[:, 1]

    return run


def c_loop(data: Dataset, suffix: str) -> Run:
    """Run the loop in ``yardstick.c``, which cannot read XTC; it prints the mean RMSD."""
    if suffix == "xtc":
        raise Unavailable("the C loop reads no XTC")
    if not YARDSTICK.exists():
        raise Unavailable(f"{YARDSTICK.name} isn't there")
    compiler = shutil.which("cc")
    if compiler is None:
        raise Unavailable("no C compiler")
    program = data.folder / "yardstick"
    _execute([compiler, "-O2", "-o", str(program), str(YARDSTICK), "-lm"])
    command = [str(program), str(data.trajectory(suffix))]

    def run(n: int) -> float:
        said = _execute([*command, str(n), str(data.atoms)])
        told = re.search(r"mean RMSD (\S+) A over (\d+) frames", said)
        if told is None or int(told[2]) != n:
            raise RuntimeError(f"{YARDSTICK.name}: expected a mean over {n} frames, said: {said}")
        return float(told[1])

    return run


def _execute(command: list[str], cwd: Path | None = None, given: str = "") -> str:
    done = subprocess.run(command, cwd=cwd, input=given, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: code {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


def _rmsd(positions: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Return the RMSD of each of `positions` (frames, atoms, 3) after superposition on `reference`.

    Kabsch 1976: after the best rotation, the sum of squares is |a|² + |b|² - 2 Σ s. Here s are the
    singular values of the covariance; the smallest one is negative if a reflection would be needed.
    """
    a = positions - positions.mean(axis=1, keepdims=True)
    b = reference - reference.mean(axis=0)
    covariance = a.transpose(0, 2, 1) @ b
    s = np.linalg.svd(covariance, compute_uv=False)
    s[:, 2] *= np.sign(np.linalg.det(covariance))
    squares = (a**2).sum(axis=(1, 2)) + (b**2).sum() - 2 * s.sum(axis=1)
    return np.sqrt(np.maximum(squares, 0) / len(b))
