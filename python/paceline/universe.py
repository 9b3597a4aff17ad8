"""MDAnalysis Universe whose trajectory is read by paceline."""

import errno
import functools
import itertools
import os
import re
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import MDAnalysis
import numpy as np
from MDAnalysis.core._get_readers import get_parser_for, get_reader_for
from MDAnalysis.core.groups import AtomGroup

from paceline import _core
from paceline._util.files import check_no_url, is_address, is_stream
from paceline._util.option_values_and_selections import MARTINI_WATERS
from paceline.contract.loaded_atoms import LoadedAtoms
from paceline.contract.system_interface import attribute_of
from paceline.errors import (
    AtomCountError,
    DamagedFileError,
    PacelineError,
    SelectionError,
    UnsupportedError,
    kept_warnings,
    warn,
    with_hint,
    with_script_advice,
)
from paceline.hdf5.open_hdf5_trajectory import EXTENSIONS, is_hdf5
from paceline.mdanalysis import topology_cache
from paceline.mdanalysis.open_on_all_ranks import load_trajectory, open_universe
from paceline.mdanalysis.reader import Reader, is_name, opens_with_paceline
from paceline.trajectory.addresses import local_copy
from paceline.trajectory.arrays import check_positions, refuse_numbers
from paceline.trajectory.open import cache_folder, files_named, is_decoded, names_in, with_copies
from paceline.transform.compare_atom_names import order_in_file
from paceline.transform.known_and_guessed_bonds import add_guessed_bonds

#: Selections of parts of a system that are often saved on their own.
_USUAL_PARTS = (
    "protein",
    f"not resname SOL WAT HOH {MARTINI_WATERS}",
    f"not (water or resname {MARTINI_WATERS} NA CL K MG CA ZN NA+ CL- K+ MG2+ CA2+ SOD CLA POT CAL "
    "ION)",
)


#: Filename extensions that messages name as examples.
_USUAL_ENDINGS = {
    "topology": ".tpr, .psf, .prmtop, .data, .gro or .pdb",
    "trajectory": ".xtc, .trr, .dcd, .nc, .dump or .h5",
}


