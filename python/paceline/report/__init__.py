"""What the timings of a run say: numbers, and advice."""

from paceline.report.numbers import Report, Spread, report_of

__all__ = ["Report", "Spread", "report_of"]
