"""Persistence length and internal distances of polymer chains."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from paceline.analysis.kernels import check_finite
from paceline.analysis.lag_time_confidence_intervals import jackknife_interval
from paceline.analysis.molecular_chains import (
    CHAINS,
    FEWEST,
    ChainAnalysis,
    ChainKind,
    samples_of_chains,
)
from paceline.analysis.results import Results
from paceline.analysis.table import Table, title_of_band
from paceline.analysis.uncertainty import with_error
from paceline.block import Block
from paceline.contract.analysis_declaration import Declaration, Option
from paceline.contract.analysis_kinds import Reduction
from paceline.contract.system_interface import Atoms

#: Value of the bond correlation at which the default fit range ends.
FIT_END = float(np.exp(-2))
#: Last separation in figures, as a multiple of the last separation of the fit.
DRAWN = 4
#: Minimum number of separations in the default fit range.
LEAST_FIT = 3
#: Fit range of the exponent, as fractions of the number of bonds of the longest chain. Chains are
#: stiff at shorter separations, and longer separations have few pairs.
SLOPE_RANGE = 0.1, 0.5
#: Persistence lengths above this multiple of the longest separation in the fit count as infinite.
STRAIGHT = 1e5


class InternalSums(NamedTuple):
    """Sums over frames for each sample of the jackknife: a group of chains, or a time block.

    The fields are: number of frames, shape (n_samples,); lengths of bonds (Å), shape (n_samples,);
    bond correlations for separations from 0, shape (n_samples, n_bonds); squared distances (Å²) for
    separations from one bond, shape (n_samples, n_bonds); and the length of the longest bond (Å),
    shape (1,), which is a maximum, not a sum.
    """

    frames: np.ndarray
    lengths: np.ndarray
    bonds: np.ndarray
    squares: np.ndarray
    longest: np.ndarray


class _Internal(Reduction[InternalSums]):
    """Worker part that sums bond correlations and internal distances.

    If `starts` is set, there is one sum for each time block that begins at one of these frame
    numbers; otherwise there is one sum for each group of chains.
    """

    def __init__(self, sizes: np.ndarray, starts: np.ndarray | None):
        self._sizes, self._starts = sizes, starts

    def compute(self, block: Block) -> InternalSums:
        """Sum over the frames that are decoded together in a block."""
        numbers = samples_of_chains(len(self._sizes))
        n_samples = numbers[-1] + 1 if self._starts is None else len(self._starts)
        n_bonds = self._sizes.max() - 1
        found = InternalSums(
            np.zeros(n_samples),
            np.zeros(n_samples),
            np.zeros((n_samples, n_bonds)),
            np.zeros((n_samples, n_bonds)),
            np.zeros(1),
        )
        positions, columns = block.raw
        for row in range(len(block)):
            if not block.held[row]:
                continue
            at = positions[row] if columns is None else positions[row, columns]
            check_finite(block[row : row + 1], np.array([not np.isfinite(at).all()]))
            samples = numbers
            if self._starts is None:
                found.frames[:] += 1
            else:
                sample = np.searchsorted(self._starts, block.frames[row], side="right") - 1
                samples = np.full(len(numbers), sample)
                found.frames[sample] += 1
            self._add(at.astype(np.float64), samples, found, block.frames[row])
        return found

    def _add(self, at: np.ndarray, samples: np.ndarray, found: InternalSums, frame: int) -> None:
        """Add the frame with positions `at` to `found`; compute chains of equal length together."""
        firsts = np.cumsum(self._sizes) - self._sizes
        for size in np.unique(self._sizes):
            some = np.flatnonzero(self._sizes == size)
            chains = at[firsts[some, None] + np.arange(size)]
            vectors = np.diff(chains, axis=1)
            lengths = np.sqrt((vectors**2).sum(axis=2))
            if not lengths.all():
                raise ValueError(f"frame {frame}: adjacent atoms of a chain have the same position")
            found.longest[:] = max(found.longest[0], lengths.max())
            of = samples[some]
            np.add.at(found.lengths, of, lengths.sum(axis=1))
            products = _lagged_products(vectors / lengths[..., None])
            np.add.at(found.bonds[:, : size - 1], of, products)
            np.add.at(found.squares[:, : size - 1], of, _squares(chains))

    def merge(self, left: InternalSums, right: InternalSums) -> InternalSums:
        """Add the sums of two adjacent ranges of frames."""
        return InternalSums(
            left.frames + right.frames,
            left.lengths + right.lengths,
            left.bonds + right.bonds,
            left.squares + right.squares,
            np.maximum(left.longest, right.longest),
        )


def _lagged_products(values: np.ndarray) -> np.ndarray:
    """Sum inner products of vectors at each separation along a chain: shape (n_chains, n).

    `values` has shape (n_chains, n, 3). Fourier transforms are used.
    """
    n = values.shape[1]
    size = 1 << (2 * n - 1).bit_length()
    spectrum = np.fft.rfft(values, size, axis=1)
    power = (spectrum.real**2 + spectrum.imag**2).sum(axis=2)
    return np.fft.irfft(power, size, axis=1)[:, :n]


def _squares(chains: np.ndarray) -> np.ndarray:
    """Sum squared distances of atoms at each separation from 1, Å²: shape (n_chains, n - 1)."""
    at = chains - chains.mean(axis=1, keepdims=True)
    products = _lagged_products(at)[:, 1:]
    sums = np.cumsum((at**2).sum(axis=2), axis=1)
    return sums[:, -2::-1] + (sums[:, -1:] - sums[:, :-1]) - 2 * products


class PersistenceLength(ChainAnalysis):
    r"""Persistence length and internal distances, averaged over chains and frames.

    $$C(n) = \left\langle \mathbf{u}_i \cdot \mathbf{u}_{i+n} \right\rangle \approx
             e^{-n l_b / l_p}, \qquad
      C_n = \frac{\langle R^2(n) \rangle}{n \langle l^2 \rangle}$$

    with the directions $\mathbf{u}_i$ of bonds along the backbone and their mean length $l_b$. The
    persistence length $l_p$ is fitted by least squares. $\langle R^2(n) \rangle$ is the mean square
    distance of atoms separated by n bonds. $C_n$ is the characteristic ratio of n bonds (Flory
    1969, Statistical Mechanics of Chain Molecules). $\langle R^2(n) \rangle \sim n^{2\nu}$ has the
    exponent 1 for ideal chains and melts, 1.18 in a good solvent, and 2 for straight chains.
    Molecules must be whole.

    MDAnalysis computes the same correlation, but takes the bond length from a single frame, and
    fits all separations, as with `fit_range` from 0 to the last one.

    Parameters
    ----------
    atomgroups : AtomGroup or list of AtomGroup
        As for `Polymer`; chains may differ in length.
    chains : {"bonds", "fragments", "segments", "residues"}
        As for `Polymer`.
    fit_range : pair of int, optional
        First and last separation of the fit, in bonds. The default begins at 0, and ends before the
        correlation first falls to 1/e², but at least at 2.

    Attributes
    ----------
    results.bond_autocorrelation : numpy.ndarray of float64, shape (n_bonds,)
        C, from separation 0; n_bonds is the number of bonds of the longest chain.
    results.bond_autocorrelation_interval : numpy.ndarray of float64, shape (n_bonds,)
        Half the widths of the 95 % intervals, by jackknife over up to 100 groups of chains. For
        less than ten chains, the jackknife uses ten time blocks, and values are NaN for less than
        ten frames. Other intervals are computed in the same way.
    results.lb : float
        Mean bond length, Å.
    results.x : numpy.ndarray of float64, shape (n_bonds,)
        Separations along the chain, Å.
    results.lp : float
        Persistence length, Å; infinite for straight chains.
    results.lp_interval : float
        Half the width of the 95 % interval of the persistence length, Å.
    results.fit : numpy.ndarray of float64, shape (n_bonds,)
        Fitted exponential at x.
    results.fit_range : numpy.ndarray of int64, shape (2,)
        First and last separation of the fit, in bonds.
    results.internal_distances : numpy.ndarray of float64, shape (n_bonds,)
        Mean square distances of atoms, Å², for separations from one bond to the whole chain.
    results.internal_distances_interval : numpy.ndarray of float64, shape (n_bonds,)
        Half the widths of the 95 % intervals of the internal distances, Å².
    results.characteristic_ratio : numpy.ndarray of float64, shape (n_bonds,)
        Characteristic ratio for each separation.
    results.exponent, results.exponent_interval : float
        Slope of the logarithm of internal distances against the logarithm of the separation, from a
        tenth to half of the bonds of the longest chain, and half the width of its 95 % interval.

    Raises
    ------
    SelectionError, UnsupportedError
        As for `Polymer`.
    ValueError
        `fit_range` is outside the chains. In the run, as `AnalysisError`: adjacent atoms of a
        chain have the same position, or positions are not finite.

    Examples
    --------
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import PSF, DCD
    >>> from paceline.analysis.persistence_length import PersistenceLength
    >>> u = paceline.Universe(PSF, DCD)
    >>> backbone = u.select_atoms("protein and name CA")
    >>> found = PersistenceLength(backbone, chains="segments").run().results
    >>> round(found.lb, 2), found.fit_range
    (3.84, array([0, 2]))
    """

    declaration = Declaration(
        name="persistence-length",
        summary="persistence length and internal distances of polymer chains",
        title="persistence length",
        description=(
            "Correlation of the directions of bonds along the backbone of chains against their "
            "separation (Å), and the persistence length (Å) from an exponential fit, with its 95 % "
            "interval; mean square internal distances (Å²) and characteristic ratios. Select the "
            "atoms of the backbones. Molecules must be whole (--unwrap)."
        ),
        section="structure.md#polymers",
        examples=(
            "melt.data melt.dcd --select all --unwrap -o persistence.csv --plot persistence.png",
            'melt.psf melt.dcd --select "not name O* H*" --distances distances.png -o fit.csv',
        ),
        options=(
            CHAINS,
            Option(
                "fit_range",
                "first and last separation of the fit, bonds [from 0 to a correlation of 1/e²]",
                nargs=2,
                type="int",
                metavar=("FIRST", "LAST"),
            ),
        ),
        counterpart="polymer.PersistenceLength",
        further={"distances": "write mean square internal distances and characteristic ratios"},
    )

    FURTHER_TABLES = ("distances",)

    def __init__(
        self,
        atomgroups: Atoms | Sequence[Atoms],
        *,
        chains: ChainKind = "bonds",
        fit_range: Sequence[int] | None = None,
        verbose: bool = False,
    ):
        super().__init__(atomgroups, chains, verbose)
        self._n_bonds = int(self._chains.sizes.max()) - 1
        self.fit_range = None
        if fit_range is not None:
            first, last = map(int, fit_range)
            if not 0 <= first < last < self._n_bonds:
                raise ValueError(
                    "fit_range must be two separations in increasing order from 0 to "
                    f"{self._n_bonds - 1} bonds, the last of the longest chain, not "
                    f"{first} and {last}"
                )
            self.fit_range = first, last

    def parameters(self) -> dict[str, object]:
        """Return the parameters that are saved with the results."""
        asked = "chosen" if self.fit_range is None else "{} to {} bonds".format(*self.fit_range)
        return {**super().parameters(), "fit_range": asked}

    @property
    def _by_time(self) -> bool:
        """True if the jackknife leaves out time blocks, not groups of chains."""
        return len(self._chains.sizes) < FEWEST

    @property
    def needs_all_frames(self) -> bool:  # type: ignore[override]
        """True if intervals use time blocks, which depend on the number of frames of the run."""
        return self._by_time

    def prepare(self) -> _Internal:
        """Choose time blocks or groups of chains for the intervals, and make the worker part."""
        starts = None
        if self._by_time:
            blocks = np.array_split(np.sort(self.frames), min(FEWEST, len(self.frames)))
            starts = np.array([one[0] for one in blocks])
        return _Internal(self._chains.sizes, starts)

    def finish(self, value: InternalSums) -> None:
        """Divide sums by numbers of pairs, and fit the persistence length and the exponent."""
        value = InternalSums(*value)
        pairs = self._pairs(len(value.frames)) * value.frames[:, None]
        sums = np.stack([value.bonds, value.squares])
        total = _means(sums.sum(axis=1), pairs.sum(axis=0))
        lb = float(value.lengths.sum() / pairs[:, 0].sum()) if pairs.any() else np.nan
        first, last = self.fit_range or _range_of(total[0])
        lp = _fit(lb, total[0], first, last)
        slopes = _slope(total[1])
        intervals = np.full(total.shape, np.nan)
        lp_interval = slope_interval = np.nan
        there = value.frames > 0
        if there.sum() >= FEWEST:
            without = [
                (
                    (value.lengths.sum() - value.lengths[k]) / (pairs[:, 0].sum() - pairs[k, 0]),
                    _means(sums.sum(axis=1) - sums[:, k], pairs.sum(axis=0) - pairs[k]),
                )
                for k in np.flatnonzero(there)
            ]
            intervals = jackknife_interval(np.array([means for _, means in without]))
            if np.isfinite(lp):
                fits = np.array([_fit(b, means[0], first, last) for b, means in without])
                lp_interval = float(jackknife_interval(fits))
            slope_interval = float(
                jackknife_interval(np.array([_slope(means[1]) for _, means in without]))
            )
        self._note(float(value.longest[0]), lb)
        self.results = Results(
            provenance={},
            bond_autocorrelation=total[0],
            bond_autocorrelation_interval=intervals[0],
            lb=lb,
            x=lb * np.arange(self._n_bonds),
            lp=lp,
            lp_interval=lp_interval,
            fit=np.exp(-lb * np.arange(self._n_bonds) / lp),
            fit_range=np.array([first, last]),
            internal_distances=total[1],
            internal_distances_interval=intervals[1],
            characteristic_ratio=total[1] / (total[1, 0] * np.arange(1, self._n_bonds + 1)),
            exponent=slopes,
            exponent_interval=slope_interval,
        )
        self._tabulate()

    def _pairs(self, n_samples: int) -> np.ndarray:
        """Count pairs of bonds in a frame at each separation: shape (n_samples, n_bonds).

        A sample is a time block or a group of chains. The number of pairs of atoms at a separation
        of n + 1 bonds is the same as the number of pairs of bonds at a separation of n.
        """
        bonds = self._chains.sizes[:, None] - 1 - np.arange(self._n_bonds)
        bonds = np.maximum(bonds, 0)
        if self._by_time:
            return np.tile(bonds.sum(axis=0), (n_samples, 1))
        found = np.zeros((n_samples, self._n_bonds))
        np.add.at(found, samples_of_chains(len(bonds)), bonds)
        return found

    def _tabulate(self) -> None:
        """Add the table of the bond correlation to the results."""
        results = self.results
        first, last = results.fit_range
        samples = "blocks of time" if self._by_time else "chains"
        text = _with_interval(results.lp, results.lp_interval, "Å", samples)
        inside = np.arange(self._n_bonds)
        inside = (inside >= first) & (inside <= last)
        x, title, fit = "separation along the chain (Å)", "bond correlation", "fitted exponential"
        columns = {
            x: results.x,
            "separation (bonds)": np.arange(self._n_bonds),
            title: results.bond_autocorrelation,
            title_of_band(title): results.bond_autocorrelation_interval,
            fit: np.where(inside, results.fit, np.nan),
        }
        notes = {
            "persistence length": text,
            "fit": f"{first} to {last} bonds, {results.x[first]:.4g} to {results.x[last]:.4g} Å",
            "mean length of bonds": f"{results.lb:.4g} Å",
        }
        legend = {
            title: f"{self._chains}",
            fit: f"lp = {text}, fit of {results.x[first]:.3g} to {results.x[last]:.3g} Å",
        }
        shown = {key: values[: DRAWN * last + 1] for key, values in columns.items()}
        options: dict[str, Any] = {"notes": notes, "bands": {title: title_of_band(title)}}
        drawn = Table(shown, x, legend, title, **options)
        table = Table(columns, x, legend, title, drawn, **options)
        self.results = Results(table=table, provenance={**self.record(), **notes}, **results)

    def further_tables(self) -> dict[str, Table]:
        """Return the table of internal distances and characteristic ratios, with log-log figures.

        Returns
        -------
        dict of str to Table
            "distances", by separation.
        """
        results, n = self.results, np.arange(1, self._n_bonds + 1)
        first, last = _slope_range(self._n_bonds)
        samples = "blocks of time" if self._by_time else "chains"
        text = _with_interval(results.exponent, results.exponent_interval, "", samples)
        x, title = "separation (bonds)", "mean square distance (Å²)"
        line = np.full(self._n_bonds, np.nan)
        inside = slice(first - 1, last)
        with np.errstate(invalid="ignore", divide="ignore"):
            offset = np.log(results.internal_distances / n**results.exponent)[inside].mean()
        line[inside] = np.exp(offset) * n[inside] ** results.exponent
        columns = {
            x: n,
            title: results.internal_distances,
            "mean square distance, 95 % ± (Å²)": results.internal_distances_interval,
            "characteristic ratio": results.characteristic_ratio,
            "fitted power (Å²)": line,
        }
        notes = {
            "slope": f"{text}, {first} to {last} bonds",
            "characteristic ratio of the longest chain": f"{results.characteristic_ratio[-1]:.4g}",
        }
        legend = {
            title: f"{self._chains}",
            "fitted power (Å²)": f"slope {text}, {first} to {last} bonds",
        }
        bands = {title: "mean square distance, 95 % ± (Å²)"}
        table = Table(columns, x, legend, title, notes=notes, bands=bands, logarithmic=True)
        return {"distances": table}


def _means(sums: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """Divide sums by numbers of pairs; NaN without pairs."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return sums / pairs


