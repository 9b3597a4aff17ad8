"""Tests of analyses that follow a trajectory while it grows."""

import contextlib
import inspect
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import MDAnalysis
import MDAnalysis.analysis.rms
import numpy as np
import pytest
from helpers.analyses import ANALYSES
from helpers.growing import Growing
from helpers.imd_server import (
    DISCONNECT,
    GO,
    KILL,
    PAUSE,
    RATE,
    WAIT,
    Frame,
    ImdServer,
    handshake,
    made_frames,
)
from helpers.scans import PathLength
from helpers.waiting import PATIENCE, until
from MDAnalysis.transformations import translate

import paceline
from paceline import incremental_run
from paceline._util import os_calls
from paceline.analysis.align import AverageStructure
from paceline.analysis.battery import Battery
from paceline.analysis.convert import Write
from paceline.analysis.correlation import VelocityAutocorrelation
from paceline.analysis.rms import RMSD, RMSF
from paceline.cli import shared_analysis_steps
from paceline.errors import (
    DamagedFileError,
    FileChangedError,
    MissingDataError,
    PacelineWarning,
    ReadError,
    SelectionError,
    UnsupportedError,
)
from paceline.incremental_run import Continuation
from paceline.trajectory import growth, write_stream_to_file
from paceline.trajectory.growth import FollowedFile, wait_for_frame
from paceline.transform import center, nojump

#: Numbers of frames after each of which the analyses are run: within a leaf of 16 frames, at its
#: end, after it, and some leaves later.
LENGTHS = (1, 5, 16, 17, 50, 98)
#: Number of atoms of adenylate kinase.
N_ADK = 3341


@pytest.fixture
def growing(adk_xtc, tmp_path):
    return Growing(adk_xtc.trajectory, tmp_path / "growing.xtc")


def frames_in(path):
    """Return the number of frames in a file; 0 before the first one is complete."""
    try:
        return paceline.open(path).n_frames
    except (FileNotFoundError, DamagedFileError):
        return 0


@contextmanager
def in_thread(function):
    """Run a function in a thread, and raise its error at the end."""
    errors = []

    def work():
        try:
            function()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    yield
    thread.join(PATIENCE)
    assert not thread.is_alive()
    if errors:
        raise errors[0]


def values_of(name, one):
    return [np.ascontiguousarray(array) for array in ANALYSES[name].results(one.results)]


def assert_same(found, wanted, name=""):
    for these, those in zip(found, wanted, strict=True):
        assert np.array_equal(these, those, equal_nan=these.dtype.kind in "fc"), name


def test_each_analysis_has_the_bits_of_a_run_over_the_whole_file(growing, adk_xtc):
    growing.grow(LENGTHS[2])
    universe = paceline.Universe(adk_xtc.topology, growing.path)
    analyses = {name: case.make(universe) for name, case in ANALYSES.items()}
    analyses = {name: one for name, one in analyses.items() if not one.needs_all_frames}
    kept = Continuation()
    for n_frames in LENGTHS[2:]:
        growing.grow(n_frames)
        universe.trajectory.extend()
        paceline.run([*analyses.values()], checkpoint=kept)
    whole = paceline.Universe(*adk_xtc)
    wanted = {name: ANALYSES[name].make(whole) for name in analyses}
    paceline.run([*wanted.values()])
    assert kept.n_computed < 98
    for name, one in analyses.items():
        assert_same(values_of(name, one), values_of(name, wanted[name]), name)


@pytest.mark.parametrize(
    "options",
    [
        {"start": 3, "step": 2},
        {"transforms": [center("name CA", point=(0, 0, 0))]},
    ],
    ids=["every second frame", "centred"],
)
def test_each_length_has_the_bits_of_a_run(growing, adk_xtc, options):
    def make(universe):
        ca = universe.select_atoms("name CA")
        halo = ANALYSES["TimeSeries with a halo"].make(universe)
        return [RMSD(ca), RMSF(ca), halo, PathLength(universe.atoms[:50])]

    def numbers(finished):
        rmsd, rmsf, halo, path = (one.results for one in finished)
        return [rmsd.rmsd, rmsf.rmsf, halo.timeseries, path.lengths]

    growing.grow(4)
    universe = paceline.Universe(adk_xtc.topology, growing.path)
    analyses, whole, kept = make(universe), make(paceline.Universe(*adk_xtc)), Continuation()
    for n_frames in LENGTHS[1:]:
        growing.grow(n_frames)
        universe.trajectory.extend()
        paceline.run(analyses, checkpoint=kept, **options)
        paceline.run(whole, stop=n_frames, **options)
        assert_same(numbers(analyses), numbers(whole))


@pytest.fixture(scope="module")
def wrapped(tmp_path_factory):
    """A trajectory of 20 atoms that walk at random through a periodic box of 20 Å."""
    walk = np.cumsum(np.random.default_rng(7).normal(0, 1.5, (98, 20, 3)), axis=0) % 20
    universe = MDAnalysis.Universe.empty(20, trajectory=True)
    path = str(tmp_path_factory.mktemp("wrapped") / "walk.xtc")
    with MDAnalysis.Writer(path, 20) as writer:
        universe.dimensions = [20, 20, 20, 90, 90, 90]
        for positions in walk:
            universe.atoms.positions = positions
            writer.write(universe.atoms)
    return path


def positions_of(block):
    return block.positions


@pytest.mark.parametrize("halo", [(0, 0), (2, 0), (2, 1)])
@pytest.mark.parametrize("options", [{}, {"start": 2, "step": 3}], ids=["all", "every third"])
def test_atoms_are_followed_over_all_lengths(wrapped, tmp_path, options, halo):
    def make(path):
        universe = paceline.Universe.empty(20, trajectory=False)
        universe.trajectory = paceline.Universe(path, path).trajectory
        return paceline.TimeSeries(positions_of, universe.atoms, halo=halo)

    file = Growing(wrapped, tmp_path / "walk.xtc")
    file.grow(4)
    series, whole, kept = make(file.path), make(wrapped), Continuation()
    for n_frames in LENGTHS[1:]:
        file.grow(n_frames)
        series.atomgroup.universe.trajectory.extend()
        series.run(checkpoint=kept, transforms=[nojump()], **options)
        whole.run(stop=n_frames, transforms=[nojump()], **options)
        assert np.array_equal(series.results.timeseries, whole.results.timeseries)
    assert kept.n_computed < 98


def test_only_new_frames_are_computed(growing, adk_xtc):
    computed = []

    def heights(block):
        computed.extend(block.frames.tolist())
        return block.positions[:, 0, 2]

    growing.grow(1)
    universe = paceline.Universe(adk_xtc.topology, growing.path)
    series, kept = paceline.TimeSeries(heights, universe.atoms[:1]), Continuation()
    for n_frames, first in [(10, 0), (32, 0), (40, 32), (98, 32), (98, 96)]:
        growing.grow(n_frames)
        universe.trajectory.extend()
        computed.clear()
        series.run(backend="serial", checkpoint=kept)
        assert sorted(computed) == [*range(first, n_frames)]
        assert kept.n_computed == n_frames - first
        assert len(series.results.timeseries) == n_frames


def test_changed_results_of_a_user_do_not_reach_later_runs(growing, adk_xtc):
    growing.grow(40)
    universe = paceline.Universe(adk_xtc.topology, growing.path)
    rmsd, kept = RMSD(universe.select_atoms("name CA")), Continuation()
    rmsd.run(checkpoint=kept)
    wanted = rmsd.results.rmsd.copy()
    rmsd.results.rmsd[:] = 0
    growing.grow(98)
    universe.trajectory.extend()
    rmsd.run(checkpoint=kept)
    assert np.array_equal(rmsd.results.rmsd[:40], wanted)


def test_timings_cover_all_runs(growing, adk_xtc):
    """Blocks of earlier runs lie before those of later ones, also in the second pass of a scan."""
    growing.grow(20)
    universe = paceline.Universe(adk_xtc.topology, growing.path)
    path, kept = PathLength(universe.atoms[:50]), Continuation()
    for n_frames in (20, 60, 98):
        growing.grow(n_frames)
        universe.trajectory.extend()
        path.run(checkpoint=kept, n_workers=1)
    timings = path.timings
    assert len(timings.blocks) == 2 * 7
    assert all(timings.dealt <= one.start <= one.end <= timings.end for one in timings.blocks)
    for job in (0, 1):
        blocks = [one for one in timings.blocks if one.job == job]
        starts = [one.start for one in sorted(blocks, key=lambda one: one.block)]
        assert starts == sorted(starts)


