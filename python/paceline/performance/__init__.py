"""Performance of runs: record, summary, report, forecast, and scaling."""
