"""What the timings of a run say: numbers, and advice."""

from paceline.performance.advice import advice_of
from paceline.performance.metrics import Report, Spread, report_of
from paceline.performance.text import Advice

__all__ = ["Advice", "Report", "Spread", "advice_of", "report_of"]
