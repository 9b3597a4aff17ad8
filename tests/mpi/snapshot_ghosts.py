"""On every rank: ghosts are those images of all atoms that are in the halo of the rank's domain."""

import itertools
import sys
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI

from paceline.errors import UnsupportedError
from paceline.snapshot import Reader

world = MPI.COMM_WORLD
rank, size = world.Get_rank(), world.Get_size()
GRIDS = {1: [(1, 1, 1)], 2: [(1, 2, 1)], 4: [(2, 1, 2), (1, 4, 1)]}


def behind(points, vectors, domain, grid):
    """Largest distance of points outside any face of a domain, Å; negative inside the domain."""
    farthest = np.full(len(points), -np.inf)
    for axis in range(3):
        normal = np.cross(vectors[axis - 2], vectors[axis - 1])
        normal *= np.sign(normal @ vectors[axis]) / np.linalg.norm(normal)
        low, high = ((domain[axis] + k) / grid[axis] * (vectors[axis] @ normal) for k in (0, 1))
        along = points @ normal
        farthest = np.maximum(farthest, np.maximum(low - along, along - high))
    return farthest


def check(snapshot, whole, grid, width, corner, periodic):
    """Compare with all images in the cells that the halo reaches."""
    vectors = snapshot.vectors
    # Widths of the cell between opposite faces.
    heights = 1 / np.linalg.norm(np.linalg.inv(vectors), axis=0)
    reach = 1 + int(width / heights.min())
    px, py, _ = grid
    domain = np.array([rank % px, rank // px % py, rank // px // py])
    home = -np.floor((whole["positions"] - corner) @ np.linalg.inv(vectors)).astype(int)
    wanted, places = set(), {}
    steps_along = [range(-reach, reach + 1) if one else (0,) for one in periodic]
    for steps in itertools.product(*steps_along):
        images = home + steps
        points = whole["positions"] + images @ vectors
        distance = behind(points - corner, vectors, domain, grid)
        limit = 0.0 if not any(steps) else width
        assert np.abs(distance - width).min() > 1e-7, "an atom is at the border"
        for atom in np.flatnonzero(distance <= max(limit, width)):
            key = (int(whole["ids"][atom]), *images[atom].tolist())
            wanted.add(key)
            places[key] = points[atom], distance[atom] <= 0 and not any(steps)
    found = [
        (int(one), *image.tolist())
        for one, image in zip(snapshot.ids, snapshot.images, strict=True)
    ]
    own = found[: snapshot.n_local]
    assert len(found) == len(set(found)) == len(snapshot)
    assert set(found) == wanted, (len(found), len(wanted))
    assert own == sorted(own)
    assert found[snapshot.n_local :] == sorted(found[snapshot.n_local :])
    assert set(own) == {key for key, (_, is_own) in places.items() if is_own}
    expected = np.array([places[key][0] for key in found]).reshape(-1, 3)
    assert np.abs(snapshot.positions - expected).max(initial=0) < 1e-4
    order = np.searchsorted(whole["ids"], snapshot.ids)
    for name in ("velocities", "forces", "names", "masses", "charges"):
        values = getattr(snapshot, name)
        assert values is None or np.array_equal(values, whole[name][order]), name


def whole_of(reader):
    """All atoms, on every rank."""
    snapshot = reader.read(0)
    names = ("ids", "positions", "velocities", "forces", "names", "masses", "charges")
    held = [name for name in names if getattr(snapshot, name) is not None]
    return {name: np.concatenate(world.allgather(getattr(snapshot, name))) for name in held}


for path in sys.argv[1:]:
    periodic = (True, True, "slab" not in Path(path).name)
    # The atoms are sent in several exchanges, because the buffer is small.
    with Reader(world, path, buffer=20_000) as reader:
        whole = whole_of(reader)
        centred = reader.format in ("CONFIG", "HISTORY")
        for grid, width in itertools.product(GRIDS[size], (0.0, 2.1, 9.3, 31.7)):
            snapshot = reader.read(grid=grid, ghosts=width)
            plain = reader.read(grid=grid)
            assert np.array_equal(plain.ids, snapshot.ids[: snapshot.n_local])
            assert (plain.n_local, plain.images) == (len(plain), None)
            corner = -0.5 * snapshot.vectors.sum(axis=0) if centred else np.zeros(3)
            check(snapshot, whole, grid, width, corner, periodic)
        for wrong in (-1.0, np.inf, np.nan):
            with pytest.raises(ValueError, match="expected ghosts= of 0 Å or more"):
                reader.read(grid=grid, ghosts=wrong)
        with pytest.raises(UnsupportedError, match="ghosts of 10000 Å are more than 8 times"):
            reader.read(grid=grid, ghosts=1e4)
        with pytest.raises(ValueError, match="expected grid= with ghosts="):
            reader.read(ghosts=3.0)
if rank == 0:
    print("read")
