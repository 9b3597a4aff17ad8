"""Tests of output files: no other file is lost, replaced or made accessible by writing."""

import errno
import os
import re
import shutil
import socket
import stat
import subprocess
import sys
import warnings
from pathlib import Path

import h5py
import pytest
from MDAnalysisTests import datafiles

import paceline
from paceline._util import files
from paceline._util.journal import Journal
from paceline.analysis.convert import Write
from paceline.analysis.rms import RMSD
from paceline.checkpoint import Checkpoint
from paceline.cli import main
from paceline.errors import PacelineWarning, UnsupportedError
from paceline.hdf5.dataset_writers import new_hdf5
from paceline.snapshot import shared_file
from paceline.timing import Timings


@pytest.fixture
def names(tmp_path):
    """Several names of one file, by extension: the file itself, another path, and links."""
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


def mode_of(path):
    return path.stat().st_mode & 0o777


def test_a_checkpoint_is_rewritten_through_no_name_that_can_be_foreseen(tmp_path):
    path, victim = tmp_path / "checkpoint", tmp_path / "victim"
    victim.write_text("precious")
    with Journal(path) as journal:
        journal.append(b"first")
        path.chmod(0o600)
        (tmp_path / ".checkpoint.new").symlink_to(victim)
        journal.rewrite([b"second"])
    assert (victim.read_text(), mode_of(path)) == ("precious", 0o600)
    assert (tmp_path / ".checkpoint.new").is_symlink()
    with Journal(path) as journal:
        assert list(journal.records()) == [b"second"]


def test_a_killed_rewriting_leaves_nothing_for_long(tmp_path):
    path = tmp_path / "checkpoint"
    kept = tmp_path / ".checkpoint.notours"
    kept.touch()
    with Journal(path) as journal:
        for _ in range(2):
            os.close(files.create_temporary(files.temporary_name(path), path))
        assert len(list(tmp_path.iterdir())) == 4
        journal.rewrite([b"second"])
        assert set(tmp_path.iterdir()) == {path, kept}
        os.close(files.create_temporary(files.temporary_name(path), path))
        journal.remove()
    assert list(tmp_path.iterdir()) == [kept]


@pytest.mark.parametrize("name", ["a.csv", "ä b.csv", "n" * 250])
def test_a_file_that_a_killed_process_left_is_named(name, tmp_path):
    path, other = tmp_path / name, tmp_path / "other.csv"
    left = files.temporary_name(path)
    left.write_bytes(bytes(2_500_000))
    os.utime(left, (0, os.stat(left).st_mtime - 600))
    files.temporary_name(path).touch()  # a process that runs now may have made it
    words = f"{re.escape(left.name)} of 2.5 MB, last written 10 min ago, is left of a run"
    with pytest.warns(PacelineWarning, match=words) as warned:
        files.warn_of_leftovers([path, other])
    assert len(warned) == 1
    assert left.exists()
    with warnings.catch_warnings():
        warnings.simplefilter("error", PacelineWarning)
        files.warn_of_leftovers([other])


def _converted(path, output):
    Write(paceline.open(path).atoms, output, overwrite=True).run(stop=2, backend="serial")


@pytest.mark.parametrize(
    "write",
    [
        _converted,
        lambda path, output: paceline.split(path, 2, output=output),
        lambda path, output: paceline.join([path, path], output),
    ],
    ids=["convert", "split", "join"],
)
def test_a_run_names_what_a_killed_run_left(write, tmp_path):
    output = tmp_path / "out.xtc"
    for name in (output, tmp_path / "out.000.xtc"):
        left = files.temporary_name(name)
        left.touch()
        os.utime(left, (0, os.stat(left).st_mtime - 600))
    with pytest.warns(PacelineWarning, match="is left of a run"):
        write(shutil.copy(datafiles.XTC, tmp_path / "in.xtc"), output)


