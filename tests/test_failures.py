"""Tests of other failures: one clear message, and no partial output."""

import contextlib
import multiprocessing
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path

import MDAnalysis
import numpy as np
import pytest
from helpers import trajectory_bytes
from helpers.disks import full_disk
from helpers.waiting import PATIENCE, until
from MDAnalysisTests import datafiles

import paceline
from paceline import cli
from paceline.analysis.rms import RMSD
from paceline.backends import threads
from paceline.backends.base import join_threads
from paceline.engine import result_arrays, scheduler
from paceline.engine.worker import thread_name
from paceline.errors import (
    AnalysisError,
    MissingDataError,
    NotRunError,
    PacelineWarning,
    SelectionError,
    UnsupportedError,
    WorkerError,
)
from paceline.trajectory.open import open_file

BACKENDS = ["serial", "threads", "processes"]


@pytest.fixture(scope="module")
def adk(adk, tmp_path_factory):
    """Adenylate kinase with the right number of frames in its header, so that nothing warns."""
    content = bytearray(Path(adk.trajectory).read_bytes())
    content[8:12] = (98).to_bytes(4, "little")
    path = tmp_path_factory.mktemp("tidy") / "adk.dcd"
    path.write_bytes(content)
    return adk._replace(trajectory=str(path))


@pytest.fixture(scope="module")
def atoms(adk):
    return paceline.Universe(*adk).select_atoms("name CA")


def run_cli(capsys, *argv: str) -> tuple[int, str, list[str]]:
    """Return exit status, standard output, and lines on standard error."""
    showing = warnings.showwarning
    try:
        status = cli.main(argv)
    finally:
        warnings.showwarning = showing
    out, err = capsys.readouterr()
    return status, out, err.splitlines()


