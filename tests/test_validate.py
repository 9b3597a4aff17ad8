"""Tests of `paceline validate`: every kind of finding, and valid files of real programs."""

import os
import shutil
import struct
import time
from pathlib import Path

import h5py
import MDAnalysis
import MDAnalysisTests
import numpy as np
import pytest
from helpers import trajectory_bytes

import paceline
import paceline.analysis.validate
from paceline.analysis.validate import ROW, check_frames
from paceline.cli import main
from paceline.errors import UnsupportedError, WorkerError

N_FRAMES, N_ATOMS, CELL = 12, 50, (50.0, 50.0, 50.0, 90.0, 90.0, 90.0)
SUFFIXES = ("xtc", "trr", "dcd", "ncdf")
DATA_OF_FUZZING = Path(__file__).parents[1] / "fuzz" / "seeds"
DATA = Path(MDAnalysisTests.__file__).parent / "data"

#: Files of MDAnalysisTests with findings: whether the finding is an error, and its message.
NOT_CLEAN = {
    # CHARMM's header states the planned number of frames; the other header is wrong.
    "adk_dims.dcd": (False, "the header says 500 frames, the file has 98"),
    "test.dcd": (False, "the header says 4 frames, the file has 5"),
    "empty.dcd": (True, "expected a trajectory"),
    # cpptraj writes zeros, or no variable, if it has no times.
    "bala.ncdf": (False, "all frames have the same time, 0 ps"),
    "tz2.truncoct.nc": (False, "all frames have the same time, 0 ps"),
    "cpptraj_traj.nc": (
        False,
        "the file contains no times; its frames count as 1 ps apart",
    ),
    "ifabp_apo_100mM.dcd": (False, "LAMMPS wrote it, and its header has steps in the units"),
}


def positions(n_frames=N_FRAMES):
    """Return positions of atoms that stay in the cell."""
    return np.random.default_rng(1).uniform(0, 50, (n_frames, N_ATOMS, 3)).astype(np.float32)


def write(path, frames, *, times=None, cells=None, **fields):
    """Write frames with MDAnalysis."""
    universe = MDAnalysis.Universe.empty(
        frames.shape[1],
        trajectory=True,
        velocities="velocities" in fields,
        forces="forces" in fields,
    )
    # The times of a DCD file are in its header.
    dt = {"dt": 10.0} if path.suffix == ".dcd" else {}
    with MDAnalysis.Writer(str(path), frames.shape[1], **dt) as writer:
        for k, frame in enumerate(frames):
            ts = universe.trajectory.ts
            universe.atoms.positions = frame
            ts.dimensions = CELL if cells is None else cells[k]
            for name, values in fields.items():
                setattr(ts, name, values[k])
            ts.frame = k
            ts.time = 10.0 * k if times is None else times[k]
            ts.data["step"] = k
            writer.write(universe.atoms)
    return path


def findings(path, **options):
    """Return findings: frame, whether it is an error, and the message."""
    verdict = paceline.validate(path, n_workers=2, progress=False, **options)
    return [(finding.frame, finding.bad, finding.what) for finding in verdict.findings]


def judged(times=None, **columns):
    """Return the message for these results of the workers."""
    n = len(times) if times is not None else len(next(iter(columns.values())))
    rows = np.zeros(n, dtype=ROW)
    rows["step"], rows["cell"], rows["broken"] = np.arange(n), CELL, -1
    rows["reach"], rows["farthest"] = 50.0, 7
    for name, values in columns.items():
        rows[name] = values
    times = np.arange(n) * 10.0 if times is None else np.array(times, dtype=float)
    return sorted(check_frames(np.arange(n), times, rows))


def real_files():
    """Return all trajectories of MDAnalysisTests in paceline's formats."""
    endings = (".xtc", ".dcd", ".trr", ".ncdf", ".nc")
    return sorted(path for path in DATA.rglob("*") if path.suffix.lower() in endings)


@pytest.mark.parametrize("path", real_files(), ids=lambda path: path.name)
def test_files_of_real_programs_are_clean(path, tmp_path):
    found = findings(shutil.copy(path, tmp_path))
    if path.name not in NOT_CLEAN:
        assert found == []
    else:
        bad, start = NOT_CLEAN[path.name]
        [(frame, is_bad, what)] = found
        assert (frame, is_bad) == (None, bad)
        assert what.startswith(start)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_sound_frames_are_sound(suffix, tmp_path):
    path = write(tmp_path / f"a.{suffix}", positions())
    verdict = paceline.validate(path, progress=False)
    assert (verdict.n_frames, verdict.size) == (N_FRAMES, path.stat().st_size)
    assert verdict.findings == []


