"""Tests of DL_POLY's HISTORY and CONFIG: MDAnalysis's numbers, times, and variants of files."""

import pickle
import shutil
import warnings
from pathlib import Path

import MDAnalysis
import numpy as np
import pytest
from helpers.dlpoly_files import N_ATOMS, N_FRAMES, config, frame_of, history, values, write
from MDAnalysis.analysis import rms
from MDAnalysisTests import datafiles

import paceline
from paceline import _core
from paceline.analysis.rms import RMSD
from paceline.cli import main
from paceline.errors import AtomCountError, DamagedFileError, PacelineWarning, UnsupportedError
from paceline.mdanalysis.reader import Reader

PUBLISHED = (
    "DLP_HISTORY",
    "DLP_HISTORY_order",
    "DLP_HISTORY_minimal",
    "DLP_HISTORY_minimal_cell",
    "WIN_DLP_HISTORY",
    "DLP_CONFIG",
    "DLP_CONFIG_order",
    "DLP_CONFIG_minimal",
)
FIELDS = ("positions", "velocities", "forces")

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:MDAnalysis")


def kind_of(name):
    return "HISTORY" if "HISTORY" in name else "CONFIG"


@pytest.fixture
def path(tmp_path):
    return write(tmp_path / "HISTORY", history())


def assert_same(ours, theirs):
    """Check that a Timestep equals MDAnalysis's, which leaves forces in DL_POLY's unit."""
    np.testing.assert_array_equal(ours.positions, theirs.positions)
    assert ours.has_velocities == theirs.has_velocities
    assert ours.has_forces == theirs.has_forces
    if theirs.has_velocities:
        np.testing.assert_array_equal(ours.velocities, theirs.velocities)
    if theirs.has_forces:
        np.testing.assert_allclose(ours.forces, theirs.forces / 100, rtol=2e-7)
    if theirs.dimensions is None:
        assert ours.dimensions is None
    else:
        np.testing.assert_array_equal(ours.dimensions, theirs.dimensions)


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_files_are_those_of_mdanalysis(name):
    file, kind = getattr(datafiles, name), kind_of(name)
    theirs = MDAnalysis.Universe(file, format=kind, topology_format=kind)
    ours = paceline.Universe(file)
    assert isinstance(ours.trajectory, Reader)
    assert len(ours.trajectory) == len(theirs.trajectory)
    assert list(ours.atoms.names) == list(theirs.atoms.names)
    for one, other in zip(ours.trajectory, theirs.trajectory, strict=True):
        assert_same(one, other)


@pytest.mark.parametrize("level", range(3))
@pytest.mark.parametrize("width", [72, 0])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_every_level_is_read_as_mdanalysis_reads_it(tmp_path, level, width, end):
    order = np.random.default_rng(1).permutation(N_ATOMS)
    for orders in (None, [order] * N_FRAMES, [None, order, order[::-1], None, order, None]):
        file = write(tmp_path / "HISTORY", history(level, orders=orders), width, end)
        theirs = MDAnalysis.Universe(file, format="HISTORY", topology_format="HISTORY")
        ours = paceline.Universe(file)
        for number, one in enumerate(ours.trajectory):
            assert_same(one, theirs.trajectory[number])
            assert (one.time, one.data["step"]) == (pytest.approx(0.05 * number), 100 * number)
            for field, wanted in zip(FIELDS[: level + 1], values(number), strict=False):
                np.testing.assert_allclose(getattr(one, field), wanted, rtol=1e-6)
        np.testing.assert_allclose(ours.trajectory.times(), 0.05 * np.arange(N_FRAMES))


