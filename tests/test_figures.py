"""Tests of figures for publications: options, time units, long names, and the user's style."""

import contextlib
import itertools
import re

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib import pyplot
from matplotlib.figure import Figure
from matplotlib.text import Text
from MDAnalysis.analysis.data.filenames import Rama_ref

from paceline.analysis.convergence_of_table_series import replica_verdict, table_verdicts
from paceline.analysis.dihedrals import Ramachandran
from paceline.analysis.figure_text_layout import shortened_to
from paceline.analysis.figures import (
    NOTE_INSIDE,
    ShownVerdicts,
    begin_together,
    draw,
    in_time_unit,
    new_figure,
)
from paceline.analysis.replica_figures import Profile, draw_profile
from paceline.analysis.results import Results
from paceline.analysis.table import Image, States, Table
from paceline.contract.figure_options import FigureOptions
from paceline.contract.time_units import UNITS_BY_LENGTH
from paceline.errors import PacelineWarning, UnsupportedError
from paceline.performance.figure_style_and_elements import FIGURE_STYLE, styled

mpl.use("Agg")
SELECTION = (
    "protein and (resid {0}-{1} or resid 2{0}-2{1}) and (name CA or name CB or name N or name O)"
)


def series(n_series=2, n_frames=50, step=1.0, names="AB"):
    rng = np.random.default_rng(1)
    columns = {"frame": np.arange(n_frames), "time (ps)": np.arange(n_frames) * step}
    columns |= {f"s{k} (Å)": rng.normal(size=n_frames) for k in range(n_series)}
    y = {f"s{k} (Å)": names[k] for k in range(n_series)}
    return Table(columns, "time (ps)", y, "RMSD (Å)")


def drawn(table, figsize=(3.5, 2.6), **options):
    figure = Figure(figsize=figsize, layout="constrained")
    with mpl.rc_context({"font.size": 8}):
        axes = draw(table, figure.subplots(), FigureOptions(**options))
        figure.draw_without_rendering()
    return axes


def of_replicas(x_title, abscissas, columns, title="Rg (Å)", kind=None):
    """Draw the series of replicas with the verdict between them; return axes and verdict."""
    tables = [
        Table({x_title: x, title: values}, x_title, {title: title.split(" ", maxsplit=1)[0]}, title)
        for x, values in zip(abscissas, columns, strict=True)
    ]
    named = {str(k): table for k, table in enumerate(tables)}
    verdict = replica_verdict(named, title, kind=kind)
    figure = Figure()
    axes = draw(tables, figure.subplots(), None, ShownVerdicts(between={title: verdict}))
    figure.draw_without_rendering()
    return axes, verdict


