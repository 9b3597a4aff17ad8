"""Tests that messages name the remedy, and describe atoms by names and residues."""

import re
import subprocess
import sys

import numpy as np
import pytest
from MDAnalysisTests.datafiles import DCD, GRO, PSF, TRZ

import paceline
from paceline.analysis.battery import Battery
from paceline.analysis.free_energy import free_energy_surface, series_of_tables
from paceline.analysis.polymer import Polymer
from paceline.analysis.replicas import Replicas
from paceline.analysis.rms import RMSD
from paceline.analysis.rotamers import Rotamers
from paceline.analysis.uncertainty import with_error
from paceline.errors import SelectionError, UnsupportedError
from paceline.transform import unwrap


@pytest.fixture
def protein():
    return paceline.Universe(PSF, DCD)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("info", TRZ), "MDAnalysis reads this format (TRZReader)"),
        (("gyration", PSF, DCD, "--group", "protein"), "for each group with --select; 'paceline"),
        (("rmsd", PSF, DCD, "--skip", "2"), "no option --skip: --step N takes every Nth frame"),
        (("rmsd", PSF, DCD, "--skip=2"), "--step N takes every Nth frame"),
        (("rmsd", PSF, DCD, "--unwrap"), "omit unwrap (--unwrap)"),
        (("gyration", PSF, DCD, "--unwrap"), "omit unwrap (--unwrap)"),
        (("order", GRO, "--select", "name OW"), "--guess-bonds"),
    ],
)
def test_commands(given, words, run):
    code, _, err = run(*given)
    assert code in (1, 2)
    assert words in err


def test_the_launcher_names_commands():
    told = subprocess.run(
        [sys.executable, "-m", "paceline", "--help"], capture_output=True, text=True, check=True
    )
    assert "python -m paceline command [its arguments]" in told.stdout
    assert "python -m paceline info md.xtc" in told.stdout


def test_scripts_name_the_structure_that_they_colour(run_with_answer, tmp_path):
    script = tmp_path / "coloured.cxc"
    code, _, err = run_with_answer("rmsf", PSF, DCD, "--end", "5", "-o", script)
    assert code == 0
    assert f"wrote {script}, {tmp_path / 'coloured.pdb'}" in err


def test_several_numbers_without_names(protein):
    series = paceline.TimeSeries(lambda block: block.positions[:, 0], protein.atoms).run(stop=2)
    with pytest.raises(UnsupportedError, match=r"label=\[…\] names the values of a frame"):
        series.results.whole_table()


def test_atoms_are_described_by_names(protein):
    with pytest.raises(SelectionError, match=r"the first is N of MET 1 4AKE \(index 0\)"):
        Polymer(protein.select_atoms("protein"))


def test_a_frame_without_a_cell(protein):
    with pytest.raises(Exception, match=r"omit unwrap \(--unwrap\)"):
        RMSD(protein).run(stop=2, transforms=[unwrap()])


def test_intervals_of_fractions_leave_something_out(protein):
    found = Rotamers(protein.select_atoms("protein")).run().results
    p, (low, high) = found.populations, np.moveaxis(found.intervals, -1, 0)
    known = ~np.isnan(low)
    assert known.any()
    assert (low[known] <= p[known]).all()
    assert (p[known] <= high[known]).all()
    assert (high - low < 1)[known].all()


def test_axes_of_one_name_have_names_of_files(protein, tmp_path):
    for name, select in (("core", "name CA"), ("all", "backbone")):
        RMSD(protein, select=select).run().results.save(tmp_path / f"{name}.csv")
    paths = [tmp_path / "core.csv", tmp_path / "all.csv"]
    (x_label, x), (y_label, y) = series_of_tables(paths)
    assert [x_label, y_label] == ["RMSD of core (Å)", "RMSD of all (Å)"]
    results = free_energy_surface(x, y, bins=5, labels=(x_label, y_label))
    assert "at RMSD of core = " in results.summary()[0]
    alike = free_energy_surface(x, y, bins=5, labels=("RMSD (Å)", "RMSD (Å)"))
    assert list(alike.table.columns)[:2] == ["RMSD, 1 (Å)", "RMSD, 2 (Å)"]


def test_no_number_is_minus_zero():
    assert with_error(-0.2, 221.0) == "0 ± 221"
    assert with_error(-1.2, 221.0) == "-1 ± 221"


def test_the_rmsd_of_a_ligand_is_the_headline(protein, tmp_path):
    given = {"analysis": "rmsd", "select": "backbone", "groupselections": ["resid 30-59"]}
    battery = Battery({"ligand-rmsd": given}, protein).run(stop=20)
    battery.save(tmp_path)
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    title = "Ligand: RMSD of resid 30-59 after superposition of backbone"
    assert re.findall(r"<h2>(.*)</h2>", page)[0] == title
    [means] = re.findall(r"Means with 95 % intervals: ([^<]*)", page)
    assert means.startswith(f"{title.lower()[0]}{title[1:]} (RMSD of resid 30-59 ")
    assert battery.analyses["ligand-rmsd"].results.summary()[0].startswith("RMSD of resid 30-59: ")
    assert "RMSD of resid 30-59" in battery.summary()[0]
    assert list(battery.analyses["ligand-rmsd"].results.means) == [
        "RMSD (Å)",
        "RMSD of resid 30-59 (Å)",
    ]


def test_the_rmsd_of_a_ligand_is_the_headline_of_replicas(protein, tmp_path):
    given = {"analysis": "rmsd", "select": "backbone", "groupselections": ["resid 30-59"]}
    batteries = [Battery({"ligand-rmsd": given}, protein) for _ in range(2)]
    replicas = Replicas({"wt": batteries}).run(stop=5)
    assert replicas.summary()[0].startswith("ligand-rmsd: RMSD of resid 30-59 (Å): ")
    replicas.save(tmp_path)
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "after superposition of backbone, RMSD of resid 30-59 " in page
    assert [*replicas.means["ligand-rmsd"]] == ["RMSD (Å)", "RMSD of resid 30-59 (Å)"]
