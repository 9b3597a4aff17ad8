"""A file in which frames lie one after another behind a head that counts them."""

import os
from abc import abstractmethod
from typing import NamedTuple

from paceline.files import refuse_impossible
from paceline.snapshot.containers.base import (
    Container,
    Contents,
    Heading,
    Place,
    Settings,
    refuse_other,
)
from paceline.snapshot.containers.output import Output

#: An offset, and the bytes that belong there.
Piece = tuple[int, bytes]


class Frame(NamedTuple):
    """Where a frame is, and what stands in it beside atoms.

    Attributes
    ----------
    starts : tuple of int
        Offset of atom 1 in each section.
    furniture : list of (int, bytes)
        Offset and bytes of all else. It is written behind the atoms, so that a frame that was not
        finished shows by what it lacks.
    end : int
        Offset behind it.
    """

    starts: tuple[int, ...]
    furniture: list[Piece]
    end: int


class Series(Container):
    """A file that grows by a frame at a time.

    Parameters
    ----------
    settings : Settings
        Which file, and whether it is there.

    Raises
    ------
    FileExistsError
        It is there, and neither to grow nor to be replaced.
    AtomCountError
        It is to grow, and has another number of atoms.
    DamagedFileError, UnsupportedError
        It is to grow, and is not of this format, or of a kind of it that we do not continue.
    OSError
        It cannot be opened.
    """

    def __init__(self, settings: Settings):
        super().__init__(settings)
        self._output: Output | None = None
        self._contents: Contents | None = None
        self._frame: Frame | None = None
        self._end = 0
        if settings.append and os.path.exists(settings.path):
            output = Output.existing(settings.path)
            try:
                self._contents = self._open(output)
            except BaseException:
                output.close()
                raise
            self._output = output
        else:
            refuse_impossible(settings.path, overwrite=settings.overwrite)

    @abstractmethod
    def _open(self, output: Output) -> Contents:
        """Understand a file that is to grow: sets `n_frames` and `_end`."""

    @abstractmethod
    def _head(self, contents: Contents, heading: Heading) -> bytes:
        """What a new file begins with."""

    @abstractmethod
    def _next(self, contents: Contents, heading: Heading) -> Frame:
        """The frame that begins at `_end`."""

    def _count(self, output: Output, size: int, counted: int) -> None:
        """Count the frames of a file that is to grow: of `size` bytes each, from `_end` on.

        More than the head tells of are there where a program died before it told, and with them
        perhaps a part of another, which lacks what is written last.
        """
        present = max(output.size - self._end, 0) // size
        self.n_frames = max(min(counted, present), 0)
        while self.n_frames < present and self._is_whole(output, self._end + self.n_frames * size):
            self.n_frames += 1
        self._end += self.n_frames * size

    def _is_whole(self, output: Output, start: int) -> bool:
        """Whether a frame has all that is written behind its atoms."""
        return False

    @abstractmethod
    def _counts(self, n_frames: int) -> list[Piece]:
        """What tells in the head that there are so many frames."""

    def place(self, contents: Contents, heading: Heading) -> Place:
        """Make room for the next frame."""
        if self._contents is not None:
            refuse_other(self._settings.path, contents, self._contents)
        if self._output is None:
            head = self._head(contents, heading)
            output = self._output = Output.new(self._settings.path)
            output.write(0, head)
            self._end = len(head)
        else:
            self._output.refuse_replaced()
        frame = self._frame = self._next(contents, heading)
        self._contents = contents
        # What a killed job left may be longer than this frame, and be read as frames behind it.
        if self._output.size > self._end:
            self._output.cut(self._end)
        return Place(self._output.name, frame.starts)

    def commit(self) -> None:
        """Write what stands beside the atoms, and count the frame."""
        assert self._output is not None
        assert self._frame is not None
        for offset, data in (*self._frame.furniture, *self._counts(self.n_frames + 1)):
            self._output.write(offset, data)
        if self._settings.sync:
            self._output.sync()
        self._output.publish(overwrite=self._settings.overwrite)
        self.n_frames += 1
        self._end = self._frame.end

    def cut_back(self) -> None:
        """Leave only the frames that count."""
        if self._output is None:
            return
        if not self._output.is_published:
            self._contents = None
            self.close()
            return
        for offset, data in self._counts(self.n_frames):
            self._output.write(offset, data)
        self._output.cut(self._end)

    def close(self) -> None:
        """Let go of the file."""
        if self._output is not None:
            output, self._output = self._output, None
            output.close()
