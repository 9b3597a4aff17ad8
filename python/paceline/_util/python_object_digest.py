"""Compute digests of parameters and functions; equal ones have equal digests in any process.

Hashes of pickles are not suitable. The pickle of a function from an importable module contains only
the function's name, so an edit of the function is not detected. The pickle of a function from a
script contains line numbers, so a new comment changes the hash. Any pickle depends on the order of
sets and on the identity of equal strings.
"""

import copyreg
import dis
import functools
import hashlib
import os
import stat
import sys
import sysconfig
import types
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

#: Maximum number of files whose digests are cached; a changed file is digested again.
_KEPT_FILES = 256
#: Folders of installed packages in any environment. Modules elsewhere are the user's own code.
_INSTALLED = ("site-packages", "dist-packages")
_STDLIB = sysconfig.get_path("stdlib")
_PLAIN = {type(None), bool, int, float, complex, str, bytes}
#: Types of methods. Of the attributes of a class with names like `__name__`, its digest includes
#: only those of these types.
_METHODS = (types.FunctionType, staticmethod, classmethod, property)


def digest(*things: object) -> str:
    """Return a digest, 32 hex digits, of values, arrays, functions, classes and other objects.

    For a function or class of the user, the digest includes its code and all user code that it
    uses. For a function or class of an installed package, the digest includes the name only. For
    an object, the digest includes the content of its pickle, or its class if it cannot be pickled.
    """
    sha = hashlib.sha256()
    for part in _walk(things, {}):
        sha.update(len(part).to_bytes(8, "little") + part)
    return sha.hexdigest()[:32]


def file_digest(path: str | os.PathLike) -> str:
    """SHA-256 of the content of a file, 64 hex digits; empty if it is not a readable file."""
    try:
        state = os.stat(path)
        if not stat.S_ISREG(state.st_mode):
            return ""
        return _digest_of_file(os.path.abspath(path), state.st_size, state.st_mtime_ns)
    except OSError:
        return ""


