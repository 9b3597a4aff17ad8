"""Tests of mean squared displacements and diffusion coefficients."""

import itertools
import re
import shutil
import warnings
from pathlib import Path

import MDAnalysis
import numpy as np
import pytest
from helpers import virtual_sites
from MDAnalysis.analysis import msd
from MDAnalysis.lib.mdamath import triclinic_vectors
from scipy import stats

import paceline
from benchmarks.coverage import diffusion_coverage, msd_coverage
from paceline import checkpoint
from paceline.analysis.correlation_by_particles import SeriesParts
from paceline.analysis.diffusion import DiffusionCoefficient, finite_size, mean_and_interval
from paceline.analysis.msd import EinsteinMSD
from paceline.engine import stage_over_collected_rows
from paceline.engine.worker import Worker
from paceline.errors import AnalysisError, PacelineWarning, SelectionError, UnsupportedError
from paceline.transform import nojump
from paceline.transform.nojump_workers import unwrap_series


@pytest.fixture(scope="module")
def ca(adk_xtc):
    return paceline.Universe(*adk_xtc).select_atoms("name CA")


@pytest.fixture(scope="module")
def alone(ca):
    return EinsteinMSD(ca).run(backend="serial").results


def made(tmp_path, positions, dt=2.0, cells=None):
    """Return a Universe of these positions, in a TRR file."""
    n_atoms = positions.shape[1]
    resindex = np.arange(n_atoms) // 2
    one = MDAnalysis.Universe.empty(
        n_atoms, int(resindex[-1]) + 1, atom_resindex=resindex, trajectory=True
    )
    one.add_TopologyAttr("resids", np.arange(1, int(resindex[-1]) + 2))
    one.add_TopologyAttr("masses", np.arange(1.0, n_atoms + 1))
    one.add_TopologyAttr("names", ["C"] * n_atoms)
    one.add_TopologyAttr("elements", ["C"] * n_atoms)
    one.dimensions = [100, 100, 100, 90, 90, 90]
    topology, path = tmp_path / "made.gro", tmp_path / "made.trr"
    one.atoms.write(str(topology))
    with MDAnalysis.Writer(str(path), n_atoms) as writer:
        for k, frame in enumerate(positions):
            one.atoms.positions = frame
            if cells is not None:
                one.dimensions = cells[k]
            one.trajectory.ts.time = dt * k
            writer.write(one.atoms)
    return paceline.Universe(str(topology), str(path))


@pytest.mark.parametrize("fft", [True, False])
def test_uniform_motion(fft, tmp_path):
    """Check a particle with velocity v, whose MSD is v² τ²."""
    velocities = np.array([[1.0, 2.0, -3.0], [0.0, 0.5, 0.0]])
    times = 2.0 * np.arange(20)
    universe = made(tmp_path, 50 + times[:, None, None] * velocities)
    for msd_type, axes in (("xyz", [0, 1, 2]), ("zx"[::-1], [0, 2]), ("Y", [1])):
        found = EinsteinMSD(universe, msd_type=msd_type, fft=fft).run()
        squares = (velocities[:, axes] ** 2).sum(axis=1)
        wanted = times[:, None] ** 2 * squares
        results = found.results
        np.testing.assert_allclose(results.msds_by_particle, wanted, rtol=1e-6, atol=1e-4)
        np.testing.assert_allclose(results.timeseries, wanted.mean(axis=1), rtol=1e-6, atol=1e-4)
        np.testing.assert_allclose(results.delta_t_values, times)
        assert (found.n_particles, found.dim_fac, found.n_frames) == (2, len(axes), 20)


@pytest.mark.parametrize("msd_type", ["xyz", "xz", "y"])
@pytest.mark.parametrize("fft", [True, False])
def test_as_mdanalysis(fft, msd_type, adk):
    theirs, universe = MDAnalysis.Universe(*adk), paceline.Universe(*adk)
    # MDAnalysis's FFT needs tidynamics; its direct sums do not.
    expected = msd.EinsteinMSD(theirs, "name CA", msd_type, fft=False).run(3, 90, 2)
    found = EinsteinMSD(universe, "name CA", msd_type, fft).run(3, 90, 2)
    tolerance = 1e-10 * expected.results.msds_by_particle.max()
    for name in ("timeseries", "msds_by_particle", "delta_t_values"):
        ours = found.results[name]
        assert ours.dtype == np.float64
        np.testing.assert_allclose(ours, expected.results[name], atol=tolerance, rtol=0)
    again = EinsteinMSD.from_mdanalysis(expected).run(3, 90, 2).results
    np.testing.assert_allclose(again.timeseries, expected.results.timeseries, atol=tolerance)


def test_centers_of_mass(adk):
    universe, theirs = paceline.Universe(*adk), MDAnalysis.Universe(*adk)
    chosen = "resid 5-40 and not name H*"
    group = theirs.select_atoms(chosen)
    centers = np.array(
        [group.center_of_mass(compound="residues") for _ in theirs.trajectory], dtype=float
    )
    found = EinsteinMSD(universe, chosen, compound="residues").run()
    assert found.n_particles == 36
    for lag in (1, 10, 60):
        squares = ((centers[lag:] - centers[:-lag]) ** 2).sum(axis=2).mean(axis=0)
        np.testing.assert_allclose(found.results.msds_by_particle[lag], squares, rtol=1e-9)


def test_centers_of_water_with_virtual_sites(tmp_path):
    """Check virtual sites without bonds in a TPR file: they belong to their water, and have no
    mass.
    """
    made, whole = virtual_sites.write_waters(tmp_path / "water.trr", virtual_sites.TIP4P)
    universe = paceline.Universe(made._topology, str(tmp_path / "water.trr"))
    whole = whole.reshape(len(whole), -1, 4, 3)
    centers = np.average(whole, axis=2, weights=virtual_sites.TIP4P[1])
    unwrap = [paceline.transform.unwrap()]
    for select in ("all", "not name MW"):
        found = EinsteinMSD(universe, select, compound="fragments").run(transforms=unwrap)
        assert found.n_particles == virtual_sites.N_WATERS
        squares = ((centers[10:] - centers[:-10]) ** 2).sum(axis=2).mean(axis=0)
        np.testing.assert_allclose(found.results.msds_by_particle[10], squares, rtol=1e-4)
    with pytest.raises(SelectionError, match=r"no mass, so no center; exclude it, by .* instance$"):
        EinsteinMSD(universe, "name MW", compound="fragments")


