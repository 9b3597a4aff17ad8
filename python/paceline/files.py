"""Files that we write: whole under their final name, or not there at all."""

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any


@contextlib.contextmanager
def new_file(
    path: str | os.PathLike, *, overwrite: bool = False, binary: bool = False
) -> Iterator[IO[Any]]:
    """Open a file that appears under its name when the `with` block ends without an error.

    Parameters
    ----------
    path : path-like
        Final name.
    overwrite : bool
        Whether a file of that name may be replaced.
    binary : bool
        Whether bytes are to be written, rather than text.

    Yields
    ------
    file object
        A temporary file in the same folder.

    Raises
    ------
    FileExistsError
        There is a file of that name and it is not to be replaced.
    """
    path = Path(path)
    refuse_existing(path, overwrite=overwrite)
    mode, encoding, newline = ("wb", None, None) if binary else ("w", "utf-8", "")
    with writing_to(path):
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            with open(descriptor, mode, encoding=encoding, newline=newline) as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            refuse_existing(path, overwrite=overwrite)
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
            raise


@contextlib.contextmanager
def writing_to(path: str | os.PathLike) -> Iterator[None]:
    """Name the file in errors of the operating system, which else name a temporary one or none."""
    try:
        yield
    except FileExistsError:
        raise
    except OSError as error:
        error.filename = os.fspath(path)
        raise


def refuse_existing(path: str | os.PathLike, *, overwrite: bool) -> None:
    """Raise `FileExistsError` where `path` exists and is not to be overwritten."""
    if not overwrite and os.path.lexists(path):
        raise FileExistsError(f"{os.fspath(path)} exists; overwriting it must be asked for")
