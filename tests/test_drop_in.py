"""Scripts written for MDAnalysis, at what they do with Universes, and at their worst."""

import contextlib
import functools
import multiprocessing
import threading
from pathlib import Path

import joblib
import MDAnalysis as mda
import numpy as np
import pytest
from MDAnalysis.analysis import align, rms
from MDAnalysis.analysis.base import AnalysisBase, AnalysisFromFunction
from MDAnalysis.analysis.results import ResultsGroup
from MDAnalysis.coordinates.XTC import XTCReader
from MDAnalysisTests.datafiles import (
    AUX_EDR,
    AUX_EDR_TPR,
    AUX_EDR_XTC,
    AUX_XVG,
    DCD,
    GRO,
    PSF,
    TRR,
    XTC,
)

import paceline
from paceline.backends import processes
from paceline.errors import AnalysisError
from paceline.trajectory.mdanalysis_reader import Reader

FILES = [(GRO, XTC), (GRO, TRR), (PSF, DCD)]

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")


@pytest.fixture(autouse=True)
def nothing_is_left():
    """Each test ends with MDAnalysis as it was."""
    yield
    with pytest.raises(RuntimeError, match="not registered"):
        paceline.unregister()


@contextlib.contextmanager
def registered():
    """Register; analyses that can be split are computed in processes at once."""
    with pytest.MonkeyPatch.context() as patch, paceline.register(n_workers=2) as registration:
        patch.setattr(processes, "SAMPLE", 0.0)
        patch.setattr(processes, "WORTH", 0.0)
        yield registration


def centre(universe: mda.Universe, frame: int) -> list[float]:
    universe.trajectory[frame]
    return [universe.trajectory.ts.time, *universe.atoms.center_of_geometry()]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("start", ["fork", "spawn", "joblib", "threads of joblib"])
@pytest.mark.parametrize("copied", [False, True])
def test_universes_in_other_processes(start, copied) -> None:
    with registered():
        universe = mda.Universe(GRO, XTC)
        universe.trajectory[3]
        sent = universe.copy() if copied else universe
        frames = range(universe.trajectory.n_frames)
        if "joblib" in start:
            backend, n_jobs = ("threading", 1) if "threads" in start else ("loky", 2)
            with joblib.parallel_config(backend=backend, n_jobs=n_jobs):
                found = joblib.Parallel()(joblib.delayed(centre)(sent, frame) for frame in frames)
        else:
            with multiprocessing.get_context(start).Pool(2) as pool:
                found = pool.starmap(centre, [(sent, frame) for frame in frames])
        if "threads" not in start or copied:
            assert universe.trajectory.frame == 3
    theirs = mda.Universe(GRO, XTC)
    np.testing.assert_array_equal(found, [centre(theirs, frame) for frame in frames])


@pytest.mark.parametrize(("topology", "trajectory"), FILES)
def test_universes_in_memory(topology, trajectory) -> None:
    theirs = mda.Universe(topology, trajectory, in_memory=True, in_memory_step=2)
    with paceline.register():
        ours = mda.Universe(topology, trajectory, in_memory=True, in_memory_step=2)
        later = mda.Universe(topology, trajectory)
        later.transfer_to_memory(step=2)
        rmsf = rms.RMSF(ours.atoms[:50]).run().results.rmsf
    for other in (ours, later):
        assert type(other.trajectory) is type(theirs.trajectory)
        for ts, expected in zip(other.trajectory, theirs.trajectory, strict=True):
            np.testing.assert_array_equal(ts.positions, expected.positions)
            np.testing.assert_allclose(ts.time, expected.time)
    np.testing.assert_array_equal(rmsf, rms.RMSF(theirs.atoms[:50]).run().results.rmsf)


@pytest.mark.parametrize(("topology", "trajectory"), FILES)
@pytest.mark.parametrize("order", [None, "fac", "caf"])
def test_timeseries(topology, trajectory, order) -> None:
    found = []
    for read in (mda.Universe(topology, trajectory), None):
        with paceline.register():
            universe = read or mda.Universe(topology, trajectory)
        options = {} if order is None else {"order": order}
        atoms = universe.atoms[5:50:3]
        found.append(universe.trajectory.timeseries(atoms, start=1, stop=9, step=3, **options))
    np.testing.assert_array_equal(*found)


