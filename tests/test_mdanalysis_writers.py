"""Tests of MDAnalysis's writers with paceline registered: the same files, errors and warnings."""

import re
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import h5py
import MDAnalysis as mda
import numpy as np
import pytest
from MDAnalysis.analysis.align import AlignTraj
from MDAnalysis.coordinates.H5MD import H5MDWriter
from MDAnalysis.coordinates.XTC import XTCReader, XTCWriter
from MDAnalysisTests import datafiles
from numpy.testing import assert_allclose

import paceline
from paceline.mdanalysis import writers

ENDINGS = ("xtc", "trr", "dcd", "nc", "h5md")
SYSTEMS = {
    "adk": (datafiles.PSF, datafiles.DCD),
    "water": (datafiles.GRO, datafiles.XTC),
    "triclinic": (datafiles.PSF_TRICLINIC, datafiles.DCD_TRICLINIC),
    "xvf": (datafiles.TPR_xvf, datafiles.TRR_xvf),
}


@cache
def system(name: str) -> mda.Universe:
    return mda.Universe(*SYSTEMS[name])


def nothing(ts: object) -> None:
    """Leave a frame unchanged."""


def write(
    universe: mda.Universe,
    path: Path,
    *,
    select: str = "all",
    frames: slice = slice(6),
    change: Callable[[object], object] = nothing,
    of: Callable[[mda.AtomGroup, int], object] = lambda group, frame: group,
    **options: object,
) -> None:
    """Write frames, each after a change."""
    group = universe.select_atoms(select)
    with mda.Writer(str(path), group.n_atoms, **options) as writer:
        for k, ts in enumerate(universe.trajectory[frames]):
            change(ts)
            writer.write(of(group, k))


def both(name: str, folder: Path, ending: str, **asked: object) -> Iterator:
    """Write a file with MDAnalysis alone, and one with paceline registered.

    Yield the paths, the raised errors, and the registration.
    """
    theirs, ours = folder / f"theirs.{ending}", folder / f"ours.{ending}"
    errors = []
    for path in (theirs, ours):
        universe = system(name).copy()
        with paceline.register() if path is ours else warnings.catch_warnings() as registration:
            try:
                write(universe, path, **asked)
            except Exception as error:
                errors.append((type(error), str(error).replace(str(path), "")))
            else:
                errors.append(None)
    assert errors[0] == errors[1]
    return theirs, ours, errors[0], registration


def assert_same_file(theirs: Path, ours: Path) -> None:
    """Compare bytes; for HDF5, compare all groups, attributes, datasets and layouts."""
    if theirs.suffix != ".h5md":
        assert theirs.read_bytes() == ours.read_bytes()
        return
    with h5py.File(theirs) as a, h5py.File(ours) as b:
        assert tree_of(a) == tree_of(b)


def tree_of(file: h5py.File) -> dict[str, object]:
    found: dict[str, object] = {}

    def visit(name: str, one: object) -> None:
        attributes = {key: np.asarray(value).tolist() for key, value in one.attrs.items()}
        values = None
        if isinstance(one, h5py.Dataset):
            layout = one.chunks, one.compression, one.compression_opts, one.maxshape
            values = one.dtype.str, one.shape, layout, one[()].tobytes()
        found[name] = attributes, values

    file.visititems(visit)
    return found


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("select", ["all", "index 5:40"])
@pytest.mark.parametrize("name", SYSTEMS)
def test_files_of_real_systems_are_those_of_mdanalysis(name, select, ending, tmp_path) -> None:
    options = {"velocities": True, "forces": True} if (name, ending) == ("xvf", "nc") else {}
    asked = {"select": select, **options}
    theirs, ours, _, registration = both(name, tmp_path, ending, **asked)
    assert_same_file(theirs, ours)
    assert registration.left == []
    assert registration.written == ([] if ending == "dcd" else [str(ours)])
    assert ("encoded the frames of 1 traj" in registration.summary()) is (ending != "dcd")


