"""Tests of H5MD files of all kinds: what is read from a file before its positions."""

import warnings
from pathlib import Path

import h5py
import MDAnalysis
import mdtraj
import numpy as np
import pyh5md
import pytest
from helpers.h5md_files import (
    GROMACS_UNITS,
    N_ATOMS,
    N_FRAMES,
    OUR_UNITS,
    numbers,
    write_about,
    write_box,
    write_element,
    write_espresso,
    write_gromacs,
    write_lammps,
    write_simple,
)
from MDAnalysis.coordinates.core import triclinic_box
from MDAnalysis.coordinates.H5MD import H5MDReader
from MDAnalysis.units import get_conversion_factor
from MDAnalysisTests import datafiles

from paceline.block import FrameBuffer
from paceline.contract.source import extents_in
from paceline.errors import DamagedFileError, MissingDataError, UnsupportedError
from paceline.hdf5.chunk_index import ABSENT, ChunkReader
from paceline.hdf5.dataset_description import read_series
from paceline.hdf5.elements import cells_of
from paceline.hdf5.file import Array, File
from paceline.hdf5.h5py_reader import H5pyReader
from paceline.hdf5.open_any_convention import read_chunk_index
from paceline.hdf5.units import factor_of, units_given
from paceline.mdanalysis.reader import Reader
from paceline.trajectory.open import open_file

PUBLISHED = [datafiles.H5MD_xvf, datafiles.H5MD_energy, datafiles.COORDINATES_H5MD]
FIELDS = {"positions": "position", "velocities": "velocity", "forces": "force"}


def opened(path, **kwargs):
    with File(path) as file:
        return read_chunk_index(file, **kwargs)


def values(path, index, field):
    """Return the numbers of a field in all frames, by h5py and the index; NaN for missing frames.

    Multiply float32 by float32, like the core and MDAnalysis.
    """
    element = index.elements[field]
    with h5py.File(path) as file:
        stored = file[element.dataset.name][...].reshape(element.dataset.shape)
        ids = None if index.ids is None else file[index.ids.dataset.name][...]
    found = np.full((index.n_frames, index.n_atoms, 3), np.nan, dtype=np.float32)
    for frame in range(index.n_frames):
        row = frame if element.rows is None else element.rows[frame]
        if row == ABSENT:
            continue
        atoms = stored[row].reshape(-1, 3).astype(np.float32)
        if ids is not None:
            here = ids[frame if index.ids.rows is None else index.ids.rows[frame]]
            atoms = atoms[[np.flatnonzero(here == number)[0] for number in index.id_order]]
        found[frame] = atoms * np.float32(element.factor)
    return found


def cells(index):
    return np.broadcast_to(index.cells.dimensions, (index.n_frames, 6))


def edit(path, change):
    with h5py.File(path, "a") as file:
        change(file)
    return path


def refused(path, kind=UnsupportedError, **kwargs):
    """Return the error that a file raises, after checking that it names the file."""
    with pytest.raises(kind) as caught:
        opened(path, **kwargs)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert "\n" not in message
    return message


def assert_as_mdanalysis(path, index, universe):
    """Check that bits are equal, frame by frame."""
    trajectory = universe.trajectory
    assert (index.n_frames, index.n_atoms) == (trajectory.n_frames, trajectory.n_atoms)
    held = {field: values(path, index, field) for field in index.elements}
    for frame, ts in enumerate(trajectory):
        assert index.times[frame] == ts.time
        assert index.steps[frame] == ts.data["step"]
        assert (cells(index)[frame] == (0 if ts.dimensions is None else ts.dimensions)).all()
        for field in FIELDS:
            assert getattr(ts, f"has_{field}") == (field in held)
            if field in held:
                assert (held[field][frame] == getattr(ts, field)).all()


def their_universe(path, n_atoms):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return MDAnalysis.Universe.empty(n_atoms, trajectory=True).load_new(path, format="H5MD")


