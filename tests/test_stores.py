"""Tests of trajectories and topologies on object stores and servers."""

import base64
import bz2
import contextlib
import gc
import hmac
import http.client
import ipaddress
import itertools
import json
import math
import os
import pickle
import random
import shutil
import signal
import socket
import socketserver
import subprocess
import sys
import threading
import time
import urllib.request
import warnings
from dataclasses import replace
from email.utils import formatdate
from multiprocessing.connection import wait as wait_for
from pathlib import Path

import h5py
import MDAnalysis
import numpy as np
import pytest
from helpers.mpi import mpirun, needs_mpi
from helpers.netcdf_files import AMBER, values, write_netcdf4
from helpers.object_server import object_server
from helpers.ports import free_port
from helpers.programs import needs_program
from helpers.waiting import PATIENCE, until
from MDAnalysisTests.datafiles import (
    DCD,
    DLP_HISTORY,
    GRO,
    LAMMPSDUMP,
    NCDF,
    PSF,
    TRR,
    XTC,
    H5MD_xvf,
    PDB_small,
)

import paceline
from paceline import _core, join, split, split_join
from paceline import advice as advising
from paceline._util import leftovers
from paceline.analysis.battery import Battery
from paceline.analysis.rms import RMSD
from paceline.backends.base import sharing_requests
from paceline.engine import time_other_formats
from paceline.engine.tasks_and_results import FunctionJob
from paceline.errors import (
    DamagedFileError,
    FileChangedError,
    PacelineError,
    PacelineWarning,
    UnsupportedError,
)
from paceline.model import Prices
from paceline.trajectory.addresses import matching_objects, source_name
from paceline.trajectory.open import open_file, open_files

pytestmark = pytest.mark.skipif(
    not hasattr(_core, "list_objects"), reason="this build reads local files only"
)


@pytest.fixture
def store(tmp_path, monkeypatch):
    """Serve a bucket, also as a plain web server. There are no credentials, proxies or caches."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PACELINE_RETRY_SECONDS", "2")
    settings = ("AWS_", "AZURE_", "GOOGLE_", "IDENTITY_", "HF_", "NETRC")
    for name in [name for name in os.environ if name.startswith(settings)]:
        monkeypatch.delenv(name)
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    with object_server() as objects:
        objects.bucket = f"b{objects.address.rsplit(':', 1)[1]}"
        monkeypatch.setenv("AWS_ENDPOINT_URL", objects.address)
        for name, path in {
            "md.xtc": XTC,
            "md.dcd": DCD,
            "md.psf": PSF,
            "md.gro": GRO,
            "md.pdb": PDB_small,
        }.items():
            objects.files[f"/{objects.bucket}/{name}"] = Path(path).read_bytes()
        yield objects


@pytest.fixture
def patient(store, monkeypatch):
    """Repeat requests for long: on a busy machine, the server may respond late."""
    monkeypatch.setenv("PACELINE_RETRY_SECONDS", f"{PATIENCE}")


@pytest.fixture(params=["s3", "http"])
def at(request, store):
    """Return the address of a file of the store."""
    folder = f"s3://{store.bucket}"
    if request.param == "http":
        folder = f"{store.address}/{store.bucket}"
    return lambda name: f"{folder}/{name}"


def positions_of(name):
    with paceline.open(name) as trajectory:
        return trajectory.positions(frames=slice(None))


@pytest.mark.filterwarnings("ignore:.*the header says 500 frames")
@pytest.mark.parametrize(
    "local",
    [XTC, TRR, DCD, NCDF, DLP_HISTORY, "dump"],
    ids=["XTC", "TRR", "DCD", "NetCDF", "HISTORY", "LAMMPSDUMP"],
)
def test_frames_are_those_of_the_local_file(local, store, at, tmp_path):
    if local == "dump":
        local = tmp_path / "one.lammpstrj"
        local.write_bytes(bz2.decompress(Path(LAMMPSDUMP).read_bytes()))
    store.files[f"/{store.bucket}/one"] = Path(local).read_bytes()
    with paceline.open(at("one")) as there, paceline.open(local) as here:
        assert there.n_frames == here.n_frames
        everything = slice(None)
        assert np.array_equal(there.positions(frames=everything), here.positions(frames=everything))
        assert np.array_equal(there.chain.files[0].times()[0], here.chain.files[0].times()[0])


@pytest.mark.parametrize(
    ("at", "backend", "n"),
    [("s3", "serial", 1), ("http", "threads", 2), ("s3", "processes", 2)],
    indirect=["at"],
)
def test_h5md_has_the_bits_of_the_local_file(at, backend, n, store, tmp_path):
    store.files[f"/{store.bucket}/md.h5md"] = Path(H5MD_xvf).read_bytes()
    found, expected = (
        RMSD(paceline.Universe(one).atoms).run(backend=backend, n_workers=n).results.rmsd
        for one in (at("md.h5md"), H5MD_xvf)
    )
    assert np.array_equal(found, expected)
    # The topology is read from the trajectory, which is not copied.
    assert not list(tmp_path.rglob("md.h5md"))


@pytest.fixture
def chunked(store, at, tmp_path):
    """Store an H5MD file; return its address and a local copy."""
    local = tmp_path / "local.h5md"
    paceline.Write(paceline.open(XTC), local).run()
    store.files[f"/{store.bucket}/chunked.h5md"] = local.read_bytes()
    return at("chunked.h5md"), local


def origin_of(name, **options):
    with paceline.open(name, **options) as trajectory:
        return trajectory.chain.files[0].index_origin


def test_the_chunk_index_of_an_object_is_saved(store, chunked, tmp_path):
    address, local = chunked
    with paceline.open(address) as first, paceline.open(address) as again:
        new, loaded = first.chain.files[0], again.chain.files[0]
        assert (new.index_origin, loaded.index_origin) == ("HDF5's own", "loaded")
        old, saved = (pickle.dumps(one.chunk_index.elements) for one in (new, loaded))
        assert repr(pickle.loads(old)) == repr(pickle.loads(saved))
        assert new.notes == loaded.notes
        assert new.samples == loaded.samples
        assert new.chunk_index.facts == loaded.chunk_index.facts
        assert np.array_equal(new.chunk_index.cells.dimensions, loaded.chunk_index.cells.dimensions)
        assert np.array_equal(new.times(), loaded.times())
        found = again.positions(frames=slice(None))
    assert np.array_equal(found, positions_of(local))
    assert origin_of(address, group="trajectory") == "HDF5's own"
    assert origin_of(str(local)) == "HDF5's own"
    # The server may still log blocks that an earlier opening requested in advance.
    before, *_ = _core.requests_sent()
    origin_of(address, group="trajectory")
    after, *_ = _core.requests_sent()
    assert after - before <= 2


def test_a_chunk_index_that_does_not_match_is_made_again(store, chunked, tmp_path):
    address, local = chunked
    origin_of(address)
    (saved,) = (tmp_path / "cache").rglob("*.paceline-chunks")
    whole = saved.read_bytes()
    for content in (
        b"",
        whole[:20],
        whole[:-1],
        whole[:1000] + bytes([whole[1000] ^ 1]) + whole[1001:],
        b"x" * len(whole),
    ):
        saved.write_bytes(content)
        assert origin_of(address) == "HDF5's own"
        assert saved.read_bytes() == whole
    assert origin_of(address) == "loaded"
    # That of another object.
    store.files[f"/{store.bucket}/other.h5md"] = Path(H5MD_xvf).read_bytes()
    other = address.replace("chunked", "other")
    with paceline.open(other) as trajectory:
        assert trajectory.n_atoms == paceline.open(H5MD_xvf).n_atoms
    (theirs,) = set((tmp_path / "cache").rglob("*.paceline-chunks")) - {saved}
    theirs.write_bytes(whole)
    assert origin_of(other) == "HDF5's own"
    # Another version.
    paceline.Write(paceline.open(XTC), local, overwrite=True).run(stop=5)
    store.files[f"/{store.bucket}/chunked.h5md"] = local.read_bytes()
    assert origin_of(address) == "HDF5's own"
    assert np.array_equal(positions_of(address), positions_of(local))


@pytest.mark.parametrize("at", ["s3"], indirect=True)
def test_netcdf_4_has_the_bits_of_the_local_file(store, at, tmp_path):
    local = write_netcdf4(tmp_path / "a.nc", values(), "NETCDF4", scale=AMBER)
    store.files[f"/{store.bucket}/a.nc"] = local.read_bytes()
    assert np.array_equal(positions_of(at("a.nc")), positions_of(local))


def test_a_store_that_fails_below_hdf5_is_no_damage(store, at, monkeypatch):
    content = Path(H5MD_xvf).read_bytes()
    store.files[f"/{store.bucket}/md.h5md"] = content
    monkeypatch.setenv("PACELINE_RETRY_SECONDS", "0.2")

    def fail_later(handler):
        start = int(handler.headers["Range"].removeprefix("bytes=").split("-")[0])
        return start > 0 and handler.answer(503) is None

    store.fault = fail_later
    with pytest.raises(OSError, match=r"md\.h5md: cannot read bytes .*the server answered 503"):
        paceline.open(at("md.h5md"))


def test_references_of_an_object_to_other_files_are_refused(store, tmp_path):
    local = tmp_path / "md.h5md"
    local.write_bytes(Path(H5MD_xvf).read_bytes())
    with h5py.File(local, "r+") as file:
        del file["particles/trajectory/position"]
        file["particles/trajectory/position"] = h5py.ExternalLink("/etc/passwd", "/a")
    store.files[f"/{store.bucket}/md.h5md"] = local.read_bytes()
    with pytest.raises(PacelineError, match="files that an object refers to are not opened"):
        paceline.open(f"s3://{store.bucket}/md.h5md", external=True).positions(frames=[0])


@pytest.mark.filterwarnings("ignore:.*the header says 500 frames")
@pytest.mark.parametrize(("backend", "n"), [("serial", 1), ("threads", 2), ("processes", 2)])
def test_an_analysis_has_the_bits_of_the_local_file(backend, n, store, at):
    of_store = paceline.Universe(at("md.psf"), at("md.dcd"))
    local = paceline.Universe(PSF, DCD)
    found, expected = (
        RMSD(one, select="name CA").run(backend=backend, n_workers=n).results.rmsd
        for one in (of_store, local)
    )
    assert np.array_equal(found, expected)
    assert of_store.filename == at("md.psf")
    assert of_store.trajectory.filename == at("md.dcd")


@pytest.mark.filterwarnings("ignore:.*the header says 500 frames")
def test_plain_mdanalysis_opens_addresses_under_register(store, at):
    with paceline.register():
        found = MDAnalysis.Universe(at("md.psf"), at("md.dcd"))
        expected = MDAnalysis.Universe(PSF, DCD)
        assert np.array_equal(found.atoms.positions, expected.atoms.positions)
        assert type(found.trajectory).__module__.startswith("paceline")


def test_a_structure_is_topology_and_trajectory(store, at):
    universe = paceline.Universe(at("md.gro"))
    assert len(universe.trajectory) == 1
    assert np.array_equal(universe.atoms.positions, paceline.Universe(GRO).atoms.positions)


@pytest.mark.filterwarnings("ignore:.*the header says 500 frames")
def test_opening_again_needs_few_requests(store, at):
    positions_of(at("md.xtc"))
    store.requests.clear()
    with paceline.open(at("md.xtc")) as trajectory:
        assert trajectory.chain.files[0].index_origin == "loaded"
    assert len(store.requests) == 1
    paceline.Universe(at("md.psf"), at("md.dcd"))
    store.requests.clear()
    paceline.Universe(at("md.psf"), at("md.dcd"))
    assert store.count(f"/{store.bucket}/md.psf") == 1


@pytest.mark.filterwarnings("ignore:.*the header says 500 frames")
def test_frames_of_equal_size_need_no_index(store, at):
    for _ in range(2):
        store.requests.clear()
        with paceline.open(at("md.dcd")) as trajectory:
            assert trajectory.n_frames == 98
        # One for the beginning, and one for the last frame.
        assert [path for _, path, _ in store.requests] == [f"/{store.bucket}/md.dcd"] * 2


def test_the_index_beside_an_object_is_used(store, at, tmp_path):
    local = tmp_path / "md.xtc"
    local.write_bytes(Path(XTC).read_bytes())
    paceline.open(local)
    index = (tmp_path / ".md.xtc.paceline-index").read_bytes()
    store.files[f"/{store.bucket}/.md.xtc.paceline-index"] = index
    for _ in range(2):
        with paceline.open(at("md.xtc")) as trajectory:
            assert trajectory.chain.files[0].index_origin == "loaded"
    store.files[f"/{store.bucket}/md.xtc"] += Path(XTC).read_bytes()
    with paceline.open(at("md.xtc")) as trajectory:
        assert trajectory.chain.files[0].index_origin == "scanned"
        assert trajectory.n_frames == 20


def test_the_index_of_a_copy_takes_few_requests(store, at, run, tmp_path):
    local, content = tmp_path / "md.xtc", Path(XTC).read_bytes()
    local.write_bytes(content)
    paceline.open(local)
    beside = f"/{store.bucket}/.md.xtc.paceline-index"
    store.files[beside] = (tmp_path / ".md.xtc.paceline-index").read_bytes()
    store.requests.clear()
    status, out, err = run("info", "--json", at("md.xtc"))
    assert status == 0, err
    assert json.loads(out)["files"][0]["index"]["origin"] == "loaded"
    assert len(store.requests) <= 5
    # The index of another file of the same size.
    for start in (2000, (len(content) - 4096) * 5 // 17, len(content) - 2000):
        other = bytearray(content)
        other[start] ^= 1
        name = f"other{start}.xtc"
        store.files[f"/{store.bucket}/{name}"] = bytes(other)
        store.files[f"/{store.bucket}/.{name}.paceline-index"] = store.files[beside]
        assert origin_of(at(name)) == "scanned"


def test_an_object_that_is_replaced_is_a_changed_file(store, at):
    positions_of(at("md.xtc"))  # saves the index
    trajectory = paceline.open(at("md.xtc"))
    content = bytearray(store.files[f"/{store.bucket}/md.xtc"])
    content[-1] ^= 1
    store.files[f"/{store.bucket}/md.xtc"] = bytes(content)
    with pytest.raises(FileChangedError, match=r"md\.xtc: the file changed since it was opened"):
        trajectory.positions(frames=[9])
    with pytest.raises(FileChangedError):
        trajectory.chain.files[0].verify()
    assert len(paceline.open(at("md.xtc"))) == 10


#: Maximum number of bytes of the beginnings that are requested to identify an object.
BEGINNINGS = 1 << 19


@pytest.fixture
def long_xtc(store, at, tmp_path, monkeypatch):
    """Store an XTC file of some MB without an index; return its address and a local copy."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    local = tmp_path / "long.xtc"
    local.write_bytes(20 * Path(XTC).read_bytes())
    store.files[f"/{store.bucket}/long.xtc"] = local.read_bytes()
    return at("long.xtc"), str(local)


