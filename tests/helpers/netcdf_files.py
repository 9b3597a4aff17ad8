"""Amber NetCDF files as written by scipy and netCDF4, and numbers for them."""

import warnings
from pathlib import Path

import numpy as np
import pytest
from MDAnalysisTests import datafiles
from scipy.io import netcdf_file

from paceline.errors import PacelineWarning
from paceline.mdanalysis.reader import Reader

DATA = Path(datafiles.__file__).parent / "data"
PUBLISHED = sorted(
    path.relative_to(DATA) for path in DATA.rglob("*") if path.suffix in (".nc", ".ncdf")
)
FORMATS = ("NETCDF3_CLASSIC", "NETCDF3_64BIT_OFFSET", "NETCDF3_64BIT_DATA")
UNITS = {
    "time": "picosecond",
    "coordinates": "angstrom",
    "velocities": "angstrom/picosecond",
    "forces": "kilocalorie/mole/angstrom",
    "cell_lengths": "angstrom",
    "cell_angles": "degree",
}
AMBER = {"velocities": np.float64(20.455)}
N_FRAMES, N_ATOMS = 5, 7
RECORD = 4 + 3 * N_ATOMS * 12 + 48


def values(n_frames=N_FRAMES, n_atoms=N_ATOMS):
    """Return the numbers of all variables, in Amber's units, f64."""
    random = np.random.default_rng(7)
    return {
        "time": 100.25 + 0.1 * np.arange(n_frames),
        "coordinates": random.normal(0, 30, (n_frames, n_atoms, 3)),
        "velocities": random.normal(0, 0.5, (n_frames, n_atoms, 3)),
        "forces": random.normal(0, 9, (n_frames, n_atoms, 3)),
        "cell_lengths": random.uniform(30, 60, (n_frames, 3)),
        "cell_angles": random.uniform(60, 110, (n_frames, 3)),
    }


def dimensions_of(name, restart=False):
    inner = {"time": (), "cell_lengths": ("cell_spatial",), "cell_angles": ("cell_angular",)}
    return (() if restart else ("frame",)) + inner.get(name, ("atom", "spatial"))


def fill(file, arrays, *, kind="f4", scale=None, units=UNITS, frame=None, restart=False, extra=()):
    """Write Amber's conventions and these arrays to an open NetCDF file of scipy or netCDF4."""
    file.Conventions = "AMBERRESTART" if restart else "AMBER"
    file.ConventionVersion = "1.0"
    n_frames, n_atoms, _ = next(
        arrays[name] for name in ("coordinates", "velocities", "forces") if name in arrays
    ).shape
    if not restart:
        file.createDimension("frame", frame)
    for name, size in (("atom", n_atoms), ("spatial", 3), ("cell_spatial", 3), ("cell_angular", 3)):
        file.createDimension(name, size)
    variables = {}
    for name, array in arrays.items():
        width = "f8" if name.startswith("cell") or restart else kind
        variable = file.createVariable(name, width, dimensions_of(name, restart))
        if name in units:
            variable.units = units[name]
        if name in (scale or {}):
            variable.scale_factor = scale[name]
        if hasattr(variable, "set_auto_maskandscale"):
            variable.set_auto_maskandscale(False)
        variables[name] = variable, array
    for name, width, inner in extra:
        file.createVariable(name, width, ("frame", *inner))
    for variable, array in variables.values():
        if restart:
            variable[...] = array[0]
        else:
            variable[:n_frames] = array


def write_scipy(path, arrays, version=2, **kwargs):
    with netcdf_file(path, "w", version=version, maskandscale=False) as file:
        fill(file, arrays, **kwargs)
    return path


def write_netcdf4(path, arrays, format, **kwargs):
    netcdf4 = pytest.importorskip("netCDF4")
    with netcdf4.Dataset(path, "w", format=format) as file:
        fill(file, arrays, **kwargs)
    return path


def opened(path, **kwargs):
    """Return a reader, after checking that it does not warn."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", PacelineWarning)
        return Reader(path, **kwargs)


def frames(reader):
    """Return the numbers of all frames."""
    return [
        {
            "time": ts.time,
            "dimensions": None if ts.dimensions is None else ts.dimensions.copy(),
            **{
                field: getattr(ts, field).copy() if getattr(ts, f"has_{field}") else None
                for field in ("positions", "velocities", "forces")
            },
        }
        for ts in reader
    ]


def assert_same(ours, theirs):
    ours, theirs = frames(ours), frames(theirs)
    assert len(ours) == len(theirs) > 0
    for one, other in zip(ours, theirs, strict=True):
        assert one["time"] == other["time"]
        for name in ("dimensions", "positions", "velocities", "forces"):
            assert (one[name] is None) == (other[name] is None), name
            if one[name] is not None:
                np.testing.assert_array_equal(one[name], other[name], name, strict=True)