def names_of(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


def test_options_change_the_figure(tmp_path):
    axes = drawn(
        series(step=1000.0),
        label=["first", "second"],
        title="A title",
        time_unit="us",
        xlim=(0, 0.02),
        ylim=(-1, 2),
        stats=False,
    )
    assert names_of(axes) == ["first", "second"]
    assert axes.get_title(loc="left") == "A title"
    assert axes.get_xlabel() == "time (µs)"
    np.testing.assert_allclose(axes.lines[0].get_xdata(), np.arange(50) / 1000)
    assert (axes.get_xlim(), axes.get_ylim()) == ((0, 0.02), (-1, 2))
    legend, title = axes.get_legend().get_window_extent(), axes._left_title.get_window_extent()
    assert title.y0 >= legend.y1 - 1
    assert all("mean" in name for name in names_of(drawn(series())))


@pytest.mark.parametrize("ending", ["svg", "pdf", "png"])
def test_equal_figures_have_equal_bytes(ending, tmp_path, monkeypatch):
    results = Results(table=series())
    paths = [tmp_path / f"{name}.{ending}" for name in "ab"]
    for year, path in zip(("1000000000", "1500000000"), paths, strict=True):
        monkeypatch.setenv("SOURCE_DATE_EPOCH", year)  # matplotlib's clock
        results.save_figure(path)
    first, second = (path.read_bytes() for path in paths)
    assert first == second
    assert all(word not in first for word in (b"dc:date", b"CreationDate"))


@pytest.mark.parametrize(
    ("size", "pixels"),
    [
        ("8x6cm", (944, 708)),
        ("80x60mm", (944, 708)),
        ("600x400px", (600, 400)),
        ((2, 1), (600, 300)),
    ],
)
def test_a_figure_has_its_size(size, pixels, tmp_path):
    path = tmp_path / "a.png"
    Results(table=series()).save_figure(path, figsize=size)
    assert pyplot.imread(path).shape[1::-1] == pixels
    axes = Results(table=series()).plot(figsize="2x1in")
    assert axes.figure.get_size_inches().tolist() == [2, 1]
    pyplot.close("all")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"figsize": "8x6"}, "figsize must be a width and a height with a unit"),
        ({"figsize": "0x6cm"}, "figsize must be from 1.27 to 254 cm, not 0 x 6 cm"),
        ({"figsize": 3}, "figsize must be two numbers"),
        ({"time_unit": "h"}, "time_unit must be one of fs, ps"),
        ({"xlim": (1, 1)}, "xlim must be two different finite numbers"),
        ({"ylim": (0, np.nan)}, "ylim must be two different finite numbers"),
    ],
)
def test_options_without_sense_are_refused(options, words):
    with pytest.raises((ValueError, TypeError), match=words):
        FigureOptions(**options)


@pytest.mark.parametrize(("step", "unit"), [(0.001, "fs"), (1, "ps"), (1000, "ns"), (1e6, "µs")])
def test_times_have_a_unit_that_suits_them(step, unit):
    axes = drawn(series(step=step))
    assert axes.get_xlabel() == f"time ({unit})"
    assert 1 < axes.lines[0].get_xdata()[-1] <= max(most for most, _ in UNITS_BY_LENGTH[:2])


def test_only_times_change_their_unit():
    assert in_time_unit("r (Å)", [np.array([9e9])], "ns")[0] == "r (Å)"
    assert in_time_unit("time (ps)", [np.full(3, np.nan)])[0] == "time (ps)"
    table = Table({"r (Å)": np.arange(3.0), "g(r)": np.ones(3)}, "r (Å)", {"g(r)": "g"}, "g(r)")
    with pytest.warns(PacelineWarning, match="time_unit: the x axis is 'r \\(Å\\)', not a time"):
        drawn(table, time_unit="ns")


@pytest.mark.parametrize(("n_series", "n_given"), [(2, 1), (2, 3)])
def test_a_wrong_number_of_names_is_reported(n_series, n_given):
    with pytest.warns(PacelineWarning, match=f"{n_given} names for {n_series} series"):
        axes = drawn(series(n_series), label=list("xyz")[:n_given], stats=False)
    assert names_of(axes) == ["x", "y" if n_given > 1 else "B"]


@pytest.mark.parametrize("n_series", [1, 5, 12, 40])
@pytest.mark.parametrize("figsize", [(3.5, 2.6), (10, 5.6)])
def test_long_names_leave_the_axes_room(n_series, figsize):
    names = [SELECTION.format(k, k + 30) for k in range(10, 10 + n_series)]
    figure = drawn(series(n_series, names=names), figsize).figure
    axes, everything = figure.axes[0].get_window_extent(), figure.get_tightbbox()
    width, height = figure.get_size_inches() * figure.dpi
    assert axes.height > 0.35 * height
    assert axes.width > 0.7 * width
    assert everything.width * figure.dpi <= 1.02 * width
    assert everything.height * figure.dpi <= height + 1


def test_long_labels_of_axes_leave_them_room():
    table = series()
    long = Table(table.columns, table.x, table.y, " ".join(["a long label"] * 20) + " (Å)")
    axes = drawn(long, title=" ".join(["title"] * 60))
    assert axes.get_window_extent().height > 0.3 * axes.figure.bbox.height
    label, box = axes.yaxis.label.get_window_extent(), axes.figure.bbox
    assert label.y0 >= box.y0 - 1
    assert label.y1 <= box.y1 + 1