def received(store):
    """Return the number of bytes of parts of the long file that were requested."""
    parts = [wanted for _, path, wanted in store.requests if path.endswith("/long.xtc")]
    ends = [part.removeprefix("bytes=").split("-") for part in parts if part]
    return sum(int(last) + 1 - int(first) for first, last in ends)


def kept_files(tmp_path):
    return list((tmp_path / "scratch").rglob("paceline-blocks-*/*"))


@pytest.mark.filterwarnings("ignore:the (masses|total mass)")
@pytest.mark.parametrize("backend", ["serial", "threads", "processes"])
def test_an_object_without_an_index_is_requested_once(backend, store, long_xtc, tmp_path):
    address, local = long_xtc
    size = os.path.getsize(local)
    universe = paceline.Universe(GRO, address)
    workers = {} if backend == "serial" else {"n_workers": 2}
    found = RMSD(universe.atoms).run(backend=backend, **workers).results.rmsd
    assert np.array_equal(found, RMSD(paceline.Universe(GRO, local).atoms).run().results.rmsd)
    assert len(kept_files(tmp_path)) == 1
    # Loops over frames, too, find what was kept.
    assert len([frame.time for frame in universe.trajectory]) == 200
    assert received(store) <= size + BEGINNINGS
    del universe
    # Threads that have computed may end later.
    until(lambda: gc.collect() >= 0 and not list((tmp_path / "scratch").iterdir()))
    store.requests.clear()
    with paceline.open(address) as trajectory:
        assert trajectory.chain.files[0].index_origin == "loaded"
        assert trajectory.chain.cache is None


def test_a_scan_stores_blocks_in_the_cache_of_the_user(store, long_xtc, tmp_path):
    address, local = long_xtc
    with paceline.open(address, cache=tmp_path / "own") as trajectory:
        found = trajectory.positions(frames=slice(None))
    assert np.array_equal(found, positions_of(local))
    assert received(store) <= os.path.getsize(local) + BEGINNINGS
    store.requests.clear()
    with paceline.open(address, cache=tmp_path / "own") as trajectory:
        assert np.array_equal(trajectory.positions(frames=slice(None)), found)
    assert received(store) <= BEGINNINGS


def test_the_bytes_that_a_scan_keeps_are_bounded(store, long_xtc, tmp_path, monkeypatch):
    address, local = long_xtc
    monkeypatch.setattr("paceline.trajectory.chain._KEPT_OF_SCANS", 2 << 20)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*cache is full")
        with paceline.open(address) as trajectory:
            found = trajectory.positions(frames=slice(None))
            (kept,) = kept_files(tmp_path)
            assert 0 < kept.stat().st_blocks * 512 <= 2 << 20
    assert np.array_equal(found, positions_of(local))


@pytest.mark.parametrize("folder", ["missing", "file"])
def test_a_scan_needs_no_folder_for_temporary_files(folder, store, long_xtc, tmp_path, monkeypatch):
    address, local = long_xtc
    (tmp_path / "file").touch()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / folder))
    assert np.array_equal(positions_of(address), positions_of(local))


def test_what_a_killed_process_has_kept_is_removed(store, long_xtc, tmp_path):
    address, _ = long_xtc
    script = (
        "import os, signal, sys, paceline\n"
        "kept = paceline.open(sys.argv[1])\n"
        "assert kept.chain.cache is not None\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", script, address], env=os.environ, check=False)
    assert done.returncode == -signal.SIGKILL
    assert len(kept_files(tmp_path)) == 1
    leftovers.remove_leftovers.__wrapped__()
    assert list((tmp_path / "scratch").iterdir()) == []


def test_info_keeps_nothing(store, long_xtc, tmp_path, run):
    run("info", long_xtc[0])
    assert list((tmp_path / "scratch").iterdir()) == []
    assert received(store) <= os.path.getsize(long_xtc[1]) + BEGINNINGS


def test_a_server_without_tags_is_compared_by_time_and_size(store, at):
    store.has_tags = False
    positions_of(at("md.xtc"))  # saves the index
    trajectory = paceline.open(at("md.xtc"))
    assert np.array_equal(trajectory.positions(frames=[3]), positions_of(XTC)[3:4])
    store.files[f"/{store.bucket}/md.xtc"] += b"x"
    with pytest.raises(FileChangedError):
        trajectory.positions(frames=[9])


@pytest.mark.filterwarnings("ignore:10 frames are repeated")
def test_patterns_find_objects_in_natural_order(store):
    content = Path(XTC).read_bytes()
    for name in ("run10/md.xtc", "run2/md.xtc", "run2/deep/md.xtc", "other/md.xtc"):
        store.files[f"/{store.bucket}/{name}"] = content
    with paceline.open(f"s3://{store.bucket}/run*/md.xtc") as trajectory:
        folder = f"s3://{store.bucket}"
        assert trajectory.filenames == [f"{folder}/run2/md.xtc", f"{folder}/run10/md.xtc"]
    with pytest.raises(FileNotFoundError, match="no object matches this pattern"):
        paceline.open(f"s3://{store.bucket}/no*.xtc")


