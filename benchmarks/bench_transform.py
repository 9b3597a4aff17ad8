"""Measure unwrapping, centering and superposing a protein in water before its RMSD.

    python -m benchmarks transform [folder] [--repeats 5] [--only unwrap] [--tsv] [--tiny]

Prints an RMSD's time per frame with and without transformations, and the part of this time that
transformations take by each tool's own clock. All tools must find the same RMSD, or the benchmark
fails. The third table ("nojump") lists the cost of NoJump beyond reading the same atoms (all, or
water oxygens) from XTC and DCD, also if only some frames are analysed. The fourth table reads the
files from the disk, as for files larger than memory. The fifth table simulates more workers, from
the times of one worker.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.compare import (
    OURS,
    OURS_2,
    REFERENCE,
    SLOPES,
    Agreement,
    Effort,
    Options,
    add_slopes,
    judged,
    options,
    report,
)
from benchmarks.data import SELECTION, Dataset
from benchmarks.measure import Run, Spread, Subject, samples, slopes, subjects
from benchmarks.simulate import simulate_in_turn
from benchmarks.table import Table

CASES = {"none": (), "unwrap": ("unwrap",), "unwrap-center-fit": ("unwrap", "center", "fit")}
#: Maximum time to make the protein whole, µs per frame.
TARGETS = {"unwrap": 30.0}
GROUP = "protein"

#: Atoms that are tracked, in each format.
JUMPS = {"all": "all", "oxygens": "name OW"}
RATIOS = ("case", "tool", "reading µs/frame", "with NoJump", "NoJump / reading", "min", "max")
JUMPING = (*RATIOS, "by CPU time", "target")
FROM_DISK = (*RATIOS, "MB from the disk", "target")
#: Suffix of the names of runs with NoJump.
NOJUMP = ", NoJump"
#: Cases of the tools; NoJump reads all frames even if only some are analysed.
ENDINGS: dict[str, dict[str, Any]] = {"": {"jumps": False}, NOJUMP: {"jumps": True}}
STEPS = {f"{NOJUMP}, step {step}": {"jumps": True, "step": step} for step in (2, 10)}
#: Maximum time of reading with NoJump, relative to reading alone.
JUMP_TARGET = 1.2

#: Numbers of simulated workers; next line: parts in which workers move the atoms in turn: 1, as
#: paceline did, and 16, as it does now.
MANY = (1, 2, 4, 8, 16, 32, 64)
IN_TURN = (1, 16)
SIMULATED = ("case", "workers", *(f"{n} part{'s' * (n > 1)}" for n in IN_TURN), "two passes")

PARTS = ("case", "tool", "transforming µs/frame", "min", "max", "times MDAnalysis", "target")


@dataclass(frozen=True)
class Transformed:
    """RMSD of every frame, Å, and the time of the transformations, s."""

    rmsd: np.ndarray
    seconds: float


def mdanalysis(data: Dataset, steps: tuple[str, ...], whole: np.ndarray) -> Run:
    """MDAnalysis, with its transformations on the trajectory."""
    import MDAnalysis
    from MDAnalysis import transformations
    from MDAnalysis.analysis.rms import RMSD

    universe = MDAnalysis.Universe(data.topology, data.trajectory("xtc"))
    group, ca = universe.select_atoms(GROUP), universe.select_atoms(SELECTION)
    reference = _reference(ca, whole)
    made = {
        "unwrap": lambda: transformations.unwrap(group),
        "center": lambda: transformations.center_in_box(group),
        "fit": lambda: transformations.fit_rot_trans(ca, reference),
    }
    clock = _Clock()
    universe.trajectory.add_transformations(*(clock.around(made[step]()) for step in steps))

    def run(n: int) -> Transformed:
        clock.seconds = 0.0
        analysis = RMSD(ca, reference, superposition="fit" not in steps).run(stop=n)
        return Transformed(analysis.results.rmsd[:, 2], clock.seconds)

    return run


def paceline(data: Dataset, steps: tuple[str, ...], whole: np.ndarray, n_workers: int) -> Run:
    """Paceline on `n_workers` threads."""
    import paceline
    from paceline import transform
    from paceline.analysis.rms import RMSD

    universe = paceline.Universe(data.topology, data.trajectory("xtc"))
    ca = universe.select_atoms(SELECTION)
    reference = _reference(ca, whole)
    made = {
        "unwrap": lambda: transform.unwrap(),
        "center": lambda: transform.center(GROUP),
        "fit": lambda: transform.fit(ca, reference),
    }
    transforms = [made[step]() for step in steps]

    def run(n: int) -> Transformed:
        analysis = RMSD(ca, reference, superposition="fit" not in steps)
        analysis.run(stop=n, backend="threads", n_workers=n_workers, transforms=transforms)
        seconds = sum(block.transform for block in analysis.timings.blocks) / 1e9
        return Transformed(analysis.results.rmsd[:, 2], seconds)

    return run


def _reference(ca: Any, whole: np.ndarray) -> Any:
    """Create the same atoms at the positions `whole`, Å."""
    import MDAnalysis

    reference = MDAnalysis.Merge(ca).atoms
    reference.positions = whole
    return reference


def mdanalysis_jumps(data: Dataset, kind: str, select: str, *, jumps: bool) -> Run:
    """MDAnalysis's NoJump, which needs all frames once and in order."""
    import MDAnalysis
    from MDAnalysis import transformations

    def run(n: int) -> np.ndarray:
        universe = MDAnalysis.Universe(data.topology, data.trajectory(kind))
        if jumps:
            universe.trajectory.add_transformations(transformations.nojump.NoJump())
        first = universe.select_atoms(select).indices[0]
        return np.array([ts.positions[first, 0] for ts in universe.trajectory[:n]])

    return run


