"""Tests of Universes that load some atoms: equal values for these, and errors for all others."""

import pickle
import warnings
from pathlib import Path
from types import SimpleNamespace

import MDAnalysis
import numpy as np
import pytest
from helpers import sound_files
from MDAnalysis.analysis import align, rms
from MDAnalysis.analysis.base import AnalysisFromFunction
from MDAnalysis.analysis.rdf import InterRDF
from MDAnalysis.lib import distances
from MDAnalysis.transformations import center_in_box, fit_rot_trans, wrap
from MDAnalysis.transformations.nojump import NoJump

import paceline
from paceline.analysis.hydrogenbonds import HydrogenBondAnalysis
from paceline.analysis.rms import RMSD, RMSF
from paceline.block import FIELDS
from paceline.errors import AtomCountError, AtomsNotLoadedError, SelectionError, UnsupportedError
from paceline.mdanalysis.reader import Reader

REFUSED = r"not loaded: Universe\(…, atoms='protein'\) loads 3,341 of 47,681"


@pytest.fixture(scope="module")
def whole(adk_in_water):
    return paceline.Universe(*adk_in_water)


@pytest.fixture(scope="module")
def part(adk_in_water):
    return paceline.Universe(*adk_in_water, atoms="protein")


@pytest.fixture
def case(whole, part):
    """Return Universes with all and with some atoms, and protein and water of the second."""
    whole.trajectory[0], part.trajectory[0]
    groups = part.select_atoms("protein"), part.select_atoms("resname SOL")
    return SimpleNamespace(
        whole=whole, part=part, ts=part.trajectory.ts, protein=groups[0], water=groups[1]
    )


def same(one, other, atoms):
    """Compare the frames of a reader of all atoms with those of a reader of some atoms."""
    assert one.frame == other.frame
    np.testing.assert_array_equal(one.time, other.time)
    assert one.data.keys() == other.data.keys()
    np.testing.assert_array_equal(one.dimensions, other.dimensions)
    for field in FIELDS:
        assert getattr(one, f"has_{field}") == getattr(other, f"has_{field}")
        if getattr(one, f"has_{field}"):
            values, some = getattr(one, field), getattr(other, field)
            np.testing.assert_array_equal(some[atoms], values[atoms], strict=True)
            shown = np.array(some)
            assert np.isnan(np.delete(shown, atoms, axis=0)).all()


# Values


@pytest.mark.parametrize("kind", sound_files.MAKERS)
@pytest.mark.filterwarnings("ignore")
def test_equal_values_in_every_format(kind, tmp_path):
    file = sound_files.MAKERS[kind](tmp_path)
    path = tmp_path / "copies" / file.name
    path.parent.mkdir()
    path.write_bytes(file.content)
    options = {"units": "nm, ps"} if kind == "h5md, lammps" else {}
    whole = Reader(path, **options)
    for atoms in ([0], [whole.n_atoms - 1], np.arange(whole.n_atoms)[::-2]):
        part = Reader(path, sub=atoms, n_atoms=whole.n_atoms, **options)
        assert part.n_atoms == whole.n_atoms
        for one, other in zip(whole, part, strict=True):
            same(one, other, atoms)
        for frame in (-1, 0, min(2, whole.n_frames - 1)):
            same(whole[frame], part[frame], atoms)


def test_equal_values_where_frames_lack_fields(moving):
    topology, path = moving
    atoms = np.arange(1990, 20, -7)
    whole, part = paceline.Universe(topology, path), paceline.Universe(topology, path, atoms=atoms)
    for one, other in zip(whole.trajectory, part.trajectory, strict=True):
        same(one, other, atoms)
    for frame in (4, 3, 0, 1, 19, 8):
        same(whole.trajectory[frame], part.trajectory[frame], atoms)
    with pytest.raises(AtomsNotLoadedError, match="atom 0 was not loaded"):
        part.trajectory[0].velocities[0]
    with pytest.raises(AtomsNotLoadedError):
        _ = part.atoms.forces


def test_equal_values_in_a_chain(adk_in_water, case):
    files = [adk_in_water.trajectory] * 2
    with warnings.catch_warnings(action="ignore"):
        whole, part = (
            paceline.Universe(adk_in_water.topology, files, **options)
            for options in ({}, {"atoms": case.protein.ix[::-1]})
        )
    for step in (1, 3, -1):
        for one, other in zip(whole.trajectory[::step], part.trajectory[::step], strict=True):
            same(one, other, case.protein.ix)
    assert part.trajectory.n_frames == 20


