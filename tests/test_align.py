"""Tests of superposed trajectories and average structures against MDAnalysis and NumPy."""

import inspect

import MDAnalysis
import numpy as np
import pytest
from MDAnalysis.analysis import align as theirs_align
from scipy.spatial.transform import Rotation

import paceline
from paceline.analysis.align import AlignTraj, AverageStructure
from paceline.errors import SelectionError, UnsupportedError
from paceline.transform import center

# MDAnalysis moves atoms twice, in single precision.
ANGSTROM = 5e-5

#: For each case, a function that returns options from a Universe and another Universe of the same
#: atoms.
CASES = {
    "defaults": lambda other: {},
    "selection": lambda other: {"select": "name CA"},
    "ref_frame": lambda other: {"select": "backbone", "ref_frame": 42},
    "last ref_frame": lambda other: {"select": "backbone", "ref_frame": -1},
    "another universe": lambda other: {"reference": other, "select": "backbone", "ref_frame": 97},
    "tuple": lambda other: {"select": ("name CA", "name CA and protein")},
    "ordered": lambda other: {
        "select": {"mobile": ["resid 9", "resid 5"], "reference": ["resid 9", "resid 5"]}
    },
    "mass": lambda other: {"select": "protein", "weights": "mass"},
    "weights": lambda other: {"select": "name CA", "weights": np.linspace(0.0, 3.0, 214)},
    "other atoms": lambda other: {
        "select": ("name CA and resid 1-9", "name N and resid 1-9"),
        "match_atoms": False,
        "weights": "mass",
    },
}


@pytest.mark.parametrize("case", CASES)
def test_it_is_mdanalysis_s(case, universe, theirs):
    ours = AverageStructure(universe, **CASES[case](theirs)).run(step=3).results
    wanted = theirs_align.AverageStructure(theirs, **CASES[case](theirs.copy())).run(step=3).results
    assert ours.positions.dtype == wanted.positions.dtype
    np.testing.assert_allclose(ours.positions, wanted.positions, rtol=0, atol=ANGSTROM)
    np.testing.assert_allclose(ours.rmsd, wanted.rmsd, rtol=1e-6)
    atoms, others = ours.universe.atoms, wanted.universe.atoms
    np.testing.assert_allclose(atoms.positions, others.positions, rtol=0, atol=ANGSTROM)
    assert atoms.names.tolist() == others.names.tolist()


def test_a_rigid_body_is_its_own_average():
    rng = np.random.default_rng(5)
    start = rng.normal(40, 8, (30, 3))
    turns = Rotation.random(40, rng=rng).as_matrix()
    frames = np.einsum("fij,aj->fai", turns, start) + rng.normal(0, 5, (40, 1, 3))
    frames[0] = start
    body = MDAnalysis.Universe.empty(30, trajectory=True)
    body.load_new(frames.astype(np.float32))
    results = AverageStructure(body).run().results
    np.testing.assert_allclose(results.positions, start, atol=2e-5)
    assert results.rmsd < 1e-5


def test_a_reference_of_the_same_trajectory_is_transformed_too(universe):
    plain = AverageStructure(universe, select="name CA").run(step=9).results
    moved = AverageStructure(universe, select="name CA")
    moved.run(step=9, transforms=[center("protein", point=(5, 6, 7))])
    universe.trajectory[0]  # other tests may have changed the frame
    first = universe.select_atoms("protein").center_of_geometry()
    expected = plain.positions - first + [5, 6, 7]
    np.testing.assert_allclose(moved.results.positions, expected, atol=1e-4)


def test_parameters_are_mdanalysis_s():
    def parameters(function):
        named = inspect.signature(function).parameters.values()
        return [(p.name, p.default) for p in named if p.kind is not p.VAR_KEYWORD]

    for ours in (AlignTraj, AverageStructure):
        theirs = getattr(theirs_align, ours.__name__)
        assert parameters(ours.__init__) == [*parameters(theirs.__init__), ("verbose", False)]


