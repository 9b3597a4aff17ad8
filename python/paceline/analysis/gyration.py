"""Radius of gyration and shape, as MDAnalysis's AtomGroup defines them."""

from typing import Literal

import numpy as np

from paceline import _core
from paceline._util.arguments import one_of
from paceline._util.option_values_and_selections import SOLUTE
from paceline.analysis.base import AnalysisBase, table_in_time
from paceline.analysis.kernels import CoreRows, fill_row
from paceline.analysis.results import Results
from paceline.analysis.updating_groups import GroupFinder, follow_if_changing
from paceline.block import Block
from paceline.contract.analysis_declaration import Declaration, Member
from paceline.contract.analysis_kinds import PerFrame
from paceline.contract.run_info_and_descriptions import describe_atoms
from paceline.contract.system_interface import Atoms, System
from paceline.errors import SelectionError
from paceline.performance.number_format import many
from paceline.transform.bonds_and_compounds import compound_of_atoms
from paceline.transform.compare_atom_names import name_atom
from paceline.transform.masses import masses_of
from paceline.transform.selections_and_weights import check_not_empty, known_weights

#: Kinds of compounds for each of which values are computed.
COMPOUNDS = ("residues", "segments", "fragments")
#: Number of values that the kernel computes for a compound.
N_NUMBERS = 9


