"""Structure files: PDB, GRO, XYZ and CRD with MDAnalysis's writers, and mmCIF."""

import io
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, cycle, product
from pathlib import Path
from string import ascii_letters, digits
from typing import Any, NamedTuple

import numpy as np

from paceline._core import __version__
from paceline._util.files import new_files, writing_to
from paceline.analysis.mmcif_writer import chains_with_repeats, write_mmcif
from paceline.block import Block
from paceline.contract.analysis_kinds import PerBlock
from paceline.contract.system_interface import Atoms, System, attribute_of, topology_of
from paceline.errors import UnsupportedError, UnwritableError, warn
from paceline.performance.number_format import amount, many
from paceline.trajectory.write_frames import EncodedBlock, FramesToWrite, OrderedReceiver, Target

#: Size of a file above which a warning is issued, bytes.
LARGE = 10**9
#: Chain letters in the order in which segments get them.
CHAINS = ascii_letters[26:] + ascii_letters[:26] + digits
#: Maximum length of a title, characters.
LONGEST_TITLE = 70


class StructureFormat(NamedTuple):
    """Limits of a structure file format, and its approximate size per atom."""

    name: str
    #: Bytes per atom, without velocity.
    bytes: int
    #: Smallest and largest coordinates, Å.
    limits: tuple[float, float] = (-np.inf, np.inf)
    #: Maximum number of digits in atom numbers and residue numbers.
    digits: tuple[int, int] = (10, 10)
    #: Maximum number of letters in atom names and residue names.
    letters: tuple[int, int] = (8, 8)
    #: Bytes per velocity; 0 if the format stores none.
    velocities: int = 0
    multi_frame: bool = True
    #: Maximum number of letters in a chain ID; 0 if the format stores none.
    chain: int = 0


_PDB = StructureFormat("PDB", 81, (-999.9994, 9999.9994), (5, 4), (4, 4), chain=1)
_CIF = StructureFormat("mmCIF", 110, letters=(7, 7), multi_frame=False, chain=4)
#: Formats by filename extension.
STRUCTURES = {
    ".pdb": _PDB,
    ".ent": _PDB,
    ".gro": StructureFormat("GRO", 45, (-9999.99, 99999.99), (5, 5), (5, 5), velocities=24),
    ".xyz": StructureFormat("XYZ", 45),
    ".crd": StructureFormat("CRD", 140, multi_frame=False),
    ".cif": _CIF,
    ".mmcif": _CIF,
}


class StructureFrame(NamedTuple):
    """Frame for a structure file: positions and velocities (float32, (n_atoms, 3), Å, Å/ps)."""

    positions: np.ndarray
    #: Cell lengths and angles, Å and degrees, float32, shape (6,); None without a cell.
    dimensions: np.ndarray | None
    velocities: np.ndarray | None = None
    #: Time, ps; None for a mean over frames.
    time: float | None = None
    step: int | None = None


def format_of(path: str | os.PathLike) -> StructureFormat:
    """Return the format of a structure file by its name."""
    found = STRUCTURES.get(Path(path).suffix.lower())
    if found is None:
        *others, last = STRUCTURES
        raise UnsupportedError(
            f"{os.fspath(path)}: structures are saved as {', '.join(others)} or {last}, "
            f"not {Path(path).suffix.lower()!r}"
        )
    return found


