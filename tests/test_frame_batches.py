"""Tests of batches of random frames: values, order, workers, memory, and bad input."""

import multiprocessing
import os
import pickle
import shutil
from pathlib import Path

import h5py
import MDAnalysis as mda
import numpy as np
import pytest
from helpers.object_server import object_server
from helpers.waiting import PATIENCE
from MDAnalysisTests import datafiles

import paceline
from paceline.analysis.rms import RMSD, RMSF
from paceline.errors import (
    AtomCountError,
    DamagedFileError,
    FileChangedError,
    MissingDataError,
    PacelineWarning,
    TransformError,
    UnsupportedError,
)
from paceline.trajectory import shuffled_frames
from paceline.transform import center, fit, nojump, unwrap, wrap

CA = "name CA"
FORMATS = ["xtc", "dcd", "trr", "nc", "h5md"]


@pytest.fixture(scope="module")
def files(adk, tmp_path_factory) -> dict[str, str]:
    """The first frames of adenylate kinase: 40 of Cα in each format, with cells and times."""
    folder = tmp_path_factory.mktemp("batches")
    universe = mda.Universe(*adk)
    ca = universe.select_atoms(CA)
    found = {"gro": str(folder / "ca.gro")}
    universe.dimensions = [80, 81, 82, 90, 90, 90]
    ca.write(found["gro"])
    for ending in FORMATS:
        found[ending] = str(folder / f"ca.{ending}")
        _write(ca, found[ending], range(40))
    found["short"] = str(folder / "short.xtc")
    _write(ca, found["short"], range(50, 57))
    return found


def _write(atoms, path: str, frames, **options) -> str:
    """Write frames with different cells."""
    with (
        paceline.H5MDWriter(path, len(atoms), **options)
        if path.endswith("h5md")
        else mda.Writer(path, len(atoms), dt=2.0)
    ) as writer:
        for number, frame in enumerate(frames):
            ts = atoms.universe.trajectory[frame]
            ts.dimensions = [80 + frame, 81, 82, 90, 90, 90]
            ts.frame, ts.data["step"], ts.data["time"] = number, number, 2.0 * number
            writer.write(atoms)
    return path


@pytest.fixture(scope="module")
def chunked(adk, tmp_path_factory) -> str:
    """An H5MD file that stores 10 frames in a compressed chunk, and 7 in the last one."""
    universe = mda.Universe(*adk)
    ca = universe.select_atoms(CA)
    path = tmp_path_factory.mktemp("chunked") / "ca.h5md"
    with h5py.File(path, "w") as file:
        version = file.create_group("h5md")
        version.attrs["version"] = [1, 1]
        version.create_group("author").attrs["name"] = "A"
        creator = version.create_group("creator")
        creator.attrs["name"], creator.attrs["version"] = "hand", "1"
        box = file.create_group("particles/atoms/box")
        box.attrs["dimension"], box.attrs["boundary"] = 3, ["none"] * 3
        position = file.create_group("particles/atoms/position")
        values = np.array([ca.positions.copy() for _ in universe.trajectory[:97]])
        made = position.create_dataset(
            "value", data=values, chunks=(10, len(ca), 3), compression="gzip"
        )
        made.attrs["unit"] = "Angstrom"
        position.create_dataset("step", data=np.arange(97))
        position.create_dataset("time", data=np.arange(97.0)).attrs["unit"] = "ps"
    return str(path)


def content(batch) -> tuple[bytes, ...]:
    """Bytes of all arrays of a batch."""
    return tuple(values.tobytes() for values in batch.arrays().values())


def everything(batches, **options) -> list[tuple[bytes, ...]]:
    """Bytes of all batches of an epoch."""
    return [content(batch) for batch in batches.epoch(3, **options)]


def read_share(batches, share, queue) -> None:
    """Send the batches of a share; run in another process."""
    queue.put((share[0], everything(batches, share=share)))


