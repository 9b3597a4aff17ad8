"""Tests that cached large topologies open fast, and equal newly parsed ones."""

import json
import os
import pickle
import shutil
import stat
import threading
import time
import warnings
from pathlib import Path

import MDAnalysis
import numpy as np
import pytest
from MDAnalysis.core._get_readers import get_parser_for
from MDAnalysis.core.topology import Topology
from MDAnalysis.guesser import tables
from MDAnalysis.guesser.default_guesser import DefaultGuesser
from MDAnalysis.topology.GROParser import GROParser
from MDAnalysisTests import datafiles

import paceline
from paceline.mdanalysis import topology_cache

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:MDAnalysis")


def topology_files() -> list[str]:
    """Return files of MDAnalysisTests whose topologies are cached."""
    found = set()
    for name in datafiles.__all__:
        path = getattr(datafiles, name)
        try:
            parser = get_parser_for(str(path)).__name__
        except (TypeError, ValueError):
            continue
        if Path(path).is_file() and parser in topology_cache._PARSERS:
            found.add(os.fspath(path))
    return sorted(found)


def few_of(paths: list[str]) -> list:
    """Mark most large files, and most TPR files of GROMACS versions, to run only in full tests."""
    full = [path for k, path in enumerate(paths) if k % 5 and path.endswith(".tpr")]
    full += [path for path in paths if os.path.getsize(path) > 300_000]
    many = pytest.mark.full
    return [pytest.param(path, marks=many) if path in full else path for path in paths]


@pytest.fixture(autouse=True)
def all_sizes(monkeypatch, tmp_path):
    """Cache small topologies as well, in a test folder."""
    monkeypatch.setattr(topology_cache, "_LEAST_SIZE", 1)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))


@pytest.fixture
def parsed(monkeypatch) -> list[str]:
    """Names of the files that a parser of MDAnalysis reads."""
    names: list[str] = []
    original = MDAnalysis.core.universe._topology_from_file_like

    def parse(file, *args, **kwargs):
        names.append(Path(file).name)
        return original(file, *args, **kwargs)

    monkeypatch.setattr(MDAnalysis.core.universe, "_topology_from_file_like", parse)
    return names


@pytest.fixture
def gro(tmp_path) -> str:
    path = tmp_path / "water.gro"
    lines = [f"{k // 3 + 1:5d}{'SOL':5s}{n:>5s}{k + 1:5d}" for k, n in enumerate(["OW", "HW1"] * 3)]
    coordinates = "".join(f"{line}   1.000   2.000{k:8.3f}\n" for k, line in enumerate(lines))
    path.write_text(f"water\n6\n{coordinates}   3.0   3.0   3.0\n")
    return str(path)


def cache_of(path: str) -> Path:
    return Path(path).with_name(f".{Path(path).name}.paceline-topology")


def assert_same(found: Topology, expected: Topology) -> None:
    """Compare two topologies completely: values, types, guessed flags and indices."""
    assert vars(found).keys() == vars(expected).keys()
    assert found.tt.size == expected.tt.size
    for name in ("_AR", "_RS"):
        assert_same_arrays(getattr(found.tt, name), getattr(expected.tt, name))
    assert [type(one) for one in found.attrs] == [type(one) for one in expected.attrs]
    for one, other in zip(found.attrs, expected.attrs, strict=True):
        assert one.top is found
        assert getattr(found, one.attrname) is one
        assert vars(one).keys() == vars(other).keys(), one
        for name, value in vars(one).items():
            if name not in ("top", "_cache"):
                assert_same_values(value, vars(other)[name])


def assert_same_values(found, expected) -> None:
    assert type(found) is type(expected)
    if isinstance(found, np.ndarray):
        assert_same_arrays(found, expected)
    else:
        assert found == expected
        for one, other in zip(found, expected, strict=True) if isinstance(found, list) else ():
            assert type(one) is type(other)
            if isinstance(one, tuple):
                assert [type(item) for item in one] == [type(item) for item in other]


def assert_same_arrays(found: np.ndarray, expected: np.ndarray) -> None:
    assert found.dtype == expected.dtype
    assert found.flags.writeable
    np.testing.assert_array_equal(found, expected)
    if found.dtype == object:
        assert [type(one) for one in found] == [type(one) for one in expected]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("path", few_of(topology_files()), ids=lambda path: Path(path).name)
