"""Hydrogen bonds, with the parameters and results of MDAnalysis.analysis.hydrogenbonds."""

import warnings
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from paceline._util.arguments import check_selection, length, one_of, whole_number
from paceline._util.sorting import sorted_unique
from paceline.analysis import name_of_mdanalysis
from paceline.analysis.base import AnalysisBase, table_of_records
from paceline.analysis.groups import (
    check_presence,
    mean_survival,
    presence_correlation,
    presence_table,
    timeline_table,
)
from paceline.analysis.guess import (
    POLAR,
    POLAR_ACCEPTORS,
    POLAR_HYDROGENS,
    donors_of,
    heaviest_hydrogen,
    warn_of_missed_acceptors,
    warn_of_missed_hydrogens,
)
from paceline.analysis.kernels import ChangingBonds, CoreBonds
from paceline.analysis.results import Results
from paceline.analysis.table import (
    MOST_FREQUENT,
    MOST_MARKED,
    Table,
    atom_labels,
    fractions_of_frames,
    names_of,
)
from paceline.analysis.updating import FixedGroup, GroupFinder, describe_group, follow, is_changing
from paceline.contract.atoms import Atoms, System, UpdatingAtoms, has_attribute
from paceline.contract.declaration import CORRELATION, LAGS, Declaration, Member, Option
from paceline.contract.kinds import Ragged
from paceline.contract.run_info import describe_atoms
from paceline.errors import SelectionError, UnsupportedError, warn
from paceline.performance.number_format import many
from paceline.transform.atom_choice import naming_lacks, updates_itself
from paceline.transform.bond_lists import bond_list, give_bonds_to_select

if TYPE_CHECKING:
    import MDAnalysis.analysis.hydrogenbonds.hbond_analysis

#: Modules of MDAnalysis's package are found as ours are (see `paceline.analysis`).
__path__: list[str] = []

#: Å and degrees of criteria that have no parameters; of the last, Å for each squared degree.
CRITERIA = {
    "baker_hubbard": (2.5, 120.0),
    "gromacs": (3.5, 30.0),
    "wernet_nilsson": (3.3, 0.00044),
}
#: Limits of MDAnalysis's criterion, if none are given: Å and degrees.
D_A_CUTOFF, D_H_A_ANGLE_CUTOFF = 3.0, 150
#: How atoms are known that no selection names, in messages.
GUESSED = {
    "hydrogens": ", by masses from 0.9 to 1.1 u and charges above 0.3 e",
    "acceptors": ", by charges below -0.5 e",
}


