"""Tests of updating groups: the same atoms as in MDAnalysis in each frame."""

import importlib
import inspect
import itertools
import pkgutil
import re
import warnings
from pathlib import Path

import MDAnalysis
import numpy as np
import pytest
from MDAnalysis.analysis import density as theirs_density
from MDAnalysis.analysis import rdf as theirs_rdf
from MDAnalysis.core.selection import PointSelection
from MDAnalysis.lib.distances import capped_distance
from MDAnalysis.transformations import unwrap
from MDAnalysisTests.datafiles import TPR, XTC

import paceline
from paceline.analysis import groups
from paceline.analysis.density import DensityAnalysis
from paceline.analysis.described_analyses import ATOMS
from paceline.analysis.groups import SelectedAtoms
from paceline.analysis.gyration import Gyration
from paceline.analysis.lag_time_confidence_intervals import block_starts
from paceline.analysis.lineardensity import LinearDensity
from paceline.analysis.rdf import InterRDF
from paceline.analysis.updating_groups import follow
from paceline.contract.read_catalogue import catalogue
from paceline.errors import AnalysisError, PacelineWarning, SelectionError, UnsupportedError

CELLS = {
    "rectangular": (25, 30, 35, 90, 90, 90),
    "slab": (40, 40, 9, 90, 90, 90),
    "dodecahedron": (32, 32, 32, 60, 60, 90),
    "octahedron": (30, 30, 30, 70.53, 109.47, 70.53),
    "triclinic": (35, 28, 30, 80, 100, 115),
    "none": None,
}
#: Selections of all atoms. Many atoms are exactly at the limits of distance.
SELECTIONS = [
    "name OW and around 3.5 protein",
    "around 3.5 protein",
    "protein and around 2.5 resname SOL",
    "resname SOL and around 7.9 protein",
    "around 3.2 resid 1",
    "not around 4.1 protein",
    "not (around 4.1 protein or name HW1) and resname SOL",
    "name OW and around 3 (protein and prop z > 4)",
    "name OW and around 5 (name OW and around 3.9 protein)",
    "around 3 name NOBODY",
    "name NOBODY and around 3 protein",
    "isolayer 2.0 4.2 protein",
    "name OW and isolayer 0 3.1 protein",
    "sphzone 8.5 resid 3",
    "sphzone 4.0 protein or sphzone 4.0 resid 30",
    "name OW and sphlayer 3.0 9.1 protein",
    "sphlayer 0 6 (resname SOL and prop x < 7.5)",
    "sphzone 6.0 name NOBODY",
    "point 3.1 -2.0 4.4 7.3",
    "point 1 1 1 40.0",
    "cyzone 4.1 3.0 -3.2 protein",
    "name OW and cylayer 1.0 7.4 4.4 -4.4 (protein and resid 2)",
    "prop x > 3.5",
    "prop abs z <= 4.4 and prop y != 3.0",
    "prop x == 3.5 or prop x < -7",
    "prop x == inf or prop y > 3",
    "prop 3.1 > y and prop z >= 2.2",
    "prop mass > 3 and around 3 protein",
    "around 3 (byres (around 2 (protein and prop charge == 0)))",
    "prop z > 2 and not (around 3 protein or prop abs charge < 0.5)",
    "same residue as around 2.9 protein",
    "byres (name OW and around 2.9 protein)",
    "resname SOL and same resid as (around 2.9 protein)",
    "same fragment as (name OW and prop z > 12.0)",
    "same mass as (name HW1 and prop z > 11.0)",
    "same charge as (point 1 1 1 3)",
    "same name as (protein and prop x < 0)",
    "same segment as (around 2.0 resid 2)",
    "same x as (protein and prop z > 3)",
    "protein and same y as around 2 resid 2",
    "global around 3 protein",
    "around 3 global (protein and prop z > 2)",
    "prop z > 2 and (prop x < 4 or around 3 protein) and not name HW2",
]


