"""Compare result files with results that are computed again, number by number.

A result file names the command or call, the input files and the software that computed it, and
begins with the SHA-256 of all its other lines. So a difference has one of these reasons: an input
file has changed; the new results are from another version or build of paceline or its libraries, or
from another kind of processor; or the result file was edited.
"""

import csv
import hashlib
import json
import math
import os
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

import numpy as np

from paceline import _core
from paceline.analysis.saved_table_format import (
    ARRAYS,
    CALL,
    DIGESTS,
    FIGURE,
    IN_ARRAYS,
    INPUT,
    LINES,
    OF_FRAMES,
    STEP,
    digest_of,
    is_of_command,
    names_in,
)
from paceline.errors import PacelineError, UnsupportedError
from paceline.performance.number_format import many

#: Filename extensions of the results that can be checked.
ENDINGS = (".csv", ".tsv", ".xvg", ".npz")
#: Largest difference, relative to the largest number of the column, that another kind of processor
#: may cause, because its libraries may add numbers in another order.
TOLERANCE = 1e-6
#: Maximum number of differences of a file that are listed; all are counted.
MOST_LISTED = 10
#: Number of elements of an array that are compared at a time.
PART = 1 << 20
#: Maximum number of characters of a value in a message.
MOST_SHOWN = 60
#: Keys of the facts about the software, without the processor.
_SOFTWARE = ("paceline", "build", "python", "numpy", "MDAnalysis")
_PROCESSOR = "processor"
#: Keys of the facts with names of files; other facts contain digests of the content of these files.
_NAMES = ("topology", "trajectory", "files")
#: Keys, or beginnings of keys, of the facts with digests of the files that were read.
FINGERPRINT = "fingerprint"
_CONTENTS = (FINGERPRINT, "topology sha256", "trajectory sha256", "files sha256", INPUT)


@dataclass(frozen=True)
class Difference:
    """Value in a file that differs from the computed value, and its place in the file."""

    place: str
    saved: str
    computed: str
    #: Difference of two numbers, divided by the largest number of the column; infinite if one of
    #: them is not finite, and NaN for texts and lines of facts.
    deviation: float = float("nan")
    #: False for whole numbers, and for numbers and times of frames. These are equal on all
    #: processors, because no kernel computes them by additions.
    may_be_small: bool = True
    #: Words before the computed value in a message.
    source: str = "computed"

    @property
    def is_small(self) -> bool:
        """True if both values are numbers that may differ, and do so by at most `TOLERANCE`."""
        return self.may_be_small and self.deviation <= TOLERANCE

    def __str__(self) -> str:
        other = f"{self.source} {_shown(self.computed)}"
        return f"{self.place}: the file has {_shown(self.saved)}, {other}"


@dataclass
class Check:
    """Outcome of checking one result."""

    name: str
    #: Verdict: "equal", "equal within tolerance", "differs" or "not checked".
    verdict: str
    #: Description of the compared content, such as "98 rows of 3 columns".
    compared: str = ""
    reasons: list[str] = field(default_factory=list)
    #: The first differences, the largest difference of two numbers, and the number of differences.
    differences: list[Difference] = field(default_factory=list)
    largest: Difference | None = None
    n_differences: int = 0

    @property
    def is_equal(self) -> bool:
        """True if every number is equal, or equal within the tolerance of another processor."""
        return self.verdict.startswith("equal")


@dataclass
class Differences:
    """Differences of a result. All are counted, but only the first and the largest are stored."""

    n: int = 0
    first: list[Difference] = field(default_factory=list)
    largest: Difference | None = None
    #: True if all differences are within the tolerance.
    are_small: bool = True

    def add_all(self, several: Iterable[Difference]) -> None:
        """Count several differences."""
        for one in several:
            self.add(one)

    def add(self, one: Difference) -> None:
        """Count a difference; store it if it is one of the first `MOST_LISTED`, or the largest."""
        self.n += 1
        self.are_small &= one.is_small
        if len(self.first) < MOST_LISTED:
            self.first.append(one)
        if one.deviation > (0.0 if self.largest is None else self.largest.deviation):
            self.largest = one