def test_unknown_masses_are_refused():
    from MDAnalysisTests.datafiles import Martini_membrane_gro

    universe = paceline.Universe(Martini_membrane_gro)
    with pytest.raises(UnsupportedError, match=r"compound='residues' needs masses, and those of"):
        EinsteinMSD(universe, "resname DPPC", compound="residues").run()


@pytest.mark.parametrize("fft", [True, False])
def test_frames_that_were_left_out_count_in_no_pair(fft, damaged, adk_xtc):
    system, frames = damaged
    group = paceline.Universe(*system).select_atoms("name CA")
    found = EinsteinMSD(group, fft=fft).run(on_error="skip")
    assert [frame for frame, _ in found.damaged] == frames
    sound = paceline.Universe(*adk_xtc).select_atoms("name CA")
    positions = np.array([sound.positions for _ in sound.universe.trajectory], dtype=float)
    counts = np.ones(98, bool)
    counts[frames] = False
    for lag in range(98):
        both = counts[lag:] & counts[: 98 - lag]
        squares = ((positions[lag:] - positions[: 98 - lag]) ** 2).sum(axis=2)[both]
        here = found.results.msds_by_particle[lag]
        if both.any():
            np.testing.assert_allclose(here, squares.mean(axis=0), atol=1e-8)
        else:
            assert np.isnan(here).all()
            assert lag > 90


@pytest.mark.full  # test_analyses also runs it
def test_bits_are_the_same_everywhere(where, ca, alone):
    found = EinsteinMSD(ca).run(**where, block_frames=32).results
    for name in ("timeseries", "msds_by_particle"):
        assert found[name].tobytes() == alone[name].tobytes()


def test_bits_of_centers_depend_on_no_block(ca):
    atoms = ca.universe.select_atoms("resid 1-30")
    found = {
        EinsteinMSD(atoms, compound="residues").run(block_frames=n).results.timeseries.tobytes()
        for n in (1, 16, 1000)
    }
    assert len(found) == 1


def test_large_ones_are_in_a_file(ca, alone, monkeypatch):
    monkeypatch.setattr(stage_over_collected_rows, "IN_MEMORY", 0)
    found = EinsteinMSD(ca).run().results
    assert isinstance(found.msds_by_particle, np.memmap)
    np.testing.assert_array_equal(found.msds_by_particle, alone.msds_by_particle)


class Interrupted(Exception):
    pass


def test_it_resumes_amid_its_particles(ca, alone, tmp_path, monkeypatch):
    """The 98 frames have 7 blocks of 16, and the 214 atoms have 31 parts of 7."""
    do, done, path = Worker.run, [], tmp_path / "checkpoint"

    def failing(self, task):
        if len(done) == 20:
            raise Interrupted
        done.append(task)
        return do(self, task)

    monkeypatch.setattr(checkpoint, "INTERVAL", 0.0)
    monkeypatch.setattr(checkpoint, "SHARE", 0.0)
    options = {"backend": "serial", "block_frames": 16, "checkpoint": path}
    with monkeypatch.context() as patch:
        patch.setattr(Worker, "run", failing)
        with pytest.raises(Interrupted):
            EinsteinMSD(ca).run(**options)
    found = EinsteinMSD(ca).run(**options)
    assert len(found.timings.blocks) == 38
    np.testing.assert_array_equal(found.results.msds_by_particle, alone.msds_by_particle)
    np.testing.assert_array_equal(found.results.timeseries, alone.timeseries)


def test_diffusion_of_random_walks(tmp_path):
    """Check steps of variance s² along each axis every dt, which yield D = s² / (2 dt)."""
    rng = np.random.default_rng(8)
    steps = rng.normal(scale=0.5, size=(200, 100, 3))
    universe = made(tmp_path, 50 + steps.cumsum(axis=0))
    found = EinsteinMSD(universe).run().diffusion_coefficient(start=4, stop=60)
    assert found.value == pytest.approx(0.25 / 4, abs=4 * found.error)
    assert 0.0005 < found.error < 0.01
    assert (found.start, found.stop, found.n_particles) == (4, 60, 100)
    # The errors equal those of repeated simulations, although points are correlated.
    every = []
    for _ in range(60):
        positions = rng.normal(scale=0.5, size=(200, 100, 3)).cumsum(axis=0)
        lags = np.arange(2, 31)
        curve = [((positions[lag:] - positions[:-lag]) ** 2).sum(axis=2).mean() for lag in lags]
        every.append(np.polyfit(2.0 * lags, curve, 1)[0] / 6)
    assert found.error == pytest.approx(np.std(every), rel=0.5)
    alone = EinsteinMSD(universe.atoms[:1]).run()
    assert np.isnan(alone.diffusion_coefficient().error)
    with pytest.raises(ValueError, match="two or more lag times"):
        alone.diffusion_coefficient(start=3, stop=5)