@pytest.mark.parametrize("how", ["text", "indices", "booleans", "group", "shuffled"])
def test_ways_to_name_atoms(adk_in_water, whole, how):
    protein = whole.select_atoms("protein")
    chosen = {
        "text": "protein",
        "indices": protein.ix.tolist(),
        "booleans": np.isin(np.arange(len(whole.atoms)), protein.ix),
        "group": protein,
        "shuffled": np.random.default_rng(5).permutation(protein.ix),
    }[how]
    part = paceline.Universe(*adk_in_water, atoms=chosen)
    again = paceline.Universe(adk_in_water.topology)
    again.load_new(adk_in_water.trajectory, atoms=chosen)
    for universe in (part, again):
        same(whole.trajectory[6], universe.trajectory[6], protein.ix)


def test_sub_of_a_topology_of_all_atoms(adk_in_water, whole):
    protein = whole.select_atoms("protein")
    with paceline.register() as registration:
        universe = MDAnalysis.Universe(adk_in_water.topology)
        universe.load_new(adk_in_water.trajectory, sub=protein.ix)
    assert registration.opened == [adk_in_water.trajectory]
    same(whole.trajectory[4], universe.trajectory[4], protein.ix)
    with pytest.raises(AtomsNotLoadedError, match=r"not loaded: load_new\(…, sub=…\) loads 3,341"):
        universe.atoms.center_of_mass()
    universe.load_new(adk_in_water.trajectory)  # all atoms again
    assert np.isfinite(universe.atoms.positions).all()


def test_atoms_of_an_ordinary_universe_are_left_to_mdanalysis(adk_in_water):
    with paceline.register(), pytest.warns(UserWarning, match="pass indices as sub="):
        MDAnalysis.Universe(*adk_in_water, atoms="protein")


def test_all_atoms_are_no_part(adk_in_water):
    universe = paceline.Universe(*adk_in_water, atoms="all")
    assert universe.trajectory.loaded is None
    assert type(universe.trajectory.ts.positions) is np.ndarray


@pytest.mark.parametrize(
    ("atoms", "message"),
    [
        ("resname LIG", "atoms='resname LIG'.* names no atoms"),
        ([], "names no atoms"),
        ([7, 5, 7], "names atom 7 more than once"),
        ([-1], "have no index -1"),
        ([0, 47681], "47681 atoms have no index 47681"),
        ([0.5], "expected indices of atoms, found float64"),
        ([True, False], "expected indices of atoms, found bool"),
        ("around 3 protein", "the topology alone selects atoms"),
        ("protein or", "Unknown selection token"),
    ],
    ids=str,
)
def test_wrong_choices(adk_in_water, atoms, message):
    with pytest.raises((SelectionError, MDAnalysis.SelectionError), match=message):
        paceline.Universe(*adk_in_water, atoms=atoms)


@pytest.mark.parametrize("sub", [[], [3, 3], [-5], [47681]], ids=str)
def test_wrong_sub(adk_in_water, sub):
    universe = paceline.Universe(adk_in_water.topology)
    with pytest.raises(SelectionError, match=r"load_new\(…, sub=…\)"):
        universe.load_new(adk_in_water.trajectory, sub=sub)


def test_files_that_do_not_fit(adk, adk_in_water):
    with pytest.raises(AtomCountError, match="47681 atoms, the trajectory 3341"):
        paceline.Universe(adk_in_water.topology, adk.trajectory, atoms="protein")
    with pytest.raises(UnsupportedError, match="MDAnalysis reads this trajectory"):
        paceline.Universe(adk_in_water.topology, atoms="protein")
    with pytest.raises(UnsupportedError, match="but none is given"):
        paceline.Universe(adk.topology, atoms="protein")


# Errors

