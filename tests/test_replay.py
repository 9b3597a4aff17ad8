"""Tests of `paceline replay`: every changed digit of a result is found, and the reason is named."""

import errno
import hashlib
import json
import random
import re
import shlex
import shutil
import subprocess
import sys
import tracemalloc
from datetime import datetime
from pathlib import Path
from urllib.parse import unquote, urlsplit

import MDAnalysis
import numpy as np
import pytest
from helpers.analyses import ANALYSES
from MDAnalysisTests.datafiles import DCD2

import paceline
from paceline import transform
from paceline.analysis import crate as crate_module
from paceline.analysis import saved_table_format
from paceline.analysis.battery import Battery
from paceline.analysis.compare_recomputed_results import ResultFile, compare
from paceline.analysis.groups import SelectedAtoms
from paceline.analysis.recorded_call import _pack, unpack
from paceline.analysis.repeat_recorded_call import RepeatedCall
from paceline.analysis.rms import RMSD, RMSF
from paceline.cli import main, replay_saved_results
from paceline.errors import UnsupportedError

#: Analyses of `ANALYSES` that compute with functions of the tests.
OWN_CODE = {"Contacts by a function", "Correlation", "TimeSeries with a halo", "ToyExtent"}
#: Arguments of commands, and the ending of their results.
COMMANDS = {
    "rmsd": (["--select", "name CA and resid 10:50", "--group", "resid 1:9"], ".csv"),
    "rmsf": (["--select", "name CA and not resname GLY"], ".tsv"),
    "gyration": (["--select", "protein and not name 'H*'"], ".xvg"),
    "distances": (["--select", "index 0:9", "--select-2", "index 30:39"], ".npz"),
}


@pytest.fixture(scope="module")
def project(adk, tmp_path_factory):
    """A folder with a topology, a trajectory, and results of commands that ran there."""
    folder = tmp_path_factory.mktemp("project")
    shutil.copy(adk.topology, folder / "adk.psf")
    shutil.copy(adk.trajectory, folder / "adk.dcd")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name, (options, ending) in COMMANDS.items():
            files = ["adk.psf", "adk.dcd", "-b", "0.01ns", "-e", "40ps"]
            assert main([name, *files, *options, "-o", f"{name}{ending}"]) == 0
    return folder


@pytest.fixture
def replay(capsys):
    """Return a function that runs the command, and returns its exit status and its JSON."""

    def run(*arguments):
        capsys.readouterr()
        status = main(["replay", *map(str, arguments), "--json"])
        return status, json.loads(capsys.readouterr().out)

    return run


def results_of(project):
    return [project / f"{name}{ending}" for name, (_, ending) in COMMANDS.items()]


def with_own_digest(text):
    """Give a changed table the SHA-256 that fits, as a forger would."""
    _, rest = text.split("\n", 1)
    return f"# {saved_table_format.LINES}: {hashlib.sha256(rest.encode()).hexdigest()}\n{rest}"


def test_a_result_names_what_made_it(project):
    facts = ResultFile.read(project / "rmsd.csv").facts
    digest = hashlib.sha256((project / "adk.psf").read_bytes()).hexdigest()
    assert facts["topology sha256"] == digest
    assert facts["fingerprint"]
    assert len(facts["build"]) == 16
    assert facts["paceline"] == paceline.__version__
    assert facts["numpy"] == np.__version__
    assert facts["processor"].endswith(("AVX-512", "AVX2", "SSE2", "NEON", "base instructions"))
    assert facts["folder"] == str(project)
    assert facts["command"].startswith("paceline rmsd adk.psf adk.dcd -b 0.01ns")
    assert "call" not in facts
    atoms = paceline.Universe(project / "adk.psf").select_atoms("name CA and resid 10:50")
    of_atoms = hashlib.sha256(atoms.indices.astype("<i8").tobytes()).hexdigest()[:16]
    assert facts["atoms"].endswith(f"…, digest {of_atoms}")


def test_the_first_line_is_the_digest_of_all_others(project):
    first, rest = (project / "rmsf.tsv").read_bytes().split(b"\n", 1)
    assert first.decode() == f"# {saved_table_format.LINES}: {hashlib.sha256(rest).hexdigest()}"


def test_further_files_have_digests(project, monkeypatch, tmp_path, replay):
    monkeypatch.chdir(project)
    reference = tmp_path / "reference structure.gro"
    universe = paceline.Universe("adk.psf", "adk.dcd")
    _ = universe.trajectory[3]
    universe.atoms.write(str(reference))
    output = tmp_path / "rmsd.csv"
    command = ["rmsd", "adk.psf", "adk.dcd", "--ref", str(reference), "-o", str(output)]
    assert main(command) == 0
    digest = hashlib.sha256(reference.read_bytes()).hexdigest()
    assert ResultFile.read(output).facts[f"sha256 of file {reference}"] == digest
    assert replay(output)[0] == 0
    universe.atoms.translate([1, 2, 3]).write(str(reference))
    _ = universe.trajectory[9]
    universe.atoms.write(str(reference))
    status, found = replay(output)
    assert status == 1
    assert found["results"][0]["reasons"] == [f"{reference} has changed since (sha256)"]


def test_unchanged_results_are_equal(project, replay, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, found = replay(*results_of(project))
    assert status == 0
    assert {one["verdict"] for one in found["results"]} == {"equal"}
    assert not any(one["reasons"] for one in found["results"])
    assert found["equal"] == len(COMMANDS)
    assert not found["different"]
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["rmsd", "rmsf", "gyration"])
def test_any_changed_digit_is_found(name, project, tmp_path):
    # The unchanged file stands for the computed one: they are equal (the test above).
    path = project / f"{name}{COMMANDS[name][1]}"
    text, computed = path.read_text("utf-8"), ResultFile.read(path)
    changed = tmp_path / path.name
    begin = text.index("\n") + 1
    places = [found.start() for found in re.finditer("[0-9]", text) if found.start() >= begin]
    for place in random.Random(1).sample(places, 150):
        other = str((int(text[place]) + 1) % 10)
        edited = f"{text[:place]}{other}{text[place + 1 :]}"
        changed.write_text(edited, "utf-8")
        check = compare(ResultFile.read(changed), computed)
        assert check.verdict == "differs"
        assert "edited" in check.reasons[0]
        # With a fitting digest, results and parameters still differ from the computed ones.
        changed.write_text(with_own_digest(edited), "utf-8")
        saved = ResultFile.read(changed)
        assert saved.is_intact
        line = text[text.rfind("\n", 0, place) + 1 : text.find("\n", place)]
        about = ("# paceline", "# build", "# python", "# numpy", "# MDAn", "# command", "# folder")
        if line.startswith((*about, "# processor")):
            continue
        check = compare(saved, computed)
        assert check.verdict == "differs"
        # A digit in the name of a fact changes two facts.
        assert check.n_differences in (1, 2), line