def test_a_cached_open_equals_a_fresh_one(path, tmp_path, parsed):
    path = shutil.copy(path, tmp_path)
    with warnings.catch_warnings(record=True) as expected_warnings:
        warnings.simplefilter("always")
        try:
            # Some files have no coordinates, or coordinates of several atoms that differ.
            expected = MDAnalysis.Universe(path, all_coordinates=False, topology_format=None)
        except Exception:
            pytest.skip("MDAnalysis cannot open it alone")
    for _ in range(2):
        with warnings.catch_warnings(record=True) as given:
            warnings.simplefilter("always")
            found = paceline.Universe(path)
        assert_same(found._topology, expected._topology)
        assert {(str(one.message), one.category, one.filename, one.lineno) for one in given} == {
            (str(one.message), one.category, one.filename, one.lineno) for one in expected_warnings
        }
        assert found.filename == expected.filename
        assert found.kwargs == expected.kwargs
        if hasattr(expected, "trajectory"):
            np.testing.assert_array_equal(found.atoms.positions, expected.atoms.positions)
    # MDAnalysis parsed the file, and paceline parsed it once.
    assert parsed == [Path(path).name] * 2
    assert cache_of(path).exists()


def unmoved(ts):
    return ts


OPTIONS = [
    {"to_guess": ()},
    {"to_guess": ("types", "masses", "bonds")},
    {"to_guess": ("masses", "types")},
    {"to_guess": ("elements",)},
    {"force_guess": ("types",)},
    {"topology_format": "GRO"},
    {"format": "GRO"},
    {"all_coordinates": True},
    {"in_memory": True},
    {"transformations": unmoved},
]


@pytest.mark.one_in(3)
@pytest.mark.filterwarnings("ignore:Bond guessing through:DeprecationWarning")
@pytest.mark.parametrize("first", [{}, *OPTIONS], ids=lambda one: "-".join(one))
def test_options_do_not_disturb_each_other(gro, first):
    paceline.Universe(gro, **first)
    for options in (*OPTIONS, {}):
        for _ in range(2):
            found = paceline.Universe(gro, **options)
            expected = MDAnalysis.Universe(gro, **options)
            assert_same(found._topology, expected._topology)
            assert found.kwargs == expected.kwargs
            np.testing.assert_array_equal(found.atoms.positions, expected.atoms.positions)


def test_options_of_the_parser_are_part_of_the_key(tmp_path, parsed):
    pdb = shutil.copy(datafiles.PDB_small, tmp_path)
    for options in ({}, {"force_chainids_to_segids": True}, {"force_chainids_to_segids": 1}):
        del parsed[:]
        found = [paceline.Universe(pdb, **options) for _ in range(2)]
        assert len(parsed) == 1
        expected = MDAnalysis.Universe(pdb, **options)
        for one in found:
            assert_same(one._topology, expected._topology)
    # A topology that cannot be compared is not cached.
    del parsed[:]
    for _ in range(2):
        paceline.Universe(pdb, unknown=np.zeros(2))
    assert len(parsed) == 2


def test_plain_mdanalysis_uses_it_while_registered(gro, parsed):
    saved = vars(MDAnalysis.Universe)["guess_TopologyAttrs"]
    parse = MDAnalysis.core.universe._topology_from_file_like
    expected = MDAnalysis.Universe(gro)
    with paceline.register():
        found = [MDAnalysis.Universe(gro) for _ in range(3)]
    assert len(parsed) == 2
    for one in found:
        assert_same(one._topology, expected._topology)
    assert vars(MDAnalysis.Universe)["guess_TopologyAttrs"] is saved
    assert MDAnalysis.core.universe._topology_from_file_like is parse
    MDAnalysis.Universe(gro)
    assert len(parsed) == 3


def test_edits_stay_in_their_universe(gro):
    expected = MDAnalysis.Universe(gro)
    for _ in range(3):
        u = paceline.Universe(gro)
        assert_same(u._topology, expected._topology)
        u.add_TopologyAttr("charges", np.arange(6.0))
        u.add_TopologyAttr("bonds", [(0, 1)])
        u.atoms.names = ["X"] * 6
        u.atoms.masses = 5.0
        u.atoms[2].residue.resid = 77
        u.atoms[3].residue = u.residues[0]
        u.add_Segment(segid="new")
        assert list(u.atoms.names) == ["X"] * 6
        for copied in (u.copy(), pickle.loads(pickle.dumps(u)), MDAnalysis.Merge(u.atoms)):
            assert list(copied.atoms.masses) == [5.0] * 6
            assert list(copied.atoms.charges) == [0, 1, 2, 3, 4, 5]


