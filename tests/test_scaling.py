"""Tests of the scaling benchmark: sums of times, the order of runs, and refused arguments."""

import io
import itertools
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import MDAnalysis
import numpy as np
import pandas as pd
import pytest
from helpers.scaling_runs import MS, Pretended, block
from helpers.waiting import PATIENCE

from paceline._util.os_calls import cached_share, drop_from_cache
from paceline.cli import bench, main
from paceline.cli.bench import table_for_people
from paceline.cli.performance_commands import counts
from paceline.contract.figure_options import FigureOptions
from paceline.errors import UnsupportedError
from paceline.performance.model import doublings
from paceline.performance.record import AT_BLOCKS
from paceline.performance.scaling_benchmark import (
    PARTS,
    ScalingRun,
    Statistics,
    column_of,
    find_launcher,
    points,
    quantities,
    run_command,
    save_runs,
)
from paceline.performance.scaling_figures import draw_runs, save_figure
from paceline.timing import Timings


@pytest.fixture
def timings():
    """Timings: two of three workers compute three blocks in 100 ms, 10 ms after the start."""
    blocks = [
        block(0, "a", 15, 55, open=2, read=10, decode=20, compute=6),
        block(1, "b", 30, 90, read=20, decode=20, transform=5, compute=10),
        block(2, "a", 60, 110, read=20, decode=20, compute=10),
    ]
    return Timings("threads", 0, 10 * MS, 120 * MS, 0.5, 0.25, 0.003, blocks)


def test_parts_of_a_run_add_up_to_it(timings):
    found = quantities(timings, 3)
    assert found["t_total (s)"] == pytest.approx(0.12)
    parts = sum(found[column_of(part)] for part in PARTS)
    assert parts + found["t_around (s)"] == pytest.approx(found["t_total (s)"])
    in_task = sum(found[column_of(part)] for part in AT_BLOCKS)
    assert in_task == pytest.approx(found["t_in_task mean (s)"]) == pytest.approx(0.15 / 3)
    assert found["t_in_task max (s)"] == pytest.approx(0.09)
    assert found["t_scheduler (s)"] == pytest.approx(0.12 - 0.05)
    assert found["t_io mean (s)"] == pytest.approx(0.05 / 3)
    assert found["t_io max (s)"] == pytest.approx(0.03)
    assert found["t_startup mean (s)"] == pytest.approx((0.005 + 0.02) / 3)
    # The third worker was idle all the time.
    assert found["t_wait max (s)"] == pytest.approx(0.1)
    assert found["t_overhead max (s)"] == pytest.approx(0.005)
    assert (found["frames"], found["blocks"], found["read (MB)"]) == (48, 3, 1.5)


def runs_of(times, mode="strong"):
    """Return runs from {workers: times of repeats}; the whole command takes 1 s longer."""
    return [
        ScalingRun(
            mode, "threads", n, repeat, {"t_total (s)": t, "t_command (s)": t + 1}, f"{repeat}"
        )
        for n, some in times.items()
        for repeat, t in enumerate(some, start=1)
    ]


def test_speed_ups_are_of_runs_in_the_same_repeat():
    # In the second repeat everything took three times as long, which is not a spread of the
    # speed-up.
    one, two, four = points(runs_of({1: [8, 24], 2: [4, 12], 4: [4, 8]}))
    assert (one.columns["speed-up"], one.columns["efficiency"]) == (
        Statistics(1, 0, 2),
        Statistics(1, 0, 2),
    )
    assert (two.columns["speed-up"], two.columns["efficiency"]) == (
        Statistics(2, 0, 2),
        Statistics(1, 0, 2),
    )
    assert four.columns["speed-up"].mean == 2.5
    assert four.columns["speed-up"].sd == pytest.approx(math.sqrt(0.5))
    assert four.columns["efficiency"].mean == 2.5 / 4
    assert two.columns["t_total (s)"] == Statistics(8, pytest.approx(math.sqrt(32)), 2)
    assert two.columns["command speed-up"].mean == pytest.approx((9 / 5 + 25 / 13) / 2)