@dataclass(frozen=True)
class ResultFile:
    """Content of a result file: its facts, by key, and the lines of its table or its arrays.

    Facts are the lines "KEY: VALUE" about the input, the software, the call and the results.
    """

    path: Path
    facts: Mapping[str, str]
    #: True if the file contains the SHA-256 of its content, and the content still has this SHA-256.
    is_intact: bool
    #: Lines of a table, without lines of facts; None for an .npz file.
    lines: Sequence[str] | None = None
    #: Arrays of an .npz file.
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> "ResultFile":
        """Read a result file; raise `UnsupportedError` for any other file."""
        ending = path.suffix.lower()
        if ending == ".npz":
            return cls._read_arrays(path)
        if ending not in ENDINGS:
            raise UnsupportedError(
                f"{path}: expected a result as {', '.join(ENDINGS)}, or the folder of a battery"
            )
        text = path.read_bytes().decode("utf-8", "surrogateescape")
        lines = text.splitlines(keepends=True)
        of_facts = [line[2:].rstrip("\r\n") for line in lines if line.startswith("# ")]
        facts = _facts(of_facts)
        others = "".join(line for line in lines if not line.startswith(f"# {LINES}: "))
        sha = hashlib.sha256(others.encode("utf-8", "surrogateescape")).hexdigest()
        own = [line for line in of_facts if line.startswith(f"{LINES}: ")]
        cells = [line.rstrip("\r\n") for line in lines if not line.startswith("#")]
        return cls(path, facts, own == [f"{LINES}: {sha}"], cells)

    @classmethod
    def _read_arrays(cls, path: Path) -> "ResultFile":
        try:
            with np.load(path) as saved:
                arrays = {name: saved[name] for name in saved.files}
        except (ValueError, zipfile.BadZipFile, zlib.error, EOFError, AttributeError) as error:
            raise UnsupportedError(
                f"{path}: expected arrays as .npz, found a damaged or other file ({error})"
            ) from error
        lines = [f"{line}" for line in arrays.pop("provenance", np.empty(0, dtype=str)).ravel()]
        others = [line for line in lines if not line.startswith(f"{ARRAYS}: ")]
        is_intact = lines[:1] == [f"{ARRAYS}: {digest_of(others, arrays)}"]
        return cls(path, _facts(lines), is_intact, arrays=arrays)

    @property
    def description(self) -> str:
        """Describe the size of the table or the arrays, such as "98 rows of 3 columns"."""
        if self.lines is None:
            n = sum(one.size for one in self.arrays.values())
            return f"{many(n, 'number')} in {many(len(self.arrays), 'array')}"
        rows = [line for line in self.lines if not line.startswith("@")]
        cells = next(_cells(rows[-1:], self.path), [])
        n_rows = len(rows) - (self.path.suffix.lower() != ".xvg")
        return f"{many(n_rows, 'row')} of {many(len(cells), 'column')}"


def _facts(lines: Sequence[str]) -> dict[str, str]:
    """Split lines of facts at their first colon; a key that is repeated gets a number."""
    found: dict[str, str] = {}
    for line in lines:
        key, _, value = line.partition(": ")
        name, k = key, 1
        while name in found:
            k += 1
            name = f"{key} ({k})"
        found[name] = value
    return found


def _cells(lines: Iterable[str], path: Path) -> Iterator[list[str]]:
    """Split lines of a table into cells."""
    ending = path.suffix.lower()
    if ending == ".xvg":
        return (line.split() for line in lines)
    return csv.reader(lines, delimiter="," if ending == ".csv" else "\t")


