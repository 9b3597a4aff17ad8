"""Diffusion coefficients, their intervals from molecules or time blocks, and cell effects."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from paceline.analysis.uncertainty import LEVEL, mean_of_replicas, students_t, with_error
from paceline.contract.system_interface import System, has_attribute
from paceline.performance.number_format import joined, many
from paceline.transform.bonds_and_compounds import known_bonds
from paceline.transform.known_and_guessed_bonds import bond_list

#: Possible numbers of time blocks, and for each the maximum ratio of the longest lag time of the
#: fit to the length of the run. A block is at least twice as long as this lag time, so that it
#: contains several time origins.
BLOCKS = {10: 1 / 20, 5: 1 / 10}
#: Minimum number of molecules of one size for an interval between molecules.
FEWEST = 2
#: Constant of a cubic lattice in the correction of Yeh and Hummer.
CUBIC = 2.837297
#: k_B / (6 π · 1 mPa s · 1 Å), in 10⁻⁵ cm²/s per K (CODATA 2018).
DRAG = 1.380649e-23 / (6 * np.pi * 1e-3 * 1e-10) * 1e4 / 1e-5
#: Maximum relative difference of the edges of a cubic cell.
SAME_EDGE = 1e-3
#: Maximum difference of the angles of a cubic cell, degrees.
SAME_ANGLE = 1e-2


class DiffusionCoefficient(NamedTuple):
    """Diffusion coefficient, its uncertainty, and the data that it was computed from.

    Attributes
    ----------
    value, error : float
        Value and standard error, Å²/ps; 1 Å²/ps is 10⁻⁴ cm²/s.
    start, stop : float
        First and last lag time of the fit, ps.
    n_particles : int
        Number of particles whose MSDs were averaged.
    interval : float
        Half the width of the 95 % interval, by Student's t, Å²/ps; NaN without an interval.
    n_molecules : int
        Number of molecules that contain the particles; molecules count as independent.
    n_blocks : int
        Number of time blocks from which the error was computed; 0 for an error between molecules.
    time_unit : str
        "ps", or "frames" if times are unknown; then all values are per frame instead of per ps.
    """

    value: float
    error: float
    start: float
    stop: float
    n_particles: int
    interval: float = np.nan
    n_molecules: int = 1
    n_blocks: int = 0
    time_unit: str = "ps"

    def __str__(self) -> str:
        """Value and 95 % interval, with the unit."""
        known = self.time_unit == "ps"
        value, interval = (10 * x if known else x for x in (self.value, self.interval))
        unit = "cm²/s" if known else "Å² per frame"
        if not interval > 0:
            few = "one molecule"
            if self.n_molecules > 1:
                few += f" of {self.n_molecules:,} has most of the particles"
            power = "·10⁻⁵" if known else ""
            return f"{value:.3g}{power} {unit}, no interval: {few}"
        of = f"{self.n_molecules:,} molecules"
        if self.n_blocks:
            of = f"{self.n_blocks} blocks of time"
        shown = with_error(value, interval, -5) if known else f"{value:.3g} ± {interval:.2g}"
        return f"{shown} {unit} (95 %, {of})"


class BlockFit(NamedTuple):
    """Fit of a line to the MSD of each time block, at lag times of `lags` frames.

    The diffusion coefficient is the sum of the products of `weights` and the MSDs at these lags.
    """

    n_blocks: int
    lags: np.ndarray
    weights: np.ndarray


def weights_of(times: np.ndarray, n_dimensions: int) -> np.ndarray:
    """Compute the weights by which MSDs at `times` add up to the fitted diffusion coefficient."""
    off = times - times.mean()
    return off / (off**2).sum() / (2 * n_dimensions)


def block_fit(times: np.ndarray, lags: np.ndarray, n_dimensions: int) -> BlockFit | None:
    """Choose the time blocks of a run for a fit; None if the run has too few blocks."""
    for n_blocks, part in BLOCKS.items():
        if lags[-1] <= part * len(times):
            return BlockFit(n_blocks, lags, weights_of(times[lags], n_dimensions))
    return None


def lags_of_blocks(n_frames: int) -> dict[int, int]:
    """For each number of time blocks, return for how many lag times, from 0, blocks are used."""
    found = {n_blocks: int(part * n_frames) + 1 for n_blocks, part in BLOCKS.items()}
    return {n_blocks: n_lags for n_blocks, n_lags in found.items() if n_lags > 1}


def mean_and_interval(
    slopes: np.ndarray, molecules: np.ndarray, by_block: np.ndarray | None
) -> dict[str, Any]:
    """Average the diffusion coefficients of all particles; also compute the error and interval.

    The particles of a molecule move together, so each molecule counts once, with the sum of its
    particles. `by_block` contains coefficients of particles in time blocks, shape (n_particles,
    n_blocks). Motion that molecules share, such as sliding of a leaflet, appears only in the
    differences between blocks. Blocks are used for the error if there is one molecule, or if the
    blocks differ by more than the variance between molecules explains (F test, 5 %).
    """
    value = float(slopes.mean())
    counts = np.bincount(molecules)
    found = {"value": value, "error": np.nan, "interval": np.nan}
    found |= {"n_molecules": len(counts), "n_blocks": 0}
    off = np.bincount(molecules, weights=slopes) - counts * value
    n, half = error_between_molecules(counts, np.array(off @ off))
    if n >= FEWEST:
        found |= {"error": float(half[0]), "interval": float(half[1])}
    if by_block is not None:
        blocks = by_block.mean(axis=0)
        blocks = blocks[~np.isnan(blocks)]
        n_blocks = len(blocks)
        if n_blocks > min(BLOCKS) // 2:
            error = float(blocks.std(ddof=1) / np.sqrt(n_blocks))
            if _differ_by_more(error, n_blocks, found["error"], n):
                interval = float(students_t(n_blocks - 1)) * error
                found |= {"error": error, "interval": interval, "n_blocks": n_blocks}
    return found


def _differ_by_more(error: float, n_blocks: int, of_molecules: float, n_molecules: float) -> bool:
    """True if blocks differ by more than molecules explain (F test), or for a single molecule."""
    from scipy.special import fdtr

    ratio = (error / of_molecules) ** 2 if of_molecules else np.inf
    # The ratio is NaN for one molecule; `not ... <=` is then also True.
    return not fdtr(n_blocks - 1, n_molecules - 1, ratio) <= LEVEL


class CurveLimits(NamedTuple):
    """Limits of the 95 % intervals of an MSD."""

    #: Lower and upper limit at each lag time, shape (n_lags, 2).
    limits: np.ndarray
    #: Description of how the limits are computed.
    method: str
    #: Warning about the limits; empty without one.
    remark: str


def limits_of_msd(
    mean: np.ndarray, counts: np.ndarray, squares: np.ndarray, blocks: Mapping[int, np.ndarray]
) -> CurveLimits:
    r"""Compute the limits of the 95 % intervals of an MSD: $m \, e^{\pm t s / m}$.

    The standard error $s$ of the mean $m$ at each lag time is that of a diffusion coefficient
    (`mean_and_interval`): between molecules, with `counts` and `squares` as for
    `error_between_molecules`, or between time blocks. `blocks` maps numbers of blocks to the MSDs
    of the blocks at the first lag times, shape (n_blocks, n_lags). Blocks and molecules are
    compared at the last of these lag times. An MSD is above 0, and values of molecules are skewed,
    so limits are at equal distances from the logarithm of the mean.
    """
    n, (errors, half) = error_between_molecules(counts, squares)
    used = {}
    for n_blocks, some in sorted(blocks.items()):
        found = mean_of_replicas(some)
        is_known = found.n_replicas > n_blocks // 2
        last = int(np.flatnonzero(is_known).max(initial=0))
        error, number = float(found.error[last]), int(found.n_replicas[last])
        if last and _differ_by_more(error, number, float(errors[last]), n):
            half[: len(is_known)] = np.where(is_known, found.interval, np.nan)
            used[n_blocks] = f"{n_blocks} blocks of time up to {BLOCKS[n_blocks]:.0%} of the run"
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        factors = np.exp(np.where((half > 0) & (mean > 0), half / mean, np.nan))
    limits = np.stack([mean / factors, mean * factors], axis=1)
    molecules = [many(len(counts), "molecule")] if n >= FEWEST else []
    between = [*reversed(used.values()), *molecules]
    if not between:
        few = "has most of the particles" if len(counts) > 1 else "has all particles"
        why = f"no intervals of the MSD: one molecule {few}, and there are no blocks of time"
        return CurveLimits(limits, why, why)
    remark, fewest = "", min(BLOCKS)
    if molecules and fewest in used:
        remark = (
            "blocks of time differ by more than the molecules explain, so molecules may share a "
            f"motion; at lag times of more than {BLOCKS[fewest]:.0%} of the run, the "
            "intervals of the MSD are between molecules, and may be too narrow"
        )
    return CurveLimits(limits, f"95 %, between {joined(between)}", remark)


def squares_of_molecules(
    by_particle: np.ndarray,
    molecules: np.ndarray,
    mean: np.ndarray,
    function: Callable[[np.ndarray], np.ndarray] = np.asarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of particles of each molecule, and a sum of squares for the error.

    Both are arguments of `error_between_molecules`. They belong to a linear `function` of the mean
    over particles. `by_particle` has shape (n_particles, n_lags).
    """
    counts = np.bincount(molecules)
    squares = np.zeros(len(mean))
    for particles in np.split(np.argsort(molecules, kind="stable"), np.cumsum(counts)[:-1]):
        off = by_particle[particles].sum(axis=0) - len(particles) * mean
        squares += function(off) ** 2
    return counts, squares


