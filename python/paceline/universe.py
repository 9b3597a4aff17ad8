"""A genuine MDAnalysis Universe on our reader."""

import itertools
import os
import re
import time
from importlib.util import find_spec
from typing import Any

import MDAnalysis
import numpy as np

from paceline import _core
from paceline._util.choices import MARTINI_WATERS
from paceline._util.files import check_local
from paceline.contract.atoms import attribute_of
from paceline.contract.loaded_atoms import LoadedAtoms
from paceline.errors import (
    AtomCountError,
    PacelineError,
    SelectionError,
    UnsupportedError,
    kept_warnings,
    warn,
    with_script_advice,
)
from paceline.hdf5.trajectory import is_hdf5
from paceline.mdanalysis import topology_cache
from paceline.mdanalysis.reader import Reader, is_name, is_ours
from paceline.mdanalysis.shared_opening import load_trajectory, open_universe
from paceline.trajectory.arrays import check_positions
from paceline.trajectory.atom_names import names_in
from paceline.trajectory.open import files_named
from paceline.transform.bond_lists import give_bonds
from paceline.transform.matching import order_in_file

#: Parts of a system that are often written alone.
_USUAL_PARTS = (
    "protein",
    f"not resname SOL WAT HOH {MARTINI_WATERS}",
    f"not (water or resname {MARTINI_WATERS} NA CL K MG CA ZN NA+ CL- K+ MG2+ CA2+ SOD CLA POT CAL "
    "ION)",
)


