"""Named groups of atoms, as in GROMACS: groups of index files, and the default groups."""

import difflib
import inspect
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import MDAnalysis
import numpy as np
from MDAnalysis.coordinates.base import ProtoReader

from paceline._util.arguments import check_selection
from paceline._util.option_values_and_selections import MARTINI_WATERS
from paceline.contract.system_interface import Atoms, NoFramesYet, has_attribute
from paceline.errors import DamagedFileError, SelectionError, warn
from paceline.transform.known_and_guessed_bonds import add_bonds_to_select
from paceline.universe import Universe

_MAIN_CHAIN = "N CA C O O1 O2 OC1 OC2 OT OXT"
_HYDROGENS = "H* [0-9]H* [0-9][0-9]H*"
_DNA = "resname DA DG DC DT DA5 DG5 DC5 DT5 DA3 DG3 DC3 DT3 DAN DGN DCN DTN"
_RNA = "resname A U C G RA RU RC RG RA5 RT5 RU5 RC5 RG5 RA3 RT3 RU3 RC3 RG3 RAN RTN RUN RCN RGN"
#: Names of ions in the force fields of GROMACS, CHARMM, Amber and Martini.
_ION = (
    "resname LI LI+ LIT NA NA+ SOD K K+ POT RB RB+ RUB CS CS+ CES MG MG2+ CA CA2+ CAL Cal ZN ZN2+ "
    "CU CU1 CU2+ F F- CL CL- CLA BR BR- I I- IB+ MK OH ION"
)
#: Water in all-atom force fields and in Martini.
_WATER = f"water or resname {MARTINI_WATERS}"

#: GROMACS's default groups in GROMACS's order, as MDAnalysis selections.
DEFAULT_GROUPS = {
    "System": "all",
    "Protein": "protein",
    "Protein-H": f"protein and not name {_HYDROGENS}",
    "C-alpha": "protein and name CA",
    "Backbone": "protein and name N CA C",
    "MainChain": f"protein and name {_MAIN_CHAIN}",
    "MainChain+Cb": f"protein and name {_MAIN_CHAIN} CB",
    "MainChain+H": f"protein and name {_MAIN_CHAIN} H H1 H2 H3 HN [0-9]H",
    "SideChain": f"protein and not name {_MAIN_CHAIN} H H1 H2 H3 HN [0-9]H",
    "SideChain-H": f"protein and not name {_MAIN_CHAIN} {_HYDROGENS}",
    "non-Protein": "not protein",
    "DNA": _DNA,
    "RNA": _RNA,
    "Water": _WATER,
    "SOL": _WATER,
    "non-Water": f"not ({_WATER})",
    "Ion": _ION,
    "Other": f"not (protein or {_WATER} or {_DNA} or {_RNA} or {_ION})",
    "Water_and_ions": f"{_WATER} or {_ION}",
}
#: Selection of the residues for which no groups by residue name are made: protein, water and
#: nucleic acids.
_LARGE = f"protein or {_WATER} or {_DNA} or {_RNA}"
#: Names of parameters of `select_atoms`. A group with such a name cannot be passed to
#: `select_atoms` as a keyword.
_TAKEN = inspect.signature(MDAnalysis.AtomGroup.select_atoms).parameters
#: Maximum number of group names in an error message.
_LISTED = 40
#: Maximum number of digits of an atom number.
_DIGITS = 10


#: Pattern of MDAnalysis's message about an incomplete selection. The group of the pattern matches
#: the word that MDAnalysis expected next.
_ENDS = re.compile(
    r"(?:Selection failed: ')?(?:Unknown selection|Unexpected) token: 'None'"
    r"(?: Expected: '(.*)')?'?"
)


def _describe_end(found: re.Match) -> str:
    return f"it ends where {found[1]!r} is expected" if found[1] else "it ends too early"


@dataclass(frozen=True)
class IndexFile:
    """Groups of atoms from an index file."""

    path: str
    #: Number of atoms of the system to which the file belongs.
    n_atoms: int
    #: Indices of the atoms of each group, from 0, in the order of the file.
    groups: dict[str, np.ndarray]


@dataclass
class _Group:
    """Group while it is read: the line of its name, and its atom numbers from 1."""

    line: int
    numbers: list[int] = field(default_factory=list)


