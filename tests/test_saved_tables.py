"""Tests that saved tables are drawn like their results, and that several tables make one figure."""

import json

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure

from paceline.analysis.contacts import ContactMap
from paceline.analysis.dihedrals import Ramachandran
from paceline.analysis.dssp import DSSP
from paceline.analysis.figures import check_same_kind, draw
from paceline.analysis.free_energy import free_energy_surface
from paceline.analysis.pca import PCA
from paceline.analysis.results import Results
from paceline.analysis.rms import RMSD, RMSF
from paceline.analysis.saved_table_format import read_saved, title_like
from paceline.analysis.table import Table
from paceline.errors import PacelineWarning, UnsupportedError

mpl.use("Agg")

GROMACS = r"""# gmx rms
@    title "RMSD"
@    xaxis  label "Time (ps)"
@    yaxis  label "RMSD (nm\S2\N)"
@TYPE xy
@ view 0.15, 0.15, 0.75, 0.85
@ s0 legend "\xD\f{}Backbone"
@ s1 legend "C\s\xa\f{}\N"
   0.0000000    0.0005035 0.1
   1000.000     0.1256289 0.2
   20000.00     0.1356289 0.15
"""
RESULTS = {
    "rmsd": lambda u: RMSD(u, groupselections=["resid 1-29"]),
    "rmsf": lambda u: RMSF(u.select_atoms("backbone")),
    "ramachandran": lambda u: Ramachandran(u.select_atoms("resid 1-40")),
    "dssp": DSSP,
    "contacts": lambda u: ContactMap(u.select_atoms("resid 1-50")),
    "pca": lambda u: PCA(u, "name CA and resid 1-30", align=True, n_projected=2),
}


def artists_of(table):
    """Return all that a figure shows: texts, lines and colours."""
    figure = Figure(layout="constrained")
    axes = draw(table, figure.subplots())
    figure.draw_without_rendering()
    legend = axes.get_legend()
    texts = [axes.get_xlabel(), axes.get_ylabel(), axes.get_title(loc="left")]
    texts += [text.get_text() for text in legend.get_texts()] if legend else []
    # The order of points does not matter.
    lines = [np.sort(line.get_xydata(), axis=0) for line in axes.lines]
    colours = [(mesh.get_array(), mesh.get_clim()) for mesh in axes.collections]
    return texts, lines, colours


@pytest.mark.parametrize("ending", ["csv", "tsv", "npz", "xvg"])
@pytest.mark.parametrize("name", RESULTS)
def test_saved_tables_make_the_same_figure(name, ending, universe, tmp_path):
    results = RESULTS[name](universe).run(stop=12).results
    path = tmp_path / f"{name}.{ending}"
    results.save(path)
    if (name, ending) == ("dssp", "xvg"):  # this format contains only the numbers of residues
        with pytest.warns(PacelineWarning, match="time series are drawn"):
            table = read_saved(path).table()
        assert (list(table.y), table.x) == ([*results.table.y], "time (ps)")
        return
    found, wanted = artists_of(read_saved(path).table()), artists_of(results.table)
    assert found[0] == wanted[0]
    for one, other in zip(found[1], wanted[1], strict=True):
        np.testing.assert_array_equal(one, other)
    for (values, limits), (others, others_limits) in zip(found[2], wanted[2], strict=True):
        np.testing.assert_array_equal(np.ma.filled(values, -9), np.ma.filled(others, -9))
        assert limits == others_limits


def test_a_surface_is_drawn_again(tmp_path):
    results = free_energy_surface(*np.random.default_rng(1).normal(size=(2, 500)), bins=(8, 5))
    results.save(tmp_path / "a.csv")
    found, wanted = (
        artists_of(one)[2][0] for one in (read_saved(tmp_path / "a.csv").table(), results.table)
    )
    np.testing.assert_array_equal(found[0].filled(-1), wanted[0].filled(-1))


def test_residues_of_one_number_make_no_wrong_map(universe, tmp_path):
    u = universe.copy()
    u.residues.resids = np.arange(len(u.residues)) % 20 + 1
    ContactMap(u.select_atoms("resindex 0-49")).run(stop=2).results.save(tmp_path / "a.csv")
    with pytest.raises(UnsupportedError, match="does not contain the whole map"):
        read_saved(tmp_path / "a.csv").table()


def test_a_file_of_gromacs(tmp_path, run):
    path = tmp_path / "rmsd.xvg"
    path.write_text(GROMACS)
    table = read_saved(path).table()
    assert table.y == {"ΔBackbone (nm²)": "ΔBackbone", "Cα (nm²)": "Cα"}
    texts, lines, _ = artists_of(table)
    assert texts[:2] == ["time (ns)", "RMSD (nm²)"]
    np.testing.assert_allclose(lines[0][:, 0], [0, 1, 20])
    path.write_text(GROMACS + "&\n 0 1\n 1000 2\n 20000 3\n")
    assert len(read_saved(path).table().y) == 3
    path.write_text(GROMACS + "&\n 0 1\n 1 2\n 20000 3\n")
    with pytest.raises(UnsupportedError, match="do not share the first column"):
        read_saved(path)
    assert run("plot", path, "-o", tmp_path / "a.svg") == (
        2, "", f"paceline: error: {path}: its data sets do not share the first column\n"
    )  # fmt: skip


