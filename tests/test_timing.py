"""Tests that timings add up, can be read by other programs, and name slow workers."""

import json
import re
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pandas
import pytest

import paceline
from paceline.analysis.pca import PCA
from paceline.analysis.rms import RMSD
from paceline.backends import Threads
from paceline.engine.worker import ThreadNames, thread_name
from paceline.errors import TimingsError
from paceline.performance import record
from paceline.report import report_of
from paceline.timing import BlockTiming, DuplicateAttempt, Timings

PARTS = (
    "t_init_traj",
    "t_io",
    "t_decode",
    "t_transform",
    "t_compute",
    "t_abandoned",
    "t_wait",
    "t_overhead",
)


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


def test_no_worker_sends_for_longer_than_the_run_takes(where, universe):
    analysis = paceline.TimeSeries(lambda block: block.positions, universe.atoms)
    timings = analysis.run(block_frames=1, **where).timings
    for worker in timings.workers():
        assert 0 <= worker.t_comm <= timings.t_total
    assert 0 < timings.t_comm <= timings.t_total
    assert all(block.comm >= 0 for block in timings.blocks)


def test_results_that_are_on_their_way_together_are_counted_once():
    """Check overlapping transfers: blocks of one worker at 5 to 9 s and 12 to 13 s, of the other at
    7 to 11 s.
    """
    second = 10**9
    times = {"a": [(0, 5, 4), (5, 6, 1), (6, 8, 0), (8, 12, 1)], "b": [(0, 7, 3), (7, 9, 2)]}
    blocks = [
        replace(block(0, worker, begin * second, (end - begin) * second), comm=comm * second)
        for worker in times
        for begin, end, comm in times[worker]
    ]
    run = Timings("threads", 0, 0, 14 * second, blocks=blocks[::-1])
    assert [(one.worker, one.t_comm) for one in run.workers()] == [("a", 5.0), ("b", 4.0)]


def test_every_frame_is_counted_once(timings):
    assert timings.n_frames == 98 == sum(worker.n_frames for worker in timings.workers())
    assert sum(worker.n_blocks for worker in timings.workers()) == len(timings.blocks) == 7
    firsts = sorted((block.first_frame, block.n_frames) for block in timings.blocks)
    assert firsts == [(first, min(16, 98 - first)) for first in range(0, 98, 16)]
    assert all(block.bytes > 0 and block.calls > 0 for block in timings.blocks)


@pytest.mark.parametrize("make", [lambda ca: PCA(ca, n_projected=2), RMSD])
def test_several_passes_have_the_same_workers_and_frames(make, universe, tmp_path, nothing_overdue):
    """Check several passes, each with new threads: workers and frames are counted once."""
    analysis = make(universe.select_atoms("name CA"))
    timings = analysis.run(backend="threads", n_workers=2, block_frames=16).timings
    assert sum(block.n_frames for block in timings.blocks) == analysis.stages * 98
    workers = timings.workers()
    assert 1 <= len(workers) <= 2
    assert all(min(getattr(one, part) for part in PARTS) >= 0 for one in workers)
    timings.to_csv(tmp_path / "run.csv")
    timings.report(tmp_path / "run.html")
    page = (tmp_path / "run.html").read_text(encoding="utf-8")
    assert re.search(r"98 frames in [^<]* on [12] workers?<", page)
    assert ("Frames count once in each pass" in page) == (analysis.stages > 1)
    again = Timings.from_csv(tmp_path / "run.csv")
    assert (again.n_frames, again.n_chosen) == (98, 98)
    # Files of earlier versions do not contain the number of chosen frames.
    lines = (tmp_path / "run.csv").read_text().splitlines(keepends=True)
    (tmp_path / "old.csv").write_text("".join(one for one in lines if "n_chosen" not in one))
    assert Timings.from_csv(tmp_path / "old.csv").n_frames == analysis.stages * 98


def test_a_thread_that_hangs_is_another_worker(monkeypatch):
    names = ThreadNames()
    first = names.of(0)
    assert (first, names.of(0)) == (thread_name(), first)
    monkeypatch.setattr("paceline.engine.worker.thread_name", lambda: "host:1:2")
    assert names.of(0) == first
    monkeypatch.setattr("paceline.engine.worker._at_work", {first})
    assert names.of(0) == "host:1:2"
    assert names.of(1) == "host:1:2"
    # The system has reused the id of an earlier thread.
    assert names.of(2) == "host:1:2.2"


def test_csv_has_a_line_a_block_and_is_read_back_exactly(timings, tmp_path):
    path = tmp_path / "blocks.csv"
    timings.to_csv(path)
    table = pandas.read_csv(path, comment="#")
    rows = table.to_dict("records")
    assert [BlockTiming(**row) for row in rows] == timings.blocks
    # repr is compared, because NaN is not equal to NaN.
    assert repr(Timings.from_csv(path)) == repr(timings)
    with pytest.raises(FileExistsError, match=r"blocks\.csv"):
        timings.to_csv(path)
    timings.to_csv(path, overwrite=True)


