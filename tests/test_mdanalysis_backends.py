"""Tests of MDAnalysis's analyses, and of users' analyses, on paceline's backends."""

import contextlib
import functools
import importlib
import math
import os
import pkgutil
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import MDAnalysis
import MDAnalysis.analysis.backends
import numpy as np
import pytest
from helpers import shipped
from helpers.barrier import meet
from helpers.shipped import SPLIT, SUMS, assert_same, ca, gyration
from MDAnalysis.analysis import lineardensity, rms
from MDAnalysis.analysis.base import AnalysisBase, AnalysisFromFunction
from MDAnalysis.analysis.results import ResultsGroup
from MDAnalysis.core import selection
from MDAnalysis.lib.log import ProgressBar
from MDAnalysis.transformations import translate

import paceline
from paceline._util.progress import Progress
from paceline.backends import Dask, Pool, Processes, Serial, Threads, processes
from paceline.errors import (
    AnalysisError,
    DamagedFileError,
    PacelineWarning,
    UnsupportedError,
    WorkerError,
)


class Ends(AnalysisBase):
    """Analysis of a user that leaves much state for the next part."""

    _analysis_algorithm_is_parallelizable = True

    def __init__(self, atoms, note=None):
        super().__init__(atoms.universe.trajectory)
        self.atoms, self.note = atoms, note
        self.results.distances = []
        self.results.atoms = []

    def _single_frame(self):
        first, last = self.atoms.positions[[0, -1]]
        self.results.distances.append(np.linalg.norm(last - first))
        self.results.atoms = [self.atoms]

    def _get_aggregator(self):
        join = ResultsGroup.flatten_sequence
        return ResultsGroup({"distances": join, "atoms": join})


@pytest.fixture(scope="module")
def system(tmp_path_factory):
    """Part of a protein: a topology and 98 frames of XTC."""
    return shipped.protein(tmp_path_factory.mktemp("part"))


@pytest.fixture(scope="module")
def strands(tmp_path_factory):
    """Strands of RNA: a topology and 20 frames of XTC."""
    return shipped.strands(tmp_path_factory.mktemp("strands"))


@pytest.fixture(scope="module")
def part(system):
    return paceline.Universe(*system)


@pytest.fixture(scope="module")
def expected(part):
    """Return MDAnalysis's results for each class, starting at frame 11."""

    @functools.cache
    def of(name):
        part.trajectory[11]
        return SPLIT[name](part).run(start=2)

    return of


@pytest.fixture(
    scope="module",
    params=[Serial(), Threads(2), Processes(2)],
    ids=lambda backend: backend.name,
)
def backend(request):
    return request.param


