"""Fixtures: trajectories that real programs wrote. Each test session has its own copies."""

import contextlib
import functools
import gc
import math
import multiprocessing
import os
import re
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import distributed
import loky
import MDAnalysis
import numpy as np
import pytest
from MDAnalysis.core import universe as mdanalysis_universe
from MDAnalysisTests import datafiles

import paceline
from paceline.backends import processes
from paceline.backends.local_dask_cluster import LocalCluster
from paceline.engine import scheduler
from paceline.mdanalysis import register_in_child_processes, registration

#: Scripts that tests run on MPI ranks, and a script that needs the packages for the manual.
collect_ignore = ["helpers/start_up", "helpers/windows", "mpi", "user_guide.py"]
#: Folder of the start-up hook of interpreters that tests start.
START_UP = str(Path(__file__).parent / "helpers" / "start_up")
if START_UP not in os.environ.get("PYTHONPATH", "").split(os.pathsep):
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [START_UP, *filter(None, [os.environ.get("PYTHONPATH")])]
    )
#: Backends that schedule work differently. `OTHERS` are variants of these.
EACH_WAY = ["serial", "threads-2", "processes-2", "ProcessPoolExecutor", "dask"]
OTHERS = ["threads-1", "threads-4", "ThreadPoolExecutor", "loky"]
#: Modules that start many processes or measure time. No two of them run at the same time.
HEAVY = {
    *("test_advise", "test_benchmarks", "test_changed_files", "test_hunt", "test_mpi"),
    "test_paper_scripts",
    *("test_mpi_hosts", "test_scaling", "test_slowfs", "test_snapshot_memory"),
    *("test_snapshot_reader", "test_snapshot_writer"),
}
#: Modules with the longest tests that use workers. Another test process runs them.
LONGEST = {"test_dask", "test_drop_in", "test_failures", "test_manual"}
#: Universes that all tests of a process share.
SHARED: list[MDAnalysis.Universe] = []
#: Tests and fixtures that use persistent workers: a pool, or a Dask cluster.
USES_WORKERS = re.compile(r"^def \w+\(.*\b(where|everywhere|dask_client|pool)\b", re.MULTILINE)
with contextlib.suppress(ImportError):
    import mpi4py

    # Collecting doctests imports modules that use MPI. This process must not become a rank of MPI.
    mpi4py.rc.initialize = False
# Other tests may take more than a minute between two tests that use worker processes.
processes.IDLE = 1800
# If tests run in the background of a script, Ctrl-C is ignored, also by child processes.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Keep the tests of a module in one process, and all heavy modules in the same process.

    Modules whose tests share workers are also kept in one process, because each process would start
    its own workers. The longest modules are in another process. Otherwise the last process would
    finish minutes after the others.
    """
    # The mark `xdist_group` has no effect with pytest 9.2.
    from xdist.scheduler import LoadScopeScheduling

    @functools.cache
    def group_of(module):
        for modules, group in ((HEAVY, "heavy"), (LONGEST, "longest")):
            if Path(module).stem in modules:
                return group
        code = (config.rootpath / module).read_text(encoding="utf-8")
        return "workers" if USES_WORKERS.search(code) else module

    class ModuleScheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            module, _, _ = nodeid.partition("::")
            return group_of(module)

    return ModuleScheduling(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Skip cases that only `make test-all` runs, and examples that `test_snapshot_reader` runs."""
    n_cases = Counter()
    for item in items:
        one_in = item.get_closest_marker("one_in")
        if one_in and not item.get_closest_marker("full"):
            test, _, _ = item.nodeid.partition("[")
            if n_cases[test] % one_in.args[0]:
                item.add_marker(pytest.mark.full)
            n_cases[test] += 1
        if isinstance(item, pytest.DoctestItem):
            code = "".join(example.source for example in item.dtest.examples)
            if "mpi4py" in code:
                item.add_marker(pytest.mark.skip(reason="needs a rank of MPI"))


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Exclude the 400,000 objects of the collected tests from garbage collection."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.fixture
def run(run_with_answer, monkeypatch):
    """Run the command in this process; return status, stdout, and warnings and errors of stderr."""
    monkeypatch.setattr("paceline.cli.print_results.say", lambda text: None)
    return run_with_answer


@pytest.fixture
def run_with_answer(capsys, monkeypatch):
    """Run the command in this process; return status, stdout, and all of stderr."""
    # On a slow machine, a run of a minute would log its progress.
    monkeypatch.setattr("paceline._util.progress.LOG_INTERVAL", math.inf)

    from paceline.cli import main

    def run(*arguments):
        try:
            status = main([str(argument) for argument in arguments])
        except SystemExit as stop:
            status = stop.code
        written = capsys.readouterr()
        return status, written.out, written.err

    return run


