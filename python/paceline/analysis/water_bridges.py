"""Water bridges: water molecules with hydrogen bonds to atoms of two groups."""

from typing import Literal

import numpy as np

from paceline._util.sorted_unique import sorted_unique
from paceline.analysis.base import table_of_records
from paceline.analysis.distances import GroupsAnalysis
from paceline.analysis.groups import timeline_table
from paceline.analysis.guess_elements_and_donors import POLAR_ACCEPTORS, POLAR_HYDROGENS
from paceline.analysis.hydrogenbonds import D_A_CUTOFF, D_H_A_ANGLE_CUTOFF, HydrogenBondAnalysis
from paceline.analysis.results import Results
from paceline.analysis.table import MOST_FREQUENT, Table, fractions_of_frames, residue_labels
from paceline.block import Block
from paceline.contract.analysis_declaration import Declaration, Member, Option
from paceline.contract.analysis_kinds import Ragged
from paceline.contract.run_info_and_descriptions import describe_atoms
from paceline.contract.system_interface import Atoms, attribute_of, has_attribute
from paceline.errors import SelectionError
from paceline.transform.residue_templates import kind_of_residue
from paceline.transform.selections_and_weights import select_atoms

#: Bridge: frame; indices of the first atom, of the water residue and of the second atom; distance
#: (Å) and angle (degrees) of both bonds.
BRIDGE = np.dtype(
    [(name, np.int64) for name in ("frame", "first", "water", "second")]
    + [(f"{kind}_{end}", np.float64) for end in (1, 2) for kind in ("distance", "angle")]
)