class Universe(MDAnalysis.Universe):  # numpydoc ignore=PR02
    """An `MDAnalysis.Universe` whose trajectory paceline reads where it can.

    XTC, TRR, DCD, Amber NetCDF, DL_POLY HISTORY and CONFIG, LAMMPS text dumps, and HDF5 (H5MD,
    MDTraj, plain datasets) are recognised from their content. MDAnalysis's own readers read all
    other files, as in an ordinary Universe. Arguments are those of MDAnalysis, and the additional
    ones below.

    Parameters
    ----------
    topology : path-like or MDAnalysis.core.topology.Topology
        Topology of the system. HDF5 files of GROMACS and MDTraj, which describe their atoms, and
        DL_POLY's files are topology and trajectory in one; no second name is needed.
    *coordinates : path-like or numpy.ndarray of shape (n_frames, n_atoms, 3)
        Trajectories in order: names, a list of names, or a pattern such as "md.part*.xtc", whose
        files are sorted in natural order. Alternatively, the address of a running simulation, such
        as "imd://localhost:8888": `paceline.live` analyses its frames, and writes them to the file
        `tee=`. Or an array of positions, Å, with `dimensions=` and `dt=` as in MDAnalysis's
        `MemoryReader`.
    **kwargs
        As in `MDAnalysis.Universe`, and the following. `continuous=True` orders files of restarts
        by time, and leaves out frames that a later file repeats. `guess_bonds=True` adds missing
        bonds at once: bonds of standard residues by atom names, and other bonds by distance in the
        first frame. (MDAnalysis guesses all bonds by distance, also in water and between ions, and
        adds angles and dihedrals.) Without it, selections by `bonded` or `fragment` in analyses add
        the bonds of standard residues, marked as guessed, to any Universe that lacks them.
        For HDF5 files, `group` selects one of several particles groups; `units`, such as
        {"length": "nm", "time": "ps"} or "nm, ps", sets units that the file does not state;
        `dataset` names the positions in a file without a known convention.
        For LAMMPS dumps and LAMMPS DCD files, `units` is the unit style of the simulation, such as
        "real". `atoms`, a selection text or indices, limits decoding to these atoms, which saves
        time and memory; any use of other atoms raises an error. `cache` is a folder on the local
        disk of each node, such as "/local/scratch" or "$TMPDIR". It stores the blocks of the files
        that analyses read on this node, for later runs; `cache_size`, such as "50GB", limits its
        size on each node (by default half of the free space). `comm`, an mpi4py communicator,
        makes all its ranks open the Universe together: rank 0 reads the files, and sends topology,
        frame index and first frame to the others. If ranks name different files, or one rank fails,
        all ranks raise an error.

    Attributes
    ----------
    t_init_top : float
        Time to parse the topology and to create its atoms, s.
    opening_warnings : list of str
        Warnings that were issued when the files were opened.

    Raises
    ------
    AtomCountError
        A trajectory's number of atoms differs from the topology's.
    DamagedFileError
        The topology is empty.
    FileNotFoundError
        A file is missing, or no file matches a pattern.
    SelectionError
        `atoms` selects no atoms, an atom twice, or an atom that the topology lacks.
    ValueError
        An array has another shape, or contains no real numbers.
    UnsupportedError
        The format of a file is not recognised, the topology is a compressed HISTORY, a URL is not
        supported, or `atoms` is used with a file that MDAnalysis reads.

    Examples
    --------
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import PSF, DCD
    >>> paceline.Universe(PSF, DCD).trajectory.n_frames
    98
    """

    def __init__(self, topology: object = None, *coordinates: object, **kwargs: object):
        open_universe(self, self._open, (topology, *coordinates), kwargs)
        #: Arguments, and the trajectory that they opened; results record them.
        self.opened_with = (topology, *coordinates), dict(kwargs), self._trajectory

    def _open(self, topology: Any = None, *coordinates: Any, **kwargs: Any) -> None:
        """Parse the topology, and open the trajectory."""
        begun = time.perf_counter()
        self.opening_warnings: list[str] = []
        named = topology
        if is_name(topology):
            if not _is_hdf5_object(topology):
                topology = local_copy(topology, cache_folder())
            _check_topology(os.fspath(topology))
            if topology is not named and not coordinates and is_decoded(named):
                # A structure file at an address is also the trajectory if no other one is given.
                coordinates = (named,)
        self._topology_file = os.fspath(topology) if is_name(topology) else None
        if style := _atom_style_of_lammps(topology, kwargs):
            kwargs["atom_style"] = style
        name, given = None, kwargs
        if _is_hdf5_topology(topology, kwargs.get("topology_format")):
            # Imported here, so that the HDF5 library is loaded only for an HDF5 topology.
            from paceline.hdf5.open_any_convention import read_topology

            name = os.fspath(topology)
            coordinates = coordinates or (name,)
            options = {key: kwargs[key] for key in ("group", "external") if key in kwargs}
            topology = read_topology(name, **options)
        elif kind := _dl_poly_format(topology, kwargs.get("topology_format")):
            # MDAnalysis does not recognise these files by their names.
            kwargs["topology_format"] = kind
            coordinates = coordinates or (topology,)
        elif found := topology_cache.resolve(topology, coordinates, kwargs):
            name = topology
            topology, coordinates, kwargs = found
        # MDAnalysis 2 guesses these attributes by default, and 3.0 guesses none.
        kwargs.setdefault("to_guess", ("types", "masses"))
        guess_bonds = kwargs.pop("guess_bonds", False)
        of_bonds = {"radii": "vdwradii", "factor": "fudge_factor"} if guess_bonds else {}
        how = {name: kwargs.pop(key) for name, key in of_bonds.items() if key in kwargs}
        try:
            super().__init__(topology, *coordinates, **kwargs)
        except ValueError:
            if is_name(topology) and not kwargs.get("topology_format"):
                _check_format(named, get_parser_for, "topology")
            raise
        if bases := attribute_of(self, "_class_bases"):
            # Methods of the Universe's own class of groups take precedence over those of AtomGroup.
            bases[AtomGroup].write = _write
        if "atoms" in kwargs and self._trajectory is None:
            raise UnsupportedError("atoms= selects atoms of a trajectory, but none is given")
        if guess_bonds:
            add_guessed_bonds(self, guess=True, **how)
        if name is not None:
            self.filename = name
            self._kwargs["format"] = given.get("format")
            self._kwargs["all_coordinates"] = given.get("all_coordinates", False)
        if is_name(named) and is_address(named):
            self.filename = os.fspath(named)
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
        names = list(filename) if isinstance(filename, list | tuple) else [filename]
        if any(map(is_stream, names)):
            # Imported here, because few scripts read a running simulation.
            from paceline.mdanalysis.stream_reader import StreamReader

            if len(names) > 1:
                raise UnsupportedError(f"{names[0]}: a stream cannot continue another trajectory")
            filename, self.opening_warnings = names[0], []
            with kept_warnings(self.opening_warnings):
                super().load_new(filename, StreamReader, *args, **kwargs)
            return
        files = with_copies(_expand_patterns(filename))
        for file in files:
            if file is not None and not isinstance(file, tuple):
                refuse_numbers(file)
            if isinstance(file, np.ndarray):
                check_positions(file, str(kwargs.get("order", "fac")))
        ours = [opens_with_paceline(*_name_and_format(file, format)) for file in files]
        if (chosen := kwargs.pop("atoms", None)) is not None:
            kwargs |= self._options_of(chosen, all(ours))
        if all(ours):
            filename = [_name_and_format(file, format)[0] for file in files]
            format = Reader
        elif len(files) == 1:
            filename = files[0]
        else:
            # MDAnalysis's chain reader accepts tuples of a file name and a reader class.
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
        except (TypeError, ValueError) as error:
            # MDAnalysis's chain reader raises a TypeError without the reason.
            reason = error.__context__ if isinstance(error, TypeError) else error
            if isinstance(reason, AtomCountError):
                with_hint(reason, self._advice(reason.found))
                if reason.found > len(self.atoms):
                    sub = "with sub= the indices that the topology's atoms have in the trajectory"
                    with_script_advice(reason, f", or name {sub}")
            if isinstance(reason, PacelineError):
                raise reason from None
            for file, is_one in zip(files, ours, strict=True):
                if not (is_one or format):
                    _check_format(file, get_reader_for, "trajectory")
            raise

    def _options_of(self, chosen: object, possible: bool) -> dict[str, Any]:
        """Return the reader's options for loading only some atoms; empty for all atoms."""
        shown = repr(chosen) if isinstance(chosen, str) else "…"
        call = f"Universe(…, atoms={shown})"
        if not possible:
            raise UnsupportedError(f"{call}: MDAnalysis reads this trajectory, and loads all atoms")
        try:
            found = self.select_atoms(chosen) if isinstance(chosen, str) else chosen
        except AttributeError as error:
            raise SelectionError(
                f"{call}: {error}; the topology alone selects atoms, before a frame is read"
            ) from None
        indices = attribute_of(found, "ix")
        loaded = LoadedAtoms.of(found if indices is None else indices, len(self.atoms), call)
        if len(loaded.indices) == len(self.atoms):
            return {}
        return {"sub": loaded.indices, "chosen_by": call}

    def _warn_of_other_names(self, files: list[object]) -> None:
        """Warn of the first file whose atom names differ from the topology's."""
        for file in files:
            name, _ = _name_and_format(file, None)
            if not is_name(name) or os.fspath(name) == self._topology_file:
                continue
            known = names_in(os.fspath(name))
            if known and (found := order_in_file(self.atoms, known)) is not None:
                chain = attribute_of(self._trajectory, "chain")
                with kept_warnings([] if chain is None else chain.warnings):
                    warn(f"{name}: {found[0]}")
                return

    def guess_TopologyAttrs(self, *args: object, **kwargs: object) -> None:
        """Guess attributes; see `MDAnalysis.Universe.guess_TopologyAttrs`."""
        theirs = super(Universe, type(self)).guess_TopologyAttrs
        topology_cache.guess(theirs, self, *args, **kwargs)

    def _repr_html_(self) -> str:
        """Return the HTML that notebooks show: a table of sizes, files, times and cell."""
        from paceline.performance.html_elements import html_table, notebook_page

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
        """Return advice for a trajectory whose number of atoms `n_atoms` is not the topology's."""
        for selection in _USUAL_PARTS:
            try:
                part = self.select_atoms(selection)
            except (MDAnalysis.SelectionError, AttributeError):
                continue
            if len(part) == n_atoms:
                return (
                    f'the selection "{selection}" of the topology has {n_atoms}: '
                    "save these atoms as a topology, or load a trajectory of all atoms"
                )
        return "load the topology that the trajectory was written with"