def compare(
    saved: ResultFile, computed: ResultFile, *, moved: Sequence[Mapping[str, str]] = ()
) -> Check:
    """Compare a result file with one that was computed again.

    Files and folders may have been moved. Each mapping in `moved` maps their current names to their
    recorded names. Facts count as equal if they are equal after the replacements of one mapping.
    """
    name = os.fspath(saved.path)
    found = Differences()
    changed, grown = _compare_facts(saved.facts, computed.facts, found, moved=moved)
    if saved.lines is None or computed.lines is None:
        _compare_arrays(saved.arrays, computed.arrays, found)
    else:
        _compare_lines(saved, saved.lines, computed.lines, found)
    other_software, other_processor = changed_programs(saved.facts, computed.facts)
    reasons = [*changed, *grown, *other_software, *other_processor]
    verdict = "differs" if found.n or not saved.is_intact else "equal"
    may_be_small = saved.is_intact and other_processor and not (changed or other_software)
    if may_be_small and found.n and found.are_small:
        verdict = "equal within tolerance"
        reasons.append(f"all numbers agree to {TOLERANCE:g} of the largest of their column")
    if not saved.is_intact:
        known = DIGESTS[saved.lines is None] in saved.facts
        why = "its own SHA-256 does not fit" if known else "it lacks its own SHA-256"
        nothing = "" if reasons else ": nothing that made it has changed"
        reasons.insert(0, f"the file was edited after it was written ({why}){nothing}")
    elif verdict == "differs" and not reasons:
        reasons.append(
            "nothing that is recorded has changed: the script changed the system in another way, "
            "such as its masses, or the file was edited together with its SHA-256"
            if CALL in saved.facts
            else "nothing that is recorded has changed: the file was edited together with its "
            "SHA-256, or bytes of a trajectory between the samples of its fingerprint have changed"
        )
    compared = f"{saved.description}, {many(len(saved.facts), 'fact')}"
    return Check(name, verdict, compared, reasons, found.first, found.largest, found.n)


def _kind(key: str, facts: Mapping[str, str]) -> str:
    """Return the kind of the fact with a key.

    The kinds are "software", "command", "names" of files, "contents" of files (their digests), and
    "result".
    """
    if key in _SOFTWARE or key == _PROCESSOR:
        return "software"
    if key in DIGESTS or key == CALL or is_of_command(key):
        return "contents" if key.startswith(INPUT) else "command"
    # In tables of replicas, the key is the name of a replica, and the fact names its files.
    if key in _NAMES or f"{FINGERPRINT} of {key}" in facts:
        return "names"
    return "contents" if key.startswith(_CONTENTS) else "result"


def _compare_facts(
    saved: Mapping[str, str],
    computed: Mapping[str, str],
    found: Differences,
    *,
    moved: Sequence[Mapping[str, str]],
) -> tuple[list[str], list[str]]:
    """Compare facts about files, parameters and results; describe files that changed or grew."""
    changed, grown = [], []
    for key in dict.fromkeys([*saved, *computed]):
        kind = _kind(key, {**saved, **computed})
        first, second = saved.get(key, "no line"), computed.get(key, "no line")
        if kind in ("software", "command") or first == second:
            continue
        if any(first == _renamed(second, names) for names in moved):
            continue
        if kind == "contents" and key in saved and key in computed:
            about = f"({key.partition(' of ')[0]})"
            if key.startswith(FINGERPRINT) and _has_grown(key, saved, computed):
                grown.append(f"{_file_of(key, computed)} has grown since {about}")
                continue
            changed.append(f"{_file_of(key, saved)} has changed since {about}")
        if key == FIGURE:
            first, second = _where_they_differ(first, second)
        found.add(Difference(f"line {key!r}", first, second))
    return changed, grown


def _renamed(text: str, names: Mapping[str, str]) -> str:
    """Replace names of files and folders in a fact."""
    known = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    return re.sub(known, lambda found: names[found[0]], text) if names else text


def files_in(facts: Mapping[str, str]) -> list[str]:
    """Names of topologies and trajectories in facts."""
    return [name for key in facts if _kind(key, facts) == "names" for name in _names_of(key, facts)]


def _names_of(key: str, facts: Mapping[str, str]) -> list[str]:
    """Names of the files in the fact with a key."""
    return names_in(facts[key], 1 if key == "topology" else None)


def has_fingerprint(path: str | os.PathLike, fingerprint: str) -> bool:
    """True if a file begins with the bytes of a fingerprint."""
    try:
        _core.verify(os.fspath(path), fingerprint)
    except (ValueError, OSError, PacelineError):
        return False
    return True


