"""Dielectric constants, as in MDAnalysis, and autocorrelation functions of dipole moments."""

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from paceline import _core
from paceline.analysis import name_of_mdanalysis
from paceline.analysis.base import AnalysisBase, check_order, check_times, table_in_time
from paceline.analysis.correlation_by_particles import (
    SeriesParts,
    check_temperature,
    running_integral,
)
from paceline.analysis.jackknife_intervals import errors_of_means
from paceline.analysis.kernels import CoreRows, check_finite
from paceline.analysis.lag_time_confidence_intervals import (
    block_products,
    is_converged,
    jackknife_interval,
    time_with_interval,
)
from paceline.analysis.results import Results
from paceline.analysis.table import Table
from paceline.analysis.uncertainty import mean_of_series, with_error
from paceline.block import Block
from paceline.contract.analysis_declaration import Declaration
from paceline.contract.analysis_kinds import OverParts, PerFrame
from paceline.contract.run_info_and_descriptions import describe_atoms
from paceline.contract.system_interface import Atoms, System, has_attribute
from paceline.contract.transform_interface import CoreTransform
from paceline.errors import UnsupportedError
from paceline.transform.bonds_and_compounds import advice_on_sites, molecular_bonds_of
from paceline.transform.selections_and_weights import check_not_empty

if TYPE_CHECKING:
    import MDAnalysis.analysis.dielectric

#: Molecules with a smaller absolute charge are neutral, e; the value is MDAnalysis's.
NEUTRAL = 1e-5


class _DipoleAnalysis(AnalysisBase):
    """Analysis of the dipole moment of a group of whole neutral molecules."""

    def __init__(self, atomgroup: Atoms | System, make_whole: bool, verbose: bool):
        super().__init__(atomgroup, verbose=verbose)
        check_not_empty(self.atomgroup, f"{self.name}: atomgroup")
        self.make_whole = make_whole
        if not has_attribute(self.atomgroup, "charges"):
            raise UnsupportedError(
                f"{self.name} needs charges, but the topology has none; use a topology with "
                "charges (TPR, PSF, PRMTOP, …)"
            )
        self._charges = np.asarray(self.atomgroup.charges, dtype=np.float64)
        self._bonds = self._find_bonds()

    def _moments(self, needs_cell: str | None) -> "_Moments":
        """Make the worker part, which also computes volumes of cells unless `needs_cell` is None.

        `needs_cell` names, in error messages, the quantity for which a frame needs a cell.
        """
        whole = None
        if self.make_whole:
            whole = CoreTransform("unwrap", len(self._charges), self._bonds)
        return _Moments(CoreRows("dipole", self._charges, "positions", needs_cell), whole)

    def _find_bonds(self) -> np.ndarray:
        """Find the bonds within the group, as indices in the group.

        Raises `UnsupportedError` for charged molecules, and for those that cannot be made whole.
        """
        universe, atoms = self.atomgroup.universe, self.atomgroup.indices
        order = np.argsort(atoms)
        if (np.diff(atoms[order]) == 0).any():
            raise UnsupportedError(f"{self.name}: the group contains an atom more than once")
        bonds = molecular_bonds_of(universe, self.name)
        fragments, pairs = bonds.fragments, bonds.pairs
        first, rows = np.unique(fragments[atoms], return_inverse=True)
        charges = np.bincount(rows, weights=self._charges)
        wrong = np.flatnonzero(~(np.abs(charges) <= NEUTRAL))
        if len(wrong):
            remedy = (
                "use a group without them, or add missing bonds to the topology, such as those of "
                f"virtual sites{advice_on_sites(universe)}"
            )
            of_first = universe.atoms.charges[fragments == first[wrong[0]]]
            if abs(of_first.sum()) <= NEUTRAL:
                remedy = "use all atoms of each molecule, including virtual sites"
            raise UnsupportedError(
                f"{self.name} needs neutral molecules: {len(wrong)} of {len(first)} are "
                f"charged; the molecule of atom {first[wrong[0]]} has {charges[wrong[0]]:.3g} e; "
                f"{remedy}"
            )
        pairs = pairs[np.isin(pairs, atoms).all(axis=1)]
        pairs = order[np.searchsorted(atoms[order], pairs)]
        n_parts = len(np.unique(_core.fragments(len(atoms), pairs)))
        if self.make_whole and n_parts != len(first):
            raise UnsupportedError(
                f"{self.name}: the group contains {n_parts} bonded parts of {len(first)} "
                "molecules, which cannot be made whole; use all atoms of these molecules"
            )
        return pairs


