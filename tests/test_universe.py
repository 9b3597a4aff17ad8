"""Tests that `paceline.Universe` is an MDAnalysis Universe, and that runs use its state."""

import pickle
import shutil
import warnings
from pathlib import Path

import MDAnalysis
import numpy as np
import pytest
from MDAnalysis.analysis import align, distances, rms
from MDAnalysis.coordinates.memory import MemoryReader
from MDAnalysis.transformations import NoJump, fit_rot_trans, translate
from MDAnalysisTests import datafiles

import paceline
import paceline.trajectory.open
from paceline.analysis.convert import Write
from paceline.analysis.rms import RMSD, RMSF
from paceline.errors import (
    AtomCountError,
    DamagedFileError,
    FileChangedError,
    PacelineWarning,
    SelectionError,
    UnsupportedError,
)
from paceline.mdanalysis.open_atomgroup_trajectory import open_trajectory
from paceline.mdanalysis.reader import Reader, opens_with_paceline
from paceline.universe import _USUAL_PARTS

pytestmark = [
    pytest.mark.filterwarnings("ignore:DCDReader currently makes:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*the header says 500 frames"),
    # Warnings of MDAnalysis's writers and topologies.
    pytest.mark.filterwarnings("ignore::UserWarning:MDAnalysis"),
]


@pytest.fixture(scope="module")
def adk_in_water(adk_in_water, tmp_path_factory):
    """The first 5000 atoms, because the topology is read for every Universe."""
    folder = tmp_path_factory.mktemp("less_water")
    names = [str(folder / name) for name in ("adk_oplsaa.gro", "adk_oplsaa.xtc")]
    atoms = MDAnalysis.Universe(*adk_in_water).atoms[:5000]
    atoms.write(names[0])
    atoms.write(names[1], frames="all")
    return type(adk_in_water)(*names)


@pytest.fixture(params=["adk", "adk_in_water", "chain"])
def files(request, adk, adk_in_water, adk_parts):
    """Arguments of a Universe."""
    chain = (adk.topology, adk_parts)
    return {"adk": adk, "adk_in_water": adk_in_water, "chain": chain}[request.param]


@pytest.fixture(scope="module")
def adk_parts(adk, tmp_path_factory):
    """Frames in two files, at 0, 1, 2 … ps; MDAnalysis's chains count such frames correctly."""
    folder = tmp_path_factory.mktemp("parts")
    source = MDAnalysis.Universe(*adk)
    names = []
    for k, frames in enumerate((range(60), range(60, 98))):
        names.append(str(folder / f"part{k}.xtc"))
        with MDAnalysis.Writer(names[-1], n_atoms=len(source.atoms)) as writer:
            for frame in frames:
                source.trajectory[frame].time = frame
                writer.write(source.atoms)
    return names


@pytest.fixture
def ours(files):
    return paceline.Universe(*files)


@pytest.fixture
def theirs(files):
    return MDAnalysis.Universe(*files)


@pytest.fixture
def opened(monkeypatch):
    """Names of the files that are opened from here on, with their index."""
    names = []
    original = paceline.trajectory.open.IndexedFile

    def counted(path, **options):
        names.append(path)
        return original(path, **options)

    monkeypatch.setattr(paceline.trajectory.open, "IndexedFile", counted)
    return names


def readers_of(universe):
    return getattr(universe.trajectory, "readers", [universe.trajectory])


# Accepted trajectories


@pytest.mark.parametrize(
    "wrap", [str, Path, lambda p: [p], lambda p: (p,), lambda p: [Path(p)]], ids=range(5)
)
def test_one_file(adk, wrap):
    universe = paceline.Universe(adk.topology, wrap(adk.trajectory))
    assert type(universe.trajectory) is Reader
    assert universe.load_new(wrap(adk.trajectory)) is universe
    assert type(universe.trajectory) is Reader


@pytest.mark.parametrize("kind", [list, tuple])
@pytest.mark.parametrize("name", [str, Path])
def test_many_files(adk, kind, name):
    with pytest.warns(PacelineWarning, match="196 frames are repeated"):
        universe = paceline.Universe(adk.topology, kind([name(adk.trajectory)] * 3))
    assert type(universe.trajectory) is Reader
    assert universe.trajectory.n_frames == 3 * 98


