"""End-to-end distances and radii of gyration of polymer chains, as time series."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from paceline import _core
from paceline.analysis import name_of_mdanalysis
from paceline.analysis.base import check_order, check_times, table_in_time
from paceline.analysis.correlation_by_particles import running_integral
from paceline.analysis.kernels import CoreRows
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
from paceline.analysis.uncertainty import mean_of_replicas, mean_of_series, with_error
from paceline.block import Block
from paceline.contract.analysis_declaration import Declaration
from paceline.contract.analysis_kinds import PerFrame
from paceline.contract.system_interface import Atoms
from paceline.transform.masses import masses_of
from paceline.transform.selections_and_weights import known_weights

#: Maximum number of chains for which a table has columns for each chain.
MOST_COLUMNS = 20
#: Maximum number of bins of the histogram of end-to-end distances.
N_BINS = 50
#: Maximum number of end-to-end vectors (chains times frames) that are correlated at a time.
CORRELATED = 2**22


class Polymer(ChainAnalysis):
    r"""End-to-end distances and radii of gyration of chains in each frame.

    $$\mathbf{R} = \mathbf{r}_N - \mathbf{r}_1, \qquad
      R_\mathrm{g}^2 = \frac{1}{M} \sum_i m_i \left|\mathbf{r}_i - \mathbf{c}\right|^2$$

    of the selected atoms of each chain, where 1 and N are its first and last atom. The ratio
    $\langle R^2 \rangle / \langle R_\mathrm{g}^2 \rangle$ is 6 for ideal chains, and 12 for
    straight chains. Molecules must be whole.

    Parameters
    ----------
    atomgroups : AtomGroup or list of AtomGroup
        Backbone atoms of all chains, from which `chains` makes chains; or a list of chains, each
        with its atoms in order.
    chains : {"bonds", "fragments", "segments", "residues"}
        How chains are found in an AtomGroup. With "bonds", a chain consists of selected atoms that
        are connected by bonds, in bond order; branched chains and rings are errors. Otherwise it
        consists of the selected atoms of a molecule, segment or residue, in the order of the
        topology, such as Cα atoms.
    weights : {"mass", None}
        Weights of atoms in the radius of gyration: masses, or equal weights for None.

    Attributes
    ----------
    results.end_to_end : numpy.ndarray of float64, shape (n_frames, n_chains)
        End-to-end distances, Å. This array and the next two are NaN for damaged frames that were
        left out.
    results.end_to_end_vectors : numpy.ndarray of float64, shape (n_frames, n_chains, 3)
        End-to-end vectors, Å.
    results.rg : numpy.ndarray of float64, shape (n_frames, n_chains)
        Radii of gyration, Å.
    results.ratio : float
        Mean square end-to-end distance, divided by the mean square radius of gyration.

    Raises
    ------
    SelectionError
        The group is empty, or chains are branched, rings, or shorter than three atoms.
    UnsupportedError
        The topology has no bonds or masses, or the group is an UpdatingAtomGroup.

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
            "End-to-end distance (Å) and radius of gyration (Å) of each chain in each frame. The "
            "table contains means over chains; -o FILE.npz writes the values of each chain, with "
            "end-to-end vectors. Select the atoms of the backbones. Molecules must be whole "
            "(--unwrap)."
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
    #: True if further tables include the autocorrelation, which requires equidistant times.
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
        """Return the parameters that are saved with the results."""
        return {**super().parameters(), "weights": self.weights or "none"}

    def prepare(self) -> PerFrame:
        """Make the worker part from sizes and weights of the chains."""
        return _Ends(self._chains.sizes, self._masses)

    def finish(self, value: np.ndarray) -> None:
        """Split the values of chains into vectors and radii, and average over chains."""
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
        """Return the columns of the table of time series, and the legends of the drawn columns."""
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
        """Return tables of the histogram, of means of chains, and of the autocorrelation.

        Returns
        -------
        dict of str to Table
            "histogram" and "means"; also "correlation" if `correlated` is True.
        """
        tables = {"histogram": self._histogram(), "means": self._means_of_chains()}
        if self.correlated:
            tables["correlation"] = self._correlation_table()
        return tables

    def _histogram(self) -> Table:
        """Make a table of the probability density of end-to-end distances."""
        distances = self.results.end_to_end
        distances = distances[~np.isnan(distances)]
        n_bins = int(np.clip(np.sqrt(len(distances)), 5, N_BINS))
        spread = distances if len(distances) else np.zeros(1)
        counts, edges = np.histogram(spread, bins=n_bins)
        density = counts / (max(len(distances), 1) * np.diff(edges))
        x, y = "end-to-end distance (Å)", "probability density (Å⁻¹)"
        return Table({x: (edges[1:] + edges[:-1]) / 2, y: density}, x, {y: "end to end"}, y)

    def _means_of_chains(self) -> Table:
        """Make a table of the means of each chain over time, with intervals."""
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
            columns[title_of_band(f"{title} (Å)")] = np.array([one.interval for one in means])
        drawn = {"end-to-end distance (Å)": "end to end", "Rg (Å)": "Rg"}
        bands = {title: title_of_band(title) for title in drawn}
        return Table(columns, "chain", drawn, "mean over time (Å)", bands=bands)

    def autocorrelation(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        r"""Compute the normalised autocorrelation of end-to-end vectors.

        $$C(\tau) = \left\langle \mathbf{R}(t) \cdot \mathbf{R}(t + \tau) \right\rangle /
                    \left\langle \mathbf{R}^2 \right\rangle$$

        averaged over all chains and pairs of frames.

        Returns
        -------
        times : numpy.ndarray of float64, shape (n_frames,)
            Lag times, ps.
        correlation : numpy.ndarray of float64, shape (n_frames,)
            C; NaN for lag times without pairs.
        interval : numpy.ndarray of float64, shape (n_frames,)
            Half the width of the 95 % interval of C, from the differences between chains; NaN for
            less than ten chains.

        Raises
        ------
        UnsupportedError
            Frames are not equidistant in time.
        """
        delta_t, samples = self._correlate()
        return delta_t, _normalise(samples.sum(axis=0)), self._interval(samples)

    def _correlate(self) -> tuple[np.ndarray, np.ndarray]:
        """Return lag times, and summed correlations of each group of chains.

        Lag times have the shape (n_frames,), and correlations (n_groups, n_frames).
        """
        check_order(self)
        delta_t, gaps = check_times(self)
        vectors = self.results.end_to_end_vectors
        n_frames, n_chains, _ = vectors.shape
        kernel = _core.Correlation("product", n_frames, 3, np.arange(3), gaps, fft=True)
        numbers = samples_of_chains(n_chains)
        found = np.zeros((numbers[-1] + 1, n_frames))
        step = max(1, CORRELATED // n_frames)
        for first in range(0, n_chains, step):
            some = np.ascontiguousarray(vectors[:, first : first + step])
            rows, _ = kernel.compute(some)
            np.add.at(found, numbers[first : first + step], rows)
        return delta_t, found

    def _interval(self, samples: np.ndarray) -> np.ndarray:
        """Half the width of the 95 % interval of the autocorrelation; NaN for few chains.

        `samples` are the summed correlations of each group of chains.
        """
        if len(samples) < FEWEST:
            return np.full(samples.shape[1], np.nan)
        without = samples.sum(axis=0) - samples
        return np.asarray(jackknife_interval(np.array([_normalise(one) for one in without])))

    def _correlation_table(self) -> Table:
        """Make a table of the autocorrelation, with its integral up to its first zero."""
        delta_t, samples = self._correlate()
        total, interval = _normalise(samples.sum(axis=0)), self._interval(samples)
        integral = running_integral(total, delta_t)
        ends = np.flatnonzero(total <= 0)
        text = "not reached: the autocorrelation stays above 0"
        if len(ends):
            text = f"{integral[ends[0]]:.4g} {self.time_unit}"
        title, lag = "autocorrelation of the end-to-end vector", self.lag_title
        columns = {lag: delta_t, title: total, title_of_band(title): interval}
        columns[f"integral ({self.time_unit})"] = integral
        notes = {"relaxation time, integral up to the first 0": text}
        return Table(
            columns,
            lag,
            {title: f"relaxation time {text.partition(':')[0]}"},
            title,
            notes=notes,
            bands={title: title_of_band(title)},
        )


def _over_chains(values: np.ndarray) -> str:
    """Format the mean over chains and frames, with its interval between chains or over time."""
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


def _normalise(values: np.ndarray) -> np.ndarray:
    """Divide a correlation function by its first value."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return values / values[0]


class _Ends(PerFrame):
    """Worker part that computes six values for each chain, Å.

    The values are: end-to-end vector, radius of gyration, and the largest and the mean distance
    between adjacent atoms.
    """

    returns_new = True

    def __init__(self, sizes: np.ndarray, masses: np.ndarray | None):
        self._sizes = sizes
        self._rows = CoreRows("gyration", sizes, masses)

    def compute(self, block: Block) -> np.ndarray:
        """Compute the rows of a block: float64, shape (n_frames, n_chains, 6)."""
        positions, columns = block.raw
        lasts = np.cumsum(self._sizes) - 1
        firsts = lasts - self._sizes + 1
        # `steps` contains the distance from each atom to the next. Set the distance from the last
        # atom of a chain, which is that to the next chain, to 0.
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


def __getattr__(name: str) -> object:
    return name_of_mdanalysis(__name__, name)