def read_index_file(path: str | os.PathLike, n_atoms: int) -> IndexFile:
    """Read an index file of a system with `n_atoms` atoms.

    Raises `DamagedFileError` if the file contains no group, if a line contains neither the name of
    a group nor atom numbers, if two groups have the same name, if a group contains an atom twice,
    or if an atom number is outside the system.
    """
    path = os.fspath(path)
    text = Path(path).read_text(encoding="utf-8", errors="surrogateescape")
    groups: dict[str, _Group] = {}
    last: _Group | None = None
    for number, line in enumerate(text.split("\n"), start=1):
        words = line.partition(";")[0].split()
        if not words:
            continue
        where = f"line {number}"
        if words[0].startswith("["):
            name = _name_of(path, where, " ".join(words))
            if name in groups:
                expected = f"a name other than that in line {groups[name].line}"
                raise DamagedFileError.in_object(path, where, expected, f"a second [ {name} ]")
            groups[name] = last = _Group(number)
        elif last is None:
            expected = "the name of a group, such as [ Protein ]"
            raise DamagedFileError.in_object(path, where, expected, repr(words[0]))
        else:
            last.numbers.extend(_numbers(path, where, words, n_atoms))
    if not groups:
        expected = "groups, such as [ Protein ] and numbers of atoms"
        raise DamagedFileError.in_object(path, "", expected, "none")
    found = {name: np.array(one.numbers, dtype=np.int64) - 1 for name, one in groups.items()}
    for name, indices in found.items():
        unique, counts = np.unique(indices, return_counts=True)
        if len(unique) < len(indices):
            twice = f"atom {unique[counts > 1][0] + 1} twice"
            where = f"group {name}, which begins in line {groups[name].line}"
            raise DamagedFileError.in_object(path, where, "each atom once", twice)
    return IndexFile(path, n_atoms, found)


def _name_of(path: str, where: str, line: str) -> str:
    """Read the name of a group, which stands in brackets."""
    name = line.removeprefix("[").removesuffix("]").strip()
    if not line.endswith("]") or not name or set(name) & set(" []()"):
        expected = "a name without blanks or brackets, in brackets, such as [ Protein ]"
        raise DamagedFileError.in_object(path, where, expected, repr(line[:60]))
    return name


def _numbers(path: str, where: str, words: list[str], n_atoms: int) -> list[int]:
    """Read the atom numbers in a line."""
    numbers = []
    for word in words:
        is_number = word.isascii() and word.isdecimal() and len(word) <= _DIGITS
        number = int(word) if is_number else 0
        if not 1 <= number <= n_atoms:
            expected = f"an atom number, 1 to {n_atoms}"
            raise DamagedFileError.in_object(path, where, expected, repr(word[:60]))
        numbers.append(number)
    return numbers


