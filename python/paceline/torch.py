"""Frames of trajectories as data of PyTorch: `FrameDataset`, on top of `paceline.FrameBatches`.

Example::

    import paceline
    from paceline.torch import FrameDataset

    batches = paceline.FrameBatches([("a.psf", "a.xtc"), ("b.psf", "b.xtc")], select="name CA")
    for batch in FrameDataset(batches).loader(num_workers=2):
        batch["positions"]          # tensor of float32, (64, 1, n_atoms, 3), Å

A worker process receives the names of files, opens a file when it first reads from it, and decodes
frames into memory that it shares with the training process. `FrameBatches` decides which frames are
in which batch; this module only makes tensors.
"""

import math
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, TypeAlias, cast

import numpy as np

from paceline._util.arguments import whole_number
from paceline.analysis.training_batches import FrameBatches
from paceline.errors import DamagedFileError, UnsupportedError
from paceline.trajectory.shuffled_frames import FrameBatch, replace_empty

if TYPE_CHECKING:
    from torch import Tensor

#: Tensors of a training sample, or of a batch of samples, by name.
Tensors: TypeAlias = "dict[str, Tensor]"


def _torch() -> ModuleType:
    """Import torch. This takes a second, so `import paceline.torch` does not do it."""
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise UnsupportedError(
            "paceline.torch needs the package torch; install it with: pip install 'paceline[torch]'"
        ) from None
    import torch.utils.data

    return torch


class FrameDataset:
    """Random frames, or windows of frames, of many trajectories, as tensors.

    A map-style dataset: ``dataset[5]`` is one training sample (a frame or window), and
    ``dataset[[5, 1]]`` a batch, whose samples are decoded together. Both are dicts of tensors: the
    arrays of a `FrameBatch` by name, and the features. `loader` yields such batches in the order of
    `FrameBatches`, without copies. The dataset also works with any `torch.utils.data.DataLoader`,
    and with its samplers.

    Parameters
    ----------
    batches : FrameBatches
        Trajectories, atoms, windows, features and order.

    Attributes
    ----------
    batches : FrameBatches
        Argument `batches`, which yields the same samples as NumPy arrays.

    Raises
    ------
    UnsupportedError
        The package torch is not installed.

    Examples
    --------
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import PSF, DCD
    >>> from paceline.torch import FrameDataset
    >>> pairs = paceline.FrameBatches((PSF, DCD), select="name CA", window=2, lag=5)
    >>> for batch in FrameDataset(pairs).loader():  # doctest: +SKIP
    ...     print(batch["positions"].shape)
    torch.Size([64, 2, 214, 3])
    torch.Size([29, 2, 214, 3])
    """

    def __init__(self, batches: FrameBatches):
        if not isinstance(batches, FrameBatches):
            raise TypeError(f"expected paceline.FrameBatches, found {batches!r}")
        _torch()
        self.batches = batches

    def __len__(self) -> int:
        """Return the number of samples."""
        return self.batches.n_samples

    def __getitem__(self, samples: int | Sequence[int] | np.ndarray) -> Tensors:
        """Decode one sample, or a batch of samples."""
        if not isinstance(samples, int | np.integer):
            return _as_tensors(self.read(samples))
        batch = self.read([int(samples)])
        if len(batch["samples"]) == 0:
            raise DamagedFileError(
                f"sample {samples} cannot be read, and a single sample cannot be left out: read "
                "batches, as the loader does"
            )
        return {name: values[0] for name, values in _as_tensors(batch).items()}

    def __getitems__(self, samples: Sequence[int]) -> list[Tensors]:
        """Decode the samples of a batch at once, for loaders that join single samples."""
        batch = self.read(samples)
        n_read = len(batch["samples"])
        tensors = _as_tensors(batch)
        return [{name: values[k] for name, values in tensors.items()} for k in range(n_read)]

    def read(self, samples: Sequence[int] | np.ndarray) -> "Mapping[str, np.ndarray | Tensor]":
        """Decode samples; in a worker process of a loader, fields are tensors in shared memory.

        Parameters
        ----------
        samples : sequence of int
            Numbers of samples; negative ones count from the end.

        Returns
        -------
        mapping of str to numpy.ndarray or torch.Tensor
            Arrays of the batch by name.
        """
        numbers = np.asarray(samples)
        if numbers.size and numbers.dtype.kind not in "iu":
            raise TypeError(f"samples: expected whole numbers, found an array of {numbers.dtype}")
        numbers = numbers.astype(np.int64)
        numbers = np.where(numbers < 0, numbers + len(self), numbers)
        if _torch().utils.data.get_worker_info() is None:
            return self.batches.read(numbers).arrays()
        shared: Tensors = {}

        def allocate(field: str, shape: tuple[int, ...]) -> np.ndarray:
            shared[field] = _shared_tensor(shape)
            return shared[field].numpy()

        batch = self.batches.read(numbers, allocate=allocate)
        # If samples were left out because they cannot be read, only the arrays of the batch have no
        # rows for them, and the shared tensors are not returned.
        return {**batch.arrays(), **(shared if len(batch) == len(numbers) else {})}

    def loader(
        self, *, num_workers: int = 0, share: tuple[int, int] = (0, 1), **options: object
    ) -> "FrameLoader":
        """Return an iterable over batches; each loop over it yields the batches of the next epoch.

        The order depends on the seed and on the number of the epoch alone, and is equal for any
        `num_workers`.

        Parameters
        ----------
        num_workers : int
            Number of worker processes. With 0, threads of this process decode batches ahead.
        share : pair of int
            Rank and number of processes that train together. Each gets its own batches, and all get
            equally many; remaining batches are left out. With ``on_error="skip"``, a batch without
            a readable sample is replaced by the last batch before it that has samples, or else by
            the first one.
        **options
            Options of `torch.utils.data.DataLoader` for worker processes, such as ``pin_memory``,
            ``persistent_workers``, ``prefetch_factor`` and ``multiprocessing_context``.

        Returns
        -------
        FrameLoader
            Iterable of dicts of tensors.

        Raises
        ------
        TypeError
            An option is not possible, because `FrameBatches` decides on the order and the size of
            batches, or because there are no worker processes.
        """
        return FrameLoader(self, whole_number("num_workers", num_workers, 0), share, options)


