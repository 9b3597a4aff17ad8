"""Tests of topologies and observables in HDF5 trajectories."""

import json
import pickle
import shutil
import warnings

import h5py
import MDAnalysis
import mdtraj
import numpy as np
import pytest
from helpers.h5md_files import (
    N_ATOMS,
    N_FRAMES,
    numbers,
    write_bonds,
    write_element,
    write_espresso,
    write_gromacs,
    write_lammps,
    write_simple,
)
from MDAnalysis.guesser.tables import SYMB2Z
from MDAnalysisTests import datafiles

import paceline
from paceline.errors import DamagedFileError, MissingDataError, UnsupportedError
from paceline.hdf5.open_any_convention import read_topology
from paceline.hdf5.read_observables import find_observables, find_properties

WATER = {
    "mass": [16.0, 1.0, 1.0],
    "charge": [-0.8, 0.4, 0.4],
    "species": [8, 1, 1],
    "particle_name": ["OW", "HW1", "HW2"],
    "residue_name": ["SOL"] * 3,
    "residue_id": [1, 1, 1],
}
PEPTIDE = {
    "mass": [14.0, 12.0, 32.1, 0.0],
    "charge": [0.5, 0, -0.5, 0],
    "species": [7, 6, 16, -1],
    "particle_name": ["N", "CA", "SG", "MW"],
    "residue_name": ["GLY", "GLY", "CYS", "CYS"],
    "residue_id": [21, 21, 22, 22],
}
MOLECULES = [("Protein_chain_B", 2, PEPTIDE), ("SOL", 1, WATER), ("WAT", 2, WATER)]


