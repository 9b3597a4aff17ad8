"""MDAnalysis's own analyses, and its users', on our backends."""

import functools
import importlib
import math
import os
import pkgutil
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

import MDAnalysis
import MDAnalysis.analysis.backends
import numpy as np
import pytest
from helpers.barrier import meet
from MDAnalysis.analysis import (
    atomicdistances,
    bat,
    contacts,
    density,
    diffusionmap,
    dihedrals,
    dssp,
    gnm,
    hydrogenbonds,
    lineardensity,
    nucleicacids,
    polymer,
    rdf,
    rms,
)
from MDAnalysis.analysis.base import AnalysisBase, AnalysisFromFunction
from MDAnalysis.analysis.results import ResultsGroup
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


def ca(universe):
    return universe.select_atoms("name CA")


#: One of each class that MDAnalysis ships as parallelisable, of a Universe.
SHIPPED = {
    "AnalysisFromFunction": lambda u: AnalysisFromFunction(gyration, u.atoms),
    "AtomicDistances": lambda u: atomicdistances.AtomicDistances(ca(u)[:5], ca(u)[5:10]),
    "BAT": lambda u: bat.BAT(u.select_atoms("resid 1:3")),
    "Contacts": lambda u: contacts.Contacts(
        u, select=("name CA", "name CB"), refgroup=(ca(u), u.select_atoms("name CB"))
    ),
    "DensityAnalysis": lambda u: density.DensityAnalysis(ca(u), delta=2.0, padding=4.0),
    "DistanceMatrix": lambda u: diffusionmap.DistanceMatrix(u, select="name CA"),
    "Dihedral": lambda u: dihedrals.Dihedral([u.residues[3].phi_selection()]),
    "Janin": lambda u: dihedrals.Janin(u.select_atoms("resname MET ARG ILE LEU")),
    "Ramachandran": lambda u: dihedrals.Ramachandran(u.select_atoms("resid 2:10")),
    "DSSP": lambda u: dssp.DSSP(u),
    "GNMAnalysis": lambda u: gnm.GNMAnalysis(u, select="name CA"),
    "closeContactGNMAnalysis": lambda u: gnm.closeContactGNMAnalysis(u, select="name CA", cutoff=9),
    "HydrogenBondAnalysis": lambda u: hydrogenbonds.HydrogenBondAnalysis(
        u, "name N", "name HN", "name O", d_a_cutoff=3.6, d_h_a_angle_cutoff=120
    ),
    "LinearDensity": lambda u: lineardensity.LinearDensity(u.select_atoms("mass 2 to 99")),
    "NucPairDist": lambda u: nucleicacids.NucPairDist([ca(u)[:1]], [ca(u)[7:8]]),
    "PersistenceLength": lambda u: polymer.PersistenceLength(
        [ca(u)[k : k + 5] for k in (0, 5, 10)]
    ),
    "InterRDF": lambda u: rdf.InterRDF(ca(u), u.select_atoms("name O"), nbins=20),
    "InterRDF_s": lambda u: rdf.InterRDF_s(u, [[ca(u)[:1], ca(u)[1:3]]], nbins=20),
    "RMSD": lambda u: rms.RMSD(u, select="name CA", groupselections=["resid 1:8"], ref_frame=7),
}
#: Classes that cannot be had of a protein.
LEFT_OUT = {
    "WatsonCrickDist": "takes two strands of nucleotides; it computes as NucPairDist does",
    "MajorPairDist": "the same",
    "MinorPairDist": "the same",
}
#: They sum over frames, and MDAnalysis merges one sum a part: how much the order may matter.
SUMS = {
    "DensityAnalysis": 1e-13,
    "InterRDF": 1e-13,
    "InterRDF_s": 1e-13,
    "LinearDensity": 1e-13,
    "PersistenceLength": 2e-6,  # sums of single precision
}


def gyration(atoms):
    return atoms.radius_of_gyration()


class Ends(AnalysisBase):
    """A user's own, which leaves much behind for the next part."""

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
def system(adk, tmp_path_factory):
    """The first 30 residues of adenylate kinase, in a cell: a topology and 98 frames of XTC."""
    path = tmp_path_factory.mktemp("part") / "part.xtc"
    whole = MDAnalysis.Universe(*adk)
    part = whole.select_atoms("resid 1:30")
    with MDAnalysis.Writer(str(path), part.n_atoms) as writer:
        for ts in whole.trajectory:
            ts.dimensions = [60, 60, 60, 90, 90, 90]
            writer.write(part)
    return MDAnalysis.Merge(part)._topology, str(path)


