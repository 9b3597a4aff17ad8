"""Measure verdicts on series whose mean and start are known, beside other methods.

    python -m benchmarks verdicts                             # everything, 2,000 series a case
    python -m benchmarks verdicts --tiny                      # a few series, in seconds
    python -m benchmarks verdicts states --repeats 200        # cases with this word in their name
    python -m benchmarks verdicts tables                      # tables of several series
    python -m benchmarks verdicts trajectories                # verdicts on trajectories of packages
    python -m benchmarks verdicts cost                        # time for long series
    python -m benchmarks verdicts needed                      # verdicts after the needed time
    python -m benchmarks verdicts --markdown docs/tables/verdicts.txt
    python -m benchmarks verdicts --plot docs/images/convergence.svg    # three series, and no cases

For comparison, the table has the 95 % intervals by the widest of three estimators (initial monotone
sequence, Sokal's window, blocking), by blocking alone, and, where they are installed, by pymbar and
red, each from its own start of the equilibrated part.
"""

import argparse
import importlib.util
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

import paceline
from benchmarks.coverage import autoregressive, two_states, with_slow_part
from paceline.analysis.convergence_of_table_series import place_out_of_order, table_verdicts
from paceline.analysis.table import Table
from paceline.analysis.uncertainty import mean_of_series

#: Number of values of each series.
N = 2000
#: Number of series for the methods of other packages, which take long.
N_OF_OTHERS = 200
#: Half the width of a 95 % interval in standard errors.
NORMAL = 1.96

Maker = Callable[[np.random.Generator, int], np.ndarray]


@dataclass(frozen=True)
class Case:
    """Series with the mean 0, shape (repeats, N), from a function of generator and repeats."""

    name: str
    make: Maker
    kind: str = "linear"
    #: First value that is best, and the time within which it must be found; None if all are good.
    start: tuple[int, float] | None = None
    uneven: bool = False
    #: Times of the values; None for equal steps.
    times: np.ndarray | None = None


def of_start(part: float, amplitude: float = 5.0, correlation: float = 5.0) -> Case:
    """Make series that begin far from the mean, and decay within this part of the run."""
    decay = part * N / 3
    bias = amplitude * np.exp(-np.arange(N) / decay)
    # The best start has the least squared bias plus variance of the mean.
    left = N - np.arange(N)
    remaining = bias[::-1].cumsum()[::-1] / left
    best = int(np.argmin(remaining**2 + (2 * correlation) / left))
    return Case(
        f"start of {part:.0%} of the run",
        lambda rng, repeats: autoregressive(rng, correlation, N, repeats) + bias,
        start=(best, 2 * max(decay, correlation)),
    )


def rare_state(rng: np.random.Generator, repeats: int, changes: int = 30) -> np.ndarray:
    """Make series of two states, of which the second one holds for a fifth of the time."""
    leave = np.array([changes / N / 1.6, changes / N / 0.4])
    state = (rng.random(repeats) < 0.2).astype(int)
    found = np.empty((repeats, N))
    for k in range(N):
        found[:, k] = state
        state = np.where(rng.random(repeats) < leave[state], 1 - state, state)
    return 2 * (found - 0.2) + 0.3 * autoregressive(rng, 3, N, repeats)


def long_stays(rng: np.random.Generator, repeats: int) -> np.ndarray:
    """Make series of two states whose stays have a power law with the exponent 1.5."""
    found = np.empty((repeats, N))
    for row in found:
        k, sign = 0, rng.choice([-1, 1])
        while k < N:
            stay = int(np.ceil(5 * rng.random() ** (-1 / 1.5)))
            row[k : k + stay] = sign
            k, sign = k + stay, -sign
    return found + 0.3 * autoregressive(rng, 3, N, repeats)


def at_times(times: np.ndarray, correlation: float = 10.0) -> Maker:
    """Return a maker of series with a single correlation time, and values at these times."""
    factors = np.exp(-np.diff(times) / correlation)

    def make(rng: np.random.Generator, repeats: int) -> np.ndarray:
        found = rng.standard_normal((repeats, len(times)))
        for k, factor in enumerate(factors, start=1):
            found[:, k] = factor * found[:, k - 1] + np.sqrt(1 - factor**2) * found[:, k]
        return found

    return make


