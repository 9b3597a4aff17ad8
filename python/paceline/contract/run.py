"""Facts about a run over one trajectory: its options, and what is known of its frames."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from paceline.contract.transforms import Transform


@dataclass(frozen=True)
class RunContext:
    """Options of a run that change what an analysis sees."""

    #: Transformations, in this order.
    transforms: Sequence[Transform] = ()
    #: True if frames that cannot be read are left out.
    skip_damaged: bool = False


@dataclass(frozen=True)
class RunInfo:
    """Facts about the frames of a run; the engine replaces it as more becomes known."""

    #: Frame numbers, int64, shape (n_frames,).
    frames: np.ndarray
    #: The files that are read, the transformations, and warnings about them.
    provenance: dict[str, Any]
    #: Times of the frames, ps, float64, shape (n_frames,); NaN for frames that were left out.
    #: None before a pass has read the frames.
    times: Any = None
    #: Number and reason of each frame that was left out so far.
    damaged: list[tuple[int, str]] = field(default_factory=list)
    #: None before the end.
    timings: Any = None

    def with_warnings(self, warnings: Sequence[str]) -> "RunInfo":
        """Make a copy whose provenance has warnings, if there are any."""
        said = {"warnings": "; ".join(warnings)} if warnings else {}
        return replace(self, provenance=self.provenance | said)


#: Attributes that an analysis has after a run.
RUN_ATTRIBUTES = tuple(one.name for one in fields(RunInfo))
