"""Evaluate updating groups on workers: convert MDAnalysis's selections to nodes for the kernel.

Does not import MDAnalysis.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from paceline import _core
from paceline._util.arguments import check_selection
from paceline.block import Block, check_refused
from paceline.contract.system_interface import Atoms, System, UpdatingAtoms, attribute_of
from paceline.errors import UnsupportedError
from paceline.transform.selections_and_weights import updates_itself

if TYPE_CHECKING:
    from MDAnalysis.core.selection import Selection

#: Modules of MDAnalysis that define its own selections.
OWN = ("MDAnalysis.core.selection", "MDAnalysis.core.selection._selectors")
#: Selections that depend on positions, in the order of their cost.
BY_POSITION = {
    "PropertySelection": 1,
    "PointSelection": 2,
    "SphericalZoneSelection": 2,
    "SphericalLayerSelection": 2,
    "CylindricalZoneSelection": 2,
    "CylindricalLayerSelection": 2,
    "AroundSelection": 3,
    "IsoLayerSelection": 3,
}
#: Selections whose result for an atom depends on the other atoms of the group to which they are
#: applied.
OF_THE_WHOLE = ("BondedSelection", "SmartsSelection")
COMPARISONS = {
    "greater": ">",
    "greater_equal": ">=",
    "less": "<",
    "less_equal": "<=",
    "not_equal": "!=",
}
#: Cell that structure files contain if the system has no cell, Å and degrees.
NO_CELL = (1, 1, 1, 90, 90, 90)
#: Node for `_core.SelectedAtoms`: kind, numbers of input selections, values, whether nearest images
#: are used, and atoms or labels.
Node = tuple[str, list[int], list[float], bool, np.ndarray | None]


@dataclass(frozen=True)
class GroupFinder:
    """Finds the atoms of an updating group in the frames of a block, in a worker."""

    #: Indices of atoms whose positions are needed, or that may be selected, in increasing order,
    #: int64, shape (n_read,).
    read: np.ndarray
    #: True for atoms in `read` that may be selected, bool, shape (n_read,).
    selectable: np.ndarray
    #: Arguments of `_core.SelectedAtoms`.
    arguments: tuple[list[Node], tuple[int, int | None, list[int]], int, int, bool]
    #: Columns of the run, and the kernel that was made for them; empty before the first block.
    _bound: list[tuple[np.ndarray | None, _core.SelectedAtoms]] = field(
        default_factory=list, compare=False
    )

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "_bound": []}

    def find(self, block: Block, first: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Return the number of atoms in each frame, and their indices in `read`: int64.

        The atoms of `read` begin at column `first` of the block.
        """
        positions, columns = block.raw
        core = next((core for of, core in self._bound if of is columns), None)
        if core is None:
            core = _core.SelectedAtoms(_columns(block, first, self.read), *self.arguments)
            # A kernel of an earlier run, whose blocks contain other atoms, is not needed any more.
            self._bound[:] = [(columns, core)]
        counts, found, refused = core.find(positions, block.cells)
        check_refused(block, refused)
        return counts, found

    def by_frame(self, block: Block, first: int = 0) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return, for each frame, the atoms as indices in `read` and as columns of the block.

        Both arrays are empty for a frame that was left out.
        """
        readable = np.flatnonzero(block.held)
        counts, places = np.zeros(len(block), np.int64), np.empty(0, np.int64)
        if len(readable):
            some = block if len(readable) == len(block) else block[readable]
            counts[readable], places = self.find(some, first)
        columns = _columns(block, first, self.read)[places]
        ends = np.cumsum(counts)
        parts = (np.split(numbers, ends)[:-1] for numbers in (places, columns))
        return list(zip(*parts, strict=True))


@dataclass(frozen=True)
class FixedGroup:
    """Atoms that are the same in each frame, with the methods of `GroupFinder`."""

    #: Indices of the atoms, in any order, int64, shape (n_read,).
    read: np.ndarray

    @property
    def selectable(self) -> np.ndarray:
        """Mask in which all atoms are True: bool, shape (n_read,)."""
        return np.ones(len(self.read), bool)

    def by_frame(self, block: Block, first: int = 0) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return, for each frame, the atoms as indices in `read` and as columns of the block."""
        return [(np.arange(len(self.read)), _columns(block, first, self.read))] * len(block)


def follow_any(groups: Sequence[Atoms], name: str) -> list[GroupFinder | FixedGroup] | None:
    """Make a finder for each group; return None if no group is an UpdatingAtomGroup."""
    if not any(map(updates_itself, groups)):
        return None
    return [
        follow(group, name) if updates_itself(group) else FixedGroup(group.atoms.indices)
        for group in groups
    ]