def test_weak_scaling_counts_the_work():
    one, four = points(runs_of({1: [2.0], 4: [2.5]}, "weak"))
    assert (one.columns["speed-up"].mean, four.columns["speed-up"].mean) == (1, pytest.approx(3.2))
    assert four.columns["efficiency"].mean == pytest.approx(0.8)
    assert math.isnan(four.columns["speed-up"].sd)


@pytest.mark.parametrize("mode", ["strong", "weak"])
def test_the_least_number_stands_for_one_worker(mode):
    first, second = points(runs_of({24: [6.0], 48: [4.0 if mode == "strong" else 6.0]}, mode))
    assert (first.columns["speed-up"].mean, first.columns["efficiency"].mean) == (24, 1)
    assert second.columns["speed-up"].mean == pytest.approx(36 if mode == "strong" else 48)
    assert second.base == 24


def test_incomplete_repeats_count_where_they_can():
    one, two = points(runs_of({1: [8, 8], 2: [4]}))
    assert (one.columns["t_total (s)"].n, two.columns["t_total (s)"].n) == (2, 1)
    assert two.columns["speed-up"].n == 1
    (alone,) = points(runs_of({2: [4]})[:1])
    assert alone.columns["speed-up"].mean == 2


def test_runs_are_read_by_pandas(tmp_path):
    path = tmp_path / "runs.csv"
    save_runs(path, runs_of({1: [8], 2: [4]}), ["over\ntwo lines"])
    assert path.read_text(encoding="utf-8").startswith("# over two lines\nmode,")
    table = pd.read_csv(path, comment="#")
    assert table["t_total (s)"].tolist() == [8, 4]
    with pytest.raises(FileExistsError):
        save_runs(path, runs_of({1: [8]}), [])


def test_a_figure_may_name_a_file_that_is_not_utf8(tmp_path):
    whole = dict.fromkeys(quantities(Timings(blocks=[block(0, "a", 0, 8)]), 1), 0.5)
    run = ScalingRun("strong", "threads", 1, 1, whole | {"t_command (s)": 9.25}, "")
    figure = draw_runs([run], title=os.fsdecode(b"rmsd, md\xff.xtc"), cpus=1)
    save_figure(figure, tmp_path / "a.svg")
    assert "rmsd, md\\udcff.xtc" in (tmp_path / "a.svg").read_text("utf-8")
    options = FigureOptions(figsize="12x16cm", style="dark_background")
    save_figure(draw_runs([run], title="", cpus=1, options=options), tmp_path / "b.svg")
    drawn = (tmp_path / "b.svg").read_text("utf-8")
    assert 'width="340.1' in drawn
    assert "fill: #ffffff" in drawn


def test_measurements_have_some_options_of_figures(adk, run):
    given = "rmsd", *adk, "--plot", "a.png"
    for name in ("--time-unit", "ns"), ("--no-stats",):
        code, _, err = run(*given, *name)
        assert (code, f"{name[0]} is for the analysis's figure" in err) == (2, True)
    assert run(*given, "--style", "none-such")[0] == 2


def test_people_get_aligned_columns():
    whole = dict.fromkeys(quantities(Timings(blocks=[block(0, "a", 0, 8)]), 1), 0.5)
    times = [("t_total (s)", 8.0), ("t_command (s)", 9.25), ("frames", 98.0)]
    run = ScalingRun("strong", "threads", 1, 1, whole | dict(times), "")
    lines = list(table_for_people([run]))
    assert lines[0] == "strong scaling"
    assert lines[1].split("  ")[:3] == ["workers", "frames", "runs"]
    cells = "1 98 1 8.000 (sd -) 1.00 (sd -) 1.00 (sd -) 9.250 (sd -) 0.500 0.500"
    assert lines[2].split() == cells.split()
    assert len(lines[1]) == len(lines[2])
    assert lines[6].split() == ["1", *(10 * ["0.500"])]


