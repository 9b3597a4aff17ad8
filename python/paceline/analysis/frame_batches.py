"""Batches of random frames, or of windows of frames, of many trajectories: input of learning."""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, TypeAlias, cast, runtime_checkable

import numpy as np

from paceline._util.arguments import (
    one_of,
    parse_size,
    slice_of,
    uses_positions,
    whole_number,
)
from paceline._util.choices import ON_ERROR
from paceline._util.sorting import sorted_unique
from paceline.analysis.base import AnalysisBase
from paceline.analysis.functions import TimeSeries
from paceline.analysis.saved_tables import OF_FRAMES, STEP, read_saved
from paceline.block import field_bits, fields_in
from paceline.contract.atoms import Atoms, attribute_of
from paceline.contract.transform_interface import Transform, WorkerTransform, find_scan
from paceline.errors import (
    AtomCountError,
    MissingDataError,
    PacelineError,
    UnsupportedError,
    warn,
)
from paceline.performance.number_format import amount, joined, many
from paceline.runner import run, trajectory_of
from paceline.trajectory.file_trajectory import FileTrajectory
from paceline.trajectory.file_trajectory import open as open_files
from paceline.trajectory.shuffled_frames import (
    ARRAYS,
    FrameBatch,
    SampledTrajectory,
    SampleReader,
    frames_together,
)
from paceline.transform.apply_transforms import check_transforms, prepare_transforms

#: Fingerprints of files.
_OF_FILES = re.compile("[0-9a-f]{48}(, [0-9a-f]{48})+")
#: Maximum number of trajectories that a warning names.
NAMED = 3

#: Name of a file, or a pattern of names.
FileName: TypeAlias = str | os.PathLike
#: Values of frames: an array, the path of a saved table, or an analysis.
FeatureRows: TypeAlias = np.ndarray | FileName | AnalysisBase
#: A feature of one trajectory, of each trajectory, or a function that makes an analysis of atoms.
Feature: TypeAlias = FeatureRows | Sequence[FeatureRows] | Callable[[Atoms], AnalysisBase]


@runtime_checkable
class HasAtoms(Protocol):
    """Universe, AtomGroup, or trajectory that `paceline.open` has opened."""

    @property
    def atoms(self) -> Atoms:
        """Atoms of the system, or of the group."""


