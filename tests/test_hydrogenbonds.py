"""Tests of hydrogen bonds: MDAnalysis's bonds in its order, MDTraj's bonds, and each criterion."""

import itertools
import warnings

import MDAnalysis
import mdtraj
import numpy as np
import pandas as pd
import pytest
from MDAnalysis.analysis.hydrogenbonds import hbond_analysis as theirs
from MDAnalysis.exceptions import NoDataError
from MDAnalysis.lib.correlations import autocorrelation, correct_intermittency
from MDAnalysis.lib.mdamath import triclinic_vectors
from MDAnalysisTests.datafiles import PSF, TPR, XTC, PDB_small, waterDCD, waterPSF
from scipy import stats

import paceline
from benchmarks.coverage import Presence
from paceline.analysis.hydrogenbonds import HydrogenBondAnalysis
from paceline.analysis.jackknife_intervals import errors_of_states
from paceline.analysis.results import Results, further_results
from paceline.analysis.uncertainty import with_error
from paceline.errors import AnalysisError, PacelineWarning, SelectionError, UnsupportedError

CELLS = {
    "rectangular": (25, 30, 35, 90, 90, 90),
    "slab": (40, 40, 7, 90, 90, 90),
    "dodecahedron": (32, 32, 32, 60, 60, 90),
    "octahedron": (30, 30, 30, 70.53, 109.47, 70.53),
    "triclinic": (35, 28, 30, 80, 100, 115),
    "none": None,
}
#: Options. For few atoms, MDAnalysis compares all pairs.
OPTIONS = {
    "defaults": {},
    "long and bent": {"d_a_cutoff": 3.7, "d_h_a_angle_cutoff": 100},
    "donors": {"donors_sel": "name OW", "d_a_cutoff": 3.5},
    "loose donors": {"donors_sel": "name OW", "d_h_cutoff": 1.5, "d_h_a_angle_cutoff": 90},
    "donors once": {"donors_sel": "name OW", "update_selections": False, "d_a_cutoff": 3.5},
    "between": {"between": ["resid 1:150", "resid 150:400"], "d_a_cutoff": 3.5},
    "between several": {
        "between": [["resid 1:40", "resid 1:400"], ["resid 300:320", "resid 400"]],
        "d_a_cutoff": 3.5,
    },
    "few": {"acceptors_sel": "resid 3:9 and name OW", "d_a_cutoff": 3.5},
    "changing acceptors": {"acceptors_sel": "name OW and (around 9 resid 3:9 or prop x < 3)"},
    "changing hydrogens": {
        "hydrogens_sel": "name HW* and same residue as sphzone 14 resid 7",
        "between": [["resid 1:200", "resid 100:400"], ["resid 7", "all"]],
        "d_a_cutoff": 3.7,
        "d_h_a_angle_cutoff": 100,
    },
    "changing donors": {
        "donors_sel": "name OW and (around 9 resid 3:9 or prop x < 3)",
        "acceptors_sel": "name OW and not point 9 9 9 5",
        "between": ["resid 1:300", "resid 150:400"],
        "d_a_cutoff": 3.7,
        "d_h_a_angle_cutoff": 100,
    },
    "changing, but once": {
        "acceptors_sel": "name OW and prop x < 9",
        "update_selections": False,
        "d_a_cutoff": 3.5,
    },
    "half": {"acceptors_sel": "resid 3:99 and name OW", "hydrogens_sel": "name HW1"},
}
#: Cases that only `make test-all` runs.
FURTHER = ("few", "donors once", "changing, but once")


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(name, marks=pytest.mark.full if name in ("slab", "octahedron") else ())
        for name in CELLS
    ],
)
def water(request, tmp_path_factory):
    """Topology and trajectory of water in and around a cell that changes from frame to frame."""
    n_water, random = 400, np.random.default_rng(18)
    universe = MDAnalysis.Universe.empty(
        3 * n_water, n_water, atom_resindex=np.repeat(range(n_water), 3), trajectory=True
    )
    for name, values in {
        "names": ["OW", "HW1", "HW2"] * n_water,
        "types": ["O", "H", "H"] * n_water,
        "masses": [16.0, 1.0, 1.0] * n_water,
        "charges": [-0.8, 0.4, 0.4] * n_water,
        "resnames": ["SOL"] * n_water,
        "resids": range(1, n_water + 1),
        "ids": range(1, 3 * n_water + 1),
    }.items():
        universe.add_TopologyAttr(name, list(values))
    first = 3 * np.arange(n_water)
    bonds = np.concatenate([[(k, k + 1), (k, k + 2)] for k in first])
    universe.add_TopologyAttr("bonds", [tuple(bond) for bond in bonds])
    folder, cell = tmp_path_factory.mktemp("water"), CELLS[request.param]
    with MDAnalysis.Writer(str(folder / "water.xtc"), 3 * n_water) as writer:
        for size in (1.0, 1.013, 0.991):
            # Positions are multiples of 0.1 Å, so that many distances equal the cutoff.
            oxygens = random.uniform(-20, 45, (n_water, 1, 3)).round(1) / (1 if cell else 3)
            turns = random.normal(size=(n_water, 2, 3))
            turns /= np.linalg.norm(turns, axis=2, keepdims=True)
            universe.atoms.positions = np.concatenate([oxygens, oxygens + turns], 1).reshape(-1, 3)
            if cell:
                universe.dimensions = [*(size * edge for edge in cell[:3]), *cell[3:]]
            writer.write(universe.atoms)
    universe.trajectory.close()

    def make(package):
        copy = universe.copy()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            copy.load_new(str(folder / "water.xtc"))
            if package is paceline:
                copy.trajectory = paceline.mdanalysis.reader.Reader(str(folder / "water.xtc"))
        return copy

    return make


