"""RMSD matrices of frames, and diffusion maps, as in MDAnalysis.analysis.diffusionmap."""

from collections.abc import Mapping
from functools import partial
from types import FunctionType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from paceline._util.arguments import function_name, whole_number
from paceline._util.option_values_and_selections import TRACE
from paceline.analysis import name_of_mdanalysis
from paceline.analysis.base import AnalysisBase
from paceline.analysis.results import Results
from paceline.analysis.table import Image, Table
from paceline.analysis.tiles import Metric, PairMetrics, PairRmsds, Positions, Tiles
from paceline.contract.analysis_declaration import MASS, NO_SUPERPOSITION, Declaration, Option
from paceline.contract.analysis_kinds import OverParts, PerFrame
from paceline.contract.system_interface import Atoms, System, has_attribute
from paceline.errors import NotRunError, UnsupportedError
from paceline.transform.selections_and_weights import choose_atoms, relative_weights

if TYPE_CHECKING:
    import MDAnalysis.analysis.diffusionmap

#: Maximum number of frames along an edge of a figure.
DRAWN = 1000
#: Number of matrix rows whose means are computed at a time.
ROWS = 256
#: Default number of coordinates in the table of a diffusion map.
COORDINATES = 10


class DistanceMatrix(AnalysisBase):
    r"""Matrix of the RMSDs between all pairs of frames.

    $$d_{ab} = \sqrt{\frac{1}{N} \sum_{i=1}^N w_i
              \left|\mathbf{x}_i(t_a) - \mathbf{x}_i(t_b)\right|^2}$$

    By default positions are **not** superposed, as in MDAnalysis's class. With `superposition`, the
    value of each pair is the minimum over all rotations and translations (QCP: Theobald 2005, Acta
    Cryst. A61, 478), which is the usual choice for clustering. The weights $w_i$ are relative to
    their mean. Molecules must be whole.

    Parameters
    ----------
    universe : AtomGroup or Universe
        Atoms from which `select` selects.
    select : str
        Selection of the atoms to compare.
    metric : callable, optional
        Function of the positions of two frames (Å, float64, shape (n_atoms, 3)) and `weights` that
        returns their distance. By default, and for MDAnalysis's `rmsd`, the RMSD is computed.
    cutoff : float
        Distances up to the cutoff become 0; MDAnalysis's default changes no distance.
    weights : None, "mass" or array of float, shape (n_atoms,)
        Weights of the atoms.
    superposition : bool
        Superpose each pair of frames.
    condensed : bool
        Store only the pairs above the diagonal, row by row, as in
        `scipy.spatial.distance.squareform`.
    dtype : dtype
        Dtype of the results, float64 or float32. Condensed, 50,000 frames take 5 GB in float32.

    Attributes
    ----------
    results.dist_matrix : numpy.ndarray, shape (n_frames, n_frames)
        Distances, Å; if condensed, shape (n_frames · (n_frames - 1) / 2,). NaN for damaged frames
        that were left out, and for frames with NaN positions. A matrix of more than 256 MiB is
        stored in a file in the temporary folder, which is deleted with the array.
    results.frames : numpy.ndarray of int64, shape (n_frames,)
        Frame numbers.
    results.times : numpy.ndarray of float64, shape (n_frames,)
        Times of these frames, ps.
    atoms : AtomGroup
        The compared atoms.

    Raises
    ------
    SelectionError
        The selection is empty.
    TypeError, ValueError
        Weights, metric or dtype are invalid.
    UnsupportedError
        The group is an UpdatingAtomGroup, or positions and matrix exceed the free space in the
        temporary folder.

    Examples
    --------
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import PSF, DCD
    >>> u = paceline.Universe(PSF, DCD)
    >>> matrix = DistanceMatrix(u, select="name CA", superposition=True).run(step=40)
    >>> matrix.results.dist_matrix.round(2)
    array([[0.  , 3.95, 6.68],
           [3.95, 0.  , 3.3 ],
           [6.68, 3.3 , 0.  ]])
    """

    declaration = Declaration(
        name="rmsd-matrix",
        summary="RMSD of each pair of frames",
        title="RMSD matrix",
        description=(
            "RMSD (Å) of each pair of frames after superposition. The table contains the mean for "
            "each frame, the figure the matrix, and .npz all values. Molecules must be whole "
            "(--unwrap)."
        ),
        section="matrices-clusters.md#matrix-of-rmsds",
        select=TRACE,
        examples=(
            "adk.psf adk.dcd --plot matrix.png -o matrix.npz",
            "md.tpr md.xtc --unwrap --select backbone --mass --step 10 --plot matrix.png",
        ),
        options=(
            NO_SUPERPOSITION,
            MASS,
        ),
        counterpart="diffusionmap.DistanceMatrix",
    )

    needs_whole = needs_together = True
    SHARED_RESULTS = ("dist_matrix",)
    SHARED_ATTRIBUTES = ("_calculated",)
    stages = 2
    over_parts = True

    def __init__(
        self,
        universe: Atoms | System,
        select: str = "all",
        metric: Metric | None = None,
        cutoff: float = 1e0 - 5,
        weights: Any = None,
        *,
        superposition: bool = False,
        condensed: bool = False,
        dtype: Any = np.float64,
        verbose: bool = False,
    ):
        atoms = choose_atoms(universe, select, "select")
        super().__init__(atoms, verbose=verbose)
        self.atoms, self._select = atoms, select
        self._metric = None if _is_rmsd(metric) else metric
        if not (self._metric is None or callable(self._metric)):
            raise TypeError(f"metric must be a function, or None, not {metric!r}")
        if self._metric is not None and superposition:
            raise ValueError("use either superposition=True or a metric function, not both")
        self._cutoff = float(cutoff)
        self._weights = weights
        self._relative = relative_weights(atoms, weights)
        self.superposition, self.condensed = superposition, condensed
        self.dtype = np.dtype(dtype)
        if self.dtype not in (np.float64, np.float32):
            raise ValueError(f"dtype must be float64 or float32, not {self.dtype}")
        self.row_bytes = 12 * len(atoms)
        self._calculated = False

    @classmethod
    def from_mdanalysis(cls, theirs: "MDAnalysis.analysis.diffusionmap.DistanceMatrix") -> Self:
        """Make an analysis with the parameters of MDAnalysis's analysis."""
        if not _is_rmsd(theirs._metric):
            raise UnsupportedError("a metric may be any function: use MDAnalysis's own class")
        return cls(theirs.atoms, "all", None, theirs._cutoff, theirs._weights)

    def parameters(self) -> dict[str, object]:
        """Return the parameters that are saved with the results."""
        metric = "rmsd" if self._metric is None else function_name(self._metric)
        return {
            **super().parameters(),
            "select": self._select,
            "metric": metric,
            "cutoff": self._cutoff,
            "weights": self._weights if isinstance(self._weights, str | None) else "given",
            "superposition": self.superposition,
        }

    def stored_bytes(self, n_frames: int) -> int:
        """Size of the positions and of the matrix for `n_frames` frames, bytes."""
        n_pairs = n_frames * (n_frames - 1) // 2 if self.condensed else n_frames**2
        return super().stored_bytes(n_frames) + n_pairs * self.dtype.itemsize

    def prepare(self) -> PerFrame:
        """Make the worker part that returns the positions."""
        self._calculated = False
        return Positions()

    def next_stage(self, value: np.ndarray) -> OverParts:
        """Divide the pairs of frames into tiles, which the workers compare."""
        worker: PairRmsds | PairMetrics
        if self._metric is None:
            how = self._relative, self.superposition, self._cutoff, self.dtype
            worker = PairRmsds(len(self.atoms), *how)
        else:
            weights = self.atoms.masses if isinstance(self._weights, str) else self._weights
            worker = PairMetrics(self._metric, weights, self._cutoff, self.dtype)
        return Tiles(value, worker, self.dtype, condensed=self.condensed)

    def finish(self, value: Tiles) -> None:
        """Store the distance matrix as a result, with its table."""
        self._calculated = True
        table = None
        if not self.condensed:
            label = ("RMSD", " (Å)") if self._metric is None else ("distance", "")
            # Compute the table only if it is read, because one core must read the whole matrix.
            places = (self.frames, self.times, self.times_known)
            table = partial(_table, value.matrix, *places, *label)
        self.results = Results(
            table=table,
            provenance=self.record(),
            dist_matrix=value.matrix,
            frames=self.frames,
            times=self.times,
        )


