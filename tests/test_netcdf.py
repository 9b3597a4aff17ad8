"""Tests of Amber NetCDF: MDAnalysis's numbers, and files of every available program."""

import pickle
import re
import shutil
import warnings
from functools import partial

import MDAnalysis
import mdtraj
import numpy as np
import pytest
from helpers.netcdf_files import (
    AMBER,
    DATA,
    FORMATS,
    N_ATOMS,
    N_FRAMES,
    PUBLISHED,
    RECORD,
    UNITS,
    assert_same,
    frames,
    opened,
    values,
    write_netcdf4,
    write_scipy,
)
from MDAnalysis.analysis import rms
from MDAnalysis.coordinates.TRJ import NCDFReader
from MDAnalysisTests import datafiles
from scipy.io import netcdf_file

import paceline
from paceline.analysis.rms import RMSD
from paceline.errors import DamagedFileError, FileChangedError, PacelineWarning, UnsupportedError
from paceline.mdanalysis.reader import Reader

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*has not been set:UserWarning"),
    pytest.mark.filterwarnings("ignore:NCDF trajectory:UserWarning"),
    pytest.mark.filterwarnings("ignore:Reader has no dt information:UserWarning"),
]

#: Units that programs use instead of Amber's, and the size of each in Amber's unit.
OTHER_UNITS = [
    dict(
        zip(UNITS, ("Femtosecond", "nanometer", "nm/ps", "kJ/mol/nm", "NM", "radian"), strict=True)
    ),
    dict(
        zip(
            UNITS,
            ("ns", "Angstrom", "angstrom/femtosecond", "kcal mol-1 A-1", "pm", "Degrees"),
            strict=True,
        )
    ),
]
FACTORS = {
    **{"Femtosecond": 1e-3, "nanometer": 10, "nm/ps": 10, "kJ/mol/nm": 0.1 / 4.184, "NM": 10},
    **{"radian": 180 / np.pi, "ns": 1000, "Angstrom": 1, "angstrom/femtosecond": 1000},
    **{"kcal mol-1 A-1": 1, "pm": 0.01, "Degrees": 1},
}


@pytest.mark.parametrize("name", PUBLISHED, ids=str)
def test_published_files_bit_for_bit(name):
    timeless = name.name == "cpptraj_traj.nc"
    if timeless:
        with pytest.warns(PacelineWarning, match=r"count as 1 ps apart; give dt= \(--dt\)"):
            ours = Reader(DATA / name)
    else:
        ours = opened(DATA / name)
    theirs = NCDFReader(DATA / name)
    assert (ours.n_frames, ours.n_atoms) == (theirs.n_frames, theirs.n_atoms)
    assert ours.dt == pytest.approx(theirs.dt)
    assert_same(ours, theirs)
    times, steps = ours.file.times()
    np.testing.assert_array_equal(times, [ts.time for ts in theirs])
    np.testing.assert_array_equal(steps, np.arange(theirs.n_frames))


@pytest.mark.parametrize("kind", ["f4", "f8"])
@pytest.mark.parametrize("number", [np.float32, np.float64])
@pytest.mark.parametrize("factor", [20.455, 1.0, 1 + 1e-10, -0.1])
def test_scale_factors_bit_for_bit(tmp_path, kind, number, factor):
    scale = dict.fromkeys(UNITS, number(factor))
    path = write_scipy(tmp_path / "a.nc", values(), kind=kind, scale=scale)
    assert_same(opened(path), NCDFReader(path))