@pytest.mark.parametrize(
    ("ending", "options"),
    [
        ("xtc", {"precision": 2, "dt": 0.5}),
        ("xtc", {"precision": 2.7}),
        ("trr", {"dt": 2}),
        ("dcd", {"dt": 2.5, "remarks": "a remark", "nsavc": 10, "istart": None}),
        ("nc", {"scale_coordinates": 2.0, "scale_time": 0.5, "remarks": "a remark"}),
        ("nc", {"convert_units": False, "velocities": True, "scale_velocities": 20.455}),
        ("h5md", {"chunks": (3, 100, 3), "compression": "gzip", "compression_opts": 2}),
        ("h5md", {"compression": "gzip"}),
        ("h5md", {"compression": "gzip", "compression_opts": 9}),
        ("h5md", {"compression": "gzip", "compression_opts": 0}),
        ("h5md", {"compression": "lzf"}),
        ("h5md", {"compression": "szip", "compression_opts": ("nn", 8)}),
        ("h5md", {"chunks": False, "n_frames": 3}),
        ("h5md", {"n_frames": 5, "author": "A", "author_email": "b", "creator": "c"}),
        ("h5md", {"velocities": False, "lengthunit": "pm", "timeunit": "fs"}),
        ("h5md", {"positions": False, "forceunit": "kcal/(mol*A)"}),
        ("h5md", {"convert_units": False}),
        ("h5md", {"driver": "core"}),
        ("h5md", {"driver": "stdio"}),
    ],
)
def test_options_are_those_of_mdanalysis(ending, options, tmp_path) -> None:
    theirs, ours, _, registration = both("xvf", tmp_path, ending, frames=slice(3), **options)
    assert_same_file(theirs, ours)
    assert registration.left == []


@pytest.mark.parametrize(
    ("ending", "options", "reason"),
    [
        ("xtc", {"convert_units": False}, "convert_units=False"),
        ("h5md", {"n_frames": 2}, "expected n_frames=2 frames at most"),
    ],
)
def test_options_that_are_left_to_mdanalysis(ending, options, reason, tmp_path) -> None:
    theirs, ours, _, registration = both("water", tmp_path, ending, **options)
    assert_same_file(theirs, ours)
    assert registration.left == [f"{ours}: {reason}"]
    assert f"left to MDAnalysis: {ours}: {reason}" in registration.summary()


def once(frame: int, change: Callable[[object], object]) -> Callable[[object], object]:
    """Return a function that changes one frame."""
    return lambda ts: change(ts) if ts.frame == frame else None


def put(**values: object) -> Callable[[object], object]:
    """Return a function that changes attributes of a Timestep."""
    return lambda ts: [setattr(ts, name, value) for name, value in values.items()]


def nan(ts: object) -> None:
    ts.positions[7, 1] = np.nan


def far(ts: object) -> None:
    ts.positions[3] = 1e9


def step(value: object) -> Callable[[object], object]:
    return lambda ts: ts.data.update(step=value)


#: Reasons why MDAnalysis encodes a frame.
LEFT = {
    ("a cell without a volume", "xtc"): "which span no volume",
    ("a cell without a volume", "trr"): "which span no volume",
    ("NaN", "xtc"): "atom 7: expected a finite position, found NaN",
    ("NaN", "trr"): "atom 7: expected a finite position, found NaN",
    ("far", "xtc"): "is too far out for precision",
    ("a step of a float", "xtc"): "a step is 4.5",
    ("a step of a float", "trr"): "a step is 4.5",
    ("a step of a float", "h5md"): "a step is 4.5, after 4",
    ("a step of 64 bits", "h5md"): "a step is 1099511627776, after ",
    ("without a cell", "h5md"): "a frame lacks dimensions",
    ("a late time", "xtc"): "expected a time that fits in 32 bits",
    ("a late time", "trr"): "expected a time that fits in 32 bits",
}
CHANGES = {
    "moved": lambda ts: ts.positions.__iadd__(ts.frame),
    "without a cell": once(2, put(dimensions=None)),
    "another cell": once(3, put(dimensions=[31, 32, 33, 70, 80, 100])),
    "a cell without a volume": once(3, put(dimensions=[31, 32, 33, 10, 170, 90])),
    "NaN": once(4, nan),
    "far": once(4, far),
    "without positions": once(4, put(has_positions=False)),
    "velocities": once(4, put(velocities=np.full((3341, 3), 0.25, np.float32))),
    "a step of 64 bits": once(4, step(2**40)),
    "a step of a float": once(4, step(4.5)),
    "a step that goes back": once(4, step(-1)),
    "another observable": once(4, lambda ts: ts.data.update(energy=1.5)),
    "λ": once(4, lambda ts: ts.data.update({"lambda": 0.5})),
    "a λ that is not a number": once(4, lambda ts: ts.data.update({"lambda": None})),
    "a late time": once(4, put(time=1e300)),
}


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("kind", CHANGES)
def test_frames_that_a_script_changes(kind, ending, tmp_path) -> None:
    def change(ts: object) -> None:
        ts.dimensions = [50, 60, 70, 90, 90, 90]
        CHANGES[kind](ts)

    asked = {"select": "index 0:50", "change": change, "frames": slice(6)}
    theirs, ours, error, registration = both("adk", tmp_path, ending, **asked)
    assert_same_file(theirs, ours)
    reason = LEFT.get((kind, ending))
    if error is None:
        assert len(registration.left) == (reason is not None)
    assert reason is None or reason in registration.left[0]


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("kind", ["fewer", "Universe", "residues", "text", "updating", "frozen"])
def test_objects_that_are_written(kind, ending, tmp_path) -> None:
    made: dict[str, object] = {}

    def of(group: mda.AtomGroup, frame: int) -> object:
        if frame == 0:
            made["updating"] = group.universe.select_atoms("prop x > 20 or all", updating=True)
        if frame not in (2, 3):
            return group
        return {
            "fewer": group[:-1],
            "Universe": group.universe,
            "residues": group.residues,
            "text": "all",
            "updating": made["updating"],
            "frozen": group[::-1],
        }[kind]

    theirs, ours, error, _ = both("adk", tmp_path, ending, of=of, frames=slice(5))
    assert (error is not None) is (kind in ("residues", "text") or (kind == "fewer"))
    assert_same_file(theirs, ours)


