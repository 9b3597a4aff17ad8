"""Compare methods to assign blocks to MPI ranks.

    python -m benchmarks scheduling [folder] [--repeats 5] [--only …] [--tsv] [--tiny]

Three methods run jobs whose blocks have a known duration, so that there may be more ranks than
cores. The methods are paceline's scheduler on the first rank, which also computes; a counter in the
first rank's memory, from which each rank takes the next number (Fetch_and_op); and the pool of
mpi4py.futures, whose first rank only manages. The time of a run is divided by the ideal time.
"""

import numpy as np

from benchmarks.compare import options, report
from benchmarks.measure import Spread, Unavailable
from benchmarks.ranks import EVERY_RANK, FIRST_RANK, POOL, on_ranks
from benchmarks.table import Table

#: For each method: command that starts the ranks, program, and last argument.
WAYS = {
    "paceline's scheduler": (FIRST_RANK, "work", ("dynamic",)),
    "one-sided counter": (EVERY_RANK, "counter", ()),
    "mpi4py.futures": (POOL, "work", ("pool",)),
}
#: For each case: number of ranks, slowdown of the last rank, whether blocks compute in Python or
#: sleep, and whether ranks communicate over the network as if on separate hosts.
CASES = {
    "4 ranks": (4, 1, "sleep", False),
    "4 ranks, one slow": (4, 5, "sleep", False),
    "4 hosts": (4, 1, "sleep", True),
    "4 hosts, one slow": (4, 5, "sleep", True),
    "2 ranks, in Python": (2, 1, "busy", False),
    "2 hosts, in Python": (2, 1, "busy", True),
}
#: Duration of a block of 16 frames, seconds.
BLOCK = 0.01
HEADINGS = ("case", "way", "blocks", "seconds", "seconds / ideal", "min", "max")


def measure(case: str, job: float, repeats: int) -> dict[str, np.ndarray]:
    """Return seconds / ideal for each method in each round."""
    n_ranks, slow, busy, apart = CASES[case]
    n_frames = frames_of(case, job)
    ideal = n_frames / 16 * BLOCK / speed_of(case)
    ratios: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(repeats):
        for way, (how, program, last) in WAYS.items():
            told = (program, n_frames, BLOCK / 16, slow, n_ranks, busy, *last)
            ratios[way].append(on_ranks(n_ranks, how, *told, apart=apart)["seconds"] / ideal)
    return {way: np.array(found) for way, found in ratios.items()}


def speed_of(case: str) -> float:
    """Return the speed of all ranks together, in units of a full-speed rank."""
    n_ranks, slow, *_ = CASES[case]
    return n_ranks - 1 + 1 / slow


def frames_of(case: str, job: float) -> int:
    """Return the number of frames in a job of this duration at full speed."""
    return 16 * max(1, round(job * speed_of(case) / BLOCK))


def main() -> None:
    asked = options(__doc__, list(CASES))
    asked.print_head()
    table = Table(f"blocks of {BLOCK * 1e3:g} ms, by the time that all ranks would need", HEADINGS)
    skipped = []
    for case in CASES:
        if not asked.wants(case):
            continue
        report(case)
        try:
            taken = measure(case, asked.effort.job, asked.effort.repeats)
        except Unavailable as reason:
            skipped.append(f"{case}: {reason}")
            continue
        n_frames = frames_of(case, asked.effort.job)
        ideal = n_frames / 16 * BLOCK / speed_of(case)
        for way, ratios in taken.items():
            spread = Spread.of(ratios)
            cells = (spread.median * ideal, spread.median, spread.low, spread.high)
            table.rows.append(
                (case, way, str(n_frames // 16), *(f"{value:.2f}" for value in cells))
            )
    asked.print_tables([table], skipped)


if __name__ == "__main__":
    main()
