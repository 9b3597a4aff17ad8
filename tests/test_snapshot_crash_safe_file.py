"""Tests of a program that stops while it adds a frame to an H5MD file: earlier frames remain.

The writes of a frame are recorded. They are then repeated on the old file one by one, in steps of
512 bytes. After each step, HDF5's library, MDAnalysis and paceline must read the earlier frames,
and the writer must be able to continue.
"""

import os
import shutil

import h5py
import MDAnalysis
import numpy as np
import pytest

from paceline.hdf5 import create_h5md_groups
from paceline.mdanalysis.reader import Reader
from paceline.snapshot.crash_safe_hdf5_writes import ALIGNMENT
from paceline.snapshot.shared_file import Contents, Heading, Output, Settings
from paceline.snapshot.write_h5md import H5MD

N_ATOMS = 3
CELL = np.diag([9.0, 8.0, 7.0])
ALL = Contents(("positions", "velocities", "forces"), True)
FEW = Contents(("positions",), False)


def settings(path, **changed):
    chosen = {"title": "", "append": False, "overwrite": False, "n_frames": None, "double": False}
    chosen |= {"dt": None, "sync": False, "path": str(path), "n_atoms": N_ATOMS}
    return Settings(**(chosen | changed))


def values_of(frame, field):
    return (100 * frame + field + np.arange(3 * N_ATOMS).reshape(N_ATOMS, 3)).astype(np.float32)


def add(file, contents, frame, note=lambda piece: None):
    """Make the calls of a writer on all of its ranks."""
    cell = CELL if contents.has_cell else None
    path, starts = file.place(contents, Heading(frame, float(frame), cell))
    with open(path, "r+b") as atoms:
        for field, start in enumerate(starts):
            atoms.seek(start)
            atoms.write(values_of(frame, field).tobytes())
            note((start, values_of(frame, field).tobytes()))
    file.commit()


def noted(path, contents, frames, monkeypatch, **room):
    """Write frames; for the requested ones, return the file before and the recorded writes."""
    written = []
    write = Output.write

    def note(self, offset, data):
        written.append((offset, bytes(data)))
        write(self, offset, data)

    def cut(self, size):
        written.append((size, b""))
        os.ftruncate(self._descriptor, size)

    monkeypatch.setattr(Output, "write", note)
    monkeypatch.setattr(Output, "cut", cut)
    file = H5MD(settings(path, **room))
    for frame in range(max(frames) + 1):
        if frame in frames:
            shutil.copy(path, f"{path}.before")
        written.clear()
        add(file, contents, frame, written.append)
        if frame in frames:
            yield frame, f"{path}.before", written.copy()
    file.close()
    monkeypatch.undo()


def prefixes(before, writes, path):
    """Yield the files of a program that is stopped after each of its writes, or within one."""
    shutil.copy(before, path)
    pieces = []
    for offset, data in writes:
        cuts = range(offset - offset % ALIGNMENT + ALIGNMENT, offset + len(data), ALIGNMENT)
        starts = [offset, *cuts]
        for start, end in zip(starts, [*cuts, offset + len(data)], strict=True):
            pieces.append((start, data[start - offset : end - offset]))
    for done, (offset, data) in enumerate(pieces):
        yield done, len(pieces)
        if data:
            with open(path, "r+b") as file:
                file.seek(offset)
                file.write(data)
        else:
            os.truncate(path, offset)


def check(path, contents, n_frames, *, thorough):
    """Check that h5py and MDAnalysis read the earlier frames, and paceline, too, if `thorough`."""
    names = ("position", "velocity", "force")[: len(contents.fields)]
    with h5py.File(path) as file:
        group = file["particles/trajectory"]
        assert len(group["position/value"]) == n_frames
        assert np.array_equal(group["position/step"][:n_frames], np.arange(n_frames))
        assert np.array_equal(group["position/time"][:n_frames], np.arange(n_frames))
        for field, name in enumerate(names):
            expected = np.array([values_of(frame, field) for frame in range(n_frames)])
            assert np.array_equal(group[f"{name}/value"][:n_frames], expected)
        if contents.has_cell:
            assert (group["box/edges/value"][:n_frames] == CELL).all()
    theirs = MDAnalysis.Universe.empty(N_ATOMS)
    theirs.load_new(str(path), format="H5MD")
    for reader in [theirs.trajectory, *([Reader(str(path))] if thorough else [])]:
        assert reader.n_frames == n_frames
        for frame in (0, *range(max(0, n_frames - 8), n_frames)):
            assert np.array_equal(reader[frame].positions, values_of(frame, 0))
            assert reader[frame].time == frame
        reader.close()


def check_goes_on(path, contents, n_frames):
    file = H5MD(settings(path, append=True))
    assert file.n_frames == n_frames
    for frame in (n_frames, n_frames + 1):
        add(file, contents, frame)
    file.close()
    check(path, contents, n_frames + 2, thorough=True)


@pytest.mark.filterwarnings("ignore:.* of no frame:paceline.errors.PacelineWarning")
@pytest.mark.parametrize(
    ("contents", "frames", "room"),
    [
        (ALL, [1], {}),
        # The only node of a tree becomes two nodes; later the last node is split, too.
        (FEW, [64, 121], {}),
        (ALL, [1, 4], {"n_frames": 5}),
        (FEW, [2], {"n_frames": 9}),
    ],
)
def test_whoever_stops_leaves_the_frames_before(tmp_path, monkeypatch, contents, frames, room):
    # In these frames, the datasets of steps and times also get another chunk.
    monkeypatch.setattr(create_h5md_groups, "_ROWS", 8)
    path, left = tmp_path / "run.h5md", tmp_path / "left.h5md"
    for frame, before, writes in noted(path, contents, frames, monkeypatch, **room):
        stops = 0
        for done, n_pieces in prefixes(before, writes, left):
            stops = n_pieces
            check(left, contents, frame, thorough=done % 5 == 0)
            if done % 5 == 0 and room.get("n_frames") != frame + 1:
                again = shutil.copy(left, tmp_path / "again.h5md")
                check_goes_on(again, contents, frame)
        assert stops > 4
        check(left, contents, frame + 1, thorough=True)