def test_small_files_are_written_without_listing_their_folder(tmp_path, monkeypatch):
    """Index files of a deposit may lie in one folder: listing it for each takes quadratic time."""
    monkeypatch.setattr(os, "scandir", lambda *_: pytest.fail("the folder was listed"))
    with files.new_file(tmp_path / "a.csv"), files.new_files([tmp_path / "b", tmp_path / "c"]):
        pass


WAYS = {
    "text": lambda path: _written(files.new_file(path, overwrite=True)),
    "several": lambda path: _written(files.new_files([path], overwrite=True)),
    "HDF5": lambda path: _written(new_hdf5(path, overwrite=True)),
    "snapshots": lambda path: _published(shared_file.Output.new(str(path))),
}


def _written(opened):
    with opened:
        pass


def _published(made):
    made.publish(overwrite=True)
    made.close()


@pytest.mark.parametrize("way", WAYS)
def test_temporary_files_follow_no_link_that_was_put_there(way, tmp_path, monkeypatch):
    monkeypatch.setattr("os.urandom", bytes)
    path, victim = tmp_path / "out", tmp_path / "victim"
    victim.write_text("precious")
    files.temporary_name(path).symlink_to(victim)
    with pytest.raises(FileExistsError):
        WAYS[way](path)
    assert (victim.read_text(), path.exists()) == ("precious", False)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("mode", [0o600, 0o440, 0o664])
def test_a_file_that_is_replaced_keeps_its_permissions(way, mode, tmp_path, monkeypatch):
    while_made = []
    publish = files.publish

    def watched(name, path):
        while_made.append(mode_of(name))
        publish(name, path)

    monkeypatch.setattr(files, "publish", watched)
    monkeypatch.setattr(shared_file, "publish", watched)
    path = tmp_path / "out"
    path.write_text("old")
    path.chmod(mode)
    WAYS[way](path)
    assert path.read_bytes() != b"old"
    assert (while_made, mode_of(path)) == ([0o600], mode)
    assert list(tmp_path.iterdir()) == [path]


def test_a_new_file_has_the_permissions_of_any_other(tmp_path):
    (tmp_path / "other").touch()
    for number, way in enumerate(WAYS.values()):
        way(tmp_path / str(number))
        assert mode_of(tmp_path / str(number)) == mode_of(tmp_path / "other")


def test_the_longest_name_can_be_written_to(tmp_path):
    for path in (tmp_path / ("a" * 255), tmp_path / ("ä" * 127)):
        for way in WAYS.values():
            way(path)
        assert list(tmp_path.iterdir()) == [path]
        path.unlink()
        with Journal(path) as journal:
            journal.rewrite([b"one"])
            journal.remove()
        assert list(tmp_path.iterdir()) == []


def test_one_module_makes_and_publishes_temporary_files():
    found = {
        path.name
        for path in Path(paceline.__file__).parent.rglob("*.py")
        for call in ("os.replace(", "os.rename(", "O_EXCL", "urandom(")
        if call in path.read_text(encoding="utf-8")
    }
    assert found == {Path(files.__file__).name}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("mode", [0o600, None])
def test_a_link_stays_and_its_target_is_replaced(way, mode, tmp_path):
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    target, link, further = folder / "target", tmp_path / "link", tmp_path / "further"
    link.symlink_to("elsewhere/target")
    further.symlink_to("link")
    if mode is not None:
        target.write_text("old")
        target.chmod(mode)
    WAYS[way](further)
    assert os.readlink(link) == "elsewhere/target"
    assert os.readlink(further) == "link"
    assert target.read_bytes() != b"old"
    assert mode in (None, mode_of(target))
    assert set(tmp_path.rglob("*")) == {folder, target, link, further}


