"""What one frame costs a worker that has the machine to itself."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from paceline.errors import UnsupportedError
from paceline.timing import BlockTiming


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
        The analysis, s, with transformations and what else a block takes.
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

    @classmethod
    def of(cls, blocks: Iterable[BlockTiming]) -> Self:
        """Take the mean of a run that was measured, of one worker.

        Parameters
        ----------
        blocks : iterable of BlockTiming
            Its timings.

        Returns
        -------
        FrameCost
            Opening the file is no part of it.

        Raises
        ------
        UnsupportedError
            There are no frames.

        Examples
        --------
        >>> import paceline
        >>> from MDAnalysisTests.datafiles import PSF, DCD
        >>> from paceline.analysis.rms import RMSD
        >>> rmsd = RMSD(paceline.Universe(PSF, DCD), select="name CA").run(backend="serial")
        >>> FrameCost.of(rmsd.timings.blocks).seconds > 0
        True
        """
        blocks = list(blocks)
        n_frames = sum(block.n_frames for block in blocks)
        if n_frames == 0:
            raise UnsupportedError("no frames were timed: expected 1 or more, found 0")
        at_work = sum(block.end - block.start - block.open for block in blocks)
        read, decode = (
            sum(getattr(block, part) for block in blocks) for part in ("read", "decode")
        )
        return cls(
            read=read / n_frames / 1e9,
            decode=decode / n_frames / 1e9,
            compute=(at_work - read - decode) / n_frames / 1e9,
            bytes=sum(block.bytes for block in blocks) / n_frames,
        )

    @property
    def seconds(self) -> float:
        """Time of a frame, s: reading, decoding and computing."""
        return self.read + self.decode + self.compute
