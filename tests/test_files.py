"""Files that we write: no other file is lost, replaced or opened to others by it."""

import os

import pytest

import paceline
from paceline.analysis.rms import RMSD
from paceline.cli import main
from paceline.errors import UnsupportedError


@pytest.fixture
def names(tmp_path):
    """One file under several names, by ending: as it is, by another way, through links."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "there").symlink_to(tmp_path, target_is_directory=True)

    def of(ending):
        path, link, hard = (tmp_path / f"{name}.{ending}" for name in ("run", "link", "hard"))
        link.symlink_to(path)
        other = tmp_path / f"old.{ending}"
        other.write_text("old")
        os.link(other, hard)
        return [
            (path, path),
            (path, f"{tmp_path}/folder/../run.{ending}"),
            (path, tmp_path / "there" / path.name),
            (path, link),
            (link, path),
            (other, hard),
        ]

    return of


def found_in(folder):
    return {one.name: one.read_bytes() for one in folder.rglob("*") if one.is_file()}


@pytest.mark.parametrize(
    ("ending", "options"),
    [
        ("csv", ("-o", "--checkpoint")),
        ("csv", ("-o", "--report")),
        ("png", ("--plot", "--checkpoint")),
        ("png", ("--plot", "--report")),
        ("html", ("--report", "--checkpoint")),
    ],
)
def test_one_file_for_two_purposes_is_refused_before_the_work(
    ending, options, names, adk, tmp_path, capsys
):
    pairs = names(ending)
    before = found_in(tmp_path)
    for pair in pairs:
        given = [str(word) for both in zip(options, pair, strict=True) for word in both]
        assert main(["rmsd", *map(str, adk), *given, "--overwrite"]) == 2
        written = capsys.readouterr()
        assert written.out == ""
        assert "one file for two purposes" in written.err
        assert found_in(tmp_path) == before


def test_other_commands_refuse_it_too(adk, tmp_path, capsys):
    numbers = ["--frames", "100", "--bytes", "12kB", "--decode", "30us", "--compute", "90us"]
    twice = str(tmp_path / "a.png")
    xtc, svg = tmp_path / "a.xtc", tmp_path / "a.svg"
    xtc.symlink_to("a.csv")
    svg.symlink_to("a.csv")
    before = found_in(tmp_path)
    for command in (
        ["convert", adk.trajectory, xtc, "--report", tmp_path / "a.csv"],
        ["bench", "scaling", "rmsd", *adk, "--plot", twice, "--plot", twice],
        ["predict", *numbers, "-o", tmp_path / "a.csv", "--plot", svg],
    ):
        assert main([*map(str, command), "--overwrite"]) == 2
        assert "one file for two purposes" in capsys.readouterr().err
    assert found_in(tmp_path) == before


def test_python_refuses_it_too(adk, tmp_path):
    atoms = paceline.Universe(*adk).select_atoms("name CA")
    path, link = tmp_path / "a.xtc", tmp_path / "link.xtc"
    link.symlink_to(path)
    writes = [paceline.Write(atoms, name, overwrite=True) for name in (path, link)]
    with pytest.raises(UnsupportedError, match="one file for two purposes"):
        paceline.run(writes)
    with pytest.raises(UnsupportedError, match="one file for two purposes"):
        paceline.run([RMSD(atoms), writes[0]], checkpoint=link)
    (tmp_path / "piece.000.xtc").symlink_to(tmp_path / "piece.001.xtc")
    paceline.Write(atoms, tmp_path / "whole.xtc").run()
    with pytest.raises(UnsupportedError, match="one file for two purposes"):
        paceline.split(tmp_path / "whole.xtc", 2, output=tmp_path / "piece.xtc", overwrite=True)
    assert set(found_in(tmp_path)) <= {"whole.xtc", ".whole.xtc.paceline-index"}


def test_without_overwrite_what_is_there_is_refused_before_the_work(adk, tmp_path, monkeypatch):
    monkeypatch.setattr(paceline.Universe, "__init__", lambda *_: pytest.fail("work has begun"))
    for option, name in (("-o", "a.csv"), ("--plot", "a.png"), ("--report", "a.html")):
        (tmp_path / name).write_text("old")
        given = [option, str(tmp_path / name), "--checkpoint", str(tmp_path / "checkpoint")]
        assert main(["rmsd", *map(str, adk), *given]) == 2
    assert set(found_in(tmp_path).values()) == {b"old"}
    assert len(found_in(tmp_path)) == 3