def run_theirs(universe, *, stop=None, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return theirs.HydrogenBondAnalysis(universe, **options).run(stop=stop)


def assert_same(ours, other):
    """Check the bits of the bonds, their order, and all counts."""
    found, wanted = ours.results.hbonds, other.results.hbonds
    assert found.dtype == wanted.dtype
    assert found.shape == wanted.shape
    assert np.array_equal(found, wanted)
    for method in ("count_by_time", "count_by_type", "count_by_ids"):
        found, wanted = getattr(ours, method)(), getattr(other, method)()
        assert found.dtype == wanted.dtype
        assert np.array_equal(found, wanted)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "case",
    [pytest.param(name, marks=pytest.mark.full if name in FURTHER else ()) for name in OPTIONS],
)
def test_bonds_are_theirs_to_the_last_bit(case, water):
    other = run_theirs(water(MDAnalysis), **OPTIONS[case])
    assert len(other.results.hbonds) > 0
    ours = HydrogenBondAnalysis(water(paceline), **OPTIONS[case])
    assert_same(ours.run(backend="serial"), other)
    assert ours.results.counts.tolist() == other.count_by_time().tolist()


@pytest.mark.one_in(5)
def test_when_selections_are_evaluated_may_be_set_later(water):
    options = OPTIONS["changing acceptors"]
    ours = HydrogenBondAnalysis(water(paceline), **options)
    for update in (False, True):
        ours.update_selections = update
        other = run_theirs(water(MDAnalysis), **options, update_selections=update)
        assert_same(ours.run(), other)


@pytest.mark.one_in(2)
def test_bonds_by_other_criteria_are_those_of_all_images(water):
    """Compare with all images, allowing for cases that rounding decides."""
    universe = water(paceline)
    ts = universe.trajectory[1]
    x = ts.positions.astype(float)
    oxygens = np.arange(0, 1200, 3)
    hydrogens = np.setdiff1d(np.arange(600), oxygens)  # half of the molecules
    donors = hydrogens // 3 * 3

    def nearest(d):
        if ts.dimensions is None:
            return d
        vectors = triclinic_vectors(ts.dimensions).astype(float)
        d = d - np.rint(d @ np.linalg.inv(vectors)) @ vectors
        best = d
        for images in itertools.product((-1, 0, 1), repeat=3):
            other = d + np.array(images) @ vectors
            is_less = (other**2).sum(axis=-1) < (best**2).sum(axis=-1)
            best = np.where(is_less[..., np.newaxis], other, best)
        return best

    def angle(a, b):
        cosine = (a * b).sum(axis=-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)
        return np.degrees(np.arccos(np.clip(cosine, -1, 1)))

    to_donor = nearest(x[donors] - x[hydrogens])[:, np.newaxis]
    to_acceptor = nearest(x[oxygens] - x[hydrogens][:, np.newaxis])
    from_donor = nearest(x[oxygens] - x[donors][:, np.newaxis])
    distance = np.linalg.norm(from_donor, axis=-1)
    of_donors, of_hydrogens = angle(-to_donor, from_donor), angle(to_donor, to_acceptor)
    others = donors[:, np.newaxis] != oxygens
    for criterion in ("baker_hubbard", "gromacs", "wernet_nilsson"):
        one = HydrogenBondAnalysis(universe, criterion=criterion).run(frames=[1])
        found = np.zeros(distance.shape, bool)
        hbonds = one.results.hbonds[one.results.hbonds[:, 2] < 600]
        bonds = hbonds[:, 1:4].astype(int)
        places = np.searchsorted(hydrogens, bonds[:, 1]), bonds[:, 2] // 3
        found[places] = True
        assert found.sum() == len(bonds) > 5
        assert np.array_equal(donors[places[0]], bonds[:, 0])
        surely, perhaps = (
            others
            & {
                "baker_hubbard": (np.linalg.norm(to_acceptor, axis=-1) < 2.5 + off)
                & (of_hydrogens > 120 - 100 * off),
                "gromacs": (distance > 1 - off)
                & (distance <= 3.5 + off)
                & (of_donors <= 30 + 100 * off),
                "wernet_nilsson": (distance > 1 - off)
                & (distance < 3.3 - 0.00044 * of_donors**2 + off),
            }[criterion]
            for off in (-1e-4, 1e-4)
        )
        assert not (surely & ~found).any()
        assert not (found & ~perhaps).any()
        np.testing.assert_allclose(hbonds[:, 4], distance[places], atol=1e-4)
        np.testing.assert_allclose(hbonds[:, 5], of_hydrogens[places], atol=0.01)


def test_of_a_protein(universe, theirs_too):
    for options in ({}, {"between": ["resid 1-100", "protein"]}, {"acceptors_sel": "name O"}):
        other = run_theirs(theirs_too, stop=5, **options)
        ours = HydrogenBondAnalysis(universe, **options).run(stop=5)
        assert_same(ours, other)
        for intermittency in (0, 2):
            found = ours.lifetime(tau_max=3, intermittency=intermittency, window_step=2)
            wanted = other.lifetime(tau_max=3, intermittency=intermittency, window_step=2)
            assert np.array_equal(found, wanted)


@pytest.fixture(scope="module")
def theirs_too(adk):
    return MDAnalysis.Universe(*adk)