def error_between_molecules(counts: np.ndarray, squares: np.ndarray) -> tuple[float, np.ndarray]:
    """Compute the effective number of molecules, and the error of a mean over their particles.

    `counts` are the numbers of particles of the molecules. `squares`, of any shape, is the sum over
    molecules of (s - n m)², where s is the sum of the values of the n particles of a molecule, and
    m the mean over all particles. The error has shape (2, ...): standard errors, and half the
    widths of 95 % intervals; NaN for too few molecules.
    """
    n = float(counts.sum()) ** 2 / float(counts @ counts)  # exact for equal sizes
    if n < FEWEST:
        return n, np.full((2, *squares.shape), np.nan)
    error = np.sqrt(n / (n - 1) * squares) / counts.sum()
    return n, np.stack([error, students_t(n - 1) * error])


def molecules_of(universe: System, atoms: np.ndarray) -> tuple[np.ndarray, str]:
    """Number the molecules of some atoms, and describe how molecules are identified.

    Without bonds, as in GRO and most PDB files, each residue is a molecule. All residues of protein
    and nucleic acid in a segment form one chain.
    """
    bonds = known_bonds(universe)
    has_bonds, lacking = len(bonds) > 0, bond_list(universe).lacking
    if not has_bonds and len(universe.residues) == 1:
        known = "each atom counts as a molecule: the topology has no bonds and only one residue"
        return np.arange(len(atoms)), known if len(atoms) > 1 else ""
    is_free = np.ones(len(universe.atoms), bool)
    is_free[bonds.pairs] = False
    residues = universe.atoms.resindices
    within = np.isin(residues, residues[is_free])
    in_residues = _pair_with_next(residues, np.flatnonzero(within))
    bonds = bonds.with_pairs(in_residues)
    if len(in_residues):
        chains = np.flatnonzero(within & _is_polymer(universe))
        bonds = bonds.with_pairs(_pair_with_next(universe.atoms.segindices, chains))
    fragments = bonds.fragments
    numbers = np.unique(fragments[atoms], return_inverse=True)[1].reshape(-1)
    guessed = ""
    if not has_bonds or np.isin(atoms, lacking).any():
        guessed = (
            "molecules are residues, and chains of protein and nucleic acid: the topology has no "
            f"bonds{' of some' * has_bonds}"
        )
    return numbers, guessed