@pytest.mark.parametrize("n_atoms", [1, 7, 1500])
@pytest.mark.parametrize(
    "missing", [(), ("velocities",), ("cell_lengths", "cell_angles", "forces")]
)
def test_chosen_atoms_are_those_of_whole_frames(tmp_path, n_atoms, missing):
    arrays = {name: v for name, v in values(3, n_atoms).items() if name not in missing}
    for kind in ("f4", "f8"):
        path = write_scipy(tmp_path / f"{kind}.nc", arrays, kind=kind)
        whole = frames(opened(path))
        random = np.random.default_rng(1)
        for size in {1, (n_atoms + 1) // 2, n_atoms}:
            sub = np.sort(random.choice(n_atoms, size, replace=False))
            for one, all_atoms in zip(frames(opened(path, sub=sub)), whole, strict=True):
                for field in ("positions", "velocities", "forces"):
                    if all_atoms[field] is not None:
                        np.testing.assert_array_equal(one[field], all_atoms[field][sub])


@pytest.mark.parametrize("version", [1, 2])
def test_files_of_scipy(tmp_path, version):
    arrays = values()
    check(opened(write_scipy(tmp_path / "a.nc", arrays, version=version)), arrays)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("frame", [None, N_FRAMES], ids=["records", "arrays"])
@pytest.mark.parametrize("kind", ["f4", "f8"])
def test_files_of_the_netcdf_library(tmp_path, format, frame, kind):
    arrays = values()
    extra = [("flags", "i1", ("spatial",)), ("replica", "i4", ()), ("odd", "i2", ("atom",))]
    path = write_netcdf4(tmp_path / "a.nc", arrays, format, kind=kind, frame=frame, extra=extra)
    ours = opened(path)
    check(ours, arrays)
    np.testing.assert_allclose(ours.file.times()[0], arrays["time"], rtol=1e-7)
    ours[N_FRAMES - 1]
    assert pickle.loads(pickle.dumps(ours)).ts.time == ours.ts.time


def check(ours, arrays):
    """Check that a reader returns these numbers, in MDAnalysis's units."""
    for frame, found in enumerate(frames(ours)):
        assert found["time"] == pytest.approx(arrays["time"][frame])
        for name, expected in (
            ("positions", arrays["coordinates"][frame]),
            ("velocities", arrays["velocities"][frame]),
            ("forces", 4.184 * arrays["forces"][frame]),
            ("dimensions", np.r_[arrays["cell_lengths"][frame], arrays["cell_angles"][frame]]),
        ):
            np.testing.assert_allclose(found[name], expected, rtol=3e-7, err_msg=name)
    assert ours.n_frames == len(arrays["time"])


@pytest.mark.parametrize("format", FORMATS)
def test_a_lone_variable_of_records_is_not_padded(tmp_path, format):
    arrays = {"coordinates": values()["coordinates"]}
    path = write_netcdf4(tmp_path / "a.nc", arrays, format)
    with pytest.warns(PacelineWarning, match="no times"):
        ours = Reader(path)
    assert ours.dt == 1.0
    found = [frame["positions"] for frame in frames(ours)]
    np.testing.assert_array_equal(found, np.float32(arrays["coordinates"]))
    assert [ts.time for ts in ours] == [0, 1, 2, 3, 4]
    ours = opened(path, dt=0.5, time_offset=10.0)
    assert [ts.time for ts in ours] == [10, 10.5, 11, 11.5, 12]


def test_restart_files(tmp_path):
    arrays = values()
    path = write_scipy(tmp_path / "a.ncrst", arrays, restart=True, scale=AMBER)
    (found,) = frames(opened(path))
    np.testing.assert_array_equal(found["positions"], np.float32(arrays["coordinates"][0]))
    np.testing.assert_array_equal(found["velocities"], np.float32(arrays["velocities"][0] * 20.455))
    assert found["time"] == arrays["time"][0]


def test_files_of_mdtraj(tmp_path):
    arrays = {name: np.float32(v) for name, v in values().items()}
    with mdtraj.formats.NetCDFTrajectoryFile(str(tmp_path / "a.nc"), "w") as file:
        file.write(*(arrays[k] for k in ("coordinates", "time", "cell_lengths", "cell_angles")))
    ours = opened(tmp_path / "a.nc")
    assert_same(ours, NCDFReader(tmp_path / "a.nc"))
    np.testing.assert_array_equal(frames(ours)[2]["positions"], arrays["coordinates"][2])
    with mdtraj.formats.AmberNetCDFRestartFile(str(tmp_path / "b.ncrst"), "w") as file:
        file.write(*(arrays[k][1] for k in ("coordinates", "time", "cell_lengths", "cell_angles")))
    ours = opened(tmp_path / "b.ncrst")
    np.testing.assert_array_equal(ours.ts.positions, arrays["coordinates"][1])
    np.testing.assert_array_equal(ours.ts.dimensions[:3], arrays["cell_lengths"][1])


def test_files_of_mdanalysis_with_all_fields(tmp_path):
    universe = MDAnalysis.Universe(DATA / "Amber/ace_tip3p.parm7", DATA / "Amber/ace_tip3p.nc")
    path = tmp_path / "a.ncdf"
    with MDAnalysis.Writer(str(path), len(universe.atoms), velocities=True, forces=True) as writer:
        for _ in universe.trajectory:
            writer.write(universe)
    assert_same(opened(path), NCDFReader(path))


@pytest.mark.parametrize("claimed", [0, 3, 9, -1])
def test_frames_are_counted_by_the_files_size(tmp_path, claimed):
    path = write_scipy(tmp_path / "a.nc", values())
    content = bytearray(path.read_bytes())
    content[4:8] = claimed.to_bytes(4, "big", signed=True)
    path.write_bytes(content)
    if claimed == -1:
        assert opened(path).n_frames == N_FRAMES
        return
    with pytest.warns(PacelineWarning, match=f"header says {claimed} frames, the file has 5"):
        assert Reader(path).n_frames == N_FRAMES


@pytest.mark.filterwarnings("ignore:.*the header says")
@pytest.mark.filterwarnings("ignore:.*is cut")
def test_a_cut_file_keeps_its_whole_frames(tmp_path):
    path = write_scipy(tmp_path / "a.nc", values())
    whole = frames(opened(path))
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    with pytest.warns(PacelineWarning, match=r"frame 4 \(byte \d+\) is cut: 303 of 304 bytes"):
        ours = Reader(path)
    assert ours.n_frames == 4
    np.testing.assert_array_equal(frames(ours)[3]["forces"], whole[3]["forces"])
    path.write_bytes(content[: len(content) - 4 * RECORD - 1])
    with pytest.raises(UnsupportedError, match="found none"):
        Reader(path)


def test_arrays_that_are_cut_keep_the_frames_of_which_all_is_there(tmp_path):
    path = write_scipy(tmp_path / "a.nc", values(), frame=N_FRAMES)
    whole = frames(opened(path))
    content = path.read_bytes()
    # The times are at the end, 4 bytes each.
    path.write_bytes(content[:-7])
    with pytest.warns(PacelineWarning, match="the header says 5 frames, the file has 3"):
        ours = Reader(path)
    for one, other in zip(frames(ours), whole[:3], strict=True):
        np.testing.assert_array_equal(one["velocities"], other["velocities"])
        np.testing.assert_array_equal(one["dimensions"], other["dimensions"])


@pytest.mark.filterwarnings("ignore:.*the header says")
def test_every_cut_of_the_header_is_an_error(tmp_path):
    path = write_scipy(tmp_path / "a.nc", values(1))
    content = path.read_bytes()
    for size in range(4, len(content) - RECORD, 7):
        path.write_bytes(content[:size])
        with pytest.raises((DamagedFileError, UnsupportedError), match=r"a\.nc: "):
            Reader(path)


def test_an_empty_trajectory_is_refused(tmp_path):
    path = write_scipy(tmp_path / "a.nc", values(0))
    with pytest.raises(UnsupportedError, match="expected at least one complete frame, found none"):
        opened(path)


def test_a_growing_file_is_still_the_same(tmp_path):
    path = write_scipy(tmp_path / "a.nc", values(9))
    content = path.read_bytes()
    short = bytearray(content[: len(content) - 4 * RECORD])
    short[4:8] = (5).to_bytes(4, "big")
    path.write_bytes(short)
    reader = opened(path)
    path.write_bytes(content)
    reader.file.verify()
    assert pickle.loads(pickle.dumps(reader)).n_frames == 9
    path.write_bytes(content[:-9999])
    with pytest.raises(FileChangedError):
        reader.file.verify()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"units": UNITS | {"coordinates": "furlong"}}, 'units of angstrom, found "furlong"'),
        ({"units": UNITS | {"cell_angles": "percent"}}, 'units of degree, found "percent"'),
        ({"kind": "i4"}, r'"coordinates" as float or double, found type 4'),
        (
            {"scale": {"coordinates": np.int32(3)}},
            'finite float or double as scale_factor of "coordinates"',
        ),
    ],
)
def test_what_is_not_read_is_refused_by_name(tmp_path, change, message):
    path = write_scipy(tmp_path / "a.nc", values(), **change)
    with pytest.raises(UnsupportedError, match=message):
        Reader(path)