def test_atoms_of_a_molecule_are_not_independent(tmp_path):
    """Check pairs of atoms that move together, each a residue: pairs count, and not atoms."""
    rng = np.random.default_rng(5)
    centers = rng.normal(scale=0.5, size=(400, 10, 3)).cumsum(axis=0)
    atoms = np.repeat(centers, 2, axis=1) + rng.normal(scale=0.1, size=(400, 20, 3))
    universe = made(tmp_path, 50 + atoms)
    with_bonds = paceline.Universe(universe.filename, universe.trajectory.filename)
    with_bonds.add_bonds([(2 * k, 2 * k + 1) for k in range(10)])
    alone = EinsteinMSD(universe.atoms[::2]).run().diffusion_coefficient()
    for one, guessed in ((universe, True), (with_bonds, False)):
        run = EinsteinMSD(one, fit_range=(None, None)).run()
        found = run.results.diffusion_coefficient
        assert (found.n_particles, found.n_molecules, found.n_blocks) == (20, 10, 0)
        assert found.interval == pytest.approx(alone.interval, rel=0.05)
        assert found.interval == pytest.approx(stats.t.ppf(0.975, 9) * found.error)
        assert ("molecules" in run.results.findings) == guessed
    fragments = EinsteinMSD(with_bonds, compound="fragments", unwrap=None).run()
    assert fragments.diffusion_coefficient().n_molecules == 10
    # A chain of residues without bonds counts as one molecule if it is a protein.
    universe.residues.resnames = ["ALA"] * 10
    chain = EinsteinMSD(universe, fit_range=(None, None)).run().results
    assert str(chain.diffusion_coefficient).endswith("no interval: one molecule")
    assert "tenth of the run" in chain.findings["diffusion coefficient"]
    short = EinsteinMSD(universe, fit_range=(2, 36)).run()
    found = short.results.diffusion_coefficient
    assert (found.n_molecules, found.n_blocks) == (1, 10)
    assert found == short.diffusion_coefficient(2, 36)
    assert np.isnan(short.diffusion_coefficient(2, 40).interval)
    # One slope per block, for the whole group.
    blocks = []
    for k in range(10):
        block = EinsteinMSD(universe).run(start=40 * k, stop=40 * (k + 1))
        blocks.append(block.diffusion_coefficient(2, 36).value)
    assert found.error == pytest.approx(np.std(blocks, ddof=1) / 10**0.5, rel=1e-6)
    assert found.interval == pytest.approx(stats.t.ppf(0.975, 9) * found.error)
    lone = mean_and_interval(np.ones(101), np.array([0] * 100 + [1]), None)
    assert np.isnan(lone["interval"])


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_blocks_of_time_have_the_same_bits(backend, tmp_path):
    rng = np.random.default_rng(6)
    universe = made(tmp_path, 50 + rng.normal(scale=0.5, size=(200, 70, 3)).cumsum(axis=0))
    options = {"fit_range": (2, 20), "errors": True}
    wanted = EinsteinMSD(universe, **options).run(backend="serial")
    found = EinsteinMSD(universe, **options).run(backend=backend, n_workers=2)
    np.testing.assert_array_equal(found._by_block, wanted._by_block)
    limits = (one.results.timeseries_intervals for one in (found, wanted))
    np.testing.assert_array_equal(*limits)
    assert found.results.diffusion_coefficient == wanted.results.diffusion_coefficient


def test_what_all_molecules_have_in_common_shows_in_blocks(tmp_path):
    """Check twenty particles with the same walk, which count as one value."""
    rng = np.random.default_rng(7)
    together = rng.normal(scale=0.5, size=(2000, 1, 3)).cumsum(axis=0)
    universe = made(tmp_path, 50 + together + rng.normal(scale=0.01, size=(2000, 40, 3)))
    with pytest.warns(UserWarning, match="molecules may share a motion; at lag times of more than"):
        results = EinsteinMSD(universe, fit_range=(10, 150), errors=True).run().results
    low, high = results.timeseries_intervals.T
    at = np.array([20, 100, 200])
    assert (low[at] < 0.75 * at).all()
    assert (high[at] > 0.75 * at).all()
    assert (high[at] > 1.2 * low[at]).all()
    found = results.diffusion_coefficient
    assert found.n_blocks == 10
    assert found.interval > 0.1 * found.value
    assert found.value == pytest.approx(0.25 / 4, abs=2 * found.interval)


@pytest.mark.parametrize(("n_molecules", "fit_range"), [(20, (None, None)), (1, (4, 40))])
def test_the_interval_of_diffusion_holds(n_molecules, fit_range):
    """Check the coverage of 95 % for random walks of 20 molecules, and of one by blocks of time."""
    held = diffusion_coverage(n_molecules, 60 if n_molecules > 1 else 300, fit_range)
    assert held >= 0.88


def test_intervals_of_the_curve_between_molecules(tmp_path):
    """Check two-atom molecules, without and with time blocks that show nothing in common."""
    rng = np.random.default_rng(11)
    walks = np.repeat(rng.normal(scale=0.5, size=(200, 12, 3)).cumsum(axis=0), 2, axis=1)
    universe = made(tmp_path, 50 + walks + rng.normal(scale=0.1, size=walks.shape))
    msd = EinsteinMSD(universe, errors=True, fit_range=(2, 20)).run()
    results = msd.results
    assert results.diffusion_coefficient.n_blocks == 0
    molecules = results.msds_by_particle.reshape(200, 12, 2).mean(axis=2)
    error = molecules.std(axis=1, ddof=1) / 12**0.5
    half = stats.t.ppf(0.975, 11) * error[1:] / results.timeseries[1:]
    low, high = results.timeseries_intervals.T
    np.testing.assert_allclose(np.log(high / low)[1:], 2 * half, rtol=1e-6)
    np.testing.assert_allclose(np.sqrt(low * high), np.r_[np.nan, results.timeseries[1:]])
    assert np.isnan([low[0], high[0]]).all()
    assert results.provenance["intervals"] == "95 %, between 12 molecules"
    table = results.table
    assert table.bands["MSD (Å²)"] == ("MSD, 95 % from (Å²)", "MSD, 95 % to (Å²)")
    np.testing.assert_array_equal(table.columns["MSD, 95 % to (Å²)"], high)
    plain = EinsteinMSD(universe).run().results
    assert "timeseries_intervals" not in plain
    np.testing.assert_array_equal(plain.timeseries, results.timeseries)
    assert len(table.columns) == len(plain.table.columns) + 3  # the limits, and the fit


def test_intervals_of_the_curve_of_one_molecule(tmp_path):
    rng = np.random.default_rng(12)
    universe = made(tmp_path, 50 + rng.normal(scale=0.5, size=(400, 1, 3)).cumsum(axis=0))
    results = EinsteinMSD(universe, errors=True).run().results
    low, high = results.timeseries_intervals.T
    for n_blocks, lags in ((10, [1, 20]), (5, [21, 40])):
        n = 400 // n_blocks
        runs = [EinsteinMSD(universe).run(start=k * n, stop=(k + 1) * n) for k in range(n_blocks)]
        blocks = np.array([one.results.timeseries for one in runs])[:, lags]
        half = stats.t.ppf(0.975, n_blocks - 1) * blocks.std(axis=0, ddof=1) / n_blocks**0.5
        wanted = np.log(high / low)[lags] / 2
        np.testing.assert_allclose(half / results.timeseries[lags], wanted, rtol=1e-5)
    assert np.isnan(low[41:]).all()
    how = (
        "95 %, between 10 blocks of time up to 5% of the run and 5 blocks of time up to 10% of the"
    )
    assert results.provenance["intervals"].startswith(how)


