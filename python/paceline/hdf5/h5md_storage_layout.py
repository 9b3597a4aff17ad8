"""Choose how an H5MD file stores frames: chunks, alignment, compression, rounding."""

import operator
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from paceline import _core
from paceline.errors import UnsupportedError, UnwritableError
from paceline.hdf5.chunk_index import LZ4, LZF, ZSTD
from paceline.hdf5.create_h5md_groups import ELEMENTS, QUANTITIES
from paceline.hdf5.units import OUR_UNITS, factor_of

#: Access patterns for which a file may be optimised.
ACCESSES = ("frames", "atoms", "both")

#: Size of a stored 32-bit number, bytes.
NUMBER_BYTES = 4
#: Size of an atom's vector of three 32-bit numbers, bytes.
ATOM_BYTES = 12
#: Minimum size of chunks, bytes, if possible. HDF5 takes about as long to find a chunk as to copy
#: this many bytes.
SMALL = 64 * 2**10
#: Size of chunks for the access pattern "both", bytes. HDF5's chunk cache (1 MiB before version 2)
#: holds four such chunks.
MIDDLE = 256 * 2**10
#: Maximum size of chunks, bytes, if possible. To read one atom of a frame, a whole chunk must be
#: read.
LARGE = 16 * 2**20
#: Maximum size of a chunk's frames with all atoms, bytes: each worker that reads or writes needs
#: this memory.
ROW_BYTES = 64 * 2**20
#: Maximum size of a chunk's frames with all atoms if the user chooses the chunk, bytes.
MOST_ROW_BYTES = 2 * 2**30
#: Number of frames in a chunk for the access pattern "both", as in a leaf of
#: `paceline.contract.plan`.
BOTH_FRAMES = 16
#: Maximum number of frames in a chunk for reading a few atoms. A block contains the frames of one
#: chunk, and a file of a few thousand frames must have enough blocks for all workers.
ATOMS_FRAMES = 256
#: Number of file-system stripes per chunk, if the stripe size is known. On average, half a stripe,
#: a 16th of the chunk, is wasted at the end of the chunk.
STRIPES = 8
#: Maximum precision, Å. A larger value would make positions useless. Probably the user means XTC's
#: precision, which is a number of integers per nm.
_COARSEST = 1.0


#: Range of levels of each compression method; None for a method without levels.
LEVELS: Mapping[str, tuple[int, int] | None] = {
    **{"gzip": (1, 9), "zstd": (1, 19)},
    **dict.fromkeys(("lz4", "lzf")),
}
#: Numbers of the filters that an HDF5 library may lack.
REGISTERED = {"zstd": ZSTD, "lz4": LZ4, "lzf": LZF}


@dataclass(frozen=True)
class Compression:
    """Filters of a chunk: byte shuffle, and a method of `LEVELS` (or None) with its level."""

    shuffle: bool = False
    method: str | None = None
    level: int | None = None


@dataclass(frozen=True)
class DatasetLayout:
    """Frames and atoms per chunk. Contiguous storage is treated as chunks of one frame.

    Contiguous storage, and chunks of at least `align` bytes, begin at a multiple of `align`.
    """

    frames: int
    atoms: int
    contiguous: bool = False
    align: int = 1

    @property
    def chunk(self) -> tuple[int, int, int]:
        """Shape of a chunk: frames, atoms, components."""
        return self.frames, self.atoms, 3

    def frames_together(self, n_atoms: int) -> int:
        """Return the number of frames for one worker: a power of two, so that no leaf is split.

        This is the number of frames per chunk. If that number is not a power of two, the result is
        larger, within the memory limit, so that few chunks are shared by two workers.

        Examples
        --------
        >>> layouts = DatasetLayout(32, 214), DatasetLayout(10, 214)
        >>> [layout.frames_together(214) for layout in layouts]
        [32, 64]
        """
        together = 1 << (self.frames - 1).bit_length()
        if together == self.frames:
            return together
        while together < 4 * self.frames and 2 * together * n_atoms * ATOM_BYTES <= ROW_BYTES:
            together *= 2
        return together

    def within(self, n_frames: int) -> "DatasetLayout":
        """Shrink chunks so that a file of few frames fills them."""
        return replace(self, frames=min(self.frames, n_frames))


