"""Tests of frames chosen by rows of saved tables: the rows, the files, and invalid choices."""

import re
import shutil

import MDAnalysis
import numpy as np
import pytest
from helpers.analyses import rmsd_and_gyration

import paceline
from paceline.analysis.clustering import Clustering
from paceline.analysis.frames_by_table import choose_frames
from paceline.analysis.free_energy import free_energy_surface
from paceline.analysis.row_condition import RowCondition
from paceline.analysis.saved_table_format import read_saved
from paceline.errors import UnsupportedError

COLUMNS = {
    "frame": np.arange(6.0),
    "time (ps)": np.array([0, 5e3, 1e4, 1.5e4, 2e4, np.nan]),
    "RMSD (Å)": np.array([0, 1.5, 1.9, 2.5, 1, np.nan]),
    "RMSD of loop (Å)": np.array([3, 2, 1, 0, 1, np.nan]),
    "phi ALA 2 (degrees)": np.array([-60.0, -70, 60, 170, -170, np.nan]),
    "cluster": np.array([0, 1, 3, 3, 0, -1.0]),
}


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("rmsd < 2 and time > 10ns", [4]),
        ("RMSD<2 and time >= 10 ns", [2, 4]),
        ("rmsd < 0.2nm and not cluster = 0", [1, 2]),
        ("cluster == 3 or rmsd == 0", [0, 2, 3]),
        ("cluster != 3 and (rmsd < 1 or rmsd > 1.2)", [0, 1]),
        ("not cluster == 3 and rmsd > 0", [1, 4]),
        ("1 < rmsd <= 1.9", [1, 2]),
        ("2 > rmsd_of_loop > rmsd", []),
        ("rmsd of loop >= rmsd", [0, 1, 4]),
        ("'phi ALA 2' > 1 rad", [2, 3]),
        ("phi ALA 2 > 60 and cluster == 3", [3]),
        ('"phi ALA 2" < -1.2e2', [4]),
        ("'RMSD of' == 0", [3]),
        ("15 us > time > -1", [0, 1, 2, 3, 4]),
        ("frame >= 0", [0, 1, 2, 3, 4, 5]),
        ("not rmsd > 99", [0, 1, 2, 3, 4]),
    ],
)
def test_rows_that_meet_a_condition(text, rows):
    assert np.flatnonzero(RowCondition(text, COLUMNS, "t.csv").rows).tolist() == rows


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rmsdd < 2", "t.csv has no column 'rmsdd'; it has frame, time (ps), RMSD (Å), "),
        ("rms < 2", "has 2 columns 'rms'"),
        ("rmsd <", "expected a column or a number, found 'the end'"),
        ("rmsd", "expected a comparison such as 'rmsd < 2' with 'RMSD (Å)', found 'the end'"),
        ("rmsd < 2 'time' > 1", "expected 'and', 'or' or the end, found \"'time'\""),
        ("(rmsd < 2", "expected ')'"),
        ("rmsd < 2)", "expected 'and', 'or' or the end, found ')'"),
        ("rmsd < 2ns", "'RMSD (Å)' is in Å and 2ns is in ns"),
        ("cluster == 3nm", "'cluster' has no unit and 3nm is in nm"),
        ("rmsd < time", "units do not match"),
        ("rmsd < 2 furlongs", "units do not match"),
        ("3 < 4", "it contains no column"),
        ("__import__('os').system('true')", "cannot be read from \".system('true')"),
        ("rmsd < 2; rmsd", "cannot be read from '; rmsd' on"),
        ("rmsd.__class__ == 1", "cannot be read from '.__class__"),
        ("", "expected a column or a number"),
    ],
)
def test_conditions_that_cannot_be(text, words):
    with pytest.raises(UnsupportedError, match=re.escape(words)):
        _ = RowCondition(text, COLUMNS, "t.csv").rows