def test_another_analysis_begins_anew(growing, adk_xtc):
    growing.grow(40)
    universe = paceline.Universe(adk_xtc.topology, growing.path)
    kept = Continuation()
    RMSD(universe.select_atoms("name CA")).run(checkpoint=kept)
    other = RMSD(universe.select_atoms("name CB")).run(checkpoint=kept)
    assert kept.n_computed == 40
    alone = RMSD(universe.select_atoms("name CB")).run()
    assert np.array_equal(other.results.rmsd, alone.results.rmsd)


def test_damaged_frames_are_left_out_once(damaged, tmp_path):
    system, frames = damaged
    path = shutil.copy(system.trajectory, tmp_path)
    universe = paceline.Universe(system.topology, path)
    rmsd, kept = RMSD(universe.select_atoms("name CA")), Continuation()
    for _ in range(2):
        rmsd.run(checkpoint=kept, on_error="skip")
        assert [frame for frame, _ in rmsd.damaged] == frames


def test_other_frames_of_a_halo_are_computed_anew(growing, adk_xtc):
    """The last chosen frame is another one in each run."""

    def chosen(trajectory):
        return [*range(16), trajectory.n_frames - 1]

    growing.grow(40)
    universe = paceline.Universe(adk_xtc.topology, growing.path)
    series, kept = ANALYSES["TimeSeries with a halo"].make(universe), Continuation()
    series.run(checkpoint=kept, frames=chosen)
    growing.grow(98)
    universe.trajectory.extend()
    series.run(checkpoint=kept, frames=chosen)
    alone = ANALYSES["TimeSeries with a halo"].make(paceline.Universe(*adk_xtc))
    alone.run(frames=chosen)
    assert np.array_equal(series.results.timeseries, alone.results.timeseries)


def test_processes_give_the_same_bits(growing, adk_xtc, where):
    growing.grow(20)
    universe = paceline.Universe(adk_xtc.topology, growing.path)
    rmsd, kept = RMSD(universe.select_atoms("name CA")), Continuation()
    for n_frames in (20, 70, 98):
        growing.grow(n_frames)
        universe.trajectory.extend()
        rmsd.run(checkpoint=kept, **where)
    alone = RMSD(paceline.Universe(*adk_xtc).select_atoms("name CA")).run()
    assert np.array_equal(rmsd.results.rmsd, alone.results.rmsd)


def test_an_analysis_that_writes_is_refused(adk_xtc, tmp_path):
    write = Write(paceline.Universe(*adk_xtc).atoms, tmp_path / "copy.dcd")
    with pytest.raises(UnsupportedError, match="cannot be continued"):
        write.run(checkpoint=Continuation())


def test_updates_follow_the_file(growing, adk_xtc, monkeypatch):
    """A thread appends frames after an update has had all frames before."""
    growing.grow(3)
    universe = paceline.Universe(adk_xtc.topology, growing.path)
    rmsd = RMSD(universe.select_atoms("name CA"))
    seen, grown, ended = [], threading.Event(), FollowedFile.ended.fget

    def simulate():
        for before, n_frames in pairwise((3, 20, 33, 98)):
            # An update may see a part of the frames while they are appended.
            until(lambda before=before: before in seen)
            growing.grow(n_frames)
        grown.set()

    # On a busy machine, any time without growth may pass before the thread appends frames.
    held = property(lambda self: ended(self) if grown.is_set() else None)
    monkeypatch.setattr(FollowedFile, "ended", held)
    with in_thread(simulate):
        for update in paceline.live(rmsd, every=0.01, idle=0.3):
            assert len(rmsd.results.rmsd) == update.n_frames
            seen.append(update.n_frames)
    assert (seen[0], seen[-1]) == (3, 98)
    assert {3, 20, 33, 98} <= {*seen}
    assert update.is_last
    assert update.ended == "it has not grown for 0.3 s"
    alone = RMSD(paceline.Universe(*adk_xtc).select_atoms("name CA")).run()
    assert np.array_equal(rmsd.results.rmsd, alone.results.rmsd)


def test_a_file_is_watched_between_updates(growing, adk_xtc, monkeypatch):
    """A file that grows while the next update is not due has not ended."""
    growing.grow(3)
    universe = paceline.Universe(adk_xtc.topology, growing.path)
    rmsd = RMSD(universe.select_atoms("name CA"))
    lengths = iter(range(4, 40))
    wait = FollowedFile.wait

    def grow_and_wait(self, seconds):
        if (n_frames := next(lengths, None)) is not None:
            growing.grow(n_frames)
        return wait(self, seconds)

    def sleep(seconds):
        now[0] += seconds

    # The time passes only while frames are awaited, however long an update takes.
    now = [0.0]
    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=sleep)
    monkeypatch.setattr(growth, "time", clock)
    monkeypatch.setattr(incremental_run, "time", SimpleNamespace(**vars(time) | vars(clock)))
    updates = paceline.live(rmsd, every=2.0, idle=1.0)
    assert next(updates).n_frames == 3
    monkeypatch.setattr(FollowedFile, "wait", grow_and_wait)
    *_, last = updates
    assert (last.n_frames, last.ended) == (39, "it has not grown for 1 s")


@pytest.fixture
def grows_while_awaited(growing, monkeypatch):
    """Let the file grow by one frame whenever frames are awaited, up to a number of frames."""

    def begin(first, last):
        growing.grow(first)
        lengths, wait = iter(range(first + 1, last + 1)), FollowedFile.wait

        def grow_and_wait(self, seconds):
            if (n_frames := next(lengths, None)) is not None:
                growing.grow(n_frames)
            return wait(self, seconds)

        monkeypatch.setattr(FollowedFile, "wait", grow_and_wait)

    return begin


@pytest.mark.parametrize("analysis", [RMSD, AverageStructure])
def test_a_reference_frame_is_awaited(grows_while_awaited, growing, adk_xtc, analysis):
    def make(universe):
        return analysis(universe, select="name CA", ref_frame=7)

    def numbers(one):
        return one.results.rmsd if analysis is RMSD else one.results.positions

    grows_while_awaited(3, 12)
    one = make(paceline.Universe(adk_xtc.topology, growing.path))
    updates = paceline.live(one, every=0.001, idle=PATIENCE, stop=12)
    lengths = [update.n_frames for update in updates]
    assert (lengths[0] >= 8, lengths[-1]) == (True, 12)
    alone = make(paceline.Universe(*adk_xtc)).run(stop=12)
    assert np.array_equal(numbers(one), numbers(alone))


def test_a_reference_frame_that_never_comes_is_an_error_at_the_end(growing, adk_xtc):
    growing.grow(3)
    universe = paceline.Universe(adk_xtc.topology, growing.path)
    rmsd = RMSD(universe, select="name CA", ref_frame=7)
    with pytest.raises(IndexError, match="reference frame 7: the trajectory has 3 frames"):
        next(paceline.live(rmsd, every=0.01, idle=0.05))


def test_a_file_that_grew_during_a_long_update_has_not_ended(growing, monkeypatch):
    now = [0.0]
    # Other threads need the time as it is.
    monkeypatch.setattr(growth, "time", SimpleNamespace(monotonic=lambda: now[0]))
    growing.grow(3)
    file = FollowedFile(growing.path, idle=10)
    assert file.wait(0)
    assert not file.wait(0)
    growing.grow(4)
    now[0] = 11
    assert file.ended is None
    assert file.wait(0)
    now[0] = 22
    assert file.ended == "it has not grown for 10 s"


def test_second_stages_are_run_at_the_end(adk_xtc, tmp_path):
    path = shutil.copy(adk_xtc.trajectory, tmp_path)
    universe = paceline.Universe(adk_xtc.topology, path)
    names = ["RMSD", "Correlation", "PCA"]
    analyses = [ANALYSES[name].make(universe) for name in names]
    states = [
        (bool(update.ended), update.is_last, [*update.analyses])
        for update in paceline.live(analyses, every=0.01, idle=0.05)
    ]
    assert states == [(False, False, ["RMSD"]), (True, False, ["RMSD"]), (True, True, names)]
    whole = paceline.Universe(*adk_xtc)
    for name, one in zip(names, analyses, strict=True):
        assert_same(values_of(name, one), values_of(name, ANALYSES[name].make(whole).run()), name)


def test_a_number_of_frames_or_a_condition_ends_it(adk_xtc, tmp_path):
    path = shutil.copy(adk_xtc.trajectory, tmp_path)
    rmsd = RMSD(paceline.Universe(adk_xtc.topology, path).select_atoms("name CA"))
    *_, last = paceline.live(rmsd, every=0.01, stop=30)
    assert (last.n_frames, last.ended) == (30, "30 frames were asked for")
    *_, last = paceline.live(
        rmsd, every=0.01, stop_when=lambda update: "enough" if update.n_frames > 40 else None
    )
    assert (last.n_frames, last.ended) == (98, "enough")
    *_, last = paceline.live(rmsd, every=0.01, stop_when=lambda update: update.n_frames > 40)
    assert (last.n_frames, last.ended) == (98, "stop_when returned True")
    with pytest.raises(TypeError, match="expected the reason to stop, or None, found 1"):
        list(paceline.live(rmsd, every=0.01, stop_when=lambda update: 1))


