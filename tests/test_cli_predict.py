"""paceline predict."""

import csv
import shlex

import pytest

from paceline.cli import main

JOB = shlex.split(
    "predict --frames 100000 --bytes 12kB --read 0.1ms --decode 0.2ms --compute 0.1ms"
)


def rows_of(text):
    return list(csv.DictReader(text.splitlines(), delimiter="\t"))


def test_table_of_one_curve(capsys):
    assert main([*JOB, "--n-workers", "24", "--file-system", "memory"]) == 0
    found = capsys.readouterr()
    rows = rows_of(found.out)
    assert [int(row["workers"]) for row in rows] == [1, 2, 4, 8, 16, 24]
    assert float(rows[0]["t_total (s)"]) == pytest.approx(40.0)
    assert float(rows[0]["t_io (s)"]) == pytest.approx(10.0)
    assert "fastest with 24 workers" in found.err


def test_schedules_and_layouts_are_compared(capsys):
    options = shlex.split("--n-workers 24 384 --per-node 24 --file-system lustre")
    choices = shlex.split("--request-frames 1 --schedule static dynamic --layout shared split")
    stragglers = shlex.split("--slow-fraction 0.1 --slow-factor 3 --late 2s")
    assert main([*JOB, *options, *choices, *stragglers]) == 0
    total = {
        (row["schedule"], row["layout"]): float(row["t_total (s)"])
        for row in rows_of(capsys.readouterr().out)
        if row["workers"] == "24"
    }
    assert len(total) == 4
    for layout in ("shared", "split"):
        assert total["dynamic", layout] + 2 < total["static", layout]
    for schedule in ("dynamic", "static"):
        assert total[schedule, "split"] < total[schedule, "shared"]


def test_figures_that_are_given_replace_those_of_the_profile(capsys):
    job = shlex.split("predict --frames 1000 --bytes 1MB --n-workers 1 --file-system ssd")
    read = []
    for options in ([], ["--server-bandwidth", "1GB"]):
        assert main([*job, *options]) == 0
        read.append(float(rows_of(capsys.readouterr().out)[0]["t_io (s)"]))
    assert read == pytest.approx([0.5, 1.0])


def test_files_are_written(tmp_path, capsys):
    table, figure = tmp_path / "predicted.csv", tmp_path / "predicted.svg"
    assert main([*JOB, "-o", str(table), "--plot", str(figure)]) == 0
    assert capsys.readouterr().out == ""
    lines = [line for line in table.read_text().splitlines() if not line.startswith("#")]
    assert len(lines) == 1 + 7
    assert "workers" in figure.read_text()
    # Neither is replaced unasked.
    assert main([*JOB, "-o", str(table)]) == 2
    assert "predicted.csv" in capsys.readouterr().err


def test_what_is_fastest_is_told_in_words(capsys):
    assert main(["predict", "--frames", "1", "--bytes", "12kB", "--n-workers", "2"]) == 0
    found = capsys.readouterr()
    assert "fastest with 1 worker, 0.006 ms; efficiency is 50 % or more" in found.err


@pytest.mark.parametrize("option", ["--read=fast", "--bytes=12x", "--n-workers=0", "--late=-1s"])
def test_numbers_that_are_none_are_refused(option, capsys):
    with pytest.raises(SystemExit) as stop:
        main([*JOB, option])
    assert stop.value.code == 2
    assert "expected" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--network=infiniband", "--t-open=1s", "--file-system=comet"])
def test_options_that_were_removed_are_refused_by_name(option, capsys):
    with pytest.raises(SystemExit) as stop:
        main([*JOB, option])
    assert stop.value.code == 2
    assert option.partition("=")[2] in capsys.readouterr().err
