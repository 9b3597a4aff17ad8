"""Tests of surveys: tables over many trajectories, resumable, with the same bytes."""

import csv
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import h5py
import MDAnalysis
import numpy as np
import pytest
from helpers.mpi import mpirun, needs_mpi
from helpers.waiting import until

import paceline
from paceline.analysis import survey as surveys
from paceline.analysis import (
    survey_one_trajectory,
    survey_page,
    survey_replay,
    survey_result_encoding,
)
from paceline.analysis.battery import Battery
from paceline.analysis.read_survey_catalogue import read_catalogue
from paceline.analysis.survey_result_encoding import around_middle, decode
from paceline.cli import main
from paceline.errors import (
    CheckpointError,
    DamagedFileError,
    FileChangedError,
    UnsupportedError,
    WorkerError,
)

pytest.importorskip("pyarrow", reason="pyarrow is not installed")

BATTERY = {
    "rmsd": {"select": "name CA"},
    "gyration": {"select": "name CA"},
    "rmsf": {"select": "name CA", "align": True},
    "ramachandran": {"select": "resid 92-93"},
}
TABLES = ("systems", "quantities", "failures", "warnings", "series", "profiles")
LONG = {"series": True, "profiles": True}
#: Bytes of the first records of a journal.
FIRST_RECORD = 1000


@pytest.fixture(scope="module")
def deposit(adk, tmp_path_factory):
    """Folder with two topologies, and three short trajectories of each."""
    folder = tmp_path_factory.mktemp("deposit")
    universe = MDAnalysis.Universe(*adk)
    for name, select in (("core", "resid 90-110"), ("lid", "resid 90-104")):
        atoms = universe.select_atoms(select)
        for k in (1, 2, 3):
            (folder / name / f"{k}").mkdir(parents=True)
            atoms.write(folder / name / f"{k}" / "md.xtc", frames=slice(10 * k, 10 * k + 40))
        universe.trajectory[0]
        atoms.write(folder / name / "top.pdb")
    return folder


@pytest.fixture
def copied(deposit, tmp_path):
    return shutil.copytree(deposit, tmp_path / "deposit")


def catalogue(folder, rows, name="catalogue.csv", titles=("id", "topology", "trajectory")):
    with open(folder / name, "w", newline="") as file:
        csv.writer(file).writerows([titles, *rows])
    return folder / name


def run(folder, output, **options):
    """Run the survey of a deposit, by its pattern."""
    given = {"pattern": "{id}/{replica}/md.xtc", "battery": BATTERY, "backend": "serial", **LONG}
    return paceline.survey(folder, output, **{**given, **options})


def content(folder):
    """Return the bytes of all tables, and the manifest."""
    names = [*(f"{name}.parquet" for name in TABLES), "survey.json"]
    return {name: (Path(folder) / name).read_bytes() for name in names}


@pytest.fixture(scope="module")
def whole(deposit, tmp_path_factory):
    return run(deposit, tmp_path_factory.mktemp("whole"))


def rows_of(table, **where):
    return [
        row for row in table.to_pylist() if all(row[key] == value for key, value in where.items())
    ]


def test_rows_equal_a_battery_of_each_trajectory(deposit, whole):
    assert len(whole.systems) == 6
    assert len(whole.failures) == 0
    for name in ("core", "lid"):
        for k in ("1", "2", "3"):
            files = (deposit / name / "top.pdb", deposit / name / k / "md.xtc")
            battery = Battery(BATTERY, paceline.Universe(*map(str, files))).run()
            rmsd = battery.analyses["rmsd"].results.rmsd
            expected = paceline.convergence(rmsd[:, 2], rmsd[:, 1])
            (row,) = rows_of(whole.quantities, id=name, replica=k, analysis="rmsd")
            assert (row["mean"], row["low"], row["high"]) == (expected.mean, *expected.interval)
            assert row["verdict"] == expected.verdict
            assert (row["quantity"], row["unit"], row["over"]) == ("RMSD", "Å", "frames")
            values = [one["value"] for one in rows_of(whole.series, id=name, replica=k)]
            assert values[:40] == rmsd[:, 2].tolist()
            rmsf = battery.analyses["rmsf"].results.rmsf
            found = rows_of(whole.profiles, id=name, replica=k, analysis="rmsf")
            assert [one["value"] for one in found] == rmsf.tolist()
            assert (found[0]["x_name"], found[0]["x"], found[0]["label"]) == ("resid", 90, "ILE")
            (mean,) = rows_of(whole.quantities, id=name, replica=k, over="residues")
            assert mean["mean"] == pytest.approx(rmsf.mean(), rel=1e-14)


def test_angles_have_circular_means(deposit, whole):
    files = (deposit / "core" / "top.pdb", deposit / "core" / "1" / "md.xtc")
    battery = Battery(BATTERY, paceline.Universe(*map(str, files))).run()
    table = battery.analyses["ramachandran"].results.table
    title = next(iter(table.y))
    expected = paceline.convergence(table.columns[title], table.columns["time (ps)"], kind="angle")
    row = rows_of(whole.quantities, id="core", replica="1", analysis="ramachandran")[0]
    assert row["mean"] == expected.mean
    assert row["unit"] == "°"


def test_facts_of_systems(whole):
    row = whole.systems.to_pylist()[0]
    assert (row["id"], row["replica"], row["trajectory"]) == ("core", "1", "core/1/md.xtc")
    assert (row["n_frames"], row["n_analysed"], row["n_failures"]) == (40, 40, 0)
    assert row["topology"] == "core/top.pdb"
    assert row["last_time"] - row["first_time"] == pytest.approx(39.0, rel=1e-6)


@pytest.mark.parametrize("backend", ["processes", "dask"])
def test_bytes_are_equal_on_every_backend(backend, deposit, whole, tmp_path, monkeypatch):
    monkeypatch.setattr(surveys, "TASK_SYSTEMS", 1)
    found = run(deposit, tmp_path / "out", backend=backend, n_workers=2)
    assert content(found.folder) == content(whole.folder)


@needs_mpi
def test_bytes_are_equal_on_ranks(deposit, whole, tmp_path):
    program = (
        "import json, sys, paceline; folder, output, options = sys.argv[1:]\n"
        "paceline.survey(folder, output, **json.loads(options))"
    )
    options = {"pattern": "{id}/{replica}/md.xtc", "battery": BATTERY, "backend": "mpi", **LONG}
    status, _, err = mpirun(2, "-c", program, deposit, tmp_path / "out", json.dumps(options))
    assert status == 0, err
    assert content(tmp_path / "out") == content(whole.folder)


def test_threads_are_refused(deposit, tmp_path):
    with pytest.raises(UnsupportedError, match="use backend='processes'"):
        run(deposit, tmp_path / "out", backend="threads")


def test_shards_are_merged(deposit, whole, tmp_path):
    for number in (3, 1):
        assert run(deposit, tmp_path, shard=(number, 4)) is None
    with pytest.raises(UnsupportedError, match=r"4 results of 6 are missing \(core \(2\), "):
        run(deposit, tmp_path, merge=True)
    for number in (2, 4):
        run(deposit, tmp_path, shard=(number, 4))
    found = run(deposit, tmp_path, merge=True)
    assert content(found.folder) == content(whole.folder)
    assert not list(tmp_path.glob("*.journal"))


#: Survey that does two tasks, and then waits to be killed.
PROGRAM = """
import json, sys, time
import paceline
from paceline.analysis import survey
survey.TASK_SYSTEMS = 1
work, n_done = survey.SurveyWork.__call__, 0

def two_tasks(self, items):
    global n_done
    n_done += 1
    if n_done > 2:
        time.sleep(3600)
    return work(self, items)

survey.SurveyWork.__call__ = two_tasks
if __name__ == "__main__":
    folder, output, options = sys.argv[1:]
    paceline.survey(folder, output, **json.loads(options))
"""


def test_killed_runs_continue_with_the_same_bytes(deposit, whole, tmp_path):
    """Each run is killed after some records; the runs together do the work once."""
    options = {"pattern": "{id}/{replica}/md.xtc", "battery": BATTERY, "backend": "serial", **LONG}
    journal, output = tmp_path / "out" / "survey.journal", tmp_path / "out"
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    seeded, kills = random.Random(7), 0

    def size():
        """Return the size of the journal, which is deleted at the end."""
        try:
            return journal.stat().st_size
        except FileNotFoundError:
            return 0

    for _ in range(3):
        before, more = size(), seeded.choice([1, FIRST_RECORD])
        command = [sys.executable, script, deposit, output, json.dumps(options)]
        with subprocess.Popen(list(map(str, command))) as process:
            until(
                lambda process=process, enough=before + more: (
                    process.poll() is not None or size() > enough
                )
            )
            kills += process.poll() is None
            process.send_signal(signal.SIGKILL)
    assert kills
    found = run(deposit, output)
    assert content(output) == content(whole.folder)
    assert found.folder == output
    assert not journal.exists()


def count_analyses(monkeypatch):
    """Count the trajectories that are analysed in this process."""
    seen = []
    original = surveys.SurveyWork.__call__

    def counted(self, items):
        record = original(self, items)
        seen.extend(one.facts["id"] for one in decode(record) if not one.facts["unchanged"])
        return record

    monkeypatch.setattr(surveys.SurveyWork, "__call__", counted)
    return seen