def test_compressed_numbers_that_are_not_finite(tmp_path) -> None:
    theirs, ours, *_ = both("adk", tmp_path, "h5md", change=once(3, nan), compression="gzip")
    assert_same_file(theirs, ours)


def test_another_precision_is_refused_as_in_mdanalysis(tmp_path) -> None:
    said = []
    universe = system("adk").copy()
    for register in (False, True):
        path = tmp_path / f"{register}.xtc"
        with paceline.register() if register else warnings.catch_warnings():
            with mda.Writer(str(path), universe.atoms.n_atoms) as writer:
                writer.write(universe)
                writer.write(universe)
                writer.precision = 2
                with pytest.raises(OSError, match="precision") as caught:
                    writer.write(universe)
            said.append((str(caught.value), path.read_bytes()))
    assert said[0] == said[1]


@pytest.mark.parametrize("ending", ENDINGS)
def test_frames_are_in_the_file_while_it_is_written(ending, tmp_path) -> None:
    universe = system("adk").copy()
    path = tmp_path / f"growing.{ending}"
    with paceline.register(), mda.Writer(str(path), universe.atoms.n_atoms) as writer:
        for n, _ in enumerate(universe.trajectory[:4], start=1):
            writer.write(universe.atoms)
            if ending == "h5md":
                writer.h5md_file.flush()
            copy = tmp_path / f"{n}.{ending}"
            shutil.copy(path, copy)
            found = mda.Universe(datafiles.PSF, str(copy)).trajectory
            assert found.n_frames == n
            assert_allclose(found[n - 1].positions, universe.atoms.positions, atol=0.006)


@pytest.mark.parametrize("ending", ENDINGS)
def test_an_error_of_the_script_leaves_the_frames_before(ending, tmp_path) -> None:
    universe = system("adk").copy()
    path = tmp_path / f"cut.{ending}"

    def fail(group: mda.AtomGroup, frame: int) -> object:
        if frame == 3:
            raise KeyError("the script's own")
        return group

    with paceline.register(), pytest.raises(KeyError):
        write(universe, path, of=fail)
    assert mda.Universe(datafiles.PSF, str(path)).trajectory.n_frames == 3


def test_writers_are_instances_of_mdanalysis_classes(tmp_path) -> None:
    class Own(XTCWriter):
        """Writer of a user's script."""

    with paceline.register() as registration:
        with mda.Writer(str(tmp_path / "a.xtc"), 5) as writer:
            assert isinstance(writer, XTCWriter)
            assert repr(writer).startswith("< XTCWriter ")
            assert type(writer) is writers.XTCWriter
        own = Own(str(tmp_path / "b.xtc"), 5)
        assert type(own) is Own
        own.close()
    assert registration.written == registration.left == []
    with mda.Writer(str(tmp_path / "c.xtc"), 5) as writer:
        assert type(writer) is XTCWriter
    for kind in writers.WRITERS:
        for known in (mda._MULTIFRAME_WRITERS, mda._SINGLEFRAME_WRITERS):
            assert writers.WRITERS[kind] not in known.values()


