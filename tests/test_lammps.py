"""Tests of LAMMPS's text dumps: MDAnalysis's numbers, atoms sorted by id, and variants of files."""

import bz2
import gzip
import pickle
import shutil
import time
import warnings
from pathlib import Path

import MDAnalysis
import numpy as np
import pytest
from helpers.lammps_files import (
    CONVENTIONS,
    N_ATOMS,
    N_FRAMES,
    ORTHOGONAL,
    TRICLINIC,
    dump,
    frame_of,
    write,
)
from MDAnalysis.analysis import rms
from MDAnalysis.coordinates.LAMMPS import DumpReader
from MDAnalysis.units import convert
from MDAnalysisTests import datafiles

import paceline
from paceline import _core
from paceline.analysis.rms import RMSD
from paceline.cli import main
from paceline.errors import DamagedFileError, PacelineWarning, UnsupportedError
from paceline.hdf5.units import factor_of
from paceline.mdanalysis.reader import Reader

PUBLISHED = (
    "LAMMPSDUMP",
    "LAMMPSDUMP_allinfo",
    "LAMMPSDUMP_nomass_elemx",
    "LAMMPSDUMP_allcoords",
    "LAMMPSDUMP_triclinic",
    "LAMMPSDUMP_image_vf",
    "LAMMPSDUMP_chain1",
    "LAMMPSDUMP_chain2",
    "LAMMPSDUMP_additional_columns",
    "LAMMPSDUMP_non_linear",
    "WIN_LAMMPSDUMP",
)
ALL = "id vx x fz type y fx vz z fy element vy"
BOHR, FORCE = "0.52917721092 Angstrom", "kJ/(mol*Angstrom)"

pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning:MDAnalysis"),
    pytest.mark.filterwarnings("ignore:.*the unit of (velocities|forces)"),
]


def unpacked(name: str, folder: Path) -> str:
    """Copy a file of MDAnalysis's tests, decompressed, so that no index is next to it."""
    path = Path(getattr(datafiles, name))
    content = path.read_bytes()
    if path.suffix == ".bz2":
        path, content = path.with_suffix(""), bz2.decompress(content)
    (folder / path.name).write_bytes(content)
    return str(folder / path.name)


def assert_same(ours, theirs):
    """Check that two Timesteps are equal, bit for bit.

    If the corner of the cell moved since the first frame, all positions differ by this motion,
    because MDAnalysis subtracts the corner of each frame.
    """
    moved = ours.positions.astype(float) - theirs.positions
    if np.abs(moved).max() > 0 and ours.frame > 0:
        limit = 4 * np.spacing(np.float32(np.abs([ours.positions, theirs.positions]).max()))
        assert np.ptp(moved, axis=0).max() <= limit
    else:
        np.testing.assert_array_equal(ours.positions, theirs.positions)
    np.testing.assert_array_equal(ours.dimensions, theirs.dimensions)
    assert (ours.time, ours.data["step"]) == (theirs.time, theirs.data["step"])
    assert ours.has_velocities == theirs.has_velocities
    assert ours.has_forces == theirs.has_forces
    if theirs.has_velocities:
        np.testing.assert_array_equal(ours.velocities, theirs.velocities)
    if theirs.has_forces:
        np.testing.assert_array_equal(ours.forces, theirs.forces)


def assert_all_same(path, **options):
    """Check that all frames equal MDAnalysis's; return their number."""
    ours, theirs = Reader(str(path), **options), DumpReader(str(path), **options)
    for one, other in zip(ours, theirs, strict=True):
        assert_same(one, other)
    return ours.n_frames


@pytest.mark.filterwarnings("ignore:.*the last line has no line feed")
@pytest.mark.parametrize("name", PUBLISHED)
def test_published_files_are_those_of_mdanalysis(tmp_path, name):
    assert assert_all_same(unpacked(name, tmp_path)) > 0


