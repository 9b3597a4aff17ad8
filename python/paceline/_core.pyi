"""The Rust core as Python sees it."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, Self, TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import disjoint_base

__all__ = [
    "BEGINNING_SHARE",
    "BEGINNING_SPARE",
    "GAP_BYTES",
    "KEPT_BYTES",
    "ChunkEncoder",
    "ChunkReader",
    "ContactMap",
    "Correlation",
    "DcdHeader",
    "Encoder",
    "FileFormat",
    "HistoryHeader",
    "HydrogenBonds",
    "NearPairs",
    "NetcdfHeader",
    "NetcdfVariable",
    "NoJump",
    "NoJumpFollower",
    "PairRmsd",
    "Rdf",
    "Reader",
    "RowKernel",
    "SelectedAtoms",
    "SitePairs",
    "SnapshotCost",
    "SnapshotFormat",
    "Superposed",
    "Trajectory",
    "Transform",
    "Voxels",
    "Whole",
    "__version__",
    "accumulate_rows",
    "allow_wide",
    "amber_factor",
    "cells_of_dimensions",
    "cells_of_vectors",
    "cells_without_noise",
    "centers",
    "check_snapshot",
    "count_indices",
    "dcd_header",
    "detect_format",
    "dlpoly_config_head",
    "dlpoly_frame_head",
    "dlpoly_history_head",
    "dlpoly_imcon",
    "fingerprint_of",
    "formats",
    "fragments",
    "history_header",
    "lattices",
    "links",
    "merge_covariance",
    "merge_moments",
    "molecule_steps",
    "move_molecules",
    "netcdf_header",
    "pack_chunk",
    "put_tile",
    "read_integers",
    "read_snapshot",
    "read_text_head",
    "samples_of",
    "upright_cells",
    "verify",
    "write_snapshot",
]

__version__: str
# How the core reads: bytes between wanted ones that are read with them; bytes of unpacked chunks
# that a reader keeps; of chunks of deflate alone, the largest share that is inflated without the
# rest, and the bytes that are read beyond it.
GAP_BYTES: int
KEPT_BYTES: int
BEGINNING_SHARE: float
BEGINNING_SPARE: int

#: Positions, velocities, forces, cells, times and steps of a block's frames.
_Arrays: TypeAlias = tuple[
    NDArray[np.float32] | None,
    NDArray[np.float32] | None,
    NDArray[np.float32] | None,
    NDArray[np.float64],
    NDArray[np.float64],
    NDArray[np.int64],
    NDArray[np.float32],
]

#: A row, its bonds that are longer than half the cell, the longest one's atoms, and its length, Å.
_LongBonds: TypeAlias = tuple[int, int, Sequence[int], float]
_Apart: TypeAlias = tuple[int, Sequence[int], float]

#: Three vectors of a cell, Å.
_Cell: TypeAlias = Sequence[Sequence[float]] | NDArray[np.float64]

#: Nanoseconds reading and decoding, bytes and calls, rows left out and why.
_Cost: TypeAlias = tuple[int, int, int, int, list[tuple[int, str]]]

@final
class PairRmsd:
    """RMSDs of frames from one another."""

    def __new__(
        cls, n_atoms: int, weights: NDArray[np.float64] | None, *, superposition: bool
    ) -> Self: ...
    def fill(
        self,
        first: NDArray[np.float32],
        second: NDArray[np.float32],
        cutoff: float,
        out: NDArray[np.float32] | NDArray[np.float64],
    ) -> None: ...

@final
class Correlation:
    """A function of the time between frames, of series of particles."""

    def __new__(
        cls,
        correlated: str,
        n_frames: int,
        width: int,
        axes: NDArray[np.int64],
        gaps: NDArray[np.int64],
        *,
        fft: bool,
    ) -> Self: ...
    def compute(
        self, series: NDArray[np.float32] | NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]: ...

@disjoint_base
class Trajectory:
    """A trajectory file and its frame index."""

    def __new__(
        cls,
        path: str | os.PathLike[str],
        *,
        cache_folder: str | os.PathLike[str] | None = None,
        refresh: bool = False,
        sample: int | None = None,
        units: str | None = None,
        n_atoms: int | None = None,
        n_threads: int = 1,
        progress: Callable[[int, int], object] | None = None,
    ) -> Self: ...
    @property
    def path(self) -> str: ...
    @property
    def format(self) -> str: ...
    @property
    def n_atoms(self) -> int: ...
    @property
    def atom_counts(self) -> NDArray[np.uint32] | None: ...
    @property
    def varying(self) -> str | None: ...
    def layout_of(self, frame: int) -> tuple[bytes, int]: ...
    @property
    def n_frames(self) -> int: ...
    @property
    def fields(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def fingerprint(self) -> str: ...
    @property
    def samples(self) -> bytes: ...
    @property
    def layout(self) -> bytes: ...
    @property
    def notes(self) -> list[str]: ...
    @property
    def damaged(self) -> list[int]: ...
    @property
    def index_file(self) -> Path | None: ...
    @property
    def index_origin(self) -> str: ...
    @property
    def dt(self) -> float | None: ...
    @property
    def first(self) -> float: ...
    @property
    def time_doubt(self) -> str | None: ...
    @property
    def frames_counted(self) -> bool: ...
    @property
    def traffic(self) -> tuple[int, int]: ...
    def extents(
        self, frames: NDArray[np.uint64]
    ) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]: ...
    def times(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]: ...
    @property
    def traits(self) -> list[tuple[str, str]]: ...
    def head(self, first: int, n_frames: int) -> bytes: ...
    def verify(self) -> None: ...

class _Extents(Protocol):
    """Frames of one file: number, first byte and size of each."""

    @property
    def frames(self) -> NDArray[np.uint64]: ...
    @property
    def offsets(self) -> NDArray[np.uint64]: ...
    @property
    def sizes(self) -> NDArray[np.uint64]: ...

class _Block(Protocol):
    """Where a block goes; None for a field that is not wanted, or only checked."""

    @property
    def positions(self) -> NDArray[np.float32] | None: ...
    @property
    def velocities(self) -> NDArray[np.float32] | None: ...
    @property
    def forces(self) -> NDArray[np.float32] | None: ...
    @property
    def validity(self) -> NDArray[np.float64] | None: ...
    @property
    def cells(self) -> NDArray[np.float64]: ...
    @property
    def times(self) -> NDArray[np.float64]: ...
    @property
    def steps(self) -> NDArray[np.int64]: ...
    @property
    def fields(self) -> NDArray[np.uint8]: ...

@final
class Reader:
    """One worker's hand on a trajectory file."""

    def __new__(
        cls,
        path: str | os.PathLike[str],
        layout: bytes,
        samples: bytes,
        *,
        atoms: NDArray[np.int64] | None = None,
        fields: int = 1,
    ) -> Reader: ...
    def read_ahead(self, extents: _Extents) -> None: ...
    def read(self, extents: _Extents, block: _Block, *, required: int, skip: bool) -> _Cost: ...

