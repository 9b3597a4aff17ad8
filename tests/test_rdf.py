"""Radial distribution functions: the very counts of MDAnalysis, whatever the cell."""

import inspect
import warnings

import MDAnalysis
import numpy as np
import pytest
from MDAnalysis.analysis import rdf as theirs_rdf

import paceline
from paceline.analysis.rdf import InterRDF
from paceline.errors import AnalysisError, SelectionError, UnsupportedError

CELLS = {
    "rectangular": (45, 50, 55, 90, 90, 90),
    "dodecahedron": (52, 52, 52, 60, 60, 90),
    "octahedron": (50, 50, 50, 70.53, 109.47, 70.53),
    "oblique": (60, 45, 50, 80, 100, 115),
    "none": None,
}

#: Options, and the parts of the atoms that are the groups.
OPTIONS = {
    "defaults": ({}, slice(None), slice(None)),
    "short": ({"range": (0.0, 9.0), "nbins": 90}, slice(None), slice(None)),
    "from 3 Å": ({"range": (3.0, 12.5), "norm": "density"}, slice(None), slice(300)),
    "beyond half of the cell": ({"range": (0, 31), "nbins": 31}, slice(0, 900, 3), slice(200)),
    "two groups": ({"range": (0.0, 9.9)}, slice(500), slice(500, None)),
    "groups that overlap": ({"range": (0.0, 7.0)}, slice(0, 600), slice(900, 300, -1)),
    "very few": ({"range": (0.0, 8.0)}, slice(7), slice(None)),
    "blocks": ({"exclusion_block": (2, 3)}, slice(600), slice(900)),
    "blocks of one group": ({"exclusion_block": (3, 3)}, slice(600), slice(600)),
    "residues": ({"exclude_same": "residue", "norm": "none"}, slice(500), slice(900)),
    "segments": ({"exclude_same": "segment"}, slice(None, None, 2), slice(500)),
    "chains": ({"exclude_same": "chain", "range": (0.0, 9.0)}, slice(500), slice(500)),
}


@pytest.fixture(scope="module", params=CELLS)
def box(request, tmp_path_factory):
    """Topology and trajectory of atoms in and around a cell that changes from frame to frame."""
    n_atoms, random = 1200, np.random.default_rng(17)
    universe = MDAnalysis.Universe.empty(
        n_atoms,
        n_residues=400,
        atom_resindex=np.arange(n_atoms) // 3,
        residue_segindex=np.arange(400) // 200,
        n_segments=2,
        trajectory=True,
    )
    universe.add_TopologyAttr("names", ["X"] * n_atoms)
    universe.add_TopologyAttr("resnames", ["X"] * 400)
    universe.add_TopologyAttr("resids", np.arange(400) + 1)
    universe.add_TopologyAttr("chainIDs", ["A", "B", "C"] * 400)
    folder = tmp_path_factory.mktemp("box")
    cell = CELLS[request.param]
    path = folder / "box.xtc"
    with MDAnalysis.Writer(str(path), n_atoms) as writer:
        for size in (1.0, 1.013, 0.991):
            # To 0.1 Å, as to the 0.01 Å of a file: many distances are on the border of two bins.
            positions = random.uniform(-60, 110, (n_atoms, 3)).round(1)
            universe.atoms.positions = positions if cell else positions / 3
            if cell:
                universe.dimensions = [*(size * edge for edge in cell[:3]), *cell[3:]]
            writer.write(universe.atoms)
    universe.atoms.write(str(folder / "box.pdb"))
    return str(folder / "box.pdb"), str(path)


def with_norm(options, universe):
    """Where there is no cell, MDAnalysis divides by its volume, which is 0; we refuse it."""
    return options if universe.dimensions is not None else {**options, "norm": "none"}


@pytest.mark.parametrize("case", OPTIONS)
def test_counts_are_theirs_to_the_last_pair(case, box):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        their = MDAnalysis.Universe(*box)
    ours = paceline.Universe(*box)
    options, first, second = OPTIONS[case]
    options = with_norm(options, their)
    wanted = theirs_rdf.InterRDF(their.atoms[first], their.atoms[second], **options).run()
    found = InterRDF(ours.atoms[first], ours.atoms[second], **options).run(block_frames=1)
    assert found.results.count.sum() > 0
    assert found.results.keys() == wanted.results.keys()
    for name in ("count", "bins", "edges"):
        assert found.results[name].dtype == wanted.results[name].dtype
        assert np.array_equal(found.results[name], wanted.results[name])
    np.testing.assert_allclose(found.results.rdf, wanted.results.rdf, rtol=1e-12)
    if options.get("norm", "rdf") == "rdf":
        np.testing.assert_allclose(found.results.volume_cum, wanted.results.volume_cum, rtol=1e-12)


@pytest.mark.parametrize(
    ("first", "second", "options"),
    [
        ("name OW and index 0:12000", "name OW and index 0:12000", {}),
        ("protein", "name OW and index 0:6000", {"range": (0.0, 25.0), "nbins": 250}),
        ("name CA", "name CA", {"range": (0.0, 35.0)}),
        ("resname NA+", "name OW", {"range": (0.0, 8.0), "exclude_same": "residue"}),
    ],
)
def test_protein_in_water(first, second, options, adk_in_water):
    their, ours = MDAnalysis.Universe(*adk_in_water), paceline.Universe(*adk_in_water)
    wanted, found = (
        kind(universe.select_atoms(first), universe.select_atoms(second), **options)
        for kind, universe in ((theirs_rdf.InterRDF, their), (InterRDF, ours))
    )
    wanted.run(stop=2), found.run(stop=2)
    assert np.array_equal(found.results.count, wanted.results.count)
    np.testing.assert_allclose(found.results.rdf, wanted.results.rdf, rtol=1e-12)


