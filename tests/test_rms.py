"""Tests of RMSD and RMSF against MDAnalysis, MDTraj and NumPy, on all backends."""

import inspect
import warnings

import MDAnalysis
import mdtraj
import numpy as np
import pytest
from MDAnalysis.analysis import align
from MDAnalysis.analysis import rms as theirs_rms
from scipy.spatial.transform import Rotation

import paceline
from paceline.analysis.diffusionmap import DistanceMatrix
from paceline.analysis.rms import RMSD, RMSF
from paceline.errors import AnalysisError, DamagedFileError, SelectionError, UnsupportedError

# Error of MDAnalysis, which superposes partly in single precision.
ANGSTROM = 1e-5


def unsorted(universe):
    """Return some atoms in random order, some of them repeated."""
    atoms = universe.select_atoms("name CA").indices
    return universe.atoms[np.random.default_rng(3).choice(atoms, 150)]


#: For each case, the analysis and its options: a function of a Universe and a copy of it.
CASES = {
    "defaults": lambda u, other: (u, {}),
    "atomgroup": lambda u, other: (u.select_atoms("name CA"), {}),
    "ref_frame": lambda u, other: (u, {"select": "backbone", "ref_frame": 42}),
    "last ref_frame": lambda u, other: (u, {"select": "backbone", "ref_frame": -1}),
    "another universe": lambda u, other: (
        u.select_atoms("name CA"),
        {"reference": other.select_atoms("name CA"), "ref_frame": 97},
    ),
    "tuple": lambda u, other: (u, {"select": ("name CA", "name CA and protein")}),
    "dict": lambda u, other: (
        u,
        {"select": {"mobile": "resid 1-50 and name C", "reference": "resid 3-52 and name C"}},
    ),
    "ordered": lambda u, other: (
        u,
        {"select": {"mobile": ["resid 9", "resid 5"], "reference": ["resid 9", "resid 5"]}},
    ),
    "None": lambda u, other: (u.select_atoms("name CA"), {"select": None}),
    "unsorted, repeated": lambda u, other: (
        unsorted(u),
        {"select": None, "reference": unsorted(other), "weights": "mass"},
    ),
    "mass": lambda u, other: (u, {"select": "protein", "weights": "mass"}),
    "weights": lambda u, other: (
        u.select_atoms("name CA"),
        {"weights": np.linspace(0.0, 3.0, 214)},
    ),
    "groups": lambda u, other: (
        u,
        {"select": "name CA", "groupselections": ["resid 1-29", "resid 122-159 and name CA"]},
    ),
    "groups, mass": lambda u, other: (
        u,
        {
            "select": "backbone",
            "weights": "mass",
            "groupselections": ["resid 1-29", ("resid 1-29", "resid 1-29")],
        },
    ),
    "groups, weights": lambda u, other: (
        u,
        {
            "select": "name CA",
            "weights": np.linspace(1.0, 2.0, 214),
            "groupselections": ["name CA", {"mobile": "name C", "reference": "name C"}, "name N"],
            "weights_groupselections": ["mass", None, np.linspace(0.5, 1.0, 214)],
        },
    ),
}


@pytest.fixture(scope="module")
def expected(theirs):
    """MDAnalysis's results for each case, each computed once."""
    other, known = theirs.copy(), {}

    def compute(case):
        if case not in known:
            group, options = CASES[case](theirs, other)
            known[case] = theirs_rms.RMSD(group, **options).run().results.rmsd
        return known[case]

    return compute


@pytest.mark.parametrize("case", CASES)
def test_rmsd_is_mdanalysis_s(case, where, universe, theirs, expected):
    group, options = CASES[case](universe, theirs)
    found = RMSD(group, **options).run(**where).results.rmsd
    wanted = expected(case)
    assert found.shape == wanted.shape
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found[:, 0], wanted[:, 0])
    np.testing.assert_allclose(found[:, 1], wanted[:, 1], rtol=1e-7)
    np.testing.assert_allclose(found[:, 2:], wanted[:, 2:], rtol=0, atol=ANGSTROM)


