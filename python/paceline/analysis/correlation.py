"""Autocorrelation functions of time series, of velocities and of currents."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from paceline.analysis.base import AnalysisBase, check_order, check_times
from paceline.analysis.correlation_by_particles import (
    SeriesParts,
    check_temperature,
    pairs_of_frames,
    results_bytes,
    running_integral,
)
from paceline.analysis.diffusion import (
    error_between_molecules,
    molecules_of,
    squares_of_molecules,
)
from paceline.analysis.functions import TimeSeries
from paceline.analysis.kernels import CoreRows, check_finite
from paceline.analysis.lag_time_confidence_intervals import block_products, jackknife_interval
from paceline.analysis.results import Results
from paceline.analysis.table import Table, title_of_band
from paceline.block import Block
from paceline.contract.analysis_declaration import Declaration
from paceline.contract.analysis_kinds import OverParts, PerFrame
from paceline.contract.system_interface import Atoms, System, has_attribute
from paceline.errors import UnsupportedError
from paceline.performance.number_format import many
from paceline.transform.selections_and_weights import check_not_empty

#: Minimum number of lag times that figures of velocities and currents show, if a run has so many.
DRAWN = 100
#: Conversion factor of e² Å²/ps / (k_B K Å³) to S/m (CODATA 2018, exact).
CONDUCTIVITY = 1.602176634e-19**2 / 1.380649e-23 * 1e22


class Correlation(TimeSeries):
    r"""Autocorrelation of a user's function of the frames.

    $$C(\tau) = \left\langle \mathbf{f}(t) \cdot \mathbf{f}(t + \tau) \right\rangle_t$$

    averaged over all pairs of frames (t, t + τ). The mean of the function's values is not
    subtracted; to correlate fluctuations, subtract the mean in the function.

    Parameters
    ----------
    function : callable
        Function of a block, as for `TimeSeries`. It returns an array of shape (n_frames,),
        (n_frames, n_series), or (n_frames, n_series, n_dimensions) for vectors.
    atomgroup : AtomGroup or Universe
        Atoms whose positions the block contains, in this order.
    fields : sequence of str
        Fields that the function needs: "positions", "velocities", "forces".
    fft : bool
        Use Fourier transforms; with False, evaluate the sums of the definition directly.
    label : str, optional
        Name in tables and figures; by default the name of the function.
    unit : str, optional
        Unit of the autocorrelation in tables and figures.
    block : {"paceline", "mdtraj"}
        Kind of block; with "mdtraj" the argument is an `mdtraj.Trajectory`, in nm and ps.

    Attributes
    ----------
    results.timeseries : numpy.ndarray of float64, shape (n_frames,)
        Autocorrelation, averaged over the series. Frames that were left out are in no pair; NaN
        for lag times without pairs.
    results.by_series : numpy.ndarray of float64, shape (n_frames, n_series)
        Autocorrelation of each series; in a temporary file if it takes more than 256 MiB.
    results.delta_t_values : numpy.ndarray of float64, shape (n_frames,)
        Lag times, ps.

    Raises
    ------
    TypeError
        The function is not callable.
    UnsupportedError
        Frames are not equidistant in time, or the function returns other arrays.
    ValueError
        The field or the kind of block is unknown.

    Examples
    --------
    The end-to-end vector of a chain:

    >>> import paceline
    >>> from MDAnalysisTests.datafiles import PSF, DCD
    >>> ca = paceline.Universe(PSF, DCD).select_atoms("name CA")
    >>> def end_to_end(block):
    ...     return (block.positions[:, -1] - block.positions[:, 0])[:, np.newaxis]
    >>> paceline.Correlation(end_to_end, ca).run().results.timeseries[:3].round(1)
    array([96.4, 96.1, 95.9])
    """

    stages = 2
    over_parts = True

    def __init__(
        self,
        function: Callable[[Block], Any],
        atomgroup: Atoms | System,
        *,
        fields: Sequence[str] = ("positions",),
        fft: bool = True,
        label: str | None = None,
        unit: str | None = None,
        block: str = "paceline",
        verbose: bool = False,
    ):
        super().__init__(
            function,
            atomgroup,
            fields=fields,
            label=label,
            unit=unit,
            block=block,
            verbose=verbose,
        )
        self.fft = fft

    def parameters(self) -> dict[str, object]:
        """Return the function's name, the atoms, and the method."""
        return {**super().parameters(), "fft": self.fft}

    def prepare(self) -> PerFrame:
        """Return the user's function as the worker part."""
        check_order(self)
        return super().prepare()

    def next_stage(self, value: np.ndarray) -> OverParts:
        """Divide the series into parts, whose correlations the workers compute."""
        if value.dtype.kind not in "biuf" or value.ndim > 3 or 0 in value.shape:
            raise UnsupportedError(
                f"{self.name}: expected real numbers of shape (n_frames,), (n_frames, n_series) or "
                f"(n_frames, n_series, n_dimensions), found {value.dtype} of {value.shape}"
            )
        series = value.reshape(len(value), -1, value.shape[2] if value.ndim == 3 else 1)
        self._delta_t, gaps = check_times(self)
        return SeriesParts(series, "product", range(series.shape[2]), gaps, fft=self.fft)

    @property
    def _title(self) -> str:
        label = self.label or self._function_name
        return f"autocorrelation of {label}" + (f" ({self.unit})" if self.unit else "")

    def finish(self, value: Any) -> None:
        """Average the autocorrelation over the series, and store the results."""
        mean, title, label = value.mean(), self._title, self.label or self._function_name
        columns = {self.lag_title: self._delta_t, title: mean}
        self.results = Results(
            table=Table(columns, self.lag_title, {title: f"{label}"}, title),
            provenance=self.record(),
            timeseries=mean,
            by_series=value.by_particle.T,
            delta_t_values=self._delta_t,
        )