class WaterBridges(GroupsAnalysis):  # numpydoc ignore=PR02
    """Water bridges between two groups: water molecules with hydrogen bonds to atoms of both.

    A bridge consists of an atom of the first group, a water molecule, and another atom of the
    second group. The water has a hydrogen bond with each of the two atoms, as donor or as acceptor.
    Bonds are found as in `HydrogenBondAnalysis`. A bridge counts once, whichever hydrogens it uses.
    Of several bonds between a water molecule and an atom, the shortest one is listed, and of
    equally short ones the straightest. Two atoms that are in both groups form one bridge, in which
    the atom with the lower index is the first.

    Parameters
    ----------
    ag1 : AtomGroup
        First group.
    ag2 : AtomGroup
        Second group, from the same Universe.
    water : str, optional
        Selection of water, which must contain whole residues; by default residues with a name of
        water. Residues with atoms in a group cannot be bridges. Water is selected once.
    donors_sel, hydrogens_sel, acceptors_sel : str, optional
        Selections as for `HydrogenBondAnalysis`. By default, hydrogens are those bonded to N or O,
        and acceptors are all N and O with a bond. If atoms have no names, both are guessed by mass
        and charge.
    d_a_cutoff : float
        Maximum distance between donor and acceptor, Å.
    d_h_a_angle_cutoff : float
        Minimum angle at the hydrogen, degrees.
    criterion : {"mdanalysis", "baker_hubbard", "wernet_nilsson", "gromacs"}
        Criterion for a bond. All criteria but "mdanalysis" have fixed limits, and do not accept the
        cutoffs above.

    Attributes
    ----------
    results.bridges : numpy.ndarray of records, shape (n_bridges,)
        Bridges with the fields `frame`; `first` and `second`, indices of the donors or acceptors in
        the groups; `water`, index of the water residue; all int64. Further fields, float64:
        `distance_1` and `angle_1` for the bond of `first`, `distance_2` and `angle_2` for that of
        `second`. These are the distance between donor and acceptor (Å), and the angle at the
        hydrogen (degrees). Bridges are sorted by frame, then by `first`, `water` and `second`. An
        array of more than 1 GiB is stored in a temporary file.
    results.counts : numpy.ndarray of int64, shape (n_frames,)
        Number of bridges in each frame. If damaged frames were left out, the dtype is float64, and
        the number is NaN for these frames, which have no bridges.
    results.offsets : numpy.ndarray of int64, shape (n_frames + 1,)
        Index of each frame's first bridge, and the total number of bridges.

    Raises
    ------
    SelectionError
        A group is empty, there is no water, or there are no donors, hydrogens or acceptors.
    UnsupportedError
        A group is an UpdatingAtomGroup, or the groups belong to different Universes.
    MDAnalysis.exceptions.NoDataError
        The topology lacks the bonds that are needed.
    ValueError
        As for `HydrogenBondAnalysis`.

    Examples
    --------
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import TPR, XTC
    >>> u = paceline.Universe(TPR, XTC)
    >>> lid, others = u.select_atoms("resid 122-159"), u.select_atoms("resid 1-121 160-214")
    >>> bridges = WaterBridges(lid, others).run(stop=3)
    >>> bridges.results.counts
    array([0, 1, 2])
    >>> bridges.results.bridges[["first", "water", "second"]][:1].tolist()
    [(2106, 4059, 1803)]
    """

    declaration = Declaration(
        name="water-bridges",
        summary="number of water bridges between two groups, and as .npz the bridges themselves",
        description=(
            "Number of water bridges in each frame. A bridge is an atom of --select, a water "
            "molecule and an atom of --select-2, where the water has a hydrogen bond with each of "
            "the two atoms. A .npz file also contains each bridge: frame, atoms, residue of the "
            "water, and distance (Å) and angle (degrees) of both bonds."
        ),
        section="hydrogen-bonds.md#water-bridges",
        examples=(
            'md.tpr md.xtc --select "resname LIG" --select-2 protein --frequent residues.csv',
            'md.tpr md.xtc --select "resid 13" --select-2 "resid 119" --timeline bridges.png',
        ),
        options=(
            Option("water", "water, as whole residues [found by residue name]", metavar="TEXT"),
            Option(
                "donors_sel",
                "donors; hydrogens are then assigned to them by distance",
                metavar="SELECTION",
            ),
            Option("hydrogens_sel", "hydrogens [all bonded to N or O]", metavar="SELECTION"),
            Option("acceptors_sel", "acceptors [all N and O with a bond]", metavar="SELECTION"),
            "d_a_cutoff",
            "d_h_a_angle_cutoff",
            "criterion",
        ),
        counterpart="hydrogenbonds.WaterBridgeAnalysis",
        groups=("atoms on the other side of the water",),
        further={
            "frequent": "write the fraction of frames in which two residues have a bridge by any "
            "water",
            "timeline": "write the frames in which the 20 most frequent pairs of residues have a "
            "bridge; as a figure, a bar code",
        },
        batteries=(
            Member(
                "ligand in water",
                {"ag1": "{ligand}", "ag2": "protein"},
                name="ligand-water-bridges",
                place=4,
            ),
        ),
    )

    needs_one_location = True

    def __init__(
        self,
        ag1: Atoms,
        ag2: Atoms,
        *,
        water: str | None = None,
        donors_sel: str | None = None,
        hydrogens_sel: str | None = None,
        acceptors_sel: str | None = None,
        d_a_cutoff: float = D_A_CUTOFF,
        d_h_a_angle_cutoff: float = D_H_A_ANGLE_CUTOFF,
        criterion: Literal[
            "mdanalysis", "baker_hubbard", "wernet_nilsson", "gromacs"
        ] = "mdanalysis",
        verbose: bool = False,
    ):
        super().__init__({"ag1": ag1, "ag2": ag2}, True, verbose)
        first, second = self._groups.values()
        self._water = self._find_water(water)
        if has_attribute(first, "names"):
            hydrogens_sel = POLAR_HYDROGENS if hydrogens_sel is None else hydrogens_sel
            acceptors_sel = POLAR_ACCEPTORS if acceptors_sel is None else acceptors_sel
        self._bonds = HydrogenBondAnalysis(
            first | second | self._water,
            donors_sel,
            hydrogens_sel,
            acceptors_sel,
            d_a_cutoff=d_a_cutoff,
            d_h_a_angle_cutoff=d_h_a_angle_cutoff,
            criterion=criterion,
        )
        self.remarks = self._bonds.remarks
        self._bonds.between_ags = [[group, self._water] for group in (first, second)]
        self._bonds.which_atoms = "of the groups and water"

    def _find_water(self, water: str | None) -> Atoms:
        """Find the atoms of water, without residues that have atoms in a group."""
        universe = self.atomgroup.universe
        if water is None:
            names = attribute_of(universe.residues, "resnames")
            names = [] if names is None else names.tolist()
            known = {name: kind_of_residue(f"{name}")[0] == "water" for name in {*names}}
            found = np.flatnonzero([known[name] for name in names])
        else:
            found = np.unique(select_atoms(universe, [water], f"{self.name}: water").resindices)
        of_groups = [group.resindices for group in self._groups.values()]
        left = universe.residues[np.setdiff1d(found, np.concatenate(of_groups))].atoms
        if len(left) == 0:
            what = "residue with a name of water" if water is None else f"atom of water={water!r}"
            raise SelectionError(
                f"{self.name}: there is no {what} outside the groups: select water with water= "
                "(--water), or use a trajectory with water"
            )
        return left

    @property
    def indices(self) -> np.ndarray:
        """Indices of donors, hydrogens and acceptors in the groups and in water."""
        return self._bonds.indices

    def parameters(self) -> dict[str, object]:
        """Return the parameters that are saved with the results."""
        given = {name: describe_atoms(group) for name, group in self._groups.items()}
        of_bonds = self._bonds.parameters()
        of_bonds = {name: one for name, one in of_bonds.items() if not name.startswith("between")}
        return {**given, "water": describe_atoms(self._water), **of_bonds}

    def check_atoms(self) -> None:
        """Raise `SelectionError` if hydrogen bonds are impossible for a group or for water."""
        self._bonds.check_atoms()
        for name, group in {**self._groups, "water": self._water}.items():
            if not self._bonds.may_bond(group):
                raise SelectionError(
                    f"{self.name}: {name}: none of the {len(group):,} atoms is a donor or an "
                    "acceptor of hydrogen bonds: use more atoms, such as whole residues, or "
                    "hydrogens_sel= and acceptors_sel="
                )

    def prepare(self) -> Ragged:
        """Number the water molecules, mark the atoms of the groups, and make the worker part."""
        self.check_atoms()
        n_atoms = len(self.atomgroup.universe.atoms)
        molecules, sides = np.full(n_atoms, -1), np.zeros(n_atoms, np.int8)
        molecules[self._water.indices] = self._water.resindices
        for bit, group in enumerate(self._groups.values()):
            sides[group.indices] |= 1 << bit
        return BridgeRecords(self._bonds.prepare(), molecules, sides)

    def finish(self, value: tuple[np.ndarray, np.ndarray]) -> None:
        """Store the bridges, and their number in each frame, as results."""
        offsets, bridges = value
        if bridges.dtype != BRIDGE:  # no frame could be read
            bridges = np.empty(0, BRIDGE)
        counts = self.record_counts(offsets)
        self.results = Results(
            table=table_of_records(self, "water bridges", counts),
            provenance=self.record(),
            bridges=bridges,
            counts=counts,
            offsets=offsets,
        )

    FURTHER_TABLES = ("frequent", "timeline")

    def further_tables(self) -> dict[str, Table]:
        """Return tables of the pairs of residues with a bridge.

        "frequent" contains the most frequent pairs, at most 1,000. "timeline" contains the frames
        in which the 20 most frequent pairs have a bridge.
        """
        universe, bridges = self.atomgroup.universe, self.results.bridges
        ends = np.stack([universe.atoms.resindices[bridges[one]] for one in ("first", "second")])
        pairs, numbers = np.unique(ends, axis=1, return_inverse=True)
        rows = np.repeat(np.arange(self.n_frames), np.diff(self.results.offsets))
        present = sorted_unique(numbers.reshape(-1) * self.n_frames + rows)
        numbers, rows = np.divmod(present, max(1, self.n_frames))
        counts = np.bincount(numbers, minlength=pairs.shape[1])
        order = np.argsort(-counts, kind="stable")
        rank_of = np.argsort(order, kind="stable")
        first, second = pairs[:, order[:MOST_FREQUENT]]
        names = residue_labels(universe.residues, np.unique(pairs))
        labels = [f"{names[i]}–{names[j]}" for i, j in zip(first, second, strict=True)]
        columns = {"first": first, "second": second}
        n_frames = self.n_frames - len(self.damaged)
        counts = counts[order[:MOST_FREQUENT]]
        return {
            "frequent": fractions_of_frames("residues", labels, columns, counts, n_frames),
            "timeline": timeline_table(self, "residues", labels, rows, rank_of[numbers]),
        }


