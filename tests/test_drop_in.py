"""Tests of scripts written for MDAnalysis: common and unusual operations on Universes."""

import contextlib
import functools
import multiprocessing
import threading
from pathlib import Path

import joblib
import MDAnalysis as mda
import numpy as np
import pytest
from helpers import lammps_files
from MDAnalysis.analysis import align, rms
from MDAnalysis.analysis.base import AnalysisBase, AnalysisFromFunction
from MDAnalysis.analysis.rdf import InterRDF as MDAnalysisRDF
from MDAnalysis.analysis.results import ResultsGroup
from MDAnalysis.coordinates.XTC import XTCReader
from MDAnalysisTests.datafiles import (
    AUX_EDR,
    AUX_EDR_TPR,
    AUX_EDR_XTC,
    AUX_XVG,
    DCD,
    GRO,
    NCDF,
    PSF,
    TRR,
    XTC,
    H5MD_xvf,
    PRMncdf,
    TPR_xvf,
    TRR_xvf,
)

import paceline
from paceline.analysis.rdf import InterRDF
from paceline.backends import processes
from paceline.errors import AnalysisError
from paceline.mdanalysis.reader import Reader

FILES = [(GRO, XTC), (GRO, TRR), (PSF, DCD)]

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")


@pytest.fixture(autouse=True)
def nothing_is_left():
    """Check that MDAnalysis is unchanged after each test."""
    yield
    with pytest.raises(RuntimeError, match="not registered"):
        paceline.unregister()


@contextlib.contextmanager
def registered():
    """Register paceline; analyses that can be split start in processes immediately."""
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
                continue  # MDAnalysis counts frames; the file has step numbers
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
            """Reader of a kit, which may read any file."""

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
    """Analysis of a user that reads values other than the trajectory."""

    _analysis_algorithm_is_parallelizable = True

    def __init__(self, universe):
        super().__init__(universe.trajectory)

    def _prepare(self):
        self.results.energies = []

    def _single_frame(self):
        self.results.energies.append(np.array(self._ts.aux.energy))

    def _get_aggregator(self):
        return ResultsGroup({"energies": ResultsGroup.flatten_sequence})


@pytest.mark.one_in(2)
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
    """Analysis of a user that can be split."""

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
    """Analysis that cannot be pickled."""

    def __init__(self, atoms):
        super().__init__(atoms)
        self.lock = threading.Lock()


class Logging(Distances):
    """Analysis that keeps a file open."""

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
    """Analysis that changes positions, velocities and the cell in place."""

    def _single_frame(self):
        self.atoms.positions[:] = 0.0  # a copy
        self._ts.positions *= 2.0
        self._ts.dimensions = [1, 2, 3, 90, 90, 90]
        super()._single_frame()


class Growing(Distances):
    """Analysis that needs the previous frame."""

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
        # The user's current frame is unchanged.
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
    if kind is Printing:  # workers of another test print to the output of that test
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
        # The next run works as usual.
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
        # First for all frames, and then for each part.
        assert seen == [*2 * ["Growing"], *9 * ["Distances"]]
        monkeypatch.setattr(AnalysisBase, "_prepare_sliced_trajectory", inner)
        assert Distances(atoms).run().results.found == expected
    # Processes would not have this change.
    assert f"in this process: {__name__} patches MDAnalysis" in registration.runs[1][1]
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


#: Formats of MDAnalysis's writers, and arguments that exclude velocities and forces.
WRITTEN = {
    "xtc": {},
    "trr": {},
    "dcd": {},
    "nc": {},
    "h5md": {
        "velocities": False,
        "forces": False,
        "timeunit": "ps",
        "lengthunit": "nm",
        "convert_units": True,
    },
}
CELL = [20, 22, 24, 90, 90, 90]


@pytest.fixture(params=[*WRITTEN, "history"])
def bare(request, tmp_path: Path) -> tuple[str, str]:
    """Three frames without a cell, velocities and forces, and MDAnalysis's name of the format."""
    ending, path = request.param, tmp_path / f"bare.{request.param}"
    positions = np.random.default_rng(3).uniform(0, 20, (3, 40, 3))
    if ending == "history":
        lines = ["made by a test", "0 0 40"]
        for k, frame in enumerate(positions):
            lines.append(f"timestep {k + 1} 40 0 0 0.001")
            for atom, (x, y, z) in enumerate(frame, start=1):
                lines += [f"C {atom} 12.0 0.0", f"{x:.6f} {y:.6f} {z:.6f}"]
        path.write_text("\n".join(lines) + "\n")
    else:
        universe = mda.Universe.empty(40, trajectory=True).load_new(positions)
        with mda.Writer(str(path), 40, **WRITTEN[ending]) as writer:
            for _ in universe.trajectory:
                writer.write(universe)
        del writer  # the H5MD writer closes its file only now
    return str(path), "NCDF" if ending == "nc" else ending.upper()


def both_of(name: str, format: str) -> list[mda.Universe]:
    """Return the Universes of MDAnalysis and of paceline for a file."""
    theirs = mda.Universe.empty(40).load_new(name, format=format)
    return [theirs, paceline.Universe.empty(40).load_new(name)]