def test_a_published_file_with_words_in_some_lines_that_no_column_has(tmp_path):
    path = unpacked("LAMMPSDUMP_long", tmp_path)
    with pytest.warns(PacelineWarning, match=r"frame 0, .*expected an atom of 5 columns, found 6"):
        ours = Reader(path)
    theirs = DumpReader(path)
    assert ours.n_frames == theirs.n_frames > 1
    for number in range(1, ours.n_frames):
        assert_same(ours[number], theirs[number])


@pytest.mark.parametrize("box", [ORTHOGONAL, TRICLINIC])
@pytest.mark.parametrize("columns", [*CONVENTIONS, "xsu ysu zsu xs ys zs", "xu yu zu x zs z y xs"])
def test_every_convention(tmp_path, columns, box):
    path = write(tmp_path / "a.dump", dump(f"type {columns} id", box=box))
    assert assert_all_same(path) == N_FRAMES


def test_all_fields_and_gaps_between_ids(tmp_path):
    path = write(tmp_path / "a.dump", dump(ALL, ids=range(7, 7 + 3 * N_ATOMS, 3)))
    assert assert_all_same(path) == N_FRAMES
    first = Reader(str(path))[0]
    assert first.has_velocities
    assert first.has_forces


#: Units of lengths, velocities and forces in each unit style.
STYLES = {
    "real": ("Angstrom", "Angstrom/fs", "kcal/(mol*Angstrom)"),
    "metal": ("Angstrom", "Angstrom/ps", "eV/Angstrom"),
    "si": ("m", "m/s", "N"),
    "cgs": ("10 mm", "10 mm/s", "10 uN"),
    "electron": (BOHR, f"{BOHR}/fs", f"27.21138505 eV/({BOHR})"),
    "micro": ("um", "um/us", "nN"),
    "nano": ("nm", "nm/ns", "pN"),
}


@pytest.mark.filterwarnings("error::paceline.errors.PacelineWarning")
@pytest.mark.parametrize("columns", [ALL, "id xs ys zs vx vy vz fx fy fz"])
@pytest.mark.parametrize("style", STYLES)
def test_units_are_converted(style, columns, tmp_path):
    text = dump(columns, n_frames=2)
    stated = Reader(str(write(tmp_path / "a.dump", f"ITEM: UNITS\n{style}\n{text}")), dt=0.5)
    plain = write(tmp_path / "b.dump", text)
    named, theirs = Reader(str(plain), units=style, dt=0.5), DumpReader(str(plain))
    length, velocity, force = (
        factor_of(unit, quantity)
        for unit, quantity in zip(STYLES[style], ("length", "velocity", "force"), strict=True)
    )
    for one, same, other in zip(stated, named, theirs, strict=True):
        assert_same(one, same)
        # The corner moves by 0.125 per frame. MDAnalysis subtracts it; for scaled positions, twice.
        moved = one.frame * 0.125 * (2 if "xs" in columns else 1)
        positions = (other.positions + moved) * length
        np.testing.assert_allclose(one.positions, positions, rtol=2e-7, atol=2e-6 * length)
        np.testing.assert_allclose(one.velocities, other.velocities * velocity, rtol=2e-7)
        np.testing.assert_allclose(one.forces, other.forces * force, rtol=2e-7)
        np.testing.assert_allclose(one.dimensions[:3], other.dimensions[:3] * length, rtol=2e-7)
        np.testing.assert_array_equal(one.dimensions[3:], other.dimensions[3:])
    assert_same(pickle.loads(pickle.dumps(named))[1], stated[1])


def test_units_are_those_of_mdanalysis():
    assert factor_of("kcal/(mol*Angstrom)", "force") == convert(1, "kcal/(mol*Angstrom)", FORCE)
    assert factor_of("N", "force") == pytest.approx(convert(1, "Newton", FORCE), rel=1e-8)
    assert factor_of("Angstrom/fs", "velocity") == pytest.approx(
        convert(1, "Angstrom/fs", "Angstrom/ps")
    )


