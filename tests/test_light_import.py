"""`import paceline` is light: what a script or a worker process pays before it does anything."""

import subprocess
import sys

#: All that `import paceline` may load, beside NumPy and the standard library.
ALLOWED = {"paceline", "paceline._core"}

PROBE = """
import sys
import numpy
before = set(sys.modules)
import paceline
print(*sorted(set(sys.modules) - before))
"""


def loaded_by(statements: str) -> set[str]:
    """Modules that a fresh interpreter prints."""
    command = [sys.executable, "-c", statements]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


def test_import_loads_only_a_fixed_list():
    loaded = loaded_by(PROBE)
    foreign = {name for name in loaded if name.partition(".")[0] not in sys.stdlib_module_names}
    assert foreign == ALLOWED


def test_workers_load_no_mdanalysis():
    # The module of an analysis is what a worker process imports when it is sent its half.
    probe = "import sys; import paceline.analysis.rms; print(*sorted(sys.modules))"
    packages = {name.partition(".")[0] for name in loaded_by(probe)}
    heavy = {"MDAnalysis", "h5py", "loky", "matplotlib", "pandas", "scipy", "tqdm"}
    assert not packages & heavy


#: As where matplotlib is not installed: MDAnalysis without its analyses needs none either.
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