def test_of_water_and_a_protein_in_it():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        files, wet = (waterPSF, waterDCD), (TPR, XTC)
        assert_same(
            HydrogenBondAnalysis(paceline.Universe(*files)).run(),
            run_theirs(MDAnalysis.Universe(*files)),
        )
        options = {"between": ["protein", "resname SOL"], "update_selections": False}
        universe = MDAnalysis.Universe(*wet)
        options["hydrogens_sel"] = "(protein and name H*) or (name HW* and around 6 protein)"
        ours = HydrogenBondAnalysis(paceline.Universe(*wet), **options)
        assert_same(ours.run(stop=1), run_theirs(universe, stop=1, **options))


def test_within_a_group(universe):
    part = universe.select_atoms("resid 20:90")
    found = HydrogenBondAnalysis(part).run(stop=3).results.hbonds
    wanted = HydrogenBondAnalysis(universe, between=["resid 20:90"] * 2).run(stop=3).results.hbonds
    # MDAnalysis's order of bonds depends on all searched atoms.
    assert {tuple(bond[:4]) for bond in found} == {tuple(bond[:4]) for bond in wanted}
    assert len(found) == len(wanted) > 0


def test_donors_are_atoms_of_the_group(universe):
    part, less = (universe.select_atoms(f"resid 20:90{more}") for more in ("", " and not name N"))
    bonds = HydrogenBondAnalysis(part).run(stop=3).results.hbonds
    of_backbone = universe.atoms[bonds[:, 1].astype(int)].names == "N"
    assert 0 < of_backbone.sum() < len(bonds)
    found = HydrogenBondAnalysis(less).run(stop=3).results.hbonds
    assert {tuple(bond[:4]) for bond in found} == {tuple(bond[:4]) for bond in bonds[~of_backbone]}


def test_under_register(adk, theirs_too):
    options = {}, {"acceptors_sel": "name O and around 8 resid 3"}
    wanted = [run_theirs(theirs_too, stop=4, **one) for one in options]
    with paceline.register() as registration:
        universe = MDAnalysis.Universe(*adk)
        for one, same in zip(options, wanted, strict=True):
            assert_same(run_theirs(universe, stop=4, **one), same)
        run_theirs(universe, stop=1, acceptors_sel="name O and bonded around 8 resid 3")
    [*native, other] = [how for _, how in registration.runs]
    assert native == ["native", "native"]
    assert "native" not in other


@pytest.mark.parametrize(
    "between", [[["all", "resname TIP3"], ["all", "all"]], ["all", "resname TIP3"]]
)
def test_groups_without_atoms_make_no_bonds(between, adk, theirs_too):
    """Check bonds between the protein and a missing group, such as water in a dry system."""
    wanted = run_theirs(theirs_too, stop=3, between=between).results.hbonds
    with paceline.register() as registration:
        found = run_theirs(MDAnalysis.Universe(*adk), stop=3, between=between).results.hbonds
    assert registration.runs == [("HydrogenBondAnalysis", "native")]
    np.testing.assert_array_equal(found, wanted)
    assert bool(len(wanted)) == (between[1] == ["all", "all"])
    ours = HydrogenBondAnalysis(paceline.Universe(*adk), between=between).run(stop=3).results
    np.testing.assert_array_equal(ours.hbonds, wanted)
    assert ours.provenance["between 0"].endswith("and 0 atoms")


def make(positions, cell=None, **attributes):
    """Return a Universe of water molecules, or of other atoms, with these frames in memory."""
    n = np.shape(positions)[-2]
    universe = MDAnalysis.Universe.empty(n, 1, atom_resindex=[0] * n, trajectory=True)
    for name, values in attributes.items():
        universe.add_TopologyAttr(name, values)
    universe.load_new(np.reshape(positions, (-1, n, 3)).astype(np.float32))
    if cell:
        for ts in universe.trajectory:
            ts.dimensions = cell
    return universe


#: The donor is at the origin, and its hydrogen 1 Å along x. Distance (Å) and angle (degrees) of the
#: acceptor, and the criteria by which it is bonded.
GEOMETRIES = {
    (2.9, 0.0): {"mdanalysis", "baker_hubbard", "wernet_nilsson", "gromacs"},
    (2.9, 29.0): {"baker_hubbard", "wernet_nilsson", "gromacs"},
    (2.9, 31.0): {"baker_hubbard"},
    (3.2, 20.0): {"baker_hubbard", "gromacs"},
    (3.4, 0.0): {"baker_hubbard", "gromacs"},
    (3.6, 0.0): set(),
}


