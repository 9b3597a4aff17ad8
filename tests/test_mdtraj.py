"""Tests that blocks and chunks as MDTraj trajectories equal what MDTraj reads."""

import functools
import sys

import MDAnalysis
import mdtraj
import numpy as np
import pytest
from MDAnalysisTests import datafiles

import paceline
from paceline.errors import AtomCountError, UnsupportedError
from paceline.mdtraj import iterload, topology, trajectory

pytestmark = pytest.mark.filterwarnings("ignore")

#: Files with triclinic and other cells, and without cells.
FILES = {
    "xtc": (datafiles.XTC, datafiles.GRO),
    "trr": (datafiles.TRR, datafiles.GRO),
    "dcd": (datafiles.DCD, datafiles.PSF),
    "netcdf": (datafiles.NCDF, datafiles.PRMncdf),
}


@pytest.fixture(scope="module")
def hdf5(tmp_path_factory):
    """HDF5 in MDTraj's own format, with a topology."""
    path = tmp_path_factory.mktemp("hdf5") / "traj.h5"
    md = mdtraj.load(datafiles.XTC, top=datafiles.GRO, atom_indices=range(500))
    md.save(str(path))
    return str(path)


def assert_same(found, expected, *, times=True):
    """Compare two MDTraj trajectories up to the last bits of single precision."""
    assert found.xyz.dtype == expected.xyz.dtype == np.float32
    np.testing.assert_allclose(found.xyz, expected.xyz, rtol=3e-7, atol=1e-7)
    for name in ("unitcell_vectors", "unitcell_lengths", "unitcell_angles"):
        ours, theirs = getattr(found, name), getattr(expected, name)
        if theirs is None:
            assert ours is None
        else:
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
    if times:
        np.testing.assert_allclose(found.time, expected.time, rtol=1e-6)
    assert found.topology == expected.topology


@functools.cache
def loaded_by_mdtraj(name):
    path, top = FILES[name]
    return mdtraj.load(path, top=top)


# MDTraj's `iterload` aborts the process for some TRR files with a stride and atom indices.
@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, marks=pytest.mark.full),
        pytest.param({"stride": 2}, marks=pytest.mark.full),
        pytest.param({"chunk": 3}, marks=pytest.mark.full),
        {"chunk": 3, "stride": 2},
    ],
)
@pytest.mark.parametrize(
    "atoms", [pytest.param(None, marks=pytest.mark.full), [0, 3, 4, 20]], ids=["all", "some"]
)
@pytest.mark.parametrize("name", FILES)
def test_chunks_are_those_of_mdtraj(name, atoms, options):
    whole = loaded_by_mdtraj(name)[:: options.get("stride")]
    chunk = options.get("chunk", 100)
    expected = [whole[first : first + chunk] for first in range(0, len(whole), chunk)]
    path, top = FILES[name]
    found = list(iterload(path, top=top, atom_indices=atoms, **options))
    assert len(found) == len(expected) > 0
    # MDTraj numbers the frames of DCD files, and returns zeros for NetCDF files without times.
    for ours, theirs in zip(found, expected, strict=True):
        theirs = theirs if atoms is None else theirs.atom_slice(atoms)
        assert_same(ours, theirs, times=name in ("xtc", "trr"))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", ["xtc", "dcd"])
@pytest.mark.parametrize("options", [{}, {"chunk": 3}, {"chunk": 3, "stride": 2}, {"skip": 5}])
def test_chunks_end_where_mdtraj_s_end(name, options):
    path, top = FILES[name]
    options = options | {"top": mdtraj.load_topology(top)}
    found, expected = iterload(path, **options), mdtraj.iterload(path, **options)
    for ours, theirs in zip(found, expected, strict=True):
        assert_same(ours, theirs, times=name == "xtc")


def test_units_are_nm_and_ps():
    [md] = iterload(datafiles.XTC, chunk=0, top=datafiles.GRO)
    u = MDAnalysis.Universe(datafiles.GRO, datafiles.XTC)
    np.testing.assert_allclose(md.xyz[0] * 10, u.atoms.positions, rtol=1e-6)
    np.testing.assert_allclose(md.time, [ts.time for ts in u.trajectory])
    u.trajectory[0]
    np.testing.assert_allclose(md.unitcell_lengths[0] * 10, u.dimensions[:3], rtol=1e-6)
    np.testing.assert_allclose(md.unitcell_angles[0], u.dimensions[3:], rtol=1e-6)
    np.testing.assert_allclose(
        md.unitcell_vectors[0] * 10, u.trajectory.ts.triclinic_dimensions, rtol=1e-5, atol=1e-4
    )


def test_times_of_dcd_are_those_of_the_file():
    [md] = iterload(datafiles.DCD, chunk=0, top=datafiles.PSF)
    u = MDAnalysis.Universe(datafiles.PSF, datafiles.DCD)
    np.testing.assert_allclose(md.time, [ts.time for ts in u.trajectory], rtol=1e-6)