@pytest.mark.parametrize("writer", [write_scipy, partial(write_netcdf4, format="NETCDF4")])
@pytest.mark.parametrize("kind", ["f4", "f8"])
@pytest.mark.parametrize("units", OTHER_UNITS, ids=lambda units: units["coordinates"])
def test_other_units_are_converted(tmp_path, writer, kind, units):
    """Check conversion in single precision, as in MDAnalysis; times are in double precision."""
    arrays = values()
    amber = frames(opened(writer(tmp_path / "amber.nc", arrays, kind=kind)))
    factors = {name: FACTORS[unit] for name, unit in units.items()}
    others = {name: array / factors[name] for name, array in arrays.items()}
    found = frames(opened(writer(tmp_path / "a.nc", others, kind=kind, units=units)))
    for one, other in zip(found, amber, strict=True):
        for name, numbers in one.items():
            np.testing.assert_allclose(numbers, other[name], rtol=3e-7, atol=1e-30)


def test_units_are_converted_alike_in_netcdf_3_and_4(tmp_path):
    paths = tmp_path / "3.nc", tmp_path / "4.nc"
    write_scipy(paths[0], values(), units=OTHER_UNITS[0], scale=AMBER)
    write_netcdf4(paths[1], values(), "NETCDF4", units=OTHER_UNITS[0], scale=AMBER)
    assert_same(*map(opened, paths))


