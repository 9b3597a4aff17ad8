"""Tests of damaged and hostile HDF5 files: one clear error each, and undamaged data is read."""

import contextlib
import io
import os
import signal
import struct
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import h5py
import MDAnalysis
import numpy as np
import pytest
from helpers import sandbox_calls
from helpers.netcdf_files import values, write_netcdf4
from helpers.programs import load_filters
from helpers.waiting import PATIENCE, until

import paceline
from paceline.errors import (
    DamagedFileError,
    PacelineError,
    PacelineWarning,
    UnsupportedError,
    WorkerError,
)
from paceline.hdf5 import h5py_reader, open_any_convention, sandbox
from paceline.hdf5.dataset_description import read_series
from paceline.hdf5.file import File
from paceline.hdf5.open_hdf5_trajectory import Hdf5File, Hdf5Options
from paceline.hdf5.repack import repack
from paceline.mdanalysis.reader import Reader
from paceline.trajectory.open import open_file

N_FRAMES, N_ATOMS = 12, 20
CHUNKED = {"chunks": (2, N_ATOMS, 3)}
GZIPPED = {**CHUNKED, "compression": "gzip", "shuffle": True, "fletcher32": True}
VALUE = "particles/all/position/value"

pytestmark = pytest.mark.filterwarnings("ignore::paceline.errors.PacelineWarning")


def positions():
    """Numbers without a pattern, so that all damage is visible."""
    return np.random.default_rng(5).normal(0, 20, (N_FRAMES, N_ATOMS, 3)).astype(np.float32)


def write(path, *, libver="earliest", edges=True, **layout):
    """Write a valid H5MD file with the positions at its end."""
    with h5py.File(path, "w", libver=libver) as file:
        file.create_group("h5md").attrs["version"] = np.array([1, 1])
        group = file.create_group("particles/all")
        box = group.create_group("box")
        box.attrs.update({"dimension": 3, "boundary": ["periodic"] * 3})
        if edges:
            box.create_dataset("edges", data=np.full(3, 90.0)).attrs["unit"] = "Angstrom"
        element = group.create_group("position")
        element["step"] = np.arange(N_FRAMES) * 10
        element["time"] = np.arange(N_FRAMES) * 2.0
        element["time"].attrs["unit"] = "ps"
        value = element.create_dataset("value", data=positions(), **layout)
        value.attrs["unit"] = "Angstrom"
    return path


def chunk_of(path, frame):
    """Return offset and size of the chunk that contains a frame."""
    with h5py.File(path) as file:
        info = file[VALUE].id.get_chunk_info_by_coord((frame - frame % 2, 0, 0))
        return info.byte_offset, info.size


def patch(path, offset, new):
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(new)


def read_all(path):
    """Return the readable frames, and the messages about others."""
    reader = Reader(path)
    found, said = {}, {}
    for frame in range(reader.n_frames):
        try:
            found[frame] = reader[frame].positions.copy()
        except DamagedFileError as error:
            said[frame] = str(error)
    for frame, numbers in found.items():
        np.testing.assert_array_equal(numbers, positions()[frame])
    return found, said


