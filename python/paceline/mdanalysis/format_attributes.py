"""Attributes that MDAnalysis's readers of H5MD and NetCDF have, and other readers lack."""

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
#: Bit of the options of SZIP that stands for the coding of nearest neighbours.
_NEAREST = 32


def _held(field: str, *formats: str) -> Any:
    """Make the property that reports whether a file of some formats holds a field."""

    def is_held(reader: "FormatAttributes") -> bool:
        reader._check_format(f"has_{field}", *formats)
        return reader._held_fields.get(field, bool(reader.chain.fields & field_bits([field])))

    def set_held(reader: "FormatAttributes", value: bool) -> None:
        reader._check_format(f"has_{field}", *formats)
        reader._held_fields = {**reader._held_fields, field: value}

    is_held.__doc__ = f"True if the file has {field}; `Writer` writes these then."
    return property(is_held, set_held)


class FormatAttributes:
    """Mixin of `Reader`: other formats raise `AttributeError`, as MDAnalysis's readers do."""

    chain: Chain
    format: str
    filename: str
    _reopen: Callable[[], None]
    #: Fields of which a script has stated that the file has them, or has not.
    _held_fields: dict[str, bool] = {}  # noqa: RUF012

    has_positions = _held("positions", "H5MD")
    has_velocities = _held("velocities", "H5MD", "NCDF")
    has_forces = _held("forces", "H5MD", "NCDF")

    @property
    def compression(self) -> str | None:
        """Compression of the first of positions, velocities and forces of an H5MD file, as h5py's.

        "gzip", "lzf", "szip", or None for others and without any.
        """
        return self._compression("compression")[0]

    @property
    def compression_opts(self) -> int | tuple[str, int] | None:
        """Level of gzip; coding and pixels of a block of szip."""
        return self._compression("compression_opts")[1]

    @property
    def scale_factors(self) -> dict[str, float | None]:
        """Scale factors of a NetCDF file's variables; positions are multiplied."""
        self._check_format("scale_factors", "NCDF")
        from scipy.io import netcdf_file

        with netcdf_file(self.filename, mmap=False) as file:
            return {
                name: getattr(file.variables.get(name), "scale_factor", None) for name in _SCALED
            }

    @property
    def open_trajectory(self) -> Callable[[], None]:
        """Function that goes to the position before the first frame of an H5MD file."""
        self._check_format("open_trajectory", "H5MD")
        return self._reopen

    def _check_format(self, name: str, *formats: str) -> None:
        """Raise `AttributeError` for a file of another format."""
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
        """Options of `H5MDWriter` for a file with the contents and compression of this one."""
        fields = {field: getattr(self, f"has_{field}") for field in FIELDS}
        opts = self.compression_opts
        return {"compression": self.compression, "compression_opts": opts, **fields}


def _szip(one: Filter) -> tuple[str, tuple[str, int]]:
    options, pixels, *_ = one.values
    return "szip", ("nn" if options & _NEAREST else "ec", pixels)


#: Compressions that h5py names, and their options.
_COMPRESSIONS: dict[int, Callable[[Filter], tuple[str, Any]]] = {
    DEFLATE: lambda one: ("gzip", one.values[0]),
    LZF: lambda one: ("lzf", None),
    SZIP: _szip,
}