class _Filter(Protocol):
    """One stage through which a chunk's bytes went."""

    @property
    def number(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def values(self) -> tuple[int, ...]: ...

class _Dataset(Protocol):
    """One dataset of numbers of an HDF5 file, and how its bytes are laid out."""

    @property
    def name(self) -> str: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def chunk(self) -> tuple[int, ...] | None: ...
    @property
    def filters(self) -> Sequence[_Filter]: ...
    @property
    def offset(self) -> int: ...
    @property
    def fill(self) -> bytes: ...

class _Element(Protocol):
    """A dataset, and what makes our units of its numbers."""

    @property
    def dataset(self) -> _Dataset: ...
    @property
    def factor(self) -> float: ...
    @property
    def divisor(self) -> float: ...
    @property
    def scale(self) -> float: ...

class _Slice(Protocol):
    """Where the frames of a block are in one dataset."""

    @property
    def rows(self) -> NDArray[np.int64]: ...
    @property
    def chunk_numbers(self) -> NDArray[np.uint64]: ...
    @property
    def offsets(self) -> NDArray[np.uint64]: ...
    @property
    def sizes(self) -> NDArray[np.uint64]: ...
    @property
    def masks(self) -> NDArray[np.uint32]: ...

class _NumberedBlock(_Block, Protocol):
    """A block that knows its frames' numbers, for messages."""

    @property
    def frames(self) -> NDArray[np.int64]: ...

@final
class ChunkReader:
    """One worker's hand on datasets of an HDF5 file.

    Elements and slices stand for positions, velocities and forces; None for what is not wanted
    or not there.
    """

    def __new__(
        cls,
        path: str | os.PathLike[str],
        samples: bytes,
        elements: Sequence[_Element | None],
        *,
        n_atoms: int,
        atoms: NDArray[np.int64] | None = None,
        ids: _Element | None = None,
        id_order: NDArray[np.int64] | None = None,
    ) -> ChunkReader: ...
    def read_ahead(self, slices: Sequence[_Slice | None]) -> None: ...
    def read(
        self,
        slices: Sequence[_Slice | None],
        block: _NumberedBlock,
        *,
        ids: _Slice | None = None,
        required: int,
        skip: bool,
        whole: bool = False,
    ) -> _Cost: ...

@final
class Encoder:
    """Encodes the frames of one file."""

    def __new__(
        cls, format: str, n_atoms: int, precision: float | None, has_cell: bool, fields: int
    ) -> Encoder: ...
    def __getnewargs__(self) -> tuple[str, int, float | None, bool, int]: ...
    @property
    def format(self) -> str: ...
    def head(self, n_frames: int, time: float, dt: float, step: int, steps: int) -> bytes: ...
    def encode(self, block: _Arrays) -> bytes: ...
    def write(self, path: str | os.PathLike[str], first: int, block: _Arrays) -> None: ...

@final
class FileFormat:
    """A format of trajectories: its names, its files' names, and what they can hold."""

    @property
    def name(self) -> str: ...
    @property
    def mdanalysis_name(self) -> str: ...
    @property
    def aliases(self) -> list[str]: ...
    @property
    def extensions(self) -> list[str]: ...
    @property
    def file_names(self) -> list[str]: ...
    @property
    def reads(self) -> int: ...
    @property
    def writes(self) -> int: ...
    @property
    def mixed_fields(self) -> bool: ...
    @property
    def equal_frames(self) -> bool: ...
    @property
    def one_time_step(self) -> bool: ...
    @property
    def holds_lambda(self) -> bool: ...
    @property
    def turned_cells(self) -> bool: ...
    @property
    def precision(self) -> bool: ...
    @property
    def appends(self) -> bool: ...
    @property
    def is_text(self) -> bool: ...
    @property
    def times_are_steps(self) -> bool: ...

@final
class ChunkEncoder:
    """Encodes the chunks of one HDF5 dataset of (frames, atoms, 3)."""

    def __new__(
        cls,
        dtype: str,
        chunk: tuple[int, int, int],
        *,
        shuffle: bool = False,
        method: str | None = None,
        level: int | None = None,
        precision: float | None = None,
        factor: float = 1.0,
        what: str = ...,
    ) -> ChunkEncoder: ...
    def __getnewargs_ex__(
        self,
    ) -> tuple[tuple[str, tuple[int, int, int]], dict[str, bool | float | str | None]]: ...
    @property
    def step(self) -> float | None: ...
    def check(self, values: NDArray[np.float32]) -> None: ...
    def encode(self, values: NDArray[np.float32]) -> tuple[bytes, NDArray[np.uint64]]: ...
    def write(
        self,
        path: str | os.PathLike[str],
        offsets: NDArray[np.uint64],
        values: NDArray[np.float32],
        *,
        lead: int = 0,
    ) -> None: ...

@final
class RowKernel:
    """Computes a row of numbers for each frame of a block.

    Constructors take `columns`, those of the analysis's atoms in the block (None: all in order);
    other indices count these atoms.
    """

    @staticmethod
    def angles(
        columns: NDArray[np.int64] | None,
        n_angles: int,
        periodic: bool,
    ) -> RowKernel:
        """Angles (degrees) at the second of three groups of atoms, which follow each other."""
    @staticmethod
    def atomic_distances(
        columns: NDArray[np.int64] | None,
        n_pairs: int,
        periodic: bool,
    ) -> RowKernel:
        """Distances (Å) between two groups of atoms, which follow each other, pair by pair."""
    @staticmethod
    def center_distance(
        columns: NDArray[np.int64] | None,
        sizes: tuple[int, int],
        weights: NDArray[np.float64] | None,
        periodic: bool,
    ) -> RowKernel:
        """Distance (Å) between the centers of two groups of such sizes, which follow each other."""
    @staticmethod
    def distance_matrix(
        columns: NDArray[np.int64] | None,
        n_first: int,
        n_second: int | None,
        periodic: bool,
    ) -> RowKernel:
        """Distances (Å) between all atoms of two groups, which follow each other, or of one."""
    @staticmethod
    def minimum_distance(
        columns: NDArray[np.int64] | None,
        sizes: tuple[int, int],
        periodic: bool,
    ) -> RowKernel:
        """Least distance (Å) between two groups, which follow each other, and its atoms' places."""
    @staticmethod
    def gyration(
        columns: NDArray[np.int64] | None,
        sizes: NDArray[np.int64],
        weights: NDArray[np.float64] | None,
    ) -> RowKernel:
        """Radii of gyration and shapes of compounds, whose atoms follow each other.

        Of each: radius, radii about x, y, z (Å), moments (Å²), asphericity, shape parameter.
        """
    @staticmethod
    def contacts(
        columns: NDArray[np.int64] | None,
        pairs: NDArray[np.int64],
        limits: NDArray[np.float64],
        sizes: NDArray[np.int64],
        periodic: bool,
        beta: float | None,
    ) -> RowKernel:
        """Fractions of contacts: pairs of atoms of references, and the limit (Å) of each.

        `sizes` are the numbers of pairs of the references; with `beta` (Å⁻¹), limits are soft.
        """
    @staticmethod
    def dihedrals(columns: NDArray[np.int64] | None, quadruples: NDArray[np.int64]) -> RowKernel:
        """Dihedral angles (degrees) of four atoms each, given one after another."""
    @staticmethod
    def dssp(
        columns: NDArray[np.int64] | None, donors: NDArray[np.bool_], has_hydrogens: bool
    ) -> RowKernel:
        """Helices (bit 1) and strands (bit 2) of residues.

        Atoms are the N of each residue, then each CA, C and O, and each H if it `has_hydrogens`.
        """
    @staticmethod
    def dssp_letters(
        columns: NDArray[np.int64] | None, donors: NDArray[np.bool_], polyproline: bool
    ) -> RowKernel:
        """Numbers of the letters of residues, - H B E G I T S, and P if `polyproline`.

        Atoms are the N of each residue, then each CA, C and O.
        """
    @staticmethod
    def density_profiles(
        columns: NDArray[np.int64] | None,
        weights: NDArray[np.float64],
        compounds: tuple[NDArray[np.int64], NDArray[np.float64]] | None,
        n_bins: int,
    ) -> RowKernel:
        """Densities of mass and charge along x, y, z; end (Å) and volumes (Å³) of bins.

        Of each atom, or with compounds (index, and the atom's mass) of each compound: mass, charge.
        """
    @staticmethod
    def dipole(
        columns: NDArray[np.int64] | None,
        charges: NDArray[np.float64],
        summed: str,
        needs_cell: str | None,
    ) -> RowKernel:
        """Compute the dipole moment of positions (units of charge x Å), or a current (x Å/ps).

        Messages name what is `summed`, "positions" or "velocities", and what `needs_cell`, and so
        gets its volume (Å³).
        """
    @staticmethod
    def components(
        columns: NDArray[np.int64] | None, n_atoms: int, cutoff: float, periodic: bool
    ) -> RowKernel:
        """Numbers of the connected components that pairs of atoms within `cutoff` (Å) make."""
    @staticmethod
    def order(
        columns: NDArray[np.int64] | None,
        sizes: NDArray[np.int64],
        axis: tuple[float, float, float],
        periodic: bool,
    ) -> RowKernel:
        """Order parameters of vectors from the first half of the atoms to the second.

        Along an axis; means over such numbers of vectors.
        """
    @staticmethod
    def projection(
        columns: NDArray[np.int64] | None,
        mean: NDArray[np.float64],
        directions: NDArray[np.float64],
        reference: NDArray[np.float64] | None = None,
    ) -> RowKernel:
        """Displacements (Å) from mean positions, along directions: rows, of all coordinates."""
    @staticmethod
    def pair_distances(
        columns: NDArray[np.int64] | None, pairs: NDArray[np.int64], periodic: bool
    ) -> RowKernel:
        """Distances (Å) of two atoms each, given one after another."""
    @staticmethod
    def rmsd(
        columns: NDArray[np.int64] | None,
        groups: Sequence[tuple[NDArray[np.float64], NDArray[np.float64] | None]],
        superposition: bool,
    ) -> RowKernel:
        """RMSDs (Å) of groups, which follow each other; the others follow the motion of the first.

        Of each group: reference positions (Å), and weights or None.
        """
    @staticmethod
    def sasa(
        columns: NDArray[np.int64] | None,
        radii: NDArray[np.float64],
        probe: float,
        n_points: int,
        output: NDArray[np.uint32],
        n_parts: int,
    ) -> RowKernel:
        """Solvent-accessible areas (Å²), summed up in `n_parts`.

        Atoms have `radii` (Å), without the probe's. `output`, shape (n, 2), are pairs of an atom
        and of the part that its area is added to.
        """
    @property
    def n_columns(self) -> int:
        """Numbers of a row."""
    def compute(
        self,
        positions: NDArray[np.float32],
        cells: NDArray[np.float64],
        out: NDArray[np.float64],
    ) -> tuple[int, str] | None:
        """Fill a row for each frame; the first that cannot be computed, and why."""

@final
class ContactMap:
    """Frames in which two groups of columns have atoms within a cutoff (Å)."""

    def __new__(
        cls, columns: NDArray[np.int64], sizes: NDArray[np.int64], cutoff: float, periodic: bool
    ) -> ContactMap: ...
    def count(
        self,
        positions: NDArray[np.float32],
        cells: NDArray[np.float64],
        counts: NDArray[np.uint64],
    ) -> tuple[int, str] | None:
        """Add a block's contacts to `counts`, one for each pair of groups.

        The first row that cannot be counted, and why.
        """

#: Columns of a group, and a label of each.
_LabelledColumns: TypeAlias = tuple[NDArray[np.int64], NDArray[np.uint32] | None]

_Found: TypeAlias = tuple[NDArray[np.int64], NDArray[np.float64], tuple[int, str] | None]

@final
class HydrogenBonds:
    """Finds hydrogen bonds: frame, indices of donor, hydrogen and acceptor, Å, degrees.

    `donors` are pairs of donors and hydrogens, or with a distance (Å) those within it in each
    frame. With `parts`: a number of each donor, one of each acceptor, and between which bonds are.
    """

    def __new__(
        cls,
        columns: NDArray[np.int64] | None,
        donors: tuple[NDArray[np.int64], NDArray[np.int64], float | None],
        acceptors: NDArray[np.int64],
        parts: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]] | None,
        criterion: tuple[str, float, float],
    ) -> HydrogenBonds: ...
    def find(
        self,
        positions: NDArray[np.float32],
        cells: NDArray[np.float64],
        frames: NDArray[np.int64],
        atoms: NDArray[np.int64],
    ) -> _Found: ...

