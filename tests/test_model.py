"""Tests of the performance model: limits, schedules of the real scheduler, its command, published
times.

Published times are from clusters that were not used to fit the constants.
"""

import csv
import heapq
import itertools
import math
import random
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks.model_fit import LOCK, left_out, seconds, t_lock
from benchmarks.model_rows import at_work, cases
from benchmarks.simulate import simulate
from paceline.cli import main
from paceline.engine import scheduler
from paceline.errors import UnsupportedError
from paceline.model import FILE_SYSTEMS, FileSystem, FrameCost, Unevenness, predict
from paceline.performance.model import dynamic_time, queued, static_time
from paceline.timing import BlockTiming

ROOT = Path(__file__).parents[1]
COST = FrameCost(read=200e-6, decode=100e-6, compute=90e-6, bytes=12_000)
SLOW = FileSystem(server_bandwidth=300e6, t_lock=20e-6)
WAYS = list(itertools.product(("static", "dynamic"), ("shared", "split")))


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
        # The last block, or a share that is one frame longer, may add to the wait.
        assert 0 <= found.t_wait <= COST.seconds


@pytest.mark.parametrize(("schedule", "layout"), WAYS)
def test_more_workers_never_do_the_work_more_slowly(schedule, layout):
    # By default, paceline uses smaller blocks for more workers, and so makes more requests.
    options = {"schedule": schedule, "layout": layout, "request_frames": 16}
    times = [
        at_work(predict(COST, 10**6, n, file_system=SLOW, per_node=24, **options))
        for n in (1, 2, 5, 24, 48, 384, 10_000)
    ]
    assert times == sorted(times, reverse=True)


@pytest.mark.parametrize(
    ("name", "figure", "worse"), [("server_bandwidth", 300e6, 200e6), ("t_lock", 50e-6, 70e-6)]
)
def test_a_worse_file_system_is_slower(name, figure, worse):
    for n in (2, 24, 384):
        ideal, better, slower = (
            predict(COST, 10**5, n, file_system=system, per_node=24, request_frames=1).t_total
            for system in (FileSystem(), FileSystem(**{name: figure}), FileSystem(**{name: worse}))
        )
        assert ideal < better < slower


def test_only_the_longest_queue_is_waited_in():
    one, other, both = (
        FileSystem(**chosen)
        for chosen in (
            {"server_bandwidth": 120e6},
            {"t_lock": 100e-6},
            {"server_bandwidth": 120e6, "t_lock": 100e-6},
        )
    )
    times = [
        predict(COST, 10**5, 24, file_system=chosen, request_frames=1).t_io
        for chosen in (one, other, both)
    ]
    assert times[0] == times[1] == times[2]


def test_many_workers_take_as_long_as_what_they_share():
    # Reading 12 GB at 300 MB/s takes 40 s, for any number of readers.
    slow = FileSystem(server_bandwidth=300e6)
    assert at_work(predict(COST, 10**6, 10_000, file_system=slow)) == pytest.approx(40, 1e-3)


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
    assert cost.compute == pytest.approx(4e-4 / 32)
    # Time without opening files.
    assert cost.seconds == pytest.approx(1.6e-3 / 32)
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


def test_parts_add_up():
    lustre = FILE_SYSTEMS["lustre"]
    found = predict(COST, 10**6, 384, file_system=lustre, per_node=24, t_start=3.0)
    assert found.t_start == 3.0
    assert found.t_total == pytest.approx(3.0 + at_work(found) + found.t_wait)


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
    """Clock of the scheduler."""

    now = 0.0

    def monotonic(self):
        return self.now


def assign_for_real(monkeypatch, blocks, slowness):
    """Assign blocks in the order of the real scheduler, with a simulated clock."""
    clock = Clock()
    monkeypatch.setattr(scheduler, "time", clock)
    works = [
        SimpleNamespace(job=0, level=0, number=k, n_frames=1, threads=1) for k in range(len(blocks))
    ]
    assigner = scheduler.Scheduler(works)
    events, idle, done_by = [], list(range(len(slowness))), {}
    while not assigner.finished:
        while idle and (work := assigner.assign() or assigner.assign_overdue()) is not None:
            worker = idle.pop(0)
            taken = blocks[work.number] * slowness[worker]
            heapq.heappush(events, (clock.now + taken, worker, work))
        patience = assigner.seconds_until_overdue() if idle else math.inf
        if clock.now + patience < events[0][0]:
            # Because of rounding, slightly more time may be needed than expected.
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