def test_names_that_begin_with_an_underscore_are_shown():
    assert names_of(drawn(series(), label=["_a", "b"], stats=False)) == ["_a", "b"]


def test_images_have_units_of_time_and_a_title():
    edges = np.arange(0, 110_000, 10_000.0)
    image = Image(np.ones((10, 10)), edges, edges, "time (ps)", "time (ps)", "RMSD (Å)", note="no")
    table = Table({"time (ps)": edges}, "time (ps)", {}, "RMSD (Å)", image=image)
    with pytest.warns(PacelineWarning, match="no legend of series"):
        axes = drawn(table, title="All pairs", label="a")
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("time (ns)", "time (ns)")
    assert axes.get_title(loc="left") == "All pairs"
    assert [text.get_text() for text in axes.texts] == ["no"]


@contextlib.contextmanager
def matplotlibrc(text, folder, monkeypatch):
    (folder / "matplotlibrc").write_text(text)
    with monkeypatch.context() as patch, mpl.rc_context(fname=folder / "matplotlibrc"):
        patch.setenv("MATPLOTLIBRC", str(folder))
        yield


def test_matplotlibrc_is_obeyed(tmp_path, monkeypatch):
    results = Results(table=series())
    # Size 10 is also the default of matplotlib, but here it is the user's choice.
    rc = "font.size: 10\nlines.linewidth: 3\nsavefig.dpi: 100\n"
    with matplotlibrc(rc, tmp_path, monkeypatch):
        axes = results.plot()
        assert (axes.xaxis.label.get_fontsize(), axes.lines[0].get_linewidth()) == (10, 3)
        assert axes.figure.get_size_inches().tolist() == [3.5, 2.6]
        results.save_figure(tmp_path / "a.png")
        assert pyplot.imread(tmp_path / "a.png").shape[1::-1] == (350, 260)
    assert results.plot().lines[0].get_linewidth() == 1
    pyplot.close("all")


def test_a_style_is_above_all(tmp_path):
    style = tmp_path / "mine.mplstyle"
    style.write_text("lines.linewidth: 5\n")
    results = Results(table=series())
    assert results.plot(style=style).lines[0].get_linewidth() == 5
    assert results.plot(style="ggplot").get_facecolor() != results.plot().get_facecolor()
    with pytest.raises(UnsupportedError, match="no such file, and no style of matplotlib"):
        results.save_figure(tmp_path / "a.png", style="nonsense")
    assert not (tmp_path / "a.png").exists()
    pyplot.close("all")


def test_angles_make_a_square_with_regions_of_known_structures(universe):
    results = Ramachandran(universe.select_atoms("resid 1-40")).run(stop=3).results
    axes = drawn(results.table.drawn, label="mine")
    assert (axes.get_xlim(), axes.get_ylim(), axes.get_aspect()) == ((-180, 180), (-180, 180), 1)
    assert axes.get_xticks().tolist() == [-180, -90, 0, 90, 180]
    assert names_of(axes) == ["mine", "98 % of known structures", "90 % of known structures"]
    # Fractions of the histogram within its own contours, at the centers of bins of 4°.
    counts = np.load(Rama_ref)
    lines = next(one for one in axes.collections if one.get_zorder() == 3)
    middles = np.stack(np.meshgrid(*[np.arange(-178, 180, 4)] * 2), axis=-1).reshape(-1, 2)
    for path, part in zip(lines.get_paths(), (0.98, 0.9), strict=True):
        inside = path.contains_points(middles).reshape(90, 90)
        assert abs(counts[inside].sum() / counts.sum() - part) < 0.03


