"""The model: its limits, its schedules beside the real scheduler's, and the published times."""

import heapq
import itertools
import math
import random
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks.simulate import simulate
from paceline.errors import UnsupportedError
from paceline.model import FILE_SYSTEMS, NETWORKS, FileSystem, FrameCost, Unevenness, predict
from paceline.scaling.predict import dynamic_time, queued, static_time
from paceline.schedule import scheduler
from paceline.timing import BlockTiming

ROOT = Path(__file__).parents[1]
COST = FrameCost(read=200e-6, decode=100e-6, compute=90e-6, bytes=12_000)
SLOW = FileSystem(server_bandwidth=300e6, node_bandwidth=1e9, t_lock=20e-6, t_request=1e-6)
WAYS = list(itertools.product(("static", "dynamic"), ("shared", "split", "h5md")))


def at_work(found):
    return found.t_io + found.t_decode + found.t_comp


@pytest.mark.parametrize(("schedule", "layout"), WAYS)
@pytest.mark.parametrize("file_system", [FileSystem(), SLOW])
def test_one_worker_takes_the_sum_of_its_frames(schedule, layout, file_system):
    found = predict(COST, 1000, 1, file_system=file_system, schedule=schedule, layout=layout)
    assert found.t_total == pytest.approx(0.39)
    assert (found.t_io, found.t_decode, found.t_comp) == pytest.approx((0.2, 0.1, 0.09))


@pytest.mark.parametrize(("schedule", "layout"), WAYS)
def test_where_nothing_is_shared_scaling_is_perfect(schedule, layout):
    n_frames = 16 * 10_000
    for n in (2, 24, 1000):
        found = predict(COST, n_frames, n, schedule=schedule, layout=layout, block_frames=1)
        assert at_work(found) * n == pytest.approx(n_frames * COST.seconds)
        # But for the last block, or the share that is a frame longer.
        assert 0 <= found.t_wait <= COST.seconds


@pytest.mark.parametrize(("schedule", "layout"), WAYS)
def test_more_workers_never_do_the_work_more_slowly(schedule, layout):
    # Left to itself, paceline cuts smaller blocks for more workers, and so asks more often.
    options = {"schedule": schedule, "layout": layout, "request_frames": 16}
    times = [
        at_work(predict(COST, 10**6, n, file_system=SLOW, per_node=24, **options))
        for n in (1, 2, 5, 24, 48, 384, 10_000)
    ]
    assert times == sorted(times, reverse=True)


@pytest.mark.parametrize(
    ("name", "figure", "worse"),
    [
        ("server_bandwidth", 300e6, 200e6),
        ("node_bandwidth", 100e6, 50e6),
        ("t_lock", 50e-6, 70e-6),
        ("t_request", 50e-6, 70e-6),
        ("t_open", 0.1, 0.2),
        ("t_metadata", 0.1, 0.2),
    ],
)
def test_a_worse_file_system_is_slower(name, figure, worse):
    for n in (2, 24, 384):
        ideal, better, slower = (
            predict(COST, 10**5, n, file_system=system, per_node=24, request_frames=1).t_total
            for system in (FileSystem(), FileSystem(**{name: figure}), FileSystem(**{name: worse}))
        )
        assert ideal < better < slower


def test_only_the_longest_queue_is_waited_in():
    server, link = FileSystem(server_bandwidth=300e6), FileSystem(node_bandwidth=300e6)
    both = FileSystem(server_bandwidth=300e6, node_bandwidth=300e6)
    times = [predict(COST, 10**5, 24, file_system=chosen).t_io for chosen in (server, link, both)]
    assert times[0] == times[1] == times[2]


def test_many_workers_take_as_long_as_what_they_share():
    # 12 GB from one server of 300 MB/s: 40 s, whoever reads them.
    one_server = FileSystem(server_bandwidth=300e6)
    assert at_work(predict(COST, 10**6, 10_000, file_system=one_server)) == pytest.approx(40, 1e-3)
    four = FileSystem(server_bandwidth=300e6, stripe_count=4)
    assert at_work(predict(COST, 10**6, 10_000, file_system=four)) == pytest.approx(10, 1e-2)
    # Files of their own lie on all servers.
    spread = FileSystem(server_bandwidth=300e6, servers=8)
    split = predict(COST, 10**6, 10_000, file_system=spread, layout="split")
    assert at_work(split) == pytest.approx(5, 2e-2)


