"""HDF5 files, read through h5py; error messages name the file and the object in it."""

import contextlib
import io
import math
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

import h5py
import numpy as np

from paceline._util.files import FileAtOffset, is_address
from paceline.errors import (
    DamagedFileError,
    ExternalFileError,
    MissingDataError,
    PacelineError,
    UnsupportedError,
)
from paceline.hdf5.chunk_index import DEFLATE, FLETCHER32, LZ4, LZF, SHUFFLE, Filter
from paceline.hdf5.file_objects_for_h5py import open_bytes, raise_failure
from paceline.hdf5.sandbox import extend_time_limit

#: Exceptions that h5py raises for an invalid file.
H5PY_ERRORS = (OSError, RuntimeError, KeyError, ValueError, TypeError, OverflowError)
#: Maximum decoded bytes per byte of a deflated chunk; LZ4 and LZF compress less.
_DEFLATE_RATIO = 1032
#: Maximum decoded bytes per byte of a chunk with any other filter.
_RATIO = 1 << 15
#: Offset beyond any file; it marks a chunk whose entry in the file is impossible.
NOWHERE = 2**64 - 1

#: Maximum ratio between the size that a truncated file states and its actual size.
_MAX_TRUNCATION = 64
#: Number of bytes that values may have in a file of any size, because unwritten values use no
#: space in the file.
_ALWAYS_READ = 1 << 20
#: CPU time that the sandbox allows for finding one chunk, s.
_FIND_SECONDS = 2e-4
#: CPU time that the sandbox allows for reading one chunk, s.
_READ_SECONDS = 1e-3
#: Maximum number of soft links in a path, as in HDF5.
_MAX_LINKS = 16
_HOW_TO_FOLLOW = (
    "other files are opened only with external=True (--external): use it if you trust this file"
)


damaged = DamagedFileError.in_object


@contextlib.contextmanager
def wrap_errors(path: str, what: str, expected: str = "readable data") -> Iterator[None]:
    """Convert h5py errors to a `DamagedFileError` that names the file and the object `what`."""
    try:
        yield
    except PacelineError:
        raise
    except MemoryError as error:
        raise damaged(path, what, expected, "more than memory holds") from error
    except H5PY_ERRORS as error:
        raise_failure(path)
        raise damaged(path, what, expected, f"what HDF5 refuses ({_reason_of(error)})") from error


def _reason_of(error: BaseException) -> str:
    """Extract HDF5's reason from an error, in one line."""
    text = str(error.args[-1] if isinstance(error, KeyError) and error.args else error)
    inner = re.search(r"\((.*)\)", text, re.DOTALL)
    return " ".join((inner[1] if inner else text).split()) or type(error).__name__


def to_python(value: object) -> Any:
    """Convert an h5py value to str, int, float, bool, a list of str or an array of numbers.

    Returns None for an empty value and for other types.
    """
    if isinstance(value, bytes | str):
        return text_of(value)
    if isinstance(value, np.ndarray):
        if value.dtype.kind in "SUO":
            texts = value.ravel().tolist()
            if not all(isinstance(text, bytes | str) for text in texts):
                return None
            texts = [text_of(text) for text in texts]
            return texts[0] if value.ndim == 0 else texts
        return value.item() if value.ndim == 0 else value
    return value.item() if isinstance(value, np.generic) else None


def text_of(value: bytes | str) -> str:
    """Convert a text to str; remove the zero bytes at the end of a string of fixed length."""
    if isinstance(value, str):
        return value.rstrip("\0")
    return value.rstrip(b"\0").decode("utf-8", errors="replace")


def has_mpi_build() -> bool:
    """True if h5py was built with MPI."""
    return bool(h5py.get_config().mpi)


def mpi_options(comm: object) -> dict[str, object]:
    """Return options of `File` for MPI-IO by the ranks of `comm`; None for this process alone."""
    from mpi4py import MPI

    return {"driver": "mpio", "comm": MPI.COMM_SELF if comm is None else comm}


