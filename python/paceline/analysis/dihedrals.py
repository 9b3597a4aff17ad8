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
from paceline.analysis.molecular_chains import Chains
from paceline.analysis.results import Results
from paceline.analysis.table import Table, numbers_of, residue_labels
from paceline.contract.analysis_declaration import Declaration, Member
from paceline.contract.analysis_kinds import PerFrame
from paceline.contract.system_interface import (
    Atoms,
    Residues,
    System,
    attribute_of,
    has_attribute,
    residue_name,
)
from paceline.errors import SelectionError, UnsupportedError
from paceline.performance.number_format import joined
from paceline.transform.compare_atom_names import name_atom
from paceline.transform.selections_and_weights import check_not_empty, check_static

if TYPE_CHECKING:
    import MDAnalysis.analysis.dihedrals

#: For each of the angles χ1 to χ5, possible names of its four atoms; the first names that a residue
#: contains are used.
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

#: Maximum number of curves in a figure of all angles.
LINES = 8
#: Maximum number of residues that a warning names.
FEW = 5


class _Dihedrals(AnalysisBase):
    """Dihedral angles of atoms that are bonded in sequence: `ag1`, `ag2` and so on."""

    SHARED_RESULTS = ("angles",)

    ag1: Atoms
    ag2: Atoms
    ag3: Atoms
    ag4: Atoms

    @property
    def _chain(self) -> list[Any]:
        """Groups of the first atoms, of the second atoms, and so on."""
        return [self.ag1, self.ag2, self.ag3, self.ag4]

    @property
    def _quadruples(self) -> np.ndarray:
        """Atoms of each angle: int64, shape (n_angles, 4)."""
        atoms = np.column_stack([group.indices for group in self._chain])
        quadruples = np.lib.stride_tricks.sliding_window_view(atoms, 4, axis=1)
        return quadruples.reshape(-1, 4)

    @property
    def indices(self) -> np.ndarray:
        """Indices of the atoms of all angles, without repeats: int64, shape (n_atoms,)."""
        return np.unique(self._quadruples)

    def parameters(self) -> dict[str, object]:
        """Return the parameters that are saved with the results."""
        return {**super().parameters(), "angles": len(self._quadruples)}

    def prepare(self) -> PerFrame:
        """Find the atoms of the angles in the decoded atoms, and make the worker part."""
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

    The dihedral angle is the angle between the planes of the first and of the last three atoms. It
    is positive if the last bond is rotated clockwise from the first bond, seen along the middle
    bond (IUPAC-IUB 1970, Biochemistry 9, 3471). In a frame with a cell, bond vectors are between
    nearest images, so molecules need not be whole.

    Parameters
    ----------
    atomgroups : list of AtomGroup
        Groups of four atoms, all of one Universe.

    Attributes
    ----------
    ag1, ag2, ag3, ag4 : AtomGroup
        First to fourth atoms of the angles.
    results.angles : numpy.ndarray of float64, shape (n_frames, n_angles)
        Angles in degrees, from -180 to 180. NaN if three atoms are on a line or a position is NaN,
        and for damaged frames that were left out.

    Raises
    ------
    SelectionError
        The list is empty.
    UnsupportedError
        A group is an UpdatingAtomGroup, or the groups belong to different Universes.
    ValueError
        A group does not contain four atoms. In the run, as `AnalysisError`: the lengths and angles
        of a frame do not form a cell.

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
            "Dihedral angles (degrees, -180 to 180) of each frame. The first angle is between the "
            "first atoms of the four selections, the second between their second atoms, and so on."
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
            "second atoms of the angles",
            "third atoms of the angles",
            "fourth atoms of the angles",
        ),
    )

    def __init__(self, atomgroups: Sequence[Any], *, verbose: bool = False):
        if has_attribute(atomgroups, "atoms"):
            raise SelectionError(
                "Dihedral: expected a list of groups of four atoms each, found one group; a "
                'battery file needs a list of selections, atomgroups = ["…", "…"]'
            )
        if len(atomgroups) == 0:
            raise SelectionError("Dihedral: expected at least one group of four atoms, found none")
        for group in atomgroups:
            check_static(group, "Dihedral")
            if len(group) != 4:
                raise ValueError(
                    f"All AtomGroups must contain 4 atoms, but one of Dihedral's has {len(group)}"
                )
        universe = atomgroups[0].universe
        if any(group.universe is not universe for group in atomgroups):
            raise UnsupportedError("Dihedral: the groups must belong to the same Universe")
        atoms = np.array([group.indices for group in atomgroups])
        super().__init__(universe.atoms[np.unique(atoms)], verbose=verbose)
        self.atomgroups = atomgroups
        self.ag1, self.ag2, self.ag3, self.ag4 = (universe.atoms[column] for column in atoms.T)

    @classmethod
    def from_mdanalysis(cls, theirs: "MDAnalysis.analysis.dihedrals.Dihedral") -> Self:
        """Make an analysis with the parameters of MDAnalysis's analysis."""
        return cls(theirs.atomgroups)

    def finish(self, value: np.ndarray) -> None:
        """Store the angles, with titles from the names of atoms."""
        titles = ["dihedral " + "-".join(map(str, atoms)) + " (°)" for atoms in self._quadruples]
        if len(set(titles)) < len(titles):
            titles = [f"dihedral {k} (°)" for k in range(len(titles))]
        table = self._tabulate(titles, value)
        self.results = Results(table=table, provenance=self.record(), angles=value)

    FURTHER_TABLES = ("populations",)

    def further_tables(self) -> dict[str, Table]:
        """Make a table with the populations of gauche+, trans and gauche- of each angle."""
        angles = self.results.angles
        found = states_of(self, angles, np.zeros(angles.shape[1], bool))
        names = [title.removesuffix(" (°)") for title in self.results.table.y]
        numbers = np.arange(1, len(names) + 1)
        drawn = found.figure(names, [""] * len(names), numbers, "dihedral angle")
        of_rows = {"angle": numbers, "name": np.array(names, dtype=str)}
        return {"populations": found.table(of_rows, drawn, ("angle",))}