def test_any_changed_number_of_an_array_is_found(project, tmp_path):
    path = project / "distances.npz"
    computed = ResultFile.read(path)
    with np.load(path) as saved:
        arrays = dict(saved)
    random_numbers = np.random.default_rng(1)
    for name in set(arrays) - {"provenance"}:
        for _ in range(10):
            changed = {key: np.array(one) for key, one in arrays.items()}
            flat = changed[name].reshape(-1).view(np.uint8)
            place = random_numbers.integers(len(flat))
            flat[place] ^= 1
            np.savez(tmp_path / "changed.npz", **changed)
            check = compare(ResultFile.read(tmp_path / "changed.npz"), computed)
            assert check.verdict == "differs"
            assert check.n_differences == 1
            assert check.differences[0].place.startswith(f"{name}[")


def test_a_changed_number_is_named(project, tmp_path, replay):
    lines = (project / "rmsd.csv").read_text("utf-8").splitlines()
    row = next(k for k, line in enumerate(lines) if line.startswith("12,"))
    cells = lines[row].split(",")
    wrong = cells[2][:-1] + str((int(cells[2][-1]) + 5) % 10)
    lines[row] = ",".join([*cells[:2], wrong, *cells[3:]])
    path = project / "edited.csv"
    path.write_text("\n".join(lines) + "\n", "utf-8")
    status, found = replay(path, project / "rmsd.csv")
    assert status == 1
    assert (found["equal"], found["different"]) == (1, 1)
    [one] = found["results"][0]["differences"]
    assert one == {"place": "row 4, RMSD (Å)", "file": wrong, "computed": cells[2]}
    assert found["results"][0]["reasons"] == [
        "the file was edited after it was written (its own SHA-256 does not fit): nothing that "
        "made it has changed"
    ]


def test_differences_of_large_arrays_are_counted(tmp_path):
    saved = np.linspace(0, 1, 3_000_000).reshape(1000, 3000)
    computed = saved + 1e-9
    computed[700, 5] += 0.25
    results = []
    for values in (saved, computed):
        arrays = {"a": values, "counts": np.array([values is saved])}
        facts = np.array(saved_table_format.with_digest(["x: 1"], arrays))
        np.savez(tmp_path / "a.npz", **arrays, provenance=facts)
        results.append(ResultFile.read(tmp_path / "a.npz"))
    tracemalloc.start()
    check = compare(*results)
    assert tracemalloc.get_traced_memory()[1] < 6 * saved.nbytes
    tracemalloc.stop()
    assert check.n_differences == saved.size + 1
    assert [one.place for one in check.differences] == [f"a[0, {k}]" for k in range(10)]
    assert check.largest.place == "a[700, 5]"
    assert check.largest.deviation == pytest.approx(0.25, rel=1e-3)


@pytest.mark.parametrize("key", ["topology", "topology sha256", "trajectory", "fingerprint"])
def test_a_false_claim_about_a_file_is_a_difference(key, project, replay):
    path, text = project / "forged.csv", (project / "rmsd.csv").read_text("utf-8")
    value = ResultFile.read(project / "rmsd.csv").facts[key]
    other = value[:-1] + ("0" if value[-1] != "0" else "1")
    path.write_text(with_own_digest(text.replace(f"# {key}: {value}", f"# {key}: {other}")))
    status, found = replay(path)
    assert status == 1
    [one] = found["results"][0]["differences"]
    assert one == {"place": f"line {key!r}", "file": other, "computed": value}
    # Without the line, nothing is claimed about the file.
    path.write_text(with_own_digest(text.replace(f"# {key}: {value}\n", "")))
    assert replay(path)[0] == 1


def test_a_file_that_the_command_does_not_name_is_a_difference(project, tmp_path, replay):
    """A true digest of a file is a false claim if the command did not read the file."""
    path, text = project / "claimed.csv", (project / "rmsd.csv").read_text("utf-8")
    other = tmp_path / "other.gro"
    other.write_text("never read")
    for name in (other, "adk.dcd"):
        digest = hashlib.sha256((project / name).read_bytes()).hexdigest()
        claim = f"# sha256 of file {name}: {digest}\n# command:"
        path.write_text(with_own_digest(text.replace("# command:", claim)), "utf-8")
        status, found = replay(path)
        assert status == 1
        [one] = found["results"][0]["differences"]
        assert one["place"] == f"line 'sha256 of file {name}'"
        assert (one["file"], one["computed"]) == (digest, "no line")


def test_a_file_that_changes_no_number_has_a_digest(project, tmp_path, replay, monkeypatch):
    """The style of a figure is not read again, but its digest is compared."""
    monkeypatch.chdir(project)
    style, output = tmp_path / "own.mplstyle", tmp_path / "rmsd.csv"
    style.write_text("lines.linewidth: 3\n")
    figure = ["--plot", str(tmp_path / "rmsd.png"), "--style", str(style)]
    assert main(["rmsd", "adk.psf", "adk.dcd", "-e", "9", *figure, "-o", str(output)]) == 0
    assert f"sha256 of file {style}" in ResultFile.read(output).facts
    assert replay(output)[0] == 0
    style.write_text("lines.linewidth: 4\n")
    status, found = replay(output)
    assert (status, found["results"][0]["reasons"]) == (1, [f"{style} has changed since (sha256)"])


