"""How numbers of frames are stored in an H5MD file that we write, and which of them together."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from paceline import _core
from paceline.errors import UnsupportedError, UnwritableError


@dataclass(frozen=True)
class Compression:
    """What is done to the bytes of a chunk.

    Attributes
    ----------
    shuffle : bool
        Whether the first bytes of all numbers stand before all second ones, and so on: then the
        signs and exponents, which are alike, are together.
    level : int or None
        Of gzip, 1 to 9; None where nothing is compressed.
    """

    shuffle: bool = False
    level: int | None = None


def parse_compression(text: str) -> Compression:
    """What `--compress` asks for.

    Parameters
    ----------
    text : str
        "none", or as "gzip:1" or "shuffle+gzip:4".

    Returns
    -------
    Compression

    Raises
    ------
    UnsupportedError
        It is something else.

    Examples
    --------
    >>> parse_compression("shuffle+gzip:4")
    Compression(shuffle=True, level=4)
    """
    if text == "none":
        return Compression()
    asked = re.fullmatch(r"(shuffle\+)?gzip:([1-9])", text)
    if asked is None:
        raise UnsupportedError(
            f"expected a compression as none, gzip:1 to gzip:9 or shuffle+gzip:4, found {text!r}"
        )
    return Compression(asked[1] is not None, int(asked[2]))


def refuse_packed_space(contiguous: bool, compression: Compression) -> None:
    """Raise where contiguous space is to be compressed.

    Parameters
    ----------
    contiguous : bool
        Whether there are no chunks.
    compression : Compression
        What is to be done to them.

    Raises
    ------
    UnsupportedError
        HDF5 compresses chunks only.
    """
    if contiguous and compression.level is not None:
        raise UnsupportedError("contiguous space cannot be compressed: choose chunks for that")


#: What a file may be made for.
ACCESSES = ("frames", "atoms", "both")

#: Bytes of a number as we write it, and of an atom.
NUMBER_BYTES, ATOM_BYTES = 4, 12
#: Chunks are not smaller without need: to find one takes HDF5 about as long as to copy so much.
SMALL = 64 * 2**10
#: Chunks for both accesses: HDF5 keeps four of them for the next read, 1 MiB before its version 2.
MIDDLE = 256 * 2**10
#: Chunks are not larger without need: whoever wants one atom of a frame reads, and keeps, so much.
LARGE = 16 * 2**20
#: Frames of a chunk, all atoms of them: so much memory each worker needs that reads or writes.
ROW_BYTES = 64 * 2**20
#: The same where the user chose the chunk.
MOST_ROW_BYTES = 2 * 2**30
#: Frames of a chunk for both accesses: those of a leaf of `paceline.schedule.plan`.
BOTH_FRAMES = 16
#: Frames of a chunk for a few atoms, at the most: blocks that are dealt to workers hold as many,
#: and a file of some thousand frames shall have some for each.
ATOMS_FRAMES = 256
#: Stripes that a chunk fills: half of one is lost at its end, on an average a 16th of it.
STRIPES = 8


@dataclass(frozen=True)
class Layout:
    """Where the numbers of a frame stand.

    Attributes
    ----------
    frames, atoms : int
        Of a chunk. Contiguous space is as chunks of one frame each, without a gap between them.
    contiguous : bool
        Whether there are no chunks.
    align : int
        Bytes at a multiple of which each chunk begins that is as large, or contiguous space; 1
        where they begin anywhere.
    """

    frames: int
    atoms: int
    contiguous: bool = False
    align: int = 1

    @property
    def chunk(self) -> tuple[int, int, int]:
        """Shape of a chunk."""
        return self.frames, self.atoms, 3

    def frames_together(self, n_atoms: int) -> int:
        """Frames that are best dealt to one worker: a power of two, so that no leaf is parted.

        Parameters
        ----------
        n_atoms : int
            Of a frame.

        Returns
        -------
        int
            Those of a chunk. Where these are no power of two, so many more that few chunks are
            begun by one worker and ended by another, as far as memory should hold them.

        Examples
        --------
        >>> Layout(32, 214).frames_together(214), Layout(10, 214).frames_together(214)
        (32, 64)
        """
        together = 1 << (self.frames - 1).bit_length()
        if together == self.frames:
            return together
        while together < 4 * self.frames and 2 * together * n_atoms * ATOM_BYTES <= ROW_BYTES:
            together *= 2
        return together

    def within(self, n_frames: int) -> "Layout":
        """The same for a file of so few frames that a chunk would not be filled.

        Parameters
        ----------
        n_frames : int
            Of the file.

        Returns
        -------
        Layout
        """
        return replace(self, frames=min(self.frames, n_frames))


def parse_chunk(text: str) -> tuple[int, int] | None:
    """What `--chunk` asks for, whatever is written.

    Parameters
    ----------
    text : str
        "frame", "contiguous", "auto", or FRAMESxATOMS.

    Returns
    -------
    (int, int) or None
        Frames and atoms of a chunk; None where a word says it.

    Raises
    ------
    UnsupportedError
        It is something else.

    Examples
    --------
    >>> parse_chunk("16x1000")
    (16, 1000)
    """
    if text in ("frame", "contiguous", "auto"):
        return None
    asked = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", text)
    if asked is None:
        raise UnsupportedError(
            "expected a chunk as frame, contiguous, auto or FRAMESxATOMS such as 16x1000, found "
            f"{text!r}"
        )
    return int(asked[1]), int(asked[2])


def choose_layout(
    chunk: str,
    n_atoms: int,
    *,
    for_: str = "frames",
    align: int | None = None,
) -> Layout:
    """The layout that `--chunk` asks for.

    Frames of a chunk that is chosen here are a power of two, so that the blocks in which frames
    are dealt to workers end where chunks end.

    Parameters
    ----------
    chunk : str
        "frame": one frame, all atoms; "FRAMESxATOMS", as "16x1000"; "contiguous": no chunks;
        "auto": by what the file is read for.
    n_atoms : int
        Atoms to be written.
    for_ : {"frames", "atoms", "both"}
        Of "auto": whether whole frames are read, a few atoms through all frames, or both.
    align : int, optional
        Bytes of a stripe of the file system, at the beginning of which chunks shall begin.

    Returns
    -------
    Layout

    Raises
    ------
    UnsupportedError
        There is no such layout, or a worker would need more than 2 GiB for a row of its chunks.

    Examples
    --------
    A frame a chunk, where it has 64 kB or more, is read by frames as fast as contiguous space:

    >>> choose_layout("auto", 47_681).chunk, choose_layout("auto", 214).chunk
    ((1, 47681, 3), (16, 214, 3))
    >>> choose_layout("auto", 47_681, for_="both").chunk
    (16, 1365, 3)
    >>> choose_layout("auto", 47_681, for_="atoms").chunk
    (64, 85, 3)

    Of an enormous frame a chunk holds a part:

    >>> choose_layout("auto", 10_000_000).chunk
    (1, 1250000, 3)

    Stripes of 1 MiB are wasted less by larger chunks:

    >>> choose_layout("auto", 47_681, align=2**20).chunk
    (8, 47681, 3)
    """
    if for_ not in ACCESSES:
        raise UnsupportedError(f"expected for_ out of {', '.join(ACCESSES)}, found {for_!r}")
    if align is not None and align < 1:
        raise UnsupportedError(f"expected bytes of a stripe, 1 or more, found {align}")
    align = align or 1
    asked = parse_chunk(chunk)
    if chunk == "contiguous":
        return Layout(1, n_atoms, contiguous=True, align=align)
    if chunk == "frame":
        return _bounded(Layout(1, n_atoms, align=align), n_atoms)
    if asked is None:
        return _automatic(n_atoms, for_, align)
    frames, atoms = asked
    if atoms > n_atoms:
        raise UnsupportedError(f"a chunk cannot hold {atoms} atoms: there are {n_atoms}")
    return _bounded(Layout(frames, atoms, align=align), n_atoms)


def _bounded(layout: Layout, n_atoms: int) -> Layout:
    """The layout, if its chunks can be made."""
    row = layout.frames * n_atoms * ATOM_BYTES
    if layout.frames > 1 and row > MOST_ROW_BYTES:
        raise UnsupportedError(
            f"chunks of {layout.frames} frames need {row / 2**30:.1f} GiB of memory for each "
            f"worker, more than {MOST_ROW_BYTES // 2**30}: choose fewer frames"
        )
    if layout.frames * layout.atoms * ATOM_BYTES >= 2**32:
        raise UnsupportedError(
            f"a chunk of HDF5 holds less than 4 GiB, not {layout.frames} frames of {layout.atoms} "
            "atoms: choose fewer atoms"
        )
    return layout


def _automatic(n_atoms: int, for_: str, align: int) -> Layout:
    frame = n_atoms * ATOM_BYTES
    stripes = STRIPES * align if align > 1 else 0
    row = _power_of_two(ROW_BYTES // frame)
    # As many frames as are no longer small, of all atoms.
    frames = min(_power_of_two(max(SMALL, stripes) // frame), row)
    if for_ == "frames":
        return Layout(frames, _atoms(n_atoms, frames, max(LARGE, stripes)), align=align)
    if for_ == "both":
        frames, target = max(frames, min(BOTH_FRAMES, row)), MIDDLE
    else:
        frames, target = min(row, ATOMS_FRAMES), SMALL
    atoms = min(n_atoms, max(1, max(target, stripes) // (frames * ATOM_BYTES)))
    return Layout(frames, atoms, align=align)


def _atoms(n_atoms: int, frames: int, most: int) -> int:
    """All atoms, or of parts that are about equal one that is not too large."""
    parts = -(-n_atoms * frames * ATOM_BYTES // most)
    return -(-n_atoms // parts)


def _power_of_two(n: int) -> int:
    """The largest that is not above n; 1 at the least."""
    return 1 << max(n.bit_length() - 1, 0)


#: Of a field, its element in H5MD.
ELEMENTS = {"positions": "position", "velocities": "velocity", "forces": "force"}
#: Å: what is coarser is XTC's integers per nm by mistake, and would ruin every position.
_COARSEST = 1.0
#: The group of particles, by the name that MDAnalysis gives it.
GROUP = "trajectory"


@dataclass(frozen=True)
class Storage:
    """How numbers are stored.

    Attributes
    ----------
    layout : Layout
        Where.
    compression : Compression
        Through which filters.
    precision : float or None
        Å: by how much positions may be apart and still be stored as the same, if they may.
    """

    layout: Layout
    compression: Compression
    precision: float | None = None

    def __post_init__(self) -> None:
        refuse_packed_space(self.layout.contiguous, self.compression)
        refuse_coarse(self.precision)

    def encoder(self, field: str) -> "_core.ChunkEncoder":
        """What encodes the chunks of a field.

        Parameters
        ----------
        field : str
            "positions", "velocities" or "forces".

        Returns
        -------
        ChunkEncoder
        """
        return _core.ChunkEncoder(
            "<f4",
            self.layout.chunk,
            shuffle=self.compression.shuffle,
            level=self.compression.level,
            precision=self.precision if field == "positions" else None,
            what=ELEMENTS[field],
        )


def refuse_coarse(precision: float | None) -> None:
    """Raise `UnwritableError` if a precision would leave nothing of the positions.

    Parameters
    ----------
    precision : float or None
        Å.
    """
    if precision is not None and precision > _COARSEST:
        raise UnwritableError(
            f"of H5MD, expected a precision of at most {_COARSEST:g} Å such as 0.001, found "
            f"{precision:g}; in integers per nm it is that of XTC"
        )


@dataclass(frozen=True)
class Places:
    """Where the numbers of a dataset stand in its file; workers write them there.

    Attributes
    ----------
    offsets : numpy.ndarray of uint64, shape (n_chunks,) or (1,)
        Of all chunks, in C order; of contiguous space, where it begins.
    layout : Layout
        Of the dataset.
    n_atoms : int
        Of a row.
    """

    offsets: np.ndarray
    layout: Layout
    n_atoms: int

    def of(self, first: int, n_frames: int) -> tuple[np.ndarray, int]:
        """Places of some frames, as the encoder wants them.

        Parameters
        ----------
        first, n_frames : int
            Rows of the dataset.

        Returns
        -------
        places : numpy.ndarray of uint64, shape (n_chunks,)
            Of all chunks that hold one of them.
        lead : int
            Frames in the first of them that stand before ours.
        """
        if self.layout.contiguous:
            size = np.prod([self.n_atoms, 3, 4], dtype=np.uint64)
            rows = np.arange(first, first + n_frames, dtype=np.uint64)
            return self.offsets[0] + rows * size, 0
        columns = -(-self.n_atoms // self.layout.atoms)
        top, lead = divmod(first, self.layout.frames)
        bottom = -(-(first + n_frames) // self.layout.frames)
        return self.offsets[top * columns : bottom * columns], lead


def cut(first: int, n_frames: int, chunk_frames: int | None) -> Iterator[tuple[slice, bool]]:
    """Rows of a block, by whether they fill their chunks.

    Parameters
    ----------
    first, n_frames : int
        Rows of the dataset.
    chunk_frames : int or None
        Of a chunk; None where no rows are to fill any.

    Yields
    ------
    rows : slice
        Of the block.
    whole : bool
        Whether they are whole chunks.

    Examples
    --------
    >>> [(rows.start, rows.stop, whole) for rows, whole in cut(6, 10, 4)]
    [(0, 2, False), (2, 10, True)]
    >>> [(rows.start, rows.stop, whole) for rows, whole in cut(5, 2, 4)]
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