def all_classes() -> set[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for module in pkgutil.walk_packages(MDAnalysis.analysis.__path__, "MDAnalysis.analysis."):
            importlib.import_module(module.name)
    every = subclasses(AnalysisBase)
    return {kind.__name__ for kind in every if kind.__module__.startswith("MDAnalysis.")}


def subclasses(kind: type) -> Iterator[type]:
    for one in kind.__subclasses__():
        yield one
        yield from subclasses(one)


def test_none_that_mdanalysis_ships_is_forgotten():
    assert all_classes() == shipped.EVERY.keys()


@pytest.fixture(scope="module")
def alone(system, strands, tmp_path_factory):
    """Compute each class with MDAnalysis alone and its own reader, frame by frame."""

    @functools.cache
    def of(name):
        files = strands if name in shipped.OF_STRANDS else system
        with contextlib.chdir(tmp_path_factory.mktemp("alone")):
            return shipped.EVERY[name](MDAnalysis.Universe(*files)).run(start=2)

    return of


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:No frame information")
@pytest.mark.parametrize(
    "kind",
    [
        "processes",
        pytest.param("serial", marks=pytest.mark.full),
        pytest.param("threads", marks=pytest.mark.full),
        pytest.param("dask", marks=pytest.mark.full),
    ],
)
@pytest.mark.parametrize("name", shipped.EVERY)
def test_every_class_on_every_backend(name, kind, alone, system, strands, request, tmp_path):
    client = request.getfixturevalue("dask_client") if kind == "dask" else None
    backend = {"serial": Serial(), "dask": client}.get(kind, kind)
    universe = paceline.Universe(*(strands if name in shipped.OF_STRANDS else system))
    with paceline.register(native=False, n_workers=2) as registration, contextlib.chdir(tmp_path):
        found = shipped.EVERY[name](universe).run(start=2, backend=backend)
    ordered = name in shipped.ORDERED
    how = "in this process, in order" if ordered else f"on {kind}"
    assert registration.runs == [(name, how)]
    np.testing.assert_array_equal(found.frames, alone(name).frames)
    np.testing.assert_array_equal(found.times, alone(name).times)
    assert_same(found.results, alone(name).results, rounding=SUMS.get(name))
    assert universe.trajectory.frame == 0


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", SPLIT)
def test_results_are_those_of_mdanalysis_alone(name, part, backend, expected):
    alone = expected(name)
    part.trajectory[11]
    found = SPLIT[name](part).run(start=2, backend=backend)
    # The frame must be that at which MDAnalysis ends, because the last step of a class may use it.
    assert part.trajectory.ts.frame == 0
    np.testing.assert_array_equal(found.frames, alone.frames)
    np.testing.assert_array_equal(found.times, alone.times)
    assert len(backend.timings.blocks) == 8
    assert_same(found.results, alone.results, rounding=SUMS.get(name))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("where", ["here", "processes"])
@pytest.mark.parametrize("name", SPLIT)
def test_results_where_nothing_but_register_is_called(name, where, part, expected, monkeypatch):
    # On a busy machine, anything may take so long that processes would be used.
    monkeypatch.setattr(processes, "SAMPLE", 0.0)
    monkeypatch.setattr(processes, "WORTH", 0.0 if where == "processes" else np.inf)
    part.trajectory[11]
    with paceline.register(native=False, n_workers=2) as registration:
        found = SPLIT[name](part).run(start=2)
    how = "in this process" if where == "here" else "on 2 processes"
    assert registration.runs == [(name, how)]
    assert part.trajectory.ts.frame == 0
    np.testing.assert_array_equal(found.frames, expected(name).frames)
    assert_same(found.results, expected(name).results, rounding=SUMS.get(name))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:No frame information")
@pytest.mark.parametrize("kind", [None, "threads", "processes"])
def test_theirs_and_ours_are_run_together(
    kind, alone, system, tmp_path, monkeypatch, nothing_overdue
):
    monkeypatch.chdir(tmp_path)  # AlignTraj writes a file
    universe = paceline.Universe(*system)
    reads = []
    read = type(universe.trajectory)._read_frame
    monkeypatch.setattr(
        type(universe.trajectory),
        "_read_frame",
        lambda self, frame: reads.append(frame) or read(self, frame),
    )
    names = [*shipped.ORDERED, "RMSD", "Contacts", "AnalysisFromFunction", "LinearDensity"]
    theirs = [shipped.EVERY[name](universe) for name in names]
    ours = paceline.analysis.rms.RMSF(ca(universe))
    found = paceline.run([*theirs, ours], start=2, backend=kind, n_workers=kind and 2)
    assert found == [*theirs, ours]
    for name, one in zip(names, theirs, strict=True):
        np.testing.assert_array_equal(one.times, alone(name).times)
        assert_same(one.results, alone(name).results, rounding=SUMS.get(name))
    np.testing.assert_allclose(ours.results.rmsf, alone("RMSF").results.rmsf, rtol=1e-5)
    # Two passes run in this process: one for the other classes, and one in which PCA prepares.
    n_passes = {None: 3, "threads": 3, "processes": 2}[kind]
    assert reads.count(50) <= n_passes


def test_threads_parse_selections_one_at_a_time(part, monkeypatch):
    """Check that threads wait, because MDAnalysis has a single parser."""
    inside, most = set(), []
    parse = selection.SelectionParser.parse_expression

    def parse_slowly(self, *args):
        inside.add(threading.get_ident())
        time.sleep(0.001)
        most.append(len(inside))
        found = parse(self, *args)
        inside.discard(threading.get_ident())
        return found

    monkeypatch.setattr(selection.SelectionParser, "parse_expression", parse_slowly)
    one = AnalysisFromFunction(lambda atoms: len(atoms.select_atoms("name CA")), part.atoms)
    paceline.run([one], stop=16, backend="threads", n_workers=2)
    assert max(most) == 1


def test_options_that_mdanalysis_has_not_are_refused(part):
    both = [rms.RMSD(part, select="name CA"), paceline.analysis.rms.RMSF(ca(part))]
    for options in ({"on_error": "skip"}, {"block_frames": 16}, {"checkpoint": "x"}):
        with pytest.raises(
            UnsupportedError, match=rf"RMSD is an MDAnalysis .*not support {next(iter(options))}="
        ):
            paceline.run(both, **options)
    assert both[1].results == {}


class OwnRun(Ends):
    def run(self, *arguments, **options):
        return super().run(*arguments, **options)


def test_a_run_of_its_own_is_not_run_together(part):
    with pytest.raises(UnsupportedError, match=r"OwnRun has its own run\(\)"):
        paceline.run([OwnRun(ca(part)), Ends(ca(part))])


class Doubling(AnalysisBase):
    """Analysis that needs the previous frame, and changes the current frame."""

    def __init__(self, atoms):
        super().__init__(atoms.universe.trajectory)
        self.atoms, self.results.sums = atoms, []

    def _single_frame(self):
        before = self.results.sums[-1] if self.results.sums else 0.0
        self.atoms.positions *= 2.0
        self.atoms.dimensions = [1, 1, 1, 90, 90, 90]
        self.results.sums.append(before + float(self.atoms.positions.sum()))


@pytest.mark.parametrize("kind", ["serial", "threads", "processes"])
def test_a_class_that_changes_frames_and_needs_the_last_one(kind, system):
    expected = Doubling(MDAnalysis.Universe(*system).atoms).run().results.sums
    universe = paceline.Universe(*system)
    cells = AnalysisFromFunction(lambda atoms: atoms.dimensions, universe.atoms)
    first, second, cells = paceline.run(
        [Doubling(universe.atoms), Doubling(universe.atoms), cells], backend=kind
    )
    assert first.results.sums == second.results.sums == expected
    assert (cells.results.timeseries[:, :3] == 60).all()


def test_every_part_finds_a_users_analysis_as_it_was_given(part, backend):
    expected = Ends(ca(part)).run().results.distances
    found = Ends(ca(part)).run(backend=backend)
    assert found.results.distances == expected
    # The results refer to the user's own Universe: no Universe was sent back.
    assert len(found.results.atoms) == 8
    assert all(atoms.universe is part for atoms in found.results.atoms)


@pytest.mark.parametrize(
    "frames",
    [{"step": -3}, {"frames": [5, 3, 90, 3]}, {"stop": 0}, {"n_parts": 5}, {"frames": [7]}],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:Analysis not making use", "ignore:Set `n_parts`")
def test_frames_are_those_that_run_is_asked_for(frames, part):
    expected = Ends(ca(part)).run(**{k: v for k, v in frames.items() if k != "n_parts"})
    backend = Threads(2)
    found = Ends(ca(part)).run(**frames, backend=backend)
    np.testing.assert_array_equal(found.frames, expected.frames)
    assert found.results.distances == expected.results.distances
    if "n_parts" in frames:
        assert len(backend.timings.blocks) == 5


def test_bits_do_not_depend_on_the_number_of_workers(part):
    atoms = part.select_atoms("mass 2 to 99")
    for stop in (None, 31, 5):
        first, *others = (
            lineardensity.LinearDensity(atoms)
            .run(stop=stop, backend=Threads(n_workers))
            .results.x.mass_density
            for n_workers in (1, 2, 3, 12)
        )
        for other in others:
            np.testing.assert_array_equal(first, other)


class FromHere(Ends):
    """Analysis that compares with the user's current frame."""

    def _prepare(self):
        self.results.distances = []
        self._before = self.atoms.positions.copy()

    def _single_frame(self):
        self.results.distances.append(float(np.abs(self.atoms.positions - self._before).sum()))


def test_every_part_finds_the_users_frame(system, backend):
    universe = paceline.Universe(*system)
    universe.trajectory[5]
    universe.atoms.positions += 1
    found = FromHere(universe.atoms).run(backend=backend)
    universe.trajectory[5]
    universe.atoms.positions += 1
    assert found.results.distances == FromHere(universe.atoms).run().results.distances


class FromHereInOrder(FromHere):
    _analysis_algorithm_is_parallelizable = False


@pytest.mark.parametrize("kind", [None, "threads"])
def test_all_of_a_run_find_the_users_frame(kind, system):
    universe = paceline.Universe(*system)
    wanted = []
    for _ in range(2):
        universe.trajectory[5]
        universe.atoms.positions += 1
        if not wanted:
            wanted = FromHere(universe.atoms).run(stop=9).results.distances
    every = [FromHere(universe.atoms), FromHereInOrder(universe.atoms), FromHere(universe.atoms)]
    for one in paceline.run([*every, FromHereInOrder(universe.atoms)], stop=9, backend=kind):
        assert one.results.distances == wanted


def test_transformations_go_along(system):
    moved = paceline.Universe(*system)
    moved.trajectory.add_transformations(translate([0, 0, 5]))
    expected = AnalysisFromFunction(centre, moved.atoms).run().results.timeseries
    found = AnalysisFromFunction(centre, moved.atoms).run(backend=Threads(2)).results.timeseries
    np.testing.assert_array_equal(found, expected)


def centre(atoms):
    return atoms.center_of_geometry()


def test_an_ordinary_universe_will_do(adk):
    protein = MDAnalysis.Universe(*adk).atoms
    expected = AnalysisFromFunction(gyration, protein).run(step=10)
    found = AnalysisFromFunction(gyration, protein).run(step=10, backend=Threads(2))
    np.testing.assert_array_equal(found.results.timeseries, expected.results.timeseries)


def test_any_function_can_be_applied(backend):
    assert backend.apply(lambda item: item * 2, [1, "a", [3]]) == [2, "aa", [3, 3]]


def test_a_worker_opens_a_universe_once(part, nothing_overdue):
    def count(atoms):
        made = atoms.universe.__dict__.setdefault("calls", [])
        made.append(1)
        return [threading.get_ident(), id(atoms.universe), len(made)]

    backend = Processes(2)
    found = AnalysisFromFunction(count, part.atoms).run(backend=backend).results.timeseries
    universes = {tuple(row[:2]) for row in found}
    workers = backend.timings.workers()
    # One Universe per worker sees all its frames, although each part has its own analysis.
    assert len(universes) == len(workers) <= 2
    for worker in workers:
        assert worker.n_frames in found[:, 2]


def test_workers_make_no_semaphores(part):
    def lock(atoms):
        return isinstance(ProgressBar.get_lock(), type(threading.RLock()))

    found = AnalysisFromFunction(lock, part.atoms).run(stop=8, backend=Processes(2)).results
    assert found.timeseries.all()


def test_workers_scan_no_trajectory_again(adk_xtc):
    def opening(atoms):
        core = atoms.universe.trajectory.file
        n_bytes, _ = core.traffic
        return [core.index_origin == "loaded", n_bytes < core.size / 4]

    atoms = paceline.Universe(*adk_xtc).atoms
    found = AnalysisFromFunction(opening, atoms).run(backend=Processes(2)).results.timeseries
    assert found.all()


def test_a_backend_needs_no_mdanalysis_until_then(monkeypatch):
    backend = Threads(2)
    assert isinstance(backend, MDAnalysis.analysis.backends.BackendBase)
    monkeypatch.delitem(sys.modules, "MDAnalysis.analysis.backends")
    assert backend.__class__ is Threads
    assert backend == backend != Threads(2)


class Meeting(Ends):
    """Analysis in which two workers wait for each other."""

    def _single_frame(self):
        super()._single_frame()
        meet(self.note)


def test_a_job_is_sent_whole_once_a_worker(part, nothing_overdue, tmp_path):
    sent = []

    class Watched(ThreadPoolExecutor):
        def submit(self, function, job, *others):
            sent.append(bool(job.data))
            return super().submit(function, job, *others)

    with Watched(2) as executor:
        analysis = Meeting(ca(part), str(tmp_path))
        found = analysis.run(backend=Pool(executor), n_parts=20)
    assert len(found.results.distances) == 98
    assert len(sent) >= 20
    assert sum(sent) == 2


def test_a_worker_that_lacks_the_job_is_sent_it(part, nothing_overdue, tmp_path):
    with ThreadPoolExecutor(2) as executor:
        backend = Pool(executor, 1)
        found = Meeting(ca(part), str(tmp_path)).run(backend=backend, n_parts=20)
    # The whole analysis is sent once; the second of two parallel calls starts another worker.
    assert len(backend.timings.workers()) == 2
    assert found.results.distances == Ends(ca(part)).run().results.distances


class Raising(Ends):
    def _single_frame(self):
        if self._ts.frame == 50:
            raise ValueError("no such thing")


class Unpicklable(Ends):
    def __init__(self, atoms):
        super().__init__(atoms, note=threading.Lock())


RAISED = "Raising raised on frames 50 to 61: ValueError: no such thing"


@pytest.mark.parametrize("backend", [Serial(), Threads(2)], ids=lambda backend: backend.name)
def test_an_analysis_that_raises_is_named(part, backend):
    with pytest.raises(AnalysisError, match=RAISED):
        Raising(ca(part)).run(backend=backend)


@pytest.mark.parametrize("backend", [Serial(), Threads(2)], ids=lambda backend: backend.name)
def test_what_cannot_be_pickled_is_named(part, backend):
    with pytest.raises(WorkerError, match="Unpicklable cannot be pickled, and each worker needs"):
        Unpicklable(ca(part)).run(backend=backend)


def test_a_damaged_frame_is_an_error(damaged):
    system, _ = damaged
    atoms = paceline.Universe(*system).atoms
    with pytest.raises(DamagedFileError, match="frame"):
        AnalysisFromFunction(gyration, atoms).run(backend=Threads(2))


def test_what_mdanalysis_cannot_parallelise_is_refused_in_its_words(part):
    with pytest.raises(ValueError, match="Can not parallelize class"):
        rms.RMSF(ca(part)).run(backend=Threads(2))


def test_number_of_workers_is_given_once(part):
    with pytest.raises(ValueError, match="n_workers specified twice"):
        Ends(ca(part)).run(backend=Threads(2), n_workers=3)
    with pytest.raises(ValueError, match="at least 1"):
        Processes(0)


@pytest.mark.parametrize("verbose", [None, True, False])
def test_progress_is_pacelines_own(verbose, part, monkeypatch, capsys):
    shown = []

    class Watched(Progress):
        def __init__(self, total, *, unit, show):
            shown.append((total, unit, show))
            super().__init__(total, unit=unit, show=show)

        def add(self, n):
            shown.append(n)
            super().add(n)

    monkeypatch.setattr("paceline.backends.mdanalysis.Progress", Watched)
    rms.RMSD(ca(part), verbose=True).run(backend=Serial(), verbose=verbose)
    assert shown == [(98, "frame", verbose), 13, 13, 12, 12, 12, 12, 12, 12]
    # MDAnalysis's own progress bar is disabled, because each worker would show one.
    shown = capsys.readouterr().err
    assert ("100%" in shown) == (verbose is True)
    assert "it/s" not in shown


def test_options_of_mdanalysis_own_bar_are_refused(part):
    with pytest.raises(UnsupportedError, match="progressbar_kwargs= sets MDAnalysis's own bar"):
        Ends(ca(part)).run(backend=Serial(), progressbar_kwargs={"desc": "x"})


def test_a_killed_process_costs_its_items_only(tmp_path):
    marker = str(tmp_path / "marker")

    def die_once(item):
        try:
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return item
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.warns(PacelineWarning, match="a worker process was killed"):
        assert Processes(2).apply(die_once, range(20)) == list(range(20))


def test_a_process_that_raises_names_the_item():
    def root(item):
        return math.sqrt(item)

    with pytest.raises(AnalysisError, match="root raised on item 2: ValueError: math domain"):
        Processes(2).apply(root, [2, 1, -1])


@pytest.mark.parametrize("name", ["RMSD", "InterRDF"])
def test_a_dask_cluster_does_as_well(name, part, expected, dask_client):
    backend = Dask(dask_client)
    alone = expected(name)
    part.trajectory[11]
    found = SPLIT[name](part).run(start=2, backend=backend)
    assert_same(found.results, alone.results, rounding=SUMS.get(name))
    assert len(backend.timings.blocks) == 8
