"""Atoms of a trajectory that are loaded, and arrays that raise if other atoms are used."""

from dataclasses import dataclass
from functools import cached_property
from types import MethodDescriptorType
from typing import Any, NoReturn, Self

import numpy as np

from paceline.errors import AtomsNotLoadedError, SelectionError

#: Value in `others` that marks a loaded atom; other atoms have their index there.
_LOADED = -1


@dataclass(frozen=True)
class LoadedAtoms:
    """Loaded atoms among all atoms of a topology."""

    #: Indices, int64, increasing.
    indices: np.ndarray
    #: Number of all atoms.
    n_atoms: int
    #: Call that chose the atoms, for messages.
    call: str

    @classmethod
    def of(cls, chosen: object, n_atoms: int, call: str) -> Self:
        """Check the user's choice: atom indices in any order, or one boolean per atom."""
        given = np.asarray(chosen)
        if given.dtype == bool and given.shape == (n_atoms,):
            given = np.flatnonzero(given)
        if given.ndim != 1 or len(given) == 0:
            raise SelectionError(f"{call} names no atoms to load")
        if not np.issubdtype(given.dtype, np.integer):
            raise SelectionError(f"{call}: expected indices of atoms, found {given.dtype}")
        outside = given[(given < 0) | (given >= n_atoms)]
        if len(outside):
            raise SelectionError(f"{call}: {n_atoms} atoms have no index {outside[0]}")
        indices, counts = np.unique(given.astype(np.int64), return_counts=True)
        if len(indices) < len(given):
            twice = indices[counts > 1][0]
            raise SelectionError(f"{call} names atom {twice} more than once")
        return cls(indices, n_atoms, call)

    @cached_property
    def rows(self) -> slice | np.ndarray:
        """Rows of the loaded atoms in arrays of all atoms; a slice if the atoms are adjacent."""
        first, last = int(self.indices[0]), int(self.indices[-1])
        return slice(first, last + 1) if last - first < len(self.indices) else self.indices

    @cached_property
    def others(self) -> np.ndarray:
        """For each atom, its own index if it is not loaded, else -1; int32, shape (n_atoms,)."""
        others = np.arange(self.n_atoms, dtype=np.int32)
        others[self.indices] = _LOADED
        return others

    @cached_property
    def first_other(self) -> int:
        """Index of the first atom that is not loaded."""
        return int((self.others >= 0).argmax())

    def has(self, atoms: np.ndarray | slice | None) -> bool:
        """True if these atoms are loaded; False for None, which means all atoms."""
        return atoms is not None and self.others[atoms].max(initial=_LOADED) < 0

    def check(self, atoms: np.ndarray | slice) -> None:
        """Raise `AtomsNotLoadedError` if some of these atoms are not loaded."""
        if not self.has(atoms):
            raise self.error(self.others[atoms])

    def error(self, others: np.ndarray) -> AtomsNotLoadedError:
        """Create the error for atoms, given their elements of `others`; some are not loaded."""
        named = np.unique(others[others >= 0])
        atoms = f"atom {named[0]} was"
        if len(named) > 1:
            some = ", ".join(map(str, named[:3])) + (", …" if len(named) > 3 else "")
            atoms = f"{len(named):,} atoms ({some}) were"
        return AtomsNotLoadedError(
            f"{atoms} not loaded: {self.call} loads {len(self.indices):,} of {self.n_atoms:,}"
        )