class DielectricConstant(_DipoleAnalysis):
    r"""Static dielectric constant, from the fluctuations of the dipole moment.

    $$\varepsilon_\alpha = 1 + \frac{\langle M_\alpha^2 \rangle - \langle M_\alpha \rangle^2}
                                    {\varepsilon_0 \langle V \rangle k_B T}, \qquad
      \mathbf{M} = \sum_i q_i \mathbf{r}_i$$

    for conducting boundaries, as in Ewald sums (Neumann 1983, Mol. Phys. 50, 841). The variance is
    computed as the mean square deviation from the mean moment, not as a difference of two large
    means. All molecules must be neutral.

    Parameters
    ----------
    atomgroup : AtomGroup
        Atoms: all atoms of each molecule, or bonded and neutral parts. The topology must contain
        charges and bonds; virtual sites need no bonds, as in `paceline.transform.unwrap`.
    temperature : float
        Temperature of the simulation, K.
    make_whole : bool
        Make molecules whole along their bonds. For whole molecules, False saves time.

    Attributes
    ----------
    volume : float
        Mean volume of the cell over frames, Å³.
    results.M : numpy.ndarray of float64, shape (3,)
        Mean of the components x, y and z of the dipole moment, e Å.
    results.M2 : numpy.ndarray of float64, shape (3,)
        Mean of the squares of these components, (e Å)².
    results.fluct : numpy.ndarray of float64, shape (3,)
        Variance of the components, (e Å)².
    results.eps : numpy.ndarray of float64, shape (3,)
        Dielectric constant along x, y and z.
    results.eps_mean : float
        Mean of the three components of `eps`.
    results.eps_mean_interval : float
        Half the width of the 95 % interval of `eps_mean`, from parts of the run
        (`paceline.analysis.jackknife_intervals`). NaN for less than 4 frames.
    results.eps_mean_converged : bool
        True if the square deviation and the moments along each axis have 10 independent values
        or more, with a probability of 95 %.
    results.moments : numpy.ndarray of float64, shape (n_frames, 3)
        Dipole moment of each frame, e Å; NaN for a damaged frame that was left out.

    Raises
    ------
    SelectionError
        The group contains no atoms.
    UnsupportedError
        The group is an UpdatingAtomGroup or contains an atom twice, the topology lacks charges or
        bonds, a molecule is not neutral, or the group contains separate parts of a molecule.
    ValueError
        The temperature is not above 0. In the run, as `AnalysisError`: a frame has no cell or an
        invalid one, positions are not finite, or a bond is longer than half the cell after
        molecules were made whole.

    Examples
    --------
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import PSF_TRICLINIC, DCD_TRICLINIC
    >>> water = paceline.Universe(PSF_TRICLINIC, DCD_TRICLINIC).atoms
    >>> found = DielectricConstant(water).run().results
    >>> found.eps.round(2), round(float(found.eps_mean), 2)
    (array([2.48, 5.11, 4.03]), 3.87)
    """

    declaration = Declaration(
        name="dielectric",
        summary="static dielectric constant",
        description=(
            "Dielectric constant from the fluctuations of the dipole moment, and dipole moments "
            "(e Å) of all frames. The lines above the table contain the 95 % interval of the "
            "constant, and report if it is not converged. The figure shows the constant computed "
            "from the frames up to each time."
        ),
        section="dynamics.md#dielectric-constant",
        needs=("charges", "a cell"),
        select="all",
        examples=(
            "water.tpr water.xtc -o dielectric.csv --plot dielectric.png",
            "md.tpr md.xtc --select water --temperature 310 -b 10ns",
        ),
        options=("temperature",),
        counterpart="dielectric.DielectricConstant",
    )

    volume: float

    def __init__(
        self,
        atomgroup: Atoms | System,
        temperature: float = 300,
        make_whole: bool = True,
        verbose: bool = False,
    ):
        check_temperature(temperature)
        super().__init__(atomgroup, make_whole, verbose)
        self.temperature = temperature

    @classmethod
    def from_mdanalysis(cls, theirs: "MDAnalysis.analysis.dielectric.DielectricConstant") -> Self:
        """Make an analysis with the parameters of MDAnalysis's analysis."""
        if len(theirs.atomgroup) == 0:
            raise UnsupportedError("DielectricConstant: the group is empty")
        return cls(theirs.atomgroup, theirs.temperature, theirs.make_whole)

    SHARED_RESULTS = ("M", "M2", "fluct", "eps", "eps_mean")

    def parameters(self) -> dict[str, object]:
        """Return the parameters that are saved with the results."""
        return {
            "atoms": describe_atoms(self.atomgroup),
            "temperature": self.temperature,
            "make_whole": self.make_whole,
        }

    def prepare(self) -> PerFrame:
        """Find charges and bonds, and make the worker part."""
        return self._moments("the dielectric constant")

    def finish(self, value: np.ndarray) -> None:
        """Compute the variance of the moments of frames that were not left out."""
        from MDAnalysis.units import constants, convert

        moments, volumes = value[:, :3], value[:, 3]
        read = ~np.isnan(volumes)
        if not read.any():
            read[:] = True  # if no frame is readable, all results become NaN
        mean = moments[read].mean(axis=0)
        fluct = ((moments[read] - mean) ** 2).mean(axis=0)
        self.volume = float(volumes[read].mean())
        energy = convert(constants["Boltzmann_constant"], "kJ/mol", "eV") * self.temperature
        unit = energy * self.volume * constants["electric_constant"]
        eps = 1 + fluct / unit
        interval, converged = self._interval(moments[read] - mean, unit)
        text = _constant_with_interval(eps.mean(), interval, converged=converged)
        titles = {f"M{axis} (e Å)": f"along {axis}" for axis in "xyz"}
        columns = dict(zip(titles, moments.T, strict=True))
        columns["volume (Å³)"] = volumes
        label = "dielectric constant so far"
        columns[label] = self._running_constant(
            moments, volumes, energy * constants["electric_constant"]
        )
        until, at = "until time (ps)", self.times
        if not self.times_known:
            until, at = "until frame", self.frames
        so_far = {until: at, label: columns[label]}
        legend = {label: f"{label}; of all {text}"}
        notes = {"dielectric constant": text}
        drawn = Table(so_far, until, legend, "dielectric constant", notes=notes)
        table = table_in_time(self, columns, titles, "dipole moment (e Å)", drawn)
        self.results = Results(
            table=replace(table, notes=notes),
            provenance={**self.record(), **notes},
            M=mean,
            M2=(moments[read] ** 2).mean(axis=0),
            fluct=fluct,
            eps=eps,
            eps_mean=eps.mean(),
            eps_mean_interval=interval,
            eps_mean_converged=converged,
            moments=moments,
        )

    @staticmethod
    def _interval(deviations: np.ndarray, unit: float) -> tuple[float, bool]:
        """Half the width of the interval of the mean constant, and whether it is converged.

        The interval includes the error of the mean moment, because this mean is also computed again
        each time that one part of the run is left out.
        """
        squares = (deviations**2).mean(axis=1)
        found = errors_of_means(
            np.column_stack([squares, deviations]),
            lambda means: np.array([means[0] - (means[1:] ** 2).mean()]) / unit,
        )
        series = squares, *deviations.T
        converged = all(mean_of_series(one, blocks=False).converged for one in series)
        return float(found.interval[0]), converged

    @staticmethod
    def _running_constant(moments: np.ndarray, volumes: np.ndarray, energy: float) -> np.ndarray:
        """For each frame, compute the mean constant from this frame and all earlier ones.

        Deviations from the moment of the first frame avoid a difference of large numbers.
        """
        read = ~np.isnan(volumes)
        found = np.full(len(volumes), np.nan)
        if read.any():
            deviations = moments[read] - moments[read][0]
            counts = np.arange(1, len(deviations) + 1)
            means = np.cumsum(deviations, axis=0) / counts[:, None]
            squares = np.cumsum(deviations**2, axis=0) / counts[:, None]
            fluct = (squares - means**2).mean(axis=1)
            found[read] = 1 + fluct / (energy * np.cumsum(volumes[read]) / counts)
        return found


