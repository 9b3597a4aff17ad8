"""Contacts, with the parameters and results of MDAnalysis.analysis.contacts."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, cast

import numpy as np

from paceline import _core
from paceline._util.arguments import function_name, length, one_of, whole_number
from paceline.analysis import name_of_mdanalysis
from paceline.analysis.base import AnalysisBase, table_in_time
from paceline.analysis.jackknife_intervals import WithParts, errors_of_run, in_parts
from paceline.analysis.kernels import CorePart, CoreRows, columns_of
from paceline.analysis.results import Results
from paceline.analysis.table import Image, Table, telling_columns, titles_of_limits
from paceline.analysis.values_on_structure import spread_over_atoms
from paceline.block import DAMAGED_STEP, Block, check_refused
from paceline.contract.analysis_declaration import PBC, REF, Declaration, Member, Option
from paceline.contract.analysis_kinds import PerFrame, Reduction
from paceline.contract.run_info_and_descriptions import describe_atoms
from paceline.contract.system_interface import Atoms, System, attribute_of, has_attribute
from paceline.errors import SelectionError, UnsupportedError
from paceline.transform.apply_transforms import check_positions
from paceline.transform.broken_reference import warn_of_broken_reference
from paceline.transform.compare_atom_names import other_order
from paceline.transform.selections_and_weights import check_not_empty, check_static

if TYPE_CHECKING:
    import MDAnalysis.analysis.contacts


class Contacts(AnalysisBase):
    r"""Fraction Q of the reference contacts that exist in each frame.

    A contact is a pair of atoms, one from the first and one from the second group, whose distance
    in the reference is at most `radius`. A contact with distance $r$, and $r_0$ in the reference,
    counts as

    | method | value of a contact |
    | --- | --- |
    | hard_cut | 1 if $r \le r_0$, else 0 |
    | radius_cut | 1 if $r \le$ `radius`, else 0 |
    | soft_cut | $1 / (1 + e^{\beta (r - \lambda r_0)})$ |

    and Q is the mean over the contacts (Best, Hummer & Eaton 2013, PNAS 110, 17874). For the Q of a
    protein fold, use "soft_cut". With "hard_cut", the default as in MDAnalysis, thermal motion
    alone breaks most contacts: heavy atoms of folded adenylate kinase, four residues apart, have
    Q = 0.31 with "hard_cut" and 0.97 with "soft_cut", 0.1 to 0.9 ns after the reference. Distances
    are rounded as in MDAnalysis, so that counts agree. This matters in files with a precision of
    0.01 Å, where many distances equal those in the reference.

    Parameters
    ----------
    u : Universe
        The system.
    select : (str, str) or (AtomGroup, AtomGroup)
        First and second group.
    refgroup : (AtomGroup, AtomGroup), or list of them
        The same atoms in one or several references, at the current frame of their Universe.
    method : {"hard_cut", "soft_cut", "radius_cut"} or callable
        Method, or a function of two ndarrays of float64 of shape (n_contacts,): distances in a
        frame, and distances in the reference. The function returns a number, and gets `kwargs`,
        too. Workers call it once per frame and reference.
    radius : float
        Maximum distance of a contact in the reference, Å.
    pbc : bool
        Use the nearest periodic images in the cell of each frame, if the frame has a cell.
    kwargs : dict, optional
        `beta` (Å⁻¹, 5 by default) and `lambda_constant` (1.8) of "soft_cut", or `radius` of
        "radius_cut".
    residues_apart : int
        Minimum number of residues along the chain from one atom of a contact to the other: 1
        excludes pairs within a residue, 4 also neighbours up to the third, as in Best, Hummer &
        Eaton. Residues are counted in the order of the topology. Pairs of two segments are never
        excluded. By default no pair is excluded. If groups share atoms, a contact of an atom with
        itself is possible, and a warning reports it.

    Attributes
    ----------
    r0 : list of numpy.ndarray of float64, shape (n_first, n_second)
        Distances in each reference, Å.
    initial_contacts : list of numpy.ndarray of bool, shape (n_first, n_second)
        Contacts of each reference.
    n_initial_contacts : int
        Number of contacts in the first reference.
    results.timeseries : numpy.ndarray of float64, shape (n_frames, 1 + n_references)
        Frame number, and Q for each reference, 0 to 1. Q is NaN if a position in a contact is NaN.
        Rows of damaged frames that were left out are NaN.

    Raises
    ------
    SelectionError
        A group is empty, or has another number of atoms than in a reference, or a reference has
        no contacts.
    UnsupportedError
        A group is an UpdatingAtomGroup, or belongs to another Universe.
    TypeError, ValueError
        Parameters are invalid, or positions in a reference are NaN. In the run, as
        `AnalysisError`: with `pbc`, the lengths and angles of a frame do not form a cell.

    Examples
    --------
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import PSF, DCD
    >>> u = paceline.Universe(PSF, DCD)
    >>> acidic = u.select_atoms("resname ASP GLU and name OE* OD*")
    >>> basic = u.select_atoms("resname ARG LYS and name NH* NZ")
    >>> q = Contacts(u, (acidic, basic), (acidic, basic), radius=6.0, method="radius_cut")
    >>> q.run(stop=4).results.timeseries[:, 1].round(2)
    array([1.  , 0.99, 0.97, 0.97])
    """

    declaration = Declaration(
        name="contacts",
        summary="fraction of native contacts",
        description=(
            "Fraction Q of the reference contacts that exist in each frame. A contact is a pair of "
            "atoms of --select and --select-2 within --radius in the reference. For the Q of a "
            "protein fold, use --method soft_cut. With hard_cut, the default, thermal motion alone "
            "breaks most contacts (heavy atoms of folded adenylate kinase: Q = 0.31 with hard_cut, "
            "0.97 with soft_cut)."
        ),
        section="hydrogen-bonds.md#native-contacts",
        variants=("q1q2",),
        examples=(
            (
                'md.tpr md.xtc --select "protein and name CA" --select-2 "protein and name CA" '
                "--radius 8 --residues-apart 4 --method soft_cut -o q.csv --plot q.png"
            ),
            (
                'md.tpr md.xtc --select "resname ASP GLU and name OE* OD*" --select-2 "resname '
                'LYS ARG and name NZ NH*" --method soft_cut --ref crystal.pdb'
            ),
        ),
        options=(
            "radius",
            Option(
                "method",
                "a contact exists if it is not longer than in the reference, by a smooth step "
                "(recommended), or if it is within the radius [%(default)s]",
            ),
            "residues_apart",
            REF,
            PBC,
        ),
        counterpart="contacts.Contacts",
        groups=("atoms of the second group",),
    )

    needs_one_location = True

    SHARED_RESULTS = ("timeseries",)

    def __init__(
        self,
        u: System,
        select: Sequence[str | Atoms],
        refgroup: Sequence[Any],
        method: Literal["hard_cut", "soft_cut", "radius_cut"] | Callable[..., float] = "hard_cut",
        radius: float = 4.5,
        pbc: bool = True,
        kwargs: Mapping[str, object] | None = None,
        *,
        residues_apart: int = 0,
        verbose: bool = False,
    ):
        from MDAnalysis.analysis import contacts

        residues_apart = whole_number("residues_apart", residues_apart, 0)
        length("radius", radius)
        for group in select:
            if not isinstance(group, str):
                check_static(group, "Contacts")
        for group in refgroup:
            if has_attribute(group, "atoms"):
                check_positions(group.universe.trajectory, "a reference")
        references = [refgroup] if has_attribute(refgroup[0], "positions") else refgroup
        for k, groups in enumerate(references):
            if not all(np.isfinite(group.positions).all() for group in groups):
                raise ValueError(f"Contacts: positions of reference {k} are not all finite numbers")
        theirs = contacts.Contacts(u, select, refgroup, method, radius, pbc, kwargs)
        self._copy_parameters(theirs, residues_apart, verbose)
        for groups in references if not pbc else ():
            if groups[0].universe is not u.universe:
                warn_of_broken_reference(groups[0] + groups[1], "Contacts")
        self._warn_of_atoms_with_themselves()
        for k, groups in enumerate(references):
            for number, pair in enumerate(zip((self.grA, self.grB), groups, strict=True)):
                what = f"refgroup[{number}]" if len(references) == 1 else f"refgroup[{k}][{number}]"
                self.remark(f"order of {what}", other_order(*pair, what))

    @classmethod
    def from_mdanalysis(cls, theirs: "MDAnalysis.analysis.contacts.Contacts") -> Self:
        """Make an analysis with the contacts of MDAnalysis's analysis."""
        ours = cls.__new__(cls)
        try:
            ours._copy_parameters(theirs)
        except (SelectionError, TypeError, ValueError) as error:
            raise UnsupportedError(f"Contacts: {error}") from error
        if ours._limits is None:
            raise UnsupportedError("Contacts: only MDAnalysis can call this function of the user")
        return ours

    def _copy_parameters(
        self,
        theirs: "MDAnalysis.analysis.contacts.Contacts",
        residues_apart: int = 0,
        verbose: bool = False,
    ) -> None:
        """Copy groups and reference distances from an analysis of MDAnalysis."""
        super().__init__(theirs.u, verbose=verbose)
        self.residues_apart = residues_apart
        self.u, self.select, self.pbc = theirs.u, theirs.select, theirs.pbc
        self.grA, self.grB = theirs.grA, theirs.grB
        self.r0, self.initial_contacts = theirs.r0, theirs.initial_contacts
        if residues_apart:
            near = self._find_near_in_chain()
            self.initial_contacts = [
                contacts & ~near if contacts.shape == near.shape else contacts
                for contacts in self.initial_contacts
            ]
        self.n_initial_contacts = int(np.sum(self.initial_contacts[0]))
        self.fraction_contacts = theirs.fraction_contacts
        self.fraction_kwargs = theirs.fraction_kwargs
        self._check_groups()
        self._limits, self._beta = self._find_limits()

    def _find_near_in_chain(self) -> np.ndarray:
        """Find pairs of atoms whose residues are too close along the chain of a segment."""
        first, second = self.grA, self.grB
        apart = np.abs(first.resindices[:, None] - second.resindices)
        return (apart < self.residues_apart) & (first.segindices[:, None] == second.segindices)

    def _warn_of_atoms_with_themselves(self) -> None:
        """Warn of contacts of atoms with themselves, which always exist and increase Q."""
        _, *places = np.intersect1d(self.grA.indices, self.grB.indices, return_indices=True)
        n_same = int(self.initial_contacts[0][tuple(places)].sum())
        if n_same:
            self.remark(
                "same atoms",
                f"Contacts: {n_same} of the {self.n_initial_contacts} contacts are of an atom with "
                "itself, and others may be within a residue. Exclude such pairs with "
                "residues_apart=1, or also neighbours in the chain with residues_apart=4",
            )

    def _check_groups(self) -> None:
        """Raise errors for invalid groups, and for references without contacts."""
        shape = len(self.grA), len(self.grB)
        for group in (self.grA, self.grB):
            check_not_empty(group, "Contacts: a group of select")
            if group.universe is not self.u.universe:
                raise UnsupportedError("Contacts: the groups of select must be atoms of u")
        for k, (r0, contacts) in enumerate(zip(self.r0, self.initial_contacts, strict=True)):
            if r0.shape != shape:
                raise SelectionError(
                    f"Contacts: reference {k} has groups of {r0.shape} atoms, but select {shape}"
                )
            if not contacts.any():
                raise SelectionError(
                    f"Contacts: reference {k} has no contacts: "
                    f"its shortest distance is {r0.min():.2f} Å; set a larger radius"
                )

    def _find_limits(self) -> tuple[list[np.ndarray] | None, float | None]:
        """Return the limit of each contact's distance (Å), by reference, and β of soft_cut (Å⁻¹).

        β is None for other methods; both are None for a user's function.
        """
        from MDAnalysis.analysis import contacts

        function, given = self.fraction_contacts, dict(self.fraction_kwargs)
        references = self._reference_distances
        beta = None
        if function is contacts.hard_cut_q:
            limits = references
        elif isinstance(function, partial) and function.func is contacts.radius_cut_q:
            radius = float(given.pop("radius", function.keywords["radius"]))
            length("radius", radius)
            limits = [np.full(len(r0), radius) for r0 in references]
        elif function is contacts.soft_cut_q:
            beta = float(given.pop("beta", 5.0))
            factor = float(given.pop("lambda_constant", 1.8))
            limits = [factor * r0 for r0 in references]
        else:
            return None, None
        if given:
            raise TypeError(f"Contacts: this method has no parameter {', '.join(given)}")
        return limits, beta

    @property
    def _reference_distances(self) -> list[np.ndarray]:
        """Return the distances (Å) of the contacts in each reference."""
        return [r0[there] for r0, there in zip(self.r0, self.initial_contacts, strict=True)]

    @property
    def _pairs(self) -> np.ndarray:
        """Return the atoms of the contacts of all references: int64, shape (n_contacts, 2)."""
        places = [np.nonzero(contacts) for contacts in self.initial_contacts]
        first, second = np.concatenate(places, axis=1)
        return np.column_stack([self.grA.indices[first], self.grB.indices[second]])

    @property
    def indices(self) -> np.ndarray:
        """Indices of the atoms in contacts, without repeats: int64, shape (n_atoms,)."""
        return np.unique(self._pairs)

    def parameters(self) -> dict[str, object]:
        """Return the parameters that are saved with the results."""
        function = self.fraction_contacts
        if isinstance(function, partial):
            function = function.func
        return {
            "first group": describe_atoms(self.grA),
            "second group": describe_atoms(self.grB),
            "method": function_name(function),
            "kwargs": dict(self.fraction_kwargs) or "none",
            "contacts": [int(contacts.sum()) for contacts in self.initial_contacts],
            "pbc": self.pbc,
            "residues apart": self.residues_apart,
        }

    def prepare(self) -> PerFrame:
        """Find the atoms of the contacts in the decoded atoms, and make the worker part."""
        pairs = np.searchsorted(self.indices, self._pairs).ravel()
        if self._limits is None:
            distances = CoreRows("pair_distances", pairs, bool(self.pbc))
            function = partial(self.fraction_contacts, **self.fraction_kwargs)
            return _FunctionOfDistances(distances, function, self._reference_distances)
        sizes = np.array([len(limits) for limits in self._limits])
        limits = np.concatenate(self._limits)
        return CoreRows("contacts", pairs, limits, sizes, bool(self.pbc), self._beta)

    def finish(self, value: np.ndarray) -> None:
        """Store the fractions as results, after a column of frame numbers."""
        timeseries = np.column_stack([self.frames, value])
        n_references = len(self.r0)
        names = ["Q"] if n_references == 1 else [f"Q{k + 1}" for k in range(n_references)]
        columns = dict(zip(names, value.T, strict=True))
        table = table_in_time(self, columns, {name: name for name in names}, "Q")
        self.results = Results(table=table, provenance=self.record(), timeseries=timeseries)


