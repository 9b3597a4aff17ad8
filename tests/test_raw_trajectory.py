"""Tests of RMSD and RMSF of a raw solvated trajectory, transformed during reading, as in
MDAnalysis.
"""

import MDAnalysis
import numpy as np
import pytest
from MDAnalysis import transformations
from MDAnalysis.analysis import rms
from MDAnalysisTests import datafiles

import paceline
from paceline import cli, transform
from paceline.analysis.rms import RMSD, RMSF

CA = "protein and name CA"


@pytest.fixture(scope="module")
def system(adk_in_water):
    """System with bonds; the protein is broken in its first frame."""
    return datafiles.TPR, adk_in_water.trajectory


@pytest.fixture(scope="module")
def ours(system):
    return paceline.Universe(*system)


@pytest.fixture(scope="module")
def theirs(system):
    """MDAnalysis's Universe, whose trajectory makes the protein whole."""
    universe = MDAnalysis.Universe(*system)
    whole = transformations.unwrap(universe.select_atoms("protein"))
    universe.trajectory.add_transformations(whole)
    return universe


@pytest.fixture(scope="module")
def whole(theirs):
    """The whole Cα positions as a separate trajectory, so that they are made whole only once."""
    ca = theirs.select_atoms(CA)
    universe = MDAnalysis.Merge(ca)
    universe.load_new(theirs.trajectory.timeseries(ca, order="fac"), order="fac")
    return universe


@pytest.mark.one_in(2)
def test_rmsd_is_from_the_first_frame_made_whole(ours, whole, where):
    rmsd = RMSD(ours, select=CA, groupselections=[f"{CA} and resid 1-29"])
    rmsd.run(transforms=[transform.unwrap()], **where)
    expected = rms.RMSD(whole, select="all", groupselections=["resid 1-29"]).run().results.rmsd
    assert expected[:, 2].max() < 3
    np.testing.assert_allclose(rmsd.results.rmsd[:, 2:], expected[:, 2:], atol=2e-5)
    raw = RMSD(ours, select=CA).run().results.rmsd
    assert raw[:, 2].max() > 15


def test_any_frame_may_be_the_reference(ours, whole):
    rmsd = RMSD(ours, select=CA, ref_frame=7).run(transforms=[transform.unwrap()])
    expected = rms.RMSD(whole, select="all", ref_frame=7).run().results.rmsd
    np.testing.assert_allclose(rmsd.results.rmsd[:, 2], expected[:, 2], atol=2e-5)


def test_another_universe_s_reference_is_taken_as_it_is(ours, whole):
    whole.trajectory[3]
    crystal = MDAnalysis.Merge(whole.atoms)
    rmsd = RMSD(ours.select_atoms(CA), crystal.atoms).run(transforms=[transform.unwrap()])
    expected = rms.RMSD(whole.atoms, crystal.atoms).run().results.rmsd
    np.testing.assert_allclose(rmsd.results.rmsd[:, 2], expected[:, 2], atol=2e-5)
    assert rmsd.results.rmsd[3, 2] < 1e-4


@pytest.fixture(scope="module")
def fitted_rmsf(whole):
    """RMSF of the whole positions, superposed on their first frame."""
    whole.trajectory[0]
    first = MDAnalysis.Merge(whole.atoms)
    fitted = whole.copy()
    fitted.trajectory.add_transformations(transformations.fit_rot_trans(fitted.atoms, first.atoms))
    return rms.RMSF(fitted.atoms).run().results.rmsf


def test_rmsf_of_what_was_fitted(ours, fitted_rmsf, where):
    ca = ours.select_atoms(CA)
    rmsf = RMSF(ca).run(transforms=[transform.unwrap(), transform.fit(CA)], **where)
    np.testing.assert_allclose(rmsf.results.rmsf, fitted_rmsf, atol=2e-5)


def test_results_do_not_depend_on_who_runs_beside(ours):
    steps = [transform.unwrap(), transform.center("protein"), transform.fit(CA)]
    rmsd, rmsf = RMSD(ours, select=CA), RMSF(ours.select_atoms("protein"))
    paceline.run([rmsd, rmsf], transforms=steps)
    alone = RMSD(ours, select=CA).run(transforms=steps).results.rmsd
    np.testing.assert_array_equal(rmsd.results.rmsd, alone)


def test_the_command(system, ours, tmp_path):
    path = tmp_path / "rmsd.npz"
    assert cli.main(["rmsd", *system, "--unwrap", "--fit", "-o", str(path)]) == 0
    steps = [transform.unwrap(), transform.fit(CA)]
    expected = RMSD(ours, select=CA).run(transforms=steps).results.rmsd
    with np.load(path) as saved:
        np.testing.assert_array_equal(saved["rmsd"], expected)