def test_a_trajectory_that_has_grown_is_no_difference(project, tmp_path, replay, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(project / "adk.psf", "adk.psf")
    universe = paceline.Universe("adk.psf", project / "adk.dcd")
    universe.atoms.write("adk.xtc", frames=universe.trajectory[:20])
    assert main(["rmsd", "adk.psf", "adk.xtc", "-e", "20", "-o", "rmsd.csv"]) == 0
    universe.atoms.write("more.xtc", frames=universe.trajectory[20:])
    with open("adk.xtc", "ab") as file:
        file.write(Path("more.xtc").read_bytes())
    status, found = replay("rmsd.csv")
    assert status == 0
    assert found["results"][0]["reasons"] == [
        f"{tmp_path / 'adk.xtc'} has grown since (fingerprint)"
    ]


def test_a_changed_trajectory_is_the_reason(project, tmp_path, replay):
    folder = shutil.copytree(project, tmp_path / "copy")
    universe = paceline.Universe(folder / "adk.psf", folder / "adk.dcd")
    with MDAnalysis.Writer(str(folder / "new.dcd"), len(universe.atoms)) as out:
        for _ in universe.trajectory[::-1]:
            out.write(universe.atoms)
    (folder / "new.dcd").replace(folder / "adk.dcd")
    status, found = replay(folder / "rmsf.tsv")
    assert status == 1
    reasons = found["results"][0]["reasons"]
    assert f"{project / 'adk.dcd'} has changed since (fingerprint)" in reasons
    assert f"files were looked up from the folder {folder}" in reasons


def test_a_touched_trajectory_is_no_difference(project, tmp_path, replay):
    folder = shutil.copytree(project, tmp_path / "copy", copy_function=shutil.copyfile)
    assert replay(folder / "rmsd.csv")[0] == 0


def test_files_of_a_moved_result_are_found(project, tmp_path, replay):
    away, results = tmp_path / "away", tmp_path / "results"
    shutil.copytree(project, away)
    results.mkdir()
    text = (project / "rmsd.csv").read_text("utf-8")
    lost = text.replace(f"{project}", f"{tmp_path / 'lost'}")
    path = results / "rmsd.csv"
    path.write_text(with_own_digest(lost), "utf-8")
    status, found = replay(path)
    assert status == 2
    assert found["not_checked"] == 1
    assert "adk.psf, which does not exist" in found["results"][0]["reasons"][0]
    assert "--files names the folder" in found["results"][0]["reasons"][0]
    status, found = replay(path, "--files", away)
    assert status == 0
    assert f"adk.dcd was found as {away / 'adk.dcd'}" in found["results"][0]["reasons"]


@pytest.mark.parametrize("given", ["/far/away", r"D:\runs of 2020", "file:///far"])
def test_patterns_of_another_machine(given, project, tmp_path, replay, monkeypatch):
    """Two trajectories of equal names are told apart by the last parts of their paths."""
    monkeypatch.chdir(tmp_path)
    for name in ("run1", "run2"):
        Path("here", name).mkdir(parents=True)
        universe = paceline.Universe(project / "adk.psf", project / "adk.dcd")
        frames = universe.trajectory[:9] if name == "run1" else universe.trajectory[20:29]
        universe.atoms.write(f"here/{name}/md.xtc", frames=frames)
    shutil.copy(project / "adk.psf", "here")
    files = [f"{tmp_path}/here/adk.psf", f"{tmp_path}/here/run*/md.xtc"]
    assert main(["rmsd", *files, "-o", "rmsd.csv"]) == 0
    command = f"paceline rmsd --topology={given}/adk.psf -f '{given}/run*/md.xtc' -o rmsd.csv"
    there = given.removeprefix("file://")
    text = Path("rmsd.csv").read_text("utf-8").replace(f"{tmp_path}/here", there)
    if "D:" in given:
        command = command.replace("/", "\\").replace("D:", "'D:", 1).replace("psf", "psf'", 1)
        text = re.sub(r"D:\\[^,\n]*", lambda found: found[0].replace("/", "\\"), text)
    text = re.sub("(?m)^# command: .*", lambda _: f"# command: {command}", text)
    text = re.sub("(?m)^# folder: .*", "# folder: /far/away", text)
    Path("rmsd.csv").write_text(with_own_digest(text), "utf-8")
    assert replay("rmsd.csv")[0] == 2
    status, found = replay("rmsd.csv", "--files", "here")
    assert (status, found["results"][0]["verdict"]) == (0, "equal")
    assert any(f"{tmp_path}/here/run*/md.xtc" in one for one in found["results"][0]["reasons"])
    # Brackets in the name of the folder are no pattern.
    shutil.copytree("here", "copy [of] it")
    status, found = replay("rmsd.csv", "--files", "copy [of] it")
    assert (status, found["results"][0]["differences"]) == (0, [])
    # If one of them has another content, the names are not enough.
    shutil.copy("here/run1/md.xtc", "here/run2/md.xtc")
    assert replay("rmsd.csv", "--files", "here")[0] == 1


@pytest.mark.parametrize("form", ["--topology=adk.psf", "--topology adk.psf", "--topo=adk.psf"])
@pytest.mark.parametrize("ref", ["--ref=start.gro", "--ref start.gro"])
def test_files_are_found_for_every_form_of_an_option(
    form, ref, project, tmp_path, replay, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    away = Path("away")
    away.mkdir()
    for name in ("adk.psf", "adk.dcd"):
        shutil.copy(project / name, name)
    paceline.Universe("adk.psf", "adk.dcd").atoms.write("start.gro")
    words = [*form.split(), *ref.split(), "--trajectory", "adk.dcd", "-e", "9", "-o", "rmsd.csv"]
    assert main(["rmsd", *words]) == 0
    for name in ("adk.psf", "adk.dcd", "start.gro"):
        Path(name).rename(away / name)
    assert replay("rmsd.csv")[0] == 2
    status, found = replay("rmsd.csv", "--files", away)
    assert (status, found["results"][0]["differences"]) == (0, [])


def test_another_processor_is_compared_to_a_tolerance(project, tmp_path):
    path = project / "rmsd.csv"
    computed = ResultFile.read(path)
    lines = path.read_text("utf-8").splitlines()
    cells = lines[-1].split(",")

    def check(factor):
        cells[2] = repr(float(cells[2]) * factor)
        text = "\n".join([*lines[:-1], ",".join(cells)]) + "\n"
        text = re.sub("(?m)^# processor: .*", "# processor: another one", text)
        (tmp_path / "other.csv").write_text(with_own_digest(text), "utf-8")
        return compare(ResultFile.read(tmp_path / "other.csv"), computed)

    close = check(1 + 1e-9)
    assert close.verdict == "equal within tolerance"
    assert close.is_equal
    assert "1e-06" in close.reasons[-1]
    assert "another one" in close.reasons[0]
    assert check(1 + 1e-3).verdict == "differs"


@pytest.mark.parametrize("ending", [".csv", ".xvg", ".npz"])
def test_frames_times_and_counts_are_equal_on_all_processors(ending, tmp_path):
    """A tolerance of their column would be many frames, because the last ones are large."""
    columns = {
        "frame": np.array([1, 1_000_000]),
        "time (ps)": np.array([10.0, 1e7]),
        "contacts": np.array([1, 2_000_000]),
        "energy (kJ/mol)": np.array([1.5, 4e6]),
    }

    def check(title=None, value=None):
        files = []
        for processor, changed in (("one", {}), ("another", {title: value} if title else {})):
            values = {**columns, **changed}
            facts = ["processor: " + processor, "figure: " + json.dumps({"titles": [*columns]})]
            path = tmp_path / f"{processor}{ending}"
            if ending == ".npz":
                lines = saved_table_format.with_digest(facts, values)
                np.savez(path, **values, provenance=np.array(lines))
            else:
                separator = "," if ending == ".csv" else " "
                rows = [separator.join(values)] * (ending == ".csv")
                numbers = zip(*(one.tolist() for one in values.values()), strict=True)
                rows += [separator.join(map(repr, row)) for row in numbers]
                lines = [*(f"# {one}" for one in facts), *rows]
                path.write_text(with_own_digest("\n".join(["first", *lines, ""])), "utf-8")
            files.append(ResultFile.read(path))
        return compare(*files[::-1]).verdict

    assert check() == "equal"
    assert check("energy (kJ/mol)", np.array([2.5, 4e6])) == "equal within tolerance"
    assert check("frame", np.array([2, 1_000_000])) == "differs"
    assert check("time (ps)", np.array([17.5, 1e7])) == "differs"
    assert check("contacts", np.array([2, 2_000_000])) == "differs"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("rm -rf adk.psf", "which does not compute results: it is not run"),
        ("paceline convert adk.psf adk.dcd out.xtc", "which does not compute results"),
        ("paceline plot rmsd.csv -o x.png", "which does not compute results"),
        ("paceline rmsd adk.psf adk.dcd --no-such-option", "not valid: no option --no-such"),
        ("paceline rmsd adk.psf adk.dcd --help", "the recorded command is not valid"),
        ("paceline rmsd 'adk.psf", "not valid (No closing quotation)"),
    ],
)
def test_other_commands_do_not_run(command, message, project, tmp_path, replay):
    text = (project / "rmsd.csv").read_text("utf-8")
    path = project / "forged.csv"
    path.write_text(with_own_digest(re.sub("(?m)^# command: .*", f"# command: {command}", text)))
    before = sorted(project.iterdir())
    status, found = replay(path)
    assert status == 2
    assert message in found["results"][0]["reasons"][0]
    assert sorted(project.iterdir()) == before