class Gyration(AnalysisBase):
    r"""Radius of gyration, moments of the gyration tensor, asphericity and shape parameter.

    $$R_\mathrm{g}^2 = \frac{1}{M} \sum_i m_i \left|\mathbf{x}_i - \mathbf{c}\right|^2, \quad
      \mathsf{T} = \frac{1}{M} \sum_i m_i (\mathbf{x}_i - \mathbf{c})
                   (\mathbf{x}_i - \mathbf{c})^\mathsf{T}$$

    with the center of mass $\mathbf{c}$ and the mass $M$. With the eigenvalues $\lambda_k$ of
    $\mathsf{T}$ and their mean $\bar\lambda$, asphericity and shape parameter are (Dima &
    Thirumalai 2004, J. Phys. Chem. B 108, 6564)

    $$\Delta = \frac{3}{2} \frac{\sum_k (\lambda_k - \bar\lambda)^2}{(\sum_k \lambda_k)^2}, \quad
      S = 27 \frac{\prod_k (\lambda_k - \bar\lambda)}{(\sum_k \lambda_k)^3}$$

    All values equal MDAnalysis's `AtomGroup.radius_of_gyration`, `gyration_moments`,
    `asphericity` and `shape_parameter` in each frame. Molecules must be whole.

    Parameters
    ----------
    atomgroup : AtomGroup or Universe
        Atoms. For an UpdatingAtomGroup, workers evaluate the selection in each frame.
    compound : {"group", "residues", "segments", "fragments"}
        Compute the values for all atoms together, or for each residue, segment or molecule. For an
        UpdatingAtomGroup, the compounds are all that may contain selected atoms. In each frame,
        only the selected atoms of a compound are used.
    weights : {"mass", None}
        Weights of the atoms: masses, or equal weights for None.

    Attributes
    ----------
    results.rg : numpy.ndarray of float64, shape (n_frames,) or (n_frames, n_compounds)
        Radii of gyration, Å. This array and the following ones have an axis of compounds unless
        `compound` is "group". NaN if a position is NaN, and for damaged frames that were left out.
    results.rg_components : numpy.ndarray of float64, shape (..., 3)
        Radii of gyration about the axes x, y and z, Å, as in `gmx gyrate`.
    results.gyration_moments : numpy.ndarray of float64, shape (..., 3)
        Eigenvalues of the gyration tensor, ascending, Å².
    results.asphericity : numpy.ndarray of float64, shape (n_frames,) or (n_frames, n_compounds)
        From 0 (a sphere) to 1 (a straight line).
    results.shape_parameter : numpy.ndarray of float64, the same shape
        From -1/4 (oblate) over 0 (a sphere) to 2 (a straight line).
    results.compounds : numpy.ndarray of int64, shape (n_compounds,)
        Indices of the residues, segments or fragments in the Universe; not for "group".
    results.counts : numpy.ndarray of int64, shape (n_frames,) or (n_frames, n_compounds)
        Number of atoms in each frame, only for an UpdatingAtomGroup. If damaged frames were left
        out, the dtype is float64, and the number is NaN for these frames. If no atom has a mass,
        all values are NaN, and for the whole group, a warning names the first such frame. If only
        one atom has a mass, the radius is 0, and the shape is NaN.
    results.frames : numpy.ndarray of int64, shape (n_frames,)
        Frame numbers.
    results.times : numpy.ndarray of float64, shape (n_frames,)
        Times of these frames, ps.

    Raises
    ------
    SelectionError
        The group is empty, no atom can be in an UpdatingAtomGroup, or a compound of a fixed group
        has less than two atoms with a mass.
    UnsupportedError
        The topology has no masses, or no bonds for fragments, or workers cannot evaluate an
        UpdatingAtomGroup.
    ValueError
        Parameters are invalid. In the run, as `AnalysisError`: all atoms of a compound have the
        same position.

    Examples
    --------
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import PSF, DCD
    >>> u = paceline.Universe(PSF, DCD)
    >>> gyration = Gyration(u.select_atoms("protein")).run(stop=3)
    >>> gyration.results.rg.round(2)
    array([16.67, 16.67, 16.73])
    """

    declaration = Declaration(
        name="gyration",
        summary="radius of gyration and shape",
        title="radius of gyration",
        description=(
            "Radius of gyration (Å), also about x, y and z, moments of the gyration tensor (Å²), "
            "asphericity and shape parameter of each frame, weighted by mass. Molecules must be "
            "whole (--unwrap)."
        ),
        section="structure.md#radius-of-gyration-and-shape",
        select=SOLUTE,
        examples=(
            "adk.psf adk.dcd -o gyration.csv --plot gyration.png",
            "md.tpr md.xtc --select protein --unwrap --compound segments -o gyration.npz",
        ),
        options=("compound",),
        batteries=(
            Member("protein", {"select": "protein"}, place=3),
            Member("coarse-grained protein", {"select": "protein"}, place=3),
            Member("nucleic acid", {"select": "nucleic"}, name="gyration-nucleic", place=3),
        ),
    )

    needs_one_location = True

    needs_whole = True

    def __init__(
        self,
        atomgroup: Atoms | System,
        *,
        compound: Literal["group", "residues", "segments", "fragments"] = "group",
        weights: Literal["mass"] | None = "mass",
        verbose: bool = False,
    ):
        atoms, self._finder, self._described = follow_if_changing(atomgroup, "Gyration")
        super().__init__(atoms, verbose=verbose)
        check_not_empty(self.atomgroup, "Gyration: the group")
        # The decoded atoms of an updating group include those on which its selection depends, and
        # their molecules need not be whole.
        self.needs_whole = self._finder is None
        self.needs_together = self.needs_whole and compound == "group"
        self.compound, self.weights = compound, known_weights(weights)
        self._numbers = self._compound_of_atoms()
        counted = self._numbers
        if self._finder is not None and compound != "group":
            counted = counted[self._finder.selectable]
        self._compounds, self._sizes = np.unique(counted, return_counts=True)
        if len(self._compounds) == 0:
            raise SelectionError(f"Gyration: no atom can be in {self._described}: no {compound}")
        self._weights = None
        if weights is not None:
            self._weights = masses_of(self.atomgroup, "Gyration, weights='mass',")
            if not (np.isfinite(self._weights).all() and (self._weights >= 0).all()):
                raise ValueError("Gyration: masses must be finite numbers, and none negative")
        if self._finder is None:
            self._order = np.argsort(self._numbers, kind="stable")
            self._check_shapes()
        if compound != "group":
            self.row_bytes = 8 * (N_NUMBERS + 1) * len(self._compounds)

    @property
    def indices(self) -> np.ndarray:
        """Indices of the atoms, by compound; for an updating group, of all atoms to decode."""
        atoms = self.atomgroup.indices
        return atoms if self._finder is not None else atoms[self._order]

    def parameters(self) -> dict[str, object]:
        """Return the parameters that are saved with the results."""
        return {
            "atoms": self._described or describe_atoms(self.atomgroup),
            "compound": self.compound,
            "weights": self.weights or "none",
        }

    def prepare(self) -> PerFrame:
        """Make the worker part from sizes and weights of the compounds."""
        if self._finder is not None:
            # Atoms that cannot be selected may get a wrong index, which is never used.
            places = np.searchsorted(self._compounds, self._numbers)
            return _OfFrames(self._finder, places, len(self._compounds), self._weights)
        weights = None if self._weights is None else self._weights[self._order]
        shape = (len(self._sizes), N_NUMBERS)
        return CoreRows("gyration", self._sizes, weights, shape=shape)

    def finish(self, value: np.ndarray) -> None:
        """Split the values of the kernel into results."""
        titles = {"Rg (Å)": "Rg"}
        arrays: dict[str, np.ndarray] = {}
        if self.compound == "group":
            value = value[:, 0]
        else:
            kind = self.compound[:-1]
            titles = {f"Rg of {kind} {k} (Å)": f"{kind} {k}" for k in self._compounds}
            arrays["compounds"] = self._compounds
        rg = value[..., 0]
        columns = {}
        if self._finder is not None:
            counts, value = value[..., -1], value[..., :-1]
            known = np.isfinite(counts)
            arrays["counts"] = counts.astype(np.int64) if known.all() else counts
            columns["atoms"] = arrays["counts"].reshape(len(counts), -1).sum(axis=1)
            if self.compound == "group":
                self._warn_of_frames(known & np.isnan(rg))
        columns.update(zip(titles, np.atleast_2d(rg.T), strict=True))
        if self.compound == "group":
            names = ["Rg about x (Å)", "Rg about y (Å)", "Rg about z (Å)"]
            names += ["least moment (Å²)", "middle moment (Å²)", "largest moment (Å²)"]
            columns.update(zip([*names, "asphericity", "shape"], value.T[1:], strict=True))
        table = table_in_time(self, columns, titles, "radius of gyration (Å)", counts=["atoms"])
        self.results = Results(
            table=table,
            provenance=self.record(),
            rg=rg,
            rg_components=value[..., 1:4],
            gyration_moments=value[..., 4:7],
            asphericity=value[..., 7],
            shape_parameter=value[..., 8],
            frames=self.frames,
            times=self.times,
            **arrays,
        )

    def _warn_of_frames(self, without: np.ndarray) -> None:
        """Warn of frames in which no atom of the group has a mass."""
        if without.any():
            what = "atom" if self.weights is None else "atom with a mass"
            self.remark(
                "without atoms",
                f"Gyration: {self._described} has no {what} in {many(int(without.sum()), 'frame')},"
                f" the first is {self.frames[without][0]}: values are NaN in these frames",
            )

    def _compound_of_atoms(self) -> np.ndarray:
        """Return the number of each atom's compound."""
        if self.compound == "group":
            return np.zeros(len(self.atomgroup), dtype=np.int64)
        one_of("compound", self.compound, "group", *COMPOUNDS)
        numbers = compound_of_atoms(self.atomgroup, self.compound, "Gyration")
        return np.asarray(numbers, dtype=np.int64)

    def _check_shapes(self) -> None:
        """Raise `SelectionError` if a compound has less than two atoms with a mass."""
        heavy = np.ones(len(self._order), bool)
        if self._weights is not None:
            heavy = self._weights[self._order] > 0
        firsts = np.cumsum(self._sizes) - self._sizes
        few = np.flatnonzero(np.add.reduceat(heavy, firsts, dtype=np.int64) < 2)
        if len(few):
            one, verb = "the group", "has"
            if self.compound != "group":
                one, verb = f"{len(few)} of the {self.compound}", "have"
            first = self.atomgroup[self._order[firsts[few[0]]]]
            with_mass = "" if self._weights is None else " with a mass"
            raise SelectionError(
                f"Gyration: {one} (the first is that of {name_atom(first)}) {verb} less than two "
                f"atoms{with_mass}"
                ", so the shape is undefined; use another selection"
            )


