"""Tests of TRR: MDAnalysis's numbers for any combination of fields; GROMACS; and damage."""

import shutil
import struct
import subprocess
import warnings
from pathlib import Path

import MDAnalysis
import numpy as np
import pytest
from helpers.programs import needs_program
from MDAnalysis.coordinates.timestep import Timestep
from MDAnalysis.coordinates.TRR import TRRReader
from MDAnalysis.core.topology import Topology
from MDAnalysis.exceptions import NoDataError
from MDAnalysisTests import datafiles

import paceline
from paceline import _core
from paceline.analysis.rms import RMSD, RMSF
from paceline.block import FIELDS
from paceline.errors import (
    DamagedFileError,
    MissingDataError,
    PacelineWarning,
    UnsupportedError,
)
from paceline.mdanalysis.reader import Reader, open_file

DATA = Path(datafiles.__file__).parent / "data"
PUBLISHED = sorted(path.relative_to(DATA) for path in DATA.rglob("*.trr"))
N_ATOMS = 500

pytestmark = [
    pytest.mark.filterwarnings("ignore:No dimensions set:UserWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning:MDAnalysis"),
    pytest.mark.filterwarnings("ignore:Unknown masses:PendingDeprecationWarning"),
]


def real_frame(number, *, double=False, fields=FIELDS, box=True, n_atoms=N_ATOMS) -> bytes:
    """Return a TRR frame, made by the description of the format: nm, nm/ps, kJ/(mol nm)."""
    width, code = (8, ">f8") if double else (4, ">f4")
    random = np.random.default_rng(number)
    cell = [[5.5, 0, 0], [0.25, 6, 0], [1, 2 / 3, 7 + number / 7]] if box else []
    blocks = [np.array(cell)]
    blocks += [random.normal(0, 5, (n_atoms if name in fields else 0, 3)) for name in FIELDS]
    box_size, *sizes = (block.size * width for block in blocks)
    head = (1993, 13, 12, b"GMX_trn_file", 0, 0, box_size, 0, 0, 0, 0, *sizes, n_atoms, 7 * number)
    content = struct.pack(">3i12s12ii", *head, 0)
    # Values that differ by less than the precision of 32 bits.
    content += np.array([1e6 + number / 1000, lambda_of(number)]).astype(code).tobytes()
    return content + b"".join(block.astype(code).tobytes() for block in blocks)


def lambda_of(number) -> float:
    return 0.1 + number / 64


def trr(path, frames) -> str:
    path.write_bytes(b"".join(frames))
    return str(path)


def same(ours, theirs, *, box=True):
    """Check that two Timesteps are equal to the last bit."""
    for field in FIELDS:
        held = getattr(theirs, f"has_{field}")
        assert getattr(ours, f"has_{field}") == held
        if held:
            np.testing.assert_array_equal(getattr(ours, field), getattr(theirs, field), strict=True)
        else:
            with pytest.raises(NoDataError):
                getattr(ours, field)
    if box:
        assert (ours.dimensions is None) == (theirs.dimensions is None)
        if ours.dimensions is not None:
            np.testing.assert_array_equal(ours.dimensions, theirs.dimensions, strict=True)
    shown = {"step", "lambda"}
    assert ours.frame == theirs.frame
    assert {name: ours.data[name] for name in shown} == {name: theirs.data[name] for name in shown}


@pytest.mark.parametrize("name", PUBLISHED, ids=str)
def test_published_files_bit_for_bit(name, tmp_path):
    copied = shutil.copy(DATA / name, tmp_path)
    ours, theirs = Reader(copied), TRRReader(copied)
    assert (ours.n_frames, ours.n_atoms) == (theirs.n_frames, theirs.n_atoms)
    for one, other in zip(ours, theirs, strict=True):
        same(one, other)
        assert (one.time, one.dt) == (other.time, other.dt)


