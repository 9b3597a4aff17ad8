"""Tests of atom groups by name on the command line: index files, and GROMACS's default groups."""

import re
from pathlib import Path

import numpy as np
import pytest
from MDAnalysisTests import datafiles

import paceline
from paceline.cli.universe_with_named_groups import DEFAULT_GROUPS, GroupUniverse, read_index_file
from paceline.errors import DamagedFileError, SelectionError
from paceline.trajectory.open import open_file


@pytest.fixture(scope="module")
def water(adk_in_water):
    return GroupUniverse(*adk_in_water)


def gromacs(atoms, names, *, prefix=(), without=False):
    """Return protein atoms with these names, as in GROMACS's make_ndx. Names may also begin with
    `prefix`.
    """

    def matches(name):
        name = name.lstrip("0123456789").upper()
        return name in names or name.startswith(tuple(prefix) or "\0")

    protein = atoms.select_atoms("protein")
    return protein.indices[[matches(name) != without for name in protein.names]]


MAIN = {"N", "CA", "C", "O", "O1", "O2", "OC1", "OC2", "OT", "OXT"}
MAIN_H = MAIN | {"H1", "H2", "H3", "H", "HN"}


@pytest.mark.parametrize(
    ("name", "names", "prefix", "without"),
    [
        ("Protein", set(), (), True),
        ("Protein-H", set(), ("H", "HN"), True),
        ("C-alpha", {"CA"}, (), False),
        ("Backbone", {"N", "CA", "C"}, (), False),
        ("MainChain", MAIN, (), False),
        ("MainChain+Cb", MAIN | {"CB"}, (), False),
        ("MainChain+H", MAIN_H, (), False),
        ("SideChain", MAIN_H, (), True),
        ("SideChain-H", MAIN | {"H1"}, ("H2", "H3", "H", "HN"), True),
    ],
)
@pytest.mark.parametrize("topology", [datafiles.GRO, datafiles.PSF, datafiles.PDB_small])
def test_default_groups_are_those_of_make_ndx(name, names, prefix, without, topology):
    universe = GroupUniverse(topology)
    wanted = gromacs(universe.atoms, names, prefix=prefix, without=without)
    assert universe.select_atoms(name).indices.tolist() == wanted.tolist()
    assert len(wanted) > 0


def test_groups_of_water_and_ions(water):
    resnames = water.atoms.resnames
    for name, mask in {
        "System": resnames != "",
        "Water": resnames == "SOL",
        "SOL": resnames == "SOL",
        "non-Water": resnames != "SOL",
        "Ion": resnames == "NA+",
        "NA+": resnames == "NA+",
        "Water_and_ions": (resnames == "SOL") | (resnames == "NA+"),
        "non-Protein": (resnames == "SOL") | (resnames == "NA+"),
    }.items():
        assert water.select_atoms(name).indices.tolist() == np.flatnonzero(mask).tolist()
    assert "Other" not in dict(water.groups())


def test_the_manual_defines_each_default_group():
    page = (Path(__file__).parents[1] / "docs" / "command-line.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `([^`]+)` \| `([^`]+)` \|$", page, re.MULTILINE))
    assert {name: rows.get(name) for name in DEFAULT_GROUPS} == DEFAULT_GROUPS


def test_lower_case_words_stay_those_of_mdanalysis(water):
    plain = paceline.Universe(datafiles.GRO)
    for text in ("backbone", "protein", "name CA and resid 1-20"):
        assert (
            water.select_atoms(text).indices.tolist() == plain.select_atoms(text).indices.tolist()
        )
    assert len(water.select_atoms("backbone")) > len(water.select_atoms("Backbone"))


def test_groups_are_words_of_selections(water):
    found = water.select_atoms("(group Backbone or group NA+) and not name N")
    wanted = water.select_atoms("protein and name CA C or resname NA+")
    assert found.indices.tolist() == wanted.indices.tolist()


@pytest.fixture
def index_file(tmp_path):
    path = tmp_path / "index.ndx"
    path.write_text(
        "; made by hand\n[ Core ]\n1 2 3 4 5\n   6\n\n[ Tail ] ; the rest\n3341 3340\n[Empty]\n"
        "[ protein ]\n7 8 9\n[ sorted ]\n10 11\n"
    )
    return path


