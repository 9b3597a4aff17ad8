"""What a file holds beside positions, velocities and forces: observables, masses, charges."""

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from paceline.errors import DamagedFileError, PacelineError, UnsupportedError
from paceline.hdf5 import mdtraj
from paceline.hdf5.elements import Elements, Sampled, first_not_rising
from paceline.hdf5.file import Array, File, Group, damaged
from paceline.hdf5.options import LeadsOutError
from paceline.hdf5.particles import VECTORS, Particles
from paceline.hdf5.sandbox import apart
from paceline.hdf5.units import factor_of

#: Values of this many bytes are kept in memory for frames that are looked at one by one.
KEPT = 1 << 26


@dataclass(frozen=True)
class Series:
    """A quantity that a file holds, at the steps at which it was sampled.

    Attributes
    ----------
    name : str
        As it is called: "energy", "atoms/energy".
    path : str
        The file.
    dataset : str
        The dataset in it.
    shape : tuple of int
        Of all values.
    unit : str or None
        Of the values, as the file says.
    steps : numpy.ndarray of int64, shape (n_samples,), or None
        Steps of the simulation; None for what holds at all times.
    times : numpy.ndarray of float64, shape (n_samples,), or None
        ps; None where the file has none, or not in a unit that we know.
    external : bool
        Whether the file is followed into others.
    """

    name: str
    path: str
    dataset: str
    shape: tuple[int, ...]
    unit: str | None = None
    steps: np.ndarray | None = None
    times: np.ndarray | None = None
    external: bool = False

    @cached_property
    def values(self) -> Any:
        """All values as the file has them, one sample a row; read when first asked for.

        Returns
        -------
        numpy.ndarray
            In the unit that `unit` names, and in the order of the file; read-only, for frames show
            parts of it. Text is str.
        """
        values = apart(values_of, self.path, dataset=self.dataset, external=self.external)
        if isinstance(values, np.ndarray):
            values.flags.writeable = False
        return values

    def at(self, step: int, frame: int | None = None) -> Any:
        """The value at one step.

        Parameters
        ----------
        step : int
            Of the simulation.
        frame : int, optional
            Number of a frame of that step, for files whose steps do not rise.

        Returns
        -------
        object
            None where there is no sample of that step.
        """
        if self.steps is None:
            return self.values
        if frame is not None and frame < len(self.steps) and self.steps[frame] == step:
            return self.values[frame]
        if not self._rises:
            return None
        row = int(np.searchsorted(self.steps, step))
        if row < len(self.steps) and self.steps[row] == step:
            return self.values[row]
        return None

    @cached_property
    def _rises(self) -> bool:
        return self.steps is not None and first_not_rising(self.steps) is None

    def __repr__(self) -> str:
        samples = "fixed" if self.steps is None else f"{len(self.steps)} samples"
        return f"<Series {self.name}: {samples}, shape {self.shape}, unit {self.unit}>"


def values_of(path: str | os.PathLike, dataset: str, *, external: bool = False) -> Any:
    """All values of a dataset.

    Parameters
    ----------
    path : path-like
        An HDF5 file.
    dataset : str
        Its path in the file.
    external : bool
        Whether the file is followed into others.

    Returns
    -------
    numpy.ndarray, or str, int or float
        As the file has them. Text is str.

    Raises
    ------
    MissingDataError
        There is none of that name.
    DamagedFileError
        It cannot be read.
    """
    with File(path, external=external) as file:
        array = file.root[dataset]
        if not isinstance(array, Array):
            raise damaged(file.path, dataset, "a dataset", "a group")
        return array.read()


