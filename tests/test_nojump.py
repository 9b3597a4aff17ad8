"""Tests of unwrapping atoms across cell faces, which needs all frames before."""

import pickle
import re
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import MDAnalysis
import numpy as np
import pytest
from helpers.scans import PathLength, path_lengths
from helpers.waiting import PATIENCE
from MDAnalysis.lib.mdamath import triclinic_vectors
from MDAnalysis.transformations import NoJump
from MDAnalysis.transformations import unwrap as unwrap_of_mdanalysis
from MDAnalysisTests import datafiles

import paceline
from paceline import _core, checkpoint
from paceline.analysis.msd import EinsteinMSD
from paceline.analysis.rms import RMSD, RMSF
from paceline.contract import plan
from paceline.engine import run_plan, scheduler, transform_states
from paceline.engine.worker import Worker
from paceline.errors import PacelineWarning, SelectionError, TransformError, UnsupportedError
from paceline.transform import nojump, unwrap, wrap
from paceline.transform.nojump_workers import CoreNoJump, NoJumpScan, unwrap_series

N_FRAMES, N_ATOMS = 150, 40


def cells():
    """Return tilted cells whose lengths and angles vary."""
    t = np.arange(N_FRAMES)[:, None]
    lengths = [30, 33, 28] + 2 * np.sin(0.1 * t + [0, 1, 2])
    angles = [75, 100, 62] + 3 * np.cos(0.07 * t + [2, 1, 0])
    return np.hstack([lengths, angles]).astype(np.float32)


@pytest.fixture(scope="module")
def walk(tmp_path_factory):
    """Files of atoms that move through many cells, and their unwrapped positions, Å."""
    folder = tmp_path_factory.mktemp("walk")
    steps = np.random.default_rng(11).uniform(-0.45, 0.45, (N_FRAMES, N_ATOMS, 3))
    along = 0.5 + np.cumsum(steps, axis=0)
    images = np.floor(along) - np.floor(along[0])
    universe = MDAnalysis.Universe.empty(N_ATOMS, trajectory=True)
    universe.add_TopologyAttr("names", ["A"] * 30 + ["B"] * 10)
    expected = np.empty(along.shape)
    with MDAnalysis.Writer(str(folder / "walk.dcd"), N_ATOMS) as writer:
        for frame, cell in enumerate(cells()):
            vectors = triclinic_vectors(cell).astype(float)
            inside = ((along[frame] - np.floor(along[frame])) @ vectors).astype(np.float32)
            universe.atoms.positions, universe.dimensions = inside, cell
            writer.write(universe.atoms)
            expected[frame] = inside + images[frame] @ vectors
    universe.dimensions = cells()[0]
    universe.atoms.write(folder / "walk.pdb")
    return (str(folder / "walk.pdb"), str(folder / "walk.dcd")), expected


@pytest.fixture
def atoms(walk):
    return paceline.Universe(*walk[0]).atoms


def positions(block):
    return block.positions


def followed(atoms, transform=None, *, before=(), after=(), **options):
    """Return the unwrapped positions in each frame."""
    series = paceline.TimeSeries(positions, atoms)
    series.run(transforms=[*before, transform or nojump(), *after], **options)
    return series.results.timeseries


def test_atoms_go_on_where_they_would(walk, atoms):
    found = followed(atoms)
    np.testing.assert_allclose(found, walk[1], atol=2e-3)
    assert np.abs(found - np.array([ts.positions for ts in atoms.universe.trajectory])).max() > 200


@pytest.mark.parametrize(
    "frames",
    [
        [0, 2, 3, 6],  # as many frames between the first and the last as with equal steps
        [5, 8, 9, 12, 17, 20],
        [*range(0, 60, 3), 61, 63],
        [1, 4, 7, 10],
    ],
)
@pytest.mark.parametrize("how", [{"backend": "serial"}, {"n_workers": 2}])
def test_frames_at_any_distances_are_those_of_all_frames(atoms, frames, how):
    wanted = followed(atoms, backend="serial")[frames]
    for block_frames in (1, 2, 64):
        found = followed(atoms, frames=frames, block_frames=block_frames, **how)
        assert np.array_equal(found, wanted)


@pytest.mark.parametrize("kind", ["rectangular", "leaning and varying"])
def test_nojump_is_mdanalysis_s(kind, walk):
    files = walk[0] if kind != "rectangular" else (datafiles.PRM_NCBOX, datafiles.TRJ_NCBOX)
    universe = MDAnalysis.Universe(*files)
    universe.trajectory.add_transformations(NoJump())
    theirs = np.array([ts.positions.copy() for ts in universe.trajectory])
    found = followed(paceline.Universe(*files).atoms)
    np.testing.assert_allclose(found, theirs, atol=1e-3)


def test_molecules_stay_whole():
    files = datafiles.TPR, datafiles.XTC
    theirs = MDAnalysis.Universe(*files)
    water = theirs.select_atoms("resname SOL and index 0-5000 and not name MW")
    theirs.trajectory.add_transformations(unwrap_of_mdanalysis(water), NoJump())
    expected = np.array([water.positions.copy() for _ in theirs.trajectory])
    ours = paceline.Universe(*files).atoms[water.indices]
    np.testing.assert_allclose(followed(ours, before=[unwrap()]), expected, atol=1e-3)


