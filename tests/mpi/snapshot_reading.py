"""On every rank: frames are read, and each rank gets the atoms that it owns."""

import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

from paceline.snapshot import Reader

world = MPI.COMM_WORLD
rank, size = world.Get_rank(), world.Get_size()
GRIDS = {1: (1, 1, 1), 2: (1, 2, 1), 3: (1, 1, 3), 4: (2, 1, 2), 6: (3, 2, 1), 8: (2, 2, 2)}
FIELDS = ("positions", "velocities", "forces")


def domains(positions, vectors, centred):
    """Return the ranks whose domains contain the positions, by the inverse of the cell."""
    parts = positions.astype(float) @ np.linalg.inv(vectors)
    parts = (parts + 0.5 if centred else parts) % 1.0
    cells = np.minimum((parts * GRIDS[size]).astype(int), np.array(GRIDS[size]) - 1)
    px, py, _ = GRIDS[size]
    return cells[:, 0] + px * (cells[:, 1] + py * cells[:, 2])


def stripes(positions):
    """Return the ranks whose stripes, 3 Å wide, contain the positions."""
    return np.floor(positions[:, 0] / 3.0).astype(np.int64) % size


def shares(n_atoms):
    borders = np.arange(size + 1) * n_atoms // size
    return np.searchsorted(borders, np.arange(n_atoms), side="right") - 1


def same(found, expected, what):
    if expected is None:
        assert found is None, what
        return
    assert found.dtype.kind == expected.dtype.kind, (what, found.dtype)
    assert np.array_equal(found, expected), what


def check(snapshot, whole, owners, what):
    """Check that a snapshot contains the atoms of a whole frame that this rank owns."""
    own = owners == rank
    assert len(snapshot) == own.sum(), (what, len(snapshot), own.sum())
    same(snapshot.ids, whole["ids"][own], what)
    for name in (*FIELDS, "names", "masses", "charges"):
        expected = whole[name][own] if name in whole else None
        same(getattr(snapshot, name), expected, (what, name))
    for name in FIELDS:
        values = getattr(snapshot, name)
        assert values is None or values.dtype == whole[name].dtype, (what, name)
    dimensions = whole.get("dimensions")
    if dimensions is None:
        assert snapshot.dimensions is None
        assert snapshot.vectors is None
    else:
        assert np.allclose(snapshot.dimensions, dimensions, rtol=1e-6), what
    assert snapshot.time == float(whole["time"]), (what, snapshot.time)
    assert type(snapshot.step) is int
    assert snapshot.step == int(whole["step"])


def read_all(path, options):
    """Read each frame with a saved answer, with all three kinds of owners."""
    with Reader(world, path, **options) as reader:
        centred = reader.format in ("CONFIG", "HISTORY")
        for answer in sorted(Path(path).parent.glob(f"{Path(path).name}.frame*.npz")):
            whole = dict(np.load(answer))
            frame = int(whole["frame"])
            what = (path, frame, options)
            assert reader.n_atoms == len(whole["ids"])
            snapshot = reader.read(frame)
            check(snapshot, whole, shares(reader.n_atoms), what)
            check(reader.read(frame, owner=stripes), whole, stripes(whole["positions"]), what)
            if "dimensions" in whole:
                owners = domains(whole["positions"], snapshot.vectors, centred)
                check(reader.read(frame, grid=GRIDS[size]), whole, owners, what)
            assert rank not in reader.readers or reader.cost.n_batches > 0
            if "buffer" in options:
                assert reader.cost.peak_buffer <= options["buffer"], reader.cost


for path in sys.argv[1:]:
    # A buffer smaller than the text of a frame, or of many atoms.
    buffer = 50_000 if path.endswith(("CONFIG", "HISTORY")) else 200_000
    for options in ({}, {"readers": 1}, {"readers": size, "buffer": buffer}):
        read_all(path, options)
if rank == 0:
    print("read")