def test_csv_keeps_what_the_whole_run_needs(tmp_path):
    made = Timings(
        "mpi",
        -5,
        10**18,
        2 * 10**18 + 1,
        t_init_top=0.1,
        t_comm=1 / 3,
        blocks=[block(3, "node1:1:1", 7, 8)],
        abandoned=[hung(4, "", 9, 1), DuplicateAttempt(block(5, "b:1:1", 7, 8), True)],
        n_workers=4,
        schedule="static",
        trajectory='a "strange"\n# name, é.xtc',
        bytes_used=12,
    )
    path = tmp_path / "blocks.csv"
    made.to_csv(path)
    assert repr(Timings.from_csv(path)) == repr(made)
    assert len(pandas.read_csv(path, comment="#")) == 1


def test_csv_takes_a_number_of_workers_of_numpy_s(universe, tmp_path):
    backend = Threads(np.int64(2))
    backend.apply(len, ["a", "bc"])
    analysis = RMSD(universe.select_atoms("name CA")).run(n_workers=np.int64(2))
    for name, made in {"mdanalysis": backend.timings, "own": analysis.timings}.items():
        made.to_csv(tmp_path / name)
        assert Timings.from_csv(tmp_path / name).n_workers == 2


class Ahead(Threads):
    """Backend on a host whose clock has drifted since it was last compared."""

    def run(self, jobs, works):
        for outcome in super().run(jobs, works):
            if isinstance(outcome, DuplicateAttempt):
                yield outcome
                continue
            ahead = [
                replace(one, start=one.start + 10**10, end=one.end + 10**10)
                for one in outcome.timings
            ]
            yield replace(outcome, timings=ahead)


def test_csv_is_read_back_though_clocks_drift(universe, tmp_path):
    backend = Ahead(2)
    backend.apply(len, ["a", "bc"])
    analysis = RMSD(universe.select_atoms("name CA")).run(backend=backend)
    for name, made in {"mdanalysis": backend.timings, "own": analysis.timings}.items():
        made.to_csv(tmp_path / name)
        assert {block.comm for block in Timings.from_csv(tmp_path / name).blocks} == {0}


def test_clocks_of_other_hosts_are_compared_by_the_quickest_result(monkeypatch):
    def stamps(host, start, end, now):
        monkeypatch.setattr(record.time, "monotonic_ns", lambda: now)
        (timing,) = clocks.to_this_host([block(0, f"{host}:1:2", start, end - start)])
        return timing.start, timing.end

    clocks = record.HostClocks()
    assert stamps(clocks._own, 5, 9, 1000) == (5, 9)
    # Transfer times are 7, then 3, then 20.
    assert stamps("a", 10_000, 10_100, 1107) == (1007, 1107)
    assert stamps("a", 10_000, 10_200, 1203) == (1003, 1203)
    assert stamps("a", 10_000, 10_300, 1320) == (1003, 1303)
    assert stamps("b", -900, -800, 1400) == (1300, 1400)


class Elsewhere(ThreadPoolExecutor):
    """Executor whose workers are on a host with another clock."""

    def submit(self, function, /, *given, **named):
        def called():
            result = function(*given, **named)
            timings = [
                replace(one, worker="far:1:1", start=one.start + 10**17, end=one.end + 10**17)
                for one in result.timings
            ]
            return replace(result, timings=timings)

        return super().submit(called)