def test_without_a_cell(adk, theirs, universe):
    for options in ({}, {"range": (0.0, 30.0), "nbins": 300}):
        wanted, found = (
            kind(one.select_atoms("protein"), one.select_atoms("name CA"), norm="none", **options)
            for kind, one in ((theirs_rdf.InterRDF, theirs), (InterRDF, universe))
        )
        wanted.run(step=50), found.run(step=50)
        assert np.array_equal(found.results.count, wanted.results.count)


def test_running_coordination_numbers(adk_in_water, damaged):
    universe = paceline.Universe(*adk_in_water)
    first, second = universe.select_atoms("resname NA+"), universe.select_atoms("name OW")
    rdf = InterRDF(first, second, nbins=80, range=(0.0, 8.0), norm="density").run(stop=3)
    found = rdf.get_cdf()
    assert found is rdf.results.cdf
    wanted = []
    for ts in universe.trajectory[:3]:
        distances = MDAnalysis.lib.distances.distance_array(first, second, box=ts.dimensions)
        wanted.append([(distances < edge).sum(axis=1).mean() for edge in rdf.results.edges[1:]])
    np.testing.assert_allclose(found, np.mean(wanted, axis=0), atol=1e-3)
    assert 4 < found[31] < 8
    # Damaged frames do not count.
    system, frames = damaged
    ca = paceline.Universe(*system).select_atoms("name CA")
    rdf = InterRDF(ca, ca, nbins=1, range=(0.0, 1.0), norm="none")
    for options in ({}, {"frames": frames}):
        rdf.run(on_error="skip", **options)
        np.testing.assert_array_equal(rdf.get_cdf(), [np.nan if options else 1])


def test_parameters_are_theirs():
    wanted = inspect.signature(theirs_rdf.InterRDF.__init__).parameters
    found = inspect.signature(InterRDF.__init__).parameters
    # Theirs takes options of all analyses by their names.
    assert list(found) == [name for name in wanted if name != "kwargs"] + ["verbose"]
    for name in set(found) - {"verbose"}:
        assert found[name].default == wanted[name].default


def test_the_table_and_the_record(adk_in_water, tmp_path):
    water = paceline.Universe(*adk_in_water).select_atoms("name OW and index 0:12000")
    rdf = InterRDF(water, water, nbins=20, range=(2, 10), exclusion_block=(1, 1)).run(stop=2)
    rdf.results.save(tmp_path / "rdf.csv")
    text = (tmp_path / "rdf.csv").read_text()
    assert "# range: (2, 10)" in text
    assert "r (Å),g(r),count" in text
    assert rdf.results.plot().get_ylabel() == "g(r)"


def test_a_frame_without_a_cell_is_named(universe):
    ca = universe.select_atoms("name CA")
    words = r"frame 8: the frame has no cell, which norm='rdf' needs"
    with pytest.raises(AnalysisError, match=words):
        InterRDF(ca, ca).run(start=8, backend="serial")


def test_positions_that_are_no_numbers_are_named(tmp_path, adk_in_water):
    universe = MDAnalysis.Universe(*adk_in_water).select_atoms("name CA").universe
    atoms = universe.select_atoms("name CA")
    path = tmp_path / "ca.nc"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        atoms.write(str(tmp_path / "ca.gro"))
        with MDAnalysis.Writer(str(path), len(atoms)) as writer:
            for ts in universe.trajectory[:3]:
                positions = ts.positions.copy()
                if ts.frame == 1:
                    positions[atoms.indices[5], 2] = np.nan
                ts.positions = positions
                writer.write(atoms)
    ca = paceline.Universe(tmp_path / "ca.gro", path).atoms
    with pytest.raises(AnalysisError, match=r"frame 1: positions are not all finite"):
        InterRDF(ca, ca).run()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"nbins": 0}, "nbins must be a whole number"),
        ({"nbins": 2.5}, "nbins must be a whole number"),
        ({"range": (0.0, np.inf)}, "two finite numbers"),
        ({"range": (5.0, 5.0)}, "two finite numbers"),
        ({"range": (-5.0, 0.0)}, "the second above 0"),
        ({"range": (0.0,)}, "two finite numbers"),
        ({"range": (1.0, 1.0 + 1e-15)}, "Too many bins"),
        ({"norm": "both"}, "norm must be"),
        ({"exclusion_block": (0, 1)}, "exclusion_block must be two numbers"),
        ({"exclusion_block": (1,)}, "exclusion_block must be two numbers"),
        ({"exclude_same": "molecule"}, "exclude_same must be"),
        ({"exclude_same": "residue", "exclusion_block": (1, 1)}, "cannot both"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(options, words, universe):
    with pytest.raises(ValueError, match=words):
        InterRDF(universe.atoms, universe.atoms, **options)


def test_groups_that_cannot_be_followed_are_refused(universe, adk):
    ca = universe.select_atoms("name CA")
    with pytest.raises(SelectionError, match="g2 holds no atoms"):
        InterRDF(ca, universe.atoms[:0])
    with pytest.raises(UnsupportedError, match="same Universe"):
        InterRDF(ca, paceline.Universe(*adk).atoms)
    updating = universe.select_atoms("around 5 index 0", updating=True)
    with pytest.raises(UnsupportedError, match="UpdatingAtomGroup"):
        InterRDF(ca, updating)
    with pytest.raises(UnsupportedError, match="chainIDs"):
        InterRDF(ca, ca, exclude_same="chain")