def check_structure(path: str | os.PathLike, atoms: Atoms, n_frames: int = 1) -> None:
    """Check that atoms can be written as a structure; warn of truncated names and of the size."""
    kind, name = format_of(path), os.fspath(path)
    if topology_of(atoms.universe) is None or attribute_of(atoms, "names") is None:
        raise UnsupportedError(
            f"{name}: a structure needs names of atoms, but these have none: use a topology with "
            "names (-s)"
        )
    if n_frames > 1 and not kind.multi_frame:
        raise UnsupportedError(
            f"{name}: {kind.name} stores one frame, but there are {n_frames}: select one, or write "
            ".pdb, .gro or .xyz"
        )
    cut = _describe_truncation(kind, atoms)
    if cut:
        warn(
            f"{name}: {kind.name} truncates {' and '.join(cut)}: numbers and names in the file do "
            "not identify atoms, only their order does"
            f"{'' if kind is _CIF else '; mmCIF (.cif) has no such limits'}"
        )
    if kind is _CIF and len(twice := chains_with_repeats(atoms, chain_ids(atoms, kind.chain))):
        warn(
            f"{name}: residues of chain {', '.join(twice[:5])}{', …' * (len(twice) > 5)} have "
            "equal numbers and names, and programs would merge them: they are numbered from 1"
        )
    size = kind.bytes * len(atoms) * n_frames
    if size > LARGE:
        warn(
            f"{name}: about {amount(size)} of text; a trajectory (.xtc) with one structure "
            "(structure=, --structure) needs about a tenth"
        )


def _describe_truncation(kind: StructureFormat, atoms: Atoms) -> list[str]:
    """Describe numbers and names that a format truncates."""
    resids = attribute_of(atoms, "resids")
    last = (len(atoms), 0 if resids is None else int(np.max(resids)))
    owners = ("atoms", "residues")
    cut = [
        f"numbers of {owner} above {10**width - 1:,} to {width} digits"
        for owner, number, width in zip(owners, last, kind.digits, strict=True)
        if number >= 10**width
    ]
    for owner, values, width in zip(owners, ("names", "resnames"), kind.letters, strict=True):
        known = attribute_of(atoms, values)
        long = [] if known is None else [one for one in np.unique(known) if len(one) > width]
        if long:
            cut.append(f"names of {owner} such as {long[0]} to {width} letters")
    n_segments = len(np.unique(atoms.segindices))
    if kind.chain == 1 and n_segments > len(CHAINS):
        cut.append(f"names of {n_segments} chains to {len(CHAINS)} letters")
    return cut


@contextmanager
def structure_file(
    path: str | os.PathLike,
    atoms: Atoms,
    *,
    kind: StructureFormat | None = None,
    multi_frame: bool = False,
    title: str = "",
    b_factors: np.ndarray | None = None,
    remarks: Sequence[str] = (),
) -> Iterator[Callable[[StructureFrame], None]]:
    """Open a structure file; yield a function that writes a frame of `atoms`.

    `check_structure` has checked the atoms before. Time and step are appended to `title`, as in
    GROMACS. `b_factors`, shape (n_atoms,), and `remarks` are written to PDB. The format is `kind`,
    by default that of the filename.
    """
    from MDAnalysis import Merge

    kind = kind or format_of(path)
    with warnings.catch_warnings():
        # Missing attributes of the topology get the defaults of the format.
        warnings.simplefilter("ignore")
        system = Merge(atoms)
    if kind.chain:
        system.add_TopologyAttr("chainIDs", chain_ids(atoms, kind.chain))
    if kind.name == "PDB":
        segids = attribute_of(system.segments, "segids")
        if segids is not None:  # leave out long names: if they are truncated, they may be equal
            width = kind.letters[0]
            system.segments.segids = [one if len(one) <= width else "" for one in segids]
        if b_factors is not None:
            system.add_TopologyAttr("tempfactors", b_factors)
    title = title or f"{many(len(atoms), 'atom')}, paceline {__version__}"
    system.load_new(np.zeros((1, len(atoms), 3), np.float32))
    with _WRITERS[kind.name](os.fspath(path), system, multi_frame, remarks) as write:

        def write_snapshot(found: StructureFrame) -> None:
            ts = system.trajectory.ts
            ts.positions, ts.dimensions = found.positions, found.dimensions
            ts.has_velocities = False
            if found.velocities is not None:
                ts.velocities = found.velocities
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                write(_title(title, found))

        yield write_snapshot


def _title(title: str, found: StructureFrame) -> str:
    """Append time and step to a title, as in GROMACS."""
    time = "" if found.time is None or not np.isfinite(found.time) else f" t= {found.time:.5f}"
    step = "" if found.step is None else f" step= {found.step}"
    return f"{' '.join(title.split())[: LONGEST_TITLE - len(time) - len(step)]}{time}{step}"


