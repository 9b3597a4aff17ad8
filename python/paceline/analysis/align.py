"""Superposed trajectories and average structures, with the calls of MDAnalysis.analysis.align."""

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, Unpack

import numpy as np

from paceline._util.arguments import whole_number
from paceline._util.choices import SOLUTE, TRACE
from paceline.analysis import name_of_mdanalysis
from paceline.analysis.base import AnalysisBase, backend_of_mdanalysis, table_in_time
from paceline.analysis.kernels import CoreMoments, CoreRows, Moments
from paceline.analysis.results import Results
from paceline.analysis.rms import table_of_rmsf
from paceline.analysis.structures import write_structures
from paceline.analysis.values_on_structure import StructureValues
from paceline.contract.atoms import Atoms, System
from paceline.contract.declaration import MASS, REF, Declaration
from paceline.contract.kinds import PerFrame, Reduction
from paceline.contract.run_info import describe_atoms
from paceline.errors import SelectionError, UnsupportedError
from paceline.runner import FurtherOptions, run
from paceline.transform.apply_transforms import reference_positions
from paceline.transform.atom_choice import (
    check_masses,
    check_positions,
    choose_atoms,
    pair_of_groups,
    pair_of_selections,
    relative_weights,
)
from paceline.transform.broken_reference import warn_of_broken_frame
from paceline.transform.matching import other_order
from paceline.transform.superpose import fit

if TYPE_CHECKING:
    import MDAnalysis.analysis.align


