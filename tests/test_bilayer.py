"""Tests of the area per lipid and the thickness of bilayers against NumPy."""

import warnings

import MDAnalysis
import numpy as np
import pytest
from MDAnalysis.lib.distances import distance_array
from MDAnalysisTests.datafiles import GRO_MEMPROT, XTC_MEMPROT, Martini_membrane_gro

import paceline
from paceline._util.option_values_and_selections import LIPIDS
from paceline.analysis.battery import Battery
from paceline.analysis.bilayer import Bilayer
from paceline.errors import AnalysisError, PacelineWarning

pytestmark = pytest.mark.filterwarnings("ignore:Bilayer. the system contains a protein")


def connected(heads, cutoff=15.0):
    """Return the groups of connected head atoms, computed from all distances."""
    near = distance_array(heads.positions, heads.positions, box=heads.dimensions) <= cutoff
    rest, found = set(range(len(heads))), []
    while rest:
        group = np.zeros(len(heads), bool)
        group[min(rest)] = True
        while (more := near[group].any(axis=0)).sum() > group.sum():
            group = more
        found.append(heads[group])
        rest -= set(np.flatnonzero(group).tolist())
    return found


def by_numpy(topology, *files, select=LIPIDS):
    """Return the areas of both leaflets (upper first), and the thickness, of each frame."""
    universe = MDAnalysis.Universe(topology, *files)
    found = []
    for _ in universe.trajectory:
        groups = sorted(connected(universe.select_atoms(select)), key=len)[-2:]
        upper, lower = sorted(groups, key=lambda one: -one.positions[:, 2].mean())
        a, b, _ = universe.trajectory.ts.triclinic_dimensions.astype(np.float64)
        area = abs(a[0] * b[1] - a[1] * b[0])
        heights = [one.positions[:, 2].astype(np.float64).mean() for one in (upper, lower)]
        found.append([area / len(upper), area / len(lower), heights[0] - heights[1]])
    return np.array(found)


@pytest.mark.parametrize("files", [(GRO_MEMPROT, XTC_MEMPROT), (Martini_membrane_gro,)])
def test_numbers_are_those_of_numpy(files):
    universe = paceline.Universe(*files)
    results = Bilayer(universe.select_atoms(LIPIDS)).run().results
    wanted = by_numpy(*files)
    np.testing.assert_allclose(results.area_per_lipid, wanted[:, :2], rtol=1e-6)
    np.testing.assert_allclose(results.thickness, wanted[:, 2], rtol=1e-5)
    titles = list(results.table.columns)
    assert titles[2:5] == [
        "area per lipid, upper leaflet (Å²)",
        "area per lipid, lower leaflet (Å²)",
        "thickness (Å)",
    ]


def test_same_bits_on_every_backend(where):
    universe = paceline.Universe(GRO_MEMPROT, XTC_MEMPROT)
    heads = universe.select_atoms(LIPIDS)
    one = Bilayer(heads).run(backend="serial", block_frames=2).results
    other = Bilayer(heads[::-1]).run(**where).results
    for name in ("area_per_lipid", "thickness", "n_lipids"):
        assert one[name].tobytes() == other[name].tobytes()


def membrane(tmp_path, height=90.0, shift=0.0, bend=0.0, tails=True, n_frames=3):
    """Write a bilayer of 2 × 64 lipids of three atoms, 40 Å thick, wrapped atom by atom."""
    grid = 8.0 * np.stack(np.meshgrid(np.arange(8), np.arange(8)), axis=-1).reshape(-1, 2)
    rows = []
    for side in (1, -1):
        for x, y in grid[: 64 if side > 0 else 60]:
            tilt = bend * np.sin(2 * np.pi * x / 64)
            rows += [[x, y, side * z + tilt] for z in ((20.0, 12.0, 4.0) if tails else (20.0,))]
    n_each = 3 if tails else 1
    n = len(rows) // n_each
    universe = MDAnalysis.Universe.empty(
        len(rows), n, atom_resindex=np.repeat(np.arange(n), n_each), trajectory=True
    )
    universe.add_TopologyAttr("names", ["P", "C1", "C2"][:n_each] * n)
    universe.add_TopologyAttr("resnames", ["POPC"] * n)
    frames = np.array(rows) + np.random.default_rng(5).normal(0, 0.3, (n_frames, len(rows), 3))
    frames[:, :, 2] = (frames[:, :, 2] + shift) % height
    cells = np.float32([[64, 64, height, 90, 90, 90]] * n_frames)
    universe.load_new(frames.astype(np.float32), dimensions=cells)
    path = str(tmp_path / "bilayer.xtc")
    universe.atoms.write(path, frames="all")
    return paceline.Universe(universe._topology, path)


@pytest.mark.parametrize("shift", [45.0, 0.0, 20.0, 70.0])
@pytest.mark.parametrize("height", [90.0, 60.0])
def test_a_bilayer_across_the_border_and_with_little_water(height, shift, tmp_path):
    """Check that the tails decide if the water is thinner than the membrane."""
    results = Bilayer(membrane(tmp_path, height, shift).select_atoms("name P")).run().results
    np.testing.assert_allclose(results.thickness, 40, atol=0.3)
    assert results.n_lipids.tolist() == [[64, 60]] * 3
    np.testing.assert_allclose(results.area_per_lipid, [[64, 64 * 64 / 60]] * 3, rtol=1e-5)