@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
def test_what_each_criterion_means(geometry, tmp_path):
    distance, degrees = geometry
    angle = np.radians(degrees)
    positions = [[0, 0, 0], [1, 0, 0], [distance * np.cos(angle), distance * np.sin(angle), 0]]
    universe = make(positions, names=["N", "H", "O"], bonds=[(0, 1)])
    universe.atoms.write(str(tmp_path / "one.pdb"), bonds=None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours = paceline.Universe(universe._topology, str(tmp_path / "one.pdb"))
    found = set()
    for criterion in ("mdanalysis", "baker_hubbard", "wernet_nilsson", "gromacs"):
        one = HydrogenBondAnalysis(
            ours,
            hydrogens_sel="name H",
            acceptors_sel="name O",
            criterion=criterion,
            update_selections=False,
        ).run()
        for bond in one.results.hbonds:
            found.add(criterion)
            assert bond[:4].tolist() == [0, 0, 1, 2]
            assert bond[4] == pytest.approx(distance, abs=2e-3)
    assert found == GEOMETRIES[geometry]


@pytest.mark.parametrize("criterion", ["baker_hubbard", "wernet_nilsson"])
def test_bonds_are_those_of_mdtraj(criterion, universe, adk):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traj = mdtraj.load_dcd(adk.trajectory, top=adk.topology)[:20]
    heavy = {atom.index for atom in traj.topology.atoms if atom.element.symbol in "NO"}
    partners = {}
    for one, two in traj.topology.bonds:
        for heavy_atom, hydrogen in ((one, two), (two, one)):
            if hydrogen.element.symbol == "H" and heavy_atom.index in heavy:
                partners[hydrogen.index] = heavy_atom.index
    ours = HydrogenBondAnalysis(
        universe,
        hydrogens_sel="index " + " ".join(map(str, sorted(partners))),
        acceptors_sel="index " + " ".join(map(str, sorted(heavy))),
        criterion=criterion,
    ).run(stop=20)
    names = [tuple(bond[:4].astype(int)) for bond in ours.results.hbonds]
    if criterion == "baker_hubbard":
        wanted = {tuple(bond) for bond in mdtraj.baker_hubbard(traj, freq=0.3).tolist()}
        unique, counts = np.unique([bond[1:] for bond in names], axis=0, return_counts=True)
        assert {tuple(bond) for bond in unique[counts > 6].tolist()} == wanted
    else:
        every = mdtraj.wernet_nilsson(traj)
        wanted = {(k, *bond) for k, bonds in enumerate(every) for bond in bonds.tolist()}
        assert set(names) == wanted
    assert len(wanted) > 50


class Blinking:
    """Bonds that exist in some frames, by a pattern."""

    def __init__(self, tmp_path, patterns):
        n, n_frames = len(patterns), len(patterns[0])
        positions = np.zeros((n_frames, n, 3, 3))
        positions[..., 1, 0] = 1
        positions[..., 2, 0] = np.where(np.transpose(patterns), 2.8, 5)
        positions[..., 1] += 20 * np.arange(n)[:, None]
        universe = make(
            positions.reshape(n_frames, -1, 3),
            names=["N", "H", "O"] * n,
            bonds=[(3 * k, 3 * k + 1) for k in range(n)],
        )
        path = str(tmp_path / "blinking.xtc")
        with MDAnalysis.Writer(path, 3 * n) as writer:
            for ts in universe.trajectory:
                ts.time = 2.0 * ts.frame
                writer.write(universe.atoms)
        self.universe = universe.copy()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.universe.trajectory = paceline.mdanalysis.reader.Reader(path)

    def run(self, **options):
        one = HydrogenBondAnalysis(self.universe, hydrogens_sel="name H", acceptors_sel="name O")
        return one.run(**options)


def test_correlations_in_time_are_those_of_their_definitions(tmp_path):
    random = np.random.default_rng(19)
    patterns = random.random((7, 40)) < np.array([[0.9]] * 5 + [[0.0], [1.0]])
    one = Blinking(tmp_path, patterns).run()
    assert one.results.counts.tolist() == patterns.sum(axis=0).tolist()
    h = patterns.astype(float)
    for function in ("intermittent", "continuous"):
        found = one.time_correlation(function, tau_max=39)
        for lag in range(40):
            origins = range(40 - lag)
            if function == "intermittent":
                together = sum(h[:, t] @ h[:, t + lag] for t in origins)
            else:
                together = sum(h[:, t : t + lag + 1].prod(axis=1).sum() for t in origins)
            assert found.correlation[lag] == together / h[:, : 40 - lag].sum()
        np.testing.assert_allclose(found.tau, 2.0 * np.arange(40))
        np.testing.assert_allclose(found.lifetime, np.trapezoid(found.correlation, found.tau))
        # Lags beyond a fifth of the run have no interval.
        text = found.findings[f"{function} lifetime"]
        end = (
            f"integrated up to a lag of 78 ps, where the correlation is {found.correlation[-1]:.2g}"
        )
        assert text == f"{found.lifetime:.4g} ps, no interval, not converged; {end}"
        near = one.time_correlation(function, tau_max=8)
        sums, counts = np.zeros((2, 10, 9))
        for lag in range(9):
            for t in range(40 - lag):
                counts[t // 4, lag] += h[:, t].sum()
                window = h[:, [t, t + lag]] if function == "intermittent" else h[:, t : t + lag + 1]
                sums[t // 4, lag] += window.prod(axis=1).sum()
        without = (sums.sum(axis=0) - sums) / (counts.sum(axis=0) - counts)
        each = np.trapezoid(without, near.tau, axis=1)
        deviation = np.sqrt(0.9 * ((each - each.mean()) ** 2).sum())
        assert near.lifetime_interval == pytest.approx(stats.t.ppf(0.975, 9) * deviation)
        [legend] = near.plot().get_legend().get_texts()
        assert legend.get_text().replace("\n", " ") == (
            "lifetime "
            f"{with_error(near.lifetime, near.lifetime_interval)} ps (95 %), not converged; "
            f"integrated up to a lag of 16 ps, where the correlation is {near.correlation[-1]:.2g}"
        )
        assert list(found.to_dataframe()) == ["lag time (ps)", "correlation"]
    every_second = Blinking(tmp_path, patterns).run(step=2).time_correlation(tau_max=3)
    assert every_second.tau.tolist() == [0, 4, 8, 12]


def test_mdanalysis_averages_ratios_and_leaves_empty_origins_out(tmp_path):
    """Check one bond and then three that break: the mean of 1/1 and 0/3 is not a probability."""
    one = Blinking(tmp_path, [[1, 1, 0, 0], [0, 1, 0, 0], [0, 1, 0, 0]]).run()
    assert one.lifetime(tau_max=1)[1].tolist() == [1, 0.5]
    assert one.time_correlation(tau_max=1).correlation.tolist() == [1, 0.25]


@pytest.mark.parametrize("density", [0.2, 0.6, 0.95])
def test_lifetimes_are_those_of_mdanalysis(density, tmp_path):
    random = np.random.default_rng(20)
    patterns = random.random((5, 13)) < density
    one = Blinking(tmp_path, patterns).run()
    bonds = [set(np.flatnonzero(there).tolist()) for there in patterns.T]
    for tau_max, window_step, gap in itertools.product((0, 1, 12, 13), (1, 2, 5), (0, 1, 2, 5)):
        filled = correct_intermittency(bonds, gap)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a lag without frames
            lags, values, _ = autocorrelation(filled, tau_max, window_step)
        found = one.lifetime(tau_max, window_step, gap)
        np.testing.assert_array_equal(found, [lags, values])


def test_what_makes_no_correlation_is_refused(tmp_path, damaged, universe):
    one = Blinking(tmp_path, [[1, 1, 0, 0]])
    with pytest.raises(NoDataError, match=r"call run\(\) first"):
        HydrogenBondAnalysis(universe).time_correlation()
    with pytest.raises(UnsupportedError, match="equidistant"):
        one.run(frames=[0, 1, 3]).time_correlation(tau_max=1)
    with pytest.raises(ValueError, match="tau_max must be from 0 to 3"):
        one.run().time_correlation(tau_max=4)
    with pytest.raises(ValueError, match=r"tau_max must be a whole number, not 1\.5"):
        one.run().lifetime(tau_max=1.5)
    for options, words in {
        (5, 1, 0): "tau_max must be from 0 to 4 frames, not 5",
        (1, 0, 0): "window_step must be at least 1 frames, not 0",
        (1, 1, -1): "intermittency must be at least 0 frames, not -1",
    }.items():
        with pytest.raises(ValueError, match=words):
            one.run().lifetime(*options)
    with pytest.raises(ValueError, match="'intermittent' or 'continuous'"):
        one.run().time_correlation("survival", tau_max=1)
    with pytest.raises(ValueError, match="no hydrogen bonds"):
        one.run(start=2).time_correlation(tau_max=1)
    broken = HydrogenBondAnalysis(paceline.Universe(*damaged[0])).run(on_error="skip")
    assert np.isnan(broken.count_by_time()).sum() == len(damaged[1])
    for method in (broken.lifetime, broken.time_correlation):
        with pytest.raises(UnsupportedError, match="damaged frames were left out"):
            method()


def test_selections_may_be_changed(universe):
    one = HydrogenBondAnalysis(universe)
    assert one.donors_sel is None
    assert "resname ALA and name O" in one.acceptors_sel
    assert one.guess_donors("resname SER") == "(resname SER and name OG)"
    one.acceptors_sel = "name OD1"
    one.hydrogens_sel = "name HN"
    found = one.run(stop=5).results.hbonds
    assert set(universe.atoms[found[:, 3].astype(int)].names) == {"OD1"}
    assert set(universe.atoms[found[:, 2].astype(int)].names) == {"HN"}
    one.donors_sel = "name NZ"
    assert one.run(stop=5).results.hbonds.shape == (0, 6)
    assert one.count_by_type().shape == (0, 3)
    one.hydrogens_sel = one.acceptors_sel = None
    assert len(one.run(stop=5).results.hbonds) > 0


def test_selections_that_change(universe, theirs_too):
    """Check many workers and blocks, with the selected atoms recorded, also within one group."""
    selections = {
        "hydrogens_sel": "name HN and around 12 resid 30",
        "acceptors_sel": "name O and not prop z > 2",
    }
    wanted = run_theirs(theirs_too, stop=28, **selections, d_a_cutoff=3.5).results.hbonds
    one = HydrogenBondAnalysis(universe, **selections, d_a_cutoff=3.5)
    for options in ({"backend": "serial"}, {"n_workers": 3, "n_parts": 7}):
        found = one.run(stop=28, **options).results
        assert np.array_equal(found.hbonds, wanted)
    assert found.provenance["hydrogens"] == repr(selections["hydrogens_sel"])
    assert found.provenance["donors"] == "bonded to these hydrogens"
    part = universe.select_atoms("resid 20:90 and not (resid 31:45 and name N)")
    some = HydrogenBondAnalysis(part, **selections, d_a_cutoff=3.5).run(stop=28).results.hbonds
    inside = np.isin(wanted[:, 1:4], part.indices).all(axis=1)
    assert 0 < inside.sum() < np.isin(wanted[:, 2:4], part.indices).all(axis=1).sum()
    assert {tuple(bond[:4]) for bond in some} == {tuple(bond[:4]) for bond in wanted[inside]}
    one.acceptors_sel = "name O"
    assert len(one.run(stop=28).results.hbonds) > len(wanted)
    one.hydrogens_sel = "name HN and not segid x"  # `x` is a segment here, not a coordinate
    assert one.run(stop=3).results.provenance["hydrogens"].startswith("203 atoms")


def test_selections_that_change_and_find_nothing(universe, theirs_too):
    """Check groups that are empty in some frames, in all frames, or always."""
    near = {"acceptors_sel": "name O and around 3.5 (resid 30 and name N)"}
    wanted = run_theirs(theirs_too, stop=10, **near).count_by_time()
    found = HydrogenBondAnalysis(universe, **near).run(stop=10).results
    assert found.counts.tolist() == wanted.tolist()
    assert 0 in wanted
    assert sum(wanted) > 0
    none = HydrogenBondAnalysis(universe, hydrogens_sel="name HN and prop x > 900").run(stop=2)
    assert none.results.hbonds.shape == (0, 6)
    assert none.results.counts.tolist() == [0, 0]
    with pytest.raises(
        SelectionError, match=r"no atom among .* matches hydrogens_sel='name XX and"
    ):
        HydrogenBondAnalysis(universe, hydrogens_sel="name XX and prop x > 0").run()
    with pytest.raises(UnsupportedError, match=r"acceptors_sel: workers cannot .*'bonded'"):
        HydrogenBondAnalysis(universe, acceptors_sel="bonded around 8 resid 3")


def test_an_angle_as_of_gromacs_warns(universe):
    with pytest.warns(PacelineWarning, match=r"d_h_a_angle_cutoff=30 is the minimum angle at the"):
        HydrogenBondAnalysis(universe, d_h_a_angle_cutoff=30).run(stop=1)


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"d_a_cutoff": -1}, "d_a_cutoff must be a length above 0, in Å, not -1"),
        ({"d_h_cutoff": np.nan}, "d_h_cutoff must be a length above 0, in Å, not nan"),
        ({"d_h_a_angle_cutoff": 200}, "from 0 to 180 degrees, not 200"),
        ({"d_a_cutoff": 3.5, "criterion": "gromacs"}, "'gromacs' has fixed limits"),
        ({"d_h_a_angle_cutoff": 30, "criterion": "wernet_nilsson"}, "has fixed limits"),
    ],
)
def test_limits_that_make_no_sense(limits, words, universe):
    with pytest.raises(ValueError, match=words):
        HydrogenBondAnalysis(universe, **limits).run(stop=1)


