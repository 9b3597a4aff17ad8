"""Decoded frames that stay in a worker's process from one stage of a run to the next."""

import threading
from collections.abc import Collection
from typing import ClassVar, NamedTuple

from paceline._util.machine import free_memory_fraction
from paceline.block import FrameBuffer
from paceline.schedule.tasks import FrameCaching

#: Without a limit of the user's, frames are kept while a larger fraction of the memory is free.
LEAST_FREE = 0.5


class DecodedBlock(NamedTuple):
    """Frames of a block; number of each frame that was left out, and why.

    The first `n_transforms` transformations of the run were applied.
    """

    frames: FrameBuffer
    damaged: list[tuple[int, str]]
    n_transforms: int


class FrameCache:
    """Decoded blocks by number, as many as there is memory for. Threads share it."""

    _of_runs: ClassVar[dict[str, "FrameCache"]] = {}
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, caching: FrameCaching):
        self._memory, self._is_last = caching.memory, False
        self._blocks: dict[int, DecodedBlock] = {}
        self._n_bytes = 0

    @classmethod
    def of(cls, caching: FrameCaching) -> "FrameCache":
        """Get the cache of a run in this process."""
        with cls._lock:
            cache = cls._of_runs.setdefault(caching.key, cls(caching))
        if caching.last:
            cache._is_last = True
        return cache

    @classmethod
    def drop(cls, keys: Collection[str]) -> None:
        """Drop the caches of runs that have ended."""
        with cls._lock:
            for key in keys:
                cache = cls._of_runs.pop(key, None)
                if cache is not None:
                    cache._memory.give_back(cache._n_bytes)

    @classmethod
    def drop_others(cls, keys: Collection[str]) -> None:
        """Drop all caches but those of some runs: here an earlier run may have failed."""
        cls.drop(cls._of_runs.keys() - set(keys))

    def put(self, number: int, block: DecodedBlock) -> None:
        """Keep a block for the next stage, if there is memory for it."""
        if self._is_last or (self._memory.limit is None and free_memory_fraction() <= LEAST_FREE):
            return
        with self._lock:
            n_bytes = block.frames.nbytes
            if number not in self._blocks and self._memory.take(n_bytes):
                self._blocks[number] = block
                self._n_bytes += n_bytes

    def get(self, number: int) -> DecodedBlock | None:
        """Get a block if it was kept."""
        with self._lock:
            return self._blocks.get(number)
