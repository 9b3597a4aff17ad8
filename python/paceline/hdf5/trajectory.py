"""An HDF5 trajectory, opened once: what all that work with files ask of one."""

import os
import stat
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from paceline import _core
from paceline.block import FIELDS, field_bits
from paceline.errors import MissingDataError, UnsupportedError
from paceline.hdf5.chunk_index import (
    ABSENT,
    Catalogue,
    Element,
    Places,
    Slice,
    frames_of_chunk,
    rows_of,
    slice_of,
)
from paceline.hdf5.options import Hdf5Options
from paceline.hdf5.reader import BlockIndex, Hdf5FileSpec
from paceline.hdf5.sandbox import apart

if TYPE_CHECKING:
    from paceline.hdf5.observables import SeriesByName

#: First bytes of an HDF5 file, or of what follows its user block of 512 bytes times a power of two.
SIGNATURE = b"\x89HDF\r\n\x1a\n"
#: How the note begins that a file which is shorter than it says has.
WAS_CUT = "the file was cut"


def is_hdf5(path: str | os.PathLike) -> bool:
    """Whether a file is an HDF5 file, by its content.

    Parameters
    ----------
    path : path-like
        The file.

    Returns
    -------
    bool

    Raises
    ------
    OSError
        It cannot be read.
    """
    # Opening a pipe would wait for whoever writes to it.
    if not stat.S_ISREG(os.stat(path).st_mode):
        return False
    with open(path, "rb", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        offset = 0
        while offset + len(SIGNATURE) <= size:
            file.seek(offset)
            if file.read(len(SIGNATURE)) == SIGNATURE:
                return True
            offset = max(512, 2 * offset)
    return False


class Hdf5File:
    """An HDF5 trajectory and its catalogue: a `paceline.trajectory.source.TrajectoryFile`.

    Parameters
    ----------
    path : str
        The file.
    fingerprint : str
        What it is recognised by.
    catalogue : Catalogue
        What is in it.
    driver, external : optional
        As for `Hdf5Options`.
    """

    #: Each frame has a time of its own; HDF5 keeps the index, and does not tell what it reads.
    dt = index_file = traffic = None
    first = 0.0
    index_origin = "HDF5's own"

    def __init__(
        self,
        path: str,
        fingerprint: str,
        catalogue: Catalogue,
        driver: str | None = None,
        external: bool = False,
    ):
        self.path = path
        self.external = external
        self.driver = driver
        self.fingerprint = fingerprint
        self.catalogue = catalogue
        self.size = os.stat(path).st_size
        self.notes = [*catalogue.notes, *_detours(catalogue)]

    @classmethod
    def open(cls, path: str, asked: Hdf5Options) -> "Hdf5File":
        """Make the catalogue of a file, and prove that the core reads it as HDF5 does.

        Another process does it: a damaged file can crash HDF5's library, or keep it busy for ever.

        Parameters
        ----------
        path : str
            The file.
        asked : Hdf5Options
            What the user said about it.

        Returns
        -------
        Hdf5File

        Raises
        ------
        UnsupportedError
            It holds nothing that is known to be a trajectory.
        DamagedFileError
            It contradicts itself.
        OSError
            It cannot be opened.
        """
        return apart(cls._opened, path, asked=asked)

    @classmethod
    def _opened(cls, path: str, *, asked: Hdf5Options) -> "Hdf5File":
        # Others, who have no use for HDF5, do not wait for its library.
        from paceline.hdf5.conventions import catalogue_of
        from paceline.hdf5.file import File, refuse_without_mpi
        from paceline.hdf5.verification import proved

        if asked.driver is not None:
            refuse_without_mpi()
        fingerprint = _core.fingerprint_of(path)
        with File(path, external=asked.external) as opened:
            try:
                with opened.blaming_the_cut():
                    catalogue = catalogue_of(opened, **asked.contents)
            except (MissingDataError, UnsupportedError) as error:
                if opened.left_out:
                    error.args = (f"{error}; {_not_followed(opened.left_out)}",)
                raise
            if opened.left_out:
                catalogue = replace(
                    catalogue, notes=[*catalogue.notes, _not_followed(opened.left_out)]
                )
            if opened.cut_from is not None:
                note = f"{WAS_CUT}: {opened.size} of {opened.cut_from} bytes are left"
                catalogue = replace(catalogue, notes=[note, *catalogue.notes])
        if asked.driver is None:
            catalogue = proved(cls(path, fingerprint, catalogue, external=asked.external))
        return cls(path, fingerprint, catalogue, asked.driver, asked.external)

    @property
    def format(self) -> str:
        """As users call it."""
        return self.catalogue.dialect

    @property
    def n_atoms(self) -> int:
        """Number of atoms of each frame."""
        return self.catalogue.n_atoms

    @property
    def n_frames(self) -> int:
        """Number of frames."""
        return self.catalogue.n_frames

    @property
    def fields(self) -> int:
        """What frames may hold, as the core counts it."""
        return field_bits(list(self.catalogue.elements))

    @cached_property
    def observables(self) -> "SeriesByName":
        """Energies and the like, by name."""
        from paceline.hdf5.observables import observables_of

        return apart(observables_of, self.path, external=self.external)

    @cached_property
    def properties(self) -> "SeriesByName":
        """What it tells of its particles beside their motion, by name."""
        from paceline.hdf5.observables import properties_of

        group = self.catalogue.facts.get("group")
        return apart(properties_of, self.path, group=group, external=self.external)

    @property
    def _main(self) -> Element:
        """What says where a frame is."""
        elements = self.catalogue.elements
        return next(elements[field] for field in FIELDS if field in elements)

    @cached_property
    def spec(self) -> Hdf5FileSpec:
        """What workers must know of it."""
        found = self.catalogue
        return Hdf5FileSpec(
            self.path,
            self.fingerprint,
            found.n_atoms,
            tuple(_bare(found.elements.get(field)) for field in FIELDS),
            _bare(found.ids),
            found.id_order,
            self.driver,
            self.external,
        )

    @property
    def chunk_frames(self) -> int:
        """Neighbours that are stored as one."""
        return max(frames_of_chunk(one, self.n_frames) for one in self.catalogue.elements.values())

    @cached_property
    def damaged(self) -> list[int]:
        """Frames that lie outside of the file, or share bytes with others."""
        frames = np.arange(self.n_frames)
        lost = np.zeros(self.n_frames, dtype=bool)
        for element in self.catalogue.elements.values():
            places = Places.of(element.dataset)
            # A chunk that is nowhere has an offset to which nothing can be added.
            ends = self.size - np.minimum(places.sizes, self.size)
            outside = (places.offsets > ends).any(axis=1)
            rows = rows_of(element, frames)
            there = rows != ABSENT
            lost[there] |= outside[rows[there] // places.n_rows]
        return np.flatnonzero(lost).tolist()

    @cached_property
    def _places(self) -> Places:
        return Places.of(self._main.dataset)

    def extents(self, frames: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where the first of their bytes are, and how many they have.

        Parameters
        ----------
        frames : numpy.ndarray of uint64, shape (n_frames,)
            Frame numbers.

        Returns
        -------
        offsets : numpy.ndarray of uint64, shape (n_frames,)
            First byte; of a frame that shares chunks with others, the first of theirs.
        sizes : numpy.ndarray of uint64, shape (n_frames,)
            Bytes; of such a frame, its share of them. 0 where only HDF5 knows.
        """
        if len(frames) and frames.max() >= self.n_frames:
            raise ValueError(f"frame {frames.max()} is out of range for {self.n_frames} frames")
        rows = rows_of(self._main, frames)
        there, places = rows != ABSENT, rows // self._places.n_rows
        offsets = self._places.offsets[places].min(axis=1)
        sizes = self._places.sizes[places].sum(axis=1) // np.uint64(self._places.n_rows)
        nothing = np.uint64(0)
        return np.where(there, offsets, nothing), np.where(there, sizes, nothing)

    def slice_of(self, frames: np.ndarray) -> BlockIndex:
        """What else workers need to read these frames.

        Parameters
        ----------
        frames : numpy.ndarray of uint64, shape (n_frames,)
            Frame numbers.

        Returns
        -------
        BlockIndex
        """
        found = self.catalogue
        numbers = frames.astype(np.int64)
        shared = len(found.dimensions) != found.n_frames
        return BlockIndex(
            tuple(_slice(found.elements.get(field), numbers) for field in FIELDS),
            _slice(found.ids, numbers),
            found.dimensions if shared else found.dimensions[numbers],
            found.times[numbers],
            found.steps[numbers],
        )

    def times(self) -> tuple[np.ndarray, np.ndarray]:
        """Time (ps) and step of every frame."""
        return self.catalogue.times, self.catalogue.steps

    @property
    def traits(self) -> list[tuple[str, str]]:
        """What files must have in common for the frames of one to continue those of the other."""
        return [("format", self.format), ("number of atoms", str(self.n_atoms))]

    def head(self, first: int, n_frames: int) -> bytes:
        """Nothing: `UnsupportedError`.

        Parameters
        ----------
        first, n_frames : int
            Frames that are to be copied.

        Returns
        -------
        bytes
        """
        raise UnsupportedError(
            f"{self.path}: frames of an HDF5 file cannot be copied as they are; "
            "paceline convert writes them anew"
        )

    def verify(self) -> None:
        """Raise `FileChangedError` where the file of this name is not the one that was opened."""
        _core.verify(self.path, self.fingerprint)


def _not_followed(left_out: list[str]) -> str:
    return f"not followed without external=True (--external): {left_out[0]}"


def _detours(catalogue: Catalogue) -> Iterator[str]:
    """What goes the slow way."""
    ids = {} if catalogue.ids is None else {"numbers of atoms": catalogue.ids}
    for what, element in {**catalogue.elements, **ids}.items():
        if element.dataset.detour:
            yield (
                f"{what} are read through HDF5's own library, which is slower: "
                f"{element.dataset.detour}"
            )


def _bare(element: Element | None) -> Element | None:
    """An element without what is known frame by frame."""
    if element is None:
        return None
    return replace(element, rows=None, dataset=replace(element.dataset, table=None))


def _slice(element: Element | None, frames: np.ndarray) -> Slice | None:
    return None if element is None else slice_of(element, frames)
