"""Tests of polymers: chains with known results, MDAnalysis's persistence length, and refused
chains.
"""

import importlib
import re
import warnings

import MDAnalysis
import numpy as np
import pandas as pd
import pytest
from MDAnalysis.analysis import polymer as theirs_module
from MDAnalysisTests.datafiles import TRZ, TRZ_psf

import paceline
from paceline.analysis.gyration import Gyration
from paceline.analysis.persistence_length import PersistenceLength
from paceline.analysis.polymer import Polymer
from paceline.errors import AnalysisError, PacelineWarning, SelectionError, UnsupportedError


def walk(random, n_chains, n_bonds, length, cosine=None):
    """Return chains whose bonds have free directions, or a fixed angle with a known cosine."""
    bonds = np.empty((n_chains, n_bonds, 3))
    for k in range(n_bonds):
        free = random.normal(size=(n_chains, 3))
        if k and cosine is not None:
            last = bonds[:, k - 1]
            free -= (free * last).sum(axis=1, keepdims=True) * last
        free /= np.linalg.norm(free, axis=1, keepdims=True)
        if k and cosine is not None:
            free = cosine * last + np.sqrt(1 - cosine**2) * free
        bonds[:, k] = free
    at = np.cumsum(length * bonds, axis=1)
    return np.concatenate([np.zeros((n_chains, 1, 3)), at], axis=1)


def universe_of(folder, frames, bonds=None, order=None, cell=None):
    """Return a Universe of chains, (n_frames, n_chains, n_atoms, 3), with atoms in the given
    `order`.
    """
    _, n_chains, n_atoms, _ = frames.shape
    n = n_chains * n_atoms
    order = np.arange(n) if order is None else order
    of_atoms, of_chains = order // n_atoms, np.arange(n_chains)
    made = MDAnalysis.Universe.empty(
        *(n, n_chains, n_chains),
        atom_resindex=of_atoms,
        residue_segindex=of_chains,
        trajectory=True,
    )
    if bonds is None:
        of_order = np.argsort(order)
        first = (np.arange(n_chains)[:, None] * n_atoms + np.arange(n_atoms - 1)).ravel()
        bonds = np.stack([of_order[first], of_order[first + 1]], axis=1)
    made.add_TopologyAttr("masses", 1.0 + np.arange(n) % 3)
    made.add_TopologyAttr("names", ["C"] * n)
    made.add_TopologyAttr("bonds", [tuple(one) for one in bonds])
    path = str(folder / "chains.trr")
    with MDAnalysis.Writer(path, n) as writer:
        for time, frame in enumerate(frames):
            made.trajectory.ts.time = float(time)
            made.dimensions = cell
            made.atoms.positions = frame.reshape(n, 3)[order]
            writer.write(made.atoms)
    return paceline.Universe(made._topology, path)


@pytest.fixture(scope="module")
def ideal(tmp_path_factory):
    """Freely jointed chains of 60 bonds of 2 Å, with atoms in random order."""
    random = np.random.default_rng(3)
    frames = np.stack([walk(random, 40, 60, 2.0) for _ in range(12)])
    order = random.permutation(40 * 61)
    return universe_of(tmp_path_factory.mktemp("ideal"), frames, order=order), frames


def test_the_module_of_mdanalysis_has_the_persistence_length():
    module = importlib.import_module("paceline.analysis.polymer")
    assert module.PersistenceLength is PersistenceLength