def _columns(block: Block, first: int, read: np.ndarray) -> np.ndarray:
    """Columns of some atoms of a block; these atoms begin at column `first`."""
    columns = block.raw[1]
    end = first + len(read)
    return np.arange(first, end) if columns is None else columns[first:end]


def describe_group(group: UpdatingAtoms) -> str:
    """Describe an updating group by its selections, for the record of a run."""
    texts = " + ".join(repr(text) for text in group._selection_strings)
    base = group._base_group
    if updates_itself(base):
        return f"{texts} of ({describe_group(base)})"
    return texts if base is base.universe.atoms else f"{texts} of {len(base)} atoms"


def follow(group: Atoms, name: str) -> GroupFinder:
    """Make the finder of an updating group for workers; `name` is the name of the analysis.

    Raises `UnsupportedError` if workers cannot evaluate the group, `TypeError` if it is not an
    UpdatingAtomGroup, and `ValueError` for a distance that is negative or not finite.
    """
    if not updates_itself(group):
        raise TypeError(
            f"{name}: expected an UpdatingAtomGroup, select_atoms(…, updating=True), found "
            f"{group!r}"
        )
    for text in group._selection_strings:
        check_selection(text)
    tree = _Tree(group.universe, name)
    members, (base, n_base, selections) = tree.group(group, tree.everything)
    tree.read |= members
    if not tree.read.any():
        tree.read[0] = True  # a block must contain at least one atom
    return tree.finder(members, (base, n_base, selections))


def is_changing(group: UpdatingAtoms, name: str) -> bool:
    """True if an updating group may contain other atoms in another frame."""
    tree = _Tree(group.universe, name)
    return any(tree.cost(selection) > 0 for selection in group._selections)


def follow_if_changing(
    group: Atoms | System, name: str
) -> tuple[Atoms | System, GroupFinder | None, str]:
    """Prepare a group for workers; its atoms may change from frame to frame.

    Returns the atoms, the finder, and a description for the record of a run. If the group is fixed,
    the finder is None, and the description is empty.
    """
    if not updates_itself(group):
        return group, None, ""
    finder = follow(group, name)
    return group.universe.atoms[finder.read], finder, describe_group(group)


class _Domain(NamedTuple):
    """Atoms to which a selection is applied.

    `fixed` is the group if it is the same in each frame. `members` is a mask of the atoms that may
    be in the group, bool, with one value for each atom of the Universe.
    """

    fixed: Atoms | None
    members: np.ndarray


