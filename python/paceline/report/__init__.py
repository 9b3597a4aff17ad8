"""What the timings of a run say: numbers, and advice."""

from paceline.report.advice import advice_of
from paceline.report.numbers import Report, Spread, report_of
from paceline.report.words import Advice

__all__ = ["Advice", "Report", "Spread", "advice_of", "report_of"]
