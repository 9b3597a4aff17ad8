"""MDAnalysis's writer protocol over our H5MD files.

The class is passed explicitly. It has no class attribute `format`, by which MDAnalysis would
register it for everybody who merely imports this module.
"""

import os
import weakref
from typing import Any

import MDAnalysis
import numpy as np
from MDAnalysis.coordinates.base import WriterBase
from MDAnalysis.units import get_conversion_factor

from paceline._core import __version__
from paceline._util.files import refuse_impossible
from paceline._util.machine import available_cpus
from paceline.analysis.base import describe_atoms
from paceline.errors import AtomCountError, UnsupportedError, UnwritableError
from paceline.hdf5.layout import Storage, choose_layout, parse_compression
from paceline.hdf5.metadata import Atoms, Description, command_of_process
from paceline.hdf5.streaming import Frame, Growing

#: MDAnalysis's kinds of units: its name of the conversion, and its own unit.
_UNITS = {
    "length": ("length", "Angstrom"),
    "velocity": ("speed", "Angstrom/ps"),
    "force": ("force", "kJ/(mol*Angstrom)"),
    "time": ("time", "ps"),
}
#: The kind of unit that each field of a frame has.
_KINDS = {"positions": "length", "velocities": "velocity", "forces": "force"}
#: What of `Timestep.data` is no observable.
_NO_OBSERVABLES = ("step", "time", "dt")


class H5MDWriter(WriterBase):
    """Write frames to a new H5MD file, in MDAnalysis's way.

    Frames are gathered until they fill chunks, which threads compress while more come. The file
    appears under its name when it is closed: an error within the `with` block, or a killed process,
    leaves none.

    Parameters
    ----------
    filename : path-like
        Of the new file.
    n_atoms : int
        Atoms of each frame.
    n_frames : int, optional
        How many frames will come at the most: `chunk="contiguous"` must know it.
    chunk : str
        "frame": a chunk for each frame; "16x1000": chunks of 16 frames of 1000 atoms; "auto": what
        suits `for_`; "contiguous": no chunks. As many frames as a chunk has are kept in memory.
    for_ : {"frames", "atoms", "both"}
        What the file will be read for, where `chunk="auto"`: whole frames, a few atoms through all
        frames, or both.
    compress : str
        "none", "gzip:1" to "gzip:9", or "shuffle+gzip:1" to "shuffle+gzip:9".
    precision : float, optional
        Å: positions are rounded to the largest power of two that is not above it, so that they
        compress better.
    align : int, optional
        Bytes of a stripe of the file system: what is as large begins at a multiple of it.
    positions, velocities, forces : bool
        Whether they are written, where the first frame has them.
    author : str, optional
        Whose file it is; by default who runs this process.
    overwrite : bool
        Whether a file of that name may be replaced.

    Raises
    ------
    FileExistsError
        There is a file of that name and it is not to be replaced.
    UnsupportedError
        A layout or a compression that there is not.
    AtomCountError
        A frame has another number of atoms than `n_atoms`.
    UnwritableError
        A frame holds what the first does not, or the reverse; a step that is not larger than the
        one before; or a number that is not finite.

    Examples
    --------
    >>> import tempfile
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import PSF, DCD
    >>> ca = paceline.Universe(PSF, DCD).select_atoms("name CA")
    >>> path = os.path.join(tempfile.mkdtemp(), "ca.h5md")
    >>> with paceline.H5MDWriter(path, len(ca), compress="shuffle+gzip:4") as writer:
    ...     for ts in ca.universe.trajectory[::10]:
    ...         writer.write(ca)
    >>> os.path.exists(path)
    True
    """

    units = {"time": "ps", "length": "Angstrom"}  # noqa: RUF012
    _finish: Any = None

    def __init__(
        self,
        filename: Any,
        n_atoms: int,
        *,
        n_frames: int | None = None,
        chunk: str = "frame",
        for_: str = "frames",
        compress: str = "none",
        precision: float | None = None,
        align: int | None = None,
        positions: bool = True,
        velocities: bool = True,
        forces: bool = True,
        author: str | None = None,
        overwrite: bool = False,
    ):
        self.filename = os.path.abspath(filename)
        refuse_impossible(self.filename, overwrite=overwrite)
        self.n_atoms = n_atoms
        wanted = {"positions": positions, "velocities": velocities, "forces": forces}
        self._fields = [field for field, is_wanted in wanted.items() if is_wanted]
        if n_atoms < 1:
            raise UnsupportedError(f"expected at least 1 atom, found {n_atoms}")
        layout = choose_layout(chunk, n_atoms, for_=for_, align=align)
        compression = parse_compression(compress)
        if layout.contiguous and n_frames is None:
            raise UnsupportedError('chunk="contiguous" must know n_frames: how many will come')
        self._storage, self._n_frames = Storage(layout, compression, precision), n_frames
        self._storage.encoder("positions")  # refuses a precision that cannot be
        self._overwrite, self._author = overwrite, author or ""
        self._source: _Source | None = None
        self._file: Growing | None = None
        self._ended = False

    def _write_next_frame(self, obj: Any) -> None:
        """Write the present frame of a group's atoms: what `write` calls."""
        try:
            atoms = obj.atoms
        except AttributeError:
            raise TypeError(
                f"expected an AtomGroup or a Universe, found {type(obj).__name__}"
            ) from None
        if self._ended:
            raise ValueError(f"{self.filename} is closed: no more frames can be written")
        if len(atoms) != self.n_atoms:
            error = AtomCountError(
                f"{self.filename}: expected {self.n_atoms} atoms, found {len(atoms)}: all frames "
                "of a file have as many"
            )
            error.found = len(atoms)
            raise error
        if self._source is None:
            self._source = _Source(atoms)
        frame = _frame_of(self._source.columns(atoms), atoms.universe.trajectory, self._fields)
        try:
            if self._file is None:
                self._file = self._begin(frame, self._source)
            self._file.add(frame)
        except BaseException:
            self._end()
            raise

    def _begin(self, first: Frame, source: "_Source") -> Growing:
        if not first.values:
            raise UnwritableError(
                f"{self.filename}: the first frame holds nothing of {', '.join(self._fields)}"
            )
        file = Growing(
            self.filename,
            self._storage,
            first,
            n_frames=self._n_frames,
            n_threads=available_cpus(),
            overwrite=self._overwrite,
        )
        # Also at the end of a script that does not close the file, while h5py still works.
        self._finish = weakref.finalize(self, _finish, file, source, self._author)
        return file

    def _end(self) -> None:
        """Take no more frames, and write nothing at the end."""
        self._ended = True
        if self._finish is not None:
            self._finish.detach()

    def close(self) -> None:
        """Write what is still in memory: the file appears under its name; without frames, none."""
        self._ended = True
        if self._finish is not None:
            self._finish()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        """Close the file, or, after an error, leave none."""
        if kind is None:
            self.close()
        elif not self._ended:
            self._end()
            if self._file is not None:
                self._file.abandon()


