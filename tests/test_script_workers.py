"""Tests of workers that a script for MDAnalysis starts itself: they use paceline's reader."""

import multiprocessing
import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import MDAnalysis as mda
import numpy as np
import pytest
from MDAnalysis.analysis import rms
from MDAnalysisTests.datafiles import DCD, PSF

import paceline
from paceline.errors import PacelineWarning
from paceline.mdanalysis import register_in_child_processes

#: Beginning of the script. `work` returns the reader's name and a sum of each part.
PRELUDE = """
import sys
import MDAnalysis as mda

def work(topology, trajectory, part):
    u = mda.Universe(topology, trajectory)
    if "spawn" in trajectory:
        u.atoms.write(f"{part}.xtc", frames=u.trajectory[:3])
    radii = [u.atoms.radius_of_gyration() for _ in u.trajectory[part::2]]
    return type(u.trajectory).__name__, sum(radii)

"""
#: How a script starts workers. Each function returns the values of `work` for the given arguments.
WAYS = {
    # The first one, because it copies the process.
    "fork": """
        import multiprocessing
        mda.Universe(*given[0][:2]).trajectory[5]  # threads that read ahead
        with multiprocessing.get_context("fork").Pool(1) as pool:
            return pool.starmap(work, given)
    """,
    "spawn": """
        import multiprocessing
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            return pool.starmap(work, given)
    """,
    "forkserver": """
        import multiprocessing
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["MDAnalysis"])
        with context.Pool(1) as pool:
            return pool.starmap(work, given)
    """,
    "futures": """
        from concurrent.futures import ProcessPoolExecutor
        import multiprocessing
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            return list(pool.map(work, *zip(*given)))
    """,
    "joblib": """
        import joblib
        # With one job, joblib starts no worker.
        return joblib.Parallel(n_jobs=2, batch_size=2)(joblib.delayed(work)(*one) for one in given)
    """,
    "dask": """
        from dask import compute, delayed
        jobs = [delayed(work)(*one) for one in given]
        return list(compute(*jobs, scheduler="processes", num_workers=1, chunksize=1))
    """,
    "distributed": """
        from distributed import Client
        with Client(n_workers=1, threads_per_worker=1, dashboard_address=None) as client:
            return client.gather(client.map(work, *zip(*given)))
    """,
}