def test_numbers_of_workers():
    assert counts("4,1,2,4") == [1, 2, 4]
    assert doublings(1) == [1]
    assert doublings(24) == [1, 2, 4, 8, 16, 24]


@pytest.fixture
def run(capsys):
    """Run `paceline bench scaling` in this process: status, standard output, and standard error."""

    def run(*arguments):
        try:
            status = main(["bench", "scaling", *map(str, arguments)])
        except SystemExit as stop:
            status = stop.code
        written = capsys.readouterr()
        return status, written.out, written.err

    return run


@pytest.mark.full
def test_both_scalings_of_threads(adk, tmp_path, run):
    runs, png, svg = (tmp_path / name for name in ("runs.csv", "a.png", "a.svg"))
    status, out, err = run(
        *("--workers", "1,2", "--repeats", "1", "--strong", "--weak", "--", "rmsd", *adk),
        *("--select", "name CA", "--end", "97", "-o", runs, "--plot", png, "--plot", svg),
    )
    assert status == 0, err
    table = pd.read_csv(runs, comment="#")
    order = list(zip(table["mode"], table.workers, table.frames, strict=True))
    assert order == [("strong", 1, 97), ("strong", 2, 97), ("weak", 1, 48), ("weak", 2, 96)]
    assert table.digest.nunique() == 3
    command = ["t_start (s)", "t_init_top (s)", "t_init_traj (s)", "t_total (s)", "t_rest (s)"]
    assert np.allclose(table[command].sum(axis=1), table["t_command (s)"])
    assert (table[command] > 0).all(axis=None)
    told = pd.read_csv(io.StringIO(out), sep="\t")
    assert told.workers.tolist() == [1, 2, 1, 2]
    assert told["efficiency"][0] == 1
    assert "paceline: 4 of 4 runs: 2 workers, weak" in err
    assert "about" in err
    notes = runs.read_text(encoding="utf-8")
    assert "frames: 97 of 98" in notes
    assert "# runs: 4 of 4 runs" in notes
    assert png.read_bytes().startswith(b"\x89PNG")
    assert "weak scaling" in svg.read_text(encoding="utf-8")


@pytest.mark.full
def test_pairs_of_two_groups(adk, tmp_path, run):
    runs = tmp_path / "runs.csv"
    groups = ("--select", "name CA", "--select-2", "name CA CB", "--norm", "none")
    measuring = ("--workers", "1,2", "--repeats", "1", "--step", "10", "-o", runs)
    status, _, err = run("rdf", *adk, *groups, *measuring)
    assert status == 0, err
    table = pd.read_csv(runs, comment="#")
    assert table.workers.tolist() == [1, 2]
    assert table.frames.tolist() == [10, 10]
    assert table.digest.nunique() == 1
    n_atoms = MDAnalysis.Universe(*adk).select_atoms("name CA CB").n_atoms
    assert f"of which {n_atoms} analysed" in runs.read_text(encoding="utf-8")


def test_ranks_of_mpi(adk, tmp_path, run, monkeypatch):
    pytest.importorskip("mpi4py")
    try:
        (mpiexec,) = find_launcher()
    except UnsupportedError:
        pytest.skip("there is no mpiexec")
    if mpiexec == "srun":
        pytest.skip("srun wants a cluster")
    libraries = Path(shutil.which(mpiexec)).resolve().parents[1] / "lib"
    if list(libraries.glob("libmpi.*")):
        monkeypatch.setenv("MPI4PY_LIBMPI", str(libraries))
    runs = tmp_path / "runs.csv"
    arguments = ["rmsf", *adk, "--repeats", "1", "--workers", "1,2", "-o", runs]
    status, _, err = run("--backend", "mpi", "--launcher", mpiexec, *arguments)
    assert status == 0, err
    table = pd.read_csv(runs, comment="#")
    assert table.backend.tolist() == ["mpi", "mpi"]
    assert table.workers.tolist() == [1, 2]
    assert table.digest.nunique() == 1
    assert (table["t_start (s)"] > 0.05).all()
    assert f"started by {mpiexec}" in runs.read_text(encoding="utf-8")


