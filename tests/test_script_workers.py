"""Tests of workers that a script for MDAnalysis starts itself: they use paceline's reader."""

import multiprocessing
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import MDAnalysis as mda
import numpy as np
import pytest
from MDAnalysis.analysis import rms
from MDAnalysisTests.datafiles import DCD, PSF

import paceline
from paceline.errors import PacelineWarning
from paceline.mdanalysis import script_processes

PRELUDE = """
import sys
import MDAnalysis as mda

def work(part):
    u = mda.Universe(*FILES)
    radii = [u.atoms.radius_of_gyration() for _ in u.trajectory[part::2]]
    return type(u.trajectory).__name__, sum(radii)

FILES = {files!r}
"""
#: Name, required packages, and script; each prints the readers and sums of two workers.
WAYS = {
    "spawn": """
        import multiprocessing
        with multiprocessing.get_context("spawn").Pool(2) as pool:
            found = pool.map(work, range(2), chunksize=1)
    """,
    "forkserver": """
        import multiprocessing
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["MDAnalysis"])
        with context.Pool(2) as pool:
            found = pool.map(work, range(2), chunksize=1)
    """,
    "fork": """
        import multiprocessing
        mda.Universe(*FILES).trajectory[5]  # threads that read ahead
        with multiprocessing.get_context("fork").Pool(2) as pool:
            found = pool.map(work, range(2), chunksize=1)
    """,
    "futures": """
        from concurrent.futures import ProcessPoolExecutor
        import multiprocessing
        with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
            found = list(pool.map(work, range(2)))
    """,
    "joblib": """
        import joblib
        found = joblib.Parallel(n_jobs=2, batch_size=1)(joblib.delayed(work)(k) for k in range(2))
    """,
    "dask": """
        from dask import compute, delayed
        jobs = [delayed(work)(k) for k in range(2)]
        found = compute(*jobs, scheduler="processes", num_workers=2, chunksize=1)
    """,
    "distributed": """
        from dask import compute, delayed
        from distributed import Client
        with Client(n_workers=2, threads_per_worker=1, dashboard_address=None) as client:
            found = client.gather(client.map(work, range(2)))
    """,
}


def write_script(path: Path, way: str) -> Path:
    text = PRELUDE.replace("{files!r}", repr((PSF, DCD)))
    lines = "\n".join(line[4:] for line in way.splitlines())
    path.write_text(f"{text}\nif __name__ == '__main__':\n{lines}\n    print(list(found))\n")
    return path


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
def plain() -> str:
    """Return what the scripts print without paceline."""
    names: dict[str, Any] = {}
    exec(PRELUDE.replace("{files!r}", repr((PSF, DCD))), names)
    return f"{[names['work'](part) for part in range(2)]}\n"


@pytest.mark.parametrize("way", WAYS)
def test_workers_of_the_scripts_own(way: str, plain: str, tmp_path: Path) -> None:
    if way == "joblib":
        pytest.importorskip("joblib")
    script = write_script(tmp_path / "script.py", WAYS[way])
    assert "DCDReader" in plain
    done = run(sys.executable, "-m", "paceline", script, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == plain.replace("DCDReader", "Reader")
    workers = {f"{n} worker{'s' * (n > 1)} of the script's own" for n in (1, 2)}
    assert any(f"opened 1 trajectory in {found}" in done.stderr for found in workers), done.stderr


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
        given = script_processes.ScriptOptions.from_environment()
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


def test_files_that_workers_write_are_in_the_summary(tmp_path: Path) -> None:
    script = write_script(tmp_path / "script.py", WAYS["spawn"])
    text = script.read_text().replace(
        "    radii =",
        "    u.atoms.write(f'{part}.xtc', frames=u.trajectory[:3])\n    radii =",
    )
    script.write_text(text)
    done = run(sys.executable, "-m", "paceline", script, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "paceline: it encoded the frames of 2 trajectories\n" in done.stderr


def test_the_environment_is_restored() -> None:
    before = dict(os.environ)
    with paceline.register() as outer:
        assert os.environ != before
        with paceline.register():
            pass
        found = script_processes.ScriptOptions.from_environment()
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
        folder = script_processes.ScriptOptions.from_environment().folder
        inner = paceline.register()
        monkeypatch.setenv("PYTHONPATH", f"{os.environ['PYTHONPATH']}{os.pathsep}second")
    found = script_processes.ScriptOptions.from_environment()
    assert found.folder != folder
    assert Path(found.folder).is_dir()
    with inner:
        assert str(script_processes.HOOK) in os.environ["PYTHONPATH"]
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
        found = script_processes.ScriptOptions.from_environment()
        assert found.folder == ""
        script_processes.record(found.folder, "opened", DCD)
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