def test_rmsf_is_mdanalysis_s(where, universe, theirs):
    for group in (lambda u: u.atoms, unsorted):
        found = RMSF(group(universe)).run(**where).results.rmsf
        wanted = theirs_rms.RMSF(group(theirs)).run().results.rmsf
        assert found.shape == wanted.shape
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-10)


@pytest.mark.parametrize("selection", ["name CA", True])
def test_rmsf_about_the_average_structure(selection, universe, theirs):
    of_fit = "backbone" if selection is True else selection
    atoms = "backbone" if selection is True else "resid 20-160"
    frames = slice(3, 80, 2)
    found = RMSF(universe.select_atoms(atoms), align=selection)
    found.run(start=3, stop=80, step=2)
    fitted = theirs.copy()
    average = align.AverageStructure(fitted, select=of_fit, ref_frame=3).run(3, 80, 2)
    fitted.transfer_to_memory(3, 80, 2)
    align.AlignTraj(fitted, average.results.universe, select=of_fit, in_memory=True).run()
    wanted = theirs_rms.RMSF(fitted.select_atoms(atoms)).run().results.rmsf
    assert found.stages == 2
    np.testing.assert_allclose(found.results.rmsf, wanted, rtol=0, atol=2 * ANGSTROM)
    unfitted = RMSF(universe.select_atoms(atoms)).run(start=3, stop=80, step=2).results.rmsf
    assert np.abs(unfitted - wanted).max() > 0.1
    assert len(range(98)[frames]) == found.n_frames


def test_rmsf_about_the_average_structure_sees_no_rigid_motion():
    turning, shape = rigid(), {"atol": 1e-5}
    found = RMSF(turning, align="index 0:9").run().results.rmsf
    np.testing.assert_allclose(found[:-1], 0, **shape)
    # The last atom swings by ± 1 Å about its mean.
    np.testing.assert_allclose(found[-1], 1, **shape)
    assert RMSF(turning).run().results.rmsf.min() > 1


def rigid():
    """Thirty atoms that rotate as a rigid body; the last one also oscillates."""
    rng = np.random.default_rng(5)
    start = rng.normal(0, 8, (30, 3))
    turns = Rotation.random(40, rng=rng).as_matrix()
    frames = np.repeat(start[np.newaxis], 40, axis=0)
    frames[::2, -1, 0] += 2
    frames = np.einsum("fij,faj->fai", turns, frames) + rng.normal(0, 5, (40, 1, 3))
    made = MDAnalysis.Universe.empty(30, trajectory=True)
    made.load_new(frames.astype(np.float32))
    return made


def test_rmsf_of_residues(universe):
    atoms = universe.select_atoms("resid 3 5")[::-1]
    results = RMSF(atoms).run().results
    assert results.resindices.tolist() == [2, 4]
    for k, resid in enumerate((3, 5)):
        mean = results.rmsf[atoms.resids == resid].mean()
        np.testing.assert_allclose(results.residue_rmsf[k], mean, rtol=1e-14)


def test_rmsf_begins_with_a_frame_that_can_be_read(damaged):
    system, (first, *_) = damaged
    ca = paceline.Universe(*system).select_atoms("name CA")
    found = RMSF(ca, align=True).run(start=first, on_error="skip")
    wanted = RMSF(ca, align=True).run(start=first + 1, on_error="skip")
    np.testing.assert_allclose(found.results.rmsf, wanted.results.rmsf, rtol=1e-12)
    with pytest.raises(DamagedFileError):
        RMSF(ca, align=True).run(start=first)


def test_the_frame_is_named_in_which_a_fitted_atom_is_lost(adk, theirs):
    positions = np.array([ts.positions.copy() for ts in theirs.trajectory[:8]])
    names = theirs.atoms.names
    positions[2, np.flatnonzero(names != "CA")[9]] = np.nan  # fluctuates, and is not superposed
    positions[5, np.flatnonzero(names == "CA")[9]] = np.nan
    universe = MDAnalysis.Universe(adk.topology, positions)
    with pytest.raises(AnalysisError, match="frame 5: positions are not all finite"):
        RMSF(universe.atoms, align="name CA").run()
    found = RMSF(universe.atoms, align="name CA").run(stop=5).results.rmsf
    assert np.isnan(found).sum() == 1