@pytest.mark.one_in(5)
@pytest.mark.parametrize("frames", ["all", slice(1, 8, 3), [7, 2, 2], "mask"], ids=str)
@pytest.mark.parametrize("ending", ["xtc", "dcd", "pdb"])
def test_atoms_are_written(frames, ending, tmp_path: Path) -> None:
    written = []
    for name in ("theirs", "ours"):
        universe = mda.Universe(GRO, XTC)
        if name == "ours":
            with paceline.register():
                universe = mda.Universe(GRO, XTC)
        chosen = frames
        if frames == "mask":
            chosen = universe.trajectory[np.arange(universe.trajectory.n_frames) % 3 == 0]
        elif isinstance(frames, slice | list):
            chosen = universe.trajectory[frames]
        path = tmp_path / f"{name}.{ending}"
        universe.atoms[:100].write(str(path), frames=chosen)
        written.append(path.read_bytes())
    assert written[0] == written[1]


@pytest.mark.parametrize(("topology", "trajectory"), FILES[:2])
def test_cell_of_a_frame_is_a_view(topology, trajectory) -> None:
    seen = []
    for read in (mda.Universe(topology, trajectory), None):
        with paceline.register():
            universe = read or mda.Universe(topology, trajectory)
        ts = universe.trajectory.ts
        kept = ts.dimensions
        universe.trajectory[4]
        now = kept.copy()
        kept[0] = 77.0
        changed = universe.dimensions.copy()
        universe.trajectory[5]
        universe.trajectory[4]
        seen.append([now, changed, universe.dimensions.copy(), kept.copy()])
        assert ts is universe.trajectory.ts
        assert seen[-1][1][0] == 77.0
    np.testing.assert_array_equal(*seen)


@pytest.mark.parametrize(("topology", "trajectory"), FILES)
def test_data_of_frames(topology, trajectory) -> None:
    theirs = mda.Universe(topology, trajectory)
    with paceline.register():
        ours = mda.Universe(topology, trajectory)
    for ts, other in zip(ours.trajectory, theirs.trajectory, strict=True):
        for name in other.data:
            if (trajectory, name) == (DCD, "step"):
                continue  # MDAnalysis counts frames; the file has the simulation's steps
            assert ts.data[name] == other.data[name], name
    assert ours.trajectory[1].data["step"] > 0


def test_readers_are_made_by_their_names() -> None:
    with XTCReader(XTC) as theirs:
        expected = [ts.positions.copy() for ts in theirs[2:5]]
    with paceline.register() as registration:
        with XTCReader(XTC) as reader:
            assert type(reader) is Reader
            assert isinstance(reader, XTCReader)
            found = [ts.positions.copy() for ts in reader[2:5]]
        assert registration.opened == [XTC]
        np.testing.assert_array_equal(found, expected)
        with pytest.raises(TypeError, match="filename"):
            XTCReader()

        class Own(XTCReader):
            """A kit's own, which may read anything."""

        assert type(Own(XTC)) is Own


def add_auxiliary(universe: mda.Universe, kind: str) -> None:
    if kind == "EDR":
        pytest.importorskip("pyedr")
        universe.trajectory.add_auxiliary({"energy": "Potential"}, AUX_EDR)
    else:
        universe.trajectory.add_auxiliary("energy", AUX_XVG)


def energy(universe: mda.Universe, frame: int) -> np.ndarray:
    universe.trajectory[frame]
    return np.array(universe.trajectory.ts.aux.energy)


class Energies(AnalysisBase):
    """A user's own, which takes values beside the trajectory."""

    _analysis_algorithm_is_parallelizable = True

    def __init__(self, universe):
        super().__init__(universe.trajectory)

    def _prepare(self):
        self.results.energies = []

    def _single_frame(self):
        self.results.energies.append(np.array(self._ts.aux.energy))

    def _get_aggregator(self):
        return ResultsGroup({"energies": ResultsGroup.flatten_sequence})


@pytest.mark.parametrize("kind", ["EDR", "XVG"])
def test_auxiliaries_in_workers(kind) -> None:
    files = (AUX_EDR_TPR, AUX_EDR_XTC) if kind == "EDR" else (GRO, XTC)
    theirs = mda.Universe(*files)
    add_auxiliary(theirs, kind)
    expected = Energies(theirs).run().results.energies
    with registered() as registration:
        universe = mda.Universe(*files)
        add_auxiliary(universe, kind)
        assert type(universe.trajectory) is Reader
        found = Energies(universe).run(backend="processes").results.energies
        with multiprocessing.get_context("spawn").Pool(2) as pool:
            sent = pool.starmap(energy, [(universe, k) for k in range(len(universe.trajectory))])
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(sent, expected)
    assert registration.runs == [("Energies", "in this process, in order")]