#: Trajectory: atoms, the name of a file without a topology, or names of topology and trajectories.
Trajectories: TypeAlias = HasAtoms | FileName | tuple[FileName, ...]


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
        in a tuple are topology and trajectories of a Universe. One trajectory needs no list. The
        selected atoms of each must be equally many.
    select : str, optional
        Selection of atoms; by default all, or those of an AtomGroup. A selection by positions, such
        as "around", finds the atoms in the first frame of each trajectory. These must be the same
        for all trajectories of a topology.
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
        Values of frames by name. A feature is a list with an entry for each trajectory, or the
        entry if there is one trajectory: an array with a row for each frame of the trajectory, the
        path of a table that paceline saved, or an analysis with a row for each frame. Or it is a
        class or a function that makes the analysis of the chosen atoms, such as `RMSD`. Analyses
        that have not run are run once with the same transformations.
    seed : int
        Seed of the order.
    shuffle : bool
        False for samples in the order of trajectories and frames.
    block_frames : int, or sequence of int with one for each trajectory, optional
        Number of adjacent frames that are read and kept together. By default 1, or, where one frame
        costs as much as several, the number of frames in a chunk of an HDF5 file, or in some MiB of
        an object store. Samples of a batch are then from few blocks. Set it for an order that does
        not depend on how files are stored.
    mixed_blocks : int
        Number of blocks that are in use at a time, if blocks have several frames. A batch is from
        some of them.
    drop_last : bool
        Leave out the last batch if it is shorter. If several processes share an epoch, also leave
        out the last batches, so that all get equally many.
    on_error : {"raise", "skip"}
        Treatment of a frame that cannot be read or transformed, or whose cell is not finite: raise
        an error, or leave out the samples with this frame. No other sample takes their place.
        Trajectories that cannot be opened are left out with a warning.
    max_memory : int or str
        Maximum memory of each process for blocks of several frames, bytes or as "1 GiB"; at least
        one block is kept. With less than twice the memory of `mixed_blocks`, blocks are decoded
        several times; a warning says so.

    Attributes
    ----------
    names : list of str
        Names of the trajectories, which `FrameBatch.trajectories` counts.
    n_samples : int
        Number of samples in an epoch.
    n_atoms : int
        Number of atoms of a sample.
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
        opener = _Opener(
            select,
            chosen,
            wanted,
            transforms,
            _features_of_each(features or {}, len(items)),
            on_error,
            _blocks_of_each(block_frames, len(items)),
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
        """Warn of trajectories that are shorter than a window; raise if there is no other."""
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
        """Warn if the blocks that are in use do not fit into the memory."""
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
            several ranks get equally many batches, each is replaced by the rank's last batch
            before, so that the number stays the same.

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
            Replace a batch without a readable sample by the last batch before it, or by the first
            one, instead of leaving it out.

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
            Function of the name of a field and a shape that returns a contiguous array of float32,
            into which the field is decoded.

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


class _FirstOfTopology(NamedTuple):
    """First trajectory of a topology: its name, and its atoms."""

    name: str
    n_atoms: int
    indices: np.ndarray
    #: True if further trajectories have the same atoms, without reading the topology again.
    is_enough: bool


@dataclass(frozen=True)
class _Opened:
    """Open trajectory, and indices of its chosen atoms; their group if the topology was read."""

    trajectory: FileTrajectory
    indices: np.ndarray
    group: Atoms | None

    @property
    def name(self) -> str:
        """Files of the trajectory."""
        return ", ".join(self.trajectory.filenames)


@dataclass(frozen=True)
class _Opener:
    """Opens trajectories, one after another, and keeps only what samples need."""

    select: str | None
    frames: slice
    fields: tuple[str, ...]
    transforms: Sequence[Transform]
    #: For each trajectory its features by name.
    features: Sequence[Mapping[str, object]]
    on_error: str
    #: For each trajectory the number of frames in a block; None to choose it.
    block_frames: Sequence[int | None]

    def open_all(self, items: Sequence[Trajectories]) -> list[SampledTrajectory]:
        """Open all trajectories; with `on_error`, those that cannot be opened have no frames."""
        found: list[SampledTrajectory | None] = []
        known: dict[str, _FirstOfTopology] = {}
        reasons: list[str] = []
        for item, features, together in zip(items, self.features, self.block_frames, strict=True):
            try:
                one = self._open(item, known)
                self._check_atoms(one, found)
                found.append(self._sampled(one, features, together))
            except (PacelineError, OSError) as error:
                if self.on_error == "raise" or len(items) == 1:
                    raise
                reasons.append(str(error))
                found.append(None)
        first = next((one for one in found if one is not None), None)
        if first is None:
            raise UnsupportedError(f"no trajectory can be opened; the first: {reasons[0]}")
        if reasons:
            more = f"; and {len(reasons) - NAMED} more" if len(reasons) > NAMED else ""
            left = 'are left out, because they cannot be opened (on_error="skip")'
            warn(
                f"{len(reasons)} of {len(items)} trajectories {left}: "
                f"{'; '.join(reasons[:NAMED])}{more}"
            )
        sampled = [
            SampledTrajectory(_name_of(item), first.chain, first.source, range(0))
            if one is None
            else one
            for item, one in zip(items, found, strict=True)
        ]
        _join_features(sampled, first)
        return sampled

    def _open(self, item: Trajectories, known: dict[str, _FirstOfTopology]) -> _Opened:
        """Open one trajectory; a topology that was read is not read again, unless it is needed."""
        given: object = open_files(item) if isinstance(item, str | os.PathLike) else item
        topology = None
        if isinstance(item, tuple):
            if len(item) < 2 or not all(isinstance(one, str | os.PathLike) for one in item):
                raise TypeError(f"expected names (topology, trajectory, …), found {item!r}")
            topology, *files = (os.fspath(name) for name in item)
            if topology in known and known[topology].is_enough:
                first = known[topology]
                return _Opened(open_files(files, n_atoms=first.n_atoms), first.indices, None)
            # Deferred: worker processes import this module, but never MDAnalysis.
            from paceline.universe import Universe

            given = Universe(topology, *files)
        if not isinstance(given, HasAtoms):
            raise TypeError(
                "expected a Universe, an AtomGroup, a trajectory of paceline.open, a name, or "
                f"names (topology, trajectory), found {given!r}"
            )
        group = given.atoms if self.select is None else given.atoms.select_atoms(self.select)
        trajectory = trajectory_of([group], self.transforms)
        if not isinstance(trajectory, FileTrajectory):
            raise UnsupportedError(
                f"{group.universe.trajectory.filename}: only MDAnalysis reads this trajectory, one "
                "frame at a time: write it in another format with paceline.Write or paceline "
                "convert"
            )
        indices = np.asarray(group.indices, dtype=np.int64)
        makes = any(callable(one) for features in self.features for one in features.values())
        by_positions = self.select is not None and uses_positions(self.select)
        is_enough = not (topology is None or self.transforms or makes or by_positions)
        opened = _Opened(trajectory, indices, group)
        file = attribute_of(group.universe, "filename") if topology is None else topology
        if isinstance(file, str):
            n_atoms = len(group.universe.atoms)
            first = known.setdefault(
                file, _FirstOfTopology(opened.name, n_atoms, indices, is_enough)
            )
            if by_positions and not np.array_equal(first.indices, indices):
                raise ValueError(
                    f"{opened.name}: {self.select!r} finds other atoms in its first frame than in "
                    f"that of {first.name}, so that batches would mix different atoms: select "
                    "atoms by their names, or pass an AtomGroup of each trajectory"
                )
        return opened

    def _check_atoms(self, one: _Opened, before: Sequence[SampledTrajectory | None]) -> None:
        """Raise `AtomCountError` if the number of atoms differs from the first trajectory's."""
        first = next((other for other in before if other is not None), None)
        if first is not None and first.n_atoms != len(one.indices):
            selected = "atoms" if self.select is None else f"atoms of {self.select!r}"
            error = AtomCountError(
                f"{one.name}: expected {first.n_atoms} {selected}, as in {first.name}, found "
                f"{len(one.indices)}: select equally many atoms of each trajectory (select=)"
            )
            error.found = len(one.indices)
            raise error

    def _sampled(
        self, one: _Opened, features: Mapping[str, object], together: int | None
    ) -> SampledTrajectory:
        """Describe a trajectory for samples."""
        trajectory, indices = one.trajectory, one.indices
        lacking = [field for field in self.fields if field not in trajectory.fields]
        if lacking:
            raise MissingDataError(
                f"{one.name}: {' and '.join(lacking)} were requested, but the trajectory contains "
                f"{' and '.join(trajectory.fields)} only"
            )
        decoded, prepared = sorted_unique(indices), list[WorkerTransform]()
        if self.transforms:
            assert one.group is not None
            decoded, prepared = prepare_transforms(self.transforms, decoded, one.group.universe)
            if find_scan(prepared) is not None:
                raise UnsupportedError(
                    f"{one.name}: nojump follows atoms from frame to frame, but samples are frames "
                    "in any order: write the transformed trajectory with paceline.Write or "
                    "paceline convert --nojump, and use that"
                )
        is_same = np.array_equal(decoded, indices)
        chosen = range(trajectory.n_frames)[self.frames]
        together = together or frames_together(trajectory.chain, len(chosen))
        source = trajectory.frame_source(decoded, self.fields, self.fields)
        found = SampledTrajectory(
            one.name,
            trajectory.chain,
            # This process may lack the folder of a cache on the nodes' disks.
            replace(source, cache=None),
            chosen,
            block_frames=together,
            transforms=prepared,
            columns=None if is_same else np.searchsorted(decoded, indices),
        )
        made = {
            name: cast(Callable[[Atoms], AnalysisBase], make)(_group_of(one, name))
            for name, make in features.items()
            if callable(make)
        }
        given = {name: rows for name, rows in features.items() if name not in made}
        new = [*made.values(), *(rows for rows in given.values() if _is_new(rows))]
        if new:
            analyses = cast(list[AnalysisBase], new)
            run(analyses, transforms=self.transforms, on_error=self.on_error)
        for name, rows in {**made, **given}.items():
            found.features[name] = _checked(rows, f"features[{name!r}] of {one.name}", trajectory)
        return found


def _blocks_of_each(given: int | Sequence[int] | None, n: int) -> list[int | None]:
    """Return the number of frames in a block of each trajectory; None to choose it."""
    if given is None:
        return [None] * n
    if not isinstance(given, Sequence):
        return [whole_number("block_frames", given, 1)] * n
    if len(given) != n:
        raise ValueError(
            f"block_frames: expected a number for each of {n} trajectories, found {len(given)}"
        )
    return [whole_number(f"block_frames[{k}]", one, 1) for k, one in enumerate(given)]


def _name_of(item: Trajectories) -> str:
    """Name a trajectory that could not be opened."""
    if isinstance(item, str | os.PathLike):
        return os.fspath(item)
    return ", ".join(map(str, item[1:])) if isinstance(item, tuple) else repr(item)


def _join_features(sampled: Sequence[SampledTrajectory], first: SampledTrajectory) -> None:
    """Convert features of all trajectories to a common type; raise for rows of other shapes."""
    for name, rows in first.features.items():
        for one in sampled:
            values = one.features.setdefault(name, rows[:0])
            if values.shape[1:] != rows.shape[1:]:
                raise ValueError(
                    f"features[{name!r}] of {one.name}: expected rows of shape {rows.shape[1:]}, "
                    f"as for {first.name}, found {values.shape[1:]}"
                )
        common = np.result_type(*(one.features[name] for one in sampled))
        for one in sampled:
            one.features[name] = one.features[name].astype(common, copy=False)


def _group_of(one: _Opened, name: str) -> Atoms:
    """Return the atoms from which a feature is computed."""
    assert one.group is not None, name
    return one.group


def _is_new(rows: object) -> bool:
    """True for an analysis that has not run."""
    return isinstance(rows, AnalysisBase) and not rows.results


def _features_of_each(features: Mapping[str, Feature], n: int) -> list[dict[str, object]]:
    """Return the features of each of `n` trajectories by name."""
    found: list[dict[str, object]] = [{} for _ in range(n)]
    for name, given in features.items():
        if name in ARRAYS:
            raise ValueError(f"features: {name!r} is an array of each batch; use another name")
        if callable(given):
            entries: Sequence[object] = [given] * n
        elif isinstance(given, list):
            entries = given
        else:
            entries = [given]
        if len(entries) != n:
            raise ValueError(
                f"features[{name!r}]: expected a list with an entry for each of {n} trajectories, "
                f"found {len(entries)}"
            )
        for own, entry in zip(found, entries, strict=True):
            own[name] = entry
    return found


def _checked(rows: object, what: str, trajectory: FileTrajectory) -> np.ndarray:
    """Return a feature's row for each frame of a trajectory; raise if there are not as many."""
    numbers = None
    if isinstance(rows, str | os.PathLike):
        what = f"{what}, {os.fspath(rows)}"
        saved = read_saved(rows)
        _check_content(saved.facts, what, trajectory)
        columns = saved.columns
        numbers = columns.get(OF_FRAMES[0])
        rows = _stacked([columns[title] for title in columns if title not in (*OF_FRAMES, STEP)])
    elif isinstance(rows, AnalysisBase):
        numbers, rows = rows.frames, _rows_of(rows, what)
    values = np.asarray(rows)
    if values.dtype.kind not in "biuf" or values.ndim == 0:
        raise UnsupportedError(
            f"{what}: expected a row of numbers for each frame, found {values.dtype} of shape "
            f"{values.shape}"
        )
    n_frames = trajectory.n_frames
    if len(values) != n_frames:
        raise ValueError(
            f"{what}: expected {many(n_frames, 'row')}, one for each frame of the trajectory, "
            f"found {len(values)}: compute it for all frames"
        )
    if numbers is not None and not np.array_equal(numbers, np.arange(n_frames)):
        odd = int(np.flatnonzero(np.asarray(numbers) != np.arange(n_frames))[0])
        raise ValueError(
            f"{what}: expected frame {odd} in row {odd}, found frame {numbers[odd]:g}: compute it "
            "for all frames, in order"
        )
    return values


def _check_content(facts: Mapping[str, str], what: str, trajectory: FileTrajectory) -> None:
    """Raise `ValueError` if a table was computed from files of another content."""
    saved, found = facts.get("fingerprint", ""), trajectory.content
    names = [facts.get("trajectory", ""), *trajectory.filenames]
    # A store, and frames in memory, are identified by other means than the samples of a local file.
    if any("://" in name for name in names) or not (_OF_FILES.fullmatch(f"{saved}, {found}")):
        return
    if saved != found:
        raise ValueError(
            f"{what}: expected a table of {', '.join(trajectory.filenames)}, found one of "
            f"{names[0]}, whose content is another (fingerprint {saved}, not {found}): if the "
            "frames are the same, pass its columns as an array"
        )


def _rows_of(analysis: AnalysisBase, what: str) -> np.ndarray:
    """Return the rows of an analysis: its time series, or the columns of its table."""
    if isinstance(analysis, TimeSeries):
        return np.asarray(analysis.results.timeseries)
    table = analysis.results.table
    columns = []
    if table is not None and table.is_series and OF_FRAMES[0] in table.columns:
        columns = [table.columns[title] for part in table.panels or [table] for title in part.y]
    if not columns:
        raise UnsupportedError(
            f"{what}: {analysis.name} has no row for each frame; use TimeSeries, or an array"
        )
    return _stacked(columns)


def _stacked(columns: Sequence[np.ndarray]) -> np.ndarray:
    """Join columns, float64, shape (n_rows,) or (n_rows, n_columns)."""
    if len(columns) == 1:
        return np.asarray(columns[0], dtype=np.float64)
    return np.column_stack(columns).astype(np.float64) if columns else np.empty((0, 0))