def test_frames_that_were_measured_in_memory_take_what_the_disk_takes():
    cost = FrameCost(read=0.0, decode=1e-6, compute=1e-6, bytes=12_000)
    for n in (1, 24):
        found = predict(cost, 10**5, n, file_system=FileSystem(server_bandwidth=120e6))
        assert at_work(found) == pytest.approx(10.0)


def test_costs_of_a_run():
    blocks = [
        BlockTiming(
            **{"job": 0, "block": k, "first_frame": 16 * k, "n_frames": 16, "worker": "a:1:1"},
            **{"start": 10**6 * k, "end": 10**6 * (k + 1), "wait": 0, "open": 4 * 10**5 * (k == 0)},
            **{"read": 10**5, "decode": 2 * 10**5, "transform": 0, "compute": 2 * 10**5},
            **{"comm": 0, "bytes": 3200, "calls": 1},
        )
        for k in range(2)
    ]
    cost = FrameCost.of(blocks)
    assert (cost.read, cost.decode) == pytest.approx((1e-4 / 16, 2e-4 / 16))
    # With transformations and what is none of the parts; without opening.
    assert cost.compute == pytest.approx((1.6e-3 - 6e-4) / 32)
    assert cost.bytes == 200
    with pytest.raises(UnsupportedError, match="no frames"):
        FrameCost.of([])


def test_a_lock_is_shared_within_nodes_and_only_by_those_who_read_the_same_file():
    locked = FileSystem(t_lock=100e-6)
    options = {"file_system": locked, "request_frames": 1}
    on_one, on_four, alone = (
        at_work(predict(COST, 10**6, 24, per_node=n, **options)) for n in (24, 6, 1)
    )
    assert on_one > on_four > alone == pytest.approx(10**6 * COST.seconds / 24)
    assert on_one == pytest.approx(100.0, rel=0.05)
    split = predict(COST, 10**6, 24, per_node=24, layout="split", **options)
    assert at_work(split) == pytest.approx(alone)


def test_more_workers_than_frames_are_idle():
    few, many = (predict(COST, 10, n, schedule="static", file_system=SLOW) for n in (10, 1000))
    assert at_work(many) == at_work(few)
    assert many.t_total == few.t_total


def test_equal_shares_are_not_quite_equal():
    found = predict(COST, 100, 99, schedule="static")
    assert found.t_total == pytest.approx(2 * COST.seconds)


def test_parts_add_up_and_have_the_units_that_are_said():
    found = predict(
        COST,
        10**6,
        384,
        file_system=FILE_SYSTEMS["lustre"],
        network=NETWORKS["infiniband"],
        per_node=24,
        t_start=3.0,
    )
    parts = (found.t_start, found.t_open, at_work(found), found.t_wait, found.t_comm)
    assert found.t_total == pytest.approx(sum(parts))
    # Nine rounds of 2 µs and 16 MB at 7 GB/s.
    assert found.t_comm == pytest.approx(9 * 2e-6 + 16e6 / 7e9)
    assert found.t_start == 3.0


def test_opens_are_served_in_line():
    opening = FileSystem(t_open=0.5)
    shared, split = (
        predict(COST, 10**6, 72, file_system=opening, schedule="static", layout=layout).t_open
        for layout in ("shared", "split")
    )
    assert (shared, split) == (36.0, 0.0)


def test_dealt_blocks_wait_less_for_those_who_open_late():
    cost, opening = FrameCost(read=0.0, decode=0.0, compute=1e-3, bytes=0), FileSystem(t_open=1.0)
    options = {"file_system": opening, "block_frames": 1}
    # Three workers, who open it at 1, 2 and 3 s, and 9 s of work: done at 5 s.
    assert predict(cost, 9000, 3, **options).t_total == pytest.approx(5.0, abs=0.001)
    assert predict(cost, 9000, 3, schedule="static", **options).t_total == pytest.approx(6.0)
    # Who would open it when all is done does no harm.
    ends = [predict(cost, 9000, n, **options).t_total for n in (4, 5, 1000)]
    assert ends == pytest.approx([4.75] * 3, abs=0.001)


