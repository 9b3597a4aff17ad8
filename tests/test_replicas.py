"""Tests of replicas in groups: means over replicas, and differences between groups."""

import csv
import html
import json
import re
from dataclasses import replace

import MDAnalysis
import numpy as np
import pandas as pd
import pytest
from scipy.signal import lfilter
from scipy.stats import false_discovery_control, t, ttest_ind

import paceline
from paceline.analysis.battery import Battery
from paceline.analysis.dssp import DSSP
from paceline.analysis.duplicate_replicas import ReplicaSeries, find_copies
from paceline.analysis.interactive_charts import charts_of_replicas
from paceline.analysis.replica_figures import (
    Profile,
    align,
    detectable_in_rows,
    differences,
    line_ends,
)
from paceline.analysis.replica_page import lines_of_profile
from paceline.analysis.replicas import Replicas
from paceline.analysis.results import Results
from paceline.analysis.sasa import SASA
from paceline.analysis.table import Table
from paceline.analysis.uncertainty import (
    GroupDifference,
    adjusted_p_values,
    difference_of_groups,
    levels_of_rows,
    mean_of_replicas,
)
from paceline.cli import main
from paceline.cli.print_results import json_of_battery
from paceline.errors import PacelineWarning, UnsupportedError

ASKED = {
    "gyration": {"select": "name CA"},
    "rmsf": {"select": "name CA", "align": True},
    "ramachandran": {"select": "resid 92-95"},
}
#: Residues that the mutant lacks.
GONE = (100, 101, 102)


@pytest.fixture(scope="module")
def systems(adk, tmp_path_factory):
    """Folders of two groups of three replicas: AdK, and AdK without three residues."""
    folder = tmp_path_factory.mktemp("systems")
    universe = MDAnalysis.Universe(*adk)
    for group, select in (("wt", "resid 90-130"), ("mutant", "resid 90-99 103-130")):
        atoms = universe.select_atoms(select)
        for k, begin in enumerate((0, 20, 40), start=1):
            (folder / group / f"{k}").mkdir(parents=True)
            atoms.write(folder / group / f"{k}" / "md.xtc", frames=slice(begin, begin + 20 + k))
        universe.trajectory[0]
        atoms.write(folder / group / "top.pdb")
    return folder


def opened(systems, group, k):
    return paceline.Universe(str(systems / group / "top.pdb"), str(systems / group / f"{k}/md.xtc"))


@pytest.fixture(scope="module")
def replicas(systems):
    groups = ("wt", "mutant")
    return Replicas(
        {group: [Battery(ASKED, opened(systems, group, k)) for k in (1, 2, 3)] for group in groups}
    ).run()


def test_results_are_those_of_each_battery(replicas, systems):
    alone = Battery(ASKED, opened(systems, "mutant", 2)).run()
    for name, analysis in alone.analyses.items():
        together = replicas.groups["mutant"][1].analyses[name].results.table
        for title, column in analysis.results.table.columns.items():
            np.testing.assert_array_equal(together.columns[title], column)
    # All analyses run together, in as many stages as they require.
    timings, n_frames = replicas.timings, 2 * (21 + 22 + 23)
    assert timings.n_frames == n_frames
    assert sum(block.n_frames for block in timings.blocks) == 2 * n_frames


def test_each_replica_counts_once(replicas):
    own = [one.analyses["gyration"].results.rg.mean() for one in replicas.groups["wt"]]
    others = [one.analyses["gyration"].results.rg.mean() for one in replicas.groups["mutant"]]
    means = replicas.means["gyration"]["Rg (Å)"]
    assert list(means) == ["wt", "mutant"]
    assert means["wt"] == mean_of_replicas(own)
    assert means["wt"].n_replicas == 3
    difference = replicas.differences["gyration"]["Rg (Å)"]["mutant - wt"]
    assert difference.difference == pytest.approx(np.mean(others) - np.mean(own))
    # Angles have no means.
    assert replicas.means["ramachandran"] == {}
    assert any(
        "No mean is given: it is meaningless" in remark
        for remark in replicas.remarks("ramachandran")
    )


def in_memory(rng, mean, n_frames=600):
    """Two atoms whose radius of gyration is a series with this mean, Å."""
    half = mean + 0.2 * lfilter([1], [1, -0.8], rng.standard_normal(n_frames))
    positions = np.zeros((n_frames, 2, 3))
    positions[:, 0, 0], positions[:, 1, 0] = half, -half
    universe = paceline.Universe.empty(2, trajectory=True)
    universe.add_TopologyAttr("masses", [1.0, 1.0])
    universe.load_new(positions.astype(np.float32), dt=2)
    return universe


def test_copies_of_a_replica_are_left_out(systems, tmp_path):
    asked = {"gyration": {"select": "name CA"}, "rmsf": {}}
    universes = [opened(systems, "wt", k) for k in (1, 1, 2)]
    replicas = Replicas({"wt": [Battery(asked, one) for one in universes]})
    with pytest.warns(PacelineWarning, match="is a copy of replica 1 of wt") as told:
        replicas.run()
    path = systems / "wt" / "1" / "md.xtc"
    (text,) = [f"{one.message}" for one in told]
    assert text.startswith(f"replica 2 of wt ({path}) is a copy of replica 1 of wt ({path})")
    distinct = Replicas({"wt": [Battery(asked, opened(systems, "wt", k)) for k in (1, 2)]}).run()
    assert replicas.means == distinct.means
    profiles = [one.profile("rmsf").values["RMSF (Å)"]["wt"] for one in (replicas, distinct)]
    np.testing.assert_array_equal(*profiles)
    replicas.save(tmp_path / "o")
    for name in ("means.csv", "rmsf-profile.csv", "replicas.csv"):
        assert f"# warnings: {text}" in (tmp_path / "o" / name).read_text(encoding="utf-8")
    assert "2 replicas of 21 and 22 frames" in (tmp_path / "o" / "index.html").read_text("utf-8")
    assert replicas.run().means == distinct.means  # once more from all replicas


def test_copies_in_another_format_are_left_out(systems, tmp_path):
    """Check a trajectory with other rounding, and the series of parts of it."""
    universe = MDAnalysis.Universe(systems / "wt" / "top.pdb", systems / "wt" / "3" / "md.xtc")
    universe.trajectory.add_transformations(lambda ts: _moved(ts))
    universe.atoms.write(tmp_path / "moved.dcd", frames="all")
    asked = {"gyration": {"select": "name CA"}, "rmsd": {"select": "name CA"}}
    top = str(systems / "wt" / "top.pdb")
    universes = [opened(systems, "wt", k) for k in (1, 3)]
    universes.append(paceline.Universe(top, str(tmp_path / "moved.dcd")))
    replicas = Replicas({"wt": [Battery(asked, one) for one in universes]})
    with pytest.warns(PacelineWarning, match=r"moved.dcd\) is a copy of .* within rounding; it is"):
        replicas.run()
    assert len(replicas.groups["wt"]) == 2