@pytest.mark.parametrize(
    ("more", "status", "line"),
    [
        (["--select", "nonsense here"], 2, "Unknown selection token: 'nonsense'"),
        (["--select", "name XX"], 2, "--select: no atoms match 'name XX'"),
        (["--group", "name XX"], 2, "--group: no atoms match 'name XX'"),
        (["--ref", "GRO"], 2, "214 atoms .* cannot be compared with 0 atoms .*: choose atoms"),
        (["--ref", "nowhere.pdb"], 2, "nowhere.pdb"),
        (["--begin", "98"], 2, "frame numbers are 0 to 97; a time .* unit: --begin 98ps$"),
        (["--begin", "9", "--end", "9"], 2, "no frames to analyse: the trajectory has 98, none w"),
        (["--begin", "9ns"], 2, "no frame lies between the requested times"),
        (["-o", "FOLDER/there.csv"], 2, "there.csv exists: it is replaced only with --overwrite"),
        (["-o", "FOLDER/nowhere/a.csv"], 2, "the folder"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_arguments_are_reported_in_one_line(more, status, line, adk, tmp_path, capsys):
    (tmp_path / "there.csv").write_text("mine")
    gro = datafiles.two_water_gro
    more = [word.replace("FOLDER", str(tmp_path)).replace("GRO", str(gro)) for word in more]
    found, out, lines = run_cli(capsys, "rmsd", *adk, *more)
    assert (found, out) == (status, "")
    assert [text.startswith("paceline: error: ") for text in lines] == [True]
    assert re.search(line, lines[0])
    assert [path.name for path in tmp_path.iterdir()] == ["there.csv"]
    assert (tmp_path / "there.csv").read_text() == "mine"


def damaged_copy(adk, folder: Path) -> Path:
    content = bytearray(Path(adk.trajectory).read_bytes())
    frame = 12 * 3341 + 24
    # A record marker of frame 40, with its offset counted from the end.
    content[len(content) - 58 * frame] ^= 1
    path = folder / "damaged.dcd"
    path.write_bytes(content)
    return path


def test_damaged_data_are_reported_in_one_line(adk, tmp_path, capsys):
    path = damaged_copy(adk, tmp_path)
    output = tmp_path / "rmsd.csv"
    argv = ["rmsd", adk.topology, str(path), "-o", str(output)]
    status, out, lines = run_cli(capsys, *argv)
    assert (status, out, len(lines)) == (1, "", 1)
    assert re.match(
        rf"paceline: error: {path}: frame 40, byte \d+: expected a record marker of 13364, "
        r"found 13365 \(bytes \[35, 34, 00, 00\]\)",
        lines[0],
    )
    assert not output.exists()
    _, _, lines = run_cli(capsys, *argv, "--debug")
    assert "Traceback (most recent call last):" in lines
    status, _, lines = run_cli(capsys, *argv, "--on-error", "skip")
    assert status == 0
    assert lines[0].startswith(f"paceline: left out frame 40: {path}: frame 40, byte")
    # Long paths are shortened.
    assert any(re.match(r"paceline: read .*: 98 frames, 1 to 98 ps", line) for line in lines)
    table = np.genfromtxt(output, delimiter=",", skip_header=0, comments="#")[1:]
    assert len(table) == 98
    assert np.flatnonzero(np.isnan(table[:, 2])).tolist() == [40]
    assert "# damaged frames: [40]" in output.read_text().splitlines()


def test_another_reference_or_wrong_weights_are_refused(atoms):
    with pytest.raises(SelectionError, match=r"214 atoms .* cannot be compared with 213 atoms"):
        RMSD(atoms, atoms[1:], select=None)
    for weights, error in [
        (np.ones(3), ValueError),
        (-np.ones(214), ValueError),
        (np.full(214, np.nan), ValueError),
        (np.zeros(214), ValueError),
        ("charge", TypeError),
    ]:
        with pytest.raises(error, match="weights must"):
            RMSD(atoms, weights=weights)


@pytest.mark.parametrize("name", ["rmsd.csv", "rmsd.npz"])
def test_a_full_disk_leaves_nothing(name, adk, tmp_path, capsys):
    path = tmp_path / name
    with full_disk():
        status, out, lines = run_cli(capsys, "rmsd", *adk, "-o", str(path))
    assert (status, out) == (1, "")
    assert lines == [f"paceline: error: {path}: File too large"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.one_in(5)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["out.xtc", "out.trr", "out.dcd", "out.nc"])
def test_a_full_disk_leaves_no_part_of_a_conversion(name, backend, adk, tmp_path, capsys):
    path = tmp_path / name
    argv = ["convert", adk.trajectory, str(path), "--backend", backend]
    with full_disk(300_000):
        status, out, lines = run_cli(capsys, *argv)
    assert (status, out) == (1, "")
    # Workers that write frames directly to their offsets report their action.
    assert re.fullmatch(f"paceline: error: {path}: (cannot write: )?File too large", lines[-1])
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_no_part_of_findings(adk, tmp_path, capsys):
    damaged = damaged_copy(adk, tmp_path)
    path = tmp_path / "findings.tsv"
    with full_disk():
        status, out, lines = run_cli(capsys, "validate", str(damaged), "-o", str(path))
    assert (status, out) == (1, "")
    assert lines[-1] == f"paceline: error: {path}: File too large"
    assert list(tmp_path.iterdir()) == [damaged]


def test_a_full_disk_costs_the_index_and_no_more(adk_in_water, tmp_path):
    path = Path(shutil.copy(adk_in_water.trajectory, tmp_path))
    with full_disk(), warnings.catch_warnings():
        warnings.simplefilter("error")
        core = open_file(path)
    assert (core.n_frames, core.index_file) == (10, None)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("suffix", ["xtc", "nc"])
def test_a_file_that_vanishes_while_it_is_converted_is_named(suffix, adk, tmp_path):
    names = [str(tmp_path / f"part{k}.dcd") for k in range(2)]
    for name in names:
        shutil.copy(adk.trajectory, name)
    with pytest.warns(match="98 frames are repeated"):
        atoms = paceline.Universe(adk.topology, names).atoms
    os.unlink(names[1])
    output = tmp_path / f"out.{suffix}"
    with pytest.raises(FileNotFoundError, match=re.escape(names[1])) as caught:
        paceline.Write(atoms, output).run(n_workers=1)
    assert output.name not in str(caught.value)
    assert not [path for path in tmp_path.iterdir() if "out" in path.name]


def test_a_full_disk_leaves_an_old_file_and_no_figure(adk, tmp_path, capsys):
    path = tmp_path / "rmsd.png"
    path.write_text("old")
    with full_disk():
        status, _, lines = run_cli(capsys, "rmsd", *adk, "--plot", str(path), "--overwrite")
    assert (status, lines) == (1, [f"paceline: error: {path}: File too large"])
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("rmsd.png", "old")]


def test_large_results_need_their_room_before_they_are_computed(atoms, tmp_path, monkeypatch):
    monkeypatch.setattr(result_arrays, "LARGE", 1000)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    analysis = paceline.TimeSeries(lambda block: block.positions, atoms)
    with full_disk(), pytest.raises(OSError, match=re.escape(str(tmp_path))):
        analysis.run(backend="serial")
    assert list(tmp_path.iterdir()) == []
    analysis.run(backend="serial")
    assert isinstance(analysis.results.timeseries, np.memmap)
    assert analysis.results.timeseries.shape == (98, 214, 3)


def test_an_index_that_cannot_be_saved_is_no_error(adk_in_water, tmp_path):
    path = tmp_path / "water.xtc"
    path.write_bytes(Path(adk_in_water.trajectory).read_bytes())
    with full_disk():
        universe = paceline.Universe(adk_in_water.topology, str(path))
    assert universe.trajectory.n_frames == 10
    assert universe.trajectory.file.index_file is None
    assert list(tmp_path.iterdir()) == [path]


def raises(block):
    if block.frames[0] > 0:
        raise KeyError("no such residue")
    return block.times


def returns_too_few(block):
    return block.times[1:] if block.frames[0] > 0 else block.times


def returns_a_number(block):
    return 1.0


def returns_objects(block):
    return [{} for _ in block.frames]


def returns_ragged(block):
    return [[1.0] * k for k in range(len(block))]


def changes_shape(block):
    return block.positions[:, 0] if block.frames[0] > 0 else block.times


def changes_dtype(block):
    return block.frames if block.frames[0] > 0 else block.times


def writes(block):
    block.positions[:] = 0
    return block.times


def writes_masses(block):
    block.masses[:] = 0
    return block.times


FAILURES = [
    (raises, r"raised on frames \d+ to \d+: KeyError: 'no such residue'"),
    (changes_shape, r"expected rows of shape \(.*\) as from the other blocks"),
    (changes_dtype, r"expected (float64|int64) as from the other blocks, found"),
    (writes, r"raised on frames \d+ to \d+: ValueError: .*read-only"),
    (writes_masses, r"raised on frames \d+ to \d+: ValueError: .*read-only"),
    (returns_too_few, r"on frames \d+ to \d+: expected one row for each of the 16 frames"),
    (returns_a_number, r"on frames \d+ to \d+: expected one row for each of the 16 frames, found"),
    (returns_objects, r"on frames \d+ to \d+: expected numbers, found object"),
    (returns_ragged, r"raised on frames .* ValueError: setting an array element"),
]


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("backend", "function", "message"),
    [
        (backend, *failure)
        for backend in BACKENDS
        # After a failure, processes start again. Two such cases take as long as all others.
        for failure in FAILURES[: 2 if backend == "processes" else None]
    ],
)
def test_a_function_that_fails_is_named(backend, function, message, atoms):
    analysis = paceline.TimeSeries(function, atoms)
    message = f"^TimeSeries of {function.__name__}:? {message}"
    with pytest.raises(AnalysisError, match=message) as caught:
        analysis.run(backend=backend, n_workers=None if backend == "serial" else 2, block_frames=16)
    assert "\n" not in str(caught.value)
    assert analysis.results == {}


def test_the_first_of_frames_that_fail_is_named(atoms, monkeypatch):
    monkeypatch.setattr(threads, "GRACE", PATIENCE)
    failed = threading.Event()

    def fail(block):
        if block.frames[0] == 0:
            assert failed.wait(PATIENCE)
            time.sleep(0.05)
        failed.set()
        raise ValueError

    with pytest.raises(AnalysisError, match="raised on frames 0 to 15"):
        paceline.TimeSeries(fail, atoms).run(backend="threads", n_workers=2, block_frames=16)


def test_a_failure_does_not_wait_long_for_blocks_before_it(atoms, monkeypatch):
    monkeypatch.setattr(threads, "GRACE", 0.1)
    ended = threading.Event()

    def fail(block):
        if block.frames[0] == 0:
            ended.wait(PATIENCE)
        raise ValueError

    with pytest.raises(AnalysisError, match="raised on frames 16 to 31"):
        paceline.TimeSeries(fail, atoms).run(backend="threads", n_workers=2, block_frames=16)
    ended.set()


class Refusal(ValueError):
    """Exception of a user that requires two arguments."""

    def __init__(self, what, code):
        super().__init__(f"{what} ({code})")
        self.code = code


def refuse(block):
    raise Refusal("no such chain", 7)


def test_a_users_own_exception_can_be_caught(atoms, where):
    with pytest.raises(Refusal, match=r"no such chain \(7\)$") as caught:
        paceline.TimeSeries(refuse, atoms).run(**where)
    assert isinstance(caught.value, AnalysisError)
    assert caught.value.code == 7


@pytest.mark.parametrize(
    ("raised", "caught"),
    [
        (KeyError("x"), KeyError),
        (AttributeError("x"), AttributeError),
        (ZeroDivisionError("x"), ZeroDivisionError),
        (UnicodeDecodeError("ascii", b"x", 0, 1, "x"), UnicodeDecodeError),
        # For the calling code, these exceptions mean something else.
        (FileNotFoundError("x"), AnalysisError),
        (StopIteration("x"), AnalysisError),
        (MissingDataError("x"), AnalysisError),
    ],
    ids=repr,
)
def test_an_error_is_of_both_kinds(raised, caught):
    error = AnalysisError.of("it raised: 'x'", raised)
    for one in (error, pickle.loads(pickle.dumps(error))):
        assert isinstance(one, AnalysisError)
        assert isinstance(one, caught)
        assert isinstance(one, type(raised)) == (caught is not AnalysisError)
        assert str(one) == "it raised: 'x'"


class Failing(paceline.AnalysisBase):
    """Analysis that raises when it begins, in a block, or when it ends."""

    def __init__(self, atomgroup, where):
        super().__init__(atomgroup)
        self.where = where

    def check(self, where):
        if self.where == where:
            raise RuntimeError(f"no {where}")

    def prepare(self):
        self.check("beginning")
        return self

    def compute(self, block):
        self.check("block")
        return block.times

    def finish(self, value):
        self.check("end")


@pytest.mark.parametrize("where", ["beginning", "block", "end"])
def test_results_keep_their_frames_when_a_later_run_fails(where, atoms):
    first, last, failing = RMSD(atoms), RMSD(atoms), Failing(atoms, where)
    paceline.run([first, last], step=7)
    timings = last.timings
    with pytest.raises((AnalysisError, RuntimeError), match=f"no {where}"):
        paceline.run([first, failing, last], stop=5, on_error="skip", backend="serial")
    np.testing.assert_array_equal(last.frames, np.arange(0, 98, 7))
    np.testing.assert_array_equal(last.results.rmsd[:, 0], last.frames)
    assert last.timings is timings
    assert not last.skip_damaged
    # An analysis that ended before the error has results and frames of this run.
    assert len(first.frames) == len(first.results.rmsd) == (5 if where == "end" else 14)
    with pytest.raises(NotRunError):
        _ = failing.frames


@pytest.mark.parametrize("block_frames", [16, 64])
def test_a_merge_that_fails_is_named(block_frames, atoms, monkeypatch):
    monkeypatch.setattr(Ends, "prepare", lambda self: NoMerging())
    where = "when blocks were merged" if block_frames == 16 else "on frames 0 to 63"
    message = f"^Ends raised {where}: KeyError: 'no such residue'$"
    with pytest.raises(AnalysisError, match=message):
        Ends(atoms).run(backend="serial", block_frames=block_frames)


NO_CELL = "the frame has no cell, which unwrap needs"


def boxed(adk, path: Path, box: tuple[float, ...]) -> Path:
    """Write eight frames in a cube, except that frame 3 has these box vectors, nm."""
    universe = MDAnalysis.Universe(*adk)
    with MDAnalysis.Writer(str(path), universe.atoms.n_atoms) as writer:
        for ts in universe.trajectory[:8]:
            ts.dimensions = [80, 80, 80, 90, 90, 90]
            writer.write(universe.atoms)
    path.write_bytes(trajectory_bytes.xtc_with(trajectory_bytes.xtc(path.read_bytes()), 3, box=box))
    return path


@pytest.mark.parametrize("command", ["rmsd", "convert"])
@pytest.mark.parametrize(
    ("box", "why"),
    [
        ((0.0,) * 9, NO_CELL),
        # Three vectors in a plane, and two equal vectors.
        (
            (8, 0, 0, 0, 8, 0, 4, 4, 0),
            "angles of 45 45 90°, which make no cell, and unwrap needs one",
        ),
        ((8, 0, 0, 8, 0, 0, 0, 0, 8), NO_CELL),
        ((float("nan"), *(0,) * 8), NO_CELL),
    ],
    ids=["none", "flat", "twice", "NaN"],
)
@pytest.mark.filterwarnings("ignore::UserWarning:MDAnalysis")
def test_a_frame_without_a_cell_is_named_or_left_out(command, box, why, adk, tmp_path, capsys):
    path = boxed(adk, tmp_path / "md.xtc", box)
    output = tmp_path / ("out.nc" if command == "convert" else "out.csv")
    argv = ["-s", adk.topology, str(path), str(output)]
    if command == "rmsd":
        argv = [adk.topology, str(path), "-o", str(output)]
    status, out, lines = run_cli(capsys, command, *argv, "--unwrap")
    assert (status, out, len(lines)) == (1, "", 1)
    assert lines[0].startswith(f"paceline: error: {path}: frame 3: ")
    assert why in lines[0]
    assert not output.exists()
    status, _, lines = run_cli(capsys, command, *argv, "--unwrap", "--on-error", "skip")
    assert status == 0
    assert lines[0].startswith(f"paceline: left out frame 3: {path}: frame 3: ")
    assert why in lines[0]
    if command == "rmsd":
        table = np.genfromtxt(output, delimiter=",", comments="#")[1:]
        assert np.flatnonzero(np.isnan(table[:, 2])).tolist() == [3]
    else:
        assert open_file(output).n_frames == 7


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_missing_bonds_are_refused_before_any_frame(on_error, adk_in_water, tmp_path):
    universe = paceline.Universe(*adk_in_water)
    universe.del_TopologyAttr("resnames")  # bonds would be found by them
    write = paceline.Write(universe.atoms, tmp_path / "out.xtc")
    with pytest.raises(UnsupportedError, match=r"bonds.*has none; load a topology.*guess_bonds"):
        write.run(transforms=[paceline.transform.unwrap()], on_error=on_error)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_an_error_keeps_its_parts_on_the_way_from_a_worker(backend, adk, tmp_path):
    universe = paceline.Universe(adk.topology, str(damaged_copy(adk, tmp_path)))
    analysis = paceline.TimeSeries(lambda block: block.times, universe.atoms)
    with pytest.raises(paceline.errors.DamagedFileError) as caught:
        analysis.run(backend=backend, n_workers=2)
    error = caught.value
    assert (error.frame, error.expected) == (40, "a record marker of 13364")
    assert error.path == universe.trajectory.filename
    assert str(error.offset) in str(error)


def test_what_cannot_be_sent_to_processes_is_named(atoms):
    import threading

    lock = threading.Lock()
    analysis = paceline.TimeSeries(lambda block: block.times if lock else None, atoms)
    with pytest.raises(WorkerError, match=r"cannot be sent .*'threads', which sends nothing"):
        analysis.run(backend="processes", n_workers=2)


@pytest.mark.parametrize("backend", BACKENDS)
def test_returned_views_keep_their_numbers(backend, atoms):
    options = {"backend": backend, "n_workers": None if backend == "serial" else 2}
    copies = paceline.TimeSeries(lambda block: block.positions[:, 3].copy(), atoms).run(**options)
    for function in (lambda block: block.positions[:, 3], lambda block: block[:].positions[:, 3]):
        views = paceline.TimeSeries(function, atoms).run(block_frames=16, **options)
        np.testing.assert_array_equal(views.results.timeseries, copies.results.timeseries)
    assert not np.array_equal(copies.results.timeseries[0], copies.results.timeseries[-1])


def test_kept_blocks_keep_their_numbers(atoms):
    kept = []

    def keep(block):
        kept.append(block)
        return block.positions.copy()

    rows = paceline.TimeSeries(keep, atoms).run(backend="serial", block_frames=16).results
    assert len(kept) == 7
    for block in kept:
        np.testing.assert_array_equal(block.positions, rows.timeseries[block.frames])


class Ends(paceline.AnalysisBase):
    """Analysis of first and last positions, whose reduction keeps views."""

    def prepare(self):
        return FirstAndLast()

    def finish(self, value):
        self.results.ends = value


class FirstAndLast:
    def compute(self, block):
        return block.positions[0], block.positions[-1]

    def merge(self, left, right):
        return left[0], right[1]


class NoMerging(FirstAndLast):
    def merge(self, left, right):
        raise KeyError("no such residue")


@pytest.mark.parametrize("backend", ["serial", "threads"])
def test_partial_results_may_be_views(backend, atoms):
    ends = Ends(atoms).run(backend=backend, block_frames=16).results.ends
    rows = paceline.TimeSeries(lambda block: block.positions, atoms).run().results.timeseries
    np.testing.assert_array_equal(ends, rows[[0, -1]])


def test_what_kills_every_worker_is_an_error_and_the_next_run_works(atoms):
    def die(block):
        os.kill(os.getpid(), signal.SIGKILL)

    message = r"^workers were killed 3 times while they processed frames 0 to 15: "
    with (
        pytest.warns(PacelineWarning, match="was killed"),
        pytest.raises(WorkerError, match=message),
    ):
        paceline.TimeSeries(die, atoms).run(backend="processes", n_workers=2)
    analysis = paceline.TimeSeries(lambda block: block.times, atoms)
    assert len(analysis.run(backend="processes", n_workers=2).results.times) == 98


# Otherwise the other process may repeat the block before the kill is noticed.
@pytest.mark.usefixtures("nothing_overdue")
def test_a_killed_worker_costs_its_blocks_only(atoms, tmp_path):
    killed = tmp_path / "killed"

    def die_once(block):
        if block.frames[0] == 48 and not killed.exists():
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return block.positions

    with pytest.warns(PacelineWarning, match="a worker process was killed"):
        analysis = paceline.TimeSeries(die_once, atoms).run(
            backend="processes", n_workers=2, block_frames=16
        )
    expected = paceline.TimeSeries(lambda block: block.positions, atoms).run(backend="serial")
    np.testing.assert_array_equal(analysis.results.timeseries, expected.results.timeseries)
    assert analysis.timings.n_frames == 98


def half_a_message(marker):
    """Return a function that kills its process once, when half of its result is sent."""

    def send_half(connection, data):
        os.write(connection.fileno(), bytes(data[: len(data) // 2]))
        os.kill(os.getpid(), signal.SIGKILL)

    def die_sending(block):
        if block.frames[0] >= 48 and not marker.exists():
            marker.touch()
            Connection._send = send_half
        return block.positions

    return die_sending


@pytest.mark.skipif(os.name == "nt", reason="other pipes")
@pytest.mark.usefixtures("nothing_overdue")
def test_a_worker_that_is_killed_while_it_sends_a_result_holds_nobody(adk, tmp_path):
    atoms = paceline.Universe(*adk).atoms
    analysis = paceline.TimeSeries(half_a_message(tmp_path / "killed"), atoms)
    with pytest.warns(PacelineWarning, match="a worker process was killed") as caught:
        analysis.run(backend="processes", n_workers=2, block_frames=16)
    assert sum(one.category is PacelineWarning for one in caught) == 1
    expected = paceline.TimeSeries(lambda block: block.positions, atoms).run(backend="serial")
    np.testing.assert_array_equal(analysis.results.timeseries, expected.results.timeseries)


@pytest.mark.skipif(os.name == "nt", reason="other pipes")
def test_a_pool_whose_worker_is_killed_while_it_sends_a_result_is_broken(adk, tmp_path):
    atoms = paceline.Universe(*adk).atoms
    analysis = paceline.TimeSeries(half_a_message(tmp_path / "killed"), atoms)
    spawn = multiprocessing.get_context("spawn")
    with (
        ProcessPoolExecutor(2, mp_context=spawn) as pool,
        pytest.raises(WorkerError, match="a worker of ProcessPoolExecutor ended abruptly"),
    ):
        analysis.run(backend=pool, block_frames=16)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks for children in /proc")
@pytest.mark.parametrize("which", [0, 1])
def test_a_process_ends_though_an_idle_worker_is_killed_just_then(which, adk):
    """Check that loky ends its processes, even if the killed worker holds loky's lock."""
    work = (
        "import os, signal, sys, paceline; from helpers.workers import loky_workers;"
        f"atoms = paceline.Universe(*{list(adk)!r}).select_atoms('name CA');"
        "analysis = paceline.TimeSeries(lambda block: block.times, atoms);"
        "analysis.run(backend='processes', n_workers=2);"
        # There is no second process if one worker was faster and computed the last blocks.
        f"[os.kill(pid, signal.SIGKILL) for pid in (2 * loky_workers())[{which}:][:1]]"
    )
    path = os.pathsep.join([*sys.path, str(Path(__file__).parent)])
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", work],
        timeout=PATIENCE,
        env=os.environ | {"PYTHONPATH": path},
    )
    assert done.returncode == 0


def test_threads_are_at_rest_when_an_error_is_raised(atoms, monkeypatch):
    monkeypatch.setattr(threads, "join_threads", lambda every: join_threads(every, PATIENCE))
    inside, before = threading.Event(), {*threading.enumerate()}

    def fail(block):
        if block.frames[0] == 0:
            inside.wait(PATIENCE)
            raise ValueError("no")
        inside.set()
        time.sleep(0.3)
        return block.times

    with pytest.raises(AnalysisError, match="ValueError: no"):
        paceline.TimeSeries(fail, atoms).run(backend="threads", n_workers=2, block_frames=16)
    left = {one.name for one in threading.enumerate() if one not in before}
    assert left.isdisjoint({"paceline-0", "paceline-1"})


def test_the_end_of_a_process_waits_for_threads_but_not_for_ever():
    # The first thread ends when the end of the process has begun.
    work = "import threading, time; from paceline.backends import base as threads;"
    work += "threads.start_thread(lambda: (threading.main_thread().join(), print('ended')));"
    work += "threads.start_thread(time.sleep, 3600)"
    done = subprocess.run([sys.executable, "-c", work], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "ended\n")


def test_a_worker_process_that_crashes_is_not_said_to_lack_memory(atoms, tmp_path, monkeypatch):
    # Otherwise the other process may repeat the block before the crash is noticed.
    monkeypatch.setattr(scheduler, "SHORTEST", PATIENCE)
    marker = tmp_path / "crashed"

    def crash_once(block):
        if block.frames[0] == 48 and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGSEGV)
        return block.times

    with pytest.warns(PacelineWarning, match=r"ended by itself \(SIGSEGV") as caught:
        paceline.TimeSeries(crash_once, atoms).run(
            backend="processes", n_workers=2, block_frames=16
        )
    assert "memory" not in str(caught[0].message)


def test_a_result_that_cannot_be_opened_is_not_blamed_on_memory(atoms):
    class Broken:
        def __reduce__(self):
            return _fail_to_open, ()

    class Reduction:
        def compute(self, block):
            return Broken()

        def merge(self, left, right):
            return left

    class Analysis(paceline.AnalysisBase):
        def prepare(self):
            return Reduction()

    with (
        pytest.warns(PacelineWarning, match="replaced: A result has failed to un-serialize"),
        pytest.raises(WorkerError, match="lost 3 times"),
    ):
        Analysis(atoms).run(backend="processes", n_workers=1, block_frames=98)


@pytest.mark.parametrize("backend", ["processes", "ProcessPoolExecutor"])
def test_a_result_that_cannot_be_sent_is_named(backend, atoms, pool):
    one = paceline.Reduce(lambda block: threading.Lock(), lambda left, right: left, atoms)
    message = r"the result of an analysis for frames .* cannot be sent between processes: TypeError"
    with pytest.raises(WorkerError, match=message):
        one.run(backend=backend if backend == "processes" else pool(backend), n_workers=None)


def _fail_to_open():
    raise ValueError("no")


@pytest.mark.parametrize(
    "backend", ["threads", "processes", "ThreadPoolExecutor", "ProcessPoolExecutor"]
)
def test_a_worker_that_hangs_holds_nobody_and_is_named(backend, atoms, tmp_path):
    begun, released = tmp_path / "begun", tmp_path / "released"

    def hang_once(block):
        if block.frames[0] == 32:
            try:
                with open(begun, "x", encoding="utf-8") as file:
                    file.write(thread_name())
            except FileExistsError:
                return block.times
            while not released.exists():
                time.sleep(0.02)
        return block.times

    executor = {
        "ThreadPoolExecutor": lambda: ThreadPoolExecutor(2),
        "ProcessPoolExecutor": lambda: ProcessPoolExecutor(
            2, mp_context=multiprocessing.get_context("spawn")
        ),
    }.get(backend, lambda: None)()
    try:
        analysis = paceline.TimeSeries(hang_once, atoms).run(
            backend=executor or backend, n_workers=2, block_frames=16
        )
    finally:
        released.touch()
    assert begun.exists()
    np.testing.assert_array_equal(analysis.results.timeseries, analysis.results.times)
    assert sorted(block.block for block in analysis.timings.blocks) == list(range(7))
    # On a busy machine, other attempts may also seem to hang.
    hung = [one for one in analysis.timings.abandoned if one.timing.block == 2 and not one.came]
    attempt = max(hung, key=lambda one: one.timing.end - one.timing.start)
    assert attempt.timing.n_frames == 16
    # Processes may start when their first blocks are already overdue.
    assert attempt.timing.end - attempt.timing.start > 1e8 * ("hread" in backend)
    assert attempt.timing.worker == begun.read_text()


def test_a_process_that_never_returned_a_block_is_a_straggler(atoms, tmp_path):
    folder = tmp_path / "first"
    released = tmp_path / "released"

    def first_hangs(block):
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
            (folder / "block").write_text(str(block.frames[0]))
            (folder / "worker").write_text(thread_name())
            while not released.exists():
                time.sleep(0.02)
        while not (folder / "worker").exists():
            time.sleep(0.02)
        if (folder / "block").read_text() == str(block.frames[0]):
            # If processes start late, the block is overdue at once; wait until the scheduler
            # notices.
            time.sleep(1)
        return block.times

    try:
        made = paceline.TimeSeries(first_hangs, atoms).run(
            backend="processes", n_workers=2, block_frames=16
        )
    finally:
        released.touch()
    name = (folder / "worker").read_text()
    hung = next(one for one in made.timings.stragglers() if one.worker == name)
    assert (hung.cause, hung.n_frames) == ("hanging", 16)
    (its,) = (one for one in made.timings.workers() if one.worker == hung.worker)
    assert its.n_blocks == 0 < its.t_abandoned


#: Command whose first block takes longer than any timeout, or has another effect.
COMMAND = """
import os, sys, time
import paceline.analysis.rms
from paceline import cli

class Computation:
    def compute(self, block):
        open({marker!r}, "w").close()
        {what}

paceline.analysis.rms.RMSD.prepare = lambda self: Computation()
sys.exit(cli.main({argv!r}))
"""
#: The same command with another worker part.
PATCHED = """
import sys, time
from {module} import {worker} as Worker
from paceline import cli

def compute(self, block, *more):
    open({marker!r}, "w").close()
    time.sleep(600)

Worker.{method} = compute
sys.exit(cli.main({argv!r}))
"""
#: Script whose child processes index files again and again. Each is killed after a given time, in
#: units of the time that indexing takes.
INDEXING = """
import os, signal, sys, time
from paceline.trajectory.open import open_file
begun = time.perf_counter()
for path in {paths!r}:
    open_file(path, refresh=True)
unit = time.perf_counter() - begun
for moment in {moments!r}:
    child = os.fork()
    if child == 0:
        while True:
            for path in {paths!r}:
                open_file(path, refresh=True)
    time.sleep(unit * moment)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    for path in {paths!r}:
        core = open_file(path)
        print(core.n_frames, core.index_origin, core.notes)
"""
#: Number of moments at which it is killed.
KILLS = 12
SCRIPT = """
import os, sys, time
import paceline

def function(block):
    open({marker!r}, "w").close()
    {what}

if __name__ == "__main__":
    atoms = paceline.Universe(*{argv!r}).atoms
    paceline.TimeSeries(function, atoms).run(backend={backend!r}, n_workers=2)
"""


TRACKER = re.compile(r"resource_tracker: |^  warnings\.warn\(")


class Started:
    """Program in a separate session whose first block has begun."""

    def __init__(self, program: str, marker: Path, **variables: str):
        self._process = subprocess.Popen(
            [sys.executable, "-c", program],
            env=os.environ | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        until(marker.exists)

    def signal(self, number: signal.Signals, *, group: bool) -> None:
        (os.killpg if group else os.kill)(self._process.pid, number)

    def end(self) -> tuple[int, str, list[str]]:
        """Return status, standard output and lines on standard error, and check that no process is
        left.

        Python's resource tracker may warn about resources of processes that were killed while they
        started. These warnings, each with a line of source, are removed.
        """
        try:
            out, err = self._process.communicate(timeout=PATIENCE)
            until(lambda: not self._living())
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        lines = [line for line in err.splitlines() if not TRACKER.search(line)]
        return self._process.returncode, out, lines

    def _living(self) -> list[str]:
        living = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                state, _, group = stat.read_text().rpartition(")")[2].split()[:3]
                if int(group) == self._process.pid and state != "Z":
                    living.append(stat.parent.name)
        return living


needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks into /proc")


@needs_proc
@pytest.mark.parametrize("backend", BACKENDS)
def test_ctrl_c_ends_a_command(backend, adk, tmp_path):
    folder = tmp_path / "results"
    folder.mkdir()
    marker = tmp_path / "begun"
    argv = ["rmsd", *adk, "-o", str(folder / "a.csv"), "--backend", backend]
    program = COMMAND.format(marker=str(marker), what="time.sleep(600)", argv=argv)
    command = Started(program, marker)
    command.signal(signal.SIGINT, group=True)
    assert command.end() == (130, "", ["paceline: interrupted"])
    assert list(folder.iterdir()) == []


@needs_proc
@pytest.mark.parametrize("backend", [pytest.param("serial", marks=pytest.mark.full), "threads"])
@pytest.mark.parametrize(
    ("command", "name", "worker"),
    [
        ("convert", "out.xtc", ("paceline.trajectory.write_frames", "_Encode", "compute_block")),
        (
            "convert",
            "out.dcd",
            ("paceline.trajectory.write_frames", "_EncodeInPlace", "compute_block"),
        ),
        (
            "convert",
            "out.h5md",
            ("paceline.trajectory.write_h5md", "EncodeInPlace", "compute_block"),
        ),
        ("validate", "findings.tsv", ("paceline.analysis.validate", "_MakeRows", "compute")),
    ],
)
def test_ctrl_c_ends_a_command_that_writes(command, name, worker, backend, adk, tmp_path):
    folder = tmp_path / "results"
    folder.mkdir()
    marker = tmp_path / "begun"
    output = str(folder / name)
    outputs = [output] if command == "convert" else ["-o", output]
    argv = [command, adk.trajectory, *outputs, "--backend", backend]
    words = dict(zip(("module", "worker", "method"), worker, strict=True))
    command = Started(PATCHED.format(marker=str(marker), argv=argv, **words), marker)
    assert list(folder.iterdir()) != []
    command.signal(signal.SIGINT, group=True)
    assert command.end() == (130, "", ["paceline: interrupted"])
    assert list(folder.iterdir()) == []


@needs_proc
@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_ctrl_c_ends_a_script(backend, adk, tmp_path):
    marker = tmp_path / "begun"
    program = SCRIPT.format(
        marker=str(marker), what="time.sleep(600)", argv=list(adk), backend=backend
    )
    script = Started(program, marker)
    script.signal(signal.SIGINT, group=True)
    status, out, lines = script.end()
    assert (status, out) == (-signal.SIGINT, "")
    assert [line for line in lines if "KeyboardInterrupt" in line] == ["KeyboardInterrupt"]


#: Two processes of loky start, and one of them takes longer than any timeout.
LATE = """
import os, time
with open("/proc/self/cmdline") as line:
    if "popen_loky" in line.read():
        try:
            open({first!r}, "x").close()
        except FileExistsError:
            open({late!r}, "w").close()
            time.sleep(600)
"""


@needs_proc
def test_ctrl_c_while_a_process_starts_ends_a_command(adk, tmp_path):
    marker, late = tmp_path / "begun", tmp_path / "late"
    late_start = LATE.format(first=str(tmp_path / "first"), late=str(late))
    (tmp_path / "sitecustomize.py").write_text(late_start)
    argv = ["rmsd", *adk, "--backend", "processes", "--n-workers", "2"]
    program = COMMAND.format(marker=str(marker), what="time.sleep(600)", argv=argv)
    command = Started(program, marker, PYTHONPATH=str(tmp_path))
    until(late.exists)
    command.signal(signal.SIGINT, group=True)
    assert command.end() == (130, "", ["paceline: interrupted"])


@needs_proc
@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGTERM, marks=pytest.mark.full), signal.SIGKILL]
)
def test_workers_end_with_their_parent(number, adk, tmp_path):
    marker = tmp_path / "begun"
    argv = ["rmsd", *adk, "-o", str(tmp_path / "a.csv"), "--backend", "processes"]
    program = COMMAND.format(marker=str(marker), what="time.sleep(600)", argv=argv)
    command = Started(program, marker)
    command.signal(number, group=False)
    status, out, _ = command.end()
    assert status != 0
    assert out == ""
    assert [path.name for path in tmp_path.iterdir()] == ["begun"]