def paceline_jumps(
    data: Dataset, kind: str, select: str, n_workers: int, *, jumps: bool, step: int = 1
) -> Run:
    """Paceline on `n_workers` threads; NaN for frames that are not analysed."""
    import paceline
    from paceline.transform import nojump

    atoms = paceline.Universe(data.topology, data.trajectory(kind)).select_atoms(select)
    transforms = [nojump()] if jumps else []

    def run(n: int) -> np.ndarray:
        series = paceline.TimeSeries(lambda block: block.positions[:, 0, 0], atoms)
        bounds: Any = {"stop": n, "step": step}
        series.run(**bounds, backend="threads", n_workers=n_workers, transforms=transforms)
        found = np.full(n, np.nan)
        found[::step] = series.results.timeseries
        return found

    return run


JUMP_TOOLS: dict[str, tuple[Any, ...]] = {
    REFERENCE: (mdanalysis_jumps,),
    OURS: (paceline_jumps, 1),
    OURS_2: (paceline_jumps, 2),
}


def measure_jumps(asked: Options, data: Dataset) -> list[Table]:
    """Measure reading with and without NoJump, in turn; simulate it on more workers."""
    simulated = Table(
        "NoJump, simulated from one worker's times: times its share of reading", SIMULATED
    )
    table = Table("NoJump: slope between n and 2n frames", JUMPING)
    disk = Table("NoJump, of files that are not in the page cache", FROM_DISK)
    n = data.n_frames // 2
    few = max(data.n_frames // 5, 2)
    for kind, (group, select) in product(("xtc", "dcd"), JUMPS.items()):
        report(f"nojump: {kind}, {group}")
        how = {
            name + ending: (partial(prepare, **how), data, kind, select, *more)
            for name, (prepare, *more) in JUMP_TOOLS.items()
            for ending, how in (ENDINGS if name == REFERENCE else ENDINGS | STEPS).items()
        }
        with subjects(how) as (ready, _):
            agreement, whole = Agreement(), np.empty(0)
            for subject in ready:
                if NOJUMP in subject.name:
                    found = np.asarray(subject.run(few).values)
                    whole = found if subject.name == REFERENCE + NOJUMP else whole
                    agreement.check(subject.name, np.where(np.isnan(found), whole, found))
            fewer = dict.fromkeys((REFERENCE, REFERENCE + NOJUMP), few)
            effort = asked.effort
            taken = slopes(ready, n, effort.repeats, effort.measurement, fewer)
            ours = [one for one in ready if one.name in (OURS, OURS + NOJUMP)]
            disk.rows.append(_from_disk(f"{kind}, {group}", ours, data, kind, effort))
        for name, ending in product(JUMP_TOOLS, (NOJUMP, *STEPS)):
            if name + ending not in taken:
                continue
            plain, jumping = taken[name], taken[name + ending]
            ratios = jumping.per_item / plain.per_item
            spread = Spread.of(ratios)
            times = (f"{np.median(one.per_item) * 1e6:.0f}" for one in (plain, jumping))
            by_cpu = np.median(jumping.cpu_per_item / plain.cpu_per_item)
            is_ours = effort.judged and name != REFERENCE and ending == NOJUMP
            table.rows.append(
                (
                    *(f"{kind}, {group}", name + ending.removeprefix(NOJUMP), *times),
                    *(f"{value:.2f}" for value in (spread.median, spread.low, spread.high)),
                    f"{by_cpu:.2f}",
                    f"{JUMP_TARGET:g} {judged(ratios <= JUMP_TARGET)}" if is_ours else "",
                )
            )
            if name + ending == OURS + NOJUMP:
                simulated.rows += simulated_jumps(f"{kind}, {group}", float(by_cpu))
    return [table, disk, simulated]


def _from_disk(
    case: str, ours: list[Subject], data: Dataset, kind: str, effort: Effort
) -> tuple[str, ...]:
    """Measure reading with and without NoJump, in turn, with the file not in the page cache."""
    n = data.n_frames
    taken = samples(ours, n, effort.repeats, Path(data.trajectory(kind)))
    plain, jumping = (np.array([run.seconds for run in taken[one.name]]) for one in ours)
    ratios = jumping / plain
    spread = Spread.of(ratios)
    read = [run.disk_bytes for run in taken[OURS + NOJUMP]]
    known = "-" if None in read else f"{np.median(read) / 1e6:.0f}"
    times = (f"{np.median(seconds) / n * 1e6:.0f}" for seconds in (plain, jumping))
    return (
        *(case, OURS, *times),
        *(f"{value:.2f}" for value in (spread.median, spread.low, spread.high)),
        known,
        f"{JUMP_TARGET:g} {judged(ratios <= JUMP_TARGET)}" if effort.judged else "",
    )


def simulated_jumps(case: str, ratio: float) -> list[tuple[str, ...]]:
    """Simulate workers that move atoms in turn, given the ratio of NoJump to reading.

    With two passes, frames are read twice, and atoms are moved at least once.
    """
    moving = max(ratio - 1.0, 0.01)
    rows = []
    for n_workers in MANY:
        in_turn = (simulate_in_turn(n_workers, n, 1.0, moving) * n_workers for n in IN_TURN)
        rows.append((case, str(n_workers), *(f"{x:.2f}" for x in in_turn), f"{1 + ratio:.2f}"))
    return rows


class _Clock:
    """Sums up the time spent in MDAnalysis's transformations."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def around(self, transformation: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def timed(ts: Any) -> Any:
            start = time.perf_counter()
            ts = transformation(ts)
            self.seconds += time.perf_counter() - start
            return ts

        return timed


TOOLS = {REFERENCE: (mdanalysis,), OURS: (paceline, 1), OURS_2: (paceline, 2)}


class Bench:
    """The two tables, filled case by case."""

    def __init__(self, effort: Effort, data: Dataset) -> None:
        self.effort = effort
        self.data = data
        self.n = data.n_frames // 2
        # MDAnalysis needs a quarter of a second per frame.
        self.fewer = {REFERENCE: max(data.n_frames // 100, 2)}
        self.whole = _whole(data)
        self.runs = Table("RMSD with transformations: slope between n and 2n frames", SLOPES)
        self.parts = Table("of it, the transformations' own time", PARTS)
        self.skipped: list[str] = []

    def measure(self, case: str) -> None:
        """Add the rows of one sequence of transformations."""
        common = self.data, CASES[case], self.whole
        how = {name: (prepare, *common, *more) for name, (prepare, *more) in TOOLS.items()}
        with subjects(how) as (ready, skipped):
            self.skipped += [f"{case}: {name}: {why}" for name, why in skipped.items()]
            agreement = Agreement()
            for subject in ready:
                report(f"{case}: {subject.name}")
                agreement.check(subject.name, subject.run(self.fewer[REFERENCE]).values.rmsd)
            report(f"{case}: slopes")
            effort = self.effort
            taken = slopes(ready, self.n, effort.repeats, effort.measurement, self.fewer)
            add_slopes(self.runs, case, ready, taken, {})
            if CASES[case]:
                self._measure_parts(case, ready)

    def _measure_parts(self, case: str, ready: list[Subject]) -> None:
        report(f"{case}: parts")
        rounds: dict[str, list[float]] = {subject.name: [] for subject in ready}
        for _ in range(self.effort.repeats):
            for subject in ready:
                n = self.fewer.get(subject.name, self.n)
                rounds[subject.name].append(subject.run(n).values.seconds / n * 1e6)
        taken = {name: np.array(microseconds) for name, microseconds in rounds.items()}
        for name, microseconds in taken.items():
            spread = Spread.of(microseconds)
            verdict = ""
            if self.effort.judged and name == OURS and case in TARGETS:
                target = TARGETS[case]
                verdict = f"{target:g} µs {judged(microseconds <= target)}"
            self.parts.rows.append(
                (
                    case,
                    name,
                    *(f"{value:.1f}" for value in (spread.median, spread.low, spread.high)),
                    f"{np.median(taken[REFERENCE] / microseconds):.1f}",
                    verdict,
                )
            )


def _whole(data: Dataset) -> np.ndarray:
    """Return positions (214, 3) of the first frame, Å, with the protein whole and centered."""
    import MDAnalysis
    from MDAnalysis.transformations import center_in_box, unwrap

    universe = MDAnalysis.Universe(data.topology, data.trajectory("xtc"))
    group = universe.select_atoms(GROUP)
    universe.trajectory.add_transformations(unwrap(group), center_in_box(group))
    return universe.select_atoms(SELECTION).positions


def main() -> None:
    asked = options(__doc__, [*CASES, "nojump"])
    water = next(data for data in asked.datasets() if data.name == "water")
    asked.print_head()
    bench = Bench(asked.effort, water)
    tables = [bench.runs, bench.parts]
    try:
        for case in CASES:
            if asked.wants(case):
                bench.measure(case)
        if asked.wants("nojump"):
            tables += measure_jumps(asked, water)
    finally:
        asked.print_tables(tables, bench.skipped)


if __name__ == "__main__":
    main()