def _constant_with_interval(value: float, interval: float, *, converged: bool) -> str:
    """Format a dielectric constant with its interval, and say if it is not converged."""
    note = "" if converged else ", not converged"
    if not interval > 0:
        return f"{value:.4g}, no interval{note}"
    return f"{with_error(value, interval)} (95 %){note}"


class DipoleAutocorrelation(_DipoleAnalysis):
    r"""Autocorrelation of the dipole moment of a group, and its relaxation time.

    $$C(\tau) = \left\langle \mathbf{M}(t) \cdot \mathbf{M}(t + \tau) \right\rangle_t, \quad
      \mathbf{M} = \sum_i q_i \mathbf{r}_i, \qquad
      \tau_D = \frac{1}{C(0)} \int_0^\infty C(\tau)\,\mathrm{d}\tau$$

    over all pairs of frames (t, t + τ). If C decays as a single exponential (Debye relaxation),
    $\tau_D$ is its time constant (Neumann & Steinhauser 1983, Chem. Phys. Lett. 102, 508, with
    conducting boundaries). All molecules must be neutral. The mean moment is not subtracted,
    because it is 0 in a liquid. For a molecule with a fixed orientation, C has a plateau above 0,
    and the relaxation time is undefined.

    Parameters
    ----------
    atomgroup : AtomGroup
        Atoms: all atoms of each molecule, or bonded and neutral parts. The topology must contain
        charges and bonds; virtual sites need no bonds, as in `paceline.transform.unwrap`.
    make_whole : bool
        Make molecules whole along their bonds. For whole molecules, False saves time, and no cell
        is needed.
    fft : bool
        Use Fourier transforms; with False, evaluate the sums of the definition directly.

    Attributes
    ----------
    results.timeseries : numpy.ndarray of float64, shape (n_frames,)
        C, (e Å)². Frames that were left out are in no pair; NaN for lag times without pairs.
    results.by_axis : numpy.ndarray of float64, shape (n_frames, 3)
        Contributions to C along x, y and z, (e Å)².
    results.delta_t_values : numpy.ndarray of float64, shape (n_frames,)
        Lag times, ps.
    results.integral : numpy.ndarray of float64, shape (n_frames,)
        Integral of C from 0 to each lag time by the trapezoidal rule, divided by C(0), ps.
    results.relaxation_time : float
        Integral up to the first lag time at which C is not above 0, ps; NaN if there is none.
    results.relaxation_time_interval : float
        Half the width of the 95 % interval of the relaxation time, ps, by jackknife over ten blocks
        of time origins. NaN if C is above 0 for more than a fifth of the run.
    results.relaxation_time_converged : bool
        True if the run is at least 100 times as long as the relaxation time. For shorter runs, the
        interval itself is unreliable.
    results.moments : numpy.ndarray of float64, shape (n_frames, 3)
        Dipole moment of each frame, e Å; NaN for a damaged frame that was left out.

    Raises
    ------
    SelectionError
        The group contains no atoms.
    UnsupportedError
        The group is an UpdatingAtomGroup or contains an atom twice, the topology lacks charges or
        bonds, a molecule is not neutral, the group contains separate parts of a molecule, or
        frames are not equidistant in time.
    ValueError
        In the run, as `AnalysisError`: positions are not finite. If molecules are made whole, also:
        a frame has no cell, or a bond of a whole molecule is longer than half the cell.

    Examples
    --------
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import PSF_TRICLINIC, DCD_TRICLINIC
    >>> water = paceline.Universe(PSF_TRICLINIC, DCD_TRICLINIC).atoms
    >>> found = DipoleAutocorrelation(water).run().results
    >>> found.timeseries[:3].round(1)
    array([37.4, 28.7, 23. ])
    """

    declaration = Declaration(
        name="dipole-autocorrelation",
        summary="autocorrelation of the dipole moment, and its relaxation time",
        description=(
            "Autocorrelation of the dipole moment ((e Å)²) of whole neutral molecules against the "
            "lag time, and its integral divided by its first value (ps). The relaxation time is "
            "the integral up to the first lag time at which the autocorrelation is not above 0. "
            "The lines above the table contain it with its 95 % interval."
        ),
        section="dynamics.md#dipole-moments",
        needs=("charges",),
        select="all",
        examples=(
            "water.tpr water.xtc -o dipole.csv --plot dipole.png",
            "md.tpr md.xtc --select water -b 10ns -o dipole.npz",
        ),
    )

    stages = 2
    over_parts = True

    def __init__(
        self,
        atomgroup: Atoms | System,
        *,
        make_whole: bool = True,
        fft: bool = True,
        verbose: bool = False,
    ):
        super().__init__(atomgroup, make_whole, verbose)
        self.fft = fft

    def parameters(self) -> dict[str, object]:
        """Return the parameters that are saved with the results."""
        return {**super().parameters(), "make_whole": self.make_whole, "fft": self.fft}

    def prepare(self) -> PerFrame:
        """Find charges and bonds, and make the worker part."""
        check_order(self)
        return self._moments(None)

    def next_stage(self, value: np.ndarray) -> OverParts:
        """Make one series per axis, x, y and z, which the workers correlate."""
        self._collected = value
        self._delta_t, self._gaps = check_times(self)
        return SeriesParts(value[:, :, np.newaxis], "product", [0], self._gaps, fft=self.fft)

    def finish(self, value: SeriesParts) -> None:
        """Sum the correlations along x, y and z, and integrate the sum."""
        by_axis = value.by_particle.T
        total = by_axis[:, 0] + by_axis[:, 1] + by_axis[:, 2]
        integral, time = self._integrate(total)
        found, interval = block_products(self._collected, self._gaps), np.nan
        if found is not None:
            without = [self._integrate(one)[1] for one in found.without_each()]
            interval = float(jackknife_interval(np.array(without)))
        converged = bool(is_converged(time, self._delta_t[-1]))
        text = "not reached"
        if not np.isnan(time):
            text = time_with_interval(time, interval, converged=converged, unit=self.time_unit)
        notes = {"relaxation time": text}
        title = "dipole autocorrelation ((e Å)²)"
        columns = {
            self.lag_title: self._delta_t,
            title: total,
            f"integral over its first value ({self.time_unit})": integral,
        }
        self.results = Results(
            table=Table(
                columns,
                self.lag_title,
                {title: f"dipole moment, relaxation time {text}"},
                title,
                notes=notes,
            ),
            provenance={**self.record(), **notes},
            timeseries=total,
            by_axis=by_axis,
            delta_t_values=self._delta_t,
            integral=integral,
            relaxation_time=time,
            relaxation_time_interval=interval,
            relaxation_time_converged=converged,
            moments=self._collected,
        )

    def _integrate(self, total: np.ndarray) -> tuple[np.ndarray, float]:
        """Return the integral of C, divided by C(0), and the relaxation time or NaN."""
        with np.errstate(invalid="ignore"):  # 0 / 0 if the moment is always 0
            integral = running_integral(total / total[0], self._delta_t)
        ends = np.flatnonzero(total <= 0)
        return integral, float(integral[ends[0]]) if len(ends) and ends[0] > 0 else np.nan


