"""Tests of H5MD files that paceline writes: other programs read the same numbers, in any layout."""

import itertools
import os
import subprocess

import h5py
import MDAnalysis
import numpy as np
import pyh5md
import pytest
from helpers.disks import full_disk
from helpers.programs import HDF5_TOOLS, load_filters

import paceline
import paceline.trajectory.write_h5md
from paceline import _core
from paceline.analysis.rms import RMSF
from paceline.block import upright_vectors
from paceline.errors import PacelineWarning, UnsupportedError, UnwritableError
from paceline.hdf5.h5md_storage_layout import (
    ROW_BYTES,
    Compression,
    choose_layout,
    parse_compression,
)
from paceline.mdanalysis.reader import Reader
from paceline.snapshot.shared_file import Contents, Heading, Settings
from paceline.snapshot.write_h5md import H5MD

pytestmark = pytest.mark.filterwarnings("ignore:.*the header says.*")

VALUES = "particles/trajectory/{}/value"
#: Chunk shapes and compressions of 214 atoms. They differ in how bytes are written to the file.
STORED = [
    ("frame", "none"),
    ("contiguous", "none"),
    ("auto", "none"),
    ("10x100", "none"),
    ("frame", "gzip:1"),
    ("16x214", "shuffle+gzip:4"),
    ("10x100", "shuffle+gzip:1"),
    ("1000x20", "gzip:9"),
    ("10x100", "shuffle+zstd:3"),
    ("frame", "lz4"),
    ("frame", "lzf"),
    ("10x100", "shuffle+lzf"),
]


@pytest.fixture(scope="module")
def ca(adk_xtc):
    """The Cα atoms of adenylate kinase, 98 frames."""
    return paceline.Universe(*adk_xtc).select_atoms("name CA")


@pytest.fixture(scope="module")
def expected(adk_xtc):
    """Positions of these atoms, read by MDAnalysis."""
    theirs = MDAnalysis.Universe(*adk_xtc)
    return theirs.trajectory.timeseries(theirs.select_atoms("name CA"), order="fac")


def write(atoms, path, *, chunk=None, compress=None, precision=None, align=None, **options):
    write = paceline.Write(
        atoms, path, chunk=chunk, compress=compress, precision=precision, align=align
    )
    return write.run(**options).results


def numbers(path, element="position"):
    with h5py.File(path) as file:
        return file[VALUES.format(element)][:]


@pytest.mark.parametrize(("chunk", "compress"), STORED)
def test_other_programs_read_what_was_read(chunk, compress, ca, expected, tmp_path):
    path = tmp_path / "out.h5md"
    load_filters(compress)
    results = write(ca, path, chunk=chunk, compress=compress, n_workers=2, block_frames=16)
    assert (results.n_written, results.n_bytes) == (98, path.stat().st_size)
    np.testing.assert_array_equal(numbers(path), expected)
    found = MDAnalysis.Universe.empty(len(ca))
    found.load_new(str(path), format="H5MD")
    for ts, positions, source in zip(
        found.trajectory, expected, ca.universe.trajectory, strict=True
    ):
        np.testing.assert_array_equal(ts.positions, positions)
        assert ts.time == source.time
        assert ts.data["step"] == source.data["step"]
    with Reader(str(path)) as ours:
        np.testing.assert_array_equal([ts.positions.copy() for ts in ours], expected)
    with pyh5md.File(str(path), "r") as file:
        positions = pyh5md.element(file.particles_group("trajectory"), "position")
        np.testing.assert_array_equal(positions.value[:], expected)
        np.testing.assert_array_equal(positions.time[:], [ts.time for ts in found.trajectory])


@pytest.mark.parametrize("tool", HDF5_TOOLS)
def test_hdf5_s_own_tools_find_nothing_wrong(tool, ca, tmp_path):
    path = tmp_path / "out.h5md"
    write(ca, path, chunk="10x100", compress="shuffle+gzip:4")
    found = subprocess.run([tool, path], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stderr) == (0, "")


@pytest.mark.parametrize(
    ("chunk", "compress"),
    [("10x100", "none"), ("10x100", "gzip:1"), ("10x100", "shuffle+zstd:3")],
)
def test_every_backend_writes_the_same_bytes(chunk, compress, ca, tmp_path, where):
    how = {"chunk": chunk, "compress": compress}
    write(ca, tmp_path / "expected.h5md", **how, backend="serial", block_frames=128)
    write(ca, tmp_path / "found.h5md", **how, block_frames=16, **where)
    found = (tmp_path / "found.h5md").read_bytes()
    assert found == (tmp_path / "expected.h5md").read_bytes()


