"""Tests that results have the same bits on any backend, in blocks of any size, alone or with
others.
"""

import numpy as np
import pytest

import paceline
from paceline.analysis.rdf import InterRDF
from paceline.analysis.rms import RMSD, RMSF

SIZES = [1, 17, 10**6, *(pytest.param(size, marks=pytest.mark.full) for size in (16, 64))]


def analyses(universe):
    """Return an analysis of each kind, of overlapping atoms in random order."""
    ca = universe.select_atoms("name CA")

    def gyration(block):
        positions = block.positions.astype(float)
        centred = positions - positions.mean(axis=1, keepdims=True)
        squares = (centred**2).sum(axis=2).mean(axis=1)
        return np.column_stack([np.sqrt(squares), block.dimensions, block.times])

    return [
        RMSD(universe, select="backbone", groupselections=["resid 1-29"], weights="mass"),
        RMSF(ca[::-1] + universe.atoms[:7]),
        paceline.TimeSeries(gyration, universe.atoms[::3]),
        RMSF(universe.atoms),
        InterRDF(ca[::-1], universe.atoms[:700], norm="none"),
    ]


def numbers(finished):
    rmsd, rmsf, series, all_rmsf, rdf = finished
    return [
        rmsd.results.rmsd,
        rmsf.results.rmsf,
        series.results.timeseries,
        series.results.times,
        all_rmsf.results.rmsf,
        rdf.results.count,
        rdf.results.rdf,
    ]


def assert_same(found, wanted):
    for ours, others in zip(found, wanted, strict=True):
        assert ours.dtype == others.dtype
        assert np.array_equal(ours, others, equal_nan=True)


@pytest.fixture(
    scope="module", params=[pytest.param("DCD", marks=pytest.mark.full), "XTC", "damaged XTC"]
)
def system(request, adk, adk_xtc, damaged):
    """A Universe, options for all runs, and the results of one thread, one by one."""
    files = {"DCD": adk, "XTC": adk_xtc, "damaged XTC": damaged[0]}[request.param]
    universe = paceline.Universe(*files)
    odd = [*range(97, 0, -2), *range(0, 98, 2), 5, 5, -1]
    options = [
        {"on_error": "skip"},
        {"on_error": "skip", "frames": odd},
        {"on_error": "skip", "start": 3, "step": 4},
    ]
    wanted = [
        numbers([one.run(backend="serial", **each) for one in analyses(universe)])
        for each in options
    ]
    return universe, options, wanted


@pytest.mark.one_in(2)
@pytest.mark.parametrize("block_frames", SIZES)
def test_same_bits(system, everywhere, block_frames):
    universe, options, wanted = system
    for each, those in zip(options, wanted, strict=True):
        together = paceline.run(analyses(universe), block_frames=block_frames, **everywhere, **each)
        assert_same(numbers(together), those)


def test_bits_do_not_change_from_run_to_run(system):
    universe, options, wanted = system
    for _ in range(5):
        assert_same(numbers(paceline.run(analyses(universe), n_workers=4, **options[0])), wanted[0])


def test_a_subset_of_atoms_changes_no_bit(system):
    universe, options, wanted = system
    some = RMSF(universe.atoms[100:200]).run(**options[0]).results.rmsf
    assert np.array_equal(some, wanted[0][-3][100:200], equal_nan=True)