def test_bad_input_is_named(universe, adk_in_water):
    with pytest.raises(ValueError, match="criterion must be 'mdanalysis', 'baker_hubbard'"):
        HydrogenBondAnalysis(universe, criterion="luzar")
    for between in ([], "protein", ["protein"], [["protein"]], ["protein", "name O", "all"]):
        with pytest.raises(ValueError, match=r"between must be a pair .*, not "):
            HydrogenBondAnalysis(universe, between=between)
    with (
        pytest.warns(UserWarning, match="acceptors_sel is empty"),
        pytest.raises(SelectionError, match=r"no acceptors .*: set acceptors_sel="),
    ):
        HydrogenBondAnalysis(universe, acceptors_sel=" ").run()
    none = dict.fromkeys(("donors_sel", "hydrogens_sel", "acceptors_sel"), "name XX")
    with pytest.raises(SelectionError, match=r"no atom among the 3,341 .* hydrogens_sel='name XX'"):
        HydrogenBondAnalysis(universe, **none).run()
    apart = {"donors_sel": "name N", "d_h_cutoff": 0.5, "update_selections": False}
    with pytest.raises(SelectionError, match=r"no hydrogen within d_h_cutoff=0.5 Å of a donor"):
        HydrogenBondAnalysis(universe, **apart).run()
    match = "no charge information .*: use one .* set hydrogens_sel= and"
    unknown = paceline.Universe(*adk_in_water)
    unknown.del_TopologyAttr("resnames")
    with pytest.raises(NoDataError, match=match):
        HydrogenBondAnalysis(unknown)
    match = "a group of between= contains none of the 7[0-9]{2} analysed atoms"
    with pytest.warns(UserWarning, match=match):
        HydrogenBondAnalysis(universe.select_atoms("resid 1-49"), between=["all", "resid 50"])
    with pytest.raises(NoDataError, match="topology has no bonds"):
        HydrogenBondAnalysis(unknown, hydrogens_sel="name HW1", acceptors_sel="name OW")