def chain_ids(atoms: Atoms, longest: int = 1) -> np.ndarray:
    """Return the chain ID of each atom, with at most `longest` letters.

    It is taken from the topology, or else from the name of the segment. If neither is valid, each
    segment gets the next free ID; if none is free, IDs repeat.

    Examples
    --------
    >>> from MDAnalysis import Universe
    >>> rows = {"atom_resindex": [0, 1, 2], "residue_segindex": [0, 1, 2]}
    >>> u = Universe.empty(3, n_residues=3, n_segments=3, **rows)
    >>> u.add_TopologyAttr("segids", ["PROA", "B", "WAT"])
    >>> chain_ids(u.atoms).tolist()
    ['A', 'B', 'C']
    >>> chain_ids(u.atoms, 4).tolist()
    ['PROA', 'B', 'WAT']
    """
    count = len(atoms)
    known = attribute_of(atoms, "chainIDs")
    known = np.array([""] * count if known is None else known, dtype=object)

    def is_short(name: str) -> bool:
        return len(name) <= longest and name.isascii() and name.isalnum()

    valid = np.array([is_short(one) for one in known], dtype=bool)
    names = attribute_of(atoms, "segids")
    segments, rows = np.unique(atoms.segindices, return_inverse=True)
    letters: list[str] = [""] * len(segments)
    if names is not None:
        for row, name in zip(rows, names, strict=True):
            letters[row] = name if is_short(name) else ""
    taken = {*letters, *known[valid]}
    more = ("".join(two) for two in product(CHAINS, CHAINS)) if longest > 1 else ()
    free = chain((one for one in chain(CHAINS, more) if one not in taken), cycle(CHAINS))
    needed = np.unique(rows[~valid])
    for row in needed.tolist():
        letters[row] = letters[row] or next(free)
    return np.where(valid, known, np.array(letters, dtype=object)[rows])


@contextmanager
def _pdb(
    path: str, system: System, multi_frame: bool, remarks: Sequence[str]
) -> Iterator[Callable[[str], None]]:
    """Write PDB: TITLE and cell before each model, and bonds as CONECT records.

    A frame without cell gets no CRYST1 record; MDAnalysis would write a cell of 1 Å.
    """
    from MDAnalysis.coordinates.PDB import PDBWriter

    class Writer(PDBWriter):
        title = ""

        def _write_pdb_header(self) -> None:
            self.TITLE(self.title)
            if self.frames_written == 0:
                self.REMARK(*remarks)
            if self.ts.dimensions is not None:
                self.CRYST1(self.convert_dimensions_to_unitcell(self.ts))

        def _write_pdb_bonds(self) -> None:
            for line in _bonded_atoms(system):
                self.CONECT(line)

    with Writer(path, n_atoms=len(system.atoms), multiframe=multi_frame) as writer:

        def write(title: str) -> None:
            writer.title = title
            writer.write(system.atoms)

        yield write


def _bonded_atoms(system: System) -> Iterator[list[int]]:
    """Yield lists of numbers (from 1): an atom with bonds, and up to four atoms bonded to it.

    Yields nothing if there are no bonds, or if an atom number has more than five digits.
    """
    bonds = attribute_of(system, "bonds")
    if bonds is None or len(bonds) == 0 or len(system.atoms) >= 10 ** _PDB.digits[0]:
        return
    known = bonds.indices
    pairs = np.unique(np.concatenate([known, known[:, ::-1]]), axis=0) + 1
    atoms, first = np.unique(pairs[:, 0], return_index=True)
    for atom, others in zip(atoms.tolist(), np.split(pairs[:, 1], first[1:]), strict=True):
        for k in range(0, len(others), 4):
            yield [atom, *others[k : k + 4].tolist()]