@pytest.mark.parametrize("native", [True, False])
def test_state_after_a_run(native) -> None:
    theirs = mda.Universe(PSF, DCD)
    with paceline.register(native=native):
        ours = mda.Universe(PSF, DCD)
        for universe in (theirs, ours):
            near = universe.select_atoms("around 5 resid 10", updating=True)
            universe.trajectory[7]
            universe.atoms.positions += 1.0
            options = {"backend": "serial"} if universe is theirs else {}
            rms.RMSD(universe, select="name CA").run(start=3, stop=9, **options)
            universe.near = near
    assert ours.trajectory.frame == theirs.trajectory.frame == 0
    np.testing.assert_array_equal(ours.atoms.positions, theirs.atoms.positions)
    np.testing.assert_array_equal(ours.near.indices, theirs.near.indices)
    assert next(ours.trajectory).frame == next(theirs.trajectory).frame
    assert ours.atoms.universe is ours


class Distances(AnalysisBase):
    """A user's own, that can be split."""

    _analysis_algorithm_is_parallelizable = True

    def __init__(self, atoms):
        super().__init__(atoms.universe.trajectory)
        self.atoms = atoms

    def _prepare(self):
        self.results.found = []

    def _single_frame(self):
        first, last = self.atoms.positions[[0, -1]]
        self.results.found.append(float(np.linalg.norm(last - first)))

    def _get_aggregator(self):
        return ResultsGroup({"found": ResultsGroup.flatten_sequence})


class Locked(Distances):
    """Cannot be pickled."""

    def __init__(self, atoms):
        super().__init__(atoms)
        self.lock = threading.Lock()


class Logging(Distances):
    """Keeps a file open."""

    def __init__(self, atoms, path):
        super().__init__(atoms)
        self.file = open(path, "w")  # noqa: SIM115

    def _single_frame(self):
        super()._single_frame()
        print(self._ts.frame, file=self.file, flush=True)


class Printing(Distances):
    def _single_frame(self):
        super()._single_frame()
        print(f"frame {self._ts.frame}", flush=True)


class Moving(Distances):
    """Changes positions, velocities and the cell in place."""

    def _single_frame(self):
        self.atoms.positions[:] = 0.0  # of a copy
        self._ts.positions *= 2.0
        self._ts.dimensions = [1, 2, 3, 90, 90, 90]
        super()._single_frame()


class Growing(Distances):
    """Needs the frame before."""

    _analysis_algorithm_is_parallelizable = False

    def _single_frame(self):
        before = self.results.found[-1] if self.results.found else 0.0
        super()._single_frame()
        self.results.found[-1] += before


class Failing(Distances):
    def _single_frame(self):
        if self._ts.frame == 61:
            raise KeyError("no such residue")


def ends(universe: mda.Universe) -> mda.AtomGroup:
    return universe.select_atoms("name CA")


@pytest.fixture(scope="module")
def expected() -> list[float]:
    return Distances(ends(mda.Universe(PSF, DCD))).run().results.found


@pytest.mark.parametrize("kind", [Locked, Moving, Growing, Printing, Logging])
def test_awkward_classes(kind, tmp_path: Path, capfd) -> None:
    def run() -> list[float]:
        more = [tmp_path / f"log {len(logs)}"] if kind is Logging else []
        logs.extend(more)
        atoms = ends(mda.Universe(PSF, DCD))
        before = atoms.positions
        found = kind(atoms, *more).run().results.found
        # The frame in front of the user is that of the file.
        np.testing.assert_array_equal(atoms.positions, before)
        return found

    logs: list[Path] = []
    with registered() as registration:
        found = run()
    assert found == run()
    ((_, how),) = registration.runs
    assert ("2 processes" in how) == (kind in (Moving, Printing))
    assert ("cannot be pickled" in how) == (kind in (Locked, Logging))
    assert not logs or logs[0].read_text() == logs[1].read_text() != ""
    if kind is Printing:  # workers of another test print where that did
        lines = capfd.readouterr().out.splitlines()
        assert set(lines) == {f"frame {k}" for k in range(98)}


