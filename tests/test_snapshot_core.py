"""Tests of the snapshot core: every method writes the same bytes over MPI, and all ranks get one
error.
"""

import pickle

import numpy as np
import pytest
from helpers.mpi import SCRIPTS, mpirun, needs_mpi

from paceline import _core
from paceline.errors import UnwritableError

POSITIONS = np.arange(12.0).reshape(4, 3)
ATOMS = (np.arange(1, 5), POSITIONS, None, None, None, None, None)


@needs_mpi
@pytest.mark.parametrize("n_ranks", [1, pytest.param(2, marks=pytest.mark.full), 5])
def test_methods_make_the_same_bytes_and_ranks_the_same_errors(n_ranks, tmp_path):
    status, out, err = mpirun(n_ranks, SCRIPTS / "snapshot_core.py", tmp_path)
    assert (status, err) == (0, "")
    twice, out_of_range, infinite, disagreeing = out.splitlines()
    assert twice.startswith(
        "expected each id from 1 to 3000 once, found 3000 ids: 40 is missing, and 41 occurs more "
        "than once, on rank"
    )
    assert out_of_range.endswith("expected ids from 1 to 3000, found 3001")
    assert infinite.endswith("atom 40: expected a finite velocity, found inf")
    assert disagreeing.endswith("found 3000" if n_ranks == 1 else "2999 on one, 3000 on another")


def test_arrays_that_do_not_fit_are_refused():
    form = _core.SnapshotFormat("arrays", 1)
    for place, wrong in [
        (1, POSITIONS[:3]),
        (1, POSITIONS[:, :2]),
        (2, POSITIONS.astype(np.float32)),
        (4, np.zeros((4, 7), np.uint8)),
        (5, np.zeros(3)),
    ]:
        atoms = [*ATOMS]
        atoms[place] = wrong
        with pytest.raises((ValueError, TypeError)):
            form.encode(0, tuple(atoms))
    with pytest.raises(ValueError, match="section 1 is out of range"):
        form.encode(1, ATOMS)
    with pytest.raises(ValueError, match="out must be an array of shape"):
        form.encode_into(0, ATOMS, np.empty(47, np.uint8))


def test_formats_refuse_what_they_cannot_hold():
    for kind, fields in [("DCD", 3), ("CONFIG", 5), ("HISTORY", 2)]:
        with pytest.raises(UnwritableError):
            _core.SnapshotFormat(kind, fields)
    for kind, dtype in [("XYZ", "<f4"), ("arrays", "<i4")]:
        with pytest.raises(ValueError, match=r"unknown format|dtype must be"):
            _core.SnapshotFormat(kind, 1, dtype=dtype)


def test_a_format_travels():
    form = _core.SnapshotFormat("arrays", 1, factors=(0.1, 1.0, 1.0), dtype=">f8")
    copy = pickle.loads(pickle.dumps(form))
    assert copy.sections == [24]
    stored = np.frombuffer(copy.encode(0, ATOMS), ">f8")
    assert np.array_equal(stored, POSITIONS.ravel() * 0.1)


def test_numbers_go_into_arrays_as_numpy_makes_them():
    for dtype in ("<f4", ">f4", "<f8", ">f8"):
        form = _core.SnapshotFormat("arrays", 1, dtype=dtype)
        assert form.encode(0, ATOMS) == POSITIONS.astype(dtype).tobytes()
        out = np.zeros(12 * int(dtype[2]), np.uint8)
        form.encode_into(0, ATOMS, out)
        assert out.tobytes() == POSITIONS.astype(dtype).tobytes()
    coordinates = _core.SnapshotFormat("DCD", 1)
    sections = [coordinates.encode(axis, ATOMS) for axis in range(3)]
    assert b"".join(sections) == POSITIONS.T.astype("<f4").tobytes()