@final
class NearPairs:
    """Finds pairs of two groups, or of one, within `cutoff` (Å), of unlike indices and labels.

    Of both groups: `indices`, and `labels`. Records are those of `paceline.analysis.neighbors`.
    """

    def __new__(
        cls,
        columns: NDArray[np.int64] | None,
        first: NDArray[np.int64],
        second: NDArray[np.int64] | None,
        cutoff: float,
        periodic: bool,
        indices: tuple[NDArray[np.int64], NDArray[np.int64]],
        labels: tuple[NDArray[np.int64], NDArray[np.int64]] | None,
    ) -> NearPairs: ...
    def find(
        self, positions: NDArray[np.float32], cells: NDArray[np.float64]
    ) -> tuple[NDArray[np.int64], NDArray[np.uint64], tuple[int, str] | None]: ...
    def count(
        self,
        positions: NDArray[np.float32],
        cells: NDArray[np.float64],
        counts: NDArray[np.int32],
    ) -> tuple[int, str] | None: ...

@final
class Rdf:
    """Bins of the distances between two groups of columns, or within one."""

    def __new__(
        cls,
        edges: NDArray[np.float64],
        first: _LabelledColumns,
        second: _LabelledColumns | None,
        *,
        needs_cell: bool,
    ) -> Rdf: ...
    def count(
        self,
        positions: NDArray[np.float32],
        cells: NDArray[np.float64],
        counts: NDArray[np.uint64],
    ) -> tuple[float, tuple[int, str] | None]: ...

