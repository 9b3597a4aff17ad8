"""Properties of atoms that a file holds once, for all frames: names, masses and charges."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from paceline.errors import UnwritableError
from paceline.snapshot.local_atoms import BATCH

if TYPE_CHECKING:
    from paceline.backends.mpi.comm import Comm, RankErrors

#: Their names.
STATIC_PROPERTIES = ("names", "masses", "charges")
#: Bytes that sorting takes for an atom.
_SORTING = 48


def gather_properties(
    errors: "RankErrors",
    ids: np.ndarray,
    properties: Mapping[str, np.ndarray],
    n_atoms: int,
    buffer: int,
    put: Callable[[int, np.ndarray], None],
) -> None:
    """Gather properties of all atoms on rank 0, a batch of ids after the other.

    `put` takes, there, the first atom of a batch, counted from 0, and records of its properties.
    """
    kind = [(name, values.dtype) for name, values in properties.items()]
    for first, chosen in _batches(ids, n_atoms, buffer):
        records = np.empty(len(chosen), dtype=[("id", np.int64), *kind])
        records["id"] = ids[chosen]
        for name, values in properties.items():
            records[name] = values[chosen]
        came = _gather_records(errors.comm, records)
        batch = np.empty(
            min(BATCH, n_atoms - first) if errors.comm.is_coordinator else 0, dtype=kind
        )
        for name in properties:
            batch[name][came["id"] - 1 - first] = came[name]
        errors.first(partial(put, first, batch))


def _batches(ids: np.ndarray, n_atoms: int, buffer: int) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the atom before each batch of ids, and where its atoms are among a rank's.

    Atoms of as many batches are sorted together as `buffer` bytes allow, all if possible.
    """
    fits = _SORTING * len(ids) <= buffer
    together = n_atoms if fits else max(1, buffer // (_SORTING * BATCH)) * BATCH
    for begin in range(0, n_atoms, together):
        if fits:
            chosen = np.argsort(ids)
        else:
            chosen = _within(ids, begin, begin + together)
            chosen = chosen[np.argsort(ids[chosen])]
        numbers = ids[chosen]
        for first in range(begin, min(begin + together, n_atoms), BATCH):
            start, stop = np.searchsorted(numbers, [first + 1, first + BATCH + 1])
            yield first, chosen[start:stop]


def _within(ids: np.ndarray, first: int, last: int) -> np.ndarray:
    """Find the atoms with ids above `first` up to `last`, without a mask of all."""
    found = [np.empty(0, dtype=np.int64)]
    for begin in range(0, len(ids), BATCH):
        some = ids[begin : begin + BATCH]
        found.append(begin + np.flatnonzero((some > first) & (some <= last)))
    return np.concatenate(found)


def _gather_records(comm: "Comm", records: np.ndarray) -> np.ndarray:
    """Gather records of all ranks on rank 0; others get none."""
    sent = np.zeros(comm.size, dtype=np.uint64)
    sent[0] = records.nbytes
    received = comm.all_to_all(sent)
    room = np.empty(int(received.sum()), dtype=np.uint8)
    comm.exchange(records.view(np.uint8), sent, room, received)
    return room.view(records.dtype)


def check_same_property(
    errors: "RankErrors",
    path: str,
    ids: np.ndarray,
    name: str,
    values: np.ndarray,
    n_atoms: int,
    held: Callable[[str, int, int], np.ndarray | None],
) -> None:
    """Raise `UnwritableError` where a static property differs from that of a file that is to grow.

    `held` gives, on rank 0, the file's values from a first atom, counted from 0, for a number of
    atoms.
    """
    for first in range(0, n_atoms, BATCH):
        expected = errors.first(partial(held, name, first, min(BATCH, n_atoms - first)))
        if expected is None:
            return
        here = _within(ids, first, first + len(expected))
        wanted = expected[ids[here] - 1 - first]
        errors.share(partial(_check_values, path, ids[here], name, values[here], wanted))


class StaticProperties:
    """Check that what a file holds once of atoms is the same in every frame.

    Digests are compared, which do not depend on the order of atoms nor on the ranks that have them.
    """

    def __init__(self, errors: "RankErrors", path: str):
        self._errors = errors
        self._path = path
        self._kept: dict[str, int] = {}
        self._found: dict[str, int] = {}

    def check_unchanged(self, ids: np.ndarray, properties: Mapping[str, np.ndarray | None]) -> None:
        """Raise `UnwritableError` where values, of 8 bytes an atom, differ from earlier frames.

        All ranks give the same properties; those that are None have not changed.
        """
        mine = {name: _digest(ids, one) for name, one in properties.items() if one is not None}
        sums = np.array(list(mine.values()), dtype=np.uint64)
        self._errors.comm.all_reduce(sums, "sum")
        self._found = dict(zip(mine, sums.tolist(), strict=True))
        with self._errors.same_on_all():
            for name, found in self._found.items():
                if self._kept.get(name, found) != found:
                    raise UnwritableError(
                        f"{self._path}: expected the {name} of the frames before, which the file "
                        "holds once for all of them, found others"
                    )

    def keep(self) -> None:
        """Expect from now on what was checked last: its frame is written."""
        self._kept |= self._found


def _digest(ids: np.ndarray, values: np.ndarray) -> int:
    """Sum over atoms, modulo 2⁶⁴, a hash of id and value."""
    bits = np.ascontiguousarray(values).view(np.uint64).ravel()
    total = 0
    for first in range(0, len(ids), BATCH):
        some = slice(first, first + BATCH)
        mixed = _mixed(_mixed(ids[some].astype(np.uint64)) + bits[some])
        total += int(mixed.sum(dtype=np.uint64))
    return total % 2**64


def _mixed(x: np.ndarray) -> np.ndarray:
    """Hash numbers by the finalizer of SplitMix64.

    Steele, Lea & Flood 2014, doi:10.1145/2660193.2660195.
    """
    x = (x ^ x >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ x >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return x ^ x >> np.uint64(31)


def _check_values(
    path: str, ids: np.ndarray, name: str, values: np.ndarray, wanted: np.ndarray
) -> None:
    for k in np.flatnonzero((values != wanted).reshape(len(ids), -1).any(axis=1)):
        expected, found = (_text(one[k]) for one in (wanted, values))
        what = "be" if name == "names" else f"have, as its {name},"
        raise UnwritableError(
            f"{path} is of another system: expected atom {ids[k]} to {what} {expected}, found "
            f"{found}"
        )


def _text(value: np.ndarray | np.generic) -> str:
    """Format a name or a number for a message."""
    if value.dtype == np.uint8:
        return repr(value.tobytes().decode("latin-1").strip())
    return str(value)