class LoadedValues(np.ndarray):
    """Values of all atoms in a frame; using values of atoms that are not loaded raises an error.

    Indexing returns an ordinary array of loaded atoms, or raises `AtomsNotLoadedError`. A slice
    that includes loaded and other atoms is again a `LoadedValues`. So are the results of functions
    that treat each value or each row separately. Other functions and methods raise the error.
    """

    #: For each element, the index of its atom if the atom is not loaded, else -1; None if unknown.
    _others: Any = None
    _loaded: Any

    @classmethod
    def of(cls, values: np.ndarray, loaded: LoadedAtoms) -> Self:
        """View an array of all atoms, shape (n_atoms, 3), as `LoadedValues`."""
        return _with_others(values, loaded.others[:, np.newaxis], loaded)

    def __array_finalize__(self, source: object) -> None:
        """Copy `_loaded` to a view; `_others` stays None, as the atoms of elements are unknown."""
        self._loaded = getattr(source, "_loaded", None)

    def refuse(self, *_: object, **__: object) -> NoReturn:
        """Raise `AtomsNotLoadedError`, because the values of all atoms would be used."""
        raise self._loaded.error(self._loaded.others if self._others is None else self._others)

    def __getitem__(self, key: object) -> Any:
        """Return values of loaded atoms, or a slice of loaded and other atoms."""
        values, others = _plain(self), self._others_at(key)
        if others.max(initial=_LOADED) < 0:
            # For rows of a group's atoms, `take` needs a fourth of the time of indexing.
            return values.take(key, axis=0) if _are_indices(key) else values[key]
        taken, others = values[key], self._others[key]
        is_view = isinstance(taken, np.ndarray) and np.may_share_memory(taken, values)
        if not is_view or others.min() >= 0:
            raise self._loaded.error(others)
        return _with_others(taken, others, self._loaded)

    def __setitem__(self, key: object, values: object) -> None:
        """Set values of loaded atoms, or of all atoms from an array with the same loaded atoms."""
        others = self._others_at(key)
        if isinstance(values, LoadedValues):
            if not np.array_equal(self._others[key], values._others):
                self.refuse()
        elif others.max(initial=_LOADED) >= 0:
            raise self._loaded.error(others)
        _plain(self)[key] = _plain(values)

    def _others_at(self, key: Any) -> np.ndarray:
        """Index `_others`; return one element per row if the key selects whole rows."""
        if self._others is None:
            self.refuse()
        is_pair = isinstance(key, tuple) and len(key) == 2 and isinstance(key[1], slice)
        rows = key[0] if is_pair else key
        if _are_indices(rows) and self._others.strides[1:] == (0,):
            others: np.ndarray = self._others[:, 0].take(rows)
            return others
        others = self._others[key]
        return others

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = (), **options: Any
    ) -> Any:
        """Apply a function value by value, or row by row for a product of matrices."""
        if ufunc is np.matmul and method == "__call__" and not out and not options:
            return self._times_matrix(np.matmul, *inputs)
        known = [one._others for one in inputs if isinstance(one, LoadedValues)]
        unusual = any(isinstance(value, LoadedValues) for value in options.values())
        if method != "__call__" or ufunc.signature or unusual or any(k is None for k in known):
            self.refuse()
        shape = np.broadcast_shapes(*(np.shape(_plain(one)) for one in (*inputs, *out)))
        others = np.broadcast_to(np.int32(_LOADED), shape)
        for one in known:
            others = np.maximum(others, one)
        for one in out:
            theirs = one._others if isinstance(one, LoadedValues) else np.int32(_LOADED)
            if theirs is None or not np.array_equal(np.broadcast_to(theirs, shape), others):
                self.refuse()
        if out:
            options["out"] = tuple(map(_plain, out))
        results = ufunc(*map(_plain, inputs), **options)
        if out:
            return out[0] if len(out) == 1 else out
        several = results if isinstance(results, tuple) else (results,)
        if any(one.dtype == bool for one in several):
            self.refuse()  # NaN compares false, so a condition would silently exclude atoms
        made = tuple(_with_others(one, others, self._loaded) for one in several)
        return made if isinstance(results, tuple) else made[0]

    def __array_function__(self, function: Any, types: object, args: Any, options: Any) -> object:
        """Call a NumPy function if it uses no values of atoms that are not loaded; else raise."""
        if function in (np.shape, np.ndim, np.size, np.may_share_memory):
            return function(*map(_plain, args), **options)
        if function is np.dot and not options:
            return self._times_matrix(np.dot, *args)
        if function is np.round and args[0] is self and self._others is not None:
            rounded = np.round(_plain(self), *args[1:], **options)
            return _with_others(rounded, self._others, self._loaded)
        return self.refuse()

    def _times_matrix(self, function: Any, first: object, second: Any, *out: object) -> Any:
        """Multiply each row by a matrix or vector."""
        is_usual = first is self and not isinstance(second, LoadedValues) and not out
        if not is_usual or self._others is None or self.ndim != 2 or np.ndim(second) not in (1, 2):
            self.refuse()
        product, others = function(_plain(self), second), self._others.max(axis=1)
        rows = others.reshape(-1, *(1,) * (product.ndim - 1))
        return _with_others(product, rows, self._loaded)

    def __reduce_ex__(self, protocol: object) -> Any:
        """Return the parts of the array for `pickle`."""
        return _with_others, (_plain(self), self._others, self._loaded)

    def __repr__(self) -> str:
        return repr(_plain(self))

    def __str__(self) -> str:
        return str(_plain(self))

    #: Properties that reorder the elements are replaced by one that raises an error.
    T = mT = flat = property(refuse)


# Other array methods are replaced, too: they would use all values, and the copies that they return
# would no longer raise errors.
for _name, _method in vars(np.ndarray).items():
    if isinstance(_method, MethodDescriptorType) and not _name.startswith("_"):
        setattr(LoadedValues, _name, LoadedValues.refuse)


def _with_others(values: np.ndarray, others: np.ndarray | None, loaded: LoadedAtoms) -> Any:
    """Create an array that stores for each element the index of its atom if that is not loaded."""
    made = np.ndarray.view(values, LoadedValues)
    made._loaded = loaded
    made._others = None if others is None else np.broadcast_to(others, values.shape)
    return made


def _are_indices(key: object) -> bool:
    """True for an array of indices, such as the `ix` of an AtomGroup."""
    return type(key) is np.ndarray and key.ndim == 1 and key.dtype.kind == "i"


def _plain(values: object) -> Any:
    """View `LoadedValues` as an ordinary array; return other objects unchanged."""
    return np.ndarray.view(values, np.ndarray) if isinstance(values, LoadedValues) else values