@contextmanager
def _gro(
    path: str, system: System, multi_frame: bool, remarks: Sequence[str]
) -> Iterator[Callable[[str], None]]:
    """Write GRO, one frame after another, as GROMACS reads it."""
    from MDAnalysis.coordinates.GRO import GROWriter
    from MDAnalysis.lib.util import NamedStream

    with open(path, "w", encoding="utf-8") as file:

        def write(title: str) -> None:
            stream = NamedStream(io.StringIO(), "frame.gro", reset=False, close=False)
            GROWriter(stream, n_atoms=len(system.atoms)).write(system.atoms)
            _, _, rest = stream.stream.getvalue().partition("\n")
            file.write(f"{title}\n{rest}")

        yield write


@contextmanager
def _xyz(
    path: str, system: System, multi_frame: bool, remarks: Sequence[str]
) -> Iterator[Callable[[str], None]]:
    from MDAnalysis.coordinates.XYZ import XYZWriter

    with XYZWriter(path, n_atoms=len(system.atoms)) as writer:

        def write(title: str) -> None:
            writer.remark = title
            writer.write(system.atoms)

        yield write


@contextmanager
def _crd(
    path: str, system: System, multi_frame: bool, remarks: Sequence[str]
) -> Iterator[Callable[[str], None]]:
    from MDAnalysis.coordinates.CRD import CRDWriter

    yield lambda title: CRDWriter(path).write(system.atoms)


@contextmanager
def _cif(
    path: str, system: Any, multi_frame: bool, remarks: Sequence[str]
) -> Iterator[Callable[[str], None]]:
    with open(path, "w", encoding="utf-8") as file:
        yield lambda title: write_mmcif(file, system, title)


_WRITERS = {"PDB": _pdb, "GRO": _gro, "XYZ": _xyz, "CRD": _crd, "mmCIF": _cif}


def write_structures(
    universe: System,
    path: str,
    *,
    named: str | os.PathLike | None = None,
    b_factors: np.ndarray | None = None,
    remarks: Sequence[str] = (),
) -> None:
    """Write all frames of a Universe with their cells; `named` is the final name of the file."""
    frames, named = universe.trajectory, named or path
    check_structure(named, universe.atoms, len(frames))
    with structure_file(
        path,
        universe.atoms,
        kind=format_of(named),
        multi_frame=len(frames) > 1,
        b_factors=b_factors,
        remarks=remarks,
    ) as write:
        for ts in frames:
            check_positions(f"{named}", format_of(named), ts.positions, ts.frame)
            write(StructureFrame(ts.positions, ts.dimensions))


def check_positions(path: str, kind: StructureFormat, positions: np.ndarray, frame: int) -> None:
    """Raise `UnwritableError` if a format cannot store a position."""
    low, high = kind.limits
    with np.errstate(invalid="ignore"):
        bad = ~((positions >= low) & (positions <= high) & np.isfinite(positions)).all(axis=1)
    if bad.any():
        atom = int(bad.argmax())
        x, y, z = positions[atom].tolist()
        raise UnwritableError(
            f"{path}: frame {frame}: atom {atom} is at ({x:g}, {y:g}, {z:g}) Å, but {kind.name} "
            f"stores finite coordinates from {low:g} to {high:g} Å"
        )


class StructureFrames(Target):
    """Output file with several structures, one after another."""

    def __init__(self, path: str, format: str, n_atoms: int, *, overwrite: bool = False):
        super().__init__(path, n_atoms, overwrite=overwrite)
        self._format = format_of(path)
        self.optional_fields = ("velocities",) if self._format.velocities else ()

    def begin(self, frames: FramesToWrite) -> PerBlock:
        """Check the atoms, and make the worker part that packs the frames."""
        check_structure(self._path, frames.atoms, frames.n_frames)
        self._frames = frames
        self._part = Snapshots(self._path, self._format, self._n_atoms)
        return self._part

    @contextmanager
    def receiver(self) -> Iterator[OrderedReceiver]:
        """Open the file during a run; it gets its final name when it is complete."""
        multi_frame = self._frames.n_frames > 1
        with new_files([self._path], overwrite=self._overwrite) as [made]:
            with (
                writing_to(self._path),
                structure_file(
                    made, self._frames.atoms, kind=self._format, multi_frame=multi_frame
                ) as write,
                OrderedReceiver(
                    self._path, lambda value: [*map(write, self._part.snapshots(value))]
                ) as blocks,
            ):
                yield blocks
                times, _, _ = blocks.time_axis()
            self.n_written, self.n_bytes = len(times), os.path.getsize(made)