@final
class SelectedAtoms:
    """Finds the atoms of an updating group: `nodes` are selections, of which later need earlier."""

    def __new__(
        cls,
        columns: NDArray[np.int64] | None,
        nodes: Sequence[tuple[str, list[int], list[float], bool, NDArray[np.int64] | None]],
        group: tuple[int, int | None, list[int]],
        n_atoms: int,
        n_universe: int,
        complete: bool,
    ) -> SelectedAtoms: ...
    def find(
        self, positions: NDArray[np.float32], cells: NDArray[np.float64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], tuple[int, str] | None]: ...

@final
class SitePairs:
    """Bins of the distance of each atom of a group to each of another, for pairs of groups."""

    def __new__(
        cls,
        columns: NDArray[np.int64],
        sizes: NDArray[np.int64],
        pairs: NDArray[np.int64],
        range: tuple[float, float],
        nbins: int,
        *,
        needs_cell: bool,
    ) -> SitePairs: ...
    def find(
        self, positions: NDArray[np.float32], cells: NDArray[np.float64]
    ) -> tuple[NDArray[np.uint32], float, tuple[int, str] | None]:
        """Index of the bin of each distance; the sum of volumes (Å³); the first refused row."""

@final
class Superposed:
    """Positions of some columns, as they are or after a superposition.

    With `fit`: columns that are superposed, their reference positions (Å), and weights or None.
    """

    def __new__(
        cls,
        columns: NDArray[np.int64],
        fit: (
            tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64] | None] | None
        ) = None,
    ) -> Superposed: ...
    def add_to_moments(
        self,
        positions: NDArray[np.float32],
        mean: NDArray[np.float64],
        squares: NDArray[np.float64],
    ) -> tuple[int, float]:
        """Add a leaf's frames; their number, and the sum of their RMSDs (Å)."""
    def add_to_covariance(
        self,
        positions: NDArray[np.float32],
        mean: NDArray[np.float64],
        products: NDArray[np.float64],
    ) -> int:
        """Add a leaf's frames to the upper triangle, row by row; their number."""