def test_many_files_of_several_readers(adk):
    files = [(adk.trajectory, "dcd"), datafiles.CRD, adk.trajectory]
    universe = paceline.Universe(adk.topology, files)
    assert [type(member).__name__ for member in readers_of(universe)] == [
        "Reader",
        "CRDReader",
        "Reader",
    ]


def test_files_are_recognised_by_content_or_name(adk, tmp_path):
    unnamed = tmp_path / "unnamed"
    shutil.copy(adk.trajectory, unnamed)
    assert opens_with_paceline(unnamed)
    assert opens_with_paceline(str(unnamed))
    assert opens_with_paceline(tmp_path / "missing.XTC")
    assert opens_with_paceline(unnamed, "dcd")
    assert not opens_with_paceline(unnamed, "LAMMPS")
    assert not opens_with_paceline(tmp_path / "missing")
    assert not opens_with_paceline(datafiles.XYZ)
    assert not opens_with_paceline(np.zeros((1, 1, 3)))
    assert not opens_with_paceline(None)
    assert type(paceline.Universe(adk.topology, unnamed).trajectory) is Reader


def test_a_format_may_be_named(adk):
    assert type(paceline.Universe(*adk, format="DCD").trajectory) is Reader
    lammps = paceline.Universe(*adk, format="LAMMPS")
    assert type(lammps.trajectory).__module__ == "MDAnalysis.coordinates.LAMMPS"


def test_without_a_trajectory():
    assert paceline.Universe(datafiles.GRO).trajectory.n_frames == 1
    assert paceline.Universe(datafiles.PSF).atoms.n_atoms == 3341
    assert len(paceline.Universe.empty(3, trajectory=True).atoms) == 3


def test_no_files_are_no_trajectory(adk):
    none = "expected one trajectory file or more, found none"
    for names in ([], ()):
        with pytest.raises(ValueError, match=none):
            paceline.Universe(adk.topology, names)
        with paceline.register(), pytest.raises(ValueError, match=none):
            MDAnalysis.Universe(adk.topology, names)


def test_missing_files_are_named(adk):
    for names in ("missing.xtc", [adk.trajectory, "missing.xtc"]):
        with pytest.raises(FileNotFoundError, match=r"missing\.xtc"):
            paceline.Universe(adk.topology, names)


# One Universe opens a file once


def test_a_universe_opens_each_file_once(adk_in_water, opened):
    paceline.Universe(*adk_in_water)
    assert opened == [adk_in_water.trajectory]
    with pytest.warns(PacelineWarning, match="repeated"):
        paceline.Universe(adk_in_water.topology, [adk_in_water.trajectory] * 2)
    assert opened == [adk_in_water.trajectory] * 3


def test_a_run_opens_nothing_again(adk, opened):
    calpha = paceline.Universe(*adk).select_atoms("name CA")
    RMSF(calpha).run(stop=3)
    RMSF(calpha).run(stop=3)
    assert opened == [adk.trajectory]


@pytest.mark.parametrize("n_files", [1, 2])
def test_a_note_is_given_once_at_the_users_line(adk_in_water, tmp_path, n_files):
    paths = [tmp_path / f"cut{k}.xtc" for k in range(n_files)]
    for path in paths:
        path.write_bytes(Path(adk_in_water.trajectory).read_bytes()[:-1000])
    with pytest.warns(PacelineWarning, match="is cut.*; the sim.* may still be wr") as caught:
        universe = paceline.Universe(adk_in_water.topology, paths, dt=1)
    assert len(caught) == n_files
    assert {warning.filename for warning in caught} == {__file__}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*a molecule is broken")
        RMSF(universe.select_atoms("name CA")).run(stop=3)


# The same as an ordinary Universe


