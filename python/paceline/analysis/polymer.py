"""Polymers: sizes of chains in time, persistence length and internal distances."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from paceline import _core
from paceline.analysis import name_of_mdanalysis
from paceline.analysis.base import AnalysisBase, check_order, check_times, table_in_time
from paceline.analysis.blocks import jackknife_interval
from paceline.analysis.correlation import running_integral
from paceline.analysis.kernels import CoreRows, check_finite
from paceline.analysis.polymer_chains import chains_of
from paceline.analysis.results import Results
from paceline.analysis.table import Table
from paceline.analysis.uncertainty import mean_of_replicas, mean_of_series, with_error
from paceline.block import Block
from paceline.contract.atoms import Atoms
from paceline.contract.declaration import Declaration, Option
from paceline.contract.kinds import PerFrame, Reduction
from paceline.contract.run_info import describe_atoms
from paceline.transform.atom_choice import known_weights, masses_of

#: Chains, or blocks of time, from which on intervals are given.
FEWEST = 10
#: Groups of chains, at most, of which each is left out once.
MOST_SAMPLES = 100
#: Value of the bond correlation at which the range of the fit ends by default.
FIT_END = float(np.exp(-2))
#: Part of the correlation that figures show, in ranges of the fit.
DRAWN = 4
#: Separations of the fit, at least, the first one included.
LEAST_FIT = 3
#: First and last separation of the line in the logarithms of internal distances, by default, as
#: parts of the bonds of the longest chain: few bonds are stiff, and at many few pairs count.
SLOPE_RANGE = 0.1, 0.5
#: Distance of neighbours along a chain, in mean distances, from which on it may be no bond.
STRETCHED = 3.0
#: Number of chains whose columns a table in time has, and bins of the histogram.
MOST_COLUMNS, N_BINS = 20, 50
#: Persistence lengths above so many contour lengths count as infinite.
STRAIGHT = 1e5
#: Numbers of a chain whose end-to-end vectors are correlated at a time.
CORRELATED = 2**22

ChainKind = Literal["bonds", "fragments", "segments", "residues"]
CHAINS = Option(
    "chains",
    "chains: selected atoms that bonds connect, in their order; or those of each molecule, segment "
    "or residue, in the order of the topology [%(default)s]",
)


class _ChainAnalysis(AnalysisBase):
    """Base class of analyses of chains."""

    needs_whole = measures_each = True

    def __init__(self, atomgroups: Any, chains: ChainKind, verbose: bool):
        self._chains = chains_of(atomgroups, chains, type(self).__name__)
        super().__init__(self._chains.group, verbose=verbose)
        self.chains = chains if hasattr(atomgroups, "atoms") else "as given"

    @property
    def indices(self) -> np.ndarray:
        """Atoms of each chain, one after the other along it."""
        return self._chains.indices

    def parameters(self) -> dict[str, object]:
        """Parameters, and the chains that were found, for the record that is saved."""
        return {
            "atoms": describe_atoms(self.atomgroup),
            "chains": f"{self._chains}, by {self.chains}",
        }

    def _note(self, longest: float, mean: float) -> None:
        """Warn of very unequal chains, and of neighbours that are far apart (Å)."""
        self.remark("chains", self._chains.note(self.name))
        far = None
        if longest > STRETCHED * mean:
            far = (
                f"{self.name}: neighbours along a chain are up to {longest:.4g} Å apart, and "
                f"{mean:.4g} Å on average: a chain is broken across the cell (--unwrap), or holds "
                "several molecules (--chains fragments, or bonds)"
            )
        self.remark("neighbours", far)


class Polymer(_ChainAnalysis):
    r"""End-to-end distances and radii of gyration of chains in each frame.

    $$\mathbf{R} = \mathbf{r}_N - \mathbf{r}_1, \qquad
      R_\mathrm{g}^2 = \frac{1}{M} \sum_i m_i \left|\mathbf{r}_i - \mathbf{c}\right|^2$$

    of the selected atoms of each chain, from its first to its last one. For ideal chains
    $\langle R^2 \rangle / \langle R_\mathrm{g}^2 \rangle$ is 6, for straight ones 12. Molecules
    must be whole.

    Parameters
    ----------
    atomgroups : AtomGroup or list of AtomGroup
        Atoms of the backbones of all chains, found as `chains` says; or a list of the chains, each
        with its atoms in order.
    chains : {"bonds", "fragments", "segments", "residues"}
        Chains of an AtomGroup. By bonds they are the selected atoms that bonds connect, in the
        order of these: branched chains and rings are refused. Otherwise they are the selected atoms
        of each molecule, segment or residue, in the order of the topology, such as Cα atoms.
    weights : {"mass", None}
        Weights of atoms in the radius of gyration; None gives all the same.

    Attributes
    ----------
    results.end_to_end : numpy.ndarray of float64, shape (n_frames, n_chains)
        End-to-end distances, Å. NaN for damaged frames that were left out, as in all arrays.
    results.end_to_end_vectors : numpy.ndarray of float64, shape (n_frames, n_chains, 3)
        End-to-end vectors, Å.
    results.rg : numpy.ndarray of float64, shape (n_frames, n_chains)
        Radii of gyration, Å.
    results.ratio : float
        Mean square end-to-end distance over the mean square radius of gyration.

    Raises
    ------
    SelectionError
        The group holds no atoms; chains are branched, rings, or of less than three atoms.
    UnsupportedError
        The topology has no bonds or masses, or the group updates itself.

    Examples
    --------
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import PSF, DCD
    >>> from paceline.analysis.polymer import Polymer
    >>> u = paceline.Universe(PSF, DCD)
    >>> backbone = u.select_atoms("protein and backbone and not name O")
    >>> Polymer(backbone).run(stop=3).results.end_to_end.round(2)
    array([[11.71],
           [11.44],
           [11.21]])
    """

    declaration = Declaration(
        name="polymer",
        summary="end-to-end distance and radius of gyration of polymer chains",
        description=(
            "End-to-end distance (Å) and radius of gyration (Å) of each chain in each frame: means "
            "over chains, of which -o FILE.npz has each one, with end-to-end vectors. Atoms of the "
            "backbones are selected. Molecules must be whole: --unwrap makes them so."
        ),
        section="structure.md#polymers",
        examples=(
            "melt.data melt.dcd --select all --unwrap -o chains.csv --plot chains.png",
            (
                'melt.psf melt.dcd --select "not name O* H*" --histogram histogram.png '
                "--correlation relaxation.png -o chains.npz"
            ),
        ),
        options=(CHAINS,),
        further={
            "histogram": "write the distribution of end-to-end distances",
            "means": "write the mean end-to-end distance and radius of gyration of each chain",
            "correlation": "write the autocorrelation of end-to-end vectors against time",
        },
    )

    FURTHER_TABLES = ("histogram", "means")
    #: True if the further tables hold the autocorrelation, for which times must be equidistant.
    correlated = False

    def __init__(
        self,
        atomgroups: Atoms | Sequence[Atoms],
        *,
        chains: ChainKind = "bonds",
        weights: Literal["mass"] | None = "mass",
        verbose: bool = False,
    ):
        super().__init__(atomgroups, chains, verbose)
        self.weights = known_weights(weights)
        self._masses = None
        if weights is not None:
            atoms = self.atomgroup.universe.atoms[self.indices]
            self._masses = masses_of(atoms, "Polymer, weights='mass',")
        self.row_bytes = 48 * len(self._chains.sizes)

    def parameters(self) -> dict[str, object]:
        """Parameters, for the record that is saved with the results."""
        return {**super().parameters(), "weights": self.weights or "none"}

    def prepare(self) -> PerFrame:
        """Give sizes of chains and weights to workers."""
        return _Ends(self._chains.sizes, self._masses)

    def finish(self, value: np.ndarray) -> None:
        """Take vectors and radii apart, and average over chains."""
        vectors, rg = value[..., :3], value[..., 3]
        distance = np.sqrt((vectors**2).sum(axis=2))
        read = ~np.isnan(rg).any(axis=1)
        if read.any():
            self._note(value[read, :, 4].max(), value[read, :, 5].mean())
        with np.errstate(invalid="ignore", divide="ignore"):
            squares = (distance[read] ** 2).sum(), (rg[read] ** 2).sum()
            ratio = float(squares[0] / squares[1])
        columns, drawn = self._columns(vectors, distance, rg)
        label = "distance (Å)" if len(rg.T) == 1 else "mean of chains (Å)"
        notes = {
            "end-to-end distance": _over_chains(distance),
            "radius of gyration": _over_chains(rg),
            "⟨R²⟩/⟨Rg²⟩": f"{ratio:.4g} (6: ideal chain, 12: straight)",
        }
        table = table_in_time(self, columns, drawn, label, partial=True, notes=notes)
        self.results = Results(
            table=table,
            provenance={**self.record(), **notes},
            end_to_end=distance,
            end_to_end_vectors=vectors,
            rg=rg,
            ratio=ratio,
        )

    def _columns(
        self, vectors: np.ndarray, distance: np.ndarray, rg: np.ndarray
    ) -> tuple[dict[str, np.ndarray], dict[str, str]]:
        """Columns of the table in time, and those that are drawn."""
        if len(rg.T) == 1:
            ends = "end-to-end distance (Å)"
            columns = {ends: distance[:, 0], "Rg (Å)": rg[:, 0]}
            named = (f"end-to-end vector, {axis} (Å)" for axis in "xyz")
            columns |= dict(zip(named, vectors[:, 0].T, strict=True))
            return columns, {ends: "end to end", "Rg (Å)": "Rg"}
        columns = {
            "mean end-to-end distance (Å)": distance.mean(axis=1),
            "mean Rg (Å)": rg.mean(axis=1),
            "mean square end-to-end distance (Å²)": (distance**2).mean(axis=1),
            "mean square Rg (Å²)": (rg**2).mean(axis=1),
        }
        drawn = {"mean end-to-end distance (Å)": "end to end", "mean Rg (Å)": "Rg"}
        if len(rg.T) <= MOST_COLUMNS:
            for k, one in enumerate(distance.T, start=1):
                columns[f"end-to-end distance of chain {k} (Å)"] = one
                columns[f"Rg of chain {k} (Å)"] = rg[:, k - 1]
        return columns, drawn

    def further_tables(self) -> dict[str, Table]:
        """Tabulate the histogram of distances, means of chains, and the autocorrelation if asked.

        Returns
        -------
        dict of str to Table
            "histogram", "means"; and "correlation" where `correlated` is True.
        """
        tables = {"histogram": self._histogram(), "means": self._means_of_chains()}
        if self.correlated:
            tables["correlation"] = self._correlation_table()
        return tables

    def _histogram(self) -> Table:
        """Tabulate the probability density of end-to-end distances."""
        distances = self.results.end_to_end
        distances = distances[~np.isnan(distances)]
        n_bins = int(np.clip(np.sqrt(len(distances)), 5, N_BINS))
        spread = distances if len(distances) else np.zeros(1)
        counts, edges = np.histogram(spread, bins=n_bins)
        density = counts / (max(len(distances), 1) * np.diff(edges))
        x, y = "end-to-end distance (Å)", "probability density (Å⁻¹)"
        return Table({x: (edges[1:] + edges[:-1]) / 2, y: density}, x, {y: "end to end"}, y)

    def _means_of_chains(self) -> Table:
        """Tabulate means of each chain, with intervals in time."""
        results, chains = self.results, self._chains
        columns: dict[str, np.ndarray] = {
            "chain": np.arange(1, len(chains.sizes) + 1),
            "first atom": chains.indices[chains.firsts],
            "last atom": chains.indices[chains.firsts + chains.sizes - 1],
            "atoms": chains.sizes,
        }
        for title, values in (("end-to-end distance", results.end_to_end), ("Rg", results.rg)):
            means = [mean_of_series(one) for one in values.T]
            columns[f"{title} (Å)"] = np.array([one.mean for one in means])
            columns[f"{title}, 95 % ± (Å)"] = np.array([one.interval for one in means])
        drawn = {"end-to-end distance (Å)": "end to end", "Rg (Å)": "Rg"}
        bands = {title: title.replace(" (", ", 95 % ± (") for title in drawn}
        return Table(columns, "chain", drawn, "mean over time (Å)", bands=bands)

    def autocorrelation(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        r"""Compute the normalised autocorrelation of end-to-end vectors.

        $$C(\tau) = \left\langle \mathbf{R}(t) \cdot \mathbf{R}(t + \tau) \right\rangle /
                    \left\langle \mathbf{R}^2 \right\rangle$$

        over all chains and pairs of frames.

        Returns
        -------
        times : numpy.ndarray of float64, shape (n_frames,)
            Times between frames, ps.
        correlation : numpy.ndarray of float64, shape (n_frames,)
            C; NaN where there is no pair.
        interval : numpy.ndarray of float64, shape (n_frames,)
            Half of the width of its 95 % interval, between chains; NaN for less than ten.

        Raises
        ------
        UnsupportedError
            Frames are not at equal distances in time.
        """
        delta_t, samples = self._correlate()
        return delta_t, _normalised(samples.sum(axis=0)), self._interval(samples)

    def _correlate(self) -> tuple[np.ndarray, np.ndarray]:
        """Times between frames, and correlations of groups of chains, (n_samples, n_frames)."""
        check_order(self)
        delta_t, gaps = check_times(self)
        vectors = self.results.end_to_end_vectors
        n_frames, n_chains, _ = vectors.shape
        kernel = _core.Correlation("product", n_frames, 3, np.arange(3), gaps, fft=True)
        numbers = _samples_of_chains(n_chains)
        found = np.zeros((numbers[-1] + 1, n_frames))
        step = max(1, CORRELATED // n_frames)
        for first in range(0, n_chains, step):
            some = np.ascontiguousarray(vectors[:, first : first + step])
            rows, _ = kernel.compute(some)
            np.add.at(found, numbers[first : first + step], rows)
        return delta_t, found

    def _interval(self, samples: np.ndarray) -> np.ndarray:
        """Half of the width of the interval of the autocorrelation, between chains."""
        if len(samples) < FEWEST:
            return np.full(samples.shape[1], np.nan)
        without = samples.sum(axis=0) - samples
        return np.asarray(jackknife_interval(np.array([_normalised(one) for one in without])))

    def _correlation_table(self) -> Table:
        """Tabulate the autocorrelation, and its integral up to where it is first not above 0."""
        delta_t, samples = self._correlate()
        total, interval = _normalised(samples.sum(axis=0)), self._interval(samples)
        integral = running_integral(total, delta_t)
        ends = np.flatnonzero(total <= 0)
        text = "not reached: the autocorrelation stays above 0"
        if len(ends):
            text = f"{integral[ends[0]]:.4g} {self.time_unit}"
        title, lag = "autocorrelation of the end-to-end vector", self.lag_title
        columns = {lag: delta_t, title: total, f"{title}, 95 % ±": interval}
        columns[f"integral ({self.time_unit})"] = integral
        notes = {"relaxation time, integral up to the first 0": text}
        return Table(
            columns,
            lag,
            {title: f"relaxation time {text.partition(':')[0]}"},
            title,
            notes=notes,
            bands={title: f"{title}, 95 % ±"},
        )


def _over_chains(values: np.ndarray) -> str:
    """Write the mean over chains and frames, with the interval between chains, or in time."""
    if len(values.T) == 1:
        return mean_of_series(values[:, 0]).with_unit("Å")
    read = values[~np.isnan(values).any(axis=1)]
    if not len(read):
        return "no frame could be read"
    found = mean_of_replicas(read.mean(axis=0))
    if not found.interval > 0:
        return f"{found.mean:.4g} Å, no interval"
    shown = with_error(float(found.mean), float(found.interval))
    return f"{shown} Å (95 %, between {len(values.T)} chains)"


def _normalised(values: np.ndarray) -> np.ndarray:
    """Divide a correlation by its first value."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return values / values[0]


