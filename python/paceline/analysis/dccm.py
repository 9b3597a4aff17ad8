"""Dynamic cross-correlation matrix (DCCM) of the motions of atoms."""

import numpy as np

from paceline.analysis.base import AnalysisBase
from paceline.analysis.kernels import CoreCovariance, CovarianceSums
from paceline.analysis.pca import covariance_of, cross_correlation_of
from paceline.analysis.results import Results
from paceline.analysis.table import Image, Table, telling_columns
from paceline.contract.analysis_declaration import Declaration
from paceline.contract.analysis_kinds import Reduction
from paceline.contract.system_interface import Atoms, System, has_attribute
from paceline.transform.apply_transforms import first_positions
from paceline.transform.selections_and_weights import check_not_empty, check_static


class CrossCorrelation(AnalysisBase):
    r"""Cross-correlation of the displacements of each pair of atoms.

    $$C_{ij} = \frac{\langle\Delta\mathbf{r}_i \cdot \Delta\mathbf{r}_j\rangle}
      {\sqrt{\langle\Delta\mathbf{r}_i^2\rangle \langle\Delta\mathbf{r}_j^2\rangle}}$$

    with $\Delta\mathbf{r}_i = \mathbf{r}_i - \langle\mathbf{r}_i\rangle$ ([Ichiye & Karplus
    1991](https://doi.org/10.1002/prot.340110305)). The value is 1 for atoms that move in the same
    direction, -1 for atoms that move in opposite directions, and 0 for independent or perpendicular
    motions. Frames are superposed on the first frame, because otherwise translation and rotation of
    the molecule would move all atoms in the same way.

    Parameters
    ----------
    atomgroup : AtomGroup
        Atoms, such as Cα. For n atoms, the matrix takes memory for 9 n² numbers.
    align : bool
        Superpose each frame on the first one, by all atoms of the group without weights.

    Attributes
    ----------
    results.correlation : numpy.ndarray of float64, shape (n_atoms, n_atoms)
        Symmetric matrix of values from -1 to 1; NaN for atoms that do not move.
    results.fluctuation : numpy.ndarray of float64, shape (n_atoms,)
        Root mean square fluctuation of each atom, Å.

    Raises
    ------
    SelectionError
        The group contains no atoms.
    UnsupportedError
        The group is an UpdatingAtomGroup.
    ValueError
        There are fewer than two frames. In the run, as `AnalysisError`: a position is not finite.

    Examples
    --------
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import PSF, DCD
    >>> ca = paceline.Universe(PSF, DCD).select_atoms("name CA")
    >>> dccm = CrossCorrelation(ca).run()
    >>> dccm.results.correlation[0, :4].round(2)
    array([1.  , 0.93, 0.91, 0.8 ])
    """

    declaration = Declaration(
        name="dccm",
        summary="dynamic cross-correlation of the motions of atoms",
        description=(
            "Cross-correlation of the displacements of each pair of atoms, from -1 to 1, after "
            "superposition of each frame on the first one."
        ),
        section="matrices-clusters.md#dynamic-cross-correlation",
        select="protein and name CA",
        examples=(
            "adk.psf adk.dcd -o dccm.csv --plot dccm.png",
            'md.tpr md.xtc --unwrap --select "name CA and resid 1-50" -o dccm.npz',
        ),
        fits=True,
    )
    needs_whole = needs_together = True
    #: Minimum number of frames for a covariance.
    LEAST_FRAMES = 2

    def __init__(self, atomgroup: Atoms | System, *, align: bool = True, verbose: bool = False):
        super().__init__(atomgroup, verbose=verbose)
        check_static(atomgroup, self.name)
        check_not_empty(self.atomgroup, f"{self.name}: the group")
        self.align = bool(align)
        self.needs_fit = not self.align

    def parameters(self) -> dict[str, object]:
        """Return the parameters that are saved with the results."""
        return {**super().parameters(), "align": self.align}

    def prepare(self) -> Reduction:
        """Copy the first frame if frames are superposed on it, and make the worker part."""
        if len(self.frames) < self.LEAST_FRAMES:
            raise ValueError("a single frame has no correlation of motions")
        first = None
        if self.align:
            first = first_positions(self.atomgroup, self.frames, self.transforms, self.skip_damaged)
        return CoreCovariance(first, finite=True)

    def finish(self, value: CovarianceSums) -> None:
        """Divide the covariances by the fluctuations, and make a table of pairs."""
        count, mean, products = value
        if count < self.LEAST_FRAMES:
            raise ValueError(
                f"only {count} of {len(self.frames)} frames could be read: correlations need two"
            )
        atoms = self.atomgroup
        covariance = covariance_of(mean.size, products) / count
        correlation = cross_correlation_of(covariance)
        diagonal = np.diagonal(correlation)
        np.fill_diagonal(correlation, np.where(np.isnan(diagonal), np.nan, 1.0))  # not 1 - 1e-16
        fluctuation = np.sqrt(np.diagonal(covariance).reshape(-1, 3).sum(axis=1))
        rows, columns = np.triu_indices(len(atoms), k=1)
        title = "correlation"
        keys, numbers = ("atom index", "other atom index"), atoms.indices
        found = {keys[0]: numbers[rows], keys[1]: numbers[columns]}
        if has_attribute(atoms, "resids") and len(atoms.residues) == len(atoms):
            keys, numbers = ("residue", "other residue"), atoms.resids
            found = {keys[0]: numbers[rows], keys[1]: numbers[columns]}
            found |= telling_columns(atoms.residues, {"": rows, "other ": columns})
        found[title] = correlation[rows, columns]
        edges, label = np.arange(len(atoms) + 1) - 0.5, "cross-correlation"
        image = Image(
            *(correlation, edges, edges, keys[0], keys[0], label, (numbers, numbers)),
            colours="RdBu_r",
            limits=(-1.0, 1.0),
        )
        self.results = Results(
            table=Table(found, keys[0], {title: title}, label, image=image, keys=keys),
            provenance=self.record(),
            correlation=correlation,
            fluctuation=fluctuation,
        )
