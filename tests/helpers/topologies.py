"""Topologies that tests open hundreds of times: parsed once a process, as elements are guessed."""

import functools
import hashlib
import io
import pickle
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from MDAnalysis.core._get_readers import get_parser_for
from MDAnalysis.core.topology import Topology
from MDAnalysis.guesser.default_guesser import DefaultGuesser
from MDAnalysisTests import datafiles

#: Files that MDAnalysis parses in 0.1 to 0.9 s, without a warning in its current version.
FILES = (
    *(datafiles.PSF, datafiles.GRO, datafiles.GRO_MEMPROT),
    *(datafiles.TPR, datafiles.TPR2020),
)
Parse = Callable[..., Topology]


class Parsed:
    """A topology that is copied in milliseconds: copies share the tuples of long lists."""

    def __init__(self, topology: Topology):
        self._lists: list[list[object]] = []
        buffer = io.BytesIO()
        Pickler(buffer, self._lists).dump(topology)
        self._pickled = buffer.getvalue()

    def copy(self) -> Topology:
        return Unpickler(io.BytesIO(self._pickled), self._lists).load()


class Pickler(pickle.Pickler):
    """Keeps long lists, of tuples of atoms' numbers, beside the bytes."""

    def __init__(self, file: io.BytesIO, lists: list[list[object]]):
        super().__init__(file)
        self._lists = lists

    def persistent_id(self, one: object) -> int | None:
        if not isinstance(one, list) or len(one) < 1000 or not isinstance(one[0], tuple):
            return None
        self._lists.append(one)
        return len(self._lists) - 1


class Unpickler(pickle.Unpickler):
    """Copies the lists that a Pickler kept."""

    def __init__(self, file: io.BytesIO, lists: list[list[object]]):
        super().__init__(file)
        self._lists = lists

    def persistent_load(self, number: int) -> list[object]:
        return self._lists[number].copy()


def parse_once(original: Parse) -> Parse:
    """Wrap MDAnalysis's function: a file of this content is parsed once, and copied each time."""
    sizes = {Path(path).stat().st_size for path in FILES}
    #: Parsers with their methods and contents; what others changed is parsed by MDAnalysis.
    known = {identify(path) for path in FILES}
    parsed: dict[object, Parsed] = {}
    lock = threading.Lock()

    @functools.wraps(original)
    def parse(file: Any, topology_format: Any = None, **options: Any) -> Topology:
        plain = isinstance(file, str | Path) and topology_format is None and not options
        if not plain or not Path(file).is_file() or Path(file).stat().st_size not in sizes:
            return original(file, topology_format, **options)
        key = identify(file)
        with lock:
            if key in known and key not in parsed:
                with warnings.catch_warnings():
                    warnings.simplefilter("error")
                    try:
                        parsed[key] = Parsed(original(file))
                    except Warning:  # to be given each time
                        known.remove(key)
        return parsed[key].copy() if key in parsed else original(file)

    return parse


def guess_once(original: Callable[[DefaultGuesser, str], str]) -> Callable[..., str]:
    """Wrap MDAnalysis's method: the element of a name is guessed once."""
    elements: dict[str, str] = {}

    @functools.wraps(original)
    def guess_atom_element(guesser: DefaultGuesser, name: str) -> str:
        if name not in elements:
            elements[name] = original(guesser, name)
        return elements[name]

    return guess_atom_element


def identify(path: str | Path) -> tuple[type, object, bytes]:
    """Parser of a file, the parser's method, and a digest of the content."""
    parser = get_parser_for(path)
    return parser, parser.parse, hashlib.blake2b(Path(path).read_bytes()).digest()