class FrameLoader:
    """Loader of training batches, which `FrameDataset.loader` makes.

    Each loop over the loader yields the batches of the next epoch. Batches without a readable
    sample are left out, or replaced if several processes share the batches.
    """

    def __init__(
        self,
        dataset: FrameDataset,
        num_workers: int,
        share: tuple[int, int],
        options: Mapping[str, object],
    ):
        taken = {"batch_size", "shuffle", "sampler", "batch_sampler", "drop_last", "collate_fn"}
        if odd := sorted(taken & options.keys()):
            raise TypeError(
                f"loader: FrameBatches decides on {odd[0]}: see its batch_size, shuffle, seed and "
                "drop_last"
            )
        if options and num_workers == 0:
            raise TypeError(f"loader: {', '.join(options)} needs worker processes (num_workers=)")
        self._dataset, self._n_workers = dataset, num_workers
        self._options = {name: one for name, one in options.items() if name != "pin_memory"}
        self._pins = bool(options.get("pin_memory"))
        self._order = _EpochOrder(dataset.batches, share)
        # Processes that train together need equally many batches, because they wait for each other
        # after each batch.
        self._keeps_number = share[1] > 1
        self._kept: tuple[Iterable[_Sent], _Slots] | None = None

    def __len__(self) -> int:
        """Return the number of batches in an epoch."""
        return len(self._order)

    def set_epoch(self, epoch: int) -> None:
        """Set the number of the epoch that the next iteration yields.

        Parameters
        ----------
        epoch : int
            Number, from 0.
        """
        self._order.epoch = whole_number("epoch", epoch, 0)

    def __iter__(self) -> Iterator[Tensors]:
        """Iterate over the batches of the next epoch."""
        if self._n_workers == 0:
            ahead = self._dataset.batches.read_ahead(self._order, keep_number=self._keeps_number)
            yield from (_as_tensors(batch.arrays()) for batch in ahead)
            return
        processes, slots = self._kept or self._start()
        # Do not reuse the slots if the loop ends early: persistent workers may still write into
        # them.
        self._kept = None
        received: Iterator[Tensors] = map(slots.receive, processes)
        if self._keeps_number:
            received = replace_empty(received, _samples_of, self._dataset.__getitem__)
        for tensors in received:
            if len(tensors["samples"]):
                yield _pinned(tensors) if self._pins else tensors
        if self._options.get("persistent_workers"):
            self._kept = processes, slots

    def _start(self) -> "tuple[Iterable[_Sent], _Slots]":
        """Make torch's loader, and the slots of shared memory into which its workers decode."""
        batches = self._dataset.batches
        ahead = cast(int, self._options.get("prefetch_factor") or 2)
        # Each worker fills `ahead` slots, and the training loop uses one while it receives the
        # next.
        n_slots = self._n_workers * ahead + 3
        slots = _Slots(n_slots, batches.batch_size * batches.sample_bytes)
        loader = _torch().utils.data.DataLoader(
            _WholeBatches(self._dataset, slots),
            batch_size=None,
            sampler=_WithSlots(self._order, slots),
            num_workers=self._n_workers,
            collate_fn=_unchanged,
            **self._options,
        )
        return loader, slots


class _EpochOrder:
    """Sampler that yields, for each batch of the next epoch, the numbers of its samples."""

    def __init__(self, batches: FrameBatches, share: tuple[int, int]):
        self._batches, self._share, self.epoch = batches, share, 0
        batches.samples(0, share=share)  # checks the share

    def __len__(self) -> int:
        return len(self._batches) // self._share[1]

    def __iter__(self) -> Iterator[np.ndarray]:
        epoch, self.epoch = self.epoch, self.epoch + 1
        samples = self._batches.samples(epoch, share=self._share)
        for _, batch in zip(range(len(self)), samples, strict=False):
            yield batch


