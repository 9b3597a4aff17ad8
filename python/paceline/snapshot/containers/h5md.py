"""H5MD: HDF5's library keeps the catalogue, ranks write numbers to the offsets that it names."""

import contextlib
import os
from typing import Any

import h5py
import numpy as np

from paceline._core import __version__
from paceline.errors import UnsupportedError, UnwritableError
from paceline.files import refuse_impossible
from paceline.hdf5.faults import asking
from paceline.hdf5.making import chunked, contiguous, share_clock
from paceline.hdf5.metadata import (
    UNITS,
    Atoms,
    Description,
    command_of_process,
    create_box,
    describe,
    set_unit,
)
from paceline.hdf5.storage import ELEMENTS, GROUP
from paceline.snapshot.containers.base import (
    Container,
    Contents,
    Heading,
    Place,
    Settings,
    refuse_other,
    refuse_other_count,
)
from paceline.snapshot.containers.output import Output
from paceline.snapshot.containers.staged import Staged

#: Where each kind of fact of the atoms goes, groups included.
_FACTS = {
    "name": "parameters/atoms/name",
    "mass": f"particles/{GROUP}/mass",
    "charge": f"particles/{GROUP}/charge",
}
#: Rows of a chunk of steps, times and cells, and atoms of one of facts.
_ROWS, _ATOMS = 512, 2**16
#: Bytes of a chunk, at the most: HDF5 counts them in 32 bits.
_LARGEST_CHUNK = 2**32 - 1


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
        self._file: Any = None
        if settings.append and os.path.exists(settings.path):
            self._output = Output.existing(settings.path)
            try:
                self._open()
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
            if self.n_frames == len(dataset):
                raise UnwritableError(
                    f"{self._settings.path} has room for {self.n_frames} frames, all of which are "
                    "written: see n_frames"
                )
            row = int(np.prod(dataset.shape[1:], dtype=object)) * dataset.dtype.itemsize
            first = dataset.id.get_offset()
            if first is None:
                raise UnwritableError(
                    f"{self._settings.path}: HDF5 finds no room for {len(dataset)} frames of {row} "
                    "bytes: see n_frames"
                )
            return first + self.n_frames * row
        # Its properties have the library find the place now.
        dataset.resize(self.n_frames + 1, axis=0)
        return dataset.id.get_chunk_info_by_coord((self.n_frames, 0, 0)).byte_offset

    def _make(self, contents: Contents) -> None:
        """Make a file without frames."""
        self._output = Output.new(self._settings.path)
        self._staged = Staged(self._output)
        self._file = h5py.File(self._staged, "w")
        n_atoms = self._settings.n_atoms
        kind, width = ("<f8", 8) if self.double else ("<f4", 4)
        n_frames = self._settings.n_frames
        if n_frames is None and n_atoms * 3 * width > _LARGEST_CHUNK:
            raise UnwritableError(
                f"{self._settings.path}: a chunk of HDF5 cannot hold {n_atoms} atoms; give "
                "n_frames, and there will be no chunks"
            )
        for field in contents.fields:
            name = f"particles/{GROUP}/{ELEMENTS[field]}/value"
            if n_frames is None:
                chunked(self._file, name, (0, n_atoms, 3), kind, (1, n_atoms, 3))
            else:
                contiguous(self._file, name, (n_frames, n_atoms, 3), kind)
            set_unit(self._file[name], ELEMENTS[field])
        self._make_clock(contents)
        origin = {"program": f"paceline {__version__}", "command": command_of_process()}
        origin["call"] = "paceline.snapshot.Writer"
        if self._settings.title:
            origin["title"] = self._settings.title
        describe(self._file, GROUP, Description(Atoms(n_atoms), origin))

    def _make_clock(self, contents: Contents) -> None:
        """Make what grows by a row a frame: steps and times, which elements share, and cells."""
        particles = self._file[f"particles/{GROUP}"]
        first, *others = (particles[ELEMENTS[field]] for field in contents.fields)
        _growing(first, "step", (), "<i8")
        set_unit(_growing(first, "time", (), "<f8"), "time")
        box = create_box(particles, periodic=contents.has_cell)
        if contents.has_cell:
            edges = box.create_group("edges")
            set_unit(_growing(edges, "value", (3, 3), "<f8"), "edges")
            others.append(edges)
        for other in others:
            share_clock(other, first)

    def put_facts(self, first: int, facts: np.ndarray) -> None:
        """Take names, masses and charges."""
        for name in facts.dtype.names or ():
            where, n_atoms = _FACTS[name], self._settings.n_atoms
            if where not in self._file:
                self._file.create_dataset(
                    where,
                    shape=(n_atoms,),
                    dtype=facts.dtype[name],
                    chunks=(min(n_atoms, _ATOMS),),
                    compression="gzip",
                    shuffle=True,
                )
                if name in UNITS:
                    set_unit(self._file[where], name)
            values = facts[name]
            if name == "name":
                values = np.char.rstrip(values)
            self._file[where][first : first + len(facts)] = values

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
        self._apply()
        self._output.publish(overwrite=self._settings.overwrite)
        self.n_frames += 1
        self._last_step, self._heading = self._heading.step, None

    def _apply(self) -> None:
        assert self._output is not None
        self._file.flush()
        self._staged.apply()
        if self._settings.sync:
            self._output.sync()

    def cut_back(self) -> None:
        """Forget what the library holds in memory, and begin again from what is on the disk."""
        if self._output is None:
            return
        self._heading = None
        if not self._output.is_published:
            self._let_go()
            self._contents = None
            return
        size = self._staged.size
        self._forget()
        self._output.cut(size)
        self._staged = Staged(self._output)
        self._file = h5py.File(self._staged, "r+")

    def close(self) -> None:
        """Let go of the file; contiguous space ends behind the last frame."""
        if self._output is not None:
            try:
                # A frame that was begun and not committed is in the library's memory only.
                if self.n_frames > 0 and self._heading is None:
                    self._shorten()
            finally:
                self._let_go()

    def _shorten(self) -> None:
        """Let contiguous datasets have as many rows as there are frames."""
        assert self._output is not None
        assert self._contents is not None
        for field in reversed(self._contents.fields):
            values = self._values(field)
            if values.chunks is not None or len(values) == self.n_frames:
                continue
            name, kind, before = values.name, values.dtype.str, values.id.get_offset()
            shape = self.n_frames, *values.shape[1:]
            del values
            del self._file[name]
            short = contiguous(self._file, name, shape, kind)
            set_unit(short, ELEMENTS[field])
            # The last one stays where it is; for others the library takes new space.
            self._output.move(before, short.id.get_offset(), short.id.get_storage_size())
        self._apply()

    def _open(self) -> None:
        """Understand a file that is to grow."""
        assert self._output is not None
        path = self._settings.path
        self._staged = Staged(self._output)
        with asking(path, "", "an H5MD file"):
            self._file = h5py.File(self._staged, "r+")
            group = self._file.get(f"particles/{GROUP}")
            if group is None or "position/value" not in group:
                raise self._unlike(f"has no particles/{GROUP}/position/value")
            fields = tuple(field for field in ELEMENTS if ELEMENTS[field] in group)
            self._contents = Contents(fields, "edges" in group["box"])
            self._refuse_unlike(group)
            steps = group["position/step"]
            self.n_frames = len(steps)
            self._last_step = int(steps[-1]) if self.n_frames else None
            self.double = group["position/value"].dtype == np.dtype("<f8")

    def _refuse_unlike(self, group: Any) -> None:
        """Raise where a file is not laid out as we would have made it."""
        assert self._contents is not None
        n_rows, n_atoms = len(group["position/step"]), self._settings.n_atoms
        refuse_other_count(self._settings.path, group["position/value"].shape[1], n_atoms)
        kind = group["position/value"].dtype
        for field in self._contents.fields:
            element = group[ELEMENTS[field]]
            values = element["value"]
            in_chunks = values.chunks is not None
            properties = values.id.get_create_plist()
            early = properties.get_alloc_time() == h5py.h5d.ALLOC_TIME_EARLY
            if in_chunks and (values.chunks != (1, n_atoms, 3) or not early):
                raise self._unlike(f"has {values.name} in chunks of {values.chunks}")
            if values.shape[1:] != (n_atoms, 3) or (len(values) != n_rows and in_chunks):
                raise self._unlike(f"has {values.name} of shape {values.shape}")
            if values.dtype != kind or values.dtype.str not in ("<f4", "<f8"):
                raise self._unlike(f"has {values.name} of type {values.dtype}")
            if properties.get_nfilters() or properties.get_external_count():
                raise self._unlike(f"has {values.name} compressed, or in another file")
            if values.attrs.get("unit") != UNITS[ELEMENTS[field]]:
                raise self._unlike(f"has {values.name} in {values.attrs.get('unit')}")
            if element["step"] != group["position/step"]:
                raise self._unlike(f"has steps of its own for {element.name}")

    def _unlike(self, what: str) -> UnsupportedError:
        return UnsupportedError(
            f"{self._settings.path} {what}, unlike the files of paceline.snapshot: it cannot be "
            "continued; write to a new file"
        )

    def names_held(self, first: int, n_atoms: int) -> np.ndarray | None:
        """Names of the atoms."""
        if self._file is None or _FACTS["name"] not in self._file:
            return None
        names = self._file[_FACTS["name"]][first : first + n_atoms].astype("S8")
        held = np.char.ljust(names, 8).astype("S8")
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


def _growing(group: Any, name: str, shape: tuple[int, ...], dtype: str) -> Any:
    """Make a dataset of no rows that will have one a frame."""
    return group.create_dataset(
        name, shape=(0, *shape), maxshape=(None, *shape), chunks=(_ROWS, *shape), dtype=dtype
    )