def test_hdf5_has_its_own_topology(hdf5):
    for options in ({"chunk": 4}, {"chunk": 0}, {"chunk": 4, "atom_indices": [1, 7]}):
        for ours, theirs in zip(
            iterload(hdf5, **options), mdtraj.iterload(hdf5, **options), strict=True
        ):
            assert_same(ours, theirs)


def test_frames_are_skipped_as_in_mdtraj():
    options = {"top": mdtraj.load_topology(datafiles.PSF)}
    for more in ({"chunk": 30, "skip": 13}, {"chunk": 0, "skip": 5}):
        found = list(iterload(datafiles.DCD, **options, **more))
        expected = list(mdtraj.iterload(datafiles.DCD, **options, **more))
        assert [len(one) for one in found] == [len(one) for one in expected]
        for ours, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(ours.xyz, theirs.xyz, rtol=3e-7, atol=1e-7)
    # With a chunk size of 0, MDTraj ignores the stride and the atoms.
    [one] = iterload(datafiles.DCD, 0, **options, stride=3, skip=5, atom_indices=[0, 7])
    expected = mdtraj.load(datafiles.DCD, **options)[5::3].atom_slice([0, 7])
    assert_same(one, expected, times=False)
    # With such a stride, MDTraj repeats chunks of XTC files endlessly.
    lengths = [len(one) for one in iterload(datafiles.XTC, 4, top=datafiles.GRO, stride=3, skip=1)]
    assert lengths == [3]


def test_several_files_and_other_formats(tmp_path):
    u = MDAnalysis.Universe(datafiles.TPR_xvf, datafiles.H5MD_xvf)
    found = list(iterload(datafiles.H5MD_xvf, 2, top=u))
    np.testing.assert_allclose(found[0].xyz[0] * 10, u.atoms.positions, rtol=1e-6)
    parts = iterload([datafiles.DCD, datafiles.DCD], 100, top=datafiles.PSF)
    assert [len(one) for one in parts] == [100, 96]


def test_what_is_wrong_is_named(monkeypatch):
    with pytest.raises(AtomCountError, match=r"expected 3341 atoms.*found 47681"):
        iterload(datafiles.XTC, top=datafiles.PSF)
    with pytest.raises(ValueError, match="does not describe its atoms"):
        iterload(datafiles.XTC)
    for wrong in ({"chunk": -1}, {"stride": 0}, {"skip": -2}):
        with pytest.raises(ValueError, match="expected"):
            iterload(datafiles.DCD, top=datafiles.PSF, **wrong)
    for atoms in ([3, 2], [-1, 2], [0, 3341], [], [0.5], [2, 2]):
        with pytest.raises(ValueError, match="atom_indices"):
            iterload(datafiles.DCD, top=datafiles.PSF, atom_indices=atoms)
    ca = paceline.Universe(datafiles.PSF, datafiles.DCD).select_atoms("name CA")
    with pytest.raises(ValueError, match="'paceline' or 'mdtraj'"):
        paceline.TimeSeries(len, ca, block="other")
    with pytest.raises(UnsupportedError, match="only positions"):
        paceline.TimeSeries(len, ca, block="mdtraj", fields=["velocities"])
    monkeypatch.setitem(sys.modules, "mdtraj", None)
    with pytest.raises(UnsupportedError, match=r"paceline\[mdtraj\]"):
        iterload(datafiles.DCD, top=datafiles.PSF)
    with pytest.raises(UnsupportedError, match=r"paceline\[mdtraj\]"):
        paceline.TimeSeries(len, ca, block="mdtraj").run()


@pytest.fixture(scope="module")
def protein():
    return paceline.Universe(datafiles.GRO, datafiles.XTC).select_atoms("protein")


@pytest.fixture
def loaded(protein):
    """The frames read by MDTraj; some of its functions move the atoms."""
    return loaded_by_mdtraj("xtc").atom_slice(protein.indices)


@pytest.mark.parametrize("backend", ["serial", "threads", "processes", "dask"])
def test_secondary_structure_on_each_backend(protein, loaded, backend):
    series = paceline.TimeSeries(mdtraj.compute_dssp, protein, block="mdtraj")
    series.run(backend=backend, n_workers=1 if backend == "serial" else 2)
    np.testing.assert_array_equal(series.results.timeseries, mdtraj.compute_dssp(loaded))