@pytest.mark.parametrize("double", [False, True])
def test_every_mix_of_fields_bit_for_bit(double, tmp_path):
    mixes = [[name for bit, name in enumerate(FIELDS) if mix >> bit & 1] for mix in range(8)]
    frames = [
        real_frame(number, double=double, fields=mixes[number % 8]) for number in (7, *range(16))
    ]
    path = trr(tmp_path / "mixed.trr", frames)
    ours, theirs = Reader(path), TRRReader(path)
    assert len(ours) == len(theirs) == 17
    for one, other in zip(ours, theirs, strict=True):
        same(one, other)
        # MDAnalysis rounds the time to 32 bits.
        assert np.float32(one.time) == other.time
    expected = 1e6 + np.arange(16) / 1000
    found = [ts.time for ts in ours[1:]]
    assert np.array_equal(found, expected if double else expected.astype(np.float32))
    assert np.array_equal(open_file(path).times()[0][1:], found)


def test_a_frame_without_a_box_has_no_dimensions(tmp_path):
    # Without a box, MDAnalysis returns uninitialised memory.
    frames = [real_frame(0), real_frame(1, box=False), real_frame(2)]
    path = trr(tmp_path / "boxes.trr", frames)
    ours, theirs = Reader(path), TRRReader(path)
    for one, other in zip(ours, theirs, strict=True):
        same(one, other, box=other.frame != 1)
    assert ours[1].dimensions is None
    assert ours[2].dimensions is not None


@pytest.fixture(scope="module")
def system(tmp_path_factory):
    """Topology and trajectory; velocities in even frames, and forces in every fourth frame."""
    folder = tmp_path_factory.mktemp("trr")
    universe = MDAnalysis.Universe.empty(N_ATOMS, trajectory=True)
    universe.add_TopologyAttr("masses", np.arange(1.0, N_ATOMS + 1))
    universe.atoms.write(folder / "system.gro")
    frames = [
        real_frame(number, fields=["positions", *kinds])
        for number in range(40)
        for kinds in [["velocities"] * (number % 2 == 0) + ["forces"] * (number % 4 == 0)]
    ]
    return str(folder / "system.gro"), trr(folder / "md.trr", frames)


def test_blocks_hold_what_mdanalysis_shows(system, where):
    atoms = paceline.Universe(*system).atoms[[3, 4, 5, 300, 7]]

    def all_fields(block):
        return np.stack([block.positions, block.velocities, block.forces], axis=1)

    series = paceline.TimeSeries(all_fields, atoms, fields=FIELDS).run(step=4, **where)
    theirs = MDAnalysis.Universe(*system)
    expected = [
        [getattr(ts, field)[atoms.indices] for field in FIELDS] for ts in theirs.trajectory[::4]
    ]
    np.testing.assert_array_equal(series.results.timeseries, expected, strict=True)


def test_frames_that_lack_a_field_are_refused_or_left_out(system, where):
    atoms = paceline.Universe(*system).atoms[:3]
    series = paceline.TimeSeries(lambda block: block.velocities, atoms, fields=("velocities",))
    lacking = r'frame \d*[13579] has no velocities; on_error="skip" leaves such frames out'
    with pytest.raises(MissingDataError, match=lacking):
        series.run(**where)
    found = series.run(on_error="skip", **where).results.timeseries
    assert np.array_equal(np.isnan(found).all(axis=(1, 2)), np.arange(40) % 2 == 1)
    assert series.damaged[0][1].endswith("frame 1 has no velocities")


@pytest.mark.filterwarnings("ignore:frames are transformed by MDAnalysis")
def test_frames_that_lack_a_field_are_named_where_mdanalysis_reads_them(system):
    universe = paceline.Universe(*system)
    universe.trajectory.add_transformations(lambda ts: ts)
    series = paceline.TimeSeries(
        lambda block: block.velocities, universe.atoms[:3], fields=("velocities",)
    )
    with pytest.raises(MissingDataError, match=r"\.trr: frame 1 has no velocities; on_error"):
        series.run()


def test_analyses_give_what_they_give_on_mdanalysis_s_reader(tmp_path):
    files = [shutil.copy(path, tmp_path) for path in (datafiles.GRO, datafiles.TRR)]
    ours, theirs = paceline.Universe(*files), MDAnalysis.Universe(*files)
    ca = [universe.select_atoms("name CA") for universe in (ours, theirs)]
    for analysis, result in ((RMSD, "rmsd"), (RMSF, "rmsf")):
        one, other = (analysis(group).run(n_workers=2).results[result] for group in ca)
        np.testing.assert_array_equal(one, other)
    assert type(theirs.trajectory) is TRRReader
    from MDAnalysis.analysis import rms

    expected = rms.RMSD(ca[1]).run().results.rmsd
    np.testing.assert_allclose(RMSD(ca[0]).run().results.rmsd, expected, atol=1e-6)