USES = {
    "positions": lambda case: case.part.atoms.positions,
    "positions of some": lambda case: case.part.atoms[3300:3400].positions,
    "position of one": lambda case: case.water[0].position,
    "center_of_geometry": lambda case: case.part.atoms.center_of_geometry(),
    "center_of_mass of residues": lambda case: case.water.center_of_mass(compound="residues"),
    "radius_of_gyration": lambda case: case.part.atoms.radius_of_gyration(),
    "bbox": lambda case: case.part.atoms.bbox(),
    "wrap": lambda case: case.part.atoms.wrap(),
    "translate": lambda case: case.water.translate([1, 2, 3]),
    "set positions": lambda case: setattr(case.water, "positions", case.ts.dimensions[:3]),
    "around": lambda case: case.part.select_atoms("resname SOL and around 4 protein"),
    "sphzone": lambda case: case.part.select_atoms("sphzone 5 protein"),
    "sphlayer": lambda case: case.part.select_atoms("sphlayer 3 5 protein"),
    "cyzone": lambda case: case.part.select_atoms("cyzone 3 2 -2 protein"),
    "point": lambda case: case.part.select_atoms("point 1 2 3 5"),
    "prop": lambda case: case.part.select_atoms("prop x > 5"),
    "updating": lambda case: case.part.select_atoms("around 3 protein", updating=True),
    "Merge": lambda case: MDAnalysis.Merge(case.part.atoms),
    "alignto": lambda case: align.alignto(case.part, case.whole, select="name OW"),
    "rmsd": lambda case: rms.rmsd(case.water.positions, case.water.positions),
    "transfer_to_memory": lambda case: case.part.copy().transfer_to_memory(),
    "timeseries": lambda case: case.part.trajectory.timeseries(),
    "timeseries of some": lambda case: case.part.trajectory.timeseries(case.water[:5]),
    "distance_array": lambda case: distances.distance_array(
        case.ts.positions, case.protein.positions
    ),
    "mean": lambda case: case.ts.positions.mean(axis=0),
    "np.mean": lambda case: np.mean(case.ts.positions),
    "np.linalg.norm": lambda case: np.linalg.norm(case.ts.positions, axis=1),
    "np.add.reduce": lambda case: np.add.reduce(case.ts.positions),
    "max of a column": lambda case: case.ts.positions[:, 2].max(),
    "comparison": lambda case: case.ts.positions[case.ts.positions[:, 0] > 5],
    "copy": lambda case: case.ts.positions.copy(),
    "T": lambda case: case.ts.positions.T,
    "flat": lambda case: list(case.ts.positions.flat),
    "loop over atoms": lambda case: list(case.ts.positions),
    "loop over the frame": lambda case: list(case.ts),
    "row": lambda case: case.ts.positions[-1],
    "number": lambda case: case.ts.positions[-1, 0],
    "slice": lambda case: case.ts.positions[-5:],
    "item of the frame": lambda case: case.ts[40000],
    "copy of the frame": lambda case: case.ts.copy().positions[40000],
    "slice of the frame": lambda case: case.ts.copy_slice(slice(None)),
    "pickled frame": lambda case: pickle.loads(pickle.dumps(case.ts)).positions[40000],
    "copied": lambda case: case.part.copy().atoms.positions,
    "pickled": lambda case: pickle.loads(pickle.dumps(case.part)).atoms.positions,
    "AnalysisFromFunction": lambda case: AnalysisFromFunction(
        lambda group: group.positions.mean(), case.water
    ).run(),
    "RDF of MDAnalysis": lambda case: InterRDF(case.protein[:5], case.water[:50]).run(),
    "RMSF": lambda case: RMSF(case.water[:90]).run(),
    "RMSD": lambda case: RMSD(case.part, select="name OW").run(),
    "TimeSeries": lambda case: paceline.TimeSeries(len, case.part.atoms).run(),
    "HydrogenBondAnalysis": lambda case: HydrogenBondAnalysis(
        case.part, "name OW", "name HW1 HW2", "name O"
    ).run(),
    "Write": lambda case: paceline.Write(case.part.atoms, "unwritten.xtc").run(),
    "dask_array": lambda case: paceline.dask_array(case.water),
}


@pytest.mark.parametrize("use", USES)
def test_uses_of_other_atoms_raise(case, use, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AtomsNotLoadedError, match=REFUSED):
        USES[use](case)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("ending", ["xtc", "trr", "dcd", "ncdf", "h5md", "xyz", "gro", "pdb"])
