"""`import paceline` is light: what a script or a worker process pays before it does anything."""

import subprocess
import sys

#: All that `import paceline` may load, beside NumPy and the standard library.
ALLOWED = {"paceline"}

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
    probe = "import sys; import paceline.worker; print(*sorted(sys.modules))"
    packages = {name.partition(".")[0] for name in loaded_by(probe)}
    assert not packages & {"MDAnalysis", "scipy", "h5py", "matplotlib", "pandas", "tqdm", "loky"}