@pytest.mark.parametrize("writer", [write_scipy, partial(write_netcdf4, format="NETCDF4")])
@pytest.mark.parametrize("frame", [None, 1])
def test_one_time_of_one_frame(tmp_path, writer, frame):
    """Check a time with its own dimension, which is not that of frames. MDAnalysis reads it."""
    arrays = values(1)
    time = arrays.pop("time")
    path = tmp_path / "a.nc"
    writer(path, arrays, frame=frame)
    file = add_time(path, time)
    assert [ts.time for ts in opened(path)] == pytest.approx(time)
    if file == "NETCDF3":
        with NCDFReader(path) as theirs:
            assert [ts.time for ts in theirs] == [ts.time for ts in opened(path)]
            np.testing.assert_array_equal(theirs[0].positions, opened(path)[0].positions)
            np.testing.assert_array_equal(theirs[0].dimensions, opened(path)[0].dimensions)


@pytest.mark.parametrize("frame", [None, N_FRAMES])
def test_one_time_of_several_frames_is_left_out(tmp_path, frame):
    arrays = values()
    time = arrays.pop("time")
    path = write_scipy(tmp_path / "a.nc", arrays, frame=frame)
    add_time(path, time[:1])
    with pytest.warns(
        PacelineWarning, match=r'left out: .*dimensions \(frame\) of "time", found \(one 1\)'
    ):
        assert [ts.time for ts in Reader(path, dt=2.0)] == [0, 2, 4, 6, 8]


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("time", {"units": UNITS | {"time": "steps"}}, 'in units of picosecond, found "steps"'),
        ("time", {"scale": {"time": np.float64(np.nan)}}, 'scale_factor of "time"'),
        ("forces", {"units": UNITS | {"forces": "lj"}}, 'angstrom, found "lj"'),
        ("forces", {"scale": {"forces": np.int32(3)}}, 'scale_factor of "forces"'),
        ("velocities", {"units": UNITS | {"velocities": "?"}}, 'picosecond, found "\\?"'),
    ],
)
def test_variables_that_cannot_be_read_are_left_out(tmp_path, name, change, words):
    whole = opened(write_scipy(tmp_path / "b.nc", values()))
    path = write_scipy(tmp_path / "a.nc", values(), **change)
    with pytest.warns(PacelineWarning) as caught:
        ours = Reader(path)
    said = [str(one.message) for one in caught]
    assert re.search(rf'a\.nc: "{name}" cannot be read, and is left out: .*{words}', said[0])
    assert len(said) == 1 + (name == "time")
    for one, other in zip(ours, whole, strict=True):
        np.testing.assert_array_equal(one.positions, other.positions)
        assert one.has_forces == (name != "forces")
        assert one.has_velocities == (name != "velocities")
    assert ours[4].time == (4 if name == "time" else whole[4].time)


def test_units_in_parentheses(tmp_path):
    change = {"units": UNITS | {"forces": "(Kcal/mol)/angstrom"}}
    path = write_scipy(tmp_path / "a.nc", values(), **change)
    np.testing.assert_array_equal(
        opened(path).ts.forces, opened(write_scipy(tmp_path / "b.nc", values())).ts.forces
    )


