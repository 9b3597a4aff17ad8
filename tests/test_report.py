"""The report says of made-up runs what is known of them, and names who was slow in real ones."""

import json
import math

import pytest

from paceline.analysis.rms import RMSD
from paceline.report import report_of
from paceline.timing import BlockTiming, Timings

#: Seconds of the parts of a block of 100 frames, where nothing else is said.
USUAL = {"open": 0.0, "read": 0.1, "decode": 0.2, "transform": 0.0, "compute": 0.5}


def block(number, worker, start, *, job=0, n_frames=100, rest=0.0, comm=0.0, **parts):
    """A block that begins at a time in seconds; it ends when its parts are done."""
    nanoseconds = {name: round(1e9 * value) for name, value in {**USUAL, **parts}.items()}
    return BlockTiming(
        job=job,
        block=number,
        first_frame=100 * number,
        n_frames=n_frames,
        worker=worker,
        start=round(1e9 * start),
        end=round(1e9 * (start + rest)) + sum(nanoseconds.values()),
        wait=0,
        comm=round(1e9 * comm),
        bytes=1000,
        calls=2,
        **nanoseconds,
    )


def timings(blocks, **options):
    end = max((block.end for block in blocks), default=0) + 10**9
    return Timings(
        **{"backend": "threads", "start": -(10**9), "end": end, **options}, blocks=blocks
    )


def row_of_blocks(worker, n_blocks, *, first=0, begun=0.0, **options):
    """Blocks of one worker, one right after another."""
    blocks = []
    for k in range(n_blocks):
        blocks.append(block(first + k, worker, begun, **options))
        begun = blocks[-1].end / 1e9
    return blocks


def test_quantities_of_a_known_run():
    blocks = [
        *row_of_blocks("a:1:1", 2),  # 1.6 s
        *row_of_blocks("a:2:2", 1, first=2, begun=0.4, open=0.1, rest=0.1),  # 0.4 s to 1.4 s
    ]
    made = timings(blocks, t_comm=0.25, t_init_top=2.0, bytes_used=12_000, trajectory="md.xtc")
    report = report_of(made)
    assert (report.n_workers, report.n_hosts, report.n_blocks, report.n_frames) == (2, 1, 3, 300)
    assert (report.t_before, report.t_blocks, report.t_after) == (1.0, 1.6, 1.0)
    assert report.t_total == pytest.approx(3.6)
    assert report.t_init_top == 2.0
    assert math.isnan(report.t_init_traj)
    over = report.over_workers
    assert (over["t_compute"].mean, over["t_compute"].most) == pytest.approx((0.75, 1.0))
    assert (over["t_io"].mean, over["t_decode"].mean) == pytest.approx((0.15, 0.3))
    assert (over["t_wait"].mean, over["t_wait"].most) == pytest.approx((0.3, 0.6))
    assert (over["t_overhead"].mean, over["t_overhead"].most) == pytest.approx((0.05, 0.1))
    assert report.shares["t_compute"] == pytest.approx(0.75 / 1.6)
    assert sum(report.shares.values()) == pytest.approx(1.0)
    assert report.R_comp_IO == pytest.approx(1.5 / 0.9)
    assert report.R_comp_comm == pytest.approx(3.0)
    assert report.imbalance == pytest.approx(1.6 / 1.5)
    assert (report.bytes_read, report.calls, report.read_per_used) == (3000, 6, 0.25)
    assert report.read_rate == pytest.approx(3000 / 1.6)
    assert report.stragglers == []


def test_what_is_not_known_or_infinite_is_null_in_json():
    report = report_of(timings([block(0, "a:1:1", 0, read=0, decode=0)]))
    assert report.R_comp_IO == report.R_comp_comm == math.inf
    assert math.isnan(report.read_per_used)
    found = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert found["R_comp_IO"] is found["t_init_top"] is None
    assert found["workers"][0]["worker"] == "a:1:1"
    assert found["over_workers"]["t_compute"] == {"mean": 0.5, "most": 0.5}


def test_a_run_without_blocks_has_a_report():
    report = report_of(Timings())
    assert report.workers == report.stragglers == []
    assert report.to_dict()["imbalance"] is None


def test_a_real_run_s_report_adds_up(where, universe):
    made = RMSD(universe, select="name CA").run(block_frames=16, **where).timings
    report = report_of(made)
    assert report.n_frames == 98
    assert report.n_workers <= made.n_workers
    assert report.bytes_used == 98 * 214 * 12
    # CHARMM's DCD has a number a coordinate; of runs of atoms the gaps are read too, if small.
    assert 1 <= report.read_per_used < 3341 / 214 * 1.1
    assert report.trajectory.endswith(".dcd")
    assert report.t_before + report.t_blocks + report.t_after == pytest.approx(report.t_total)
    json.dumps(report.to_dict(), allow_nan=False)