#: Times whose steps grow in proportion to the time.
LOGARITHMIC = np.geomspace(1, N, N)
#: Times whose steps are 10 times longer in the second half of the time.
IN_TWO_STEPS = np.cumsum(np.where(np.arange(N) < N * 10 // 11, 0.55, 5.5))

CASES = [
    *(
        Case(
            f"{n} independent values",
            lambda rng, repeats, n=n: autoregressive(rng, N / n / 2, N, repeats),
        )
        for n in (10, 20, 50, 100, 300, 1000)
    ),
    *(
        Case(
            f"noise and a slow part of {part:.0%}, {N / slow:.3g} correlation times",
            lambda rng, repeats, part=part, slow=slow: with_slow_part(part, slow, N, repeats)(rng),
        )
        for part in (0.05, 0.2, 0.5)
        for slow in (100, 400)
    ),
    *(of_start(part) for part in (0.01, 0.03, 0.1, 0.3)),
    *(
        Case(
            f"two equal states, {n} changes",
            lambda rng, repeats, n=n: two_states(n, N, repeats)(rng),
        )
        for n in (3, 10, 30, 100, 300)
    ),
    Case("a state of a fifth of the time, 30 changes", rare_state),
    Case("two states with long stays", long_stays),
    Case(
        "drift by 2 standard deviations",
        lambda rng, repeats: autoregressive(rng, 10, N, repeats) + 2 * np.linspace(-0.5, 0.5, N),
    ),
    Case(
        "angles about 180°",
        lambda rng, repeats: 180 + 20 * autoregressive(rng, 10, N, repeats),
        kind="angle",
    ),
    Case(
        "values at uneven times",
        lambda rng, repeats: autoregressive(rng, 10, N, repeats),
        uneven=True,
    ),
    Case("values at logarithmic times", at_times(LOGARITHMIC), times=LOGARITHMIC),
    Case("steps 10 times longer in the second half", at_times(IN_TWO_STEPS), times=IN_TWO_STEPS),
]


def measure(case: Case, repeats: int, seed: int = 7) -> dict[str, float]:
    """Return fractions of series, by column, and the milliseconds per series."""
    rng = np.random.default_rng(seed)
    series = case.make(rng, repeats)
    times = case.times
    if case.uneven:
        times = rng.exponential(size=N).cumsum()
        # The series is a sample at these times of one that has equal steps.
        rows = np.minimum(N - 1, times / times[-1] * N).astype(int)
        series = series[:, rows]
        times = times + 1e-6 * np.arange(N)
    begin = time.perf_counter()
    found = [paceline.convergence(one, times, kind=case.kind) for one in series]
    took = (time.perf_counter() - begin) / repeats * 1000
    centre = 180.0 if case.kind == "angle" else 0.0
    held = np.array([abs(_turned(one.mean - centre)) <= one.half_width for one in found])
    sampled = np.array([one.verdict == "sampled" for one in found])
    starts = np.array(
        [N if one.equilibrated_from is None else one.equilibrated_from for one in found]
    )
    result = {
        "held": held.mean(),
        "sampled": sampled.mean(),
        "of sampled": held[sampled].mean() if sampled.sum() >= 20 else np.nan,
        "drifting": np.mean([one.verdict == "drifting" for one in found]),
        "start": np.nan,
        "widest": np.nan,
        "blocks": np.nan,
        "pymbar": np.nan,
        "red": np.nan,
        "ms": took,
    }
    if case.start is not None:
        best, slack = case.start
        result["start"] = (np.abs(starts - best) <= slack).mean()
    if case.kind == "linear":
        errors = [mean_of_series(one).block_error for one in series]
        means = series.mean(axis=1)
        result["blocks"] = (np.abs(means) <= NORMAL * np.array(errors)).mean()
        parts = [one[start:] for one, start in zip(series, starts % N, strict=True)]
        result["widest"] = np.mean([_by_the_widest(one) for one in parts])
        for name, holds in {"pymbar": _by_pymbar, "red": _by_red}.items():
            if importlib.util.find_spec(name):
                result[name] = np.mean([holds(one) for one in series[:N_OF_OTHERS]])
    return result


def _turned(value: float) -> float:
    """Return an angle between -180° and 180°; numbers near 0 are unchanged."""
    return (value + 180) % 360 - 180


def _holds(series: np.ndarray, inefficiency: float) -> bool:
    """Return whether the interval of an equilibrated series holds the mean 0."""
    return abs(series.mean()) <= NORMAL * series.std() * np.sqrt(inefficiency / len(series))


def _by_the_widest(series: np.ndarray) -> bool:
    """Return whether the widest of three usual intervals holds the mean 0."""
    correlations = autocorrelation(series)
    of_blocks = len(series) * (mean_of_series(series).block_error / series.std()) ** 2
    return _holds(
        series, max(by_monotone_sequence(correlations), by_window(correlations), of_blocks)
    )


def autocorrelation(series: np.ndarray) -> np.ndarray:
    """Return the autocorrelation of a series at all lags; 1 at lag 0."""
    n = len(series)
    spectrum = np.abs(np.fft.rfft(series - series.mean(), 2 * n)) ** 2
    found = np.fft.irfft(spectrum)[:n]
    return found / found[0]


def by_monotone_sequence(correlations: np.ndarray) -> float:
    """Return the inefficiency by the initial monotone sequence (Geyer 1992, Stat. Sci. 7, 473)."""
    pairs = correlations[: len(correlations) // 2 * 2].reshape(-1, 2).sum(axis=1)
    negative = np.flatnonzero(pairs < 0)
    pairs = np.minimum.accumulate(pairs[: negative[0] if len(negative) else len(pairs)])
    return max(1.0, -1 + 2 * float(pairs.sum()))


def by_window(correlations: np.ndarray, factor: float = 5.0) -> float:
    """Return the inefficiency from lags up to 5 correlation times (Sokal 1997)."""
    times = 2 * np.cumsum(correlations) - 1
    enough = np.flatnonzero(np.arange(len(times)) >= factor * times / 2)
    return max(1.0, float(times[enough[0] if len(enough) else -1]))


def _by_pymbar(series: np.ndarray) -> bool:
    """Return whether the interval by pymbar's start and inefficiency holds the mean 0."""
    from pymbar import timeseries

    start, inefficiency, _ = timeseries.detect_equilibration(series, nskip=20)
    return _holds(series[start:], inefficiency)


def _by_red(series: np.ndarray) -> bool:
    """Return whether the interval by red's start and inefficiency holds the mean 0."""
    import red

    start, inefficiency, _ = red.detect_equilibration_window(series)
    return _holds(series[int(start) :], inefficiency)


COLUMNS = {
    "held": "intervals that hold the mean",
    "sampled": "sampled",
    "of sampled": "of these, intervals that hold it",
    "drifting": "drifting",
    "start": "start found",
    "widest": "by the widest of three",
    "blocks": "by blocks",
    "pymbar": "by pymbar",
    "red": "by red",
}


class RealCase(NamedTuple):
    """Trajectory of an installed package, and the atoms whose motion is assessed."""

    package: str
    topology: str
    trajectory: str
    select: str

    def __str__(self) -> str:
        return f"trajectories: {Path(self.trajectory).name} of {self.package}"


REAL_CASES = [
    RealCase("MDAnalysisTests", "adk.psf", "adk_dims.dcd", "name CA"),
    RealCase("MDAnalysisTests", "adk.psf", "adk_dims2.dcd", "name CA"),
    RealCase("MDAnalysisTests", "adk.psf", "adk_gbis_tmd-fast1_NAMD.dcd", "name CA"),
    RealCase("MDAnalysisTests", "adk_oplsaa.gro", "adk_oplsaa.xtc", "name CA"),
    RealCase("MDAnalysisTests", "Amber/bala.prmtop", "Amber/bala.ncdf", "all"),
    RealCase("MDAnalysisTests", "nmr_neopetrosiamide.pdb", "nmr_neopetrosiamide.pdb", "name CA"),
    RealCase("MDAnalysisTests", "RANDOM_WALK_TOPO.pdb", "xyz_random_walk.xtc", "all"),
    RealCase("MDAnalysisTests", "cu.h5md", "cu.h5md", "all"),
    RealCase("prolif", "top.pdb", "traj.xtc", "protein and name CA"),
    RealCase("prolif", "water_m2.pdb", "water_m2.xtc", "protein and name CA"),
]


def verdicts_on(case: RealCase) -> Iterator[str]:
    """Yield the verdicts on RMSD and radius of gyration of a trajectory."""
    from paceline.analysis.described_analyses import class_of

    spec = importlib.util.find_spec(case.package)
    if spec is None or spec.origin is None:
        yield f"{case.package} is not installed"
        return
    folder = Path(spec.origin).parent / "data"
    if not all((folder / name).exists() for name in (case.topology, case.trajectory)):
        yield f"this version of {case.package} lacks the files"
        return
    universe = paceline.Universe(folder / case.topology, folder / case.trajectory)
    atoms = universe.select_atoms(case.select)
    names = ("rmsd", "gyration") if atoms.total_mass() > 0 else ("rmsd",)
    for one in paceline.run([class_of(name)(atoms) for name in names], progress=False):
        table = one.results.table
        found = table_verdicts(table)
        for title in table.answering:
            verdict = found.get(title) or f"no verdict: {place_out_of_order(table)}"
            yield f"{type(one).__name__}, {one.n_frames} frames: {verdict}"


def measure_cost(n_values: int, n_series: int = 10) -> float:
    """Return the processor time for verdicts on long series, s."""
    rng = np.random.default_rng(3)
    series = autoregressive(rng, n_values / 1000, n_values, n_series)
    begin = time.process_time()
    for one in series:
        paceline.convergence(one)
    return time.process_time() - begin


def measure_needed(independent: float, repeats: int) -> str:
    """Return how many series are sampled after the probable and the cautious needed time."""
    rng = np.random.default_rng(11)
    found = []
    for _ in range(repeats):
        [series] = autoregressive(rng, N / independent / 2, 60 * N, 1)
        short = paceline.convergence(series[:N])
        if short.verdict == "not shown to be sampled":
            ends = [N + int(np.ceil(one)) for one in short.needed_interval]
            found.append([paceline.convergence(series[:end]).verdict for end in ends])
    probable, cautious = np.mean(np.array(found) == "sampled", axis=0)
    return f"{len(found)} series, {probable:.0%} and {cautious:.0%} sampled after needed times"


@dataclass(frozen=True)
class TableCase:
    """Tables of series of one kind, of which one may drift."""

    n_series: int
    correlation: float
    #: Drift of the first series over the run, in standard deviations.
    drift: float

    def __str__(self) -> str:
        how = f"correlation time {self.correlation:g}" if self.correlation else "white noise"
        which = f", one drifts by {self.drift:g} standard deviations" if self.drift else ""
        return f"tables of {self.n_series} series, {how}{which}"


TABLE_CASES = [
    TableCase(n_series, correlation, drift)
    for drift in (0.0, 1.0, 2.0)
    for correlation in (0.0, 10.0)
    for n_series in (1, 4, 16)
]


def measure_tables(case: TableCase, n_tables: int, seed: int = 9) -> tuple[float, float]:
    """Return the fractions of tables with a drifting series: assessed together, and one by one."""
    rng = np.random.default_rng(seed)
    times, found = np.arange(N) * 1.0, np.zeros(2)
    for _ in range(n_tables):
        series = autoregressive(rng, case.correlation, N, case.n_series)
        series[0] += case.drift * np.linspace(-0.5, 0.5, N)
        titles = [f"series {k}" for k in range(case.n_series)]
        columns = {"time (ps)": times, **dict(zip(titles, series, strict=True))}
        table = Table(columns, "time (ps)", dict.fromkeys(titles, ""), "")
        together = [one.found.verdict for one in table_verdicts(table).values()]
        alone = [paceline.convergence(one, times).verdict for one in series]
        found += ["drifting" in together, "drifting" in alone]
    together, alone = found / n_tables
    return float(together), float(alone)


def draw_misleading(path: Path) -> None:
    """Draw three series about which the eye is wrong, with paceline's verdicts."""
    from matplotlib.figure import Figure

    rng = np.random.default_rng(12)
    times = np.arange(N) * 0.25
    slow = autoregressive(rng, 500, N, 400)
    # Choose the stationary series whose last two thirds are flat, and far from the mean.
    late = slow[:, N // 3 :]
    flat = slow[np.argmin(late.std(axis=1) - 0.5 * np.abs(late.mean(axis=1)))]
    flat = 2.2 + 0.3 * flat + 0.12 * autoregressive(rng, 5, N, 1)[0]
    wandering = 18 + 0.3 * autoregressive(rng, 250, N, 400)
    # Choose the stationary series whose halves differ most.
    halves = wandering[:, N // 2 :].mean(axis=1) - wandering[:, : N // 2].mean(axis=1)
    wandering = wandering[np.argmax(halves)]
    once = np.where((times > 180) & (times < 215), 11.0, 5.0) + autoregressive(rng, 8, N, 1)[0]
    rows = [
        ("RMSD (Å)", flat, 2.2),
        ("Rg (Å)", wandering, 18.0),
        ("distance (Å)", once, 8.0),
    ]
    figure = Figure(figsize=(6, 6), layout="constrained")
    for ax, (label, values, truth) in zip(figure.subplots(3, sharex=True), rows, strict=True):
        found = paceline.convergence(values, times)
        ax.plot(times, values, linewidth=0.7)
        ax.axhline(truth, color="0.3", linestyle=":")
        if found.equilibrated_from:
            ax.axvspan(0, times[found.equilibrated_from], color="0.88", linewidth=0, zorder=0)
        half = f"{found.mean:.2f} ± {found.half_width:.2f}"
        ax.set_title(f"{found.verdict}: {half} (true: {truth:g})", fontsize="medium", loc="left")
        ax.set_ylabel(label)
        ax.margins(x=0)
        ax.spines[["top", "right"]].set_visible(False)
    ax.set_xlabel("time (ns)")
    figure.savefig(path)


def main() -> None:
    """Print the table of all cases."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", help="words of the names of cases (default: all)")
    parser.add_argument("--repeats", type=int, default=2000, help="series a case [%(default)s]")
    parser.add_argument("--tiny", action="store_true", help="a few series of each case")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="also write the table")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw series that mislead")
    args = parser.parse_args()
    if args.plot is not None:
        draw_misleading(args.plot)
        return
    if args.tiny:
        args.repeats = 2
    for package in ("pymbar", "red"):
        if not importlib.util.find_spec(package):
            print(f"{package} is not installed: its column is empty")

    def is_chosen(name: object) -> bool:
        return not args.words or any(word in f"{name}" for word in args.words)

    lines = [
        f"| series | {' | '.join(COLUMNS.values())} |",
        f"| --- |{' ---: |' * len(COLUMNS)}",
    ]
    for case in CASES:
        if not is_chosen(case.name):
            continue
        found = measure(case, args.repeats)
        cells = ["–" if np.isnan(found[key]) else f"{found[key]:.1%}" for key in COLUMNS]
        lines.append(f"| {case.name} | {' | '.join(cells)} |")
        print(f"{lines[-1]}  {found['ms']:.1f} ms a series", flush=True)
    for of_table in filter(is_chosen, TABLE_CASES):
        together, alone = measure_tables(of_table, max(1, args.repeats // of_table.n_series))
        print(f"{of_table}: {together:.1%} with a drift, {alone:.1%} one by one", flush=True)
    for real in filter(is_chosen, REAL_CASES):
        for line in verdicts_on(real):
            print(f"{real}: {line}", flush=True)
    n_values = 10**4 if args.tiny else 10**6
    if is_chosen("cost"):
        seconds = measure_cost(n_values)
        print(f"cost of 10 series of {n_values:,} values: {seconds:.2f} s of processor time")
    for n in (3, 10, 15, 25):
        if is_chosen(name := f"needed time of {n} independent values"):
            print(f"{name}: {measure_needed(n, max(20, args.repeats // 10))}", flush=True)
    if args.markdown is not None:
        partial = args.markdown.with_suffix(".partial")
        partial.write_text("\n".join(lines) + "\n", encoding="utf-8")
        os.replace(partial, args.markdown)


if __name__ == "__main__":
    main()
