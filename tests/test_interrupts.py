"""Tests that Ctrl-C at any line ends a run, and leaves nothing running, incomplete or lost."""

import argparse
import errno
import json
import os
import signal
import subprocess

import pytest
from helpers.interrupts import at_every_line
from helpers.scaling_runs import Pretended

import paceline.cli.bench
from paceline._util.files import new_file, new_files, saved_together
from paceline._util.signals import Stopping
from paceline.cli.bench import Bench
from paceline.cli.command_line import parser_of
from paceline.cli.parser_and_file_arguments import resolve_files
from paceline.performance import scaling_benchmark as measure
from paceline.performance.scaling_benchmark import run_command


@pytest.fixture(autouse=True)
def handlers():
    """Restore signal handlers after a test: a late signal may have kept a run from doing so."""
    former = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in former.items():
        signal.signal(number, handler)


@pytest.fixture
def processes(monkeypatch):
    """All processes that were started."""
    started = []

    class Known(subprocess.Popen):
        def __init__(self, *arguments, **options):
            started.append(self)
            super().__init__(*arguments, **options)

    monkeypatch.setattr(subprocess, "Popen", Known)
    return started


def test_no_process_is_left(processes, monkeypatch):
    script = "echo said >&2; echo 7"
    monkeypatch.setattr(measure, "PROGRAM", ("/bin/sh", "-c", script))

    def work():
        with Stopping():
            assert run_command([])[0] == 7

    def check():
        assert all(process.returncode is not None for process in processes)
        processes.clear()

    assert at_every_line(work, check) > 100


def test_a_measurement_keeps_its_runs(adk, tmp_path, monkeypatch):
    path = tmp_path / "runs.csv"
    asked = ["bench", "scaling", "rmsd", *adk, "--workers", "1", "--repeats", "1"]
    args = parser_of().parse_args(
        [*asked, "-o", str(path), "--overwrite"], argparse.Namespace(command_line="paceline bench")
    )
    resolve_files(args)
    monkeypatch.setattr(os, "fsync", lambda _: None)
    Pretended(monkeypatch)
    bench = Bench(args)
    bench.begin()
    told = json.dumps(bench.first)
    monkeypatch.setattr(paceline.cli.bench, "run_command", lambda *_, **__: (json.loads(told), 9.0))

    def work():
        bench.runs.clear()
        with Stopping():
            bench.do_all()

    def check():
        assert os.listdir(tmp_path) == [path.name]
        assert path.read_text(encoding="utf-8").count("\nstrong,") == 1

    assert at_every_line(work, check) > 100


def test_an_interrupted_delay_ends():
    def work():
        with Stopping.delayed():
            pass

    def check():
        assert not Stopping._holding

    with Stopping([signal.SIGINT]):
        assert at_every_line(work, check) > 5
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("existing", [[], ["a"], ["a", "b"]])
def test_a_file_is_the_old_one_or_the_new_one(existing, tmp_path):
    paths = [tmp_path / name for name in ("a", "b")]

    def prepare():
        for path in paths:
            path.unlink(missing_ok=True)
            if path.name in existing:
                path.write_text("old")

    def work():
        with new_files(paths, overwrite=True):
            pass

    def check():
        found = {path.name: path.read_text() for path in tmp_path.iterdir()}
        assert set(existing) <= set(found) <= {"a", "b"}
        new = [name for name in found if name not in existing]
        # Files that did not exist before appear together.
        assert len(new) in (0, 2 - len(existing)), found
        assert all(found[name] == "" for name in new)
        prepare()

    prepare()
    assert at_every_line(work, check) > 30
    assert {path.read_text() for path in tmp_path.iterdir()} == {""}


@pytest.mark.parametrize("existing", [[], ["a", "b", "old"]])
def test_files_that_are_saved_together_appear_together(existing, tmp_path, monkeypatch):
    finished = []
    monkeypatch.setattr(os, "fsync", lambda _: None)

    def prepare():
        finished.clear()
        for path in tmp_path.iterdir():
            path.unlink()
        for name in existing:
            (tmp_path / name).write_text("old")

    def work():
        with saved_together(lambda: finished.append(True)) as saving:
            saving.replace([tmp_path / "old"])
            for name in ("a", "b"):
                with new_file(tmp_path / name, overwrite=True) as file:
                    file.write("new")

    def check():
        found = {path.name: path.read_text() for path in tmp_path.iterdir()}
        before, after = dict.fromkeys(existing, "old"), dict.fromkeys("ab", "new")
        assert found == (after if finished else before)
        prepare()

    prepare()
    assert at_every_line(work, check) > 100
    assert {path.name for path in tmp_path.iterdir()} == {"a", "b"}


def test_a_replaced_file_stays_where_another_cannot_be_made(tmp_path, monkeypatch):
    def replace_all_but_c(source, target):
        if target.name == "c":
            raise PermissionError(errno.EACCES, "not this one")
        os.rename(source, target)

    for name in ("b", "d"):
        (tmp_path / name).write_text("old")
    monkeypatch.setattr(os, "replace", replace_all_but_c)
    paths = [tmp_path / name for name in "abcd"]
    with pytest.raises(PermissionError), new_files(paths, overwrite=True):
        pass
    found = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert found == {"b": "", "d": "old"}