def test_what_is_set_where_the_file_has_nothing(bare) -> None:
    seen = []
    for universe in both_of(*bare):
        universe.dimensions = CELL
        universe.trajectory.ts.velocities = np.full((40, 3), 2.0)
        universe.trajectory.ts.forces = np.full((40, 3), 3.0)
        visited = [universe.trajectory[1], *universe.trajectory, universe.copy().trajectory[2]]
        seen.append(
            [
                (
                    None if ts.dimensions is None else ts.dimensions.tolist(),
                    ts.has_velocities and ts.velocities[0, 0],
                    ts.has_forces and ts.forces[0, 0],
                )
                for ts in visited
            ]
        )
    assert seen[1] == seen[0]


def test_a_frame_of_a_file_that_has_cells_or_velocities_is_its_own(tmp_path: Path) -> None:
    universe = mda.Universe(GRO, TRR)
    atoms, name = universe.atoms[:40], str(tmp_path / "some.trr")
    with mda.Writer(name, 40) as writer:
        for ts in universe.trajectory[:4]:
            ts.dimensions = CELL if ts.frame == 1 else None
            ts.has_velocities = ts.frame == 2
            writer.write(atoms)
    ours = paceline.Universe.empty(40).load_new(name)
    found = [(ts.dimensions is not None, ts.has_velocities) for ts in ours.trajectory]
    assert found == [(False, False), (True, False), (False, True), (False, False)]


@pytest.mark.parametrize("reader", [mda.Universe, paceline.Universe])
def test_analyses_have_the_cell_that_was_set(reader, tmp_path: Path) -> None:
    positions = np.random.default_rng(5).uniform(0, 20, (6, 200, 3))
    universe = mda.Universe.empty(200, trajectory=True).load_new(positions)
    name = str(tmp_path / "bare.nc")
    with mda.Writer(name, 200) as writer:
        for _ in universe.trajectory:
            writer.write(universe)
    set_once = reader.empty(200, trajectory=True).load_new(name)
    how = {"nbins": 20, "range": (0.0, 9.0), "exclusion_block": (1, 1)}
    with pytest.raises(paceline.errors.PacelineError, match="cell"):
        InterRDF(set_once.atoms, set_once.atoms, **how).run()
    set_once.dimensions = CELL
    analysis = InterRDF(set_once.atoms, set_once.atoms, **how).run()
    # Differences of uniformly distributed positions.
    deltas = positions[:, :, None] - positions[:, None]
    deltas -= CELL[:3] * np.round(deltas / CELL[:3])
    distances = np.linalg.norm(deltas, axis=-1)
    counts, _ = np.histogram(distances[distances > 0], bins=20, range=(0.0, 9.0))
    np.testing.assert_allclose(analysis.results.count, counts, rtol=0, atol=2)
    assert "20 22 24 90 90 90" in analysis.results.provenance["cell"]
    theirs = mda.Universe.empty(200).load_new(name)
    theirs.dimensions = CELL
    expected = MDAnalysisRDF(theirs.atoms, theirs.atoms, **how).run().results.rdf
    np.testing.assert_allclose(analysis.results.rdf, expected, rtol=1e-6, atol=1e-3)
    # Other ways to read the same frames.
    block = paceline.TimeSeries(lambda block: block.dimensions, set_once.atoms)
    for backend, n_workers in (("serial", 1), ("processes", 2)):
        found = block.run(backend=backend, n_workers=n_workers).results.timeseries
        np.testing.assert_array_equal(found, np.tile(np.float32(CELL), (6, 1)))


def fail_late(block):
    if block.frames[-1] == 99:
        raise RuntimeError("enough")
    return block.dimensions


def test_another_cell_that_was_set_is_another_run(tmp_path: Path) -> None:
    universe = mda.Universe.empty(40, trajectory=True).load_new(np.ones((100, 40, 3)))
    name = str(tmp_path / "bare.nc")
    with mda.Writer(name, 40) as writer:
        for _ in universe.trajectory:
            writer.write(universe)
    for cell, reason in ((CELL, "enough"), (CELL, "enough"), (None, "cell 20 22 24 90 90 90")):
        ours = paceline.Universe.empty(40).load_new(name)
        ours.dimensions = cell
        with pytest.raises(paceline.errors.PacelineError, match=reason):
            paceline.TimeSeries(fail_late, ours.atoms).run(
                backend="serial", block_frames=1, checkpoint=tmp_path / "kept"
            )


def test_units_are_those_of_the_format(bare) -> None:
    theirs, ours = (universe.trajectory for universe in both_of(*bare))
    assert ours.units == theirs.units
    given = np.random.default_rng(1).uniform(1, 9, (4, 3)).astype(np.float32)
    for kind, unit in (("pos", "length"), ("velocities", "velocity"), ("forces", "force")):
        if theirs.units.get(unit):
            for way in ("to", "from"):
                convert = f"convert_{kind}_{way}_native"
                found, expected = (
                    getattr(one, convert)(given, inplace=False) for one in (ours, theirs)
                )
                np.testing.assert_array_equal(found, expected)
    assert ours.convert_time_to_native(3.0) == theirs.convert_time_to_native(3.0)


def test_units_of_files_that_were_not_made_here(tmp_path: Path) -> None:
    for topology, trajectory in ((TPR_xvf, H5MD_xvf), (TPR_xvf, TRR_xvf), (PRMncdf, NCDF)):
        theirs, ours = (
            made(topology, trajectory).trajectory for made in (mda.Universe, paceline.Universe)
        )
        assert ours.units == theirs.units
    made = lammps_files.write(tmp_path / "made.lammpsdump", lammps_files.dump())
    dump = paceline.Universe.empty(lammps_files.N_ATOMS).load_new(made).trajectory
    assert dump.convert_pos_to_native(np.ones(3), inplace=False).tolist() == [1, 1, 1]
