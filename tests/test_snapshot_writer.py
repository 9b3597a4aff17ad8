"""Tests of files written by ranks whose atoms are in random order: other programs read them."""

import contextlib
import errno
import os
import subprocess
import sys
import warnings

import h5py
import MDAnalysis
import netCDF4
import numpy as np
import pytest
from helpers.mpi import SCRIPTS, mpirun, needs_mpi
from helpers.programs import needs_program

from paceline import _core
from paceline._core import choose_writers
from paceline.errors import PacelineWarning, UnsupportedError, UnwritableError
from paceline.mdanalysis.reader import Reader
from paceline.snapshot.atoms_of_rank import cell_of, names_as_bytes
from paceline.snapshot.formats_and_options import format_of, given_writers
from paceline.snapshot.shared_file import Output

pytest.importorskip("mpi4py")
pytestmark = needs_mpi
N_FRAMES = 3


@pytest.fixture(scope="module")
def system():
    """Values that the ranks of the scripts write."""
    sys.path.insert(0, str(SCRIPTS))
    try:
        import snapshot_system
    finally:
        sys.path.remove(str(SCRIPTS))
    return snapshot_system


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Folders of files, by number of ranks."""
    folders = {}
    for n_ranks, *words in ((1,), (2,), (3, "all ways")):
        folders[n_ranks] = tmp_path_factory.mktemp(f"ranks{n_ranks}")
        found = mpirun(n_ranks, SCRIPTS / "snapshot_writing.py", folders[n_ranks], *words)
        assert found == (0, "", "")
    return folders


def is_near(found, expected, digits=1e-6):
    np.testing.assert_allclose(found, expected, rtol=digits, atol=digits)


def check_frames(reader, system, kind, numbers=range(N_FRAMES)):
    """Check that the frames of a reader with MDAnalysis's interface are those that were written."""
    assert reader.n_frames == len(numbers)
    for row, number in enumerate(numbers):
        ts, expected = reader[row], system.frame_of(number)
        is_near(ts.positions, expected["positions"])
        for field in system.FIELDS[kind][1:]:
            is_near(getattr(ts, field), expected[field])
        is_near(ts.dimensions, system.BOX, 1e-5)


@pytest.mark.parametrize("kind", ["CONFIG", "HISTORY", "H5MD", "NetCDF", "DCD"])
def test_all_ways_make_the_same_bytes(written, system, kind):
    files = [
        path for folder in written.values() for path in folder.glob(f"*{system.ENDINGS[kind]}")
    ]
    others = ("room", "much_room", "double")
    contents = {path: path.read_bytes() for path in files if path.stem not in others}
    assert len(contents) == (12 if kind == "CONFIG" else 15)
    first, *rest = (
        {path: bare(path) for path in contents} if kind == "H5MD" else contents
    ).values()
    assert all(content == first for content in rest)


@pytest.mark.full
def test_five_ranks_make_the_same_bytes(written, tmp_path):
    assert mpirun(5, SCRIPTS / "snapshot_writing.py", tmp_path) == (0, "", "")
    for path in written[1].iterdir():
        found, expected = (
            bare(one) if path.suffix == ".h5md" else one.read_bytes()
            for one in (tmp_path / path.name, path)
        )
        assert found == expected, path.name


def bare(path):
    """Return numbers and locations in an H5MD file; the command line in it contains the folder."""
    with h5py.File(path) as file:
        group = file["particles/trajectory"]
        values = [group[f"{name}/value"] for name in ("position", "velocity", "force")]
        return [(one.shape, one.dtype, one.chunks, one[...].tobytes()) for one in values]


@pytest.mark.parametrize("kind", ["HISTORY", "H5MD", "NetCDF", "DCD"])
def test_paceline_reads_them(written, system, kind):
    with warnings.catch_warnings():
        warnings.simplefilter("error", PacelineWarning)
        reader = Reader(str(written[3] / f"sorted{system.ENDINGS[kind]}"))
    check_frames(reader, system, kind)
    times = [ts.time for ts in reader]
    is_near(times, [system.time_of(number) for number in range(N_FRAMES)])


@pytest.mark.parametrize("kind", ["HISTORY", "H5MD", "DCD"])
def test_mdanalysis_reads_them(written, system, kind):
    topology = MDAnalysis.Universe.empty(system.N_ATOMS)
    path = str(written[3] / f"parts{system.ENDINGS[kind]}")
    topology.load_new(path, format=kind)
    check_frames(topology.trajectory, system, kind)


