"""Tests of densities on a grid: equal counts as numpy.histogramdd, and MDAnalysis's results."""

import io
import warnings

import gridData
import MDAnalysis
import mrcfile
import numpy as np
import pytest
from MDAnalysis.analysis import density as theirs_module
from MDAnalysisTests.datafiles import TPR, XTC

import paceline
from paceline.analysis.density import DensityAnalysis
from paceline.errors import AnalysisError, PacelineWarning, SelectionError, UnsupportedError

GRIDS = {
    "around the atoms": {},
    "coarse": {"delta": 2.5, "padding": 0.0},
    "of the user": {"delta": 1.1, "gridcenter": [20, 21, 22.5], "xdim": 30, "ydim": 7, "zdim": 3},
    "beside the atoms": {"gridcenter": [900, 21, 22], "xdim": 30, "ydim": 7, "zdim": 3},
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("grid", GRIDS)
def test_counts_are_theirs_to_the_last_atom(grid):
    theirs, ours = (
        kind(TPR, XTC).select_atoms("name OW or name CA")
        for kind in (MDAnalysis.Universe, paceline.Universe)
    )
    wanted = theirs_module.DensityAnalysis(theirs, **GRIDS[grid]).run()
    found = DensityAnalysis(ours, **GRIDS[grid]).run(block_frames=2)
    np.testing.assert_array_equal(found.results.density.grid, wanted.results.density.grid)
    for name in ("edges", "origin", "delta"):
        both = (getattr(one.results.density, name) for one in (found, wanted))
        for one, other in zip(*both, strict=True):
            np.testing.assert_array_equal(one, other)
    assert found.results.density.units == wanted.results.density.units
    assert found.results.density.parameters == wanted.results.density.parameters
    if grid == "coarse":
        # Without padding, the outermost atoms of the first frame are on edges.
        assert found.results.counts.sum() > 0


def test_atoms_on_every_edge(tmp_path):
    """Check integer positions on an integer grid: the last edge belongs to the last voxel."""
    points = np.stack(np.meshgrid(*[np.arange(-1, 5)] * 3), -1).reshape(-1, 3).astype(np.float32)
    universe = MDAnalysis.Universe.empty(len(points), trajectory=True)
    path = str(tmp_path / "points.nc")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with MDAnalysis.Writer(path, len(points)) as writer:
            for _ in range(40):
                universe.atoms.positions = points
                writer.write(universe.atoms)
        atoms = paceline.Universe(universe._topology, path).atoms
        found = DensityAnalysis(atoms, gridcenter=[1.5] * 3, xdim=3, ydim=3, zdim=3).run()
    along = np.array([1, 1, 2])
    wanted = 40 * along[:, None, None] * along[:, None] * along
    np.testing.assert_array_equal(found.results.counts, wanted)
    assert found.results.counts.dtype == np.uint64
    np.testing.assert_array_equal(found.results.density.grid, wanted / 40)


def test_what_is_done_with_a_density(tmp_path):
    water = paceline.Universe(TPR, XTC).select_atoms("name OW")
    analysis = DensityAnalysis(water, 4.0, {"of": "water"}).run(stop=2)
    with pytest.warns(DeprecationWarning, match=r"results\.density"):
        density = analysis.density
    assert density is analysis.results.density
    assert isinstance(density, theirs_module.Density)
    assert density.metadata["of"] == "water"
    atoms = density.grid.sum() * np.prod(density.delta)
    assert atoms == pytest.approx(len(water), rel=1e-3)
    for ending in ("dx", "mrc"):
        density.export(str(tmp_path / f"water.{ending}"), type="double")
        again = theirs_module.Density(str(tmp_path / f"water.{ending}"))
        np.testing.assert_allclose(again.grid, density.grid, rtol=1e-5)
    analysis.results.save(tmp_path / "water.npz")
    with np.load(tmp_path / "water.npz") as saved:
        np.testing.assert_array_equal(saved["density"], density.grid)
        np.testing.assert_array_equal(saved["density.edges_z"], density.edges[2])
        np.testing.assert_array_equal(saved["counts"], analysis.results.counts)
        assert any(line.startswith("grid (Å): ") for line in saved["provenance"])
    bulk = density.grid.max()
    density.convert_density("SPC")
    assert density.grid.max() == pytest.approx(
        bulk / MDAnalysis.units.get_conversion_factor("density", "SPC", "Angstrom^{-3}")
    )


def origins_of_mrc(path):
    """Return the center of the first voxel by gridData, by the header, and by ChimeraX's
    convention.
    """
    with mrcfile.open(path) as file:
        header, edges = file.header, file.voxel_size
        found, starts, steps = (
            np.array([one[name] for name in names], dtype=float)
            for one, names in (
                (header.origin, "xyz"),
                (header, ("nxstart", "nystart", "nzstart")),
                (edges, "xyz"),
            )
        )
    # ChimeraX uses the skipped voxels if the header has no origin.
    chimerax = found if found.any() else starts * steps
    return gridData.Grid(str(path)).origin, found, chimerax


@pytest.mark.parametrize("center", [(41.3, 40.2, 39.9), (0.0, -7.7, 3.1), (15.0, 11.0, 8.5)])
def test_mrc_has_the_true_origin(center, tmp_path):
    atoms = paceline.Universe(TPR, XTC).select_atoms("name OW")
    grid = {"gridcenter": center, "xdim": 27.0, "ydim": 19.0, "zdim": 14.0}
    results = DensityAnalysis(atoms, 3.7, **grid).run(stop=1).results
    for ending in ("mrc", "dx"):
        results.save(tmp_path / f"water.{ending}")
    assert mrcfile.validate(tmp_path / "water.mrc", print_file=io.StringIO())
    wanted = [edges[:2].mean() for edges in results.density.edges]
    for found in origins_of_mrc(tmp_path / "water.mrc"):
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)
    one, other = (gridData.Grid(str(tmp_path / f"water.{end}")) for end in ("mrc", "dx"))
    np.testing.assert_allclose(one.grid, other.grid, rtol=1e-6)
    np.testing.assert_allclose(one.delta, results.density.delta, rtol=1e-6)
    for found, edges in zip(one.edges, results.density.edges, strict=True):
        np.testing.assert_allclose(found, edges, rtol=0, atol=1e-4)