@dataclass(frozen=True)
class _Sent:
    """Batch from a worker: arrays that are sent, and shapes of the fields that are in a slot."""

    slot: int | None
    shapes: Mapping[str, tuple[int, ...]]
    arrays: "Mapping[str, np.ndarray | Tensor]"

    @classmethod
    def of(
        cls, batch: FrameBatch, n: int, slot: int, shapes: Mapping[str, tuple[int, ...]]
    ) -> "_Sent":
        """Describe a batch of `n` samples, whose fields were decoded into a slot."""
        arrays = batch.arrays()
        if len(batch) < n:  # the slot also has rows for samples that were left out
            return cls(slot, {}, arrays)
        return cls(slot, shapes, {name: arrays[name] for name in arrays if name not in shapes})


class _Slots:
    """Parts of shared memory, each for a batch; a slot is free again when its tensors are deleted.

    If shared memory were allocated for each batch, this would take as long as decoding the batch.
    If the training loop keeps so many batches that no slot is free, workers use new memory.
    """

    def __init__(self, n: int, n_bytes: int):
        self._memory = [_shared_tensor((-(-n_bytes // 4),)) for _ in range(n)]
        self._free = deque(range(n))

    def __getstate__(self) -> dict[str, object]:
        return {"_memory": self._memory}

    def take(self) -> int | None:
        """Remove a slot from the free ones, and return its number; None if no slot is free."""
        return self._free.popleft() if self._free else None

    def memory(self, slot: int) -> np.ndarray:
        """Return the memory of a slot as an array of float32."""
        return self._memory[slot].numpy()

    def receive(self, sent: _Sent) -> Tensors:
        """Return the tensors of a batch; its slot is free again when no tensor is in use."""
        found, used = _as_tensors(sent.arrays), 0
        if sent.slot is None:
            return found
        users = len(sent.shapes)
        if not users:
            self._free.append(sent.slot)
        left = [users]
        for name, shape in sent.shapes.items():
            n = math.prod(shape)
            values = self.memory(sent.slot)[used : used + n].reshape(shape)
            used += n
            # The tensor and all of its views refer to this array, and to no other of the slot.
            weakref.finalize(values, self._release, sent.slot, left).atexit = False
            found[name] = _torch().from_numpy(values)
        return found

    def _release(self, slot: int, left: list[int]) -> None:
        """Count down the tensors of a slot that are in use; free the slot after the last one."""
        left[0] -= 1
        if left[0] == 0:
            self._free.append(slot)


class _WithSlots:
    """Sampler that yields the samples of each batch with a free slot, or None if none is free."""

    def __init__(self, order: _EpochOrder, slots: _Slots):
        self._order, self._slots = order, slots

    def __len__(self) -> int:
        return len(self._order)

    def __iter__(self) -> Iterator[tuple[np.ndarray, int | None]]:
        for samples in self._order:
            yield samples, self._slots.take()


class _WholeBatches:
    """Dataset whose items are batches, for worker processes."""

    def __init__(self, dataset: FrameDataset, slots: _Slots):
        self._dataset, self._slots = dataset, slots

    def __getitem__(self, chosen: tuple[np.ndarray, int | None]) -> _Sent:
        """Decode a batch, into its slot if it has one."""
        samples, slot = chosen
        if slot is None:
            return _Sent(None, {}, self._dataset.read(samples))
        memory, shapes, used = self._slots.memory(slot), dict[str, tuple[int, ...]](), 0

        def allocate(field: str, shape: tuple[int, ...]) -> np.ndarray:
            nonlocal used
            shapes[field], n = shape, math.prod(shape)
            used += n
            return memory[used - n : used].reshape(shape)

        batch = self._dataset.batches.read(samples, allocate=allocate)
        return _Sent.of(batch, len(samples), slot, shapes)


def _unchanged(batch: object) -> object:
    """Return a batch unchanged, as arrays, because sending small arrays is faster than tensors."""
    return batch


def _samples_of(tensors: Tensors) -> np.ndarray:
    """Return the numbers of the samples of a batch."""
    numbers: np.ndarray = tensors["samples"].numpy()
    return numbers


def _pinned(tensors: Tensors) -> Tensors:
    """Copy tensors into memory from which a GPU reads fast."""
    return {name: one.pin_memory() for name, one in tensors.items()}


def _as_tensors(batch: "Mapping[str, np.ndarray | Tensor]") -> Tensors:
    """Convert arrays to tensors that share their memory."""
    as_tensor = _torch().as_tensor
    return {name: as_tensor(values) for name, values in batch.items()}


def _shared_tensor(shape: tuple[int, ...]) -> "Tensor":
    """Allocate float32 in memory that other processes can map, as torch's own collation does."""
    torch = _torch()
    storage = torch.UntypedStorage._new_shared(4 * max(1, math.prod(shape)))
    strides = torch.empty(shape, device="meta").stride()
    return torch.empty(0, dtype=torch.float32).set_(storage, 0, shape, strides)