def same_frames(ours, theirs):
    assert len(ours.trajectory) == len(theirs.trajectory)
    for one, other in zip(ours.trajectory, theirs.trajectory, strict=True):
        np.testing.assert_array_equal(one.positions, other.positions, strict=True)
        assert (one.frame, one.time) == (other.frame, other.time)
        assert ours.trajectory.time == theirs.trajectory.time


def test_same_frames(ours, theirs):
    assert isinstance(ours, MDAnalysis.Universe)
    same_frames(ours, theirs)


def test_continuous(tmp_path, adk_in_water):
    source = MDAnalysis.Universe(*adk_in_water)
    names = []
    for k, frames in enumerate((slice(0, 6), slice(4, 10))):
        names.append(str(tmp_path / f"part{k}.xtc"))
        source.atoms.write(names[-1], frames=source.trajectory[frames])
    both = [
        kind(adk_in_water.topology, names, continuous=True)
        for kind in (paceline.Universe, MDAnalysis.Universe)
    ]
    ours, theirs = ([(ts.time, ts.positions.copy()) for ts in one.trajectory] for one in both)
    for one, other in zip(ours, theirs, strict=True):
        assert one[0] == other[0]
        np.testing.assert_array_equal(one[1], other[1])


@pytest.mark.parametrize("frame", [3, -1])
def test_copies_keep_frame_and_edits(ours, frame):
    ours.trajectory[frame]
    ours.atoms.positions += 1
    for other in (ours.copy(), pickle.loads(pickle.dumps(ours))):
        assert type(other) is paceline.Universe
        assert other.trajectory.frame == ours.trajectory.frame
        assert {type(member) for member in readers_of(other)} == {Reader}
        np.testing.assert_array_equal(other.atoms.positions, ours.atoms.positions)
        other.trajectory[0]
        assert ours.trajectory.frame != 0


def test_pickled_atoms(ours):
    atoms = ours.select_atoms("name CA")
    ours.trajectory[2]
    revived = pickle.loads(pickle.dumps(atoms))
    np.testing.assert_array_equal(revived.positions, atoms.positions)


def test_in_memory(files):
    one, other = (
        kind(*files, in_memory=True, in_memory_step=3)
        for kind in (paceline.Universe, MDAnalysis.Universe)
    )
    assert isinstance(one.trajectory, MemoryReader)
    np.testing.assert_array_equal(one.trajectory.timeseries(), other.trajectory.timeseries())


def test_transfer_to_memory(ours, theirs):
    for universe in (ours, theirs):
        universe.transfer_to_memory(start=1, stop=8, step=2)
    same_frames(ours, theirs)


@pytest.mark.parametrize("suffix", ["xtc", "dcd", "pdb"])
def test_writing_atoms(ours, theirs, tmp_path, suffix):
    written = []
    for universe, name in ((ours, "ours"), (theirs, "theirs")):
        path = str(tmp_path / f"{name}.{suffix}")
        atoms = universe.select_atoms("name CA")
        atoms.write(path, frames=universe.trajectory[:5])
        topology = MDAnalysis.Merge(atoms)._topology
        written.append(MDAnalysis.Universe(topology, path))
    same_frames(*written)


# MDAnalysis's own analyses


def on_both(ours, theirs, analyse):
    for one, other in zip(analyse(ours), analyse(theirs), strict=True):
        np.testing.assert_array_equal(one, other)


def test_mdanalysis_rmsd(ours, theirs):
    def analyse(universe):
        run = rms.RMSD(universe, select="name CA", groupselections=["backbone"]).run()
        return run.results.rmsd, run.times, run.frames

    on_both(ours, theirs, analyse)


def test_mdanalysis_rmsf_and_alignment(ours, theirs):
    def analyse(universe):
        average = align.AverageStructure(universe, select="name CA").run()
        align.AlignTraj(universe, average.results.universe, select="name CA", in_memory=True).run()
        return [rms.RMSF(universe.select_atoms("name CA")).run().results.rmsf]

    on_both(ours, theirs, analyse)


def test_mdanalysis_alignment_to_a_file(ours, theirs, tmp_path):
    def analyse(universe):
        name = str(tmp_path / "aligned.dcd")
        align.AlignTraj(universe, universe.copy(), select="name CA", filename=name).run()
        return [MDAnalysis.Universe(universe._topology, name).trajectory.timeseries()]

    on_both(ours, theirs, analyse)


