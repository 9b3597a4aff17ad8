"""Observables of a file, and particle properties such as mass and charge."""

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from paceline.errors import DamagedFileError, ExternalFileError, PacelineError, UnsupportedError
from paceline.hdf5 import mdtraj
from paceline.hdf5.elements import Elements, SampledElement, first_not_rising
from paceline.hdf5.file import Array, File, Group, damaged
from paceline.hdf5.h5md_particles import VECTORS, Particles
from paceline.hdf5.sandbox import run_in_sandbox
from paceline.hdf5.units import factor_of

#: Maximum size of a quantity whose values are attached to frames, bytes.
_MAX_KEPT = 1 << 26


@dataclass(frozen=True)
class Quantity:
    """Quantity in a file, with the steps at which it was sampled."""

    #: Name, such as "energy" or "atoms/energy".
    name: str
    path: str
    dataset: str
    #: Shape of the dataset; the first axis counts samples, unless `steps` is None.
    shape: tuple[int, ...]
    #: Unit as stated in the file.
    unit: str | None = None
    #: Steps, int64, (n_samples,); None for a time-independent quantity.
    steps: np.ndarray | None = None
    #: Times, ps, float64, (n_samples,); None without times, or with times in an unknown unit.
    times: np.ndarray | None = None
    #: True if references to other files are followed.
    external: bool = False

    @cached_property
    def values(self) -> Any:
        """All values, one sample per row, in the unit and order of the file; read on first use.

        Text is converted to str. Arrays are read-only, because frames contain views of them.
        """
        values = run_in_sandbox(
            read_values, self.path, dataset=self.dataset, external=self.external
        )
        if isinstance(values, np.ndarray):
            values.flags.writeable = False
        return values

    def at(self, step: int, frame: int | None = None) -> Any:
        """Return the value at one simulation step; None if the quantity was not sampled at it.

        `frame` is the number of a frame with this step; it is needed if steps do not increase.
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
        return f"<Quantity {self.name}: {samples}, shape {self.shape}, unit {self.unit}>"


def read_values(path: str | os.PathLike, dataset: str, *, external: bool = False) -> Any:
    """Read all values of a dataset in the dtype of the file; text becomes str."""
    with File(path, external=external) as file:
        array = file.root[dataset]
        if not isinstance(array, Array):
            raise damaged(file.path, dataset, "a dataset", "a group")
        return array.read()


class Quantities(Mapping[str, Quantity]):
    """Quantities of a file by name; values are read on first use.

    Looking up a quantity raises its error if the quantity is inconsistent or in another file.
    """

    def __init__(self, found: Mapping[str, Quantity | PacelineError]):
        self._found = dict(found)

    def __getitem__(self, name: str) -> Quantity:
        found = self._found[name]
        if isinstance(found, PacelineError):
            raise found
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def __repr__(self) -> str:
        return f"<{', '.join(self) or 'nothing'}>"

    def at(self, step: int, frame: int | None = None) -> dict[str, Any]:
        """Return values at one simulation step, for MDAnalysis's `Timestep.data`.

        Quantities that exceed 64 MiB, are damaged or are in other files are left out.
        """
        found = {}
        for name in self:
            # Leave out a damaged quantity, so that the frame stays readable.
            with contextlib.suppress(DamagedFileError, ExternalFileError):
                one = self[name]
                if np.prod(one.shape, dtype=float) * 8 <= _MAX_KEPT:
                    found[name] = one.at(step, frame)
        return {name: value for name, value in found.items() if value is not None}


def find_observables(path: str | os.PathLike, *, external: bool = False) -> Quantities:
    """Find the observables, such as energies, of an H5MD or MDTraj file."""
    with File(path, external=external) as file:
        observables = file.root.group("observables")
        if observables is not None:
            return Quantities(_find_quantities(observables, Elements(file)))
        return Quantities(_mdtraj_observables(file) if mdtraj.is_mdtraj(file) else {})


def _find_quantities(group: Group, elements: Elements) -> dict[str, Quantity | PacelineError]:
    """Find elements in a group and its subgroups, by name; an invalid one is an error object."""
    found: dict[str, Quantity | PacelineError] = {}
    seen, waiting = {group.identity}, [("", group)]
    while waiting:
        prefix, here = waiting.pop()
        for node in here.children():
            name = prefix + node.name.rpartition("/")[2]
            try:
                if not isinstance(node, Group) or "value" in node:
                    found[name] = _make_quantity(name, elements.of(node))
                elif node.identity not in seen:
                    seen.add(node.identity)
                    waiting.append((f"{name}/", node))
            except (DamagedFileError, ExternalFileError) as error:
                found[name] = error
    return dict(sorted(found.items()))


def _mdtraj_observables(file: File) -> dict[str, Quantity]:
    arrays = {name: file.root.array(name) for name in mdtraj.OBSERVABLES}
    return {
        name: Quantity(
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


def _make_quantity(name: str, element: SampledElement) -> Quantity:
    times = None
    if element.time_unit is not None and element.times is not None:
        with contextlib.suppress(UnsupportedError):
            times = (element.times * factor_of(element.time_unit, "time")).astype(np.float64)
    array = element.values
    return Quantity(
        name,
        array.file.path,
        array.name,
        array.shape,
        element.unit,
        element.steps,
        times,
        array.file.external,
    )


def find_properties(
    path: str | os.PathLike, *, group: str | None = None, external: bool = False
) -> Quantities:
    """Find the properties of particles, such as mass, charge, species and id.

    Values are in the order of particles in the file. Only H5MD files contain properties.
    """
    with File(path, external=external) as file:
        if "particles" not in file.root:
            return Quantities({})
        particles = Particles(file, group)
        found = _find_quantities(particles.group, particles.elements)
    in_frames = ("box/", *(f"{name}/" for name in VECTORS))
    return Quantities(
        {
            name: one
            for name, one in found.items()
            if name not in VECTORS and not name.startswith(in_frames)
        }
    )
