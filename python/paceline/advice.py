"""Advice about a run: its time, what bounds it, and what would help; measured in some seconds."""

from paceline.scaling.advise import advise
from paceline.scaling.run_advice import Advice
from paceline.scaling.sample_run import Outline, open_samples

__all__ = ["Advice", "Outline", "advise", "open_samples"]