def test_outputs_of_a_command_stay_in_the_temporary_folder(project, tmp_path, replay):
    text = (project / "rmsd.csv").read_text("utf-8")
    victim = tmp_path / "victim.csv"
    victim.write_text("mine")
    more = f"-o {victim} --plot {tmp_path}/a.png --report {tmp_path}/b.html --overwrite"
    more += f" --checkpoint {tmp_path}/c --cache {tmp_path}/d"
    path = project / "forged.csv"
    text = re.sub("(?m)^(# command: .*) -o .*", rf"\1 {more}", text)
    path.write_text(with_own_digest(text), "utf-8")
    assert replay(path)[0] == 0
    assert victim.read_text() == "mine"
    assert [*tmp_path.iterdir()] == [victim]


def test_a_battery_and_its_further_tables(adk, tmp_path, monkeypatch, replay):
    monkeypatch.chdir(tmp_path)
    pca = '[pca]\nselect = "name CA and resid 1-40"\nn_projected = 2\n'
    battery = f'[rmsd]\nselect = "backbone"\n\n{pca}\n[hbonds]\n'
    Path("battery.toml").write_text(battery)
    files = ["-s", str(adk.topology), "-f", str(adk.trajectory), "-e", "20"]
    assert main(["run", "battery.toml", *files, "-o", "results"]) == 0
    status, found = replay("results")
    names = {Path(one["name"]).name for one in found["results"]}
    assert status == 0
    assert found["equal"] == len(names)
    assert {"rmsd.csv", "pca.npz", "pca-projections.csv", "hbonds-frequent.csv"} <= names
    path = Path("results/pca-projections.csv")
    path.write_text(re.sub(r"(?m)^5,(.*)\d$", r"5,\g<1>x", path.read_text("utf-8")), "utf-8")
    status, found = replay("results", "--sample", "3")
    assert len(found["results"]) == 3
    assert replay(path)[0] == 1
    path.unlink()
    Path("results/hbonds.csv").unlink()
    status, found = replay("results")
    missing = {one["name"]: one for one in found["results"] if one["verdict"] == "differs"}
    assert status == 1
    assert set(missing) == {"results/pca-projections.csv", "results/hbonds.csv"}
    assert "this table is missing" in missing["results/hbonds.csv"]["reasons"][0]
    assert replay("results/rmsd.csv")[0] == 0
    Path("battery.toml").write_text(battery.replace("backbone", "name CA"))
    status, found = replay("results/rmsd.csv")
    assert status == 1
    assert "battery.toml has changed since (sha256)" in found["results"][0]["reasons"]


def test_tables_are_missing_only_in_folders_of_batteries(adk, tmp_path, monkeypatch, replay):
    monkeypatch.chdir(tmp_path)
    Path("battery.toml").write_text('[rmsd]\nselect = "name CA"\n\n[gyration]\n[rmsf]\n')
    files = ["-s", str(adk.topology), "-f", str(adk.trajectory), "-e", "3"]
    assert main(["run", "battery.toml", *files, "-o", "deposit/results"]) == 0
    Path("deposit/paper").mkdir()
    shutil.copy("deposit/results/rmsd.csv", "deposit/paper")
    status, found = replay("deposit")
    assert (status, found["equal"]) == (0, 4)
    # The folder of a battery is known by its name, or by the file of the battery in it.
    Path("deposit/results/gyration.csv").unlink()
    Path("deposit/results/battery.toml").unlink()
    assert replay("deposit")[1]["different"] == 1
    Path("deposit/results").rename("deposit/old")
    assert replay("deposit")[0] == 0
    shutil.copy("battery.toml", "deposit/old")
    status, found = replay("deposit")
    missing = [one for one in found["results"] if one["verdict"] == "differs"]
    assert [one["name"] for one in missing] == ["deposit/old/gyration.csv"]
    # Another version may write other tables.
    for path in Path("deposit").rglob("*.csv"):
        text = path.read_text("utf-8").replace(
            f"# paceline: {paceline.__version__}", "# paceline: 0"
        )
        path.write_text(with_own_digest(text), "utf-8")
    status, found = replay("deposit")
    assert status == 0
    reasons = [reason for one in found["results"] for reason in one["reasons"]]
    assert any("missing tables were not looked for" in one for one in reasons)