def test_mdanalysis_distances(ours, theirs):
    def analyse(universe):
        calpha = universe.select_atoms("name CA")
        for ts in universe.trajectory[::4]:
            yield distances.distance_array(calpha[:20], calpha[20:], box=ts.dimensions)

    on_both(ours, theirs, analyse)


@pytest.mark.one_in(3)
def test_mdanalysis_multiprocessing(files, ours, theirs):
    def analyse(universe):
        return [rms.RMSD(universe, select="name CA").run(**backend).results.rmsd]

    backend = {"backend": "multiprocessing", "n_workers": 2}
    on_both(ours, theirs, analyse)


# Numbers of atoms


@pytest.mark.parametrize("selection", _USUAL_PARTS)
@pytest.mark.parametrize("n_files", [1, 2])
def test_a_part_of_the_system_is_named(tmp_path, selection, n_files):
    # A residue of the protein, a ligand, an ion and a water.
    universe = MDAnalysis.Universe.empty(
        6, n_residues=4, atom_resindex=[0, 0, 1, 2, 3, 3], trajectory=True
    )
    universe.add_TopologyAttr("resnames", ["ALA", "LIG", "NA", "SOL"])
    universe.add_TopologyAttr("names", ["N", "CA", "C1", "NA", "OW", "HW1"])
    universe.dimensions = [10, 10, 10, 90, 90, 90]
    names = [str(tmp_path / f"part{k}.xtc") for k in range(n_files)]
    for name in names:
        universe.select_atoms(selection).write(name)
    n_atoms = len(universe.select_atoms(selection))
    with pytest.raises(AtomCountError) as caught:
        paceline.Universe(universe._topology, names)
    assert f"the topology has 6 atoms, the trajectory {n_atoms}" in str(caught.value)
    assert f'"{selection}"' in str(caught.value)
    assert caught.value.found == n_atoms


def test_a_trajectory_of_more_atoms(adk, adk_in_water):
    universe = paceline.Universe(adk.topology)
    with pytest.raises(AtomCountError, match=r"3341 atoms, the trajectory 5000; .*sub="):
        universe.load_new(adk_in_water.trajectory)


def test_a_topology_of_part_of_the_trajectory(adk_in_water):
    whole = paceline.Universe(*adk_in_water)
    protein = whole.select_atoms("protein")
    part = paceline.Universe(MDAnalysis.Merge(protein)._topology)
    part.load_new(adk_in_water.trajectory, sub=protein.indices)
    expected = RMSD(whole, select="name CA").run().results.rmsd
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*a molecule is broken")
        np.testing.assert_array_equal(RMSD(part, select="name CA").run().results.rmsd, expected)
    backwards = paceline.Universe(MDAnalysis.Merge(protein[::-1])._topology)
    backwards.load_new(adk_in_water.trajectory, sub=protein.indices[::-1])
    with pytest.warns(PacelineWarning, match=r"read by MDAnalysis \(Reader\)"):
        result = RMSD(backwards, select="name CA").run().results.rmsd
    np.testing.assert_allclose(result, expected, atol=1e-5)


@pytest.mark.parametrize("ending", ["gro", "pdb", "psf", "tpr"])
def test_an_empty_topology_is_named(ending, adk_in_water, tmp_path):
    empty = tmp_path / f"empty.{ending}"
    empty.touch()
    with pytest.raises(DamagedFileError, match=r"empty\..*expected a topology, found an empty"):
        paceline.Universe(empty, adk_in_water.trajectory)


def test_a_damaged_member_of_a_chain_is_named(adk_in_water, tmp_path):
    damaged = tmp_path / "damaged.xtc"
    damaged.write_bytes(b"\0" * 1000)
    with pytest.raises((DamagedFileError, UnsupportedError), match=r"damaged\.xtc"):
        paceline.Universe(adk_in_water.topology, [adk_in_water.trajectory, damaged])


# State of a Universe in a run