@pytest.mark.filterwarnings("ignore")
def test_registered_runs_use_it_where_they_can(monkeypatch):
    called = []
    run = DensityAnalysis.run
    monkeypatch.setattr(DensityAnalysis, "run", lambda *a, **k: called.append(1) or run(*a, **k))
    grid = {"gridcenter": [40] * 3, "xdim": 9, "ydim": 9, "zdim": 9}
    densities = []
    paceline.register()
    try:
        universe = MDAnalysis.Universe(TPR, XTC)
        water = universe.select_atoms("name OW")
        for group, arguments in (
            (water, {}),
            (universe.select_atoms("name OW and prop x < 40", updating=True), {"delta": 5.0}),
            (water[:0], grid),
        ):
            analysis = theirs_module.DensityAnalysis(group, **arguments).run()
            densities.append(analysis.results.density)
    finally:
        paceline.unregister()
    assert called == [1, 1]
    theirs = MDAnalysis.Universe(TPR, XTC)
    changing = theirs.select_atoms("name OW and prop x < 40", updating=True)
    for density, (group, delta) in zip(
        densities, ((theirs.select_atoms("name OW"), 1.0), (changing, 5.0)), strict=False
    ):
        wanted = theirs_module.DensityAnalysis(group, delta).run().results.density
        np.testing.assert_array_equal(density.grid, wanted.grid)
        assert wanted.grid.any()
    assert not densities[2].grid.any()


def test_positions_that_are_no_numbers_are_named(tmp_path):
    universe = MDAnalysis.Universe.empty(3, trajectory=True)
    path = str(tmp_path / "made.nc")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with MDAnalysis.Writer(path, 3) as writer:
            for frame in range(3):
                universe.atoms.positions = [[1, 1, 1], [2, np.nan if frame == 1 else 2, 2], [3] * 3]
                writer.write(universe.atoms)
    atoms = paceline.Universe(universe._topology, path).atoms
    with pytest.raises(AnalysisError, match="frame 1: positions are not all finite"):
        DensityAnalysis(atoms).run()
    assert DensityAnalysis(atoms[[2, 0]]).run().results.counts.sum() == 6


def test_what_has_no_density_is_refused(universe):
    with pytest.raises(SelectionError, match="no atoms"):
        DensityAnalysis(universe.atoms[:0])
    with pytest.raises(UnsupportedError, match="DensityAnalysis: workers cannot evaluate"):
        DensityAnalysis(universe.select_atoms("bonded around 3 index 0", updating=True))
    with pytest.raises(ValueError, match="No atoms in AtomGroup at input time frame"):
        DensityAnalysis(universe.select_atoms("prop z > 1e5", updating=True))
    for delta in (0, -1, np.nan, np.inf):
        with pytest.raises(ValueError, match="delta must be"):
            DensityAnalysis(universe.atoms, delta)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(ValueError, match="not provided"):
            DensityAnalysis(universe.atoms, xdim=3)


def test_the_share_of_atoms_outside_the_grid_is_reported(tmp_path):
    made, path = MDAnalysis.Universe.empty(10, trajectory=True), tmp_path / "leaves.trr"
    rng = np.random.default_rng(1)
    made.dimensions = [20, 20, 20, 90, 90, 90]
    with MDAnalysis.Writer(str(path), 10) as writer:
        for k in range(5):
            made.atoms.positions = rng.uniform(0, 20, (10, 3))
            if k:
                made.atoms.positions = rng.uniform(1, 19, (10, 3))
                made.atoms[:k].positions += [100, 0, 0]
            else:
                made.atoms[:2].positions = [[0, 0, 0], [20, 20, 20]]
            writer.write(made.atoms)
    universe = paceline.Universe(made._topology, path)
    # Outside are 1 + 2 + 3 + 4 of 50 atoms.
    with pytest.warns(PacelineWarning, match=r"20 % of the atoms, over all frames, are outside"):
        found = DensityAnalysis(universe.atoms).run().results
    assert found.provenance["atoms outside the grid"] == "20 %"
    assert "20 %" in found.provenance["warnings"]
    assert int(found.counts.sum()) == 40
    changing = universe.select_atoms("prop z >= 0", updating=True)
    with pytest.warns(PacelineWarning, match="20 % of the atoms"):
        DensityAnalysis(changing).run()
    grid = {"gridcenter": [10, 10, 10], "xdim": 30, "ydim": 30, "zdim": 30}
    with warnings.catch_warnings():
        warnings.simplefilter("error", PacelineWarning)
        found = DensityAnalysis(universe.atoms, **grid, padding=0).run().results
        DensityAnalysis(universe.atoms).run(stop=1)
    assert found.provenance["atoms outside the grid"] == "20 %"
    nm = {"gridcenter": [900, 1, 1], "xdim": 3, "ydim": 3, "zdim": 3}
    with pytest.warns(PacelineWarning, match="100 % of the atoms.* set a grid around"):
        DensityAnalysis(universe.atoms, **nm, padding=0).run()