@pytest.mark.parametrize("ending", ["pdb", "gro", "xtc"])
def test_it_writes_the_file_of_mdanalysis(ending, universe, theirs, tmp_path):
    names = [tmp_path / f"{which}.{ending}" for which in ("ours", "theirs")]
    one = AverageStructure(universe, select="name CA", filename=names[0])
    one.run(stop=5)
    theirs_align.AverageStructure(theirs, select="name CA", filename=str(names[1])).run(stop=5)
    assert one.outputs == (str(names[0]),)
    topology = MDAnalysis.Merge(theirs.select_atoms("name CA"))._topology
    ours, expected = (MDAnalysis.Universe(topology, str(name)).atoms for name in names)
    np.testing.assert_allclose(ours.positions, expected.positions, atol=2e-3)
    assert len(names[0].read_bytes()) == len(names[1].read_bytes())


def average_of(files, name):
    universe = MDAnalysis.Universe(*files)
    average = theirs_align.AverageStructure(universe, select="name CA", filename=str(name))
    return average.run(stop=7).results


def test_a_script_of_mdanalysis_gets_its_file(adk, tmp_path):
    names = [tmp_path / f"{which}.pdb" for which in ("ours", "theirs")]
    with paceline.register():
        ours = average_of(adk, names[0])
    theirs = average_of(adk, names[1])
    np.testing.assert_allclose(ours.positions, theirs.positions, atol=ANGSTROM)
    # MDAnalysis moves atoms in single precision.
    assert not np.array_equal(ours.positions, theirs.positions)
    np.testing.assert_allclose(ours.rmsd, theirs.rmsd, rtol=1e-6)
    assert ours.universe.atoms.n_atoms == 214
    np.testing.assert_array_equal(ours.universe.atoms.positions, np.float32(ours.positions))
    written, expected = (MDAnalysis.Universe(name).atoms for name in names)
    np.testing.assert_allclose(written.positions, ours.positions, atol=1e-3)
    assert written.names.tolist() == expected.names.tolist()
    assert len(names[0].read_bytes()) == len(names[1].read_bytes())


def test_results_are_saved_as_arrays(universe, tmp_path):
    average = AverageStructure(universe, select="name CA").run(stop=3)
    average.results.save(tmp_path / "average.npz")
    with np.load(tmp_path / "average.npz") as saved:
        assert sorted(saved) == ["positions", "provenance", "rmsd", "rmsf"]
        np.testing.assert_array_equal(saved["positions"], average.results.positions)


def test_an_average_has_no_cell(universe, tmp_path):
    average = AverageStructure(universe, select="name CA").run(stop=3)
    average.results.save(tmp_path / "average.pdb")
    assert "CRYST1" not in (tmp_path / "average.pdb").read_text(encoding="utf-8")
    found = MDAnalysis.Universe(tmp_path / "average.pdb")
    assert (found.dimensions, len(found.trajectory)) == (None, 1)
    np.testing.assert_allclose(found.atoms.positions, average.results.positions, atol=1e-3)


def test_a_file_that_exists_is_replaced_unless_refused(universe, tmp_path):
    path = tmp_path / "average.pdb"
    path.write_text("mine")
    with pytest.raises(FileExistsError, match=r"average\.pdb exists"):
        AverageStructure(universe, filename=path, force=False)
    assert path.read_text() == "mine"
    AverageStructure(universe, select="name CA", filename=path).run(stop=2)
    assert len(MDAnalysis.Universe(path).atoms) == 214


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"select": "name XYZ"}, SelectionError, "no atoms match 'name XYZ'"),
        ({"select": ("name CA", "resid 1")}, SelectionError, "214 atoms .* 19 atoms"),
        ({"select": ("resid 1-2 and name CA", "resid 1-2 and name N")}, SelectionError, "mass"),
        ({"weights": [1.0, 2.0]}, ValueError, "3341 atoms"),
        ({"in_memory": True}, UnsupportedError, "in_memory=True"),
    ],
)
def test_what_cannot_be_averaged_is_refused(options, error, words, universe):
    with pytest.raises(error, match=words):
        AverageStructure(universe, **options)