@functools.lru_cache(_KEPT_FILES)
def _digest_of_file(path: str, size: int, changed: int) -> str:
    """Compute the SHA-256 of a file; cached by path, size (bytes) and time of change (ns)."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def members_used(thing: object, method: str) -> dict[str, Any]:
    """Collect the attributes and methods of an object that one of its methods uses.

    Attributes and methods that are used by the methods it calls are included.

    The result maps the name of an attribute of the object to its value. It maps the name of a
    member of the class to the list of its definitions in the class and in the base classes.
    Attributes that the methods themselves set are left out.
    """
    loaded, stored, left = {method}, set(), [method]
    while left:
        name = left.pop()
        for member in _members_of(type(thing), name):
            for operation, argument in _attributes_in(_code_of(member)):
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


def _members_of(kind: type, name: str) -> list[object]:
    """List the definitions of a member in a class and in its base classes."""
    return [vars(base)[name] for base in kind.__mro__[:-1] if name in vars(base)]


def _code_of(member: object) -> types.CodeType | None:
    """Return the code of a method or property; None for other members of a class."""
    if isinstance(member, property):
        member = member.fget
    elif isinstance(member, staticmethod | classmethod):
        member = member.__func__
    return member.__code__ if isinstance(member, types.FunctionType) else None


def _attributes_in(code: types.CodeType | None) -> Iterator[tuple[str, str]]:
    """Yield operation and name of each attribute access in a function and its nested functions."""
    if code is None:
        return
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "STORE_ATTR"):
            yield step.opname, step.argval
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from _attributes_in(const)


def _walk(thing: Any, seen: dict[int, tuple[int, Any]]) -> Iterator[bytes]:
    """Yield bytes that identify an object.

    `seen` stores the visited objects, so that no object is deleted and its id reused.
    """
    kind = type(thing)
    if kind in _PLAIN:
        yield f"{kind.__name__} {thing!r}".encode()
        return
    yield _name(kind)
    if isinstance(thing, np.ndarray | np.generic) and not thing.dtype.hasobject:
        yield f"{thing.dtype.str} {thing.shape}".encode()
        yield thing.tobytes()
    elif kind in (list, tuple) and _PLAIN.issuperset(map(type, thing)):
        yield repr(thing).encode()  # fast, because a topology may have a million bonds
    elif isinstance(thing, types.ModuleType | np.ufunc):
        yield thing.__name__.encode()
    elif id(thing) in seen:
        yield f"again {seen[id(thing)][0]}".encode()
    else:
        # Constants are not added to `seen`: the interpreter may or may not merge equal ones into
        # one object, and the digest must not depend on this.
        if not isinstance(thing, tuple | frozenset | types.CodeType):
            seen[id(thing)] = len(seen), thing
        if isinstance(thing, set | frozenset):
            yield from sorted(digest(item).encode() for item in thing)
        else:
            yield from _walk_all(_parts(thing), seen)


def _walk_all(things: Iterable[object], seen: dict[int, tuple[int, object]]) -> Iterator[bytes]:
    for thing in things:
        yield from _walk(thing, seen)
    yield b"end"


def _parts(thing: Any) -> Iterator[object]:
    """Yield the parts of an object that determine its digest."""
    if type(thing) in (list, tuple):
        yield from thing
    elif isinstance(thing, np.ndarray):
        yield from (thing.shape, thing.tolist())
    elif type(thing) in (dict, types.MappingProxyType):
        for key in sorted(thing, key=repr):
            yield from (key, thing[key])
    elif isinstance(thing, types.BuiltinFunctionType):
        # `__self__` is the module of a function, or the object of a method.
        yield from (thing.__qualname__, thing.__self__)
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
                # Leave out dunder attributes other than methods: the interpreter and pickle set
                # them.
                if isinstance(value, _METHODS) or not name.startswith("__"):
                    yield from (name, value)
            yield from thing.__bases__
    elif hasattr(thing, "__wrapped__"):  # such as a cached or just-in-time compiled function
        yield thing.__wrapped__
    else:
        yield from _parts_of_object(thing)


def _parts_of_object(thing: object) -> Iterator[object]:
    """Yield everything that pickling the object would store."""
    yield type(thing)
    try:
        registered = copyreg.dispatch_table.get(type(thing))
        reduced = registered(thing) if registered else thing.__reduce_ex__(4)
    except Exception:  # the object's own code may raise any error
        return
    # For subclasses of list and dict, `reduced` contains iterators: digest their items.
    parts = reduced if isinstance(reduced, tuple) else (reduced,)
    yield from (list(part) if isinstance(part, Iterator) else part for part in parts)


def _parts_of_function(function: types.FunctionType) -> Iterator[object]:
    yield from (function.__code__, function.__defaults__, function.__kwdefaults__)
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # the variable has no value yet
            yield None
    names = set(_names_of(function.__code__))
    for name in sorted(_globals_of(function.__code__)):
        if name in function.__globals__:
            yield from (name, _members_in_use(function.__globals__[name], names - {name}))


def _parts_of_code(code: types.CodeType) -> Iterator[object]:
    """Yield the parts of a code object without line numbers, which comments would change."""
    yield from (code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    yield from code.co_consts


def _globals_of(code: types.CodeType) -> set[str]:
    """Find the global variables that a function or its nested functions use."""
    names = {step.argval for step in dis.get_instructions(code) if step.opname == "LOAD_GLOBAL"}
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            names |= _globals_of(const)
    return names


def _names_of(code: types.CodeType) -> Iterator[str]:
    """Yield all names of globals and attributes in a function and its nested functions."""
    yield from code.co_names
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from _names_of(const)


def _members_in_use(thing: object, names: set[str]) -> object:
    """Return those members of a user's module that the code uses; return other objects as is."""
    if not (isinstance(thing, types.ModuleType) and _is_own(thing.__name__)):
        return thing
    found = sorted(names & vars(thing).keys())
    return [(name, _members_in_use(vars(thing)[name], names - {name})) for name in found]


def _is_own(module: str) -> bool:
    """True if a module is the user's own: not of paceline, an installed package or Python."""
    if module == "__main__":
        return True
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None or module.partition(".")[0] == "paceline":
        return False
    return not file.startswith(_STDLIB) and not any(name in file for name in _INSTALLED)


def _name(kind: type) -> bytes:
    return f"{kind.__module__}.{kind.__qualname__}".encode()