class TestOtherPrograms:
    @pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: Path(path).name)
    def test_published_files(self, path):
        index = opened(path)
        assert_as_mdanalysis(path, index, their_universe(path, index.n_atoms))

    def test_a_file_whose_observables_mdanalysis_refuses(self):
        index = opened(datafiles.H5MD_malformed)
        whole = opened(datafiles.H5MD_energy)
        assert (index.times == whole.times).all()
        ours = values(datafiles.H5MD_malformed, index, "positions")
        assert (ours == values(datafiles.H5MD_energy, whole, "positions")).all()

    @pytest.mark.parametrize("units", [{}, {"lengthunit": "nm", "timeunit": "fs"}])
    def test_mdanalysis(self, tmp_path, units):
        path = str(tmp_path / "theirs.h5md")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            universe = MDAnalysis.Universe.empty(19385, trajectory=True)
            universe.load_new(datafiles.H5MD_xvf, format="H5MD")
            atoms = universe.atoms[:300]
            writer = MDAnalysis.Writer(path, n_atoms=300, **units)
            for _ in universe.trajectory:
                writer.write(atoms)
            # The writer's own close() leaves the file open.
            writer.h5md_file.close()
        index = opened(path)
        assert_as_mdanalysis(path, index, their_universe(path, 300))
        assert index.facts["written by"] == "MDAnalysis"
        assert not index.notes

    def test_pyh5md(self, tmp_path):
        path, held = tmp_path / "pyh5md.h5", numbers(n_frames=40, n_atoms=200)
        with pyh5md.File(path, "w", creator="a script", author="somebody") as file:
            atoms = file.particles_group("atoms")
            position = pyh5md.element(
                atoms, "position", store="time", shape=(200, 3), dtype="f8", time=True
            )
            velocity = pyh5md.element(
                atoms, "velocity", store="linear", shape=(200, 3), dtype="f8", step=500, time=1.0
            )
            atoms.create_box(
                dimension=3,
                boundary=["periodic"] * 3,
                store="time",
                data=np.eye(3),
                step_from=position,
                time=True,
            )
            for frame in range(40):
                clock = (held.step[frame], held.time[frame])
                position.append(held.position[frame], *clock)
                velocity.append(held.velocity[frame])
                atoms.box.edges.append(held.edges[frame], *clock)
            position.value.attrs["unit"] = atoms.box.edges.value.attrs["unit"] = "nm"
            velocity.value.attrs["unit"] = "nm ps-1"
            position.time.attrs["unit"] = "ps"
        index = opened(path)
        assert index.elements["positions"].dataset.chunk == (32, 128, 3)
        assert index.elements["velocities"].rows is None
        for field in ("positions", "velocities"):
            wanted = getattr(held, FIELDS[field]).astype("f4") * np.float32(10)
            assert (values(path, index, field) == wanted).all()
        assert (index.times == held.time).all()
        assert (cells(index) == cells_of(held.edges, 10.0)).all()

    def test_mdtraj(self, tmp_path):
        path = tmp_path / "mdtraj.h5"
        topology = mdtraj.load_topology(str(datafiles.PDB_small)).subset(range(N_ATOMS))
        held = numbers()
        theirs = mdtraj.Trajectory(
            held.position, topology, held.time, [[3, 4, 5]] * N_FRAMES, [[80, 90, 100]] * N_FRAMES
        )
        theirs.save_hdf5(str(path))
        index = opened(path)
        assert index.format == "MDTraj HDF5"
        assert (values(path, index, "positions") == theirs.xyz * np.float32(10)).all()
        assert (index.times == theirs.time).all()
        lengths = theirs.unitcell_lengths * np.float32(10)
        assert (cells(index) == np.hstack([lengths, theirs.unitcell_angles])).all()

    def test_gromacs(self, tmp_path):
        held = numbers()
        path = write_gromacs(tmp_path / "gromacs.h5md", held)
        index = opened(path)
        assert (values(path, index, "positions") == held.position.astype("f4") * 10).all()
        for field in ("velocities", "forces"):
            factor = np.float32(10 if field == "velocities" else 0.1)
            found = values(path, index, field)
            wanted = getattr(held, FIELDS[field]).astype("f4") * factor
            assert (found[::2] == wanted[::2]).all()
            assert np.isnan(found[1::2]).all()
        assert (index.times == held.time).all()
        assert (index.steps == held.step).all()
        assert (cells(index) == cells_of(held.edges.astype("f4"), 10.0)).all()
        assert index.facts["written by"] == "GROMACS"
        assert index.notes[0].endswith("/position: 3 of 6 frames have none")

    def test_lammps(self, tmp_path):
        held = numbers()
        path = write_lammps(tmp_path / "dump.h5", held)
        message = refused(path)
        assert "/particles/all/position" in message
        assert message.endswith('for instance units="Angstrom, ps" (--units "Angstrom, ps")')
        index = opened(path, units="nm, fs")
        assert (values(path, index, "positions") == held.position.astype("f4") * 10).all()
        wanted = held.velocity.astype("f4") * np.float32(1e4)
        assert (values(path, index, "velocities") == wanted).all()
        assert (index.times == held.time * 1e-3).all()
        diagonals = np.diagonal(held.edges, axis1=1, axis2=2).astype("f4") * 10
        assert (cells(index)[:, :3] == diagonals).all()
        assert (cells(index)[:, 3:] == 90).all()
        assert "image" in index.facts["not in the frames"]

    def test_espresso(self, tmp_path):
        held, random = numbers(), np.random.default_rng(5)
        ids = [random.permutation(N_ATOMS) for _ in range(N_FRAMES)]
        path = write_espresso(tmp_path / "espresso.h5", held, ids, GROMACS_UNITS)
        index = opened(path)
        assert (index.id_order == np.arange(N_ATOMS)).all()
        for field in FIELDS:
            factor = np.float32(index.elements[field].factor)
            wanted = getattr(held, FIELDS[field]).astype("f4") * factor
            assert (values(path, index, field) == wanted).all()

    def test_cpptraj_spells_units_otherwise(self, tmp_path):
        path = write_simple(tmp_path / "cpptraj.h5", units={}, group="trajectory")
        spelled = {"position": "nanometers", "velocity": "nm/ps", "force": "kJ/(mol*nm)"}

        def name_units(file):
            for name, unit in spelled.items():
                file[f"particles/trajectory/{name}/value"].attrs["units"] = np.bytes_(unit)
            file["particles/trajectory/position/time"].attrs["units"] = "picoseconds"

        index = opened(edit(path, name_units))
        assert {field: one.factor for field, one in index.elements.items()} == {
            "positions": 10,
            "velocities": 10,
            "forces": 0.1,
        }


