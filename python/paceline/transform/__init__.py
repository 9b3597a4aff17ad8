"""Transformations of frames before the analysis.

Each transformation has a client part and a worker part, as an analysis has. The client part uses
MDAnalysis's objects: it names the atoms that it needs (`atoms`) and makes the worker part
(`prepare`), which changes the positions of a block in place (`apply`).
"""

from paceline.contract.transform_interface import Transform
from paceline.transform.molecules import unwrap
from paceline.transform.periodic import center, nojump, wrap
from paceline.transform.superpose import fit

__all__ = ["Transform", "center", "fit", "nojump", "unwrap", "wrap"]