def _is_rmsd(metric: object) -> bool:
    """True for None, and for MDAnalysis's default metric, the function `rmsd`."""
    return metric is None or (
        isinstance(metric, FunctionType)
        and (metric.__module__, metric.__name__) == ("MDAnalysis.analysis.rms", "rmsd")
    )


def _table(
    matrix: np.ndarray,
    frames: np.ndarray,
    times: np.ndarray,
    times_known: bool,
    name: str,
    unit: str,
) -> Table:
    """Make a table of each frame's mean distance, and an image of all pairs."""
    n = len(matrix)
    means = np.empty(n)
    for first in range(0, n, ROWS):
        rows = matrix[first : first + ROWS].astype(np.float64, copy=False)
        sums, known = rows.sum(axis=1), n - 1
        if not np.isfinite(sums).all():
            sums, known = np.nansum(rows, axis=1), np.isfinite(rows).sum(axis=1) - 1
        with np.errstate(invalid="ignore", divide="ignore"):
            means[first : first + ROWS] = sums / np.where(known > 0, known, 0)
    title = f"mean {name} from the other frames{unit}"
    columns = {"frame": frames, "time (ps)": times, title: means}
    some = slice(None, None, -(-n // DRAWN))
    places, axis = (times[some], "time (ps)") if times_known else (frames[some], "frame")
    if not (np.diff(places) > 0).all():
        places, axis = np.arange(n)[some].astype(float), "frame in the order of the run"
    edges = _edges(places)
    image = Image(np.asarray(matrix[some, some]), edges, edges, axis, axis, f"{name}{unit}")
    return Table(columns, "time (ps)", {title: f"mean {name}"}, title, image=image, partial=True)


def _edges(places: np.ndarray) -> np.ndarray:
    """Compute the edges halfway between positions, and beyond the first and the last one."""
    if len(places) == 1:
        return places[0] + np.array([-0.5, 0.5])
    middles = (places[1:] + places[:-1]) / 2
    return np.concatenate([[2 * places[0] - middles[0]], middles, [2 * places[-1] - middles[-1]]])


class DiffusionMap:
    r"""Diffusion map of the frames, from the distances between them.

    The kernel $K_{ab} = \exp(-d_{ab}^2 / \epsilon)$ is divided by the sum of each row. The
    eigenvectors of the resulting matrix are the coordinates of the frames (Coifman & Lafon 2006,
    Appl. Comput. Harmon. Anal. 21, 5; Ferguson et al. 2011, Chem. Phys. Lett. 509, 1). They are
    computed from a symmetric matrix and multiplied by $1/\sqrt{D}$, so all of them are real. Memory
    grows as the square of the number of frames, and time as the cube.

    Parameters
    ----------
    u : Universe, AtomGroup or DistanceMatrix
        Atoms to compare, or a distance matrix, which may have been run already.
    epsilon : float
        Scale of the kernel exp(-RMSD² / epsilon), Å².
    n_eigenvectors : int, optional
        Number of coordinates in the results; by default 10, or all if there are fewer. `transform`
        has a parameter of the same name.
    time : float
        Exponent of the eigenvalues in the coordinates.
    **kwargs
        Parameters of `DistanceMatrix`, unless `u` is a matrix.

    Attributes
    ----------
    eigenvalues : numpy.ndarray of float64, shape (n_frames,)
        Eigenvalues in decreasing order; the first one is 1.
    eigenvectors : numpy.ndarray of float64, shape (n_frames, n_frames)
        Eigenvectors of length 1 in the columns; the largest element of each is positive.
    results.coordinates : numpy.ndarray of float64, shape (n_frames, n_eigenvectors)
        Coordinates of each frame. The results also contain eigenvalues and eigenvectors.
    results.frames : numpy.ndarray of int64, shape (n_frames,)
        Frame numbers.
    results.times : numpy.ndarray of float64, shape (n_frames,)
        Times of these frames, ps.

    Raises
    ------
    ValueError
        `u` has another type, or `epsilon` is not above 0. In the run: distances are NaN, or there
        are fewer frames than eigenvectors.

    Examples
    --------
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import PSF, DCD
    >>> u = paceline.Universe(PSF, DCD)
    >>> dmap = DiffusionMap(u, select="name CA", epsilon=2).run(step=30)
    >>> dmap.eigenvalues.round(3)
    array([1.   , 0.994, 0.971, 0.769])
    >>> dmap.transform(2, time=1).shape
    (4, 2)
    """

    declaration = Declaration(
        name="diffusionmap",
        summary="diffusion map of the frames",
        description=(
            "Diffusion coordinates of each frame: eigenvectors of a kernel of the RMSD (Å) between "
            "frames, superposed pair by pair, multiplied by their eigenvalues. The figure shows "
            "the first two; .npz also contains all eigenvectors. Time grows as the cube of the "
            "number of frames. Molecules must be whole (--unwrap)."
        ),
        section="matrices-clusters.md#diffusion-map",
        needs=("whole molecules",),
        select=TRACE,
        examples=(
            ("adk.psf adk.dcd --epsilon 4 -o map.csv --plot map.png --eigenvalues eigenvalues.png"),
            "md.tpr md.xtc --unwrap --select backbone --step 10 --epsilon 2 -o map.npz",
        ),
        options=(
            "epsilon",
            "n_eigenvectors",
            Option("time", metavar="T"),
            NO_SUPERPOSITION,
            MASS,
        ),
        counterpart="diffusionmap.DiffusionMap",
        further={"eigenvalues": "write all eigenvalues"},
    )

    eigenvalues: np.ndarray
    eigenvectors: np.ndarray
    #: Selections by which a command has chosen the atoms, by the name of the option.
    atom_selections: Mapping[str, str] = {}

    def __init__(
        self,
        u: Atoms | System | DistanceMatrix,
        epsilon: float = 1,
        *,
        n_eigenvectors: int | None = None,
        time: float = 1,
        **kwargs: Any,
    ):
        if not (np.isfinite(epsilon) and epsilon > 0):
            raise ValueError(f"epsilon must be above 0, in Å², not {epsilon!r}")
        self._is_given = isinstance(u, DistanceMatrix)
        if isinstance(u, DistanceMatrix):
            self._dist_matrix = u
        elif has_attribute(u, "select_atoms"):
            self._dist_matrix = DistanceMatrix(u, **kwargs)
        else:
            raise ValueError(
                "U is not a Universe or AtomGroup or DistanceMatrix and so the DiffusionMap has no "
                "data to work with."
            )
        self._epsilon = epsilon
        self._n_eigenvectors, self._time = n_eigenvectors, time
        if n_eigenvectors is not None:
            whole_number("n_eigenvectors", n_eigenvectors, 1)
        self.results = Results()

    def __getattr__(self, name: str) -> object:
        if name in ("atomgroup", "damaged", "timings"):
            return getattr(self._dist_matrix, name)
        if name in ("eigenvalues", "eigenvectors"):
            raise NotRunError(f"{type(self).__name__} has no {name} yet: call run() first")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def run(
        self,
        start: int | None = None,
        stop: int | None = None,
        step: int | None = None,
        **options: Any,
    ) -> Self:
        """Compute the eigenvectors; first compute the distances if they are not known yet.

        Parameters
        ----------
        start, stop, step : int, optional
            Frames, as in a slice.
        **options
            Other options of `paceline.run`.

        Returns
        -------
        DiffusionMap
            This object, with results.

        Raises
        ------
        UnsupportedError
            Frames or options are set, but the given matrix already has results.
        """
        if not (self._is_given and self._dist_matrix._calculated):
            self._dist_matrix.run(start=start, stop=stop, step=step, **options)
        elif (start, stop, step) != (None, None, None) or options:
            raise UnsupportedError(
                "DiffusionMap: the DistanceMatrix has been run, and its frames are used: pass "
                "frames and other options to its run"
            )
        distances = self._dist_matrix.results.dist_matrix
        if distances.ndim == 1:
            from scipy.spatial.distance import squareform

            distances = squareform(distances)
        if np.isnan(distances).any():
            raise ValueError(
                "a diffusion map cannot contain NaN distances: leave out damaged frames and frames "
                "with NaN positions"
            )
        self._n_frames = len(distances)
        if self._n_frames < 2:
            raise ValueError("a diffusion map needs two or more frames, found one")
        kernel = np.exp(-(distances.astype(np.float64) ** 2) / self._epsilon)
        scale = 1 / np.sqrt(kernel.sum(axis=1))
        kernel *= scale[:, np.newaxis] * scale
        values, vectors = np.linalg.eigh(kernel)
        vectors = vectors[:, ::-1] * scale[:, np.newaxis]
        vectors /= np.linalg.norm(vectors, axis=0)
        largest = np.abs(vectors).argmax(axis=0)
        self.eigenvalues = values[::-1]
        self.eigenvectors = vectors * np.sign(vectors[largest, np.arange(len(vectors))])
        self._calculated = True
        self._set_results()
        return self

    def _set_results(self) -> None:
        """Store coordinates, eigenvalues and eigenvectors as results, with a table."""
        n = self._n_eigenvectors
        if n is None:
            n = min(COORDINATES, self._n_frames - 1)
        coordinates = self.transform(n, self._time)
        n = coordinates.shape[1]
        frames, times = self._dist_matrix.frames, self._dist_matrix.times
        titles = [f"diffusion coordinate {k}" for k in range(1, n + 1)]
        columns = {
            "frame": frames,
            "time (ps)": times,
            **dict(zip(titles, coordinates.T, strict=True)),
        }
        label = "diffusion coordinate"
        drawn = None
        if n > 1:
            x, y = titles[:2]
            drawn = Table({x: columns[x], y: columns[y]}, x, {y: y}, y, points=True)
        y_of = {title: title.rpartition(" ")[2] for title in titles}
        largest = ", ".join(f"{value:.4g}" for value in self.eigenvalues[1:4])
        notes = {"eigenvalues of the first coordinates": largest}
        self.results = Results(
            table=Table(
                *(columns, "time (ps)", y_of, label, drawn),
                no_mean=True,
                partial=True,
                notes=notes,
            ),
            provenance={
                **self._dist_matrix.record(),
                **self.atom_selections,
                "analysis": type(self).__name__,
                "epsilon": self._epsilon,
                "time": self._time,
            },
            eigenvalues=self.eigenvalues,
            eigenvectors=self.eigenvectors,
            coordinates=coordinates,
            frames=frames,
            times=times,
        )

    def further_tables(self) -> dict[str, Table]:
        """Return the table of eigenvalues.

        Returns
        -------
        dict of str to Table
            "eigenvalues", by number; number 0 belongs to the constant eigenvector.
        """
        columns = {
            "number of the eigenvalue": np.arange(len(self.eigenvalues)),
            "eigenvalue": self.eigenvalues,
        }
        y = {"eigenvalue": "eigenvalue"}
        return {"eigenvalues": Table(columns, "number of the eigenvalue", y, "eigenvalue")}

    def transform(self, n_eigenvectors: int, time: float) -> np.ndarray:
        """Return the first coordinates after the constant eigenvector.

        Parameters
        ----------
        n_eigenvectors : int
            Number of eigenvectors.
        time : float
            Exponent of the eigenvalues that multiply the eigenvectors.

        Returns
        -------
        numpy.ndarray of float64, shape (n_frames, n_eigenvectors)
            Coordinates of each frame. MDAnalysis confuses rows and columns of its eigenvectors, so
            its values differ.

        Raises
        ------
        NotRunError
            The analysis has not run.
        ValueError
            `n_eigenvectors` is below 1, or not below the number of frames.
        """
        most = len(self.eigenvalues) - 1
        n_eigenvectors = whole_number("n_eigenvectors", n_eigenvectors)
        if not 1 <= n_eigenvectors <= most:
            raise ValueError(
                f"n_eigenvectors={n_eigenvectors}: expected a number from 1 to {most} for "
                f"{most + 1} frames"
            )
        some = slice(1, n_eigenvectors + 1)
        return self.eigenvectors[:, some] * self.eigenvalues[some] ** time


def __getattr__(name: str) -> object:
    return name_of_mdanalysis(__name__, name)