@pytest.mark.filterwarnings("ignore::paceline.errors.PacelineWarning")
class TestFrames:
    """Tests of the index that the reader builds."""

    def assert_read(self, path, **kwargs):
        index, reader = opened(path, **kwargs), Reader(path, **kwargs)
        held = {field: values(path, index, field) for field in index.elements}
        for frame, ts in enumerate(reader):
            assert ts.time == index.times[frame]
            assert ts.data["step"] == index.steps[frame]
            shown = 0 if ts.dimensions is None else ts.dimensions
            assert (cells(index)[frame] == shown).all()
            for field in FIELDS:
                there = field in held and not np.isnan(held[field][frame]).all()
                assert getattr(ts, f"has_{field}") == there
                if there:
                    assert (getattr(ts, field) == held[field][frame]).all()
        assert frame == index.n_frames - 1

    @pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: Path(path).name)
    def test_published_files(self, path):
        self.assert_read(path)

    def test_gromacs(self, tmp_path):
        self.assert_read(write_gromacs(tmp_path / "gromacs.h5md", numbers()))

    def test_lammps(self, tmp_path):
        self.assert_read(write_lammps(tmp_path / "dump.h5", numbers()), units="nm, fs")

    def test_espresso(self, tmp_path):
        random = np.random.default_rng(5)
        ids = [random.permutation(N_ATOMS) for _ in range(N_FRAMES)]
        path = write_espresso(tmp_path / "espresso.h5", numbers(), ids, GROMACS_UNITS)
        self.assert_read(path)

    @pytest.mark.parametrize("kind", ["<f4", ">f4", "<f8", ">f8", "<i4", ">i2", "u1", "f2"])
    @pytest.mark.parametrize("storage", [{}, {"chunks": (4, 5, 2), "compression": "lzf"}])
    def test_kinds_of_numbers(self, tmp_path, kind, storage):
        path = write_simple(
            tmp_path / "kind.h5", dtype=kind, position=abs(numbers().position), **storage
        )
        self.assert_read(path)

    @pytest.mark.parametrize("shape", [(N_FRAMES, N_ATOMS, 3), (N_FRAMES, 3 * N_ATOMS)])
    def test_bare_datasets(self, tmp_path, shape):
        path = tmp_path / "bare.h5"
        with h5py.File(path, "w") as file:
            file["pos"] = numbers().position.reshape(shape)
        self.assert_read(path, dataset="pos", units="nm")

    def test_one_fixed_structure(self, tmp_path):
        path, held = tmp_path / "structure.h5", numbers()
        with h5py.File(path, "w") as file:
            write_about(file, "h5py")
            write_box(file.create_group("particles/all"), held.edges[0])
            file["particles/all/position"] = held.position[0]
            file["particles/all/position"].attrs["unit"] = "Angstrom"
        self.assert_read(path)


class TestGroups:
    def two(self, path):
        write_simple(path, group="water")
        edit(path, lambda file: file.copy("particles/water", "particles/solute"))
        return path

    def test_several_are_listed(self, tmp_path):
        path = self.two(tmp_path / "two.h5")
        assert "choose one with group= (--particles): 'solute', 'water'" in refused(path)
        assert opened(path, group="solute").facts["group"] == "solute"
        assert opened(path, group="/particles/water").facts["group"] == "water"

    def test_one_that_is_not_there(self, tmp_path):
        path = self.two(tmp_path / "two.h5")
        assert "'lipids'; there are 'solute', 'water'" in refused(path, group="lipids")

    def test_one_in_which_nothing_moves_does_not_count(self, tmp_path):
        path = write_simple(tmp_path / "one.h5")
        edit(path, lambda file: write_box(file.create_group("particles/walls")))
        assert opened(path).facts["group"] == "atoms"

    def test_none(self, tmp_path):
        path = tmp_path / "empty.h5"
        with h5py.File(path, "w") as file:
            write_about(file, "h5py")
        assert "there are none" in refused(path, MissingDataError)

    def test_another_version(self, tmp_path):
        path = write_simple(tmp_path / "two.h5")
        edit(path, lambda file: file["h5md"].attrs.modify("version", [2, 0]))
        assert "expected H5MD of version 1, found 2.0" in refused(path)


