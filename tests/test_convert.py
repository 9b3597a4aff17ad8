"""Tests of trajectories that paceline writes: other programs read the same, or no file is left."""

import contextlib
import itertools
import json
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import loky
import MDAnalysis
import mdtraj
import numpy as np
import pytest
from helpers.disks import full_disk
from helpers.waiting import PATIENCE

import paceline
import paceline.trajectory.write_h5md
from paceline import cli
from paceline.analysis.rms import RMSD
from paceline.contract.analysis_kinds import Placements
from paceline.errors import (
    DamagedFileError,
    MissingDataError,
    PacelineWarning,
    SelectionError,
    UnsupportedError,
    UnwritableError,
)
from paceline.trajectory import write_frames, write_h5md
from paceline.trajectory.open import open_file
from paceline.trajectory.write_frames import PartlyWritten

ENDINGS = [".xtc", ".trr", ".dcd", ".nc", ".h5md"]
#: Maximum difference of a position, Å: half of XTC's 0.01 Å, or the rounding of a unit conversion.
TOLERANCE = {".xtc": 0.0051, ".trr": 2e-5, ".dcd": 0, ".nc": 0, ".h5md": 0}

pytestmark = pytest.mark.filterwarnings("ignore:.*the header says.*")


def write(atoms, path, **options):
    return paceline.Write(atoms, path).run(**options).results


def temporary_files(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.startswith(".out")]


@pytest.mark.parametrize("ending", ENDINGS)
def test_mdanalysis_reads_what_was_read(ending, adk_in_water, tmp_path):
    universe = paceline.Universe(*adk_in_water)
    path = tmp_path / f"out{ending}"
    protein = universe.select_atoms("protein")
    results = write(protein, path, start=1, step=2)
    assert (results.n_written, results.n_bytes) == (5, path.stat().st_size)
    theirs = MDAnalysis.Universe(*adk_in_water)
    expected = theirs.select_atoms("protein")
    found = MDAnalysis.Universe.empty(len(protein))
    found.load_new(str(path))
    for ts, source in zip(found.trajectory, theirs.trajectory[1::2], strict=True):
        np.testing.assert_allclose(ts.positions, expected.positions, rtol=0, atol=TOLERANCE[ending])
        np.testing.assert_allclose(ts.dimensions, source.dimensions, rtol=1e-5)
        assert ts.time == pytest.approx(source.time, abs=1e-3)


@pytest.mark.parametrize("ending", [".xtc", ".trr", ".dcd", ".nc"])
def test_mdtraj_reads_what_was_read(ending, adk_in_water, tmp_path):
    protein = paceline.Universe(*adk_in_water).select_atoms("protein")
    path = tmp_path / f"out{ending}"
    write(protein, path)
    kinds = {
        ".xtc": (mdtraj.formats.XTCTrajectoryFile, 10.0),
        ".trr": (mdtraj.formats.TRRTrajectoryFile, 10.0),
        ".dcd": (mdtraj.formats.DCDTrajectoryFile, 1.0),
        ".nc": (mdtraj.formats.NetCDFTrajectoryFile, 1.0),
    }
    kind, unit = kinds[ending]
    with kind(str(path)) as file:
        positions = file.read()[0] * np.float32(unit)
    theirs = MDAnalysis.Universe(*adk_in_water)
    expected = theirs.trajectory.timeseries(theirs.select_atoms("protein"), order="fac")
    np.testing.assert_allclose(positions, expected, rtol=0, atol=max(TOLERANCE[ending], 2e-5))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("ending", ENDINGS)
def test_every_backend_writes_the_same_bytes(ending, adk_xtc, tmp_path, where):
    ca = paceline.Universe(*adk_xtc).select_atoms("name CA")
    write(ca, tmp_path / f"expected{ending}", backend="serial", block_frames=128)
    write(ca, tmp_path / f"found{ending}", block_frames=16, **where)
    found = (tmp_path / f"found{ending}").read_bytes()
    assert found == (tmp_path / f"expected{ending}").read_bytes()


def test_xtc_survives_being_written_again(adk_in_water, tmp_path):
    path = tmp_path / "again.xtc"
    write(paceline.Universe(*adk_in_water).atoms, path)
    first, again = (
        paceline.Universe(adk_in_water.topology, str(file)).trajectory.timeseries()
        for file in (adk_in_water.trajectory, path)
    )
    np.testing.assert_array_equal(first, again)