def refused(path, kind, message):
    """Check that a file cannot be opened, and the message."""
    with pytest.raises(kind, match=message) as caught:
        Reader(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


class TestChunks:
    """Tests of damaged chunks: other frames remain readable."""

    def test_a_checksum_that_is_wrong(self, tmp_path):
        path = write(tmp_path / "a.h5md", chunks=(2, N_ATOMS, 3), fletcher32=True)
        offset, _ = chunk_of(path, 4)
        patch(path, offset + 7, b"\xff")
        findings = paceline.validate(path, progress=False).bad
        assert [finding.frame for finding in findings] == [4, 5]
        assert "checksum" in findings[0].what

    def test_a_corrupt_deflate_stream(self, tmp_path):
        path = write(tmp_path / "a.h5md", **GZIPPED)
        offset, size = chunk_of(path, 6)
        patch(path, offset, b"\xff" * (size // 2))
        found, said = read_all(path)
        assert sorted(said) == [6, 7]
        assert all(f"frame {frame}" in message for frame, message in said.items())
        assert all(VALUE in message for message in said.values())
        assert len(found) == N_FRAMES - 2

    @pytest.mark.parametrize("compress", ["zstd:3", "shuffle+lz4"])
    def test_any_byte_of_a_compressed_chunk(self, tmp_path, compress):
        path = write(tmp_path / "a.h5md", **CHUNKED)
        repack(path, chunk=f"2x{N_ATOMS}", compress=compress)
        offset, size = chunk_of(path, 6)
        content = path.read_bytes()
        for at in range(0, size, size // 12):
            path.write_bytes(content)
            patch(path, offset + at, bytes([content[offset + at] ^ 0x81]))
            reader = Reader(path)
            sound = [reader[frame].positions.copy() for frame in (5, 8)]
            np.testing.assert_array_equal(sound, positions()[[5, 8]])
            said = ""
            try:
                reader[6]
            except DamagedFileError as error:
                said = str(error)
            # LZ4 has no checksum, so that only contradictions are detected.
            if said or "zstd" in compress:
                assert f"frame 6, chunk (3, 0, 0) of /{VALUE}, byte {offset}: expected a" in said

    def test_damage_that_hdf5plugin_reads_without_an_error(self, tmp_path, monkeypatch):
        load_filters("zstd")
        path = write(tmp_path / "a.h5md", **CHUNKED, compression=32015, compression_opts=(3,))
        offset, _ = chunk_of(path, 6)
        patch(path, offset + 4, b"\x35")  # another size, and a dictionary
        read = h5py_reader._read_frame

        def read_without_an_error(reader, index, field, frame, n_atoms):
            try:
                return read(reader, index, field, frame, n_atoms)
            except DamagedFileError:
                if isinstance(reader, h5py_reader.H5pyReader):
                    return np.zeros((1, n_atoms, 3), dtype=np.float32)
                raise

        # The filters that HDF5 has available depend on other imported modules.
        monkeypatch.setattr(h5py_reader, "_read_frame", read_without_an_error)
        # The helper process must not use the replaced function.
        monkeypatch.setattr(
            "paceline.hdf5.open_hdf5_trajectory.run_in_sandbox",
            lambda function, path, **options: function(path, **options),
        )
        found, said = read_all(path)
        assert sorted(said) == [6, 7]
        assert f"frame 6, chunk (3, 0, 0) of /{VALUE}, byte {offset}: expected" in said[6]
        assert len(found) == N_FRAMES - 2

    def test_damaged_times_that_hdf5plugin_reads_without_an_error(self, tmp_path):
        load_filters("zstd")
        path, zstd = tmp_path / "a.h5", {"compression": 32015, "compression_opts": (3,)}
        with h5py.File(path, "w") as file:
            data = np.arange(600.0)
            offset = file.create_dataset("time", data=data, chunks=(300,), **zstd).id
            offset = offset.get_chunk_info(1).byte_offset
        patch(path, offset + 4, b"\x35")
        with File(str(path)) as file, pytest.raises(DamagedFileError, match=f"byte {offset}: "):
            read_series(file.root["time"])

    @pytest.mark.parametrize(
        ("compress", "at", "new", "words"),
        [
            ("zstd:3", 0, b"\0", "a Zstandard stream of 480 bytes, found one that is corrupt"),
            ("zstd:3", 5, b"\xff", "of 480 bytes, found a stream that states 511 bytes"),
            ("lz4", 0, b"\x7f", "an LZ4 stream of 480 bytes, found a stream that states 9151"),
            ("lz4", 8, bytes(4), "found a stream in blocks of 0 bytes"),
            ("lz4", 12, b"\xff" * 4, "found a stream that ends after 0 bytes"),
        ],
    )
    def test_sizes_that_cannot_be(self, tmp_path, compress, at, new, words):
        path = write(tmp_path / "a.h5md", **CHUNKED)
        repack(path, chunk=f"2x{N_ATOMS}", compress=compress)
        offset, _ = chunk_of(path, 6)
        patch(path, offset + at, new)
        found, said = read_all(path)
        assert sorted(said) == [6, 7]
        assert f"/{VALUE}, byte {offset}: expected" in said[6]
        assert words in said[6]
        assert len(found) == N_FRAMES - 2

    def test_on_error_skip_gives_the_others(self, tmp_path):
        path = write(tmp_path / "a.h5md", **GZIPPED)
        patch(path, chunk_of(path, 0)[0], b"\xff" * 20)
        universe = MDAnalysis.Universe.empty(N_ATOMS)
        universe.trajectory = Reader(path)
        series = paceline.TimeSeries(lambda block: block.positions[:, 0], universe.atoms)
        with pytest.raises(DamagedFileError):
            series.run(n_workers=2)
        series.run(n_workers=2, on_error="skip")
        assert [frame for frame, _ in series.damaged] == [0, 1]
        found = series.results.timeseries
        assert np.isnan(found[:2]).all()
        np.testing.assert_array_equal(found[2:], positions()[2:, 0])
        # The index contains the times of all frames.
        np.testing.assert_array_equal(series.results.times, np.arange(N_FRAMES) * 2.0)

    @pytest.mark.parametrize("offset", [10**9, 2**63, 2**64 - 2])
    def test_a_chunk_that_is_outside_of_the_file(self, tmp_path, offset):
        path = write(tmp_path / "a.h5md", **CHUNKED)
        at = path.read_bytes().index(chunk_of(path, 8)[0].to_bytes(8, "little"))
        patch(path, at, offset.to_bytes(8, "little"))
        _, said = read_all(path)
        assert sorted(said) == [8, 9]
        assert all("within the file" in message for message in said.values())
        assert open_file(path).damaged == [8, 9]

    def test_chunks_side_by_side_at_the_end_of_the_file(self, tmp_path):
        path = write(tmp_path / "a.h5md", libver="latest", chunks=(2, -(-N_ATOMS // 5), 3))
        table = open_file(path).chunk_index.elements["positions"].dataset.table
        # All five byte ranges of the last position, in the cases that have it.
        assert (table.offsets[-5:] + 5 * table.sizes[-5:] > path.stat().st_size).any()
        assert open_file(path).damaged == []

    def test_chunks_that_overlap(self, tmp_path):
        path = write(tmp_path / "a.h5md", **CHUNKED)
        at = path.read_bytes().index(chunk_of(path, 8)[0].to_bytes(8, "little"))
        patch(path, at, (chunk_of(path, 2)[0] + 12).to_bytes(8, "little"))
        _, said = read_all(path)
        assert {2, 3, 8, 9} <= said.keys() <= {2, 3, 4, 5, 8, 9}

    def test_chunks_that_overlap_those_of_another_dataset(self, tmp_path):
        path = write(tmp_path / "a.h5md", **CHUNKED)
        with h5py.File(path, "a") as file:
            group = file["particles/all"]
            velocity = group.create_group("velocity")
            # Hard links: several names of the same dataset.
            velocity["step"], velocity["time"] = group["position/step"], group["position/time"]
            value = velocity.create_dataset("value", data=positions(), **CHUNKED)
            value.attrs["unit"] = "Angstrom ps-1"
        assert not read_all(path)[1]
        at = path.read_bytes().index(chunk_of(path, 8)[0].to_bytes(8, "little"))
        with h5py.File(path) as file:
            info = file["particles/all/velocity/value"].id.get_chunk_info_by_coord((2, 0, 0))
        patch(path, at, (info.byte_offset + 12).to_bytes(8, "little"))
        _, said = read_all(path)
        assert {2, 3, 8, 9} <= said.keys() <= {2, 3, 4, 5, 8, 9}

    def test_a_chunk_that_overlaps_the_times(self, tmp_path):
        path = write(tmp_path / "a.h5md", **CHUNKED)
        with h5py.File(path) as file:
            offset = file["particles/all/position/time"].id.get_offset()
        at = path.read_bytes().index(chunk_of(path, 8)[0].to_bytes(8, "little"))
        patch(path, at, (offset + 8).to_bytes(8, "little"))
        with pytest.warns(PacelineWarning, match="position/time shares bytes of the file"):
            _, said = read_all(path)
        # The table is longer than that of the times, and ends within the first positions.
        assert {8, 9} <= said.keys() <= {0, 1, 8, 9}

    def test_two_entries_of_a_table_for_one_chunk(self, tmp_path):
        path = write(tmp_path / "a.h5md", chunks=(5, 15, 3), fletcher32=True)
        content = path.read_bytes()
        tree = content.rindex(b"TREE")
        # An entry contains size, mask, the first element of the chunk along each axis, and its
        # address.
        entries, length = tree + 24, 4 + 4 + 4 * 8 + 8
        first, second = entries + 8, entries + length + 8
        patch(path, second, content[first : first + 4 * 8])
        _, said = read_all(path)
        assert sorted(said) == [0, 1, 2, 3, 4]

    @pytest.mark.parametrize("first", [(1002, 0), (4, 40), (8, 0)])
    def test_an_entry_of_a_table_in_a_wrong_place(self, tmp_path, first):
        # Beyond the last frame, beyond the last atom, and on another chunk.
        path = write(tmp_path / "a.h5md", chunks=(2, 10, 3))
        content = path.read_bytes()
        key = np.array([4, 0, 0, 0], dtype="<u8").tobytes()
        at = content.index(key, content.rindex(b"TREE"))
        patch(path, at, np.array([*first, 0, 0], dtype="<u8").tobytes())
        found, said = read_all(path)
        assert {4, 5} <= said.keys() <= {4, 5, 8, 9}
        assert all(", byte" not in message.partition("expected")[0] for message in said.values())
        assert len(found) == N_FRAMES - len(said)

    def test_chunks_that_were_never_written_warn(self, tmp_path):
        path = write(tmp_path / "a.h5md", maxshape=(None, N_ATOMS, 3), **CHUNKED)
        with h5py.File(path, "a") as file:
            file[VALUE].resize(6, axis=0)
            file[VALUE].resize(N_FRAMES, axis=0)
            file[VALUE][10:] = positions()[10:]
        words = "position/value: 4 of 12 frames .* never written and are read as 0; .* is frame 6"
        with pytest.warns(PacelineWarning, match=words):
            reader = Reader(path)
        assert not reader[6].positions.any()
        np.testing.assert_array_equal(reader[11].positions, positions()[11])

    def test_an_entry_of_a_table_that_is_there_twice(self, tmp_path):
        path = write(tmp_path / "a.h5md", chunks=(5, 15, 3), fletcher32=True)
        content = path.read_bytes()
        tree = content.rindex(b"TREE")
        entries, length, n = tree + 24, 4 + 4 + 4 * 8 + 8, 6
        patch(path, entries + length, content[entries : entries + (n + 1) * length - 8])
        patch(path, tree + 6, (n + 1).to_bytes(2, "little"))
        found, said = read_all(path)
        assert len(found) == N_FRAMES
        assert not said

    def test_a_file_whose_index_fails_in_an_unforeseen_way(self, tmp_path, monkeypatch):
        def fail(*_, **__):
            raise TypeError("unhashable type")

        path = write(tmp_path / "a.h5md", **CHUNKED)
        monkeypatch.setattr(open_any_convention, "read_chunk_index", fail)
        with pytest.raises(DamagedFileError, match=r"a\.h5md: .* \(TypeError: unhashable type\)"):
            Hdf5File._open(str(path), options=Hdf5Options())

    def test_a_table_that_leads_nowhere(self, tmp_path):
        path = write(tmp_path / "a.h5md", **CHUNKED)
        patch(path, path.read_bytes().rindex(b"TREE"), b"EERT")
        refused(path, DamagedFileError, "position/value: expected .* HDF5 refuses .*signature")


class TestStructures:
    """Tests of messages about a file as a whole."""

    @pytest.fixture
    def edit(self, tmp_path):
        """Return a valid file after a function changed it by h5py."""

        def edit(change):
            path = write(tmp_path / "a.h5md", maxshape=(None, N_ATOMS, 3), **CHUNKED)
            with h5py.File(path, "a") as file:
                change(file)
            return path

        return edit

    def test_absurd_dimensions(self, edit):
        path = edit(lambda file: file[VALUE].resize(2**40, axis=0))
        refused(path, DamagedFileError, "position/value: expected at most .*, found 1099511627776")

    def test_absurd_dimensions_of_a_contiguous_dataset(self, tmp_path):
        path = write(tmp_path / "a.h5md")
        content = path.read_bytes()
        shape = np.array([N_FRAMES, N_ATOMS, 3], dtype="<u8").tobytes()
        # Both the current and the maximum shape.
        large = np.array([2**33, N_ATOMS, 3], dtype="<u8").tobytes()
        path.write_bytes(content.replace(shape, large))
        refused(path, DamagedFileError, r"position/value: expected .*(corruption|for its shape)")

    def test_links_in_a_circle(self, edit):
        def change(file):
            file["particles/all/self"] = h5py.SoftLink("/particles/all/self")
            file["particles/all/up"] = file["particles"]

        found, said = read_all(edit(change))
        assert len(found) == N_FRAMES
        assert not said

    def test_positions_that_are_a_link_in_a_circle(self, edit):
        def change(file):
            del file[VALUE]
            file[VALUE] = h5py.SoftLink(f"/{VALUE}")

        refused(edit(change), DamagedFileError, "position/value: .* leads in a circle")

    def test_a_link_into_another_file_that_is_not_there(self, edit):
        def change(file):
            del file[VALUE]
            file[VALUE] = h5py.ExternalLink("gone.h5", "/value")

        path = edit(change)
        refused(path, UnsupportedError, "position/value is an external link .* refers to gone.h5")
        with pytest.raises(DamagedFileError, match=r"position/value: .* gone.h5, which cannot"):
            Reader(path, external=True)

    def test_a_dataset_that_was_deleted(self, edit):
        path = edit(lambda file: file["particles/all/position"].pop("value"))
        refused(path, DamagedFileError, "value")

    def test_steps_that_do_not_increase(self, edit):
        def change(file):
            file["particles/all/position/step"][5] = 7

        with pytest.warns(PacelineWarning, match="step 7 of frame 5 comes after step 40"):
            found, _ = read_all(edit(change))
        assert len(found) == N_FRAMES

    def test_dimensions_that_disagree(self, edit):
        path = edit(lambda file: file[VALUE].resize(N_FRAMES - 3, axis=0))
        refused(path, DamagedFileError, f"{N_FRAMES}")

    def test_units_that_are_none_of_length(self, edit):
        def change(file):
            file[VALUE].attrs["unit"] = "furlong"

        refused(edit(change), UnsupportedError, "furlong")


class TestOpenElsewhere:
    """Tests of files that another program has open for writing."""

    @pytest.fixture
    def writer(self, tmp_path):
        """A process that writes a file, and keeps it open."""
        held = []

        def start(swmr):
            path = write(tmp_path / "a.h5md", libver="latest", **CHUNKED)
            script = f"""
                import sys, h5py
                file = h5py.File({str(path)!r}, "r+", libver="latest")
                if {swmr}:
                    file.swmr_mode = True
                file.flush()
                print("open", flush=True)
                sys.stdin.read()
            """
            command = [sys.executable, "-c", textwrap.dedent(script)]
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            held.append(process)
            assert process.stdout.readline() == b"open\n"
            return path, process

        yield start
        for process in held:
            process.kill()
            process.communicate()

    @pytest.mark.parametrize("swmr", [False, True])
    def test_it_is_refused_by_name_until_it_is_closed(self, writer, swmr):
        path, process = writer(swmr)
        refused(path, UnsupportedError, "another program")
        process.communicate()
        assert len(read_all(path)[0]) == N_FRAMES

    def test_what_a_killed_writer_leaves(self, writer):
        path, process = writer(True)
        process.kill()
        process.wait()
        refused(path, UnsupportedError, "h5clear --status")


class TestCutFiles:
    """Tests that a truncated file is read as far as possible."""

    @pytest.mark.parametrize("layout", [{}, CHUNKED, GZIPPED], ids=["contiguous", "chunks", "gzip"])
    @pytest.mark.parametrize("libver", ["earliest", "latest"])
    def test_cut_at_any_place(self, tmp_path, layout, libver):
        path = write(tmp_path / "a.h5md", libver=libver, **layout)
        content = path.read_bytes()
        n_read = []
        for size in range(0, len(content), len(content) // 15):
            path.write_bytes(content[:size])
            try:
                found, said = read_all(path)
            except PacelineError:
                n_read.append(0)
            else:
                assert len(found) + len(said) == N_FRAMES
                assert said or size == len(content)
                n_read.append(len(found))
        assert n_read[0] == 0
        # The last bytes are the numbers, or the table of chunks in the oldest format.
        assert max(n_read) > 0

    def test_report_of_one_without_its_tables(self, tmp_path):
        path = write(tmp_path / "a.h5md")
        with h5py.File(path, "a") as file:
            file.move("h5md", "about")
            file.create_group("h5md").attrs["version"] = np.array([1, 1])
        size = path.stat().st_size
        os.truncate(path, size // 2)
        words = (
            f"expected {size} bytes, found {size // 2}: the file was cut, .* copy the file again"
        )
        refused(path, DamagedFileError, words)

    def test_netcdf_4_cut_at_any_place(self, tmp_path):
        """Check files whose library writes most structures last, so that little remains."""
        arrays = values()
        path = write_netcdf4(tmp_path / "a.nc", arrays, "NETCDF4")
        content = path.read_bytes()
        n_read = []
        for size in (*range(1, len(content), len(content) // 15), len(content)):
            path.write_bytes(content[:size])
            n_read.append(0)
            with contextlib.suppress(PacelineError):
                reader = Reader(path)
                for frame, expected in enumerate(np.float32(arrays["coordinates"])):
                    np.testing.assert_array_equal(reader[frame].positions, expected)
                    n_read[-1] += 1
        assert (n_read[0], n_read[-1]) == (0, 5)

    def test_it_is_said_and_is_bad(self, tmp_path):
        path = write(tmp_path / "a.h5md")
        size = path.stat().st_size
        os.truncate(path, size - 4 * N_ATOMS * 12)
        with pytest.warns(PacelineWarning, match=f"the file was cut: .* of {size} bytes are left"):
            reader = Reader(path)
        assert reader.n_frames == N_FRAMES
        bad = paceline.validate(path, progress=False).bad
        assert {finding.frame for finding in bad} >= {8, 9, 10, 11}

    def test_nothing_but_the_signature(self, tmp_path):
        path = tmp_path / "a.h5md"
        path.write_bytes(b"\x89HDF\r\n\x1a\n")
        refused(path, DamagedFileError, "expected an HDF5 file, found what HDF5 refuses")

    def test_what_says_that_it_was_enormous_is_not_believed(self, tmp_path):
        path = write(tmp_path / "a.h5md", libver="earliest")
        # End of the file, stated in its superblock.
        patch(path, 40, (2**60).to_bytes(8, "little"))
        refused(path, DamagedFileError, "expected 1152921504606846976 bytes, found .* was cut")


def changed_files(path, n, seed):
    """Yield copies of a file with random changes in its metadata."""
    random, content = np.random.default_rng(seed), path.read_bytes()
    for _ in range(n):
        new = bytearray(content)
        for at in random.integers(0, len(content), random.integers(1, 4)):
            new[at] = random.integers(256)
        yield bytes(new)


def test_changed_bytes_crash_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(sandbox, "TIME_LIMIT", 1.0)
    path = write(tmp_path / "a.h5md", **GZIPPED)
    ends = []
    for content in changed_files(path, 25, seed=1):
        path.write_bytes(content)
        try:
            found = Reader(path)
            ends.append(found.n_frames)
        except PacelineError:
            ends.append(0)
    assert set(ends) > {0}


def is_open(path, process):
    """Return whether a process has a file open; False if it has ended, or the system does not
    report it.
    """
    with contextlib.suppress(OSError):
        return str(path) in [os.readlink(one) for one in Path(f"/proc/{process}/fd").iterdir()]
    return False


def helper_with(**changed):
    """Return a program for `sandbox.HELPER` with other constants in its module."""
    changes = "".join(f"s.{name} = {value}; " for name, value in changed.items())
    imports = "import sys; from paceline.hdf5 import sandbox as s"
    return f"{imports}; {changes}s.serve(int(sys.argv[1]))"


class TestSandbox:
    @pytest.fixture
    def little_computing(self, monkeypatch):
        """Limit computing to half a second; it may take longer while other processes compute."""
        monkeypatch.setattr(sandbox, "TIME_LIMIT", 0.5)
        monkeypatch.setattr(sandbox, "HELPER", helper_with(_WAITING=10_000))
        sandbox._helper.end()

    @pytest.mark.usefixtures("little_computing")
    def test_a_file_that_keeps_hdf5_busy(self):
        with pytest.raises(DamagedFileError, match=r"md.h5: .* busy without end"):
            sandbox.run_in_sandbox(sandbox_calls.hang, "md.h5")

    def test_a_file_that_crashes_hdf5(self):
        with pytest.raises(DamagedFileError, match=r"md.h5: .* crashes HDF5's library \(SIGSEGV"):
            sandbox.run_in_sandbox(sandbox_calls.crash, "md.h5")

    def test_a_call_that_takes_too_much_memory(self, tmp_path):
        path = write(tmp_path / "a.h5md")
        assert sandbox.run_in_sandbox(sandbox_calls.fill_memory, str(path), n_bytes=2**29) == 2**29
        with pytest.raises(DamagedFileError, match=r"a\.h5md: .* more memory than its size"):
            sandbox.run_in_sandbox(sandbox_calls.fill_memory, str(path), n_bytes=2**32)

    def test_it_ends_after_a_minute_without_use(self, monkeypatch):
        assert sandbox._IDLE == 60
        monkeypatch.setattr(sandbox, "HELPER", helper_with(_IDLE=0.5))
        sandbox._helper.end()
        sandbox.run_in_sandbox(sandbox_calls.pid, "md.h5")
        assert sandbox._helper._process.wait(timeout=PATIENCE) == 0

    def test_no_file_stays_open(self, tmp_path):
        # HDF5 would use the next file with this name as the one that is open.
        path = write(tmp_path / "a.h5md", **GZIPPED)
        for frame in range(N_FRAMES):
            patch(path, chunk_of(path, frame)[0], b"\xff" * 30)
        open_file(path)
        until(lambda: not is_open(path, sandbox._helper._process.pid))

    def test_a_helper_that_is_ended(self):
        with pytest.raises(WorkerError, match="status 3"):
            sandbox.run_in_sandbox(sandbox_calls.end, "md.h5")

    def test_an_answer_that_breaks_off(self):
        with pytest.raises(WorkerError, match="status -9"):
            sandbox.run_in_sandbox(sandbox_calls.break_off, "md.h5")
        half = SimpleNamespace(stdin=io.BytesIO(), stdout=io.BytesIO(struct.pack("<Q", 9) + b"8"))
        with pytest.raises(EOFError):
            sandbox._Helper._exchange(half, b"")

    @pytest.mark.parametrize(
        ("call", "words"),
        [
            (
                sandbox_calls.answer_with_a_lambda,
                "the result cannot be sent by the helper process: .* pickle",
            ),
            (sandbox_calls.fail_in_two_words, r"the error Odd\('one', 'two'\) cannot be sent"),
        ],
    )
    def test_what_cannot_travel_is_named(self, call, words):
        with pytest.raises(WorkerError, match=f"md.h5: {words}"):
            sandbox.run_in_sandbox(call, "md.h5")
        assert sandbox.run_in_sandbox(sandbox_calls.printed, "md.h5") == "md.h5"

    def test_one_helper_serves_many(self):
        first = sandbox.run_in_sandbox(sandbox_calls.pid, "md.h5")
        assert first == sandbox.run_in_sandbox(sandbox_calls.pid, "other.h5") != os.getpid()
        with pytest.raises(UnsupportedError, match=r"^md.h5: of no use$"):
            sandbox.run_in_sandbox(sandbox_calls.fail, "md.h5")
        assert sandbox.run_in_sandbox(sandbox_calls.printed, "md.h5") == "md.h5"
        assert sandbox.run_in_sandbox(sandbox_calls.pid, "md.h5") == first

    def test_one_that_has_gone_is_followed_by_another(self):
        first = sandbox.run_in_sandbox(sandbox_calls.pid, "md.h5")
        sandbox._helper._process.stdin.close()
        time.sleep(0.1)
        sandbox._helper.end()
        assert sandbox.run_in_sandbox(sandbox_calls.pid, "md.h5") != first

    def test_ctrl_c_ends_what_keeps_hdf5_busy(self, tmp_path, monkeypatch):
        monkeypatch.setattr(sandbox, "TIME_LIMIT", PATIENCE)
        monkeypatch.setattr(Hdf5File, "_open", sandbox_calls.hang_visibly)
        path = write(tmp_path / "a.h5md")

        def interrupt():
            until((tmp_path / "hanging").exists)
            os.kill(os.getpid(), signal.SIGINT)

        interrupting = threading.Thread(target=interrupt)
        interrupting.start()
        with pytest.raises(KeyboardInterrupt):
            open_file(path)
        interrupting.join()
        assert sandbox.run_in_sandbox(sandbox_calls.pid, "md.h5")

    def test_files_of_the_working_directory_are_no_modules(self, tmp_path):
        (tmp_path / "pickle.py").write_text("raise SystemExit('the wrong one')")
        script = tmp_path / "scripts" / "ask.py"
        script.parent.mkdir()
        script.write_text(
            "import os\nfrom paceline.hdf5.sandbox import run_in_sandbox\n"
            "run_in_sandbox(os.path.basename, 'md.h5')"
        )
        subprocess.run([sys.executable, script], cwd=tmp_path, check=True)

    @pytest.mark.usefixtures("little_computing")
    def test_a_real_file_that_keeps_hdf5_busy(self, tmp_path):
        path = write(tmp_path / "a.h5md", libver="latest")
        content = bytearray(path.read_bytes())
        heap = content.index(b"GCOL")
        # The first object in the heap of texts: number 0, which is free space, with size zero.
        content[heap + 16 : heap + 32] = bytes(16)
        path.write_bytes(content)
        with pytest.raises(DamagedFileError, match=r"a.h5md: .* busy without end"):
            Reader(path)
