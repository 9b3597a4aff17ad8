"""One clear error for each way in which HDF5's library fails."""

import contextlib
import re
from collections.abc import Iterator

from paceline.errors import DamagedFileError, PacelineError

#: What h5py raises of a file that the library finds wrong.
H5PY_ERRORS = (OSError, RuntimeError, KeyError, ValueError, TypeError, OverflowError)


def damaged(path: str, what: str, expected: str, found: str, offset: int = 0) -> DamagedFileError:
    """An error that says what of a file is wrong.

    Parameters
    ----------
    path : str
        The file.
    what : str
        The object in it.
    expected, found : str
        What should be there, and what is.
    offset : int
        Byte, where it is known.

    Returns
    -------
    DamagedFileError
    """
    at = f"byte {offset}: " if offset else ""
    where = f"{what}: " if what else ""
    error = DamagedFileError(f"{path}: {where}{at}expected {expected}, found {found}")
    error.path, error.frame, error.offset = path, None, offset
    error.expected, error.found = expected, found
    return error


@contextlib.contextmanager
def asking(path: str, what: str, expected: str = "readable data") -> Iterator[None]:
    """Say in one error what the library could not do.

    Parameters
    ----------
    path : str
        The file.
    what : str
        The object in it that is asked for.
    expected : str
        What should be there.

    Yields
    ------
    None

    Raises
    ------
    DamagedFileError
        The library failed.
    """
    try:
        yield
    except PacelineError:
        raise
    except MemoryError as error:
        raise damaged(path, what, expected, "more than memory holds") from error
    except H5PY_ERRORS as error:
        raise damaged(path, what, expected, f"what HDF5 refuses ({reason_of(error)})") from error


def reason_of(error: BaseException) -> str:
    """The library's reason in one line."""
    text = str(error.args[-1] if isinstance(error, KeyError) and error.args else error)
    inner = re.search(r"\((.*)\)", text, re.DOTALL)
    return " ".join((inner[1] if inner else text).split()) or type(error).__name__
