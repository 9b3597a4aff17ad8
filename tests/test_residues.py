"""Tests of alternate locations, insertion codes, and repeated residue numbers."""

import csv
import warnings
from pathlib import Path

import MDAnalysis
import numpy as np
import pytest
from matplotlib.figure import Figure
from MDAnalysis.analysis import dihedrals
from MDAnalysisTests import datafiles

import paceline
from paceline.analysis.contacts import ContactMap
from paceline.analysis.dihedrals import ChiAngles, Ramachandran
from paceline.analysis.distances import CenterDistance, DistanceMap
from paceline.analysis.figures import draw
from paceline.analysis.gyration import Gyration
from paceline.analysis.neighbors import CoordinationNumbers, NeighborList
from paceline.analysis.rdf import InterRDF
from paceline.analysis.rms import RMSD, RMSF
from paceline.analysis.sasa import SASA
from paceline.analysis.table import along_residues
from paceline.errors import PacelineWarning

LOCATIONS = Path(datafiles.__file__).parent / "data" / "4E43.pdb"


@pytest.fixture(scope="module")
def located():
    """HIV protease with some side chains in two alternate locations."""
    return paceline.Universe(LOCATIONS).select_atoms("protein")


@pytest.fixture(scope="module")
def inserted():
    """A lactamase with consecutive residues 163, 163A, … 163J."""
    return paceline.Universe(datafiles.PDB_icodes).select_atoms("protein")


@pytest.mark.parametrize(
    "make",
    [
        lambda atoms: SASA(atoms, n_points=10),
        Gyration,
        lambda atoms: ContactMap(atoms[:500]),
        lambda atoms: RMSD(atoms),
        lambda atoms: NeighborList(atoms, cutoff=1.0),
        lambda atoms: CoordinationNumbers(atoms, cutoff=1.0),
        lambda atoms: InterRDF(atoms, atoms, norm="none", range=(0, 3)),
        lambda atoms: CenterDistance(atoms[:500], atoms[500:]),
    ],
)
def test_atoms_in_several_locations_warn(make, located):
    repeated = np.count_nonzero(located.altLocs == "B")
    with pytest.warns(PacelineWarning, match=r"occur again at another .* 'not altLoc B'"):
        found = make(located).run()
    assert "not altLoc B" in found.results.provenance["warnings"]
    assert repeated > 10
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*alternate location", PacelineWarning)
        found = make(located.select_atoms("not altLoc B")).run()
    assert (
        "warnings" not in found.results.provenance
        or "altLoc" not in (found.results.provenance["warnings"])
    )


def test_analyses_of_one_run_tell_once(located):
    with pytest.warns(PacelineWarning) as caught:
        paceline.run([SASA(located, n_points=10), Gyration(located)])
    (told,) = [one for one in caught if "alternate location" in str(one.message)]
    assert str(told.message).startswith("SASA and Gyration: ")


def test_the_number_of_atoms_that_are_there_again(located):
    keys = [(atom.resindex, atom.name) for atom in located]
    with pytest.warns(PacelineWarning, match="alternate") as caught:
        Gyration(located).run()
    assert f": {len(keys) - len(set(keys))} atoms occur again" in str(caught[0].message)


def test_residues_with_insertion_codes_have_their_own_neighbours(inserted):
    found = Ramachandran(inserted)
    for first, second in ((found.ag1, found.ag2), (found.ag4, found.ag5)):
        bonds = np.linalg.norm(first.positions - second.positions, axis=1)
        assert bonds.max() < 1.5
    residues = found.run().results.resindices
    assert residues.tolist() == found.ag2.resindices.tolist()
    numbers = inserted.universe.residues[residues]
    assert [*numbers.icodes[numbers.resids == 163]] == ["", *"ABCDEFGHIJ"]
    titles = [*found.results.table.columns]
    assert f"phi {numbers[numbers.resids == 163][1].resname} 163A (°)" in titles
    # Where residue numbers are consecutive, MDAnalysis finds the same.
    right = np.flatnonzero(~np.isin(numbers.resids, (163, 181)))
    phi = [residue.phi_selection() for residue in numbers[right][:20]]
    assert [group.indices.tolist() for group in phi] == [
        [atoms[right[k]].index for atoms in (found.ag1, found.ag2, found.ag3, found.ag4)]
        for k in range(20)
    ]