class HydrogenBondAnalysis(AnalysisBase):
    r"""Hydrogen bonds of each frame.

    A donor D with a hydrogen H and an acceptor A are bonded if they meet a criterion:

    | criterion | bond |
    | --- | --- |
    | mdanalysis | D–A ≤ `d_a_cutoff`, and the angle D–H–A > `d_h_a_angle_cutoff` |
    | baker_hubbard | H–A < 2.5 Å, and the angle D–H–A > 120° (Baker & Hubbard 1984) |
    | wernet_nilsson | D–A < 3.3 Å - 0.00044 δ², δ the angle H–D–A in degrees (Wernet et al. 2004) |
    | gromacs | D–A ≤ 3.5 Å, and the angle H–D–A ≤ 30° (Luzar & Chandler 1996) |

    Where D–A counts, it must be more than 1 Å, too.

    Distances and angles are between nearest images, in cells of any angles. By "mdanalysis", bonds,
    their order, distances and angles are those of MDAnalysis's class to the last bit; but no atom
    is its own donor, where selections overlap.

    Parameters
    ----------
    universe : Universe or AtomGroup
        The system, or the atoms among which donors, hydrogens and acceptors are.
    donors_sel, hydrogens_sel, acceptors_sel : str, optional
        Selections. Without `donors_sel`, the donor of a hydrogen is the atom that it is bonded to,
        the first if there are several. Without the others they are guessed by mass and charge,
        `guess_hydrogens` and `guess_acceptors`, or where the topology has no charges by names and
        bonds: hydrogens bonded to N or O, and all N and O with a bond. A warning says where
        hydrogens bonded to N or O have too little charge for that, as most have in Amber's force
        fields, or oxygens that bind one heavy atom at most, as most have in OPLS's.
    between : (str, str) or list of them, optional
        Only bonds between atoms of these two selections, in either direction; of any of several
        pairs. They are selected once.
    d_h_cutoff : float
        Donors and hydrogens are pairs within it, Å, if `donors_sel` is given.
    d_a_cutoff : float
        Largest distance from donor to acceptor, Å.
    d_h_a_angle_cutoff : float
        Smallest angle at the hydrogen, degrees.
    update_selections : bool
        Choose the atoms of selections by positions, such as `around 5 protein`, in each frame, and
        not only in the present one; and search the pairs of donors and hydrogens, if `donors_sel`
        is given.
    criterion : {"mdanalysis", "baker_hubbard", "wernet_nilsson", "gromacs"}
        Criterion, of which all but "mdanalysis" have their own limits. The cutoffs above are
        refused with these.

    Attributes
    ----------
    results.hbonds : numpy.ndarray of float64, shape (n_bonds, 6)
        Of each bond the frame, the indices of donor, hydrogen and acceptor, the distance D–A (Å)
        and the angle D–H–A (degrees). More than 1 GiB are in a temporary file.
    results.counts : numpy.ndarray of int64, shape (n_frames,)
        Number of bonds in each frame. If damaged frames were left out it is of float64, and NaN
        for these, which have no bonds.
    results.offsets : numpy.ndarray of int64, shape (n_frames + 1,)
        Index of each frame's first bond, and of the end.

    Raises
    ------
    SelectionError
        No donors, hydrogens or acceptors; or a hydrogen that has no bond.
    UnsupportedError
        A selection by positions that workers cannot evaluate, as for `SelectedAtoms`.
    MDAnalysis.exceptions.NoDataError
        The topology has no bonds where these are needed, nor charges or masses to guess by.
    ValueError
        An unknown criterion. In the run: cutoffs that are no lengths or angles, or that the
        criterion does not take; as `AnalysisError`, a position that is NaN, a cell that is
        impossible or lower than the cutoff.

    Examples
    --------
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import PSF, DCD
    >>> u = paceline.Universe(PSF, DCD)
    >>> bonds = HydrogenBondAnalysis(u, between=["protein", "protein"]).run(stop=4)
    >>> bonds.results.counts
    array([ 91,  95, 100, 100])
    >>> bonds.results.hbonds[0].round(1)
    array([   0. ,   19. ,   20. , 1578. ,    2.9,  155.2])
    """

    declaration = Declaration(
        name="hbonds",
        summary="hydrogen bonds: their number, and as .npz each of them",
        description=(
            "Number of hydrogen bonds in each frame; as .npz also each bond: frame, donor, "
            "hydrogen, acceptor, distance (Å) and angle (degrees). Donors are known by bonds, "
            "hydrogens and acceptors by mass and charge, of the selected atoms; where the topology "
            "has no charges, by names and bonds."
        ),
        section="hydrogen-bonds.md#hydrogen-bonds",
        select="protein, or the atoms of --between",
        examples=(
            "adk.psf adk.dcd -o hbonds.csv --plot hbonds.png --frequent frequent.csv",
            'md.tpr md.xtc --between protein "resname SOL" --correlation correlation.csv',
        ),
        options=(
            Option(
                "between", "only bonds between atoms of these two", nargs=2, metavar="SELECTION"
            ),
            Option(
                "donors_sel",
                "donors, which are then known by their distance from hydrogens",
                metavar="SELECTION",
            ),
            Option("hydrogens_sel", "hydrogens", metavar="SELECTION"),
            Option("acceptors_sel", "acceptors", metavar="SELECTION"),
            "d_a_cutoff",
            "d_h_a_angle_cutoff",
            "criterion",
            LAGS,
        ),
        batteries=(
            Member("protein", {"select": "protein", **POLAR}, place=9),
            Member("nucleic acid", {"select": "nucleic", **POLAR}, name="hbonds-nucleic", place=4),
            Member(
                "ligand",
                {"select": "protein or {ligand}", "between": ["protein", "{ligand}"], **POLAR},
                name="ligand-hbonds",
                place=3,
            ),
        ),
        counterpart="hydrogenbonds.HydrogenBondAnalysis",
        further={
            "frequent": "write in which fraction of the frames each bond is",
            "timeline": "write in which frames the 20 most frequent bonds are; as a figure, a "
            "bar code",
            "correlation": CORRELATION.format("bonds"),
        },
        chooses=True,
    )

    needs_one_location = True

    SHARED_RESULTS = ("hbonds",)

    #: Updating groups of selections that choose other atoms in each frame.
    _changing: dict[str, UpdatingAtoms]
    #: Atoms that are analysed, in messages; the command line names its option.
    which_atoms = "that are analysed"
    #: Find donors, hydrogens and acceptors in each frame; None if all of them stay the same.
    _found: list[GroupFinder | FixedGroup] | None

    def __init__(
        self,
        universe: Atoms | System,
        donors_sel: str | None = None,
        hydrogens_sel: str | None = None,
        acceptors_sel: str | None = None,
        between: Sequence[Sequence[str] | str] | None = None,
        d_h_cutoff: float = 1.2,
        d_a_cutoff: float = D_A_CUTOFF,
        d_h_a_angle_cutoff: float = D_H_A_ANGLE_CUTOFF,
        update_selections: bool = True,
        *,
        criterion: Literal[
            "mdanalysis", "baker_hubbard", "wernet_nilsson", "gromacs"
        ] = "mdanalysis",
        verbose: bool = False,
    ):
        super().__init__(universe, verbose=verbose)
        one_of("criterion", criterion, "mdanalysis", *CRITERIA)
        self.u, self.criterion = universe.universe, criterion
        self.d_h_cutoff, self.d_a_cutoff = d_h_cutoff, d_a_cutoff
        self.d_h_a_angle, self._update_selections = d_h_a_angle_cutoff, update_selections
        self.between_ags = None if between is None else _groups(self.u, between)
        self._donors_sel = None if donors_sel is None else donors_sel.strip()
        self._hydrogens_sel = None if hydrogens_sel is None else hydrogens_sel.strip()
        self._acceptors_sel = None if acceptors_sel is None else acceptors_sel.strip()
        for name in ("donors", "hydrogens", "acceptors"):
            if self._selections[name] == "":
                warnings.warn(f"{name}_sel is empty: no hydrogen bonds will be found", stacklevel=2)
        self._check_between()
        if self._acceptors_sel is None or self._hydrogens_sel is None:
            self._check_charges()
        if self._acceptors_sel is None:
            self._acceptors_sel = self._guess_all_acceptors()
        if self._hydrogens_sel is None:
            self._hydrogens_sel = self._guess_all_hydrogens()
        self._select()

    @classmethod
    def like(
        cls, theirs: "MDAnalysis.analysis.hydrogenbonds.hbond_analysis.HydrogenBondAnalysis"
    ) -> Self:
        """Make one with the atoms and cutoffs of MDAnalysis's."""
        ours = cls.__new__(cls)
        AnalysisBase.__init__(ours, theirs.u)
        ours.u, ours.criterion, ours._changing, ours._found = theirs.u, "mdanalysis", {}, None
        ours._update_selections = theirs.update_selections
        ours.d_h_cutoff, ours.d_a_cutoff = theirs.d_h_cutoff, theirs.d_a_cutoff
        ours.d_h_a_angle, ours.between_ags = theirs.d_h_a_angle, theirs.between_ags
        ours._donors_sel, ours._hydrogens_sel = theirs.donors_sel, theirs.hydrogens_sel
        ours._acceptors_sel = theirs.acceptors_sel
        try:
            if ours.update_selections:
                ours._select()
            else:
                ours._donors, ours._hydrogens = theirs._donors, theirs._hydrogens
                ours._acceptors = theirs._acceptors
            ours.check_atoms()
        except SelectionError as error:  # it finds none
            raise UnsupportedError(f"{error}") from None
        return ours

    @property
    def _selections(self) -> dict[str, str | None]:
        """Selections of donors, hydrogens and acceptors."""
        return {
            "donors": self._donors_sel,
            "hydrogens": self._hydrogens_sel,
            "acceptors": self._acceptors_sel,
        }

    @property
    def _chosen(self) -> dict[str, Atoms]:
        """Donors, hydrogens and acceptors in the present frame."""
        return {
            "donors": self._donors,
            "hydrogens": self._hydrogens,
            "acceptors": self._acceptors,
        }

    @property
    def _is_searched(self) -> bool:
        """True if the pairs of donors and hydrogens are searched in each frame."""
        return self._donors_sel is not None and self.update_selections

    def _check_charges(self) -> None:
        """Raise `NoDataError` where there are no charges to guess by, nor names and bonds."""
        from MDAnalysis.exceptions import NoDataError

        if not (has_attribute(self.atomgroup, "charges") or self._guesses_by_name):
            raise NoDataError(
                "HydrogenBondAnalysis: hydrogens and acceptors are guessed by charge, or by names "
                "and bonds, and the topology has no charge information and no bonds: load one that "
                "has them (TPR, PSF, PRMTOP, …), choose them by hydrogens_sel= and acceptors_sel=, "
                "or let bonds be guessed by distance: guess_bonds=True (--guess-bonds)"
            )
        if self._guesses_by_name:
            found = bond_list(self.u)
            n_lacking = int(np.isin(self.atomgroup.indices, found.lacking).sum())
            if n_lacking:
                warn(
                    f"HydrogenBondAnalysis: {many(n_lacking, 'atom')} that are analysed have no "
                    f"bonds, and so no hydrogen bonds; bonds: {found.note}"
                )

    @property
    def _guesses_by_name(self) -> bool:
        """True if hydrogens and acceptors are guessed by names and bonds, for want of charges."""
        atoms = self.atomgroup
        known = has_attribute(atoms, "names") and not has_attribute(atoms, "charges")
        return known and len(bond_list(self.u).bonds) > 0

    def _check_between(self) -> None:
        """Warn of a group that has no atom among those of the analysis."""
        for group in (group for pair in self.between_ags or () for group in pair):
            if not np.isin(group.indices, self.atomgroup.indices).any():
                warn(
                    "HydrogenBondAnalysis: a group of between= has no atom among the "
                    f"{len(self.atomgroup):,} atoms that are analysed, so that it has no bonds; "
                    "analyse more atoms, or choose another group"
                )

    def _select(self) -> None:
        """Choose acceptors, donors and hydrogens."""
        self._changing, self._found = {}, None
        self._acceptors = self._choose("acceptors")
        hydrogens = self._choose("hydrogens")
        if self._donors_sel is None:
            donors = donors_of(self.u, hydrogens)
            inside = np.isin(donors.indices, self.atomgroup.indices)
            self._donors, self._hydrogens = donors[inside], hydrogens[inside]
        else:
            self._donors, self._hydrogens = self._choose("donors"), hydrogens
        if self._changing:
            self._found = self._follow()
        elif not (self._donors_sel is None or self._is_searched):
            from MDAnalysis.lib.distances import capped_distance

            pairs = capped_distance(
                self._donors.positions,
                hydrogens.positions,
                max_cutoff=self.d_h_cutoff,
                box=self.u.dimensions,
                return_distances=False,
            )
            self._donors, self._hydrogens = self._donors[pairs[:, 0]], hydrogens[pairs[:, 1]]

    def _atoms_of(self, selection: str, *, updating: bool = False) -> Atoms:
        """Select atoms of the analysis; by names of groups, too, where the Universe knows such."""
        give_bonds_to_select(self.u, selection)
        within = getattr(self.u, "select_within", type(self.atomgroup).select_atoms)
        return within(self.atomgroup, selection, updating=updating)

    def _choose(self, name: str) -> Atoms:
        """Select atoms of the present frame, and note a selection that chooses others in each."""
        selection, what = self._selections[name] or "", f"HydrogenBondAnalysis: {name}_sel"
        check_selection(selection)
        with naming_lacks(what, selection):
            group = self._atoms_of(selection, updating=self.update_selections)
        if not updates_itself(group):
            return group
        if is_changing(group, what):
            self._changing[name] = group
        return group.atoms

    def _follow(self) -> list[GroupFinder | FixedGroup]:
        """Make what finds donors, hydrogens and acceptors on workers.

        Without `donors_sel`, the donors are one of each atom that `hydrogens` reads.
        """
        found = {
            name: follow(self._changing[name], f"HydrogenBondAnalysis: {name}_sel")
            if name in self._changing
            else FixedGroup(self._chosen[name].indices)
            for name in ("donors", "hydrogens", "acceptors")
        }
        if self._donors_sel is None:
            hydrogens = found["hydrogens"]
            read = hydrogens.read.copy()
            donors = donors_of(self.u, self.u.atoms[read[hydrogens.may_choose]]).indices
            # Others are their own donors: they have no bonds.
            inside = np.isin(donors, self.atomgroup.indices)
            read[hydrogens.may_choose] = np.where(inside, donors, read[hydrogens.may_choose])
            found["donors"] = FixedGroup(read)
        return list(found.values())

    def guess_hydrogens(
        self,
        select: str = "all",
        max_mass: float = 1.1,
        min_charge: float = 0.3,
        min_mass: float = 0.9,
    ) -> str:
        """Guess hydrogens by their masses and charges, as MDAnalysis does.

        Parameters
        ----------
        select : str
            Atoms among which they are.
        max_mass : float
            Largest mass, u.
        min_charge : float
            Least charge, e.
        min_mass : float
            Least mass, u.

        Returns
        -------
        str
            A selection by residue names and names, or by types.
        """
        return _theirs().guess_hydrogens(self, select, max_mass, min_charge, min_mass)

    def _guess_all_hydrogens(self) -> str:
        """Guess hydrogens; warn of those that are bonded to N or O and have too little charge."""
        if self._guesses_by_name:
            return POLAR_HYDROGENS
        guessed = self._hydrogens_by_charge()
        warn_of_missed_hydrogens(self.atomgroup, guessed)
        return guessed

    def _hydrogens_by_charge(self) -> str:
        """Guess hydrogens, also those that were made heavier, as names and bonds tell."""
        return self.guess_hydrogens(max_mass=heaviest_hydrogen(self.u.atoms))

    def guess_donors(self, select: str = "all", max_charge: float = -0.5) -> str:
        """Guess donors by their charges, as MDAnalysis does.

        Parameters
        ----------
        select : str
            Atoms among which they are.
        max_charge : float
            Largest charge, e.

        Returns
        -------
        str
            A selection by residue names and names, or by types.
        """
        return _theirs().guess_donors(self, select, max_charge)

    def guess_acceptors(self, select: str = "all", max_charge: float = -0.5) -> str:
        """Guess acceptors by their charges, as MDAnalysis does.

        Parameters
        ----------
        select : str
            Atoms among which they are.
        max_charge : float
            Largest charge, e.

        Returns
        -------
        str
            A selection by residue names and names, or by types.
        """
        return _theirs().guess_acceptors(self, select, max_charge)

    def _guess_all_acceptors(self) -> str:
        """Guess acceptors; warn of oxygens that have too little charge, but for ethers."""
        if self._guesses_by_name:
            return POLAR_ACCEPTORS
        guessed = self.guess_acceptors()
        warn_of_missed_acceptors(self.atomgroup, guessed)
        return guessed

    @staticmethod
    def _group_categories(group: Atoms) -> str:
        return _theirs()._group_categories(group)

    @property
    def update_selections(self) -> bool:
        """True if selections are evaluated in each frame."""
        return bool(self._update_selections)

    @update_selections.setter
    def update_selections(self, value: bool) -> None:
        self._update_selections = value
        self._select()

    @property
    def donors_sel(self) -> str | None:
        """Selection of donors."""
        return self._donors_sel

    @donors_sel.setter
    def donors_sel(self, value: str | None) -> None:
        self._donors_sel = value
        self._select()

    @property
    def hydrogens_sel(self) -> str | None:
        """Selection of hydrogens; set to None, they are guessed."""
        return self._hydrogens_sel

    @hydrogens_sel.setter
    def hydrogens_sel(self, value: str | None) -> None:
        self._hydrogens_sel = self._guess_all_hydrogens() if value is None else value
        self._select()

    @property
    def acceptors_sel(self) -> str | None:
        """Selection of acceptors. If it is None, acceptors are guessed."""
        return self._acceptors_sel

    @acceptors_sel.setter
    def acceptors_sel(self, value: str | None) -> None:
        self._acceptors_sel = self._guess_all_acceptors() if value is None else value
        self._select()

    @property
    def indices(self) -> np.ndarray:
        """Atoms that are read: ndarray of int64, shape (n_atoms,).

        Donors, hydrogens and acceptors, each once; or if a selection changes, all that may be such,
        or whose positions it needs.
        """
        if self._found is not None:
            return np.concatenate([group.read for group in self._found])
        groups = self._donors, self._hydrogens, self._acceptors
        if not any(map(len, groups)):
            self.check_atoms()
        return sorted_unique(*(group.indices for group in groups))

    def parameters(self) -> dict[str, object]:
        """Parameters, for the record that is saved with the results."""
        given: dict[str, object] = {}
        for name in ("donors", "hydrogens", "acceptors"):
            if name in self._changing:
                given[name] = describe_group(self._changing[name])
            elif name == "donors" and self._donors_sel is None and "hydrogens" in self._changing:
                given[name] = "bonded to these hydrogens"
            else:
                given[name] = describe_atoms(self._chosen[name])
        given["criterion"] = self.criterion
        if self._is_searched:
            given["d_h_cutoff"] = self.d_h_cutoff
        if self.criterion == "mdanalysis":
            given |= {"d_a_cutoff": self.d_a_cutoff, "d_h_a_angle_cutoff": self.d_h_a_angle}
        for k, pair in enumerate(self.between_ags or ()):
            given[f"between {k}"] = " and ".join(map(describe_atoms, pair))
        return given

    def check_atoms(self) -> None:
        """Raise `SelectionError` where there can be no bonds."""
        fixed = self._donors, self._hydrogens, self._acceptors
        donors, hydrogens, acceptors = self._found or [FixedGroup(one.indices) for one in fixed]
        if not (self._donors_sel is None or self._is_searched or len(hydrogens.read)):
            raise SelectionError(
                f"HydrogenBondAnalysis: there is no hydrogen within d_h_cutoff={self.d_h_cutoff} Å "
                "of a donor: choose others by hydrogens_sel= and donors_sel=, or give a larger one"
            )
        for name, group in (("hydrogens", hydrogens), ("donors", donors), ("acceptors", acceptors)):
            if not group.may_choose.any():
                raise SelectionError(f"HydrogenBondAnalysis: {self._lack_of(name)}")

    def _lack_of(self, name: str) -> str:
        """Say why there are no donors, hydrogens or acceptors, and how to give them."""
        selection = self._selections[name]
        among = f"among the {len(self.atomgroup):,} atoms {self.which_atoms}"
        if selection and len(self._atoms_of(selection)):
            return (
                f"no hydrogen {among} is bonded to another one of these: choose more atoms, or "
                "donors by donors_sel="
            )
        guess = self._hydrogens_by_charge if name == "hydrogens" else self.guess_acceptors
        is_guess = has_attribute(self.atomgroup, "charges") and selection == guess()
        if not selection or is_guess:
            known = GUESSED.get(name, "")
            return f"there are no {name} {among}{known}: choose them by {name}_sel=, or more atoms"
        return f"no atom {among} is of {name}_sel={selection!r}: choose others"

    def _check_limits(self) -> None:
        """Raise `ValueError` for limits that make no sense, or that the criterion does not take."""
        length("d_h_cutoff", self.d_h_cutoff)
        length("d_a_cutoff", self.d_a_cutoff)
        if not 0 <= self.d_h_a_angle <= 180:
            raise ValueError(
                f"d_h_a_angle_cutoff must be from 0 to 180 degrees, not {self.d_h_a_angle!r}"
            )
        if 0 < self.d_h_a_angle < 60:
            warn(
                f"d_h_a_angle_cutoff={self.d_h_a_angle:g} is the smallest angle at the hydrogen, "
                "where a straight bond has 180°; the largest angle at the donor, as in GROMACS, "
                "is that of criterion='gromacs'"
            )
        given = self.d_a_cutoff, self.d_h_a_angle
        if self.criterion != "mdanalysis" and given != (D_A_CUTOFF, D_H_A_ANGLE_CUTOFF):
            raise ValueError(
                f"criterion={self.criterion!r} has limits of its own: leave d_a_cutoff= and "
                "d_h_a_angle_cutoff= out, or take criterion='mdanalysis'"
            )

    def may_bond(self, group: Atoms) -> bool:
        """True if an atom of a group is, or in some frame may be, a donor or an acceptor."""
        ends = (self._donors, self._acceptors)
        if self._found is not None:
            ends = (self.u.atoms[self._found[0].read], self.u.atoms[self._found[2].read])
        return any(np.isin(group.indices, one.indices).any() for one in ends)

    def prepare(self) -> Ragged:
        """Find the atoms among those that are read."""
        self._check_limits()
        self.check_atoms()
        within = float(self.d_h_cutoff) if self._is_searched else None
        numbers = CRITERIA.get(self.criterion, (float(self.d_a_cutoff), float(self.d_h_a_angle)))
        criterion = self.criterion, *numbers
        indices = self.indices
        if self._found is not None:
            donors, _, acceptors = (group.read for group in self._found)
            parts = self._parts(donors, acceptors)
            return ChangingBonds(indices, self._found, within, parts, criterion)
        donors, hydrogens, acceptors = (
            np.searchsorted(indices, group.indices)
            for group in (self._donors, self._hydrogens, self._acceptors)
        )
        parts = self._parts(self._donors.indices, self._acceptors.indices)
        return CoreBonds(indices, ((donors, hydrogens, within), acceptors, parts, criterion))

    def _parts(
        self, donors: np.ndarray, acceptors: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
        """Number donors and acceptors by the groups that they are in; which numbers may be bonded.

        None if all may be.
        """
        if self.between_ags is None:
            return None
        numbered = []
        for atoms in (donors, acceptors):
            within = [[np.isin(atoms, one.indices) for one in pair] for pair in self.between_ags]
            members = np.array(within).reshape(2 * len(within), len(atoms)).T
            numbered.append(np.unique(members, axis=0, return_inverse=True))
        (of_donors, first), (of_acceptors, second) = numbered
        ones, others = of_donors[:, None, ::2], of_donors[:, None, 1::2]
        allowed = (ones & of_acceptors[None, :, 1::2]) | (others & of_acceptors[None, :, ::2])
        numbers = (one.reshape(-1).astype(np.int64) for one in (first, second))
        return *numbers, np.ascontiguousarray(allowed.any(axis=2))  # type: ignore[return-value]

    def finish(self, value: tuple[np.ndarray, np.ndarray]) -> None:
        """Keep the bonds, and count them."""
        offsets, hbonds = value
        if hbonds.ndim == 1:  # no frame could be read
            hbonds = np.empty((0, 6))
        counts = self.record_counts(offsets)
        name = "hydrogen bonds"
        self.results = Results(
            table=table_of_records(self, name, counts),
            provenance=self.record(),
            hbonds=hbonds,
            counts=counts,
            offsets=offsets,
        )

    def count_by_time(self) -> np.ndarray:
        """Count the bonds of each frame.

        Returns
        -------
        numpy.ndarray of int64, shape (n_frames,)
            Float64, with NaN for damaged frames that were left out, if there are any.
        """
        return self.results.counts

    def count_by_type(self) -> np.ndarray:
        """Count the bonds of all frames by residue names and types of donor and acceptor.

        Returns
        -------
        numpy.ndarray of str, shape (n_types, 3)
            "residue:type" of donor and acceptor, and the number, in alphabetical order.
        """
        ends, counts = self._unique([1, 3])
        donors, acceptors = (self.u.atoms[column] for column in ends.T)
        columns = []
        for atoms in (donors, acceptors):
            unnamed = len(atoms) * ["None"]
            columns += [
                atoms.resnames if has_attribute(atoms, "resnames") else unnamed,
                atoms.types,
            ]
        names = np.array(columns, dtype=str).T
        rows = zip(*_summed(names, counts), strict=True)
        counted = [[":".join(kind[:2]), ":".join(kind[2:]), n] for kind, n in rows]
        return np.array(counted, dtype=str).reshape(-1, 3)

    def count_by_ids(self) -> np.ndarray:
        """Count the frames of each bond, of the same donor, hydrogen and acceptor.

        Returns
        -------
        numpy.ndarray of int64, shape (n_unique, 4)
            Ids (not indices) of the atoms, and the number; the most frequent first.
        """
        atoms, counts = self._unique([1, 2, 3])
        rows, total = _summed(self.u.atoms.ids[atoms], counts)
        unique = np.concatenate([rows, total[:, None]], axis=1)
        return unique[unique[:, 3].argsort()[::-1]]

    FURTHER_TABLES = ("frequent", "timeline")
    #: Largest lag of the further table of correlations in time, frames; None for no such table.
    correlation_lags: int | None = None

    def further_tables(self) -> dict[str, Table]:
        """Tabulate the most frequent bonds, and the frames in which the first of them are.

        If `correlation_lags` asks, correlations in time, too.
        """
        tables = {"frequent": self._most_frequent()}
        tables["timeline"] = self._timeline(tables["frequent"])
        if (lags := self.correlation_lags) is not None:
            ends, offsets = self._ends(), self.results.offsets
            tables["correlation"] = presence_table(
                self, ends, offsets, "hydrogen bonds", lags, "lifetime"
            )
        return tables

    def _most_frequent(self) -> Table:
        """Tabulate the bonds that are in most frames, at most 1,000, by names of their atoms."""
        atoms, counts = self._unique([1, 2, 3])
        order = np.argsort(-counts, kind="stable")[:MOST_FREQUENT]
        columns = dict(zip(("donor", "hydrogen", "acceptor"), atoms[order].T, strict=True))
        donors, hydrogens, acceptors = (self.u.atoms[column] for column in columns.values())
        names = zip(atom_labels(donors), names_of(hydrogens), atom_labels(acceptors), strict=True)
        labels = [f"{donor}–{hydrogen} … {acceptor}" for donor, hydrogen, acceptor in names]
        n_frames = self.n_frames - len(self.damaged)
        return fractions_of_frames("hydrogen bond", labels, columns, counts[order], n_frames)

    def _timeline(self, frequent: Table) -> Table:
        """Tabulate in which frames the most frequent bonds are."""
        atoms = [frequent.columns[name][:MOST_MARKED] for name in ("donor", "hydrogen", "acceptor")]
        bonds = self.results.hbonds[:, 1:4].astype(np.int64)
        places = np.full(len(bonds), MOST_MARKED)
        for place, three in enumerate(zip(*atoms, strict=True)):
            places[(bonds == three).all(axis=1)] = place
        rows = np.repeat(np.arange(self.n_frames), np.diff(self.results.offsets))
        labels = frequent.columns["hydrogen bond"][:MOST_MARKED].tolist()
        return timeline_table(self, "hydrogen bond", labels, rows, places)

    def _unique(self, columns: list[int]) -> tuple[np.ndarray, np.ndarray]:
        """Find the different atoms in some columns, and the number of bonds of each."""
        atoms = [self.results.hbonds[:, column].astype(np.intp) for column in columns]
        keys = atoms[0]
        for column in atoms[1:]:
            # Numbered anew each time: 64 bits do not hold three indices of millions of atoms.
            keys = np.unique(keys, return_inverse=True)[1].reshape(-1) * len(self.u.atoms) + column
        _, first, counts = np.unique(keys, return_index=True, return_counts=True)
        return np.column_stack([column[first] for column in atoms]), counts

    def lifetime(
        self, tau_max: int = 20, window_step: int = 1, intermittency: int = 0
    ) -> np.ndarray:
        """Compute MDAnalysis's autocorrelation of bonds; see `time_correlation` for others.

        It is the mean over origins, of those that have bonds, of the fraction that is there still;
        with `intermittency`, gaps of so many frames are filled first.

        Parameters
        ----------
        tau_max : int
            Largest lag, frames.
        window_step : int
            From one origin to the next, frames.
        intermittency : int
            Longest gap that counts as bonded, frames.

        Returns
        -------
        numpy.ndarray of float64, shape (2, tau_max + 1)
            Lags, frames of the run, and values.
        """
        self._check_correlation()
        n_frames = self.n_frames
        tau_max = whole_number("tau_max", tau_max, 0, n_frames, "frames")
        window_step = whole_number("window_step", window_step, 1, unit="frames")
        intermittency = whole_number("intermittency", intermittency, 0, unit="frames")
        rows = np.repeat(np.arange(n_frames), np.diff(self.results.offsets))
        origins = range(0, n_frames, window_step)
        values = mean_survival(self._ends(), rows, n_frames, origins, tau_max, intermittency)
        return np.vstack([np.arange(tau_max + 1), values])

    def _ends(self) -> np.ndarray:
        """Number the hydrogen and the acceptor of each bond: int64, shape (n_bonds,)."""
        hydrogens, acceptors = self.results.hbonds[:, 2:4].T.astype(np.int64)
        return hydrogens * len(self.u.atoms) + acceptors

    def time_correlation(self, function: str = "intermittent", *, tau_max: int = 20) -> Results:
        r"""Compute the correlation in time of the bonds between a hydrogen and an acceptor.

        With $h(t)$, 1 while two are bonded and else 0, and sums over all pairs and origins $t$
        that have a frame $t + \tau$:

        | function | value |
        | --- | --- |
        | intermittent | $\sum h(t)\,h(t + \tau) / \sum h(t)$ (Luzar & Chandler 1996) |
        | continuous | $\sum h(t)\,h(t + 1) \cdots h(t + \tau) / \sum h(t)$ (Rapaport 1983) |

        Sums are whole numbers, so that the values have the same bits everywhere.

        Parameters
        ----------
        function : {"intermittent", "continuous"}
            The function.
        tau_max : int
            Largest lag, frames of the run.

        Returns
        -------
        Results
            `tau`, lags in ps, and `correlation`: ndarrays of float64, shape (tau_max + 1,);
            `lifetime`, float, ps: the integral up to the largest lag, too short unless the
            correlation has decayed there; and `lifetime_interval`, half of the width of its 95 %
            interval, by ten blocks of origins, of which each is left out once. It can be believed
            where the run is 100 times as long as the lifetime, and is NaN where `tau_max` is more
            than a fifth of the run.

        Raises
        ------
        UnsupportedError
            Frames or their times are not equidistant, or damaged ones were left out.
        ValueError
            An unknown function, a lag without frames, or no bonds.
        """
        self._check_correlation()
        ends, offsets = self._ends(), self.results.offsets
        return presence_correlation(
            self, ends, offsets, "hydrogen bonds", function, tau_max, "lifetime"
        )

    def _check_correlation(self) -> None:
        """Raise errors where frames make no series in time."""
        _ = self.results.hbonds  # or `NotRunError`
        check_presence(self, "hydrogen bonds")


def _groups(universe: System, between: Sequence[Sequence[str] | str]) -> list[list[Atoms]]:
    """Select the pairs of groups between which bonds are."""
    is_pair = len(between) > 0 and isinstance(between[0], str)
    pairs: list[Any] = [between] if is_pair else list(between)
    if not pairs or any(isinstance(pair, str) or len(pair) != 2 for pair in pairs):
        raise ValueError(
            f"between must be a pair of selections, or a list of pairs, not {between!r}"
        )
    for text in chain.from_iterable(pairs):
        check_selection(text)
    return [[universe.select_atoms(one) for one in pair] for pair in pairs]


def _summed(rows: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sum up the counts of equal rows."""
    unique, number = np.unique(rows, axis=0, return_inverse=True)
    total = np.zeros(len(unique), dtype=np.int64)
    np.add.at(total, number.reshape(-1), counts)
    return unique, total


def _theirs() -> "type[MDAnalysis.analysis.hydrogenbonds.hbond_analysis.HydrogenBondAnalysis]":
    from MDAnalysis.analysis.hydrogenbonds.hbond_analysis import HydrogenBondAnalysis

    return HydrogenBondAnalysis


def __getattr__(name: str) -> object:
    return name_of_mdanalysis(__name__, name)
