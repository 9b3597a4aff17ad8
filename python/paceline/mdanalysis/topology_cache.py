"""Cache data that MDAnalysis parses or guesses for large topologies, to open them faster again.

The cache is a file in NumPy's NPZ format, without compression and pickles. Its member `head` is
JSON text with three parts: the key of `_TopologyFile`, the parsed data and the guessed data. The
other members are arrays, to which `head` refers by number. Both the parsed and the guessed data
consist of attributes in MDAnalysis's order, and of MDAnalysis's warnings, which are issued again. A
cache whose key does not match is replaced.
"""

import builtins
import contextlib
import hashlib
import inspect
import io
import itertools
import json
import os
import stat
import sys
import threading
import warnings
import weakref
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import MDAnalysis
import numpy as np
from MDAnalysis.core import universe as mdanalysis_universe
from MDAnalysis.core._get_readers import get_parser_for
from MDAnalysis.core.topology import Topology
from MDAnalysis.core.topologyattrs import (
    Angles,
    AtomAttr,
    Atomindices,
    AtomStringAttr,
    Bonds,
    CMaps,
    Dihedrals,
    Impropers,
    ResidueAttr,
    ResidueStringAttr,
    Resindices,
    Segindices,
    SegmentAttr,
    SegmentStringAttr,
    TopologyAttr,
    UreyBradleys,
)
from MDAnalysis.guesser import tables
from MDAnalysis.guesser.default_guesser import DefaultGuesser
from numpy.lib.format import read_array

from paceline._util.files import new_file, remove_leftovers
from paceline._util.json_types import JsonObject
from paceline._util.os_calls import set_mode
from paceline._util.python_object_digest import digest
from paceline.contract.system_interface import attribute_of
from paceline.trajectory.open import cache_folder

_VERSION = 2
#: Minimum size of a topology file whose data are cached, bytes. For 2 MB of GRO (45,000 atoms),
#: opening takes 0.20 s without the cache, 0.22 s when the cache is written, and 0.012 s from the
#: cache.
_LEAST_SIZE = 2_000_000
#: MDAnalysis's parsers that read only a single file.
_PARSERS = {
    *("CRDParser", "DATAParser", "ExtendedPDBParser", "GROParser", "HoomdXMLParser"),
    *("MMCIFParser", "MOL2Parser", "PDBParser", "PDBQTParser", "PQRParser", "PSFParser"),
    *("TOPParser", "TPRParser", "TXYZParser", "XYZParser"),
}
#: Keywords of `Universe` and of readers; other keywords are passed to the topology parser.
_OF_UNIVERSE = {*inspect.signature(MDAnalysis.Universe.__init__).parameters, "atoms", "sub"}
#: Attributes that MDAnalysis guesses by default from other attributes.
_GUESSED = ["types", "masses"]

#: Topologies that were loaded from a cache, or parsed for one, and to which guessed attributes have
#: not been added yet.
_unguessed: "weakref.WeakKeyDictionary[Topology, _TopologyFile]" = weakref.WeakKeyDictionary()
#: Lock for recording warnings, because only one thread at a time can record them.
_recording = threading.Lock()
_INDICES = (Atomindices, Resindices, Segindices)
_LEVELS = (AtomAttr, ResidueAttr, SegmentAttr)
_OF_STRINGS = (AtomStringAttr, ResidueStringAttr, SegmentStringAttr)
#: Number of atoms in a connection of each kind, such as 2 in a bond.
_CONNECTIONS = {Bonds: 2, UreyBradleys: 2, Angles: 3, Dihedrals: 4, Impropers: 4, CMaps: 5}
_STRINGS = {"str": str, "str_": np.str_}
_PLAIN = (type(None), bool, int, float, str)


