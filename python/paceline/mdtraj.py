"""Frames as MDTraj trajectories, in nm and ps, decoded on all cores."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from paceline.block import Block
from paceline.contract.source import TimeAxis
from paceline.contract.system_interface import Atoms, attribute_of
from paceline.errors import AtomCountError, UnsupportedError
from paceline.hdf5.open_hdf5_trajectory import is_hdf5
from paceline.trajectory.chain import Chain
from paceline.trajectory.file_trajectory import FileTrajectory
from paceline.trajectory.open import files_named

if TYPE_CHECKING:
    import mdtraj

#: Å per nm, in the precision of positions.
_NM = np.float32(10)


def iterload(
    filename: str | os.PathLike | Sequence[str | os.PathLike],
    chunk: int = 100,
    *,
    top: object = None,
    stride: int | None = None,
    atom_indices: object = None,
    skip: int = 0,
) -> "Iterator[mdtraj.Trajectory]":
    """Iterate over a trajectory in chunks, as `mdtraj.iterload` does.

    The next frames are decoded on other cores in the background. All formats that paceline decodes
    are supported.

    Parameters
    ----------
    filename : path-like, or a sequence of them
        Trajectory: a file, a pattern, or several files in order.
    chunk : int
        Number of frames in a chunk; 0 for all frames in one chunk.
    top : path-like, mdtraj.Topology, mdtraj.Trajectory, AtomGroup or Universe, optional
        Topology of the file; `mdtraj.load_topology` reads a topology file. MDTraj's HDF5 files
        contain their own topology.
    stride : int, optional
        Read every `stride`-th frame only.
    atom_indices : array_like of int, optional
        Read only these atoms; indices must increase.
    skip : int
        Number of frames to skip at the start of the file.

    Yields
    ------
    mdtraj.Trajectory
        Positions (float32) and cells in nm, angles in degrees, times in ps. If no frame of the
        chunk has a cell, the trajectory has none.

    Raises
    ------
    AtomCountError
        The topology has another number of atoms.
    DamagedFileError
        A frame is damaged.
    UnsupportedError
        MDTraj is not installed, or some frames of a chunk have cells and others have none.
    ValueError
        A number is out of range, or a topology is missing.

    Examples
    --------
    >>> from paceline.mdtraj import iterload
    >>> from MDAnalysisTests.datafiles import PSF, DCD
    >>> [len(chunk) for chunk in iterload(DCD, chunk=40, top=PSF)]
    [40, 40, 18]
    """
    _import()
    stride = 1 if stride is None else stride
    for name, value, least in (("chunk", chunk, 0), ("stride", stride, 1), ("skip", skip, 0)):
        if value < least:
            raise ValueError(f"expected {name} of {least} or more, found {value}")
    given = [filename] if isinstance(filename, str | os.PathLike) else filename
    chain = Chain([name for one in given for name in files_named(one)])
    all_atoms = _topology_from(top, chain.names[0])
    if all_atoms.n_atoms != chain.n_atoms:
        error = AtomCountError(
            f"{chain.names[0]}: expected {all_atoms.n_atoms} atoms as in the topology, found "
            f"{chain.n_atoms}; use the topology that the trajectory was written with"
        )
        error.found = chain.n_atoms
        raise error
    atoms = None if atom_indices is None else _check_atoms(atom_indices, chain.n_atoms)
    chosen = all_atoms if atoms is None else all_atoms.subset(atoms)
    frames = np.arange(skip, chain.n_frames, stride)
    blocks = FileTrajectory(chain, TimeAxis()).blocks(
        frames=frames, atoms=atoms, n_frames=chunk or max(1, len(frames))
    )
    return (trajectory(block, chosen) for block in blocks)


def topology(atomgroup: Atoms) -> "mdtraj.Topology":
    """Create an MDTraj topology from a group of atoms, in the order of the group.

    MDAnalysis's segments, split by chain identifiers if there are any, become chains. Names of
    residues and atoms are replaced by standard names, as when MDTraj reads a file: for example,
    "SOL" becomes "HOH". Bonds are those of MDAnalysis's topology or, if it has none, those of
    standard residues. Missing elements are guessed from names, as in MDAnalysis; an atom without an
    element becomes a virtual site.

    Parameters
    ----------
    atomgroup : AtomGroup or Universe
        The atoms.

    Returns
    -------
    mdtraj.Topology
        Topology for `trajectory`, and for MDTraj's selections.

    Raises
    ------
    UnsupportedError
        MDTraj is not installed.

    Examples
    --------
    >>> import paceline
    >>> from paceline.mdtraj import topology
    >>> from MDAnalysisTests.datafiles import PSF, DCD
    >>> topology(paceline.Universe(PSF, DCD).select_atoms("name CA")).n_residues
    214
    """
    return _AtomTable.of(atomgroup.atoms).build()


def trajectory(block: Block, topology: "mdtraj.Topology") -> "mdtraj.Trajectory":
    """Create an MDTraj trajectory from a block, for use in your own analysis.

    Parameters
    ----------
    block : paceline.block.Block
        Frames with positions.
    topology : mdtraj.Topology
        Topology of the block's atoms.

    Returns
    -------
    mdtraj.Trajectory
        Trajectory in nm, degrees and ps, with its own arrays.

    Raises
    ------
    UnsupportedError
        Some frames have cells and others have none.
    """
    has_cell = np.asarray(block.dimensions.any(axis=1))
    lengths = angles = None
    if has_cell.all() and len(has_cell):
        lengths, angles = block.dimensions[:, :3] / _NM, block.dimensions[:, 3:].copy()
    elif has_cell.any():
        without, with_one = block.frames[has_cell.argmin()], block.frames[has_cell.argmax()]
        raise UnsupportedError(
            f"frame {without} has no cell, but frame {with_one} has one: an MDTraj trajectory has "
            "cells in all frames or in none; choose frames that are alike"
        )
    return _import().Trajectory(
        block.positions / _NM,
        topology,
        time=block.times.copy(),
        unitcell_lengths=lengths,
        unitcell_angles=angles,
    )


class TrajectoryFunction:
    """Function of MDTraj trajectories, converted to a function of blocks, which workers call."""

    def __init__(self, function: Callable[..., object], atomgroup: Atoms):
        self._function = function
        self._table = _AtomTable.of(atomgroup)
        self._topology: object = None

    def __call__(self, block: Block, *state: object) -> Any:
        """Convert a block to an MDTraj trajectory, and call the function with it and `state`."""
        if self._topology is None:
            self._topology = self._table.build()
        return self._function(trajectory(block, self._topology), *state)

    def __getstate__(self) -> dict[str, object]:
        return vars(self) | {"_topology": None}


@dataclass(frozen=True)
class _AtomTable:
    """Description of atoms as plain data: small to send, and equal in every process."""

    #: Name, element, serial number and index of the residue of each atom.
    atoms: list[tuple[str, str, int | None, int]]
    #: Name, number, segment name and index of the chain of each residue.
    residues: list[tuple[str, int, str, int]]
    #: Chain identifier of each chain; empty if the topology has none.
    chains: list[str]
    #: Bonds as pairs of indices into `atoms`; None for the bonds of standard residues.
    bonds: list[tuple[int, int]] | None

    @classmethod
    def of(cls, atoms: Atoms) -> "_AtomTable":
        """Create the description of a group's atoms, in the order of the group."""
        _import()
        chain_ids = _column(atoms, "chainIDs", "")
        segids = _column(atoms, "segids", "")
        parts = list(zip(atoms.segindices.tolist(), chain_ids, strict=True))
        chains = {part: k for k, part in enumerate(dict.fromkeys(parts))}
        # A residue in two chains becomes two residues.
        keys = list(zip(atoms.resindices.tolist(), parts, strict=True))
        residues: dict[object, int] = {}
        described = []
        resnames, resids = _column(atoms, "resnames", "UNK"), _column(atoms, "resids", 1)
        for row, key in enumerate(keys):
            if key not in residues:
                residues[key] = len(residues)
                described.append((resnames[row], resids[row], segids[row], chains[key[1]]))
        names = _column(atoms, "names", "")
        return cls(
            list(
                zip(
                    names,
                    _elements(names, _column(atoms, "elements", "")),
                    _column(atoms, "ids", None),
                    [residues[key] for key in keys],
                    strict=True,
                )
            ),
            described,
            [chain_id for _, chain_id in chains],
            _bonds(atoms),
        )

    def build(self) -> Any:
        """Create the MDTraj topology of these atoms."""
        md = _import()
        standard = md.formats.PDBTrajectoryFile
        standard._loadNameReplacementTables()
        residue_names, atom_names = (
            standard._residueNameReplacements,
            standard._atomNameReplacements,
        )
        made = md.Topology()
        chains = [made.add_chain(chain_id or None) for chain_id in self.chains]
        residues = [
            made.add_residue(
                residue_names.get(name, name), chains[chain], resSeq=number, segment_id=segment
            )
            for name, number, segment, chain in self.residues
        ]
        for name, symbol, serial, residue in self.atoms:
            element = md.element.get_by_symbol(symbol) if symbol else md.element.virtual
            name = atom_names.get(residues[residue].name, {}).get(name, name)
            made.add_atom(name, element, residues[residue], serial=serial)
        if self.bonds is None:
            made.create_standard_bonds()
        else:
            atoms = list(made.atoms)
            for one, other in self.bonds:
                made.add_bond(atoms[one], atoms[other])
        return made


