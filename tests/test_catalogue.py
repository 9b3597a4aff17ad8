"""Tests of the catalogue of analyses: declarations of classes, and the commands and batteries made
from them.
"""

import importlib
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from helpers.analyses import ANALYSES
from helpers.toy_analysis import ToyExtent
from test_cli import document

import paceline
from paceline.analysis import write_catalogue
from paceline.analysis.battery import Battery
from paceline.analysis.battery_definitions import SYSTEMS
from paceline.analysis.described_analyses import FROM_RESULTS, NAMES, class_of
from paceline.cli.analysis_commands import Command
from paceline.cli.parser_and_file_arguments import CommandParser, resolve_files
from paceline.contract.read_catalogue import FILE, catalogue

ROOT = Path(__file__).parents[1]
#: Modules of MDAnalysis whose classes moved to another package.
MOVED = ("waterdynamics",)


def test_the_file_is_what_the_classes_say():
    assert FILE.read_text(encoding="utf-8") == write_catalogue.text(), (
        "write it with: make catalogue"
    )


@pytest.mark.parametrize("name", write_catalogue.TEXTS)
def test_a_page_of_the_manual_is_what_the_classes_say(name):
    page, made = (ROOT / "docs" / name).read_text(encoding="utf-8"), write_catalogue.TEXTS[name]()
    assert page.count(write_catalogue.MARKS[0]) == page.count(write_catalogue.MARKS[1]) == 1
    assert page == write_catalogue.with_text(page, made), "write it with: make catalogue"


@pytest.mark.parametrize("entry", catalogue().values(), ids=lambda entry: entry["name"])
def test_an_entry_names_what_exists(entry):
    if entry["name"] in NAMES:
        assert class_of(entry["name"]) is class_of(entry["class"])
        assert vars(class_of(entry["name"]))["declaration"].name == entry["name"]
    assert {one["system"] for one in entry["batteries"]} <= SYSTEMS.keys()
    module, _, name = entry["counterpart"].rpartition(".")
    if module and module not in MOVED:
        assert hasattr(importlib.import_module(f"MDAnalysis.analysis.{module}"), name)
    assert entry["results"] or entry["name"] in FROM_RESULTS


def test_numbers_with_a_unit_have_it_in_help():
    with_unit = [
        option
        for entry in catalogue().values()
        for option in entry["options"]
        if option.get("type") == "float" and option.get("metavar") != "T"
    ]
    assert len(with_unit) > 10
    for option in with_unit:
        assert re.search(r", (Å²?|K|degrees)\b|, Å", option["help"]), option


def test_analyses_are_listed(run):
    status, out, _ = run("analyses")
    head, *rows = out.splitlines()
    assert status == 0
    assert head.split() == ["name", "class", "computes", "needs"]
    assert {row.split()[0] for row in rows} == catalogue().keys()
    for row, entry in zip(rows, catalogue().values(), strict=True):
        words = (entry["name"], entry["class"], entry["summary"], ", ".join(entry["needs"]))
        assert row.split() == " ".join(words).split()
    assert sum("whole molecules" in row for row in rows) > 5


def test_analyses_are_listed_as_json(run):
    status, out, _ = run("analyses", "--json")
    found = {one["name"]: one for one in document(out, "analyses")["analyses"]}
    assert (status, found) == (0, catalogue())
    cutoff = next(one for one in found["contacts"]["parameters"] if one["name"] == "radius")
    assert (cutoff["default"], cutoff["unit"], cutoff["required"]) == (4.5, "Å", False)
    [rmsd] = (one for one in found["align"]["results"] if one["name"] == "rmsd")
    assert (rmsd["type"], rmsd["unit"]) == ("numpy.ndarray of float64, shape (n_frames,)", "Å")
    [choices] = (one["choices"] for one in found["sasa"]["parameters"] if one["name"] == "compound")
    assert choices == ["group", "residues", "atoms"]


def test_every_declared_analysis_has_a_case():
    """Check that every declared analysis has a case. Cases run on each backend, without velocities
    and without a cell.
    """
    having = {name.partition(",")[0].partition(" ")[0] for name in ANALYSES}
    lacking = {
        entry["class"].partition(".")[2]
        for entry in catalogue().values()
        if entry["in_batteries"] and not {"velocities", "a cell"} & {*entry["needs"]}
    }
    assert lacking <= having, f"tests/helpers/analyses.py has no case of {lacking - having}"


@pytest.fixture
def parser():
    """Parser of the command for an analysis that exists only in tests."""
    parser = CommandParser(prog="paceline")
    Command(write_catalogue.entry_of(ToyExtent)).add(parser.add_subparsers())
    return parser