def test_copies_are_new_and_deleted(adk, tmp_path, run):
    trajectory = shutil.copy(adk.trajectory, tmp_path)
    if cached_after_dropping(trajectory):
        status, _, err = run("rmsd", adk.topology, trajectory, "--cold", "--workers", "1")
        assert (status, "still in memory" in err) == (2, True)
        return
    runs = tmp_path / "runs.csv"
    status, _, err = run(
        *("rmsd", adk.topology, trajectory, "--copies", "--workers", "1"),
        *("--repeats", "1", "-o", runs),
    )
    assert status == 0, err
    assert "a new copy of the trajectory for each run" in runs.read_text(encoding="utf-8")
    assert pd.read_csv(runs, comment="#")["cached before (%)"].tolist() == [0]
    assert sorted(os.listdir(tmp_path)) == ["adk_dims.dcd", "runs.csv"]


def cached_after_dropping(path):
    drop_from_cache(path)
    return cached_share(path)


@pytest.fixture
def pretended(monkeypatch):
    return Pretended(monkeypatch)


def test_runs_go_back_and_forth_over_the_numbers(adk, run, pretended):
    status, out, err = run("rmsd", *adk, "--workers", "1,2,4", "--repeats", "2")
    assert status == 0
    # The first run is not counted.
    assert [n for n, _ in pretended.asked] == [4, 1, 2, 4, 4, 2, 1]
    assert pretended.shown == [True] + 6 * [False]
    assert {n for _, n in pretended.asked} == {None}
    told = pd.read_csv(io.StringIO(out), sep="\t")
    assert told["speed-up"].tolist() == [1, 2, 4]
    assert told["total (s)"].tolist() == [8, 4, 2]
    # Whole commands take 9 + 5 + 3 s, twice; after that, less time remains.
    lefts = [line.rpartition("about ")[2] for line in err.splitlines() if " left" in line]
    assert lefts == ["25 s left", "20 s left", "17 s left", "14 s left", "9 s left"]


def test_frames_of_weak_scaling(adk, run, pretended):
    assert run("rmsd", *adk, "--workers", "1,3", "--repeats", "1", "--weak")[0] == 0
    assert pretended.asked == [(3, None), (1, 333), (3, 999)]


def test_more_workers_than_cpus_are_said(adk, run, pretended, monkeypatch):
    monkeypatch.setattr(bench, "available_cpus", lambda: 2)
    _, _, err = run("rmsd", *adk, "--workers", "1,2,4,64", "--repeats", "1")
    assert "4, 64 workers share 2 CPUs" in err
    assert "1000 frames make 63 blocks: additional workers are idle" in err


def test_other_results_are_an_error(adk, tmp_path, run, pretended):
    pretended.answer = {3: {"digest": "another"}}
    status, _, err = run("rmsd", *adk, "--workers", "1,2", "-o", tmp_path / "a.csv")
    assert status == 1
    assert "results with 2 workers, repeat 1, differ" in err
    assert pd.read_csv(tmp_path / "a.csv", comment="#").digest.tolist() == ["of 1000", "another"]


@pytest.mark.parametrize("n_done", [0, 1, 3])
def test_ctrl_c_keeps_what_is_measured(n_done, adk, tmp_path, run, pretended):
    pretended.answer = {n_done + 2: {"raise": KeyboardInterrupt()}}
    path, figure = tmp_path / "runs.csv", tmp_path / "a.png"
    arguments = ["--workers", "1,2", "-o", path, "--plot", figure]
    status, out, err = run("rmsd", *adk, *arguments)
    assert status == 130
    assert err.endswith("paceline: interrupted\n")
    assert path.exists() == figure.exists() == bool(out) == (n_done > 0)
    if n_done:
        assert len(pd.read_csv(path, comment="#")) == n_done
        assert f"runs: {n_done} of 10 runs" in path.read_text(encoding="utf-8")


