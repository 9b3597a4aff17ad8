"""Measure how many 95 % intervals contain the true value, on simulated series with known values.

    python -m benchmarks.coverage              # all: some minutes
    python -m benchmarks.coverage diffusion    # those with one of these words in their names

A 95 % interval contains the true value in 95 of 100 repetitions. The manual lists these figures.
"""

import argparse
import warnings
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import MDAnalysis as mda
import numpy as np
from MDAnalysis.units import constants, convert
from scipy.signal import lfilter

import paceline
from paceline.analysis.correlation import VelocityAutocorrelation
from paceline.analysis.correlation_by_particles import running_integral
from paceline.analysis.dielectric import DielectricConstant, DipoleAutocorrelation
from paceline.analysis.diffusion import mean_and_interval
from paceline.analysis.free_energy import free_energy_surface
from paceline.analysis.groups import presence_correlation
from paceline.analysis.jackknife_intervals import errors_of_states
from paceline.analysis.lag_time_confidence_intervals import block_products, jackknife_interval
from paceline.analysis.msd import EinsteinMSD, _slopes
from paceline.analysis.pca import PCA
from paceline.analysis.rdf import InterRDF
from paceline.analysis.rms import RMSF
from paceline.analysis.uncertainty import mean_of_series

#: Number of blocks of the bootstrap.
BLOCKS = 10
#: Standard deviation of a step along each axis, Å; frames are 1 ps apart.
STEP = 0.5


def in_memory(positions: np.ndarray, cell: float | None = None) -> paceline.Universe:
    """Create a Universe of atoms at these positions, shape (n_frames, n_atoms, 3), 1 ps apart."""
    universe = paceline.Universe.empty(positions.shape[1], trajectory=True)
    dimensions = None if cell is None else [cell, cell, cell, 90, 90, 90]
    universe.load_new(positions.astype(np.float32), dimensions=dimensions)
    return universe


def autoregressive(rng: np.random.Generator, time: float, n: int, repeats: int) -> np.ndarray:
    """Create series of variance 1 with a correlation time in frames; 0 for independent values."""
    factor = np.exp(-1 / time) if time else 0.0
    noise = rng.standard_normal((repeats, n))
    noise[:, 1:] *= np.sqrt(1 - factor**2)
    return lfilter([1], [1, -factor], noise, axis=1)


def series_coverage(
    make: Callable[[np.random.Generator], np.ndarray], seed: int = 7
) -> tuple[float, float, float]:
    """Return the fractions of intervals that contain the mean, 0: of all and of converged series.

    The third number is the fraction of series that have converged.
    """
    series = make(np.random.default_rng(seed))
    found = [mean_of_series(one, blocks=False) for one in series]
    held = np.array([abs(one.mean) <= one.interval for one in found])
    converged = np.array([one.converged for one in found])
    of_converged = held[converged].mean() if converged.any() else np.nan
    return float(held.mean()), float(of_converged), float(converged.mean())


def with_slow_part(
    part: float, time: float, n: int, repeats: int
) -> Callable[[np.random.Generator], np.ndarray]:
    """Create noise of which a slow component has the fraction `part` of the variance."""
    return lambda rng: (
        np.sqrt(1 - part) * autoregressive(rng, 2, n, repeats)
        + np.sqrt(part) * autoregressive(rng, time, n, repeats)
    )


def two_states(crossings: int, n: int, repeats: int) -> Callable[[np.random.Generator], np.ndarray]:
    """Create series about two values, between which they change `crossings` times on average."""

    def make(rng: np.random.Generator) -> np.ndarray:
        signs = np.where(rng.random((repeats, n)) < crossings / n, -1, 1)
        first = rng.choice([-1, 1], (repeats, 1))
        return first * signs.cumprod(axis=1) + 0.3 * autoregressive(rng, 3, n, repeats)

    return make