class TestJoin:
    def test_velocities_are_joined_by_step_not_by_index(self, tmp_path):
        held = numbers()
        path = write_simple(tmp_path / "sparse.h5", velocity=None)

        def add(file):
            write_element(
                file["particles/atoms"],
                "velocity",
                held.velocity[1::3],
                step=held.step[1::3],
                time=held.time[1::3],
                unit="Angstrom ps-1",
                time_unit="ps",
            )

        index = opened(edit(path, add))
        assert index.elements["velocities"].rows.tolist() == [-1, 0, -1, -1, 1, -1]
        assert index.elements["positions"].rows is None
        assert len(index.notes) == 1

    def test_samples_between_frames_are_reported(self, tmp_path):
        path = write_simple(tmp_path / "dense.h5", velocity=None)
        twice = np.zeros((2 * N_FRAMES, N_ATOMS, 3))

        def add(file):
            group = write_element(
                file["particles/atoms"], "velocity", twice, step=250, unit="Angstrom ps-1"
            )
            group["step"].attrs["offset"] = 0

        index = opened(edit(path, add))
        assert index.elements["velocities"].rows.tolist() == [0, 2, 4, 6, 8, 10]
        assert index.notes[0].endswith("/position: 6 of its 12 samples belong to no frame")

    def test_velocities_alone_make_the_frames(self, tmp_path):
        path = write_simple(tmp_path / "v.h5", position=None)
        index = opened(path)
        assert index.n_frames == N_FRAMES
        assert set(index.elements) == {"velocities", "forces"}

    def test_linear_with_offsets(self, tmp_path):
        path = write_simple(tmp_path / "linear.h5", velocity=None, force=None, step=10, time=0.5)

        def offset(file):
            file["particles/atoms/position/step"].attrs["offset"] = 100
            file["particles/atoms/position/time"].attrs["offset"] = 3.0

        index = opened(edit(path, offset))
        assert index.steps.tolist() == [100, 110, 120, 130, 140, 150]
        assert index.times.tolist() == [3.0, 3.5, 4.0, 4.5, 5.0, 5.5]

    def test_fixed_positions_and_changing_velocities(self, tmp_path):
        held = numbers()
        path = write_simple(tmp_path / "fixed.h5", position=None, force=None)

        def add(file):
            file["particles/atoms/position"] = held.position[0]
            file["particles/atoms/position"].attrs["unit"] = "nm"

        index = opened(edit(path, add))
        assert index.elements["positions"].dataset.shape == (1, N_ATOMS, 3)
        wanted = np.tile(held.position[0].astype("f4") * 10, (N_FRAMES, 1, 1))
        assert (values(path, index, "positions") == wanted).all()

    def test_all_fixed_is_one_frame(self, tmp_path):
        path, held = tmp_path / "structure.h5", numbers()
        with h5py.File(path, "w") as file:
            write_about(file, "h5py")
            write_box(file.create_group("particles/all"), held.edges[0])
            file["particles/all/position"] = held.position[0]
            file["particles/all/position"].attrs["unit"] = "Angstrom"
        index = opened(path)
        assert (index.n_frames, index.times.tolist()) == (1, [0.0])
        assert (index.cells.dimensions == triclinic_box(*held.edges[0])).all()
        assert not index.notes

    def test_a_repeated_step_is_reported(self, tmp_path):
        step = [0, 10, 20, 20, 30, 40]
        index = opened(write_simple(tmp_path / "again.h5", step=step))
        assert index.steps.tolist() == step
        assert "step 20 of frame 3 comes after step 20" in index.notes[0]

    def test_steps_that_do_not_rise_join_nothing(self, tmp_path):
        path = write_simple(tmp_path / "back.h5", velocity=None, step=[0, 10, 20, 10, 20, 30])

        def add(file):
            velocity = np.zeros((2, N_ATOMS, 3))
            write_element(
                file["particles/atoms"], "velocity", velocity, step=[0, 10], unit="Angstrom ps-1"
            )

        assert "step 10 of row 3 comes after step 20" in refused(edit(path, add))

    def test_other_counts_without_steps_join_nothing(self, tmp_path):
        path = write_simple(tmp_path / "stepless.h5", velocity=None)

        def add(file):
            velocity = np.zeros((2, N_ATOMS, 3))
            write_element(file["particles/atoms"], "velocity", velocity, unit="Angstrom ps-1")

        assert "has 2 samples without steps" in refused(edit(path, add))

    def test_no_times(self, tmp_path):
        path = write_simple(tmp_path / "timeless.h5", time=None, velocity=None, force=None)
        index = opened(path)
        assert index.times.tolist() == [0, 1, 2, 3, 4, 5]
        assert "has no times" in index.time_doubt

    def test_times_of_another_element_of_the_same_steps(self, tmp_path):
        path = write_simple(tmp_path / "elsewhere.h5", time=None)
        held = numbers()

        def add(file):
            file["particles/atoms/force/time"] = held.time
            file["particles/atoms/force/time"].attrs["unit"] = "ps"

        assert (opened(edit(path, add)).times == held.time).all()

    def test_clocks_in_chunks_of_one_and_linked(self, tmp_path):
        path = write_simple(tmp_path / "linked.h5", chunks=(1, N_ATOMS, 3), compression="gzip")
        with h5py.File(path) as file:
            particles = file["particles/atoms"]
            assert particles["position/step"] == particles["velocity/step"]
        assert (opened(path).steps == numbers().step).all()

    def test_many_chunks_are_not_asked_of_hdf5(self, tmp_path, monkeypatch):
        held = numbers(n_frames=200)
        path = write_gromacs(tmp_path / "many.h5", held)
        asked, read = [], Array.read

        def counting(self, rows=slice(None)):
            asked.append(len(range(*rows.indices(self.shape[0]))))
            return read(self, rows)

        monkeypatch.setattr(Array, "read", counting)
        index = opened(path)
        assert max(asked) == 1
        assert np.array_equal(index.times, held.time)
        assert np.array_equal(index.steps, held.step)
        wanted = np.stack([triclinic_box(*edges * 10) for edges in held.edges.astype("f4")])
        np.testing.assert_allclose(index.cells.dimensions, wanted, rtol=1e-6)

    @pytest.mark.parametrize("kind", ["i2", ">u4", ">f8", "f4"])
    @pytest.mark.parametrize("chunk", [1, 3])
    def test_many_chunks_of_every_kind(self, tmp_path, kind, chunk):
        held = (np.arange(400) * 3).astype(kind)
        with h5py.File(tmp_path / "series.h5", "w") as file:
            file.create_dataset("all", data=held, chunks=(chunk,), fletcher32=True, shuffle=True)
            some = file.create_dataset("some", (400,), kind, chunks=(chunk,), fillvalue=7)
            some[:100] = held[:100]
        with File(tmp_path / "series.h5") as file:
            for name in ("all", "some"):
                array = file.root.array(name)
                found = read_series(array)
                assert found.dtype == held.dtype
                assert np.array_equal(found, array.read())


