"""Tests of `paceline.register` and ``python -m paceline`` with unchanged scripts for MDAnalysis."""

import contextlib
import functools
import multiprocessing
import os
import pickle
import shutil
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import h5py
import MDAnalysis as mda
import numpy as np
import pytest
from helpers.mpi import mpirun, needs_mpi
from MDAnalysis.analysis import align, contacts, rdf, rms
from MDAnalysis.analysis.base import AnalysisBase, AnalysisFromFunction
from MDAnalysis.coordinates.chain import ChainReader
from MDAnalysis.coordinates.DCD import DCDReader
from MDAnalysis.coordinates.H5MD import H5MDReader
from MDAnalysis.coordinates.TRJ import NCDFReader
from MDAnalysis.coordinates.TRR import TRRReader
from MDAnalysis.coordinates.XTC import XTCReader
from MDAnalysisTests.datafiles import (
    DCD,
    DLP_CONFIG,
    GRO,
    NCDF,
    PSF,
    TRR,
    XTC,
    H5MD_xvf,
    PDB_small,
    PRMncdf,
    TPR_xvf,
    TRR_xvf,
)

import paceline
from paceline._util.launcher import run_script
from paceline.analysis.gnm import GNMAnalysis
from paceline.backends import processes
from paceline.block import FIELDS
from paceline.errors import DamagedFileError, PacelineWarning, UnsupportedError
from paceline.mdanalysis.reader import Reader

FILES = [
    (GRO, XTC, XTCReader),
    (GRO, TRR, TRRReader),
    (PSF, DCD, DCDReader),
    (PRMncdf, NCDF, NCDFReader),
    (TPR_xvf, H5MD_xvf, H5MDReader),
]
RUN, CALL = AnalysisBase.run, type(XTCReader).__call__


@pytest.fixture(autouse=True)
def nothing_is_left():
    """Check that MDAnalysis is unchanged after each test."""
    yield
    assert AnalysisBase.run is RUN
    assert "__call__" not in vars(type(XTCReader))
    assert "__instancecheck__" not in vars(type(XTCReader))


@pytest.mark.parametrize(("topology", "trajectory", "theirs"), FILES)
def test_universes_are_read_by_our_reader(topology, trajectory, theirs) -> None:
    before = mda.Universe(topology, trajectory)
    with paceline.register() as registration:
        universe = mda.Universe(topology, trajectory)
        assert type(universe) is mda.Universe
        assert type(universe.trajectory) is Reader
        assert isinstance(universe.trajectory, theirs)
        others = {one for *_, one in FILES} - {theirs}
        assert not any(isinstance(universe.trajectory, one) for one in others)
        assert type(theirs(trajectory)) is Reader
        assert type(universe.copy().trajectory) is Reader
    assert registration.opened[0] == trajectory
    for ts, other in zip(universe.trajectory, before.trajectory, strict=True):
        np.testing.assert_allclose(ts.positions, other.positions, rtol=0, atol=2e-4)
        assert ts.time == pytest.approx(other.time)
    assert type(mda.Universe(topology, trajectory).trajectory) is theirs


def test_chains() -> None:
    with paceline.register():
        ours = mda.Universe(PSF, [DCD, DCD])
        assert type(ours.trajectory) is Reader
        assert isinstance(ours.trajectory, ChainReader)
        mixed = mda.Universe(PSF, [DCD, PDB_small])
        assert type(mixed.trajectory) is ChainReader
        assert [type(one).__name__ for one in mixed.trajectory.readers] == ["Reader", "PDBReader"]
    assert len(ours.trajectory) == 196


