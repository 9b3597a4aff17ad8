"""Tests of analyses whose rows depend on all previous frames."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from helpers.scans import (
    PathLength,
    Way,
    either,
    is_far,
    n_seen,
    open_or_closed,
    path_lengths,
    seen,
    seen_so_far,
)
from helpers.stages import Total
from test_halo import smooth, smoothed

import paceline
from paceline import checkpoint
from paceline.analysis.rms import RMSF
from paceline.engine import collect
from paceline.engine.reduce import tree_accumulate, tree_reduce
from paceline.engine.worker import Worker
from paceline.errors import AnalysisError, UnsupportedError
from paceline.transform import center


def run(atoms, **options):
    """Run the analyses with one of another kind; return all bits, and the first analysis."""
    analyses = [PathLength(atoms), RMSF(atoms), seen_so_far(atoms), open_or_closed(atoms)]
    paceline.run(analyses, **options)
    way, rmsf, *series = (one.results for one in analyses)
    results = [way.lengths, rmsf.rmsf, *(one.timeseries for one in series)]
    return [np.asarray(result).tobytes() for result in results], analyses


@pytest.fixture(scope="module")
def atoms(adk_xtc):
    return paceline.Universe(*adk_xtc).select_atoms("name CA")


@pytest.fixture(scope="module")
def positions(atoms):
    return np.array([atoms.positions.copy() for _ in atoms.universe.trajectory])


@pytest.fixture(scope="module")
def alone(atoms):
    return run(atoms, backend="serial", max_memory=0)


def check_rows(analyses, positions, rows=slice(None)):
    """Compare some rows with loops over the frames that were not skipped."""
    way, _, so_far, is_open = analyses
    np.testing.assert_allclose(way.results.lengths[rows], path_lengths(positions), rtol=1e-5)
    far = np.linalg.norm(positions, axis=2) > 26
    counts = np.logical_or.accumulate(far, axis=0).sum(axis=1)
    assert so_far.results.timeseries[rows].tolist() == counts.tolist()
    state, states = False, []
    for distance in np.linalg.norm(positions[:, -1] - positions[:, 0], axis=1):
        state = distance > 10.6 or (state and not distance < 9.6)
        states.append(bool(state))
    assert is_open.results.timeseries[rows].tolist() == states
    return counts, states


def test_rows_are_those_of_a_loop_over_all_frames(alone, positions):
    counts, states = check_rows(alone[1], positions)
    assert counts[0] < counts[40] < counts[-1]
    assert np.diff(states).sum() > 4


def test_bits_are_the_same_everywhere(where, atoms, alone):
    assert run(atoms, **where)[0] == alone[0]


@pytest.mark.parametrize("block_frames", [1, 32, 64, 10**6])
@pytest.mark.parametrize("max_memory", [0, None])
def test_bits_depend_neither_on_blocks_nor_on_memory(block_frames, max_memory, atoms, alone):
    options = {"block_frames": block_frames, "max_memory": max_memory}
    assert run(atoms, **options)[0] == alone[0]


@pytest.mark.parametrize("block_frames", [16, 64])
def test_functions_may_fill_the_same_array_again(block_frames, atoms, positions):
    total, rows = np.empty(3), np.empty((64, 3))

    def add_up(block):
        return np.sum(block.positions.astype(float), axis=(0, 1), out=total)

    def add(left, right):
        left += right
        return left

    def so_far(block, before):
        found = np.cumsum(block.positions.astype(float).sum(axis=1), axis=0, out=rows[: len(block)])
        return found if before is None else np.add(found, before, out=found)

    one = paceline.Scan(add_up, add, so_far, atoms)
    one.run(backend="serial", block_frames=block_frames)
    expected = positions.astype(float).sum(axis=1).cumsum(axis=0)
    np.testing.assert_allclose(one.results.timeseries, expected, rtol=1e-9)


@pytest.mark.parametrize("n", range(1, 20))
def test_states_are_those_of_the_tree(n):
    """Check that states before blocks equal the states of the values joined in a loop."""

    def join(left, right):
        return f"({left}{right})" if left else right

    values = [chr(ord("a") + k) for k in range(n)]
    whole = list(tree_accumulate(values, join))
    plain = [one and one.replace("(", "").replace(")", "") for one in whole]
    assert plain == [None, *("".join(values[: k + 1]) for k in range(n))]
    for size in (1, 2, 4, 8, 16):
        blocks = [values[k : k + size] for k in range(0, n, size)]
        changes = [tree_reduce(block, join) for block in blocks]
        found = []
        for block, before in zip(blocks, tree_accumulate(changes[:-1], join), strict=True):
            found += list(tree_accumulate(block, join, before))[:-1]
        assert found == whole[:-1]


@pytest.mark.parametrize(
    ("options", "chosen"),
    [
        ({"start": 20, "stop": 90, "step": 3}, slice(20, 90, 3)),
        ({"frames": [0, 1, 5, 40, 41, 97]}, [0, 1, 5, 40, 41, 97]),
        ({"frames": [4]}, [4]),
    ],
    ids=["step", "frames", "one"],
)
def test_the_frames_before_are_those_of_the_run(options, chosen, atoms, positions):
    check_rows(run(atoms, block_frames=16, **options)[1], positions[chosen])


def test_frames_that_were_left_out_change_no_state(damaged, positions):
    files, gone = damaged
    atoms = paceline.Universe(*files).select_atoms("name CA")
    kept = np.setdiff1d(np.arange(98), gone)
    bits, analyses = run(atoms, backend="serial", on_error="skip", block_frames=1)
    assert [frame for frame, _ in analyses[0].damaged] == gone
    check_rows(analyses, positions[kept], kept)
    for one in (analyses[0].results.lengths, analyses[2].results.timeseries):
        assert np.flatnonzero(np.isnan(one.reshape(98, -1)).all(axis=1)).tolist() == gone
    for options in ({"block_frames": 64}, {"backend": "processes", "n_workers": 2}):
        assert run(atoms, on_error="skip", **options)[0] == bits


def test_the_first_frames_or_all_left_out(damaged, positions):
    atoms = paceline.Universe(*damaged[0]).select_atoms("name CA")
    for block_frames in (1, 64):
        options = {"start": 16, "on_error": "skip", "block_frames": block_frames}
        kept = np.setdiff1d(np.arange(32, 98), damaged[1])
        check_rows(run(atoms, **options)[1], positions[kept], kept - 16)
        with pytest.raises(UnsupportedError, match="PathLength: no frame could be read"):
            PathLength(atoms).run(**options, stop=32)


def test_a_chain_of_files(adk_xtc, positions):
    topology, trajectory = adk_xtc
    atoms = paceline.Universe(topology, [trajectory, trajectory]).select_atoms("name CA")
    check_rows(run(atoms, block_frames=16)[1], np.concatenate([positions, positions]))


def test_several_trajectories(atoms, damaged, alone):
    other = paceline.Universe(*damaged[0]).select_atoms("name CA")
    both = PathLength(atoms), PathLength(other)
    paceline.run(both, on_error="skip")
    assert both[0].results.lengths.tobytes() == alone[0][0]
    again = PathLength(other).run(on_error="skip")
    assert both[1].results.lengths.tobytes() == again.results.lengths.tobytes()


def test_transforms_come_first(atoms, positions):
    options = {"transforms": [center("name CA", point=(0, 0, 0))], "backend": "serial"}
    middle = positions.mean(axis=1, keepdims=True, dtype=float)
    one = PathLength(atoms).run(max_memory=0, **options)
    np.testing.assert_allclose(one.results.lengths, path_lengths(positions - middle), rtol=1e-4)
    again = PathLength(atoms).run(max_memory="1 GB", **options)
    assert again.results.lengths.tobytes() == one.results.lengths.tobytes()


def far_of_group(block):
    found = np.zeros(block.positions.shape[1], bool)
    for far, chosen in zip(is_far(block), block.selected, strict=True):
        found[chosen] |= far[chosen]
    return found


def n_far_of_group(block, before):
    rows = []
    for k in range(len(block)):
        one = block[k : k + 1]
        one.selected = block.selected[k : k + 1]
        now = far_of_group(one)
        before = now if before is None else before | now
        rows.append(before.sum())
    return np.array(rows)


def test_groups_that_change(universe, theirs):
    select = "name CA and prop z > 0"
    group, same = (one.select_atoms(select, updating=True) for one in (universe, theirs))
    found = paceline.Scan(far_of_group, np.logical_or, n_far_of_group, group).run(n_workers=2)
    ever, wanted = set(), []
    for _ in theirs.trajectory:
        ever |= set(same.indices[np.linalg.norm(same.positions, axis=1) > 26].tolist())
        wanted.append(len(ever))
    assert found.results.timeseries.tolist() == wanted


def test_beside_a_halo_and_without_a_topology(adk_xtc, alone, positions):
    atoms = paceline.open(adk_xtc.trajectory).atoms
    chosen = paceline.Universe(*adk_xtc).select_atoms("name CA").indices
    way, beside = (
        PathLength(atoms[chosen]),
        paceline.TimeSeries(smooth, atoms[chosen], halo=(3, 2)),
    )
    paceline.run([beside, way], block_frames=16)
    assert way.results.lengths.tobytes() == alone[0][0]
    np.testing.assert_allclose(
        beside.results.timeseries, smoothed(positions[:, 0, 2]), rtol=1e-6, atol=1e-6
    )


def test_a_scan_may_follow_another_pass(atoms, alone):
    class Later(PathLength):
        stages = 3

        def prepare(self):
            return Total()

        def next_stage(self, value):
            self.results.n_frames = int(value[0][0])
            return Way()

    one = Later(atoms).run(block_frames=32)
    assert one.results.n_frames == 98
    assert one.results.lengths.tobytes() == alone[0][0]


def test_a_pass_may_follow_a_scan(atoms, alone):
    class Further(PathLength):
        stages = 3

        def next_stage(self, value):
            self.results.first = value
            return Total()

    one = Further(atoms).run(block_frames=32)
    assert one.results.first.tobytes() == alone[0][0]
    assert one.results.lengths[0][0] == 98


def test_frames_are_decoded_once_where_memory_allows(atoms):
    for max_memory, again in (("1 GB", False), (0, True)):
        one = PathLength(atoms).run(backend="serial", max_memory=max_memory)
        read = [block.bytes > 0 for block in one.timings.blocks]
        assert read == [True] * 7 + [again] * 7


def test_progress_counts_both_passes(atoms, capsys):
    PathLength(atoms).run(verbose=True)
    first, _, second = capsys.readouterr().err.rpartition("pass 2 of 2: ")
    assert "pass 1 of 2: " in first
    assert "98.0/98.0" in second


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("n_done", [4, 7, 10])
def test_a_run_resumes_in_either_pass(n_done, atoms, alone, tmp_path, monkeypatch):
    path = tmp_path / "checkpoint"
    monkeypatch.setattr(checkpoint, "INTERVAL", 0.0)
    monkeypatch.setattr(checkpoint, "SHARE", 0)
    do_block, done = Worker.run, []

    def failing(self, task):
        if len(done) == n_done:
            raise Interrupted
        done.append(task)
        return do_block(self, task)

    with monkeypatch.context() as patch:
        patch.setattr(Worker, "run", failing)
        with pytest.raises(Interrupted):
            run(atoms, backend="serial", block_frames=16, checkpoint=path, max_memory=0)
    found, (one, *_) = run(atoms, checkpoint=path)
    assert found == alone[0]
    assert not path.exists()
    assert sorted((block.job, block.block) for block in one.timings.blocks) == [
        (job, number) for job in range(2) for number in range(7)
    ]


def test_a_killed_run_resumes(adk_xtc, alone, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import os, signal, sys, paceline\n"
        "from paceline import checkpoint\n"
        f"sys.path.insert(0, {os.path.dirname(__file__)!r})\n"
        "from helpers.scans import PathLength, Way\n"
        "checkpoint.INTERVAL = 0.0\n"
        f"atoms = paceline.Universe(*{tuple(adk_xtc)!r}).select_atoms('name CA')\n"
        "compute = Way.compute\n"
        "def killed(self, block, state):\n"
        "    if block.frames[0] == 64 and len(sys.argv) == 2:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return compute(self, block, state)\n"
        "Way.compute = killed\n"
        "one = PathLength(atoms)\n"
        f"one.run(backend='serial', checkpoint={str(tmp_path / 'kept')!r}, block_frames=16)\n"
        "print(one.results.lengths.tobytes().hex())\n"
    )
    command = [sys.executable, str(script)]
    killed = subprocess.run([*command, "killed"], capture_output=True, text=True, check=False)
    assert (killed.returncode, killed.stdout) == (-signal.SIGKILL, "")
    assert (tmp_path / "kept").stat().st_size > 0
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == alone[0][0].hex()


def test_states_without_room_are_refused(atoms, monkeypatch):
    """Check that the error is raised early, and that its advice suffices."""
    one = seen_so_far(atoms)
    monkeypatch.setattr(collect, "STATES_BYTES", 4 * len(atoms))
    words = (
        r"n_seen: states of 5 of 7 blocks take 1\.07 kB, but the limit is 856 bytes: "
        r"use fewer and larger blocks, block_frames=32 or more"
    )
    with pytest.raises(UnsupportedError, match=words):
        one.run(backend="serial", block_frames=16)
    assert one.run(backend="serial", block_frames=32).n_frames == 98
    with pytest.raises(UnsupportedError, match="n_seen: states of"):
        one.run(n_workers=2, block_frames=1)


class Halo(PathLength):
    halo = (1, 0)


class OnePass(PathLength):
    stages = 1


class ThenParts(PathLength):
    over_parts = True


class NoMerge(PathLength):
    def prepare(self):
        return type("Half", (), {"scan": Way.scan, "compute": Way.compute})()


class Ragged(PathLength):
    def prepare(self):
        return type("Half", (Way,), {"compute_records": Way.scan})()


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (Halo, "Halo has scan and a halo: store what it needs"),
        (OnePass, "two passes over the frames, but there is 1 in all: set stages = 2"),
        (ThenParts, "two passes over the frames, but there are 2 .* set stages = 3"),
        (NoMerge, "NoMerge: its worker part has scan, but no merge"),
        (Ragged, "has scan and compute_records, but a scan computes a row for each frame"),
    ],
)
def test_what_cannot_be_scanned_is_refused(kind, words, atoms):
    with pytest.raises(UnsupportedError, match=words):
        kind(atoms).run()


@pytest.mark.parametrize("options", [{"step": -1}, {"frames": [3, 3]}], ids=str)
def test_frames_in_no_order_are_refused(options, atoms):
    with pytest.raises(UnsupportedError, match=r"PathLength depends .* increasing order"):
        PathLength(atoms).run(**options)


def test_no_function_is_refused(atoms):
    for functions in ((1, either, n_seen), (seen, 1, n_seen), (seen, either, 1)):
        with pytest.raises(TypeError, match="expected a function"):
            paceline.Scan(*functions, atoms)


def wrong(*_):
    raise KeyError("none")


@pytest.mark.parametrize(
    ("functions", "words"),
    [
        ((wrong, either, n_seen), r"n_seen raised on frames 0 to 15: KeyError"),
        ((seen, wrong, n_seen), r"n_seen raised when blocks were merged: KeyError"),
        ((seen, either, wrong), r"wrong raised on frames 0 to 15: KeyError"),
        ((seen, either, seen), r"seen raised on frames 0 to 15: TypeError"),
    ],
    ids=["scan", "merge", "compute", "one argument"],
)
def test_errors_name_the_analysis_and_the_frames(functions, words, atoms):
    with pytest.raises(AnalysisError, match=words):
        paceline.Scan(*functions, atoms).run(backend="serial", block_frames=16)


def changing(block, _):
    return np.zeros((len(block), 1 + (block.frames[0] > 40)))


@pytest.mark.parametrize(
    ("compute", "words"),
    [
        (lambda block, _: 1.0, r"expected one row for each of the 16 frames"),
        (lambda block, _: np.zeros(len(block) + 1), r"of the 16 frames, found .* \(17,\)"),
        (lambda block, _: [object()] * len(block), "expected numbers, found object"),
        (changing, r"expected rows of shape \(1,\) as from the other blocks, found \(2,\)"),
    ],
)
@pytest.mark.parametrize("block_frames", [16, 64])
def test_what_makes_no_rows_is_an_error(compute, words, block_frames, atoms):
    with pytest.raises(AnalysisError, match=words):
        paceline.Scan(seen, either, compute, atoms).run(block_frames=block_frames)