class TestBoxes:
    @pytest.mark.parametrize("kind", ["f4", ">f8"])
    def test_vectors_become_mdanalysis_s_lengths_and_angles(self, kind):
        random = np.random.default_rng(2)
        edges = (np.eye(3) * 4 + random.normal(0, 0.8, (2000, 3, 3))).astype(kind)
        theirs = np.array([triclinic_box(*vectors) for vectors in edges])
        theirs[:, :3] *= 10.0
        assert (cells_of(edges, 10.0) == theirs).all()

    @pytest.mark.parametrize(
        "edges",
        [
            np.zeros((3, 3)),
            np.diag([1, 1, np.nan]),
            np.ones((3, 3)),
            np.diag([3.0, 3, 0]),
            [3, 3, 0],
            [3, -3, 3],
            [np.inf, 3, 3],
        ],
    )
    def test_no_volume_is_no_cell(self, edges):
        assert (cells_of(np.asarray(edges)[np.newaxis], 1.0) == 0).all()

    @pytest.mark.parametrize("shape", ["vector", "matrix"])
    def test_fixed(self, tmp_path, shape):
        path, held = write_simple(tmp_path / "fixed.h5", edges=None), numbers()
        edges = np.diag(held.edges[0]) if shape == "vector" else held.edges[0]

        def add(file):
            file["particles/atoms/box/edges"] = edges

        index = opened(edit(path, add))
        assert (index.cells.dimensions == cells_of(edges[np.newaxis], 1.0)).all()
        assert index.cells.dimensions.shape == (1, 6)

    def test_lengths_of_each_frame(self, tmp_path):
        lengths = np.diagonal(numbers().edges, axis1=1, axis2=2)
        index = opened(write_simple(tmp_path / "lengths.h5", edges=lengths))
        assert (index.cells.dimensions == cells_of(lengths, 1.0)).all()

    def test_no_boundary_is_periodic(self, tmp_path):
        path = write_simple(tmp_path / "vacuum.h5", boundary=["none"] * 3)
        assert (opened(path).cells.dimensions == np.zeros((1, 6))).all()

    def test_a_slab_is_reported(self, tmp_path):
        path = write_simple(tmp_path / "slab.h5", boundary=["periodic", "periodic", "none"])
        index = opened(path)
        assert "periodic along x, y only" in index.notes[0]
        assert index.cells.periodic == (True, True, False)
        assert (index.cells.dimensions > 0).all()

    @pytest.mark.parametrize("boundary", ["periodic", [True] * 3, np.array([b"periodic"] * 3)])
    def test_ways_to_say_it(self, tmp_path, boundary):
        path = write_simple(tmp_path / "said.h5")
        edit(path, lambda f: f["particles/atoms/box"].attrs.create("boundary", boundary))
        assert (opened(path).cells.dimensions > 0).all()

    def test_an_unknown_boundary(self, tmp_path):
        path = write_simple(tmp_path / "wall.h5", boundary=["wall"] * 3)
        assert "expected three of periodic and none, found ['wall'" in refused(path)

    def test_two_dimensions(self, tmp_path):
        path = write_simple(tmp_path / "flat.h5")
        edit(path, lambda file: file["particles/atoms/box"].attrs.modify("dimension", 2))
        assert "expected 3 dimensions, found 2" in refused(path)

    def test_periodic_without_edges(self, tmp_path):
        index = opened(write_simple(tmp_path / "edgeless.h5", edges=None))
        assert "periodic and has no edges" in index.notes[0]
        assert (index.cells.dimensions == 0).all()

    def test_sampled_at_other_steps(self, tmp_path):
        path, held = write_simple(tmp_path / "sparse.h5", edges=None), numbers()

        def add(file):
            write_element(
                file["particles/atoms/box"], "edges", held.edges[::2], step=held.step[::2]
            )

        index = opened(edit(path, add))
        assert (index.cells.dimensions[::2] == cells_of(held.edges[::2], 1.0)).all()
        assert (index.cells.dimensions[1::2] == 0).all()
        assert "3 of 6 frames have no cell" in index.notes[0]

    def test_one_that_never_changes_is_that_of_all_frames(self, tmp_path):
        path, held = write_simple(tmp_path / "constant.h5", edges=None), numbers()

        def add(file):
            edges = held.edges[[0, 0]]
            write_element(file["particles/atoms/box"], "edges", edges, step=held.step[:2])

        index = opened(edit(path, add))
        assert (index.cells.dimensions == cells_of(held.edges[:1], 1.0)).all()
        assert not index.notes

    @pytest.mark.parametrize("n_frames", [1, 3, N_FRAMES])
    def test_lengths_of_each_frame_without_steps(self, tmp_path, n_frames):
        """Compare with MDAnalysis: three rows of lengths are not a cell of three vectors."""
        held = numbers(n_frames)
        lengths = 40 + np.random.default_rng(1).uniform(-0.4, 0.4, (n_frames, 3))
        path = write_simple(tmp_path / "a.h5md", **held._replace(edges=None)._asdict())

        def add(file):
            box = file["particles/atoms/box"]
            box["edges/value"] = lengths
            box["edges/value"].attrs["unit"] = "Angstrom"

        edit(path, add)
        index = opened(path)
        assert held.step.shape == (index.n_frames,)
        with H5MDReader(str(path)) as theirs:
            wanted = [ts.dimensions.copy() for ts in theirs]
        np.testing.assert_array_equal(
            np.broadcast_to(index.cells.dimensions, (n_frames, 6)), wanted
        )
        assert any("has no steps: each frame has one of its" in note for note in index.notes)

    @pytest.mark.parametrize("vectors", [np.diag([30.0, 40, 50]), np.eye(3) * 30 + 2])
    def test_three_vectors_without_steps_and_three_frames(self, vectors, tmp_path):
        path = write_simple(tmp_path / "a.h5md", **numbers(3)._replace(edges=None)._asdict())
        edit(path, lambda file: file["particles/atoms/box"].update({"edges/value": vectors}))
        index = opened(path)
        assert (index.cells.dimensions == cells_of(vectors[np.newaxis], 1.0)).all()
        both = (vectors > 0).all()
        assert any("MDAnalysis reads it as three lengths" in note for note in index.notes) == both

    def test_a_cell_without_a_volume_is_reported(self, tmp_path):
        edges = numbers().edges
        edges[2, 1] = edges[2, 0]
        index = opened(write_simple(tmp_path / "flat.h5", edges=edges))
        assert not index.cells.dimensions[2].any()
        assert "edges spans no volume in 1 of 6 samples" in index.notes[0]

    def test_edges_of_another_shape(self, tmp_path):
        path = write_simple(tmp_path / "odd.h5", edges=np.ones((N_FRAMES, 2)))
        assert "expected three lengths or three vectors" in refused(path)


