"""Tests of results: all bits are saved, with their provenance, and figures are drawn."""

import copy
import pickle
import re

import matplotlib as mpl
import MDAnalysis
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from MDAnalysis.exceptions import NoDataError

import paceline
from paceline.analysis.clustering import Clustering
from paceline.analysis.contacts import ContactMap
from paceline.analysis.convergence_of_table_series import table_verdicts
from paceline.analysis.density import DensityAnalysis
from paceline.analysis.diffusionmap import DistanceMatrix
from paceline.analysis.hydrogenbonds import HydrogenBondAnalysis
from paceline.analysis.msd import EinsteinMSD
from paceline.analysis.pca import PCA
from paceline.analysis.rdf import InterRDF, InterRDF_s
from paceline.analysis.results import Results
from paceline.analysis.rms import RMSD, RMSF
from paceline.analysis.table import Table
from paceline.errors import NotRunError, UnsupportedError

mpl.use("Agg")


@pytest.fixture(scope="module")
def rmsd(universe):
    # A selection with a line break, as in a script, must not break a file.
    return RMSD(universe, select="name CA\n or name CB", groupselections=["resid 1-29"]).run()


@pytest.fixture(scope="module")
def rmsf(universe):
    return RMSF(universe.select_atoms("name CA")).run()


def test_npz_keeps_every_bit(rmsd, tmp_path):
    rmsd.results.save(tmp_path / "rmsd.npz")
    with np.load(tmp_path / "rmsd.npz") as saved:
        assert np.array_equal(saved["rmsd"], rmsd.results.rmsd)
        provenance = dict(line.split(": ", 1) for line in saved["provenance"])
    assert provenance["paceline"] == paceline.__version__
    assert provenance["select"] == "name CA or name CB"
    assert provenance["frames analysed"] == "98 frames, 1 to 98 ps, every frame from 0 to 97"
    assert provenance["trajectory"].endswith("adk_dims.dcd")
    assert set(provenance) > {"topology", "fingerprint", "MDAnalysis", "numpy", "weights"}


@pytest.mark.parametrize(("ending", "delimiter"), [("csv", ","), ("tsv", "\t")])
def test_text_keeps_every_bit(rmsd, ending, delimiter, tmp_path):
    path = tmp_path / f"rmsd.{ending}"
    rmsd.results.save(path)
    with path.open(encoding="utf-8") as file:
        comments = [line for line in file if line.startswith("#")]
    assert len(comments) == len(rmsd.results.provenance) + 6
    # The series rises all the time.
    assert comments[-4].startswith("# mean of RMSD (Å): ")
    assert comments[-3].endswith("not converged\n")
    assert comments[-2].startswith(
        "# sampling of RMSD (Å): drifting, no equilibrium mean yet: simulate longer; the"
    )
    read = pd.read_csv(path, comment="#", sep=delimiter, engine="python")
    wanted = ["frame", "time (ps)", "RMSD (Å)", "RMSD of resid 1-29 (Å)"]
    assert list(read) == wanted
    assert np.array_equal(read.to_numpy(float), rmsd.results.rmsd)
    assert read["frame"].dtype == np.int64


def test_a_table_longer_than_a_chunk_is_whole(universe, tmp_path, monkeypatch):
    monkeypatch.setattr("paceline.analysis.results.ROWS", 16)
    series = paceline.TimeSeries(lambda block: block.times, universe.atoms[:3]).run()
    series.results.save(tmp_path / "times.csv")
    read = pd.read_csv(tmp_path / "times.csv", comment="#", engine="python")
    assert np.array_equal(read["value"], series.results.timeseries)


def test_rmsf_s_table_names_the_atoms(rmsf, tmp_path):
    rmsf.results.save(tmp_path / "rmsf.csv")
    read = pd.read_csv(tmp_path / "rmsf.csv", comment="#", engine="python")
    assert list(read) == ["atom index", "resid", "resname", "name", "RMSF (Å)"]
    assert np.array_equal(read["RMSF (Å)"], rmsf.results.rmsf)
    assert np.array_equal(read["atom index"], rmsf.atomgroup.indices)
    assert set(read["name"]) == {"CA"}
    pd.testing.assert_frame_equal(read, rmsf.results.to_dataframe(), check_dtype=False)