PAIRS = np.array([[0, 50], [7, 900], [33, 1200]])
FUNCTIONS = {
    "rg": mdtraj.compute_rg,
    "distances": functools.partial(mdtraj.compute_distances, atom_pairs=PAIRS),
    "phi": lambda md: mdtraj.compute_phi(md)[1],
    "contacts": lambda md: mdtraj.compute_contacts(md, [[0, 20], [5, 100]])[0],
    "sasa": functools.partial(mdtraj.shrake_rupley, n_sphere_points=20, mode="residue"),
    "center of mass": mdtraj.compute_center_of_mass,
    "inertia": mdtraj.compute_inertia_tensor,
    "volumes": lambda md: md.unitcell_volumes,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_mdtraj(protein, loaded, name):
    function = FUNCTIONS[name]
    found = paceline.TimeSeries(function, protein, block="mdtraj").run(backend="threads").results
    expected = function(loaded)
    assert found.timeseries.shape == expected.shape
    np.testing.assert_allclose(found.timeseries, expected, rtol=2e-4, atol=1e-5)


def test_a_reference_goes_along(protein, loaded):
    rmsd = paceline.TimeSeries(lambda md: mdtraj.rmsd(md, loaded, 3), protein, block="mdtraj")
    rmsd.run(backend="processes", n_workers=2)
    expected = mdtraj.rmsd(loaded, loaded, 3)
    np.testing.assert_allclose(rmsd.results.timeseries, expected, atol=2e-4)


def test_reductions(protein, loaded):
    reduced = paceline.Reduce(
        lambda md: (len(md), md.xyz.sum(axis=0, dtype=float)),
        lambda one, other: (one[0] + other[0], one[1] + other[1]),
        protein,
        block="mdtraj",
    )
    count, total = reduced.run(backend="threads").results.value
    assert count == 10
    np.testing.assert_allclose(total / count, loaded.xyz.mean(axis=0, dtype=float), atol=1e-6)


def test_scans(protein, loaded):
    series = paceline.Scan(
        lambda md: md.xyz.max(),
        max,
        lambda md, before: np.maximum.accumulate(
            np.fmax(md.xyz.max(axis=(1, 2)), -np.inf if before is None else before)
        ),
        protein,
        block="mdtraj",
    )
    found = series.run(n_workers=2, block_frames=1).results.timeseries
    expected = np.maximum.accumulate(loaded.xyz.max(axis=(1, 2)))
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_blocks_in_an_analysis_of_ones_own(protein, loaded):
    class Hidden:
        def __init__(self, atoms):
            self.atoms = atoms

        def compute(self, block):
            return mdtraj.compute_rg(trajectory(block, self.atoms))

    class Radius(paceline.AnalysisBase):
        def prepare(self):
            return Hidden(topology(self.atomgroup))

        def finish(self, value):
            self.results.rg = value

    found = Radius(protein).run(backend="threads").results.rg
    np.testing.assert_allclose(found, mdtraj.compute_rg(loaded), rtol=1e-5)


@pytest.mark.parametrize("order", ["as they are", "reversed", "some"])
def test_topologies_describe_the_atoms(order):
    u = MDAnalysis.Universe(datafiles.PSF, datafiles.DCD)
    atoms = {"as they are": u.atoms, "reversed": u.atoms[::-1], "some": u.atoms[50:90:3]}[order]
    made = topology(atoms)
    theirs = list(mdtraj.load_topology(datafiles.PSF).atoms)
    for atom, index in zip(made.atoms, atoms.indices, strict=True):
        assert atom.element == theirs[index].element
        assert atom.residue.name == theirs[index].residue.name
    assert [atom.residue.resSeq for atom in made.atoms] == list(atoms.resids)
    assert [atom.segment_id for atom in made.atoms] == list(atoms.segids)
    masses = [atom.element.mass for atom in made.atoms]
    np.testing.assert_allclose(masses, atoms.masses, atol=0.02)
    rows = {index: row for row, index in enumerate(atoms.indices)}
    expected = {
        frozenset((rows[one], rows[other]))
        for one, other in u.bonds.indices
        if one in rows and other in rows
    }
    assert {frozenset((bond[0].index, bond[1].index)) for bond in made.bonds} == expected


def test_chains_and_standard_bonds():
    u = MDAnalysis.Universe(datafiles.PDB_chainidrepeat)
    made = topology(u)
    found = [chain.chain_id for chain in made.chains]
    expected = {(atom.segindex, atom.chainID): atom.chainID for atom in u.atoms}
    assert found == list(expected.values())
    assert len(found) > 1
    small = MDAnalysis.Universe(datafiles.GRO).select_atoms("protein")
    expected = mdtraj.load_topology(datafiles.GRO).subset(small.indices)
    made = topology(small)
    assert made.n_bonds == expected.n_bonds > 3000
    assert [str(atom) for atom in made.atoms] == [str(atom) for atom in expected.atoms]


def test_frames_with_and_without_cells_are_refused():
    block = type("Block", (), {})()
    block.positions = np.zeros((2, 3, 3), dtype=np.float32)
    block.dimensions = np.array([[1, 1, 1, 90, 90, 90], [0] * 6], dtype=np.float32)
    block.times, block.frames = np.zeros(2), np.array([4, 5])
    with pytest.raises(UnsupportedError, match="frame 5 has no cell, but frame 4"):
        trajectory(block, mdtraj.Topology())