def test_config_is_a_topology_and_a_frame(tmp_path, path):
    file = write(tmp_path / "start.txt", config())
    u = paceline.Universe(file)
    assert (u.trajectory.n_frames, u.trajectory.ts.time) == (1, 0.15)
    assert u.trajectory.ts.data["step"] == 300
    theirs = MDAnalysis.Universe(file, format="CONFIG", topology_format="CONFIG")
    assert_same(u.trajectory.ts, theirs.trajectory.ts)
    both = paceline.Universe(file, path)
    assert both.trajectory.n_frames == N_FRAMES
    assert list(both.atoms.names) == list(theirs.atoms.names) == ["Na+", "C"] * (N_ATOMS // 2)
    assert both.trajectory.file.index_origin == "computed"


def test_a_selection_reads_what_it_needs(tmp_path):
    n_atoms = 3000
    file = write(tmp_path / "HISTORY", history(0, 3, n_atoms=n_atoms))
    u = paceline.Universe(file)
    group = u.atoms[[5, 6, 2500]]
    block = paceline.TimeSeries(lambda block: block.positions.copy(), group)
    run = block.run(backend="serial")
    for number, positions in enumerate(run.results.timeseries):
        np.testing.assert_allclose(positions, values(number, n_atoms)[0, [5, 6, 2500]], rtol=1e-6)
    assert sum(block.bytes for block in run.timings.blocks) < 3 * 4000


@pytest.mark.parametrize("backend", ["threads", "processes"])
@pytest.mark.parametrize("width", [72, 0])
def test_analyses_run_on_every_backend(tmp_path, backend, width):
    order = np.random.default_rng(1).permutation(N_ATOMS)
    file = write(tmp_path / "HISTORY", history(1, 20, orders=[None, order] * 10), width)
    u = paceline.Universe(file)
    ours = RMSD(u.select_atoms("name C")).run(backend=backend, n_workers=2)
    theirs = MDAnalysis.Universe(file, format="HISTORY", topology_format="HISTORY")
    wanted = rms.RMSD(theirs.select_atoms("name C")).run().results.rmsd
    np.testing.assert_allclose(ours.results.rmsd[:, 2], wanted[:, 2], atol=1e-5)
    np.testing.assert_allclose(ours.results.rmsd[:, 1], 0.05 * np.arange(20))


def test_a_compressed_file_keeps_what_it_has(tmp_path):
    lines = ["made up", f"{3:2}{2:2}{N_ATOMS:10}{2:10}{2 + 2 * (4 + N_ATOMS):10}"]
    for time in (123456.25, 123456.5):
        lines.append(f"timestep******{0.0005:8.5f}{time:12.5f}")
        lines += [f"{x:10.3f}{y:10.3f}{z:10.3f}" for x, y, z in np.diag([150.0, 160.0, 170.0])]
        for atom in range(N_ATOMS):
            lines.append(f"{'Na+':6}{-1000.5 - atom:7.1f}{atom:7.1f}{time % 10:7.1f}{0:7.1f}")
    file = write(tmp_path / "HISTORY", lines, 34)
    u = paceline.Universe(write(tmp_path / "CONFIG", config(0)), file)
    assert [ts.time for ts in u.trajectory] == [123456.25, 123456.5]
    assert u.trajectory[1].data["step"] == 246_913_000
    np.testing.assert_array_equal(u.dimensions, [150, 160, 170, 90, 90, 90])
    np.testing.assert_allclose(u.atoms.positions[:, 0], -1000.5 - np.arange(N_ATOMS))
    with pytest.raises(UnsupportedError, match="cannot take atoms from a compressed HISTORY"):
        paceline.Universe(file)


def test_restarts_may_go_on_with_another_key(tmp_path):
    lines = [*history(0, 2), *frame_of(2, 2), *frame_of(3, 1)]
    u = paceline.Universe(write(tmp_path / "HISTORY", lines))
    fields = [(ts.has_velocities, ts.has_forces) for ts in u.trajectory]
    assert fields == [(False, False), (False, False), (True, True), (True, False)]
    np.testing.assert_allclose(u.trajectory[2].forces, values(2)[2], rtol=1e-6)


def test_files_are_recognised_by_content_and_else_by_name(tmp_path, path):
    assert _core.detect_format(path) == "HISTORY"
    assert _core.detect_format(write(tmp_path / "x.dat", config(), 0)) == "CONFIG"
    assert _core.detect_format(datafiles.GRO) is None
    assert _core.detect_format(datafiles.XYZ) is None
    (tmp_path / "REVCON").write_text("nothing\nof the kind\n")
    u = MDAnalysis.Universe.empty(3, trajectory=True)
    u = paceline.Universe(u._topology)
    with pytest.raises(UnsupportedError, match=r"expected XTC.*CONFIG, LAMMPSDUMP or HDF5, found"):
        u.load_new(str(tmp_path / "REVCON"))


def test_another_number_of_atoms_is_refused(tmp_path, path):
    few = write(tmp_path / "CONFIG", [*config()][: -4 * 2], 0)
    with pytest.raises(DamagedFileError, match=r"expected 12 atoms.*found 10"):
        paceline.Universe(few)
    few = write(tmp_path / "CONFIG", [*config(claimed=10)][: -4 * 2])
    with pytest.raises(AtomCountError, match="12"):
        paceline.Universe(few, path)


def test_a_damaged_line_names_frame_atom_and_byte(tmp_path, path):
    lines = [*history()]
    at = 2 + 2 * (4 + 4 * N_ATOMS) + 4 + 4 * 5 + 2  # the line of the velocity of atom 6 in frame 2
    lines[at] = "   1.0   2.0  oh"
    u = paceline.Universe(path, write(tmp_path / "damaged", lines))
    with pytest.raises(DamagedFileError) as caught:
        u.trajectory[2]
    assert (caught.value.frame, caught.value.offset) == (2, 73 * at)
    assert caught.value.expected == "three numbers, the velocity of atom 6 in the frame"
    assert "oh" in caught.value.found
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = paceline.TimeSeries(
            lambda block: block.velocities[:, 0, 0].copy(), u.atoms, fields=["velocities"]
        ).run(on_error="skip")
    assert np.flatnonzero(np.isnan(run.results.timeseries)).tolist() == [2]


@pytest.mark.parametrize("kind", ["HISTORY", "CONFIG"])
def test_a_line_feed_that_is_lost_in_the_first_atom_moves_no_others(tmp_path, kind):
    lines = history() if kind == "HISTORY" else config()
    path = Path(write(tmp_path / kind, lines))
    content = bytearray(path.read_bytes())
    # The lines of name and position become one, so that the velocity is read as the position.
    at = content.index(b"Na+") + 72
    assert content[at] == ord("\n")
    content[at] = ord("x")
    path.write_bytes(content)
    with pytest.warns(PacelineWarning, match="frame 0"):
        reader = Reader(str(path))
    with pytest.raises(DamagedFileError, match="frame 0, byte"):
        reader[0]
    for frame in range(1, reader.n_frames):
        for found, wanted in zip(("positions", "forces"), values(frame)[::2], strict=True):
            np.testing.assert_allclose(getattr(reader[frame], found), wanted, rtol=1e-6)


def test_numbers_that_stop_counting_are_refused():
    # MDAnalysis uses the order of the lines, and reads ids only in the first frame.
    lines = Path(datafiles.DLP_HISTORY_classic).read_text().splitlines()
    numbers = [int(line.split()[1]) for line in lines if line[:1] in "ABC"]
    assert numbers == [1, 2, 3, 1, 1, 1, 1, 1, 1]
    trajectory = paceline.Universe(datafiles.DLP_HISTORY_classic).trajectory
    theirs = MDAnalysis.Universe(datafiles.DLP_HISTORY_classic, format="HISTORY")
    assert np.array_equal(trajectory[0].positions, theirs.trajectory[0].positions)
    for frame in (1, 2):
        with pytest.raises(DamagedFileError, match="each atom once in a frame, found atom 1 again"):
            trajectory[frame]


def test_a_number_twice_is_damage(tmp_path, path):
    lines = [*history()]
    at = 2 + 4 + 4 * 7
    lines[at] = lines[at][:8] + f"{1:10}" + lines[at][18:]
    with pytest.warns(PacelineWarning, match=f"frame 0, byte {73 * at}: expected each atom once"):
        paceline.Universe(path, write(tmp_path / "damaged", lines))


@pytest.mark.parametrize("width", [72, 0])
def test_cut_and_edited_files_warn(tmp_path, path, width):
    lines = [*history()]
    file = write(tmp_path / "edited", lines[:-3], width)
    with pytest.warns(PacelineWarning, match="frame 5 .* is cut: .*; the 5 frames before it"):
        u = paceline.Universe(path, file)
    assert u.trajectory.n_frames == N_FRAMES - 1
    del lines[2 + 4 + 4 * N_ATOMS + 20]
    with pytest.warns(PacelineWarning, match="1 of 6 frames is damaged: frame 1 "):
        u = paceline.Universe(path, write(tmp_path / "edited", lines, width))
    assert u.trajectory.file.damaged == [1]
    np.testing.assert_allclose(u.trajectory[2].positions, values(2)[0], rtol=1e-6)
    with pytest.raises(DamagedFileError, match="frame 1, byte"):
        u.trajectory[1]


def test_odd_boundaries_warn(tmp_path):
    lines = [*history(n_frames=2)]
    lines[1] = lines[1][:10] + f"{4:10}" + lines[1][20:]
    with pytest.warns(PacelineWarning, match="truncated octahedron"):
        paceline.Universe(write(tmp_path / "HISTORY", lines))


def test_there_is_no_cell_where_imcon_is_0(tmp_path):
    lines = [line.replace(" 2 3  ", " 2 0  ") for line in history(n_frames=2)]
    u = paceline.Universe(write(tmp_path / "HISTORY", lines))
    assert u.dimensions is None


def test_chains_and_copies(tmp_path, path):
    later = write(tmp_path / "HISTORY.1", [*history(n_frames=0), *frame_of(7, 2)])
    u = paceline.Universe(path, [path, later])
    assert u.trajectory.n_frames == N_FRAMES + 1
    np.testing.assert_allclose(u.trajectory.times()[-2:], [0.25, 0.35])
    again = pickle.loads(pickle.dumps(u.trajectory))
    np.testing.assert_array_equal(again[6].positions, u.trajectory[6].positions)
    np.testing.assert_array_equal(u.copy().trajectory[3].forces, u.trajectory[3].forces)


@pytest.mark.parametrize("width", [72, 0])
def test_pieces_are_files_of_their_own(tmp_path, width):
    file = write(tmp_path / "run.history", history(), width)
    pieces = paceline.split(file, frames=4)
    assert [piece.name for piece in pieces] == ["run.000.history", "run.001.history"]
    whole = paceline.join(pieces, tmp_path / "whole.history")
    if width:
        assert whole.read_bytes() == (tmp_path / "run.history").read_bytes()
        second = [*history(n_frames=2)][:2]
        assert pieces[1].read_text().splitlines()[1].rstrip() == second[1]
    u = paceline.Universe(file, str(pieces[1]))
    theirs = MDAnalysis.Universe(str(pieces[1]), format="HISTORY", topology_format="HISTORY")
    assert u.trajectory.n_frames == len(theirs.trajectory) == 2
    for one, other in zip(u.trajectory, theirs.trajectory, strict=True):
        assert_same(one, other)
    assert paceline.Universe(str(whole)).trajectory.n_frames == N_FRAMES


def test_a_config_is_not_cut(tmp_path):
    file = write(tmp_path / "CONFIG", config())
    with pytest.raises(UnsupportedError, match="frames of CONFIG cannot be copied as bytes"):
        paceline.split(file, 2)


def test_the_command_line_takes_them(tmp_path, path, capsys):
    assert main(["info", path]) == 0
    told = capsys.readouterr().out
    assert "HISTORY" in told
    assert "0.05" in told
    assert main(["validate", path]) == 0
    damaged = [*history()]
    damaged[20] = damaged[20].replace("E", "x").replace(".", "x")
    assert main(["validate", write(tmp_path / "damaged", damaged)]) == 1
    assert "of atom" in capsys.readouterr().out
    target = tmp_path / "out.trr"
    assert main(["convert", path, str(target)]) == 0
    ours, theirs = paceline.Universe(path, str(target)), paceline.Universe(path)
    for one, other in zip(ours.trajectory, theirs.trajectory, strict=True):
        np.testing.assert_allclose(one.positions, other.positions, atol=1e-5)
        np.testing.assert_allclose(one.forces, other.forces, rtol=1e-5)
        assert one.time == pytest.approx(other.time)


def test_a_file_that_grows_is_the_same_file(tmp_path):
    lines = [*history(claimed=3)]
    part = 2 + 3 * (4 + 4 * N_ATOMS)
    file = write(tmp_path / "HISTORY", lines[:part])
    u = paceline.Universe(file)
    write(tmp_path / "HISTORY", history())
    assert RMSD(u.atoms).run(backend="serial").results.rmsd.shape == (3, 3)
    assert paceline.Universe(file).trajectory.n_frames == N_FRAMES
    shutil.copy(datafiles.DLP_HISTORY, file)
