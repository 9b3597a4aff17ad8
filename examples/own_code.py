"""A small simulation with domain decomposition that calls paceline.

mpirun -n 4 python examples/own_code.py [CELLS [FOLDER]]

Each rank has the ions of its domain, in order of arrival. An ion that leaves a domain is sent to
the rank of the next one. Every few steps all ranks call `write` with their local ions. At the end
the last state is read for a restart: each rank gets the ions of its domain.

CELLS is the number of cells of 8 ions along each edge: 30 give 216,000 ions, 60 give 1,728,000.
"""

import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

from paceline.snapshot import Reader, Writer

#: The data of an ion: a struct in C, a derived type in Fortran.
ION = np.dtype(
    [
        ("id", "i8"),  # from 1
        ("charge", "f8"),  # e
        ("x", "f8", 3),  # Å
        ("v", "f8", 3),  # Å/ps
        ("f", "f8", 3),  # kJ/(mol·Å)
    ]
)
SPACING = 2.82  # Å, between neighbouring ions
STEPS, EVERY, DT = 50, 10, 0.01  # ps
MASS = 29.2  # u


class Parts:
    """The box, centred on the origin, divided into equal domains, one per rank."""

    def __init__(self, comm: MPI.Comm, edge: float):
        self.comm = comm
        self.edge = edge
        self.grid = np.array(MPI.Compute_dims(comm.size, 3))

    def rank_at(self, x: np.ndarray) -> np.ndarray:
        """Rank of the domain of each position."""
        cell = np.floor((x / self.edge + 0.5) * self.grid).astype(int)
        return np.ravel_multi_index(np.clip(cell, 0, self.grid - 1).T, self.grid)

    def migrate(self, ions: np.ndarray) -> np.ndarray:
        """Send every ion to the rank of its domain."""
        ions["x"] -= self.edge * np.round(ions["x"] / self.edge)
        to = self.rank_at(ions["x"])
        leaving = np.bincount(to, minlength=self.comm.size)
        coming = np.empty_like(leaving)
        self.comm.Alltoall(leaving, coming)
        sent = ions[np.argsort(to, kind="stable")].view(np.uint8)
        received = np.empty(coming.sum() * ION.itemsize, np.uint8)
        self.comm.Alltoallv(
            (sent, leaving * ION.itemsize, MPI.BYTE), (received, coming * ION.itemsize, MPI.BYTE)
        )
        return received.view(ION)


def rock_salt(comm: MPI.Comm, cells: int) -> np.ndarray:
    """Make a share of a crystal of NaCl, with ids in no spatial order."""
    sites = np.arange(comm.rank, (2 * cells) ** 3, comm.size)
    place = np.stack(np.unravel_index(sites, (2 * cells,) * 3), axis=1)
    rng = np.random.default_rng(1)
    ions = np.zeros(len(sites), ION)
    ions["id"] = 1 + rng.permutation((2 * cells) ** 3)[sites]
    ions["charge"] = 1 - 2 * (place.sum(axis=1) % 2)
    ions["x"] = (place + 0.5 - cells) * SPACING
    ions["v"] = np.random.default_rng(comm.rank).normal(0, 10, ions["v"].shape)
    return ions


def push(ions: np.ndarray, edge: float) -> None:
    """Take a step with forces of a wave in space, in place of a real force field."""
    ions["f"] = 5 * np.sin(2 * np.pi * ions["x"] / edge)
    ions["v"] += ions["f"] * (100 * DT / MASS)  # 1 kJ/(mol·Å) on 1 u is 100 Å/ps²
    ions["x"] += ions["v"] * DT


def snapshot(writer: Writer, ions: np.ndarray, edge: float, step: int) -> None:
    """Write the local ions; all ranks call it together, also without ions."""
    writer.write(
        ions["id"],
        ions["x"],
        velocities=ions["v"],
        forces=ions["f"],
        names=np.where(ions["charge"] > 0, "Na+", "Cl-"),
        charges=ions["charge"],
        box=[edge, edge, edge, 90, 90, 90],
        step=step,
        time=step * DT,
    )


def main(cells: int, folder: Path) -> None:
    comm = MPI.COMM_WORLD
    folder.mkdir(parents=True, exist_ok=True)
    parts = Parts(comm, 2 * cells * SPACING)
    n_ions = (2 * cells) ** 3

    ions = parts.migrate(rock_salt(comm, cells))
    with Writer(comm, folder / "ions.nc", n_ions, overwrite=True) as trajectory:
        for step in range(1, STEPS + 1):
            push(ions, parts.edge)
            ions = parts.migrate(ions)
            if step % EVERY == 0:
                snapshot(trajectory, ions, parts.edge, step)
    with Writer(comm, folder / "REVCON", n_ions, overwrite=True) as last:
        snapshot(last, ions, parts.edge, STEPS)

    # The restart: each rank gets the ions of its domain, for any reading rank.
    with Reader(comm, folder / "REVCON") as reader:
        again = reader.read(owner=parts.rank_at)
    ours, read = np.argsort(ions["id"]), np.argsort(again.ids)
    same = np.array_equal(again.ids[read], ions["id"][ours]) and np.allclose(
        again.positions[read], ions["x"][ours], rtol=0, atol=1e-7
    )
    told = comm.gather(f"{len(read)} ions read again, {'the same' if same else 'OTHERS'}")
    if comm.rank == 0:
        for rank, line in enumerate(told):
            print(f"rank {rank}: {line}")


if __name__ == "__main__":
    main(
        int(sys.argv[1]) if len(sys.argv) > 1 else 10,
        Path(sys.argv[2] if len(sys.argv) > 2 else "own-output"),
    )
