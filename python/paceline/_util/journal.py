"""Journal: an append-only file of checksummed records that survives crashes; its writer locks it.

The file begins with `MAGIC`. Each record has a header of 16 bytes, little-endian: the payload's
length (64 bits), the payload's CRC-32, and the CRC-32 of these twelve bytes. The payload follows.
"""

import contextlib
import os
import struct
import weakref
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Self

from paceline._util.files import (
    check_regular,
    create_temporary,
    publish,
    remove_leftovers,
    temporary_name,
    writing_to,
)
from paceline._util.os_calls import (
    PLAIN,
    WINDOWS,
    after_fork,
    attach,
    detach,
    lock,
    read_at,
    sync_folder,
    write_at,
)
from paceline.errors import CheckpointError

#: Name and version of the format; the version increases when the record layout changes. Version 1
#: identified classes by module. Version 2 stored unit cells as lengths and angles, not as vectors.
MAGIC = b"paceline checkpoint 3\n"
_EARLIER = (b"paceline checkpoint 1\n", b"paceline checkpoint 2\n")
_HEAD = struct.Struct("<QII")
_FLAGS = os.O_RDWR | os.O_CREAT | PLAIN


class Journal:
    """Open journal that is locked against other processes; the file is created if missing.

    `locked` is False on a file system without locks. `size` is the number of bytes up to the end of
    the last record that was read or appended; 0 before. Raises `CheckpointError` for a file that is
    not a journal, has an earlier format, is in use, or is damaged.

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
        self.path = os.path.realpath(path)  # act on the target of a link, and keep the link
        self.size = 0
        check_regular(path)
        with writing_to(self.path):
            self._file = os.open(self.path, _FLAGS, 0o666)
        _open_here.add(self)
        try:
            self.locked = _lock(self._file, self.path)
            self._check_not_replaced()
            self._check_magic()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _check_not_replaced(self) -> None:
        """Raise an error if another run replaced or removed the file before this one locked it."""
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.stat(self.path), os.fstat(self._file)):
                return
        raise CheckpointError(f"{self.path}: another run is using this checkpoint")

    def _check_magic(self) -> None:
        found = read_at(self._file, len(MAGIC), 0)
        if found == MAGIC:
            return
        if found in _EARLIER:
            raise CheckpointError(
                f"{self.path}: this checkpoint was written by an earlier version of paceline, in a "
                "format that this version cannot read; finish the run with the earlier version, or "
                "delete the file to start again"
            )
        if not MAGIC.startswith(found):
            raise CheckpointError(
                f"{self.path}: expected a checkpoint, which begins with {MAGIC!r}, found "
                f"{found!r}; name another file"
            )
        # The file is empty, or a run was killed while it wrote the first bytes.
        try:
            with writing_to(self.path):
                os.ftruncate(self._file, 0)
                _write(self._file, MAGIC, 0)
                sync_folder(os.path.dirname(self.path))
        except OSError:
            self._delete()
            raise

    @property
    def has_records(self) -> bool:
        """True if a record was read or appended."""
        return self.size > len(MAGIC)

    def records(self) -> Iterator[bytes]:
        """Yield every complete record in order; cut off a last record that a crash left incomplete.

        Raises `CheckpointError` for a record that was damaged after it was written.
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

    def read(self, offset: int) -> bytes:
        """Read the payload of a record that was read before; it begins at byte `offset`.

        Raises `CheckpointError` for a record that was damaged after it was written.
        """
        payload = self._record(offset - _HEAD.size, self.size)
        if payload is None:
            raise CheckpointError(f"{self.path}: expected a record at byte {offset}, found none")
        return payload

    def _record(self, offset: int, end: int) -> bytes | None:
        """Return the payload of the record at an offset; None if a crash left it incomplete."""
        head = read_at(self._file, _HEAD.size, offset)
        if len(head) < _HEAD.size:
            return None
        if not any(head) and not any(_read(self._file, end - offset, offset)):
            return None  # the file had grown, but its bytes had not reached the disk
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
        """Add a record and flush it to the disk; after an `OSError` the file is unchanged."""
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
        """Replace all records atomically. After an `OSError` the file is unchanged."""
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
                self._publish(file, new)
        except BaseException:
            os.close(file)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(new)
            raise
        os.close(self._file)
        self._file, self.size = file, size
        sync_folder(os.path.dirname(self.path))

    def _publish(self, file: int, new: Path) -> None:
        """Replace the journal's file by the temporary file `new`."""
        detach(file)
        detach(self._file)
        try:
            publish(new, self.path)
        except BaseException:
            self._attach(self._file)
            raise
        self._attach(file)

    def _attach(self, file: int) -> None:
        attach(file, self.path)
        if WINDOWS and self.locked:
            _lock(file, self.path)

    def remove(self) -> None:
        """Delete the journal's file while it is still locked, and close it."""
        self._remove_leftovers()
        self._delete()

    def _delete(self) -> None:
        detach(self._file)
        os.unlink(self.path)
        self.close()

    def _remove_leftovers(self) -> None:
        """Delete temporary files of runs that were killed while they rewrote the journal."""
        if self.locked:  # without a lock they might belong to another running process
            with contextlib.suppress(OSError):
                remove_leftovers(self.path)

    def close(self) -> None:
        """Close the journal's file, which also unlocks it."""
        _open_here.discard(self)
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


#: Journals open in this process. A forked worker closes them, because otherwise it would keep their
#: locks after its parent was killed.
_open_here: "weakref.WeakSet[Journal]" = weakref.WeakSet()


def _close_in_child() -> None:
    for journal in list(_open_here):
        journal.close()


after_fork(_close_in_child)


def _lock(file: int, path: str) -> bool:
    """Lock a file; return False if its file system has no locks."""
    try:
        return lock(file)
    except BlockingIOError:
        raise CheckpointError(f"{path}: another run is using this checkpoint") from None


def _record(payload: bytes) -> bytes:
    head = struct.pack("<QI", len(payload), zlib.crc32(payload))
    return head + struct.pack("<I", zlib.crc32(head)) + payload


def _write(file: int, data: bytes, offset: int) -> int:
    """Write all bytes at an offset, in as few system calls as possible; return their number."""
    rest = memoryview(data)
    while rest:
        rest = rest[write_at(file, rest, offset + len(data) - len(rest)) :]
    return len(data)


def _read(file: int, length: int, offset: int) -> bytes:
    parts = []
    while length and (part := read_at(file, length, offset)):
        parts.append(part)
        length, offset = length - len(part), offset + len(part)
    return b"".join(parts)