@pytest.mark.parametrize("compress", ["none", "gzip:1"])
@pytest.mark.parametrize("skip", [False, True])
def test_velocities_and_forces_are_kept(compress, skip, moving, tmp_path):
    atoms = paceline.Universe(*moving).atoms
    path = tmp_path / "out.h5md"
    write(
        atoms,
        path,
        chunk="2x300",
        compress=compress,
        step=4,
        on_error="skip" if skip else "raise",
    )
    theirs = MDAnalysis.Universe(*moving).trajectory[::4]
    found = MDAnalysis.Universe(moving[0], str(path), format="H5MD").trajectory
    for ts, source in zip(found, theirs, strict=True):
        for field in ("positions", "velocities", "forces"):
            np.testing.assert_allclose(getattr(ts, field), getattr(source, field), rtol=2e-6)
        np.testing.assert_array_equal(ts.dimensions, source.dimensions)
    with h5py.File(path) as file:
        group = file["particles/trajectory"]
        assert group["velocity/step"] == group["position/step"] == group["box/edges/step"]
        assert group["force/value"].attrs["unit"] == "kJ mol-1 Angstrom-1"


@pytest.mark.parametrize(("chunk", "compress"), STORED)
def test_frames_that_cannot_be_read_are_left_out(chunk, compress, damaged, tmp_path):
    load_filters(compress)
    system, frames = damaged
    ca = paceline.Universe(*system).select_atoms("name CA")
    path = tmp_path / "out.h5md"
    results = write(
        ca, path, chunk=chunk, compress=compress, on_error="skip", n_workers=2, block_frames=16
    )
    whole = [frame for frame in range(98) if frame not in frames]
    assert results.n_written == len(whole)
    expected = [ca.positions for _ in ca.universe.trajectory[whole]]
    np.testing.assert_array_equal(numbers(path), expected)
    with h5py.File(path) as file:
        assert len(file["particles/trajectory/position/step"]) == len(whole)
        assert file[VALUES.format("position")].attrs["unit"] == "Angstrom"


def test_numbers_are_rounded_as_much_as_is_said(ca, expected, tmp_path):
    sizes = []
    for precision in (None, 0.001, 0.1):
        path = tmp_path / f"{precision}.h5md"
        results = write(ca, path, compress="shuffle+gzip:4", precision=precision)
        sizes.append(results.n_bytes)
        apart = np.abs(numbers(path).astype(float) - expected).max()
        with h5py.File(path) as file:
            step = file[VALUES.format("position")].attrs.get("rounded_to_multiples_of")
        if precision is None:
            assert (apart, step) == (0, None)
        else:
            assert precision / 2 < step <= precision
            assert 0 < apart <= step / 2
            assert not (numbers(path) % step).any()
    assert sizes == sorted(sizes, reverse=True)


@pytest.mark.parametrize(("chunk", "compress"), STORED[::2])
def test_what_is_no_number_is_refused_by_frame_and_atom(chunk, compress, adk, tmp_path):
    universe = MDAnalysis.Universe(*adk)
    bad = str(tmp_path / "bad.dcd")
    with MDAnalysis.Writer(bad, len(universe.atoms)) as writer:
        for ts in universe.trajectory[:13]:
            if ts.frame == 11:
                ts.positions[17, 1] = np.inf
            writer.write(universe.atoms)
    atoms = paceline.Universe(adk.topology, bad).atoms[10:224]
    path = tmp_path / "out.h5md"
    with pytest.raises(
        UnwritableError, match=f"{path}: frame 11: atom 7: expected a finite position, found inf"
    ):
        write(atoms, path, chunk=chunk, compress=compress)
    assert sorted(one.suffix for one in tmp_path.iterdir()) == [".dcd"]


@pytest.mark.parametrize(("chunk", "compress"), [("frame", "none"), ("frame", "gzip:1")])
def test_a_full_disk_leaves_no_file_open(chunk, compress, ca, tmp_path):
    n_open = h5py.h5f.get_obj_count(h5py.h5f.OBJ_ALL, h5py.h5f.OBJ_FILE)
    with full_disk(100_000), pytest.raises(OSError, match=r"File too large.*out\.h5md"):
        write(ca, tmp_path / "out.h5md", chunk=chunk, compress=compress)
    assert h5py.h5f.get_obj_count(h5py.h5f.OBJ_ALL, h5py.h5f.OBJ_FILE) <= n_open
    assert list(tmp_path.iterdir()) == []


def test_workers_of_other_machines_send_their_frames(ca, tmp_path, monkeypatch):
    write(ca, tmp_path / "expected.h5md", chunk="10x100")
    names = map(str, itertools.count())
    monkeypatch.setattr(paceline.trajectory.write_h5md.socket, "gethostname", lambda: next(names))
    write(ca, tmp_path / "found.h5md", chunk="10x100", n_workers=2, block_frames=16)
    found = (tmp_path / "found.h5md").read_bytes()
    assert found == (tmp_path / "expected.h5md").read_bytes()