@pytest.mark.parametrize(
    ("selection", "error", "words"),
    [
        ("name XYZ", SelectionError, "align: no atoms match 'name XYZ'"),
        ("resid 1 and name CA C", SelectionError, "align: 2 atoms have no orientation"),
        (3, TypeError, "align must be"),
    ],
)
def test_atoms_without_an_orientation_are_refused(selection, error, words, universe):
    with pytest.raises(error, match=words):
        RMSF(universe, align=selection)


@pytest.mark.parametrize("weights", [None, "mass"])
def test_without_superposition_positions_are_compared_as_they_are(weights, universe, theirs):
    groups = ["resid 1-29"]
    rmsd = RMSD(
        universe,
        select="name CA",
        groupselections=groups,
        weights=weights,
        ref_frame=5,
        superposition=False,
    )
    found = rmsd.run().results.rmsd
    for column, selection in ((2, "name CA"), (3, "resid 1-29")):
        atoms = theirs.select_atoms(selection)
        w = np.ones(len(atoms)) if weights is None else atoms.masses
        x = np.array([atoms.positions for _ in theirs.trajectory], dtype=float)
        squares = ((x - x[5]) ** 2).sum(axis=2)
        np.testing.assert_allclose(
            found[:, column], np.sqrt((squares * w).sum(axis=1) / w.sum()), rtol=1e-12, atol=1e-12
        )


def test_a_list_selects_in_its_order(universe, expected):
    found = RMSD(universe, select=["resid 9", "resid 5"]).run().results.rmsd
    np.testing.assert_allclose(found, expected("ordered"), rtol=1e-7, atol=ANGSTROM)


def test_rmsd_is_mdtraj_s(adk_xtc):
    trajectory = mdtraj.load(adk_xtc.trajectory, top=adk_xtc.topology)
    atoms = trajectory.topology.select("name CA")
    wanted = 10 * mdtraj.rmsd(trajectory, trajectory, frame=3, atom_indices=atoms)
    found = RMSD(paceline.Universe(*adk_xtc), select="name CA", ref_frame=3).run().results.rmsd
    # In single precision, a small RMSD is inaccurate, because it is a difference of large numbers.
    near = wanted < 0.1
    np.testing.assert_allclose(found[~near, 2], wanted[~near], rtol=1e-3)
    np.testing.assert_allclose(found[near, 2], wanted[near], atol=0.02)


def test_parameters_are_mdanalysis_s():
    def parameters(function):
        named = inspect.signature(function).parameters.values()
        return [(p.name, p.default) for p in named if p.kind is not p.VAR_KEYWORD]

    assert parameters(RMSD.__init__) == [
        *parameters(theirs_rms.RMSD.__init__),
        ("superposition", True),
        ("verbose", False),
    ]
    assert parameters(RMSF.__init__) == [
        *parameters(theirs_rms.RMSF.__init__),
        ("align", False),
        ("errors", False),
        ("verbose", False),
    ]


def test_an_mdanalysis_universe_works_too(theirs, expected):
    with warnings.catch_warnings():
        warnings.simplefilter("error", paceline.errors.PacelineWarning)
        warnings.filterwarnings("ignore", ".*header says.*")
        rmsd = RMSD(theirs, select="protein", weights="mass").run(backend="threads", n_workers=2)
    np.testing.assert_allclose(rmsd.results.rmsd, expected("mass"), rtol=1e-7, atol=ANGSTROM)
    assert rmsd.timings.backend == "threads"


def test_all_atoms_of_a_group_are_counted(universe):
    alphas = universe.select_atoms("name CA")
    found = RMSD(alphas).run(stop=2).results
    assert found.provenance["select"] == "all of 214 given atoms"
    assert found.table.y == {"RMSD (Å)": "all of 214 given atoms"}
    assert RMSD(universe).run(stop=2).results.table.y == {"RMSD (Å)": "all"}
    matrix = DistanceMatrix(alphas).run(stop=2).results
    assert matrix.provenance["select"] == "all of 214 given atoms"