class Ramachandran(_Dihedrals):
    r"""Angles φ and ψ of residues.

    φ is the dihedral angle of C in the previous residue, N, CA and C; ψ is that of N, CA, C, and N
    in the next residue (see `Dihedral`). MDAnalysis's class finds neighbours by consecutive residue
    numbers in one segment. If residues with insertion codes share a number, neighbours are residues
    next to each other in the topology. Residues are left out if they have no neighbour, lack an
    atom, or have several alternate locations of an atom. A warning reports those that are not at
    the ends of a chain.

    Parameters
    ----------
    atomgroup : AtomGroup or ResidueGroup
        Atoms of the residues.
    c_name, n_name, ca_name : str
        Names of the backbone atoms.
    check_protein : bool
        Raise an error if a residue does not belong to a protein.

    Attributes
    ----------
    ag1, ag2, ag3, ag4, ag5 : AtomGroup
        C of the previous residue; N, CA and C of the residue; N of the next residue.
    results.angles : numpy.ndarray of float64, shape (n_frames, n_residues, 2)
        φ and ψ, degrees, from -180 to 180; NaN as in `Dihedral`.
    results.resindices : numpy.ndarray of int64, shape (n_residues,)
        Index of each residue in the Universe.

    Raises
    ------
    SelectionError
        No residue has both angles.
    UnsupportedError
        The group is an UpdatingAtomGroup.
    ValueError
        A residue does not belong to a protein. In the run, as `AnalysisError`: the lengths and
        angles of a frame do not form a cell.

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
    #: Names of the two angles, and start and end of their range.
    ANGLES, TURN = ("phi", "psi"), (-180, 180)
    #: MDAnalysis's class that finds the residues and draws the plot.
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
            self._check_not_empty()
        self.remark("residues", self._describe_left_out(chains))

    def _describe_left_out(self, chains: Chains) -> str | None:
        """Describe the residues without angles, except for those at the ends of chains."""
        residues = self.atomgroup.residues
        missing = residues[~np.isin(residues.resindices, self.ag2.resindices)]
        missing = missing[~chains.are_ends(missing)]
        if not len(missing):
            return None
        few = joined(list(residue_labels(missing, np.arange(min(len(missing), FEW))).values()))
        more = ", …" if len(missing) > FEW else ""
        return (
            f"{self.name}: {len(missing):,} of {len(residues):,} residues have no angles ({few}"
            f"{more}): the previous or the next residue is missing, or a backbone atom is missing "
            "or has several alternate locations"
        )

    def _class_of_mdanalysis(self) -> Any:
        """MDAnalysis's class that finds the residues and draws the plot."""
        from MDAnalysis.analysis import dihedrals

        return getattr(dihedrals, self._KIND)

    def _find(self, atomgroup: Atoms | System, verbose: bool, **options: object) -> None:
        """Find the atoms of the angles with MDAnalysis's class of the same name."""
        AnalysisBase.__init__(self, atomgroup, verbose=verbose)
        check_not_empty(self.atomgroup, f"{self.name}: the group")
        try:
            theirs = self._class_of_mdanalysis()(atomgroup, **options)
        except TypeError as error:  # raised by MDAnalysis if no residue is left
            reason = f"{self.name}: no residue has a residue before and after it"
            raise SelectionError(reason) from error
        except AttributeError as error:
            raise _missing_names_error(self.name, error) from None
        self._copy_parameters(theirs)

    def _copy_parameters(self, theirs: "MDAnalysis.analysis.dihedrals.Ramachandran") -> None:
        """Copy the atoms of the angles from an analysis of MDAnalysis."""
        self.ag1, self.ag2, self.ag3 = theirs.ag1, theirs.ag2, theirs.ag3
        self.ag4, self.ag5 = theirs.ag4, theirs.ag5
        self._check_not_empty()

    def _check_not_empty(self) -> None:
        """Raise `SelectionError` if no residue has angles."""
        if len(self.ag1) == 0:
            raise SelectionError(f"{self.name}: no residue has the atoms of both angles")

    @classmethod
    def from_mdanalysis(cls, theirs: "MDAnalysis.analysis.dihedrals.Ramachandran") -> Self:
        """Make a Ramachandran analysis with the atoms of the MDAnalysis object `theirs`."""
        ours = cls.__new__(cls)
        AnalysisBase.__init__(ours, theirs.atomgroup)
        ours._copy_parameters(theirs)
        ours.remark("residues", ours._describe_distant_residues())
        return ours

    def _describe_distant_residues(self) -> str | None:
        """Describe residues whose angles use atoms of residues that are not their neighbours."""
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
            "residues that are not their neighbours: MDAnalysis finds neighbours by numbers, but "
            f"insertion codes repeat numbers; use paceline.analysis.dihedrals.{self.name}"
        )

    @property
    def _chain(self) -> list[Any]:
        return [*super()._chain, self.ag5]

    def finish(self, value: np.ndarray) -> None:
        """Store the angles by residue; figures plot ψ against φ (for `Janin`, χ2 against χ1)."""
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

    def plot(self, ax: object = None, ref: bool = False, **kwargs: object) -> Any:
        """Plot one angle against the other for all residues and frames, as MDAnalysis does.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Axes to draw on; by default the current ones of `matplotlib.pyplot`.
        ref : bool
            Draw the regions that contain 90 and 99 % of MDAnalysis's reference structures (98 %
            for `Janin`).
        **kwargs
            Arguments of `matplotlib.axes.Axes.scatter`.

        Returns
        -------
        matplotlib.axes.Axes
            Axes with the plot.
        """
        return self._class_of_mdanalysis().plot(self, ax=ax, ref=ref, **kwargs)


