"""Tests of free-energy surfaces for coordinates with known free energy."""

import numpy as np
import pytest
from helpers.analyses import rmsd_and_gyration

import paceline
from paceline.analysis.free_energy import BOLTZMANN, free_energy_surface
from paceline.analysis.pca import PCA


@pytest.mark.parametrize("temperature", [300.0, 450.0])
def test_two_harmonic_coordinates(temperature):
    """Check two potentials ½ k x²: values are normal, with variance kT / k."""
    rng = np.random.default_rng(3)
    stiffness, thermal = np.array([4.0, 0.5]), BOLTZMANN * temperature
    x, y = rng.normal(size=(2, 400_000)) * np.sqrt(thermal / stiffness)[:, None]
    found = free_energy_surface(x, y, temperature=temperature, bins=(31, 41))
    middles = [(edges[1:] + edges[:-1]) / 2 for edges in (found.x_edges, found.y_edges)]
    energies = [k * middle**2 / 2 for k, middle in zip(stiffness, middles, strict=True)]
    wanted = np.add.outer(*energies)
    counts = found.counts
    many = counts >= 1000
    assert many.sum() > 100
    # Statistical error of the bin and of the fullest bin, to which all are compared, and the change
    # within a bin.
    error = thermal * np.sqrt(1 / counts[many] + 1 / counts.max())
    off = found.free_energy[many] - wanted[many]
    assert np.abs(off - off.mean()).max() < 5 * error.max() + 0.02 * thermal
    assert abs(off.mean()) < 0.05 * thermal
    assert np.isnan(found.free_energy[counts == 0]).all()
    assert (counts == 0).any()
    assert np.nanmin(found.free_energy) == 0
    assert counts.sum() == 400_000
    assert found.provenance["convergence"] == "both series are converged"
    assert found.table.image.label == f"free energy at {temperature:g} K (kJ/mol)"


def test_arrays_and_files_have_both_series(tmp_path):
    x, y = np.random.default_rng(4).normal(size=(2, 100))
    found = free_energy_surface(x, y, bins=(3, 4), labels=("a (Å)", "b (Å)"))
    energy = found.to_xarray()["free energy"]
    assert (energy.dims, energy.shape) == (("a", "b"), (3, 4))
    np.testing.assert_array_equal(energy, found.free_energy)
    found.save(tmp_path / "surface.xvg")
    rows = np.loadtxt(tmp_path / "surface.xvg", comments=("#", "@"))
    middles = [(edges[1:] + edges[:-1]) / 2 for edges in (found.x_edges, found.y_edges)]
    wanted = [*map(np.ravel, np.meshgrid(*middles, indexing="ij")), found.free_energy.ravel()]
    np.testing.assert_array_equal(rows, np.transpose(wanted))


def test_series_that_are_not_converged_are_named():
    rng = np.random.default_rng(5)
    found = free_energy_surface(np.linspace(1, 2, 500), rng.normal(size=500), labels=("a (Å)", "b"))
    assert found.table.image.note.startswith("not converged, independent values:\na ")
    assert ", b " not in found.table.image.note


def test_intervals_of_all_bins(tmp_path):
    """Frames are independent: the variance of ln n is 1 / n, here of both bins."""
    rng = np.random.default_rng(6)
    x, y = rng.normal(size=(2, 20_000))
    options = {"bins": 4, "range": ((-2, 2), (-2, 2))}
    found = free_energy_surface(x, y, **options, errors=True)
    assert np.array_equal(found.free_energy, free_energy_surface(x, y, **options).free_energy)
    half, counts = found.free_energy_interval, found.counts
    fullest = np.unravel_index(counts.argmax(), counts.shape)
    assert np.isnan(half[fullest])
    assert np.isnan(half).sum() == 1
    wanted = 1.96 * BOLTZMANN * 300 * np.sqrt(1 / counts + 1 / counts.max())
    ratio = half[~np.isnan(half)] / wanted[~np.isnan(half)]
    assert 0.7 < ratio.min() < np.median(ratio) < 1.5
    assert "± " in found.table.image.note.splitlines()[-1]
    title = "free energy, 95 % ± (kJ/mol)"
    np.testing.assert_array_equal(found.table.columns[title], half.ravel())
    found.save(tmp_path / "surface.csv")
    assert "# intervals: 95 %, by jackknife of 64 parts" in (tmp_path / "surface.csv").read_text(
        encoding="utf-8"
    )


def test_a_bin_that_is_visited_once_has_no_interval():
    x = np.repeat([0.2, 0.8, 0.2], [500, 10, 490])
    y = np.random.default_rng(7).random(1000)
    found = free_energy_surface(x, y, bins=(2, 1), range=((0, 1), (0, 1)), errors=True)
    assert found.counts.ravel().tolist() == [990, 10]
    assert np.isnan(found.free_energy_interval).all()
    assert found.table.image.note.endswith("no 95 % intervals: too few frames")