@dataclass(frozen=True)
class Snapshots(PerBlock):
    """Worker part that checks positions, and packs the data of each frame."""

    path: str
    format: StructureFormat
    n_atoms: int

    @property
    def _dtype(self) -> np.dtype:
        array = ("<f4", (self.n_atoms, 3))
        return np.dtype(
            [
                ("dimensions", "<f4", 6),
                ("positions", *array),
                *([("velocities", *array)] if self.format.velocities else []),
            ]
        )

    def compute_block(self, block: Block, first: int) -> EncodedBlock:
        """Check the positions of each frame, and pack its data."""
        found = np.zeros(len(block), self._dtype)
        found["dimensions"], found["positions"] = block.dimensions, block.positions
        for frame, positions in zip(block.frames.tolist(), found["positions"], strict=True):
            check_positions(self.path, self.format, positions, frame)
        if self.format.velocities:
            held = (block.held & 2).astype(bool)
            found["velocities"] = np.nan
            if held.any():
                found["velocities"][held] = block.velocities[held]
        return EncodedBlock(first, found.tobytes(), block.times, block.steps, block.lambdas)

    def snapshots(self, value: EncodedBlock) -> Iterator[StructureFrame]:
        """Yield the frames of a block."""
        frames = np.frombuffer(value.data, self._dtype)
        for one, time, step in zip(frames, value.times, value.steps.tolist(), strict=True):
            velocities = one["velocities"] if self.format.velocities else None
            if velocities is not None and np.isnan(velocities).any():
                velocities = None
            cell = one["dimensions"] if one["dimensions"].any() else None
            yield StructureFrame(one["positions"], cell, velocities, float(time), step)


class FirstFrame:
    """Structure of the first written frame, which workers send together with their blocks."""

    def __init__(self, path: str, atoms: Atoms, *, overwrite: bool, all_blocks: bool):
        check_structure(path, atoms)
        self._path, self._atoms, self._overwrite = path, atoms, overwrite
        self._part = Snapshots(path, format_of(path), len(atoms))
        self._all_blocks = all_blocks
        self._found: tuple[int, EncodedBlock] | None = None

    def add_to_part(self, part: PerBlock) -> PerBlock:
        """Make the worker part that adds the first frame to the blocks of another worker part."""
        return _WithFirst(part, self._part, self._all_blocks)

    @contextmanager
    def receiver(self, inner: Any) -> Iterator[Any]:
        """Pass on blocks to `inner`, and write the first frame as a structure at the end.

        Yields the object that extracts this frame from the received blocks.
        """
        self._inner = inner
        with new_files([self._path], overwrite=self._overwrite) as [made]:
            yield self
            if self._found is None:
                raise UnsupportedError(f"{self._path}: no frame has positions to write")
            with (
                writing_to(self._path),
                structure_file(made, self._atoms, kind=format_of(self._path)) as write,
            ):
                write(next(self._part.snapshots(self._found[1])))

    def add(self, number: int, value: Any) -> None:
        """Store the frame that came with a block if it is the first so far; pass on the block."""
        block, frame = value
        if frame is not None and (self._found is None or number < self._found[0]):
            self._found = number, frame
        self._inner.add(number, block)


@dataclass(frozen=True)
class _WithFirst(PerBlock):
    """Worker part that returns another part's results, and a block's first frame with positions.

    Without `all_blocks`, only the first block returns a frame. `all_blocks` is for runs in which
    the first block may have no positions.
    """

    part: PerBlock
    first_frame: Snapshots
    all_blocks: bool

    def compute_block(self, block: Block, first: int) -> tuple[Any, EncodedBlock | None]:
        value = self.part.compute_block(block, first)
        rows = np.flatnonzero(block.held & 1)
        if len(rows) == 0 or (first > 0 and not self.all_blocks):
            return value, None
        one = block[rows[0] : rows[0] + 1]
        return value, self.first_frame.compute_block(one, first)