def test_a_large_cloud_is_drawn_at_random(monkeypatch):
    monkeypatch.setattr("paceline.analysis.figures.MOST_POINTS", 100)
    n = 5000  # 50 residues; rows at equal distances would belong to one of them
    columns = {"x": np.arange(n) % 50.0, "y": np.arange(n) / n}
    axes = drawn(Table(columns, "x", {"y": "y"}, "y", points=True))
    assert len(axes.lines[0].get_xdata()) == 100
    assert len(set(axes.lines[0].get_xdata())) > 30
    assert axes.get_ylabel() == "y, 100 of 5,000 points"


def test_the_right_axis_has_a_scale_of_its_own():
    columns = {"r (Å)": np.arange(5.0), "g(r)": np.ones(5), "N(r)": np.arange(5.0) * 100}
    right = {"right": {"N(r)": "N(r)"}, "right_label": "coordination number"}
    axes = drawn(Table(columns, "r (Å)", {"g(r)": "g(r)"}, "g(r)", **right))
    left, beside = axes.figure.axes
    assert (left.get_ylim()[1] < 2, beside.get_ylim()[1] > 300) == (True, True)
    assert beside.get_ylabel() == "coordination number"
    np.testing.assert_array_equal(beside.lines[0].get_ydata(), columns["N(r)"])


def test_labels_of_square_maps_are_within_the_figure():
    edges, residues = np.arange(303.0), np.arange(302) + 38
    residues[200:] += 47
    values = np.random.default_rng(2).normal(size=(302, 302))
    labels = ("residue", "residue", "cross-correlation")
    limits = {"limits": (-1, 1), "equal": True}
    image = Image(values, edges, edges, *labels, parts=(residues, residues), **limits)
    table = Table({"residue": edges[1:]}, "residue", {}, "cross-correlation", image=image)
    with styled(FIGURE_STYLE, None):
        figure = new_figure(Figure, FigureOptions())
        draw(table, figure.subplots(), FigureOptions())
        figure.draw_without_rendering()
    for one in figure.axes:
        box = one.yaxis.label.get_window_extent()
        assert box.x0 >= 0
        assert box.x1 <= figure.bbox.width


def is_text(artist, text):
    return isinstance(artist, Text) and artist.get_text() == text


def labels_of(axis):
    return [text.get_text() for text in axis.get_ticklabels()]


def test_long_numbers_leave_the_legend_its_room():
    columns = {"time (ps)": np.arange(50.0)}
    rng = np.random.default_rng(3)
    for name, mean, spread in (("Potential", -524706, 300), ("Density", 1021.3, 0.05)):
        columns[name] = mean + rng.normal(size=50) * spread
    panels = [Table(columns, "time (ps)", {one: one}, one) for one in ("Potential", "Density")]
    whole = Table(columns, "time (ps)", {}, "", panels=panels)
    figure = drawn(whole, title="A title").figure
    [title] = [one for one in figure.axes[0].get_children() if is_text(one, "A title")]
    assert title.get_window_extent().y0 >= figure.axes[0].get_legend().get_window_extent().y1
    for axes in figure.axes:
        legend = axes.get_legend()
        assert legend.get_window_extent().x1 <= figure.bbox.x1
        assert axes.yaxis.get_offset_text().get_text() == ""
    assert "mean \N{MINUS SIGN}5246" in names_of(figure.axes[0])[0]
    assert labels_of(figure.axes[1].yaxis)[1].startswith("1021.")


def test_a_title_is_above_a_note_and_numbers_along_the_abscissa_are_apart():
    edges = np.linspace(-525200, -524400, 11)
    labels = ("Potential (kJ/mol)", "Density (kg/m³)", "free energy")
    image = Image(np.ones((10, 10)), edges, edges / -500, *labels, note="not converged:\nall")
    axes = drawn(Table({"a": edges}, "a", {}, "a", image=image), title="A title")
    [note] = axes.texts
    [title] = [one for one in axes.get_children() if is_text(one, "A title")]
    assert note.get_window_extent().y1 <= title.get_window_extent().y0
    assert title.get_window_extent().y1 <= axes.figure.bbox.y1
    low, high = axes.get_xlim()
    ticks = zip(axes.get_xticks(), axes.get_xticklabels(), strict=True)
    boxes = [text.get_window_extent() for x, text in ticks if low <= x <= high]
    assert len(boxes) > 1
    assert all(one.x1 < two.x0 for one, two in itertools.pairwise(boxes))