def test_attributes_of_readers() -> None:
    files = [(PRMncdf, NCDF), (PSF, DCD), (GRO, TRR), (TPR_xvf, H5MD_xvf)]
    for topology, trajectory in files:
        theirs = mda.Universe(topology, trajectory).trajectory
        with paceline.register():
            ours = mda.Universe(topology, trajectory).trajectory
        assert set(ours.units) >= set(theirs.units)
        fields = ("has_positions", "has_velocities", "has_forces")
        names = ("periodic", "dimensions", "scale_factors", "n_atoms", "dt", "totaltime")
        for name in (*names, *fields, "compression", "compression_opts"):
            assert hasattr(ours, name) or not hasattr(theirs, name)
            if hasattr(theirs, name):
                found, expected = getattr(ours, name), getattr(theirs, name)
                if name in ("dt", "totaltime") and trajectory == H5MD_xvf:
                    continue  # MDAnalysis assumes 1 ps, and the file states 50
                if name == "dimensions" and expected is not None:
                    np.testing.assert_allclose(found, expected)
                else:
                    assert found == expected, (trajectory, name)
    theirs = mda.Universe(PSF, [DCD, DCD]).trajectory
    with paceline.register():
        ours = mda.Universe(PSF, [DCD, DCD]).trajectory
    np.testing.assert_allclose(ours.total_times, theirs.total_times)
    np.testing.assert_allclose(ours.dts, theirs.dts)
    assert [one.n_frames for one in ours.readers] == [98, 98]


@pytest.mark.parametrize(
    ("compression", "opts"), [("gzip", 4), ("gzip", 1), ("lzf", None), ("szip", ("nn", 8))]
)
def test_h5md_reader_has_the_attributes_of_mdanalysis(compression, opts, tmp_path: Path) -> None:
    """Check that a copy by the reader's `Writer` has the same contents and compression."""
    path, copy = str(tmp_path / "a.h5md"), str(tmp_path / "copy.h5md")
    universe = mda.Universe(TPR_xvf, TRR_xvf)
    asked = {"compression": compression, "compression_opts": opts, "forces": False}
    with mda.Writer(path, universe.atoms.n_atoms, **asked) as writer:
        writer.write(universe.atoms)
    del writer
    theirs = H5MDReader(path)
    with paceline.register() as registration:
        ours = H5MDReader(path)
        np.testing.assert_array_equal(ours.ts.positions, theirs.ts.positions)
        for name in ("compression", "compression_opts", *(f"has_{field}" for field in FIELDS)):
            assert getattr(ours, name) == getattr(theirs, name)
        assert type(ours).parse_n_atoms(path) == theirs.parse_n_atoms(path) == ours.n_atoms
        ours.open_trajectory()
        assert next(ours).frame == 0
        ours.has_velocities = False
        assert not pickle.loads(pickle.dumps(ours)).has_velocities
        with ours.Writer(copy) as writer:
            writer.write(mda.Universe(TPR_xvf, path))
    assert registration.left == []
    with h5py.File(copy) as file:
        [written] = [
            one
            for name, one in file["particles/trajectory"].items()
            if name in ("position", "velocity", "force")
        ]
        assert (written["value"].compression, written["value"].compression_opts) == (
            compression,
            opts,
        )


def test_attributes_of_one_format_are_missing_in_others() -> None:
    with paceline.register():
        reader = mda.Universe(GRO, XTC).trajectory
    for name in ("has_forces", "compression", "scale_factors", "open_trajectory"):
        with pytest.raises(AttributeError, match=f"only readers of .* have {name}"):
            getattr(reader, name)


def test_h5md_with_velocities_is_written_from_our_reader(tmp_path: Path) -> None:
    with paceline.register():
        universe = mda.Universe(TPR_xvf, H5MD_xvf)
        universe.atoms.write(str(tmp_path / "out.h5md"), frames="all")
        again = mda.Universe(TPR_xvf, str(tmp_path / "out.h5md"))
        for ts, other in zip(again.trajectory, universe.trajectory, strict=True):
            np.testing.assert_allclose(ts.velocities, other.velocities, rtol=1e-5)
            np.testing.assert_allclose(ts.forces, other.forces, rtol=1e-5)


