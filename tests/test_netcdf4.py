"""Tests of Amber files in NetCDF-4, which is HDF5: NetCDF-3's numbers, and the library's view."""

import warnings

import numpy as np
import pytest
from helpers.netcdf_files import (
    AMBER,
    DATA,
    N_ATOMS,
    N_FRAMES,
    PUBLISHED,
    UNITS,
    assert_same,
    dimensions_of,
    fill,
    frames,
    values,
    write_netcdf4,
    write_scipy,
)
from MDAnalysisTests import datafiles

import paceline
from paceline.analysis.rms import RMSD
from paceline.errors import DamagedFileError, PacelineWarning, UnsupportedError
from paceline.mdanalysis.reader import Reader

netCDF4 = pytest.importorskip("netCDF4")

pytestmark = pytest.mark.filterwarnings("ignore:Reader has no dt information:UserWarning")
STORAGE = {
    "plain": {},
    "gzip": {"zlib": True, "complevel": 1, "shuffle": False},
    "shuffle, gzip, checksum": {"zlib": True, "shuffle": True, "fletcher32": True},
}


def opened(path, **kwargs):
    """Return a reader, after checking that it does not warn."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", PacelineWarning)
        return Reader(path, **kwargs)


class Stored(netCDF4.Dataset):
    """File in which all variables are stored in the same way."""

    def __init__(self, path, storage):
        super().__init__(path, "w", format="NETCDF4")
        self.__dict__["storage"] = storage

    def createVariable(self, name, kind, dimensions):
        storage = self.__dict__["storage"] if len(dimensions) == 3 else {}
        return super().createVariable(name, kind, dimensions, **storage)


@pytest.mark.parametrize("storage", STORAGE)
@pytest.mark.parametrize("kind", ["f4", "f8"])
def test_numbers_are_those_of_netcdf_3(tmp_path, storage, kind):
    with Stored(tmp_path / "4.nc", STORAGE[storage]) as file:
        fill(file, values(), kind=kind, scale=AMBER)
    three = write_scipy(tmp_path / "3.nc", values(), kind=kind, scale=AMBER)
    ours = opened(tmp_path / "4.nc")
    assert ours.file.format == "NetCDF-4"
    assert_same(ours, opened(three))


@pytest.mark.parametrize(
    ("format", "frame"), [("NETCDF4", None), ("NETCDF4_CLASSIC", N_FRAMES)], ids=str
)
@pytest.mark.parametrize("number", [np.float32, np.float64])
@pytest.mark.parametrize("factor", [20.455, 1 + 1e-10])
def test_scale_factors_bit_for_bit(tmp_path, format, frame, number, factor):
    scale = dict.fromkeys(UNITS, number(factor))
    for kind in ("f4", "f8"):
        four = write_netcdf4(
            tmp_path / "4.nc", values(), format, kind=kind, frame=frame, scale=scale
        )
        three = write_scipy(tmp_path / "3.nc", values(), kind=kind, scale=scale)
        assert_same(opened(four), opened(three))


@pytest.mark.parametrize("name", PUBLISHED, ids=str)
def test_copies_of_published_files(tmp_path, name):
    path = tmp_path / "4.nc"
    with netCDF4.Dataset(DATA / name) as old, netCDF4.Dataset(path, "w") as new:
        old.set_auto_maskandscale(False)
        new.setncatts({key: old.getncattr(key) for key in old.ncattrs()})
        for dimension in old.dimensions.values():
            new.createDimension(dimension.name, None if dimension.isunlimited() else dimension.size)
        for variable in old.variables.values():
            copied = new.createVariable(
                variable.name, variable.dtype.newbyteorder("="), variable.dimensions
            )
            copied.set_auto_maskandscale(False)
            copied.setncatts({key: variable.getncattr(key) for key in variable.ncattrs()})
            copied[...] = variable[...]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", PacelineWarning)
        four, three = Reader(path), Reader(DATA / name)
    messages = [str(warning.message).partition(": ")[2] for warning in said]
    assert messages[: len(messages) // 2] == messages[len(messages) // 2 :]
    assert_same(four, three)


def test_what_the_netcdf_library_reads(tmp_path):
    path = write_netcdf4(tmp_path / "a.nc", values(), "NETCDF4", scale=AMBER)
    found = frames(opened(path))
    with netCDF4.Dataset(path) as file:
        for name, of_ours in (("coordinates", "positions"), ("velocities", "velocities")):
            theirs = np.asarray(file[name][...], dtype=np.float64)
            np.testing.assert_array_equal([one[of_ours] for one in found], np.float32(theirs))
        np.testing.assert_array_equal([one["time"] for one in found], file["time"][...])


@pytest.mark.parametrize("sub", [[0], [2, 3, 6], list(range(N_ATOMS))])
def test_chosen_atoms_are_those_of_whole_frames(tmp_path, sub):
    path = write_netcdf4(tmp_path / "a.nc", values(), "NETCDF4")
    for one, whole in zip(
        frames(opened(path, sub=np.array(sub))), frames(opened(path)), strict=True
    ):
        for field in ("positions", "velocities", "forces"):
            np.testing.assert_array_equal(one[field], whole[field][sub])


def test_restart_files(tmp_path):
    three = write_scipy(tmp_path / "3.ncrst", values(), restart=True, scale=AMBER)
    four = write_netcdf4(tmp_path / "4.ncrst", values(), "NETCDF4", restart=True, scale=AMBER)
    assert_same(opened(four), opened(three))


def write_integers(path, *, factor=1000.0, names=("compressedpos",), power=None, **attributes):
    """Write a file of integers like cpptraj; return its numbers."""
    numbers = np.random.default_rng(1).integers(-(10**6), 10**6, (N_FRAMES, N_ATOMS, 3))
    with netCDF4.Dataset(path, "w") as file:
        file.Conventions, file.ConventionVersion = "AMBER", "1.0"
        file.program, file.programVersion = "cpptraj", "6.18.1"
        for name, size in (("frame", None), ("atom", N_ATOMS), ("spatial", 3)):
            file.createDimension(name, size)
        file.createVariable("time", "f4", ("frame",))[:] = np.arange(N_FRAMES)
        for name in names:
            variable = file.createVariable(
                name, "i4", dimensions_of(name), zlib=True, complevel=1, shuffle=True
            )
            if factor is not None:
                variable.icompressfac = factor
            variable.setncatts(attributes)
            variable.set_auto_maskandscale(False)
            variable[:] = numbers
        if power is not None:
            file.createVariable("compressedpow", "i4", ())[...] = power
    return numbers


def test_integers_of_cpptraj(tmp_path):
    path = tmp_path / "a.nc"
    numbers = write_integers(path, units="angstrom")
    found = [frame["positions"] for frame in frames(opened(path))]
    np.testing.assert_array_equal(found, np.float32(numbers / 1000.0))


def test_integers_of_its_first_version(tmp_path):
    path = tmp_path / "a.nc"
    numbers = write_integers(path, factor=None, power=4)
    found = [frame["positions"] for frame in frames(opened(path))]
    np.testing.assert_array_equal(found, np.float32(numbers / 10000.0))


def test_integers_of_velocities_and_forces(tmp_path):
    path = tmp_path / "a.nc"
    names = ("compressedpos", "compressedvel", "compressedfrc")
    numbers = write_integers(path, factor=1e5, names=names, scale_factor=20.455)
    found = frames(opened(path))
    scaled = np.float32(numbers / 1e5 * 20.455)
    np.testing.assert_array_equal([frame["velocities"] for frame in found], scaled)
    np.testing.assert_array_equal([frame["forces"] for frame in found], scaled * np.float32(4.184))


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"factor": None}, "found none"),
        ({"factor": 0.0}, "found 0.0"),
        ({"factor": "1000"}, "found none"),
        ({"factor": None, "power": -3}, "found none"),
        ({"factor": None, "power": 2**30}, "found none"),
    ],
)
def test_integers_without_a_factor_are_refused_by_name(tmp_path, options, found):
    write_integers(tmp_path / "a.nc", **options)
    with pytest.raises(UnsupportedError, match=rf'"compressedpos".*icompressfac.*{found}'):
        Reader(tmp_path / "a.nc")


def test_a_file_without_times(tmp_path):
    arrays = {"coordinates": values()["coordinates"]}
    path = write_netcdf4(tmp_path / "a.nc", arrays, "NETCDF4")
    with pytest.warns(
        PacelineWarning, match=r"no times; its frames count as 1 ps apart; give dt= \(--dt\)"
    ):
        ours = Reader(path)
    assert [ts.time for ts in ours] == [0, 1, 2, 3, 4]
    assert all(frame["dimensions"] is None for frame in frames(ours))


def write_uneven(path, name, n_rows):
    """Write a variable with fewer frames than others, as left by interrupted programs."""
    arrays = values()
    write_netcdf4(path, {key: array for key, array in arrays.items() if key != name}, "NETCDF4")
    with netCDF4.Dataset(path, "a") as file:
        variable = file.createVariable(name, "f4", dimensions_of(name))
        if n_rows:
            variable[:n_rows] = arrays[name][:n_rows]
    return arrays


def test_a_variable_of_fewer_frames_is_missing_in_the_others(tmp_path):
    arrays = write_uneven(tmp_path / "a.nc", "velocities", 2)
    found = frames(opened(tmp_path / "a.nc"))
    assert [frame["velocities"] is None for frame in found] == [False, False, True, True, True]
    np.testing.assert_array_equal(found[1]["velocities"], np.float32(arrays["velocities"][1]))
    np.testing.assert_array_equal(found[4]["positions"], np.float32(arrays["coordinates"][4]))


def test_times_and_cells_are_those_of_every_frame_or_none(tmp_path):
    write_uneven(tmp_path / "a.nc", "time", 2)
    with pytest.raises(DamagedFileError, match=r"/time: expected 5 rows, one a frame, found 2"):
        Reader(tmp_path / "a.nc")
    write_uneven(tmp_path / "b.nc", "time", 0)
    with pytest.warns(PacelineWarning, match="no times"):
        Reader(tmp_path / "b.nc")


def change(path, *, attributes=(), **options):
    """Change a file so that it deviates from Amber's conventions."""
    write_netcdf4(path, values(), "NETCDF4", **options)
    with netCDF4.Dataset(path, "a") as file:
        for variable, name, value in attributes:
            (file[variable] if variable else file).setncattr(name, value)
    return path


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attributes": [("", "Conventions", "CF-1.6")]}, 'names AMBER or .*, found "CF-1.6"'),
        (
            {"attributes": [("", "Conventions", "AMBERENSEMBLE")]},
            'AMBERRESTART, found "AMBERENSEMBLE"',
        ),
        (
            {"units": UNITS | {"coordinates": "ps"}},
            '"coordinates" in units of angstrom, found "ps"',
        ),
        ({"kind": "i4"}, 'expected "coordinates" as float or double, found int32'),
        ({"scale": {"coordinates": "2"}}, 'scale_factor of "coordinates", found another'),
        ({"scale": {"coordinates": np.float32(np.nan)}}, 'scale_factor of "coordinates"'),
        ({"scale": {"coordinates": np.ones(2)}}, 'scale_factor of "coordinates"'),
    ],
)
def test_what_is_not_read_is_refused_by_name(tmp_path, options, message):
    path = change(tmp_path / "a.nc", **options)
    with pytest.raises(UnsupportedError, match=message):
        Reader(path)