class VelocityAutocorrelation(AnalysisBase):
    r"""Autocorrelation of the velocities of atoms, and its spectrum.

    $$C(\tau) = \frac{1}{N} \sum_{i=1}^N
              \left\langle \mathbf{v}_i(t) \cdot \mathbf{v}_i(t + \tau) \right\rangle_t, \quad
      S(f) = \int_{-T}^{T} \left(1 - \frac{|\tau|}{T}\right) C(\tau)\,
              e^{-2\pi\mathrm{i} f \tau}\, \mathrm{d}\tau$$

    with the length $T$ of the trajectory. Long lag times have fewer pairs of frames, and lower
    weights. With these weights, the spectrum is the periodogram of the velocities. The spectrum is
    therefore never negative, and its integral over all frequencies, including negative ones, is
    $C(0)$. If frames were left out, the weight of a lag time is its fraction of the pairs.

    Parameters
    ----------
    atomgroup : AtomGroup or Universe
        Atoms; the trajectory must contain velocities.
    fft : bool
        Use Fourier transforms; with False, evaluate the sums of the definition directly.
    errors : bool
        Also compute 95 % intervals of the integral, from the differences between molecules.

    Attributes
    ----------
    results.timeseries : numpy.ndarray of float64, shape (n_frames,)
        Autocorrelation, averaged over the atoms, Å²/ps². Frames that were left out are in no pair;
        NaN for lag times without pairs. If a velocity is NaN, its atom and the mean are NaN.
    results.by_atom : numpy.ndarray of float64, shape (n_frames, n_atoms)
        Autocorrelation of each atom; in a temporary file if it takes more than 256 MiB.
    results.delta_t_values : numpy.ndarray of float64, shape (n_frames,)
        Lag times, ps.
    results.integral : numpy.ndarray of float64, shape (n_frames,)
        Integral of `timeseries` from 0 to each lag time by the trapezoidal rule, divided by 3,
        Å²/ps.
        Its plateau is the diffusion coefficient (Green 1954, Kubo 1957). NaN if times are unknown.
    results.integral_interval : numpy.ndarray of float64, shape (n_frames,)
        With `errors`: half the widths of the 95 % intervals of `integral`, Å²/ps, by Student's t
        between molecules (`paceline.analysis.diffusion.molecules_of`); NaN for less than two
        molecules. Motion that molecules share is not in the interval.
    results.frequencies : numpy.ndarray of float64, shape (n_frames + 1,)
        Frequencies, THz; per frame if times are unknown.
    results.spectrum : numpy.ndarray of float64, shape (n_frames + 1,)
        Spectrum, Å²/ps.

    Raises
    ------
    MissingDataError
        The trajectory does not contain velocities.
    SelectionError
        The group is empty.
    UnsupportedError
        The group is an UpdatingAtomGroup, frames are not equidistant in time, or series and
        results exceed the free space in the temporary folder.

    Examples
    --------
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import GRO, TRR
    >>> atoms = paceline.Universe(GRO, TRR).atoms[:100]
    >>> velocities = VelocityAutocorrelation(atoms).run()
    >>> velocities.results.timeseries[:2].round(1)
    array([309.1,  -1.4])
    """

    declaration = Declaration(
        name="velocity-autocorrelation",
        summary="autocorrelation of velocities, and its spectrum",
        description=(
            "Autocorrelation of the velocities (Å²/ps²) of atoms against the lag time, and the "
            "diffusion coefficient (10⁻⁵ cm²/s) from the integral up to each lag time. The "
            "trajectory must contain velocities."
        ),
        section="dynamics.md#velocities",
        select="all",
        examples=(
            (
                'md.tpr md.trr --select "name OW" -o velocities.csv --plot velocities.png '
                "--spectrum spectrum.png"
            ),
        ),
        options=("errors",),
        further={"spectrum": "write the spectrum (Å²/ps) against frequencies (THz)"},
    )

    stages = 2
    over_parts = True
    fields = ("velocities",)

    def __init__(
        self,
        atomgroup: Atoms | System,
        *,
        fft: bool = True,
        errors: bool = False,
        verbose: bool = False,
    ):
        super().__init__(atomgroup, verbose=verbose)
        check_not_empty(self.atomgroup, "VelocityAutocorrelation: the group")
        self.fft, self.errors = fft, errors
        self.row_bytes = 12 * len(self.atomgroup)

    def parameters(self) -> dict[str, object]:
        """Return the atoms and the method."""
        return {**super().parameters(), "fft": self.fft}

    def stored_bytes(self, n_frames: int) -> int:
        """Size of the velocities and of the results for `n_frames` frames, bytes."""
        return super().stored_bytes(n_frames) + results_bytes(n_frames, len(self.atomgroup), 12)

    def prepare(self) -> PerFrame:
        """Make the worker part that returns velocities."""
        check_order(self)
        return _Velocities()

    def next_stage(self, value: np.ndarray) -> OverParts:
        """Divide the atoms into parts, whose velocities the workers correlate."""
        self._delta_t, gaps = check_times(self)
        self._n_pairs = pairs_of_frames(len(value), gaps)
        return SeriesParts(value, "product", range(3), gaps, fft=self.fft)

    def finish(self, value: SeriesParts) -> None:
        """Compute the mean, its integral and its spectrum."""
        mean, n = value.mean(), len(self._delta_t)
        dt = self._delta_t[1] if n > 1 else np.nan
        # As in a periodogram, velocities count as 0 in frames that were left out, so a lag time
        # without pairs contributes 0.
        weighted = np.where(self._n_pairs > 0, mean * self._n_pairs / self._n_pairs[0], 0.0)
        even = np.concatenate([weighted, [0.0], weighted[:0:-1]])
        integral = running_integral(mean, self._delta_t) / 3
        if not self.times_known:  # the integral is over frames, not over time
            integral[:] = np.nan
        _warn_of_long_steps(self, mean, self._delta_t, "diffusion coefficient")
        title = "velocity autocorrelation (Å²/ps²)"
        columns = {self.lag_title: self._delta_t, title: mean}
        shown = Table(_first_tenth(columns), self.lag_title, {title: "velocities"}, title)
        # 1 Å²/ps is 10⁻⁴ cm²/s.
        coefficient = "diffusion coefficient up to this time (10⁻⁵ cm²/s)"
        columns[coefficient] = 10 * integral
        method, arrays = {}, {}
        if self.errors:
            half, method["intervals"] = self._interval(value.by_particle, mean)
            arrays["integral_interval"] = half
            band = title_of_band(coefficient)
            columns[band] = 10 * half
            first = _first_tenth(columns)
            legend = {coefficient: "integral and 95 % interval"}
            below = Table(first, self.lag_title, legend, coefficient, bands={coefficient: band})
            shown = replace(shown, panels=[shown, below])
        self.results = Results(
            table=Table(columns, self.lag_title, {title: "velocities"}, title, shown),
            provenance={**self.record(), **method},
            timeseries=mean,
            by_atom=value.by_particle.T,
            delta_t_values=self._delta_t,
            integral=integral,
            **arrays,
            frequencies=np.arange(n + 1) / (2 * n * dt),
            spectrum=np.fft.rfft(even).real * dt,
        )

    def _interval(self, by_atom: np.ndarray, mean: np.ndarray) -> tuple[np.ndarray, str]:
        """Half the widths of the intervals of the integral, and how they are computed."""
        molecules, guessed = molecules_of(self.atomgroup.universe, self.atomgroup.indices)
        counts, squares = squares_of_molecules(
            *(by_atom, molecules, mean), lambda off: running_integral(off, self._delta_t) / 3
        )
        _, (_, half) = error_between_molecules(counts, squares)
        if not self.times_known:
            half = np.full(len(mean), np.nan)
        note = f" ({guessed})" if guessed else ""
        method = f"95 %, between {many(len(counts), 'molecule')}{note}"
        return np.where(half > 0, half, np.nan), method  # 0 at the first lag time: no interval

    FURTHER_TABLES = ("spectrum",)

    def further_tables(self) -> dict[str, Table]:
        """Return the table of the spectrum.

        Returns
        -------
        dict of str to Table
            "spectrum", against frequencies.
        """
        found, x, title = self.results, "frequency (THz)", "spectrum (Å²/ps)"
        if not self.times_known:
            x, title = "frequency (1/frame)", "spectrum (Å²/ps² frames)"
        columns = {x: found.frequencies, title: found.spectrum}
        return {"spectrum": Table(columns, x, {title: "velocities"}, title)}