def test_h5md_is_opened_while_its_writer_still_has_a_name(tmp_path: Path) -> None:
    path = str(tmp_path / "out.h5md")
    with paceline.register():
        universe = mda.Universe(TPR_xvf, TRR_xvf)
        writer = mda.Writer(path, universe.atoms.n_atoms, velocities=True, forces=True)
        for _ in universe.trajectory:
            writer.write(universe.atoms)
        writer.close()
        # The file remains open, although the writer reports that it is closed.
        with pytest.warns(PacelineWarning, match="a writer of this script"):
            again = mda.Universe(TPR_xvf, path)
        for ts, other in zip(again.trajectory, universe.trajectory, strict=True):
            np.testing.assert_allclose(ts.velocities, other.velocities, rtol=1e-5)
        again.trajectory.close()
        del writer
        ours = mda.Universe(TPR_xvf, path)
        assert type(ours.trajectory) is Reader
        np.testing.assert_allclose(ours.atoms.forces, universe.atoms.forces, rtol=1e-5)


def test_forces_of_dlpoly_keep_the_unit_of_mdanalysis() -> None:
    with paceline.register() as registration:
        with pytest.warns(PacelineWarning, match="in the file.s unit"):
            universe = mda.Universe(DLP_CONFIG, topology_format="CONFIG", format="CONFIG")
        assert type(universe.trajectory) is not Reader
        assert len(registration.left) == 1
        forces = universe.atoms.forces
    theirs = mda.Universe(DLP_CONFIG, topology_format="CONFIG", format="CONFIG")
    np.testing.assert_array_equal(forces, theirs.atoms.forces)


def test_other_formats_stay_mdanalysis_own() -> None:
    with paceline.register() as registration:
        assert type(mda.Universe(PDB_small).trajectory).__name__ == "PDBReader"
        in_memory = mda.Universe(PSF, DCD, in_memory=True)
        assert type(in_memory.trajectory).__name__ == "MemoryReader"
    assert registration.left == []


def test_a_stream_without_imdclient_is_refused_in_one_sentence(monkeypatch) -> None:
    reader = pytest.importorskip("MDAnalysis.coordinates.IMD", reason="MDAnalysis before 2.10")
    monkeypatch.setattr(reader, "HAS_IMDCLIENT", False)
    # Nothing listens on this port: a connection would be another error.
    address = "imd://127.0.0.1:1"
    with (
        paceline.register(),
        pytest.raises(ImportError, match=rf"^{address}: .* pip install imdclient, or open"),
    ):
        mda.Universe(PSF, address)


def test_count_of_registrations() -> None:
    outer = paceline.register()
    with paceline.register():
        with paceline.register(strict=True):
            pass
        assert type(mda.Universe(PSF, DCD).trajectory) is Reader
    assert type(mda.Universe(PSF, DCD).trajectory) is Reader
    paceline.unregister()
    assert type(mda.Universe(PSF, DCD).trajectory) is DCDReader
    assert len(outer.opened) == 1
    with pytest.raises(RuntimeError, match="not registered"):
        paceline.unregister()


def test_extension_of_notebooks() -> None:
    paceline.load_ipython_extension(None)
    assert type(mda.Universe(PSF, DCD).trajectory) is Reader
    paceline.unload_ipython_extension(None)
    assert type(mda.Universe(PSF, DCD).trajectory) is DCDReader


def test_what_another_package_wraps_stays(monkeypatch) -> None:
    registration = paceline.register()
    calls = []
    inner = AnalysisBase.run

    def wrapped(self, *args, **kwargs):
        calls.append(type(self).__name__)
        return inner(self, *args, **kwargs)

    AnalysisBase.run = wrapped
    with registration:
        rms.RMSD(mda.Universe(PSF, DCD), select="name CA").run(stop=3)
    assert AnalysisBase.run is wrapped
    rms.RMSD(mda.Universe(PSF, DCD), select="name CA").run(stop=3)
    assert calls == ["RMSD", "RMSD"]
    assert registration.runs == [("RMSD", "native")]
    AnalysisBase.run = RUN