def test_bits_are_the_same_everywhere(everywhere, atoms):
    wanted = followed(atoms, backend="serial", max_memory=0)
    assert np.array_equal(followed(atoms, **everywhere), wanted)


@pytest.mark.parametrize("block_frames", [1, 32, 10**6])
@pytest.mark.parametrize("max_memory", [0, None])
def test_bits_depend_neither_on_blocks_nor_on_memory(block_frames, max_memory, atoms):
    wanted = followed(atoms, backend="serial")
    options = {"block_frames": block_frames, "max_memory": max_memory}
    assert np.array_equal(followed(atoms, **options), wanted)


@pytest.mark.parametrize(
    "frames",
    [{"step": 7}, {"start": 40}, {"start": 3, "stop": 90, "step": 2}, {"frames": [5, 6, 80, 149]}],
    ids=str,
)
def test_every_frame_is_followed_whatever_is_analysed(frames, walk, atoms):
    series = paceline.TimeSeries(positions, atoms).run(transforms=[nojump()], **frames)
    np.testing.assert_allclose(series.results.timeseries, walk[1][series.frames], atol=2e-3)


@pytest.mark.parametrize("backend", ["serial", "threads"])
def test_one_pass_suffices_where_images_are_handed_on(backend, atoms):
    rmsd = RMSD(atoms).run(transforms=[nojump()], backend=backend)
    assert sorted(block.block for block in rmsd.timings.blocks) == list(range(10))
    rmsf = RMSF(atoms, align=True).run(transforms=[nojump()], backend=backend, max_memory=0)
    assert [block.bytes > 0 for block in rmsf.timings.blocks] == [True] * 20


@pytest.mark.parametrize("frames", [{"start": 40}, {"start": 3, "stop": 90, "step": 2}], ids=str)
def test_frames_that_are_passed_over_are_read_once(frames, atoms, tmp_path, monkeypatch):
    options = {"transforms": [nojump()], "max_memory": 0, **frames}
    one = RMSF(atoms, align=True).run(**options)
    two = RMSF(atoms, align=True).run(checkpoint=tmp_path / "file", **options)
    passes = [{block.job for block in run.timings.blocks} for run in (one, two)]
    assert [len(jobs) for jobs in passes] == [2, 3]
    frame_bytes = RMSF(atoms).run(stop=1).timings.blocks[0].bytes
    read = sum(block.bytes for block in one.timings.blocks)
    assert read == 2 * frame_bytes * (one.frames[-1] + 1)
    assert one.results.rmsf.tobytes() == two.results.rmsf.tobytes()
    # A leaf may contain only its own frame.
    monkeypatch.setattr(plan, "LARGEST_LEAF_BYTES", 12 * N_ATOMS)
    apart = RMSF(atoms, align=True).run(**options)
    assert len({block.job for block in apart.timings.blocks}) == 3
    np.testing.assert_allclose(apart.results.rmsf, one.results.rmsf, rtol=1e-5)


@pytest.mark.parametrize("kept", [False, True])
def test_blocks_have_room_for_frames_that_are_passed_over(kept, atoms, tmp_path, monkeypatch):
    wanted = followed(atoms)[::5]
    monkeypatch.setattr(run_plan, "LARGEST_BLOCK_BYTES", 5 * 16 * 12 * N_ATOMS)
    checkpoint = {"checkpoint": tmp_path / "file"} if kept else {}
    series = paceline.TimeSeries(positions, atoms)
    series.run(transforms=[nojump()], step=5, block_frames=10**6, **checkpoint)
    np.testing.assert_array_equal(series.results.timeseries, wanted)
    sizes = [block.n_frames for block in series.timings.blocks if block.job == kept]
    assert sorted(sizes) == [14, 16]


def test_frames_are_decoded_once_where_memory_allows(atoms, tmp_path):
    options = {"transforms": [nojump()], "backend": "serial", "checkpoint": tmp_path / "file"}
    # Without a memory limit, the result depends on the other processes of the machine.
    rmsd = RMSD(atoms).run(**options, max_memory="1 GiB")
    assert [block.bytes > 0 for block in rmsd.timings.blocks] == [True] * 10 + [False] * 10
    rmsd.run(**options, max_memory=0)
    assert [block.bytes > 0 for block in rmsd.timings.blocks] == [True] * 20


@pytest.mark.parametrize("after", [(), (wrap(),)], ids=["alone", "wrapped"])
def test_one_pass_gives_the_bits_of_two(after, atoms, tmp_path):
    two = followed(atoms, after=after, checkpoint=tmp_path / "file")
    for options in ({"backend": "serial"}, {"n_workers": 3, "block_frames": 16}):
        assert np.array_equal(followed(atoms, after=after, **options), two)


def test_a_block_that_is_never_read_is_read_again(atoms, monkeypatch):
    wanted = followed(atoms, backend="serial")
    monkeypatch.setattr(transform_states, "LATE", 0.1)
    read, never, begun = Worker._read, threading.Event(), []

    def hanging(self, task):
        begun.append(task.number)
        if begun.count(task.number) == 1 and task.number in (2, 3):
            never.wait(PATIENCE)
        return read(self, task)

    monkeypatch.setattr(Worker, "_read", hanging)
    monkeypatch.setattr(scheduler, "SHORTEST", 0.1)
    try:
        found = followed(atoms, n_workers=3, block_frames=16)
    finally:
        never.set()
    assert np.array_equal(found, wanted)
    assert begun.count(2) > 1


