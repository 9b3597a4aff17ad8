"""Principal component analysis, with the parameters and results of MDAnalysis.analysis.pca."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

import numpy as np

from paceline._util.arguments import whole_number
from paceline._util.option_values_and_selections import BEADS_OF_BACKBONE, TRACE
from paceline.analysis import name_of_mdanalysis
from paceline.analysis.base import AnalysisBase, equally_spaced, table_in_time
from paceline.analysis.jackknife_intervals import WithParts, errors_of_run, halves_of, in_parts
from paceline.analysis.kernels import CoreCovariance, CoreRows, CovarianceSums
from paceline.analysis.results import Results
from paceline.analysis.table import Table, title_of_band
from paceline.contract.analysis_declaration import Declaration, Member, Option
from paceline.contract.analysis_kinds import PerFrame, Reduction
from paceline.contract.system_interface import Atoms, System, attribute_of
from paceline.errors import warn
from paceline.performance.number_format import many, percent
from paceline.transform.apply_transforms import first_positions
from paceline.transform.compare_atom_names import warn_of_other_order
from paceline.transform.selections_and_weights import choose_atoms

if TYPE_CHECKING:
    import MDAnalysis.analysis.pca

#: Maximum number of components in figures.
DRAWN = 20
#: With `errors`, minimum number of components on which frames are projected.
LEAST_PROJECTED = 3
#: Number of components for which the notes of the table contain the RMSIP.
OVERLAP = 10
#: Minimum number of frames for a cosine content.
LEAST_OF_COSINES = 3
#: Number of atoms above which a run warns that the diagonalisation may take long.
MANY_ATOMS = 1000
#: A variance up to this fraction of the sum of variances counts as a rounding error, and so does a
#: displacement up to this fraction of the largest coordinate.
ROUNDING = 1e-12


class PCA(AnalysisBase):
    r"""Principal component analysis of the positions of atoms.

    The components are the eigenvectors of the covariance matrix of all coordinates,

    $$C_{ij} = \frac{1}{n - 1} \sum_t \left(x_i(t) - \bar{x}_i\right)
               \left(x_j(t) - \bar{x}_j\right)$$

    in decreasing order of their eigenvalues, the variances (Amadei, Linssen & Berendsen 1993,
    Proteins 17, 412). In each component, the element with the largest absolute value is positive.
    Sums of products of deviations are merged pairwise (Chan, Golub & LeVeque 1983, Am. Stat. 37,
    242; Pébay 2008, Sandia report SAND2008-6212). The sums have identical bits for any number of
    workers; the components have the precision of LAPACK.

    Parameters
    ----------
    universe : AtomGroup or Universe
        Atoms from which `select` selects.
    select : str
        Selection of the atoms.
    align : bool
        Superpose each frame on the first analysed frame, with equal weights. Molecules must be
        whole. With False, positions are used unchanged.
    mean : array of float, shape (n_atoms, 3), optional
        Positions (Å) to use as the mean.
    n_components : int, optional
        Number of components in the results; by default all.
    n_projected : int
        Number of components on which all frames are projected, in a second pass.
    errors : bool
        Also compute 95 % intervals of the variances, and the agreement of the components of both
        halves of the run. At least three components are projected.

    Attributes
    ----------
    results.p_components : numpy.ndarray of float64, shape (3 n_atoms, n_components)
        Components of length 1, in the columns.
    results.variance : numpy.ndarray of float64, shape (n_components,)
        Variance along each component, Å².
    results.cumulated_variance : numpy.ndarray of float64, shape (n_components,)
        Sum of the variances up to each component, as a fraction of the sum of all.
    results.projection : numpy.ndarray of float64, shape (n_frames, n_projected)
        Displacement of each frame from the mean along the first components, Å, after superposition
        with `align`. Exists only if `n_projected` is not 0. NaN for damaged frames.
    results.variance_interval : numpy.ndarray of float64, shape (n_components,)
        With `errors`: half the widths of the 95 % intervals of `variance`, Å²; NaN after the first
        20 components. They do not include errors due to the choice of the frame for the
        superposition. The jackknife leaves out each part of the run in turn, and computes variances
        in the space of the first 40 components (see `paceline.analysis.jackknife_intervals`).
    results.cumulated_variance_interval : numpy.ndarray of float64, shape (n_components,)
        With `errors`: half the widths of the 95 % intervals of `cumulated_variance`; NaN after the
        first 20 components.
    results.rmsip_of_halves : numpy.ndarray of float64, shape (n_components,)
        With `errors`: for each k, root mean square inner product of the first k components of the
        first half of the run with those of the second half (see the notes); NaN if k is more than
        20, if it is not less than the number of frames in a half, and for components without
        motion.
    results.cosine_content : numpy.ndarray of float64, shape (n_projected,)
        With `errors`: cosine content of each projection (see the notes); NaN for less than three
        frames, and for frames that are not equally spaced.
    mean : numpy.ndarray of float64, shape (n_atoms, 3)
        Mean positions, Å.
    cov : numpy.ndarray of float64, shape (3 n_atoms, 3 n_atoms)
        Covariance matrix, Å².

    Raises
    ------
    SelectionError
        The selection is empty.
    UnsupportedError
        The group is an UpdatingAtomGroup. In the run: intervals of so many atoms need too much
        memory.
    ValueError
        There are fewer than two frames, or `mean` has another number of atoms. In the run, as
        `AnalysisError`: a position is not finite.

    Notes
    -----
    The RMSIP of the components $\mathbf{u}_i$ and $\mathbf{v}_j$ of both halves,

    $$\sqrt{\frac{1}{k} \sum_{i=1}^k \sum_{j=1}^k \left(\mathbf{u}_i \cdot \mathbf{v}_j\right)^2}$$

    is 1 if both halves move in the same subspace, and about $\sqrt{k / 3N}$ if the subspaces of N
    atoms are unrelated. It is usually given for k = 10 (Amadei, Ceruso & Di Nola 1999, Proteins 36,
    419).

    The cosine content of the projection $p_i$ on component i, minus its mean, at n equidistant
    times,

    $$\frac{2}{n} \left(\sum_{t=0}^{n-1} \cos\frac{\pi i (t + 1/2)}{n}\, p_i(t)\right)^2
      \Big/ \sum_t p_i(t)^2$$

    is from 0 to 1. The projections of random diffusion are cosines with i half periods in the run.
    If the cosine content of the first components is near 1, their motion may be random diffusion:
    the run is too short to know their variances (Hess 2000, Phys. Rev. E 62, 8438; Hess 2002, Phys.
    Rev. E 65, 031910). A low cosine content does not prove the contrary.

    Examples
    --------
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import PSF, DCD
    >>> u = paceline.Universe(PSF, DCD)
    >>> pca = PCA(u, select="name CA", align=True, n_components=3, n_projected=1).run()
    >>> pca.results.cumulated_variance.round(2)
    array([0.9 , 0.95, 0.97])
    >>> pca.results.projection[[0, -1]].round(1)
    array([[ 59.1],
           [-39.4]])
    """

    declaration = Declaration(
        name="pca",
        summary="principal components of the motion",
        title="principal components",
        description=(
            "Principal components of the positions, in decreasing order of their variance (Å²): a "
            "table of variances. A .npz file contains all components, and projections of all "
            "frames. Frames are superposed on the first frame, unless --no-align or --fit is used."
        ),
        section="matrices-clusters.md#principal-components",
        select=TRACE,
        fits=True,
        examples=(
            "adk.psf adk.dcd -o pca.csv --plot pca.png",
            "md.tpr md.xtc --unwrap --n-components 10 --n-projected 3 -o pca.npz",
        ),
        options=(
            "align",
            "n_components",
            Option("n_projected", type="positive"),
            "errors",
        ),
        batteries=(
            Member(
                "protein",
                {"select": "protein and name CA", "align": True, "n_projected": 2},
                place=8,
            ),
            Member(
                "coarse-grained protein",
                {"select": BEADS_OF_BACKBONE, "align": True, "n_projected": 2},
                place=8,
            ),
        ),
        counterpart="pca.PCA",
        further={"projections": "write the projections on the first components, two by default"},
    )

    needs_whole = needs_together = True
    LEAST_FRAMES = 2
    SHARED_RESULTS = ("p_components", "variance", "cumulated_variance")
    SHARED_ATTRIBUTES = (
        *("mean", "cov", "_n_atoms", "_atoms", "_reference", "_xmean"),
        *("_variance", "_p_components", "_calculated", "n_components"),
    )
    mean: np.ndarray
    cov: np.ndarray

    def __init__(
        self,
        universe: Atoms | System,
        select: str = "all",
        align: bool = False,
        mean: Sequence[Sequence[float]] | np.ndarray | None = None,
        n_components: int | None = None,
        *,
        n_projected: int = 0,
        errors: bool = False,
        verbose: bool = False,
    ):
        atoms = choose_atoms(universe, select, "select")
        super().__init__(atoms, verbose=verbose)
        self.align, self._calculated = align, False
        self._select, self.n_components = select, n_components
        self._n_atoms, self._atoms = len(atoms), atoms
        self._given = None if mean is None else np.asarray(mean, dtype=np.float64)
        if self._given is not None and self._given.shape != (len(atoms), 3):
            raise ValueError(
                f"Number of atoms in reference ({len(self._given)}) does not match number of atoms "
                f"in the selection ({len(atoms)}): mean must have the shape ({len(atoms)}, 3), "
                f"found {self._given.shape}"
            )
        if not isinstance(align, bool | np.bool_):
            raise TypeError(f"align must be True or False, not {align!r}")
        self.needs_fit = not align
        n_projected = whole_number("n_projected", n_projected, 0, 3 * len(atoms))
        self.errors = errors
        if errors:
            n_projected = max(n_projected, min(LEAST_PROJECTED, 3 * len(atoms)))
        self.n_projected = n_projected
        self.stages = 2 if n_projected else 1

    @classmethod
    def from_mdanalysis(cls, theirs: "MDAnalysis.analysis.pca.PCA") -> Self:
        """Make an analysis with the parameters of MDAnalysis's analysis."""
        return cls(theirs._u, theirs._select, theirs.align, theirs._mean, theirs.n_components)

    def parameters(self) -> dict[str, object]:
        """Return the parameters that are saved with the results."""
        return {
            **super().parameters(),
            "select": self._select,
            "align": self.align,
            "n_components": self._n_components,
            "mean": "of the frames" if self._given is None else "given",
        }

    @property
    def n_components(self) -> int | None:
        """Number of components in the results; can be changed after the run."""
        is_known = self._n_components is not None or not self._calculated
        return self._n_components if is_known else len(self._variance)

    @n_components.setter
    def n_components(self, number: int | None) -> None:
        self._n_components = None if number is None else whole_number("n_components", number, 1)
        if self._calculated:
            self._fill()

    def prepare(self) -> Reduction:
        """Copy the first frame if frames are superposed on it, and make the worker part."""
        if len(self.frames) < self.LEAST_FRAMES:
            raise ValueError("No covariance information can be gathered from a single frame")
        if self._n_atoms > MANY_ATOMS:
            warn(
                f"PCA: a matrix of {3 * self._n_atoms:,} × {3 * self._n_atoms:,} numbers is "
                f"diagonalised at the end, for {self._n_atoms:,} atoms, in a time that grows as "
                "the cube of their number: choose fewer atoms, such as 'name CA'"
            )
        self._calculated = False
        self._of_errors: _Sampling | None = None
        self._first = None
        if self.align:
            self._first = first_positions(
                self._atoms, self.frames, self.transforms, self.skip_damaged
            )
        part = CoreCovariance(self._first, finite=True)
        if not self.errors:
            return part
        n = 3 * self._n_atoms
        return in_parts(part, len(self.frames), 4 * n * (n + 1), self.name)

    @property
    def needs_all_frames(self) -> bool:  # type: ignore[override]
        """True with `errors`: intervals use parts of the run, which depend on `n_frames`."""
        return self.errors

    def next_stage(self, value: CovarianceSums | WithParts[CovarianceSums]) -> PerFrame:
        """Solve for the components, and make the worker part that projects each frame on them."""
        self._solve(value)
        directions = self._p_components[:, : self.n_projected].T
        return CoreRows("projection", self.mean, np.ascontiguousarray(directions), self._first)

    def finish(self, value: tuple) -> None:
        """Store components, variances and projections as results."""
        if not self.n_projected:
            self._solve(value)
        method = {}
        if self._of_errors is not None:
            method = {"intervals": self._of_errors.method}
            contents = cosine_contents(np.asarray(value), self.left_out)
            if not equally_spaced(self):
                contents[:] = np.nan
            self._of_errors.cosine_content = contents
        self.results = Results(provenance={**self.record(), **method})
        if self.n_projected:
            self.results.projection = value
        self._calculated = True
        self._fill()

    def _solve(self, value: CovarianceSums | WithParts[CovarianceSums]) -> None:
        """Compute mean, covariance and eigenvectors; with `errors`, also the intervals."""
        value, parts = value if len(value) == 2 else (value, None)
        count, mean, _ = value
        if count < 2:
            raise ValueError(
                f"No covariance information can be gathered from {count} of "
                f"{len(self.frames)} frames: all others are damaged"
            )
        self.mean = mean if self._given is None else self._given
        cov = self._covariance(value)
        variance, components = _components_of(cov)
        largest = np.abs(components).argmax(axis=0)
        components = components * np.sign(components[largest, np.arange(mean.size)])
        self.cov, self._xmean, self._reference = cov, self.mean.ravel(), self._atoms
        self._variance, self._p_components = variance, components
        if parts is not None:
            self._of_errors = self._assess((value, parts))

    def _covariance(self, value: CovarianceSums) -> np.ndarray:
        """Compute the covariance matrix from sums over frames, Å²."""
        count, mean, products = value
        cov = covariance_of(mean.size, products)
        if self._given is not None:
            difference = (mean - self._given).ravel()
            cov += count * np.multiply.outer(difference, difference)
        cov /= count - 1
        return cov

    def _assess(self, value: WithParts[CovarianceSums]) -> "_Sampling":
        """Compute the intervals of the variances, and the RMSIP of both halves of the run."""
        space = np.ascontiguousarray(self._p_components[:, : 2 * DRAWN])

        def variances(value: CovarianceSums) -> np.ndarray:
            if value[0] < 2:
                return np.full((2, space.shape[1]), np.nan)[:, :DRAWN]
            cov = self._covariance(value)
            found = np.linalg.eigvalsh(space.T @ cov @ space)[::-1][:DRAWN]
            with np.errstate(invalid="ignore"):
                return np.stack([found, np.cumsum(found) / np.trace(cov)])

        part = CoreCovariance(finite=True)
        found = errors_of_run(self, part, value, variances)
        rmsip, halves = np.full(len(self._variance), np.nan), halves_of(part, value[1])
        # In a half with n frames, at most n - 1 components have a variance above 0.
        n = min(DRAWN, min(half[0] for half in halves) - 1, len(rmsip))
        if n > 0 and len(halves) == 2:
            first, second = (self._moving(half)[:, :n] for half in halves)
            n = min(first.shape[1], second.shape[1])
            rmsip[:n] = rmsip_of(first[:, :n], second[:, :n])
        padding = (0, 0), (0, len(rmsip) - found.interval.shape[1])
        of_variance, of_fraction = np.pad(found.interval, padding, constant_values=np.nan)
        return _Sampling(of_variance, of_fraction, rmsip, found.method)

    def _moving(self, value: CovarianceSums) -> np.ndarray:
        """Compute the components with a variance above rounding errors.

        The directions of all other components are arbitrary.
        """
        variance, components = _components_of(self._covariance(value))
        of_positions = (ROUNDING * np.abs(self.mean).max()) ** 2
        return components[:, variance > max(ROUNDING * variance.sum(), of_positions)]

    def _fill(self) -> None:
        """Store the first components, as many as were requested, and a table of their variances."""
        n = len(self._variance) if self._n_components is None else self._n_components
        with np.errstate(invalid="ignore"):
            fractions = np.cumsum(self._variance) / np.sum(self._variance)
        columns = {
            "component": np.arange(1, len(fractions[:n]) + 1),
            "variance (Å²)": self._variance[:n],
            "cumulative variance": fractions[:n],
        }
        label = "cumulative variance"
        # Draw only the first components: with further ones, the curve is nearly constant.
        first = {title: values[:DRAWN] for title, values in columns.items()}
        drawn = Table(first, "component", {label: label}, "cumulative fraction of the variance")
        some = bool(self.n_projected)  # projections are not columns of the table
        shares = (percent(one) for one in np.diff(fractions[:3], prepend=0.0))
        notes = {"variance along the first components": ", ".join(shares)}
        table = Table(columns, "component", {label: label}, label, drawn, partial=some, notes=notes)
        arrays = {"projection": self.results.projection} if self.n_projected else {}
        if self._of_errors is not None:
            table = self._of_errors.add_to(table)
            arrays |= self._of_errors.arrays(n)
        self.results = Results(
            table=table,
            provenance=self.results.provenance,
            p_components=self._p_components[:, :n],
            variance=self._variance[:n],
            cumulated_variance=fractions[:n],
            **arrays,
        )

    def further_tables(self) -> dict[str, Table]:
        """Return the table of projections; figures plot PC2 against PC1, coloured by time.

        Returns
        -------
        dict of str to Table
            "projections", with `n_projected` components; empty if that is 0.
        """
        if not self.n_projected:
            return {}
        projection = self.results.projection
        titles = [f"PC{k} (Å)" for k in range(1, self.n_projected + 1)]
        columns = dict(zip(titles, projection.T, strict=True))
        table = table_in_time(self, columns, {title: title[:-4] for title in titles}, "PC (Å)")
        if self.n_projected > 1:
            (x, y), time = titles[:2], table.abscissa if self.times_known else "frame"
            shown = {title: table.columns[title] for title in (x, y, time)}
            drawn = Table(shown, x, {y: y}, y, points=True, colour=time)
            table = replace(table, drawn=drawn)
        return {"projections": table}

    def cross_correlation(self) -> np.ndarray:
        r"""Compute the cross-correlation of the displacements of each pair of atoms.

        $$\frac{\langle\Delta\mathbf{x}_i \cdot \Delta\mathbf{x}_j\rangle}
          {\sqrt{\langle\Delta\mathbf{x}_i^2\rangle \langle\Delta\mathbf{x}_j^2\rangle}}$$

        from -1 to 1 (Ichiye & Karplus 1991, Proteins 11, 205).

        Returns
        -------
        numpy.ndarray of float64, shape (n_atoms, n_atoms)
            Symmetric matrix; NaN for atoms that do not move.

        Raises
        ------
        NotRunError
            The analysis has not run.
        """
        _ = self.results.p_components  # raises `NotRunError` before a run
        return cross_correlation_of(self.cov)

    def transform(
        self,
        atomgroup: Atoms | System,
        n_components: int | None = None,
        start: int | None = None,
        stop: int | None = None,
        step: int | None = None,
        verbose: bool = False,
    ) -> np.ndarray:
        """Project a trajectory on the components, without superposition.

        Parameters
        ----------
        atomgroup : AtomGroup or Universe
            Atoms to project, as many as were analysed, from any Universe.
        n_components : int, optional
            Number of components; by default as many as in the results.
        start, stop, step : int, optional
            Frames, as in a slice.
        verbose : bool
            Show progress.

        Returns
        -------
        numpy.ndarray of float64, shape (n_frames, n_components)
            Displacement of each frame from the mean along each component, Å.

        Raises
        ------
        NotRunError
            The analysis has not run.
        ValueError
            The number of atoms differs.
        """
        _ = self.results.p_components  # raises `NotRunError` before a run
        atoms = atomgroup.atoms
        if len(atoms) != self._n_atoms:
            raise ValueError(
                f"PCA has been fit for {self._n_atoms} atoms. Your atomgroup has {len(atoms)} atoms"
            )
        types, others = (attribute_of(group, "types") for group in (self._atoms, atoms))
        if types is not None and others is not None and not np.array_equal(types, others):
            warnings.warn("Atom types do not match with types used to fit PCA", stacklevel=2)
        warn_of_other_order(atoms, self._atoms, "PCA.transform")
        n = self.results.p_components.shape[1]
        if n_components is not None:
            n = whole_number("n_components", n_components)
        projected = _Projection(atoms, self.mean, self._p_components[:, :n].T)
        return projected.run(start, stop, step, verbose=verbose).results.projection

    def project_single_frame(
        self,
        components: Sequence[int] | np.ndarray | int | None = None,
        group: Atoms | None = None,
        anchor: str | None = None,
    ) -> Callable[[Atoms], Atoms]:
        """Make a function that projects the atoms of a frame on components.

        Parameters
        ----------
        components : int or array of int, optional
            Indices of components; by default all components of the results.
        group : AtomGroup, optional
            Atoms that move with their residues, by the displacement of the residue's anchor.
        anchor : str, optional
            Selection of one analysed atom in each residue of `group`.

        Returns
        -------
        callable
            Function that changes a Timestep and returns it, as a transformation of MDAnalysis.

        Raises
        ------
        NotRunError
            The analysis has not run.
        ValueError
            A residue does not have exactly one anchor.
        """
        from MDAnalysis.analysis.pca import PCA as Theirs

        _ = self.results.p_components  # raises `NotRunError` before a run
        return Theirs.project_single_frame(self, components, group, anchor)

    def rmsip(self, other: Self, n_components: int | Sequence[int] | None = None) -> float:
        """Root mean square inner product (RMSIP) of the components of two analyses.

        Parameters
        ----------
        other : PCA
            Another analysis that has been run.
        n_components : int or (int, int), optional
            Number of components of this analysis and of the other one; by default all.

        Returns
        -------
        float
            From 0 for orthogonal subspaces to 1 for equal subspaces.

        Raises
        ------
        NotRunError
            One of the analyses has not been run.
        """
        from MDAnalysis.analysis.pca import PCA as Theirs

        _ = self.results.p_components, other.results.p_components  # raises `NotRunError`
        return float(Theirs.rmsip(self, other, n_components))

    def cumulative_overlap(self, other: Self, i: int = 0, n_components: int | None = None) -> float:
        """Overlap of a component with the subspace of another analysis's components.

        Parameters
        ----------
        other : PCA
            Another analysis that has been run.
        i : int
            Number of the component, from 0.
        n_components : int, optional
            Number of components of the other analysis; by default all.

        Returns
        -------
        float
            0 if the component is orthogonal to the subspace, 1 if it is within the subspace.

        Raises
        ------
        NotRunError
            One of the analyses has not been run.
        """
        from MDAnalysis.analysis.pca import PCA as Theirs

        _ = self.results.p_components, other.results.p_components  # raises `NotRunError`
        return float(Theirs.cumulative_overlap(self, other, i, n_components))