def test_mdanalysis_reads_a_config(written, system):
    path = str(written[3] / "sorted.CONFIG")
    universe = MDAnalysis.Universe(path, topology_format="CONFIG", format="CONFIG")
    assert universe.atoms.names.tolist() == system.facts_of()["names"].tolist()
    expected = system.frame_of(N_FRAMES - 1)
    is_near(universe.atoms.positions, expected["positions"])
    is_near(universe.atoms.velocities, expected["velocities"])
    is_near(
        universe.atoms.forces, 100 * expected["forces"]
    )  # Da Å/ps², not converted by MDAnalysis
    is_near(universe.dimensions, system.BOX, 1e-5)


def test_heads_of_dl_poly(written, system):
    lines = (written[3] / "parts.HISTORY").read_text().splitlines()
    assert {len(line) for line in lines} == {72}
    assert lines[1].split() == ["1", "3", "500", "3", str(len(lines))]
    frame = lines[2].split()
    assert frame == ["timestep", "0", "500", "1", "3", "0.000000", "0.000000"]
    assert lines[2 + 4 + 3 * 500].split()[-2:] == ["0.050000", "0.500000"]
    atom = lines[6].split()
    assert atom == ["Na+", "1", "22.990000", "1.000000", "0.000000"]
    config = (written[3] / "sorted.CONFIG").read_text().splitlines()
    assert config[1].split()[:4] == ["2", "3", "500", str(system.step_of(N_FRAMES - 1))]


def test_netcdf_is_amber_s_in_cdf5(written, system):
    path = written[3] / "sorted.nc"
    assert path.read_bytes()[:4] == b"CDF\x05"
    with netCDF4.Dataset(path) as file:
        assert file.Conventions == "AMBER"
        assert len(file.dimensions["frame"]) == N_FRAMES
        for number in range(N_FRAMES):
            expected = system.frame_of(number)
            assert np.array_equal(file["coordinates"][number], expected["positions"])
            is_near(file["velocities"][number], expected["velocities"])  # scaled by netCDF4
            is_near(file["forces"][number] * 4.184, expected["forces"])
        is_near(file["time"][:], [system.time_of(number) for number in range(N_FRAMES)])
        is_near(file["cell_lengths"][-1], system.BOX[:3])
        is_near(file["cell_angles"][-1], system.BOX[3:])


def test_h5md_tells_of_atoms(written, system):
    facts = system.facts_of()
    with h5py.File(written[3] / "sorted.h5md") as file:
        group = file["particles/trajectory"]
        assert group["position/value"].chunks == (1, system.N_ATOMS, 3)
        assert np.array_equal(group["mass"], facts["masses"])
        assert np.array_equal(group["charge"], facts["charges"])
        assert file["parameters/atoms/name"].asstr()[:].tolist() == facts["names"].tolist()
        assert group["force/step"][:].tolist() == [0, 10, 20]
        is_near(group["box/edges/value"][0], cell_of(system.BOX))


@pytest.mark.parametrize(
    ("name", "dtype", "contiguous"),
    [("room", "<f4", True), ("much_room", "<f4", True), ("double", "<f8", False)],
)
def test_layouts_of_h5md(written, system, name, dtype, contiguous):
    path = written[3] / f"{name}.h5md"
    check_frames(Reader(str(path)), system, "H5MD")
    with h5py.File(path) as file:
        for element in ("position", "velocity", "force"):
            values = file[f"particles/trajectory/{element}/value"]
            assert values.shape == (N_FRAMES, system.N_ATOMS, 3)
            assert values.dtype == dtype
            assert (values.chunks is None) == contiguous
            assert values.attrs["unit"]


def test_what_cannot_be_written(tmp_path):
    status, out, err = mpirun(3, SCRIPTS / "snapshot_bad.py", tmp_path)
    # Open MPI itself reports a full disk, once per call.
    ours = [line for line in err.splitlines() if "error in (p)write(v)" not in line]
    assert (status, out, ours) == (0, "refused\n", [])


@pytest.mark.parametrize(
    ("how", "kind", "words"),
    [
        pytest.param("killed", "HISTORY", "", marks=pytest.mark.full),
        ("killed", "H5MD", ""),
        pytest.param("killed", "NetCDF", "", marks=pytest.mark.full),
        ("killed", "DCD", ""),
        ("interrupted", "H5MD", "rank 2: KeyboardInterrupt"),
        ("pressed", "DCD", "rank 2: KeyboardInterrupt"),
        ("failed", "HISTORY", "rank 2: MemoryError: none left"),
    ],
)
def test_a_rank_ends_within_a_frame(tmp_path, system, how, kind, words):
    status, _, err = mpirun(3, SCRIPTS / "snapshot_killed.py", tmp_path, how, kind)
    assert status != 0
    assert words in err
    path = tmp_path / f"{how}{system.ENDINGS[kind]}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the truncated frame
        reader = Reader(str(path))
    for number in range(2):
        is_near(reader[number].positions, system.frame_of(number)["positions"])
    # The next job continues where this one ended.
    assert mpirun(2, SCRIPTS / "snapshot_going_on.py", path, kind, 2) == (0, "", "")
    with warnings.catch_warnings():
        warnings.simplefilter("error", PacelineWarning)
        reader = Reader(str(path))
    check_frames(reader, system, kind)


