"""Bonds of a system: from its topology, from templates of standard residues, and guessed."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from paceline._util.sorted_unique import sorted_unique
from paceline.block import cell_of
from paceline.contract.system_interface import (
    System,
    attribute_of,
    positions_in,
    residue_name,
    topology_attributes_of,
    topology_of,
)
from paceline.errors import PacelineError, UnsupportedError
from paceline.performance.number_format import joined, many
from paceline.transform.distances import distances, near_pairs, read_frame
from paceline.transform.residue_templates import kind_of_residue, template_of

#: Maximum lengths of bonds between residues, Å: C–N, O3'–P and S–S; and of bonds to hydrogen.
PEPTIDE, ESTER, DISULPHIDE, HYDROGEN = 2.0, 2.5, 2.5, 1.5
#: Minimum length of a guessed bond, Å, as in MDAnalysis.
SHORTEST = 0.1
#: Maximum length of a guessed bond, relative to the sum of van der Waals radii, as in MDAnalysis.
FACTOR = 0.55
#: Names of atoms that only the last residue of a protein chain has.
_LAST = ("OXT", "OT1", "OT2", "OC1", "OC2", "OT", "O2")
#: Names of atoms that only the first residue of a protein chain has.
_FIRST = ("H2", "HT2", "HN2", "2H")
#: Residues that end a chain: their C is not bonded to N of the next residue.
_ENDS = ("NME", "NH2")
_BY_BONDS = re.compile(r"\b(bonded|fragment)\b")
_NONE = np.empty((0, 2), np.int64)


@dataclass
class BondList:
    """Bonds of a topology, including added ones; valid while the topology stays the same."""

    #: Bonds of the topology itself.
    listed: list[tuple[int, ...]]
    #: Identities of the topology's attributes `names` and `resnames`.
    names: Any
    #: All bonds, those of the topology first: int64, shape (n_bonds, 2), read-only.
    bonds: np.ndarray
    n_added: int
    #: Indices of atoms without bonds in residues of several atoms, except virtual sites.
    lacking: np.ndarray
    #: Description of where the bonds are from and which atoms have none; empty if none were added.
    note: str
    #: True if an analysis or selection needed the added bonds.
    used: bool = False


#: Bond list of each topology for which bonds were requested.
_lists: WeakKeyDictionary[Any, BondList] = WeakKeyDictionary()


class _Frame(NamedTuple):
    """Positions of all atoms in the first frame, Å, and the cell of this frame, shape (1, 19)."""

    positions: np.ndarray
    cell: np.ndarray


class _Guess(NamedTuple):
    """Parameters of the bond guess: van der Waals radii by atom type, Å, and the factor."""

    radii: dict[str, float]
    factor: float


def bond_list(universe: System, guess: _Guess | None = None) -> BondList:
    """Return the bonds of a topology; search again if the topology has changed.

    Residues of several atoms get template bonds if the topology has no bonds between these atoms.
    Other atoms get bonds only if `guess` is set.
    """
    # Universe.bonds would create an object first: 0.3 s for 25,000 bonds, instead of 0.02 s here.
    topology = topology_of(universe)
    attribute, *labels = topology_attributes_of(universe, "bonds", "names", "resnames")
    values, names = [] if attribute is None else attribute.values, [id(one) for one in labels]
    known = _lists.get(topology) if topology is not None else None
    # Compare all bonds, because scripts change the list in place. Most tuples are identical
    # objects: comparing 30,000 takes 0.1 ms.
    if known is None or known.listed != values or known.names != names or guess:
        numbers = chain.from_iterable(values)  # np.array would take three times as long
        given = np.fromiter(numbers, np.int64, 2 * len(values)).reshape(-1, 2)
        added, lacking, note = _NONE, given[:0, 0], ""
        if topology is not None:
            added, lacking, note = _Search(universe, given).run(guess)
        bonds = np.concatenate([given, added]) if len(added) else given
        bonds.flags.writeable = False
        known = BondList(list(values), names, bonds, len(added), lacking, note)
        if topology is not None:
            _lists[topology] = known
    return known


def add_guessed_bonds(
    universe: Any, *, guess: bool = False, radii: Any = None, factor: float = FACTOR
) -> None:
    """Add bonds to a topology that lacks them, for selections by `bonded`; see `bond_list`.

    With `guess`, atoms without bonds get bonds by distance in the first frame.
    """
    found = bond_list(universe, _Guess(dict(radii or {}), factor) if guess else None)
    if not found.n_added or len(found.listed) == len(found.bonds):
        return
    added = list(map(tuple, found.bonds[len(found.bonds) - found.n_added :].tolist()))
    if topology_attributes_of(universe, "bonds") == [None]:
        from MDAnalysis.core.topologyattrs import Bonds

        universe.add_TopologyAttr(Bonds(added, guessed=True))
    else:
        universe.add_bonds(added, guessed=True)  # takes five times as long as the other method
    found.used = True
    (attribute,) = topology_attributes_of(universe, "bonds")
    found.listed = list(attribute.values) if attribute is not None else []


def add_bonds_to_select(group: Any, *texts: str) -> None:
    """Add bonds to the topology of atoms if a selection text needs bonds that it lacks."""
    by_bonds = any(_BY_BONDS.search(text) for text in texts)
    if by_bonds and topology_of(group.universe) is not None:
        add_guessed_bonds(group.universe)


def describe_missing_bonds(universe: Any, text: str) -> str:
    """Describe which atoms have no bonds, for the end of a message on a selection by bonds."""
    if topology_of(universe) is None or not _BY_BONDS.search(text):
        return ""
    found = bond_list(universe)
    if not len(found.lacking):
        return ""
    return f"; bonds: {found.note or 'none, use a topology with bonds, or --guess-bonds'}"


def note_on_bonds(universe: System) -> str:
    """Describe where the bonds are from, if added bonds were needed; otherwise return ""."""
    topology = topology_of(universe)
    known = _lists.get(topology) if topology is not None else None
    return known.note if known is not None and known.used else ""


class _Search:
    """Search for bonds that a topology lacks; `given` are its own bonds."""

    def __init__(self, universe: System, given: np.ndarray):
        self._universe, self._given = universe, given
        self._residues = residues = np.asarray(universe.atoms.resindices)
        self._sizes = np.bincount(residues)
        inner = given[residues[given[:, 0]] == residues[given[:, 1]]]
        #: Mask of residues whose bonds the topology contains.
        self._known = np.zeros(len(self._sizes), bool)
        self._known[residues[inner[:, 0]]] = True
        self._remarks: list[str] = []

    def run(self, guess: _Guess | None) -> tuple[np.ndarray, np.ndarray, str]:
        """Find bonds without duplicates, and atoms that remain without bonds; describe both."""
        lacking = self._lacking(self._given)
        if not lacking.any():
            return _NONE, np.flatnonzero(lacking), ""
        named = self._by_names() if self._read_names() else _NONE
        guessed = _NONE
        lacking = self._lacking(np.concatenate([self._given, named]))
        if guess is not None and lacking.any():
            guessed = self._by_distance(np.flatnonzero(lacking), guess)
            guessed = self._new(guessed, np.concatenate([self._given, named]))
            lacking = self._lacking(np.concatenate([self._given, named, guessed]))
        added = np.concatenate([named, guessed])
        if not len(added):
            return _NONE, np.flatnonzero(lacking), ""
        parts = [f"{len(self._given):,} of the topology"] if len(self._given) else []
        parts += [f"{len(named):,} from standard residues by name"] if len(named) else []
        parts += [f"{len(guessed):,} guessed by distance"] if len(guessed) else []
        if lacking.any():
            advice = "use a topology with bonds"
            if guess is None:
                advice += ", or guess_bonds=True (--guess-bonds)"
            self._remarks.append(f"{self._describe_lacking(lacking)} none: {advice}")
        return added, np.flatnonzero(lacking), "; ".join([", ".join(parts), *self._remarks])

    def _lacking(self, bonds: np.ndarray) -> np.ndarray:
        """Return a mask of atoms that have no bonds, but are in a residue of several atoms.

        Virtual sites (atoms to which the topology assigns a mass of 0) are not included.
        """
        lacking = (self._sizes > 1)[self._residues]
        lacking[bonds] = False
        (masses,) = topology_attributes_of(self._universe, "masses")
        if masses is not None and not masses.is_guessed:
            lacking &= masses.values > 0
        return lacking

    def _describe_lacking(self, lacking: np.ndarray) -> str:
        """Describe atoms without bonds by their number and residue names."""
        atoms = np.flatnonzero(lacking)
        names = attribute_of(self._universe.atoms[atoms], "resnames")
        kinds = [] if names is None else list(dict.fromkeys(names.tolist()))
        of = ""
        if kinds:
            listed = joined(kinds[:3]) if len(kinds) <= 3 else f"{', '.join(kinds[:3])}, …"
            of = f" of {'residue' if len(kinds) == 1 else 'residues'} {listed}"
        return f"{many(len(atoms), 'atom')}{of} {'has' if len(atoms) == 1 else 'have'}"

    def _read_names(self) -> bool:
        """Read atom and residue names; return False if the topology has none."""
        atoms, residues = self._universe.atoms, self._universe.residues
        names, kinds = attribute_of(atoms, "names"), attribute_of(residues, "resnames")
        if names is None or kinds is None:
            return False
        self._codes, self._names = _number_texts(names, lambda name: name.upper().replace("*", "'"))
        self._kind_codes, self._kinds = _number_texts(kinds, str)
        located = attribute_of(atoms, "altLocs")
        self._locations = np.zeros(len(atoms), np.int64)
        if located is not None and any(set(located)):
            self._locations, known = _number_texts(located, str.strip)
            blank = known.index("") if "" in known else -1
            self._locations = np.where(self._locations == blank, 0, self._locations + 1)
        return True

    def _by_names(self) -> np.ndarray:
        """Find the bonds within and between standard residues from names, and check their lengths.

        Lengths are those in the first frame, if it can be read.
        """
        wanted = ((self._sizes > 1) & ~self._known)[self._residues]
        bonds, hydrogens = [_NONE], [np.empty(0, np.int64)]
        for atoms in self._alternatives(np.flatnonzero(wanted)):
            for rows, template in self._by_template(atoms):
                bonds.append(rows[:, np.array(template.bonds, int).reshape(-1, 2)].reshape(-1, 2))
                hydrogens.append(rows[:, template.hydrogens].ravel())
        frame = None
        of_polymer = self._polymers()
        if of_polymer.any() or any(map(len, hydrogens)):
            frame = self._first_frame()
        bonds += self._links("C", "N", PEPTIDE, of_polymer == 1, frame)
        bonds += self._links("O3'", "P", ESTER, of_polymer == 2, frame)
        if frame is not None:
            found = self._rebond_hydrogens(np.concatenate(bonds), sorted_unique(*hydrogens), frame)
            bonds = [found, self._disulphides(found, frame)]
        return self._new(np.concatenate(bonds), self._given)

    def _alternatives(self, atoms: np.ndarray) -> Iterator[np.ndarray]:
        """Yield groups of atoms in which each residue has at most one alternate location."""
        several = np.zeros(len(self._sizes), bool)
        several[self._residues[atoms[self._locations[atoms] > 0]]] = True
        yield atoms[~several[self._residues[atoms]]]
        atoms = atoms[several[self._residues[atoms]]]
        for one in np.unique(self._locations[atoms]):
            if one:
                has_it = np.zeros(len(self._sizes), bool)
                has_it[self._residues[atoms[self._locations[atoms] == one]]] = True
                inside = has_it[self._residues[atoms]]
                yield atoms[inside & np.isin(self._locations[atoms], (0, one))]

    def _by_template(self, atoms: np.ndarray) -> Iterator[tuple[np.ndarray, Any]]:
        """Yield groups of residues with equal residue and atom names, each with its template.

        A group is an array of atom indices, shape (n_residues, n_atoms).
        """
        atoms = atoms[np.argsort(self._residues[atoms], kind="stable")]
        numbers, firsts, sizes = np.unique(
            self._residues[atoms], return_index=True, return_counts=True
        )
        for size in np.unique(sizes):
            of_size = sizes == size
            rows = atoms[firsts[of_size][:, np.newaxis] + np.arange(size)]
            keys = np.column_stack([self._kind_codes[numbers[of_size]], self._codes[rows]])
            order = np.lexsort(keys.T)
            starts = np.flatnonzero(np.diff(keys[order], axis=0, prepend=-1).any(axis=1))
            for one in np.split(order, starts[1:]):
                kind, *names = keys[one[0]].tolist()
                template = template_of(self._kinds[kind], tuple(self._names[k] for k in names))
                yield rows[one], template

    def _polymers(self) -> np.ndarray:
        """Classify residues: 1 for amino acids and caps, 2 for nucleotides, 0 for others."""
        found = self._numbers_of_kinds()
        has = [
            np.bincount(self._residues[self._atoms_named(name)], minlength=len(found)) > 0
            for name in ("N", "CA", "C")
        ]
        found[(found == 0) & np.logical_and.reduce(has)] = 1
        return found

    def _numbers_of_kinds(self) -> np.ndarray:
        """Classify residues by name: 1 for amino acids and caps, 2 for nucleotides, otherwise 0."""
        numbers = {"protein": 1, "nucleic": 2}
        of_kinds = [numbers.get(kind_of_residue(kind)[0], 0) for kind in self._kinds]
        return np.array(of_kinds, int)[self._kind_codes]

    def _atoms_named(self, *names: str) -> np.ndarray:
        """Return the indices of atoms with one of these names."""
        codes = [k for k, name in enumerate(self._names) if name in names]
        return np.flatnonzero(np.isin(self._codes, codes)) if codes else np.empty(0, np.int64)

    def _links(
        self, first: str, second: str, longest: float, eligible: np.ndarray, frame: _Frame | None
    ) -> list[np.ndarray]:
        """Bond adjacent residues of a segment by the atoms named `first` and `second`.

        These atoms must be less than `longest` (Å) apart in the first frame, if it can be read.
        """
        ends = [k for k, kind in enumerate(self._kinds) if kind_of_residue(kind)[1] in _ENDS]
        ones, others = (
            atoms[eligible[self._residues[atoms]]]
            for atoms in (self._atoms_named(first), self._atoms_named(second))
        )
        ones = ones[~np.isin(self._kind_codes[self._residues[ones]], ends)]
        pairs = _pair_equal_keys(ones, self._residues[ones], others, self._residues[others] - 1)
        segments = np.asarray(self._universe.atoms.segindices)
        of_pairs, locations = self._residues[pairs], self._locations[pairs]
        pairs = pairs[
            (segments[pairs[:, 0]] == segments[pairs[:, 1]])
            & ~self._known[of_pairs].all(axis=1)
            & (self._numbers_of_kinds()[of_pairs] > 0).any(axis=1)
            & ((locations[:, 0] == locations[:, 1]) | (locations == 0).any(axis=1))
        ]
        if not len(pairs):
            return []
        lengths = np.full(len(pairs), np.nan)
        if frame is not None:
            lengths = distances(frame.positions, pairs, frame.cell)
        follows = self._follow(pairs, of_peptide=first == "C")
        self._note_breaks(pairs[follows & (lengths >= longest)], frame)
        return [pairs[(lengths < longest) | (np.isnan(lengths) & follows)]]

    def _follow(self, pairs: np.ndarray, *, of_peptide: bool) -> np.ndarray:
        """Return a mask of pairs whose residues follow each other in one chain.

        Their residue numbers are consecutive, and no atom name shows that a chain ends there.
        """
        numbers = attribute_of(self._universe.residues, "resids")
        of_pairs = self._residues[pairs]
        follows = np.ones(len(pairs), bool)
        if numbers is not None:
            follows = np.diff(np.asarray(numbers)[of_pairs], axis=1)[:, 0] == 1
        for column, names in enumerate((_LAST, _FIRST) if of_peptide else ()):
            ended = np.zeros(len(self._sizes), bool)
            ended[self._residues[self._atoms_named(*names)]] = True
            follows &= ~ended[of_pairs[:, column]]
        return follows

    def _note_breaks(self, pairs: np.ndarray, frame: _Frame | None) -> None:
        """Add a remark on adjacent residues of a chain that are too far apart for a bond."""
        if not len(pairs) or frame is None:
            return
        residues = self._universe.residues[self._residues[pairs[0]]]
        names = [residue_name(one) for one in residues]
        length = distances(frame.positions, pairs[:1], frame.cell)[0]
        more = f", nor between {many(len(pairs) - 1, 'further pair')}" if len(pairs) > 1 else ""
        self._remarks.append(
            f"no bond between {names[0]} and {names[1]}, {length:.1f} Å apart in the first "
            f"frame{more}"
        )

    def _disulphides(self, bonds: np.ndarray, frame: _Frame) -> np.ndarray:
        """Bond sulphurs of cysteines without hydrogen if they are near in the first frame."""
        kinds = [k for k, kind in enumerate(self._kinds) if kind_of_residue(kind)[1] == "CYS"]
        sulphurs = self._atoms_named("SG")
        residues = self._residues[sulphurs]
        inside = np.isin(self._kind_codes[residues], kinds) & ~self._known[residues]
        sulphurs = sulphurs[inside]
        n_bonds = np.bincount(bonds.ravel(), minlength=len(self._residues))
        sulphurs = sulphurs[n_bonds[sulphurs] < 2]
        if len(sulphurs) < 2:
            return _NONE
        pairs, _ = near_pairs(
            frame.positions[sulphurs], frame.cell, self._residues[sulphurs], DISULPHIDE
        )
        return sulphurs[np.stack([pairs["first"], pairs["second"]], axis=1)]

    def _rebond_hydrogens(
        self, bonds: np.ndarray, hydrogens: np.ndarray, frame: _Frame
    ) -> np.ndarray:
        """Bond each hydrogen to its nearest atom, if its partner is unknown or distant."""
        of_hydrogen = self._are_hydrogens()[self._codes[bonds[:, 1]]]
        of_hydrogen[of_hydrogen] = (
            distances(frame.positions, bonds[of_hydrogen], frame.cell) > HYDROGEN
        )
        doubtful = sorted_unique(hydrogens, bonds[of_hydrogen, 1])
        found = self._nearest(doubtful, frame)
        replaced = of_hydrogen & np.isin(bonds[:, 1], found[:, 0])
        return np.concatenate([bonds[~replaced], found])

    def _are_hydrogens(self) -> np.ndarray:
        """Return a mask of the distinct atom names: True for a name of a hydrogen."""
        return np.array([name.lstrip("0123456789")[:1] == "H" for name in self._names])

    def _nearest(self, hydrogens: np.ndarray, frame: _Frame) -> np.ndarray:
        """Bond each hydrogen to the nearest heavy atom of its residue."""
        if not len(hydrogens):
            return _NONE
        concerned = np.zeros(len(self._sizes), bool)
        concerned[self._residues[hydrogens]] = True
        atoms = np.flatnonzero(concerned[self._residues])
        rows = np.searchsorted(atoms, hydrogens)
        pairs, _ = near_pairs(
            frame.positions[atoms], frame.cell, np.arange(len(atoms)), HYDROGEN, rows
        )
        ends = atoms[np.stack([pairs["first"], pairs["second"]], axis=1)]
        is_one = np.isin(ends, hydrogens)
        ends[~is_one[:, 0]] = ends[~is_one[:, 0]][:, ::-1]
        same = self._residues[ends[:, 0]] == self._residues[ends[:, 1]]
        same &= ~self._are_hydrogens()[self._codes[ends[:, 1]]]
        ends, lengths = ends[same], pairs["distance"][same]
        ends = ends[np.lexsort([lengths, ends[:, 0]])]
        return ends[np.unique(ends[:, 0], return_index=True)[1]]

    def _by_distance(self, lacking: np.ndarray, guess: _Guess) -> np.ndarray:
        """Guess bonds by distance, as MDAnalysis does, except for water and ions."""
        from MDAnalysis.guesser.tables import vdwradii

        frame = self._first_frame()
        if frame is None:
            raise UnsupportedError("guess_bonds=True needs the first frame, which cannot be read")
        table = {**vdwradii, **{f"{key}".upper(): value for key, value in guess.radii.items()}}
        radii = np.full(len(self._residues), np.nan)
        for labels in self._elements():
            found = np.array([table.get(f"{one}".upper(), np.nan) for one in labels])
            radii = np.where(np.isnan(found), radii, found)
        lacking = lacking[~np.isnan(radii[lacking])]
        if not len(lacking):
            return _NONE
        names = attribute_of(self._universe.residues, "resnames")
        others = self._sizes > 1
        if names is not None:
            others = others & [kind_of_residue(f"{name}")[0] != "water" for name in names]
        atoms = np.flatnonzero(others[self._residues] & ~np.isnan(radii))
        atoms = sorted_unique(atoms, lacking)
        cutoff = guess.factor * (radii[lacking].max() + radii[atoms].max())
        pairs, refused = near_pairs(
            frame.positions[atoms],
            frame.cell,
            np.arange(len(atoms)),
            cutoff,
            np.searchsorted(atoms, lacking),
        )
        if refused:
            raise UnsupportedError(f"guess_bonds=True: {refused}")
        ends = atoms[np.stack([pairs["first"], pairs["second"]], axis=1)]
        near = pairs["distance"] < guess.factor * radii[ends].sum(axis=1)
        return ends[near & (pairs["distance"] > SHORTEST)]

    def _elements(self) -> Iterator[np.ndarray]:
        """Yield possible elements of all atoms; the most reliable source comes last."""
        from MDAnalysis.guesser.default_guesser import DefaultGuesser

        atoms, (types,) = self._universe.atoms, topology_attributes_of(self._universe, "types")
        if types is not None and types.is_guessed:
            yield types.values
        elif (names := attribute_of(atoms, "names")) is not None:  # types may be of a force field
            yield DefaultGuesser(None).guess_types(names)
        if (elements := attribute_of(atoms, "elements")) is not None:
            yield elements

    def _first_frame(self) -> _Frame | None:
        """Read the first frame; None if it cannot be read."""
        try:
            trajectory = self._universe.trajectory
            if trajectory.ts.frame == 0:  # reading a PDB file again would take 0.3 s
                return _Frame(positions_in(trajectory), cell_of(trajectory))
            positions, cell = read_frame(self._universe, np.arange(len(self._residues)))
        except (AttributeError, EOFError, IndexError, OSError, PacelineError, ValueError):
            return None
        return _Frame(positions, cell)

    def _new(self, bonds: np.ndarray, known: np.ndarray) -> np.ndarray:
        """Return the bonds that are not among the known ones, without duplicates."""
        n_atoms = len(self._residues)

        def keys(pairs: np.ndarray) -> np.ndarray:
            ordered: np.ndarray = pairs.min(axis=1) * n_atoms + pairs.max(axis=1)
            return ordered

        found = sorted_unique(keys(bonds)) if len(bonds) else np.empty(0, np.int64)
        if len(known):
            found = found[~np.isin(found, keys(known))]
        return np.stack([found // n_atoms, found % n_atoms], axis=1)


def _number_texts(
    values: Sequence[object], plain: Callable[[str], str]
) -> tuple[np.ndarray, list[str]]:
    """Number the distinct texts; return the number of each value, and the texts by number."""
    numbers: dict[str, int] = {}
    given: dict[object, int] = {}
    for value in dict.fromkeys(values):
        given[value] = numbers.setdefault(plain(f"{value}"), len(numbers))
    codes = np.fromiter(map(given.__getitem__, values), np.int64, len(values))
    return codes, list(numbers)


def _pair_equal_keys(
    ones: np.ndarray, keys: np.ndarray, others: np.ndarray, other_keys: np.ndarray
) -> np.ndarray:
    """Pair each atom in `ones` with all atoms in `others` of the same key: shape (n_pairs, 2)."""
    order = np.argsort(other_keys, kind="stable")
    first = np.searchsorted(other_keys[order], keys, "left")
    n_each = np.searchsorted(other_keys[order], keys, "right") - first
    within = np.arange(n_each.sum()) - np.repeat(np.cumsum(n_each) - n_each, n_each)
    return np.stack(
        [np.repeat(ones, n_each), others[order[np.repeat(first, n_each) + within]]], axis=1
    )