def test_a_battery_that_writes_other_files_does_not_run(adk, tmp_path, monkeypatch, replay):
    monkeypatch.chdir(tmp_path)
    Path("battery.toml").write_text('[rmsd]\nselect = "name CA"\n')
    files = ["-s", str(adk.topology), "-f", str(adk.trajectory), "-e", "3"]
    assert main(["run", "battery.toml", *files, "-o", "results"]) == 0
    victim = tmp_path / "victim.dcd"
    victim.write_text("mine")
    forged = f'[align]\nanalysis = "align.AlignTraj"\nfilename = "{victim}"\nforce = true\n'
    forged += 'reference = "all"\n[rmsd]\nselect = "name CA"\n'
    Path("battery.toml").write_text(forged)
    status, found = replay("results")
    assert status == 2
    assert "writes" in found["results"][0]["reasons"][0]
    assert victim.read_text() == "mine"


def test_further_tables_of_a_command(project, monkeypatch, tmp_path, replay):
    monkeypatch.chdir(project)
    tables = ["--frequent", str(tmp_path / "f.tsv"), "--correlation", str(tmp_path / "c.csv")]
    command = ["hbonds", "adk.psf", "adk.dcd", "-e", "9", "--tau-max", "4", *tables]
    assert main([*command, "-o", str(tmp_path / "all.npz")]) == 0
    status, found = replay(tmp_path)
    assert status == 0
    assert found["equal"] == 3
    aligned = ["align", "adk.psf", "adk.dcd", "-e", "9", "-o", str(tmp_path / "fitted.dcd")]
    assert main([*aligned, "--rmsd", str(tmp_path / "rmsd.csv")]) == 0
    assert replay(tmp_path / "rmsd.csv")[0] == 0


def test_a_growing_trajectory(project, monkeypatch, tmp_path, replay):
    monkeypatch.chdir(project)
    output = tmp_path / "rg.csv"
    command = ["gyration", "adk.psf", "adk.dcd", "--follow", "--idle", "0.1s", "-o", str(output)]
    assert main(command) == 0
    assert replay(output)[0] == 0


def test_replicas(adk, tmp_path, monkeypatch, replay):
    monkeypatch.chdir(tmp_path)
    Path("battery.toml").write_text('[rmsd]\nselect = "name CA"\n\n[rmsf]\n')
    for name, path in {"a.dcd": adk.trajectory, "b.dcd": DCD2}.items():
        shutil.copy(path, name)
    command = ["run", "battery.toml", str(adk.topology), "a.dcd", "b.dcd", "--replicas", "-e", "9"]
    assert main([*command, "--names", "wt", "-o", "out/of"]) == 0
    status, found = replay("out")
    names = {one["name"] for one in found["results"]}
    assert status == 0
    assert {"out/of/means.csv", "out/of/wt/2/rmsd.csv", "out/of/rmsf-profile.csv"} <= names
    path = Path("out/of/means.csv")
    text = path.read_text("utf-8")
    path.write_text(text[:-2] + "x\n", "utf-8")
    assert replay(path)[0] == 1
    path.write_text(with_own_digest(text.replace("a.dcd", "c.dcd", 1)), "utf-8")
    status, found = replay(path)
    assert (status, found["results"][0]["differences"][0]["place"]) == (1, "line 'wt 1'")
    path.write_text(text, "utf-8")
    shutil.rmtree("out/of/wt/2")
    status, found = replay("out")
    missing = {one["name"] for one in found["results"] if one["verdict"] == "differs"}
    assert status == 1
    assert missing == {"out/of/wt/2/rmsd.csv", "out/of/wt/2/rmsf.csv"}
    assert replay("out/of/wt/1")[0] == 0


def test_a_survey_of_frames_that_were_chosen_by_time(project, tmp_path, replay):
    pytest.importorskip("pyarrow")
    catalogue = project / "catalogue.csv"
    catalogue.write_text("id,topology,trajectory\na,adk.psf,adk.dcd\n")
    battery = tmp_path / "battery.toml"
    battery.write_text('[gyration]\nselect = "name CA"\n')
    words = [str(catalogue), "--battery", str(battery), "--backend", "serial", "--series"]
    output = tmp_path / "tables"
    times = ["-b", "10ps", "-e", "60ps", "-dt", "2ps"]
    assert main(["survey", *words, *times, "--no-page", "-o", str(output)]) == 0
    assert replay(output)[0] == 0
    manifest = output / "survey.json"
    text = manifest.read_text("utf-8")
    for before, after, expected in (
        ("60.0", "58.0", 1),
        ("_FramesInTime(", "_FramesInTime(None, ", 2),
        ("_FramesInTime", "<function f>", 2),
        ("step=1", "step=__import__('os').getpid()", 2),
    ):
        assert before in text
        manifest.write_text(text.replace(before, after), "utf-8")
        assert replay(output)[0] == expected


def test_energies_and_surfaces(project, tmp_path, monkeypatch, replay):
    monkeypatch.chdir(project)
    energies = tmp_path / "energy.xvg"
    head = '@ xaxis label "Time (ps)"\n@ yaxis label "(kJ/mol)"\n@ s0 legend "Potential"\n'
    energies.write_text(head + "".join(f"{k} {-100.5 - k % 5}\n" for k in range(50)))
    output = tmp_path / "energy.csv"
    assert main(["energy", str(energies), "--terms", "potential", "-o", str(output)]) == 0
    surface = tmp_path / "surface.csv"
    tables = ["rmsd.csv", "rmsd.csv", "--y", "RMSD of"]
    assert main(["surface", *tables, "--bins", "5", "-o", str(surface)]) == 0
    assert replay(output, surface)[0] == 0
    energies.write_text(energies.read_text().replace("-100.5", "-101.25"))
    status, found = replay(output)
    assert status == 1
    assert f"{energies} has changed since (files sha256)" in found["results"][0]["reasons"]


def test_a_folder_without_results(tmp_path, run):
    status, _, said = run("replay", str(tmp_path))
    assert status == 2
    assert "expected results of paceline, found none in this folder" in said
    (tmp_path / "a.txt").write_text("1")
    status, _, said = run("replay", str(tmp_path / "a.txt"))
    assert status == 2
    assert "expected a result as .csv" in said
    assert run("replay", str(tmp_path / "b.csv"))[0] == 2


def test_a_table_of_another_program(tmp_path, replay):
    (tmp_path / "a.csv").write_text("frame,RMSD\n1,2\n")
    (tmp_path / "b.npz").write_bytes(b"PK\x03\x04 not a zip file")
    status, found = replay(tmp_path)
    assert status == 2
    first, second = (one["reasons"][0] for one in found["results"])
    assert "the file names neither a command nor a call" in first
    assert "found a damaged or other file" in second


