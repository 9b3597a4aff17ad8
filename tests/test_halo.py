"""Tests of functions of a frame and its neighbours: their input, for any division into blocks."""

import numpy as np
import pytest
from MDAnalysis.transformations import NoJump
from MDAnalysisTests import datafiles

import paceline
from paceline import checkpoint
from paceline.engine.worker import Worker
from paceline.errors import CheckpointError, UnsupportedError


def smooth(block):
    """Return the mean height over 3 previous frames, the frame itself, and 2 later frames, if they
    exist.
    """
    rows, n = np.arange(len(block)), np.zeros(len(block))
    total = np.zeros(len(block))
    for shift in range(-3, 3):
        inside = (rows + shift >= 0) & (rows + shift < len(block))
        total += np.where(inside, block.positions[(rows + shift) % len(block), 0, 2], 0)
        n += inside
    return total / n


def smoothed(heights):
    """Return the same means for all frames at once."""
    n = len(heights)
    return [heights[max(0, k - 3) : k + 3].astype(float).mean() for k in range(n)]


@pytest.fixture(scope="module")
def heights(adk_xtc):
    universe = paceline.Universe(*adk_xtc)
    return np.array([universe.atoms[0].position[2] for _ in universe.trajectory])


@pytest.mark.parametrize("block_frames", [1, 32, 10**6, None])
@pytest.mark.parametrize(
    ("options", "chosen"),
    [
        ({}, slice(None)),
        ({"start": 20, "stop": 70, "step": 3}, slice(20, 70, 3)),
        ({"frames": [0, 1, 5, 40, 41, 97]}, [0, 1, 5, 40, 41, 97]),
        ({"frames": [4]}, [4]),
    ],
    ids=["all", "step", "frames", "one"],
)
def test_rows_are_those_of_all_frames_at_once(options, chosen, block_frames, adk_xtc, heights):
    atom = paceline.Universe(*adk_xtc).atoms[:1]
    series = paceline.TimeSeries(smooth, atom, halo=(3, 2))
    found = series.run(**options, block_frames=block_frames, n_workers=2)
    wanted = smoothed(heights[chosen])
    np.testing.assert_allclose(found.results.timeseries, wanted, rtol=1e-6)
    whole = paceline.TimeSeries(smooth, atom, halo=(200, 200)).run(**options)
    assert np.array_equal(found.results.timeseries, whole.results.timeseries)
    assert np.array_equal(found.times, whole.times)


def test_neighbours_may_be_in_another_file(adk_xtc, heights):
    topology, trajectory = adk_xtc
    atom = paceline.Universe(topology, [trajectory, trajectory]).atoms[:1]
    found = paceline.TimeSeries(smooth, atom, halo=(3, 2)).run(block_frames=16)
    wanted = smoothed(np.concatenate([heights, heights]))
    np.testing.assert_allclose(found.results.timeseries, wanted, rtol=1e-6)


@pytest.mark.filterwarnings("ignore:frames are transformed by MDAnalysis")
def test_transformations_of_mdanalysis_see_each_frame_once():
    atoms = paceline.Universe(datafiles.PRM_NCBOX, datafiles.TRJ_NCBOX).atoms
    atoms.universe.trajectory.add_transformations(NoJump())
    wanted = np.array([ts.positions.copy() for ts in atoms.universe.trajectory])
    for halo in [(1, 0), (2, 3)]:
        series = paceline.TimeSeries(lambda block: block.positions, atoms, halo=halo)
        found = series.run(block_frames=4).results.timeseries
        assert np.array_equal(found, wanted)


def test_other_analyses_see_their_own_frames(adk_xtc):
    atoms = paceline.Universe(*adk_xtc).select_atoms("name CA")
    series = paceline.TimeSeries(smooth, atoms, halo=(3, 2))
    seen = paceline.TimeSeries(lambda block: block.frames, atoms)
    total = paceline.Reduce(lambda block: len(block), lambda a, b: a + b, atoms)
    paceline.run([series, seen, total], block_frames=16)
    assert seen.results.timeseries.tolist() == list(range(98))
    assert total.results.value == 98
    assert sum(block.n_frames for block in series.timings.blocks) == 98


