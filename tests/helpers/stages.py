"""An analysis of three stages: of a merged result, of rows, and merged again."""

import numpy as np

import paceline


class Total:
    """Number of frames, and sum of positions."""

    def compute(self, block):
        return np.array([len(block)]), block.positions.sum(axis=0, dtype=float)

    def merge(self, left, right):
        return [a + b for a, b in zip(left, right, strict=True)]


class Deviation:
    """Root mean square distance from given positions, of each frame."""

    def __init__(self, positions):
        self.positions = positions

    def compute(self, block):
        squares = ((block.positions - self.positions) ** 2).sum(axis=2)
        return np.sqrt(squares.mean(axis=1))


class Largest:
    """Largest distance from any of given rows."""

    def __init__(self, rows):
        self.limit = np.nanmean(rows)

    def compute(self, block):
        return np.array([np.sum(np.abs(block.positions) > self.limit)])

    def merge(self, left, right):
        return left + right


class Spread(paceline.AnalysisBase):
    """Deviation from the mean, and how many coordinates are beyond its mean: three stages."""

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
