"""Hydrogen bonds, with the parameters and results of MDAnalysis.analysis.hydrogenbonds."""

import warnings
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from paceline._util.arguments import check_selection, length, one_of, whole_number
from paceline._util.sorted_unique import sorted_unique
from paceline.analysis import name_of_mdanalysis
from paceline.analysis.base import AnalysisBase, table_of_records
from paceline.analysis.groups import (
    check_presence,
    mean_survival,
    presence_correlation,
    presence_table,
    timeline_table,
)
from paceline.analysis.guess_elements_and_donors import (
    POLAR,
    POLAR_ACCEPTORS,
    POLAR_HYDROGENS,
    donors_of,
    heaviest_hydrogen,
    missed_acceptors,
    missed_hydrogens,
)
from paceline.analysis.jackknife_intervals import errors_of_presence
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
from paceline.analysis.updating_groups import (
    FixedGroup,
    GroupFinder,
    describe_group,
    follow,
    is_changing,
)
from paceline.contract.analysis_declaration import CORRELATION, LAGS, Declaration, Member, Option
from paceline.contract.analysis_kinds import Ragged
from paceline.contract.run_info_and_descriptions import describe_atoms
from paceline.contract.system_interface import Atoms, System, UpdatingAtoms, has_attribute
from paceline.errors import SelectionError, UnsupportedError
from paceline.performance.number_format import many
from paceline.transform.known_and_guessed_bonds import add_bonds_to_select, bond_list
from paceline.transform.selections_and_weights import naming_lacks, updates_itself

if TYPE_CHECKING:
    import MDAnalysis.analysis.hydrogenbonds.hbond_analysis

#: Required by the import hook for submodules that only MDAnalysis has (see `paceline.analysis`).
__path__: list[str] = []

#: Limits of the fixed criteria: distance (Å) and angle (degrees); for "wernet_nilsson", distance
#: (Å) and its decrease in Å per degree squared.
CRITERIA = {
    "baker_hubbard": (2.5, 120.0),
    "gromacs": (3.5, 30.0),
    "wernet_nilsson": (3.3, 0.00044),
}
#: Default distance limit of MDAnalysis's criterion, Å.
D_A_CUTOFF = 3.0
#: Default angle limit of MDAnalysis's criterion, degrees.
D_H_A_ANGLE_CUTOFF = 150
#: Description in messages of how atoms without a selection are guessed.
GUESSED = {
    "hydrogens": ", by masses from 0.9 to 1.1 u and charges above 0.3 e",
    "acceptors": ", by charges below -0.5 e",
}