class System(NamedTuple):
    """Topology and trajectory of the same atoms."""

    topology: str
    trajectory: str


@pytest.fixture(scope="session", autouse=True)
def private_cache(tmp_path_factory):
    """Redirect indices that cannot be saved next to their file from the user's cache to a test
    folder.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True)
def no_registration_remains():
    """Fail a test that leaves paceline registered, because this would affect later tests."""
    yield
    remains = [*registration._active]
    while registration._active:
        paceline.unregister()
    assert not remains
    assert register_in_child_processes.VARIABLE not in os.environ


@pytest.fixture(scope="session")
def adk(tmp_path_factory) -> Iterator[System]:
    """Adenylate kinase, 3341 atoms, 98 frames: CHARMM's PSF and DCD, no cell.

    The topology is parsed once. Each Universe gets a copy, which takes a quarter of the time.
    """
    found = _copy(tmp_path_factory.mktemp("adk"), datafiles.PSF, datafiles.DCD)
    parse = mdanalysis_universe._topology_from_file_like
    parsed = parse(found.topology)

    def copy_or_parse(file, topology_format=None, **options):
        if isinstance(file, str) and file == found.topology and not topology_format:
            return parsed.copy()
        return parse(file, topology_format=topology_format, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mdanalysis_universe, "_topology_from_file_like", copy_or_parse)
        yield found


@pytest.fixture(scope="session")
def alphas(adk, tmp_path_factory) -> System:
    """Alpha carbons of adenylate kinase, 214 atoms, 98 frames: GRO and DCD."""
    files = [str(tmp_path_factory.mktemp("alphas") / f"ca.{end}") for end in ("gro", "dcd")]
    group = MDAnalysis.Universe(*adk).select_atoms("name CA")
    group.write(files[0])
    group.write(files[1], frames="all")
    return System(*files)


@pytest.fixture(scope="session")
def adk_in_water(tmp_path_factory) -> System:
    """Adenylate kinase in water, 47681 atoms, 10 frames: GROMACS's GRO and XTC."""
    return _copy(tmp_path_factory.mktemp("adk_in_water"), datafiles.GRO, datafiles.XTC)


@pytest.fixture(scope="session")
def adk_xtc(adk, tmp_path_factory) -> System:
    """Return the same frames of adenylate kinase as XTC."""
    path = tmp_path_factory.mktemp("adk_xtc") / "adk.xtc"
    universe = MDAnalysis.Universe(*adk)
    with MDAnalysis.Writer(str(path), universe.atoms.n_atoms) as writer:
        for _ in universe.trajectory:
            writer.write(universe.atoms)
    return System(adk.topology, str(path))


@pytest.fixture(scope="session")
def moving(tmp_path_factory) -> tuple[str, str]:
    """Topology and a TRR with positions, velocities and forces, each missing in some frames."""
    folder = tmp_path_factory.mktemp("moving")
    universe = MDAnalysis.Universe(datafiles.GRO)
    atoms = universe.atoms[:2000]
    atoms.write(folder / "part.gro")
    rng = np.random.default_rng(7)
    path = str(folder / "moving.trr")
    with MDAnalysis.Writer(path, len(atoms)) as writer:
        for frame in range(20):
            ts = MDAnalysis.coordinates.base.Timestep(
                len(atoms), velocities=frame % 2 == 0, forces=frame % 4 == 0
            )
            ts.positions = atoms.positions + rng.normal(0, 1, (len(atoms), 3))
            if ts.has_velocities:
                ts.velocities = rng.normal(0, 5, (len(atoms), 3))
            if ts.has_forces:
                ts.forces = rng.normal(0, 500, (len(atoms), 3))
            ts.dimensions = [80, 90, 100, 90, 80 + frame, 70]
            ts.frame, ts.time, ts.data["step"] = frame, 2.0 * frame, 1000 * frame
            part = MDAnalysis.Merge(atoms)
            part.trajectory.ts = ts
            writer._write_next_frame(part.atoms)
    return str(folder / "part.gro"), path


@pytest.fixture(scope="session")
def damaged(adk_xtc, tmp_path_factory) -> tuple[System, list[int]]:
    """The XTC with damaged frames: single frames, and the whole second leaf of 16 frames."""
    frames = [3, *range(16, 32), 50, 97]
    path = Path(shutil.copy(adk_xtc.trajectory, tmp_path_factory.mktemp("damaged")))
    offsets = MDAnalysis.Universe(*adk_xtc).trajectory._xdr.offsets
    data = bytearray(path.read_bytes())
    for frame in frames:
        # Move the first packed atom far outside the bounding box; the headers remain valid.
        data[offsets[frame] + 92 : offsets[frame] + 108] = b"\xff" * 16
    path.write_bytes(data)
    return System(adk_xtc.topology, str(path)), frames


