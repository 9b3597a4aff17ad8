"""HDF5 files, opened for reading: what others ask of HDF5's own library, they ask here."""

import contextlib
import io
import math
import os
import re
import stat
from collections.abc import Iterator, Mapping
from typing import Any, Self

import h5py
import numpy as np

from paceline.errors import DamagedFileError, MissingDataError, PacelineError, UnsupportedError
from paceline.hdf5.chunk_index import Filter
from paceline.hdf5.options import LeadsOutError
from paceline.hdf5.sandbox import allow


def plain(value: Any) -> Any:
    """A value that h5py read, as plain Python.

    Parameters
    ----------
    value : object
        Of an attribute, or of a dataset without axes.

    Returns
    -------
    str, int, float, bool, list of str, numpy.ndarray or None
        None for what is empty or cannot be said so.
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
    """Text of any kind: fixed-length strings end with the first zero."""
    if isinstance(value, str):
        return value.rstrip("\0")
    return value.rstrip(b"\0").decode("utf-8", errors="replace")


#: What h5py raises of a file that the library finds wrong.
H5PY_ERRORS = (OSError, RuntimeError, KeyError, ValueError, TypeError, OverflowError)


def damaged(path: str, what: str, expected: str, found: str, offset: int = 0) -> DamagedFileError:
    """An error that says what of a file is wrong.

    Parameters
    ----------
    path : str
        The file.
    what : str
        The object in it.
    expected, found : str
        What should be there, and what is.
    offset : int
        Byte, where it is known.

    Returns
    -------
    DamagedFileError
    """
    at = f"byte {offset}: " if offset else ""
    where = f"{what}: " if what else ""
    error = DamagedFileError(f"{path}: {where}{at}expected {expected}, found {found}")
    error.path, error.frame, error.offset = path, None, offset
    error.expected, error.found = expected, found
    return error


@contextlib.contextmanager
def asking(path: str, what: str, expected: str = "readable data") -> Iterator[None]:
    """Say in one error what the library could not do.

    Parameters
    ----------
    path : str
        The file.
    what : str
        The object in it that is asked for.
    expected : str
        What should be there.

    Yields
    ------
    None

    Raises
    ------
    DamagedFileError
        The library failed.
    """
    try:
        yield
    except PacelineError:
        raise
    except MemoryError as error:
        raise damaged(path, what, expected, "more than memory holds") from error
    except H5PY_ERRORS as error:
        raise damaged(path, what, expected, f"what HDF5 refuses ({reason_of(error)})") from error


def reason_of(error: BaseException) -> str:
    """The library's reason in one line."""
    text = str(error.args[-1] if isinstance(error, KeyError) and error.args else error)
    inner = re.search(r"\((.*)\)", text, re.DOTALL)
    return " ".join((inner[1] if inner else text).split()) or type(error).__name__


def refuse_without_mpi() -> None:
    """Raise where h5py was built without MPI.

    Raises
    ------
    UnsupportedError
        It was, as every one is that pip installs.
    """
    if not h5py.get_config().mpi:
        raise UnsupportedError(
            'driver="mpio" needs an h5py that was built with MPI, and this one was not; without '
            "driver= workers read the file in parallel with any h5py"
        )


def mpi_options(comm: Any) -> dict[str, Any]:
    """How a file is opened through MPI-IO.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm or None
        Ranks that open it together; None for one that reads when it will.

    Returns
    -------
    dict
        Options for `File`.
    """
    from mpi4py import MPI

    return {"driver": "mpio", "comm": MPI.COMM_SELF if comm is None else comm}


#: Of a file that says that it was longer than so many times what is left, nothing is believed.
MOST = 64


