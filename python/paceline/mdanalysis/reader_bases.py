"""Base classes of the reader for MDAnalysis and of its frames.

`FormatAttributes` provides attributes that MDAnalysis has only in its readers of H5MD and NetCDF.
`LoadedTimestep` is a frame with only some atoms loaded.
"""

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
from MDAnalysis.coordinates.timestep import Timestep

from paceline.block import FIELDS, field_bits
from paceline.contract.loaded_atoms import LoadedAtoms, LoadedValues
from paceline.contract.system_interface import fields_of, values_of
from paceline.hdf5.chunk_index import DEFLATE, LZF, SZIP, Filter
from paceline.hdf5.open_hdf5_trajectory import Hdf5File
from paceline.trajectory.chain import Chain

#: Variables of a NetCDF file that may have a scale factor.
_SCALED = (
    *("time", "cell_lengths", "cell_angles"),
    *("coordinates", "velocities", "forces"),
)
#: Bit of the SZIP options for nearest-neighbour coding.
_NEAREST = 32


def _field_property(field: str, *formats: str) -> Any:
    """Create the property that reports whether a file, in one of some formats, contains a field."""

    def is_held(reader: "FormatAttributes") -> bool:
        reader._check_format(f"has_{field}", *formats)
        return reader._held_fields.get(field, bool(reader.chain.fields & field_bits([field])))

    def set_held(reader: "FormatAttributes", value: bool) -> None:
        reader._check_format(f"has_{field}", *formats)
        reader._held_fields = {**reader._held_fields, field: value}

    is_held.__doc__ = f"True if the file has {field}; `Writer` writes these then."
    return property(is_held, set_held)


class FormatAttributes:
    """Mixin of `Reader`; an attribute raises `AttributeError` if the file's format lacks it."""

    chain: Chain
    format: str
    filename: str
    _reopen: Callable[[], None]
    #: Fields for which a script has set whether the file contains them.
    _held_fields: dict[str, bool] = {}  # noqa: RUF012

    has_positions = _field_property("positions", "H5MD")
    has_velocities = _field_property("velocities", "H5MD", "NCDF")
    has_forces = _field_property("forces", "H5MD", "NCDF")

    @property
    def compression(self) -> str | None:
        """Compression of an H5MD file's first element, in h5py's notation.

        "gzip", "lzf" or "szip"; None for other methods and without compression. The first element
        is that of the positions or, if the file has none, of the velocities or forces.
        """
        return self._compression("compression")[0]

    @property
    def compression_opts(self) -> int | tuple[str, int] | None:
        """Level of gzip; for szip, the coding and the pixels per block; otherwise None."""
        return self._compression("compression_opts")[1]

    @property
    def scale_factors(self) -> dict[str, float | None]:
        """Scale factors of a NetCDF file's variables; values that are read are already scaled."""
        self._check_format("scale_factors", "NCDF")
        from scipy.io import netcdf_file

        with netcdf_file(self.filename, mmap=False) as file:
            return {
                name: getattr(file.variables.get(name), "scale_factor", None) for name in _SCALED
            }

    @property
    def open_trajectory(self) -> Callable[[], None]:
        """Function that moves to the start of an H5MD file, before its first frame."""
        self._check_format("open_trajectory", "H5MD")
        return self._reopen

    def _check_format(self, name: str, *formats: str) -> None:
        """Raise `AttributeError` unless the file has one of the formats."""
        if self.format not in formats:
            known = {"NCDF": "NetCDF"}
            words = " and ".join(known.get(one, one) for one in formats)
            raise AttributeError(f"{self.filename}: only readers of {words} have {name}")

    def _compression(self, name: str) -> tuple[str | None, Any]:
        self._check_format(name, "H5MD")
        [file] = self.chain.files
        assert isinstance(file, Hdf5File)
        elements = file.chunk_index.elements
        first = next(elements[field] for field in FIELDS if field in elements)
        for one in first.dataset.filters:
            if one.number in _COMPRESSIONS:
                return _COMPRESSIONS[one.number](one)
        return None, None

    def writer_options(self) -> dict[str, Any]:
        """Options with which `H5MDWriter` writes this file's fields with the same compression."""
        fields = {field: getattr(self, f"has_{field}") for field in FIELDS}
        opts = self.compression_opts
        return {"compression": self.compression, "compression_opts": opts, **fields}


def _szip(one: Filter) -> tuple[str, tuple[str, int]]:
    options, pixels, *_ = one.values
    return "szip", ("nn" if options & _NEAREST else "ec", pixels)


#: Compression methods that h5py names, with functions that return their options.
_COMPRESSIONS: dict[int, Callable[[Filter], tuple[str, Any]]] = {
    DEFLATE: lambda one: ("gzip", one.values[0]),
    LZF: lambda one: ("lzf", None),
    SZIP: _szip,
}


#: Names of MDAnalysis's arrays for the fields.
_ARRAYS = {"positions": "_pos", "velocities": "_velocities", "forces": "_forces"}


class LoadedTimestep(Timestep):
    """Timestep whose arrays raise an error when atoms that are not loaded are used."""

    def put(self, field: str, values: Any, loaded: LoadedAtoms) -> None:
        """Set the values of loaded atoms; the values of all other atoms become NaN."""
        setattr(self, f"has_{field}", True)
        array = np.ndarray.view(values_of(self, field), np.ndarray)
        # Fill with NaN: a new array contains zeros, and a script may have set values of all atoms.
        if not np.isnan(array[loaded.first_other, 0]):
            array[:] = np.nan
            getattr(Timestep, _ARRAYS[field]).__set__(self, LoadedValues.of(array, loaded))
        array[loaded.rows] = values

    def copy(self) -> "LoadedTimestep":
        """Copy the frame, with arrays that raise the same errors."""
        copied: LoadedTimestep = pickle.loads(pickle.dumps(self))
        return copied

    def copy_slice(self, sel: Any) -> Timestep:
        """Copy some atoms; see `MDAnalysis.coordinates.timestep.Timestep.copy_slice`."""
        # MDAnalysis's own method would replace the error by a `TypeError` that lacks the reason.
        for field in fields_of(self):
            if isinstance(some := values_of(self, field)[sel], LoadedValues):
                some.refuse()
        return super().copy_slice(sel)

    # MDAnalysis's writers of NetCDF and TRZ copy the arrays that these properties return. A copy
    # would raise no error for atoms that are not loaded, so the properties raise it.

    @property
    def _pos(self) -> np.ndarray:
        return self.positions.refuse() if _shows_part(self) else self.positions

    @property
    def _x(self) -> np.ndarray:
        return self._pos[:, 0]


def _shows_part(ts: Timestep) -> bool:
    """Return true if a frame has some, but not all, of its atoms loaded."""
    return isinstance(ts.positions, LoadedValues)
