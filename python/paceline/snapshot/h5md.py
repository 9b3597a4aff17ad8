"""H5MD: HDF5's library keeps the catalogue, ranks write numbers to the offsets that it names."""

import contextlib
import os
from typing import Any, NamedTuple

import h5py
import numpy as np

from paceline._core import __version__
from paceline._util.files import refuse_impossible
from paceline.errors import UnsupportedError, UnwritableError
from paceline.hdf5.file import asking
from paceline.hdf5.layout import ELEMENTS, GROUP
from paceline.hdf5.metadata import (
    UNITS,
    Atoms,
    Description,
    command_of_process,
    create_box,
    describe,
    set_unit,
)
from paceline.hdf5.writer import chunked, contiguous, share_clock
from paceline.snapshot.container import (
    Container,
    Contents,
    Heading,
    Place,
    Settings,
    refuse_other,
    refuse_other_count,
)
from paceline.snapshot.deferred_file import ALIGNMENT, Rows, Staged, end_told
from paceline.snapshot.output import Output

#: Where each kind of fact of the atoms goes, groups included.
PLACES = {
    "name": "parameters/atoms/name",
    "mass": f"particles/{GROUP}/mass",
    "charge": f"particles/{GROUP}/charge",
}
#: Rows of a chunk of steps, times and cells, and atoms of one of facts.
_ROWS, _ATOMS = 512, 2**16
#: Bytes of a chunk, at the most: HDF5 counts them in 32 bits.
_LARGEST_CHUNK = 2**32 - 1


def lay_out(file: Any, settings: Settings, contents: Contents) -> None:
    """Make all that a file has before its first frame.

    Parameters
    ----------
    file : h5py.File
        Empty.
    settings : Settings
        What a user chose.
    contents : Contents
        What all frames hold.

    Raises
    ------
    UnwritableError
        A frame is too large for a chunk.
    """
    n_atoms, n_frames = settings.n_atoms, settings.n_frames
    kind, width = ("<f8", 8) if settings.double else ("<f4", 4)
    if n_frames is None and n_atoms * 3 * width > _LARGEST_CHUNK:
        raise UnwritableError(
            f"{settings.path}: a chunk of HDF5 cannot hold {n_atoms} atoms; give n_frames, and "
            "there will be no chunks"
        )
    for field in contents.fields:
        name = f"particles/{GROUP}/{ELEMENTS[field]}/value"
        if n_frames is None:
            chunked(file, name, (0, n_atoms, 3), kind, (1, n_atoms, 3))
        else:
            contiguous(file, name, (n_frames, n_atoms, 3), kind)
        set_unit(file[name], ELEMENTS[field])
    _make_clock(file, contents)
    origin = {"program": f"paceline {__version__}", "command": command_of_process()}
    origin["call"] = "paceline.snapshot.Writer"
    if settings.title:
        origin["title"] = settings.title
    describe(file, GROUP, Description(Atoms(n_atoms), origin))


def _make_clock(file: Any, contents: Contents) -> None:
    """Make what grows by a row a frame: steps and times, which elements share, and cells."""
    particles = file[f"particles/{GROUP}"]
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


def _growing(group: Any, name: str, shape: tuple[int, ...], dtype: str) -> Any:
    """Make a dataset of no rows that will have one a frame."""
    return group.create_dataset(
        name, shape=(0, *shape), maxshape=(None, *shape), chunks=(_ROWS, *shape), dtype=dtype
    )


def put_facts(file: Any, n_atoms: int, first: int, facts: np.ndarray) -> None:
    """Write names, masses and charges of some atoms.

    Parameters
    ----------
    file : h5py.File
        Which.
    n_atoms : int
        Of the file.
    first : int
        The first of these atoms, counted from 0.
    facts : numpy.ndarray, shape (n,)
        Records, whose fields are those of `PLACES`.
    """
    for name in facts.dtype.names or ():
        where = PLACES[name]
        if where not in file:
            file.create_dataset(
                where,
                shape=(n_atoms,),
                dtype=facts.dtype[name],
                chunks=(min(n_atoms, _ATOMS),),
                compression="gzip",
                shuffle=True,
            )
            if name in UNITS:
                set_unit(file[where], name)
        values = facts[name]
        if name == "name":
            values = np.char.rstrip(values)
        file[where][first : first + len(facts)] = values


