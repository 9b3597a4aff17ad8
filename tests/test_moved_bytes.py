"""Tests of bytes lost or inserted in a file: reported at opening, and never read as frames."""

import re
import warnings
from pathlib import Path

import h5py
import MDAnalysis
import numpy as np
import pytest
from helpers.netcdf_files import FORMATS, write_netcdf4, write_scipy
from MDAnalysis.core.topology import Topology

import paceline
from paceline.errors import DamagedFileError, PacelineError, PacelineWarning
from paceline.mdanalysis.reader import Reader

N_ATOMS, N_FRAMES, DT = 25, 40, 1.5
CELL = [30.0, 31.0, 32.0, 90.0, 90.0, 90.0]

#: Phrases, one of which occurs in a warning about damage.
WORDS = ("contradicts its header", "lost or inserted", "bytes were inserted", "damaged", "was cut")
#: Formats in which the bytes of a damaged frame show the damage, so that no frame is wrong.
STRICT = {*FORMATS, "without cells", "xtc", "trr", "dcd"}


def positions() -> np.ndarray:
    """Positions of diffusing atoms, Å, shape (n_frames, n_atoms, 3)."""
    random = np.random.default_rng(3)
    steps = random.normal(0, 0.2, (N_FRAMES, N_ATOMS, 3))
    return np.float32(random.uniform(2, 28, (N_ATOMS, 3)) + np.cumsum(steps, axis=0))


def arrays() -> dict[str, np.ndarray]:
    """Return the variables of an Amber NetCDF file."""
    lengths, angles = (np.tile(np.array(part), (N_FRAMES, 1)) for part in (CELL[:3], CELL[3:]))
    return {
        "time": DT * np.arange(N_FRAMES),
        "cell_lengths": lengths,
        "cell_angles": angles,
        "coordinates": positions(),
        "velocities": positions() / 7,
    }


def write_netcdf(path: Path, kind: str) -> Path:
    """Write an Amber NetCDF file of this kind."""
    found = arrays()
    without = {
        "without times": ("time",),
        "without cells": ("cell_lengths", "cell_angles"),
        "without both": ("time", "cell_lengths", "cell_angles"),
    }
    kept = {name: found[name] for name in found if name not in without.get(kind, ())}
    if kind in FORMATS or kind == "NETCDF4":
        return write_netcdf4(path, kept, kind)
    return write_scipy(path, kept, frame=N_FRAMES if kind == "arrays" else None)


def write_mdanalysis(path: Path) -> Path:
    """Write a file of another format with MDAnalysis."""
    universe = MDAnalysis.Universe.empty(N_ATOMS, trajectory=True, velocities=True)
    with MDAnalysis.Writer(str(path), N_ATOMS) as writer:
        for frame, atoms in enumerate(positions()):
            universe.atoms.positions = atoms
            universe.atoms.velocities = atoms / 7
            universe.dimensions = CELL
            universe.trajectory.ts.frame = frame
            universe.trajectory.ts.time = DT * frame
            writer.write(universe.atoms)
    return path


def write_history(path: Path) -> Path:
    """Write a HISTORY as DL_POLY does."""
    lines = [
        "made up",
        f"{0:10}{1:10}{N_ATOMS:10}{N_FRAMES:21}{2 + N_FRAMES * (4 + 2 * N_ATOMS):21}",
    ]
    for frame, atoms in enumerate(positions()):
        lines.append(f"timestep{frame:10}{N_ATOMS:10}{0:2}{1:2}{DT:20.6f}{DT * frame:20.6f}")
        lines += [f"{x:20.10f}{y:20.10f}{z:20.10f}" for x, y, z in np.diag(CELL[:3])]
        for number, (x, y, z) in enumerate(atoms - 15):
            lines.append(f"{'C':8}{number + 1:10}{12.011:12.6f}{0:12.6f}{0:12.6f}")
            lines.append(f"{x:20.10f}{y:20.10f}{z:20.10f}")
    path.write_text("".join(line.ljust(72) + "\n" for line in lines))
    return path


def write_h5md(path: Path, chunk: str) -> Path:
    """Write an H5MD file."""
    trajectory = write_mdanalysis(path.with_suffix(".trr"))
    source = paceline.Universe(Topology(N_ATOMS), str(trajectory))
    paceline.Write(source.atoms, path, chunk=chunk).run(backend="serial", progress=False)
    return path