def resolve(
    topology: object, coordinates: tuple[object, ...], options: dict[str, object]
) -> tuple[Topology, tuple[object, ...], dict[str, object]] | None:
    """Parse the topology of a new Universe, or load it from the cache.

    Returns topology, coordinates and options with which the Universe is created instead; None for a
    topology that is not cached.
    """
    of_parser = {name: value for name, value in options.items() if name not in _OF_UNIVERSE}
    format, topology_format = mdanalysis_universe._resolve_formats(
        *coordinates,
        format=options.get("format"),
        topology_format=options.get("topology_format"),
    )
    known = _TopologyFile.of(topology, topology_format, of_parser)
    if known is None:
        return None
    original = mdanalysis_universe._topology_from_file_like
    parsed = known.parse(lambda: original(topology, topology_format=topology_format, **of_parser))
    coordinates = mdanalysis_universe._resolve_coordinates(
        topology,
        *coordinates,
        format=format,
        all_coordinates=options.get("all_coordinates", False),
    )
    return parsed, coordinates, options | {"format": format, "all_coordinates": False}


def parse(
    original: Callable[..., Topology],
    file: object,
    topology_format: object = None,
    **options: object,
) -> Topology:
    """Parse a topology with MDAnalysis's function, or load the cached result."""
    known = _TopologyFile.of(file, topology_format, options)
    if known is None:
        return original(file, topology_format=topology_format, **options)
    return known.parse(lambda: original(file, topology_format=topology_format, **options))


def guess(
    original: Callable[..., object],
    universe: MDAnalysis.Universe,
    context: object = None,
    to_guess: Any = None,
    force_guess: object = None,
    *args: object,
    **kwargs: object,
) -> None:
    """Guess attributes of a Universe with MDAnalysis's method, or add the cached ones.

    Only the first call, at the end of a Universe's `__init__`, is cached.
    """
    known = _unguessed.pop(universe._topology, None)
    if known is not None:
        usual = (
            context == "default"
            and list(to_guess or ())[:2] == _GUESSED
            and not force_guess
            # Transformations may have changed the Universe's atoms before this call.
            and not universe._kwargs.get("transformations")
            and _is_mdanalysis_guesser(MDAnalysis._GUESSERS.get("DEFAULT"), DefaultGuesser)
        )
        if usual and known.add_guessed(universe):
            to_guess = list(to_guess)[2:]
        elif usual:
            before = list(universe._topology.attrs)
            with _recorded_warnings() as given:
                original(universe, context, _GUESSED, (), *args, **kwargs)
            known.keep_guessed(universe._topology, before, given)
            to_guess = list(to_guess)[2:]
        known.save()
    original(universe, context, to_guess, force_guess, *args, **kwargs)


def _is_mdanalysis_guesser(found: object, expected: type) -> bool:
    """True if a guesser belongs to MDAnalysis, and no other package has changed it."""
    names = ("guess_types", "guess_masses", "guess_attr", "guess_atom_element", "guess_atom_mass")
    return found is expected and all(
        method.__module__.startswith("MDAnalysis.guesser.")
        for name in names
        if (method := attribute_of(found, name)) is not None
    )