def run(*command: object, cwd: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PYTHONWARNINGS": "ignore", **variables}
    return subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def script(tmp_path_factory) -> "subprocess.CompletedProcess[str]":
    """Run a script that starts workers in all ways, each of which reads its own file."""
    folder = tmp_path_factory.mktemp("script")
    ways = {way: code for way, code in WAYS.items() if way != "joblib" or find_spec("joblib")}
    lines = [PRELUDE]
    for way, code in ways.items():
        (folder / f"{way}.dcd").symlink_to(DCD)
        body = "\n".join(line[4:] for line in code.splitlines() if line)
        lines.append(f"def {way}(given):\n{body}\n")
    lines.append("if __name__ == '__main__':")
    for way in ways:
        given = [(PSF, f"{way}.dcd", part) for part in range(2)]
        lines.append(f"    print({way!r}, {way}({given!r}), flush=True)")
    (folder / "script.py").write_text("\n".join(lines) + "\n")
    return run(sys.executable, "-m", "paceline", "script.py", cwd=folder)


@pytest.fixture(scope="module")
def plain() -> list[tuple[str, float]]:
    """Return the values that MDAnalysis's reader yields."""
    names: dict[str, Any] = {}
    exec(PRELUDE, names)
    return [names["work"](PSF, DCD, part) for part in range(2)]


@pytest.mark.parametrize("way", WAYS)
def test_workers_of_the_scripts_own(way: str, script, plain: list[tuple[str, float]]) -> None:
    if way == "joblib":
        pytest.importorskip("joblib")
    assert script.returncode == 0, script.stderr
    printed = dict(line.split(" ", 1) for line in script.stdout.splitlines())
    assert {name for name, _ in plain} == {"DCDReader"}
    assert printed[way] == f"{[('Reader', radii) for _, radii in plain]}"


def test_summary_of_the_scripts_workers(script) -> None:
    """Check that the summary counts the file of every way, and the files that a worker wrote."""
    n = len(script.stdout.splitlines())
    # joblib may use one worker or both.
    workers = {f"{m} workers of the script's own" for m in (n, n + 1)}
    assert any(
        f"its reader opened {n} trajectories in {found}\n" in script.stderr for found in workers
    ), script.stderr
    assert "paceline: its reader opened 1 trajectory\n" in script.stderr
    assert "paceline: it encoded the frames of 2 trajectories\n" in script.stderr


def test_workers_of_dask_that_run_already(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    cluster = distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, dashboard_address=None, processes=True
    )
    with cluster, paceline.register(native=False):
        with distributed.Client(cluster.scheduler_address) as client:
            assert client.submit(_reader).result() == "Reader"
        assert "paceline" in _plugins(cluster)


def _reader() -> str:
    return type(mda.Universe(PSF, DCD).trajectory).__name__


def _plugins(cluster) -> list[str]:
    return list(cluster.scheduler.worker_plugins)


def test_a_worker_with_another_version_is_left_to_mdanalysis(tmp_path: Path) -> None:
    with paceline.register() as registration:
        given = register_in_child_processes.ScriptOptions.from_environment()
        assert given is not None
        code = (
            "import json, os\n"
            "options = json.loads(os.environ['PACELINE_SCRIPT']) | {'version': '0.0.1'}\n"
            "os.environ['PACELINE_SCRIPT'] = json.dumps(options)\n"
            "import MDAnalysis as mda\n"
            f"print(type(mda.Universe({PSF!r}, {DCD!r}).trajectory).__name__)\n"
        )
        done = run(sys.executable, "-c", code, cwd=tmp_path, PYTHONWARNINGS="default")
    assert done.stdout == "DCDReader\n"
    assert (
        "but the script 0.0.1: MDAnalysis's own readers open trajectories in this process"
        in done.stderr
    )
    assert "the script 0.0.1" in registration.summary()


def test_a_python_without_paceline_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "paceline").mkdir()
    (tmp_path / "paceline" / "__init__.py").write_text("")
    with paceline.register():
        path = os.environ["PYTHONPATH"]
        done = run(
            *(sys.executable, "-c", "import MDAnalysis, paceline; print(paceline.__file__)"),
            cwd=tmp_path,
            PYTHONPATH=os.pathsep.join([path.split(os.pathsep)[0], str(tmp_path)]),
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(tmp_path / "paceline" / "__init__.py")


def test_another_start_up_hook_is_imported_too(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('theirs')\n")
    code = (
        "import sitecustomize, sys\nprint(sitecustomize.__file__)\n"
        "print(any(path.endswith('start_up') for path in sys.path), 'paceline' in sys.modules)\n"
    )
    with paceline.register():
        path = os.pathsep.join([os.environ["PYTHONPATH"].split(os.pathsep)[0], str(tmp_path)])
        done = run(sys.executable, "-c", code, cwd=tmp_path, PYTHONPATH=path)
    assert done.stdout.split("\n")[:3] == ["theirs", f"{tmp_path}/sitecustomize.py", "False False"]


def test_the_environment_is_restored() -> None:
    before = dict(os.environ)
    with paceline.register() as outer:
        assert os.environ != before
        with paceline.register():
            pass
        found = register_in_child_processes.ScriptOptions.from_environment()
        assert found is not None
        folder = Path(found.folder)
        assert folder.is_dir()
    assert dict(os.environ) == before
    assert not folder.exists()
    assert outer.processes == []


def test_registrations_end_in_any_order(monkeypatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "first")
    before = dict(os.environ)
    with paceline.register():
        folder = register_in_child_processes.ScriptOptions.from_environment().folder
        inner = paceline.register()
        monkeypatch.setenv("PYTHONPATH", f"{os.environ['PYTHONPATH']}{os.pathsep}second")
    found = register_in_child_processes.ScriptOptions.from_environment()
    assert found.folder != folder
    assert Path(found.folder).is_dir()
    with inner:
        assert str(register_in_child_processes.HOOK) in os.environ["PYTHONPATH"]
    assert dict(os.environ) == before | {"PYTHONPATH": f"first{os.pathsep}second"}


def test_no_folder_remains_when_a_script_ends(tmp_path: Path) -> None:
    code = (
        "import os, paceline; paceline.register()\n"
        "if hasattr(os, 'fork') and os.fork() == 0: raise SystemExit\n"
        "if hasattr(os, 'fork'): os.wait()\n"
        "print(os.listdir(os.environ['TMPDIR']))"
    )
    done = run(sys.executable, "-c", code, cwd=tmp_path, TMPDIR=str(tmp_path))
    assert done.stdout.startswith("['paceline-script-"), done.stderr
    assert os.listdir(tmp_path) == []


def test_registration_needs_no_temporary_folder(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / str(os.getpid())).touch()  # like an event file
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    with paceline.register() as registration:
        found = register_in_child_processes.ScriptOptions.from_environment()
        assert found.folder == ""
        register_in_child_processes.record(found.folder, "opened", DCD)
        assert registration.processes == []
    assert [path.stat().st_size for path in tmp_path.iterdir()] == [0]


def test_a_pool_that_was_made_before_is_named() -> None:
    with (
        multiprocessing.get_context("spawn").Pool(1),
        pytest.warns(PacelineWarning, match=r"\d+ workers? of this script started before"),
        paceline.register(),
    ):
        pass


def test_rmsd_of_a_script_keeps_its_bits() -> None:
    random = np.random.default_rng(5)
    for n_atoms in (1, 2, 3, 7, 214, 3341, 70_001):
        a, b = random.normal(30, 10, (2, n_atoms, 3)).astype(np.float32)
        for given in ({"superposition": True}, {"center": True}, {"weights": a[:, 0] ** 2}):
            expected = rms.rmsd(a, b, **given)
            with paceline.register():
                np.testing.assert_equal(rms.rmsd(a, b, **given), expected)
                columns = np.asfortranarray(a.astype(np.float64))
                original = rms.rmsd.__wrapped__(columns, b, **given)
                np.testing.assert_equal(rms.rmsd(columns, b, **given), original)
    with paceline.register(), pytest.raises(ValueError, match="same shape"):
        rms.rmsd(a, b[1:], superposition=True)
