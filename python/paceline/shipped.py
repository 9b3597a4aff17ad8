"""A function of MDAnalysis objects on its way to the workers, and what it returns on its way back.

MDAnalysis pickles a whole Universe with each task, and with each result. Here Universes and their
readers travel once; in the function and in its results only their numbers do.
"""

import io
import pickle
from collections.abc import Callable
from typing import Any

import cloudpickle


class Shipped:
    """A function that each call finds as it was given, on Universes that are opened once a worker.

    Parameters
    ----------
    function : callable
        Takes an item.

    Raises
    ------
    Exception
        Whatever pickling the function raises.
    """

    def __init__(self, function: Callable[[Any], Any]):
        # Imported by whoever has such objects, long before.
        from MDAnalysis import Universe
        from MDAnalysis.coordinates.base import ProtoReader

        large: dict[int, Any] = {}
        self._function = _dumps(function, large, (Universe, ProtoReader))
        self._large = list(large.values())
        self._places = [
            (k, reader.ts.frame, reader.ts.positions.copy() if reader.ts.has_positions else None)
            for k, reader in enumerate(self._large)
            if isinstance(reader, ProtoReader)
        ]

    def __call__(self, item: Any) -> bytes:
        """What the function returns of an item, for `receive`."""
        # Each call finds the frames as they were, with what the user changed in them, and a copy of
        # the function: the last call has moved the ones, and may have left something in the other.
        for k, frame, positions in self._places:
            reader = self._large[k]
            reader[frame]
            if positions is not None:
                reader.ts.positions = positions
        function = _loads(self._function, self._large)
        return _dumps(function(item), {id(one): one for one in self._large}, ())

    def receive(self, data: bytes) -> Any:
        """What a call returned; its Universes are those that the function was given with.

        Parameters
        ----------
        data : bytes
            Of a call, in any process.

        Returns
        -------
        object
        """
        return _loads(data, self._large)


class _Pickler(cloudpickle.Pickler):
    """Writes numbers in place of large objects, and makes a list of these."""

    def __init__(self, file: io.BytesIO, large: dict[int, Any], kinds: tuple[type, ...]):
        super().__init__(file)
        self._large, self._kinds = large, kinds
        self._numbers = {key: number for number, key in enumerate(large)}

    def persistent_id(self, thing: Any) -> int | None:
        if id(thing) not in self._numbers:
            if not isinstance(thing, self._kinds):
                return None
            self._numbers[id(thing)] = len(self._large)
            self._large[id(thing)] = thing
        return self._numbers[id(thing)]


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, large: list[Any]):
        super().__init__(file)
        self._large = large

    def persistent_load(self, number: int) -> Any:
        return self._large[number]


def _dumps(thing: Any, large: dict[int, Any], kinds: tuple[type, ...]) -> bytes:
    file = io.BytesIO()
    _Pickler(file, large, kinds).dump(thing)
    return file.getvalue()


def _loads(data: bytes, large: list[Any]) -> Any:
    return _Unpickler(io.BytesIO(data), large).load()
