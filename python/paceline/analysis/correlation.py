"""Autocorrelations of series that one pass over the frames has collected, cut by particles."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from paceline import _core
from paceline.analysis.base import AnalysisBase
from paceline.analysis.functions import TimeSeries
from paceline.analysis.interfaces import OverParts, PerFrame
from paceline.analysis.results import Results
from paceline.analysis.table import Table
from paceline.block import Block
from paceline.errors import SelectionError, UnsupportedError
from paceline.schedule.parts import allocate_results

#: Title of the times between frames.
LAG = "lag time (ps)"
#: Particles of a part, at most.
PARTICLES = 64
#: Parts that are wanted, so that all workers end together.
PARTS = 32
#: Series of a part, at most, bytes.
PART_BYTES = 16 * 2**20
#: A time may differ by so many distances of frames from where it should be …
UNEVEN = 1e-5
#: … and by so much of itself: trajectories keep times in single precision.
ROUNDED = 1.2e-7


class SeriesParts:
    """Parts of a function of the time between frames: ranges of particles, with all frames.

    Parameters
    ----------
    series : numpy.ndarray, shape (n_frames, n_particles, width)
        Values of all particles.
    correlated : {"displacement", "product"}
        Mean squared displacement or autocorrelation.
    axes : sequence of int
        Those of the `width` numbers that count.
    gaps : numpy.ndarray of int64
        Rows of frames that were left out.
    fft : bool
        Compute by the fast Fourier transform.
    unwrap : {"tor", "lattice"}, optional
        Undo jumps across the cell first, see `unwrapped`: the last three particles are the vectors
        of the cells.

    Attributes
    ----------
    by_particle : numpy.ndarray of float64, shape (n_particles, n_frames)
        The function of each particle.
    """

    def __init__(
        self,
        series: np.ndarray,
        correlated: str,
        axes: Sequence[int],
        gaps: np.ndarray,
        *,
        fft: bool,
        unwrap: str | None = None,
    ):
        self._cells = None if unwrap is None else series[:, -3:]
        self._series = series = series if unwrap is None else series[:, :-3]
        n_frames, n_particles, width = series.shape
        self._size = part_size(n_frames, n_particles, width * series.itemsize)
        self.n_parts = -(-n_particles // self._size)
        self.worker = _Correlated(
            *(correlated, n_frames, width, np.array(axes, dtype=np.int64), gaps),
            fft=fft,
            unwrap=unwrap,
        )
        self.by_particle = allocate_results((n_particles, n_frames), np.dtype(np.float64))
        self._sums = allocate_results((self.n_parts, n_frames), np.dtype(np.float64))

    def _particles(self, number: int) -> slice:
        first = number * self._size
        return slice(first, min(first + self._size, len(self.by_particle)))

    def arguments(self, number: int) -> tuple[Any, ...]:
        """Size of a part, the series of its particles, and the cells if they are needed."""
        series = self._series[:, self._particles(number)]
        return (self._size, series) if self._cells is None else (self._size, series, self._cells)

    def put(self, number: int, *values: np.ndarray) -> None:
        """Put the function of some particles in its place, and their sum."""
        rows, total = values
        some = self._particles(number)
        self.by_particle[some] = rows[: some.stop - some.start]
        self._sums[number] = total

    def get(self, number: int) -> tuple[np.ndarray, ...]:
        """Return the function of some particles, and their sum."""
        some = self._particles(number)
        return _filled(np.array(self.by_particle[some]), self._size), self._sums[number]

    def mean(self) -> np.ndarray:
        """Mean of all particles; sums of parts are added one after another."""
        total = np.zeros(self._sums.shape[1])
        for one in self._sums:
            total += one
        return total / len(self.by_particle)


class _Correlated:
    """Worker's half: a function of the time between frames, of some particles."""

    def __init__(self, *arguments: Any, fft: bool, unwrap: str | None = None):
        self._arguments, self._fft, self._unwrap = arguments, fft, unwrap
        self._kernel: _core.Correlation | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_kernel": None}

    def compute(
        self, size: int, series: np.ndarray, cells: np.ndarray | None = None
    ) -> tuple[np.ndarray, ...]:
        """Return the function of each particle, as many as a whole part has, and their sum."""
        if cells is not None and self._unwrap is not None:
            *_, gaps = self._arguments
            series = unwrapped(series, cells, gaps, self._unwrap)
        if self._kernel is None:
            self._kernel = _core.Correlation(*self._arguments, fft=self._fft)
        dtype: Any = np.float32 if series.dtype == np.float32 else np.float64
        rows, total = self._kernel.compute(np.ascontiguousarray(series, dtype=dtype))
        return _filled(rows, size), total


