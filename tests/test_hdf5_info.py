"""Tests of `paceline info` and `paceline validate` for HDF5 files."""

import h5py
import numpy as np
import pytest
from helpers.h5md_files import N_ATOMS, N_FRAMES, numbers, write_lammps, write_simple
from helpers.netcdf_files import AMBER, values, write_netcdf4
from MDAnalysisTests import datafiles

import paceline
from paceline.cli import main
from paceline.cli.info import facts_of
from paceline.hdf5.repack import repack

PUBLISHED = [datafiles.H5MD_xvf, datafiles.H5MD_energy, datafiles.COORDINATES_H5MD]


def bad(path, **options):
    return paceline.validate(path, progress=False, **options).bad


def test_what_a_file_holds_and_who_reads_it(tmp_path):
    path = write_simple(
        tmp_path / "a.h5md",
        chunks=(2, N_ATOMS, 3),
        compression="gzip",
        compression_opts=1,
        shuffle=True,
    )
    facts = {one.heading: one.text for one in facts_of(str(path))}
    assert (facts["format"], facts["group"]) == ("H5MD", "atoms")
    words = f"float32, 2 frames a chunk ({2 * N_ATOMS * 12} bytes, shuffle + gzip 1)"
    assert facts["positions"] == facts["forces"] == f"{words}, decoded by paceline"
    costs = facts["bytes read for each used"].split(", ")
    assert [cost.rpartition(" ")[0] for cost in costs] == [
        "frame by frame",
        "the first 5 % of the atoms",
        "every 20th atom",
        "everything",
    ]
    assert facts["repacking"] == "does not pay: few bytes are read"


def test_filters_that_only_we_bring_are_named(tmp_path):
    path = write_simple(tmp_path / "a.h5md", chunks=(2, N_ATOMS, 3))
    for compress, words in (("shuffle+zstd:7", "shuffle + zstd 7"), ("lz4", "lz4")):
        repack(path, chunk=f"2x{N_ATOMS}", compress=compress)
        facts = {one.heading: one.text for one in facts_of(str(path))}
        assert f"({2 * N_ATOMS * 12} bytes, {words}), decoded by paceline" in facts["positions"]


def test_what_only_hdf5_reads_is_said_with_its_reason(tmp_path):
    path = write_simple(tmp_path / "a.h5md", chunks=(2, N_ATOMS, 3), scaleoffset=3)
    facts = {one.heading: one.text for one in facts_of(str(path))}
    assert "read by the HDF5 library, which is slower: its filter" in facts["positions"]
    assert "scaleoffset" in facts["positions"]
    assert facts["bytes read for each used"] == "unknown"
    assert facts["repacking"].startswith("pays: paceline repack")


def test_fields_that_some_frames_lack(tmp_path):
    path = write_simple(tmp_path / "a.h5md", velocity=None)
    with h5py.File(path, "a") as file:
        group = file["particles/atoms"].create_group("velocity")
        held = numbers()
        group["value"] = held.velocity[::2].astype("f8")
        group["step"], group["time"] = held.step[::2], held.time[::2]
        group["time"].attrs["unit"] = "ps"
        group["value"].attrs["unit"] = "Angstrom ps-1"
    facts = {one.heading: one.text for one in facts_of(str(path))}
    words = f"float64, contiguous, in {N_FRAMES // 2} frames, decoded by paceline"
    assert facts["velocities"] == words
    assert bad(path) == []


def test_one_line_a_file_whatever_the_formats(tmp_path, capsys):
    path = write_simple(tmp_path / "a.h5md")
    four = write_netcdf4(tmp_path / "a.nc", values(), "NETCDF4")
    main(["info", "--tsv", str(path), str(four), datafiles.XTC])
    head, *lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert len(lines) == 3
    assert {len(line) for line in lines} == {len(head)}
    column = head.index("positions")
    assert lines[1][column].startswith("float32, one frame a chunk")
    assert lines[2][column] == "-"


