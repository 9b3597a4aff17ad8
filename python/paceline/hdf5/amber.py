"""Amber's conventions in NetCDF-4 files, whose container is HDF5.

The variables are those of NetCDF-3; each variable is a dataset of the root group. Each dimension is
also a dataset, whose length is that of the dimension. cpptraj can store integers instead of floats:
`compressedpos` instead of `coordinates`, `compressedvel` and `compressedfrc`. The integers are
divided by a number, which is the attribute `icompressfac` or, in cpptraj's first version, a power
of ten with the exponent in the variable `compressedpow`.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from paceline import _core
from paceline.errors import PacelineError, UnsupportedError
from paceline.hdf5.chunk_index import ABSENT, COUNTED, Cells, ChunkIndex, Element
from paceline.hdf5.dataset_description import describe_dataset
from paceline.hdf5.file import Array, File, Group, damaged


@dataclass(frozen=True)
class AmberVariable:
    """Name and unit of one of Amber's variables."""

    #: Name of the variable if its values are stored as floats.
    name: str
    #: Amber's unit, assumed if the variable has no attribute `units`.
    unit: str
    #: Name of the variable if cpptraj stored its values as integers; "" if that is impossible.
    compressed: str = ""


FIELDS = {
    "positions": AmberVariable("coordinates", "angstrom", "compressedpos"),
    "velocities": AmberVariable("velocities", "angstrom/picosecond", "compressedvel"),
    "forces": AmberVariable("forces", "kilocalorie/mole/angstrom", "compressedfrc"),
}
TIME = AmberVariable("time", "picosecond")
LENGTHS = AmberVariable("cell_lengths", "angstrom")
ANGLES = AmberVariable("cell_angles", "degree")

#: Variable that contains the exponent of ten in files of cpptraj's first version.
_POWER = "compressedpow"
#: Maximum exponent of ten for integers of 32 bits.
_LARGEST_POWER = 9


def is_netcdf4(attributes: Mapping[str, object]) -> bool:
    """True if attributes of the root group are those of a NetCDF-4 file.

    >>> is_netcdf4({"Conventions": "AMBER", "ConventionVersion": "1.0"})
    True
    """
    return "Conventions" in attributes or "_NCProperties" in attributes


def read_chunk_index(file: File) -> ChunkIndex:
    """Index a NetCDF-4 file; values are equal to those read from the same data in NetCDF-3."""
    return _Reading(file).chunk_index()