def make_water(folder, cell):
    """Write topology and trajectory of water and a blob, in and around a changing cell."""
    n_blob, n_water, random = 40, 300, np.random.default_rng(7)
    n_residues = 4 + n_water
    resindices = [*np.repeat(range(4), n_blob // 4), *np.repeat(range(4, n_residues), 3)]
    universe = MDAnalysis.Universe.empty(
        len(resindices),
        n_residues,
        2,
        atom_resindex=resindices,
        residue_segindex=[0] * 4 + [1] * n_water,
        trajectory=True,
    )
    for name, values in {
        "names": ["CA", "CB"] * (n_blob // 2) + ["OW", "HW1", "HW2"] * n_water,
        "types": ["C"] * n_blob + ["O", "H", "H"] * n_water,
        "masses": [12.0] * n_blob + [16.0, 1.0, 1.0] * n_water,
        "charges": [0.0] * n_blob + [-0.8, 0.4, 0.4] * n_water,
        "resnames": ["ALA", "LYS", "GLU", "ALA"] + ["SOL"] * n_water,
        "resids": range(1, n_residues + 1),
        "segids": ["P", "W"],
    }.items():
        universe.add_TopologyAttr(name, list(values))
    first = n_blob + 3 * np.arange(n_water)
    bonds = [(k, k + 1) for k in range(n_blob - 1)]
    bonds += [(k, k + n) for k in first for n in (1, 2)]
    universe.add_TopologyAttr("bonds", bonds)
    with MDAnalysis.Writer(str(folder / "water.xtc"), len(resindices)) as writer:
        for size in (1.0, 1.013, 0.991):
            # Positions are multiples of 0.1 Å, like those of a file with a precision of 0.01 Å.
            blob = random.uniform(-5, 6, (n_blob, 3)).round(1)
            shape = (n_water, 1, 3)
            oxygens = random.uniform(-20, 45, shape) if cell else random.uniform(-13, 14, shape)
            oxygens = oxygens.round(1)
            hydrogens = oxygens + random.normal(size=(n_water, 2, 3)).round(1)
            water = np.concatenate([oxygens, hydrogens], 1).reshape(-1, 3)
            universe.atoms.positions = np.concatenate([blob, water])
            if cell:
                universe.dimensions = [*(size * edge for edge in cell[:3]), *cell[3:]]
            writer.write(universe.atoms)
    universe.trajectory.close()
    return universe, str(folder / "water.xtc")


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(name, marks=() if name == "triclinic" else pytest.mark.full) for name in CELLS
    ],
)
def pair(request, tmp_path_factory):
    """Universes of the same water, by MDAnalysis and by paceline."""
    made, path = make_water(tmp_path_factory.mktemp("water"), CELLS[request.param])
    return two_of(made, path)


def two_of(made, path):
    """Return Universes of one topology and trajectory, by MDAnalysis and by paceline."""
    theirs, ours = made.copy(), made.copy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs.load_new(path)
        ours.load_new(path)
        ours.trajectory = paceline.mdanalysis.reader.Reader(path)
    return theirs, ours


def atoms_of(results):
    """Return the atoms of each frame."""
    return np.split(results.atoms, results.offsets[1:-1])


def assert_same(theirs, ours, **options):
    """Check that groups of two Universes have the same atoms in each frame; return their number."""
    found = SelectedAtoms(ours).run(backend="serial", **options).results
    counts = []
    for _, atoms in zip(theirs.universe.trajectory, atoms_of(found), strict=True):
        assert atoms.tolist() == theirs.indices.tolist()
        counts.append(len(atoms))
    assert found.counts.tolist() == counts
    return counts


@pytest.mark.parametrize("text", SELECTIONS)
@pytest.mark.parametrize("periodic", [True, pytest.param(False, marks=pytest.mark.full)])
def test_atoms_are_those_of_mdanalysis(pair, text, periodic):
    theirs, ours = (one.select_atoms(text, updating=True, periodic=periodic) for one in pair)
    counts = assert_same(theirs, ours)
    assert sum(counts) > 0 or "NOBODY" in text


GROUPS = {
    "of a fixed group": lambda u: u.select_atoms("name OW or protein").select_atoms(
        "resname SOL and around 3.5 protein", updating=True
    ),
    "of a group in another order": lambda u: u.atoms[::-3].select_atoms(
        "around 5 protein", updating=True
    ),
    "of an updating group": lambda u: u.select_atoms(
        "around 6 protein", updating=True
    ).select_atoms("around 3 name HW1", updating=True),
    "of an updating group, all keywords": lambda u: u.select_atoms(
        "prop z > 0 or protein", updating=True
    ).select_atoms(
        "(all and not name HW1 and resid 1:200 and around 4 (protein or global resid 20)) "
        "or same residue as name HW2 or (segid W and mass 0:2)",
        updating=True,
    ),
    "of two updating groups": lambda u: (
        u.select_atoms("around 8.5 protein", updating=True)
        .select_atoms("prop x < 9", updating=True)
        .select_atoms("not sphzone 6 name OW", updating=True)
    ),
    "of several selections": lambda u: u.select_atoms(
        "around 3 protein", "protein", "name OW and prop x > 9", updating=True
    ),
    "several selections in one frame twice": lambda u: u.select_atoms(
        "prop x > 0", "prop x > -1", updating=True
    ),
    "near a fixed group": lambda u: u.select_atoms(
        "not group blob and around 3 group blob", blob=u.atoms[5:20], updating=True
    ),
    "near an updating group": lambda u: u.select_atoms(
        "around 3 group shell",
        shell=u.select_atoms("name OW and around 3 protein", updating=True),
        updating=True,
    ),
    "in an updating group": lambda u: u.select_atoms(
        "name OW and group shell or same residue as (name HW1 and group shell)",
        shell=u.select_atoms("name O* H* and around 4 protein", updating=True),
        updating=True,
    ),
    "without what never matches": lambda u: u.select_atoms(
        "name NOBODY and prop x > 0", updating=True
    ),
    "with a tolerance": lambda u: u.select_atoms("prop z == 3", atol=0.5, rtol=0.1, updating=True),
    "bonded to fixed atoms": lambda u: u.select_atoms(
        "prop z > 0 and bonded name OW", updating=True
    ),
}


@pytest.mark.parametrize("name", GROUPS)
def test_groups_of_groups(pair, name):
    counts = assert_same(*(GROUPS[name](one) for one in pair))
    assert sum(counts) > 0 or "never" in name


@pytest.mark.full
def test_waters_around_a_protein():
    theirs, ours = MDAnalysis.Universe(TPR, XTC), paceline.Universe(TPR, XTC)
    text = "name OW and around 3.5 protein"
    theirs, ours = (one.select_atoms(text, updating=True) for one in (theirs, ours))
    finder = follow(ours, "test")
    # Hydrogens of water are not read.
    assert len(finder.read) == 3341 + 11084
    found = SelectedAtoms(ours).run(stop=2, backend="serial").results
    for _, atoms in zip(theirs.universe.trajectory[:2], atoms_of(found), strict=True):
        assert atoms.tolist() == theirs.indices.tolist()


@pytest.fixture(scope="module")
def wet(tmp_path_factory):
    """Universes of water in a triclinic cell, by MDAnalysis and by paceline."""
    return two_of(*make_water(tmp_path_factory.mktemp("wet"), CELLS["triclinic"]))


class Uphill(PointSelection):
    token = "uphill"


def test_what_workers_cannot_evaluate_is_refused(wet):
    ours = wet[1]
    shell = ours.select_atoms("around 3 protein", updating=True)
    both = ours.select_atoms("around 3 protein", "prop x > 0", updating=True)
    for group, match in [
        (ours.select_atoms("uphill 1 2 3 4", updating=True), "'uphill' .Uphill. is not MDAnalysis"),
        (ours.select_atoms("bonded around 3 protein", updating=True), "'bonded' of atoms that"),
        (shell.select_atoms("bonded name OW", updating=True), "'bonded' of atoms that"),
        (both.select_atoms("name OW", updating=True), "several selections: join them by 'or'"),
        (ours.atoms[[3, 3, 1]].select_atoms("prop x > 0", updating=True), "an atom twice"),
        (ours.atoms[::-1].select_atoms("prop x > 0", sorted=False, updating=True), "sorted=False"),
    ]:
        with pytest.raises(UnsupportedError, match=match):
            SelectedAtoms(group)
    with pytest.raises(TypeError, match="updating=True"):
        SelectedAtoms(ours.atoms)
    for text, match in [
        ("sphzone nan protein", "at least 0 Å"),
        ("point 1 2 3 -1", "point needs distances of at least 0 Å"),
        ("point 1 nan 3 4", "point needs numbers, not .1.0, nan, 3.0"),
    ]:
        with pytest.raises(ValueError, match=match):
            SelectedAtoms(ours.select_atoms(text, updating=True))


def test_frames_that_cannot_be_searched_are_named(wet, tmp_path):
    made, path = make_water(tmp_path, CELLS["slab"])
    ours = two_of(made, path)[1]
    far = ours.select_atoms("around 9.1 protein", updating=True)
    with pytest.raises(AnalysisError, match="frame 0: the shortest height of the cell is 9"):
        SelectedAtoms(far).run(backend="serial")
    high = ours.select_atoms("cyzone 3 5 -5 protein", updating=True, periodic=False)
    assert SelectedAtoms(high).run(backend="serial").results.counts.sum() > 0
    with pytest.raises(NotImplementedError):  # MDAnalysis refuses it immediately
        ours.select_atoms("cyzone 3 5 -5 protein", updating=True)


def test_positions_that_are_no_numbers_are_refused(wet, tmp_path):
    theirs = wet[0]
    positions = np.array([ts.positions for ts in theirs.trajectory])
    theirs.trajectory.rewind()
    positions[1, 50] = np.nan
    path = str(tmp_path / "nan.dcd")
    copy = theirs.copy()
    with MDAnalysis.Writer(path, len(copy.atoms)) as writer:
        for frame in positions:
            copy.atoms.positions = frame
            writer.write(copy.atoms)
    ours = two_of(theirs, path)[1]
    for text in ("around 3 protein", "prop x > 0", "sphzone 3 protein", "point 1 2 3 4"):
        group = ours.select_atoms(text, updating=True)
        with pytest.raises(AnalysisError, match="frame 1: positions are not all finite"):
            SelectedAtoms(group).run(backend="serial")


def test_a_frame_without_a_cell_among_others(wet, tmp_path):
    path = str(tmp_path / "some.trr")
    copy = wet[0].copy()
    with MDAnalysis.Writer(path, len(copy.atoms)) as writer:
        writer.write(copy.atoms)
        copy.dimensions = None
        writer.write(copy.atoms)
    theirs, ours = two_of(wet[0], path)
    near = ours.select_atoms("name OW and around 3 protein", updating=True)
    with pytest.raises(AnalysisError, match="frame 1: the frame has no cell"):
        SelectedAtoms(near).run(backend="serial")
    ours.trajectory[1], theirs.trajectory[1]
    texts = {"text": "name OW and around 3 protein"}
    groups = [one.select_atoms(texts["text"], updating=True) for one in (theirs, ours)]
    assert_same(*groups)


def test_rows_tables_and_records(wet):
    shell = wet[1].select_atoms("around 3 protein", updating=True)
    run = SelectedAtoms(shell).run(backend="serial")
    assert run.results.table.columns["atoms"].tolist() == run.results.counts.tolist()
    assert "'around 3 protein'" in run.record()["group"]
    inner = shell.select_atoms("name OW", updating=True)
    assert SelectedAtoms(inner).parameters()["group"] == "'name OW' of ('around 3 protein')"


def test_a_group_is_found_again_among_other_atoms(wet):
    atoms = wet[1].atoms
    run = SelectedAtoms(atoms.select_atoms("name OW and around 3 protein", updating=True))
    alone = run.run(backend="serial").results.atoms
    assert len(alone)
    together = paceline.TimeSeries(lambda block: block.positions[:, 0, 0], atoms)
    for others in [together], []:
        paceline.run([run, *others], backend="serial")
        assert run.results.atoms.tolist() == alone.tolist()


def depth(block):
    """Return the mean z of the atoms of a group in each frame, and their number."""
    z = [rows[atoms, 2] for rows, atoms in zip(block.positions, block.selected, strict=True)]
    return np.array([(np.sum(one, dtype=float), len(one)) for one in z])


def numbers(block):
    """Return the columns of the atoms of a group in each frame."""
    return np.array([len(one) for one in block.selected]), np.concatenate(block.selected)


def test_own_functions_of_a_group_that_changes(wet):
    theirs, ours = (one.select_atoms("name OW and around 4 protein", updating=True) for one in wet)
    run = paceline.TimeSeries(depth, ours).run(n_workers=2, block_frames=1)
    wanted = [(np.sum(theirs.positions[:, 2], dtype=float), len(theirs)) for _ in wet[0].trajectory]
    assert run.results.timeseries.tolist() == [list(row) for row in wanted]
    assert "around 4 protein" in run.parameters()["group"]
    records = paceline.RaggedTimeSeries(numbers, ours).run(backend="serial").results
    atoms = follow(ours, "test").read[records.records]
    assert atoms.tolist() == SelectedAtoms(ours).run(backend="serial").results.atoms.tolist()
    total = paceline.Reduce(lambda block: depth(block).sum(axis=0), np.add, ours)
    assert total.run(backend="serial").results.value[1] == sum(row[1] for row in wanted)
    for options, match in [
        ({"block": "mdtraj"}, "the same atoms in each frame"),
        ({"fields": ["velocities"]}, "needs positions"),
    ]:
        with pytest.raises(UnsupportedError, match=match):
            paceline.TimeSeries(depth, ours, **options)


def test_damaged_frames_have_no_atoms(damaged):
    files, missing = damaged
    group = paceline.Universe(*files).select_atoms("around 4 resid 30", updating=True)
    run = paceline.TimeSeries(depth, group).run(on_error="skip", backend="serial")
    assert np.flatnonzero(np.isnan(run.results.timeseries[:, 0])).tolist() == sorted(missing)
    found = Gyration(group, compound="residues").run(on_error="skip", backend="serial").results
    assert np.flatnonzero(np.isnan(found.counts).all(axis=1)).tolist() == sorted(missing)
    assert np.isfinite(np.delete(found.counts, missing, axis=0)).all()


# Analyses of updating groups


def test_gyration_of_a_group_that_changes(pair):
    theirs, ours = (one.select_atoms("around 4 protein", updating=True) for one in pair)
    wanted = [
        (len(theirs), theirs.radius_of_gyration(), theirs.asphericity(), theirs.shape_parameter())
        for _ in theirs.universe.trajectory
    ]
    found = Gyration(ours).run(n_workers=2, block_frames=1).results
    numbers = [found.counts, found.rg, found.asphericity, found.shape_parameter]
    # MDAnalysis sums positions in single precision.
    np.testing.assert_allclose(np.transpose(numbers), wanted, rtol=1e-4)
    assert found.counts.dtype == np.int64
    assert found.to_dataframe()["atoms"].tolist() == found.counts.tolist()
    moments = [theirs.gyration_moments() for _ in theirs.universe.trajectory]
    np.testing.assert_allclose(found.gyration_moments, moments, rtol=1e-4)
    geometric = Gyration(ours, weights=None).run(backend="serial").results.rg
    spreads = [np.sqrt(theirs.positions.var(axis=0).sum()) for _ in theirs.universe.trajectory]
    np.testing.assert_allclose(geometric, spreads, rtol=1e-5)


#: Attributes that number the compounds of atoms.
NUMBERS = {"residues": "resindices", "segments": "segindices", "fragments": "fragindices"}


@pytest.mark.parametrize("compound", NUMBERS)
def test_gyration_of_compounds_of_a_group_that_changes(compound, pair):
    theirs, ours = (
        one.select_atoms("resname SOL and around 4 protein", updating=True) for one in pair
    )
    found = Gyration(ours, compound=compound).run(backend="serial").results
    waters = theirs.universe.select_atoms("resname SOL")
    assert found.compounds.tolist() == np.unique(getattr(waters, NUMBERS[compound])).tolist()
    for row, _ in enumerate(theirs.universe.trajectory):
        present, numbers = found.counts[row] > 0, getattr(theirs, NUMBERS[compound])
        groups = [theirs[numbers == number] for number in found.compounds[present]]
        assert found.counts[row].sum() == sum(map(len, groups)) == len(theirs)
        wanted = [
            (one.radius_of_gyration(), *(one.gyration_moments() if len(one) > 1 else [0.0] * 3))
            for one in groups
        ]
        numbers = np.column_stack([found.rg[row], found.gyration_moments[row]])
        np.testing.assert_allclose(numbers[present], wanted, rtol=1e-6, atol=1e-6)
        assert np.isnan(numbers[~present]).all()
        alone = found.counts[row] == 1
        assert np.isnan(found.asphericity[row][alone]).all()
    table = found.to_dataframe()
    assert table["atoms"].tolist() == found.counts.sum(axis=1).tolist()


def densities(run):
    """Return the densities of mass and charge along all axes."""
    axes = [run.results[axis] for axis in "xyz"]
    return np.array([(one.mass_density, one.charge_density) for one in axes])


@pytest.mark.parametrize("grouping", ["atoms", *NUMBERS])
def test_densities_along_axes_of_a_group_that_changes(grouping, wet):
    theirs, ours = (one.select_atoms("prop z > 12 and name OW HW1", updating=True) for one in wet)
    run = LinearDensity(ours, grouping, binsize=2.0).run(n_workers=2, block_frames=1)
    # Each frame separately, with a group that does not change.
    one_by_one = [
        densities(
            LinearDensity(ours.universe.atoms[theirs.indices], grouping, binsize=2.0).run(
                start=ts.frame, stop=ts.frame + 1, backend="serial"
            )
        )
        for ts in theirs.universe.trajectory
    ]
    assert len({one.tobytes() for one in one_by_one}) == len(one_by_one)
    np.testing.assert_allclose(densities(run), np.mean(one_by_one, axis=0), rtol=1e-12)
    deviations = run.results.z.mass_density_stddev
    np.testing.assert_allclose(deviations, np.std(one_by_one, axis=0)[2, 0], atol=1e-12)
    assert "prop z > 12" in run.parameters()["atoms"]


#: Groups, as functions of a Universe, and options.
RDF_GROUPS = {
    "near, and all": ("name OW and around 5 protein", "name OW", {}),
    "all, and near": ("all", "name OW and around 5 protein", {"range": (2.0, 7.0)}),
    "one group": ("resname SOL and around 6 protein", None, {"exclude_same": "residue"}),
    "two that change": ("prop x > 3", "around 3 protein", {"norm": "density"}),
    "of the same atoms": ("prop x > 3", "prop x > 3.0", {"norm": "none"}),
    "few": ("name OW and around 2.5 resid 1", "protein", {"range": (0.0, 4.0)}),
}


@pytest.mark.parametrize("name", RDF_GROUPS)
def test_pairs_of_groups_that_change(name, pair):
    first, second, given = RDF_GROUPS[name]
    has_cell = pair[0].dimensions is not None
    options = {"nbins": 30, "range": (0.0, 9.0), "norm": "rdf" if has_cell else "none"} | given
    sides = []
    for universe, module in zip(pair, (theirs_rdf, paceline.analysis.rdf), strict=True):
        one = universe.select_atoms(first, updating=first != "all")
        other = one if second is None else None
        if other is None:
            other = universe.select_atoms(second, updating=second not in ("name OW", "protein"))
        sides.append((one, other, module.InterRDF(one, other, **options)))
    (one, other, wanted), (*_, found) = sides
    sizes = np.array([(len(one), len(other)) for _ in one.universe.trajectory])
    assert len(np.unique(sizes, axis=0)) > 1
    wanted.run()
    found.run(n_workers=2, block_frames=1)
    assert found.results.count.tolist() == wanted.results.count.tolist()
    assert found.results.count.any()
    if options["norm"] != "rdf":
        np.testing.assert_allclose(found.results.rdf, wanted.results.rdf, rtol=1e-14)
        return
    assert found.results.volume_cum == pytest.approx(wanted.results.volume_cum)
    # MDAnalysis divides by the pairs of the first frame; the mean over frames is correct.
    pairs = sizes.prod(axis=1)
    np.testing.assert_allclose(
        found.results.rdf * pairs.mean(), wanted.results.rdf * pairs[0], rtol=1e-6
    )
    around = np.cumsum(found.results.count) / sizes[:, 0].sum()
    np.testing.assert_allclose(found.get_cdf(), around, rtol=1e-14)
    assert repr(first) in found.parameters()["g1"] or first == "all"


#: Selections (with a fixed group if there is a second one), and compounds.
CENTERS = {
    "of a shell": ("resname SOL and around 4 protein", None, "residues"),
    "of whole molecules": (
        "resname SOL and same residue as around 4 protein",
        "name OW",
        "fragments",
    ),
    "of one group": ("name OW HW1 and around 5 protein", "protein", ("residues", None)),
    "beside atoms": ("protein or prop z > 12", "resname SOL", (None, "residues")),
}


@pytest.mark.parametrize("name", CENTERS)
def test_centers_of_groups_that_change(name, wet):
    first, second, compound = CENTERS[name]
    kinds = [compound] * 2 if isinstance(compound, str) else compound
    sides = []
    for universe in wet:
        one = universe.select_atoms(first, updating=True)
        sides.append((one, one if second is None else universe.select_atoms(second)))
    options = {"nbins": 20, "range": (0.0, 9.0), "compound": compound}
    found = InterRDF(*sides[1], **options).run(n_workers=2, block_frames=1)
    wanted, alone, n_pairs, theirs = 0, 0, [], wet[0]
    for ts in theirs.trajectory:
        groups = [theirs.atoms[one.indices] for one in sides[0]]
        fixed = [sides[1][0].universe.atoms[one.indices] for one in groups]
        of_frame = InterRDF(*fixed, **options, norm="none")
        alone = (
            of_frame.run(start=ts.frame, stop=ts.frame + 1, backend="serial").results.count + alone
        )
        theirs.atoms.unwrap(compound="fragments", reference=None)
        centers = [
            one.positions if kind is None else one.center_of_mass(compound=kind)
            for one, kind in zip(groups, kinds, strict=True)
        ]
        distances = capped_distance(*(one.astype("f4") for one in centers), 9.0, box=ts.dimensions)
        wanted = wanted + np.histogram(distances[1], found.results.edges)[0]
        n_pairs.append(len(centers[0]) * len(centers[1]))
    assert found.results.count.tolist() == alone.tolist()
    # In MDAnalysis, centers are in double precision before they are rounded.
    np.testing.assert_allclose(found.results.count, wanted, atol=2)
    norm = np.mean(n_pairs) / (found.results.volume_cum / 3) * 3
    shells = 4 / 3 * np.pi * np.diff(found.results.edges**3)
    np.testing.assert_allclose(found.results.rdf, found.results.count / (norm * shells))
    theirs.trajectory.rewind()


def test_pairs_of_one_residue_are_excluded_between_centers(wet):
    shell = wet[1].select_atoms("resname SOL and around 4 protein", updating=True)
    options = {"nbins": 4, "range": (0.0, 2.0), "norm": "none", "compound": (None, "residues")}
    near = wet[1].select_atoms("name OW and around 4 protein", updating=True)
    every = InterRDF(near, shell, **options).run(backend="serial").results.count
    others = InterRDF(near, shell, **options, exclude_same="residue").run(backend="serial")
    assert every.sum() > others.results.count.sum()


def test_compounds_without_mass_in_a_group_are_named(wet):
    ours = wet[1].copy()
    ours.trajectory = paceline.mdanalysis.reader.Reader(wet[1].trajectory.filename)
    ours.select_atoms("name HW2").masses = 0.0
    tail = ours.select_atoms("name OW HW2 and prop z > 12", updating=True)
    water = ours.select_atoms("name OW")
    with pytest.raises(AnalysisError, match=r"frame 0: only massless atoms"):
        InterRDF(tail, water, compound=("residues", None)).run(backend="serial")
    with pytest.raises(AnalysisError, match=r"frame 0: number \d+ of the residues has no mass"):
        LinearDensity(tail, "residues", binsize=5.0).run(backend="serial")
    found = Gyration(tail, compound="residues").run(backend="serial").results
    heavy = [(tail.universe.atoms[tail.indices].masses > 0).sum() for _ in wet[0].trajectory]
    assert (found.rg == 0).sum(axis=1)[0] == heavy[0]


def test_a_group_that_is_never_there_has_no_compounds(wet):
    nobody = wet[1].select_atoms("name NOBODY and around 3 protein", updating=True)
    with pytest.raises(SelectionError, match="no atom can be in 'name NOBODY"):
        Gyration(nobody, compound="residues")
    with pytest.raises(SelectionError, match="no atom can be in g1: there are no residues"):
        InterRDF(nobody, wet[1].atoms, compound="residues")
    assert not densities(LinearDensity(nobody, binsize=5.0).run(backend="serial")).any()


def bits(universe, **options):
    """Return the results for updating groups, as bytes."""
    text = "resname SOL and same residue as around 4 protein"
    near = universe.select_atoms(text, updating=True)
    runs = [
        Gyration(near, compound="residues"),
        InterRDF(near, universe.select_atoms("name OW"), range=(0, 9), compound="residues"),
        LinearDensity(near, "residues", binsize=1.0),
    ]
    paceline.run(runs, **options)
    gyration, rdf, density = runs
    values = gyration.results.gyration_moments, rdf.results.rdf, densities(density)
    return [one.tobytes() for one in values]


def test_same_bits_of_groups_that_change_on_every_backend(where, wet):
    ours = wet[1]
    alone = bits(ours, backend="serial")
    assert bits(ours, **where) == bits(ours, backend="serial", block_frames=2) == alone


def test_groups_that_change_in_chains_and_with_transformations(wet):
    made, path = wet[0], wet[1].trajectory.filename
    chain = paceline.Universe(made._topology, [path, path])
    near = chain.select_atoms("same residue as around 4 protein", updating=True)
    found = Gyration(near, compound="residues").run(n_workers=2, block_frames=4).results
    assert len(found.rg) == 6
    np.testing.assert_array_equal(found.rg[:3], found.rg[3:])
    # Molecules are made whole before atoms are selected and measured.
    whole = made.copy()
    whole.load_new(path)
    whole.trajectory.add_transformations(unwrap(whole.select_atoms("resname SOL")))
    text = "name OW HW1 and prop z > 12"
    ours, theirs = (one.select_atoms(text, updating=True) for one in (chain, whole))
    counts = Gyration(ours, compound="segments").run(
        stop=3, transforms=[paceline.transform.unwrap("resname SOL")]
    )
    wanted = [(len(theirs), theirs.radius_of_gyration()) for _ in whole.trajectory]
    np.testing.assert_allclose(
        np.column_stack([counts.results.counts, counts.results.rg]), wanted, rtol=1e-5
    )


def test_density_of_a_group_that_changes(pair):
    theirs, ours = (one.select_atoms("name OW and around 6 protein", updating=True) for one in pair)
    wanted = theirs_density.DensityAnalysis(theirs, delta=3.0).run().results.density
    run = DensityAnalysis(ours, delta=3.0).run(n_workers=2, block_frames=1)
    assert run.results.density.grid.tolist() == wanted.grid.tolist()
    assert wanted.grid.any()
    assert "around 6 protein" in run.parameters()["atoms"]


def test_frames_in_which_a_group_is_empty(wet):
    heights = np.sort([ts.positions[:, 2].max() for ts in wet[0].trajectory])
    text = f"prop z > {(heights[0] + heights[1]) / 2}"
    theirs, ours = (one.select_atoms(text, updating=True) for one in wet)
    counts = np.array([len(theirs) for _ in theirs.universe.trajectory])
    assert sorted(counts)[0] == 0 < sorted(counts)[1]
    empty = int(np.argmin(counts))
    words = f"no atom with a mass in 1 frame, the first is {empty}"
    with pytest.warns(PacelineWarning, match=words):
        found = Gyration(ours).run(backend="serial").results
    assert found.counts.tolist() == counts.tolist()
    assert np.flatnonzero(np.isnan(found.rg)).tolist() == [empty]
    grid = {"gridcenter": [0, 0, 40], "xdim": 200, "ydim": 200, "zdim": 30}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings of MDAnalysis about grids
        wanted = theirs_density.DensityAnalysis(theirs, delta=5.0, **grid).run().results.density
        density = DensityAnalysis(ours, delta=5.0, **grid).run(backend="serial").results
    assert density.density.grid.tolist() == wanted.grid.tolist()
    assert density.counts.sum() == counts.sum()
    water = ours.universe.select_atoms("name OW")
    for same in (None, "residue"):
        options = {"nbins": 5, "range": (0.0, 9.0), "exclude_same": same}
        run = InterRDF(ours, water, **options).run(backend="serial")
        one_by_one = [
            InterRDF(ours.universe.atoms[theirs.indices], water, **options)
            .run(start=ts.frame, stop=ts.frame + 1, backend="serial")
            .results.count
            for ts in theirs.universe.trajectory
            if len(theirs)
        ]
        assert run.results.count.tolist() == np.sum(one_by_one, axis=0).tolist()
    volumes = sum(ts.volume for ts in theirs.universe.trajectory)
    assert run.results.volume_cum == pytest.approx(volumes)
    for compound in ("residues", (None, "residues"), ("residues", None)):
        options = {"norm": "none", "range": (0.0, 9.0), "compound": compound, "unwrap": False}
        centers = InterRDF(ours, ours, **options).run(backend="serial", block_frames=2)
        others = [frame for frame in range(len(counts)) if frame != empty]
        some = InterRDF(ours, ours, **options).run(backend="serial", frames=others)
        assert centers.results.count.tolist() == some.results.count.tolist()
    nobody = ours.universe.select_atoms("prop z > 1e5", updating=True)
    with pytest.warns(PacelineWarning, match=r"in no frame .* both g1 and g2 contain atoms"):
        none = InterRDF(nobody, water, nbins=5).run(backend="serial").results
    assert np.isnan(none.rdf).all()
    assert not none.count.any()


def test_gyration_of_a_single_atom_is_that_of_a_point(wet):
    positions = [ts.positions[:, 2] for ts in wet[0].trajectory]
    top = [np.sort(one)[-2:] for one in positions]
    # Only one atom is above in the first frame.
    ours = wet[1].select_atoms(f"prop z > {top[0].mean()}", updating=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PacelineWarning)
        found = Gyration(ours).run(stop=1, backend="serial").results
    assert found.counts.tolist() == [1]
    assert found.rg.tolist() == [0.0]
    assert np.isnan([found.asphericity, found.shape_parameter]).all()


# All analyses

#: Base classes, and classes whose arguments are descriptions of analyses.
NO_ANALYSES = {
    "AnalysisBase",
    "ChainAnalysis",
    "GroupsAnalysis",
    "SingleFrameAnalysis",
    "Battery",
    "Replicas",
}
#: Parameters that are Universes from which no atoms are taken, or a reference in the current frame.
NO_GROUPS = {("InterRDF_s", "u"), ("Contacts", "u"), ("Contacts", "refgroup")}
#: Other required parameters.
GIVEN = {
    "function": depth,
    "scan": depth,
    "compute": depth,
    "merge": np.add,
    "cutoff": 2.0,
    "SurvivalProbability.select": "around 3 protein",
}


def analyses():
    """Return all classes of analyses, by name."""
    found = {}
    for module in pkgutil.iter_modules(paceline.analysis.__path__):
        one = importlib.import_module(f"paceline.analysis.{module.name}")
        for name, value in vars(one).items():
            own = isinstance(value, type) and value.__module__ == one.__name__
            # Names of MDAnalysis exist after the first access.
            own = own and not issubclass(value, MDAnalysis.analysis.base.AnalysisBase)
            if own and hasattr(value, "run") and name[0] != "_" and name not in NO_ANALYSES:
                found[name] = value
    return found


def parameters_of(cls):
    """Return the names of parameters that are atoms, and of other required parameters."""
    names, others = [], []
    for name, parameter in inspect.signature(cls.__init__).parameters.items():
        takes_atoms = name in (*ATOMS, "group", "hydrogens") or (
            name == "select" and cls.__name__ in ("LinearDensity", "Contacts", "LeafletSeries")
        )
        if takes_atoms:
            names.append(name)
        elif parameter.default is parameter.empty and parameter.kind != parameter.VAR_KEYWORD:
            others.append(name)
    return names, others[1:]  # without self


def made_with(cls, changing, atoms, group):
    """Create an analysis in which one parameter is an updating group, and others are fixed."""
    names, others = parameters_of(cls)
    signature = inspect.signature(cls.__init__).parameters
    arguments = {}
    for name in names:
        one = group if name == changing else atoms
        if name != changing and signature[name].default is not inspect.Parameter.empty:
            continue
        if name in ("u", "universe") and name != changing:
            one = atoms.universe
        shapes = {"atomgroups": [one], "ags": [(atoms, one)], "refgroup": (atoms, one)}
        if cls.__name__ == "Contacts":
            shapes["select"] = (atoms, one)
        arguments[name] = shapes.get(name, one)
    for name in (*others, "cutoff") if cls.__name__ == "Clustering" else others:
        arguments[name] = GIVEN.get(f"{cls.__name__}.{name}", GIVEN.get(name))
    return cls(**arguments)


def what_they_do(universe):
    """Return the analyses that support updating groups, and those that refuse them."""
    atoms = universe.select_atoms("resname SOL")[:30]
    group = universe.select_atoms("resname SOL and prop z > 3", updating=True)
    done = {}
    for name, cls in analyses().items():
        for parameter in parameters_of(cls)[0]:
            if (name, parameter) in NO_GROUPS:
                continue
            try:
                made_with(cls, parameter, atoms, group)
                does = "find"
            except UnsupportedError as error:
                does = "refuse" if "UpdatingAtomGroup" in str(error) else str(error)
            assert done.setdefault(name, does) == does, (name, parameter)
    return done


def test_every_analysis_finds_the_atoms_or_refuses_as_the_manual_says(wet, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # AlignTraj writes a file
    done = what_they_do(wet[1])
    manual = (Path(__file__).parents[1] / "docs" / "changing-groups.md").read_text()
    rows = re.findall(r"^\| (find|refuse)[^|]*\|([^|]*)\|", manual, re.MULTILINE)
    told = {name: does for does, names in rows for name in re.findall(r"`(\w+)`", names)}
    assert told.keys() <= done.keys()
    assert dict.fromkeys(done, "refuse") | told == done


def test_the_table_of_the_manual_has_every_analysis_and_its_command():
    page = (Path(__file__).parents[1] / "docs" / "analysing.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\|[^|]*\|([^|]*)\|([^|]*)\|$", page, re.MULTILINE)
    classes = {name for cell, _ in rows for name in re.findall(r"`(?:\w+\.)*(\w+)`", cell)}
    commands = {name for _, cell in rows for name in re.findall(r"`([^`]+)`", cell)}
    assert set(analyses()) <= classes
    assert catalogue().keys() <= commands


@pytest.mark.parametrize("tau_max", [0, 1, 12, 30, 59])
@pytest.mark.parametrize("at_a_time", [1, 1000])
def test_returns_are_counted_alike_by_pairs_and_by_transforms(tau_max, at_a_time, monkeypatch):
    random = np.random.default_rng(23)
    there = random.random((40, 60)) < np.linspace(0, 1, 40)[:, np.newaxis]
    numbers, rows = np.nonzero(there)
    monkeypatch.setattr(groups, "TRANSFORMED", at_a_time)
    starts = block_starts(60, tau_max)
    assert len(starts) == (11 if tau_max in (1, 12) else 2)
    lags = range(tau_max + 1)
    # For each block, the origins from which an atom returns or stays.
    returns, stays, origins = np.zeros((3, len(starts) - 1, tau_max + 1), int)
    for block, (a, b) in enumerate(itertools.pairwise(starts)):
        for lag in lags:
            some = range(a, min(b, 60 - lag))
            returns[block, lag] = sum((there[:, t] & there[:, t + lag]).sum() for t in some)
            stays[block, lag] = sum(there[:, t : t + lag + 1].all(axis=1).sum() for t in some)
            origins[block, lag] = sum(there[:, t].sum() for t in some)
    times = 120 * numbers + rows
    for pairs in (0, 0.1, np.inf):
        monkeypatch.setattr(groups, "PAIRS_AS_TRANSFORM", pairs)
        np.testing.assert_array_equal(groups._returns(times, 60, tau_max, starts), returns)
    np.testing.assert_array_equal(groups._survivors(times, 60, tau_max, starts), stays)
    found = groups._origins(there.sum(axis=0), starts, tau_max)
    np.testing.assert_array_equal(found, origins)