@pytest.mark.parametrize("name", ["a.npz", "a.csv", "a.tsv"])
def test_files_are_not_overwritten_unasked(name, rmsf, tmp_path):
    path = tmp_path / name
    path.write_text("precious")
    with pytest.raises(FileExistsError, match=name):
        rmsf.results.save(path)
    assert path.read_text() == "precious"
    rmsf.results.save(path, overwrite=True)
    assert path.stat().st_size > 1000


def test_figures_are_not_overwritten_unasked(rmsf, tmp_path):
    path = tmp_path / "a.png"
    path.write_text("precious")
    with pytest.raises(FileExistsError, match=r"a\.png"):
        rmsf.results.save_figure(path)
    rmsf.results.save_figure(path, overwrite=True)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_arrays_of_several_shapes_are_saved_by_their_numbers(universe, tmp_path):
    atoms = universe.atoms
    unequal, equal = [atoms[:2], atoms[2:5]], [atoms[:2], atoms[2:4]]
    for pairs, names in (([unequal, equal], ["rdf.0", "rdf.1"]), ([equal, equal], ["rdf"])):
        results = InterRDF_s(universe, pairs, norm="none").run(stop=3).results
        results.save(tmp_path / "rdf.npz", overwrite=True)
        with np.load(tmp_path / "rdf.npz") as saved:
            found = [saved[name] for name in names]
        found = found if len(names) > 1 else found[0]
        for one, wanted in zip(found, results.rdf, strict=True):
            np.testing.assert_array_equal(one, wanted)
    counted = paceline.Reduce(lambda b: (len(b), b.positions), lambda a, _: a, atoms).run(stop=3)
    counted.results.save(tmp_path / "counted.npz")
    with np.load(tmp_path / "counted.npz") as saved:
        assert saved["value.0"] == 3
        np.testing.assert_array_equal(saved["value.1"], counted.results.value[1])


def test_rows_on_a_grid_have_two_dimensions_in_xarray(universe):
    atoms = universe.select_atoms("name CA")[:9]
    found = ContactMap(atoms.residues.atoms, 7.0).run(stop=3).results
    table = found.to_dataframe()
    dataset = found.to_xarray()
    assert dataset["frequency"].dims == ("residue", "other residue")
    assert dataset["residue"].values.tolist() == atoms.resids[:-1].tolist()
    on_grid = dataset["frequency"].sel(residue=2).values[1:]  # from residue 3 on
    np.testing.assert_array_equal(on_grid, table["frequency"][table["residue"] == 2])
    assert np.isnan(dataset["frequency"].sel({"residue": 5, "other residue": 3}))

    density = DensityAnalysis(atoms, delta=2.0).run(stop=3).results
    dataset = density.to_xarray()
    counts = density.density.grid
    (name,) = dataset.data_vars
    np.testing.assert_allclose(dataset[name], counts.mean(axis=2))
    assert dataset["x"].attrs == dataset["y"].attrs == {"units": "Å"}
    assert dataset[name].attrs == {"units": "Å⁻³"}


def test_pairs_of_one_number_are_rows_of_xarray(universe, tmp_path):
    twice = MDAnalysis.Merge(*[universe.select_atoms("resid 1-4")] * 2)
    twice.atoms.write(tmp_path / "twice.xtc")
    found = (
        ContactMap(paceline.Universe(twice._topology, tmp_path / "twice.xtc"), 9.0).run().results
    )
    dataset, table = found.to_xarray(), found.to_dataframe()
    assert dataset["frequency"].dims == ("residue",)
    np.testing.assert_array_equal(dataset["frequency"], table["frequency"])