def test_one_line_a_file_also_of_one_that_cannot_be_read(tmp_path, capsys):
    path = write_simple(tmp_path / "a.h5md")
    unread = write_lammps(tmp_path / "dump.h5", numbers())
    assert main(["info", "--tsv", str(path), str(unread)]) == 2
    told = capsys.readouterr()
    head, *lines = [line.split("\t") for line in told.out.splitlines()]
    assert [line[:2] for line in lines] == [[str(path), "H5MD"], [str(unread), "HDF5"]]
    assert "float64 of" in lines[1][head.index("/particles/all/position/value")]
    assert '--units "Angstrom, ps"' in told.err
    unread.write_bytes(b"nothing of the kind")
    assert main(["info", "--tsv", str(unread)]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert str(unread) in told.err


@pytest.mark.parametrize("path", PUBLISHED)
def test_published_files_are_sound(path):
    assert bad(path) == []


def test_netcdf_4_is_judged_as_netcdf_3_is(tmp_path):
    arrays = values()
    path = write_netcdf4(tmp_path / "a.nc", arrays, "NETCDF4", scale=AMBER)
    assert bad(path) == []
    arrays["coordinates"][1, 4] = np.nan
    arrays["time"][4] = arrays["time"][2]
    arrays["cell_lengths"][3] = 0
    path = write_netcdf4(tmp_path / "b.nc", arrays, "NETCDF4", scale=AMBER)
    said = [(finding.frame, finding.what.split()[0]) for finding in bad(path)]
    path = write_netcdf4(tmp_path / "c.nc", arrays, "NETCDF3_64BIT_OFFSET", scale=AMBER)
    assert said == [(finding.frame, finding.what.split()[0]) for finding in bad(path)]
    assert {frame for frame, _ in said} == {1, 3, 4}


def test_every_checksum_is_verified_and_every_stream_read_to_its_end(tmp_path):
    path = write_simple(tmp_path / "a.h5md", chunks=(1, N_ATOMS, 3), compression="gzip")
    with h5py.File(path) as file:
        value = file["particles/atoms/velocity/value"]
        info = value.id.get_chunk_info_by_coord((4, 0, 0))
    content = bytearray(path.read_bytes())
    # The checksum of the deflate stream, which partial reading ignores.
    content[info.byte_offset + info.size - 1] ^= 1
    path.write_bytes(content)
    (finding,) = bad(path)
    assert finding.frame == 4
    assert info.byte_offset <= finding.byte < info.byte_offset + info.size
    assert "chunk (4, 0, 0) of /particles/atoms/velocity/value" in finding.what


def test_info_shows_what_it_can_before_it_asks(tmp_path, capsys):
    path = write_lammps(tmp_path / "dump.h5", numbers())
    assert main(["info", str(path)]) == 2
    told = capsys.readouterr()
    lines = dict(line.split(None, 1) for line in told.out.splitlines())
    assert lines["/particles/all/position/value"] == f"float64 of ({N_FRAMES}, {N_ATOMS}, 3)"
    assert '--units "Angstrom, ps"' in told.err
    with h5py.File(path, "a") as file:
        file.copy("particles/all", "particles/solute")
    assert main(["info", str(path), "--units", "nm, fs"]) == 2
    told = capsys.readouterr()
    assert "/particles/solute/position/value" in told.out
    assert "choose one with --particles: 'all', 'solute'" in told.err
    assert not main(["info", str(path), "--units", "nm, fs", "--particles", "all"])
    capsys.readouterr()
    path.write_bytes(b"nothing of the kind")
    assert main(["info", str(path)]) == 2
    assert capsys.readouterr().out == ""


def test_what_a_file_does_not_say_is_asked_for(tmp_path, capsys):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["pos"] = numbers().position
    assert main(["validate", str(path)]) == 1
    assert "dataset=" in capsys.readouterr().out
    assert bad(path, dataset="pos", units={"length": "nm"}) == []
    assert not main(["validate", str(path), "--dataset", "pos", "--units", "nm"])