def test_transformed_frames_are_computed_by_mdanalysis() -> None:
    def moved(ts):
        ts.positions[:100] += 1.0
        return ts

    found = []
    for used in (False, True):
        with contextlib.ExitStack() as stack:
            registration = stack.enter_context(paceline.register()) if used else None
            universe = mda.Universe(PSF, DCD)
            universe.trajectory.add_transformations(moved)
            found.append(rms.RMSD(universe, select="name CA").run(stop=5).results.rmsd)
    np.testing.assert_array_equal(*found)
    assert registration.runs == [("RMSD", "in this process, in order")]


def test_chain_with_a_step_between_frames_is_left_to_mdanalysis() -> None:
    with paceline.register():
        assert type(ChainReader([DCD, DCD], 2)) is ChainReader
        assert type(ChainReader([DCD, DCD], skip=2)) is ChainReader
        assert type(ChainReader([DCD, DCD])) is Reader


def test_refusals_are_left_to_mdanalysis_with_a_reason() -> None:
    with paceline.register() as registration:
        with pytest.warns(PacelineWarning, match="convert_units=False"):
            universe = mda.Universe(GRO, XTC, convert_units=False)
        assert type(universe.trajectory) is XTCReader
        assert len(registration.left) == 1
    with paceline.register(strict=True), pytest.raises(UnsupportedError, match="convert_units"):
        mda.Universe(GRO, XTC, convert_units=False)


def test_options_and_units_that_ours_lacks_are_left_to_mdanalysis(tmp_path: Path) -> None:
    path = shutil.copy(H5MD_xvf, tmp_path / "units.h5md")
    with h5py.File(path, "r+") as file:
        file["particles/trajectory/position/value"].attrs["unit"] = "parsec"
    with paceline.register() as registration:
        with pytest.warns(PacelineWarning, match="convert_units"):
            universe = mda.Universe(TPR_xvf, H5MD_xvf, convert_units=False)
        assert type(universe.trajectory) is H5MDReader
        # MDAnalysis refuses them with its own message.
        with pytest.warns(PacelineWarning, match="parsec"), pytest.raises(RuntimeError):
            mda.Universe(TPR_xvf, path)
    assert len(registration.left) == 2
    with paceline.register(strict=True), pytest.raises(UnsupportedError, match="parsec"):
        mda.Universe(TPR_xvf, path)


def test_links_out_of_a_file_are_not_left_to_mdanalysis(tmp_path: Path) -> None:
    shutil.copy(H5MD_xvf, tmp_path / "other.h5")
    with h5py.File(tmp_path / "md.h5md", "w") as file:
        file["particles"] = h5py.ExternalLink("other.h5", "/particles")
    with paceline.register() as registration:
        with pytest.raises(UnsupportedError, match="external"):
            mda.Universe(TPR_xvf, str(tmp_path / "md.h5md"))
        assert (registration.opened, registration.left) == ([], [])


def test_damage_is_not_left_to_mdanalysis(tmp_path: Path) -> None:
    path = tmp_path / "md.xtc"
    path.write_bytes(b"\0\0\7\xcb" + b"\xff" * 200)
    with paceline.register() as registration, pytest.raises(DamagedFileError):
        mda.Universe(GRO, str(path))
    assert registration.left == []


def atoms(universe):
    return universe.select_atoms("name CA")


class Radius(AnalysisBase):
    """Analysis of a user that cannot be split."""

    def __init__(self, group):
        super().__init__(group.universe.trajectory)
        self.group = group

    def _prepare(self):
        self.results.radius = []

    def _single_frame(self):
        self.results.radius.append(self.group.radius_of_gyration())

    def _conclude(self):
        self.results.radius = np.array(self.results.radius)


def pair(universe):
    return atoms(universe)[:60], atoms(universe)[100:160]