def test_it_goes_along_with_an_analysis(ca, expected, tmp_path):
    path = tmp_path / "out.h5md"
    rmsf = RMSF(ca)
    paceline.run([rmsf, paceline.Write(ca, path, chunk="40x214", compress="gzip:1")])
    np.testing.assert_array_equal(rmsf.results.rmsf, RMSF(ca).run().results.rmsf)
    np.testing.assert_array_equal(numbers(path), expected)


def test_steps_that_do_not_rise_are_counted(ca, expected, tmp_path):
    path = tmp_path / "out.h5md"
    with pytest.warns(PacelineWarning, match="frames are counted instead"):
        write(ca, path, frames=[5, 3, 3, 90])
    np.testing.assert_array_equal(numbers(path), expected[[5, 3, 3, 90]])
    with h5py.File(path) as file:
        position = file["particles/trajectory/position"]
        np.testing.assert_array_equal(position["step"][:], range(4))
        assert position["time"][0] > position["time"][1]


@pytest.mark.parametrize("compress", ["none", "gzip:1"])
def test_large_chunks_begin_at_stripes(compress, ca, expected, tmp_path):
    path = tmp_path / "out.h5md"
    write(ca, path, align=4096, compress=compress)
    with h5py.File(path) as file:
        dataset = file[VALUES.format("position")]
        found = []
        dataset.id.chunk_iter(found.append)
        assert all(one.byte_offset % 4096 == 0 for one in found if one.size >= 4096)
        np.testing.assert_array_equal(dataset[:], expected)


def test_a_cell_comes_back_as_it_was(tmp_path):
    rng = np.random.default_rng(5)
    lengths, angles = rng.uniform(20, 100, (500, 3)), rng.uniform(62, 118, (500, 3))
    cells = np.hstack([lengths, angles]).astype(np.float32)
    vectors = upright_vectors(_core.cells_of_dimensions(cells))
    back = [MDAnalysis.lib.mdamath.triclinic_box(*one) for one in vectors]
    np.testing.assert_array_equal(back, cells)
    nothing = np.array([[0] * 6, [9, 9, 9, 20, 30, 60], [9, 9, 9, 90, 90, 180]], np.float32)
    assert not upright_vectors(_core.cells_of_dimensions(nothing)).any()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"chunk": "contiguous", "compress": "gzip:1"}, "contiguous storage cannot be compressed"),
        ({"chunk": "0x5"}, "expected a chunk: frame, contiguous, auto or FRAMESxATOMS"),
        ({"chunk": "4x215"}, "cannot contain 215 atoms: there are 214"),
        ({"chunk": "9000000x214"}, "choose fewer frames"),
        ({"compress": "gzip:10"}, "expected a compression:"),
        ({"compress": "shuffle"}, "expected a compression:"),
        ({"compress": "zstd"}, "zstd:1 to zstd:19, lz4, .* found 'zstd'"),
        ({"compress": "zstd:0"}, "found 'zstd:0'"),
        ({"compress": "zstd:20"}, "found 'zstd:20'"),
        ({"compress": "shuffle+lz4:1"}, "found 'shuffle\\+lz4:1'"),
        ({"compress": "blosc:5"}, "found 'blosc:5'"),
        ({"chunk": "contiguous", "compress": "lz4"}, "contiguous storage cannot be compressed"),
        ({"for_": "speed"}, "expected for_ out of frames, atoms, both"),
        ({"align": -1}, "expected a stripe size"),
    ],
)
def test_what_cannot_be_is_refused_before_the_work(options, words, ca, tmp_path):
    with pytest.raises(UnsupportedError, match=words):
        paceline.Write(ca, tmp_path / "out.h5md", **options)


def test_other_formats_have_no_chunks(ca, tmp_path):
    with pytest.raises(UnsupportedError, match="XTC files have no option chunk="):
        paceline.Write(ca, tmp_path / "out.xtc", chunk="frame")
    with pytest.raises(UnwritableError, match="precision must be from"):
        paceline.Write(ca, tmp_path / "out.h5md", precision=0)
    with pytest.raises(UnwritableError, match=r"at most 1 Å .* found 1000; XTC"):
        paceline.Write(ca, tmp_path / "out.h5md", precision=1000)


