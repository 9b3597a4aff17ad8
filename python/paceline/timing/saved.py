"""Timings in a file: what the whole run needs in comments, then one line a block."""

import csv
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from typing import IO, Any

from paceline.errors import TimingsError
from paceline.timing.records import Abandoned, BlockTiming

#: By which such a file is known.
_KIND = "# paceline: block timings, 1"
_COLUMNS = tuple(column.name for column in fields(BlockTiming))
#: Times of hosts' clocks may be less than zero; what is measured is not.
_SIGNED = ("start", "end")

Facts = dict[str, Any]


def write_saved(
    file: IO[str],
    facts: Mapping[str, Any],
    blocks: Iterable[BlockTiming],
    abandoned: Iterable[Abandoned],
) -> None:
    """Write timings.

    Parameters
    ----------
    file : file object
        Text, to be written.
    facts : mapping of str to int, float or str
        Of the whole run.
    blocks : iterable of BlockTiming
        Every block that counts.
    abandoned : iterable of Abandoned
        Attempts that do not: in comments, so that sums over the lines count no frame twice.
    """
    blocks = list(blocks)
    print(_KIND, file=file)
    for name, value in {**facts, "n_blocks": len(blocks)}.items():
        print(f"# {name}: {json.dumps(value)}", file=file)
    for attempt in abandoned:
        print(f"# abandoned: {json.dumps(asdict(attempt))}", file=file)
    table = csv.DictWriter(file, _COLUMNS, lineterminator="\n")
    table.writeheader()
    table.writerows(asdict(block) for block in blocks)


def read_saved(
    path: str | os.PathLike, kinds: Mapping[str, type]
) -> tuple[Facts, list[BlockTiming], list[Abandoned]]:
    """Read timings back.

    Parameters
    ----------
    path : path-like
        What `write_saved` wrote.
    kinds : mapping of str to type
        Of each fact of the whole run.

    Returns
    -------
    facts : dict
        Of the whole run.
    blocks : list of BlockTiming
        Every block that counts.
    abandoned : list of Abandoned
        Attempts that do not.

    Raises
    ------
    FileNotFoundError
        There is no such file.
    TimingsError
        It is another file, or damaged.
    """
    with open(path, encoding="utf-8", newline="") as file:
        lines = _Lines(file)
        try:
            return _read(lines, {**kinds, "n_blocks": int})
        except _Unexpected as error:
            raise TimingsError(f"{os.fspath(path)}: line {lines.number}: {error}") from None
        except (UnicodeDecodeError, csv.Error) as error:
            raise TimingsError(
                f"{os.fspath(path)}: expected timings that paceline wrote, found no table: {error}"
            ) from None


class _Unexpected(Exception):
    def __init__(self, expected: str, found: str):
        shown = found if len(found) <= 60 else found[:57] + "..."
        super().__init__(f"expected {expected}, found {shown!r}")


class _Lines:
    """Lines without their ends, and which one was the last."""

    def __init__(self, file: IO[str]):
        self._file = file
        self.number = 0

    def __iter__(self) -> Iterator[str]:
        for line in self._file:
            self.number += 1
            yield line.rstrip("\r\n")


def _read(
    lines: _Lines, kinds: Mapping[str, type]
) -> tuple[Facts, list[BlockTiming], list[Abandoned]]:
    facts: Facts = {}
    abandoned: list[Abandoned] = []
    rest = iter(lines)
    if (first := next(rest, "")) != _KIND:
        raise _Unexpected(f"{_KIND!r}, as in the timings that paceline writes", first)
    for line in rest:
        if not line.startswith("# "):
            break
        name, _, value = line[2:].partition(": ")
        if name == "abandoned":
            abandoned.append(_attempt(value))
        else:
            facts[name] = _fact(name, value, kinds)
    else:
        line = ""
    if missing := kinds.keys() - facts.keys():
        raise _Unexpected(f"a line '# {min(missing)}: ' before the table", line)
    if line != ",".join(_COLUMNS):
        raise _Unexpected("the names of the columns", line)
    blocks = [_row(row) for row in csv.reader(rest)]
    n_blocks = facts.pop("n_blocks")
    if len(blocks) != n_blocks:
        raise _Unexpected(f"{n_blocks} blocks", f"{len(blocks)}")
    return facts, blocks, abandoned


def _fact(name: str, value: str, kinds: Mapping[str, type]) -> Any:
    if name not in kinds:
        raise _Unexpected("a fact that this version of paceline knows", name)
    fact = _json(value)
    if type(fact) is not kinds[name] or fact in (math.inf, -math.inf):
        raise _Unexpected(f"{name} as {kinds[name].__name__}", value)
    return fact


def _attempt(value: str) -> Abandoned:
    found = _json(value)
    match found:
        case {"timing": {**cells}, "came": bool(came)} if cells.keys() == set(_COLUMNS):
            return Abandoned(_block(cells), came)
    raise _Unexpected("an attempt with its timing", value)


def _json(value: str) -> Any:
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        raise _Unexpected("a value as JSON writes it", value) from None


def _row(cells: Sequence[str]) -> BlockTiming:
    if len(cells) != len(_COLUMNS):
        raise _Unexpected(f"{len(_COLUMNS)} columns", ",".join(cells))
    return _block(dict(zip(_COLUMNS, cells, strict=True)))


def _block(cells: Mapping[Any, Any]) -> BlockTiming:
    values: dict[str, Any] = {
        name: str(cell) if name == "worker" else _number(name, cell) for name, cell in cells.items()
    }
    block = BlockTiming(**values)
    if block.end < block.start:
        raise _Unexpected(f"an end after the start {block.start}", str(block.end))
    return block


def _number(name: str, cell: Any) -> int:
    try:
        number = int(cell)
    except (TypeError, ValueError):
        raise _Unexpected(f"a whole number as {name}", str(cell)) from None
    least = -(2**63) if name in _SIGNED else 1 if name == "n_frames" else 0
    if not least <= number < 2**63:
        raise _Unexpected(f"{name} from {least} to 2**63 - 1", str(cell))
    return number
