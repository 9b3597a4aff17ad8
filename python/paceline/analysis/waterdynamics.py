"""Survival probability, with the parameters and results of the waterdynamics MDAKit."""

from typing import Self, Unpack, cast

import numpy as np

from paceline._util.arguments import slice_of, whole_number
from paceline.analysis import name_of_mdanalysis
from paceline.analysis.base import time_between
from paceline.analysis.groups import SelectedAtoms, stretches
from paceline.analysis.results import Results
from paceline.analysis.table import Table
from paceline.contract.analysis_declaration import Declaration
from paceline.contract.analysis_kinds import Ragged
from paceline.contract.run_info_and_descriptions import describe_frames
from paceline.contract.system_interface import Atoms, System, UpdatingAtoms
from paceline.errors import UnsupportedError
from paceline.performance.number_format import many
from paceline.runner import WorkerOptions

#: Default of the largest lag, frames.
LONGEST_LAG = 20


class SurvivalProbability(SelectedAtoms):
    r"""Survival probability: probability that a particle stays in a region for some time.

    $$P(\tau) = \left\langle \frac{N(t, t + \tau)}{N(t)} \right\rangle_t$$

    where $N(t)$ is the number of particles in the region in frame t, and $N(t, t + \tau)$ is the
    number of those that are in the region in each frame from t to t + τ. The mean is over all time
    origins t with at least one particle, for which the run has a frame t + τ. Values equal those of
    the MDAKit waterdynamics. Workers evaluate the selection, see `SelectedAtoms`.

    Parameters
    ----------
    universe : Universe or AtomGroup
        System, or the atoms from which `select` selects.
    select : str
        Selection of the region, such as "name OW and around 3.5 protein".
    tau_max : int, optional
        Largest lag, frames; by default 20, or the longest possible lag for less than 21 frames.
        This parameter and the following ones are used by `paceline.run`; the method `run` has them,
        too.
    window_step : int
        Distance between time origins, frames of the run.
    residues : bool
        Follow residues instead of atoms. A residue is in the region while any of its atoms is.
    intermittency : int
        Maximum length of an absence, frames, that is ignored if the particle returns within the
        run.

    Attributes
    ----------
    results.tau_timeseries : numpy.ndarray of int64, shape (tau_max + 1,)
        Lags, frames.
    results.sp_timeseries : numpy.ndarray of float64, shape (tau_max + 1,)
        Survival probability; 1 at lag 0, and NaN without time origins.
    results.sp_timeseries_data : numpy.ndarray of float64, shape (tau_max, n_origins)
        Values of all time origins for each lag from 1; NaN for invalid origins. The analysis has an
        attribute with the same name, which contains lists of the valid values.
    results.tau : numpy.ndarray of float64, shape (tau_max + 1,)
        Lag times, ps.
    results.atoms, results.counts, results.offsets : numpy.ndarray
        Atoms in the region, as for `SelectedAtoms`.

    Raises
    ------
    UnsupportedError
        Workers cannot evaluate the selection; or, in the run, frames or their times are not
        equidistant.
    ValueError
        In the run: the largest lag exceeds the number of frames, or a parameter is not a whole
        number or too small.

    Examples
    --------
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import PSF, DCD
    >>> u = paceline.Universe(PSF, DCD)
    >>> near = SurvivalProbability(u, "name CA and around 8 resid 30").run(tau_max=3)
    >>> near.results.sp_timeseries.round(2)
    array([1.  , 0.95, 0.92, 0.91])
    """

    declaration = Declaration(
        name="survival",
        summary="survival probability of atoms or residues in a region",
        description=(
            "Mean fraction of the atoms in a region that stay there in each of the following "
            "frames, against the lag time (waterdynamics.SurvivalProbability). The region is "
            "a selection that is evaluated in each frame."
        ),
        section="changing-groups.md#survival-probability",
        examples=(
            'md.tpr md.xtc --select "name OW and around 3.5 protein" -o survival.csv',
            (
                'md.tpr md.xtc --select "resname SOL and sphzone 6 resid 10" --residues '
                "--tau-max 50 --intermittency 2 --plot survival.png"
            ),
        ),
        options=(
            "tau_max",
            "window_step",
            "intermittency",
            "residues",
        ),
        counterpart="waterdynamics.SurvivalProbability",
        updating=True,
    )

    def __init__(
        self,
        universe: Atoms | System,
        select: str,
        verbose: bool = False,
        *,
        tau_max: int | None = None,
        window_step: int = 1,
        residues: bool = False,
        intermittency: int = 0,
    ):
        group = universe.select_atoms(select, updating=True)
        super().__init__(cast(UpdatingAtoms, group), verbose=verbose)
        self.universe, self.selection = universe, select
        self.tau_max, self.window_step = tau_max, window_step
        self.residues, self.intermittency = residues, intermittency
        #: Time origins, frames of the trajectory, if `run` has chosen the frames; else None.
        self._windows: range | None = None
        #: Largest lag of the current run, frames.
        self._longest = tau_max or LONGEST_LAG

    def parameters(self) -> dict[str, object]:
        """Return the parameters that are saved with the results."""
        return {
            "select": self.selection,
            "tau_max": self.tau_max,
            "window_step": self.window_step,
            "residues": self.residues,
            "intermittency": self.intermittency,
        }

    def run(  # type: ignore[override]
        self,
        tau_max: int | None = None,
        start: int | None = None,
        stop: int | None = None,
        step: int | None = None,
        residues: bool | None = None,
        intermittency: int | None = None,
        verbose: bool | None = None,
        **options: Unpack[WorkerOptions],
    ) -> Self:
        """Run only this analysis. The order of arguments is that of the MDAKit waterdynamics.

        If `step` is larger than a window, the frames between windows are not read.

        Parameters
        ----------
        tau_max : int, optional
            Largest lag, frames. By default, the value given to the analysis.
        start, stop : int, optional
            Frames, as in a slice.
        step : int, optional
            Distance between origins, frames. Every frame after an origin is used. By default, it is
            `window_step`.
        residues : bool, optional
            By default, the value given to the analysis.
        intermittency : int, optional
            By default, the value given to the analysis.
        verbose : bool, optional
            Show progress.
        **options
            Options of `AnalysisBase.run`: backend, n_workers, on_error, …. With `frames`, which
            must be equidistant, lags and `window_step` count these frames.

        Returns
        -------
        SurvivalProbability
            This analysis, with its results.

        Raises
        ------
        ValueError
            The largest lag exceeds the number of frames, or a parameter is not a whole number or
            too small.
        """
        if tau_max is not None:
            self.tau_max = tau_max
        if residues is not None:
            self.residues = residues
        if intermittency is not None:
            self.intermittency = intermittency
        self.window_step = self.window_step if step is None else step
        self._check()
        if options.get("frames") is not None:
            return super().run(start, stop, verbose=verbose, **options)
        n_frames = self.universe.universe.trajectory.n_frames
        first, end, _ = slice_of(start, stop, None).indices(n_frames)
        longest = self._choose_longest(max(0, end - first))
        self._windows = range(first, end, self.window_step)
        needed = np.zeros(end - first, bool)
        for origin in range(0, end - first, self.window_step):
            before = max(0, origin - self.intermittency)
            needed[before : origin + longest + self.intermittency + 1] = True
        try:
            options["frames"] = first + np.flatnonzero(needed)
            super().run(verbose=verbose, **options)
        finally:
            self._windows = None
        return self

    def _check(self) -> None:
        """Raise `ValueError` for invalid parameters."""
        if self.tau_max is not None:
            self.tau_max = whole_number("tau_max", self.tau_max, 1)
        self.window_step = whole_number("window_step", self.window_step, 1)
        self.intermittency = whole_number("intermittency", self.intermittency, 0)

    def prepare(self) -> Ragged:
        """Check the parameters, choose the largest lag, and make the worker part."""
        self._check()
        if self._windows is None:
            self._choose_longest(self.n_frames)
        return super().prepare()

    def _choose_longest(self, n_frames: int) -> int:
        """Choose the largest lag; raise `ValueError` if it is longer than the run."""
        # For a single frame, use the default lag, which is then an error.
        self._longest = self.tau_max or min(LONGEST_LAG, max(n_frames - 1, 0)) or LONGEST_LAG
        if self._longest > n_frames:
            raise ValueError(
                f"tau_max={self._longest} is more than the {many(n_frames, 'frame')} of the run: "
                "use a shorter lag, or analyse more frames"
            )
        return self._longest

    def finish(self, value: tuple[np.ndarray, np.ndarray]) -> None:
        """Compute the survival probability, and store it as a result."""
        super().finish(value)
        rows, windows = self.frames, self._windows
        if windows is None:
            steps = np.diff(self.frames)
            if len(steps) and not (steps[0] and np.all(steps == steps[0])):
                raise UnsupportedError(
                    "SurvivalProbability: survival in time needs equidistant frames, but the "
                    f"frames are {describe_frames(self.frames)}"
                )
            rows = np.arange(self.n_frames)
            windows = range(0, self.n_frames, self.window_step)
            end = self.n_frames
        else:
            end = int(rows[-1]) + 1
        counts, is_known = self._count(rows, np.array(windows), end)
        data = np.full((self._longest, len(counts)), np.nan)
        means = np.full(self._longest, np.nan)
        for lag in range(1, self._longest + 1):
            kept = is_known[:, lag] & (counts[:, 0] > 0)
            if kept.any():
                values = counts[kept, lag] / counts[kept, 0]
                data[lag - 1, kept], means[lag - 1] = values, np.mean(values)
        lags, survival = np.arange(self._longest + 1), np.array([1.0, *means])
        known = np.flatnonzero(np.isfinite(self.times))
        apart = abs(time_between(self, known, rows[known])) if len(known) > 1 else np.nan
        tau = np.array([0.0, *lags[1:] * apart])
        name = "survival probability"
        table = Table({self.lag_title: tau, name: survival}, self.lag_title, {name: name}, name)
        self.results = Results(
            table=table,
            provenance={**self.record(), "tau_max": self._longest},
            tau=tau,
            tau_timeseries=lags,
            sp_timeseries=survival,
            sp_timeseries_data=data,
            **{name: self.results[name] for name in ("atoms", "counts", "offsets")},
        )

    def _count(
        self, rows: np.ndarray, origins: np.ndarray, end: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Count particles that stay from each time origin on, and mark the valid lags.

        Both arrays that are returned have the shape (n_origins, n_lags). `rows` are the run's
        frames on the time axis of the origins, as integers, and `end` is the end of this axis.
        """
        n_lags = self._longest + 1
        times = np.repeat(rows, np.diff(self.results.offsets))
        _, first, last = stretches(self._members(self.residues), times, self.intermittency)
        # Each period counts at all time origins within it, up to the lag at which it ends.
        begin = np.searchsorted(origins, first)
        n_origins = np.searchsorted(origins, last, side="right") - begin
        of = np.repeat(begin - np.cumsum(n_origins) + n_origins, n_origins)
        of += np.arange(len(of))
        stay = np.minimum(np.repeat(last, n_origins) - origins[of], self._longest)
        counts = np.bincount(of * n_lags + stay, minlength=len(origins) * n_lags)
        counts = counts.reshape(len(origins), n_lags)[:, ::-1].cumsum(axis=1)[:, ::-1]
        ends = np.append(np.unique(rows[self.left_out]), end)
        until = ends[np.searchsorted(ends, origins)]
        return counts, origins[:, None] + np.arange(n_lags) < until[:, None]

    @property
    def tau_timeseries(self) -> list[int]:
        """Lags, frames, as in the MDAKit."""
        return self.results.tau_timeseries.tolist()

    @property
    def sp_timeseries(self) -> list[float]:
        """Survival probability, as in the MDAKit."""
        return self.results.sp_timeseries.tolist()

    @property
    def sp_timeseries_data(self) -> list[list[float]]:
        """Survival probabilities from each valid time origin, a list for each lag."""
        data = self.results.sp_timeseries_data
        return [values[~np.isnan(values)].tolist() for values in data]


def __getattr__(name: str) -> object:
    return name_of_mdanalysis(__name__, name)