def test_units_reach_workers_and_what_is_written(tmp_path, capsys):
    path = str(write(tmp_path / "a.lammpsdump", dump(ALL)))
    out = tmp_path / "a.trr"
    convert = ["convert", "-s", path, path, str(out), "--units", "real", "--dt", "2ps"]
    assert main(convert) == 0
    assert "warning" not in capsys.readouterr().err
    for one, other in zip(Reader(str(out)), Reader(path, units="real"), strict=True):
        np.testing.assert_allclose(one.velocities, other.velocities, rtol=1e-6)
        np.testing.assert_allclose(one.forces, other.forces, rtol=1e-6)
    with pytest.raises(UnsupportedError, match=r"units= .*must be one of lj, real, .* not .reel"):
        Reader(path, units="reel")


@pytest.mark.parametrize(
    ("units", "columns", "options", "words"),
    [
        (None, "id x y z vx vy vz", {}, "unit of velocities is not stated.* Å/ps, as MDAnalysis"),
        (None, "id x y z fx fy fz", {}, r"unit of forces is not stated.* kJ/\(mol·Å\), as MDAn"),
        (None, ALL, {}, r'velocities and forces is not stated.*units="real" \(--units real\)'),
        ("lj", "id x y z", {}, "numbers have no unit .units lj.: they are not converted"),
        ("metal", ALL, {"units": "real"}, "in units real, as units= .* says, and not in metal"),
    ],
)
def test_units_that_are_not_known_give_a_warning(units, columns, options, words, tmp_path):
    path = write(tmp_path / "a.dump", (f"ITEM: UNITS\n{units}\n" if units else "") + dump(columns))
    for origin in ("scanned", "loaded"):
        with pytest.warns(PacelineWarning, match=words) as caught:
            reader = Reader(str(path), **options, dt=0.5)
        assert (len(caught), reader.file.index_origin) == (1, origin)


@pytest.mark.parametrize("dt", [None, 0.002])
def test_times_are_steps_times_dt(tmp_path, dt):
    path = write(tmp_path / "a.dump", dump())
    options = {} if dt is None else {"dt": dt}
    assert assert_all_same(path, time_offset=5.0, **options) == N_FRAMES
    reader = Reader(str(path), **options)
    assert reader.dt == 100 * (dt or 1)
    np.testing.assert_array_equal(reader.times(), [ts.time for ts in reader])
    again = pickle.loads(pickle.dumps(reader))
    assert again[2].time == reader[2].time == 200 * (dt or 1)
    rows = paceline.TimeSeries(first_x, universe_of(path, **options).atoms).run(backend="serial")
    np.testing.assert_array_equal(rows.times, reader.times())


def first_x(block):
    return block.positions[:, 0, 0]


def universe_of(path, **options):
    universe = MDAnalysis.Universe.empty(Reader.parse_n_atoms(str(path)))
    universe.load_new(str(path), format=Reader, **options)
    return universe


def test_other_items_before_the_step(tmp_path):
    plain = dump()
    frames = [plain[at:] for at in range(len(plain)) if plain.startswith("ITEM: TIMESTEP", at)]
    frames = [one[: one.find("ITEM: TIMESTEP", 1)] if k + 1 < N_FRAMES else one
              for k, one in enumerate(frames)]  # fmt: skip
    text = "ITEM: UNITS\nreal\n" + "".join(f"ITEM: TIME\n{k}.5\n{f}" for k, f in enumerate(frames))
    ours = Reader(str(write(tmp_path / "a.dump", text)), dt=1.0)
    theirs = DumpReader(str(write(tmp_path / "b.dump", plain)))
    for one, other in zip(ours, theirs, strict=True):
        assert_same(one, other)


