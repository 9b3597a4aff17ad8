"""Tests of lines and headers of DL_POLY's files, read by MDAnalysis."""

import MDAnalysis
import numpy as np
import pytest

from paceline import _core
from paceline.errors import UnwritableError

N_ATOMS = 50
#: Size of DL_POLY's unit of force, kJ/(mol·Å).
FORCE = 0.01
TRICLINIC = np.array([[20.0, 0.0, 0.0], [3.0, 21.0, 0.0], [-2.0, 1.5, 22.25]])


@pytest.fixture(scope="module")
def atoms():
    """Return all atoms of a system, in the order of their ids."""
    random = np.random.default_rng(3)
    return (
        np.arange(1, N_ATOMS + 1),
        random.uniform(-1e3, 1e3, (N_ATOMS, 3)),
        random.normal(0.0, 1e-3, (N_ATOMS, 3)),
        random.normal(0.0, 1e4, (N_ATOMS, 3)),
        np.tile(np.frombuffer(b"Na+\0\0\0\0\0", np.uint8), (N_ATOMS, 1)),
        np.linspace(1.0, 240.0, N_ATOMS),
        np.linspace(-2.0, 2.0, N_ATOMS),
    )


def fields_of(atoms, fields):
    """Return the atoms without the vectors that are not in `fields`."""
    ids, positions, velocities, forces, *others = atoms
    return (
        *(ids, positions),
        *(velocities if fields & 2 else None, forces if fields & 4 else None),
        *others,
    )


def check(timestep, atoms, fields):
    """Check that MDAnalysis reads the values that were written."""
    expected = {1: ("positions", atoms[1]), 2: ("velocities", atoms[2]), 4: ("forces", atoms[3])}
    for bit, (name, values) in expected.items():
        if fields & bit:
            found = getattr(timestep, name) * (FORCE if bit == 4 else 1.0)
            np.testing.assert_allclose(found, values, rtol=2e-7)
        else:
            assert not getattr(timestep, f"has_{name}")


@pytest.mark.parametrize("cell", [None, 20.0 * np.eye(3), TRICLINIC])
@pytest.mark.parametrize("fields", [1, 3, 7])
def test_a_config_is_read_by_mdanalysis(atoms, cell, fields, tmp_path):
    head = _core.dlpoly_config_head(
        "molten salt", N_ATOMS, fields, step=7, dt=0.001, time=0.007, cell=cell
    )
    lines = _core.SnapshotFormat("CONFIG", fields).encode(0, fields_of(atoms, fields))
    path = tmp_path / "CONFIG"
    path.write_bytes(head + lines)
    assert {len(line) for line in path.read_bytes().split(b"\n")} == {72, 0}
    universe = MDAnalysis.Universe(path, topology_format="CONFIG", format="CONFIG")
    assert (universe.atoms.names == "Na+").all()
    check(universe.trajectory.ts, atoms, fields)
    if cell is None:
        assert universe.dimensions is None
    else:
        expected = MDAnalysis.lib.mdamath.triclinic_box(*cell)
        np.testing.assert_allclose(universe.dimensions, expected)


@pytest.mark.parametrize("cell", [None, TRICLINIC])
@pytest.mark.parametrize("fields", [1, 3, 7])
def test_a_history_is_read_by_mdanalysis(atoms, cell, fields, tmp_path):
    imcon = _core.dlpoly_imcon(cell)
    assert imcon == (0 if cell is None else 3)
    frame = _core.SnapshotFormat("HISTORY", fields).encode(0, fields_of(atoms, fields))
    text = _core.dlpoly_history_head("molten salt", N_ATOMS, fields, imcon=imcon, n_frames=3)
    for k in range(3):
        head = {"step": 100 * k, "dt": 0.002, "time": 0.2 * k, "cell": cell}
        text += _core.dlpoly_frame_head(N_ATOMS, fields, **head) + frame
    path = tmp_path / "HISTORY"
    path.write_bytes(text)
    _, second, *records = text.decode().splitlines()
    assert [int(word) for word in second.split()][2:] == [N_ATOMS, 3, 2 + len(records)]
    reader = MDAnalysis.coordinates.DLPoly.HistoryReader(str(path))
    assert len(reader) == 3
    for timestep in reader:
        check(timestep, atoms, fields)
    reader.close()


def test_what_a_file_cannot_hold_is_refused():
    with pytest.raises(UnwritableError, match="beside velocities"):
        _core.dlpoly_history_head("", N_ATOMS, 5, imcon=0, n_frames=1)
    with pytest.raises(UnwritableError, match="span a volume"):
        _core.dlpoly_imcon(np.zeros((3, 3)))
    with pytest.raises(UnwritableError, match="up to 72 printable"):
        _core.dlpoly_config_head("ä", 1, 1, step=0, dt=0.0, time=0.0, cell=None)
    with pytest.raises(UnwritableError, match="the step, -9999999999,"):
        _core.dlpoly_frame_head(1, 1, step=-9_999_999_999, dt=0.0, time=0.0, cell=None)
