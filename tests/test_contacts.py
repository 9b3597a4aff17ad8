"""Tests of contacts against MDAnalysis, with equal counts, and of known distances."""

import inspect
import re
import warnings
from pathlib import Path

import MDAnalysis
import mdtraj
import numpy as np
import pytest
from MDAnalysis.analysis import contacts as theirs_contacts
from MDAnalysisTests.datafiles import TPR, XTC

import paceline
from paceline.analysis import contacts as our_contacts
from paceline.analysis.contacts import SCHEMES, ContactMap, Contacts, q1q2
from paceline.analysis.jackknife_intervals import errors_of_series
from paceline.analysis.uncertainty import limits_of_fractions
from paceline.errors import AnalysisError, PacelineWarning, SelectionError, UnsupportedError

ACIDIC = "resname ASP GLU and name OE* OD*"
BASIC = "resname ARG LYS and name NH* NZ"
CELLS = {
    "none": None,
    "rectangular": [30, 40, 50, 90, 90, 90],
    "dodecahedron": [40, 40, 40, 60, 60, 90],
    "triclinic": [50, 40, 45, 80, 100, 115],
}


def bridges(u, frame=0):
    """Return both groups in a frame."""
    other = u.copy()
    other.trajectory[frame]
    return other.select_atoms(ACIDIC), other.select_atoms(BASIC)


def spread(r, r0, power=1):
    return np.mean(np.abs(r - r0) ** power)


#: Further arguments for each case: a function that makes them from a Universe.
CASES = {
    "hard_cut": lambda u: {},
    "radius_cut": lambda u: {"method": "radius_cut"},
    "another radius": lambda u: {"method": "radius_cut", "kwargs": {"radius": 4.0}},
    "soft_cut": lambda u: {"method": "soft_cut"},
    "soft_cut of parameters": lambda u: {
        "method": "soft_cut",
        "kwargs": {"beta": 2.0, "lambda_constant": 1.5},
    },
    "no cell": lambda u: {"pbc": False},
    "function": lambda u: {"method": spread, "kwargs": {"power": 2}},
    "their function": lambda u: {"method": theirs_contacts.soft_cut_q, "kwargs": {"beta": 3.0}},
    "references": lambda u: {"refgroup": [bridges(u), bridges(u, 5), bridges(u, -1)]},
    "groups": lambda u: {"select": (u.select_atoms(ACIDIC), u.select_atoms(BASIC))},
}


@pytest.mark.parametrize("case", CASES)
def test_contacts_are_mdanalysis_s(case, universe, theirs, adk_in_water):
    in_water = paceline.Universe(*adk_in_water), MDAnalysis.Universe(*adk_in_water)
    for ours, other in ((universe, theirs), in_water):
        analyses = []
        for module, u in ((our_contacts, ours), (theirs_contacts, other)):
            options = {"select": (ACIDIC, BASIC), "refgroup": bridges(u), "radius": 6.0}
            analyses.append(module.Contacts(u, **(options | CASES[case](u))).run())
        found, wanted = analyses
        timeseries = found.results.timeseries
        assert timeseries.dtype == wanted.results.timeseries.dtype
        exact = "soft" not in case and case != "their function" and case != "function"
        np.testing.assert_allclose(
            timeseries, wanted.results.timeseries, rtol=0 if exact else 1e-12
        )
        assert found.n_initial_contacts == wanted.n_initial_contacts
        for one, two in zip(found.r0, wanted.r0, strict=True):
            np.testing.assert_array_equal(one, two)


def written(tmp_path, frames, cell=None):
    """Return a Universe of MDAnalysis for files of frames with the same atoms."""
    frames = np.asarray(frames, dtype=np.float32)
    universe = MDAnalysis.Universe.empty(frames.shape[1], trajectory=True)
    path = str(tmp_path / "made.dcd")
    with MDAnalysis.Writer(path, frames.shape[1]) as writer:
        for positions in frames:
            universe.atoms.positions = positions
            universe.dimensions = cell
            writer.write(universe.atoms)
    return MDAnalysis.Universe(universe._topology, path), path


