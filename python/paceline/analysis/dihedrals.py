"""Dihedral angles, with the parameters and results of MDAnalysis.analysis.dihedrals."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from paceline.analysis import name_of_mdanalysis
from paceline.analysis.angle_states import states_of
from paceline.analysis.base import AnalysisBase, table_in_time
from paceline.analysis.kernels import CoreRows
from paceline.analysis.residues import Chains
from paceline.analysis.results import Results
from paceline.analysis.table import Table, numbers_of, residue_labels
from paceline.contract.atoms import (
    Atoms,
    Residues,
    System,
    attribute_of,
    has_attribute,
    residue_name,
)
from paceline.contract.declaration import Declaration, Member
from paceline.contract.kinds import PerFrame
from paceline.errors import SelectionError, UnsupportedError
from paceline.performance.number_format import joined
from paceline.transform.atom_choice import check_not_empty, check_static
from paceline.transform.matching import described

if TYPE_CHECKING:
    import MDAnalysis.analysis.dihedrals

#: Side chains' angles: the atoms of each, in the order in which a residue is searched for them.
CHI_ATOMS = (
    ("N CA CB CG", "N CA CB CG1", "N CA CB SG", "N CA CB OG", "N CA CB OG1"),
    (
        *("CA CB CG CD", "CA CB CG CD1", "CA CB CG1 CD1", "CA CB CG1 CD"),
        *("CA CB CG OD1", "CA CB CG ND1", "CA CB CG SD"),
    ),
    ("CB CG CD NE", "CB CG CD CE", "CB CG CD OE1", "CB CG SD CE"),
    ("CG CD NE CZ", "CG CD CE NZ"),
    ("CD NE CZ NH1",),
)

#: Lines that a figure of all angles shows.
LINES = 8
#: Residues that a warning names, at most.
FEW = 5


class _Dihedrals(AnalysisBase):
    """Angles between atoms that are bonded one after another: `ag1`, `ag2` and so on."""

    SHARED_RESULTS = ("angles",)

    ag1: Atoms
    ag2: Atoms
    ag3: Atoms
    ag4: Atoms

    @property
    def _chain(self) -> list[Any]:
        """Groups of the first atoms, of the second ones, and so on."""
        return [self.ag1, self.ag2, self.ag3, self.ag4]

    @property
    def _quadruples(self) -> np.ndarray:
        """Atoms of each angle: ndarray of int64, shape (n_angles, 4)."""
        atoms = np.column_stack([group.indices for group in self._chain])
        quadruples = np.lib.stride_tricks.sliding_window_view(atoms, 4, axis=1)
        return quadruples.reshape(-1, 4)

    @property
    def indices(self) -> np.ndarray:
        """Atoms of all angles, each once: ndarray of int64, shape (n_atoms,)."""
        return np.unique(self._quadruples)

    def parameters(self) -> dict[str, object]:
        """Parameters, for the record that is saved with the results."""
        return {**super().parameters(), "angles": len(self._quadruples)}

    def prepare(self) -> PerFrame:
        """Find the atoms of the angles among those that are read."""
        quadruples = np.searchsorted(self.indices, self._quadruples)
        n_angles = len(self._chain) - 3
        shape = None if n_angles == 1 else (len(self.ag1), n_angles)
        return CoreRows("dihedrals", quadruples.ravel(), shape=shape)

    def _tabulate(self, titles: Sequence[str], angles: np.ndarray) -> Table:
        """Make a table of angles, shape (n_frames, n_angles)."""
        columns = dict(zip(titles, angles.T, strict=True))
        legend = {title: title.removesuffix(" (°)") for title in titles}
        drawn = None
        if len(legend) > LINES:
            some = dict(list(legend.items())[:LINES])
            label = f"angle (°), the first {LINES} of {len(legend)}"
            drawn = table_in_time(self, columns, some, label, no_mean=True)
        return table_in_time(self, columns, legend, "angle (°)", drawn, no_mean=True)


class Dihedral(_Dihedrals):
    """Dihedral angles of groups of four atoms.

    An angle is that between the planes of the first and of the last three atoms, positive if the
    last bond is turned clockwise against the first, seen along the one between them (IUPAC-IUB
    1970, Biochemistry 9, 3471). In a frame with a cell, bonds are those between nearest images, so
    molecules need not be whole.

    Parameters
    ----------
    atomgroups : list of AtomGroup
        Groups of four atoms, all of one Universe.

    Attributes
    ----------
    ag1, ag2, ag3, ag4 : AtomGroup
        First to fourth atoms of the angles.
    results.angles : numpy.ndarray of float64, shape (n_frames, n_angles)
        Degrees, from -180 to 180. NaN where three of the atoms are on a line, or a position is
        NaN, and in rows of damaged frames that were left out.

    Raises
    ------
    SelectionError
        There are no groups.
    UnsupportedError
        A group updates itself, or they are of several Universes.
    ValueError
        A group has not four atoms. In the run, as `AnalysisError`: a frame whose lengths and
        angles make no cell.

    Examples
    --------
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import PSF, DCD
    >>> u = paceline.Universe(PSF, DCD)
    >>> groups = [residue.phi_selection() for residue in u.residues[4:7]]
    >>> Dihedral(groups).run(stop=2).results.angles.round(1)
    array([[-107.5, -112.1,   99.6],
           [-107.5, -120.1,   73.4]])
    """

    declaration = Declaration(
        name="dihedrals",
        summary="dihedral angles between four atoms",
        description=(
            "Dihedral angles (degrees, -180 to 180) of each frame: the first atoms of the four "
            "selections make the first angle, the second the second."
        ),
        section="structure.md#dihedral-angles",
        examples=(
            (
                'adk.psf adk.dcd --select "resid 13 and name N" --select-2 "resid 13 and name '
                'CA" --select-3 "resid 13 and name CB" --select-4 "resid 13 and name CG" -o '
                "chi1.csv --plot chi1.png"
            ),
        ),
        counterpart="dihedrals.Dihedral",
        further={
            "populations": "write the populations of gauche+, trans and gauche- with their "
            "intervals, and the transitions per ns; as a figure, histograms"
        },
        groups=(
            "the second atoms",
            "the third atoms",
            "the fourth atoms",
        ),
    )

    def __init__(self, atomgroups: Sequence[Any], *, verbose: bool = False):
        if has_attribute(atomgroups, "atoms"):
            raise SelectionError(
                "Dihedral: expected a list of groups of four atoms each, found one group; in a "
                'file of a battery they are a list of selections, atomgroups = ["…", "…"]'
            )
        if len(atomgroups) == 0:
            raise SelectionError("Dihedral: expected at least one group of four atoms, found none")
        for group in atomgroups:
            check_static(group, "Dihedral")
            if len(group) != 4:
                raise ValueError(
                    f"All AtomGroups must contain 4 atoms, and one of Dihedral's has {len(group)}"
                )
        universe = atomgroups[0].universe
        if any(group.universe is not universe for group in atomgroups):
            raise UnsupportedError("Dihedral: the groups must be atoms of the same Universe")
        atoms = np.array([group.indices for group in atomgroups])
        super().__init__(universe.atoms[np.unique(atoms)], verbose=verbose)
        self.atomgroups = atomgroups
        self.ag1, self.ag2, self.ag3, self.ag4 = (universe.atoms[column] for column in atoms.T)

    @classmethod
    def like(cls, theirs: "MDAnalysis.analysis.dihedrals.Dihedral") -> Self:
        """Make one with the parameters of MDAnalysis's."""
        return cls(theirs.atomgroups)

    def finish(self, value: np.ndarray) -> None:
        """Name each angle by its atoms."""
        titles = ["dihedral " + "-".join(map(str, atoms)) + " (°)" for atoms in self._quadruples]
        if len(set(titles)) < len(titles):
            titles = [f"dihedral {k} (°)" for k in range(len(titles))]
        table = self._tabulate(titles, value)
        self.results = Results(table=table, provenance=self.record(), angles=value)

    FURTHER_TABLES = ("populations",)

    def further_tables(self) -> dict[str, Table]:
        """Tabulate the populations of gauche+, trans and gauche- of each angle."""
        angles = self.results.angles
        found = states_of(self, angles, np.zeros(angles.shape[1], bool))
        names = [title.removesuffix(" (°)") for title in self.results.table.y]
        numbers = np.arange(1, len(names) + 1)
        drawn = found.figure(names, [""] * len(names), numbers, "dihedral angle")
        of_rows = {"angle": numbers, "name": np.array(names, dtype=str)}
        return {"populations": found.table(of_rows, drawn, ("angle",))}