def stayed(block):
    """Return the number of atoms of an updating group that were also in the group in the previous
    frame.
    """
    selected = block.selected
    before = [selected[max(0, k - 1)] for k in range(len(block))]
    return np.array([len(np.intersect1d(*two)) for two in zip(before, selected, strict=True)])


def test_groups_that_change_are_found_in_the_halo(universe, theirs):
    select = "name CA and around 8 resid 1-5"
    group, same = (one.select_atoms(select, updating=True) for one in (universe, theirs))
    found = paceline.TimeSeries(stayed, group, halo=(1, 0)).run(block_frames=1, n_workers=2)
    members = [set(same.indices.tolist()) for _ in theirs.trajectory]
    wanted = [len(members[max(0, k - 1)] & members[k]) for k in range(98)]
    assert found.results.timeseries.tolist() == wanted
    assert wanted != [len(one) for one in members]


def near(block):
    """Return the number of atoms that are near in this frame or the two previous ones, for any
    gaps.
    """
    heights = np.concatenate([np.full(2, np.inf), block.positions[:, 0, 2]])
    return np.lib.stride_tricks.sliding_window_view(heights < 0, 3).any(axis=1).astype(int)


def test_rows_near_a_frame_that_was_left_out_are_missing(damaged):
    system, gone = damaged
    atom = paceline.Universe(*system).atoms[:1]
    for block_frames in (1, 64):
        series = paceline.TimeSeries(near, atom, halo=(2, 0))
        series.run(on_error="skip", block_frames=block_frames)
        assert [frame for frame, _ in series.damaged] == sorted(gone)
        missing = np.isin(np.arange(98), [frame + k for frame in gone for k in range(3)])
        assert np.array_equal(np.isnan(series.results.timeseries), missing)


def test_frames_in_no_order_are_refused(universe):
    series = paceline.TimeSeries(smooth, universe.atoms[:1], halo=(0, 1))
    for options in ({"step": -1}, {"frames": [3, 3]}, {"frames": [1, 0, 2]}):
        with pytest.raises(UnsupportedError, match=r"TimeSeries of smooth .* increasing order"):
            series.run(**options)


@pytest.mark.parametrize("halo", [1, (1,), (-1, 0), (0.5, 1), (1, 2, 3)])
def test_impossible_halos_are_refused(halo, universe):
    with pytest.raises(ValueError, match=r"halo must be (two numbers|at least 0|a whole)"):
        paceline.TimeSeries(smooth, universe.atoms, halo=halo)


def test_a_halo_is_for_rows(universe):
    reduction = paceline.Reduce(lambda block: len(block), lambda a, b: a + b, universe.atoms)
    records = paceline.RaggedTimeSeries(lambda block: block, universe.atoms)
    for one in (reduction, records):
        one.halo = (1, 1)
        with pytest.raises(UnsupportedError, match=r"a halo is only possible for analyses"):
            one.run()


def test_a_halo_larger_than_memory_is_refused(universe, monkeypatch):
    monkeypatch.setattr("paceline.engine.run_plan.free_memory", lambda: 10**6)
    series = paceline.TimeSeries(smooth, universe.atoms, halo=(40, 0))
    with pytest.raises(UnsupportedError, match=r"halo of 40 frames of 3341 atoms needs 1\.6 MB"):
        series.run()


def test_a_run_with_another_halo_is_another_run(adk_xtc, tmp_path, monkeypatch):
    atoms, path = paceline.Universe(*adk_xtc).atoms[:1], tmp_path / "checkpoint"
    do_block, done = Worker.run, []

    def failing(self, task):
        if done:
            raise KeyError
        done.append(task)
        return do_block(self, task)

    monkeypatch.setattr(checkpoint, "INTERVAL", 0.0)
    with monkeypatch.context() as patch:
        patch.setattr(Worker, "run", failing)
        with pytest.raises(KeyError):
            paceline.TimeSeries(smooth, atoms, halo=(3, 2)).run(
                backend="serial", checkpoint=path, block_frames=16
            )
    with pytest.raises(CheckpointError, match=r"halo=\(3, 2\) there, .*halo=\(3, 3\) here"):
        paceline.TimeSeries(smooth, atoms, halo=(3, 3)).run(checkpoint=path)