class Universe(MDAnalysis.Universe):  # numpydoc ignore=PR02
    """An `MDAnalysis.Universe` whose trajectory is read by paceline where it can be.

    XTC, TRR, DCD, Amber NetCDF, DL_POLY's HISTORY and CONFIG, LAMMPS's text dumps, and HDF5 (H5MD,
    MDTraj's, bare datasets) are recognised by their content. Everything else is read by
    MDAnalysis's own reader, as if the Universe were an ordinary one. Arguments are MDAnalysis's,
    but for those of HDF5 files and of LAMMPS's dumps.

    Parameters
    ----------
    topology : path-like or MDAnalysis.core.topology.Topology
        The system. An HDF5 file that describes its atoms, as GROMACS's and MDTraj's do, and
        DL_POLY's files need no other topology, and no other name of their trajectory.
    *coordinates : path-like or numpy.ndarray of shape (n_frames, n_atoms, 3)
        Trajectories, one after another: names, a list of them, or a pattern such as
        "md.part*.xtc", whose files are taken in the order in which people count. Or an array of
        positions, Å, with `dimensions=` and `dt=` as for MDAnalysis's `MemoryReader`.
    **kwargs
        As for `MDAnalysis.Universe`. Of files that restarts left, `continuous=True` orders them
        by time and leaves out the frames that a later one repeats. With `guess_bonds=True`, what
        the topology lacks is added at once: bonds of standard residues by the names of their atoms,
        and of others by distance in the first frame. MDAnalysis takes all bonds by distance, of
        water and ions, too, and adds angles and dihedrals, which paceline does not. Without it,
        selections of analyses by `bonded` or `fragment` add the bonds of standard residues, as
        guessed ones, to this or any other Universe that lacks them. Of an HDF5 file,
        `group` names one of several groups of particles; `units`, as {"length": "nm", "time": "ps"}
        or "nm, ps", those of numbers that have none; `dataset` that of positions where no structure
        is known.
        Of a dump or a DCD file of LAMMPS, `units` is the style that LAMMPS ran with, as "real".
        With `atoms`, a selection text or indices, only these atoms are decoded, which saves time
        and memory; use of all others raises an error.
        With `comm`, a communicator of mpi4py, all of its ranks open the Universe together: rank 0
        reads the files, and sends topology, frame index and first frame to the others. Where ranks
        name different files, or one fails, all raise.

    Attributes
    ----------
    t_init_top : float
        Parsing the topology, and making atoms of it, s.
    opening_warnings : list of str
        Warnings that were given when its files were opened.

    Raises
    ------
    AtomCountError
        A trajectory has another number of atoms than the topology.
    FileNotFoundError
        A trajectory is missing, or no file matches a pattern.
    SelectionError
        `atoms` names no atoms, one twice, or one that the topology lacks.
    ValueError
        An array has another shape, or holds no real numbers.
    UnsupportedError
        A compressed HISTORY is given as the topology, a URL as a file, or `atoms` with a file that
        MDAnalysis reads.

    Examples
    --------
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import PSF, DCD
    >>> paceline.Universe(PSF, DCD).trajectory.n_frames
    98
    """

    def __init__(self, topology: Any = None, *coordinates: Any, **kwargs: Any):
        open_universe(self, self._open, (topology, *coordinates), kwargs)

    def _open(self, topology: Any = None, *coordinates: Any, **kwargs: Any) -> None:
        """Parse the topology, and open the trajectory."""
        begun = time.perf_counter()
        self.opening_warnings: list[str] = []
        if is_name(topology):
            check_local(topology)
            _check_mmcif(os.fspath(topology))
        self._topology_file = os.fspath(topology) if is_name(topology) else None
        if style := _atom_style_of_lammps(topology, kwargs):
            kwargs["atom_style"] = style
        name, given = None, kwargs
        if _is_hdf5_topology(topology, kwargs.get("topology_format")):
            # HDF5's library is loaded for such a file only.
            from paceline.hdf5.conventions import read_topology

            name = os.fspath(topology)
            coordinates = coordinates or (name,)
            options = {key: kwargs[key] for key in ("group", "external") if key in kwargs}
            topology = read_topology(name, **options)
        elif kind := _dl_poly_format(topology, kwargs.get("topology_format")):
            # By its name alone, MDAnalysis knows none of these files.
            kwargs["topology_format"] = kind
            coordinates = coordinates or (topology,)
        elif found := topology_cache.resolve(topology, coordinates, kwargs):
            name = topology
            topology, coordinates, kwargs = found
        # Versions 2 of MDAnalysis guess these by default, and 3.0 nothing.
        kwargs.setdefault("to_guess", ("types", "masses"))
        guess_bonds = kwargs.pop("guess_bonds", False)
        of_bonds = {"radii": "vdwradii", "factor": "fudge_factor"} if guess_bonds else {}
        how = {name: kwargs.pop(key) for name, key in of_bonds.items() if key in kwargs}
        super().__init__(topology, *coordinates, **kwargs)
        if "atoms" in kwargs and self._trajectory is None:
            raise UnsupportedError("atoms= chooses atoms of a trajectory, and none is named")
        if guess_bonds:
            give_bonds(self, guess=True, **how)
        if name is not None:
            self.filename = name
            self._kwargs["format"] = given.get("format")
            self._kwargs["all_coordinates"] = given.get("all_coordinates", False)
        opening = attribute_of(self._trajectory, "t_init") or 0.0
        self.t_init_top = time.perf_counter() - begun - opening

    def load_new(
        self, filename: object, format: object = None, *args: object, **kwargs: object
    ) -> "Universe":
        """Replace the trajectory; see `MDAnalysis.Universe.load_new`."""
        if args:
            self._load(filename, format, *args, **kwargs)
        else:
            load_trajectory(self, self._load, filename, {"format": format, **kwargs})
        return self

    def _load(self, filename: object, format: object, *args: object, **kwargs: object) -> None:
        """Replace the trajectory."""
        files = _one_by_one(filename)
        for file in files:
            if isinstance(file, np.ndarray):
                check_positions(file, str(kwargs.get("order", "fac")))
        ours = [is_ours(*_name_and_format(file, format)) for file in files]
        if (chosen := kwargs.pop("atoms", None)) is not None:
            kwargs |= self._options_of(chosen, all(ours))
        if all(ours):
            filename = [_name_and_format(file, format)[0] for file in files]
            format = Reader
        elif len(files) == 1:
            filename = files[0]
        else:
            # MDAnalysis's chain of readers takes a reader with each file's name.
            filename = [
                (_name_and_format(file, format)[0], Reader) if is_one else file
                for file, is_one in zip(files, ours, strict=True)
            ]
        self.opening_warnings = []
        try:
            with kept_warnings(self.opening_warnings):
                super().load_new(filename, format, *args, **kwargs)
                if "sub" not in kwargs or attribute_of(self._trajectory, "loaded") is not None:
                    self._warn_of_other_names(files)
        except (AtomCountError, TypeError) as error:
            # MDAnalysis's chain of readers raises a TypeError without its reason.
            reason = error.__context__ if isinstance(error, TypeError) else error
            if isinstance(reason, AtomCountError):
                reason.args = (f"{reason}; {self._advice(reason.found)}",)
                if reason.found > len(self.atoms):
                    sub = "with sub= the indices that the topology's atoms have in the trajectory"
                    with_script_advice(reason, f", or name {sub}")
            if isinstance(reason, PacelineError):
                raise reason from None
            raise

    def _options_of(self, chosen: Any, possible: bool) -> dict[str, Any]:
        """Make the reader's options for the atoms that are to be loaded; none for all atoms."""
        shown = repr(chosen) if isinstance(chosen, str) else "…"
        call = f"Universe(…, atoms={shown})"
        if not possible:
            raise UnsupportedError(f"{call}: MDAnalysis reads this trajectory, and loads all atoms")
        try:
            found = self.select_atoms(chosen) if isinstance(chosen, str) else chosen
        except AttributeError as error:
            raise SelectionError(
                f"{call}: {error}; atoms are chosen by the topology, before a frame is read"
            ) from None
        indices = attribute_of(found, "ix")
        loaded = LoadedAtoms.of(found if indices is None else indices, len(self.atoms), call)
        if len(loaded.indices) == len(self.atoms):
            return {}
        return {"sub": loaded.indices, "chosen_by": call}

    def _warn_of_other_names(self, files: list[Any]) -> None:
        """Warn of the first file that tells other names of atoms than the topology."""
        for file in files:
            name, _ = _name_and_format(file, None)
            if not is_name(name) or os.fspath(name) == self._topology_file:
                continue
            known = names_in(os.fspath(name))
            if known and (found := order_in_file(self.atoms, known)) is not None:
                warn(f"{name}: {found[0]}")
                return

    def guess_TopologyAttrs(self, *args: object, **kwargs: object) -> None:
        """Guess attributes; see `MDAnalysis.Universe.guess_TopologyAttrs`."""
        theirs = super(Universe, type(self)).guess_TopologyAttrs
        topology_cache.guess(theirs, self, *args, **kwargs)

    def _repr_html_(self) -> str:
        """Summary for notebooks."""
        from paceline.performance.page import html_table, notebook_page

        facts = {"topology": os.fspath(self.filename) if self.filename else ""}
        sizes = {"atoms": self.atoms, "residues": self.residues, "segments": self.segments}
        facts |= {name: f"{len(group):,}" for name, group in sizes.items()}
        trajectory = self._trajectory
        if trajectory is not None:
            cell = self.dimensions
            n_frames = trajectory.n_frames
            facts |= {
                "trajectory": str(trajectory.filename or ""),
                "read by": type(trajectory).__module__.partition(".")[0],
                "frames": f"{n_frames:,}",
                "time": f"{trajectory.dt:g} ps a frame" if n_frames > 1 else "",
                "cell": "none" if cell is None else " ".join(f"{x:.4g}" for x in cell) + " (Å, °)",
            }
        rows = [fact for fact in facts.items() if fact[1]]
        return notebook_page("Universe", html_table(("", ""), rows))

    def _advice(self, n_atoms: int) -> str:
        """Advice about a trajectory of `n_atoms` that the topology does not fit."""
        for selection in _USUAL_PARTS:
            try:
                part = self.select_atoms(selection)
            except (MDAnalysis.SelectionError, AttributeError):
                continue
            if len(part) == n_atoms:
                return (
                    f'the selection "{selection}" of the topology has {n_atoms}: '
                    "save it as a topology of its own, or load the trajectory that holds all atoms"
                )
        return "load the topology that the trajectory was written with"