def test_sizes_are_those_of_each_chain_by_brute_force(ideal):
    universe, frames = ideal
    found = Polymer(universe.atoms).run().results
    vectors = frames[:, :, -1] - frames[:, :, 0]
    number = np.array([one[0] for one in universe.atoms.fragindices[:, None]])
    chain_of = universe.atoms.segindices
    firsts = Polymer(universe.atoms)._chains
    chains = chain_of[firsts.indices[firsts.firsts]]
    assert sorted(chains) == list(range(40))
    assert len(set(number)) == 40
    found_vectors = found.end_to_end_vectors
    signs = np.sign((found_vectors * vectors[:, chains]).sum(axis=2))
    np.testing.assert_allclose(found_vectors, signs[..., None] * vectors[:, chains], atol=1e-4)
    assert (signs == signs[0]).all()
    lengths = np.linalg.norm(vectors, axis=2)[:, chains]
    np.testing.assert_allclose(found.end_to_end, lengths, atol=1e-4)
    rg = Gyration(universe.atoms, compound="segments").run().results.rg
    np.testing.assert_allclose(found.rg, rg[:, chains], rtol=1e-12)
    # Without weights and with equal bonds, the ratio is N (N + 2) / 6 (N + 1) for N bonds, over N.
    plain = Polymer(universe.atoms, weights=None).run().results
    assert plain.ratio == pytest.approx(6 * 61 / 62, rel=0.1)
    np.testing.assert_allclose(
        plain.rg[0],
        np.sqrt(((frames[0] - frames[0].mean(1)[:, None]) ** 2).sum(2).mean(1))[chains],
        rtol=1e-6,
    )


def test_ideal_chains_have_squares_that_grow_with_separation(ideal):
    universe, frames = ideal
    run = PersistenceLength(universe.atoms).run()
    found = run.results
    assert found.lb == pytest.approx(2.0, rel=1e-6)
    brute = [((frames[:, :, n:] - frames[:, :, :-n]) ** 2).sum(-1).mean() for n in range(1, 61)]
    np.testing.assert_allclose(found.internal_distances, brute, rtol=1e-5)
    np.testing.assert_allclose(found.characteristic_ratio[:20], 1, atol=0.15)
    off = np.abs(found.internal_distances - 4 * np.arange(1, 61))
    assert (off <= 1.5 * found.internal_distances_interval + 1e-3).all()
    assert abs(found.exponent - 1) < found.exponent_interval < 0.2
    assert np.abs(found.bond_autocorrelation[1:20]).max() < 0.05
    assert found.lp < 1.0
    assert found.fit_range.tolist() == [0, 2]


@pytest.mark.parametrize("cosine", [0.8, 0.95])
def test_a_known_persistence_length_is_within_its_interval(cosine, tmp_path):
    """Check freely rotating chains: C(n) = cosⁿ θ, and ⟨R²(n)⟩ by Flory's formula."""
    random = np.random.default_rng(11)
    frames = np.stack([walk(random, 60, 100, 1.5, cosine) for _ in range(15)])
    found = PersistenceLength(universe_of(tmp_path, frames).atoms).run().results
    wanted = -1.5 / np.log(cosine)
    assert found.lp == pytest.approx(wanted, rel=0.02)
    assert abs(found.lp - wanted) < 1.5 * found.lp_interval < 0.1 * wanted
    n = np.arange(found.fit_range[1] + 1)
    assert cosine ** n[-1] > np.exp(-2.1)
    np.testing.assert_allclose(found.bond_autocorrelation[n], cosine**n, atol=0.02)
    n = np.arange(1, 101)
    wanted = (
        n
        * 1.5**2
        * ((1 + cosine) / (1 - cosine) - 2 * cosine * (1 - cosine**n) / n / (1 - cosine) ** 2)
    )
    np.testing.assert_allclose(found.internal_distances[:30], wanted[:30], rtol=0.03)
    assert found.characteristic_ratio[40] == pytest.approx(wanted[40] / 41 / 1.5**2, rel=0.08)


