"""Published experiments on parallel analysis, at the size of one machine.

Each experiment is a file with an `Experiment`; `python -m benchmarks.experiments` runs them.
"""