def test_ctrl_c_ends_the_wait_with_all_results(growing, adk_xtc, monkeypatch):
    growing.grow(20)
    universe = paceline.Universe(adk_xtc.topology, growing.path)
    rmsd = RMSD(universe.select_atoms("name CA"))

    def interrupted(self, seconds):
        raise KeyboardInterrupt

    updates = paceline.live(rmsd, every=0.01, idle=PATIENCE)
    assert next(updates).n_frames == 20
    monkeypatch.setattr("paceline.trajectory.growth.FollowedFile.wait", interrupted)
    [last] = updates
    assert (last.ended, last.is_last, last.n_frames) == ("it was interrupted", True, 20)


@contextmanager
def interrupted_at(function, text):
    """Raise KeyboardInterrupt once, when the function reaches the line with this text."""
    code = function.__code__
    lines, first = inspect.getsourcelines(code)
    [number] = [first + k for k, line in enumerate(lines) if text in line]

    def trace(frame, event, _):
        if frame.f_code is not code:
            return None
        if (event, frame.f_lineno) == ("line", number):
            sys.settrace(None)
            raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    except KeyboardInterrupt:  # would end pytest
        pytest.fail(f"Ctrl-C at {text!r} was not caught")
    finally:
        sys.settrace(before)


def test_ctrl_c_between_two_waits(growing, adk_xtc):
    growing.grow(20)
    universe = paceline.Universe(adk_xtc.topology, growing.path)
    updates = paceline.live(RMSD(universe.select_atoms("name CA")), every=0.01, idle=PATIENCE)
    assert next(updates).n_frames == 20
    with interrupted_at(incremental_run.GrowingRun.states, "while ended is None:"):
        [last] = updates
    assert (last.ended, last.is_last, last.n_frames) == ("it was interrupted", True, 20)


@pytest.mark.parametrize("how", ["deleted", "truncated", "replaced"])
def test_a_file_that_is_not_the_same_any_more(how, growing, adk_xtc, adk):
    growing.grow(20)
    universe = paceline.Universe(adk_xtc.topology, growing.path)
    rmsd = RMSD(universe.select_atoms("name CA"))
    updates = paceline.live(rmsd, every=0.01, idle=PATIENCE)
    next(updates)
    if how == "deleted":
        os.remove(growing.path)
    elif how == "truncated":
        os.truncate(growing.path, 1000)
    else:
        other = MDAnalysis.Universe(*adk)
        with MDAnalysis.Writer(growing.path, other.atoms.n_atoms) as writer:
            for _ in other.trajectory[40:]:
                writer.write(other.atoms)
    with pytest.raises(FileChangedError, match=r"growing\.xtc"):
        next(updates)


def test_what_cannot_grow_is_refused(adk, universe):
    rmsd = RMSD(universe.select_atoms("name CA"))
    with pytest.raises(UnsupportedError, match="count from the first frame"):
        paceline.live(rmsd, stop=-1)
    with pytest.raises(UnsupportedError, match="not written yet"):
        paceline.live(rmsd, frames=[1, 2])
    with pytest.raises(ValueError, match="every must be a number above 0 s"):
        paceline.live(rmsd, every=0)
    with pytest.raises(ValueError, match="step must not be 0"):
        paceline.live(rmsd, step=0)
    with pytest.raises(ValueError, match="start=10, stop=5 and step=None choose no frames"):
        paceline.live(rmsd, start=10, stop=5)
    with pytest.raises(ValueError, match="either frames or start"):
        paceline.live(rmsd, frames=lambda _: [0], stop=5)
    memory = paceline.Universe(adk.topology, universe.trajectory.timeseries(stop=3, order="fac"))
    with pytest.raises(UnsupportedError, match="only a trajectory file"):
        paceline.live(RMSD(memory.select_atoms("name CA")))
    with pytest.raises(UnsupportedError, match="several Universes"):
        paceline.live([rmsd, RMSD(universe.copy().select_atoms("name CA"))])


@pytest.mark.parametrize("name", ["s3://bucket/md.xtc", "no-such-folder/md.part*.xtc"])
def test_addresses_and_patterns_are_not_awaited(name):
    said = []
    wait_for_frame(name, 2 * PATIENCE, said.append)
    assert said == []


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("md.xtc", b"ATOM  " * 200, "expected XTC, .* found a file that begins with"),
        ("md.mdcrd", b"title\n" + b"  1.000" * 300, "found a file that begins with"),
        ("md.h5md", None, "an HDF5 file cannot be followed while it grows"),
    ],
)
def test_formats_that_cannot_be_followed_are_not_awaited(name, content, reason, tmp_path):
    path, said = tmp_path / name, []
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UnsupportedError, match=reason):
        wait_for_frame(path, 2 * PATIENCE, said.append)
    assert said == []


def test_a_file_too_short_to_recognise_is_awaited(tmp_path):
    path, said = tmp_path / "md.xtc", []
    path.write_bytes(b"\0\0")
    wait_for_frame(path, 0.01, said.append)
    assert said == [f"waiting up to 0.01 s for the first frame of {path}"]


def test_a_last_file_without_a_frame_is_not_mistaken_for_the_one_before(growing, adk_xtc, tmp_path):
    growing.grow(1)
    os.truncate(growing.path, 100)
    paths = [shutil.copy(adk_xtc.trajectory, tmp_path), growing.path]
    with pytest.warns(PacelineWarning, match="the trajectory ends before this file"):
        universe = paceline.Universe(adk_xtc.topology, paths)
    with pytest.raises(UnsupportedError, match="the last file had no complete frame"):
        paceline.live(RMSD(universe.select_atoms("name CA")))


def test_files_without_a_topology_grow_too(growing):
    growing.grow(20)
    trajectory = paceline.open(growing.path)

    def heights(block):
        return block.positions[:, 0, 2]

    series = paceline.TimeSeries(heights, trajectory.atoms[:1])
    updates = paceline.live(series, every=0.01, idle=0.3)
    assert next(updates).n_frames == 20
    growing.grow(98)
    *_, last = updates
    assert last.n_frames == len(series.results.timeseries) == 98


@pytest.fixture(scope="module")
def sent(adk_xtc):
    """The frames of adenylate kinase, as an engine sends them."""
    walk = np.random.default_rng(3)
    return [
        Frame(
            step=10 * ts.frame,
            time=0.02 * ts.frame,
            cell=np.diag([90.0, 91.0, 92.0]),
            positions=ts.positions.copy(),
            velocities=walk.normal(0, 1, ts.positions.shape).astype(np.float32),
        )
        for ts in MDAnalysis.Universe(*adk_xtc).trajectory
    ]


def speeds_of(block):
    return np.linalg.norm(block.velocities, axis=2)


def of_stream(universe):
    """Return analyses of a stream, one of them with a second stage."""
    ca = universe.select_atoms("name CA")
    speeds = paceline.TimeSeries(speeds_of, ca, fields=["positions", "velocities"])
    return [RMSD(ca), RMSF(ca), speeds, ANALYSES["Correlation"].make(universe)]


def numbers_of_stream(finished):
    rmsd, rmsf, speeds, heights = (one.results for one in finished)
    return [rmsd.rmsd, rmsf.rmsf, speeds.timeseries, heights.timeseries]


@pytest.mark.parametrize(
    ("tee", "version", "order"), [("run.trr", 3, "<"), (None, 3, ">"), ("run.nc", 3, "<")]
)
def test_a_stream_has_the_bits_of_its_file(sent, adk, tmp_path, tee, version, order):
    tee = tee and tmp_path / tee
    with ImdServer.of(sent, version=version, order=order, gated=True) as server:
        server.allow(1)
        universe = paceline.Universe(adk.topology, server.address, tee=tee)
        np.testing.assert_allclose(universe.atoms.positions, sent[0].positions, rtol=2e-7)
        shown = universe.atoms.positions.copy()
        analyses, lengths = of_stream(universe), []
        for update in paceline.live(analyses, every=0.01):
            lengths.append(update.n_frames)
            if not update.is_last:
                assert [*update.analyses] == ["RMSD", "RMSF", "TimeSeries"]
                server.allow(19)
    assert (lengths[0], lengths[-1], update.ended) == (1, 98, "the engine closed the connection")
    assert np.array_equal(universe.trajectory[0].positions, shown)
    whole = of_stream(paceline.Universe(adk.topology, universe.trajectory.filename))
    paceline.run(whole, n_workers=1)
    assert_same(numbers_of_stream(analyses), numbers_of_stream(whole))
    if tee is not None:
        assert universe.trajectory.filename == str(tee)