def test_files_are_recognised_by_content_and_else_by_name(tmp_path):
    text = dump()
    unnamed = write(tmp_path / "unnamed", text)
    assert _core.detect_format(str(unnamed)) == "LAMMPSDUMP"
    topology = write(tmp_path / "a.lammpsdump", text)
    for trajectory in (unnamed, write(tmp_path / "a.lammpstrj", text)):
        reader = paceline.Universe(topology, trajectory).trajectory
        assert (type(reader), reader.format) == (Reader, "LAMMPSDUMP")
    assert type(paceline.Universe(topology).trajectory) is Reader
    with pytest.raises(UnsupportedError, match=r"expected XTC.*LAMMPSDUMP or HDF5, found"):
        paceline.Universe(topology, write(tmp_path / "b.lammpstrj", "no dump\n"))


def test_compressed_files(tmp_path):
    topology = write(tmp_path / "a.lammpsdump", dump())
    packed = tmp_path / "a.lammpsdump.gz"
    packed.write_bytes(gzip.compress(dump().encode()))
    with pytest.raises(UnsupportedError, match="gzip: unpack it first"):
        Reader(str(packed))
    universe = paceline.Universe(topology, packed, format="LAMMPSDUMP")
    assert type(universe.trajectory) is DumpReader


def test_a_universe_as_mdanalysis_makes_it(tmp_path):
    files = datafiles.LAMMPS_image_vf, unpacked("LAMMPSDUMP_image_vf", tmp_path)
    options = {"topology_format": "DATA", "format": "LAMMPSDUMP"}
    ours, theirs = paceline.Universe(*files, **options), MDAnalysis.Universe(*files, **options)
    assert type(ours.trajectory) is Reader
    for one, other in zip(ours.trajectory, theirs.trajectory, strict=True):
        assert_same(one, other)
    np.testing.assert_array_equal(ours.atoms.charges, theirs.atoms.charges)
    found = RMSD(ours).run(backend="serial").results.rmsd
    expected = rms.RMSD(theirs).run().results.rmsd
    np.testing.assert_array_equal(found[:, 1], expected[:, 1])
    np.testing.assert_allclose(found[:, 2], expected[:, 2], atol=2e-5)


@pytest.mark.parametrize("ids", [range(1, N_ATOMS + 1), range(7, 7 + 3 * N_ATOMS, 3)])
def test_atoms_of_a_selection_are_those_of_the_frame(tmp_path, ids):
    universe = universe_of(write(tmp_path / "a.dump", dump(ALL, ids=ids)))
    chosen = [3, 4, 5, 17, 59]
    series = paceline.TimeSeries(everything, universe.atoms[chosen]).run(backend="serial")
    expected = [ts.positions[chosen].ravel() for ts in universe.trajectory]
    np.testing.assert_array_equal(series.results.timeseries, expected)


def everything(block):
    return block.positions.reshape(len(block.positions), -1)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lammps_coordinate_convention", "unwrapped"),
        ("unwrap_images", True),
        ("additional_columns", ["element"]),
    ],
)
def test_options_that_only_mdanalysis_has(tmp_path, name, value):
    columns = "id element ix iy iz x y z xu yu zu"
    path = write(tmp_path / "a.lammpsdump", dump(columns.replace("element", "q")))
    value = ["q"] if name == "additional_columns" else value
    with pytest.raises(
        UnsupportedError, match=f"{name}= is not supported; open the file with MDAnalysis.Universe"
    ):
        paceline.Universe(path, **{name: value})
    with paceline.register() as registration:
        with pytest.warns(PacelineWarning, match=f"{name}= is not supported"):
            theirs = MDAnalysis.Universe(str(path), **{name: value})
        assert type(theirs.trajectory) is DumpReader
        ours = MDAnalysis.Universe(str(path), lammps_coordinate_convention="auto")
        assert type(ours.trajectory) is Reader
        assert isinstance(ours.trajectory, DumpReader)
    assert len(registration.left) == 1


