"""Tests of dynamic cross-correlation: the published formula, by a loop over frames and pairs."""

import numpy as np
import pytest
from MDAnalysis.analysis.align import rotation_matrix

from paceline.analysis.dccm import CrossCorrelation
from paceline.analysis.pca import PCA
from paceline.errors import AnalysisError, SelectionError


def by_hand(positions, align):
    """Return C_ij of Ichiye & Karplus 1991, pair by pair."""
    positions = positions.astype(np.float64)
    if align:
        centered = positions - positions.mean(axis=1, keepdims=True)
        turned = [one @ rotation_matrix(one, centered[0])[0].T for one in centered]
        positions = np.array(turned)
    moved = positions - positions.mean(axis=0)
    n = positions.shape[1]
    found = np.empty((n, n))
    for i in range(n):
        for j in range(n):
            along = (moved[:, i] * moved[:, j]).sum(axis=1).mean()
            sizes = [(moved[:, k] ** 2).sum(axis=1).mean() for k in (i, j)]
            found[i, j] = along / np.sqrt(sizes[0] * sizes[1])
    return found, np.sqrt((moved**2).sum(axis=2).mean(axis=0))


@pytest.mark.parametrize("align", [True, False])
def test_it_is_the_published_formula(align, universe):
    atoms = universe.select_atoms("name CA and resid 1-25")
    positions = np.array([atoms.positions for _ in universe.trajectory[:40]])
    found = CrossCorrelation(atoms, align=align).run(stop=40).results
    correlation, fluctuation = by_hand(positions, align)
    np.testing.assert_allclose(found.correlation, correlation, atol=2e-5)
    np.testing.assert_allclose(found.fluctuation, fluctuation, atol=2e-5)
    pca = PCA(atoms, align=align).run(stop=40)
    np.testing.assert_allclose(found.correlation, pca.cross_correlation(), rtol=1e-12)


def test_the_table_and_the_figure(universe, tmp_path):
    atoms = universe.select_atoms("name CA and resid 1-25")
    results = CrossCorrelation(atoms).run(stop=9).results
    table = results.to_dataframe()
    assert [*table] == ["residue", "other residue", "correlation"]
    row = table[(table["residue"] == 3) & (table["other residue"] == 17)]
    assert row["correlation"].item() == results.correlation[2, 16]
    axes = results.plot()
    assert (axes.get_xlabel(), axes.collections[0].get_clim()) == ("residue", (-1, 1))
    assert "align: True" in [f"{key}: {value}" for key, value in results.provenance.items()]


def test_atoms_are_named_by_indices_where_residues_have_several(universe):
    results = CrossCorrelation(universe.select_atoms("resid 3")).run(stop=4).results
    assert [*results.to_dataframe()][:2] == ["atom index", "other atom index"]


def test_groups_and_frames_that_make_no_correlation(universe):
    with pytest.raises(SelectionError):
        CrossCorrelation(universe.atoms[:0])
    with pytest.raises((AnalysisError, ValueError), match="a single frame has no correlation"):
        CrossCorrelation(universe.select_atoms("name CA")).run(stop=1)
