"""Write the frames of all ranks of MPI to one H5MD file; h5py need not be built with MPI.

Each rank stores its frames until all ranks close the file. The steps of all frames then determine
their rows. The first rank writes the HDF5 metadata, and reserves the bytes of chunks. Each rank
writes its own frames into these bytes. If chunks are compressed, the rank that has the first frame
of a chunk receives the other frames of the chunk, and encodes and writes it.
"""

import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

import numpy as np

from paceline._util.files import temporary_name, writing_to
from paceline._util.os_calls import NO_LINK, write_at
from paceline.errors import UnsupportedError, UnwritableError, WorkerError
from paceline.hdf5.create_h5md_groups import Description
from paceline.hdf5.dataset_writers import H5MDFileWriter, naming_frame, new_hdf5
from paceline.hdf5.frame_writer import FrameData, FrameRows, check_alike, frame_columns
from paceline.hdf5.h5md_storage_layout import ATOM_BYTES, ChunkOffsets, Storage

if TYPE_CHECKING:
    from mpi4py import MPI

    from paceline.backends.mpi.comm import Comm

#: Maximum size of frames that a rank keeps in memory, bytes. If its frames need more, the rank
#: writes all of them to a temporary file.
_WAITING = 64 * 2**20
#: Size of the frames that a rank encodes or writes together, bytes.
_PORTION = 16 * 2**20


class Source(Protocol):
    """Atoms whose frames a rank writes."""

    def key(self) -> str:
        """Digest of the atoms; empty if they are not the same in all frames."""

    def description(self, *, is_one: bool = True) -> Description:
        """Describe the atoms for the file, if all frames have these atoms."""


def writing_ranks(comm: "MPI.Intracomm | None") -> "Comm | None":
    """Make the communicator of the ranks that write one file.

    Returns None for a single rank, or in a script that paceline itself runs on ranks.
    """
    if comm is None:
        return None
    if not hasattr(comm, "Get_size"):
        raise UnsupportedError(
            f"comm: expected a communicator of mpi4py, found {type(comm).__name__}"
        )
    from paceline.backends.mpi import active_session
    from paceline.backends.mpi.opening import OpeningRanks

    alone = comm.Get_size() == 1 or active_session() is not None
    return None if alone else OpeningRanks(comm).comm


@contextlib.contextmanager
def alike_on_ranks(ranks: "Comm | None") -> Iterator[list[object]]:
    """Context manager that raises an error of one rank on all; yields a list of settings.

    Each rank appends the path of the file, then the options. At the end, `UnsupportedError` is
    raised on all ranks if their lists differ.
    """
    settings: list[object] = []
    if ranks is None:
        yield settings
        return
    from paceline.backends.mpi.comm import RankErrors

    failure = None
    try:
        yield settings
    except Exception as error:
        failure = error

    def outcome() -> list[object]:
        if failure is not None:
            raise failure
        return settings

    first, *others = RankErrors(ranks, (Exception,)).share(outcome)
    for rank, found in enumerate(others, start=1):
        if found != first:
            how = found[0] if found[0] != first[0] else "it with other options"
            raise UnsupportedError(
                f"rank 0 writes {first[0]}, rank {rank} {how}: with comm=, all ranks write one "
                "file, with the same options"
            )


