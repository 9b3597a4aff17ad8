"""Tests of the page of results: its structure, its numbers, and that it loads nothing external."""

import csv
import json
import re
from html.parser import HTMLParser

import MDAnalysis
import numpy as np
import pytest
from MDAnalysisTests.datafiles import DCD, DCD2, GRO_MEMPROT, PSF, TPR, XTC, XTC_MEMPROT

import paceline
from paceline.analysis.battery import Battery
from paceline.analysis.describe_system_and_frames import describe_span, describe_system
from paceline.analysis.interactive_charts import charts_of
from paceline.analysis.replica_figures import draw_frequent
from paceline.analysis.replicas import Replicas
from paceline.analysis.table import Table, fractions_of_frames
from paceline.performance.html_elements import (
    MOST_POINTS,
    Chart,
    Curve,
    extreme_rows,
    script_json,
)

#: Elements without an end tag.
VOID = {"meta", "br", "hr", "img", "image", "use", "path", "rect", "circle", "line"}
EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
ASKED = {
    "rmsd": {"select": "backbone"},
    "gyration": {"select": "protein"},
    "rmsf": {"select": "name CA"},
    "dssp": {},
}


class Page(HTMLParser):
    """Parser that checks the nesting of elements in a page."""

    def __init__(self, text):
        super().__init__()
        self.open, self.elements, self.data, self.headings = [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag in ("h1", "h2"):
            self.headings.append((tag, ""))

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag, self.getpos()

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.data.append((self.elements[-1][1].get("type"), data))
        if self.open and self.open[-1] in ("h1", "h2"):
            tag, text = self.headings[-1]
            self.headings[-1] = (tag, text + data)

    @property
    def charts(self):
        return [json.loads(text) for kind, text in self.data if kind == "application/json"]

    def attributes(self, *names):
        return [value for _, attrs in self.elements for key, value in attrs.items() if key in names]


def page_in(folder):
    return Page((folder / "index.html").read_text(encoding="utf-8"))


def rows_of(path):
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    Battery(ASKED, paceline.Universe(PSF, DCD)).run().save(folder)
    return folder


@pytest.fixture(scope="module")
def of_replicas(tmp_path_factory):
    folder = tmp_path_factory.mktemp("replicas")
    # The frames of both groups are of the same simulations, in other files.
    files = {"wild type": [DCD, DCD2], "mutant": [f"{folder / name}.dcd" for name in "ab"]}
    for path, written in zip(*files.values(), strict=True):
        MDAnalysis.Universe(PSF, path).atoms.write(written, frames=slice(1, None))
    groups = {
        name: [Battery(ASKED, paceline.Universe(PSF, path)) for path in paths]
        for name, paths in files.items()
    }
    Replicas(groups).run(step=4).save(folder)
    return folder


def test_a_page_has_one_title_and_a_heading_of_each_analysis(saved):
    page = page_in(saved)
    assert page.headings[0] == ("h1", "adk_dims.dcd")
    assert [text for tag, text in page.headings[1:] if tag == "h2"] == [
        *("Backbone RMSD", "Protein radius of gyration", "Cα RMSF", "Secondary structure"),
        *("Warnings", "How it was computed"),
    ]
    contents = [attrs["href"] for tag, attrs in page.elements if tag == "a"][:6]
    assert contents[0] == "#result-backbone-rmsd"
    assert contents[-1] == "#run"


@pytest.mark.parametrize("name", ["saved", "of_replicas"])
def test_a_page_loads_nothing_and_its_links_are_there(name, request):
    folder = request.getfixturevalue(name)
    page = page_in(folder)
    anchors = {f"#{one}" for one in page.attributes("id")}
    links = page.attributes("href", "src", "xlink:href", "action", "srcset")
    for link in links:
        if link.startswith("#"):
            assert link in anchors
        elif not link.startswith("data:image/png;base64,"):
            assert (folder / link.replace("%20", " ")).exists(), link
    text = (folder / "index.html").read_text(encoding="utf-8")
    assert not re.search(r"url\((?!#)|@import", text)
    ids = page.attributes("id")
    assert len(ids) == len(set(ids))
    policy = page.attributes("content")[0]
    assert policy.startswith("default-src 'none';")
    assert "unsafe-inline'; img-src data:; script-src 'sha256-" in policy


def test_numbers_of_a_page_are_those_of_the_tables(saved):
    rmsd, gyration, rmsf, counts, fractions = page_in(saved).charts
    for chart, file, x, columns in (
        (rmsd, "rmsd.csv", "time (ps)", ["RMSD (Å)"]),
        (gyration, "gyration.csv", "time (ps)", ["Rg (Å)"]),
        (rmsf, "rmsf.csv", "resid", ["RMSF (Å)"]),
        (counts, "dssp.csv", "time (ps)", ["loop (residues)", "helix (residues)"]),
        (fractions, "dssp-residues.csv", "residue", ["loop (fraction of frames)"]),
    ):
        rows = rows_of(saved / file)
        assert chart["data"][0] == [float(row[x]) for row in rows], file
        for column, values in zip(columns, chart["data"][1:], strict=False):
            assert values == [float(row[column]) for row in rows], file
    assert [one["name"] for one in counts["curves"]] == ["loop", "helix", "strand"]


def test_the_summary_has_the_means_of_the_tables(saved):
    text = (saved / "index.html").read_text(encoding="utf-8")
    lead = re.findall(r'<p class="lead">(.*?)</p>', text)
    assert lead[0].startswith(
        "The system is not equilibrated: backbone RMSD and protein radius of "
    )
    assert lead[0].endswith(
        "The system contains a protein of 214 residues: 3,341 atoms in all. "
        "The results are of 98 frames from 1 to 98 ps, 1 ps apart."
    )
    (mean,) = re.findall(r"# mean of RMSD \(Å\): (\S+ ± \S+)", (saved / "rmsd.csv").read_text())
    assert f"backbone RMSD {mean} Å; " in lead[1]
    assert text.count(f"<td>{mean}</td>") == 1


def test_the_summary_counts_angles_and_principal_components(tmp_path):
    asked = {
        "gyration": {"select": "protein"},
        "ramachandran": {"select": "resid 30-49"},
        "pca": {"select": "name CA", "n_projected": 3},
        "hbonds": {},
    }
    Battery(asked, paceline.Universe(PSF, DCD)).run(step=2).save(tmp_path / "o")
    lead = re.findall(r'<p class="lead">(.*?)</p>', (tmp_path / "o/index.html").read_text("utf-8"))
    text = lead[0].partition("The system contains")[0]
    angles = re.search(r"dihedrals φ and ψ[^:]*: (of 40 series, [^.]*)\.", text)[1]
    assert f"# sampling: {angles}\n" in (tmp_path / "o" / "ramachandran.csv").read_text("utf-8")
    assert re.search(r"rincipal components[^:]*: of 3 series, ", text)
    assert text.count(": of ") == 2  # bars of single hydrogen bonds are not counted
    timeline = (tmp_path / "o" / "hbonds-timeline.csv").read_text("utf-8")
    assert re.search("# sampling: of 20 series, ", timeline)


def test_curves_of_replicas_are_overlaid(of_replicas):
    page = page_in(of_replicas)
    rmsd, gyration, rmsf, beside, *_ = page.charts
    assert [(one["name"], one["colour"]) for one in rmsd["curves"]] == [
        *(("wild type 1", 0), ("wild type 2", 0), ("mutant 1", 1), ("mutant 2", 1)),
    ]
    x, *curves = rmsd["data"]
    for values, folder in zip(curves, ("wild type/1", "wild type/2"), strict=False):
        rows = {
            float(row["time (ps)"]): float(row["RMSD (Å)"])
            for row in rows_of(of_replicas / folder / "rmsd.csv")
        }
        assert values == [rows.get(time, "") for time in x]
        assert len(rows) == sum(value != "" for value in values)
    profile = rows_of(of_replicas / "rmsf-profile.csv")
    assert rmsf["data"][1] == [float(row["RMSF, mean of wild type (Å)"]) for row in profile]
    half = np.array([float(row["RMSF, wild type, 95 % interval (Å)"]) for row in profile])
    np.testing.assert_allclose(rmsf["data"][2], rmsf["data"][1] - half, rtol=1e-12)
    np.testing.assert_allclose(rmsf["data"][3], rmsf["data"][1] + half, rtol=1e-12)
    assert rmsf["curves"][0]["band"]
    assert beside["curves"][0]["name"] == "mutant - wild type"
    assert gyration["y"] == "Rg (Å)"


def test_nothing_in_a_file_becomes_part_of_the_page(tmp_path):
    universe = paceline.Universe(PSF, DCD)
    universe.residues[3].resname = EVIL
    described = {
        f"x{EVIL.replace('/', '')}": {
            "analysis": "rmsd",
            "select": "name CA and not resname </script>",
        },
        "rmsf": {"select": "name CA"},
    }
    replicas = Replicas({EVIL.replace("/", ""): [Battery(described, universe)]}).run(stop=5)
    for folder, one in (("one", replicas.batteries[0]), ("several", replicas)):
        one.save(tmp_path / folder)
        page = page_in(tmp_path / folder)
        scripts = [attrs for tag, attrs in page.elements if tag == "script"]
        assert [one.get("type") for one in scripts] == ["application/json"] * len(page.charts) + [
            *(None, None),
        ]
        assert all(tag != "img" for tag, _ in page.elements)
        assert not any(key.startswith("on") for _, attrs in page.elements for key in attrs)
        text = (tmp_path / folder / "index.html").read_text(encoding="utf-8")
        assert "alert(1)" in text
        assert "<script>alert" not in text


def test_json_in_a_script_cannot_end_it():
    text = script_json({"<!--": EVIL, "more": [1.5, None]})
    assert not set("<>&") & set(text)
    assert json.loads(text) == {"<!--": EVIL, "more": [1.5, None]}


def test_long_series_keep_their_extremes():
    generator = np.random.default_rng(1)
    values = generator.standard_normal((3, 100_000))
    values[0, 50_000], values[1, 77_777], values[2, 12_345] = 99.0, -98.0, np.nan
    rows = extreme_rows(list(values))
    assert len(rows) <= MOST_POINTS
    assert {0, 50_000, 77_777, 99_999} <= set(rows.tolist())
    x = np.arange(100_000.0)
    chart = Chart("time (ps)", "x", [Curve(f"{k}", x, one) for k, one in enumerate(values)])
    found = json.loads(chart.json)
    assert len(found["data"][0]) == len(rows)
    assert found["data"][1] == values[0, rows].tolist()
    assert "at most 2,000 of 100,000 points" in chart.note


def test_a_stretch_without_numbers_ends_a_line():
    values = np.full(10_000, np.nan)
    values[:10] = 1.0
    found = json.loads(Chart("t", "y", [Curve("a", np.arange(10_000.0), values)]).json)
    assert found["data"][1][:1] == [1.0]
    assert found["data"][1][-1] is None


def test_tables_that_are_no_curves_have_no_charts():
    names = np.array(["a", "b"])
    number = np.array([1.0, 2.0])
    y = {"y": "y"}
    assert charts_of(Table({"x": number, "y": number}, "x", y, "y"))
    assert not charts_of(Table({"x": names, "y": number}, "x", y, "y"))
    assert not charts_of(Table({"x": number[::-1], "y": number}, "x", y, "y"))
    assert not charts_of(Table({"x": number, "y": number}, "x", y, "y", bars=True))
    many = {f"y{k}": number for k in range(13)}
    assert not charts_of(Table({"x": number, **many}, "x", {key: key for key in many}, "y"))


def test_columns_of_another_unit_are_a_chart_of_their_own():
    columns = {"r (Å)": np.array([1.0, 2.0]), "g": np.array([0.0, 1.5]), "n": np.array([0.0, 4.0])}
    table = Table(columns, "r (Å)", {"g": "g"}, "g(r)", right={"n": "n"}, right_label="number")
    found = [json.loads(chart.json) for chart in charts_of(table)]
    assert [(one["y"], one["data"][1]) for one in found] == [
        *(("g(r)", [0.0, 1.5]), ("number", [0.0, 4.0])),
    ]


def test_chains_are_curves_of_their_own():
    x = np.array([1.0, 2.0, np.nan, 1.0, 3.0])
    y = np.array([5.0, 6.0, np.nan, 7.0, 8.0])
    (chart,) = charts_of(Table({"residue": x, "y": y}, "residue", {"y": "RMSF"}, "RMSF (Å)"))
    found = json.loads(chart.json)
    assert [one["name"] for one in found["curves"]] == ["RMSF, chain 1", "RMSF, chain 2"]
    assert found["data"] == [[1.0, 2.0, 3.0], [5.0, 6.0, ""], [7.0, "", 8.0]]


def test_gaps_of_a_curve_are_not_rows_of_another():
    first, second = np.arange(4.0), np.arange(0.0, 8.0, 2)
    values = np.array([1.0, np.nan, 3.0, 4.0])
    curves = [Curve("a", first, values), Curve("b", second, values, 1, (values, values))]
    found = json.loads(Chart("residue", "y", curves).json)
    assert found["data"] == [
        [0.0, 1.0, 2.0, 3.0, 4.0, 6.0],
        [1.0, None, 3.0, 4.0, "", ""],
        *[[1.0, "", None, "", 3.0, 4.0]] * 3,
    ]


@pytest.mark.parametrize(
    ("label", "limits"),
    [
        ("fraction of frames", [0, 1]),
        ("difference (fraction of frames)", [-1, 1]),
        ("RMSF (Å)", [0, None]),
        ("z (Å)", None),
    ],
)
def test_intervals_of_fractions_have_limits(label, limits):
    columns = {"residue": np.arange(3.0), "y": np.ones(3), "half": np.full(3, 2.0)}
    table = Table(columns, "residue", {"y": "y"}, label, bands={"y": "half"})
    (chart,) = charts_of(table)
    assert json.loads(chart.json).get("limits") == limits


def test_a_single_group_has_colours_of_replicas_and_no_name_in_its_means(tmp_path):
    asked = {"rmsd": {"select": "backbone"}, "contact-map": {"select": "resid 1-20"}}
    replicas = Replicas({"lone": [Battery(asked, paceline.Universe(PSF, d)) for d in (DCD, DCD2)]})
    replicas.run(step=10).save(tmp_path)
    (rmsd,) = page_in(tmp_path).charts
    assert [one["colour"] for one in rmsd["curves"]] == [0, 1]
    lines = replicas.figures("rmsd")[""].axes[0].lines
    assert len({line.get_color() for line in lines}) == 2
    maps = [
        one.results.frequencies for one in (b.analyses["contact-map"] for b in replicas.batteries)
    ]
    (mesh,) = replicas.figures("contact-map")[""].axes[0].collections
    np.testing.assert_allclose(mesh.get_array(), np.mean(maps, axis=0))
    assert (tmp_path / "contact-map.svg").exists()
    assert "(lone)" not in (tmp_path / "index.html").read_text(encoding="utf-8")
    assert replicas.summary()[0].startswith("rmsd: RMSD (Å): ")


def test_most_frequent_things_of_replicas_are_a_map():
    first = fractions_of_frames("residues", ["A", "B"], {}, np.array([8, 1]), 10)
    second = fractions_of_frames("residues", ["C", "A"], {}, np.array([9, 2]), 10)
    axes, *_ = draw_frequent({"g 1": first, "g 2": second}, 4.0).axes
    assert [text.get_text() for text in axes.get_yticklabels()] == ["A", "C", "B"]
    np.testing.assert_allclose(
        axes.collections[0].get_array(), [[0.8, 0.2], [0, 0.9], [0.1, 0]], atol=1e-12
    )


def test_systems_in_words():
    water = describe_system(paceline.Universe(TPR, XTC))
    assert water == "a protein of 214 residues, 11,084 waters and 4 NA+"
    membrane = describe_system(paceline.Universe(GRO_MEMPROT, XTC_MEMPROT))
    assert "lipids" in membrane
    assert describe_system(paceline.Universe.empty(7, 3, atom_resindex=[0, 0, 0, 1, 1, 2, 2])) == (
        "3 residues"
    )


def test_spans_without_times():
    assert describe_span(np.array([3, 9]), None) == ("2 frames, 3 to 9, whose times are unknown")
    assert describe_span(np.array([3]), np.array([2.5])) == "1 frame at 2.5 ps"
    times = np.array([0.0, np.nan, 4e4])
    assert describe_span(np.arange(3), times) == "3 frames from 0 to 40 ns, 40 ns apart"


def test_times_of_charts_have_a_readable_unit():
    columns = {"time (ps)": np.arange(5) * 1e6, "x (Å)": np.arange(5.0)}
    (chart,) = charts_of(Table(columns, "time (ps)", {"x (Å)": "x"}, "x (Å)"))
    assert chart.x_label == "time (ns)"
    assert chart.curves[0].x.tolist() == [0, 1000, 2000, 3000, 4000]
