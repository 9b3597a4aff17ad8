"""Superposed trajectories and average structures, as in MDAnalysis.analysis.align."""

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, Unpack

import numpy as np

from paceline._util.arguments import whole_number
from paceline._util.option_values_and_selections import SOLUTE, TRACE
from paceline.analysis import name_of_mdanalysis
from paceline.analysis.base import AnalysisBase, backend_of_mdanalysis, table_in_time
from paceline.analysis.kernels import CoreMoments, CoreRows, Moments
from paceline.analysis.results import Results
from paceline.analysis.rms import table_of_rmsf
from paceline.analysis.structure_writer import write_structures
from paceline.analysis.values_on_structure import StructureValues
from paceline.contract.analysis_declaration import MASS, REF, Declaration
from paceline.contract.analysis_kinds import PerFrame, Reduction
from paceline.contract.run_info_and_descriptions import describe_atoms, describe_selection
from paceline.contract.system_interface import Atoms, System, trajectory_name
from paceline.errors import SelectionError, UnsupportedError
from paceline.runner import FurtherOptions, run
from paceline.transform.apply_transforms import (
    check_positions,
    frames_until,
    reference_positions,
)
from paceline.transform.broken_reference import warn_of_broken_frame
from paceline.transform.compare_atom_names import other_order
from paceline.transform.selections_and_weights import (
    check_masses,
    choose_atoms,
    pair_of_groups,
    pair_of_selections,
    relative_weights,
)
from paceline.transform.superpose import fit

if TYPE_CHECKING:
    import MDAnalysis.analysis.align


