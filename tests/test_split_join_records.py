"""Tests of split and joined NetCDF and H5MD trajectories: data and metadata are kept."""

import os
import shutil
import warnings
from pathlib import Path

import h5py
import MDAnalysis
import numpy as np
import pytest
from helpers.h5md_files import numbers, write_gromacs, write_lammps, write_simple
from helpers.netcdf_files import FORMATS, fill, values, write_netcdf4, write_scipy
from MDAnalysisTests import datafiles
from scipy.io import netcdf_file

import paceline
from paceline import cli
from paceline.errors import DamagedFileError, PacelineWarning, UnsupportedError

FIELDS = ("coordinates", "velocities", "forces", "cell_lengths", "cell_angles", "time")
#: Frames of the files that are split, and frames of each piece.
N, FRAMES = 7, [2, 2, 3]


@pytest.fixture
def quiet():
    """Turn warnings of paceline into errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", PacelineWarning)
        yield


def visible(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


# NetCDF.


def write_rich(path: Path, version: int = 2, *, title="two words, and more", axis=b"z") -> Path:
    """Write Amber's variables, scale factor, title, labels of an axis, variables of replicas."""
    with netcdf_file(path, "w", version=version, maskandscale=False) as file:
        fill(file, values(N), scale={"velocities": np.float64(20.455)})
        file.title, file.program = title, "pmemd"
        file.createVariable("spatial", "S1", ("spatial",))[:] = [b"x", b"y", axis]
        file.createVariable("remd_dimtype", "i4", ("frame",))[:N] = np.arange(N)
        file.createVariable("overall_time", "f8", ("frame",))[:N] = np.arange(N) * 0.3
    return path


def all_of(path: Path) -> tuple[dict, dict]:
    """Return the attributes, and the bytes and attributes of all variables, as scipy reads them."""
    with netcdf_file(path, "r", mmap=False, maskandscale=False) as file:
        variables = {
            name: (
                one[...].copy().tolist() if one.shape == () else one[:].tobytes(),
                one.dimensions,
                dict(one._attributes),
            )
            for name, one in file.variables.items()
        }
        return dict(file._attributes), variables


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("version", [1, 2])
def test_netcdf_pieces_are_whole_files_and_give_the_original_bytes(version, tmp_path):
    path = write_rich(tmp_path / "md.nc", version)
    pieces = paceline.split(path, 3)
    assert [piece.name for piece in pieces] == ["md.000.nc", "md.001.nc", "md.002.nc"]
    attributes, whole = all_of(path)
    first = 0
    for piece, n in zip(pieces, FRAMES, strict=True):
        found_attributes, found = all_of(piece)
        assert found_attributes == attributes
        assert found.keys() == whole.keys()
        for name, (data, dimensions, of_variable) in whole.items():
            size = len(data) // N if dimensions[:1] == ("frame",) else len(data)
            here = data[first * size : (first + n) * size] if "frame" in dimensions else data
            assert found[name] == (here, dimensions, of_variable), name
        first += n
    assert paceline.join(pieces, tmp_path / "again.nc").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("format", FORMATS)
def test_netcdf4_and_mdanalysis_read_netcdf_pieces(format, tmp_path):
    netcdf4 = pytest.importorskip("netCDF4")
    arrays = values(N)
    path = write_netcdf4(tmp_path / "md.ncdf", arrays, format)
    pieces = paceline.split(path, 3)
    assert pieces[2].name == "md.002.ncdf"
    for name in FIELDS:
        found = [netcdf4.Dataset(piece)[name][:] for piece in pieces]
        np.testing.assert_array_equal(np.concatenate(found), netcdf4.Dataset(path)[name][:])
    assert paceline.join(pieces, tmp_path / "again.nc").read_bytes() == path.read_bytes()
    if format == "NETCDF3_64BIT_OFFSET":  # MDAnalysis reads only this format
        reader = MDAnalysis.coordinates.TRJ.NCDFReader
        whole = [(ts.positions.copy(), ts.time) for ts in reader(str(path))]
        found = [(ts.positions.copy(), ts.time) for one in pieces for ts in reader(str(one))]
        np.testing.assert_equal(found, whole)


@pytest.mark.filterwarnings("ignore:.*are not later")
def test_a_published_netcdf_file_is_cut_and_joined(tmp_path):
    path = Path(shutil.copy(datafiles.NCDF, tmp_path / "md.nc"))
    pieces = paceline.split(path, 2)
    assert paceline.join(pieces, tmp_path / "all.nc").read_bytes() == path.read_bytes()


