"""Tests of the command line: clean output, one message per error, and no file overwritten."""

import argparse
import ast
import csv
import json
import os
import pickle
import re
import shlex
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import MDAnalysis
import numpy as np
import pandas as pd
import pytest
from MDAnalysis.auxiliary.XVG import XVGReader
from MDAnalysisTests.datafiles import PDB_small, waterDCD, waterPSF

import paceline
from paceline import transform
from paceline.analysis.rdf import InterRDF, InterRDF_s
from paceline.analysis.rms import RMSD, RMSF
from paceline.cli import analysis_commands, command_line
from paceline.cli import parser_and_file_arguments as parser_module
from paceline.cli.command_line import in_options
from paceline.cli.options import bound
from paceline.cli.parser_and_file_arguments import SECTIONS, resolve_files
from paceline.cli.shared_analysis_steps import frames_between, frames_of
from paceline.errors import (
    AnalysisError,
    SelectionError,
    with_script_advice,
    without_script_advice,
)


def table(text):
    """Return the numbers of a table on standard output."""
    lines = text.splitlines()
    assert len({line.count("\t") for line in lines}) == 1
    return np.array([[float(cell) for cell in line.split("\t")] for line in lines[1:]])


@pytest.mark.parametrize("command", [[], ["info"], ["rmsd"], ["rmsf"], ["rdf"], ["index"]])
def test_help_has_examples(command, run):
    status, out, err = run(*command, "--help")
    assert (status, err) == (0, "")
    assert "examples:\n  paceline " in out
    for name in command or ["info", "rmsd", "rmsf", "rdf", "index"]:
        assert f"\n  paceline {name} " in out


def examples(parser):
    """Return the command lines of examples in a help text, without comments and shell syntax."""
    text = (parser.epilog or "").replace("\\\n", " ")
    for line in re.findall(r"^  (paceline .*)$", text, re.MULTILINE):
        words = shlex.split(line, comments=True)
        ends = [k for k, word in enumerate(words) if word in ("|", ">", "&&")]
        yield words[1 : ends[0] if ends else None]


def test_examples_of_every_command_are_understood():
    parser = command_line.parser_of()
    [commands] = (one for one in parser._actions if hasattr(one, "_name_parser_map"))
    lines = [line for one in (parser, *commands.choices.values()) for line in examples(one)]
    assert len(lines) > 100
    assert {line[0] for line in lines} >= set(commands.choices)
    for line in lines:
        resolve_files(parser.parse_args(line))


def test_commands_are_in_the_modules_that_the_table_names():
    homes = {
        name: module
        for module in sorted(set(command_line.modules().values()))
        for name in import_module(f"paceline.cli.{module}").PARSERS
    }
    assert homes == command_line.modules()


def test_paceline_alone_prints_help(run):
    status, out, _ = run()
    assert status == 0
    assert out.startswith("usage: paceline")


def test_the_help_groups_commands(run):
    out = run("--help")[1]
    for heading in ("Before an analysis", "Diffusion and correlations", "Files", "Speed"):
        assert f"\n\n  {heading}:\n    " in out
    assert (
        out.index("  RMSD, RMSF and structure:") < out.index("    gyration") < out.index("Speed:")
    )


@pytest.mark.parametrize("names", ["COMMANDS_OF_GROMACS", "COMMANDS_OF_CPPTRAJ", "OTHER_NAMES"])
def test_commands_of_other_programs_have_ours(names):
    known = vars(parser_module)[names]
    assert set(known.values()) <= set(command_line.modules())
    assert not set(known) & set(command_line.modules())


