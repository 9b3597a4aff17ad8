"""Tree reduction: merge partial results in the same pairs, in whatever order they come."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from paceline.schedule.tasks import BlockResult, Job, Records, WorkerAnalysis


def tree_reduce(values: Sequence[Any], merge: Callable[[Any, Any], Any]) -> Any:
    """Merge neighbours pairwise, level by level; an odd last one rises unchanged.

    Examples
    --------
    >>> tree_reduce("abcde", lambda left, right: f"({left}{right})")
    '(((ab)(cd))e)'
    """
    values = list(values)
    while len(values) > 1:
        pairs = [merge(*values[k : k + 2]) for k in range(0, len(values) - 1, 2)]
        values = pairs + values[2 * len(pairs) :]
    return values[0]


class TreeReduction:
    """Merge values that arrive in any order exactly as `tree_reduce` merges them in order.

    Holds at most a logarithm of them if they arrive nearly in order. `root` is the result once all
    `n_values` have arrived.

    Examples
    --------
    >>> reduction = TreeReduction(5, lambda left, right: f"({left}{right})")
    >>> for number in (3, 0, 4, 1, 2):
    ...     reduction.add(number, "abcde"[number])
    >>> reduction.root
    '(((ab)(cd))e)'
    """

    def __init__(self, n_values: int, merge: Callable[[Any, Any], Any]):
        self._n_values = n_values
        self._merge = merge
        self._waiting: dict[tuple[int, int], Any] = {}
        self.root: Any = None

    @property
    def waiting(self) -> Mapping[tuple[int, int], Any]:
        """Values of subtrees whose siblings are missing, by (level, number); at last the root."""
        return self._waiting

    def add(self, number: int, value: Any, level: int = 0) -> None:
        """Add the value of a subtree, once: `number` counts the subtrees of its level."""
        width = -(-self._n_values >> level)
        while width > 1:
            sibling = number ^ 1
            if sibling < width:
                if (level, sibling) not in self._waiting:
                    self._waiting[level, number] = value
                    return
                other = self._waiting.pop((level, sibling))
                pair = (other, value) if sibling < number else (value, other)
                value = self._merge(*pair)
            level, number, width = level + 1, number // 2, -(-width // 2)
        self._waiting[level, number] = self.root = value


def merge_results(job: Job, level: int, results: Sequence[BlockResult]) -> BlockResult:
    """Merge the results of all blocks of a subtree, or of its two halves, given in order."""
    first = results[0]
    values = [result.values for result in results if result.values is not None]
    return BlockResult(
        first.job,
        level,
        first.number >> level - first.level,
        first.first,
        sum(result.n_frames for result in results),
        [
            _merge_values(analysis, [of_block[k] for of_block in values])
            for k, analysis in enumerate(job.analyses)
        ],
        np.concatenate([result.times for result in results if result.times is not None]),
        [damage for result in results for damage in result.damaged],
        [timing for result in results for timing in result.timings],
        [bonds for result in results for bonds in result.long_bonds],
    )


def _merge_values(analysis: WorkerAnalysis, values: Sequence[Any]) -> Any:
    if analysis.per_block:
        return {number: value for of_block in values for number, value in of_block.items()}
    if analysis.reduces:
        return tree_reduce(values, analysis.merge)
    if analysis.ragged:
        counts = np.concatenate([of_block.counts for of_block in values])
        found = [of_block.records for of_block in values if of_block.records is not None]
        return Records(counts, _joined(analysis, found) if found else None)
    return _joined(analysis, values)


def _joined(analysis: WorkerAnalysis, values: Sequence[np.ndarray]) -> np.ndarray:
    """Join the rows of neighbours; raise `AnalysisError` where they are not alike."""
    for rows in values:
        analysis.check_rows_match(rows, values[0])
    return np.concatenate(values)