class CutFile(io.RawIOBase):
    """The bytes of a file that are left; reading any behind them is an error.

    Parameters
    ----------
    path : str
        The file.
    size : int
        Bytes that it says it had.
    """

    def __init__(self, path: str, size: int):
        self._file = open(path, "rb", buffering=0)  # noqa: SIM115
        self._left = os.fstat(self._file.fileno()).st_size
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """Where reading goes on, bytes."""
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go on elsewhere.

        Parameters
        ----------
        offset : int
            Bytes.
        whence : int
            From the beginning, from here, or from where the file ended.

        Returns
        -------
        int
            Where that is.
        """
        begin = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = begin + offset
        return self._at

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Fill a buffer, or raise `OSError` where that takes bytes that were cut off."""
        if self._at + len(buffer) > self._left:
            raise OSError(f"bytes behind {self._left} were cut off")
        done = os.preadv(self._file.fileno(), [buffer], self._at)
        self._at += done
        return done

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()
        super().close()


#: What may be read whatever the file's size: numbers that were never written have no bytes.
SMALL = 1 << 20


class Node:
    """A group or a dataset.

    Attributes
    ----------
    file : File
        Where it is.
    name : str
        Its path there, as it was reached.
    """

    def __init__(self, file: "File", name: str, h5: Any):
        self.file = file
        self.name = name
        self._h5 = h5

    @property
    def attrs(self) -> Mapping[str, Any]:
        """Its attributes as plain Python: str, int, float, bool, lists of str, arrays of numbers.

        One that holds what none of these can say, or that is empty, is None.
        """
        with asking(self.file.path, self.name, "attributes"):
            names = list(self._h5.attrs)
        return {name: self._attribute(name) for name in names}

    def _attribute(self, name: str) -> Any:
        with asking(self.file.path, f"{self.name}, attribute {name}", "a value"):
            attribute = self._h5.attrs.get_id(name)
            n_bytes = math.prod(attribute.shape or ()) * attribute.get_type().get_size()
            if n_bytes > max(self.file.size, SMALL):
                raise ValueError(f"{n_bytes} bytes claimed, in a file of {self.file.size}")
            return plain(self._h5.attrs[name])

    @property
    def identity(self) -> tuple[int, int]:
        """The same for two names of one object."""
        with asking(self.file.path, self.name):
            info = h5py.h5o.get_info(self._h5.id)
            return info.fileno, info.addr

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} of {self.file.path}>"


#: Largest number of bytes that a byte of deflate's can stand for.
DEFLATE_RATIO = 1032
#: Offset of a chunk whose own cannot be believed: no file has such a byte.
NOWHERE = 2**64 - 1
#: Seconds in which a chunk is found, and in which one is read, at the most.
_FINDING, _READING = 2e-4, 1e-3


