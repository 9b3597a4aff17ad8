"""Digests of a run's parameters and functions, the same in every process that makes the same run.

A hash of a pickle would not do. That of a function defined in an importable module holds only its
name, so that edited code passes; that of one defined in a script holds line numbers, so that a
comment matters; and both differ with the order of sets and with which strings are one object.
"""

import copyreg
import dis
import hashlib
import sys
import sysconfig
import types
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

#: Folders of installed packages, in any environment: other modules are the user's own code.
_INSTALLED = ("site-packages", "dist-packages")
_STDLIB = sysconfig.get_path("stdlib")
_PLAIN = {type(None), bool, int, float, complex, str, bytes}
#: Attributes of a class that decide how its objects behave.
_METHODS = (types.FunctionType, staticmethod, classmethod, property)


def digest(*things: object) -> str:
    """Digest values, arrays, the user's own functions and classes, and objects: 32 hex digits.

    Functions and classes of the user's own enter by their code and all of their own code that they
    use, those of installed packages by name. Objects enter by what would be pickled; those that
    cannot be pickled by their class.

    Examples
    --------
    >>> digest([1, 2.5], {"b": np.arange(3)}) == digest([1, 2.5], {"b": np.arange(3)})
    True
    >>> digest([1, 2.5]) == digest((1, 2.5))
    False
    """
    sha = hashlib.sha256()
    for part in _walk(things, {}):
        sha.update(len(part).to_bytes(8, "little") + part)
    return sha.hexdigest()[:32]


def members_used(thing: object, method: str) -> dict[str, Any]:
    """Collect what a method of an object, and methods that it calls, use of the object.

    Attributes and methods by name, those of its class as a list with those of the bases. What they
    set themselves is left out.

    Examples
    --------
    >>> class Ball:
    ...     def __init__(self):
    ...         self.radius, self.name, self.volume = 2, "ball", None
    ...     def fill(self):
    ...         self.volume = self.radius**3
    >>> [(name, value) for name, value in members_used(Ball(), "fill").items() if name != "fill"]
    [('radius', 2)]
    """
    loaded, stored, left = {method}, set(), [method]
    while left:
        name = left.pop()
        for member in _members_of(type(thing), name):
            function = getattr(member, "fget", getattr(member, "__func__", member))
            for operation, argument in _attributes_in(getattr(function, "__code__", None)):
                if operation == "STORE_ATTR":
                    stored.add(argument)
                elif argument not in loaded:
                    loaded.add(argument)
                    left.append(argument)
    of_object, found = vars(thing), {}
    for name in sorted(loaded - stored):
        if name in of_object:
            found[name] = of_object[name]
        elif members := _members_of(type(thing), name):
            found[name] = members
    return found


def _members_of(kind: type, name: str) -> list[Any]:
    """Members of a class and of its bases."""
    return [vars(base)[name] for base in kind.__mro__[:-1] if name in vars(base)]


def _attributes_in(code: types.CodeType | None) -> Iterator[tuple[str, str]]:
    """Yield what a function, or one within it, does to attributes of whatever objects."""
    if code is None:
        return
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "STORE_ATTR"):
            yield step.opname, step.argval
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from _attributes_in(const)


def _walk(thing: Any, seen: dict[int, tuple[int, Any]]) -> Iterator[bytes]:
    """Yield bytes that identify a thing; `seen` keeps all objects, so that no id is reused."""
    kind = type(thing)
    if kind in _PLAIN:
        yield f"{kind.__name__} {thing!r}".encode()
        return
    yield _name(kind)
    if isinstance(thing, np.ndarray | np.generic) and not thing.dtype.hasobject:
        yield f"{thing.dtype.str} {thing.shape}".encode()
        yield thing.tobytes()
    elif kind in (list, tuple) and _PLAIN.issuperset(map(type, thing)):
        yield repr(thing).encode()  # a topology has a million bonds
    elif isinstance(thing, types.ModuleType | np.ufunc):
        yield thing.__name__.encode()
    elif id(thing) in seen:
        yield f"again {seen[id(thing)][0]}".encode()
    else:
        # Which constants are one object is the interpreter's choice.
        if not isinstance(thing, tuple | frozenset | types.CodeType):
            seen[id(thing)] = len(seen), thing
        if isinstance(thing, set | frozenset):
            yield from sorted(digest(item).encode() for item in thing)
        else:
            yield from _walk_all(_parts(thing), seen)