def test_atoms_keep_the_group_s_order(adk, tmp_path):
    universe = paceline.Universe(*adk)
    group = universe.atoms[[7, 3, 100, 3]]
    write(group, tmp_path / "out.dcd", stop=3)
    found = MDAnalysis.Universe.empty(4)
    found.load_new(str(tmp_path / "out.dcd"))
    universe.trajectory[2]
    np.testing.assert_array_equal(found.trajectory[2].positions, group.positions)


def test_trr_keeps_each_frame_s_own_fields(moving, tmp_path):
    universe = paceline.Universe(*moving)
    write(universe.atoms, tmp_path / "out.trr", n_workers=2, block_frames=16)
    theirs = MDAnalysis.Universe(*moving).trajectory
    found = MDAnalysis.Universe(moving[0], str(tmp_path / "out.trr")).trajectory
    assert len(found) == len(theirs) == 20
    for ts, source in zip(found, theirs, strict=True):
        assert (ts.has_velocities, ts.has_forces) == (source.has_velocities, source.has_forces)
        assert ts.data["step"] == source.data["step"]
        if source.has_velocities:
            np.testing.assert_allclose(ts.velocities, source.velocities, rtol=1e-6)
        if source.has_forces:
            np.testing.assert_allclose(ts.forces, source.forces, rtol=1e-6)


def test_netcdf_wants_the_same_fields_of_every_frame(moving, tmp_path):
    universe = paceline.Universe(*moving)
    path = tmp_path / "out.nc"
    with pytest.raises(MissingDataError, match=r"frame \d+ has no velocities"):
        write(universe.atoms, path)
    assert list(tmp_path.iterdir()) == []
    write(universe.atoms, path, step=4)
    theirs = MDAnalysis.Universe(*moving).trajectory[::4]
    found = MDAnalysis.Universe(moving[0], str(path)).trajectory
    for ts, source in zip(found, theirs, strict=True):
        np.testing.assert_allclose(ts.velocities, source.velocities, rtol=2e-6)
        np.testing.assert_allclose(ts.forces, source.forces, rtol=2e-6)


def test_it_goes_along_with_an_analysis(adk, tmp_path):
    universe = paceline.Universe(*adk)
    rmsd = RMSD(universe, select="name CA")
    path = tmp_path / "backbone.xtc"
    paceline.run([rmsd, paceline.Write(universe.select_atoms("backbone"), path)], step=7)
    np.testing.assert_array_equal(
        rmsd.results.rmsd, RMSD(universe, select="name CA").run(step=7).results.rmsd
    )
    assert open_file(path).n_frames == 14


def test_transformed_positions_are_written(adk, tmp_path):
    universe = paceline.Universe(*adk)
    fitted = [paceline.transform.fit("name CA")]
    write(universe.atoms, tmp_path / "fitted.dcd", transforms=fitted)
    ca = paceline.Universe(adk.topology, str(tmp_path / "fitted.dcd")).select_atoms("name CA")
    found = RMSD(ca, superposition=False).run().results.rmsd[:, 2]
    expected = RMSD(universe, select="name CA").run().results.rmsd[:, 2]
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_damaged_frames_are_left_out_on_request(damaged, tmp_path):
    system, frames = damaged
    atoms = paceline.Universe(*system).atoms
    path = tmp_path / "out.dcd"
    with pytest.raises(DamagedFileError, match="frame 3"):
        write(atoms, path, backend="serial")
    assert list(tmp_path.iterdir()) == []
    with pytest.warns(PacelineWarning, match="one time between frames"):
        results = write(atoms, path, on_error="skip")
    assert results.n_written == 98 - len(frames)
    whole = [frame for frame in range(98) if frame not in frames]
    expected = paceline.Universe(*system)
    found = MDAnalysis.Universe(system.topology, str(path))
    for frame, ts in zip(whole, found.trajectory, strict=True):
        expected.trajectory[frame]
        np.testing.assert_array_equal(ts.positions, expected.atoms.positions)