class _FunctionOfDistances(PerFrame):
    """Worker part that calls a user's function with the distances of the contacts."""

    def __init__(
        self, distances: CoreRows, function: Callable[..., float], references: list[np.ndarray]
    ):
        self._distances, self._function, self._references = distances, function, references

    def compute(self, block: Block) -> np.ndarray:
        """Call the function for each frame and reference."""
        rows = np.full((len(block), len(self._references)), np.nan)
        ends = np.cumsum([len(r0) for r0 in self._references])[:-1]
        for k, row in enumerate(rows):
            if block.steps[k] == DAMAGED_STEP:
                continue
            (distances,) = self._distances.compute(block[k : k + 1])
            parts = np.split(distances, ends)
            for n, (r, r0) in enumerate(zip(parts, self._references, strict=True)):
                row[n] = self._function(r, r0.copy())  # the function may modify its arguments
        return rows


def q1q2(
    u: System, select: str = "all", radius: float = 4.5, *, residues_apart: int = 0
) -> Contacts:
    """Compare the contacts of the first and of the last frame (Franklin et al. 2007).

    Parameters
    ----------
    u : Universe
        System; its current frame does not change.
    select : str
        Selection of the atoms.
    radius : float
        Maximum distance of a contact, Å.
    residues_apart : int
        Minimum number of residues along the chain between atoms in contact, as for `Contacts`.

    Returns
    -------
    Contacts
        Contacts with "radius_cut" and both frames as references; call `run`.

    Examples
    --------
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import PSF, DCD
    >>> contacts = q1q2(paceline.Universe(PSF, DCD), "name CA", radius=8)
    >>> contacts.run(step=40).results.timeseries.round(2)
    array([[ 0.  ,  1.  ,  0.95],
           [40.  ,  0.94,  0.95],
           [80.  ,  0.93,  0.96]])
    """
    references = []
    for frame in (0, -1):
        other = u.copy()
        other.trajectory[frame]
        group = other.select_atoms(select)
        references.append((group, group))
    given: dict[str, Any] = {"method": "radius_cut", "residues_apart": residues_apart}
    return Contacts(u, (select, select), references, radius=radius, **given)