@pytest.fixture(scope="module")
def part(system):
    return paceline.Universe(*system)


@pytest.fixture(scope="module")
def expected(part):
    """What MDAnalysis alone makes of each class, beginning from frame 11."""

    @functools.cache
    def of(name):
        part.trajectory[11]
        return SHIPPED[name](part).run(start=2)

    return of


@pytest.fixture(
    scope="module",
    params=[Serial(), Threads(2), Processes(2)],
    ids=lambda backend: backend.name,
)
def backend(request):
    return request.param


def all_parallelisable() -> set[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for module in pkgutil.walk_packages(MDAnalysis.analysis.__path__, "MDAnalysis.analysis."):
            importlib.import_module(module.name)
    return {
        kind.__name__
        for kind in subclasses(AnalysisBase)
        if kind._analysis_algorithm_is_parallelizable and kind.__module__.startswith("MDAnalysis.")
    }


def subclasses(kind: type) -> Iterator[type]:
    for one in kind.__subclasses__():
        yield one
        yield from subclasses(one)


def test_none_that_mdanalysis_ships_is_forgotten():
    assert all_parallelisable() == SHIPPED.keys() | LEFT_OUT.keys()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", SHIPPED)
def test_results_are_those_of_mdanalysis_alone(name, part, backend, expected):
    alone = expected(name)
    part.trajectory[11]
    found = SHIPPED[name](part).run(start=2, backend=backend)
    # Where MDAnalysis leaves it: a class's last step may look at the frame.
    assert part.trajectory.ts.frame == 0
    np.testing.assert_array_equal(found.frames, alone.frames)
    np.testing.assert_array_equal(found.times, alone.times)
    assert len(backend.timings.blocks) == 8
    assert_same(found.results, alone.results, rounding=SUMS.get(name))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("where", ["here", "processes"])
@pytest.mark.parametrize("name", SHIPPED)
def test_results_where_nothing_but_register_is_called(name, where, part, expected, monkeypatch):
    if where == "processes":
        monkeypatch.setattr(processes, "SAMPLE", 0.0)
        monkeypatch.setattr(processes, "WORTH", 0.0)
    part.trajectory[11]
    with paceline.register(native=False, n_workers=2) as registration:
        found = SHIPPED[name](part).run(start=2)
    how = "in this process" if where == "here" else "on 2 processes"
    assert registration.runs == [(name, how)]
    assert part.trajectory.ts.frame == 0
    np.testing.assert_array_equal(found.frames, expected(name).frames)
    assert_same(found.results, expected(name).results, rounding=SUMS.get(name))


def assert_same(found, expected, *, rounding):
    """The same bits; or, of what is summed by parts, the same but for rounding."""
    if isinstance(expected, Mapping):
        assert found.keys() == expected.keys()
        for key in expected:
            assert_same(found[key], expected[key], rounding=rounding)
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other, rounding=rounding)
    elif hasattr(expected, "grid"):
        assert_same(found.grid, expected.grid, rounding=rounding)
    elif rounding and expected is not None and np.asarray(expected).dtype.kind == "f":
        np.testing.assert_allclose(found, expected, rtol=rounding, atol=rounding)
    else:
        np.testing.assert_array_equal(found, expected)


def test_every_part_finds_a_users_analysis_as_it_was_given(part, backend):
    expected = Ends(ca(part)).run().results.distances
    found = Ends(ca(part)).run(backend=backend)
    assert found.results.distances == expected
    # What comes back belongs to the user's own Universe: none was sent back.
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
    """Compares with the frame that the user has in front of them."""

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
    # All frames of one worker are seen by one Universe, though each part has its own analysis.
    assert len(universes) == len(workers) <= 2
    for worker in workers:
        assert worker.n_frames in found[:, 2]


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
    """Each of two workers waits until the other has come."""

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
    # Sent whole once unasked; the second of the two calls that go out at a time wakes another.
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
    # MDAnalysis's own bar is silent, or each worker would have one.
    assert capsys.readouterr().err == ""


def test_options_of_mdanalysis_own_bar_are_refused(part):
    with pytest.raises(UnsupportedError, match="progressbar_kwargs= is for MDAnalysis's own bar"):
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
    found = SHIPPED[name](part).run(start=2, backend=backend)
    assert_same(found.results, alone.results, rounding=SUMS.get(name))
    assert len(backend.timings.blocks) == 8