class _TopologyFile:
    """Large topology file that MDAnalysis parses, with its cache."""

    def __init__(self, path: Path, state: os.stat_result, key: JsonObject):
        self.path = path
        self._state = state
        self._key = key
        #: JSON data to save, which refer to `_arrays`; None if the cache is up to date, or if the
        #: topology cannot be cached.
        self._head: JsonObject | None = None
        self._arrays: list[np.ndarray] = []
        #: Guessed attributes and their warnings, as loaded from the cache.
        self._guessed: tuple[list[TopologyAttr], list[_Warning]] | None = None
        self._loaded_from: Path | None = None

    @classmethod
    def of(
        cls, file: object, topology_format: object, options: dict[str, object]
    ) -> "_TopologyFile | None":
        """Identify a file by its whole content; None for a file that is not cached."""
        if not isinstance(file, str | Path):
            return None
        path = Path(file)
        try:
            state = path.stat()
            if not stat.S_ISREG(state.st_mode) or state.st_size < _LEAST_SIZE:
                return None
            parser = get_parser_for(file, format=topology_format)
            function = parser.parse
            if (
                parser.__name__ not in _PARSERS
                or not parser.__module__.startswith("MDAnalysis.topology.")
                or not function.__module__.startswith("MDAnalysis.topology.")
                or json.loads(json.dumps(options)) != options
            ):
                return None
            with open(path, "rb") as opened:
                content = hashlib.file_digest(opened, "sha256").hexdigest()
        except (OSError, TypeError, ValueError):  # MDAnalysis's own error is clearer
            return None
        key = {
            "version": _VERSION,
            "MDAnalysis": MDAnalysis.__version__,
            "parser": parser.__name__,
            "options": options,
            "tables": _digest_of_tables(),
            "size": state.st_size,
            "content": content,
        }
        return cls(path, state, key)

    def _possible_paths(self) -> Iterator[Path]:
        """Yield possible paths of the cache: beside the file, and in the user's cache folder."""
        real = Path(os.path.realpath(self.path))
        if real.parts[1:2] not in (("dev",), ("proc",)):
            yield self.path.with_name(f".{self.path.name}.paceline-topology")
        if (folder := cache_folder()) is not None:
            yield folder / f"{digest(os.fspath(real))}.paceline-topology"

    def parse(self, parse_anew: Callable[[], Topology]) -> Topology:
        """Load the topology from the cache, or parse it with `parse_anew` and cache it."""
        topology = self._load()
        if topology is None:
            with _recorded_warnings() as given:
                topology = parse_anew()
            self._encode(topology, given)
        _unguessed[topology] = self
        return topology

    def _load(self) -> Topology | None:
        """Load the parsed part of the cache; None if no cache matches."""
        for place in self._possible_paths():
            try:
                head, arrays = _read(place, self._key)
                topology = decode_topology(head["parsed"], arrays)
                given, size = _decode_warnings(head["parsed"]["warnings"]), head["parsed"]["size"]
                if (guessed := head["guessed"]) is not None:
                    check_keys(guessed, "attributes", "warnings")
                    self._guessed = (
                        [decode_attribute(one, arrays, size) for one in guessed["attributes"]],
                        _decode_warnings(guessed["warnings"]),
                    )
            except Exception:  # damage of any kind: the file is parsed again
                continue
            self._loaded_from = place
            _warn_again(given)
            return topology
        return None

    def _encode(self, topology: Topology, given: "list[_Warning] | None") -> None:
        """Encode a topology before the program can change it."""
        with contextlib.suppress(NotKept):
            parsed = encode_topology(topology, self._arrays)
            parsed["warnings"] = _encode_warnings(given)
            self._head = {"key": self._key, "parsed": parsed, "guessed": None}

    def add_guessed(self, universe: MDAnalysis.Universe) -> bool:
        """Add the cached guessed attributes; return False if none are cached."""
        if self._guessed is None:
            return False
        attributes, given = self._guessed
        for attribute in attributes:
            universe.add_TopologyAttr(attribute)
        _warn_again(given)
        return True

    def keep_guessed(
        self, topology: Topology, before: Sequence[TopologyAttr], given: "list[_Warning] | None"
    ) -> None:
        """Encode the guessed attributes; `before` contains the attributes that existed already."""
        with contextlib.suppress(NotKept, OSError, ValueError, KeyError, zipfile.BadZipFile):
            if self._loaded_from is not None:
                self._head, self._arrays = _read(self._loaded_from, self._key)
            if self._head is None or topology.attrs[: len(before)] != before:
                return
            arrays = self._arrays.copy()
            added = topology.attrs[len(before) :]
            self._head["guessed"] = {
                "attributes": [encode_attribute(one, arrays) for one in added],
                "warnings": _encode_warnings(given),
            }
            self._arrays = arrays

    def save(self) -> None:
        """Write the cache if it has changed; do nothing if no folder is writable."""
        if self._head is None:
            return
        with contextlib.suppress(OSError):
            if _version_of(self.path.stat()) != _version_of(self._state):
                return  # the file was changed while it was read
        for place in self._possible_paths():
            try:
                place.parent.mkdir(parents=True, exist_ok=True)
                remove_leftovers(place)
                with new_file(place, overwrite=True, binary=True) as file:
                    # The cache must not be readable for more users than the topology file.
                    mode = os.fstat(file.fileno()).st_mode & self._state.st_mode & 0o666
                    set_mode(file.fileno(), mode)
                    np.savez(file, *self._arrays, head=np.array(json.dumps(self._head)))
            except OSError:
                continue
            return


def _version_of(state: os.stat_result) -> tuple[int, ...]:
    """Return values that change when a file is changed or replaced."""
    return state.st_size, state.st_mtime_ns, state.st_ino, state.st_dev