@pytest.mark.parametrize(
    ("name", "unit", "words"),
    [
        ("time", "steps", 'in units of picosecond, found "steps"'),
        ("forces", "lj", 'angstrom, found "lj"'),
        ("velocities", "lj", 'picosecond, found "lj"'),
    ],
)
def test_variables_that_cannot_be_read_are_left_out(tmp_path, name, unit, words):
    path = change(tmp_path / "a.nc", units=UNITS | {name: unit})
    with pytest.warns(PacelineWarning, match=f'"{name}" cannot be read, and is left out.*{words}'):
        ours = Reader(path)
    assert ours.ts.has_positions
    assert (ours.ts.has_forces, ours.ts.has_velocities) == (name != "forces", name != "velocities")
    assert (ours.file.time_doubt is not None) == (name == "time")


def test_missing_variables_are_named(tmp_path):
    path = tmp_path / "a.nc"
    write_netcdf4(path, {k: v for k, v in values().items() if k != "cell_angles"}, "NETCDF4")
    with pytest.raises(UnsupportedError, match='both "cell_lengths" and "cell_angles"'):
        Reader(path)
    with netCDF4.Dataset(path, "w") as file:
        file.Conventions = "AMBER"
        file.createDimension("atom", 4)
    with pytest.raises(UnsupportedError, match='expected a dimension "spatial", found none'):
        Reader(path)


def test_replicas_in_one_file_are_refused_by_name(tmp_path):
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        file.Conventions = "AMBER"
        for name, size in (("frame", None), ("ensemble", 2), ("atom", 4), ("spatial", 3)):
            file.createDimension(name, size)
        dimensions = ("frame", "ensemble", "atom", "spatial")
        file.createVariable("coordinates", "f4", dimensions)[:3] = 1.0
    message = r'\(frame, 4, 3\) of "coordinates", found \(3, 2, 4, 3\)'
    with pytest.raises(UnsupportedError, match=message):
        Reader(tmp_path / "a.nc")


def test_analyses_on_every_backend(tmp_path, where):
    with netCDF4.Dataset(datafiles.NCDF) as old:
        arrays = {name: np.asarray(old[name][...]) for name in ("time", "coordinates")}
    path = write_netcdf4(tmp_path / "a.nc", arrays, "NETCDF4")
    expected = RMSD(paceline.Universe(datafiles.PRMncdf, datafiles.NCDF), select="protein").run()
    found = RMSD(paceline.Universe(datafiles.PRMncdf, path), select="protein").run(**where)
    np.testing.assert_array_equal(found.results.rmsd, expected.results.rmsd)