def with_a_bad_number(adk, folder: Path, value: float) -> paceline.Universe:
    """Return the first frames of a DCD, with one number of atom 17 in frame 2 changed."""
    path = str(folder / "bad.dcd")
    universe = MDAnalysis.Universe(*adk)
    with MDAnalysis.Writer(path, len(universe.atoms)) as writer:
        for ts in universe.trajectory[:4]:
            if ts.frame == 2:
                ts.positions[17, 1] = value
            writer.write(universe.atoms)
    return paceline.Universe(adk.topology, path)


@pytest.mark.parametrize("ending", ENDINGS)
def test_what_is_no_number_is_refused_by_name(ending, adk, tmp_path):
    universe = with_a_bad_number(adk, tmp_path, np.nan)
    path = tmp_path / f"out{ending}"
    with pytest.raises(UnwritableError, match=rf"{path}: frame 2: .*atom 17.*NaN"):
        write(universe.atoms, path)
    assert not path.exists()
    assert temporary_files(tmp_path) == []


def test_what_is_too_far_out_for_the_precision_is_refused(adk, tmp_path):
    universe = with_a_bad_number(adk, tmp_path, 3e9)
    with pytest.raises(UnwritableError, match=r"frame 2: .*atom 17"):
        write(universe.atoms, tmp_path / "out.xtc")


def test_outputs_are_refused_before_the_work(adk, tmp_path):
    atoms = paceline.Universe(*adk).atoms
    with pytest.raises(UnsupportedError, match=r"ends in .*, found '\.pqr', a structure file"):
        paceline.Write(atoms, tmp_path / "out.pqr")
    with pytest.raises(UnsupportedError, match="no option precision="):
        paceline.Write(atoms, tmp_path / "out.dcd", precision=100)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        paceline.Write(atoms, tmp_path / "missing" / "out.dcd")
    for ending in (".xtc", ".h5md"):
        with pytest.raises(SelectionError, match=rf"out\{ending}: the group .* is empty"):
            paceline.Write(atoms[:0], tmp_path / f"out{ending}")
    (tmp_path / "out.dcd").write_text("mine")
    with pytest.raises(FileExistsError):
        paceline.Write(atoms, tmp_path / "out.dcd")
    paceline.Write(atoms, tmp_path / "out.dcd", overwrite=True).run(stop=2)
    assert (tmp_path / "out.dcd").stat().st_size > 10_000


def test_blocks_that_wait_go_to_a_file(adk_xtc, tmp_path, monkeypatch):
    atoms = paceline.Universe(*adk_xtc).atoms
    expected = tmp_path / "expected.xtc"
    write(atoms, expected, backend="serial")
    encoded = expected.read_bytes()
    monkeypatch.setattr(write_frames, "WAITING", 100_000)
    with (
        open(tmp_path / "out", "wb") as file,
        write_frames.OrderedReceiver(
            str(tmp_path / "out"), lambda block: file.write(block.data)
        ) as blocks,
    ):
        starts = range(0, len(encoded), 40_000)
        for number in reversed(range(len(starts))):
            data = encoded[starts[number] : starts[number] + 40_000]
            blocks.add(
                number,
                write_frames.EncodedBlock(number, data, *3 * [np.array([number])]),
            )
        np.testing.assert_array_equal(blocks.time_axis()[0], np.arange(len(starts)))
    assert (tmp_path / "out").read_bytes() == encoded


@pytest.mark.parametrize("ending", [".dcd", ".nc"])
def test_frames_in_their_places_are_those_in_order(ending, adk, tmp_path):
    ca = paceline.Universe(*adk).select_atoms("name CA")
    write(ca, tmp_path / f"placed{ending}", n_workers=2, block_frames=16)
    # If frames may be skipped, the offset of a frame is unknown until the earlier frames are
    # written.
    write(ca, tmp_path / f"ordered{ending}", n_workers=2, block_frames=16, on_error="skip")
    placed = (tmp_path / f"placed{ending}").read_bytes()
    assert placed == (tmp_path / f"ordered{ending}").read_bytes()