class _OfFrames(PerFrame):
    """Worker part for an updating group: values of each compound, and its number of atoms."""

    returns_new = True

    def __init__(
        self,
        finder: GroupFinder,
        compounds: np.ndarray,
        n_compounds: int,
        weights: np.ndarray | None,
    ):
        self._finder, self._weights = finder, weights
        self._compounds, self._n_compounds = compounds, n_compounds

    def compute(self, block: Block) -> np.ndarray:
        """Compute the rows of a block, float64, shape (n_frames, n_compounds, N_NUMBERS + 1)."""
        found = np.full((len(block), self._n_compounds, N_NUMBERS + 1), np.nan)
        for row, (places, columns) in enumerate(self._finder.by_frame(block)):
            if block.held[row]:
                self._compute_frame(block, row, places, columns, found[row])
        return found

    def _compute_frame(
        self, block: Block, row: int, places: np.ndarray, columns: np.ndarray, out: np.ndarray
    ) -> None:
        n_compounds, compounds = self._n_compounds, self._compounds[places]
        weights = None if self._weights is None else self._weights[places]
        heavy = slice(None) if weights is None else weights > 0
        n_heavy = np.bincount(compounds[heavy], minlength=n_compounds)
        out[:, -1] = sizes = np.bincount(compounds, minlength=n_compounds)
        out[n_heavy == 1, : N_NUMBERS - 2] = 0.0  # as in MDAnalysis; a point has no shape
        with_shape = n_heavy > 1
        if not with_shape.any():
            return
        order = np.argsort(compounds, kind="stable")
        order = order[with_shape[compounds[order]]]
        kernel = _core.RowKernel.gyration(
            columns[order], sizes[with_shape], None if weights is None else weights[order]
        )
        numbers = np.empty((1, kernel.n_columns))
        fill_row(kernel, block, row, numbers)
        out[with_shape, :-1] = numbers.reshape(-1, N_NUMBERS)
