"""Tests of radial distribution functions: MDAnalysis's counts, in any cell."""

import inspect
import warnings

import MDAnalysis
import numpy as np
import pytest
from MDAnalysis.analysis import rdf as theirs_rdf
from MDAnalysis.lib.distances import capped_distance
from MDAnalysisTests.datafiles import TPR, XTC

import paceline
from paceline.analysis.rdf import InterRDF, InterRDF_s
from paceline.errors import AnalysisError, SelectionError, UnsupportedError

CELLS = {
    "rectangular": (45, 50, 55, 90, 90, 90),
    "dodecahedron": (52, 52, 52, 60, 60, 90),
    "octahedron": (50, 50, 50, 70.53, 109.47, 70.53),
    "triclinic": (60, 45, 50, 80, 100, 115),
    "none": None,
}

#: Options, and the slices of the atoms that are the groups.
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
            # Positions are multiples of 0.1 Å, so that many distances are on the edge of a bin.
            positions = random.uniform(-60, 110, (n_atoms, 3)).round(1)
            universe.atoms.positions = positions if cell else positions / 3
            if cell:
                universe.dimensions = [*(size * edge for edge in cell[:3]), *cell[3:]]
            writer.write(universe.atoms)
    universe.atoms.write(str(folder / "box.pdb"))
    return str(folder / "box.pdb"), str(path)


def with_norm(options, universe):
    """Check frames without a cell, which are refused; MDAnalysis divides by a volume of 0."""
    return options if universe.dimensions is not None else {**options, "norm": "none"}


@pytest.mark.one_in(3)
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
    # Damaged frames are not counted.
    system, frames = damaged
    ca = paceline.Universe(*system).select_atoms("name CA")
    rdf = InterRDF(ca, ca, nbins=1, range=(0.0, 1.0), norm="none")
    for options in ({}, {"frames": frames}):
        rdf.run(on_error="skip", **options)
        np.testing.assert_array_equal(rdf.get_cdf(), [np.nan if options else 1])


def test_parameters_are_theirs():
    for theirs, ours in ((theirs_rdf.InterRDF, InterRDF), (theirs_rdf.InterRDF_s, InterRDF_s)):
        wanted = inspect.signature(theirs.__init__).parameters
        found = inspect.signature(ours.__init__).parameters
        found = {name: one for name, one in found.items() if one.kind is not one.KEYWORD_ONLY}
        # MDAnalysis's class also accepts the options of all analyses by name.
        assert list(found) == [name for name in wanted if name != "kwargs"] + ["verbose"]
        for name in set(found) - {"verbose"}:
            assert found[name].default == wanted[name].default