def test_another_content_is_parsed_anew(gro):
    paceline.Universe(gro)
    path = Path(gro)
    state = path.stat()
    # The new file has the same size, time and name.
    path.write_bytes(path.read_bytes().replace(b"HW1", b"HW2"))
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert set(paceline.Universe(gro).atoms.names) == {"OW", "HW2"}
    assert set(paceline.Universe(gro).atoms.names) == {"OW", "HW2"}


@pytest.mark.parametrize("change", ["version", "table", "class", "parser", "guesser"])
def test_what_others_changed_is_seen(gro, change, monkeypatch, parsed):
    expected = paceline.Universe(gro)
    assert len(parsed) == 1
    if change == "version":
        monkeypatch.setattr(MDAnalysis, "__version__", "2.99")
    elif change == "table":
        monkeypatch.setitem(tables.masses, "H", 2.0)
    elif change == "class":
        other = type("Atomnames", (), {"__module__": "kit"})
        monkeypatch.setitem(MDAnalysis._TOPOLOGY_ATTRS, "names", other)
    elif change == "parser":
        original = GROParser.parse
        monkeypatch.setattr(GROParser, "parse", lambda *args, **kwargs: original(*args, **kwargs))
    elif change == "guesser":
        monkeypatch.setattr(DefaultGuesser, "guess_masses", lambda *args, **kwargs: np.ones(6))
    found = paceline.Universe(gro)
    masses = {"table": [15.999, 2.0] * 3, "guesser": [1.0] * 6}
    np.testing.assert_array_equal(found.atoms.masses, masses.get(change, expected.atoms.masses))
    assert len(parsed) == (1 if change == "guesser" else 2)


def test_small_and_missing_files_are_left_alone(gro, monkeypatch):
    monkeypatch.setattr(topology_cache, "_LEAST_SIZE", Path(gro).stat().st_size + 1)
    paceline.Universe(gro)
    assert not cache_of(gro).exists()
    with pytest.raises(FileNotFoundError):
        paceline.Universe("missing.gro")


def test_topologies_that_depend_on_other_files_are_not_kept(tmp_path, parsed):
    itp = shutil.copy(datafiles.ITP, tmp_path)
    for _ in range(2):
        paceline.Universe(itp, infer_system=True)
    assert len(parsed) == 2
    assert not cache_of(itp).exists()


def test_where_it_cannot_be_kept_beside_the_file(gro, tmp_path, parsed):
    cache_of(gro).mkdir()
    expected = paceline.Universe(gro)
    [kept] = (tmp_path / "caches" / "paceline").iterdir()
    assert kept.suffix == ".paceline-topology"
    assert_same(paceline.Universe(gro)._topology, expected._topology)
    assert len(parsed) == 1
    # There is no usable location for the cache:
    kept.unlink()
    kept.mkdir()
    for _ in range(2):
        assert_same(paceline.Universe(gro)._topology, expected._topology)
    assert len(parsed) == 3


def test_no_more_people_may_read_it_than_the_file(gro):
    os.chmod(gro, 0o600)
    paceline.Universe(gro)
    assert stat.S_IMODE(cache_of(gro).stat().st_mode) == 0o600


def test_what_killed_processes_left_is_deleted(gro):
    left = Path(gro).with_name(f".{cache_of(gro).name}.0123456789abcdef")
    left.write_bytes(b"part")
    paceline.Universe(gro)
    assert not left.exists()
    assert {path.name for path in Path(gro).parent.iterdir()} == {
        *("water.gro", ".water.gro.paceline-topology")
    }