ANALYSES = {
    "RMSD": (lambda u: rms.RMSD(u, select="name CA", groupselections=["resid 1-50"]), "rmsd"),
    "RMSD of masses": (lambda u: rms.RMSD(u.atoms, weights="mass", ref_frame=5), "rmsd"),
    "RMSF": (lambda u: rms.RMSF(atoms(u)), "rmsf"),
    "InterRDF": (lambda u: rdf.InterRDF(*pair(u), nbins=20, norm="density"), "rdf"),
    "Contacts": (
        lambda u: contacts.Contacts(
            u, select=("name CA and resid 1-60", "name CA and resid 101-160"), refgroup=pair(u)
        ),
        "timeseries",
    ),
    "AnalysisFromFunction": (
        lambda u: AnalysisFromFunction(lambda group: group.center_of_mass(), atoms(u)),
        "timeseries",
    ),
    "AlignTraj": (lambda u: align.AlignTraj(u, u, select="name CA", in_memory=False), "rmsd"),
    "AverageStructure": (lambda u: align.AverageStructure(u, u, select="name CA"), "positions"),
    "Radius": (lambda u: Radius(atoms(u)), "radius"),
}
FRAMES = [{}, {"start": 5, "stop": 80, "step": 3}, {"frames": [3, 50, 7]}]


@pytest.mark.parametrize("frames", FRAMES, ids=["all", "slice", "list"])
@pytest.mark.parametrize("name", ANALYSES)
def test_analyses_give_what_mdanalysis_gives(name, frames, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)  # AlignTraj writes a file
    make, result = ANALYSES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = make(mda.Universe(PSF, DCD)).run(**frames)
        with paceline.register():
            universe = mda.Universe(PSF, DCD)
            ours = make(universe).run(**frames)
    assert type(ours) is type(theirs)
    np.testing.assert_allclose(
        getattr(ours.results, result), getattr(theirs.results, result), rtol=1e-5, atol=1e-5
    )
    for attribute in ("frames", "times", "n_frames", "start", "stop", "step"):
        np.testing.assert_array_equal(getattr(ours, attribute), getattr(theirs, attribute))
    assert universe.trajectory.frame == theirs._trajectory.frame


@pytest.mark.parametrize("frames", [{"stop": 0}, {"frames": []}, {"start": 200}], ids=str)
def test_runs_of_no_frames(frames) -> None:
    with paceline.register():
        ours = rms.RMSD(mda.Universe(PSF, DCD), select="name CA").run(**frames)
    assert ours.results.rmsd.shape == (0, 3)
    assert len(ours.frames) == 0


@pytest.mark.parametrize("wrong", [{"stpo": 5}, {"start": 1, "first": 2}], ids=str)
def test_arguments_that_run_does_not_have_are_refused(wrong) -> None:
    with paceline.register():
        rmsd = rms.RMSD(mda.Universe(PSF, DCD), select="name CA")
        with pytest.raises(TypeError, match=list(wrong)[-1]):
            rmsd.run(**wrong)
        with pytest.raises(TypeError):
            rmsd.run(0, 5, start=1)
        with pytest.raises(TypeError):
            rmsd.run(0, 5, 1, None, False, None, None, None, "more")
        with pytest.raises(TypeError, match="stpo"):
            GNMAnalysis(mda.Universe(PSF, DCD)).run(stpo=5)


@pytest.fixture
def processes_never_pay(monkeypatch):
    """Never use processes, however long an analysis takes."""
    monkeypatch.setattr(processes, "WORTH", np.inf)


@pytest.mark.usefixtures("processes_never_pay")
def test_groups_without_atoms_are_as_in_mdanalysis() -> None:
    theirs = rms.RMSD(mda.Universe(PSF, DCD), select="name XX").run(stop=3).results.rmsd
    with paceline.register() as registration:
        ours = rms.RMSD(mda.Universe(PSF, DCD), select="name XX").run(stop=3).results.rmsd
    np.testing.assert_array_equal(ours, theirs)
    assert registration.runs == [("RMSD", "in this process")]


