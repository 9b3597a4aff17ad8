"""Decode the next frames on other threads, while a loop over frames works on this one."""

import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from multiprocessing import parent_process
from typing import Any, TypeVar

import numpy as np

from paceline._util.machine import available_cpus
from paceline.block import FrameBuffer
from paceline.trajectory.chain import Chain
from paceline.trajectory.source import FrameReader, FrameSource, limit_open_files

_T = TypeVar("_T")

#: Bytes of the frames of a block, about: few enough to be in the caches when they are used.
BLOCK_BYTES = 2**20
#: Frames of a block, at most, where several are not stored as one.
BLOCK_FRAMES = 64
#: Bytes of decoded frames that wait, at most; of larger frames one waits.
WAITING_BYTES = 64 * 2**20
#: Frames at even distances, before others are read ahead of being asked for.
REGULAR = 4


@cache
def _threads() -> ThreadPoolExecutor:
    """Threads of this process that decode ahead, shared by all trajectories."""
    return ThreadPoolExecutor(_n_threads(), thread_name_prefix="paceline-read-ahead")


@cache
def _n_threads() -> int:
    """Number of these threads: worker processes share the cores with one another."""
    return 1 if parent_process() is not None else available_cpus()


if hasattr(os, "register_at_fork"):
    # A forked process has none of the parent's threads.
    os.register_at_fork(after_in_child=_threads.cache_clear)


@dataclass(frozen=True)
class _Block:
    """Decoded frames, the rows that could not be read, and the arrays that hold them."""

    numbers: Sequence[int]
    decoded: FrameBuffer
    damaged: frozenset[int]
    buffer: FrameBuffer


class _Decoder:
    """Decodes blocks on any thread; keeps readers and arrays for the next ones."""

    def __init__(self, chain: Chain, source: FrameSource):
        self._chain = chain
        self._source = source
        self._readers: list[FrameReader] = []
        self._buffers: list[FrameBuffer] = []

    def __call__(self, numbers: Sequence[int]) -> _Block:
        """Decode frames; those that cannot be read are named."""
        source = self._source
        frames = np.array(numbers)
        reader = _taken(self._readers) or source.open()
        buffer = _taken(self._buffers)
        if buffer is None or len(buffer.frames) < len(frames):
            buffer = FrameBuffer.allocate(frames, source.n_wanted, source.fields)
        decoded = buffer[: len(frames)]
        stats = reader.read(self._chain.extents(frames), decoded, skip=True)
        self._readers.append(reader)
        return _Block(numbers, decoded, frozenset(row for row, _ in stats.damaged), buffer)

    def release(self, block: _Block) -> None:
        """Use a block's arrays again."""
        self._buffers.append(block.buffer)


def _taken(things: list[_T]) -> _T | None:
    """Take one that no other thread takes; None if there is none."""
    try:
        return things.pop()
    except IndexError:
        return None


_NO_BLOCK: Any = _Block((), None, frozenset(), None)  # type: ignore[arg-type]


class ReadAhead:
    """Frames of a trajectory, decoded before they are asked for where they come at even distances.

    Parameters
    ----------
    chain : Chain
        The files.
    source : FrameSource
        The atoms and fields to be decoded.
    """

    def __init__(self, chain: Chain, source: FrameSource):
        self._chain = chain
        self._source = source
        self._frame_bytes = 12 * max(1, source.n_wanted) * max(1, len(source.fields))
        # A chunk that is too large to be kept whole is read by one reader, which keeps a part.
        self._possible = chain.chunk_frames * self._frame_bytes <= WAITING_BYTES
        self._last = self._step = self._regular = 0
        self._process = os.getpid()
        self._forget()

    def _forget(self) -> None:
        """Have no frames, no arrays and no files."""
        self._block, self._row = _NO_BLOCK, -1
        self._blocks: Iterator[Sequence[int]] = iter(())
        self._waiting: deque[Future[_Block]] = deque()
        self._decoder = _Decoder(self._chain, self._source)

    def close_files(self) -> None:
        """Close all files, and drop the frames that wait."""
        for future in self._waiting:
            future.cancel()
        self._forget()

    def find(self, frame: int) -> tuple[FrameBuffer, int] | None:
        """Get the block and row of a frame; None if the caller should read it by itself.

        The arrays are used again after the next call.
        """
        block, row = self._block, self._row + 1
        if row < len(block.numbers) and block.numbers[row] == frame:
            self._row = row
        elif 0 < row <= len(block.numbers) and block.numbers[row - 1] == frame:
            row -= 1  # the same frame again
        elif (found := self._next(frame)) is not None:
            block, row = found, 0
        else:
            self._last = frame
            return None
        self._last = frame
        return None if row in block.damaged else (block.decoded, row)

    def _next(self, frame: int) -> _Block | None:
        """Get the next block if the frame begins it; else look for even distances."""
        if self._process != os.getpid():
            self._process = os.getpid()
            self._forget()
        if self._waiting:
            # Reading the frame alone raises the error again, with the frame's number.
            with suppress(OSError):
                block = self._waiting.popleft().result()
                if block.numbers[0] == frame:
                    if self._block is not _NO_BLOCK:
                        self._decoder.release(self._block)
                    self._block, self._row = block, 0
                    self._submit()
                    return block
        if self._waiting or self._block is not _NO_BLOCK:
            self.close_files()
            self._regular = 0
        step = frame - self._last
        self._regular = self._regular + 1 if step == self._step else 1
        self._step = step
        if step > 0 and self._regular >= REGULAR and self._possible:
            self._regular = 0
            self._blocks = self._cut(range(frame + step, self._chain.n_frames, step))
            limit_open_files(self)
            self._submit()
        return None

    def _cut(self, frames: range) -> Iterator[Sequence[int]]:
        """Cut frames into blocks, which end where chunks do."""
        wanted = max(1, min(BLOCK_FRAMES, BLOCK_BYTES // self._frame_bytes)) * frames.step
        span = self._chain.chunk_frames * max(1, wanted // self._chain.chunk_frames)
        return (list(block) for _, block in groupby(frames, key=lambda frame: frame // span))

    def _submit(self) -> None:
        """Have threads decode further blocks, as many as may wait."""
        block_bytes = 0
        while not self._waiting or (
            len(self._waiting) < 2 * _n_threads()
            and (len(self._waiting) + 1) * block_bytes <= WAITING_BYTES
        ):
            numbers = next(self._blocks, None)
            if numbers is None:
                return
            block_bytes = self._frame_bytes * len(numbers)
            self._waiting.append(_threads().submit(self._decoder, numbers))
