"""Cache of the blocks of trajectory files in a folder on each node's local disk."""

import os
import time
from dataclasses import dataclass, field, replace
from typing import Self

from paceline._util.arguments import parse_size
from paceline.errors import UnsupportedError


@dataclass(frozen=True)
class Cache:
    """Folder and limits of a cache, which workers open on their nodes."""

    #: Absolute path. Environment variables in it are expanded by each worker.
    folder: str
    #: Maximum size on each node, bytes; None for half of the free space.
    size: int | None = None
    #: Blocks used after this time are not removed; seconds since 1970.
    since: float = field(default_factory=time.time, compare=False)
    #: True if the folder exists only on one node, and only until the trajectory is closed.
    is_temporary: bool = False

    @classmethod
    def of(cls, folder: str | os.PathLike | None, size: int | str | None) -> Self | None:
        """Check `cache` and `cache_size`, and return the cache; None without a folder."""
        if folder is None:
            if size is not None:
                raise UnsupportedError("cache_size= (--cache-size) needs cache= (--cache)")
            return None
        limit = parse_size(size) if isinstance(size, str) else size
        if limit is not None and limit < 1:
            raise ValueError(f"cache_size must be at least 1 byte, not {limit}")
        name = os.fspath(folder)
        if not name:
            raise UnsupportedError("expected a folder as cache= (--cache), found an empty name")
        if "://" in name:
            raise UnsupportedError(
                f"{name}: expected a folder of this machine as cache= (--cache), found a URL"
            )
        return cls(name if name.startswith("$") else os.path.abspath(name), limit)

    @property
    def is_empty(self) -> bool:
        """True if no process has stored a block in the folder."""
        with os.scandir(self.folder) as entries:
            return not any(entry.is_dir() for entry in entries)

    def here(self) -> "Cache | None":
        """Return the cache with this node's values of environment variables.

        None for a temporary cache that this node does not have.
        """
        if self.is_temporary:
            return self if os.path.isdir(self.folder) else None
        if "$" not in self.folder:
            return self
        folder = os.path.expandvars(self.folder)
        if "$" in folder or not os.path.isabs(folder):
            raise UnsupportedError(
                f"cache {self.folder!r} is {folder!r} here: expected an absolute path, from "
                "environment variables that are set on each node"
            )
        return replace(self, folder=folder)
