"""Tests of analyses with several passes over the frames; each pass uses earlier results."""

import threading

import numpy as np
import pytest
from helpers.stages import Deviation, Spread, Total
from helpers.waiting import PATIENCE
from MDAnalysis.transformations import NoJump
from MDAnalysisTests import datafiles

import paceline
from paceline import checkpoint
from paceline.analysis.rms import RMSD, RMSF
from paceline.engine.worker import FrameCache, Worker
from paceline.errors import AnalysisError
from paceline.transform import center


def run(atoms, **options):
    """Run the analysis with others of one stage; return all numbers, and the analysis itself."""
    one = Spread(atoms)
    rmsd, rmsf = RMSD(atoms), RMSF(atoms[::-1])
    paceline.run([rmsd, one, rmsf], **options)
    results = [rmsd.results.rmsd, rmsf.results.rmsf, one.results.spread, one.results.beyond]
    return [np.asarray(result).tobytes() for result in results], one


@pytest.fixture(scope="module")
def atoms(adk_xtc):
    return paceline.Universe(*adk_xtc).select_atoms("name CA")


@pytest.fixture(scope="module")
def alone(atoms):
    return run(atoms, backend="serial", max_memory=0)


def passes(analysis):
    """Return the number of bytes read in each stage."""
    return [
        sum(block.bytes for block in analysis.timings.blocks if block.job == job)
        for job in range(3)
    ]


def test_each_stage_sees_what_the_last_one_found(alone, atoms):
    frames = np.stack([atoms.positions.astype(float) for _ in atoms.universe.trajectory])
    mean = frames.mean(axis=0)
    spread = np.sqrt(((frames - mean) ** 2).sum(axis=2).mean(axis=1))
    results = alone[1].results
    np.testing.assert_allclose(results.spread, spread, rtol=1e-6)
    assert results.beyond == np.sum(np.abs(frames) > spread.mean())
    assert len(alone[1].times) == alone[1].n_frames == 98


class Watched(paceline.AnalysisBase):
    """Analysis that records the number of frames that each of its methods sees."""

    def prepare(self):
        self.shown = [self.n_frames]
        return Watching(self)

    def finish(self, value):
        self.shown.append(self.n_frames)


class Watching:
    """Worker part that reads fields of its analysis, which is in the same process."""

    def __init__(self, analysis):
        self.analysis = analysis

    def compute(self, block):
        self.analysis.shown.append(getattr(self.analysis, "n_frames", None))
        return block.times


def test_an_analysis_shows_its_last_run_until_the_next_one_has_results(atoms):
    watched = Watched(atoms).run(stop=5, backend="serial")
    assert watched.shown == [5, None, 5]
    assert watched.run(stop=7, backend="serial").shown == [7, 5, 7]
    assert watched.n_frames == 7


def test_bits_are_the_same_everywhere(where, atoms, alone):
    assert run(atoms, **where)[0] == alone[0]


@pytest.mark.parametrize("block_frames", [1, 32, 10**6])
@pytest.mark.parametrize("max_memory", [0, "100 kB", None])
def test_bits_depend_neither_on_blocks_nor_on_memory(block_frames, max_memory, atoms, alone):
    found, _ = run(atoms, block_frames=block_frames, max_memory=max_memory)
    assert found == alone[0]


@pytest.mark.parametrize("backend", ["serial", "threads"])
def test_frames_are_decoded_once_where_memory_allows(backend, atoms, alone):
    every = passes(alone[1])
    assert every[0] == every[1] == every[2] > 0
    kept = passes(run(atoms, backend=backend, max_memory="1 GB")[1])
    assert kept[0] >= every[0]
    assert kept[1:] == [0, 0]
    # Two blocks of 16 frames of 214 atoms, with their numbers, fit into the limit.
    some = passes(run(atoms, backend=backend, max_memory=100_000, block_frames=16)[1])
    assert 0 < some[1] < every[1]
    assert FrameCache._of_runs == {}


def test_frames_are_transformed_once(atoms, monkeypatch):
    def options():
        return {"transforms": [center("name CA", point=(0, 0, 0))], "backend": "serial"}

    wanted, _ = run(atoms, max_memory=0, **options())
    found, one = run(atoms, max_memory="1 GB", **options())
    assert found == wanted
    transformed = [
        sum(block.transform for block in one.timings.blocks if block.job == job) for job in range(3)
    ]
    assert transformed[0] > 0
    assert transformed[1:] == [0, 0]


class _Positions:
    def compute(self, block):
        return block.positions


class _Twice(paceline.AnalysisBase):
    stages = 2

    def prepare(self):
        return _Positions()

    def next_stage(self, value):
        self.first = value
        return _Positions()

    def finish(self, value):
        self.results.second = value


@pytest.mark.filterwarnings("ignore:NoJump", "ignore:frames are transformed by MDAnalysis")
def test_transformations_of_mdanalysis_are_the_same_in_each_stage():
    atoms = paceline.Universe(datafiles.PRM_NCBOX, datafiles.TRJ_NCBOX).atoms
    atoms.universe.trajectory.add_transformations(NoJump())
    wanted = np.array([ts.positions.copy() for ts in atoms.universe.trajectory])
    twice = _Twice(atoms).run(start=1, max_memory=0)
    assert np.array_equal(twice.first, wanted[1:])
    assert np.array_equal(twice.results.second, wanted[1:])