class HydrogenBondAnalysis(AnalysisBase):
    r"""Hydrogen bonds in each frame.

    A donor D with a hydrogen H and an acceptor A form a bond if they meet a criterion:

    | criterion | bond |
    | --- | --- |
    | mdanalysis | D–A ≤ `d_a_cutoff`, and the angle D–H–A > `d_h_a_angle_cutoff` |
    | baker_hubbard | H–A < 2.5 Å, and the angle D–H–A > 120° (Baker & Hubbard 1984) |
    | wernet_nilsson | D–A < 3.3 Å - 0.00044 δ², δ the angle H–D–A in degrees (Wernet et al. 2004) |
    | gromacs | D–A ≤ 3.5 Å, and the angle H–D–A ≤ 30° (Luzar & Chandler 1996) |

    If a criterion limits D–A, this distance must also be more than 1 Å.

    Distances and angles are between nearest images, in cells of any shape. With "mdanalysis",
    bonds, their order, distances and angles equal those of MDAnalysis's class to the last bit. The
    only exception: if selections overlap, no atom is its own donor.

    Parameters
    ----------
    universe : Universe or AtomGroup
        System, or the atoms that contain donors, hydrogens and acceptors.
    donors_sel, hydrogens_sel, acceptors_sel : str, optional
        Selections. Without `donors_sel`, the donor of a hydrogen is the first atom bonded to it.
        Hydrogens and acceptors without a selection are guessed by mass and charge
        (`guess_hydrogens`, `guess_acceptors`). If the topology has no charges, hydrogens are those
        bonded to N or O, and acceptors are all N and O with a bond. A warning reports hydrogens
        bonded to N or O whose charge is too small, as for most hydrogens in Amber's force fields.
        The warning also reports oxygens whose charge is too small and which have at most one bonded
        heavy atom, as for most of these oxygens in OPLS's force fields.
    between : (str, str) or list of them, optional
        Only bonds between atoms of these two selections, in either direction; with several pairs,
        of any pair. The selections are evaluated once.
    d_h_cutoff : float
        With `donors_sel`: maximum distance between a donor and its hydrogen, Å.
    d_a_cutoff : float
        Maximum distance between donor and acceptor, Å.
    d_h_a_angle_cutoff : float
        Minimum angle at the hydrogen, degrees.
    update_selections : bool
        Evaluate selections that depend on positions, such as `around 5 protein`, in each frame
        instead of only in the current one. With `donors_sel`, also search the pairs of donors and
        hydrogens in each frame.
    criterion : {"mdanalysis", "baker_hubbard", "wernet_nilsson", "gromacs"}
        Criterion for a bond. All criteria but "mdanalysis" have fixed limits, and do not accept the
        cutoffs above.
    errors : bool
        Also compute 95 % intervals of the fractions of frames in which the 1,000 most frequent
        bonds exist (`further_tables`), from parts of the run.

    Attributes
    ----------
    results.hbonds : numpy.ndarray of float64, shape (n_bonds, 6)
        For each bond: frame, indices of donor, hydrogen and acceptor, distance D–A (Å), and angle
        D–H–A (degrees). An array of more than 1 GiB is in a temporary file.
    results.counts : numpy.ndarray of int64, shape (n_frames,)
        Number of bonds in each frame. If damaged frames were left out, the dtype is float64, and
        the number is NaN for these frames, which have no bonds.
    results.offsets : numpy.ndarray of int64, shape (n_frames + 1,)
        Index of each frame's first bond, and the total number of bonds.
    results.frequent_intervals : numpy.ndarray of float64, shape (n_frequent, 2)
        With `errors`: lower and upper limits of the 95 % intervals of the fractions of frames in
        which each of the most frequent bonds exists. NaN for bonds whose fraction is the
        same in all parts of the run, such as bonds that always exist, and for runs of fewer than 4
        parts. See `paceline.analysis.jackknife_intervals`.

    Raises
    ------
    SelectionError
        There are no donors, hydrogens or acceptors, or a hydrogen has no bond.
    UnsupportedError
        Workers cannot evaluate a selection by positions, as for `SelectedAtoms`.
    MDAnalysis.exceptions.NoDataError
        The topology lacks the bonds, charges or masses that are needed.
    ValueError
        The criterion is unknown. In the run: cutoffs are not lengths or angles, or do not belong to
        the criterion; as `AnalysisError`: a position is NaN, or a cell is invalid or smaller than
        the cutoff.

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
        summary="number of hydrogen bonds, and as .npz the bonds themselves",
        description=(
            "Number of hydrogen bonds in each frame. A .npz file also contains each bond: frame, "
            "donor, hydrogen, acceptor, distance (Å) and angle (degrees). In the selected atoms, "
            "donors are found by bonds, and hydrogens and acceptors by mass and charge, or, "
            "without charges in the topology, by names and bonds."
        ),
        section="hydrogen-bonds.md#hydrogen-bonds",
        select="protein, or the atoms of --between",
        examples=(
            "adk.psf adk.dcd -o hbonds.csv --plot hbonds.png --frequent frequent.csv",
            'md.tpr md.xtc --between protein "resname SOL" --correlation correlation.csv',
        ),
        options=(
            Option("between", "only bonds between these two groups", nargs=2, metavar="SELECTION"),
            Option(
                "donors_sel",
                "donors; hydrogens are then assigned to them by distance",
                metavar="SELECTION",
            ),
            Option("hydrogens_sel", "hydrogens", metavar="SELECTION"),
            Option("acceptors_sel", "acceptors", metavar="SELECTION"),
            "d_a_cutoff",
            "d_h_a_angle_cutoff",
            "criterion",
            "errors",
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
            "frequent": "write the fraction of frames in which each bond exists",
            "timeline": "write the frames in which the 20 most frequent bonds exist; as a figure, "
            "a bar code",
            "correlation": CORRELATION.format("bonds"),
        },
        chooses=True,
    )

    needs_one_location = True

    SHARED_RESULTS = ("hbonds",)

    #: True if 95 % intervals of the fractions of frames with each frequent bond are computed.
    errors = False
    #: Updating groups of selections that depend on positions.
    _changing: dict[str, UpdatingAtoms]
    #: End of the phrase "the atoms …" in messages; the command line sets a text with its option.
    which_atoms = "that are analysed"
    #: Finders of donors, hydrogens and acceptors in each frame; None if no selection is updated.
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
        errors: bool = False,
        verbose: bool = False,
    ):
        super().__init__(universe, verbose=verbose)
        self.errors = errors
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
    def from_mdanalysis(
        cls, theirs: "MDAnalysis.analysis.hydrogenbonds.hbond_analysis.HydrogenBondAnalysis"
    ) -> Self:
        """Make an analysis with the atoms and cutoffs of MDAnalysis's analysis."""
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
        except SelectionError as error:  # MDAnalysis's analysis would find no bonds
            raise UnsupportedError(f"{error}") from None
        return ours

    @property
    def _selections(self) -> dict[str, str | None]:
        """Selections of donors, hydrogens and acceptors, by name."""
        return {
            "donors": self._donors_sel,
            "hydrogens": self._hydrogens_sel,
            "acceptors": self._acceptors_sel,
        }

    @property
    def _chosen(self) -> dict[str, Atoms]:
        """Donors, hydrogens and acceptors in the current frame, by name."""
        return {
            "donors": self._donors,
            "hydrogens": self._hydrogens,
            "acceptors": self._acceptors,
        }

    @property
    def _is_searched(self) -> bool:
        """True if pairs of donors and hydrogens are searched in each frame."""
        return self._donors_sel is not None and self.update_selections

    def _check_charges(self) -> None:
        """Raise `NoDataError` if atoms cannot be guessed by charges, nor by names and bonds."""
        from MDAnalysis.exceptions import NoDataError

        if not (has_attribute(self.atomgroup, "charges") or self._guesses_by_name):
            raise NoDataError(
                "HydrogenBondAnalysis: hydrogens and acceptors are guessed by charge, or by names "
                "and bonds, but the topology has no charge information and no bonds: use one "
                "with them (TPR, PSF, PRMTOP, …), set hydrogens_sel= and acceptors_sel=, "
                "or let bonds be guessed by distance: guess_bonds=True (--guess-bonds)"
            )
        if self._guesses_by_name:
            found = bond_list(self.u)
            n_lacking = int(np.isin(self.atomgroup.indices, found.lacking).sum())
            if n_lacking:
                self.remark(
                    "bonds",
                    f"HydrogenBondAnalysis: {many(n_lacking, 'analysed atom')} have no "
                    f"bonds, and therefore no hydrogen bonds; bonds: {found.note}",
                )

    @property
    def _guesses_by_name(self) -> bool:
        """True if atoms are guessed by names and bonds, because the topology has no charges."""
        atoms = self.atomgroup
        known = has_attribute(atoms, "names") and not has_attribute(atoms, "charges")
        return known and len(bond_list(self.u).bonds) > 0

    def _check_between(self) -> None:
        """Warn if a group of `between` contains no analysed atoms."""
        for group in (group for pair in self.between_ags or () for group in pair):
            if not np.isin(group.indices, self.atomgroup.indices).any():
                self.remark(
                    "between",
                    "HydrogenBondAnalysis: a group of between= contains none of the "
                    f"{len(self.atomgroup):,} analysed atoms, so it has no bonds; "
                    "analyse more atoms, or use another group",
                )

    def _select(self) -> None:
        """Select acceptors, donors and hydrogens."""
        self._changing, self._found = {}, None
        self._acceptors = self._choose("acceptors")
        hydrogens = self._choose("hydrogens")
        if self._donors_sel is None:
            donors = donors_of(self.u, hydrogens, type(self).__name__)
            inside = np.isin(donors.indices, self.atomgroup.indices)
            self._donors, self._hydrogens = donors[inside], hydrogens[inside]
        else:
            self._donors, self._hydrogens = self._choose("donors"), hydrogens
        if self._changing:
            self._found = self._make_finders()
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
        """Select some of the analysed atoms; the selection may name groups of the Universe."""
        add_bonds_to_select(self.u, selection)
        within = getattr(self.u, "select_within", type(self.atomgroup).select_atoms)
        return within(self.atomgroup, selection, updating=updating)

    def _choose(self, name: str) -> Atoms:
        """Select atoms in the current frame; store the group if it depends on positions."""
        selection, what = self._selections[name] or "", f"HydrogenBondAnalysis: {name}_sel"
        check_selection(selection)
        with naming_lacks(what, selection):
            group = self._atoms_of(selection, updating=self.update_selections)
        if not updates_itself(group):
            return group
        if is_changing(group, what):
            self._changing[name] = group
        return group.atoms

    def _make_finders(self) -> list[GroupFinder | FixedGroup]:
        """Make the objects with which workers find donors, hydrogens and acceptors.

        Without `donors_sel`, the donors are a `FixedGroup` with one donor for each atom in the
        attribute `read` of the hydrogens.
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
            atoms = self.u.atoms[read[hydrogens.selectable]]
            donors = donors_of(self.u, atoms, type(self).__name__).indices
            # A hydrogen whose donor is not analysed becomes its own donor, and so forms no bonds.
            inside = np.isin(donors, self.atomgroup.indices)
            read[hydrogens.selectable] = np.where(inside, donors, read[hydrogens.selectable])
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
            Selection that contains the hydrogens.
        max_mass : float
            Maximum mass, u.
        min_charge : float
            Minimum charge, e.
        min_mass : float
            Minimum mass, u.

        Returns
        -------
        str
            Selection by residue names and atom names, or by types.
        """
        return _mdanalysis_class().guess_hydrogens(self, select, max_mass, min_charge, min_mass)

    def _guess_all_hydrogens(self) -> str:
        """Guess hydrogens; warn of those bonded to N or O whose charge is too small."""
        if self._guesses_by_name:
            return POLAR_HYDROGENS
        guessed = self._hydrogens_by_charge()
        self.remark("hydrogens", missed_hydrogens(self.atomgroup, guessed, type(self).__name__))
        return guessed

    def _hydrogens_by_charge(self) -> str:
        """Guess hydrogens by charge, including those with a repartitioned mass."""
        return self.guess_hydrogens(max_mass=heaviest_hydrogen(self.u.atoms))

    def guess_donors(self, select: str = "all", max_charge: float = -0.5) -> str:
        """Guess donors by their charges, as MDAnalysis does.

        Parameters
        ----------
        select : str
            Selection that contains the donors.
        max_charge : float
            Maximum charge, e.

        Returns
        -------
        str
            Selection by residue names and atom names, or by types.
        """
        return _mdanalysis_class().guess_donors(self, select, max_charge)

    def guess_acceptors(self, select: str = "all", max_charge: float = -0.5) -> str:
        """Guess acceptors by their charges, as MDAnalysis does.

        Parameters
        ----------
        select : str
            Selection that contains the acceptors.
        max_charge : float
            Maximum charge, e.

        Returns
        -------
        str
            Selection by residue names and atom names, or by types.
        """
        return _mdanalysis_class().guess_acceptors(self, select, max_charge)

    def _guess_all_acceptors(self) -> str:
        """Guess acceptors; warn of oxygens, except in ethers, whose charge is too small."""
        if self._guesses_by_name:
            return POLAR_ACCEPTORS
        guessed = self.guess_acceptors()
        self.remark("acceptors", missed_acceptors(self.atomgroup, guessed, type(self).__name__))
        return guessed

    @staticmethod
    def _group_categories(group: Atoms) -> str:
        return _mdanalysis_class()._group_categories(group)

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
        """Selection of hydrogens; if it is None, hydrogens are guessed."""
        return self._hydrogens_sel

    @hydrogens_sel.setter
    def hydrogens_sel(self, value: str | None) -> None:
        self._hydrogens_sel = self._guess_all_hydrogens() if value is None else value
        self._select()

    @property
    def acceptors_sel(self) -> str | None:
        """Selection of acceptors; if it is None, acceptors are guessed."""
        return self._acceptors_sel

    @acceptors_sel.setter
    def acceptors_sel(self, value: str | None) -> None:
        self._acceptors_sel = self._guess_all_acceptors() if value is None else value
        self._select()

    @property
    def indices(self) -> np.ndarray:
        """Indices of the atoms to read: int64, shape (n_atoms,).

        The atoms are donors, hydrogens and acceptors, without repeats. If a selection depends on
        positions, they are all atoms that it may select, or whose positions it needs.
        """
        if self._found is not None:
            return np.concatenate([group.read for group in self._found])
        groups = self._donors, self._hydrogens, self._acceptors
        if not any(map(len, groups)):
            self.check_atoms()
        return sorted_unique(*(group.indices for group in groups))

    def parameters(self) -> dict[str, object]:
        """Return the parameters that are saved with the results."""
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
        return {**given, **({"errors": True} if self.errors else {})}

    def check_atoms(self) -> None:
        """Raise `SelectionError` if hydrogen bonds are impossible."""
        fixed = self._donors, self._hydrogens, self._acceptors
        donors, hydrogens, acceptors = self._found or [FixedGroup(one.indices) for one in fixed]
        if not (self._donors_sel is None or self._is_searched or len(hydrogens.read)):
            raise SelectionError(
                f"HydrogenBondAnalysis: there is no hydrogen within d_h_cutoff={self.d_h_cutoff} Å "
                "of a donor: set hydrogens_sel= and donors_sel=, or a larger cutoff"
            )
        for name, group in (("hydrogens", hydrogens), ("donors", donors), ("acceptors", acceptors)):
            if not group.selectable.any():
                raise SelectionError(f"HydrogenBondAnalysis: {self._reason_without(name)}")

    def _reason_without(self, name: str) -> str:
        """Describe why there are no donors, hydrogens or acceptors, and the remedy."""
        selection = self._selections[name]
        among = f"among the {len(self.atomgroup):,} atoms {self.which_atoms}"
        if selection and len(self._atoms_of(selection)):
            return (
                f"no hydrogen {among} is bonded to another one of these atoms: use more atoms, or "
                "set donors_sel="
            )
        guess = self._hydrogens_by_charge if name == "hydrogens" else self.guess_acceptors
        is_guess = has_attribute(self.atomgroup, "charges") and selection == guess()
        if not selection or is_guess:
            known = GUESSED.get(name, "")
            return f"there are no {name} {among}{known}: set {name}_sel=, or use more atoms"
        return f"no atom {among} matches {name}_sel={selection!r}: use another selection"

    def _check_limits(self) -> None:
        """Raise `ValueError` for limits that are invalid or do not belong to the criterion."""
        length("d_h_cutoff", self.d_h_cutoff)
        length("d_a_cutoff", self.d_a_cutoff)
        if not 0 <= self.d_h_a_angle <= 180:
            raise ValueError(
                f"d_h_a_angle_cutoff must be from 0 to 180 degrees, not {self.d_h_a_angle!r}"
            )
        if 0 < self.d_h_a_angle < 60:
            self.remark(
                "angle",
                f"d_h_a_angle_cutoff={self.d_h_a_angle:g} is the minimum angle at the hydrogen, "
                "where a straight bond has 180°; for a maximum angle at the donor, as in GROMACS, "
                "use criterion='gromacs'",
            )
        given = self.d_a_cutoff, self.d_h_a_angle
        if self.criterion != "mdanalysis" and given != (D_A_CUTOFF, D_H_A_ANGLE_CUTOFF):
            raise ValueError(
                f"criterion={self.criterion!r} has fixed limits: omit d_a_cutoff= and "
                "d_h_a_angle_cutoff=, or use criterion='mdanalysis'"
            )

    def may_bond(self, group: Atoms) -> bool:
        """True if an atom of a group can be a donor or an acceptor in any frame."""
        ends = (self._donors, self._acceptors)
        if self._found is not None:
            ends = (self.u.atoms[self._found[0].read], self.u.atoms[self._found[2].read])
        return any(np.isin(group.indices, one.indices).any() for one in ends)

    def prepare(self) -> Ragged:
        """Find the atoms in the decoded atoms, and make the worker part."""
        self._check_limits()
        self.check_atoms()
        within = float(self.d_h_cutoff) if self._is_searched else None
        numbers = CRITERIA.get(self.criterion, (float(self.d_a_cutoff), float(self.d_h_a_angle)))
        criterion = self.criterion, *numbers
        indices = self.indices
        if self._found is not None:
            donors, _, acceptors = (group.read for group in self._found)
            parts = self._number_groups(donors, acceptors)
            return ChangingBonds(indices, self._found, within, parts, criterion)
        donors, hydrogens, acceptors = (
            np.searchsorted(indices, group.indices)
            for group in (self._donors, self._hydrogens, self._acceptors)
        )
        parts = self._number_groups(self._donors.indices, self._acceptors.indices)
        return CoreBonds(indices, ((donors, hydrogens, within), acceptors, parts, criterion))

    def _number_groups(
        self, donors: np.ndarray, acceptors: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
        """Number donors and acceptors by the groups of `between` that contain them.

        Returns the numbers of donors, those of acceptors, and a mask of the pairs of numbers that
        may form bonds; None if all pairs of atoms may form bonds.
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
        """Store the bonds, and count them in each frame."""
        offsets, hbonds = value
        if hbonds.ndim == 1:  # no frame could be read
            hbonds = np.empty((0, 6))
        counts = self.record_counts(offsets)
        name = "hydrogen bonds"
        self.results = Results(
            table=table_of_records(self, name, counts),
            provenance={},
            hbonds=hbonds,
            counts=counts,
            offsets=offsets,
        )
        method = self._set_intervals() if self.errors else {}
        # Make the record last, because it contains remarks on the intervals.
        self.results.provenance.update({**self.record(), **method})

    def _set_intervals(self) -> dict[str, str]:
        """Store the 95 % intervals of the most frequent bonds, and return their method."""
        numbers = np.zeros(len(self.results.hbonds), np.intp)
        for column in self.results.hbonds[:, 1:4].astype(np.intp).T:
            keys = numbers * len(self.u.atoms) + column
            numbers = np.unique(keys, return_inverse=True)[1].reshape(-1)
        order = np.argsort(-np.bincount(numbers), kind="stable")
        rank_of = np.argsort(order, kind="stable")
        rows = np.repeat(np.arange(self.n_frames), np.diff(self.results.offsets))
        n = min(MOST_FREQUENT, len(order))
        fractions, found = errors_of_presence(self, rows, rank_of[numbers], n)
        self.results.frequent_intervals = found.limits(fractions)
        return {"intervals": found.method}

    def count_by_time(self) -> np.ndarray:
        """Count the bonds in each frame.

        Returns
        -------
        numpy.ndarray of int64, shape (n_frames,)
            Number of bonds. If damaged frames were left out, the dtype is float64, with NaN for
            these frames.
        """
        return self.results.counts

    def count_by_type(self) -> np.ndarray:
        """Count the bonds of all frames by residue name and atom type of donor and acceptor.

        Returns
        -------
        numpy.ndarray of str, shape (n_types, 3)
            "residue:type" of donor and acceptor, and the number of bonds, sorted alphabetically.
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
        rows = zip(*_sum_equal_rows(names, counts), strict=True)
        counted = [[":".join(kind[:2]), ":".join(kind[2:]), n] for kind, n in rows]
        return np.array(counted, dtype=str).reshape(-1, 3)

    def count_by_ids(self) -> np.ndarray:
        """Count the frames of each bond, identified by donor, hydrogen and acceptor.

        Returns
        -------
        numpy.ndarray of int64, shape (n_unique, 4)
            Ids (not indices) of the atoms, and the number of frames; most frequent bonds first.
        """
        atoms, counts = self._unique([1, 2, 3])
        rows, total = _sum_equal_rows(self.u.atoms.ids[atoms], counts)
        unique = np.concatenate([rows, total[:, None]], axis=1)
        return unique[unique[:, 3].argsort()[::-1]]

    FURTHER_TABLES = ("frequent", "timeline")
    #: Largest lag of the further table of time correlations, frames; None for no table.
    correlation_lags: int | None = None

    def further_tables(self) -> dict[str, Table]:
        """Return tables of the most frequent bonds, and of the frames in which they exist.

        If `correlation_lags` is set, also return the table of time correlations.
        """
        tables = {"frequent": self._most_frequent()}
        tables["timeline"] = self._timeline(tables["frequent"])
        if (lags := self.correlation_lags) is not None:
            ends, offsets = self._number_pairs(), self.results.offsets
            tables["correlation"] = presence_table(
                self, ends, offsets, "hydrogen bonds", lags, "lifetime"
            )
        return tables

    def _most_frequent(self) -> Table:
        """Make a table of the most frequent bonds, at most 1,000, by names of their atoms."""
        atoms, counts = self._unique([1, 2, 3])
        order = np.argsort(-counts, kind="stable")[:MOST_FREQUENT]
        columns = dict(zip(("donor", "hydrogen", "acceptor"), atoms[order].T, strict=True))
        donors, hydrogens, acceptors = (self.u.atoms[column] for column in columns.values())
        names = zip(atom_labels(donors), names_of(hydrogens), atom_labels(acceptors), strict=True)
        labels = [f"{donor}–{hydrogen} … {acceptor}" for donor, hydrogen, acceptor in names]
        n_frames = self.n_frames - len(self.damaged)
        intervals = self.results.frequent_intervals if self.errors else None
        return fractions_of_frames(
            "hydrogen bond", labels, columns, counts[order], n_frames, intervals
        )

    def _timeline(self, frequent: Table) -> Table:
        """Make a table of the frames in which the most frequent bonds exist."""
        atoms = [frequent.columns[name][:MOST_MARKED] for name in ("donor", "hydrogen", "acceptor")]
        bonds = self.results.hbonds[:, 1:4].astype(np.int64)
        places = np.full(len(bonds), MOST_MARKED)
        for place, three in enumerate(zip(*atoms, strict=True)):
            places[(bonds == three).all(axis=1)] = place
        rows = np.repeat(np.arange(self.n_frames), np.diff(self.results.offsets))
        labels = frequent.columns["hydrogen bond"][:MOST_MARKED].tolist()
        return timeline_table(self, "hydrogen bond", labels, rows, places)

    def _unique(self, columns: list[int]) -> tuple[np.ndarray, np.ndarray]:
        """Find the distinct combinations of atoms in `columns`, and the number of bonds of each."""
        atoms = [self.results.hbonds[:, column].astype(np.intp) for column in columns]
        keys = atoms[0]
        for column in atoms[1:]:
            # Renumber in each step: three indices of millions of atoms exceed 64 bits.
            keys = np.unique(keys, return_inverse=True)[1].reshape(-1) * len(self.u.atoms) + column
        _, first, counts = np.unique(keys, return_index=True, return_counts=True)
        return np.column_stack([column[first] for column in atoms]), counts

    def lifetime(
        self, tau_max: int = 20, window_step: int = 1, intermittency: int = 0
    ) -> np.ndarray:
        """Compute the autocorrelation of bonds as in MDAnalysis; see also `time_correlation`.

        The value is the fraction of bonds that exist in all frames up to each lag, averaged over
        time origins with bonds. With `intermittency`, gaps of up to this number of frames are
        filled first.

        Parameters
        ----------
        tau_max : int
            Largest lag, frames.
        window_step : int
            Distance between time origins, frames.
        intermittency : int
            Longest gap that counts as bonded, frames.

        Returns
        -------
        numpy.ndarray of float64, shape (2, tau_max + 1)
            Lags in frames of the run, and values.
        """
        self._check_correlation()
        n_frames = self.n_frames
        tau_max = whole_number("tau_max", tau_max, 0, n_frames, "frames")
        window_step = whole_number("window_step", window_step, 1, unit="frames")
        intermittency = whole_number("intermittency", intermittency, 0, unit="frames")
        rows = np.repeat(np.arange(n_frames), np.diff(self.results.offsets))
        origins = range(0, n_frames, window_step)
        values = mean_survival(
            self._number_pairs(), rows, n_frames, origins, tau_max, intermittency
        )
        return np.vstack([np.arange(tau_max + 1), values])

    def _number_pairs(self) -> np.ndarray:
        """Number the pairs of hydrogen and acceptor of all bonds: int64, shape (n_bonds,)."""
        hydrogens, acceptors = self.results.hbonds[:, 2:4].T.astype(np.int64)
        return hydrogens * len(self.u.atoms) + acceptors

    def time_correlation(self, function: str = "intermittent", *, tau_max: int = 20) -> Results:
        r"""Compute the time correlation of bonds between a hydrogen and an acceptor.

        $h(t)$ is 1 while the two atoms are bonded, otherwise 0. Sums are over all pairs of atoms,
        and over all time origins $t$ for which the run has a frame $t + \tau$:

        | function | value |
        | --- | --- |
        | intermittent | $\sum h(t)\,h(t + \tau) / \sum h(t)$ (Luzar & Chandler 1996) |
        | continuous | $\sum h(t)\,h(t + 1) \cdots h(t + \tau) / \sum h(t)$ (Rapaport 1983) |

        Sums are integers, so the values have identical bits everywhere.

        Parameters
        ----------
        function : {"intermittent", "continuous"}
            Kind of correlation function.
        tau_max : int
            Largest lag, in frames of the run.

        Returns
        -------
        Results
            `tau`, lag times in ps, and `correlation`: ndarrays of float64, shape (tau_max + 1,);
            `lifetime`, float, ps: integral up to the largest lag, which is too small unless the
            correlation has decayed; `lifetime_interval`, half the width of its 95 % interval, by
            jackknife over ten blocks of time origins. The interval is reliable if the run is at
            least 100 times as long as the lifetime. It is NaN if `tau_max` is more than a fifth of
            the run.

        Raises
        ------
        UnsupportedError
            Frames or their times are not equidistant, or damaged frames were left out.
        ValueError
            The function is unknown, a lag has no frames, or there are no bonds.
        """
        self._check_correlation()
        ends, offsets = self._number_pairs(), self.results.offsets
        return presence_correlation(
            self, ends, offsets, "hydrogen bonds", function, tau_max, "lifetime"
        )

    def _check_correlation(self) -> None:
        """Raise an error unless the frames are equidistant and ordered, and all were read."""
        _ = self.results.hbonds  # raises `NotRunError` before a run
        check_presence(self, "hydrogen bonds")


def _groups(universe: System, between: Sequence[Sequence[str] | str]) -> list[list[Atoms]]:
    """Select the atoms of both groups of each pair in `between`."""
    is_pair = len(between) > 0 and isinstance(between[0], str)
    pairs: list[Any] = [between] if is_pair else list(between)
    if not pairs or any(isinstance(pair, str) or len(pair) != 2 for pair in pairs):
        raise ValueError(
            f"between must be a pair of selections, or a list of pairs, not {between!r}"
        )
    for text in chain.from_iterable(pairs):
        check_selection(text)
    return [[universe.select_atoms(one) for one in pair] for pair in pairs]


def _sum_equal_rows(rows: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sum the counts of equal rows."""
    unique, number = np.unique(rows, axis=0, return_inverse=True)
    total = np.zeros(len(unique), dtype=np.int64)
    np.add.at(total, number.reshape(-1), counts)
    return unique, total


def _mdanalysis_class() -> (
    "type[MDAnalysis.analysis.hydrogenbonds.hbond_analysis.HydrogenBondAnalysis]"
):
    from MDAnalysis.analysis.hydrogenbonds.hbond_analysis import HydrogenBondAnalysis

    return HydrogenBondAnalysis


def __getattr__(name: str) -> object:
    return name_of_mdanalysis(__name__, name)
