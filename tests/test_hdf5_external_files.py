"""Tests that links and datasets out of an HDF5 file are not followed, unless requested."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from helpers.sandbox_calls import pid
from helpers.waiting import PATIENCE, until

import paceline
from paceline.cli import main
from paceline.errors import DamagedFileError, PacelineError, PacelineWarning, UnsupportedError
from paceline.hdf5 import sandbox
from paceline.hdf5.file import File
from paceline.hdf5.read_observables import find_observables
from paceline.hdf5.repack import repack
from paceline.mdanalysis.reader import Reader

VALUE = "particles/all/position/value"
POSITIONS = np.random.default_rng(1).uniform(0, 9, (6, 4, 3)).astype("f4")
#: Seconds after which a test counts as hanging; no test takes long.
LIMIT = int(2 * PATIENCE)


@pytest.fixture(autouse=True)
def no_waiting():
    """Interrupt a wait that the test cannot interrupt."""

    def stop(*_):
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(LIMIT)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def fifo(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    return "pipe"


@pytest.fixture
def other(tmp_path):
    """Another file with the positions, and a file with only their bytes."""
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["value"] = POSITIONS
    POSITIONS.tofile(tmp_path / "other.raw")
    return "other.h5"


def by_link(file, other):
    file[VALUE] = h5py.ExternalLink(other, "/value")


def by_soft_link(file, other):
    file["elsewhere"] = h5py.ExternalLink(other, "/")
    file[VALUE] = h5py.SoftLink("/elsewhere/value")


def by_virtual_dataset(file, other):
    layout = h5py.VirtualLayout(POSITIONS.shape, "f4")
    layout[:] = h5py.VirtualSource(other, "value", POSITIONS.shape)
    file.create_virtual_dataset(VALUE, layout)


def by_growing_virtual_dataset(file, other):
    """Use a virtual dataset, for whose shape HDF5 opens the source file."""
    endless = (h5py.h5s.UNLIMITED, *POSITIONS.shape[1:])
    layout = h5py.VirtualLayout(POSITIONS.shape, "f4", maxshape=(None, *POSITIONS.shape[1:]))
    source = h5py.VirtualSource(other, "value", POSITIONS.shape, maxshape=(None, *endless[1:]))
    layout[0 : endless[0]] = source[0 : endless[0]]
    file.create_virtual_dataset(VALUE, layout)


def by_external_storage(file, other):
    raw = other.replace(".h5", ".raw")
    file.create_dataset(VALUE, POSITIONS.shape, "f4", external=[(raw, 0, POSITIONS.nbytes)])


WAYS = [
    by_link,
    by_soft_link,
    by_virtual_dataset,
    by_growing_virtual_dataset,
    by_external_storage,
]


@pytest.fixture(params=WAYS, ids=lambda way: way.__name__)
def way(request):
    return request.param


def write(path, way, other):
    """Write an H5MD file whose positions, and an observable, are in another file."""
    with h5py.File(path, "w", libver="latest") as file:
        file.create_group("h5md").attrs["version"] = [1, 1]
        particles = file.create_group("particles/all")
        particles.create_group("box").attrs["boundary"] = ["none"] * 3
        particles["position/step"] = np.arange(6)
        particles["position/time"] = np.arange(6.0)
        way(file, other)
        if way not in (by_link, by_soft_link):
            file[VALUE].attrs["unit"] = "Angstrom"
        file["particles/all/position/time"].attrs["unit"] = "ps"
    return path


def test_none_is_opened_unasked(way, fifo, tmp_path, capsys):
    path = str(write(tmp_path / "a.h5md", way, fifo))
    words = rf"a\.h5md: /{VALUE} is .*, which refers to (.*/)?pipe: .* external=True"
    if way is by_soft_link:
        words = r"a\.h5md: /elsewhere is an external link to /, which refers to pipe"
    with pytest.raises(UnsupportedError, match=words):
        Reader(path)
    with pytest.raises(UnsupportedError, match=words):
        paceline.Universe(path)
    with pytest.raises(UnsupportedError, match=words):
        repack(path, tmp_path / "new.h5md")
    verdict = paceline.validate(path, progress=False)
    assert "pipe" in verdict.bad[0].what
    main(["info", path])
    assert "pipe" in capsys.readouterr().out


def test_a_regular_file_is_not_opened_either(way, other, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path / "a.h5md", way, other)
    with pytest.raises(UnsupportedError, match=r"which refers to (.*/)?other"):
        Reader(path)


def test_what_is_asked_for_is_read(way, other, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path / "a.h5md", way, other)
    units = {"length": "Angstrom", "time": "ps"}
    with pytest.warns(PacelineWarning, match="HDF5's own library"):
        reader = Reader(path, external=True, units=units)
    np.testing.assert_array_equal([ts.positions.copy() for ts in reader], POSITIONS)


def test_what_is_asked_for_and_is_no_regular_file(way, fifo, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path / "a.h5md", way, fifo)
    with pytest.raises(UnsupportedError, match="pipe is not a regular file"):
        Reader(path, external=True)


def test_searched_files_are_reported(fifo, tmp_path):
    path = tmp_path / "a.h5md"
    write(path, lambda file, _: file.__setitem__(VALUE, POSITIONS), fifo)
    with h5py.File(path, "a") as file:
        by_link(file.create_group("observables/inner"), fifo)
        file["observables/energy"] = 7.0
        file["observables/far"] = h5py.ExternalLink(fifo, "/value")
        file["particles/far"] = h5py.ExternalLink(fifo, "/value")
    with pytest.warns(PacelineWarning, match=r"not followed .* /particles/far is an external link"):
        assert Reader(path).n_frames == 6
    observables = find_observables(path)
    assert observables["energy"].values == 7
    assert observables.at(0) == {"energy": 7}
    with pytest.raises(UnsupportedError, match="refers to pipe"):
        observables["inner/particles/all/position"]
    with File(path) as file:
        assert VALUE in [node.name.strip("/") for node in file.root.walk()]
    repacked = tmp_path / "new.h5md"
    repack(path, repacked)
    with h5py.File(repacked) as file:
        assert file.get("particles/far", getlink=True).filename == fifo


def test_a_group_of_particles_in_another_file_is_why_there_is_none(fifo, tmp_path):
    with h5py.File(tmp_path / "a.h5md", "w") as file:
        file.create_group("h5md").attrs["version"] = [1, 1]
        file["particles/all"] = h5py.ExternalLink(fifo, "/all")
    with pytest.raises(PacelineError, match=r"not followed .* /particles/all is an external link"):
        Reader(tmp_path / "a.h5md")


def test_soft_links_within_the_file(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["g/x"] = np.arange(3)
        file["g/near"], file["far"] = h5py.SoftLink("./x"), h5py.SoftLink("/g/near")
        for k in range(20):
            file[f"c{k}"] = h5py.SoftLink(f"/c{(k + 1) % 20}/c{k}")
    with File(tmp_path / "a.h5") as file:
        assert file.root.array("far").read().tolist() == [0, 1, 2]
        assert file.root.array("far").identity == file.root.array("g/x").identity
        with pytest.raises(DamagedFileError, match="leads in a circle"):
            file.root.get("c0")


def test_who_waits_is_ended(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe")
    # Limit in seconds of computing; waiting may take 24 times as long.
    monkeypatch.setattr(sandbox, "TIME_LIMIT", 0.125)
    with pytest.raises(DamagedFileError, match=r"pipe: .* HDF5's library waits 3 s: .* a pipe"):
        sandbox.run_in_sandbox(open_it, str(tmp_path / "pipe"))
    assert sandbox.run_in_sandbox(pid, "md.h5")


def open_it(path):
    Path(path).with_name("opening").touch()
    h5py.File(path)


@pytest.mark.parametrize("working", [False, True], ids=["idle", "inside of HDF5"])
def test_the_helper_ends_with_whoever_it_helps(working, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    script = f"""
import os, sys, threading, time
sys.path.insert(0, {os.path.dirname(__file__)!r})
from helpers.sandbox_calls import pid
from paceline.hdf5.sandbox import run_in_sandbox
from test_hdf5_external_files import open_it
print(run_in_sandbox(pid, "md.h5"), flush=True)
if {working}:
    args = (open_it, {str(tmp_path / "pipe")!r})
    threading.Thread(target=run_in_sandbox, args=args, daemon=True).start()
time.sleep({LIMIT})
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as asking:
        helper = int(asking.stdout.readline())
        until((tmp_path / "opening").exists if working else lambda: True)
        # It waits for a request, or for the pipe.
        until(lambda: state_of(helper) == "S")
        asking.kill()
    until(lambda: state_of(helper) in "Z")


def state_of(process):
    """Return the state of a process as a letter; None if it has ended."""
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return ""