def test_results_of_native_classes_are_complete() -> None:
    with paceline.register():
        ours = rdf.InterRDF(*pair(mda.Universe(PSF, DCD)), nbins=20, norm="density").run()
    theirs = rdf.InterRDF(*pair(mda.Universe(PSF, DCD)), nbins=20, norm="density").run()
    assert set(ours.results) >= set(theirs.results)


@pytest.mark.usefixtures("processes_never_pay")
def test_native_can_be_turned_off() -> None:
    with paceline.register(native=False) as registration:
        first = rms.RMSD(mda.Universe(PSF, DCD), select="name CA").run().results.rmsd
    assert registration.runs == [("RMSD", "in this process")]
    np.testing.assert_array_equal(
        first, rms.RMSD(mda.Universe(PSF, DCD), select="name CA").run().results.rmsd
    )


def test_named_backends_stay_as_they_are() -> None:
    with paceline.register(native=False) as registration:
        universe = mda.Universe(PSF, DCD)
        rms.RMSD(universe, select="name CA").run(backend="serial")
        rms.RMSD(universe, select="name CA").run(backend="multiprocessing", n_workers=2)
    assert registration.runs == []


@pytest.mark.usefixtures("processes_never_pay")
@pytest.mark.parametrize("n_workers", [1, 2, 3])
def test_long_analyses_go_on_in_processes_with_equal_bits(n_workers, monkeypatch) -> None:
    with paceline.register(native=False, n_workers=n_workers) as registration:
        make = ANALYSES["InterRDF"][0]
        if not make(mda.Universe(PSF, DCD)).parallelizable:
            pytest.skip("MDAnalysis before 2.10 does not split InterRDF")
        here = make(mda.Universe(PSF, DCD)).run().results
        monkeypatch.setattr(processes, "SAMPLE", 0.0)
        monkeypatch.setattr(processes, "WORTH", 0.0)
        there = make(mda.Universe(PSF, DCD)).run().results
    how = "in this process" if n_workers == 1 else f"on {n_workers} processes"
    assert registration.runs == [("InterRDF", "in this process"), ("InterRDF", how)]
    for name in ("rdf", "count", "bins"):
        np.testing.assert_array_equal(here[name], there[name])


def test_what_cannot_be_sent_is_computed_here(monkeypatch) -> None:
    monkeypatch.setattr(processes, "SAMPLE", 0.0)
    monkeypatch.setattr(processes, "WORTH", 0.0)
    lock = threading.Lock()  # it cannot be pickled

    def first(group):
        with lock:
            return group.positions[0]

    with paceline.register(n_workers=2) as registration:
        found = AnalysisFromFunction(first, atoms(mda.Universe(PSF, DCD))).run()
    assert found.results.timeseries.shape == (98, 3)
    assert "cannot be pickled" in registration.runs[0][1]


