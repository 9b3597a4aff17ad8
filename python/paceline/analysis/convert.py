"""Write frames to a new trajectory file: all workers decode, encode and write."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from paceline._core import __version__
from paceline._util.files import check_distinct, check_output, local_path, saved_together
from paceline._util.machine import current_command
from paceline.analysis.base import AnalysisBase
from paceline.analysis.results import Results
from paceline.analysis.structures import STRUCTURES, FirstFrame, StructureFrames, check_structure
from paceline.block import cell_of
from paceline.contract import source
from paceline.contract.atoms import Atoms, Frames, Timestep, attribute_of, fields_of
from paceline.contract.kinds import PerBlock, Receiver
from paceline.contract.run_info import describe_atoms, describe_frames
from paceline.errors import DamagedFileError, SelectionError, UnsupportedError
from paceline.hdf5.trajectory import EXTENSIONS
from paceline.trajectory.frames import Frame
from paceline.trajectory.h5md_file import H5MDFile
from paceline.trajectory.write_frames import FrameFile, FramesToWrite, Target


class OutputFormat(NamedTuple):
    """Format that is written: its name, its `Target`, and the options that it has."""

    name: str
    make: Callable[..., Target]
    options: tuple[str, ...] = ()


_H5MD = OutputFormat("H5MD", H5MDFile, ("precision", "chunk", "for_", "align", "compress"))
#: Formats by the endings of their files.
FORMATS = {
    f".{ending}": OutputFormat(format.name, FrameFile, ("precision",) if format.precision else ())
    for format in source.FORMATS.values()
    if format.writes
    for ending in format.extensions
} | {f".{ending}": _H5MD for ending in EXTENSIONS}
FORMATS |= {ending: OutputFormat(one.name, StructureFrames) for ending, one in STRUCTURES.items()}

#: Endings of structures that are not written.
UNWRITTEN = (".pqr", ".mol2")


class Write(AnalysisBase):
    """Write a group's frames to a new trajectory file.

    It runs like an analysis, alone or beside others, on any backend: blocks of frames are encoded
    where they were decoded, and put into the file in their order; where frames have their places
    from the beginning, in DCD, NetCDF and H5MD that is not compressed, each worker writes its own.
    Frames that cannot be read and are to be skipped are left out.

    Parameters
    ----------
    atomgroup : AtomGroup or Universe, or trajectory of `paceline.open`
        Atoms to be written, in this order.
    path : path-like
        Ending in .xtc, .trr, .dcd, .nc or .ncdf (NetCDF), .h5md, .h5 or .hdf5 (H5MD). TRR, NetCDF
        and H5MD hold velocities and forces, where the trajectory has them; XTC and DCD positions
        only. Or a file of structures: .pdb or .ent, .gro, which holds velocities, .xyz, or, of one
        frame, .crd, or .cif or .mmcif (mmCIF); these need a topology.
    structure : path-like, optional
        Structure of the same atoms in the first frame that is written, with which the file can be
        opened: .pdb, .ent, .gro, .xyz, .crd, .cif or .mmcif.
    precision : float, optional
        Of an XTC file: integers per nm, by default 1000, a resolution of 0.01 Å. Of an H5MD file:
        Å; positions are rounded to the largest power of two that is not above it, so that they
        compress better; by default they are not.
    chunk : str, optional
        Of an H5MD file: "frame", a chunk for each frame; "16x1000", chunks of 16 frames of 1000
        atoms; "contiguous", no chunks; "auto", the default, what suits `for_`.
    for_ : {"frames", "atoms", "both"}, optional
        What an H5MD file will be read for, where `chunk` is "auto": whole frames, the default, a
        few atoms through all frames, or both.
    align : int, optional
        Of an H5MD file: bytes of a stripe of the file system, where chunks as large shall begin.
    compress : str, optional
        Of an H5MD file: "none", the default, "gzip:1" to "gzip:9", "zstd:1" to "zstd:19", "lz4",
        or one of these as "shuffle+zstd:3".
    keep_cell : bool
        Write lengths and angles of cells that the format cannot hold as they are. DCD and NetCDF
        hold no cell that is turned, by a fit for example. These, XTC and TRR hold no cell that is
        not periodic along all vectors. By default such cells are left out, with a warning, because
        programs would find wrong images.
    overwrite : bool
        Whether a file of that name may be replaced.

    Attributes
    ----------
    frames_together : int
        Frames that are best encoded by one worker: those of a chunk, say.
    results.path : str
        The file, once it is whole.
    results.structure : str or None
        The structure of its first frame.
    results.n_written : int
        Its number of frames.
    results.n_bytes : int
        Its size.

    Raises
    ------
    UnsupportedError
        A format that is not written, or an option that it does not have.
    SelectionError
        The group is empty.
    UnwritableError
        A frame that the format cannot hold; it names file, frame and atom.
    FileExistsError
        There is a file of that name and it is not to be replaced.

    Examples
    --------
    >>> import tempfile
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import PSF, DCD
    >>> ca = paceline.Universe(PSF, DCD).select_atoms("name CA")
    >>> path = Path(tempfile.mkdtemp()) / "ca.xtc"
    >>> paceline.Write(ca, path).run(step=10).results.n_written
    10
    >>> both = paceline.Write(ca, path.with_suffix(".dcd"), structure=path.with_suffix(".pdb"))
    >>> both.run(step=10).results.n_written
    10
    >>> paceline.Universe(both.results.structure, both.results.path).atoms.n_atoms
    214
    >>> smaller = paceline.Write(ca, path.with_suffix(".h5md"), compress="gzip:1", precision=0.01)
    >>> smaller.run(step=10).results.n_written
    10
    """

    def __init__(
        self,
        atomgroup: Atoms,
        path: str | os.PathLike,
        *,
        structure: str | os.PathLike | None = None,
        precision: float | None = None,
        chunk: str | None = None,
        for_: str | None = None,
        align: int | None = None,
        compress: str | None = None,
        keep_cell: bool = False,
        overwrite: bool = False,
    ):
        super().__init__(atomgroup)
        self._path = local_path(path)
        check_output(self._path, overwrite=overwrite)
        if len(self.atomgroup) == 0:
            raise SelectionError(f"{path}: the group of atoms to write is empty")
        options = {
            "precision": precision,
            "chunk": chunk,
            "for_": for_,
            "align": align,
            "compress": compress,
        }
        given = {name: value for name, value in options.items() if value is not None}
        self._options = {name.rstrip("_"): value for name, value in given.items()}
        kind = format_with(self._path, given)
        self._target = kind.make(
            self._path, kind.name, len(self.atomgroup), overwrite=overwrite, **given
        )
        self._keep_cell = keep_cell
        self._overwrite, self._structure = overwrite, None
        if structure is not None:
            self._structure = local_path(structure)
            check_distinct(self._path, self._structure)
            check_output(self._structure, overwrite=overwrite)
            check_structure(self._structure, self.atomgroup)
        self.frames_together = self._target.frames_together

    @property
    def outputs(self) -> Sequence[str]:
        """Paths of the files that a run writes itself."""
        return (self._path,) if self._structure is None else (self._path, self._structure)

    def parameters(self) -> dict[str, object]:
        """Return the file, its options and the atoms."""
        structure = {} if self._structure is None else {"structure": self._structure}
        atoms = describe_atoms(self.atomgroup)
        return {"file": self._path, **structure, **self._options, "atoms": atoms}

    def prepare(self) -> PerBlock:
        """Make the half that encodes in workers."""
        half = self._target.begin(
            FramesToWrite(
                n_frames=len(self.frames),
                atoms=self.atomgroup,
                skip_damaged=self.skip_damaged,
                origin=self._origin(),
                turns=any(transform.turns for transform in self.transforms),
                keep_cell=self._keep_cell,
                **_held_by_first(self.atomgroup.universe.trajectory),
            )
        )
        self.fields, self.optional_fields = self._target.fields, self._target.optional_fields
        self._first = None
        if self._structure is not None:
            self._first = FirstFrame(
                self._structure,
                self.atomgroup,
                overwrite=self._overwrite,
                all_blocks=self.skip_damaged or "positions" not in self.fields,
            )
            half = self._first.beside(half)
        return half

    def _origin(self) -> dict[str, object]:
        """Describe the source of the frames, and the options."""
        return {
            "program": f"paceline {__version__}",
            "command": current_command(),
            **self.provenance,
            **self._options,
            "atoms": describe_atoms(self.atomgroup),
            "frames": describe_frames(self.frames),
        }

    @contextmanager
    def receiver(self) -> Iterator[Receiver]:
        """Open the file for the time of a run: whole under its name afterwards, or not there."""
        with saved_together(), self._target.receiver() as blocks:
            if self._first is None:
                yield blocks
            else:
                with self._first.receiver(blocks) as both:
                    yield both

    def finish(self, value: None) -> None:
        """Set the results: path, frames and bytes."""
        self.results = Results(
            provenance=self.record(),
            path=self._path,
            structure=self._structure,
            n_written=self._target.n_written,
            n_bytes=self._target.n_bytes,
        )


def format_with(path: str | os.PathLike, options: Iterable[str]) -> OutputFormat:
    """Find the format of a file by its name; raise where it has no such option."""
    ending = Path(path).suffix.lower()
    if ending not in FORMATS:
        known, found = ", ".join(FORMATS), repr(ending)
        for format in source.FORMATS.values():
            if ending[1:] in format.extensions or Path(path).name in format.file_names:
                found = (
                    f"a name of {format.name} files, which paceline reads but does not convert to"
                )
        if ending in UNWRITTEN:
            found += ", of a structure: MDAnalysis, gmx trjconv and cpptraj write these"
        raise UnsupportedError(f"{path}: expected a name that ends in {known}, found {found}")
    kind = FORMATS[ending]
    for name in options:
        if name not in kind.options:
            raise UnsupportedError(f"{kind.name} has no {name}= to choose")
    return kind


def _held_by_first(trajectory: Frames) -> dict[str, Any]:
    """Tell if the first frame that can be read has a cell, and which fields it holds.

    The trajectory stays where it was.
    """
    current = attribute_of(trajectory, "frame")  # files without a topology have no present frame
    try:
        for number in range(trajectory.n_frames):
            try:
                return _held_by(trajectory, trajectory[number])
            except DamagedFileError:
                continue
        return _held_by(trajectory, trajectory[0] if current is None else trajectory.ts)
    finally:
        if current is not None:
            trajectory[current]


def _held_by(trajectory: Frames, frame: Timestep) -> dict[str, object]:
    # Files without a topology yield frames of their own.
    cells = frame.cell[np.newaxis] if isinstance(frame, Frame) else cell_of(trajectory)
    return {"cells": cells, "fields": tuple(fields_of(frame))}
