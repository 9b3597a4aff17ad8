"""Analyses whose rows depend on all previous frames, and the same as loops over frames."""

import numpy as np

import paceline


class Way:
    """Path length of each atom; the bits of single-precision sums depend on their order."""

    def scan(self, block):
        steps = np.linalg.norm(np.diff(block.positions, axis=0), axis=2)
        return block.positions[0], block.positions[-1], steps.sum(axis=0, dtype=np.float32)

    def merge(self, left, right):
        step = np.linalg.norm(right[0] - left[1], axis=1)
        return left[0], right[1], left[2] + step + right[2]

    def compute(self, block, state):
        last, length = (block.positions[0], 0) if state is None else state[1:]
        steps = np.diff(block.positions, axis=0, prepend=last[None])
        return length + np.linalg.norm(steps, axis=2).cumsum(axis=0, dtype=np.float32)


class PathLength(paceline.AnalysisBase):
    """Path length of each atom up to each frame, Å."""

    stages = 2

    def prepare(self):
        return Way()

    def finish(self, value):
        self.results.lengths = value


def path_lengths(positions):
    """Return the path length of each atom up to each frame, Å, from positions in all frames."""
    steps = np.diff(positions.astype(float), axis=0, prepend=positions[:1])
    return np.linalg.norm(steps, axis=2).cumsum(axis=0)


def is_far(block):
    return np.linalg.norm(block.positions, axis=2) > 26


def seen(block):
    """Return the atoms that have been far from the middle."""
    return is_far(block).any(axis=0)


def either(left, right):
    """Join two states; this changes the first, as `merge` may."""
    left |= right
    return left


def n_seen(block, before):
    """Return how many atoms have been far; this changes the state, as `compute` may do."""
    found = np.zeros(block.positions.shape[1], bool) if before is None else before
    counts = []
    for far in is_far(block):
        found |= far
        counts.append(found.sum())
    return np.array(counts)


def seen_so_far(atoms):
    return paceline.Scan(seen, either, n_seen, atoms)


def opening(block):
    """Return the state after a block from the state before: open or closed, and last change."""
    return np.array([_go_on(block, False)[-1], _go_on(block, True)[-1]])


def _go_on(block, state):
    states = []
    for distance in np.linalg.norm(block.positions[:, -1] - block.positions[:, 0], axis=1):
        state = bool(distance > 10.6 or (state and not distance < 9.6))
        states.append(state)
    return states


def then(first, second):
    return second[first.astype(int)]


def is_open(block, before):
    return np.array(_go_on(block, False if before is None else bool(before[0])))


def open_or_closed(atoms):
    return paceline.Scan(opening, then, is_open, atoms, label="open")