class BridgeRecords(Ragged):
    """Worker part that finds bridges: pairs of hydrogen bonds of one water molecule in a frame.

    For each atom, `molecules` contains the number of its water molecule, or -1, and `sides` one bit
    per group.
    """

    returns_new = splits_frames = True

    def __init__(self, bonds: Ragged, molecules: np.ndarray, sides: np.ndarray):
        self._bonds, self._molecules, self._sides = bonds, molecules, sides

    def compute_records(self, block: Block) -> tuple[np.ndarray, np.ndarray] | None:
        """Return the number of bridges in each frame of a block, and all bridges."""
        found = self._bonds.compute_records(block)
        if found is None:
            return None
        counts, bonds = found
        rows = np.repeat(np.arange(len(counts)), counts)
        donors, acceptors = bonds[:, [1, 3]].T.astype(np.int64)
        is_donor = self._molecules[donors] >= 0
        ends = np.where(is_donor, acceptors, donors)
        waters = self._molecules[np.where(is_donor, donors, acceptors)]
        distances, angles = bonds[:, 4:].T
        # Sort so that the best bond of each water molecule with each atom comes first.
        order = np.lexsort((-angles, distances, ends, waters, rows))
        order = order[_is_new(rows[order], waters[order], ends[order])]
        rows, waters, ends = rows[order], waters[order], ends[order]
        i, j = _pairs(np.cumsum(_is_new(rows, waters)), self._sides[ends])
        again = (self._sides[ends[i]] & self._sides[ends[j]] == 3) & (ends[i] > ends[j])
        kept = (ends[i] != ends[j]) & ~again
        i, j = i[kept], j[kept]
        bridges = np.empty(len(i), BRIDGE)
        bridges["frame"], bridges["water"] = block.frames[rows[i]], waters[i]
        for number, name, places in ((1, "first", i), (2, "second", j)):
            bridges[name] = ends[places]
            bridges[f"distance_{number}"] = distances[order[places]]
            bridges[f"angle_{number}"] = angles[order[places]]
        in_order = np.lexsort((ends[j], waters[i], ends[i], rows[i]))
        return np.bincount(rows[i], minlength=len(counts)), bridges[in_order]


def _is_new(*columns: np.ndarray) -> np.ndarray:
    """Mask of rows that differ from the previous row."""
    found = np.ones(len(columns[0]), bool)
    found[1:] = np.any([np.diff(column) != 0 for column in columns], axis=0)
    return found


def _pairs(molecules: np.ndarray, sides: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pair bonds of the first group with bonds of the second group to the same water molecule.

    Returns the indices of both bonds of each pair. `molecules` contains the number of each bond's
    water molecule, in increasing order.
    """
    first, second = (np.flatnonzero(sides & bit) for bit in (1, 2))
    begin, end = (
        np.searchsorted(molecules[second], molecules[first], side) for side in ("left", "right")
    )
    n = end - begin
    places = np.arange(n.sum()) + np.repeat(begin - (np.cumsum(n) - n), n)
    return np.repeat(first, n), second[places]
