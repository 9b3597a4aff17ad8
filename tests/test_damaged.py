"""Tests of damaged files: valid data is read, damage is reported, and nothing crashes."""

import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import MDAnalysis
import numpy as np
import pytest
from helpers import trajectory_bytes
from helpers.netcdf_bytes import netcdf
from helpers.trajectory_bytes import DcdVariant, Trajectory
from MDAnalysis.core.topology import Topology
from MDAnalysisTests import datafiles

import paceline
from paceline import _core
from paceline.block import FrameBuffer
from paceline.contract.source import IndexedFile, extents_in
from paceline.errors import (
    AtomCountError,
    DamagedFileError,
    FileChangedError,
    PacelineWarning,
    UnsupportedError,
)

N_CUTS = 200
N_CHANGES = 2000
SUFFIXES = ["xtc", "dcd", "trr", "nc"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder in memory if possible, because an index is saved and synced with each file."""
    if os.access("/dev/shm", os.W_OK):
        path = Path(tempfile.mkdtemp(prefix="paceline-", dir="/dev/shm"))
    else:
        path = tmp_path_factory.mktemp("damaged")
    yield path
    shutil.rmtree(path, ignore_errors=True)


def written(folder: Path, topology: str, trajectory: str, n_atoms: int, n_frames: int) -> bytes:
    """Return the first atoms and frames of a real trajectory, written by MDAnalysis."""
    path = folder / f"written{Path(str(trajectory)).suffix}"
    universe = MDAnalysis.Universe(topology, trajectory)
    atoms = universe.atoms[:n_atoms]
    with MDAnalysis.Writer(str(path), n_atoms) as writer:
        for _ in universe.trajectory[:n_frames]:
            writer.write(atoms)
    return path.read_bytes()


def from_dcd(content: bytes) -> np.ndarray:
    """Return the positions in MDAnalysis's DCD with a cell, shape (n_frames, n_atoms, 3)."""
    (title,) = struct.unpack_from("<i", content, 92)
    (n_atoms,) = struct.unpack_from("<i", content, 92 + title + 8 + 4)
    frames = np.frombuffer(content[92 + title + 8 + 12 :], dtype="<f4")
    frames = frames.reshape(-1, 14 + 3 * (n_atoms + 2))[:, 14:]
    return frames.reshape(len(frames), 3, n_atoms + 2)[..., 1:-1].transpose(0, 2, 1).copy()


@pytest.fixture(scope="module")
def files(folder) -> dict[str, Trajectory]:
    """Undamaged files, by the names used in the rows below."""
    water = written(folder, datafiles.GRO, datafiles.XTC, 60, 10)
    toxin = written(folder, datafiles.PDB_sub_sol, datafiles.XTC_sub_sol, 48, 4)
    positions = from_dcd(written(folder, datafiles.PSF, datafiles.DCD, 30, 8))
    return {
        "xtc": trajectory_bytes.xtc(water),
        "toxin xtc": trajectory_bytes.xtc(toxin),
        "dcd": trajectory_bytes.dcd(positions, DcdVariant()),
        "dcd big-endian": trajectory_bytes.dcd(
            positions, DcdVariant(big_endian=True, wide=True, cell=False)
        ),
        "dcd fixed": trajectory_bytes.dcd(positions, DcdVariant(n_fixed=7, four_dims=True)),
        "dcd count 0": trajectory_bytes.dcd(positions, DcdVariant(), n_claimed=0),
        "dcd count 99": trajectory_bytes.dcd(positions, DcdVariant(), n_claimed=99),
        "dcd count -1": trajectory_bytes.dcd(positions, DcdVariant(), n_claimed=-1),
        "dcd without frames": trajectory_bytes.dcd(positions[:0], DcdVariant()),
        "trr": trajectory_bytes.trr(positions),
        "trr double": trajectory_bytes.trr(positions, double=True),
        "nc": netcdf(positions),
        "nc 1": netcdf(positions, version=1),
        "nc 5": netcdf(positions, version=5, motion=False),
        "nc count 99": netcdf(positions, n_claimed=99),
        "nc count open": netcdf(positions, n_claimed=-1),
    }


def opened(path: Path) -> IndexedFile:
    return IndexedFile(path)


def opened_or_refused(path: Path) -> tuple["_core.Trajectory | None", Exception | None]:
    try:
        return opened(path), None
    except (DamagedFileError, UnsupportedError) as error:
        return None, error


def reader_of(core: "_core.Trajectory") -> "_core.Reader":
    return _core.Reader(core.path, core.layout, core.samples)


def read(
    core: "_core.Trajectory", frames: Sequence[int], *, skip: bool
) -> tuple[np.ndarray, np.ndarray, list[tuple[int, str]]]:
    """Return positions, times, and skipped rows, of some frames."""
    decoded = FrameBuffer.allocate(np.asarray(frames), core.n_atoms, ["positions"])
    decoded.positions[:] = -1
    extents = extents_in(0, core, decoded.frames.astype(np.uint64))
    *_, skipped = reader_of(core).read(extents, decoded, required=1, skip=skip)
    return decoded.positions, decoded.times, skipped


def stored(file: Trajectory, content: bytes) -> np.ndarray:
    """Return the positions in `content` at the offsets of the frames of `file`."""
    frames = [file.stored(file.frame(number, content)) for number in range(file.n_frames)]
    return np.array(frames)


def original(folder: Path, file: Trajectory) -> np.ndarray:
    path = folder / f"original{file.suffix}"
    path.write_bytes(file.content)
    core = opened(path)
    assert (core.n_frames, core.n_atoms) == (file.n_frames, file.n_atoms)
    positions = read(core, range(file.n_frames), skip=False)[0]
    if file.stored is not None:
        np.testing.assert_array_equal(positions, stored(file, file.content))
    return positions


@dataclass(frozen=True)
class Fault:
    """Facts in an error: byte (from the start of the frame or file), expected, found."""

    at: int
    expected: str
    found: str


@dataclass(frozen=True)
class Row:
    """A damaged file, and the expected outcome.

    Attributes
    ----------
    file : str
        Name of the undamaged file.
    damage : callable
        Function that returns the damaged content.
    frames : sequence of int or None
        For each frame of the damaged file, the original frame; None for a frame that is refused.
    faults : dict of int to Fault
        Expected messages about refused frames, if they are checked.
    note : str
        Regular expression for the warning at opening; empty if there is none.
    refused : Fault or str
        Error if the file cannot be opened; a string if the error has no byte offset.
    """

    name: str
    file: str
    damage: Callable[[Trajectory], bytes]
    frames: Sequence[int | None] = ()
    faults: dict[int, Fault] = field(default_factory=dict)
    note: str = ""
    refused: Fault | str | None = None


#: The damaged frame.
MIDDLE = 5
ONE_OF_TEN = (*range(MIDDLE), None, *range(MIDDLE + 1, 10))
ONE_OF_EIGHT = (*range(MIDDLE), None, *range(MIDDLE + 1, 8))


def in_header(name: str, at: int, expected: str, found: str, **fields: object) -> Row:
    """An XTC frame with an invalid header."""
    return Row(
        name,
        "xtc",
        lambda file: trajectory_bytes.xtc_with(file, MIDDLE, **fields),
        ONE_OF_TEN,
        {MIDDLE: Fault(at, expected, found)},
        rf"1 of 10 frames is damaged: frame {MIDDLE} \(byte \d+\)",
    )


def marker(name: str, file: str, at: int, frame: int = MIDDLE, *, n_frames: int = 8) -> Row:
    """A DCD frame with a wrong record marker."""
    return Row(
        name,
        file,
        lambda whole: whole.with_bytes(whole.borders[frame] + at + 1, b"\x01"),
        (*range(frame), None, *range(frame + 1, n_frames)),
        {frame: Fault(at, "a record marker of", "bytes")},
        "the last frame is damaged" if frame == n_frames - 1 else "",
    )


def trr_header(name: str, at: int, expected: str, found: str, **fields: object) -> Row:
    """A TRR frame with an invalid header."""
    return Row(
        name,
        "trr",
        lambda file: trajectory_bytes.trr_with(file, MIDDLE, **fields),
        ONE_OF_EIGHT,
        {MIDDLE: Fault(at, expected, found)},
        rf"1 of 8 frames is damaged: frame {MIDDLE} \(byte \d+\)",
    )


def netcdf_head(name: str, at: int, new: bytes, told: int, expected: str, found: str) -> Row:
    """A NetCDF file with an invalid header."""
    fault = Fault(told, expected, found)
    return Row(name, "nc", lambda file: file.with_bytes(at, new), refused=fault)


def dcd_head(name: str, at: int, new: bytes, expected: str, found: str) -> Row:
    """A DCD file with an invalid header."""
    fault = Fault(at, expected, found)
    return Row(name, "dcd", lambda file: file.with_bytes(at, new), refused=fault)


def i32(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}i", *values)


def big(value: int) -> bytes:
    return struct.pack(">i", value)


MOST = 2**31 - 1
PRECISION = "a finite precision above 1e-27"
SMALL = "a small index from 9 to 73"
PACKED = "packed bytes for 60 atoms"
HUGE = "packed bytes for 2147483647 atoms"
EXTREME = "a maximum that the minimum"
CLAIMED = "the header says {} frames, the file has 8"
ROWS = [
    in_header("magic", 0, "the magic number of XTC", "1996", magic=1996),
    in_header("magic of TRR", 0, "the magic number of XTC", "1993", magic=1993),
    in_header("one atom count", 52, "60 atoms, as at the start", "61", atoms_again=61),
    in_header("other atom count", 52, "61 atoms, as at the start", "60", atoms=61),
    in_header("negative atoms", 4, "a number of atoms", "-1", atoms=-1, atoms_again=-1),
    in_header("absurd atoms", 88, HUGE, "", atoms=MOST, atoms_again=MOST),
    in_header("no atoms", 4, "60 atoms", "0", atoms=0, atoms_again=0),
    in_header("precision 0", 56, PRECISION, "0", precision=0.0),
    in_header("precision NaN", 56, PRECISION, "NaN", precision=float("nan")),
    in_header("negative precision", 56, PRECISION, "-1000", precision=-1000.0),
    in_header("infinite precision", 56, PRECISION, "inf", precision=float("inf")),
    in_header("tiny precision", 56, PRECISION, "1e-40", precision=1e-40),
    in_header("small index 8", 84, SMALL, "8", small_index=8),
    in_header("small index 74", 84, SMALL, "74", small_index=74),
    in_header("small index -1", 84, SMALL, "-1", small_index=-1),
    in_header("absurd small index", 84, SMALL, str(MOST), small_index=MOST),
    in_header("least above largest", 72, EXTREME, "-9", maximum=(-9, 0, 0), minimum=(0, 0, 0)),
    in_header(
        "absurd range", 72, EXTREME, str(MOST), minimum=(-MOST - 1,) * 3, maximum=(MOST,) * 3
    ),
    in_header("no bytes", 88, PACKED, "0", byte_count=0),
    in_header("negative bytes", 88, PACKED, "-1", byte_count=-1),
    in_header("absurd bytes", 88, PACKED, str(MOST), byte_count=MOST),
    Row(
        "four bytes too many",
        "xtc",
        lambda file: trajectory_bytes.xtc_with(
            file, MIDDLE, byte_count=file.borders[MIDDLE + 1] - file.borders[MIDDLE] - 88
        ),
        ONE_OF_TEN,
        {MIDDLE: Fault(88, "a byte count that makes a frame of", "one that makes")},
        "1 of 10 frames is damaged",
    ),
    Row(
        # The bytes after the stated end are too few for a frame.
        "fewer bytes",
        "xtc",
        lambda file: trajectory_bytes.xtc_with(
            file, MIDDLE, byte_count=file.borders[MIDDLE + 1] - file.borders[MIDDLE] - 100
        ),
        ONE_OF_TEN,
        {MIDDLE: Fault(88, "a byte count that makes a frame of", "one that makes")},
        "1 of 10 frames is damaged: frame 5",
    ),
    Row(
        "a frame of another system",
        "xtc",
        lambda file: (
            file.content[: file.borders[MIDDLE]]
            + trajectory_bytes.plain_xtc_frame(3)
            + file.content[file.borders[MIDDLE] :]
        ),
        (*range(MIDDLE), None, *range(MIDDLE, 10)),
        {MIDDLE: Fault(4, "60 atoms, as in the topology", "3")},
        "1 of 11 frames is damaged: frame 5",
    ),
    Row(
        "zeros over a border",
        "xtc",
        lambda file: file.with_bytes(file.borders[MIDDLE] - 20, bytes(60)),
        (*range(MIDDLE - 1), None, None, *range(MIDDLE + 1, 10)),
        {MIDDLE: Fault(0, "the magic number of XTC", "0")},
        "1 of 10 frames is damaged: frame 5",
    ),
    Row(
        "a hole within a frame",
        "xtc",
        lambda file: (
            file.content[: file.borders[MIDDLE] + 120] + file.content[file.borders[MIDDLE] + 140 :]
        ),
        ONE_OF_TEN,
        {MIDDLE: Fault(88, "a byte count that makes", "one that makes")},
        "1 of 10 frames is damaged",
    ),
    Row(
        "a hole over a border",
        "xtc",
        lambda file: (
            file.content[: file.borders[MIDDLE] - 20] + file.content[file.borders[MIDDLE] + 20 :]
        ),
        (*range(MIDDLE - 1), None, None, *range(MIDDLE + 1, 10)),
        {MIDDLE: Fault(0, "the magic number of XTC", "")},
        "1 of 10 frames is damaged: frame 5",
    ),
    Row(
        # Bytes that do not begin like a frame end where the next frame begins.
        "magic of two frames",
        "xtc",
        lambda file: (
            file.content[: file.borders[MIDDLE]]
            + bytes(4)
            + file.content[file.borders[MIDDLE] + 4 : file.borders[MIDDLE + 1]]
            + bytes(4)
            + file.content[file.borders[MIDDLE + 1] + 4 :]
        ),
        (*range(MIDDLE), None, *range(MIDDLE + 2, 10)),
        {MIDDLE: Fault(0, "the magic number of XTC", "0")},
        r"1 of 9 frames is damaged: frame 5 .*; frame 5 is as long as 2 frames: if it was so many",
    ),
    Row(
        "magic of the last frame",
        "xtc",
        lambda file: trajectory_bytes.xtc_with(file, 9, magic=0),
        (*range(9), None),
        {9: Fault(0, "the magic number of XTC", "0")},
        "1 of 10 frames is damaged: frame 9",
    ),
    Row(
        "absurd bytes in the last frame",
        "xtc",
        lambda file: trajectory_bytes.xtc_with(file, 9, byte_count=500),
        range(9),
        {},
        r"frame 9 \(byte \d+\) is cut: \d+ of 592 bytes are there; the 9 frames before",
    ),
    Row(
        "first magic",
        "xtc",
        lambda file: trajectory_bytes.xtc_with(file, 0, precision=0.0),
        refused=Fault(56, PRECISION, "0"),
    ),
    marker("before x", "dcd", 56),
    marker("behind the cell", "dcd", 52),
    marker("behind z", "dcd", 56 + 3 * 128 - 4),
    marker("of the last frame", "dcd", 56, frame=7),
    marker("of 64 bits", "dcd big-endian", 0),
    marker("behind y with fixed atoms", "dcd fixed", 56 + 100 + 4 + 92),
    Row(
        "header count 0", "dcd count 0", lambda file: file.content, range(8), {}, CLAIMED.format(0)
    ),
    Row("count 99", "dcd count 99", lambda file: file.content, range(8), {}, CLAIMED.format(99)),
    Row("count -1", "dcd count -1", lambda file: file.content, range(8), {}, CLAIMED.format(-1)),
    Row("a header alone", "dcd without frames", lambda file: file.content),
    Row(
        "four bytes inserted",
        "dcd",
        lambda file: (
            file.content[: file.borders[MIDDLE]] + bytes(4) + file.content[file.borders[MIDDLE] :]
        ),
        (*range(MIDDLE), None, None, None),
        {MIDDLE: Fault(0, "a record marker of 48", "0")},
        r"^the last frame is damaged.*inserted before it; frame 8 \(byte \d+\) is cut: 4 of \d+",
    ),
    Row(
        "a frame within is cut",
        "dcd",
        lambda file: (
            file.content[: file.borders[MIDDLE] + 100] + file.content[file.borders[MIDDLE + 1] :]
        ),
        (*range(MIDDLE), None, None),
        {},
        "^the last frame is damaged.*the header says 8 frames, the file has 7.*is cut",
    ),
    dcd_head("no atoms", 268, i32(0), "at least 1 atom", "0"),
    dcd_head("negative atoms", 268, i32(-1), "at least 1 atom", "-1"),
    dcd_head("absurd title", 92, i32(MOST), "a title of at most", "2147483647 bytes"),
    Row(
        "absurd atoms",
        "dcd",
        lambda file: file.with_bytes(268, i32(MOST)),
        refused=Fault(276, "a first frame of 25769803844 bytes for 2147483647 atoms", "bytes"),
    ),
    Row(
        "as many fixed atoms as atoms",
        "dcd fixed",
        lambda file: file.with_bytes(4 + 36, i32(30)),
        refused=Fault(40, "fewer fixed atoms than the 30 atoms", "30"),
    ),
    trr_header("magic", 0, "the magic number of TRR", "1994", magic=1994),
    trr_header("magic of XTC", 0, "the magic number of TRR", "1995", magic=1995),
    trr_header("length", 8, "a string of 12 bytes", str(MOST), length_again=MOST),
    trr_header("version", 12, "GMX_trn_file", "GMX_trn_fire", version=b"GMX_trn_fire"),
    trr_header("negative box", 32, "a number of bytes of box", "-36", box=-36),
    trr_header("half a box", 32, "0 or 36 bytes of box", "18", box=18),
    trr_header("other positions", 52, "0 or 360 bytes of x", "356", x=356),
    trr_header("absurd positions", 52, "0 or 360 bytes of x", str(MOST), x=MOST),
    trr_header("a virial that is not there", 24, "blocks that make", "516 bytes", vir=36),
    trr_header("absurd virial", 24, "a frame of 480 bytes", "2147484091", vir=MOST - 36),
    trr_header("nothing in it", 32, "a box, positions, velocities or forces", "", box=0, x=0),
    trr_header("other atoms", 52, "0 or 372 bytes of x", "360", atoms=31),
    trr_header("no atoms", 52, "0 or 0 bytes of x", "360", atoms=0),
    trr_header("negative atoms", 64, "a number of atoms", "-1", atoms=-1),
    trr_header("absurd atoms", 52, "0 or 25769803764 bytes of x", "360", atoms=MOST),
    Row(
        "a hole within a frame",
        "trr",
        lambda file: (
            file.content[: file.borders[MIDDLE] + 120] + file.content[file.borders[MIDDLE] + 140 :]
        ),
        ONE_OF_EIGHT,
        {MIDDLE: Fault(24, "blocks that make a frame of 460 bytes", "480 bytes")},
        "1 of 8 frames is damaged",
    ),
    Row(
        "zeros over a border",
        "trr",
        lambda file: file.with_bytes(file.borders[MIDDLE], bytes(60)),
        ONE_OF_EIGHT,
        {MIDDLE: Fault(0, "the magic number of TRR", "0")},
        "1 of 8 frames is damaged",
    ),
    Row("count 99", "nc count 99", lambda file: file.content, range(8), {}, CLAIMED.format(99)),
    Row("count open", "nc count open", lambda file: file.content, range(8)),
    Row(
        "frames that are no records",
        "nc",
        # The length of the dimension "frame" is 1, instead of that of records.
        lambda file: file.with_bytes(28, big(1)),
        refused="expected a variable in the records, of which the header counts 8, found none",
    ),
    netcdf_head("no list", 8, big(13), 8, "a list with tag 10", "13"),
    netcdf_head("absurd list", 12, big(MOST), 124, "a header of at least", "6804 bytes"),
    netcdf_head("absurd name", 16, big(MOST), 20, "a header of at least", "6804 bytes"),
]


def universe_of(path: Path, n_atoms: int) -> tuple[paceline.Universe, list[str]]:
    """Return a Universe of atoms without names, and the warnings at opening."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        universe = paceline.Universe(Topology(n_atoms), str(path))
    return universe, [str(w.message) for w in caught if w.category is PacelineWarning]


def positions_of(block: paceline.block.Block) -> np.ndarray:
    return block.positions


def check_error(error: DamagedFileError, path: Path, frame: int | None, start: int, fault: Fault):
    """Check the attributes of an error, and that its message is made of them."""
    assert (error.path, error.frame) == (str(path), frame)
    of_frame = "" if frame is None else f"frame {frame}, "
    line = f"{path}: {of_frame}byte {error.offset}: expected {error.expected}, found {error.found}"
    assert str(error) == line
    assert fault.expected in error.expected
    assert fault.found in error.found
    # Within packed positions, the offset at which a fault is found depends on the positions.
    assert error.offset == start + fault.at if fault.at else error.offset >= start


def check_frames(
    path: Path,
    core: "_core.Trajectory",
    whole: np.ndarray,
    frames: Sequence[int | None],
    faults: dict[int, Fault],
) -> None:
    """Read every frame alone, then all at once with damaged frames skipped."""
    assert core.n_frames == len(frames)
    starts, sizes = core.extents(np.arange(len(frames), dtype=np.uint64))
    expected = np.full((len(frames), *whole.shape[1:]), np.nan, dtype=np.float32)
    messages = {}
    for number, of in enumerate(frames):
        if of is not None:
            expected[number] = whole[of]
            np.testing.assert_array_equal(read(core, [number], skip=False)[0][0], whole[of])
            continue
        with pytest.raises(DamagedFileError) as caught:
            read(core, [number], skip=False)
        error = caught.value
        start = int(starts[number])
        check_error(error, path, number, start, faults.get(number, Fault(0, "", "")))
        assert error.offset <= start + int(sizes[number])
        messages[number] = str(error)
    positions, times, skipped = read(core, range(len(frames)), skip=True)
    np.testing.assert_array_equal(positions, expected)
    assert dict(skipped) == messages
    assert [k for k, time in enumerate(times) if np.isnan(time)] == list(messages)


def check_run(path: Path, whole: np.ndarray, frames: Sequence[int | None], note: str) -> None:
    """Run an analysis, if MDAnalysis can open the file; it needs the first two frames."""
    universe, told = universe_of(path, whole.shape[1])
    assert bool(told) == bool(note)
    assert all(text.startswith(f"{path}: ") for text in told)
    analysis = paceline.TimeSeries(positions_of, universe.atoms)
    damaged = [number for number, of in enumerate(frames) if of is None]
    if damaged:
        with pytest.raises(DamagedFileError, match=f"frame {damaged[0]}, byte"):
            analysis.run(backend="serial")
    analysis.run(backend="serial", on_error="skip")
    assert [frame for frame, _ in analysis.damaged] == damaged
    for number, of in enumerate(frames):
        row = analysis.results.timeseries[number]
        np.testing.assert_array_equal(row, np.nan if of is None else whole[of])


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.file}: {row.name}")
def test_damage_is_named_and_the_rest_is_read(row, files, folder):
    file = files[row.file]
    path = folder / f"damaged{file.suffix}"
    path.write_bytes(row.damage(file))
    if isinstance(row.refused, str):
        with pytest.raises(UnsupportedError, match=f"^{path}: {row.refused}$"):
            opened(path)
        return
    if row.refused is not None:
        with pytest.raises(DamagedFileError) as caught:
            opened(path)
        check_error(caught.value, path, 0 if file.suffix == ".xtc" else None, 0, row.refused)
        return
    core = opened(path)
    assert re.search(row.note, "; ".join(core.notes)) if row.note else core.notes == []
    if row.frames:
        whole = original(folder, file)
        check_frames(path, core, whole, row.frames, row.faults)
        check_run(path, whole, row.frames, row.note)


@pytest.mark.parametrize(
    "name",
    [
        *("xtc", "toxin xtc", "dcd", "dcd big-endian", "dcd fixed"),
        *("trr", "trr double", "nc", "nc 5"),
    ],
)
def test_a_cut_file_is_read_up_to_the_cut(name, files, folder):
    file = files[name]
    whole = original(folder, file)
    path = folder / f"cut{file.suffix}"
    random = np.random.default_rng(5)
    of_frames = [file.borders[k] + at for k in (2, file.n_frames - 1) for at in file.fields]
    at_random = random.integers(len(file.content), size=N_CUTS).tolist()
    for at in {*of_frames, *at_random, *file.borders[1:]} - {0}:
        path.write_bytes(file.cut(at))
        n_whole = max(int(np.searchsorted(file.borders, at, side="right")) - 1, 0)
        start = file.borders[n_whole]
        core, refusal = opened_or_refused(path)
        if core is None:
            assert n_whole == 0, at
            assert at < 8 or refusal.offset <= at
            continue
        told = "; ".join(core.notes)
        if at > start:
            assert f"frame {n_whole} (byte {start}) is cut: {at - start}" in told
        if file.suffix in (".dcd", ".nc") and n_whole < file.n_frames:
            assert f"the header says {file.n_frames} frames, the file has {n_whole}" in told
        assert core.n_frames == n_whole
        positions, _, skipped = read(core, range(n_whole), skip=True)
        assert skipped == []
        np.testing.assert_array_equal(positions, whole[:n_whole])


def check_change(path: Path, file: Trajectory, whole: np.ndarray, at: int, content: bytes) -> None:
    """Check one changed byte: only its own frame may differ, in a way that the format cannot
    detect.
    """
    path.write_bytes(content)
    frame = file.frame_of(at)
    core, refusal = opened_or_refused(path)
    if core is None:
        assert str(refusal).startswith(f"{path}: ")
        assert frame in (None, 0), at
        return
    starts, _ = core.extents(np.arange(core.n_frames, dtype=np.uint64))
    assert core.n_frames >= file.n_frames or core.notes, at
    if core.n_atoms != file.n_atoms:
        return
    if file.suffix == ".nc" and frame is None and core.notes:
        # Without its last variable, a header is valid, but its records do not fill the file.
        return
    positions, _, skipped = read(core, range(core.n_frames), skip=True)
    damaged = {row for row, _ in skipped}
    seen = set()
    for number, start in enumerate(starts.tolist()):
        if number in damaged:
            assert np.isnan(positions[number]).all()
            continue
        assert start in file.borders, at
        own = file.borders.index(start)
        seen.add(own)
        if own != frame:
            np.testing.assert_array_equal(positions[number], whole[own])
        elif file.stored is not None:
            expected = file.stored(file.frame(own, content))
            np.testing.assert_array_equal(positions[number], expected)
        else:
            least, largest = trajectory_bytes.xtc_range(content, start)
            assert ((least <= positions[number]) & (positions[number] <= largest)).all(), at
    if frame is not None:
        lost = set(range(file.n_frames)) - seen - {frame}
        assert not lost or core.notes or damaged, at


@pytest.mark.parametrize("name", ["xtc", "toxin xtc", "dcd", "trr", "nc"])
def test_a_changed_byte_harms_one_frame_at_most(name, files, folder):
    file = files[name]
    whole = original(folder, file)
    path = folder / f"changed{file.suffix}"
    for at, content in trajectory_bytes.byte_changes(file, N_CHANGES, seed=7):
        check_change(path, file, whole, at, content)


#: Size of the bytes of a frame before its positions.
HEADERS = {
    "xtc": trajectory_bytes.XTC_PACKED,
    "dcd": 60,
    "trr": 120,
    "trr double": 164,
    "nc": 0,
    "nc 1": 0,
    "nc 5": 0,
}


@pytest.mark.parametrize("name", HEADERS)
def test_a_changed_header_harms_one_frame_at_most(name, files, folder):
    file = files[name]
    whole = original(folder, file)
    path = folder / f"header{file.suffix}"
    start = file.borders[2]
    for at in [*range(file.borders[0]), *range(start, start + HEADERS[name])]:
        for change in (0x01, 0x80):
            content = file.with_bytes(at, bytes([file.content[at] ^ change]))
            check_change(path, file, whole, at, content)


@pytest.mark.parametrize("name", ["xtc", "dcd", "trr", "nc"])
def test_an_analysis_survives_changed_bytes(name, files, folder):
    file = files[name]
    whole = original(folder, file)
    path = folder / f"analysed{file.suffix}"
    for at, content in trajectory_bytes.byte_changes(file, N_CHANGES // 20, seed=8):
        frame = file.frame_of(at)
        if frame is None or frame < 2:
            continue
        path.write_bytes(content)
        universe, _ = universe_of(path, file.n_atoms)
        analysis = paceline.TimeSeries(positions_of, universe.atoms)
        analysis.run(backend="serial", on_error="skip")
        rows = analysis.results.timeseries
        out = {number for number, _ in analysis.damaged}
        assert {number for number, row in enumerate(rows) if np.isnan(row).all()} == out
        np.testing.assert_array_equal(rows[:frame], whole[:frame])
        behind = file.n_frames - frame - 1
        np.testing.assert_array_equal(rows[len(rows) - behind :], whole[frame + 1 :])


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda path: None, FileNotFoundError, "No such file or directory"),
        (
            Path.touch,
            DamagedFileError,
            r"expected a trajectory \(XTC, .* or HDF5\), found an empty file",
        ),
        (Path.mkdir, UnsupportedError, "expected a regular file, found a directory"),
        (os.mkfifo, UnsupportedError, "expected a regular file, found a pipe or device"),
        (lambda path: path.symlink_to("/dev/zero"), UnsupportedError, "found a pipe or device"),
        (
            lambda path: path.write_bytes(b"\x89PNG\r\n\x1a\n"),
            UnsupportedError,
            "begins with .*PNG",
        ),
        (lambda path: path.write_bytes(b"T\0\0\0VELD"), UnsupportedError, "begins with .*VELD"),
        (lambda path: path.write_bytes(b"\0\0\x07\xcb"), DamagedFileError, "a frame of at least 8"),
        (lambda path: path.write_bytes(b"T\0\0\0CORD"), DamagedFileError, "at least 12 bytes"),
        (lambda path: path.write_bytes(b"\0\0\x07\xc9"), DamagedFileError, "at least"),
        (
            lambda path: path.write_bytes(b"CDF\x02"),
            DamagedFileError,
            "a header of at least 8 bytes",
        ),
        (lambda path: path.write_bytes(b"CDF\x03" + bytes(60)), UnsupportedError, "CDF.x03"),
    ],
    ids=[
        "nothing",
        "empty",
        "directory",
        "pipe",
        "device",
        "other format",
        "velocities",
        "a magic",
        "CORD",
        "a magic of TRR",
        "CDF-2",
        "CDF-3",
    ],
)
@pytest.mark.timeout(method="thread")  # opening a pipe cannot be interrupted
def test_what_is_no_trajectory_is_refused(make, error, message, tmp_path):
    path = tmp_path / "file.xtc"
    make(path)
    for open_it in (opened, lambda path: paceline.Universe(Topology(3), str(path))):
        with pytest.raises(error, match=message) as caught:
            open_it(path)
        assert str(path) in str(caught.value)


@pytest.mark.parametrize("name", SUFFIXES)
def test_content_counts_and_not_the_name(name, files, folder):
    file = files[name]
    whole = original(folder, file)
    other = {"xtc": "trr", "trr": "xtc", "dcd": "nc", "nc": "dcd"}[name]
    path = folder / f"renamed.{other}"
    path.write_bytes(file.content)
    check_run(path, whole, range(file.n_frames), "")


def test_a_file_without_permission_is_refused(files, tmp_path):
    path = tmp_path / "secret.xtc"
    path.write_bytes(files["xtc"].content)
    path.chmod(0)
    for parent in [tmp_path, *tmp_path.parents]:
        if not parent.stat().st_mode & 0o001:
            parent.chmod(parent.stat().st_mode | 0o011)
    code = f"""
import os
from paceline import _core
if os.geteuid() == 0:
    os.seteuid(65534)
try:
    _core.Trajectory({str(path)!r})
except PermissionError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert re.fullmatch(rf"\[Errno 13\] cannot open: .*: '{path}'\n", done.stdout)


#: Script that opens and reads files within 256 MiB, in addition to the memory for imports.
LIMITED = """
import json, resource, sys
import numpy as np
from paceline import _core
from paceline.block import FrameBuffer
from paceline.errors import DamagedFileError, UnsupportedError
from paceline.contract.source import IndexedFile, extents_in

pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + 256 * 2**20
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
said = {}
for path in sys.argv[1:]:
    try:
        core = IndexedFile(path)
        said[path] = core.notes
        for frame in range(core.n_frames):
            header = FrameBuffer.allocate(np.array([frame]), 0, ())
            extents = extents_in(0, core, header.frames.astype(np.uint64))
            reader = _core.Reader(core.path, core.layout, core.samples, fields=0)
            reader.read(extents, header, required=0, skip=True)
    except (DamagedFileError, UnsupportedError) as error:
        said[path] = [str(error)]
# Not getrusage's: that begins with what the parent held.
(most,) = (line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(json.dumps([said, int(most.split()[1])]))
"""


def absurd_files(files: dict[str, Trajectory]) -> dict[str, bytes]:
    """Return small files whose headers state gigabytes."""
    xtc, dcd, fixed = files["xtc"], files["dcd"], files["dcd fixed"]
    trr, nc, wide = files["trr"], files["nc"], files["nc 5"]
    # The number of atoms follows the name of its dimension.
    at_atoms, at_atoms_wide = (file.content.index(b"atom") + 4 for file in (nc, wide))
    atoms = {"atoms": MOST, "atoms_again": MOST}
    # 2**31 - 1 atoms at the same position, with at most 9 bits each.
    bytes_of_most = {"byte_count": MOST, "minimum": (0, 0, 0), "maximum": (0, 0, 0)}
    first = trajectory_bytes.xtc_with(xtc, 0, **atoms)
    one = trajectory_bytes.xtc_with(xtc, 0, **atoms, **bytes_of_most, small_index=9)
    two = one[: xtc.borders[1]] + one
    return {
        "atoms.xtc": first,
        "one.xtc": one,
        "two.xtc": two,
        "bytes.xtc": trajectory_bytes.xtc_with(xtc, 0, byte_count=MOST),
        "atoms.dcd": dcd.with_bytes(268, i32(MOST)),
        "title.dcd": dcd.with_bytes(92, i32(2**20)),
        "frames.dcd": dcd.with_bytes(8, i32(MOST)),
        "free.dcd": fixed.with_bytes(40, i32(1)),
        "atoms.trr": trajectory_bytes.trr_with(trr, 0, atoms=MOST),
        "positions.trr": trajectory_bytes.trr_with(
            trr, 0, atoms=MOST // 12, x=MOST // 12 * 12, v=0, f=0
        ),
        "virial.trr": trajectory_bytes.trr_with(trr, 0, vir=MOST),
        "later.trr": trajectory_bytes.trr_with(trr, MIDDLE, pres=MOST),
        "list.nc": nc.with_bytes(12, big(MOST)),
        "name.nc": nc.with_bytes(16, big(MOST)),
        "atoms.nc": nc.with_bytes(at_atoms, big(MOST)),
        "records.nc": nc.with_bytes(4, big(MOST)),
        "atoms wide.nc": wide.with_bytes(at_atoms_wide, struct.pack(">q", 2**60)),
    }


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="asks Linux for its memory")
def test_absurd_sizes_take_no_memory(files, tmp_path):
    paths = []
    for name, content in absurd_files(files).items():
        path = tmp_path / name
        path.write_bytes(content)
        paths.append(str(path))
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, *paths],
        capture_output=True,
        text=True,
        env=environment,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    said, kib = json.loads(done.stdout)
    assert kib < 300 * 1024
    assert [path for path in paths if not said[path]] == []


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_another_number_of_atoms_than_the_topology_is_refused(suffix, files, folder):
    file = files[suffix]
    path = folder / f"counted.{suffix}"
    path.write_bytes(file.content)
    message = f"{path}: the topology has 6 atoms, the trajectory {file.n_atoms}"
    with pytest.raises(AtomCountError, match=re.escape(message)):
        paceline.Universe(datafiles.two_water_gro, str(path))


