"""Transformations of frames, before they are analysed.

Each has two halves, as an analysis has. The one that the user holds knows MDAnalysis's objects: it
says which atoms it needs (`atoms`) and makes the other half (`prepare`), which travels to the
workers and changes the positions of a block in place (`apply`).
"""

from paceline.schedule.interfaces import Transform
from paceline.transform.periodic import center, unwrap, wrap
from paceline.transform.superpose import fit

__all__ = ["Transform", "center", "fit", "unwrap", "wrap"]