def test_a_survey_of_a_store_has_the_rows_of_local_files(store, tmp_path):
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    for name in ("closed", "open"):
        for ending, path in {"gro": GRO, "xtc": XTC}.items():
            content = Path(path).read_bytes()
            store.files[f"/{store.bucket}/deposit/{name}/md.{ending}"] = content
            (tmp_path / "deposit" / name).mkdir(parents=True, exist_ok=True)
            (tmp_path / "deposit" / name / f"md.{ending}").write_bytes(content)
    options = {
        "pattern": "{id}/md.xtc",
        "topology": "{id}/md.gro",
        "battery": {"gyration": {"select": "name CA"}},
        "backend": "serial",
    }
    found = [
        paceline.survey(folder, tmp_path / f"tables{k}", **options)
        for k, folder in enumerate([f"s3://{store.bucket}/deposit", tmp_path / "deposit"])
    ]
    assert [one.failures.num_rows for one in found] == [0, 0]
    assert found[0].quantities.num_rows == 2
    assert found[0].quantities.equals(found[1].quantities)


@pytest.mark.parametrize("name", ["a b/m d.xtc", "a+b%20c.xtc", "ü/md.xtc", "x=1&y.xtc"])
def test_names_with_special_characters(name, store):
    store.files[f"/{store.bucket}/{name}"] = Path(XTC).read_bytes()
    assert len(paceline.open(f"s3://{store.bucket}/{name}")) == 10


def test_names_of_servers_are_encoded(store):
    store.files["/a b/m%d.xtc"] = Path(XTC).read_bytes()
    assert len(paceline.open(f"{store.address}/a%20b/m%25d.xtc?download=1")) == 10


def test_addresses_of_local_files(tmp_path):
    folder = tmp_path / "my run"
    folder.mkdir()
    (folder / "md.xtc").write_bytes(Path(XTC).read_bytes())
    address = (folder / "md.xtc").as_uri()
    assert "%20" in address
    assert len(paceline.open(address)) == 10
    with pytest.raises(UnsupportedError, match="expected a file of this machine"):
        paceline.open("file://elsewhere/md.xtc")
    for make in (paceline.open, paceline.Universe):
        with pytest.raises(UnsupportedError, match=r"s3:/b/md\.xtc: .*pathlib\.Path leaves out"):
            make(Path("s3://b/md.xtc"))
    shutil.copy(XTC, tmp_path / "s3")
    assert source_name(tmp_path / "s3") == str(tmp_path / "s3")
    assert source_name("s3") == "s3"


@pytest.mark.filterwarnings("ignore:.*the header says 500 frames")
@pytest.mark.parametrize("local", [XTC, DCD, H5MD_xvf], ids=["XTC", "DCD", "H5MD"])
@pytest.mark.parametrize("at", ["s3"], indirect=True)
def test_pieces_have_the_bytes_of_those_of_the_local_file(local, store, at, tmp_path):
    name = Path(local).name
    store.files[f"/{store.bucket}/{name}"] = Path(local).read_bytes()
    folders = (tmp_path / "of_store", tmp_path / "of_file")
    for folder in folders:
        folder.mkdir()
    pieces = [
        split(one, 3, output=folder) for one, folder in zip((at(name), local), folders, strict=True)
    ]
    assert [one.read_bytes() for one in pieces[0]] == [one.read_bytes() for one in pieces[1]]
    whole = join([at(name)], tmp_path / f"whole{Path(local).suffix}")
    assert whole.read_bytes() == join([local], tmp_path / f"all{whole.suffix}").read_bytes()


def test_a_piece_of_an_object_that_is_replaced_is_not_written(store, tmp_path, monkeypatch):
    address = f"s3://{store.bucket}/md.xtc"
    content = store.files[f"/{store.bucket}/md.xtc"]
    write_head = split_join.write_head

    def replace_and_write(*args):
        store.files[f"/{store.bucket}/md.xtc"] = content[:-1] + bytes([content[-1] ^ 1])
        return write_head(*args)

    monkeypatch.setattr(split_join, "write_head", replace_and_write)
    with pytest.raises(FileChangedError, match=r"md\.xtc"):
        split(address, 2, output=tmp_path / "piece.xtc")
    assert not list(tmp_path.glob("piece*"))


@pytest.mark.parametrize("at", ["s3"], indirect=True)
def test_formats_of_mdanalysis_are_copied(store, at):
    for universe in (paceline.Universe(PDB_small, at("md.pdb")), paceline.Universe(at("md.pdb"))):
        expected = MDAnalysis.Universe(PDB_small).atoms.positions
        assert np.array_equal(universe.atoms.positions, expected)
    with paceline.register():
        universe = MDAnalysis.Universe(PDB_small, at("md.pdb"))
        assert np.array_equal(universe.atoms.positions, expected)


def test_the_index_of_an_object_is_saved_on_request(store, at, run, tmp_path):
    index = tmp_path / "index"
    status, _, err = run("index", at("md.xtc"), "-o", str(index))
    assert status == 0, err
    store.files[f"/{store.bucket}/.md.xtc.paceline-index"] = index.read_bytes()
    for file in (tmp_path / "cache").rglob("*.paceline-index"):
        file.unlink()
    with paceline.open(at("md.xtc")) as trajectory:
        assert trajectory.chain.files[0].index_origin == "loaded"
    assert run("index", at("md.xtc"), "-o", str(index))[0] == 2
    assert run("index", DCD, "-o", str(tmp_path / "none"))[0] == 2


def test_commands_read_addresses_and_write_local_files(store, at, run, tmp_path):
    status, out, err = run("info", "--json", at("md.xtc"))
    assert status == 0, err
    facts = json.loads(out)["files"][0]
    assert facts["frames"] == 10
    assert 0 < facts["requests"]["sent"] <= len(store.requests)
    assert run("validate", at("md.xtc"))[0] == 0
    out_file = tmp_path / "one.dcd"
    assert run("convert", at("md.xtc"), str(out_file))[0] == 0
    assert len(paceline.open(out_file)) == 10
    status, _, err = run("convert", at("md.xtc"), at("new.dcd"))
    assert status == 2
    assert "expected a file of this machine, found a URL" in err
    assert not Path(tmp_path / "s3:").exists()


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("none.xtc", FileNotFoundError, "there is no such object"),
        ("folder/", UnsupportedError, "ends with a slash, and names no object"),
        ("a//b.xtc", UnsupportedError, "empty or relative part"),
        ("empty.xtc", DamagedFileError, "found an empty file"),
        (
            "md.h5",
            DamagedFileError,
            "expected an HDF5 file, found what HDF5 refuses",
        ),
    ],
)
def test_bad_addresses(name, error, words, store, at):
    store.files[f"/{store.bucket}/empty.xtc"] = b""
    store.files[f"/{store.bucket}/md.h5"] = b"\x89HDF\r\n\x1a\n" + bytes(2000)
    with pytest.raises(error, match=words) as raised:
        paceline.open(at(name))
    assert at(name).split("//", 1)[1] in str(raised.value).replace("//b", "//b")


def test_a_missing_bucket_is_named(store):
    with pytest.raises(FileNotFoundError, match="the bucket nowhere does not exist"):
        paceline.open("s3://nowhere/md.xtc")


@pytest.mark.parametrize(
    "address",
    ["https://me:secret@h/md.xtc", "https://h/md.xtc?X-Amz-Signature=secret&X-Amz-Date=1"],
)
def test_addresses_with_secrets_are_refused_without_repeating_them(address):
    with pytest.raises(UnsupportedError) as raised:
        paceline.open(address)
    assert "secret" not in str(raised.value)


class Faults:
    """Server faults: some requests get wrong responses."""

    def __init__(self, answer, n=1):
        self.answer, self.left = answer, n

    def __call__(self, handler):
        if self.left == 0 or not handler.name.endswith("md.xtc"):
            return False
        self.left -= 1
        return self.answer(handler) is not False


@pytest.mark.parametrize("status", [429, 500, 503])
@pytest.mark.usefixtures("patient")
def test_a_busy_server_is_asked_again(status, store, at):
    store.fault = Faults(lambda one: one.answer(status, Retry_After="0"), n=3)
    assert len(paceline.open(at("md.xtc"))) == 10
    assert store.fault.left == 0


ENCODED = {"Content_Encoding": "gzip", "Content_Range": "bytes 0-9/10"}


def cut(handler):
    """Send half of a response, and close the connection."""
    content = handler.objects.files[handler.name]
    handler.send_response(206)
    handler.send_header("Content-Range", f"bytes 0-65535/{len(content)}")
    handler.send_header("Content-Length", "65536")
    handler.end_headers()
    handler.wfile.write(content[:1000])
    handler.close_connection = True


@pytest.mark.parametrize("at", ["s3"], indirect=True)
@pytest.mark.usefixtures("patient")
def test_a_store_that_often_fails_changes_no_bit(store, at):
    fails = random.Random(1)

    def fault(handler):
        return fails.random() < 0.2 and handler.answer(503) is None

    store.fault = fault
    positions_of(at("md.xtc"))  # saves the index
    u = paceline.Universe(GRO, at("md.xtc"))
    analysis = RMSD(u, select="name CA").run(backend="threads", n_workers=2)
    expected = RMSD(paceline.Universe(GRO, XTC), select="name CA").run().results.rmsd
    assert np.array_equal(analysis.results.rmsd, expected)
    assert sum(block.requests for block in analysis.timings.blocks) > 0


@pytest.mark.parametrize("at", ["s3"], indirect=True)
@pytest.mark.usefixtures("patient")
def test_a_pause_that_the_server_requests_is_kept(store, at):
    store.fault = Faults(lambda one: one.answer(429, Retry_After="1"))
    begun = time.monotonic()
    paceline.open(at("md.xtc"))
    assert time.monotonic() - begun >= 1