def test_the_table_and_the_record(adk_in_water, tmp_path):
    water = paceline.Universe(*adk_in_water).select_atoms("name OW and index 0:12000")
    rdf = InterRDF(water, water, nbins=20, range=(2, 10), exclusion_block=(1, 1)).run(stop=2)
    rdf.results.save(tmp_path / "rdf.csv")
    text = (tmp_path / "rdf.csv").read_text()
    assert "# range: (2, 10)" in text
    assert "r (Å),g(r),count,N(r)" in text
    np.testing.assert_array_equal(rdf.results.table.columns["N(r)"], rdf.get_cdf())
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
        ({"nbins": 0}, "nbins must be at least 1, not 0"),
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
        ({"exclude_same": "residue", "exclusion_block": (1, 1)}, "cannot be used together"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(options, words, universe):
    with pytest.raises(ValueError, match=words):
        InterRDF(universe.atoms, universe.atoms, **options)


def test_groups_that_cannot_be_followed_are_refused(universe, adk):
    ca = universe.select_atoms("name CA")
    with pytest.raises(SelectionError, match="g2 contains no atoms"):
        InterRDF(ca, universe.atoms[:0])
    with pytest.raises(UnsupportedError, match="same Universe"):
        InterRDF(ca, paceline.Universe(*adk).atoms)
    updating = universe.select_atoms("around 5 index 0", updating=True)
    with pytest.raises(UnsupportedError, match=r"exclusion_block=.* do not change from frame to"):
        InterRDF(ca, updating, exclusion_block=(1, 1))
    with pytest.raises(UnsupportedError, match="InterRDF: workers cannot evaluate"):
        InterRDF(universe.select_atoms("bonded around 3 index 0", updating=True), ca)
    with pytest.raises(UnsupportedError, match="chainIDs"):
        InterRDF(ca, ca, exclude_same="chain")


#: Options for single atoms, and the slices of atoms that are pairs of groups.
SITES = {
    "defaults": ({"range": (0.0, 14.987)}, [(slice(20), slice(100, 400))]),
    "few, and many": (
        {"range": (0.0, 9.1), "nbins": 91},
        [(slice(3), slice(None, None, 3)), (slice(5, 90, 2), slice(None, None, 3))],
    ),
    "beyond half of the cell": (
        {"range": (0, 30.93), "nbins": 31, "norm": "density"},
        [(slice(7), slice(300, 500)), (slice(300, 280, -1), slice(290, 330))],
    ),
    "overlapping": (
        {"range": (0.0, 11.3), "norm": "none"},
        [(slice(60), slice(60)), (slice(40, 90), slice(60))],
    ),
}


@pytest.mark.one_in(2)
@pytest.mark.filterwarnings("ignore:The `u` attribute")
@pytest.mark.parametrize("case", SITES)
def test_counts_of_sites_are_theirs_to_the_last_pair(case, box):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        their = MDAnalysis.Universe(*box)
    ours = paceline.Universe(*box)
    options, parts = SITES[case]
    options = with_norm(options, their)
    wanted, found = (
        kind(one, [[one.atoms[i], one.atoms[j]] for i, j in parts], **options)
        for kind, one in ((theirs_rdf.InterRDF_s, their), (InterRDF_s, ours))
    )
    wanted.run(), found.run(block_frames=1)
    assert found.results.keys() == wanted.results.keys()
    for name in ("bins", "edges"):
        np.testing.assert_array_equal(found.results[name], wanted.results[name])
    found.get_cdf(), wanted.get_cdf()
    for name in ("count", "rdf", "cdf", "indices"):
        for one, other in zip(found.results[name], wanted.results[name], strict=True):
            if name == "indices":
                np.testing.assert_array_equal(one[0], other[0])
                np.testing.assert_array_equal(one[1], other[1])
            elif name == "count":
                assert one.dtype == other.dtype
                assert one.sum() > 0
                np.testing.assert_array_equal(one, other)
            else:
                np.testing.assert_allclose(one, other, rtol=1e-12)


def test_sites_of_a_protein_in_water(adk_in_water):
    selections = [("name NZ and resid 13 50", "name OW"), ("name CA", "name OW and resid 300-400")]
    options = {"range": (0.0, 12.1), "nbins": 60}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted, found = (
            kind(one, [[one.select_atoms(text) for text in pair] for pair in selections], **options)
            for kind, one in (
                (theirs_rdf.InterRDF_s, MDAnalysis.Universe(*adk_in_water)),
                (InterRDF_s, paceline.Universe(*adk_in_water)),
            )
        )
        wanted.run(stop=2), found.run(stop=2)
    for one, other in zip(found.results.count, wanted.results.count, strict=True):
        np.testing.assert_array_equal(one, other)


def test_sites_sum_up_to_the_coordination_number(adk_in_water):
    universe = paceline.Universe(*adk_in_water)
    first, second = universe.select_atoms("name NZ"), universe.select_atoms("name OW")
    sites = InterRDF_s(universe, [(first, second)], 40, (0.0, 4.01))
    every = InterRDF(first, second, 40, (0.0, 4.01))
    for analysis in (sites, every):
        with pytest.raises(AttributeError, match=r"call run\(\) first"):
            analysis.get_cdf()
        analysis.run(stop=3)
    np.testing.assert_allclose(sites.get_cdf()[0].sum(axis=1).mean(axis=0), every.get_cdf())


def two_atoms(tmp_path, distances, cell=None):
    """Write topology and trajectory of two atoms at these distances along x (Å)."""
    universe = MDAnalysis.Universe.empty(2, trajectory=True)
    universe.add_TopologyAttr("names", ["A", "B"])
    path = str(tmp_path / "two.trr")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        universe.atoms.write(str(tmp_path / "two.gro"))
        with MDAnalysis.Writer(path, 2) as writer:
            for x in distances:
                universe.atoms.positions = [[1, 1, 1], [1 + x, 1, 1]]
                universe.dimensions = cell
                writer.write(universe.atoms)
    return str(tmp_path / "two.gro"), path


def test_bins_of_sites_are_truncated(tmp_path):
    atoms = paceline.Universe(*two_atoms(tmp_path, [1.5, 2, 2.5, 3, 4.75, 5, 6])).atoms
    found = InterRDF_s(None, [(atoms[:1], atoms[1:])], 3, (2.0, 5.0), "none").run()
    np.testing.assert_array_equal(found.results.count, [[[[2, 1, 1]]]])
    # Here, unlike in the other class, the end of the range belongs to the last bin.
    whole = InterRDF(atoms[:1], atoms[1:], 3, (2.0, 5.0), "none").run()
    np.testing.assert_array_equal(whole.results.count, [2, 1, 2])


@pytest.mark.parametrize("n_first", [2, 20])
def test_sites_have_intervals(n_first, universe):
    groups = [(universe.select_atoms("name CA")[:n_first], universe.select_atoms("name CB")[:9])]
    options = {"nbins": 12, "range": (2.0, 14.0), "norm": "density"}
    plain = InterRDF_s(universe, groups, **options).run().results
    found = InterRDF_s(universe, groups, **options, errors=True).run(block_frames=16)
    results = found.results
    np.testing.assert_array_equal(results.rdf[0], plain.rdf[0])
    assert "rdf_interval" not in plain
    # The density is that of all pairs together, divided by the number of centers.
    sums = InterRDF(*groups[0], **options, errors=True).run(block_frames=16).results
    band = results.table.limits_of("mean n(r) of ags[0] (Å⁻³)") if n_first > 2 else None
    if band is not None:
        values = results.rdf[0].mean(axis=(0, 1))
        np.testing.assert_allclose(values * 9 * n_first, sums.rdf, rtol=1e-12)
        np.testing.assert_allclose((band[1] - values) * 9 * n_first, sums.rdf_interval, rtol=1e-9)
    first, second = (group[:1] for group in groups[0])
    one = InterRDF(first, second, **options, errors=True).run(block_frames=16).results
    np.testing.assert_allclose(results.rdf_interval[0][0, 0], one.rdf_interval, rtol=1e-9)
    table = results.table
    assert len(table.bands) == len(table.y) == (18 if n_first == 2 else 1)
    np.testing.assert_array_equal(np.isnan(results.rdf_interval[0]), results.count[0] % 98 == 0)


def test_sites_that_share_a_residue_are_left_out(universe):
    ca, cb = universe.select_atoms("name CA and resid 5-9"), universe.select_atoms("name CB")
    options = {"range": (0.0, 6.0), "norm": "none"}
    every = InterRDF_s(universe, [(ca, cb)], **options).run(stop=5).results.count[0]
    kept = InterRDF_s(universe, [(ca, cb)], exclude_same="residue", **options).run(stop=5)
    same = ca.resindices[:, None] == cb.resindices
    assert every[same].sum() > 0
    assert kept.results.count[0][same].sum() == 0
    np.testing.assert_array_equal(kept.results.count[0][~same], every[~same])


def test_tables_of_sites(universe, tmp_path):
    ca = universe.select_atoms("name CA")
    few = InterRDF_s(universe, [(ca[:2], ca[3:5])], norm="none").run(stop=2).results
    columns = list(few.to_dataframe().columns)
    first, second = ca[0].index, ca[4].index
    assert len(columns) == 5
    assert columns[2] == f"pairs per frame of atoms {first}, {second}"
    np.testing.assert_array_equal(few.to_dataframe()[columns[2]], few.rdf[0][0, 1])
    assert few.plot().get_ylabel() == "pairs per frame"
    many = InterRDF_s(universe, [(ca[:20], ca), (ca, ca[:2])], norm="none").run(stop=2).results
    frame = many.to_dataframe()
    assert list(frame.columns)[1:] == [f"mean pairs per frame of ags[{k}]" for k in (0, 1)]
    np.testing.assert_allclose(frame.iloc[:, 1], many.rdf[0].mean(axis=(0, 1)))
    many.save(tmp_path / "sites.csv")
    assert "# ags: 20 atoms, indices" in (tmp_path / "sites.csv").read_text()


def test_scripts_with_sites_run_natively(adk_in_water):
    from paceline.mdanalysis.analyses import native_class

    universe = paceline.Universe(*adk_in_water)
    ags = [[universe.select_atoms("name NZ"), universe.select_atoms("name OW")]]
    with pytest.warns(DeprecationWarning, match="superflous"):
        theirs = theirs_rdf.InterRDF_s(universe, ags, nbins=9, range=(0, 4.03), density=True)
    ours = InterRDF_s.from_mdanalysis(theirs).run(stop=2)
    theirs.run(stop=2)
    assert native_class(theirs_rdf.InterRDF_s) is InterRDF_s
    np.testing.assert_array_equal(ours.results.count, theirs.results.count)
    np.testing.assert_allclose(ours.results.rdf, theirs.results.rdf, rtol=1e-12)
    theirs.ags = [[universe.atoms[:0], universe.atoms]]
    with pytest.raises(UnsupportedError, match="contains no atoms"):
        InterRDF_s.from_mdanalysis(theirs)


def test_sites_that_cannot_be_counted_are_refused(universe, adk, monkeypatch):
    ca = universe.select_atoms("name CA")
    for ags in ([], [(ca,)], [(ca, ca), (ca, ca[:0])]):
        with pytest.raises(
            SelectionError, match=r"ags must contain at least one pair|ags\[1\] contains no atoms"
        ):
            InterRDF_s(universe, ags)
    other = paceline.Universe(*adk).atoms
    with pytest.raises(UnsupportedError, match="same Universe"):
        InterRDF_s(universe, [(ca, other)])
    updating = universe.select_atoms("around 5 index 0", updating=True)
    with pytest.raises(UnsupportedError, match="UpdatingAtomGroup"):
        InterRDF_s(universe, [(ca, updating)])
    for options, words in (({"norm": "all"}, "norm must"), ({"nbins": 0}, "nbins must")):
        with pytest.raises(ValueError, match=words):
            InterRDF_s(universe, [(ca, ca)], **options)
    with pytest.raises(ValueError, match="exclude_same must be"):
        InterRDF_s(universe, [(ca, ca)], exclude_same="molecule")
    with pytest.raises(UnsupportedError, match="chainIDs"):
        InterRDF_s(universe, [(ca, ca)], exclude_same="chain")
    with pytest.raises(AnalysisError, match="frame 0: the frame has no cell, which norm='rdf'"):
        InterRDF_s(universe, [(ca, ca)]).run(backend="serial")
    # 11 million pairs with 75 bins; a run would need several copies of the counts.
    monkeypatch.setattr("paceline.analysis.rdf.free_memory", lambda: 2**35)
    words = r"11,162,281 pairs of atoms with 75 bins each need 40.2 GB of memory, and 34.4 GB are"
    with pytest.raises(UnsupportedError, match=words):
        InterRDF_s(universe, [(universe.atoms, universe.atoms)])


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    """Adenylate kinase in water with bonds, in frames with molecules across cell faces."""
    path = str(tmp_path_factory.mktemp("broken") / "broken.trr")
    universe = MDAnalysis.Universe(TPR, XTC)
    with MDAnalysis.Writer(path, len(universe.atoms)) as writer:
        for _ in universe.trajectory[:2]:
            universe.atoms.wrap()
            writer.write(universe.atoms)
    return TPR, path


def centers_counted(universe, groups, compounds, center, range, nbins):
    """Count distances between centers of whole compounds with MDAnalysis, in all frames."""
    count = np.zeros(nbins)
    for ts in universe.trajectory:
        positions = []
        for group, compound in zip(groups, compounds, strict=True):
            if compound is None:
                positions.append(group.positions)
            else:
                of = getattr(group, f"center_of_{center}")
                positions.append(of(compound=compound, unwrap=True).astype(np.float32))
        _, distances = capped_distance(*positions, range[1], box=ts.dimensions)
        count += np.histogram(distances, nbins, range)[0]
    return count


@pytest.mark.parametrize(
    ("selections", "compounds", "center"),
    [
        (("name OW HW* and resid 300-900",) * 2, ("residues", "residues"), "mass"),
        (("name OW HW* and resid 300-700", "resname NA+"), ("fragments", None), "geometry"),
        (("protein", "name OW and resid 300-3000"), ("molecules", None), "mass"),
        (("protein and resid 1-40", "protein"), ("residues", "residues"), "geometry"),
    ],
    ids=["water", "ions", "protein", "residues"],
)
def test_centers_of_compounds_are_those_of_mdanalysis(selections, compounds, center, broken):
    their, ours = MDAnalysis.Universe(*broken), paceline.Universe(*broken)
    options = {"range": (0.5, 14.37), "nbins": 40}
    groups = [their.select_atoms(text) for text in selections]
    wanted = centers_counted(their, groups, compounds, center, **options)
    groups = [ours.select_atoms(text) for text in selections]
    found = InterRDF(*groups, compound=compounds, center=center, **options).run()
    assert wanted.sum() > 20
    np.testing.assert_array_equal(found.results.count, wanted)
    if selections[0].startswith("name OW HW*") and center == "mass":
        # Virtual sites have no mass. Without bonds, they belong to the molecule of their residue.
        groups = [ours.select_atoms("resname SOL and resid 300-900")] * 2
        for kinds in (compounds, "fragments", "molecules"):
            found = InterRDF(*groups, compound=kinds, center=center, **options).run()
            np.testing.assert_array_equal(found.results.count, wanted)
    # Without unwrapping, compounds across a face have other centers.
    apart = InterRDF(*groups, compound=compounds, center=center, unwrap=False, **options).run()
    assert not np.array_equal(apart.results.count, wanted)


def test_whole_molecules_need_no_bonds(broken):
    """Check molecules that a transformation makes whole, or that consist of one atom."""
    universe = paceline.Universe(*broken)
    water = universe.select_atoms("resname SOL and resid 300-900")
    options = {"compound": "residues", "range": (0.5, 12.0)}
    wanted = InterRDF(water, water, **options).run().results
    unwrap = paceline.transform.unwrap()
    found = InterRDF(water, water, unwrap=False, **options).run(transforms=[unwrap]).results
    np.testing.assert_array_equal(found.count, wanted.count)
    np.testing.assert_array_equal(found.rdf, wanted.rdf)
    oxygens = water.select_atoms("name OW")
    plain = InterRDF(oxygens, oxygens, range=(0.5, 12.0)).run().results
    alone = InterRDF(oxygens, oxygens, **options).run().results
    np.testing.assert_array_equal(alone.count, plain.count)


@pytest.fixture
def dimers(tmp_path):
    """Two molecules of masses 1 and 3 whose centers are 4.2 Å apart, across a face."""
    universe = MDAnalysis.Universe.empty(
        4, 2, atom_resindex=[0, 0, 1, 1], residue_segindex=[0, 0], trajectory=True
    )
    universe.add_TopologyAttr("names", ["A", "B"] * 2)
    universe.add_TopologyAttr("masses", [1.0, 3.0] * 2)
    universe.add_TopologyAttr("bonds", [(0, 1), (2, 3)])
    path = str(tmp_path / "dimers.dcd")
    with MDAnalysis.Writer(path, 4) as writer:
        universe.dimensions = [20, 20, 20, 90, 90, 90]
        # Centers of mass are at x = 19.5 and 3.7 + 20; the first molecule crosses the face.
        universe.atoms.positions = [[18, 5, 5], [0, 5, 5], [2.2, 5, 5], [4.2, 5, 5]]
        writer.write(universe.atoms)
    return universe, path


def test_centers_across_a_face(dimers):
    topology, path = dimers
    atoms = paceline.Universe(topology._topology, path).atoms
    first, second = atoms[:2], atoms[2:]
    options = {"nbins": 20, "range": (0.0, 10.0), "compound": "fragments"}
    for center in ("mass", "geometry"):
        found = InterRDF(first, second, center=center, **options).run().results
        np.testing.assert_array_equal(found.bins[found.count > 0], [4.25])
    # The pair of a molecule's center and the heavy atom of the other molecule.
    found = InterRDF(first, atoms[3:], **{**options, "compound": ("fragments", None)}).run()
    np.testing.assert_array_equal(found.results.bins[found.results.count > 0], [4.75])
    # If the molecule is not whole, its center is at 4.5 Å.
    found = InterRDF(first, second, unwrap=False, **options).run().results
    np.testing.assert_array_equal(found.bins[found.count > 0], [0.75])
    # The number of compounds is used.
    every = InterRDF(atoms, atoms, exclusion_block=(1, 1), **options).run()
    np.testing.assert_allclose(every.get_cdf()[-1], 1)
    shell = 4 / 3 * np.pi * (4.5**3 - 4.0**3)
    np.testing.assert_allclose(every.results.rdf[8], 2 / (shell * 2 / 20**3))
    assert every.parameters()["compound"] == "fragments"
    same = InterRDF(atoms, atoms, exclude_same="segment", **options).run()
    assert same.results.count.sum() == 0


def test_centers_that_are_not_known_are_refused(dimers, universe):
    topology, path = dimers
    atoms = paceline.Universe(topology._topology, path).atoms
    with pytest.raises(
        SelectionError, match=r"no bonds connect .* \(index 2\) to the rest .*one of the segments"
    ):
        InterRDF(atoms, atoms, compound="segments")
    for options, words in (
        ({"compound": "chains"}, "compound must be"),
        ({"compound": ("residues",)}, "compound must be"),
        ({"compound": "residues", "center": "charge"}, "center must be"),
    ):
        with pytest.raises(ValueError, match=words):
            InterRDF(atoms, atoms, **options)
    with pytest.raises(SelectionError, match="has an atom twice"):
        InterRDF(atoms + atoms, atoms, compound="residues")
    with pytest.raises(UnsupportedError, match="by molecules needs molecule numbers"):
        InterRDF(atoms, atoms, compound="molecules")
    topology.add_TopologyAttr("bonds", [(0, 1), (1, 2), (2, 3)])
    joined = paceline.Universe(topology._topology, path).atoms
    with pytest.raises(ValueError, match="of one of the fragments belong to several residues"):
        InterRDF(joined, joined, compound="fragments", exclude_same="residue")
    light = paceline.Universe(topology._topology, path)
    light.atoms[:2].masses = 0
    with pytest.raises(SelectionError, match=r"1 of the residues .* have no mass"):
        InterRDF(light.atoms, light.atoms, compound="residues")
    assert InterRDF(light.atoms, light.atoms, compound="residues", center="geometry")


def test_centers_of_compounds_without_bonds_are_refused(adk_in_water):
    protein = paceline.Universe(*adk_in_water).select_atoms("protein")
    protein.universe.del_TopologyAttr("names")  # bonds would be found by them
    words = "InterRDF, to make residues whole, needs bonds, but the topology has none"
    with pytest.raises(UnsupportedError, match=words):
        InterRDF(protein, protein, compound="residues", center="geometry")
    options = {"compound": "residues", "center": "geometry", "unwrap": False}
    assert InterRDF(protein, protein, **options).run(stop=1).results.count.sum() > 1000


def test_bonds_longer_than_half_the_cell_are_an_error(dimers):
    topology, path = dimers
    topology.add_TopologyAttr("bonds", [(0, 1), (0, 2), (1, 3), (2, 3), (0, 3)])
    with MDAnalysis.Writer(path, 4) as writer:
        topology.atoms.positions = [[1, 5, 5], [7, 5, 5], [7, 11, 5], [14, 5, 5]]
        writer.write(topology.atoms)
    ring = paceline.Universe(topology._topology, path).atoms
    words = r"frame 0: \d bonds are longer than half the cell after molecules were made whole"
    with pytest.raises(AnalysisError, match=words):
        InterRDF(ring, ring, compound="fragments").run(backend="serial")