@pytest.mark.parametrize("tee", ["run.xtc", "run.nc", None])
def test_references_have_the_rounded_numbers_of_the_file(sent, adk, tmp_path, tee):
    """Some analyses take a reference from the first frame when they are created."""

    def make(universe):
        names = ["Contacts", "DensityAnalysis", "RMSD"]
        return {name: ANALYSES[name].make(universe) for name in names}

    noise = np.random.default_rng(5)
    frames = [
        frame._replace(
            positions=frame.positions + noise.normal(0, 0.003, frame.positions.shape).astype("f4"),
            velocities=None,
        )
        for frame in sent
    ]
    with ImdServer.of(frames) as server:
        tee = tee and tmp_path / tee
        universe = paceline.Universe(adk.topology, server.address, tee=tee)
        analyses = make(universe)
        *_, last = paceline.live([*analyses.values()], every=0.01)
    assert last.n_frames == 98
    whole = make(paceline.Universe(adk.topology, universe.trajectory.filename))
    paceline.run([*whole.values()])
    for name, one in analyses.items():
        assert_same(values_of(name, one), values_of(name, whole[name]), name)


@pytest.mark.parametrize(("name", "is_reported"), [("Contacts", True), ("RMSD", False)])
def test_a_file_that_rounds_in_another_way_is_reported(sent, adk, tmp_path, name, is_reported):
    """Only if the analysis takes a reference from the first frame, rounded as in NetCDF."""
    frames = [frame._replace(velocities=None) for frame in sent[:3]]
    with ImdServer.of(frames) as server:
        universe = paceline.Universe(adk.topology, server.address, tee=tmp_path / "run.nc")
        given = ANALYSES[name].make(universe)
        with warnings.catch_warnings(record=True, action="always") as caught:
            [*paceline.live(given, tee=tmp_path / "run.xtc", every=0.01)]
    reported = [f"{one.message}" for one in caught if "rounds in another way" in f"{one.message}"]
    assert len(reported) == is_reported
    for text in reported:
        assert "from the first frame, perhaps as a reference, are those of NC, but" in text


def test_a_run_lasts_as_long_as_the_stream(sent, adk, tmp_path):
    """The call of the manual: the Universe names units, and the run names the file."""
    frames = [frame._replace(velocities=None) for frame in sent]
    tee = tmp_path / "run.xtc"
    with ImdServer.of(frames) as server:
        universe = paceline.Universe(adk.topology, server.address, units="real")
        ca = universe.select_atoms("name CA")
        given = [RMSD(ca), RMSF(ca), ANALYSES["Correlation"].make(universe)]
        with warnings.catch_warnings(action="error", category=PacelineWarning):
            found = paceline.run(given, tee=tee, n_workers=2)
    assert found is given
    assert universe.trajectory.filename == str(tee)
    whole = paceline.Universe(adk.topology, tee)
    ca = whole.select_atoms("name CA")
    wanted = paceline.run([RMSD(ca), RMSF(ca), ANALYSES["Correlation"].make(whole)])
    for one, other in zip(found, wanted, strict=True):
        assert_same(*(values_of(type(one).__name__, each) for each in (one, other)))
    assert found[0].results.rmsd.shape == (98, 3)
    again = RMSD(universe.select_atoms("name CA")).run(step=2)
    assert np.array_equal(again.results.rmsd, found[0].results.rmsd[::2])


def test_an_analysis_alone_runs_over_a_stream(sent, adk, tmp_path):
    with ImdServer.of(sent) as server:
        universe = paceline.Universe(adk.topology, server.address, tee=tmp_path / "run.trr")
        rmsd = RMSD(universe.select_atoms("name CA")).run(start=2, step=3, backend="serial")
    assert (rmsd.start, rmsd.stop, rmsd.step, len(rmsd.results.rmsd)) == (2, 98, 3, 32)
    whole = RMSD(paceline.Universe(adk.topology, tmp_path / "run.trr").select_atoms("name CA"))
    whole.run(start=2, step=3)
    assert np.array_equal(rmsd.results.rmsd, whole.results.rmsd)


def test_a_battery_runs_over_a_stream(adk, sent, tmp_path):
    """Its second run, over the equilibrated frames, reads the file of the stream."""
    noise = np.random.default_rng(7)
    frames = [
        frame._replace(
            positions=(
                sent[0].positions * np.float32(1 + np.exp(-k))
                + noise.normal(0, 0.1, sent[0].positions.shape).astype("f4")
            ),
            velocities=None,
        )
        for k, frame in enumerate(sent)
    ]
    described = {"gyration": {"select": "name CA"}, "msd": {"analysis": "msd", "select": "name CA"}}
    tee = {"tee": tmp_path / "run.trr", "overwrite": True}
    with ImdServer.of(frames) as server:
        universe = paceline.Universe(adk.topology, server.address)
        battery = Battery(described, universe, optional=True)
        battery.run(unwrap=False, equilibrated=True, **tee)
    assert battery.analyses.keys() == {"gyration", "msd"}
    saved = Battery(described, paceline.Universe(adk.topology, tmp_path / "run.trr"))
    saved.run(unwrap=False, equilibrated=True)
    for name, one in battery.analyses.items():
        table, wanted = (found.results.table for found in (one, saved.analyses[name]))
        assert len(one.frames) < 98
        assert np.array_equal(one.frames, saved.analyses[name].frames)
        assert_same(table.columns.values(), wanted.columns.values(), name)


def lines_of_table(path):
    """Return the lines of a table, except for those of the command, and of its digest."""
    lines = path.read_text().splitlines()
    return [line for line in lines if not line.startswith(("# command: ", "# sha256 of all"))]


def test_tables_of_a_battery_are_those_of_its_file(sent, adk, tmp_path, run):
    """Also their headers: analyses of the first and the second stage make the same atoms whole."""
    battery, tee = tmp_path / "battery.toml", tmp_path / "run.trr"
    described = {"gyration": "protein and resid 1-99", "rmsf": "name CA", "pca": "name CA"}
    battery.write_text("".join(f"[{k}]\nselect = '{text}'\n" for k, text in described.items()))
    with ImdServer.of(sent[:30]) as server:
        command = ["run", battery, adk.topology]
        given = ["--every", "10ms", "--tee", tee]
        status, _, err = run(*command, server.address, "-o", tmp_path / "stream", *given)
    assert status == 0, err
    status, _, err = run(*command, tee, "-o", tmp_path / "file")
    assert status == 0, err
    names = sorted(path.name for path in (tmp_path / "stream").glob("*.csv"))
    assert names == sorted(path.name for path in (tmp_path / "file").glob("*.csv"))
    assert len(names) >= len(described)
    for name in names:
        found, wanted = (lines_of_table(tmp_path / where / name) for where in ("stream", "file"))
        assert any(line.startswith("# transforms: unwrap(") for line in found)
        assert found == wanted


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("how", ["run", "live", "command"])
def test_a_number_of_frames_leaves_the_simulation_running(
    adk, tmp_path, run_with_answer, how, version
):
    frames = made_frames(40, N_ADK, version=version, fields="p")
    with ImdServer.of(frames, version=version, gated=True) as server:
        server.allow(30)
        if how == "command":
            table = tmp_path / "rmsd.csv"
            command = ["rmsd", adk.topology, server.address, "--select", "name CA", "-o", table]
            command += ["--end", "20", "--dt", "1ps", "--every", "10ms"]
            status, _, err = run_with_answer(*command)
            assert status == 0, err
            assert "ended: --end 20 is reached" in " ".join(err.split()), err
            n_frames = len([line for line in table.read_text().splitlines() if line[0] != "#"]) - 1
        else:
            universe = paceline.Universe(adk.topology, server.address, dt=1)
            rmsd = RMSD(universe.select_atoms("name CA"))
            if how == "run":
                rmsd.run(stop=20)
            else:
                *_, last = paceline.live(rmsd, every=0.01, stop=20)
                assert last.ended == "20 frames were asked for"
            n_frames = len(rmsd.results.rmsd)
        assert server.left.wait(PATIENCE)
        leaves = [WAIT, RATE, DISCONNECT] if version == 3 else [DISCONNECT]
        assert server.received == [GO, *leaves]
    assert n_frames == 20