def _moved(ts):
    ts.positions = np.round(ts.positions + np.array([0.004, -0.003, 5]), 2)
    return ts


def test_copies_have_all_series_in_common():
    rng = np.random.default_rng(2)
    titles, values = ("Rg", "RMSD", "SASA"), rng.standard_normal((3, 400)).cumsum(axis=1)
    first = ReplicaSeries(dict(zip(titles, values, strict=True)))
    rounded = ReplicaSeries(dict(zip(titles, values.round(2), strict=True)))
    assert find_copies({"a": first, "b": rounded}) == {"b": ("a", "rounded")}
    other = ReplicaSeries(rounded.series | {"SASA": rng.standard_normal(400).cumsum()})
    assert find_copies({"a": first, "b": other}) == {}
    longer = ReplicaSeries(rounded.series | {"bonds": values[0]})
    assert find_copies({"a": first, "b": longer}) == {}
    # Of simulations that branch off another one, none is a copy, whatever is left of the run.
    for n_equal in (200, 240, 320):
        ends = rng.standard_normal((3, 400)).cumsum(axis=1)
        branched = np.where(np.arange(400) < n_equal, values, ends)
        series = ReplicaSeries(dict(zip(titles, branched, strict=True)))
        assert find_copies({"a": first, "b": series}) == {}


def test_parts_of_one_trajectory_are_no_copies(systems):
    universe = opened(systems, "wt", 1)
    parts = ("name CA and resid 90-105", "name CA and resid 110-125")
    asked = [{"gyration": {"select": part}} for part in parts]
    replicas = Replicas({"wt": [Battery(one, universe) for one in asked]}).run()
    assert not replicas.warnings
    assert len(replicas.groups["wt"]) == 2


def test_parts_with_partly_other_titles_are_no_copies(systems):
    """Both batteries have the RMSD of the superimposed atoms, and that of another group."""
    universe = opened(systems, "wt", 1)
    asked = [
        {"rmsd": {"select": "all", "groupselections": [part]}} for part in ("name CA", "name CB")
    ]
    replicas = Replicas({"wt": [Battery(one, universe) for one in asked]}).run()
    assert not replicas.warnings
    assert len(replicas.groups["wt"]) == 2


def test_replicas_keep_their_numbers_without_copies(tmp_path):
    rng = np.random.default_rng(7)
    ends = [5, 5, 5 + 6 * np.exp(-np.arange(600) / 30)]
    first, other, decays = (in_memory(rng, end) for end in ends)
    copy = paceline.Universe.empty(2, trajectory=True)
    copy.add_TopologyAttr("masses", [1.0, 1.0])
    copy.load_new(np.array([ts.positions for ts in first.trajectory]), dt=2)
    universes = [first, copy, other, decays]
    asked = {"gyration": {"select": "all"}, "rmsf": {"select": "all"}}
    replicas = Replicas({"g": [Battery(asked, one) for one in universes]})
    with pytest.warns(PacelineWarning, match=r"replica 2 of g .* is a copy of replica 1 of g"):
        replicas.run(equilibrated=True)
    assert [k for _, k, name in replicas.analyses if name == "rmsf"] == [1, 3, 4]
    (note,) = [one for one in replicas.warnings if "frames are left out" in one]
    assert note.startswith("replica 4 of g (in memory): ")
    replicas.save(tmp_path / "o")
    folders = {path.name for path in (tmp_path / "o" / "g").iterdir()}
    assert folders == {"1", "3", "4"}
    rows = pd.read_csv(tmp_path / "o" / "replicas.csv", comment="#")
    assert rows["replica"].tolist() == [1, 3, 4]
    columns = pd.read_csv(tmp_path / "o" / "rmsf-profile.csv", comment="#").columns
    assert [f"RMSF, g {k} (Å)" in columns for k in (1, 2, 3, 4)] == [True, False, True, True]
    texts = replicas.figures("gyration")[""].axes[0].get_legend().get_texts()
    labels = [one.get_text() for one in texts if one.get_text().startswith("g ")]
    assert labels == ["g 1", "g 3", "g 4"]
    curves = charts_of_replicas(replicas.tables("gyration"), replicas.numbers)[0].curves
    assert [one.name for one in curves] == ["g 1", "g 3", "g 4"]
    assert "# fingerprint of g 4: " in (tmp_path / "o" / "means.csv").read_text("utf-8")
    replicas = Replicas({"g": [Battery(asked, one) for one in universes]})
    with pytest.warns(PacelineWarning, match="is a copy of"):
        replicas.run(stop=60)
    reasons = replicas.verdicts("gyration")["Rg (Å)"]["g"].found.reasons
    assert any("replica 4" in reason for reason in reasons)


def test_replicas_of_one_trajectory_discard_the_same_frames():
    """Of two parts of one system, the second one is equilibrated later."""
    rng = np.random.default_rng(5)
    parts = [in_memory(rng, 5 + 6 * np.exp(-np.arange(600) / time)) for time in (8, 30)]
    positions = [np.array([ts.positions for ts in one.trajectory]) for one in parts]
    universe = paceline.Universe.empty(4, trajectory=True)
    universe.add_TopologyAttr("masses", np.ones(4))
    universe.load_new(np.concatenate(positions, axis=1), dt=2)
    asked = [{"gyration": {"select": f"index {part}"}} for part in ("0:1", "2:3")]
    replicas = Replicas({"g": [Battery(one, universe) for one in asked]}).run(equilibrated=True)
    starts = [one.analyses["gyration"].frames[0] for one in replicas.batteries]
    assert starts[0] == starts[1] > 70
    first, second = (one for one in replicas.warnings if "frames are left out" in one)
    beginning = f"(in memory): {starts[0]} frames are left out"
    shared = ", because it has the trajectory of replica 2 of g (in memory)"
    assert first.startswith(f"replica 1 of g {beginning}{shared}: gyration is equilibrated from ")
    assert second.startswith(f"replica 2 of g {beginning}: gyration is equilibrated from ")


def test_a_trajectory_of_two_groups_is_refused(systems):
    groups = {name: [Battery({"rmsf": {}}, opened(systems, "wt", 1))] for name in ("a", "b")}
    with pytest.raises(UnsupportedError, match=r"of b \(.*\) is a copy of replica 1 of a"):
        Replicas(groups).run()


