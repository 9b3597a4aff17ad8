"""Tests of rotamers against MDTraj, counts by hand, and atoms placed at known angles."""

import matplotlib
import MDAnalysis
import mdtraj
import numpy as np
import pandas as pd
import pytest
from test_dihedrals import chain, written

import paceline
from paceline.analysis.dihedrals import ChiAngles, Dihedral
from paceline.analysis.rotamers import Rotamers
from paceline.analysis.saved_table_format import read_saved
from paceline.analysis.uncertainty import limits_of_fractions, mean_of_series
from paceline.errors import PacelineWarning, SelectionError

matplotlib.use("Agg")

#: Symmetric side chains.
FOLDED = {("PHE", 2), ("TYR", 2), ("ASP", 2), ("GLU", 3), ("ARG", 5)}


def angles_of_mdtraj(adk):
    """Return MDTraj's angles, degrees, by number of χ and index of the second atom (CA for χ1)."""
    trajectory = mdtraj.load_dcd(adk.trajectory, top=mdtraj.load_psf(adk.topology))
    found = {}
    for number in range(1, 6):
        atoms, angles = getattr(mdtraj, f"compute_chi{number}")(trajectory, periodic=False)
        found |= {
            (number, *four): np.degrees(one) for four, one in zip(atoms, angles.T, strict=True)
        }
    return found