def test_times_that_were_never_written(tmp_path):
    unwritten = values() | {"time": np.full(N_FRAMES, 9.96921e36)}
    path = write_scipy(tmp_path / "a.nc", unwritten)
    words = (
        "not known: the file has a variable for times, but no time was written; its frames count"
    )
    with pytest.warns(PacelineWarning, match=words):
        assert [ts.time for ts in Reader(path)] == [0, 1, 2, 3, 4]
    assert [ts.time for ts in opened(path, dt=0.5)] == [0, 0.5, 1, 1.5, 2]


def add_time(path, time):
    """Add a time without the dimension of frames; return the kind of file."""
    netcdf4 = pytest.importorskip("netCDF4")
    with netcdf4.Dataset(path, "a") as file:
        file.createDimension("one", 1)
        variable = file.createVariable("time", "f4", ("one",))
        variable.units = "picosecond"
        variable[:] = time
        return file.data_model[:7]


def test_missing_units_are_ambers(tmp_path):
    arrays = values()
    check(opened(write_scipy(tmp_path / "a.nc", arrays, units={})), arrays)


def test_other_netcdf_files_are_refused_by_name(tmp_path):
    path = tmp_path / "a.nc"
    with netcdf_file(path, "w") as file:
        file.Conventions = "CF-1.6"
        file.createDimension("frame", None)
    with pytest.raises(UnsupportedError, match=r'names AMBER or AMBERRESTART, found "CF-1\.6"'):
        Reader(path)
    with netcdf_file(path, "w") as file:
        file.Conventions = "AMBER"
        file.createDimension("frame", None)
        file.createDimension("atom", 4)
    with pytest.raises(UnsupportedError, match='expected a dimension "spatial" of 3, found none'):
        Reader(path)
    arrays = {name: v for name, v in values().items() if name != "cell_angles"}
    with pytest.raises(UnsupportedError, match='both "cell_lengths" and "cell_angles"'):
        Reader(write_scipy(path, arrays))


def test_replicas_in_one_file_are_refused_by_name(tmp_path):
    with netcdf_file(tmp_path / "a.nc", "w") as file:
        file.Conventions = "AMBER"
        for name, size in (("frame", None), ("ensemble", 2), ("atom", 4), ("spatial", 3)):
            file.createDimension(name, size)
        file.createVariable("coordinates", "f4", ("frame", "ensemble", "atom", "spatial"))
    message = r"\(frame, atom, spatial\) .* found \(frame, ensemble 2, atom 4, spatial 3\)"
    with pytest.raises(UnsupportedError, match=message):
        Reader(tmp_path / "a.nc")


SYSTEMS = {
    "NCDF": (datafiles.PRMncdf, datafiles.NCDF),
    "truncated octahedron": (datafiles.PRM_NCBOX, datafiles.TRJ_NCBOX),
    "forces": (datafiles.PFncdf_Top, datafiles.PFncdf_Trj),
}