def test_damaged_frames_are_left_out(damaged, adk_xtc):
    system, frames = damaged
    found = AverageStructure(paceline.Universe(*system), select="name CA").run(on_error="skip")
    kept = [frame for frame in range(98) if frame not in frames]
    wanted = AverageStructure(paceline.Universe(*adk_xtc), select="name CA").run(frames=kept)
    np.testing.assert_allclose(found.results.positions, wanted.results.positions, rtol=1e-12)
    np.testing.assert_allclose(found.results.rmsd, wanted.results.rmsd, rtol=1e-12)
    with pytest.raises(ValueError, match="no frame is left"):
        AverageStructure(paceline.Universe(*system)).run(frames=frames, on_error="skip")


#: The same for trajectories that are written to a file.
ALIGNED = {
    "defaults": lambda other: {},
    "selection": lambda other: {"select": "name CA"},
    "tuple": lambda other: {"select": ("name CA and resid 1-99", "name CA and resid 2-100")},
    "mass": lambda other: {"select": "backbone", "weights": "mass"},
    "weights": lambda other: {"select": "name CA", "weights": np.linspace(0.0, 3.0, 214)},
    "other masses": lambda other: {
        "select": {"mobile": "name CA", "reference": "name N"},
        "match_atoms": False,
        "weights": "mass",
    },
}


@pytest.mark.parametrize("case", ALIGNED)
def test_a_written_trajectory_is_mdanalysis_s(case, universe, theirs, tmp_path):
    names = [str(tmp_path / f"{which}.dcd") for which in ("ours", "theirs")]
    reference = theirs.copy()
    reference.trajectory[20]
    options = ALIGNED[case](reference)
    ours = AlignTraj(universe, reference, filename=names[0], **options).run(step=4)
    other = theirs_align.AlignTraj(theirs.copy(), reference, filename=names[1], **options)
    other.run(step=4)
    np.testing.assert_allclose(ours.results.rmsd, other.results.rmsd, rtol=0, atol=1e-5)
    found, expected = (MDAnalysis.Universe(theirs._topology, name) for name in names)
    assert len(found.trajectory) == len(expected.trajectory) == 25
    for _ in zip(found.trajectory, expected.trajectory, strict=True):
        np.testing.assert_allclose(
            found.atoms.positions, expected.atoms.positions, rtol=0, atol=ANGSTROM
        )
    assert reference.trajectory.ts.frame == 20


def test_the_bytes_are_the_same_on_each_backend(where, adk, tmp_path):
    files = [tmp_path / f"{number}.xtc" for number in range(2)]
    found = []
    for path, how in zip(files, ({"backend": "serial"}, where), strict=True):
        universe = paceline.Universe(*adk)
        universe.trajectory[7]
        one = AlignTraj(universe, universe, select="name CA", filename=path)
        found.append(one.run(**how).results.rmsd.tobytes())
    assert found[0] == found[1]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_a_frame_of_the_same_trajectory_is_the_reference(adk, tmp_path):
    universe = paceline.Universe(*adk)
    universe.trajectory[7]
    path = tmp_path / "fitted.trr"
    one = AlignTraj(universe, universe, select="name CA", filename=path)
    one.run(start=5, stop=9, transforms=[center("protein", point=(5, 6, 7))])
    assert one.results.rmsd[2] < 1e-5 < one.results.rmsd[1]
    assert universe.trajectory.ts.frame == 7
    written = MDAnalysis.Universe(adk.topology, str(path))
    written.trajectory[2]
    found = written.select_atoms("protein").center_of_geometry()
    np.testing.assert_allclose(found, [5, 6, 7], atol=1e-4)
    assert list(one.results.to_dataframe()) == ["frame", "time (ps)", "RMSD (Å)"]