class Ramachandran(_Dihedrals):
    r"""Angles φ and ψ of residues.

    φ is the dihedral angle of C of the residue before, N, CA and C; ψ is that of N, CA, C and N of
    the residue after (as `Dihedral`). MDAnalysis's class finds the residues: neighbours have
    consecutive numbers in one segment. Where residues have insertion codes, and so share numbers,
    neighbours are those next to each other in the topology. Residues without a neighbour, without
    one of the atoms, or with one in several alternate locations are left out; a warning tells of
    those that are not at the ends of a chain.

    Parameters
    ----------
    atomgroup : AtomGroup or ResidueGroup
        Atoms of the residues.
    c_name, n_name, ca_name : str
        Names of the backbone's atoms.
    check_protein : bool
        Raise an error if a residue is not of a protein.

    Attributes
    ----------
    ag1, ag2, ag3, ag4, ag5 : AtomGroup
        C of the residues before, N, CA and C of the residues, N of the residues after.
    results.angles : numpy.ndarray of float64, shape (n_frames, n_residues, 2)
        φ and ψ, degrees, from -180 to 180; NaN as in `Dihedral`.
    results.resindices : numpy.ndarray of int64, shape (n_residues,)
        Index of each residue among those of the Universe.

    Raises
    ------
    SelectionError
        No residue has both angles.
    UnsupportedError
        The group updates itself.
    ValueError
        A residue is not of a protein. In the run, as `AnalysisError`: a frame whose lengths and
        angles make no cell.

    Examples
    --------
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import PSF, DCD
    >>> u = paceline.Universe(PSF, DCD)
    >>> Ramachandran(u.select_atoms("resid 2-4")).run(stop=1).results.angles.round(1)
    array([[[-103.5,  130. ],
            [-127.4,  132. ],
            [-101.2,  139. ]]])
    """

    declaration = Declaration(
        name="ramachandran",
        summary="backbone dihedrals φ and ψ of each residue",
        title="backbone dihedrals φ and ψ",
        description=(
            "Dihedral angles φ and ψ (degrees) of each residue that has both, and their plot."
        ),
        section="structure.md#dihedral-angles",
        variants=("Janin",),
        select="protein",
        examples=(
            "adk.psf adk.dcd -o angles.csv --plot ramachandran.png",
            'md.tpr md.xtc --select "resid 10-20" -o angles.npz',
        ),
        batteries=(Member("protein", {"select": "protein"}, place=6),),
        counterpart="dihedrals.Ramachandran",
    )

    ag5: Atoms
    #: Names of the two angles, and where their full turn begins and ends.
    ANGLES, TURN = ("phi", "psi"), (-180, 180)
    #: MDAnalysis's class that finds the residues, and draws.
    _KIND = "Ramachandran"

    def __init__(
        self,
        atomgroup: Atoms | System,
        c_name: str = "C",
        n_name: str = "N",
        ca_name: str = "CA",
        check_protein: bool = True,
        *,
        verbose: bool = False,
    ):
        names = {"c_name": c_name, "n_name": n_name, "ca_name": ca_name}
        self._find(atomgroup, verbose, **names, check_protein=check_protein)
        chains = Chains(self.atomgroup.universe)
        if chains.has_insertions:
            found = chains.backbone_of(self.atomgroup.residues, n_name, ca_name, c_name)
            self.ag1, self.ag2, self.ag3, self.ag4, self.ag5 = found
            self._check_found()
        self.remark("residues", self._left_out(chains))

    def _left_out(self, chains: Chains) -> str | None:
        """Say which residues have no angles, but for those at the ends of chains."""
        residues = self.atomgroup.residues
        missing = residues[~np.isin(residues.resindices, self.ag2.resindices)]
        missing = missing[~chains.are_ends(missing)]
        if not len(missing):
            return None
        few = joined(list(residue_labels(missing, np.arange(min(len(missing), FEW))).values()))
        more = ", …" if len(missing) > FEW else ""
        return (
            f"{self.name}: {len(missing):,} of {len(residues):,} residues have no angles ({few}"
            f"{more}): the residue before or after is missing, or an atom of the backbone is "
            "missing or there in several alternate locations"
        )

    def _class_of_mdanalysis(self) -> Any:
        """Class of MDAnalysis that finds the residues and draws the angles."""
        from MDAnalysis.analysis import dihedrals

        return getattr(dihedrals, self._KIND)

    def _find(self, atomgroup: Atoms | System, verbose: bool, **options: object) -> None:
        """Find the residues as the class of MDAnalysis does."""
        AnalysisBase.__init__(self, atomgroup, verbose=verbose)
        check_not_empty(self.atomgroup, f"{self.name}: the group")
        try:
            theirs = self._class_of_mdanalysis()(atomgroup, **options)
        except TypeError as error:  # MDAnalysis's, where nothing is left
            reason = f"{self.name}: no residue has a residue before and after it"
            raise SelectionError(reason) from error
        except AttributeError as error:
            raise _nameless(self.name, error) from None
        self._take(theirs)

    def _take(self, theirs: "MDAnalysis.analysis.dihedrals.Ramachandran") -> None:
        """Take the atoms of the angles from an analysis of MDAnalysis."""
        self.ag1, self.ag2, self.ag3 = theirs.ag1, theirs.ag2, theirs.ag3
        self.ag4, self.ag5 = theirs.ag4, theirs.ag5
        self._check_found()

    def _check_found(self) -> None:
        """Raise `SelectionError` where no residue has angles."""
        if len(self.ag1) == 0:
            raise SelectionError(f"{self.name}: no residue has the atoms of both angles")

    @classmethod
    def like(cls, theirs: "MDAnalysis.analysis.dihedrals.Ramachandran") -> Self:
        """Make one with the atoms of MDAnalysis's."""
        ours = cls.__new__(cls)
        AnalysisBase.__init__(ours, theirs.atomgroup)
        ours._take(theirs)
        ours.remark("residues", ours._strangers())
        return ours

    def _strangers(self) -> str | None:
        """Name a residue whose angles use atoms of residues that are not its neighbours."""
        if not Chains(self.ag1.universe).has_insertions:
            return None
        here = self.ag2.resindices
        apart = np.stack([here - self.ag1.resindices, self.ag5.resindices - here])
        strangers = np.flatnonzero((apart > 1).any(axis=0))
        if not len(strangers):
            return None
        first = label_residues(self.ag2.residues, here[strangers[:1]])[0]
        return (
            f"{self.name}: {len(strangers)} residues, such as {first}, have angles to atoms of "
            "residues that are not next to them, which MDAnalysis finds by numbers, and insertion "
            f"codes repeat these: take paceline.analysis.dihedrals.{self.name}"
        )

    @property
    def _chain(self) -> list[Any]:
        return [*super()._chain, self.ag5]

    def finish(self, value: np.ndarray) -> None:
        """Name each angle by its residue; figures show one angle against the other."""
        labels = label_residues(self.ag2.residues, self.ag2.resindices)
        titles = [f"{name} {label} (°)" for label in labels for name in self.ANGLES]
        table = self._tabulate(titles, value.reshape(len(value), -1))
        x, y = (f"{name} (°)" for name in self.ANGLES)
        points = {title: value[..., k].ravel() for k, title in enumerate((x, y))}
        stacks = {x: titles[::2], y: titles[1::2]}
        drawn = Table(
            points, x, {y: y}, y, points=True, stacks=stacks, turn=self.TURN, reference=self.name
        )
        table = replace(table, drawn=drawn)
        resindices = self.ag2.resindices
        self.results = Results(
            table=table, provenance=self.record(), angles=value, resindices=resindices
        )

    def plot(self, ax: Any = None, ref: bool = False, **kwargs: Any) -> Any:
        """Draw one angle against the other, of all residues and frames, as MDAnalysis does.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Axes to draw on; by default the current ones of `matplotlib.pyplot`.
        ref : bool
            Draw the regions of 90 and 99 % of MDAnalysis's reference structures (98 % for
            `Janin`).
        **kwargs
            As for `matplotlib.axes.Axes.scatter`.

        Returns
        -------
        matplotlib.axes.Axes
            The axes.
        """
        return self._class_of_mdanalysis().plot(self, ax=ax, ref=ref, **kwargs)