@pytest.fixture(scope="session")
def drifting(tmp_path_factory) -> System:
    """AdK in water, three frames; the protein is broken across the cell only in the last frame."""
    folder = tmp_path_factory.mktemp("drifting")
    path = folder / "drifting.xtc"
    universe = paceline.Universe(datafiles.TPR, shutil.copy(datafiles.XTC, folder))
    protein = universe.select_atoms("protein")
    protein.unwrap()
    with MDAnalysis.Writer(str(path), len(universe.atoms)) as writer:
        writer.write(universe.atoms)
        writer.write(universe.atoms)
        protein.translate(-protein.positions.mean(axis=0))
        protein.wrap()
        writer.write(universe.atoms)
    return System(datafiles.TPR, str(path))


@pytest.fixture(scope="session")
def membrane_lipids() -> tuple[MDAnalysis.Universe, paceline.Universe, np.ndarray]:
    """A membrane in a hexagonal cell, read by MDAnalysis and by paceline, and bonds of its
    hydrogens.
    """
    files = datafiles.GRO_MEMPROT, datafiles.XTC_MEMPROT
    theirs, ours = (kind(*files) for kind in (MDAnalysis.Universe, paceline.Universe))
    group = theirs.select_atoms("resname POPE POPG")
    is_hydrogen = np.char.startswith(group.names.astype(str), "H")
    heavy = np.maximum.accumulate(np.where(is_hydrogen, 0, group.indices))
    bonds = np.column_stack([heavy, group.indices])[is_hydrogen]
    ours.add_TopologyAttr("bonds", bonds)
    return theirs, ours, bonds


@pytest.fixture(scope="session")
def universe(adk) -> paceline.Universe:
    """Adenylate kinase on paceline's reader."""
    SHARED.append(paceline.Universe(*adk))
    return SHARED[-1]


@pytest.fixture(scope="session")
def theirs(adk) -> MDAnalysis.Universe:
    """Adenylate kinase on MDAnalysis's own reader."""
    SHARED.append(MDAnalysis.Universe(*adk))
    return SHARED[-1]


@pytest.fixture(autouse=True)
def at_the_first_frame():
    """Set the shared Universes to their first frame, the reference of many analyses."""
    for one in SHARED:
        if one.trajectory.frame:
            one.trajectory[0]


@pytest.fixture
def nothing_overdue(monkeypatch):
    """Prevent second attempts of a block, for tests that count the calls of each worker."""
    monkeypatch.setattr(scheduler, "SHORTEST", 1e6)
    monkeypatch.setattr(scheduler, "UNKNOWN", 1e6)


@pytest.fixture(scope="session")
def dask_client() -> Iterator[distributed.Client]:
    """Two local Dask worker processes for all tests. Tests that kill workers start others."""
    cluster = LocalCluster(2)
    yield cluster.client
    cluster.close()


@pytest.fixture(scope="session")
def pool() -> Iterator[Callable[[str], Executor]]:
    """One pool of each kind, created on first use."""
    kinds = {
        "ThreadPoolExecutor": lambda: ThreadPoolExecutor(2),
        "ProcessPoolExecutor": lambda: ProcessPoolExecutor(
            2, mp_context=multiprocessing.get_context("spawn")
        ),
        "loky": lambda: loky.ProcessPoolExecutor(2),
    }
    with contextlib.ExitStack() as stack:
        yield functools.cache(lambda kind: stack.enter_context(kinds[kind]()))


# The fixture is created for each test, although workers persist. Grouping tests by backend would
# repeat the preparation of each module for each backend.
@pytest.fixture(params=EACH_WAY + [pytest.param(name, marks=pytest.mark.full) for name in OTHERS])
def where(request, pool) -> dict[str, Any]:
    """A backend of each kind, as options of `run`; all backends in `make test-all`."""
    return _as_run_takes_it(request, pool)


@pytest.fixture(params=EACH_WAY + OTHERS)
def everywhere(request, pool) -> dict[str, Any]:
    """Every backend, as options of `run`."""
    return _as_run_takes_it(request, pool)


def _as_run_takes_it(request, pool):
    if request.param == "dask":
        return {"backend": request.getfixturevalue("dask_client")}
    if request.param in ("ThreadPoolExecutor", "ProcessPoolExecutor", "loky"):
        return {"backend": pool(request.param)}
    name, _, n_workers = request.param.partition("-")
    return {"backend": name, "n_workers": int(n_workers) if n_workers else None}


def _copy(folder: Path, topology, trajectory) -> System:
    # Otherwise an index would be written next to a file of the installed package.
    return System(*(str(shutil.copy(str(path), folder)) for path in (topology, trajectory)))