def test_a_toy_analysis_has_a_command(parser, adk, tmp_path):
    table = tmp_path / "extent.csv"
    words = ["toy-extent", *adk, "--axis", "x", "--no-pbc", "--end", "5", "-o", str(table)]
    args = parser.parse_args(words)
    args.command_line = "paceline toy"
    assert (args.select, args.axis, args.least, args.factor) == ("protein and name CA", "x", 0, 1)
    resolve_files(args)
    args.run(args)
    atoms = paceline.Universe(*adk).select_atoms("protein and name CA")
    wanted = ToyExtent(atoms, axis="x").run(stop=5).results.extent
    read = pd.read_csv(table, comment="#", float_precision="round_trip")
    np.testing.assert_array_equal(read["extent (Å)"], wanted)
    assert "# axis: x\n" in table.read_text(encoding="utf-8")


def test_help_of_a_toy_analysis_is_read_from_its_class(parser, capsys):
    with pytest.raises(SystemExit):
        parser.parse_args(["toy-extent", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "--axis {x,y,z} axis of the laboratory along which the extent is measured [z]" in text
    assert "--least Å smallest extent that counts, Å [0]" in text
    assert "--factor N factor of all extents [1]" in text
    assert "--no-pbc use positions unchanged" in text
    assert "Extent of atoms along an axis." in text
    assert "paceline toy-extent adk.psf adk.dcd --axis x -o extent.csv" in text


@pytest.mark.parametrize("wrong", [["--axis", "w"], ["--least", "far"], ["--factor", "0"]])
def test_options_of_a_toy_analysis_are_checked(wrong, parser, capsys):
    with pytest.raises(SystemExit):
        parser.parse_args(["toy-extent", "adk.psf", "adk.dcd", *wrong])
    assert f"{wrong[0]}: " in capsys.readouterr().err


def test_a_toy_analysis_in_a_battery(adk):
    universe = paceline.Universe(*adk)
    given = {"toy-extent": {"select": "name CA", "axis": "y"}}
    battery = Battery(given, universe).run(stop=3)
    one = battery.analyses["toy-extent"]
    kept = {"axis": "y", "least": 0, "factor": 1}
    assert one.parameters().items() >= kept.items()
    assert one.results.provenance.items() >= {"analysis": "ToyExtent", **kept}.items()
    assert battery.to_toml() == '[toy-extent]\nselect = "name CA"\naxis = "y"\n'


def test_an_entry_of_a_toy_analysis():
    entry = write_catalogue.entry_of(ToyExtent)
    assert entry["description"] == "Extent of atoms along an axis."
    [axis] = (one for one in entry["parameters"] if one["name"] == "axis")
    assert (axis["choices"], axis["default"]) == (["x", "y", "z"], "z")
    [least] = (one for one in entry["parameters"] if one["name"] == "least")
    assert (least["unit"], least["default"]) == ("Å", 0.0)
    assert [one["name"] for one in entry["results"]] == ["extent"]
    assert entry["batteries"][0]["name"] == "toy-extent"


def test_an_option_without_help_is_refused():
    class Mute(ToyExtent):
        """Analysis whose parameters are not documented."""

        declaration = replace(ToyExtent.declaration, name="mute")

    with pytest.raises(ValueError, match="Mute: option axis has no help, and no docstring"):
        write_catalogue.entry_of(Mute)


def test_the_tutorial_makes_an_analysis(adk, tmp_path, monkeypatch):
    """Check the class in CONTRIBUTING.md, in a module that workers can import."""
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    [code] = re.findall(r"```python\n(\"\"\"End-to-end.*?)```", page, re.DOTALL)
    (tmp_path / "endtoend.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    cls = importlib.import_module("endtoend").EndToEnd
    universe = paceline.Universe(*adk)
    battery = Battery({"end-to-end": {"select": "name CA", "pbc": False}}, universe).run(stop=9)
    atoms = universe.select_atoms("name CA")
    wanted = [np.linalg.norm(np.ptp(atoms.positions[[0, -1]], axis=0)) for _ in universe.trajectory]
    found = battery.analyses["end-to-end"].results.distance
    np.testing.assert_allclose(found, wanted[:9], rtol=1e-6)
    entry = write_catalogue.entry_of(cls)
    assert entry["needs"] == ["whole molecules"]
    assert [option["flag"] for option in entry["options"]] == ["--no-pbc"]
    assert entry["description"] == "Distance between the first and the last atom of a chain."