def test_help_loads_nothing_heavy():
    code = (
        "import sys; from paceline.cli import main\n"
        "try: main(['rmsd', '--help'])\n"
        "except SystemExit: print(*sorted(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not set(done.stderr.split()) & {"MDAnalysis", "numpy", "matplotlib", "tqdm", "loky"}


def test_one_analysis_loads_no_battery(adk):
    code = (
        "import sys; from paceline.cli import main\n"
        "status = main(sys.argv[1:])\n"
        "print(*sorted(sys.modules), file=sys.stderr); sys.exit(status)"
    )
    command = [sys.executable, "-c", code, "gyration", *map(str, adk), "--end", "2"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    loaded = {name for name in done.stderr.split() if name.startswith("paceline.analysis.")}
    assert "paceline.analysis.gyration" in loaded
    assert not {name for name in loaded if "battery" in name or "replica" in name}


def test_version(run):
    assert run("--version")[:2] == (0, f"paceline {paceline.__version__}\n")


def test_rmsd_writes_a_table_to_stdout(adk, universe, run):
    status, out, err = run("rmsd", *adk, "--group", "resid 1-29", "--mass", "--ref", "7")
    wanted = RMSD(
        universe,
        select="protein and name CA",
        groupselections=["resid 1-29"],
        weights="mass",
        ref_frame=7,
    ).run()
    assert status == 0
    assert out.splitlines()[0] == "frame\ttime (ps)\tRMSD (Å)\tRMSD of resid 1-29 (Å)"
    assert np.array_equal(table(out), wanted.results.rmsd)
    # The note on this file appears once, although it is opened several times.
    assert err.count("header says") == 1
    assert err.count("\n") == 1


def test_rmsf_writes_a_table(adk, universe, run):
    cb = universe.select_atoms("name CB")
    fitted = transform.fit("name CA")
    for options, align, transforms in (
        ((), True, ()),
        (("--no-align",), False, ()),
        (("--fit", "name CA"), False, (fitted,)),
        (("--fit", "name CA", "--align"), True, (fitted,)),
    ):
        _, out, _ = run("rmsf", *adk, "--select", "name CB", *options)
        last = [line.split("\t")[-1] for line in out.splitlines()]
        assert last[0] == "RMSF (Å)"
        wanted = RMSF(cb, align=align).run(transforms=transforms).results.rmsf
        assert np.array_equal([float(cell) for cell in last[1:]], wanted), options


def test_rdf_writes_a_table(adk, universe, run):
    options = ("--select", "name CA", "--select-2", "name CB", "--range", 2, 9, "--nbins", 14)
    _, out, _ = run("rdf", *adk, *options, "--norm", "none", "--exclude-same", "residue")
    assert out.splitlines()[0] == "r (Å)\tpairs per frame\tcount\tN(r)"
    ca, cb = (universe.select_atoms(f"name {name}") for name in ("CA", "CB"))
    rdf = InterRDF(ca, cb, 14, (2, 9), norm="none", exclude_same="residue").run()
    wanted = rdf.results
    columns = [wanted.bins, wanted.rdf, wanted.count, rdf.get_cdf()]
    assert np.array_equal(table(out), np.column_stack(columns))


def test_rdf_of_the_same_atoms_has_no_pairs_of_an_atom_with_itself(adk, universe, run):
    options = ["--norm", "none", "--end", 2]
    ca = ["--select", "name CA and resid 1-20"]
    alone = run("rdf", *adk, *ca, *options)[1:]
    assert table(alone[0])[0, 2] == 0
    assert run("rdf", *adk, *ca, "--select-2", "resid 1-20 and name CA", *options)[1:] == alone
    more = ["--select-2", "name CA and resid 10-30"]
    _, out, err = run("rdf", *adk, *ca, *more, *options)
    assert "--select and --select-2 share 11 atoms, and each of them is counted with itself" in err
    assert table(out)[0, 2] == 2 * 11
    for remedy in (["--range", 0.1, 15], ["--exclude-same", "residue"]):
        _, out, err = run("rdf", *adk, *ca, *more, *options, *remedy)
        assert (table(out)[0, 2], "share" in err) == (0, False)
    # A center is not an atom.
    some = ["--select", "resid 1-20", "--compound", "residues", "--compound-2", "atoms"]
    groups = 2 * [universe.select_atoms("resid 1-20")]
    wanted = InterRDF(*groups, nbins=150, compound=("residues", None))
    wanted.norm = "none"
    _, out, _ = run("rdf", *adk, *some, *options)
    assert np.array_equal(table(out)[:, 2], wanted.run(stop=2).results.count)


def test_hydrogen_bonds_of_a_system_without_protein(run):
    status, out, err = run("hbonds", waterPSF, waterDCD, "--select", "all", "--end", 2)
    assert (status, table(out)[:, 2].tolist()) == (0, [2, 1]), err
    assert "no atoms match 'protein'" in run("hbonds", waterPSF, waterDCD)[2]


@pytest.mark.parametrize("ending", ["csv", "xvg"])
@pytest.mark.parametrize(
    ("command", "n_counts"),
    [
        (["hbonds"], 1),
        (["dssp"], 3),
        (["leaflets", "--select", "name CA", "--cutoff", "3.9"], 3),
        (["selection", "--select", "name CA and around 8 resid 30"], 1),
        (["neighbors", "--select", "name CA", "--select-2", "name CB"], 1),
    ],
)
def test_counts_are_whole_numbers(command, n_counts, ending, damaged, run, tmp_path):
    """Check counts also in files with skipped frames, which have no counts."""
    system, missing = damaged
    path = tmp_path / f"table.{ending}"
    assert run(*command, *system, "--on-error", "skip", "--end", 30, "-o", path)[0] == 0
    lines = path.read_text(encoding="utf-8").splitlines()
    rows = [line.replace(",", " ").split() for line in lines if line[0] not in "#@"][-30:]
    # The figure omits the column of components, and the table of letters has one more column.
    first, last = (2, 2 + n_counts) if ending == "csv" else (1, None)
    cells = {row: cells[first:last] for row, cells in enumerate(rows)}
    assert {cell for row in missing if row < 30 for cell in cells[row]} == {"nan"}
    for row in set(cells) - set(missing):
        assert all(re.fullmatch("[0-9]+|nan", cell) for cell in cells[row])
    assert any(cell != "nan" for row in cells.values() for cell in row)


def test_counts_of_pairs_are_whole_numbers(adk, run):
    _, out, _ = run("rdf", *adk, "--select", "name CA", "--norm", "none")
    counts = [line.split("\t")[2] for line in out.splitlines()[1:]]
    assert all(re.fullmatch("[0-9]+", count) for count in counts)


def test_rdf_of_centers_and_of_sites(adk, universe, run):
    options = ("--select", "resid 5-9", "--select-2", "name CB and resid 20-24", "--norm", "none")
    first, second = (universe.select_atoms(text) for text in options[1:4:2])
    how = ("--compound", "residues", "--compound-2", "atoms", "--geometry")
    _, out, _ = run("rdf", *adk, *options, *how)
    wanted = InterRDF(
        first, second, 150, norm="none", compound=("residues", None), center="geometry"
    ).run()
    assert np.array_equal(table(out)[:, 2], wanted.results.count)
    options = ("--select", "name CA and resid 5-9", *options[2:])
    _, out, _ = run("rdf", *adk, *options, "--sites", "--exclude-same", "residue")
    wanted = InterRDF_s(
        universe,
        [(first.select_atoms("name CA"), second)],
        150,
        norm="none",
        exclude_same="residue",
    ).run()
    assert np.array_equal(table(out)[:, 1:].T, wanted.results.rdf[0].reshape(25, -1))
    status, _, err = run("rdf", *adk, *options, "--sites", "--compound", "residues")
    assert status
    assert "--sites treats each atom separately: omit --compound" in err


def test_the_reference_may_be_a_file(adk, adk_xtc, universe, tmp_path, run):
    reference = tmp_path / "reference.pdb"
    universe.trajectory[50]
    universe.select_atoms("name CA").write(str(reference))
    _, out, _ = run("rmsd", *adk, "--ref", reference)
    assert table(out)[50, 2] < 0.01
    assert table(out)[0, 2] > 1


@pytest.mark.parametrize(
    ("arguments", "frames"),
    [
        (["--begin", "90"], range(90, 98)),
        (["--end", "3"], range(3)),
        (["--begin", "-5", "--end", "-1", "--step", "2"], range(93, 97, 2)),
        (["--begin", "95ps"], range(94, 98)),
        (["--end", "3ps"], range(3)),
        (["--begin", "0.01ns", "--end", "0.02ns", "--step", "5"], range(9, 20, 5)),
        (["--begin", "94", "--end", "96ps"], range(94, 96)),
        (["--begin", "3000fs", "--end", "4"], range(2, 4)),
    ],
)
def test_bounds_are_frames_or_times(arguments, frames, adk, run):
    # Apart from rounding, frame k of this trajectory has the time k + 1 ps.
    status, out, _ = run("rmsd", *adk, "--select", "name CA", *arguments)
    assert status == 0
    assert table(out)[:, 0].tolist() == list(frames)


@pytest.mark.parametrize(
    ("arguments", "frames"),
    [
        (["-b", "95"], range(94, 98)),
        (["-e", "3"], range(3)),
        (["-b", "10", "-e", "0.02ns"], range(9, 20)),
        # Frame 0 has the time 1 ps. As in GROMACS, times count from the first used frame, or else
        # from 0 ps.
        (["-dt", "10"], range(0, 98, 10)),
        (["-b", "5", "-dt", "10"], range(9, 98, 10)),
        (["-e", "31", "-dt", "0.01ns"], range(0, 31, 10)),
        (["-b", "94", "--end", "96"], range(93, 96)),
    ],
)
def test_times_in_ps_as_in_gromacs(arguments, frames, adk, run):
    status, out, err = run("rmsd", *adk, "--select", "name CA", *arguments)
    assert status == 0, err
    assert table(out)[:, 0].tolist() == list(frames)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-b", "5", "--begin", "5"], "argument --begin/--start: not allowed with argument -b"),
        (["--end", "5", "-e", "5"], "argument -e: not allowed with argument --end/--stop"),
        (["-dt", "5", "--step", "5"], "argument --step: not allowed with argument -dt"),
        (["-dt", "0"], "expected a time above 0"),
        (["-b", "soon"], "argument -b: expected a time such as 100 (ps)"),
        (["-b", "nan"], "expected a time such as 100 (ps)"),
        (["-b", "200"], "no frame lies between the requested times"),
        (["-b", "40", "-e", "20"], "the last time, 20 ps, is before the first, 40 ps"),
        (["--ref", "500"], "reference frame 500: the trajectory has 98 frames"),
        (["-b", "3", "-e", "5", "-dt", "50"], "no frame has a time that is a multiple of 50 ps"),
        (["--dt", "5"], "-dt 5 uses only frames at this interval in ps"),
    ],
)
def test_times_that_contradict_or_are_none_are_refused(arguments, words, adk, run):
    status, out, err = run("rmsd", *adk, *arguments)
    assert (status, out) == (2, "")
    assert words in err


def test_frames_apart_are_found_in_times_of_single_precision():
    stored = np.arange(0, 1000, 0.1).astype(np.float32).astype(float)
    args = argparse.Namespace(begin=None, end=None, step=1, every=0.3)
    assert frames_of(Times(stored), args).tolist() == list(range(0, 10000, 3))
    stored[7] = np.nan
    assert frames_of(Times(stored), args).tolist() == list(range(0, 10000, 3))


class Times:
    """Trajectory in which only the times matter."""

    def __init__(self, times):
        self.times = lambda: np.asarray(times)
        self.n_frames = len(times)


def test_a_bound_on_a_frame_s_time_includes_it():
    stored = np.arange(0, 1000, 0.1).astype(np.float32).astype(float)
    chosen = frames_between(Times(stored), bound("100.2ps"), bound("100.4ps"))
    assert chosen.tolist() == [1002, 1003, 1004]
    long = 1e9 + np.arange(10) * 0.01
    assert frames_between(Times(long), ("time", long[3]), ("time", long[5])).tolist() == [3, 4, 5]
    # The slack of the last time is larger than the first times.
    uneven = np.array([0, 0.1, 0.2, 0.5, 1, 2, 5, 10, 100, 1e3, 1e4, 1e5, 1e6 + 0.5, 2e6])
    for stored in (uneven, uneven.astype(np.float32).astype(float)):
        assert frames_between(Times(stored), bound("0.5ps"), None).tolist() == [*range(3, 14)]
        assert frames_between(Times(stored), None, bound("0.1ps")).tolist() == [0, 1]
        args = argparse.Namespace(begin=None, end=None, step=1, every=1.0)
        assert frames_of(Times(stored), args).tolist() == [0, *range(4, 12), 13]
    # Bounds in ns may be rounded, although all times are whole numbers.
    whole = np.arange(2000)
    bounds = bound("1.001ns"), bound("1.003ns")
    assert frames_between(Times(whole), *bounds).tolist() == [1001, 1002, 1003]
    # Frames that several files repeat at their borders do not narrow the slack.
    repeated = np.array([0, 4.999999, 4.999999 * (1 + 3e-16), 9.999998])
    assert frames_between(Times(repeated), bound("5ps"), None).tolist() == [1, 2, 3]
    unknown = np.array([0.0, np.nan, 2.0])
    assert frames_between(Times(unknown), ("time", 0.0), None).tolist() == [0, 2]