def test_a_simulated_worker_that_is_late_takes_fewer_blocks():
    course = simulate([1.0] * 6, [1.0, 1.0], [2.5])
    assert course.done_by == [1, 1, 1, 0, 1, 0]
    assert course.end == 4.5


@pytest.mark.parametrize("n_workers", [2, 24, 384])
@pytest.mark.parametrize(
    ("slow_fraction", "slow_factor", "late"),
    [
        (0.0, 1.0, 0.0),
        (0.05, 3.0, 0.0),
        (0.05, 10.0, 0.0),
        (0.3, 2.0, 0.0),
        (0.05, 1.0, 40.0),
        (0.5, 1.0, 8.0),
        (0.9, 1.0, 40.0),
        (0.3, 3.0, 5.0),
    ],
)
def test_the_formula_of_assignment_is_close_to_events(n_workers, slow_fraction, slow_factor, late):
    random_ = random.Random(n_workers)
    n_slow = round(slow_fraction * n_workers)
    ends = []
    for _ in range(5):
        slowness = [slow_factor] * n_slow + [1.0] * (n_workers - n_slow)
        slowness = [value * random_.uniform(0.97, 1.03) for value in slowness]
        blocks = [random_.uniform(0.9, 1.1) for _ in range(16 * n_workers)]
        ends.append(simulate(blocks, slowness, [late] * n_slow).end)
    uneven = Unevenness(slow_fraction=n_slow / n_workers, slow_factor=slow_factor, late=late)
    assert dynamic_time(16.0, 1.0, n_workers, uneven) == pytest.approx(sum(ends) / 5, rel=0.1)


def test_static_shares_wait_for_the_slowest():
    uneven = Unevenness(slow_fraction=0.05, slow_factor=10)
    assert static_time(16.0, 384, uneven) == pytest.approx(160.0)
    assert dynamic_time(16.0, 1.0, 384, uneven) < 20
    late = Unevenness(slow_fraction=0.05, late=50.0)
    assert static_time(16.0, 384, late) == pytest.approx(66.0)
    assert dynamic_time(16.0, 1.0, 384, late) < 18


@pytest.mark.parametrize(
    ("named", "wanted"),
    [
        ({"n_frames": 0}, "n_frames"),
        ({"n_workers": 0}, "n_workers"),
        ({"per_node": 0}, "per_node"),
        ({"block_frames": 0}, "block_frames"),
        ({"t_start": math.nan}, "t_start"),
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
        (FileSystem, {"server_bandwidth": 0.0}, "server_bandwidth"),
        (FileSystem, {"server_bandwidth": math.nan}, "server_bandwidth"),
        (FileSystem, {"t_lock": -1.0}, "t_lock"),
        (FileSystem, {"t_lock": math.inf}, "t_lock"),
        (Unevenness, {"slow_fraction": 1.5}, "slow_fraction"),
        (Unevenness, {"slow_factor": 0.5}, "slow_factor"),
        (Unevenness, {"late": math.nan}, "late"),
    ],
)
def test_figures_that_make_no_sense_are_refused(kind, given, wanted):
    with pytest.raises(UnsupportedError, match=wanted):
        kind(**given)


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf])
def test_costs_are_finite_and_positive(bad):
    with pytest.raises(UnsupportedError, match="decode"):
        FrameCost(read=0.0, decode=bad, compute=1e-6, bytes=10)
    with pytest.raises(UnsupportedError, match="more than 0 s in total"):
        FrameCost(read=0.0, decode=0.0, compute=0.0, bytes=10)


JOB = shlex.split(
    "predict --frames 100000 --bytes 12kB --read 0.1ms --decode 0.2ms --compute 0.1ms"
)


def rows_of(text):
    return list(csv.DictReader(text.splitlines(), delimiter="\t"))


def test_table_of_one_curve(capsys):
    assert main([*JOB, "--n-workers", "24", "--file-system", "memory"]) == 0
    found = capsys.readouterr()
    rows = rows_of(found.out)
    assert [int(row["workers"]) for row in rows] == [1, 2, 4, 8, 16, 24]
    assert float(rows[0]["t_total (s)"]) == pytest.approx(40.0)
    assert float(rows[0]["t_io (s)"]) == pytest.approx(10.0)
    assert "fastest with 24 workers" in found.err


