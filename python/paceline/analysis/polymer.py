"""Polymers: end-to-end distances and radii of gyration of chains in time."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from paceline import _core
from paceline.analysis import name_of_mdanalysis
from paceline.analysis.base import check_order, check_times, table_in_time
from paceline.analysis.blocks import jackknife_interval
from paceline.analysis.correlation import running_integral
from paceline.analysis.kernels import CoreRows
from paceline.analysis.polymer_chains import (
    CHAINS,
    FEWEST,
    ChainAnalysis,
    ChainKind,
    samples_of_chains,
)
from paceline.analysis.results import Results
from paceline.analysis.table import Table
from paceline.analysis.uncertainty import mean_of_replicas, mean_of_series, with_error
from paceline.block import Block
from paceline.contract.atoms import Atoms
from paceline.contract.declaration import Declaration
from paceline.contract.kinds import PerFrame
from paceline.transform.atom_choice import known_weights, masses_of

#: Number of chains whose columns a table in time has, and bins of the histogram.
MOST_COLUMNS, N_BINS = 20, 50
#: Numbers of a chain whose end-to-end vectors are correlated at a time.
CORRELATED = 2**22


class Polymer(ChainAnalysis):
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
        numbers = samples_of_chains(n_chains)
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


def __getattr__(name: str) -> object:
    return name_of_mdanalysis(__name__, name)