def _column(atoms: Atoms, name: str, default: object) -> list[Any]:
    """List an attribute of each atom as plain values; the default if the topology lacks it."""
    values = attribute_of(atoms, name)
    return [default] * len(atoms) if values is None else np.asarray(values).tolist()


def _elements(names: list[str], elements: list[str]) -> list[str]:
    """Return MDTraj's element symbol of each atom; empty if MDTraj has no such element."""
    from MDAnalysis.guesser.default_guesser import DefaultGuesser

    md = _import()
    guesser = DefaultGuesser(None)
    known: dict[tuple[str, str], str] = {}
    for name, element in set(zip(names, elements, strict=True)):
        symbol = element or guesser.guess_atom_element(name)
        try:
            known[name, element] = md.element.get_by_symbol(symbol).symbol
        except KeyError:
            known[name, element] = ""
    return [known[pair] for pair in zip(names, elements, strict=True)]


def _bonds(atoms: Atoms) -> list[tuple[int, int]] | None:
    """Find the bonds between atoms, as row indices; None if the topology has no bonds."""
    try:
        pairs = atoms.universe.atoms.bonds.indices
    except AttributeError:
        return None
    rows = np.full(len(atoms.universe.atoms), -1)
    rows[atoms.indices] = np.arange(len(atoms))
    found = rows[pairs]
    return [(one, other) for one, other in found[(found >= 0).all(axis=1)].tolist()]