def test_a_class_that_raises_on_one_frame(expected) -> None:
    with registered():
        atoms = ends(mda.Universe(PSF, DCD))
        with pytest.raises(KeyError, match="no such residue") as caught:
            Failing(atoms).run()
        assert isinstance(caught.value, AnalysisError)
        assert "Failing raised on frames" in str(caught.value)
        with pytest.raises(KeyError, match="no such residue"):
            paceline.run([Failing(atoms), Growing(atoms)])
        # The next run is as any other.
        assert Distances(atoms).run().results.found == expected


def test_a_kit_that_changes_mdanalysis(monkeypatch, expected) -> None:
    inner, seen = AnalysisBase._prepare_sliced_trajectory, []

    def prepare(self, *args, **kwargs):
        seen.append(type(self).__name__)
        return inner(self, *args, **kwargs)

    with registered() as registration:
        atoms = ends(mda.Universe(PSF, DCD))
        monkeypatch.setattr(AnalysisBase, "_prepare_sliced_trajectory", prepare)
        assert Growing(atoms).run().results.found[0] == expected[0]
        assert Distances(atoms).run().results.found == expected
        # Before the parts of frames, and for each.
        assert seen == [*2 * ["Growing"], *9 * ["Distances"]]
        monkeypatch.setattr(AnalysisBase, "_prepare_sliced_trajectory", inner)
        assert Distances(atoms).run().results.found == expected
    # Processes would not have what it changed.
    assert f"in this process: {__name__} changes MDAnalysis" in registration.runs[1][1]
    assert registration.runs[2][1] == "on 2 processes"


@pytest.mark.parametrize("where", ["class", "base", "object"])
def test_changed_methods_of_a_class_are_called(where, monkeypatch) -> None:
    inner = rms.RMSD._single_frame

    @functools.wraps(inner)
    def twice(self=None):
        self = self or analysis
        inner(self)
        self.results.rmsd[self._frame_index, 2] *= 2.0

    with registered() as registration:
        analysis = rms.RMSD(mda.Universe(PSF, DCD), select="name CA").run(stop=5)
        assert registration.runs.pop() == ("RMSD", "native")
        wanted = 2.0 * analysis.results.rmsd[:, 2]
        analysis = rms.RMSD(mda.Universe(PSF, DCD), select="name CA")
        if where == "base":
            monkeypatch.setattr(AnalysisBase, "_conclude", lambda self: None)
            wanted /= 2.0
        elif where == "class":
            monkeypatch.setattr(rms.RMSD, "_single_frame", twice)
        else:
            analysis._single_frame = twice
        analysis.run(stop=5)
    np.testing.assert_allclose(analysis.results.rmsd[:, 2], wanted, atol=1e-5)
    assert registration.runs[0][1] != "native"


def test_threads_read_while_others_register(expected) -> None:
    errors, counts, stop = [], [], threading.Event()

    def read() -> None:
        try:
            while not stop.is_set():
                universe = mda.Universe(PSF, DCD)
                found = AnalysisFromFunction(
                    lambda atoms: np.linalg.norm(np.diff(atoms.positions[[0, -1]], axis=0)),
                    ends(universe),
                ).run()
                np.testing.assert_allclose(found.results.timeseries, expected, rtol=1e-6)
                counts.append(type(universe.trajectory).__name__)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    while len(counts) < 20 and not errors:
        outer = paceline.register(native=False)
        with paceline.register(n_workers=1):
            outer.__exit__(None, None, None)
            stop.wait(0.02)
        stop.wait(0.02)
    stop.set()
    for thread in threads:
        thread.join()
    assert errors == []
    assert set(counts) <= {"Reader", "DCDReader"}


def test_an_alignment_moves_only_its_own_atoms(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with registered():
        universe, reference = mda.Universe(PSF, DCD), mda.Universe(PSF, DCD)
        at = reference.atoms.positions
        align.AlignTraj(universe, reference, select="name CA", filename="aligned.dcd").run(stop=5)
        assert mda.Universe(PSF, "aligned.dcd").trajectory.n_frames == 5
    np.testing.assert_array_equal(reference.atoms.positions, at)
    np.testing.assert_array_equal(universe.atoms.positions, at)