def test_lines_end_where_times_fall():
    x = np.tile(np.arange(1500.0), 2)
    values = np.repeat([1.0, 5.0], 1500)
    axes = drawn(Table({"time (ps)": x, "a": values}, "time (ps)", {"a": "A"}, "A"))
    assert len(axes.lines) == 2  # the series and its running mean, separately for each run
    for line in axes.lines:
        np.testing.assert_array_equal(np.isnan(line.get_ydata()), np.arange(3001) == 1500)
    assert set(axes.lines[1].get_ydata()[:1500].tolist()) == {1.0}


def test_bands_of_fractions_are_possible_values():
    columns = {"residue": np.arange(4.0), "a": np.array([0.0, 0.5, 0.9, 1.0])}
    columns["half"] = np.full(4, 3.0)
    named = {"fraction of frames": (0, 1), "RMSF (Å)": (0, 4), "z (Å)": (-3, 4)}
    for label, limits in named.items():
        table = Table(columns, "residue", {"a": "A"}, label, bands={"a": "half"})
        corners = drawn(table).collections[0].get_paths()[0].vertices
        assert (corners[:, 1].min(), corners[:, 1].max()) == limits


def table_of_states(numbers, names=()):
    times = np.arange(len(numbers), dtype=float)
    states = States(numbers, np.arange(numbers.shape[1]), "hydrogen bond", names)
    return Table({"time (ps)": times}, "time (ps)", {}, "", states=states)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (
            Table(
                {"hydrogen bond": np.array([], dtype=str), "a": np.array([])},
                *("hydrogen bond", {"a": "A"}, "fraction of frames"),
                bars=True,
            ),
            "no hydrogen bond found",
        ),
        (table_of_states(np.empty((3, 0), int), [("present", "k")]), "no hydrogen bond found"),
        (table_of_states(np.full((3, 2), np.nan)), "no values: all are NaN"),
        (
            Table(
                {"time (ps)": np.arange(3.0), "a": np.full(3, np.nan)},
                *("time (ps)", {"a": "A"}, "atoms"),
            ),
            "no values: all are NaN",
        ),
    ],
    ids=["bars", "states", "map", "lines"],
)
def test_a_figure_without_values_says_so(table, words):
    axes = drawn(table)
    assert [text.get_text() for text in axes.texts if text.get_gid() == NOTE_INSIDE] == [words]
    shown = [] if axes.get_legend() is None else names_of(axes)
    assert not any("nan" in name for name in shown)


def test_figures_with_values_have_no_such_note():
    for table in (series(), table_of_states(np.zeros((3, 2), int), [("present", "k")])):
        assert not any(text.get_gid() == NOTE_INSIDE for text in drawn(table).texts)


def test_a_line_with_a_single_number_is_a_point():
    columns = {"lag time (ps)": np.arange(3.0), "a": np.array([1.0, np.nan, np.nan])}
    axes = drawn(Table(columns, "lag time (ps)", {"a": "A"}, "survival probability"))
    assert axes.lines[0].get_marker() == "."


def test_values_that_differ_by_rounding_are_a_constant_with_ticks():
    columns = {"component": np.arange(3.0), "a": 1 - np.array([2e-16, 1e-16, 0.0])}
    axes = drawn(Table(columns, "component", {"a": "A"}, "cumulative fraction"))
    assert axes.get_ylim() == pytest.approx((0.95, 1.05))