@pytest.mark.filterwarnings("ignore:there is no reference", "ignore:No dimensions set")
@pytest.mark.parametrize("cell", CELLS)
def test_counts_are_mdanalysis_s_in_any_cell(cell, tmp_path):
    # Few distinct lengths, so that many equal the reference distance; some atoms are far outside
    # the cell.
    rng = np.random.default_rng(4)
    frames = rng.integers(-30, 31, (12, 80, 3)) * np.float32(0.5)
    if CELLS[cell] is not None:
        vectors = MDAnalysis.lib.mdamath.triclinic_vectors(CELLS[cell])
        frames = frames + rng.integers(-2, 3, frames.shape) @ vectors
    theirs, path = written(tmp_path, frames, CELLS[cell])
    ours = paceline.Universe(theirs._topology, path)
    for method in ("hard_cut", "radius_cut"):
        found, wanted = (
            module.Contacts(
                u, (u.atoms[:40], u.atoms[30:]), (u.atoms[:40], u.atoms[30:]), method, radius=14.5
            ).run()
            for module, u in ((our_contacts, ours), (theirs_contacts, theirs))
        )
        assert 400 < found.n_initial_contacts < 2000
        assert found.results.timeseries[0, 1] == 1.0
        np.testing.assert_array_equal(found.results.timeseries, wanted.results.timeseries)


@pytest.fixture
def line(tmp_path):
    """Atoms at 0 and 1, and at 3 and 7 Å; the last one is then at 5.5, 2, 7.01 and 7 Å."""
    frames = np.zeros((5, 4, 3))
    frames[:, :, 0] = [0, 1, 3, 7]
    frames[1:, 3, 0] = [5.5, 2, 7.01, 7]
    theirs, path = written(tmp_path, frames)
    return paceline.Universe(theirs._topology, path)


@pytest.mark.filterwarnings("ignore:there is no reference", "ignore:No dimensions set")
def test_fractions_of_distances_that_are_known(line):
    groups = line.atoms[:2], line.atoms[2:]
    # Contacts are 0-2, 1-2 and 1-3, with distances of 3, 2 and 6 Å.
    hard = Contacts(line, groups, groups, radius=6).run()
    assert hard.n_initial_contacts == 3
    np.testing.assert_array_equal(hard.results.timeseries[:, 0], np.arange(5))
    np.testing.assert_array_equal(hard.results.timeseries[:, 1], [1, 1, 1, 2 / 3, 1])
    radius = Contacts(line, groups, groups, "radius_cut", 6, kwargs={"radius": 2.5}).run()
    np.testing.assert_array_equal(
        radius.results.timeseries[:, 1], [1 / 3, 1 / 3, 2 / 3, 1 / 3, 1 / 3]
    )
    soft = Contacts(line, groups, groups, "soft_cut", 6, kwargs={"beta": 1, "lambda_constant": 1})
    wanted = [1 / 2, 1 / 3 + 1 / (3 + 3 * np.exp(-1.5))]
    np.testing.assert_allclose(soft.run(stop=2).results.timeseries[:, 1], wanted, rtol=1e-12)


@pytest.mark.filterwarnings("ignore:there is no reference", "ignore:No dimensions set")
def test_a_function_may_change_the_distances_that_it_gets(line):
    def shorter(r, r0):
        r0 *= 0.8
        r -= r0
        return (r <= 0).mean()

    groups = line.atoms[:2], line.atoms[2:]
    found = Contacts(line, groups, groups, shorter, radius=6).run().results.timeseries[:, 1]
    # Contacts are 0-2, 1-2 and 1-3, with 3, 2 and 6 Å; the last distance is 1 Å in frame 2.
    np.testing.assert_array_equal(found, [0, 1 / 3, 1 / 3, 0, 0])