class Janin(Ramachandran):
    """Angles χ1 and χ2 of side chains, from 0 to 360°.

    χ1 is the dihedral angle of N, CA, CB and CG or CG1; χ2 that of CA, CB, the same and CD, CD1,
    OD1, ND1 or SD (as `Dihedral`). `ChiAngles` has those of all residues, from -180 to 180°.

    Parameters
    ----------
    atomgroup : AtomGroup or ResidueGroup
        Atoms of the residues.
    select_remove : str
        Residues that have no χ2: they are left out, with a warning.
    select_protein : str
        Residues that are of a protein.

    Attributes
    ----------
    ag1, ag2, ag3, ag4, ag5 : AtomGroup
        N, CA, CB, CG or CG1, and the last atoms of χ2.
    results.angles : numpy.ndarray of float64, shape (n_frames, n_residues, 2)
        χ1 and χ2, degrees, from 0 to less than 360; NaN as in `Dihedral`.
    results.resindices : numpy.ndarray of int64, shape (n_residues,)
        Index of each residue among those of the Universe.

    Raises
    ------
    SelectionError
        No residue has both angles.
    UnsupportedError
        The group updates itself.
    ValueError
        A residue is not of a protein, lacks an atom or has one twice. In the run, as
        `AnalysisError`: a frame whose lengths and angles make no cell.

    Examples
    --------
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import PSF, DCD
    >>> u = paceline.Universe(PSF, DCD)
    >>> Janin(u.select_atoms("resid 2-4")).run(stop=1).results.angles.round(1)
    array([[[304.3,  91.1],
            [285.1, 157.7],
            [301.5, 180.5]]])
    """

    ANGLES, TURN = ("chi1", "chi2"), (0, 360)
    _KIND = "Janin"

    def __init__(
        self,
        atomgroup: Atoms | System,
        select_remove: str = "resname ALA CYS* GLY PRO SER THR VAL",
        select_protein: str = "protein",
        *,
        verbose: bool = False,
    ):
        options = {"select_remove": select_remove, "select_protein": select_protein}
        self._find(atomgroup, verbose, **options)

    def _take(self, theirs: "MDAnalysis.analysis.dihedrals.Janin") -> None:
        """Take the atoms of the angles, which MDAnalysis counts but does not compare."""
        super()._take(theirs)
        for group in (self.ag1, self.ag3, self.ag4, self.ag5):
            other = np.flatnonzero(group.resindices != self.ag2.resindices)
            if len(other):
                atoms = self.ag2[other[0]], group[other[0]]
                raise ValueError(
                    f"{self.name}: {described(atoms[0])} and {described(atoms[1])} make an "
                    "angle, but are of two residues: a residue lacks an atom, or has "
                    "one twice; leave it out"
                )

    def finish(self, value: np.ndarray) -> None:
        """Count the angles from 0 to 360°."""
        super().finish((value + 360) % 360)


