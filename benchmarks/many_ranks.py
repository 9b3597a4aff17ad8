"""Predict runs on hundreds and on ten thousand ranks, which were not measured.

The job is that of Khoshlessan et al. 2020 on SDSC Comet: its frames, its serial times.
"""

import itertools
import math
import random
import statistics
from collections.abc import Iterator
from dataclasses import astuple, dataclass, replace

import numpy as np

from benchmarks.model_fit import fit
from benchmarks.model_rows import (
    CORES,
    FRAME_BYTES,
    N_FRAMES,
    Constants,
    at_work,
    cases,
    published_deal,
    stated,
)
from benchmarks.simulate import simulate
from paceline.model import FILE_SYSTEMS, NETWORKS, FileSystem, FrameCost, Prediction, Unevenness
from paceline.model import predict as predict_run
from paceline.scaling.predict import last_that_pays, usual_block

RANKS = (24, 384, 10_000)
#: Ranks of a smooth curve.
CURVE = sorted({*(round(10 ** (k / 12)) for k in range(49)), *RANKS})
#: What is done with the file: its layout, its series in Table 5, and how many servers hold a file.
FILES = {
    "one XTC file": ("shared", "single", 1),
    "one XTC file, over all servers": ("shared", "single", FILE_SYSTEMS["lustre"].servers),
    "one XTC file a rank": ("split", "splitting", 1),
    "one HDF5 file, MPI-IO": ("h5md", "phdf5", 1),
}
#: As the papers read it: each rank opens and parses for itself, a request for each frame, equal
#: shares. As paceline does: opened once, a request for each block, blocks assigned dynamically.
PAPERS, OURS = "as published", "as paceline reads"
#: Schedules are compared on a job so many times as long: at 10,000 ranks there is little of it.
LONGER = 10
SEEDS = range(3)
#: The fit takes what a server spends on a request as one; here its bytes are counted apart.
FITTED_BYTES, SERVER_BANDWIDTH = FRAME_BYTES["phdf5"], FILE_SYSTEMS["lustre"].server_bandwidth


@dataclass(frozen=True)
class Reading:
    """A way to read a file, and the file system."""

    way: str
    file: str
    constants: Constants

    def predict(
        self,
        n_ranks: int,
        *,
        schedule: str | None = None,
        uneven: Unevenness | None = None,
        times: int = 1,
        t_deal: float = 0.0,
    ) -> Prediction:
        """The job, or one of so many times as many frames."""
        layout, series, stripes = FILES[self.file]
        return predict_run(
            serial_cost(series),
            times * N_FRAMES,
            n_ranks,
            file_system=self._file_system(stripes),
            per_node=CORES["Comet"],
            schedule=schedule or ("static" if self.way == PAPERS else "dynamic"),
            layout=layout,
            network=NETWORKS["infiniband"],
            uneven=uneven,
            request_frames=1 if self.way == PAPERS else None,
            t_deal=t_deal,
        )

    def _file_system(self, stripes: int) -> FileSystem:
        # Comet's servers are not described; see the profile for what is known of such ones.
        system = replace(
            FILE_SYSTEMS["lustre"],
            stripe_count=stripes,
            t_lock=self.constants.t_lock,
            t_request=max(0.0, self.constants.t_request - FITTED_BYTES / SERVER_BANDWIDTH),
        )
        return replace(system, t_open=self.constants.t_open) if self.way == PAPERS else system

    def range_at(self, n_ranks: int) -> tuple[float, float]:
        """Least and most t_total within the constants' standard errors, s."""
        values, errors = map(np.array, map(astuple, fit()))
        corners = itertools.product((-1, 1), repeat=len(values))
        totals = [
            replace(self, constants=Constants(*np.maximum(values + errors * corner, 0)))
            .predict(n_ranks)
            .t_total
            for corner in corners
        ]
        return min(totals), max(totals)


def serial_cost(series: str) -> FrameCost:
    """Of a frame, from Comet's serial row."""
    row = next(case for case in cases() if (case.cluster, case.access) == ("Comet", series))
    return FrameCost(
        read=row.serial_io / N_FRAMES,
        decode=0.0,  # within the published t_io
        compute=row.serial_comp / N_FRAMES,
        bytes=FRAME_BYTES[series],
    )


def stragglers() -> Unevenness:
    """Slow ranks of Fig. 6: 2 of 72 ranks, 50 s where the others took 17 s."""
    times = {one.what: one.measured for one in stated()}
    factor = times["slow ranks opening the file"] / times["mean of the others"]
    return Unevenness(slow_fraction=2 / 72, slow_factor=factor)