def test_states_of_blocks_that_are_collected_are_used_again(walk, atoms):
    frames = np.array([ts.positions.copy() for ts in atoms.universe.trajectory])
    cell = _core.cells_of_dimensions(cells())
    relay = transform_states.Relay(CoreNoJump(N_ATOMS, np.arange(N_ATOMS)), skip_damaged=False)

    def apply(number):
        rows = slice(16 * number, 16 * number + 16)
        block = frames[rows].copy()
        assert relay.apply(number, block, cell[rows], None) == []
        return block

    moved = [apply(0), apply(1)]
    again = apply(1)
    assert np.array_equal(again, moved[1])
    relay.release(0)
    relay.release(1)
    moved += [apply(2), apply(3)]
    # The state of block 0 is freed, but not that of block 1, which another attempt may be reading.
    assert len(relay._states) == 2
    assert not relay._unused
    relay.release(2)
    moved.append(apply(4))
    assert np.array_equal(apply(4), moved[4])
    # An attempt that is too late, whose result does not count.
    assert np.array_equal(apply(2), frames[32:48])
    np.testing.assert_allclose(np.concatenate(moved), walk[1][:80], atol=2e-3)


def test_workers_that_wait_are_released(atoms, monkeypatch):
    before = set(threading.enumerate())

    def failing(self, task):
        raise Interrupted

    read = Worker._read
    monkeypatch.setattr(
        Worker, "_read", lambda self, task: (failing if task.number == 0 else read)(self, task)
    )
    with pytest.raises(Interrupted):
        followed(atoms, n_workers=4, block_frames=16)
    for thread in set(threading.enumerate()) - before:
        if not re.fullmatch(r"paceline-\d+", thread.name):
            continue  # another thread of this process, such as one that reads ahead
        thread.join(PATIENCE)
        assert not thread.is_alive(), thread


def test_a_group_is_followed_and_the_others_stay(walk, atoms):
    found = followed(atoms, nojump("name B"))
    np.testing.assert_allclose(found[:, 30:], walk[1][:, 30:], atol=2e-3)
    inside = [ts.positions.copy() for ts in atoms.universe.trajectory]
    assert np.array_equal(found[:, :30], np.array(inside)[:, :30])
    # None of the analysed atoms is unwrapped.
    assert np.array_equal(followed(atoms[:5], nojump("name B")), np.array(inside)[:, :5])


@pytest.mark.parametrize("n_followed", [0, 3])
def test_threads_note_states_of_one_array(n_followed):
    follower = CoreNoJump(N_ATOMS, np.arange(n_followed)).follower(True)
    states, blocks = np.zeros((400, n_followed, 3), np.int16), iter(range(400))
    frames = np.ones((16, N_ATOMS, 3), np.float32)
    cell = _core.cells_of_dimensions(cells()[:1].repeat(16, axis=0))

    def move_on(_):
        try:
            for number in blocks:
                assert follower.move_on(number, frames.copy(), cell, states[number]) == []
        except BaseException:
            # Other threads wait for this block.
            follower.close()
            raise

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(move_on, range(4)))


def test_wrapped_again_they_are_where_they_were(atoms):
    inside = followed(atoms, wrap())
    np.testing.assert_allclose(followed(atoms, after=[wrap()]), inside, atol=2e-2)


def test_several_stages_and_analyses(walk, atoms):
    rmsd, rmsf = RMSD(atoms, superposition=False), RMSF(atoms, align=True)
    paceline.run([rmsd, rmsf], transforms=[nojump()], max_memory="1 kB")
    offsets = walk[1] - walk[1][0]
    expected = np.sqrt((offsets**2).sum(axis=2).mean(axis=1))
    np.testing.assert_allclose(rmsd.results.rmsd[:, 2], expected, rtol=1e-4)
    kept = RMSF(atoms, align=True).run(transforms=[nojump()])
    assert kept.results.rmsf.tobytes() == rmsf.results.rmsf.tobytes()


@pytest.mark.parametrize("kept", [False, True])
def test_a_scan_may_follow(kept, walk, atoms, tmp_path):
    """Check two passes, or three if blocks do not pass images on."""
    one = PathLength(atoms)
    checkpoint = {"checkpoint": tmp_path / "file"} if kept else {}
    one.run(transforms=[nojump()], backend="serial", block_frames=16, **checkpoint)
    assert len(one.timings.blocks) == (30 if kept else 20)
    np.testing.assert_allclose(one.results.lengths, path_lengths(walk[1]), rtol=1e-4)
    some = PathLength(atoms).run(transforms=[nojump()], start=3, step=7, n_workers=2)
    wanted = path_lengths(walk[1][3::7])
    np.testing.assert_allclose(some.results.lengths, wanted, rtol=1e-4, atol=1e-3)