def unwrapped(series: np.ndarray, cells: np.ndarray, gaps: np.ndarray, scheme: str) -> np.ndarray:
    """Undo jumps across the cell, from the first frame on, over frames that were left out.

    "lattice" counts cells that a particle has crossed, n, and adds n·L of the present frame, as
    MDAnalysis's `NoJump`. "tor" adds for each crossing the cell at that time, and so adds up the
    shortest steps (von Bülow, Bullerjahn & Hummer 2020, J. Chem. Phys. 153, 021101).

    Parameters
    ----------
    series : numpy.ndarray, shape (n_frames, n_particles, 3)
        Positions, Å.
    cells : numpy.ndarray, shape (n_frames, 3, 3)
        Vectors of the cells in rows, Å: a along x, b in the plane of x and y.
    gaps : numpy.ndarray of int64
        Rows of frames that were left out.
    scheme : {"tor", "lattice"}
        Cells that are added.

    Returns
    -------
    numpy.ndarray of float64, shape (n_frames, n_particles, 3)
        Å.

    Examples
    --------
    >>> jumping = np.array([[[9.0, 0, 0]], [[1.0, 0, 0]]])
    >>> cells = np.array([np.eye(3) * 10, np.eye(3) * 11])
    >>> unwrapped(jumping, cells, np.array([], int), "lattice")[:, 0, 0]
    array([ 9., 12.])
    """
    rows = np.setdiff1d(np.arange(len(series)), gaps)
    positions, cells = series[rows].astype(np.float64), cells[rows].astype(np.float64)
    if scheme == "lattice":
        crossed = np.rint(np.diff(_fractions(positions, cells), axis=0)).cumsum(axis=0)
        shifts = -_sums(crossed, cells[1:])
    else:
        crossed = np.rint(_fractions(np.diff(positions, axis=0), cells[1:]))
        shifts = -_sums(crossed, cells[1:]).cumsum(axis=0)
    found = np.full(series.shape, np.nan)
    found[rows[:1]] = positions[:1]
    found[rows[1:]] = positions[1:] + shifts
    return found


def _fractions(positions: np.ndarray, cells: np.ndarray) -> np.ndarray:
    """Positions in units of the cells' vectors."""
    # In this order on every machine, as a product of matrices would not be.
    (ax, bx, by), (cx, cy, cz) = (
        cells[:, [0, 1, 1], [0, 0, 1]].T[..., None],
        cells[:, 2].T[..., None],
    )
    w = positions[..., 2] / cz
    v = (positions[..., 1] - w * cy) / by
    u = (positions[..., 0] - w * cx - v * bx) / ax
    return np.stack([u, v, w], axis=-1)


def _sums(numbers: np.ndarray, cells: np.ndarray) -> np.ndarray:
    """Add up numbers of the cells' vectors."""
    a, b, c = cells[:, None].transpose(2, 0, 1, 3)
    u, v, w = numbers.transpose(2, 0, 1)[..., None]
    return u * a + v * b + w * c


def _filled(rows: np.ndarray, size: int) -> np.ndarray:
    """Add rows of zeros up to a number."""
    return np.pad(rows, ((0, size - len(rows)), (0, 0))) if len(rows) < size else rows


