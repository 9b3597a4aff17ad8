"""What one frame costs a worker, and what a whole run takes at that: pure arithmetic."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Self

from paceline.timing import BlockTiming, Timings


@dataclass(frozen=True)
class Costs:
    """What one frame costs one worker, seconds.

    Attributes
    ----------
    read : float
        Waiting for bytes: what reading ahead does not hide.
    decode, transform, compute : float
        Decoding, transforming positions, and the analyses' own time.
    rest : float
        All else: being dealt blocks, and waiting for the interpreter between them.
    """

    read: float
    decode: float
    transform: float
    compute: float
    rest: float

    @property
    def seconds(self) -> float:
        """All of it."""
        return sum(self.parts.values())

    @property
    def parts(self) -> dict[str, float]:
        """Each part by its name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True)
class Measured:
    """What a part of a run told.

    Attributes
    ----------
    costs : Costs
        Of a frame, by one of them.
    n_bytes : float
        Read of a frame, bytes.
    opening : float
        Opening the file by one worker, s.
    fixed : float
        What such a run takes whatever its length: planning, starting workers, opening, ending, s.
    """

    costs: Costs
    n_bytes: float
    opening: float
    fixed: float

    @classmethod
    def middle(cls, several: Sequence[Self]) -> Self:
        """The median of several, by what a frame takes."""
        return sorted(several, key=lambda one: one.costs.seconds)[(len(several) - 1) // 2]


def measured(timings: Timings, t_open: float) -> Measured:
    """What the timings of a part of a run tell of a frame.

    Parameters
    ----------
    timings : Timings
        Of the part.
    t_open : float
        What looking at the trajectory took before, s.

    Returns
    -------
    Measured
    """
    blocks_of: dict[str, list[BlockTiming]] = {}
    for block in sorted(timings.blocks, key=lambda block: block.start):
        blocks_of.setdefault(block.worker, []).append(block)
    n_frames = timings.n_frames
    # From a worker's first block until its last: then the others may still be at work.
    spans = sum(own[-1].end - own[0].start for own in blocks_of.values())
    names = ("read", "decode", "transform", "compute")
    parts = {name: sum(getattr(block, name) for block in timings.blocks) for name in names}
    opening = sum(block.open for block in timings.blocks)
    parts["rest"] = max(0, spans - opening - sum(parts.values()))
    opening_each = opening / len(blocks_of) / 1e9
    begun = min(own[0].start for own in blocks_of.values())
    at_work = (max(own[-1].end for own in blocks_of.values()) - begun) / 1e9
    return Measured(
        costs=Costs(**{name: value / n_frames / 1e9 for name, value in parts.items()}),
        n_bytes=sum(block.bytes for block in timings.blocks) / n_frames,
        opening=opening_each,
        fixed=t_open + max(0.0, timings.t_total - at_work) + opening_each,
    )