def test_a_reference_frame_is_followed_too(walk, atoms):
    found = RMSD(atoms, ref_frame=70, superposition=False).run(transforms=[nojump()], start=60)
    assert found.results.rmsd[10, 2] < 1e-3
    offsets = walk[1][60:] - walk[1][70]
    expected = np.sqrt((offsets**2).sum(axis=2).mean(axis=1))
    np.testing.assert_allclose(found.results.rmsd[:, 2], expected, rtol=1e-4, atol=1e-3)


def test_frames_on_the_way_to_a_reference_frame_may_be_left_out(walk, tmp_path):
    atoms = without_cells(walk, tmp_path, [0, 20, 21])
    with pytest.warns(PacelineWarning, match="3 frames left out"):
        there = followed(atoms, on_error="skip").astype(float)
    found = RMSD(atoms, ref_frame=30, superposition=False)
    with pytest.warns(PacelineWarning, match="3 frames left out"):
        found.run(transforms=[nojump()], on_error="skip")
    expected = np.sqrt(((there - there[30]) ** 2).sum(axis=2).mean(axis=1))
    np.testing.assert_allclose(found.results.rmsd[:, 2], expected, rtol=1e-5, atol=1e-4)
    with pytest.raises(TransformError, match="frame 20 cannot be the reference"):
        RMSD(atoms, ref_frame=20).run(transforms=[nojump()], on_error="skip")


def test_a_reference_frame_may_be_counted_from_the_end(atoms):
    found = RMSD(atoms, ref_frame=-1, superposition=False).run(transforms=[nojump()])
    assert found.results.rmsd[-1, 2] < 1e-3 < found.results.rmsd[0, 2]


def without_cells(walk, folder, frames):
    """Write the files with some frames that have no cell."""
    universe = MDAnalysis.Universe(*walk[0])
    path = str(folder / "gaps.trr")
    with MDAnalysis.Writer(path, N_ATOMS) as writer:
        for ts in universe.trajectory:
            if ts.frame in frames:
                ts.dimensions = None
            writer.write(universe.atoms)
    return paceline.Universe(walk[0][0], path).atoms


@pytest.mark.parametrize("block_frames", [1, 16, 64])
def test_frames_that_are_left_out_are_passed_over(block_frames, walk, tmp_path):
    # The first frames (more than a leaf) and the last one have no cell; steps over two frames may
    # be long.
    gaps = [0, 1, *range(15, 40), 60, 64, 149]
    atoms = without_cells(walk, tmp_path, gaps)
    options = {"backend": "serial", "on_error": "skip", "block_frames": block_frames}
    with pytest.warns(PacelineWarning, match=r"30 frames left out, the first is 0; nojump"):
        found = followed(atoms, **options)
    assert np.flatnonzero(np.isnan(found).all(axis=(1, 2))).tolist() == gaps
    kept = np.setdiff1d(np.arange(N_FRAMES), gaps)
    universe = MDAnalysis.Universe(*walk[0])
    last, images = None, 0
    for frame in kept:
        ts = universe.trajectory[frame]
        now = ts.positions.astype(float) @ np.linalg.inv(ts.triclinic_dimensions.astype(float))
        images = images - np.rint(now - last) if last is not None else np.zeros_like(now)
        expected = ts.positions + images @ ts.triclinic_dimensions.astype(float)
        np.testing.assert_allclose(found[frame], expected, atol=1e-2)
        last = now
    for backend in ("threads", "processes"):
        with pytest.warns(PacelineWarning, match="30 frames"):
            again = followed(atoms, **{**options, "backend": backend})
        assert np.array_equal(again, found, equal_nan=True)


@pytest.mark.parametrize(
    "frames", [{"step": 2}, {"start": 10, "step": 3}, {"frames": [3, *range(15, 60), 99]}], ids=str
)
def test_several_frames_in_turn_may_be_left_out(frames, walk, tmp_path):
    atoms = without_cells(walk, tmp_path, [*range(20, 29), 60, 64])
    series = paceline.TimeSeries(positions, atoms)
    with pytest.warns(PacelineWarning, match="11 frames left out"):
        whole = followed(atoms, on_error="skip")
    with pytest.warns(PacelineWarning, match="frames left out"):
        series.run(transforms=[nojump()], on_error="skip", **frames)
    np.testing.assert_array_equal(series.results.timeseries, whole[series.frames])
    again = paceline.TimeSeries(positions, atoms)
    with pytest.warns(PacelineWarning, match="frames left out"):
        again.run(transforms=[nojump()], on_error="skip", backend="processes", **frames)
    assert again.damaged == series.damaged


@pytest.mark.parametrize("backend", ["serial", "processes"])
def test_frames_without_any_position_are_left_out(backend, walk, tmp_path):
    universe = MDAnalysis.Universe(*walk[0])
    path, gaps = str(tmp_path / "lost.dcd"), [0, 15, 16, 31, 40, 63]
    with MDAnalysis.Writer(path, N_ATOMS) as writer:
        for ts in universe.trajectory[:64]:
            if ts.frame in gaps:
                ts.positions[:] = np.nan
            writer.write(universe.atoms)
    atoms = paceline.Universe(walk[0][0], path).atoms
    options = {"backend": backend, "block_frames": 16}
    with pytest.raises(
        TransformError, match=r"frame \d+: atom 0 of those that are read is at \(NaN"
    ):
        followed(atoms, **options)
    series = paceline.TimeSeries(positions, atoms)
    with pytest.warns(PacelineWarning, match="6 frames left out"):
        series.run(transforms=[nojump()], on_error="skip", **options)
    assert [frame for frame, _ in series.damaged] == gaps
    with pytest.warns(PacelineWarning):
        same = followed(without_cells(walk, tmp_path, gaps), stop=64, on_error="skip")
    np.testing.assert_allclose(series.results.timeseries, same, atol=1e-3)


