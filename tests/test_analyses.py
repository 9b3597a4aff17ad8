"""Each native analysis on each backend, with each option of a run."""

import numpy as np
import pytest
from helpers.analyses import ANALYSES

import paceline
from paceline import checkpoint
from paceline.schedule.worker import Worker
from paceline.transform import center


def run(name, universe, **options):
    """Bytes of the results, and the analysis."""
    case = ANALYSES[name]
    one = case.make(universe).run(**options)
    return [np.ascontiguousarray(array).tobytes() for array in case.results(one.results)], one


@pytest.fixture(scope="module", params=[pytest.param("XTC", marks=pytest.mark.full), "damaged XTC"])
def files(request, adk_xtc, damaged):
    """A Universe, and options of all runs of it."""
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
    """Every analysis, all in one run."""
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