def test_every_backend_finds_the_same(where, damaged):
    system, frames = damaged
    verdict = paceline.validate(system.trajectory, progress=False, **where)
    assert [finding.frame for finding in verdict.bad] == frames
    again = paceline.validate(system.trajectory, progress=False, backend="serial")
    assert verdict.findings == again.findings


def test_damaged_frames_are_listed_with_their_bytes(damaged):
    system, frames = damaged
    verdict = paceline.validate(system.trajectory, progress=False)
    assert [finding.frame for finding in verdict.bad] == frames
    assert verdict.remarks == []
    offsets = MDAnalysis.Universe(*system).trajectory._xdr.offsets
    for finding in verdict.bad:
        assert 92 <= finding.byte - offsets[finding.frame] < 120
        assert finding.what.startswith("expected ")


@pytest.mark.parametrize("frame", [0, 5, N_FRAMES - 1])
def test_no_frame_must_be_sound(frame, tmp_path):
    file = trajectory_bytes.xtc(write(tmp_path / "a.xtc", positions()).read_bytes())
    at = file.borders[frame] + trajectory_bytes.XTC_PACKED
    path = tmp_path / "b.xtc"
    path.write_bytes(file.with_bytes(at, b"\xff" * 16))
    assert [(frame, bad) for frame, bad, _ in findings(path)] == [(frame, True)]


def test_a_header_in_the_middle_is_one_damaged_frame(tmp_path):
    file = trajectory_bytes.xtc(write(tmp_path / "a.xtc", positions()).read_bytes())
    path = tmp_path / "b.xtc"
    path.write_bytes(trajectory_bytes.xtc_with(file, 4, magic=7))
    [(frame, bad, what)] = findings(path)
    assert (frame, bad) == (4, True)
    assert "magic number" in what


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_cut_last_frame_is_bad(suffix, tmp_path):
    path = write(tmp_path / f"a.{suffix}", positions())
    size = path.stat().st_size
    os.truncate(path, size - 100)
    verdict = paceline.validate(path, progress=False)
    assert verdict.n_frames == N_FRAMES - 1
    [cut] = verdict.bad
    assert cut.frame == N_FRAMES - 1
    assert cut.byte < size - 100
    assert "is cut" in cut.what


def test_a_file_without_a_whole_frame_is_bad(tmp_path):
    path = write(tmp_path / "a.dcd", positions(1))
    os.truncate(path, path.stat().st_size - 4)
    [(frame, bad, what)] = findings(path)
    assert (frame, bad) == (None, True)
    assert "expected a first frame of" in what


@pytest.mark.parametrize("claimed", [0, 3, 100])
def test_a_wrong_count_of_frames_is_a_remark(claimed, tmp_path):
    path = tmp_path / "a.dcd"
    path.write_bytes(
        trajectory_bytes.dcd(positions(), trajectory_bytes.DcdVariant(), claimed).content
    )
    assert findings(path) == [
        (None, False, f"the header says {claimed} frames, the file has {N_FRAMES}")
    ]


@pytest.mark.parametrize("frame", [0, 6, N_FRAMES - 1])
def test_a_broken_marker_is_found_once(frame, tmp_path):
    variant = trajectory_bytes.DcdVariant(wide=True, big_endian=True)
    file = trajectory_bytes.dcd(positions(), variant)
    path = tmp_path / "a.dcd"
    # the marker before z
    at = file.borders[frame + 1] - (8 + 4 * N_ATOMS + 8)
    path.write_bytes(file.with_bytes(at, b"\x01"))
    [finding] = paceline.validate(path, progress=False).findings
    assert (finding.frame, finding.byte, finding.bad) == (frame, at, True)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("suffix", ["dcd", "trr"])
def test_numbers_that_are_not_finite_are_bad(suffix, value, tmp_path):
    frames = positions()
    frames[3, 17, 2] = frames[3, 20, 0] = frames[8, N_ATOMS - 1, 0] = value
    path = write(tmp_path / f"a.{suffix}", frames)
    verdict = paceline.validate(path, progress=False)
    assert [(finding.frame, finding.what) for finding in verdict.bad] == [
        (3, "positions are not finite, first that of atom 17"),
        (8, f"positions are not finite, first that of atom {N_ATOMS - 1}"),
    ]
    assert verdict.bad[0].time == pytest.approx(30.0)


@pytest.mark.parametrize("field", ["velocities", "forces"])
def test_velocities_and_forces_are_judged_too(field, tmp_path):
    values = positions()
    values[2, 5, 1] = np.nan
    # Values may be arbitrarily large.
    values[6, 5, 1] = 1e20
    path = write(tmp_path / "a.trr", positions(), **{field: values})
    assert findings(path) == [(2, True, f"{field} are not finite, first that of atom 5")]


