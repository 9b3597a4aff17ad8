"""Measure the time per frame of H5MD in each layout, with paceline, MDAnalysis and plain h5py.

    python -m benchmarks h5md [folder] [--repeats 5] [--only adk.frame water.gzip1 write] [--tsv]

Prints six tables: the time per frame of an RMSD for each layout; each layout relative to the
contiguous one; reading everything compared with `cat`; reading compressed files compared with h5py;
compressed files with two workers; and writing from XTC. All tools must find the same RMSD and write
the same frames.
"""

import subprocess
import tempfile
from pathlib import Path

import numpy as np

from benchmarks import converters, tools
from benchmarks.bench_convert import MEMORY, check_frames
from benchmarks.compare import (
    OURS,
    OURS_2,
    REFERENCE,
    SLOPES,
    SPEEDUP,
    Agreement,
    Effort,
    add_slopes,
    gains,
    judged,
    options,
    report,
    speedup,
)
from benchmarks.converters import Conversion
from benchmarks.data import Dataset
from benchmarks.h5md_files import SUFFIX, h5md_file
from benchmarks.measure import Run, Spread, samples, slopes, subjects
from benchmarks.table import Table

BY_HAND, CAT = "h5py by hand", "cat"
TOOLS = {
    REFERENCE: (tools.mdanalysis,),
    BY_HAND: (tools.h5py_by_hand,),
    OURS: (tools.paceline, 1),
}
LAYOUTS = ("contiguous", "frame", "auto", "gzip1", "shuffle-gzip")
COMPRESSED = LAYOUTS[-2:]
#: Compressed layouts. The benchmark decodes all atoms of all their frames.
FILTERED = ("gzip1", "shuffle-gzip", "zstd", "shuffle-zstd", "lz4", "shuffle-lz4")
#: Number of frames in a run of the other tools, some of which take milliseconds per frame.
FEWER = 500
#: Minimum speed of paceline with one worker, relative to MDAnalysis.
TARGETS = {
    "adk.contiguous": 100.0,
    "adk.frame": 100.0,
    "adk.auto": 100.0,
    "adk.gzip1": 10.0,
    "water.contiguous": 100.0,
    "water.frame": 100.0,
    "water.auto": 180.0,
    "water.gzip1": 30.0,
    "water.shuffle-gzip": 4.0,
}
#: Maximum time with automatic chunks relative to the contiguous layout; maximum time to read
#: everything relative to `cat`.
AUTO_TARGET, CAT_TARGET = 4.0, 1.7
#: Minimum decoding speed relative to h5py with hdf5plugin.
FILTERS_TARGET = 1.0
#: Minimum speed of two workers relative to one, with compressed files.
TARGET_2 = 1.85
#: Minimum writing speed relative to MDAnalysis by compression level, and of two workers relative to
#: one.
WRITING = {None: 5.0, 1: 3.0}
WRITING_2 = 1.8
#: Words of `--only` for measurements that are not of a single layout.
COST, ALL, FILTERS, WORKERS, WRITE = "cost", "all", "filters", "workers", "write"

COSTS = ("case", "µs/frame", "times contiguous", "min", "max", "target")
EVERYTHING = ("case", "tool", "ms", "GB/s", "times cat", "min", "max", "target")
UNPACKED = ("case", "tool", "MB", "ms", "GB/s unpacked", f"times {BY_HAND}", "min", "max", "target")