class _Reading:
    """Reader of one file in Amber's convention."""

    def __init__(self, file: File):
        self.file = file
        self.root: Group = file.root
        self._notes: list[str] = []
        self.attributes = file.root.attrs
        self.is_restart = self._find_conventions() == "AMBERRESTART"
        self.n_atoms = self._length("atom")
        if self.n_atoms < 1:
            raise self._unsupported(
                f'expected a dimension "atom" of at least 1, found {self.n_atoms}'
            )
        if (spatial := self._length("spatial")) != 3:
            raise self._unsupported(f'expected a dimension "spatial" of 3, found {spatial}')

    def chunk_index(self) -> ChunkIndex:
        arrays = self._arrays()
        if not arrays:
            raise self._unsupported(
                'expected the variable "coordinates", "velocities" or "forces", found none of them'
            )
        n_frames = 1 if self.is_restart else max(array.shape[0] for array in arrays.values())
        if n_frames == 0:
            raise self._unsupported("expected at least one complete frame, found none")
        times, time_doubt = self._times(n_frames)
        return ChunkIndex(
            format="NetCDF-4",
            n_frames=n_frames,
            n_atoms=self.n_atoms,
            elements={name: self._element(name, array, n_frames) for name, array in arrays.items()},
            times=times,
            steps=np.arange(n_frames, dtype=np.int64),
            cells=Cells(self._dimensions(n_frames)),
            facts=self._facts(),
            notes=self._notes,
            time_doubt=time_doubt,
        )

    def _times(self, n_frames: int) -> tuple[np.ndarray, str | None]:
        """Return the times, ps, and None; if none can be read, frame numbers and the reason."""
        why = "the file contains no times"
        try:
            times = self._values(TIME, n_frames, ())
            if times is not None:
                return times, None
        except UnsupportedError as error:
            self._leave_out(TIME, error)
            why = "the times of the file cannot be read"
        return np.arange(n_frames, dtype=np.float64), f"{why}; its {COUNTED}"

    def _arrays(self) -> dict[str, Array]:
        """Find the variables of atoms, in the order of `FIELDS`.

        An unreadable variable is left out if an earlier one is readable. Otherwise
        `UnsupportedError` is raised.
        """
        found: dict[str, Array] = {}
        for field, variable in FIELDS.items():
            try:
                array = self._variable(variable)
                if array is not None:
                    self._coding(variable, array)
                    found[field] = array
            except UnsupportedError as error:
                if not found:
                    raise
                self._leave_out(variable, error)
        return found

    def _leave_out(self, variable: AmberVariable, error: UnsupportedError) -> None:
        """Add a note that a variable cannot be read, with the reason."""
        why = str(error).removeprefix(f"{self.file.path}: ")
        self._notes.append(f'"{variable.name}" cannot be read, and is left out: {why}')

    def _find_conventions(self) -> str:
        conventions = self.attributes.get("Conventions")
        names = re.split("[, ]", conventions) if isinstance(conventions, str) else ()
        for name in names:
            if name in ("AMBER", "AMBERRESTART"):
                return name
        found = "none" if conventions is None else f'"{conventions}"'
        raise self._unsupported(
            "expected a NetCDF file whose attribute Conventions names AMBER or AMBERRESTART, "
            f"found {found}"
        )

    def _length(self, dimension: str) -> int:
        array = self.root.array(dimension)
        if array is None or not array.shape:
            raise self._unsupported(f'expected a dimension "{dimension}", found none')
        return array.shape[0]

    def _variable(self, variable: AmberVariable) -> Array | None:
        """Find a variable; None if the file lacks it. Raise an error for an unsupported shape."""
        for name in filter(None, (variable.name, variable.compressed)):
            array = self.root.array(name)
            # Skip a variable without frames: its shape includes only the frames that were written.
            if array is not None and (self.is_restart or array.shape[:1] != (0,)):
                break
        else:
            return None
        inner = (self.n_atoms, 3) if variable in FIELDS.values() else (3,)
        self._check_shape(array, inner if variable is not TIME else ())
        return array

    def _factor(self, variable: AmberVariable, array: Array) -> float:
        """Return the factor that converts the values of a variable to paceline's unit."""
        stated = array.attrs.get("units", variable.unit)
        factor = _core.amber_factor(str(stated).rstrip("\0 "), variable.unit)
        if factor is None:
            raise self._unsupported(
                f'expected "{array.name[1:]}" in units of {variable.unit}, found "{stated}"'
            )
        return factor

    def _check_shape(self, array: Array, inner: tuple[int, ...]) -> None:
        if self.is_restart:
            # In a restart file, the time may have a dimension of length 1.
            fits = array.shape == inner or (inner == () and array.shape == (1,))
        else:
            fits = array.shape[1:] == inner and len(array.shape) > 0
        if not fits:
            expected = [*([] if self.is_restart else ["frame"]), *map(str, inner)]
            raise self._unsupported(
                f'expected the dimensions ({", ".join(expected)}) of "{array.name[1:]}", '
                f"found ({', '.join(map(str, array.shape))})"
            )

    def _element(self, field: str, array: Array, n_frames: int) -> Element:
        factor, scale, divisor = self._coding(FIELDS[field], array)
        rows = None
        n_rows = 1 if self.is_restart else array.shape[0]
        if n_rows < n_frames:
            rows = np.arange(n_frames, dtype=np.int64)
            rows[n_rows:] = ABSENT
        return Element(
            describe_dataset(array, fixed=self.is_restart),
            rows=rows,
            factor=factor,
            scale=scale,
            divisor=divisor,
        )

    def _coding(self, variable: AmberVariable, array: Array) -> tuple[float, float, float]:
        """Return factor, scale and divisor that convert a variable's numbers, as in `Element`."""
        divisor = 1.0
        if array.name[1:] == variable.compressed:
            self._check_kind(array, "iu", "integers")
            divisor = self._divisor(array)
        else:
            self._check_kind(array, "f", "float or double")
        return self._factor(variable, array), float(self._scale(array)), divisor

    def _check_kind(self, array: Array, kinds: str, words: str) -> None:
        if array.dtype.kind not in kinds:
            raise self._unsupported(
                f'expected "{array.name[1:]}" as {words}, found {array.dtype.name}'
            )

    def _scale(self, array: Array) -> np.floating:
        """Return the attribute `scale_factor`; 1 if it is missing or, as in MDAnalysis, near 1."""
        number = _one_number(array.attrs.get("scale_factor", np.float32(1)))
        if number is None:
            raise self._unsupported(
                "expected one finite float or double as scale_factor of "
                f'"{array.name[1:]}", found another'
            )
        return np.float32(1) if math.isclose(number, 1) else number

    def _divisor(self, array: Array) -> float:
        """Return the number by which stored integers are divided."""
        factor = array.attrs.get("icompressfac")
        if factor is None and (power := self.root.array(_POWER)) is not None:
            exponent = _one_number(power.read(), kinds="iu")
            if exponent is not None and 0 <= exponent <= _LARGEST_POWER:
                factor = 10.0 ** int(exponent)
        number = _one_number(factor, kinds="fiu")
        if number is None or number <= 0:
            raise self._unsupported(
                f'expected "{array.name[1:]}" to have one positive number as icompressfac, '
                f"the divisor of its integers, found {'none' if number is None else number}"
            )
        return float(number)

    def _values(self, variable: AmberVariable, n_frames: int, shape: tuple) -> np.ndarray | None:
        """Read a variable of all frames, in paceline's unit; None if the file lacks it."""
        array = self._variable(variable)
        if array is None:
            return None
        self._check_kind(array, "f", "float or double")
        if not self.is_restart and array.shape[0] != n_frames:
            raise damaged(
                self.file.path, array.name, f"{n_frames} rows, one a frame", str(array.shape[0])
            )
        # As in MDAnalysis, the product has NumPy's common dtype of the values and the scale factor.
        values = np.asarray(array.read()).reshape(n_frames, *shape) * self._scale(array)
        factor = self._factor(variable, array)
        if variable is TIME:
            return values.astype(np.float64) * factor
        with np.errstate(over="ignore"):
            return values.astype(np.float32) * np.float32(factor)

    def _dimensions(self, n_frames: int) -> np.ndarray:
        lengths = self._values(LENGTHS, n_frames, (3,))
        angles = self._values(ANGLES, n_frames, (3,))
        if (lengths is None) != (angles is None):
            raise self._unsupported(
                'expected both "cell_lengths" and "cell_angles", found one of them'
            )
        if lengths is None or angles is None:
            return np.zeros((1, 6), dtype=np.float32)
        # If all lengths are 0, the angles do not define a cell.
        angles[(lengths == 0).all(axis=1)] = 0
        return np.hstack([lengths, angles])

    def _facts(self) -> dict[str, object]:
        names = ("Conventions", "title", "program", "programVersion")
        texts = {name: self.attributes.get(name) for name in names}
        program = " ".join(filter(None, (texts["program"], texts["programVersion"])))
        facts = {"conventions": texts["Conventions"], "program": program, "title": texts["title"]}
        return {name: text for name, text in facts.items() if text}

    def _unsupported(self, what: str) -> PacelineError:
        return UnsupportedError(f"{self.file.path}: {what}")


def _one_number(value: object, kinds: str = "f") -> Any:
    """Return a single finite number as a NumPy scalar; None for any other value.

    `kinds` contains the NumPy kinds of dtype that are allowed.
    """
    numbers = np.asarray(value)
    if numbers.size != 1 or numbers.dtype.kind not in kinds or not np.isfinite(numbers).all():
        return None
    return numbers.ravel()[0]