def _pair_with_next(groups: np.ndarray, atoms: np.ndarray) -> np.ndarray:
    """Pair each atom of `atoms` with the next atom of `atoms` in the same group."""
    order = atoms[np.argsort(groups[atoms], kind="stable")]
    pairs = np.stack([order[:-1], order[1:]], axis=1)
    return pairs[groups[pairs[:, 0]] == groups[pairs[:, 1]]].astype(np.int64)


def _is_polymer(universe: System) -> np.ndarray:
    """Find the atoms of protein and nucleic acid by residue names."""
    found = np.zeros(len(universe.atoms), bool)
    if has_attribute(universe.atoms, "resnames"):
        found[universe.select_atoms("protein or nucleic").indices] = True
    return found


def finite_size(dimensions: np.ndarray | None, n_dimensions: int) -> str:
    r"""Describe the effect of a periodic cell on a diffusion coefficient; "" without a cell.

    $$D_\infty = D + \frac{2.837297\, k_B T}{6 \pi \eta L}$$

    in a cubic cell with edge L (Yeh & Hummer 2004, J. Phys. Chem. B 108, 15873, eq. 12).
    """
    if dimensions is None or not np.all(np.asarray(dimensions)[:3] > 0):
        return ""
    edges, angles = np.asarray(dimensions[:3], float), np.asarray(dimensions[3:], float)
    beginning = "not corrected: D in a periodic cell is too small"
    if n_dimensions != 3:
        return f"{beginning}, or, in a membrane, too large or too small; see the manual"
    if np.ptp(edges) > SAME_EDGE * edges.max() or np.abs(angles - 90).max() > SAME_ANGLE:
        return (
            f"{beginning}, in liquids by about 2.8 k_B T / (6 π η L) (Yeh & Hummer 2004, for cubic "
            "cells; this cell is not cubic)"
        )
    edge = float(edges.mean())
    return (
        f"{beginning}, in liquids by 2.837297 k_B T / (6 π η L) (Yeh & Hummer 2004), with "
        f"L = {edge:.4g} Å: {CUBIC * DRAG / edge:.3g}·10⁻⁵ cm²/s × (T / K) / (η / mPa s), with the "
        "temperature and the viscosity of the solvent model"
    )