@pytest.mark.parametrize("backend", ["serial", "threads", "processes"])
def test_atoms_that_are_thousands_of_cells_away_are_refused(backend, walk, tmp_path):
    universe, path = MDAnalysis.Universe(*walk[0]), str(tmp_path / "far.dcd")
    with MDAnalysis.Writer(path, N_ATOMS) as writer:
        for ts in universe.trajectory[:32]:
            if ts.frame == 17:
                ts.positions[7] += 1e6
            writer.write(universe.atoms)
    atoms = paceline.Universe(walk[0][0], path).atoms
    options = {"backend": backend, "block_frames": 16}
    with pytest.raises(TransformError, match=r"frame 17: atom 7 .*up to 16383 cells away"):
        followed(atoms, **options)
    with pytest.warns(PacelineWarning, match="1 frame left out, the first is 17"):
        found = followed(atoms, on_error="skip", **options)
    with pytest.warns(PacelineWarning):
        same = followed(without_cells(walk, tmp_path, [17]), stop=32, on_error="skip")
    np.testing.assert_allclose(found, same, atol=1e-3)


@pytest.mark.parametrize("options", [{"n_workers": 2}, {"backend": "processes"}])
def test_frames_without_positions_change_no_cell(options, walk, tmp_path):
    """Check files in which GROMACS wrote velocities more often than positions."""
    universe, path = MDAnalysis.Universe(*walk[0]), str(tmp_path / "velocities.trr")
    with MDAnalysis.Writer(path, N_ATOMS) as writer:
        for ts in universe.trajectory[:32]:
            ts.velocities = np.ones((N_ATOMS, 3))
            ts.has_positions = ts.frame % 4 == 0
            writer.write(universe.atoms)
    series = paceline.TimeSeries(positions, paceline.Universe(walk[0][0], path).atoms)
    with pytest.warns(PacelineWarning) as told:
        series.run(transforms=[nojump()], on_error="skip", block_frames=8, **options)
    assert "24 frames left out" in str(told[0].message)
    assert not any("changes by more than half" in str(one.message) for one in told)