@pytest.mark.filterwarnings("ignore")
def test_writers_refuse_other_atoms(case, tmp_path, ending):
    path = str(tmp_path / f"a.{ending}")
    with pytest.raises(AtomsNotLoadedError, match=REFUSED):
        case.part.atoms.write(path)
    with (
        pytest.raises(AtomsNotLoadedError, match=REFUSED),
        MDAnalysis.Writer(path, len(case.part.atoms)) as writer,
    ):
        writer.write(case.part.atoms)
    with paceline.H5MDWriter(tmp_path / "b.h5md", len(case.part.atoms)) as writer:
        for everything in (case.part, case.part.atoms):
            with pytest.raises(AtomsNotLoadedError, match=REFUSED):
                writer.write(everything)
    case.protein.write(path)
    written = MDAnalysis.Universe(path, to_guess=()).atoms if ending in ("gro", "pdb") else None
    if written is not None:
        np.testing.assert_allclose(written.positions, case.protein.positions, atol=0.01)


@pytest.mark.parametrize("ending", ["xtc", "trr", "dcd", "ncdf", "trz", "xyz", "gro", "pdb"])
@pytest.mark.filterwarnings("ignore")
def test_writers_refuse_the_universe(case, tmp_path, ending):
    with (
        MDAnalysis.Writer(str(tmp_path / f"a.{ending}"), len(case.part.atoms)) as writer,
        pytest.raises(AtomsNotLoadedError, match=REFUSED),
    ):
        writer.write(case.part)


def test_numpy_sees_nan_where_no_error_can_be_raised(case):
    shown = np.asarray(case.ts.positions)
    assert np.isnan(shown[case.water.ix]).all()
    shown[:] = 5  # the next frame replaces it
    case.part.trajectory.next()
    assert np.isnan(np.asarray(case.ts.positions)[case.water.ix]).all()
    case.ts.positions = shown * 0
    same(case.whole.trajectory[2], case.part.trajectory[2], case.protein.ix)


# Results


def results(universe, atoms):
    all_of_them, ca = universe.select_atoms(atoms), universe.select_atoms("name CA")
    rmsd, rmsf, weighted = RMSD(ca), RMSF(ca), RMSD(all_of_them, weights="mass")
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        paceline.run([rmsd, rmsf, weighted])
    return (
        rmsd.results.rmsd,
        rmsf.results.rmsf,
        weighted.results.rmsd,
        sorted(str(one.message) for one in given),
    )


@pytest.mark.parametrize("atoms", ["protein", "protein and not name H*"])
def test_results_have_the_same_bits(adk_in_water, atoms):
    wanted = paceline.Universe(*adk_in_water)
    part = paceline.Universe(*adk_in_water, atoms=atoms)
    *expected, messages = results(wanted, atoms)
    *found, same_messages = results(part, atoms)
    assert messages == same_messages
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_array_equal(one, other)


def test_checks_of_molecules_read_other_atoms(adk_in_water):
    """Check bonds between Cα atoms, which are paths over atoms that are not loaded."""
    rmsds, messages = [], []
    for options in ({}, {"atoms": "name CA"}):
        universe = paceline.Universe(*adk_in_water, **options)
        universe.trajectory[3]
        with warnings.catch_warnings(record=True) as given:
            warnings.simplefilter("always")
            whole = paceline.transform.unwrap()
            run = RMSD(universe, select="name CA").run(transforms=[whole])
        rmsds.append(run.results.rmsd)
        messages.append([str(one.message) for one in given])
    np.testing.assert_array_equal(*rmsds)
    assert messages[0] == messages[1]


@pytest.mark.parametrize("native", [True, False])
def test_analyses_of_mdanalysis(adk_in_water, case, native):
    with paceline.register(native=native):
        universes = [MDAnalysis.Universe(*adk_in_water) for _ in range(2)]
        universes[1].load_new(adk_in_water.trajectory, sub=case.protein.ix)
        found = [
            rms.RMSD(one, select="name CA", groupselections=["name CB"]).run().results.rmsd
            for one in universes
        ]
        np.testing.assert_array_equal(*found)
        with pytest.raises(AtomsNotLoadedError):
            rms.RMSD(universes[1], select="name OW").run()


def test_worker_processes_raise_too(adk_in_water):
    part = paceline.Universe(*adk_in_water, atoms="protein")
    with paceline.register(), pytest.raises(RuntimeError, match=REFUSED):
        rms.RMSF(part.select_atoms("name OW")).run(backend="processes", n_workers=2)


