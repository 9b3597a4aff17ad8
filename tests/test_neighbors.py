"""Tests of neighbours within a cutoff against MDAnalysis."""

from collections import Counter

import MDAnalysis
import numpy as np
import pytest
from helpers import virtual_sites
from MDAnalysis.lib.distances import capped_distance, distance_array, self_capped_distance

import paceline
from paceline.analysis import neighbors
from paceline.analysis.neighbors import CoordinationNumbers, NeighborList
from paceline.analysis.rdf import InterRDF, InterRDF_s
from paceline.errors import AnalysisError, SelectionError, UnsupportedError


@pytest.mark.parametrize("group", ["two", "overlapping", "one"])
@pytest.mark.parametrize("cutoff", [3.0, 9.0])
def test_neighbors_are_those_of_mdanalysis(group, cutoff, adk_in_water):
    universe = paceline.Universe(*adk_in_water)
    first = universe.select_atoms("protein and name N* O*")[::-1]
    second = {
        "two": universe.select_atoms("name OW")[:3000],
        "overlapping": universe.select_atoms("protein and name O*"),
        "one": None,
    }[group]
    found = NeighborList(first, second, cutoff=cutoff).run(stop=2)
    pairs, offsets = found.results.pairs, found.results.offsets
    assert found.results.counts.tolist() == np.diff(offsets).tolist()
    for frame, ts in enumerate(universe.trajectory[:2]):
        of_frame = pairs[offsets[frame] : offsets[frame + 1]]
        if second is None:
            places, distances = self_capped_distance(first.positions, cutoff, box=ts.dimensions)
            atoms = first.indices[places]
        else:
            places, distances = capped_distance(first, second, cutoff, box=ts.dimensions)
            atoms = np.column_stack([first.indices[places[:, 0]], second.indices[places[:, 1]]])
        wanted = {
            (*pair, distance)
            for pair, distance in zip(atoms.tolist(), distances.tolist(), strict=True)
            if pair[0] != pair[1]
        }
        if second is None:
            wanted = {(min(i, j), max(i, j), distance) for i, j, distance in wanted}
            of_frame = [(min(i, j), max(i, j), distance) for i, j, distance in of_frame.tolist()]
            assert set(of_frame) == wanted
        else:
            assert set(of_frame.tolist()) == wanted
        assert len(wanted) == len(of_frame) > 0


@pytest.mark.parametrize("counted", [1, 30, 2**20])  # pairs at a time
def test_neighbors_by_type_and_by_residue(counted, universe, theirs, monkeypatch):
    monkeypatch.setattr(neighbors, "COUNTED", counted)
    acidic = universe.select_atoms("resname ASP GLU and name OE* OD*")
    basic = universe.select_atoms("resname ARG LYS and name NH* NZ")
    one = NeighborList(acidic, basic, cutoff=4.0).run(step=10)
    frames, kinds = Counter(), Counter()
    for _ in theirs.trajectory[::10]:
        near = distance_array(theirs.atoms[acidic.indices], theirs.atoms[basic.indices]) <= 4.0
        pairs = list(zip(*np.nonzero(near), strict=True))
        frames.update({(acidic.resindices[i], basic.resindices[j]) for i, j in pairs})
        kinds.update((acidic.resnames[i], basic.resnames[j]) for i, j in pairs)
    assert {pair[:2]: pair[2] for pair in one.count_by_residue()} == dict(frames)
    assert {pair[:2]: pair[2] for pair in one.count_by_type("resnames")} == dict(kinds)
    assert one.count_by_residue()[0][2] == max(frames.values()) > 1
    often = one.further_tables()["frequent"].columns
    assert often["frames"].tolist() == sorted(frames.values(), reverse=True)
    assert often["fraction of frames"][0] == often["frames"][0] / 10
    assert frames[often["first"][0], often["second"][0]] == often["frames"][0]
    far = NeighborList(acidic, basic, cutoff=0.5).run(stop=2)
    assert len(far.further_tables()["frequent"].columns["residues"]) == 0