def test_errors_of_constructors_are_those_of_mdanalysis(tmp_path) -> None:
    for path, n_atoms, options, error in [
        (tmp_path / "none" / "a.xtc", 5, {}, OSError),
        (tmp_path / "a.nc", 0, {}, ValueError),
        (tmp_path / "a.nc", 5, {"scale_time": 1}, TypeError),
        (tmp_path / "a.h5md", 5, {"driver": "mpio"}, ValueError),
        (tmp_path / "a.dcd", None, {}, ValueError),
    ]:
        said = []
        for register in (False, True):
            with paceline.register() if register else warnings.catch_warnings():
                with pytest.raises(error) as caught:
                    mda.Writer(str(path), n_atoms, **options)
                said.append(str(caught.value))
        assert said[0] == said[1]


@pytest.mark.parametrize("ending", ENDINGS)
def test_groups_and_alignments_are_written(ending, tmp_path) -> None:
    """Check `AtomGroup.write` with frames, `AlignTraj`, and `Writer` of a reader."""
    made = {}
    for register in (False, True):
        folder = tmp_path / str(register)
        folder.mkdir()
        universe = system("adk").copy()
        with paceline.register(native=False) if register else warnings.catch_warnings() as one:
            universe.select_atoms("name CA").write(str(folder / f"ca.{ending}"), frames="all")
            AlignTraj(
                universe, universe, select="name CA", filename=str(folder / f"fit.{ending}")
            ).run(stop=6)
        made[register] = folder
    for name in ("ca", "fit"):
        assert_same_file(*(made[way] / f"{name}.{ending}" for way in (False, True)))
    assert len(one.written) == (0 if ending == "dcd" else 2)


def test_files_that_are_not_regular_are_left_to_mdanalysis() -> None:
    universe = system("adk").copy()
    with paceline.register() as registration:
        writer = XTCWriter("/dev/null", universe.atoms.n_atoms)
        for _ in universe.trajectory[:3]:
            writer.write(universe.atoms)
        writer.close()
    assert registration.left == ["/dev/null: MDAnalysis writes other bytes for the first frame"]


def test_other_bytes_of_mdanalysis_are_kept(tmp_path, monkeypatch) -> None:
    """Check a later MDAnalysis whose first frame differs: it also writes the other frames."""
    monkeypatch.setattr(writers, "_cells", lambda dimensions: np.ones((1, writers.CELL_WIDTH)))
    theirs, ours, _, registration = both("adk", tmp_path, "xtc")
    assert_same_file(theirs, ours)
    assert "writes other bytes" in registration.left[0]


def test_a_folder_that_changes(tmp_path, monkeypatch) -> None:
    universe = system("adk").copy()
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    with paceline.register() as registration, XTCWriter("a.xtc", 3341) as writer:
        monkeypatch.chdir("other")
        for _ in universe.trajectory[:3]:
            writer.write(universe.atoms)
    assert registration.left == []
    assert XTCReader(str(tmp_path / "a.xtc")).n_frames == 3


def test_netcdf_without_its_library_is_left_to_mdanalysis(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(sys.modules["MDAnalysis.coordinates.TRJ"], "netCDF4", None)
    theirs, ours, _, registration = both("adk", tmp_path, "nc")
    assert_same_file(theirs, ours)
    assert re.search("SciPy: install netCDF4$", registration.left[0])


def test_velocities_of_an_earlier_frame_are_not_written(tmp_path) -> None:
    path = tmp_path / "a.nc"
    universe = system("xvf").copy()
    change = once(2, put(has_velocities=False))
    with paceline.register(), pytest.raises(ValueError, match="broadcast"):
        write(universe, path, change=change, velocities=True)
    assert mda.Universe(datafiles.TPR_xvf, str(path)).trajectory.n_frames == 2


def test_a_closed_h5md_file_has_no_other_references(tmp_path) -> None:
    universe = system("adk").copy()
    path = str(tmp_path / "a.h5md")
    for _ in range(2):  # HDF5 refuses to replace an open file
        with paceline.register():
            writer = H5MDWriter(path, universe.atoms.n_atoms)
            for _ in universe.trajectory[:3]:
                writer.write(universe.atoms)
            del writer
