"""Batches of random frames, or of windows of frames, of many trajectories, for machine learning."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import cast

import numpy as np

from paceline._util.arguments import (
    one_of,
    parse_size,
    slice_of,
    whole_number,
)
from paceline._util.option_values_and_selections import ON_ERROR
from paceline.analysis.training_trajectories import (
    NAMED,
    Feature,
    Trajectories,
    TrajectoryOpener,
    blocks_of_each,
    features_of_each,
)
from paceline.block import field_bits, fields_in
from paceline.contract.transform_interface import Transform
from paceline.errors import (
    warn,
)
from paceline.performance.number_format import amount, joined, many
from paceline.trajectory.shuffled_frames import (
    FrameBatch,
    SampleReader,
)
from paceline.transform.apply_transforms import check_transforms


class FrameBatches:
    """Batches of random frames, or of windows of frames, of many trajectories, as NumPy arrays.

    The order depends on `seed`, on the number of the epoch, and on the arguments that choose
    samples, batches and blocks. It is equal for any number of threads, processes and computers, for
    any memory, and for any atoms and fields. Batches are decoded ahead on all cores. A pickle
    contains names and options, and no open files; the process that receives it opens each file when
    it first reads from it.

    Parameters
    ----------
    trajectories : sequence of Universe, AtomGroup, path-like, or (topology, trajectory, …)
        Trajectories. A name alone is opened by `paceline.open`, without a topology; several names
        in a tuple are topology and trajectories of a Universe. One trajectory needs no list. All
        trajectories must have the same number of selected atoms.
    select : str, optional
        Selection of atoms; by default all, or those of an AtomGroup. A selection by positions, such
        as "around", finds the atoms in the first frame of each trajectory. These atoms must be the
        same in all trajectories that have the same topology.
    batch_size : int
        Number of samples in a batch. The last batch may have fewer.
    window : int
        Number of frames in a sample.
    lag : int
        Distance of the frames in a window, in frames that `start`, `stop` and `step` select. A
        window can begin in any of these frames.
    start, stop, step : int, optional
        Frames of each trajectory, as in a slice.
    fields : sequence of str
        Fields of a batch: "positions", "velocities", "forces".
    transforms : sequence of Transform
        Transformations from `paceline.transform`, applied in this order. `nojump` needs all frames
        in order, and is refused.
    features : mapping of str to feature, optional
        Values of frames by name. A feature is a list with an entry for each trajectory, or only the
        entry if there is one trajectory. An entry is an array with a row for each frame of the
        trajectory, the path of a table that paceline saved, or an analysis with a row for each
        frame. A feature may also be a class or a function that makes the analysis of the chosen
        atoms, such as `RMSD`. Analyses that have not run are run once with the same
        transformations.
    seed : int
        Seed of the order.
    shuffle : bool
        Read samples in random order; with False, in the order of trajectories and frames.
    block_frames : int, or sequence of int with one for each trajectory, optional
        Number of adjacent frames (a block) that are read and stored in memory together; by default
        1. But if reading one frame takes as long as reading several, the default is the number of
        frames in a chunk of an HDF5 file, or in some MiB of an object in an object store. The
        samples of a batch are then from few blocks. Set this number if the order must not depend on
        how files are stored.
    mixed_blocks : int
        Number of blocks that are in use at a time, if blocks have several frames. The samples of a
        batch are from some of these blocks.
    drop_last : bool
        Leave out the last batch if it is shorter. If several processes share an epoch, leave out
        further batches at the end, so that all processes get the same number of batches.
    on_error : {"raise", "skip"}
        Treatment of a frame that cannot be read or transformed, or whose cell is not finite: raise
        an error, or leave out the samples with this frame. No other sample takes their place.
        Trajectories that cannot be opened are left out with a warning.
    max_memory : int or str
        Maximum memory of each process for blocks of several frames, bytes or as "1 GiB"; at least
        one block is stored. If this is less than twice the memory of `mixed_blocks`, blocks are
        decoded several times, and a warning is issued.

    Attributes
    ----------
    names : list of str
        Names of the trajectories; `FrameBatch.trajectories` contains indices in this list.
    n_samples : int
        Number of samples in an epoch.
    n_atoms : int
        Number of atoms in each frame of a sample.
    sample_bytes : int
        Size of the fields of a sample, bytes.
    block_frames : list of int
        Number of adjacent frames of each trajectory that are read together.

    Raises
    ------
    AtomCountError
        Trajectories have different numbers of selected atoms.
    MissingDataError
        A trajectory lacks a field.
    UnsupportedError
        Only MDAnalysis can read a trajectory, a transformation needs frames in order, or a feature
        has no row for each frame.
    ValueError
        No trajectory has enough frames, a feature has another number of rows or is of another
        trajectory, a selection by positions finds different atoms in trajectories of one topology,
        or an argument is invalid.

    Examples
    --------
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import PSF, DCD, DCD2
    >>> from paceline.analysis.rms import RMSD
    >>> batches = paceline.FrameBatches(
    ...     [(PSF, DCD), (PSF, DCD2)], select="name CA", batch_size=50, features={"rmsd": RMSD}
    ... )
    >>> for batch in batches.epoch(0):
    ...     print(batch.positions.shape, batch.features["rmsd"].shape)
    (50, 1, 214, 3) (50, 1)
    (50, 1, 214, 3) (50, 1)
    (50, 1, 214, 3) (50, 1)
    (50, 1, 214, 3) (50, 1)
    """

    def __init__(
        self,
        trajectories: Trajectories | Sequence[Trajectories],
        *,
        select: str | None = None,
        batch_size: int = 64,
        window: int = 1,
        lag: int = 1,
        start: int | None = None,
        stop: int | None = None,
        step: int | None = None,
        fields: Sequence[str] = ("positions",),
        transforms: Sequence[Transform] = (),
        features: Mapping[str, Feature] | None = None,
        seed: int = 0,
        shuffle: bool = True,
        block_frames: int | Sequence[int] | None = None,
        mixed_blocks: int = 64,
        drop_last: bool = False,
        on_error: str = "raise",
        max_memory: int | str = "256 MiB",
    ):
        one_of("on_error", on_error, *ON_ERROR)
        check_transforms(transforms)
        self.batch_size = whole_number("batch_size", batch_size, 1)
        self._seed = whole_number("seed", seed, 0)
        wanted = fields_in(field_bits(fields))
        if not wanted or (transforms and "positions" not in wanted):
            needed = "positions, which transforms change" if wanted else "at least one field"
            raise ValueError(f"expected fields with {needed}, found {list(fields)}")
        chosen = slice_of(start, stop, step)
        if chosen.step is not None and chosen.step < 1:
            raise ValueError(f"step must be at least 1, not {chosen.step}")
        window, lag = whole_number("window", window, 1), whole_number("lag", lag, 1)
        items = list(trajectories) if isinstance(trajectories, list) else [trajectories]
        if not items:
            raise ValueError("expected one trajectory or more, found none")
        mixed = whole_number("mixed_blocks", mixed_blocks, 1)
        opener = TrajectoryOpener(
            select,
            chosen,
            wanted,
            transforms,
            features_of_each(features or {}, len(items)),
            on_error,
            blocks_of_each(block_frames, len(items)),
        )
        sampled = opener.open_all(cast(Sequence[Trajectories], items))
        limit = parse_size(max_memory) if isinstance(max_memory, str) else max_memory
        self._reader = SampleReader(
            sampled, window=window, lag=lag, skip=on_error == "skip", max_memory=limit
        )
        self._warn_of_short((window - 1) * lag + 1)
        self._order = self._reader.order(
            self.batch_size, self._seed, shuffle=shuffle, drop_last=drop_last, mixed_blocks=mixed
        )
        if self._order.blocks is not None and shuffle:
            self._warn_of_memory(mixed, limit)

    def __repr__(self) -> str:
        samples = f"{many(self.n_samples, 'sample')} of {many(self._reader.window, 'frame')}"
        sizes = f"batch_size={self.batch_size}, number of trajectories {len(self.names)}"
        return f"<FrameBatches: {samples} and {many(self.n_atoms, 'atom')}; {sizes}>"

    def _warn_of_short(self, needed: int) -> None:
        """Warn of trajectories that are shorter than a window; raise an error if all are."""
        short = np.flatnonzero(self._reader.counts == 0).tolist()
        with_frames = [k for k in short if len(self._reader.trajectories[k].frames)]
        names = [self.names[k] for k in with_frames or short]
        if len(short) == len(self._reader.counts):
            raise ValueError(
                f"{names[0]}: expected at least {many(needed, 'frame')} for a sample in one "
                f"trajectory, found {len(self._reader.trajectories[short[0]].frames)}: use a "
                "smaller window= or lag=, or other frames"
            )
        if with_frames:
            more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
            warn(
                f"{len(names)} of {len(self._reader.counts)} trajectories have fewer frames than "
                f"the {needed} of a window, and are left out: {joined(names[:NAMED])}{more}"
            )

    def _warn_of_memory(self, mixed: int, limit: int) -> None:
        """Warn if `max_memory` is less than the memory of twice `mixed_blocks` blocks."""
        assert self._order.blocks is not None
        n_blocks = min(2 * mixed, len(self._order.blocks[0]))
        needed = self._reader.memory_of(n_blocks)
        if needed > limit:
            largest = many(self._reader.largest_block, "frame")
            warn(
                f"blocks of {largest} are decoded several times, because {n_blocks} of them take "
                f"{amount(needed)}, more than max_memory ({amount(limit)}): set a larger "
                "max_memory=, a smaller mixed_blocks=, or block_frames=1"
            )

    @property
    def names(self) -> list[str]:
        """Names of the trajectories."""
        return [one.name for one in self._reader.trajectories]

    @property
    def n_samples(self) -> int:
        """Number of samples in an epoch."""
        return self._reader.n_samples

    @property
    def n_atoms(self) -> int:
        """Number of atoms of a sample."""
        return self._reader.trajectories[0].n_atoms

    @property
    def sample_bytes(self) -> int:
        """Size of the fields of a sample, bytes."""
        return self._reader.sample_bytes

    @property
    def block_frames(self) -> list[int]:
        """Number of adjacent frames of each trajectory that are read together."""
        return [one.block_frames for one in self._reader.trajectories]

    def __len__(self) -> int:
        """Return the number of batches in an epoch."""
        return self._order.n_batches

    def __iter__(self) -> Iterator[FrameBatch]:
        """Iterate over the batches of the first epoch."""
        return self.epoch(0)

    def epoch(self, number: int = 0, *, share: tuple[int, int] = (0, 1)) -> Iterator[FrameBatch]:
        """Iterate over the batches of an epoch; the next batches are decoded meanwhile.

        Parameters
        ----------
        number : int
            Number of the epoch, from 0.
        share : pair of int
            Rank and number of the processes that share the batches: rank r of n gets the batches
            r, r + n, r + 2 n and so on. A process decodes its own batches only. With `drop_last`,
            all ranks get equally many batches.

        Returns
        -------
        iterator of FrameBatch
            Batches. With ``on_error="skip"``, batches without a readable sample are left out; if
            several ranks get equally many batches, each such batch is replaced by the previous
            batch of the rank, so that the number stays the same.

        Raises
        ------
        DamagedFileError
            A frame cannot be read, or its cell is not finite, and `on_error` is "raise".
        FileChangedError
            A file has changed since it was opened.
        MissingDataError
            A frame lacks a field, and `on_error` is "raise".
        TransformError
            A frame cannot be transformed, and `on_error` is "raise".
        """
        equal = self._order.drop_last and share[1] > 1
        return self.read_ahead(self.samples(number, share=share), keep_number=equal)

    def read_ahead(
        self, batches: Iterable[np.ndarray], *, keep_number: bool = False
    ) -> Iterator[FrameBatch]:
        """Iterate over batches of chosen samples; the next batches are decoded meanwhile.

        Parameters
        ----------
        batches : iterable of numpy.ndarray of int64, shape (n_batch,)
            Numbers of the samples of each batch.
        keep_number : bool
            Replace a batch without a readable sample, instead of leaving it out, by the last
            readable batch before it; if there is none, by the first readable batch.

        Returns
        -------
        iterator of FrameBatch
            Batches, without those that have no readable sample.

        Raises
        ------
        DamagedFileError
            With `keep_number`, no batch has a readable sample.
        """
        return self._reader.read_ahead(batches, self.batch_size, keep_number=keep_number)

    def samples(self, number: int = 0, *, share: tuple[int, int] = (0, 1)) -> Iterator[np.ndarray]:
        """Iterate over the samples of each batch of an epoch, without decoding them.

        Parameters
        ----------
        number : int
            Number of the epoch, from 0.
        share : pair of int
            Rank and number of the processes that share the batches.

        Returns
        -------
        iterator of numpy.ndarray of int64, shape (n_batch,)
            Numbers of samples, for `read`.
        """
        number = whole_number("number", number, 0)
        size = whole_number("the second number of share", share[1], 1)
        rank = whole_number("the first number of share", share[0], 0, size - 1)
        return self._order.of_epoch(number, (rank, size))

    def read(
        self,
        samples: Sequence[int] | np.ndarray,
        *,
        allocate: Callable[[str, tuple[int, ...]], np.ndarray] | None = None,
    ) -> FrameBatch:
        """Decode samples in the calling thread.

        Parameters
        ----------
        samples : sequence of int
            Numbers of samples, from 0 to `n_samples` - 1, in any order.
        allocate : callable, optional
            Function that takes the name of a field and a shape, and returns a contiguous array of
            float32, into which the field is decoded.

        Returns
        -------
        FrameBatch
            Samples in this order, without those that ``on_error="skip"`` leaves out.

        Raises
        ------
        IndexError
            A sample does not exist.
        DamagedFileError
            A frame cannot be read, and `on_error` is "raise"; other errors are those of `epoch`.
        """
        numbers = np.asarray(samples)
        if numbers.size and numbers.dtype.kind not in "iu":
            raise TypeError(f"samples: expected whole numbers, found an array of {numbers.dtype}")
        return self._reader.read(numbers.astype(np.int64), allocate)