@final
class Transform:
    """A change of all frames of a block, in place."""

    @staticmethod
    def unwrap(n_atoms: int, bonds: NDArray[np.int64]) -> Transform: ...
    @staticmethod
    def center(
        n_atoms: int,
        atoms: NDArray[np.int64],
        weights: NDArray[np.float64] | None,
        point: Sequence[float] | None,
        wrap: bool,
    ) -> Transform: ...
    @staticmethod
    def wrap(
        n_atoms: int,
        atoms: NDArray[np.int64],
        sizes: NDArray[np.int64],
        weights: NDArray[np.float64] | None,
    ) -> Transform: ...
    @staticmethod
    def fit(
        n_atoms: int,
        atoms: NDArray[np.int64],
        reference: NDArray[np.float64],
        weights: NDArray[np.float64] | None,
        rotation: bool,
        normal: int | None,
    ) -> Transform: ...
    def apply(
        self,
        positions: NDArray[np.float32],
        cells: NDArray[np.float64],
        vectors: Sequence[NDArray[np.float32]],
    ) -> tuple[list[tuple[int, str]], list[_LongBonds]]: ...

@final
class Whole:
    """Groups of atoms, of whose molecules no two parts may be in different images."""

    def __new__(
        cls,
        n_atoms: int,
        links: tuple[NDArray[np.int64], NDArray[np.int64]],
        longest: int,
        groups: Sequence[NDArray[np.int64]],
        contacts: NDArray[np.int64],
    ) -> Whole: ...
    def look(
        self, positions: NDArray[np.float32], cells: NDArray[np.float64]
    ) -> tuple[list[_Apart], list[_Apart]]: ...