def test_a_real_interrupt_ends_the_run_that_goes_on(adk, tmp_path):
    code = "import sys; from paceline.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", code, "bench", "scaling", "rmsd", *adk, "--workers", "1"]
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        [*command, "--repeats", "1000", "-o", tmp_path / "a.csv"],
        stdout=pipe,
        stderr=pipe,
        text=True,
    )
    told = "".join(itertools.takewhile(lambda line: "1 of 1000" not in line, process.stderr))
    process.send_signal(2)
    out, err = process.communicate(timeout=PATIENCE)
    ended = process.returncode, err.endswith("paceline: interrupted\n")
    assert ended == (130, True), told + err
    assert "not counted" in told
    assert out.startswith("scaling\tworkers")
    assert len(pd.read_csv(tmp_path / "a.csv", comment="#")) >= 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--workers", "0"], "at least 1"),
        (["--workers", "two"], "expected numbers such as 1,2,4, found 'two'"),
        (["-o", "runs.txt"], "runs.txt: runs are saved as .csv"),
        (["-o", "nowhere/runs.csv"], "the folder nowhere does not exist"),
        (["--plot", "a.docx"], "a.docx: figures are saved as"),
        (["--cold", "--copies"], "not allowed with argument"),
        (["--backend", "serial"], "invalid choice: 'serial'"),
        (["--launcher", "srun"], "add --backend mpi"),
        (["--backend", "mpi", "--launcher", "/no/mpirun"], "there is no command /no/mpirun"),
        (["--checkpoint", "a"], "--checkpoint cannot be used in a measurement"),
        (["--timings"], "--timings cannot be used in a measurement"),
    ],
)
def test_what_cannot_be_done_is_refused(arguments, words, adk, run):
    status, out, err = run("rmsd", *adk, *arguments)
    assert (status, out) == (2, "")
    assert words in err
    assert "Traceback" not in err


def test_errors_of_the_analysis_are_reported(adk, run):
    status, out, err = run("rmsd", *adk, "--workers", "1", "--select", "name XYZ")
    assert (status, out) == (2, "")
    assert err.endswith("paceline: error: --select: no atoms match 'name XYZ'\n")


def test_too_few_frames_and_foreign_files_are_refused(adk, run, pretended):
    assert "too few for 2000 workers" in run("rmsd", *adk, "--weak", "--workers", "2000")[2]
    pretended.answer = {len(pretended.asked) + 1: {"backend": "serial"}}
    status, _, err = run("rmsd", *adk)
    assert status == 2
    assert "read by MDAnalysis in one process" in err


def test_a_launcher_is_looked_for(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(UnsupportedError, match="neither mpiexec nor mpirun nor srun"):
        find_launcher()
    monkeypatch.setattr(shutil, "which", lambda name: name if name == "srun" else None)
    assert find_launcher() == ["srun"]


def test_ranks_that_measure_are_refused(adk, run, monkeypatch):
    monkeypatch.setattr(bench, "launched", lambda: (4, 0))
    status, _, err = run("rmsd", *adk)
    assert (status, "start paceline bench without mpirun" in err) == (2, True)


def test_options_count_before_and_after_the_analysis(adk, run, pretended):
    run("--workers", "1", "--repeats", "1", "rmsd", *adk)
    run("--workers", "1", "rmsd", *adk, "--repeats", "1")
    run("rmsd", *adk, "--n-workers", "1", "--repeats", "1")
    assert pretended.asked == 3 * [(1, None), (1, None)]


def test_help_of_an_analysis_has_both(run):
    status, out, _ = run("rmsd", "--help")
    assert status == 0
    for words in ("--select", "--workers", "--copies", "\n  paceline bench scaling rmsd"):
        assert words in out
    assert "--checkpoint" not in out
    # A structure alone is refused.
    assert "needs no trajectory" not in out


def test_a_command_that_breaks_tells_how():
    with pytest.raises(UnsupportedError, match=r"nowhere.xtc: No such file"):
        run_command(["info", "nowhere.xtc"])