def test_a_run_over_a_stream_that_breaks_has_results_and_an_error(sent, adk):
    data = [frame.encoded() for frame in sent[:20]]
    data[-1] = data[-1][:1000]
    with ImdServer(data, handshake(3) + sent[0].session()) as server:
        rmsd = RMSD(paceline.Universe(adk.topology, server.address).select_atoms("name CA"))
        with pytest.raises(DamagedFileError, match="expected a complete frame, found"):
            rmsd.run()
    assert len(rmsd.results.rmsd) == 19


def test_what_a_run_over_a_stream_refuses(sent, adk, tmp_path):
    with ImdServer.of(sent[:3]) as server:
        universe = paceline.Universe(adk.topology, server.address)
        ca = universe.select_atoms("name CA")
        for options, reason in (
            ({"checkpoint": tmp_path / "kept"}, "omit checkpoint="),
            ({"frames": [1, 2]}, "not written yet"),
            ({"stop": -1}, "the last one is not known"),
            ({"tee_atoms": "name CA"}, "tee_atoms= chooses what a file contains: name the file"),
            ({"tee_step": 2}, "tee_step= chooses what a file contains"),
        ):
            with pytest.raises(UnsupportedError, match=reason):
                paceline.run([RMSD(ca)], **options)
        kept = {"tee": tmp_path / "ca.trr"}
        with pytest.raises(ValueError, match="tee_step must be at least 1, not 0"):
            paceline.run(RMSD(ca), tee_step=0, **kept)
        with pytest.raises(SelectionError, match="tee_atoms= names no atoms"):
            paceline.run(RMSD(ca), tee_atoms="name XX", **kept)
        other = paceline.Universe(*adk)
        with pytest.raises(UnsupportedError, match="atoms of another Universe"):
            paceline.run(RMSD(ca), tee_atoms=other.atoms, **kept)
        theirs = MDAnalysis.analysis.rms.RMSD(ca)
        for given in ([theirs], [RMSD(ca), theirs]):
            with pytest.raises(
                UnsupportedError, match="RMSD is an MDAnalysis analysis, which needs all"
            ):
                paceline.run(given)
        pdb = tmp_path / "run.pdb"
        named = f"^{re.escape(str(pdb))}: expected a name that ends in"
        for options in ({}, {"tee_step": 10}):
            with (
                warnings.catch_warnings(action="error"),
                pytest.raises(UnsupportedError, match=named),
            ):
                paceline.run(RMSD(ca), tee=pdb, **options)
        with pytest.raises(UnsupportedError, match=named):
            paceline.Universe(adk.topology, server.address, tee=pdb)
        with pytest.raises(UnsupportedError, match="cannot be copied"):
            universe.copy()
        assert not list(tmp_path.iterdir())
        universe.trajectory.close()
    for options in ({"tee": "run.xtc"}, {"tee_atoms": other.atoms}, {"overwrite": True}):
        with pytest.raises(UnsupportedError, match=r"applies to streams \(imd://\), not to files"):
            paceline.run(RMSD(other.select_atoms("name CA")), **options)


@pytest.mark.filterwarnings("ignore:Found no information")
@pytest.mark.filterwarnings("ignore:Unit cell dimensions")
@pytest.mark.parametrize("ending", ["xtc", "trr", "dcd", "nc"])
def test_some_atoms_and_frames_have_the_bits_of_all(sent, adk, tmp_path, ending):
    """Analyses use all atoms and frames; the file has those that were asked for."""
    frames = [frame._replace(velocities=None) for frame in sent]
    tee, structure = tmp_path / f"ca.{ending}", tmp_path / "ca.pdb"
    with ImdServer.of(frames) as server:
        universe = paceline.Universe(adk.topology, server.address, tee=tee)
        ca, series = (
            universe.select_atoms("name CA"),
            paceline.TimeSeries(positions_of, universe.atoms),
        )
        rmsd, _ = paceline.run([RMSD(ca), series], tee_atoms=ca, tee_step=3)
        buffer = universe.trajectory.filename
    assert os.path.dirname(buffer) != str(tmp_path)
    assert len(rmsd.results.rmsd) == 98
    with paceline.open(tee) as kept, paceline.open(buffer) as whole:
        assert (kept.n_frames, kept.n_atoms) == (33, 214)
        assert np.array_equal(kept.positions(), whole.positions()[::3][:, ca.indices])
        assert np.array_equal(kept.positions(), series.results.timeseries[::3][:, ca.indices])
        times = [[frame.time for frame in each] for each in (kept, whole)]
        np.testing.assert_allclose(times[0], times[1][::3], rtol=1e-6)
    ca.write(structure)
    alone = RMSD(paceline.Universe(structure, tee).atoms).run()
    assert np.array_equal(alone.results.rmsd[:, 2], rmsd.results.rmsd[::3, 2])


def test_velocities_that_are_not_sent(sent, adk):
    with ImdServer.of([frame._replace(velocities=None) for frame in sent[:3]]) as server:
        universe = paceline.Universe(adk.topology, server.address)
        speeds = paceline.TimeSeries(speeds_of, universe.atoms[:3], fields=["velocities"])
        with pytest.raises(MissingDataError, match="an analysis needs velocities"):
            next(paceline.live(speeds, every=0.01))


def test_a_stream_that_ends_within_a_frame(sent, adk, tmp_path):
    """The results of all complete frames come before the error."""
    data = [frame.encoded() for frame in sent[:20]]
    data[-1] = data[-1][:1000]
    hello = handshake(3) + sent[0].session()
    with ImdServer(data, hello) as server:
        universe = paceline.Universe(adk.topology, server.address)
        rmsd = RMSD(universe.select_atoms("name CA"))
        updates = []
        with pytest.raises(DamagedFileError, match="expected a complete frame, found"):
            updates.extend(paceline.live(rmsd, every=0.01, tee=tmp_path / "run.trr"))
    assert len(rmsd.results.rmsd) == 19


def test_a_command_ends_with_the_error_of_its_stream(sent, adk, tmp_path, run):
    """All results of complete frames are written before."""
    data = [frame.encoded() for frame in sent[:20]]
    data[-1] = data[-1][:1000]
    with ImdServer(data, handshake(3) + sent[0].session()) as server:
        table = tmp_path / "rmsd.csv"
        command = ["rmsd", adk.topology, server.address, "--select", "name CA", "-o", table]
        status, _, err = run(*command, "--every", "10ms", "--tee", tmp_path / "run.trr")
    assert status == 1
    assert "expected a complete frame, found" in err
    assert "the frames before it are complete" in err
    saved = paceline.Universe(adk.topology, str(tmp_path / "run.trr")).select_atoms("name CA")
    rows = np.loadtxt(table, delimiter=",", skiprows=1 + table.read_text().count("#"))
    np.testing.assert_allclose(rows[:, -1], RMSD(saved).run().results.rmsd[:, 2], atol=1e-5)
    assert len(rows) == 19


@pytest.mark.parametrize("as_json", [False, True])
def test_a_reset_connection_is_an_error_after_the_results(
    sent, adk, tmp_path, run_with_answer, as_json
):
    table, tee = tmp_path / "rmsd.csv", tmp_path / "run.trr"
    # After the last frame, the server waits before it resets the connection.
    data = [*(frame.encoded() for frame in sent[:5]), b""]
    hello = handshake(3) + sent[0].session()
    with ImdServer(data, hello, end="reset", gated=True) as server:
        server.allow(5)

        def reset():
            until(lambda: frames_in(tee) == 5)
            server.allow(1)

        command = ["rmsd", adk.topology, server.address, "--select", "name CA", "-o", table]
        with warnings.catch_warnings(action="ignore"), in_thread(reset):
            status, out, err = run_with_answer(
                *command, "--every", "10ms", "--tee", tee, *(["--json"] if as_json else [])
            )
    size = len(hello) + sum(map(len, data))
    message = f"frame 5, byte {size}: the connection was reset, without an end of the stream"
    assert status == 1
    assert message in " ".join(err.split())
    if as_json:
        document = json.loads(out)
        assert message in document["error"]["message"]
        assert document["error"]["kind"] == "ReadError"
        assert document["timings"]["frames"] == 5
    assert len([line for line in table.read_text().splitlines() if line[0] != "#"]) == 6


def test_a_command_keeps_some_atoms_and_frames(sent, adk, tmp_path, run):
    table, kept = tmp_path / "rmsd.csv", tmp_path / "ca.trr"
    command = ["rmsd", adk.topology, "--select", "name CA", "-o", table]
    some = ["--tee-atoms", "name CA and resid 1-50", "--tee-step", "5"]
    status, _, err = run(*command, adk.trajectory, *some)
    assert status == 2
    assert "--tee-atoms chooses what a file contains: name the file, --tee" in err
    with ImdServer.of(sent[:20]) as server:
        arguments = ["--every", "10ms", "--tee", kept]
        status, _, err = run(*command, server.address, *arguments, *some)
    assert status == 0, err
    assert len(np.loadtxt(table, delimiter=",", skiprows=1 + table.read_text().count("#"))) == 20
    with paceline.open(kept) as trajectory:
        assert (trajectory.n_frames, trajectory.n_atoms) == (4, 50)
    status, out, _ = run("replay", table)
    assert status != 0
    assert "only some atoms or frames (--tee-atoms, --tee-step)" in " ".join(out.split())