def written(folder: Path, kind: str) -> Path:
    """Write an undamaged file."""
    if kind in ("xtc", "trr", "dcd"):
        return write_mdanalysis(folder / f"a.{kind}")
    if kind == "HISTORY":
        return write_history(folder / kind)
    if kind.startswith("h5md"):
        return write_h5md(folder / "a.h5md", kind.removeprefix("h5md "))
    return write_netcdf(folder / "a.nc", kind)


def read_frame(reader: Reader, frame: int) -> tuple[float, np.ndarray] | None:
    """Return time and positions of a frame; None if it is refused with an error that names it."""
    try:
        ts = reader[frame]
    except DamagedFileError as error:
        refusal = str(error)
    else:
        return ts.time, ts.positions.copy()
    assert f"{reader.filename}: frame {frame}" in refusal
    return None


def read_frames(path: Path) -> tuple[list[str], list[tuple[float, np.ndarray] | None]]:
    """Return warnings at opening, and time and positions of each frame (None if refused)."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        reader = Reader(str(path))
    frames = [read_frame(reader, frame) for frame in range(reader.n_frames)]
    return [str(one.message) for one in caught if one.category is PacelineWarning], frames


def refused(path: Path) -> str:
    """Return why a file cannot be opened; empty if it can."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            Reader(str(path))
        except PacelineError as error:
            return str(error)
    return ""


def is_equal(one, other) -> bool:
    return one[0] == other[0] and np.array_equal(one[1], other[1])


KINDS = [
    *FORMATS,
    *("without times", "without cells", "without both", "arrays", "NETCDF4"),
    *("xtc", "trr", "dcd", "HISTORY", "h5md contiguous", "h5md frame"),
]


