"""Tests of paceline in a notebook: the output of cells, and the state after the stop button."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
from helpers.waiting import PATIENCE, until
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import start_new_kernel
from MDAnalysisTests import datafiles

import paceline
import paceline.__main__ as command
from paceline.analysis.rms import RMSD

ROOT = Path(__file__).parents[1]


class TestRepresentations:
    """Tests of the HTML of objects at the end of a cell."""

    def test_universe(self, adk_xtc):
        html = paceline.Universe(*adk_xtc)._repr_html_()
        assert "3,341" in html
        assert "adk.xtc" in html
        assert re.search(r"frames.*98", html)

    def test_results_have_a_table_and_a_figure(self, adk_xtc):
        results = RMSD(paceline.Universe(*adk_xtc), select="name CA").run().results
        html = results._repr_html_()
        assert f"{results.rmsd[4, 2]:.5g}" in html
        assert "The first 5 of 98 rows." in html
        assert 'src="data:image/png;base64,' in html

    def test_results_without_a_table_name_their_arrays(self, adk_xtc):
        atoms = paceline.Universe(*adk_xtc).atoms[:7]
        results = paceline.TimeSeries(lambda block: block.positions, atoms).run().results
        html = results._repr_html_()
        assert "float32 of shape (98, 7, 3)" in html

    def test_timings_have_a_bar_of_each_worker(self, adk_xtc):
        run = RMSD(paceline.Universe(*adk_xtc), select="name CA").run(n_workers=2)
        html = run.timings._repr_html_()
        assert 'alt="Time of each worker' in html
        assert "98 frames" in html

    def test_damaged_frames(self, damaged):
        system, frames = damaged
        run = RMSD(paceline.Universe(*system), select="all").run(on_error="skip")
        html = run.damaged._repr_html_()
        assert f"{len(frames)} damaged frames left out" in html
        assert "The first 10 are listed." in html
        assert "<script" not in html

    def test_text_of_files_is_escaped(self, adk_xtc, tmp_path):
        path = tmp_path / "a<b>&c.xtc"
        path.write_bytes(Path(adk_xtc.trajectory).read_bytes())
        html = paceline.Universe(adk_xtc.topology, path)._repr_html_()
        assert "a&lt;b&gt;&amp;c.xtc" in html


def test_adenylate_kinase_opens_as_the_first_steps_say(adk):
    text = (ROOT / "docs" / "notebooks" / "first-steps.ipynb").read_text(encoding="utf-8")
    assert "adenylate kinase opening, 98 frames" in text
    reference = paceline.Universe(datafiles.PDB_closed).select_atoms("name CA")
    atoms = paceline.Universe(*adk).select_atoms("name CA")
    from_closed = RMSD(atoms, reference).run().results.rmsd[:, 2]
    assert len(from_closed) == 98
    assert from_closed[0] < 0.5
    assert from_closed[-1] > 6.5


@pytest.fixture(scope="class")
def kernel():
    """Call a real kernel; return the text that a cell shows, or the name of its error."""
    manager, client = start_new_kernel(startup_timeout=PATIENCE)

    def run(code, stop_when=None):
        request = client.execute(code)
        if stop_when is not None:
            until(stop_when)
            manager.interrupt_kernel()
        shown = []
        while True:
            message = client.get_iopub_msg(timeout=PATIENCE)
            if message["parent_header"].get("msg_id") != request:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "stream":
                shown.append(content["text"])
            elif kind == "error":
                shown.append(content["ename"])
            elif kind in ("execute_result", "display_data"):
                shown.append(content["data"]["text/plain"])
            elif kind == "status" and content["execution_state"] == "idle":
                return "\n".join(shown)

    yield run
    client.stop_channels()
    manager.shutdown_kernel(now=True)


#: Run that ends on request, and lists of its threads, processes and signal handlers.
SETUP = """
import os, signal, threading, time, warnings
warnings.simplefilter("ignore")  # MDAnalysis's bars want ipywidgets
import paceline, psutil
u = paceline.Universe({topology!r}, {trajectory!r})
before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
def slow(block):
    open({folder!r} + "/begun", "w").close()
    while not os.path.exists({folder!r} + "/released"):
        time.sleep(0.1)
    return block.times
def count(block):
    return block.times
def leftovers():
    names = [one.name for one in threading.enumerate() if "paceline" in one.name]
    return [*names, *(p.name() for p in psutil.Process().children(recursive=True)
                      if p.status() != "zombie" and "resource" not in " ".join(p.cmdline()))]
"""
#: Code that waits until the processes of a run have ended, with a long timeout for busy machines.
ENDED = f"""
until = time.monotonic() + {PATIENCE}
while len(leftovers()) > n_before[0] and time.monotonic() < until:
    time.sleep(0.1)
len(leftovers()) <= n_before[0], n_before, leftovers()
"""


class TestStopButton:
    """Tests that after an interrupted run, the next one works in the same kernel."""

    @pytest.mark.parametrize(
        "backend", [pytest.param("threads", marks=pytest.mark.full), "processes"]
    )
    def test_next_run_works(self, backend, kernel, adk_xtc, tmp_path):
        assert kernel(SETUP.format(**adk_xtc._asdict(), folder=str(tmp_path))) == ""
        assert (
            kernel(f"""