def test_what_each_column_of_a_file_of_gromacs_is(tmp_path):
    path = tmp_path / "energy.xvg"
    axes = '@ xaxis label "Time (ps)"\n@ yaxis label "(kJ/mol), (K)"\n'
    legends = '@ s0 legend "LJ (SR)"\n@ s1 legend "T (K)"\n'
    path.write_text(axes + legends + "0 1 ****  # far\n1 2 nan\n 2 -1e2 3\n")
    found = read_saved(path).columns
    assert list(found) == ["time (ps)", "LJ (SR) (kJ/mol)", "T (K)"]
    np.testing.assert_array_equal(found["T (K)"], [np.nan, np.nan, 3])
    # The label has units for two columns, but there are three columns.
    path.write_text(axes + legends + "0 1 2 3\n1 2 3 4\n")
    assert list(read_saved(path).columns) == ["time (ps)", "LJ (SR)", "T (K)", "column 4"]
    path.write_text('@ yaxis label "g(r)"\n@ s0 legend "O"\n@ s1 legend "O"\n0 1 2\n')
    assert list(read_saved(path).columns) == ["x", "O", "O 2"]


def test_a_last_line_that_may_be_cut_is_left_out(tmp_path):
    path = tmp_path / "rmsd.xvg"
    path.write_text(GROMACS + "  30000.00     0.13")
    with pytest.warns(
        PacelineWarning, match="last line has no line end, may be truncated, and was left out"
    ):
        assert read_saved(path).columns["time (ps)"].tolist() == [0, 1000, 20000]


def test_tables_of_one_kind_make_one_figure(universe, tmp_path, run):
    for name, atoms in (("all", universe.atoms), ("part", universe.select_atoms("resid 1-50"))):
        RMSD(atoms).run(stop=9).results.save(tmp_path / f"{name}.csv")
    RMSF(universe.atoms).run(stop=9).results.save(tmp_path / "rmsf.csv")
    files, figure = [tmp_path / "all.csv", tmp_path / "part.csv"], tmp_path / "a.svg"
    given = ["--label", "whole protein", "--no-stats", "--title", "Both", "--plot", figure]
    assert run("plot", *files, *given) == (0, "", "")
    drawn = figure.read_text(encoding="utf-8")
    assert all(text in drawn for text in (">Both<", ">whole protein<", ">part<"))
    status, _, err = run("plot", *files, tmp_path / "rmsf.csv", "-o", tmp_path / "b.svg")
    assert (status, "tables in one figure must be of one kind" in err) == (2, True)
    assert run("plot", *files, "-o", figure)[0] == 2
    options = ["--y", "nothing", "--overwrite", "-o", figure]
    status, _, err = run("plot", *files, *options)
    assert (status, "has no series 'nothing'" in err) == (2, True)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.csv", "", "expected a row of titles"),
        ("a.csv", "a,b\n1,2\n3\n", "row 2 has 1 cells, but there are 2 titles"),
        ("a.csv", "a\nx\n", "expected columns of numbers, found none"),
        ("a.csv", "a\n1\n", "expected a second column besides 'a'"),
        ("a.csv", '# figure: {"x": 3}\na,b\n1,2\n', "does not describe the columns"),
        ("a.csv", '# figure: {"x\na,b\n1,2\n', "is no JSON"),
        ("a.npz", "PK", "expected arrays as .npz"),
        ("a.xvg", "1 2\n3\n", "expected rows of numbers of equal length, found others in line 2"),
        ("a.xvg", "1 x\n", "expected rows of numbers of equal length, found others in line 1"),
        ("a.xvg", "# no rows\n@ title\n", "expected rows of numbers of equal length"),
        ("a.gro", "", "expected .csv, .tsv, .npz or .xvg, not '.gro'"),
    ],
)
def test_files_that_are_no_tables(name, text, words, tmp_path, run):
    (tmp_path / name).write_text(text)
    status, out, err = run("plot", tmp_path / name, "-o", tmp_path / "a.svg")
    assert (status, out, words in err, err.count("\n")) == (2, "", True, 1), err
    assert not (tmp_path / "a.svg").exists()