@pytest.mark.full
def test_groups_of_an_index_file(index_file, run, adk):
    files = (*adk, "-n", index_file, "--end", "3")
    wanted = run("rmsd", *adk, "--end", "3", "--select", "index 0:5")[1]
    for text in ("Core", "0", "group Core"):
        assert run("rmsd", *files, "--select", text)[:2] == (0, wanted)
    both = run("rmsd", *files, "--select", "group Core or group sorted")[1]
    assert both == run("rmsd", *adk, "--end", "3", "--select", "index 0:5 9 10")[1]
    # Groups are accepted wherever --select is, and in other selections.
    status, out, err = run("rmsf", *files, "--select", "Tail", "--fit", "Core")
    assert (status, [line.split("\t")[0] for line in out.splitlines()[1:]]) == (0, ["3339", "3340"])
    assert "atoms of group Tail are used in the order of the topology" in err
    status, out, _ = run("rmsd", *files, "--select", "Core", "--group", "sorted")
    assert out.splitlines()[0] == "frame\ttime (ps)\tRMSD (Å)\tRMSD of sorted (Å)"
    rdf = ("rdf", *files, "--norm", "none", "--backend", "serial")
    assert run(*rdf, "--select", "0", "--select-2", "4")[0] == 0
    assert "RMSD of 6 of 3341" in run("advise", *files[:-2], "--select", "Core")[1]


def test_groups_of_donors_hydrogens_and_acceptors(index_file, run, adk, tmp_path):
    with index_file.open("a") as more:
        more.write("[ Donors ]\n20 24 26 28\n[ updating ]\n21 25 27 29\n[ Acceptors ]\n")
        more.write(" ".join(str(k) for k in range(1, 3342)) + "\n")
    files = *adk, "-n", index_file, "--select", "all", "--end", 3
    limits = "--d-a-cutoff", 4, "--d-h-a-angle-cutoff", 90

    def bonds(donors, hydrogens, acceptors, *more):
        chosen = "--donors-sel", donors, "--hydrogens-sel", hydrogens, "--acceptors-sel", acceptors
        return run("hbonds", *files, *limits, *chosen, *more)

    status, wanted, err = bonds("index 19 23 25 27", "index 20 24 26 28", "all")
    assert (status, wanted.splitlines()[-1].split("\t")[2]) == (0, "25"), err
    assert bonds("Donors", "6", "Acceptors")[:2] == (0, wanted)
    near = "group Acceptors and ((around 9 group Donors) or group Donors)"
    assert bonds("group Donors", "group updating", near)[:2] == (0, wanted)
    table = tmp_path / "bonds.csv"
    assert bonds("Donors", "6", "around 9 group Donors", "-o", table)[0] == 0
    assert "'around 9 group Donors'" in table.read_text(encoding="utf-8")
    status, _, err = bonds("Donor", "6", "Acceptors")
    assert (status, "'Donor' is neither a selection nor a group; did you mean" in err) == (2, True)


@pytest.mark.parametrize("backend", ["serial", "processes"])
def test_groups_reach_every_backend(backend, index_file, run, adk):
    files = (*adk, "-n", index_file, "--end", "5", "--backend", backend)
    chosen = ("--select", "Core", "--fit", "group sorted or group Core")
    status, out, err = run("rmsd", *files, *chosen)
    assert status == 0, err
    plain = ("--select", "index 0:5", "--fit", "index 0:5 9 10")
    assert out == run("rmsd", *adk, "--end", "5", *plain)[1]


def test_an_index_file_needs_no_topology_to_convert(index_file, run, adk, tmp_path):
    out = tmp_path / "core.xtc"
    files = ("-f", adk.trajectory, "-n", index_file, "-o", out)
    assert run("convert", *files, "--select", "Core")[0] == 0
    assert open_file(out).n_atoms == 6
    status, _, err = run("convert", *files, "--overwrite", "--select", "name CA")
    assert (status, "needs an attribute that the topology lacks" in err) == (2, True)