def test_verdicts_on_replicas_are_on_the_page_in_tables_and_in_figures(tmp_path):
    rng = np.random.default_rng(4)
    groups = {"agree": (5.0, 5.0, 5.0), "differ": (5.0, 7.0)}
    replicas = Replicas(
        {
            group: [Battery({"gyration": {"select": "all"}}, in_memory(rng, one)) for one in means]
            for group, means in groups.items()
        }
    ).run()
    found = replicas.verdicts("gyration")["Rg (Å)"]
    series = [one.analyses["gyration"].results.rg for one in replicas.groups["agree"]]
    wanted = paceline.convergence(
        np.concatenate(series), np.tile(np.arange(600) * 2.0, 3), np.repeat([1, 2, 3], 600)
    )
    assert found["agree"].found.mean == wanted.mean
    assert found["agree"].found.r_hat == wanted.r_hat < 1.1 < found["differ"].found.r_hat
    assert found["agree"].verdict == "sampled"
    assert found["differ"].verdict == "not shown to be sampled"
    replicas.save(tmp_path / "out")
    page = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    first, second = (page.index(f"{group}: ") for group in groups)
    assert page[first:].startswith(
        "agree: The series radius of gyration is equilibrated from the first frame on, and its mean"
    )
    assert re.match(r".*Replicas agree \(R̂ 1\.\d\d at most\)\.", page[first:second])
    text = "not shown to be sampled: radius of gyration. Replicas, or their halves, differ in"
    assert text in page[second:]
    assert "Rg, differ, sampling" in page
    means = pd.read_csv(tmp_path / "out" / "means.csv", comment="#")
    assert means["sampling"].tolist() == ["sampled", "not shown to be sampled"]
    np.testing.assert_allclose(means["split-R̂"], [one.found.r_hat for one in found.values()])
    legend = replicas.figures("gyration")[""].axes[0].get_legend().get_texts()
    assert "not shown" in legend[1].get_text()
    assert "not shown" not in legend[0].get_text()
    assert replicas.summary()[-1].startswith("differ: ")


def test_figures_of_replicas_shade_the_latest_start(tmp_path):
    rng = np.random.default_rng(5)
    universes = [in_memory(rng, 5 + 6 * np.exp(-np.arange(600) / time)) for time in (8, 30)]
    asked = {"gyration": {"select": "all"}}
    replicas = Replicas({"one": [Battery(asked, universe) for universe in universes]}).run()
    verdict = replicas.verdicts("gyration")["Rg (Å)"]["one"]
    assert verdict.found.equilibrated_at > 100
    (shade,) = replicas.figures("gyration")[""].axes[0].patches
    assert shade.get_x() + shade.get_width() == pytest.approx(verdict.found.equilibrated_at)
    # A start cannot be compared with the times of a replica that begins elsewhere.
    with_series(replicas, lambda group, k, times, values: (times + 5000 * (k == 1), values))
    assert not replicas.figures("gyration")[""].axes[0].patches
    replicas.run(frames=[*range(599, -1, -1)])
    assert replicas.verdicts("gyration") == {}


def test_means_of_equilibrated_frames_are_beside_those_of_all_frames(tmp_path):
    """Two groups of one mean start at another value; in one of them, it decays later."""
    rng = np.random.default_rng(5)
    asked = {"gyration": {"select": "all"}}
    decays = {"short": (4, 4, 4), "long": (40, 40, 40)}
    groups = {
        group: [in_memory(rng, 5 + 6 * np.exp(-np.arange(600) / time)) for time in times]
        for group, times in decays.items()
    }
    replicas = Replicas(
        {group: [Battery(asked, one) for one in some] for group, some in groups.items()}
    ).run()
    means = replicas.equilibrated_means("gyration")["Rg (Å)"]
    for group, batteries in replicas.groups.items():
        series = [one.analyses["gyration"].results.rg for one in batteries]
        ones = [paceline.convergence(one, n_series=3) for one in series]
        assert all(one.equilibrated_from > 0 for one in ones)
        own = [rg[one.equilibrated_from :].mean() for rg, one in zip(series, ones, strict=True)]
        assert means[group].mean == pytest.approx(np.mean(own))
        assert means[group].interval == pytest.approx(mean_of_replicas(own).interval)
        assert means[group].mean == pytest.approx(
            replicas.verdicts("gyration")["Rg (Å)"][group].found.mean
        )
    of_all = replicas.differences["gyration"]["Rg (Å)"]["long - short"]
    later = replicas.equilibrated_differences("gyration")["Rg (Å)"]["long - short"]
    assert of_all.difference > of_all.interval
    assert abs(later.difference) < later.interval
    replicas.save(tmp_path / "o")
    table = pd.read_csv(tmp_path / "o" / "means.csv", comment="#")
    np.testing.assert_allclose(table["mean, equilibrated"], [one.mean for one in means.values()])
    table = pd.read_csv(tmp_path / "o" / "differences.csv", comment="#")
    np.testing.assert_allclose(table["difference, equilibrated"], [later.difference])
    np.testing.assert_allclose(table["95 % interval, equilibrated"], [later.interval])
    page = html.unescape((tmp_path / "o" / "index.html").read_text(encoding="utf-8"))
    assert "Rg, long - short, equilibrated (Å)" in page
    assert "Å (in equilibrated frames " in page
    vanishes, starts, *_ = replicas.remarks("gyration")
    assert vanishes.startswith("Rg, long - short: ")
    assert "is beyond its interval; that of the equilibrated frames is not: " in vanishes
    assert starts.startswith("Rg, short and Rg, long: the first frames of a replica are not")
    json_of = json_of_battery(replicas)
    assert json_of["differences"][0]["equilibrated_difference"] == later.difference
    assert json_of["group_means"][1]["equilibrated_mean"] == means["long"].mean
    # Of a group in which a replica drifts, there is no such mean.
    groups["long"] = [in_memory(rng, np.linspace(5, 9, 600)) for _ in range(3)]
    replicas = Replicas(
        {group: [Battery(asked, one) for one in some] for group, some in groups.items()}
    ).run()
    assert np.isnan(replicas.equilibrated_means("gyration")["Rg (Å)"]["long"].mean)
    unknown, *_, drifts = replicas.remarks("gyration")[:3]
    assert unknown.endswith("that of the equilibrated frames is unknown: a replica drifts.")
    assert drifts.startswith("Rg, long: a replica drifts, so there is no mean of equilibrated")
    assert any("Rg, long, equilibrated (Å): unknown: a rep" in one for one in replicas.summary())


def with_series(replicas, change):
    """Replace the tables of the radius of gyration by those with changed times and values."""
    for (group, k, _), analysis in replicas.analyses.items():
        table = analysis.results.table
        times, values = (table.columns[title].astype(float) for title in ("time (ps)", "Rg (Å)"))
        times, values = change(group, k, times, values)
        frames = np.arange(len(times))
        columns = {"frame": frames, "time (ps)": times, "Rg (Å)": values}
        analysis.results = Results(
            table=replace(table, columns=columns), provenance=analysis.results.provenance
        )