def _walk_all(things: Iterable[Any], seen: dict[int, tuple[int, Any]]) -> Iterator[bytes]:
    for thing in things:
        yield from _walk(thing, seen)
    yield b"end"


def _parts(thing: Any) -> Iterator[Any]:
    """Yield the parts of a thing."""
    if type(thing) in (list, tuple):
        yield from thing
    elif isinstance(thing, np.ndarray):
        yield from (thing.shape, thing.tolist())
    elif type(thing) in (dict, types.MappingProxyType):
        for key in sorted(thing, key=repr):
            yield from (key, thing[key])
    elif isinstance(thing, types.BuiltinFunctionType):
        yield from (thing.__qualname__, thing.__self__)  # its module, or the object of a method
    elif isinstance(thing, staticmethod | classmethod):
        yield thing.__func__
    elif isinstance(thing, property):
        yield from (thing.fget, thing.fset)
    elif isinstance(thing, types.CodeType):
        yield from _parts_of_code(thing)
    elif isinstance(thing, types.FunctionType):
        yield f"{thing.__module__}.{thing.__qualname__}"
        if _is_own(thing.__module__):
            yield from _parts_of_function(thing)
    elif isinstance(thing, type):
        yield f"{thing.__module__}.{thing.__qualname__}"
        if _is_own(thing.__module__):
            for name, value in sorted(vars(thing).items()):
                # Others in underscores are notes of the interpreter's and of pickle's.
                if isinstance(value, _METHODS) or not name.startswith("__"):
                    yield from (name, value)
            yield from thing.__bases__
    elif hasattr(thing, "__wrapped__"):  # a function in a cache, or to be compiled
        yield thing.__wrapped__
    else:
        yield from _parts_of_object(thing)


def _parts_of_object(thing: object) -> Iterator[Any]:
    """Yield all that would be pickled."""
    yield type(thing)
    try:
        registered = copyreg.dispatch_table.get(type(thing))
        reduced = registered(thing) if registered else thing.__reduce_ex__(4)
    except Exception:  # code of the object's own; it may say so in any way
        return
    # Items of lists and dicts come as iterators.
    parts = reduced if isinstance(reduced, tuple) else (reduced,)
    yield from (list(part) if isinstance(part, Iterator) else part for part in parts)


def _parts_of_function(function: types.FunctionType) -> Iterator[Any]:
    yield from (function.__code__, function.__defaults__, function.__kwdefaults__)
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not filled yet
            yield None
    names = set(_names_of(function.__code__))
    for name in sorted(_globals_of(function.__code__)):
        if name in function.__globals__:
            yield from (name, _used(function.__globals__[name], names - {name}))


def _parts_of_code(code: types.CodeType) -> Iterator[Any]:
    """Yield the parts of code without line numbers: comments may change."""
    yield from (code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    yield from code.co_consts


def _globals_of(code: types.CodeType) -> set[str]:
    """Find the globals that a function, or one within it, uses."""
    names = {step.argval for step in dis.get_instructions(code) if step.opname == "LOAD_GLOBAL"}
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            names |= _globals_of(const)
    return names


def _names_of(code: types.CodeType) -> Iterator[str]:
    """Yield all names of globals and attributes in a function, and in those within it."""
    yield from code.co_names
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from _names_of(const)


def _used(thing: object, names: set[str]) -> Any:
    """Reduce a module of the user's own to its members among the names that code uses."""
    if not (isinstance(thing, types.ModuleType) and _is_own(thing.__name__)):
        return thing
    found = sorted(names & vars(thing).keys())
    return [(name, _used(vars(thing)[name], names - {name})) for name in found]


def _is_own(module: str) -> bool:
    """Check that a module is the user's own, neither an installed package's nor ours."""
    if module == "__main__":
        return True
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None or module.partition(".")[0] == "paceline":
        return False
    return not file.startswith(_STDLIB) and not any(name in file for name in _INSTALLED)


def _name(kind: type) -> bytes:
    return f"{kind.__module__}.{kind.__qualname__}".encode()
