"""Commands of analyses that come from one table."""

import numpy as np
import pandas as pd
import pytest

import paceline
from paceline.analysis.dihedrals import ChiAngles, Ramachandran
from paceline.analysis.dssp import DSSP
from paceline.analysis.gyration import Gyration
from paceline.analysis.hydrogenbonds import HydrogenBondAnalysis
from paceline.analysis.pca import PCA
from paceline.analysis.sasa import SASA
from paceline.cli.standard_commands import COMMANDS

CLASSES = {
    "gyration": Gyration,
    "ramachandran": Ramachandran,
    "chi": ChiAngles,
    "dssp": DSSP,
    "hbonds": HydrogenBondAnalysis,
    "sasa": SASA,
    "pca": PCA,
}
#: Atoms of which an analysis is quick.
FEW = {"sasa": "resid 1-3"}


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_each_computes_what_its_class_does(command, adk_xtc, tmp_path, run):
    select = FEW.get(command.name, command.select)
    table, figure = tmp_path / "table.tsv", tmp_path / "figure.svg"
    arguments = ["--select", select, "-o", table, "--plot", figure, "--end", 5]
    status, out, err = run(command.name, *adk_xtc, *arguments)
    assert (status, out, err) == (0, "", "")
    universe = paceline.Universe(*adk_xtc)
    options = {name: given["default"] for name, given in command.options.items()}
    wanted = CLASSES[command.name](universe.select_atoms(select), **options).run(stop=5)
    found = pd.read_csv(table, sep="\t", comment="#", float_precision="round_trip")
    pd.testing.assert_frame_equal(found, wanted.results.to_dataframe(), check_exact=True)
    assert "<svg" in figure.read_text(encoding="utf-8")


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_each_explains_itself(command, run):
    status, out, _ = run(command.name, "--help")
    assert status == 0
    assert all(f"paceline {command.name} {example}" in out for example in command.examples)


def test_options_reach_the_class(adk_xtc, tmp_path, run):
    path = tmp_path / "rg.npz"
    assert run("gyration", *adk_xtc, "--compound", "residues", "-o", path, "--end", 2)[0] == 0
    assert np.load(path)["rg"].shape == (2, 214)