def test_what_cannot_be_saved_leaves_no_file(rmsf, universe, tmp_path):
    matrices = paceline.TimeSeries(lambda block: block.positions, universe.atoms[:3]).run(stop=3)
    for save, results, name, words in (
        ("save", rmsf.results, "a.txt", r"\.npz, \.csv, \.tsv, \.xvg, \.pdb.* not '\.txt'"),
        ("save", rmsf.results, "a", "not ''"),
        ("save", matrices.results, "a.csv", r"no table.* save them as \.npz"),
        ("save_figure", rmsf.results, "a.docx", r"not '\.docx'"),
        ("save_figure", matrices.results, "a.png", r"no table.* save them as \.npz"),
    ):
        with pytest.raises(UnsupportedError, match=words):
            getattr(results, save)(tmp_path / name)
    with pytest.raises(FileNotFoundError, match="nowhere does not exist"):
        rmsf.results.save(tmp_path / "nowhere" / "a.csv")
    assert list(tmp_path.iterdir()) == []
    matrices.results.save(tmp_path / "a.npz")


def test_results_are_items_and_attributes(rmsd):
    results = rmsd.results
    assert results["rmsd"] is results.rmsd
    assert list(results) == ["rmsd"]
    assert "rmsd" in dir(results)
    results = Results()
    results.mine = 3
    assert results["mine"] == 3
    with pytest.raises(AttributeError, match="no 'rmsd'") as caught:
        _ = results.rmsd
    assert not isinstance(caught.value, NotRunError)


@pytest.mark.parametrize(
    "ask",
    {
        "result": lambda one, _: one.results.rmsf,
        "old name": lambda one, _: one.rmsf,
        "frames": lambda one, _: one.frames,
        "timings": lambda one, _: one.timings,
        "table": lambda one, _: one.results.to_dataframe(),
        "figure": lambda one, _: one.results.plot(),
        **{
            f"saved as {ending}": lambda one, folder, ending=ending: one.results.save(
                folder / f"a{ending}"
            )
            for ending in (".npz", ".csv", ".xvg")
        },
        "method": lambda one, _: EinsteinMSD(one.atomgroup).diffusion_coefficient(),
        "members": lambda one, _: Clustering(
            one.atomgroup, n_clusters=2, method="k-medoids"
        ).members(0),
        "transform": lambda one, _: PCA(one.atomgroup).transform(one.atomgroup),
        "rmsip": lambda one, _: PCA(one.atomgroup).rmsip(PCA(one.atomgroup)),
        "bonds": lambda one, _: HydrogenBondAnalysis(one.atomgroup.universe).lifetime(),
        "old name of bonds": lambda one, _: HydrogenBondAnalysis(one.atomgroup.universe).hbonds,
        "curve": lambda one, _: InterRDF(one.atomgroup, one.atomgroup).get_cdf(),
    }.values(),
)
@pytest.mark.filterwarnings("ignore:.* deprecated:DeprecationWarning")
def test_results_before_the_run_are_one_error(ask, universe, tmp_path):
    with pytest.raises(NoDataError, match=r"call run\(\) first") as caught:
        ask(RMSF(universe.select_atoms("name CA")), tmp_path)
    assert isinstance(caught.value, NotRunError)
    again = pickle.loads(pickle.dumps(caught.value))
    assert isinstance(again, NoDataError)
    assert str(again) == str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("again", [copy.deepcopy, lambda r: pickle.loads(pickle.dumps(r))])
def test_results_can_be_pickled(again, rmsd):
    same = again(rmsd.results)
    assert isinstance(same, Results)
    assert np.array_equal(same.rmsd, rmsd.results.rmsd)
    assert same.provenance == rmsd.results.provenance
    assert same.to_dataframe().equals(rmsd.results.to_dataframe())


def test_a_table_is_made_when_it_is_asked_for(rmsd):
    made = []

    def make():
        made.append(True)
        return rmsd.results.table

    results = Results(table=make, rmsd=rmsd.results.rmsd)
    assert results.has_table
    assert not made
    again = pickle.loads(pickle.dumps(results))
    assert results.means == again.means == rmsd.results.means
    assert made == [True]


def test_the_colours_of_one_number_begin_there(universe):
    ax = DistanceMatrix(universe.select_atoms("name CA")).run(stop=1).results.plot()
    assert ax.collections[0].get_clim() == (0, 1)