class AlignTraj(AnalysisBase):
    """Superpose each frame on a reference structure, and write the trajectory.

    All atoms of a frame move as a rigid body such that the RMSD of the selected atoms is minimal
    (QCP: Theobald 2005, Acta Cryst. A61, 478; Liu, Agrafiotis & Theobald 2010, J. Comput. Chem. 31,
    1561). Molecules must be whole. The analysis is equivalent to `paceline.Write` with
    `paceline.transform.fit`, and its `run` accepts the options of `paceline.Write`. It cannot run
    together with other analyses in `paceline.run`.

    Parameters
    ----------
    mobile : AtomGroup or Universe
        Atoms to write.
    reference : AtomGroup or Universe
        Reference atoms, at the current frame of their trajectory.
    select : str, (str, str) or dict
        Selection for the superposition, applied to `mobile` and `reference`. A tuple (mobile,
        reference) or a dict with these keys contains two different selections.
    filename : path-like, optional
        Trajectory to write, in a format of `paceline.Write`. By default the name is `prefix`
        followed by the name of the trajectory, in the current folder.
    prefix : str
        Beginning of the default filename.
    weights : None, "mass" or array of float, shape (n_selected,)
        Weights in the superposition; "mass" uses the masses of the reference.
    tol_mass : float
        Maximum difference of the masses of corresponding atoms, u.
    match_atoms, strict : bool
        How corresponding atoms are found if the selections differ; see
        `MDAnalysis.analysis.align.get_matching_atoms`.
    force : bool
        If False, an existing file is an error.
    in_memory : bool
        Move the atoms of a trajectory in memory instead of writing a file. This is done by
        MDAnalysis's class in this process, without workers.
    writer_kwargs : mapping, optional
        Options of `paceline.Write`; the precision of an XTC file is in decimals of nm.

    Attributes
    ----------
    results.rmsd : numpy.ndarray of float64, shape (n_frames,)
        RMSD after the superposition, Å. NaN for damaged frames, which are not written.
    filename : str or None
        Name of the file.

    Raises
    ------
    FileExistsError
        The file exists, and `force` is False.
    SelectionError
        Selections do not correspond, or are empty.
    UnsupportedError
        A group is an UpdatingAtomGroup, or a format or an option is not supported.

    Examples
    --------
    >>> import tempfile
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import PSF, DCD
    >>> u = paceline.Universe(PSF, DCD)
    >>> path = os.path.join(tempfile.mkdtemp(), "fitted.xtc")
    >>> AlignTraj(u, u, select="name CA", filename=path).run(stop=3).results.rmsd[1:].round(2)
    array([0.42, 0.59])
    >>> paceline.Universe(PSF, path).trajectory.n_frames
    3
    """

    declaration = Declaration(
        name="align",
        summary="superpose all frames on a reference, and write the trajectory",
        description=(
            "Move all atoms of each frame such that the RMSD of the selected atoms from the "
            "reference is minimal, and write the trajectory, in any format of 'paceline "
            "convert'. Molecules must be whole (--unwrap)."
        ),
        section="structure.md#superposed-trajectories",
        select=TRACE,
        examples=(
            "adk.psf adk.dcd -o fitted.xtc",
            "md.tpr md.xtc --unwrap --select backbone --ref crystal.pdb -o fitted.dcd",
            "md.tpr md.xtc --unwrap --mass -o fitted.xtc --rmsd rmsd.csv --plot rmsd.png",
        ),
        options=(REF, MASS),
        counterpart="align.AlignTraj",
        in_batteries=False,
    )

    needs_whole = needs_together = True
    SHARED_RESULTS = ("rmsd",)

    def __init__(
        self,
        mobile: Atoms | System,
        reference: Atoms | System,
        select: str | Sequence[str] | Mapping[str, str | Sequence[str]] | None = "all",
        filename: str | os.PathLike | None = None,
        prefix: str = "rmsfit_",
        weights: str | Sequence[float] | np.ndarray | None = None,
        tol_mass: float = 0.1,
        match_atoms: bool = True,
        strict: bool = False,
        force: bool = True,
        in_memory: bool = False,
        writer_kwargs: Mapping[str, Any] | None = None,
        verbose: bool = False,
    ):
        from MDAnalysis.analysis import align
        from MDAnalysis.coordinates.memory import MemoryReader

        from paceline.analysis.convert import Write

        super().__init__(mobile, verbose=verbose)
        trajectory = mobile.universe.trajectory
        self.mobile, self.select, self.weights = self.atomgroup, select, weights
        self._theirs = None
        if in_memory or isinstance(trajectory, MemoryReader):
            self._theirs = align.AlignTraj(
                *(mobile, reference, select, None, prefix, weights, tol_mass, match_atoms),
                *(strict, force, in_memory, writer_kwargs),
            )
            self.filename = None
            return
        of_mobile, of_reference = pair_of_selections(select, "select")
        chosen = (
            choose_atoms(reference, of_reference, "select", least=0),
            choose_atoms(mobile, of_mobile, "select"),
        )
        try:
            self.ref_atoms, self.mobile_atoms = align.get_matching_atoms(
                *chosen, tol_mass=tol_mass, strict=strict, match_atoms=match_atoms
            )
        except align.SelectionError as error:
            raise SelectionError(f"select: {error}") from None
        self._weights = relative_weights(self.ref_atoms, weights)
        self._fit = fit(
            self.mobile_atoms,
            self.ref_atoms,
            weights=self._weights,
            tol_mass=tol_mass if match_atoms else np.inf,
        )
        if (message := other_order(self.mobile_atoms, self.ref_atoms, "select")) is not None:
            self.remarks = {"order": message}  # without a warning, because `fit` has issued it
        name = prefix + os.path.basename(trajectory.filename) if filename is None else filename
        self.filename = os.fspath(name)
        options = dict(writer_kwargs or {})
        if "precision" in options and self.filename.lower().endswith(".xtc"):
            options["precision"] = 10.0 ** options["precision"]
        try:
            self._write = Write(self.mobile, name, overwrite=force, **options)
        except TypeError as error:
            raise UnsupportedError(f"writer_kwargs are for paceline.Write: {error}") from error

    @property
    def indices(self) -> np.ndarray:
        """Indices of the atoms that are superposed."""
        return self.mobile_atoms.indices

    def parameters(self) -> dict[str, object]:
        """Return the parameters that are saved with the results."""
        return {
            **super().parameters(),
            "select": self.select,
            "file": self.filename,
            "weights": self.weights if isinstance(self.weights, str | None) else "given",
            "reference": trajectory_name(self.ref_atoms.universe),
        }

    def run(
        self,
        start: int | None = None,
        stop: int | None = None,
        step: int | None = None,
        frames: Sequence[int] | np.ndarray | None = None,
        verbose: bool | None = None,
        n_workers: int | None = None,
        n_parts: int | None = None,
        backend: object = None,
        *,
        unsupported_backend: bool = False,
        progressbar_kwargs: Mapping[str, object] | None = None,
        **options: Unpack[FurtherOptions],
    ) -> Self:
        """Superpose and write each frame; other arguments are those of `AnalysisBase.run`."""
        self._set_frame_bounds(start, stop, step, frames)
        if self._theirs is not None:
            self._theirs.run(start=start, stop=stop, step=step, frames=frames)
            self.frames, self.times = self._theirs.frames, self._theirs.times
            self.results = Results(rmsd=self._theirs.results.rmsd)
            return self
        backend, n_workers = backend_of_mdanalysis(backend, n_workers)
        options.setdefault("progress", True if verbose is None and self._verbose else verbose)
        options["transforms"] = [*options.get("transforms", ()), self._fit]
        analyses: list[AnalysisBase] = [self, self._write]
        run(
            analyses,
            start=start,
            stop=stop,
            step=step,
            frames=frames,
            n_workers=n_workers,
            backend=backend,
            **options,
        )
        return self

    def prepare(self) -> PerFrame:
        """Make the worker part with a copy of the reference positions at their current frame."""
        if not any(one is self._fit for one in self.transforms):
            raise UnsupportedError("AlignTraj moves atoms only in its own run(): call that method")
        check_positions(self.ref_atoms.universe.trajectory, "a reference")
        positions = self.ref_atoms.positions
        if self.ref_atoms.universe is self.atomgroup.universe:
            frame = self.ref_atoms.universe.trajectory.ts.frame
            positions = reference_positions(
                self.ref_atoms, frame, self.transforms, skip_damaged=self.skip_damaged
            )
        group = positions.astype(np.float64), self._weights
        return CoreRows("rmsd", [group], True)

    def finish(self, value: np.ndarray) -> None:
        """Store the RMSDs, with frame numbers and times, as results."""
        rmsd = value[:, 0]
        label = "RMSD (Å)"
        legend = {label: describe_selection(self.select, self.atomgroup)}
        table = table_in_time(self, {label: rmsd}, legend, label)
        self.results = Results(table=table, provenance=self.record(), rmsd=rmsd)


