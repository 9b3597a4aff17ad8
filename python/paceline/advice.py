"""Advice about a run: its time, what bounds it, and what would help; measured in some seconds."""

from paceline.scaling.advise import Advice, Outline, advise

__all__ = ["Advice", "Outline", "advise"]