def test_an_error_leaves_links_and_their_targets_as_they_were(tmp_path):
    target, link, dangling = (tmp_path / name for name in ("target", "link", "dangling"))
    target.write_text("old")
    link.symlink_to(target)
    dangling.symlink_to(tmp_path / "none")
    with pytest.raises(KeyError), files.new_files([link, dangling], overwrite=True):
        raise KeyError
    assert target.read_text() == "old"
    assert set(tmp_path.iterdir()) == {target, link, dangling}
    dangling.unlink()
    dangling.symlink_to(tmp_path / "no" / "file")
    with pytest.raises(FileNotFoundError, match="does not exist"):
        _written(files.new_file(dangling, overwrite=True))


@pytest.fixture(params=["fifo", "device", "socket", "link"])
def special(request, tmp_path):
    path = tmp_path / "special"
    if request.param == "fifo":
        os.mkfifo(path)
    elif request.param == "device":
        try:
            os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        except PermissionError:  # in this case, this file cannot be replaced either
            path = Path(os.devnull)
    elif request.param == "socket":
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(os.path.relpath(path))
    else:
        os.mkfifo(tmp_path / "fifo")
        path.symlink_to("fifo")
    return path


@pytest.mark.parametrize("way", WAYS)
def test_what_is_no_regular_file_is_refused_by_name(way, special):
    before = special.lstat()
    with pytest.raises(FileExistsError, match=f"{special} is a pipe or device"):
        files.check_output(special, overwrite=True)
    with pytest.raises(FileExistsError, match=f"{special} is a pipe or device"):
        WAYS[way](special)
    assert (special.lstat().st_mode, special.lstat().st_ino) == (before.st_mode, before.st_ino)


#: Script for a user without write permission in the named folder.
WITHOUT_PERMISSION = """
import os
import sys
from paceline._util.files import check_output
if os.geteuid() == 0:
    os.seteuid(65534)
try:
    check_output(sys.argv[1], overwrite=False)
except PermissionError as error:
    print(error)
"""


