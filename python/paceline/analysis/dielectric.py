"""Dipole moments of groups: the dielectric constant as MDAnalysis has it, and autocorrelations."""

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from paceline import _core
from paceline.analysis import name_of_mdanalysis
from paceline.analysis.base import AnalysisBase, check_order, check_times, table_in_time
from paceline.analysis.blocks import (
    block_products,
    is_converged,
    jackknife_interval,
    time_with_interval,
)
from paceline.analysis.correlation import SeriesParts, check_temperature, running_integral
from paceline.analysis.kernels import CoreRows, check_finite
from paceline.analysis.results import Results
from paceline.analysis.table import Table
from paceline.analysis.uncertainty import SeriesMean, mean_of_series, with_error
from paceline.block import Block
from paceline.contract.atoms import Atoms, System, has_attribute
from paceline.contract.declaration import Declaration
from paceline.contract.kinds import OverParts, PerFrame
from paceline.contract.run_info import describe_atoms
from paceline.errors import UnsupportedError
from paceline.transform.apply_transforms import CoreTransform
from paceline.transform.atom_choice import check_not_empty
from paceline.transform.compounds import advice_on_sites, fragments_of, molecular_bonds_of

if TYPE_CHECKING:
    import MDAnalysis.analysis.dielectric

#: A molecule of a smaller charge is neutral, e: that of MDAnalysis.
NEUTRAL = 1e-5


class _DipoleAnalysis(AnalysisBase):
    """Analysis of the dipole moment of a group of whole neutral molecules."""

    def __init__(self, atomgroup: Atoms | System, make_whole: bool, verbose: bool):
        super().__init__(atomgroup, verbose=verbose)
        check_not_empty(self.atomgroup, f"{self.name}: atomgroup")
        self.make_whole = make_whole
        if not has_attribute(self.atomgroup, "charges"):
            raise UnsupportedError(
                f"{self.name} needs charges, and the topology has none; load a topology that has "
                "them (TPR, PSF, PRMTOP, …)"
            )
        self._charges = np.asarray(self.atomgroup.charges, dtype=np.float64)
        self._bonds = self._find_bonds()

    def _moments(self, needs_cell: str | None) -> "_Moments":
        """Worker part: moments, and volumes where something needs the cell."""
        whole = None
        if self.make_whole:
            whole = CoreTransform("unwrap", len(self._charges), self._bonds)
        return _Moments(CoreRows("dipole", self._charges, "positions", needs_cell), whole)

    def _find_bonds(self) -> np.ndarray:
        """Find the bonds within the group, of its own numbers, of neutral and bonded parts."""
        universe, atoms = self.atomgroup.universe, self.atomgroup.indices
        order = np.argsort(atoms)
        if (np.diff(atoms[order]) == 0).any():
            raise UnsupportedError(f"{self.name}: the group holds an atom more than once")
        bonds = molecular_bonds_of(universe, self.name)
        fragments = fragments_of(universe, bonds)
        first, rows = np.unique(fragments[atoms], return_inverse=True)
        charges = np.bincount(rows, weights=self._charges)
        wrong = np.flatnonzero(~(np.abs(charges) <= NEUTRAL))
        if len(wrong):
            remedy = (
                "take a group without them, or add bonds that the topology lacks, as of virtual "
                f"sites{advice_on_sites(universe)}"
            )
            of_first = universe.atoms.charges[fragments == first[wrong[0]]]
            if abs(of_first.sum()) <= NEUTRAL:
                remedy = "take all of its atoms, virtual sites too"
            raise UnsupportedError(
                f"{self.name} needs neutral molecules: {len(wrong)} of {len(first)} are "
                f"charged, that of atom {first[wrong[0]]} with {charges[wrong[0]]:.3g} e; {remedy}"
            )
        inside = np.isin(bonds, atoms).all(axis=1)
        bonds = order[np.searchsorted(atoms[order], bonds[inside])]
        n_parts = len(np.unique(_core.fragments(len(atoms), bonds)))
        if self.make_whole and n_parts != len(first):
            raise UnsupportedError(
                f"{self.name}: the group has {n_parts} bonded parts of {len(first)} "
                "molecules, and cannot make these whole; take all of their atoms"
            )
        return bonds