def test_figures_have_labels_with_units(rmsd, rmsf):
    axes = rmsd.results.plot()
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("time (ps)", "RMSD (Å)")
    names = [" ".join(text.get_text().split()) for text in axes.get_legend().get_texts()]
    assert names == [
        "name CA or name CB, mean of all 4.4, drifting",
        "resid 1-29, mean of all 2.7, drifting",
        "not equilibrated",
    ]
    assert np.array_equal(axes.lines[0].get_ydata(), rmsd.results.rmsd[:, 2])
    assert rmsf.results.plot(axes) is axes
    alone = rmsf.results.plot()
    assert (alone.get_xlabel(), alone.get_ylabel()) == ("residue", "RMSF (Å)")
    assert alone.get_legend() is None
    mpl.pyplot.close("all")


class TestFigures:
    """Tests of the lines of figures."""

    @staticmethod
    def lines_of(results):
        axes = results.plot(Figure().subplots())
        return axes, [np.array(line.get_data()) for line in axes.get_lines()]

    def test_series_whose_times_are_all_the_same_are_drawn_by_frames(self, tmp_path):
        columns = {"frame": np.arange(5), "time (ps)": np.zeros(5), "a": np.arange(5.0)}
        columns["time (ps)"][2] = np.nan
        results = Results(table=Table(columns, "time (ps)", {"a": "A"}, "A"))
        axes, ((x, _),) = self.lines_of(results)
        assert (axes.get_xlabel(), x.tolist()) == ("frame", [0, 1, 2, 3, 4])
        results.save(tmp_path / "a.xvg")
        text = (tmp_path / "a.xvg").read_text(encoding="utf-8")
        assert 'xaxis  label "frame"' in text
        assert text.endswith("4 4.0\n")
        columns["time (ps)"][3] = 2
        assert self.lines_of(results)[0].get_xlabel() == "time (ps)"

    def test_series_of_many_frames_have_a_running_mean(self):
        values = np.random.default_rng(5).normal(size=3000)
        values[40:50] = np.nan
        table = Table({"time (ps)": np.arange(3000.0), "a": values}, "time (ps)", {"a": "A"}, "A")
        axes, (raw, mean) = self.lines_of(Results(table=table))
        np.testing.assert_array_equal(raw[1], values)
        expected = [np.nanmean(values[max(k - 15, 0) : k + 16]) for k in range(3000)]
        np.testing.assert_allclose(mean[1], expected, rtol=0, atol=1e-9)
        assert axes.get_legend().get_title().get_text() == "running mean of 31 frames"

    def test_short_series_are_drawn_as_they_are(self):
        values = np.arange(500.0)
        table = Table({"time (ps)": values, "a": values}, "time (ps)", {"a": "A"}, "A")
        axes, lines = self.lines_of(Results(table=table))
        assert len(lines) == 1
        texts = [text.get_text() for text in axes.get_legend().get_texts()]
        assert texts == ["A, mean of all 250, drifting", "not equilibrated"]

    def test_a_power_of_ten_is_not_below_the_legend(self):
        values = np.linspace(0, 2e7, 50)
        columns = {"lag time (ps)": np.arange(50.0), "a": values, "b": values}
        table = Table(columns, "lag time (ps)", {"a": "A", "b": "B"}, "A")
        figure = Figure(layout="constrained")
        axes = Results(table=table).plot(figure.subplots())
        figure.draw_without_rendering()
        power = axes.yaxis.get_offset_text()
        assert power.get_text() == "1e7"
        assert power.get_window_extent().x1 <= axes.get_legend().get_window_extent().x0 + 1

    @pytest.mark.parametrize(("n", "size"), [(10, 4), (1000, 1)])
    def test_points_are_seen(self, n, size):
        columns = {"time (ps)": np.arange(float(n)), "a": np.arange(n)}
        table = Table(columns, "time (ps)", {"a": "A"}, "A", no_mean=True)
        axes = Results(table=table).plot(Figure().subplots())
        [line] = axes.get_lines()
        low, high = axes.get_xlim()
        assert (line.get_markersize(), low < 0, high > n - 1) == (size, True, True)

    def test_a_single_frame_is_a_point(self):
        one = Table({"time (ps)": np.zeros(1), "n": np.array([5])}, "time (ps)", {"n": "n"}, "n")
        (line,) = Results(table=one).plot().lines
        assert line.get_marker() == "."

    def test_counts_have_whole_ticks(self):
        columns = {"time (ps)": np.arange(9.0), "n": np.array([1, 2] * 4 + [1])}
        ticks = Results(table=Table(columns, "time (ps)", {"n": "n"}, "n")).plot().get_yticks()
        assert not np.any(ticks % 1)

    def test_angles_have_their_circular_mean_and_a_shaded_start(self):
        rng = np.random.default_rng(3)
        start = 90 * np.exp(-np.arange(1000) / 60)
        values = (175 + 10 * rng.standard_normal(1000) + start + 180) % 360 - 180
        columns = {"time (ps)": np.arange(1000.0), "phi (°)": values}
        table = Table(columns, "time (ps)", {"phi (°)": "phi"}, "angle (°)", no_mean=True)
        results = Results(table=table)
        verdict = table_verdicts(table)["phi (°)"]
        assert verdict.found.equilibrated_from > 100
        axes, _ = self.lines_of(results)
        name, shaded = (text.get_text() for text in axes.get_legend().get_texts())
        assert name == f"phi, mean {verdict.mean_text} (95 %), from {verdict.start_text} on"
        assert shaded == "not equilibrated"
        assert results.summary()[0].endswith(f"; {verdict.short}")

    def test_clusters_have_a_population_and_no_mean(self):
        states = np.repeat([0, 1, 0], [400, 100, 500])
        columns = {"time (ps)": np.arange(1000.0), "cluster": states}
        table = Table(columns, "time (ps)", {"cluster": "cluster"}, "cluster", no_mean=True)
        axes, _ = self.lines_of(Results(table=table))
        [text] = axes.get_legend().get_texts()
        words = " ".join(text.get_text().split())
        expected = r"cluster, population of state 0: 0\.90 \(.*, 95 %\), not shown to be sampled"
        assert re.fullmatch(expected, words)

    def test_numbers_and_frames_in_another_order_have_no_mean(self):
        values = np.arange(500.0)
        for x, no_mean in ((values, True), (values[::-1], False), (values % 9, False)):
            columns = {"time (ps)": x, "a": values}
            table = Table(columns, "time (ps)", {"a": "A"}, "A", no_mean=no_mean)
            results = Results(table=table)
            assert results.means == {}
            axes, _ = self.lines_of(results)
            assert axes.get_legend() is None

    def test_a_converged_mean_has_its_interval(self):
        values = np.random.default_rng(4).standard_normal(1000)
        columns = {"time (ps)": np.arange(1000.0), "a (Å)": values}
        results = Results(table=Table(columns, "time (ps)", {"a (Å)": "A"}, "a (Å)"))
        mean = results.means["a (Å)"]
        assert mean.converged
        axes, _ = self.lines_of(results)
        [text] = axes.get_legend().get_texts()
        assert text.get_text().replace("\N{MINUS SIGN}", "-") == f"A, {mean.short}"
        assert f"{mean}" in results._repr_html_()

    def test_rmsf_is_drawn_against_residues(self, adk):
        u = paceline.Universe(*adk)
        ca = u.select_atoms("name CA")
        results = RMSF(ca).run(stop=5).results
        axes, [line] = self.lines_of(results)
        np.testing.assert_array_equal(line, [ca.resids, results.rmsf])
        assert axes.get_xlabel() == "residue"
        assert next(iter(results.to_dataframe())) == "atom index"

    def test_rmsf_of_residues_is_the_mean_of_their_atoms(self, adk):
        atoms = paceline.Universe(*adk).atoms
        results = RMSF(atoms).run(stop=5).results
        _, [line] = self.lines_of(results)
        means = [results.rmsf[residue.atoms.indices].mean() for residue in atoms.residues]
        np.testing.assert_allclose(line[1], means, rtol=1e-12)

    def test_rmsf_of_chains_is_not_joined(self, adk):
        u = paceline.Universe(*adk)
        u.residues.resids = np.arange(len(u.residues)) % 107 + 1
        _, [line] = self.lines_of(RMSF(u.select_atoms("name CA")).run(stop=5).results)
        assert np.flatnonzero(np.isnan(line[0])).tolist() == [107]
        assert np.isnan(line[1, 107])
