"""A file, or a list of them, as one trajectory."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from paceline import _core
from paceline.errors import AtomCountError, UnsupportedError
from paceline.frames import Extents, Member, neighbours
from paceline.hdf5.asked import NOTHING_ASKED, Asked
from paceline.indexed import TrajectoryFile, extents_in
from paceline.opening import open_files, warn
from paceline.restarts import follow, report_losses, report_repeats


class Chain:
    """Files one after another, each with its frame index; none of them is held open.

    Parameters
    ----------
    names : sequence of path-like
        The files.
    n_atoms : int, optional
        Atoms that each must have; by default as many as the first.
    asked : Asked
        What the user said of HDF5 files.
    refresh : bool
        Make the frame indexes anew.
    continuous : bool
        Order the files by time, and leave out of each the frames that a later one repeats.
    quiet : bool
        Whether repeated frames are not to be reported.
    sampled : bool
        Whether some frames in its middle are enough of a long file that has no index yet.

    Attributes
    ----------
    names : list of str
        Files that have frames of the trajectory, as they were called, in its order.
    cores : list of TrajectoryFile
        The same files and their frame indexes.

    Raises
    ------
    AtomCountError
        A file has another number of atoms.
    FileNotFoundError
        A file is missing.
    UnsupportedError
        A file is of no format that we decode, or none has a whole frame.
    DamagedFileError
        The first frame of a file or its header is damaged.
    """

    def __init__(
        self,
        names: Sequence[str | os.PathLike],
        *,
        n_atoms: int | None = None,
        asked: Asked = NOTHING_ASKED,
        refresh: bool = False,
        continuous: bool = False,
        quiet: bool = False,
        sampled: bool = False,
    ):
        self._asked = asked
        cores = open_files(names, asked=asked, refresh=refresh, sampled=sampled)
        for core in cores:
            _refuse_other_atoms(core, cores[0], n_atoms)
        self.names = [os.fspath(name) for name in names]
        self.cores = cores
        self._kept: list[np.ndarray | None] = [None] * len(cores)
        self._leave_out_empty()
        if len(self.cores) > 1 and (continuous or not quiet):
            self._follow(continuous=continuous)
        self._count()

    def _leave_out_empty(self) -> None:
        whole = [k for k, core in enumerate(self.cores) if core.n_frames > 0]
        if not whole:
            raise UnsupportedError(f"{self.names[0]}: expected a whole frame at least, found none")
        for name, core in zip(self.names, self.cores, strict=True):
            if core.n_frames == 0:
                warn(f"{name}: it has no whole frame; the trajectory goes on with the next file")
        self._choose(whole)

    def _follow(self, *, continuous: bool) -> None:
        """Report what restarts repeat, or leave it out."""
        sequel = follow(self.cores)
        report = report_losses(sequel) if continuous else report_repeats(sequel, self.names)
        if report is not None:
            warn(report)
        if continuous:
            self._choose(sequel.order)
            self._kept = sequel.kept
            self._choose([k for k, kept in enumerate(self._kept) if kept is None or len(kept)])

    def _choose(self, files: Iterable[int]) -> None:
        files = list(files)
        self.names = [self.names[k] for k in files]
        self.cores = [self.cores[k] for k in files]
        self._kept = [self._kept[k] for k in files]

    def _count(self) -> None:
        """Number the frames."""
        counts = [
            core.n_frames if kept is None else len(kept)
            for core, kept in zip(self.cores, self._kept, strict=True)
        ]
        self._stops = np.cumsum(counts)
        self._begins = self._stops - counts

    @property
    def n_frames(self) -> int:
        """Number of frames."""
        return int(self._stops[-1])

    @property
    def n_atoms(self) -> int:
        """Number of atoms of each frame."""
        return self.cores[0].n_atoms

    @property
    def fields(self) -> int:
        """What frames of any file may hold, one bit a field."""
        return int(np.bitwise_or.reduce([core.fields for core in self.cores]))

    @property
    def members(self) -> list[Member]:
        """What workers must know of the files."""
        return [core.member for core in self.cores]

    @property
    def bytes_per_frame(self) -> float:
        """Mean size of a frame."""
        return sum(core.size for core in self.cores) / sum(map(_frames_of, self.cores))

    @property
    def chunk_frames(self) -> int:
        """Neighbours that are stored as one, at the most of any file."""
        return max(core.chunk_frames for core in self.cores)

    @property
    def is_sample(self) -> bool:
        """Whether only some frames of a file are known."""
        return any(core.index_origin == "sampled" for core in self.cores)

    @property
    def n_expected(self) -> int:
        """Number of frames; of a file of which only some are known, as many as it has room for."""
        return round(sum(map(_frames_of, self.cores))) if self.is_sample else self.n_frames

    def extents(self, frames: np.ndarray) -> Extents:
        """Where frames are.

        Parameters
        ----------
        frames : numpy.ndarray of int64, shape (n_frames,)
            Frame numbers in the trajectory.

        Returns
        -------
        Extents
        """
        members = np.searchsorted(self._stops, frames, side="right")
        numbers = (frames - self._begins[members]).astype(np.uint64)
        offsets, sizes = np.empty_like(numbers), np.empty_like(numbers)
        slices = []
        for member, rows in neighbours(members):
            kept = self._kept[member]
            if kept is not None:
                numbers[rows] = kept[numbers[rows]]
            offsets[rows], sizes[rows] = self.cores[member].extents(numbers[rows])
            slices.append(self.cores[member].slice_of(numbers[rows]))
        return Extents(members, numbers, offsets, sizes, tuple(slices))

    def extent(self, frame: int) -> tuple[int, Extents]:
        """Where one frame is: sooner found than with `extents`.

        Parameters
        ----------
        frame : int
            Frame number in the trajectory.

        Returns
        -------
        member : int
            Its file.
        extents : Extents
            Of this frame alone.
        """
        member = int(np.searchsorted(self._stops, frame, side="right"))
        kept, number = self._kept[member], frame - self._begins[member]
        numbers = np.array([number if kept is None else kept[number]], dtype=np.uint64)
        return member, extents_in(member, self.cores[member], numbers)

    def times(self) -> np.ndarray:
        """Times of all frames as the files have them.

        Returns
        -------
        numpy.ndarray of float64, shape (n_frames,)
            ps; NaN where a frame's time is not known.
        """
        pairs = zip(self.cores, self._kept, strict=True)
        return np.concatenate(
            [core.times()[0] if kept is None else core.times()[0][kept] for core, kept in pairs]
        )

    def record(self) -> "ChainRecord":
        """What another process needs to open the same chain."""
        return ChainRecord(
            self.names,
            [core.path for core in self.cores],
            [core.fingerprint for core in self.cores],
            self._kept,
            self._stops,
            self._asked,
        )

    @classmethod
    def reopen(cls, record: "ChainRecord") -> Self:
        """Open a chain again, and report nothing again.

        Parameters
        ----------
        record : ChainRecord
            Of the chain.

        Returns
        -------
        Chain
            With the same frames; behind them those by which the last file has grown.

        Raises
        ------
        FileChangedError
            A file is another one now.
        """
        chain = cls.__new__(cls)
        chain.names, chain._kept = list(record.names), list(record.kept)
        chain._asked = record.asked
        chain.cores = open_files(record.paths, asked=record.asked, notes=False)
        counts = np.diff(record.stops, prepend=0)
        for k, core in enumerate(chain.cores):
            if core.fingerprint != record.fingerprints[k]:
                # It must begin with what it was recognised by.
                _core.verify(core.path, record.fingerprints[k])
                if k + 1 < len(chain.cores) and record.kept[k] is None:
                    # Frames of the next file keep their numbers.
                    chain._kept[k] = np.arange(counts[k], dtype=np.uint64)
        chain._count()
        return chain


@dataclass(frozen=True)
class ChainRecord:
    """What is needed to open a chain again.

    Attributes
    ----------
    names, paths, fingerprints : list of str
        Of the files.
    kept : list of (numpy.ndarray of uint64 or None)
        Frames of each file that belong to the chain; None for all.
    stops : numpy.ndarray of int64, shape (n_files,)
        Number behind the last frame of each file.
    asked : Asked
        What the user said of HDF5 files.
    """

    names: list[str]
    paths: list[str]
    fingerprints: list[str]
    kept: list[np.ndarray | None]
    stops: np.ndarray
    asked: Asked


def _frames_of(core: TrajectoryFile) -> float:
    """Frames of a file; where only some are known, as many as it has room for."""
    if core.index_origin != "sampled":
        return core.n_frames
    _, sizes = core.extents(np.arange(core.n_frames, dtype=np.uint64))
    return core.size / sizes.mean()


def _refuse_other_atoms(core: TrajectoryFile, first: TrajectoryFile, n_atoms: int | None) -> None:
    if core.n_atoms == (first.n_atoms if n_atoms is None else n_atoms):
        return
    message = f"{core.path}: the topology has {n_atoms} atoms, the trajectory {core.n_atoms}"
    if n_atoms is None:
        message = f"{core.path}: it has {core.n_atoms} atoms, {first.path} {first.n_atoms}"
    error = AtomCountError(message)
    error.found = core.n_atoms
    raise error