class ChiAngles(_Dihedrals):
    """Angles χ1 to χ5 of side chains.

    Atoms are found by their names, as MDTraj's `compute_chi1` to `compute_chi5` do: the angle is
    that to CG, CG1, SG, OG or OG1 for χ1, and so on along the chain; δ of isoleucine may be CD1 or
    CD. A residue without such atoms has no such angle.

    Parameters
    ----------
    atomgroup : AtomGroup or ResidueGroup
        Atoms of the residues.

    Attributes
    ----------
    ag1, ag2, ag3, ag4 : AtomGroup
        First to fourth atoms of the angles.
    results.angles : numpy.ndarray of float64, shape (n_frames, n_angles)
        Degrees, from -180 to 180, residue by residue; NaN as in `Dihedral`.
    results.chi : numpy.ndarray of int64, shape (n_angles,)
        Number of each angle, 1 to 5.
    results.resindices : numpy.ndarray of int64, shape (n_angles,)
        Index of its residue among those of the Universe.

    Raises
    ------
    SelectionError
        No residue has such an angle, or one has an atom of it twice.
    UnsupportedError
        The group updates itself.
    ValueError
        In the run, as `AnalysisError`: a frame whose lengths and angles make no cell.

    Examples
    --------
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import PSF, DCD
    >>> u = paceline.Universe(PSF, DCD)
    >>> chi = ChiAngles(u.select_atoms("resid 2-4")).run(stop=1)
    >>> chi.results.chi
    array([1, 2, 3, 4, 5, 1, 2, 1, 2])
    >>> chi.results.angles[0, :5].round(1)
    array([ -55.7,   91.1,  175.1, -131.6,  -14.5])
    """

    declaration = Declaration(
        name="chi",
        summary="side-chain dihedrals χ1 to χ5 of each residue",
        description=(
            "Dihedral angles χ1 to χ5 (degrees) of the side chains of all residues that have them."
        ),
        section="structure.md#dihedral-angles",
        select="protein",
        examples=('md.tpr md.xtc --select "resid 10-20" -o chi.csv --plot chi.png',),
    )

    def __init__(self, atomgroup: Atoms | System, *, verbose: bool = False):
        super().__init__(atomgroup, verbose=verbose)
        try:
            found = _find_chi(self.atomgroup.residues, self.name)
        except AttributeError as error:
            raise _nameless(self.name, error) from None
        if not found:
            raise SelectionError(f"{self.name}: no residue has the atoms of a side chain's angle")
        chi, atoms = zip(*found, strict=True)
        self.chi = np.array(chi)
        everything = self.atomgroup.universe.atoms
        self.ag1, self.ag2, self.ag3, self.ag4 = (
            everything[list(column)] for column in zip(*atoms, strict=True)
        )

    def finish(self, value: np.ndarray) -> None:
        """Name each angle by its residue."""
        resindices = self.ag1.resindices
        labels = label_residues(self.ag1.residues, resindices)
        titles = [f"chi{n} {label} (°)" for n, label in zip(self.chi, labels, strict=True)]
        table = self._tabulate(titles, value)
        arrays = {"angles": value, "chi": self.chi, "resindices": resindices}
        self.results = Results(table=table, provenance=self.record(), **arrays)