class TestUnits:
    @pytest.mark.parametrize(
        ("quantity", "spelled", "theirs"),
        [
            (quantity, spelled, theirs)
            for quantity, units in H5MDReader._unit_translation.items()
            for spelled, theirs in units.items()
        ],
    )
    def test_all_that_mdanalysis_knows(self, quantity, spelled, theirs):
        kind = {"velocity": "speed"}.get(quantity, quantity)
        base = {"length": "Angstrom", "time": "ps", "speed": "Angstrom/ps"}
        to = base.get(kind, "kJ/(mol*Angstrom)")
        wanted = np.float32(get_conversion_factor(kind, theirs, to))
        assert np.float32(factor_of(spelled, quantity)) == wanted
        assert np.float32(factor_of(theirs, quantity)) == wanted

    @pytest.mark.parametrize(
        ("unit", "quantity", "factor"),
        [
            ("60 s", "time", 6e13),
            ("10+3 m", "length", 1e13),
            ("3.405 Angstrom", "length", 3.405),
            ("um", "length", 1e4),
            ("m^1", "length", 1e10),
            ("eV/Angstrom", "force", 96.48533645956869),
            ("g mol-1", "mass", 1),
            ("Å", "length", 1),
        ],
    )
    def test_others(self, unit, quantity, factor):
        assert factor_of(unit, quantity) == pytest.approx(factor, rel=1e-14)

    @pytest.mark.parametrize(
        "unit", ["", "foo", "nm nm", "nm(", ")", "nm/", "0 nm", "nm**3", "10+999 m", "nm 3 +"]
    )
    def test_nonsense(self, unit):
        with pytest.raises(UnsupportedError, match="unit"):
            factor_of(unit, "length")

    @pytest.mark.parametrize("unit", ["kJ mol-5 nm-1", "kJ mol nm-1", "kJ/(mol*nm)/mol"])
    def test_powers_of_a_mole(self, unit):
        with pytest.raises(UnsupportedError, match="is not a unit of force"):
            factor_of(unit, "force")

    def test_as_users_name_them(self):
        assert units_given(None) == {}
        assert units_given("ps, nm") == {"time": "ps", "length": "nm", "velocity": "nm/ps"}
        assert units_given({"length": "Å", "velocity": "m s-1"})["velocity"] == "m s-1"
        for wrong in ("nm, pm", "nm, parsec", "K", {"colour": "red"}, {"length": "ps"}):
            with pytest.raises(UnsupportedError):
                units_given(wrong)

    def test_missing_ones_are_asked_for_at_once(self, tmp_path):
        path = write_simple(tmp_path / "none.h5", units={})
        message = refused(path)
        for name in ("position", "position/time", "velocity", "force"):
            assert f"/particles/atoms/{name}, " in message.replace(":", ",")
        assert message.endswith('(--units "Angstrom, ps, kJ mol-1 Angstrom-1")')
        assert refused(path, units="nm, ps").endswith('(--units "kJ mol-1 Angstrom-1")')
        assert opened(path, units="nm, ps, kJ mol-1 nm-1").elements["forces"].factor == 0.1

    def test_an_unknown_one_is_named(self, tmp_path):
        path = write_simple(tmp_path / "sigma.h5", units={**OUR_UNITS, "position": "sigma"})
        message = refused(path)
        assert "/particles/atoms/position: unknown unit 'sigma'" in message
        assert message.endswith('units="Angstrom" (--units "Angstrom")')
        assert opened(path, units={"length": "3.4 Angstrom"}).elements["positions"].factor == 3.4

    def test_an_unknown_one_of_forces_leaves_these_out(self, tmp_path):
        path = write_simple(
            tmp_path / "forces.h5", units={**OUR_UNITS, "force": "(Kcal/mol)/angstrom)"}
        )
        index = opened(path)
        assert index.elements.keys() == {"positions", "velocities"}
        assert "Kcal" not in index.facts["units"]
        [note] = [note for note in index.notes if "left out" in note]
        assert note.startswith("left out: /particles/atoms/force: unknown unit '(Kcal/mol)")
        index = opened(path, units={"force": "kcal mol-1 Angstrom-1"})
        assert index.elements["forces"].factor == pytest.approx(4.184)

    def test_one_of_something_else(self, tmp_path):
        path = write_simple(tmp_path / "wrong.h5", units={**OUR_UNITS, "velocity": "nm"})
        assert "'nm' is not a unit of velocity" in refused(path)

    def test_a_user_s_unit_counts_and_is_reported(self, tmp_path):
        index = opened(write_simple(tmp_path / "said.h5"), units={"length": "nm"})
        assert index.elements["positions"].factor == 10
        assert "in nm, as units= (--units) says, not in Angstrom" in index.notes[0]

    def test_the_box_lends_its_own(self, tmp_path):
        path = write_simple(tmp_path / "lent.h5")
        edit(path, lambda file: file["particles/atoms/position/value"].attrs.pop("unit"))
        assert opened(path).elements["positions"].factor == 1