class TestValues:
    @pytest.mark.parametrize("ending", FORMATS)
    def test_frames_are_those_of_mdanalysis(self, files, ending):
        batches = paceline.FrameBatches((files["gro"], files[ending]), batch_size=7)
        theirs = mda.Universe(files["gro"], files[ending])
        seen = []
        for batch in batches.epoch(5):
            assert batch.positions.shape == (len(batch), 1, 214, 3)
            assert batch.positions.dtype == np.float32
            for row, frame in enumerate(batch.frames[:, 0]):
                ts = theirs.trajectory[frame]
                assert np.array_equal(batch.positions[row, 0], ts.positions)
                assert np.allclose(batch.dimensions[row, 0], ts.dimensions, atol=1e-4)
                assert np.allclose(np.diag(batch.cell_vectors[row, 0]), ts.dimensions[:3])
                assert batch.times[row, 0] == pytest.approx(ts.time)
                seen.append(frame)
        assert sorted(seen) == list(range(40))
        assert (len(batches), batches.n_samples) == (6, 40)
        assert repr(batches) == (
            "<FrameBatches: 40 samples of 1 frame and 214 atoms; batch_size=7, number of "
            "trajectories 1>"
        )

    def test_windows_of_several_trajectories(self, files):
        given = [(files["gro"], files[name]) for name in ("xtc", "short", "dcd")]
        batches = paceline.FrameBatches(
            given, select="resid 5:9", batch_size=8, window=3, lag=2, start=1
        )
        universes = [paceline.Universe(*one).select_atoms("resid 5:9") for one in given]
        assert batches.n_samples == 35 + 2 + 35
        seen = set()
        for batch in batches.epoch(1):
            assert batch.positions.shape[1:] == (3, 5, 3)
            assert (np.diff(batch.frames, axis=1) == 2).all()
            for row, (number, frames) in enumerate(
                zip(batch.trajectories, batch.frames, strict=True)
            ):
                atoms = universes[number]
                for k, frame in enumerate(frames):
                    atoms.universe.trajectory[frame]
                    assert np.array_equal(batch.positions[row, k], atoms.positions)
                seen.add((number, frames[0]))
        expected = {(k, f) for k in (0, 2) for f in range(1, 36)} | {(1, 1), (1, 2)}
        assert seen == expected

    def test_frames_in_order(self, files):
        batches = paceline.FrameBatches(
            (files["gro"], files["xtc"]), shuffle=False, batch_size=16, step=3
        )
        frames = np.concatenate([batch.frames[:, 0] for batch in batches])
        assert frames.tolist() == list(range(0, 40, 3))

    def test_atoms_in_any_order_after_transformations(self, adk):
        universe = paceline.Universe(*adk)
        atoms = universe.select_atoms(CA)[[9, 2, 2, 100]]
        transforms = [fit("name CA")]
        batches = paceline.FrameBatches(atoms, transforms=transforms, batch_size=20)
        assert len(batches._reader.trajectories[0].columns) == 4

        def copied(block):
            return block.positions.copy()

        series = paceline.TimeSeries(copied, atoms).run(transforms=transforms)
        expected = series.results.timeseries
        for batch in pickle.loads(pickle.dumps(batches)).epoch(0):
            assert np.array_equal(batch.positions[:, 0], expected[batch.frames[:, 0]])

    def test_molecules_are_whole_in_any_frame(self, adk_in_water):
        universe = paceline.Universe(datafiles.TPR, adk_in_water.trajectory)
        transforms = [unwrap(), center("protein"), wrap(), fit("name CA")]
        atoms = universe.select_atoms("protein or resid 220:222")
        batches = paceline.FrameBatches(atoms, transforms=transforms, batch_size=4)

        def copied(block):
            return block.positions.copy()

        series = paceline.TimeSeries(copied, atoms).run(transforms=transforms)
        for batch in pickle.loads(pickle.dumps(batches)).epoch(0):
            frames = batch.frames[:, 0]
            assert np.array_equal(batch.positions[:, 0], series.results.timeseries[frames])

    def test_fields(self, moving):
        batches = paceline.FrameBatches(
            moving, fields=["velocities"], on_error="skip", batch_size=100
        )
        (batch,) = batches.epoch(0)
        assert batch.positions is None
        assert "positions" not in batch.arrays()
        universe = paceline.Universe(*moving)
        held = [ts.frame for ts in universe.trajectory if ts.has_velocities]
        assert sorted(batch.frames[:, 0]) == held
        assert len(batch) + len(batch.damaged) == universe.trajectory.n_frames
        for row, frame in enumerate(batch.frames[:, 0]):
            universe.trajectory[frame]
            assert np.array_equal(batch.velocities[row, 0], universe.atoms.velocities)

    def test_names_without_a_topology_and_arrays(self, files):
        trajectory = paceline.open(files["dcd"])
        given = [files["xtc"], trajectory.atoms[[3, 1]], trajectory.atoms[[0, 5]]]
        with pytest.raises(AtomCountError, match="found 2: select equally many atoms"):
            paceline.FrameBatches(given)
        batches = paceline.FrameBatches(given[1:], batch_size=80)
        (batch,) = batches
        expected = trajectory.positions()
        for row, (number, frame) in enumerate(
            zip(batch.trajectories, batch.frames[:, 0], strict=True)
        ):
            atoms = [[3, 1], [0, 5]][number]
            assert np.array_equal(batch.positions[row, 0], expected[frame][atoms])
        memory = mda.Universe(files["gro"], expected)
        (other,) = paceline.FrameBatches(memory.select_atoms("all")[[3, 1]], batch_size=80)
        assert np.array_equal(other.positions[:, 0], expected[other.frames[:, 0]][:, [3, 1]])

    def test_samples_that_are_chosen(self, files):
        batches = paceline.FrameBatches((files["gro"], files["trr"]))
        batch = batches.read([39, 0, 39])
        assert batch.frames[:, 0].tolist() == batch.samples.tolist() == [39, 0, 39]
        assert np.array_equal(batch.positions[0], batch.positions[2])
        assert len(batches.read([])) == 0
        with pytest.raises(IndexError, match="sample 40 is out of range for 40 samples"):
            batches.read([1, 40])