@pytest.mark.parametrize(
    "options", [{}, {"dt": 2.5}, {"time_offset": 7.25}, {"dt": 2.0, "time_offset": -1.0}], ids=str
)
@pytest.mark.parametrize("system", ["adk", "adk_in_water"])
def test_ordinary_universes_run_on_our_core(request, opened, system, options):
    files = request.getfixturevalue(system)
    ordinary = MDAnalysis.Universe(*files, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error", PacelineWarning)
        warnings.filterwarnings("ignore", message=".*the header says 500")
        warnings.filterwarnings("ignore", message=".*a molecule is broken")
        result = RMSD(ordinary, select="name CA").run().results.rmsd
        ours = RMSD(paceline.Universe(*files, **options), select="name CA").run().results.rmsd
    assert opened == [files.trajectory] * 2
    expected = rms.RMSD(ordinary, select="name CA").run().results.rmsd
    np.testing.assert_array_equal(result, ours)
    np.testing.assert_array_equal(result[:, :2], expected[:, :2])
    np.testing.assert_allclose(result[:, 2], expected[:, 2], atol=2e-5)


OTHERS = {
    "PDB": (datafiles.PDB_multiframe,),
    "XYZ": (datafiles.XYZ,),
    "LAMMPSDUMP": (datafiles.LAMMPSDUMP,),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_formats_are_read_by_mdanalysis(name):
    options = {"format": "LAMMPSDUMP"} if name == "LAMMPSDUMP" else {}
    ours = paceline.Universe(*OTHERS[name], **options)
    theirs = MDAnalysis.Universe(*OTHERS[name], **options)
    assert type(ours.trajectory) is type(theirs.trajectory)
    with pytest.warns(PacelineWarning, match=type(theirs.trajectory).__name__) as caught:
        result = RMSD(ours).run().results.rmsd
    # For dumps, a second warning says that times are unknown.
    found = [w for w in caught if w.category is PacelineWarning]
    assert {w.filename for w in found} == {__file__}
    assert sum("times" not in str(w.message) for w in found) <= 1
    with warnings.catch_warnings():
        warnings.simplefilter("error", PacelineWarning)
        warnings.filterwarnings("ignore", message=".*a molecule is broken")
        RMSF(ours.atoms).run()
    expected = rms.RMSD(theirs).run().results.rmsd
    np.testing.assert_array_equal(result[:, :2], expected[:, :2])
    np.testing.assert_allclose(result[:, 2], expected[:, 2], atol=2e-5)


def test_chains_with_other_formats(adk):
    files = (adk.topology, [adk.trajectory, datafiles.CRD])
    with pytest.warns(PacelineWarning, match="ChainReader"):
        result = RMSD(paceline.Universe(*files), select="name CA").run().results.rmsd
    expected = rms.RMSD(MDAnalysis.Universe(*files), select="name CA").run().results.rmsd
    np.testing.assert_array_equal(result[:, :2], expected[:, :2])
    np.testing.assert_allclose(result[:, 2], expected[:, 2], atol=2e-5)


@pytest.mark.full
def test_transformations(adk):
    results = []
    for kind in (paceline.Universe, MDAnalysis.Universe):
        universe = kind(*adk)
        calpha = universe.select_atoms("name CA")
        reference = universe.copy().select_atoms("name CA")
        universe.trajectory.add_transformations(
            translate([10, 0, -3]), fit_rot_trans(calpha, reference)
        )
        results.append(rms.RMSF(calpha).run().results.rmsf)
        if kind is paceline.Universe:
            with pytest.warns(PacelineWarning, match="transformed by MDAnalysis") as caught:
                ours = RMSF(calpha).run().results.rmsf
            assert [warning.filename for warning in caught] == [__file__]
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                RMSF(calpha).run()
    np.testing.assert_array_equal(*results)
    np.testing.assert_allclose(ours, results[1], rtol=1e-5)
    untransformed = RMSF(paceline.Universe(*adk).select_atoms("name CA")).run().results.rmsf
    assert not np.allclose(ours, untransformed)


def test_memory_keeps_edits(adk):
    universe = paceline.Universe(*adk, in_memory=True)
    universe.trajectory.get_array()[5:] *= 1.01
    calpha = universe.select_atoms("name CA")
    result = RMSF(calpha).run().results.rmsf
    np.testing.assert_allclose(result, rms.RMSF(calpha).run().results.rmsf, rtol=1e-5)


def average_of_frames():
    """Return a transformation that must get frames in order, and states this."""
    seen = []

    def average(ts):
        if ts.frame == 0:
            seen.clear()
        seen.append(ts.positions.copy())
        ts.positions = np.mean(seen, axis=0)
        return ts

    average.parallelizable = False
    return average


@pytest.mark.filterwarnings("ignore:frames are")
@pytest.mark.parametrize("how", ["decoded", "in memory", "translated", "followed", "marked"])
def test_a_run_leaves_the_present_frame(how, adk_in_water):
    universe = paceline.Universe(*adk_in_water, in_memory=how == "in memory")
    if how == "translated":
        universe.trajectory.add_transformations(translate([1, 2, 3]))
    if how == "followed":
        universe.trajectory.add_transformations(NoJump())
    if how == "marked":
        universe.trajectory.add_transformations(average_of_frames())
    # Unwrapping would be wrong if it started at another frame than the first.
    frame = 0 if how in ("followed", "marked") else 3
    before = universe.trajectory[frame].positions.copy()
    for _ in range(2):
        RMSF(universe.select_atoms("name CA")).run()
        assert universe.trajectory.frame == frame
        np.testing.assert_array_equal(universe.trajectory.ts.positions, before)


# Refused arguments


def test_groups_that_update_are_refused(adk):
    universe = paceline.Universe(*adk)
    group = universe.select_atoms("around 5 resid 1", updating=True)
    with pytest.raises(UnsupportedError, match="UpdatingAtomGroup"):
        open_trajectory([group])


def test_empty_groups_are_refused(adk):
    with pytest.raises(SelectionError, match="empty"):
        open_trajectory([paceline.Universe(*adk).atoms[:0]])
    with pytest.raises(ValueError, match="no analysis"):
        open_trajectory([])


@pytest.mark.parametrize("kind", [paceline.Universe, MDAnalysis.Universe])
@pytest.mark.parametrize("what", ["positions", "dimensions"])
def test_edited_frames_are_refused_and_kept(adk_in_water, kind, what):
    universe = kind(*adk_in_water)
    universe.trajectory[2]
    setattr(universe.trajectory.ts, what, getattr(universe.trajectory.ts, what) + 1)
    edited = getattr(universe.trajectory.ts, what).copy()
    with pytest.raises(UnsupportedError, match="frame 2 were edited"):
        RMSF(universe.select_atoms("name CA")).run()
    np.testing.assert_array_equal(getattr(universe.trajectory.ts, what), edited)


@pytest.mark.filterwarnings("ignore:NoJump", "ignore:frames are")
def test_frames_that_depend_on_those_before_are_named(adk_in_water):
    universe = paceline.Universe(*adk_in_water)
    universe.trajectory.add_transformations(NoJump())
    frames = iter(universe.trajectory)
    shown = [next(frames).positions.copy() for _ in range(5)]
    with pytest.raises(UnsupportedError, match=r"frame 4 .* NoJump .*trajectory\[0\]"):
        RMSF(universe.select_atoms("name CA")).run()
    np.testing.assert_array_equal(universe.trajectory.ts.positions, shown[4])
    universe.trajectory[0]
    RMSF(universe.select_atoms("name CA")).run()
    marked = paceline.Universe(*adk_in_water)
    marked.trajectory.add_transformations(average_of_frames())
    marked.trajectory[1]
    with pytest.raises(UnsupportedError, match=r"frame 1 .* average depends on the frames"):
        RMSF(marked.select_atoms("name CA")).run()


def test_a_cut_file_that_mdanalysis_counts_otherwise_is_refused(adk_in_water, tmp_path):
    path = tmp_path / "cut.xtc"
    path.write_bytes(Path(adk_in_water.trajectory).read_bytes()[:-1000])
    ordinary = MDAnalysis.Universe(adk_in_water.topology, path)
    with (
        pytest.warns(PacelineWarning, match="is cut"),
        pytest.raises(FileChangedError, match=r"10 frames .* 9 complete frames"),
    ):
        RMSF(ordinary.select_atoms("name CA")).run()


def test_mdanalysis_own_sub_is_refused(adk_in_water):
    protein = MDAnalysis.Universe(adk_in_water.topology).select_atoms("protein")
    part = MDAnalysis.Universe(MDAnalysis.Merge(protein)._topology)
    part.load_new(adk_in_water.trajectory, sub=protein.indices)
    with pytest.raises(UnsupportedError, match="sub="):
        RMSF(part.select_atoms("name CA")).run()


def test_native_units_are_refused_or_read_by_mdanalysis(adk_in_water):
    with pytest.raises(UnsupportedError, match="convert_units=False"):
        paceline.Universe(*adk_in_water, convert_units=False)
    ordinary = MDAnalysis.Universe(*adk_in_water, convert_units=False)
    with pytest.warns(PacelineWarning, match="XTCReader"):
        result = RMSD(ordinary, select="name CA").run().results.rmsd
    expected = rms.RMSD(ordinary, select="name CA").run().results.rmsd
    np.testing.assert_allclose(result, expected, atol=2e-5)


@pytest.mark.parametrize(
    "take",
    [
        lambda url, adk: paceline.open(url),
        lambda url, adk: paceline.Universe(adk.topology, url),
        lambda url, adk: paceline.Universe(url, adk.trajectory),
        lambda url, adk: paceline.Universe(adk.topology).load_new([adk.trajectory, url]),
        lambda url, adk: paceline.open(Path(url)),
        lambda url, adk: Write(paceline.Universe(*adk).atoms, url),
        lambda url, adk: RMSD(paceline.Universe(*adk)).run(stop=2, checkpoint=url),
    ],
)
def test_a_url_is_no_file(take, adk):
    with pytest.raises(
        UnsupportedError, match=r"ftp://host/md\.xtc: expected a file of this machine"
    ):
        take("ftp://host/md.xtc", adk)


@pytest.mark.parametrize("dt", [2, 2.0, np.int64(2)], ids=["int", "float", "int64"])
def test_dt_may_be_a_whole_number(adk, dt):
    universe = paceline.Universe(*adk, dt=dt)
    expected = [frame.time for frame in MDAnalysis.Universe(*adk, dt=2.0).trajectory[:3]]
    assert [frame.time for frame in universe.trajectory[:3]] == expected
    assert RMSD(universe.atoms).run(stop=3).times.tolist() == expected


@pytest.mark.parametrize(
    ("topology", "trajectory", "message"),
    [
        (
            datafiles.PSF,
            "table.csv",
            r"table\.csv: paceline and MDAnalysis know no trajectory of this name",
        ),
        (
            datafiles.PSF,
            [datafiles.DCD, "table.csv"],
            r"table\.csv: paceline and MDAnalysis know no trajectory",
        ),
        (
            datafiles.PSF,
            datafiles.PSF,
            r"adk\.psf: paceline and MDAnalysis know no trajectory .* format='XTC'",
        ),
        (datafiles.PSF, "folder", "folder is a folder: expected a file, the trajectory"),
        ("folder", datafiles.DCD, "folder is a folder: expected a file, the topology"),
        ("table.csv", datafiles.DCD, r"know no topology of this name .* topology_format='PSF'"),
    ],
)
def test_files_of_unknown_formats_are_named(topology, trajectory, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "table.csv").write_text("frame,RMSD\n0,1.5\n")
    with pytest.raises(UnsupportedError, match=message):
        paceline.Universe(topology, trajectory)


@pytest.mark.parametrize("names", [("missing.abc", datafiles.DCD), (datafiles.PSF, "missing.abc")])
def test_a_missing_file_of_unknown_format_is_missing(names):
    with pytest.raises(FileNotFoundError, match=r"missing\.abc"):
        paceline.Universe(*names)
