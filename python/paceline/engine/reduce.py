"""Tree reduction: merge partial results in the same pairs, whatever the order of arrival."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np

from paceline.contract.analysis_kinds import MERGED, Kind
from paceline.engine.result_arrays import are_unread, replace_unread
from paceline.engine.tasks_and_results import BlockResult, Job, Records, WorkerAnalysis

T = TypeVar("T")

#: Number of values of a `TreeReduction` whose end is not known: only complete subtrees are merged.
UNKNOWN_LENGTH = 2**62


def tree_reduce(values: Sequence[T], merge: Callable[[T, T], T]) -> T:
    """Merge neighbours pairwise, level by level; a last value without a neighbour moves up a level.

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


def tree_accumulate(
    values: Iterable[T], merge: Callable[[T | None, T], T], initial: T | None = None
) -> Iterator[T | None]:
    """Yield `initial`, then the merged result after each value; the last one is the total.

    Complete subtrees are merged as by `tree_reduce`. They are then joined from left to right, the
    largest first. A sequence can therefore be split between subtrees: pass the merged result before
    the second part as its `initial`. If `initial` is None, `merge` must accept None.

    Examples
    --------
    >>> def join(left, right):
    ...     return f"({left}{right})" if left else right
    >>> list(tree_accumulate("abcd", join))
    [None, 'a', '(ab)', '((ab)c)', '((ab)(cd))']
    >>> list(tree_accumulate("cd", join, initial="(ab)"))
    ['(ab)', '((ab)c)', '((ab)(cd))']
    """
    # For each complete subtree: level, merged value, and merged result of everything before it.
    subtrees: list[tuple[int, T, T | None]] = []
    after = initial
    yield after
    for value in values:
        level, before = 0, after
        while subtrees and subtrees[-1][0] == level:
            _, left, before = subtrees.pop()
            value, level = merge(left, value), level + 1
        subtrees.append((level, value, before))
        after = merge(before, value)
        yield after


class TreeReduction(Generic[T]):
    """Merge values that arrive in any order into exactly the result of `tree_reduce`.

    If values arrive nearly in order, the number of stored values grows as the logarithm of
    `n_values`. `root` is the result after all `n_values` values have arrived.

    Examples
    --------
    >>> reduction = TreeReduction(5, lambda left, right: f"({left}{right})")
    >>> for number in (3, 0, 4, 1, 2):
    ...     reduction.add(number, "abcde"[number])
    >>> reduction.root
    '(((ab)(cd))e)'
    """

    def __init__(self, n_values: int, merge: Callable[[T, T], T]):
        self._n_values = n_values
        self._merge = merge
        self._waiting: dict[tuple[int, int], T] = {}
        self.root: T | None = None

    @property
    def waiting(self) -> Mapping[tuple[int, int], T]:
        """Subtrees that wait for their sibling, by (level, number); at the end only the root."""
        return self._waiting

    def add(self, number: int, value: T, level: int = 0) -> None:
        """Add the value of a subtree; `number` is its index among the subtrees of its level."""
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


def states_before(analysis: WorkerAnalysis, changes: Mapping[int, object]) -> list[object]:
    """Compute the state before each block, by block number, from the changes of all blocks."""
    all_but_last = (changes[number] for number in range(len(changes) - 1))
    with analysis.naming_errors():
        return list(tree_accumulate(all_but_last, analysis.merge_states))


def merge_results(job: Job, level: int, results: Sequence[BlockResult]) -> BlockResult:
    """Merge the results of all blocks of a subtree, or of its two halves, in order."""
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


def _merge_values(analysis: WorkerAnalysis, values: Sequence[Any]) -> object:
    if analysis.kind is Kind.BLOCKS:
        return {number: value for of_block in values for number, value in of_block.items()}
    if analysis.kind in MERGED:
        return tree_reduce(values, analysis.merge)
    if analysis.kind is Kind.RECORDS:
        counts = np.concatenate([of_block.counts for of_block in values])
        found = [of_block.records for of_block in values if of_block.records is not None]
        return Records(counts, join_rows(analysis, found) if found else None)
    return join_rows(analysis, values)


def join_rows(analysis: WorkerAnalysis, values: Sequence[np.ndarray]) -> np.ndarray:
    """Join the rows of adjacent blocks; raise `AnalysisError` if shapes or dtypes differ."""
    computed = [rows for rows in values if not are_unread(rows)]
    if not computed:
        return np.concatenate(values)
    for rows in computed:
        analysis.check_rows_match(rows, computed[0])
    shape, dtype = computed[0].shape[1:], computed[0].dtype
    return np.concatenate([replace_unread(rows, shape, dtype) for rows in values])
