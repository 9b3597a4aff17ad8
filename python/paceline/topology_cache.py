"""Keep what MDAnalysis finds in large topologies, so that they open fast the next time.

The saved form is a cache of plain arrays, which is made anew where it does not fit:

```text
byte  0  "paceline topology"
     17  checksum             32 bytes   SHA-256 of all bytes behind it
     49  length of the head   u64        little-endian
     57  head                 JSON: `_Topology.key`, the parsed and the guessed part
         arrays               in NumPy's format NPY, one after another, without pickles
```

Each part lists its attributes in MDAnalysis's order, with the numbers of their arrays, and the
warnings that MDAnalysis gave, which are given again.
"""

import builtins
import contextlib
import hashlib
import inspect
import io
import json
import os
import stat
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import MDAnalysis
import numpy as np
from MDAnalysis.core import universe as mdanalysis_universe
from MDAnalysis.core._get_readers import get_parser_for
from MDAnalysis.core.topology import Topology
from MDAnalysis.guesser import tables
from MDAnalysis.guesser.default_guesser import DefaultGuesser
from numpy.lib.format import read_array, write_array

from paceline._util.digest import digest
from paceline._util.files import new_file, remove_leftovers
from paceline._util.system import set_mode
from paceline._util.topology_encoding import (
    NotKept,
    check_keys,
    decode_attribute,
    decode_topology,
    encode_attribute,
    encode_topology,
)
from paceline.trajectory.open import cache_folder

_MAGIC = b"paceline topology"
_VERSION = 1
_CHECKSUM = "sha256"
_CHECKSUM_LEN = hashlib.new(_CHECKSUM).digest_size
#: Bytes of a topology from which on it is kept. 2 MB of GRO are 45,000 atoms: opening them takes
#: 0.20 s, 0.22 s when they are kept, and 0.012 s from the cache.
_LEAST_SIZE = 2_000_000
#: MDAnalysis's parsers that read one file, and nothing else.
_PARSERS = {
    *("CRDParser", "DATAParser", "ExtendedPDBParser", "GROParser", "HoomdXMLParser"),
    *("MMCIFParser", "MOL2Parser", "PDBParser", "PDBQTParser", "PQRParser", "PSFParser"),
    *("TOPParser", "TPRParser", "TXYZParser", "XYZParser"),
}
#: Keywords of a Universe; others are for its parser.
_OF_UNIVERSE = frozenset(inspect.signature(MDAnalysis.Universe.__init__).parameters)
#: Attributes that MDAnalysis guesses unasked, from the others.
_GUESSED = ["types", "masses"]

#: Topologies from large files whose guessed attributes are to come.
_unguessed: "weakref.WeakKeyDictionary[Topology, _TopologyFile]" = weakref.WeakKeyDictionary()
#: Held while warnings are recorded: by one thread at a time.
_recording = threading.Lock()


def resolve(
    topology: Any, coordinates: tuple[Any, ...], options: dict[str, Any]
) -> tuple[Topology, tuple[Any, ...], dict[str, Any]] | None:
    """Parse the topology of a Universe that is to be made, or load it.

    Returns
    -------
    tuple of (Topology, tuple, dict) or None
        Arguments of the Universe in place of those given; None for a topology that is not kept.
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
    original: Callable[..., Topology], file: Any, topology_format: Any = None, **options: Any
) -> Topology:
    """Parse a topology by MDAnalysis's function, or load what that found in it before."""
    known = _TopologyFile.of(file, topology_format, options)
    if known is None:
        return original(file, topology_format=topology_format, **options)
    return known.parse(lambda: original(file, topology_format=topology_format, **options))