@final
class NoJump:
    """Atoms followed across the faces of the cell."""

    def __new__(cls, n_atoms: int, atoms: NDArray[np.int64]) -> NoJump: ...
    def check(
        self, positions: NDArray[np.float32], cells: NDArray[np.float64]
    ) -> list[tuple[int, str]]: ...
    def scan(
        self,
        positions: NDArray[np.float32],
        cells: NDArray[np.float64],
        rows: NDArray[np.int64],
    ) -> tuple[NDArray[np.int16], NDArray[np.int16]]: ...
    def move_to(
        self,
        images: NDArray[np.int16],
        positions: NDArray[np.float32],
        cells: NDArray[np.float64],
    ) -> list[tuple[int, str]]: ...

@final
class NoJumpFollower:
    """Atoms that are moved to their images, block after block from the first frame on."""

    def __new__(cls, task: NoJump, skip_damaged: bool) -> NoJumpFollower: ...
    def move_on(
        self,
        number: int,
        positions: NDArray[np.float32],
        cells: NDArray[np.float64],
        begin: NDArray[np.int16] | None = None,
    ) -> list[tuple[int, str]] | None: ...
    def close(self) -> None: ...

@final
class Voxels:
    """Voxels of a grid, in which atoms are counted."""

    def __new__(
        cls,
        columns: NDArray[np.int64],
        x: NDArray[np.float64],
        y: NDArray[np.float64],
        z: NDArray[np.float64],
    ) -> Voxels: ...
    def find(
        self, positions: NDArray[np.float32]
    ) -> tuple[NDArray[np.uint32], tuple[int, str] | None]: ...

class _Communicator(Protocol):
    """One rank's end of the wires; `paceline.backends.mpi.comm` fills it in."""

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    def all_to_all(self, numbers: NDArray[np.uint64]) -> NDArray[np.uint64]: ...
    def exchange(
        self,
        send: memoryview,
        send_counts: NDArray[np.uint64],
        receive: memoryview,
        receive_counts: NDArray[np.uint64],
    ) -> None: ...
    def all_reduce(self, values: NDArray[np.uint64], how: str) -> None: ...
    def all_gather(self, data: bytes) -> list[bytes]: ...
    def send(self, to: int, data: memoryview) -> None: ...
    def receive(self, sender: int, data: memoryview) -> None: ...
    def write_at(
        self, path: str, offsets: NDArray[np.uint64], size: int, data: memoryview
    ) -> None: ...

#: Three numbers an atom: (n, 3).
_Vectors: TypeAlias = NDArray[np.float32] | NDArray[np.float64]

#: One rank's atoms: ids int64 (n,); positions, velocities, forces, all float32 or all float64;
#: names uint8 (n, 8); masses and charges float64 (n,).
_SnapshotAtoms: TypeAlias = tuple[
    NDArray[np.int64],
    _Vectors,
    _Vectors | None,
    _Vectors | None,
    NDArray[np.uint8] | None,
    NDArray[np.float64] | None,
    NDArray[np.float64] | None,
]

