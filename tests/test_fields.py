"""Tests of velocities and forces in blocks: requested by name, present or refused."""

import operator

import MDAnalysis
import numpy as np
import pytest
from MDAnalysisTests import datafiles

import paceline
from paceline.errors import AnalysisError, MissingDataError

SYSTEMS = {
    "TRR": (datafiles.GRO, datafiles.TRR, ["positions", "velocities"]),
    "NetCDF": (datafiles.PRM_NCBOX, datafiles.TRJ_NCBOX, ["positions", "velocities"]),
}


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_function_sees_what_mdanalysis_sees(name, where):
    topology, trajectory, fields = SYSTEMS[name]
    group = paceline.Universe(topology, trajectory).atoms[[5, 3, 40]]
    expected = MDAnalysis.Universe(topology, trajectory)
    chosen = expected.atoms[[5, 3, 40]]
    for field in fields:

        def values(block, field=field):
            return getattr(block, field)

        found = paceline.TimeSeries(values, group, fields=[field]).run(**where).results.timeseries
        theirs = [getattr(chosen, field).copy() for _ in expected.trajectory]
        np.testing.assert_array_equal(found, np.array(theirs))


def test_only_what_was_asked_for_is_there():
    topology, trajectory, _ = SYSTEMS["TRR"]
    atoms = paceline.Universe(topology, trajectory).atoms[:10]
    for asked, used in [("positions", "velocities"), ("velocities", "positions")]:
        series = paceline.TimeSeries(operator.attrgetter(used), atoms, fields=[asked])
        with pytest.raises(AnalysisError, match=f"has no '{used}': .*not asked for"):
            series.run(backend="serial")
    with pytest.raises(ValueError, match="found 'momenta'"):
        paceline.TimeSeries(len, atoms, fields=["momenta"])


def test_what_a_format_cannot_hold_is_missed_by_name(adk):
    atoms = paceline.Universe(*adk).atoms[:10]
    series = paceline.TimeSeries(lambda block: block.times, atoms, fields=["forces"])
    for on_error in ("raise", "skip"):
        with pytest.raises(
            MissingDataError,
            match=r"adk_dims\.dcd: .* needs forces, but this file contains only positions",
        ):
            series.run(on_error=on_error)


def test_analyses_with_different_fields_share_a_pass():
    topology, trajectory, _ = SYSTEMS["TRR"]
    atoms = paceline.Universe(topology, trajectory).atoms[:10]
    both = [
        paceline.TimeSeries(lambda block: block.positions, atoms),
        paceline.TimeSeries(lambda block: block.velocities, atoms[2:], fields=["velocities"]),
    ]
    paceline.run(both)
    for analysis in both:
        together = analysis.results.timeseries
        np.testing.assert_array_equal(analysis.run().results.timeseries, together)
