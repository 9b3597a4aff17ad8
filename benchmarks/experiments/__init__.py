"""The published experiments on parallel analysis, at the size of the machine that they run on.

One file an experiment, each with an `Experiment`; `python -m benchmarks.experiments` runs them.
"""