class TestAtomsThatMove:
    def varying(self, path):
        """A file of ESPResSo, with a placeholder for atoms that are missing in a frame."""
        there = [np.arange(9), [8, 6, 5, 0, 2], [0, 2, 5, 8, 1, 6], *[np.arange(9)[::-1]] * 3]
        write_espresso(path, numbers(), there, OUR_UNITS)

        def name_placeholder(file):
            ids = file["particles/atoms/id/value"][...]
            for frame, here in enumerate(there):
                ids[frame, len(here) :] = -1
            del file["particles/atoms/id/value"]
            file["particles/atoms/id"].create_dataset("value", data=ids, fillvalue=-1)

        return edit(path, name_placeholder)

    def test_placeholders_leave_the_atoms_of_all_frames(self, tmp_path):
        path = self.varying(tmp_path / "varying.h5")
        index = opened(path)
        assert index.id_order.tolist() == [0, 2, 5, 6, 8]
        assert index.n_atoms == 5
        wanted = numbers().position[:, index.id_order].astype("f4")
        assert (values(path, index, "positions") == wanted).all()
        assert "varies from 5 to 9; the 5 atoms that exist in all frames" in index.notes[0]

    @pytest.mark.filterwarnings("ignore::paceline.errors.PacelineWarning")
    def test_they_are_read(self, tmp_path):
        path = self.varying(tmp_path / "varying.h5")
        reader = Reader(path)
        for frame, ts in enumerate(reader):
            wanted = numbers().position[frame, [0, 2, 5, 6, 8]].astype("f4")
            assert (ts.positions == wanted).all()

    @pytest.mark.filterwarnings("ignore::paceline.errors.PacelineWarning")
    @pytest.mark.parametrize("kind", [ChunkReader, H5pyReader])
    @pytest.mark.parametrize(("number", "found"), [(4, "4 twice"), (77, "no 3")])
    def test_one_that_is_there_twice_or_not_is_damage(self, tmp_path, kind, number, found):
        there = [np.arange(9)] * N_FRAMES
        path = write_espresso(tmp_path / "twice.h5", numbers(), there, OUR_UNITS)

        def repeat(file):
            file["particles/atoms/id/value"][2, 3] = number

        file = open_file(str(edit(path, repeat)))
        frames = np.arange(N_FRAMES)
        block = FrameBuffer.allocate(frames, 2, ["positions"])
        reader = kind(file.spec, np.array([5, 6]), 1)
        extents = extents_in(0, file, frames.astype(np.uint64))
        *_, damaged = reader.read(extents, block, required=1, skip=True)
        ((row, reason),) = damaged
        assert row == 2
        assert reason.endswith(f"expected each atom's number once, found {found}")
        assert np.isnan(block.positions[2]).all()
        assert np.array_equal(block.times, numbers().time)

    @pytest.mark.filterwarnings("ignore::paceline.errors.PacelineWarning")
    def test_a_damaged_frame_takes_as_many_calls_as_a_sound_one(self, tmp_path, monkeypatch):
        """Check the number of calls; if it differed, ranks would wait for each other."""
        there = [np.arange(9)] * N_FRAMES
        path = write_espresso(tmp_path / "twice.h5", numbers(), there, OUR_UNITS)

        def repeat(file):
            file["particles/atoms/id/value"][2, 3] = 4

        file = open_file(str(edit(path, repeat)))
        reader = H5pyReader(file.spec, None, 7)
        calls, part = [], Array.part
        monkeypatch.setattr(Array, "part", lambda *args: calls.append(args) or part(*args))
        n_calls = []
        for frame in (1, 2):
            block = FrameBuffer.allocate(np.array([frame]), 9, FIELDS)
            extents = extents_in(0, file, np.array([frame], dtype=np.uint64))
            *_, damaged = reader.read(extents, block, required=7, skip=True)
            n_calls.append(len(calls))
            calls.clear()
        assert len(damaged) == 1
        assert n_calls == [6, 6]

    def test_none_is_there_in_all_frames(self, tmp_path):
        path = write_simple(tmp_path / "none.h5")
        ids = np.full((N_FRAMES, N_ATOMS), -1)
        ids[np.arange(N_FRAMES), 0] = np.arange(N_FRAMES)

        def add(file):
            group = file.create_group("particles/atoms/id")
            group.create_dataset("value", data=ids, fillvalue=-1)
            group["step"] = numbers().step

        assert "varies from 1 to 1, and no atom exists" in refused(edit(path, add))

    def test_a_varying_number_without_placeholder(self, tmp_path):
        there = [np.arange(5), *[np.arange(9)] * 5]
        path = write_espresso(tmp_path / "varying.h5", numbers(), there, OUR_UNITS)
        assert "row 0 contains 0 5 times: the number of atoms varies" in refused(path)

    def test_numbers_at_other_steps(self, tmp_path):
        path = write_simple(tmp_path / "sparse.h5")

        def add(file):
            ids = np.tile(np.arange(N_ATOMS), (2, 1))
            write_element(file["particles/atoms"], "id", ids, step=numbers().step[:2])

        assert "atoms cannot be identified" in refused(edit(path, add))

    def test_numbers_that_never_change_leave_the_order(self, tmp_path):
        path = write_simple(tmp_path / "fixed.h5")
        edit(path, lambda f: f["particles/atoms"].create_dataset("id", data=np.arange(9)[::-1]))
        assert opened(path).ids is None

    def test_of_another_number_of_atoms(self, tmp_path):
        path = write_simple(tmp_path / "few.h5")

        def add(file):
            ids = np.tile(np.arange(4), (N_FRAMES, 1))
            write_element(file["particles/atoms"], "id", ids, step=numbers().step)

        message = refused(edit(path, add))
        assert "whole numbers of 9 atoms, as /particles/atoms/position has" in message
        assert "shape (6, 4)" in message


class TestContradictions:
    @pytest.mark.parametrize("what", ["step", "time"])
    def test_clocks_of_another_length(self, tmp_path, what):
        path = write_simple(tmp_path / "short.h5", **{what: np.arange(4)})
        message = refused(path, DamagedFileError)
        assert f"/particles/atoms/position/{what}: expected as many as" in message
        assert "/particles/atoms/position/value has, 6" in message
        assert "(4,)" in message

    def test_velocities_of_other_atoms(self, tmp_path):
        path = write_simple(tmp_path / "other.h5", velocity=np.zeros((N_FRAMES, 5, 3)))
        message = refused(path)
        assert "/particles/atoms/position has 9 atoms" in message
        assert "/particles/atoms/velocity has 5" in message

    def test_positions_in_a_plane(self, tmp_path):
        path = write_simple(tmp_path / "flat.h5", position=np.zeros((N_FRAMES, N_ATOMS, 2)))
        assert "three components of each atom, found an array of shape (6, 9, 2)" in refused(path)

    def test_no_values(self, tmp_path):
        path = write_simple(tmp_path / "deleted.h5")
        edit(path, lambda file: file.pop("particles/atoms/position/value"))
        assert "expected a dataset value, found" in refused(path, DamagedFileError)

    def test_no_atoms(self, tmp_path):
        path = write_simple(tmp_path / "nobody.h5", **numbers(3, 0)._asdict())
        assert "/particles/atoms/position has no atoms" in refused(path, MissingDataError)

    def test_no_frames(self, tmp_path):
        path = write_simple(tmp_path / "never.h5", **numbers(0)._asdict())
        assert opened(path).n_frames == 0
        with pytest.raises(
            UnsupportedError, match="expected at least one complete frame, found none"
        ):
            Reader(path)

    def test_nothing_moves(self, tmp_path):
        path = write_simple(tmp_path / "still.h5", position=None, velocity=None, force=None)
        message = refused(path, MissingDataError, group="atoms")
        assert "expected position, velocity, force, found box" in message

    def test_steps_that_are_no_whole_numbers(self, tmp_path):
        path = write_simple(tmp_path / "half.h5", step=np.arange(N_FRAMES) + 0.5)
        assert "whole numbers" in refused(path, DamagedFileError)

    @pytest.mark.parametrize("what", ["step", "time"])
    def test_clocks_of_text(self, tmp_path, what):
        path = write_simple(tmp_path / "text.h5", **{what: np.array([b"now"] * N_FRAMES)})
        assert "expected numbers" in refused(path, DamagedFileError)

    @pytest.mark.parametrize("offset", ["soon", [1, 2]])
    def test_an_offset_that_is_no_number(self, tmp_path, offset):
        path = write_simple(tmp_path / "offset.h5", step=10)
        edit(path, lambda f: f["particles/atoms/position/step"].attrs.create("offset", offset))
        assert "attribute offset: expected a number" in refused(path, DamagedFileError)

    def test_an_increment_beyond_64_bits(self, tmp_path):
        path = write_simple(tmp_path / "vast.h5", step=2**62)
        assert "numbers of 64 bits" in refused(path, DamagedFileError)

    def test_more_frames_than_bytes(self, tmp_path):
        path = write_simple(tmp_path / "absurd.h5", velocity=None, force=None, step=1, time=None)

        def claim(file):
            del file["particles/atoms/position/value"]
            shape = (10**9, N_ATOMS, 3)
            file["particles/atoms/position"].create_dataset(
                "value", shape, "f4", chunks=(10**7, N_ATOMS, 3)
            )

        assert "at most 1048576 samples" in refused(edit(path, claim), DamagedFileError)