def test_only_new_and_changed_trajectories_are_computed(copied, whole, tmp_path, monkeypatch):
    seen = count_analyses(monkeypatch)
    found = run(copied, tmp_path / "out")
    assert len(seen) == 6
    first = content(found.folder)
    run(copied, tmp_path / "out")
    assert len(seen) == 6
    assert content(found.folder) == first
    # A file that only got another time has the same content.
    os.utime(copied / "core" / "1" / "md.xtc", ns=(1, 1))
    run(copied, tmp_path / "out")
    assert len(seen) == 6
    assert content(found.folder) == first
    # A changed file, and a new one.
    shutil.copy(copied / "core" / "2" / "md.xtc", copied / "core" / "1" / "md.xtc")
    shutil.copytree(copied / "lid" / "3", copied / "lid" / "4")
    found = run(copied, tmp_path / "out")
    assert seen[6:] == ["core", "lid"]
    assert len(found.systems) == 7
    means = [one["mean"] for one in rows_of(found.quantities, id="core", analysis="rmsd")]
    assert means[0] == means[1]
    # Without the new one, and with the file as before, the tables have the first bytes.
    shutil.rmtree(copied / "lid" / "4")
    shutil.copy(Path(whole.facts["catalogue"]["folder"]) / "core/1/md.xtc", copied / "core/1")
    run(copied, tmp_path / "out")
    assert content(found.folder) == first


def test_other_settings_compute_everything_again(copied, tmp_path, monkeypatch):
    seen = count_analyses(monkeypatch)
    run(copied, tmp_path / "out")
    found = run(copied, tmp_path / "out", step=2)
    assert len(seen) == 12
    assert {one["n_analysed"] for one in found.systems.to_pylist()} == {20}
    run(copied, tmp_path / "out", step=2, battery={"rmsd": {"select": "name CA"}})
    assert len(seen) == 18


def test_results_do_not_depend_on_the_trajectory_before(adk, copied, tmp_path):
    """Bonds that are added for one trajectory, and warnings of its topology, are not inherited."""
    battery = {"gyration": {"select": "bonded name CA"}}
    found = run(copied, tmp_path / "out", battery=battery, series=False, profiles=False)
    texts = [
        [one["message"] for one in rows_of(found.warnings, id="core", replica=k)] for k in "123"
    ]
    assert texts[0] == texts[1] == texts[2]
    assert texts[0]


def break_frames(path, *numbers):
    """Damage the positions of some frames of an XTC file."""
    offsets = paceline.open(path).chain.files[0].extents(np.array(numbers, np.uint64))[0]
    with open(path, "r+b") as file:
        for offset in offsets.tolist():
            # The smallest index of the compressed differences, which has a maximum of 72.
            file.seek(offset + 84)
            file.write(b"\x00\x00\x01\x00")


def test_failures_are_rows(copied, tmp_path):
    break_frames(copied / "core" / "1" / "md.xtc", 5)
    (copied / "core" / "2" / "md.xtc").unlink()
    (copied / "core" / "3" / "md.xtc").write_bytes(b"")
    whole_file = (copied / "lid" / "1" / "md.xtc").read_bytes()
    (copied / "lid" / "1" / "md.xtc").write_bytes(whole_file[:-10])
    rows = [
        (f"{name}{k}", f"{name}/top.pdb", f"{name}/{k}/md.xtc")
        for name in ("core", "lid")
        for k in (1, 2, 3)
    ]
    rows += [("other", "lid/top.pdb", "core/1/md.xtc"), ("none", "no.pdb", "lid/2/md.xtc")]
    battery = {**BATTERY, "hbonds": {}, "typo": {"analysis": "rmsd", "select": "name XX"}}
    path = catalogue(copied, rows)
    found = paceline.survey(path, tmp_path / "out", battery=battery, backend="serial")
    failures = {
        (one["id"], one["analysis"]): f"{one['kind']}: {one['message']}"
        for one in found.failures.to_pylist()
    }
    assert "DamagedFileError" in failures["core1", ""]
    assert "frame 5" in failures["core1", ""]
    assert "md.xtc" in failures["core2", ""]
    assert "core/3/md.xtc" in failures["core3", ""]
    assert "AtomCountError" in failures["other", ""]
    assert "no.pdb" in failures["none", ""]
    assert "no atoms match 'name XX'" in failures["lid2", "typo"]
    assert ("lid2", "hbonds") not in failures
    (cut,) = rows_of(found.systems, id="lid1")
    assert cut["n_frames"] == 39
    texts = [one["message"] for one in rows_of(found.warnings, id="lid1")]
    assert any("is cut" in text for text in texts), texts
    assert rows_of(found.quantities, id="lid2", analysis="rmsd")
    # With the damaged frame left out, the trajectory has results.
    found = paceline.survey(
        path, tmp_path / "out", battery=BATTERY, backend="serial", on_error="skip"
    )
    (row,) = rows_of(found.systems, id="core1")
    assert (row["n_analysed"], row["n_failures"]) == (39, 0)
    assert any("frame 5: " in one["message"] for one in rows_of(found.warnings, id="core1"))


def test_many_frames_that_were_left_out_are_counted():
    damaged = [(frame, "reason") for frame in range(100_000)]
    rows = survey_one_trajectory._damage(damaged)
    assert len(rows) == 21
    assert rows[1] == ["", "frame 1: reason"]
    assert rows[-1] == ["", "left out, too: 99,980 further frames"]


def test_a_trajectory_that_kills_workers_is_a_failure(deposit, tmp_path, monkeypatch):
    """The backend reports the name of the task whose workers were killed."""
    original = surveys._SurveyRun._run_tasks

    def run_tasks(self, workers, batches, bar):
        fine = [items for items in batches if all(one.entry.replica != "2" for one in items)]
        original(self, workers, fine, bar)
        for items in batches:
            if items not in fine:
                name = surveys._name_of(items)
                raise WorkerError(f"workers were killed 3 times while they processed {name}: x")

    monkeypatch.setattr(surveys._SurveyRun, "_run_tasks", run_tasks)
    found = run(deposit, tmp_path)
    failures = found.failures.to_pylist()
    assert [(one["id"], one["replica"]) for one in failures] == [("core", "2"), ("lid", "2")]
    assert {one["kind"] for one in failures} == {"WorkerError"}
    assert len(rows_of(found.quantities, analysis="rmsd")) == 4


def test_ids_are_not_paths(copied, tmp_path):
    rows = [("../out", "lid/top.pdb", "lid/1/md.xtc"), ("a/b", "lid/top.pdb", "lid/2/md.xtc")]
    path = catalogue(copied, rows)
    found = paceline.survey(path, tmp_path / "out", battery=BATTERY, backend="serial")
    assert [one["id"] for one in found.systems.to_pylist()] == ["../out", "a/b"]
    assert {one.name for one in tmp_path.iterdir()} == {"out", "deposit"}


@pytest.mark.parametrize(
    ("battery", "message"),
    [
        ({"rmsx": {}}, "there is no analysis 'rmsx'"),
        ({"rmsd": {"slect": "all"}}, "RMSD has no parameter slect"),
        ({"energies": {"files": "x.edr"}}, r"has \[energies\]: describe analyses only"),
        ({}, "has no analyses"),
    ],
)
def test_batteries_that_are_wrong(battery, message, deposit, tmp_path):
    with pytest.raises(UnsupportedError, match=message):
        run(deposit, tmp_path / "out", battery=battery)
    assert not (tmp_path / "out").exists()


TITLES = ("id", "topology", "trajectory", "replica", "temperature")


@pytest.mark.parametrize(
    ("titles", "rows", "message"),
    [
        (TITLES[:3], [("a", "t", "x"), ("a", "t", "y")], "rows 1 and 2 have the same id"),
        (TITLES[:2], [("a", "t")], "row 1: lacks trajectory; expected id, topology"),
        (TITLES[:3], [("", "t", "x")], "row 1: lacks id"),
        (TITLES[:3], [("a", "t")], "row 1 has 2 cells, but there are 3 titles"),
        (("id", "id", "trajectory"), [("a", "t", "x")], "two columns have the title 'id'"),
        (TITLES[:3], [], "expected at least one trajectory, found none"),
        ((*TITLES[:3], "mean"), [("a", "t", "x", 1)], "give it another name"),
    ],
)
def test_catalogues_that_are_wrong(titles, rows, message, tmp_path):
    path = catalogue(tmp_path, rows, titles=titles)
    with pytest.raises(UnsupportedError, match=message):
        paceline.survey(path, tmp_path / "out", battery=BATTERY, backend="serial")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[trajectories]]\nid = 1.5", "lacks topology and trajectory"),
        ("[[trajectories]]\nid = 1.5\ntopology = 't'\ntrajectory = 'x'", "'id': expected a text"),
        ("[[trajectories]]\nid = 'a'\ntopology = 't'\ntrajectory = [1]", "found 1"),
        ("[[trajectories]]\nid = 'a'\ntopology = 't'\ntrajectory = 'x'\nn = [2]", "'n': expected"),
        ("[other]", r"expected tables \[\[trajectories\]\], found other"),
        ("x = ", "not valid TOML"),
    ],
)
def test_toml_catalogues_that_are_wrong(text, message, tmp_path):
    (tmp_path / "c.toml").write_text(text)
    with pytest.raises(UnsupportedError, match=message):
        read_catalogue(tmp_path / "c.toml")