def test_the_first_frame_of_a_stream_is_the_reference_of_contacts(sent, adk, tmp_path, run):
    table, whole = tmp_path / "contacts.csv", tmp_path / "whole.csv"
    command = ["contacts", adk.topology]
    given = ["--select", "name CA and resid 1-99", "--select-2", "name CA and resid 100-214"]
    given += ["--radius", "8"]
    with ImdServer.of(sent[:20]) as server:
        tee = ["--every", "10ms", "--tee", tmp_path / "run.trr"]
        status, _, err = run(*command, server.address, *given, "-o", table, *tee)
    assert status == 0, err
    status, _, err = run(*command, tmp_path / "run.trr", *given, "-o", whole)
    assert status == 0, err
    rows, wanted = (
        [line for line in path.read_text().splitlines() if line[0] != "#"]
        for path in (table, whole)
    )
    assert (len(rows), rows) == (21, wanted)


def test_another_frame_of_a_stream_is_no_reference_of_contacts(sent, adk, run):
    with ImdServer.of(sent[:3]) as server:
        given = ["--select", "name CA", "--select-2", "name CA", "--ref", "1"]
        status, _, err = run("contacts", adk.topology, server.address, *given)
    assert status == 2
    assert "--ref 1: of a stream, only the first frame can be the reference" in err


def test_ctrl_c_while_the_first_results_are_written(sent, adk, tmp_path, run, monkeypatch):
    write, calls = shared_analysis_steps._write_results, []

    def interrupted(*args, **options):
        calls.append(write(*args, **options))
        if len(calls) == 1:
            raise KeyboardInterrupt
        return calls[-1]

    monkeypatch.setattr(shared_analysis_steps, "_write_results", interrupted)
    with ImdServer.of(sent, gated=True) as server:
        server.allow(3)
        command = ["rmsd", adk.topology, server.address, "--select", "name CA", "-o"]
        status, _, _ = run(*command, tmp_path / "rmsd.csv")
    assert (status, len(calls)) == (0, 2)


def test_ctrl_c_before_the_first_results_are_written(sent, adk, tmp_path, run):
    with ImdServer.of(sent, gated=True) as server:
        server.allow(3)
        command = ["rmsd", adk.topology, server.address, "--select", "name CA", "-o"]
        with interrupted_at(shared_analysis_steps.follow, "while not update.is_last:"):
            status, _, _ = run(*command, tmp_path / "rmsd.csv")
    assert status == 0
    assert (tmp_path / "rmsd.csv").exists()


def test_a_caller_that_sleeps_between_updates_holds_no_simulation(sent, adk):
    with ImdServer.of(sent, gated=True) as server:
        server.allow(3)
        universe = paceline.Universe(adk.topology, server.address)
        rmsd = RMSD(universe.select_atoms("name CA"))
        updates = paceline.live(rmsd, every=0.01)
        assert next(updates).n_frames <= 3
        server.allow(len(sent))
        assert server.wait_until_sent(len(sent), PATIENCE)
        *_, last = updates
    assert (last.n_frames, len(rmsd.results.rmsd)) == (98, 98)


class KillsItsWorker:
    """Function of a block that once ends the worker process, some time after a frame has come."""

    def __init__(self, frame, seconds, done):
        self._frame, self._seconds, self._done, self._caller = frame, seconds, done, os.getpid()

    def __call__(self, block):
        if self._frame in block.frames and os.getpid() != self._caller:
            # If two workers get the frame, one of them creates the file.
            with contextlib.suppress(FileExistsError):
                self._done.touch(exist_ok=False)
                threading.Thread(target=self._kill, daemon=True).start()
        return block.positions[:, :3] * 2

    def _kill(self):
        time.sleep(self._seconds)
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.filterwarnings("ignore:a worker process was killed")
@pytest.mark.parametrize("n_runs", [2, pytest.param(20, marks=pytest.mark.full)])
def test_killed_workers_lose_no_frame_of_a_stream(n_runs, tmp_path):
    """In each run, one worker process is killed at a random moment."""
    n_frames, n_atoms, n_killed = 40, 10, 0
    frames = made_frames(n_frames, n_atoms, fields="p")
    structure = MDAnalysis.Universe.empty(n_atoms, trajectory=True)
    structure.atoms.write(tmp_path / "atoms.gro")
    for number in range(n_runs):
        random = np.random.default_rng(number)
        done, path = tmp_path / f"killed{number}", tmp_path / f"run{number}.nc"
        kills = KillsItsWorker(random.integers(n_frames), random.uniform(0, 0.02), done)
        with ImdServer.of(frames, gated=True) as server:
            server.allow(int(random.integers(1, n_frames)))
            universe = paceline.Universe(tmp_path / "atoms.gro", server.address, tee=path)
            series = paceline.TimeSeries(kills, universe.atoms)
            updates = paceline.live(series, every=0.001, backend="processes", n_workers=2)
            next(updates)
            server.allow(n_frames)
            *_, last = updates
        assert last.n_frames == n_frames
        wanted = paceline.open(path).positions()[:, :3] * 2
        assert np.array_equal(series.results.timeseries, wanted)
        n_killed += done.exists()
    assert n_killed == n_runs


class StallsItsWorker:
    """Function of a block that stalls a worker process at a frame until a file appears."""

    def __init__(self, frame, stalled, go):
        self._frame, self._stalled, self._go, self._caller = frame, stalled, go, os.getpid()

    def __call__(self, block):
        if self._frame in block.frames and os.getpid() != self._caller:
            self._stalled.touch()
            until(self._go.exists)
        return block.positions[:, :3] * 2


def test_a_stalled_worker_holds_no_simulation_and_loses_no_frame(tmp_path):
    """The worker is stalled until the engine has sent all frames."""
    n_frames, n_atoms = 60, 10
    stalled, go, path = tmp_path / "stalled", tmp_path / "go", tmp_path / "run.nc"
    structure = MDAnalysis.Universe.empty(n_atoms, trajectory=True)
    structure.atoms.write(tmp_path / "atoms.gro")
    with ImdServer.of(made_frames(n_frames, n_atoms, fields="p"), gated=True) as server:
        server.allow(20)

        def release():
            try:
                until(stalled.exists)
                server.allow(n_frames)
                assert server.wait_until_sent(n_frames, PATIENCE)
            finally:
                go.touch()

        universe = paceline.Universe(tmp_path / "atoms.gro", server.address, tee=path)
        series = paceline.TimeSeries(StallsItsWorker(5, stalled, go), universe.atoms)
        with in_thread(release):
            *_, last = paceline.live(series, every=0.001, backend="processes", n_workers=2)
        assert not server.paused.is_set()
        assert PAUSE not in server.received
    assert last.n_frames == n_frames
    assert np.array_equal(series.results.timeseries, paceline.open(path).positions()[:, :3] * 2)


def test_a_condition_ends_the_simulation(sent, adk):
    with ImdServer.of(sent, gated=True) as server:
        server.allow(30)
        universe = paceline.Universe(adk.topology, server.address)
        rmsd = RMSD(universe.select_atoms("name CA"))
        until_20 = paceline.live(
            rmsd, every=0.01, stop_when=lambda update: "known" if update.n_frames >= 20 else None
        )
        *_, last = until_20
        assert (last.n_frames >= 20, last.ended) == (True, "known")
        assert server.left.wait(PATIENCE)
        assert server.received == [GO, KILL]


def test_a_known_mean_ends_the_simulation(adk, tmp_path, run):
    frames = made_frames(200, N_ADK, fields="p")
    with ImdServer.of(frames, gated=True) as server:
        server.allow(len(frames) - 1)
        command = ["gyration", adk.topology, server.address, "-o", tmp_path / "rg.csv"]
        status, _, err = run(*command, "--stop-when", "gyration 99", "--every", "10ms")
        assert server.left.wait(PATIENCE)
    assert status == 0, err
    assert server.received == [GO, KILL]


def test_the_simulation_goes_on_if_the_caller_stops(sent, adk):
    with ImdServer.of(sent, gated=True) as server:
        server.allow(3)
        universe = paceline.Universe(adk.topology, server.address)
        for _ in paceline.live(RMSD(universe.select_atoms("name CA")), every=0.01):
            break
        assert server.left.wait(PATIENCE)
        assert KILL not in server.received


