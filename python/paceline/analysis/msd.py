"""Mean squared displacements, with the parameters and results of MDAnalysis.analysis.msd."""

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, Self

import numpy as np

from paceline import _core
from paceline._util.arguments import one_of
from paceline.analysis import name_of_mdanalysis
from paceline.analysis.base import AnalysisBase, check_order, check_times
from paceline.analysis.correlation_by_particles import SeriesParts, results_bytes
from paceline.analysis.diffusion import (
    BlockFit,
    DiffusionCoefficient,
    block_fit,
    finite_size,
    lags_of_blocks,
    limits_of_msd,
    mean_and_interval,
    molecules_of,
    squares_of_molecules,
    weights_of,
)
from paceline.analysis.gyration import COMPOUNDS
from paceline.analysis.msd_uneven_times import UnevenParts, uneven_times
from paceline.analysis.results import Results
from paceline.analysis.table import Table, titles_of_limits
from paceline.block import Block, upright_vectors, vectors_of
from paceline.contract.analysis_declaration import Declaration, Option
from paceline.contract.analysis_kinds import OverParts, PerFrame
from paceline.contract.system_interface import Atoms, System
from paceline.contract.transform_interface import find_scan
from paceline.errors import SelectionError, UnsupportedError, warn
from paceline.performance.number_format import many
from paceline.transform.bonds_and_compounds import advice_on_sites, compound_of_atoms
from paceline.transform.compare_atom_names import name_atom
from paceline.transform.masses import masses_of
from paceline.transform.nojump_workers import changed_cells, warn_of_jumps
from paceline.transform.selections_and_weights import choose_atoms

if TYPE_CHECKING:
    import MDAnalysis.analysis.msd

#: Axes (0 to 2) of each MSD type.
AXES = {
    **{"x": [0], "y": [1], "z": [2]},
    **{"xy": [0, 1], "xz": [0, 2], "yz": [1, 2], "xyz": [0, 1, 2]},
}
#: Default range of the fit, as fractions of the longest lag time.
FITTED = 0.1, 0.5
#: Rounding error of a lag time at the ends of the fit range, as a fraction of the longest lag time.
ROUNDED = 1e-6
#: Reason, in messages, why a frame without a cell is an error or is left out.
NO_CELL = (
    "it has no cell, which unwrap= needs; unwrap=None (--unwrap-particles none) leaves positions "
    "unchanged"
)
#: If the particles of a frame spread over more cells than this, they may already be unwrapped.
SPREAD = 2
#: Maximum number of positions that are checked for jumps across the cell.
JUMP_VALUES = 2**21
#: The displacement of a particle between two frames counts as long above this fraction of half the
#: cell.
NEARLY = 0.8
#: Long displacements are reported if they are more than this fraction of all checked displacements.
MOST_LONG = 0.01
#: Offsets of a cell and its 26 neighbours, in units of cell vectors.
NEIGHBOURS = np.stack(np.meshgrid(*3 * [[-1.0, 0.0, 1.0]]), axis=-1).reshape(-1, 3)
#: Maximum size of the data of particles whose slopes are fitted at a time, bytes.
FIT_BYTES = 2**26