def _is_hdf5_topology(topology: Any, format: Any) -> bool:
    """Tell whether a topology is an HDF5 file, which MDAnalysis cannot parse."""
    return format is None and is_name(topology) and os.path.isfile(topology) and is_hdf5(topology)


def _check_mmcif(path: str) -> None:
    """Raise `UnsupportedError` for an mmCIF file that the installed packages cannot read."""
    if not re.search(r"\.(mm)?cif(\.gz|\.bz2)?$", path, re.IGNORECASE):
        return
    lacks = [] if "CIF" in MDAnalysis._PARSERS else [f"MDAnalysis is {MDAnalysis.__version__}"]
    lacks += [] if find_spec("gemmi") else ["gemmi is not installed"]
    if lacks:
        raise UnsupportedError(
            f"{path}: mmCIF files need MDAnalysis 2.11 or newer and the package gemmi, and "
            f"{' and '.join(lacks)}: pip install 'paceline[mmcif]', or give a PDB file"
        )


def _dl_poly_format(topology: Any, format: Any) -> str | None:
    """Name in MDAnalysis of the format of a topology that is one of DL_POLY's files."""
    if format is not None or not is_name(topology) or not os.path.isfile(topology):
        return None
    found = _core.detect_format(os.fspath(topology))
    if found == "HISTORY":
        _check_uncompressed(topology)
    return found if found in ("HISTORY", "CONFIG") else None