def _samples_of_chains(n_chains: int) -> np.ndarray:
    """Number the groups of neighbouring chains, each of which counts as one sample."""
    return np.arange(n_chains) * min(n_chains, MOST_SAMPLES) // n_chains


class _Ends(PerFrame):
    """Worker part: six numbers of each chain, Å.

    End-to-end vector, radius of gyration, and largest and mean distance of neighbours.
    """

    returns_new = True

    def __init__(self, sizes: np.ndarray, masses: np.ndarray | None):
        self._sizes = sizes
        self._rows = CoreRows("gyration", sizes, masses)

    def compute(self, block: Block) -> np.ndarray:
        """Compute the rows of a block, float64, shape (n_frames, n_chains, 6)."""
        positions, columns = block.raw
        lasts = np.cumsum(self._sizes) - 1
        firsts = lasts - self._sizes + 1
        # The last atom of a chain has no neighbour, and a step of 0.
        is_last = np.isin(np.arange(self._sizes.sum()), lasts)
        found = np.empty((len(block), len(self._sizes), 6))
        for row in range(len(block)):
            at = positions[row] if columns is None else positions[row, columns]
            at = at.astype(np.float64)
            found[row, :, :3] = at[lasts] - at[firsts]
            steps = np.zeros(len(at))
            steps[:-1] = np.sqrt((np.diff(at, axis=0) ** 2).sum(axis=1))
            steps[is_last] = 0
            found[row, :, 4] = np.maximum.reduceat(steps, firsts)
            found[row, :, 5] = np.add.reduceat(steps, firsts) / (self._sizes - 1)
        found[..., 3] = self._rows.compute(block).reshape(len(block), len(self._sizes), -1)[..., 0]
        return found


