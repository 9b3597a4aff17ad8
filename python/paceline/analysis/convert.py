"""Write frames to a new trajectory file; all workers decode, encode and write."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from paceline._core import __version__
from paceline._util.files import (
    check_distinct,
    check_output,
    local_path,
    saved_together,
    warn_of_leftovers,
)
from paceline._util.machine_and_software import current_command
from paceline.analysis.base import AnalysisBase
from paceline.analysis.results import Results
from paceline.analysis.structure_writer import (
    STRUCTURES,
    FirstFrame,
    StructureFrames,
    check_structure,
)
from paceline.block import cell_of
from paceline.contract import source
from paceline.contract.analysis_kinds import PerBlock, Receiver
from paceline.contract.run_info_and_descriptions import describe_atoms, describe_frames
from paceline.contract.system_interface import Atoms, Frames, Timestep, attribute_of, fields_of
from paceline.errors import DamagedFileError, SelectionError, UnsupportedError
from paceline.hdf5.open_hdf5_trajectory import EXTENSIONS
from paceline.trajectory.frames_without_topology import Frame
from paceline.trajectory.write_frames import FrameFile, FramesToWrite, Target
from paceline.trajectory.write_h5md import H5MDFile


class OutputFormat(NamedTuple):
    """Output format: its name, its `Target`, and the options that it supports."""

    name: str
    make: Callable[..., Target]
    options: tuple[str, ...] = ()


_H5MD = OutputFormat("H5MD", H5MDFile, ("precision", "chunk", "for_", "align", "compress"))
#: Formats by filename extension.
FORMATS = {
    f".{ending}": OutputFormat(format.name, FrameFile, ("precision",) if format.precision else ())
    for format in source.FORMATS.values()
    if format.writes
    for ending in format.extensions
} | {f".{ending}": _H5MD for ending in EXTENSIONS}
FORMATS |= {ending: OutputFormat(one.name, StructureFrames) for ending, one in STRUCTURES.items()}

#: Filename extensions of structures that cannot be written.
UNWRITTEN = (".pqr", ".mol2")


class Write(AnalysisBase):
    """Write the frames of a group to a new trajectory file.

    `Write` runs like an analysis on any backend, alone or with others. Workers encode the
    blocks of frames that they decoded, and the blocks are written in order. In DCD, NetCDF and
    uncompressed H5MD, the position of each frame in the file is known from the beginning, and each
    worker writes its own frames. Unreadable frames are left out if the run skips them.

    Parameters
    ----------
    atomgroup : AtomGroup or Universe, or trajectory of `paceline.open`
        Atoms to write, in this order.
    path : path-like
        File with extension .xtc, .trr, .dcd, .nc or .ncdf (NetCDF), .h5md, .h5 or .hdf5 (H5MD).
        TRR, NetCDF and H5MD store velocities and forces of the trajectory; XTC and DCD store only
        positions. With a topology, also files of structures: .pdb, .ent, .xyz, .gro (with
        velocities), and for one frame .crd, .cif or .mmcif (mmCIF).
    structure : path-like, optional
        Structure file with the same atoms in the first written frame, needed to open the
        trajectory: .pdb, .ent, .gro, .xyz, .crd, .cif or .mmcif.
    precision : float, optional
        XTC: integers per nm, by default 1000, a resolution of 0.01 Å. H5MD: length in Å; positions
        are rounded to multiples of the largest power of two up to this length, so that they
        compress better; by default they are not rounded.
    chunk : str, optional
        H5MD: "frame" for one chunk per frame, "16x1000" for chunks of 16 frames of 1000 atoms,
        "contiguous" for no chunks, or "auto", the default, for chunks that suit `for_`.
    for_ : {"frames", "atoms", "both"}, optional
        H5MD with `chunk` "auto": main use of the file. It is reading whole frames (default), a
        few atoms in all frames, or both.
    align : int, optional
        H5MD: size of a stripe of the file system, bytes; large chunks start at its multiples.
    compress : str, optional
        H5MD: "none" (default), "gzip:1" to "gzip:9", "zstd:1" to "zstd:19", "lz4", "lzf",
        or one of these after shuffling, such as "shuffle+zstd:3".
    keep_cell : bool
        Write lengths and angles of cells that the format cannot store completely. DCD and NetCDF
        cannot store a rotated cell, for example after a fit. DCD, NetCDF, XTC and TRR cannot store
        a cell that is not periodic along all vectors. By default such cells are omitted, with a
        warning, because programs would compute wrong periodic images.
    overwrite : bool
        Replace an existing file.

    Attributes
    ----------
    frames_together : int
        Number of frames that one worker should encode together, such as the frames of a chunk.
    results.path : str
        Name of the complete file.
    results.structure : str or None
        Name of the structure file of the first frame.
    results.n_written : int
        Number of frames in the file.
    results.n_bytes : int
        Size of the file, bytes.

    Raises
    ------
    UnsupportedError
        The format cannot be written, or it lacks an option.
    SelectionError
        The group is empty.
    UnwritableError
        The format cannot store a frame; the message contains file, frame and atom.
    FileExistsError
        The file exists, and `overwrite` is False.

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
        """Paths of the files that a run writes."""
        return (self._path,) if self._structure is None else (self._path, self._structure)

    def parameters(self) -> dict[str, object]:
        """Return the file, its options and the atoms, which are saved with the results."""
        structure = {} if self._structure is None else {"structure": self._structure}
        atoms = describe_atoms(self.atomgroup)
        return {"file": self._path, **structure, **self._options, "atoms": atoms}

    def prepare(self) -> PerBlock:
        """Make the worker part, which encodes frames."""
        half = self._target.begin(
            FramesToWrite(
                n_frames=len(self.frames),
                atoms=self.atomgroup,
                skip_damaged=self.skip_damaged,
                origin=self._origin(),
                rotates=any(transform.rotates for transform in self.transforms),
                keep_cell=self._keep_cell,
                **_contents_of_first_frame(self.atomgroup.universe.trajectory),
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
            half = self._first.add_to_part(half)
        return half

    def _origin(self) -> dict[str, object]:
        """Describe the source of the frames, and the options, for the metadata of the file."""
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
        """Open the file for a run; it appears under its name only if the run succeeds."""
        warn_of_leftovers(self.outputs)
        with saved_together(), self._target.receiver() as blocks:
            if self._first is None:
                yield blocks
            else:
                with self._first.receiver(blocks) as both:
                    yield both

    def finish(self, value: None) -> None:
        """Store as results the paths, the number of written frames, and the size of the file."""
        self.results = Results(
            provenance=self.record(),
            path=self._path,
            structure=self._structure,
            n_written=self._target.n_written,
            n_bytes=self._target.n_bytes,
        )


def format_with(path: str | os.PathLike, options: Iterable[str]) -> OutputFormat:
    """Return the format of a file by its name; raise an error if the format lacks an option."""
    ending = Path(path).suffix.lower()
    if ending not in FORMATS:
        known, found = ", ".join(FORMATS), repr(ending)
        for format in source.FORMATS.values():
            if ending[1:] in format.extensions or Path(path).name in format.file_names:
                found = f"the name of a {format.name} file, which paceline reads but cannot write"
        if ending in UNWRITTEN:
            found += ", a structure file; MDAnalysis, gmx trjconv and cpptraj can write it"
        raise UnsupportedError(f"{path}: expected a name that ends in {known}, found {found}")
    kind = FORMATS[ending]
    for name in options:
        if name not in kind.options:
            raise UnsupportedError(f"{kind.name} files have no option {name}=")
    return kind


def _contents_of_first_frame(trajectory: Frames) -> dict[str, Any]:
    """Return whether the first readable frame has a cell, and which fields it contains.

    The current frame of the trajectory does not change.
    """
    current = attribute_of(trajectory, "frame")  # trajectories without a topology have none
    try:
        for number in range(trajectory.n_frames):
            try:
                return _contents_of_frame(trajectory, trajectory[number])
            except DamagedFileError:
                continue
        return _contents_of_frame(trajectory, trajectory[0] if current is None else trajectory.ts)
    finally:
        if current is not None:
            trajectory[current]


def _contents_of_frame(trajectory: Frames, frame: Timestep) -> dict[str, object]:
    # A trajectory without a topology yields `Frame` objects.
    cells = frame.cell[np.newaxis] if isinstance(frame, Frame) else cell_of(trajectory)
    return {"cells": cells, "fields": tuple(fields_of(frame))}