@pytest.mark.parametrize("for_", ["frames", "atoms", "both"])
@pytest.mark.parametrize("align", [None, 2**20, 16 * 2**20])
def test_automatic_chunks_are_bounded(for_, align):
    for n_atoms in (1, 3, 214, 3_341, 47_681, 111_815, 1_000_000, 50_000_000):
        layout = choose_layout("auto", n_atoms, for_=for_, align=align)
        assert layout.frames.bit_count() == 1
        assert layout.frames == 1 or 12 * n_atoms * layout.frames <= ROW_BYTES
        assert 1 <= layout.atoms <= n_atoms
        assert 12 * layout.frames * layout.atoms < 2**30


def test_compressions_are_read():
    assert parse_compression("none") == Compression()
    assert parse_compression("gzip:9") == Compression(False, "gzip", 9)
    assert parse_compression("zstd:19") == Compression(False, "zstd", 19)
    assert parse_compression("shuffle+lz4") == Compression(True, "lz4")


@pytest.mark.parametrize(
    ("method", "level", "by_h5py"),
    [
        ("gzip", 2, {"compression": 2}),
        ("zstd", 2, {"compression": 32015, "compression_opts": (2,)}),
        ("lz4", None, {"compression": 32004, "compression_opts": ()}),
        ("lzf", None, {"compression": "lzf"}),
    ],
)
def test_encoders_travel(method, level, by_h5py, tmp_path):
    import pickle

    load_filters(method)
    options = {"method": method, "level": level, "precision": 0.01, "factor": 0.1}
    encoder = _core.ChunkEncoder("<f8", (4, 7, 3), shuffle=True, what="velocity", **options)
    values = np.random.default_rng(3).normal(size=(6, 20, 3)).astype(np.float32)
    data, sizes = encoder.encode(values)
    again, _ = pickle.loads(pickle.dumps(encoder)).encode(values)
    assert data == again
    assert len(sizes) == 6
    assert sizes.sum() == len(data)
    path = tmp_path / "by_h5py.h5"
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset(
            "value", (6, 20, 3), "<f8", chunks=(4, 7, 3), shuffle=True, **by_h5py
        )
        ends = np.cumsum(sizes).tolist()
        for k, (start, end) in enumerate(itertools.pairwise([0, *ends])):
            corner = 4 * (k // 3), 7 * (k % 3), 0
            dataset.id.write_direct_chunk(corner, data[start:end])
        found = dataset[:]
    assert np.abs(found - values.astype(float) * 0.1).max() <= 0.005
    assert not (found % 0.0078125).any()
    assert os.path.getsize(path)


GROUP = "particles/trajectory"
PROPERTIES = ("mass", "charge", "species")


def test_all_that_write_make_one_tree(moving, tmp_path):
    made = {name: tmp_path / f"{name}.h5md" for name in ("converted", "streamed", "snapshots")}
    universe = paceline.Universe(*moving)
    atoms, frames = universe.atoms, universe.trajectory[::4][:2]
    paceline.Write(atoms, made["converted"]).run(stop=8, step=4)
    with paceline.H5MDWriter(made["streamed"], len(atoms)) as writer:
        for ts in frames:
            ts.data.pop("lambda")  # an observable, which the other writers omit
            writer.write(atoms)
    contents = Contents(("positions", "velocities", "forces"), True)
    settings = Settings(
        path=str(made["snapshots"]),
        n_atoms=len(atoms),
        title="",
        append=False,
        overwrite=False,
        n_frames=None,
        double=False,
        dt=None,
        sync=False,
    )
    snapshots = H5MD(settings)
    for step in range(2):
        snapshots.place(contents, Heading(step, float(step), np.eye(3)))
        snapshots.commit()
    snapshots.close()
    trees = {name: tree_of(path) for name, path in made.items()}
    assert trees["streamed"] == trees["converted"]
    # A simulation that writes snapshots passes no properties of its atoms.
    given = ("parameters/atoms/", "connectivity", *(f"{GROUP}/{name}" for name in PROPERTIES))
    assert trees["snapshots"] == {
        path: about for path, about in trees["converted"].items() if not path.startswith(given)
    }


def tree_of(path):
    """Return groups and datasets, except the origin: type, rank and attributes, and which are the
    same object.
    """
    tree = {}
    with h5py.File(path) as file:
        first = {}

        def visit(group):
            for name, found in group.items():
                where = f"{group.name}/{name}".lstrip("/")
                address = first.setdefault(h5py.h5o.get_info(found.id).addr, where)
                attributes = {key: str(value) for key, value in found.attrs.items()}
                about = (found.dtype.kind, found.ndim) if isinstance(found, h5py.Dataset) else ()
                if not where.startswith("parameters/origin/"):
                    tree[where] = (address, *about, attributes)
                if isinstance(found, h5py.Group):
                    visit(found)

        visit(file)
    return tree