def test_residues_that_have_no_angles_warn(located):
    with pytest.warns(PacelineWarning, match=r"(\d+) of 204 residues have no angles \(") as caught:
        found = Ramachandran(located)
    assert len(found.run().results.resindices) == found.results.angles.shape[1]
    assert "ILE 50" in found.results.provenance["warnings"]
    message = next(str(one.message) for one in caught if "no angles" in str(one.message))
    chains = [located.residues[located.residues.segids == one] for one in "ABC"]
    ends = {residue.resindex for chain in chains for residue in chain[[0, -1]]}
    left_out = {*located.residues.resindices.tolist()} - {*found.ag2.resindices.tolist()}
    assert len(left_out - ends) == int(message.split()[1])


def test_a_whole_chain_is_silent():
    universe = paceline.Universe(datafiles.PSF, datafiles.PDB_small)
    with warnings.catch_warnings():
        warnings.simplefilter("error", PacelineWarning)
        found = Ramachandran(universe.select_atoms("protein")).run()
    assert found.results.resindices.tolist() == [*range(1, 213)]
    assert "warnings" not in found.results.provenance


def chains_of(universe):
    """Return two chains with the same residue numbers."""
    return universe.select_atoms("protein and resid 20-30 and not altLoc B")


def column(table, title):
    return table.columns[title].tolist()


def test_tables_tell_chains_apart(located, tmp_path):
    atoms = chains_of(located)
    maps = ContactMap(atoms).run(), DistanceMap(atoms.select_atoms("name CA")).run()
    for found in maps:
        table = found.results.table
        rows = [
            column(table, title)
            for title in ("residue", "segment", "other residue", "other segment")
        ]
        assert len(set(zip(*rows, strict=True))) == len(rows[0])
        assert {*rows[1]} == {"A", "B"}
        path = tmp_path / f"{type(found).__name__}.csv"
        found.results.save(path)
        with path.open() as file:
            lines = [*csv.DictReader(line for line in file if line[0] != "#")]
        assert {line["segment"] for line in lines} == {"A", "B"}
    rmsf = RMSF(atoms.select_atoms("name CA")).run().results.table
    assert column(rmsf, "segment") == ["A"] * 11 + ["B"] * 11


def test_tables_of_one_chain_stay_as_they_were():
    atoms = paceline.Universe(datafiles.PSF, datafiles.DCD).select_atoms("resid 20-24")
    table = ContactMap(atoms).run(stop=2).results.table
    assert [*table.columns] == ["residue", "other residue", "frequency"]
    assert "segment" not in RMSF(atoms).run(stop=2).results.table.columns


def test_tables_tell_insertion_codes(inserted):
    atoms = inserted.select_atoms("resid 162-164")
    table = ContactMap(atoms).run().results.table
    assert column(table, "other insertion code")[:4] == ["", "A", "B", "C"]
    assert "segment" not in table.columns
    chi = ChiAngles(atoms).run().results.table
    assert any(" 163A " in title for title in chi.columns)


def test_an_analysis_of_mdanalysis_has_its_own_residues_and_a_warning(inserted):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = dihedrals.Ramachandran(inserted)
    with pytest.warns(PacelineWarning, match="11 residues, such as .* insertion codes repeat"):
        ours = Ramachandran.from_mdanalysis(theirs)
    assert ours.ag1.indices.tolist() == theirs.ag1.indices.tolist()


@pytest.mark.parametrize(
    ("numbers", "shown"),
    [
        ([1, 2, 3, 4], [1, 2, 3, 4]),
        ([1, 2, 4, 5], [1, 2, 4, 5]),  # one residue lacks the atom
        ([1, 2, 3, 60, 61], [1, 2, 3, np.nan, 60, 61]),
        ([10, 20, 30], [10, 20, 30]),
        ([5, 6, 1, 2], [5, 6, np.nan, 1, 2]),
    ],
)
def test_lines_end_where_residues_are_missing(numbers, shown):
    universe = MDAnalysis.Universe.empty(
        len(numbers), n_residues=len(numbers), atom_resindex=range(len(numbers))
    )
    universe.add_TopologyAttr("resids", numbers)
    table = along_residues(universe.residues, {"x (Å)": np.ones(len(numbers))}, "x (Å)")
    axes = Figure().subplots()
    draw(table, axes)
    np.testing.assert_array_equal(axes.lines[0].get_xdata(), shown)