@pytest.mark.one_in(2)
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("n", [1, 4, 64])
@pytest.mark.parametrize("change", ["insert", "remove"])
@pytest.mark.parametrize("kind", KINDS)
def test_bytes_in_the_middle(tmp_path, kind, change, n):
    path = written(tmp_path, kind)
    whole = path.read_bytes()
    _, expected = read_frames(path)
    random = np.random.default_rng(n)
    size = len(whole)
    for at in (size // 2, *random.integers(size // 4, 3 * size // 4, 5).tolist()):
        inserted = random.bytes(n)
        rest = inserted + whole[at:] if change == "insert" else whole[at + n :]
        # The saved index must be that of this content, and not of the previous file.
        path.unlink()
        path.write_bytes(whole[:at] + rest)
        refusal = refused(path)
        if refusal:
            assert refusal.startswith(f"{path}: ")
            continue
        told, frames = read_frames(path)
        assert any(word in told[0] for word in WORDS), told
        right = [
            frame is not None and any(is_equal(frame, one) for one in expected) for frame in frames
        ]
        times = [frame[0] for frame in frames if frame is not None]
        assert all(np.isnan(time) or abs(time) < 1e15 for time in times)
        if kind in STRICT:
            wrong = [frame for frame, is_right in zip(frames, right, strict=True) if not is_right]
            assert wrong == [None] * len(wrong)
        if kind in STRICT or kind == "without both":
            # The frame before the damage may contain the first moved bytes.
            n_before = int(N_FRAMES * (at / size)) - 2
            assert all(right[:n_before])
            assert all(map(is_equal, frames[:n_before], expected))


def record_size(path: Path) -> tuple[int, int]:
    """Return the offset of the first record of a file, and the size of a record, bytes."""
    reader = Reader(str(path))
    offsets, sizes = reader.file.extents(np.array([0], dtype=np.uint64))
    return int(offsets[0]), int(sizes[0])


def with_count(content: bytes, n: int) -> bytes:
    """Return a file with this number of records in its header; 0xffffffff means unknown."""
    return content[:4] + (n & 0xFFFFFFFF).to_bytes(4, "big") + content[8:]


@pytest.mark.parametrize("claimed", [N_FRAMES, 17, 3, 0, -1])
@pytest.mark.parametrize("kind", ["NETCDF3_64BIT_OFFSET", "without times", "without cells"])
@pytest.mark.parametrize("left", [1, 3, 200, -1])
@pytest.mark.filterwarnings("ignore:.*contains no times")
def test_a_file_that_is_cut_or_being_written_is_no_more_than_cut(tmp_path, kind, claimed, left):
    path = written(tmp_path, kind)
    whole, (start, size) = path.read_bytes(), record_size(path)
    _, expected = read_frames(path)
    path.write_bytes(with_count(whole, claimed)[: start + 17 * size + left % size])
    told, frames = read_frames(path)
    (cut,) = [text for text in told if "frame 17 " in text]
    assert f"is cut: {left % size} of {size} bytes are there; the 17 frames before" in cut
    assert all(map(is_equal, frames, expected[:17]))
    assert len(frames) == 17
    # If the header states the number of complete frames, these bytes may be excess bytes.
    assert ("inserted in frame 16" in cut) == (claimed == 17 and left in (1, 3))
    assert not any("contradicts" in text or "lost" in text for text in told)


def test_records_filled_with_marks_or_zeros_are_no_contradiction(tmp_path):
    """Check records as left by a killed writer that allocates space before it writes."""
    path = written(tmp_path, "NETCDF3_64BIT_OFFSET")
    whole, (_, size) = path.read_bytes(), record_size(path)
    mark = np.full(size // 4, 9.969209968386869e36, dtype=">f4").tobytes()
    for record in (mark, bytes(size)):
        path.write_bytes(whole + record + record[:100])
        told, frames = read_frames(path)
        assert not any("contradicts" in text for text in told)
        assert f"frame {N_FRAMES + 1} (byte {len(whole) + size}) is cut" in told[-1]
        assert (frames[-1] is None) == (record is mark)
        assert None not in frames[:-1]


@pytest.mark.parametrize("n", [1, 2, 3, N_FRAMES])
@pytest.mark.parametrize("without", [(), ("cell_lengths", "cell_angles")])
def test_a_wrong_count_alone_is_no_contradiction(tmp_path, n, without):
    found = {name: array[:n] for name, array in arrays().items() if name not in without}
    path = write_scipy(tmp_path / "a.nc", found)
    path.write_bytes(with_count(path.read_bytes(), n + 2))
    told, frames = read_frames(path)
    assert told == [f"{path}: the header says {n + 2} frames, the file has {n}"]
    assert None not in frames


def test_runs_one_behind_another_may_be_cut(tmp_path):
    """Check times that start again with another time step: the cell still shows the damage."""
    found = arrays()
    found["time"][20:] = 0.25 * np.arange(20)
    path = write_scipy(tmp_path / "a.nc", found)
    content = path.read_bytes()
    path.write_bytes(content[:-7])
    told, frames = read_frames(path)
    assert len(frames) == N_FRAMES - 1
    assert None not in frames
    assert not any("lost" in text for text in told)
    # If nothing shows the damage, the warning states this.
    del found["cell_lengths"], found["cell_angles"]
    path.write_bytes(write_scipy(tmp_path / "b.nc", found).read_bytes()[:-7])
    told, frames = read_frames(path)
    assert None not in frames
    assert "is cut" in told[0]
    assert "lost or inserted elsewhere" in told[0]


@pytest.mark.parametrize("name", ["time", "cell_lengths", "cell_angles"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -7e24])
def test_impossible_times_and_cells_are_damage(tmp_path, name, value):
    found = arrays()
    found[name][2] = value
    path = write_scipy(tmp_path / "a.nc", found)
    told, frames = read_frames(path)
    assert told == []
    assert [k for k, frame in enumerate(frames) if frame is None] == [2]
    with pytest.raises(
        DamagedFileError, match=r"frame 2, byte .*: expected (a time|the .* a cell)"
    ):
        Reader(str(path))[2]
    times, _ = Reader(str(path)).file.times()
    assert np.isfinite(np.delete(times, 2)).all()
    assert np.isnan(times[2]) == (name == "time")


def test_a_cell_that_was_never_written_is_none(tmp_path):
    found = arrays()
    found["cell_lengths"][:] = found["cell_angles"][:] = 9.969209968386869e36
    reader = Reader(str(write_scipy(tmp_path / "a.nc", found)))
    assert reader[3].dimensions is None


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_short_files(tmp_path, n):
    """Check files with too few frames to compare: the cell decides, or a warning remains."""
    path = write_scipy(tmp_path / "a.nc", {name: array[:n] for name, array in arrays().items()})
    content, (start, size) = path.read_bytes(), record_size(path)
    at = start + size // 2
    path.write_bytes(content[:at] + b"\x5a" * 4 + content[at:])
    told, frames = read_frames(path)
    assert "inserted in frame 0" in told[0]
    assert frames[1:] == [None] * (n - 1)


def test_validate_calls_it_bad(tmp_path):
    path = written(tmp_path, "NETCDF3_64BIT_DATA")
    content = path.read_bytes()
    path.write_bytes(content[:20_000] + b"abcd" + content[20_000:])
    verdict = paceline.validate(path, progress=False)
    first = verdict.bad[0]
    assert (first.frame, first.bad) == (None, True)
    assert first.what.startswith("the size of the file contradicts its header")
    place = re.search(r"in frame (\d+) or (\d+) \(bytes (\d+) to (\d+)\)", first.what)
    frame, after, begin, end = map(int, place.groups())
    assert begin <= 20_000 < end
    assert [finding.frame for finding in verdict.bad[1:]] == list(range(frame, N_FRAMES))
    assert after == frame + 1


def test_a_long_file_is_opened_with_few_reads(tmp_path):
    n = 20_000
    random = np.random.default_rng(1)
    found = {
        "time": np.arange(n),
        "coordinates": random.normal(size=(n, 5, 3)),
        "cell_lengths": np.full((n, 3), 30.0),
        "cell_angles": np.full((n, 3), 90.0),
    }
    path = write_scipy(tmp_path / "a.nc", found)
    content = path.read_bytes()
    calls = [Reader(str(path)).file.traffic[1]]
    for changed in (
        content[:-5],
        content[: len(content) // 2] + b"1234" + content[len(content) // 2 :],
    ):
        path.write_bytes(changed)
        with pytest.warns(PacelineWarning):
            calls.append(Reader(str(path)).file.traffic[1])
    whole, cut, moved = calls
    assert cut - whole <= 6
    # A binary search among 20,000 frames, with two reads per step.
    assert moved - whole <= 6 + 2 * 15


@pytest.mark.parametrize("n", [1, 60])
def test_appended_to_fixed_space(tmp_path, n):
    path = written(tmp_path, "arrays")
    content = path.read_bytes()
    path.write_bytes(content + b"\0" * n)
    told, _ = read_frames(path)
    assert f"{len(content) + n} bytes, where there should be {len(content)}" in told[0]
    assert told[0].split(": ", 1)[1].startswith("the size of the file contradicts its header")


@pytest.mark.parametrize("kind", ["xtc", "trr"])
def test_a_frame_with_inserted_bytes_is_refused_whatever_is_selected(tmp_path, kind):
    """Check that a damaged frame is refused for any selection of atoms."""
    path = written(tmp_path, kind)
    content = path.read_bytes()
    _, expected = read_frames(path)
    at = len(content) // 2
    path.unlink()
    path.write_bytes(content[:at] + b"\x11" * 8 + content[at:])
    with pytest.warns(PacelineWarning, match="1 of 40 frames is damaged"):
        reader = Reader(str(path), sub=np.array([1, 20]))
    for frame in range(N_FRAMES):
        if frame in reader.file.damaged:
            with pytest.raises(DamagedFileError, match=f"frame {frame}, byte"):
                reader[frame]
        else:
            np.testing.assert_array_equal(reader[frame].positions, expected[frame][1][[1, 20]])


@pytest.mark.parametrize(("kind", "at"), [("xtc", 12), ("trr", 76)])
@pytest.mark.parametrize("time", [np.nan, np.inf, -7e24])
def test_impossible_times_of_other_formats(tmp_path, kind, at, time):
    path = written(tmp_path, kind)
    offsets, _ = Reader(str(path)).file.extents(np.array([5], dtype=np.uint64))
    content, at = path.read_bytes(), at + int(offsets[0])
    path.unlink()
    path.write_bytes(content[:at] + np.array(time, dtype=">f4").tobytes() + content[at + 4 :])
    told, frames = read_frames(path)
    assert "1 of 40 frames is damaged: frame 5" in told[0]
    assert [k for k, frame in enumerate(frames) if frame is None] == [5]
    with pytest.raises(DamagedFileError, match=r"frame 5, byte .*: expected a time, found"):
        Reader(str(path))[5]


@pytest.mark.parametrize("kind", ["NETCDF4", "h5md contiguous"])
def test_impossible_times_and_cells_of_hdf5(tmp_path, kind):
    path = written(tmp_path, kind)
    with h5py.File(path, "r+") as file:
        times = file["time"] if kind == "NETCDF4" else file["particles/trajectory/position/time"]
        times[7] = -7e24
        times[9] = np.nan
        if kind == "NETCDF4":
            file["cell_lengths"][4] = 1e30
    told, frames = read_frames(path)
    assert "2 of 40 frames have an impossible time, first frame 7" in told[0]
    assert np.isnan([frame[0] for frame in frames]).nonzero()[0].tolist() == [7, 9]
    if kind == "NETCDF4":
        assert "1 of 40 cells are impossible, first that of frame 4" in told[1]
        assert Reader(str(path))[4].dimensions is None