def test_without_blocks_one_molecule_has_no_intervals(tmp_path):
    universe = made(tmp_path, 50 + np.random.default_rng(1).normal(size=(60, 1, 3)).cumsum(axis=0))
    with pytest.warns(UserWarning, match="no intervals of the MSD: one molecule has all"):
        found = EinsteinMSD(universe, errors=True, non_linear=True).run().results
    assert np.isnan(found.timeseries_intervals).all()
    with pytest.warns(UserWarning, match="no intervals of the MSD"):
        EinsteinMSD(universe, errors=True).run(stop=8)


@pytest.mark.parametrize(("non_linear", "stop"), [(True, 60), (False, 8)])
def test_without_blocks_intervals_are_between_molecules(non_linear, stop, tmp_path):
    steps = np.random.default_rng(1).normal(size=(60, 20, 3))
    universe = made(tmp_path, 50 + steps.cumsum(axis=0))
    found = EinsteinMSD(universe, errors=True, non_linear=non_linear).run(stop=stop).results
    assert np.isfinite(found.timeseries_intervals[1:]).all()
    assert found.provenance["intervals"].startswith("95 %, between 10 molecules")


def test_frames_that_are_left_out_are_in_no_block(tmp_path):
    rng = np.random.default_rng(5)
    walks = 50 + rng.normal(scale=0.5, size=(400, 3, 3)).cumsum(axis=0)
    arguments = walks.astype(np.float32), "displacement", [0, 1, 2], np.array([7, 190])
    found, copy = (SeriesParts(*arguments, fft=True, lags_of={5: 41}) for _ in "12")
    for number in range(found.n_parts):
        found.put(number, *found.worker.compute(*found.arguments(number)))
        copy.put(number, *found.get(number))
    (means,) = found.block_means().values()
    np.testing.assert_array_equal(means, copy.block_means()[5])
    for k, mean in enumerate(means):
        block = walks[80 * k : 80 * (k + 1)].astype(np.float32).astype(float)
        block[[one - 80 * k for one in (7, 190) if 0 <= one - 80 * k < 80]] = np.nan
        wanted = [
            np.nanmean(((block[lag:] - block[: 80 - lag]) ** 2).sum(axis=2)) for lag in range(41)
        ]
        np.testing.assert_allclose(mean, wanted, rtol=1e-9, atol=1e-9)


def test_the_intervals_of_the_curve_hold():
    """Check the coverage of 95 % at short and long lag times."""
    assert np.nanmin(msd_coverage(10, 150)[[4, 20, 40, 100, 200]]) >= 0.88
    assert np.nanmin(msd_coverage(1, 150)[[4, 20, 40]]) >= 0.88


def test_a_note_on_the_size_of_the_cell(tmp_path):
    universe = made(tmp_path, np.random.default_rng(1).normal(size=(40, 4, 3)).cumsum(axis=0))
    found = EinsteinMSD(universe, fit_range=(None, None)).run().results
    note = found.findings["finite size"]
    # For L = 100 Å, 300 K and 0.85 mPa s: Yeh & Hummer 2004, eq. 12.
    k = float(re.search(r"([0-9.e-]+)·10⁻⁵ cm²/s × ", note)[1])
    wanted = 1.380649e-23 * 300 * 2.837297 / (6 * np.pi * 0.85e-3 * 100e-10) * 1e4
    assert k * 300 / 0.85 * 1e-5 == pytest.approx(wanted, rel=0.005)
    assert "L = 100 Å" in note
    found.save(tmp_path / "msd.csv")
    assert f"# finite size: {note}" in (tmp_path / "msd.csv").read_text(encoding="utf-8")
    assert "finite size" in found._repr_html_()
    universe.trajectory.ts.dimensions = [100, 100, 80, 90, 90, 90]
    assert "not cubic" not in note
    assert "this cell is not cubic" in finite_size(universe.dimensions, 3)
    assert "membrane" in finite_size(universe.dimensions, 2)
    assert finite_size(None, 3) == finite_size(np.zeros(6), 3) == ""


def jumping(tmp_path, gaps=()):
    """Return random walks wrapped into tilted, varying cells after each step, and the unwrapped
    walks.
    """
    t = np.arange(60)[:, None]
    lengths = [30, 33, 28] + 2 * np.sin(0.1 * t + [0, 1, 2])
    angles = [75, 100, 62] + 3 * np.cos(0.07 * t + [2, 1, 0])
    cells = np.hstack([lengths, angles]).astype(np.float32)
    steps = np.random.default_rng(3).normal(0, 2.5, (60, 6, 3))
    inside = np.empty(steps.shape, np.float32)
    free = np.empty(steps.shape)
    for k, cell in enumerate(cells):
        vectors = triclinic_vectors(cell).astype(float)
        to = (inside[k - 1] if k else 0) + steps[k]
        inside[k] = to - np.floor(to @ np.linalg.inv(vectors)) @ vectors
        moved = inside[k] - (inside[k - 1] if k else inside[k]).astype(float)
        crossed = np.rint(moved @ np.linalg.inv(vectors))
        free[k] = (free[k - 1] if k else inside[k]) + moved - crossed @ vectors
    cells[list(gaps), :3] = 0
    return made(tmp_path, inside, cells=cells), free


def mean_square(free, rows):
    """Return mean squared displacements by the definition, for some rows."""
    found = []
    for lag in range(len(free)):
        pairs = [(k, k + lag) for k in rows if k + lag in rows]
        moved = [((free[b] - free[a]) ** 2).sum(axis=1).mean() for a, b in pairs]
        found.append(np.mean(moved) if moved else np.nan)
    return found


def test_shortest_steps_add_up_where_the_cell_varies(tmp_path):
    universe, free = jumping(tmp_path)
    expected = mean_square(free, range(60))
    for options in ({}, {"backend": "processes", "n_workers": 2}, {"block_frames": 1}):
        found = EinsteinMSD(universe, unwrap="tor").run(**options).results.timeseries
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-3)
    lattice = EinsteinMSD(universe, unwrap="lattice").run().results.timeseries
    assert np.abs(lattice - expected).max() > 20  # Å²: changes of the cells
    moved = EinsteinMSD(universe).run(transforms=[nojump()]).results.timeseries
    np.testing.assert_allclose(lattice, moved, rtol=1e-4, atol=1e-3)


