"""Report on a run's timings: numbers and recommendations."""

from paceline.performance.rules import Recommendation, advice_of
from paceline.performance.time_breakdown_and_stragglers import Report, Spread, report_of

__all__ = ["Recommendation", "Report", "Spread", "advice_of", "report_of"]