def test_parts_without_a_stated_length_are_read(store, at):
    def chunked(handler):
        first, last = handler.headers["Range"].removeprefix("bytes=").split("-")
        content = handler.objects.files[handler.name]
        part = content[int(first) : int(last) + 1]
        handler.send_response(206)
        handler.send_header("ETag", handler.objects.tag_of(handler.name))
        end = int(first) + len(part) - 1
        handler.send_header("Content-Range", f"bytes {first}-{end}/{len(content)}")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        handler.wfile.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(part), part))

    store.fault = Faults(chunked, n=-1)
    assert np.array_equal(positions_of(at("md.xtc")), positions_of(XTC))


def test_a_redirect_is_followed_anew_for_each_request(store):
    numbers, valid = itertools.count(), set()

    def redirect(handler):
        if handler.name.startswith("/landing/"):
            # The target address of a redirect is valid only once.
            once = f"/{store.bucket}/{next(numbers)}.xtc"
            store.files[once] = Path(XTC).read_bytes()
            valid.add(once)
            return handler.answer(302, Location=store.address + once) is None
        if handler.name not in valid:
            return handler.answer(403) is None
        valid.remove(handler.name)
        return False

    store.fault = redirect
    with paceline.open(f"{store.address}/landing/md.xtc") as trajectory:
        assert np.array_equal(trajectory.positions(frames=[0, 9]), positions_of(XTC)[[0, 9]])


@pytest.mark.usefixtures("patient")
def test_a_connection_that_is_cut_is_made_again(store, at):
    trajectory = paceline.open(at("md.xtc"))

    def cut_once(handler):
        start = int(handler.headers["Range"].removeprefix("bytes=").split("-")[0])
        if start < 100_000:
            return False
        handler.send_response(206)
        size = len(handler.objects.files[handler.name])
        first, last = handler.headers["Range"].removeprefix("bytes=").split("-")
        handler.send_header("ETag", handler.objects.tag_of(handler.name))
        handler.send_header("Content-Range", f"bytes {first}-{last}/{size}")
        handler.send_header("Content-Length", str(int(last) - int(first) + 1))
        handler.end_headers()
        handler.close_connection = True
        return True

    store.fault = Faults(cut_once)
    assert np.array_equal(trajectory.positions(frames=[9]), positions_of(XTC)[9:])


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda one: one.answer(503), r"the server answered 503.* \(\d+ requests in"),
        (
            lambda one: one.refuse(403, "AccessDenied"),
            r"the server refuses access \(AccessDenied\)",
        ),
        (lambda one: one.answer(200, one.objects.files[one.name]), "does not send parts of a file"),
        (lambda one: one.answer(302, Location="file:///etc/passwd"), "redirect"),
        (lambda one: one.answer(206, bytes(10), **ENCODED), r"sends it encoded \(gzip\)"),
        (lambda one: one.refuse(403, "InvalidObjectState"), "it is in cold storage: restore it"),
        (cut, "cut|error"),
        (
            lambda one: one.answer(429, Retry_After="100"),
            "answered 429 Too Many Requests, and asks for a pause of 100 s, longer than PACELINE",
        ),
        (lambda one: one.answer(504, b"upstream request timed out"), "the server answered 504"),
        (lambda one: one.answer(500, b"a certificate is missing"), "the server answered 500"),
    ],
    ids=[
        "busy",
        "refused",
        "whole",
        "redirect",
        "encoded",
        "cold",
        "cut",
        "pause",
        "late",
        "broken",
    ],
)
def test_a_server_that_keeps_failing_is_named(answer, words, store, at, monkeypatch):
    # Several requests need more time on a busy machine.
    monkeypatch.setenv("PACELINE_RETRY_SECONDS", "3" if "requests" in words else "0.5")
    store.fault = Faults(answer, n=-1)
    with pytest.raises((OSError, UnsupportedError), match=words) as raised:
        paceline.open(at("md.xtc"))
    assert at("md.xtc") in str(raised.value)


def test_a_server_that_lies_about_the_size(store, at):
    positions_of(at("md.xtc"))  # saves the index
    trajectory = paceline.open(at("md.xtc"))

    def lie(handler):
        first, last = handler.headers["Range"].removeprefix("bytes=").split("-")
        part = handler.objects.files[handler.name][int(first) : int(last) + 1]
        tag = handler.objects.tag_of(handler.name)
        handler.answer(206, part, ETag=tag, Content_Range=f"bytes {first}-{last}/99999999")

    store.fault = Faults(lie, n=-1)
    with pytest.raises(FileChangedError):
        trajectory.positions(frames=[9])


@pytest.mark.parametrize("local", [XTC, TRR, DCD, NCDF], ids=["XTC", "TRR", "DCD", "NetCDF"])
@pytest.mark.parametrize("size", [10**14, 2**63 - 1000])
def test_a_size_that_is_too_large_is_noticed_soon(size, local, store, monkeypatch):
    content = Path(local).read_bytes()
    store.files[f"/{store.bucket}/one"] = content

    def lie(handler):
        first, last = map(int, handler.headers["Range"].removeprefix("bytes=").split("-"))
        part = content[first : last + 1]
        if not part:
            return handler.refuse(416, "InvalidRange") is None
        end = first + len(part) - 1
        about = {"Content_Range": f"bytes {first}-{end}/{size}", "ETag": '"a"'}
        return handler.answer(206, part, **about) is None

    store.fault = lie
    words = r"/one: cannot .*(416|instead of|sent bytes)"
    with pytest.raises(OSError, match=words):
        paceline.open(f"s3://{store.bucket}/one")
    assert len(store.requests) < 100


def test_credentials_sign_requests_and_stay_out_of_results(store, monkeypatch, tmp_path):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDKEY")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "topsecret")
    address = f"s3://{store.bucket}/md.xtc"
    trajectory = paceline.open(address)
    assert all("AKIDKEY" in one["authorization"] for one in store.headers)
    sent = pickle.dumps(trajectory.chain.files[0].spec)
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    for secret in (b"AKIDKEY", b"topsecret"):
        assert secret not in sent + written


def test_an_analysis_writes_no_credentials(store, monkeypatch, tmp_path, run):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDKEY")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "topsecret")
    options = ("--report", str(tmp_path / "r.html"), "--backend", "processes", "--n-workers", "2")
    address = f"s3://{store.bucket}/md.xtc"
    status, out, err = run("rmsd", GRO, address, *options, "-o", str(tmp_path / "a.csv"))
    assert status == 0, err
    assert all("AKIDKEY" in one["authorization"] for one in store.headers)
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"to object stores" in written
    for secret in ("AKIDKEY", "topsecret"):
        assert secret.encode() not in written
        assert secret not in out + err


def test_anonymous_requests_are_not_signed(store, monkeypatch, run):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDKEY")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "topsecret")
    assert run("info", "--anonymous", f"s3://{store.bucket}/md.xtc")[0] == 0
    assert not any("authorization" in one for one in store.headers)
    assert "PACELINE_ANONYMOUS" not in os.environ


def test_a_login_of_netrc(store, tmp_path):
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password pass\n")
    paceline.open(f"{store.address}/{store.bucket}/md.xtc")
    assert store.headers[0]["authorization"] == "Basic bWU6cGFzcw=="


KEYS = {"AWS_ACCESS_KEY_ID": "AKIDKEY", "AWS_SECRET_ACCESS_KEY": "top-secret"}
NEW_LINE = "contains a line break or another character that cannot be sent to a server"


@pytest.mark.parametrize(
    ("address", "variables", "words"),
    [
        ("s3", {"AWS_ENDPOINT_URL": "not a url"}, 'AWS_ENDPOINT_URL: .* found "not a url"'),
        ("s3", {"AWS_ENDPOINT_URL_S3": "localhost:9000"}, "expected https://host or http://"),
        ("s3", KEYS | {"AWS_SESSION_TOKEN": "top-secret\n"}, f"AWS_SESSION_TOKEN {NEW_LINE}"),
        ("s3", {"AWS_ACCESS_KEY_ID": "top-secret"}, "AWS_ACCESS_KEY_ID .*Missing SecretAccessKey"),
        ("s3", KEYS | {"AWS_REGION": "not a region"}, 'AWS_REGION.* is "not a region": expected'),
        ("s3", KEYS | {"AWS_SKIP_SIGNATURE": "yep"}, "AWS_SKIP_SIGNATURE cannot be used: "),
        ("s3", {"AWS_PROFILE": "other"}, "AWS_PROFILE: neither .* a profile other"),
        ("s3", {"AWS_WEB_IDENTITY_TOKEN_FILE": "/a"}, "AWS_ROLE_ARN is not: set both or none"),
        ("s3", {"PACELINE_RETRY_SECONDS": "abc"}, 'SECONDS: expected a number .* found "abc"'),
        ("gs", {"GOOGLE_BASE_URL": "not a url"}, "GOOGLE_BASE_URL: expected https://host"),
        ("gs", {"GOOGLE_SERVICE_ACCOUNT_KEY": '"top-secret"'}, "GOOGLE_SERVICE_ACCOUNT_KEY cannot"),
        ("gs", {"GOOGLE_APPLICATION_CREDENTIALS": "/none"}, "CREDENTIALS cannot be used.* /none"),
        ("az", {}, "set AZURE_STORAGE_ACCOUNT_NAME"),
        ("az", {"AZURE_STORAGE_TOKEN": "top-secret\r\n"}, f"AZURE_STORAGE_TOKEN {NEW_LINE}"),
        ("az", {"AZURE_STORAGE_ENDPOINT": "http://:top-secret@"}, "AZURE_STORAGE_ENDPOINT: expec"),
        ("https", {"HF_TOKEN": "top-secret\nsecond line"}, f"HF_TOKEN {NEW_LINE}"),
        ("http", {"NETRC": "/none/netrc"}, "the file of NETRC, /none/netrc, cannot be read"),
        ("http", {"http_proxy": "not a url"}, "http_proxy: expected http://host:port"),
    ],
)
def test_a_wrong_setting_is_named(address, variables, words, store, monkeypatch):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    name = {"https": "https://huggingface.co/md.xtc", "http": f"{store.address}/md.xtc"}
    with pytest.raises(UnsupportedError, match=words) as raised:
        paceline.open(name.get(address, f"{address}://b/md.xtc"))
    assert "top-secret" not in str(raised.value)
    assert store.requests == []


