"""H5MD: HDF5's library keeps the catalogue, ranks write numbers to the offsets that it names."""

import contextlib
import os
from typing import Any

import h5py
import numpy as np

from paceline.errors import UnwritableError
from paceline.files import refuse_impossible
from paceline.hdf5.faults import asking
from paceline.hdf5.storage import ELEMENTS, GROUP
from paceline.snapshot.containers.base import (
    Container,
    Contents,
    Heading,
    Place,
    Settings,
    refuse_other,
)
from paceline.snapshot.containers.catalogue import ALIGNMENT, Rows, end_told
from paceline.snapshot.containers.h5md_continued import growing, understand, unlike
from paceline.snapshot.containers.h5md_layout import PLACES, lay_out, put_facts
from paceline.snapshot.containers.output import Output
from paceline.snapshot.containers.staged import Staged

#: What is stored of each kind of facts.
_FACTS = {"names": "name", "masses": "mass", "charges": "charge"}


class H5MD(Container):
    """An H5MD file that is being written: a chunk a frame, or contiguous space for `n_frames`.

    Parameters
    ----------
    settings : Settings
        Which file.

    Attributes
    ----------
    double : bool
        Whether its numbers have 64 bits.

    Raises
    ------
    FileExistsError
        It is there, and neither to grow nor to be replaced.
    AtomCountError
        It is to grow, and has another number of atoms.
    DamagedFileError, UnsupportedError
        It is to grow, and is not of this format, or is laid out otherwise.
    OSError
        It cannot be opened.
    """

    def __init__(self, settings: Settings):
        super().__init__(settings)
        self.double = settings.double
        self._contents: Contents | None = None
        self._heading: Heading | None = None
        self._last_step: int | None = None
        self._output: Output | None = None
        self._staged: Staged
        self._rows: list[Rows] = []
        self._file: Any = None
        if settings.append and os.path.exists(settings.path):
            self._output = Output.existing(settings.path)
            try:
                with asking(settings.path, "", "an H5MD file"):
                    self._open()
                    held = understand(self._file, settings)
                self._contents, self.n_frames, self._last_step, self.double = held
                self._find_rows()
            except BaseException:
                self._let_go()
                raise
        else:
            refuse_impossible(settings.path, overwrite=settings.overwrite)

    def place(self, contents: Contents, heading: Heading) -> Place:
        """Make room for the next frame."""
        path = self._settings.path
        if self._contents is not None:
            refuse_other(path, contents, self._contents)
        if self._last_step is not None and heading.step <= self._last_step:
            raise UnwritableError(
                f"{path}: expected a step after {self._last_step}, found {heading.step}: in H5MD "
                "steps rise from frame to frame"
            )
        if self._output is None:
            self._make(contents)
        else:
            self._output.refuse_replaced()
        self._contents, self._heading = contents, heading
        starts = tuple(self._start(self._values(field)) for field in contents.fields)
        assert self._output is not None
        return Place(self._output.name, starts)

    def _values(self, field: str) -> Any:
        return self._file[f"particles/{GROUP}/{ELEMENTS[field]}/value"]

    def _start(self, dataset: Any) -> int:
        """Where the next frame of a dataset begins."""
        if dataset.chunks is None:
            room = dataset.maxshape[0]
            if self.n_frames == room:
                raise UnwritableError(
                    f"{self._settings.path} has room for {room} frames, all of which are written: "
                    "see n_frames"
                )
            row = int(np.prod(dataset.shape[1:], dtype=object)) * dataset.dtype.itemsize
            first = dataset.id.get_offset()
            if first is None:
                raise UnwritableError(
                    f"{self._settings.path}: HDF5 finds no room for {room} frames of {row} bytes: "
                    "see n_frames"
                )
            return first + self.n_frames * row
        # Its properties have the library find the place now.
        dataset.resize(self.n_frames + 1, axis=0)
        return dataset.id.get_chunk_info_by_coord((self.n_frames, 0, 0)).byte_offset

    def _make(self, contents: Contents) -> None:
        """Make a file without frames."""
        self._output = Output.new(self._settings.path)
        self._staged = Staged(self._output, 0)
        self._file = h5py.File(
            self._staged, "w", alignment_threshold=1, alignment_interval=ALIGNMENT
        )
        lay_out(self._file, self._settings, contents)
        self._contents = contents
        self._file.flush()
        self._find_rows()

    def _open(self) -> None:
        """Open the file as it is on the disk, without what lies behind its end."""
        assert self._output is not None
        path = self._settings.path
        size = end_told(self._output.read(0, 48))
        if size is None and h5py.is_hdf5(path):
            raise unlike(path, "has a newer superblock")
        self._staged = Staged(self._output, self._output.size if size is None else size)
        self._file = h5py.File(
            self._staged, "r+", alignment_threshold=1, alignment_interval=ALIGNMENT
        )

    def _find_rows(self) -> None:
        assert self._contents is not None
        self._rows = [
            Rows.of(self._staged, self._settings.path, dataset)
            for dataset in growing(self._file, self._contents)
        ]

    def put_facts(self, first: int, facts: np.ndarray) -> None:
        """Take names, masses and charges."""
        put_facts(self._file, self._settings.n_atoms, first, facts)

    def commit(self) -> None:
        """Tell when the frame was, and that it is there."""
        assert self._output is not None
        assert self._contents is not None
        assert self._heading is not None
        group = self._file[f"particles/{GROUP}"]
        clock = group[ELEMENTS[self._contents.fields[0]]]
        rows: list[tuple[Any, Any]] = [
            (clock["step"], self._heading.step),
            (clock["time"], self._heading.time),
        ]
        if self._contents.has_cell:
            rows.append((group["box/edges/value"], self._heading.cell))
        for dataset, value in rows:
            dataset.resize(self.n_frames + 1, axis=0)
            dataset[self.n_frames] = value
        self._file.flush()
        for one in self._rows:
            # Contiguous datasets do not grow for the library, which thinks that all rows are there.
            self._staged.seek(one.offset)
            self._staged.write((self.n_frames + 1).to_bytes(8, "little"))
        self._staged.apply([one.offset for one in self._rows])
        if self._settings.sync:
            self._output.sync()
        self._output.publish(overwrite=self._settings.overwrite)
        self.n_frames += 1
        self._last_step, self._heading = self._heading.step, None

    def cut_back(self) -> None:
        """Forget what the library holds in memory, and begin again from what is on the disk."""
        if self._output is None:
            return
        self._heading = None
        if not self._output.is_published:
            self._let_go()
            self._contents = None
            return
        self._forget()
        self._open()
        self._output.cut(self._staged.size)

    def close(self) -> None:
        """Let go of the file; contiguous datasets have room for no more frames then."""
        try:
            if self._output is not None and self._output.is_published:
                self._forget()
                for one in self._rows:
                    if one.room is not None:
                        self._output.write(one.room, self.n_frames.to_bytes(8, "little"))
        finally:
            self._let_go()

    def held(self, fact: str, first: int, n_atoms: int) -> np.ndarray | None:
        """Names, masses or charges of the atoms."""
        where = PLACES[_FACTS[fact]]
        if self._file is None or where not in self._file:
            return None
        found = self._file[where][first : first + n_atoms]
        if fact != "names":
            return found
        held = np.char.ljust(found.astype("S8"), 8).astype("S8")
        return held.view(np.uint8).reshape(-1, 8)

    def _forget(self) -> None:
        """Close the library's file, and write nothing of it."""
        if self._file is not None:
            self._staged.give_up()
            with contextlib.suppress(OSError, RuntimeError):
                self._file.close()
            self._file = None

    def _let_go(self) -> None:
        self._forget()
        if self._output is not None:
            output, self._output = self._output, None
            output.close()