@dataclass(frozen=True)
class Storage:
    """Layout, compression, precision of positions (Å; None for no rounding), and units."""

    layout: DatasetLayout
    compression: Compression
    precision: float | None = None
    units: Mapping[str, str] = field(default_factory=lambda: OUR_UNITS)

    def __post_init__(self) -> None:
        check_compressible(self.layout.contiguous, self.compression)
        check_precision(self.precision)

    def encoder(self, field: str) -> "_core.ChunkEncoder":
        """Create the encoder of a field, which converts values in paceline's units."""
        quantity = QUANTITIES[ELEMENTS[field]]
        factor = 1 / factor_of(self.units[quantity], quantity)
        precision = self.precision if field == "positions" else None
        return chunk_encoder(
            self.layout,
            self.compression,
            precision=None if precision is None else precision * factor,
            factor=factor,
            what=ELEMENTS[field],
        )


def chunk_encoder(
    layout: DatasetLayout,
    compression: Compression,
    *,
    precision: float | None,
    what: str,
    dtype: str = "<f4",
    factor: float = 1.0,
) -> "_core.ChunkEncoder":
    """Create the encoder of a dataset's chunks; its errors name the element `what`.

    Numbers are multiplied by `factor`. `precision` is in the resulting unit.
    """
    return _core.ChunkEncoder(
        dtype,
        layout.chunk,
        shuffle=compression.shuffle,
        method=compression.method,
        level=compression.level,
        precision=precision,
        factor=factor,
        what=what,
    )


def check_compressible(contiguous: bool, compression: Compression) -> None:
    """Raise `UnsupportedError` for compression of contiguous storage."""
    if contiguous and compression.method is not None:
        raise UnsupportedError("contiguous storage cannot be compressed: choose chunks instead")


def check_precision(precision: float | None) -> None:
    """Raise `UnwritableError` for a precision (Å) that would make positions useless."""
    if precision is not None and precision > _COARSEST:
        raise UnwritableError(
            f"of H5MD, expected a precision of at most {_COARSEST:g} Å such as 0.001, found "
            f"{precision:g}; XTC's precision is in integers per nm instead"
        )


def parse_compression(text: str) -> Compression:
    """Parse the value of `--compress`: "none", or a method such as "zstd:3" or "shuffle+gzip:4".

    Examples
    --------
    >>> parse_compression("shuffle+zstd:3")
    Compression(shuffle=True, method='zstd', level=3)
    """
    if text == "none":
        return Compression()
    match = re.fullmatch(r"(shuffle\+)?(\w+)(?::(\d+))?", text)
    if match and match[2] in LEVELS:
        levels, level = LEVELS[match[2]], None if match[3] is None else int(match[3])
        if level is None if levels is None else level in range(levels[0], levels[1] + 1):
            return Compression(match[1] is not None, match[2], level)
    raise UnsupportedError(
        "expected a compression: none, gzip:1 to gzip:9, zstd:1 to zstd:19, lz4, lzf, or one of "
        f"these with shuffle, such as shuffle+zstd:3, found {text!r}"
    )


def chunk_like_h5py(chunks: Any) -> str:
    """Convert h5py's `chunks` to a value of `--chunk`.

    Examples
    --------
    >>> chunk_like_h5py((16, 1000, 3)), chunk_like_h5py(False)
    ('16x1000', 'contiguous')
    """
    if isinstance(chunks, bool):
        return "auto" if chunks else "contiguous"
    try:
        frames, atoms, components = map(operator.index, chunks)
    except (TypeError, ValueError):
        frames, atoms, components = 0, 0, 0
    if components != 3 or min(frames, atoms) < 1:
        raise UnsupportedError(
            "chunks: expected frames, atoms and 3, such as (1, 1000, 3), True, or False for "
            "contiguous "
            f"storage, found {chunks!r}"
        )
    return f"{frames}x{atoms}"


