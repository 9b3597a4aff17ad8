"""Results of single trajectories of a survey, and their encoding as records of a journal.

The results of several trajectories are one record: the length of a JSON text (64 bits,
little-endian), the text, and the numbers of long tables, float64.
"""

import json
import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from paceline._util.json_types import JsonArray, JsonObject
from paceline.errors import UnsupportedError

if TYPE_CHECKING:
    import pyarrow

#: Beginning of the digest of a topology and the files that it includes.
WITH_INCLUDED = "with included files: "
#: Packages whose versions determine the bits of results.
PROGRAMS = ("paceline", "numpy", "MDAnalysis")
#: Default value of each column in a row of the table of quantities.
QUANTITY: Mapping[str, object] = {
    "analysis": "",
    "quantity": "",
    "unit": "",
    "kind": "",
    "over": "",
    "n": 0,
    "mean": np.nan,
    "low": np.nan,
    "high": np.nan,
    "standard_deviation": np.nan,
    "mean_of_all": np.nan,
    "n_independent": np.nan,
    "equilibrated_from": np.nan,
    "equilibrated_at": np.nan,
    "verdict": "",
    "text": "",
}
_LENGTH = struct.Struct("<Q")


@dataclass
class SystemResults:
    """Results of one trajectory: facts, rows of tables, and the numbers of long tables."""

    facts: JsonObject
    quantities: list[JsonArray] = field(default_factory=list)
    failures: list[list[str]] = field(default_factory=list)
    warnings: list[list[str]] = field(default_factory=list)
    #: For each column of an analysis in a long table: analysis, quantity, unit, for `profiles` also
    #: the title of x and the names of its rows, and the number of values.
    series: list[JsonArray] = field(default_factory=list)
    profiles: list[JsonArray] = field(default_factory=list)
    #: Numbers of `series` (frame, time, value) and then of `profiles` (x, value).
    numbers: list[np.ndarray] = field(default_factory=list)


def encode(results: Sequence[SystemResults]) -> bytes:
    """Encode the results of several trajectories as a record."""
    systems, numbers = [], []
    for one in results:
        systems.append({key: value for key, value in vars(one).items() if key != "numbers"})
        numbers += one.numbers
    text = json.dumps(systems).encode()
    parts = (np.ascontiguousarray(one, dtype="<f8").tobytes() for one in numbers)
    return b"".join([_LENGTH.pack(len(text)), text, *parts])


def decode(record: bytes, *, long: bool = True) -> list[SystemResults]:
    """Decode a record; without `long`, the numbers of long tables are left out."""
    end = _LENGTH.size + _LENGTH.unpack_from(record)[0]
    found = [SystemResults(**one) for one in json.loads(record[_LENGTH.size : end])]
    if not long:
        return found
    numbers = np.frombuffer(record, "<f8", offset=end)
    at = 0
    for one in found:
        for parts, n_columns in ((one.series, 3), (one.profiles, 2)):
            for part in parts:
                n = part[-1] * n_columns
                one.numbers.append(numbers[at : at + n].reshape(n_columns, -1))
                at += n
    return found


def around_middle(values: np.ndarray, kind: str) -> np.ndarray:
    """Shift angles, degrees, to within half a turn of their circular mean.

    If `kind` is not "angle", the values are returned unchanged.
    """
    if kind != "angle" or len(values) == 0:
        return values
    middle = np.degrees(np.angle(np.exp(1j * np.radians(values)).sum()))
    shifted: np.ndarray = middle + (values - middle + 180.0) % 360.0 - 180.0
    return shifted


def read_parquet(path: str | os.PathLike) -> "pyarrow.Table":
    """Read a Parquet file; unlike `pyarrow.parquet.read_table`, this does not import pandas."""
    with need_arrow("parquet").ParquetFile(path) as file:
        return file.read()


def need_arrow(module: str = "") -> ModuleType:
    """Import pyarrow, or a module of it; raise `UnsupportedError` if it is not installed."""
    try:
        return import_module(f"pyarrow.{module}" if module else "pyarrow")
    except ImportError:
        raise UnsupportedError(
            "surveys and Parquet tables need pyarrow: pip install 'paceline[arrow]'"
        ) from None


def arrow_array(values: Sequence[object] | np.ndarray, kind: str) -> "pyarrow.Array":
    """Make an Arrow array; unlike `pyarrow.array`, this does not import pandas, which takes 0.4 s.

    `kind` is the name of the type: string, bool, int64 or double. None is a missing value.
    """
    arrow = need_arrow()
    n = len(values)
    valid = None
    if not isinstance(values, np.ndarray) and any(one is None for one in values):
        valid = arrow.py_buffer(np.packbits([one is not None for one in values], bitorder="little"))
        values = [("" if kind == "string" else 0) if one is None else one for one in values]
    if kind == "string":
        texts = [f"{one}".encode() for one in values]
        offsets = np.concatenate([[0], np.cumsum([len(one) for one in texts], dtype=np.int64)])
        if offsets[-1] > np.iinfo(np.int32).max:
            raise UnsupportedError("the texts of a column of a survey have more than 2 GiB")
        buffers = [arrow.py_buffer(offsets.astype(np.int32)), arrow.py_buffer(b"".join(texts))]
    elif kind == "bool":
        buffers = [arrow.py_buffer(np.packbits(np.asarray(values, dtype=bool), bitorder="little"))]
    else:
        type_of_numbers = np.int64 if kind == "int64" else np.float64
        numbers = np.asarray(values) if n else np.empty(0, dtype=type_of_numbers)
        numbers = numbers.astype(type_of_numbers, casting="same_kind")
        buffers = [arrow.py_buffer(np.ascontiguousarray(numbers))]
    return arrow.Array.from_buffers(arrow.type_for_alias(kind), n, [valid, *buffers])