def _topology_from(top: Any, name: str) -> Any:
    """Return the topology given by `top`, or contained in the trajectory file."""
    md = _import()
    if isinstance(top, md.Topology):
        return top
    if isinstance(top, md.Trajectory):
        return top.topology
    if hasattr(top, "atoms"):
        return topology(top)
    if top is None:
        if not is_hdf5(name):
            raise ValueError(f"{name}: it does not describe its atoms; pass a topology as top=")
        top = name
    return md.load_topology(os.fspath(top))


def _check_atoms(atom_indices: object, n_atoms: int) -> np.ndarray:
    """Check that atom indices increase and exist."""
    atoms = np.asarray(atom_indices)
    if atoms.ndim != 1 or not len(atoms) or atoms.dtype.kind not in "iu":
        raise ValueError(f"expected atom_indices to be whole numbers, found {atom_indices!r}")
    atoms = atoms.astype(np.int64)
    if atoms[0] < 0 or atoms[-1] >= n_atoms or (np.diff(atoms) <= 0).any():
        raise ValueError(f"expected atom_indices to increase, from 0 to {n_atoms - 1} at most")
    return atoms


def _import() -> Any:
    """Import MDTraj; raise `UnsupportedError` if it is not installed."""
    try:
        import mdtraj
    except ImportError as error:
        raise UnsupportedError(
            "this needs the package mdtraj; install it with: pip install 'paceline[mdtraj]'"
        ) from error
    return mdtraj