def test_labels_of_panels_of_profiles_do_not_overlap():
    rng = np.random.default_rng(1)
    titles = ["loop (fraction of frames)", "helix (fraction of frames)", "strand (fraction)"]
    values = {title: {"a": rng.random((2, 200)), "b": rng.random((3, 200))} for title in titles}
    numbers = {"a": [1, 2], "b": [1, 2, 3]}
    keys = {"residue": np.arange(200)}
    with styled(FIGURE_STYLE):
        figure = draw_profile(Profile(keys, np.zeros(200, int), values, "", numbers), 3.5)
        figure.draw_without_rendering()
    boxes = [axes.yaxis.label.get_window_extent() for axes in figure.axes]
    heights = sorted((box.y0, box.y1) for box in boxes)
    assert len(heights) == 6
    assert all(below[1] < above[0] for below, above in itertools.pairwise(heights))


def test_one_frame_has_one_time_and_no_mean():
    axes = drawn(series(n_frames=1))
    assert axes.get_xticks().tolist() == [0]
    assert all("mean" not in name and "converged" not in name for name in names_of(axes))


def test_cut_texts_keep_both_ends_and_have_one_ellipsis():
    bond = "ARG 71 NH2-HH22…ASP 76 OD1"
    for room in range(20, 130, 5):
        text = shortened_to(bond, room)
        assert text.count("…") == 1, text
        assert text == bond or (text[0], text[-1]) == ("A", "1")


def test_labels_of_axes_become_smaller_before_words_are_broken_or_cut():
    table = series()
    for label in ("Temperature (K)", "fraction in 5°, chi1 of PHE 19"):
        panels = [Table(table.columns, table.x, table.y, label)] * 3
        whole = Table(table.columns, table.x, {}, "", panels=panels)
        axes = drawn(whole, figsize=(3.15, 2.36)).figure.axes[0]
        assert axes.get_ylabel().split() == label.split()


def test_symbols_have_indices_and_a_minus():
    table = series(1)
    axes = drawn(Table(table.columns, table.x, table.y, "-S_CD"))
    assert axes.get_ylabel() == "\N{MINUS SIGN}S$_{CD}$"


def test_times_in_a_legend_have_the_unit_of_the_axis():
    names = ["lifetime 1.2e+07 ± 3e+06 ps, to 2e+07 ps, 5 Å²/ps", "B"]
    axes = drawn(series(2, step=1e6, names=names), stats=False)
    assert axes.get_xlabel() == "time (µs)"
    assert " ".join(names_of(axes)[0].split()) == "lifetime 12.0 ± 3.0 µs, to 20 µs, 5 Å²/ps"


def test_populations_of_states_are_not_drawn_on_the_axis_of_states():
    states = np.random.default_rng(1).integers(10, 14, (3, 600))
    axes, verdict = of_replicas("time (ps)", [np.arange(600.0)] * 3, states, "cluster", "states")
    assert 0.2 < verdict.found.mean < 0.3
    drawn_values = np.concatenate([line.get_ydata() for line in axes.lines])
    assert drawn_values.min() == 10
    assert axes.get_ylim()[0] > 9
    assert "3 replicas: population of state 1" in " ".join(names_of(axes)[-1].split())


@pytest.mark.parametrize("row", [50, -1])
def test_an_infinite_time_changes_neither_the_unit_nor_the_shade(row):
    times = np.arange(2000) * 10.0
    decay = 9 * np.exp(-np.arange(2000) / 20) + np.random.default_rng(1).normal(size=2000)
    times[row] = np.inf
    assert in_time_unit("time (ps)", [times])[0] == "time (ns)"
    for values in (decay, 0.01 * times.clip(max=2e4)):
        table = Table({"time (ps)": times, "Rg (Å)": values}, "time (ps)", {"Rg (Å)": "Rg"}, "Rg")
        axes = drawn(table)
        assert axes.get_xlabel() == "time (ns)"
        [shade] = axes.patches
        assert shade.get_x() == 0
        end = times[np.isfinite(times)].max() / 1000
        if values is decay:
            assert 0 < shade.get_width() < 5
        else:
            assert "drifting" in names_of(axes)[0]
            assert shade.get_width() == pytest.approx(end)
    axes, _ = of_replicas("time (ps)", [times, times], [decay, np.roll(decay, -1)])
    assert axes.lines[-1].get_xdata()[-1] == pytest.approx(end)  # the mean of replicas


