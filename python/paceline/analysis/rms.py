"""RMSD and RMSF, with the parameters and results of MDAnalysis.analysis.rms."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, Self

import numpy as np

from paceline._util.arguments import whole_number
from paceline._util.option_values_and_selections import BEADS_OF_BACKBONE, TRACE
from paceline.analysis import name_of_mdanalysis
from paceline.analysis.base import AnalysisBase, table_in_time
from paceline.analysis.jackknife_intervals import WithParts, errors_of_run, in_parts
from paceline.analysis.kernels import CoreMoments, CoreRows, Moments
from paceline.analysis.results import Results
from paceline.analysis.table import Table, along_residues, telling_columns, title_of_band
from paceline.contract.analysis_declaration import REF, Declaration, Member, Option
from paceline.contract.analysis_kinds import PerFrame, Reduction
from paceline.contract.run_info_and_descriptions import describe_atoms, describe_selection
from paceline.contract.system_interface import Atoms, System, attribute_of, trajectory_name
from paceline.errors import SelectionError
from paceline.transform.apply_transforms import (
    first_positions,
    frames_until,
    reference_positions,
)
from paceline.transform.broken_reference import warn_of_broken_frame
from paceline.transform.compare_atom_names import other_order
from paceline.transform.selections_and_weights import (
    check_masses,
    choose_atoms,
    pair_of_groups,
    relative_weights,
)

if TYPE_CHECKING:
    import MDAnalysis.analysis.rms


class RMSD(AnalysisBase):
    r"""Root mean square deviation (RMSD) from a reference in each frame.

    $$\rho(t) = \sqrt{\frac{1}{N} \sum_{i=1}^N w_i
              \left|\mathbf{x}_i(t) - \mathbf{x}_i^\mathrm{ref}\right|^2}$$

    after the rotation and translation that minimise it (QCP: Theobald 2005, Acta Cryst. A61, 478;
    Liu, Agrafiotis & Theobald 2010, J. Comput. Chem. 31, 1561). The weights $w_i$ are relative to
    their mean. Molecules must be whole.

    Parameters
    ----------
    atomgroup : AtomGroup or Universe
        Atoms to superpose.
    reference : AtomGroup or Universe, optional
        Reference atoms; by default `atomgroup`, at `ref_frame`.
    select : str, (str, str), dict or None
        Selection for the superposition, applied to `atomgroup` and `reference`. A tuple (mobile,
        reference) or a dict with these keys contains two different selections. None uses the groups
        unchanged. Each selection may be a list, for atoms in a certain order.
    groupselections : list of str, tuple or dict, optional
        Further selections from the whole Universes. Each adds one column: the RMSD of its atoms
        after the superposition of `select`, without a superposition of its own.
    weights : None, "mass" or array of float, shape (n_selected,)
        Weights of the atoms of `select`; None and "mass" also apply to `groupselections`.
    weights_groupselections : False or list of None, "mass" or array of float
        Weights for each of `groupselections`.
    tol_mass : float
        Maximum difference of the masses of corresponding atoms, u.
    ref_frame : int
        Frame of the reference's trajectory. If this is also the analysed trajectory, the frame is
        transformed like all others.
    superposition : bool
        If False, positions are compared without superposition.

    Attributes
    ----------
    results.rmsd : numpy.ndarray of float64, shape (n_frames, 3 + n_groupselections)
        Frame number, time (ps), RMSD (Å), RMSD of each of `groupselections` (Å). In rows of damaged
        frames that were left out, all values but the frame number are NaN.

    Raises
    ------
    SelectionError
        The groups have different numbers of atoms or different masses, or no atoms.
    UnsupportedError
        A group is an UpdatingAtomGroup.
    TypeError, ValueError
        Weights have a wrong type or length.

    Examples
    --------
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import PSF, DCD
    >>> u = paceline.Universe(PSF, DCD)
    >>> rmsd = RMSD(u, select="name CA", groupselections=["resid 122-159"]).run(stop=3)
    >>> rmsd.results.rmsd[1:, 2:].round(2)
    array([[0.42, 0.73],
           [0.59, 1.01]])
    """

    declaration = Declaration(
        name="rmsd",
        summary="root mean square deviation from a reference structure",
        title="RMSD",
        description=(
            "RMSD (Å) of each frame from a reference after optimal superposition. Molecules must "
            "be whole (--unwrap)."
        ),
        section="structure.md#rmsd",
        select=TRACE,
        examples=(
            "adk.psf adk.dcd",
            'md.tpr md.xtc --select "backbone" -o rmsd.csv --plot rmsd.png',
            "-s md.tpr -f md.xtc -n index.ndx --select Core --group Loop -b 1000 -dt 10",
            "md.tpr md.xtc --select Backbone --group SideChain-H",
            'md.tpr "md.part*.xtc" --continuous --unwrap',
            "md.tpr md.xtc --ref crystal.pdb --begin 10ns --end 100ns --step 10",
        ),
        batteries=(
            Member("protein", {"select": "backbone"}, place=1),
            Member("coarse-grained protein", {"select": BEADS_OF_BACKBONE}, place=1),
            Member("nucleic acid", {"select": "nucleicbackbone"}, name="rmsd-nucleic", place=1),
            Member(
                "ligand",
                {"select": "backbone", "groupselections": ["{ligand}"]},
                name="ligand-rmsd",
                place=1,
            ),
        ),
        options=(
            REF,
            Option("mass", "weigh atoms by their masses", default=False),
            Option(
                "group",
                "further atoms: their RMSD after the same superposition; may be repeated",
                action="append",
                default=(),
                metavar="TEXT",
            ),
        ),
        counterpart="rms.RMSD",
    )

    needs_one_location = True

    needs_whole = needs_together = True

    def __init__(
        self,
        atomgroup: Atoms | System,
        reference: Atoms | System | None = None,
        select: str | Sequence[str] | Mapping[str, str | Sequence[str]] | None = "all",
        groupselections: Sequence[str | Sequence[str] | Mapping[str, str | Sequence[str]]]
        | None = None,
        weights: str | Sequence[float] | np.ndarray | None = None,
        weights_groupselections: Sequence[object] | Literal[False] = False,
        tol_mass: float = 0.1,
        ref_frame: int = 0,
        superposition: bool = True,
        verbose: bool = False,
    ):
        reference = atomgroup if reference is None else reference
        self.select = select
        self.ref_frame = whole_number("ref_frame", ref_frame)
        self.superposition = superposition
        mobile, fixed = pair_of_groups(select, atomgroup, reference, "select")
        self._pairs = [(mobile, fixed)] + [
            pair_of_groups(
                selection, atomgroup.universe, reference.universe, f"groupselections[{k}]"
            )
            for k, selection in enumerate(groupselections or ())
        ]
        advice = "; tol_mass sets the allowed difference"
        check_masses(*self._pairs[0], tol_mass, "select", advice)
        self.groupselections = list(groupselections or ())
        self.weights = weights
        self._weights = self._resolve_weights(weights, weights_groupselections)
        self.mobile_atoms, self.ref_atoms = self._pairs[0]
        super().__init__(self._pairs[0][0], verbose=verbose)
        for k, pair in enumerate(self._pairs):
            what = f"groupselections[{k - 1}]" if k else "select"
            self.remark(f"order of {what}", other_order(*pair, what))

    SHARED_RESULTS = ("rmsd",)

    @classmethod
    def from_mdanalysis(cls, theirs: "MDAnalysis.analysis.rms.RMSD") -> Self:
        """Make an analysis with the parameters of MDAnalysis's analysis."""
        return cls(
            theirs.mobile_atoms,
            theirs.ref_atoms,
            select=None,
            groupselections=theirs.groupselections,
            weights=theirs.weights,
            weights_groupselections=theirs.weights_groupselections,
            tol_mass=theirs.tol_mass,
            ref_frame=theirs.ref_frame,
        )

    def _resolve_weights(
        self, weights: object, of_groups: Sequence[object] | Literal[False]
    ) -> list[np.ndarray | None]:
        mobile, *groups = (mobile for mobile, _ in self._pairs)
        if of_groups is False:
            shared = weights if weights is None or isinstance(weights, str) else None
            of_groups = [shared] * len(groups)
        if len(of_groups) != len(groups):
            raise ValueError(
                f"expected weights for {len(groups)} groupselections, found {len(of_groups)}"
            )
        return [relative_weights(mobile, weights)] + [
            relative_weights(group, given) for group, given in zip(groups, of_groups, strict=True)
        ]

    @property
    def indices(self) -> np.ndarray:
        """Indices of the atoms of `select`, then of each of `groupselections`."""
        return np.concatenate([mobile.indices for mobile, _ in self._pairs])

    @property
    def frames_needed(self) -> int:
        """Minimum number of frames that the trajectory must have, so that `ref_frame` exists."""
        return frames_until(self.ref_atoms, self.ref_frame, self.atomgroup.universe)

    def parameters(self) -> dict[str, object]:
        """Return the parameters that are saved with the results."""
        return {
            "select": self.select,
            "atoms": describe_atoms(self.atomgroup),
            "groupselections": self.groupselections or "none",
            "weights": self.weights if isinstance(self.weights, str | None) else "given",
            "reference": trajectory_name(self._pairs[0][1].universe),
            "ref_frame": self.ref_frame,
            "superposition": self.superposition,
        }

    def prepare(self) -> PerFrame:
        """Make the worker part with a copy of the reference positions.

        This does not change the current frame of the reference's trajectory.
        """
        groups = []
        for (_, fixed), weights in zip(self._pairs, self._weights, strict=True):
            # Transform the reference frame like all others if it belongs to the same trajectory.
            same = fixed.universe is self.atomgroup.universe
            transforms = self.transforms if same else ()
            if not (same and (transforms or self.ref_frame in self.frames)):
                warn_of_broken_frame(fixed, self.ref_frame, "RMSD")
            positions = reference_positions(
                fixed, self.ref_frame, transforms, skip_damaged=self.skip_damaged
            )
            groups.append((positions.astype(np.float64), weights))
        return CoreRows("rmsd", groups, self.superposition)

    def finish(self, value: np.ndarray) -> None:
        """Store the RMSDs as results, after columns of frame numbers and times."""
        rmsd = np.column_stack([self.frames, self.times, value])
        legend = {"RMSD (Å)": describe_selection(self.select, self.atomgroup)}
        for k, selection in enumerate(self.groupselections, start=1):
            title = f"RMSD of {selection} (Å)"
            # Equal selections, which may differ in their weights, need different titles.
            legend[title if title not in legend else f"RMSD of group {k} (Å)"] = f"{selection}"
        columns = dict(zip(legend, value.T, strict=True))
        # Sentences name the RMSDs of `groupselections` first, because `select` is then only for the
        # superposition.
        table = table_in_time(self, columns, legend, "RMSD (Å)", headlines=[*legend][1:])
        self.results = Results(table=table, provenance=self.record(), rmsd=rmsd)