def test_netcdf_parts_that_do_not_fit_are_refused_by_name(tmp_path):
    path = write_rich(tmp_path / "md.nc")
    output = tmp_path / "all.nc"
    for change, message in (
        (
            lambda p: write_scipy(p, values(N), 2),
            'variable velocities float .*"angstrom/picosecond',
        ),
        (lambda p: write_rich(p, 1), "version CDF-2 and CDF-1"),
        (lambda p: write_rich(p, axis=b"w"), r'variable spatial char .* = "xyz" and .* = "xyw"'),
        (lambda p: write_scipy(p, values(N, 8), 2), "atoms 7 and 8; dimension atom 7 and 8"),
    ):
        other = change(tmp_path / "other.nc")
        message = rf"md.nc and {other} cannot be joined: .*{message}"
        with pytest.raises(UnsupportedError, match=message):
            paceline.join([path, other], output)
    other = write_rich(tmp_path / "other.nc", title="another")
    with pytest.warns(PacelineWarning) as told:
        paceline.join([path, other], output)
    assert 'attribute title "two words, and more" and "another"' in str(told[0].message)
    assert "7 of 7 frames are not later than" in str(told[1].message)
    assert all_of(output)[0] == all_of(path)[0]


def test_netcdf_frames_that_are_no_records_are_refused(tmp_path):
    path = write_scipy(tmp_path / "fixed.nc", values(N), 2, frame=N)
    for work in (lambda: paceline.split(path, 2), lambda: paceline.join([path], tmp_path / "a.nc")):
        with pytest.raises(
            UnsupportedError, match=r"fixed.nc: its frames are not records but part"
        ):
            work()
    assert visible(tmp_path) == ["fixed.nc"]


def test_damaged_netcdf_frames_are_not_passed_on(tmp_path):
    path = write_rich(tmp_path / "md.nc")
    with netcdf_file(path, "a", maskandscale=False) as file:
        file.variables["cell_lengths"][4] = np.inf
    with pytest.raises(DamagedFileError, match=r"frame 4, .*nothing was written"):
        paceline.split(path, 2)
    assert visible(tmp_path) == ["md.nc"]


# H5MD.


def contents(path: Path) -> dict[str, tuple]:
    """Return all of an HDF5 file: attributes; type, chunks, filters and bytes of datasets."""
    found = {}

    def add(name, node):
        attrs = {key: np.asarray(value).tolist() for key, value in node.attrs.items()}
        if isinstance(node, h5py.Dataset):
            storage = node.chunks, node.compression, node.compression_opts, node.shuffle
            values = node[()]
            found[name] = (
                attrs,
                str(node.dtype),
                storage,
                node.maxshape,
                np.asarray(values).tolist(),
            )
        else:
            found[name] = (attrs,)

    with h5py.File(path, "r") as file:
        found["/"] = ({key: str(value) for key, value in file.attrs.items()},)
        file.visititems(add)
        found["steps of the box are those of the positions"] = (
            "particles/atoms/box/edges/step" in file
            and file["particles/atoms/box/edges/step"] == file["particles/atoms/position/step"]
        )
    return found


