"""What one frame costs a worker that has the machine to itself."""

import math
from dataclasses import dataclass

from paceline.errors import UnsupportedError


@dataclass(frozen=True, slots=True)
class FrameCost:
    """What one frame costs a worker that has the machine to itself.

    Attributes
    ----------
    read : float
        Waiting for its bytes, s: the part that reading ahead does not hide.
    decode : float
        Turning bytes into positions, s.
    compute : float
        The analysis, s; transformations count as part of it.
    bytes : float
        Bytes read from the file.

    Raises
    ------
    UnsupportedError
        A number is negative, infinite or not a number, or nothing takes any time.

    Examples
    --------
    >>> cost = FrameCost(read=20e-6, decode=30e-6, compute=90e-6, bytes=12_000)
    >>> f"{cost.seconds * 1e6:.0f} µs"
    '140 µs'
    """

    read: float
    decode: float
    compute: float
    bytes: float

    def __post_init__(self) -> None:
        for name in ("read", "decode", "compute", "bytes"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise UnsupportedError(f"{name} of a frame: expected 0 or more, found {value}")
        if self.seconds == 0:
            raise UnsupportedError("a frame that takes no time: expected more than 0 s in all")

    @property
    def seconds(self) -> float:
        """Time of a frame, s: reading, decoding and computing."""
        return self.read + self.decode + self.compute
