"""How numbers lie in an HDF5 file that we write: in chunks, and of which shape. Pure.

What decides is who reads. All numbers of frame k stand together in the layout "frame", and those
of one atom are spread over the whole file; chunks of many frames and few atoms are the other way
round. HDF5 reads, and inflates, whole chunks only. Of 2,000 frames of 47,681 atoms, 1.1 GB, the
automatic choices are, where nothing is compressed:

======== ============ ========= ================== ==================
for      chunk        bytes     one frame takes    one atom takes
======== ============ ========= ================== ==================
frames   1 × 47,681   572 kB    1 chunk, 572 kB    all of the file
both     16 × 1,365   262 kB    35 chunks, 9 MB    125 chunks, 33 MB
atoms    64 × 85      65 kB     561 chunks, 37 MB  32 chunks, 2 MB
======== ============ ========= ================== ==================

Whoever reads neighbouring frames in blocks of 16 and more, as `paceline` does, reads nothing twice
of "both" either.
"""

import re
from dataclasses import dataclass, replace

from paceline.errors import UnsupportedError

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
#: Frames of a chunk for both accesses: those of a leaf of `paceline.plan`.
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
