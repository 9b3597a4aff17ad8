"""A file of checksummed records that grows, is locked by who writes it, and survives a crash.

It begins with `MAGIC`. Then come records, each with a head of 16 bytes, little-endian: the length
of its payload (64 bits), the payload's CRC-32, and the CRC-32 of these twelve bytes; then the
payload.
"""

import contextlib
import errno
import os
import struct
import weakref
import zlib
from collections.abc import Iterable, Iterator
from typing import Self

from paceline._util.files import (
    create_temporary,
    publish,
    refuse_special,
    remove_leftovers,
    temporary_name,
    writing_to,
)
from paceline.errors import CheckpointError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

#: Name and version of the form.
MAGIC = b"paceline checkpoint 1\n"
_HEAD = struct.Struct("<QII")
_FLAGS = os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
#: What `flock` says on a file system that knows no locks.
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


class Journal:
    """An open journal, that nobody else may open meanwhile.

    Parameters
    ----------
    path : path-like
        The file; made where there is none.

    Attributes
    ----------
    path : str
    locked : bool
        Whether others are kept out; False where the file system knows no locks.
    size : int
        Bytes up to the end of the last whole record.

    Raises
    ------
    CheckpointError
        The file is something else, is in use, or was damaged.

    Examples
    --------
    >>> import tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "journal")
    >>> with Journal(path) as journal:
    ...     journal.append(b"first")
    >>> with Journal(path) as journal:
    ...     list(journal.records())
    [b'first']
    """

    def __init__(self, path: str | os.PathLike):
        self.path = os.path.realpath(path)  # a link stays, its target is replaced and deleted
        self.size = 0
        refuse_special(path)
        with writing_to(self.path):
            self._file = os.open(self.path, _FLAGS, 0o666)
        _open_here.add(self)
        try:
            self.locked = _lock(self._file, self.path)
            self._refuse_replaced()
            self._check_magic()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _refuse_replaced(self) -> None:
        """Another run may have rewritten, or removed, the file between our opening and locking."""
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.stat(self.path), os.fstat(self._file)):
                return
        raise CheckpointError(f"{self.path}: another run is using this checkpoint")

    def _check_magic(self) -> None:
        found = os.pread(self._file, len(MAGIC), 0)
        if found == MAGIC:
            return
        if not MAGIC.startswith(found):
            raise CheckpointError(
                f"{self.path}: expected a checkpoint, which begins with {MAGIC!r}, found "
                f"{found!r}; name another file"
            )
        # Nothing yet, or made by a run that was killed as it began.
        try:
            with writing_to(self.path):
                os.ftruncate(self._file, 0)
                _write(self._file, MAGIC, 0)
                _sync_folder(self.path)
        except OSError:
            os.unlink(self.path)
            raise

    def records(self) -> Iterator[bytes]:
        """Every whole record, in order. What a crash left of one more is cut off.

        Yields
        ------
        bytes

        Raises
        ------
        CheckpointError
            A record was damaged after it had been written.
        """
        end = os.fstat(self._file).st_size
        self.size = len(MAGIC)
        while self.size < end:
            payload = self._record(self.size, end)
            if payload is None:
                os.ftruncate(self._file, self.size)
                return
            self.size += _HEAD.size + len(payload)
            yield payload

    def _record(self, offset: int, end: int) -> bytes | None:
        """The record at a byte; None where a crash ended it."""
        head = os.pread(self._file, _HEAD.size, offset)
        if len(head) < _HEAD.size:
            return None
        if not any(head) and not any(_read(self._file, end - offset, offset)):
            return None  # the file had grown, but its bytes had not come to the disk
        length, of_payload, of_head = _HEAD.unpack(head)
        if zlib.crc32(head[:12]) != of_head:
            raise self._damage(offset, of_head, zlib.crc32(head[:12]))
        stop = offset + _HEAD.size + length
        if stop > end:
            return None
        payload = _read(self._file, length, offset + _HEAD.size)
        if zlib.crc32(payload) == of_payload:
            return payload
        if stop == end:
            return None
        raise self._damage(offset, of_payload, zlib.crc32(payload))

    def _damage(self, offset: int, expected: int, found: int) -> CheckpointError:
        return CheckpointError(
            f"{self.path}: record at byte {offset}: expected checksum {expected:08x}, found "
            f"{found:08x}; the checkpoint was damaged after it was written: delete it to begin anew"
        )

    def append(self, payload: bytes) -> None:
        """Add a record; it is on the disk when this returns.

        Parameters
        ----------
        payload : bytes
            The record.

        Raises
        ------
        OSError
            It could not be written; the file is as it was.
        """
        self.size = self.size or len(MAGIC)
        record = _record(payload)
        try:
            with writing_to(self.path):
                _write(self._file, record, self.size)
                os.fsync(self._file)
        except BaseException:
            os.ftruncate(self._file, self.size)
            raise
        self.size += len(record)

    def rewrite(self, payloads: Iterable[bytes]) -> None:
        """Put other records in the place of all: at any moment the file has the ones or the others.

        Parameters
        ----------
        payloads : iterable of bytes
            The records.

        Raises
        ------
        OSError
            They could not be written; the file is as it was.
        """
        self._remove_leftovers()
        new = temporary_name(self.path)
        with writing_to(self.path):
            file = create_temporary(new, self.path)
        try:
            with writing_to(self.path):
                if self.locked:
                    _lock(file, self.path)
                size = _write(file, MAGIC, 0)
                for payload in payloads:
                    size += _write(file, _record(payload), size)
                os.fsync(file)
                publish(new, self.path)
        except BaseException:
            os.close(file)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(new)
            raise
        os.close(self._file)
        self._file, self.size = file, size
        _sync_folder(self.path)

    def remove(self) -> None:
        """Delete the file, before another run may have it."""
        self._remove_leftovers()
        os.unlink(self.path)
        self.close()

    def _remove_leftovers(self) -> None:
        """Delete what runs left that were killed as they rewrote the file."""
        if self.locked:  # otherwise they might be another run's, that is alive
            with contextlib.suppress(OSError):
                remove_leftovers(self.path)

    def close(self) -> None:
        """Let go of the file."""
        _open_here.discard(self)
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


#: A forked worker would hold the lock after its parent was killed.
_open_here: "weakref.WeakSet[Journal]" = weakref.WeakSet()


def _close_in_child() -> None:
    for journal in list(_open_here):
        journal.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)


def _lock(file: int, path: str) -> bool:
    """Whether the file could be locked."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise CheckpointError(f"{path}: another run is using this checkpoint") from None
    except OSError as error:
        if error.errno in _NO_LOCKS:
            return False
        raise
    return True


def _sync_folder(path: str) -> None:
    """Have a new name on the disk, where folders can be waited for."""
    with contextlib.suppress(OSError):
        folder = os.open(os.path.dirname(path), os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _record(payload: bytes) -> bytes:
    head = struct.pack("<QI", len(payload), zlib.crc32(payload))
    return head + struct.pack("<I", zlib.crc32(head)) + payload


def _write(file: int, data: bytes, offset: int) -> int:
    """Write all of it; one call, unless the system takes less at a time."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.pwrite(file, rest, offset + len(data) - len(rest)) :]
    return len(data)


def _read(file: int, length: int, offset: int) -> bytes:
    parts = []
    while length and (part := os.pread(file, length, offset)):
        parts.append(part)
        length, offset = length - len(part), offset + len(part)
    return b"".join(parts)