def test_neighbors_of_other_residues_only(universe):
    atoms = universe.select_atoms("resid 10:40")
    every = NeighborList(atoms, cutoff=3.0).run(stop=1).results.pairs
    some = NeighborList(atoms, cutoff=3.0, exclude_same="residue").run(stop=1).results.pairs
    residues = universe.atoms.resindices
    other = residues[every["first"]] != residues[every["second"]]
    assert np.array_equal(some, every[other])
    assert 0 < len(some) < len(every)
    both = NeighborList(atoms, atoms[::2], 3.0, exclude_same="residue").run(stop=1)
    assert set(universe.atoms[both.results.pairs["second"]].indices) <= set(atoms[::2].indices)


@pytest.mark.parametrize("kind", ["residue", "segment", "chain", "fragment"])
def test_neighbors_and_rdf_leave_out_the_same_pairs(kind, tmp_path):
    """Check two atoms of each of four residues, in two segments, three chains, and fragments."""
    made = MDAnalysis.Universe.empty(
        *(8, 4, 2),
        atom_resindex=[0, 0, 1, 1, 2, 2, 3, 3],
        residue_segindex=[0, 0, 0, 1],
        trajectory=True,
    )
    made.add_TopologyAttr("chainIDs", list("AAAABBBC"))
    made.add_TopologyAttr("bonds", [(0, 1), (1, 2), (3, 4), (4, 5), (5, 6)])
    made.atoms.positions = np.random.default_rng(5).random((8, 3)) * 3
    labels = {
        "residue": [0, 0, 1, 1, 2, 2, 3, 3],
        "segment": [0, 0, 0, 0, 0, 0, 1, 1],
        "chain": list("AAAABBBC"),
        "fragment": [0, 0, 0, 1, 1, 1, 1, 2],
    }[kind]
    atoms, wanted = (
        made.atoms,
        [(i, j) for i in range(8) for j in range(i) if labels[i] != labels[j]],
    )
    pairs = NeighborList(atoms, cutoff=9.0, exclude_same=kind).run().results.pairs
    assert {(b, a) for a, b in pairs[["first", "second"]].tolist()} == set(wanted)
    options = {"range": (0.0, 9.0), "norm": "none", "exclude_same": kind}
    assert InterRDF(atoms, atoms, **options).run().results.count.sum() == 2 * len(wanted)
    counts = InterRDF_s(made, [(atoms, atoms)], **options).run().results.count[0].sum(axis=2)
    assert sorted((i, j) for i, j in np.argwhere(counts) if j < i) == sorted(wanted)


def test_virtual_sites_are_of_the_fragment_of_their_water(tmp_path):
    made, _ = virtual_sites.write_waters(tmp_path / "water.trr", virtual_sites.TIP4P, n_frames=2)
    atoms = paceline.Universe(made._topology, str(tmp_path / "water.trr")).atoms
    by_fragment, by_residue = (
        NeighborList(atoms, cutoff=5.0, exclude_same=kind).run().results.pairs
        for kind in ("fragment", "residue")
    )
    assert len(by_fragment) > 100
    np.testing.assert_array_equal(by_fragment, by_residue)


def test_bad_input_of_neighbors(universe, adk_in_water):
    atoms = universe.select_atoms("name CA")
    for cutoff in (0, -1.0, np.nan):
        with pytest.raises(ValueError, match="length above 0"):
            NeighborList(atoms, cutoff=cutoff)
    with pytest.raises(ValueError, match=r"exclude_same must be .*'molecule'"):
        NeighborList(atoms, exclude_same="molecule")
    with pytest.raises(UnsupportedError, match="exclude_same='chain' needs chainIDs"):
        NeighborList(atoms, exclude_same="chain")
    with pytest.raises(SelectionError, match="ag2 contains no atoms"):
        NeighborList(atoms, atoms[:0])
    with pytest.raises(ValueError, match="one value per atom, not 'positions'"):
        NeighborList(atoms).run(stop=1).count_by_type("positions")
    assert not hasattr(CoordinationNumbers(atoms), "count_by_type")  # there are no pairs
    unknown = paceline.Universe(*adk_in_water)
    unknown.del_TopologyAttr("resnames")
    without_bonds = unknown.atoms[:9]
    with pytest.raises(UnsupportedError, match="exclude_same='fragment' needs bonds"):
        NeighborList(without_bonds, exclude_same="fragment")
    wet = paceline.Universe(*adk_in_water).select_atoms("name CA")
    with pytest.raises(AnalysisError, match="shortest height of the cell is"):
        NeighborList(wet, cutoff=100.0).run(stop=1)
