"""Tests of the JSON documents of commands, of their schema, and of errors and progress as JSON."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match
from MDAnalysisTests.datafiles import DCD2, H5MD_xvf
from test_cli import document

import paceline
from paceline.analysis.rms import RMSD
from paceline.cli.json_output import SCHEMA_VERSION, Answer, answer_with, failure_of, in_json
from paceline.cli.json_output_schema import schema_of
from paceline.cli.mcp_tools import command_parsers, documents
from paceline.contract.read_catalogue import catalogue
from paceline.errors import DamagedFileError, UnsupportedError, with_hint

#: Commands without --json: they print something else, or serve other programs.
WITHOUT = {"schema", "mcp", "relay"}
#: Classes whose objects may have more keys: those of HDF5 datasets, and those of the command.
OPEN = {"DescribedFile", "FailedDocument"}


@pytest.fixture(scope="module")
def schema():
    return schema_of(documents())


@pytest.fixture(scope="module")
def strict(schema):
    """Schema in which objects have no other keys than the declared ones."""
    closed = json.loads(json.dumps(schema))
    for name, one in closed["$defs"].items():
        if name not in OPEN:
            one["additionalProperties"] = False
    return Draft202012Validator(closed)


@pytest.fixture
def answered(run, strict):
    """Run a command with --json; return its document, which fits the schema of the command."""

    def answered(*arguments, status=0):
        found, out, err = run(*arguments, "--json")
        assert found == status, err
        answer = json.loads(out)
        error = best_match(strict.iter_errors(answer))
        assert error is None, f"{error.json_path}: {error.message[:500]}"
        assert (answer["schema"], answer["command"]) == (SCHEMA_VERSION, arguments[0])
        assert answer["paceline"] == paceline.__version__
        assert answer["seconds"] >= 0
        return answer

    return answered


def test_every_command_has_a_document(schema):
    Draft202012Validator.check_schema(schema)
    assert command_parsers().keys() - documents().keys() == WITHOUT


def test_the_schema_of_one_command(run, schema):
    status, out, _ = run("schema", "rmsd")
    assert status == 0
    one = json.loads(out)
    assert (one["$id"], one["$schema"]) == (schema["$id"], schema["$schema"])
    assert {"AnalysisDocument", "ErrorFacts"} <= one["$defs"].keys() <= schema["$defs"].keys()
    assert json.loads(run("schema")[1]) == schema
    status, out, err = run("schema", "rmsf2")
    assert (status, out) == (2, "")
    assert "rmsf2: expected a command with --json: info, advise" in err


def test_what_the_schema_refuses(strict):
    good = {
        **{"schema": "1.0", "command": "split", "paceline": "1", "warnings": [], "written": []},
        **{"seconds": 0.5, "pieces": ["a.xtc"]},
    }
    assert strict.is_valid(good)
    for wrong in ({"pieces": [1]}, {"pieces": None}, {"seconds": "1"}, {"more": 1}):
        assert not strict.is_valid({**good, **wrong}), wrong
    for key in good:
        assert not strict.is_valid({name: one for name, one in good.items() if name != key})


def test_types_that_a_document_cannot_have():
    class Odd(dict):
        pass

    with pytest.raises(UnsupportedError, match="cannot describe"):
        schema_of({"odd": Odd})


def test_analysis(answered, adk, universe, tmp_path):
    table, figure = tmp_path / "rmsd.csv", tmp_path / "rmsd.png"
    found = answered("rmsd", *adk, "-o", table, "--plot", figure, "--n-workers", 1)
    assert found["written"] == [str(table), str(figure)]
    results = RMSD(universe.select_atoms("protein and name CA")).run().results
    [mean] = found["means"]
    [wanted] = results.means.values()
    assert (mean["series"], mean["unit"], mean["n_values"]) == ("RMSD (Å)", "Å", 98)
    assert mean["mean"] == wanted.mean
    assert mean["interval"] == [wanted.mean - wanted.interval, wanted.mean + wanted.interval]
    [sampling] = found["sampling"]
    assert sampling["verdict"] == "drifting"
    assert found["table"]["rows"] == 98
    last = found["table"]["columns"][-1]
    assert (last["name"], last["unit"]) == ("RMSD", "Å")
    assert last["maximum"] == results.rmsd[:, 2].max()
    assert found["summary"] == results.summary()
    assert found["provenance"]["trajectory"] == adk.trajectory
    assert (found["timings"]["frames"], found["timings"]["workers"]) == (98, 1)
    assert found["left_out_frames"] == []


def test_without_a_file_the_table_is_described_only(answered, adk, run):
    found = answered("rmsf", *adk, "--end", 5)
    assert (found["written"], found["table"]["rows"], found["means"]) == ([], 214, [])
    status, out, err = run("rmsf", *adk, "--json", "-o", "-")
    assert (status, "both print to standard output" in err) == (2, True)
    assert json.loads(out)["error"]["kind"] == "UnsupportedError"


def test_frames_that_were_left_out(answered, damaged):
    system, frames = damaged
    found = answered("rmsd", *system, "--on-error", "skip")
    assert [one["frame"] for one in found["left_out_frames"]] == frames


@pytest.mark.one_in(6)
@pytest.mark.parametrize(
    "name", [one["name"] for one in catalogue().values() if one["has_command"]]
)
def test_each_analysis(name, answered, adk_xtc, tmp_path, run):
    further = {
        "align": ["-o", tmp_path / "fitted.xtc"],
        "angles": ["--select-2", "name CB", "--select-3", "name CA"],
    }
    entry = catalogue()[name]
    if (entry["groups"] and name not in further) or not (entry["select"] or name == "align"):
        pytest.skip("needs selections")
    if {"velocities", "a cell"} & {*entry["needs"]}:
        pytest.skip("needs another system")
    selection = ["--select", "name CA"] if "angles" in name else []
    arguments = [name, *adk_xtc, "--end", "4", *selection, *further.get(name, [])]
    plain = run(*arguments)
    if plain[0]:
        answer = json.loads(run(*arguments, "--json", "--overwrite")[1])
        assert answer["error"]["message"] in plain[2]
        return
    found = answered(*arguments, "--overwrite")
    assert found["analysis"]
    assert found["timings"]["frames"] > 0


def test_files(answered, adk, adk_in_water, tmp_path):
    path = shutil.copy(adk_in_water.trajectory, tmp_path)
    [made] = answered("index", path)["files"]
    assert made["frames"] == 10
    system, water = answered("info", adk_in_water.topology, path)["files"]
    assert (system["atoms"], water["frames"]) == (47681, 10)
    [hdf5] = answered("info", H5MD_xvf)["files"]
    assert hdf5["bytes_read_for_each_used"]
    found = answered("split", path, "-n", 2)
    assert found["written"] == found["pieces"]
    joined = tmp_path / "joined.xtc"
    found = answered("join", *found["pieces"], "-o", joined)
    assert found["output"] == str(joined)
    assert found["size_bytes"] == joined.stat().st_size
    assert answered("validate", path)["bad"] is False
    converted = tmp_path / "md.h5md"
    found = answered("convert", *adk, converted, "--select", "name CA", "--end", 5)
    assert (found["frames"], found["atoms"], found["written"]) == (5, 214, [str(converted)])
    found = answered("repack", converted, tmp_path / "atoms.h5md", "--for", "atoms")
    assert found["datasets"][0]["costs"][0]["access"] == "frame by frame"


def test_tables(answered, adk, tmp_path, run):
    rmsd, gyration = tmp_path / "rmsd.csv", tmp_path / "gyration.csv"
    timings = tmp_path / "run.csv"
    assert run("rmsd", *adk, "-o", rmsd, "--report", timings)[0] == 0
    assert run("gyration", *adk, "-o", gyration)[0] == 0
    figure = tmp_path / "both.png"
    assert answered("plot", rmsd, "-o", figure)["written"] == [str(figure)]
    surface = answered("surface", rmsd, gyration, "-o", tmp_path / "surface.npz")
    assert surface["written"] == [str(tmp_path / "surface.npz")]
    series = answered("convergence", rmsd, gyration)["series"]
    assert series[0]["series"] == f"{rmsd}: RMSD (Å)"
    chosen = tmp_path / "near.xtc"
    found = answered("frames", rmsd, "--where", "rmsd < 2", "-o", chosen)
    assert found["columns"] == ["frame", "time (ps)", "RMSD (Å)"]
    assert found["frames"] == len(found["rows"]) > 0
    assert answered("report", timings)["written"] == [str(tmp_path / "run.html")]
    log = tmp_path / "energies.csv"
    lines = [f"{k},{300 + k % 3}" for k in range(10)]
    log.write_text("\n".join(['#"Time (ps)","Temperature (K)"', *lines]))
    found = answered("energy", log)
    assert [one["unit"] for one in found["means"]] == ["K"]


def test_batteries(answered, adk, tmp_path):
    battery = tmp_path / "battery.toml"
    battery.write_text('[rmsd]\nselect = "name CA"\n\n[gyration]\nselect = "name CA"\n')
    files = ["-s", adk.topology, "-f", adk.trajectory, "--end", 20]
    found = answered("run", battery, *files, "-o", tmp_path / "results")
    assert [one["name"] for one in found["analyses"]] == ["rmsd", "gyration"]
    assert found["page"] == str(tmp_path / "results" / "index.html")
    assert {found["page"], str(tmp_path / "results" / "rmsd.csv")} <= {*found["written"]}
    replicas = ["-s", adk.topology, "-f", adk.trajectory, "--group", DCD2, "--names", "a", "b"]
    found = answered("run", battery, *replicas, "--end", 20, "-o", tmp_path / "groups")
    assert [one["group"] for one in found["analyses"]] == ["a", "a", "b", "b"]
    assert {one["group"] for one in found["group_means"]} == {"a", "b"}
    means = {(one["group"], one["series"]): one["mean"] for one in found["group_means"]}
    series = found["differences"][0]["series"]
    difference = found["differences"][0]["difference"]
    assert difference == means["b", series] - means["a", series] != 0


def test_speed(answered, adk, tmp_path):
    found = answered("predict", "--frames", 1000, "--bytes", "12kB", "--n-workers", 4)
    assert [one["workers"] for one in found["predictions"]] == [1, 2, 4]
    assert found["price"] is None
    assert answered("advise", *adk)["times"][0]["workers"] == 1
    found = answered("analyses")
    assert len(found["analyses"]) == len(catalogue())


@pytest.mark.full
def test_benchmarks(answered, adk):
    arguments = ("scaling", "rmsd", *adk, "--workers", "1", "--repeats", 1, "--end", "5")
    found = answered("bench", *arguments)
    assert [one["workers"] for one in found["runs"]] == [1]


def test_warnings_are_in_the_document(answered, adk):
    [text] = answered("info", adk.trajectory)["warnings"]
    assert "the header says 500 frames, the file has 98" in text


@pytest.fixture
def cut(adk_in_water, tmp_path):
    """Trajectory whose frame 5 is damaged."""
    path = tmp_path / "cut.xtc"
    data = bytearray(Path(adk_in_water.trajectory).read_bytes())
    at = len(data) // 2
    data[at : at + 4000] = bytes(4000)
    path.write_bytes(data)
    return path


def test_damage_is_an_error_with_file_frame_and_byte(answered, run, adk_in_water, cut):
    arguments = ("rmsd", adk_in_water.topology, cut)
    status, out, err = run(*arguments)
    assert (status, out) == (1, "")
    error = answered(*arguments, status=1)["error"]
    assert (error["kind"], error["file"]) == ("DamagedFileError", str(cut))
    assert f"frame {error['frame']}, byte {error['byte']}: expected" in error["message"]
    assert err.endswith(f"paceline: error: {error['message']}\n")
    assert error["hint"].startswith("--on-error skip leaves out damaged frames")


@pytest.mark.parametrize(
    ("arguments", "status", "wanted"),
    [
        (["info", "missing.xtc"], 2, {"kind": "FileNotFoundError", "file": "missing.xtc"}),
        (
            ["rmsd", "--nbins"],
            2,
            {"kind": "ArgumentError", "hint": "paceline rmsd --help explains"},
        ),
        (["rmsd", "ADK", "--select", "nothing at all"], 2, {"kind": "SelectionError"}),
        (["rmsd", "ADK", "--select", "Protien"], 2, {"hint": "did you mean Protein?"}),
        (["rmsd", "ADK", "-o", "taken.csv"], 2, {"kind": "FileExistsError", "file": "taken.csv"}),
        (["rmsd", "ADK", "-o", "no/rmsd.csv"], 2, {"file": "no/rmsd.csv"}),
        (["rmsd", "WATER"], 2, {"kind": "AtomCountError"}),
        (["info", "text.xtc"], 2, {"kind": "UnsupportedError", "file": "text.xtc"}),
        (["convergence", "text.csv"], 2, {"file": "text.csv"}),
    ],
)
def test_errors(arguments, status, wanted, answered, run, adk, adk_in_water, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("taken.csv", "text.xtc", "text.csv"):
        (tmp_path / name).write_text("not what it seems\n")
    systems = {"ADK": [*adk], "WATER": [adk.topology, adk_in_water.trajectory]}
    words = [word for one in arguments for word in systems.get(one, [one])]
    found, _, err = run(*words)
    error = answered(*words, status=status)["error"]
    assert found == status
    if arguments[0] == "info":  # trajectories are opened by absolute paths
        wanted = {**wanted, "file": str(tmp_path / wanted["file"])}
    assert {key: error[key] for key in wanted} == wanted
    assert error["message"] in err
    assert (error["frame"], error["byte"]) == (None, None)


def test_a_frame_without_data_is_an_error_with_file_and_frame(answered, moving):
    topology, path = moving
    error = answered("velocity-autocorrelation", topology, path, "--select", "all", status=1)[
        "error"
    ]
    assert (error["kind"], error["file"], error["frame"]) == ("MissingDataError", path, 1)
    assert error["hint"] == "--on-error skip leaves such frames out"


def test_errors_of_the_core_have_the_path(tmp_path):
    path = tmp_path / "text.xtc"
    path.write_text("nothing")
    with pytest.raises(UnsupportedError) as caught:
        paceline.open(path)
    assert (caught.value.path, caught.value.frame) == (str(path), None)


def test_an_error_beside_results(answered, adk, tmp_path):
    bad = tmp_path / "bad.xtc"
    bad.write_bytes(b"no trajectory")
    found = answered("info", bad, adk.trajectory, status=2)
    assert [one["file"] for one in found["files"]] == [str(bad), adk.trajectory]
    assert found["error"]["file"] == str(bad)


def test_facts_come_from_the_error_or_its_cause():
    damaged = DamagedFileError.in_object("a.xtc", "", "more", "less", offset=7)
    try:
        raise UnsupportedError("the rest is written") from damaged
    except UnsupportedError as error:
        found = failure_of(error, str(error))
    assert (found["kind"], found["file"], found["byte"]) == ("UnsupportedError", "a.xtc", 7)
    hinted = with_hint(UnsupportedError("no topology"), "add it")
    assert failure_of(hinted, "no topology; add it")["hint"] == "add it"


def test_values_that_json_lacks():
    values = {"a": np.float32(np.nan), "b": np.arange(2), "c": (np.inf, True, np.int64(3)), 4: None}
    assert in_json(values) == {"a": None, "b": [0, 1], "c": [None, True, 3], "4": None}


def test_outside_of_a_command_a_document_is_printed_at_once(capsys):
    answer_with("toy", {"numbers": [1]})
    assert document(capsys.readouterr().out, "toy")["numbers"] == [1]
    answer = Answer("toy")
    with answer.kept():
        answer_with("toy", {"numbers": [2]})
        assert capsys.readouterr().out == ""
    answer.print(["careful"])
    assert document(capsys.readouterr().out, "toy")["warnings"] == ["careful"]


def test_progress_as_json(adk, run, strict):
    status, out, err = run("rmsd", *adk, "--progress", "json", "--json")
    lines = [json.loads(line) for line in err.splitlines() if line.startswith("{")]
    assert status == 0
    assert all(strict.is_valid(line) for line in lines)
    ends = [one["progress"] for one in lines if one["progress"]["unit"] == "frame"]
    assert (ends[0]["done"], ends[-1]["done"], ends[-1]["total"]) == (0, 98, 98)
    assert json.loads(out)["command"] == "rmsd"


def test_no_progress(adk, run):
    assert "progress" not in run("rmsd", *adk, "--progress", "none")[2]


def test_ctrl_c_is_an_error(adk):
    code = (
        "import sys; from paceline.cli import command_line, facts_for_info\n"
        "def stop(*_): raise KeyboardInterrupt\n"
        "facts_for_info.facts_of = stop\n"
        f"sys.exit(command_line.main(['info', {adk.trajectory!r}, '--json']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "paceline: interrupted\n")
    assert json.loads(done.stdout)["error"]["kind"] == "KeyboardInterrupt"