class Bench:
    """The tables, filled case by case."""

    def __init__(self, effort: Effort) -> None:
        self.effort = effort
        self.warm = Table("RMSD of 214 Cα atoms: slope between runs of n and 2n frames", SLOPES)
        self.costs = Table("what a layout costs paceline, by slopes of one round", COSTS)
        self.everything = Table("all atoms of all frames, looked at by nobody", EVERYTHING)
        self.filters = Table("all atoms of all frames of compressed files", UNPACKED)
        self.speedup = Table(
            "one job on two threads; past its end the file is read again", (*SPEEDUP, "target")
        )
        self.written = Table("written from XTC: slope between runs of n and 2n frames", SLOPES)
        self.skipped: list[str] = []

    @property
    def tables(self) -> list[Table]:
        """Return the tables in print order."""
        return [
            *(self.warm, self.costs, self.everything),
            *(self.filters, self.speedup, self.written),
        ]

    def measure_layout(self, case: str, data: Dataset, layout: str) -> None:
        """Measure all tools on one file."""
        h5md_file(data, layout)
        suffix = f"{layout}.{SUFFIX}"
        how = {name: (prepare, data, suffix, *more) for name, (prepare, *more) in TOOLS.items()}
        with subjects(how) as (ready, skipped):
            self.skipped += [f"{case}: {name}: {why}" for name, why in skipped.items()]
            n = data.n_frames // 2
            fewer = min(n, FEWER)
            agreement = Agreement()
            for subject in ready:
                report(f"{case}: {subject.name}")
                agreement.check(subject.name, subject.run(fewer).values)
            report(f"{case}: slopes")
            others = {name: fewer for name in TOOLS if name != OURS}
            taken = slopes(ready, n, self.effort.repeats, self.effort.measurement, others)
            verdicts = {}
            if self.effort.judged and case in TARGETS and OURS in taken:
                target = TARGETS[case]
                met = judged(gains(taken, REFERENCE, OURS) >= target)
                verdicts[OURS] = f"{target:g} times {REFERENCE} {met}"
            add_slopes(self.warm, case, ready, taken, verdicts)

    def measure_costs(self, data: Dataset) -> None:
        """Measure paceline on the files of all layouts, in turn."""
        how = {
            layout: (tools.paceline, data, f"{layout}.{SUFFIX}", 1)
            for layout in LAYOUTS
            if h5md_file(data, layout)
        }
        report(f"{data.name}: all layouts")
        with subjects(how) as (ready, skipped):
            self.skipped += [f"{data.name}.{name}: {why}" for name, why in skipped.items()]
            n = data.n_frames // 2
            samples(ready, n, 1)
            taken = slopes(ready, n, self.effort.repeats, self.effort.measurement)
        for layout in taken:
            ratios = gains(taken, layout, "contiguous")
            verdict = ""
            if self.effort.judged and layout == "auto":
                verdict = f"at most {AUTO_TARGET:g} {judged(ratios <= AUTO_TARGET)}"
            time = np.median(taken[layout].per_item) * 1e6
            cost = Spread.of(ratios)
            shown = (f"{value:.2f}" for value in (cost.median, cost.low, cost.high))
            self.costs.rows.append((f"{data.name}.{layout}", f"{time:.1f}", *shown, verdict))

    def measure_everything(self, data: Dataset) -> None:
        """Measure reading all atoms of the contiguous file, and `cat` of it."""
        path = h5md_file(data, "contiguous")
        report(f"{path.name}: everything")
        how = {CAT: (cat, path), OURS: (everything, data.topology, path)}
        with subjects(how) as (ready, skipped):
            self.skipped += [f"{path.name}: {name}: {why}" for name, why in skipped.items()]
            samples(ready, 1, 1)
            taken = slopes(ready, 1, self.effort.repeats, self.effort.measurement)
        for name, slope in taken.items():
            seconds = np.median(slope.per_item)
            ratios = gains(taken, name, CAT)
            verdict = ""
            if self.effort.judged and name == OURS:
                verdict = f"at most {CAT_TARGET:g} {judged(ratios <= CAT_TARGET)}"
            cost = Spread.of(ratios)
            shown = (f"{value:.2f}" for value in (cost.median, cost.low, cost.high))
            rate = f"{path.stat().st_size / seconds / 1e9:.2f}"
            row = (path.name, name, f"{seconds * 1e3:.0f}", rate, *shown, verdict)
            self.everything.rows.append(row)

    def measure_filters(self, data: Dataset, layout: str) -> None:
        """Measure reading all atoms of a compressed file, with paceline and h5py with plugin."""
        path = h5md_file(data, layout)
        report(f"{path.name}: all atoms")
        how = {BY_HAND: (everything_by_hand, path), OURS: (everything, data.topology, path)}
        with subjects(how) as (ready, skipped):
            self.skipped += [f"{path.name}: {name}: {why}" for name, why in skipped.items()]
            if skipped:
                return
            samples(ready, 1, 1)
            taken = slopes(ready, 1, self.effort.repeats, self.effort.measurement)
        n_bytes = h5md_file(data, "contiguous").stat().st_size
        for name, slope in taken.items():
            seconds = np.median(slope.per_item)
            ratios = gains(taken, BY_HAND, name)
            verdict = ""
            if self.effort.judged and name == OURS:
                verdict = f"at least {FILTERS_TARGET:g} {judged(ratios >= FILTERS_TARGET)}"
            gain = Spread.of(ratios)
            shown = (f"{value:.2f}" for value in (gain.median, gain.low, gain.high))
            times = f"{seconds * 1e3:.0f}", f"{n_bytes / seconds / 1e9:.2f}"
            size = f"{path.stat().st_size / 1e6:.0f}"
            self.filters.rows.append((path.name, name, size, *times, *shown, verdict))

    def measure_workers(self, data: Dataset, layout: str) -> None:
        """Measure a compressed file with one worker and with two."""
        path = h5md_file(data, layout)
        report(f"{path.name}: speed-up")
        how = {
            name: (tools.paceline, data, f"{layout}.{SUFFIX}", n)
            for n, name in ((1, OURS), (2, OURS_2))
        }
        with subjects(how) as (ready, skipped):
            self.skipped += [f"{path.name}: {name}: {why}" for name, why in skipped.items()]
            if skipped:
                return
            agreement = Agreement()
            agreement.check(OURS, ready[0].run(data.n_frames).values)
            cells, gain = speedup(ready, data.n_frames, self.effort, agreement)
        verdict = f"at least {TARGET_2:g} {judged(gain >= TARGET_2)}" if self.effort.judged else ""
        self.speedup.rows.append((f"{data.name}.{layout}", *cells, verdict))

    def measure_writing(self, data: Dataset, gzip: int | None, folder: Path) -> None:
        """Measure conversion from XTC to H5MD with one frame per chunk."""
        case = f"{data.name}.xtc-to-{f'gzip{gzip}.' if gzip else ''}{SUFFIX}"
        task = Conversion(data, "xtc", SUFFIX, None, folder, gzip)
        how = {
            REFERENCE: (converters.mdanalysis, task),
            OURS: (converters.paceline, task, 1),
            OURS_2: (converters.paceline, task, 2),
        }
        with subjects(how) as (ready, skipped):
            self.skipped += [f"{case}: {name}: {why}" for name, why in skipped.items()]
            # Enough frames that the thread with the last block of 16 frames hardly matters.
            n, fewer = max(data.n_frames // 2, 2), max(data.n_frames // 10, 2)
            report(f"{case}: same frames")
            check_frames(case, ready, max(fewer // 10, 2), SUFFIX)
            report(f"{case}: slopes")
            others = {REFERENCE: fewer}
            taken = slopes(ready, n, self.effort.repeats, self.effort.measurement, others)
            verdicts = {}
            if self.effort.judged and not skipped:
                one, two = gains(taken, REFERENCE, OURS), gains(taken, OURS, OURS_2)
                target = WRITING[gzip]
                verdicts[OURS] = f"{target:g} times {REFERENCE} {judged(one >= target)}"
                if gzip:
                    verdicts[OURS_2] = (
                        f"{Spread.of(two).median:.2f} times one thread, "
                        f"target {WRITING_2:g} {judged(two >= WRITING_2)}"
                    )
            add_slopes(self.written, case, ready, taken, verdicts)


def cat(path: Path) -> Run:
    """Return a run in which `cat` reads the file `n` times."""

    def run(n: int) -> None:
        for _ in range(n):
            subprocess.run(["cat", path], check=True, stdout=subprocess.DEVNULL)

    return run


def everything(topology: Path, path: Path) -> Run:
    """Return a run that reads all atoms of all frames `n` times, on one thread."""
    import paceline

    universe = paceline.Universe(topology, path)
    frames = np.arange(universe.trajectory.n_frames)

    def run(n: int) -> None:
        series = paceline.TimeSeries(_nothing, universe.atoms)
        series.run(frames=np.tile(frames, n), backend="threads", n_workers=1)

    return run


def everything_by_hand(path: Path) -> Run:
    """Return a run in which h5py reads all frames `n` times, each into the same array."""
    import contextlib

    import h5py

    with contextlib.suppress(ImportError):
        import hdf5plugin  # noqa: F401
    file = h5py.File(path)
    stored = file["particles/trajectory/position/value"]
    frame = np.empty(stored.shape[1:], np.float32)

    def run(n: int) -> None:
        for _ in range(n):
            for k in range(len(stored)):
                stored.read_direct(frame, np.s_[k])

    return run


def _nothing(block) -> np.ndarray:
    """Return the times of a block, which exist anyway."""
    return block.times


def main() -> None:
    cases = [f"{name}.{layout}" for name in ("adk", "water") for layout in LAYOUTS]
    asked = options(__doc__, [*cases, COST, ALL, FILTERS, WORKERS, WRITE])
    datasets = {data.name: data for data in asked.datasets()}
    asked.print_head()
    bench = Bench(asked.effort)
    scratch = MEMORY if MEMORY.is_dir() else asked.folder
    try:
        for data in datasets.values():
            for layout in LAYOUTS:
                if asked.wants(case := f"{data.name}.{layout}"):
                    bench.measure_layout(case, data, layout)
            if asked.wants(COST):
                bench.measure_costs(data)
            if asked.wants(ALL):
                bench.measure_everything(data)
            if asked.wants(FILTERS):
                for layout in FILTERED:
                    bench.measure_filters(data, layout)
            if asked.wants(WORKERS):
                for layout in COMPRESSED:
                    bench.measure_workers(data, layout)
        if asked.wants(WRITE):
            for gzip in WRITING:
                with tempfile.TemporaryDirectory(dir=scratch) as folder:
                    bench.measure_writing(datasets["water"], gzip, Path(folder))
    finally:
        asked.print_tables(bench.tables, bench.skipped)


if __name__ == "__main__":
    main()