class CurrentAutocorrelation(AnalysisBase):
    r"""Autocorrelation of the electric current of a group, and its ionic conductivity.

    $$C(\tau) = \left\langle \mathbf{J}(t) \cdot \mathbf{J}(t + \tau) \right\rangle_t, \quad
      \mathbf{J} = \sum_i q_i \mathbf{v}_i, \qquad
      \sigma = \frac{1}{3 \langle V \rangle k_B T} \int_0^\infty C(\tau)\,\mathrm{d}\tau$$

    over all pairs of frames (t, t + τ) (Kubo 1957, J. Phys. Soc. Jpn. 12, 570; Allen & Tildesley
    2017, Computer Simulation of Liquids, section 2.7). The interval between frames must be so short
    that C is smooth: some femtoseconds for liquids. If the group is not neutral, such as cations
    alone, the current depends on the drift of the whole system.

    Parameters
    ----------
    atomgroup : AtomGroup or Universe
        Atoms; the topology must contain charges, and the trajectory velocities.
    temperature : float
        Temperature of the simulation, K.
    fft : bool
        Use Fourier transforms; with False, evaluate the sums of the definition directly.

    Attributes
    ----------
    volume : float
        Mean volume of the cell over frames, Å³.
    results.timeseries : numpy.ndarray of float64, shape (n_frames,)
        C, (e Å/ps)². Frames that were left out are in no pair; NaN for lag times without pairs.
    results.by_axis : numpy.ndarray of float64, shape (n_frames, 3)
        Contributions to C along x, y and z, (e Å/ps)².
    results.delta_t_values : numpy.ndarray of float64, shape (n_frames,)
        Lag times, ps.
    results.conductivity : numpy.ndarray of float64, shape (n_frames,)
        Conductivity from the integral up to each lag time by the trapezoidal rule, S/m. Its plateau
        is the conductivity of the group. Long lag times have few pairs, so their values are noise.
        NaN if times are unknown.
    results.conductivity_interval : numpy.ndarray of float64, shape (n_frames,)
        Half the width of the 95 % interval of `conductivity`, S/m, by jackknife over ten blocks of
        time origins; NaN for lag times longer than a fifth of the run.
    results.conductivity_by_axis : numpy.ndarray of float64, shape (n_frames, 3)
        Conductivities along x, y and z, S/m, whose mean is `conductivity`. In a liquid, they are
        three estimates of one value.
    results.currents : numpy.ndarray of float64, shape (n_frames, 3)
        Current in each frame, e Å/ps; NaN for a damaged frame that was left out.

    Raises
    ------
    MissingDataError
        The trajectory does not contain velocities.
    SelectionError
        The group is empty.
    UnsupportedError
        The group is an UpdatingAtomGroup, the topology has no charges, all charges are 0, or
        frames are not equidistant in time.
    ValueError
        The temperature is not above 0. In the run, as `AnalysisError`: a frame has no cell, or
        velocities are not finite.

    Examples
    --------
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import TPR, TRR
    >>> ions = paceline.Universe(TPR, TRR).select_atoms("resname NA+")
    >>> current = CurrentAutocorrelation(ions).run()
    >>> current.results.timeseries[:2].round(1)
    array([108.9,  15.5])
    """

    declaration = Declaration(
        name="current-autocorrelation",
        summary="autocorrelation of the electric current, and ionic conductivity",
        description=(
            "Autocorrelation of the current ((e Å/ps)²) of charged atoms against the lag time, and "
            "the ionic conductivity (S/m) from the integral up to each lag time (Green and Kubo). "
            "The figure shows its plateau with the band of the 95 % interval. "
            "The trajectory must contain velocities."
        ),
        section="dynamics.md#currents-and-conductivity",
        needs=("charges", "a cell"),
        select="all",
        examples=(
            'md.tpr md.trr --select "resname NA CL" --temperature 310 -o current.csv --plot s.png',
        ),
        options=("temperature",),
    )

    stages = 2
    over_parts = True
    fields = ("velocities",)

    def __init__(
        self,
        atomgroup: Atoms | System,
        temperature: float = 300,
        *,
        fft: bool = True,
        verbose: bool = False,
    ):
        check_temperature(temperature)
        super().__init__(atomgroup, verbose=verbose)
        check_not_empty(self.atomgroup, "CurrentAutocorrelation: the group")
        if not has_attribute(self.atomgroup, "charges"):
            raise UnsupportedError(
                "CurrentAutocorrelation needs charges, but the topology has none; use a topology "
                "with charges (TPR, PSF, PRMTOP, …)"
            )
        self.temperature, self.fft = temperature, fft
        self._charges = np.asarray(self.atomgroup.charges, dtype=np.float64)
        if not self._charges.any():
            raise UnsupportedError("CurrentAutocorrelation: the charges of all atoms are 0")

    def parameters(self) -> dict[str, object]:
        """Return the atoms, the temperature, and the method."""
        return {**super().parameters(), "temperature": self.temperature, "fft": self.fft}

    def prepare(self) -> PerFrame:
        """Make the worker part from the charges."""
        check_order(self)
        return _Currents(self._charges)

    def next_stage(self, value: np.ndarray) -> OverParts:
        """Make one series per axis, x, y and z, which the workers correlate."""
        self._currents, volumes = value[:, :3], value[:, 3]
        self._delta_t, self._gaps = check_times(self)
        self.volume = float(np.delete(volumes, self._gaps).mean())
        return SeriesParts(value[:, :3, np.newaxis], "product", [0], self._gaps, fft=self.fft)

    def finish(self, value: SeriesParts) -> None:
        """Sum the correlations along x, y and z, and integrate the sum over the lag time."""
        by_axis = value.by_particle.T
        total = by_axis[:, 0] + by_axis[:, 1] + by_axis[:, 2]
        unit = CONDUCTIVITY / (self.volume * self.temperature)
        along_axes = running_integral(by_axis, self._delta_t) * unit
        mean = (along_axes[:, 0] + along_axes[:, 1] + along_axes[:, 2]) / 3
        if not self.times_known:  # the integral is over frames, not over time
            along_axes[:], mean[:] = np.nan, np.nan
        _warn_of_long_steps(self, total, self._delta_t, "conductivity")
        interval = np.full(len(mean), np.nan)
        found = block_products(self._currents, self._gaps) if self.times_known else None
        if found is not None:
            without = running_integral(found.without_each().T, self._delta_t).T * unit / 3
            # The first lag time, and lag times without values, have no interval.
            interval[1 : without.shape[1]] = jackknife_interval(without)[1:]
        title, label = "current autocorrelation ((e Å/ps)²)", "conductivity up to this time (S/m)"
        half = "conductivity up to this time, 95 % interval (S/m)"
        columns = {self.lag_title: self._delta_t, title: total, label: mean, half: interval}
        beginning = _first_tenth({self.lag_title: self._delta_t, label: mean, half: interval})
        legend = {label: "conductivity, and its 95 % interval"}
        drawn = Table(beginning, self.lag_title, legend, label, bands={label: half})
        shown = drawn if self.times_known else None
        self.results = Results(
            table=Table(columns, self.lag_title, {title: "current"}, title, shown),
            provenance={**self.record(), "mean volume": f"{self.volume:.6g} Å³"},
            timeseries=total,
            by_axis=by_axis,
            delta_t_values=self._delta_t,
            conductivity=mean,
            conductivity_interval=interval,
            conductivity_by_axis=along_axes,
            currents=self._currents,
        )