def test_angles_are_angles_in_all_groups():
    """Angles pass from 180° to -180° in one replica of the second group only."""
    rng = np.random.default_rng(5)
    asked = {"gyration": {"select": "all"}}
    groups = {"a": [140, 140], "b": [140, 180]}
    replicas = Replicas(
        {name: [Battery(asked, in_memory(rng, 5.0)) for _ in of] for name, of in groups.items()}
    ).run()
    for (group, k, _), analysis in replicas.analyses.items():
        table = analysis.results.table
        angles = groups[group][k - 1] + 8 * rng.standard_normal(600)
        columns = {"time (ps)": 2.0 * np.arange(600), "φ (°)": (angles + 180) % 360 - 180}
        table = replace(table, columns=columns, y={"φ (°)": "φ"}, y_label="φ (°)")
        analysis.results = Results(table=table, provenance=analysis.results.provenance)
    found = replicas.verdicts("gyration")["φ (°)"]
    assert {group: one.kind for group, one in found.items()} == {"a": "angle", "b": "angle"}
    assert found["b"].found.mean_of_all == pytest.approx(160, abs=1)


def test_rows_of_all_tables_are_chosen_by_one_rule(tmp_path, capsys):
    """Each series has values and times that are not finite, and repeated times.

    The rows that count are those with a finite value and a time of their own: of two rows at one
    time, the first one with a value.
    """
    rng = np.random.default_rng(5)
    asked = {"gyration": {"select": "all"}}
    decay = 6 * np.exp(-np.arange(600) / 20)
    replicas = Replicas(
        {
            group: [Battery(asked, in_memory(rng, mean + decay)) for _ in range(3)]
            for group, mean in (("a", 5.0), ("b", 7.0))
        }
    ).run()
    counted = np.ones(600, dtype=bool)
    counted[[3, 9, 11, 200, 300, 400, 451]] = False

    def damaged(group, k, times, values):
        values[[3, 300]], values[9], values[200] = np.nan, np.inf, -np.inf
        times[11], times[400] = np.nan, np.inf
        times[451], times[301] = times[450], times[300]
        return times, values

    with_series(replicas, damaged)
    folder = tmp_path / "o"
    replicas.save(folder)
    tables = {
        name: pd.read_csv(folder / f"{name}.csv", comment="#")
        for name in ("replicas", "means", "differences")
    }
    means, later = {}, {}
    for group in ("a", "b"):
        paths = [folder / group / f"{k}" / "gyration.csv" for k in (1, 2, 3)]
        columns = [pd.read_csv(path, comment="#") for path in paths]
        means[group] = [one["Rg (Å)"][counted].mean() for one in columns]
        of_group = tables["replicas"][tables["replicas"]["group"] == group]
        assert of_group["frames"].tolist() == [593] * 3
        np.testing.assert_allclose(of_group["mean"], means[group])
        starts, ends = [], []
        for path, one in zip(paths, columns, strict=True):
            values, times = one["Rg (Å)"].to_numpy(), one["time (ps)"].to_numpy()
            wanted = paceline.convergence(values[counted], times[counted], n_series=3)
            found = paceline.convergence(values, times, n_series=3)
            start = found.equilibrated_from
            assert counted[:start].sum() == wanted.equilibrated_from > 0
            assert found.n_values == wanted.n_values == counted[start:].sum()
            assert found.mean == pytest.approx(wanted.mean)
            assert main(["convergence", str(path), "--json"]) == 0
            (series,) = json.loads(capsys.readouterr().out)["series"]
            assert series["mean_of_all"] == pytest.approx(values[counted].mean())
            assert series["n_values"] == counted[series["equilibrated_from"] :].sum()
            starts.append(start)
            ends.append(wanted.mean)
        later[group] = np.mean(ends)
        verdict = replicas.verdicts("gyration")["Rg (Å)"][group].found
        assert verdict.equilibrated_from == max(starts)
        assert verdict.mean_of_all == pytest.approx(np.mean(means[group]))
        kept = [len(frames) for frames in kept_frames(replicas, group)]
        assert kept == [600 - start for start in starts]
    found = tables["means"]
    np.testing.assert_allclose(found["mean"], [np.mean(one) for one in means.values()])
    np.testing.assert_allclose(found["mean, equilibrated"], [*later.values()])
    (difference,) = tables["differences"]["difference"]
    assert difference == pytest.approx(np.mean(means["b"]) - np.mean(means["a"]))
    (difference,) = tables["differences"]["difference, equilibrated"]
    assert difference == pytest.approx(later["b"] - later["a"])


def kept_frames(replicas, group):
    """Return the frames of each replica that `run(equilibrated=True)` would keep."""
    found = replicas._equilibrated_frames()
    return [found[id(one.universe.trajectory)] for one in replicas.groups[group]]


def test_energies_of_replicas_count(tmp_path):
    """Energies every 10 ps are equilibrated later than the radius, with frames every 2 ps."""
    rng = np.random.default_rng(3)
    times = np.arange(0, 1400, 10)

    def battery(decay, shift, k, group):
        values = shift - 5000 + 3 * rng.standard_normal(len(times)) + decay * np.exp(-times / 60)
        rows = "".join(f"{time} {one:.4f}\n" for time, one in zip(times, values, strict=True))
        path = tmp_path / f"{group}{k}.xvg"
        axes = '@ xaxis label "Time (ps)"\n@ yaxis label "(kJ/mol)"\n'
        path.write_text(f'{axes}@ s0 legend "Potential"\n{rows}', "utf-8")
        one = Battery({"gyration": {"select": "all"}}, in_memory(rng, 5.0))
        return one.add_energies(path)

    groups = {
        "a": [battery(90, 0, k, "a") for k in range(3)],
        "b": [battery(0, 20, k, "b") for k in range(3)],
    }
    replicas = Replicas(groups).run()
    (title,) = replicas.means["energies"]
    series = [one.energies.results.table.columns[title] for one in replicas.groups["a"]]
    assert [len(one) for one in series] == [120] * 3  # without the times after the last frame
    own = [one.mean() for one in series]
    assert replicas.means["energies"][title]["a"] == mean_of_replicas(own)
    verdict = replicas.verdicts("energies")[title]["a"]
    assert verdict.found.equilibrated_at > 100
    later = replicas.equilibrated_differences("energies")[title]["b - a"]
    assert abs(later.difference - 20) < later.interval
    of_all = replicas.differences["energies"][title]["b - a"]
    assert abs(of_all.difference - 20) > of_all.interval
    assert any("energies (Potential)" in one or "energies is" in one for one in replicas.summary())
    folder = tmp_path / "o"
    replicas.save(folder)
    names = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert {folder / name for name in names} <= set(replicas.outputs(folder))
    assert {"energies.svg", "a/1/energies.csv"} <= names
    rows = pd.read_csv(folder / "replicas.csv", comment="#")
    np.testing.assert_allclose(rows[rows["analysis"] == "energies"]["mean"][:3], own)
    page = html.unescape((folder / "index.html").read_text(encoding="utf-8"))
    assert "Potential, b - a, equilibrated" in page
    assert "a0.xvg" not in page
    assert "without the energies" in (folder / "battery.toml").read_text(encoding="utf-8")
    named = {
        (one["group"], one["replica"], one["name"]) for one in json_of_battery(replicas)["analyses"]
    }
    assert ("b", 3, "energies") in named
    replicas.run(equilibrated=True)
    starts = [one.analyses["gyration"].frames[0] for one in replicas.batteries]
    assert min(starts[:3]) > 50
    assert starts[3:] == [0, 0, 0]
    firsts = [one.energies.results.times[0] for one in replicas.batteries]
    assert firsts == [2 * start for start in starts]
    assert sum("energies is equilibrated from" in one for one in replicas.warnings) == 3