def _digest_of_tables() -> str:
    """Return a digest of the tables of elements and masses, which users can extend."""
    return digest({name: one for name, one in vars(tables).items() if isinstance(one, dict | list)})


def _read(place: Path, key: JsonObject) -> tuple[JsonObject, list[np.ndarray]]:
    """Read a cache, and verify the checksum of each array; raise `NotKept` for another key."""
    if not place.is_file():
        raise NotKept
    with zipfile.ZipFile(place) as file:
        # Compressed or overlapping members could expand without limit.
        if sum(one.file_size for one in file.infolist()) > place.stat().st_size:
            raise NotKept

        def read(name: str) -> np.ndarray:
            return read_array(io.BytesIO(file.read(f"{name}.npy")), allow_pickle=False)

        head = json.loads(str(read("head")))
        if head.keys() != {"key", "parsed", "guessed"} or not _equal(head["key"], key):
            raise NotKept
        return head, [read(f"arr_{k}") for k in range(len(file.namelist()) - 1)]


def _equal(one: object, other: object) -> bool:
    """Compare plain data by their JSON text, where 1 differs from True."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


#: Category, text, module and line of a warning.
_Warning = tuple[type[Warning], str, str, int]


@contextlib.contextmanager
def _recorded_warnings() -> "Iterator[list[_Warning] | None]":
    """Record the warnings of this thread within the context; they are also issued as usual.

    Yields the list of warnings; None if another thread is recording.
    """
    if not _recording.acquire(blocking=False):
        yield None
        return
    given: list[_Warning] = []
    thread, original = threading.get_ident(), warnings.warn

    def warn(message: Any, category: Any = None, stacklevel: int = 1, **options: object) -> None:
        if threading.get_ident() == thread:
            caller = sys._getframe(1)
            if isinstance(message, Warning):
                category = type(message)
            # The caller of `warn` is the origin of the warning only at the default stack level.
            module = caller.f_globals.get("__name__", "") if stacklevel == 1 else ""
            noted = (category or UserWarning, str(message), module, caller.f_lineno)
            if noted not in given[-1:]:
                given.append(noted)
        original(message, category, stacklevel + 1, **options)

    try:
        warnings.warn = warn  # type: ignore[assignment]
        yield given
    finally:
        if warnings.warn is warn:
            warnings.warn = original
        _recording.release()


def _encode_warnings(given: list[_Warning] | None) -> list[list[Any]]:
    """Encode warnings; raise `NotKept` if one of them could not be issued again."""
    if given is None:
        raise NotKept
    described = [
        [category.__name__, text, module, line]
        for category, text, module, line in dict.fromkeys(given)
    ]
    if _decode_warnings(described) != list(dict.fromkeys(given)):
        raise NotKept
    return described


def _decode_warnings(described: list[list[Any]]) -> list[_Warning]:
    """Restore category and module of each warning."""
    found = []
    for name, text, module, line in described:
        category = vars(builtins).get(name)
        if not (isinstance(category, type) and issubclass(category, Warning)):
            raise NotKept
        if not module.startswith("MDAnalysis.") or module not in sys.modules:
            raise NotKept
        found.append((category, str(text), module, int(line)))
    return found


def _warn_again(given: list[_Warning]) -> None:
    """Issue warnings again, each in the name of the module that issued it first."""
    for category, text, module, line in given:
        there = vars(sys.modules[module])
        warnings.warn_explicit(
            text,
            category,
            there.get("__file__") or module,
            line,
            module=module,
            registry=there.setdefault("__warningregistry__", {}),
        )


class NotKept(Exception):
    """A topology cannot be cached, or a cache does not match."""


def encode_topology(topology: Topology, arrays: list[np.ndarray]) -> JsonObject:
    """Append a topology's arrays to a list; return all other data as JSON data."""
    attributes = topology.attrs
    kinds = [type(one) for one in attributes]
    first = kinds.index(Atomindices)
    if (
        type(topology) is not Topology
        or vars(topology).keys() != {"tt", "attrs", *(one.attrname for one in attributes)}
        or tuple(kinds[first : first + 3]) != _INDICES
    ):
        raise NotKept
    size = n_atoms, n_residues, n_segments = topology.tt.size
    residues = topology.tt.atoms2residues(np.arange(n_atoms))
    segments = topology.tt.residues2segments(np.arange(n_residues))
    return {
        "size": [int(number) for number in size],
        "residues": _append_array(_smallest(residues, n_residues), arrays),
        "segments": _append_array(_smallest(segments, n_segments), arrays),
        "attributes": [encode_attribute(one, arrays) for one in attributes[:first]],
        "added": [encode_attribute(one, arrays) for one in attributes[first + 3 :]],
    }