def test_ids_that_are_not_there(tmp_path):
    path = write(tmp_path / "a.dump", dump("type x y z"))
    with pytest.warns(PacelineWarning, match="atoms have no ids"):
        reader = Reader(str(path))
    lines = path.read_text().splitlines()[9:12]
    expected = np.array([line.split()[1:] for line in lines], dtype=np.float32)
    np.testing.assert_allclose(reader[0].positions[:3], expected - [-3.25, 0.5, -1e-3], rtol=1e-6)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (dump("id type"), "the first frame has no columns of positions"),
        (dump(box="abc origin pp pp pp"), "general triclinic ones .abc origin. are not supported"),
        (dump(box="periodic free pp"), "the first frame has no orthogonal cell"),
    ],
)
def test_what_is_not_supported_is_named(tmp_path, text, words):
    path = write(tmp_path / "a.dump", text)
    with pytest.raises(UnsupportedError, match=words) as caught:
        Reader(str(path))
    assert str(path) in str(caught.value)


def test_a_published_file_without_positions(tmp_path):
    with pytest.raises(UnsupportedError, match="no columns of positions"):
        Reader(unpacked("LAMMPSDUMP_nocoords", tmp_path))


# Damage of frame 2, whose atoms are lines 0 to 59.


def in_frame_2(change):
    """Return a file with its third frame changed, and the offset of this frame."""
    frames = [frame_of(number) for number in range(N_FRAMES)]
    lines = frames[2].splitlines(keepends=True)
    change(lines)
    frames[2] = "".join(lines)
    return "".join(frames), sum(map(len, frames[:2]))


def set_line(number, text):
    def change(lines):
        lines[number] = text + "\n"

    return change


def set_words(words):
    def change(lines):
        lines[20] = f"{lines[20].split()[0]} {words}\n"

    return change


def copy_line(lines):
    lines[20] = lines[30]


def lose_id(lines):
    lines[20] = "61 " + lines[20].split(maxsplit=1)[1]


def lose_line(lines):
    del lines[20]


def add_line(lines):
    lines.insert(20, lines[20])


def long_line(lines):
    lines[20] = lines[20].rstrip() + " " * 20_000 + "\n"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (set_line(1, "2OO"), "expected a step \\(an integer\\), found .2OO"),
        (set_line(3, "59"), "expected a frame of 60 atoms, found 59"),
        (set_line(3, "-1"), "expected at least 1 atom"),
        (set_line(3, "99999999999999999999"), "expected a number of atoms, found"),
        (set_line(4, "ITEM: BOX abc"), "expected ITEM: BOX BOUNDS"),
        (set_line(4, "ITEM: BOX BOUNDS abc origin pp pp pp"), "abc origin"),
        (set_line(5, "0 inf"), "expected two bounds"),
        (set_line(5, "9 0"), "expected bounds of a cell, the lower first"),
        (set_line(5, "0 9 9"), "expected two bounds"),
        (set_line(8, "ITEM: ATOMS id type"), "expected columns of positions"),
        (set_line(8, "ITEM: ATOMS id type xs ys zs"), "in columns x y z, as in the first frame"),
        (set_line(8, "ITEM: ATOMS no type x y z"), "expected a column id, as in the first frame"),
        (set_line(8, "ITEM: ATOMS vx x y z id vy vz"), "expected no columns of velocities, as in"),
        (set_words("1 1.5 one 2"), r"expected a number in column 4, found .\d+ 1 1.5 one 2"),
        (set_words("1 1.5 1"), "expected a number in column 5"),
        (set_words("1 1.5 1 2 3"), "expected an atom of 5 columns, found 6"),
        (set_line(20, "7.5 1 1.5 1 2"), "expected an atom's id in column 1"),
        (set_line(20, "-7 1 1.5 1 2"), "expected an atom's id in column 1"),
        (copy_line, r"expected each atom once in a frame, found atom \d+ again"),
        (lose_id, "expected ids from 1 to 60, each once, found .61 "),
        (lose_line, "expected the line of an atom, found no further line"),
        (add_line, "expected"),
        (long_line, "expected a line of at most 16384 bytes"),
    ],
    ids=range(23),
)
def test_damage_is_named_and_the_other_frames_are_read(tmp_path, change, words):
    text, start = in_frame_2(change)
    path = write(tmp_path / "a.dump", text)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PacelineWarning)
        reader = Reader(str(path))
    sound = Reader(str(write(tmp_path / "b.dump", dump())))
    assert reader.n_frames == N_FRAMES
    for number in (0, 1, 3, 4):
        np.testing.assert_array_equal(reader[number].positions, sound[number].positions)
    with pytest.raises(DamagedFileError, match=words) as caught:
        reader[2]
    error = caught.value
    assert (error.path, error.frame) == (str(path), 2)
    assert start <= error.offset <= start + len(frame_of(2)) + 1


