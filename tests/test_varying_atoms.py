"""Tests of dumps whose number of atoms varies: read frame by frame, and refused by analyses."""

import json
import pickle

import numpy as np
import pytest
from helpers.lammps_files import BOUNDS, dump, frame_of, write

import paceline
from paceline.cli import main
from paceline.errors import AtomCountError, DamagedFileError, PacelineWarning, UnsupportedError

COUNTS = [4, 4, 6, 3, 7, 4]
VARIES = "the number of atoms varies: 4 in frame 0, 6 in frame 2"
COLUMNS = "id type x y z vx vy vz"

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*the number of atoms varies"),
    pytest.mark.filterwarnings("ignore:.*the unit of velocities"),
]


def frames_of(counts=COUNTS, columns=COLUMNS):
    """Return the text of frames with these numbers of atoms; ids have gaps, and differ by frame."""
    return [frame_of(k, columns, ids=range(k + 1, k + 1 + 2 * n, 2)) for k, n in enumerate(counts)]


def numbers_of(text, columns=COLUMNS):
    """Return positions and velocities of a frame in the order of ids, parsed by NumPy."""
    rows = np.array([line.split() for line in text.splitlines()[9:]], dtype=float)
    names = columns.split()
    if "id" in names:
        rows = rows[np.argsort(rows[:, names.index("id")])]
    positions, velocities = (
        rows[:, [names.index(name) for name in three]].astype(np.float32)
        for three in (["x", "y", "z"], ["vx", "vy", "vz"])
    )
    return (positions - BOUNDS[:, 0]).astype(np.float32), velocities


@pytest.fixture
def path(tmp_path):
    return str(write(tmp_path / "a.lammpstrj", "".join(frames_of())))


@pytest.mark.parametrize("columns", [COLUMNS, COLUMNS.removeprefix("id ")])
@pytest.mark.filterwarnings("ignore:.*atoms have no ids")
def test_each_frame_has_its_own_atoms(columns, tmp_path):
    texts = frames_of(columns=columns)
    trajectory = paceline.open(write(tmp_path / "a.dump", "".join(texts)))
    assert trajectory.atom_counts.tolist() == COUNTS
    assert repr(trajectory).endswith("with 6 frames of 3 to 7 atoms>")
    assert trajectory.times.tolist() == [0, 100, 200, 300, 400, 500]
    assert trajectory.dt == 100
    sent = pickle.loads(pickle.dumps(trajectory))
    every = [*zip(trajectory, texts, strict=True), (trajectory[-2], texts[-2]), (sent[2], texts[2])]
    every += zip(trajectory[::-2], texts[::-2], strict=True)
    for frame, text in every:
        positions, velocities = numbers_of(text, columns)
        np.testing.assert_array_equal(frame.positions, positions)
        np.testing.assert_array_equal(frame.velocities, velocities)
    assert [frame.time for frame in trajectory[[3, 1]]] == [300, 100]


def test_the_numbers_are_kept_in_the_index(tmp_path):
    texts = frames_of()
    found = []
    for stop in (2, 2, 5, 6, 6):
        path = write(tmp_path / "a.dump", "".join(texts[:stop]))
        trajectory = paceline.open(path)
        [file] = trajectory.chain.files
        assert trajectory.atom_counts.tolist() == COUNTS[:stop]
        frame, text = (trajectory[-1], texts[-1]) if stop == 6 else (trajectory[0], texts[0])
        np.testing.assert_array_equal(frame.positions, numbers_of(text)[0])
        found.append((file.index_origin, file.varying is not None))
    assert [varies for _, varies in found] == [False, False, True, True, True]
    assert [origin for origin, _ in found] == [
        *("scanned", "loaded", "extended", "extended", "loaded")
    ]


