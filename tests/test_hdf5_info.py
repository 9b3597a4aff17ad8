"""Tests of `paceline info` and `paceline validate` for HDF5 files."""

import h5py
import numpy as np
import pytest
from helpers.h5md_files import N_ATOMS, N_FRAMES, numbers, write_lammps, write_simple
from helpers.netcdf_files import AMBER, values, write_netcdf4
from helpers.programs import needs_program
from MDAnalysisTests import datafiles

import paceline
from paceline.cli import main
from paceline.cli.facts_for_info import Stripes, facts_of, parse_stripes
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


#: Output of `lfs getstripe` for a file of one layout, and for a file whose parts have several.
ONE_LAYOUT = """md.h5md
lmm_stripe_count:  4
lmm_stripe_size:   65536
lmm_pattern:       raid0
lmm_layout_gen:    0
lmm_stripe_offset: 3
\tobdidx\t\t objid\t\t objid\t\t group
\t     3\t             2\t          0x2\t             0
"""
SEVERAL_LAYOUTS = """md.h5md
  lcm_layout_gen:    2
  lcm_mirror_count:  1
  lcm_entry_count:   3
    lcme_id:             1
    lcme_flags:          init
    lcme_extent.e_start: 0
    lcme_extent.e_end:   1048576
      lmm_stripe_count:  1
      lmm_stripe_size:   65536
    lcme_id:             2
    lcme_flags:          init,prefer
    lcme_extent.e_start: 1048576
    lcme_extent.e_end:   4294967296
      lmm_stripe_count:  4
      lmm_stripe_size:   1048576
    lcme_id:             3
    lcme_flags:          0
    lcme_extent.e_start: 4294967296
    lcme_extent.e_end:   EOF
      lmm_stripe_count:  -1
      lmm_stripe_size:   4194304
"""


def test_stripes_are_those_of_the_last_part_with_objects():
    assert parse_stripes(ONE_LAYOUT) == Stripes(4, 65536)
    assert parse_stripes(SEVERAL_LAYOUTS) == Stripes(4, 2**20)
    assert parse_stripes("md.h5md has no stripe info\n") is None
    assert parse_stripes("") is None


@pytest.fixture
def lustre(tmp_path, monkeypatch):
    """Folder for which a stand-in for `lfs` reports stripes; elsewhere it fails like `lfs`."""
    folder = tmp_path / "lustre"
    folder.mkdir()
    program = tmp_path / "bin" / "lfs"
    program.parent.mkdir()
    program.write_text(
        f"""#!/bin/sh
case "$1 $2" in
"getstripe {folder}"/*) printf '%s' '{ONE_LAYOUT}' ;;
*) echo "error: getstripe failed: Inappropriate ioctl for device" >&2; exit 25 ;;
esac
"""
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    return folder


@needs_program("sh")
def test_stripes_of_lustre_are_beside_the_alignment(lustre, tmp_path, capsys):
    small = write_simple(lustre / "small.h5md", chunks=(2, N_ATOMS, 3))
    facts = {one.key: one for one in facts_of(str(small))}
    assert facts["stripes"].text == "4 × 64KiB, Lustre"
    assert facts["stripes"].value == {"count": 4, "size": 65536}
    advice = "--align 64KiB would let chunks begin at stripes"
    assert advice not in facts["repacking"].text
    path = str(lustre / "a.h5md")
    assert main(["convert", datafiles.XTC, path, "--chunk", "frame"]) == 0
    assert advice in {one.key: one for one in facts_of(path)}["repacking"].text
    assert main(["repack", path]) == 0
    assert "--align 64KiB lets chunks begin there" in capsys.readouterr().err
    assert main(["repack", path, "--align", "64KiB"]) == 0
    assert "--align" not in capsys.readouterr().err
    assert advice not in {one.key: one for one in facts_of(path)}["repacking"].text
    elsewhere = write_simple(tmp_path / "a.h5md", chunks=(2, N_ATOMS, 3))
    assert "stripes" not in {one.key for one in facts_of(str(elsewhere))}


@needs_program("sh")
def test_lustre_that_does_not_answer_is_no_error(lustre, monkeypatch):
    path = write_simple(lustre / "a.h5md", chunks=(2, N_ATOMS, 3))
    (lustre.parent / "bin" / "lfs").write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr("paceline.cli.facts_for_info.PATIENCE", 0.1)
    assert "stripes" not in {one.key for one in facts_of(str(path))}