def _has_grown(key: str, saved: Mapping[str, str], computed: Mapping[str, str]) -> bool:
    """True if the files still begin with the bytes of their recorded fingerprints."""
    _, of, replica = key.partition(" of ")
    expected = saved[key].split(", ")
    paths = names_in(computed.get(replica if of else "trajectory", ""), len(expected))
    return len(paths) == len(expected) and all(map(has_fingerprint, paths, expected))


def changed_programs(
    saved: Mapping[str, str], computed: Mapping[str, str]
) -> tuple[list[str], list[str]]:
    """Describe changes of the software and of the processor since a file was written."""
    software_now = [
        f"{key} {saved[key]} computed the file, and {key} {computed.get(key, '')} again"
        for key in _SOFTWARE
        if key in saved and saved[key] != computed.get(key, "")
    ]
    before, now = saved.get(_PROCESSOR, ""), computed.get(_PROCESSOR, "")
    processor = [f"another processor computed the file ({before}; now {now})"]
    return software_now, processor if before != now else []


def _file_of(key: str, facts: Mapping[str, str]) -> str:
    """Name the file that a fact with a digest is about."""
    if key.startswith(INPUT):
        return key.removeprefix(INPUT)
    begin, of, replica = key.partition(" of ")
    if of:
        is_topology = begin.startswith("topology")
        return f"the topology of {replica}" if is_topology else facts.get(replica, replica)
    names = {FINGERPRINT: "trajectory", "trajectory sha256": "trajectory"}
    return facts.get(names.get(key, key.removesuffix(" sha256")), key)