@pytest.mark.parametrize("ending", [".dcd", ".nc", ".h5md"])
def test_a_block_that_is_written_twice_is_there_once(ending, adk, tmp_path, monkeypatch):
    ca = paceline.Universe(*adk).select_atoms("name CA")
    write(ca, tmp_path / f"expected{ending}")
    expected = (tmp_path / f"expected{ending}").read_bytes()
    writer = write_h5md.EncodeInPlace if ending == ".h5md" else write_frames._EncodeInPlace
    compute = writer.compute_block
    released, left, times = threading.Event(), threading.Event(), []

    def late(self, block, first):
        if first == 32:
            times.append(len(times))
            if times[-1] == 0:  # until another worker has changed it and the file is renamed
                released.wait(PATIENCE)
                try:
                    return compute(self, block, first)
                finally:
                    left.set()
        return compute(self, block, first)

    monkeypatch.setattr(writer, "compute_block", late)
    found = tmp_path / f"found{ending}"
    write(ca, found, n_workers=2, block_frames=16)
    assert found.read_bytes() == expected
    released.set()
    assert left.wait(PATIENCE)
    assert len(times) == 2
    assert found.read_bytes() == expected
    assert {path.suffix for path in tmp_path.iterdir()} == {ending}


def test_workers_of_other_machines_send_their_frames(adk, tmp_path, monkeypatch):
    ca = paceline.Universe(*adk).select_atoms("name CA")
    write(ca, tmp_path / "expected.dcd")
    names = map(str, itertools.count())
    monkeypatch.setattr(write_frames.socket, "gethostname", lambda: next(names))
    sent = []
    add = write_frames.BlockReceiver.add
    monkeypatch.setattr(
        write_frames.BlockReceiver,
        "add",
        lambda *args: (sent.append(len(args[2].data)), add(*args)),
    )
    write(ca, tmp_path / "found.dcd", n_workers=2, block_frames=16)
    found = (tmp_path / "found.dcd").read_bytes()
    assert found == (tmp_path / "expected.dcd").read_bytes()
    assert len(sent) == 7
    assert all(sent)


@pytest.mark.parametrize("ending", [".dcd", ".nc", ".h5md"])
def test_a_cell_that_comes_later_is_refused_by_name(ending, adk, tmp_path):
    universe = MDAnalysis.Universe(*adk)
    path = str(tmp_path / "late.trr")
    with MDAnalysis.Writer(path, len(universe.atoms)) as writer:
        for ts in universe.trajectory[:3]:
            ts.dimensions = [50, 50, 50, 90, 90, 90] if ts.frame == 2 else None
            writer.write(universe.atoms)
    atoms = paceline.Universe(adk.topology, path).atoms
    with pytest.raises(UnwritableError, match=rf"out{ending}: frame 2: expected no unit cell"):
        write(atoms, tmp_path / f"out{ending}")
    assert temporary_files(tmp_path) == []


@pytest.mark.parametrize("backend", ["threads", "executor"])
@pytest.mark.parametrize("ending", [".dcd", ".xtc", ".h5md"])
def test_a_full_disk_leaves_nothing(ending, backend, adk, tmp_path):
    atoms = paceline.Universe(*adk).atoms
    with (
        full_disk(100_000),
        loky.ProcessPoolExecutor(1)
        if backend == "executor"
        else contextlib.nullcontext(backend) as where,
        pytest.raises(OSError, match=rf"File too large.*out\{ending}"),
    ):
        write(atoms, tmp_path / f"out{ending}", backend=where)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "ending", [".xtc", *(pytest.param(one, marks=pytest.mark.full) for one in (".nc", ".h5md"))]
)
def test_killed_at_any_moment_it_leaves_a_whole_file_or_none(ending, adk, tmp_path):
    out = tmp_path / f"out{ending}"
    code = f"""
import paceline, sys, time, warnings
from paceline.engine.worker import Worker
warnings.simplefilter("ignore")
do_block = Worker.run

def hang_midway(self, work):
    if work.number == 7:
        print("midway", flush=True)
        time.sleep(600)
    return do_block(self, work)

if len(sys.argv) > 1:
    Worker.run = hang_midway
atoms = paceline.Universe({adk.topology!r}, [{adk.trajectory!r}] * 20).atoms
print("ready", flush=True)
paceline.Write(atoms, {str(out)!r}).run(n_workers=2)
print("done", flush=True)
"""

    def killed(when, *options):
        command = [sys.executable, "-c", code, *options]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout.readline() == "ready\n"
            when(process)
            process.kill()

    killed(lambda process: process.stdout.readline(), "hang")
    assert (out.exists(), len(temporary_files(tmp_path))) == (False, 1)
    for seconds in np.random.default_rng(11).uniform(0, 1.0, 3):
        killed(lambda process, seconds=seconds: time.sleep(seconds))
        if out.exists():
            found = open_file(out)
            assert (found.n_frames, found.notes) == (20 * 98, [])
            out.unlink()