class EinsteinMSD(AnalysisBase):
    r"""Mean squared displacement (MSD) of particles as a function of the lag time.

    $$\mathrm{MSD}(\tau) = \frac{1}{N} \sum_{i=1}^N
              \left\langle \left|\mathbf{x}_i(t + \tau) - \mathbf{x}_i(t)\right|^2 \right\rangle_t$$

    over all pairs of frames (t, t + τ). Positions must not jump across the cell: see `unwrap`, or
    `paceline.transform.nojump`. With `fft`, MSDs are computed by Fourier transforms (Calandrini et
    al. 2011, Collection SFN 12, 201) of the displacements from the first frame. They equal the sums
    of the definition within 10⁻¹⁰ of the largest value.

    Parameters
    ----------
    u : AtomGroup or Universe
        Atoms from which `select` selects.
    select : str
        Selection of the atoms.
    msd_type : {"xyz", "xy", "yz", "xz", "x", "y", "z"}
        Dimensions that the MSD includes.
    fft : bool
        Use Fourier transforms. With False, evaluate the sums of the definition directly, in a time
        that grows as the square of the number of frames.
    non_linear : bool
        Allow frames at unequal intervals. Arrays of results then have one row for each time between
        two frames, instead of n_frames rows; times that differ by rounding of single precision are
        merged. The sums of the definition are evaluated directly, also with `fft`.
    compound : {"atoms", "residues", "segments", "fragments"}
        Particles: atoms, or centers of mass of residues, segments or molecules, which must be whole
        in each frame. Virtual sites belong to their molecule, as in `paceline.transform.unwrap`.
    unwrap : {"auto", "tor", "lattice"} or None
        Scheme that first removes jumps of particles across the cell, from frame to frame of the
        run. A particle must move by less than half a cell between two frames. "tor" sums the
        shortest displacements, which is correct for diffusion also if the cell varies (von Bülow,
        Bullerjahn & Hummer 2020, J. Chem. Phys. 153, 021101); for molecules use it with centers
        (`compound`). "lattice" is the scheme of MDAnalysis's `NoJump`. None leaves positions
        unchanged, with a warning if particles jump across the cell. "auto" is "tor" for centers of
        compounds, unless the current frame has no cell or `nojump` is among the transformations;
        for atoms it is None. A warning reports frames of the run that were left out.
    fit_range : pair of float or None, optional
        First and last lag time, ps (or frames if times are unknown), of the fit of a straight line,
        as in `diffusion_coefficient`. None is 10 and 50 % of the longest lag time. Without a pair
        there is no fit. If both are None and the run has too few frames, there is no fit either,
        and a warning is issued.
    errors : bool
        Also compute the 95 % interval of the MSD at each lag time, between molecules or time blocks
        as that of the diffusion coefficient.

    Attributes
    ----------
    results.timeseries : numpy.ndarray of float64, shape (n_frames,)
        MSD, averaged over the particles, Å². Frames that were left out are in no pair; NaN for lag
        times without pairs.
    results.msds_by_particle : numpy.ndarray of float64, shape (n_frames, n_particles)
        MSD of each particle, Å². More than 256 MiB are stored in a file in the temporary folder,
        which is deleted with the array. If a position is NaN, the MSD of its particle is NaN.
    results.timeseries_intervals : numpy.ndarray of float64, shape (n_frames, 2)
        With `errors`: lower and upper limits of the 95 % intervals of `timeseries`, Å². NaN at lag
        time 0 and, for a single molecule, at lag times of more than a tenth of the run.
    results.delta_t_values : numpy.ndarray of float64, shape (n_frames,)
        Lag times, ps; numbers of frames, with a warning, if times are unknown.
    results.diffusion_coefficient : DiffusionCoefficient
        Diffusion coefficient, if a line was fitted.
    ag : AtomGroup
        The atoms.
    n_particles : int
        Number of particles.
    dim_fac : int
        Number of dimensions that the MSD includes.

    Raises
    ------
    SelectionError
        The selection is empty, or a compound has no mass.
    UnsupportedError
        The group is an UpdatingAtomGroup, frames are not equidistant in time, series and results
        exceed the free space in the temporary folder, or the topology has no molecules.
    ValueError
        `msd_type`, `compound` or `unwrap` is unknown, or `fit_range` contains fewer than two times.
    AnalysisError
        In the run: a frame has no cell, but `unwrap` needs a cell. With ``on_error="skip"`` the
        frame is left out, as in `paceline.transform.nojump`.

    Examples
    --------
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import PSF, DCD
    >>> msd = EinsteinMSD(paceline.Universe(PSF, DCD), select="name CA").run()
    >>> msd.results.timeseries[:4].round(3)
    array([0.   , 0.153, 0.24 , 0.329])
    >>> msd.results.msds_by_particle.shape
    (98, 214)
    """

    declaration = Declaration(
        name="msd",
        summary="mean squared displacement, and diffusion coefficient",
        description=(
            "Mean squared displacement (Å²) against the lag time, and the diffusion coefficient "
            "(cm²/s) from the fit of a straight line, with its 95 % interval between molecules or "
            "time blocks. Positions must be unwrapped: --unwrap-particles removes jumps of "
            "particles across the borders of the cell, --nojump jumps of all atoms."
        ),
        section="dynamics.md#mean-squared-displacement",
        examples=(
            'md.tpr md.xtc --select "name OW" --unwrap-particles tor -o msd.csv --plot msd.png',
            (
                "md.tpr md.xtc --select POPC --unwrap --compound fragments --msd-type xy "
                "--fit-range 1000 10000 --plot msd.png"
            ),
        ),
        options=(
            "msd_type",
            "compound",
            "non_linear",
            "errors",
            Option(
                "unwrap_particles",
                "remove jumps of particles across the cell: tor sums shortest displacements, "
                "which is correct for diffusion in a varying cell; lattice is as --nojump; auto "
                "is tor for centers, none for atoms [%(default)s]",
                choices=("auto", "tor", "lattice", "none"),
                default="auto",
            ),
            Option(
                "fit_range",
                "lag times of the fit: ps, or with a unit [10 and 50 %% of the longest lag time]",
                nargs=2,
                type="lag",
                default=(None, None),
                metavar=("FIRST", "LAST"),
            ),
        ),
        counterpart="msd.EinsteinMSD",
    )

    stages = 2
    over_parts = True
    SHARED_RESULTS = ("timeseries", "msds_by_particle", "delta_t_values")

    def __init__(
        self,
        u: Atoms | System,
        select: str = "all",
        msd_type: Literal["xyz", "xy", "yz", "xz", "x", "y", "z"] = "xyz",
        fft: bool = True,
        non_linear: bool = False,
        *,
        compound: Literal["atoms", "residues", "segments", "fragments"] = "atoms",
        unwrap: Literal["auto", "tor", "lattice"] | None = "auto",
        fit_range: Sequence[float | None] | None = None,
        errors: bool = False,
        verbose: bool = False,
    ):
        atoms = choose_atoms(u, select, "select")
        super().__init__(atoms, verbose=verbose)
        if str(msd_type).lower() not in AXES:
            raise ValueError(
                f"Invalid msd_type {msd_type!r}, must be a string and one of: {', '.join(AXES)}"
            )
        one_of("unwrap", unwrap, "auto", "tor", "lattice", None)
        self.select, self.msd_type, self.fft, self.non_linear = select, msd_type, fft, non_linear
        self.compound, self.unwrap = compound, unwrap
        self.needs_whole = compound != "atoms"
        if fit_range is not None and len(np.atleast_1d(np.asarray(fit_range))) != 2:
            raise ValueError(f"fit_range must be two times, or None, not {fit_range!r}")
        self.fit_range, self.errors = fit_range, errors
        self._axes = AXES[msd_type.lower()]
        self.dim_fac = len(self._axes)
        self.ag = atoms
        self._centers = None if compound == "atoms" else _compounds(atoms, compound)
        self.n_particles = len(atoms) if self._centers is None else len(self._centers[2])
        self._value_bytes = 12 if self._centers is None else 24
        self._has_cell = atoms.universe.trajectory.ts.dimensions is not None
        # If jumps are removed, three further rows contain the cell vectors.
        n_rows = self.n_particles + (0 if self._scheme is None else 3)
        self.row_bytes = self._value_bytes * n_rows

    @classmethod
    def from_mdanalysis(cls, theirs: "MDAnalysis.analysis.msd.EinsteinMSD") -> Self:
        """Make an analysis with the parameters of MDAnalysis's analysis."""
        if theirs.non_linear:  # MDAnalysis does not merge times that differ by rounding
            raise UnsupportedError("EinsteinMSD: not with non_linear=True")
        return cls(theirs.ag, "all", theirs.msd_type, theirs.fft)

    @property
    def _scheme(self) -> str | None:
        """Scheme that removes jumps of particles; None if positions are used unchanged."""
        if self.unwrap != "auto":
            return self.unwrap
        follows = find_scan(self.transforms) is not None
        return "tor" if self._centers is not None and self._has_cell and not follows else None

    def parameters(self) -> dict[str, object]:
        """Return the parameters that are saved with the results."""
        return {
            **super().parameters(),
            "select": self.select,
            "msd_type": self.msd_type,
            "fft": self.fft,
            "non_linear": self.non_linear,
            "compound": self.compound,
            "unwrap": self._scheme,
            "fit_range": self.fit_range,
            **({"errors": True} if self.errors else {}),
        }

    def stored_bytes(self, n_frames: int) -> int:
        """Size of the series and of the results for `n_frames` frames, bytes."""
        of_results = results_bytes(n_frames, self.n_particles, self._value_bytes)
        if self.errors:  # sums in blocks are as large as those over the run
            of_sums = of_results - 8 * n_frames * self.n_particles
            of_results += of_sums
        return super().stored_bytes(n_frames) + of_results

    def prepare(self) -> PerFrame:
        """Make the worker part that returns positions of particles, and cells for `unwrap`."""
        if not self.non_linear:
            check_order(self)
        with_cells = self._scheme is not None
        return _Particles(self._centers, with_cells=with_cells, skip=self.skip_damaged)

    def next_stage(self, value: np.ndarray) -> OverParts:
        """Check jumps and times, and make parts; each part computes the MSDs of some particles."""
        unwrap = self._scheme
        if unwrap is not None:
            self._leave_out(np.isnan(value[:, -3:]).any(axis=(1, 2)))
        self._all_damaged = self.damaged
        if self.non_linear:
            times, gaps = uneven_times(self)
        else:
            self._delta_t, gaps = self._even_times()
            fit = self._fit_of_blocks()
        if unwrap is not None:
            # Shortest displacements do not change if a cell vector changes by another whole vector.
            changes = changed_cells(np.delete(value[:, -3:], gaps, 0), lengths_only=unwrap == "tor")
            changes = np.delete(self.frames, gaps)[1:][changes]
            scheme = f"unwrap={unwrap!r}"
            warn_of_jumps(self.name, scheme, "a particle", self.frames[gaps], changes)
            if not (self.unwrap == "auto" and self._warn_of_unwrapped(value[:, :-3], gaps)):
                self._warn_of_long_steps(value, gaps, unwrap)
        elif find_scan(self.transforms) is None:
            self._warn_of_jumping(value, gaps)
        if self.non_linear:
            parts = UnevenParts(value, times, self._axes, gaps, unwrap=unwrap)
            self._delta_t = parts.lags
            return parts
        return SeriesParts(
            *(value, "displacement", self._axes, gaps),
            fft=self.fft,
            unwrap=unwrap,
            of_blocks=fit,
            lags_of=lags_of_blocks(len(value)) if self.errors else None,
        )

    def _even_times(self) -> tuple[np.ndarray, np.ndarray]:
        """Return lag times and the rows of left-out frames; raise an error for unequal intervals.

        The message of this error names the option that allows unequal intervals.
        """
        try:
            return check_times(self)
        except UnsupportedError as error:
            if "equal intervals" not in str(error):
                raise
            advice = "non_linear=True (--non-linear) allows unequal intervals"
            raise UnsupportedError(f"{error}; {advice}") from None

    def _fit_of_blocks(self) -> BlockFit | None:
        """Choose time blocks for the fit; None without a fit, or if the run has too few blocks.

        Raises `ValueError` if the range that the user set contains too few lag times.
        """
        if self.fit_range is None:
            return None
        try:
            lags = _rows_in_fit_range(self._delta_t, *self._times_of_fit)
        except ValueError:
            if self._times_of_fit != (None, None):
                raise
            return None
        return block_fit(self._delta_t, lags, self.dim_fac)

    def _warn_of_jumping(self, positions: np.ndarray, gaps: np.ndarray) -> None:
        """Warn of particles that jump across the cell of the current frame, from frame to frame.

        In long series, only some pairs of frames are checked.
        """
        by_cell = self._by_cell()
        found = None if by_cell is None else self._find_jumps(positions, gaps, by_cell)
        if found is not None:
            self.remark(
                "jumps",
                f"{self.name}: {found}: unless particles were unwrapped before, they jump across "
                "the faces of the cell, and displacements are wrong; remove jumps with "
                "unwrap='tor' (--unwrap-particles tor)",
            )

    def _warn_of_unwrapped(self, positions: np.ndarray, gaps: np.ndarray) -> bool:
        """Warn if particles seem to jump but spread over several cells, as if unwrapped before.

        Returns whether a warning was issued.
        """
        by_cell = self._by_cell()
        known = np.delete(np.arange(len(positions)), gaps)[-1:]
        if by_cell is None or not (np.ptp(positions[known] @ by_cell, axis=1) > SPREAD).any():
            return False
        found = self._find_jumps(positions, gaps, by_cell)
        if found is not None:
            self.remark(
                "jumps",
                f"{self.name}: {found}, which counts as a jump across its faces; but particles are "
                "more than two cells apart, so perhaps they are already unwrapped: then leave "
                "positions unchanged with unwrap=None (--unwrap-particles none)",
            )
        return found is not None

    def _by_cell(self) -> np.ndarray | None:
        """Return the matrix that converts positions to fractional coordinates.

        The cell is that of the current frame; None if the current frame has no cell.
        """
        dimensions = self.ag.universe.trajectory.ts.dimensions
        if dimensions is None:
            return None
        [vectors] = upright_vectors(_core.cells_of_dimensions(np.array([dimensions], np.float32)))
        return np.linalg.inv(vectors) if np.linalg.det(vectors) else None

    def _find_jumps(
        self, positions: np.ndarray, gaps: np.ndarray, by_cell: np.ndarray
    ) -> str | None:
        """Describe jumps in the first checked pair of frames with jumps; None if there is none."""
        for row in self._sample_rows(len(positions), gaps):
            steps = (positions[row].astype(np.float64) - positions[row - 1]) @ by_cell
            n_jumps = int((np.abs(steps) > 0.5).any(axis=1).sum())
            if n_jumps:
                return (
                    f"{many(n_jumps, 'particle')} of {self.n_particles:,} move by more than half "
                    f"the cell up to frame {self.frames[row]}"
                )
        return None

    def _warn_of_long_steps(self, value: np.ndarray, gaps: np.ndarray, unwrap: str) -> None:
        """Warn of displacements of nearly half the cell or more, whose image is ambiguous."""
        n_long, rows = 0, self._sample_rows(len(value), gaps)
        most = MOST_LONG * len(rows) * self.n_particles
        for row in rows:
            cell = value[row, -3:].astype(np.float64)
            steps = value[row, :-3].astype(np.float64) - value[row - 1, :-3]
            by_cell = steps @ np.linalg.inv(cell)
            by_cell -= np.rint(by_cell)
            long = by_cell[np.abs(by_cell).max(axis=1) > 0.5 * NEARLY]
            if unwrap == "tor":  # "tor" uses the shortest displacement of all images
                images = (long[:, np.newaxis] + NEIGHBOURS) @ cell
                shortest = np.linalg.norm(images, axis=2).min(axis=1)
                long = long[shortest > 0.5 * NEARLY * np.linalg.norm(cell, axis=1).min()]
            n_long += len(long)
            if n_long > most:
                self.remark(
                    "long steps",
                    f"{self.name}: in more than {MOST_LONG:.0%} of the steps from frame to frame, "
                    f"particles move by more than {0.5 * NEARLY:g} of the cell. A step of more "
                    "than half the cell is taken for a shorter one, so displacements are wrong; "
                    "analyse frames that are closer in time, or, where a "
                    "step skips frames, follow particles in each frame by nojump (--nojump)",
                )
                return

    def _sample_rows(self, n_rows: int, gaps: np.ndarray) -> list[int]:
        """Choose pairs of consecutive frames to check; return the row of each pair's second frame.

        Pairs with a frame of `gaps` are left out. In a long series, only some pairs are chosen.
        """
        rows = np.arange(1, n_rows)
        rows = rows[~np.isin(rows, gaps) & ~np.isin(rows - 1, gaps)]
        most = max(1, JUMP_VALUES // self.n_particles)
        return rows[:: -(-len(rows) // most) or 1].tolist()

    def _leave_out(self, rows: np.ndarray) -> None:
        """Add frames without a cell to the list of frames that were left out."""
        rows &= ~self.left_out
        if rows.any():
            found = [(int(frame), NO_CELL) for frame in np.unique(self.frames[rows])]
            self.damaged = type(self.damaged)(sorted([*self.damaged, *found]))

    def finish(self, value: SeriesParts) -> None:
        """Average over particles, and fit a line."""
        self.damaged = self._all_damaged
        mean, by_particle = value.mean(), value.by_particle
        title = "MSD (Å²)"
        columns, legends = {self.lag_title: self._delta_t, title: mean}, {title: "MSD"}
        findings: dict[str, str] = {}
        found: dict[str, object] = {}
        bands, method = {}, {}
        if self.errors:
            limits, method["intervals"] = self._limits(value, mean)
            bands[title] = titles_of_limits(title)
            columns |= zip(bands[title], limits.T, strict=True)
            if np.isfinite(limits).any():
                legends[title] += " and 95 % interval"
            found["timeseries_intervals"] = limits
        self._by_block = value.by_block
        if (fit := self._line_of(by_particle)) is not None:
            lags = _rows_in_fit_range(self._delta_t, *self._times_of_fit)
            lags = lags[~np.isnan(mean[lags])]
            line = np.full(len(mean), np.nan)
            if len(lags):  # empty if a position is NaN
                off = self._delta_t[lags]
                rise = 2 * self.dim_fac * fit.value * (off - off.mean())
                line[lags] = mean[lags].mean() + rise
            columns["fit (Å²)"], legends["fit (Å²)"] = line, f"fit, D = {fit}"
            findings = self._describe(fit)
            found["diffusion_coefficient"] = fit
        elif self.errors and self._molecules[1]:
            method["intervals"] += f" ({self._molecules[1]})"
        self.results = Results(
            table=Table(columns, self.lag_title, legends, title, notes=findings, bands=bands),
            provenance={**self.record(), **findings, **method},
            timeseries=mean,
            msds_by_particle=by_particle.T,
            delta_t_values=self._delta_t,
            **found,
        )

    def _limits(self, value: SeriesParts, mean: np.ndarray) -> tuple[np.ndarray, str]:
        """Return the limits of the intervals of the MSD, and how they are computed."""
        squares = squares_of_molecules(value.by_particle, self._molecules[0], mean)
        found = limits_of_msd(mean, *squares, value.block_means())
        self.remark("intervals", f"{self.name}: {found.remark}" if found.remark else None)
        return found.limits, found.method

    def _describe(self, fit: DiffusionCoefficient) -> dict[str, str]:
        """Describe the coefficient, how molecules were identified, and the effect of the cell."""
        text = f"{fit}, fit from {fit.start:g} to {fit.stop:g} {fit.time_unit}"
        if not fit.interval > 0:
            text += "; to get an interval from time blocks, end the fit at a tenth of the run"
        found = {"diffusion coefficient": text}
        if self._molecules[1]:
            found["molecules"] = self._molecules[1]
        # The correction is in cm²/s, which requires known times.
        cell = self.ag.universe.trajectory.ts.dimensions if self.times_known else None
        note = finite_size(cell, self.dim_fac)
        return found | ({"finite size": note} if note else {})

    @functools.cached_property
    def _molecules(self) -> tuple[np.ndarray, str]:
        """Number the molecules of the particles, and describe how molecules are identified."""
        atoms = self.ag.indices
        if self._centers is not None:
            order, _, firsts = self._centers
            atoms = atoms[order[firsts]]
        return molecules_of(self.ag.universe, atoms)

    @property
    def _times_of_fit(self) -> tuple[float | None, float | None]:
        """First and last lag time of the fit, ps; None for the default, or without a fit."""
        start, stop = (None, None) if self.fit_range is None else self.fit_range
        return start, stop

    def _line_of(self, by_particle: np.ndarray) -> DiffusionCoefficient | None:
        """Fit the requested line; None without a fit.

        If the default range contains too few times, a warning is issued and there is no fit.
        """
        if self.fit_range is None:
            return None
        try:
            return self._fit(by_particle, *self._times_of_fit)
        except ValueError as error:
            if self._times_of_fit != (None, None):
                raise
            warn(f"{self.name}: no line was fitted, so there is no diffusion coefficient: {error}")
            return None

    def diffusion_coefficient(
        self, start: float | None = None, stop: float | None = None
    ) -> DiffusionCoefficient:
        r"""Fit a straight line to the MSD; its slope is 2 d times the diffusion coefficient.

        The fit uses ordinary least squares. Its residuals do not determine the error, because
        points of an MSD are correlated. The error is computed from the differences between
        molecules, each with its own slope; particles of one molecule are not independent. If the
        range is the run's `fit_range`, and ends at most at a tenth of the run, an error is also
        computed from the slopes of 5 or 10 time blocks. That error includes motion that all
        molecules share. It is used if there is one molecule, or if blocks differ by more than the
        differences between molecules explain.

        Parameters
        ----------
        start, stop : float, optional
            First and last lag time, ps; by default 10 and 50 % of the longest lag time.

        Returns
        -------
        DiffusionCoefficient
            Coefficient; error and interval are NaN for a single molecule without time blocks.

        Raises
        ------
        NotRunError
            The analysis has not run.
        ValueError
            The range contains fewer than two times, or begins after its end.

        Examples
        --------
        >>> import paceline
        >>> from MDAnalysisTests.datafiles import PSF, DCD
        >>> msd = EinsteinMSD(paceline.Universe(PSF, DCD), select="name CA").run()
        >>> found = msd.diffusion_coefficient(start=10, stop=40)
        >>> found.n_particles, found.n_molecules
        (214, 1)
        """
        return self._fit(self.results.msds_by_particle.T, start, stop)

    def _fit(
        self, by_particle: np.ndarray, start: float | None, stop: float | None
    ) -> DiffusionCoefficient:
        """Fit lines to the MSDs of the particles, which have the shape (n_particles, n_frames)."""
        times = self._delta_t
        lags = _rows_in_fit_range(times, start, stop)
        is_run_s = self._by_block is not None and np.array_equal(
            lags, _rows_in_fit_range(times, *self._times_of_fit)
        )
        slopes, lags = _slopes(times, by_particle, self.dim_fac, lags)
        first, last = times[lags[[0, -1]]].tolist()
        found = mean_and_interval(slopes, self._molecules[0], self._by_block if is_run_s else None)
        found |= {"start": first, "stop": last, "n_particles": len(slopes)}
        return DiffusionCoefficient(time_unit=self.time_unit, **found)


def _rows_in_fit_range(times: np.ndarray, start: float | None, stop: float | None) -> np.ndarray:
    """Find the rows of the lag times in a fit range; raise `ValueError` if there are too few."""
    longest = np.nanmax(times)
    given = start, stop
    start, stop = (
        share * longest if time is None else time for share, time in zip(FITTED, given, strict=True)
    )
    if start > stop:
        first, last = (
            f"{time:g} ps{' (by default)' if one is None else ''}"
            for time, one in zip((start, stop), given, strict=True)
        )
        raise ValueError(
            f"the fit would begin at {first}, after its end at {last}: set "
            f"{'both times' if None in given else 'two times'}, the earlier one first"
        )
    # Files store times in single precision: 5 ps may be read as 4.999999 ps.
    slack = ROUNDED * longest
    lags = np.flatnonzero((times >= start - slack) & (times <= stop + slack))
    if len(lags) < 2:
        raise ValueError(
            f"a fit needs two or more lag times: found {len(lags)} from "
            f"{start:g} to {stop:g} ps; use another range, or analyse more frames"
        )
    return lags


def _slopes(
    times: np.ndarray, by_particle: np.ndarray, n_dimensions: int, lags: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Fit a line to the MSD of each particle.

    Returns the diffusion coefficient of each particle, and the rows of those lag times in `lags`
    that have pairs of frames.
    """
    # The lag times with pairs of frames are the same for all particles.
    known = by_particle[np.argmin(np.isnan(by_particle[:, 0]))]
    lags = lags[~np.isnan(known[lags])]
    if len(lags) < 2:
        raise ValueError(f"a fit needs two or more times with an MSD, not {len(lags)}")
    weights = weights_of(times[lags], n_dimensions)
    some = max(1, FIT_BYTES // (8 * by_particle.shape[1]))
    slopes = np.concatenate(
        [
            (by_particle[k : k + some, lags[0] : lags[-1] + 1][:, lags - lags[0]] * weights).sum(
                axis=1
            )
            for k in range(0, len(by_particle), some)
        ]
    )
    return slopes, lags


class _Particles(PerFrame):
    """Worker part that returns the positions of atoms, or the centers of compounds."""

    returns_new = True  # each block is decoded into new arrays

    def __init__(
        self,
        of_compounds: tuple[np.ndarray, np.ndarray, np.ndarray] | None,
        *,
        with_cells: bool,
        skip: bool,
    ):
        self._compounds, self._with_cells, self._skip = of_compounds, with_cells, skip

    def compute(self, block: Block) -> np.ndarray:
        """Return positions, shape (n_frames, n_particles, 3).

        With cells, the shape is (n_frames, n_particles + 3, 3): the last rows are the cell vectors.
        """
        found = block.positions if self._compounds is None else _centers(block, *self._compounds)
        if not self._with_cells:
            return found
        vectors = vectors_of(_core.lattices(block.cells))
        lacking = ~vectors.any(axis=(1, 2)) & ~np.isnan(block.cells).any(axis=1)
        if lacking.any() and not self._skip:
            raise ValueError(f"frame {block.frames[lacking][0]}: {NO_CELL}")
        vectors[lacking] = np.nan
        return np.concatenate([found, vectors.astype(found.dtype)], axis=1)


def _compounds(atoms: Atoms, compound: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sort atoms by compound.

    Returns the order of the atoms, their mass fractions, and each compound's first index in this
    order.
    """
    one_of("compound", compound, "atoms", *COMPOUNDS)
    of_atoms = compound_of_atoms(atoms, compound, "EinsteinMSD")
    order = np.argsort(of_atoms, kind="stable")
    _, firsts, numbers = np.unique(of_atoms[order], return_index=True, return_inverse=True)
    masses = masses_of(atoms, f"compound={compound!r}")[order]
    total = np.add.reduceat(masses, firsts)
    if not (total > 0).all():
        first = atoms[order[firsts[np.argmin(total > 0)]]]
        raise SelectionError(
            f"compound={compound!r}: the one with {name_atom(first)} has no mass, so no center; "
            f"exclude it, by 'and prop mass > 0' for instance{advice_on_sites(atoms.universe)}"
        )
    return order, masses / total[numbers], firsts


def _centers(
    block: Block, order: np.ndarray, weights: np.ndarray, firsts: np.ndarray
) -> np.ndarray:
    """Compute weighted centers of compounds: float64, shape (n_frames, n_compounds, 3).

    `order` contains the columns of the atoms, compound by compound. `weights` are in this order,
    and their sum in each compound is 1. `firsts` are the first indices of the compounds in `order`.
    """
    weighted = block.positions[:, order].astype(np.float64) * weights[:, np.newaxis]
    return np.add.reduceat(weighted, firsts, axis=1)


def __getattr__(name: str) -> object:
    return name_of_mdanalysis(__name__, name)
