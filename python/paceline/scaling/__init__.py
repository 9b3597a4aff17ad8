"""How the time of an analysis changes with the number of workers: measured, summed up, drawn."""

from paceline.scaling.measure import Point, ScalingRun, Spread, points, quantities, save_runs

__all__ = ["Point", "ScalingRun", "Spread", "points", "quantities", "save_runs"]