def test_the_command_converts(adk_in_water, tmp_path, capsys):
    out = tmp_path / "protein.dcd"
    files = ["-s", adk_in_water.topology, adk_in_water.trajectory, str(out)]
    chosen = ["--select", "protein", "--begin", "200ps", "--step", "2"]
    status = cli.main(["convert", *files, *chosen])
    said = capsys.readouterr().err
    assert status == 0
    assert f"{out}: 4 frames of 3341 atoms" in said
    assert open_file(out).n_frames == 4


def test_the_command_needs_no_topology_for_all_atoms(adk_in_water, tmp_path, capsys):
    out = tmp_path / "all.trr"
    assert cli.main(["convert", adk_in_water.trajectory, str(out), "--end", "3"]) == 0
    assert open_file(out).n_atoms == 47681
    other = str(tmp_path / "protein.trr")
    status = cli.main(["convert", adk_in_water.trajectory, other, "--select", "protein"])
    assert status == 2
    assert "--select needs a topology" in capsys.readouterr().err
    assert cli.main(["convert", adk_in_water.trajectory, str(out)]) == 2
    assert "exists" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "name", "said"),
    [
        (["--chunk", "0x5"], "out.h5md", "expected a chunk: frame, contiguous, auto or"),
        (["--compress", "gzip:10"], "out.h5md", "expected a compression: none, gzip:1"),
        (["--compress", "zstd:20"], "out.h5md", "zstd:1 to zstd:19, lz4, lzf, or one of these"),
        (["--chunk", "contiguous", "--compress", "gzip:1"], "out.h5md", "cannot be compressed"),
        (["--chunk", "frame"], "out.xtc", "XTC files have no option --chunk"),
        ([], "out.txt", "expected a name that ends in"),
        (["--dt", "2"], "out.xtc", "expected a time with its unit such as 2ps, found 2"),
    ],
)
def test_what_cannot_be_is_refused_before_a_file_is_opened(words, name, said, tmp_path, capsys):
    try:
        status = cli.main(["convert", "not-there.xtc", str(tmp_path / name), *words])
    except SystemExit as stop:
        status = stop.code
    assert status > 0
    assert said in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("stretched", [1.0, 1.1])
def test_times_in_dcd_that_drift_warn(stretched, tmp_path, capsys):
    """XTC resolves 0.06 ps at 1 µs, so that single intervals of 1 and 1.1 ps look alike."""
    ca = MDAnalysis.Universe.empty(1, trajectory=True)
    ca.dimensions = [10, 10, 10, 90, 90, 90]
    source, path = str(tmp_path / "drift.xtc"), tmp_path / "drift.dcd"
    with MDAnalysis.Writer(source, 1) as writer:
        for moment in 1e6 + np.append(np.arange(100), 100 + stretched * np.arange(100)):
            ca.trajectory.ts.time = moment
            writer.write(ca.atoms)
    atoms = paceline.Universe(ca._topology, source).atoms
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", PacelineWarning)
        write(atoms, path)
    said = [str(one.message) for one in caught if one.category is PacelineWarning]
    assert cli.main(["info", source, "--json"]) == 0
    between = json.loads(capsys.readouterr().out)["files"][0]["time_between_frames_ps"]
    if stretched == 1:
        assert (said, between) == ([], [pytest.approx(1)])
    else:
        assert between == [1, 1.125]
        [text] = said
        assert "from 1 to 1.125 ps apart: they will be read as 1.0496" in text
        assert re.search(r"changes times by up to 4\.\d+ ps", text)