class DielectricConstant(_DipoleAnalysis):
    r"""Static dielectric constant, from the fluctuations of the dipole moment.

    $$\varepsilon_\alpha = 1 + \frac{\langle M_\alpha^2 \rangle - \langle M_\alpha \rangle^2}
                                    {\varepsilon_0 \langle V \rangle k_B T}, \qquad
      \mathbf{M} = \sum_i q_i \mathbf{r}_i$$

    for conducting boundaries, which Ewald sums have (Neumann 1983, Mol. Phys. 50, 841). The
    variance is the mean square deviation from the mean moment, never a difference of two large
    means. All molecules must be neutral.

    Parameters
    ----------
    atomgroup : AtomGroup
        The atoms: all of each molecule, or a part of it that is bonded and neutral. The topology
        must have charges and bonds; virtual sites need none, as in `paceline.transform.unwrap`.
    temperature : float
        Temperature of the simulation, K.
    make_whole : bool
        Make molecules whole along their bonds; False saves time where they are.

    Attributes
    ----------
    volume : float
        Volume of the cell, mean over frames, Å³.
    results.M : numpy.ndarray of float64, shape (3,)
        Mean of the dipole moment's x, y and z, e Å.
    results.M2 : numpy.ndarray of float64, shape (3,)
        Mean of their squares, (e Å)².
    results.fluct : numpy.ndarray of float64, shape (3,)
        Their variance, (e Å)².
    results.eps : numpy.ndarray of float64, shape (3,)
        Dielectric constant along x, y and z.
    results.eps_mean : float
        Mean of these three.
    results.eps_mean_interval : float
        Half of the width of the 95 % interval of `eps_mean`: that of the mean square deviation of
        the moments, a series in time, by its statistical inefficiency (`mean_of_series`). NaN for
        less than 4 frames.
    results.eps_mean_converged : bool
        True if 50 frames or more are independent: of the square deviation, and of the moment along
        each axis.
    results.moments : numpy.ndarray of float64, shape (n_frames, 3)
        Dipole moment of each frame, e Å; NaN for a damaged frame that was left out.

    Raises
    ------
    SelectionError
        The group holds no atoms.
    UnsupportedError
        The group updates itself or holds an atom twice, the topology lacks charges or bonds, a
        molecule is not neutral, or only parts of it are in the group that are not bonded.
    ValueError
        A temperature that is not above 0. In the run, as `AnalysisError`: a frame that has no cell,
        or an impossible one, or positions that are not finite, or a bond that is longer than half
        the cell after molecules were made whole.

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
            "(e Å) of all frames. The lines above the table have the 95 % interval of the "
            "constant, and say where it is not converged; the figure shows the constant of the "
            "frames so far."
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
    def like(cls, theirs: "MDAnalysis.analysis.dielectric.DielectricConstant") -> Self:
        """Make one with the parameters of MDAnalysis's."""
        if len(theirs.atomgroup) == 0:
            raise UnsupportedError("DielectricConstant: no atoms")
        return cls(theirs.atomgroup, theirs.temperature, theirs.make_whole)

    SHARED_RESULTS = ("M", "M2", "fluct", "eps", "eps_mean")

    def parameters(self) -> dict[str, object]:
        """Parameters, for the record that is saved with the results."""
        return {
            "atoms": describe_atoms(self.atomgroup),
            "temperature": self.temperature,
            "make_whole": self.make_whole,
        }

    def prepare(self) -> PerFrame:
        """Collect charges and bonds."""
        return self._moments("the dielectric constant")

    def finish(self, value: np.ndarray) -> None:
        """Compute the variance of the moments that were not left out."""
        from MDAnalysis.units import constants, convert

        moments, volumes = value[:, :3], value[:, 3]
        read = ~np.isnan(volumes)
        if not read.any():
            read[:] = True  # all results are NaN
        mean = moments[read].mean(axis=0)
        fluct = ((moments[read] - mean) ** 2).mean(axis=0)
        self.volume = float(volumes[read].mean())
        energy = convert(constants["Boltzmann_constant"], "kJ/mol", "eV") * self.temperature
        unit = energy * self.volume * constants["electric_constant"]
        eps = 1 + fluct / unit
        # A series whose mean is that of the three constants.
        squares = mean_of_series(1 + ((moments[read] - mean) ** 2).mean(axis=1) / unit)
        converged = squares.converged and all(
            mean_of_series(along).converged for along in moments[read].T
        )
        text = _constant_with_interval(squares, converged=converged)
        titles = {f"M{axis} (e Å)": f"along {axis}" for axis in "xyz"}
        columns = dict(zip(titles, moments.T, strict=True))
        columns["volume (Å³)"] = volumes
        label = "dielectric constant so far"
        columns[label] = self._so_far(moments, volumes, energy * constants["electric_constant"])
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
            eps_mean_interval=squares.interval,
            eps_mean_converged=converged,
            moments=moments,
        )

    @staticmethod
    def _so_far(moments: np.ndarray, volumes: np.ndarray, energy: float) -> np.ndarray:
        """Mean constant of the frames up to each, by sums of deviations from the first one read."""
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


def _constant_with_interval(found: SeriesMean, *, converged: bool) -> str:
    """Write a dielectric constant with its interval, and whether it is converged."""
    note = "" if converged else ", not converged"
    if not found.interval > 0:
        return f"{found.mean:.4g}, no interval{note}"
    return f"{with_error(found.mean, found.interval)} (95 %){note}"