def test_a_stream_is_left_if_no_update_is_asked_for(sent, adk):
    with ImdServer.of(sent, gated=True) as server:
        server.allow(3)
        universe = paceline.Universe(adk.topology, server.address)
        paceline.live(RMSD(universe.select_atoms("name CA")), every=0.01)
        assert server.left.wait(PATIENCE)
        assert KILL not in server.received


def test_atoms_that_are_moved_in_the_universe_are_not_moved_in_the_file(sent, adk, tmp_path):
    with ImdServer.of(sent[:3]) as server:
        universe = paceline.Universe(adk.topology, server.address)
        universe.atoms.translate([100, 0, 0])
        path = str(tmp_path / "run.nc")
        [*paceline.live(RMSD(universe.select_atoms("name CA")), every=0.01, tee=path)]
    found = paceline.open(path)[0].positions
    np.testing.assert_array_equal(found, sent[0].positions)


def test_transformations_of_mdanalysis_are_refused_for_a_stream(sent, adk, tmp_path):
    with ImdServer.of(sent[:3]) as server:
        universe = paceline.Universe(adk.topology, server.address)
        universe.trajectory.add_transformations(translate([1, 0, 0]))
        with pytest.raises(UnsupportedError, match="transformations are not applied to a stream"):
            paceline.live(RMSD(universe.select_atoms("name CA")), tee=tmp_path / "run.nc")
        assert not (tmp_path / "run.nc").exists()
        universe.trajectory.close()


def test_a_warning_of_the_stream_is_issued_during_an_update(sent, adk):
    """The time runs backwards while the analysis of earlier frames waits for that frame."""
    frames = [*sent[:5], sent[5]._replace(time=0.0)]
    with ImdServer.of(frames, gated=True) as server:
        server.allow(5)
        universe = paceline.Universe(adk.topology, server.address)
        stream, first = universe.trajectory.stream, []

        def heights(block):
            if not first:
                server.allow(1)
                while stream.ended is None:
                    stopped.wait(0.01)
                first.append(True)
            return block.positions[:, 0, 2]

        stopped = threading.Event()
        series = paceline.TimeSeries(heights, universe.atoms[:1])
        with pytest.warns(PacelineWarning, match="time runs backwards"):
            [*paceline.live(series, every=0.01, backend="serial")]


def test_an_hdf5_file_is_refused_by_name(adk, tmp_path):
    path = str(tmp_path / "adk.h5md")
    whole = MDAnalysis.Universe(*adk)
    with MDAnalysis.Writer(path, whole.atoms.n_atoms) as writer:
        for _ in whole.trajectory[:3]:
            writer.write(whole.atoms)
    del writer  # it closes its file only now
    rmsd = RMSD(paceline.Universe(adk.topology, path).select_atoms("name CA"))
    with pytest.raises(UnsupportedError, match="an HDF5 file cannot be followed while it grows"):
        paceline.live(rmsd)
    with pytest.raises(UnsupportedError, match="let the simulation write XTC"):
        paceline.open(path).extend()


N_ATOMS = 20


def written_by_mdanalysis(path):
    """Write six frames, and return the content of the file after each of them."""
    universe = MDAnalysis.Universe.empty(N_ATOMS, trajectory=True)
    random, states = np.random.default_rng(1), []
    with MDAnalysis.Writer(path, N_ATOMS) as writer:
        for k in range(6):
            universe.atoms.positions = random.uniform(0, 9, (N_ATOMS, 3))
            universe.dimensions = [10, 10, 10, 90, 90, 90]
            universe.trajectory.ts.time = float(k)
            writer.write(universe.atoms)
            if path.endswith("ncdf"):
                writer.trjfile.sync()
            states.append(Path(path).read_bytes())
    if not states[0]:  # the writer keeps frames in memory
        file = paceline.open(path).chain.files[0]
        content = Path(path).read_bytes()
        offsets, sizes = file.extents(np.arange(file.n_frames, dtype=np.uint64))
        states = [content[:end] for end in (offsets + sizes).astype(int)]
    return states


def dump(n_frames):
    """Text of a LAMMPS dump."""
    text = ""
    for k in range(n_frames):
        positions = np.random.default_rng(k).uniform(0, 9, (N_ATOMS, 3))
        text += f"ITEM: TIMESTEP\n{100 * k}\nITEM: NUMBER OF ATOMS\n{N_ATOMS}\n"
        text += "ITEM: BOX BOUNDS pp pp pp\n" + 3 * "0 10\n" + "ITEM: ATOMS id type x y z\n"
        text += "".join(
            f"{i} 1 {x:.4f} {y:.4f} {z:.4f}\n" for i, (x, y, z) in enumerate(positions, 1)
        )
    return text.encode()


def history(n_frames):
    """Text of a HISTORY file, whose second line has the number of frames."""
    n_lines = 2 + n_frames * (4 + 2 * N_ATOMS)
    text = f"test\n{0:10d}{1:10d}{N_ATOMS:10d}{n_frames:21d}{n_lines:21d}\n"
    for k in range(n_frames):
        positions = np.random.default_rng(k).uniform(-4, 4, (N_ATOMS, 3))
        text += f"timestep{10 * k:10d}{N_ATOMS:10d}{0:10d}{1:10d}{0.001:20.6f}{0.01 * k:20.6f}\n"
        for row in 10 * np.eye(3):
            text += "".join(f"{x:20.10f}" for x in row) + "\n"
        for i, position in enumerate(positions, 1):
            text += f"{'Ar':8s}{i:10d}{39.9:12.6f}{0:12.6f}{0:12.6f}\n"
            text += "".join(f"{x:20.10f}" for x in position) + "\n"
    return text.encode()


@pytest.mark.parametrize("ending", ["xtc", "trr", "dcd", "ncdf", "lammpstrj", "HISTORY"])
def test_half_written_frames_are_awaited_in_each_format(ending, tmp_path):
    path = tmp_path / f"grows.{ending}"
    made = {"lammpstrj": dump, "HISTORY": history}.get(ending)
    states = [*map(made, range(1, 7))] if made else written_by_mdanalysis(str(path))
    path.write_bytes(states[0])
    grows = paceline.open(path)
    first, seen = grows.n_frames, [grows.n_frames]
    assert len(grows.times) == first
    for before, after in pairwise(states):
        # The program appends the frame, then it may write the header again.
        for part in (0.01, 0.3, 0.8, 0.99):
            end = len(before) + int(part * (len(after) - len(before)))
            path.write_bytes(before + after[len(before) : end])
            grows.extend()
            seen.append(grows.n_frames)
        path.write_bytes(after)
        grows.extend()
        seen.append(grows.n_frames)
    assert seen == sorted(seen)
    assert (first < seen[-1], seen[-1]) == (True, 6)
    whole = paceline.open(path)
    assert np.array_equal(grows.times, whole.times, equal_nan=True)
    assert grows.dt == whole.dt
    found = np.array([frame.positions for frame in grows])
    assert np.array_equal(found, [frame.positions for frame in whole])


@pytest.mark.parametrize("how", ["command", "live"])
def test_a_silent_stream_ends_after_a_given_time(sent, adk, tmp_path, run, how):
    with ImdServer.of(sent[:5], end="silent") as server:
        if how == "command":
            table = tmp_path / "rmsd.csv"
            command = ["rmsd", adk.topology, server.address, "--select", "name CA", "-o", table]
            status, _, err = run(*command, "--every", "10ms", "--idle", "2s")
            assert status == 1
        else:
            rmsd = RMSD(paceline.Universe(adk.topology, server.address).select_atoms("name CA"))
            with pytest.raises(ReadError) as caught:
                list(paceline.live(rmsd, every=0.01, idle=2))
            err = str(caught.value)
            assert len(rmsd.results.rmsd) == 5
    assert "nothing came within 2 s" in err
    assert "--idle" in err


@pytest.mark.parametrize("timeout", [0, -1, "soon"])
def test_times_without_data_are_above_0(adk, timeout):
    with pytest.raises(ValueError, match="timeout must be a number above 0 s"):
        paceline.Universe(adk.topology, "imd://127.0.0.1:1", timeout=timeout)


def test_a_stream_without_a_file_is_named_by_its_address(sent, adk, tmp_path, run_with_answer):
    table = tmp_path / "rmsd.csv"
    with ImdServer.of(sent[:5]) as server:
        command = ["rmsd", adk.topology, server.address, "--select", "name CA", "-o", table]
        status, _, err = run_with_answer(*command, "--every", "10ms")
    assert status == 0
    assert f"paceline: read {server.address}: 5 frames" in err
    assert f"# trajectory: {server.address}\n" in table.read_text()
    assert "stream.trr" not in err + table.read_text()