def test_heads_alone_are_nearest_images(tmp_path):
    universe = membrane(tmp_path, 90.0, 80.0, tails=False)
    results = Bilayer(universe.atoms).run().results
    np.testing.assert_allclose(results.thickness, 40, atol=0.3)
    assert results.n_lipids.tolist() == [[64, 60]] * 3


def test_curved_membranes_have_no_numbers(tmp_path):
    bent = membrane(tmp_path, 120.0, 60.0, bend=16.0)
    with pytest.warns(PacelineWarning, match="curved or tilted, or its normal is not along z"):
        results = Bilayer(bent.select_atoms("name P")).run().results
    assert np.isnan(results.thickness).all()
    assert np.isnan(results.area_per_lipid).all()
    slightly = membrane(tmp_path, 120.0, 60.0, bend=4.0)
    results = Bilayer(slightly.select_atoms("name P")).run().results
    np.testing.assert_allclose(results.thickness, 40, atol=0.3)


def test_a_membrane_along_another_axis_has_none(tmp_path):
    universe = MDAnalysis.Universe(Martini_membrane_gro)
    universe.atoms.positions = universe.atoms.positions[:, [2, 0, 1]]
    universe.dimensions = universe.dimensions[[2, 0, 1, 3, 4, 5]]
    universe.atoms.write(tmp_path / "turned.gro")
    turned = paceline.Universe(tmp_path / "turned.gro")
    with pytest.warns(PacelineWarning, match="all numbers are NaN"):
        results = Bilayer(turned.select_atoms("name PO4")).run().results
    assert np.isnan(results.thickness).all()


def test_one_leaflet_has_none(tmp_path):
    universe = membrane(tmp_path)
    with pytest.warns(PacelineWarning, match="no frame has two leaflets"):
        results = Bilayer(universe.select_atoms("name P"), cutoff=44.0).run().results
    assert np.isnan(results.area_per_lipid).all()


def test_frames_that_are_not_flat_are_left_out(tmp_path):
    """Check that the numbers of other frames do not change."""
    flat, bent = membrane(tmp_path, 120.0, 60.0), tmp_path / "bent"
    bent.mkdir()
    other = membrane(bent, 120.0, 60.0, bend=16.0, n_frames=1)
    universe = paceline.Universe(
        flat._topology, [flat.trajectory.filename, other.trajectory.filename]
    )
    with pytest.warns(PacelineWarning, match="1 frame of 4 do not have two flat leaflets"):
        results = Bilayer(universe.select_atoms("name P")).run().results
    assert np.isnan(results.thickness).tolist() == [False, False, False, True]
    assert np.isnan(results.area_per_lipid[3]).all()


def test_a_frame_without_a_cell_is_an_error(tmp_path):
    universe = MDAnalysis.Universe(Martini_membrane_gro)
    universe.dimensions = None
    universe.select_atoms("name PO4").write(tmp_path / "bare.xyz")
    bare = paceline.Universe(tmp_path / "bare.xyz")
    with pytest.raises(AnalysisError, match="frame 0: expected a cell"):
        Bilayer(bare.atoms).run()


def test_a_protein_is_noted():
    universe = paceline.Universe(GRO_MEMPROT, XTC_MEMPROT)
    with warnings.catch_warnings():
        warnings.simplefilter("error", PacelineWarning)
        with pytest.raises(PacelineWarning, match="areas per lipid include the area"):
            Bilayer(universe.select_atoms(LIPIDS)).run(stop=1)


def test_batteries_have_bilayers_of_martini(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        battery = Battery.default(paceline.Universe(Martini_membrane_gro)).run()
        battery.save(tmp_path)
    assert {"leaflets", "bilayer"} <= battery.analyses.keys()
    assert battery.analyses["bilayer"].results.area_per_lipid.round(1).tolist() == [[72.2, 72.2]]
    assert (tmp_path / "bilayer.csv").exists()


def test_area_and_thickness_are_both_answered_and_drawn(tmp_path):
    results = (
        Bilayer(paceline.Universe(GRO_MEMPROT, XTC_MEMPROT).select_atoms(LIPIDS)).run().results
    )
    answered = [one.partition(":")[0] for one in results.summary()]
    leaflets = [f"area per lipid, {one} leaflet" for one in ("upper", "lower")]
    assert answered == [*leaflets, "thickness"]
    results.save(tmp_path / "bilayer.csv")
    assert "# mean of thickness (Å): " in (tmp_path / "bilayer.csv").read_text(encoding="utf-8")
    above, below = results.plot().figure.axes
    assert [one.get_ylabel() for one in (above, below)] == ["area per lipid (Å²)", "thickness (Å)"]
    assert [len(one.lines) for one in (above, below)] == [2, 1]