def diffusion_coverage(
    n_molecules: int,
    repeats: int,
    fit_range: tuple[float | None, float | None] = (None, None),
    n_frames: int = 400,
    seed: int = 1,
) -> float:
    """Return the fraction of intervals that contain D, for randomly walking molecules."""
    rng = np.random.default_rng(seed)
    walks = rng.normal(scale=STEP, size=(n_frames, n_molecules * repeats, 3)).cumsum(axis=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        msd = EinsteinMSD(in_memory(walks), fit_range=fit_range).run()
    found = msd.results.diffusion_coefficient
    times = msd.results.delta_t_values
    lags = np.flatnonzero((times >= found.start) & (times <= found.stop))
    slopes, _ = _slopes(times, msd.results.msds_by_particle.T, 3, lags)
    held = []
    for k in range(0, len(slopes), n_molecules):
        some = slice(k, k + n_molecules)
        by_block = None if msd._by_block is None else msd._by_block[some]
        one = mean_and_interval(slopes[some], np.arange(n_molecules), by_block)
        held.append(abs(one["value"] - STEP**2 / 2) <= one["interval"])
    return float(np.mean(held))


@lru_cache
def msd_coverage(n_molecules: int, repeats: int, n_frames: int = 400, seed: int = 12) -> np.ndarray:
    """Return the fraction of intervals that contain the MSD of random walks, by lag time."""
    rng, held = np.random.default_rng(seed), []
    right = 3 * STEP**2 * np.arange(n_frames)
    for _ in range(repeats):
        walks = rng.normal(scale=STEP, size=(n_frames, n_molecules, 3)).cumsum(axis=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = EinsteinMSD(in_memory(walks), errors=True).run(backend="serial").results
        low, high = found.timeseries_intervals.T
        held.append(np.where(np.isnan(low), np.nan, (low <= right) & (right <= high)))
    return np.mean(held, axis=0)


def relaxing(
    rng: np.random.Generator, n_frames: int, n_series: int, time: float
) -> tuple[np.ndarray, float]:
    """Create series of variance 1 with a known relaxation time, and the exact integral.

    Series have shape (n_frames, n_series). Times are in frames; the integral uses trapezoids.
    """
    kept = np.exp(-1 / time)
    noise = rng.standard_normal((n_frames, n_series)) * np.sqrt(1 - kept**2)
    noise[0] = rng.standard_normal(n_series)
    return lfilter([1], [1, -kept], noise, axis=0), 0.5 + kept / (1 - kept)


def dipoles(n_frames: int, n_dipoles: int, time: float, seed: int) -> tuple[Any, float]:
    """Create a Universe of two-atom molecules with charges of 1 e and relaxing dipole moments."""
    moments, integral = relaxing(np.random.default_rng(seed), n_frames, 3 * n_dipoles, time)
    positions = np.zeros((n_frames, n_dipoles, 2, 3))
    positions[:, :, 1] = moments.reshape(n_frames, n_dipoles, 3)
    universe = in_memory(positions.reshape(n_frames, 2 * n_dipoles, 3), cell=10.0)
    universe.add_TopologyAttr("charges", np.tile([-1.0, 1.0], n_dipoles))
    universe.add_bonds([(2 * k, 2 * k + 1) for k in range(n_dipoles)])
    return universe, integral


def of_dipoles(
    kind: Callable[..., Any], name: str, repeats: int, n_frames: int, time: float, seed: int
) -> tuple[float, float]:
    """Return the fraction of intervals that contain the value: of all, and of converged runs.

    Runs without an interval are not counted.
    """
    universe, right = dipoles(n_frames, repeats, time, seed)
    if name == "eps_mean":
        energy = convert(constants["Boltzmann_constant"], "kJ/mol", "eV") * 300
        right = 1 + 1 / (energy * 1000 * constants["electric_constant"])
    molecules = [universe.atoms[2 * k : 2 * k + 2] for k in range(repeats)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        analyses = paceline.run([kind(one, make_whole=False) for one in molecules])
    found = [one.results for one in analyses]
    known = [one for one in found if not np.isnan(one[f"{name}_interval"])]
    held = [abs(one[name] - right) <= one[f"{name}_interval"] for one in known]
    return float(np.mean(held)), float(np.mean([one[f"{name}_converged"] for one in known]))


def relaxation_coverage(repeats: int, n_times: int, time: float = 5.0, seed: int = 2) -> float:
    """Return the fraction of intervals that contain a relaxation time, for runs of `n_times`."""
    n_frames = int(n_times * time)
    analysis = DipoleAutocorrelation
    return of_dipoles(analysis, "relaxation_time", repeats, n_frames, time, seed)[0]


def dielectric_coverage(repeats: int, n_times: int, time: float = 5.0, seed: int = 3) -> float:
    """Return the fraction of intervals that contain a dielectric constant."""
    n_frames = int(n_times * time)
    return of_dipoles(DielectricConstant, "eps_mean", repeats, n_frames, time, seed)[0]


def conductivity_coverage(
    repeats: int, n_times: int, until: float = 3.0, time: float = 5.0, seed: int = 4
) -> float:
    """Return the fraction of intervals that contain the integral of C up to some decay times."""
    rng = np.random.default_rng(seed)
    n_frames, last = int(n_times * time), int(until * time)
    right = running_integral(np.exp(-np.arange(last + 1) / time), np.array([0.0, 1.0]))[-1]
    held = []
    for _ in range(repeats):
        currents, _ = relaxing(rng, n_frames, 3, time)
        found = block_products(currents, np.empty(0, int))
        times = np.arange(found.sums.shape[1]) * 1.0
        mean = running_integral(found.sums.sum(axis=0) / found.counts.sum(axis=0), times) / 3
        without = running_integral(found.without_each().T, times).T / 3
        held.append(abs(mean[last] - right) <= jackknife_interval(without)[last])
    return float(np.mean(held))


def velocity_coverage(
    n_molecules: int,
    repeats: int,
    n_times: int,
    until: float = 3.0,
    time: float = 5.0,
    seed: int = 11,
) -> float:
    """Return the fraction of intervals that contain the integral of velocities' correlation.

    Each molecule has two atoms with the same velocity, of variance 1 along each axis, whose
    correlation decays with `time`. The integral is that up to some decay times.
    """
    rng, held = np.random.default_rng(seed), []
    n_frames, last = int(n_times * time), int(until * time)
    right = running_integral(np.exp(-np.arange(last + 1) / time), np.array([0.0, 1.0]))[-1]
    for _ in range(repeats):
        velocities, _ = relaxing(rng, n_frames, 3 * n_molecules, time)
        velocities = np.repeat(velocities.reshape(n_frames, n_molecules, 3), 2, axis=1)
        universe = mda.Universe.empty(
            2 * n_molecules, n_molecules, atom_resindex=np.repeat(np.arange(n_molecules), 2)
        )
        universe.load_new(np.zeros(velocities.shape, np.float32), velocities=velocities)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = VelocityAutocorrelation(universe, errors=True).run(backend="serial").results
        held.append(abs(found.integral[last] - right) <= found.integral_interval[last])
    return float(np.mean(held))


class Presence:
    """Stands in for an analysis that has run, in `presence_correlation`."""

    name, damaged, n_frames = "Presence", (), 0
    times_known, time_unit, lag_title = True, "ps", "lag time (ps)"
    left_out = np.empty(0, bool)

    def __init__(self, n_frames: int):
        self.n_frames, self.frames = n_frames, np.arange(n_frames)
        self.times, self.left_out = np.arange(n_frames) * 1.0, np.zeros(n_frames, bool)

    def record(self) -> dict[str, str]:
        """Return no facts."""
        return {}

    def remark(self, about: str, message: str | None) -> None:
        """Ignore a remark."""


def presence_coverage(
    repeats: int,
    n_times: int,
    n_atoms: int,
    function: str = "continuous",
    leaving: float = 0.1,
    tau_max: int = 20,
    seed: int = 5,
) -> float:
    """Return the fraction of intervals that contain a residence time, for random exchange.

    An atom leaves with a probability of `leaving` per frame, and returns with a fifth of it. The
    length of a run is `n_stays` times the mean stay, which is 1 / `leaving` frames.
    """
    rng, entering = np.random.default_rng(seed), leaving / 5
    n_frames, share = int(n_times / leaving), entering / (entering + leaving)
    lags = np.arange(tau_max + 1)
    stays = (1 - leaving) ** lags
    if function == "intermittent":
        stays = share + (1 - share) * (1 - leaving - entering) ** lags
    right = ((stays[1:] + stays[:-1]) / 2).sum()
    held = []
    for _ in range(repeats):
        there = np.empty((n_frames, n_atoms), bool)
        there[0] = rng.random(n_atoms) < share
        chances = rng.random((n_frames, n_atoms))
        for k in range(1, n_frames):
            there[k] = np.where(there[k - 1], chances[k] >= leaving, chances[k] < entering)
        offsets = np.concatenate([[0], np.cumsum(there.sum(axis=1))])
        analysis: Any = Presence(n_frames)
        arguments = np.nonzero(there)[1], offsets, "atoms", function, tau_max, "residence time"
        found = presence_correlation(analysis, *arguments)
        held.append(abs(found.residence_time - right) <= found.residence_time_interval)
    return float(np.mean(held))


def rmsf_coverage(
    repeats: int, n_times: int, time: float = 10.0, *, bootstrap: bool = False, seed: int = 6
) -> float:
    """Return the fraction of intervals that contain an RMSF, for runs of `n_times`.

    Each atom moves about its mean position with a correlation time in frames. For comparison,
    `bootstrap` takes percentiles of 400 resamplings of ten blocks of the run instead.
    """
    rng = np.random.default_rng(seed)
    n_frames = int(n_times * time)
    moves = autoregressive(rng, time, n_frames, 3 * repeats).T.reshape(n_frames, repeats, 3)
    if bootstrap:
        sums = np.stack([[one.sum(0), (one**2).sum(0)] for one in np.array_split(moves, BLOCKS)])
        counts = rng.multinomial(BLOCKS, np.full(BLOCKS, 1 / BLOCKS), 400)
        means, squares = np.einsum("kb,bmac->mkac", counts, sums) / n_frames
        low, high = np.quantile(np.sqrt((squares - means**2).sum(axis=2)), (0.025, 0.975), axis=0)
        return float(((low <= np.sqrt(3)) & (np.sqrt(3) <= high)).mean())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = RMSF(in_memory(moves), errors=True).run().results
    return float((np.abs(found.rmsf - np.sqrt(3)) <= found.rmsf_interval).mean())


def rdf_coverage(repeats: int, n_times: int, time: float = 10.0, seed: int = 7) -> float:
    """Return the fraction of intervals that contain g(r) = 1, of an ideal gas.

    In each frame, an atom goes to a random place with a probability of 1 / `time`.
    """
    rng = np.random.default_rng(seed)
    n_frames, n_atoms, cell = int(n_times * time), 30, 10.0
    held = []
    for _ in range(repeats):
        moves = rng.random((n_frames, n_atoms)) < 1 / time
        moves[0] = True
        last = np.maximum.accumulate(np.where(moves, np.arange(n_frames)[:, None], 0), axis=0)
        places = rng.uniform(0, cell, (n_frames, n_atoms, 3))
        atoms = in_memory(np.take_along_axis(places, last[..., None], axis=0), cell).atoms
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            options: dict[str, Any] = {"exclusion_block": (1, 1), "errors": True}
            found = InterRDF(atoms, atoms, 16, (1.0, 5.0), **options).run().results
        held.append((np.abs(found.rdf - 1) <= found.rdf_interval).mean())
    return float(np.mean(held))


def surface_coverage(repeats: int, n_changes: int, n: int = 2000, seed: int = 8) -> float:
    """Return the fraction of intervals that contain the free-energy difference of two states, 0.

    Series with one state only have no interval, and are not counted.
    """
    rng = np.random.default_rng(seed)
    held = []
    for x in two_states(n_changes, n, repeats)(rng):
        y, options = rng.random(n), {"range": ((-9, 9), (0, 1)), "errors": True}
        found = free_energy_surface(x, y, bins=(2, 1), **options)
        upper = int(np.argmin(found.counts[:, 0]))
        half = found.free_energy_interval[upper, 0]
        held += [found.free_energy[upper, 0] <= half] if not np.isnan(half) else []
    return float(np.mean(held))


def variance_coverage(
    repeats: int, n_times: int, component: int, time: float = 10.0, seed: int = 10
) -> float:
    """Return the fraction of intervals that contain the variance along a principal component.

    Five atoms move along orthogonal directions with a correlation time in frames. The variance
    along each direction is half of that along the one before.
    """
    rng, variances, held = np.random.default_rng(seed), 16.0 / 2.0 ** np.arange(15), []
    directions = np.linalg.qr(rng.standard_normal((15, 15)))[0]
    for _ in range(repeats):
        moves = autoregressive(rng, time, int(n_times * time), 15).T * np.sqrt(variances)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            atoms = in_memory((moves @ directions).reshape(len(moves), 5, 3))
            found = PCA(atoms, errors=True).run(backend="serial").results
        off = abs(found.variance[component] - variances[component])
        held.append(off <= found.variance_interval[component])
    return float(np.mean(held))


#: Populations of the states of a Markov chain.
POPULATIONS = (0.5, 0.3, 0.15, 0.05)


def markov_chain(
    rng: np.random.Generator, repeats: int, n_changes: float, n: int = 2000
) -> np.ndarray:
    """Create series of states with `POPULATIONS` and so many changes on average.

    In each frame, a new state is drawn by its population with a constant probability.
    """
    moves = rng.random((repeats, n)) < n_changes / n / (1 - np.square(POPULATIONS).sum())
    moves[:, 0] = True
    last = np.maximum.accumulate(np.where(moves, np.arange(n), 0), axis=1)
    drawn = rng.choice(len(POPULATIONS), (repeats, n), p=POPULATIONS)
    return np.take_along_axis(drawn, last, axis=1)


def population_coverage(
    repeats: int, n_changes: int, state: int, *, symmetric: bool = False, seed: int = 9
) -> float:
    """Return the fraction of intervals that contain the population of a state of a Markov chain.

    Series that are in the state in all frames or in none have no interval, and are not counted. For
    comparison, `symmetric` takes intervals that extend equally far below and above the fraction.
    """
    rng, right, held = np.random.default_rng(seed), POPULATIONS[state], []
    for states in markov_chain(rng, repeats, n_changes):
        fractions, found = errors_of_states(Presence(len(states)), states, len(POPULATIONS))
        low, high = found.limits(fractions)[state]
        if symmetric:
            half = found.interval[state]
            low, high = fractions[state] - half, fractions[state] + half
        held += [low <= right <= high] if not np.isnan(low) else []
    return float(np.mean(held))


#: Function that measures each case.
SERIES = {
    **{
        f"autoregressive series with {n} independent values": lambda rng, n=n: autoregressive(
            rng, 1000 / n, 2000, 2000
        )
        for n in (10, 20, 50, 100, 300, 1000)
    },
    **{
        f"{n} independent values": lambda rng, n=n: autoregressive(rng, 0, n, 2000)
        for n in (5, 20, 100)
    },
    **{
        f"noise and a slow part of {part:.0%}, {2000 / time:.3g} correlation times": with_slow_part(
            part, time, 2000, 2000
        )
        for part in (0.05, 0.2, 0.5)
        for time in (100, 300)
    },
    **{f"two states, {n} crossings": two_states(n, 2000, 2000) for n in (3, 10, 30, 100, 300)},
}

CASES: dict[str, Callable[[], float]] = {
    **{
        f"diffusion, {n} molecules, default fit": partial(
            diffusion_coverage, n, max(300, 3000 // n)
        )
        for n in (2, 3, 5, 10, 20, 50)
    },
    **{
        f"diffusion, {n} molecules, fit to a {name} of the run": partial(
            diffusion_coverage, n, max(300, 3000 // n), (400 * part / 10, 400 * part)
        )
        for n in (1, 5, 20)
        for part, name in ((1 / 10, "tenth"), (1 / 20, "twentieth"))
    },
    **{
        f"MSD of {n} molecules at a lag time of {lag / 400:.3g} of the run": lambda n=n, lag=lag: (
            float(msd_coverage(n, max(500, 2000 // n))[lag])
        )
        for n in (1, 3, 10, 100)
        for lag in (4, 20, 40, 100, 200)
        if n > 1 or lag <= 40
    },
    **{
        f"dielectric constant, run of {n} relaxation times": partial(dielectric_coverage, 400, n)
        for n in (20, 50, 100, 200, 500)
    },
    **{
        f"dipole relaxation time, run of {n} relaxation times": partial(relaxation_coverage, 400, n)
        for n in (50, 100, 200, 500)
    },
    **{
        f"conductivity, run of {n} decay times": partial(conductivity_coverage, 1000, n)
        for n in (50, 100, 200, 500)
    },
    **{
        f"diffusion by velocities of {n} molecules, run of {times} decay times": partial(
            velocity_coverage, n, 500, times
        )
        for n, times in ((5, 50), (20, 50), (20, 200), (50, 200))
    },
    **{
        f"{name}, run of {n} stays of {atoms} atoms": partial(
            presence_coverage, 400, n, atoms, function
        )
        for name, function in (
            ("continuous residence time", "continuous"),
            ("intermittent residence time", "intermittent"),
        )
        for n, atoms in ((20, 30), (50, 30), (100, 3), (100, 30), (300, 10))
    },
    **{
        f"RMSF, run of {n} correlation times": partial(rmsf_coverage, 2000, n)
        for n in (10, 20, 50, 100, 500)
    },
    **{
        f"RMSF by bootstrap of {BLOCKS} blocks, run of {n} correlation times": partial(
            rmsf_coverage, 2000, n, bootstrap=True
        )
        for n in (10, 20, 50, 100, 500)
    },
    **{
        f"free energy of two states, {n} changes": partial(surface_coverage, 1000, n)
        for n in (10, 30, 100, 300)
    },
    **{
        f"population of {POPULATIONS[state]:.0%}, {n} changes{end}": partial(
            population_coverage, 2000, n, state, symmetric=symmetric
        )
        for symmetric, end in ((False, ""), (True, ", symmetric interval"))
        for state in range(len(POPULATIONS))
        for n in (10, 30, 100, 300)
    },
    **{
        f"variance along component {k + 1}, run of {n} correlation times": partial(
            variance_coverage, 500, n, k
        )
        for k in (0, 2)
        for n in (10, 20, 50, 100, 500)
    },
    **{
        f"g(r) of an ideal gas, run of {n} mean stays": partial(rdf_coverage, 100, n)
        for n in (10, 20, 50, 100, 500)
    },
}


def main() -> None:
    """Print the coverage of each case."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", help="words of the names of cases (default: all)")
    words = parser.parse_args().words
    for name, make in SERIES.items():
        if not words or any(word in name for word in words):
            held, of_converged, converged = series_coverage(make)
            print(f"{held:6.1%}  {name}; {of_converged:.1%} of the {converged:.1%} converged")
    for name, measure in CASES.items():
        if not words or any(word in name for word in words):
            print(f"{measure():6.1%}  {name}", flush=True)


if __name__ == "__main__":
    main()