def test_damaged_frames_are_left_out_of_every_stage(damaged):
    files, frames = damaged
    atoms = paceline.Universe(*files).select_atoms("name CA")
    wanted, one = run(atoms, backend="serial", max_memory=0, on_error="skip")
    assert [frame for frame, _ in one.damaged] == frames
    assert np.flatnonzero(np.isnan(one.results.spread)).tolist() == frames
    found, other = run(atoms, on_error="skip", max_memory="1 GB")
    assert found == wanted
    assert other.damaged == one.damaged


def test_several_trajectories(atoms, damaged, alone):
    other = paceline.Universe(*damaged[0]).select_atoms("name CA")
    both = Spread(atoms), Spread(other)
    paceline.run([*both, RMSD(other)], on_error="skip")
    assert both[0].results.spread.tobytes() == alone[0][2]
    assert both[1].results.spread.tobytes() == run(other, on_error="skip")[0][2]


def test_an_error_between_stages(atoms):
    class Failing(Spread):
        def next_stage(self, value):
            raise ZeroDivisionError("no stage follows")

    with pytest.raises(ZeroDivisionError, match="no stage follows"):
        Failing(atoms).run()
    assert FrameCache._of_runs == {}


def test_a_thread_that_comes_late_keeps_no_frames(atoms, monkeypatch):
    begun, ended = threading.Event(), threading.Event()
    open_job = Worker._open_job

    def late(self, number):
        if threading.current_thread().name == "paceline-1":
            begun.set()
            assert ended.wait(PATIENCE)
        else:
            assert begun.wait(PATIENCE)
        open_job(self, number)

    class Failing(Spread):
        def prepare(self):
            return FailingTotal()

    class FailingTotal(Total):
        def compute(self, block):
            raise ZeroDivisionError("no block is computed")

    # Threads of earlier tests, which may still end.
    before = set(threading.enumerate())
    monkeypatch.setattr(Worker, "_open_job", late)
    monkeypatch.setattr("paceline.backends.threads.GRACE", 0.1)
    with pytest.raises(AnalysisError, match="no block is computed"):
        Failing(atoms).run(backend="threads", n_workers=2, block_frames=16)
    new = set(threading.enumerate()) - before
    (thread,) = (one for one in new if one.name == "paceline-1")
    ended.set()
    thread.join(PATIENCE)
    assert FrameCache._of_runs == {}


def test_progress_counts_the_frames_of_each_stage(atoms, capsys):
    Spread(atoms).run(verbose=True)
    shown = capsys.readouterr().err
    assert "pass 1 of 3: " in shown
    assert "98.0/98.0" in shown.partition("pass 3 of 3: ")[2]


@pytest.mark.parametrize("limit", [-1, "many"])
def test_a_limit_that_is_none(limit, atoms):
    with pytest.raises(ValueError, match=r"max_memory|number of bytes"):
        Spread(atoms).run(max_memory=limit)


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("stage", [0, 1, 2])
def test_a_run_resumes_in_the_stage_that_it_reached(stage, atoms, alone, tmp_path, monkeypatch):
    path = tmp_path / "checkpoint"
    monkeypatch.setattr(checkpoint, "INTERVAL", 0.0)
    monkeypatch.setattr(checkpoint, "SHARE", 0)
    do_block = Worker.run
    done = []

    def failing(self, task):
        if len(done) == 7 * stage + 4:
            raise Interrupted
        done.append(task)
        return do_block(self, task)

    monkeypatch.setattr(Worker, "run", failing)
    with pytest.raises(Interrupted):
        run(atoms, backend="serial", block_frames=16, checkpoint=path, max_memory=0)
    monkeypatch.setattr(Worker, "run", do_block)
    found, one = run(atoms, checkpoint=path)
    assert found == alone[0]
    assert not path.exists()
    # Each block occurs once in each stage, in the order of time.
    blocks = one.timings.blocks
    assert sorted((block.job, block.block) for block in blocks) == [
        (job, number) for job in range(3) for number in range(7)
    ]
    assert all(block.start <= block.end <= one.timings.end for block in blocks)
    assert one.timings.stragglers() is not None


def test_a_checkpoint_of_other_stages_is_refused(atoms, tmp_path, monkeypatch):
    path = tmp_path / "checkpoint"

    class Failing(Spread):
        def next_stage(self, value):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        Failing(atoms).run(checkpoint=path)
    with pytest.raises(paceline.errors.CheckpointError, match="another run"):
        Spread(atoms).run(checkpoint=path)


def test_an_error_in_a_later_stage_names_the_analysis(atoms):
    class Wrong(Spread):
        def next_stage(self, value):
            return Deviation("text")

    with pytest.raises(AnalysisError, match="Wrong raised on frames"):
        Wrong(atoms).run()
