"""Average structure against MDAnalysis and plain NumPy."""

import inspect

import MDAnalysis
import numpy as np
import pytest
from MDAnalysis.analysis import align as theirs_align
from scipy.spatial.transform import Rotation

import paceline
from paceline.analysis.align import AverageStructure
from paceline.errors import SelectionError, UnsupportedError
from paceline.transform import center

# MDAnalysis moves atoms in single precision, twice.
ANGSTROM = 5e-5

#: For each case the options, given a Universe and another one of the same atoms.
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
    first = universe.select_atoms("protein").center_of_geometry()
    expected = plain.positions - first + [5, 6, 7]
    np.testing.assert_allclose(moved.results.positions, expected, atol=1e-4)


def test_parameters_are_mdanalysis_s():
    def parameters(function):
        named = inspect.signature(function).parameters.values()
        return [(p.name, p.default) for p in named if p.kind is not p.VAR_KEYWORD]

    assert parameters(AverageStructure.__init__) == [
        *parameters(theirs_align.AverageStructure.__init__),
        ("verbose", False),
    ]


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
        assert sorted(saved) == ["positions", "provenance", "rmsd"]
        np.testing.assert_array_equal(saved["positions"], average.results.positions)


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
