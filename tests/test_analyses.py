"""Tests of each native analysis on each backend, with each option of a run."""

import MDAnalysis
import numpy as np
import pytest
from helpers.analyses import ANALYSES

import paceline
from paceline import checkpoint
from paceline.analysis.rms import RMSF
from paceline.engine.worker import Worker
from paceline.errors import AnalysisError, TransformError
from paceline.transform import center, fit


def run(name, universe, **options):
    """Run an analysis; return the bytes of its results, and the analysis."""
    case = ANALYSES[name]
    one = case.make(universe).run(**options)
    return [np.ascontiguousarray(array).tobytes() for array in case.results(one.results)], one


@pytest.fixture(scope="module", params=[pytest.param("XTC", marks=pytest.mark.full), "damaged XTC"])
def files(request, adk_xtc, damaged):
    """A Universe, and options for all runs with it."""
    found = {"XTC": adk_xtc, "damaged XTC": damaged[0]}[request.param]
    return paceline.Universe(*found), {"on_error": "skip"}


@pytest.mark.parametrize("name", ANALYSES)
@pytest.mark.parametrize(
    "where",
    [
        "processes-2",
        *(
            pytest.param(one, marks=pytest.mark.full)
            for one in ("threads-2", "ProcessPoolExecutor", "dask")
        ),
    ],
    indirect=True,
)
def test_same_bits(name, files, where):
    universe, options = files
    wanted, _ = run(name, universe, backend="serial", block_frames=16, **options)
    assert run(name, universe, **where, **options)[0] == wanted


@pytest.mark.parametrize("name", ANALYSES)
def test_frames_in_any_order_and_with_transformations(name, files):
    universe, options = files
    frames = [*range(97, 0, -2), *range(0, 98, 2), 5, 5, -1]
    case = ANALYSES[name]
    if case.equidistant or case.in_order:
        frames = frames[:49]
    options = options | {
        "frames": sorted(frames) if case.in_order else frames,
        "transforms": [center("name CA", point=(0, 0, 0))],
    }
    wanted, _ = run(name, universe, backend="serial", **options)
    assert run(name, universe, block_frames=1, **options)[0] == wanted


@pytest.fixture(scope="module")
def together(files):
    """Run every analysis in a single pass."""
    universe, options = files
    every = {name: case.make(universe) for name, case in ANALYSES.items()}
    paceline.run(list(every.values()), **options)
    return every


@pytest.mark.parametrize("name", ANALYSES)
def test_it_runs_beside_all_others(name, files, together):
    universe, options = files
    wanted, _ = run(name, universe, backend="serial", **options)
    found = ANALYSES[name].results(together[name].results)
    assert [np.ascontiguousarray(array).tobytes() for array in found] == wanted


#: Name of a function of the user that returns the frames it receives.
OWN = "TimeSeries with a halo"
LOST, N_READ = 7, 12


@pytest.fixture(scope="module", params=["all", pytest.param("some", marks=pytest.mark.full)])
def failed(request, adk, tmp_path_factory):
    """A Universe with NaN positions in a frame that is not marked as damaged."""
    theirs = MDAnalysis.Universe(*adk)
    path = tmp_path_factory.mktemp("failed") / "failed.trr"
    with MDAnalysis.Writer(str(path), len(theirs.atoms)) as writer:
        for ts in theirs.trajectory[:N_READ]:
            if ts.frame == LOST:
                ts.positions[:: 1 if request.param == "all" else 2] = np.nan
            writer.write(theirs.atoms)
    return paceline.Universe(adk[0], path)


@pytest.mark.parametrize("name", [name for name in ANALYSES if name != OWN])
def test_positions_that_are_nan_make_nan_or_an_error(name, failed):
    """Check that NaN positions yield NaN or an error, and never a plausible number."""
    case = ANALYSES[name]
    one = case.make(failed)
    try:
        one.run(backend="serial", on_error="skip")
    except AnalysisError as raised:
        error = raised
    else:
        error = None
    if error is not None:
        assert f"frame {LOST}: " in str(error)
        return
    results = one.results
    for array in map(np.asarray, case.results(results)):
        if array.dtype.kind == "f" and name.partition(",")[0] != "Clustering":
            of_frame = array[LOST] if array.ndim and len(array) == N_READ else array
            assert np.isnan(of_frame).any() or array is results.get("delta_t_values")
        elif array.dtype.kind != "f" and len(array) == N_READ:
            assert (array[LOST] == -1).all()  # neither a cluster nor a pair


@pytest.mark.parametrize(
    "move", [center("name CA", point=(0, 0, 0)), fit("name CA")], ids=["center", "fit"]
)
def test_frames_that_cannot_be_moved_are_left_out(move, failed):
    group = failed.select_atoms("name CB")
    with pytest.raises(TransformError, match=f"frame {LOST}: a position of the group"):
        RMSF(group).run(transforms=[move])
    one = RMSF(group).run(transforms=[move], on_error="skip")
    assert [frame for frame, _ in one.damaged] == [LOST]
    assert np.isfinite(one.results.rmsf).all()


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("name", ANALYSES)
def test_it_resumes(name, adk_xtc, tmp_path, monkeypatch):
    universe, path = paceline.Universe(*adk_xtc), tmp_path / "checkpoint"
    wanted, _ = run(name, universe, backend="serial")
    do_block, done = Worker.run, []

    def failing(self, task):
        if len(done) == 4:
            raise Interrupted
        done.append(task)
        return do_block(self, task)

    monkeypatch.setattr(checkpoint, "INTERVAL", 0.0)
    with monkeypatch.context() as patch:
        patch.setattr(Worker, "run", failing)
        with pytest.raises(Interrupted):
            run(name, universe, backend="serial", block_frames=16, checkpoint=path)
    assert run(name, universe, checkpoint=path)[0] == wanted