#: Schemes that choose the atoms of a residue, as in MDTraj's `compute_contacts`.
SCHEMES = ("ca", "closest", "closest-heavy", "sidechain", "sidechain-heavy")

#: Backbone atoms of a residue, including those of terminal residues, by their names in the PDB,
#: CHARMM, Amber and GROMACS.
BACKBONE = (
    *("C", "CA", "N", "O", "HA", "H", "HN", "OXT", "OT"),
    *(name for k in "123" for name in (f"H{k}", f"{k}H", f"HN{k}", f"HT{k}")),
    *(name for k in "12" for name in (f"O{k}", f"OT{k}", f"OC{k}", f"OCT{k}")),
)


class ContactMap(AnalysisBase):
    """Contact map of residues: the fraction of frames in which two residues are in contact.

    Two residues are in contact if the shortest distance between their atoms is at most `cutoff`.
    The scheme chooses the atoms:

    | scheme | atoms |
    | --- | --- |
    | ca | CA |
    | closest | all |
    | closest-heavy | all but hydrogens |
    | sidechain | all but C, CA, N, O, HA, H, and the other H and O of terminal residues |
    | sidechain-heavy | as sidechain, without hydrogens except in glycine |

    The schemes are those of MDTraj's `compute_contacts`, except for terminal residues, where MDTraj
    counts H2, H3 and OXT as side chain. Hydrogens are identified by their elements. If the topology
    has no elements, hydrogens are atoms whose names begin with H.

    Parameters
    ----------
    atomgroup : AtomGroup or Universe
        Atoms whose residues are compared.
    cutoff : float
        Maximum distance of a contact, Å.
    scheme : {"ca", "closest", "closest-heavy", "sidechain", "sidechain-heavy"}
        Scheme that chooses the atoms of a residue, as in MDTraj.
    pbc : bool
        Use the nearest periodic images in the cell of each frame, if the frame has a cell.
    errors : bool
        Also compute 95 % intervals of the fractions, from parts of the run.

    Attributes
    ----------
    results.frequencies : numpy.ndarray of float64, shape (n_residues, n_residues)
        Fraction of frames in contact, 0 to 1; symmetric, with 1 on the diagonal. NaN if all
        frames were left out.
    results.frequency_intervals : numpy.ndarray of float64, shape (n_residues, n_residues, 2)
        With `errors`: lower and upper limits of the 95 % intervals of `frequencies`; NaN for pairs
        whose fraction is the same in all parts of the run, such as pairs in contact in all frames
        or in none, and for runs of fewer than 4 parts. See `paceline.analysis.jackknife_intervals`.
    results.counts : numpy.ndarray of int64, shape (n_residues, n_residues)
        Number of frames in contact.
    results.n_frames : int
        Number of analysed frames.
    results.resindices : numpy.ndarray of int64, shape (n_residues,)
        Index of each residue in the Universe.

    Raises
    ------
    SelectionError
        The group has fewer than two residues, or a residue has no atoms of the scheme.
    UnsupportedError
        The group is an UpdatingAtomGroup. In the run: intervals of so many residues need too much
        memory.
    ValueError
        The scheme is unknown, or the cutoff is not a length. In the run, as `AnalysisError`: a
        position is NaN, or with `pbc`, the lengths and angles of a frame do not form a cell.

    Examples
    --------
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import PSF, DCD
    >>> u = paceline.Universe(PSF, DCD)
    >>> contacts = ContactMap(u.select_atoms("resid 60-64"), cutoff=8.0, scheme="ca").run()
    >>> contacts.results.frequencies.round(2)[0]
    array([1. , 1. , 1. , 0.9, 1. ])
    """

    declaration = Declaration(
        name="contact-map",
        summary="fraction of frames in which residues are in contact",
        title="contact map",
        description=(
            "Fraction of frames in which two residues are in contact: the shortest distance "
            "between their atoms is at most --cutoff. The scheme chooses the atoms."
        ),
        section="hydrogen-bonds.md#contact-maps",
        select="protein",
        examples=(
            "adk.psf adk.dcd -o contacts.tsv --plot contacts.png",
            "adk.psf adk.dcd --scheme ca --cutoff 8 --plot contacts.pdf",
        ),
        on_structure="mean number of residues in contact with each residue",
        options=(
            "cutoff",
            "scheme",
            PBC,
            "errors",
        ),
        batteries=(Member("protein", {"select": "protein"}, place=7),),
    )

    needs_one_location = True

    def __init__(
        self,
        atomgroup: Atoms | System,
        cutoff: float = 4.5,
        *,
        scheme: Literal[
            "ca", "closest", "closest-heavy", "sidechain", "sidechain-heavy"
        ] = "closest-heavy",
        pbc: bool = True,
        errors: bool = False,
        verbose: bool = False,
    ):
        super().__init__(atomgroup, verbose=verbose)
        self.errors = errors
        self.cutoff, self.scheme, self.pbc = length("cutoff", cutoff), scheme, pbc
        one_of("scheme", scheme, *SCHEMES)
        chosen = self.atomgroup.unique
        self.residues = chosen.residues
        if len(self.residues) < 2:
            raise SelectionError(f"ContactMap: the group has {len(self.residues)} residues, not 2")
        self._atoms = chosen[_scheme_mask(chosen, scheme)]
        missing = self.residues.difference(self._atoms.residues)
        if len(missing):
            raise SelectionError(
                f"ContactMap: {missing[0]}, one of {len(missing)} residues, has no atoms for "
                f"scheme={scheme!r}; use another scheme, or exclude these residues"
            )
        # The worker part expects the atoms of one residue next to each other.
        self._atoms = self._atoms[np.argsort(self._atoms.resindices, kind="stable")]

    @property
    def indices(self) -> np.ndarray:
        """Indices of the atoms of the scheme, sorted by residue: int64, shape (n_atoms,)."""
        return self._atoms.indices

    def parameters(self) -> dict[str, object]:
        """Return the parameters that are saved with the results."""
        return {
            **super().parameters(),
            "cutoff": self.cutoff,
            "scheme": self.scheme,
            "pbc": self.pbc,
        }

    @property
    def needs_all_frames(self) -> bool:  # type: ignore[override]
        """True with `errors`: intervals use parts of the run, which depend on `n_frames`."""
        return self.errors

    def prepare(self) -> Reduction:
        """Make the worker part; with `errors`, it also stores counts of parts of the run."""
        part = self._counting()
        if not self.errors:
            return part
        n_bytes = 4 * len(self.residues) * (len(self.residues) - 1)
        return in_parts(part, len(self.frames), n_bytes, self.name)

    def _counting(self) -> "Reduction[Counts]":
        """Make the worker part that counts contacts over the whole run."""
        _, sizes = np.unique(self._atoms.resindices, return_counts=True)
        return _NearResidues(sizes, self.cutoff, bool(self.pbc))

    def finish(self, value: "Counts | WithParts[Counts]") -> None:
        """Make a symmetric matrix from the counts of pairs."""
        counted, of_parts = cast("WithParts[Counts]", value if self.errors else (value, None))
        n_frames, of_pairs = counted
        n_residues = len(self.residues)
        first, second = np.triu_indices(n_residues, k=1)
        counts = np.full((n_residues, n_residues), n_frames, dtype=np.int64)
        counts[first, second] = counts[second, first] = of_pairs
        with np.errstate(invalid="ignore"):
            frequencies = counts / np.float64(n_frames)
        resids = attribute_of(self.residues, "resids")
        if resids is None:
            resids = self.residues.resindices
        columns = {
            "residue": resids[first],
            "other residue": resids[second],
            **telling_columns(self.residues, {"": first, "other ": second}),
            "frequency": frequencies[first, second],
        }
        method, intervals = {}, {}
        if self.errors:
            found = errors_of_run(self, self._counting(), (counted, of_parts), _fractions)
            limits = found.limits(columns["frequency"])
            columns |= zip(titles_of_limits("frequency"), limits.T, strict=True)
            of_matrix = np.full((n_residues, n_residues, 2), np.nan)
            of_matrix[first, second] = of_matrix[second, first] = limits
            method, intervals = {"intervals": found.method}, {"frequency_intervals": of_matrix}
        edges = np.arange(n_residues + 1) - 0.5
        label = "fraction of frames in contact"
        parts = resids, resids
        image = Image(
            *(frequencies, edges, edges, "residue", "residue", label, parts),
            colours="Blues",
            limits=(0.0, 1.0),
        )
        y = {"frequency": "frequency"}
        keys = ("residue", "other residue")
        table = Table(columns, "residue", y, label, image=image, keys=keys)
        arrays = {"frequencies": frequencies, "counts": counts, "n_frames": n_frames}
        self.results = Results(
            table=table,
            provenance={**self.record(), **method},
            resindices=self.residues.resindices,
            **arrays,
            **intervals,
        )
        # Subtract the contact of each residue with itself.
        atoms = self.atomgroup[np.isin(self.atomgroup.resindices, self.residues.resindices)]
        others = spread_over_atoms(atoms, frequencies.sum(axis=1) - 1)
        title = "contacts of residue with others, mean number"
        self.results.with_values(self.on_first_frame(title, atoms, others))


