"""Tests that `import paceline` is fast: the cost for every script and worker process."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from MDAnalysisTests.datafiles import H5MD_xvf

import paceline
from paceline import _core

#: All packages that `import paceline` may load, besides NumPy and the standard library.
ALLOWED = {"paceline", "paceline._core"}

PROBE = """
import sys
import numpy
before = set(sys.modules)
import paceline
print(*sorted(set(sys.modules) - before))
"""


def loaded_by(statements: str) -> set[str]:
    """Return the modules that a fresh interpreter prints."""
    command = [sys.executable, "-c", statements]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


def test_import_loads_only_a_fixed_list():
    loaded = loaded_by(PROBE)
    foreign = {name for name in loaded if name.partition(".")[0] not in sys.stdlib_module_names}
    assert foreign == ALLOWED


def test_workers_load_no_mdanalysis():
    # A worker process imports the module of an analysis when it receives the worker part.
    probe = "import sys; import paceline.analysis.rms; print(*sorted(sys.modules))"
    packages = {name.partition(".")[0] for name in loaded_by(probe)}
    heavy = {"MDAnalysis", "h5py", "loky", "matplotlib", "pandas", "scipy", "tqdm"}
    assert not packages & heavy


@pytest.mark.parametrize(
    ("arguments", "commands"),
    [("--version", set()), ("rmsd --help", {"analysis"}), ("order --help", {"analysis"})],
)
def test_a_command_loads_no_other_one(arguments, commands):
    probe = f"""
import contextlib, io, sys
from paceline.cli import main
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    main({arguments.split()})
print(*sys.modules)
"""
    loaded = loaded_by(probe)
    found = {name for name in loaded if name.startswith("paceline.cli.")}
    parsers = {f"paceline.cli.{name}_commands" for name in commands}
    assert {name for name in found if name.endswith("_commands")} == parsers
    assert not loaded & {"numpy", "logging", "dataclasses", "inspect", "traceback"}


def test_an_older_python_is_refused():
    older = (
        "import sys; sys.hexversion, sys.version_info = 0x030A0DF0, (3, 10, 13); import paceline"
    )
    done = subprocess.run([sys.executable, "-c", older], capture_output=True, text=True)
    sentence = "paceline needs Python 3.11 or newer, found 3.10: install it with a newer one"
    assert done.stderr.endswith(f"ImportError: {sentence}\n")


@pytest.mark.parametrize("content", [None, b"\x7fELF of another processor"])
def test_a_core_for_another_machine_is_named(content, tmp_path):
    (tmp_path / "paceline").mkdir()
    shutil.copy(paceline.__file__, tmp_path / "paceline")
    if content is not None:
        (tmp_path / "paceline" / Path(_core.__file__).name).write_bytes(content)
    command = [sys.executable, "-c", "import sys; sys.path.insert(0, ''); import paceline"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.stderr.count("Traceback") == 1
    assert "paceline's compiled core cannot be loaded (" in done.stderr
    assert "install it again on this machine, with the Python that runs it" in done.stderr


#: Simulate a missing matplotlib. MDAnalysis without its analyses does not need it either.
WITHOUT_MATPLOTLIB = """
import contextlib
import io
import sys

sys.modules["matplotlib"] = None
import paceline
from paceline.analysis.rms import RMSD
from paceline.cli import main

def refused(*arguments):
    with contextlib.redirect_stderr(io.StringIO()) as said:
        status = main(["rmsd", psf, dcd, "--select", "name CA", *arguments])
    return status, said.getvalue()

psf, dcd = sys.argv[1:]
for option in (["--plot", "rmsd.png"], ["--report", "run.html"]):
    status, said = refused(*option)
    assert status == 2 and "pip install 'paceline[plot]'" in said, said
status, said = refused("-o", "rmsd.csv")
assert status in (0, None), said
rmsd = RMSD(paceline.Universe(psf, dcd).select_atoms("name CA")).run()
assert "<img" not in rmsd.results._repr_html_() + rmsd.timings._repr_html_()
assert "RMSD" in rmsd.results._repr_html_()
try:
    rmsd.results.plot()
except paceline.errors.UnsupportedError as error:
    print(error)
"""


def test_figures_alone_need_matplotlib(adk, tmp_path):
    command = [sys.executable, "-W", "ignore", "-c", WITHOUT_MATPLOTLIB, *adk]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "figures and reports need the package matplotlib" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["rmsd.csv"]


#: Simulate a missing MDAnalysis, and packages that only it requires.
WITHOUT_MDANALYSIS = """
import contextlib
import io
import sys

for name in ("MDAnalysis", "scipy", "matplotlib"):
    sys.modules[name] = None
import paceline
from paceline.cli import main

def said(*arguments):
    with contextlib.redirect_stderr(io.StringIO()) as err:
        with contextlib.redirect_stdout(io.StringIO()) as out:
            status = main(list(arguments))
    return status, out.getvalue(), err.getvalue()

psf, dcd, h5md = sys.argv[1:]
for file in (dcd, h5md):
    with paceline.open(file) as trajectory:
        n_frames = sum(len(block.positions) for block in trajectory.blocks(atoms=[0, 5]))
        assert n_frames == trajectory.n_frames > 0
        assert trajectory[-1].positions.shape == (trajectory.n_atoms, 3)
    assert paceline.validate(file).bad == []
    for command in (["info"], ["index"], ["validate"]):
        status, out, err = said(*command, file)
        assert status in (0, None) and str(n_frames) in out + err, err
for ending in ("xtc", "h5md"):
    status, out, err = said("convert", dcd, "new." + ending, "--begin", "5")
    assert status in (0, None) and "93 frames" in err, err
    assert paceline.open("new." + ending).n_frames == 93
positions = paceline.TimeSeries(lambda block: block.positions[:, 3], paceline.open(dcd)).run()
assert positions.results.timeseries.shape == (98, 3)
status, out, err = said("rmsd", psf, dcd)
assert status == 2 and "this command needs the package MDAnalysis" in err, err
for name in ("Universe", "register", "H5MDWriter"):
    try:
        getattr(paceline, name)
    except paceline.errors.UnsupportedError as error:
        print(error)
"""


def test_files_are_read_and_converted_without_mdanalysis(adk, tmp_path):
    h5md = shutil.copy(H5MD_xvf, tmp_path)
    command = [sys.executable, "-W", "ignore", "-c", WITHOUT_MDANALYSIS, *adk, h5md]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for name in ("Universe", "register", "H5MDWriter"):
        needs = "needs the package MDAnalysis; install it with: pip install MDAnalysis"
        assert f"paceline.{name} {needs}" in done.stdout


def test_analyses_are_found_by_their_names():
    """Check name completion by a shell, and `from paceline.analysis import RMSD`."""
    code = (
        "import sys, paceline.analysis\n"
        "names = dir(paceline.analysis)\n"
        "assert {'rms', 'rdf', 'battery', 'RMSD', 'InterRDF'} <= {*names}, names\n"
        "assert 'numpy' not in sys.modules\n"
        "from paceline.analysis import RMSD\n"
        "from paceline.analysis.rms import RMSD as again\n"
        "assert RMSD is again\n"
        "for name in names: getattr(paceline.analysis, name)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
