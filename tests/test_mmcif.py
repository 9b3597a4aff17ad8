"""Tests of mmCIF structures: read back by a simple parser and by gemmi."""

import re
import warnings
from importlib.util import find_spec

import MDAnalysis
import numpy as np
import pytest

import paceline
from paceline import universe as universe_module
from paceline.errors import PacelineWarning, UnsupportedError

needs_gemmi = pytest.mark.skipif(find_spec("gemmi") is None, reason="gemmi is not installed")
#: A value, with or without quotes.
TOKEN = re.compile(r"""(?:^|(?<=\s))(?:'(.*?)'|"(.*?)"|(\S+))(?=\s|$)""")


def tokens(line):
    return [next(one for one in found if one) for found in TOKEN.findall(line)]


def parsed(path):
    """Parse the single values, and the columns of atoms, of a written file."""
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[0] == "data_paceline"
    start = lines.index("loop_")
    values = dict(tokens(line) for line in lines[1:start])
    items = [line for line in lines[start + 1 :] if line.startswith("_atom_site.")]
    rows = [tokens(line) for line in lines[start + 1 + len(items) :]]
    assert {len(row) for row in rows} == {len(items)}
    columns = zip(*rows, strict=True)
    return values, dict(zip([one.partition(".")[2] for one in items], columns, strict=True))


def made(folder, residues, segments=None, cell=(40, 50, 60, 90, 80, 90), **attributes):
    """Return a Universe of paceline of residues: number, name, and names of atoms."""
    atoms = [names.split(",") for _, _, names in residues]
    places = np.repeat(np.arange(len(residues)), [len(one) for one in atoms])
    segments = [0] * len(residues) if segments is None else segments
    system = MDAnalysis.Universe.empty(
        len(places),
        len(residues),
        max(segments) + 1,
        atom_resindex=places,
        residue_segindex=segments,
        trajectory=True,
    )
    system.add_TopologyAttr("names", [name for names in atoms for name in names])
    system.add_TopologyAttr("resids", [one[0] for one in residues])
    system.add_TopologyAttr("resnames", [one[1] for one in residues])
    for name, values in attributes.items():
        system.add_TopologyAttr(name, values)
    rng = np.random.default_rng(4)
    system.atoms.positions = rng.uniform(-2000, 20_000, (len(places), 3))
    system.dimensions = cell
    system.atoms.write(str(folder / "made.trr"))
    return paceline.Universe(system._topology, str(folder / "made.trr"))


def write(atoms, path):
    paceline.Write(atoms, path.with_suffix(".xtc"), structure=path).run(backend="serial", stop=1)
    return parsed(path)


def test_atoms_are_as_in_the_topology(adk_in_water, tmp_path):
    universe = paceline.Universe(*adk_in_water)
    values, columns = write(universe.atoms, tmp_path / "out.cif")
    assert list(map(int, columns["id"])) == list(range(1, len(universe.atoms) + 1))
    assert list(columns["label_atom_id"]) == universe.atoms.names.tolist()
    assert list(columns["label_comp_id"]) == universe.atoms.resnames.tolist()
    assert list(map(int, columns["auth_seq_id"])) == universe.atoms.resids.tolist()
    positions = np.array([columns[f"Cartn_{axis}"] for axis in "xyz"], dtype=float).T
    np.testing.assert_allclose(positions, universe.atoms.positions, atol=6e-6, rtol=1e-6)
    lengths = [values[f"_cell.{name}"] for name in ("length_a", "length_b", "length_c")]
    angles = [values[f"_cell.angle_{name}"] for name in ("alpha", "beta", "gamma")]
    np.testing.assert_allclose(
        np.array([*lengths, *angles], dtype=float), universe.dimensions, atol=1e-4
    )
    masses = {"C": 12.011, "N": 14.007, "O": 15.999, "H": 1.008, "S": 32.06, "Na": 22.99, "X": 0}
    wanted = np.array([masses[one] for one in columns["type_symbol"]])
    np.testing.assert_allclose(wanted, universe.atoms.masses, atol=0.01)