def test_shortest_steps_in_an_triclinic_cell(adk_in_water):
    """Check a rhombic dodecahedron, in which rounding vector by vector does not find the nearest
    image.
    """
    universe = paceline.Universe(*adk_in_water)
    found = EinsteinMSD(universe, "name OW", unwrap="tor").run(stop=2).results.timeseries[1]
    water, positions, cells = universe.select_atoms("name OW"), [], []
    for ts in universe.trajectory[:2]:
        positions.append(water.positions.astype(float))
        cells.append(ts.triclinic_dimensions.astype(float))
    steps = positions[1] - positions[0]
    steps -= np.rint(steps @ np.linalg.inv(cells[1])) @ cells[1]
    images = np.array(list(itertools.product((-1, 0, 1), repeat=3))) @ cells[1]
    shortest = ((steps[:, np.newaxis] + images) ** 2).sum(axis=2).min(axis=1)
    assert (shortest < (steps**2).sum(axis=1) - 1).any()
    np.testing.assert_allclose(found, shortest.mean(), rtol=1e-6)


@pytest.mark.parametrize("scheme", ["tor", "lattice"])
def test_steps_after_an_unknown_position_are_unknown(scheme):
    positions, cells = np.zeros((5, 2, 3)), np.repeat(10.0 * np.eye(3)[None], 5, axis=0)
    positions[2, 1, 0] = np.nan
    found = unwrap_series(positions, cells, np.array([], int), scheme)
    assert np.isnan(found[:, :, 0]).tolist() == [[False, False]] * 2 + [[False, True]] * 3


def test_cells_that_change_by_more_than_half_are_named(tmp_path):
    cells = np.tile(np.float32([30, 30, 30, 90, 90, 61]), (9, 1))
    cells[4:, 5] = 119  # the same lattice, with another vector
    cells[7:, 2] = 50
    positions = np.random.default_rng(1).uniform(0, 20, (9, 4, 3))
    universe = made(tmp_path, positions, cells=cells)
    for scheme, words in (
        ("lattice", "2 frames, the first is 4"),
        ("tor", "1 frame, the first is 7"),
    ):
        with pytest.warns(
            PacelineWarning, match=f"more than half an edge at {words}; unwrap='{scheme}'"
        ):
            EinsteinMSD(universe, unwrap=scheme).run()


@pytest.mark.parametrize("cell", [[30, 40, 50, 90, 90, 90], [40, 40, 40, 60, 60, 90]])
def test_particles_that_jump_warn(cell, tmp_path):
    """Check one jump across a face of the cell; steps or unwrapping do not warn."""
    positions = np.cumsum(np.full((40, 3, 3), 0.4), axis=0)
    free = made(tmp_path, positions, cells=[cell] * 40)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        expected = EinsteinMSD(free).run().results.timeseries
    positions[25:, 1] -= triclinic_vectors(cell)[2]
    universe = made(tmp_path, positions, cells=[cell] * 40)
    with pytest.warns(PacelineWarning, match="1 particle of 3 .* frame 25: unless .*unwrap='tor'"):
        EinsteinMSD(universe).run()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        EinsteinMSD(universe).run(stop=25)
        EinsteinMSD(universe).run(transforms=[nojump()])
        found = EinsteinMSD(universe, unwrap="tor").run().results.timeseries
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-3)


def test_jumps_are_undone_over_frames_that_were_left_out(tmp_path):
    gaps = [7, 20, 21]
    universe, _ = jumping(tmp_path, gaps)
    with pytest.raises(AnalysisError, match="frame 7: it has no cell, which unwrap= needs"):
        EinsteinMSD(universe, unwrap="tor").run()
    options = {"on_error": "skip", "block_frames": 16}
    with pytest.warns(PacelineWarning, match="3 frames left out, the first is 7"):
        skipping = EinsteinMSD(universe, unwrap="lattice").run(**options)
    with pytest.warns(PacelineWarning, match="nojump continued"):
        moved = EinsteinMSD(universe).run(transforms=[nojump()], **options)
    for one in (skipping, moved):
        assert [frame for frame, _ in one.damaged] == gaps
        assert "no cell" in one.damaged[0][1]
        assert one.results.provenance["damaged frames"] == gaps
    mean = skipping.results.timeseries
    np.testing.assert_allclose(mean, moved.results.timeseries, rtol=1e-4, atol=1e-3)
    kept = np.setdiff1d(np.arange(60), gaps)
    frames = [universe.trajectory[k].positions.astype(float) for k in kept]
    cells = [universe.trajectory[k].triclinic_dimensions.astype(float) for k in kept]
    series, vectors = np.zeros((60, 6, 3)), np.zeros((60, 3, 3))
    series[kept], vectors[kept] = frames, cells
    for scheme in ("tor", "lattice"):
        found = unwrap_series(series, vectors, np.array(gaps), scheme)
        again = unwrap_series(series[kept], vectors[kept], np.array([], int), scheme)
        np.testing.assert_array_equal(found[kept], again)
        assert np.isnan(found[gaps]).all()


@pytest.mark.parametrize("fft", [True, False])
def test_frames_may_go_backwards(fft, universe, tmp_path):
    forwards, backwards = (
        EinsteinMSD(universe, "resid 1-5", fft=fft, fit_range=(None, None)).run(step=step)
        for step in (3, -3)
    )
    lags = backwards.results.delta_t_values
    np.testing.assert_allclose(lags, 3 * np.arange(33), rtol=1e-6)
    forwards.run(start=97 % 3, step=3)  # the same frames
    for name in ("timeseries", "msds_by_particle", "delta_t_values"):
        found, wanted = (getattr(one.results, name) for one in (backwards, forwards))
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-9)
    coefficients = [one.results.diffusion_coefficient.value for one in (backwards, forwards)]
    assert coefficients[0] == pytest.approx(coefficients[1])
    function = paceline.Correlation(lambda block: block.positions[:, 0], universe.atoms[:1])
    assert (function.run(step=-1).results.delta_t_values >= 0).all()