@pytest.mark.filterwarnings("ignore:.*header says")
def test_populations_are_those_of_mdtraj_s_angles(adk):
    universe = paceline.Universe(*adk)
    analysis = Rotamers(universe.atoms, max_chi=5).run()
    found, theirs = analysis.results, angles_of_mdtraj(adk)
    atoms = np.column_stack([g.indices for g in (analysis.ag1, analysis.ag2, analysis.ag3)])
    last = analysis.ag4.indices
    assert len(theirs) == len(found.chi)
    for k, (number, index) in enumerate(zip(found.chi, found.resindices, strict=True)):
        angle = theirs[number, *atoms[k], last[k]].astype(float)
        is_folded = (universe.residues[index].resname, number) in FOLDED
        assert found.folded[k] == is_folded
        turn = 180 if is_folded else 360
        off = (found.angles[:, k] - angle + turn / 2) % turn - turn / 2
        np.testing.assert_allclose(off, 0, atol=2e-4)  # single precision
        # MDTraj's angles, on the same side of a limit.
        angle = found.angles[:, k] - off
        edges = [30, 150] if is_folded else [120, 240]
        states = np.digitize(angle, edges)
        if is_folded:
            states[states == 2] = 0
            wanted = [np.nan] * 3 + [(states == 1).mean(), (states == 0).mean()]
        else:
            wanted = [(states == one).mean() for one in range(3)] + [np.nan] * 2
        near = np.abs(angle[:, None] - edges).min() < 2e-4
        np.testing.assert_allclose(found.populations[k], wanted, atol=0.05 if near else 1e-12)
        if near:
            continue
        n_changes = np.count_nonzero(np.diff(states))
        assert found.transitions[k] == n_changes
        assert found.rates[k] == pytest.approx(n_changes / 0.097)  # frames are 1 ps apart
        counts, _ = np.histogram(angle, np.arange(0, turn + 1, 5))
        np.testing.assert_allclose(found.histogram[: turn // 5, k].sum(), 1)
        assert np.abs(found.histogram[: turn // 5, k] - counts / 98).max() < 0.03
        assert np.isnan(found.histogram[turn // 5 :, k]).all()
    assert found.transitions.max() > 5


def test_intervals_are_those_of_series(universe):
    found = Rotamers(universe.select_atoms("protein")).run().results
    n_states = np.sum(found.populations > 0, axis=1)
    moving = np.flatnonzero(n_states > 1)
    assert len(moving) > 20
    assert n_states.max() == 3
    for k in moving:
        least = np.inf
        for state in np.flatnonzero(found.populations[k] > 0):
            angle = found.angles[:, k]
            numbers = angle // 120
            if found.folded[k]:
                numbers = np.where((angle >= 30) & (angle < 150), 3, 4)
            wanted = mean_of_series(numbers == state)
            assert found.populations[k, state] == pytest.approx(wanted.mean)
            limits = limits_of_fractions(wanted.mean, wanted.interval)
            assert found.intervals[k, state] == pytest.approx(limits)
            least = min(least, wanted.n_independent)
        assert found.independent[k] == pytest.approx(least)
    constant = found.transitions == 0
    assert np.isnan(found.intervals[constant]).all()
    assert np.isnan(found.independent[constant]).all()
    assert (np.nanmax(found.populations[constant], axis=1) == 1).all()


BORDERS = {
    0: "gauche+",
    60: "gauche+",
    119.9: "gauche+",
    120.1: "trans",
    180: "trans",
    -120.1: "trans",
    -119.9: "gauche-",
    -60: "gauche-",
    -0.1: "gauche-",
}


@pytest.mark.parametrize("degrees", BORDERS)
def test_states_are_thirds_of_the_turn(degrees, tmp_path):
    universe = written(tmp_path, [chain(degrees)] * 4)
    table = Dihedral([universe.atoms]).run().further_tables()["populations"]
    state = BORDERS[degrees]
    assert [table.columns[name].tolist() for name in table.y] == [
        [float(name == state)] for name in ("gauche+", "trans", "gauche-")
    ]


def residue(name, atoms, frames, tmp_path):
    """Return a Universe of one residue with these positions in each frame."""
    universe = MDAnalysis.Universe.empty(
        len(atoms), n_residues=1, atom_resindex=[0] * len(atoms), trajectory=True
    )
    for attribute, values in (("names", atoms), ("resnames", [name]), ("resids", [7])):
        universe.add_TopologyAttr(attribute, values)
    path = str(tmp_path / "one.dcd")
    with MDAnalysis.Writer(path, len(atoms), dt=2.0) as writer:
        for positions in np.asarray(frames, np.float32):
            universe.atoms.positions = positions
            writer.write(universe.atoms)
    return paceline.Universe(universe._topology, path)


#: Atoms besides N, CA and CB that could define χ1, and the one that does.
CHI1 = {
    "VAL": (["CG2", "CG1"], "CG1"),
    "ILE": (["CG2", "CG1"], "CG1"),
    "THR": (["CG2", "OG1"], "OG1"),
    "SER": (["HB1", "OG"], "OG"),
    "CYS": (["HB1", "SG"], "SG"),
    "PRO": (["CD", "CG"], "CG"),
}


@pytest.mark.parametrize("name", CHI1)
def test_chi1_goes_to_the_atom_of_iupac(name, tmp_path):
    others, last = CHI1[name]
    frame = [*chain(-60), chain(60)[3]]  # the first candidate is at -60°, the last at 60°
    universe = residue(name, ["N", "CA", "CB", *others], [frame] * 4, tmp_path)
    analysis = Rotamers(universe.atoms, max_chi=1).run()
    assert (others[1], analysis.ag4.names.tolist()) == (last, [last])
    np.testing.assert_array_equal(analysis.results.populations[0, :3], [1, 0, 0])


@pytest.mark.parametrize(
    ("name", "more", "folded"),
    [
        ("PHE", [], True),
        ("TYR", [], True),
        ("CTYR", [], True),
        ("ASP", [], True),
        ("NASP", [], True),
        ("ASP", ["HD2"], False),  # protonated
        ("ASH", ["HD2"], False),
        ("ASN", [], False),
        ("TRP", [], False),
    ],
)
def test_symmetric_groups_are_folded(name, more, folded, tmp_path):
    first, second = ("OD1", "OD2") if name[-3:] in ("ASP", "ASH", "ASN") else ("CD1", "CD2")
    # Frames differ by the names of two equivalent atoms, which a rotation by 180° exchanges.
    angles = [80, -100, 80, -100, 85, 80]
    frames = [[*chain(angle), chain(angle + 180)[3], *[[5, 5, 5]] * len(more)] for angle in angles]
    names = ["CA", "CB", "CG", first, second, *more]
    found = Rotamers(residue(name, names, frames, tmp_path).atoms).run().results
    assert (found.chi.tolist(), found.folded.tolist()) == ([2], [folded])
    if folded:
        np.testing.assert_allclose(found.angles[:, 0], [80, 80, 80, 80, 85, 80], atol=1e-3)
        np.testing.assert_array_equal(found.populations[0, 3:], [1, 0])
        assert found.transitions[0] == 0
        assert "1 of symmetric groups" in found.findings["dihedral angles"]
    else:
        np.testing.assert_array_equal(found.populations[0, :3], [4 / 6, 0, 2 / 6])
        assert found.transitions[0] == 4
        assert found.rates[0] == pytest.approx(4 / 0.010)


def test_residues_without_angles_are_counted(universe):
    found = Rotamers(universe.select_atoms("protein")).run(stop=5).results
    names = universe.select_atoms("protein").residues.resnames.tolist()
    n_without = names.count("ALA") + names.count("GLY")
    sentence = found.findings["left out"]
    assert sentence.startswith(f"{n_without} of 214 residues have no χ (")
    assert f"{names.count('GLY')} GLY" in sentence
    assert (
        "left out" not in Rotamers(universe.select_atoms("resid 13")).run(stop=2).results.findings
    )


def test_frames_out_of_order_have_no_intervals(universe):
    analysis = Rotamers(universe.select_atoms("resid 13-30"))
    with pytest.warns(PacelineWarning, match="frames are not in the order of time"):
        found = analysis.run(frames=[50, 3, 97, 20, 8, 31]).results
    assert np.isnan(found.intervals).all()
    assert np.isnan(found.rates).all()
    assert not found.transitions.any()
    ordered = analysis.run(frames=[3, 8, 20, 31, 50, 97]).results
    np.testing.assert_array_equal(found.populations, ordered.populations)
    assert ordered.transitions.any()
    assert "order" not in ordered.provenance.get("warnings", "")


def test_nan_angles_do_not_count(tmp_path):
    frames = np.array([chain(angle) for angle in (60, 60, 180, 180, 60, 60)])
    frames[3, 0] = np.nan
    universe = written(tmp_path, frames)
    table = Dihedral([universe.atoms]).run().further_tables()["populations"]
    assert table.columns["gauche+"][0] == pytest.approx(4 / 5)
    assert table.columns["transitions"].tolist() == [2]
    assert "1 are NaN in some frames" in table.notes["dihedral angles"]


def test_a_table_has_a_row_for_each_angle(universe, tmp_path):
    found = Rotamers(universe.select_atoms("resid 13 19 31")).run().results
    found.save(tmp_path / "a.csv")
    rows = pd.read_csv(tmp_path / "a.csv", comment="#")
    assert rows[["residue", "name", "chi"]].to_numpy().tolist() == [
        [13, "LYS", 1],
        [13, "LYS", 2],
        [19, "PHE", 1],
        [19, "PHE", 2],
        [31, "THR", 1],
    ]
    np.testing.assert_array_equal(rows["trans"], found.populations[:, 1])
    limits = rows[["trans, 95 % from", "trans, 95 % to"]]
    np.testing.assert_array_equal(limits, found.intervals[:, 1])
    np.testing.assert_array_equal(rows["perpendicular"], found.populations[:, 3])
    three = Rotamers(universe.select_atoms("resid 13")).run(stop=9).results.table
    assert [*three.y] == ["gauche+", "trans", "gauche-"]


def test_few_residues_have_a_panel_each_and_many_a_map(universe, tmp_path):
    few = Rotamers(universe.select_atoms("resid 13 19 31")).run().results
    axes = few.plot(title="Three", figsize="8x12cm").figure.axes
    assert [ax.get_ylabel().split("\n")[-1] for ax in axes] == ["LYS 13", "PHE 19", "THR 31"]
    assert [len(ax.lines) for ax in axes] == [2, 2, 1]
    assert [ax.get_legend() is not None for ax in axes] == [True, False, False]
    assert [ax.get_title(loc="left") for ax in axes] == ["Three", "", ""]
    assert axes[0].figure.get_size_inches()[1] == pytest.approx(12 / 2.54)
    x, y = axes[1].lines[1].get_data()  # χ2 of PHE, from 0 to 180°
    assert np.nanmax(x[~np.isnan(y)]) == 182.5
    np.testing.assert_allclose(y[1:37], few.histogram[:36, 3])
    many = Rotamers(universe.select_atoms("protein")).run(stop=20).results
    axes = many.plot().figure.axes
    first, second = (ax.collections[0].get_array() for ax in axes[:2])
    np.testing.assert_array_equal(first.filled(-1), many.histogram[:, many.chi == 1].T)
    assert second.shape == (np.count_nonzero(many.chi == 2), 72)
    many.save(tmp_path / "a.npz")
    again = read_saved(tmp_path / "a.npz").table()
    np.testing.assert_array_equal(again.panels[1].states.numbers, many.histogram[:, many.chi == 2])
    many.save(tmp_path / "a.csv")
    with pytest.raises(paceline.errors.UnsupportedError, match=r"draw the \.npz"):
        read_saved(tmp_path / "a.csv").table()


def test_the_command(adk, tmp_path, run_with_answer):
    table, figure = tmp_path / "a.csv", tmp_path / "a.svg"
    given = ["--select", "resid 13 19", "--max-chi", 1, "-o", table, "--plot", figure]
    status, _, err = run_with_answer(
        "rotamers", *adk, *given, "--label", "chi one", "--title", "Side chains"
    )
    assert status == 0
    assert "2 of 2 angles change their state" in err
    assert len(pd.read_csv(table, comment="#")) == 2
    assert "# max_chi: 1" in table.read_text("utf-8").splitlines()
    drawn = figure.read_text("utf-8")
    assert all(text in drawn for text in (">Side chains<", "LYS 13", "angle (°)", ">chi one<"))
    four = [f"--select{k}" for k in ("", "-2", "-3", "-4")]
    names = [f"resid 13 and name {name}" for name in ("N", "CA", "CB", "CG")]
    given = [word for pair in zip(four, names, strict=True) for word in pair]
    populations = tmp_path / "b.csv"
    assert run_with_answer("dihedrals", *adk, *given, "--populations", populations)[0] == 0
    one, other = (pd.read_csv(path, comment="#") for path in (table, populations))
    assert other["trans"][0] == one["trans"][0]
    assert run_with_answer("dihedrals", *adk, *given, "--populations", tmp_path / "b.svg")[0] == 0


def test_what_is_refused(universe):
    with pytest.raises(ValueError, match="max_chi"):
        Rotamers(universe.atoms, max_chi=6)
    with pytest.raises(SelectionError, match="Rotamers: no residue"):
        Rotamers(universe.select_atoms("resname ALA GLY"))
    chi = ChiAngles(universe.select_atoms("protein"))
    assert len(Rotamers(universe.select_atoms("protein"), max_chi=5).chi) == len(chi.chi)
