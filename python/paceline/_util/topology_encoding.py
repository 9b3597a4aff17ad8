"""Write MDAnalysis's topologies as plain arrays and descriptions for JSON, and make them of these.

What MDAnalysis itself would not have made raises `NotKept`, in either direction.
"""

import itertools
from collections.abc import Sequence
from typing import Any

import MDAnalysis
import numpy as np
from MDAnalysis.core import topologyattrs
from MDAnalysis.core.topology import Topology

_INDICES = (topologyattrs.Atomindices, topologyattrs.Resindices, topologyattrs.Segindices)
_LEVELS = (topologyattrs.AtomAttr, topologyattrs.ResidueAttr, topologyattrs.SegmentAttr)
_STRINGS = {"str": str, "str_": np.str_}
_PLAIN = (type(None), bool, int, float, str)
#: Fields of attributes: of all, of those of text, and of bonds and the like.
_OF_ALL = {"_guessed", "top", "values"}
_OF_STRINGS = _OF_ALL | {"name_lookup", "namedict", "nmidx"}
_OF_CONNECTIONS = _OF_ALL | {"_cache", "order", "types"}


class NotKept(Exception):
    """Raised for a topology that cannot be kept, and for a cache that does not fit."""


def encode_topology(topology: Topology, arrays: list[np.ndarray]) -> dict[str, Any]:
    """Put a topology's arrays into a list, and describe the rest."""
    attributes, table = topology.attrs, topology.tt
    kinds = [type(one) for one in attributes]
    first = kinds.index(_INDICES[0])
    if (
        type(topology) is not Topology
        or vars(topology).keys() != {"tt", "attrs", *(one.attrname for one in attributes)}
        or tuple(kinds[first : first + 3]) != _INDICES
    ):
        raise NotKept
    return {
        "size": [int(number) for number in table.size],
        "residues": _put(_smallest(table._AR, table.n_residues), arrays),
        "segments": _put(_smallest(table._RS, table.n_segments), arrays),
        "attributes": [encode_attribute(one, arrays) for one in attributes[:first]],
        "added": [encode_attribute(one, arrays) for one in attributes[first + 3 :]],
    }


def decode_topology(parsed: dict[str, Any], arrays: Sequence[np.ndarray]) -> Topology:
    """Make a topology, of these arrays themselves."""
    check_keys(parsed, "size", "residues", "segments", "attributes", "added", "warnings")
    n_atoms, n_residues, n_segments = parsed["size"]
    topology = Topology(
        n_atoms,
        n_residues,
        n_segments,
        atom_resindex=_indices(arrays[parsed["residues"]], n_residues, n_atoms),
        residue_segindex=_indices(arrays[parsed["segments"]], n_segments, n_residues),
    )
    indices = topology.attrs.copy()
    topology.attrs.clear()
    for one in parsed["attributes"]:
        topology.add_TopologyAttr(decode_attribute(one, arrays, topology))
    topology.attrs.extend(indices)
    for one in parsed["added"]:
        topology.add_TopologyAttr(decode_attribute(one, arrays, topology))
    return topology


def _attribute_class(name: str) -> Any:
    """Find MDAnalysis's own class of an attribute; another package may have replaced it."""
    kind = MDAnalysis._TOPOLOGY_ATTRS.get(name)
    if kind is None or not kind.__module__.startswith("MDAnalysis.") or kind in _INDICES:
        raise NotKept
    return kind


def encode_attribute(attribute: Any, arrays: list[np.ndarray]) -> dict[str, Any]:
    """Describe an attribute, and put its arrays into a list."""
    kind, values = type(attribute), attribute.values
    name = attribute.attrname
    if _attribute_class(name) is not kind:
        raise NotKept
    fields = vars(attribute).keys()
    if isinstance(attribute, topologyattrs._Connection):
        if fields != _OF_CONNECTIONS:
            raise NotKept
        return {
            "name": name,
            "atoms": _encode_atoms(values, kind._n_atoms, arrays),
            "types": _encode_column(attribute.types, arrays),
            "guessed": _encode_column(attribute._guessed, arrays),
            "order": _encode_column(attribute.order, arrays),
        }
    if type(attribute._guessed) is not bool or type(values) is not np.ndarray:
        raise NotKept
    described: dict[str, Any] = {"name": name, "guessed": attribute._guessed}
    if isinstance(attribute, topologyattrs._StringInternerMixin):
        lookup = attribute.name_lookup
        kinds = {type(one) for one in lookup}
        if (
            fields != _OF_STRINGS
            or values.dtype != object
            or not kinds <= set(_STRINGS.values())
            or len(kinds) > 1
            or len(attribute.namedict) != len(lookup)
            or not np.array_equal(lookup[attribute.nmidx], values)
        ):
            raise NotKept
        described["names"] = [str(one) for one in lookup]
        described["kind"] = next(iter(kinds)).__name__ if kinds else "str"
        described["index"] = _put(_smallest(attribute.nmidx, len(lookup)), arrays)
        return described
    if fields != _OF_ALL or values.dtype.hasobject:
        raise NotKept
    return described | {"values": _put(values, arrays)}