class SeriesByName(Mapping[str, Series]):
    """Quantities of a file by name; values are read when they are first asked for.

    Parameters
    ----------
    series : mapping of str to (Series or PacelineError)
        Those that there are. One that contradicts itself, or lies in another file, raises its
        error when it is looked up.
    """

    def __init__(self, series: Mapping[str, Series | PacelineError]):
        self._series = dict(series)

    def __getitem__(self, name: str) -> Series:
        found = self._series[name]
        if isinstance(found, PacelineError):
            raise found
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._series)

    def __len__(self) -> int:
        return len(self._series)

    def __repr__(self) -> str:
        return f"<{', '.join(self) or 'nothing'}>"

    def at(self, step: int, frame: int | None = None) -> dict[str, Any]:
        """What was sampled at one step: for MDAnalysis's `Timestep.data`.

        Parameters
        ----------
        step : int
            Of the simulation.
        frame : int, optional
            Number of the frame.

        Returns
        -------
        dict of str to object
            Without quantities of more than 64 MiB each, that are damaged, or lie in other files.
        """
        found = {}
        for name in self:
            # The frame itself is whole: who asks for a damaged quantity is told.
            with contextlib.suppress(DamagedFileError, LeadsOutError):
                one = self[name]
                if np.prod(one.shape, dtype=float) * 8 <= KEPT:
                    found[name] = one.at(step, frame)
        return {name: value for name, value in found.items() if value is not None}


def observables_of(path: str | os.PathLike, *, external: bool = False) -> SeriesByName:
    """Observables of an HDF5 trajectory: energies, temperatures and the like.

    Parameters
    ----------
    path : path-like
        An H5MD file, or one of MDTraj's.
    external : bool
        Whether the file is followed into others.

    Returns
    -------
    SeriesByName
        Named as in the file, groups before the name: "energy", "atoms/energy". Empty where the
        file has none.

    Raises
    ------
    DamagedFileError, OSError
        The file cannot be opened.
    """
    with File(path, external=external) as file:
        observables = file.root.group("observables")
        if observables is not None:
            return SeriesByName(_below(observables, Elements(file)))
        return SeriesByName(_of_mdtraj(file) if mdtraj.is_mdtraj(file) else {})


def _below(group: Group, elements: Elements) -> dict[str, Series | PacelineError]:
    """Elements in a group and in the groups within."""
    found: dict[str, Series | PacelineError] = {}
    seen, waiting = {group.identity}, [("", group)]
    while waiting:
        prefix, here = waiting.pop()
        for node in here.children():
            name = prefix + node.name.rpartition("/")[2]
            try:
                if not isinstance(node, Group) or "value" in node:
                    found[name] = _series(name, elements.of(node))
                elif node.identity not in seen:
                    seen.add(node.identity)
                    waiting.append((f"{name}/", node))
            except (DamagedFileError, LeadsOutError) as error:
                found[name] = error
    return dict(sorted(found.items()))


def _of_mdtraj(file: File) -> dict[str, Series]:
    arrays = {name: file.root.array(name) for name in mdtraj.OBSERVABLES}
    return {
        name: Series(
            name,
            file.path,
            array.name,
            array.shape,
            steps=np.arange(array.shape[0]),
            external=file.external,
        )
        for name, array in arrays.items()
        if array is not None and len(array.shape) == 1
    }


def _series(name: str, element: Sampled) -> Series:
    times = None
    if element.time_unit is not None and element.times is not None:
        with contextlib.suppress(UnsupportedError):
            times = (element.times * factor_of(element.time_unit, "time")).astype(np.float64)
    array = element.values
    return Series(
        name,
        array.file.path,
        array.name,
        array.shape,
        element.unit,
        element.steps,
        times,
        array.file.external,
    )


def properties_of(
    path: str | os.PathLike, *, group: str | None = None, external: bool = False
) -> SeriesByName:
    """What an H5MD file tells of its particles beside their motion: mass, charge, species, id.

    Parameters
    ----------
    path : path-like
        An H5MD file.
    group : str, optional
        Name of the group of particles, where there are several.
    external : bool
        Whether the file is followed into others.

    Returns
    -------
    SeriesByName
        All elements of the group but the box, positions, velocities and forces; one value of each
        particle, in the order of the file. Of other files none.

    Raises
    ------
    UnsupportedError, MissingDataError
        There are several groups and none is named, or not the one that is, or nothing moves in it.
    DamagedFileError, OSError
        The file cannot be opened.
    """
    with File(path, external=external) as file:
        if "particles" not in file.root:
            return SeriesByName({})
        particles = Particles(file, group)
        found = _below(particles.group, particles.elements)
    beside = ("box/", *(f"{name}/" for name in VECTORS))
    return SeriesByName(
        {
            name: one
            for name, one in found.items()
            if name not in VECTORS and not name.startswith(beside)
        }
    )
