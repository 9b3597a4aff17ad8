"""Attributes that MDAnalysis has only in its readers of H5MD and NetCDF."""

from collections.abc import Callable
from typing import Any

from paceline.block import FIELDS, field_bits
from paceline.hdf5.chunk_index import DEFLATE, LZF, SZIP, Filter
from paceline.hdf5.trajectory import Hdf5File
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
    """Mixin of `Reader`; for other formats its attributes raise `AttributeError`."""

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

        "gzip", "lzf" or "szip"; None for other methods and without compression. Elements are
        checked in the order positions, velocities, forces.
        """
        return self._compression("compression")[0]

    @property
    def compression_opts(self) -> int | tuple[str, int] | None:
        """Level of gzip; for szip, the coding and the pixels per block."""
        return self._compression("compression_opts")[1]

    @property
    def scale_factors(self) -> dict[str, float | None]:
        """Scale factors of a NetCDF file's variables; paceline multiplies positions by them."""
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
        """Options with which `H5MDWriter` writes a file with the same contents and compression."""
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