def test_schedules_and_layouts_are_compared(capsys):
    options = shlex.split("--n-workers 24 384 --per-node 24 --file-system lustre")
    choices = shlex.split("--request-frames 1 --schedule static dynamic --layout shared split")
    stragglers = shlex.split("--slow-fraction 0.1 --slow-factor 3 --late 2s")
    assert main([*JOB, *options, *choices, *stragglers]) == 0
    total = {
        (row["schedule"], row["layout"]): float(row["t_total (s)"])
        for row in rows_of(capsys.readouterr().out)
        if row["workers"] == "24"
    }
    assert len(total) == 4
    for layout in ("shared", "split"):
        assert total["dynamic", layout] + 2 < total["static", layout]
    for schedule in ("dynamic", "static"):
        assert total[schedule, "split"] < total[schedule, "shared"]


def test_figures_that_are_given_replace_those_of_the_profile(capsys):
    job = shlex.split("predict --frames 1000 --bytes 1MB --n-workers 1 --file-system ssd")
    read = []
    for options in ([], ["--server-bandwidth", "1GB"]):
        assert main([*job, *options]) == 0
        read.append(float(rows_of(capsys.readouterr().out)[0]["t_io (s)"]))
    assert read == pytest.approx([0.5, 1.0])


def test_files_are_written(tmp_path, capsys):
    table, figure = tmp_path / "predicted.csv", tmp_path / "predicted.svg"
    assert main([*JOB, "-o", str(table), "--plot", str(figure)]) == 0
    assert capsys.readouterr().out == ""
    lines = [line for line in table.read_text().splitlines() if not line.startswith("#")]
    assert len(lines) == 1 + 7
    assert "workers" in figure.read_text()
    # Neither file is replaced without --overwrite.
    assert main([*JOB, "-o", str(table)]) == 2
    assert "predicted.csv" in capsys.readouterr().err


def test_what_is_fastest_is_told_in_words(capsys):
    assert main(["predict", "--frames", "1", "--bytes", "12kB", "--n-workers", "2"]) == 0
    found = capsys.readouterr()
    assert "fastest with 1 worker, 0.006 ms; efficiency is 50 % or more" in found.err


@pytest.mark.parametrize("option", ["--read=fast", "--bytes=12x", "--n-workers=0", "--late=-1s"])
def test_numbers_that_are_none_are_refused(option, capsys):
    with pytest.raises(SystemExit) as stop:
        main([*JOB, option])
    assert stop.value.code == 2
    assert "expected" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--network=infiniband", "--t-open=1s", "--file-system=comet"])
def test_options_that_were_removed_are_refused_by_name(option, capsys):
    with pytest.raises(SystemExit) as stop:
        main([*JOB, option])
    assert stop.value.code == 2
    assert option.partition("=")[2] in capsys.readouterr().err


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """Tables that the benchmark prints, by title; it also draws its figure."""
    figure = tmp_path_factory.mktemp("model") / "model.svg"
    command = [sys.executable, "-m", "benchmarks", "model", "--tsv", "--figure", figure]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert figure.stat().st_size > 0
    tables = {}
    for part in done.stdout.strip().split("\n\n"):
        title, _, *rows = part.splitlines()
        tables[title.removeprefix("# ")] = [row.split("\t") for row in rows]
    return tables


def error_of(predicted, **wanted):
    """Return the mean error of some rows, relative to the measured times."""
    rows = [
        case
        for case in cases()
        if all(getattr(case, name) == value for name, value in wanted.items())
    ]
    return sum(abs(predicted[case] / case.measured - 1) for case in rows) / len(rows)


def test_each_row_was_predicted_without_its_cluster():
    for case, predicted in left_out((LOCK,)).items():
        assert predicted == pytest.approx(at_work(case.predict(t_lock(without=case.cluster))))


def test_only_the_lock_makes_left_out_clusters_better_on_two_of_three():
    plain = left_out(())
    gains = {}
    for name in ("lock of a node", "time per request", "link of a node", "bandwidth of a file"):
        found = left_out((name,))
        gains[name] = [
            error_of(plain, cluster=cluster) - error_of(found, cluster=cluster)
            for cluster in ("Comet", "SuperMIC", "Bridges")
        ]
    better = {name: sum(gain > 0.01 for gain in each) for name, each in gains.items()}
    assert better == {
        "lock of a node": 2,
        "time per request": 0,
        "link of a node": 0,
        "bandwidth of a file": 0,
    }
    assert gains["lock of a node"][1] < 0


