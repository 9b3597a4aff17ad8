"""Published experiments on parallel analysis, at the size of one machine.

One file an experiment, each with an `Experiment`; `python -m benchmarks.experiments` runs them.
"""