def test_neighbours_in_the_chain_are_no_contacts(universe):
    atoms = universe.select_atoms("name CA CB and resid 1-60")
    given = {"radius": 8, "method": "radius_cut"}
    with pytest.warns(PacelineWarning, match=rf"{len(atoms)} of the (\d+) contacts are of an atom"):
        every = Contacts(universe, (atoms, atoms), (atoms, atoms), **given).run(step=20)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".* an atom with itself")
        far = Contacts(universe, (atoms, atoms), (atoms, atoms), residues_apart=4, **given)
        both = q1q2(universe, "name CA CB and resid 1-60", 8, residues_apart=4)
    apart = np.abs(atoms.resids[:, None] - atoms.resids) >= 4
    assert 0 < far.n_initial_contacts == np.sum(every.initial_contacts[0] & apart)
    distances = [
        MDAnalysis.lib.distances.distance_array(atoms, atoms, box=ts.dimensions)[
            far.initial_contacts[0]
        ]
        for ts in universe.trajectory[::20]
    ]
    found = far.run(step=20).results.timeseries[:, 1]
    np.testing.assert_allclose(found, [np.mean(one <= 8) for one in distances], rtol=0, atol=1e-12)
    assert (found[1:] < every.results.timeseries[1:, 1]).all()
    np.testing.assert_array_equal(both.run(step=20).results.timeseries[:, 1], found)
    assert far.results.provenance["residues apart"] == 4
    with pytest.raises(ValueError, match="residues_apart must be at least 0"):
        Contacts(universe, (atoms, atoms), (atoms, atoms), residues_apart=-1)


def test_neighbours_are_those_of_one_segment():
    dimer = MDAnalysis.Universe.empty(
        4, 4, 2, atom_resindex=range(4), residue_segindex=[0, 0, 1, 1], trajectory=True
    )
    dimer.atoms.positions = [[k, 0, 0] for k in range(4)]
    groups = dimer.atoms[:2], dimer.atoms[1:]
    found = Contacts(dimer, groups, groups, radius=5, residues_apart=2)
    assert found.initial_contacts[0].tolist() == [[False, True, True], [False, True, True]]


def test_q1q2_is_mdanalysis_s(universe, theirs):
    universe.trajectory[3]
    analysis = q1q2(universe, "name CA", radius=8)
    assert universe.trajectory.frame == 3
    wanted = theirs_contacts.q1q2(theirs, "name CA", radius=8).run().results.timeseries
    found = analysis.run().results
    np.testing.assert_array_equal(found.timeseries, wanted)
    assert list(found.to_dataframe()) == ["frame", "time (ps)", "Q1", "Q2"]


def test_mdanalysis_s_class_is_done_natively(adk, theirs):
    for method, how in (("hard_cut", "native"), ("soft_cut", "native"), (spread, None)):
        options = {"select": (ACIDIC, BASIC), "method": method, "radius": 6.0}
        wanted = theirs_contacts.Contacts(theirs, refgroup=bridges(theirs), **options).run(stop=20)
        with paceline.register() as registration:
            u = MDAnalysis.Universe(*adk)
            found = theirs_contacts.Contacts(u, refgroup=bridges(u), **options).run(stop=20)
        assert (registration.runs == [("Contacts", "native")]) == (how is not None)
        np.testing.assert_allclose(found.results.timeseries, wanted.results.timeseries, rtol=1e-12)
    with pytest.raises(UnsupportedError, match="no contacts"):
        Contacts.from_mdanalysis(
            theirs_contacts.Contacts(theirs, (ACIDIC, BASIC), bridges(theirs), radius=1)
        )


def test_parameters_are_mdanalysis_s():
    def parameters(function):
        named = inspect.signature(function).parameters.values()
        return [(p.name, p.default) for p in named if p.kind not in (p.VAR_KEYWORD, p.KEYWORD_ONLY)]

    for ours, wanted in (
        (Contacts.__init__, theirs_contacts.Contacts.__init__),
        (q1q2, theirs_contacts.q1q2),
    ):
        assert parameters(ours) == parameters(wanted)