UNUSED = {"AWS_PROFILE": "none", "AWS_WEB_IDENTITY_TOKEN_FILE": "/none"}


@pytest.mark.parametrize(
    "variables",
    [
        KEYS | UNUSED,
        KEYS
        | {
            "AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://localhost:1338/latest",
            "AWS_CONTAINER_AUTHORIZATION_TOKEN": "token",
        },
        UNUSED | {"AWS_SKIP_SIGNATURE": "True"},
        {"AWS_DEFAULT_REGION": "us_west.2"},
    ],
    ids=["keys", "container", "unsigned", "region"],
)
def test_settings_that_are_not_needed_are_no_errors(variables, store, monkeypatch):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert paceline.open(f"s3://{store.bucket}/md.xtc").n_frames == 10
    is_signed = ["authorization" in one for one in store.headers]
    assert is_signed == [variables.keys() >= KEYS.keys()] * len(is_signed)


def test_a_token_of_a_container_with_a_line_break_is_named(store, tmp_path, monkeypatch):
    (tmp_path / "token").write_text("top-secret\n")
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", store.address)
    monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(tmp_path / "token"))
    words = f"the file of AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE {NEW_LINE}"
    with pytest.raises(UnsupportedError, match=words):
        paceline.open(f"s3://{store.bucket}/md.xtc")


def test_the_name_of_a_server_may_have_capitals(store, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", store.address.replace("127.0.0.1", "LocalHost"))
    assert paceline.open(f"s3://{store.bucket}/md.xtc").n_frames == 10


def test_profiles_may_be_empty_or_have_comments(store, tmp_path, monkeypatch):
    (tmp_path / ".aws").mkdir()
    profiles = "[profile empty]\n[profile home] ; mine\nregion = eu-north-1 # home\n"
    (tmp_path / ".aws" / "config").write_text(profiles)
    for name in ("empty", "home"):
        monkeypatch.setenv("AWS_PROFILE", name)
        assert paceline.open(f"s3://{store.bucket}/md.xtc").n_frames == 10


def test_empty_settings_are_those_that_are_not_set(store, monkeypatch):
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_SESSION_TOKEN", "AWS_PROFILE", "http_proxy", "NETRC"):
        monkeypatch.setenv(name, "")
    # Those of other programs and of other servers are not looked at.
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", "not a url")
    monkeypatch.setenv("HF_TOKEN", "two\nlines")
    assert paceline.open(f"s3://{store.bucket}/md.xtc").n_frames == 10
    assert paceline.open(f"{store.address}/{store.bucket}/md.xtc").n_frames == 10


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({}, "no credentials were found, so that the request was anonymous"),
        (KEYS, "check the credentials.*public data are read with --anonymous or PACELINE_ANONYMO"),
        (KEYS | {"PACELINE_ANONYMOUS": "1"}, "anonymous, as --anonymous or PACELINE_ANONYMOUS ask"),
        (
            KEYS | {"AWS_SKIP_SIGNATURE": "true"},
            "was anonymous, as AWS_SKIP_SIGNATURE asks",
        ),
    ],
    ids=["none", "wrong", "anonymous", "skip"],
)
def test_refused_requests_say_how_they_were_signed(variables, words, store, monkeypatch):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    store.fault = Faults(lambda one: one.refuse(403, "AccessDenied"), n=-1)
    with pytest.raises(PermissionError, match=rf"refuses access \(AccessDenied\); .*{words}"):
        paceline.open(f"s3://{store.bucket}/md.xtc")


def test_a_machine_without_credentials_is_named_soon(store, monkeypatch):
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", f"http://127.0.0.1:{free_port()}")
    with pytest.raises(PermissionError, match=r"credentials of this machine .* --anonymous"):
        paceline.open(f"s3://{store.bucket}/md.xtc")
    monkeypatch.setenv("PACELINE_ANONYMOUS", "1")
    assert paceline.open(f"s3://{store.bucket}/md.xtc").n_frames == 10


def test_credentials_that_have_expired_are_named(store, monkeypatch):
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    store.fault = Faults(lambda one: one.refuse(400, "ExpiredToken"), n=-1)
    with pytest.raises(PermissionError, match=r"have expired \(ExpiredToken\): get new ones"):
        paceline.open(f"s3://{store.bucket}/md.xtc")


def test_names_of_objects_are_no_addresses_of_credentials(store):
    name = "latest/api/token/metadata/identity/md.xtc"
    store.files[f"/{store.bucket}/{name}"] = Path(XTC).read_bytes()
    store.fault = Faults(lambda one: one.answer(500), n=-1)
    with pytest.raises(OSError, match="the server answered 500") as raised:
        paceline.open(f"s3://{store.bucket}/{name}")
    assert "credentials" not in str(raised.value)


@pytest.mark.parametrize("token", [None, "one-secret"])
def test_a_server_of_credentials_without_a_token_file(token, store, monkeypatch):
    """Programs such as aws-vault serve credentials, with the token in a variable."""
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{store.address}/role?id=1")
    if token:
        monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", token)
    answer = {
        "AccessKeyId": "AKIDKEY",
        "SecretAccessKey": "top-secret",
        "Token": "of-session",
        "Expiration": "2999-01-01T00:00:00Z",
    }

    def fault(handler):
        if handler.name != "/role":
            return False
        if handler.headers["Authorization"] != token:
            return handler.answer(401) is None
        return handler.answer(200, json.dumps(answer).encode()) is None

    store.fault = fault
    assert paceline.open(f"s3://{store.bucket}/md.xtc").n_frames == 10
    assert store.count("/role") == 1
    of_objects = [one for one in store.headers if "x-amz-date" in one]
    assert all("AKIDKEY" in one["authorization"] for one in of_objects)
    assert of_objects
    assert all(one["x-amz-security-token"] == "of-session" for one in of_objects)
    # The server of another program.
    monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "other-secret")
    with pytest.raises(PermissionError, match=r"cannot be read .*401") as raised:
        paceline.open(f"s3://{store.bucket}/md.xtc")
    assert "other-secret" not in str(raised.value)


@pytest.mark.parametrize("status", [301, 400])
def test_the_region_of_a_bucket_is_named(status, store):
    def answer(handler):
        if status == 301:
            handler.answer(301, x_amz_bucket_region="eu-north-1")
        else:
            code = "<Code>AuthorizationHeaderMalformed</Code><Region>eu-north-1</Region>"
            handler.answer(400, f"<Error>{code}</Error>".encode())

    store.fault = Faults(answer, n=-1)
    with pytest.raises(OSError, match="is in another region: set AWS_REGION=eu-north-1"):
        paceline.open(f"s3://{store.bucket}/md.xtc")
    # Regions of the environment do not change other addresses.
    words = {301: "to no address: the bucket is in the region eu-n", 400: "the server answered 400"}
    with pytest.raises(OSError, match=words[status]) as raised:
        paceline.open(f"{store.address}/{store.bucket}/md.xtc")
    assert "AWS_REGION" not in str(raised.value)


@needs_program("openssl")
def test_a_certificate_that_is_not_trusted(tmp_path, store, monkeypatch):
    file = tmp_path / "server.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=127.0.0.1", "-keyout", file, "-out", tmp_path / "own.pem"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=CA:FALSE"]
    subprocess.run(command, check=True, capture_output=True)
    file.write_bytes(file.read_bytes() + (tmp_path / "own.pem").read_bytes())
    with object_server(file) as encrypted:
        encrypted.files["/md.xtc"] = Path(XTC).read_bytes()
        with pytest.raises(OSError, match=r"certificate .* is not trusted .* in SSL_CERT_FILE"):
            paceline.open(f"{encrypted.address}/md.xtc")
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "own.pem"))
        assert paceline.open(f"{encrypted.address}/md.xtc").n_frames == 10


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("s3://{bucket}", UnsupportedError, "the address names no object"),
        ("S3://{bucket}/md.xtc", UnsupportedError, "write s3 in small letters"),
        ("s3://my bucket/md.xtc", UnsupportedError, "names of buckets have letters"),
        ("{address}/md*.xtc", FileNotFoundError, "servers of plain HTTP cannot be listed: name"),
        ("http://127.0.0.1:{port}/a", OSError, r"cannot connect to 127\.0\.0\.1:{port}: "),
        ("http://127.0.0.1:{port}/certificate.xtc", OSError, r"cannot connect to 127\.0\.0\.1:"),
    ],
)
def test_addresses_that_cannot_be_opened(name, error, words, store):
    values = {"bucket": store.bucket, "address": store.address, "port": free_port()}
    with pytest.raises(error, match=words.format(**values)):
        paceline.open(name.format(**values))


def test_a_proxy_that_cannot_be_reached_is_named(store, monkeypatch):
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
    with pytest.raises(OSError, match=r"cannot connect to example\.org \(http_proxy is set\): "):
        paceline.open("http://example.org/md.xtc")


class SocksProxy(socketserver.BaseRequestHandler):
    """Connect to any name by SOCKS, version 5, to the address of the server instead."""

    def handle(self):
        client, target = self.request, self.server.target
        _, n_methods = self._receive(2)
        self._receive(n_methods)
        client.sendall(b"\5\0")
        *_, kind = self._receive(4)
        name = self._receive(4 if kind == 1 else self._receive(1)[0])
        self.server.asked.append((kind, name, self._receive(2)))
        with socket.create_connection(target) as server:
            client.sendall(b"\5\0\0\1" + bytes(6))
            ends = {client: server, server: client}
            while True:
                for one in wait_for(list(ends)):
                    if not (part := one.recv(1 << 16)):
                        return
                    ends[one].sendall(part)

    def _receive(self, n):
        return self.request.recv(n, socket.MSG_WAITALL)