def _with_interval(value: float, interval: float, unit: str, samples: str) -> str:
    """Format a number with its 95 % interval; state if it is infinite or has no interval."""
    end = f" {unit}" if unit else ""
    if np.isinf(value):
        return "infinite: the chains are straight"
    if not interval > 0:
        return f"{value:.4g}{end}, no interval"
    return f"{with_error(value, interval)}{end} (95 %, {samples})"


def _range_of(correlation: np.ndarray) -> tuple[int, int]:
    """Choose the first and the last separation of the fit, up to a correlation of 1/e²."""
    ends = np.flatnonzero(correlation <= FIT_END)
    last = int(ends[0]) - 1 if len(ends) else len(correlation) - 1
    return 0, min(max(last, LEAST_FIT - 1), len(correlation) - 1)


def _fit(lb: float, correlation: np.ndarray, first: int, last: int) -> float:
    """Fit exp(-x / lp) by least squares; return lp in Å, or infinity if there is no decay."""
    from scipy.optimize import least_squares

    x, y = np.arange(first, last + 1, dtype=float), correlation[first : last + 1]
    if not np.isfinite(y).all():
        return np.nan
    guess = -np.log(np.clip(y[-1], 0.01, 0.999999)) / x[-1]
    found = least_squares(
        lambda rate: np.exp(-rate * x) - y,
        [guess],
        jac=lambda rate: (-x * np.exp(-rate * x))[:, None],
        xtol=1e-12,
        ftol=1e-14,
        gtol=1e-14,
        x_scale=guess,
    )
    rate = float(found.x[0])
    return lb / rate if rate * x[-1] > 1 / STRAIGHT else np.inf


def _slope_range(n_bonds: int) -> tuple[int, int]:
    """Choose the first and the last separation (in bonds) for the slope; the two always differ."""
    first, last = (int(part * n_bonds) for part in SLOPE_RANGE)
    first = max(first, 1)
    return first, min(max(last, first + 2), n_bonds)


def _slope(squares: np.ndarray) -> float:
    """Fit a line to the logarithms of internal distances; return its slope."""
    first, last = _slope_range(len(squares))
    n = np.log(np.arange(first, last + 1))
    off = n - n.mean()
    with np.errstate(invalid="ignore", divide="ignore"):
        return float((off * np.log(squares[first - 1 : last])).sum() / (off**2).sum())
