"""Contacts, with the parameters and results of MDAnalysis.analysis.contacts."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from paceline import _core
from paceline._util.arguments import length, one_of, whole_number
from paceline.analysis import name_of_mdanalysis
from paceline.analysis.base import AnalysisBase, function_name, table_in_time
from paceline.analysis.kernels import CoreHalf, CoreRows, columns_of
from paceline.analysis.results import Results
from paceline.analysis.table import Image, Table, telling_columns
from paceline.analysis.values_on_structure import of_residues
from paceline.block import DAMAGED_STEP, Block, check_refused
from paceline.contract.atoms import Atoms, System, attribute_of, has_attribute
from paceline.contract.declaration import PBC, REF, Declaration, Member, Option
from paceline.contract.kinds import PerFrame, Reduction
from paceline.contract.run_info import describe_atoms
from paceline.errors import SelectionError, UnsupportedError, warn
from paceline.transform.atom_choice import check_not_empty, check_positions, check_static
from paceline.transform.broken_reference import warn_of_broken_reference
from paceline.transform.matching import other_order

if TYPE_CHECKING:
    import MDAnalysis.analysis.contacts


class Contacts(AnalysisBase):
    r"""Fraction of the contacts of a reference that a frame has, Q.

    Contacts are the pairs of an atom of the first and one of the second group that are within
    `radius` in the reference. Their distances $r$, and $r_0$ in the reference, make

    | method | a contact counts |
    | --- | --- |
    | hard_cut | 1 where $r \le r_0$, else 0 |
    | radius_cut | 1 where $r \le$ `radius`, else 0 |
    | soft_cut | $1 / (1 + e^{\beta (r - \lambda r_0)})$ |

    and Q is the mean over the contacts (Best, Hummer & Eaton 2013, PNAS 110, 17874). Take
    "soft_cut" for the Q of a fold: by "hard_cut", MDAnalysis's default, thermal motion alone loses
    most contacts. Heavy atoms of adenylate kinase, four residues apart, have Q = 0.31 by "hard_cut"
    in frames 0.1 to 0.9 ns after the reference, and 0.97 by "soft_cut". Distances are
    rounded as MDAnalysis rounds them, so that the counts agree: in files with a precision of
    0.01 Å, many are as long as in the reference.

    Parameters
    ----------
    u : Universe
        The system.
    select : (str, str) or (AtomGroup, AtomGroup)
        The two groups.
    refgroup : (AtomGroup, AtomGroup), or list of them
        The same atoms in the reference, or in several; at the present frame of their Universe.
    method : {"hard_cut", "soft_cut", "radius_cut"} or callable
        Way to count, or a function of the distances and those of the reference, two ndarrays of
        float64 of shape (n_contacts,), which returns a number; `kwargs` are passed to it. It is
        called on the workers, once a frame and reference.
    radius : float
        Pairs that are as near in the reference are contacts, Å.
    pbc : bool
        Take the nearest images in each frame's own cell, if it has one.
    kwargs : dict, optional
        `beta` (Å⁻¹, 5 by default) and `lambda_constant` (1.8) of "soft_cut", or `radius` of
        "radius_cut".
    residues_apart : int
        Least distance along the chain of residues in contact: 1 leaves out pairs within a residue,
        4 also those of neighbours up to the third, as Best, Hummer & Eaton do. It is counted in the
        topology's order, and pairs of two segments always may be contacts. By default each pair may
        be one, in groups that share atoms also an atom with itself, which a warning says.

    Attributes
    ----------
    r0 : list of numpy.ndarray of float64, shape (n_first, n_second)
        Distances in each reference, Å.
    initial_contacts : list of numpy.ndarray of bool, shape (n_first, n_second)
        Contacts of each reference.
    n_initial_contacts : int
        Their number in the first reference.
    results.timeseries : numpy.ndarray of float64, shape (n_frames, 1 + n_references)
        Frame number, and Q for each reference, 0 to 1. NaN where the position of an atom of a
        contact is NaN, and in rows of damaged frames that were left out.

    Raises
    ------
    SelectionError
        A group holds no atoms, or other numbers of them than in a reference; or a reference has
        no contacts.
    UnsupportedError
        A group updates itself, or is of another Universe.
    TypeError, ValueError
        Parameters that make no sense, or positions in a reference that are NaN. In the run, as
        `AnalysisError`: a frame whose lengths and angles make no cell, with `pbc`.

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
            "Fraction Q of the contacts of a reference that each frame has: pairs of an atom of "
            "--select and one of --select-2 that are within --radius there. Take --method "
            "soft_cut for the Q of a fold: by hard_cut, the default, thermal motion alone loses "
            "most contacts (heavy atoms of adenylate kinase, folded: Q = 0.31 by hard_cut, 0.97 "
            "by soft_cut)."
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
                "a contact counts if it is not longer than in the reference, by a smooth "
                "step (recommended), or if it is within the radius [%(default)s]",
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
        self._take(theirs, residues_apart, verbose)
        for groups in references if not pbc else ():
            if groups[0].universe is not u.universe:
                warn_of_broken_reference(groups[0] + groups[1], "Contacts")
        self._warn_of_atoms_with_themselves()
        for k, groups in enumerate(references):
            for number, pair in enumerate(zip((self.grA, self.grB), groups, strict=True)):
                what = f"refgroup[{number}]" if len(references) == 1 else f"refgroup[{k}][{number}]"
                self.remark(f"order of {what}", other_order(*pair, what))

    @classmethod
    def like(cls, theirs: "MDAnalysis.analysis.contacts.Contacts") -> Self:
        """Make one with the contacts of MDAnalysis's."""
        ours = cls.__new__(cls)
        try:
            ours._take(theirs)
        except (SelectionError, TypeError, ValueError) as error:
            raise UnsupportedError(f"Contacts: {error}") from error
        if ours._limits is None:
            raise UnsupportedError("Contacts: MDAnalysis itself calls a function of the user")
        return ours

    def _take(
        self,
        theirs: "MDAnalysis.analysis.contacts.Contacts",
        residues_apart: int = 0,
        verbose: bool = False,
    ) -> None:
        """Take groups and reference distances from an analysis of MDAnalysis."""
        super().__init__(theirs.u, verbose=verbose)
        self.residues_apart = residues_apart
        self.u, self.select, self.pbc = theirs.u, theirs.select, theirs.pbc
        self.grA, self.grB = theirs.grA, theirs.grB
        self.r0, self.initial_contacts = theirs.r0, theirs.initial_contacts
        if residues_apart:
            near = self._are_near_in_chain()
            self.initial_contacts = [
                contacts & ~near if contacts.shape == near.shape else contacts
                for contacts in self.initial_contacts
            ]
        self.n_initial_contacts = int(np.sum(self.initial_contacts[0]))
        self.fraction_contacts = theirs.fraction_contacts
        self.fraction_kwargs = theirs.fraction_kwargs
        self._check_groups()
        self._limits, self._beta = self._find_limits()

    def _are_near_in_chain(self) -> np.ndarray:
        """Find pairs of atoms whose residues are too near in their segment."""
        first, second = self.grA, self.grB
        apart = np.abs(first.resindices[:, None] - second.resindices)
        return (apart < self.residues_apart) & (first.segindices[:, None] == second.segindices)

    def _warn_of_atoms_with_themselves(self) -> None:
        """Warn of contacts that are always there, which make Q larger."""
        _, *places = np.intersect1d(self.grA.indices, self.grB.indices, return_indices=True)
        n_same = int(self.initial_contacts[0][tuple(places)].sum())
        if n_same:
            warn(
                f"Contacts: {n_same} of the {self.n_initial_contacts} contacts are of an atom with "
                "itself, and others may be within a residue: Q counts them; leave them out with "
                "residues_apart=1, or those of neighbours in the chain too with residues_apart=4"
            )

    def _check_groups(self) -> None:
        """Raise errors for groups and references that make no contacts."""
        shape = len(self.grA), len(self.grB)
        for group in (self.grA, self.grB):
            check_not_empty(group, "Contacts: a group of select")
            if group.universe is not self.u.universe:
                raise UnsupportedError("Contacts: the groups of select must be atoms of u")
        for k, (r0, contacts) in enumerate(zip(self.r0, self.initial_contacts, strict=True)):
            if r0.shape != shape:
                raise SelectionError(
                    f"Contacts: reference {k} has groups of {r0.shape} atoms, and select {shape}"
                )
            if not contacts.any():
                raise SelectionError(
                    f"Contacts: reference {k} has no contacts, of which Q is the fraction: "
                    f"its shortest distance is {r0.min():.2f} Å; give a larger radius"
                )

    def _find_limits(self) -> tuple[list[np.ndarray] | None, float | None]:
        """Find the limits of distances (Å) and β (Å⁻¹); None for a function of the user."""
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
            raise TypeError(f"Contacts: this method takes no {', '.join(given)}")
        return limits, beta

    @property
    def _reference_distances(self) -> list[np.ndarray]:
        """Distances (Å) of the contacts of each reference."""
        return [r0[there] for r0, there in zip(self.r0, self.initial_contacts, strict=True)]

    @property
    def _pairs(self) -> np.ndarray:
        """Atoms of all references' contacts: ndarray of int64, shape (n_contacts, 2)."""
        places = [np.nonzero(contacts) for contacts in self.initial_contacts]
        first, second = np.concatenate(places, axis=1)
        return np.column_stack([self.grA.indices[first], self.grB.indices[second]])

    @property
    def indices(self) -> np.ndarray:
        """Atoms of the contacts, each once: ndarray of int64, shape (n_atoms,)."""
        return np.unique(self._pairs)

    def parameters(self) -> dict[str, object]:
        """Parameters, for the record that is saved with the results."""
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
        """Find the atoms of the contacts among those that are read."""
        pairs = np.searchsorted(self.indices, self._pairs).ravel()
        if self._limits is None:
            distances = CoreRows("pair_distances", pairs, bool(self.pbc))
            function = partial(self.fraction_contacts, **self.fraction_kwargs)
            return _OfFunction(distances, function, self._reference_distances)
        sizes = np.array([len(limits) for limits in self._limits])
        limits = np.concatenate(self._limits)
        return CoreRows("contacts", pairs, limits, sizes, bool(self.pbc), self._beta)

    def finish(self, value: np.ndarray) -> None:
        """Put frame numbers before the fractions."""
        timeseries = np.column_stack([self.frames, value])
        n_references = len(self.r0)
        names = ["Q"] if n_references == 1 else [f"Q{k + 1}" for k in range(n_references)]
        columns = dict(zip(names, value.T, strict=True))
        table = table_in_time(self, columns, {name: name for name in names}, "Q")
        self.results = Results(table=table, provenance=self.record(), timeseries=timeseries)


