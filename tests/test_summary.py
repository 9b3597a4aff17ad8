"""Tests of summary sentences: on the command line, in a shell, and next to a table."""

import re
import sys

import numpy as np
import pytest
from MDAnalysisTests.datafiles import DCD, DCD2, PSF

import paceline
from paceline.analysis.convergence_of_table_series import place_out_of_order, table_verdicts
from paceline.analysis.results import Results
from paceline.analysis.results_in_sentences import answers
from paceline.analysis.rms import RMSD
from paceline.analysis.table import Table
from paceline.contract.run_info_and_descriptions import describe_frames


def table_of(x, title, values, **options):
    """Return a table of one column as a function of another."""
    along = np.arange(len(values), dtype=float)
    return Table({x: along, title: np.array(values)}, x, {title: title}, title, **options)


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        (table_of("time (ps)", "RMSD (Å)", [1.5] * 5), "RMSD: 1.5 Å, constant in all 5 values"),
        (
            table_of("r (Å)", "g(r)", [0.0, 3.25, 1.0]),
            "g(r): mean 1.417, minimum 0 at r = 0 Å, maximum 3.25 at r = 1 Å",
        ),
        (
            table_of("lag time (ps)", "C(t)", [1.0, 0.5, 0.25]),
            "C(t): 1 at lag time = 0 ps and 0.25 at lag time = 2 ps",
        ),
        (
            table_of("time (ps)", "angle (°)", [170.0, -170.0], no_mean=True),
            "angle: circular mean 180.0°, standard deviation 10.0°; not shown to be sampled",
        ),
        (
            table_of("lag time (ps)", "MSD (Å²)", [0.0, 1.0], notes={"D": "2 cm²/s"}),
            "D: 2 cm²/s",
        ),
        (table_of("residue", "RMSF (Å)", [2.0, 2.0]), "RMSF: 2 Å in all 2 rows"),
    ],
)
def test_a_table_is_described_by_what_it_shows(table, expected):
    assert answers(table) == [expected]
    assert Results(table=table).summary() == [expected]


def test_an_extreme_is_named_by_its_atom():
    names = {"resname": np.array(["ALA", "GLY"]), "resid": np.array([7, 8])}
    columns = {"atom index": np.arange(2), **names, "RMSF (Å)": np.array([1.0, 3.0])}
    found = answers(Table(columns, "atom index", {"RMSF (Å)": "RMSF"}, "RMSF (Å)"))
    assert found == ["RMSF: mean 2 Å, minimum 1 Å at ALA 7, maximum 3 Å at GLY 8"]


def test_an_extreme_is_named_by_its_frame_without_times():
    times, values = np.zeros(3), np.array([2.0, 1.0, 3.0])
    columns = {"frame": np.array([4, 8, 6]), "time (ps)": times, "RMSD (Å)": values}
    table = Table(columns, "time (ps)", {"RMSD (Å)": "RMSD"}, "RMSD (Å)")
    expected = ["RMSD: mean 2 Å, minimum 1 Å at frame 8, maximum 3 Å at frame 6"]
    assert answers(table) == answers(table.without_times()) == expected


@pytest.mark.parametrize("repeated", [[5], [], range(1, 40)])
def test_means_and_verdicts_have_one_rule_for_repeated_times(repeated):
    """A continued run repeats its last time; if all times are equal, frame numbers are used."""
    rng = np.random.default_rng(1)
    n = 40
    times, frames = 10.0 * np.arange(n), np.arange(n)
    times[repeated] = times[[row - 1 for row in repeated]] if len(repeated) == 1 else 0.0
    columns = {"frame": frames, "time (ps)": times, "Rg (Å)": 18 + rng.standard_normal(n)}
    table = Table(columns, "time (ps)", {"Rg (Å)": "Rg"}, "Rg (Å)")
    values = np.delete(columns["Rg (Å)"], repeated if len(repeated) == 1 else [])
    (mean,) = table.means().values()
    assert mean.mean == values.mean()
    (verdict,) = table_verdicts(table).values()
    assert verdict.found.mean_of_all == pytest.approx(values.mean())
    assert verdict.found.n_values == mean.n_values == len(values)
    (summary,) = answers(table)
    assert f"; {verdict.short}" in summary


def test_infinite_values_are_left_out_with_a_note():
    values = 18 + np.random.default_rng(1).standard_normal(40)
    with_infinite = np.insert(values, [0, 20], [np.inf, -np.inf])
    columns = {"time (ps)": np.arange(42.0), "Rg (Å)": with_infinite}
    table = Table(columns, "time (ps)", {"Rg (Å)": "Rg"}, "Rg (Å)")
    (mean,) = table.means().values()
    assert (mean.mean, mean.n_values) == (values.mean(), 40)
    (summary,) = answers(table)
    assert summary.endswith("; 2 infinite values left out")