def _warn_of_long_steps(
    analysis: AnalysisBase, values: np.ndarray, times: np.ndarray, of: str
) -> None:
    """Warn if an autocorrelation decreases by more than half between two frames."""
    if len(values) > 1 and values[1] < 0.5 * values[0]:
        apart = f"{times[1]:.4g} {analysis.time_unit} apart"
        analysis.remark(
            "long steps",
            f"{analysis.name}: frames are {apart}, and the autocorrelation decreases by more than "
            f"half in this time: the {of}, its integral, is meaningless; save velocities every "
            "few femtoseconds",
        )


def _first_tenth(columns: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Select the lag times for a figure: the first tenth, because later values are noise.

    If there are few lag times, all are selected.
    """
    n = max(len(next(iter(columns.values()))) // 10, DRAWN)
    return {title: column[:n] for title, column in columns.items()}


class _Currents(PerFrame):
    """Worker part: current and cell volume of each frame."""

    def __init__(self, charges: np.ndarray):
        self._rows = CoreRows("dipole", charges, "velocities", "the conductivity")

    def compute(self, block: Block) -> np.ndarray:
        """Return currents along x, y and z, and volumes: float64, shape (n_frames, 4)."""
        velocities: Any = SimpleNamespace(
            raw=(block.velocities, None), cells=block.cells, frames=block.frames
        )
        rows = self._rows.compute(velocities)
        # The kernel raises no error for frames whose velocities are all NaN: check these here.
        check_finite(block, np.isnan(rows[:, 0]) & (block.held != 0), "velocities")
        return rows


class _Velocities(PerFrame):
    """Worker part that collects velocities."""

    returns_new = True  # each block is decoded into new arrays

    def compute(self, block: Block) -> np.ndarray:
        """Return velocities, shape (n_frames, n_atoms, 3)."""
        return block.velocities