def covariance_of(n: int, products: np.ndarray) -> np.ndarray:
    """Expand an upper triangle, stored row by row, to a symmetric matrix of shape (n, n)."""
    sums, first = np.empty((n, n)), 0
    for row in range(n):
        stop = first + n - row
        sums[row, row:] = sums[row:, row] = products[first:stop]
        first = stop
    return sums


def cross_correlation_of(cov: np.ndarray) -> np.ndarray:
    """Correlation of the displacements of pairs of atoms; NaN for atoms that do not move."""
    n_atoms = len(cov) // 3
    of_pairs = cov.reshape(n_atoms, 3, n_atoms, 3)
    products = of_pairs[:, 0, :, 0] + of_pairs[:, 1, :, 1] + of_pairs[:, 2, :, 2]
    size = np.sqrt(np.diagonal(products))
    with np.errstate(invalid="ignore", divide="ignore"):
        return products / np.multiply.outer(size, size)


def _components_of(cov: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Variances in decreasing order, and components in the columns."""
    variance, components = np.linalg.eigh(cov)
    return variance[::-1], components[:, ::-1]


def rmsip_of(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """RMSIP of the first k components in the columns of two arrays, for each k.

    Examples
    --------
    >>> rmsip_of(np.eye(3), np.eye(3)[:, [0, 2, 1]]).round(2).tolist()
    [1.0, 0.71, 1.0]
    """
    sums = ((first.T @ second) ** 2).cumsum(axis=0).cumsum(axis=1).diagonal()
    return np.sqrt(sums / np.arange(1, len(sums) + 1))


def cosine_contents(projection: np.ndarray, left_out: np.ndarray) -> np.ndarray:
    """Cosine content of each column of a projection, shape (n_frames, n_projected).

    Frames that were left out are ignored. The mean of each column is subtracted, because the
    projection has an offset if the user gave the mean positions. See the notes of `PCA`.
    """
    n, half_periods = len(projection), np.arange(1, projection.shape[1] + 1)
    known = projection[~left_out]
    if len(known) < LEAST_OF_COSINES:
        return np.full(projection.shape[1], np.nan)
    cosines = np.cos(np.pi * np.multiply.outer(np.arange(n) + 0.5, half_periods) / n)[~left_out]
    # Without gaps, the mean of the cosines is 0, and the sum of their squares is n / 2.
    known, cosines = known - known.mean(axis=0), cosines - cosines.mean(axis=0)
    squares = (cosines**2).sum(axis=0) * (known**2).sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return (cosines * known).sum(axis=0) ** 2 / squares


@dataclass
class _Sampling:
    """Results of `PCA` with `errors`: 95 % intervals, RMSIP of both halves, and cosine contents."""

    of_variance: np.ndarray
    of_fraction: np.ndarray
    rmsip: np.ndarray
    method: str
    cosine_content: np.ndarray = field(default_factory=lambda: np.empty(0))

    def arrays(self, n: int) -> dict[str, np.ndarray]:
        """Return the results by name; those of single components for the first n components."""
        return {
            "variance_interval": self.of_variance[:n],
            "cumulated_variance_interval": self.of_fraction[:n],
            "rmsip_of_halves": self.rmsip[:n],
            "cosine_content": self.cosine_content,
        }

    def add_to(self, table: Table) -> Table:
        """Add intervals, RMSIPs and notes to a table of components, and to its figure."""
        (label,), title, overlap = table.y, "variance (Å²)", "RMSIP of halves"
        n, bands = len(table.columns["component"]), {label: title_of_band(label)}
        columns = {
            "component": table.columns["component"],
            title: table.columns[title],
            title_of_band(title): self.of_variance[:n],
            label: table.columns[label],
            bands[label]: self.of_fraction[:n],
            overlap: self.rmsip[:n],
        }
        first = {key: values[:DRAWN] for key, values in columns.items()}
        legend = {label: f"{label} and 95 % interval", overlap: "RMSIP of both halves of the run"}
        drawn = Table(first, "component", legend, "fraction of the variance; RMSIP", bands=bands)
        notes = {**table.notes, **self.notes}
        return replace(table, columns=columns, drawn=drawn, notes=notes, bands=bands)

    @property
    def notes(self) -> dict[str, str]:
        """Sentences on the components of both halves, and on the cosine contents."""
        found = {}
        k = int((~np.isnan(self.rmsip[:OVERLAP])).sum())
        if k:
            unrelated = np.sqrt(k / len(self.rmsip))
            rmsip = f"{self.rmsip[k - 1]:.2f} of {many(k, 'component')}"
            found["RMSIP of both halves"] = f"{rmsip} (equal: 1, unrelated: {unrelated:.2f})"
        cosines = [f"{one:.2f}" for one in self.cosine_content[:LEAST_PROJECTED]]
        if not np.isnan(self.cosine_content).all():
            found["cosine content of the first components"] = (
                f"{', '.join(cosines)} (near 1: like random diffusion)"
            )
        return found


class _Projection(AnalysisBase):
    """Projection of the frames of any trajectory on given directions."""

    def __init__(self, atomgroup: Atoms | System, mean: np.ndarray, directions: np.ndarray):
        super().__init__(atomgroup)
        self._arguments = mean, np.ascontiguousarray(directions)

    def prepare(self) -> PerFrame:
        """Make the worker part from the directions."""
        return CoreRows("projection", *self._arguments)

    def finish(self, value: np.ndarray) -> None:
        """Store the projection of all frames as a result."""
        self.results.projection = value


def __getattr__(name: str) -> object:
    return name_of_mdanalysis(__name__, name)