def test_means_and_verdicts_are_not_of_frames_out_of_order():
    columns = {"time (ps)": np.arange(40) // 2, "Rg (Å)": np.arange(40.0)}
    table = Table(columns, "time (ps)", {"Rg (Å)": "Rg"}, "Rg (Å)")
    assert table.means() == table_verdicts(table) == {}
    assert place_out_of_order(table) == "row 2 has time (ps) 0 after 0"
    columns["time (ps)"] = np.r_[0, 0, np.arange(30), np.arange(8)]
    assert place_out_of_order(table) == "row 33 has time (ps) 0 after 29"


def test_further_columns_are_counted():
    columns = {f"c{k} (Å)": np.full(4, float(k)) for k in range(5)}
    table = Table(
        {"time (ps)": np.arange(4.0), **columns}, "time (ps)", dict.fromkeys(columns, ""), ""
    )
    *some, last = answers(table)
    assert [line.partition(":")[0] for line in some] == ["c0", "c1", "c2"]
    assert last == "2 further columns of the table"


def test_of_many_columns_the_first_is_described():
    titles = [f"c{k} (Å)" for k in range(9)]
    columns = {"time (ps)": np.arange(4.0), **{title: np.full(4, 2.0) for title in titles}}
    table = Table(columns, "time (ps)", dict.fromkeys(titles, ""), "")
    assert answers(table) == ["9 columns; the first: c0: 2 Å, constant in all 4 values"]


def test_values_that_are_all_nan_have_no_sentence():
    assert answers(table_of("residue", "RMSF (Å)", [np.nan] * 3)) == []


def test_frames_are_described_in_words():
    assert describe_frames(np.arange(0, 60, 2)) == "30 frames, every 2nd frame from 0 to 58"
    assert describe_frames(np.array([11]), np.array([5.5])) == "frame 11, 5.5 ps"
    assert describe_frames(np.arange(0, 99, 11)).startswith("9 frames, every 11th frame")
    assert describe_frames(np.arange(3), np.full(3, np.nan)) == "3 frames, every frame from 0 to 2"


def test_an_analysis_and_its_results_are_short_in_a_shell():
    analysis = RMSD(paceline.Universe(PSF, DCD), select="name CA")
    assert repr(analysis) == "<RMSD of 214 atoms, not run yet>"
    assert repr(analysis.results) == "<Results>"
    analysis.run(step=10)
    first, *others = repr(analysis).splitlines()
    assert first == "<RMSD of 214 atoms; 10 frames, 1 to 91 ps, every 10th frame from 0 to 90>"
    assert others[0] == "  rmsd: float64 of shape (10, 3)"
    assert others[1].startswith("  RMSD: ")
    assert " Å (95 %)" in others[1]
    assert repr(analysis.results).splitlines()[1:] == others


def test_a_table_on_a_terminal_is_cut(adk, run_with_answer, monkeypatch, tmp_path):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "60")
    status, out, err = run_with_answer("rmsd", *adk)
    lines = out.splitlines()
    assert (status, len(lines)) == (0, 21)
    assert lines[0].split() == ["frame", "time", "(ps)", "RMSD", "(Å)"]
    assert lines[2].split() == ["1", "2", "0.42343"]
    assert err.splitlines()[-1] == (
        "paceline: 78 further rows not shown: -o FILE.csv saves the table, -o - prints all of it"
    )
    _, out, err = run_with_answer("chi", *adk, "--end", 3)
    assert max(map(len, out.splitlines())) <= 60
    assert "further columns not shown" in err
    # The whole table goes to stdout if requested; a figure prints nothing else.
    assert len(run_with_answer("rmsd", *adk, "-o", "-")[1].splitlines()) == 99
    plot = tmp_path / "rmsd.png"
    _, out, err = run_with_answer("rmsd", *adk, "--plot", plot)
    assert out == ""
    assert err.splitlines()[-1] == f"paceline: wrote {plot}"


def test_files_that_were_written_are_named(adk, run_with_answer, tmp_path):
    table, plot = tmp_path / "rmsf.csv", tmp_path / "rmsf.png"
    _, out, err = run_with_answer("rmsf", *adk, "-o", table, "--plot", plot)
    assert out == ""
    *_, read, answer, wrote = err.splitlines()
    about = "98 frames, 1 to 98 ps, every frame from 0 to 97; 214 atoms"
    assert read == f"paceline: read {adk.trajectory}: {about}"
    where = r"[A-Z]{3} \d+ CA"
    words = rf"RMSF: mean [\d.]+ Å, minimum [\d.]+ Å at {where}, maximum [\d.]+ Å at {where}"
    assert re.fullmatch(f"paceline: {words}", answer)
    assert wrote == f"paceline: wrote {table}, {plot}"


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        (["pca"], "variance along the first components: 9"),
        (["cluster", "--cutoff", 2], "clusters: "),
        (["diffusionmap"], "eigenvalues of the first coordinates: "),
        (["align", "-o", "FOLDER/a.dcd"], "RMSD: 4.4 ± "),
    ],
)
def test_answers_of_commands(command, answer, adk, run_with_answer, tmp_path):
    command = [str(word).replace("FOLDER", str(tmp_path)) for word in command]
    status, _, err = run_with_answer(command[0], *adk, *command[1:])
    assert status == 0
    assert f"paceline: {answer}" in err


def test_a_battery_answers_for_each_analysis(adk, run_with_answer, tmp_path):
    folder = tmp_path / "results"
    status, out, err = run_with_answer("battery", *adk, "-o", folder, "--end", 6)
    assert (status, out) == (0, f"{folder / 'index.html'}\n")
    for words in ("rmsd: RMSD: ", "gyration: Rg: ", "ramachandran: 424 columns; the first: phi"):
        assert f"\npaceline: {words}" in err
    assert err.count("paceline: read ") == 1


def test_replicas_answer_by_their_means(adk, run_with_answer, tmp_path):
    files = [adk.trajectory, DCD2]
    (tmp_path / "one.toml").write_text("[gyration]\n")
    command = ["run", tmp_path / "one.toml", adk.topology, *files, "--replicas", "--end", 6]
    status, _, err = run_with_answer(*command, "-o", tmp_path / "results")
    assert status == 0
    assert err.count("paceline: read ") == 2
    assert re.search(r"\npaceline: gyration: Rg \(Å\): .* \(95 % between 2 replicas\)\n", err)