def _where_they_differ(first: str, second: str) -> tuple[str, str]:
    """Return the parts of two long texts around their first difference."""
    pairs = enumerate(zip_longest(first, second))
    at = next((k for k, (one, other) in pairs if one != other), 0)
    part = slice(max(0, at - MOST_SHOWN // 3), at + MOST_SHOWN // 2)
    return f"…{first[part]}…", f"…{second[part]}…"


def _compare_lines(
    saved: ResultFile, first: Sequence[str], second: Sequence[str], found: Differences
) -> None:
    """Compare the rows of a saved and a computed table; add their differences to `found`."""
    if first == second:
        return
    is_xvg = saved.path.suffix.lower() == ".xvg"
    rows = _cells((line for line in second if not line.startswith("@")), saved.path)
    titles = _titles(saved.facts) if is_xvg else next(rows, [])
    largest = _largest_of_columns(rows)
    number = 0 if is_xvg else -1  # so that the row of titles has the number 0
    for one, other in zip_longest(first, second):
        is_row = not (one or other or "").startswith("@")
        number += is_row
        if one == other:
            continue
        if one is None or other is None or not is_row:
            place = f"row {number}" if is_row else "a line for Grace"
            found.add(Difference(place, one or "no such row", other or "no such row"))
            continue
        [of_one], [of_other] = _cells([one], saved.path), _cells([other], saved.path)
        for k, (a, b) in enumerate(zip_longest(of_one, of_other, fillvalue="nothing")):
            if a != b:
                title = titles[k] if k < len(titles) else f"column {k + 1}"
                place = f"row {number}, {title}" if number else f"title of column {k + 1}"
                size = largest[k] if k < len(largest) else 0.0
                is_exact = _is_of_frames(title) or (_is_whole(a) and _is_whole(b))
                found.add(Difference(place, a, b, deviation_of_cells(a, b, size), not is_exact))
        if of_one == of_other:
            found.add(Difference(f"row {number}, spelling", one, other))


def _titles(facts: Mapping[str, str]) -> list[str]:
    """Titles of the columns of an .xvg table, from the fact `FIGURE`; empty if it is missing."""
    try:
        found = json.loads(facts.get(FIGURE, "{}"))["titles"]
    except (ValueError, KeyError, TypeError):
        return []
    return [f"{title}" for title in found] if isinstance(found, list) else []


def _is_of_frames(title: str) -> bool:
    """True for the title of a column, or the name of an array, of frames, steps or times."""
    return IN_ARRAYS.get(title, title) in (*OF_FRAMES, STEP) or title.startswith("time (")


def _is_whole(text: str) -> bool:
    """True for a whole number, such as a count."""
    return re.fullmatch(r"[+-]?\d+", text) is not None


def _number(text: str) -> float | None:
    """Convert a cell to a number; None for a text."""
    try:
        return float(text)
    except ValueError:
        return None


def _largest_of_columns(rows: Iterable[Sequence[str]]) -> list[float]:
    """Largest magnitude of the finite numbers in each column."""
    found: list[float] = []
    for row in rows:
        found += [0.0] * (len(row) - len(found))
        for k, cell in enumerate(row):
            size = abs(_number(cell) or 0.0)
            if found[k] < size < float("inf"):
                found[k] = size
    return found


def deviation_of_cells(first: str, second: str, largest: float) -> float:
    """Compute the relative difference of the numbers in two cells; NaN for texts.

    The difference is divided by `largest`, or by one of the numbers if that is larger. The result
    is infinite if a number is not finite.
    """
    a, b = _number(first), _number(second)
    if a is None or b is None:
        return float("nan")
    if not (math.isfinite(a) and math.isfinite(b)):
        return float("inf")
    return abs(a - b) / (max(abs(a), abs(b), largest) or 1.0)


def _deviations(first: np.ndarray, second: np.ndarray, largest: float) -> np.ndarray:
    """Compute `deviation_of_cells` for two arrays; infinite where one number is not finite."""
    scale = np.maximum(np.maximum(np.abs(first), np.abs(second)), largest)
    with np.errstate(all="ignore"):
        found = np.where(first == second, 0.0, np.abs(first - second) / scale)
    return np.where(np.isfinite(found), found, np.inf)


def _compare_arrays(
    saved: Mapping[str, np.ndarray], computed: Mapping[str, np.ndarray], found: Differences
) -> None:
    """Compare the bits of arrays of the same name; add their differences to `found`."""
    for name in dict.fromkeys([*saved, *computed]):
        first, second = saved.get(name), computed.get(name)
        kind, other_kind = _array_kind(first), _array_kind(second)
        if first is None or second is None or kind != other_kind:
            found.add(Difference(f"array {name}", kind, other_kind))
            continue
        shape = first.shape or (1,)
        first, second = (np.ascontiguousarray(one).reshape(-1) for one in (first, second))
        largest = None
        for begin in range(0, first.size, PART):
            parts = first[begin : begin + PART], second[begin : begin + PART]
            bits, other_bits = (one.view(np.uint8).reshape(len(one), -1) for one in parts)
            rows = np.flatnonzero((bits != other_bits).any(axis=1))
            if not len(rows):
                continue
            a, b = (one[rows] for one in parts)
            deviations = np.full(len(rows), np.nan)
            if a.dtype.kind in "fiu":
                largest = _largest_of_array(second) if largest is None else largest
                deviations = _deviations(a.astype(np.float64), b.astype(np.float64), largest)
            # Keep the first differences, and the largest one.
            kept = dict.fromkeys([*range(min(MOST_LISTED, len(rows))), int(deviations.argmax())])
            found.n += len(rows) - len(kept)
            for k in kept:
                index = np.unravel_index(begin + rows[k], shape)
                place = f"{name}[{', '.join(map(str, index))}]"
                may_be_small = a.dtype.kind == "f" and not _is_of_frames(name)
                deviation = float(deviations[k])
                found.add(Difference(place, f"{a[k]}", f"{b[k]}", deviation, may_be_small))


def _largest_of_array(values: np.ndarray) -> float:
    """Largest magnitude of the finite numbers in an array; 0 if there are none."""
    parts = (values[begin : begin + PART] for begin in range(0, values.size, PART))
    numbers = (np.abs(part[np.isfinite(part)].astype(np.float64)) for part in parts)
    return max((float(one.max(initial=0.0)) for one in numbers), default=0.0)


def _array_kind(array: np.ndarray | None) -> str:
    """Describe an array by type and shape."""
    return "no such array" if array is None else f"{array.dtype.str} of shape {array.shape}"


def _shown(value: str) -> str:
    """Shorten a value for a message."""
    return value if len(value) <= MOST_SHOWN else f"{value[:MOST_SHOWN]}…"
