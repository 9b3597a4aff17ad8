"""Tests of analyses of several Universes in one run: each analysis gets its own results."""

import os
import threading
from pathlib import Path

import MDAnalysis
import MDAnalysis.analysis.rms
import numpy as np
import pytest
from helpers.waiting import PATIENCE, until

import paceline
from paceline.analysis.rms import RMSD, RMSF
from paceline.errors import DamagedFileError


@pytest.fixture(scope="module")
def ensemble(adk, adk_xtc, adk_in_water):
    """Two replicas of one system, and one of another system."""
    return [paceline.Universe(*system) for system in (adk, adk_in_water, adk_xtc)]


def alone(universes, **options):
    """Return the results of each analysis in a separate run."""
    rmsds = [RMSD(universe, select="name CA").run(**options).results for universe in universes]
    rmsfs = [
        RMSF(universe.select_atoms("name CA")).run(**options).results for universe in universes
    ]
    return rmsds, rmsfs


@pytest.mark.parametrize("options", [{}, {"start": 1, "step": 3, "block_frames": 16}], ids=str)
def test_results_are_those_of_single_runs(ensemble, where, options):
    rmsds = [RMSD(universe, select="name CA") for universe in ensemble]
    rmsfs = [RMSF(universe.select_atoms("name CA")) for universe in ensemble]
    # Analyses of the same Universe need not be adjacent in the list.
    paceline.run([*rmsds, *rmsfs], **options, **where)
    for theirs, analyses in zip(alone(ensemble, **options), (rmsds, rmsfs), strict=True):
        for expected, analysis in zip(theirs, analyses, strict=True):
            key = "rmsd" if isinstance(analysis, RMSD) else "rmsf"
            np.testing.assert_array_equal(analysis.results[key], expected[key])
    assert rmsds[0].provenance["trajectory"] != rmsds[1].provenance["trajectory"]
    assert rmsds[1].provenance == rmsfs[1].provenance


def test_timings_tell_the_trajectories_apart(ensemble):
    analyses = [RMSF(universe.select_atoms("name CA")) for universe in ensemble]
    paceline.run(analyses, n_workers=2)
    timings = analyses[0].timings
    assert all(analysis.timings is timings for analysis in analyses)
    frames = [
        sum(block.n_frames for block in timings.blocks if block.job == job) for job in range(3)
    ]
    assert frames == [98, 10, 98] == [universe.trajectory.n_frames for universe in ensemble]


def test_one_pool_is_busy_over_all_of_them(adk):
    # With a separate pool for each Universe, the two workers would meet only within a Universe.
    meeting = threading.Barrier(2, timeout=PATIENCE)
    seen = []

    def meet(block):
        seen.append(threading.get_ident())
        meeting.wait()
        return block.times

    universes = [paceline.Universe(*adk) for _ in range(2)]
    analyses = [paceline.TimeSeries(meet, universe.atoms[:1]) for universe in universes]
    paceline.run(analyses, n_workers=2, block_frames=128)
    assert len(set(seen)) == 2


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="no /proc here")
def test_many_universes_keep_few_files_open(adk):
    first = paceline.Universe(*adk)
    before = len(os.listdir("/proc/self/fd"))
    universes = [first.copy() for _ in range(40)]
    paceline.run([RMSD(universe, select="name CA") for universe in universes], step=20)
    # Threads of the run may end, and close their files, after it.
    until(lambda: len(os.listdir("/proc/self/fd")) <= before + 20)
    for universe in universes:
        assert universe.trajectory[50].frame == 50


def test_one_that_only_mdanalysis_reads_goes_alone(adk, adk_xtc):
    ours = paceline.Universe(*adk_xtc)
    theirs = MDAnalysis.Universe(*adk)
    theirs.trajectory.add_transformations(lambda ts: ts)
    memory = MDAnalysis.Universe(*adk, in_memory=True)
    analyses = [RMSD(universe, select="name CA") for universe in (theirs, ours, memory)]
    with pytest.warns(paceline.errors.PacelineWarning, match="transformed by MDAnalysis"):
        paceline.run(analyses, backend="processes", n_workers=2)
    expected = RMSD(paceline.Universe(*adk), select="name CA").run().results.rmsd
    for one in (analyses[0], analyses[2]):
        np.testing.assert_array_equal(one.results.rmsd[:, 2], expected[:, 2])
    np.testing.assert_array_equal(
        analyses[1].results.rmsd, RMSD(ours, select="name CA").run().results.rmsd
    )


def test_a_damaged_member_is_named_and_can_be_skipped(adk, damaged):
    system, frames = damaged
    universes = [paceline.Universe(*adk), paceline.Universe(*system)]
    analyses = [RMSF(universe.select_atoms("name CA")) for universe in universes]
    with pytest.raises(DamagedFileError, match=system.trajectory):
        paceline.run(analyses)
    paceline.run(analyses, on_error="skip")
    assert analyses[0].damaged == []
    assert [frame for frame, _ in analyses[1].damaged] == frames


def test_frames_must_be_there_in_every_member(ensemble):
    analyses = [RMSF(universe.select_atoms("name CA")) for universe in ensemble]
    with pytest.raises(IndexError, match="frame 50 is out of range for 10 frames"):
        paceline.run(analyses, frames=[50])


def test_frames_may_be_chosen_in_each_member(ensemble):
    """Check a function that chooses frames, for replicas of different lengths."""
    analyses = [RMSF(universe.select_atoms("name CA")) for universe in ensemble]
    paceline.run(analyses, frames=lambda them: range(them.n_frames // 2, them.n_frames, 30))
    assert [list(one.frames) for one in analyses] == [[49, 79], [5], [49, 79]]
    alone = RMSF(ensemble[1].select_atoms("name CA")).run(frames=[5])
    np.testing.assert_array_equal(analyses[1].results.rmsf, alone.results.rmsf)


def test_mdanalysis_has_no_function_as_frames(adk):
    universe = MDAnalysis.Universe(*adk)
    theirs = MDAnalysis.analysis.rms.RMSF(universe.select_atoms("name CA"))
    with pytest.raises(paceline.errors.UnsupportedError, match="not support function as frames="):
        paceline.run(theirs, frames=lambda trajectory: [0])