@pytest.mark.parametrize("ending", ["csv", "tsv", "npz"])
def test_output_has_provenance_and_is_not_overwritten(ending, adk, tmp_path, run):
    path = tmp_path / f"rmsd.{ending}"
    arguments = ["rmsd", *adk, "--select", "resid 1", "-o", path]
    status, out, _ = run(*arguments)
    assert (status, out) == (0, "")
    if ending == "npz":
        provenance = "\n".join(np.load(path)["provenance"])
    else:
        provenance = path.read_text(encoding="utf-8")
        assert len(pd.read_csv(path, comment="#", sep={"csv": ",", "tsv": "\t"}[ending])) == 98
    command = f"paceline rmsd {adk.topology} {adk.trajectory} --select 'resid 1'"
    assert f"command: {command}" in provenance
    before = path.read_bytes()
    status, _, err = run(*arguments)
    assert status == 2
    assert f"paceline: error: {path} exists" in err
    assert path.read_bytes() == before
    assert run(*arguments, "--overwrite")[0] == 0


def test_plot_and_timings(adk, tmp_path, run):
    status, out, err = run(
        "rmsf", *adk, "--plot", tmp_path / "a.svg", "--timings", "--backend", "serial"
    )
    assert status == 0
    assert out.startswith("atom index\tresid")
    assert "decode s" in err
    assert (tmp_path / "a.svg").read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["--select", "nam CA"], 2, "Unknown selection token"),
        (["--select", "name XYZ"], 2, "no atoms match"),
        (["--begin", "200"], 2, "frame numbers are 0 to 97"),
        (["--begin", "200ps"], 2, "are 1 to 98 ps"),
        (["--begin", "2.5"], 2, "a frame number or a time such as 100ps"),
        (["--step", "0"], 2, "at least 1"),
        (["--ref", "1000"], 2, "1000"),
        (["--ref", "nowhere.pdb"], 2, "nowhere.pdb"),
        (["-o", "a.txt"], 2, "a.txt: results are saved as"),
        (["-o", "nowhere/a.csv"], 2, "the folder nowhere does not exist"),
        (["--plot", "a.docx"], 2, "a.docx: figures are saved as"),
        (["--backend", "serial", "--n-workers", "2"], 2, "one worker"),
        (["--backend", "mpj"], 2, "invalid choice"),
    ],
)
def test_wrong_arguments_end_with_status_2(arguments, status, words, adk, run):
    found, out, err = run("rmsd", *adk, *arguments)
    assert found == status
    assert out == ""
    assert words in err
    assert "Traceback" not in err
    assert len(err.splitlines()[-1]) > 20


def test_what_a_topology_does_not_tell_cannot_be_selected(run):
    from MDAnalysisTests.datafiles import DLP_CONFIG, DLP_HISTORY

    for command in ("rmsd", "rmsf"):
        status, _, err = run(command, DLP_CONFIG, DLP_HISTORY)
        assert status == 2
        assert "needs an attribute that the topology lacks" in err
        assert "Traceback" not in err


def test_missing_files_end_with_status_2(adk, run):
    for *command, name in (
        *(["info", "nowhere.xtc"], ["index", "nowhere.xtc"]),
        *(["rmsd", adk.topology, "nowhere.xtc"], ["rmsd", adk.topology, "nowhere"]),
    ):
        status, _, err = run(*command, name)
        assert status == 2
        assert f"{name}: No such file" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["rmsd", "{top}", "{trj}", "--checkpoint", "{folder}"], "is a folder"),
        (["rmsd", "{top}", "{trj}", "-o", "{top}/a.csv"], "does not exist"),
        (["convert", "{trj}", "{folder}"], "is a folder"),
        (["report", "{folder}"], "Is a directory"),
        (["rmsd", "{other}", "{trj}"], "the topology has 47681 atoms, the trajectory 3341"),
        (["convert", "{trj}", "a.xtc", "--precision", "0"], "expected a number above 0, found 0"),
        (["convert", "{trj}", "a.h5md", "--precision", "x"], "expected a number, found 'x'"),
    ],
)
def test_arguments_known_to_be_wrong_end_with_status_2(
    arguments, words, adk, adk_in_water, tmp_path, run
):
    names = {"top": adk.topology, "trj": adk.trajectory, "other": adk_in_water.topology}
    given = [one.format(folder=tmp_path, **names) for one in arguments]
    status, out, err = run(*given)
    assert (status, out) == (2, "")
    assert words in err


@pytest.mark.parametrize(
    "arguments",
    [
        ["rmsd", "md.gro", "ftp://host/md.xtc", "other.xtc"],
        ["rmsd", "md.gro", "-f", "other.xtc", "ftp://host/md.xtc"],
        ["rmsd", "md.gro", "md.xtc", "--ref", "https://example.org/1ake.pdb"],
        ["rmsd", "md.gro", "md.xtc", "-n", "s3://bucket/index.ndx"],
        ["rmsd", "md.gro", "md.xtc", "-o", "s3://bucket/rmsd.csv"],
        ["rmsd", "md.gro", "md.xtc", "--plot", "s3://bucket/rmsd.png"],
        ["rmsd", "md.gro", "md.xtc", "--checkpoint", "s3://bucket/kept"],
        ["rmsd", "md.gro", "md.xtc", "--report", "s3://bucket/report.html"],
        ["battery", "md.gro", "md.xtc", "-o", "s3://bucket/results"],
        ["convert", "md.xtc", "s3://bucket/md.h5md"],
        ["repack", "md.h5md", "gs://bucket/md.h5md"],
        ["split", "md.xtc", "-n", "2", "-o", "az://bucket/md.xtc"],
        ["join", "md.xtc", "-o", "s3://bucket/md.xtc"],
        ["index", "md.xtc", "-o", "s3://bucket/index"],
        ["validate", "md.xtc", "-o", "s3://bucket/md.xtc"],
        ["survey", ".", "-o", "s3://bucket/tables"],
        ["report", "https://example.org/run.csv"],
        ["surface", "s3://bucket/a.csv", "b.csv"],
        ["run", "s3://bucket/battery.toml"],
        ["bench", "scaling", "rmsd", "md.gro", "s3://bucket/md.xtc"],
    ],
)
def test_a_url_is_refused_with_a_sentence(arguments, run):
    status, out, err = run(*arguments)
    (url,) = (one for one in arguments if "://" in one)
    words = "expected a file of this machine, found a URL"
    advice = (
        "trajectories and topologies are read from addresses, other files are not, and none is "
        "written there: give the path of a local file"
    )
    if url.startswith("ftp"):
        advice = "copy it to a disk first"
    assert (status, out, err) == (2, "", f"paceline: error: {url}: {words}: {advice}\n")


def test_a_folder_may_be_named_as_a_url(adk, tmp_path, run, monkeypatch):
    (tmp_path / "s3:" / "bucket").mkdir(parents=True)
    shutil.copy(adk.trajectory, tmp_path / "s3:" / "bucket" / "md.dcd")
    monkeypatch.chdir(tmp_path)
    assert run("info", "s3://bucket/md.dcd")[0] == 0


def test_damaged_files_end_with_status_1(damaged, run):
    system, frames = damaged
    status, out, err = run("rmsd", *system)
    assert (status, out) == (1, "")
    # Blocks run in parallel, so that any of the damaged frames may be reported first.
    assert any(f"{system.trajectory}: frame {frame}, byte" in err for frame in frames)
    assert err.count("\n") == 1
    status, out, err = run("rmsd", *system, "--on-error", "skip")
    assert status == 0
    assert np.isnan(table(out)[frames, 2]).all()
    assert err.count("paceline: left out frame ") == len(frames)