def test_frames_that_were_left_out_are_named(adk_in_water, tmp_path):
    topology, trajectory = adk_in_water
    data = bytearray(Path(trajectory).read_bytes())
    offset = MDAnalysis.Universe(topology, trajectory).trajectory._xdr.offsets[4]
    data[offset + 92 : offset + 108] = b"\xff" * 16
    path = tmp_path / "damaged.xtc"
    path.write_bytes(data)
    water = paceline.Universe(topology, str(path)).select_atoms("name OW")[:10]
    words = r"1 frame left out, the first is 4; unwrap='tor' continued from the frame before"
    with pytest.warns(PacelineWarning, match=words):
        EinsteinMSD(water, unwrap="tor").run(on_error="skip")


def test_centers_of_molecules_do_not_jump(tmp_path):
    universe, _ = jumping(tmp_path)
    found = EinsteinMSD(universe, compound="residues", unwrap="lattice").run().results
    series = [
        universe.residues.atoms.center_of_mass(compound="residues") for _ in universe.trajectory
    ]
    vectors = np.array([ts.triclinic_dimensions for ts in universe.trajectory])
    free = unwrap_series(np.array(series), vectors, np.array([], int), "lattice")
    np.testing.assert_allclose(found.timeseries, mean_square(free, range(60)), rtol=1e-4, atol=1e-3)
    with pytest.raises(ValueError, match="unwrap must be 'auto', 'tor', 'lattice' or None"):
        EinsteinMSD(universe, unwrap="both")


def test_shortest_steps_are_the_default_of_centers(ca, tmp_path):
    universe, _ = jumping(tmp_path)
    residues = {"compound": "residues"}
    expected = EinsteinMSD(universe, **residues, unwrap="tor").run().results
    assert expected.provenance["unwrap"] == "tor"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings(
            "ignore", "EinsteinMSD: in more than 1% of the steps", PacelineWarning
        )
        # Each residue is in several images. "tor" unwraps them, but their center is elsewhere.
        warnings.filterwarnings("ignore", ".*a molecule is broken", PacelineWarning)
        found = EinsteinMSD(universe, **residues).run()
    np.testing.assert_array_equal(found.results.timeseries, expected.timeseries)
    assert found.results.provenance["unwrap"] == "tor"
    moved = found.run(transforms=[nojump()]).results
    assert moved.provenance["unwrap"] is None
    with pytest.warns(
        PacelineWarning, match=r"move by more than half the cell .* remove jumps with"
    ):
        as_they_are = EinsteinMSD(universe, **residues, unwrap=None).run().results
    with pytest.warns(PacelineWarning, match="remove jumps with unwrap='tor'"):
        assert EinsteinMSD(universe).run().results.provenance["unwrap"] is None
    assert as_they_are.timeseries[40] < 0.5 * expected.timeseries[40]
    # Without a cell, no particle jumps.
    assert EinsteinMSD(ca, **residues).run().results.provenance["unwrap"] is None


@pytest.mark.parametrize("scheme", ["tor", "lattice"])
@pytest.mark.parametrize("angles", [(90, 90, 90), (60, 60, 90)])
def test_steps_that_are_too_long_to_tell_images_warn(scheme, angles, tmp_path):
    edge, steps = 30, np.random.default_rng(7).normal(0, 1, (40, 50, 3))
    for size, wrong in ((1 / 16, False), (1 / 6, True)):  # relative to the edge
        positions = (steps * edge * size).cumsum(axis=0)
        positions -= np.floor(positions / edge) * edge if angles[0] == 90 else 0
        universe = made(tmp_path, positions, cells=[[edge] * 3 + [*angles]] * 40)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            EinsteinMSD(universe, unwrap=scheme).run()
        told = [one for one in caught if "move by more than 0.4 of the cell" in str(one.message)]
        assert len(told) == wrong


def test_centers_that_were_unwrapped_before_warn(tmp_path):
    """Check that molecules that move by more than half the cell do not count as jumping."""
    steps = np.random.default_rng(3).normal(0, 12, (60, 6, 3))
    universe = made(tmp_path, steps.cumsum(axis=0), cells=[[30, 30, 30, 90, 90, 90]] * 60)
    words = r"particles? of 3 move by .* already unwrapped: then .* unwrap=None"
    with pytest.warns(PacelineWarning, match=words):
        EinsteinMSD(universe, compound="residues").run()


def test_table_has_units(alone):
    frame = alone.to_dataframe()
    assert list(frame) == ["lag time (ps)", "MSD (Å²)"]
    assert alone.means == {}


def test_a_fit_is_drawn(ca, alone):
    one = EinsteinMSD(ca, fit_range=(10, None)).run(backend="serial")
    fit = one.results.diffusion_coefficient
    assert fit == one.diffusion_coefficient(10)
    frame = one.results.to_dataframe()
    assert list(frame) == ["lag time (ps)", "MSD (Å²)", "fit (Å²)"]
    times, mean, line = (frame[title].to_numpy() for title in frame)
    some = (times > 9.5) & (times < 48.7)
    expected = np.polyval(np.polyfit(times[some], mean[some], 1), times[some])
    np.testing.assert_allclose(line[some], expected, rtol=1e-9)
    assert np.isnan(line[~some]).all()
    np.testing.assert_array_equal(mean, alone.timeseries)
    legend = one.results.plot().get_legend().get_texts()
    assert [text.get_text().replace("\n", " ") for text in legend] == ["MSD", f"fit, D = {fit}"]
    one_of_9 = DiffusionCoefficient(0.123456, 0.0005, 1, 2, 9, 0.00123, 9)
    assert f"{one_of_9}" == "(1.235 ± 0.012)·10⁻⁵ cm²/s (95 %, 9 molecules)"
    tiny = DiffusionCoefficient(-1.29e-9, 4e-10, 1, 2, 9, 8.7e-10, 1, 5)
    assert f"{tiny}" == "(-1.29 ± 0.87)·10⁻¹³ cm²/s (95 %, 5 blocks of time)"
    alone = DiffusionCoefficient(0.123456, np.nan, 1, 2, 1)
    assert f"{alone}" == "1.23·10⁻⁵ cm²/s, no interval: one molecule"
    with pytest.raises(ValueError, match="two or more lag times"):
        EinsteinMSD(ca, fit_range=(0.1, 0.2)).run()
    with pytest.raises(ValueError, match=r"begin at 50 ps, after its end at 5 ps: set two"):
        EinsteinMSD(ca, fit_range=(50, 5)).run()
    with pytest.raises(ValueError, match=r"90 ps, after .* 48\.5 ps \(by default\): set both"):
        one.diffusion_coefficient(90)
    with pytest.raises(ValueError, match="two times"):
        EinsteinMSD(ca, fit_range=(1, 2, 3))


