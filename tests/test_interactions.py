"""Tests of interaction fingerprints against loops over all frames, and of excluded pairs."""

import MDAnalysis
import numpy as np
import pytest
from MDAnalysis.lib.distances import distance_array

import paceline
from paceline.analysis.hydrogenbonds import HydrogenBondAnalysis
from paceline.analysis.interactions import interaction_fingerprint
from paceline.analysis.neighbors import CoordinationNumbers, NeighborList
from paceline.errors import NotRunError, UnsupportedError


def kinds_of(universe):
    acidic = universe.select_atoms("resname ASP GLU and name OE* OD*")
    basic = universe.select_atoms("resname ARG LYS and name NH* NZ")
    carbons = universe.select_atoms("resname ALA VAL LEU ILE and name CB CG* CD*")
    return {
        "salt bridge": NeighborList(basic, acidic, cutoff=4.0),
        "hydrogen bond": HydrogenBondAnalysis(universe, between=["resid 1:60", "all"]),
        "hydrophobic": NeighborList(carbons, cutoff=4.5),
    }


def test_fingerprints_are_those_of_loops(universe, theirs):
    kinds = kinds_of(universe)
    paceline.run(list(kinds.values()), step=7)
    results = interaction_fingerprint(kinds)
    wanted, residues = set(), universe.atoms.resindices
    hbonds = kinds["hydrogen bond"].results.hbonds
    bonds = {(int(row[0]), *sorted(residues[row[[1, 3]].astype(int)])) for row in hbonds}
    wanted |= {(*bond, "hydrogen bond") for bond in bonds if bond[1] != bond[2]}
    for ts in theirs.trajectory[::7]:
        for kind in ("salt bridge", "hydrophobic"):
            groups = list(kinds[kind]._groups.values())
            first, second = groups[0].indices, groups[-1].indices
            near = distance_array(ts.positions[first], ts.positions[second]) <= kinds[kind].cutoff
            for i, j in zip(*np.nonzero(near), strict=True):
                pair = sorted((residues[first[i]], residues[second[j]]))
                if pair[0] != pair[1]:
                    wanted.add((ts.frame, *pair, kind))
    found = set()
    for row, column in zip(*np.nonzero(results.fingerprint), strict=True):
        found.add((results.frames[row], *results.residues[column], results.kinds[column]))
    assert found == wanted
    assert {one[3] for one in found} == set(kinds)
    order = list(kinds)
    columns = [
        (*pair, order.index(kind))
        for pair, kind in zip(results.residues.tolist(), results.kinds, strict=True)
    ]
    assert columns == sorted(set(columns))
    assert results.fingerprint.any(axis=0).all()
    np.testing.assert_array_equal(results.fractions, results.fingerprint.mean(axis=0))
    np.testing.assert_array_equal(results.times, kinds["salt bridge"].times)


def test_a_fingerprint_is_a_table(universe, tmp_path):
    kinds = kinds_of(universe)
    paceline.run(list(kinds.values()), stop=9)
    results = interaction_fingerprint(kinds)
    table = results.to_dataframe()
    assert table.shape == (9, 2 + len(results.kinds))
    column = results.fractions.argmax()
    first, second = universe.residues[results.residues[column]]
    title = f"{first.resname} {first.resid}–{second.resname} {second.resid} {results.kinds[column]}"
    assert table[title].tolist() == results.fingerprint[:, column].tolist()
    results.save(tmp_path / "interactions.csv")
    head = (tmp_path / "interactions.csv").read_text().split("\nframe,")[0]
    assert "# kind salt bridge: NeighborList; " in head
    assert "cutoff: 4.0" in head
    ax = results.plot()
    assert ax.get_yticklabels()[0].get_text() == title
    assert ax.get_xlabel() == "fraction of frames"


def test_residues_of_the_same_name_have_columns_of_their_own():
    """Check a dimer, and residues of one segment with repeated numbers."""
    made = MDAnalysis.Universe.empty(
        *(6, 6, 2), atom_resindex=range(6), residue_segindex=[0, 0, 1, 1, 1, 1], trajectory=True
    )
    made.add_TopologyAttr("segids", ["A", "B"])
    made.add_TopologyAttr("resnames", ["ALA", "GLY", "ALA", "GLY", "SER", "SER"])
    made.add_TopologyAttr("resids", [1, 2, 1, 2, 3, 3])
    made.atoms.positions = np.arange(18).reshape(6, 3) / 3
    results = interaction_fingerprint({"near": NeighborList(made.atoms, cutoff=2).run()})
    assert list(results.table.columns)[2:] == [
        "A ALA 1–A GLY 2 near",
        "A GLY 2–B ALA 1 near",
        "B ALA 1–B GLY 2 near",
        "B GLY 2–4 B SER 3 near",
        "4 B SER 3–5 B SER 3 near",
    ]
    unnamed = MDAnalysis.Universe.empty(2, 2, atom_resindex=[0, 1], trajectory=True)
    results = interaction_fingerprint({"near": NeighborList(unnamed.atoms, cutoff=2).run()})
    assert list(results.table.columns)[2:] == ["0–1 near"]


def test_frames_that_were_left_out_have_no_fingerprint(damaged):
    system, frames = damaged
    kinds = kinds_of(paceline.Universe(*system))
    paceline.run(list(kinds.values()), on_error="skip")
    results = interaction_fingerprint(kinds)
    lost = np.isnan(results.fingerprint)
    assert lost.all(axis=1).sum() == lost.any(axis=1).sum() == len(frames)
    np.testing.assert_allclose(results.fractions, np.nanmean(results.fingerprint, axis=0))


def test_no_interactions_make_no_columns(universe):
    far = NeighborList(universe.select_atoms("name CA"), cutoff=1.0).run(stop=3)
    results = interaction_fingerprint({"near": far})
    assert results.fingerprint.shape == (3, 0)
    assert results.residues.shape == (0, 2)
    assert results.to_dataframe().shape == (3, 2)
    results.plot()


def test_what_makes_no_fingerprint(universe, adk):
    carbons = universe.select_atoms("name CA")
    one = NeighborList(carbons, cutoff=6.0)
    with pytest.raises(TypeError, match="an analysis for each kind, found none"):
        interaction_fingerprint({})
    with pytest.raises(TypeError, match=r"'shell' must be a NeighborList .*, not CoordinationNumb"):
        interaction_fingerprint({"shell": CoordinationNumbers(carbons).run(stop=1)})
    with pytest.raises(NotRunError, match="no results yet"):
        interaction_fingerprint({"near": one})
    one.run(stop=4)
    other = NeighborList(carbons, cutoff=4.0).run(step=20)
    with pytest.raises(UnsupportedError, match=r"'other' ran over .*: run all by one"):
        interaction_fingerprint({"near": one, "other": other})
    elsewhere = NeighborList(paceline.Universe(*adk).atoms[:9], cutoff=4.0).run(stop=4)
    with pytest.raises(UnsupportedError, match=r"'elsewhere' belongs to another Universe"):
        interaction_fingerprint({"near": one, "elsewhere": elsewhere})