@pytest.mark.parametrize("tee", [True, False])
def test_times_that_run_backwards_are_reported_once(sent, adk, tmp_path, run, tee):
    """The warning names the stream, and is in the table."""
    table = tmp_path / "rg.csv"
    frames = [frame._replace(time=0.02 * (k % 10)) for k, frame in enumerate(sent[:20])]
    with ImdServer.of(frames) as server:
        command = ["gyration", adk.topology, server.address, "--select", "name CA", "-o", table]
        kept = ["--tee", tmp_path / "run.trr"] if tee else []
        status, _, err = run(*command, "--every", "10ms", *kept)
    assert status == 0, err
    warning = f"{server.address}: time runs backwards in frame 10, from 0.18 ps to 0 ps"
    for text in (" ".join(err.split()), table.read_text()):
        assert text.count(warning) == 1
        assert "--continuous" not in text
        assert "stream.trr" not in text


def test_a_stream_is_opened_between_two_frames(sent, adk, tmp_path, run, monkeypatch):
    """Half of each frame is in the file for most of the time."""

    def write_half(descriptor, data, offset):
        if offset in middles:
            time.sleep(0.1)
            return os_calls.write_at(descriptor, data, offset)
        written = os_calls.write_at(descriptor, data[: (len(data) + 1) // 2], offset)
        middles.add(offset + written)
        return written

    middles = set()
    monkeypatch.setattr(write_stream_to_file, "write_at", write_half)
    with ImdServer.of(sent[:5]) as server:
        command = ["gyration", adk.topology, server.address, "-o", tmp_path / "rg.csv"]
        status, _, err = run(*command, "--every", "10ms")
    assert status == 0, err
    assert "is cut" not in err


def test_warnings_of_a_stream_are_on_the_page_and_in_the_tables(sent, adk, tmp_path, run):
    with ImdServer.of(sent[:20], wrapped=True) as server:
        command = ["battery", adk.topology, server.address, "-o", tmp_path / "results"]
        status, _, err = run(*command, "--every", "10ms", "--no-unwrap")
    assert status == 0, err
    for name in ("rmsd.csv", "index.html"):
        assert "the engine wraps atoms into the cell" in (tmp_path / "results" / name).read_text()


@pytest.mark.parametrize("as_list", [True, False])
def test_analyses_of_mdanalysis_are_not_followed(adk, as_list):
    universe = paceline.Universe(*adk)
    theirs = MDAnalysis.analysis.rms.RMSD(universe.select_atoms("name CA"))
    with pytest.raises(UnsupportedError, match=r"RMSD is an MDAnalysis .* run it when the simul"):
        paceline.live([theirs] if as_list else theirs)
    with pytest.raises(TypeError, match="expected an analysis of paceline"):
        paceline.live(universe)


def test_unknown_options_of_a_stream_are_refused(adk):
    # Nothing listens on this port: a connection would be another error.
    address = "imd://127.0.0.1:1"
    with pytest.raises(UnsupportedError, match=r"unknown option foo=: a stream has units=, dt="):
        paceline.Universe(adk.topology, address, foo=3)
    with pytest.raises(UnsupportedError, match=r"cache= applies to files"):
        paceline.Universe(adk.topology, address, cache="/tmp")
    with pytest.raises(ReadError, match="no engine listens"):
        paceline.Universe(adk.topology, address, force_chainids_to_segids=True)


@pytest.mark.parametrize("version", [2, 3])
def test_a_command_that_is_refused_says_goodbye(adk, version, tmp_path):
    frames = made_frames(2, N_ADK, version=version, fields="p")
    # The server waits after the first frame, so that it sees the farewell.
    with ImdServer.of(frames, version=version, gated=True) as server:
        server.allow(1)
        command = ["rmsd", adk.topology, server.address, "--select", "name CA", "-o", "rmsd.csv"]
        kept = ["--tee", "run.trr", "--tee-atoms", "name XX", "--dt", "1ps"]
        ended = subprocess.run(
            [sys.executable, "-m", "paceline", *command, *kept],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert server.left.wait(PATIENCE)
    assert ended.returncode == 2, ended.stderr
    assert "tee_atoms" in ended.stderr.replace("--tee-atoms", "tee_atoms")
    assert server.received == [GO, DISCONNECT]
    assert not server.paused.is_set()


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("[rmsd]\nselect = 'name CA'\n[gyration]\nselect = 'name XX'\n", "name XX"),
        ("[rmsd]\nselect = 'name CA'\n[dssp]\nselect = 'name CA'\n", "dssp"),
        ("[gyration]\nselekt = 'name CA'\n", "selekt"),
    ],
)
def test_a_battery_is_refused_before_it_connects(adk, tmp_path, run, file, message):
    battery = tmp_path / "battery.toml"
    battery.write_text(file)
    with ImdServer.of([Frame(positions=np.zeros((N_ADK, 3), np.float32))]) as server:
        status, _, err = run(
            "run", battery, adk.topology, server.address, "-o", tmp_path / "results"
        )
        assert server.received == []
    assert status == 2
    assert message in err
    # Nothing listens on this port: a connection is another error.
    battery.write_text("[rmsd]\nselect = 'name CA'\n[gyration]\nselect = 'name CA'\n")
    status, _, err = run(
        "run", battery, adk.topology, "imd://127.0.0.1:1", "-o", tmp_path / "results"
    )
    assert "no engine listens" in err


@pytest.mark.parametrize("command", ["rmsd", "gyration", "rmsf"])
def test_an_empty_selection_is_refused_before_a_command_connects(adk, run, command):
    status, _, err = run(command, adk.topology, "imd://127.0.0.1:1", "--select", "name XX")
    assert status == 2
    assert "no atoms match 'name XX'" in err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["gyration", "--tee", "run.h5md"], "run.h5md: expected a name that ends in"),
        (["gyration", "--tee-atoms", "protein"], "name the file, --tee"),
        (["gyration", "--checkpoint", "kept"], "omit --checkpoint"),
        (["gyration", "--tee", "kept.trr"], "kept.trr exists: it is replaced only with"),
        (["gyration", "--guess-bonds", "--tee", "kept.trr"], "kept.trr exists: it is"),
        (["gyration", "--tee", "absent/run.trr"], "the folder absent does not exist"),
        (["gyration", "-o", "kept.csv"], "kept.csv exists: it is replaced only with"),
        (["battery", "--tee", "kept.trr"], "kept.trr exists: it is replaced only with"),
        (["battery", "-o", "used"], "index.html exists: it is replaced only with"),
        (["run", "battery.toml", "-o", "other"], "rmsd.csv exists: it is replaced only with"),
        (["battery", "-o", "kept.csv"], "-o must name a folder for the results"),
        (["battery", "--equilibrated"], "--equilibrated needs a complete trajectory"),
        (["battery", "--replicas"], "expected a file of this machine, found a URL"),
        (["velocity-autocorrelation", "--tee", "run.xtc"], "XTC cannot store velocities"),
        (["velocity-autocorrelation", "--tee", "run.dcd"], "ends in .trr or .nc or .ncdf"),
    ],
)
def test_commands_refuse_options_before_they_connect(
    adk, tmp_path, monkeypatch, run, options, message
):
    monkeypatch.chdir(tmp_path)
    for name in ("kept.trr", "kept.csv", "used/index.html", "other/rmsd.csv"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).touch()
    Path("battery.toml").write_text("[rmsd]\nselect = 'name CA'\n[dssp]\n")
    # Nothing listens on this port: a connection would be another error.
    status, _, err = run(*options, "-s", adk.topology, "-f", "imd://127.0.0.1:1")
    assert status in (1, 2)
    assert message in " ".join(err.split())
    assert "no engine listens" not in err


@pytest.mark.parametrize("kept", [{}, {"tee_step": 2}])
@pytest.mark.parametrize("named", ["with the Universe", "with the run"])
def test_a_file_without_a_needed_field_is_refused(sent, adk, tmp_path, named, kept):
    """The analysis has a second stage, which would read the file at the end of the stream."""
    tee = {"tee": tmp_path / "run.xtc"}
    opening, running = (tee, {}) if named == "with the Universe" else ({}, tee)
    with ImdServer.of(sent[:3], gated=True) as server:
        server.allow(1)
        universe = paceline.Universe(adk.topology, server.address, **opening)
        given = [RMSD(universe.atoms[:9]), VelocityAutocorrelation(universe.atoms[:9])]
        with pytest.raises(UnsupportedError, match=r"run.xtc: XTC cannot store velocities, which"):
            paceline.run(given, **running, **kept)
        assert not list(tmp_path.iterdir())
        universe.trajectory.close()