def test_straight_chains(tmp_path):
    random = np.random.default_rng(4)
    directions = random.normal(size=(3, 12, 1, 3))
    directions /= np.linalg.norm(directions, axis=-1, keepdims=True)
    universe = universe_of(tmp_path, directions * 2.5 * np.arange(20)[:, None])
    run = PersistenceLength(universe.atoms).run()
    found = run.results
    np.testing.assert_allclose(found.bond_autocorrelation, 1, rtol=1e-5)
    assert found.lp == np.inf
    assert np.isnan(found.lp_interval)
    assert found.exponent == pytest.approx(2, rel=1e-5)
    np.testing.assert_allclose(found.internal_distances, (2.5 * np.arange(1, 20)) ** 2, rtol=1e-5)
    np.testing.assert_allclose(found.characteristic_ratio, np.arange(1, 20), rtol=1e-5)
    assert "persistence length: infinite" in str(run.results.provenance).replace("'", "")
    sizes = Polymer(universe.atoms, weights=None).run().results
    np.testing.assert_allclose(sizes.end_to_end, 47.5, rtol=1e-6)
    assert sizes.ratio == pytest.approx(12 * 19 / 21, rel=1e-5)  # 12 N / (N + 2) for N bonds


def test_chains_of_unequal_lengths(tmp_path):
    random = np.random.default_rng(5)
    frames = walk(random, 1, 29, 1.0)[None]
    bonds = [(k, k + 1) for k in range(29) if k not in (3, 11)]
    universe = universe_of(tmp_path, frames, bonds=bonds)
    at = frames[0, 0]
    parts = [at[:4], at[4:12], at[12:]]
    found = PersistenceLength(universe.atoms, fit_range=(0, 3)).run().results
    assert found.fit_range.tolist() == [0, 3]
    directions = [np.diff(one, axis=0) for one in parts]
    for n in range(17):
        some = [one[: len(one) - n] * one[n:] for one in directions if len(one) > n]
        wanted = np.concatenate([one.sum(axis=1) for one in some]).mean()
        assert found.bond_autocorrelation[n] == pytest.approx(wanted, abs=1e-5)
        some = [((one[n + 1 :] - one[: -n - 1]) ** 2).sum(1) for one in parts if len(one) > n + 1]
        assert found.internal_distances[n] == pytest.approx(np.concatenate(some).mean(), rel=1e-5)
    assert np.isnan(found.lp_interval)  # three chains in a single frame


def test_correlation_and_fit_are_those_of_mdanalysis():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = MDAnalysis.Universe(TRZ_psf, TRZ)
        chains = [
            theirs_module.sort_backbone(one.select_atoms("not name O* H*"))
            for one in theirs.atoms.fragments
        ]
        wanted = theirs_module.PersistenceLength(chains).run().results
        universe = paceline.Universe(TRZ_psf, TRZ)
        last = len(chains[0]) - 2
        for given in (
            universe.select_atoms("not name O* H*"),
            [universe.atoms[one.indices] for one in chains],
        ):
            found = PersistenceLength(given, fit_range=(0, last)).run().results
            np.testing.assert_allclose(
                found.bond_autocorrelation, wanted.bond_autocorrelation, atol=5e-6
            )
            # MDAnalysis uses the bond length of the first frame.
            assert found.lp / found.lb == pytest.approx(wanted.lp / wanted.lb, rel=1e-5)
            first = PersistenceLength(given).run(stop=1).results
            assert first.lb == pytest.approx(wanted.lb, rel=1e-5)


def test_the_autocorrelation_of_vectors_by_brute_force(tmp_path):
    random = np.random.default_rng(6)
    frames = np.stack([walk(random, 12, 5, 1.0)] * 40)
    frames += np.cumsum(random.normal(size=frames.shape), axis=0)
    run = Polymer(universe_of(tmp_path, frames).atoms).run()
    times, found, interval = run.autocorrelation()
    vectors = run.results.end_to_end_vectors
    wanted = [(vectors[lag:] * vectors[: 40 - lag]).sum(2).mean() for lag in range(40)]
    np.testing.assert_allclose(found, np.array(wanted) / wanted[0], atol=1e-10)
    np.testing.assert_array_equal(times, np.arange(40.0))
    assert (interval[1:] > 0).all()
    assert set(run.further_tables()) == {"histogram", "means"}
    histogram = run.further_tables()["histogram"].columns
    edges = np.diff(histogram["end-to-end distance (Å)"])[0]
    assert (histogram["probability density (Å⁻¹)"] * edges).sum() == pytest.approx(1)
    unordered = Polymer(run.atomgroup).run(frames=[0, 1, 5])
    with pytest.raises(UnsupportedError, match="equal intervals"):
        unordered.autocorrelation()


