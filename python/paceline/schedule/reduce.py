"""Values merged over a binary tree, in the same pairs whatever the order in which they come."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any


def fold(values: Sequence[Any], merge: Callable[[Any, Any], Any]) -> Any:
    """Merge neighbours pairwise, level by level; an odd last one rises as it is.

    Parameters
    ----------
    values : sequence
        At least one.
    merge : callable
        Takes two neighbours, left and right.

    Returns
    -------
    object
        All of them, merged.

    Examples
    --------
    >>> fold("abcde", lambda left, right: f"({left}{right})")
    '(((ab)(cd))e)'
    """
    values = list(values)
    while len(values) > 1:
        pairs = [merge(*values[k : k + 2]) for k in range(0, len(values) - 1, 2)]
        values = pairs + values[2 * len(pairs) :]
    return values[0]


class Tree:
    """Merge values that arrive in any order exactly as `fold` would merge them in order.

    Holds at most a logarithm of them as long as they arrive nearly in order.

    Parameters
    ----------
    n_values : int
        How many will come.
    merge : callable
        Takes two neighbours, left and right.

    Attributes
    ----------
    root : object
        All of them, merged, once all have come.

    Examples
    --------
    >>> tree = Tree(5, lambda left, right: f"({left}{right})")
    >>> for number in (3, 0, 4, 1, 2):
    ...     tree.add(number, "abcde"[number])
    >>> tree.root
    '(((ab)(cd))e)'
    """

    def __init__(self, n_values: int, merge: Callable[[Any, Any], Any]):
        self._n_values = n_values
        self._merge = merge
        self._waiting: dict[tuple[int, int], Any] = {}
        self.root: Any = None

    @property
    def waiting(self) -> Mapping[tuple[int, int], Any]:
        """Values of whole subtrees that wait for their siblings, by (level, number).

        Once all have come, the root alone.
        """
        return self._waiting

    def add(self, number: int, value: Any, level: int = 0) -> None:
        """Add a value, or that of a subtree whose values were merged elsewhere; each once.

        Parameters
        ----------
        number : int
            Of the subtree among those of its level; at level 0, of the value: 0 … n_values - 1.
        value : object
            All values of the subtree, merged.
        level : int
            Of the subtree.
        """
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