@pytest.mark.parametrize("seed", ["box-only", "mixed", "no-box", "sparse"])
def test_a_frame_may_hold_anything(seed, tmp_path):
    # The first two bytes of a seed control the fuzzer; the file follows.
    content = (DATA_OF_FUZZING / "trr" / seed).read_bytes()[2:]
    path = tmp_path / "a.trr"
    path.write_bytes(content)
    assert [finding for finding in findings(path) if finding[1]] == []


def test_a_coordinate_of_thousands_in_a_cell_of_50_is_bad(tmp_path):
    frames = positions()
    frames[4, 31, 1] = -5000.0
    [(frame, bad, what)] = findings(write(tmp_path / "a.dcd", frames))
    assert (frame, bad) == (4, True)
    assert "atom 31" in what
    assert "a coordinate is 5000 Å, but the usual maximum is 49.8071 Å, and the cell" in what


def test_a_coordinate_far_out_is_found_without_a_cell():
    reach = np.full(20, 30.0)
    reach[13] = 2000.0
    cell = np.zeros((20, 6))
    assert [found[:2] for found in judged(reach=reach, cell=cell)] == [(13, True)]
    assert judged(reach=np.zeros(3), cell=cell[:3]) == []


def test_molecules_that_diffused_far_are_not_out_of_reason(tmp_path):
    # Random walks in water reach up to 3000 Å in 1 µs; one frame every 10 ns.
    random = np.random.default_rng(4)
    steps = random.normal(0, np.sqrt(2 * 0.23 * 1e4), (100, 300, 3))
    walk = np.concatenate([np.zeros((1, 300, 3)), steps.cumsum(axis=0)])
    walk += random.uniform(0, 50, (1, 300, 3))
    assert np.abs(walk).max() > 1500
    assert findings(write(tmp_path / "a.dcd", walk.astype(np.float32))) == []


def test_the_reach_of_frames_around_counts_as_much_as_that_of_most():
    # The last third of the frames was not wrapped.
    reach = np.where(np.arange(90) < 60, 50.0, 3000.0)
    assert judged(reach=reach) == []
    # In this variant, the positions are impossibly far away.
    reach[60:] = 2e5
    assert len(judged(reach=reach)) == 30


def test_a_frame_without_positions_is_not_out_of_reason():
    reach = np.where(np.arange(40) % 2, 50.0, np.nan)
    assert judged(reach=reach) == []


@pytest.mark.parametrize(
    ("cell", "bad", "what"),
    [
        ((50, 50, 50, 90, 90, np.nan), True, "the cell is not finite"),
        ((50, np.inf, 50, 90, 90, 90), True, "the cell is not finite"),
        ((50, 50, 0, 90, 90, 90), True, "the cell spans no volume: 50 50 0 Å, 90 90 90 degrees"),
        ((50, 50, -50, 90, 90, 90), True, "the cell spans no volume"),
        ((50, 50, 50, 120, 120, 120), True, "the cell spans no volume"),
        ((50, 50, 50, 30, 30, 90), True, "the cell spans no volume"),
        ((50, 50, 50, 90, 180, 90), True, "the cell spans no volume"),
        ((0, 0, 0, 0, 0, 0), True, "no cell, but other frames have a cell"),
        ((64, 64, 64, 90, 90, 90), False, "a cell of 262144 Å³, but 125000 Å³ are usual"),
        ((50, 50, 50, 90, 90, 20), False, "a cell of 42752.5 Å³, but 125000 Å³ are usual"),
        ((60, 60, 60, 60, 60, 90), None, None),
    ],
)
def test_cells(cell, bad, what):
    cells = np.tile(CELL, (9, 1))
    cells[4] = cell
    found = judged(cell=cells)
    if bad is None:
        assert found == []
    else:
        [(row, is_bad, said)] = found
        assert (row, is_bad) == (4, bad)
        assert said.startswith(what)
    cells[4:7] = cell
    again = judged(cell=cells)
    assert len(again) == len(found)
    assert all(said.endswith("; the same in the next 2 frames") for *_, said in again)


def test_no_cell_at_all_is_nothing_to_remark():
    assert judged(cell=np.zeros((5, 6))) == []