def test_a_killed_process_leaves_whole_indices(adk_in_water, tmp_path):
    paths = []
    for k in range(4):
        paths.append(str(tmp_path / f"{k}.xtc"))
        shutil.copy(adk_in_water.trajectory, paths[-1])
    moments = np.random.default_rng(23).uniform(0, 2, KILLS).tolist()
    program = INDEXING.format(paths=paths, moments=moments)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    # Each file is complete, old or new. An incomplete file would be written again.
    assert done.stdout.splitlines() == ["10 loaded []"] * (KILLS * len(paths))


@needs_proc
def test_a_command_whose_worker_is_killed_says_so(adk, tmp_path):
    marker = tmp_path / "begun"
    argv = ["rmsd", *adk, "-o", str(tmp_path / "a.csv"), "--backend", "processes"]
    what = "os.kill(os.getpid(), 9)"
    command = Started(COMMAND.format(marker=str(marker), what=what, argv=argv), marker)
    status, out, lines = command.end()
    assert (status, out, len(lines)) == (1, "", 2), lines
    assert lines[0].startswith("paceline: warning: a worker process was killed")
    assert lines[1].startswith("paceline: error: workers were killed 3 times")
    assert [path.name for path in tmp_path.iterdir()] == ["begun"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_standard_output_is_reported(adk):
    program = f"import sys; from paceline import cli; sys.exit(cli.main({['rmsd', *adk]!r}))"
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", program], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 1
    assert re.fullmatch("paceline: error: .*No space left on device\n", done.stderr)
