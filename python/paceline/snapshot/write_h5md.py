"""Write H5MD snapshots: HDF5 writes metadata and allocates frames; ranks write atoms into them."""

import contextlib
import os
from typing import Any, NamedTuple

import h5py
import numpy as np

from paceline._core import __version__
from paceline._util.files import check_output
from paceline._util.machine_and_software import current_command
from paceline.errors import UnsupportedError, UnwritableError
from paceline.hdf5.create_h5md_groups import (
    ELEMENTS,
    GROUP,
    QUANTITIES,
    AtomProperties,
    Description,
    append_frame,
    check_step,
    create_property,
    create_tree,
    frame_datasets,
    property_path,
    values_path,
)
from paceline.hdf5.dataset_writers import allocate_frame, create_dataset, frame_bytes
from paceline.hdf5.file import wrap_errors
from paceline.hdf5.h5md_storage_layout import DatasetLayout
from paceline.hdf5.units import OUR_UNITS
from paceline.snapshot.crash_safe_hdf5_writes import (
    ALIGNMENT,
    CrashSafeFile,
    RowCount,
    superblock_end,
)
from paceline.snapshot.shared_file import (
    Container,
    Contents,
    Heading,
    Output,
    Place,
    Settings,
    check_atom_count,
    check_contents,
)

#: Maximum size of a chunk, bytes: HDF5 stores it in 32 bits.
_LARGEST_CHUNK = 2**32 - 1
#: Names of atom properties in an H5MD file, by their names in `STATIC_PROPERTIES`.
_PROPERTIES = {"names": "name", "masses": "mass", "charges": "charge"}


class H5MD(Container):
    """H5MD output file, with one chunk per frame, or contiguous storage for `n_frames`.

    The file grows in place. If a program is killed, the file keeps all complete frames.
    """

    def __init__(self, settings: Settings):
        super().__init__(settings)
        self.double = settings.double
        self._contents: Contents | None = None
        self._heading: Heading | None = None
        self._last_step: int | None = None
        self._file_bytes: CrashSafeFile
        self._rows: list[RowCount] = []
        self._file: Any = None
        if settings.append and os.path.exists(settings.path):
            self._output = Output.existing(settings.path)
            try:
                with wrap_errors(settings.path, "", "an H5MD file"):
                    self._open()
                    existing = _inspect(self._file, settings)
                self._contents, self.n_frames, self._last_step, self.double = existing
                self._find_rows()
            except BaseException:
                self._close_unwritten()
                raise
        else:
            check_output(settings.path, overwrite=settings.overwrite)

    def place(self, contents: Contents, heading: Heading) -> Place:
        """Allocate the next frame; return where its atoms are written."""
        path = self._settings.path
        if self._contents is not None:
            check_contents(path, contents, self._contents)
        check_step(path, heading.step, self._last_step)
        if self._output is None:
            self._create_file(contents)
        else:
            self._output.check_not_replaced()
        self._contents, self._heading = contents, heading
        starts = tuple(self._allocate(self._file[values_path(field)]) for field in contents.fields)
        assert self._output is not None
        return Place(self._output.name, starts)

    def _allocate(self, dataset: h5py.Dataset) -> int:
        """Allocate the next frame of a dataset; return the frame's offset in the file."""
        limit = dataset.maxshape[0]
        if dataset.chunks is None and self.n_frames == limit:
            raise UnwritableError(
                f"{self._settings.path} has space for {limit} frames, all of which are written: "
                "see n_frames"
            )
        offset = allocate_frame(dataset, self.n_frames)
        if offset is None:
            raise UnwritableError(
                f"{self._settings.path}: HDF5 finds no space for {limit} frames of "
                f"{frame_bytes(dataset)} bytes: see n_frames"
            )
        return offset

    def _create_file(self, contents: Contents) -> None:
        """Create the file, with a temporary name and without frames."""
        self._output = Output.new(self._settings.path)
        self._file_bytes = CrashSafeFile(self._output, 0)
        self._file = h5py.File(
            self._file_bytes, "w", alignment_threshold=1, alignment_interval=ALIGNMENT
        )
        _create(self._file, self._settings, contents)
        self._contents = contents
        self._file.flush()
        self._file_bytes.check()
        self._find_rows()

    def _open(self) -> None:
        """Open the file as it is on the disk; ignore bytes after the end in its superblock."""
        assert self._output is not None
        path = self._settings.path
        size = superblock_end(self._output.read(0, 48))
        if size is None and h5py.is_hdf5(path):
            raise _mismatch_error(path, "has a newer superblock")
        self._file_bytes = CrashSafeFile(self._output, self._output.size if size is None else size)
        self._file = h5py.File(
            self._file_bytes, "r+", alignment_threshold=1, alignment_interval=ALIGNMENT
        )

    def _find_rows(self) -> None:
        """Find the offsets of the row counts, which `commit` writes last."""
        assert self._contents is not None
        self._rows = [
            RowCount.of(self._file_bytes, self._settings.path, dataset)
            for dataset in frame_datasets(
                self._file, self._contents.fields, has_cell=self._contents.has_cell
            )
        ]

    def put_properties(self, first: int, properties: np.ndarray) -> None:
        """Write names, masses and charges of some atoms."""
        n_atoms = self._settings.n_atoms
        for name in properties.dtype.names or ():
            if property_path(name) not in self._file:
                create_property(self._file, name, n_atoms, properties.dtype[name])
            values = properties[name]
            if name == "name":
                values = np.char.rstrip(values)
            self._file[property_path(name)][first : first + len(values)] = values

    def commit(self) -> None:
        """Write step and time of the frame, then count the frame."""
        assert self._output is not None
        assert self._contents is not None
        assert self._heading is not None
        frame = self._heading
        append_frame(
            self._file, self._contents.fields, self.n_frames, frame.step, frame.time, frame.cell
        )
        self._file.flush()
        for one in self._rows:
            # Write the number of rows without HDF5, because HDF5 cannot extend contiguous datasets:
            # it counts all rows for which they have space, from the first frame on.
            self._file_bytes.seek(one.offset)
            self._file_bytes.write((self.n_frames + 1).to_bytes(8, "little"))
        self._file_bytes.apply([one.offset for one in self._rows])
        self._publish()
        self._last_step, self._heading = frame.step, None

    def cut_back(self) -> None:
        """Discard changes that HDF5 keeps in memory, and open the file as it is on the disk.

        If no frame is complete yet, remove the file.
        """
        if self._output is None:
            return
        self._heading = None
        if not self._output.is_published:
            self._close_unwritten()
            self._contents = None
            return
        self._forget()
        self._open()
        self._output.cut(self._file_bytes.size)

    def close(self) -> None:
        """Close the file. Contiguous datasets cannot grow afterwards."""
        try:
            if self._output is not None and self._output.is_published:
                self._forget()
                for one in self._rows:
                    if one.limit_offset is not None:
                        self._output.write(one.limit_offset, self.n_frames.to_bytes(8, "little"))
        finally:
            self._close_unwritten()

    def stored_property(self, name: str, first: int, n_atoms: int) -> np.ndarray | None:
        """Return names, masses or charges of `n_atoms` atoms; None if the file lacks them."""
        where = property_path(_PROPERTIES[name])
        if self._file is None or where not in self._file:
            return None
        values = self._file[where][first : first + n_atoms]
        if name != "names":
            return values
        names = np.char.ljust(values.astype("S8"), 8).astype("S8")
        return names.view(np.uint8).reshape(-1, 8)

    def _forget(self) -> None:
        """Close HDF5's file object, and ignore its further writes."""
        if self._file is not None:
            self._file_bytes.give_up()
            with contextlib.suppress(OSError, RuntimeError):
                self._file.close()
            self._file = None

    def _close_unwritten(self) -> None:
        """Close the file without writing to it."""
        self._forget()
        super().close()