@pytest.mark.parametrize("kept", ["a list", "a file"])
def test_functions_that_keep_something_see_all_frames_in_order(kept, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(processes, "SAMPLE", 0.0)
    monkeypatch.setattr(processes, "WORTH", 0.0)
    path = tmp_path / "numbers.txt"
    path.write_text("".join(f"{k}\n" for k in range(98)))
    seen: list[int] = []

    with path.open() as file:

        def count(group):
            seen.append(len(seen))
            return seen[-1]

        function = count if kept == "a list" else lambda group: int(file.readline())
        with paceline.register(n_workers=2) as registration:
            found = AnalysisFromFunction(function, atoms(mda.Universe(PSF, DCD))).run()
    assert found.results.timeseries.tolist() == [*range(98)]
    assert seen == ([*range(98)] if kept == "a list" else [])
    why = "keeps state" if kept == "a list" else "keeps a file open"
    assert why in registration.runs[0][1]


def test_functions_that_change_their_arguments_see_all_frames_in_order(monkeypatch) -> None:
    monkeypatch.setattr(processes, "SAMPLE", 0.0)
    monkeypatch.setattr(processes, "WORTH", 0.0)

    def count(group, seen, *, more):
        seen.append(1)
        more["seen"] = len(seen)
        return len(seen)

    found = []
    with paceline.register(n_workers=2) as registration:
        group = atoms(mda.Universe(PSF, DCD))
        found += [AnalysisFromFunction(count, group, [], more={}).run()]
        assert "keeps state" in registration.runs[0][1]
        found += paceline.run([AnalysisFromFunction(count, group, [], more={}) for _ in range(2)])
    for one in found:
        assert one.results.timeseries.tolist() == [*range(1, 99)]


@pytest.mark.parametrize("selection", ["name CA", "same residue as around 4 resid 1"])
def test_functions_that_keep_nothing_are_sent(selection, monkeypatch) -> None:
    monkeypatch.setattr(processes, "SAMPLE", 0.0)
    monkeypatch.setattr(processes, "WORTH", 0.0)

    def size(group, start, *, of):
        return len(group), len(of), np.abs(group.center_of_mass() - start).max()

    with paceline.register(n_workers=2) as registration:
        universe = mda.Universe(PSF, DCD)
        group = universe.select_atoms(selection, updating=True)
        start = universe.atoms.center_of_mass()
        AnalysisFromFunction(size, group, start, of=universe.residues).run()
    assert registration.runs == [("AnalysisFromFunction", "on 2 processes")]


@pytest.mark.parametrize("together", [False, True])
def test_a_named_backend_warns_of_functions_that_keep_something(together) -> None:
    seen: list[int] = []

    def count(group):
        seen.append(1)
        return len(seen)

    one = AnalysisFromFunction(count, atoms(mda.Universe(PSF, DCD)))
    with paceline.register():
        run = functools.partial(paceline.run, [one]) if together else one.run
        with pytest.warns(PacelineWarning, match="keeps state"):
            run(backend="threads")


def test_errors_are_the_users_own() -> None:
    def fail(group):
        raise KeyError("mine")

    with paceline.register(), pytest.raises(KeyError, match="mine"):
        AnalysisFromFunction(fail, atoms(mda.Universe(PSF, DCD))).run()


class Nested(AnalysisBase):
    """Analysis that runs another analysis within its own frames."""

    def __init__(self, universe):
        super().__init__(universe.trajectory)
        self.other = mda.Universe(PSF, DCD)

    def _single_frame(self):
        self.results.rmsd = rms.RMSD(self.other, select="name CA").run(stop=3).results.rmsd


def test_run_within_a_run_is_mdanalysis_own() -> None:
    with paceline.register() as registration:
        found = Nested(mda.Universe(PSF, DCD)).run(stop=2).results.rmsd
    assert registration.runs == [("Nested", "in this process, in order")]
    assert found.shape == (3, 3)


def test_universes_travel_to_processes_that_know_nothing_of_it() -> None:
    with paceline.register():
        universe = mda.Universe(PSF, DCD)
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            found = pool.map(_center, [universe.atoms])
    np.testing.assert_array_equal(found[0], universe.atoms.center_of_geometry())


def _center(group):
    return group.center_of_geometry()


SCRIPT = """
import gc
import sys
import MDAnalysis as mda
from MDAnalysis.analysis import rms
from beside import SELECTION

universe = mda.Universe(sys.argv[1], sys.argv[2])
rmsd = rms.RMSD(universe, select=SELECTION).run().results.rmsd
print(type(universe.trajectory).__name__, rmsd.shape)
# Before a script, no commands are imported, and libraries are put apart from what is collected.
assert "paceline.cli" not in sys.modules
assert gc.isenabled() and gc.get_freeze_count() > 10_000
if len(sys.argv) > 3:
    sys.exit(int(sys.argv[3]))
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    (tmp_path / "beside.py").write_text("SELECTION = 'name CA'\n")
    return path


def run(*command: object, cwd: Path) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    return subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


PYTHON = [sys.executable, "-m", "paceline"]


def test_whole_script(script: Path, tmp_path: Path) -> None:
    done = run(*PYTHON, script, PSF, DCD, cwd=tmp_path)
    assert done.stdout == "Reader (98, 3)\n"
    assert "RMSD native" in done.stderr
    done = run(*PYTHON, "--quiet", "--no-native", "-j", "1", script, PSF, DCD, 7, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (7, "")
    done = run(*PYTHON, "-q", "-m", "script", PSF, DCD, cwd=tmp_path)
    assert done.stdout == "Reader (98, 3)\n"


def test_a_command_in_place_of_a_script(tmp_path: Path) -> None:
    done = run(*PYTHON, "info", DCD, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "98" in done.stdout
    done = run(*PYTHON, "rmsd", PSF, DCD, "--step", "0", cwd=tmp_path)
    assert done.returncode == 2
    assert "--step: expected at least 1, found 0" in done.stderr
    done = run(*PYTHON, "--select", "protein", "rmsd", PSF, DCD, cwd=tmp_path)
    said = "no option --select: options of a script or a command come after its name, as in"
    assert (done.returncode, said in done.stderr) == (2, True)
    # A script with this name takes precedence.
    (tmp_path / "info").write_text("print('a script')\n")
    assert run(*PYTHON, "-q", "info", DCD, cwd=tmp_path).stdout == "a script\n"


def test_errors_of_scripts(script: Path, tmp_path: Path) -> None:
    done = run(*PYTHON, "missing.py", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == "paceline: error: missing.py: there is no such script\n"
    done = run(*PYTHON, "rsmd", cwd=tmp_path)
    words = "rsmd: there is no such script, and no command of this name: did you mean rmsd?\n"
    assert (done.returncode, done.stderr) == (2, f"paceline: error: {words}")
    done = run(*PYTHON, "-j", "4", "info", DCD, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "info: there is no such script: -j applies to scripts; options of a" in done.stderr
    assert run(*PYTHON, cwd=tmp_path).returncode == 2
    assert run(*PYTHON, "--unknown", script, cwd=tmp_path).returncode == 2
    assert "-j" in run(*PYTHON, "-j", "0", script, cwd=tmp_path).stderr
    script.write_text("def f():\n    1 / 0\n\nf()\n")
    done = run(*PYTHON, script, cwd=tmp_path)
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stderr
    assert "runpy" not in done.stderr


def test_example_prints_the_same(capsys, monkeypatch) -> None:
    """Run a script for MDAnalysis: RMSD, RMSF, contacts, hydrogen bonds and a loop."""
    example = str(Path(__file__).parents[1] / "examples" / "domains.py")
    monkeypatch.setattr(sys, "argv", [])
    assert run_script([example, PSF, DCD]) == 0
    expected = capsys.readouterr().out
    with paceline.register() as registration:
        assert run_script([example, PSF, DCD]) == 0
    assert capsys.readouterr().out == expected
    names = ("RMSD", "RMSF", "Contacts", "HydrogenBondAnalysis")
    assert registration.runs == [(name, "native") for name in names]


@needs_mpi
def test_ranks_work_in_a_script(script: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    status, output, _ = mpirun(2, "-m", "paceline", script, PSF, DCD)
    assert (status, output) == (0, "Reader (98, 3)\n")
    script.write_text("from mpi4py.MPI import COMM_WORLD\nCOMM_WORLD.rank and print('rank')\n")
    status, _, errors = mpirun(2, "-m", "paceline", script)
    assert status == 2
    assert "--every-rank" in errors
    status, output, _ = mpirun(2, "-m", "paceline", "--every-rank", script)
    assert (status, output) == (0, "rank\n")