def test_energies_of_some_replicas_are_counted(tmp_path):
    """Only the last replica of a has no energies, only the first of b, and no replica of c has."""
    rng = np.random.default_rng(3)
    times = np.arange(0, 1200, 10)
    groups = {}
    for group, numbers in {"a": (0, 1), "b": (1, 2), "c": ()}.items():
        groups[group] = [
            Battery({"gyration": {"select": "all"}}, in_memory(rng, 5.0)) for _ in "123"
        ]
        for k in numbers:
            values = -5000 + 3 * rng.standard_normal(len(times))
            rows = "".join(f"{time} {one:.4f}\n" for time, one in zip(times, values, strict=True))
            path = tmp_path / f"{group}{k}.xvg"
            axes = '@ xaxis label "Time (ps)"\n@ yaxis label "(kJ/mol)"\n'
            path.write_text(f'{axes}@ s0 legend "Potential"\n{rows}', "utf-8")
            groups[group][k].add_energies(path)
    replicas = Replicas(groups).run()
    (means,) = replicas.means["energies"].values()
    assert {group: int(one.n_replicas) for group, one in means.items()} == {"a": 2, "b": 2}
    remarks = replicas.remarks("energies")
    assert remarks[:3] == [
        "a: energies of 2 of 3 replicas.",
        "b: energies of 2 of 3 replicas.",
        "c: not computed.",
    ]
    # The answers on a and on b are also of the energies.
    answers = {one[:2]: one for one in replicas.summary() if "equilibrated" in one}
    for group in ("a:", "b:"):
        assert "both means are sampled" in answers[group]
    assert "both means" not in answers["c:"]
    replicas.save(tmp_path / "o")
    page = html.unescape((tmp_path / "o" / "index.html").read_text(encoding="utf-8"))
    assert "b: energies of 2 of 3 replicas." in page
    assert "b: not computed" not in page


def test_energies_in_a_file_are_of_one_trajectory(systems, tmp_path):
    path = tmp_path / "groups.toml"
    text = f'''
        [gyration]
        [energies]
        files = ["md.edr"]
        [groups.wt]
        topology = "{systems / "wt" / "top.pdb"}"
        trajectories = "{systems / "wt" / "*" / "md.xtc"}"
        '''
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UnsupportedError, match=r"\[energies\] would be those of every replica"):
        Replicas.from_file(path)


def test_short_replicas_are_left_out_of_verdicts_and_equilibrated_means():
    rng = np.random.default_rng(5)
    asked = {"gyration": {"select": "all"}}
    universes = [in_memory(rng, 5.0) for _ in range(3)] + [in_memory(rng, 9.0, 3)]
    replicas = Replicas({"g": [Battery(asked, one) for one in universes]}).run()
    of_all, later = (
        found["Rg (Å)"]["g"]
        for found in (replicas.means["gyration"], replicas.equilibrated_means("gyration"))
    )
    verdict = replicas.verdicts("gyration")["Rg (Å)"]["g"].found
    assert (of_all.n_replicas, later.n_replicas, len(verdict.replica_means)) == (4, 3, 3)
    assert later.mean == verdict.mean
    assert later.interval == pytest.approx(verdict.half_width)
    assert "left out: replica 4 (less than 4 values)" in verdict.reasons
    text = "Rg: replicas with less than 4 values are left out of the verdict and of means of equil"
    assert [one.startswith(text) for one in replicas.remarks("gyration")[:1]] == [True]
    # Without a replica of 4 frames, there is no such mean, and none is described as a drift.
    few = [in_memory(rng, 5.0, 3) for _ in range(2)]
    replicas = Replicas({"g": [Battery(asked, one) for one in few]}).run()
    assert np.isnan(replicas.equilibrated_means("gyration")["Rg (Å)"]["g"].mean)
    assert not any("equilibrated" in one for one in replicas.remarks("gyration"))
    assert not any("drift" in one for one in replicas.summary() if "Rg" in one)


def test_each_replica_discards_its_own_start(tmp_path):
    rng = np.random.default_rng(5)
    decays = (8, 30)
    universes = [in_memory(rng, 5 + 6 * np.exp(-np.arange(600) / time)) for time in decays]
    asked = {"gyration": {"select": "all"}}
    replicas = Replicas({"one": [Battery(asked, universe) for universe in universes]})
    replicas.run(equilibrated=True)
    starts = [one.analyses["gyration"].frames[0] for one in replicas.batteries]
    assert 10 < starts[0] < 70 < starts[1] < 200
    assert [one.analyses["gyration"].frames[-1] for one in replicas.batteries] == [599, 599]
    series = [one.analyses["gyration"].results.rg for one in replicas.batteries]
    assert replicas.means["gyration"]["Rg (Å)"]["one"].mean == np.mean([*map(np.mean, series)])
    note = (
        f"replica 2 of one (in memory): {starts[1]} frames are left out: gyration is equilibrated"
    )
    assert any(one.startswith(note) for one in replicas.warnings)
    replicas.save(tmp_path / "o")
    assert note in (tmp_path / "o" / "means.csv").read_text(encoding="utf-8")
    drifting = [*universes, in_memory(rng, np.linspace(5, 9, 600))]
    replicas = Replicas({"one": [Battery(asked, universe) for universe in drifting]})
    with pytest.raises(UnsupportedError, match=r"replica 3 of one .*: no frames are equil"):
        replicas.run(equilibrated=True)