def simulated(n_ranks: int, share: float, n_blocks: int, uneven: Unevenness) -> float:
    """End of the run, s, by events; mean over seeds.

    `share` is the work of a rank, s, in a number of blocks; some ranks are slow.
    """
    ends = []
    for seed in SEEDS:
        chance = random.Random(seed)
        n_slow = round(uneven.slow_fraction * n_ranks)
        slowness = [uneven.slow_factor] * n_slow + [1.0] * (n_ranks - n_slow)
        # Ranks do not keep in step.
        lengths = [chance.uniform(0.9, 1.1) * share / n_blocks for _ in range(n_ranks * n_blocks)]
        ends.append(simulate(lengths, slowness).end)
    return statistics.mean(ends)


def error_elsewhere() -> float:
    """Root mean square of the logarithm of predicted / measured, on the clusters not fitted."""
    constants, _ = fit()
    apart = [
        math.log(at_work(case.predict(constants)) / case.measured)
        for case in cases()
        if case.cluster != "Comet"
    ]
    return math.sqrt(sum(value**2 for value in apart) / len(apart))


def layout_lines() -> Iterator[str]:
    """A Markdown table: t_total at `RANKS`, of a job a hundred times as long, and the knee."""
    constants, _ = fit()
    heads = [*(f"{n:,} ranks" for n in RANKS), f"100 × the frames, {RANKS[-1]:,} ranks", "knee"]
    yield f"| read | file | {' | '.join(heads)} |"
    yield f"| --- | --- |{' ---: |' * len(heads)}"
    for way, file in itertools.product((PAPERS, OURS), FILES):
        reading = Reading(way, file, constants)
        totals = [reading.predict(n).t_total for n in RANKS]
        totals.append(reading.predict(RANKS[-1], times=100).t_total)
        knee = last_that_pays([reading.predict(n) for n in CURVE]).n_workers
        yield f"| {way} | {file} | {' | '.join(map(_seconds, totals))} | {_rounded(knee)} ranks |"


def schedule_lines() -> Iterator[str]:
    """A Markdown table: delay of the last rank if some are slow."""
    yield "| ranks | static | dynamic | dynamic, simulated event by event |"
    yield "| ---: | ---: | ---: | ---: |"
    uneven = stragglers()
    for n in RANKS:
        ratios = [slowed(n, schedule, uneven) for schedule in ("static", "dynamic")]
        ratios.append(slowed_by_events(n, uneven))
        yield f"| {n:,} | {' | '.join(f'{ratio:.2f}' for ratio in ratios)} |"


def dealing_lines() -> Iterator[str]:
    """A Markdown table: time to assign blocks by one process, for the most ranks."""
    yield "| frames | frames a block | t_total | with the time to assign blocks |"
    yield "| ---: | ---: | ---: | ---: |"
    n_ranks, reading = RANKS[-1], _split_file()
    for times in (1, 10, 100):
        n_frames = times * N_FRAMES
        block = usual_block(serial_cost("splitting"), n_frames, n_ranks)
        totals = (
            reading.predict(n_ranks, times=times, t_deal=t_deal).t_total
            for t_deal in (0.0, published_deal())
        )
        yield f"| {n_frames:,} | {block:,} | {' | '.join(map(_seconds, totals))} |"


def slowed(n_ranks: int, schedule: str, uneven: Unevenness) -> float:
    """Factor of the time until the last rank is done, if some are slow."""
    slow, even = (
        until_done(_split_file().predict(n_ranks, schedule=schedule, uneven=one, times=LONGER))
        for one in (uneven, None)
    )
    return slow / even


def slowed_by_events(n_ranks: int, uneven: Unevenness) -> float:
    """Simulate the same with dynamic scheduling."""
    even = _split_file().predict(n_ranks, times=LONGER)
    block = usual_block(serial_cost("splitting"), LONGER * N_FRAMES, n_ranks)
    n_blocks = round(LONGER * N_FRAMES / n_ranks / block)
    return simulated(n_ranks, at_work(even), n_blocks, uneven) / until_done(even)


def until_done(found: Prediction) -> float:
    """From when ranks begin until the slowest is done, s."""
    return at_work(found) + found.t_wait


def _split_file() -> Reading:
    return Reading(OURS, "one XTC file a rank", fit()[0])


def _seconds(value: float) -> str:
    return f"{_rounded(value)} s"


def _rounded(value: float) -> str:
    """Two digits: more are not known."""
    return f"{float(f'{value:.2g}'):,g}"