@pytest.mark.parametrize("name", ANALYSES)
def test_results_of_scripts_are_replayed(name, adk_xtc, tmp_path):
    universe = paceline.Universe(*adk_xtc)
    one = ANALYSES[name].make(universe).run(stop=20)
    path = tmp_path / f"result{'.npz' if one.results.table is None else '.csv'}"
    one.results.save(path)
    saved = ResultFile.read(path)
    if name in OWN_CODE:
        with pytest.raises(UnsupportedError, match=r"is not recorded, because .*(script|function)"):
            RepeatedCall(saved.facts, str)
        return
    again = tmp_path / f"again{path.suffix}"
    RepeatedCall(saved.facts, str).results().save(again)
    check = compare(saved, ResultFile.read(again))
    assert check.verdict == "equal", check


def test_a_battery_of_a_script_is_replayed(adk, tmp_path, replay):
    battery = Battery({"rmsd": {"select": "name CA"}, "rmsf": {}}, paceline.Universe(*adk))
    battery.run(step=20).save(tmp_path / "out")
    # A paceline.Universe's analysis may also be made by keywords alone.
    alone = RMSF(atomgroup=paceline.Universe(*adk).atoms).run(step=20)
    alone.results.save(tmp_path / "out" / "alone.csv")
    status, found = replay(tmp_path / "out")
    names = sorted(Path(one["name"]).name for one in found["results"])
    assert (status, names) == (0, ["alone.csv", "rmsd.csv", "rmsf.csv"])
    assert {one["verdict"] for one in found["results"]} == {"equal"}


def test_transformations_and_references_of_scripts(adk, adk_in_water, tmp_path, replay):
    wet, dry = paceline.Universe(*adk_in_water), paceline.Universe(*adk)
    ca = "protein and name CA"
    _ = dry.trajectory[5]
    given = [transform.unwrap(together=wet.select_atoms("protein")), transform.fit(ca)]
    RMSD(wet.select_atoms(ca)[::2]).run(transforms=given, frames=[1, 4, 5]).results.save(
        tmp_path / "wet.csv"
    )
    still = paceline.Universe(*adk)
    RMSD(dry.atoms, still, select=ca, ref_frame=3).run(step=7).results.save(tmp_path / "dry.npz")
    SelectedAtoms(dry.select_atoms("name CA", "around 5 resid 30", updating=True)).run(
        stop=5
    ).results.save(tmp_path / "changing.csv")
    assert replay(tmp_path)[0] == 0


def test_the_results_of_the_demonstration(tmp_path, replay):
    demo = Path(__file__).parents[1] / "examples" / "demo.py"
    command = [sys.executable, "-W", "ignore", str(demo), str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True)
    status, found = replay(tmp_path)
    assert status == 0
    assert found["equal"] == 2


def test_a_script_that_changes_masses_is_not_called_equal(adk, tmp_path, replay):
    universe = paceline.Universe(*adk)
    universe.atoms.masses *= np.linspace(1, 2, len(universe.atoms))
    RMSD(universe.atoms, weights="mass").run(stop=3).results.save(tmp_path / "rmsd.csv")
    status, found = replay(tmp_path)
    assert status == 1
    assert "the script changed the system in another way" in found["results"][0]["reasons"][0]