def decode_topology(parsed: JsonObject, arrays: Sequence[np.ndarray]) -> Topology:
    """Create a topology from the JSON data and arrays of `encode_topology`."""
    check_keys(parsed, "size", "residues", "segments", "attributes", "added", "warnings")
    n_atoms, n_residues, n_segments = size = parsed["size"]
    topology = Topology(
        *size,
        attrs=[decode_attribute(one, arrays, size) for one in parsed["attributes"]],
        atom_resindex=_indices(arrays[parsed["residues"]], n_residues, n_atoms),
        residue_segindex=_indices(arrays[parsed["segments"]], n_segments, n_residues),
    )
    for one in parsed["added"]:
        topology.add_TopologyAttr(decode_attribute(one, arrays, size))
    return topology


def _attribute_class(name: str) -> type[TopologyAttr]:
    """Return MDAnalysis's class of an attribute; raise `NotKept` if a package has replaced it."""
    kind = MDAnalysis._TOPOLOGY_ATTRS.get(name)
    if kind is None or not kind.__module__.startswith("MDAnalysis.") or kind in _INDICES:
        raise NotKept
    return kind


def encode_attribute(attribute: TopologyAttr, arrays: list[np.ndarray]) -> JsonObject:
    """Append an attribute's arrays to a list; return all other data as JSON data."""
    kind, name = type(attribute), attribute.attrname
    values, guessed = attribute.values, attribute.is_guessed
    if _attribute_class(name) is not kind:
        raise NotKept
    if kind in _CONNECTIONS:
        return {
            "name": name,
            "atoms": _encode_atoms(values, _CONNECTIONS[kind], arrays),
            "types": _encode_column(attribute.types, arrays),
            "guessed": _encode_column(guessed, arrays),
            "order": _encode_column(attribute.order, arrays),
        }
    if type(guessed) is not bool or type(values) is not np.ndarray:
        raise NotKept
    described: JsonObject = {"name": name, "guessed": guessed}
    if isinstance(attribute, _OF_STRINGS):
        names = attribute.name_lookup
        kinds = {type(one) for one in names}
        if (
            not kinds <= set(_STRINGS.values())
            or len(kinds) > 1
            or len(set(names)) != len(names)
            or not np.array_equal(names[attribute.nmidx], values)
        ):
            raise NotKept
        described["names"] = [str(one) for one in names]
        described["kind"] = next(iter(kinds)).__name__ if kinds else "str"
        described["index"] = _append_array(_smallest(attribute.nmidx, len(names)), arrays)
        return described
    if values.dtype.hasobject:
        raise NotKept
    return described | {"values": _append_array(values, arrays)}


def decode_attribute(
    described: JsonObject, arrays: Sequence[np.ndarray], size: Sequence[int]
) -> TopologyAttr:
    """Create an attribute for a topology with these numbers of atoms, residues and segments."""
    kind = _attribute_class(described["name"])
    if kind in _CONNECTIONS:
        check_keys(described, "name", "atoms", "types", "guessed", "order")
        atoms = _decode_atoms(described["atoms"], _CONNECTIONS[kind], arrays, size[0])
        columns = {
            name: _decode_column(described[name], arrays, len(atoms))
            for name in ("types", "guessed", "order")
        }
        # Values are set later, because the constructor's check is slow for many bonds.
        attribute = kind([], **columns)
        attribute.values = atoms
        return attribute
    n_values = size[[issubclass(kind, one) for one in _LEVELS].index(True)]
    guessed = described["guessed"]
    if type(guessed) is not bool:
        raise NotKept
    if issubclass(kind, _OF_STRINGS):
        check_keys(described, "name", "guessed", "names", "kind", "index")
        names = [_STRINGS[described["kind"]](name) for name in described["names"]]
        # The constructor loops over its values: pass only the distinct ones.
        attribute = kind(np.array(names, dtype=object), guessed=guessed)
        if len(attribute.name_lookup) != len(names):
            raise NotKept
        attribute.nmidx = _indices(arrays[described["index"]], len(names), n_values).astype(int)
        attribute.values = attribute.name_lookup[attribute.nmidx]
        return attribute
    check_keys(described, "name", "guessed", "values")
    values = arrays[described["values"]]
    if len(values) != n_values or (kind.dtype is not None and values.dtype != np.dtype(kind.dtype)):
        raise NotKept
    return kind(values, guessed=guessed)