def test_many_damaged_frames_are_counted(tmp_path, run):
    """Check damaged frames as in a TRR file with velocities in more frames than positions."""
    from MDAnalysis import Universe, Writer

    universe = Universe.empty(3, trajectory=True, velocities=True)
    universe.add_TopologyAttr("names", ["C1", "C2", "C3"])
    universe.dimensions = [20, 20, 20, 90, 90, 90]
    topology, path = tmp_path / "three.gro", tmp_path / "velocities.trr"
    universe.atoms.positions = np.eye(3)
    universe.atoms.write(topology)
    with Writer(str(path), 3) as writer:
        for frame in range(60):
            universe.trajectory.ts.has_positions = frame % 2 == 0
            if frame % 2 == 0:
                universe.atoms.positions = np.eye(3)
            writer.write(universe.atoms)
    status, out, err = run("gyration", topology, path, "--select", "all", "--on-error", "skip")
    assert status == 0
    assert np.isnan(table(out)[1::2, 2]).all()
    assert err.count("paceline: left out frame ") == 20
    assert err.endswith(
        "left out 10 further frames, 41 to 59: 'damaged frames' of the table lists them\n"
    )


def test_debug_shows_where(damaged, run):
    status, _, err = run("rmsd", *damaged[0], "--debug")
    assert status == 1
    assert "Traceback" in err


def test_ctrl_c_ends_with_status_130(adk, run, monkeypatch):
    def interrupt(args):
        raise KeyboardInterrupt

    monkeypatch.setattr(analysis_commands, "run_analysis_command", interrupt)
    status, out, err = run("rmsd", *adk)
    assert (status, out, err) == (130, "", "paceline: interrupted\n")


def test_info_tells_what_a_file_holds(adk, adk_in_water, run):
    status, out, _ = run("info", adk.trajectory, adk_in_water.trajectory)
    assert status == 0
    assert "atoms                     3341\n" in out
    assert "atoms                     47681\n" in out
    _, out, _ = run("info", "--tsv", adk.trajectory, adk_in_water.trajectory)
    header, *rows = (line.split("\t") for line in out.splitlines())
    assert len(rows) == 2
    facts = dict(zip(header, rows[1], strict=True))
    assert facts["format"] == "XTC"
    assert facts["frames"] == "10"
    assert facts["last time (ps)"] == "900"
    assert facts["time between frames (ps)"] == "100"
    assert facts["cell (Å, degrees)"].endswith("60 60 90")


@pytest.mark.parametrize("command", ["info", "index"])
def test_files_behind_a_bad_one_have_their_turn(command, run, adk, tmp_path):
    bad = tmp_path / "bad.xtc"
    bad.write_bytes(b"no trajectory")
    status, out, said = run(command, str(bad), str(tmp_path / "none.dcd"), adk.trajectory)
    assert status
    assert adk.trajectory in out
    assert all(name in said for name in ("bad.xtc", "none.dcd"))


def test_index_says_how_it_came_about(adk_in_water, tmp_path, run):
    path = shutil.copy(adk_in_water.trajectory, tmp_path)
    origins = [run("index", path, *more)[1].split("\t")[2] for more in ([], [], ["--refresh"])]
    assert origins == ["scanned", "loaded", "scanned"]


def test_a_reader_that_has_enough_is_no_error(adk, tmp_path):
    code = "import sys; from paceline.cli import main; sys.exit(main())"
    plot = tmp_path / "a.png"
    command = [sys.executable, "-c", code, "rmsd", *adk, "--plot", str(plot)]
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert done.returncode == 0
    assert "Broken" not in done.stderr
    assert plot.exists()


def test_several_trajectories_follow_one_another(adk, adk_xtc, run):
    status, out, _ = run("rmsd", *adk, adk_xtc.trajectory)
    assert status == 0
    assert len(table(out)) == 2 * 98


def test_files_may_be_given_by_place_or_by_option(adk, run):
    wanted = run("rmsd", *adk, "--end", 3)
    assert wanted[0] == 0
    topology, trajectory = adk
    for files in (
        ("-s", topology, "-f", trajectory),
        ("-f", trajectory, "-s", topology),
        ("--topology", topology, "--trajectory", trajectory),
        ("-s", topology, trajectory),
        (topology, "-f", trajectory),
    ):
        assert run("rmsd", *files, "--end", 3)[:2] == wanted[:2]
    # Options may stand between files, and files after options.
    assert run("rmsd", topology, "--end", 3, trajectory)[:2] == wanted[:2]
    assert run("rmsd", "--end", 3, "--", topology, trajectory)[:2] == wanted[:2]


@pytest.mark.parametrize("command", ["info", "index", "validate"])
def test_files_that_are_looked_at_may_be_a_pattern(command, adk_xtc, tmp_path, run):
    for k in (10, 2):
        shutil.copy(adk_xtc.trajectory, tmp_path / f"md.part{k}.xtc")
    status, out, err = run(command, tmp_path / "md.part*.xtc")
    assert status == 0
    names = re.findall(r"(?:^|\W)md\.part(\d+)\.xtc(?!\.)", out + err)
    assert list(dict.fromkeys(names)) == ["2", "10"]
    status, _, err = run(command, tmp_path / "md.chunk*.xtc")
    assert status == 2
    assert "no file matches this pattern" in err


def test_several_trajectories_may_follow_f(adk, adk_xtc, run):
    wanted = run("rmsd", *adk, adk_xtc.trajectory)
    files = ("-f", adk.trajectory, "-s", adk.topology, "-f", adk_xtc.trajectory)
    assert run("rmsd", *files)[:2] == wanted[:2]
    assert run("rmsd", "-f", adk.trajectory, adk_xtc.trajectory, "-s", adk.topology)[1] == wanted[1]


def test_convert_takes_its_files_like_other_commands(adk, tmp_path, run):
    select = ("--select", "name CA", "--end", "3")
    for k, files in enumerate(
        [
            lambda out: (*adk, out),
            lambda out: ("-s", adk.topology, adk.trajectory, out),
            lambda out: ("-s", adk.topology, "-f", adk.trajectory, "-o", out),
            lambda out: (adk.topology, "-f", adk.trajectory, "-o", out),
            lambda out: (*adk, "-o", out),
        ]
    ):
        out = tmp_path / f"{k}.xtc"
        status, _, err = run("convert", *files(out), *select)
        assert (status, "3 frames of 214 atoms" in err) == (0, True), err
        assert out.read_bytes() == (tmp_path / "0.xtc").read_bytes()


@pytest.mark.parametrize("command", ["info", "index", "validate", "split", "join"])
def test_commands_on_files_take_f(command, adk_in_water, tmp_path, run):
    path = shutil.copy(adk_in_water.trajectory, tmp_path)
    more = {"split": ("-n", 2), "join": ("-o", tmp_path / "joined.xtc")}.get(command, ())
    assert run(command, "-f", path, *more)[0] == 0
    assert run(command, "-f", path, path, "--", path, *more)[0] == 2


@pytest.mark.full
def test_advise_and_bench_take_s_and_f(adk, run):
    files = ("-s", adk.topology, "-f", adk.trajectory)
    assert run("advise", *files, "--tsv")[0] == 0
    bench = ("bench", "scaling", "rmsf", *files, "--workers", 1, "--repeats", 1)
    status, out, err = run(*bench)
    assert status == 0, err
    assert out.startswith("scaling\tworkers")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["rmsd"], "expected TOPOLOGY TRAJECTORY..., or -s TOPOLOGY -f TRAJECTORY..., found none"),
        (["rmsd", "md.xtc"], "found md.xtc, which is a trajectory"),
        (["rmsd", "md.tpr"], "found only the topology md.tpr"),
        (["rmsd", "-s", "md.tpr"], "found only the topology md.tpr"),
        (["rmsd", "-f", "md.xtc"], "found only md.xtc"),
        (["rmsd", "md.xtc", "md.tpr"], "md.xtc is a trajectory and md.tpr a topology"),
        (["rmsd", "-s", "md.xtc", "-f", "md.tpr"], "the topology comes first"),
        (["rmsd", "md.xtc", "md.gro"], "the topology comes first"),
        (["rmsd", "md.tpr", "md.psf"], "expected a trajectory, found md.psf, a topology"),
        (["rmsd", "-s", "a.tpr", "b.tpr", "md.xtc"], "the topology is given twice: a.tpr with -s"),
        (["rmsd", "-s", "a.tpr", "b.gro", "md.xtc"], "the topology is given twice: a.tpr with -s"),
        (["rmsd", "-s", "a.tpr", "-f", "a.xtc", "b.xtc", "--mass", "c.xtc"], "given twice: a.xtc"),
        (["rmsd", "a.tpr", "b.xtc", "-f", "a.xtc"], "the trajectory is given twice"),
        (["convert", "md.tpr", "out.xtc"], "found only the topology md.tpr"),
        (["convert", "md.gro", "out.xtc"], "md.gro: only a structure, such as GRO or PDB, "),
        (["convert", "md.gro", "out.xtc"], "needs no trajectory, and then -o must name the output"),
        (["convert", "md.xtc"], "expected [TOPOLOGY] TRAJECTORY... OUTPUT, or"),
        (["convert", "-f", "md.xtc", "out.xtc"], "name the output with -o"),
        (["convert", "a.xtc", "md.tpr", "out.xtc"], "expected a trajectory, found md.tpr"),
        (
            ["convert", "a.xtc", "md.tpr"],
            "OUTPUT, or [-s TOPOLOGY] -f TRAJECTORY... -o OUTPUT, "
            "found md.tpr, a topology, as the output",
        ),
        (["rmsd", "md.tpr", "."], "expected a trajectory, found ., a folder"),
        (["index"], "expected TRAJECTORY..., or -f TRAJECTORY..., found no trajectory"),
        (["index", "md.tpr"], "expected a trajectory, found md.tpr, a topology"),
        (["validate", "md.tpr"], "found only the topology md.tpr"),
        (["split", "a.xtc", "b.xtc", "-n", "2"], "expected one trajectory, found a.xtc, b.xtc"),
    ],
)
def test_files_that_are_missing_doubled_or_swapped_are_named(arguments, words, run):
    status, out, err = run(*arguments)
    assert (status, out) == (2, "")
    assert words in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "command", [["rmsd"], ["gyration"], ["leaflets", "--select", "name CA", "--cutoff", "3.9"]]
)
def test_a_structure_alone_is_a_frame(command, adk_in_water, run):
    structure = adk_in_water.topology
    status, out, err = run(*command, structure)
    assert status == 0
    # The cell splits the protein, but leaflets need no whole molecules.
    assert [line for line in err.splitlines() if "a molecule is broken across" not in line] == []
    assert out == run(*command, structure, structure)[1]
    assert out == run(*command, "-s", structure)[1]
    assert len(table(out)) == 1