def overwrite(path: Path, other: bytes) -> None:
    with path.open("r+b") as file:
        file.write(other)


def replace(path: Path, other: bytes) -> None:
    new = path.with_name("new")
    new.write_bytes(other)
    new.rename(path)


def truncate(path: Path, other: bytes) -> None:
    os.truncate(path, path.stat().st_size // 2)


@pytest.mark.parametrize("change", [overwrite, replace, truncate])
@pytest.mark.parametrize("backend", ["serial", "threads"])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_that_changes_while_it_is_read_is_noticed(change, backend, suffix, files, tmp_path):
    file = files[suffix]
    path = tmp_path / f"changing.{suffix}"
    path.write_bytes(file.content)
    other = bytearray(file.content)
    start = file.borders[6]
    other[start + 60 : start + 90] = other[start + 30 : start + 60]

    def change_it(block: paceline.block.Block) -> np.ndarray:
        if block.frames[0] == 0:
            change(path, bytes(other))
        return block.times

    universe, _ = universe_of(path, file.n_atoms)
    analysis = paceline.TimeSeries(change_it, universe.atoms)
    message = f"{path}: the file changed since it was opened"
    with pytest.raises(FileChangedError, match=re.escape(message)):
        analysis.run(backend=backend, n_workers=1)
    assert analysis.results == {}


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_that_grows_while_it_is_read_is_the_same(suffix, files, tmp_path):
    file = files[suffix]
    path = tmp_path / f"growing.{suffix}"
    path.write_bytes(file.content)
    grown = bytearray(file.content + file.content[file.borders[-2] :])
    if suffix == "nc":
        grown[4:8] = big(file.n_frames + 1)
    if suffix == "dcd":
        # The number of frames and the last step, as updated by NAMD and LAMMPS with each frame.
        grown[8:12], grown[20:24] = i32(file.n_frames + 1), i32(1234)

    def grow(block: paceline.block.Block) -> np.ndarray:
        overwrite(path, bytes(grown))
        return block.positions

    universe, _ = universe_of(path, file.n_atoms)
    analysis = paceline.TimeSeries(grow, universe.atoms).run(backend="threads")
    np.testing.assert_array_equal(analysis.results.timeseries, original(tmp_path, file))


def test_a_file_that_changes_while_it_is_indexed_is_noticed(files, tmp_path):
    path = tmp_path / "changing.xtc"
    path.write_bytes(files["xtc"].content)
    other = trajectory_bytes.xtc_with(files["xtc"], 0, step=77)
    with pytest.raises(FileChangedError, match="other bytes among the first"):
        _core.Trajectory(path, progress=lambda done, total: overwrite(path, other))
    assert list(tmp_path.iterdir()) == [path]


def test_the_last_small_index_has_no_small_distances(tmp_path):
    """Check the last small index: it is valid, but small differences after it are not."""
    universe, path = MDAnalysis.Universe.empty(60, trajectory=True), tmp_path / "damaged.xtc"
    universe.atoms.positions = np.outer(np.arange(60), [1, 0.7, 0.2])
    universe.atoms.write(str(path))
    content = bytearray(path.read_bytes())
    content[84:88] = big(73)
    path.write_bytes(content)
    with pytest.raises(DamagedFileError) as caught:
        paceline.open(path).positions(frames=[0])
    assert "expected a small index from 9 to 72 for small distances, found 73" in str(caught.value)
