"""An H5MD file that grows frame by frame: in whole chunks, encoded while more frames come."""

import contextlib
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from paceline.errors import UnwritableError
from paceline.hdf5.layout import ELEMENTS, GROUP, Storage
from paceline.hdf5.metadata import Description
from paceline.hdf5.writer import Contents, NewH5MD, new_hdf5, share_clock

#: Bytes of frames that wait for a thread, or for those before them, at the most.
WAITING = 256 * 2**20
#: Bytes that are written at a time where there are no chunks.
PORTION = 4 * 2**20


@dataclass(frozen=True)
class Frame:
    """What is written of one frame.

    Attributes
    ----------
    values : mapping of str to numpy.ndarray of float32, shape (n_atoms, 3)
        "positions" (Å), "velocities" (Å/ps), "forces" (kJ/(mol·Å)).
    dimensions : numpy.ndarray of float32, shape (6,), or None
        Å and degrees.
    time : float
        ps.
    step : int
        Of the simulation.
    observables : mapping
        Whatever else was observed.
    """

    values: Mapping[str, np.ndarray]
    dimensions: np.ndarray | None
    time: float
    step: int
    observables: Mapping[str, Any]


class Growing:
    """An H5MD file that is being written, of as many frames as will come.

    Parameters
    ----------
    path : path-like
        Final name.
    storage : Storage
        How positions, velocities and forces are stored.
    first : Frame
        Says what all frames hold; it is not written yet.
    n_frames : int, optional
        How many frames will come at the most; a contiguous layout must know.
    n_threads : int
        Threads that compress.
    overwrite : bool
        Whether a file of that name may be replaced.

    Raises
    ------
    FileExistsError
        There is a file of that name and it is not to be replaced.
    """

    def __init__(
        self,
        path: str | os.PathLike,
        storage: Storage,
        first: Frame,
        *,
        n_frames: int | None = None,
        n_threads: int = 1,
        overwrite: bool = False,
    ):
        self._path = os.fspath(path)
        if n_frames is not None:
            storage = replace(storage, layout=storage.layout.within(n_frames))
        self._storage, self._first, self._n_frames = storage, first, n_frames
        self._clock: list[tuple[int, float]] = []
        self._cells: list[np.ndarray] = []
        self._observed: dict[str, list[Any]] = {name: [] for name in first.observables}
        self._gathered = self._room()
        self._n_gathered = self._n_written = 0
        self._encoded: deque[tuple[str, int, int, Future[Any]]] = deque()
        self._most_encoded = 0
        self._submit: Callable[..., Future[Any]] = _now
        self._h5md: NewH5MD | None = None
        with contextlib.ExitStack() as stack:
            align = storage.layout.align
            self._file = stack.enter_context(new_hdf5(path, overwrite=overwrite, align=align))
            if storage.compression.level is not None and n_threads > 1:
                pool = ThreadPoolExecutor(n_threads, thread_name_prefix="paceline-encode")
                stack.callback(pool.shutdown, cancel_futures=True)
                self._submit = pool.submit
                rows = WAITING // max(1, sum(room.nbytes for room in self._gathered.values()))
                self._most_encoded = len(self._gathered) * min(n_threads, rows)
            self._stack = stack.pop_all()

    def _room(self) -> dict[str, np.ndarray]:
        """For the frames that are written together."""
        frames = self._storage.layout.frames
        values = self._first.values
        if self._storage.layout.contiguous:
            frames = max(1, PORTION // next(iter(values.values())).nbytes)
        return {
            field: np.empty((frames, *some.shape), dtype=np.float32)
            for field, some in values.items()
        }

    def add(self, frame: Frame) -> None:
        """Write a frame, or let it wait until its chunk is whole; after an error there is no file.

        Parameters
        ----------
        frame : Frame
            Next.

        Raises
        ------
        UnwritableError
            It holds other things than the first, a number that is not finite, or a step that is
            not larger than the one before.
        OSError
            The system could not write.
        """
        with self._or_none():
            self._refuse_unlike(frame)
            self._clock.append((frame.step, frame.time))
            if frame.dimensions is not None:
                self._cells.append(np.array(frame.dimensions, dtype=np.float32))
            for name, values in self._observed.items():
                values.append(np.array(frame.observables[name]))
            for field, room in self._gathered.items():
                room[self._n_gathered] = frame.values[field]
            self._n_gathered += 1
            if self._n_gathered == len(room):
                self._write()

    @contextlib.contextmanager
    def _or_none(self) -> Iterator[None]:
        """Remove the file where something goes wrong with it."""
        try:
            yield
        except UnwritableError as error:
            with self._stack:
                raise UnwritableError(f"{self._path}: {error}") from None
        except BaseException:
            with self._stack:
                raise

    def _refuse_unlike(self, frame: Frame) -> None:
        """H5MD wants frames alike, and in the order of their steps."""
        number = len(self._clock)
        for what, found, expected in (
            ("", frame.values, self._first.values),
            ("a cell: ", frame.dimensions is not None, self._first.dimensions is not None),
            ("observables: ", frame.observables, self._first.observables),
        ):
            if _names(found) != _names(expected):
                raise UnwritableError(
                    f"frame {number}: expected {what}{_names(expected)} as in the first frame, "
                    f"found {_names(found)}"
                )
        if self._storage.layout.contiguous and number == self._n_frames:
            raise UnwritableError(f"frame {number}: expected {number} at the most: see n_frames")
        if self._clock and frame.step <= self._clock[-1][0]:
            raise UnwritableError(
                f"frame {number}: expected a step after {self._clock[-1][0]}, found {frame.step}: "
                "in H5MD steps rise from frame to frame"
            )

    def _write(self) -> None:
        """Write the frames that were gathered, or have them encoded."""
        first, n_frames = self._n_written, self._n_gathered
        self._n_written, self._n_gathered = first + n_frames, 0
        h5md = self._h5md = self._h5md or self._begin(n_frames)
        for field, room in self._gathered.items():
            with _naming(first):
                if self._storage.layout.contiguous:
                    h5md.datasets[field].put_frames(first, room[:n_frames])
                else:
                    encoded = self._submit(self._storage.encoder(field).encode, room[:n_frames])
                    self._encoded.append((field, first, n_frames, encoded))
        if self._most_encoded:
            self._gathered = self._room()
        self._put(h5md, self._most_encoded)
        self._file.check()

    def _begin(self, n_frames: int) -> NewH5MD:
        """Make the datasets: of fewer frames than a chunk only where no more will come."""
        layout = self._storage.layout
        self._storage = replace(self._storage, layout=layout.within(n_frames))
        n_atoms = len(next(iter(self._first.values.values())))
        planned = (self._n_frames or 0) if layout.contiguous else 0
        has_cell = self._first.dimensions is not None
        contents = Contents(tuple(self._gathered), planned, n_atoms, has_cell)
        return NewH5MD(self._file, contents, self._storage, placed=layout.contiguous)

    def _put(self, h5md: NewH5MD, most_encoded: int) -> None:
        """Write what was encoded, in its order, until no more waits than this."""
        while len(self._encoded) > most_encoded:
            field, first, n_frames, encoded = self._encoded.popleft()
            with _naming(first):
                data, sizes = encoded.result()
            self._file.h5[f"particles/{GROUP}/{ELEMENTS[field]}/value"].resize(
                first + n_frames, axis=0
            )
            h5md.datasets[field].put_chunks(first, n_frames, data, sizes)

    def close(self, description: Description) -> None:
        """Write what waits, and all that is known beside frames: the file appears.

        Parameters
        ----------
        description : Description
            Of the atoms and of where the frames come from.
        """
        self._submit = _now  # at the end of a script threads take no more work
        with self._or_none():
            if self._n_gathered:
                self._write()
            assert self._h5md is not None
            self._put(self._h5md, 0)
            steps, times = (np.array(values) for values in zip(*self._clock, strict=True))
            cells = np.array(self._cells)
            self._h5md.finish(times.astype(np.float64), steps.astype(np.int64), cells, description)
            timed = self._file.h5[f"particles/{GROUP}/{ELEMENTS[next(iter(self._gathered))]}"]
            for name, values in self._observed.items():
                group = self._file.h5.create_group(f"observables/{name}")
                group["value"] = np.array(values)
                share_clock(group, timed)
        self._stack.close()

    def abandon(self) -> None:
        """Remove what was written."""
        with contextlib.suppress(_GivenUp, OSError), self._stack:
            raise _GivenUp


class _GivenUp(Exception):
    """What was written is not wanted."""


def _now(function: Callable[..., Any], *args: Any) -> "Future[Any]":
    """Do in this thread what a pool would do in another."""
    future: Future[Any] = Future()
    future.set_result(function(*args))
    return future


@contextlib.contextmanager
def _naming(first: int) -> Iterator[None]:
    """Name the frame in an encoder's errors."""
    try:
        yield
    except UnwritableError as error:
        raise in_frame(first, error) from None


def in_frame(first: int, error: UnwritableError) -> UnwritableError:
    """An encoder's error that names the frame.

    Parameters
    ----------
    first : int
        That of the first row that was encoded.
    error : UnwritableError
        As the encoder raised it.

    Returns
    -------
    UnwritableError
    """
    return UnwritableError(f"frame {first + (error.row or 0)}: {error.reason}")


def _names(what: Any) -> str:
    """What a frame has, in words."""
    if isinstance(what, bool):
        return "one" if what else "none"
    return ", ".join(what) or "none"
