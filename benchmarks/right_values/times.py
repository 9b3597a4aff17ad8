"""Cases of times: their source, their unit, and frames that occur twice."""

import contextlib
import io
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import MDAnalysis
import numpy as np
from MDAnalysis.analysis import rms as rms_of_mdanalysis

import paceline
from benchmarks.right_values.case import Found, RightValue
from paceline.analysis.msd import EinsteinMSD
from paceline.analysis.rms import RMSF
from paceline.cli import main

N_FRAMES, N_ATOMS = 200, 30
#: Variance of an atom's step along each axis, per frame, Å²; 6 D is three times as much.
STEP = 1.0
LAMMPS, VMD = "Written by LAMMPS", "Created by DCD plugin"


def _walk() -> np.ndarray:
    """Return positions of randomly walking atoms, one step per frame, Å."""
    steps = np.random.default_rng(5).normal(scale=np.sqrt(STEP), size=(N_FRAMES, N_ATOMS, 3))
    return np.cumsum(steps, axis=0).astype(np.float32)


def _topology(folder: Path) -> str:
    universe = MDAnalysis.Universe.empty(N_ATOMS, trajectory=True)
    universe.atoms.write(str(folder / "top.gro"))
    return str(folder / "top.gro")


def _dcd(folder: Path, title: str, *, delta: float, every: int) -> str:
    """Write a DCD file with this title, and this step length in its header."""
    integers = [N_FRAMES, 0, every, N_FRAMES * every, *[0] * 15, 24]
    head = bytearray(struct.pack("<4s20i", b"CORD", *integers))
    head[40:44] = struct.pack("<f", delta)
    records = [bytes(head), struct.pack("<i80s", 1, title.encode()), struct.pack("<i", N_ATOMS)]
    records += [axis.astype("<f4").tobytes() for frame in _walk() for axis in frame.T]
    marked = (struct.pack("<i", len(one)) + one + struct.pack("<i", len(one)) for one in records)
    (folder / "walk.dcd").write_bytes(b"".join(marked))
    return str(folder / "walk.dcd")


def _dump(folder: Path, *, states_times: bool) -> str:
    """Write a dump with 500 steps of 1 fs between frames."""
    lines = ["ITEM: UNITS\nreal"] if states_times else []
    for number, frame in enumerate(_walk()):
        lines += [f"ITEM: TIME\n{500 * number}"] if states_times else []
        lines += [f"ITEM: TIMESTEP\n{500 * number}", f"ITEM: NUMBER OF ATOMS\n{N_ATOMS}"]
        lines += ["ITEM: BOX BOUNDS pp pp pp", *3 * ["0 900"], "ITEM: ATOMS id x y z"]
        lines += [f"{k + 1} {x:.6g} {y:.6g} {z:.6g}" for k, (x, y, z) in enumerate(frame)]
    path = folder / "walk.lammpsdump"
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def _xyz(folder: Path) -> str:
    lines = []
    for frame in _walk():
        lines += [f"{N_ATOMS}\nwalk", *(f"C {x:.4f} {y:.4f} {z:.4f}" for x, y, z in frame)]
    (folder / "walk.xyz").write_text("\n".join(lines) + "\n")
    return str(folder / "walk.xyz")


def _between(universe: Any) -> float:
    """Return the time between the first two frames, ps."""
    return float(universe.trajectory[1].time - universe.trajectory[0].time)


def _spacing(write: Callable[[Path], str], **options: Any) -> Callable[[Path], Found]:
    """Create a function that finds the time between frames of a file."""

    def compute(folder: Path) -> Found:
        top, path = _topology(folder), write(folder)
        ours = paceline.Universe(top, path, **options)
        try:
            theirs: float | str = _between(MDAnalysis.Universe(top, path))
        except Exception as error:  # MDAnalysis may fail to read the file
            theirs = type(error).__name__
        return Found(_between(ours), theirs)

    return compute