def test_a_structure_alone_is_converted(adk_in_water, tmp_path, run):
    structure, out = adk_in_water.topology, tmp_path / "out.xtc"
    for files in ([structure], ["-s", structure]):
        assert run("convert", *files, "-o", out, "--select", "protein", "--overwrite")[0] == 0
        written = MDAnalysis.coordinates.XTC.XTCReader(str(out))
        protein = MDAnalysis.Universe(structure).select_atoms("protein")
        np.testing.assert_allclose(written.ts.positions, protein.positions, atol=1e-4)
        assert (written.n_frames, written.n_atoms) == (1, len(protein))


def test_a_structure_alone_may_have_models(adk, universe, tmp_path, run):
    path = tmp_path / "models.pdb"
    universe.select_atoms("name CA").write(path, frames=universe.trajectory[:3])
    assert len(table(run("rmsd", path)[1])) == 3


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["rmsd", "{psf}"], "adk.psf: only a structure, such as GRO or PDB, needs no traj"),
        (["battery", "{psf}"], "adk.psf: only a structure"),
        (["battery", "{gro}", "--replicas"], "--replicas and --group need trajectories, found"),
        (["advise", "{gro}"], "found only the topology {gro}"),
        (["bench", "scaling", "rmsd", "{gro}"], "found only the topology {gro}"),
        (["survival", "{gro}", "--select", "name CA"], "is more than the 1 frame of the run"),
        (["pca", "{gro}"], "No covariance information can be gathered from a single frame"),
    ],
)
def test_what_needs_more_than_a_structure_says_so(command, words, adk, adk_in_water, run):
    names = {"psf": adk.topology, "gro": adk_in_water.topology}
    status, out, err = run(*(word.format(**names) for word in command))
    assert (status, out) == (2, "")
    assert words.format(**names) in err


def test_batteries_of_a_structure(adk_in_water, tmp_path, run):
    structure = adk_in_water.topology
    status, _, err = run("battery", structure, "-o", tmp_path / "battery")
    assert (status, "left out of the battery: pca: 2 frames are needed" in err) == (0, True)
    assert (tmp_path / "battery" / "rmsd.csv").exists()
    (tmp_path / "own.toml").write_text("[rmsd]\n")
    given = tmp_path / "own.toml", "-s", structure, "-o", tmp_path / "own"
    assert run("run", *given)[0] == 0
    assert (tmp_path / "own" / "rmsd.csv").exists()


def test_swapped_files_are_recognised_by_their_content(adk, tmp_path, run):
    odd = shutil.copy(adk.trajectory, tmp_path / "trajectory.out")
    assert "which is a trajectory" in run("rmsd", odd, odd)[2]
    assert f"--fit reads {adk.topology} as its selection" in run("rmsd", "--fit", *adk)[2]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["rsmd"], "no command 'rsmd': did you mean 'paceline rmsd'?"),
        (["interactions"], "no command 'interactions' (paceline --help explains)"),
        (["msd", "a.tpr", "a.xtc", "--selct", "all"], "no option --selct: did you mean --select?"),
        (["split", "a.xtc", "--parts", "3"], "no option --parts"),
        (["msd", "a.tpr", "a.xtc", "--follow"], "arguments are required: --select"),
        (["xyzzy"], "no command 'xyzzy' (paceline --help explains)"),
        (["trjconv"], "no command 'trjconv': gmx trjconv is 'paceline convert'"),
        (
            ["bench", "scaling", "rmsff"],
            "no analysis 'rmsff': did you mean 'paceline bench scaling rmsf'?",
        ),
        (["rmsd", "a.psf", "a.dcd", "--slect", "all"], "no option --slect: did you mean --select?"),
        (["rmsd", "a.psf", "a.dcd", "-select", "all"], "no option -select: did you mean --select?"),
        (["rmsd", "a.psf", "a.dcd", "-fit"], "no option -fit: did you mean --fit?"),
        (
            ["rmsd", "a.psf", "a.dcd", "-skip", "10"],
            "no option -skip: instead of this GROMACS option,",
        ),
        (["rmsd", "a.psf", "a.dcd", "-nobackup"], "instead of this GROMACS option, --overwrite"),
        (["rmsd", "a.psf", "a.dcd", "-xvg", "none"], "this GROMACS option, -o TABLE.csv"),
        (
            ["convert", "a.xtc", "b.xtc", "-pbc", "mol"],
            "this GROMACS option, --unwrap makes molecules whole",
        ),
        (["rmsd", "a.psf", "a.dcd", "--backend", "thread"], "did you mean threads?"),
        (["gyrate"], "no command 'gyrate': gmx gyrate is 'paceline gyration'"),
        (["distance-matrix"], "no command 'distance-matrix': did you mean 'paceline rmsd-matrix'?"),
        (["contact-map", "--cutoff", "5nm"], "--cutoff: expected a number of Å, found '5nm' ("),
        (["msd", "--fit-range", "1", "2nm"], "--fit-range: expected a time such as 100 (ps) or "),
        (["rdf", "--nbins", "1.5"], "--nbins: expected a whole number, found '1.5' ("),
        (["rdf", "--nbins", "0"], "--nbins: expected at least 1, found 0 ("),
        (["rmsd", "a.psf", "a.dcd", "--jsan"], "no option --jsan: did you mean --json?"),
        (["--step=10", "rmsd", "a.psf", "a.dcd"], 'as in "paceline rmsd --step=10"'),
        (["--step", "10", "rmsd", "a.psf", "a.dcd"], "--step stands before the command: put opt"),
        (["--select=name CA", "rmsd"], "as in \"paceline rmsd '--select=name CA'\""),
        (["--unwrap", "rmsd", "a.psf", "a.dcd"], "--unwrap stands before the command"),
        (["--foo", "rmsd", "a.psf", "a.dcd"], "--foo stands before the command"),
        (["-n2", "rmsd", "a.psf", "a.dcd"], "-n2 stands before the command"),
        (["--foo"], "no option --foo (paceline --help"),
        (["bench", "--step=10", "scaling", "rmsd"], 'as in "paceline bench scaling --step=10"'),
        (["bench", "scaling", "--unwrap", "rmsd"], 'as in "paceline bench scaling rmsd --unwrap"'),
        (
            ["bench", "scaling", "--repeats", "1", "--step=10", "rmsd", "a.psf", "a.dcd"],
            "--step=10 stands before the analysis",
        ),
        (["predict", "a.xtc", "--frames", "1", "--bytes", "1kB"], "unexpected argument 'a.xtc'"),
    ],
)
def test_what_is_mistyped_is_answered_with_what_was_meant(arguments, words, run):
    status, out, err = run(*arguments)
    assert (status, out) == (2, "")
    assert words in err
    assert err.count("\n") == 1