def check_keys(described: JsonObject, *names: str) -> None:
    """Raise `NotKept` if the keys of a description differ from the expected ones."""
    if described.keys() != set(names):
        raise NotKept


def _encode_atoms(
    values: Iterable[Sequence[object]], n_atoms: int, arrays: list[np.ndarray]
) -> JsonObject:
    """Encode tuples of `n_atoms` atom indices."""
    kinds = {type(atom) for atom in itertools.chain.from_iterable(values)} or {int}
    if type(values) is not list or len(kinds) > 1:
        raise NotKept
    table = np.array(values, dtype=np.int64).reshape(-1, n_atoms)
    kind = kinds.pop()
    if kind is not int and not issubclass(kind, np.integer):
        raise NotKept
    return {"kind": kind.__name__, "table": _append_array(table, arrays)}


def _decode_atoms(
    described: JsonObject, n_atoms: int, arrays: Sequence[np.ndarray], n_all: int
) -> list[tuple[object, ...]]:
    """Decode tuples of `n_atoms` atom indices, which must be below `n_all`."""
    check_keys(described, "kind", "table")
    table = arrays[described["table"]]
    if table.ndim != 2 or table.shape[1] != n_atoms:
        raise NotKept
    _indices(table.ravel(), n_all, table.size)
    if described["kind"] == "int":
        return list(map(tuple, table.tolist()))
    kind = np.dtype(described["kind"])
    if kind.kind not in "iu":
        raise NotKept
    return list(map(tuple, table.astype(kind)))


def _encode_column(values: Iterable[object], arrays: list[np.ndarray]) -> JsonObject:
    """Encode a list or tuple with one plain value per bond, few of which are distinct."""
    if type(values) not in (list, tuple) or not {type(value) for value in values} <= set(_PLAIN):
        raise NotKept
    # The key contains the type, because 1 == True.
    numbers: dict[tuple[type, object], int] = {}
    index = [numbers.setdefault((type(value), value), len(numbers)) for value in values]
    table = _smallest(np.array(index, dtype=np.int64), len(numbers))
    return {
        "values": [value for _, value in numbers],
        "index": _append_array(table, arrays),
        "is_list": type(values) is list,
    }


def _decode_column(
    described: JsonObject, arrays: Sequence[np.ndarray], n_values: int
) -> list[object] | tuple[object, ...]:
    """Decode a list or tuple of plain values."""
    check_keys(described, "values", "index", "is_list")
    values = described["values"]
    if not {type(value) for value in values} <= set(_PLAIN):
        raise NotKept
    index = _indices(arrays[described["index"]], len(values), n_values)
    column = [values[k] for k in index.tolist()]
    return column if described["is_list"] else tuple(column)


def _append_array(array: np.ndarray, arrays: list[np.ndarray]) -> int:
    """Append a copy of an array to a list; return its index."""
    arrays.append(array.copy())
    return len(arrays) - 1


def _smallest(index: np.ndarray, n: int) -> np.ndarray:
    """Convert numbers below `n` to the smallest suitable dtype."""
    return index.astype(np.min_scalar_type(n))


def _indices(index: np.ndarray, n: int, n_values: int) -> np.ndarray:
    """Return an array of `n_values` numbers from 0 to below `n`; raise `NotKept` for another."""
    if index.shape != (n_values,) or index.dtype.kind not in "iu":
        raise NotKept
    if n_values and not (index.min() >= 0 and index.max() < n):
        raise NotKept
    return index