def test_the_trajectory_stays_where_it_was(universe):
    universe.trajectory[7]
    RMSD(universe, ref_frame=3).run(stop=20)
    assert universe.trajectory.ts.frame == 7


def test_two_groups_of_one_selection_are_two_columns(universe):
    rmsd = RMSD(
        universe,
        select="backbone",
        groupselections=["name CA", "name CA"],
        weights_groupselections=[None, np.linspace(1, 2, 214)],
    ).run(stop=3)
    assert list(rmsd.results.to_dataframe()) == [
        "frame",
        "time (ps)",
        "RMSD (Å)",
        "RMSD of name CA (Å)",
        "RMSD of group 2 (Å)",
    ]


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"select": "name XYZ"}, SelectionError, "no atoms match 'name XYZ'"),
        ({"select": ("name CA", "resid 1")}, SelectionError, "214 atoms .* 19 atoms"),
        ({"select": ("name CA",)}, ValueError, "a tuple is"),
        ({"select": {"mobile": "name CA"}}, KeyError, "reference"),
        ({"select": 3}, TypeError, "must be a str"),
        ({"select": ("resid 1-2 and name CA", "resid 1-2 and name N")}, SelectionError, "mass"),
        ({"weights": "charge"}, TypeError, "'charge'"),
        ({"weights": [1.0, 2.0]}, ValueError, "3341 atoms"),
        ({"weights": [[1.0], [2.0, 3.0]]}, TypeError, "1D array"),
        ({"select": "name CA", "weights": np.zeros(214)}, ValueError, "not all zero"),
        (
            {"groupselections": ["name CA"], "weights_groupselections": [None, None]},
            ValueError,
            "1 groupselections, found 2",
        ),
        ({"groupselections": ["name XYZ"]}, SelectionError, r"groupselections\[0\]"),
    ],
)
def test_what_cannot_be_compared_is_refused(options, error, words, universe):
    with pytest.raises(error, match=words):
        RMSD(universe, **options)


def test_topologies_without_masses_are_refused():
    bare = MDAnalysis.Universe.empty(9, trajectory=True)
    with pytest.raises(UnsupportedError, match="weights='mass' needs masses"):
        RMSD(bare, weights="mass")


def test_masses_may_differ_as_much_as_is_allowed(universe):
    pair = ("resid 1-2 and name CA", "resid 1-2 and name N")
    assert RMSD(universe, select=pair, tol_mass=3.0).run(stop=2).results.rmsd.shape == (2, 3)


def test_groups_that_update_themselves_are_refused(universe):
    near = universe.select_atoms("around 5 resid 10", updating=True)
    for make in (
        lambda: RMSF(near),
        lambda: RMSD(near),
        lambda: RMSD(universe, near),
    ):
        with pytest.raises(UnsupportedError, match="UpdatingAtomGroup"):
            make()


def test_an_unknown_reference_frame_is_an_error(universe):
    with pytest.raises(IndexError, match="1000"):
        RMSD(universe, ref_frame=1000).run()


def test_damaged_frames_are_left_out(damaged, adk_xtc):
    system, frames = damaged
    ca = paceline.Universe(*system).select_atoms("name CA")
    rmsd, rmsf = paceline.run([RMSD(ca), RMSF(ca)], on_error="skip")
    assert [frame for frame, _ in rmsd.damaged] == frames
    assert np.array_equal(np.isnan(rmsd.results.rmsd[:, 2]), np.isin(np.arange(98), frames))
    assert np.array_equal(rmsd.results.rmsd[:, 0], np.arange(98))
    whole = paceline.Universe(*adk_xtc).select_atoms("name CA")
    kept = [frame for frame in range(98) if frame not in frames]
    wanted = RMSF(whole).run(frames=kept).results.rmsf
    np.testing.assert_allclose(rmsf.results.rmsf, wanted, rtol=1e-12)


def test_rmsf_of_damaged_frames_alone_is_nan(damaged):
    system, frames = damaged
    rmsf = RMSF(paceline.Universe(*system).atoms).run(frames=frames, on_error="skip")
    assert np.isnan(rmsf.results.rmsf).all()
