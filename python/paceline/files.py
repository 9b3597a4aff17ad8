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
    FileNotFoundError
        Its folder does not exist.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "table.csv"
    >>> with new_file(path) as file:
    ...     _ = file.write("frame,RMSD")
    >>> path.read_text()
    'frame,RMSD'
    """
    path = Path(path)
    refuse_impossible(path, overwrite=overwrite)
    mode, encoding, newline = ("wb", None, None) if binary else ("w", "utf-8", "")
    with writing_to(path):
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            with open(descriptor, mode, encoding=encoding, newline=newline) as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            refuse_impossible(path, overwrite=overwrite)
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


def refuse_impossible(path: str | os.PathLike, *, overwrite: bool) -> None:
    """Raise where a file cannot be made: before hours of work rather than after them.

    Parameters
    ----------
    path : path-like
        Name of the file.
    overwrite : bool
        Whether a file of that name may be replaced.

    Raises
    ------
    FileExistsError
        There is a file of that name and it is not to be replaced.
    FileNotFoundError
        Its folder does not exist.
    """
    if not overwrite and os.path.lexists(path):
        raise FileExistsError(f"{os.fspath(path)} exists; overwriting it must be asked for")
    folder = Path(path).parent
    if not folder.is_dir():
        raise FileNotFoundError(f"{os.fspath(path)}: there is no folder {folder}")