def scripted(project, folder):
    """Compute a result in a script that runs in the folder of its files, with relative names."""
    folder.mkdir()
    shutil.copy(project / "adk.psf", folder)
    shutil.copy(project / "adk.dcd", folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        universe = paceline.Universe("adk.psf", "adk.dcd")
        RMSD(universe.select_atoms("name CA")).run(stop=5).results.save("rmsd.csv")
    return folder / "rmsd.csv"


def other_files(project, folder):
    """Write files of the same names with other content."""
    folder.mkdir()
    universe = paceline.Universe(project / "adk.psf", project / "adk.dcd")
    universe.atoms.write(f"{folder}/adk.dcd", frames=universe.trajectory[::-1])
    text = (project / "adk.psf").read_text("utf-8")
    (folder / "adk.psf").write_text(text.replace("12.011", "13.003"), "utf-8")


def test_relative_names_of_scripts_are_compared(project, tmp_path, replay, monkeypatch):
    path = scripted(project, tmp_path / "script")
    monkeypatch.chdir(tmp_path)
    status, found = replay(path)
    assert (status, found["results"][0]["reasons"]) == (0, [])
    text = path.read_text("utf-8")
    path.write_text(with_own_digest(text.replace("topology: adk", "topology: false/adk")), "utf-8")
    status, found = replay(path)
    assert status == 1
    [one] = found["results"][0]["differences"]
    assert (one["place"], one["file"]) == ("line 'topology'", "false/adk.psf")
    # The folder of the script, which no other line names, may be one that was moved.
    lost = text.replace(f"trajectory: {path.parent}", "trajectory: /lost")
    path.write_text(with_own_digest(lost), "utf-8")
    status, found = replay(path)
    assert status == 0
    assert f"adk.dcd was found as {path.parent / 'adk.dcd'}" in found["results"][0]["reasons"]


def test_only_recorded_names_replace_those_of_moved_files():
    saved = {"topology": "a.pdb", "unit": "kcal/mol", "found": "3/4 of frames of /old/a.xtc"}
    moved = [{"/new/a.pdb": "a.pdb"}, {"/new/a.pdb": "/old/a.pdb", "/new/a.xtc": "/old/a.xtc"}]
    now = {"topology": "/new/a.pdb", "unit": "kcal/mol", "found": "3/4 of frames of /new/a.xtc"}

    def check(**changed):
        files = (ResultFile(Path("a.csv"), one, True, []) for one in (saved, {**now, **changed}))
        return [one.place for one in compare(*files, moved=moved).differences]

    assert check() == []
    assert check(unit="kJ/mol") == ["line 'unit'"]
    assert check(found="1/4 of frames of /new/a.xtc") == ["line 'found'"]
    assert check(topology="/else/a.pdb") == ["line 'topology'"]


def test_the_given_folder_precedes_the_current_one(project, tmp_path, replay, monkeypatch):
    path = scripted(project, tmp_path / "script")
    other_files(project, tmp_path / "others")
    archive, result = tmp_path / "archive", tmp_path / "alone" / "rmsd.csv"
    path.parent.rename(archive)
    result.parent.mkdir()
    (archive / "rmsd.csv").rename(result)
    monkeypatch.chdir(tmp_path / "others")
    status, found = replay(result)
    assert status == 1
    assert any("has changed since" in one for one in found["results"][0]["reasons"])
    status, found = replay(result, "--files", archive)
    assert (status, found["results"][0]["verdict"]) == (0, "equal")
    assert f"adk.psf was found as {archive / 'adk.psf'}" in found["results"][0]["reasons"]
    # Of files with equal names, the one that has the recorded content is chosen.
    monkeypatch.chdir(archive)
    assert replay(result, "--files", tmp_path / "others")[0] == 0


def test_systems_that_are_not_recorded(adk, tmp_path, replay):
    dry = paceline.Universe(*adk)
    positions = dry.trajectory.timeseries(order="fac")[:5]
    memory = paceline.Universe(str(adk.topology), positions)
    RMSF(memory.select_atoms("name CA")).run().results.save(tmp_path / "memory.csv")
    status, found = replay(tmp_path)
    assert status == 2
    assert "the system is in memory" in found["results"][0]["reasons"][0]


@pytest.mark.parametrize(
    "numbers",
    [[5], [3, 2, 1], [4, 7, 10], [1, 2, 3, 9, 11], [*range(0, 900, 7), 5, 5, 2**40], [0]],
)
def test_indices_are_recorded_exactly(numbers):
    packed = json.loads(json.dumps(_pack(np.array(numbers))))
    assert unpack(packed).tolist() == numbers


@pytest.mark.parametrize(
    "call",
    [
        "no JSON",
        '{"class": "os.system", "args": ["true"]}',
        '{"class": "rms..RMSD"}',
        '{"class": "align.AlignTraj"}',
        '["rms.RMSD"]',
        '{"class": "rms.RMSF", "args": [{"atoms": [0, 1, 999999999999], "system": 0}]}',
        '{"class": "rms.RMSF", "args": [], "options": {}, "systems": [], "frames": {"n": -1}}',
        '{"class": "rms.RMSF", "args": [{"system": 5}], "options": {}, "systems": []}',
    ],
)
def test_damaged_calls_are_errors(call):
    with pytest.raises(UnsupportedError):
        RepeatedCall({"call": call, "analysis": "RMSF"}, str).results()


def test_kinds_of_results_are_a_table():
    assert set(replay_saved_results.KINDS) >= {"file", "folder"}


#: Terms of the context of RO-Crate 1.1 that crates use; tests do not need a network.
CONTEXT = {
    "@vocab": "http://schema.org/",
    "File": "http://schema.org/MediaObject",
    "conformsTo": {"@id": "http://purl.org/dc/terms/conformsTo"},
}
#: Checks of the validator that load the context over the network.
BY_NETWORK = {"ro-crate-1.1_3.1", "ro-crate-1.1_3.2"}


@pytest.fixture(scope="module")
def crate(adk, tmp_path_factory):
    """A folder of results with a crate, and the topology."""
    folder = tmp_path_factory.mktemp("crate")
    (folder / "my battery.toml").write_text('[rmsd]\nselect = "name CA"\n')
    battery, output = str(folder / "my battery.toml"), folder / "results"
    files = [str(adk.topology), str(adk.trajectory)]
    assert main(["run", battery, *files, "-e", "5", "--crate", "-o", str(output)]) == 0
    return output


@pytest.fixture(scope="module")
def survey_crate(adk, tmp_path_factory):
    """A survey with a crate, and the command that made it."""
    pytest.importorskip("pyarrow")
    folder = tmp_path_factory.mktemp("survey")
    (folder / "rmsd.toml").write_text('[rmsd]\nselect = "name CA"\n')
    rows = "id,topology,trajectory\n" + f"adk,{adk.topology},{adk.trajectory}\n"
    shutil.copy(adk.trajectory, folder / "part 1.dcd")
    rows += f"two,{adk.topology},part*.dcd\n"
    (folder / "deposit.csv").write_text(rows + "lost,no.pdb,no.xtc\n")
    words = ["survey", f"{folder / 'deposit.csv'}", "--battery", f"{folder / 'rmsd.toml'}"]
    words += ["-o", f"{folder / 'tables'}", "--backend", "serial", "-e", "5", "--crate"]
    assert main(words) == 0
    return folder / "tables", words


def test_a_crate_of_a_survey_names_each_file_with_its_digest(survey_crate, adk):
    folder, words = survey_crate
    path = folder / "ro-crate-metadata.json"
    entities = {one["@id"]: one for one in json.loads(path.read_text("utf-8"))["@graph"]}
    for name in (adk.topology, adk.trajectory, folder.parent / "part 1.dcd"):
        content = Path(name).read_bytes()
        assert entities[Path(name).as_uri()]["sha256"] == hashlib.sha256(content).hexdigest()
    assert not [name for name in entities if "no.xtc" in name]
    about = json.loads((folder / "survey.json").read_text("utf-8"))
    assert entities["systems.parquet"]["sha256"] == about["tables"]["systems"]["sha256"]
    assert {"survey.json", "index.html"} <= entities.keys()
    assert entities["#run"]["description"] == shlex.join(["paceline", *words])
    # It is kept with what someone has added, unless it describes other tables.
    edited = path.read_text("utf-8").replace("not stated", "CC-BY 4.0")
    path.write_text(edited, "utf-8")
    assert main(words) == 0
    assert path.read_text("utf-8") == edited
    assert main([*words, "--series"]) == 2
    assert path.read_text("utf-8") == edited
    assert main([*words, "--series", "--overwrite"]) == 0
    assert '"series.parquet"' in path.read_text("utf-8")


def test_a_crate_describes_files_inputs_and_command(crate, adk):
    found = json.loads((crate / "ro-crate-metadata.json").read_text("utf-8"))
    entities = {one["@id"]: one for one in found["@graph"]}
    assert len(entities) == len(found["@graph"])
    for name in ("rmsd.csv", "index.html", "battery.toml"):
        content = (crate / name).read_bytes()
        assert entities[name]["sha256"] == hashlib.sha256(content).hexdigest()
        assert entities[name]["contentSize"] == str(len(content))
    action = entities["#run"]
    facts = ResultFile.read(crate / "rmsd.csv").facts
    assert action["description"] == facts["command"]
    assert {one["@id"] for one in action["result"]} <= entities.keys()
    topology = entities[Path(adk.topology).as_uri()]
    assert topology["sha256"] == hashlib.sha256(Path(adk.topology).read_bytes()).hexdigest()
    trajectory = entities[Path(adk.trajectory).as_uri()]
    assert trajectory["identifier"] == f"fingerprint {facts['fingerprint']}"
    assert any(one.endswith("my%20battery.toml") for one in entities)
    assert entities[action["instrument"]["@id"]]["softwareVersion"] == paceline.__version__
    inputs = (adk.topology, adk.trajectory, crate.parent / "my battery.toml")
    latest = max(Path(one).stat().st_mtime for one in inputs)
    date = datetime.fromisoformat(entities["./"]["datePublished"])
    assert date.timestamp() == int(latest)


#: Names of files with characters that URIs lack, or that mean something in them.
ODD_NAMES = (
    *("a, b.dcd", "50% off %41.dcd", "grüße 分子.dcd", 'it\'s "quoted" [1].dcd'),
    *("a#b?c=d&e;f.dcd", "back\\slash ^`{}|<>.dcd"),
)


@pytest.fixture(scope="module")
def odd_crate(adk, tmp_path_factory):
    """Results of several trajectories with odd names, in a folder with an odd name."""
    folder = tmp_path_factory.mktemp("crate") / "a, b 100% ü"
    folder.mkdir()
    shutil.copy(adk.topology, folder / "top, of %20.psf")
    for name in ODD_NAMES:
        shutil.copy(adk.trajectory, folder / name)
    (folder / "my, battery #1.toml").write_text('["rmsd of, α 1%"]\nanalysis = "rmsd"\n')
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        words = ["my, battery #1.toml", "-s", "top, of %20.psf", "-f", "a*.dcd", "[5gi]*.dcd"]
        words += ["b*.dcd", "-e", "3", "--crate", "-o", "results, all"]
        assert main(["run", *words]) == 0
    return folder / "results, all"


def test_odd_names_are_valid_uris(odd_crate, replay):
    found = json.loads((odd_crate / "ro-crate-metadata.json").read_text("utf-8"))
    part = r"(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-F]{2})"  # pchar of RFC 3986
    uri = re.compile(rf"(?:[a-z][a-z0-9+.-]*:(?://{part}*)?)?(?:{part}|/)*(?:#(?:{part}|[/?])*)?")
    ids = [one["@id"] for one in found["@graph"]]
    assert not [one for one in ids if not uri.fullmatch(one)]
    assert len(set(ids)) == len(ids)
    inputs = {unquote(urlsplit(one).path) for one in ids if one.startswith("file:")}
    names = (*ODD_NAMES, "top, of %20.psf", "my, battery #1.toml")
    assert inputs == {f"{odd_crate.parent / name}" for name in names}
    entities = {one["name"]: one for one in found["@graph"] if "name" in one}
    facts = ResultFile.read(odd_crate / "rmsd of, α 1%.csv").facts
    assert entities["a, b.dcd"]["identifier"] == f"fingerprint {facts['fingerprint'][:48]}"
    assert len(entities["top, of %20.psf"]["sha256"]) == 64
    files = {unquote(one) for one in ids if not urlsplit(one).scheme}
    assert {path.name for path in odd_crate.iterdir()} <= files
    assert replay(odd_crate)[0] == 0
    moved = odd_crate.parents[1] / "moved, too"
    if not moved.exists():
        shutil.copytree(odd_crate.parent, moved)
    assert replay(moved / "results, all")[0] == 0


@pytest.mark.parametrize(
    ("name", "uri"),
    [
        ("s3://b/a b%.xtc", "s3://b/a%20b%25.xtc"),
        ("https://h/a%20b.xtc?v=1", "https://h/a%20b.xtc?v=1"),
        ("https://h/[1] ü.xtc", "https://h/%5B1%5D%20%C3%BC.xtc"),
        ("run:1/b c.xtc", "run%3A1/b%20c.xtc"),
    ],
)
def test_uris_of_inputs(name, uri):
    assert crate_module._uri_of(name, "") == uri


def test_a_crate_is_replaced_only_on_request(crate, adk, run):
    battery = str(crate.parent / "my battery.toml")
    command = ["run", battery, str(adk.topology), str(adk.trajectory), "-o", str(crate), "--crate"]
    for path in crate.iterdir():
        if path.name != "ro-crate-metadata.json":
            path.unlink()
    status, _, said = run(*command)
    assert status == 2
    assert "ro-crate-metadata.json exists" in said
    assert run(*command[:-1], "-e", "5", "--overwrite")[0] == 0
    assert not (crate / "ro-crate-metadata.json").exists()
    assert run(*command, "-e", "5", "--overwrite")[0] == 0


@pytest.mark.parametrize("name", ["run", "survey"])
def test_results_are_listed_if_the_crate_cannot_be_written(
    name, crate, survey_crate, adk, tmp_path, run, monkeypatch
):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device", "ro-crate-metadata.json")

    monkeypatch.setattr(crate_module, "_graph", full)
    battery = str(crate.parent / "my battery.toml")
    words = ["run", battery, str(adk.topology), str(adk.trajectory)]
    if name == "survey":
        words = [*survey_crate[1][:4], "--backend", "serial"]
    status, out, _ = run(*words, "-e", "3", "--crate", "--json", "-o", tmp_path / "results")
    document = json.loads(out)
    assert status
    assert "No space left on device" in document["error"]["message"]
    assert f"{tmp_path / 'results' / 'index.html'}" in document["written"]
    assert all(Path(one).is_file() for one in document["written"])


@pytest.mark.parametrize("which", ["crate", "odd_crate", "survey_crate"])
def test_the_validator_of_ro_crate_accepts_it(which, request, monkeypatch, tmp_path):
    # The validator itself fails if the path of a crate contains blanks.
    found = request.getfixturevalue(which)
    crate = shutil.copytree(found[0] if which == "survey_crate" else found, tmp_path / "crate")
    loader = pytest.importorskip("rocrate_validator.utils.document_loader")
    from rocrate_validator import models, services

    fetch = loader._original_source_to_json

    def local(source, *more):
        of_crate = "w3id.org/ro/crate/1.1" in str(source)
        return ({"@context": CONTEXT}, None) if of_crate else fetch(source, *more)

    monkeypatch.setattr(loader, "_original_source_to_json", local)
    settings = services.ValidationSettings(
        rocrate_uri=str(crate),
        profile_identifier="process-run-crate",
        requirement_severity=models.Severity.REQUIRED,
    )
    issues = services.validate(settings).get_issues()
    wrong = [one.message for one in issues if one.check.identifier not in BY_NETWORK]
    assert not wrong
