"""A small system whose atoms move between ranks, with the same numbers for any number of ranks."""

import numpy as np
from mpi4py import MPI

from paceline.snapshot import Writer

N_ATOMS = 500
BOX = [20.0, 25.0, 30.0, 90.0, 80.0, 70.0]
NAMES = np.array(["Na+", "Cl-"])
#: Fields of each format.
FIELDS = {
    "CONFIG": ("positions", "velocities", "forces"),
    "HISTORY": ("positions", "velocities"),
    "H5MD": ("positions", "velocities", "forces"),
    "NetCDF": ("positions", "velocities", "forces"),
    "DCD": ("positions",),
}
ENDINGS = {"CONFIG": ".CONFIG", "HISTORY": ".HISTORY", "H5MD": ".h5md", "NetCDF": ".nc"} | {
    "DCD": ".dcd"
}


def step_of(frame):
    return 10 * frame


def time_of(frame):
    return 0.5 * frame


def frame_of(frame, n_atoms=N_ATOMS):
    """Return positions, velocities and forces of all atoms, ordered by id."""
    random = np.random.default_rng(frame)
    scales = {"positions": 10.0, "velocities": 3.0, "forces": 400.0}
    return {
        name: scale * random.standard_normal((n_atoms, 3)).astype(np.float32)
        for name, scale in scales.items()
    }


def facts_of(n_atoms=N_ATOMS):
    """Return names, masses and charges of all atoms."""
    kinds = np.arange(n_atoms) % 2
    return {
        "names": NAMES[kinds],
        "masses": np.array([22.99, 35.45])[kinds],
        "charges": np.array([1.0, -1.0])[kinds],
    }


def own_ids(comm, frame, n_atoms=N_ATOMS):
    """Return the ids of this rank's atoms in random order; they change from frame to frame."""
    random = np.random.default_rng(1000 + frame)
    ids = random.permutation(n_atoms) + 1
    cuts = np.sort(random.integers(0, n_atoms + 1, comm.Get_size() - 1))
    return np.split(ids, cuts)[comm.Get_rank()]


def own_frame(comm, frame, fields, n_atoms=N_ATOMS, **changed):
    """Return the arguments of a rank for `write`."""
    ids = own_ids(comm, frame, n_atoms)
    everything = {name: frame_of(frame, n_atoms)[name] for name in fields} | facts_of(n_atoms)
    own = {name: values[ids - 1] for name, values in everything.items()}
    given = {"ids": ids, **own, "box": BOX, "step": step_of(frame), "time": time_of(frame)}
    return given | changed


def write_frames(path, kind, frames, comm=MPI.COMM_WORLD, n_atoms=N_ATOMS, **options):
    with Writer(comm, path, n_atoms, **options) as writer:
        for frame in frames:
            given = own_frame(comm, frame, FIELDS[kind], n_atoms)
            writer.write(**given)
            # The caller may change its arrays again.
            given["ids"][:], given["positions"][:] = 0, np.nan
    return writer
