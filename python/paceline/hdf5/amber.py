"""Amber's conventions in NetCDF-4, which is HDF5 within.

The variables are those of NetCDF-3, each a dataset of the root group, and each dimension is a
dataset too, as long as it. cpptraj can store numbers as integers: `compressedpos` in place of
`coordinates`, `compressedvel` and `compressedfrc`; they are multiplied by a power of ten, which
is the attribute `icompressfac`, or, in the first version, whose exponent is the variable
`compressedpow`.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from paceline.errors import PacelineError, UnsupportedError
from paceline.hdf5.chunk_index import ABSENT, COUNTED, Catalogue, Element
from paceline.hdf5.dataset import dataset_of
from paceline.hdf5.file import Array, File, Group, damaged


@dataclass(frozen=True)
class Convention:
    """What Amber calls a variable, and the units in which we read it.

    Attributes
    ----------
    name : str
        Of its floats.
    units : tuple of str
        Those it may have; a variable without any has the first ones.
    compressed : str
        Its name where cpptraj stored integers; empty where it never does.
    factor : float
        What makes our units of Amber's.
    """

    name: str
    units: tuple[str, ...]
    compressed: str = ""
    factor: float = 1.0


FIELDS = {
    "positions": Convention("coordinates", ("angstrom",), "compressedpos"),
    "velocities": Convention("velocities", ("angstrom/picosecond",), "compressedvel"),
    # kJ in a kcal.
    "forces": Convention("forces", ("kilocalorie/mole/angstrom",), "compressedfrc", 4.184),
}
TIME = Convention("time", ("picosecond",))
LENGTHS = Convention("cell_lengths", ("angstrom",))
# The plural is MDAnalysis's, before version 1.
ANGLES = Convention("cell_angles", ("degree", "degrees"))

#: Exponent of cpptraj's first integer-compressed files, and the largest that 32 bits can use.
_POWER, _LARGEST_POWER = "compressedpow", 9


def is_netcdf(attributes: Mapping[str, Any]) -> bool:
    """Whether a file whose root group has these attributes is one of NetCDF-4's.

    Parameters
    ----------
    attributes : mapping
        Names and values.

    Returns
    -------
    bool

    Examples
    --------
    >>> is_netcdf({"Conventions": "AMBER", "ConventionVersion": "1.0"})
    True
    """
    return "Conventions" in attributes or "_NCProperties" in attributes


def catalogue_of(file: File) -> Catalogue:
    """What a NetCDF-4 file of Amber's conventions holds.

    Parameters
    ----------
    file : File
        Open.

    Returns
    -------
    Catalogue
        Its numbers become those that our reader of NetCDF-3 gives.

    Raises
    ------
    UnsupportedError
        It is of other conventions, or uses what we do not read.
    DamagedFileError
        Its variables contradict each other.
    """
    return _Reading(file).catalogue()


class _Reading:
    """A file that is read by the conventions."""

    def __init__(self, file: File):
        self.file = file
        self.root: Group = file.root
        self.attributes = file.root.attrs
        self.is_restart = self._find_conventions() == "AMBERRESTART"
        self.n_atoms = self._length("atom")
        if self.n_atoms < 1:
            raise self._refused(f'expected a dimension "atom" of at least 1, found {self.n_atoms}')
        if (spatial := self._length("spatial")) != 3:
            raise self._refused(f'expected a dimension "spatial" of 3, found {spatial}')

    def catalogue(self) -> Catalogue:
        found = {field: self._variable(convention) for field, convention in FIELDS.items()}
        arrays = {field: array for field, array in found.items() if array is not None}
        if not arrays:
            raise self._refused(
                'expected the variable "coordinates", "velocities" or "forces", found none of them'
            )
        n_frames = 1 if self.is_restart else max(array.shape[0] for array in arrays.values())
        if n_frames == 0:
            raise self._refused("expected a whole frame at least, found none")
        times = self._values(TIME, n_frames, ())
        notes = []
        if times is None:
            notes.append(f"the file holds no times; its {COUNTED}")
            times = np.arange(n_frames, dtype=np.float64)
        return Catalogue(
            dialect="NetCDF-4",
            n_frames=n_frames,
            n_atoms=self.n_atoms,
            elements={name: self._element(name, array, n_frames) for name, array in arrays.items()},
            times=times,
            steps=np.arange(n_frames, dtype=np.int64),
            dimensions=self._dimensions(n_frames),
            facts=self._facts(),
            notes=notes,
        )

    def _find_conventions(self) -> str:
        conventions = self.attributes.get("Conventions")
        names = re.split("[, ]", conventions) if isinstance(conventions, str) else ()
        for name in names:
            if name in ("AMBER", "AMBERRESTART"):
                return name
        found = "none" if conventions is None else f'"{conventions}"'
        raise self._refused(
            "expected a NetCDF file whose attribute Conventions names AMBER or AMBERRESTART, "
            f"found {found}"
        )

    def _length(self, dimension: str) -> int:
        array = self.root.array(dimension)
        if array is None or not array.shape:
            raise self._refused(f'expected a dimension "{dimension}", found none')
        return array.shape[0]

    def _variable(self, convention: Convention) -> Array | None:
        """The variable, if the file has it: with a shape and units that we read."""
        for name in filter(None, (convention.name, convention.compressed)):
            array = self.root.array(name)
            # netCDF's extents are as long as what was written.
            if array is not None and (self.is_restart or array.shape[:1] != (0,)):
                break
        else:
            return None
        inner = (self.n_atoms, 3) if convention in FIELDS.values() else (3,)
        self._check_shape(array, inner if convention is not TIME else ())
        units = array.attrs.get("units")
        if units is not None and str(units).rstrip("\0 ") not in convention.units:
            raise self._refused(
                f'expected "{name}" in units of {convention.units[0]}, found "{units}"'
            )
        return array

    def _check_shape(self, array: Array, inner: tuple[int, ...]) -> None:
        if self.is_restart:
            # In a restart file the time may have a dimension of its own.
            fits = array.shape == inner or (inner == () and array.shape == (1,))
        else:
            fits = array.shape[1:] == inner and len(array.shape) > 0
        if not fits:
            expected = [*([] if self.is_restart else ["frame"]), *map(str, inner)]
            raise self._refused(
                f'expected the dimensions ({", ".join(expected)}) of "{array.name[1:]}", '
                f"found ({', '.join(map(str, array.shape))})"
            )

    def _element(self, field: str, array: Array, n_frames: int) -> Element:
        convention = FIELDS[field]
        divisor = 1.0
        if array.name[1:] == convention.compressed:
            self._check_kind(array, "iu", "integers")
            divisor = self._divisor(array)
        else:
            self._check_kind(array, "f", "float or double")
        rows = None
        n_rows = 1 if self.is_restart else array.shape[0]
        if n_rows < n_frames:
            rows = np.arange(n_frames, dtype=np.int64)
            rows[n_rows:] = ABSENT
        return Element(
            dataset_of(array, fixed=self.is_restart),
            rows=rows,
            factor=convention.factor,
            scale=float(self._scale(array)),
            divisor=divisor,
        )

    def _check_kind(self, array: Array, kinds: str, words: str) -> None:
        if array.dtype.kind not in kinds:
            raise self._refused(f'expected "{array.name[1:]}" as {words}, found {array.dtype.name}')

    def _scale(self, array: Array) -> np.floating:
        """The attribute `scale_factor`; what MDAnalysis takes for 1 is none."""
        number = _one_number(array.attrs.get("scale_factor", np.float32(1)))
        if number is None:
            raise self._refused(
                "expected one finite float or double as scale_factor of "
                f'"{array.name[1:]}", found another'
            )
        return np.float32(1) if math.isclose(number, 1) else number

    def _divisor(self, array: Array) -> float:
        """By what integers are divided."""
        factor = array.attrs.get("icompressfac")
        if factor is None and (power := self.root.array(_POWER)) is not None:
            exponent = _one_number(power.read(), kinds="iu")
            if exponent is not None and 0 <= exponent <= _LARGEST_POWER:
                factor = 10.0 ** int(exponent)
        number = _one_number(factor, kinds="fiu")
        if number is None or number <= 0:
            raise self._refused(
                f'expected "{array.name[1:]}" to have one positive number as icompressfac, '
                f"by which its integers are divided, found {'none' if number is None else number}"
            )
        return float(number)

    def _values(self, convention: Convention, n_frames: int, shape: tuple) -> np.ndarray | None:
        """Of all frames, float64; None where the file has none."""
        array = self._variable(convention)
        if array is None:
            return None
        self._check_kind(array, "f", "float or double")
        if not self.is_restart and array.shape[0] != n_frames:
            raise damaged(
                self.file.path, array.name, f"{n_frames} rows, one a frame", str(array.shape[0])
            )
        # A float scaled by a float is one, as it is in NumPy.
        values = np.asarray(array.read()).reshape(n_frames, *shape) * self._scale(array)
        return values.astype(np.float64)

    def _dimensions(self, n_frames: int) -> np.ndarray:
        lengths = self._values(LENGTHS, n_frames, (3,))
        angles = self._values(ANGLES, n_frames, (3,))
        if (lengths is None) != (angles is None):
            raise self._refused('expected both "cell_lengths" and "cell_angles", found one of them')
        if lengths is None or angles is None:
            return np.zeros((1, 6), dtype=np.float32)
        # Angles without lengths are no cell.
        angles[(lengths == 0).all(axis=1)] = 0
        with np.errstate(over="ignore"):
            return np.hstack([lengths, angles]).astype(np.float32)

    def _facts(self) -> dict[str, Any]:
        names = ("Conventions", "title", "program", "programVersion")
        texts = {name: self.attributes.get(name) for name in names}
        program = " ".join(filter(None, (texts["program"], texts["programVersion"])))
        facts = {"conventions": texts["Conventions"], "program": program, "title": texts["title"]}
        return {name: text for name, text in facts.items() if text}

    def _refused(self, what: str) -> PacelineError:
        return UnsupportedError(f"{self.file.path}: {what}")


def _one_number(value: Any, kinds: str = "f") -> Any:
    """The one finite number that a value is, of these kinds, as NumPy has it; else None."""
    numbers = np.asarray(value)
    if numbers.size != 1 or numbers.dtype.kind not in kinds or not np.isfinite(numbers).all():
        return None
    return numbers.ravel()[0]
