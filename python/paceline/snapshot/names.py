"""Names of atoms as the core takes them: eight characters, filled up with blanks."""

from typing import Any

import numpy as np

from paceline.errors import UnwritableError

#: Characters of a name.
WIDTH = 8
#: Names looked at together, so that looking takes little memory.
_AT_ONCE = 1 << 16
_BLANK, _LAST = ord(" "), ord("~")


def names_as_bytes(names: Any, ids: np.ndarray) -> np.ndarray:
    """Turn names into characters.

    Parameters
    ----------
    names : array-like of str or bytes, shape (n,), or ndarray of uint8, shape (n, 8)
        Of 1 to 8 printable ASCII characters.
    ids : numpy.ndarray of int64, shape (n,)
        Of the atoms, for messages.

    Returns
    -------
    numpy.ndarray of uint8, shape (n, 8)

    Raises
    ------
    UnwritableError
        One is no such name, or their number is another.

    Examples
    --------
    >>> names_as_bytes(["Na+"], np.array([1])).tobytes()
    b'Na+     '
    """
    found = np.asarray(names)
    if found.dtype != np.uint8:
        found = _characters(found, ids)
    if found.shape != (len(ids), WIDTH):
        raise UnwritableError(f"expected names of {len(ids)} atoms, found those of {len(found)}")
    if not found.all():
        found = np.where(found == 0, np.uint8(_BLANK), found)
    for first in range(0, len(found), _AT_ONCE):
        some = found[first : first + _AT_ONCE]
        blank = some == _BLANK
        odd = (some < _BLANK) | (some > _LAST)
        # Readers take what stands behind a blank for the next column.
        odd[:, 1:] |= blank[:, :-1] & ~blank[:, 1:]
        odd[:, 0] |= blank[:, 0]
        if odd.any():
            atom = int(np.flatnonzero(odd.any(axis=1))[0])
            raise _odd(some[atom].tobytes().rstrip(), ids[first + atom])
    return found


def _characters(names: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """The same of text."""
    if names.ndim != 1:
        raise UnwritableError(f"expected names of shape ({len(ids)},), found {names.shape}")
    if len(names) == 0:
        return np.empty((0, WIDTH), dtype=np.uint8)
    if names.dtype.kind == "O":
        names = names.astype(str)
    if names.dtype.kind not in "US":
        raise UnwritableError(f"expected names as text, found {names.dtype}")
    for atom in np.flatnonzero(np.char.str_len(names) > WIDTH)[:1]:
        raise _odd(names[atom], ids[atom] if atom < len(ids) else atom)
    try:
        text = names.astype(f"S{WIDTH}")
    except UnicodeEncodeError as error:
        raise UnwritableError(
            f"expected names of ASCII characters, found {error.object!r}"
        ) from None
    return text.view(np.uint8).reshape(-1, WIDTH)


def _odd(name: Any, atom: int) -> UnwritableError:
    return UnwritableError(
        f"atom {atom}: expected a name of 1 to {WIDTH} printable ASCII characters without blanks, "
        f"found {name!r}"
    )