#: Lines of a data file of LAMMPS before its atoms, at most.
MOST_HEADER_LINES = 100_000
#: Columns of atoms in LAMMPS's data files, by the atom style that they name. MDAnalysis takes those
#: of "molecular" and "full" for granted: an atom's type is then a residue's number, and so on.
_ATOM_STYLES = {
    b"atomic": "id type x y z",
    b"charge": "id type charge x y z",
    b"dipole": "id type charge x y z",
    b"sphere": "id type diameter density x y z",
}


def _atom_style_of_lammps(topology: Any, options: dict[str, Any]) -> str | None:
    """Find the columns of atoms in a data file of LAMMPS, where MDAnalysis would take others."""
    if "atom_style" in options or not is_name(topology):
        return None
    ending = os.path.splitext(os.fspath(topology))[1][1:]
    if str(options.get("topology_format") or ending).upper() != "DATA":
        return None
    try:
        with open(topology, "rb") as file:
            # The section of atoms begins behind some lines for each type.
            for line in itertools.islice(file, MOST_HEADER_LINES):
                title, _, style = line.partition(b"#")
                if title.split() == [b"Atoms"]:
                    return _ATOM_STYLES.get(style.strip())
    except OSError:
        pass  # which MDAnalysis says
    return None


def _check_uncompressed(history: str | os.PathLike) -> None:
    """Raise for a compressed HISTORY, of which MDAnalysis would make no atoms."""
    with open(history, "rb") as file:
        _, line = file.readline(), file.readline()
    if line.split()[:1] == [b"3"]:
        raise UnsupportedError(
            f"{history}: MDAnalysis cannot take atoms from a compressed HISTORY; "
            "name a CONFIG of the same system as the topology"
        )


def _one_by_one(filename: object) -> list[Any]:
    """List the given trajectories, with patterns replaced by the files that match them."""
    while isinstance(filename, list | tuple) and len(filename) == 1:
        filename = filename[0]
    files: list[Any] = []
    for given in filename if isinstance(filename, list | tuple) else [filename]:
        name, format = _name_and_format(given, None)
        if not is_name(name) or os.fspath(name).startswith("imd://"):  # a stream of MDAnalysis's
            files.append(given)
        elif format is None:
            files.extend(files_named(name))
        else:
            files.extend((match, format) for match in files_named(name))
    return files


def _name_and_format(given: object, format: object) -> tuple[Any, Any]:
    """A trajectory and its format, where one is named with it, else that of all."""
    return given if isinstance(given, tuple) and len(given) == 2 else (given, format)