@pytest.mark.parametrize("ids", [range(2, N_ATOMS + 2), range(7, 7 + 3 * N_ATOMS, 3)])
def test_other_atoms_than_in_the_first_frame(tmp_path, ids):
    frames = [frame_of(number, ids=ids) for number in range(3)]
    frames[1] = frame_of(1, ids=range(5, N_ATOMS + 5))
    reader = Reader(str(write(tmp_path / "a.dump", "".join(frames))))
    with pytest.raises(DamagedFileError, match=r"frame 1, .*expected the ids of the first frame"):
        reader[1]
    assert reader[2].frame == 2


def test_a_damaged_id_of_the_first_frame_does_not_condemn_the_others(tmp_path):
    text = dump()
    at = text.index("\n17 ") + 1
    reader = None
    with pytest.warns(PacelineWarning, match=r"frame 0.*expected ids from 1 to 60"):
        reader = Reader(str(write(tmp_path / "a.dump", text[:at] + "97" + text[at + 2 :])))
    assert [reader[number].frame for number in range(1, N_FRAMES)] == [1, 2, 3, 4]


@pytest.mark.parametrize("cut", [1, 2, 4])
def test_a_missing_line_feed_is_reported(tmp_path, cut):
    text = dump().rstrip() + "\n"
    whole = Reader(str(write(tmp_path / "a.dump", text)))
    with pytest.warns(PacelineWarning, match="no line feed: its last number may be cut"):
        reader = Reader(str(write(tmp_path / "b.dump", text[:-cut])))
    assert reader.n_frames == N_FRAMES
    np.testing.assert_array_equal(reader[-1].positions[:, :2], whole[-1].positions[:, :2])


@pytest.mark.parametrize("cut", [20, 900])
def test_a_cut_last_frame_is_reported(tmp_path, cut):
    path = write(tmp_path / "a.dump", dump()[:-cut])
    with pytest.warns(
        PacelineWarning, match=r"frame 4 .byte \d+. is cut.*4 frames before it.*still"
    ):
        assert Reader(str(path)).n_frames == 4


def test_a_number_of_atoms_that_no_file_holds(tmp_path):
    text = dump().replace("\n60\n", "\n2000000000\n", 1)
    with pytest.raises(DamagedFileError, match=r"expected from 1 to \d+ atoms, which \d+ bytes"):
        Reader(str(write(tmp_path / "a.dump", text)))


def test_the_index_is_saved_and_extended(tmp_path):
    path = write(tmp_path / "a.dump", dump(n_frames=3))
    origins = [Reader(str(path)).file.index_origin for _ in range(2)]
    write(path, dump())
    grown = Reader(str(path))
    assert [*origins, grown.file.index_origin] == ["scanned", "loaded", "extended"]
    assert grown.n_frames == N_FRAMES
    np.testing.assert_array_equal(grown.times(), [0, 100, 200, 300, 400])


def test_commands(tmp_path, capsys):
    path = str(write(tmp_path / "a.lammpsdump", dump("id type mass x y z".replace("mass ", ""))))
    assert main(["info", path]) == 0
    assert "LAMMPSDUMP" in capsys.readouterr().out
    assert main(["validate", path]) == 0
    assert main(["convert", "-s", path, path, str(tmp_path / "a.h5md")]) == 0
    for one, other in zip(Reader(str(tmp_path / "a.h5md")), Reader(path), strict=True):
        np.testing.assert_array_equal(one.positions, other.positions)
        assert one.time == other.time
    assert main(["rmsd", "-s", path, path, "--select", "all", "-o", str(tmp_path / "a.csv")]) == 0
    assert (tmp_path / "a.csv").exists()
    capsys.readouterr()