@pytest.mark.parametrize("criterion", ["mdanalysis", "baker_hubbard", "gromacs", "wernet_nilsson"])
@pytest.mark.parametrize("lost", [0, 1, 2])
def test_positions_that_are_nan_are_an_error(lost, criterion):
    positions = np.array([[0, 0, 0], [1, 0, 0], [2.8, 0, 0]])
    universe = make([positions] * 2, names=["N", "H", "O"], bonds=[(0, 1)])
    universe.trajectory[1].positions[lost, 1] = np.nan
    universe.trajectory[0]
    one = HydrogenBondAnalysis(
        universe, hydrogens_sel="name H", acceptors_sel="name O", criterion=criterion
    )
    assert len(one.run(stop=1).results.hbonds) == 1
    with pytest.raises(AnalysisError, match="frame 1: positions are not all finite"):
        one.run()


def test_bonds_of_millions_of_atoms_are_counted():
    """Check that three indices together may need more than 64 bits."""
    n_atoms = 3_000_000
    universe = MDAnalysis.Universe.empty(n_atoms)
    universe.add_TopologyAttr("ids", np.arange(n_atoms))
    one = HydrogenBondAnalysis.__new__(HydrogenBondAnalysis)
    one.u = universe
    bonds = [[0, 2_999_990, 2_999_991, 5], [1, 2_999_990, 2_999_991, 5], [1, 7, 8, 2_999_999]]
    one.results = Results(hbonds=np.array(bonds, dtype=float))
    assert one.count_by_ids().tolist() == [[2_999_990, 2_999_991, 5, 2], [7, 8, 2_999_999, 1]]


