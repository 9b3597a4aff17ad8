"""The catalogue of analyses: what classes declare, and what commands and batteries read of it."""

import importlib
import re
from pathlib import Path

import pytest
from test_cli import document

import paceline
from paceline.analysis import declared
from paceline.analysis.battery import FROM_RESULTS, NAMES, SYSTEMS, class_of
from paceline.analysis.catalogue import FILE, catalogue

#: Modules of MDAnalysis that only name the package which has their classes now.
MOVED = ("waterdynamics",)


def test_the_file_is_what_the_classes_say():
    path = Path(paceline.analysis.__path__[0]) / FILE
    assert path.read_text(encoding="utf-8") == declared.text(), "write it with: make catalogue"


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
    assert re.search(r"^gyration +gyration.Gyration +radius .* whole molecules", out, re.MULTILINE)


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
