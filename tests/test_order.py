"""Tests of order parameters: known directions, and lipids by the definition."""

import MDAnalysis
import numpy as np
import pandas as pd
import pytest
from MDAnalysis.lib.distances import minimize_vectors
from MDAnalysisTests.datafiles import Martini_membrane_gro
from scipy import stats

import paceline
from paceline.analysis.order import SCH, OrderParameter
from paceline.analysis.results import Results, further_results
from paceline.analysis.saved_table_format import read_saved
from paceline.analysis.uncertainty import mean_of_series
from paceline.errors import AnalysisError, SelectionError, UnsupportedError

CELL = [10, 12, 14, 90, 90, 90]


def made(folder, frames, names, bonds=None, cell=CELL, masses=None):
    """Return a Universe with these positions."""
    universe = MDAnalysis.Universe.empty(len(names), trajectory=True)
    universe.add_TopologyAttr("names", names)
    if masses is not None:
        universe.add_TopologyAttr("masses", masses)
    if bonds is not None:
        universe.add_TopologyAttr("bonds", bonds)
    path = str(folder / "made.trr")
    with MDAnalysis.Writer(path, len(names)) as writer:
        for time, positions in enumerate(frames):
            universe.atoms.positions = positions
            universe.dimensions = cell
            universe.trajectory.ts.time = time
            writer.write(universe.atoms)
    return paceline.Universe(universe._topology, path)


#: A carbon, and hydrogens along z, along -z across the boundary of the cell, along x, and at 60°.
SPOKES = np.array([[1, 1, 1], [1, 1, 2], [1, 1, 13.5], [9.5, 1, 1], [1, 1 + 0.75**0.5, 1.5]])


@pytest.mark.parametrize(
    ("axis", "wanted"),
    [
        ("z", [1, 1, -0.5, -0.125]),
        ("x", [-0.5, -0.5, 1, -0.5]),
        ((0, 0, -3.0), [1, 1, -0.5, -0.125]),
        ([1, 0, 1], [0.25, 0.25, 0.25, 1.5 * 0.125 - 0.5]),
    ],
)
def test_along_an_axis_across_it_and_between(axis, wanted, tmp_path):
    universe = made(tmp_path, [SPOKES], ["C", "H1", "H2", "H3", "H4"])
    first, second = universe.atoms[[0] * 4], universe.atoms[1:]
    found = OrderParameter(first, second, axis).run().results
    assert list(found.labels) == ["C-H1", "C-H2", "C-H3", "C-H4"]
    np.testing.assert_allclose(found.timeseries, [wanted], atol=1e-6)
    np.testing.assert_allclose(found.mean, wanted, atol=1e-6)
    together = OrderParameter(first, second, axis, labels=["b", "a", "a", "b"]).run().results
    assert list(together.labels) == ["b", "a"]
    wanted = [(wanted[0] + wanted[3]) / 2, sum(wanted[1:3]) / 2]
    np.testing.assert_allclose(together.mean, wanted, atol=1e-6)


def test_vectors_across_a_border(tmp_path):
    """Check a vector along z to the nearest image, and another direction without images."""
    universe = made(tmp_path, [[[1, 1, 1], [9.5, 1, 13.5]]], ["C", "H"])
    ends = universe.atoms[:1], universe.atoms[1:]
    # The vector is (-1.5, 0, -1.5), or (8.5, 0, 12.5) without images.
    assert OrderParameter(*ends).run().results.mean[0] == pytest.approx(0.25, abs=1e-6)
    plain = OrderParameter(*ends, pbc=False).run().results.mean[0]
    assert plain == pytest.approx(1.5 * 12.5**2 / (12.5**2 + 8.5**2) - 0.5, abs=1e-6)


def test_directions_of_no_order(tmp_path):
    directions = np.random.default_rng(6).standard_normal((30, 400, 3))
    directions /= np.linalg.norm(directions, axis=2, keepdims=True)
    frames = np.concatenate([np.zeros_like(directions), directions], axis=1)
    universe = made(tmp_path, frames, ["C"] * 400 + ["H"] * 400)
    found = OrderParameter(universe.atoms[:400], universe.atoms[400:]).run().results
    # The variance of cos² is 4/45.
    error = 1.5 * np.sqrt(4 / 45 / 12_000)
    assert abs(found.mean[0]) < 4 * error
    assert found.error[0] == pytest.approx(error, rel=0.5)
    assert found.error[0] == mean_of_series(found.timeseries[:, 0]).error