def test_the_most_frequent_bonds(universe, damaged):
    bonds = HydrogenBondAnalysis(universe, between=["resid 1-60", "protein"]).run()
    table = bonds.further_tables()["frequent"].columns
    counted = bonds.count_by_ids()
    assert 30 < len(counted) < 1000
    np.testing.assert_array_equal(table["frames"], counted[:, 3])
    np.testing.assert_array_equal(table["fraction of frames"], counted[:, 3] / 98)
    rows = np.stack([table[name] for name in ("donor", "hydrogen", "acceptor")], axis=1)
    hbonds = bonds.results.hbonds[:, 1:4]
    for row, count in zip(rows[:30], table["frames"], strict=False):
        assert (hbonds == row).all(axis=1).sum() == count
    same = np.flatnonzero(np.diff(table["frames"]) == 0)
    assert (rows[same, 0] <= rows[same + 1, 0]).all()  # ties are in the order of atoms
    donor, hydrogen, acceptor = (universe.atoms[index] for index in rows[0])
    assert table["hydrogen bond"][0] == (
        f"{donor.resname} {donor.resid} {donor.name}–{hydrogen.name} … "
        f"{acceptor.resname} {acceptor.resid} {acceptor.name}"
    )
    system, frames = damaged
    left = HydrogenBondAnalysis(paceline.Universe(*system), between=["resid 1-60", "protein"])
    some = left.run(on_error="skip").further_tables()["frequent"].columns
    np.testing.assert_allclose(some["fraction of frames"] * (98 - len(frames)), some["frames"])


def test_frequent_bonds_have_intervals(universe, damaged, adk_xtc):
    given = {"between": ["protein", "protein"]}
    plain = HydrogenBondAnalysis(universe, **given).run()
    one = HydrogenBondAnalysis(universe, **given, errors=True).run()
    np.testing.assert_array_equal(one.results.hbonds, plain.results.hbonds)
    assert "frequent_intervals" not in plain.results
    table = one.further_tables()["frequent"]
    fractions = table.columns["fraction of frames"]
    limits = np.stack(table.limits_of("fraction of frames"), axis=1)
    np.testing.assert_array_equal(limits, one.results.frequent_intervals)
    np.testing.assert_array_equal(np.isnan(limits[:, 0]), fractions == 1)
    # The states of each bond, present or not, have the same intervals.
    bonds = np.stack([table.columns[name] for name in ("donor", "hydrogen", "acceptor")], axis=1)
    for row in (0, 5, 60, len(bonds) - 1):
        frames = one.results.hbonds[(one.results.hbonds[:, 1:4] == bonds[row]).all(axis=1), 0]
        states = np.isin(np.arange(98), frames).astype(int)
        wanted, found = errors_of_states(Presence(98), states, 2)
        assert fractions[row] == pytest.approx(wanted[1])
        np.testing.assert_allclose(limits[row], found.limits(wanted)[1], rtol=1e-9)
    assert "jackknife" in one.results.provenance["intervals"]
    assert "may be too narrow" in one.results.provenance["warnings"]
    left = HydrogenBondAnalysis(paceline.Universe(*damaged[0]), **given, errors=True)
    some = left.run(on_error="skip").further_tables()["frequent"]
    kept = HydrogenBondAnalysis(paceline.Universe(*adk_xtc), **given, errors=True)
    kept.run(frames=np.setdiff1d(np.arange(98), damaged[1]))
    np.testing.assert_allclose(left.results.frequent_intervals, kept.results.frequent_intervals)
    assert len(some.columns["frames"]) == len(left.results.frequent_intervals)


def test_no_bonds_are_no_frequent_ones(universe):
    bonds = HydrogenBondAnalysis(universe, d_a_cutoff=1.1).run(stop=2)
    results = further_results(bonds)["frequent"]
    assert len(results.to_dataframe()) == 0
    assert results.plot().get_xlabel() == "fraction of frames"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ["--select", "name HN N"],
            "there are no acceptors among the 417 atoms of --select 'name HN N', by charges below "
            "-0.5 e: set --acceptors-sel, or use more atoms",
        ),
        (
            ["--between", "name HN N", "name CA"],
            "there are no acceptors among the 631 atoms of --between 'name HN N' 'name CA', by "
            "charges",
        ),
        (
            ["--select", "name CA"],
            "there are no hydrogens among the 214 atoms of --select 'name CA', by masses from 0.9 "
            "to 1.1 u and charges above 0.3 e: set --hydrogens-sel, or use more atoms",
        ),
        (
            ["--select", "name HN O"],
            "no hydrogen among the 416 atoms of --select 'name HN O' is bonded to another one of "
            "these atoms: use more atoms, or set --donors-sel",
        ),
        (
            ["--acceptors-sel", "name XX"],
            "no atom among the 3,341 atoms of --select 'protein' matches --acceptors-sel "
            '"name XX": use another',
        ),
    ],
)
def test_atoms_that_hydrogen_bonds_lack_are_named(options, said, adk, run):
    status, _, err = run("hbonds", *adk, *options)
    assert status == 2
    assert f"HydrogenBondAnalysis: {said}" in err