class TestOrder:
    @pytest.fixture(params=["single frames", "blocks"])
    def batches(self, request, files, chunked):
        """Two trajectories, of which one has large chunks or none has."""
        second = chunked if request.param == "blocks" else files["dcd"]
        return paceline.FrameBatches([files["xtc"], second], batch_size=9, seed=4)

    def test_it_is_that_of_the_seed_and_the_epoch(self, batches):
        first = [one.tolist() for one in batches.samples(3)]
        assert first == [one.tolist() for one in batches.samples(3)]
        assert first != [one.tolist() for one in batches.samples(4)]
        every = [sample for one in first for sample in one]
        assert sorted(every) == list(range(batches.n_samples))
        assert [len(one) for one in first[:-1]] == [9] * (len(batches) - 1)
        assert every != sorted(every)

    @pytest.mark.parametrize("n_shares", [2, 3, 5])
    def test_it_is_equal_for_any_number_of_workers(self, batches, n_shares):
        expected = everything(batches)
        shares = [everything(batches, share=(k, n_shares)) for k in range(n_shares)]
        found = [shares[k % n_shares][k // n_shares] for k in range(len(expected))]
        assert found == expected
        assert len(expected) == len(batches)

    @pytest.mark.parametrize("method", ["spawn", "fork"])
    def test_processes_read_the_same_bits(self, batches, method):
        if method not in multiprocessing.get_all_start_methods():
            pytest.skip(f"this system has no {method}")
        expected = everything(batches)  # files are open, and threads have worked, before a fork
        context = multiprocessing.get_context(method)
        queue = context.Queue()
        workers = [
            context.Process(target=read_share, args=(batches, (k, 2), queue)) for k in range(2)
        ]
        for one in workers:
            one.start()
        shares = dict(queue.get(timeout=PATIENCE) for _ in workers)
        for one in workers:
            one.join()
        assert [shares[k % 2][k // 2] for k in range(len(expected))] == expected

    def test_a_pickle_has_names_and_no_frames(self, batches):
        list(batches.epoch(0))
        data = pickle.dumps(batches)
        assert len(data) < 20_000
        assert everything(pickle.loads(data)) == everything(batches)

    def test_the_last_batch_may_be_left_out(self, files):
        given = (files["gro"], files["xtc"])
        batches = paceline.FrameBatches(given, batch_size=9, drop_last=True)
        assert [len(batch) for batch in batches] == [9] * len(batches) == [9] * 4
        with pytest.raises(ValueError, match="share must be from 0 to 1"):
            batches.epoch(0, share=(2, 2))

    def test_shares_are_equal_if_the_last_batches_are_left_out(self, batches, files):
        alone = paceline.FrameBatches([files["xtc"], files["dcd"]], batch_size=9, drop_last=True)
        assert len(alone) == 8
        for n_shares in (2, 3, 5):
            shares = [list(alone.epoch(0, share=(k, n_shares))) for k in range(n_shares)]
            assert {len(one) for one in shares} == {8 // n_shares}

    def test_it_depends_neither_on_memory_nor_on_atoms(self, chunked, files):
        options = {"batch_size": 4, "mixed_blocks": 3, "seed": 2}
        expected = [one.tolist() for one in paceline.FrameBatches(chunked, **options).samples(1)]

        def order(given=chunked, **more):
            batches = paceline.FrameBatches(given, **options, **more)
            return [one.tolist() for one in batches.samples(1)]

        few = paceline.open(chunked).atoms[[3, 7]]
        with pytest.warns(PacelineWarning, match="decoded several times.* max_memory"):
            assert order(max_memory=1) == expected
        assert order(few) == order(few, max_memory="1 GiB") == expected
        # The file of another format has no blocks of its own.
        whole = paceline.open(chunked)
        assert paceline.FrameBatches(chunked).block_frames == [10]
        positions = mda.Universe(files["gro"], whole.positions())
        assert order(positions, block_frames=10) == order(positions, block_frames=[10]) == expected
        assert order(positions) != expected

    def test_many_blocks_and_lanes(self):
        sizes = np.random.default_rng(1).integers(1, 30, 500)
        begins = np.cumsum(sizes) - sizes
        n = int(sizes.sum())
        order = shuffled_frames.SampleOrder((begins, sizes), n, 32, 7, pool=100, n_lanes=16)
        batches = list(order.of_epoch(0))
        assert sorted(np.concatenate(batches)) == list(range(n))
        assert [len(one) for one in batches[:-1]] == [32] * (n // 32)
        block_of = np.repeat(np.arange(500), sizes)
        # Any number of workers that divides the lanes reads each block once, up to the last turns.
        for n_workers in (2, 4, 8, 16):
            n_common = n // 32 // 16 * 16 - 64
            sets = [
                set(block_of[np.concatenate(batches[k:n_common:n_workers])])
                for k in range(n_workers)
            ]
            assert sum(map(len, sets)) == len(set.union(*sets))
        in_a_batch = [len(set(block_of[one])) for one in batches[:-2]]
        assert 4 < np.mean(in_a_batch) < 16


class TestBlocks:
    def test_each_block_is_decoded_once(self, chunked, monkeypatch):
        batches = paceline.FrameBatches(chunked, batch_size=8)
        assert batches._reader.trajectories[0].block_frames == 10
        calls = []
        decode = shuffled_frames.SampleReader._decode

        def noted(self, number, buffer, *, skip):
            calls.append(buffer.frames.tolist())
            return decode(self, number, buffer, skip=skip)

        monkeypatch.setattr(shuffled_frames.SampleReader, "_decode", noted)
        for samples in batches.samples(0):
            batches.read(samples)
        assert sorted(calls) == [list(range(k, min(k + 10, 97))) for k in range(0, 97, 10)]

    def test_blocks_change_no_value(self, chunked):
        alone = paceline.FrameBatches(chunked, batch_size=8, block_frames=1, window=2, step=3)
        blocks = paceline.FrameBatches(chunked, batch_size=8, window=2, step=3)
        with pytest.warns(PacelineWarning, match="blocks of 10 frames are decoded several times"):
            few = paceline.FrameBatches(chunked, batch_size=8, window=2, step=3, max_memory=1)
        assert few._reader.trajectories[0].block_frames == 10
        for samples in alone.samples(0):
            expected = content(alone.read(samples))
            assert content(blocks.read(samples)) == expected
            assert content(few.read(samples)) == expected
        assert len(few._reader._blocks) == 1

    def test_memory_is_bounded(self, chunked):
        block = 10 * 214 * 12
        with pytest.warns(PacelineWarning, match="10 of them take 257 kB, more than max_memory"):
            batches = paceline.FrameBatches(chunked, batch_size=8, max_memory=4 * block)
        for batch in batches.epoch(0):
            assert len(batch)
            assert batches._reader._bytes_kept <= 4 * (block + 5000)
        batches.read(np.arange(97))
        assert 1 <= len(batches._reader._blocks) <= 4

    def test_few_requests_for_an_object(self, files):
        with object_server() as objects:
            objects.files["/bucket/ca.xtc"] = Path(files["xtc"]).read_bytes()
            name = f"{objects.address}/bucket/ca.xtc"
            batches = paceline.FrameBatches(name, batch_size=4)
            assert batches._reader.trajectories[0].block_frames == 40
            before = len(objects.requests)
            expected = paceline.FrameBatches(files["xtc"], batch_size=4)
            for batch in batches.epoch(0):
                assert np.array_equal(batch.positions, expected.read(batch.samples).positions)
            assert len(objects.requests) - before <= 4


class TestFeatures:
    def test_of_every_kind(self, files, tmp_path):
        given = [(files["gro"], files["xtc"]), (files["gro"], files["short"])]
        universes = [paceline.Universe(*one) for one in given]
        runs = [RMSD(one.select_atoms(CA)) for one in universes]
        runs[0].run()
        energies = [np.arange(40 * 2).reshape(40, 2), np.arange(14).reshape(7, 2)]
        paths = []
        for k, one in enumerate(universes):
            paths.append(tmp_path / f"rmsd{k}.csv")
            RMSD(one.select_atoms(CA), groupselections=["resid 1:9"]).run().results.save(paths[-1])
        features = {
            "rmsd": runs,
            "again": RMSD,
            "energy": energies,
            "table": paths,
            "first": lambda atoms: paceline.TimeSeries(first_atom, atoms),
        }
        batches = paceline.FrameBatches(given, features=features, window=2, batch_size=9)
        expected = [one.run().results.rmsd[:, 2] for one in runs]
        for batch in batches.epoch(0):
            assert batch.features["energy"].shape == (len(batch), 2, 2)
            for row, (number, frames) in enumerate(
                zip(batch.trajectories, batch.frames, strict=True)
            ):
                assert np.array_equal(batch.features["rmsd"][row], expected[number][frames])
                assert np.array_equal(batch.features["again"][row], expected[number][frames])
                assert np.array_equal(batch.features["energy"][row], energies[number][frames])
                assert np.array_equal(batch.features["first"][row], batch.positions[row, :, 0])
            assert batch.features["table"].shape == (len(batch), 2, 2)
            assert np.allclose(batch.features["table"][..., 0], batch.features["rmsd"])

    def test_a_table_of_another_trajectory_is_refused(self, files, tmp_path):
        path = tmp_path / "rmsd.csv"
        ca = paceline.Universe(files["gro"], files["xtc"]).select_atoms(CA)
        RMSD(ca).run().results.save(path)
        moved = shutil.copy(files["xtc"], tmp_path / "moved.xtc")
        batches = paceline.FrameBatches((files["gro"], str(moved)), features={"rmsd": path})
        assert batches.n_samples == 40
        memory = paceline.Universe(files["gro"], files["xtc"], in_memory=True)
        assert paceline.FrameBatches(memory, features={"rmsd": path}).n_samples == 40
        with pytest.raises(ValueError, match=r"table of \S+ca.dcd, found one of \S+ca.xtc, whose"):
            paceline.FrameBatches((files["gro"], files["dcd"]), features={"rmsd": path})

    def test_types_and_shapes_of_several_trajectories(self, files, tmp_path):
        given = [(files["gro"], files[name]) for name in ("xtc", "short")]
        numbers = [np.arange(40), np.arange(7) + 0.5]
        for batch in paceline.FrameBatches(given, features={"a": numbers}):
            expected = batch.frames + 0.5 * batch.trajectories[:, None]
            assert np.array_equal(batch.features["a"], expected)
        with pytest.raises(ValueError, match=r"short.xtc: expected rows of shape \(2,\), as for"):
            paceline.FrameBatches(given, features={"a": [np.ones((40, 2)), np.ones((7, 3))]})
        unreadable = tmp_path / "none.xtc"
        unreadable.touch()
        with pytest.warns(PacelineWarning, match="are left out"):
            batches = paceline.FrameBatches(
                [(files["gro"], str(unreadable)), *given],
                features={"a": [np.ones(3), *numbers]},
                on_error="skip",
            )
        assert {0} < {*np.concatenate([one.features["a"].ravel() for one in batches])}

    def test_wrong_ones_are_refused(self, files, tmp_path):
        given = (files["gro"], files["xtc"])
        ca = paceline.Universe(*given).select_atoms(CA)
        path = tmp_path / "rmsd.csv"
        RMSD(ca).run(step=2).results.save(path)

        def refused(error, match, **features):
            with pytest.raises(error, match=match):
                paceline.FrameBatches(given, features=features)

        refused(
            ValueError, r"ca.xtc: expected 40 rows, one for each frame .* found 39", a=np.ones(39)
        )
        refused(ValueError, "rmsd.csv: expected 40 rows, .* found 20", a=path)
        refused(ValueError, "expected 40 rows, .* found 20", a=RMSD(ca).run(step=2))
        refused(ValueError, "expected a list with an entry for each of 1 traj", a=[path, path])
        refused(UnsupportedError, "found <U1 of shape", a=np.full(40, "x"))
        refused(UnsupportedError, "RMSF has no row for each frame", a=RMSF)
        refused(ValueError, "'times' is an array of each batch", times=np.ones(40))
        backwards = RMSD(ca).run(frames=range(39, -1, -1))
        refused(ValueError, "expected frame 0 in row 0, found frame 39", a=backwards)


def first_atom(block):
    """Positions of the first atom."""
    return block.positions[:, 0].copy()


class TestBadInput:
    def test_arguments(self, files):
        given = (files["gro"], files["xtc"])
        for match, options in {
            "batch_size must be at least 1, not 0": {"batch_size": 0},
            "window must be a whole number": {"window": 1.5},
            "lag must be at least 1": {"lag": 0},
            "step must be at least 1, not -1": {"step": -1},
            "expected fields out of positions": {"fields": ["colours"]},
            "on_error must be": {"on_error": "ignore"},
            "block_frames must be at least 1": {"block_frames": 0},
            "expected fields with at least one field": {"fields": []},
            "expected fields with positions, which transforms change": {
                "fields": ["velocities"],
                "transforms": [wrap()],
            },
        }.items():
            with pytest.raises(ValueError, match=match):
                paceline.FrameBatches(given, **options)
        with pytest.raises(ValueError, match="expected one trajectory or more, found none"):
            paceline.FrameBatches([])
        with pytest.raises(TypeError, match="expected names"):
            paceline.FrameBatches([(files["gro"],)])
        with pytest.raises(TypeError, match="expected a Universe, an AtomGroup"):
            paceline.FrameBatches([5])
        with pytest.raises(MissingDataError, match="forces were requested"):
            paceline.FrameBatches(given, fields=["forces"])
        with pytest.raises(UnsupportedError, match="nojump follows atoms from frame to frame"):
            paceline.FrameBatches(given, transforms=[nojump()])
        with pytest.raises(FileNotFoundError):
            paceline.FrameBatches([given, (files["gro"], "no.xtc")])

    def test_a_trajectory_that_only_mdanalysis_reads(self, files, tmp_path):
        universe = mda.Universe(files["gro"], files["xtc"])
        universe.atoms.write(tmp_path / "a.pdb", frames="all")
        with (
            pytest.warns(PacelineWarning, match="one at a time"),
            pytest.raises(UnsupportedError, match="only MDAnalysis reads this trajectory"),
        ):
            paceline.FrameBatches(mda.Universe(files["gro"], str(tmp_path / "a.pdb")))

    def test_other_numbers_of_atoms(self, adk, files):
        given = [(files["gro"], files["xtc"]), adk]
        with pytest.raises(
            AtomCountError, match=r"adk\S*: expected 214 atoms, as in .*ca.xtc, found 3341"
        ):
            paceline.FrameBatches(given)
        batches = paceline.FrameBatches(given, select=CA)
        assert (batches.n_atoms, batches.n_samples) == (214, 40 + 98)

    def test_selections_by_positions_must_agree(self, files, tmp_path):
        """Mirrored, the same number of other atoms is on one side of a plane."""
        universe = mda.Universe(files["gro"], files["xtc"])
        x = np.sort(universe.atoms.positions[:, 0])
        middle = float(x[106] + x[107]) / 2
        universe.atoms.positions = [2 * middle, 0, 0] + [-1, 1, 1] * universe.atoms.positions
        universe.atoms.write(tmp_path / "mirrored.xtc")
        text = f"prop x > {middle:.4f}"
        given = [(files["gro"], files["xtc"]), (files["gro"], str(tmp_path / "mirrored.xtc"))]
        assert paceline.FrameBatches(given, select=CA).n_atoms == 214
        assert paceline.FrameBatches([given[0]] * 2, select=text).n_atoms == 107
        universes = [paceline.Universe(*one) for one in given]
        for some in (given, universes, [given[0], universes[1]]):
            with pytest.raises(ValueError, match=r"mirrored\.xtc: 'prop x .*' finds other atoms"):
                paceline.FrameBatches(some, select=text)
        groups = [one.select_atoms(text) for one in universes]
        assert paceline.FrameBatches(groups).n_atoms == 107

    def test_windows_longer_than_a_trajectory(self, files):
        given = [(files["gro"], files[name]) for name in ("xtc", "short")]
        with pytest.warns(
            PacelineWarning, match="1 of 2 trajectories have fewer frames than the 8 of a window"
        ):
            batches = paceline.FrameBatches(given, window=8)
        assert batches.n_samples == 33
        assert {*np.concatenate([one.trajectories for one in batches])} == {0}
        with pytest.raises(
            ValueError, match="expected at least 41 frames for a sample in one traj"
        ):
            paceline.FrameBatches(given, window=41)
        with pytest.raises(ValueError, match="found 0"):
            paceline.FrameBatches(given[:1], start=40)

    def test_files_without_frames(self, files, tmp_path):
        given = []
        for k in range(6):
            given.append((files["gro"], str(tmp_path / f"{k}.xtc")))
            shutil.copy(files["xtc"], given[-1][1])
        for k in (1, 2, 4, 5):
            Path(given[k][1]).write_bytes(Path(files["xtc"]).read_bytes()[: 60 * (k - 1)])
        with pytest.raises((UnsupportedError, DamagedFileError), match=r"1\.xtc"):
            paceline.FrameBatches(given)
        with pytest.warns(PacelineWarning, match="4 of 6 trajectories are left out.*and 1 more"):
            batches = paceline.FrameBatches(given, on_error="skip")
        assert batches.n_samples == 80
        numbers = np.concatenate([one.trajectories for one in batches])
        assert {*numbers} == {0, 3}
        with pytest.raises(UnsupportedError, match="no trajectory can be opened"):
            paceline.FrameBatches(given[1:3], on_error="skip")

    @pytest.mark.parametrize("block_frames", [1, 16])
    def test_damaged_frames(self, damaged, block_frames):
        (topology, path), bad = damaged
        options = {"select": CA, "batch_size": 5, "block_frames": block_frames, "window": 2}
        batches = paceline.FrameBatches((topology, path), **options)
        with pytest.raises(DamagedFileError, match=rf"{path}: frame ({'|'.join(map(str, bad))})\b"):
            list(batches.epoch(3))
        batches = paceline.FrameBatches((topology, path), **options, on_error="skip")
        found = list(batches.epoch(3))
        asked = list(batches.samples(3))
        lost = {frame - k for frame in bad for k in (0, 1)}
        for samples, batch in zip([s for s in asked if {*s} - lost], found, strict=True):
            assert batch.samples.tolist() == [one for one in samples if one not in lost]
            assert len(batch.damaged) == len(samples) - len(batch)
            assert np.isfinite(batch.positions).all()
        shares = [everything(batches, share=(k, 2)) for k in range(2)]
        expected = [content(batch) for batch in found if len(batch)]
        assert sorted(shares[0] + shares[1]) == sorted(expected)

    def test_shares_with_unreadable_batches_are_equal(self, damaged):
        (topology, path), bad = damaged
        options = {"select": CA, "batch_size": 1, "on_error": "skip", "shuffle": False}
        batches = paceline.FrameBatches((topology, path), **options, drop_last=True)
        n_shares = 2
        lost = [{*one.tolist()} <= set(bad) for one in batches.samples(0)]
        assert any(lost)
        for rank in range(n_shares):
            asked = [one.tolist() for one in batches.samples(0, share=(rank, n_shares))]
            found = [one.samples.tolist() for one in batches.epoch(0, share=(rank, n_shares))]
            assert len(found) == len(asked) == len(batches) // n_shares
            readable = [one for one in asked if one[0] not in bad]
            expected = readable[0]
            for one, other in zip(asked, found, strict=True):
                expected = one if one in readable else expected
                assert other == expected
        with pytest.raises(DamagedFileError, match=r"none of 2 batches .* has a readable sample"):
            list(batches.read_ahead([np.array(bad[:1])] * 2, keep_number=True))

    def test_a_cell_that_is_not_a_number(self, files):
        positions = paceline.open(files["xtc"]).positions(frames=range(6))
        cells = np.tile([50.0, 50, 50, 90, 90, 90], (6, 1))
        cells[4, 1] = np.nan
        universe = mda.Universe(files["gro"], positions, dimensions=cells)
        with pytest.raises(DamagedFileError, match=r"frame 4: expected a cell of finite .* 50 nan"):
            list(paceline.FrameBatches(universe))
        (batch,) = paceline.FrameBatches(universe, on_error="skip")
        assert sorted(batch.frames[:, 0]) == [0, 1, 2, 3, 5]
        assert "frame 4: expected a cell of finite numbers" in batch.damaged[0]

    def test_a_frame_that_cannot_be_transformed(self, adk):
        universe = paceline.Universe(*adk)
        options = {"transforms": [unwrap()], "batch_size": 4, "select": "resid 1:3"}
        with pytest.raises(TransformError, match=r"frame .* has no cell.*omit unwrap"):
            list(paceline.FrameBatches(universe, **options))
        assert list(paceline.FrameBatches(universe, on_error="skip", **options)) == []

    def test_a_file_that_changes(self, files, tmp_path):
        path = tmp_path / "ca.dcd"
        shutil.copy(files["dcd"], path)
        batches = paceline.FrameBatches((files["gro"], str(path)), batch_size=4)
        for samples in batches.samples(0):
            batches.read(samples)
        content = bytearray(path.read_bytes())
        content[5000:-100] = content[4000:-1100]
        path.write_bytes(content)
        os.utime(path, (1e9, 1e9))
        with pytest.raises(FileChangedError, match=r"ca\.dcd"):
            batches.read([3, 30])
        with pytest.raises(FileChangedError, match=r"ca\.dcd"):
            pickle.loads(pickle.dumps(batches)).read(np.arange(40))

    def test_a_file_that_is_touched_or_grows(self, files, tmp_path):
        path = tmp_path / "ca.trr"
        shutil.copy(files["trr"], path)
        batches = paceline.FrameBatches((files["gro"], str(path)))
        before = everything(batches)
        os.utime(path, (1e9, 1e9))
        with open(path, "ab") as file:
            file.write(Path(files["trr"]).read_bytes()[:3000])
        assert everything(batches) == before


def test_open_files_are_few(files, tmp_path):
    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("this system has no list of open files")
    given = []
    for k in range(150):
        path = tmp_path / f"{k}.xtc"
        shutil.copy(files["short"], path)
        given.append((files["gro"], str(path)))
    before = len(os.listdir("/proc/self/fd"))
    batches = paceline.FrameBatches(given, batch_size=100)
    most = 0
    for samples in batches.samples(0):
        batches.read(samples)
        most = max(most, len(os.listdir("/proc/self/fd")))
    assert most - before <= shuffled_frames.OPEN_READERS + 5
    assert batches.n_samples == 7 * 150


def test_a_topology_is_parsed_once(files, monkeypatch):
    opened = []
    made = paceline.Universe.__init__

    def noted(self, *names, **options):
        opened.append(names)
        made(self, *names, **options)

    monkeypatch.setattr(paceline.Universe, "__init__", noted)
    given = [(files["gro"], files[name]) for name in ("xtc", "dcd", "trr")]
    paceline.FrameBatches(given, select="resid 1:5")
    assert len(opened) == 1