def decode_attribute(
    described: dict[str, Any], arrays: Sequence[np.ndarray], topology: Topology
) -> Any:
    """Make an attribute as a parser or a guesser does."""
    kind = _attribute_class(described["name"])
    attribute = kind.__new__(kind)
    if issubclass(kind, topologyattrs._Connection):
        check_keys(described, "name", "atoms", "types", "guessed", "order")
        attribute.values = _decode_atoms(
            described["atoms"], kind._n_atoms, arrays, topology.n_atoms
        )
        n_bonds = len(attribute.values)
        attribute.types = _decode_column(described["types"], arrays, n_bonds)
        attribute._guessed = _decode_column(described["guessed"], arrays, n_bonds)
        attribute.order = _decode_column(described["order"], arrays, n_bonds)
        attribute._cache = {}
        return attribute
    level = [issubclass(kind, one) for one in _LEVELS].index(True)
    n_values = topology.tt.size[level]
    if type(described["guessed"]) is not bool:
        raise NotKept
    attribute._guessed = described["guessed"]
    if issubclass(kind, topologyattrs._StringInternerMixin):
        check_keys(described, "name", "guessed", "names", "kind", "index")
        names = [_STRINGS[described["kind"]](name) for name in described["names"]]
        attribute.nmidx = _indices(arrays[described["index"]], len(names), n_values).astype(int)
        attribute.name_lookup = np.empty(len(names), dtype=object)
        attribute.name_lookup[:] = names
        attribute.namedict = {name: k for k, name in enumerate(names)}
        if len(attribute.namedict) != len(names):
            raise NotKept
        attribute.values = attribute.name_lookup[attribute.nmidx]
        return attribute
    check_keys(described, "name", "guessed", "values")
    values = arrays[described["values"]]
    if len(values) != n_values or (kind.dtype is not None and values.dtype != np.dtype(kind.dtype)):
        raise NotKept
    attribute.values = values
    return attribute


def check_keys(described: dict[str, Any], *names: str) -> None:
    """Raise where a description has other keys."""
    if described.keys() != set(names):
        raise NotKept


def _encode_atoms(values: Any, n_atoms: int, arrays: list[np.ndarray]) -> dict[str, Any]:
    """Describe tuples of `n_atoms` numbers of atoms."""
    kinds = {type(atom) for atom in itertools.chain.from_iterable(values)} or {int}
    if type(values) is not list or len(kinds) > 1:
        raise NotKept
    table = np.array(values, dtype=np.int64).reshape(-1, n_atoms)
    kind = kinds.pop()
    if kind is not int and not issubclass(kind, np.integer):
        raise NotKept
    return {"kind": kind.__name__, "table": _put(table, arrays)}


def _decode_atoms(
    described: dict[str, Any], n_atoms: int, arrays: Sequence[np.ndarray], n_all: int
) -> list[tuple[Any, ...]]:
    """Make tuples of `n_atoms` numbers of atoms, below `n_all`."""
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


def _encode_column(values: Any, arrays: list[np.ndarray]) -> dict[str, Any]:
    """Describe a list or tuple of few different plain values, one a bond."""
    if type(values) not in (list, tuple) or not {type(value) for value in values} <= set(_PLAIN):
        raise NotKept
    # 1 is not True here.
    numbers: dict[Any, int] = {}
    index = [numbers.setdefault((type(value), value), len(numbers)) for value in values]
    table = _smallest(np.array(index, dtype=np.int64), len(numbers))
    return {
        "values": [value for _, value in numbers],
        "index": _put(table, arrays),
        "is_list": type(values) is list,
    }


def _decode_column(
    described: dict[str, Any], arrays: Sequence[np.ndarray], n_values: int
) -> list[Any] | tuple[Any, ...]:
    """Make a list or tuple of plain values."""
    check_keys(described, "values", "index", "is_list")
    values = described["values"]
    if not {type(value) for value in values} <= set(_PLAIN):
        raise NotKept
    index = _indices(arrays[described["index"]], len(values), n_values)
    column = [values[k] for k in index.tolist()]
    return column if described["is_list"] else tuple(column)


def _put(array: np.ndarray, arrays: list[np.ndarray]) -> int:
    """Append a copy of an array to a list; its number."""
    arrays.append(array.copy())
    return len(arrays) - 1


def _smallest(index: np.ndarray, n: int) -> np.ndarray:
    """Convert numbers below `n` to as few bytes as they need."""
    return index.astype(np.min_scalar_type(n))


def _indices(index: np.ndarray, n: int, n_values: int) -> np.ndarray:
    """Check that these are `n_values` numbers from 0 to below `n`."""
    if index.shape != (n_values,) or index.dtype.kind not in "iu":
        raise NotKept
    if n_values and not (index.min() >= 0 and index.max() < n):
        raise NotKept
    return index