def test_velocities_alone_are_enough(tmp_path):
    path = trr(tmp_path / "v.trr", [real_frame(n, fields=["velocities"]) for n in range(3)])
    universe = paceline.Universe.empty(N_ATOMS)
    universe.load_new(path)
    series = paceline.TimeSeries(
        lambda block: block.velocities, universe.atoms, fields=("velocities",)
    )
    found = series.run(backend="serial").results.timeseries
    expected = [ts.velocities.copy() for ts in TRRReader(path)]
    np.testing.assert_array_equal(found, expected)
    universe.trajectory.ts.velocities[3] = 5
    with pytest.raises(UnsupportedError, match="velocities of frame 0 were edited"):
        series.run(backend="serial")


def test_sub_of_mdanalysis_s_reader_is_refused(system):
    universe = MDAnalysis.Universe.empty(10)
    universe.load_new(system[1], sub=np.arange(10))
    with pytest.raises(UnsupportedError, match="TRRReader is unsafe with sub="):
        RMSF(universe.atoms).run()


def test_few_atoms_are_read_without_the_others(tmp_path):
    path = trr(tmp_path / "large.trr", [real_frame(n, n_atoms=50_000) for n in range(9)])
    universe = paceline.Universe.empty(50_000)
    universe.load_new(path)
    few = universe.atoms[[17, 40_000]]
    series = paceline.TimeSeries(lambda block: block.forces, few, fields=("forces",))
    series.run(backend="serial")
    (read,) = {worker.bytes for worker in series.timings.workers()}
    size = Path(path).stat().st_size
    # The first frame determines the content of the others.
    assert read < size / 9 + 8 * 3 * 4096


# Damage

FIELDS_OF_HEADER = {"magic": 0, "length": 8, "version": 16, "box": 32, "x": 52, "f": 60, "n": 64}


@pytest.fixture(scope="module")
def frames():
    return [real_frame(number) for number in range(6)]


@pytest.mark.parametrize("name", FIELDS_OF_HEADER)
def test_a_damaged_header_is_named_and_the_other_frames_are_read(name, frames, tmp_path):
    damaged = bytearray(frames[3])
    at = FIELDS_OF_HEADER[name]
    damaged[at + 2] ^= 0x15
    path = trr(tmp_path / "md.trr", [*frames[:3], bytes(damaged), *frames[4:]])
    with pytest.warns(match="1 of 6 frames is damaged: frame 3"):
        ours = Reader(path)
    expected = TRRReader(trr(tmp_path / "whole.trr", frames))
    for number in (0, 1, 2, 4, 5):
        same(ours[number], expected[number])
    with pytest.raises(DamagedFileError, match=r"frame 3, byte \d+: expected .*, found"):
        ours[3]


@pytest.mark.parametrize("left", [1, 83, 84, 119, 500, -1])
def test_a_cut_frame_is_reported_and_whole_ones_are_read(left, frames, tmp_path):
    path = trr(tmp_path / "md.trr", [*frames[:5], frames[5][:left]])
    with pytest.warns(match=r"frame 5 \(byte \d+\) is cut"):
        assert len(Reader(path)) == 5


def test_frames_of_another_system_are_damage(frames, tmp_path):
    other = real_frame(2, n_atoms=N_ATOMS - 1)
    path = trr(tmp_path / "md.trr", [*frames[:2], other, *frames[3:]])
    with pytest.warns(match="frame 2"):
        ours = Reader(path)
    assert len(ours) == 6
    with pytest.raises(DamagedFileError, match=r"expected 500 atoms.*found 499"):
        ours[2]


def test_changed_bytes_never_change_other_frames(frames, tmp_path):
    whole = b"".join(frames)
    expected = [ts.positions.copy() for ts in TRRReader(trr(tmp_path / "whole.trr", frames))]
    size = len(frames[0])
    random = np.random.default_rng(3)
    for trial in range(40):
        # Half of the changes are in headers.
        frame = random.integers(1, 6)
        at = frame * size + random.integers(84 if trial % 2 else size)
        content = bytearray(whole)
        content[at] ^= random.integers(1, 256)
        path = tmp_path / "changed.trr"
        path.write_bytes(content)
        core = open_file(path, notes=False)
        reader = _core.Reader(core.path, core.layout, core.samples)
        assert core.n_frames >= 6
        found = read_all(reader, core)
        for number in set(range(6)) - {int(frame)}:
            row = number if number < frame else number + core.n_frames - 6
            assert np.array_equal(found[row], expected[number]), at