def test_rings_branches_and_single_atoms_are_refused(tmp_path):
    frames = walk(np.random.default_rng(7), 1, 9, 1.0)[None]
    path = [(k, k + 1) for k in range(9)]

    def refused(bonds, match, **options):
        folder = tmp_path / re.sub(r"\W", "", match)
        folder.mkdir()
        atoms = universe_of(folder, frames, bonds=bonds).atoms
        for cls in (Polymer, PersistenceLength):
            with pytest.raises(SelectionError, match=match):
                cls(atoms, **options)
        return atoms

    refused([*path, (0, 9)], "rings, which have no ends")
    refused([*path[:5], (0, 5), *path[6:]], "bonded to rings")
    atoms = refused([*path[:8], (3, 9)], "1 selected atom is bonded to more than two")
    assert len(Polymer(atoms[:9]).run().results.end_to_end[0]) == 1
    refused(path[:8], "1 selected atom is not bonded to another")
    refused([path[0], *path[2:]], "1 of 2 chains .* less than 3 selected atoms")
    with pytest.raises(SelectionError, match="more than once"):
        Polymer([atoms[:5], atoms[4:9]])
    with pytest.raises(SelectionError, match="no chains"):
        PersistenceLength([])
    with pytest.raises(ValueError, match="chains must be 'bonds'"):
        Polymer(atoms, chains="molecules")
    for wrong in ((2, 1), (-1, 3), (0, 8)):
        with pytest.raises(ValueError, match="fit_range must be two separations"):
            PersistenceLength(atoms[:9], fit_range=wrong)


def test_atoms_at_one_place_are_an_error(tmp_path):
    frames = np.stack([walk(np.random.default_rng(8), 2, 5, 1.0)] * 3)
    frames[1, 1, 3] = frames[1, 1, 2]
    universe = universe_of(tmp_path, frames)
    with pytest.raises(AnalysisError, match="frame 1: adjacent atoms"):
        PersistenceLength(universe.atoms).run()
    assert len(PersistenceLength(universe.atoms).run(frames=[0, 2]).results.x) == 5


def test_chains_of_groups_without_bonds(adk):
    """Check Cα atoms without bonds between them: a chain in the order of the topology."""
    universe = paceline.Universe(*adk)
    calpha = universe.select_atoms("name CA")
    with pytest.raises(SelectionError, match=r"214 selected atoms are not bonded .*--chains"):
        Polymer(calpha)
    found = [Polymer(calpha, chains=one).run(stop=3).results for one in ("segments", "fragments")]
    at = [calpha.positions[[0, -1]].astype(float) for _ in universe.trajectory[:3]]
    wanted = [np.linalg.norm(last - first) for first, last in at]
    np.testing.assert_allclose(found[0].end_to_end[:, 0], wanted, rtol=1e-6)
    np.testing.assert_array_equal(found[0].end_to_end, found[1].end_to_end)


def test_broken_chains_are_noted_and_made_whole(tmp_path):
    """Check a cell of 20 Å, with adjacent chains or not."""
    whole = np.stack([walk(np.random.default_rng(k), 15, 29, 1.0) for k in range(4)])
    whole += np.random.default_rng(5).uniform(0, 20, (1, 15, 1, 3))
    cell = [20, 20, 20, 90, 90, 90]
    universe = universe_of(tmp_path, whole % 20, cell=cell)
    with pytest.warns(PacelineWarning, match="a molecule is broken across the cell in 4 of 4"):
        Polymer(universe.atoms).run()
    with warnings.catch_warnings():
        warnings.simplefilter("error", PacelineWarning)
        found = Polymer(universe.atoms).run(transforms=[paceline.transform.unwrap()]).results
    wanted = np.linalg.norm(whole[:, :, -1] - whole[:, :, 0], axis=2)
    np.testing.assert_allclose(found.end_to_end, wanted, atol=1e-4)


