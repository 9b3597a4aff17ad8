"""Print the memory that one rank needs to gather static properties, in addition to its atoms.

    python gathering.py BUFFER N_ATOMS …

A separate program is needed, because allocations of other threads would count as well: a Dask
client allocates 256 KiB whenever it receives a message from its cluster.
"""

import sys
import tracemalloc
from types import SimpleNamespace

import numpy as np

from paceline.snapshot.atoms_of_rank import LocalAtoms, gather_properties


def peak_of_gathering(n_atoms: int, buffer: int) -> int:
    """Gather the properties of all atoms on one rank, in random order."""
    ids = 1 + np.random.default_rng(1).permutation(n_atoms)
    names = np.where(ids % 2, b"Na+     ", b"Cl-     ").view(np.uint8).reshape(-1, 8)
    positions, masses = np.zeros((n_atoms, 3), np.float32), ids / 7
    found = np.zeros(n_atoms)

    def exchange(send, send_counts, receive, receive_counts):
        receive[:] = send

    def put(first, batch):
        found[first : first + len(batch)] = batch["masses"]

    comm = SimpleNamespace(size=1, is_coordinator=True, all_to_all=np.copy, exchange=exchange)
    errors = SimpleNamespace(comm=comm, first=lambda function: function())
    tracemalloc.start()
    try:
        atoms = LocalAtoms.from_user(
            ids,
            {"positions": positions, "velocities": None, "forces": None},
            names,
            {"masses": masses, "charges": None},
            box=None,
            step=0,
            time=0.0,
        )
        given = {"masses": atoms.masses, "names": atoms.names.view("S8")[:, 0]}
        gather_properties(errors, atoms.ids, given, n_atoms, buffer, put)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(found, np.arange(1, n_atoms + 1) / 7)
    return peak


if __name__ == "__main__":
    buffer, *numbers = map(int, sys.argv[1:])
    peak_of_gathering(1, buffer)  # imports do not count
    print(*(peak_of_gathering(n_atoms, buffer) for n_atoms in numbers))
