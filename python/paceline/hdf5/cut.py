"""A file that was cut, as HDF5's library accepts it: as long as it says that it was."""

import io
import os

#: Of a file that says that it was longer than so many times what is left, nothing is believed.
MOST = 64


class CutFile(io.RawIOBase):
    """The bytes of a file that are left; reading any behind them is an error.

    Parameters
    ----------
    path : str
        The file.
    size : int
        Bytes that it says it had.
    """

    def __init__(self, path: str, size: int):
        self._file = open(path, "rb", buffering=0)  # noqa: SIM115
        self._left = os.fstat(self._file.fileno()).st_size
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """Where reading goes on, bytes."""
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go on elsewhere.

        Parameters
        ----------
        offset : int
            Bytes.
        whence : int
            From the beginning, from here, or from where the file ended.

        Returns
        -------
        int
            Where that is.
        """
        begin = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = begin + offset
        return self._at

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Fill a buffer, or raise `OSError` where that takes bytes that were cut off."""
        if self._at + len(buffer) > self._left:
            raise OSError(f"bytes behind {self._left} were cut off")
        done = os.preadv(self._file.fileno(), [buffer], self._at)
        self._at += done
        return done

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()
        super().close()
