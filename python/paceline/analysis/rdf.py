"""Radial distribution functions, with the parameters and results of MDAnalysis.analysis.rdf."""

import math
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Literal, Self, TypeAlias

import numpy as np

from paceline._util.arguments import check_range, one_of, whole_number
from paceline._util.machine_and_software import free_memory
from paceline._util.option_values_and_selections import WATER_OXYGENS
from paceline.analysis import name_of_mdanalysis
from paceline.analysis.base import AnalysisBase, shared_labels
from paceline.analysis.image_warnings import beyond_half_the_cell
from paceline.analysis.jackknife_intervals import WithParts, errors_of_run, in_parts
from paceline.analysis.kernels import (
    ChangingCenters,
    ChangingCompounds,
    ChangingRdf,
    CoreRdf,
    CoreSitePairs,
    RdfCounts,
    RdfGroup,
    SparseCounts,
)
from paceline.analysis.results import Results
from paceline.analysis.table import Table, title_of_band
from paceline.analysis.updating_groups import describe_group, follow_any
from paceline.block import cell_of
from paceline.contract.analysis_declaration import Declaration, Member
from paceline.contract.analysis_kinds import Reduction
from paceline.contract.run_info_and_descriptions import describe_atoms
from paceline.contract.system_interface import Atoms, System
from paceline.errors import MissingDataError, SelectionError, UnsupportedError
from paceline.performance.number_format import amount
from paceline.transform.bonds_and_compounds import (
    CompoundCenters,
    Compounds,
    compound_of_atoms,
    compounds_of,
)
from paceline.transform.selections_and_weights import check_not_empty, check_static, updates_itself

if TYPE_CHECKING:
    import MDAnalysis.analysis.rdf

#: Titles of `rdf` in tables and figures, by norm.
TITLES = {"rdf": "g(r)", "density": "n(r) (Å⁻³)", "none": "pairs per frame"}

#: Compounds whose centers can replace atoms.
COMPOUNDS = ("residues", "segments", "molecules", "fragments")

#: Maximum number of pairs of atoms for which the table of `InterRDF_s` has one column each.
MOST_COLUMNS = 100
#: Maximum number of arrays, each as large as the array of counts, that exist at a time in a run.
ARRAYS = 6
#: Maximum number of pairs of groups in the record of a run.
LISTED_PAIRS = 10