def test_a_reference_has_the_same_groups(index_file, run, adk, tmp_path):
    structure = tmp_path / "reference.pdb"
    paceline.Universe(*adk).atoms.write(structure)
    chosen = (*adk, "--end", "2", "--ref", structure)
    assert run("rmsd", *chosen, "--select", "Backbone")[0] == 0
    assert run("rmsd", *chosen, "-n", index_file, "--select", "Core")[0] == 0
    paceline.Universe(*adk).select_atoms("name CA").write(structure)
    status, _, err = run("rmsd", *chosen, "-n", index_file, "--select", "Core")
    assert status == 2
    assert f"which is for 3341 atoms, but {structure} has 214" in err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Cor", "'Cor' is neither a selection nor a group; did you mean Core? groups of"),
        ("Backbone", "groups of"),
        ("5", "'5' is above the last group's number, 4"),
        ("group Tale", "'Tale' is not a group; did you mean Tail?"),
        ("protein", "write 'group protein' or '(protein)'"),
        ("Empty", "no atoms match"),
        ("nam CA", "Unknown selection token"),
        ("Core and name CA", "token: 'Core'; the group of this name is 'group Core'"),
        ("OD1", "'OD1' is neither a selection nor a group; did you mean 'name OD1'? groups of"),
    ],
)
def test_unknown_groups_are_answered_with_those_that_there_are(text, words, index_file, run, adk):
    status, out, err = run("rmsd", *adk, "-n", index_file, "--select", text)
    assert (status, out) == (2, "")
    assert words in err
    if "groups of" in err:
        assert f"groups of {index_file}: Core, Tail, Empty, protein, sorted" in err


def test_both_meanings_of_a_word_can_be_said(index_file, adk):
    universe = GroupUniverse(*adk)
    universe.use_index_file(read_index_file(index_file, 3341))
    assert universe.select_atoms("group protein").indices.tolist() == [6, 7, 8]
    assert len(universe.select_atoms("(protein)")) == 3341


def test_numbers_without_an_index_file_are_refused(run, adk):
    status, _, err = run("rmsd", *adk, "--select", "4")
    assert status == 2
    assert "only an index file (-n) numbers groups; groups without an index file: System" in err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[ A ]\n1 2 11\n", "line 2: expected an atom number, 1 to 10, found '11'"),
        ("[ A ]\n0\n", "line 2: expected an atom number, 1 to 10, found '0'"),
        ("[ A ]\n-1\n", "line 2: expected an atom number, 1 to 10, found '-1'"),
        ("[ A ]\n1\n2 x 3\n", "line 3: expected an atom number, 1 to 10, found 'x'"),
        ("[ A ]\n" + "9" * 5000, "line 2: expected an atom number, 1 to 10, found '999"),
        ("1 2\n[ A ]\n", "line 1: expected the name of a group, such as [ Protein ], found '1'"),
        ("[ A ]\n1\n[ A ]\n", "line 3: expected a name other than that in line 1, found a second"),
        ("[ A\n1\n", "line 1: expected a name without blanks or brackets, in brackets, such as"),
        ("[ my group ]\n1\n", "line 1: expected a name without blanks"),
        ("[ ]\n1\n", "line 1: expected a name without blanks"),
        (
            "[ A ]\n1 2 1\n",
            "group A, which begins in line 1: expected each atom once, found atom 1",
        ),
        ("; nothing\n", "expected groups, such as [ Protein ] and numbers of atoms, found none"),
        ("\x00\xff\n", "line 1: expected the name of a group"),
    ],
)
def test_broken_index_files_are_refused(text, message, tmp_path):
    path = tmp_path / "broken.ndx"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(DamagedFileError, match=re.escape(f"{path}: {message}")):
        read_index_file(path, 10)


def test_damaged_index_files_end_with_status_1(run, adk, tmp_path):
    path = tmp_path / "other.ndx"
    path.write_text("[ A ]\n1 5000\n")
    status, out, err = run("rmsd", *adk, "-n", path, "--select", "A")
    assert (status, out) == (1, "")
    assert err.endswith(
        f"paceline: error: {path}: line 2: expected an atom number, 1 to 3341, found '5000'\n"
    )
    assert run("rmsd", *adk, "-n", tmp_path / "none.ndx")[0] == 2


def test_files_that_mdanalysis_writes_are_read(tmp_path, adk):
    universe = paceline.Universe(*adk)
    path = tmp_path / "written.ndx"
    universe.select_atoms("name CA").write(str(path), name="Alpha")
    found = read_index_file(path, 3341).groups["Alpha"]
    assert found.tolist() == universe.select_atoms("name CA").indices.tolist()


def test_topologies_without_names_have_fewer_groups():
    universe = GroupUniverse.empty(5)
    assert dict(universe.groups()) == {"System": 5}
    with pytest.raises(SelectionError, match="did you mean System"):
        universe.select_atoms("Sytem")