STORAGE = {
    "contiguous": {},
    "frames": {"chunks": (1, 9, 3), "maxshape": (None, 9, 3)},
    "some": {"chunks": (2, 4, 3), "maxshape": (None, 9, 3), "compression": "gzip", "shuffle": True},
    "automatic": {"chunks": (4, 5, 1), "maxshape": (None, 9, 3), "compression": "lzf"},
    "checked": {"chunks": (4, 9, 3), "maxshape": (None, None, None), "fletcher32": True},
    "fixed": {"chunks": (3, 9, 3), "maxshape": (N, 9, 3), "compression": "gzip"},
}


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize(
    ("storage", "dtype"), [*((one, "<f4") for one in STORAGE), ("some", ">f4"), ("some", "<f8")]
)
def test_h5md_pieces_have_all_metadata_and_give_the_original(storage, dtype, tmp_path):
    held = numbers(N)._asdict()
    path = write_simple(tmp_path / "md.h5md", dtype=dtype, **held, **STORAGE[storage])
    with h5py.File(path, "a") as file:
        file["particles/atoms/species"] = np.arange(9)
        file["particles/atoms/position/value"].attrs["note"] = "bits"
        file["parameters/run"] = "one"
        file["observables/energy/value"] = np.arange(N) * 0.1
        file["observables/energy/step"] = file["particles/atoms/position/step"]
        # These data are sampled twice as often, with separate steps.
        file["observables/rare/value"] = np.arange(2 * N)
        file["observables/rare/step"] = 250 * np.arange(2 * N)
    pieces = paceline.split(path, 3)
    whole = contents(path)
    first = 0
    for piece, n in zip(pieces, FRAMES, strict=True):
        found = contents(piece)
        assert found.keys() == whole.keys()
        for name in ("position", "velocity", "force", "box/edges"):
            found_values = found[f"particles/atoms/{name}/value"]
            attrs, kind, _, _, rows = whole[f"particles/atoms/{name}/value"]
            assert (found_values[0], found_values[1]) == (attrs, kind)
            assert found_values[4] == rows[first : first + n]
        assert found["observables/rare/value"][4] == list(range(2 * first, 2 * (first + n)))
        assert found["particles/atoms/species"] == whole["particles/atoms/species"]
        first += n
    again = paceline.join(pieces, tmp_path / "again.h5md")
    assert contents(again) == whole
    for reader in (MDAnalysis.coordinates.H5MD.H5MDReader,):
        frames = [(ts.positions.copy(), ts.time) for ts in reader(str(path))]
        found = [(ts.positions.copy(), ts.time) for one in pieces for ts in reader(str(one))]
        np.testing.assert_equal(found, frames)


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("n_frames", [6, 7])  # whole chunks, or a last one that is not
def test_parts_of_other_compressions_are_joined(n_frames, tmp_path):
    kinds = [
        {},
        {"compression": "gzip"},
        {"compression": "gzip", "compression_opts": 0},
        {"compression": "gzip", "shuffle": True},
        {"compression": "lzf"},
        {"shuffle": True},
    ]
    first, second = numbers(n_frames)._asdict(), numbers(5, seed=4)._asdict()
    for name in ("step", "time"):
        second[name] = second[name] + first[name][-1] + first[name][1]
    expected = np.concatenate([one["position"] for one in (first, second)]).astype(np.float32)
    parts = tmp_path / "a.h5md", tmp_path / "b.h5md"
    for one, other in zip(kinds, [*kinds[1:], {}], strict=True):
        for path, held, kind in zip(parts, (first, second), (one, other), strict=True):
            write_simple(path, **held, chunks=(3, 9, 3), maxshape=(None, 9, 3), **kind)
        whole = paceline.join(parts, tmp_path / "whole.h5md", overwrite=True)
        with h5py.File(whole) as file:
            found = file["particles/atoms/position/value"]
            np.testing.assert_array_equal(found[()], expected, err_msg=f"{one}, {other}")
            assert (found.compression, found.shuffle) == (
                one.get("compression"),
                one.get("shuffle", False),
            )


@pytest.mark.filterwarnings("ignore:.*were never written")
def test_chunks_never_written_keep_their_number(tmp_path):
    parts = tmp_path / "a.h5md", tmp_path / "b.h5md"
    for k, path in enumerate(parts):
        held = numbers(4)._asdict()
        write_simple(path, **held | {"step": held["step"] + 2000 * k, "time": held["time"] + 4 * k})
        with h5py.File(path, "a") as file:
            position = file["particles/atoms/position"]
            written, attrs = position["value"][:2], dict(position["value"].attrs)
            del position["value"]
            layout = {"chunks": (2, 9, 3), "maxshape": (None, 9, 3), "fillvalue": k}
            position.create_dataset("value", (4, 9, 3), "f4", **layout)[:2] = written
            position["value"].attrs.update(attrs)
    with h5py.File(paceline.join(parts, tmp_path / "all.h5md")) as file:
        found = file["particles/atoms/position/value"]
        np.testing.assert_array_equal(found[[2, 3, 6, 7], 0, 0], [0, 0, 1, 1])


@pytest.mark.filterwarnings("ignore:.*was sampled at other steps")
@pytest.mark.parametrize("kind", [{}, {"compression": "gzip"}])
def test_pieces_without_samples_of_an_element_are_joined(kind, tmp_path):
    held = numbers(N)._asdict()
    path = write_simple(tmp_path / "md.h5md", **held)
    with h5py.File(path, "a") as file:
        layout = {"chunks": (2, 9, 3), "maxshape": (None, 9, 3), **kind}
        rare = file.create_group("observables/rare")
        rare.create_dataset("value", data=np.arange(54.0).reshape(2, 9, 3), **layout)
        rare["step"] = held["step"][[0, 5]]
    pieces = paceline.split(path, N)
    assert len(h5py.File(pieces[1])["observables/rare/step"]) == 0
    assert contents(paceline.join(pieces, tmp_path / "all.h5")) == contents(path)