@pytest.mark.filterwarnings("ignore:there is no reference", "ignore:No dimensions set")
def test_nan_positions_show(tmp_path):
    frames = np.random.default_rng(6).random((3, 6, 3))
    frames[1, 4] = np.nan
    frames[2, 0] = np.nan
    for cell in CELLS.values():
        theirs, path = written(tmp_path, frames, cell)
        u = paceline.Universe(theirs._topology, path)
        groups = u.atoms[:2], u.atoms[2:5]
        for method in ("hard_cut", "soft_cut", spread):
            found = Contacts(u, groups, groups, method).run().results.timeseries[:, 1]
            np.testing.assert_array_equal(np.isnan(found), [False, True, True])
        u.trajectory[1]
        with pytest.raises(ValueError, match="reference 0 are not all finite"):
            Contacts(u, groups, groups)


@pytest.mark.filterwarnings("ignore:there is no reference")
def test_an_impossible_cell_is_an_error(tmp_path):
    frames = np.random.default_rng(6).random((2, 6, 3))
    theirs, path = written(tmp_path, frames, [10, 10, 10, 120, 120, 120])
    u = paceline.Universe(theirs._topology, path)
    groups, plain = (u.atoms[:2], u.atoms[2:5]), MDAnalysis.Universe.empty(6, trajectory=True)
    plain.atoms.positions = frames[0]
    reference = plain.atoms[:2], plain.atoms[2:5]
    with pytest.raises(AnalysisError, match=r"frame 0.* make no cell"):
        Contacts(u, groups, reference).run()
    assert Contacts(u, groups, reference, pbc=False).run().results.timeseries[0, 1] == 1.0


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"select": ("name XYZ", BASIC)}, SelectionError, "contains no atoms"),
        ({"select": (ACIDIC, "name CA")}, SelectionError, "reference 0 has groups of"),
        ({"radius": 0.5}, SelectionError, "reference 0 has no contacts.* shortest distance is"),
        ({"method": "own"}, ValueError, "callable"),
        ({"kwargs": {"radius": 3}}, TypeError, "has no parameter radius"),
        ({"method": "soft_cut", "kwargs": {"gamma": 3}}, TypeError, "has no parameter gamma"),
        ({"select": (3, BASIC)}, TypeError, "expected an AtomGroup or a Universe, found 3"),
    ],
)
def test_what_makes_no_contacts_is_refused(options, error, words, universe):
    given = {"select": (ACIDIC, BASIC), "refgroup": bridges(universe), "radius": 6.0}
    with pytest.raises(error, match=words):
        Contacts(universe, **(given | options))


def test_groups_that_cannot_be_followed_are_refused(universe):
    near = universe.select_atoms("around 5 resid 10", updating=True)
    with pytest.raises(UnsupportedError, match="UpdatingAtomGroup"):
        Contacts(universe, (near, near), (near, near))
    other = bridges(universe)
    with pytest.raises(UnsupportedError, match="must be atoms of u"):
        Contacts(universe, other, other, radius=6)


@pytest.fixture(scope="module")
def trajectory(adk_in_water):
    """MDTraj's trajectory of a part of the protein in a triclinic cell."""
    part = MDAnalysis.Universe(*adk_in_water).select_atoms("resid 1-60").indices
    return mdtraj.load(adk_in_water.trajectory, top=adk_in_water.topology, atom_indices=part)