class GroupUniverse(Universe):  # numpydoc ignore=PR01
    """Universe with named groups of atoms, as in GROMACS.

    The text for `select_atoms` may be the name of a group, the number of a group in the index file,
    or a selection that contains ``group NAME``.
    """

    _index: IndexFile | None = None
    _residues: list[str] | None = None
    #: Address and options of a stream that is not connected yet.
    _stream: tuple[str, dict[str, object]] | None = None
    _is_offline = False

    def connect_later(self, address: str, **options: object) -> None:
        """Connect to a stream when a frame is first needed.

        Errors that follow from the topology alone are then raised before the simulation gets a
        client.
        """
        self._stream = address, options

    @property
    def trajectory(self) -> ProtoReader:
        """Trajectory of the atoms; reading this property connects to a stream if there is one."""
        if self._stream is not None:
            if self._is_offline:
                raise NoFramesYet
            (address, options), self._stream = self._stream, None
            before = self.opening_warnings
            self.load_new(address, **options)
            self.opening_warnings[:0] = before
        return super().trajectory

    @trajectory.setter
    def trajectory(self, reader: object) -> None:
        MDAnalysis.Universe.trajectory.fset(self, reader)

    @contextmanager
    def offline(self) -> Iterator[None]:
        """During a `with` block, raise `NoFramesYet` instead of connecting to a stream."""
        before, self._is_offline = self._is_offline, True
        try:
            yield
        finally:
            self._is_offline = before

    def use_index_file(self, index: IndexFile | None) -> None:
        """Use the groups of an index file instead of the default groups."""
        self._index = index

    @property
    def index_file(self) -> IndexFile | None:
        """Index file in use; None for the default groups."""
        return self._index

    def select_atoms(self, *selections: str, **groups: object) -> Any:
        """Select atoms as `MDAnalysis.Universe.select_atoms` does, or by the name of a group."""
        return self.select_within(self.atoms, *selections, **groups)

    def select_within(self, atoms: Atoms, *selections: str, **groups: object) -> Atoms:
        """Select some of `atoms`, which are in this Universe, as `select_atoms` does."""
        found: dict[str, object] = {}
        for text in selections:
            check_selection(text)
        add_bonds_to_select(self, *selections)
        texts = [self._with_aliases(text, groups, found) for text in selections]
        try:
            return atoms.select_atoms(*texts, **groups, **found)
        except SelectionError:
            raise  # the message is complete
        except MDAnalysis.SelectionError as error:
            for text in selections:
                if len(text.split()) == 1:
                    raise self._unknown(text, "is neither a selection nor a group") from None
            why = _ENDS.sub(_describe_end, f"{error}")
            if (word := why.partition("token: ")[2].strip("'")) in dict(self.groups()):
                why += f"; the group of this name is 'group {word}'"
            given = ", ".join(map(repr, selections))
            raise SelectionError(f"{given} cannot be read as a selection: {why}") from None

    def _with_aliases(
        self, text: str, given: Mapping[str, object], found: dict[str, object]
    ) -> str:
        """Replace names of groups by names that MDAnalysis allows; add their atoms to `found`."""
        words = self.as_selection(text).replace("(", " ( ").replace(")", " ) ").split()
        if "group" not in words:
            return text
        for k in range(1, len(words)):
            name = words[k]
            if words[k - 1] == "group" and (name in _TAKEN or name not in given):
                words[k] = f"{name}_" if name in _TAKEN else name
                found[words[k]] = self.named_group(name)
        return " ".join(words)

    def as_selection(self, text: str) -> str:
        """Convert the name or number of a group to a selection; return other texts unchanged."""
        name = text.strip()
        if len(name.split()) != 1:
            return text
        if name.isascii() and name.isdecimal():
            return f"group {self._group_name(name)}"
        if self._index is None:
            is_group = name in DEFAULT_GROUPS or name in self._residue_groups()
            return f"group {name}" if is_group else text
        if name not in self._index.groups:
            return text
        if _is_selection(name, self.atoms):
            raise SelectionError(
                f"{name!r} is a group of {self._index.path} and also a selection of MDAnalysis: "
                f"write 'group {name}' or '({name})'"
            )
        return f"group {name}"

    def _group_name(self, number: str) -> str:
        """Return the name of the group with this number in the index file."""
        if self._index is None:
            raise SelectionError(
                f"{number!r} is a group number, but only an index file (-n) numbers groups; groups "
                f"without an index file: {self._list_groups()}"
            )
        names = list(self._index.groups)
        if int(number) >= len(names):
            raise self._unknown(number, f"is above the last group's number, {len(names) - 1}")
        return names[int(number)]

    def named_group(self, name: str) -> Any:
        """Return the atoms of a group; raise `SelectionError` if the group does not exist."""
        if self._index is not None:
            if name not in self._index.groups:
                raise self._unknown(name, "is not a group")
            return self._atoms_of_group(name, self._index)
        if name in DEFAULT_GROUPS:
            return self.atoms.select_atoms(DEFAULT_GROUPS[name])
        if name in self._residue_groups():
            return self.atoms[self.atoms.resnames == name]
        raise self._unknown(name, "is not a group")

    def _atoms_of_group(self, name: str, index: IndexFile) -> object:
        """Return the atoms of a group of the index file."""
        if index.n_atoms != len(self.atoms):
            raise SelectionError(
                f"{name!r} is a group of {index.path}, which is for {index.n_atoms} atoms, but "
                f"{self.filename} has {len(self.atoms)}"
            )
        indices = index.groups[name]
        if (np.diff(indices) < 0).any():
            warn(f"{index.path}: atoms of group {name} are used in the order of the topology")
        return self.atoms[np.sort(indices)]

    def _residue_groups(self) -> list[str]:
        """Return the names of residues that are neither protein, nucleic acid nor water.

        Names that MDAnalysis can read as a selection are left out.
        """
        if self._residues is None:
            try:
                others = self.atoms.select_atoms(f"not ({_LARGE})").residues
                names = list(dict.fromkeys(others.resnames)) if len(others) else []
            except AttributeError:  # topology without residue names
                names = []
            self._residues = [
                name for name in names if name and not _is_selection(name, self.atoms)
            ]
        return self._residues

    def groups(self) -> Iterator[tuple[str, int]]:
        """Yield the name and number of atoms of each group; omit default groups without atoms."""
        if self._index is not None:
            yield from ((name, len(indices)) for name, indices in self._index.groups.items())
            return
        for name in dict.fromkeys([*DEFAULT_GROUPS, *self._residue_groups()]):
            try:
                n_atoms = len(self.named_group(name))
            except AttributeError:  # the group needs names that the topology lacks
                continue
            if n_atoms:
                yield name, n_atoms

    def _list_groups(self) -> str:
        names = [name for name, _ in self.groups()]
        more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
        return ", ".join(names[:_LISTED]) + more

    def _unknown(self, name: str, what: str) -> SelectionError:
        """Make the error about an unknown name; its message lists the existing groups."""
        near = difflib.get_close_matches(name, [known for known, _ in self.groups()], 1)
        if has_attribute(self.atoms, "names") and name in self.atoms.names:
            near = [f"'name {name}'"]
        hint = f"; did you mean {near[0]}?" if near else ";"
        of = f" of {self._index.path}" if self._index is not None else ""
        error = SelectionError(f"{name!r} {what}{hint} groups{of}: {self._list_groups()}")
        if near:
            vars(error)["hint"] = f"did you mean {near[0]}?"
        return error


def _is_selection(text: str, atoms: Atoms) -> bool:
    """Check whether MDAnalysis can parse a text as a selection."""
    try:
        atoms[:0].select_atoms(text)
    except (MDAnalysis.SelectionError, AttributeError):
        return False
    return True
