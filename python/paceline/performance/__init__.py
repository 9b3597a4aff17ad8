"""Timings of runs: records, metrics, stragglers, advice, figures, reports."""