@pytest.mark.parametrize(
    "make",
    [
        lambda group, whole: fit_rot_trans(group, whole.select_atoms("protein")),
        lambda group, whole: center_in_box(group),
        lambda group, whole: wrap(group),
        lambda group, whole: NoJump(),
    ],
    ids=["fit_rot_trans", "center_in_box", "wrap", "NoJump"],
)
def test_transformations_of_loaded_atoms(adk_in_water, make):
    universes = [
        paceline.Universe(*adk_in_water, **options) for options in ({}, {"atoms": "protein"})
    ]
    reference = paceline.Universe(*adk_in_water)
    for one in universes:
        one.trajectory.add_transformations(make(one.select_atoms("protein"), reference))
    protein = universes[0].select_atoms("protein").ix
    for one, other in zip(*(universe.trajectory for universe in universes), strict=True):
        same(one, other, protein)
    universes[1].trajectory[0]
    with (
        pytest.raises(AtomsNotLoadedError, match=REFUSED),
        warnings.catch_warnings(action="ignore"),
    ):
        RMSF(universes[1].select_atoms("name OW")).run()


def test_transformations_of_other_atoms_are_refused(adk_in_water):
    part = paceline.Universe(*adk_in_water, atoms="protein")
    with pytest.raises(AtomsNotLoadedError, match=REFUSED):
        part.trajectory.add_transformations(center_in_box(part.select_atoms("resname SOL")))


def test_a_damaged_first_frame(damaged, tmp_path):
    system, _ = damaged
    data = bytearray(Path(system.trajectory).read_bytes())
    data[92:108] = b"\xff" * 16
    path = tmp_path / "a.xtc"
    path.write_bytes(data)
    with pytest.warns(UserWarning, match="its positions are NaN"):
        part = paceline.Universe(system.topology, path, atoms="name CA")
    assert np.isnan(part.select_atoms("name CA").positions).all()
    with pytest.raises(AtomsNotLoadedError):
        _ = part.atoms.positions
    same(
        paceline.Universe(*system).trajectory[2],
        part.trajectory[2],
        part.select_atoms("name CA").ix,
    )


def test_arithmetic_keeps_the_atoms(case):
    positions, plain = case.ts.positions, np.array(case.ts.positions)
    rows = case.protein.ix[[5, 2, 2, -1]]
    turn = np.array([[0, 1, 0], [-1, 0, 0], [0, 0, 1]], np.float32)
    for made, expected in [
        (positions + turn[0], plain + turn[0]),
        (2 * positions - positions[0], 2 * plain - plain[0]),
        (np.dot(positions, turn), np.dot(plain, turn)),
        (positions @ turn, plain @ turn),
        (np.round(positions, 1), np.round(plain, 1)),
        (positions[:, ::2] * positions[:, :1], plain[:, ::2] * plain[:, :1]),
        (np.negative(positions[::-1])[::-1], -plain),
    ]:
        for key in (rows, rows.tolist(), (rows, 0), slice(7, 90), 11, (11, 1), (None, rows)):
            np.testing.assert_array_equal(made[key], expected[key], strict=True)
        for key in (
            -1,
            (-1, 0),
            [5, -1],
            np.array([5, -1]),
            slice(-9, None),
            np.arange(len(plain)) > 5,
        ):
            with pytest.raises(AtomsNotLoadedError, match="not loaded"):
                made[key]
    across = positions[None, :, 0]
    assert across.shape == (1, len(plain))
    with pytest.raises(AtomsNotLoadedError):
        across[np.array([0])]


def test_values_are_changed_in_place(case):
    before = np.array(case.ts.positions)
    case.ts.positions += [1, 2, 3]
    case.ts.positions[:] -= np.float32(0.5)
    case.ts.positions[:10] *= 2
    case.protein.positions += 4
    expected = before + np.array([1, 2, 3], np.float32) - np.float32(0.5)
    expected[:10] *= 2
    np.testing.assert_array_equal(case.protein.positions, expected[case.protein.ix] + 4)
    for change in (
        lambda: case.ts.positions.__setitem__(slice(None), 0),
        lambda: case.ts.positions.__setitem__(slice(10), case.ts.positions[3335:3345]),
        lambda: np.add(case.ts.positions, 1, out=np.empty_like(before)),
        lambda: np.add(1, 1, out=case.ts.positions),
        lambda: np.copyto(case.ts.positions, before),
    ):
        with pytest.raises(AtomsNotLoadedError, match=REFUSED):
            change()