class _OfFunction(PerFrame):
    """Worker part for a function of the user."""

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
                row[n] = self._function(r, r0.copy())  # a function may change its arguments
        return rows


def q1q2(
    u: System, select: str = "all", radius: float = 4.5, *, residues_apart: int = 0
) -> Contacts:
    """Compare contacts with those of the first and of the last frame (Franklin et al. 2007).

    Parameters
    ----------
    u : Universe
        The system; its present frame stays.
    select : str
        The atoms.
    radius : float
        Pairs that are as near are contacts, Å.
    residues_apart : int
        Of atoms of residues that are so far apart in the chain, as for `Contacts`.

    Returns
    -------
    Contacts
        Contacts by "radius_cut", with both frames as references; to be run.

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


#: Ways to choose the atoms of a residue, as MDTraj's `compute_contacts` does.
SCHEMES = ("ca", "closest", "closest-heavy", "sidechain", "sidechain-heavy")

#: Atoms of a residue that are not of its side chain, those at the ends of the chain too, by the
#: names that they have in the PDB, CHARMM, Amber and GROMACS.
BACKBONE = (
    *("C", "CA", "N", "O", "HA", "H", "HN", "OXT", "OT"),
    *(name for k in "123" for name in (f"H{k}", f"{k}H", f"HN{k}", f"HT{k}")),
    *(name for k in "12" for name in (f"O{k}", f"OT{k}", f"OC{k}", f"OCT{k}")),
)


class ContactMap(AnalysisBase):
    """Contacts between residues: the fraction of frames in which two are near each other.

    Two residues are in contact where the shortest distance between their atoms is at most
    `cutoff`; the scheme says which atoms count:

    | scheme | atoms |
    | --- | --- |
    | ca | CA |
    | closest | all |
    | closest-heavy | all but hydrogens |
    | sidechain | all but C, CA, N, O, HA, H, and the other H and O at the ends of the chain |
    | sidechain-heavy | these without hydrogens; of glycine with them |

    They are those of MDTraj's `compute_contacts`, but for the ends of the chain, of which MDTraj
    counts H2, H3 and OXT as side chain. Hydrogens are known by their elements, or by
    names that begin with H if the topology has no elements.

    Parameters
    ----------
    atomgroup : AtomGroup or Universe
        The atoms, whose residues are compared.
    cutoff : float
        Longest distance of a contact, Å.
    scheme : {"ca", "closest", "closest-heavy", "sidechain", "sidechain-heavy"}
        Atoms of a residue that count, as in MDTraj.
    pbc : bool
        Take the nearest images in each frame's own cell, if it has one.

    Attributes
    ----------
    results.frequencies : numpy.ndarray of float64, shape (n_residues, n_residues)
        Fraction of frames in contact, 0 to 1; symmetric, and 1 of a residue with itself. NaN if
        all frames were left out.
    results.counts : numpy.ndarray of int64, shape (n_residues, n_residues)
        Number of frames in contact.
    results.n_frames : int
        Number of frames that were counted.
    results.resindices : numpy.ndarray of int64, shape (n_residues,)
        Index of each residue among those of the Universe.

    Raises
    ------
    SelectionError
        The group has fewer than two residues, or one without such atoms.
    UnsupportedError
        The group updates itself.
    ValueError
        An unknown scheme, or a cutoff that is no length. In the run, as `AnalysisError`: a frame
        with a position that is NaN, or whose lengths and angles make no cell, with `pbc`.

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
        summary="how often residues are in contact",
        title="contact map",
        description=(
            "Fraction of frames in which two residues are in contact: the shortest distance "
            "between their atoms, which the scheme chooses, is at most --cutoff."
        ),
        section="hydrogen-bonds.md#contact-maps",
        select="protein",
        examples=(
            "adk.psf adk.dcd -o contacts.tsv --plot contacts.png",
            "adk.psf adk.dcd --scheme ca --cutoff 8 --plot contacts.pdf",
        ),
        on_structure="mean number of residues with which each is in contact",
        options=(
            "cutoff",
            "scheme",
            PBC,
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
        verbose: bool = False,
    ):
        super().__init__(atomgroup, verbose=verbose)
        self.cutoff, self.scheme, self.pbc = length("cutoff", cutoff), scheme, pbc
        one_of("scheme", scheme, *SCHEMES)
        chosen = self.atomgroup.unique
        self.residues = chosen.residues
        if len(self.residues) < 2:
            raise SelectionError(f"ContactMap: the group has {len(self.residues)} residues, not 2")
        self._atoms = chosen[_counts(chosen, scheme)]
        missing = self.residues.difference(self._atoms.residues)
        if len(missing):
            raise SelectionError(
                f"ContactMap: {missing[0]} of {len(missing)} residues has no atoms that "
                f"scheme={scheme!r} counts; choose another, or leave these residues out"
            )
        # Residue by residue, whatever the order of atoms.
        self._atoms = self._atoms[np.argsort(self._atoms.resindices, kind="stable")]

    @property
    def indices(self) -> np.ndarray:
        """Atoms that count, residue by residue: ndarray of int64, shape (n_atoms,)."""
        return self._atoms.indices

    def parameters(self) -> dict[str, object]:
        """Parameters, for the record that is saved with the results."""
        return {
            **super().parameters(),
            "cutoff": self.cutoff,
            "scheme": self.scheme,
            "pbc": self.pbc,
        }

    def prepare(self) -> Reduction:
        """Count the atoms of each residue."""
        _, sizes = np.unique(self._atoms.resindices, return_counts=True)
        return _NearResidues(sizes, self.cutoff, bool(self.pbc))

    def finish(self, value: tuple[int, np.ndarray]) -> None:
        """Make a symmetric matrix of the counts of pairs."""
        n_frames, of_pairs = value
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
            table=table, provenance=self.record(), resindices=self.residues.resindices, **arrays
        )
        # A residue is in contact with itself.
        atoms = self.atomgroup[np.isin(self.atomgroup.resindices, self.residues.resindices)]
        others = of_residues(atoms, frequencies.sum(axis=1) - 1)
        title = "contacts of residue with others, mean number"
        self.results.with_values(self.on_first_frame(title, atoms, others))


class _NearResidues(CoreHalf, Reduction):
    """Frames, and for each pair of residues those in which it is in contact."""

    def __init__(self, sizes: np.ndarray, cutoff: float, periodic: bool):
        self._sizes, self._cutoff, self._periodic = sizes, cutoff, periodic

    def compute(self, block: Block) -> tuple[int, np.ndarray]:
        if self._bound is None:
            given = self._sizes, self._cutoff, self._periodic
            self._bound = _core.ContactMap(columns_of(block), *given)
        n_residues = len(self._sizes)
        counts = np.zeros(n_residues * (n_residues - 1) // 2, dtype=np.uint64)
        check_refused(block, self._bound.count(block.raw[0], block.cells, counts))
        return len(block), counts

    def merge(
        self, left: tuple[int, np.ndarray], right: tuple[int, np.ndarray]
    ) -> tuple[int, np.ndarray]:
        return left[0] + right[0], left[1] + right[1]


def _counts(atoms: Atoms, scheme: str) -> np.ndarray:
    """Choose the atoms that count: ndarray of bool, shape (n_atoms,)."""
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