class _Existing(NamedTuple):
    """Facts about a file to be extended; `n_frames` counts complete frames."""

    contents: Contents
    n_frames: int
    last_step: int | None
    double: bool


def _create(h5: h5py.Group, settings: Settings, contents: Contents) -> None:
    """Create everything that the file must contain before its first frame."""
    n_atoms, n_frames = settings.n_atoms, settings.n_frames
    kind, width = ("<f8", 8) if settings.double else ("<f4", 4)
    if n_frames is None and n_atoms * 3 * width > _LARGEST_CHUNK:
        raise UnwritableError(
            f"{settings.path}: an HDF5 chunk cannot contain {n_atoms} atoms; pass n_frames, which "
            "avoids chunks"
        )
    layout = DatasetLayout(1, n_atoms, contiguous=n_frames is not None)
    for field in contents.fields:
        shape = n_frames or 0, n_atoms, 3
        create_dataset(h5, values_path(field), shape, layout, dtype=kind, allocated=True)
    origin = {"program": f"paceline {__version__}", "command": current_command()}
    origin["call"] = "paceline.snapshot.Writer"
    if settings.title:
        origin["title"] = settings.title
    description = Description(AtomProperties(n_atoms), origin)
    create_tree(h5, contents.fields, description, has_cell=contents.has_cell)


def _inspect(h5: h5py.Group, settings: Settings) -> _Existing:
    """Find the contents of a file to be extended.

    Raise if its atoms or its layout differ from those that this writer writes.
    """
    group = h5.get(f"particles/{GROUP}")
    if group is None or "position/value" not in group:
        raise _mismatch_error(settings.path, f"has no particles/{GROUP}/position/value")
    fields = tuple(field for field in ELEMENTS if ELEMENTS[field] in group)
    contents = Contents(fields, "edges" in group["box"])
    check_atom_count(settings.path, group["position/value"].shape[1], settings.n_atoms)
    for field in fields:
        _check_alike(group, ELEMENTS[field], settings)
    rows = frame_datasets(h5, fields, has_cell=contents.has_cell)
    n_frames = min(len(one) for one in rows)
    for one in rows:
        # A killed program may have counted a frame in one dataset and not in another.
        if one.chunks is not None and len(one) > n_frames + 1:
            raise _mismatch_error(settings.path, f"has {one.name} of shape {one.shape}")
    steps = group["position/step"]
    last_step = int(steps[n_frames - 1]) if n_frames else None
    double = group["position/value"].dtype == np.dtype("<f8")
    return _Existing(contents, n_frames, last_step, double)


def _check_alike(group: h5py.Group, name: str, settings: Settings) -> None:
    """Raise if an H5MD element ("position", …) is not stored as this writer stores it."""
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
            values.attrs.get("unit") != OUR_UNITS[QUANTITIES[name]],
        ),
        (f"steps of its own for {element.name}", element["step"] != group["position/step"]),
    ):
        if wrong:
            raise _mismatch_error(settings.path, f"has {what}")


def _mismatch_error(path: str, found: str) -> UnsupportedError:
    """Create the error that names a file that cannot be continued, and the reason `found`."""
    return UnsupportedError(
        f"{path} {found}, unlike the files of paceline.snapshot: it cannot be continued; write to "
        "a new file"
    )