class InternalSums(NamedTuple):
    """Sums over frames, of samples: frames, lengths of bonds (Å), bond correlations, squares (Å²).

    Shapes (n_samples,), (n_samples,), (n_samples, n_bonds) and (n_samples, n_bonds); a sample is a
    group of chains, or a block of time. Separations of squares begin with one bond. And the length
    of the longest bond, Å, shape (1,).
    """

    frames: np.ndarray
    lengths: np.ndarray
    bonds: np.ndarray
    squares: np.ndarray
    longest: np.ndarray


class _Internal(Reduction[InternalSums]):
    """Worker part: sums of bond correlations and internal distances.

    With `starts`, first frame numbers, samples are blocks of time; else groups of chains.
    """

    def __init__(self, sizes: np.ndarray, starts: np.ndarray | None):
        self._sizes, self._starts = sizes, starts

    def compute(self, block: Block) -> InternalSums:
        """Add up the frames of a leaf."""
        numbers = _samples_of_chains(len(self._sizes))
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
        """Add one frame; chains of one length are computed together."""
        firsts = np.cumsum(self._sizes) - self._sizes
        for size in np.unique(self._sizes):
            some = np.flatnonzero(self._sizes == size)
            chains = at[firsts[some, None] + np.arange(size)]
            vectors = np.diff(chains, axis=1)
            lengths = np.sqrt((vectors**2).sum(axis=2))
            if not lengths.all():
                raise ValueError(f"frame {frame}: neighbouring atoms of a chain are at one place")
            found.longest[:] = max(found.longest[0], lengths.max())
            of = samples[some]
            np.add.at(found.lengths, of, lengths.sum(axis=1))
            products = _lagged(vectors / lengths[..., None])
            np.add.at(found.bonds[:, : size - 1], of, products)
            np.add.at(found.squares[:, : size - 1], of, _squares(chains))

    def merge(self, left: InternalSums, right: InternalSums) -> InternalSums:
        """Add the sums of neighbours."""
        return InternalSums(
            left.frames + right.frames,
            left.lengths + right.lengths,
            left.bonds + right.bonds,
            left.squares + right.squares,
            np.maximum(left.longest, right.longest),
        )