ALL_COMMANDS = [
    *([name] for name in ("info", "advise", "rmsd", "rmsf", "rdf", "convert", "repack", "split")),
    *([name] for name in ("join", "validate", "index", "report", "predict")),
    *(["bench", "scaling", name] for name in ("rmsd", "rmsf", "rdf")),
]


@pytest.mark.parametrize("command", ALL_COMMANDS, ids=lambda command: command[-1])
def test_help_has_the_same_order_and_examples(command, run):
    status, out, _ = run(*command, "--help")
    assert status == 0
    titles = re.findall("^([A-Za-z][A-Za-z0-9 ]{1,18}):$", out, re.MULTILINE)
    assert titles[-2:] == ["other options", "examples"]
    places = [SECTIONS.index(title) for title in titles[:-1]]
    assert places == sorted(places)
    assert f"\n  paceline {command[0]} " in out
    if "-f FILE" in out:
        assert f"paceline {' '.join(command)} [options] -" in out or "[-s TOPOLOGY]" in out


def document(text, command):
    """Return the single JSON document on standard output of this command."""

    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    found = json.loads(text, parse_constant=refuse)
    assert (found.pop("command"), found.pop("paceline")) == (command, paceline.__version__)
    return found


def test_info_as_json(adk, adk_in_water, tmp_path, run):
    status, out, _ = run("info", "--json", *adk_in_water, adk.trajectory)
    system, water, alone = document(out, "info")["files"]
    assert status == 0
    assert (system["topology"], system["atoms"]) == (adk_in_water.topology, 47681)
    assert {"name": "C-alpha", "atoms": 214} in system["groups"]
    assert (water["format"], water["frames"], water["cell"][3:]) == ("XTC", 10, [60.0, 60.0, 90.0])
    assert water["time_between_frames_ps"] == pytest.approx([100])
    assert set(water) == {
        *("file", "format", "atoms", "frames", "first_time_ps", "last_time_ps", "first_step"),
        *("time_between_frames_ps", "cell", "size_bytes", "fingerprint", "index"),
    }
    assert alone["cell"] is None
    # Known facts are printed, although a file cannot be read.
    bad = tmp_path / "bad.xtc"
    bad.write_bytes(b"no trajectory")
    status, out, err = run("info", "--json", bad, adk.trajectory)
    assert (status, len(document(out, "info")["files"])) == (2, 2)
    assert "bad.xtc" in err


def test_info_lists_the_groups_of_a_topology(adk, tmp_path, run):
    index = tmp_path / "index.ndx"
    index.write_text("[ A ]\n1 2 3\n[ B ]\n4\n")
    status, out, _ = run("info", "-s", adk.topology, "-n", index)
    assert (status, out.splitlines()[-1].split(None, 1)) == (0, ["groups", "0 A: 3, 1 B: 1"])
    assert "C-alpha: 214" in run("info", adk.topology)[1]
    assert "-n needs a topology" in run("info", adk.trajectory, "-n", index)[2]


@pytest.mark.full
def test_index_split_and_advise_as_json(adk, adk_in_water, tmp_path, run):
    path = shutil.copy(adk_in_water.trajectory, tmp_path)
    (made,) = document(run("index", "--json", path)[1], "index")["files"]
    assert (made["file"], made["frames"], made["origin"]) == (path, 10, "scanned")
    assert made["bytes_read"] <= made["size_bytes"] == os.path.getsize(path)
    assert os.path.exists(made["index_file"])
    pieces = document(run("split", path, "-n", 2, "--json")[1], "split")["pieces"]
    assert [os.path.exists(piece) for piece in pieces] == [True, True]
    rows = document(run("advise", *adk, "--json")[1], "advise")["times"]
    assert rows[0]["workers"] == 1
    names = ("from_memory_s", "from_the_disk_s", "now_s", "at_least_s", "at_most_s", "efficiency")
    assert set(rows[0]) == {"workers", *names}


def test_validate_as_json(adk, adk_in_water, tmp_path, run):
    path = tmp_path / "cut.xtc"
    with open(adk_in_water.trajectory, "rb") as file:
        path.write_bytes(file.read()[:-5])
    status, out, _ = run("validate", "--json", path, adk_in_water.trajectory)
    found = document(out, "validate")
    assert (status, found["bad"]) == (1, True)
    cut, whole = found["files"]
    assert (whole["file"], whole["frames"], whole["findings"]) == (adk_in_water.trajectory, 10, [])
    assert cut["frames"] == 9
    assert {"frame", "byte", "time_ps", "bad", "what"} == set(cut["findings"][0])
    # A difference between systems is reported as a finding.
    assert run("validate", "-s", adk_in_water.topology, "-f", adk_in_water.trajectory)[0] == 0
    status, out, _ = run("validate", adk.topology, adk_in_water.trajectory)
    assert (status, f"expected the 3341 atoms of {adk.topology}, found 47681" in out) == (1, True)


def test_tables_for_grace(adk, universe, tmp_path, run):
    path = tmp_path / "rmsd.xvg"
    arguments = ("rmsd", *adk, "--group", "resid 1-29", "-o", path)
    status, out, _ = run(*arguments)
    assert (status, out) == (0, "")
    text = path.read_text(encoding="utf-8")
    for line in (
        '@    title "RMSD against time"',
        '@    xaxis  label "time (ps)"',
        '@    yaxis  label "RMSD (Å)"',
        '@ s0 legend "protein and name CA"',
        '@ s1 legend "resid 1-29"',
    ):
        assert f"\n{line}\n" in text
    wanted = table(run(*arguments[:-2])[1])
    assert np.array_equal(np.loadtxt(path, comments=("#", "@")), wanted[:, 1:])
    reader = XVGReader(str(path))
    assert np.array_equal([step.data for step in reader], wanted[:, 1:])
    assert f"# command: paceline rmsd {adk.topology} {adk.trajectory} " in text
    assert run(*arguments)[0] == 2


@pytest.mark.parametrize(
    ("command", "title", "labels"),
    [
        (["rmsf"], "RMSF against atom index", ("atom index", "RMSF (Å)")),
        (
            ["rdf", "--select", "name CA", "--norm", "none"],
            "Pairs per frame against r",
            ("r (Å)", "pairs per frame"),
        ),
        (
            ["msd", "--select", "name CA"],
            "MSD against lag time",
            ("lag time (ps)", "MSD (Å²)"),
        ),
    ],
)
def test_every_table_can_be_drawn_by_grace(command, title, labels, adk, tmp_path, run):
    path = tmp_path / "table.xvg"
    assert run(*command, *adk, "-o", path)[0] == 0
    text = path.read_text(encoding="utf-8")
    assert re.findall(' title "(.*)"', text) == [title]
    assert re.findall('axis  label "(.*)"', text) == list(labels)
    found = np.loadtxt(path, comments=("#", "@"))
    assert found.shape[1] == 1 + text.count(" legend ")
    assert np.array_equal(
        found, np.array([step.data for step in XVGReader(str(path))]), equal_nan=True
    )


def test_maps_for_grace_have_both_coordinates(adk, tmp_path, run):
    path = tmp_path / "map.xvg"
    arguments = ("distance-map", *adk, "--select", "name CA and resid 1-5", "--end", 3)
    assert run(*arguments, "-o", path)[0] == 0
    text = path.read_text(encoding="utf-8")
    assert re.findall(' title "(.*)"', text) == ["Mean distance against residue and other residue"]
    assert re.findall('axis  label "(.*)"', text) == ["residue", "other residue"]
    assert "\n@TYPE xyz\n" in text
    assert re.findall(' legend "(.*)"', text) == ["mean distance (Å)"]
    rows = csv.DictReader(run(*arguments)[1].splitlines(), delimiter="\t")
    columns = "residue", "other residue", "mean distance (Å)"
    wanted = [[float(row[title]) for title in columns] for row in rows]
    assert np.loadtxt(path, comments=("#", "@")).tolist() == wanted


def test_damaged_frames_are_nan_for_grace(damaged, tmp_path, run):
    system, frames = damaged
    path = tmp_path / "rmsd.xvg"
    assert run("rmsd", *system, "--on-error", "skip", "-o", path)[0] == 0
    found = np.loadtxt(path, comments=("#", "@"))
    assert np.flatnonzero(np.isnan(found[:, 1])).tolist() == sorted(frames)