def test_a_shared_file_is_predicted_better_than_by_serial_over_n(published):
    ours, plain = left_out((LOCK,)), left_out(())
    assert error_of(ours, access="single") < 0.8 * error_of(plain, access="single")
    others = [case for case in cases() if case.access != "single"]
    assert all(ours[case] == pytest.approx(plain[case]) for case in others)
    *rows, (*_, plain_error, _, our_error) = published["shared file / split files, t_io + t_comp"]
    assert float(our_error) < 0.5 * float(plain_error)
    worse = [row for row in rows if abs(float(row[-1])) > abs(float(row[5]))]
    assert len(rows) == 10
    assert len(worse) == 1


def test_whole_runs_with_stragglers_are_predicted_from_one_another(published):
    for _, *cells in published["whole runs with stragglers (text), Comet, 72 ranks"]:
        measured, plain, ours, others, at_work_ = map(float, cells)
        assert plain < measured / 3
        assert ours == pytest.approx(measured, rel=0.25)
        assert at_work_ == pytest.approx(others, rel=0.15)


def test_one_h5md_file_is_predicted_from_the_other_cluster(published):
    *rows, (_, _, _, _, plain, _, ours) = published["one H5MD file (Jakupovic & Beckstein 2021)"]
    assert len(rows) == 5
    assert float(ours) < 0.5 * float(plain)
    assert all(float(row[-1]) < float(row[4]) for row in rows)


def test_hdf5_parts_of_supermic_are_exchanged_in_the_source():
    # The model uses only the sum of both, which fits the serial run.
    for case in cases():
        if case.access == "phdf5":
            is_supermic = case.cluster == "SuperMIC"
            assert (case.t_io < case.t_comp) == is_supermic
            assert case.serial_io > case.serial_comp


def test_the_profile_holds_the_fitted_lock(published):
    assert FILE_SYSTEMS["lustre"].t_lock == pytest.approx(t_lock(), rel=0.02)
    locks = [float(row[2]) for row in published["constants"] if row[0] == "t_lock"]
    assert max(locks) < 1.15 * min(locks)
    # With given constants, a row is the same with and without the formula of the package.
    case = cases()[0]
    assert seconds(case, {LOCK: 22e-6}) == pytest.approx(at_work(case.predict(22e-6)))


@pytest.mark.full
def test_tables_of_the_manual_are_those_of_the_script(tmp_path):
    for name in ("images", "tables"):
        (tmp_path / name).mkdir()
    command = [sys.executable, "-m", "benchmarks.model_figures", tmp_path]
    subprocess.run(command, cwd=ROOT, check=True)
    made = {path.name: path.read_text() for path in (tmp_path / "tables").iterdir()}
    kept = ROOT / "docs" / "tables"
    assert made == {name: (kept / name).read_text() for name in made}
    assert {path.name for path in kept.glob("m*-*.txt")} == set(made)


def test_requests_to_a_store():
    store = FileSystem(latency=0.1, connection_bandwidth=50e6)
    one = 2**20
    assert store.node_bandwidth == pytest.approx(24 * one / (0.1 + one / 50e6))
    assert FileSystem().node_bandwidth == math.inf
    # A program that sends one request after another.
    assert store.read_time(1e6, 1) == pytest.approx(0.1 + 1e6 / 50e6)
    cost = FrameCost(read=0.0, decode=1e-6, compute=0.0, bytes=1e6)
    fast = [predict(cost, 10**5, n, file_system=store, per_node=8).t_total for n in (8, 64)]
    # Workers of a node share its requests; eight nodes have eight times as many.
    assert fast[0] == pytest.approx(10**5 * 1e6 / store.node_bandwidth, rel=0.02)
    assert fast[1] == pytest.approx(fast[0] / 8, rel=0.02)


def test_the_command_prints_the_price_of_a_store(capsys):
    line = "predict --frames 1000 --bytes 1MB --decode 1us --file-system store --n-workers 4"
    assert main([*line.split(), "--price-per-gb", "0.1", "--price-per-1000-requests", "2"]) == 0
    # 1000 MB, in requests of 1 MiB.
    assert "1 GB in 954 requests cost 2" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["latency", "connection_bandwidth"])
def test_wrong_figures_of_a_store(name):
    with pytest.raises(UnsupportedError, match=f"{name} of a file system"):
        FileSystem(**{name: -1.0})
