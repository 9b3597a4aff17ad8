"""Transformations of frames, before they are analysed.

Each has two halves, as an analysis has. The client part knows MDAnalysis's objects: it names the
atoms that it needs (`atoms`) and makes the worker part (`prepare`), which changes the positions
of a block in place (`apply`).
"""

from paceline.contract.transforms import Transform
from paceline.transform.molecules import unwrap
from paceline.transform.periodic import center, nojump, wrap
from paceline.transform.superpose import fit

__all__ = ["Transform", "center", "fit", "nojump", "unwrap", "wrap"]
