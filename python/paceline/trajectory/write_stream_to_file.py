"""Write the frames of a running simulation to a trajectory file that others read while it grows.

A thread receives frames and appends them, so that the simulation never waits for an analysis: it
waits only while the disk is slow or full. Each frame is written completely before it is counted, so
that between two writes the file ends with a complete frame.
"""

import atexit
import contextlib
import contextvars
import os
import threading
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Protocol, Self, TypedDict, runtime_checkable

import numpy as np

from paceline import _core
from paceline._util.files import create_growing, writing_to
from paceline._util.os_calls import write_at
from paceline.block import CELL_WIDTH, FIELDS, Block, FrameBuffer, field_bits
from paceline.contract.source import FORMATS, ROUNDED
from paceline.contract.system_interface import Atoms
from paceline.errors import PacelineError, UnsupportedError, warn
from paceline.trajectory.imd_protocol import ImdSession, StreamFrame
from paceline.trajectory.write_frames import EncodedBlock, FrameFile, FramesToWrite

#: Name of the file of a stream if the user names none. TRR stores positions, velocities, forces,
#: cell, time and step.
TEMPORARY = "stream.trr"
#: Formats that can be written and read at the same time, by filename extension.
_GROWING = {
    f".{ending}": format
    for format in FORMATS.values()
    if format.writes and format.appends
    for ending in format.extensions
}


class TeeOptions(TypedDict, total=False):
    """Options for the file to which the frames of a stream are written."""

    tee: str | os.PathLike | None
    tee_atoms: Atoms | str | Sequence[int] | None
    tee_step: int | None
    overwrite: bool


class KeptFrames(NamedTuple):
    """File with some atoms of every `step`-th frame of a stream, beside the file of all frames."""

    path: str | os.PathLike
    #: Indices of the atoms, int64, increasing; None for all atoms.
    atoms: np.ndarray | None
    step: int


@runtime_checkable
class Stream(Protocol):
    """Source of frames that can be paused: in practice an `ImdStream`."""

    address: str
    n_atoms: int | None
    session: ImdSession
    #: Reason why the stream has ended; None before.
    ended: str | None

    def frames(self) -> Iterator[StreamFrame]:
        """Yield frames as they come."""

    def pause(self) -> None:
        """Ask the simulation to wait."""

    def kill(self) -> None:
        """Ask the simulation to end."""

    def close(self, *, leave_running: bool = False) -> None:
        """Close the connection; with `leave_running`, the simulation continues without it."""