class RankFile:
    """H5MD file of the frames of all ranks, which appears when all have closed it.

    An error of one rank is raised on all ranks. Other ranks raise it when they add a frame, or
    close the file.
    """

    def __init__(
        self, path: str, n_atoms: int, storage: Storage, ranks: "Comm", *, overwrite: bool
    ):
        from paceline.backends.mpi.comm import RankErrors

        self._path, self._n_atoms, self._overwrite = path, n_atoms, overwrite
        self._comm, self._errors = ranks, RankErrors(ranks, (Exception,))
        self._storage = storage
        #: Atoms of this rank's frames; None before the first frame.
        self.source: Source | None = None
        self._rows: FrameRows | None = None
        self._frames: _FrameStore
        self._failure: BaseException | None = None

    def _begin(self, first: FrameData) -> FrameRows:
        """Prepare for frames with the same kinds of data as the first frame of this rank."""
        self._encoders = {field: self._storage.encoder(field) for field in first.values}
        self._frames = _FrameStore(os.path.dirname(self._path), len(first.values), self._n_atoms)
        return FrameRows(first)

    def add(self, frame: FrameData) -> None:
        """Store a frame; raise an error if it cannot be written, or if another rank has failed."""
        if (received := self._comm.receive_message()) is not None:
            raise received[1]
        try:
            self._rows = self._rows or self._begin(frame)
            self._rows.add(frame)
            for field, encoder in self._encoders.items():
                values = np.ascontiguousarray(frame.values[field], np.float32)
                with naming_frame(len(self._rows.steps) - 1):
                    encoder.check(values[None])
                self._frames.append(values)
        except UnwritableError as error:
            raise UnwritableError(f"{self._path}: {error}") from None

    def fail(self, error: BaseException) -> None:
        """Record an error of this rank, and report it to the other ranks."""
        if self._failure is not None:
            return
        if not isinstance(error, Exception):
            error = WorkerError(f"rank {self._comm.rank} ended with {type(error).__name__}")
        self._failure = error
        from paceline.backends.mpi.comm import portable

        for rank in set(range(self._comm.size)) - {self._comm.rank}:
            self._comm.send_message(rank, portable(error))

    def end(self) -> None:
        """Close the file at the end of a script, even if an error has ended the script."""
        if (error := getattr(sys, "last_value", None)) is not None:
            self.fail(error)
        self.close()

    def close(self) -> None:
        """Write the file together with the other ranks.

        If a rank has failed, or no rank has a frame, no file is written.
        """
        self._errors.agree(self._failure)
        if self._failure is not None:
            return
        heads = {
            rank: head
            for rank, head in enumerate(self._errors.share(self._head))
            if head is not None
        }
        if heads:
            contents = self._common({rank: head.contents for rank, head in heads.items()})
            order = _Order.of({rank: head.steps for rank, head in heads.items()}, self._path)
            atoms = {head.atoms for head in heads.values()}
            with contextlib.ExitStack() as stack:
                part = partial(
                    self._describe_part, min(heads), is_one=len(atoms) == 1 and "" not in atoms
                )
                self._write(stack, order, contents, self._gather(part))
        self._comm.free()

    def _head(self) -> "_Head | None":
        """Describe this rank's frames for the other ranks; None if it has no frames."""
        if self._rows is None or self.source is None:
            return None
        return _Head(self._rows.steps, self._rows.contents, self.source.key())

    def _common(self, found: dict[int, dict[str, list[str]]]) -> dict[str, list[str]]:
        """Return the kinds of data in all frames; raise an error if those of two ranks differ."""
        (first, expected), *others = found.items()
        for rank, contents in others:
            check_alike(f"{self._path}: rank {rank}", contents, f"on rank {first}", expected)
        return expected

    def _describe_part(
        self, describing: int, *, is_one: bool
    ) -> tuple[dict[str, Any] | None, Description | None]:
        """Return times, cells and observables of this rank's frames, and a description of atoms.

        The description is None except on rank `describing`.
        """
        values = None if self._rows is None else self._rows.values()
        if self.source is None or self._comm.rank != describing:
            return values, None
        return values, self.source.description(is_one=is_one)

    def _gather(self, function: Callable[[], Any]) -> list[bytes] | None:
        """Call a function on all ranks, and collect the pickled results or errors on the first.

        The first rank returns those of all ranks; other ranks return None.
        """
        from paceline.backends.mpi.comm import pack

        try:
            packed = pack(function())
        except Exception as error:
            packed = pack(error=error)
        return self._comm.gather_bytes(packed)

    def _write(
        self,
        stack: contextlib.ExitStack,
        order: "_Order",
        contents: dict[str, list[str]],
        gathered: list[bytes] | None,
    ) -> None:
        """Write the file: all ranks succeed or raise an error; the first rank writes metadata."""
        fields, cell, _ = contents.values()
        n_rows = len(order.ranks)
        parts: list[tuple[dict[str, Any] | None, Description | None]] = []
        storage = replace(self._storage, layout=self._storage.layout.within(n_rows))
        plain = storage.compression.method is None

        def create() -> tuple[Path, dict[str, ChunkOffsets]]:
            from paceline.backends.mpi.comm import unpack

            parts.extend(map(unpack, gathered or ()))
            temporary = temporary_name(self._path)
            file = new_hdf5(
                self._path,
                overwrite=self._overwrite,
                align=storage.layout.align,
                temporary=temporary,
            )
            self._file = stack.enter_context(file)
            self._h5md = H5MDFileWriter(
                self._file,
                storage,
                fields,
                n_rows,
                self._n_atoms,
                has_cell=bool(cell),
                allocated=plain,
            )
            datasets = self._h5md.datasets if plain else {}
            return temporary, {field: one.offsets for field, one in datasets.items()}

        def finish() -> None:
            [description] = [one for _, one in parts if one is not None]
            values = [one for one, _ in parts if one is not None]
            self._h5md.finish(frame_columns(order.steps, values, order.sorted), description)
            stack.pop_all().close()

        temporary, offsets = self._errors.first(create)
        if plain:
            self._errors.share(partial(self._put_frames, temporary, storage, order, offsets))
        else:
            self._put_chunks(temporary, storage, order, fields)
        self._errors.first(finish)

    def _put_frames(
        self, path: Path, storage: Storage, order: "_Order", offsets: dict[str, ChunkOffsets]
    ) -> None:
        """Write this rank's frames to their rows of datasets without compression."""
        encoders = [(storage.encoder(field), one) for field, one in offsets.items()]
        for rows in _runs(order.rows_of(self._comm.rank), self._n_together(len(encoders))):
            values = self._frames.read(order.frames[rows])
            for field, (encoder, of_field) in enumerate(encoders):
                at, lead = of_field.of(int(rows[0]), len(rows))
                with writing_to(self._path):
                    some = np.ascontiguousarray(values[:, field])
                    encoder.write(path, at, some, lead=lead)

    def _n_together(self, n_fields: int) -> int:
        """Number of frames that are read from the store together."""
        return max(1, _PORTION // (n_fields * self._n_atoms * ATOM_BYTES))

    def _put_chunks(
        self, path: Path, storage: Storage, order: "_Order", fields: Sequence[str]
    ) -> None:
        """Encode and write chunks in rounds; in each, the first rank reserves their bytes."""
        layout, rank = storage.layout, self._comm.rank
        encoders = [storage.encoder(field) for field in fields]
        n_together = self._n_together(len(fields))
        for chunks in order.rounds(layout.frames, n_together, self._comm.size):
            rows = order.rows_in(chunks[rank], layout.frames)
            values = self._exchange(order, chunks, rows, layout.frames, len(fields))
            # A rank encodes whole chunks, except for the last chunk of the file.
            whole = [values[k : k + layout.frames] for k in range(0, len(rows), layout.frames)]
            encoded: list[bytes] = []
            encode = partial(_encode, encoders, chunks[rank] * layout.frames, whole, encoded)
            there = self._errors.share(encode)
            offsets = self._errors.first(partial(self._reserve, there, fields, layout.atoms))
            sizes = [size for one in there[rank] for size in one.sizes.tolist()]
            self._errors.share(partial(self._put, path, encoded, sizes, offsets[rank]))

    def _exchange(
        self,
        order: "_Order",
        chunks: list[np.ndarray],
        rows: np.ndarray,
        frames: int,
        n_fields: int,
    ) -> np.ndarray:
        """Read own rows, and exchange rows with other ranks.

        Returns the values of `rows`, shape (n, n_fields, n_atoms, 3).
        """
        rank = self._comm.rank
        own = order.ranks[rows] == rank
        sent: list[bytes] = []
        n_sent = np.zeros(self._comm.size, np.uint64)

        def read() -> None:
            if own.any():
                values[own] = self._frames.read(order.frames[rows[own]])
            for other, theirs in enumerate(chunks):
                asked = order.rows_in(theirs, frames)
                asked = asked[order.ranks[asked] == rank]
                if other != rank and len(asked):
                    sent.append(self._frames.read(order.frames[asked]).tobytes())
                    n_sent[other] = len(sent[-1])

        values = np.empty((len(rows), n_fields, self._n_atoms, 3), np.float32)
        self._errors.share(read)
        if not order.is_shared(frames):
            return values
        n_received = np.bincount(order.ranks[rows], minlength=self._comm.size).astype(np.uint64)
        n_received[rank] = 0
        n_received *= np.uint64(n_fields * self._n_atoms * ATOM_BYTES)
        received = bytearray(int(n_received.sum()))
        self._comm.exchange(b"".join(sent), n_sent, received, n_received)
        # Rows arrive in the order of the ranks that sent them, and rows of one rank in file order.
        by_rank = np.argsort(order.ranks[rows], kind="stable")
        others = by_rank[~own[by_rank]]
        values[others] = np.frombuffer(received, np.float32).reshape(-1, *values.shape[1:])
        return values

    def _reserve(
        self, there: list[list["_Encoded"]], fields: Sequence[str], n_atoms: int
    ) -> list[list[int]]:
        """Reserve bytes for the chunks of all ranks; return the offsets of chunks for each rank."""
        datasets = [self._h5md.datasets[field].dataset for field in fields]
        return [
            [
                self._file.reserve(datasets[one.field], (one.first, column * n_atoms, 0), size)
                for one in of_rank
                for column, size in enumerate(one.sizes.tolist())
            ]
            for of_rank in there
        ]

    def _put(self, path: Path, encoded: list[bytes], sizes: list[int], offsets: list[int]) -> None:
        """Write encoded chunks to the bytes that were reserved for them."""
        if not encoded:
            return
        data = memoryview(b"".join(encoded))
        with writing_to(self._path):
            descriptor = os.open(path, os.O_WRONLY | NO_LINK)
            try:
                for size, offset in zip(sizes, offsets, strict=True):
                    chunk, data = data[:size], data[size:]
                    while chunk:
                        n = write_at(descriptor, chunk, offset)
                        chunk, offset = chunk[n:], offset + n
            finally:
                os.close(descriptor)


class _Encoded(NamedTuple):
    """Row of encoded chunks: number of the field, first frame, and size of each chunk, bytes."""

    field: int
    first: int
    sizes: np.ndarray


def _encode(
    encoders: Sequence[Any], firsts: np.ndarray, whole: list[np.ndarray], encoded: list[bytes]
) -> list[_Encoded]:
    """Encode rows of chunks with the first frames `firsts`; append their bytes to `encoded`."""
    there = []
    for first, values in zip(firsts.tolist(), whole, strict=True):
        for field, encoder in enumerate(encoders):
            data, sizes = encoder.encode(np.ascontiguousarray(values[:, field]))
            encoded.append(data)
            there.append(_Encoded(field, first, sizes))
    return there


class _Head(NamedTuple):
    """Steps and kinds of data of a rank's frames, and the digest of their atoms."""

    steps: list[int]
    contents: dict[str, list[str]]
    atoms: str


class _FrameStore:
    """Frames of a rank that wait in memory, or in a temporary file, until the file is closed."""

    def __init__(self, folder: str, n_fields: int, n_atoms: int):
        self._shape = n_fields, n_atoms, 3
        self._bytes = n_fields * n_atoms * ATOM_BYTES
        # The garbage collector closes the temporary file.
        self._file = tempfile.SpooledTemporaryFile(_WAITING, dir=folder)  # noqa: SIM115

    def append(self, values: np.ndarray) -> None:
        """Write a field of the next frame, float32, C-contiguous."""
        self._file.write(values.data.cast("B"))

    def read(self, frames: np.ndarray) -> np.ndarray:
        """Read frames in increasing order; float32, shape (n_frames, n_fields, n_atoms, 3)."""
        data = []
        for run in _runs(frames):
            self._file.seek(int(run[0]) * self._bytes)
            data.append(self._file.read(len(run) * self._bytes))
        return np.frombuffer(b"".join(data), np.float32).reshape(-1, *self._shape)


@dataclass(frozen=True)
class _Order:
    """Order of the frames of all ranks in the file."""

    #: Steps of the frames of all ranks: first those of rank 0, then those of rank 1 and so on.
    steps: np.ndarray
    #: Indices that sort the steps.
    sorted: np.ndarray
    #: Rank that has the frame of each row of the file.
    ranks: np.ndarray
    #: For each row of the file, the number of its frame among the frames of its rank.
    frames: np.ndarray

    @classmethod
    def of(cls, steps: dict[int, list[int]], path: str) -> Self:
        """Order the frames of all ranks by step; raise `UnwritableError` if two steps are equal."""
        counts = [len(one) for one in steps.values()]
        every = np.concatenate([np.array(one, np.int64) for one in steps.values()])
        rows = np.argsort(every, kind="stable")
        ranks = np.repeat(np.array(list(steps)), counts)[rows]
        equal = np.flatnonzero(np.diff(every[rows]) == 0)
        if len(equal):
            first, second = ranks[equal[0] : equal[0] + 2]
            raise UnwritableError(
                f"{path}: ranks {first} and {second} both write step {every[rows][equal[0]]}: each "
                "rank writes its own frames"
            )
        return cls(every, rows, ranks, np.concatenate([np.arange(n) for n in counts])[rows])

    def rows_of(self, rank: int) -> np.ndarray:
        """Return the rows of a rank's frames."""
        return np.flatnonzero(self.ranks == rank)

    def rows_in(self, chunks: np.ndarray, frames: int) -> np.ndarray:
        """Return the rows in these chunks, each of which has `frames` rows."""
        rows = (chunks[:, None] * frames + np.arange(frames)).ravel()
        return rows[rows < len(self.ranks)]

    def is_shared(self, frames: int) -> bool:
        """True if any chunk contains frames of several ranks."""
        owners = np.repeat(self.ranks[::frames], frames)[: len(self.ranks)]
        return bool((owners != self.ranks).any())

    def rounds(self, frames: int, n_together: int, n_ranks: int) -> Iterator[list[np.ndarray]]:
        """Split the writing into rounds: for each round, yield the chunks that each rank encodes.

        A rank encodes the chunks whose first frame belongs to it: per round, about `n_together`
        frames.
        """
        owners = self.ranks[::frames]
        own = [np.flatnonzero(owners == rank) for rank in range(n_ranks)]
        n = max(1, n_together // frames)
        for k in range(0, max(map(len, own)), n):
            yield [chunks[k : k + n] for chunks in own]


def _runs(numbers: np.ndarray, longest: int | None = None) -> Iterator[np.ndarray]:
    """Split increasing numbers into runs of consecutive numbers, at most `longest` in each."""
    for run in np.split(numbers, np.flatnonzero(np.diff(numbers) != 1) + 1):
        step = longest or max(1, len(run))
        yield from (run[k : k + step] for k in range(0, len(run), step))