@pytest.mark.parametrize("given", [("--together",), ("--unwrap", "--together", "protein")])
def test_complexes_are_put_together(given, tmp_path, run):
    from MDAnalysisTests.datafiles import TPR, XTC

    path = tmp_path / "gyration.csv"
    trajectory = shutil.copy(XTC, tmp_path)
    arguments = "gyration", TPR, trajectory, "--select", "protein", "--end", 2, *given
    assert run(*arguments, "-o", path)[0] == 0
    text = path.read_text(encoding="utf-8")
    selection = "complexes" if len(given) == 1 else "protein"
    assert f"transforms: unwrap(together={selection})\n" in text


BROKEN = "a molecule is broken across the cell in "


@pytest.mark.parametrize(
    ("command", "names"),
    [
        (["gyration"], "Gyration needs"),
        (["rmsd", "--center"], "RMSD and center (--center) need"),
        (["distances", "--between", "centers", "--select-2", "resid 1"], "CenterDistance needs"),
        (["contact-map", "--fit", "protein"], "fit (--fit) needs"),
    ],
)
def test_broken_molecules_warn(command, names, drifting, run):
    select = () if command[0] == "contact-map" else ("--select", "protein and name CA")
    err = run(command[0], *drifting, *select, *command[1:])[2]
    where = rf"{BROKEN}1 of 3 frames, first in frame 2: "
    found = re.search(rf"{where}atoms (\d+) and (\d+) .* (\S+) Å apart; (.*)", err)
    assert found, err
    universe = MDAnalysis.Universe(*drifting)
    first, second = universe.atoms[[int(found[1]), int(found[2])]]
    assert abs(first.resid - second.resid) <= 1
    universe.trajectory[2]
    length = np.linalg.norm(first.position - second.position)
    assert length > universe.dimensions[0] / 2
    assert found[3] == f"{length:.1f}"
    assert found[4] == f"{names} whole molecules: unwrap (--unwrap) makes molecules whole"
    assert BROKEN not in run(command[0], *drifting, *select, *command[1:], "--end", 2)[2]


@pytest.mark.parametrize(
    "command",
    [
        ["gyration", "--select", "protein", "--unwrap"],
        ["gyration", "--select", "protein", "--together"],
        # Molecules are whole in the first frame, and unwrapped from there.
        ["gyration", "--select", "protein", "--nojump"],
        ["gyration", "--select", "name OW"],
        ["msd", "--select", "name CA", "--fit-range", 0, 1],
        ["contact-map"],
    ],
)
def test_nothing_is_said_of_molecules_that_need_not_be_whole(command, drifting, run):
    assert BROKEN not in run(command[0], *drifting, *command[1:])[2]


def test_broken_molecules_warn_once_per_replica(drifting, tmp_path, run):
    topology, path = drifting
    battery = tmp_path / "battery.toml"
    battery.write_text("[rmsd]\nselect = 'name CA'\n[gyration]\nselect = 'protein'\n")
    again = tmp_path / "again.xtc"
    universe = MDAnalysis.Universe(topology, path)
    with MDAnalysis.Writer(f"{again}", universe.atoms.n_atoms) as writer:
        for ts in universe.trajectory:
            ts.positions += 0.5
            writer.write(universe.atoms)
    files = battery, topology, path, again, "--replicas", "-o"
    status, _, err = run("run", *files, tmp_path / "whole")
    assert (status, err.count(BROKEN)) == (0, 0)
    status, _, err = run("run", *files, tmp_path / "out", "--no-unwrap")
    assert (status, err.count(BROKEN)) == (0, 2)
    assert all(f"{file}: {BROKEN}1 of 3 frames" in err for file in (path, again))
    assert "RMSD and Gyration need whole molecules" in err


def test_messages_name_options_and_no_keywords(adk, adk_in_water, tmp_path, run):
    out = tmp_path / "out.trr"
    out.touch()
    selected = "--hydrogens-sel", "type H", "--acceptors-sel", "type O"
    ca = "--select", "name CA"
    lines = Path(adk_in_water.topology).read_text().splitlines()
    for k, line in enumerate(lines[2:-1], start=2):  # bonds of standard residues are found by name
        lines[k] = f"{line[:5]}LIG  {line[10:15].replace('OW', 'O1')}{line[15:]}"
    unknown = tmp_path / "unknown.gro", adk_in_water.trajectory
    unknown[0].write_text("\n".join([*lines, ""]))
    said = [
        run("convert", adk_in_water.trajectory, out)[2],
        run("rmsd", *adk, adk.trajectory, "--end", 2)[2],
        run("rmsd", adk.topology, adk_in_water.trajectory)[2],
        run("rmsd", *unknown, *ca, "--unwrap", "--end", 2)[2],
        run("hbonds", *unknown, *selected, "--select", "all")[2],
        run("rdf", *unknown, "--select", "all", "--exclude-same", "fragment", "--end", 2)[2],
        run("order", *adk, "--select", "name O")[2],
        run("contacts", *adk, *ca, "--select-2", ca[1], "--radius", 8, "--end", 1)[2],
    ]
    for text, words in zip(
        said,
        (
            "it is replaced only with --overwrite",
            "; --continuous ",
            "load the topology that the trajectory was written with",
            "load a topology that has them",
            "set --donors-sel, use a topology with bonds, or --guess-bonds",
            "--exclude-same fragment needs bonds",
            "set --hydrogens, or",
            "Exclude such pairs with --residues-apart 1, or also",
        ),
        strict=True,
    ):
        assert words in text
        assert not re.search(r"[a-z]=|(?<!--)guess(?!ed by)|unwrap\(|tol_mass", text), text


def test_no_option_of_another_meaning_is_advised(tmp_path, run):
    """Check that no advice names `--center` or `--unwrap`, which are not keywords of these
    analyses.
    """
    sites = tmp_path / "sites.gro"
    atoms = (f"{k:5}SIT     XX{k:5}{k:8.3f}{0:8.3f}{0:8.3f}\n" for k in (1, 2))
    sites.write_text(f"two sites\n 2\n{''.join(atoms)}   5.0   5.0   5.0\n")
    assert "use --geometry" in run("rdf", sites, "--select", "all", "--compound", "residues")[2]
    bare = tmp_path / "bare.pdb"
    bonded = (
        f"HETATM{k:5}  C{k}  LIG A{(k + 1) // 2:4}    {k:8.3f}{0:8.3f}{0:8.3f}  1.00  0.00\n"
        for k in range(1, 5)
    )
    bare.write_text(
        "CRYST1   50.000   50.000   50.000  90.00  90.00  90.00 P 1           1\n"
        f"{''.join(bonded)}CONECT    1    2\nEND\n"
    )
    unwrapped = run("msd", bare, bare, "--select", "all", "--unwrap")[2]
    assert "error: --unwrap: the topology has no bonds" in unwrapped


#: Names of calls whose arguments are messages; "file(s)" is not a call.
FAILS = re.compile(r"(Error|Warning|^warn|unsupported)$")
CALL = re.compile(r"[\w.]*\w\([^()]*\)")
#: Calls that may not occur in messages of commands, and a symbol.
NEVER_SAID = {"run()", "blocks()", "g(r)"}


def words_of(node):
    """Return the words of a string in Python source, with X for inserted values."""
    if isinstance(node, ast.JoinedStr):
        return "".join(map(words_of, node.values))
    value = getattr(node, "value", "")
    return "X" if isinstance(node, ast.FormattedValue) else value if isinstance(value, str) else ""


def test_code_in_messages_is_marked_as_advice_for_scripts():
    said = 0
    for path in Path(paceline.__file__).parent.rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            name = getattr(call, "func", None)
            name = getattr(name, "id", getattr(name, "attr", ""))
            # Commands pass arguments of the right types.
            if not FAILS.search(name) or name == "TypeError":
                continue
            for node in (one for given in call.args for one in ast.walk(given)):
                if isinstance(node, ast.JoinedStr | ast.Constant):
                    said += 1
                    code = set(CALL.findall(words_of(node))) - NEVER_SAID
                    assert not code, f"{path}:{node.lineno}: with_script_advice(…, …)"
    assert said > 1000