#: Number of frames, and for each pair of residues the number of frames in contact.
Counts: TypeAlias = tuple[int, np.ndarray]


def _fractions(value: Counts) -> np.ndarray:
    """Fraction of frames in contact of each pair of residues."""
    return value[1] / (value[0] or np.nan)


class _NearResidues(CorePart, Reduction[Counts]):
    """Worker part that counts frames, and for each pair of residues the frames in contact."""

    splits_frames = True

    def __init__(self, sizes: np.ndarray, cutoff: float, periodic: bool):
        self._sizes, self._cutoff, self._periodic = sizes, cutoff, periodic

    def compute(self, block: Block) -> Counts:
        if self._bound is None:
            given = self._sizes, self._cutoff, self._periodic
            self._bound = _core.ContactMap(columns_of(block), *given)
        n_residues = len(self._sizes)
        counts = np.zeros(n_residues * (n_residues - 1) // 2, dtype=np.uint64)
        check_refused(block, self._bound.count(block.raw[0], block.cells, counts))
        return len(block), counts

    def merge(self, left: Counts, right: Counts) -> Counts:
        return left[0] + right[0], left[1] + right[1]


def _scheme_mask(atoms: Atoms, scheme: str) -> np.ndarray:
    """Return a mask, ndarray of bool, shape (n_atoms,), of the atoms that the scheme uses."""
    if scheme == "closest":
        return np.ones(len(atoms), dtype=bool)
    names = atoms.names.astype(str)
    if scheme == "ca":
        return names == "CA"
    elements = attribute_of(atoms, "elements")
    if elements is not None and all(elements):
        hydrogens = np.char.upper(elements.astype(str)) == "H"
    else:
        hydrogens = np.char.startswith(np.char.lstrip(names, "0123456789"), "H")
    if scheme == "closest-heavy":
        return ~hydrogens
    side_chain = ~np.isin(names, BACKBONE)
    if scheme == "sidechain":
        return side_chain
    return side_chain & (~hydrogens | (atoms.resnames == "GLY"))


def __getattr__(name: str) -> object:
    return name_of_mdanalysis(__name__, name)