class TestKindsOfNumbers:
    @pytest.mark.parametrize("kind", ["<f4", ">f4", "<f8", ">f8", "<i4", ">i2"])
    def test_each_is_kept(self, tmp_path, kind):
        path = write_simple(tmp_path / "kind.h5", dtype=kind)
        index = opened(path)
        assert index.elements["positions"].dataset.dtype == np.dtype(kind)
        wanted = numbers().position.astype(kind).astype("f4")
        assert (values(path, index, "positions") == wanted).all()

    def test_times_in_femtoseconds_of_each_kind(self, tmp_path):
        for kind in ("f4", "f8", "i8", ">f4"):
            time = np.arange(N_FRAMES).astype(kind) * np.dtype(kind).type(7)
            units = {**OUR_UNITS, "time": "fs"}
            path = write_simple(
                tmp_path / f"{kind[-2:]}{kind[0] == '>'}.h5", time=time, units=units
            )
            assert_as_mdanalysis(path, opened(path), their_universe(str(path), N_ATOMS))


class TestBareDatasets:
    def write(self, path, shape, unit=None):
        with h5py.File(path, "w") as file:
            file["pos"] = numbers().position.astype("f4").reshape(shape)
            file["masses"] = np.ones(N_ATOMS)
            if unit is not None:
                file["pos"].attrs["unit"] = unit
        return path

    @pytest.mark.parametrize("shape", [(N_FRAMES, N_ATOMS, 3), (N_FRAMES, 3 * N_ATOMS)])
    def test_as_in_the_paper_of_2020(self, tmp_path, shape):
        path = self.write(tmp_path / "bare.h5", shape)
        index = opened(path, dataset="pos", units="nm")
        assert (index.n_frames, index.n_atoms) == (N_FRAMES, N_ATOMS)
        wanted = numbers().position.astype("f4") * 10
        assert (values(path, index, "positions") == wanted).all()

    def test_no_unit_is_guessed(self, tmp_path):
        path = self.write(tmp_path / "bare.h5", (N_FRAMES, -1))
        assert refused(path, dataset="pos").endswith('units="Angstrom" (--units "Angstrom")')
        path = self.write(tmp_path / "said.h5", (N_FRAMES, -1), "nm")
        assert opened(path, dataset="pos").elements["positions"].factor == 10

    def test_it_has_to_be_named(self, tmp_path):
        path = self.write(tmp_path / "bare.h5", (N_FRAMES, -1))
        assert "name it with dataset= (--dataset): 'pos'" in refused(path)
        assert "found none" in refused(path, dataset="positions", units="nm")
        assert "found float64 of shape (9,)" in refused(path, dataset="masses", units="nm")

    def test_no_trajectory_at_all(self, tmp_path):
        path = tmp_path / "no.h5"
        with h5py.File(path, "w") as file:
            file["text"] = "nothing"
        assert "an HDF5 file without a trajectory" in refused(path)
        assert "group= (--particles) applies to H5MD files" in refused(path, group="atoms")

    def test_h5md_below_the_root(self, tmp_path):
        path = write_simple(tmp_path / "nested.h5")

        def move(file):
            for name in list(file):
                file.move(name, f"run1/{name}")

        assert "its H5MD structure begins at /run1" in refused(edit(path, move))


def test_mdtraj_s_arrays_that_disagree(tmp_path):
    path = tmp_path / "mdtraj.h5"
    with h5py.File(path, "w") as file:
        file.attrs["conventions"] = np.bytes_(b"Pande")
        file["coordinates"] = np.zeros((4, 3, 3), dtype="f4")
        file["time"] = np.zeros(5)
    message = refused(path, DamagedFileError)
    assert "/time: expected numbers of shape (4,), to match the coordinates" in message
    assert "(5,)" in message


def test_a_file_without_positions_shows_no_zeros(tmp_path):
    path = write_simple(tmp_path / "moves.h5md", position=None)
    reader = Reader(path)
    assert not reader.ts.has_positions
    with pytest.raises(MDAnalysis.NoDataError, match="no positions"):
        _ = reader.ts.positions
    assert reader.ts.has_velocities