def test_profiles_are_compared_at_residues_of_one_number(replicas):
    profile = replicas.profile("rmsf")
    residues = profile.keys["residue"]
    assert residues.tolist() == list(range(90, 131))
    wild_type, mutant = (profile.values["RMSF (Å)"][group] for group in ("wt", "mutant"))
    there = ~np.isin(residues, GONE)
    for k in range(3):
        found = replicas.groups["mutant"][k].analyses["rmsf"].results.residue_rmsf
        np.testing.assert_array_equal(mutant[k, there], found)
        assert np.isnan(mutant[k, ~there]).all()
        found = replicas.groups["wt"][k].analyses["rmsf"].results.residue_rmsf
        np.testing.assert_array_equal(wild_type[k], found)
    (remark,) = [text for text in replicas.remarks("rmsf") if "not compared" in text]
    assert remark == "Not in mutant, and therefore not compared: residue 100, 101, 102."
    columns = profile.table().columns
    np.testing.assert_allclose(columns["RMSF, mean of wt (Å)"], wild_type.mean(axis=0))
    gap = np.isnan(columns["RMSF, mutant - wt (Å)"])
    assert np.array_equal(gap, ~there)


def test_files_and_page(replicas, tmp_path, systems):
    folder = tmp_path / "out"
    replicas.save(folder)
    names = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert {folder / name for name in names} <= set(replicas.outputs(folder))
    assert {"rmsf-profile.csv", "rmsf-profile.svg", "gyration.svg", "wt/3/rmsf.csv"} <= names
    assert "difference (Å)" in (folder / "rmsf-profile.svg").read_text(encoding="utf-8")
    with (folder / "differences.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    assert [row["groups"] for row in rows] == ["mutant - wt"]
    own, others = (
        [one.analyses["gyration"].results.rg.mean() for one in replicas.groups[group]]
        for group in ("wt", "mutant")
    )
    assert float(rows[0]["p"]) == pytest.approx(ttest_ind(own, others, equal_var=False).pvalue)
    assert float(rows[0]["detectable with 80 % power"]) > float(rows[0]["95 % interval"])
    profile = pd.read_csv(folder / "rmsf-profile.csv", comment="#")
    adjusted = profile["RMSF, mutant - wt, adjusted p"].to_numpy()
    assert np.array_equal(np.isnan(adjusted), np.isin(profile["residue"], GONE))
    p_values = ttest_ind(
        *(replicas.profile("rmsf").values["RMSF (Å)"][group] for group in ("wt", "mutant")),
        equal_var=False,
    ).pvalue
    known = ~np.isnan(adjusted)
    np.testing.assert_allclose(adjusted[known], false_discovery_control(p_values[known]))
    means = pd.read_csv(folder / "means.csv", comment="#")
    own = pd.read_csv(folder / "replicas.csv", comment="#")
    assert means["replicas"].tolist() == [3, 3]
    assert means["mean"][0] == pytest.approx(own["mean"][:3].mean())
    assert own["frames"].tolist() == [21, 22, 23] * 2
    page = (folder / "index.html").read_text(encoding="utf-8")
    assert re.findall(r"<h2>(.*)</h2>", page)[:2] == ["Cα radius of gyration", "Cα RMSF"]
    assert "3 replicas of 21, 22 and 23 frames" in page
    assert "not converged" in page
    assert "3 replicas against 3 are too few to show less than" in page
    (of_rmsf,) = [one for one in replicas.summary() if one.startswith("rmsf: ")]
    assert of_rmsf.removeprefix("rmsf: RMSF, mutant - wt, along residue: ") in page
    n_found = np.sum(adjusted <= 0.05)
    assert (f"{n_found} of 38 differ, and" if n_found else "none of 38 differs") in page
    with pytest.raises(FileExistsError):
        replicas.save(folder)
    again = Replicas.from_file(folder / "battery.toml")
    assert again.to_toml() == replicas.to_toml()


def test_one_replica_has_no_interval(systems, tmp_path):
    asked = {"gyration": ASKED["gyration"]}
    one = Replicas({"wt": [Battery(asked, opened(systems, "wt", 1))]}).run()
    mean = one.means["gyration"]["Rg (Å)"]["wt"]
    assert np.isnan(mean.interval)
    assert one.remarks("gyration")[0] == ("wt: there is only one replica, so there is no interval.")
    (tmp_path / "differences.csv").write_text("of an earlier battery")
    one.save(tmp_path, overwrite=True)
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "no interval between replicas" in page
    assert not (tmp_path / "differences.csv").exists()


def test_atoms_of_other_systems_are_not_compared_by_their_indices(systems):
    """Check labels: a residue by its index, a map of CA by residue numbers."""
    asked = {
        "atoms": {"analysis": "rmsf", "select": "resid 120"},
        "map": {"analysis": "distance-map", "select": "name CA and resid 95-105"},
    }
    groups = ("wt", "mutant")
    both = Replicas({group: [Battery(asked, opened(systems, group, 1))] for group in groups}).run()
    assert both.profile("atoms") is None
    assert "Rows of replicas do not correspond: there is no mean profile." in (
        both.remarks("atoms")
    )
    alone = Replicas({"wt": both.groups["wt"]})
    assert len(alone.profile("atoms").keys["atom index"]) == len(
        alone.groups["wt"][0].universe.select_atoms("resid 120")
    )
    found = both.profile("map")
    assert list(found.keys) == ["residue", "other residue"]
    own = found.values["mean distance (Å)"]["mutant"][0]
    assert np.isnan(own[found.keys["residue"] == 101]).all()
    row = (found.keys["residue"] == 99) & (found.keys["other residue"] == 103)
    alpha = both.groups["mutant"][0].universe.select_atoms("resid 95-99 103-105 and name CA")
    matrix = both.groups["mutant"][0].analyses["map"].results.mean
    first, second = (np.flatnonzero(alpha.resids == number)[0] for number in (99, 103))
    assert own[row] == matrix[first, second]


def test_mean_profiles_end_with_the_shortest_replica(systems):
    asked = {"msd": {"select": "name CA"}}
    wt = Replicas({"wt": [Battery(asked, opened(systems, "wt", k)) for k in (1, 2, 3)]}).run()
    profile = wt.profile("msd")
    ((title, of_groups),) = profile.values.items()
    assert np.isnan(of_groups["wt"]).sum(axis=1).tolist() == [2, 1, 0]
    mean = profile.means(title)["wt"].mean
    np.testing.assert_array_equal(mean[:21], of_groups["wt"][:, :21].mean(axis=0))
    assert np.isnan(mean[21:]).all()
    (remark,) = [text for text in wt.remarks("msd") if "not compared" in text]
    assert remark.startswith(
        "Not in all replicas of wt, and therefore not compared: lag time (ps) 21, 22"
    )


def of_residues(numbers, values):
    return Table({"residue": np.array(numbers), "y": np.array(values)}, "residue", {"y": "y"}, "y")


def test_chains_are_compared_with_chains():
    """Check a second chain that begins after a row of NaN, and lacks a residue."""
    nan = np.nan
    first = of_residues([1, 2, 3, nan, 1, 2, 3], np.arange(7.0))
    second = of_residues([2, 3, nan, 1, 3], np.arange(5.0))
    keys, chains, rows = align([first, second], ["residue"])
    assert keys["residue"].tolist() == [1, 2, 3, 1, 2, 3]
    assert chains.tolist() == [0, 0, 0, 1, 1, 1]
    assert [one.tolist() for one in rows] == [[0, 1, 2, 4, 5, 6], [-1, 0, 1, 3, -1, 4]]


def test_rows_that_share_keys_are_not_guessed():
    """Check pairs of residues of two chains, one of which lacks residues."""
    first, second = (
        of_residues([1, 2, 1, 2], np.arange(4.0)),
        of_residues([1, 2, 2], np.ones(3)),
    )
    _, _, rows = align([first, first], ["residue"])
    assert [one.tolist() for one in rows] == [[0, 2, 1, 3]] * 2
    assert align([first, second], ["residue"])[2] == []


@pytest.mark.parametrize(("shift", "n_rows"), [(0.04, 5), (0.2, 0)])
def test_bins_of_nearly_one_place_are_compared(shift, n_rows):
    """Check slices of varying cells, which are compared; others are not."""
    places = np.array([0.1, 0.3, 0.5, 0.7, 0.9])
    first, second = (of_residues(places + by, places) for by in (0, shift))
    keys, _, rows = align([first, second], ["residue"])
    assert len(rows) == (2 if n_rows else 0)
    if n_rows:
        np.testing.assert_allclose(keys["residue"], places + shift / 2)


def test_tables_may_end_before_others():
    places = np.array([0.1, 0.3, 0.5, 0.7, 0.9])
    others = [of_residues(one, one) for one in (places, 3 * places[:2])]
    assert align(others, ["residue"])[2] == []
    keys, _, rows = align([of_residues(one, one) for one in (places[:3], places)], ["residue"])
    assert [one.tolist() for one in rows] == [[0, 1, 2, -1, -1], [0, 1, 2, 3, 4]]
    np.testing.assert_array_equal(keys["residue"], places)


def test_profiles_of_areas_and_structure(universe):
    protein = universe.select_atoms("resid 30-50")
    sasa = SASA(protein, n_points=20, compound="residues").run(stop=4).results
    profile = sasa.table.profile
    assert profile.columns["residue"].tolist() == list(range(30, 51))
    np.testing.assert_allclose(profile.columns["SASA of residue (Å²)"], sasa.sasa.mean(axis=0))
    assert SASA(protein, n_points=20).run(stop=2).results.table.profile is None
    dssp = DSSP(universe).run(stop=6).results
    columns = dssp.table.profile.columns
    wanted = (dssp.dssp == "H").mean(axis=0)
    np.testing.assert_array_equal(columns["helix (fraction of frames)"], wanted)
    assert 0 < wanted.mean() < 1


def test_commands(systems, tmp_path, run, monkeypatch):
    monkeypatch.chdir(systems)
    (tmp_path / "b.toml").write_text('[gyration]\nselect = "name CA"\n', encoding="utf-8")
    files = ["wt/top.pdb", "wt/1/md.xtc", "wt/2/md.xtc", "--group", "mutant/top.pdb", "mutant/*/*"]
    options = ["-o", tmp_path / "o", "-b", "2", "-e", "45", "--on-error", "skip", "--n-workers", 1]
    status, out, err = run("run", tmp_path / "b.toml", *files, *options)
    assert (status, out, err) == (0, f"{tmp_path / 'o' / 'index.html'}\n", "")
    means = pd.read_csv(tmp_path / "o" / "means.csv", comment="#")
    assert means["group"].tolist() == ["wt", "mutant"]
    assert means["replicas"].tolist() == [2, 3]
    # Frames from 2 to 45 ps of each trajectory.
    own = pd.read_csv(tmp_path / "o" / "replicas.csv", comment="#")
    assert own["frames"].tolist() == [20, 22, 20, 22, 5]
    # The file that was written names these frames.
    again = tmp_path / "o" / "battery.toml"
    status, out, err = run(
        "run", again, "-o", tmp_path / "o2", "-b", "2", "-e", "45", "--n-workers", 1
    )
    assert (status, err) == (0, "")
    text = (tmp_path / "o2" / "means.csv").read_text(encoding="utf-8").splitlines()
    assert text[-1] == (tmp_path / "o" / "means.csv").read_text(encoding="utf-8").splitlines()[-1]


@pytest.mark.full
def test_a_single_group_is_named_by_its_folder(systems, tmp_path, run, monkeypatch):
    monkeypatch.chdir(systems)
    (tmp_path / "b.toml").write_text('[gyration]\nselect = "name CA"\n', encoding="utf-8")
    files = ["wt/top.pdb", "wt/1/md.xtc", "wt/2/md.xtc", "--replicas"]
    assert run("run", tmp_path / "b.toml", *files, "-o", tmp_path / "o", "-e", "25")[0] == 0
    means = pd.read_csv(tmp_path / "o" / "means.csv", comment="#")
    assert (means["group"].tolist(), means["replicas"].tolist()) == (["wt"], [2])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["wt/1/md.xtc", "--names", "a"], "--names needs groups"),
        (["wt/1/md.xtc", "--replicas", "--names", "a", "b"], "expected 1 different names"),
        (["wt/1/md.xtc", "--group", "none/*.xtc"], "no file matches this pattern"),
        (
            ["wt/1/md.xtc", "--group", "wt/2/md.xtc", "--names", "a", "../b"],
            "not valid for a folder",
        ),
        (["mutant/1/md.xtc", "--replicas"], "atoms"),
        (["wt/1/md.xtc", "wt/*/md.xtc", "--replicas"], "wt/1/md.xtc: given as two replicas"),
        (["wt/1/md.xtc", "--replicas", "--names", "index.html"], "a file of results has this"),
        (["wt/1/md.xtc", "--replicas", "--names", "gyration.svg"], "a file of results has this"),
    ],
)
def test_groups_that_make_no_sense(arguments, words, systems, run, monkeypatch, tmp_path):
    monkeypatch.chdir(systems)
    status, _, err = run("battery", "wt/top.pdb", *arguments, "-o", tmp_path / "o")
    assert status != 0
    assert words in err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[groups.a]\ntopology = 'a.pdb'", "expected topology and trajectories"),
        ("[groups.a]\ntopology = 'a.pdb'\ntrajectories = 3", "expected the name of a topology"),
        ("groups = 3", r"expected tables \[groups.NAME\]"),
        ("[rmsd]", r"expected tables \[groups.NAME\], found none"),
    ],
)
def test_files_that_name_no_groups(text, words, tmp_path):
    path = tmp_path / "wrong.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UnsupportedError, match=words):
        Replicas.from_file(path)