def test_catalogues_of_every_format_are_equal(copied, tmp_path):
    import pyarrow
    from pyarrow import parquet

    rows = [
        ("a", "lid/top.pdb", "lid/1/md.xtc;lid/2/md.xtc", "1", 300),
        ("a", "lid/top.pdb", "lid/3/md.xtc", "2", 310),
    ]
    found = [read_catalogue(catalogue(copied, rows, titles=TITLES))]
    tables = [dict(zip(TITLES, row, strict=True)) for row in rows]
    parquet.write_table(pyarrow.Table.from_pylist(tables), copied / "c.parquet")
    found.append(read_catalogue(copied / "c.parquet"))
    lines = [
        f"[[trajectories]]\nid = 'a'\ntopology = 'lid/top.pdb'\ntrajectories = {files}\n"
        f"replica = {replica}\ntemperature = {kelvin}\n"
        for files, replica, kelvin in (
            (["lid/1/md.xtc", "lid/2/md.xtc"], 1, 300),
            (["lid/3/md.xtc"], 2, 310),
        )
    ]
    (copied / "c.toml").write_text("\n".join(lines))
    found.append(read_catalogue(copied / "c.toml"))
    assert found[0] == found[1] == found[2]
    assert found[0].digest == found[2].digest
    tables = paceline.survey(copied / "c.toml", tmp_path / "out", battery=BATTERY, backend="serial")
    # The second part repeats 30 frames of the first.
    assert [one["n_frames"] for one in tables.systems.to_pylist()] == [50, 40]
    row = rows_of(tables.quantities, replica="2", analysis="rmsd")[0]
    assert row["temperature"] == 310


def test_patterns_find_topologies_beside(copied):
    found = read_catalogue(copied, pattern="{id}/{replica}/md.x*")
    assert [one.topology for one in found.entries[:2]] == ["core/top.pdb", "core/top.pdb"]
    assert (found.entries[1].replica, found.entries[1].columns) == ("2", {})
    shutil.copy(copied / "core" / "top.pdb", copied / "core" / "2" / "start.gro")
    found = read_catalogue(copied, pattern="{id}/{replica}/md.xtc")
    assert found.entries[1].topology == "core/2/start.gro"
    for name in ("core", "lid"):
        shutil.copy(copied / "core" / "top.pdb", copied / name / "other.pdb")
    (copied / "core" / "2" / "start.gro").unlink()
    with pytest.raises(UnsupportedError, match="several topologies"):
        read_catalogue(copied, pattern="{id}/{replica}/md.xtc")
    found = read_catalogue(copied, pattern="{id}/{replica}/md.xtc", topology="{id}/top.pdb")
    assert found.entries[0].topology == "core/top.pdb"
    for pattern, message in (("{name}/md.xtc", "expected {id}"), ("{id}/x.xtc", "no file")):
        with pytest.raises(UnsupportedError, match=message):
            read_catalogue(copied, pattern=pattern)
    with pytest.raises(UnsupportedError, match="is a folder: set a pattern"):
        read_catalogue(copied)


@pytest.fixture
def mdcath(copied):
    """File in the layout of mdCATH with the first two trajectories of a topology."""
    lines = (copied / "lid" / "top.pdb").read_text().splitlines(keepends=True)
    text = "".join(line for line in lines if line.startswith(("ATOM", "MODEL")))
    with h5py.File(copied / "mdcath_dataset_1abcA00.h5", "w", libver="latest") as file:
        file.attrs["layout"] = "mdcath-only-protein-v1.0"
        domain = file.create_group("1abcA00")
        domain["pdbProteinAtoms"] = text.encode()
        for k in (1, 2):
            universe = MDAnalysis.Universe(copied / "lid/top.pdb", copied / f"lid/{k}/md.xtc")
            group = domain.create_group(f"320/{k}")
            group["coords"] = np.array([ts.positions.copy() for ts in universe.trajectory])
            group["coords"].attrs["unit"] = "Angstrom"
            group["box"] = np.eye(3)
    return copied / "mdcath_dataset_1abcA00.h5"


def test_mdcath_files_give_the_values_of_trajectory_files(mdcath, whole, tmp_path):
    found = run(mdcath, tmp_path / "out", pattern=None, layout="mdcath")
    assert len(found.failures) == 0
    row = found.systems.to_pylist()[1]
    assert (row["id"], row["replica"], row["group"]) == ("1abcA00.320", "2", "320")
    assert (row["domain"], row["temperature"], row["last_time"]) == ("1abcA00", 320, 39_000.0)
    # The cell of the XTC files, and so the images of the atoms, do not matter here.
    for k in ("1", "2"):
        mine = rows_of(found.series, replica=k, analysis="rmsd")
        theirs = rows_of(whole.series, id="lid", replica=k, analysis="rmsd")
        assert [one["value"] for one in mine] == [one["value"] for one in theirs]