@pytest.mark.parametrize("block_frames", [1, 16, 150])
def test_cells_that_change_by_more_than_half_are_named(block_frames, walk, tmp_path):
    universe, path = MDAnalysis.Universe(*walk[0]), str(tmp_path / "leaning.trr")
    with MDAnalysis.Writer(path, N_ATOMS) as writer:
        for ts in universe.trajectory[:64]:
            lengths = [30, 30, 50 if 31 < ts.frame < 40 else 30]
            # The cell tilts to the other side at the end of a leaf and within one, and slightly
            # more from frame 50 on.
            ts.dimensions = [
                *lengths,
                90,
                90,
                61 if 10 < ts.frame < 48 else 119 + 3 * (ts.frame > 50),
            ]
            writer.write(universe.atoms)
    atoms = paceline.Universe(walk[0][0], path).atoms
    words = r"changes by more than half an edge at 4 frames, the first is 11; nojump may"
    for options in ({"backend": "serial"}, {"n_workers": 2}, {"start": 1}, {"frames": [3, 50, 60]}):
        with pytest.warns(PacelineWarning, match=words):
            followed(atoms, block_frames=block_frames, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        followed(atoms, stop=11)


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("scheme", ["lattice", "tor"])
@pytest.mark.parametrize("n_done", [4, 9, 10, 14])
def test_a_run_resumes_in_either_pass(
    n_done, scheme, atoms, molecules, tmp_path, monkeypatch, nothing_overdue
):
    how = {"transform": nojump(scheme=scheme)}
    if scheme == "tor":
        atoms, how["before"] = molecules[0], WHOLE
    wanted = followed(atoms, **how)
    monkeypatch.setattr(checkpoint, "INTERVAL", 0.0)
    monkeypatch.setattr(checkpoint, "SHARE", 0)
    do_block, done = Worker.run, []

    def failing(self, task):
        if len(done) == n_done:
            raise Interrupted
        done.append(task)
        return do_block(self, task)

    path = tmp_path / "checkpoint"
    monkeypatch.setattr(Worker, "run", failing)
    with pytest.raises(Interrupted):
        followed(atoms, **how, backend="serial", checkpoint=path, block_frames=16)
    assert path.exists()
    done.clear()
    monkeypatch.setattr(Worker, "run", lambda self, task: done.append(task) or do_block(self, task))
    found = followed(atoms, **how, checkpoint=path, backend="threads")
    assert np.array_equal(found, wanted)
    assert len(done) <= 20 - n_done + 1
    assert not path.exists()


def test_a_first_pass_resumes_with_other_workers(atoms, tmp_path, monkeypatch):
    """Check that a resumed run keeps the blocks of the killed run, also if frames were added."""
    wanted = followed(atoms, start=120)
    monkeypatch.setattr(checkpoint, "INTERVAL", 0.0)
    monkeypatch.setattr(checkpoint, "SHARE", 0)
    monkeypatch.setattr(plan, "BLOCKS_PER_WORKER", 2)
    do_block, done = Worker.run, []

    def failing(self, task):
        if len(done) == 2:
            raise Interrupted
        done.append(task)
        return do_block(self, task)

    path = tmp_path / "checkpoint"
    with monkeypatch.context() as patch:
        patch.setattr(Worker, "run", failing)
        with pytest.raises(Interrupted):
            followed(atoms, backend="serial", checkpoint=path, start=120)
    found = followed(atoms, n_workers=16, checkpoint=path, start=120)
    assert np.array_equal(found, wanted)


def moved(block):
    """Return displacements over two frames."""
    rows = np.arange(len(block))
    return block.positions - block.positions[np.maximum(rows - 2, 0)]


@pytest.mark.parametrize("scheme", ["lattice", "tor"])
@pytest.mark.parametrize("options", [{}, {"start": 7, "step": 3}, {"max_memory": 0}])
def test_blocks_with_a_halo_begin_with_its_images(options, scheme, atoms, molecules):
    before = ()
    if scheme == "tor":
        atoms, before = molecules[0], WHOLE
    transform = nojump(scheme=scheme)
    wanted = followed(atoms, transform, before=before, **options)
    wanted -= wanted[np.maximum(np.arange(len(wanted)) - 2, 0)]
    series = paceline.TimeSeries(moved, atoms, halo=(2, 1))
    series.run(transforms=[*before, transform], block_frames=16, **options)
    assert np.array_equal(series.results.timeseries, wanted)


def test_progress_counts_both_passes(atoms, capsys, tmp_path):
    checkpoint = tmp_path / "file"
    RMSD(atoms).run(transforms=[nojump()], verbose=True, start=50, checkpoint=checkpoint)
    first, _, second = capsys.readouterr().err.rpartition("pass 2 of 2: ")
    assert "pass 1 of 2: " in first
    assert "100/100" in second


def test_blocks_grow_until_there_is_room_for_images(walk, atoms, monkeypatch, tmp_path):
    monkeypatch.setattr(transform_states, "STATES_BYTES", 3 * 6 * N_ATOMS)
    checkpoint = {"checkpoint": tmp_path / "file"}
    rmsd = RMSD(atoms, superposition=False).run(transforms=[nojump()], **checkpoint)
    assert len(rmsd.timings.blocks) == 2 * 3
    rmsf = RMSF(atoms, align=True).run(transforms=[nojump()])
    assert len(rmsf.timings.blocks) == 2 * 3
    monkeypatch.setattr(transform_states, "LARGEST_BLOCK_BYTES", 20 * 12 * N_ATOMS)
    with pytest.raises(UnsupportedError, match=r"images of 40 atoms .* takes 2\.4 kB"):
        RMSF(atoms, align=True).run(transforms=[nojump()])
    with pytest.raises(UnsupportedError, match="in 10 frames"):
        followed(atoms, **checkpoint)
    with pytest.raises(UnsupportedError, match="in 5 frames"):
        followed(atoms, step=2, **checkpoint)
    with pytest.raises(UnsupportedError, match="in 75 frames"):
        followed(atoms, frames=[*range(0, 147, 2), 149], **checkpoint)
    # Images that are passed on once are not kept.
    followed(atoms)
    followed(atoms, step=2)


def test_counts_of_the_first_pass_are_merged_as_they_come(atoms, tmp_path, monkeypatch):
    wanted, merge = followed(atoms), NoJumpScan.merge
    sizes = []

    def merge_and_count(self, left, right):
        found = merge(self, left, right)
        sizes.append((found.last - found.first + 1, sum(noted_bytes(found.noted))))
        return found

    def noted_bytes(noted):
        if len(noted) == 2:
            yield noted.images.nbytes
        else:
            yield from noted_bytes(noted.left)
            yield noted.between.nbytes
            yield from noted_bytes(noted.right)

    monkeypatch.setattr(NoJumpScan, "merge", merge_and_count)
    series = paceline.TimeSeries(positions, atoms)
    options = {"transforms": [nojump()], "checkpoint": tmp_path / "file"}
    series.run(backend="serial", block_frames=16, **options)
    assert np.array_equal(series.results.timeseries, wanted)
    # Sizes of the images of all blocks except the first, whose images are 0.
    assert sizes[-1] == (len(wanted), 9 * 6 * N_ATOMS)
    assert len(sizes) == 9
    assert max(sizes) == sizes[-1]


def test_images_that_might_not_fit_are_looked_at_one_by_one(atoms, monkeypatch, tmp_path):
    options = {"backend": "serial", "block_frames": 16, "step": 3}
    wanted = followed(atoms, **options)
    monkeypatch.setattr(CoreNoJump, "most", 0)
    assert np.array_equal(followed(atoms, checkpoint=tmp_path / "file", **options), wanted)


def test_what_cannot_be_followed_is_refused(walk, atoms, tmp_path):
    gaps = without_cells(walk, tmp_path, [20])
    with pytest.raises(TransformError, match=r"frame 20.*: the frame has no cell, which nojump"):
        followed(gaps)
    words = "frame 30 cannot be the reference: on the way to it, in frame 20, the frame has no cell"
    with pytest.raises(TransformError, match=words):
        RMSD(gaps, ref_frame=30).run(transforms=[nojump()])
    with pytest.raises(UnsupportedError, match="in increasing order"):
        followed(atoms, frames=[3, 2])
    with pytest.raises(UnsupportedError, match="nojump is given twice"):
        followed(atoms, before=[nojump()])
    with pytest.raises(UnsupportedError, match="nojump needs all frames, but advice reads"):
        paceline.advise(RMSD(atoms), transforms=[nojump()])


@pytest.fixture(scope="module")
def molecules(tmp_path_factory):
    """Moving molecules of three atoms, two bonds and two masses, and their shortest steps.

    First the centers of the molecules, and then their atoms, are wrapped into a tilted, varying
    cell.
    """
    n, n_molecules = N_FRAMES, 12
    rng = np.random.default_rng(4)
    vectors = [triclinic_vectors(cell).astype(float) for cell in cells()]
    inside = np.empty((n, n_molecules, 3))
    steps = rng.normal(0, 2.5, inside.shape)
    inside[0] = rng.random((n_molecules, 3)) @ vectors[0]
    for k in range(1, n):
        to = inside[k - 1] + steps[k]
        inside[k] = to - np.floor(to @ np.linalg.inv(vectors[k])) @ vectors[k]
    steps[0] = inside[0]
    masses = np.array([16.0, 1.0, 0.0])
    arms = rng.normal(0, 0.7, (n, n_molecules, 3, 3))
    arms -= (arms * masses[:, None]).sum(axis=2, keepdims=True) / 17
    broken = (inside[:, :, None] + arms).reshape(n, -1, 3)
    expected = (steps.cumsum(axis=0)[:, :, None] + arms).reshape(n, -1, 3)
    of_residues = np.repeat(np.arange(n_molecules), 3)
    one = MDAnalysis.Universe.empty(36, n_molecules, atom_resindex=of_residues, trajectory=True)
    path = str(tmp_path_factory.mktemp("molecules") / "walk.trr")
    with MDAnalysis.Writer(path, 36) as writer:
        for k, (frame, cell, edges) in enumerate(zip(broken, cells(), vectors, strict=True)):
            one.dimensions, one.trajectory.ts.time = cell, 2.0 * k
            one.atoms.positions = frame - np.floor(frame @ np.linalg.inv(edges)) @ edges
            writer.write(one.atoms)
    firsts = range(0, 36, 3)
    one.add_TopologyAttr("bonds", [(k, k + j) for k in firsts for j in (1, 2)])
    one.add_TopologyAttr("masses", np.tile(masses, n_molecules))
    return paceline.Universe(one._topology, path).atoms, expected


#: Transformations that make molecules whole and wrap them, before atoms are followed over time.
WHOLE = (unwrap(), wrap(compound="fragments"))


@pytest.mark.parametrize("angles", [[60, 60, 90], [70.53, 109.47, 70.53]])
def test_steps_are_the_shortest_in_triclinic_cells(angles):
    vectors = triclinic_vectors([80.1, 80.1, 80.1, *angles]).astype(float)
    steps = np.random.default_rng(5).uniform(-0.5, 0.5, (400, 30, 3)) @ vectors
    shifts = np.stack(np.meshgrid(*[range(-2, 3)] * 3), axis=-1).reshape(-1, 3) @ vectors
    of_images = steps[..., np.newaxis, :] + shifts
    nearest = np.argmin(np.linalg.norm(of_images, axis=-1), axis=-1)
    shortest = np.take_along_axis(of_images, nearest[..., None, None], axis=2)[:, :, 0]
    assert (np.linalg.norm(steps, axis=-1) > np.linalg.norm(shortest, axis=-1) + 1).any()
    cells = np.broadcast_to(vectors, (400, 3, 3))
    found = unwrap_series(steps.cumsum(axis=0), cells, np.zeros(0, int), "tor")
    expected = shortest.cumsum(axis=0) - shortest[0] + steps[0]
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_molecules_take_the_shortest_steps(where, molecules):
    atoms, expected = molecules
    tor = nojump(scheme="tor")
    found = followed(atoms, tor, before=WHOLE, backend="serial", max_memory=0)
    np.testing.assert_allclose(found, expected, atol=1e-3)
    assert np.abs(found - followed(atoms, before=WHOLE)).max() > 3  # Å: changes of the cell
    again = followed(atoms, tor, before=WHOLE, **where)
    assert np.array_equal(again, found)


@pytest.mark.parametrize(
    "options",
    [
        *({"block_frames": n} for n in (1, 32, 10**6)),
        {"block_frames": 16, "max_memory": 0},
        {"backend": "threads", "n_workers": 5, "block_frames": 1},
        {"step": 7},
        {"start": 3, "stop": 90, "step": 2},
        {"frames": [5, 6, 80, 149]},
    ],
    ids=str,
)
def test_steps_of_molecules_depend_on_nothing_but_frames(options, molecules):
    atoms, _ = molecules
    tor = nojump(scheme="tor")
    whole = followed(atoms, tor, before=WHOLE, backend="serial")
    series = paceline.TimeSeries(positions, atoms).run(transforms=[*WHOLE, tor], **options)
    assert np.array_equal(series.results.timeseries, whole[series.frames])


def test_some_molecules_are_followed(molecules):
    """Check that whole molecules of the given or analysed atoms are unwrapped."""
    atoms, expected = molecules
    some = followed(atoms[[4, 30]], nojump(scheme="tor"), before=WHOLE)
    np.testing.assert_allclose(some, expected[:, [4, 30]], atol=1e-3)
    found = followed(atoms, nojump("index 4 30", scheme="tor"), before=WHOLE)
    whole = paceline.TimeSeries(positions, atoms).run(transforms=WHOLE).results.timeseries
    moved = [3, 4, 5, 30, 31, 32]
    np.testing.assert_allclose(found[:, moved], expected[:, moved], atol=1e-3)
    rest = np.setdiff1d(np.arange(36), moved)
    assert np.array_equal(found[:, rest], whole[:, rest])


def test_displacements_of_molecules_that_were_followed(molecules):
    atoms, _ = molecules
    expected = EinsteinMSD(atoms, compound="fragments").run(transforms=WHOLE).results
    followed_before = EinsteinMSD(atoms, compound="fragments", unwrap=None)
    found = followed_before.run(transforms=[*WHOLE, nojump(scheme="tor")]).results
    np.testing.assert_allclose(found.timeseries, expected.timeseries, atol=1e-3)


@pytest.mark.parametrize("block_frames", [1, 16, 64])
def test_molecules_go_on_after_frames_that_were_left_out(block_frames, molecules, tmp_path):
    atoms, _ = molecules
    gaps = [0, 7, *range(20, 38), 149]
    path = str(tmp_path / "gaps.trr")
    source = MDAnalysis.Universe(atoms.universe._topology, atoms.universe.trajectory.filename)
    with MDAnalysis.Writer(path, 36) as writer:
        for ts in source.trajectory:
            if ts.frame in gaps:
                ts.dimensions = None
            writer.write(source.atoms)
    kept = np.setdiff1d(np.arange(N_FRAMES), gaps)
    there = paceline.Universe(atoms.universe._topology, path).atoms
    tor, options = nojump(scheme="tor"), {"on_error": "skip", "block_frames": block_frames}
    wanted = None
    for backend in ("serial", "threads", "processes"):
        with pytest.warns(PacelineWarning, match="21 frames left out, the first is 0; nojump"):
            found = followed(there, tor, before=WHOLE, backend=backend, **options)
        wanted = found if wanted is None else wanted
        assert np.array_equal(found, wanted, equal_nan=True)
    assert np.flatnonzero(np.isnan(found).all(axis=(1, 2))).tolist() == gaps
    series = paceline.TimeSeries(positions, there)
    with pytest.warns(PacelineWarning, match="frames left out"):
        series.run(transforms=[*WHOLE, tor], step=5, on_error="skip")
    assert np.array_equal(series.results.timeseries, wanted[::5], equal_nan=True)
    # A file with only these frames.
    path = str(tmp_path / "kept.trr")
    with MDAnalysis.Writer(path, 36) as writer:
        for _ in source.trajectory[kept]:
            writer.write(source.atoms)
    alone = followed(paceline.Universe(source._topology, path).atoms, tor, before=WHOLE)
    assert np.array_equal(alone, found[kept])


def test_a_reference_frame_of_molecules_is_followed_too(molecules):
    atoms, expected = molecules
    rmsd = RMSD(atoms, ref_frame=100, superposition=False)
    rmsd.run(transforms=[*WHOLE, nojump(scheme="tor")])
    distances = np.sqrt(((expected - expected[100]) ** 2).sum(axis=2).mean(axis=1))
    np.testing.assert_allclose(rmsd.results.rmsd[:, 2], distances, atol=1e-3)


def test_molecules_that_cannot_be_followed_are_refused(molecules, atoms):
    with pytest.raises(ValueError, match="scheme must be 'lattice' or 'tor', not 'TOR'"):
        nojump(scheme="TOR")
    with pytest.raises(UnsupportedError, match="nojump by tor needs bonds"):
        followed(atoms, nojump(scheme="tor"))
    with pytest.raises(UnsupportedError, match="nojump is given twice"):
        followed(molecules[0], nojump(scheme="tor"), before=[nojump()])
    universe = molecules[0].universe
    one = paceline.Universe(universe._topology.copy(), universe.trajectory.filename)
    one.atoms[3:6].masses = 0
    with pytest.raises(SelectionError, match=r"the molecule of .*index 3\) has no mass"):
        followed(one.atoms, nojump(scheme="tor"))


def test_the_worker_s_half_can_be_pickled(atoms):
    prepared = nojump("name B").prepare(np.arange(35), atoms.universe, [])
    again = pickle.loads(pickle.dumps(prepared))
    assert again.state_bytes == prepared.state_bytes == 30