class Held(NamedTuple):
    """What a file holds.

    Attributes
    ----------
    contents : Contents
        Of each frame.
    n_frames : int
        That are whole.
    last_step : int or None
        Of the last of them.
    double : bool
        Whether its numbers have 64 bits.
    """

    contents: Contents
    n_frames: int
    last_step: int | None
    double: bool


def growing(file: Any, contents: Contents) -> list[Any]:
    """Datasets that have a row a frame, in the order in which they may count another.

    Readers take the number of frames from positions, and nothing without its step and time.

    Parameters
    ----------
    file : h5py.File
        Which.
    contents : Contents
        Of each frame.

    Returns
    -------
    list of h5py.Dataset
    """
    group = file[f"particles/{GROUP}"]
    clock = group[ELEMENTS[contents.fields[0]]]
    cells = [group["box/edges/value"]] if contents.has_cell else []
    values = [group[ELEMENTS[field]]["value"] for field in reversed(contents.fields)]
    return [clock["time"], clock["step"], *cells, *values]


def understand(file: Any, settings: Settings) -> Held:
    """Find what a file holds.

    Parameters
    ----------
    file : h5py.File
        Which.
    settings : Settings
        What a user chose.

    Returns
    -------
    Held

    Raises
    ------
    AtomCountError
        It has another number of atoms.
    UnsupportedError
        It is not laid out as we would have made it.
    """
    group = file.get(f"particles/{GROUP}")
    if group is None or "position/value" not in group:
        raise unlike(settings.path, f"has no particles/{GROUP}/position/value")
    fields = tuple(field for field in ELEMENTS if ELEMENTS[field] in group)
    contents = Contents(fields, "edges" in group["box"])
    refuse_other_count(settings.path, group["position/value"].shape[1], settings.n_atoms)
    for field in fields:
        _refuse_unlike(group, ELEMENTS[field], settings)
    rows = growing(file, contents)
    n_frames = min(len(one) for one in rows)
    for one in rows:
        # A killed program may have counted a frame here and not there.
        if one.chunks is not None and len(one) > n_frames + 1:
            raise unlike(settings.path, f"has {one.name} of shape {one.shape}")
    steps = group["position/step"]
    last_step = int(steps[n_frames - 1]) if n_frames else None
    double = group["position/value"].dtype == np.dtype("<f8")
    return Held(contents, n_frames, last_step, double)


def _refuse_unlike(group: Any, name: str, settings: Settings) -> None:
    """Raise where an element is not laid out as we would have made it."""
    element, n_atoms = group[name], settings.n_atoms
    values = element["value"]
    properties = values.id.get_create_plist()
    early = properties.get_alloc_time() == h5py.h5d.ALLOC_TIME_EARLY
    kinds = group["position/value"].dtype, values.dtype
    for what, wrong in (
        (
            f"{values.name} in chunks of {values.chunks}",
            values.chunks is not None and (values.chunks != (1, n_atoms, 3) or not early),
        ),
        (f"{values.name} of shape {values.shape}", values.shape[1:] != (n_atoms, 3)),
        (
            f"{values.name} of type {values.dtype}",
            kinds[0] != kinds[1] or values.dtype.str not in ("<f4", "<f8"),
        ),
        (
            f"{values.name} compressed, or in another file",
            properties.get_nfilters() or properties.get_external_count(),
        ),
        (
            f"{values.name} in {values.attrs.get('unit')}",
            values.attrs.get("unit") != UNITS[name],
        ),
        (f"steps of its own for {element.name}", element["step"] != group["position/step"]),
    ):
        if wrong:
            raise unlike(settings.path, f"has {what}")


def unlike(path: str, what: str) -> UnsupportedError:
    """That a file cannot be continued.

    Parameters
    ----------
    path : str
        The file.
    what : str
        What it has that ours have not.

    Returns
    -------
    UnsupportedError
    """
    return UnsupportedError(
        f"{path} {what}, unlike the files of paceline.snapshot: it cannot be continued; write to "
        "a new file"
    )


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
