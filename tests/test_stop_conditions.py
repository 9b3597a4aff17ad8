"""Tests of conditions that end the analysis of a growing trajectory."""

from contextlib import nullcontext
from types import SimpleNamespace

import MDAnalysis
import numpy as np
import pytest

import paceline
from paceline.analysis.battery import Battery
from paceline.analysis.stop_conditions import StopConditions, check_names
from paceline.errors import UnsupportedError

N_FRAMES = 400


@pytest.fixture(scope="module")
def noise(tmp_path_factory):
    """Trajectory in which the first atom drifts along x, and all other coordinates are noise."""
    positions = np.random.default_rng(3).normal(0, 0.5, (N_FRAMES, 4, 3)).astype(np.float32)
    positions[:, 0, 0] += np.linspace(0, 40, N_FRAMES)
    path = str(tmp_path_factory.mktemp("noise") / "noise.dcd")
    universe = MDAnalysis.Universe.empty(4, trajectory=True)
    with MDAnalysis.Writer(path, 4, dt=2.0) as writer:
        for frame in positions:
            universe.atoms.positions = frame
            writer.write(universe.atoms)
    return path


def x_and_y(block):
    return block.positions[:, 0, :2]


@pytest.fixture
def series(noise):
    atoms = paceline.open(noise).atoms[:1]
    return paceline.TimeSeries(x_and_y, atoms, label=["x", "y"], unit="Å")


def last_update(series, text):
    *_, last = paceline.live(series, every=0.01, idle=0.05, stop_when=text)
    return last


@pytest.mark.parametrize(
    "text",
    [
        *("timeseries.y sampled", "TimeSeries.y (Å) sampled", "timeseries.y SAMPLED"),
        *("timeseries.y 0.1", "timeseries.y 1e-1 and TimeSeries.y sampled"),
    ],
)
def test_a_known_mean_ends_the_trajectory(series, text):
    last = last_update(series, text)
    assert last.is_last
    assert last.ended.startswith("TimeSeries.y")
    assert "is sampled: mean " in last.ended
    mean = series.results.timeseries[:, 1].mean()
    assert f"{mean:.1f}" in last.ended
    assert "Å" in last.ended


@pytest.mark.parametrize(
    "text",
    [
        *("timeseries sampled", "timeseries.x sampled", "timeseries.y 0.001"),
        "timeseries.y 1 and timeseries.x 1",
    ],
)
def test_an_unknown_mean_does_not_end_it(series, text):
    assert last_update(series, text).ended == "it has not grown for 0.05 s"


def test_conditions_that_do_not_hold_are_described(series):
    series.run()
    conditions = StopConditions("timeseries sampled and timeseries.y 0.001", {"TimeSeries": series})
    missing = conditions.missing(SimpleNamespace(analyses={"TimeSeries": series}))
    assert missing.startswith("TimeSeries is drifting (the mean still changes")
    assert "TimeSeries.y is not shown to be sampled" in missing
    assert "is wider than ± 0.001" in missing
    assert conditions(SimpleNamespace(analyses={"TimeSeries": series})) is None
    # A battery leaves out analyses that need more frames than there are.
    assert conditions(SimpleNamespace(analyses={})) is None
    assert "TimeSeries has too few frames" in conditions.missing(SimpleNamespace(analyses={}))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "expected 'NAME sampled', or NAME and half the width"),
        ("rmsd", "expected 'NAME sampled'"),
        ("rmsd sampled and", "expected 'NAME sampled'"),
        ("rmsd sampled or rmsf sampled", "'rmsd sampled or rmsf': there is no such analysis"),
        ("rmsd -1", "expected a number above 0"),
        ("msd2 sampled", "no such analysis; possible: gyration, rmsd and rmsf"),
        ("msd sampled", "msd is computed when the trajectory has ended; possible: gyration"),
    ],
)
def test_what_is_not_a_condition_is_refused_before_the_first_frame(universe, text, reason):
    battery = Battery(
        {"rmsd": {"select": "name CA"}, "rmsf": {}, "gyration": {}, "msd": {"select": "name CA"}},
        universe,
    )
    with pytest.raises(UnsupportedError, match=reason):
        paceline.live(battery, stop_when=text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("rmsd.core 0.1 and rmsf sampled", None),
        (
            "rmsd sampled and rms sampled",
            "'rms': there is no such analysis; possible: RMSD and rmsf",
        ),
        ("rmsd", "expected 'NAME sampled'"),
    ],
)
def test_names_are_checked_before_there_are_analyses(text, reason):
    error = nullcontext() if reason is None else pytest.raises(UnsupportedError, match=reason)
    with error:
        check_names(text, ["rmsf", "RMSD"])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("rmsf sampled", "the results of rmsf are not time series"),
        ("rmsd.core sampled", r"rmsd has no series 'core'; it has RMSD \(Å\)"),
        ("dssp.sheet sampled", r"has no series 'sheet'; it has loop \(residues\)"),
        ("ramachandran sampled", "has 424 series; choose one of them as 'ramachandran.COLUMN'"),
    ],
)
def test_series_without_a_verdict_are_refused_at_the_first_update(universe, text, reason):
    names = ("rmsd", "rmsf", "dssp", "ramachandran")
    battery = Battery({name: {"select": "protein"} for name in names}, universe)
    with pytest.raises(UnsupportedError, match=reason):
        list(paceline.live(battery, every=0.01, idle=0.05, stop_when=text))


def test_a_longer_name_is_that_of_the_analysis(universe):
    battery = Battery({"rmsd": {}, "rmsd.core": {"analysis": "rmsd"}}, universe)
    conditions = StopConditions("rmsd.core sampled and rmsd.RMSD 0.1", battery.every)
    battery.run(stop=40)
    missing = conditions.missing(SimpleNamespace(analyses=battery.analyses))
    assert missing.startswith("rmsd.core is ")
    assert "; rmsd.RMSD is " in missing