def test_carbons_and_their_hydrogens(tmp_path):
    """Check names in any order of atoms; bonds of nitrogen and oxygen are ignored."""
    names = ["H2", "C2", "N", "C1", "H1", "HN", "H3", "O", "HO", "C2"]
    masses = [1.008, 12.011, 14.007, 12.011, 1.008, 1.008, 1.008, 15.999, 1.008, 12.011]
    positions = np.ones((10, 3))
    positions[1] = [5, 5, 5]
    positions[0], positions[6] = [5, 5, 6], [6, 5, 5]  # C2: 1 and -0.5
    positions[3], positions[4] = [3, 3, 1], [3, 3, 13.2]  # C1, across the boundary: 1
    positions[2], positions[5] = [7, 7, 7], [8, 7, 7]
    positions[7], positions[8] = [2, 9, 9], [2, 9, 8]
    positions[9] = [5, 9, 9]
    bonds = [(0, 1), (1, 6), (1, 3), (3, 4), (2, 5), (7, 8), (2, 3), (7, 9)]
    universe = made(tmp_path, [positions] * 2, names, bonds, masses=masses)
    found = SCH(universe.atoms).run().results
    assert list(found.labels) == ["C2", "C1"]
    np.testing.assert_allclose(found.timeseries, [[0.25, 1]] * 2, atol=1e-6)
    one = SCH(universe.select_atoms("name C1 N")).run().results
    assert list(one.labels) == ["C1"]
    given = SCH(universe.atoms, hydrogens="name H3 H1").run().results
    np.testing.assert_allclose(given.mean, [-0.5, 1], atol=1e-6)
    heavy = universe.select_atoms("name H1 H2 H3")
    universe.add_TopologyAttr("masses", np.where(np.isin(range(10), heavy.indices), 3.0, masses))
    for known in (universe.atoms.masses, np.zeros(10)):  # unknown types have no masses
        universe.atoms.masses = known
        with pytest.raises(SelectionError, match="no carbon of 10 atoms is bonded to a hydrogen"):
            SCH(universe.atoms)
    given = SCH(universe.atoms, hydrogens=heavy).run().results
    np.testing.assert_allclose(given.mean, [0.25, 1], atol=1e-6)


def test_lipids_by_the_definition(membrane_lipids):
    theirs, ours, bonds = membrane_lipids
    tails = "resname POPE and name C2? C21? C3? C31?"
    found = SCH(ours.select_atoms(tails)).run().results
    names = theirs.atoms.names[bonds[:, 0]]
    is_pope = theirs.atoms.resnames[bonds[:, 0]] == "POPE"
    assert list(found.labels[:3]) == [
        "C22",
        "C32",
        "C23",
    ]  # in the order of the file, which has no bonds
    assert len(found.labels) == 17 + 15
    for row, ts in zip(found.timeseries, theirs.trajectory, strict=True):
        first, second = theirs.atoms.positions[bonds].astype(float).transpose(1, 0, 2)
        vectors = minimize_vectors(second - first, ts.dimensions.astype(float))
        s = 1.5 * vectors[:, 2] ** 2 / (vectors**2).sum(axis=1) - 0.5
        wanted = [s[is_pope & (names == label)].mean() for label in found.labels]
        np.testing.assert_allclose(row, wanted, atol=1e-6)
    # A fluid bilayer is ordered near the glycerol, and hardly at the ends of the tails.
    order = dict(zip(found.labels, found.mean, strict=True))
    assert -0.3 < order["C35"] < -0.15
    assert -0.1 < order["C316"] < 0


def test_lipids_of_two_kinds_are_apart(membrane_lipids):
    _, ours, _ = membrane_lipids
    found = SCH(ours.select_atoms("resname POPE POPG and name C35 C36")).run(stop=1).results
    assert set(found.labels) == {"POPE C35", "POPE C36", "POPG C35", "POPG C36"}


def test_coarse_grained_bonds():
    theirs = MDAnalysis.Universe(Martini_membrane_gro).select_atoms("resname DPPC")
    names = ["C1A", "C2A", "C3A"]
    first, second = (theirs.select_atoms(f"name {name}") for name in names[:2])
    vectors = minimize_vectors(
        second.positions.astype(float) - first.positions, theirs.universe.dimensions.astype(float)
    )
    wanted = (1.5 * vectors[:, 2] ** 2 / (vectors**2).sum(axis=1) - 0.5).mean()
    ours = paceline.Universe(Martini_membrane_gro).select_atoms("resname DPPC")
    groups = [ours.select_atoms(f"name {name}") for name in names]
    chains = OrderParameter(groups[0] + groups[1], groups[1] + groups[2]).run().results
    assert list(chains.labels) == ["C1A-C2A", "C2A-C3A"]
    assert chains.mean[0] == pytest.approx(wanted, abs=1e-6)
    assert np.isnan(chains.error).all()


def test_the_figure_has_names_of_carbons(membrane_lipids, tmp_path):
    _, ours, _ = membrane_lipids
    results = SCH(ours.select_atoms("resname POPE and name C2?")).run().results
    ax = results.plot()
    assert [text.get_text() for text in ax.get_xticklabels()] == list(results.labels)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("carbon", "\N{MINUS SIGN}S$_{CD}$")
    results.save(tmp_path / "order.csv")
    text = (tmp_path / "order.csv").read_text(encoding="utf-8")
    assert "frame,time (ps),S_CH of C22,S_CH of C23" in text
    assert "# mean of S_CH of C22: -0." in text