@pytest.mark.parametrize(
    ("variable", "host"), [("ALL_PROXY", "127.0.0.1"), ("http_proxy", "LocalHost")]
)
def test_a_socks_proxy_looks_up_names(variable, host, store, monkeypatch):
    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), SocksProxy)
    server.daemon_threads, server.asked = True, []
    server.target = ("127.0.0.1", int(store.address.rsplit(":", 1)[1]))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        monkeypatch.setenv(variable, f"socks5h://{host}:{server.server_address[1]}")
        address = f"http://nowhere.invalid/{store.bucket}/md.xtc"
        assert np.array_equal(positions_of(address), positions_of(XTC))
    finally:
        server.shutdown()
        server.server_close()
    assert set(server.asked) == {(3, b"nowhere.invalid", (80).to_bytes(2))}


@pytest.fixture
def landing(store, monkeypatch):
    """Serve a public web server, by a proxy; its files are redirected to the address of a test."""
    monkeypatch.setenv("http_proxy", store.address)
    store.files["/md.xtc"] = Path(XTC).read_bytes()
    store.target = ""

    def redirect(handler):
        is_first = handler.headers["Host"] == "example.org"
        return is_first and handler.answer(302, Location=store.target) is None

    store.fault = redirect
    return store


def test_redirects_to_private_addresses_are_followed_on_request(landing, monkeypatch):
    landing.target = "http://10.0.0.1/md.xtc"
    words = "the redirect was refused: it redirects to 10.0.0.1, which is in a private network; "
    with pytest.raises(OSError, match=f"{words}PACELINE_PRIVATE_REDIRECTS=1"):
        paceline.open("http://example.org/md.xtc")
    monkeypatch.setenv("PACELINE_PRIVATE_REDIRECTS", "1")
    assert paceline.open("http://example.org/md.xtc").n_frames == 10


def test_redirects_to_names_with_private_addresses_are_refused(landing, monkeypatch):
    name = socket.gethostname().lower()
    try:
        found = {one[4][0] for one in socket.getaddrinfo(name, None)}
    except OSError:
        found = {"8.8.8.8"}
    if not all(ipaddress.ip_address(one).is_private for one in found):
        pytest.skip("this machine has no name with a private address")
    port = landing.address.rsplit(":", 1)[1]
    landing.target = f"http://{name}:{port}/md.xtc"
    monkeypatch.setenv("no_proxy", name)
    with pytest.raises(OSError, match=f"it redirects to {name}, which is in a private network"):
        paceline.open("http://example.org/md.xtc")
    # The user may name this server, and servers of the same network may redirect to it.
    assert paceline.open(landing.target).n_frames == 10


@pytest.mark.parametrize("registered", [False, True])
def test_an_empty_topology_is_named(registered, store, at):
    store.files[f"/{store.bucket}/empty.gro"] = b""
    make = MDAnalysis.Universe if registered else paceline.Universe
    with (
        paceline.register() if registered else contextlib.nullcontext(),
        pytest.raises(DamagedFileError, match=r"/empty\.gro: .* found an empty file"),
    ):
        make(at("empty.gro"), at("md.xtc"))