class Tee:
    """Thread that writes the frames of a stream to a file.

    Parameters
    ----------
    stream : ImdStream
        Source of the frames.
    path : path-like
        File with extension .xtc, .trr, .dcd, .nc or .ncdf. TRR and NetCDF store velocities and
        forces, too.
    overwrite : bool, optional
        Replace an existing file.
    dt : float, optional
        Time between frames, ps, for engines that send no times (IMD version 2). By default, such
        frames are taken to be 1 ps apart, and a warning is issued.
    kept : KeptFrames, optional
        A second file with some atoms or some frames. `overwrite` applies to this file, too.

    Attributes
    ----------
    n_written : int
        Number of complete frames in the file.
    ended : bool
        True if no further frame will be written.
    error : Exception or None
        Error that ended the thread. The frames before it are complete. If the disk is full, the
        simulation stays paused until `stop`.

    Raises
    ------
    FileExistsError, FileNotFoundError, PermissionError
        If the file cannot be created.
    UnsupportedError
        For another format, or one that stores no field that the engine sends.
    """

    def __init__(
        self,
        stream: Stream,
        path: str | os.PathLike,
        *,
        overwrite: bool = False,
        dt: float | None = None,
        kept: KeptFrames | None = None,
    ):
        self.path, self._stream = os.fspath(path), stream
        #: File of all frames, and if requested a file of some atoms or some frames.
        self._files = [
            GrowingFile(
                self.path,
                stream,
                overwrite=overwrite,
                dt=dt,
                beside=None if kept is None else os.fspath(kept.path),
            )
        ]
        if kept is not None:
            path = os.fspath(kept.path)
            try:
                file = GrowingFile(path, stream, overwrite=overwrite, dt=dt, kept=kept)
            except BaseException:
                self._files[0].close()
                raise
            self._files.append(file)
        self.n_written = 0
        self.ended = False
        self.error: Exception | None = None
        self._change = threading.Condition()
        #: Held while frames are written, because programs that read the file see a frame before the
        #: frame is complete.
        self._writing = threading.Lock()
        # The thread runs in a copy of the caller's context, so that a collector of warnings that
        # the caller has set also receives the warnings of the thread.
        run = contextvars.copy_context().run
        self._thread = threading.Thread(
            target=run, args=(self._run,), name="paceline-tee", daemon=True
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start the thread, which receives and writes frames."""
        # LAMMPS ends with an error if the connection breaks without a farewell.
        atexit.register(self.stop)
        self._thread.start()

    def stop(self, *, kill: bool = False, leave_running: bool = False) -> None:
        """Close the connection, and complete the file.

        The simulation then waits for another client, or continues, as its input states. With
        `kill`, it is asked to end; with `leave_running`, to continue (see `ImdStream.close`).
        """
        if kill:
            self._stream.kill()
        self._stream.close(leave_running=leave_running)
        if self._thread.ident is not None:
            self._thread.join()
        for file in self._files:
            file.close()
        atexit.unregister(self.stop)

    def wait_for(self, n_frames: int, timeout: float | None = None) -> bool:
        """Wait until the file has `n_frames` frames; return False if it has fewer after waiting.

        Waiting ends after `timeout`, and when no further frame will be written.

        Parameters
        ----------
        n_frames : int
            Number of complete frames.
        timeout : float, optional
            Maximum time, seconds.
        """
        with self._change:
            self._change.wait_for(lambda: self.n_written >= n_frames or self.ended, timeout)
            return self.n_written >= n_frames

    def between_frames(self) -> contextlib.AbstractContextManager[object]:
        """Context in which no frame is being written: the files end with complete frames."""
        return self._writing

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until no further frame will be written; return False after `timeout` seconds."""
        with self._change:
            return self._change.wait_for(lambda: self.ended, timeout)

    @property
    def reason(self) -> str:
        """Reason why no further frame will be written; valid if `ended` is True."""
        if self.error is not None:
            return str(self.error)
        return self._stream.ended or "it was closed"

    def _run(self) -> None:
        """Write frames until the stream ends."""
        try:
            for frame in self._stream.frames():
                with self._writing:
                    n_written = [file.append(frame) for file in self._files]
                self._count(n_written)
            self._finish()
        except OSError as error:  # writing failed, for example because the disk is full
            self._stream.pause()
            with self._writing:
                for file in self._files:
                    with contextlib.suppress(OSError):
                        file.cut()
            self.error = error
        except PacelineError as error:
            self.error = error
            with contextlib.suppress(OSError, PacelineError):
                self._finish()
        except Exception as error:
            self.error = error
            raise
        finally:
            with self._change:
                self.ended = True
                self._change.notify_all()

    def _finish(self) -> None:
        """Write and count the frames that wait for the next one."""
        with self._writing:
            n_written = [file.finish() for file in self._files]
        self._count(n_written)

    def _count(self, written: list[int]) -> None:
        """Count the frames that were written to the file of all frames.

        `written` contains the number of new frames in each file.
        """
        with self._change:
            self.n_written += written[0]
            self._change.notify_all()


class GrowingFile:
    """Trajectory file to which frames are appended while others read it.

    With `kept`, the file gets only some atoms or some frames. For a file of all frames, `beside` is
    the path of the file with the kept frames, if there is one. The warning about uneven times then
    names that file, and all other warnings are left out, because that file issues them.
    """

    def __init__(
        self,
        path: str,
        stream: Stream,
        *,
        overwrite: bool = False,
        dt: float | None = None,
        kept: KeptFrames | None = None,
        beside: str | None = None,
    ):
        self._format = growing_format(path)
        self._path, self._stream, self._dt, self._beside = path, stream, dt, beside
        self._atoms, self._step = (None, 1) if kept is None else (kept.atoms, kept.step)
        sent = stream.session.fields
        self._fields = [field for field in sent if field_bits([field]) & self._format.writes]
        if not self._fields or ("positions" not in sent and not self._format.mixed_fields):
            raise UnsupportedError(
                f"{path}: {self._format.name} stores positions, but {stream.address} sends only "
                f"{', '.join(sent) or 'no fields'}: enable positions in the input of the engine"
            )
        if left_out := [field for field in sent if field not in self._fields]:
            self._warn(
                f"{path}: {self._format.name} cannot store {' and '.join(left_out)}: they are left "
                "out; TRR and NetCDF store them"
            )
        self._descriptor = create_growing(path, overwrite=overwrite)
        self._closed = False
        #: Number of complete frames in the file, and its size up to there, bytes.
        self._n, self._size = 0, 0
        # Times (ps) and steps of the first two frames. The header of a DCD file has the time
        # between frames, so that the first frame waits for the second.
        self._times: list[float] = []
        self._steps: list[int] = []
        self._waiting = b""
        self._latest = 0.0
        self._uneven = False

    def append(self, frame: StreamFrame) -> int:
        """Append a frame; return by how many frames the file has grown.

        This is 0 if the frame waits for the next one, or is left out because of `step`.
        """
        if frame.number % self._step:
            return 0
        if not self._times:
            self._begin(frame)
        moment, step = self._moment(frame)
        block = self._block(frame, moment, step)
        data = self._encode(block)
        if len(self._times) < 2:
            self._times.append(moment)
            self._steps.append(step)
        elif self._format.one_time_step:
            self._watch_interval(moment)
        self._latest = moment
        if self._format.one_time_step and len(self._times) == 1:
            self._waiting = data
            return 0
        n, waiting = 1 + bool(self._waiting), self._waiting
        self._write(waiting + data, n)
        self._waiting = b""
        return n

    def finish(self) -> int:
        """Write the frame that waits for the next one; return 1, or 0 if none waits."""
        if not self._waiting:
            return 0
        self._write(self._waiting, 1)
        self._waiting = b""
        return 1

    def cut(self) -> None:
        """Remove the bytes of an incomplete frame after the last complete one."""
        os.ftruncate(self._descriptor, self._size)

    def close(self) -> None:
        """Close the file."""
        if not self._closed:
            self._closed = True
            os.close(self._descriptor)

    def _begin(self, frame: StreamFrame) -> None:
        """Create the encoder for frames like this one."""
        n_atoms = self._stream.n_atoms if self._atoms is None else len(self._atoms)
        assert n_atoms is not None, "a frame has come"
        self._target = FrameFile(self._path, self._format.name, n_atoms, overwrite=True)
        facts = FramesToWrite(
            n_frames=1,
            atoms=None,  # type: ignore[arg-type]  # only H5MD stores facts about atoms
            skip_damaged=True,  # so that the encoder returns bytes, and does not write them itself
            origin={},
            cells=_cells(frame.cell),
            rotates=False,
            keep_cell=False,
            fields=tuple(self._fields),
        )
        self._encoder = self._target.begin(facts)

    def _moment(self, frame: StreamFrame) -> tuple[float, int]:
        """Return time (ps) and step of a frame; computed from its number if they were not sent."""
        step = frame.number if frame.step is None else frame.step
        if frame.time is not None and self._dt is None:
            return frame.time, step
        if self._dt is None and frame.number == 0:
            self._warn(
                f"{self._stream.address}: the engine sends no times: frames are taken to be 1 ps "
                "apart; dt= (--dt) states the time between frames"
            )
        return frame.number * (1.0 if self._dt is None else self._dt), step

    def _block(self, frame: StreamFrame, moment: float, step: int) -> Block:
        """Return a block that consists of this frame, with the time `moment` (ps) and the step."""
        arrays = {field: self._chosen(frame, field) for field in FIELDS}
        buffer = FrameBuffer(
            frames=np.array([frame.number]),
            **arrays,
            validity=None,
            cells=_cells(frame.cell),
            times=np.array([moment]),
            steps=np.array([step]),
            lambdas=np.zeros(1, np.float32),
            fields=np.array([field_bits(self._fields)], np.uint8),
        )
        return Block(buffer, None, {})

    def _chosen(self, frame: StreamFrame, field: str) -> np.ndarray | None:
        """Return the values of a field for the file's atoms, shape (1, n_atoms, 3).

        Return None for a field that the file does not store.
        """
        if field not in self._fields:
            return None
        values = {
            "positions": frame.positions,
            "velocities": frame.velocities,
            "forces": frame.forces,
        }[field]
        assert values is not None, field
        return (values if self._atoms is None else values[self._atoms])[np.newaxis]

    def _encode(self, block: Block) -> bytes:
        encoded = self._encoder.compute_block(block, self._n)
        assert isinstance(encoded, EncodedBlock)
        return encoded.data

    def _write(self, data: bytes, n: int) -> None:
        """Write complete frames, and then the header, which contains the number of frames."""
        with writing_to(self._path):
            head = self._target.head(np.array(self._times), np.array(self._steps), self._n + n)
            if not self._n:
                empty = self._target.head(np.array(self._times), np.array(self._steps), 0)
                self._put(empty, 0)
                self._size = len(head)
            self._put(data, self._size)
            self._put(head, 0)
        self._n, self._size = self._n + n, self._size + len(data)

    def _warn(self, text: str) -> None:
        if self._beside is None:
            warn(text)

    def _put(self, data: bytes, offset: int) -> None:
        left = memoryview(data)
        while left:
            n = write_at(self._descriptor, left, offset)
            left, offset = left[n:], offset + n

    def _watch_interval(self, moment: float) -> None:
        """Warn once if a frame is not where the time between the first two frames puts it."""
        first, second = self._times
        expected = first + self._n * (second - first)
        slack = 1e-3 * abs(second - first) + ROUNDED * abs(moment)
        if self._uneven or abs(moment - expected) <= slack:
            return
        self._uneven = True
        # Frames of the kept file may be evenly spaced although those of the file of all frames
        # are not.
        file = f"{self._path}: a DCD file"
        if self._beside is not None:
            file = f"{self._beside}: analyses read all frames from another DCD file, which"
        warn(
            f"{file} stores one time between frames, {second - first:g} ps, but the frame after "
            f"{self._latest:.9g} ps is at {moment:.9g} ps, not {expected:.9g} ps; XTC, TRR and "
            "NetCDF store the time of each frame"
        )


def growing_format(path: str | os.PathLike, needed: Collection[str] = ()) -> "_core.FileFormat":
    """Return the format that the name of a file states, if such files can be read while they grow.

    Raises `UnsupportedError` for other formats, and for one that cannot store the fields `needed`.
    """
    ending = Path(path).suffix.lower()
    if ending not in _GROWING:
        raise UnsupportedError(
            f"{os.fspath(path)}: expected a name that ends in {', '.join(_GROWING)}, found "
            f"{ending!r}: files of other formats cannot be read while they grow; convert the file "
            "later"
        )
    format = _GROWING[ending]
    if lacking := [field for field in needed if not field_bits([field]) & format.writes]:
        bits = field_bits(lacking)
        able = [name for name, other in _GROWING.items() if other.writes & bits == bits]
        raise UnsupportedError(
            f"{os.fspath(path)}: {format.name} cannot store {' and '.join(sorted(lacking))}, which "
            "an analysis needs, and analyses read the frames from this file: choose a name that "
            f"ends in {' or '.join(able)}"
        )
    return format


def _cells(vectors: np.ndarray | None) -> np.ndarray:
    """Convert cell vectors to a row of `FrameBuffer.cells`, shape (1, 19)."""
    if vectors is None or not np.any(vectors):
        return np.zeros((1, CELL_WIDTH))
    return _core.cells_of_vectors(vectors[np.newaxis], [True, True, True])