def test_overlapping_restarts_are_one_finding_each(tmp_path):
    times = [0, 100, 200, 100, 200, 300, 150, 175, 400, 500, 600, 700]
    assert findings(write(tmp_path / "a.xtc", positions(), times=times)) == [
        (
            3,
            True,
            "time does not increase: 100 ps after 200 ps; "
            "from here on 2 frames have the time of an earlier frame",
        ),
        (6, True, "time does not increase: 150 ps after 300 ps"),
        (8, False, "a gap: 400 ps after 175 ps, but frames are usually 100 ps apart"),
    ]


def test_a_frame_twice_is_found():
    assert judged([0, 10, 20, 20, 30]) == [
        (
            3,
            True,
            "time does not increase: 20 ps after 20 ps; "
            "from here on 1 frame has the time of an earlier frame",
        )
    ]


def test_gaps_are_remarks():
    assert judged([*range(0, 200, 10), *range(300, 500, 10)]) == [
        (20, False, "a gap: 300 ps after 190 ps, but frames are usually 10 ps apart")
    ]
    assert judged(2.0 ** np.arange(20)) == [
        (-1, False, "the time between frames varies from 1 to 262144 ps")
    ]
    # Single precision, at large times.
    assert judged(np.float32(4e6) + np.arange(50, dtype=np.float32)) == []


def test_a_frame_left_out_leaves_no_gap(tmp_path):
    frames = np.array([0, 1, 2, 4, 5])
    rows = np.zeros(5, dtype=ROW)
    rows["broken"], rows["step"] = -1, frames
    assert list(check_frames(frames, frames * 10.0, rows)) == []


def test_times_that_say_nothing():
    assert judged([np.nan] * 4) == [(-1, False, "no frame has a time")]
    assert judged([5.0] * 4) == [(-1, False, "all frames have the same time, 5 ps")]
    assert judged([0, 10, np.nan, np.inf, 40]) == [
        (2, True, "the time is not finite; the same in the next 1 frame")
    ]
    # This file contains only steps.
    assert judged([np.nan] * 4, step=[0, 1, 1, 2])[1] == (
        2,
        True,
        "step does not increase: 1 after 1; from here on 1 frame has the step of an earlier frame",
    )


def test_steps_that_start_anew_while_time_goes_on_are_a_remark():
    assert judged(step=[0, 5, 10, 3, 8]) == [(3, False, "step does not increase: 3 after 10")]
    assert judged(step=[0, 0, 0, 0]) == []


def test_millions_of_frames_are_judged_quickly():
    n = 300_000
    rows = np.zeros(n, dtype=ROW)
    rows["cell"], rows["broken"], rows["reach"] = CELL, -1, 50
    rows["reach"][::1000] = 5000
    times = np.arange(n) % 1000.0
    ratios = []
    for _ in range(3):
        begun = time.thread_time()
        found = list(check_frames(np.arange(n), times, rows))
        judged_in = time.thread_time() - begun
        begun = time.thread_time()
        _ = [row["reach"] for row in rows]
        ratios.append(judged_in / (time.thread_time() - begun))
        assert len(found) == 300 + 299
    # Reading one number of each frame takes about as long; judging each frame takes much longer.
    assert min(ratios) < 8


def test_nothing_is_judged_where_no_frame_is_sound():
    nothing = np.zeros(0)
    assert list(check_frames(nothing, nothing, np.zeros(0, dtype=ROW))) == []


def test_a_file_that_cannot_be_read_has_a_verdict(tmp_path):
    junk = tmp_path / "junk.xtc"
    junk.write_bytes(b"neither one nor the other")
    empty = tmp_path / "empty.h5md"
    with h5py.File(empty, "w") as file:
        file.create_group("particles")
    for path, what in (
        (tmp_path / "missing.xtc", "No such file or directory"),
        (tmp_path, "expected a regular file, found a directory"),
        (junk, "expected XTC"),
        (empty, "no group of particles contains position"),
    ):
        verdict = paceline.validate(path)
        assert (verdict.n_frames, verdict.size) == (0, 0)
        [finding] = verdict.bad
        assert what in finding.what


def test_what_only_mdanalysis_reads_is_refused_by_name(tmp_path, adk):
    path = tmp_path / "a.pdb"
    path.write_text("")
    with pytest.raises(UnsupportedError, match=r"a\.pdb: only MDAnalysis .*PDBReader"):
        paceline.validate(path)


def test_nothing_is_warned_of_twice(tmp_path, recwarn):
    path = tmp_path / "a.dcd"
    path.write_bytes(
        trajectory_bytes.dcd(positions(), trajectory_bytes.DcdVariant(), 3).content[:-20]
    )
    assert len(findings(path)) == 2
    assert not [one for one in recwarn if issubclass(one.category, UserWarning)]