class _Tree:
    """Selections of MDAnalysis as nodes that the kernel evaluates.

    For a selection that does not depend on positions, a node contains its atoms. Otherwise the
    positions of two kinds of atoms are read: those near which other atoms are searched, and those
    that the group may finally contain.
    """

    def __init__(self, universe: System, name: str):
        self.universe, self.name = universe, name
        self.nodes: list[Node] = []
        #: Atoms whose positions are read, bool.
        self.read = np.zeros(len(universe.atoms), bool)
        self.everything = np.ones(len(universe.atoms), bool)
        #: True if there is a cell. Without it, the positions of all atoms are needed, because their
        #: extent affects rounding.
        cell = universe.dimensions
        self.has_cell = cell is not None and not np.allclose(cell, NO_CELL, rtol=1e-5, atol=0)

    def finder(self, members: np.ndarray, group: tuple[int, int | None, list[int]]) -> GroupFinder:
        """Make the finder; `members` are the atoms that may be in the group."""
        read = np.flatnonzero(self.read)
        place = np.full(len(self.read), -1)
        place[read] = np.arange(len(read))
        nodes: list[Node] = []
        for kind, inputs, values, periodic, atoms in self.nodes:
            if kind == "fixed" and atoms is not None:
                atoms = place[atoms]
                atoms = atoms[atoms >= 0]
            elif atoms is not None:
                atoms = np.ascontiguousarray(atoms[read])
            nodes.append((kind, inputs, values, periodic, atoms))
        complete = not self.has_cell
        arguments = nodes, group, len(read), len(self.read), complete
        return GroupFinder(read, members[read], arguments)

    def node(
        self,
        kind: str,
        inputs: Sequence[int] = (),
        values: Sequence[float] = (),
        periodic: bool | None = False,
        atoms: np.ndarray | None = None,
    ) -> int:
        """Add a node, and return its number."""
        numbers = [float(value) for value in values]
        self.nodes.append((kind, list(inputs), numbers, bool(periodic), atoms))
        return len(self.nodes) - 1

    def fixed(self, indices: np.ndarray) -> tuple[int, np.ndarray]:
        """Add a node of fixed atoms; return its number, and a mask of the atoms."""
        members = np.zeros(len(self.read), bool)
        members[indices] = True
        return self.node("fixed", atoms=np.flatnonzero(members)), members

    def group(
        self, group: UpdatingAtoms, wanted: np.ndarray
    ) -> tuple[np.ndarray, tuple[int, int | None, list[int]]]:
        """Add an updating group; return a mask of possible atoms, and the kernel's arguments."""
        base, n_base = group._base_group, None
        if updates_itself(base):
            if len(base._selections) > 1:
                raise self.unsupported(
                    "its base group is an updating group of several selections: join them by 'or'"
                )
            members, (inner, n_inner, selections) = self.group(base, self.everything)
            values = [] if n_inner is None else [n_inner]
            number = self.node("group", [inner, *selections], values)
            domain = _Domain(None, members)
            self.read |= members
        else:
            self._check_base(base, group._selections)
            number, members = self.fixed(base.indices)
            domain, n_base = _Domain(base, members), len(base)
        found = np.zeros(len(self.read), bool)
        numbers = []
        for selection in group._selections:
            one, members = self.add(selection, domain, wanted)
            numbers.append(one)
            found |= members
        return found, (number, n_base, numbers)

    def _check_base(self, base: Atoms, selections: Sequence["Selection"]) -> None:
        """Raise `UnsupportedError` if the order of atoms in the base group matters."""
        steps = np.diff(base.indices)
        if (steps > 0).all():
            return
        if len(np.unique(base.indices)) < len(base):
            raise self.unsupported("its base group contains an atom twice: use its .unique")
        # All selections of MDAnalysis share the parser that contains this setting.
        if selections and not selections[0].parser.sorted:
            raise self.unsupported("sorted=False: workers return atoms in ascending order")

    def unsupported(self, reason: str) -> UnsupportedError:
        """Make the error for a group that workers cannot evaluate."""
        return UnsupportedError(
            f"{self.name}: workers cannot evaluate the updating group: {reason}. MDAnalysis can "
            "evaluate it in each frame: use its own classes, or a loop over the trajectory"
        )

    def cost(self, selection: "Selection") -> int:
        """Return the cost of a selection of MDAnalysis; 0 if it is the same in each frame."""
        kind = type(selection)
        if kind.__module__ not in OWN:
            token = attribute_of(kind, "token") or kind.__name__
            raise self.unsupported(f"{token!r} ({kind.__qualname__}) is not MDAnalysis's keyword")
        inner = [attribute_of(selection, name) for name in ("lsel", "rsel", "sel")]
        costs = [self.cost(one) for one in inner if one is not None]
        if kind.__name__ == "SelgroupSelection" and updates_itself(selection.grp):
            costs.append(3)
        of_coordinate = attribute_of(selection, "prop") in ("x", "y", "z")
        if kind.__name__ == "SameSelection" and of_coordinate:
            costs.append(1)
        # `prop` of a constant property, such as the mass, is the same in each frame.
        if kind.__name__ != "PropertySelection" or of_coordinate:
            costs.append(BY_POSITION.get(kind.__name__, 0))
        return max([0, *costs])

    def add(
        self, selection: "Selection", domain: _Domain, wanted: np.ndarray
    ) -> tuple[int, np.ndarray]:
        """Add a selection; return its number, and a mask of `wanted` atoms that it may select."""
        moves = self.cost(selection) > 0
        if domain.fixed is not None and not moves:
            number, members = self.fixed(selection.apply(domain.fixed).indices)
            return number, members & wanted
        kind = type(selection).__name__
        if kind in OF_THE_WHOLE:
            raise self.unsupported(f"{selection.token!r} of atoms that change from frame to frame")
        inside = domain.members & wanted
        if kind in ("AndOperation", "OrOperation"):
            return self._both(kind, selection, domain, wanted)
        if kind == "NotSelection":
            number, _ = self.add(selection.sel, domain, wanted)
            return self.node("not", [number]), inside
        if kind == "GlobalSelection":
            everything = _Domain(self.universe.atoms, self.everything)
            number, members = self.add(selection.sel, everything, wanted)
            return self.node("global", [number]), members
        if kind == "SelgroupSelection" and moves:
            return self._selgroup(selection.grp, domain, wanted)
        if kind in ("SameSelection", "ByResSelection"):
            return self._same(kind, selection, domain, inside)
        if kind in BY_POSITION and moves:
            return self._by_position(kind, selection, domain, inside), inside
        # The selection depends only on single atoms: apply it to all atoms, then to the group.
        number, members = self.fixed(selection.apply(self.universe.atoms).indices)
        return self.node("and", [number, self.node("all")]), members & inside

    def _both(
        self, kind: str, selection: "Selection", domain: _Domain, wanted: np.ndarray
    ) -> tuple[int, np.ndarray]:
        """Add two selections joined by "and" or "or"; the cheaper one is evaluated first."""
        first, second = sorted((selection.lsel, selection.rsel), key=self.cost)
        one, members = self.add(first, domain, wanted)
        if kind == "OrOperation":
            other, others = self.add(second, domain, wanted)
            return self.node("or", [one, other]), members | others
        other, both = self.add(second, domain, members)
        return self.node("and", [one, other]), both

    def _selgroup(
        self, group: UpdatingAtoms, domain: _Domain, wanted: np.ndarray
    ) -> tuple[int, np.ndarray]:
        """Add an updating group to which a selection refers."""
        if group.universe is not self.universe:
            raise self.unsupported("a group from another Universe")
        members, (base, n_base, selections) = self.group(group, wanted)
        values = [] if n_base is None else [n_base]
        return self.node("group", [base, *selections], values), members & domain.members

    def _same(
        self, kind: str, selection: "Selection", domain: _Domain, inside: np.ndarray
    ) -> tuple[int, np.ndarray]:
        """Add a selection of atoms that share a property with other atoms."""
        number, members = self.add(selection.sel, domain, self.everything)
        self.read |= members
        prop = "residue" if kind == "ByResSelection" else selection.prop
        if prop in ("x", "y", "z"):
            self.read |= inside
            return self.node("same coordinate", [number], ["xyz".index(prop)]), inside
        name = "fragindices" if prop == "fragment" else None
        if name is None:
            name = "resindices" if prop == "residue" else selection.prop_trans[prop]
        values = np.asarray(getattr(self.universe.atoms, name))
        _, labels = np.unique(values, return_inverse=True)
        labels = labels.reshape(-1).astype(np.int64)
        if values.dtype.kind == "f":
            labels[np.isnan(values)] = 2**32 - 1  # NaN equals no other value
        shared = np.isin(labels, labels[members])
        return self.node("same", [number], atoms=labels), inside & shared

    def _by_position(
        self, kind: str, selection: "Selection", domain: _Domain, inside: np.ndarray
    ) -> int:
        """Add a selection that depends on positions."""
        self.read |= inside
        if kind == "PropertySelection":
            return self._property(selection)
        periodic = selection.periodic
        inner = attribute_of(selection, "inRadius")
        outer = attribute_of(selection, "exRadius")
        if outer is None:
            outer = selection.cutoff
        radii = [outer] if inner is None else [outer, inner]
        if not all(0 <= radius < np.inf for radius in radii):
            raise ValueError(
                f"{self.name}: {selection.token} needs distances of at least 0 Å, not {radii}"
            )
        if kind == "PointSelection":
            if not np.isfinite(selection.ref).all():
                raise ValueError(f"{self.name}: point needs numbers, not {selection.ref.tolist()}")
            return self.node("point", [], [outer, *selection.ref], periodic)
        number, members = self.add(selection.sel, domain, self.everything)
        self.read |= members
        if kind.startswith("Cylindrical"):
            limits = [selection.zmin, selection.zmax]
            squares = [radius**2 for radius in radii]
            values = [outer, squares[0], *limits, *squares[1:]]
            return self.node("cylinder", [number], values, periodic)
        if kind.startswith("Spherical"):
            return self.node("sphere", [number], radii, periodic)
        if not (periodic and self.has_cell):
            self.read |= domain.members
        return self.node("near", [number], radii, periodic)

    def _property(self, selection: "Selection") -> int:
        """Add a comparison of a coordinate, in single precision as in NumPy."""
        value = selection.value
        values = ["xyz".index(selection.prop), selection.absolute, float(np.float32(value))]
        operator = selection.operator
        if not isinstance(operator, partial):
            return self.node(COMPARISONS[operator.__name__], [], values)
        limits = operator.keywords
        # As in `numpy.isclose`, no finite number is close to infinity.
        of_value = limits["rtol"] * abs(value) if np.isfinite(value) else 0.0
        tolerance = np.float32(limits["atol"] + of_value)
        return self.node("==", [], [*values, float(tolerance)])