@pytest.mark.parametrize(
    "write",
    [
        lambda atoms, to: atoms.write(f"{to}.gro"),
        lambda atoms, to: atoms.select_atoms("name CA").write(f"{to}.xtc", frames="all"),
        lambda atoms, to: atoms.select_atoms("name CA", updating=True).write(Path(f"{to}.pdb")),
        lambda atoms, to: paceline.Write(atoms, f"{to}.xtc").run(),
        lambda atoms, to: paceline.H5MDWriter(f"{to}.h5md", len(atoms)),
        lambda atoms, to: paceline.split(XTC, 2, output=f"{to}.xtc"),
        lambda atoms, to: paceline.join([XTC], f"{to}.xtc"),
        lambda atoms, to: paceline.open(XTC, cache=to),
        lambda atoms, to: RMSD(atoms).run(stop=1, checkpoint=to),
        lambda atoms, to: RMSD(atoms).run(stop=1).results.save(f"{to}.npz"),
        lambda atoms, to: RMSD(atoms).run(stop=1).timings.report(f"{to}.html"),
        lambda atoms, to: Battery({"gyration": {}}, atoms.universe).run(stop=1).save(to),
    ],
)
def test_addresses_are_not_written_to(write, store, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    atoms = paceline.Universe(GRO, XTC).atoms
    with pytest.raises(UnsupportedError, match=r"s3://b/new.* found a URL"):
        write(atoms, "s3://b/new")
    assert not Path("s3:").exists()


@pytest.mark.parametrize("ending", ["xtc", "dcd", "pdb", "h5md"])
def test_writers_of_mdanalysis_write_to_no_address(ending):
    refused = pytest.raises(UnsupportedError, match=r"gs://b/new.* none is written there")
    with paceline.register(), refused:
        MDAnalysis.Writer(f"gs://b/new.{ending}", n_atoms=10)


def test_printed_timings_have_the_requests():
    timings = RMSD(paceline.Universe(GRO, XTC), select="name CA").run(n_workers=1).timings
    assert "requests" not in str(timings)
    first = replace(timings.blocks[0], requests=12, repeated=1, latency=12 * 80_000_000)
    timings = replace(timings, blocks=[first, *timings.blocks[1:]])
    (line,) = (one for one in str(timings).splitlines() if one.startswith("requests: "))
    assert line.startswith("requests: 12 to object stores, 1 of them repeated, 80 ms to a response")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_makes_its_own_requests(store):
    code = f"""
import os, paceline
trajectory = paceline.open("s3://{store.bucket}/md.xtc")
before = trajectory.positions(frames=[9])
child = os.fork()
after = trajectory.positions(frames=[9])
assert (before == after).all()
if child:
    assert os.waitpid(child, 0)[1] == 0
os._exit(0)
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=PATIENCE)


class Traffic:
    """Count requests that are at a server at the same time; each takes `seconds` at least."""

    def __init__(self, seconds):
        self.seconds, self.now = seconds, {"long": 0, "short": 0, "other": 0}
        self.most = {"long": 0, "short": 0, "other": 0}
        #: Part of the names of objects that are counted as long or short.
        self.only = ""
        self._lock = threading.Lock()

    def __call__(self, handler):
        kind = "long" if range_length(handler.headers["Range"]) > 256 << 10 else "short"
        kind = kind if self.only in handler.path else "other"
        with self._lock:
            self.now[kind] += 1
            self.most[kind] = max(self.most[kind], self.now[kind])
        time.sleep(self.seconds)
        with self._lock:
            self.now[kind] -= 1
        return False


@pytest.fixture
def quick_advice(monkeypatch):
    """Measure only for a short time, because the tests do not check the figures of speed."""
    for name, value in {"_SECONDS": 0.01, "_ROUNDS": 1, "_LONGEST": 0.0}.items():
        monkeypatch.setattr(advising, name, value)
    monkeypatch.setattr(time_other_formats, "_READING_SECONDS", 0.001)


@pytest.mark.filterwarnings("ignore:.*a molecule of the reference is broken")
@pytest.mark.parametrize("at", ["s3"], indirect=True)
def test_advice_knows_the_store(store, at, quick_advice):
    store.fault = Traffic(0.05)
    address = at("md.xtc")
    prices = Prices(per_gb=0.09, per_1000_requests=0.0004)
    atoms = paceline.Universe(GRO, address).atoms
    advice = paceline.advise(RMSD(atoms), prices=prices)
    assert advice.store.slowest >= advice.store.latency >= 0.05
    # A few bytes that come together with the response measure no rate.
    assert advice.store.one > 0 < advice.store.several <= 10 * os.path.getsize(XTC) / 0.05
    assert 0 < advice.store.n_requests <= len(store.requests)
    # All bytes must come, after one latency at least; another one passes for the last check.
    rate = min(advice.store.several, advice.store.rate)
    assert advice.t_total(1) >= 0.1 + 0.9 * advice.n_bytes / rate
    assert advice.n_bytes == pytest.approx(os.path.getsize(XTC), rel=0.01)
    assert advice.price == prices.of(advice.n_bytes, advice.n_requests)
    # A copy is made with long requests, however short those of the run are.
    for request_bytes in (1e3, 1e6):
        of_run = replace(advice, store=replace(advice.store, request_bytes=request_bytes))
        assert of_run.t_copy == advice.t_copy >= advice.size / advice.store.several
    assert replace(advice.store, request_bytes=1e3).rate < advice.store.rate_of_copy
    text = str(advice)
    assert "the store answers after" in text
    assert "from the store" in text
    assert "which costs" in text
    assert "from the disk" not in text
    assert "--file-system store --latency" in text
    assert max(map(len, text.splitlines())) < 110


@pytest.mark.parametrize("at", ["s3"], indirect=True)
def test_advice_of_processes_and_of_small_chunks(store, at, quick_advice):
    store.files[f"/{store.bucket}/md.h5md"] = Path(H5MD_xvf).read_bytes()
    universe = paceline.Universe(at("md.h5md"))
    advice = paceline.advise(RMSD(universe.atoms), backend="processes")
    assert advice.findings.in_memory.one.cost.read == 0
    assert "paceline repack" in str(replace(advice, chunk_bytes=40_000.0))
    assert "paceline repack" not in str(replace(advice, chunk_bytes=math.inf))


def test_the_command_advises_on_a_store(store, run):
    prices = ("--price-per-gb", "0.09", "--price-per-1000-requests", "0.0004")
    status, out, err = run("advise", GRO, f"s3://{store.bucket}/md.xtc", "--json", *prices)
    assert status == 0, err
    found = json.loads(out)
    assert found["store"]["latency_s"] > 0
    assert found["run"]["requests"] > 0
    assert found["run"]["price"] > 0
    assert "from_the_store_s" in found["times"][0]
    status, _, err = run("advise", GRO, f"s3://{store.bucket}/md.xtc", "--price-per-gb", "-1")
    assert status == 2
    assert "price per_gb: expected 0 or more, found -1" in err


@pytest.mark.parametrize("at", ["s3"], indirect=True)
def test_bytes_of_one_object_give_way_to_those_of_another(store, at):
    store.has_tags = False  # to compute tags of large objects would take long
    first = bytes(100 << 20)
    for name in ("a", "b"):
        store.files[f"/{store.bucket}/{name}"] = first
    one, other = (_core.ObjectBytes(at(name)) for name in ("a", "b"))
    step = 4 << 20
    for start in range(0, len(first), step):
        one.read(start, step)
    store.requests.clear()
    # There is space for announced bytes although the first object kept nearly all of it.
    other.will_need(0, 60 << 20)
    until(lambda: sum(range_length(one) for *_, one in store.requests) >= 59 << 20)


def range_length(text):
    first, last = text.removeprefix("bytes=").split("-")
    return int(last) + 1 - int(first)


@pytest.fixture
def long_store(store):
    """Serve a trajectory of 66 MB, which needs more requests than may be in flight."""
    store.has_tags = False  # to compute tags of large objects would take long
    store.files[f"/{store.bucket}/long.xtc"] = 40 * Path(XTC).read_bytes()
    paceline.open(f"s3://{store.bucket}/long.xtc")  # makes the index
    store.fault = Traffic(0.1)
    return store


LONG_RUN = """
import sys, paceline
from paceline.analysis.rms import RMSF
atoms = paceline.Universe(*sys.argv[1:3]).atoms
RMSF(atoms).run(backend=sys.argv[3], n_workers=int(sys.argv[4]) or None, progress=False)
"""


@pytest.mark.parametrize(
    ("backend", "n_workers"),
    [("threads", 4), ("processes", 4), ("dask", 3), pytest.param("mpi", 3, marks=needs_mpi)],
)
def test_workers_share_the_requests_in_flight(backend, n_workers, long_store, tmp_path):
    script = tmp_path / "run.py"
    script.write_text(LONG_RUN)
    address = f"s3://{long_store.bucket}/long.xtc"
    if backend == "mpi":
        arguments = ("-m", "paceline.mpi", script, GRO, address, backend, 0)
        status, _, err = mpirun(n_workers, *arguments)
    else:
        command = [sys.executable, "-W", "ignore", script, GRO, address, backend, str(n_workers)]
        done = subprocess.run(command, capture_output=True, text=True)
        status, err = done.returncode, done.stderr
    assert status == 0, err
    assert 0 < long_store.fault.most["long"] <= 24
    assert long_store.fault.most["short"] <= 96


@pytest.mark.filterwarnings("ignore:.*a molecule is broken")
@pytest.mark.parametrize("bandwidth", [1.0, 1e13])
def test_a_few_atoms_need_few_bytes_or_few_requests(bandwidth, long_store, monkeypatch):
    measured = _core.store_estimates()
    assert measured, "opening the trajectory has measured the bandwidth"
    # Clients that are made later begin with what another process has measured.
    _core.share_requests(1, [(number, 0.1, bandwidth) for number, *_ in measured])
    monkeypatch.setenv("PACELINE_TEST", str(bandwidth))
    address = f"s3://{long_store.bucket}/long.xtc"
    universe = paceline.Universe(GRO, address)
    long_store.requests.clear()
    long_store.sent.clear()
    # Each worker learns how many bytes the frames need.
    analysis = RMSD(universe, select="name CA").run(backend="serial")
    n_frames, size = 400, len(long_store.files[f"/{long_store.bucket}/long.xtc"])
    n_bytes = sum(map(len, long_store.sent))
    if bandwidth > 1:
        assert len(long_store.requests) <= 70
        assert size / 2 < n_bytes <= 1.02 * size
    else:
        # Frames need different numbers of bytes, which does not need a second request for each.
        assert n_frames / 2 < len(long_store.requests) <= 1.2 * n_frames
        assert n_bytes < size / 4
    local = RMSD(paceline.Universe(GRO, XTC), select="name CA").run().results.rmsd
    assert np.array_equal(analysis.results.rmsd[:, 2], np.tile(local[:, 2], 40))


def test_processes_are_told_what_was_measured(long_store):
    job = FunctionJob("f", b"")
    (shared,) = sharing_requests([job], 3)
    assert shared.sharers == 3
    assert shared.estimates == tuple(_core.store_estimates()) != ()
    assert pickle.loads(pickle.dumps(shared)) == shared


def test_shares_of_requests_change_with_the_number_of_processes(long_store):
    traffic = long_store.fault
    try:
        for n_processes, most in ((8, 3), (100, 1), (1, 24)):
            _core.share_requests(n_processes)
            # Requests that the object before has cancelled may arrive late.
            traffic.only, traffic.most["long"] = f"long{most}.xtc", 0
            content = long_store.files[f"/{long_store.bucket}/long.xtc"]
            long_store.files[f"/{long_store.bucket}/{traffic.only}"] = content
            one = _core.ObjectBytes(f"s3://{long_store.bucket}/{traffic.only}")
            one.will_need(1 << 20, 5 << 20)
            one.read(5 << 20, 1 << 20)
            assert 0 < traffic.most["long"] <= most
            del one
            until(lambda: not any(traffic.now.values()))
    finally:
        traffic.only = ""
        _core.share_requests(1)


def test_many_objects_are_listed_by_pages(store):
    content = Path(XTC).read_bytes()
    for k in range(2500):
        store.files[f"/{store.bucket}/run{k}/md.xtc"] = content
    # Objects outside of the fixed part of a pattern are not listed.
    for k in range(3000):
        store.files[f"/{store.bucket}/other/{k}"] = b""
    found = matching_objects(f"s3://{store.bucket}/run*/md.xtc")
    assert len(found) == 2500
    assert len(store.requests) == 3


def test_many_small_objects_take_one_request_each(store, tmp_path, run):
    """Neither the index beside an object nor its times are requested."""
    local = paceline.Write(paceline.Universe(PSF, DCD).atoms, tmp_path / "md.xtc")
    local.run(stop=3, progress=False)
    content = (tmp_path / "md.xtc").read_bytes()
    for k in range(80):
        store.files[f"/{store.bucket}/run{k}.xtc"] = content
    with pytest.warns(PacelineWarning, match="frames are repeated, by their times"):
        opened = paceline.open(f"s3://{store.bucket}/run*.xtc")
    assert opened.n_frames == 240
    assert [method for method, _, _ in store.requests] == 81 * ["GET"]
    store.requests.clear()
    found = opened.positions(frames=[0, 239], atoms=[7])
    assert np.array_equal(found[0], paceline.open(tmp_path / "md.xtc")[0].positions[[7]])
    _, out, _ = run("info", f"s3://{store.bucket}/run7.xtc")
    assert "not saved" in out


def test_indexes_beside_many_objects_are_used(store, tmp_path, monkeypatch):
    monkeypatch.setattr("paceline.trajectory.open.OBJECTS_AT_A_TIME", 2)
    copy = Path(shutil.copy(XTC, tmp_path / "run.xtc"))
    open_file(copy)
    content, index = copy.read_bytes(), (tmp_path / ".run.xtc.paceline-index").read_bytes()
    for k in range(4):
        store.files[f"/{store.bucket}/{k}/run.xtc"] = content
        store.files[f"/{store.bucket}/{k}/.run.xtc.paceline-index"] = index
    files = open_files([f"s3://{store.bucket}/{k}/run.xtc" for k in range(4)])
    assert {file.index_origin for file in files} == {"loaded"}
    assert all(store.count(f"/{store.bucket}/{k}/.run.xtc.paceline-index") == 1 for k in range(4))


@pytest.mark.parametrize("ending", ["xtc", "nc"])
def test_times_of_objects_are_those_of_files(ending, store, tmp_path):
    """Ends of files are compared when they are opened as one trajectory."""
    names = []
    for k, frames in enumerate([slice(0, 40), slice(30, 60)]):
        name = f"part{k}.{ending}"
        write = paceline.Write(paceline.Universe(PSF, DCD).atoms, tmp_path / name)
        write.run(start=frames.start, stop=frames.stop, progress=False)
        store.files[f"/{store.bucket}/{name}"] = (tmp_path / name).read_bytes()
        names.append(name)
    said = []
    for folder in (f"{tmp_path}", f"s3://{store.bucket}"):
        with pytest.warns(PacelineWarning, match="10 frames are repeated") as caught:
            paceline.open([f"{folder}/{name}" for name in names])
        messages = [str(one.message) for one in caught if one.category is PacelineWarning]
        said.append([text.replace(folder, "") for text in messages])
    assert said[0] == said[1]


def test_a_bad_object_of_many_is_named(store):
    for k in range(60):
        store.files[f"/{store.bucket}/run{k}/md.xtc"] = Path(XTC).read_bytes()
    store.files[f"/{store.bucket}/run37/md.xtc"] = b""
    with pytest.raises(DamagedFileError, match=r"run37/md\.xtc.*found an empty file"):
        paceline.open(f"s3://{store.bucket}/run*/md.xtc")


def test_google_addresses(store, monkeypatch):
    """Its XML interface is that of S3."""
    monkeypatch.setenv("GOOGLE_BASE_URL", store.address)
    for k in range(2):
        store.files[f"/{store.bucket}/run{k}.xtc"] = Path(XTC).read_bytes()
    with paceline.open(XTC) as local:
        wanted = local.positions()
    assert np.array_equal(positions_of(f"gs://{store.bucket}/md.xtc"), wanted)
    with pytest.warns(PacelineWarning, match="frames are repeated"):
        assert paceline.open(f"gs://{store.bucket}/run*.xtc").n_frames == 20
    with pytest.raises(FileNotFoundError, match=r"gs://.*none\.xtc: .* there is no such object"):
        paceline.open(f"gs://{store.bucket}/none.xtc")


def test_a_server_that_checks_signatures(store, tmp_path, monkeypatch):
    hadro = pytest.importorskip("hadro", reason="hadro is not installed")
    folder = tmp_path / "data" / "bucket"
    folder.mkdir(parents=True)
    for name in ("m d+1%.xtc", "run1.xtc", "run2.xtc"):
        shutil.copy(XTC, folder / name)
    keys = {"access_key": "anna", "secret_key": "very-secret"}
    with hadro.Server(data=str(folder.parent), **keys) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)
        with pytest.raises(PermissionError, match="no credentials were found"):
            paceline.open("s3://bucket/run1.xtc")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "anna")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
        with pytest.raises(PermissionError, match="check the credentials"):
            paceline.open("s3://bucket/run1.xtc")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "very-secret")
        assert np.array_equal(positions_of("s3://bucket/m d+1%.xtc"), positions_of(XTC))
        with pytest.warns(PacelineWarning, match="frames are repeated"):
            assert paceline.open("s3://bucket/run*.xtc").n_frames == 20
        trajectory = paceline.open("s3://bucket/m d+1%.xtc")
        (folder / "m d+1%.xtc").write_bytes(Path(TRR).read_bytes())
        with pytest.raises(FileChangedError, match="the file changed since it was opened"):
            trajectory.positions(frames=[9])


@pytest.fixture
def google(store, tmp_path, monkeypatch):
    """Serve a bucket by fake-gcs-server, an emulator of Google's storage; return its address."""
    folder, port = tmp_path / "data" / "bucket", free_port()
    folder.mkdir(parents=True)
    for name in ("md.xtc", "run1.xtc", "run2.xtc"):
        shutil.copy(XTC, folder / name)
    command = ["fake-gcs-server", "-backend", "memory", "-data", folder.parent, "-scheme", "http"]
    command += ["-host", "127.0.0.1", "-port", str(port), "-public-host", f"127.0.0.1:{port}"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(command, **pipes) as server:
        try:
            while "server started" not in (line := server.stdout.readline()):
                assert line, "fake-gcs-server did not start"
            monkeypatch.setenv("GOOGLE_BASE_URL", f"http://127.0.0.1:{port}")
            yield f"http://127.0.0.1:{port}"
        finally:
            server.kill()


@needs_program("fake-gcs-server")
def test_an_emulator_of_google_s_storage(google, monkeypatch, tmp_path):
    with paceline.open(XTC) as local:
        wanted = local.positions()
    assert np.array_equal(positions_of("gs://bucket/md.xtc"), wanted)
    with pytest.warns(PacelineWarning, match="frames are repeated"):
        assert paceline.open("gs://bucket/run*.xtc").n_frames == 20
    for name in ("gs://bucket/none.xtc", "gs://nowhere/md.xtc"):
        with pytest.raises(FileNotFoundError, match=f"{name}: .* there is no such object"):
            paceline.open(name)
    rmsd = RMSD(paceline.Universe(GRO, "gs://bucket/run1.xtc"), select="name CA").run(n_workers=2)
    alone = RMSD(paceline.Universe(GRO, XTC), select="name CA").run()
    assert np.array_equal(rmsd.results.rmsd, alone.results.rmsd)
    before = paceline.open("gs://bucket/md.xtc")
    address = f"{google}/upload/storage/v1/b/bucket/o?uploadType=media&name=md.xtc"
    with urllib.request.urlopen(address, data=Path(TRR).read_bytes()) as answer:
        assert answer.status == 200
    with pytest.raises(FileChangedError, match=r"gs://bucket/md\.xtc: the file changed"):
        before.positions()


def test_a_server_that_answers_like_azure(store, monkeypatch):
    """Requests are signed as the documentation of Azure says."""
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", store.address)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", ACCOUNT)
    content = Path(XTC).read_bytes()
    for k in range(2):
        store.files[f"/{store.bucket}/run{k}.xtc"] = content
    address = f"az://{store.bucket}/md.xtc"
    assert np.array_equal(positions_of(address), positions_of(XTC))
    assert not any("authorization" in one for one in store.headers)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", KEY)
    store.headers.clear()
    with paceline.open(address) as trajectory:
        assert np.array_equal(trajectory.positions(frames=[9]), positions_of(XTC)[9:])
    for headers in store.headers:
        own = "".join(f"{k}:{headers[k]}\n" for k in sorted(headers) if k.startswith("x-ms-"))
        # The standard headers that a request may have; it has no content, and no other conditions.
        date, condition, part = (headers.get(k, "") for k in ("date", "if-match", "range"))
        standard = 5 * "\n" + f"{date}\n\n{condition}\n\n\n{part}\n"
        text = f"GET\n{standard}{own}/{ACCOUNT}/{store.bucket}/md.xtc"
        code = base64.b64encode(hmac.digest(base64.b64decode(KEY), text.encode(), "sha256"))
        assert headers["authorization"] == f"SharedKey {ACCOUNT}:{code.decode()}"
    with pytest.warns(PacelineWarning, match="frames are repeated"):
        assert paceline.open(f"az://{store.bucket}/run*.xtc").n_frames == 20
    with pytest.raises(FileNotFoundError, match=r"az://.*none\.xtc: .* there is no such object"):
        paceline.open(f"az://{store.bucket}/none.xtc")
    store.fault = Faults(lambda one: one.refuse(409, "BlobArchived"), n=-1)
    with pytest.raises(PermissionError, match="it is in cold storage: restore it first"):
        paceline.open(address)


def test_many_objects_of_azure_are_listed_by_pages(store, monkeypatch):
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", store.address)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", ACCOUNT)
    for k in range(2500):
        store.files[f"/{store.bucket}/run{k}/md.xtc"] = b""
    assert len(matching_objects(f"az://{store.bucket}/run*/md.xtc")) == 2500
    assert len(store.requests) == 3


