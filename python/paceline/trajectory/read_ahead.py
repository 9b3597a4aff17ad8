"""Decode the next frames on other threads while the calling thread processes earlier frames."""

import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import groupby, pairwise
from multiprocessing import parent_process
from typing import Any, Generic, TypeVar

import numpy as np

from paceline._util.files import is_address
from paceline._util.machine_and_software import available_cpus
from paceline._util.os_calls import after_fork, around_fork
from paceline.block import FrameBuffer
from paceline.contract.source import OPEN_FILES, FrameReader, FrameSource, limit_open_files
from paceline.errors import PacelineError
from paceline.trajectory.chain import Chain

_T = TypeVar("_T")
_R = TypeVar("_R")

#: Approximate size of the frames in a block, bytes. With a fourth of this size (one or two frames
#: of 47,681 atoms), threads spend as much time waiting for each other as decoding: loops took 1.8
#: (XTC) and 2.3 (DCD) times as long.
BLOCK_BYTES = 2**22
#: Maximum number of frames in a block, unless the file stores larger chunks.
BLOCK_FRAMES = 64
#: Maximum size of decoded frames that wait to be used, bytes; at least one frame may wait.
WAITING_BYTES = 64 * 2**20
#: Maximum time that a fork waits for decoding threads, seconds.
PATIENCE = 10.0
#: If this number of successive requests are for equally spaced frames, later frames are decoded
#: ahead.
REGULAR = 4


@cache
def _threads() -> ThreadPoolExecutor:
    """Threads of this process that decode ahead; all trajectories share them."""
    return ThreadPoolExecutor(_n_threads(), thread_name_prefix="paceline-read-ahead")


@cache
def _n_threads() -> int:
    """Number of threads that decode ahead: fewer in worker processes, which share the cores."""
    return 1 if parent_process() is not None else available_cpus()


class _CallsOfThreads:
    """Delays a fork until all threads have finished their current calls.

    Otherwise the forked process would treat the arrays that a thread is filling as in use for ever.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Start anew, with no running calls and no waiting forks."""
        self._changed = threading.Condition()
        self._n_running = self._n_forking = 0

    def call(self, function: Callable[[_T], _R], item: _T) -> _R:
        """Call a function with one argument, after forks that are in progress."""
        with self._changed:
            self._changed.wait_for(lambda: self._n_forking == 0)
            self._n_running += 1
        try:
            return function(item)
        finally:
            with self._changed:
                self._n_running -= 1
                self._changed.notify_all()

    def before_fork(self) -> None:
        """Wait until no thread is in a call, for a limited time."""
        with self._changed:
            self._n_forking += 1
            self._changed.wait_for(lambda: self._n_running == 0, PATIENCE)

    def after_fork(self) -> None:
        """Allow calls again in the parent process."""
        with self._changed:
            # Ctrl-C may have interrupted `before_fork` before the fork was counted.
            self._n_forking = max(0, self._n_forking - 1)
            self._changed.notify_all()


_calls = _CallsOfThreads()
around_fork(_calls.before_fork, _calls.after_fork)
# Start anew after a fork: a forked process lacks the parent's threads, and may be a worker.
after_fork(_calls.reset)
after_fork(_threads.cache_clear)
after_fork(_n_threads.cache_clear)


class FrameDecoder:
    """Decodes frames of a trajectory on any thread; keeps its readers for later frames."""

    def __init__(self, chain: Chain, source: FrameSource):
        self._chain = chain
        self._source = source
        self._forget()

    def _forget(self) -> None:
        self._process = os.getpid()
        self._readers: list[FrameReader] = []

    def close_files(self) -> None:
        """Close all files except files that are being read."""
        self._readers.clear()

    def __call__(self, decoded: FrameBuffer, *, skip: bool) -> list[tuple[int, str]]:
        """Decode the frames of a buffer; with `skip`, return the unreadable rows with reasons."""
        if self._process != os.getpid():  # the open files belong to the parent process
            self._forget()
        reader = _take_free(self._readers) or self._source.open()
        stats = reader.read(self._chain.extents(decoded.frames), decoded, skip=skip)
        self._readers.append(reader)
        return stats.damaged