@pytest.mark.filterwarnings("ignore:selected topology includes")
@pytest.mark.parametrize("pbc", [True, False])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_contact_maps_are_mdtraj_s(scheme, pbc, trajectory, adk_in_water):
    distances, pairs = mdtraj.compute_contacts(trajectory, scheme=scheme, periodic=pbc)
    cutoff = {"ca": 8.0}.get(scheme, 4.005)
    # MDTraj's distances are in single precision, and in nm.
    wanted = [(10 * distances <= cutoff + off).sum(axis=0) for off in (-1e-3, 1e-3)]
    protein = paceline.Universe(*adk_in_water).select_atoms("resid 1-60 and protein")
    found = ContactMap(protein, cutoff, scheme=scheme, pbc=pbc).run().results
    counts = found.counts[tuple(pairs.T)]
    assert ((wanted[0] <= counts) & (counts <= wanted[1])).all()
    assert 0 < counts.sum() < 10 * len(counts)
    np.testing.assert_array_equal(found.counts, found.counts.T)
    np.testing.assert_array_equal(np.diag(found.counts), 10)
    np.testing.assert_array_equal(found.frequencies, found.counts / 10)


@pytest.mark.parametrize(
    "names", [("H", "HA2", "HA3", "OXT"), ("HN", "HA1", "HA2", "OT2"), ("HT1", "HA1", "HA2", "O2")]
)
@pytest.mark.parametrize("scheme", ["sidechain", "sidechain-heavy"])
def test_names_of_the_backbone_s_hydrogen_and_oxygen(names, scheme, tmp_path):
    # Of two glycines, the hydrogen at N of the first is near the last oxygen of the second. The
    # side chains are not near.
    made = MDAnalysis.Universe.empty(8, 2, atom_resindex=[0] * 4 + [1] * 4, trajectory=True)
    made.add_TopologyAttr("names", names * 2)
    made.add_TopologyAttr("resnames", ["GLY", "GLY"])
    made.add_TopologyAttr("resids", [1, 2])
    made.atoms.positions = [[x, 0, 0] for x in (10, 0, 1, 2, 20, 21, 22, 11)]
    path = str(tmp_path / "glycines.xtc")
    made.atoms.write(path)
    universe = paceline.Universe(made._topology, path)
    assert ContactMap(universe, 5.0, scheme=scheme).run().results.counts[0, 1] == 0
    assert ContactMap(universe, 5.0, scheme="closest").run().results.counts[0, 1] == 1


def test_maps_of_alpha_carbons_are_mdanalysis_s_contact_matrices(universe, theirs):
    atoms = theirs.select_atoms("name CA")
    distances = MDAnalysis.analysis.distances.distance_array
    near = [theirs_contacts.contact_matrix(distances(atoms, atoms), 7.0) for _ in theirs.trajectory]
    found = ContactMap(universe.atoms[::-1], 7.0, scheme="ca").run().results
    np.testing.assert_array_equal(found.counts, np.sum(near, axis=0))
    table = found.to_dataframe()
    assert list(table) == ["residue", "other residue", "frequency"]
    assert len(table) == 214 * 213 // 2
    colours = found.plot().collections[0].get_array()
    np.testing.assert_array_equal(colours, found.frequencies.T)


def test_maps_have_intervals_of_each_pair(universe):
    atoms = universe.select_atoms("resid 1-60")
    plain = ContactMap(atoms, 7.0, scheme="ca").run().results
    one = ContactMap(atoms, 7.0, scheme="ca", errors=True).run(block_frames=16, backend="threads")
    found = one.results
    np.testing.assert_array_equal(found.counts, plain.counts)
    limits, fractions = found.frequency_intervals, found.frequencies
    np.testing.assert_array_equal(limits, limits.transpose(1, 0, 2))
    changes = (fractions > 0) & (fractions < 1)
    np.testing.assert_array_equal(np.isnan(limits[..., 0]), ~changes)
    # Parts of one frame: the interval is that of the series of 1 and 0.
    first, second = np.argwhere(np.triu(changes))[0]
    pair = atoms.select_atoms("name CA")[[first, second]]
    there = np.array(
        [np.linalg.norm(np.diff(pair.positions, axis=0)) for _ in pair.universe.trajectory]
    )
    n_parts = int(re.search(r"of (\d+) parts", found.provenance["intervals"])[1])
    parts = np.stack([some.mean() for some in np.array_split(there <= 7.0, n_parts)])
    wanted = limits_of_fractions(parts.mean(), errors_of_series(parts[:, None])[0][0])
    np.testing.assert_allclose(limits[first, second], wanted, rtol=0.05)
    table = found.to_dataframe()
    assert list(table)[2:] == ["frequency", "frequency, 95 % from", "frequency, 95 % to"]
    assert "frequency_intervals" not in plain