class RMSF(AnalysisBase):
    r"""Root mean square fluctuation (RMSF) of each atom about its mean position.

    $$\rho_i = \sqrt{\left\langle \left|\mathbf{x}_i
              - \langle\mathbf{x}_i\rangle\right|^2 \right\rangle}$$

    Molecules are not made whole. Without `align`, frames are not superposed, so the trajectory must
    be fitted before. Moments are merged pairwise (Chan, Golub & LeVeque 1983, Am. Stat. 37, 242).

    Parameters
    ----------
    atomgroup : AtomGroup or Universe
        Atoms whose RMSF is computed.
    align : bool or str
        Superpose each frame on the average structure, by the atoms of this selection (True: all
        atoms of `atomgroup`) with equal weights. The average structure is computed in a first pass,
        with frames superposed on the first analysed frame. The result equals
        `MDAnalysis.analysis.align.AverageStructure`, then `AlignTraj`, then `RMSF`.
    errors : bool
        Also compute 95 % intervals of all values, from parts of the run.

    Attributes
    ----------
    results.rmsf : numpy.ndarray of float64, shape (n_atoms,)
        RMSF in Å, in the order of the atoms; NaN if a position is NaN.
    results.residue_rmsf : numpy.ndarray of float64, shape (n_residues,)
        RMSF averaged over the atoms of each residue, Å.
    results.resindices : numpy.ndarray of int64, shape (n_residues,)
        Indices of these residues in the Universe, in increasing order.
    results.rmsf_interval : numpy.ndarray of float64, shape (n_atoms,)
        With `errors`: half the widths of the 95 % intervals of `rmsf`, Å. They do not include
        errors of the average structure that is used for the superposition. See
        `paceline.analysis.jackknife_intervals`.
    results.residue_rmsf_interval : numpy.ndarray of float64, shape (n_residues,)
        With `errors`: half the widths of the 95 % intervals of `residue_rmsf`, Å.
    mean : numpy.ndarray of float64, shape (n_atoms, 3)
        Mean positions, Å.
    sumsquares : numpy.ndarray of float64, shape (n_atoms, 3)
        Sums of squared deviations of positions from their means, Å².

    Raises
    ------
    SelectionError
        There are fewer than three atoms to superpose.
    TypeError
        `align` is neither a selection nor a bool.
    UnsupportedError
        A group is an UpdatingAtomGroup. In the run: intervals of so many atoms need too much
        memory.
    ValueError
        In the run, as `AnalysisError`: a position of the atoms to superpose is not finite.

    Examples
    --------
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import PSF, DCD
    >>> u = paceline.Universe(PSF, DCD)
    >>> RMSF(u.select_atoms("name CA")).run().results.rmsf[:3].round(2)
    array([1.28, 1.13, 0.96])
    >>> RMSF(u, align="name CA").run().results.residue_rmsf[:3].round(2)
    array([1.64, 1.02, 0.89])
    """

    declaration = Declaration(
        name="rmsf",
        summary="root mean square fluctuation of each atom",
        title="RMSF",
        description=(
            "RMSF (Å) of each atom about its mean position. Frames are superposed on the average "
            "structure, unless --no-align or --fit is used. Molecules must be whole (--unwrap)."
        ),
        section="structure.md#rmsf",
        select=TRACE,
        fits=True,
        examples=(
            "adk.psf adk.dcd",
            "md.tpr md.xtc --unwrap",
            "md.tpr md.xtc --unwrap --align backbone --select protein -o rmsf.csv",
            'md.tpr fitted.xtc --no-align --select "backbone" -o rmsf.tsv --plot rmsf.png',
            "md.tpr md.xtc --unwrap --select protein -o rmsf.pml",
            "md.tpr md.xtc --unwrap --errors -o rmsf.csv --plot rmsf.png",
        ),
        options=(
            Option(
                "align",
                "superpose each frame on the average structure, computed in a first pass, by "
                "these atoms [the atoms of --select]",
                nargs="?",
                metavar="TEXT",
                default=False,
                const=True,
            ),
            "errors",
        ),
        batteries=(
            Member("protein", {"select": "protein and name CA", "align": True}, place=2),
            Member("coarse-grained protein", {"select": BEADS_OF_BACKBONE, "align": True}, place=2),
            Member(
                "nucleic acid",
                {"select": "nucleic and name P", "align": True},
                name="rmsf-nucleic",
                place=2,
            ),
        ),
        counterpart="rms.RMSF",
        on_structure="RMSF of each atom",
    )

    needs_whole = needs_together = True
    SHARED_RESULTS = ("rmsf",)
    SHARED_ATTRIBUTES = ("mean", "sumsquares")

    def __init__(
        self,
        atomgroup: Atoms | System,
        *,
        align: bool | str = False,
        errors: bool = False,
        verbose: bool = False,
    ):
        super().__init__(atomgroup, verbose=verbose)
        self.errors = errors
        if not isinstance(align, bool | str):
            raise TypeError(f"align must be True, False or a selection, not {align!r}")
        self.align, self.needs_fit = align, not align
        self._fitted = None
        if align:
            self._fitted = self.atomgroup
            if isinstance(align, str):
                self._fitted = choose_atoms(self.atomgroup.universe, align, "align")
            if len(self._fitted) < 3:
                raise SelectionError(
                    f"align: {len(self._fitted)} atoms have no orientation; select three or "
                    "more, or leave positions unchanged (--no-align)"
                )
            self.stages = 2

    @classmethod
    def from_mdanalysis(cls, theirs: "MDAnalysis.analysis.rms.RMSF") -> Self:
        """Make an analysis with the parameters of MDAnalysis's analysis."""
        return cls(theirs.atomgroup)

    @property
    def indices(self) -> np.ndarray:
        """Indices of the atoms whose RMSF is computed.

        If `align` is a selection, the indices of the atoms to superpose come first.
        """
        if self._fitted is None or self.align is True:
            return self.atomgroup.indices
        return np.concatenate([self._fitted.indices, self.atomgroup.indices])

    def parameters(self) -> dict[str, object]:
        """Return the parameters that are saved with the results."""
        return {**super().parameters(), "align": self.align}

    @property
    def needs_all_frames(self) -> bool:  # type: ignore[override]
        """True with `errors`: intervals use parts of the run, which depend on `n_frames`."""
        return self.errors

    def prepare(self) -> Reduction:
        """Make the worker part of the first pass.

        With `align`, the pass superposes frames on the first analysed frame. Otherwise it is the
        only pass.
        """
        if self._fitted is None:
            return self._about_mean(CoreMoments())
        reference = first_positions(self._fitted, self.frames, self.transforms, self.skip_damaged)
        return CoreMoments(reference, moved=slice(len(self._fitted)), finite=True)

    def next_stage(self, value: Moments) -> Reduction:
        """Make the worker part of the second pass, with superposition on the mean positions."""
        mean = value[1]
        moved = slice(0 if self.align is True else len(mean), None)
        return self._about_mean(CoreMoments(mean, moved=moved))

    def _about_mean(self, part: CoreMoments) -> Reduction:
        """Return `part`; with `errors`, make it also store the moments of parts of the run."""
        if not self.errors:
            return part
        return in_parts(part, len(self.frames), 48 * len(self.atomgroup), self.name)

    def finish(self, value: Moments | WithParts[Moments]) -> None:
        """Compute fluctuations from the merged moments."""
        moments, parts = value if len(value) == 2 else (value, None)
        _, self.mean, self.sumsquares, _ = moments
        rmsf, of_residues = np.split(self._fluctuations(moments), [len(self.atomgroup)])
        method, half, of_residue, arrays = {}, None, None, {}
        if parts is not None:
            found = errors_of_run(self, CoreMoments(), (moments, parts), self._fluctuations)
            half, of_residue = np.split(found.interval, [len(self.atomgroup)])
            arrays = {"rmsf_interval": half, "residue_rmsf_interval": of_residue}
            method = {"intervals": found.method}
        self.results = Results(
            table=table_of_rmsf(self.atomgroup, rmsf, intervals=(half, of_residue)),
            provenance={**self.record(), **method},
            rmsf=rmsf,
            residue_rmsf=of_residues,
            resindices=np.unique(self.atomgroup.resindices),
            **arrays,
        ).with_values(self.on_first_frame("RMSF (Å)", self.atomgroup, rmsf))

    def _fluctuations(self, value: Moments) -> np.ndarray:
        """Compute the RMSF of all atoms, then of all residues, Å."""
        count, _, squares, _ = value
        rmsf = np.full(len(squares), np.nan)
        if count:
            rmsf = np.sqrt(squares.sum(axis=1) / count)
        return np.concatenate([rmsf, _means_of_residues(self.atomgroup, rmsf)[0]])


