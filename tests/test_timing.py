"""Timings add up, can be read elsewhere, and name who was slow."""

import csv
import json
import threading
import time

import numpy as np
import pytest

import paceline
from paceline.analysis.rms import RMSD
from paceline.timing import BlockTiming, Timings

PARTS = ("t_init_traj", "t_io", "t_decode", "t_transform", "t_compute", "t_wait", "t_overhead")


@pytest.fixture
def timings(where, universe):
    return RMSD(universe, select="name CA").run(block_frames=16, **where).timings


def test_parts_add_up_to_each_worker_s_wall_time(timings):
    wall = (max(block.end for block in timings.blocks) - timings.dealt) / 1e9
    for worker in timings.workers():
        parts = [getattr(worker, part) for part in PARTS]
        assert min(parts) >= 0
        assert sum(parts) == pytest.approx(wall, abs=1e-8)
        assert worker.t_io_stall == worker.t_io
    assert 0 < wall < timings.t_total
    assert timings.start <= timings.dealt <= timings.end
    assert timings.t_comm > 0


def test_every_frame_is_counted_once(timings):
    assert timings.n_frames == 98 == sum(worker.n_frames for worker in timings.workers())
    assert sum(worker.n_blocks for worker in timings.workers()) == len(timings.blocks) == 7
    firsts = sorted((block.first_frame, block.n_frames) for block in timings.blocks)
    assert firsts == [(first, min(16, 98 - first)) for first in range(0, 98, 16)]
    assert all(block.bytes > 0 and block.calls > 0 for block in timings.blocks)


def test_csv_has_a_line_a_block(timings, tmp_path):
    path = tmp_path / "blocks.csv"
    timings.to_csv(path)
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [
        BlockTiming(**{key: v if key == "worker" else int(v) for key, v in row.items()})
        for row in rows
    ] == timings.blocks
    with pytest.raises(FileExistsError, match=r"blocks\.csv"):
        timings.to_csv(path)
    timings.to_csv(path, overwrite=True)


def test_chrome_trace_is_what_perfetto_reads(timings, tmp_path):
    path = tmp_path / "trace.json"
    timings.to_chrome_trace(path)
    events = json.loads(path.read_text())["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert sorted(names.values()) == [worker.worker for worker in timings.workers()]
    slices = [event for event in events if event["ph"] == "X"]
    assert len(slices) == 6 * len(timings.blocks)
    for event in slices:
        assert event["tid"] in names
        assert isinstance(event["pid"], int)
        assert event["ts"] >= 0
        assert event["dur"] >= 0
    # Slices of one row lie one after another or one in another; Perfetto drops others.
    for row in names:
        blocks = [e for e in slices if e["tid"] == row and e["name"].startswith("block")]
        blocks.sort(key=lambda event: event["ts"])
        ends = [event["ts"] + event["dur"] for event in blocks]
        starts = [event["ts"] for event in blocks]
        assert all(end <= start + 1e-3 for end, start in zip(ends, starts[1:], strict=False))
    with pytest.raises(FileExistsError):
        timings.to_chrome_trace(path)


def test_a_slow_worker_is_named(universe):
    slow = []

    def sleep(block):
        if not slow:
            slow.append(threading.get_ident())
        time.sleep(0.15 if slow[0] == threading.get_ident() else 0.005)
        return block.times

    # Sent by reference: the list is shared.
    series = paceline.TimeSeries(sleep, universe.atoms[:3])
    series.run(backend="threads", n_workers=2, block_frames=16)
    (straggler,) = series.timings.stragglers()
    assert straggler.n_blocks < 7 / 2
    assert straggler.t_compute > 0.1
    (named,) = (line for line in str(series.timings).splitlines() if "straggler" in line)
    assert named.startswith(straggler.worker)


def block(number, worker, start, length, n_frames=100):
    return BlockTiming(
        job=0,
        block=number,
        first_frame=100 * number,
        n_frames=n_frames,
        worker=worker,
        start=start,
        end=start + length,
        wait=0,
        open=0,
        read=0,
        decode=0,
        transform=0,
        compute=length,
        comm=0,
        bytes=1_000_000,
        calls=1,
    )


@pytest.mark.parametrize(("excess", "named"), [(0.04, False), (0.08, False), (0.16, True)])
def test_too_short_a_delay_names_nobody(excess, named):
    second = 10**9
    usual = second // 20
    blocks = [block(k, f"worker {k}", 0, usual) for k in range(3)]
    blocks.append(block(3, "worker 3", 0, usual + int(excess * second)))
    stragglers = Timings("threads", 0, 0, 2 * second, blocks=blocks).stragglers()
    assert [worker.worker for worker in stragglers] == ["worker 3"] * named


def test_little_slower_than_the_others_names_nobody():
    blocks = [block(k, f"worker {k}", 0, (10 + k) * 10**9) for k in range(4)]
    assert Timings("threads", 0, 0, 10**11, blocks=blocks).stragglers() == []


def test_one_worker_alone_is_no_straggler():
    assert Timings("serial", 0, 0, 10**11, blocks=[block(0, "a", 0, 10**10)]).stragglers() == []


def test_the_printed_table_is_aligned():
    second = 10**9
    blocks = [
        block(0, "host:1:1", second, 2 * second),
        block(1, "host:1:2", second, second // 2),
        block(2, "host:1:2", 2 * second, second // 2),
    ]
    timings = Timings(
        "threads", 0, second // 2, 4 * second, t_init_traj=0.25, t_comm=0.001, blocks=blocks
    )
    assert str(timings) == (
        "worker                blocks  frames  open s  read s  decode s  transform s"
        "  compute s  wait s  rest s  µs/frame  MB read\n"
        "host:1:1 (straggler)       1     100   0.000   0.000     0.000        0.000"
        "      2.000   0.500   0.000   20000.0      1.0\n"
        "host:1:2                   2     200   0.000   0.000     0.000        0.000"
        "      1.000   1.500   0.000    5000.0      2.0\n"
        "threads: 300 frames in 4.000 s; collecting results 0.001 s; trajectory 0.250 s"
    )


def test_no_blocks_make_an_empty_table():
    assert Timings().workers() == []
    assert len(str(Timings()).splitlines()) == 2


def test_times_are_those_of_the_work(universe):
    def sleep(block):
        time.sleep(0.02)
        return np.zeros(len(block))

    timings = paceline.TimeSeries(sleep, universe.atoms).run(backend="serial").timings
    (worker,) = timings.workers()
    assert worker.t_compute >= 0.02 * worker.n_blocks
    assert worker.seconds_per_frame * 98 >= worker.t_compute