@final
class SnapshotFormat:
    """Encoder of a snapshot's atoms in one format. It can be pickled."""

    def __new__(
        cls,
        kind: Literal["CONFIG", "HISTORY", "DCD", "arrays"],
        fields: int,
        *,
        factors: tuple[float, float, float] = ...,
        dtype: str = ...,
    ) -> Self: ...
    @property
    def sections(self) -> list[int]: ...
    def encode(self, section: int, atoms: _SnapshotAtoms) -> bytes: ...
    def encode_into(self, section: int, atoms: _SnapshotAtoms, out: NDArray[np.uint8]) -> None: ...
    def __getnewargs_ex__(
        self,
    ) -> tuple[tuple[str, int], dict[str, str | tuple[float, float, float]]]: ...

@final
class SnapshotCost:
    """Cost of one frame on one rank: seconds, and numbers of things."""

    @property
    def communicate(self) -> float: ...
    @property
    def sort(self) -> float: ...
    @property
    def format(self) -> float: ...
    @property
    def write(self) -> float: ...
    @property
    def n_messages(self) -> int: ...
    @property
    def bytes_sent(self) -> int: ...
    @property
    def n_writes(self) -> int: ...
    @property
    def bytes_written(self) -> int: ...
    @property
    def n_batches(self) -> int: ...
    @property
    def peak_buffer(self) -> int: ...

def check_snapshot(
    comm: _Communicator, format: SnapshotFormat, n_atoms: int, atoms: _SnapshotAtoms
) -> None: ...
def write_snapshot(
    comm: _Communicator,
    path: str | os.PathLike[str],
    format: SnapshotFormat,
    starts: Sequence[int],
    n_atoms: int,
    atoms: _SnapshotAtoms,
    *,
    method: Literal["serial", "direct", "mpiio", "sorted"],
    writers: Sequence[int],
    buffer: int,
    sync: bool,
) -> SnapshotCost: ...

class _TextFrame(Protocol):
    """Place of a frame of text."""

    @property
    def layout(self) -> bytes: ...
    @property
    def samples(self) -> bytes: ...
    @property
    def offset(self) -> int: ...
    @property
    def size(self) -> int: ...

class _DecodedAtoms(Protocol):
    """Some atoms of a frame; `paceline.snapshot.reader` has them."""

    @property
    def ids(self) -> NDArray[np.int64] | None: ...
    @property
    def vectors(self) -> Sequence[NDArray[np.float32] | None]: ...
    @property
    def names(self) -> NDArray[np.uint8] | None: ...
    @property
    def masses(self) -> NDArray[np.float64] | None: ...
    @property
    def charges(self) -> NDArray[np.float64] | None: ...

class _FrameInfo(Protocol):
    """A frame of a file; `paceline.snapshot.reader` has it."""

    @property
    def path(self) -> str: ...
    @property
    def frame(self) -> int: ...
    @property
    def field_bits(self) -> int: ...
    @property
    def has_names(self) -> bool: ...
    @property
    def has_masses(self) -> bool: ...
    @property
    def has_charges(self) -> bool: ...
    @property
    def n_places(self) -> int: ...
    @property
    def text(self) -> _TextFrame | None: ...
    def read(self, first: int, last: int) -> _DecodedAtoms: ...

def read_text_head(
    path: str | os.PathLike[str], frame: int, text: _TextFrame
) -> tuple[int, float, list[list[float]] | None, int, bool]: ...
def read_snapshot(
    comm: _Communicator,
    frame: _FrameInfo,
    whose: tuple[Sequence[int], Sequence[Sequence[float]], bool]
    | Callable[[NDArray[np.int64], NDArray[np.uint8]], NDArray[np.int64]]
    | None,
    *,
    n_atoms: int,
    readers: Sequence[int],
    buffer: int,
) -> (
    tuple[list[NDArray[np.uint8] | None], tuple[float, float, float, int, int, int, int]] | None
): ...
def cells_of_dimensions(dimensions: NDArray[np.float32]) -> NDArray[np.float64]: ...
def cells_of_vectors(
    vectors: NDArray[np.float64], periodic: tuple[bool, bool, bool]
) -> NDArray[np.float64]: ...
def cells_without_noise(cells: NDArray[np.float64]) -> NDArray[np.float64]: ...
def lattices(cells: NDArray[np.float64]) -> NDArray[np.float64]: ...
def upright_cells(cells: NDArray[np.float64]) -> NDArray[np.bool_]: ...
def dlpoly_imcon(cell: _Cell | None) -> int: ...
def dlpoly_config_head(
    title: str,
    n_atoms: int,
    fields: int,
    *,
    step: int,
    dt: float,
    time: float,
    cell: _Cell | None,
) -> bytes: ...
def dlpoly_history_head(
    title: str, n_atoms: int, fields: int, *, imcon: int, n_frames: int
) -> bytes: ...
def dlpoly_frame_head(
    n_atoms: int, fields: int, *, step: int, dt: float, time: float, cell: _Cell | None
) -> bytes: ...
def pack_chunk(
    data: bytes, *, width: int, shuffle: bool, method: str, level: int | None = None
) -> bytes: ...
def read_integers(
    path: str | os.PathLike[str], dataset: _Dataset, slice: _Slice
) -> NDArray[np.int64]: ...