def _nameless(name: str, error: AttributeError) -> SelectionError:
    """Make the error of a topology without the names by which angles are found."""
    return SelectionError(
        f"{name} finds angles by the names of atoms and residues, which the topology lacks "
        f"({error}): take another topology, or give the atoms of each angle to Dihedral"
    )


def _find_chi(residues: Residues, name: str) -> list[tuple[int, list[int]]]:
    """Find the side chains' angles of residues: number, and indices of four atoms."""
    atoms = residues.atoms
    # Residue by residue, whatever the order of atoms.
    order = np.argsort(atoms.resindices, kind="stable")
    atoms = atoms[order]
    borders = [0, *(np.flatnonzero(np.diff(atoms.resindices)) + 1), len(atoms)]
    names, indices = atoms.names, atoms.indices
    found = []
    for first, end in pairwise(borders):
        there = dict(zip(names[first:end], indices[first:end].tolist(), strict=True))
        for number, choices in enumerate(CHI_ATOMS, start=1):
            of_residue = (choice.split() for choice in choices)
            chosen = next((four for four in of_residue if there.keys() >= set(four)), None)
            if chosen is None:
                continue
            for atom in chosen:
                if np.count_nonzero(names[first:end] == atom) > 1:
                    raise SelectionError(
                        f"{name}: {residue_name(atoms[first].residue)} has several atoms {atom}: "
                        "remove alternative locations from the topology"
                    )
            found.append((number, [there[atom] for atom in chosen]))
    return found


def label_residues(residues: Residues, resindices: np.ndarray) -> list[str]:
    """Label the residue of each of `resindices` by name and number, and segment if needed."""
    names = attribute_of(residues, "resnames")
    labels = [f"{number}" for number in numbers_of(residues)]
    if names is not None:
        labels = [f"{name} {label}" for name, label in zip(names, labels, strict=True)]
    if len(set(labels)) < len(labels):
        labels = [f"{label} {one}" for label, one in zip(labels, residues.segids, strict=True)]
    if len(set(labels)) < len(labels):
        labels = [f"{label} ({k})" for label, k in zip(labels, residues.resindices, strict=True)]
    by_index = dict(zip(residues.resindices.tolist(), labels, strict=True))
    return [by_index[index] for index in resindices.tolist()]


def __getattr__(name: str) -> object:
    return name_of_mdanalysis(__name__, name)