class DipoleAutocorrelation(_DipoleAnalysis):
    r"""Autocorrelation of the dipole moment of a group, and its relaxation time.

    $$C(\tau) = \left\langle \mathbf{M}(t) \cdot \mathbf{M}(t + \tau) \right\rangle_t, \quad
      \mathbf{M} = \sum_i q_i \mathbf{r}_i, \qquad
      \tau_D = \frac{1}{C(0)} \int_0^\infty C(\tau)\,\mathrm{d}\tau$$

    over all pairs of frames (t, t + τ). Where C falls off as one exponential, as Debye assumed,
    its time is $\tau_D$ (Neumann & Steinhauser 1983, Chem. Phys. Lett. 102, 508, with conducting
    boundaries). All molecules must be neutral. The mean moment is not subtracted: in a liquid it is
    0, and of a molecule that keeps its direction C levels off above 0, and there is no such time.

    Parameters
    ----------
    atomgroup : AtomGroup
        The atoms: all of each molecule, or a part of it that is bonded and neutral. The topology
        must have charges and bonds; virtual sites need none, as in `paceline.transform.unwrap`.
    make_whole : bool
        Make molecules whole along their bonds; False saves time where they are, and needs no cell.
    fft : bool
        Compute by Fourier transforms; False by the sums of the definition.

    Attributes
    ----------
    results.timeseries : numpy.ndarray of float64, shape (n_frames,)
        C, (e Å)². Frames that were left out as damaged count in no pair; where there is no other
        pair, it is NaN.
    results.by_axis : numpy.ndarray of float64, shape (n_frames, 3)
        Parts of C along x, y and z, which add up to it, (e Å)².
    results.delta_t_values : numpy.ndarray of float64, shape (n_frames,)
        Times between frames, ps.
    results.integral : numpy.ndarray of float64, shape (n_frames,)
        Integral of C from 0 to each time, by trapezoids, over C(0), ps.
    results.relaxation_time : float
        The integral up to where C is not above 0 for the first time, ps; NaN if it is everywhere.
    results.relaxation_time_interval : float
        Half of the width of its 95 % interval, ps, by ten blocks of origins, of which each is left
        out once. NaN where C is above 0 for more than a fifth of the run.
    results.relaxation_time_converged : bool
        True if the run is 100 times as long as the relaxation time: below, the interval itself is
        hardly known.
    results.moments : numpy.ndarray of float64, shape (n_frames, 3)
        Dipole moment of each frame, e Å; NaN for a damaged frame that was left out.

    Raises
    ------
    SelectionError
        The group holds no atoms.
    UnsupportedError
        The group updates itself or holds an atom twice, the topology lacks charges or bonds, a
        molecule is not neutral, only parts of it are in the group that are not bonded, or frames
        are not at equal distances in time.
    ValueError
        In the run, as `AnalysisError`: a frame without a cell, in which molecules are made whole,
        positions that are not finite, or a bond that is longer than half the cell after that.

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
            "Autocorrelation of the dipole moment ((e Å)²) of whole neutral molecules against "
            "the time between frames, and its integral over its first value (ps): up to where it "
            "is not above 0, the relaxation time, in the lines above the table with its 95 % "
            "interval."
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
        """Parameters, for the record that is saved with the results."""
        return {**super().parameters(), "make_whole": self.make_whole, "fft": self.fft}

    def prepare(self) -> PerFrame:
        """Collect charges and bonds."""
        check_order(self)
        return self._moments(None)

    def next_stage(self, value: np.ndarray) -> OverParts:
        """Correlate the moments, axis by axis."""
        self._collected = value
        self._delta_t, self._gaps = check_times(self)
        return SeriesParts(value[:, :, np.newaxis], "product", [0], self._gaps, fft=self.fft)

    def finish(self, value: SeriesParts) -> None:
        """Add up the axes, and integrate."""
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
        """Integrate C over its first value, and find the relaxation time, or NaN."""
        with np.errstate(invalid="ignore"):  # a moment that is always 0 has no such time
            integral = running_integral(total / total[0], self._delta_t)
        ends = np.flatnonzero(total <= 0)
        return integral, float(integral[ends[0]]) if len(ends) and ends[0] > 0 else np.nan


class _Moments(PerFrame):
    """Compute rows of each frame, of whole molecules."""

    def __init__(self, rows: CoreRows, whole: CoreTransform | None):
        self._rows, self._whole = rows, whole

    def compute(self, block: Block) -> np.ndarray:
        rows = self._compute(block)
        # The kernel leaves out frames of nothing but NaN.
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
                "where molecules are whole"
            )
        whole: Any = SimpleNamespace(raw=(positions, None), cells=block.cells, frames=block.frames)
        return self._rows.compute(whole)


def __getattr__(name: str) -> object:
    return name_of_mdanalysis(__name__, name)