def test_what_needs_one_number_of_atoms_is_refused(path, tmp_path):
    with pytest.warns(PacelineWarning, match=VARIES):
        trajectory = paceline.open(path)
    small = str(write(tmp_path / "b.dump", dump(n_frames=1, ids=range(1, 5))))
    universe = paceline.Universe(small, topology_format="LAMMPSDUMP")
    for refused in (
        lambda: trajectory.n_atoms,
        lambda: trajectory.atoms,
        lambda: trajectory.positions(),
        lambda: next(trajectory.blocks()),
        lambda: paceline.TimeSeries(len, trajectory),
        lambda: paceline.Write(trajectory, tmp_path / "c.xtc"),
        lambda: paceline.Universe(small, path, topology_format="LAMMPSDUMP"),
        lambda: universe.load_new(path),
        lambda: paceline.open(path, n_atoms=4),
    ):
        with pytest.raises(UnsupportedError, match=f"a.lammpstrj: {VARIES}; an analysis needs"):
            refused()


def test_commands_say_it(path, tmp_path, capsys):
    assert main(["info", path]) == 0
    assert "3 to 7, varying from frame to frame" in capsys.readouterr().out
    assert main(["info", "--json", path]) == 0
    assert json.loads(capsys.readouterr().out)["files"][0]["atoms"] == [3, 7]
    assert main(["validate", path]) == 0
    assert f"remark\t{VARIES}" in capsys.readouterr().out
    atoms = "".join(f"    1ALA     CA{k:5}   0.000   0.000   0.000\n" for k in range(1, 5))
    system = str(write(tmp_path / "a.gro", f"four atoms\n 4\n{atoms}   1.0   1.0   1.0\n"))
    for command in (["rmsd", system, path], ["convert", path, str(tmp_path / "b.xtc")]):
        assert main(command) == 2
        error = capsys.readouterr().err.splitlines()[-1]
        assert error.endswith(f"{VARIES}; an analysis needs the same atoms in all frames")
    assert not (tmp_path / "b.xtc").exists()


def test_damage_stays_damage(tmp_path):
    texts = frames_of()
    texts[3] = texts[3].rstrip().rpartition("\n")[0] + "\n"
    path = str(write(tmp_path / "a.dump", "".join(texts)))
    with pytest.warns(PacelineWarning, match="1 of 6 frames is damaged: frame 3"):
        trajectory = paceline.open(path)
    assert trajectory.atom_counts.tolist() == [4, 4, 6, 0, 7, 4]
    with pytest.raises(DamagedFileError, match=r"frame 3, .*expected 3 lines of atoms, found oth"):
        trajectory[3]
    np.testing.assert_array_equal(trajectory[4].positions, numbers_of(texts[4])[0])
    [bad] = paceline.validate(path).bad
    assert (bad.frame, bad.what) == (3, "expected 3 lines of atoms, found others")


def test_a_damaged_number_alone_does_not_vary(tmp_path):
    texts = frames_of([4] * 5)
    texts[2] = texts[2].replace("\n4\n", "\n5\n")
    with pytest.warns(PacelineWarning, match="1 of 5 frames is damaged: frame 2"):
        trajectory = paceline.open(write(tmp_path / "a.dump", "".join(texts)))
    assert trajectory.n_atoms == 4
    assert trajectory.atom_counts.tolist() == [4] * 5


def test_validate_looks_at_the_numbers_of_each_frame(tmp_path):
    texts = frames_of()
    words = texts[4].splitlines()[10].split()
    line = " ".join([*words[:3], "nan", *words[4:]])
    texts[4] = texts[4].replace(" ".join(words), line)
    [bad] = paceline.validate(write(tmp_path / "a.dump", "".join(texts))).bad
    assert bad.frame == 4
    assert bad.what.startswith("positions are not finite")


def test_a_number_of_atoms_that_is_asked_for_is_compared(tmp_path):
    path = write(tmp_path / "a.dump", dump(n_frames=2))
    assert paceline.open(path, n_atoms=60).n_atoms == 60
    with pytest.raises(AtomCountError, match="expected 61 atoms, as n_atoms= says, found 60") as no:
        paceline.open(path, n_atoms=61)
    assert no.value.found == 60
