"""Average structure, with the parameters and results of MDAnalysis.analysis.align."""

import os
from typing import Any, Self

import numpy as np

from paceline.analysis import name_of_mdanalysis
from paceline.analysis.base import AnalysisBase, describe_atoms
from paceline.analysis.interfaces import Reduction
from paceline.analysis.kernels import CoreMoments, MomentSums
from paceline.analysis.results import Results
from paceline.errors import UnsupportedError
from paceline.transform.base import (
    check_masses,
    pair_of_groups,
    reference_positions,
    relative_weights,
)


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
    verbose : bool
        Show progress.

    Attributes
    ----------
    results.universe : MDAnalysis.Universe
        The atoms alone, at their average positions.
    results.positions : numpy.ndarray of float64, shape (n_atoms, 3)
        Average positions, Å.
    results.rmsd : float
        Mean over frames of the RMSD from the reference, Å.

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

    SHARED_RESULTS = ("universe", "positions", "rmsd")
    #: MDAnalysis's writer of the file and Universe of the atoms, where it has made them.
    _writer: Any = None
    _universe: Any = None

    def __init__(
        self,
        mobile: Any,
        reference: Any = None,
        select: Any = "all",
        filename: str | os.PathLike | None = None,
        weights: Any = None,
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
        self.select, self.filename, self.ref_frame = select, filename, ref_frame
        self.mobile_atoms, self.ref_atoms = pair_of_groups(select, mobile, self.reference, "select")
        if match_atoms:
            advice = "; tol_mass allows more, match_atoms=False any"
            check_masses(self.mobile_atoms, self.ref_atoms, tol_mass, "select", advice)
        self.mobile = mobile.atoms
        self.weights = weights
        self._weights = relative_weights(self.ref_atoms, weights)
        super().__init__(self.mobile_atoms, verbose=verbose)

    @classmethod
    def like(cls, theirs: Any) -> Self:
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

    def parameters(self) -> dict[str, Any]:
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
        positions = reference_positions(self.ref_atoms, self.ref_frame, transforms)
        return CoreMoments(positions.astype(np.float64), self._weights)

    def finish(self, value: MomentSums) -> None:
        """Make a Universe of the mean positions, and write it."""
        from MDAnalysis import Merge, Writer

        count, positions, _, rmsd = value
        if count == 0:
            raise ValueError("no frame is left to average: all are damaged")
        universe = self._universe or Merge(self.mobile_atoms)
        universe.load_new(positions[np.newaxis])
        self.results = Results(
            provenance=self.record(), universe=universe, positions=positions, rmsd=rmsd / count
        )
        writer = self._writer
        if self.filename is not None:
            writer = Writer(os.fspath(self.filename), len(positions))
        if writer is not None:
            with writer:
                writer.write(universe.atoms)


def __getattr__(name: str) -> Any:
    return name_of_mdanalysis(__name__, name)