def test_it_is_not_written(tmp_path):
    universe = universe_of(write(tmp_path / "a.dump", dump()))
    for name, format in (("b.lammpsdump", "LAMMPSDUMP"), ("HISTORY", "HISTORY")):
        with pytest.raises(
            UnsupportedError, match=f"{name}: .* of a {format} file, which paceline"
        ):
            paceline.Write(universe.atoms, tmp_path / name)


@pytest.mark.full
def test_frames_come_at_least_five_times_as_fast(tmp_path):
    n_atoms, n_frames = 20_000, 5
    random = np.random.default_rng(1)
    with open(tmp_path / "a.dump", "w") as file:
        for number in range(n_frames):
            bounds = "ITEM: BOX BOUNDS pp pp pp\n" + "0 100\n" * 3
            head = f"ITEM: TIMESTEP\n{number}\nITEM: NUMBER OF ATOMS\n{n_atoms}\n{bounds}"
            file.write(f"{head}ITEM: ATOMS id type x y z vx vy vz\n")
            rows = random.uniform(0, 100, (n_atoms, 6))
            for atom, row in zip(random.permutation(n_atoms), rows, strict=True):
                file.write(f"{atom + 1} 1 {' '.join(f'{x:.6g}' for x in row)}\n")
    path = str(tmp_path / "a.dump")
    readers = Reader(path), DumpReader(path)
    taken = []
    for _ in range(3):
        for reader in readers:
            begun = time.process_time()
            positions = [ts.positions.sum() for ts in reader]
            taken.append(time.process_time() - begun)
            assert len(positions) == n_frames
    ratios = np.array(taken[1::2]) / taken[::2]
    print("times as fast:", ratios)
    assert np.median(ratios) >= 5


@pytest.mark.parametrize(
    ("style", "columns", "charge"),
    [("atomic", "{0} 2", None), ("charge", "{0} 2 -0.5", -0.5), ("sphere", "{0} 2 1.0 3.0", None)],
)
@pytest.mark.parametrize("images", ["", " 0 0 -1"])
def test_columns_of_atoms_are_those_of_the_style_that_is_named(
    style, columns, charge, images, tmp_path
):
    """Check the column named by `write_data`; MDAnalysis would read a type as residue number."""
    data, dump = tmp_path / "one.data", tmp_path / "one.lammpstrj"
    lines = [f"{columns.format(k)} {k}.5 2 3{images}" for k in (1, 2, 3)]
    box = "0 9 xlo xhi\n0 9 ylo yhi\n0 9 zlo zhi\n"
    data.write_text(
        f"LAMMPS data file\n\n3 atoms\n2 atom types\n\n{box}\nMasses\n\n1 4.0\n2 7.0\n\n"
        f"Atoms # {style}\n\n" + "\n".join(lines) + "\n"
    )
    atoms = "".join(f"{k} 2 {k}.5 2 3\n" for k in (1, 2, 3))
    dump.write_text(
        "ITEM: TIMESTEP\n5\nITEM: NUMBER OF ATOMS\n3\nITEM: BOX BOUNDS pp pp pp\n0 9\n0 9\n0 9\n"
        f"ITEM: ATOMS id type x y z\n{atoms}"
    )
    for files in ((data,), (data, dump)):
        universe = paceline.Universe(*map(str, files))
        assert universe.atoms.types.tolist() == ["2"] * 3
        assert universe.atoms.masses.tolist() == [7.0] * 3
        assert universe.atoms.positions[:, 0].tolist() == [1.5, 2.5, 3.5]
        assert (getattr(universe.atoms, "charges", [None])[0]) == charge
    other = shutil.copy(data, tmp_path / "one.lmp")
    assert paceline.Universe(other, topology_format="data").atoms.types.tolist() == ["2"] * 3