def test_a_battery_of_one_system_takes_no_groups(universe, tmp_path, systems, run):
    path = tmp_path / "battery.toml"
    top, trajectory = (str(systems / "wt" / name) for name in ("top.pdb", "1/md.xtc"))
    groups = f"[groups.a]\ntopology = {top!r}\ntrajectories = {trajectory!r}\n[rmsf]\n"
    path.write_text(groups, encoding="utf-8")
    with pytest.raises(UnsupportedError, match="names its own systems"):
        Battery.from_file(path, universe)
    assert "names its own systems" in run("run", path, "-s", top, "-f", trajectory)[2]
    path.write_text("[rmsf]\n", encoding="utf-8")
    assert "expected TOPOLOGY TRAJECTORY" in run("run", path)[2]


def test_replicas_in_memory_and_with_one_mean_are_saved(tmp_path):
    """Check a Universe without files, and that equal means are not exact."""
    positions = np.random.default_rng(1).normal(size=(2, 6, 3)).astype(np.float32)
    universes = []
    for frames in ([0, 1] * 15, [1, 0] * 15):
        made = paceline.Universe.empty(6, trajectory=True)
        made.add_TopologyAttr("masses", np.ones(6))
        made.load_new(positions[frames])
        universes.append(made)
    asked = {"gyration": {"select": "all"}}
    one = Replicas({"a": [Battery(asked, made) for made in universes]}).run()
    one.save(tmp_path / "saved")
    text = (tmp_path / "saved" / "battery.toml").read_text()
    assert text.startswith("# a: no files")
    assert "[gyration]" in text
    page = (tmp_path / "saved" / "index.html").read_text()
    assert "in memory" in page
    assert "all replicas have the same mean" in page
    assert "± 0" not in page
    assert "2 replicas with equal values" in (tmp_path / "saved" / "gyration.svg").read_text()
    means = pd.read_csv(tmp_path / "saved" / "means.csv", comment="#")
    assert means["95 % interval between"].isna().all()


