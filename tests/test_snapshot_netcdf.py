"""Tests of appending frames to Amber NetCDF files that other programs wrote."""

import re

import numpy as np
import pytest
from scipy.io import netcdf_file

from paceline.errors import UnsupportedError
from paceline.snapshot.formats_and_options import ContainerFile
from paceline.snapshot.shared_file import Contents, Heading, Settings

N_ATOMS = 4
#: Variables of Amber's convention: type, dimensions, unit and scale.
AMBER = {
    "time": ("f", ("frame",), "picosecond", None),
    "coordinates": ("f", ("frame", "atom", "spatial"), "angstrom", None),
    "velocities": ("f", ("frame", "atom", "spatial"), "angstrom/picosecond", 20.455),
    "cell_lengths": ("d", ("frame", "cell_spatial"), "angstrom", None),
    "cell_angles": ("d", ("frame", "cell_angular"), "degree", None),
}


def settings_of(path):
    return Settings(str(path), N_ATOMS, "", True, False, None, False, None, False)


def write(path, n_spatial=3, **changed):
    with netcdf_file(path, "w") as file:
        file.Conventions, file.ConventionVersion = "AMBER", "1.0"
        for name, size in (("frame", None), ("atom", N_ATOMS), ("spatial", n_spatial)):
            file.createDimension(name, size)
        for name in ("cell_spatial", "cell_angular"):
            file.createDimension(name, 3)
        for name, (kind, dimensions, unit, scale) in {**AMBER, **changed}.items():
            variable = file.createVariable(name, kind, dimensions)
            if unit is not None:
                variable.units = unit
            if scale is not None:
                variable.scale_factor = scale
            variable[0] = np.ones([file.dimensions[one] for one in dimensions[1:]])
    return path


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"time": ("d", ("frame",), "ps", None), "cell_lengths": ("f", *AMBER["cell_lengths"][1:])},
        {"coordinates": (*AMBER["coordinates"][:2], None, None)},
        {"coordinates": (*AMBER["coordinates"][:2], "nanometer", 0.1)},
        {"cell_angles": (*AMBER["cell_angles"][:2], "degrees", None)},
    ],
)
def test_a_frame_follows_in_the_file_s_units(tmp_path, changed):
    path = write(tmp_path / "other.nc", **changed)
    series = ContainerFile("NetCDF", settings_of(path))
    assert series.n_frames == 1
    contents = Contents(("positions", "velocities"), True)
    series.place(contents, Heading(7, 2.5, np.diag([10.0, 11.0, 12.0])))
    series.commit()
    series.close()
    with netcdf_file(path, mmap=False) as file:
        assert file.variables["time"][:].tolist() == [1.0, 2.5]
        assert file.variables["cell_lengths"][:].tolist() == [[1.0, 1.0, 1.0], [10.0, 11.0, 12.0]]
        assert file.variables["cell_angles"][1].tolist() == [90.0, 90.0, 90.0]


@pytest.mark.parametrize(
    ("name", "definition", "words"),
    [
        ("coordinates", (None, None, "nm", None), "coordinates in angstrom, found nm"),
        ("coordinates", (None, None, "furlong", None), "coordinates in angstrom, found furlong"),
        (
            "coordinates",
            (None, None, None, 10.0),
            "coordinates in angstrom, found no stated unit scaled by 10.0",
        ),
        ("time", (None, None, "femtosecond", None), "time in picosecond, found femtosecond"),
        (
            "time",
            ("i", None, None, None),
            "time of type >f4 or >f8 and shape (frame), values per frame: 1, found type >i4 and "
            "shape (frame), values per frame: 1",
        ),
        ("cell_lengths", ("i", None, None, None), "found type >i4"),
        ("cell_lengths", (None, None, "nanometers", None), "cell_lengths in angstrom, found nanom"),
        ("cell_angles", (None, None, "radian", None), "cell_angles in degree, found radian"),
        (
            "velocities",
            (None, None, "angstrom/picosecond", None),
            "velocities in angstrom/picosecond scaled by 20.455, found angstrom/picosecond;",
        ),
        ("coordinates", ("d", None, "angstrom", None), "coordinates of type >f4 and shape"),
        ("cell_angles", (None, ("frame", "atom"), "degree", None), "found type >f8 and shape ("),
    ],
)
def test_a_file_of_other_numbers_is_refused(tmp_path, name, definition, words):
    kind, dimensions, unit, scale = definition
    given = (kind or AMBER[name][0], dimensions or AMBER[name][1], unit, scale)
    path = write(tmp_path / "other.nc", **{name: given})
    before = path.read_bytes()
    with pytest.raises(UnsupportedError, match=re.escape(words)) as caught:
        ContainerFile("NetCDF", settings_of(path))
    assert str(caught.value).startswith(f"{path}: frames cannot be appended: expected {name} ")
    assert str(caught.value).endswith("; write to a new file")
    assert path.read_bytes() == before


def test_other_variables_and_dimensions_are_refused(tmp_path):
    path = write(tmp_path / "two.nc", n_spatial=2)
    with pytest.raises(UnsupportedError, match=r"values per frame: 12, found .* frame: 8;"):
        ContainerFile("NetCDF", settings_of(path))
    path = write(tmp_path / "more.nc", temp0=("d", ("frame",), "kelvin", None))
    with pytest.raises(UnsupportedError, match="expected no variable 'temp0', found one"):
        ContainerFile("NetCDF", settings_of(path))
    with netcdf_file(tmp_path / "less.nc", "w") as file:
        file.createDimension("frame", None)
        file.createDimension("atom", N_ATOMS)
        file.createVariable("time", "f", ("frame",))[0] = 1.0
    with pytest.raises(UnsupportedError, match="expected a variable 'coordinates', found none"):
        ContainerFile("NetCDF", settings_of(tmp_path / "less.nc"))
