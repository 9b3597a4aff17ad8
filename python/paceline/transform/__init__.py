"""Transformations of frames, before they are analysed.

Each has two halves, as an analysis has. The user's half knows MDAnalysis's objects: it names the
atoms that it needs (`atoms`) and makes the worker's half (`prepare`), which changes the positions
of a block in place (`apply`).
"""

from paceline.transform.base import Transform
from paceline.transform.molecules import unwrap
from paceline.transform.periodic import center, nojump, wrap
from paceline.transform.superpose import fit

__all__ = ["Transform", "center", "fit", "nojump", "unwrap", "wrap"]