def test_who_deals_can_be_too_slow():
    options = {"block_frames": 16, "t_deal": 1e-3}
    # 62,500 blocks at 1 ms each: a minute, whoever computes.
    assert predict(COST, 10**6, 10_000, **options).t_total == pytest.approx(62.5, rel=0.01)
    few, free = (predict(COST, 10**6, 3, block_frames=16, t_deal=t).t_total for t in (1e-3, 0.0))
    assert free < few < 1.25 * free
    assert predict(COST, 10**6, 24, schedule="static", **options).t_wait < COST.seconds


def test_the_queue_is_close_to_its_exact_solution():
    for n, service in itertools.product((1, 2, 5, 10, 100), (0.001, 0.02, 0.1, 0.3, 0.5)):
        assert queued(1.0, service, n) == pytest.approx(exact_queue(1.0, service, n), rel=0.08)


def exact_queue(alone, service, n_workers):
    """Mean value analysis, customer by customer (Reiser and Lavenberg 1980)."""
    waiting, own = 0.0, alone - service
    for n in range(1, n_workers + 1):
        response = service * (1 + waiting)
        waiting = n * response / (own + response)
    return own + response


class Clock:
    """What the scheduler takes for the time."""

    now = 0.0

    def monotonic(self):
        return self.now


def assign_for_real(monkeypatch, blocks, slowness):
    """Blocks in the order of the real scheduler, by a clock that is set."""
    clock = Clock()
    monkeypatch.setattr(scheduler, "time", clock)
    works = [SimpleNamespace(job=0, level=0, number=k, n_frames=1) for k in range(len(blocks))]
    assigner = scheduler.Scheduler(works)
    events, idle, done_by = [], list(range(len(slowness))), {}
    while not assigner.finished:
        while idle and (work := assigner.assign() or assigner.assign_overdue()) is not None:
            worker = idle.pop(0)
            taken = blocks[work.number] * slowness[worker]
            heapq.heappush(events, (clock.now + taken, worker, work))
        patience = assigner.seconds_until_overdue() if idle else math.inf
        if clock.now + patience < events[0][0]:
            # As computers add, an instant more may be needed.
            clock.now = max(clock.now + patience, math.nextafter(clock.now, math.inf))
            continue
        clock.now, worker, work = heapq.heappop(events)
        if assigner.complete(work):
            done_by[work.number] = worker
        idle.append(worker)
    return clock.now, [done_by[k] for k in range(len(blocks))]


@pytest.mark.parametrize("seed", range(8))
def test_blocks_are_assigned_as_the_scheduler_does(monkeypatch, seed):
    random_ = random.Random(seed)
    n = random_.choice((2, 5, 24))
    slowness = [random_.choice((1.0, 1.1, 3.0, 40.0)) for _ in range(n)]
    blocks = [random_.uniform(0.5, 1.5) for _ in range(8 * n)]
    end, done_by = assign_for_real(monkeypatch, blocks, slowness)
    course = simulate(blocks, slowness)
    assert course.end == pytest.approx(end)
    assert course.done_by == done_by


def test_a_simulated_worker_that_is_slow_takes_fewer_blocks():
    assert simulate([1.0] * 8, [1.0, 3.0]).done_by == [0, 1, 0, 0, 0, 1, 0, 0]


@pytest.mark.parametrize("n_workers", [2, 24, 384])
@pytest.mark.parametrize(
    ("slow_fraction", "slow_factor"), [(0.0, 1.0), (0.05, 3.0), (0.05, 10.0), (0.3, 2.0)]
)
def test_the_formula_of_assignment_is_close_to_events(n_workers, slow_fraction, slow_factor):
    random_ = random.Random(n_workers)
    n_slow = round(slow_fraction * n_workers)
    ends = []
    for _ in range(5):
        slowness = [slow_factor] * n_slow + [1.0] * (n_workers - n_slow)
        slowness = [value * random_.uniform(0.97, 1.03) for value in slowness]
        blocks = [random_.uniform(0.9, 1.1) for _ in range(16 * n_workers)]
        ends.append(simulate(blocks, slowness).end)
    uneven = Unevenness(slow_fraction=n_slow / n_workers, slow_factor=slow_factor)
    assert dynamic_time(16.0, 1.0, n_workers, uneven) == pytest.approx(sum(ends) / 5, rel=0.12)