def test_frames_that_were_left_out_do_not_count(damaged):
    system, frames = damaged
    atoms = paceline.Universe(*system).select_atoms("resid 1-20")
    found = ContactMap(atoms, 5.0).run(on_error="skip").results
    assert found.n_frames == 98 - len(frames) == found.counts[3, 3]
    none = ContactMap(atoms, 5.0).run(frames=frames, on_error="skip").results
    assert none.n_frames == 0
    assert np.isnan(none.frequencies).all()


@pytest.mark.filterwarnings("ignore:there is no reference", "ignore:No dimensions set")
def test_maps_of_nan_positions_are_an_error(tmp_path):
    made = MDAnalysis.Universe.empty(4, 2, atom_resindex=[0, 0, 1, 1], trajectory=True)
    made.add_TopologyAttr("resids", [1, 2])
    path = str(tmp_path / "nan.dcd")
    with MDAnalysis.Writer(path, 4) as writer:
        for x in (0, np.nan):
            made.atoms.positions = np.full((4, 3), x)
            writer.write(made.atoms)
    contacts = ContactMap(paceline.Universe(made._topology, path), scheme="closest")
    assert contacts.run(stop=1).results.counts.tolist() == [[1, 1], [1, 1]]
    with pytest.raises(AnalysisError, match=r"frame 1: positions are not all finite"):
        contacts.run()


@pytest.mark.parametrize(
    ("select", "options", "error", "words"),
    [
        ("resid 1", {}, SelectionError, "has 1 residues"),
        ("resid 1-20 and not name CA", {"scheme": "ca"}, SelectionError, "has no atoms for"),
        ("protein", {"scheme": "best"}, ValueError, "scheme must be 'ca', 'closest'"),
        ("protein", {"cutoff": 0}, ValueError, "cutoff must be"),
        ("protein", {"cutoff": np.nan}, ValueError, "cutoff must be"),
    ],
)
def test_what_makes_no_map_is_refused(select, options, error, words, universe):
    with pytest.raises(error, match=words):
        ContactMap(universe.select_atoms(select), **options)


def test_a_map_needs_no_numbers_of_residues():
    made = MDAnalysis.Universe.empty(4, 2, atom_resindex=[0, 0, 1, 1], trajectory=True)
    made.atoms.positions = 2.0 * np.arange(12).reshape(4, 3)
    results = ContactMap(made.atoms, cutoff=11.0, scheme="closest").run().results
    assert results.counts.tolist() == [[1, 1], [1, 1]]
    assert results.table.columns["other residue"].tolist() == [1]


def test_the_figures_of_the_manual_for_q_of_a_fold():
    """Check that thermal motion alone breaks contacts by hard_cut in a folded protein."""
    universe = paceline.Universe(TPR, XTC)
    heavy = universe.select_atoms("protein and not name H*")
    page = (Path(__file__).parents[1] / "docs" / "hydrogen-bonds.md").read_text(encoding="utf-8")
    cells = re.search(r"^\| `hard_cut` \| `radius_cut` .*\n\|.*\n(.*)$", page, re.MULTILINE)[1]
    methods = ("hard_cut", "radius_cut", "soft_cut")
    for method, cell in zip(methods, cells.strip("| ").split("|"), strict=True):
        both = (heavy, heavy)
        run = Contacts(universe, both, both, method, residues_apart=4).run()
        assert f"{run.results.timeseries[1:, 1].mean():.2f}" == cell.strip()