#: Account and key of Azurite, an emulator of Azure's storage by its vendor (npm).
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


def put_to_azure(port, path, body=b"", query="", **headers):
    """Create a container, or a blob in it, by a signed request."""
    headers |= {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
    signed = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    place = f"/{ACCOUNT}/{ACCOUNT}/{path}{query.replace('?', chr(10)).replace('=', ':')}"
    text = f"PUT\n\n\n{len(body) or ''}{9 * chr(10)}{signed}{place}"
    code = hmac.digest(base64.b64decode(KEY), text.encode(), "sha256")
    headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(code).decode()}"
    connection = http.client.HTTPConnection("127.0.0.1", port)
    with contextlib.closing(connection):
        connection.request("PUT", f"/{ACCOUNT}/{path}{query}", body, headers)
        answer = connection.getresponse()
        assert answer.status == 201, answer.read()


@pytest.fixture
def azure(tmp_path, monkeypatch):
    """Serve a container, named bucket, by Azurite."""
    port = free_port()
    command = ["azurite-blob", "--inMemoryPersistence", "--skipApiVersionCheck", "--silent"]
    command += ["--disableTelemetry", "--blobPort", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as server:
        try:
            while "listens on" not in (line := server.stdout.readline()):
                assert line, "Azurite did not start"
            put_to_azure(port, "bucket", query="?restype=container")
            content = Path(XTC).read_bytes()
            for name in ("md.xtc", "run1.xtc", "run2.xtc"):
                put_to_azure(port, f"bucket/{name}", content, **{"x-ms-blob-type": "BlockBlob"})
            monkeypatch.setenv("AZURE_STORAGE_USE_EMULATOR", "true")
            monkeypatch.setenv("AZURITE_BLOB_STORAGE_URL", f"http://127.0.0.1:{port}")
            monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", ACCOUNT)
            monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", KEY)
            monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
            monkeypatch.setenv("PACELINE_RETRY_SECONDS", "2")
            yield "az://bucket"
        finally:
            server.kill()


@needs_program("azurite-blob")
def test_azure_addresses(azure, run, tmp_path):
    with paceline.open(XTC) as local:
        wanted = local.positions()
    assert np.array_equal(positions_of(f"{azure}/md.xtc"), wanted)
    with pytest.warns(PacelineWarning, match="frames are repeated"):
        assert paceline.open(f"{azure}/run*.xtc").n_frames == 20
    for name in ("az://bucket/none.xtc", "az://nowhere/md.xtc"):
        with pytest.raises(FileNotFoundError, match=f"{name}: .* there is no such object"):
            paceline.open(name)
    rmsd = RMSD(paceline.Universe(GRO, f"{azure}/md.xtc"), select="name CA").run(n_workers=2)
    alone = RMSD(paceline.Universe(GRO, XTC), select="name CA").run()
    assert np.array_equal(rmsd.results.rmsd, alone.results.rmsd)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not any(KEY.encode() in path.read_bytes() for path in files)


@pytest.mark.parametrize(
    ("profile", "key"),
    [
        (
            "[default]\nsso_session = lab\nsso_account_id = 123\nregion = eu-north-1\n",
            "sso_session",
        ),
        ("[profile old]\nsso_start_url = https://lab.awsapps.com/start\n", "sso_start_url"),
        ("[profile old]\nrole_arn = arn:aws:iam::123:role/reader\n", "role_arn"),
        ("[profile old]\ncredential_process = /bin/keys\n", "credential_process"),
    ],
)
def test_profiles_that_need_a_login_say_what_to_do(profile, key, store, tmp_path, monkeypatch):
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "config").write_text(f"{profile}[sso-session lab]\nsso_region = eu\n")
    if "old" in profile:
        monkeypatch.setenv("AWS_PROFILE", "old")
    with pytest.raises(UnsupportedError, match=f"gets its keys by {key}.*") as caught:
        paceline.open(f"s3://{store.bucket}/md.xtc")
    assert 'eval "$(aws configure export-credentials --format env)"' in str(caught.value)
    # The keys that this command exports are used instead of the profile.
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "anna")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "very-secret")
    assert paceline.open(f"s3://{store.bucket}/md.xtc").n_frames == 10
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("PACELINE_ANONYMOUS", "1")
    assert paceline.open(f"s3://{store.bucket}/md.xtc").n_frames == 10


@pytest.mark.parametrize(
    ("pattern", "error", "words"),
    [
        ("s3://nowhere/run*.xtc", FileNotFoundError, "the bucket nowhere does not exist"),
        ("s3://{bucket}/run*/", FileNotFoundError, "no object matches this pattern"),
        ("s3:///run*.xtc", UnsupportedError, "names no bucket or host"),
        ("s3://*/md.xtc", UnsupportedError, "expected the name of a bucket"),
    ],
)
def test_bad_patterns(pattern, error, words, store):
    with pytest.raises(error, match=words):
        paceline.open(pattern.format(bucket=store.bucket))