@pytest.mark.parametrize("n", [1, 9, 10])
def test_few_atoms(n, tmp_path):
    path = tmp_path / "a.xtc"
    frame = trajectory_bytes.plain_xtc_frame(n) if n < 10 else None
    if frame is None:
        write(path, positions()[:, :n])
    else:
        path.write_bytes(frame)
    assert [finding for finding in findings(path) if finding[1]] == []


def test_plain_floats_that_are_not_finite_are_found(tmp_path):
    path = tmp_path / "a.xtc"
    path.write_bytes(trajectory_bytes.plain_xtc_frame(5)[:-4] + struct.pack(">f", np.inf))
    assert findings(path) == [(0, True, "positions are not finite, first that of atom 4")]


def test_every_constant_is_in_the_manual():
    page = (Path(__file__).parents[1] / "docs" / "validating.md").read_text(encoding="utf-8")
    for name in ("CELL_EDGES", "USUAL_REACHES", "NEIGHBOURS", "VOLUME_FACTOR", "GAP"):
        assert f"{getattr(paceline.analysis.validate, name):g}" in page, name


HEADER = ["file", "frame", "byte", "time (ps)", "verdict", "what"]


class TestCommand:
    @pytest.fixture
    def run(self, capsys):
        """Run the command in this process: status, lines of the table, and standard error."""

        def run(*arguments):
            status = main(["validate", *map(str, arguments)])
            written = capsys.readouterr()
            return status, [line.split("\t") for line in written.out.splitlines()], written.err

        return run

    def test_sound_files(self, run, tmp_path):
        path = write(tmp_path / "a.xtc", positions())
        status, table, said = run(path, path)
        assert (status, table) == (0, [HEADER])
        assert said.count(f"{path}: {N_FRAMES} frames, 0 bad, 0 remarks, ") == 2

    def test_remarks_are_no_fault(self, run, tmp_path):
        path = tmp_path / "a.dcd"
        path.write_bytes(
            trajectory_bytes.dcd(positions(), trajectory_bytes.DcdVariant(), 3).content
        )
        status, table, said = run(path)
        assert status == 0
        assert table[1][:5] == [str(path), "-", "-", "-", "remark"]
        assert "0 bad, 1 remark, " in said

    def test_a_bad_file_does_not_keep_the_others_from_being_judged(self, run, tmp_path):
        frames = positions()
        frames[7, 3] = np.nan
        paths = [
            tmp_path / "missing.xtc",
            write(tmp_path / "a.xtc", positions()),
            write(tmp_path / "b.dcd", frames),
        ]
        status, table, said = run(*paths, "--n-workers", 1)
        assert status == 1
        assert [row[:2] for row in table[1:]] == [[str(paths[0]), "-"], [str(paths[2]), "7"]]
        assert float(table[2][3]) == pytest.approx(70)
        assert table[2][4:] == ["bad", "positions are not finite, first that of atom 3"]
        assert int(table[2][2]) > 276
        assert len(said.splitlines()) == 3

    @pytest.mark.parametrize("kind", [TypeError, MemoryError, OSError, WorkerError])
    def test_whatever_one_file_raises_the_others_are_judged(self, kind, run, tmp_path, monkeypatch):
        sound = paceline.analysis.validate.validate

        def validate(path, **options):
            if path.endswith("a.xtc"):
                raise kind("of some kind")
            return sound(path, **options)

        frames = positions()
        frames[7, 3] = np.nan
        paths = [tmp_path / "a.xtc", write(tmp_path / "b.dcd", frames)]
        monkeypatch.setattr(paceline.analysis.validate, "validate", validate)
        status, table, _ = run(*paths, "--n-workers", 1)
        assert status == 1
        assert [row[:2] for row in table[1:]] == [[str(paths[0]), "-"], [str(paths[1]), "7"]]
        assert table[1][4:] == ["bad", f"validating it failed: {kind.__name__}: of some kind"]

    def test_what_only_mdanalysis_reads_is_refused_before_anything_is_read(self, run, tmp_path):
        status, table, said = run(tmp_path / "missing.xtc", tmp_path / "a.pdb")
        assert (status, table) == (2, [])
        assert "only MDAnalysis can read" in said

    def test_the_table_goes_to_a_file(self, run, tmp_path):
        path, output = write(tmp_path / "a.xtc", positions()), tmp_path / "found.tsv"
        os.truncate(path, path.stat().st_size - 1)
        assert run(path, "-o", output)[:2] == (1, [])
        lines = output.read_text(encoding="utf-8").splitlines()
        assert lines[0].split("\t") == HEADER
        assert len(lines) == 2
        assert run(path, "-o", output)[0] == 2
        assert run(path, "-o", output, "--overwrite")[0] == 1
