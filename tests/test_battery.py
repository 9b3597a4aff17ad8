"""Tests of several analyses in one pass, described by a file."""

import csv
import html
import re
import shutil
import tomllib
from pathlib import Path

import MDAnalysis
import numpy as np
import pandas
import pytest
from MDAnalysisTests.datafiles import (
    GRO_MEMPROT,
    PRM7,
    RNA_PDB,
    RNA_PSF,
    TPR,
    TRR,
    XTC,
    XTC_MEMPROT,
    NCDFtruncoct,
)

import paceline
from paceline._util.option_values_and_selections import LIPIDS, WATER_OXYGENS
from paceline.analysis.battery import Battery
from paceline.analysis.battery_definitions import DEFAULTS
from paceline.analysis.described_analyses import NAMES
from paceline.analysis.guess_elements_and_donors import TAILS
from paceline.analysis.neighbors import NeighborList
from paceline.analysis.rdf import InterRDF
from paceline.analysis.replicas import Replicas
from paceline.analysis.results import Results
from paceline.analysis.rms import RMSD, RMSF
from paceline.cli import main
from paceline.contract.read_catalogue import catalogue
from paceline.errors import PacelineWarning, SelectionError, UnsupportedError
from paceline.transform import unwrap

FILE = """
[rmsd]
select = "backbone"
groupselections = ["resid 1-29"]

["loop 1"]
analysis = "rms.RMSF"
select = "name CA and resid 40-60"

[rdf]
g1 = "name CA"
g2 = "name CB"
range = [0.0, 8.0]
norm = "none"
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "battery.toml"
    path.write_text(FILE, encoding="utf-8")
    return path


def test_results_are_those_of_each_analysis(file, universe):
    battery = Battery.from_file(file, universe).run()
    assert list(battery.analyses) == ["rmsd", "loop 1", "rdf"]
    rmsd = RMSD(universe, select="backbone", groupselections=["resid 1-29"]).run()
    loop = RMSF(universe.select_atoms("name CA and resid 40-60")).run()
    rdf = InterRDF(
        universe.select_atoms("name CA"),
        universe.select_atoms("name CB"),
        range=(0.0, 8.0),
        norm="none",
    ).run()
    found = battery.analyses
    assert np.array_equal(found["rmsd"].results.rmsd, rmsd.results.rmsd)
    assert np.array_equal(found["loop 1"].results.rmsf, loop.results.rmsf)
    assert np.array_equal(found["rdf"].results.count, rdf.results.count)
    # All analyses ran in a single pass.
    assert battery.timings.n_frames == 98


def test_files_that_are_written(file, universe, tmp_path):
    folder = tmp_path / "results"
    battery = Battery.from_file(file, universe).run(stop=20)
    battery.save(folder)
    names = {path.name for path in folder.iterdir()}
    tables = {f"{name}.{ending}" for name in battery.analyses for ending in ("csv", "svg")}
    assert names == tables | {"index.html", "timings.html", "battery.toml"}
    assert names <= {path.name for path in battery.outputs(folder)}
    again = tomllib.loads((folder / "battery.toml").read_text(encoding="utf-8"))
    assert again == tomllib.loads(FILE)
    with (folder / "rmsd.csv").open(encoding="utf-8") as table:
        rows = list(csv.reader(line for line in table if not line.startswith("#")))
    assert len(rows) == 21
    page = (folder / "index.html").read_text(encoding="utf-8")
    assert re.findall(r"<h2>(.*)</h2>", page) == [
        *(
            "RMSD of resid 1-29 after superposition of backbone",
            "loop 1: RMSF of name CA and resid 40-60",
        ),
        *(
            "Radial distribution function",
            "Warnings",  # about the number of frames in the header
            "How it was computed",
        ),
    ]
    assert page.count("<svg") == 3
    assert page.count('class="chart"') == 4
    assert 'href="loop%201.csv"' in page
    assert "The system is not equilibrated: " in page
    with pytest.raises(FileExistsError):
        battery.save(folder)
    battery.save(folder, overwrite=True)


def test_an_interrupted_battery_leaves_no_files(file, universe, adk, tmp_path, monkeypatch, capsys):
    """Check that no files remain, so that the same command can resume."""
    folder, kept = tmp_path / "results", tmp_path / "checkpoint"
    command = ["run", str(file), "-s", adk.topology, "-f", adk.trajectory, "-o", str(folder)]
    command += ["--checkpoint", str(kept)]

    def interrupted(self, *arguments, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Results, "save_figure", interrupted)
        assert main(command) == 130
    assert list(folder.iterdir()) == []
    assert kept.exists()
    assert main(command) == 0, capsys.readouterr().err
    assert (folder / "index.html").exists()
    assert not kept.exists()


def test_files_of_an_earlier_battery_with_groups_are_replaced(file, universe, tmp_path):
    battery = Battery.from_file(file, universe).run(stop=20)
    stale = ["differences.csv", "means.csv", "rmsd-profile.svg", "rmsd.npz"]
    for name in [*stale, "notes.txt"]:
        (tmp_path / name).write_text("old")
    groups = '[rmsd]\n[groups.wt]\ntopology = "a.psf"\ntrajectories = []\n'
    (tmp_path / "battery.toml").write_text(groups)
    battery.save(tmp_path, overwrite=True)
    assert {path.name for path in tmp_path.iterdir()}.isdisjoint(stale)
    assert (tmp_path / "notes.txt").exists()
    # In a folder that contains another battery, only files with known names are replaced.
    (tmp_path / "means.csv").write_text("mine")
    battery.save(tmp_path, overwrite=True)
    assert (tmp_path / "means.csv").exists()


def test_the_default_is_for_what_the_system_holds(universe, adk_in_water, tmp_path):
    protein = Battery.default(universe)
    assert set(protein.analyses) == {*DEFAULTS["protein and name CA"], "hbonds"}
    wet = Battery.default(paceline.Universe(*adk_in_water))
    # Bonds were found by atom names.
    assert set(wet.analyses) == set(protein.analyses) | {"rdf-water"}
    again = tmp_path / "again.toml"
    again.write_text(wet.to_toml(), encoding="utf-8")
    same = Battery.from_file(again, wet.universe)
    assert same.descriptions == wet.descriptions
    assert "contact-map" in protein.analyses
    rna = Battery.default(paceline.Universe(RNA_PSF, RNA_PDB)).run(stop=2)
    nucleic = {"rmsd-nucleic", "rmsf-nucleic", "gyration-nucleic"}
    assert set(rna.analyses) == nucleic | {"hbonds-nucleic", "rdf-water"}
    donors = rna.universe.atoms[
        np.unique(rna.analyses["hbonds-nucleic"].results.hbonds[:, 1].astype(int))
    ]
    assert {"N1", "N3"} <= set(donors.names)
    assert all(np.isfinite(rna.analyses["gyration-nucleic"].results.rg))
    membrane = Battery.default(paceline.Universe(GRO_MEMPROT, XTC_MEMPROT))
    assert set(membrane.analyses) == {*DEFAULTS["protein and name CA"], "leaflets", "bilayer"}
    assert "atoms of residues ZNM, POPE and POPG have none" in membrane.left_out["order"]
    leaflets = membrane.analyses["leaflets"].run(stop=1)
    assert leaflets.results.sizes.tolist() == [[141, 135]]
    salt = paceline.Universe.empty(3, trajectory=True)
    with pytest.raises(UnsupportedError, match="no protein, nucleic acid, lipids"):
        Battery.default(salt)


def test_the_default_knows_water_and_lipids_of_other_programs():
    """Check water with oxygens named O, and head groups as separate residues, as in Amber and
    OpenMM.
    """
    assert catalogue()["rdf"]["select"] == WATER_OXYGENS
    water = paceline.Universe(PRM7, NCDFtruncoct)
    found = Battery.default(water).analyses["rdf-water"].run(stop=1).results.rdf
    assert found[:10].sum() == 0
    assert found.max() > 2
    lipid = MDAnalysis.Universe.empty(8, 3, atom_resindex=[0, 1, 2, 2, 2, 2, 2, 2], trajectory=True)
    lipid.add_TopologyAttr("names", ["P31", "CA", "P", "C22", "H2R", "C23", "C1", "H1A"])
    lipid.add_TopologyAttr("resnames", ["PC", "PA", "POPC"])
    lipid.add_TopologyAttr("masses", [31, 12, 31, 12, 1, 12, 12, 1])
    lipid.add_TopologyAttr("bonds", [(3, 4), (3, 5), (6, 7)])
    assert lipid.select_atoms(LIPIDS).indices.tolist() == [0, 2]
    assert lipid.select_atoms(TAILS).indices.tolist() == [3]


def test_the_default_leaves_out_what_the_topology_lacks_something_for(universe, tmp_path):
    chain = universe.select_atoms("name CA")
    path = str(tmp_path / "chain.pdb")
    chain.write(path)
    with pytest.warns(
        PacelineWarning, match=r"left out of the battery: dssp: residues MET 1, .*'N'"
    ):
        alone = Battery.default(paceline.Universe(path))
    # A single frame has no principal components.
    assert set(alone.left_out) == {"dssp", "ramachandran", "hbonds", "pca"}
    assert set(alone.analyses) == {*DEFAULTS["protein and name CA"]} - set(alone.left_out)
    assert len(alone.run().analyses["rmsd"].results.rmsd) == 1
    assert "dssp" not in alone.to_toml()
    with pytest.raises(SelectionError, match="expected one atom named 'N'"):
        Battery({"rmsd": {}, "dssp": {}}, alone.universe)


def test_the_default_leaves_out_what_the_frames_of_a_run_are_too_few_for(alphas, tmp_path):
    universe = paceline.Universe(*alphas)
    battery = Battery.default(universe)
    whole, others = list(battery.analyses), dict(battery.left_out)
    battery.run(stop=2).save(tmp_path)
    assert (tmp_path / "pca.csv").exists()
    with pytest.warns(PacelineWarning, match="left out of the battery: pca: 2 frames are needed, "):
        battery.run(frames=lambda trajectory: [trajectory.n_frames - 1])
    assert battery.left_out == others | {"pca": "2 frames are needed, found 1"}
    left = [name for name in whole if name != "pca"]
    assert list(battery.analyses) == list(battery.descriptions) == left
    battery.save(tmp_path, overwrite=True)
    assert not (tmp_path / "pca.csv").exists()
    assert "pca: 2 frames are needed, found 1" in (tmp_path / "index.html").read_text("utf-8")
    assert (list(battery.run(stop=2).analyses), battery.left_out) == (whole, others)
    described = Battery({"pca": {"select": "name CA"}}, universe)
    with pytest.raises(ValueError, match="from a single frame"):
        described.run(stop=1)


def test_the_command_leaves_out_what_a_single_frame_has_no_answer_to(alphas, tmp_path, run):
    second = shutil.copy(alphas.trajectory, tmp_path)
    for more in ((), (second, "--replicas")):
        status, _, err = run("battery", *alphas, *more, "--end", 1, "-o", tmp_path / f"{len(more)}")
        assert (status, err.count("left out of the battery: pca: 2 frames are needed")) == (0, 1)
        page = (tmp_path / f"{len(more)}" / "index.html").read_text(encoding="utf-8")
        assert "<li>left out: pca: 2 frames are needed, found 1</li>" in page


def test_equilibrated_frames_are_those_of_the_energies_too(tmp_path):
    """Energies, written every 10 ps, equilibrate later than the radius, with frames every 2 ps."""
    rng = np.random.default_rng(3)
    n = 600
    positions = np.zeros((n, 2, 3), dtype=np.float32)
    positions[:, :, 0] = (5 + 0.1 * rng.standard_normal(n))[:, None] * [1, -1]
    universe = paceline.Universe.empty(2, trajectory=True)
    universe.add_TopologyAttr("masses", [1.0, 1.0])
    universe.load_new(positions, dt=2)
    times = np.arange(0, 2 * n, 10)

    def run(decay):
        energies = -5000 + 3 * rng.standard_normal(len(times)) + decay
        rows = "".join(f"{time} {one:.4f}\n" for time, one in zip(times, energies, strict=True))
        axes = '@ xaxis label "Time (ps)"\n@ yaxis label "(kJ/mol)"\n'
        path = tmp_path / "energies.xvg"
        path.write_text(f'{axes}@ s0 legend "Potential"\n{rows}', "utf-8")
        battery = Battery({"gyration": {}, "energies": {"files": [str(path)]}}, universe)
        return battery.run(equilibrated=True)

    found = run(90 * np.exp(-times / 60))
    first = found.analyses["gyration"].frames[0]
    assert 40 < first < 200
    assert first % 5 == 0
    reason = f"{first} frames are left out: energies is equilibrated from {2 * first} ps on"
    assert any(one.startswith(reason) for one in found.warnings)
    assert found.energies.results.times[0] == 2 * first
    with pytest.raises(UnsupportedError, match="no frames are equilibrated: energies drifts"):
        run(0.1 * times)


def test_the_page_repeats_warnings(tmp_path):
    """Check that broken molecules cause a warning, because their RMSDs are misleading."""
    described = {"gyration": {"select": "protein"}, "hbonds": {"select": "resid 1-9"}}
    battery = Battery(described, paceline.Universe(TPR, XTC)).run(stop=2, unwrap=False)
    charges, broken = battery.warnings
    assert "are not guessed as acceptors" in charges
    assert ": a molecule is broken across the cell in 2 of 2 frames, first in frame 0: " in broken
    Replicas({"one": [battery]}).run(stop=2, unwrap=False).save(tmp_path / "replicas")
    battery.save(tmp_path)
    for folder in (tmp_path, tmp_path / "replicas"):
        page = html.unescape((folder / "index.html").read_text(encoding="utf-8"))
        assert f"<li>{charges}</li>\n<li>{broken}</li>" in page
        assert "There are 2 warnings" in page
    for options in ({"transforms": [unwrap()]}, {}):
        battery.run(stop=2, **options)
        assert battery.warnings == [charges]


@pytest.mark.parametrize("replicas", [False, True])
def test_figures_of_batteries_have_options(tmp_path, adk_xtc, run, replicas):
    described, output = tmp_path / "battery.toml", tmp_path / "results"
    described.write_text('[rmsf]\nselect = "name CA"\n[gyration]\n', encoding="utf-8")
    topology, trajectory = adk_xtc
    given = "run", described, topology, trajectory, "--step", 9, "-o", output
    given += ("--replicas",) if replicas else ()
    options = "--figsize", "9x5cm", "--time-unit", "fs", "--no-stats", "--style", "dark_background"
    code, _, err = run(*given, *options)
    assert (code, "time_unit" in err) == (0, False)
    drawn, page = (
        (output / name).read_text(encoding="utf-8") for name in ("gyration.svg", "index.html")
    )
    assert re.search(r'<svg [^>]*width="255.1\d*pt" height="141.7\d*pt"', drawn)
    assert "time (fs)" in drawn
    assert "time (fs)" in page
    assert "(95 %" not in drawn
    assert "fill: #ffffff" in drawn  # from the style sheet
    profile = output / ("rmsf-profile.svg" if replicas else "rmsf.svg")
    assert 'width="255.1' in profile.read_text(encoding="utf-8")
    code, _, err = run(*given, "--overwrite", "--style", "none-such")
    assert (code, "no style of matplotlib" in err) == (2, True)
    code, _, err = run(*given, "--overwrite", "--title", "one")
    assert (code, "--title" in err) == (2, True)
    code, _, err = run("rmsd", topology, trajectory, "--no-stats")
    assert (code, "--no-stats needs a figure: add --plot" in err) == (2, True)


def test_replicas_of_the_command_discard_their_starts(tmp_path, adk_xtc, run):
    """Of two files, one has an added motion that decays."""
    rng = np.random.default_rng(3)
    atoms = MDAnalysis.Universe(*adk_xtc).select_atoms("name CA and resid 1-20")
    atoms.write(tmp_path / "top.pdb")
    centred = atoms.positions - atoms.positions.mean(axis=0)
    for k in (0, 1):
        with MDAnalysis.Writer(f"{tmp_path / str(k)}.xtc", len(atoms)) as writer:
            for frame in range(400):
                size = 1 + 0.02 * rng.standard_normal() + k * np.exp(-frame / 15)
                atoms.positions = size * centred
                writer.write(atoms)
    (tmp_path / "battery.toml").write_text("[gyration]\n", encoding="utf-8")
    files = [tmp_path / name for name in ("top.pdb", "0.xtc", "1.xtc")]
    output = tmp_path / "o"
    options = "--replicas", "--equilibrated", "--no-unwrap", "-o", output
    code, _, err = run("run", tmp_path / "battery.toml", *files, *options)
    assert code == 0, err
    text = (output / "means.csv").read_text(encoding="utf-8")
    assert re.search(r"# warnings: .*1\.xtc\): \d+ frames are left out: gyration is equil", text)
    tables = sorted(output.glob("*/*/gyration.csv"))
    n_frames = [len(pandas.read_csv(path, comment="#")) for path in tables]
    assert n_frames[0] == 400 > 380 > n_frames[1] > 250


def test_the_page_repeats_warnings_of_opening_files(tmp_path, run_with_answer):
    """Check warnings about a truncated trajectory and about a default selection."""
    cut, described = tmp_path / "cut.xtc", tmp_path / "battery.toml"
    cut.write_bytes(Path(XTC).read_bytes()[:-1000])
    described.write_text('[gyration]\nselect = "protein"\n', encoding="utf-8")
    with pytest.warns(PacelineWarning, match="cut"):
        battery = Battery({"gyration": {"select": "protein"}}, paceline.Universe(TPR, cut))
    [said] = battery.warnings
    for more in ([], ["--replicas"]):
        folder = tmp_path / f"{len(more)}"
        files = ["-s", TPR, "-f", f"{cut}", *more, "-o", f"{folder}"]
        run_with_answer("run", f"{described}", *files, "--end", "2", "--no-unwrap")
        page = html.unescape((folder / "index.html").read_text(encoding="utf-8"))
        assert f"<li>{said}</li>" in page
    table = (tmp_path / "0" / "gyration.csv").read_text(encoding="utf-8")
    [recorded] = [row for row in table.splitlines() if row.startswith("# warnings: ")]
    assert recorded.startswith(f"# warnings: {said}")
    loaded = paceline.Universe(TPR)
    with pytest.warns(PacelineWarning, match="cut"):
        loaded.load_new(f"{cut}")
    assert loaded.opening_warnings == [said]
    assert loaded.load_new(XTC).opening_warnings == []


def test_hydrogen_bonds_of_ambers_force_fields(recwarn):
    # From the charges of this topology, most hydrogens of the backbone cannot be guessed.
    battery = Battery.default(paceline.Universe(PRM7, NCDFtruncoct))
    hydrogens = battery.analyses["hbonds"]._hydrogens
    assert len(hydrogens) == 29
    assert not [one for one in recwarn if "hydrogens" in str(one.message)]


def test_acceptors_of_oplss_force_fields(recwarn):
    # From the charges of this topology, no oxygen of the backbone can be guessed.
    battery = Battery.default(paceline.Universe(TPR, XTC))
    acceptors = battery.analyses["hbonds"]._acceptors
    assert len(acceptors.select_atoms("protein and name O")) == 213
    assert not [one for one in recwarn if "acceptors" in str(one.message)]


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("", UnsupportedError, "no analyses"),
        ("rmsd", UnsupportedError, "not valid TOML"),
        ("rmsd = 3", UnsupportedError, "expected a table for each analysis"),
        (
            "[rmds]",
            UnsupportedError,
            r"\[rmds\]: there is no analysis 'rmds'; expected .*rmsd",
        ),
        ("[a]\nanalysis = 3", UnsupportedError, "there is no analysis 3"),
        (
            "[diffusionmap]\nselect = 'name CA'",
            UnsupportedError,
            r"\[diffusionmap\]: 'diffusionmap' is computed from the results of other .*: use "
            "'paceline diffusionmap'",
        ),
        ("[a]\nanalysis = 'rms.Table'", UnsupportedError, "there is no analysis"),
        ("[a]\nanalysis = 'os.system'", UnsupportedError, "there is no analysis"),
        ("[rmsd]\nselect_='name CA'", UnsupportedError, "RMSD has no parameter select_; it has "),
        ("[rmsf]\nselect='name XX'", SelectionError, r"\[rmsf\]: select: no atoms match"),
        (
            "[rmsf]\nselct='name CA'",
            UnsupportedError,
            "RMSF has no parameter selct; it has select, ",
        ),
        ("[rdf]\ng1='all'\ng2='name XX'", SelectionError, r"\[rdf\]: g2: no atoms match"),
        ("['../rmsd']\nanalysis='rmsd'", UnsupportedError, "the name is used for files"),
        ("[rdf]\ng1='name CA'", UnsupportedError, r"\[rdf\]: InterRDF also needs g2"),
        ("[contacts]", UnsupportedError, "Contacts also needs select and refgroup"),
        ("[pca]\nalign='no'", TypeError, "align must be True or False, not 'no'"),
        ("[pca]\nn_components=-3", ValueError, "n_components must be at least 1"),
        ("[rdf]\ng1='name CA'\ng2='name CB'\nnbins='a'", ValueError, "nbins"),
    ],
)
def test_what_a_file_cannot_say(text, error, message, universe, tmp_path):
    path = tmp_path / "wrong.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(error, match=message):
        Battery.from_file(path, universe)


def test_an_error_names_the_table(universe):
    with pytest.raises(MDAnalysis.SelectionError, match="nam") as caught:
        Battery({"core": {"analysis": "rmsd", "select": "nam CA"}}, universe)
    assert caught.value.__notes__ == ["in [core] of the battery"]


#: Parameters of analyses that require more than a selection.
NEEDED = {
    "angles": {
        f"ag{k}": f"resid 1-9 and name {name}" for k, name in enumerate(("N", "CA", "C"), 1)
    },
    "center-distance": {"ag1": "resid 1-9", "ag2": "resid 30"},
    "dielectric": {"select": "name OW", "make_whole": False},
    "dipole-autocorrelation": {"select": "name OW", "make_whole": False},
    "dihedrals": {"atomgroups": [f"resid {k} and name N CA CB CG" for k in (2, 13)]},
    "distances": {"ag1": "name CA", "ag2": "name C"},
    "minimum-distance": {"ag1": "resid 1-9", "ag2": "resid 30"},
    "contacts": {
        "select": ["name OE*", "name NZ"],
        "refgroup": ["name OE*", "name NZ"],
        "method": "soft_cut",
    },
    "hbonds": {
        **{"select": "protein", "donors_sel": "name N", "hydrogens_sel": "name H"},
        "acceptors_sel": "name O",
    },
    "buried-area": {"ag1": "resid 1-9", "ag2": "resid 10-20"},
    "bilayer": {"select": "resid 1-40 and name CA"},
    "coordination": {"ag1": "resid 1-9", "ag2": "name OW"},
    "persistence-length": {"select": "resid 1-40 and name N CA C"},
    "polymer": {"atomgroups": ["resid 1-40 and name CA", "resid 50-60 and name CA"]},
    "rdf": {"g1": "name OW", "g2": "name HW1"},
    "rdf-sites": {"ags": [["resid 9 and name CA", "name OW"], ["resid 9", "resid 30"]]},
    "survival": {"select": "name OW and around 3 resid 9", "tau_max": 1},
    "cluster": {"select": "name CA", "cutoff": 1.0},
    "water-bridges": {"ag1": "resid 122-159", "ag2": "protein and not resid 122-159"},
}


@pytest.mark.parametrize("name", NAMES)
def test_every_name_can_be_described(name, adk_in_water):
    """Check that every analysis can be described by selections."""
    if name in ("velocity-autocorrelation", "current-autocorrelation"):
        universe = paceline.Universe(TPR, TRR)
    else:
        universe = paceline.Universe(*adk_in_water)
        universe.add_TopologyAttr("charges", np.zeros(len(universe.atoms)))
    if name in ("dielectric", "dipole-autocorrelation", "order"):
        universe.add_TopologyAttr("bonds", [(4, 5)])  # bond between the first CA and its hydrogen
    given = NEEDED.get(name, {"select": "protein and resid 1-40"})
    battery = Battery({name: given}, universe).run(stop=2)
    assert battery.analyses[name].results
    if name not in NEEDED:
        atoms = battery.analyses[name].indices
        assert set(atoms) <= set(universe.select_atoms("protein and resid 1-41").indices)


def test_arrays_that_no_table_holds_are_saved(universe, tmp_path):
    asked = {
        "hbonds": {"select": "protein and resid 1-40"},
        "near": {"analysis": "distances.NeighborList", "ag1": "name CA", "cutoff": 5.0},
        "matrix": {"analysis": "diffusionmap.DistanceMatrix", "select": "name CA"},
    }
    battery = Battery(asked, universe).run(stop=3)
    battery.save(tmp_path)
    for name, array in (("hbonds", "hbonds"), ("near", "pairs"), ("matrix", "dist_matrix")):
        wanted = battery.analyses[name].results[array]
        np.testing.assert_array_equal(np.load(tmp_path / f"{name}.npz")[array], wanted)
        assert (tmp_path / f"{name}.csv").exists()


def test_further_tables_are_saved_and_drawn(universe, tmp_path):
    battery = Battery({"bonds": {"analysis": "hbonds", "select": "resid 1-60"}}, universe)
    battery.run(stop=4).save(tmp_path)
    found = pandas.read_csv(tmp_path / "bonds-frequent.csv", comment="#")
    wanted = battery.analyses["bonds"].further_tables()["frequent"].columns
    assert list(found["hydrogen bond"]) == list(wanted["hydrogen bond"])
    np.testing.assert_allclose(found["fraction of frames"], wanted["fraction of frames"])
    assert wanted["hydrogen bond"][0] in (tmp_path / "bonds-frequent.svg").read_text("utf-8")
    page = (tmp_path / "index.html").read_text("utf-8")
    assert page.count("<svg") == 3
    assert 'href="bonds-frequent.csv"' in page
    assert 'href="bonds-timeline.csv"' in page
    written = {path.name for path in tmp_path.iterdir()}
    assert written <= {path.name for path in battery.outputs(tmp_path)}


def test_commands(file, adk_xtc, tmp_path, run):
    folder = tmp_path / "out"
    status, out, err = run("battery", *adk_xtc, "-o", folder, "-e", "20")
    assert (status, out, err) == (0, f"{folder / 'index.html'}\n", "")
    # The projections are input for a free-energy surface.
    assert np.load(folder / "pca.npz")["projection"].shape == (20, 2)
    assert '"pca.npz"' in (folder / "index.html").read_text(encoding="utf-8")
    status, out, err = run("run", folder / "battery.toml", *adk_xtc, "-o", folder)
    assert status == 2
    assert "exists" in err
    assert (
        run("run", file, "-s", adk_xtc.topology, "-f", adk_xtc.trajectory, "-o", tmp_path / "b")[0]
        == 0
    )
    assert (tmp_path / "b" / "loop 1.csv").exists()
    (tmp_path / "file").touch()
    assert run("battery", *adk_xtc, "-o", tmp_path / "file")[0] == 2
    status, _, err = run("run", tmp_path / "none.toml", *adk_xtc)
    assert (status, "none.toml" in err) == (2, True)


def test_single_numbers_are_on_the_page_with_their_intervals(adk_in_water, tmp_path):
    asked = {"msd": {"select": "name OW", "unwrap": "tor", "fit_range": [None, None]}}
    battery = Battery(asked, paceline.Universe(*adk_in_water)).run()
    battery.save(tmp_path / "saved")
    found = battery.analyses["msd"].results
    fit = found.diffusion_coefficient
    assert f"{fit}".endswith("(95 %, 11,084 molecules)")
    page = html.unescape((tmp_path / "saved" / "index.html").read_text(encoding="utf-8"))
    for name, text in found.findings.items():
        assert name in page
        assert text in page
    table = (tmp_path / "saved" / "msd.csv").read_text(encoding="utf-8")
    assert f"# diffusion coefficient: {fit}, fit from " in table


def test_further_tables_are_computed_once(universe, tmp_path, monkeypatch):
    asked = []
    compute = NeighborList.further_tables
    monkeypatch.setattr(
        NeighborList, "further_tables", lambda self: asked.append(self) or compute(self)
    )
    battery = Battery({"neighbors": {"select": "resid 1-20", "cutoff": 4.0}}, universe)
    battery.run(stop=2).save(tmp_path)
    assert len(asked) == 1
    assert (tmp_path / "neighbors-residues.svg").exists()