def read_all(reader, core):
    from paceline.block import FrameBuffer
    from paceline.contract.source import extents_in

    numbers = np.arange(core.n_frames)
    decoded = FrameBuffer.allocate(numbers, core.n_atoms, ("positions",))
    reader.read(extents_in(0, core, numbers.astype(np.uint64)), decoded, required=1, skip=True)
    return decoded.positions


# Encoding


def written_by_mdanalysis(path, timesteps) -> bytes:
    universe = MDAnalysis.Universe.empty(timesteps[0].n_atoms, trajectory=True)
    with MDAnalysis.Writer(str(path), timesteps[0].n_atoms) as writer:
        for ts in timesteps:
            universe.trajectory.ts = ts
            writer.write(universe)
    return path.read_bytes()


@pytest.mark.parametrize(
    "cell",
    [
        None,
        (50, 60.5, 70.25, 90, 90, 90),
        (80.017, 80.017, 80.017, 60, 60, 90),
        (31.4, 27.1, 57.7, 70.5, 103.25, 88),
    ],
    ids=str,
)
def test_the_bytes_are_those_of_mdanalysis(cell, tmp_path):
    random = np.random.default_rng(5)
    timesteps, ours = [], b""
    # For frames without positions, MDAnalysis writes velocities and forces of zero.
    for number in (1, 3, 5, 7):
        held = [bool(number >> bit & 1) for bit in range(3)]
        arrays = [
            random.normal(0, 40, (1, 31, 3)).astype(np.float32) if has else None for has in held
        ]
        ts = Timestep(31, **dict(zip(FIELDS, held, strict=True)))
        for field, values in zip(FIELDS, arrays, strict=True):
            if values is not None:
                setattr(ts, field, values[0])
        ts.dimensions = cell
        ts.frame, ts.time, ts.data["step"] = number, 0.1 * number, -10 * number
        ts.data["lambda"] = 0.3 * number
        timesteps.append(ts)
        fields = sum(has << bit for bit, has in enumerate(held))
        encoder = _core.Encoder("TRR", 31, None, True, fields)
        dimensions = np.zeros((1, 6), np.float32) if cell is None else np.float32([cell])
        moments = np.array([ts.time]), np.array([-10 * number]), np.float32([0.3 * number])
        ours += encoder.encode((*arrays, _core.cells_of_dimensions(dimensions), *moments))
    assert ours == written_by_mdanalysis(tmp_path / "theirs.trr", timesteps)


def test_a_file_written_again_is_the_same_for_mdanalysis(system, tmp_path):
    out = tmp_path / "out.trr"
    paceline.Write(paceline.Universe(*system).atoms, out).run(n_workers=2)
    for one, other in zip(TRRReader(str(out)), TRRReader(system[1]), strict=True):
        assert (one.time, one.data["step"]) == (other.time, other.data["step"])
        assert one.data["lambda"] == other.data["lambda"] != 0
        for field in FIELDS:
            assert getattr(one, f"has_{field}") == getattr(other, f"has_{field}")
            if getattr(one, f"has_{field}"):
                np.testing.assert_allclose(getattr(one, field), getattr(other, field), rtol=3e-7)


