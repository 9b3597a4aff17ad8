"""Transformations of frames before the analysis.

Each transformation, like an analysis, has a client part and a worker part. The client part runs in
the user's process, and uses MDAnalysis objects. It returns the atoms that must be decoded
(`atoms`), and creates the worker part (`prepare`). The worker part changes the positions of a block
in place (`apply`).
"""

from paceline.contract.transform_interface import Transform
from paceline.transform.molecules import unwrap
from paceline.transform.periodic import center, nojump, wrap
from paceline.transform.superpose import fit

__all__ = ["Transform", "center", "fit", "nojump", "unwrap", "wrap"]
