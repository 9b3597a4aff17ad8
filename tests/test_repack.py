"""Tests of repacked H5MD files: the same numbers in another layout, and nothing else changed."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time

import h5py
import MDAnalysis
import numpy as np
import pytest
from helpers.disks import full_disk
from helpers.programs import HDF5_TOOLS, load_filters, without_filters

from paceline import cli
from paceline.errors import DamagedFileError, UnsupportedError, UnwritableError
from paceline.hdf5.file import Array
from paceline.hdf5.repack import repack

POSITION = "particles/all/position/value"
LAYOUTS = [
    {},
    {"chunk": "16x10"},
    {"chunk": "contiguous", "compress": "none"},
    {"compress": "shuffle+gzip:3", "for_": "atoms"},
    {"compress": "gzip:1", "align": 4096},
    {"compress": "shuffle+zstd:3", "chunk": "16x10"},
    {"compress": "lz4"},
]


def make(path, *, kind="<f4", n_frames=57, n_atoms=33, seed=1, **options):
    """Write a file with data of all kinds, whose chunks contain several frames and atoms."""
    values = np.random.default_rng(seed).normal(0, 10, (n_frames, n_atoms, 3)).astype(kind)
    with h5py.File(path, "w") as file:
        file.create_group("h5md").attrs["version"] = [1, 1]
        file["h5md"].create_group("author").attrs["name"] = "Ada"
        group = file.create_group("particles/all")
        box = group.create_group("box")
        box.attrs["dimension"], box.attrs["boundary"] = 3, ["periodic"] * 3
        position = group.create_group("position")
        few = {"chunks": (1,), "maxshape": (None,), "compression": "gzip"}
        position.create_dataset("step", data=np.arange(n_frames), **few)
        position.create_dataset("time", data=np.arange(n_frames) * 2.0, **few).attrs["unit"] = "ps"
        stored = position.create_dataset("value", data=values, **{"chunks": (5, 9, 1), **options})
        stored.attrs["unit"], stored.attrs["itself"] = "nm", stored.ref
        velocity = group.create_group("velocity")
        velocity["step"], velocity["time"] = position["step"], position["time"]
        velocity.create_dataset("value", data=values[::-1], **{"chunks": True, **options})
        velocity["value"].attrs["unit"] = "nm ps-1"
        file["connectivity/bonds"] = np.arange(8).reshape(4, 2)
        file["connectivity/bonds"].attrs["particles_group"] = group.ref
        file["soft"] = h5py.SoftLink("/" + POSITION)
        file["elsewhere"] = h5py.ExternalLink("other.h5", "/x")
        file["again"], file["circle"] = stored, file["particles"]
        file["references"] = np.array([group.ref, stored.ref, h5py.Reference()], h5py.ref_dtype)
        file["words"] = np.array(["a", "bb"], dtype=h5py.string_dtype())
        file["records"] = np.array([(1, 2.5)], dtype=[("a", "i4"), ("b", ">f8")])
        file["kind"] = np.dtype([("a", "i4")])
        file.attrs["empty"] = h5py.Empty("f4")


def names_of(file):
    names = []
    file.visit(names.append)
    return set(names)


def refuse_other_numbers(one, other):
    if one.dtype.kind == "f":
        one, other = one.astype(other.dtype).tobytes(), other.tobytes()
    np.testing.assert_array_equal(one, other)


def refuse_difference(old, new):
    """Check that everything except references is equal, to the last bit."""
    with h5py.File(old) as old, h5py.File(new) as new:
        assert names_of(new) - names_of(old) == {
            "parameters",
            "parameters/repacked",
            "parameters/repacked/1",
        }
        for name in names_of(old):
            one, other = old[name], new[name]
            if isinstance(one, h5py.Dataset) and name != "references":
                refuse_other_numbers(one[()], other[()])
                assert one.maxshape == other.maxshape or other.chunks is None
            for key, value in one.attrs.items():
                if isinstance(value, h5py.Reference):
                    assert new[other.attrs[key]].name == old[value].name
                else:
                    np.testing.assert_array_equal(other.attrs[key], value)
            assert set(one.attrs) == set(other.attrs)
        assert isinstance(new.attrs["empty"], h5py.Empty)
        assert new["particles/all/velocity/step"] == new["particles/all/position/step"]
        assert (new["again"], new["circle"]) == (new[POSITION], new["particles"])
        group, stored, nothing = new["references"][:]
        assert (new[group], new[stored]) == (new["particles/all"], new[POSITION])
        assert not nothing
        assert new.get("soft", getlink=True).path == "/" + POSITION
        assert new.get("elsewhere", getlink=True).filename == "other.h5"
        assert np.prod(new["particles/all/position/step"].chunks) > 1


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("kind", ["<f4", ">f4", "<f8"])
@pytest.mark.parametrize("stored", [{}, {"compression": "gzip", "shuffle": True}], ids=str)
def test_everything_is_as_it_was(layout, kind, stored, tmp_path):
    load_filters(layout)
    old, new = tmp_path / "old.h5md", tmp_path / "new.h5md"
    make(old, kind=kind, **stored)
    repack(old, new, n_workers=2, **layout)
    refuse_difference(old, new)


@pytest.mark.parametrize("stored", [{"compression": "lzf"}, {"chunks": None}], ids=str)
def test_other_layouts_are_read(stored, tmp_path):
    old, new = tmp_path / "old.h5md", tmp_path / "new.h5md"
    make(old, **stored)
    repack(old, new)
    refuse_difference(old, new)
    with h5py.File(new) as file:
        assert file[POSITION].compression == stored.get("compression")


def filters_of(path):
    """Return the numbers and parameters of the filters of positions."""
    with h5py.File(path) as file:
        created = file[POSITION].id.get_create_plist()
        stages = (created.get_filter(k) for k in range(created.get_nfilters()))
        return [(number, values) for number, _, values, _ in stages]


@pytest.mark.parametrize("kind", ["<f4", "<f8", "<f2"])
def test_from_one_compression_to_another_and_back(kind, tmp_path):
    load_filters("zstd")
    first, *others = [tmp_path / f"{k}.h5md" for k in range(6)]
    make(first, kind=kind, compression="gzip", shuffle=True)
    zstd, lz4 = (32015, (5,)), (32004, ())
    old = first
    for new, compress, expected in zip(
        others,
        ["zstd:5", None, "lz4", None, "gzip:2"],
        [[zstd], [zstd], [lz4], [lz4], [(1, (2,))]],
        strict=True,
    ):
        repack(old, new, compress=compress)
        assert filters_of(new) == expected
        with h5py.File(first) as one, h5py.File(new) as other:
            assert one[POSITION][()].tobytes() == other[POSITION][()].tobytes()
        old = new


@pytest.mark.parametrize("values", [(3,), (22,), (2**32 - 5,)])
def test_levels_of_other_programs_are_kept_if_they_are_ours(values, tmp_path):
    load_filters("zstd")
    make(tmp_path / "md.h5md", compression=32015, compression_opts=values)
    repack(tmp_path / "md.h5md")
    level = {3: 3, 22: 19}.get(values[0], 1)
    assert filters_of(tmp_path / "md.h5md") == [(32015, (level,))]


def test_without_the_filter_the_core_reads_and_writes_all(tmp_path, monkeypatch):
    load_filters("zstd")
    old, new, back = (tmp_path / f"{name}.h5md" for name in ("old", "new", "back"))
    make(old, compression=32004, shuffle=True)
    with without_filters(monkeypatch):
        repack(old, new, compress="zstd:1")
        repack(new, back, compress="gzip:1")
    refuse_difference(old, new)
    with h5py.File(old) as one, h5py.File(back) as other:
        np.testing.assert_array_equal(one[POSITION], other[POSITION])
    wide = tmp_path / "wide.h5md"
    make(wide, kind="<f8", compression=32015, compression_opts=(3,))
    before = wide.read_bytes()
    with (
        without_filters(monkeypatch),
        pytest.raises(UnsupportedError, match=r"zstd \(32015\), .* pip install hdf5plugin"),
    ):
        repack(wide)
    assert wide.read_bytes() == before


@pytest.mark.parametrize("kind", ["<f4", "<f8"])
def test_rounded_positions_say_so(kind, tmp_path):
    old, new = tmp_path / "old.h5md", tmp_path / "new.h5md"
    make(old, kind=kind)
    repack(old, new, precision=0.01, compress="gzip:1")
    with h5py.File(old) as old, h5py.File(new) as new:
        apart = np.abs(old[POSITION][:] - new[POSITION][:]).max()
        assert 0 < apart <= 0.0005  # nm
        assert new[POSITION].attrs["rounded_to_multiples_of"] == 2**-10
        velocity = "particles/all/velocity/value"
        np.testing.assert_array_equal(old[velocity], new[velocity])


def test_in_place_the_new_file_replaces_the_old_one(tmp_path):
    path, kept = tmp_path / "md.h5md", tmp_path / "kept.h5md"
    make(path)
    path.chmod(0o640)
    shutil.copy(path, kept)
    link = tmp_path / "link.h5md"
    link.symlink_to(path)
    repack(link)
    assert link.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o640
    refuse_difference(kept, path)
    assert sorted(os.listdir(tmp_path)) == ["kept.h5md", "link.h5md", "md.h5md"]


def test_mdanalysis_reads_the_same(tmp_path):
    old, new = tmp_path / "old.h5md", tmp_path / "new.h5md"
    make(old)
    repack(old, new, chunk="frame")
    frames = []
    for path in (old, new):
        universe = MDAnalysis.Universe.empty(33)
        universe.load_new(str(path))
        frames.append([(ts.time, ts.positions.copy()) for ts in universe.trajectory])
    for (time_, positions), (expected, others) in zip(*frames, strict=True):
        assert time_ == expected
        np.testing.assert_array_equal(positions, others)


@pytest.mark.parametrize("tool", HDF5_TOOLS)
def test_tools_of_hdf5_find_nothing_wrong(tool, tmp_path):
    make(tmp_path / "md.h5md")
    with h5py.File(tmp_path / "md.h5md", "a") as file:
        del file["elsewhere"]
    repack(tmp_path / "md.h5md")
    path = tmp_path / "md.h5md"
    done = subprocess.run([tool, path], capture_output=True, text=True, check=True)
    assert done.stderr == ""


def test_the_command_says_what_is_gained(tmp_path, capsys):
    path = tmp_path / "md.h5md"
    make(path, n_frames=300, n_atoms=200, compression="gzip")
    status = cli.main(["repack", str(path), "--for", "atoms", "--n-workers", "2"])
    told = capsys.readouterr()
    assert status == 0
    head, *rows = (line.split("\t") for line in told.out.splitlines())
    assert head == ["dataset", "access", "bytes read per byte used, before", "after"]
    assert {name for name, *_ in rows} == {"/" + POSITION, "/particles/all/velocity/value"}
    ((before, after),) = (
        map(float, row[2:]) for row in rows if row[0].endswith(POSITION) and "first" in row[1]
    )
    assert after < before
    assert f"/{POSITION}: 5 frames × 9 atoms a chunk, one of 3 parts of each" in told.err
    with h5py.File(path) as file:
        note = file["parameters/repacked/1"].asstr()[()]
    assert note.startswith("paceline ")
    assert "as many bytes as before" not in told.err
    assert cli.main(["repack", str(path), "--chunk", "frame"]) == 0
    told = capsys.readouterr().err
    assert f"/{POSITION}: the first 5 % of the atoms reads " in told
    assert "as many bytes as before; use --for, --chunk" in told


def test_what_cannot_be_repacked_is_named(tmp_path):
    path = tmp_path / "md.h5md"

    def fails(kind, words, **options):
        before = path.read_bytes()
        with pytest.raises(kind, match=words):
            repack(path, **options)
        assert path.read_bytes() == before
        assert os.listdir(tmp_path) == ["md.h5md"]

    make(path)
    fails(UnsupportedError, "a chunk cannot contain 99 atoms", chunk="4x99")
    fails(UnwritableError, "at most 1 Å such as 0.001, found 1000; XTC", precision=1000)
    with h5py.File(path, "a") as file:
        file[POSITION][7, 3, 1] = np.nan
    fails(UnwritableError, r"md.h5md: frame 7: atom 3: expected a finite position, found NaN")
    with h5py.File(path, "a") as file:
        del file[POSITION].attrs["unit"]
    fails(UnsupportedError, "has no unit", precision=0.001)
    with h5py.File(path, "w") as file:
        file["numbers"] = np.arange(4)
    fails(UnsupportedError, f"not an H5MD file with positions.*: paceline convert {path} new.h5md")
    path.write_bytes(b"something else")
    fails(UnsupportedError, "not an HDF5 file")


def damage(path, chunk, byte=None):
    """Change a byte of a chunk of the positions (default: in its middle); return all bytes of the
    file.
    """
    with h5py.File(path) as file:
        place = file[POSITION].id.get_chunk_info(chunk)
    data = bytearray(path.read_bytes())
    data[place.byte_offset + (place.size // 2 if byte is None else byte)] ^= 0xFF
    path.write_bytes(data)
    return data


def test_damage_that_hdf5_does_not_see_is_found(tmp_path, monkeypatch):
    """Check a Zstandard filter for HDF5 that returns wrong numbers for a damaged chunk, without an
    error.
    """
    load_filters("zstd")
    path = tmp_path / "md.h5md"
    make(path, kind="<f8", compression=32015, compression_opts=(3,))
    damage(path, 20, byte=0)

    def unseen(array, rows):
        return np.zeros((rows.stop - rows.start, *array.shape[1:]), array.dtype)

    monkeypatch.setattr(Array, "part", unseen)
    with pytest.raises(DamagedFileError, match=r"md.h5md: .*byte"):
        repack(path)


def test_a_damaged_file_is_named_and_left_alone(tmp_path):
    path = tmp_path / "md.h5md"
    make(path, compression="gzip", fletcher32=True)
    data = damage(path, 20)
    with pytest.raises(DamagedFileError, match=r"md.h5md: .*position/value"):
        repack(path)
    assert path.read_bytes() == data
    assert os.listdir(tmp_path) == ["md.h5md"]


def test_a_cut_file_is_left_alone(tmp_path):
    path = tmp_path / "md.h5md"
    make(path, n_frames=500, chunks=(50, 33, 3))
    os.truncate(path, path.stat().st_size - 1000)
    before = path.read_bytes()
    with pytest.raises(DamagedFileError, match=r"md.h5md: .*the file was cut"):
        repack(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("kind", "options"),
    [("<f4", {"compress": "gzip:1"}), ("<f8", {"chunk": "contiguous", "compress": "none"})],
)
def test_a_full_disk_leaves_the_old_file(kind, options, tmp_path):
    path = tmp_path / "md.h5md"
    make(path, n_frames=200, n_atoms=300, kind=kind)
    before = path.read_bytes()
    message = r"File too large: '.*/md\.h5md'"
    with full_disk(100_000), pytest.raises(OSError, match=message):
        repack(path, **options)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["md.h5md"]


def test_killed_at_any_moment_the_file_is_the_old_or_the_new_one(tmp_path):
    path, kept = tmp_path / "md.h5md", tmp_path / "kept.h5md"
    make(kept, n_frames=2000, n_atoms=500, chunks=(5, 50, 3))
    code = f"""
from paceline.hdf5.repack import repack
print("ready", flush=True)
repack({str(path)!r}, compress="gzip:6", chunk="frame")
"""
    rng = np.random.default_rng(2)
    for _ in range(3):
        shutil.copy(kept, path)
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        assert process.stdout.readline() == "ready\n"
        time.sleep(rng.uniform(0, 1))
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
        with h5py.File(path) as file, h5py.File(kept) as expected:
            np.testing.assert_array_equal(file[POSITION], expected[POSITION])