class Array(Node):
    """A dataset of any kind of elements.

    Attributes
    ----------
    shape : tuple of int
        Of the whole.
    dtype : numpy.dtype
        Of one element; `object` for text.
    """

    def __init__(self, file: "File", name: str, h5: Any):
        super().__init__(file, name, h5)
        check_external_storage(file, name, h5)
        with asking(file.path, name, "a dataset of a kind that NumPy knows"):
            self.dtype: np.dtype = h5.dtype
            self.shape: tuple[int, ...] = h5.shape or ()

    @property
    def is_text(self) -> bool:
        """Whether its elements are strings."""
        return h5py.check_string_dtype(self.dtype) is not None

    @property
    def names_of_values(self) -> dict[int, str] | None:
        """Of an enumeration, the name of each number; else None."""
        values = h5py.check_enum_dtype(self.dtype)
        return None if values is None else {int(number): name for name, number in values.items()}

    def read(self, rows: slice = slice(None)) -> Any:
        """Its elements, all at once: for what is small.

        Parameters
        ----------
        rows : slice
            Along the first axis.

        Returns
        -------
        numpy.ndarray, or str, int or float
            Text is str, in arrays of `object`; of a dataset without axes, the one element.

        Raises
        ------
        DamagedFileError
            It cannot be read, or claims to be larger than its bytes in the file could be.
        """
        self.refuse_absurd()
        chunks = zip(self.shape, self.chunk or self.shape, strict=True)
        allow(math.prod(-(-n // max(c, 1)) for n, c in chunks) * _READING)
        with asking(self.file.path, self.name):
            values = self._h5[rows] if self.shape else self._h5[()]
        if self.is_text and isinstance(values, np.ndarray):
            texts = np.empty(values.shape, dtype=object)
            texts.ravel()[:] = [text_of(value) for value in values.ravel()]
            return texts
        return values if self.shape else plain(values)

    def refuse_absurd(self) -> None:
        """Raise where it claims to be larger than its bytes in the file could be.

        Raises
        ------
        DamagedFileError
            It does: memory is not to be asked for on a file's word alone.
        """
        claimed = math.prod(self.shape) * max(self.dtype.itemsize, 1)
        room = self.stored_bytes * (DEFLATE_RATIO if self.filters or self.elsewhere else 1)
        if claimed > max(room, SMALL):
            raise damaged(
                self.file.path,
                self.name,
                f"{claimed} bytes in an array of shape {self.shape}",
                f"room for {room} at the most",
            )

    def part(self, *axes: slice) -> np.ndarray:
        """Some of its elements, as they are in the file.

        Parameters
        ----------
        *axes : slice
            Along the first axes; all along the others.

        Returns
        -------
        numpy.ndarray
        """
        together = self._h5.collective if self.file.collective else contextlib.nullcontext()
        with asking(self.file.path, self.name), together:
            return self._h5[axes]

    def damaged(self, expected: str, found: str) -> DamagedFileError:
        """An error that says what is wrong with it."""
        return damaged(self.file.path, self.name, expected, found)

    @property
    def chunk(self) -> tuple[int, ...] | None:
        """Shape of a chunk; None where there are none."""
        return self._h5.chunks

    @property
    def filters(self) -> tuple[Filter, ...]:
        """Through which the bytes of its chunks went, the first first."""
        with asking(self.file.path, self.name, "a list of filters"):
            created = self._h5.id.get_create_plist()
            stages = [created.get_filter(k) for k in range(created.get_nfilters())]
            return tuple(
                Filter(number, text_of(name), tuple(values)) for number, _, values, name in stages
            )

    def refuse_unknown_filters(self) -> None:
        """Raise where HDF5 does not know how its bytes are to be unpacked.

        Raises
        ------
        UnsupportedError
            It names the filter.
        """
        for stage in self.filters:
            if h5py.h5z.filter_avail(stage.number):
                continue
            with contextlib.suppress(ImportError):
                # Those of many others, which HDF5 knows from then on.
                import hdf5plugin  # noqa: F401
            if not h5py.h5z.filter_avail(stage.number):
                raise UnsupportedError(
                    f"{self.file.path}: {self.name} went through the filter {stage.name!r} "
                    f"({stage.number}), which HDF5 does not know here: pip install hdf5plugin, "
                    "which has most"
                )

    @property
    def offset(self) -> int | None:
        """Where a contiguous dataset begins, bytes; None where it was never written."""
        with asking(self.file.path, self.name, "an offset"):
            return self._h5.id.get_offset()

    @property
    def fill(self) -> bytes:
        """One number as the file holds it: what stands where nothing was written."""
        with asking(self.file.path, self.name, "a fill value"):
            return np.asarray(self._h5.fillvalue, dtype=self.dtype).tobytes()

    @property
    def placeholder(self) -> int | float | None:
        """The number that stands for nothing, where whoever made the dataset named one."""
        with asking(self.file.path, self.name, "a fill value"):
            defined = self._h5.id.get_create_plist().fill_value_defined()
            if defined != h5py.h5d.FILL_VALUE_USER_DEFINED:
                return None
            return plain(self._h5.fillvalue)

    @property
    def stored_bytes(self) -> int:
        """What it takes in the file, as far as the file has that many."""
        with asking(self.file.path, self.name, "a size"):
            return min(int(self._h5.id.get_storage_size()), self.file.size)

    @property
    def elsewhere(self) -> str:
        """Why its bytes are not to be found at offsets of this file; empty where they are."""
        with asking(self.file.path, self.name, "a layout"):
            created = self._h5.id.get_create_plist()
            if h5py.h5f.get_name(self._h5.id) != self.file.own_name:
                return f"it lies in another file, {text_of(h5py.h5f.get_name(self._h5.id))}"
            if created.get_layout() == h5py.h5d.VIRTUAL:
                return "it is a virtual dataset"
            if created.get_external_count():
                return "its bytes lie in an external file"
            if created.get_layout() == h5py.h5d.COMPACT:
                return "it is compact: stored among the metadata"
            if h5py.h5t.py_create(self.dtype) != self._h5.id.get_type():
                return "its numbers are of a kind that only HDF5 converts"
            return ""

    def chunks(self, grid: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        """Where its chunks are: those that were written.

        Parameters
        ----------
        grid : tuple of int
            Number of chunks along each axis.

        Returns
        -------
        corners : numpy.ndarray of uint64, shape (n_written, n_axes)
            First element of each.
        places : numpy.ndarray of uint64, shape (n_written, 3)
            Offset, size and mask of each.
        """
        allow(math.prod(grid) * _FINDING)
        with asking(self.file.path, self.name, "a table of chunks"):
            found: list[Any] = []
            try:
                self._h5.id.chunk_iter(found.append)
            except (AttributeError, *H5PY_ERRORS):
                # HDF5 before 1.12 cannot tell of all at once, and none does of a damaged table.
                found = self._chunks_one_by_one(grid)
            corners = np.array([one.chunk_offset for one in found], dtype=np.uint64)
            places = [(one.byte_offset, one.size, one.filter_mask) for one in found]
        shape = (len(places), len(grid))
        return corners.reshape(shape), np.array(places, dtype=np.uint64).reshape(-1, 3)

    def _chunks_one_by_one(self, grid: tuple[int, ...]) -> list[Any]:
        """Where each chunk is; nowhere, of one to which a damaged table does not lead."""
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


#: Soft links that a path may lead through, as with HDF5.
_MOST_LINKS = 16


class Group(Node):
    """A group: names, and what they stand for."""

    def names(self) -> list[str]:
        """Names of its links, in the order in which HDF5 gives them."""
        with asking(self.file.path, self.name, "a group"):
            return list(self._h5)

    def get(self, path: str) -> "Group | Array | None":
        """What a path from here leads to.

        Parameters
        ----------
        path : str
            Names, with "/" between.

        Returns
        -------
        Group, Array or None
            None where there is no such name.

        Raises
        ------
        DamagedFileError
            A link is there, and leads nowhere or in a circle.
        UnsupportedError
            It leads into another file, and that is not asked for.
        """
        return self._followed(path, iter(range(_MOST_LINKS)))

    def _followed(self, path: str, links: Iterator[int]) -> "Group | Array | None":
        node: Group | Array | None = self
        for name in path.split("/"):
            if name not in ("", "."):
                node = node._child(name, links) if isinstance(node, Group) else None
        return node

    def _child(self, name: str, links: Iterator[int]) -> "Group | Array | None":
        """What a name stands for; as many soft links are followed on the way as `links` has."""
        where = f"{self.name.rstrip('/')}/{name}"
        with asking(self.file.path, where, "a group or a dataset"):
            link = self._h5.get(name, getlink=True)
            if link is None:
                return None
            if isinstance(link, h5py.SoftLink):
                return self._behind(link, where, links)
            check_external_link(self.file, where, link)
            try:
                h5 = self._h5[name]
            except (KeyError, RuntimeError, OSError) as error:
                raise damaged(
                    self.file.path, where, "a group or a dataset", _link_in_words(link, error)
                ) from error
            return self._node(where, h5)

    def _behind(self, link: Any, where: str, links: Iterator[int]) -> "Group | Array | None":
        """What a soft link leads to: HDF5 itself would follow links into other files on the way."""
        leads = "in a circle"
        if next(links, None) is not None:
            leads = "nowhere"
            start = Group(self.file, "/", self._h5.file) if link.path.startswith("/") else self
            node = start._followed(link.path, links)
            if node is not None:
                return self._node(where, node._h5)
        found = f"a link to {link.path} that leads {leads}"
        raise damaged(self.file.path, where, "a group or a dataset", found)

    def _node(self, where: str, h5: Any) -> "Group | Array | None":
        if isinstance(h5, h5py.Group):
            return Group(self.file, where, h5)
        return Array(self.file, where, h5) if isinstance(h5, h5py.Dataset) else None

    def __getitem__(self, path: str) -> "Group | Array":
        """What a path leads to; `MissingDataError` where it leads to nothing."""
        node = self.get(path)
        if node is None:
            raise MissingDataError(f"{self.file.path}: {self.name} has no {path!r}")
        return node

    def __contains__(self, path: str) -> bool:
        return self.get(path) is not None

    def group(self, path: str) -> "Group | None":
        """The group of a name, or None."""
        node = self.get(path)
        return node if isinstance(node, Group) else None

    def array(self, path: str) -> "Array | None":
        """The dataset of a name, or None."""
        node = self.get(path)
        return node if isinstance(node, Array) else None

    def children(self) -> Iterator["Group | Array"]:
        """What its links stand for; those that lead nowhere, or out of the file, are left out."""
        for name in self.names():
            try:
                node = self.get(name)
            except DamagedFileError:
                continue
            except LeadsOutError as error:
                self.file.left_out.append(error.what)
                continue
            if node is not None:
                yield node

    def walk(self) -> Iterator["Group | Array"]:
        """Everything below, each object once, whatever its links."""
        seen, waiting = {self.identity}, [self]
        while waiting:
            for node in waiting.pop().children():
                if node.identity not in seen:
                    seen.add(node.identity)
                    yield node
                    if isinstance(node, Group):
                        waiting.append(node)


def _link_in_words(link: Any, error: BaseException) -> str:
    if isinstance(link, h5py.ExternalLink):
        return f"a link to {link.path} in file {link.filename}, which cannot be followed"
    return f"what HDF5 refuses ({reason_of(error)})"


__all__ = ["DEFLATE_RATIO", "NOWHERE", "Array", "File", "Group", "asking", "damaged"]


class File:
    """An HDF5 file, open for reading; a context manager.

    Parameters
    ----------
    path : path-like
        The file.
    collective : bool
        Whether the ranks that have opened it together all make each reading call.
    external : bool
        Whether links and datasets that lead into other files are followed.
    **options
        For h5py.

    Attributes
    ----------
    path : str
        As given.
    size : int
        Bytes.
    cut_from : int or None
        Bytes that it says it had, of a file that was cut: what is left of it is read.
    root : Group
        All that is in it.
    left_out : list of str
        What leads into other files and was passed over when groups were looked through.

    Raises
    ------
    OSError
        It is not there, or this user may not read it.
    UnsupportedError
        It is no HDF5 file, or open for writing.
    DamagedFileError
        Its first structures are damaged.
    """

    def __init__(
        self,
        path: str | os.PathLike,
        *,
        collective: bool = False,
        external: bool = False,
        **options: Any,
    ):
        self.path = os.fspath(path)
        self.collective = collective
        self.external = external
        self.left_out: list[str] = []
        with open(self.path, "rb") as file:
            self.size = file.seek(0, os.SEEK_END)
        self.cut_from: int | None = None
        try:
            self._h5 = h5py.File(self.path, "r", **options)
        except H5PY_ERRORS as error:
            self._h5 = self._what_is_left(error)
        if self._h5.id.get_intent() & h5py.h5f.ACC_RDWR:
            self.close()
            raise _in_use(self.path, "this program has it open for writing: close it there first")
        self.own_name = h5py.h5f.get_name(self._h5.id)
        self.root = Group(self, "/", self._h5)

    def _what_is_left(self, error: BaseException) -> h5py.File:
        """A file that HDF5 did not open, if that was because it is cut."""
        cut = re.search(r"stored_eof = (\d+)", str(error))
        if cut is not None and int(cut[1]) <= MOST * self.size:
            self.cut_from = int(cut[1])
            with contextlib.suppress(*H5PY_ERRORS):
                return h5py.File(CutFile(self.path, self.cut_from), "r")
        raise _why_not_open(self.path, self.size, error) from error

    @contextlib.contextmanager
    def blaming_the_cut(self) -> Iterator[None]:
        """Say of a file that was cut that this is why it cannot be read.

        Yields
        ------
        None

        Raises
        ------
        DamagedFileError
            What HDF5 must know of the file lay behind the cut.
        """
        try:
            yield
        except DamagedFileError as error:
            if self.cut_from is None:
                raise
            found = (
                f"{self.size}: the file was cut, and what tells where its numbers are lay in the "
                "rest; copy it again from where it is whole"
            )
            raise damaged(self.path, "", f"{self.cut_from} bytes", found, self.size) from error

    @property
    def h5(self) -> Any:
        """What h5py opened, for those who copy it."""
        return self._h5

    def close(self) -> None:
        """Let go of the file."""
        self._h5.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _in_use(path: str, why: str) -> UnsupportedError:
    return UnsupportedError(f"{path}: {why}")


def _why_not_open(path: str, size: int, error: BaseException) -> PacelineError:
    """The one thing that a user should know of a file that HDF5 does not open."""
    text = str(error)
    if "lock file" in text:
        return _in_use(path, "another program has it open for writing: wait until it closes it")
    if "already open for" in text or "consistency flags" in text:
        return _in_use(
            path,
            "another program writes it, or was killed when it did: wait for it, or, if none does, "
            f"clear the mark that it left with h5clear --status {path}",
        )
    if "signature not found" in text:
        return UnsupportedError(f"{path}: not an HDF5 file: none of its signatures was found")
    if cut := re.search(r"stored_eof = (\d+)", text):
        return damaged(path, "", f"{cut[1]} bytes", f"{size}: the file was cut", size)
    return damaged(path, "", "an HDF5 file", f"what HDF5 refuses ({reason_of(error)})")


_EXTERNAL = (
    "other files are not opened unless external=True (--external) asks for it, where you trust "
    "this one"
)


def check_external_link(file: File, where: str, link: Any) -> None:
    """Raise `LeadsOutError` where an external link is not to be followed."""
    if isinstance(link, h5py.ExternalLink):
        names = [link.filename]
        _check_named(file, where, f"an external link to {link.path}", names, "HDF5_EXT_PREFIX")


def check_external_storage(file: File, where: str, h5: Any) -> None:
    """Raise `LeadsOutError` where a dataset's numbers lie in files that are not to be opened.

    To be called before anything else is asked of it: for its shape alone HDF5 may open others.
    """
    with asking(file.path, where, "a layout"):
        created = h5.id.get_create_plist()
        n_sources = 0
        if created.get_layout() == h5py.h5d.VIRTUAL:
            n_sources = created.get_virtual_count()
        sources = (text_of(created.get_virtual_filename(k)) for k in range(n_sources))
        n_stored = created.get_external_count()
        stored = (text_of(created.get_external(k)[0]) for k in range(n_stored))
        if n_sources:
            _check_named(file, where, "a virtual dataset", sources, "HDF5_VDS_PREFIX")
        if n_stored:
            _check_named(
                file, where, "a dataset with external storage", stored, "HDF5_EXTFILE_PREFIX"
            )


def _check_named(file: File, where: str, what: str, names: Any, variable: str) -> None:
    for name in names:
        other = "this file" if name == "." else name
        found = f"{where} is {what}, which leads into {other}"
        if not file.external:
            raise _leads_out(file.path, found, _EXTERNAL)
        for place in _named_places(file.path, name, variable):
            if os.path.exists(place) and not stat.S_ISREG(os.stat(place).st_mode):
                raise _leads_out(file.path, found, f"{place} is no regular file and is not opened")


def _leads_out(path: str, found: str, why: str) -> LeadsOutError:
    error = LeadsOutError(f"{path}: {found}: {why}")
    error.what = found
    return error


def _named_places(path: str, name: str, variable: str) -> Iterator[str]:
    """Where HDF5 looks for a file that another one names."""
    folders = ["", os.path.dirname(os.path.realpath(path)), os.path.dirname(path)]
    folders += os.environ.get(variable, "").split(":")
    if name == ".":
        return
    for folder in folders:
        yield os.path.join(folder, name)
        yield os.path.join(folder, os.path.basename(name))