def test_frames_that_are_missing_or_outside():
    x = np.array([0.1, 0.2, np.nan, 0.4, 5.0])
    y = np.array([0.1, np.nan, 0.3, 0.4, 0.1])
    found = free_energy_surface(x, y, bins=2, range=((0, 1), (0, 1)))
    assert found.counts.tolist() == [[2, 0], [0, 0]]
    assert found.provenance["frames"] == "2 of 5"


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        (([1, 2], [1, 2, 3]), {}, "series of equal length"),
        (([[1.0]], [[1.0]]), {}, "series of equal length"),
        (([1.0], [2.0]), {"temperature": 0}, "temperature must be above 0 K"),
        (([1.0], [2.0]), {"bins": 0}, "bins must be at least 1"),
        (([1.0], [2.0]), {"range": ((0, 1), (3, 2))}, "range must be two pairs"),
        (([1.0], [2.0]), {"range": ((5, 6), (5, 6))}, "no frame is within the range"),
        (([np.nan], [2.0]), {}, "in no frame do both"),
    ],
)
def test_parameters_that_make_no_sense(arguments, options, words):
    with pytest.raises(ValueError, match=words):
        free_energy_surface(*arguments, **options)


@pytest.fixture(scope="module")
def tables(adk, tmp_path_factory):
    """Tables of two analyses of the same frames, of other frames, and projections."""
    folder = tmp_path_factory.mktemp("tables")
    universe = paceline.Universe(*adk)
    rmsd, gyration = rmsd_and_gyration(universe)
    pca = PCA(universe, "name CA", align=True, n_projected=3)
    paceline.run([rmsd, gyration, pca])
    rmsd.results.save(folder / "rmsd.csv")
    gyration.results.save(folder / "gyration.tsv")
    rg = gyration.results.rg
    pca.results.save(folder / "pca.npz")
    gyration.run(start=50).results.save(folder / "late.csv")
    return folder, rmsd.results.rmsd[:, 2], rg, pca.results.projection


def test_the_command_takes_tables(tables, tmp_path, run):
    folder, rmsd, rg, projection = tables
    output, figure = tmp_path / "surface.npz", tmp_path / "surface.svg"
    files = folder / "rmsd.csv", folder / "gyration.tsv"
    options = ["--bins", 8, "--temperature", 310, "-o", output, "--plot", figure]
    assert run("surface", *files, *options) == (0, "", "")
    found = np.load(output)
    wanted = free_energy_surface(rmsd, rg, bins=8, temperature=310)
    np.testing.assert_array_equal(found["counts"], wanted.counts)
    np.testing.assert_array_equal(found["free_energy"], wanted.free_energy)
    drawn = figure.read_text(encoding="utf-8")
    for text in ("RMSD (Å)", "Rg (Å)", "free energy at 310 K (kJ/mol)", "not converged"):
        assert text in drawn
    status, out, err = run("surface", folder / "pca.npz", "--bins", 5, 4)
    assert (status, err) == (0, "")
    wanted = free_energy_surface(projection[:, 0], projection[:, 1], bins=(5, 4))
    rows = [line.split("\t") for line in out.splitlines()]
    assert rows[0] == ["projection 1", "projection 2", "free energy (kJ/mol)", "frames"]
    assert [int(row[3]) for row in rows[1:]] == wanted.counts.ravel().tolist()


def test_frames_of_both_tables_are_compared(tables, run):
    folder, rmsd, rg, _ = tables
    status, out, err = run("surface", folder / "rmsd.csv", folder / "late.csv", "--bins", 3)
    assert status == 0
    assert err == "paceline: warning: only 48 frames are in both tables, of 98 and 48\n"
    wanted = free_energy_surface(rmsd[50:], rg[50:], bins=3).counts
    assert [int(row.split("\t")[3]) for row in out.splitlines()[1:]] == wanted.ravel().tolist()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["rmsd.csv"], "has only one series"),
        (["rmsd.csv", "gyration.tsv", "--y", "Rgg"], "has no series 'Rgg'; it has Rg (Å), "),
        (["rmsd.csv", "pca.npz"], "has no frame numbers or times"),
        (["pca.svg"], "expected .csv, .tsv, .npz or .xvg"),
        (["rmsd.csv", "gyration.tsv", "late.csv"], "one or two tables"),
    ],
)
def test_tables_that_make_no_surface(arguments, words, tables, run, monkeypatch):
    monkeypatch.chdir(tables[0])
    status, _, err = run("surface", *arguments)
    assert status == 2
    assert words in err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "a row of titles and rows of numbers"),
        ("a,b\n", "a row of titles and rows of numbers"),
        ("a,b\n1,2\n3\n", "row 2 has 1 cells, but there are 2 titles"),
    ],
)
def test_tables_that_are_cut(text, words, tmp_path, run):
    path = tmp_path / "cut.csv"
    path.write_text(text, encoding="utf-8")
    status, _, err = run("surface", path)
    assert status == 2
    assert f"{path}: " in err
    assert words in err


@pytest.mark.parametrize("option", ["-o", "--plot"])
def test_a_table_is_not_replaced_by_its_surface(option, tables, tmp_path, run):
    table = tmp_path / ("table.csv" if option == "-o" else "table.svg")
    table.write_bytes((tables[0] / "gyration.tsv").read_bytes())
    before = table.read_bytes()
    status, _, err = run("surface", table, option, table, "--overwrite")
    assert status == 2
    assert "one file for two purposes" in err
    assert table.read_bytes() == before