@pytest.mark.parametrize("n_frames", [1, 2, 4])
def test_frames_too_few_for_the_default_fit_have_an_msd(n_frames, ca):
    without = EinsteinMSD(ca).run(stop=n_frames).results
    one = EinsteinMSD(ca, fit_range=(None, None))
    words = "EinsteinMSD: no line was fitted, .*: a fit needs two or more lag times"
    with pytest.warns(PacelineWarning, match=words):
        found = one.run(stop=n_frames).results
    np.testing.assert_array_equal(found.timeseries, without.timeseries)
    assert list(found.to_dataframe()) == ["lag time (ps)", "MSD (Å²)"]
    assert found.keys() == without.keys()
    with pytest.raises(ValueError, match="a fit needs two or more lag times"):
        EinsteinMSD(ca, fit_range=(None, 1)).run(stop=n_frames)


def test_damaged_frames_that_count_as_one_are_named(adk_xtc, tmp_path):
    """Check several frames without headers: the file does not state their number."""
    path = Path(shutil.copy(adk_xtc.trajectory, tmp_path / "two.xtc"))
    offsets = MDAnalysis.Universe(*adk_xtc).trajectory._xdr.offsets
    content = bytearray(path.read_bytes())
    for frame in (10, 11):
        content[offsets[frame] : offsets[frame] + 4] = bytes(4)
    path.write_bytes(content)
    message = "1 of 97 frames is damaged: .* 10 is as long as 2 frames"
    with pytest.warns(PacelineWarning, match=message):
        ca = paceline.Universe(adk_xtc.topology, path).select_atoms("name CA")
    advice = r"frame 11 is .* count as one: .* stop=10 \(--end 10\), .* start=11 \(--begin 11\)"
    with pytest.raises(UnsupportedError, match=advice):
        EinsteinMSD(ca).run(on_error="skip")
    assert len(EinsteinMSD(ca).run(stop=10).results.timeseries) == 10
    assert len(EinsteinMSD(ca).run(start=11).results.timeseries) == 86


def test_a_fit_leaves_out_times_without_a_pair(damaged):
    ca = paceline.Universe(*damaged[0]).select_atoms("name CA")
    results = EinsteinMSD(ca, fit_range=(50, 97)).run(on_error="skip").results
    times, mean, line = results.table.columns.values()
    some = (times > 49.5) & ~np.isnan(mean)
    assert 40 < some.sum() < 48
    expected = np.polyval(np.polyfit(times[some], mean[some], 1), times[some])
    np.testing.assert_allclose(line[some], expected, rtol=1e-9)
    assert np.isnan(line[~some]).all()


def test_what_is_refused(ca, tmp_path):
    with pytest.raises(UnsupportedError, match="equal intervals"):
        EinsteinMSD(ca).run(frames=[0, 1, 3])
    with pytest.raises(UnsupportedError, match="equal intervals"):
        EinsteinMSD(ca).run(frames=[5, 5])
    with pytest.raises(ValueError, match="Invalid msd_type"):
        EinsteinMSD(ca, msd_type="yx")
    with pytest.raises(ValueError, match="compound must be"):
        EinsteinMSD(ca, compound="waters")
    with pytest.raises(SelectionError, match="no atoms"):
        EinsteinMSD(ca, "name XX")
    with pytest.raises(ValueError, match=r"call run\(\) first"):
        EinsteinMSD(ca).diffusion_coefficient()


def test_times_that_are_not_equidistant(tmp_path):
    universe = made(tmp_path, np.random.default_rng(1).normal(size=(5, 2, 3)))
    path = tmp_path / "uneven.trr"
    with MDAnalysis.Writer(str(path), 2) as writer:
        for k, _ in enumerate(universe.trajectory):
            universe.trajectory.ts.time = 2.0 * k + (k == 3)
            writer.write(universe.atoms)
    uneven = paceline.Universe(universe.filename, str(path))
    words = r"frame 3 is at 7.0 ps, expected 6.0 ps; non_linear=True \(--non-linear\) allows"
    with pytest.raises(UnsupportedError, match=words):
        EinsteinMSD(uneven).run()


def at_times(folder, positions, times):
    """Return a Universe of these positions at these times (ps), in a TRR file."""
    universe = made(folder, positions)
    path = folder / "uneven.trr"
    with MDAnalysis.Writer(str(path), positions.shape[1]) as writer:
        for time, _ in zip(times, universe.trajectory, strict=True):
            universe.trajectory.ts.time = time
            writer.write(universe.atoms)
    return paceline.Universe(universe.filename, str(path))


@pytest.mark.parametrize("backend", ["serial", "threads"])
def test_frames_at_any_times_are_as_in_mdanalysis(backend, tmp_path):
    rng = np.random.default_rng(3)
    times = np.cumsum(rng.integers(1, 5, 30)) * 0.5
    universe = at_times(tmp_path, 50 + rng.normal(size=(30, 70, 3)).cumsum(axis=0), times)
    frames = np.r_[0:9, 11, 17:30]
    theirs = MDAnalysis.Universe(universe.filename, universe.trajectory.filename)
    options = {"msd_type": "xz", "fft": False, "non_linear": True}
    wanted = msd.EinsteinMSD(theirs, **options).run(frames=frames).results
    analysis = EinsteinMSD(universe, **options).run(backend=backend, frames=frames)
    found = analysis.results
    assert np.array_equal(found.delta_t_values, wanted.delta_t_values)
    assert np.array_equal(found.msds_by_particle, wanted.msds_by_particle)
    np.testing.assert_allclose(found.timeseries, wanted.timeseries, rtol=1e-13)
    assert list(found.table.columns["lag time (ps)"]) == wanted.delta_t_values.tolist()
    assert analysis.parameters()["non_linear"]
    fit = analysis.diffusion_coefficient(2.0, 20.0)
    some = (wanted.delta_t_values >= 2) & (wanted.delta_t_values <= 20)
    slope = np.polyfit(wanted.delta_t_values[some], wanted.timeseries[some], 1)[0]
    assert fit.value == pytest.approx(slope / 4, rel=1e-9)