class AlignTraj(AnalysisBase):
    """Superpose each frame on a reference, and write the trajectory.

    All atoms of each frame move as a rigid body, so that the RMSD of those of `select` is the least
    (QCP: Theobald 2005, Acta Cryst. A61, 478; Liu, Agrafiotis & Theobald 2010, J. Comput. Chem. 31,
    1561). Molecules must be whole. It is `paceline.Write` with `paceline.transform.fit`, whose
    options its own `run` takes; it does not run beside others in `paceline.run`.

    Parameters
    ----------
    mobile : AtomGroup or Universe
        Atoms to be written.
    reference : AtomGroup or Universe
        Atoms to superpose them on, where they are now: at the current frame.
    select : str, (str, str) or dict
        Selection to be superposed, applied to `mobile` and `reference`; two of them as a tuple
        (mobile, reference) or a dict with these keys.
    filename : path-like, optional
        Trajectory to write, in a format of `paceline.Write`; by default `prefix` and the name of
        the trajectory, in the current folder.
    prefix : str
        Beginning of that name.
    weights : None, "mass" or array of float, shape (n_selected,)
        Weights in the superposition; masses are those of the reference.
    tol_mass : float
        Corresponding atoms may differ in mass by this much, u.
    match_atoms, strict : bool
        How to find corresponding atoms where the selections differ, as
        `MDAnalysis.analysis.align.get_matching_atoms` does.
    force : bool
        False refuses a file that exists.
    in_memory : bool
        Move the atoms in memory instead, by MDAnalysis's own class, in this process; so it is for a
        trajectory that is in memory.
    writer_kwargs : mapping, optional
        Options of `paceline.Write`; the precision of an XTC file is in decimals of nm.

    Attributes
    ----------
    results.rmsd : numpy.ndarray of float64, shape (n_frames,)
        RMSD after the superposition, Å. NaN for damaged frames, which are not written.
    filename : str or None
        The file.

    Raises
    ------
    FileExistsError
        The file exists, and `force` is False.
    SelectionError
        Selections do not correspond, or are empty.
    UnsupportedError
        A group updates itself, or a format or option that is not written.

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
            "Move all atoms of each frame so that the RMSD of the selected ones from the "
            "reference is the least, and write the trajectory, in any format of 'paceline "
            "convert'. Molecules must be whole: --unwrap makes them so."
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
            self.remarks = {"order": message}  # of which `fit` warns
        name = prefix + os.path.basename(trajectory.filename) if filename is None else filename
        self.filename = os.fspath(name)
        options = dict(writer_kwargs or {})
        if "precision" in options and self.filename.lower().endswith(".xtc"):
            options["precision"] = 10.0 ** options["precision"]
        try:
            self._write = Write(self.mobile, name, overwrite=force, **options)
        except TypeError as error:
            raise UnsupportedError(f"writer_kwargs are those of paceline.Write: {error}") from error

    @property
    def indices(self) -> np.ndarray:
        """Atoms that are superposed."""
        return self.mobile_atoms.indices

    def parameters(self) -> dict[str, object]:
        """Parameters, for the record that is saved with the results."""
        return {
            **super().parameters(),
            "select": self.select,
            "file": self.filename,
            "weights": self.weights if isinstance(self.weights, str | None) else "given",
            "reference": f"{self.ref_atoms.universe.trajectory.filename}",
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
        """Superpose and write, after the transformations; others are as for `AnalysisBase.run`."""
        self._keep_bounds(start, stop, step, frames)
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
        """Fetch the reference positions, where they are now."""
        if not any(one is self._fit for one in self.transforms):
            raise UnsupportedError("AlignTraj moves atoms in its own run(): call that")
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
        """Put frame numbers and times beside the deviations."""
        rmsd = value[:, 0]
        label = "RMSD (Å)"
        table = table_in_time(self, {label: rmsd}, {label: f"{self.select}"}, label)
        self.results = Results(table=table, provenance=self.record(), rmsd=rmsd)


class AverageStructure(AnalysisBase):
    r"""Average of the positions of atoms, each frame superposed on a reference.

    $$\bar{\mathbf{x}}_i = \left\langle \mathsf{R}(t)
              \left(\mathbf{x}_i(t) - \mathbf{c}(t)\right)
              + \mathbf{c}^\mathrm{ref} \right\rangle$$

    with the rotation of the least RMSD (QCP: Theobald 2005, Acta Cryst. A61, 478; Liu, Agrafiotis &
    Theobald 2010, J. Comput. Chem. 31, 1561) about the weighted centres. Molecules must be whole.

    Parameters
    ----------
    mobile : AtomGroup or Universe
        Atoms that move.
    reference : AtomGroup or Universe, optional
        Atoms to superpose them on; by default `mobile`, at `ref_frame`.
    select : str, (str, str), dict or None
        Selection to be superposed and averaged, as for `paceline.analysis.rms.RMSD`.
    filename : path-like, optional
        File of one frame to write the average to, in any format that MDAnalysis writes.
    weights : None, "mass" or array of float, shape (n_atoms,)
        Weights in the superposition; masses are those of the reference.
    tol_mass : float
        Corresponding atoms may differ in mass by this much, u.
    match_atoms : bool
        False allows any masses.
    strict : bool
        Taken from calls that were written for MDAnalysis, and not needed: groups of other numbers
        of atoms are always refused.
    force : bool
        False refuses a `filename` that exists.
    in_memory : bool
        Must be False: positions in memory are not changed.
    ref_frame : int
        Frame of the reference's trajectory. If that is the one that is analysed, the frame is
        transformed as all others are.

    Attributes
    ----------
    results.universe : MDAnalysis.Universe
        The atoms alone, at their average positions.
    results.positions : numpy.ndarray of float64, shape (n_atoms, 3)
        Average positions, Å.
    results.rmsd : float
        Mean over frames of the RMSD from the reference, Å.
    results.rmsf : numpy.ndarray of float64, shape (n_atoms,)
        RMSF about the average, of frames superposed on the reference, Å.

    Raises
    ------
    FileExistsError
        `filename` exists, and `force` is False.
    SelectionError
        The groups do not have the same number of atoms, none at all, or other masses.
    UnsupportedError
        A group updates itself, or `in_memory`.
    TypeError, ValueError
        Weights that are not of the right type or length.

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
            "Mean positions (Å) of atoms, of frames superposed on a reference, and RMSF about "
            "them; -o FILE.pdb or FILE.gro writes the structure, PDB with RMSF as B-factors. "
            "Molecules must be whole: "
            "--unwrap makes them so."
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
    #: MDAnalysis's writer of the file and Universe of the atoms, where it has made them.
    _writer: Any = None
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
                "in_memory=True would change the positions in memory: leave it out, "
                "or take MDAnalysis's own class"
            )
        if filename is not None and not force and os.path.exists(filename):
            raise FileExistsError(f"{os.fspath(filename)} exists; force=True replaces it")
        self.reference = mobile if reference is None else reference
        self.select, self.filename = select, filename
        self.ref_frame = whole_number("ref_frame", ref_frame)
        self.mobile_atoms, self.ref_atoms = pair_of_groups(select, mobile, self.reference, "select")
        if match_atoms:
            advice = "; tol_mass allows more, match_atoms=False any"
            check_masses(self.mobile_atoms, self.ref_atoms, tol_mass, "select", advice)
        self.mobile = mobile.atoms
        self.weights = weights
        self._weights = relative_weights(self.ref_atoms, weights)
        super().__init__(self.mobile_atoms, verbose=verbose)
        self.remark("order", other_order(self.mobile_atoms, self.ref_atoms, "select"))

    @classmethod
    def like(cls, theirs: "MDAnalysis.analysis.align.AverageStructure") -> Self:
        """Make one with the parameters of MDAnalysis's."""
        ours = cls(
            theirs.mobile_atoms,
            theirs.ref_atoms,
            select=None,
            weights=theirs._weights,
            match_atoms=False,  # it has checked them
            ref_frame=theirs.ref_frame,
        )
        ours._writer, ours._universe = theirs._writer, theirs.results.universe
        return ours

    @property
    def outputs(self) -> tuple[str, ...]:
        """The file of the average structure."""
        return () if self.filename is None else (os.fspath(self.filename),)

    def parameters(self) -> dict[str, object]:
        """Parameters, for the record that is saved with the results."""
        return {
            "select": self.select,
            "atoms": describe_atoms(self.atomgroup),
            "weights": self.weights if isinstance(self.weights, str | None) else "given",
            "reference": f"{self.ref_atoms.universe.trajectory.filename}",
            "ref_frame": self.ref_frame,
        }

    def prepare(self) -> Reduction:
        """Fetch the reference positions; the reference's trajectory stays where it is."""
        # A frame of the same trajectory is transformed as all others are.
        same = self.ref_atoms.universe is self.atomgroup.universe
        transforms = self.transforms if same else ()
        if not (same and (transforms or self.ref_frame in self.frames)):
            warn_of_broken_frame(self.ref_atoms, self.ref_frame, "AverageStructure")
        positions = reference_positions(
            self.ref_atoms, self.ref_frame, transforms, skip_damaged=self.skip_damaged
        )
        return CoreMoments(positions.astype(np.float64), self._weights)

    def finish(self, value: Moments) -> None:
        """Make a Universe of the mean positions, and write it."""
        from MDAnalysis import Merge, Writer

        count, positions, squares, rmsd = value
        if count == 0:
            raise ValueError("no frame is left to average: all are damaged")
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
    """An average structure, which is also saved as a file of one frame."""

    FILES = (".gro", ".crd", ".xyz")

    def write_file(self, path: str, name: str) -> None:
        """Write the atoms at their average positions."""
        write_structures(self.universe, path, named=name)


def __getattr__(name: str) -> object:
    return name_of_mdanalysis(__name__, name)
