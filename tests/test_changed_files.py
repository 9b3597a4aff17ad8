"""Tests of files that change between opening and reading: workers detect it in the parts that they
read.
"""

import re
from pathlib import Path
from typing import NamedTuple

import h5py
import numpy as np
import pytest
from helpers.mpi import SCRIPTS, mpirun, needs_mpi

import paceline
from paceline.analysis.rms import RMSF
from paceline.errors import FileChangedError
from paceline.mdanalysis.open_atomgroup_trajectory import FileTrajectory
from paceline.trajectory.open import open_file

#: Frames that are read. Other frames precede and follow them.
SHARE = range(40, 60)
KINDS = ["xtc", "dcd", "trr", "nc", "h5md", "gzip h5md", "float16 h5md"]
CHANGED = "the file changed since it was opened"


class File(NamedTuple):
    """A file of 98 frames of 214 atoms, and the byte range of the frames that a worker reads."""

    topology: str
    path: Path
    content: bytes
    #: End of the file's first frame, which the Universe has already read.
    first_end: int
    start: int
    end: int

    def universe(self):
        return paceline.Universe(self.topology, str(self.path))


@pytest.fixture(autouse=True)
def only_workers_look(monkeypatch):
    """Disable the check in the first process, as on another host with another file."""
    monkeypatch.setattr(FileTrajectory, "verify", lambda self: None)


@pytest.fixture(scope="module")
def calpha(adk, tmp_path_factory):
    atoms = paceline.Universe(*adk).select_atoms("name CA")
    topology = str(tmp_path_factory.mktemp("topology") / "ca.pdb")
    atoms.write(topology)
    return atoms, topology


def make(kind, calpha, folder):
    atoms, topology = calpha
    path = folder / f"{kind.replace(' ', '.')}"
    path = path if "." in path.name else path.with_name(f"ca.{kind}")
    options = {"chunk": "frame"} if "h5md" in kind else {}
    if kind.startswith("gzip"):
        options["compress"] = "gzip:1"
    paceline.Write(atoms, path, **options).run()
    if kind.startswith("float16"):
        with h5py.File(path, "a") as file:
            (group,) = file["particles"].values()
            element = group["position"]
            values, attributes = element["value"][:], dict(element["value"].attrs)
            del element["value"]
            values = element.create_dataset("value", data=values.astype("f2"))
            values.attrs.update(attributes)
            # Only the HDF5 library knows the offsets.
            sizes = np.full(1 + len(SHARE), values.nbytes // 98)
            offsets = values.id.get_offset() + sizes * [0, *SHARE]
    else:
        offsets, sizes = open_file(path).extents(np.array([0, *SHARE], dtype=np.uint64))
    ends = (offsets + sizes).tolist()
    start, end = int(offsets[1:].min()), max(ends[1:])
    return File(topology, path, path.read_bytes(), ends[0], start, end)


@pytest.fixture(scope="module", params=KINDS)
def file(request, calpha, tmp_path_factory):
    return make(request.param, calpha, tmp_path_factory.mktemp("changed"))


def changes(file):
    """Return modified contents, by the kind of change."""
    size = len(file.content)
    places = [(size - 4096) * k // 17 for k in range(18)]

    def others(start, end):
        content = np.frombuffer(file.content, dtype=np.uint8).copy()
        content[start:end] ^= 1
        return content.tobytes()

    before = max(place for place in places if place <= file.start)
    behind = min([place for place in places if place + 4096 >= file.end], default=places[-1])
    return {
        "shorter": file.content[:-1],
        "longer and another": others(file.first_end, size) + b"more",
        "another": others(file.first_end, size),
        "other at its beginning": others(min(before + 4095, file.start), file.start + 1),
        "other at its end": others(file.end - 1, max(behind + 1, file.end)),
    }


def change(file, content):
    with open(file.path, "r+b") as opened:
        opened.truncate(len(content))
        opened.write(content)


def refused(file, universe, **options):
    """Check that frames are read only from the original content of the file."""

    def fluctuations():
        return RMSF(universe.atoms).run(start=40, stop=60, **options).results.rmsf

    original = fluctuations()
    for name, content in changes(file).items():
        change(file, content)
        try:
            with pytest.raises(FileChangedError, match=CHANGED) as caught:
                fluctuations()
        finally:
            change(file, file.content)
        assert str(caught.value).startswith(f"{file.path}: "), name
    assert np.array_equal(fluctuations(), original)


@pytest.mark.filterwarnings("ignore:.*slower")
@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_a_share_of_another_content_is_refused(on_error, file):
    refused(file, file.universe(), backend="serial", on_error=on_error)


def test_workers_of_each_kind_refuse_it(where, calpha, tmp_path):
    file = make("dcd", calpha, tmp_path)
    refused(file, file.universe(), **where)


def test_frames_that_are_shown_are_of_the_file_that_was_opened(calpha, tmp_path):
    file = make("xtc", calpha, tmp_path)
    universe = file.universe()
    for name, content in changes(file).items():
        if name != "shorter":  # the file is open, and the shown frame exists
            change(file, content)
            with pytest.raises(FileChangedError, match=CHANGED):
                [universe.trajectory[frame] for frame in (SHARE[0], SHARE[-1])]
            change(file, file.content)


@needs_mpi
def test_ranks_refuse_it(calpha, tmp_path):
    file = make("dcd", calpha, tmp_path)
    names = []
    for k, content in enumerate([*changes(file).values(), file.content]):
        names.append(tmp_path / f"content{k}")
        names[-1].write_bytes(content)
    program = "-m", "paceline.mpi", SCRIPTS / "changed.py"
    status, out, err = mpirun(3, *program, file.topology, file.path, *names)
    assert status == 0, err
    *found, last = out.splitlines()
    assert len(found) == len(names) - 1
    for line, name in zip(found, names, strict=False):
        assert re.match(f"{re.escape(str(file.path))}: {CHANGED}", line), name
    assert last == "the same"