def test_an_executor_on_another_host_has_times_of_this_one(universe):
    with Elsewhere(1) as executor:
        timings = RMSD(universe, select="name CA").run(backend=executor).timings
    assert {block.worker for block in timings.blocks} == {"far:1:1"}
    assert all(timings.dealt <= block.end <= timings.end for block in timings.blocks)
    assert 0 <= report_of(timings).t_after <= timings.t_total


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Text that `to_csv` writes for two blocks and an attempt."""
    path = tmp_path_factory.mktemp("saved") / "blocks.csv"
    blocks = [block(k, "node1:1:1", k, 1) for k in range(2)]
    attempt = hung(1, "node2:1:1", 1, 1)
    Timings("threads", 0, 0, 5, blocks=blocks, abandoned=[attempt]).to_csv(path)
    return path.read_text()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (None, "", "line 0: expected '# paceline: block timings, 1'"),
        (None, "frame,RMSD\n0,1.5\n", "line 1: expected '# paceline.* found 'frame,RMSD'"),
        (None, "\udcff\udc80", "line 0: expected '# paceline: block timings, 1'"),
        ("timings, 1", "timings, 2", "line 1: expected .* found '# paceline: block timings, 2'"),
        ("# dealt: 0\n", "", "expected a line '# dealt: ' before the table"),
        (
            "# dealt: 0",
            "# dealt: soon",
            "line 4: expected dealt as int in JSON, found",
        ),
        ("# dealt: 0", "# dealt: 0.5", "line 4: expected dealt as int in JSON, found"),
        ("# t_comm: 0.0", "# t_comm: Infinity", "expected t_comm as float in JSON, found"),
        ("# dealt", "# dealing", "expected a fact that this version .* found '# dealing: 0'"),
        ('"came": false', '"game": false', "expected an attempt with its timing"),
        ('"calls": 0', '"balls": 0', "expected an attempt with its timing"),
        ("job,block", "job,blocks", "expected the names of the columns"),
        (
            "0,1,100,100,node1:1:1,1,2,",
            "0,1,100,",
            "line 21: expected 22 columns, .* found .0,1,100,0",
        ),
        ("0,1,100,100,node1:1:1,1,2,", "7,0,1,100,100,node1:1:1,1,2,", "expected 22 columns"),
        ("0,1,100,100,node1:1:1,1,2,", "0,1,100,100,node1:1:1,1,1e9,", "22 columns, whole numbers"),
        ("0,1,100,100,node1:1:1,1,2,", "0,1,100,100,node1:1:1,3,2,", "22 columns, whole numbers"),
        ("0,1,100,100,node1:1:1,1,2,", "0,1,100,0,node1:1:1,1,2,", "whole numbers within range"),
        ("0,1,100,100,node1:1:1,1,2,", "-1,1,100,100,node1:1:1,1,2,", "whole numbers within range"),
        ("0,1,100,100,node1:1:1,1,2,", "9" * 200_000, "22 columns, .* found '9+…"),
        (
            "0,1,100,100,node1:1:1,1,2,",
            "9" * 5000 + ",1,100,100,node1:1:1,1,2,",
            "22 columns",
        ),
        (
            "0,1,100,100,node1:1:1,1,2,0,0,0,0,0,1,0,1000000,1,1,0,0,0,0,0\n",
            "",
            "expected 2 blocks in place of 1",
        ),
    ],
)
def test_a_csv_of_something_else_is_refused(old, new, words, saved, tmp_path):
    assert old is None or saved.count(old) == 1
    path = tmp_path / "blocks.csv"
    text = new if old is None else saved.replace(old, new)
    path.write_text(text, errors="surrogateescape")
    with pytest.raises(TimingsError, match=rf"blocks\.csv: .*{words}"):
        Timings.from_csv(path)


def test_a_cut_csv_is_refused_wherever_it_is_cut(saved, tmp_path):
    path = tmp_path / "blocks.csv"
    for length in range(len(saved) - 2):  # it is complete even without the final line end
        path.write_text(saved[:length])
        with pytest.raises(TimingsError):
            Timings.from_csv(path)


def test_chrome_trace_is_what_perfetto_reads(timings, tmp_path):
    path = tmp_path / "trace.json"
    timings.to_chrome_trace(path)
    events = json.loads(path.read_text())["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert sorted(names.values()) == [worker.worker for worker in timings.workers()]
    slices = [event for event in events if event["ph"] == "X"]
    attempts = [attempt for attempt in timings.abandoned if attempt.timing.worker]
    assert len(slices) == 6 * (len(timings.blocks) + len(attempts))
    for event in slices:
        assert event["tid"] in names
        assert isinstance(event["pid"], int)
        assert event["ts"] >= 0
        assert event["dur"] >= 0
    # Slices of a row follow each other or are nested; Perfetto drops other slices.
    for row in names:
        blocks = [e for e in slices if e["tid"] == row and e["name"].startswith("block")]
        blocks.sort(key=lambda event: event["ts"])
        ends = [event["ts"] + event["dur"] for event in blocks]
        starts = [event["ts"] for event in blocks]
        assert all(end <= start + 1e-3 for end, start in zip(ends, starts[1:], strict=False))
    with pytest.raises(FileExistsError):
        timings.to_chrome_trace(path)


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


def hung(number, worker, start, length):
    """Attempt whose result never arrived."""
    return DuplicateAttempt(
        replace(block(number, worker, start, length), compute=0, calls=0), False
    )


def test_a_slow_worker_is_named():
    ms = 10**6
    slow = block(6, "host:1:2", 0, 190 * ms, n_frames=16)
    fast = [block(k, "host:1:1", 20 * k * ms, 20 * ms, n_frames=16) for k in range(6)]
    timings = Timings("threads", 0, 0, 200 * ms, blocks=[*fast, slow])
    (straggler,) = timings.stragglers()
    assert (straggler.worker, straggler.cause) == ("host:1:2", "computing")
    assert straggler.seconds_lost > 0.1
    (named,) = (line for line in str(timings).splitlines() if "straggler" in line)
    assert named.startswith("host:1:2")


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
        "worker                           blocks  frames  open s  read s  decode s  transform s"
        "  compute s  wait s  rest s  µs/frame  MB read\n"
        "host:1:1 (straggler: computing)       1     100   0.000   0.000     0.000        0.000"
        "      2.000   0.500   0.000   20000.0      1.0\n"
        "host:1:2                              2     200   0.000   0.000     0.000        0.000"
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