@pytest.fixture(scope="module")
def tables(adk, tmp_path_factory):
    """Folder with tables of adenylate kinase in each format."""
    folder = tmp_path_factory.mktemp("tables")
    universe = paceline.Universe(*adk)
    rmsd, gyration = rmsd_and_gyration(universe)
    clusters = Clustering(universe, "name CA", cutoff=1.5)
    paceline.run([rmsd, gyration, clusters])
    for ending in (".csv", ".tsv", ".xvg", ".npz"):
        rmsd.results.save(folder / f"rmsd{ending}")
    gyration.results.save(folder / "gyration.csv")
    clusters.results.save(folder / "clusters.csv")
    labels = "RMSD (Å)", "Rg (Å)"
    surface = free_energy_surface(
        rmsd.results.rmsd[:, 2], gyration.results.table.columns[labels[1]], labels=labels, bins=9
    )
    surface.provenance["tables"] = "rmsd.csv, gyration.csv"
    surface.save(folder / "surface.npz")
    surface.save(folder / "surface.csv")
    return folder, rmsd.results, gyration.results, clusters.results, surface


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".xvg", ".npz"])
def test_every_format_of_a_table(ending, tables, adk):
    folder, rmsd, *_ = tables
    column = "rmsd 3" if ending == ".npz" else "rmsd"
    chosen = choose_frames(folder / f"rmsd{ending}", where=f"{column} < 1.5")
    expected = np.flatnonzero(rmsd.rmsd[:, 2] < 1.5)
    np.testing.assert_array_equal(chosen.frames, expected)
    np.testing.assert_array_equal(chosen.in_trajectory(paceline.open(adk.trajectory)), expected)
    assert read_saved(folder / f"rmsd{ending}").facts["select"] == "name CA"


def test_frames_are_found_by_their_times(tables, adk):
    folder, rmsd, *_ = tables
    lines = (folder / "rmsd.xvg").read_text(encoding="utf-8").splitlines(keepends=True)
    lines = [line for line in lines if "frames analysed" not in line]
    (folder / "times.xvg").write_text("".join(lines), encoding="utf-8")
    chosen = choose_frames(folder / "times.xvg", lowest="rmsd", number=4)
    assert chosen.frames is None
    expected = np.sort(np.argsort(rmsd.rmsd[:, 2])[:4])
    np.testing.assert_array_equal(chosen.in_trajectory(paceline.open(adk.trajectory)), expected)
    other = paceline.open(adk.trajectory, dt=7.0)
    with pytest.raises(
        UnsupportedError, match=r"has a row at .* ps, but the trajectory has no such"
    ):
        chosen.in_trajectory(other)


def test_repeated_times_do_not_name_frames(adk, tmp_path):
    parts = [tmp_path / "a.xtc", tmp_path / "b.xtc"]
    universe = paceline.Universe(*adk)
    paceline.Write(universe.atoms, parts[0]).run(stop=6)
    paceline.Write(universe.atoms, parts[1]).run(start=3, stop=9)
    table = tmp_path / "t.csv"
    rows = [f"{k + 1},{k}" for k in (*range(6), *range(3, 9))]
    table.write_text("\n".join(["time (ps),value", *rows]), encoding="utf-8")
    chained = paceline.Universe(adk.topology, *parts).trajectory
    for where in ("value >= 0", "value == 4"):
        with pytest.raises(UnsupportedError, match=r"no frame numbers, .* several frames at [45] "):
            choose_frames(table, where=where).in_trajectory(chained)
    found = choose_frames(table, where="value < 3 or value > 5").in_trajectory(chained)
    assert found.tolist() == [0, 1, 2, 9, 10, 11]
    whole = paceline.Universe(adk.topology, *parts, continuous=True).trajectory
    found = choose_frames(table, where="value >= 4").in_trajectory(whole)
    assert found.tolist() == [4, 5, 6, 7, 8]


def test_rows_of_several_tables_and_of_one_frame(tables, tmp_path):
    folder, rmsd, *_ = tables
    other = tmp_path / "other.csv"
    other.write_text("frame,RMSD (Å)\n7,1.0\n5,2.0\n9,0.5\n", encoding="utf-8")
    chosen = choose_frames([folder / "rmsd.csv", other], where="other rmsd < 2 and rmsd > 0")
    assert chosen.frames.tolist() == [7, 9]
    assert chosen.columns["other RMSD (Å)"].tolist() == [1, 0.5]
    np.testing.assert_array_equal(chosen.columns["RMSD (Å)"], rmsd.rmsd[[7, 9], 2])
    other.write_text("frame,energy\n7,1\n5,2\n7,3\n", encoding="utf-8")
    assert choose_frames(other, where="energy > 0").frames.tolist() == [5, 7]
    with pytest.raises(UnsupportedError, match="several rows for one frame"):
        choose_frames([folder / "rmsd.csv", other], lowest="energy")
    other.write_text("residue,frames\n1,5\n", encoding="utf-8")
    with pytest.raises(UnsupportedError, match="has no frames: its columns are residue"):
        choose_frames(other, lowest="residue")