def test_times_can_be_set(adk_in_water, tmp_path):
    out = tmp_path / "out.trr"
    command = ["convert", adk_in_water.trajectory, str(out), "--dt", "2fs", "--begin", "0.004ps"]
    assert cli.main(command) == 0
    times, _ = open_file(out).times()
    np.testing.assert_allclose(times, 0.002 * np.arange(2, 10), rtol=1e-6)


def test_the_command_names_what_is_wrong(adk, adk_in_water, tmp_path, capsys):
    def fails(*words):
        assert cli.main(["convert", *words, str(tmp_path / "out.xtc")]) > 0
        return capsys.readouterr().err

    assert "3341 atoms" in fails(adk_in_water.trajectory, adk.trajectory)
    chosen = ["-s", adk.topology, adk.trajectory, "--select"]
    assert "'name XYZ'" in fails(*chosen, "name XYZ")
    assert "'name CA and' cannot be read as a selection" in fails(*chosen, "name CA and")


def test_an_output_that_is_read_is_refused(adk, tmp_path):
    """Check outputs that are inputs: half of the frames would replace all, and the checkpoint the
    file.
    """
    trajectory = Path(shutil.copy(adk.trajectory, tmp_path))
    before = trajectory.read_bytes()
    (tmp_path / "link.dcd").symlink_to(trajectory)
    atoms = paceline.Universe(adk.topology, [str(trajectory), adk.trajectory]).atoms
    for path in (trajectory, tmp_path / "link.dcd"):
        with pytest.raises(UnsupportedError, match="one file for two purposes"):
            paceline.Write(atoms, path, overwrite=True).run(step=2)
        with pytest.raises(UnsupportedError, match="one file for two purposes"):
            paceline.TimeSeries(lambda block: block.times, atoms).run(checkpoint=path)
    assert trajectory.read_bytes() == before


@pytest.mark.parametrize("other_host", [False, True])
def test_bytes_that_ranks_keep_are_written_at_their_offsets(other_host, tmp_path, monkeypatch):
    """Check blocks that ranks of this or another host keep, and blocks that are sent."""
    monkeypatch.setattr(write_frames, "_EDGE", 64)
    random = np.random.default_rng(1)
    blocks = [random.bytes(n) for n in (500, 37, 1000, 300, 257, 900)]
    moments = np.zeros(1), np.zeros(1, int), np.zeros(1, "f4")
    path = tmp_path / "all"
    path.write_bytes(b"head")
    placements = Placements()
    host = "elsewhere" if other_host else socket.gethostname()
    encode = write_frames._Encode("final", None, 0, "held", path, host, placements)
    kept = {}
    with open(path, "r+b") as file:
        file.seek(4)
        receiver = write_frames._PlacingReceiver(str(path), file, placements)
        for number in (2, 0, 1, 5, 4, 3):
            value = write_frames.EncodedBlock(number, blocks[number], *moments)
            if number != 4:
                value, kept[number] = encode.keep(value)
            receiver.add(number, value)
            for done, offset in placements.take():
                encode.put(kept[done], offset)
    assert path.read_bytes() == b"head" + b"".join(blocks)
    assert receiver.end == 4 + sum(map(len, blocks))
    # Blocks of few bytes are sent unchanged to another host.
    assert [k for k, one in kept.items() if one is None] == [1] * other_host


def test_another_host_writes_what_shares_no_page(adk, tmp_path, monkeypatch):
    """Check DCD, in which the offset of each frame is known from the beginning."""
    ca = paceline.Universe(*adk).select_atoms("name CA")
    expected = paceline.Write(ca, tmp_path / "one.dcd")
    expected.run(block_frames=16)
    monkeypatch.setattr(write_frames, "_EDGE", 4096)
    names = (f"host{k}" for k in itertools.count())
    monkeypatch.setattr(write_frames.socket, "gethostname", lambda: next(names))
    sent = []
    write_ends = PartlyWritten.write_ends
    monkeypatch.setattr(
        PartlyWritten,
        "write_ends",
        lambda self, *place: sent.append(len(self.data)) or write_ends(self, *place),
    )
    paceline.Write(ca, tmp_path / "two.dcd").run(block_frames=16)
    assert sent == [2 * 4096] * 6  # the last block has too few bytes
    assert (tmp_path / "two.dcd").read_bytes() == (tmp_path / "one.dcd").read_bytes()