def test_starts_of_replicas_that_begin_at_different_times_are_not_shaded():
    rng = np.random.default_rng(1)
    times = np.arange(600) * 10.0
    stationary = 18 + rng.normal(size=(2, 600))
    decaying = stationary + 9 * np.exp(-np.arange(600) / 20)
    for values in (stationary, decaying):
        axes, verdict = of_replicas("time (ps)", [times + 10_000, times], values)
        assert bool(verdict.found.equilibrated_from) == (values is decaying)
        assert not axes.patches
        assert "not equilibrated" not in names_of(axes)
        np.testing.assert_allclose(axes.lines[-1].get_xdata(), [0, 15.99])
        axes, verdict = of_replicas("time (ps)", [times + 10_000, times + 10_000], values)
        assert len(axes.patches) == (values is decaying)
        since = max(10_000, verdict.found.equilibrated_at) / 1000
        np.testing.assert_allclose(axes.lines[-1].get_xdata(), [since, 15.99])


@pytest.mark.parametrize(
    ("x_title", "unit", "first", "step", "expected"),
    [
        ("frame", None, 5_000_000, 1, r"frame 5,000,0\d\d"),
        ("step", None, 5_000_000, 500, r"step 5,0\d\d,\d00"),
        ("frame", None, 0, 1, r"frame \d\d"),
        ("time (ps)", None, 5_000_000, 1, r"5\.0000\d\d? µs"),
        ("time (ps)", "ps", 5_000_000, 1, r"50000\d\d ps"),
        ("time (ps)", None, 0, 10, r"0\.\d\d? ns"),
        ("time (ps)", "us", 0, 10, r"0\.000\d\d? µs"),
        ("time (ns)", None, 5_000_000, 1, r"5,000,0\d\d ns"),
    ],
)
def test_starts_in_legends_have_all_digits_that_distinguish_frames(
    x_title, unit, first, step, expected
):
    n = 1000
    values = np.random.default_rng(1).normal(size=n) + 9 * np.exp(-np.arange(n) / 20)
    columns = {x_title: first + step * np.arange(n), "Rg (Å)": values}
    table = Table(columns, x_title, {"Rg (Å)": "Rg"}, "Rg (Å)")
    text = " ".join(names_of(drawn(table, figsize=(8, 4), time_unit=unit))[0].split())
    assert re.search(rf"from {expected} on", text), text
    start = float(re.search(r"([\d.,]+)[^\d]* on$", text)[1].replace(",", ""))
    if x_title == "time (ps)":
        start *= {"ps": 1, "ns": 1e3, "µs": 1e6}[text.split()[-2]]
    at = table_verdicts(table)["Rg (Å)"].found.equilibrated_at
    assert start == pytest.approx(at, abs=step / 2)


@pytest.mark.parametrize(("unit", "shown"), [("°", "°"), ("deg", " deg"), ("rad", " rad")])
def test_angles_in_legends_have_the_unit_of_the_table(unit, shown):
    angles = 170 + np.random.default_rng(1).normal(size=(2, 300))
    _, verdict = of_replicas("frame", [np.arange(300)] * 2, angles, f"phi ({unit})", "angle")
    assert re.search(rf"mean 1[\d.]+ ± [\d.]+{shown} \(95 %\)", verdict.in_legend("frame 0"))


def test_tables_begin_together_within_the_rounding_of_their_first_times():
    uneven = np.array([0.5, 1, 2, 1e6])
    assert begin_together([uneven, np.array([0.5000001, 7]), np.array([np.nan])])
    assert not begin_together([uneven, np.array([0, 1e6])])
    assert not begin_together([np.array([0, 1000, 2e6]), np.array([1, 1000, 2e6])])
    assert begin_together([])