def test_residues_that_lack_atoms_are_left_out_of_the_superposition(universe, theirs, tmp_path):
    some = theirs.select_atoms("not (resid 7 and name O)")
    options = {"select": "backbone", "filename": str(tmp_path / "fitted.dcd")}
    with pytest.warns(MDAnalysis.SelectionWarning, match="create a valid selection"):
        ours = AlignTraj(universe, MDAnalysis.Merge(some), **options)
    assert ours.mobile_atoms.n_residues == 213
    assert ours.run(stop=2).results.rmsd[0] < 1e-5
    with pytest.raises(SelectionError, match="number of atoms"):
        AlignTraj(universe, MDAnalysis.Merge(some), match_atoms=False, **options)


def test_names_of_files(universe, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    one = AlignTraj(universe, universe, prefix="fitted_")
    assert one.filename == "fitted_adk_dims.dcd"
    one.run(stop=2)
    assert (tmp_path / "fitted_adk_dims.dcd").exists()
    with pytest.raises(FileExistsError, match="fitted_adk_dims"):
        AlignTraj(universe, universe, prefix="fitted_", force=False)


def test_the_precision_of_a_file(universe, tmp_path):
    sizes = []
    for decimals in (2, 4):
        path = tmp_path / f"{decimals}.xtc"
        how = {"filename": path, "writer_kwargs": {"precision": decimals}}
        AlignTraj(universe, universe, **how).run(stop=1)
        theirs_align.AlignTraj(universe, universe, **{**how, "filename": str(path) + ".xtc"}).run(
            stop=1
        )
        sizes.append(path.stat().st_size)
        assert abs(sizes[-1] - (tmp_path / f"{decimals}.xtc.xtc").stat().st_size) < 100
    assert sizes[0] < sizes[1]


def test_frames_in_memory_are_moved_by_mdanalysis(theirs):
    moved, expected = theirs.copy(), theirs.copy()
    ours = AlignTraj(moved, theirs, select="name CA", in_memory=True).run(stop=5)
    theirs_align.AlignTraj(expected, theirs, select="name CA", in_memory=True).run(stop=5)
    assert len(ours.results.rmsd) == 5
    assert ours.filename is None
    for _ in zip(moved.trajectory, expected.trajectory, strict=True):
        np.testing.assert_array_equal(moved.atoms.positions, expected.atoms.positions)


def test_what_cannot_be_written_is_refused(universe, tmp_path):
    for options, words in (
        ({"select": "name XYZ"}, "no atoms match 'name XYZ'"),
        ({"filename": tmp_path / "a.cif"}, "cif"),
        ({"filename": tmp_path / "a.dcd", "writer_kwargs": {"remarks": "x"}}, "remarks"),
        ({"filename": tmp_path / "a.dcd", "select": "resid 1 and name CA C"}, "no orientation"),
    ):
        with pytest.raises((UnsupportedError, SelectionError), match=words):
            AlignTraj(universe, universe, **options).run(stop=2)
    one = AlignTraj(universe, universe, filename=tmp_path / "a.dcd")
    with pytest.raises(UnsupportedError, match=r"its own run\(\)"):
        paceline.run(one, stop=2)
    assert not list(tmp_path.iterdir())


def test_damaged_frames_are_not_written(damaged, tmp_path):
    system, frames = damaged
    path = tmp_path / "fitted.xtc"
    universe = paceline.Universe(*system)
    one = AlignTraj(universe, universe, select="name CA", filename=path).run(on_error="skip")
    assert np.flatnonzero(np.isnan(one.results.rmsd)).tolist() == frames
    assert paceline.Universe(system.topology, path).trajectory.n_frames == 98 - len(frames)