def compression_like_h5py(compression: Any, options: Any) -> str:
    """Convert h5py's `compression` and `compression_opts` to a value of `--compress`.

    Examples
    --------
    >>> compression_like_h5py("gzip", 1), compression_like_h5py("gzip", None)
    ('gzip:1', 'gzip:4')
    >>> compression_like_h5py(32015, (5,))
    'zstd:5'
    """
    if hasattr(compression, "filter_id"):  # such as hdf5plugin.Zstd(5)
        compression, options = compression.filter_id, compression.filter_options
    found = f"found {compression!r} with compression_opts={options!r}"
    if compression is None or compression is False:
        if options is not None:
            raise UnsupportedError(f"compression_opts: expected compression= in addition, {found}")
        return "none"
    if compression == "lzf" and options is None:
        return "lzf"
    if not isinstance(compression, bool) and compression in REGISTERED.values():
        return _compression_of_filter(compression, options, found)
    level = None if options is not None else compression
    if compression is True or compression == "gzip":
        level = 4 if options is None else options
    if isinstance(level, bool) or level not in range(10):
        raise UnsupportedError(
            'compression: expected "gzip" with compression_opts=0 to 9, a level alone, "lzf", or a '
            f"filter of hdf5plugin, Zstd or LZ4, {found}; szip is read, not written: "
            'compress="shuffle+gzip:4" makes smaller files, and needs no other package'
        )
    return f"gzip:{level}" if level else "none"


def _compression_of_filter(number: int, options: object, found: str) -> str:
    """Convert a filter's number and tuple of options, as in h5py, to a value of `--compress`."""
    values = () if options is None else options
    if isinstance(values, tuple | list):
        if number == LZ4 and list(values) in ([], [0]):
            return "lz4"
        if number == LZF and not values:
            return "lzf"
        if number == ZSTD and len(values) < 2:
            text = f"zstd:{values[0] if values else 3}"
            parse_compression(text)  # raises an error for invalid levels
            return text
    raise UnsupportedError(
        f"compression: expected {ZSTD} (zstd) with a tuple of one level, or {LZ4} (lz4) without, "
        f"{found}"
    )


def parse_chunk(text: str) -> tuple[int, int] | None:
    """Parse the value of `--chunk`: frames and atoms, or None for frame, contiguous and auto.

    Examples
    --------
    >>> parse_chunk("16x1000")
    (16, 1000)
    """
    if text in ("frame", "contiguous", "auto"):
        return None
    match = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", text)
    if match is None:
        raise UnsupportedError(
            "expected a chunk: frame, contiguous, auto or FRAMESxATOMS, such as 16x1000, found "
            f"{text!r}"
        )
    return int(match[1]), int(match[2])


def choose_layout(
    chunk: str,
    n_atoms: int,
    *,
    for_: str = "frames",
    align: int | None = None,
) -> DatasetLayout:
    """Choose the layout for a value of `--chunk`.

    The automatic number of frames per chunk is a power of two, so that blocks of workers end at
    chunk boundaries.

    Parameters
    ----------
    chunk : str
        "frame": one frame with all atoms; "FRAMESxATOMS", such as "16x1000"; "contiguous": no
        chunks; "auto": chosen for the access pattern `for_`.
    n_atoms : int
        Number of atoms to write.
    for_ : {"frames", "atoms", "both"}
        Access pattern for "auto": whole frames, a few atoms through all frames, or both.
    align : int, optional
        Stripe size of the file system, bytes; chunks begin at multiples of it.

    Returns
    -------
    DatasetLayout

    Raises
    ------
    UnsupportedError
        The layout is unknown, or a worker would need more than 2 GiB for one row of chunks.

    Examples
    --------
    Chunks of one frame, of 64 kB or more, are read frame by frame as fast as contiguous storage:

    >>> choose_layout("auto", 47_681).chunk, choose_layout("auto", 214).chunk
    ((1, 47681, 3), (16, 214, 3))
    >>> choose_layout("auto", 47_681, for_="both").chunk
    (16, 1365, 3)
    >>> choose_layout("auto", 47_681, for_="atoms").chunk
    (64, 85, 3)

    A chunk contains part of a very large frame:

    >>> choose_layout("auto", 10_000_000).chunk
    (1, 1250000, 3)

    Larger chunks waste less of 1 MiB stripes:

    >>> choose_layout("auto", 47_681, align=2**20).chunk
    (8, 47681, 3)
    """
    if for_ not in ACCESSES:
        raise UnsupportedError(f"expected for_ out of {', '.join(ACCESSES)}, found {for_!r}")
    if align is not None and align < 1:
        raise UnsupportedError(f"expected a stripe size of 1 byte or more, found {align}")
    align = align or 1
    given = parse_chunk(chunk)
    if chunk == "contiguous":
        return DatasetLayout(1, n_atoms, contiguous=True, align=align)
    if chunk == "frame":
        return _check_layout(DatasetLayout(1, n_atoms, align=align), n_atoms)
    if given is None:
        return _automatic(n_atoms, for_, align)
    frames, atoms = given
    if atoms > n_atoms:
        raise UnsupportedError(f"a chunk cannot contain {atoms} atoms: there are {n_atoms}")
    return _check_layout(DatasetLayout(frames, atoms, align=align), n_atoms)


