"""Measure how many 95 % intervals hold the true value, on simulated series whose value is known.

    python -m benchmarks.coverage              # all: some minutes
    python -m benchmarks.coverage diffusion    # those with one of these words in their names

An interval of 95 % holds the true value in 95 of 100 repetitions. The manual has these figures.
"""

import argparse
import warnings
from collections.abc import Callable

import numpy as np

import paceline
from paceline.analysis.diffusion import mean_and_interval
from paceline.analysis.msd import EinsteinMSD, _slopes

#: Standard deviation of a step along each axis, Å; frames are 1 ps apart.
STEP = 0.5


def in_memory(positions: np.ndarray) -> paceline.Universe:
    """Make a Universe of atoms at these positions, shape (n_frames, n_atoms, 3), 1 ps apart."""
    universe = paceline.Universe.empty(positions.shape[1], trajectory=True)
    universe.load_new(positions.astype(np.float32))
    return universe


def diffusion_coverage(
    n_molecules: int,
    repeats: int,
    fit_range: tuple[float | None, float | None] = (None, None),
    n_frames: int = 400,
    seed: int = 1,
) -> float:
    """Return the share of intervals of D that hold it, of molecules that walk at random."""
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


#: What is measured, and the function that does so.
CASES: dict[str, Callable[[], float]] = {
    **{
        f"diffusion, {n} molecules, default fit": lambda n=n: diffusion_coverage(n, 3000 // n)
        for n in (2, 3, 5, 10, 20, 50)
    },
    **{
        f"diffusion, {n} molecules, fit to a {name} of the run": lambda n=n, part=part: (
            diffusion_coverage(n, 3000 // n, (400 * part / 10, 400 * part))
        )
        for n in (1, 5, 20)
        for part, name in ((1 / 10, "tenth"), (1 / 20, "twentieth"))
    },
}


def main() -> None:
    """Print the coverage of each case."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", help="words of the names of cases (default: all)")
    words = parser.parse_args().words
    for name, measure in CASES.items():
        if not words or any(word in name for word in words):
            print(f"{measure():6.1%}  {name}", flush=True)


if __name__ == "__main__":
    main()