def test_errors_end_with_advice_for_scripts_which_commands_leave_out():
    error = with_script_advice(SelectionError("no bonds"), ", or call guess_bonds()")
    assert str(error) == "no bonds, or call guess_bonds()"
    assert without_script_advice(error) == "no bonds"
    assert without_script_advice(pickle.loads(pickle.dumps(error))) == "no bonds"
    failed = AnalysisError.of(f"gyration raised: {error}", error)
    assert without_script_advice(failed) == "gyration raised: no bonds"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["rmsd", "--select", "foo bar"],
            "'foo bar' cannot be read as a selection: Unknown selection token",
        ),
        (
            ["rmsd", "--group", "foo bar"],
            "'foo bar' cannot be read as a selection: Unknown selection token",
        ),
        (["rmsd", "--group", "name XX"], "error: --group: no atoms match 'name XX'"),
        (
            ["gyration", "--fit", "foo bar"],
            "'foo bar' cannot be read as a selection: Unknown selection token",
        ),
        (
            ["gyration", "--select", "name CA and"],
            "'name CA and' cannot be read as a selection: it ends too early",
        ),
        (
            ["gyration", "--select", "protein and (name CA"],
            "'protein and (name CA' cannot be read as a selection: it ends where ')' is expected",
        ),
        (
            ["gyration", "--select", "name CA or resid"],
            "'name CA or resid' cannot be read as a selection: it ends too early",
        ),
        (["rmsf", "--align", "name XX"], "error: --align: no atoms match 'name XX'"),
        (
            ["hbonds", "--donors-sel", "foo bar"],
            "'foo bar' cannot be read as a selection: Unknown selection",
        ),
        (["rmsf", "--align", "name CA and resid 1"], "--align: 1 atoms have no orientation"),
    ],
)
def test_selections_that_are_wrong_are_named(arguments, words, adk, run):
    status, _, err = run(arguments[0], *adk, *arguments[1:])
    assert (status, words in err) == (2, True), err


@pytest.mark.parametrize("option", ["--align", "--together", "--fit", "--center"])
def test_an_option_that_takes_a_file_for_its_selection(option, adk, run):
    status, _, err = run("rmsf", option, *adk)
    assert (status, f"{option} reads {adk.topology} as its selection" in err) == (2, True), err


def test_a_command_of_the_same_letters_is_meant(run):
    assert "did you mean 'paceline rmsd'?" in run("rmds")[2]
    assert "did you mean 'paceline rmsf'?" in run("rmfs")[2]


def test_a_reference_that_is_no_frame(adk, run):
    both = ["--select", "name CA", "--select-2", "name CB"]
    for command in (["rmsd"], ["contacts", *both]):
        status, _, err = run(command[0], *adk, *command[1:], "--ref", 98)
        assert (status, "reference frame 98: the trajectory has 98 frames" in err) == (2, True)


def options_of(command):
    arguments = ["a.tpr", "a.xtc", "--select", "all", "-o", "b.xtc"]
    more = ["--select-2", "all"] if command == "rdf" else []
    return command_line.parser_of().parse_args([command, *arguments, *more]).option_names


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("choose one with group= (--particles): a, b", "choose one with --particles: a, b"),
        ("backend='threads' sends nothing", "--backend threads sends nothing"),
        ("n_workers=4 contradicts the backend", "--n-workers 4 contradicts the backend"),
        ("give dt= (--dt) to say better", "give --dt to say better"),
        ("give a larger max_memory=, or", "give a larger --max-memory, or"),
        ("reference=3 and rebound=4 stay", "reference=3 and rebound=4 stay"),
        (
            "it needs unwrap=; unwrap=None (--unwrap-particles none)",
            "it needs unwrap=; --unwrap-particles none",
        ),
        ("cutoff=3 is below the cutoff", "cutoff=3 is below the cutoff"),
        ("it exists (overwrite=True, --overwrite)", "it exists (--overwrite)"),
    ],
)
def test_keywords_become_options(message, shown):
    assert in_options(message, options_of("rmsd")) == shown


@pytest.mark.parametrize(
    ("command", "message", "shown"),
    [
        ("sasa", "probe_radius must be at least 0 Å", "--probe-radius must be at least 0 Å"),
        (
            "rdf",
            "exclude_same and exclusion_block exclude",
            "--exclude-same and --exclusion-block exclude",
        ),
        ("rdf", "InterRDF: exclusion_block=(1, 1) needs", "InterRDF: --exclusion-block 1 1 needs"),
        ("rdf", "a range must be", "a range must be"),
        ("rdf", "InterRDF: range must be", "InterRDF: --range must be"),
        ("rdf", "lengths differ (g1: 2, g2: 1)", "lengths differ (--select: 2, --select-2: 1)"),
        ("rdf", "make them whole, and give unwrap=False", "make them whole, and give unwrap=False"),
        ("msd", "it needs unwrap=", "it needs --unwrap-particles"),
        ("hbonds", "pbc must be", "pbc must be"),
        ("hbonds", "'d_a_cutoff' of /a/d_a_cutoff.csv", "'d_a_cutoff' of /a/d_a_cutoff.csv"),
        ("align", "select: no atoms", "--select: no atoms"),
    ],
)
def test_arguments_are_named_as_options(command, message, shown):
    assert in_options(message, options_of(command)) == shown


def completed(line, folder, **shell):
    """Return completions of the last word of a command line, in this folder."""
    pytest.importorskip("argcomplete")
    answer = folder / "answer"
    asked = {"COMP_LINE": line, "COMP_POINT": str(len(line)), "_ARGCOMPLETE": "1"}
    asked |= {"_ARGCOMPLETE_STDOUT_FILENAME": str(answer), "_ARGCOMPLETE_IFS": "\n"} | shell
    code = "import sys; sys.argv[0] = 'paceline'; from paceline.cli import main; main()"
    subprocess.run([sys.executable, "-c", code], cwd=folder, env=os.environ | asked, check=True)
    return sorted(word.strip() for word in answer.read_text().split("\n"))


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("paceline rep", ["repack", "replay", "report"]),
        ("paceline diff", ["diffusionmap"]),
        ("paceline diffusionmap --eig", ["--eigenvalues"]),
        ("paceline rmsd --sel", ["--select"]),
        ("paceline rmsd md.tpr --ba", ["--backend"]),
        ("paceline rmsd --backend thr", ["threads"]),
        ("paceline rmsd md.", ["md.tpr", "md.xtc"]),
        ("paceline rmsd md.tpr md.x", ["md.xtc"]),
        ("paceline convert -s md.t", ["md.tpr"]),
        ("paceline convert -f md.tpr md.x", ["md.xtc"]),
        ("paceline rmsf -n ind", ["index.ndx"]),
        ("paceline bench scaling rmsd md.tpr --rep", ["--repeats"]),
    ],
)
def test_shells_complete_commands_options_and_files(line, wanted, tmp_path):
    for name in ("md.tpr", "md.xtc", "index.ndx"):
        (tmp_path / name).touch()
    assert completed(line, tmp_path) == wanted


@pytest.mark.full
@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_show_what_options_are_for(shell, tmp_path):
    """Set the environment variables of `register-python-argcomplete`, and check the help texts."""
    (tmp_path / "md.xtc").touch()
    asked = {"_ARGCOMPLETE_SHELL": shell, "_ARGCOMPLETE_SUPPRESS_SPACE": "1"}
    between = ":" if shell == "zsh" else "\t"
    if shell == "fish":
        asked["_ARGCOMPLETE_DFS"] = between
    (option,) = completed("paceline rmsd --sel", tmp_path, **asked)
    assert option.startswith(f"--select{between}atoms: a selection of MDAnalysis")
    commands = completed("paceline rep", tmp_path, **asked)
    assert [one.partition(between)[0] for one in commands] == ["repack", "replay", "report"]
    assert all(len(one.partition(between)[2]) > 10 for one in commands)
    (file,) = completed("paceline rmsd md.x", tmp_path, **asked)
    assert file.rstrip(":\t ") == "md.xtc"


@pytest.mark.filterwarnings("always:1 A")
def test_the_placeholder_of_a_cell_is_reported(tmp_path, run):
    path = tmp_path / "one.pdb"
    paceline.Universe(PDB_small).atoms.write(str(path))
    text = re.sub(r"(?m)^CRYST1.*\n", "", path.read_text())
    cell = "CRYST1    1.000    1.000    1.000  90.00  90.00  90.00 P 1           1\n"
    path.write_text(cell + text)
    status, _, err = run("gyration", path, "-o", tmp_path / "a.csv")
    assert (status, err.count("a cell of 1 × 1 × 1 Å is the placeholder")) == (0, 1)
