"""What does not change of atoms, between ranks that have them in any order and a file in order."""

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from paceline.backends.mpi.comm import RankErrors
from paceline.errors import UnwritableError

#: Atoms at a time: as many as a chunk of such facts in HDF5 has.
BATCH = 2**16


def gather_facts(
    company: RankErrors,
    ids: np.ndarray,
    facts: Mapping[str, np.ndarray],
    n_atoms: int,
    put: Callable[[int, np.ndarray], None],
) -> None:
    """Bring facts of all atoms to rank 0, a batch of ids after the other.

    Parameters
    ----------
    company : RankErrors
        All ranks.
    ids : numpy.ndarray of int64, shape (n,)
        Of this rank's atoms.
    facts : mapping of str to numpy.ndarray, shape (n,)
        The same of each atom, by name.
    n_atoms : int
        Of all ranks.
    put : callable
        On rank 0 takes the first atom of a batch, counted from 0, and records of its facts.
    """
    kind = [(name, values.dtype) for name, values in facts.items()]
    order = np.argsort(ids)
    for first in range(0, n_atoms, BATCH):
        begin, end = np.searchsorted(ids, [first + 1, first + BATCH + 1], sorter=order)
        chosen = order[begin:end]
        records = np.empty(len(chosen), dtype=[("id", np.int64), *kind])
        records["id"] = ids[chosen]
        for name, values in facts.items():
            records[name] = values[chosen]
        came = _to_first(company, records)
        batch = np.empty(min(BATCH, n_atoms - first) if company.is_first else 0, dtype=kind)
        for name in facts:
            batch[name][came["id"] - 1 - first] = came[name]
        company.first(partial(put, first, batch))


def _to_first(company: RankErrors, records: np.ndarray) -> np.ndarray:
    """Records of all ranks on rank 0, none on others."""
    wires = company.communicator
    sent = np.zeros(wires.size, dtype=np.uint64)
    sent[0] = records.nbytes
    received = wires.all_to_all(sent)
    room = np.empty(int(received.sum()), dtype=np.uint8)
    wires.exchange(records.view(np.uint8), sent, room, received)
    return room.view(records.dtype)


def refuse_other_facts(
    company: RankErrors,
    path: str,
    ids: np.ndarray,
    fact: str,
    values: np.ndarray,
    n_atoms: int,
    held: Callable[[str, int, int], np.ndarray | None],
) -> None:
    """Raise `UnwritableError` where atoms are others than those of a file that is to grow.

    Parameters
    ----------
    company : RankErrors
        All ranks.
    path : str
        The file.
    ids : numpy.ndarray of int64, shape (n,)
        Of this rank's atoms.
    fact : str
        "names", "masses" or "charges".
    values : numpy.ndarray, n rows
        Theirs.
    n_atoms : int
        Of all ranks.
    held : callable
        On rank 0 gives them as the file has them, of the first atom, counted from 0, and a number
        of atoms.
    """
    for first in range(0, n_atoms, BATCH):
        expected = company.first(partial(held, fact, first, min(BATCH, n_atoms - first)))
        if expected is None:
            return
        here = np.flatnonzero((ids > first) & (ids <= first + len(expected)))
        wanted = expected[ids[here] - 1 - first]
        company.share(partial(_refuse_unlike, path, ids[here], fact, values[here], wanted))


class Unchanging:
    """What a file holds once of atoms, and every frame must therefore have the same.

    Digests tell, which are the same in whatever order and on whatever rank atoms are.

    Parameters
    ----------
    company : RankErrors
        All ranks.
    path : str
        The file.
    """

    def __init__(self, company: RankErrors, path: str):
        self._company = company
        self._path = path
        self._kept: dict[str, int] = {}
        self._found: dict[str, int] = {}

    def refuse_changed(self, ids: np.ndarray, facts: Mapping[str, np.ndarray | None]) -> None:
        """Raise `UnwritableError` where atoms have others than in the frames before.

        Parameters
        ----------
        ids : numpy.ndarray of int64, shape (n,)
            Of this rank's atoms.
        facts : mapping of str to (numpy.ndarray, n rows of 8 bytes, or None)
            By what they are called: on all ranks the same ones. Those that are not given have not
            changed.
        """
        mine = {name: _digest(ids, one) for name, one in facts.items() if one is not None}
        sums = np.array(list(mine.values()), dtype=np.uint64)
        self._company.communicator.all_reduce(sums, "sum")
        self._found = dict(zip(mine, sums.tolist(), strict=True))
        with self._company.told():
            for name, found in self._found.items():
                if self._kept.get(name, found) != found:
                    raise UnwritableError(
                        f"{self._path}: expected the {name} of the frames before, which the file "
                        "holds once for all of them, found others"
                    )

    def keep(self) -> None:
        """Expect what was looked at last from now on: its frame is written."""
        self._kept |= self._found


def _digest(ids: np.ndarray, values: np.ndarray) -> int:
    """A sum of numbers, modulo 2⁶⁴, each of which an atom's id and what is known of it tell."""
    bits = np.ascontiguousarray(values).view(np.uint64).ravel()
    total = 0
    for first in range(0, len(ids), BATCH):
        some = slice(first, first + BATCH)
        mixed = _mixed(_mixed(ids[some].astype(np.uint64)) + bits[some])
        total += int(mixed.sum(dtype=np.uint64))
    return total % 2**64


def _mixed(x: np.ndarray) -> np.ndarray:
    """Numbers that say nothing of their neighbours: the finalizer of SplitMix64.

    Steele, Lea & Flood 2014, doi:10.1145/2660193.2660195.
    """
    x = (x ^ x >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ x >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return x ^ x >> np.uint64(31)


def _refuse_unlike(
    path: str, ids: np.ndarray, fact: str, values: np.ndarray, wanted: np.ndarray
) -> None:
    for k in np.flatnonzero((values != wanted).reshape(len(ids), -1).any(axis=1)):
        expected, found = (_words(one[k]) for one in (wanted, values))
        what = "be" if fact == "names" else f"have, as its {fact},"
        raise UnwritableError(
            f"{path} is of another system: expected atom {ids[k]} to {what} {expected}, found "
            f"{found}"
        )


def _words(value: np.ndarray | np.generic) -> str:
    """A name, or a number."""
    if value.dtype == np.uint8:
        return repr(value.tobytes().decode("latin-1").strip())
    return str(value)