def test_chains_that_hold_several_molecules_are_noted(tmp_path):
    frames = walk(np.random.default_rng(9), 1, 49, 1.0)[None]
    frames[:, :, 20:] += 30
    bonds = [(k, k + 1) for k in range(49) if k != 19]
    universe = universe_of(tmp_path, frames, bonds=bonds)
    for cls in (Polymer, PersistenceLength):
        with pytest.warns(
            PacelineWarning, match=r"adjacent atoms of a chain are up to 5\d.* apart"
        ):
            cls(universe.atoms, chains="segments").run()
        with warnings.catch_warnings():
            warnings.simplefilter("error", PacelineWarning)
            assert cls(universe.atoms, chains="fragments").run().results


def test_small_molecules_among_the_chains_are_noted(tmp_path):
    frames = walk(np.random.default_rng(9), 1, 49, 1.0)[None]
    bonds = [(k, k + 1) for k in range(49) if k != 2]
    universe = universe_of(tmp_path, frames, bonds=bonds)
    with pytest.warns(PacelineWarning, match="2 chains of 3 to 47 atoms"):
        run = Polymer(universe.atoms).run()
    assert "2 chains of 3 to 47 atoms" in run.results.provenance["warnings"]


def test_commands_write_tables_and_figures(run, tmp_path):
    files = [TRZ_psf, TRZ, "--select", "not name O* H*"]
    names = {one: tmp_path / f"{one}.csv" for one in ("histogram", "means", "correlation")}
    further = [word for name, path in names.items() for word in (f"--{name}", path)]
    table, figure = tmp_path / "chains.csv", tmp_path / "chains.png"
    status, _, err = run("polymer", *files, *further, "-o", table, "--plot", figure)
    assert status == 0, err
    assert figure.stat().st_size > 1000
    read = {one: pd.read_csv(path, comment="#") for one, path in names.items()}
    assert len(read["means"]) == 24
    assert read["correlation"].iloc[0, 1] == 1
    universe = paceline.Universe(TRZ_psf, TRZ)
    wanted = Polymer(universe.select_atoms("not name O* H*")).run().results
    series = pd.read_csv(table, comment="#", float_precision="round_trip")
    np.testing.assert_array_equal(
        series["mean end-to-end distance (Å)"], wanted.end_to_end.mean(axis=1)
    )
    distances = tmp_path / "distances.svg"
    fit = tmp_path / "fit.csv"
    words = ["--fit-range", 1, 6, "--distances", distances, "-o", fit]
    status, _, err = run("persistence-length", *files, *words)
    assert status == 0, err
    assert "# fit: 1 to 6 bonds" in fit.read_text(encoding="utf-8")
    shown = pd.read_csv(fit, comment="#")["fitted exponential"]
    assert np.flatnonzero(shown.notna()).tolist() == [1, 2, 3, 4, 5, 6]
    assert "$\\mathdefault{10^{2}}$" in distances.read_text(encoding="utf-8")
    # A saved table is drawn with the same axes.
    table, again = tmp_path / "distances.csv", tmp_path / "again.svg"
    assert run("persistence-length", *files, "--distances", table, "-o", "-")[0] == 0
    assert run("plot", table, "-o", again)[0] == 0
    assert "$\\mathdefault{10^{2}}$" in again.read_text(encoding="utf-8")
    status, _, err = run("polymer", TRZ_psf, TRZ, "--select", "all")
    assert status != 0
    assert "branched" in err