@pytest.mark.filterwarnings("ignore:.*was sampled at other steps")
def test_elements_of_other_steps_go_with_their_frames(tmp_path):
    held = numbers(N)
    path = write_gromacs(tmp_path / "md.h5md", held)
    pieces = paceline.split(path, 3)
    with h5py.File(path) as whole:
        velocities, steps = (whole[f"particles/system/velocity/{x}"][:] for x in ("value", "step"))
    found = [h5py.File(piece)["particles/system/velocity"] for piece in pieces]
    assert [one["step"][:].tolist() for one in found] == [[0], [1000], [2000, 3000]]
    np.testing.assert_array_equal(np.concatenate([one["value"][:] for one in found]), velocities)
    assert len(steps) == 4
    assert contents(paceline.join(pieces, tmp_path / "all.h5")) == contents(path)


@pytest.mark.filterwarnings("ignore:.*the header says")
@pytest.mark.parametrize("compress", ["shuffle+zstd:3", "lz4", "gzip:2"])
def test_chunks_that_hdf5_cannot_decode_are_cut_and_joined(compress, adk, tmp_path):
    path = tmp_path / "md.h5md"
    atoms = paceline.Universe(*adk).select_atoms("name CA")
    paceline.Write(atoms, path, compress=compress, chunk="4x100").run(stop=21)
    pieces = paceline.split(path, 3, output=tmp_path / "part.h5")
    expected = paceline.open(path).positions()
    found = [paceline.open(piece).positions() for piece in pieces]
    np.testing.assert_array_equal(np.concatenate(found), expected)
    whole = paceline.join(pieces, tmp_path / "whole.h5md")
    np.testing.assert_array_equal(paceline.open(whole).positions(), expected)
    with h5py.File(path) as one, h5py.File(whole) as other:
        name = "particles/trajectory/position/value"
        assert [one[name].id.get_create_plist().get_filter(k)[0] for k in range(1)] == [
            other[name].id.get_create_plist().get_filter(k)[0] for k in range(1)
        ]


def test_increments_go_on_in_the_pieces(tmp_path):
    path = write_simple(tmp_path / "md.h5md", **numbers(N)._asdict())
    with h5py.File(path, "a") as file:
        for name in ("position", "velocity", "force", "box/edges"):
            element = file[f"particles/atoms/{name}"]
            del element["step"], element["time"]
        position = file["particles/atoms/position"]
        position["step"], position["time"] = 500, 1.25
        position["step"].attrs["offset"], position["time"].attrs["unit"] = 100, "ps"
        for name in ("velocity", "force", "box/edges"):
            for axis in ("step", "time"):
                file[f"particles/atoms/{name}/{axis}"] = position[axis]
    one, two, three = paceline.split(path, 3)
    with h5py.File(two) as file:
        step, time = (file[f"particles/atoms/position/{axis}"] for axis in ("step", "time"))
        assert (step[()], step.attrs["offset"], time.attrs["offset"]) == (500, 1100, 2.5)
    trajectory = paceline.open(path)
    assert [*paceline.open(two).times, *paceline.open(three).times] == list(trajectory.times[2:])
    assert contents(paceline.join([one, two, three], tmp_path / "all.h5md")) == contents(path)
    with pytest.raises(UnsupportedError, match=r"002.h5md: .*/time is .*at 2.5; .* found 5:"):
        paceline.join([one, three], tmp_path / "all.h5md", overwrite=True)


def test_a_group_of_several_and_units_of_a_file_without_are_given(tmp_path, capsys):
    path = write_lammps(tmp_path / "md.h5", numbers(N))
    with h5py.File(path, "a") as file:
        file.copy(file["particles/all"], file["particles"], "solvent")
    assert cli.main(["split", str(path), "-n", "2"]) == 2
    assert "choose one with --particles: 'all', 'solvent'" in capsys.readouterr().err
    chosen = {"group": "solvent", "units": "nm, ps"}
    options = ["--particles", "solvent", "--units", "nm, ps"]
    assert cli.main(["split", str(path), "-n", "2", *options]) == 0
    pieces = capsys.readouterr().out.split()
    for name in ("all", "solvent"):
        rows = [h5py.File(piece)[f"particles/{name}/charge/value"].shape[0] for piece in pieces]
        assert rows == [3, 4]
    assert contents(paceline.join(pieces, tmp_path / "all.h5", **chosen)) == contents(path)