def test_means_have_the_intervals_of_the_figure(membrane_lipids, tmp_path):
    _, ours, _ = membrane_lipids
    found = SCH(ours.select_atoms("resname POPE and name C2?")).run()
    (table,) = further_results(found).values()
    table.save(tmp_path / "means.csv")
    means = pd.read_csv(tmp_path / "means.csv", comment="#", float_precision="round_trip")
    assert means.carbon.tolist() == found.results.labels.tolist()
    for row, series in zip(means.itertuples(index=False), found.results.timeseries.T, strict=True):
        known = mean_of_series(series)
        wanted = (known.mean, -known.mean, known.error, known.interval, known.n_independent)
        np.testing.assert_allclose(row[1:], wanted, rtol=1e-12)
    saved = Results(table=read_saved(tmp_path / "means.csv").table())
    for ax in (found.results.plot(), table.plot(), saved.plot()):
        (bars,) = ax.containers
        points, _, (lines,) = bars.lines
        np.testing.assert_array_equal(points.get_ydata(), means["-S_CD"])
        ends = np.array([one[:, 1] for one in lines.get_segments()])
        half = means["95 % interval"].to_numpy()
        np.testing.assert_allclose(ends.mean(axis=1), means["-S_CD"], rtol=1e-12)
        np.testing.assert_allclose(np.ptp(ends, axis=1), 2 * half, rtol=1e-9)
        assert [" ".join(one.get_text().split()) for one in ax.get_legend().get_texts()] == [
            "mean and 95 % interval, 8 of 8 not converged"
        ]


def test_intervals_are_those_of_correlated_frames(tmp_path):
    """Check directions that persist for ten frames, so that one frame in ten is independent."""
    directions = np.random.default_rng(2).standard_normal((300, 1, 3)).repeat(10, axis=0)
    frames = np.concatenate([np.zeros_like(directions), directions], axis=1)
    universe = made(tmp_path, frames, ["C", "H"])
    found = OrderParameter(universe.atoms[:1], universe.atoms[1:]).run()
    blocks = found.results.timeseries[::10, 0]
    wanted = stats.t.ppf(0.975, 299) * stats.sem(blocks)
    assert found.results.interval[0] == pytest.approx(wanted, rel=0.25)
    means = found.further_tables()["means"]
    assert means.columns["independent values"][0] == pytest.approx(300, rel=0.35)
    assert means.columns["95 % interval"][0] == found.results.interval[0]


def test_frames_that_were_left_out(damaged):
    system, frames = damaged
    group = paceline.Universe(*system).select_atoms("resname LYS")
    ends = group.select_atoms("name CB"), group.select_atoms("name CG")
    found = OrderParameter(*ends).run(on_error="skip").results
    left_out = np.isin(np.arange(98), frames)
    np.testing.assert_array_equal(np.isnan(found.timeseries[:, 0]), left_out)
    assert found.mean[0] == pytest.approx(found.timeseries[~left_out, 0].mean())


def test_what_is_refused(tmp_path, universe):
    lysines = universe.select_atoms("resname LYS")
    first, second = (lysines.select_atoms(f"name {name}") for name in ("CB", "CG"))
    with pytest.raises(SelectionError, match="ag1: 18, ag2: 17"):
        OrderParameter(first, second[:-1])
    with pytest.raises(SelectionError, match="ag1 contains no atoms"):
        OrderParameter(first[:0], second[:0])
    with pytest.raises(SelectionError, match=f"vector 0 is from atom {first.indices[0]} to itself"):
        OrderParameter(first, first)
    with pytest.raises(UnsupportedError, match="same Universe"):
        OrderParameter(first, paceline.Universe.empty(18).atoms)
    with pytest.raises(UnsupportedError, match="UpdatingAtomGroup"):
        OrderParameter(first, universe.select_atoms("around 3 index 0", updating=True))
    with pytest.raises(ValueError, match="expected 18 labels, one per vector, found 1"):
        OrderParameter(first, second, labels=["all"])
    for axis in ("w", (0, 0, 0), (1, 0), (np.nan, 0, 1)):
        with pytest.raises(ValueError, match="axis must be"):
            OrderParameter(first, second, axis)
    with pytest.raises(UnsupportedError, match="SCH needs bonds"):
        SCH(paceline.Universe(Martini_membrane_gro).atoms)
    with pytest.raises(UnsupportedError, match="needs names"):
        SCH(MDAnalysis.Universe.empty(2, trajectory=True).atoms)
    pair = made(tmp_path, [[[1, 1, 1], [1, 1, 1]]], ["C", "H"])
    with pytest.raises(AnalysisError, match="frame 0: both atoms of vector 0 are at the same"):
        OrderParameter(pair.atoms[:1], pair.atoms[1:]).run()