class _Moments(PerFrame):
    """Worker part: the dipole moment of whole molecules in each frame."""

    def __init__(self, rows: CoreRows, whole: CoreTransform | None):
        self._rows, self._whole = rows, whole

    def compute(self, block: Block) -> np.ndarray:
        rows = self._compute(block)
        # The kernel raises no error for frames whose positions are all NaN: check these here.
        check_finite(block, np.isnan(rows[:, 0]) & (block.held != 0))
        return rows

    def _compute(self, block: Block) -> np.ndarray:
        if self._whole is None:
            return self._rows.compute(block)
        decoded, columns = block.raw
        positions = decoded.copy() if columns is None else decoded.take(columns, axis=1)
        refused, long_bonds = self._whole.apply_noting(positions, block.cells.copy())
        for row, reason in refused:
            raise ValueError(f"frame {block.frames[row]}: {reason}")
        for row, _, _, length in long_bonds:
            raise ValueError(
                f"frame {block.frames[row]}: a bond of {length:.2f} Å is longer than half the cell "
                "after molecules were made whole"
            )
        whole: Any = SimpleNamespace(raw=(positions, None), cells=block.cells, frames=block.frames)
        return self._rows.compute(whole)


def __getattr__(name: str) -> object:
    return name_of_mdanalysis(__name__, name)