@pytest.mark.skipif(os.name == "nt", reason="permissions are those of POSIX")
def test_a_folder_that_cannot_be_written_to_is_refused(tmp_path):
    for parent in [tmp_path, *tmp_path.parents]:
        if not parent.stat().st_mode & 0o001:
            parent.chmod(parent.stat().st_mode | 0o011)
    folder = tmp_path / "read-only"
    folder.mkdir()
    folder.chmod(0o555)
    command = [sys.executable, "-c", WITHOUT_PERMISSION, folder / "a.csv"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    sentence = f"{folder}/a.csv: the folder {folder} cannot be written to: name a file in another"
    assert done.stdout == f"{sentence}\n"


def test_a_command_is_refused_such_a_folder_before_the_work(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    # The check runs before any input is read: the inputs do not exist.
    assert main(["rmsd", "no.psf", "no.dcd", "-o", str(tmp_path / "a.csv")]) == 2
    assert f"the folder {tmp_path} cannot be written to" in capsys.readouterr().err


def test_an_error_names_the_file_where_the_folder_is_read_only(tmp_path, monkeypatch):
    def refuse(path, *_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), os.fspath(path))

    monkeypatch.setattr(os, "open", refuse)
    monkeypatch.setattr(os, "unlink", refuse)
    with pytest.raises(OSError, match="Read-only") as caught, files.new_file(tmp_path / "a.csv"):
        pass
    assert caught.value.filename == str(tmp_path / "a.csv")


def test_a_checkpoint_or_a_growing_file_is_no_pipe_or_device(special):
    with pytest.raises(FileExistsError, match=f"{special} is a pipe or device"):
        Checkpoint(special)
    with pytest.raises(FileExistsError, match=f"{special} is a pipe or device"):
        shared_file.Output.existing(str(special))


def test_a_checkpoint_that_is_a_link_is_rewritten_and_deleted_where_it_is(tmp_path):
    target, link = tmp_path / "target", tmp_path / "link"
    link.symlink_to(target)
    with Journal(link) as journal:
        journal.append(b"first")
        journal.rewrite([b"second"])
        assert link.is_symlink()
        assert set(tmp_path.iterdir()) == {link, target}
        journal.remove()
    assert list(tmp_path.iterdir()) == [link]
    assert link.is_symlink()


def test_commands_replace_no_pipe(adk, tmp_path, capsys):
    for option, name in (("-o", "a.csv"), ("--plot", "a.png"), ("--report", "a.html")):
        os.mkfifo(tmp_path / name)
        given = [option, str(tmp_path / name), "--overwrite"]
        assert main(["rmsd", *map(str, adk), *given]) == 2
        assert f"{name} is a pipe or device" in capsys.readouterr().err
    os.mkfifo(tmp_path / "a.xtc")
    assert main(["convert", str(adk.trajectory), str(tmp_path / "a.xtc"), "--overwrite"]) == 2
    assert all(path.is_fifo() for path in tmp_path.iterdir())


@pytest.fixture
def odd(adk_xtc, tmp_path):
    """A system in a folder, and with file names, that are not UTF-8."""
    folder = tmp_path / os.fsdecode(b"runs \xe9")
    try:
        folder.mkdir()
    except OSError:
        pytest.skip("this file system has names of Unicode only")
    trajectory = folder / os.fsdecode(b"md\xff.xtc")
    shutil.copy(adk_xtc.trajectory, trajectory)
    topology = folder / f"topology{Path(adk_xtc.topology).suffix}"
    shutil.copy(adk_xtc.topology, topology)
    return topology, trajectory


def test_names_that_are_not_utf8_end_no_run(odd, tmp_path):
    atoms = paceline.Universe(*map(str, odd)).select_atoms("name CA")
    rmsd = RMSD(atoms).run(backend="serial", checkpoint=tmp_path / "checkpoint")
    for ending in ("csv", "tsv", "npz"):
        rmsd.results.save(tmp_path / f"a.{ending}")
    for ending in ("html", "png", "svg"):
        rmsd.timings.report(tmp_path / f"report.{ending}")
    for ending in ("csv", "tsv"):
        assert "runs \\udce9/md\\udcff.xtc" in (tmp_path / f"a.{ending}").read_text("utf-8")
    assert "md\\udcff.xtc" in (tmp_path / "report.html").read_text("utf-8")
    rmsd.timings.to_csv(tmp_path / "timings.csv")
    assert Timings.from_csv(tmp_path / "timings.csv").trajectory == str(odd[1])
    for ending in ("h5md", "xtc", "trr", "dcd", "nc"):
        path = odd[1].with_suffix(f".{ending}.{ending}")
        paceline.Write(atoms, path).run(stop=3)
        assert path.exists()
    with h5py.File(odd[1].with_suffix(".h5md.h5md")) as h5:
        origin = {name: one[()] for name, one in h5["parameters/origin"].items()}
    assert b"md\\udcff.xtc" in origin["trajectory"]


@pytest.mark.parametrize(
    "command", [("info",), ("info", "--tsv"), ("index",), ("validate",), ("split", "-n", "2")]
)
def test_commands_print_names_that_are_not_utf8_as_they_are(command, odd):
    strict = {**os.environ, "PYTHONIOENCODING": "utf-8:strict"}  # as in most locales
    main = "import sys; from paceline.cli import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", main, command[0], odd[1], *command[1:]],
        env=strict,
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr
    assert command[0] == "validate" or os.fsencode(odd[1].stem) in done.stdout


def test_a_command_with_names_that_are_not_utf8_writes_all_it_is_asked_for(odd, tmp_path):
    outputs = {
        option: tmp_path / name
        for option, name in (("-o", "a.csv"), ("--plot", "a.png"), ("--report", "a.html"))
    }
    given = [str(word) for pair in outputs.items() for word in pair]
    checkpoint = tmp_path / "checkpoint"
    assert main(["rmsd", *map(str, odd), *given, "--checkpoint", str(checkpoint)]) == 0
    assert all(path.exists() for path in outputs.values())
    assert not checkpoint.exists()