@functools.wraps(AtomGroup.write)
def _write(group: AtomGroup, filename: object = None, *args: object, **kwargs: object) -> None:
    """Raise an error for an address instead of a file; otherwise write as `AtomGroup.write`."""
    if is_name(filename):
        check_no_url(filename)
    AtomGroup.write(group, filename, *args, **kwargs)


def _is_hdf5_topology(topology: object, format: object) -> bool:
    """Return True if a topology is an HDF5 file, which MDAnalysis cannot parse."""
    if format is not None or not is_name(topology):
        return False
    return _is_hdf5_object(topology) or (os.path.isfile(topology) and is_hdf5(topology))


def _is_hdf5_object(topology: str | os.PathLike) -> bool:
    """Return True if a topology is at an address, and has the extension and content of HDF5."""
    ending = os.path.splitext(os.fspath(topology))[1]
    return is_address(topology) and ending[1:] in EXTENSIONS and is_hdf5(topology)


def _check_topology(path: str) -> None:
    """Raise an error for an empty file, and for mmCIF that the installed packages cannot read."""
    if os.path.isfile(path) and os.path.getsize(path) == 0:
        raise DamagedFileError(f"{path}: expected a topology, found an empty file")
    if not re.search(r"\.(mm)?cif(\.gz|\.bz2)?$", path, re.IGNORECASE):
        return
    lacks = [] if "CIF" in MDAnalysis._PARSERS else [f"MDAnalysis is {MDAnalysis.__version__}"]
    lacks += [] if find_spec("gemmi") else ["gemmi is not installed"]
    if lacks:
        raise UnsupportedError(
            f"{path}: mmCIF files need MDAnalysis 2.11 or newer and the package gemmi, and "
            f"{' and '.join(lacks)}: pip install 'paceline[mmcif]', or use a PDB file"
        )