def part_size(n_frames: int, n_particles: int, value_bytes: int) -> int:
    """Choose the particles of a part, by the series alone.

    Examples
    --------
    >>> part_size(98, 214, 12), part_size(10_000, 10_000, 12), part_size(10**6, 10_000, 12)
    (7, 64, 1)
    """
    held = max(1, PART_BYTES // (n_frames * value_bytes))
    return max(1, min(PARTICLES, held, math.ceil(n_particles / PARTS)))


def results_bytes(n_frames: int, n_particles: int, value_bytes: int) -> int:
    """Bytes of the results of `SeriesParts`."""
    n_parts = -(-n_particles // part_size(n_frames, n_particles, value_bytes))
    return 8 * n_frames * (n_particles + n_parts)


def check_order(analysis: AnalysisBase) -> None:
    """Raise `UnsupportedError` where frames are not chosen at equal distances."""
    steps = np.unique(np.diff(analysis.frames))
    if len(steps) > 1 or 0 in steps:
        raise UnsupportedError(
            f"{analysis.name} needs frames at equal distances in time, and those that were chosen "
            "are not: give start, stop and step"
        )


def check_times(analysis: AnalysisBase) -> tuple[np.ndarray, np.ndarray]:
    """Find the times between frames, ps, and the rows of frames that were left out.

    Raises `UnsupportedError` where times are not equidistant.
    """
    times = analysis.times
    rows = np.flatnonzero(~np.isnan(times))
    gaps = np.flatnonzero(np.isnan(times))
    if len(rows) == 0:
        raise UnsupportedError(f"{analysis.name}: no frame could be read")
    if len(times) == 1 or len(rows) == 1:
        return np.where(np.arange(len(times)) == 0, 0.0, np.nan), gaps
    known = times[rows]
    dt = (known[-1] - known[0]) / (rows[-1] - rows[0])
    off = np.abs(known - (known[0] + dt * (rows - rows[0])))
    wrong = off > UNEVEN * abs(dt) + ROUNDED * np.abs(known).max()
    if np.ptp(known) == 0:
        raise UnsupportedError(
            f"{analysis.name} needs the times of frames, and all are at {known[0]} ps: give the "
            "time between two, as paceline.Universe(…, dt=2)"
        )
    if dt == 0 or wrong.any():
        row = rows[np.argmax(wrong)]
        raise UnsupportedError(
            f"{analysis.name} needs frames at equal distances in time: frame "
            f"{analysis.frames[row]} is at {times[row]} ps, and expected at "
            f"{known[0] + dt * (row - rows[0])} ps"
        )
    if 1 in rows and 0 in rows:
        dt = times[1] - times[0]
    return np.arange(len(times)) * dt, gaps


def centers(block: Any, order: np.ndarray, weights: np.ndarray, firsts: np.ndarray) -> np.ndarray:
    """Compute weighted centers of compounds, shape (n_frames, n_compounds, 3), float64.

    `order` are the columns of the atoms, compound by compound; `weights` those of the atoms in this
    order, which add up to 1 in each compound; `firsts` are the first ones of compounds.
    """
    weighted = block.positions[:, order].astype(np.float64) * weights[:, np.newaxis]
    return np.add.reduceat(weighted, firsts, axis=1)


class Correlation(TimeSeries):
    r"""Autocorrelation of any function of the frames.

    $$C(\tau) = \left\langle \mathbf{f}(t) \cdot \mathbf{f}(t + \tau) \right\rangle_t$$

    over all pairs of frames (t, t + τ), of the numbers as the function returns them: subtract their
    mean in the function if fluctuations are wanted.

    Parameters
    ----------
    function : callable
        As for `TimeSeries`: takes a block and returns an array of numbers, of shape (n_frames,),
        (n_frames, n_series), or (n_frames, n_series, n_dimensions) for vectors.
    atomgroup : AtomGroup or Universe
        Atoms whose positions the function sees, in this order.
    fields : sequence of str
        Fields that the function needs: "positions", "velocities", "forces".
    fft : bool
        Compute by Fourier transforms; False by the sums of the definition.
    label : str, optional
        Name in tables and figures; by default the function's.
    unit : str, optional
        Unit of the autocorrelation, for the same.
    block : {"paceline", "mdtraj"}
        Kind of block: with "mdtraj" the function takes an `mdtraj.Trajectory`, in nm and ps.
    verbose : bool
        Show progress.

    Attributes
    ----------
    results.timeseries : numpy.ndarray of float64, shape (n_frames,)
        Mean over the series. Frames that were left out as damaged count in no pair; where there is
        no other pair, it is NaN.
    results.by_series : numpy.ndarray of float64, shape (n_frames, n_series)
        That of each series; in a nameless file if it takes more than 256 MiB.
    results.delta_t_values : numpy.ndarray of float64, shape (n_frames,)
        Times between frames, ps.

    Raises
    ------
    TypeError
        The function cannot be called.
    UnsupportedError
        Frames are not at equal distances in time, or the function returns other arrays.
    ValueError
        An unknown field or kind of block.

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
        atomgroup: Any,
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

    def parameters(self) -> dict[str, Any]:
        """The function's name, the atoms, and the way of computing."""
        return {**super().parameters(), "fft": self.fft}

    def prepare(self) -> PerFrame:
        """The function itself."""
        check_order(self)
        return super().prepare()

    def next_stage(self, value: np.ndarray) -> OverParts:
        """Correlate some series at a time."""
        if value.dtype.kind not in "biuf" or value.ndim > 3 or 0 in value.shape:
            raise UnsupportedError(
                f"{self.name}: expected real numbers of shape (n_frames,), (n_frames, n_series) or "
                f"(n_frames, n_series, n_dimensions), found {value.dtype} of {value.shape}"
            )
        series = value.reshape(len(value), -1, value.shape[2] if value.ndim == 3 else 1)
        self._delta_t, gaps = check_times(self)
        return SeriesParts(series, "product", range(series.shape[2]), gaps, fft=self.fft)

    def finish(self, value: Any) -> None:
        """Take the mean."""
        mean, label = value.mean(), self.label or self._function_name
        title = f"autocorrelation of {label}" + (f" ({self.unit})" if self.unit else "")
        columns = {LAG: self._delta_t, title: mean}
        self.results = Results(
            table=Table(columns, LAG, {title: label}, title),
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

    with the length $T$ of the trajectory. The weights of long times, of which there are few pairs
    of frames, make the spectrum that of the velocities themselves (their periodogram): it is never
    negative, and its integral over all frequencies, negative ones too, is $C(0)$.

    Parameters
    ----------
    atomgroup : AtomGroup or Universe
        The atoms; the trajectory must hold velocities.
    fft : bool
        Compute by Fourier transforms; False by the sums of the definition.
    verbose : bool
        Show progress.

    Attributes
    ----------
    results.timeseries : numpy.ndarray of float64, shape (n_frames,)
        Mean over the atoms, Å²/ps². Frames that were left out as damaged count in no pair.
    results.by_atom : numpy.ndarray of float64, shape (n_frames, n_atoms)
        That of each atom; in a nameless file if it takes more than 256 MiB.
    results.delta_t_values : numpy.ndarray of float64, shape (n_frames,)
        Times between frames, ps.
    results.integral : numpy.ndarray of float64, shape (n_frames,)
        Integral of the mean from 0 to each time, by trapezoids, over 3: where it levels off, it is
        the diffusion coefficient (Green 1954, Kubo 1957), Å²/ps.
    results.frequencies : numpy.ndarray of float64, shape (n_frames + 1,)
        Frequencies, THz.
    results.spectrum : numpy.ndarray of float64, shape (n_frames + 1,)
        Spectrum, Å²/ps.

    Raises
    ------
    MissingDataError
        The trajectory holds no velocities.
    SelectionError
        The group has no atoms.
    UnsupportedError
        The group updates itself, frames are not at equal distances in time, or series and results
        have no room in the temporary folder.

    Examples
    --------
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import GRO, TRR
    >>> atoms = paceline.Universe(GRO, TRR).atoms[:100]
    >>> velocities = VelocityAutocorrelation(atoms).run()
    >>> velocities.results.timeseries[:2].round(1)
    array([309.1,  -1.4])
    """

    stages = 2
    over_parts = True
    fields = ("velocities",)

    def __init__(self, atomgroup: Any, *, fft: bool = True, verbose: bool = False):
        super().__init__(atomgroup, verbose=verbose)
        if len(self.atomgroup) == 0:
            raise SelectionError("VelocityAutocorrelation: the group has no atoms")
        self.fft = fft
        self.row_bytes = 12 * len(self.atomgroup)

    def parameters(self) -> dict[str, Any]:
        """The atoms, and the way of computing."""
        return {**super().parameters(), "fft": self.fft}

    def stored_bytes(self, n_frames: int) -> int:
        """Bytes of the series and of the results of so many frames."""
        return super().stored_bytes(n_frames) + results_bytes(n_frames, len(self.atomgroup), 12)

    def prepare(self) -> PerFrame:
        """Collect velocities."""
        check_order(self)
        return _Velocities()

    def next_stage(self, value: np.ndarray) -> OverParts:
        """Correlate the velocities of some atoms at a time."""
        self._delta_t, gaps = check_times(self)
        return SeriesParts(value, "product", range(3), gaps, fft=self.fft)

    def finish(self, value: SeriesParts) -> None:
        """Take the mean, its integral and its spectrum."""
        mean, n = value.mean(), len(self._delta_t)
        dt = abs(self._delta_t[1]) if n > 1 else np.nan
        steps = np.concatenate([[0.0], (mean[1:] + mean[:-1]) / 2])
        weighted = mean * (1 - np.arange(n) / n)
        even = np.concatenate([weighted, [0.0], weighted[:0:-1]])
        title = "velocity autocorrelation (Å²/ps²)"
        self.results = Results(
            table=Table({LAG: self._delta_t, title: mean}, LAG, {title: "velocities"}, title),
            provenance=self.record(),
            timeseries=mean,
            by_atom=value.by_particle.T,
            delta_t_values=self._delta_t,
            integral=np.cumsum(steps) * (0.0 if n == 1 else dt) / 3,
            frequencies=np.arange(n + 1) / (2 * n * dt),
            spectrum=np.fft.rfft(even).real * dt,
        )


class _Velocities:
    """Worker's half that collects velocities."""

    returns_new = False

    def compute(self, block: Block) -> np.ndarray:
        """Return velocities, shape (n_frames, n_atoms, 3)."""
        return block.velocities