def universe_of(path, **kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return MDAnalysis.Universe(read_topology(path, **kwargs))


def edit(path, change):
    with h5py.File(path, "a") as file:
        change(file)
    return path


class TestGromacs:
    def write(self, path, molecules=MOLECULES):
        n_atoms = sum(count * len(atoms["mass"]) for _, count, atoms in molecules)
        return write_gromacs(path, numbers(2, n_atoms), molecules)

    def test_molecules_blocks_and_bonds(self, tmp_path):
        path = self.write(tmp_path / "gromacs.h5md")
        write_bonds(path, [[0, 1], [4, 5], [8, 9]])
        atoms = universe_of(path).atoms
        assert atoms.names.tolist() == PEPTIDE["particle_name"] * 2 + WATER["particle_name"] * 3
        assert atoms.elements.tolist() == ["N", "C", "S", ""] * 2 + ["O", "H", "H"] * 3
        assert atoms.masses == pytest.approx(PEPTIDE["mass"] * 2 + WATER["mass"] * 3)
        assert atoms.charges == pytest.approx(PEPTIDE["charge"] * 2 + WATER["charge"] * 3)
        residues = atoms.residues
        assert residues.resids.tolist() == [21, 22, 21, 22, 23, 24, 25]
        assert residues.resnames.tolist() == ["GLY", "CYS"] * 2 + ["SOL"] * 3
        assert residues.molnums.tolist() == [0, 0, 1, 1, 2, 3, 4]
        assert atoms.segments.segids.tolist() == ["seg_0_Protein_chain_B", "seg_1_SOL", "seg_2_WAT"]
        assert atoms.chainIDs.tolist() == ["B"] * 8 + ["SOL"] * 3 + ["WAT"] * 6
        assert atoms.bonds.indices.tolist() == [[0, 1], [4, 5], [8, 9]]

    def test_as_mdanalysis_reads_the_tpr_of_the_same_system(self, tmp_path):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            theirs = MDAnalysis.Universe(datafiles.TPR2024)
        molecules = []
        for segment in theirs.segments:
            of_block = segment.atoms
            first = of_block[of_block.molnums == of_block.molnums[0]]
            kind = {
                "mass": first.masses,
                "charge": first.charges,
                "species": [SYMB2Z.get(element, -1) for element in first.elements],
                "particle_name": first.names.tolist(),
                "residue_name": first.resnames.tolist(),
                "residue_id": first.resids - first.resids[0] + 1,
            }
            count = len(np.unique(of_block.molnums))
            molecules.append((segment.segid.split("_", 2)[2], count, kind))
        path = tmp_path / "adk.h5md"
        write_gromacs(path, numbers(1, len(theirs.atoms)), molecules)
        write_bonds(path, theirs.bonds.indices)
        ours = universe_of(path)
        for name in ("names", "elements", "masses", "charges", "resids", "resnames", "segids"):
            assert (getattr(ours.atoms, name) == getattr(theirs.atoms, name)).all(), name
        for name in ("molnums", "moltypes", "chainIDs"):
            assert (getattr(ours.atoms, name) == getattr(theirs.atoms, name)).all(), name
        assert (ours.bonds.indices == theirs.bonds.indices).all()
        selection = "protein and name CA"
        assert ours.select_atoms(selection) == ours.atoms[theirs.select_atoms(selection).indices]

    def refused(self, path, kind):
        with pytest.raises(kind) as caught:
            read_topology(path)
        assert str(caught.value).startswith(str(path))
        return str(caught.value)

    def test_another_version(self, tmp_path):
        path = self.write(tmp_path / "new.h5md")

        def change(file):
            file["h5md/modules/gromacs_topology"].attrs["version"] = [1, 0]

        message = self.refused(edit(path, change), UnsupportedError)
        assert "expected a topology of version 0, found [1 0]; use a topology file" in message

    def test_other_atoms_than_the_trajectory(self, tmp_path):
        path = self.write(tmp_path / "part.h5md")

        def change(file):
            module = file["h5md/modules/gromacs_topology"]
            module.attrs["molecule_block_counts"] = np.array([2, 1, 2**31 - 1], dtype=np.int32)

        message = self.refused(edit(path, change), UnsupportedError)
        assert "describes 6442450952 atoms, the trajectory has 17" in message

    @pytest.mark.parametrize(
        ("name", "values", "expected"),
        [
            ("SOL/particle_name", [0, 1, 7], "places in a table of 3 names, found 0 to 7"),
            ("SOL/charge", [0.0, 1.0], "numbers of 3 particles"),
            ("SOL/residue_id", None, "3 of each particle, found nothing"),
            ("SOL/residue_name_table", None, "names, found none"),
            ("SOL", None, "a molecule 'SOL', found none"),
        ],
    )
    def test_contradictions(self, tmp_path, name, values, expected):
        path = self.write(tmp_path / "odd.h5md")

        def change(file):
            module = file["h5md/modules/gromacs_topology"]
            del module[name]
            if values is not None:
                module[name] = np.array(values)

        assert expected in self.refused(edit(path, change), DamagedFileError)

    def test_bonds_of_atoms_that_there_are_not(self, tmp_path):
        path = self.write(tmp_path / "bonds.h5md")
        write_bonds(path, [[0, 99]])
        message = self.refused(path, DamagedFileError)
        assert "pairs of 17 atoms, counted from 0, found 0 to 99" in message

    def test_names_without_numbers(self, tmp_path):
        path = self.write(tmp_path / "counts.h5md")

        def change(file):
            file["h5md/modules/gromacs_topology"].attrs["molecule_block_counts"] = [1]

        assert "a number for each name" in self.refused(edit(path, change), DamagedFileError)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    path = tmp_path_factory.mktemp("mdtraj") / "mdtraj.h5"
    trajectory = mdtraj.load(str(datafiles.PDB_small))
    trajectory.save_hdf5(str(path))
    return trajectory.topology, path


class TestMDTraj:
    @pytest.fixture
    def theirs(self, written, tmp_path):
        topology, path = written
        return topology, shutil.copy(path, tmp_path)

    def test_its_topology(self, theirs):
        topology, path = theirs
        ours = universe_of(path).atoms
        assert ours.names.tolist() == [atom.name for atom in topology.atoms]
        assert ours.elements.tolist() == [atom.element.symbol for atom in topology.atoms]
        assert ours.resids.tolist() == [atom.residue.resSeq for atom in topology.atoms]
        assert ours.resnames.tolist() == [atom.residue.name for atom in topology.atoms]
        wanted = sorted(
            tuple(sorted((bond.atom1.index, bond.atom2.index))) for bond in topology.bonds
        )
        assert sorted(map(tuple, ours.bonds.indices.tolist())) == wanted

    @pytest.mark.parametrize(
        "text",
        [
            b"{",
            b"[]",
            b'{"chains": [{"index": 0}], "bonds": []}',
            b"[" * 100_000,
            json.dumps({"chains": [], "bonds": [[0, -1]]}).encode(),
            json.dumps({"chains": [], "bonds": []}).encode(),
        ],
        ids=["cut", "list", "no residues", "nested", "negative", "no atoms"],
    )
    def test_damaged_json(self, theirs, text):
        _, path = theirs

        def change(file):
            del file["topology"]
            file["topology"] = np.array([text])

        edit(path, change)
        with pytest.raises(DamagedFileError, match="/topology: expected"):
            read_topology(path)

    def test_without_one_there_are_atoms_all_the_same(self, theirs):
        topology, path = theirs
        edit(path, lambda file: file.pop("topology"))
        assert len(universe_of(path).atoms) == topology.n_atoms


class TestAnyOther:
    def test_lammps_tells_types_and_charges(self, tmp_path):
        atoms = universe_of(write_lammps(tmp_path / "dump.h5", numbers())).atoms
        assert atoms.types.tolist() == ["1", "2"] * 4 + ["1"]
        assert (atoms.charges == np.arange(N_ATOMS) * 0.25).all()

    def test_espresso_s_atoms_are_in_the_order_of_their_numbers(self, tmp_path):
        random = np.random.default_rng(5)
        ids = [random.permutation(N_ATOMS) for _ in range(N_FRAMES)]
        atoms = universe_of(write_espresso(tmp_path / "espresso.h5", numbers(), ids)).atoms
        assert atoms.ids.tolist() == list(range(N_ATOMS))
        assert (atoms.masses == 1.0 + np.arange(N_ATOMS)).all()
        assert atoms.types.tolist() == ["0", "1", "2"] * 3

    def test_masses_names_and_labels(self, tmp_path):
        path = write_simple(tmp_path / "ours.h5")
        kinds = h5py.enum_dtype({"C": 0, "O": 1}, basetype="i4")
        resids = [1, 1, 1, 2, 2, 2, 1, 1, 1]

        def add(file):
            atoms = file["particles/atoms"]
            atoms["mass"] = np.full(N_ATOMS, 1e-3)
            atoms["mass"].attrs["unit"] = "kg mol-1"
            atoms.create_dataset("species", data=np.arange(N_ATOMS) % 2, dtype=kinds)
            atoms["id"] = np.arange(N_ATOMS)[::-1]
            labels = file.create_group("parameters/atoms")
            labels["name"] = np.array([f"X{k}".encode() for k in range(N_ATOMS)])
            labels["resid"] = resids
            labels["resname"] = np.array([b"AAA"] * 6 + [b"BBB"] * 3)
            labels["segid"] = np.array([b"P"] * 6 + [b"Q"] * 3)
            file["connectivity/bonds"] = [[0, 1], [2, 8]]

        atoms = universe_of(edit(path, add)).atoms
        assert atoms.masses == pytest.approx(np.ones(N_ATOMS))
        assert atoms.elements.tolist() == ["C", "O"] * 4 + ["C"]
        assert atoms.ids.tolist() == list(range(N_ATOMS))[::-1]
        assert atoms.names[8] == "X8"
        assert atoms.resids.tolist() == resids
        assert atoms.residues.resnames.tolist() == ["AAA", "AAA", "BBB"]
        assert atoms.segments.segids.tolist() == ["P", "Q"]
        assert atoms.bonds.indices.tolist() == [[0, 1], [2, 8]]

    def test_a_bare_dataset_has_none(self, tmp_path):
        path = tmp_path / "bare.h5"
        with h5py.File(path, "w") as file:
            file["pos"] = np.zeros((2, 4, 3))
        with pytest.raises(MissingDataError, match=r"bare.h5: .* name a topology file before it"):
            paceline.Universe(path, dataset="pos", units="nm")

    def test_a_mass_in_stones(self, tmp_path):
        def add(file):
            file["particles/atoms/mass"] = np.ones(N_ATOMS)
            file["particles/atoms/mass"].attrs["unit"] = "stone"

        path = edit(write_simple(tmp_path / "heavy.h5"), add)
        with pytest.raises(UnsupportedError, match=r"mass: unknown unit 'stone'.*topology file"):
            read_topology(path)

    def test_bonds_are_not_lent_to_one_of_several_groups(self, tmp_path):
        path = write_simple(tmp_path / "two.h5", group="a")

        def add(file):
            file.copy("particles/a", "particles/b")
            file["connectivity/bonds"] = [[0, 1]]

        edit(path, add)
        assert not hasattr(read_topology(path, group="b"), "bonds")
        with pytest.raises(
            UnsupportedError, match=r"choose one with group= \(--particles\): 'a', 'b'"
        ):
            read_topology(path)


class TestObservables:
    @pytest.fixture
    def path(self, tmp_path):
        def add(file):
            observables = file.create_group("observables")
            step, held = numbers().step, numbers()
            energy = np.arange(N_FRAMES) * 1.5
            write_element(
                observables, "energy", energy, step=step, time=held.time, unit="kJ mol-1",
                time_unit="ps",
            )  # fmt: skip
            pressure = np.ones((3, 3, 3)) * np.arange(3)[:, np.newaxis, np.newaxis]
            write_element(observables, "bath/pressure", pressure, step=1000)
            observables["volume"] = 42.0
            observables["loop"] = observables
            file["particles/atoms/charge"] = np.arange(N_ATOMS)
            write_element(file["particles/atoms"], "image", np.zeros((6, 9, 3), int), step=step)

        return edit(write_simple(tmp_path / "observed.h5"), add)

    def test_values_steps_times_and_units(self, path):
        observables = find_observables(path)
        assert list(observables) == ["bath/pressure", "energy", "volume"]
        energy = observables["energy"]
        assert (energy.values == np.arange(N_FRAMES) * 1.5).all()
        assert (energy.steps == numbers().step).all()
        assert (energy.times == numbers().time).all()
        assert energy.unit == "kJ mol-1"
        assert observables["volume"].steps is None
        assert observables["volume"].values == 42.0
        assert "6 samples" in repr(energy)

    def test_of_one_step(self, path):
        observables = find_observables(path)
        third = observables.at(1000)
        assert third["energy"] == 3.0
        assert (third["bath/pressure"] == 1).all()
        assert not third["bath/pressure"].flags.writeable
        assert third["volume"] == 42.0
        assert set(observables.at(1500)) == {"energy", "volume"}

    def test_they_travel(self, path):
        observables = pickle.loads(pickle.dumps(find_observables(path)))
        assert observables.at(500)["energy"] == 1.5

    def test_as_mdanalysis_has_them(self):
        ours = find_observables(datafiles.H5MD_energy)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            theirs = MDAnalysis.Universe.empty(108, trajectory=True)
            theirs.load_new(datafiles.H5MD_energy, format="H5MD")
        for ts in theirs.trajectory:
            found = ours.at(ts.data["step"], ts.frame)
            assert found == {k: v for k, v in ts.data.items() if k not in ("step", "time")}

    def test_on_the_timestep(self, path):
        universe = paceline.Universe(path)
        for frame, ts in enumerate(universe.trajectory):
            assert ts.data["energy"] == frame * 1.5
            assert ("bath/pressure" in ts.data) == (frame % 2 == 0)
            assert ts.data["step"] == numbers().step[frame]
        assert universe.trajectory.observables["energy"].unit == "kJ mol-1"
        assert list(universe.trajectory.properties) == ["charge", "image"]
        again = pickle.loads(pickle.dumps(universe.trajectory))
        assert again.ts.data["energy"] == 0

    def test_a_damaged_one_costs_no_frame(self, path):
        def shorten(file):
            del file["observables/energy/step"]
            file["observables/energy/step"] = np.arange(2)

        edit(path, shorten)
        universe = paceline.Universe(path)
        assert universe.trajectory[1].data["volume"] == 42.0
        assert "energy" not in universe.trajectory.ts.data
        with pytest.raises(DamagedFileError, match="energy/step: expected as many as"):
            universe.trajectory.observables["energy"]

    def test_what_else_there_is_of_particles(self, path):
        properties = find_properties(path)
        assert list(properties) == ["charge", "image"]
        assert (properties["charge"].values == np.arange(N_ATOMS)).all()
        assert properties["image"].shape == (6, 9, 3)

    def test_of_mdtraj(self, tmp_path):
        path = tmp_path / "mdtraj.h5"
        with mdtraj.formats.HDF5TrajectoryFile(str(path), "w") as file:
            file.write(np.zeros((3, 2, 3)), temperature=[300.0, 301, 302])
        assert find_observables(path).at(1) == {"temperature": 301.0}
        assert len(find_properties(path)) == 0

    def test_none(self, tmp_path):
        assert len(find_observables(write_simple(tmp_path / "none.h5"))) == 0