def test_the_most_frequent_hydrogen_bonds(adk_xtc, tmp_path, run):
    table, figure = tmp_path / "frequent.csv", tmp_path / "frequent.svg"
    given = ["--select", "resid 1-60", "-e", 3, "-o", tmp_path / "counts.csv"]
    assert run("hbonds", *adk_xtc, *given, "--frequent", table) == (0, "", "")
    atoms = paceline.Universe(*adk_xtc).select_atoms("resid 1-60")
    bonds = HydrogenBondAnalysis(atoms).run(stop=3)
    wanted = bonds.further_tables()["frequent"].columns
    found = pd.read_csv(table, comment="#", float_precision="round_trip")
    assert list(found) == list(wanted)
    np.testing.assert_array_equal(found["fraction of frames"], wanted["fraction of frames"])
    assert "# analysis: HydrogenBondAnalysis" in table.read_text(encoding="utf-8")
    given[-1] = tmp_path / "again.csv"
    assert run("hbonds", *adk_xtc, *given, "--frequent", figure) == (0, "", "")
    assert wanted["hydrogen bond"][0] in figure.read_text(encoding="utf-8")
    tabs = tmp_path / "frequent.tsv"
    assert run("hbonds", *adk_xtc, *given, "--frequent", tabs, "--overwrite") == (0, "", "")
    assert "hydrogen bond\t" in tabs.read_text(encoding="utf-8")
    status, _, err = run("hbonds", *adk_xtc, *given[:4], "--frequent", figure)
    assert (status, "exists" in err) == (2, True)
    status, out, err = run("hbonds", *adk_xtc, *given[:4], "--frequent", tmp_path / "a.txt")
    assert (status, out) == (2, "")
    assert "a.txt: tables are saved as .csv or .tsv, figures are saved as .pdf" in err


def test_hydrogen_bonds_between_groups_need_no_selection(adk_xtc, tmp_path, run):
    between = ["resid 1-60 and backbone", "resid 1-60 and not backbone"]
    table = tmp_path / "hbonds.csv"
    assert run("hbonds", *adk_xtc, "-e", 3, "--between", *between, "-o", table) == (0, "", "")
    universe = paceline.Universe(*adk_xtc)
    wanted = HydrogenBondAnalysis(universe, between=between).run(stop=3).results.counts
    assert pd.read_csv(table, comment="#")["hydrogen bonds"].tolist() == wanted.tolist()
    given = "--select", "resid 1-30", "--between", "resid 1-30", "resid 31-60"
    status, _, err = run("hbonds", *adk_xtc, "-e", 1, *given)
    assert (status, "a group of --between contains none of" in err) == (0, True)
    status, _, err = run("hbonds", *adk_xtc, "--between", "protein", "resname LIG")
    assert (status, "no atoms match 'resname LIG'" in err) == (2, True)
    status, _, err = run("hbonds", *adk_xtc, "--criterion", "gromacs", "--d-a-cutoff", 3.2)
    assert (status, "omit --d-a-cutoff and --d-h-a-angle-cutoff" in err) == (2, True)
    status, _, err = run("cluster", *adk_xtc, "--method", "k-medoids", "--cutoff", 2)
    assert (status, "needs --n-clusters; --cutoff is for gromos" in err) == (2, True)


@pytest.mark.filterwarnings("ignore")
def test_names_of_hydrogen_bonds_tell_chains_apart(tmp_path):
    one = MDAnalysis.Universe(PSF, PDB_small).select_atoms("resid 40-60")
    made = MDAnalysis.Merge(one, one)
    half = len(one)
    made.add_TopologyAttr("segids", ["A", "B"] if len(made.segments) == 2 else ["A"])
    if len(made.segments) == 1:
        made.residues[half:].segments = made.add_Segment(segid="B")
    second = made.residues[len(made.residues) // 2 :]
    second.segments = made.add_Segment(segid="C")
    second.atoms.positions += 200
    path = tmp_path / "two.dcd"
    with MDAnalysis.Writer(str(path), len(made.atoms)) as writer:
        writer.write(made.atoms)
    universe = paceline.Universe(made._topology, path)
    how = {"hydrogens_sel": "name HN", "acceptors_sel": "name O", "donors_sel": "name N"}
    found = HydrogenBondAnalysis(universe, **how).run()
    names = found.further_tables()["frequent"].columns["hydrogen bond"]
    assert len(names) == len(set(names)) > 4
    assert {name[0] for name in names} == {"A", "C"}
    assert {name.partition("… ")[2][0] for name in names} == {"A", "C"}
    # Residues outside the table may have the same names as residues in it.
    some = HydrogenBondAnalysis(universe.select_atoms("segid C"), **how).run()
    names = some.further_tables()["frequent"].columns["hydrogen bond"]
    assert {name[0] for name in names} == {"C"}


def test_timelines_are_the_frames_of_each_bond(adk_xtc):
    universe = paceline.Universe(*adk_xtc)
    bonds = HydrogenBondAnalysis(universe.select_atoms("protein")).run(stop=9)
    tables = bonds.further_tables()
    often, timeline = tables["frequent"].columns, tables["timeline"]
    names = often["hydrogen bond"][:20].tolist()
    assert list(timeline.columns) == ["frame", "time (ps)", *names]
    hbonds = bonds.results.hbonds
    for k, name in enumerate(names):
        atoms = [often[kind][k] for kind in ("donor", "hydrogen", "acceptor")]
        frames = hbonds[(hbonds[:, 1:4] == atoms).all(axis=1), 0]
        assert np.flatnonzero(timeline.columns[name]).tolist() == sorted(frames)
        assert timeline.columns[name].mean() == often["fraction of frames"][k]
    assert timeline.states.numbers.shape == (9, 20)