@pytest.mark.parametrize("kind", ["paceline", "MDAnalysis", "transformed"])
def test_lambda_reaches_functions_and_files_however_frames_are_read(kind, system, where, tmp_path):
    universe = (paceline if kind == "paceline" else MDAnalysis).Universe(*system)
    if kind == "transformed":
        universe.trajectory.add_transformations(lambda ts: ts)
    atoms = universe.atoms[:9]
    series = paceline.TimeSeries(lambda block: block.lambdas, atoms)
    write = paceline.Write(atoms, tmp_path / "out.trr")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "frames are transformed by MDAnalysis", PacelineWarning)
        paceline.run([series, write], step=3, **where)
    expected = np.float32([lambda_of(number) for number in range(0, 40, 3)])
    np.testing.assert_array_equal(series.results.timeseries, expected, strict=True)
    found = [ts.data["lambda"] for ts in TRRReader(str(tmp_path / "out.trr"))]
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("options", [{}, {"chunk": "contiguous"}, {"compress": "gzip:1"}])
def test_lambda_goes_through_h5md(options, system, tmp_path, where):
    gro, h5md, out = system[0], tmp_path / "a.h5md", tmp_path / "out.trr"
    path = trr(tmp_path / "a.trr", [real_frame(number) for number in range(20)])
    atoms = paceline.Universe(gro, path).atoms[:9]
    paceline.Write(atoms, h5md, **options).run(start=1, step=2, **where)
    expected = np.float32([lambda_of(number) for number in range(1, 20, 2)])
    trajectory = Reader(str(h5md))
    np.testing.assert_array_equal([ts.data["lambda"] for ts in trajectory], expected)
    universe = paceline.Universe(Topology(9), str(h5md))
    paceline.Write(universe.atoms, out).run(step=3, **where)
    found = [ts.data["lambda"] for ts in TRRReader(str(out))]
    np.testing.assert_array_equal(found, expected[::3])


@pytest.mark.parametrize("ending", ["xtc", "dcd", "nc"])
def test_where_lambda_is_lost_is_said(ending, system, tmp_path):
    path = trr(tmp_path / "a.trr", [real_frame(number) for number in range(3)])
    atoms, out = paceline.Universe(system[0], path).atoms, tmp_path / f"out.{ending}"
    message = r"out\.\w+: \w+ cannot store λ: .* from 0\.1 to 0\.1"
    with pytest.warns(PacelineWarning, match=message) as told:
        paceline.Write(atoms, out).run()
    assert len([one for one in told if "λ" in str(one.message)]) == 1


def test_no_word_of_lambda_where_there_is_none(adk_xtc, tmp_path):
    atoms = paceline.Universe(*adk_xtc).atoms
    with warnings.catch_warnings():
        warnings.simplefilter("error", PacelineWarning)
        paceline.Write(atoms, tmp_path / "out.xtc").run(stop=2)
        paceline.Write(atoms, tmp_path / "out.h5md").run(stop=2)
    observables = paceline.Universe(adk_xtc[0], str(tmp_path / "out.h5md")).trajectory.observables
    assert "lambda" not in observables


def test_lambda_is_shown_of_the_files_of_a_chain_that_have_it(system, tmp_path):
    gro, path = system
    other = tmp_path / "other.xtc"
    paceline.Write(paceline.Universe(gro, path).atoms, other).run(stop=2)
    trajectory = paceline.Universe(gro, path, str(other)).trajectory
    assert trajectory[39].data["lambda"] == np.float32(lambda_of(39))
    assert "lambda" not in trajectory[40].data
    assert trajectory[1].data["lambda"] == np.float32(lambda_of(1))


# GROMACS


@needs_program("gmx")
def test_what_gromacs_writes_is_read(tmp_path):
    source = shutil.copy(datafiles.TRR, tmp_path)
    out = tmp_path / "out.trr"
    command = ["gmx", "trjconv", "-f", source, "-o", out, "-quiet", "-nobackup"]
    subprocess.run(command, check=True, capture_output=True)
    same_frames(Reader(str(out)), TRRReader(str(out)))
    same_frames(Reader(str(out)), TRRReader(source))


def same_frames(ours, theirs):
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        same(one, other)
        assert one.time == other.time


@needs_program("gmx")
def test_gromacs_reads_what_is_written(system, tmp_path):
    out = tmp_path / "out.trr"
    paceline.Write(paceline.Universe(*system).atoms, out).run(backend="serial")
    command = ["gmx", "check", "-f", out, "-quiet"]
    said = subprocess.run(command, check=True, capture_output=True, text=True)
    counts = dict(
        line.split()[:2]
        for line in said.stderr.splitlines()
        if line.split()[:1] and line.split()[0] in ("Step", "Coords", "Velocities", "Forces", "Box")
    )
    assert counts == {"Step": "40", "Coords": "40", "Velocities": "20", "Forces": "10", "Box": "40"}