paceline.TimeSeries(count, u.atoms[:5]).run(backend={backend!r}, n_workers=2)
n_before = len(leftovers()), len(psutil.Process().children(recursive=True))""")
            == ""
        )
        run = f"paceline.TimeSeries(slow, u.atoms).run(backend={backend!r}, block_frames=1)"
        assert "KeyboardInterrupt" in kernel(run, stop_when=(tmp_path / "begun").exists)
        # The run ended although no block did.
        (tmp_path / "released").touch()
        assert (
            kernel("before == (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM))")
            == "True"
        )
        again = f"paceline.TimeSeries(count, u.atoms).run(backend={backend!r}, n_workers=2)"
        assert kernel(f"len({again}.results.times)") == "98"
        assert kernel(ENDED).startswith("(True")

    def test_progress_is_shown_on_request(self, kernel, adk_xtc, tmp_path):
        kernel(SETUP.format(**adk_xtc._asdict(), folder=str(tmp_path)))
        shown = kernel("paceline.TimeSeries(count, u.atoms).run(progress=True); None")
        assert "98" in shown
        assert kernel("paceline.TimeSeries(count, u.atoms).run(); None") == ""


@pytest.fixture
def jupyter(monkeypatch, tmp_path):
    """Run `python -m paceline -m jupyter`, and return the kernel that Jupyter finds meanwhile."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("JUPYTER_PATH", "/of/the/user")
    seen = []

    def run_script(argv, *, module):
        assert (argv, module) == (["jupyter", "lab"], True)
        spec = KernelSpecManager().get_kernel_spec("python3")
        seen.append((spec, os.environ["PACELINE_KERNEL_OPTIONS"]))
        return 0

    def run(*options):
        assert command.main([*options, "--quiet", "-m", "jupyter", "lab"]) == 0
        return seen[-1]

    monkeypatch.setattr(command, "run_script", run_script)
    return run


def test_kernels_begin_with_paceline(jupyter):
    """Check that options apply while `python -m paceline -m jupyter` runs, and not afterwards."""
    plain = KernelSpecManager().get_kernel_spec("python3")
    for _ in range(2):
        ours, options = jupyter("-j", "3", "--strict")
        assert ours.argv[:3] == ["python", "-m", "paceline"]
        assert options == "--workers=3 --strict"
        assert ours.metadata == plain.metadata, "such as whether messages are encrypted"
        assert KernelSpecManager().get_kernel_spec("python3").argv == plain.argv
        assert os.environ["JUPYTER_PATH"] == "/of/the/user"
        assert "PACELINE_KERNEL_OPTIONS" not in os.environ


def test_a_cache_that_cannot_be_written_is_named(jupyter, tmp_path, capsys):
    (tmp_path / "cache").touch()
    ours, _ = jupyter()
    assert ours.argv[2] != "paceline"
    assert str(tmp_path / "cache") in capsys.readouterr().err


@pytest.mark.parametrize("ranks", [1, 4])
def test_a_kernel_takes_the_options_of_who_started_it(ranks, monkeypatch):
    """Check MPI ranks as well: the kernel is a separate process."""
    given = []
    monkeypatch.setattr(command, "_run", lambda *arguments: given.append(arguments) or 0)
    monkeypatch.setattr(command, "launched", lambda: (ranks, 0))
    monkeypatch.setenv("PACELINE_KERNEL_OPTIONS", "--workers=3 --strict")
    assert command.main(["--quiet", "-m", "ipykernel_launcher", "-f", "connection.json"]) == 0
    ((argv, module, options),) = given
    assert (argv, module) == (["ipykernel_launcher", "-f", "connection.json"], True)
    assert (options.workers, options.strict, options.no_native) == (3, True, False)


@pytest.mark.full
@pytest.mark.parametrize("program", [["jupyter", "nbconvert"], ["nbconvert"]], ids=" ".join)
def test_a_notebook_runs_unchanged(program, tmp_path):
    pytest.importorskip("nbconvert")
    nbformat = pytest.importorskip("nbformat")
    cells = [
        "import MDAnalysis as mda\nimport warnings\nfrom MDAnalysis.analysis import rms",
        "from MDAnalysisTests.datafiles import DCD, PSF\nwarnings.simplefilter('ignore')",
        "u = mda.Universe(PSF, DCD)\ntype(u.trajectory).__module__",
        "rms.RMSD(u, select='name CA').run().results.rmsd.shape",
        "from paceline.mdanalysis import registration\n[one.runs for one in registration._active]",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(one) for one in cells])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
    path = tmp_path / "notebook.ipynb"
    nbformat.write(notebook, path)
    path_of_programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        [
            *(sys.executable, "-m", "paceline", "--quiet", "-m", *program),
            *("--to", "notebook", "--execute", "--stdout", path),
        ],
        env=os.environ | {"PATH": path_of_programs, "XDG_CACHE_HOME": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    ran = nbformat.reads(done.stdout, as_version=4)
    shown = [cell.outputs[-1].data["text/plain"] for cell in ran.cells if cell.outputs]
    assert shown == [
        "'paceline.mdanalysis.reader'",
        "(98, 3)",
        "[[('RMSD', 'native')]]",
    ]


@pytest.mark.parametrize(
    "path", sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem
)
def test_notebooks_of_the_manual_run_and_have_no_output(path, tmp_path, monkeypatch):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert not any(cell["outputs"] or cell["execution_count"] for cell in code)
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    with mock.patch.dict(os.environ):
        for cell in code:
            exec(compile("".join(cell["source"]), path.stem, "exec"), names)
    assert len(code) >= 3