def _lagged(values: np.ndarray) -> np.ndarray:
    """Sum inner products of vectors at each separation along a chain: shape (n_chains, n).

    By Fourier transforms; `values` has shape (n_chains, n, 3).
    """
    n = values.shape[1]
    size = 1 << (2 * n - 1).bit_length()
    spectrum = np.fft.rfft(values, size, axis=1)
    power = (spectrum.real**2 + spectrum.imag**2).sum(axis=2)
    return np.fft.irfft(power, size, axis=1)[:, :n]


def _squares(chains: np.ndarray) -> np.ndarray:
    """Sum squared distances of atoms at each separation from 1 on, Å²: shape (n_chains, n - 1)."""
    at = chains - chains.mean(axis=1, keepdims=True)
    products = _lagged(at)[:, 1:]
    sums = np.cumsum((at**2).sum(axis=2), axis=1)
    return sums[:, -2::-1] + (sums[:, -1:] - sums[:, :-1]) - 2 * products


class PersistenceLength(_ChainAnalysis):
    r"""Persistence length and internal distances of chains, means over chains and frames.

    $$C(n) = \left\langle \mathbf{u}_i \cdot \mathbf{u}_{i+n} \right\rangle \approx
             e^{-n l_b / l_p}, \qquad
      C_n = \frac{\langle R^2(n) \rangle}{n \langle l^2 \rangle}$$

    with the directions $\mathbf{u}_i$ of bonds along the backbone and their mean length $l_b$; the
    persistence length $l_p$ is fitted by least squares. $\langle R^2(n) \rangle$ is the mean square
    distance of atoms that are n bonds apart, $C_n$ the characteristic ratio of n bonds (Flory 1969,
    Statistical Mechanics of Chain Molecules), and $\langle R^2(n) \rangle \sim n^{2\nu}$ with the
    exponent 1 for ideal chains and melts, 1.18 in a good solvent, 2 for straight chains. Molecules
    must be whole.

    The correlation is MDAnalysis's, which takes the length of bonds from one frame, and fits all
    separations, as with `fit_range` from 0 to the last one.

    Parameters
    ----------
    atomgroups : AtomGroup or list of AtomGroup
        As for `Polymer`; chains may have unequal lengths.
    chains : {"bonds", "fragments", "segments", "residues"}
        As for `Polymer`.
    fit_range : pair of int, optional
        First and last separation of the fit, in bonds; by default 0, and the last one before the
        correlation falls to 1/e² for the first time, but at least 2.

    Attributes
    ----------
    results.bond_autocorrelation : numpy.ndarray of float64, shape (n_bonds,)
        C, from separation 0 on; n_bonds are those of the longest chain.
    results.bond_autocorrelation_interval : numpy.ndarray of float64, shape (n_bonds,)
        Half of the widths of 95 % intervals: each of up to 100 groups of chains is left out once,
        or for less than ten chains each of ten blocks of time. NaN for less than ten frames, too;
        the same holds for the other intervals.
    results.lb : float
        Mean length of bonds, Å.
    results.x : numpy.ndarray of float64, shape (n_bonds,)
        Separations along the chain, Å.
    results.lp : float
        Persistence length, Å; infinite for straight chains.
    results.lp_interval : float
        Half of the width of its 95 % interval, Å.
    results.fit : numpy.ndarray of float64, shape (n_bonds,)
        Fitted exponential at x.
    results.fit_range : numpy.ndarray of int64, shape (2,)
        First and last separation of the fit, bonds.
    results.internal_distances : numpy.ndarray of float64, shape (n_bonds,)
        Mean squares of distances of atoms, Å², from one bond to the whole chain.
    results.internal_distances_interval : numpy.ndarray of float64, shape (n_bonds,)
        Half of the widths of their 95 % intervals, Å².
    results.characteristic_ratio : numpy.ndarray of float64, shape (n_bonds,)
        Characteristic ratios of so many bonds.
    results.exponent, results.exponent_interval : float
        Slope of the logarithm of internal distances against that of the separation, from a tenth
        to half of the bonds of the longest chain, and half of the width of its 95 % interval.

    Raises
    ------
    SelectionError, UnsupportedError
        As for `Polymer`.
    ValueError
        A `fit_range` outside the chains. In the run, as `AnalysisError`: neighbouring atoms of a
        chain at one place, or positions that are not finite.

    Examples
    --------
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import PSF, DCD
    >>> from paceline.analysis.polymer import PersistenceLength
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
            "separation (Å), and the persistence length (Å) of an exponential that is fitted, with "
            "its 95 % interval; mean square internal distances (Å²) and characteristic ratios. "
            "Atoms of the backbones are selected. Molecules must be whole: --unwrap makes them so."
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
                "first and last separation of the fit, bonds [0, and up to a correlation of 1/e²]",
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
        """Parameters, for the record that is saved with the results."""
        asked = "chosen" if self.fit_range is None else "{} to {} bonds".format(*self.fit_range)
        return {**super().parameters(), "fit_range": asked}

    @property
    def _by_time(self) -> bool:
        """True if samples are blocks of time, and not groups of chains."""
        return len(self._chains.sizes) < FEWEST

    def prepare(self) -> _Internal:
        """Choose the samples that errors are made of."""
        starts = None
        if self._by_time:
            blocks = np.array_split(np.sort(self.frames), min(FEWEST, len(self.frames)))
            starts = np.array([one[0] for one in blocks])
        return _Internal(self._chains.sizes, starts)

    def finish(self, value: InternalSums) -> None:
        """Divide sums by the numbers of pairs, and fit."""
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
        """Count pairs of bonds of a frame at each separation, shape (n_samples, n_bonds).

        There are as many pairs of atoms at separations that are longer by one bond.
        """
        bonds = self._chains.sizes[:, None] - 1 - np.arange(self._n_bonds)
        bonds = np.maximum(bonds, 0)
        if self._by_time:
            return np.tile(bonds.sum(axis=0), (n_samples, 1))
        found = np.zeros((n_samples, self._n_bonds))
        np.add.at(found, _samples_of_chains(len(bonds)), bonds)
        return found

    def _tabulate(self) -> None:
        """Put the table of the correlation into the results."""
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
            f"{title}, 95 % ±": results.bond_autocorrelation_interval,
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
        options: dict[str, Any] = {"notes": notes, "bands": {title: f"{title}, 95 % ±"}}
        drawn = Table(shown, x, legend, title, **options)
        table = Table(columns, x, legend, title, drawn, **options)
        self.results = Results(table=table, provenance={**self.record(), **notes}, **results)

    def further_tables(self) -> dict[str, Table]:
        """Tabulate internal distances and characteristic ratios; figures have logarithmic axes.

        Returns
        -------
        dict of str to Table
            "distances".
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
    """Divide sums by numbers of pairs; NaN where there is none."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return sums / pairs


def _with_interval(value: float, interval: float, unit: str, samples: str) -> str:
    """Write a number with its 95 % interval, if there is one."""
    end = f" {unit}" if unit else ""
    if np.isinf(value):
        return "infinite: the chains are straight"
    if not interval > 0:
        return f"{value:.4g}{end}, no interval"
    return f"{with_error(value, interval)}{end} (95 %, {samples})"


def _range_of(correlation: np.ndarray) -> tuple[int, int]:
    """Choose the separations of the fit: up to where the correlation falls to 1/e²."""
    ends = np.flatnonzero(correlation <= FIT_END)
    last = int(ends[0]) - 1 if len(ends) else len(correlation) - 1
    return 0, min(max(last, LEAST_FIT - 1), len(correlation) - 1)


def _fit(lb: float, correlation: np.ndarray, first: int, last: int) -> float:
    """Fit exp(-x / lp) by least squares; return lp, Å, infinite where nothing decays."""
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
    """Choose first and last separation of the slope, bonds: at least two."""
    first, last = (int(part * n_bonds) for part in SLOPE_RANGE)
    first = max(first, 1)
    return first, min(max(last, first + 2), n_bonds)


def _slope(squares: np.ndarray) -> float:
    """Fit a line to logarithms of internal distances, and return its slope."""
    first, last = _slope_range(len(squares))
    n = np.log(np.arange(first, last + 1))
    off = n - n.mean()
    with np.errstate(invalid="ignore", divide="ignore"):
        return float((off * np.log(squares[first - 1 : last])).sum() / (off**2).sum())


def __getattr__(name: str) -> object:
    return name_of_mdanalysis(__name__, name)