@final
class DcdHeader:
    """The header of a DCD file."""

    @property
    def big_endian(self) -> bool: ...
    @property
    def marker_size(self) -> int: ...
    @property
    def integers(self) -> list[int]: ...
    @property
    def n_atoms(self) -> int: ...
    @property
    def n_fixed(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def first_frame_size(self) -> int: ...
    @property
    def frame_size(self) -> int: ...

@final
class HistoryHeader:
    """The head of a HISTORY."""

    @property
    def level(self) -> int: ...
    @property
    def imcon(self) -> int: ...
    @property
    def n_atoms(self) -> int: ...
    @property
    def n_frames(self) -> int | None: ...
    @property
    def size(self) -> int: ...
    @property
    def frame_head_size(self) -> int | None: ...
    @property
    def frame_size(self) -> int | None: ...

@final
class NetcdfVariable:
    """A variable of a NetCDF file."""

    @property
    def dimensions(self) -> list[str]: ...
    @property
    def kind(self) -> str: ...
    @property
    def attributes(self) -> dict[str, bytes | tuple[float, ...]]: ...
    @property
    def in_records(self) -> bool: ...
    @property
    def size(self) -> int: ...
    @property
    def begin(self) -> int: ...

@final
class NetcdfHeader:
    """The header of a NetCDF file in a classic format."""

    @property
    def version(self) -> int: ...
    @property
    def n_records(self) -> int | None: ...
    @property
    def dimensions(self) -> dict[str, int]: ...
    @property
    def attributes(self) -> dict[str, bytes | tuple[float, ...]]: ...
    @property
    def variables(self) -> dict[str, NetcdfVariable]: ...
    @property
    def size(self) -> int: ...
    @property
    def record_size(self) -> int: ...

def dcd_header(
    path: str | os.PathLike[str], head: bytes, file_size: int | None = None
) -> DcdHeader: ...
def history_header(
    path: str | os.PathLike[str], head: bytes, file_size: int | None = None
) -> HistoryHeader: ...
def netcdf_header(
    path: str | os.PathLike[str], head: bytes, file_size: int | None = None
) -> NetcdfHeader: ...
def amber_factor(unit: str, like: str) -> float | None: ...
def formats() -> list[FileFormat]: ...
def detect_format(path: str | os.PathLike[str]) -> str | None: ...
def samples_of(path: str | os.PathLike[str]) -> bytes: ...
def fingerprint_of(samples: bytes) -> str: ...
def verify(path: str | os.PathLike[str], fingerprint: str) -> None: ...
def accumulate_rows(
    rows: NDArray[np.float64], mean: NDArray[np.float64], squares: NDArray[np.float64]
) -> int: ...
def centers(
    positions: NDArray[np.float32],
    atoms: NDArray[np.int64],
    sizes: NDArray[np.int64],
    weights: NDArray[np.float64],
) -> NDArray[np.float32]: ...
def molecule_steps(
    centers: NDArray[np.float64], cells: NDArray[np.float64]
) -> NDArray[np.int64]: ...
def move_molecules(
    positions: NDArray[np.float32],
    rows: NDArray[np.int64],
    atoms: NDArray[np.int64],
    sizes: NDArray[np.int64],
    steps: NDArray[np.int64],
) -> None: ...
def count_indices(indices: NDArray[np.uint32], counts: NDArray[np.uint64]) -> None: ...
def allow_wide(allowed: bool) -> bool: ...
def fragments(n_atoms: int, bonds: NDArray[np.int64]) -> NDArray[np.int64]: ...
def links(
    n_atoms: int, bonds: NDArray[np.int64], wanted: NDArray[np.int64], longest: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]: ...
def put_tile(
    matrix: NDArray[np.float32] | NDArray[np.float64],
    n_frames: int,
    tile: NDArray[np.float32] | NDArray[np.float64],
    first: int,
    second: int,
) -> None: ...
def merge_covariance(
    left_count: int,
    left_mean: NDArray[np.float64],
    left_products: NDArray[np.float64],
    right_count: int,
    right_mean: NDArray[np.float64],
    right_products: NDArray[np.float64],
) -> int: ...
def merge_moments(
    left_count: int,
    left_mean: NDArray[np.float64],
    left_squares: NDArray[np.float64],
    right_count: int,
    right_mean: NDArray[np.float64],
    right_squares: NDArray[np.float64],
) -> int: ...