def test_arrays_of_other_lengths_are_left_out(tables, tmp_path):
    *_, clusters, _ = tables
    clusters.save(tmp_path / "clusters.npz")
    chosen = choose_frames(tmp_path / "clusters.npz", where="labels == 1")
    np.testing.assert_array_equal(chosen.frames, np.flatnonzero(clusters.labels == 1))
    with pytest.raises(UnsupportedError, match="has no column 'sizes'; it has labels, "):
        choose_frames(tmp_path / "clusters.npz", where="sizes > 1")


def test_least_and_largest_values(tables):
    folder, rmsd, gyration, *_ = tables
    values = rmsd.rmsd[:, 2]
    assert choose_frames(folder / "rmsd.csv", lowest="rmsd").frames.tolist() == [values.argmin()]
    largest = choose_frames(folder / "rmsd.csv", highest="RMSD (Å)", number=5).frames
    np.testing.assert_array_equal(largest, np.sort(np.argsort(-values, kind="stable")[:5]))
    both = [folder / "rmsd.csv", folder / "gyration.csv"]
    chosen = choose_frames(both, where="rmsd > 2 and rmsd < 5", highest="Rg")
    rg = gyration.table.columns["Rg (Å)"]
    inside = np.flatnonzero((values > 2) & (values < 5))
    assert chosen.frames.tolist() == [inside[rg[inside].argmax()]]
    assert [*chosen.columns] == ["frame", "time (ps)", "RMSD (Å)", "Rg (Å)"]


@pytest.mark.parametrize("ending", [".npz", ".csv"])
def test_bins_of_a_surface(ending, tables):
    folder, rmsd, gyration, _, surface = tables
    chosen = choose_frames(surface=folder / f"surface{ending}")
    assert len(chosen) == surface.counts.max() > 1
    total = 0
    rg = gyration.table.columns["Rg (Å)"]
    for i, j in zip(*np.nonzero(surface.counts), strict=True):
        middle = [
            edges[k : k + 2].mean() for edges, k in ((surface.x_edges, i), (surface.y_edges, j))
        ]
        found = choose_frames(surface=folder / f"surface{ending}", at=middle).frames
        total += len(found)
        assert len(found) == surface.counts[i, j]
        x = rmsd.rmsd[found, 2]
        assert ((x >= surface.x_edges[i] - 1e-9) & (x <= surface.x_edges[i + 1] + 1e-9)).all()
    assert total == 98
    nearest = choose_frames(surface=folder / f"surface{ending}", number=1).frames
    place = np.unravel_index(np.nanargmin(surface.free_energy), surface.counts.shape)
    apart = sum(
        ((values[chosen.frames] - edges[k : k + 2].mean()) / np.diff(edges)[k]) ** 2
        for values, edges, k in zip(
            (rmsd.rmsd[:, 2], rg), (surface.x_edges, surface.y_edges), place, strict=True
        )
    )
    assert nearest.tolist() == [chosen.frames[apart.argmin()]]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"where": "rmsd > 100"}, r"no row of .*rmsd.csv meets it: RMSD \(Å\) is .* to 6\.8"),
        ({}, "no parameter selects frames"),
        ({"lowest": "energy"}, "has no column 'energy'; it has frame, "),
        ({"lowest": "rmsd", "highest": "rmsd"}, "use only one of"),
        (
            {"tables": (), "surface": "surface.npz", "at": (99, 1)},
            r"\(99, 1\) is outside its bins, RMSD",
        ),
        ({"surface": "rmsd.csv"}, "is not a free-energy surface"),
        (
            {"tables": "surface.csv", "where": "frames > 3"},
            "surface.csv has no frames: its columns",
        ),
        ({"tables": "missing.csv", "where": "a > 3"}, "missing.csv"),
        ({"tables": "rmsd.pdf", "where": "a > 3"}, r"expected \.csv, .* not '\.pdf'"),
    ],
)
def test_what_chooses_no_frames(arguments, words, tables, monkeypatch):
    monkeypatch.chdir(tables[0])
    with pytest.raises((UnsupportedError, FileNotFoundError), match=words):
        choose_frames(**{"tables": "rmsd.csv", **arguments})