def _check_layout(layout: DatasetLayout, n_atoms: int) -> DatasetLayout:
    """Return the layout if its chunks are valid; raise an error otherwise."""
    row = layout.frames * n_atoms * ATOM_BYTES
    if layout.frames > 1 and row > MOST_ROW_BYTES:
        raise UnsupportedError(
            f"chunks of {layout.frames} frames need {row / 2**30:.1f} GiB of memory for each "
            f"worker, more than {MOST_ROW_BYTES // 2**30}: choose fewer frames"
        )
    if layout.frames * layout.atoms * ATOM_BYTES >= 2**32:
        raise UnsupportedError(
            f"an HDF5 chunk has less than 4 GiB, which {layout.frames} frames of {layout.atoms} "
            "atoms exceed: choose fewer atoms"
        )
    return layout


def _automatic(n_atoms: int, for_: str, align: int) -> DatasetLayout:
    """Choose chunks from the access pattern, the stripe and the size of a frame."""
    frame = n_atoms * ATOM_BYTES
    stripes = STRIPES * align if align > 1 else 0
    row = _power_of_two(ROW_BYTES // frame)
    # Number of frames, a power of two, with which a chunk of all atoms has about the minimum
    # size.
    frames = min(_power_of_two(max(SMALL, stripes) // frame), row)
    if for_ == "frames":
        return DatasetLayout(frames, _atoms(n_atoms, frames, max(LARGE, stripes)), align=align)
    if for_ == "both":
        frames, target = max(frames, min(BOTH_FRAMES, row)), MIDDLE
    else:
        frames, target = min(row, ATOMS_FRAMES), SMALL
    atoms = min(n_atoms, max(1, max(target, stripes) // (frames * ATOM_BYTES)))
    return DatasetLayout(frames, atoms, align=align)


def _atoms(n_atoms: int, frames: int, most: int) -> int:
    """Return the number of atoms per chunk, so that a chunk has at most about `most` bytes.

    All atoms are divided into as few parts of about equal size as possible.
    """
    parts = -(-n_atoms * frames * ATOM_BYTES // most)
    return -(-n_atoms // parts)


def _power_of_two(n: int) -> int:
    """Return the largest power of two up to n; at least 1."""
    return 1 << max(n.bit_length() - 1, 0)


@dataclass(frozen=True)
class ChunkOffsets:
    """File offsets of a dataset's chunks in C order or, for contiguous storage, of its first byte.

    Workers write frames at these offsets without the HDF5 library.
    """

    offsets: np.ndarray
    layout: DatasetLayout
    frame_bytes: int
    n_atoms: int

    def of(self, first: int, n_frames: int) -> tuple[np.ndarray, int]:
        """Return chunk offsets of some frames, and the number of earlier frames in the first chunk.

        In contiguous storage, each frame counts as a chunk.
        """
        if self.layout.contiguous:
            rows = np.arange(first, first + n_frames, dtype=np.uint64)
            return self.offsets[0] + rows * np.uint64(self.frame_bytes), 0
        columns = -(-self.n_atoms // self.layout.atoms)
        top, lead = divmod(first, self.layout.frames)
        bottom = -(-(first + n_frames) // self.layout.frames)
        return self.offsets[top * columns : bottom * columns], lead


def split_at_chunks(
    first: int, n_frames: int, chunk_frames: int | None
) -> Iterator[tuple[slice, bool]]:
    """Yield ranges of rows in a block, each with True if it fills whole chunks.

    Without chunks (`chunk_frames` None), yields all rows with False.

    Examples
    --------
    >>> [(rows.start, rows.stop, whole) for rows, whole in split_at_chunks(6, 10, 4)]
    [(0, 2, False), (2, 10, True)]
    >>> [(rows.start, rows.stop, whole) for rows, whole in split_at_chunks(5, 2, 4)]
    [(0, 2, False)]
    """
    if chunk_frames is None:
        yield slice(0, n_frames), False
        return
    begin = min(-first % chunk_frames, n_frames)
    end = max(begin, n_frames - (first + n_frames) % chunk_frames)
    for start, stop, whole in ((0, begin, False), (begin, end, True), (end, n_frames, False)):
        if stop > start:
            yield slice(start, stop), whole