def test_a_title_is_found_by_its_name_without_unit(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("time (ps),z: density (Å⁻³),z: density error (Å⁻³)\n0,1,2\n", "utf-8")
    columns = read_saved(path).columns
    assert title_like(columns, path, "z: density") == "z: density (Å⁻³)"
    with pytest.raises(UnsupportedError, match="has 2 series 'z: '"):
        title_like(columns, path, "z: ")


def test_columns_are_found_by_the_label_of_their_axis(tmp_path):
    path = tmp_path / "table.csv"
    figure = {"x": "time (ps)", "y": {"Rg (Å)": "Rg"}, "y_label": "radius of gyration (Å)"}
    rows = "time (ps),Rg (Å),shape\n0,1,2\n1,2,3\n"
    path.write_text(f"# figure: {json.dumps(figure)}\n{rows}", "utf-8")
    saved = read_saved(path)
    for wanted in ("Rg", "Rg (Å)", "radius of gyration", "radius of gyration (Å)"):
        assert list(saved.table([wanted]).y) == ["Rg (Å)"]
    both = saved.table(["shape", "radius of gyration"]).panels
    assert [title for one in both for title in one.y] == ["shape", "Rg (Å)"]
    panels = {"panels": [figure, {**figure, "y": {"shape": "shape"}, "y_label": "κ²"}]}
    path.write_text(f"# figure: {json.dumps(panels)}\n{rows}", "utf-8")
    assert list(read_saved(path).table(["κ²"]).y) == ["shape"]
    for wrong in ({"panels": 3}, {"panels": ["a"]}, {"y_label": 3, "y": []}):
        path.write_text(f"# figure: {json.dumps(wrong)}\n{rows}", "utf-8")
        with pytest.raises(UnsupportedError, match="has no series 'κ²'"):
            read_saved(path).table(["κ²"])


def test_plot_says_where_the_figure_is(tmp_path, run_with_answer):
    table, figure = tmp_path / "table.csv", tmp_path / "figure.png"
    table.write_text("time (ps),Rg (Å)\n0,1\n1,2\n", "utf-8")
    assert run_with_answer("plot", table, "-o", figure) == (0, "", f"paceline: wrote {figure}\n")


def test_angles_of_other_programs_have_circular_means_in_figures(tmp_path):
    degrees = 175 + 10 * np.random.default_rng(3).normal(size=400)
    degrees = (degrees + 180) % 360 - 180
    rows = (f"{10 * k},{one:.6f}" for k, one in enumerate(degrees))
    path = tmp_path / "phi.csv"
    path.write_text("\n".join(["time (ps),phi (degrees)", *rows]))
    ax = Figure().subplots()
    draw(read_saved(path).table(), ax)
    legend = ax.get_legend().get_texts()[0].get_text()
    assert "mean 17" in legend, legend
    assert {line.get_linestyle() for line in ax.lines} == {"None"}


def test_columns_of_two_units_have_two_panels(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("time (ps),Rg (Å),RMSD (Å),area (Å²)\n0,1,2,3000\n1,2,2,3100\n")
    table = read_saved(path).table()
    assert [(one.y_label, [*one.y]) for one in table.panels] == [
        ("value (Å)", ["Rg (Å)", "RMSD (Å)"]),
        ("area (Å²)", ["area (Å²)"]),
    ]
    with pytest.raises(UnsupportedError, match="cannot share a figure"):
        check_same_kind([table, table])
    assert not read_saved(path).table(["Rg", "RMSD"]).panels
    path.write_text(
        "time (ps)," + ",".join(f"a (u{k})" for k in range(7)) + "\n" + "0," * 7 + "1\n"
    )
    with pytest.raises(UnsupportedError, match="columns with 7 units"):
        read_saved(path).table()


def test_further_figures_have_the_title(adk, tmp_path, run):
    figure = tmp_path / "projections.svg"
    options = ["--select", "name CA", "--n-projected", 1, "--projections", figure]
    status, _, err = run("pca", *adk, *options, "--title", "My title", "-o", tmp_path / "a.csv")
    assert (status, "My title" in figure.read_text(encoding="utf-8")) == (0, True), err


def test_headers_are_short(universe, tmp_path):
    """Check headers: few numbers at equal distances, means of residues, and many titles."""
    results = {
        "rmsf": RMSF(universe.select_atoms("backbone")).run(stop=5).results,
        "ramachandran": Ramachandran(universe.select_atoms("protein")).run(stop=3).results,
        "contacts": ContactMap(universe.select_atoms("protein")).run(stop=3).results,
        "dssp": DSSP(universe).run(stop=3).results,
    }
    for name, one in results.items():
        path = tmp_path / f"{name}.csv"
        one.save(path)
        lines = path.read_text(encoding="utf-8").splitlines()
        assert max(len(line) for line in lines if line.startswith("# figure")) < 1000, name
        np.testing.assert_equal(artists_of(read_saved(path).table()), artists_of(one.table))


def test_chains_are_drawn_again_with_their_gaps(tmp_path):
    numbers = np.r_[7:290, 7:290]
    values = np.random.default_rng(6).random(len(numbers))
    columns = {"resid": numbers, "RMSF (Å)": values}
    gap = {"residue": np.insert(numbers.astype(float), 283, np.nan)}
    gap["RMSF (Å)"] = np.insert(values, 283, np.nan)
    drawn = Table(gap, "residue", {"RMSF (Å)": "RMSF"}, "RMSF (Å)")
    results = Results(table=Table(columns, "resid", {}, "RMSF (Å)", drawn=drawn))
    results.save(tmp_path / "a.csv")
    assert len((tmp_path / "a.csv").read_text(encoding="utf-8").splitlines()[0]) < 400
    found = read_saved(tmp_path / "a.csv").table().columns
    for title, column in gap.items():
        np.testing.assert_array_equal(found[title], column)