def _said(write: Callable[[Path], str], *arguments: str) -> Callable[[Path], Found]:
    """Create a function that finds a table's notes on times and on the diffusion coefficient."""

    def compute(folder: Path) -> Found:
        table = folder / "msd.csv"
        command = ["msd", _topology(folder), write(folder), "--select", "all", "-o", str(table)]
        with contextlib.redirect_stderr(io.StringIO()):
            main([*command, "--unwrap-particles", "none", *arguments])
        rows = table.read_text().splitlines()
        (value,) = (row for row in rows if row.startswith("# diffusion coefficient"))
        is_known = not any(row.startswith("# times not known: ") for row in rows)
        warned = "known" if is_known else "not known"
        return Found(f"times are {warned}, {value.partition(': ')[2]}")

    return compute


def _coefficient(folder: Path) -> Found:
    """Return the diffusion coefficient from a LAMMPS DCD file, Å²/ps."""
    top, path = _topology(folder), _dcd(folder, LAMMPS, delta=1.0, every=1000)
    fit = {"start": 1.0, "stop": 10.0}
    ours = EinsteinMSD(paceline.Universe(top, path, units="real"), unwrap=None).run()
    value = ours.diffusion_coefficient(**fit).value
    # MDAnalysis's frames are 48.888 ps apart.
    return Found(value, value / 48.88821)


def _restart(folder: Path) -> Found:
    """Return the largest error of the RMSF for a file to which a restart was appended, Å."""
    positions, top = _walk(), _topology(folder)
    rows = np.r_[0:N_FRAMES, N_FRAMES // 2 : N_FRAMES]
    universe = MDAnalysis.Universe.empty(N_ATOMS, trajectory=True)
    for name, some in (("catted", rows), ("right", np.arange(N_FRAMES))):
        with MDAnalysis.Writer(str(folder / f"{name}.xtc"), n_atoms=N_ATOMS) as writer:
            for row in some:
                universe.atoms.positions = positions[row]
                universe.trajectory.ts.time = universe.trajectory.ts.frame = int(row)
                writer.write(universe.atoms)
    catted, right = (str(folder / f"{name}.xtc") for name in ("catted", "right"))
    expected = rms_of_mdanalysis.RMSF(MDAnalysis.Universe(top, right).atoms).run().results.rmsf
    theirs = rms_of_mdanalysis.RMSF(MDAnalysis.Universe(top, [catted], continuous=True).atoms)
    ours = RMSF(paceline.Universe(top, catted, continuous=True).atoms).run().results.rmsf
    off = np.abs(theirs.run().results.rmsf - expected).max()
    return Found(float(np.abs(ours - expected).max()), float(off))


def _lammps(folder: Path) -> str:
    return _dcd(folder, LAMMPS, delta=1.0, every=1000)


def _vmd(folder: Path) -> str:
    return _dcd(folder, VMD, delta=1.0, every=1)


def _timed(folder: Path) -> str:
    return _dump(folder, states_times=True)


def _steps(folder: Path) -> str:
    return _dump(folder, states_times=False)


#: Diffusion coefficient by definition of the walk.
COEFFICIENT = STEP / 2
CASES = [
    RightValue(
        "time between frames of a DCD file of LAMMPS, units real",
        *("ps", 1.0, "1,000 steps of 1 fs", _spacing(_lammps, units="real"), 1e-9),
    ),
    RightValue(
        "time between frames of a dump that states times",
        *("ps", 0.5, "500 steps of 1 fs", _spacing(_timed), 1e-9),
    ),
    RightValue(
        "diffusion coefficient by times of a DCD file of LAMMPS",
        *("Å²/ps", COEFFICIENT, "variance of a step over 2 ps", _coefficient, 0.06),
    ),
    *(
        RightValue(
            f"times that {name} does not know",
            *("", "times are not known", "the file says nothing of them", _said(write)),
        )
        for name, write in (
            ("a DCD file of LAMMPS", _lammps),
            ("a DCD file of VMD", _vmd),
            ("a dump of steps", _steps),
            ("an XYZ file", _xyz),
        )
    ),
    RightValue(
        "times of a DCD file of VMD, coefficient",
        *("", "Å² per frame", "no time is known", _said(_vmd)),
    ),
    RightValue(
        "times of a dump by --dt, which is between frames",
        *("", "from 4 to 19.8 ps", "10 to 50 % of 39.8 ps", _said(_steps, "--dt", "0.2ps")),
    ),
    RightValue(
        "times within one file to which a restart was appended, error of the RMSF",
        *("Å", 0.0, "the same walk, written once", _restart, 1e-5),
    ),
]