class TruncatedFile(FileAtOffset):
    """Remaining bytes of a truncated file; reading beyond them raises an error."""

    def __init__(self, file: io.RawIOBase, size: int):
        super().__init__(size)
        self._file = file
        self._left = file.seek(0, os.SEEK_END)

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Fill a buffer; raise `OSError` if bytes were truncated."""
        if self._at + len(buffer) > self._left:
            raise OSError(f"bytes after {self._left} were cut off")
        self._file.seek(self._at)
        done = self._file.readinto(buffer) or 0
        self._at += done
        return done

    def close(self) -> None:
        """Close this object and the truncated file."""
        self._file.close()
        super().close()


class Node:
    """Group or dataset, with the path by which it was reached."""

    def __init__(self, file: "File", name: str, h5: h5py.Group | h5py.Dataset):
        self.file = file
        self.name = name
        self._h5 = h5

    @property
    def attrs(self) -> Mapping[str, Any]:
        """Attributes of the object by name, with values converted by `to_python`."""
        with wrap_errors(self.file.path, self.name, "attributes"):
            names = list(self._h5.attrs)
        return {name: self._attribute(name) for name in names}

    def _attribute(self, name: str) -> object:
        with wrap_errors(self.file.path, f"{self.name}, attribute {name}", "a value"):
            attribute = self._h5.attrs.get_id(name)
            n_bytes = math.prod(attribute.shape or ()) * attribute.get_type().get_size()
            if n_bytes > max(self.file.size, _ALWAYS_READ):
                raise ValueError(f"{n_bytes} bytes claimed, in a file of {self.file.size}")
            return to_python(self._h5.attrs[name])

    @property
    def identity(self) -> tuple[int, int]:
        """Key that identifies the object, whatever its name."""
        with wrap_errors(self.file.path, self.name):
            info = h5py.h5o.get_info(self._h5.id)
            return info.fileno, info.addr

    @property
    def h5(self) -> Any:
        """The h5py.Group or h5py.Dataset of this object."""
        return self._h5

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} of {self.file.path}>"


def unpacked_ratio(filters: Sequence[Filter]) -> int:
    """Return the maximum number of decoded bytes per stored byte for a pipeline of filters."""
    smaller = (DEFLATE, SHUFFLE, FLETCHER32, LZF, LZ4)
    return _DEFLATE_RATIO if all(one.number in smaller for one in filters) else _RATIO


class Array(Node):
    """Dataset of any kind; its dtype is `object` for text."""

    def __init__(self, file: "File", name: str, h5: h5py.Dataset):
        super().__init__(file, name, h5)
        check_external_storage(file, name, h5)
        with wrap_errors(file.path, name, "a dataset of a kind that NumPy knows"):
            self.dtype: np.dtype = h5.dtype
            self.shape: tuple[int, ...] = h5.shape or ()
        self._extents: np.ndarray | None = None

    @property
    def is_text(self) -> bool:
        """True if the elements of the dataset are strings."""
        return h5py.check_string_dtype(self.dtype) is not None

    @property
    def enum_names(self) -> dict[int, str] | None:
        """Name of each value of an enumeration; None for other datasets."""
        values = h5py.check_enum_dtype(self.dtype)
        return None if values is None else {int(number): name for name, number in values.items()}

    def read(self, rows: slice = slice(None)) -> Any:
        """Read all elements, or some rows, of a small dataset in one call.

        Text is returned as str, in arrays of `object`. For a dataset without axes, the single
        element is returned.
        """
        self.check_size()
        self.check_filters()
        self.file.used[self.identity] = self
        chunks = zip(self.shape, self.chunk or self.shape, strict=True)
        extend_time_limit(math.prod(-(-n // max(c, 1)) for n, c in chunks) * _READ_SECONDS)
        with wrap_errors(self.file.path, self.name):
            values = self._h5[rows] if self.shape else self._h5[()]
        if self.is_text and isinstance(values, np.ndarray):
            texts = np.empty(values.shape, dtype=object)
            texts.ravel()[:] = [text_of(value) for value in values.ravel()]
            return texts
        return values if self.shape else to_python(values)

    def check_size(self) -> None:
        """Raise `DamagedFileError` if the dataset claims more bytes than the file could contain."""
        claimed = math.prod(self.shape) * max(self.dtype.itemsize, 1)
        room = self.stored_bytes
        if self.filters or self.h5py_fallback:
            room *= unpacked_ratio(self.filters)
        if claimed > max(room, _ALWAYS_READ):
            raise damaged(
                self.file.path,
                self.name,
                f"{claimed} bytes in an array of shape {self.shape}",
                f"at most {room} bytes in a file of this size",
            )

    def part(self, *axes: slice) -> np.ndarray:
        """Read the elements in slices along the first axes, in the dtype of the file."""
        together = self._h5.collective if self.file.collective else contextlib.nullcontext()
        with wrap_errors(self.file.path, self.name), together:
            return self._h5[axes]

    def damaged(self, expected: str, found: str) -> DamagedFileError:
        """Create the error that names this dataset, what was expected and what was found."""
        return damaged(self.file.path, self.name, expected, found)

    @property
    def chunk(self) -> tuple[int, ...] | None:
        """Shape of a chunk; None for a dataset without chunks."""
        return self._h5.chunks

    @property
    def filters(self) -> tuple[Filter, ...]:
        """Filters of the dataset's chunks, in the order in which a writer applies them."""
        with wrap_errors(self.file.path, self.name, "a list of filters"):
            created = self._h5.id.get_create_plist()
            stages = [created.get_filter(k) for k in range(created.get_nfilters())]
            return tuple(
                Filter(number, text_of(name), tuple(values)) for number, _, values, name in stages
            )

    def check_filters(self) -> None:
        """Raise `UnsupportedError` if HDF5 lacks a filter that decodes the dataset."""
        missing = self.missing_filter
        if missing is not None:
            raise UnsupportedError(
                f"{self.file.path}: {self.name} is encoded with the filter {missing.words}, which "
                "HDF5 lacks here: pip install hdf5plugin, which contains most filters"
            )

    @property
    def missing_filter(self) -> Filter | None:
        """First filter that HDF5 lacks even after importing hdf5plugin; None if it lacks none."""
        for stage in self.filters:
            if not h5py.h5z.filter_avail(stage.number):
                with contextlib.suppress(ImportError):
                    # The import registers more filters.
                    import hdf5plugin  # noqa: F401
                if not h5py.h5z.filter_avail(stage.number):
                    return stage
        return None

    @property
    def offset(self) -> int | None:
        """Offset of a contiguous dataset; None if it was never written."""
        with wrap_errors(self.file.path, self.name, "an offset"):
            return self._h5.id.get_offset()

    @property
    def fill(self) -> bytes:
        """Fill value, as the bytes of one number in the file."""
        with wrap_errors(self.file.path, self.name, "a fill value"):
            return np.asarray(self._h5.fillvalue, dtype=self.dtype).tobytes()

    @property
    def placeholder(self) -> int | float | None:
        """Fill value that the writer chose for missing values; None if it chose none."""
        with wrap_errors(self.file.path, self.name, "a fill value"):
            defined = self._h5.id.get_create_plist().fill_value_defined()
            if defined != h5py.h5d.FILL_VALUE_USER_DEFINED:
                return None
            return to_python(self._h5.fillvalue)

    @property
    def stored_bytes(self) -> int:
        """Number of bytes that the dataset occupies in the file; at most the file's size."""
        with wrap_errors(self.file.path, self.name, "a size"):
            return min(int(self._h5.id.get_storage_size()), self.file.size)

    @property
    def h5py_fallback(self) -> str:
        """Reason, apart from filters, why only HDF5 can read the values; empty if there is none."""
        with wrap_errors(self.file.path, self.name, "a layout"):
            created = self._h5.id.get_create_plist()
            if h5py.h5f.get_name(self._h5.id) != self.file.own_name:
                return f"it is in another file, {text_of(h5py.h5f.get_name(self._h5.id))}"
            if created.get_layout() == h5py.h5d.VIRTUAL:
                return "it is a virtual dataset"
            if created.get_external_count():
                return "its bytes are in an external file"
            if created.get_layout() == h5py.h5d.COMPACT:
                return "it is compact: stored in the metadata"
            if h5py.h5t.py_create(self.dtype) != self._h5.id.get_type():
                return "only HDF5 can convert its kind of numbers"
            return ""

    def chunks(self, grid: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        """Find the written chunks on a grid; `grid` contains the numbers of chunks along each axis.

        Returns the indices of the first element of each chunk, uint64, (n_written, n_axes), and the
        offset, size and filter mask of each chunk, uint64, (n_written, 3).
        """
        extend_time_limit(math.prod(grid) * _FIND_SECONDS)
        with wrap_errors(self.file.path, self.name, "a table of chunks"):
            found: list[Any] = []
            try:
                self._h5.id.chunk_iter(found.append)
            except (AttributeError, *H5PY_ERRORS):
                # HDF5 before 1.12 cannot list all chunks in one call, and no version can list a
                # damaged table.
                found = self._find_chunks_one_by_one(grid)
            corners = np.array([one.chunk_offset for one in found], dtype=np.uint64)
            rows = [(one.byte_offset, one.size, one.filter_mask) for one in found]
        shape, extents = (len(rows), len(grid)), np.array(rows, dtype=np.uint64).reshape(-1, 3)
        self.file.used[self.identity], self._extents = self, extents[:, :2]
        return corners.reshape(shape), extents

    @property
    def extents(self) -> np.ndarray:
        """Return distinct offsets and sizes of the stored values in this file, uint64, (n, 2)."""
        if self._extents is None:
            self._extents = np.empty((0, 2), dtype=np.uint64)
            if self.chunk is not None:
                self.chunks(tuple(-(-n // c) for n, c in zip(self.shape, self.chunk, strict=True)))
            elif self.offset is not None:
                n_bytes = math.prod(self.shape) * self.dtype.itemsize
                self._extents = np.array([[self.offset, n_bytes]], dtype=np.uint64)
        return np.unique(self._extents, axis=0)

    def _find_chunks_one_by_one(self, grid: tuple[int, ...]) -> list[object]:
        """Find each chunk; one that a damaged table makes unreachable gets the offset `NOWHERE`."""
        of_corner, chunk = self._h5.id.get_chunk_info_by_coord, self.chunk or ()
        found, error = [], None
        for place in np.ndindex(*grid):
            corner = tuple(np.multiply(place, chunk).tolist())
            try:
                one = of_corner(corner)
            except H5PY_ERRORS as why:
                error, one = why, h5py.h5d.StoreInfo(corner, 0, NOWHERE, 1)
            if one.byte_offset is not None:
                found.append(one)
        if error is not None and all(one.byte_offset == NOWHERE for one in found):
            raise error
        return found


class Group(Node):
    """Group that contains named groups and datasets."""

    def names(self) -> list[str]:
        """Names of the links in this group, in HDF5's order."""
        with wrap_errors(self.file.path, self.name, "a group"):
            return list(self._h5)

    def get(self, path: str) -> "Group | Array | None":
        """Follow a path; return None if a name is missing; raise an error for a broken link."""
        return self._follow(path, iter(range(_MAX_LINKS)))

    def _follow(self, path: str, links: Iterator[int]) -> "Group | Array | None":
        """Follow a path; `links` limits the number of soft links."""
        node: Group | Array | None = self
        for name in path.split("/"):
            if name not in ("", "."):
                node = node._child(name, links) if isinstance(node, Group) else None
        return node

    def _child(self, name: str, links: Iterator[int]) -> "Group | Array | None":
        """Follow one name in this group; return None if the name is missing."""
        where = f"{self.name.rstrip('/')}/{name}"
        with wrap_errors(self.file.path, where, "a group or a dataset"):
            link = self._h5.get(name, getlink=True)
            if link is None:
                return None
            if isinstance(link, h5py.SoftLink):
                return self._follow_soft(link, where, links)
            check_external_link(self.file, where, link)
            try:
                h5 = self._h5[name]
            except (KeyError, RuntimeError, OSError) as error:
                raise damaged(
                    self.file.path, where, "a group or a dataset", _describe_link(link, error)
                ) from error
            return self._node(where, h5)

    def _follow_soft(
        self, link: h5py.SoftLink | h5py.ExternalLink, where: str, links: Iterator[int]
    ) -> "Group | Array | None":
        """Follow a soft link within the file; HDF5 itself would also follow it into other files."""
        leads = "in a circle"
        if next(links, None) is not None:
            leads = "nowhere"
            start = Group(self.file, "/", self._h5.file) if link.path.startswith("/") else self
            node = start._follow(link.path, links)
            if node is not None:
                return self._node(where, node._h5)
        found = f"a link to {link.path} that leads {leads}"
        raise damaged(self.file.path, where, "a group or a dataset", found)

    def _node(self, where: str, h5: h5py.Group | h5py.Dataset) -> "Group | Array | None":
        if isinstance(h5, h5py.Group):
            return Group(self.file, where, h5)
        return Array(self.file, where, h5) if isinstance(h5, h5py.Dataset) else None

    def __getitem__(self, path: str) -> "Group | Array":
        """Follow a path; raise `MissingDataError` if no object is there."""
        node = self.get(path)
        if node is None:
            raise MissingDataError(f"{self.file.path}: {self.name} has no {path!r}")
        return node

    def __contains__(self, path: str) -> bool:
        return self.get(path) is not None

    def group(self, path: str) -> "Group | None":
        """Return the group at this path, or None."""
        node = self.get(path)
        return node if isinstance(node, Group) else None

    def array(self, path: str) -> "Array | None":
        """Return the dataset at this path, or None."""
        node = self.get(path)
        return node if isinstance(node, Array) else None

    def children(self) -> Iterator["Group | Array"]:
        """Yield linked objects, except for broken links and links that must not be followed."""
        for name in self.names():
            try:
                node = self.get(name)
            except DamagedFileError:
                continue
            except ExternalFileError as error:
                self.file.not_followed.append(error.what)
                continue
            if node is not None:
                yield node

    def walk(self) -> Iterator["Group | Array"]:
        """Yield all objects in this group and its subgroups, each object once."""
        seen, waiting = {self.identity}, [self]
        while waiting:
            for node in waiting.pop().children():
                if node.identity not in seen:
                    seen.add(node.identity)
                    yield node
                    if isinstance(node, Group):
                        waiting.append(node)


def _describe_link(link: h5py.SoftLink | h5py.ExternalLink, error: BaseException) -> str:
    """Describe a link that cannot be followed."""
    if isinstance(link, h5py.ExternalLink):
        return f"a link to {link.path} in file {link.filename}, which cannot be followed"
    return f"what HDF5 refuses ({_reason_of(error)})"


class File:
    """HDF5 file that is open for reading; a context manager.

    With `collective`, all ranks that opened the file make each read call together.
    With `external`, links and datasets that refer to other files are followed; `not_followed` lists
    the skipped ones. `used` maps `Array.identity` to each dataset that was read or whose
    chunks were located. `samples` identifies the version of an object in a store. Other options are
    h5py's. `full_size` is the size that a truncated file states, bytes.
    """

    def __init__(
        self,
        path: str | os.PathLike,
        *,
        collective: bool = False,
        external: bool = False,
        samples: bytes | None = None,
        **options: object,
    ):
        self.path = os.fspath(path)
        self.collective = collective
        self.external = external
        self.not_followed: list[str] = []
        self.used: dict[tuple[int, int], Array] = {}
        self._bytes = open_bytes(self.path, samples)
        self.size = self._bytes.seek(0, os.SEEK_END)
        self.full_size: int | None = None
        try:
            self._h5 = h5py.File(
                self._bytes if is_address(self.path) else self.path, "r", **options
            )
        except H5PY_ERRORS as error:
            raise_failure(self.path)
            self._h5 = self._open_truncated(error)
        if self._h5.id.get_intent() & h5py.h5f.ACC_RDWR:
            self.close()
            raise _in_use(self.path, "this program has it open for writing: close it first")
        self.own_name = h5py.h5f.get_name(self._h5.id)
        self.root = Group(self, "/", self._h5)

    def _open_truncated(self, error: BaseException) -> h5py.File:
        """Open a file that HDF5 refuses because it is truncated; otherwise raise HDF5's error."""
        truncated = re.search(r"stored_eof = (\d+)", str(error))
        if truncated is not None and int(truncated[1]) <= _MAX_TRUNCATION * self.size:
            self.full_size = int(truncated[1])
            with contextlib.suppress(*H5PY_ERRORS):
                return h5py.File(TruncatedFile(self._bytes, self.full_size), "r")
        raise _open_error(self.path, self.size, error) from error

    @contextlib.contextmanager
    def explain_truncation(self) -> Iterator[None]:
        """Replace errors in a truncated file by an error that reports the truncation."""
        try:
            yield
        except DamagedFileError as error:
            if self.full_size is None:
                raise
            found = (
                f"{self.size}: the file was cut, and the missing part contains the addresses of "
                "its data; copy the file again from a complete copy"
            )
            raise damaged(self.path, "", f"{self.full_size} bytes", found, self.size) from error

    @property
    def h5(self) -> h5py.File:
        """The open h5py.File."""
        return self._h5

    def close(self) -> None:
        """Close the file."""
        self._h5.close()
        self._bytes.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _in_use(path: str, why: str) -> UnsupportedError:
    return UnsupportedError(f"{path}: {why}")


def _open_error(path: str, size: int, error: BaseException) -> PacelineError:
    """Create the error with the reason why HDF5 cannot open a file, and advice."""
    text = str(error)
    if "lock file" in text:
        return _in_use(
            path,
            "another program, or a writer of this script, has it open for writing: wait until it "
            "is closed, or delete the writer (MDAnalysis's H5MDWriter closes its file only then)",
        )
    if "already open for" in text or "consistency flags" in text:
        return _in_use(
            path,
            "another program is writing it, or was killed while writing: wait for the program; if "
            "there "
            f"is none, clear the file's open mark with h5clear --status {path}",
        )
    if "signature not found" in text:
        return UnsupportedError(f"{path}: not an HDF5 file: none of its signatures was found")
    if truncated := re.search(r"stored_eof = (\d+)", text):
        return damaged(path, "", f"{truncated[1]} bytes", f"{size}: the file was cut", size)
    return damaged(path, "", "an HDF5 file", f"what HDF5 refuses ({_reason_of(error)})")


def check_external_link(file: File, where: str, link: h5py.SoftLink | h5py.ExternalLink) -> None:
    """Raise `ExternalFileError` if an external link must not be followed."""
    if isinstance(link, h5py.ExternalLink):
        names = [link.filename]
        _check_other_files(
            file, where, f"an external link to {link.path}", names, "HDF5_EXT_PREFIX"
        )


def check_external_storage(file: File, where: str, h5: h5py.Dataset) -> None:
    """Raise `ExternalFileError` if a dataset's values are in files that must not be opened.

    Call this function before the dataset is used: HDF5 may open other files to find its shape.
    """
    with wrap_errors(file.path, where, "a layout"):
        created = h5.id.get_create_plist()
        n_sources = 0
        if created.get_layout() == h5py.h5d.VIRTUAL:
            n_sources = created.get_virtual_count()
        sources = (text_of(created.get_virtual_filename(k)) for k in range(n_sources))
        n_stored = created.get_external_count()
        stored = (text_of(created.get_external(k)[0]) for k in range(n_stored))
        if n_sources:
            _check_other_files(file, where, "a virtual dataset", sources, "HDF5_VDS_PREFIX")
        if n_stored:
            _check_other_files(
                file, where, "a dataset with external storage", stored, "HDF5_EXTFILE_PREFIX"
            )


def _check_other_files(file: File, where: str, what: str, names: Any, variable: str) -> None:
    """Raise `ExternalFileError` if a link or a dataset refers to files that must not be opened."""
    for name in names:
        other = "this file" if name == "." else name
        found = f"{where} is {what}, which refers to {other}"
        if is_address(file.path) and name != ".":
            raise _external_error(file.path, found, "files that an object refers to are not opened")
        if not file.external:
            raise _external_error(file.path, found, _HOW_TO_FOLLOW)
        for place in _candidates(file.path, name, variable):
            if os.path.exists(place) and not stat.S_ISREG(os.stat(place).st_mode):
                raise _external_error(
                    file.path, found, f"{place} is not a regular file and is not opened"
                )


def _external_error(path: str, found: str, why: str) -> ExternalFileError:
    """Create the error for a reference to another file that must not be opened."""
    error = ExternalFileError(f"{path}: {found}: {why}")
    error.what = found
    return error


def _candidates(path: str, name: str, variable: str) -> Iterator[str]:
    """Yield the paths where HDF5 looks for a referenced file."""
    folders = ["", os.path.dirname(os.path.realpath(path)), os.path.dirname(path)]
    folders += os.environ.get(variable, "").split(os.pathsep)
    if name == ".":
        return
    for folder in folders:
        yield os.path.join(folder, name)
        yield os.path.join(folder, os.path.basename(name))
