"""Tests that paceline needs nothing that MDAnalysis 3.0 removes; docs/developers has the list."""

import re
import sys
import warnings
from pathlib import Path

import MDAnalysis
import numpy as np
import pytest
from helpers.analyses import ANALYSES
from MDAnalysis.analysis.rms import RMSD
from MDAnalysisTests import datafiles

import paceline
from paceline import cli, transform
from paceline.analysis.rms import RMSF

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "developers" / "mdanalysis-3.md"
#: Modules that 3.0 removes, and that MDAnalysis itself does not import.
GONE = (
    *(f"analysis.{name}" for name in ("psa", "encore", "hole2", "waterdynamics", "legacy")),
    *("analysis.hbonds", "topology.tables"),
)
#: Words about changes in 3.0, in the sources of MDAnalysis.
OF_3 = re.compile(
    r"(?:remov|renam|chang)\w* (?!:)[^;:]{0,80}?(?<!\d\.)\b3\.0\b(?!\.[1-9])"
    r"|deprecated in version 3\.0",
    re.IGNORECASE,
)
#: Number of frames that lags and clusters require.
N_FRAMES = 12
FILES = {
    "DCD": (datafiles.PSF, datafiles.DCD),
    "XTC": (datafiles.GRO, datafiles.XTC),
    "TRR": (datafiles.TPR, datafiles.TRR),
    "TPR": (datafiles.TPR2026_0,) if hasattr(datafiles, "TPR2026_0") else (datafiles.TPR2024,),
    "PDB": (datafiles.PDB_small,),
    "NetCDF": (datafiles.PRM7, datafiles.NCDFtruncoct),
    "H5MD": (datafiles.TPR_xvf, datafiles.H5MD_xvf),
    "LAMMPS": (datafiles.LAMMPSdata2, datafiles.LAMMPSdcd2),
    "HISTORY": (datafiles.DLP_HISTORY,),
}
COMMANDS = {
    "rmsd": ["rmsd", "PSF", "DCD", "-o", "rmsd.csv", "--plot", "rmsd.png"],
    "rmsf": ["rmsf", "PSF", "DCD", "-o", "rmsf.csv", "--plot", "rmsf.pdf"],
    "rdf": ["rdf", "TPR", "XTC", "--select", "name OW", "-o", "rdf.csv", "--end", "2"],
    "hbonds": ["hbonds", "TPR", "XTC", "--select", "protein", "-o", "hbonds.csv", "--end", "2"],
    "sasa": ["sasa", "PSF", "DCD", "--select", "resid 1-20", "-o", "sasa.csv", "--end", "2"],
    "convert": ["convert", "DCD", "out.xtc", "--topology", "PSF", "--select", "protein"],
    "info": ["info", "PSF"],
}


@pytest.fixture(autouse=True)
def as_in_3(monkeypatch):
    """Remove from MDAnalysis what 3.0 removes, if possible; the rest raises warnings."""
    for name in GONE:
        monkeypatch.setitem(sys.modules, f"MDAnalysis.{name}", None)
    monkeypatch.setitem(MDAnalysis.Universe.__init__.__kwdefaults__, "to_guess", ())
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)
        warnings.simplefilter("error", PendingDeprecationWarning)
        yield


def test_what_3_removes_warns():
    u = paceline.Universe(datafiles.PSF, datafiles.DCD)
    with pytest.raises(DeprecationWarning, match="pbc"):
        u.atoms.center_of_mass(pbc=True)
    with pytest.raises(DeprecationWarning, match="asel"):
        u.trajectory.timeseries(u.atoms)
    assert not hasattr(MDAnalysis.Universe(datafiles.PDB_small).atoms, "masses")


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", ANALYSES)
def test_analyses(name, adk):
    case = ANALYSES[name]
    analysis = case.make(paceline.Universe(*adk)).run(stop=N_FRAMES)
    assert all(array is not None for array in case.results(analysis.results))


@pytest.mark.parametrize("kind", FILES)
def test_files(kind):
    """Guess masses and types if the topology lacks them."""
    u = paceline.Universe(*FILES[kind])
    assert (u.atoms.masses >= 0).all()
    assert len(u.atoms.types) == len(u.atoms)
    for ts in u.trajectory[:2]:
        assert np.isfinite(ts.positions).all()
    assert u.trajectory.timeseries(atomgroup=u.atoms[:2], stop=2, order="fca").shape[1:] == (3, 2)
    assert len(u.copy().select_atoms("index 0")) == 1


def test_bonds_are_guessed():
    given = paceline.Universe(datafiles.two_water_gro, guess_bonds=True)
    assert len(given.bonds) == 4
    wide = {"vdwradii": {"O": 0.1, "H": 0.1}, "fudge_factor": 0.5}
    assert len(paceline.Universe(datafiles.two_water_gro, guess_bonds=True, **wide).bonds) == 4


def test_transformations_and_registration():
    u = paceline.Universe(datafiles.TPR, datafiles.XTC)
    chosen = [transform.unwrap(), transform.center("protein"), transform.fit("backbone")]
    found = RMSF(u.select_atoms("name CA")).run(stop=3, transforms=chosen)
    assert np.isfinite(found.results.rmsf).all()
    with paceline.register():
        theirs = MDAnalysis.Universe(datafiles.PSF, datafiles.DCD)
        assert RMSD(theirs, select="name CA").run(stop=3).results.rmsd.shape == (3, 3)


@pytest.mark.parametrize("name", COMMANDS)
def test_commands(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = [getattr(datafiles, word, word) for word in COMMANDS[name]]
    assert cli.main(words) == 0, capsys.readouterr().err


def test_the_page_names_all_modules():
    text = PAGE.read_text("utf-8")
    root = Path(MDAnalysis.__file__).parent
    lacking = []
    for path in root.rglob("*.py"):
        words = re.sub(r"[\s\"#]+", " ", path.read_text("utf-8"))
        name = ".".join(path.relative_to(root).with_suffix("").parts)
        if OF_3.search(words) and not any(
            name == one or name.startswith(f"{one}.") for one in re.findall(r"`([\w.]+)`", text)
        ):
            lacking.append(name)
    assert lacking == []


def test_sources_import_none_of_what_goes():
    sources = [path.read_text("utf-8") for path in (ROOT / "python").rglob("*.py")]
    gone = [*GONE, "lib.util import which", "align import sequence_alignment", "bfactors"]
    found = [(name, text) for name in gone for text in sources if f"MDAnalysis.{name}" in text]
    assert found == []