@pytest.mark.parametrize("name", SYSTEMS)
def test_analyses(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error", PacelineWarning)
        warnings.filterwarnings("ignore", ".* have the same time, 0 ps", PacelineWarning)
        ours = paceline.Universe(*SYSTEMS[name])
        theirs = MDAnalysis.Universe(*SYSTEMS[name])
        assert isinstance(ours.trajectory, Reader)
        result = RMSD(ours, select="not name H*").run().results.rmsd
        # Paceline decodes the file of MDAnalysis's own reader.
        again = RMSD(theirs, select="not name H*").run().results.rmsd
    np.testing.assert_array_equal(result, again)
    expected = rms.RMSD(theirs, select="not name H*").run().results.rmsd
    np.testing.assert_array_equal(result[:, :2], expected[:, :2])
    np.testing.assert_allclose(result[:, 2], expected[:, 2], atol=2e-5)


def test_every_backend(where):
    protein = paceline.Universe(*SYSTEMS["NCDF"]).select_atoms("protein")
    expected = RMSD(protein).run(backend="serial").results.rmsd
    np.testing.assert_array_equal(RMSD(protein).run(**where).results.rmsd, expected)


def test_motion_on_blocks():
    universe = paceline.Universe(datafiles.PRM_NCBOX, datafiles.TRJ_NCBOX)
    theirs = MDAnalysis.Universe(datafiles.PRM_NCBOX, datafiles.TRJ_NCBOX)
    atoms = universe.select_atoms("name O")

    def of(name):
        expected = [getattr(theirs.trajectory[k], name)[atoms.indices] for k in range(10)]
        series = paceline.TimeSeries(lambda block: getattr(block, name), atoms, fields=[name])
        np.testing.assert_array_equal(series.run().results.timeseries, expected)

    of("velocities")
    of("forces")


def test_content_counts_and_not_the_name(tmp_path):
    copied = shutil.copy(datafiles.NCDF, tmp_path / "a.rst7")
    universe = paceline.Universe(datafiles.PRMncdf, copied)
    assert isinstance(universe.trajectory, Reader)
    assert universe.trajectory.format == "NCDF"
    assert universe.trajectory.n_frames == 30


def written(path, fields=7, has_cell=True):
    """Write a file with paceline; return it and its numbers in MDAnalysis's units, float32."""
    arrays = {name: np.float32(v) for name, v in values().items()}
    names = ("coordinates", "velocities", "forces")
    moved = [arrays[name] if fields >> k & 1 else None for k, name in enumerate(names)]
    cells = np.concatenate([arrays["cell_lengths"], arrays["cell_angles"]], axis=1) * has_cell
    encoder = paceline._core.Encoder("NetCDF", N_ATOMS, None, has_cell, fields)
    moments = np.float64(arrays["time"]), np.arange(N_FRAMES), np.zeros(N_FRAMES, np.float32)
    rows = paceline._core.cells_of_dimensions(cells.astype(np.float32))
    data = encoder.encode((*moved, rows, *moments))
    path.write_bytes(encoder.head(N_FRAMES, 100.25, 0.1, 0, 1) + data)
    return moved, cells, arrays["time"]


@pytest.mark.parametrize("has_cell", [True, False])
@pytest.mark.parametrize("fields", [1, 3, 5, 7])
def test_ours_is_read_by_mdanalysis(tmp_path, fields, has_cell):
    path = tmp_path / "a.nc"
    moved, cells, times = written(path, fields, has_cell)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        theirs = NCDFReader(path)
    assert_same(opened(path), theirs)
    for k, found in enumerate(frames(theirs)):
        assert found["time"] == times[k]
        np.testing.assert_array_equal(found["positions"], moved[0][k])
        for name, expected in zip(("velocities", "forces"), moved[1:], strict=True):
            assert (found[name] is None) == (expected is None)
            if expected is not None:
                np.testing.assert_allclose(found[name], expected[k], rtol=2e-7)
        if has_cell:
            np.testing.assert_array_equal(found["dimensions"], cells[k])
        else:
            assert found["dimensions"] is None


def test_ours_is_read_by_mdtraj_scipy_and_the_netcdf_library(tmp_path):
    path = tmp_path / "a.nc"
    moved, cells, times = written(path)
    with mdtraj.formats.NetCDFTrajectoryFile(str(path)) as file:
        found = file.read()
    for one, other in zip(found, (moved[0], times, cells[:, :3], cells[:, 3:]), strict=True):
        np.testing.assert_array_equal(one, other)
    labels = [b"x", b"y", b"z"], [b"a", b"b", b"c"]
    angles = [list(b"alpha"), list(b"beta "), list(b"gamma")]
    netcdf4 = pytest.importorskip("netCDF4")
    with netcdf_file(path, maskandscale=False, mmap=False) as file, netcdf4.Dataset(path) as other:
        assert other.data_model == "NETCDF3_64BIT_OFFSET"
        assert len(other.dimensions["frame"]) == N_FRAMES
        other.set_auto_maskandscale(False)
        assert file.variables.keys() == other.variables.keys()
        for name, variable in file.variables.items():
            np.testing.assert_array_equal(variable[...], other[name][...])
            assert getattr(variable, "units", b"").decode() == getattr(other[name], "units", "")
        assert [file.variables[n][:].tolist() for n in ("spatial", "cell_spatial")] == [*labels]
        assert file.variables["cell_angular"][:].view(np.uint8).tolist() == angles
        velocities = other["velocities"][...] * np.float64(other["velocities"].scale_factor)
    np.testing.assert_allclose(velocities, moved[1], rtol=2e-7)