class InterRDF(AnalysisBase):
    r"""Radial distribution function between the atoms of two groups.

    $$g_{ab}(r) = \frac{V}{N_a N_b} \sum_{i=1}^{N_a} \sum_{j=1}^{N_b}
              \left\langle \delta(|\mathbf{r}_i - \mathbf{r}_j| - r) \right\rangle$$

    Distances are those between nearest images in the cell of each frame, or without images if a
    frame has no cell. They are rounded as in MDAnalysis, so that counts agree. This matters in
    files with a precision of 0.01 Å, where many distances are exactly at the limit of two bins. If
    `g1` and `g2` have common atoms, the distance 0 of an atom to itself is counted, as in
    MDAnalysis.

    Parameters
    ----------
    g1, g2 : AtomGroup
        Groups from one Universe; they may be equal or have common atoms. For an
        UpdatingAtomGroup, workers evaluate the selection in each frame. $N_a N_b$ is then the mean
        number of pairs over frames, and a frame in which a group is empty contributes 0 pairs.
    nbins : int
        Number of bins.
    range : (float, float)
        Start of the first bin and end of the last one, Å.
    norm : {"rdf", "density", "none"}
        Quantity in `results.rdf`; for "rdf", $g_{ab}(r)$; for "density", the density of atoms of
        `g2` around an atom of `g1`, summed over `g1` and per frame (Å⁻³); for "none", the number of
        pairs per frame.
    exclusion_block : (int, int), optional
        Leave out pairs within a molecule. The two numbers are the numbers of consecutive atoms per
        molecule in `g1` and in `g2`.
    exclude_same : {"residue", "segment", "chain", "fragment"}, optional
        Leave out pairs in the same unit of this kind. Unlike `exclusion_block`, this does not
        change the norm.
    backend : str
        Accepted for compatibility with MDAnalysis, and ignored.
    compound : str or (str or None, str or None), optional
        Use centers of "residues", "segments", "molecules" or "fragments" instead of atoms, for both
        groups, or (with two values) for each of them. A center is computed from the atoms in the
        group; an UpdatingAtomGroup may contain other atoms in each frame. `exclusion_block` then
        contains numbers of compounds.
    center : {"mass", "geometry"}
        Use centers of mass, or centers of geometry.
    unwrap : bool
        Make molecules whole along their bonds before centers are computed, as in
        `paceline.transform.unwrap`; all atoms of these molecules are then decoded. With False,
        positions after the run's transformations are used, and the center of a broken compound is
        wrong.
    errors : bool
        Also compute 95 % intervals of all values, from parts of the run.

    Attributes
    ----------
    results.bins : numpy.ndarray of float64, shape (nbins,)
        Centers of the bins, Å.
    results.edges : numpy.ndarray of float64, shape (nbins + 1,)
        Limits of the bins, Å.
    results.count : numpy.ndarray of float64, shape (nbins,)
        Number of pairs in each bin, summed over frames.
    results.rdf : numpy.ndarray of float64, shape (nbins,)
        The function with the chosen norm. With ``norm="rdf"`` it is NaN, with a warning, if
        updating groups have no pair of atoms in any frame.
    results.cdf : numpy.ndarray of float64, shape (nbins,)
        After `get_cdf`: running coordination number, up to the end of each bin.
    results.volume_cum : float
        Sum of the cell volumes over frames, Å³; only with ``norm="rdf"``.
    results.rdf_interval : numpy.ndarray of float64, shape (nbins,)
        With `errors`: half the widths of the 95 % intervals of `rdf`, in its unit; NaN if a value
        is the same in all parts of the run, such as 0. See `paceline.analysis.jackknife_intervals`.
    results.cdf_interval : numpy.ndarray of float64, shape (nbins,)
        With `errors`: half the widths of the 95 % intervals of the running coordination number.

    Raises
    ------
    SelectionError
        A fixed group is empty; a compound has no mass, or belongs to several molecules; or no atom
        can be in an updating group of compounds.
    UnsupportedError
        The groups belong to different Universes; the topology lacks the compounds, their masses,
        or bonds to make them whole; workers cannot evaluate an UpdatingAtomGroup; or
        `exclusion_block` is used with such a group.
    ValueError
        Parameters are invalid. In the run, as `AnalysisError`: a frame has no cell with
        ``norm="rdf"``, or an invalid cell; positions are not finite; or bonds of whole molecules
        are longer than half the cell.

    Examples
    --------
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import GRO, XTC
    >>> water = paceline.Universe(GRO, XTC).select_atoms("name OW")
    >>> rdf = InterRDF(water, water, nbins=4, range=(2.0, 4.0)).run()
    >>> rdf.results.bins, rdf.results.rdf.round(2)
    (array([2.25, 2.75, 3.25, 3.75]), array([0.  , 2.09, 0.99, 0.98]))

    Centers of mass of the side chains around each other:

    >>> from MDAnalysisTests.datafiles import TPR
    >>> protein = paceline.Universe(TPR, XTC).select_atoms("protein and not backbone")
    >>> rdf = InterRDF(protein, protein, 2, (3.0, 9.0), compound="residues").run()
    >>> rdf.results.count
    array([ 6780., 16308.])

    Water near the protein, selected again in each frame, around all water:

    >>> near = water.universe.select_atoms("name OW and around 3 protein", updating=True)
    >>> rdf = InterRDF(near, water, nbins=4, range=(2.0, 4.0)).run(stop=2)
    >>> rdf.results.rdf.round(2)
    array([0.  , 1.61, 0.76, 0.7 ])
    """

    declaration = Declaration(
        name="rdf",
        summary="radial distribution function of one group of atoms around another",
        title="radial distribution function",
        description=(
            "Frequency of distances between the atoms of two groups, relative to a uniform "
            "distribution of atoms in the cell. Nearest images are used, so molecules need not be "
            "whole."
        ),
        section="distributions.md#radial-distribution-functions",
        select=WATER_OXYGENS,
        examples=(
            "md.tpr md.xtc -o rdf.csv --plot rdf.png",
            'md.tpr md.xtc --select "name OW" --select-2 "name HW1 HW2" --exclusion-block 1 2',
            'md.tpr md.xtc --select "resname NA" --select-2 "name OW" --range 0 8 --nbins 160',
            "md.psf md.dcd --select protein --exclude-same residue --norm none",
            (
                'md.tpr md.xtc --select "resname LIG" --compound residues --select-2 "name OW" '
                "--compound-2 atoms"
            ),
            'md.tpr md.xtc --select "resname SOL" --compound molecules --geometry',
            "md.tpr md.xtc --errors -o rdf.csv --plot rdf.png",
            'md.tpr md.xtc --select "name NZ" --select-2 "name OE1 OE2" --sites -o sites.npz',
        ),
        batteries=(
            Member(
                "liquid",
                {"g1": WATER_OXYGENS, "g2": WATER_OXYGENS, "exclusion_block": [1, 1], "nbins": 150},
                name="rdf-water",
                place=1,
            ),
        ),
        counterpart="rdf.InterRDF",
    )

    needs_one_location = True

    def __init__(
        self,
        g1: Atoms,
        g2: Atoms,
        nbins: int = 75,
        range: Sequence[float] = (0.0, 15.0),
        norm: Literal["rdf", "density", "none"] = "rdf",
        exclusion_block: Sequence[int] | None = None,
        exclude_same: Literal["residue", "segment", "chain", "fragment"] | None = None,
        backend: str = "serial",
        verbose: bool = False,
        *,
        compound: str | Sequence[str | None] | None = None,
        center: str = "mass",
        unwrap: bool = True,
        errors: bool = False,
    ):
        super().__init__(g1.universe if updates_itself(g1) else g1, verbose=verbose)
        # `UpdatingAtomGroup.atoms` is a fixed group, with the atoms selected in the current frame.
        self.g1, self.g2 = (one if updates_itself(one) else one.atoms for one in (g1, g2))
        if self.g1.universe is not self.g2.universe:
            raise UnsupportedError("InterRDF: g1 and g2 must belong to the same Universe")
        for name, group in (("g1", self.g1), ("g2", self.g2)):
            if not updates_itself(group):
                check_not_empty(group, f"InterRDF: {name}")
        self.norm = str(norm).lower()
        one_of("norm", self.norm, *TITLES)
        self.nbins, self.range = whole_number("nbins", nbins, 1), range
        self._edges = _edges(self.nbins, range)
        self.exclusion_block, self.exclude_same = exclusion_block, exclude_same
        self.compound, self.center, self.unwrap = compound, center, unwrap
        self.errors = errors
        self._found = follow_any((self.g1, self.g2), "InterRDF")
        if self._found is not None and exclusion_block is not None:
            raise UnsupportedError(
                f"InterRDF: exclusion_block={exclusion_block!r} needs groups whose atoms do not "
                "change from frame to frame: use exclude_same"
            )
        self._sites = self._find_sites()
        self._labels = self._find_labels()
        self._centers: CompoundCenters | None = None
        if compound is not None:
            groups = self._sites
            if self._found is None and self._are_same:
                groups = groups[:1]
            self._centers = CompoundCenters(groups, g1.universe, bool(unwrap), "InterRDF")

    @property
    def indices(self) -> np.ndarray:
        """Indices of the atoms that the run reads.

        Without compounds and updating groups, these are the atoms of `g1`, then those of `g2`.
        Otherwise, these are the atoms from which centers of compounds are computed (if there are
        compounds), then the atoms that selections need (if there are updating groups).
        """
        if self._centers is None and self._found is None:
            return np.concatenate([self.g1.indices, self.g2.indices])
        parts = [] if self._centers is None else [self._centers.indices]
        return np.concatenate([*parts, *(group.read for group in self._found or ())])

    SHARED_RESULTS = ("bins", "edges", "count", "rdf", "volume_cum")

    @classmethod
    def from_mdanalysis(cls, theirs: "MDAnalysis.analysis.rdf.InterRDF") -> Self:
        """Make an analysis with the parameters of MDAnalysis's analysis."""
        attributes: dict[str, Literal["residue", "segment", "chain"]] = {
            "resindices": "residue",
            "segindices": "segment",
            "chainIDs": "chain",
        }
        changing = updates_itself(theirs.g1) or updates_itself(theirs.g2)
        if changing and theirs.norm == "rdf":
            raise UnsupportedError(
                "InterRDF: MDAnalysis divides by the numbers of atoms in the present frame"
            )
        return cls(
            theirs.g1,
            theirs.g2,
            nbins=theirs.rdf_settings["bins"],
            range=theirs.rdf_settings["range"],
            norm=theirs.norm,
            exclusion_block=theirs._exclusion_block,
            exclude_same=attributes.get(theirs.exclude_same),
        )

    def parameters(self) -> dict[str, object]:
        """Return the parameters that are saved with the results."""
        centers = {"compound": self.compound, "center": self.center, "unwrap": self.unwrap}
        return {
            "g1": _describe(self.g1),
            "g2": _describe(self.g2),
            "nbins": self.nbins,
            "range": tuple(self.range),
            "norm": self.norm,
            "exclusion_block": self.exclusion_block or "none",
            "exclude_same": self.exclude_same or "none",
            **({} if self.compound is None else centers),
            **({"errors": True} if self.errors else {}),
        }

    def check_atoms(self) -> None:
        """Raise `MissingDataError` if the norm needs a cell, but the current frame has none."""
        trajectory = self.g1.universe.trajectory
        if self.norm == "rdf" and not cell_of(trajectory)[:, :6].any():
            raise MissingDataError(
                f"{trajectory.filename}: frame {trajectory.ts.frame} has no cell, but "
                "norm='rdf' needs a cell; norm='density' and norm='none' need none"
            )

    @property
    def needs_all_frames(self) -> bool:  # type: ignore[override]
        """True with `errors`: intervals use parts of the run, which depend on `n_frames`."""
        return self.errors

    def prepare(self) -> Reduction:
        """Make the worker part that counts the pairs of both groups."""
        part = self._counting()
        if not self.errors:
            return part
        return in_parts(part, len(self.frames), 8 * self.nbins, self.name)

    def _counting(self) -> Reduction[RdfCounts]:
        """Make the worker part that counts pairs; `prepare` may divide the run for intervals."""
        needs_cell = self.norm == "rdf"
        if self._found is not None:
            return ChangingRdf(
                self._edges,
                self._found,
                self._labels,
                needs_cell=needs_cell,
                centers=self._changing_centers(),
            )
        labels = self._labels or (None, None)
        groups = [RdfGroup(n, some) for n, some in zip(self._n_sites, labels, strict=True)]
        return CoreRdf(
            self._edges,
            groups,
            same=self._are_same,
            needs_cell=needs_cell,
            centers=self._centers,
        )

    def finish(self, value: RdfCounts | WithParts[RdfCounts]) -> None:
        """Divide the counts by the norm, and store the functions as results."""
        edges = self._edges
        parts = None
        if not isinstance(value, RdfCounts):
            value, parts = value
        self._n_centers = value.n_first
        bins = 0.5 * (edges[:-1] + edges[1:])
        count = value.counts.astype(np.float64)
        if value.n_frames and not count.any():
            distances = f"from {edges[0]:g} to {edges[-1]:g} Å apart"
            self.remark("pairs", f"InterRDF: no pair of atoms is {distances}")
        self.remark("images", _missing_pairs(self, edges, value.width))
        if self.norm == "rdf" and value.n_frames and not value.n_pairs:
            text = "InterRDF: in no frame do both g1 and g2 contain atoms: g(r) is NaN"
            self.remark("groups", text)
        rdf, running = self._functions(value)
        arrays = {"bins": bins, "edges": edges, "count": count, "rdf": rdf}
        if self.norm == "rdf":
            arrays["volume_cum"] = value.volume
        title = TITLES[self.norm]
        columns = {"r (Å)": bins, title: rdf, "count": value.counts, "N(r)": running}
        legend, bands, method = title, {}, {}
        if parts is not None:
            found = errors_of_run(self, self._counting(), (value, parts), self._functions)
            arrays["rdf_interval"], arrays["cdf_interval"] = found.interval
            bands = {one: title_of_band(one) for one in (title, "N(r)")}
            columns |= dict(zip(bands.values(), found.interval, strict=True))
            legend, method = f"{title} and 95 % interval", {"intervals": found.method}
        table = Table(
            *(columns, "r (Å)", {title: legend}, title),
            right={"N(r)": "N(r)"},
            right_label="coordination number N(r)",
            bands=bands,
        )
        self.results = Results(table=table, provenance={**self.record(), **method}, **arrays)

    def get_cdf(self) -> np.ndarray:
        """Compute the running coordination number, from the start of the range.

        If the groups have common atoms and the range begins at 0, each common atom counts itself.

        Returns
        -------
        numpy.ndarray of float64, shape (nbins,)
            Number of atoms of `g2` around an atom of `g1`, up to the end of each bin, averaged over
            the atoms of `g1` and over frames. Also stored in `results.cdf`.

        Raises
        ------
        NotRunError
            The analysis has not been run.
        """
        self.results.cdf = _running(self.results.count, self._n_centers)
        return self.results.cdf

    def _functions(self, value: RdfCounts) -> np.ndarray:
        """Compute `rdf` and the running coordination number: shape (2, nbins)."""
        count = value.counts.astype(np.float64)
        return np.stack([count / self._norms(value), _running(count, value.n_first)])

    def _norms(self, value: RdfCounts) -> np.ndarray:
        """Compute the divisor of the counts of each bin."""
        norms = np.full(self.nbins, float(value.n_frames))
        if self.norm != "none":
            norms *= 4 / 3 * math.pi * np.diff(self._edges**3)
        if self.norm == "rdf":
            if value.n_frames == 0:
                return norms * math.nan
            n_pairs = value.n_pairs / value.n_frames
            if n_pairs == 0:
                return norms * math.nan
            if self.exclusion_block is not None:
                n_pairs -= self._n_sites[0] * self.exclusion_block[1]
            norms *= n_pairs / (value.volume / value.n_frames)
        return norms

    def _find_labels(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Label the atoms or compounds of both groups; pairs with equal labels are excluded.

        Returns None if no pairs are excluded.
        """
        if self.exclude_same is not None:
            if self.exclusion_block is not None:
                raise ValueError("exclude_same and exclusion_block cannot be used together")
            return self._labels_of_sites(self.exclude_same)
        if self.exclusion_block is None:
            return None
        sizes = [int(size) for size in self.exclusion_block]
        if len(sizes) != 2 or min(sizes) < 1:
            raise ValueError(
                f"exclusion_block must be two numbers of atoms, not {self.exclusion_block!r}"
            )
        first, second = (
            (np.arange(n) // size).astype(np.uint32)
            for n, size in zip(self._n_sites, sizes, strict=True)
        )
        return first, second

    def _labels_of_sites(self, kind: str) -> tuple[np.ndarray, np.ndarray]:
        """Label the atoms or compounds of both groups.

        For an updating group, label all atoms that its selection needs (`GroupFinder.read`).
        """
        atoms = self.g1.universe.atoms
        values = []
        for sites in self._sites:
            of_atoms = shared_labels(atoms[sites.indices], kind)
            of_sites = of_atoms[sites.firsts]
            if not np.array_equal(np.repeat(of_sites, sites.sizes), of_atoms):
                raise ValueError(
                    f"exclude_same={kind!r}: atoms of one of the {sites.kind} belong to several "
                    f"{kind}s"
                )
            values.append(of_sites)
        if self._found is not None:
            values = [shared_labels(atoms[one.read], kind) for one in self._found]
        _, labels = np.unique(np.concatenate(values), return_inverse=True)
        first, second = np.split(labels.astype(np.uint32), [len(values[0])])
        return first, second

    def _find_sites(self) -> list[Compounds]:
        """Find the sites of each group, which are atoms or compounds.

        For an updating group, these are the sites of all atoms that may be selected.
        """
        kinds = self.compound
        if kinds is None or isinstance(kinds, str):
            kinds = kinds, kinds
        if len(kinds) != 2 or not {None, *COMPOUNDS}.issuperset(kinds):
            raise ValueError(
                "compound must be 'residues', 'segments', 'molecules' or 'fragments', or two of "
                f"these or None, not {self.compound!r}"
            )
        one_of("center", self.center, "mass", "geometry")
        groups = [self.g1, self.g2]
        if self._found is not None:
            groups = [self.g1.universe.atoms[one.read[one.selectable]] for one in self._found]
        for group, kind, name in zip(groups, kinds, ("g1", "g2"), strict=True):
            if kind is not None and len(group) == 0:
                raise SelectionError(f"InterRDF: no atom can be in {name}: there are no {kind}")
        return [
            compounds_of(group, kind, self.center, "InterRDF")
            for group, kind in zip(groups, kinds, strict=True)
        ]

    def _changing_centers(self) -> ChangingCenters | None:
        """Return the centers of compounds whose groups are updated; None without such groups."""
        if self._centers is None or self._found is None:
            return None
        atoms, groups = self.g1.universe.atoms, []
        for group, sites in zip(self._found, self._sites, strict=True):
            if sites.kind is None:
                places = np.cumsum(group.selectable) - 1
                groups.append(ChangingCompounds(np.arange(len(places)), places))
                continue
            places = np.full(len(atoms), -1)
            places[sites.indices] = np.arange(len(sites.indices))
            compounds = compound_of_atoms(atoms[group.read], sites.kind, "InterRDF")
            groups.append(ChangingCompounds(np.asarray(compounds), places[group.read]))
        return ChangingCenters(self._centers, groups)

    @property
    def _n_sites(self) -> tuple[int, int]:
        """Number of atoms, or of compounds, in each group."""
        return len(self._sites[0].sizes), len(self._sites[1].sizes)

    @property
    def _are_same(self) -> bool:
        """True if both groups contain the same sites in the same order with the same labels."""
        first, second = self._sites
        return (
            np.array_equal(first.indices, second.indices)
            and np.array_equal(first.sizes, second.sizes)
            and (self._labels is None or np.array_equal(*self._labels))
        )


#: Sum of the cell volumes, Å³; for each pair of atoms, the number of frames in each bin; smallest
#: height of a cell, Å.
SiteCounts: TypeAlias = tuple[float, SparseCounts, float]


class InterRDF_s(AnalysisBase):
    r"""Radial distribution functions of single pairs of atoms.

    $$g_{ij}(r) = V \left\langle \delta(|\mathbf{r}_i - \mathbf{r}_j| - r) \right\rangle$$

    Distances are those of `InterRDF`. Bins are truncated as in MDAnalysis: a distance equal to the
    end of the range is in no bin. Distances below the start of the range are in no bin either;
    MDAnalysis counts some of these in the first bin.

    Parameters
    ----------
    u : Universe
        Accepted for compatibility with MDAnalysis, and ignored.
    ags : sequence of (AtomGroup, AtomGroup)
        Pairs of groups from one Universe.
    nbins : int
        Number of bins.
    range : (float, float)
        Start of the first bin and end of the last one, Å.
    norm : {"rdf", "density", "none"}
        Quantity in `results.rdf`; for "rdf", $g_{ij}(r)$; for "density", the density of atom j
        around atom i (Å⁻³); for "none", the fraction of frames in which the distance is in the bin.
    density : bool
        Equivalent to ``norm="density"``; deprecated in MDAnalysis.
    backend : str
        Accepted for compatibility with MDAnalysis, and ignored.
    exclude_same : {"residue", "segment", "chain", "fragment"}, optional
        Leave out pairs of atoms in the same unit of this kind: their counts are 0.
    errors : bool
        Also compute 95 % intervals of all values, from parts of the run.

    Attributes
    ----------
    results.bins : numpy.ndarray of float64, shape (nbins,)
        Centers of the bins, Å.
    results.edges : numpy.ndarray of float64, shape (nbins + 1,)
        Limits of the bins, Å.
    results.count : list of numpy.ndarray of float64, shape (n_first, n_second, nbins)
        For each pair of groups: number of frames in which the distance of two atoms is in each bin.
    results.rdf : list of numpy.ndarray of float64, shape (n_first, n_second, nbins)
        For each pair of groups: the functions with the chosen norm.
    results.rdf_interval : list of numpy.ndarray of float64, shape (n_first, n_second, nbins)
        With `errors`: half the widths of the 95 % intervals of `rdf`, in its unit; NaN if a value
        is the same in all parts of the run, such as 0. See `paceline.analysis.jackknife_intervals`.
    results.indices : list of [numpy.ndarray of int64, numpy.ndarray of int64]
        For each pair of groups: indices of the atoms of both groups.
    results.cdf : list of numpy.ndarray of float64, shape (n_first, n_second, nbins)
        After `get_cdf`: running coordination numbers, up to the end of each bin.
    results.volume_cum : float
        Sum of the cell volumes over frames, Å³; only with ``norm="rdf"``.

    Raises
    ------
    SelectionError
        A group is empty, or there are no groups.
    UnsupportedError
        A group is an UpdatingAtomGroup, the groups belong to different Universes, or the counts of
        all pairs of atoms exceed the memory; the message contains their size.
    ValueError
        Parameters are invalid. In the run, as `AnalysisError`: a frame has no cell with
        ``norm="rdf"``, or an invalid cell, or positions are not finite.

    Notes
    -----
    Tables and figures have one column for each pair of atoms. For more than 100 pairs of atoms,
    they have one column for each pair of groups: the mean over its pairs of atoms.

    Examples
    --------
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import GRO, XTC
    >>> u = paceline.Universe(GRO, XTC)
    >>> lysine, water = u.select_atoms("name NZ and resid 13 50"), u.select_atoms("name OW")
    >>> found = InterRDF_s(u, [(lysine, water)], nbins=4, range=(2.0, 4.0)).run().results
    >>> found.rdf[0].shape, found.count[0].sum(axis=1)
    ((2, 11084, 4), array([[ 0., 24., 10., 11.],
           [ 0., 22., 18., 19.]]))
    """

    declaration = Declaration(
        name="rdf-sites",
        summary="radial distribution functions of pairs of atoms",
        section="distributions.md#radial-distribution-functions",
        counterpart="rdf.InterRDF_s",
        has_command=False,
    )

    needs_one_location = True

    SHARED_RESULTS = ("bins", "edges", "count", "rdf", "cdf", "indices", "volume_cum")

    def __init__(
        self,
        u: System | None,
        ags: Sequence[Sequence[Atoms]],
        nbins: int = 75,
        range: Sequence[float] = (0.0, 15.0),
        norm: Literal["rdf", "density", "none"] = "rdf",
        density: bool = False,
        backend: str = "serial",
        verbose: bool = False,
        *,
        exclude_same: Literal["residue", "segment", "chain", "fragment"] | None = None,
        errors: bool = False,
    ):
        if len(ags) == 0 or any(len(pair) != 2 for pair in ags):
            raise SelectionError("InterRDF_s: ags must contain at least one pair of groups")
        for group in chain.from_iterable(ags):
            # As in MDAnalysis, pairs are counted by their indices in the groups, so that the atoms
            # of a group must not change.
            check_static(group, "InterRDF_s", "use InterRDF, which finds")
        super().__init__(ags[0][0], verbose=verbose)
        self.errors = errors
        for number, pair in enumerate(ags):
            for group in pair:
                if group.universe is not self.atomgroup.universe:
                    raise UnsupportedError("InterRDF_s: groups must belong to the same Universe")
                check_not_empty(group.atoms, f"InterRDF_s: a group of ags[{number}]")
        self.ags = [[group.atoms for group in pair] for pair in ags]
        self.norm = "density" if density else str(norm).lower()
        one_of("norm", self.norm, *TITLES)
        self.nbins, self.range = whole_number("nbins", nbins, 1), range
        self._edges = _edges(self.nbins, range)
        self.exclude_same = exclude_same
        self._labels = None
        if exclude_same is not None:
            self._labels = [
                [shared_labels(group, exclude_same) for group in pair] for pair in self.ags
            ]
        self._check_room()
        # A group that occurs in several pairs is sent to workers only once.
        groups = {group.indices.tobytes(): group.indices for pair in self.ags for group in pair}
        self._groups = list(groups.values())
        places = {key: place for place, key in enumerate(groups)}
        self._pairs = np.array(
            [[places[group.indices.tobytes()] for group in pair] for pair in self.ags]
        )

    @classmethod
    def from_mdanalysis(cls, theirs: "MDAnalysis.analysis.rdf.InterRDF_s") -> Self:
        """Make an analysis with the parameters of MDAnalysis's analysis."""
        try:
            return cls(
                None,
                theirs.ags,
                nbins=theirs.rdf_settings["bins"],
                range=theirs.rdf_settings["range"],
                norm=theirs.norm,
            )
        except SelectionError as error:  # MDAnalysis allows empty groups
            raise UnsupportedError(f"{error}") from None

    @property
    def indices(self) -> np.ndarray:
        """Indices of the atoms of all groups; each distinct group occurs once."""
        return np.concatenate(self._groups)

    def parameters(self) -> dict[str, object]:
        """Return the parameters that are saved with the results."""
        few = [
            " and ".join(describe_atoms(group) for group in pair)
            for pair in self.ags[:LISTED_PAIRS]
        ]
        more = len(self.ags) - len(few)
        return {
            "ags": "; ".join([*few, f"{more} more pairs"] if more else few),
            "nbins": self.nbins,
            "range": tuple(self.range),
            "norm": self.norm,
            "exclude_same": self.exclude_same or "none",
            **({"errors": True} if self.errors else {}),
        }

    @property
    def needs_all_frames(self) -> bool:  # type: ignore[override]
        """True with `errors`: intervals use parts of the run, which depend on `n_frames`."""
        return self.errors

    def prepare(self) -> Reduction:
        """Make the worker part from the groups and the pairs of groups to count."""
        part = self._counting()
        if not self.errors:
            return part
        return in_parts(part, len(self.frames), 8 * self._n_counts, self.name)

    def _counting(self) -> Reduction[SiteCounts]:
        """Make the worker part that counts pairs; `prepare` may divide the run for intervals."""
        sizes = np.array([len(group) for group in self._groups])
        limits = float(self.range[0]), float(self.range[1])
        return CoreSitePairs(
            sizes, self._pairs, limits, self.nbins, self._n_counts, needs_cell=self.norm == "rdf"
        )

    def finish(self, value: SiteCounts | WithParts[SiteCounts]) -> None:
        """Store the functions of all pairs of atoms as results."""
        value, parts = value if len(value) == 2 else (value, None)
        volume, found, width = value
        edges = self._edges
        self.remark("images", _missing_pairs(self, edges, width))
        self._n_counted = found.n_frames
        count, rdf = self._functions(value)
        bins = 0.5 * (edges[:-1] + edges[1:])
        arrays: dict[str, object] = {"bins": bins, "edges": edges, "count": count, "rdf": rdf}
        arrays["indices"] = [[group.indices for group in pair] for pair in self.ags]
        if self.norm == "rdf":
            arrays["volume_cum"] = volume
        method: dict[str, str] = {}
        half: list[np.ndarray] = []
        if parts is not None:
            errors = errors_of_run(self, self._counting(), (value, parts), self._flat_functions)
            # `_flat_functions` returns the functions of all pairs of atoms, then one mean function
            # for each pair of groups.
            ends = np.cumsum([one.size for one in rdf])
            *of_pairs, of_means = np.split(errors.interval, ends)
            half += [flat.reshape(one.shape) for flat, one in zip(of_pairs, rdf, strict=True)]
            arrays["rdf_interval"], method = [*half], {"intervals": errors.method}
            half.append(of_means.reshape(len(rdf), -1))
        table = self._table(bins, rdf, half)
        self.results = Results(table=table, provenance={**self.record(), **method}, **arrays)

    def _flat_functions(self, value: SiteCounts) -> np.ndarray:
        """Join the functions of all pairs of atoms, and their mean for each pair of groups."""
        _, rdf = self._functions(value)
        functions: list[np.ndarray] = [*rdf, *(one.mean(axis=(0, 1)) for one in rdf)]
        return np.concatenate([one.ravel() for one in functions])

    def _functions(self, value: SiteCounts) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Return the counts of each pair of groups, and these counts divided by the norm."""
        volume, found, _ = value
        edges, n_frames = self._edges, found.n_frames
        norms = np.full(self.nbins, float(n_frames))
        if self.norm != "none":
            norms *= 4 / 3 * math.pi * np.diff(edges**3)
        if self.norm == "rdf":
            norms *= 1 / (volume / n_frames) if n_frames else math.nan
        counts = found.to_counts(self._n_counts).astype(np.float64)
        count, first = [], 0
        for k, pair in enumerate(self.ags):
            shape = len(pair[0]), len(pair[1]), self.nbins
            count.append(counts[first : first + math.prod(shape)].reshape(shape))
            first += math.prod(shape)
            if self._labels is not None:
                left, right = self._labels[k]
                count[-1][left[:, None] == right] = 0
        return count, [one / norms for one in count]

    def get_cdf(self) -> list[np.ndarray]:
        """Compute running coordination numbers, from the start of the range.

        Returns
        -------
        list of numpy.ndarray of float64, shape (n_first, n_second, nbins)
            For each pair of groups: the fraction of frames in which the distance of two atoms is
            between the start of the range and the end of each bin. The sum over the second group
            is the running coordination number of each atom of the first group. Also stored in
            `results.cdf`.

        Raises
        ------
        NotRunError
            The analysis has not been run.
        """
        counts = self.results.count
        n = self._n_counted or math.nan
        self.results.cdf = [np.cumsum(one, axis=2) / n for one in counts]
        return self.results.cdf

    @property
    def _n_counts(self) -> int:
        """Number of pairs of atoms, times the number of bins."""
        return sum(len(first) * len(second) for first, second in self.ags) * self.nbins

    def _check_room(self) -> None:
        """Raise `UnsupportedError` if the counts exceed the free memory or the maximum number."""
        needed, free = 8 * ARRAYS * self._n_counts, free_memory()
        if self._n_counts >= 2**32 or (free is not None and needed > free):
            room = "more than the maximum" if free is None else f"{amount(free)} are free"
            n_pairs = self._n_counts // self.nbins
            raise UnsupportedError(
                f"InterRDF_s: {n_pairs:,} pairs of atoms with {self.nbins} bins each need "
                f"{amount(needed)} of memory, and {room}: use fewer atoms or bins, or InterRDF, "
                "which sums over all pairs"
            )

    def _table(self, bins: np.ndarray, rdf: list[np.ndarray], half: Sequence[np.ndarray]) -> Table:
        """Make the table with one column per pair of atoms, or per pair of groups.

        `half` contains half the widths of intervals: for each pair of groups those of its pairs of
        atoms, and at the end those of the means over pairs of atoms. It is empty without intervals.
        """
        title = TITLES[self.norm]
        name, _, unit = title.partition(" (")
        unit = f" ({unit}" if unit else ""
        columns, legend = {"r (Å)": bins}, {}
        if sum(one.shape[0] * one.shape[1] for one in rdf) <= MOST_COLUMNS:
            for pair, of_pair in zip(self.ags, rdf, strict=True):
                for (i, j), values in zip(
                    np.ndindex(of_pair.shape[:2]), of_pair.reshape(-1, len(bins)), strict=True
                ):
                    atoms = f"{pair[0].indices[i]}, {pair[1].indices[j]}"
                    columns[f"{name} of atoms {atoms}{unit}"] = values
                    legend[f"{name} of atoms {atoms}{unit}"] = atoms
        else:
            for number, of_pair in enumerate(rdf):
                one = f"mean {name} of ags[{number}]{unit}"
                columns[one], legend[one] = of_pair.mean(axis=(0, 1)), f"ags[{number}]"
        bands = {}
        if half:
            of_atoms = np.concatenate([one.reshape(-1, len(bins)) for one in half[:-1]])
            rows = of_atoms if len(of_atoms) == len(legend) else half[-1]
            for one, row in zip(legend, rows, strict=True):
                bands[one] = title_of_band(one)
                columns[bands[one]] = row
        return Table(columns, "r (Å)", legend, title, bands=bands)


def _running(count: np.ndarray, n_centers: int) -> np.ndarray:
    """Mean number of atoms of `g2` around an atom of `g1`, up to the end of each bin.

    `n_centers` is the number of atoms of `g1`, summed over frames. NaN if it is 0.
    """
    return np.cumsum(count) / n_centers if n_centers else np.full(len(count), math.nan)


def _describe(group: Atoms) -> str:
    """Describe a group for the record of a run; an updating group by its selections."""
    return describe_group(group) if updates_itself(group) else describe_atoms(group)


def _edges(nbins: int, range: Sequence[float]) -> np.ndarray:
    """Compute the limits of the bins, Å, as NumPy's histograms do."""
    limits = np.asarray(range, dtype=np.float64)
    if limits.shape != (2,) or not np.isfinite(limits).all() or limits[1] <= max(0, limits[0]):
        raise ValueError(
            f"range must be two finite numbers, the second above 0 and the first, not {range!r}"
        )
    check_range(range)
    return np.histogram_bin_edges([], nbins, (limits[0], limits[1]))


def _missing_pairs(analysis: AnalysisBase, edges: np.ndarray, width: float) -> str | None:
    """Return a warning if pairs in the range are farther apart than half the cell; otherwise None.

    `width` is the smallest height of a cell, Å. The center of the last bin counts as the end of the
    range.
    """
    what = f"range=({edges[0]:g}, {edges[-1]:g})"
    return beyond_half_the_cell(analysis.name, what, (edges[-2] + edges[-1]) / 2, width)


def __getattr__(name: str) -> object:
    return name_of_mdanalysis(__name__, name)