def test_other_hdf5_files_are_refused(tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["a"] = 1
    with pytest.raises(UnsupportedError, match="expected a file of mdCATH"):
        read_catalogue(tmp_path / "x.h5", layout="mdcath")
    with pytest.raises(UnsupportedError, match="expected one of mdcath"):
        read_catalogue(tmp_path / "x.h5", layout="other")


def test_a_table_that_someone_edited_is_an_error(deposit, tmp_path):
    found = run(deposit, tmp_path)
    data = bytearray(found.path("quantities").read_bytes())
    data[len(data) // 2] ^= 1
    found.path("quantities").write_bytes(data)
    with pytest.raises(FileChangedError, match="was changed after the survey wrote it"):
        _ = found.quantities
    with pytest.raises(FileChangedError, match=r"quantities\.parquet"):
        run(deposit, tmp_path)
    found = run(deposit, tmp_path, overwrite=True)
    assert len(found.quantities)


def test_folders_of_other_surveys(deposit, tmp_path, copied):
    run(deposit, tmp_path / "out")
    other = catalogue(copied, [("x", "lid/top.pdb", "lid/1/md.xtc")])
    options = {"battery": BATTERY, "backend": "serial"}
    with pytest.raises(UnsupportedError, match="a survey of other trajectories, such as 'core'"):
        paceline.survey(other, tmp_path / "out", **options)
    assert not [*(tmp_path / "out").glob("*.journal")]
    second = shutil.copytree(copied, tmp_path / "second")
    same_names = catalogue(second, [("x", "lid/top.pdb", "lid/1/md.xtc")])
    paceline.survey(other, tmp_path / "out", overwrite=True, **options)
    with pytest.raises(UnsupportedError, match="a survey of other trajectories, such as 'x' in"):
        paceline.survey(same_names, tmp_path / "out", **options)
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "quantities.parquet").write_bytes(b"precious")
    with pytest.raises(UnsupportedError, match="belongs to no survey"):
        paceline.survey(other, foreign, **options)
    assert (foreign / "quantities.parquet").read_bytes() == b"precious"
    assert not (tmp_path / "out" / "series.parquet").exists()
    manifest = tmp_path / "out" / "survey.json"
    manifest.write_text(manifest.read_text().replace("survey 2", "survey 9"))
    with pytest.raises(UnsupportedError, match="expected 'paceline survey 2', found"):
        paceline.open_survey(tmp_path / "out")
    with pytest.raises(UnsupportedError, match=r"survey\.json is missing"):
        paceline.open_survey(tmp_path)


def test_the_same_files_under_other_names_of_their_folder(copied, tmp_path):
    found = run(copied, tmp_path / "out")
    link = tmp_path / "link"
    link.symlink_to(copied)
    assert len(run(link, tmp_path / "out").systems) == len(found.systems)
    rows = [["a", f"{copied}/core/top.pdb", f"{copied}/core/1/md.xtc"]]
    options = {"battery": BATTERY, "backend": "serial"}
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        named = catalogue(tmp_path / folder, rows)
        assert len(paceline.survey(named, tmp_path / "named", **options).systems) == 1


def test_a_shard_after_a_kill_while_tables_were_moved(deposit, tmp_path):
    found = run(deposit, tmp_path)
    (tmp_path / ".next").mkdir()
    shutil.move(found.folder / "survey.json", tmp_path / ".next" / "survey.json")
    assert run(deposit, tmp_path, shard=(1, 2)) is None
    assert (tmp_path / "quantities.parquet").exists()
    assert content(run(deposit, tmp_path).folder)


def test_two_surveys_at_once_are_refused(deposit, tmp_path):
    with (
        surveys.Journal(tmp_path / surveys.JOURNAL),
        pytest.raises(CheckpointError, match="another run is using"),
    ):
        run(deposit, tmp_path)
    assert run(deposit, tmp_path)


def test_a_journal_of_something_else_is_an_error(deposit, tmp_path):
    with surveys.Journal(tmp_path / surveys.JOURNAL) as journal:
        journal.append(b"something else")
    with pytest.raises(CheckpointError, match="expected results of a survey"):
        run(deposit, tmp_path)


def test_missing_tables_are_named(deposit, tmp_path):
    found = run(deposit, tmp_path, series=False)
    with pytest.raises(UnsupportedError, match="run the survey with series=True"):
        _ = found.series


@pytest.mark.parametrize("library", ["pandas", "polars", "duckdb"])
def test_other_libraries_read_the_tables(library, whole):
    module = pytest.importorskip(library, reason=f"{library} is not installed")
    table, path = whole.quantities, f"{whole.path('quantities')}"
    expected = [one["mean"] for one in rows_of(table, analysis="rmsd")]
    if library == "pandas":
        frame = module.read_parquet(path)
        found = frame[frame["analysis"] == "rmsd"]["mean"].tolist()
    elif library == "polars":
        found = module.from_arrow(table).filter(module.col("analysis") == "rmsd")["mean"].to_list()
    else:
        rows = module.sql(f"SELECT mean FROM '{path}' WHERE analysis = 'rmsd'").fetchall()
        found = [mean for (mean,) in rows]
    assert found == expected


def test_the_command_prints_a_summary(deposit, tmp_path, run_with_answer):
    (tmp_path / "b.toml").write_text("[rmsd]\nselect = 'name CA'\n[gyration]\nselect = 'name CA'\n")
    words = ["survey", deposit, "--pattern", "{id}/{replica}/md.xtc", "-o", tmp_path / "out"]
    words += ["--battery", tmp_path / "b.toml", "--backend", "serial", "-b", "20", "--series"]
    status, out, err = run_with_answer(*words)
    assert status == 0, err
    assert "6 systems, 0 of them with failures" in err
    assert "gyration" in out
    found = paceline.open_survey(tmp_path / "out")
    assert min(one["time"] for one in found.series.to_pylist()) > 19.9
    status, out, err = run_with_answer(*words, "--json")
    assert json.loads(out)["tables"]["systems"] == 6
    status, out, err = run_with_answer(*words, "--shard", "0/4")
    assert status == 2
    assert "expected N/COUNT, such as 3/16" in err


def test_the_command_has_no_deviation_of_a_single_system(deposit, tmp_path, run_with_answer):
    (tmp_path / "b.toml").write_text("[gyration]\nselect = 'name CA'\n")
    path = catalogue(tmp_path, [("one", deposit / "core/top.pdb", deposit / "core/1/md.xtc")])
    words = ["survey", path, "-o", tmp_path / "out", "--battery", tmp_path / "b.toml"]
    status, out, err = run_with_answer(*words, "--backend", "serial", "--no-page")
    assert status == 0, err
    assert out.splitlines()[1].split()[-1] == "–"


def test_replay_finds_a_changed_number(copied, tmp_path):
    from pyarrow import parquet

    found = run(copied, tmp_path / "out")
    check = survey_replay.replay_survey(found.folder)
    assert (check.verdict, check.compared) == ("equal", "6 systems of a survey")
    check = survey_replay.replay_survey(found.folder, sample=2)
    assert (check.verdict, check.compared) == ("equal", "2 systems of a survey")
    assert main(["replay", str(found.folder), "--sample", "2"]) == 0
    assert main(["replay", str(found.path("systems")), "--sample", "1"]) == 0
    # An edited table does not have the digest of the manifest.
    path = found.path("quantities")
    table = parquet.read_table(path).to_pydict()
    was = table["mean"][0]
    table["mean"][0] = np.nextafter(was, np.inf)
    table["group"][1] = "other"
    schema = parquet.read_schema(path)
    parquet.write_table(survey_result_encoding.need_arrow().table(table, schema=schema), path)
    check = survey_replay.replay_survey(found.folder)
    assert "was changed after the survey wrote it" in check.reasons[0]
    of_group, of_mean = check.differences
    place = "quantities.parquet: core (1): rmsd RMSD: mean"
    assert (of_mean.place, of_mean.computed) == (place, repr(was))
    assert of_mean.saved == repr(float(np.nextafter(was, np.inf)))
    assert of_group.place == "quantities.parquet, row 2: core: group"
    assert f"{of_group}".endswith(": group: the file has 'other', systems.parquet has ''")
    # With a new digest in the manifest, the number itself is found.
    manifest = found.folder / "survey.json"
    about = json.loads(manifest.read_text())
    about["tables"]["quantities"]["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    manifest.write_text(json.dumps(about))
    again = survey_replay.replay_survey(found.folder)
    assert (again.reasons, again.differences) == ([], check.differences)
    assert main(["replay", str(found.folder)]) == 1
    # A changed trajectory explains other numbers.
    shutil.copy(copied / "core" / "2" / "md.xtc", copied / "core" / "1" / "md.xtc")
    _, difference = survey_replay.replay_survey(found.folder).differences
    assert difference.place == "systems.parquet: core (1): digest of core/1/md.xtc"
    content = (copied / "core" / "1" / "md.xtc").read_bytes()
    assert difference.computed == hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize(
    ("column", "change", "place"),
    [
        (
            "digests",
            lambda text: "0" + text[1:],
            "systems.parquet: core (1): digest of core/top.pdb",
        ),
        (
            "digests",
            lambda text: text[:-1] + "x",
            "systems.parquet: core (1): digest of core/1/md.xtc",
        ),
        ("digests", lambda text: "", "systems.parquet: core (1): digests"),
        ("key", lambda text: text[:-1] + "x", "systems.parquet: core (1): key"),
        (
            "key",
            lambda text: "0" + text,
            "systems.parquet: core: digest of the settings in its key",
        ),
    ],
)
def test_replay_finds_a_changed_claim(copied, tmp_path, column, change, place):
    from pyarrow import parquet

    found = run(copied, tmp_path / "out")
    path = found.path("systems")
    table = parquet.read_table(path).to_pydict()
    table[column][0] = change(table[column][0])
    schema = parquet.read_schema(path)
    parquet.write_table(survey_result_encoding.need_arrow().table(table, schema=schema), path)
    about = json.loads((found.folder / "survey.json").read_text())
    about["tables"]["systems"]["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    (found.folder / "survey.json").write_text(json.dumps(about))
    check = survey_replay.replay_survey(found.folder)
    assert check.verdict == "differs"
    assert [one.place for one in check.differences] == [place]


def test_replay_finds_a_changed_digest_of_the_settings(copied, tmp_path):
    found = run(copied, tmp_path / "out")
    manifest = found.folder / "survey.json"
    digest = found.facts["settings"]["digest"]
    manifest.write_text(manifest.read_text().replace(digest, "0" * len(digest)))
    check = survey_replay.replay_survey(found.folder, sample=1)
    assert check.differences[-1].place == "survey.json: digest of the settings"
    assert check.n_differences == 7


def test_replay_of_a_survey_by_another_processor_has_a_tolerance(copied, tmp_path, monkeypatch):
    found = run(copied, tmp_path / "out")
    means = {row["quantity"]: row["mean"] for row in found.quantities.to_pylist()}
    true_rows = survey_replay.rows_of

    def replay(change, processor="another one"):
        def rows_of_another(results):
            results.facts["processor"] = processor
            for row in results.quantities:
                at = [k for k, value in enumerate(row) if isinstance(value, float)]
                row[at[0]] = change(row[at[0]])
            return true_rows(results)

        monkeypatch.setattr(survey_replay, "rows_of", rows_of_another)
        return survey_replay.replay_survey(found.folder, sample=1)

    [here] = set(found.systems["processor"].to_pylist())
    n = sum(row["id"] == "core" for row in found.quantities.to_pylist())
    assert len(means) > 1
    close = replay(lambda value: value * (1 + 1e-9))
    assert close.verdict == "equal within tolerance"
    assert 1 < close.n_differences <= n
    assert 0 < close.largest.deviation < 1e-8
    why = f"another processor computed a system ({here}; now another one)"
    assert close.reasons == [why, "all numbers agree to 1e-06 of the largest of their kind"]
    assert replay(lambda value: value * 1.001).verdict == "differs"
    assert replay(lambda value: value * (1 + 1e-9), here).verdict == "differs"


def test_replay_of_a_survey_that_was_moved(copied, tmp_path):
    found = run(copied, tmp_path / "out")
    shutil.move(copied, tmp_path / "moved")
    assert survey_replay.replay_survey(found.folder).verdict == "not checked"
    check = survey_replay.replay_survey(found.folder, files=tmp_path / "moved")
    assert check.verdict == "equal"
    assert check.reasons == [f"files were looked up from the folder {tmp_path / 'moved'}"]
    shutil.move(found.folder, tmp_path / "moved" / "tables")
    assert main(["replay", f"{tmp_path / 'moved' / 'tables'}"]) == 0


def mean_rmsd(found, **where):
    return [one["mean"] for one in rows_of(found.quantities, analysis="rmsd", **where)]


def test_rows_that_point_to_another_file_are_computed_again(copied, tmp_path):
    """The other file has the same size and time, as after unpacking an archive."""
    names = ["lid/1/md.xtc", "lid/3/md.xtc"]
    size = max((copied / name).stat().st_size for name in names)
    for name in names:
        with open(copied / name, "ab") as file:
            file.write(bytes(size - (copied / name).stat().st_size))
        os.utime(copied / name, ns=(1, 1))
    for name in names:
        path = catalogue(copied, [("a", "lid/top.pdb", name)])
        found = paceline.survey(path, tmp_path / "out", battery=BATTERY, backend="serial")
        fresh = paceline.survey(path, tmp_path / name[4], battery=BATTERY, backend="serial")
        assert mean_rmsd(found) == mean_rmsd(fresh)


def test_a_changed_byte_anywhere_is_noticed(copied, tmp_path):
    """A fingerprint of a trajectory contains samples of a large file; all of it is compared."""
    path = copied / "lid" / "1" / "md.xtc"
    path.write_bytes(path.read_bytes() * 20)
    found = paceline.survey(
        copied / "lid", tmp_path / "out", pattern="{id}/md.xtc", battery=BATTERY, backend="serial"
    )
    before = [one["key"] for one in rows_of(found.systems, id="1")]
    data = bytearray(path.read_bytes())
    data[len(data) // 3 + 1000] ^= 1
    path.write_bytes(data)
    found = paceline.survey(
        copied / "lid", tmp_path / "out", pattern="{id}/md.xtc", battery=BATTERY, backend="serial"
    )
    assert [one["key"] for one in rows_of(found.systems, id="1")] != before


@pytest.mark.parametrize("value", [np.ones(3), object(), {"a": 1}])
def test_parameters_that_no_file_records_are_refused(value, deposit, tmp_path):
    with pytest.raises(UnsupportedError, match="are texts, numbers and lists of these"):
        run(deposit, tmp_path / "out", battery={"rmsd": {"weights": value}})


@pytest.mark.parametrize("n_moved", [0, 1, 4, 7])
def test_a_kill_while_tables_are_moved_is_repaired(n_moved, copied, tmp_path, monkeypatch):
    run(copied, tmp_path / "out")
    shutil.copytree(copied / "lid" / "3", copied / "lid" / "4")
    moves = []

    def replace(self, target):
        if len(moves) == n_moved:
            raise KeyboardInterrupt
        moves.append(target)
        os.replace(self, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", replace)
        with pytest.raises(KeyboardInterrupt):
            run(copied, tmp_path / "out")
    seen = count_analyses(monkeypatch)
    found = run(copied, tmp_path / "out")
    assert seen == []
    assert content(found.folder) == content(run(copied, tmp_path / "fresh").folder)
    assert not (tmp_path / "out" / ".next").exists()


def test_a_deleted_table_is_written_again(copied, tmp_path):
    found = run(copied, tmp_path / "out")
    before = content(found.folder)
    found.path("quantities").unlink()
    assert content(run(copied, tmp_path / "out").folder) == before


def test_shards_of_changed_files_are_not_merged(copied, tmp_path):
    for number in (1, 2):
        run(copied, tmp_path / "out", shard=(number, 2))
    shutil.copy(copied / "core" / "2" / "md.xtc", copied / "core" / "1" / "md.xtc")
    with pytest.raises(UnsupportedError, match=r"1 result of 6 are missing \(core \(1\)\)"):
        run(copied, tmp_path / "out", merge=True)
    for number in (1, 2, 3):
        run(copied, tmp_path / "out", shard=(number, 3))
    found = run(copied, tmp_path / "out", merge=True)
    assert content(found.folder) == content(run(copied, tmp_path / "fresh").folder)


def test_shards_with_failures_are_merged_again(copied, tmp_path):
    (copied / "core" / "2" / "md.xtc").write_bytes(b"no trajectory")
    for number in (1, 2):
        run(copied, tmp_path / "out", shard=(number, 2))
    first = content(run(copied, tmp_path / "out", merge=True).folder)
    assert content(run(copied, tmp_path / "out", merge=True).folder) == first


def test_shards_replace_a_survey_of_others(copied, tmp_path):
    other = catalogue(copied, [("x", "lid/top.pdb", "lid/1/md.xtc")])
    paceline.survey(other, tmp_path / "out", battery=BATTERY, backend="serial")
    for number in (1, 2):
        run(copied, tmp_path / "out", shard=(number, 2), overwrite=True)
    found = run(copied, tmp_path / "out", merge=True, overwrite=True)
    assert len(found.systems) == 6


def test_included_topologies_are_part_of_the_key(tmp_path):
    (tmp_path / "a.itp").write_text('#include "b.itp"\n')
    (tmp_path / "b.itp").write_text("[ moleculetype ]\n")
    before = survey_one_trajectory._digest_with_includes(f"{tmp_path / 'a.itp'}")
    (tmp_path / "b.itp").write_text("[ moleculetype ]\nother 3\n")
    assert survey_one_trajectory._digest_with_includes(f"{tmp_path / 'a.itp'}") != before


def test_an_invalid_selection_does_not_fail_the_other_analyses(deposit, tmp_path):
    battery = {"rmsd": {"select": "nam CA"}, "gyration": {"select": "name CA"}}
    found = run(deposit, tmp_path / "out", battery=battery)
    assert {one["analysis"] for one in found.failures.to_pylist()} == {"rmsd"}
    assert len(rows_of(found.quantities, analysis="gyration")) == 6


def test_errors_that_may_pass_are_tried_again(deposit, tmp_path, monkeypatch):
    original, failed = Battery.run, []

    def full_disk(self, **options):
        if not failed:
            failed.append(True)
            raise OSError(28, "No space left on device")
        return original(self, **options)

    monkeypatch.setattr(Battery, "run", full_disk)
    found = run(deposit, tmp_path / "out", battery={"rmsd": {"select": "name CA"}})
    assert len(found.failures) == 1
    found = run(deposit, tmp_path / "out", battery={"rmsd": {"select": "name CA"}})
    assert len(found.failures) == 0
    assert len(mean_rmsd(found)) == 6


def test_a_damaged_mdcath_file_is_a_failure(mdcath, tmp_path):
    (mdcath.parent / "mdcath_dataset_cut.h5").write_bytes(mdcath.read_bytes()[:2000])
    found = run(mdcath.parent, tmp_path / "out", pattern=None, layout="mdcath")
    assert [one["id"] for one in found.failures.to_pylist()] == ["mdcath_dataset_cut.h5"]
    assert len(mean_rmsd(found)) == 2


@pytest.mark.parametrize("content", [b"", b"no HDF5 at all"])
def test_a_file_that_is_no_mdcath_file_is_a_failure(mdcath, tmp_path, content):
    other = mdcath.parent / "mdcath_dataset_other.h5"
    other.write_bytes(content)
    found = run(mdcath.parent, tmp_path / "out", pattern=None, layout="mdcath")
    [failure] = found.failures.to_pylist()
    assert failure["id"] == other.name
    assert "HDF5" in failure["message"]
    assert len(mean_rmsd(found)) == 2
    mdcath.unlink()
    with pytest.raises((UnsupportedError, DamagedFileError), match=other.name):
        run(mdcath.parent, tmp_path / "none", pattern=None, layout="mdcath")


def test_folders_on_the_command_line(deposit, copied, tmp_path, capsys):
    arguments = ["--pattern", "{id}/{replica}/md.xtc", "-o", f"{tmp_path / 'out'}", "--no-page"]
    described = tmp_path / "battery.toml"
    described.write_text('[rmsd]\nselect = "name CA"\n')
    command = ["survey", f"file://{deposit}", *arguments, "--battery", f"{described}"]
    assert main([*command, "--backend", "serial"]) == 0
    assert len(paceline.open_survey(tmp_path / "out").systems) == 6
    assert main(["survey", "https://server/deposit", *arguments]) == 2
    assert "a web server cannot list its files" in capsys.readouterr().err
    rows = [["lost", "core/top.pdb", "nowhere.xtc"]]
    lost = [f"{catalogue(copied, rows)}", "-o", f"{tmp_path / 'lost'}", "--no-page", "--json"]
    assert main(["survey", *lost, "--battery", f"{described}", "--backend", "serial"]) == 1
    [failure] = json.loads(capsys.readouterr().out)["failures"]
    assert (failure["id"], failure["kind"]) == ("lost", "FileNotFoundError")


def test_open_files_are_no_warnings_of_a_trajectory():
    with survey_one_trajectory._collected_warnings() as texts:
        warnings.warn("unclosed file <object at 0x7f8d>", ResourceWarning, stacklevel=1)
        warnings.warn("a fact", UserWarning, stacklevel=1)
    assert texts == ["a fact"]


def test_angles_of_systems_are_compared_on_the_circle():
    found = around_middle(np.array([-179.0, 178.0, 179.5, -170.0]), "angle")
    assert np.ptp(found) == pytest.approx(12.0)
    assert around_middle(np.array([-179.0, 178.0]), "linear").tolist() == [-179.0, 178.0]


def test_numbers_of_csv_catalogues(tmp_path):
    titles = ("id", "topology", "trajectory", "whole", "decimal", "code", "zeros", "gap")
    rows = [
        ("a", "t", "x", "1", "2.5", "1e10", "007", ""),
        ("b", "t", "y", "2", "3", "x", "1", "4"),
    ]
    path = catalogue(tmp_path, rows, titles=titles)
    found = read_catalogue(path).entries
    assert dict(found[0].columns) == {"whole": 1, "decimal": 2.5, "code": "1e10", "zeros": "007"}
    assert found[1].columns["gap"] == 4
    path.write_text("# from a table\n" + path.read_text() + "\n\n")
    assert read_catalogue(path).entries == found


@pytest.mark.parametrize("name", ["odd [1]", "what?", "a*b"])
def test_folders_with_special_characters(name, copied, tmp_path):
    folder = shutil.copytree(copied, tmp_path / name)
    found = read_catalogue(folder, pattern="{id}/{replica}/md.xtc")
    assert len(found.entries) == 6
    address = (folder / "x").as_uri()[:-2]
    assert read_catalogue(address, pattern="{id}/{replica}/md.xtc").entries == found.entries


def test_names_in_figures_are_not_formulas(copied, tmp_path):
    rows = [(f"{k}", "lid/top.pdb", f"lid/{k}/md.xtc", "$x_{$") for k in (1, 2)]
    path = catalogue(copied, rows, titles=("id", "topology", "trajectory", "group"))
    battery = {"rmsd": {"select": "name CA"}}
    found = paceline.survey(path, tmp_path / "o", battery=battery, backend="serial", pages=1)
    assert "Survey of 2 systems" in (found.folder / "index.html").read_text(encoding="utf-8")
    # A page that a later run does not write is removed with the tables that it shows.
    paceline.survey(path, tmp_path / "o", battery=battery, backend="serial", step=2)
    assert not (found.folder / "index.html").exists()


def forged(copied, tmp_path, key, value):
    """Return a survey whose manifest somebody has changed."""
    found = run(copied, tmp_path / "out")
    manifest = found.folder / "survey.json"
    about = json.loads(manifest.read_text())
    about["settings"][key] = value
    manifest.write_text(json.dumps(about))
    return found.folder


def test_replay_of_a_forged_survey_writes_nothing(copied, tmp_path):
    target = tmp_path / "target.xtc"
    target.write_text("precious")
    text = f"[x]\nanalysis = 'convert.Write'\npath = '{target}'\noverwrite = true\n"
    assert survey_replay.replay_survey(forged(copied, tmp_path, "battery", text)).differences
    assert target.read_text() == "precious"


def test_replay_of_a_forged_survey_reads_no_checkpoint(copied, tmp_path):
    folder = forged(copied, tmp_path, "options", {"checkpoint": "x"})
    with pytest.raises(UnsupportedError, match="unknown option 'checkpoint'"):
        survey_replay.replay_survey(folder)


def test_replay_of_a_survey_whose_files_are_missing(copied, tmp_path):
    found = run(copied, tmp_path / "out")
    (copied / "core" / "1" / "md.xtc").unlink()
    check = survey_replay.replay_survey(found.folder)
    assert (check.verdict, check.compared) == ("not checked", "5 systems of a survey")
    reason = "1 of 6 systems could not be compared: core (1): it cannot be computed now"
    assert check.reasons[0].startswith(reason)
    assert main(["replay", str(found.folder)]) == 2
    # The missing file hides no difference of another system.
    shutil.copy(copied / "lid" / "2" / "md.xtc", copied / "lid" / "1" / "md.xtc")
    check = survey_replay.replay_survey(found.folder)
    places = [one.place for one in check.differences]
    assert (check.verdict, places) == (
        "differs",
        ["systems.parquet: lid (1): digest of lid/1/md.xtc"],
    )
    assert check.reasons[0].startswith(reason)
    assert main(["replay", str(found.folder)]) == 1


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("catalogue", {"systems": 6}, "catalogue.folder: expected a text, found nothing"),
        ("catalogue", [], r"catalogue: expected an object, found \[\]"),
        ("tables", [], r"tables: expected an object, found \[\]"),
        ("tables", {}, "tables.systems: expected an object, found nothing"),
        ("settings", [], r"settings: expected an object, found \[\]"),
        ("settings.battery", 3, "settings.battery: expected a text, found 3"),
        ("tables.systems", {}, "tables.systems.rows: expected a whole number, found nothing"),
        ("tables.other", {}, r"tables.other: expected no such table, found \{\}"),
        ("numpy", 2, "numpy: expected a text, found 2"),
    ],
)
def test_manifests_that_somebody_edited(tables, tmp_path, key, value, message):
    folder = shutil.copytree(tables, tmp_path / "out")
    about = json.loads((folder / "survey.json").read_text())
    *parts, last = key.split(".")
    inner = about[parts[0]] if parts else about
    inner[last] = value
    (folder / "survey.json").write_text(json.dumps(about))
    with pytest.raises(UnsupportedError, match=rf"survey\.json: {message}: .*restore it"):
        paceline.open_survey(folder)
    (folder / ".next").mkdir()
    shutil.move(folder / "survey.json", folder / ".next")
    with pytest.raises(UnsupportedError, match=rf"{message}.*delete the folder .*next"):
        surveys.publish_next(folder)


def test_files_that_are_no_manifest(tables, tmp_path):
    folder = shutil.copytree(tables, tmp_path / "out")
    with pytest.raises(UnsupportedError, match="expected the folder of a survey, found a file"):
        paceline.open_survey(folder / "survey.json")
    text = (folder / "survey.json").read_text()
    (folder / ".next").mkdir()
    for name in (".next/survey.json", "survey.json"):
        (folder / name).write_text(text[: len(text) // 2])
    with pytest.raises(UnsupportedError, match=r"survey\.json: expected JSON"):
        paceline.open_survey(folder)
    with pytest.raises(UnsupportedError, match=r"expected JSON.*delete the folder .*next"):
        surveys.publish_next(folder)


def test_replay_of_a_survey_that_lacks_a_table(copied, tmp_path):
    found = run(copied, tmp_path / "out")
    for name in ("series", "systems"):
        found.path(name).unlink()
        check = survey_replay.replay_survey(found.folder)
        sentence = f"{found.path(name)}: the table is missing; run the survey again"
        assert (check.verdict, sentence in check.reasons) == ("differs", True)
        assert main(["replay", str(found.folder)]) == 1


def edited(folder, name, change):
    """Change a table, and set its number of rows and its SHA-256 in the manifest."""
    from pyarrow import parquet

    path, manifest = folder / f"{name}.parquet", folder / "survey.json"
    table = change(parquet.read_table(path))
    parquet.write_table(table, path, row_group_size=max(len(table), 1))
    about = json.loads(manifest.read_text())
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    about["tables"][name] = {"rows": len(table), "sha256": sha256}
    manifest.write_text(json.dumps(about))


def with_value(column, row, change):
    """Return a function that changes one value of a table."""
    arrow = survey_result_encoding.need_arrow()

    def changed(table):
        values = table[column].to_pylist()
        values[row] = change(values[row])
        number = table.schema.get_field_index(column)
        field = table.schema.field(number)
        return table.set_column(number, field, arrow.array(values, field.type))

    return changed


def with_first_row_again(table):
    return survey_result_encoding.need_arrow().concat_tables([table, table.slice(0, 1)])


@pytest.fixture(scope="module")
def tables(deposit, tmp_path_factory):
    """A survey in whose tables are warnings and failures, too."""
    folder = tmp_path_factory.mktemp("tables") / "out"
    battery = {**BATTERY, "wrong": {"analysis": "rmsd", "select": "name NONE"}}
    found = run(deposit, folder, battery=battery)
    assert all(found.facts["tables"][name]["rows"] for name in TABLES)
    return folder


@pytest.mark.parametrize(
    ("name", "change", "place"),
    [
        *(
            (name, with_value(column, 1, "{}x".format), f"{name}.parquet, row 2: core: {column}")
            for name in TABLES[1:]
            for column in ("id", "replica")
        ),
        *((name, with_first_row_again, f"{name}.parquet: rows") for name in TABLES[1:]),
        *(
            ("systems", with_value(f"n_{name}", 2, lambda n: n + 1), f"{name}.parquet: rows")
            for name in TABLES[1:]
        ),
        ("systems", with_value("n_series", 2, lambda n: -1), "series.parquet: rows"),
        ("systems", with_first_row_again, "survey.json: number of systems in the catalogue"),
        *(
            (
                name,
                lambda table: table.append_column("more", table["id"]),
                f"{name}.parquet: type of the column 'more'",
            )
            for name in TABLES[1:]
        ),
        (
            "quantities",
            lambda table: table.drop_columns(["mean"]),
            "quantities.parquet: type of the column 'mean'",
        ),
        (
            "systems",
            lambda table: table.drop_columns(["key"]),
            "systems.parquet: type of the column 'key'",
        ),
        (
            "series",
            lambda table: table.select(table.column_names[::-1]),
            "series.parquet: order of the columns",
        ),
    ],
)
def test_replay_finds_changed_rows_and_columns(tables, tmp_path, name, change, place):
    folder = shutil.copytree(tables, tmp_path / "out")
    edited(folder, name, change)
    check = survey_replay.replay_survey(folder, sample=1)
    assert check.verdict == "differs"
    assert place in [one.place for one in check.differences]


def test_replay_finds_a_system_that_was_removed_from_all_tables(tables, tmp_path):
    folder = shutil.copytree(tables, tmp_path / "out")

    def without_last(table):
        ids = zip(table["id"].to_pylist(), table["replica"].to_pylist(), strict=True)
        return table.filter(
            survey_result_encoding.need_arrow().array([one != ("lid", "3") for one in ids])
        )

    for name in TABLES:
        edited(folder, name, without_last)
    [difference] = survey_replay.replay_survey(folder, sample=1).differences
    assert difference.place == "survey.json: number of systems in the catalogue"
    assert (difference.saved, difference.computed) == ("6", "5")


def test_replay_finds_changed_numbers_of_a_manifest(tables, tmp_path):
    folder = shutil.copytree(tables, tmp_path / "out")
    about = json.loads((folder / "survey.json").read_text())
    for name in TABLES:
        about["tables"][name]["rows"] += 1
    about["catalogue"]["systems"] -= 1
    (folder / "survey.json").write_text(json.dumps(about))
    places = [one.place for one in survey_replay.replay_survey(folder, sample=1).differences]
    assert {f"survey.json: rows of the table {name}" for name in TABLES} < {*places}
    assert "survey.json: number of systems in the catalogue" in places


def test_a_name_that_is_refused_is_a_failure_of_its_trajectory(copied, tmp_path):
    rows = [
        ["good", "core/top.pdb", "core/1/md.xtc"],
        ["bad", "core/top.pdb", "ftp://server/md.xtc"],
    ]
    found = run(catalogue(copied, rows), tmp_path / "tables", pattern=None)
    assert found.failures.column("id").to_pylist() == ["bad"]
    assert "ftp://server/md.xtc" in found.failures.column("message").to_pylist()[0]
    assert set(found.quantities.column("id").to_pylist()) == {"good"}


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["α", None, "", "b"], "string"),
        ([True, None, False], "bool"),
        ([1, -(2**62), None], "int64"),
        ([0.5, None, float("inf"), 3], "double"),
        ([], "string"),
        (np.arange(4)[::2], "int64"),
    ],
)
def test_arrays_are_those_of_pyarrow(values, kind):
    arrow = survey_result_encoding.need_arrow()
    found = survey_result_encoding.arrow_array(values, kind)
    found.validate(full=True)
    assert found.equals(arrow.array(values, kind, from_pandas=False))


def test_a_survey_does_not_import_pandas(copied, tmp_path):
    names = [str(copied), str(tmp_path / "out"), BATTERY]
    code = f"""
import sys, paceline
folder, output, battery = {names!r}
options = {{"pattern": "{{id}}/{{replica}}/md.xtc", "battery": battery, "backend": "serial"}}
paceline.survey(folder, output, **options)
print("pandas" in sys.modules)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["False"]


def test_few_systems_are_divided_among_the_workers(copied, tmp_path, monkeypatch):
    tasks = []
    before = surveys._SurveyRun._run_tasks

    def noted(self, workers, batches, bar):
        tasks.append([len(one) for one in batches])
        before(self, workers, batches, bar)

    monkeypatch.setattr(surveys._SurveyRun, "_run_tasks", noted)
    monkeypatch.setattr(surveys, "TASKS", 2)
    run(copied, tmp_path / "out")
    run(copied, tmp_path / "two", backend="processes", n_workers=2)
    assert tasks == [[3, 3], [1] * 6]


def test_frames_in_an_array_are_replayed(copied, tmp_path):
    found = run(copied, tmp_path / "out", frames=np.array([1, 5, 9]))
    assert survey_replay.replay_survey(found.folder, sample=1).verdict == "equal"


def test_a_changed_version_in_a_manifest_is_mended(copied, tmp_path):
    found = run(copied, tmp_path / "out")
    manifest = found.folder / "survey.json"
    was = manifest.read_text()
    manifest.write_text(was.replace(f'"paceline": "{paceline.__version__}"', '"paceline": "0.0.9"'))
    assert paceline.open_survey(found.folder).facts["paceline"] == "0.0.9"
    run(copied, tmp_path / "out")
    assert manifest.read_text() == was


def molecule(mass):
    """Return a GROMACS topology of a molecule with two atoms."""
    return f"[ moleculetype ]\nM 3\n[ atoms ]\n1 C 1 MOL C1 1 0.0 {mass}\n2 C 1 MOL C2 1 0.0 1.0\n"


@pytest.fixture
def including(tmp_path):
    """Catalogue of two trajectories whose topologies include the file of a molecule."""
    folder = tmp_path / "including"
    folder.mkdir()
    (folder / "m.itp").write_text(molecule(1.0))
    system = "[ system ]\nx\n[ molecules ]\nM 1\n"
    (folder / "t.itp").write_text(f'#include "m.itp"\n{system}')
    universe = MDAnalysis.Universe.empty(2, trajectory=True)
    with MDAnalysis.Writer(f"{folder / 't.xtc'}", 2) as writer:
        for k in range(5):
            universe.atoms.positions = [[0, 0, 0], [10 + k, 0, 0]]
            writer.write(universe.atoms)
    return catalogue(folder, [("a", "t.itp", "t.xtc"), ("b", "t.itp", "t.xtc")])


def test_a_changed_included_file_is_noticed(including, tmp_path):
    options = {"pattern": None, "battery": {"gyration": {"select": "all"}}}
    found = run(including, tmp_path / "out", **options)
    assert len(found.quantities) > 0
    before = content(found.folder)
    for number in (1, 2):
        run(including, tmp_path / "shards", shard=(number, 2), **options)
    (including.parent / "m.itp").write_text(molecule(50.0))
    with pytest.raises(UnsupportedError, match="2 results of 2 are missing"):
        run(including, tmp_path / "shards", merge=True, **options)
    after = content(run(including, tmp_path / "out", **options).folder)
    assert after != before
    assert after == content(run(including, tmp_path / "fresh", **options).folder)


def test_parts_that_match_a_pattern_repeat_no_frames(copied, tmp_path):
    universe = MDAnalysis.Universe(f"{copied / 'lid/top.pdb'}", f"{copied / 'lid/1/md.xtc'}")
    for name, frames in (("md.part9.xtc", slice(0, 21)), ("md.part10.xtc", slice(20, 40))):
        universe.atoms.write(f"{copied / name}", frames=frames)
    rows = [
        ("parts", "lid/top.pdb", "md.part9.xtc;md.part10.xtc"),
        ("pattern", "lid/top.pdb", "md.part*.xtc"),
    ]
    found = run(catalogue(copied, rows), tmp_path / "out", pattern=None)
    assert [one["n_frames"] for one in found.systems.to_pylist()] == [40, 40]
    assert len(found.failures) == 0
    parts, pattern = (rows_of(found.series, id=name) for name, *_ in rows)
    assert [one["value"] for one in parts] == [one["value"] for one in pattern]


def test_standard_deviations_are_those_of_the_rows_of_the_mean(copied, tmp_path):
    universe = MDAnalysis.Universe(f"{copied / 'lid/top.pdb'}", f"{copied / 'lid/1/md.xtc'}")
    with MDAnalysis.Writer(f"{copied / 'md.xtc'}", universe.atoms.n_atoms) as writer:
        for frame in [*range(20), 19, *range(20, 40)]:
            step = universe.trajectory[frame]
            if frame == 19:
                universe.atoms.positions *= 1.2
            step.time = float(frame)
            writer.write(universe.atoms)
    path = catalogue(copied, [("a", "lid/top.pdb", "md.xtc")])
    battery = {"gyration": {"select": "name CA"}}
    found = run(path, tmp_path / "out", pattern=None, battery=battery)
    row = rows_of(found.quantities)[0]
    values = np.array([one["value"] for one in rows_of(found.series, quantity=row["quantity"])])
    start = row["equilibrated_from"]
    used = np.delete(values, 20)[int(start) if start == start else 0 :]
    assert row["n"] == len(used)
    assert row["mean"] == pytest.approx(used.mean(), rel=1e-12)
    assert row["standard_deviation"] == pytest.approx(used.std(ddof=1), rel=1e-12)


def test_shards_of_different_folders_are_not_merged(copied, tmp_path):
    second = shutil.copytree(copied, tmp_path / "second")
    run(copied, tmp_path / "out", shard=(1, 2))
    run(second, tmp_path / "out", shard=(2, 2))
    for options in ({"merge": True}, {}):
        with pytest.raises(UnsupportedError, match=f"results of trajectories in {copied}"):
            run(second, tmp_path / "out", **options)
    with pytest.raises(UnsupportedError, match=f"results of trajectories in {second}"):
        run(copied, tmp_path / "out", shard=(2, 2))
    # The results of a folder that was moved remain valid.
    run(copied, tmp_path / "moved", shard=(1, 1))
    copied.rename(tmp_path / "elsewhere")
    found = run(tmp_path / "elsewhere", tmp_path / "moved", merge=True)
    assert len(found.systems) == 6
    assert "folder" not in found.systems.column_names


def test_a_folder_without_a_topology_is_a_failure(copied, tmp_path):
    (copied / "core" / "top.pdb").rename(copied / "core" / "top.other")
    found = run(copied, tmp_path / "out")
    assert {one["id"] for one in found.failures.to_pylist()} == {"core"}
    assert "core/1/md.xtc: no topology in its folder or above" in one_message(found)
    assert len(mean_rmsd(found, id="lid")) == 3
    assert survey_replay.replay_survey(found.folder, sample=6).verdict == "equal"
    for name in ("a.pdb", "b.pdb"):
        shutil.copy(copied / "lid" / "top.pdb", copied / "core" / name)
    found = run(copied, tmp_path / "out")
    assert "core: it contains several topologies (a.pdb, b.pdb)" in one_message(found)
    for name in ("a.pdb", "b.pdb"):
        (copied / "core" / name).unlink()
    (copied / "core" / "top.other").rename(copied / "core" / "top.pdb")
    found = run(copied, tmp_path / "out")
    assert len(found.failures) == 0
    assert content(found.folder) == content(run(copied, tmp_path / "fresh").folder)


def one_message(found):
    return found.failures.to_pylist()[0]["message"]


def test_pages_of_outliers_leave_out_what_failed(copied, tmp_path):
    universe = MDAnalysis.Universe(f"{copied / 'lid/top.pdb'}", f"{copied / 'lid/1/md.xtc'}")
    for k in range(9):
        with MDAnalysis.Writer(f"{copied / f'{k}.xtc'}", universe.atoms.n_atoms) as writer:
            for _ in universe.trajectory[3 * k : 3 * k + 10]:
                universe.atoms.positions *= 1.5 if k == 8 else 1.0
                writer.write(universe.atoms)
    path = catalogue(copied, [(f"s{k}", "lid/top.pdb", f"{k}.xtc") for k in range(9)])
    # The cell that a radial distribution function needs is missing, which is noticed in its run.
    battery = {"gyration": {"select": "all"}, "rdf": {"select": "all"}, "rmsd": {"select": "nam"}}
    found = run(path, tmp_path / "out", pattern=None, battery=battery, pages=1)
    failures = {one["analysis"] for one in found.failures.to_pylist() if one["id"] == "s8"}
    assert failures == {"rdf", "rmsd"}
    [page] = (found.folder / "pages").iterdir()
    assert page.name == found.systems["key"].to_pylist()[8]
    assert [one.name for one in page.glob("*.csv")] == ["gyration.csv"]
    assert "<h1>s8</h1>" in (page / "index.html").read_text(encoding="utf-8")
    assert "Outliers were found in gyration: Rg." in text_of_page(found)


def text_of_page(found):
    return (found.folder / "index.html").read_text(encoding="utf-8")


def test_a_truncated_trajectory_is_named_on_the_page_and_by_the_command(
    copied, tmp_path, run_with_answer
):
    trajectory = copied / "core/1/md.xtc"
    os.truncate(trajectory, trajectory.stat().st_size - 100)
    found = run(copied, tmp_path / "out", pages=1)
    message = "core (1): core/1/md.xtc: frame 39"
    assert message in text_of_page(found)
    assert "the 39 frames before it can be read" in text_of_page(found)
    words = ["survey", copied, "--pattern", "{id}/{replica}/md.xtc", "-o", tmp_path / "out"]
    status, out, err = run_with_answer(*words, "--overwrite", "--json")
    assert status == 0, err
    assert f"paceline: warning: {message}" in err
    # Warnings of all systems follow those of single systems.
    first, *_, last = json.loads(out)["warnings"]
    assert first.startswith(message)
    assert last.startswith("6 systems, such as core (1): ")


def test_a_page_without_outliers_says_so(copied, tmp_path):
    few = run(copied, tmp_path / "few", pages=1)
    assert "Outliers are looked for only in groups of 8 systems or more." in text_of_page(few)
    rows = [(f"s{k}", "lid/top.pdb", f"lid/{k % 3 + 1}/md.xtc") for k in range(9)]
    battery = {"gyration": {"select": "name CA"}}
    path = catalogue(copied, rows)
    many = run(path, tmp_path / "many", pattern=None, battery=battery, pages=1)
    assert "No system is an outlier." in text_of_page(many)


def test_outliers_that_are_not_listed_are_counted():
    means = np.array([*np.linspace(0, 1, 30), 50, 60, 70, 80, 90, 100, 110])
    names = [(f"s{k}", "") for k in range(len(means))]
    texts = [""] * len(means)
    one = survey_page.Distribution("rmsd", "RMSD", "Å", names, texts, "linear", means, texts)
    shown = survey_page.page_section(one, {})
    assert [line[0] for line in shown.lines] == ["s36", "s35", "s34", "s33", "s32"]
    assert shown.remarks == ["2 outliers nearer to the median not listed"]


LARGEST = 2**63 - 1


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ((f"{LARGEST}", "-5"), [LARGEST, -5]),
        ((f"{LARGEST + 1}", "1"), [f"{LARGEST + 1}", "1"]),
        ((f"{2**53}", "1.5"), [float(2**53), 1.5]),
        ((f"{2**53 + 1}", "1.5"), [f"{2**53 + 1}", "1.5"]),
        (("9" * 400, "1"), ["9" * 400, "1"]),
        (("9" * 5000, "1"), ["9" * 5000, "1"]),
        (("9" * 400 + ".0", "1"), ["9" * 400 + ".0", "1"]),
    ],
)
def test_numbers_that_no_type_represents_stay_text(copied, tmp_path, cells, expected):
    rows = [(f"{k}", "lid/top.pdb", "lid/1/md.xtc", cell) for k, cell in enumerate(cells)]
    path = catalogue(copied, rows, titles=("id", "topology", "trajectory", "accession"))
    assert [one.columns["accession"] for one in read_catalogue(path).entries] == expected
    found = run(path, tmp_path / "out", pattern=None, battery={"gyration": {"select": "all"}})
    assert found.systems["accession"].to_pylist() == expected


def test_large_numbers_of_toml_catalogues(copied, tmp_path):
    row = "[[trajectories]]\nid = {}\ntopology = 'lid/top.pdb'\ntrajectory = 'lid/1/md.xtc'\n"
    text = f"{row.format(1)}count = {2**64}\nx = {2**53 + 1}\n{row.format(2)}count = 1\nx = 1.5\n"
    (copied / "c.toml").write_text(text)
    battery = {"gyration": {"select": "all"}}
    found = run(copied / "c.toml", tmp_path / "out", pattern=None, battery=battery)
    assert found.systems["count"].to_pylist() == [f"{2**64}", "1"]
    assert found.systems["x"].to_pylist() == [f"{2**53 + 1}", "1.5"]
    (copied / "c.toml").write_text(f"{row.format(1)}count = {'9' * 5000}\n")
    with pytest.raises(UnsupportedError, match="not valid TOML: Exceeds the limit"):
        read_catalogue(copied / "c.toml")


TABLE = "id,topology,trajectory,note\na,t.pdb,x.xtc,n\n"


@pytest.mark.parametrize(
    "text",
    [
        TABLE.replace(",", ", "),
        TABLE.replace(",", " , "),
        TABLE.replace(",", ", ").replace("x.xtc", '"x.xtc"'),
        TABLE.replace("x.xtc", "x.xtc;"),
        TABLE.replace("x.xtc", " ;x.xtc; "),
    ],
)
def test_blanks_and_empty_parts_of_cells_have_no_meaning(tmp_path, text):
    (tmp_path / "c.csv").write_text(TABLE)
    expected = read_catalogue(tmp_path / "c.csv")
    (tmp_path / "c.csv").write_text(text)
    assert read_catalogue(tmp_path / "c.csv") == expected


@pytest.mark.parametrize(
    ("ending", "text", "message"),
    [
        (".csv", TABLE.replace(",", ";"), "cells are separated by ';': expected ','"),
        (".csv", TABLE.replace(",", "\t"), r"cells are separated by '\\t': expected ','"),
        (".tsv", TABLE, r"cells are separated by ',': expected '\\t'"),
        (".csv", TABLE.replace("x.xtc,n", 'x.xtc,"n'), "check that each quotation mark is closed"),
        (".csv", TABLE.replace("x.xtc", ";"), "row 1: column 'trajectory': expected a text"),
    ],
)
def test_tables_of_another_format_are_refused(tmp_path, ending, text, message):
    (tmp_path / f"c{ending}").write_text(text)
    with pytest.raises(UnsupportedError, match=message):
        read_catalogue(tmp_path / f"c{ending}")


def test_columns_of_parquet_catalogues(tmp_path):
    import pyarrow
    from pyarrow import parquet

    columns = {"id": ["a", "a"], "topology": ["t", "t"], "trajectory": ["x", "y"]}
    table = pyarrow.table({**columns, "replica": [1.0, 2.0]})
    parquet.write_table(table, tmp_path / "c.parquet")
    found = read_catalogue(tmp_path / "c.parquet")
    assert [one.replica for one in found.entries] == ["1", "2"]
    table = pyarrow.table({**columns, "replica": [1.5, 2.0]})
    parquet.write_table(table, tmp_path / "c.parquet")
    with pytest.raises(UnsupportedError, match=r"column 'replica': expected a text, found 1\.5"):
        read_catalogue(tmp_path / "c.parquet")
    twice = pyarrow.table([["a"], ["t"], ["x"], ["y"]], [*columns, "trajectory"])
    parquet.write_table(twice, tmp_path / "c.parquet")
    with pytest.raises(UnsupportedError, match="two columns have the title 'trajectory'"):
        read_catalogue(tmp_path / "c.parquet")


@pytest.mark.parametrize("without", [[3], range(10)], ids=["one frame", "all frames"])
def test_positions_that_are_not_numbers(copied, tmp_path, without):
    universe = MDAnalysis.Universe(f"{copied / 'lid/top.pdb'}", f"{copied / 'lid/1/md.xtc'}")
    with MDAnalysis.Writer(f"{copied / 'md.dcd'}", universe.atoms.n_atoms) as writer:
        for step in universe.trajectory[:10]:
            if step.frame in without:
                universe.atoms.positions = np.full((len(universe.atoms), 3), np.nan)
            writer.write(universe.atoms)
    path = catalogue(copied, [("a", "lid/top.pdb", "md.dcd")])
    battery = {name: {"select": "name CA"} for name in ("gyration", "rmsd", "rmsf")}
    found = run(path, tmp_path / "out", pattern=None, battery=battery)
    failures = {one["analysis"]: one["message"] for one in found.failures.to_pylist()}
    reason = "none of its values is a finite number: check the positions for NaN"
    if len(without) == 1:
        assert failures == {"rmsf": reason}
        assert [one["n"] for one in found.quantities.to_pylist()][:2] == [9, 9]
    else:
        assert failures.keys() == {"gyration", "rmsd", "rmsf"}
        assert failures["gyration"] == failures["rmsf"] == reason
        assert failures["rmsd"].startswith("RMSD raised on frames 0 to 9: ValueError: a reference")