class Janin(Ramachandran):
    """Angles χ1 and χ2 of side chains, from 0 to 360°.

    χ1 is the dihedral angle of N, CA, CB and CG or CG1. χ2 is that of CA, CB, CG or CG1, and CD,
    CD1, OD1, ND1 or SD (see `Dihedral`). `ChiAngles` computes these angles for all residues, from
    -180 to 180°.

    Parameters
    ----------
    atomgroup : AtomGroup or ResidueGroup
        Atoms of the residues.
    select_remove : str
        Selection of residues without χ2, which are left out with a warning.
    select_protein : str
        Selection of residues that belong to a protein.

    Attributes
    ----------
    ag1, ag2, ag3, ag4, ag5 : AtomGroup
        N, CA, CB, CG or CG1, and the last atoms of χ2.
    results.angles : numpy.ndarray of float64, shape (n_frames, n_residues, 2)
        χ1 and χ2, degrees, from 0 to less than 360; NaN as in `Dihedral`.
    results.resindices : numpy.ndarray of int64, shape (n_residues,)
        Index of each residue in the Universe.

    Raises
    ------
    SelectionError
        No residue has both angles.
    UnsupportedError
        The group is an UpdatingAtomGroup.
    ValueError
        A residue does not belong to a protein, lacks an atom or has an atom twice. In the run, as
        `AnalysisError`: the lengths and angles of a frame do not form a cell.

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

    def _copy_parameters(self, theirs: "MDAnalysis.analysis.dihedrals.Janin") -> None:
        """Copy the atoms of the angles; check that each angle is within one residue."""
        super()._copy_parameters(theirs)
        for group in (self.ag1, self.ag3, self.ag4, self.ag5):
            other = np.flatnonzero(group.resindices != self.ag2.resindices)
            if len(other):
                atoms = self.ag2[other[0]], group[other[0]]
                raise ValueError(
                    f"{self.name}: {name_atom(atoms[0])} and {name_atom(atoms[1])} form an "
                    "angle, but belong to two residues: a residue lacks an atom, or has "
                    "an atom twice; leave out this residue"
                )

    def finish(self, value: np.ndarray) -> None:
        """Convert the angles to the range from 0 to 360°, and store them."""
        super().finish((value + 360) % 360)


class ChiAngles(_Dihedrals):
    """Angles χ1 to χ5 of side chains.

    Atoms are found by their names, as in MDTraj's `compute_chi1` to `compute_chi5`. For χ1, the
    fourth atom is CG, CG1, SG, OG or OG1; the next angles follow the chain. In isoleucine, the δ
    carbon may be CD1 or CD. A residue without the atoms of an angle does not have this angle.

    Parameters
    ----------
    atomgroup : AtomGroup or ResidueGroup
        Atoms of the residues.

    Attributes
    ----------
    ag1, ag2, ag3, ag4 : AtomGroup
        First to fourth atoms of the angles.
    results.angles : numpy.ndarray of float64, shape (n_frames, n_angles)
        Angles in degrees, from -180 to 180, sorted by residue; NaN as in `Dihedral`.
    results.chi : numpy.ndarray of int64, shape (n_angles,)
        Number of each angle, 1 to 5.
    results.resindices : numpy.ndarray of int64, shape (n_angles,)
        Index of the residue of each angle, among all residues of the Universe.

    Raises
    ------
    SelectionError
        No residue has such an angle, or a residue has an atom of an angle twice.
    UnsupportedError
        The group is an UpdatingAtomGroup.
    ValueError
        In the run, as `AnalysisError`: the lengths and angles of a frame do not form a cell.

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
            raise _missing_names_error(self.name, error) from None
        if not found:
            raise SelectionError(f"{self.name}: no residue has the atoms of a side-chain angle")
        chi, atoms = zip(*found, strict=True)
        self.chi = np.array(chi)
        everything = self.atomgroup.universe.atoms
        self.ag1, self.ag2, self.ag3, self.ag4 = (
            everything[list(column)] for column in zip(*atoms, strict=True)
        )

    def finish(self, value: np.ndarray) -> None:
        """Store the angles, with titles from the residues."""
        resindices = self.ag1.resindices
        labels = label_residues(self.ag1.residues, resindices)
        titles = [f"chi{n} {label} (°)" for n, label in zip(self.chi, labels, strict=True)]
        table = self._tabulate(titles, value)
        arrays = {"angles": value, "chi": self.chi, "resindices": resindices}
        self.results = Results(table=table, provenance=self.record(), **arrays)


def _missing_names_error(name: str, error: AttributeError) -> SelectionError:
    """Make the error for a topology without the names that identify angles."""
    return SelectionError(
        f"{name} finds angles by the names of atoms and residues, but the topology lacks them "
        f"({error}): use another topology, or pass the atoms of each angle to Dihedral"
    )


def _find_chi(residues: Residues, name: str) -> list[tuple[int, list[int]]]:
    """Find the side-chain angles of residues: number of χ (1 to 5), and indices of four atoms."""
    atoms = residues.atoms
    # Sort the atoms by residue, because the group may be in any order.
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
                        "remove alternate locations from the topology"
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