def test_times_that_differ_by_rounding_are_one(ca, alone):
    for options in ({}, {"fft": False}):
        found = EinsteinMSD(ca, non_linear=True, **options).run().results
        assert found.delta_t_values.shape == alone.delta_t_values.shape == (98,)
        np.testing.assert_allclose(found.delta_t_values, alone.delta_t_values, rtol=1e-6)
        np.testing.assert_allclose(found.msds_by_particle, alone.msds_by_particle, atol=1e-9)


def test_times_over_many_decades_stay_apart(tmp_path):
    times = np.r_[0.0, 10.0 ** np.arange(-2, 5)]
    x = np.arange(8.0)[:, None, None] * [[1.0, 0, 0], [0, 0.5, 0]]
    found = EinsteinMSD(at_times(tmp_path, 50 + x, times), non_linear=True).run().results
    assert len(found.delta_t_values) == 8 * 7 // 2 + 1
    np.testing.assert_allclose(found.delta_t_values[:3], [0, 0.01, 0.09], rtol=1e-6)
    np.testing.assert_allclose(found.msds_by_particle[:3, 0], [0, 1, 1], rtol=1e-4)


def test_left_out_frames_and_jumps_at_any_times(damaged, tmp_path):
    """Check that pairs use the remaining frames, and that jumps across the cell are undone."""
    ca = paceline.Universe(*damaged[0]).select_atoms("name CA")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        even = EinsteinMSD(ca).run(on_error="skip")
        found = EinsteinMSD(ca, non_linear=True).run(on_error="skip").results
    has_pairs = ~np.isnan(even.results.timeseries)
    assert even.left_out.any()
    np.testing.assert_allclose(found.timeseries, even.results.timeseries[has_pairs], rtol=1e-9)
    steps = np.array([[30.0, 0, 0], [0, -20.0, 0]])
    straight = 50 + np.arange(12)[:, None, None] * steps
    universe = at_times(tmp_path, straight % 100, np.arange(12) ** 2 + 1.0)
    unwrapped_ones = EinsteinMSD(universe, non_linear=True, unwrap="tor").run().results
    wanted = EinsteinMSD(at_times(tmp_path, straight, np.arange(12) ** 2 + 1.0), non_linear=True)
    for name in ("delta_t_values", "msds_by_particle"):
        expected = wanted.run().results[name]
        np.testing.assert_allclose(unwrapped_ones[name], expected, rtol=1e-5, atol=1e-4)


def test_frames_at_any_times_that_are_refused(ca, tmp_path):
    positions = np.random.default_rng(1).normal(size=(4, 2, 3))
    back = at_times(tmp_path, positions, [0.0, 2.0, 1.0, 3.0])
    with pytest.raises(UnsupportedError, match=r"frame 2 is at 1.0 ps, after frame 1 at 2.0 ps"):
        EinsteinMSD(back, non_linear=True).run()
    assert len(EinsteinMSD(back, non_linear=True).run(frames=[0, 2, 1]).results.timeseries) == 3
    with pytest.raises(UnsupportedError, match=r"frame 5 is at .* ps, after frame 5"):
        EinsteinMSD(ca, non_linear=True).run(frames=[5, 5])
    one = EinsteinMSD(ca, non_linear=True).run(stop=1).results
    assert (one.timeseries.tolist(), one.delta_t_values.tolist()) == ([0.0], [0.0])


@pytest.mark.parametrize("late", [1, 3, 6])
def test_the_first_time_out_of_step_is_named(late, tmp_path):
    """Check a gap as after a restart; the mean time step would blame an earlier frame."""
    universe = made(tmp_path, np.random.default_rng(1).normal(size=(8, 2, 3)))
    path = tmp_path / "gap.trr"
    with MDAnalysis.Writer(str(path), 2) as writer:
        for k, _ in enumerate(universe.trajectory):
            universe.trajectory.ts.time = 2.0 * k + 5 * (k >= late)
            writer.write(universe.atoms)
    words = f"frame {late} is at {2 * late + 5}.0 ps, expected {2 * late}.0 ps"
    with pytest.raises(UnsupportedError, match=words):
        EinsteinMSD(paceline.Universe(universe.filename, str(path))).run()


def test_times_that_single_precision_rounds(tmp_path):
    """Check times near 1 µs, where single precision has steps of 0.0625 ps: the first step seems to
    be 0.1875 ps.
    """
    universe = made(tmp_path, np.random.default_rng(1).normal(size=(50, 2, 3)))
    path = tmp_path / "late.trr"
    with MDAnalysis.Writer(str(path), 2) as writer:
        for k, _ in enumerate(universe.trajectory):
            universe.trajectory.ts.time = 1e6 + 0.2 * k
            writer.write(universe.atoms)
    late = paceline.Universe(universe.filename, str(path))
    times = EinsteinMSD(late).run().results.delta_t_values
    np.testing.assert_allclose(times, 0.2 * np.arange(50), rtol=0.0625 / (49 * 0.2))


def test_times_that_are_all_the_same(tmp_path):
    universe = made(tmp_path, np.random.default_rng(1).normal(size=(5, 2, 3)))
    path = tmp_path / "timeless.trr"
    with MDAnalysis.Writer(str(path), 2) as writer:
        for _ in universe.trajectory:
            universe.trajectory.ts.time = 0.0
            writer.write(universe.atoms)
    with pytest.raises(UnsupportedError, match=r"all are 0.0 ps: set .*dt=2"):
        EinsteinMSD(paceline.Universe(universe.filename, str(path))).run()
    timed = paceline.Universe(universe.filename, str(path), dt=2)
    assert EinsteinMSD(timed).run().results.delta_t_values.tolist() == [0, 2, 4, 6, 8]


@pytest.mark.parametrize("fit_range", [5, (1,), (1, 2, 3)])
def test_a_fit_range_that_is_none_is_refused(fit_range, ca):
    with pytest.raises(ValueError, match="fit_range must be two times, or None"):
        EinsteinMSD(ca, fit_range=fit_range)


def test_one_frame(ca):
    found = EinsteinMSD(ca).run(stop=1).results
    assert found.timeseries.tolist() == [0.0]
    assert found.delta_t_values.tolist() == [0.0]