def guess(
    original: Callable[..., None],
    universe: Any,
    context: Any = None,
    to_guess: Any = None,
    force_guess: Any = None,
    *args: Any,
    **kwargs: Any,
) -> None:
    """Guess attributes of a Universe by MDAnalysis's method, or add those that it guessed before.

    The first call, at the end of a Universe's `__init__`, is the one that is kept.
    """
    known = _unguessed.pop(universe._topology, None)
    if known is not None:
        usual = (
            context == "default"
            and list(to_guess or ())[:2] == _GUESSED
            and not force_guess
            # They may have changed the atoms.
            and not universe._kwargs.get("transformations")
            and _is_theirs(MDAnalysis._GUESSERS.get("DEFAULT"), DefaultGuesser)
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


def _is_theirs(found: Any, expected: type) -> bool:
    """Check that a guesser is MDAnalysis's own, and that no other package changed it."""
    names = ("guess_types", "guess_masses", "guess_attr", "guess_atom_element", "guess_atom_mass")
    return found is expected and all(
        getattr(found, name).__module__.startswith("MDAnalysis.guesser.")
        for name in names
        if hasattr(found, name)
    )


class _TopologyFile:
    """A large file that MDAnalysis parses, and what is kept of it."""

    def __init__(self, path: Path, state: os.stat_result, key: dict[str, Any]):
        self.path = path
        self._state = state
        self._key = key
        #: What is to be saved, with its arrays; None where it is, and where it cannot be.
        self._head: dict[str, Any] | None = None
        self._arrays: list[np.ndarray] = []
        #: Guessed attributes and their warnings, as they were saved.
        self._guessed: tuple[list[Any], list[_Warning]] | None = None
        self._loaded_from: Path | None = None

    @classmethod
    def of(cls, file: Any, topology_format: Any, options: dict[str, Any]) -> "_TopologyFile | None":
        """Recognise a file by its whole content; None for one that is not kept."""
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
                content = hashlib.file_digest(opened, _CHECKSUM).hexdigest()
        except (OSError, TypeError, ValueError):  # MDAnalysis says it better
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

    def _places(self) -> Iterator[Path]:
        """Name the places of the cache: beside the file, and in the user's folder of caches."""
        real = Path(os.path.realpath(self.path))
        if real.parts[1:2] not in (("dev",), ("proc",)):
            yield self.path.with_name(f".{self.path.name}.paceline-topology")
        if (folder := cache_folder()) is not None:
            yield folder / f"{digest(os.fspath(real))}.paceline-topology"

    def parse(self, parse_anew: Callable[[], Topology]) -> Topology:
        """Load the topology, or parse it anew and keep it."""
        topology = self._load()
        if topology is None:
            with _recorded_warnings() as given:
                topology = parse_anew()
            self._keep(topology, given)
        _unguessed[topology] = self
        return topology

    def _load(self) -> Topology | None:
        """Load the parsed part; None where nothing is kept that fits."""
        for place in self._places():
            try:
                head, arrays = _read(place, self._key)
                topology = decode_topology(head["parsed"], arrays)
                given = _decode_warnings(head["parsed"]["warnings"])
                if (guessed := head["guessed"]) is not None:
                    check_keys(guessed, "attributes", "warnings")
                    self._guessed = (
                        [decode_attribute(one, arrays, topology) for one in guessed["attributes"]],
                        _decode_warnings(guessed["warnings"]),
                    )
            except Exception:  # of whatever damage: it is parsed anew
                continue
            self._loaded_from = place
            _warn_again(given)
            return topology
        return None

    def _keep(self, topology: Topology, given: "list[_Warning] | None") -> None:
        """Encode a topology, before anything else can change it."""
        with contextlib.suppress(NotKept):
            parsed = encode_topology(topology, self._arrays)
            parsed["warnings"] = _encode_warnings(given)
            self._head = {"key": self._key, "parsed": parsed, "guessed": None}

    def add_guessed(self, universe: Any) -> bool:
        """Add the attributes that were guessed before; False where none are kept."""
        if self._guessed is None:
            return False
        attributes, given = self._guessed
        for attribute in attributes:
            universe.add_TopologyAttr(attribute)
        _warn_again(given)
        return True

    def keep_guessed(
        self, topology: Topology, before: Sequence[Any], given: "list[_Warning] | None"
    ) -> None:
        """Encode the attributes that were guessed since others were there `before`."""
        with contextlib.suppress(NotKept, OSError, ValueError):
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
        """Write the cache, if it is new; where no folder can be written, nothing is kept."""
        if self._head is None:
            return
        with contextlib.suppress(OSError):
            now = self.path.stat()
            if any(
                getattr(now, name) != getattr(self._state, name)
                for name in ("st_size", "st_mtime_ns", "st_ino", "st_dev")
            ):
                return  # the file was changed while it was read
        content = _to_bytes(self._head, self._arrays)
        for place in self._places():
            try:
                place.parent.mkdir(parents=True, exist_ok=True)
                remove_leftovers(place)
                with new_file(place, overwrite=True, binary=True) as file:
                    # No more people may read it than the file itself.
                    mode = os.fstat(file.fileno()).st_mode & self._state.st_mode & 0o666
                    set_mode(file.fileno(), mode)
                    file.write(content)
            except OSError:
                continue
            return


def _digest_of_tables() -> str:
    """Digest the tables of elements and masses, which some people extend."""
    return digest({name: one for name, one in vars(tables).items() if isinstance(one, dict | list)})


def _to_bytes(head: dict[str, Any], arrays: Sequence[np.ndarray]) -> bytes:
    """Write the content of a cache."""
    text = json.dumps(head).encode()
    file = io.BytesIO()
    file.write(len(text).to_bytes(8, "little") + text)
    for array in arrays:
        write_array(file, array, allow_pickle=False)
    rest = file.getbuffer()
    return b"".join((_MAGIC, hashlib.new(_CHECKSUM, rest).digest(), rest))


def _read(place: Path, key: dict[str, Any]) -> tuple[dict[str, Any], list[np.ndarray]]:
    """Read a cache of the file with this key, and check that it is whole."""
    if not place.is_file():
        raise NotKept
    with open(place, "rb") as file:
        start = file.read(len(_MAGIC) + _CHECKSUM_LEN)
        if start[: len(_MAGIC)] != _MAGIC:
            raise NotKept
        length = file.read(8)
        n_bytes = int.from_bytes(length, "little")
        if n_bytes > os.fstat(file.fileno()).st_size:
            raise NotKept
        text = file.read(n_bytes)
        head = json.loads(text)
        if head.keys() != {"key", "parsed", "guessed"} or not _equal(head["key"], key):
            raise NotKept
        rest = file.read()
    checksum = hashlib.new(_CHECKSUM, length + text)
    checksum.update(rest)
    if checksum.digest() != start[len(_MAGIC) :]:
        raise NotKept
    stream, arrays = io.BytesIO(rest), []
    while stream.tell() < len(rest):
        arrays.append(read_array(stream, allow_pickle=False))
    return head, arrays


def _equal(one: Any, other: Any) -> bool:
    """Compare plain data by what JSON writes: 1 is not True."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


#: Category, text, module and line of a warning.
_Warning = tuple[type[Warning], str, str, int]


@contextlib.contextmanager
def _recorded_warnings() -> "Iterator[list[_Warning] | None]":
    """Record the warnings that this thread gives meanwhile, which are given as ever.

    Yields a list of them; None where another thread records, or where one is of another kind than
    MDAnalysis gives.
    """
    if not _recording.acquire(blocking=False):
        yield None
        return
    given: list[_Warning] = []
    thread, original = threading.get_ident(), warnings.warn

    def warn(message: Any, category: Any = None, stacklevel: int = 1, **options: Any) -> None:
        if threading.get_ident() == thread:
            caller = sys._getframe(1)
            if isinstance(message, Warning):
                category = type(message)
            # Of another level the line would be another one.
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
    """Describe warnings that can be given again."""
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
    """Find the category and the module of each warning."""
    found = []
    for name, text, module, line in described:
        category = getattr(builtins, name, None)
        if not (isinstance(category, type) and issubclass(category, Warning)):
            raise NotKept
        if not module.startswith("MDAnalysis.") or module not in sys.modules:
            raise NotKept
        found.append((category, str(text), module, int(line)))
    return found


def _warn_again(given: list[_Warning]) -> None:
    """Give warnings as the module did that gave them first."""
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