def test_static_shares_wait_for_the_slowest():
    uneven = Unevenness(slow_fraction=0.05, slow_factor=10)
    assert static_time(16.0, 384, uneven) == pytest.approx(160.0)
    assert dynamic_time(16.0, 1.0, 384, uneven) < 20
    # The largest of 100 normal deviates is 2.5 standard deviations above their mean.
    assert static_time(1.0, 100, Unevenness(spread=0.1)) == pytest.approx(1.25, abs=0.005)


@pytest.mark.parametrize(
    ("named", "wanted"),
    [
        ({"n_frames": 0}, "n_frames"),
        ({"n_workers": 0}, "n_workers"),
        ({"per_node": 0}, "per_node"),
        ({"block_frames": 0}, "block_frames"),
        ({"t_deal": math.nan}, "t_deal"),
        ({"schedule": "random"}, "schedule"),
        ({"layout": "tape"}, "layout"),
    ],
)
def test_what_makes_no_sense_is_refused(named, wanted):
    given = {"n_frames": 10, "n_workers": 2} | named
    with pytest.raises(UnsupportedError, match=wanted):
        predict(COST, given.pop("n_frames"), given.pop("n_workers"), **given)


@pytest.mark.parametrize(
    ("kind", "given", "wanted"),
    [
        (FileSystem, {"servers": 0}, "servers"),
        (FileSystem, {"node_bandwidth": -1.0}, "node_bandwidth"),
        (FileSystem, {"t_open": math.nan}, "t_open"),
        (Unevenness, {"slow_fraction": 1.5}, "slow_fraction"),
        (Unevenness, {"slow_factor": 0.5}, "slow_factor"),
    ],
)
def test_figures_that_make_no_sense_are_refused(kind, given, wanted):
    with pytest.raises(UnsupportedError, match=wanted):
        kind(**given)


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf])
def test_costs_are_finite_and_positive(bad):
    with pytest.raises(UnsupportedError, match="decode"):
        FrameCost(read=0.0, decode=bad, compute=1e-6, bytes=10)
    with pytest.raises(UnsupportedError, match="no time"):
        FrameCost(read=0.0, decode=0.0, compute=0.0, bytes=10)


#: Rows that are not met; docs/model.md tells why.
NOT_MET = {
    ("Comet", "ga", "splitting", "144"),
    ("SuperMIC", "mpi", "phdf5", "160"),
    *(
        ("SuperMIC", gather, "splitting", ranks)
        for gather in ("mpi", "ga")
        for ranks in ("20", "40", "80", "160")
    ),
    *(("Bridges", "mpi", "phdf5", ranks) for ranks in ("24", "48", "60", "78", "84")),
}
N_ROWS = 50


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """Tables that the benchmark prints, by title; it draws its figure as well."""
    figure = tmp_path_factory.mktemp("model") / "model.svg"
    command = [sys.executable, "-m", "benchmarks", "model", "--tsv", "--figure", figure]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert figure.stat().st_size > 0
    tables = {}
    for part in done.stdout.strip().split("\n\n"):
        title, headings, *rows = part.splitlines()
        names = headings.split("\t")
        tables[title] = [dict(zip(names, row.split("\t"), strict=True)) for row in rows]
    return tables


def test_published_rows_stay_met(published):
    rows = published["# t_io + t_comp, mean over ranks (Table 5)"]
    assert len(rows) == N_ROWS
    unmet = {
        (row["cluster"], row["gather"], row["access"], row["ranks"])
        for row in rows
        if row["verdict"] != "met"
    }
    assert unmet <= NOT_MET


def test_stated_times_stay_met(published):
    rows = published["# times that the text states, Comet"]
    unmet = {row["quantity"] for row in rows if row["verdict"] != "met"}
    assert len(rows) == 8
    assert unmet == {"straggler delay (65 before splitting)"}


def test_the_profile_holds_the_fitted_constants(published):
    fitted = {
        row["constant"]: (float(row["value"]), float(row["error"]))
        for row in published["# constants, fitted on Comet"]
    }
    comet = FILE_SYSTEMS["comet"]
    kept = {
        "t_lock": comet.t_lock * 1e6,
        "t_request": comet.t_request * 1e6,
        "t_open": comet.t_open,
    }
    for name, (value, error) in fitted.items():
        assert kept[name] == pytest.approx(value, rel=0.02)
        assert 0 < error < value