@pytest.mark.parametrize("error", ["", "disagree about step"])
def test_a_program_that_does_not_close(tmp_path, system, error):
    path = tmp_path / "run.h5md"
    script = SCRIPTS / "snapshot_forgotten.py"
    status, _, err = mpirun(2, script, path, error, PYTHONWARNINGS="default")
    assert status == 0
    assert err.count("run.h5md was written with wait=False and never closed") == 1
    assert (error or "its last frame is in it") in err
    check_frames(Reader(str(path)), system, "H5MD", range(1 if error else 2))


@needs_program("cc")
@pytest.mark.parametrize("method", ["sorted", "direct", "serial"])
def test_errors_of_closing(tmp_path, method):
    library = tmp_path / "closing.so"
    command = ["cc", "-shared", "-fPIC", "-o", library, SCRIPTS / "closing.c"]
    subprocess.run(command, check=True)
    script = SCRIPTS / "snapshot_closing.py"
    assert mpirun(2, script, tmp_path, method, LD_PRELOAD=str(library)) == (0, "refused\n", "")


@pytest.mark.parametrize("reason", [errno.EOPNOTSUPP, errno.ENOSPC])
def test_only_a_file_system_that_can_keeps_room(tmp_path, monkeypatch, reason):
    def refuse(*_):
        raise OSError(reason, os.strerror(reason))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    output = Output.new(str(tmp_path / "file"))
    full = reason == errno.ENOSPC
    with pytest.raises(OSError, match="No space") if full else contextlib.nullcontext():
        output.reserve(0, 100)
    output.close()


def test_writers_are_spread():
    assert choose_writers(["a"] * 16, 1000 * 2**20) == list(range(16))
    assert choose_writers(["a"] * 16, 3 * 2**20) == [0, 8]
    assert choose_writers(["a", "b", "a", "b"], 2 * 2**20) == [0, 1]
    assert choose_writers(["a"] * 3, 100) == [0]
    assert len(choose_writers(["a"] * 256, 10**10)) == 128
    assert given_writers(3, ["a", "a", "a", "b"]) == [0, 1, 3]
    assert given_writers([3, 1], ["a"] * 4) == [1, 3]
    for wrong in (0, 5, [], [4], [1, 1], [-1]):
        with pytest.raises(UnsupportedError):
            given_writers(wrong, ["a"] * 4)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("CONFIG", "CONFIG"),
        ("a/REVCON", "REVCON"),
        ("nacl.history", "HISTORY"),
        ("HISTORY.3", "HISTORY"),
        ("md.h5", "H5MD"),
        ("md.ncdf", "NetCDF"),
        ("md.DCD", "DCD"),
    ],
)
def test_names_tell_formats(path, name):
    assert format_of(path).name == name


def test_cells_are_mdanalysis_s():
    for box in ([10, 20, 30, 90, 90, 90], [10, 20, 30, 60, 70, 80], [5, 5, 5, 100, 110, 120]):
        ours = cell_of(box)
        is_near(ours, MDAnalysis.lib.mdamath.triclinic_vectors(box), 1e-5)
        is_near(_core.cell_dimensions(ours.tolist()), box, 1e-12)
    assert cell_of([1, 2, 3, 90, 90, 90])[1, 0] == 0
    assert cell_of(None) is None
    for wrong in ([1, 1, 1, 60, 60, 170], np.zeros((3, 3)), [1, 2, 3], [1, np.nan, 1, 90, 90, 90]):
        with pytest.raises(UnwritableError):
            cell_of(wrong)


def test_names_as_bytes():
    ids = np.array([4, 9])
    for names in (["Na+", "Cl-"], np.array([b"Na+", b"Cl-"]), np.array(["Na+", "Cl-"], object)):
        assert names_as_bytes(names, ids).tobytes() == b"Na+     Cl-     "
    ready = np.frombuffer(b"Na+     Cl-\0\0\0\0\0", dtype=np.uint8).reshape(2, 8)
    assert names_as_bytes(ready, ids).tobytes() == b"Na+     Cl-     "
    for wrong in (
        ["Na+", ""],
        ["Na+", "a b"],
        ["Na+", " a"],
        ["Na+", "a\n"],
        ["Na+", "é"],
        ["Na+", "123456789"],
        ["Na+"],
        [1, 2],
    ):
        with pytest.raises(UnwritableError):
            names_as_bytes(wrong, ids)