def _means_of_residues(atoms: Atoms, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Average values over the atoms of each residue; return the means and the numbers of atoms."""
    _, rows, n_atoms = np.unique(atoms.resindices, return_inverse=True, return_counts=True)
    return np.bincount(rows, weights=values) / n_atoms, n_atoms


def table_of_rmsf(
    atoms: Atoms,
    rmsf: np.ndarray,
    columns: Mapping[str, np.ndarray] | None = None,
    intervals: tuple[np.ndarray | None, np.ndarray | None] = (None, None),
) -> Table:
    """Make a table with the RMSF of each atom and further `columns`, and a figure along residues.

    `intervals` are half the widths of 95 % intervals, of atoms and of residues, Å.
    """
    attributes = {"resid": "resids", "resname": "resnames", "name": "names"}
    known = {title: attribute_of(atoms, name) for title, name in attributes.items()}
    of_atoms = {title: values for title, values in known.items() if values is not None}
    residues = atoms.residues
    places = np.searchsorted(residues.resindices, atoms.resindices)
    of_atoms |= telling_columns(residues, {"": places})
    title = "RMSF (Å)"
    of_residues, n_atoms = _means_of_residues(atoms, rmsf)
    label = title if n_atoms.max() == 1 else "RMSF, mean of atoms (Å)"
    half, of_residue = intervals
    bands = None if of_residue is None else {title: of_residue}
    drawn = along_residues(atoms.residues, {title: of_residues}, label, bands)
    columns = {"atom index": atoms.indices, **of_atoms, **(columns or {}), title: rmsf}
    if half is None:
        return Table(columns, "atom index", {title: "RMSF"}, title, drawn)
    band = title_of_band(title)
    legend = {title: "RMSF and 95 % interval"}
    return Table({**columns, band: half}, "atom index", legend, title, drawn, bands={title: band})


def __getattr__(name: str) -> object:
    return name_of_mdanalysis(__name__, name)