def _finish(file: Growing, source: "_Source", author: str) -> None:
    file.close(source.description(author))


class _Source:
    """Where frames come from: the group of atoms, while it stays the same."""

    def __init__(self, atoms: Any):
        self._atoms = atoms
        self._is_one = True
        self._ix = np.empty(0, dtype=np.int64)
        self._columns: np.ndarray | slice = slice(0)

    def columns(self, atoms: Any) -> np.ndarray | slice:
        """What is to be taken of a frame for these atoms: of all of them, no copy."""
        if atoms.ix is not self._ix:
            self._ix = atoms.ix
            self._is_one &= atoms.universe is self._atoms.universe and np.array_equal(
                atoms.ix, self._atoms.ix
            )
            all_in_order = np.array_equal(atoms.ix, np.arange(atoms.universe.atoms.n_atoms))
            self._columns = slice(None) if all_in_order else atoms.ix
        return self._columns

    def description(self, author: str) -> Description:
        """What the file is told of it."""
        atoms = self._atoms
        origin = {
            "program": f"paceline {__version__}, MDAnalysis {MDAnalysis.__version__}",
            "command": command_of_process(),
            "call": "paceline.H5MDWriter",
        }
        if not self._is_one:
            # Names and masses of the first frame's atoms would be wrong for the others.
            origin["atoms"] = "not the same in all frames"
            return Description(Atoms(len(atoms)), origin, author)
        trajectory = atoms.universe.trajectory
        origin |= {
            "topology": str(atoms.universe.filename),
            "trajectory": str(trajectory.filename),
            "fingerprint": _fingerprint(trajectory),
            "atoms": describe_atoms(atoms),
        }
        return Description(Atoms.of(atoms), origin, author)


def _fingerprint(trajectory: Any) -> str:
    """Of the files that we read ourselves."""
    chain = getattr(trajectory, "chain", None)
    if chain is None:
        return "none: read by MDAnalysis"
    return ", ".join(core.fingerprint for core in chain.cores)


def _frame_of(columns: np.ndarray | slice, trajectory: Any, fields: list[str]) -> Frame:
    """The present frame, in our units."""
    ts, factor = trajectory.ts, _factors(trajectory)
    values = {}
    for field in fields:
        if getattr(ts, f"has_{field}"):
            numbers = getattr(ts, field)[columns]
            values[field] = numbers * factor[_KINDS[field]] if factor else numbers
    dimensions = ts.dimensions
    if dimensions is not None and factor:
        dimensions = np.concatenate([dimensions[:3] * factor["length"], dimensions[3:]])
    return Frame(
        values=values,
        dimensions=dimensions,
        time=ts.time * factor["time"] if factor else ts.time,
        step=int(ts.data.get("step", ts.frame)),
        observables={name: ts.data[name] for name in ts.data if name not in _NO_OBSERVABLES},
    )


def _factors(trajectory: Any) -> dict[str, np.float32]:
    """From a reader's units to ours, where it was told to keep its own."""
    if getattr(trajectory, "convert_units", True):
        return {}
    factors = {}
    for kind, (conversion, ours) in _UNITS.items():
        unit = trajectory.units.get(kind)
        factors[kind] = np.float32(get_conversion_factor(conversion, unit, ours) if unit else 1)
    return factors