def test_a_file_that_changes_while_it_is_parsed_is_not_kept(gro, monkeypatch):
    original = MDAnalysis.core.universe._topology_from_file_like

    def parse(*args, **kwargs):
        path = Path(gro)
        path.write_bytes(path.read_bytes().replace(b"HW1", b"HW2"))
        return original(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(MDAnalysis.core.universe, "_topology_from_file_like", parse)
        paceline.Universe(gro)
    assert not cache_of(gro).exists()


def test_threads_and_warnings(gro, tmp_path):
    pdb = shutil.copy(datafiles.PDB_small, tmp_path)
    expected = {path: MDAnalysis.Universe(path)._topology for path in (gro, pdb)}
    original, failed = warnings.warn, []

    def work(path):
        for _ in range(5):
            cache_of(path).unlink(missing_ok=True)
            try:
                assert_same(paceline.Universe(path)._topology, expected[path])
            except Exception as error:
                failed.append(error)

    threads = [threading.Thread(target=work, args=(path,)) for path in (gro, pdb) * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert warnings.warn is original


def parts(path: Path) -> tuple[dict, list[np.ndarray]]:
    """Return the header and the arrays of a cache."""
    with np.load(path, allow_pickle=False) as file:
        arrays = [file[f"arr_{k}"] for k in range(len(file.files) - 1)]
        return json.loads(str(file["head"])), arrays


def write(path: Path, head: dict, arrays: list[np.ndarray], *, compress: bool = False) -> None:
    """Write a cache with valid checksums."""
    with open(path, "wb") as file:
        save = np.savez_compressed if compress else np.savez
        save(file, *arrays, head=np.array(json.dumps(head)))


@pytest.fixture
def kept(tmp_path):
    """A topology with bonds, MDAnalysis's result, and the cache."""
    pdb = shutil.copy(datafiles.CONECT, tmp_path)
    expected = MDAnalysis.Universe(pdb)._topology
    assert len(expected.bonds.values) > 10
    assert_same(paceline.Universe(pdb)._topology, expected)
    head, arrays = parts(cache_of(pdb))
    write(cache_of(pdb), head, arrays)
    assert_same(paceline.Universe(pdb)._topology, expected)
    return pdb, expected, cache_of(pdb)


def assert_parsed_anew(kept, parsed) -> None:
    """Check that the cache is not used, and that it is replaced."""
    pdb, expected, _ = kept
    del parsed[:]
    assert_same(paceline.Universe(pdb)._topology, expected)
    assert len(parsed) == 1
    assert_same(paceline.Universe(pdb)._topology, expected)
    assert len(parsed) == 1


def test_cut_and_changed_bytes(kept, parsed):
    pdb, expected, cache = kept
    whole = cache.read_bytes()
    random = np.random.default_rng(7)
    n_parsed = 0
    for place in [*range(0, 300, 20), *random.integers(0, len(whole), 25)]:
        cache.write_bytes(whole[:place])
        assert_parsed_anew(kept, parsed)
        changed = bytearray(whole)
        changed[place] ^= 1 << int(random.integers(8))
        cache.write_bytes(changed)
        # Unused fields of the archive, such as dates, may change.
        for _ in range(2):
            assert_same(paceline.Universe(pdb)._topology, expected)
        n_parsed += len(parsed) - 1
        assert len(parsed) <= 2
    assert n_parsed > 24


def test_a_cache_of_the_first_layout_is_replaced(kept, parsed):
    kept[2].write_bytes(b"paceline topology" + bytes(100))
    assert_parsed_anew(kept, parsed)


def _attribute(head: dict, name: str) -> dict:
    parsed = head["parsed"]
    return next(one for one in parsed["attributes"] + parsed["added"] if one["name"] == name)


def _foreign_npz(cache, head, arrays):
    with open(cache, "wb") as file:
        np.savez(file, names=np.arange(3))


def _pickles(cache, head, arrays):
    index = _attribute(head, "tempfactors")["values"]
    arrays[index] = np.array([_Evil()] * len(arrays[index]), dtype=object)
    write(cache, head, arrays)


def _compressed(cache, head, arrays):
    """Return a small file that would expand to much memory."""
    write(cache, head, [*arrays, np.zeros(10**7)], compress=True)


class _Evil:
    def __reduce__(self):
        return (_harm, ())


def _harm():
    raise SystemExit("a pickle was loaded")


def _changed_array(part: str, change):
    """Return a function that changes the array of one part."""

    def damage(cache, head, arrays):
        name, _, field = part.partition(".")
        described = head["parsed"] if name == "topology" else _attribute(head, name)
        index = described[field]
        index = index if isinstance(index, int) else index.get("table", index.get("index"))
        arrays[index] = change(arrays[index])
        write(cache, head, arrays)

    return damage


def _changed_head(change):
    """Return a function that changes the header."""

    def damage(cache, head, arrays):
        change(head)
        write(cache, head, arrays)

    return damage


def _set(array: np.ndarray, value: int) -> np.ndarray:
    array = array.astype(np.int64)
    array.flat[-1] = value
    return array


DAMAGES = {
    "foreign npz": _foreign_npz,
    "pickles": _pickles,
    "compressed": _compressed,
    "residue too large": _changed_array("topology.residues", lambda one: _set(one, 10**6)),
    "residue negative": _changed_array("topology.residues", lambda one: _set(one, -1)),
    "residues missing": _changed_array("topology.residues", lambda one: one[:-1]),
    "residues real": _changed_array("topology.residues", lambda one: one.astype(float)),
    "segment too large": _changed_array("topology.segments", lambda one: _set(one, 99)),
    "name too large": _changed_array("names.index", lambda one: _set(one, 10**6)),
    "name negative": _changed_array("names.index", lambda one: _set(one, -1)),
    "names missing": _changed_array("names.index", lambda one: one[1:]),
    "numbers missing": _changed_array("tempfactors.values", lambda one: one[1:]),
    "numbers of another type": _changed_array("ids.values", lambda one: one.astype(float)),
    "bond to no atom": _changed_array("bonds.atoms", lambda one: _set(one, 10**6)),
    "bond to a negative atom": _changed_array("bonds.atoms", lambda one: _set(one, -5)),
    "bonds of three": _changed_array("bonds.atoms", lambda one: np.zeros((len(one), 3), int)),
    "bonds missing": _changed_array("bonds.atoms", lambda one: one[1:]),
    "more atoms": _changed_head(lambda head: head["parsed"].update(size=[10**9, 1, 1])),
    "fewer sizes": _changed_head(lambda head: head["parsed"].update(size=[1])),
    "an extra key": _changed_head(lambda head: head.update(more=1)),
    "an extra key inside": _changed_head(lambda head: head["parsed"].update(more=1)),
    "an extra key of an attribute": _changed_head(
        lambda head: _attribute(head, "names").update(x=1)
    ),
    "a class unknown": _changed_head(lambda head: _attribute(head, "names").update(name="novel")),
    "no array": _changed_head(lambda head: _attribute(head, "ids").update(values=10**4)),
    "a repeated name": _changed_head(
        lambda head: _attribute(head, "names").update(names=["A"] * 99)
    ),
    "a foreign warning": _changed_head(
        lambda head: head["parsed"].update(warnings=[["UserWarning", "text", "os", 1]])
    ),
    "no warning": _changed_head(
        lambda head: head["parsed"].update(warnings=[["print", "text", "MDAnalysis.core", 1]])
    ),
    "of another version": _changed_head(lambda head: head["key"].update(version=99)),
    "guessed of other sizes": _changed_head(
        lambda head: head["guessed"]["attributes"][0].update(
            _attribute(head, "resids") | {"name": "masses"}
        )
    ),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("damage", DAMAGES)
def test_wrong_contents_with_a_right_checksum(kept, parsed, damage):
    cache = kept[2]
    DAMAGES[damage](cache, *parts(cache))
    assert_parsed_anew(kept, parsed)


def test_the_second_open_is_faster(tmp_path):
    """Check for a large difference only, on any machine; the benchmark checks the target."""
    u = MDAnalysis.Universe.empty(
        30_000, 10_000, atom_resindex=np.arange(30_000) // 3, trajectory=True
    )
    u.add_TopologyAttr("names", ["OW", "HW1", "HW2"] * 10_000)
    u.add_TopologyAttr("resnames", ["SOL"] * 10_000)
    u.add_TopologyAttr("resids", np.arange(10_000))
    u.dimensions = [50, 50, 50, 90, 90, 90]
    u.atoms.write(tmp_path / "water.gro")
    u.atoms.write(tmp_path / "water.xtc")
    taken = []
    for _ in range(4):
        # CPU time of this thread: on a busy machine, elapsed time may be ten times as long.
        begun = time.thread_time()
        paceline.Universe(tmp_path / "water.gro", tmp_path / "water.xtc")
        taken.append(time.thread_time() - begun)
    assert min(taken[1:]) < taken[0] / 4