def test_names_that_need_quotes_and_long_numbers(tmp_path):
    residues = [(200_000, "ADE", "O5',_x,C 1"), (-2, "loop_", "N,data_"), (7, "ALA", 'H"1')]
    universe = made(tmp_path, residues, [0, 0, 1], segids=["PROA", "a long name"], cell=None)
    values, columns = write(universe.atoms, tmp_path / "out.mmcif")
    assert columns["label_atom_id"] == ("O5'", "_x", "C 1", "N", "data_", 'H"1')
    assert columns["label_comp_id"] == ("ADE",) * 3 + ("loop_",) * 2 + ("ALA",)
    assert columns["auth_seq_id"] == ("200000",) * 3 + ("-2",) * 2 + ("7",)
    assert columns["auth_asym_id"] == ("PROA",) * 5 + ("A",)
    assert columns["label_asym_id"] == ("A",) * 5 + ("B",)
    assert not any(name.startswith("_cell") for name in values)


def test_residue_numbers_that_repeat_are_new(tmp_path):
    """Check that residues get new numbers if number, name and chain are equal."""
    residues = [(1, "ALA", "N,CA"), (2, "SOL", "OW"), (3, "SOL", "OW"), (2, "SOL", "OW")]
    universe = made(tmp_path, residues)
    with pytest.warns(PacelineWarning, match="have equal numbers and names"):
        _, columns = write(universe.atoms, tmp_path / "out.cif")
    assert columns["auth_seq_id"] == ("1", "1", "2", "3", "4")


def test_pdb_names_its_limits_and_what_has_none(tmp_path):
    residues = [(k, "ALA", "CA") for k in range(1, 71)] + [(10_000, "ALA", "CA")]
    universe = made(tmp_path, residues, list(range(71)))
    with pytest.warns(PacelineWarning) as said:
        paceline.analysis.structure_writer.check_structure("out.pdb", universe.atoms)
    text = str(said[0].message)
    assert "residues above 9,999 to 4 digits and names of 71 chains to 62 letters" in text
    assert "mmCIF (.cif) has no such limits" in text
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        paceline.analysis.structure_writer.check_structure("out.cif", universe.atoms)
    _, columns = write(universe.atoms, tmp_path / "out.cif")
    assert len(set(columns["auth_asym_id"])) == 71


def test_one_frame_only(universe, tmp_path):
    with pytest.raises(UnsupportedError, match="mmCIF stores one frame, but there are 2"):
        paceline.Write(universe.select_atoms("name CA"), tmp_path / "out.cif").run(stop=2)


def test_what_reading_needs_is_said(universe, tmp_path, monkeypatch):
    path = tmp_path / "out.cif"
    paceline.Write(universe.select_atoms("name CA"), path).run(stop=1)
    monkeypatch.setattr(universe_module, "find_spec", lambda name: None)
    with pytest.raises(UnsupportedError, match=r"package gemmi, and gemmi is not installed: pip"):
        paceline.Universe(path)
    monkeypatch.delitem(MDAnalysis._PARSERS, "CIF", raising=False)
    with pytest.raises(UnsupportedError, match=r"and MDAnalysis is 2\.\d+\.\S+ and gemmi is not"):
        paceline.Universe(path)


@needs_gemmi
def test_gemmi_reads_a_large_system_in_order(tmp_path):
    """Check more atoms than PDB can number, alternating chains, and repeated numbers."""
    if "CIF" not in MDAnalysis._PARSERS:
        pytest.skip("MDAnalysis before 2.11")
    n = 36_000
    residues = [(k % 30_000, "ALA" if k < 100 else "SOL", "OW,HW1,HW2") for k in range(n)]
    segments = [0] * 50 + [1] * 50 + [2] * (n - 100)
    names = ["A", "B", "A"]
    chains = np.repeat(np.array(names, dtype=object)[segments], 3)
    universe = made(
        tmp_path, residues, segments, segids=names, chainIDs=chains, elements=["O", "H", "H"] * n
    )
    with pytest.warns(PacelineWarning, match="residues of chain A have equal numbers"):
        write(universe.atoms, tmp_path / "out.cif")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = paceline.Universe(tmp_path / "out.cif")
    assert (len(found.atoms), len(found.residues)) == (3 * n, n)
    assert found.atoms.names.tolist() == universe.atoms.names.tolist()
    assert found.atoms.elements.tolist() == universe.atoms.elements.tolist()
    assert found.atoms.chainIDs.tolist() == chains.tolist()
    wanted = universe.atoms.positions
    np.testing.assert_allclose(found.atoms.positions, wanted, rtol=1e-6, atol=6e-6)
    np.testing.assert_allclose(found.dimensions, universe.dimensions, rtol=1e-5)