def _requested(chain: Chain, source: FrameSource, piece: tuple[FrameBuffer, slice]) -> object:
    """Request the bytes of some frames from an object store; return the reader that stores them.

    Otherwise, the store would get requests only for the frames that threads are decoding. Return
    None if the frames are in so many files that the reader cannot keep them open.
    """
    extents, reader = chain.extents(piece[0].frames[piece[1]]), source.open()
    if len(set(extents.files.tolist())) > OPEN_FILES:
        return None  # the reader would close some files again
    with suppress(OSError, PacelineError):  # the thread that reads reports the error
        for file, _, part in extents.parts():
            reader.file_reader(file).read_ahead(part)
    return reader


def _take_free(things: list[_T]) -> _T | None:
    """Remove and return a free reader, or free arrays, from a list; None if the list is empty."""
    try:
        return things.pop()
    except IndexError:
        return None


class CallsAhead(Generic[_T, _R]):
    """Calls a function on other threads before its results are needed; yields results in order.

    A call starts when memory for its result is available. A result needs at most `result_bytes`.
    `announce`, if given, is called in the calling thread with each item as soon as its call may
    start; the object that it returns is kept until the result is taken.
    """

    def __init__(
        self,
        function: Callable[[_T], _R],
        items: Iterable[_T],
        result_bytes: int,
        announce: Callable[[_T], object] | None = None,
    ):
        self._function, self._announce = function, announce
        self._items = iter(items)
        self._most = max(1, min(2 * _n_threads(), WAITING_BYTES // max(1, result_bytes)))
        self._waiting: deque[tuple[_T, Future[_R], object]] = deque()
        self._process = os.getpid()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def __iter__(self) -> Iterator[tuple[_T, _R]]:
        """Yield each item with its result."""
        try:
            self.fill()
            while self._waiting:
                item, result = self.take()
                self.fill()
                yield item, result
        finally:
            self.cancel()

    def fill(self) -> None:
        """Start calls for more items, up to the limit of waiting results."""
        while len(self._waiting) < self._most:
            try:
                item = next(self._items)
            except StopIteration:
                return
            kept = None if self._announce is None else self._announce(item)
            result = _threads().submit(_calls.call, self._function, item)
            self._waiting.append((item, result, kept))

    def take(self) -> tuple[_T, _R]:
        """Wait for the next item and its result; raise the error if the call failed."""
        if self._process != os.getpid():  # after a fork, the threads exist in the parent only
            self._process = os.getpid()
            again = [
                (item, _threads().submit(_calls.call, self._function, item), None)
                for item, _, _ in self._waiting
            ]
            self._waiting = deque(again)
        item, future, _ = self._waiting.popleft()
        return item, future.result()

    def cancel(self) -> None:
        """Cancel calls that have not started, and drop all waiting results."""
        if self._process == os.getpid():
            for _, future, _ in self._waiting:
                future.cancel()
        self._waiting.clear()


@dataclass(frozen=True)
class _Block:
    """Decoded frames, the rows that could not be read, and the arrays that contain the frames."""

    numbers: Sequence[int]
    decoded: FrameBuffer
    damaged: frozenset[int]
    buffer: FrameBuffer


_NO_BLOCK: Any = _Block((), None, frozenset(), None)  # type: ignore[arg-type]


class _BlockDecoder:
    """Decodes blocks on any thread, and reuses their arrays."""

    def __init__(self, chain: Chain, source: FrameSource):
        self._source = source
        self._decode = FrameDecoder(chain, source)
        self._buffers: list[FrameBuffer] = []

    def __call__(self, numbers: Sequence[int]) -> _Block:
        """Decode frames; record the rows that could not be read."""
        frames = np.array(numbers)
        buffer = _take_free(self._buffers)
        if buffer is None or len(buffer.frames) < len(frames):
            buffer = FrameBuffer.allocate(frames, self._source.n_wanted, self._source.fields)
        decoded = replace(buffer[: len(frames)], frames=frames)
        damaged = self._decode(decoded, skip=True)
        return _Block(numbers, decoded, frozenset(row for row, _ in damaged), buffer)

    def release(self, block: _Block) -> None:
        """Make a block's arrays available for the next blocks."""
        self._buffers.append(block.buffer)


def _span(chain: Chain, frame_bytes: int, step: int) -> int:
    """Choose the length of a range of frames, of which one thread decodes every `step`-th frame.

    The length is a multiple of the frames per chunk, so that ranges end at chunk boundaries.
    """
    wanted = max(1, min(BLOCK_FRAMES, BLOCK_BYTES // frame_bytes)) * step
    return chain.chunk_frames * max(1, wanted // chain.chunk_frames)


def _threads_may_decode(chain: Chain, frame_bytes: int) -> bool:
    """Return True if several threads may decode frames ahead."""
    # A chunk that is too large for memory is read by one reader, which keeps part of it. Only one
    # thread may call MPI-IO.
    return not chain.one_thread and chain.chunk_frames * frame_bytes <= WAITING_BYTES


class ReadAhead:
    """Frames of a trajectory; while equally spaced frames are read, later ones are decoded."""

    def __init__(self, chain: Chain, source: FrameSource):
        self._chain = chain
        self._source = source
        self._frame_bytes = source.frame_bytes
        self._possible = _threads_may_decode(chain, self._frame_bytes)
        self._last = self._step = self._regular = 0
        self._begin(range(0))

    def _begin(self, frames: range) -> None:
        """Prepare to decode a range of frames ahead, and drop earlier blocks."""
        self._block, self._row = _NO_BLOCK, -1
        self._decoder = _BlockDecoder(self._chain, self._source)
        span = _span(self._chain, self._frame_bytes, max(1, frames.step))
        blocks = (list(block) for _, block in groupby(frames, key=lambda frame: frame // span))
        most = -(-span // max(1, frames.step))
        self._ahead = CallsAhead(self._decoder, blocks, most * self._frame_bytes)

    def close_files(self) -> None:
        """Close all files, and drop the waiting frames."""
        self._ahead.cancel()
        self._begin(range(0))

    def find(self, frame: int) -> tuple[FrameBuffer, int] | None:
        """Return the block and row of a frame; None if the caller should read the frame itself.

        The next call may reuse the arrays of the block.
        """
        block, row = self._block, self._row + 1
        if row < len(block.numbers) and block.numbers[row] == frame:
            self._row = row
        elif 0 < row <= len(block.numbers) and block.numbers[row - 1] == frame:
            row -= 1  # the same frame was requested again
        elif (found := self._next(frame)) is not None:
            block, row = found, 0
        else:
            self._last = frame
            return None
        self._last = frame
        return None if row in block.damaged else (block.decoded, row)

    def _next(self, frame: int) -> _Block | None:
        """Return the next block if it begins with this frame; otherwise return None.

        In the latter case, start decoding ahead if the requested frames are equally spaced.
        """
        if self._ahead:
            # The error is ignored here, because reading the single frame raises it again, with the
            # frame's number.
            with suppress(OSError):
                _, block = self._ahead.take()
                if block.numbers[0] == frame:
                    if self._block is not _NO_BLOCK:
                        self._decoder.release(self._block)
                    self._block, self._row = block, 0
                    self._ahead.fill()
                    return block
        if self._ahead or self._block is not _NO_BLOCK:
            self.close_files()
            self._regular = 0
        step = frame - self._last
        self._regular = self._regular + 1 if step == self._step else 1
        self._step = step
        if step > 0 and self._regular >= REGULAR and self._possible:
            self._regular = 0
            self._begin(range(frame + step, self._chain.n_frames, step))
            limit_open_files(self)
            self._ahead.fill()
        return None


class FieldReader:
    """Reads fields of frames for atoms in any order, on several threads.

    `columns` are the indices of the requested atoms among the decoded atoms; None if both are the
    same.
    """

    def __init__(self, chain: Chain, source: FrameSource, columns: np.ndarray | None):
        self._chain = chain
        self._source = source
        self._columns = columns
        self._decoder = FrameDecoder(chain, source)
        self.n_atoms = source.n_wanted if columns is None else len(columns)

    def allocate(self, numbers: np.ndarray) -> FrameBuffer:
        """Allocate arrays for the frames with these numbers."""
        return FrameBuffer.allocate(numbers, self.n_atoms, self._source.fields)

    def piece_frames(self, numbers: np.ndarray) -> int:
        """Choose the number of frames that one thread decodes together."""
        step = _mean_step(numbers)
        return max(1, _span(self._chain, self._source.frame_bytes, step) // step)

    def read_alone(self, number: int) -> FrameBuffer:
        """Decode one frame in this thread."""
        limit_open_files(self._decoder)
        decoded = self.allocate(np.array([number]))
        self.decode((decoded, slice(0, 1)), skip=False)
        return decoded

    def read(
        self, parts: Iterable[np.ndarray]
    ) -> Generator[tuple[FrameBuffer, list[tuple[int, str]]], None, None]:
        """Yield the decoded frames of each part and its damaged rows; decode later parts ahead."""
        limit_open_files(self._decoder)
        decode = partial(self.decode, skip=True)
        source = self._source
        if _threads_may_decode(self._chain, source.frame_bytes):
            largest = _span(self._chain, source.frame_bytes, 1) * source.frame_bytes
            is_remote = any(is_address(file.path) for file in source.files)
            announce = partial(_requested, self._chain, source) if is_remote else None
            results: Iterable[Any] = CallsAhead(decode, self._pieces(parts), largest, announce)
        else:
            results = ((piece, decode(piece)) for piece in self._pieces(parts))
        damaged: list[tuple[int, str]] = []
        for (decoded, rows), lost in results:
            damaged.extend((rows.start + row, reason) for row, reason in lost)
            if rows.stop == len(decoded.frames):
                yield decoded, damaged
                damaged = []

    def _pieces(self, parts: Iterable[np.ndarray]) -> Iterator[tuple[FrameBuffer, slice]]:
        """Cut parts into pieces, each for one thread; pieces end at chunk boundaries."""
        for numbers in parts:
            if len(numbers) == 0:
                continue
            decoded = self.allocate(numbers)
            step = _mean_step(numbers)
            span = _span(self._chain, self._source.frame_bytes, step)
            borders = np.arange(0, len(numbers), max(1, span // step))[1:]
            if self._chain.chunk_frames > 1:
                borders = np.flatnonzero(np.diff(numbers // span)) + 1
            for first, stop in pairwise([0, *borders.tolist(), len(numbers)]):
                yield decoded, slice(first, stop)

    def decode(self, piece: tuple[FrameBuffer, slice], *, skip: bool) -> list[tuple[int, str]]:
        """Decode some rows of the arrays; return the unreadable rows with reasons."""
        out = into = piece[0][piece[1]]
        fields = self._source.fields
        if self._columns is not None:
            shape = len(out.frames), self._source.n_wanted, 3
            rooms = {field: np.empty(shape, dtype=np.float32) for field in fields}
            into = replace(out, **rooms)
        damaged = self._decoder(into, skip=skip)
        if self._columns is not None:
            for field in fields:
                # Other modes of `np.take` would make an additional copy.
                np.take(rooms[field], self._columns, axis=1, out=out.array_of(field), mode="clip")
        out.times[:] = self._source.time_axis(out.frames, out.times, out.steps)
        return damaged


def _mean_step(numbers: np.ndarray) -> int:
    """Return the mean distance between successive frame numbers, at least 1."""
    if len(numbers) < 2:
        return 1
    return max(1, abs(int(numbers[-1]) - int(numbers[0])) // (len(numbers) - 1))