def _check_format(given: object, find: Callable[[str], object], kind: str) -> None:
    """Raise a short error for a missing file or an unknown format, instead of MDAnalysis's."""
    if not is_name(given):
        return
    name = os.fspath(given)
    try:
        find(name)
        return
    except (ValueError, TypeError):
        pass
    if not (is_address(name) or os.path.exists(name)):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name) from None
    if os.path.isdir(name):
        raise UnsupportedError(f"{name} is a folder: expected a file, the {kind}") from None
    message = UnsupportedError(
        f"{name}: paceline and MDAnalysis know no {kind} of this name and content; give the file "
        f"the extension of its format, such as {_USUAL_ENDINGS[kind]}"
    )
    keyword = "topology_format='PSF'" if kind == "topology" else "format='XTC'"
    raise with_script_advice(message, f", or set {keyword}, for example") from None


def _dl_poly_format(topology: object, format: object) -> str | None:
    """Return MDAnalysis's format name for a topology that is a DL_POLY file; otherwise None."""
    if format is not None or not is_name(topology) or not os.path.isfile(topology):
        return None
    found = _core.detect_format(os.fspath(topology))
    if found == "HISTORY":
        _check_uncompressed(topology)
    return found if found in ("HISTORY", "CONFIG") else None


#: Maximum number of lines before the atoms in a LAMMPS data file.
MOST_HEADER_LINES = 100_000
#: Columns of atoms in LAMMPS data files, by atom style. Without this information, MDAnalysis
#: assumes the columns of "molecular" or "full", and reads, for example, an atom type as a residue
#: number.
_ATOM_STYLES = {
    b"atomic": "id type x y z",
    b"charge": "id type charge x y z",
    b"dipole": "id type charge x y z",
    b"sphere": "id type diameter density x y z",
}


def _atom_style_of_lammps(topology: object, options: dict[str, object]) -> str | None:
    """Return the columns of atoms in a LAMMPS data file; None if MDAnalysis finds them itself."""
    if "atom_style" in options or not is_name(topology):
        return None
    ending = os.path.splitext(os.fspath(topology))[1][1:]
    if str(options.get("topology_format") or ending).upper() != "DATA":
        return None
    try:
        with open(topology, "rb") as file:
            # The Atoms section follows after some lines for each atom type.
            for line in itertools.islice(file, MOST_HEADER_LINES):
                title, _, style = line.partition(b"#")
                if title.split() == [b"Atoms"]:
                    return _ATOM_STYLES.get(style.strip())
    except OSError:
        pass  # MDAnalysis reports the error
    return None


def _check_uncompressed(history: str | os.PathLike) -> None:
    """Raise for a compressed HISTORY, from which MDAnalysis cannot create atoms."""
    with open(history, "rb") as file:
        _, line = file.readline(), file.readline()
    if line.split()[:1] == [b"3"]:
        raise UnsupportedError(
            f"{history}: MDAnalysis cannot take atoms from a compressed HISTORY; "
            "name a CONFIG of the same system as the topology"
        )


def _expand_patterns(filename: object) -> list[Any]:
    """Return the given trajectories as a list, with matching files in the place of patterns."""
    while isinstance(filename, list | tuple) and len(filename) == 1:
        filename = filename[0]
    files: list[object] = []
    for given in filename if isinstance(filename, list | tuple) else [filename]:
        name, format = _name_and_format(given, None)
        if not is_name(name) or os.fspath(name).startswith("imd://"):  # not the name of a file
            files.append(given)
        elif format is None:
            files.extend(files_named(name))
        else:
            files.extend((match, format) for match in files_named(name))
    return files


def _name_and_format(given: object, format: object) -> tuple[Any, Any]:
    """Return a trajectory, and its format: the one given as (trajectory, format), or `format`."""
    return given if isinstance(given, tuple) and len(given) == 2 else (given, format)
