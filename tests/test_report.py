"""Tests of the report: known facts about made-up runs, and the slow worker in real runs."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from paceline.analysis.rms import RMSD
from paceline.report import advice_of, report_of
from paceline.timing import BlockTiming, DuplicateAttempt, Timings

#: Default times of the parts of a block of 100 frames, seconds.
USUAL = {"open": 0.0, "read": 0.1, "decode": 0.2, "transform": 0.0, "compute": 0.5}


def block(number, worker, start, *, job=0, n_frames=100, rest=0.0, comm=0.0, **parts):
    """Return a block that begins at a time (s), and ends when its parts end."""
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
    """Return consecutive blocks of one worker."""
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
    # Worker a:2:2 waits 0.4 s before its block, which takes 1 s; afterwards it waits 0.2 s and
    # t_after.
    means = {name: spread.mean for name, spread in report.published.items()}
    assert means == pytest.approx(
        {
            "t_opening_trajectory": 0.05,
            "t_IO": 0.45,
            "t_comp": 0.75,
            "t_all_frame": 1.25,
            "t_Overhead1": 0.05,
            "t_Overhead2": 0.0,
            "t_RMSD": 1.3,
            "t_comm": 1.1,
            "t_N": 2.4,
        }
    )
    assert report.published["t_N"].most == pytest.approx(2.6)  # for a:1:1, 1.6 s and t_after


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
    # CHARMM's DCD stores coordinates axis by axis; small gaps between runs of atoms are read, too.
    assert 1 <= report.read_per_used < 3341 / 214 * 1.1
    assert report.trajectory.endswith(".dcd")
    assert report.t_before + report.t_blocks + report.t_after == pytest.approx(report.t_total)
    json.dumps(report.to_dict(), allow_nan=False)


def named(made):
    """Return the stragglers of a run: worker, cause and rules."""
    return [(one.worker, one.cause, one.rules) for one in report_of(made).stragglers]


BOTH = ("median", "fastest quarter")


@pytest.mark.parametrize(
    ("parts", "cause"),
    [
        ({"open": 2.0}, "opening"),
        ({"read": 2.0}, "reading"),
        ({"decode": 2.0}, "decoding"),
        ({"transform": 2.0}, "transforming"),
        ({"compute": 2.0}, "computing"),
        ({"rest": 2.0}, "overhead"),
        ({"comm": 8.0}, "communicating"),
        # Every part takes twice as long; the largest part shows this most clearly.
        ({"read": 0.3, "decode": 0.6, "compute": 1.5}, "computing"),
        # Computing takes less time, but is still the largest part.
        ({"read": 2.0, "compute": 0.4}, "reading"),
    ],
)
def test_the_cause_is_the_part_that_exceeds_the_others_most(parts, cause):
    blocks = [one for k in range(3) for one in row_of_blocks(f"a:{k}:1", 4, first=4 * k)]
    made = timings([*blocks, *row_of_blocks("b:1:1", 3, first=12, **parts)])
    assert named(made) == [("b:1:1", cause, BOTH)]
    (slow,) = report_of(made).stragglers
    assert slow.host == "b"
    assert slow.n_frames == 300
    assert sum(slow.excess.values()) == pytest.approx(slow.seconds_lost)


def test_factor_and_seconds_lost_are_exact():
    blocks = [one for k in range(3) for one in row_of_blocks(f"a:{k}:1", 4, first=4 * k)]
    made = timings([*blocks, *row_of_blocks("b:1:1", 2, first=12, compute=1.7)])
    (slow,) = report_of(made).stragglers
    assert slow.factor == slow.factor_fastest == pytest.approx(2.5)
    assert slow.seconds_lost == slow.excess["computing"] == pytest.approx(2.4)


def test_the_rules_differ():
    def run(*paces):
        return timings([block(k, f"a:{k}:1", 0, compute=pace) for k, pace in enumerate(paces)])

    # One worker is fast, and the others are normal: by the rule of the papers, the others are
    # stragglers.
    found = named(run(0.1, 0.6, 0.6, 0.6))
    assert found == [(f"a:{k}:1", "computing", ("fastest quarter",)) for k in (1, 2, 3)]
    # The worker took 1.6 times the median, and 1.9 times the fastest worker.
    assert named(run(0.38, 0.5, 0.5, 1.0)) == [("a:3:1", "computing", ("median",))]
    assert named(run(0.5, 0.5, 0.5, 0.85)) == []


def test_waiting_counts_while_there_are_blocks_to_be_dealt():
    blocks = [one for k in range(3) for one in row_of_blocks(f"a:{k}:1", 8, first=8 * k)]
    slow = [block(24, "b:1:1", 0), block(25, "b:1:1", 2.8), block(26, "b:1:1", 5.0)]
    assert named(timings([*blocks, *slow])) == [("b:1:1", "waiting", BOTH)]
    # If all other workers were in their last block, no worker is to blame for the same wait.
    late = [block(24, "b:1:1", 0), block(25, "b:1:1", 6.5)]
    assert named(timings([*blocks, *late])) == []
    # The start of a process may last until the first block; this matters if shares are equal.
    late = row_of_blocks("b:1:1", 4, first=24, begun=5)
    assert named(timings([*blocks, *late])) == []
    assert named(timings([*blocks, *late], schedule="static")) == [("b:1:1", "waiting", BOTH)]


def attempt(worker, start, end, *, number=9, came=False):
    made = block(number, worker, start, open=0, read=0, decode=0, compute=0, rest=end - start)
    return DuplicateAttempt(made, came)


def test_who_hangs_at_its_only_block_is_named():
    blocks = [one for k in range(2) for one in row_of_blocks(f"a:{k}:1", 4, first=4 * k)]
    made = timings(blocks, abandoned=[attempt("a:2:1", 0, 3.2)])
    assert named(made) == [("a:2:1", "hanging", BOTH)]
    (worker,) = (one for one in report_of(made).workers if one.worker == "a:2:1")
    assert (worker.n_blocks, worker.t_abandoned, worker.t_wait) == (0, 3.2, 0)
    # An attempt that was abandoned before the duration of a block gives no information.
    assert named(timings(blocks, abandoned=[attempt("a:2:1", 0, 0.7)])) == []
    # The worker of the attempt is unknown.
    assert named(timings(blocks, abandoned=[attempt("", 0, 3.2)])) == []


def test_what_came_too_late_counts_with_its_parts():
    blocks = [one for k in range(2) for one in row_of_blocks(f"a:{k}:1", 4, first=4 * k)]
    late = DuplicateAttempt(block(9, "a:2:1", 0, read=2.0), came=True)
    assert named(timings(blocks, abandoned=[late])) == [("a:2:1", "reading", BOTH)]


def test_frames_of_several_trajectories_are_not_compared():
    """Check two trajectories: one worker had the frames of the large system, the other of the small
    one.
    """
    large, small = {"job": 0, "compute": 5.0}, {"job": 1, "compute": 0.05}
    blocks = [
        *row_of_blocks("a:1:1", 4, **large),
        *row_of_blocks("a:2:1", 1, first=4, **large),
        *row_of_blocks("a:2:1", 9, begun=6, **small),
        *row_of_blocks("a:3:1", 3, first=9, **small),
    ]
    assert named(timings(blocks)) == []
    slow = row_of_blocks("a:4:1", 3, first=20, job=1, compute=1.0)
    assert named(timings([*blocks, *slow])) == [("a:4:1", "computing", BOTH)]


def kinds(made):
    return [advice.kind for advice in advice_of(report_of(made))]


def run_of(n_workers=2, n_blocks=8, **options):
    """Return a run of equal workers, each with this number of blocks."""
    made = {key: options.pop(key) for key in list(options) if hasattr(Timings(), key)}
    rows = (
        row_of_blocks(f"a:{k}:1", n_blocks, first=n_blocks * k, **options) for k in range(n_workers)
    )
    return timings([one for row in rows for one in row], n_workers=n_workers, **made)


@pytest.mark.parametrize(
    ("made", "wanted"),
    [
        (run_of(n_blocks=1, read=0, decode=0, compute=0.1), ["too short"]),
        (run_of(), ["balance", "computing"]),
        (run_of(compute=0.2, decode=1.0), ["balance", "decoding"]),
        (run_of(compute=0.2, read=1.0), ["balance", "reading"]),
        (run_of(compute=0.2, read=1.0, bytes_used=100), ["balance", "reading", "bytes"]),
        (run_of(compute=0.2, transform=2.0), ["balance", "computing"]),
        (run_of(open=0.2), ["balance", "computing", "opening"]),
        (run_of(t_comm=2.0), ["balance", "computing", "collecting"]),
        (run_of(begun=9.0, backend="processes"), ["balance", "computing", "starting"]),
    ],
)
def test_advice_is_what_the_numbers_support(made, wanted):
    assert kinds(made) == wanted


def test_sentences_of_advice_are_separated():
    for made in (run_of(), run_of(compute=0.2, transform=2.0)):
        assert "One shared file is no obstacle. " in text_of(made, "computing")


def text_of(made, kind):
    """Return the text of a recommendation; None without it."""
    return next((one.text for one in advice_of(report_of(made)) if one.kind == kind), None)


def test_advice_of_fewer_workers_where_reading_is_the_limit():
    waiting = {"compute": 0.2, "read": 1.3, "decode": 0.1, "n_blocks": 8}  # a fifth is work
    text = text_of(run_of(n_workers=16, **waiting), "fewer workers")
    assert text.startswith("16 workers did the work of 3.0 and waited for bytes otherwise")
    assert "Try fewer, n_workers=4:" in text
    text = text_of(run_of(n_workers=16, backend="mpi", **waiting), "fewer workers")
    assert text.startswith("16 ranks a node did the work of 3.0")
    assert "--ntasks-per-node=4:" in text
    # Several hosts, each with the same number of workers.
    rows = (
        row_of_blocks(f"{host}:{k}:1", 8, first=8 * k, compute=0.2, read=1.3, decode=0.1)
        for k, host in enumerate("aaaaaaaabbbbbbbb")
    )
    several = timings([one for row in rows for one in row], n_workers=16, backend="dask")
    text = text_of(several, "fewer workers")
    assert text.startswith("8 workers a host did the work of 1.5")
    assert "Try fewer, 3 on each:" in text
    busy = {"compute": 0.6, "read": 0.5, "decode": 0.4}
    assert text_of(run_of(n_workers=16, **busy), "fewer workers") is None
    assert text_of(run_of(n_workers=2, **waiting), "fewer workers") is None


def test_advice_on_idle_workers():
    uneven = [*row_of_blocks("a:1:1", 4), *row_of_blocks("a:2:1", 3, first=4)]
    assert kinds(timings(uneven, n_workers=2)) == ["balance", "computing", "few blocks"]
    assert kinds(timings(uneven, schedule="static")) == ["balance", "computing", "static"]
    # Only one worker of four computed blocks.
    few = timings(row_of_blocks("a:1:1", 3), n_workers=4)
    assert kinds(few) == ["balance", "computing", "few blocks"]
    assert "3 blocks for 4 workers, of which 3 got none" in advice_of(report_of(few))[-1].text
    gaps = [block(k, "a:1:1", 2 * k) for k in range(10)]
    assert kinds(timings(gaps, n_workers=1)) == ["balance", "between blocks"]


def test_blocks_of_no_length_divide_by_nothing():
    nothing = dict.fromkeys(USUAL, 0)
    blocks = [block(k, f"a:{k}:1", 0, **nothing) for k in range(2)]
    (slow,) = report_of(timings([*blocks, block(2, "a:2:1", 0)])).stragglers
    assert slow.factor == slow.factor_fastest == math.inf


def test_advice_names_a_slow_host():
    usual = [one for k in range(4) for one in row_of_blocks(f"a:{k}:1", 8, first=8 * k)]
    slow = [
        one for k in range(2) for one in row_of_blocks(f"b:{k}:1", 3, first=32 + 3 * k, read=1.0)
    ]
    (advice,) = [
        one for one in advice_of(report_of(timings([*usual, *slow]))) if one.kind == "straggler"
    ]
    assert advice.text.startswith("Host b is slow: all of its 2 workers are")
    assert "mostly by reading" in advice.text


def test_advice_has_the_run_s_own_numbers():
    made = run_of(n_workers=3, t_comm=0.24)
    balance, computing = advice_of(report_of(made))
    assert balance.text == (
        "The workers' time went 62 % into computing, 25 % into decoding and 13 % into reading. "
        "Computing took 1.7 times as long as waiting for bytes and decoding them "
        "(R_comp/IO), and 17 times as long as collecting results (R_comp/comm)."
    )
    assert balance.heuristic == "1"
    assert "the blocks would take about 3.2 s rather than 6.4 s" in computing.text
    assert computing.numbers == pytest.approx({"share": 0.625, "t_blocks": 6.4})


#: Runs in which one of four workers is slow; the benchmark uses them, too.
SLOWED = Path(__file__).parents[1] / "benchmarks" / "slowed.py"


@pytest.mark.parametrize(
    ("backend", "slow"),
    [("threads", "computing"), ("threads", "reading"), ("processes", "reading")],
)
def test_the_slow_worker_is_named_and_why(backend, slow, adk, tmp_path):
    command = [SLOWED, *adk, backend, slow, 800, 100, tmp_path]
    with subprocess.Popen(
        [sys.executable, *map(str, command)],
        env=os.environ | {"PYTHONWARNINGS": "ignore"},
        stdout=subprocess.PIPE,
    ) as process:
        # On a busy machine, other workers may be as slow; the run is repeated until the slow one is
        # found.
        runs = map(json.loads, process.stdout)
        assert any(cause_named(run) == slow for run in runs)
        process.kill()


def cause_named(run):
    """Return the cause for the slow worker in a run."""
    named = {one["worker"].split(":", 1)[1]: one["cause"] for one in run["named"]}
    return named.get(run["slow"])