def test_h5md_parts_that_do_not_fit_are_refused_by_name(tmp_path):
    one = write_simple(tmp_path / "one.h5md", **numbers(N)._asdict())
    later = numbers(N)
    later = later._replace(step=later.step + 500 * N, time=later.time + N)._asdict()
    output = tmp_path / "all.h5md"

    def other(change=None, **changes) -> Path:
        path = write_simple(tmp_path / "other.h5md", **(later | changes))
        if change is not None:
            with h5py.File(path, "a") as file:
                change(file)
        return path

    def unit(file):
        file["particles/atoms/position/value"].attrs["unit"] = "nm"

    def species(file):
        file["particles/atoms/species"] = np.arange(9)

    for make, message in (
        (lambda: other(force=None), "/particles/atoms/force/value samples of float32 .* missing"),
        (lambda: other(dtype="f8"), "position/value samples of float32 .* samples of float64"),
        (lambda: other(unit), "unit of /particles/atoms/position/value Angstrom and nm"),
        (lambda: other(species), "/particles/atoms/species missing and int64 of"),
        (lambda: other(boundary=("none",) * 3), "boundary of /particles/atoms/box .*periodic.* "),
    ):
        path = make().rename(tmp_path / "wrong.h5md")
        with pytest.raises(
            UnsupportedError, match=rf"{one} and {path} cannot be joined: .*{message}"
        ):
            paceline.join([one, path], output)
    with pytest.raises(
        UnsupportedError, match=r"frame 0 of .*one.h5md is of step 0, where .* 3000"
    ):
        paceline.join([one, one], output)
    paceline.join([one, other()], output)
    with pytest.warns(
        PacelineWarning, match=r"differ; the first are kept: .*creator .* and somebody"
    ):
        paceline.join(
            [one, other(lambda file: file["h5md/creator"].attrs.update(name="somebody"))],
            output,
            overwrite=True,
        )
    assert paceline.open(output).n_frames == 2 * N
    assert visible(tmp_path) == ["all.h5md", "one.h5md", "other.h5md", "wrong.h5md"]


def test_what_restarts_repeat_is_left_out_of_h5md(tmp_path):
    path = write_simple(tmp_path / "md.h5md", **numbers(N)._asdict())
    one, two = paceline.split(path, frames=4, output=tmp_path / "a.h5md")
    behind = paceline.split(path, 2, output=tmp_path / "b.h5md")[1]
    assert paceline.open(behind).n_frames + paceline.open(one).n_frames == N + 1
    whole = paceline.join([one, behind], tmp_path / "all.h5md", continuous=True)
    assert contents(whole) == contents(path)
    assert two.exists()


def test_other_hdf5_files_and_sizes_are_refused(tmp_path):
    netcdf4 = write_netcdf4(tmp_path / "four.nc", values(N), "NETCDF4")
    with pytest.raises(UnsupportedError, match=r"four.nc: frames of NetCDF-4 in HDF5 files cannot"):
        paceline.split(netcdf4, 2)
    path = write_simple(tmp_path / "md.h5md")
    with pytest.raises(UnsupportedError, match="sizes of H5MD pieces depend on HDF5: give n"):
        paceline.split(path, size=1000)
    with pytest.raises(ValueError, match=r"expected a name that ends in .h5md or .h5 or .hdf5"):
        paceline.join([path], tmp_path / "all.nc")


def test_the_commands_split_and_join_into_a_folder(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_rich(Path("md.nc"))
    write_simple(Path("md.h5md"))
    os.mkdir("pieces")
    for name in ("md.nc", "md.h5md"):
        assert cli.main(["split", name, "-n", "3", "-o", "pieces"]) == 0
        pieces = capsys.readouterr().out.split()
        assert len(pieces) == 3
        output = name.replace("md.", "all.")
        assert cli.main(["join", *pieces, "-o", output]) == 0
        before, after = paceline.open(name), paceline.open(output)
        np.testing.assert_array_equal(before.positions(), after.positions())