class AverageStructure(AnalysisBase):
    r"""Mean positions of atoms after superposition of each frame on a reference structure.

    $$\bar{\mathbf{x}}_i = \left\langle \mathsf{R}(t)
              \left(\mathbf{x}_i(t) - \mathbf{c}(t)\right)
              + \mathbf{c}^\mathrm{ref} \right\rangle$$

    with the rotation of minimal RMSD (QCP: Theobald 2005, Acta Cryst. A61, 478; Liu, Agrafiotis &
    Theobald 2010, J. Comput. Chem. 31, 1561) about the weighted centres. Molecules must be whole.

    Parameters
    ----------
    mobile : AtomGroup or Universe
        Atoms to superpose.
    reference : AtomGroup or Universe, optional
        Reference atoms; by default `mobile`, at `ref_frame`.
    select : str, (str, str), dict or None
        Selection for the superposition and the mean, as for `paceline.analysis.rms.RMSD`.
    filename : path-like, optional
        File of one frame for the mean positions, in any format that MDAnalysis writes.
    weights : None, "mass" or array of float, shape (n_atoms,)
        Weights in the superposition; "mass" uses the masses of the reference.
    tol_mass : float
        Maximum difference of the masses of corresponding atoms, u.
    match_atoms : bool
        If False, masses may differ.
    strict : bool
        Accepted for compatibility with MDAnalysis, and ignored: groups with different numbers of
        atoms are always an error.
    force : bool
        If False, an existing `filename` is an error.
    in_memory : bool
        Must be False, because positions in memory are not changed.
    ref_frame : int
        Frame of the reference's trajectory. If this is also the analysed trajectory, the frame is
        transformed like all others.

    Attributes
    ----------
    results.universe : MDAnalysis.Universe
        Universe with only the averaged atoms, at their mean positions.
    results.positions : numpy.ndarray of float64, shape (n_atoms, 3)
        Mean positions, Å.
    results.rmsd : float
        RMSD from the reference, averaged over frames, Å.
    results.rmsf : numpy.ndarray of float64, shape (n_atoms,)
        RMSF about the mean positions, Å, after superposition on the reference.

    Raises
    ------
    FileExistsError
        `filename` exists, and `force` is False.
    SelectionError
        The groups have different numbers of atoms or different masses, or no atoms.
    UnsupportedError
        A group is an UpdatingAtomGroup, or `in_memory` is True.
    TypeError, ValueError
        Weights have a wrong type or length.

    Examples
    --------
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import PSF, DCD
    >>> u = paceline.Universe(PSF, DCD)
    >>> average = AverageStructure(u, select="name CA").run()
    >>> average.results.positions[0].round(2), round(average.results.rmsd, 2)
    (array([13.09,  7.31, -7.99]), 4.38)
    """

    declaration = Declaration(
        name="average",
        summary="average structure",
        description=(
            "Mean positions (Å) of atoms after superposition of all frames on a reference, and the "
            "RMSF about these positions; -o FILE.pdb or FILE.gro writes the structure, PDB with "
            "the RMSF as B-factors. Molecules must be whole (--unwrap)."
        ),
        section="structure.md#average-structure",
        select=SOLUTE,
        examples=(
            "adk.psf adk.dcd -o average.pdb --plot rmsf.png",
            "md.tpr md.xtc --unwrap --select backbone --ref crystal.pdb --mass -o average.gro",
        ),
        options=(
            REF,
            MASS,
        ),
        counterpart="align.AverageStructure",
        files=(
            ".pdb",
            ".gro",
            ".crd",
            ".xyz",
        ),
        on_structure="RMSF of each atom",
    )

    needs_whole = needs_together = True
    SHARED_RESULTS = ("universe", "positions", "rmsd")
    #: Writer of the MDAnalysis analysis from which `from_mdanalysis` made this one.
    _writer: Any = None
    #: Universe in the results of the MDAnalysis analysis that `from_mdanalysis` converted.
    _universe: "MDAnalysis.Universe | None" = None

    def __init__(
        self,
        mobile: Atoms | System,
        reference: Atoms | System | None = None,
        select: str | Sequence[str] | Mapping[str, str | Sequence[str]] | None = "all",
        filename: str | os.PathLike | None = None,
        weights: str | Sequence[float] | np.ndarray | None = None,
        tol_mass: float = 0.1,
        match_atoms: bool = True,
        strict: bool = False,
        force: bool = True,
        in_memory: bool = False,
        ref_frame: int = 0,
        verbose: bool = False,
    ):
        if in_memory:
            raise UnsupportedError(
                "in_memory=True would change the positions in memory: omit it, "
                "or use MDAnalysis's own class"
            )
        if filename is not None and not force and os.path.exists(filename):
            raise FileExistsError(f"{os.fspath(filename)} exists; force=True replaces it")
        self.reference = mobile if reference is None else reference
        self.select, self.filename = select, filename
        self.ref_frame = whole_number("ref_frame", ref_frame)
        self.mobile_atoms, self.ref_atoms = pair_of_groups(select, mobile, self.reference, "select")
        if match_atoms:
            advice = "; tol_mass sets the allowed difference, match_atoms=False allows any masses"
            check_masses(self.mobile_atoms, self.ref_atoms, tol_mass, "select", advice)
        self.mobile = mobile.atoms
        self.weights = weights
        self._weights = relative_weights(self.ref_atoms, weights)
        super().__init__(self.mobile_atoms, verbose=verbose)
        self.remark("order", other_order(self.mobile_atoms, self.ref_atoms, "select"))

    @classmethod
    def from_mdanalysis(cls, theirs: "MDAnalysis.analysis.align.AverageStructure") -> Self:
        """Make an analysis with the parameters of MDAnalysis's analysis."""
        ours = cls(
            theirs.mobile_atoms,
            theirs.ref_atoms,
            select=None,
            weights=theirs._weights,
            match_atoms=False,  # MDAnalysis has checked the atoms
            ref_frame=theirs.ref_frame,
        )
        ours._writer, ours._universe = theirs._writer, theirs.results.universe
        return ours

    @property
    def outputs(self) -> tuple[str, ...]:
        """Name of the file with the average structure."""
        return () if self.filename is None else (os.fspath(self.filename),)

    @property
    def frames_needed(self) -> int:
        """Minimum number of frames of the trajectory, such that `ref_frame` exists."""
        return frames_until(self.ref_atoms, self.ref_frame, self.atomgroup.universe)

    def parameters(self) -> dict[str, object]:
        """Return the parameters that are saved with the results."""
        return {
            "select": self.select,
            "atoms": describe_atoms(self.atomgroup),
            "weights": self.weights if isinstance(self.weights, str | None) else "given",
            "reference": trajectory_name(self.ref_atoms.universe),
            "ref_frame": self.ref_frame,
        }

    def prepare(self) -> Reduction:
        """Make the worker part with a copy of the reference positions.

        The current frame of the reference's trajectory does not change.
        """
        # Transform the reference frame like all others if it belongs to the same trajectory.
        same = self.ref_atoms.universe is self.atomgroup.universe
        transforms = self.transforms if same else ()
        if not (same and (transforms or self.ref_frame in self.frames)):
            warn_of_broken_frame(self.ref_atoms, self.ref_frame, "AverageStructure")
        positions = reference_positions(
            self.ref_atoms, self.ref_frame, transforms, skip_damaged=self.skip_damaged
        )
        return CoreMoments(positions.astype(np.float64), self._weights)

    def finish(self, value: Moments) -> None:
        """Store the means and RMSFs as results; write the mean structure if a file is requested."""
        from MDAnalysis import Merge, Writer

        count, positions, squares, rmsd = value
        if count == 0:
            raise ValueError("no frame is left to average: all frames are damaged")
        universe = self._universe or Merge(self.mobile_atoms)
        universe.load_new(positions[np.newaxis])
        rmsf = np.sqrt(squares.sum(axis=1) / count)
        coordinates = dict(zip(("x (Å)", "y (Å)", "z (Å)"), positions.T, strict=True))
        self.results = StructureResults(
            table=table_of_rmsf(self.mobile_atoms, rmsf, coordinates),
            provenance=self.record(),
            universe=universe,
            positions=positions,
            rmsd=rmsd / count,
            rmsf=rmsf,
        ).with_values(StructureValues("RMSF (Å)", self.mobile_atoms, rmsf, lambda: positions))
        writer = self._writer
        if self.filename is not None:
            writer = Writer(os.fspath(self.filename), len(positions))
        if writer is not None:
            with writer:
                writer.write(universe.atoms)


class StructureResults(Results):
    """Results with an average structure, which can be saved as a file of one frame."""

    FILES = (".gro", ".crd", ".xyz")

    def write_file(self, path: str, name: str) -> None:
        """Write the atoms at their mean positions."""
        write_structures(self.universe, path, named=name)


def __getattr__(name: str) -> object:
    return name_of_mdanalysis(__name__, name)