def test_lines_of_profiles_end_between_chains_and_where_residues_are_missing():
    chains = np.array([0, 0, 0, 0, 1, 1, 1])
    residues = np.array([247, 248, 297, 298, 299, 300, 301])
    np.testing.assert_array_equal(line_ends(chains, residues), [2, 4])


def test_the_page_names_residues_that_differ():
    rng = np.random.default_rng(1)
    residues = np.arange(1.0, 41)
    wild_type, mutant = rng.normal(1, 0.01, (2, 4, 40))
    mutant[:, 6:8] += 1
    profile = Profile(
        {"residue": residues},
        np.zeros(40, dtype=np.int64),
        {"RMSF (Å)": {"wt": wild_type, "mutant": mutant}},
        "RMSF (Å)",
        {},
    )
    [(title, text)] = lines_of_profile(profile)
    assert title == "RMSF, mutant - wt, along residue"
    assert text.startswith("2 of 40 differ, and at most 5 % of them are expected to be false: ")
    assert "residue 7 and 8 (" in text
    (difference,) = differences(profile.means("RMSF (Å)")).values()
    detectable = detectable_in_rows(difference)
    least, middle = (f"{one:.2g} Å" for one in (detectable.min(), np.median(detectable)))
    end = f"4 replicas against 4 are too few to show less than {least} in any row, or"
    assert text.endswith(f"{end} {middle} in half of the rows, with a probability of 80 %")
    same = Profile(
        profile.keys, profile.chains, {"RMSF (Å)": {"wt": wild_type, "b": wild_type}}, "", {}
    )
    assert next(lines_of_profile(same))[1].startswith("none of 40 differs")
    single = Profile(
        profile.keys, profile.chains, {"RMSF (Å)": {"wt": wild_type[:1], "b": mutant}}, "", {}
    )
    assert [*lines_of_profile(single)] == []


def test_differences_in_a_profile_are_found_with_80_percent_power():
    """Check groups of 12 replicas and 40 rows, of which one or six differ, by simulation."""
    rng, n, m = np.random.default_rng(5), 12, 40
    for n_others in (0, 5):
        level = 0.05 * (n_others + 1) / m
        true = GroupDifference(np.array(0.0), np.sqrt(np.array(2 / n)), np.array(2 * n - 2.0))
        least = float(true.detectable_at(level))
        found, said = 0, []
        for _ in range(400):
            groups = rng.standard_normal((2, n, m))
            groups[1, :, 0] += least
            groups[1, :, 1 : 1 + n_others] += 10
            values = {"RMSF (Å)": dict(zip(("a", "b"), groups, strict=True))}
            numbers = {"a": range(n), "b": range(n)}
            chain = np.zeros(m, np.int64)
            profile = Profile({"residue": np.arange(m)}, chain, values, "RMSF (Å)", numbers)
            columns = profile.table().columns
            found += columns["RMSF, b - a, adjusted p"][0] <= 0.05
            said.append(columns["RMSF, b - a, detectable with 80 % power (Å)"][0])
        assert 0.75 <= found / 400 <= 0.88  # chance alone names other rows, too
        assert np.median(said) == pytest.approx(least, rel=0.08)


def test_the_level_of_a_row_is_the_largest_p_value_that_is_named():
    rng = np.random.default_rng(3)
    for power in (1, 2, 6, 12):
        p_values = np.r_[rng.random(12) ** power, np.nan]
        levels = levels_of_rows(p_values)
        assert np.isnan(levels[-1])
        for row, level in enumerate(levels[:-1]):
            named = []
            for factor in (1 - 1e-9, 1 + 1e-9):
                changed = p_values.copy()
                changed[row] = level * factor
                named.append(adjusted_p_values(changed)[row] <= 0.05)
            assert named[0]
            assert not named[1] or level == 0.05
        by_level = p_values <= levels
        np.testing.assert_array_equal(by_level, adjusted_p_values(p_values) <= 0.05)
    assert np.isnan(levels_of_rows(np.full(3, np.nan))).all()


def test_differences_are_detectable_at_any_level():
    """Compare with the probability of the noncentral t distribution, also for large t."""
    for n_free, level in ((1.0, 1e-4), (2.0, 1e-5), (4.0, 2.5e-4), (30.0, 1e-3)):
        one = GroupDifference(np.array(0.0), np.array(1.0), np.array(n_free))
        least = float(one.detectable_at(level))
        noise = np.random.default_rng(4).standard_normal(200_000)
        spread = np.sqrt(np.random.default_rng(5).chisquare(n_free, 200_000) / n_free)
        power = np.mean((noise + least) / spread > t.ppf(1 - level / 2, n_free))
        assert power == pytest.approx(0.8, abs=0.01)
    assert np.isnan(difference_of_groups([1.0], [2.0, 3.0]).detectable_at(0.01))