def test_the_command_writes_frames_of_the_table_s_files(tables, adk, tmp_path, run):
    folder, rmsd, gyration, clusters, _ = tables
    out, structure = tmp_path / "out.dcd", tmp_path / "out.pdb"
    chosen = ["frames", folder / "clusters.csv", "--where", "cluster == 1"]
    status, table, err = run(*chosen, "-o", out, "--structure", structure, "--select", "name CA")
    expected = np.flatnonzero(clusters.labels == 1)
    assert status == 0
    assert f"{out}: {len(expected)} frames of 214 atoms" in err
    assert "may refer to other frames" not in err
    title, *rows = table.splitlines()
    assert title == "frame\ttime (ps)\tcluster"
    assert [int(row.split("\t")[0]) for row in rows] == expected.tolist()
    found = MDAnalysis.Universe(str(structure), str(out))
    universe = MDAnalysis.Universe(*adk)
    atoms = universe.select_atoms("name CA")
    for ts, source in zip(found.trajectory, universe.trajectory[expected], strict=True):
        assert source.frame in expected
        np.testing.assert_array_equal(ts.positions, atoms.positions)
    assert run(*chosen)[1] == table
    assert run(*chosen, "-o", out)[0] == 2
    assert run("frames", "--minimum", folder / "surface.npz", "--number", 2)[1].count("\n") == 3
    point = ["--bin", folder / "surface.npz", rmsd.rmsd[0, 2], gyration.rg[0]]
    assert run("frames", folder / "rmsd.csv", folder / "gyration.csv", *point)[0] == 0


def test_other_files_than_the_table_s(tables, adk, tmp_path, run):
    folder = tables[0]
    table, moved = tmp_path / "rmsd.csv", tmp_path / "moved.dcd"
    text = (folder / "rmsd.csv").read_text(encoding="utf-8")
    table.write_text(text.replace(str(adk.trajectory), "moved.dcd"), encoding="utf-8")
    lowest = ["frames", table, "--lowest", "rmsd", "-o", tmp_path / "out.xtc", "--overwrite"]
    status, _, err = run(*lowest)
    assert status == 2
    assert f"{table} was computed from {moved}, which does not exist: add the files" in err
    shutil.copy(adk.trajectory, moved)
    status, _, err = run(*lowest)
    assert (status, "has changed since" in err) == (0, False)
    paceline.Write(paceline.Universe(*adk).atoms, moved, overwrite=True).run(step=2)
    status, _, err = run(*lowest)
    assert status == 0
    assert f"{moved} has changed since {table} was computed from it" in err
    highest = ["frames", table, "--highest", "rmsd", "-o", tmp_path / "out.xtc", "--overwrite"]
    status, _, err = run(*highest, "-s", adk.topology, "-f", moved)
    assert status == 2
    assert "but the trajectory has only 49 frames" in err
    status, _, err = run(
        *lowest[:2],
        "--where",
        "2 < rmsd < 3",
        *lowest[4:],
        "--dt",
        "9ps",
        "-s",
        adk.topology,
        "-f",
        adk.trajectory,
    )
    assert status == 0
    assert re.search(r"frame \d+ is at \d+ ps, but in the trajectory at \d+ ps", err)
    assert run(*lowest, "-s", adk.topology)[0] == 2
    table.write_text(re.sub("# topology.*\n", "", text), encoding="utf-8")
    status, _, err = run(*lowest)
    assert (status, "does not name topology and trajectory: add them with -s" in err) == (2, True)


def test_a_table_of_a_chain_is_written_as_one(adk, tmp_path, run):
    parts = [tmp_path / "a.xtc", tmp_path / "b.xtc"]
    universe = paceline.Universe(*adk)
    paceline.Write(universe.atoms, parts[0]).run(stop=50)
    paceline.Write(universe.atoms, parts[1]).run(start=40)
    files = [adk.topology, *parts]
    table = tmp_path / "gyration.csv"
    assert run("gyration", *files, "--continuous", "-o", table)[0] == 0
    chosen = ["frames", table, "--where", "frame == 60", "-o", tmp_path / "out.xtc"]
    status, _, err = run(*chosen)
    assert (status, "may be" in err) == (0, False)
    universe.trajectory[60]
    found = MDAnalysis.Universe(adk.topology, str(tmp_path / "out.xtc"))
    np.testing.assert_allclose(found.atoms.positions, universe.atoms.positions, atol=0.011)
