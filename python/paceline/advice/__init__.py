"""What a run would take, what bounds it, and what would help: measured in some seconds."""

from paceline.advice.advice import Advice
from paceline.advice.advising import advise
from paceline.advice.outline import Outline

__all__ = ["Advice", "Outline", "advise"]
