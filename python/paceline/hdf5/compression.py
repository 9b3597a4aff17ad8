"""What is done to the bytes of chunks that we write."""

import re
from dataclasses import dataclass

from paceline.errors import UnsupportedError


@dataclass(frozen=True)
class Compression:
    """What is done to the bytes of a chunk.

    Attributes
    ----------
    shuffle : bool
        Whether the first bytes of all numbers stand before all second ones, and so on: then the
        signs and exponents, which are alike, are together.
    level : int or None
        Of gzip, 1 to 9; None where nothing is compressed.
    """

    shuffle: bool = False
    level: int | None = None


def parse_compression(text: str) -> Compression:
    """What `--compress` asks for.

    Parameters
    ----------
    text : str
        "none", or as "gzip:1" or "shuffle+gzip:4".

    Returns
    -------
    Compression

    Raises
    ------
    UnsupportedError
        It is something else.

    Examples
    --------
    >>> parse_compression("shuffle+gzip:4")
    Compression(shuffle=True, level=4)
    """
    if text == "none":
        return Compression()
    asked = re.fullmatch(r"(shuffle\+)?gzip:([1-9])", text)
    if asked is None:
        raise UnsupportedError(
            f"expected a compression as none, gzip:1 to gzip:9 or shuffle+gzip:4, found {text!r}"
        )
    return Compression(asked[1] is not None, int(asked[2]))


def refuse_packed_space(contiguous: bool, compression: Compression) -> None:
    """Raise where contiguous space is to be compressed.

    Parameters
    ----------
    contiguous : bool
        Whether there are no chunks.
    compression : Compression
        What is to be done to them.

    Raises
    ------
    UnsupportedError
        HDF5 compresses chunks only.
    """
    if contiguous and compression.level is not None:
        raise UnsupportedError("contiguous space cannot be compressed: choose chunks for that")
