"""Analysis with three stages: a merged result, rows, and a merged result."""

import numpy as np

import paceline


class Total:
    """Number of frames, and sum of positions."""

    def compute(self, block):
        return np.array([len(block)]), block.positions.sum(axis=0, dtype=float)

    def merge(self, left, right):
        return [a + b for a, b in zip(left, right, strict=True)]


class Deviation:
    """Root mean square distance of each frame from given positions."""

    def __init__(self, positions):
        self.positions = positions

    def compute(self, block):
        squares = ((block.positions - self.positions) ** 2).sum(axis=2)
        return np.sqrt(squares.mean(axis=1))


class Largest:
    """Largest distance from any of the given rows."""

    def __init__(self, rows):
        self.limit = np.nanmean(rows)

    def compute(self, block):
        return np.array([np.sum(np.abs(block.positions) > self.limit)])

    def merge(self, left, right):
        return left + right


class Spread(paceline.AnalysisBase):
    """Deviation from the mean, and number of coordinates beyond its mean, in three stages."""

    stages = 3

    def prepare(self):
        self.found = []
        return Total()

    def next_stage(self, value):
        self.found.append(value)
        if len(self.found) == 1:
            (count,), total = value
            return Deviation(total / count)
        return Largest(value)

    def finish(self, value):
        self.results.spread, self.results.beyond = self.found[1], int(value[0])
