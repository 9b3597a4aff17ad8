"""Advice about small trajectories: what it says, and that it lies in the right region."""

import shlex
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from MDAnalysisTests import datafiles
from MDAnalysisTests.datafiles import DCD, GRO, PDB, PSF, TRR, XTC

import paceline
from paceline.advice import Outline, open_samples
from paceline.analysis.rms import RMSD, RMSF
from paceline.cli.main import main
from paceline.cli.options import seconds
from paceline.errors import UnsupportedError
from paceline.scaling import advise as words
from paceline.scaling import sample_forecast as formats
from paceline.scaling import sample_forecast as measuring
from paceline.scaling import sample_run as disk
from paceline.scaling.sample_forecast import Forecast, Pace
from paceline.scaling.sample_run import Costs, SampleTimes

#: Seconds that the sleeping function takes a frame.
NAP = 1e-2


@pytest.fixture(autouse=True, scope="module")
def soon():
    """Measure for a short time: what is said of speed is not looked at."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measuring, "_SECONDS", 0.03)
        patch.setattr(measuring, "_ROUNDS", 1)
        patch.setattr(formats, "_RECODING_SECONDS", 0.001)
        yield


def sleeping(block):
    time.sleep(NAP * len(block))
    return block.times


@pytest.fixture(scope="module")
def ca():
    return paceline.Universe(PSF, DCD).select_atoms("name CA")


@pytest.fixture(scope="module")
def rmsd_advice(ca):
    return paceline.advise(RMSD(ca))


@pytest.fixture(scope="module")
def long_xtc(tmp_path_factory, ca):
    """A file that counts as long, 588 frames without an index."""
    folder = tmp_path_factory.mktemp("long")
    paceline.Write(ca.universe.atoms, folder / "once.xtc").run()
    path = folder / "long.xtc"
    path.write_bytes(6 * (folder / "once.xtc").read_bytes())
    return path


@pytest.fixture
def short_sample(monkeypatch):
    monkeypatch.setattr(disk, "SAMPLE", 100_000)


def test_numbers_of_an_rmsd(rmsd_advice):
    advice = rmsd_advice
    assert (advice.format, advice.n_frames, advice.n_atoms, advice.n_wanted) == (
        *("DCD", 98, 3341),
        214,
    )
    assert advice.files == (DCD,)
    assert advice.size == Path(DCD).stat().st_size
    assert advice.findings.in_memory.one.n_bytes == pytest.approx(advice.size / 98, rel=0.01)
    assert {1, 2} <= set(advice.workers)
    for where in ("now", "memory"):
        assert 0 < advice.t_total(2, where) < np.inf
    assert 1 <= advice.n_workers <= max(advice.workers)
    assert advice.bound in advice.costs.parts
    assert {(other.format, other.selected) for other in advice.others} == {
        ("XTC", False),
        ("XTC", True),
        ("DCD", True),
    }
    sizes = {(one.format, one.selected): one.frame_bytes for one in advice.others}
    assert sizes["DCD", True] == pytest.approx(12 * 214, abs=100)
    assert 2 * 3341 < sizes["XTC", False] < 12 * 3341
    with pytest.raises(ValueError, match="'now', 'memory' or 'disk', not 'tape'"):
        advice.t_total(1, "tape")


def test_words_of_an_rmsd(rmsd_advice):
    text = str(rmsd_advice)
    assert text.startswith("RMSD of 214 of 3341 atoms in 98 frames of adk_dims.dcd (DCD, 3.9 MB)")
    for part in (
        "of what it reads is in memory now",
        "µs a frame",
        "workers  from memory  from the disk",
        "this file (DCD)",
        "XTC, selected atoms",
        "Splitting the file would change nothing",
        "paceline predict --frames 98 --bytes 40",
    ):
        assert part in text
    assert "about" not in text
    assert max(map(len, text.splitlines())) < 100


@pytest.mark.parametrize(
    ("cached", "rates", "saves"),
    [
        (1.0, None, False),
        (0.51, (1e12, 1e12), False),
        # What the disk gives a small file is not measured.
        (0.49, None, False),
        (0.0, (1e3, 1e3), False),
        (0.0, (1e12, 1e12), True),
    ],
)
def test_words_of_other_files(rmsd_advice, cached, rates, saves):
    """Frames take 1 ms from memory and 1 s from the disk; another file holds 1 kB of each."""
    memory, disk = (Pace(measured(s), measured(s), busy=0.0, cpus=2) for s in (1e-3, 1.0))
    findings = replace(rmsd_advice.findings, in_memory=memory, from_disk=disk, processes=None)
    other = formats.Recoded("XTC", True, 1000.0, 1000.0, (0.0, 0.0), 1e-3)
    advice = replace(
        rmsd_advice, findings=findings, cached=cached, rates=rates, others=(other,), asked=None
    )
    text = " ".join(str(advice).split())
    assert ("No other file would save more" in text) != saves
    assert ("pays off with the second run" in text) == saves


@pytest.mark.parametrize("value", [0.0, 8.85e-6, 0.123, 123.0])
def test_times_are_given_as_predict_takes_them(value):
    given = words._given(value)
    assert "e" not in given
    assert seconds(given) == pytest.approx(value)


def test_the_command_that_goes_on(rmsd_advice, capsys):
    last = "\n".join(str(rmsd_advice).splitlines()[-2:])
    command = shlex.split(last.replace("\\\n", " "))
    assert command[0] == "paceline"
    assert main(command[1:]) == 0
    assert "384" in capsys.readouterr().out


def test_a_sleeping_function(ca):
    advice = paceline.advise(paceline.TimeSeries(sleeping, ca), n_workers=3)
    assert 3 in advice.workers
    assert 0 < advice.findings.waiting <= 1
    # It cannot be faster; on a busy machine it sleeps longer.
    assert advice.t_total(1) > 98 * NAP
    assert advice.t_total(2) > 98 * NAP / 2


def test_words_of_a_function_that_waits(rmsd_advice):
    pace = Pace(measured(NAP), measured(NAP), busy=NAP / 20, cpus=2)
    findings = replace(
        rmsd_advice.findings, in_memory=pace, from_disk=None, processes=None, waiting=0.95
    )
    advice = replace(rmsd_advice, findings=findings, cpus=2, others=())
    assert advice.bound == "compute"
    assert advice.workers == (1, 2, 4, 8, 16)
    assert "waits for something other than a processor" in str(advice)
    times = [advice.t_total(n) for n in (1, 2)]
    assert times == pytest.approx([98 * NAP, 98 * NAP / 2], rel=0.1)
    quick = replace(advice, findings=replace(findings, waiting=0.05))
    assert quick.workers == (1, 2)
    assert "waits for something" not in str(quick)


def test_the_analysis_is_left_as_it_is(ca):
    rmsf = RMSF(ca).run(stop=10)
    before = rmsf.results.rmsf.copy()
    paceline.advise(rmsf, step=2, transforms=[paceline.transform.fit("name CA")])
    assert rmsf.transforms == ()
    np.testing.assert_array_equal(rmsf.results.rmsf, before)
    assert len(rmsf.frames) == 10


def test_several_analyses_and_some_frames(ca):
    advice = paceline.advise([RMSD(ca), RMSF(ca)], start=10, step=4, backend="serial")
    assert advice.n_frames == 22
    assert advice.workers == (1,)
    assert advice.n_workers == 1
    assert str(advice).startswith("RMSD and RMSF of 214 of 3341 atoms in 22 frames")


def test_a_single_frame(ca):
    advice = paceline.advise(RMSD(ca), stop=1)
    assert advice.n_frames == 1
    assert advice.t_total(2) > 0


def test_velocities_are_for_netcdf_alone():
    def speed(block):
        return np.linalg.norm(block.velocities, axis=2).mean(axis=1)

    atoms = paceline.Universe(PDB, TRR).select_atoms("protein")
    series = paceline.TimeSeries(speed, atoms, fields=("velocities",))
    advice = paceline.advise(series)
    assert {other.format for other in advice.others} == {"NetCDF"}


def test_frames_that_mdanalysis_reads():
    universe = paceline.Universe(PSF, DCD)
    universe.trajectory.add_transformations(lambda ts: ts)
    with pytest.warns(paceline.errors.PacelineWarning, match="one at a time"):
        advice = paceline.advise(RMSD(universe, select="name CA"))
    assert (advice.backend, advice.workers, advice.others) == ("serial", (1,), ())
    assert np.isnan(advice.t_total(1, "disk"))
    assert "read by MDAnalysis" in str(advice)


def test_what_is_refused(ca, tmp_path):
    with pytest.raises(UnsupportedError, match="workers of this machine"):
        paceline.advise(RMSD(ca), backend="mpi")
    with pytest.raises(UnsupportedError, match="Write would write a file"):
        paceline.advise(paceline.Write(ca, tmp_path / "ca.xtc"))
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(UnsupportedError, match="one Universe"):
        paceline.advise([RMSD(ca), RMSD(paceline.Universe(PDB, XTC), select="name CA")])
    with pytest.raises(ValueError, match="no frames to analyse"):
        paceline.advise(RMSD(ca), start=98)
    with pytest.raises(ValueError, match="at least 1"):
        paceline.advise(RMSD(ca), n_workers=0)


def test_a_long_file_needs_no_index(long_xtc, short_sample):
    universe = paceline.Universe(PSF, long_xtc, opener=open_samples)
    assert universe.trajectory.n_frames < 50
    assert Outline.of(universe.trajectory).n_frames == pytest.approx(588, rel=0.02)
    assert universe.trajectory.chain.bytes_per_frame == pytest.approx(
        long_xtc.stat().st_size / 588, rel=0.02
    )
    advice = paceline.advise(RMSD(universe, select="name CA"), step=3)
    assert advice.is_sample
    assert advice.n_frames == pytest.approx(196, rel=0.02)
    assert f"in about {advice.n_frames} frames" in str(advice)
    assert not (long_xtc.parent / f".{long_xtc.name}.paceline-index").exists()


def test_a_long_history_of_any_lines_needs_no_index(tmp_path, monkeypatch):
    monkeypatch.setattr(disk, "SAMPLE", 1000)
    lines = Path(datafiles.DLP_HISTORY).read_text().splitlines()
    frames = [line.strip() for line in lines[2:]]
    path = tmp_path / "HISTORY"
    path.write_text("\n".join([*lines[:2], *(120 * frames)]) + "\n")
    universe = paceline.Universe(datafiles.DLP_CONFIG, path, opener=open_samples)
    assert 20 < universe.trajectory.n_frames < 60
    assert Outline.of(universe.trajectory).n_frames == pytest.approx(360, rel=0.02)
    advice = paceline.advise(RMSD(universe, select="all"))
    assert f"in about {advice.n_frames} frames" in str(advice)
    assert list(tmp_path.iterdir()) == [path]


def test_command_line(capsys, long_xtc, short_sample):
    assert main(["advise", PSF, str(long_xtc), "--begin", "100ps", "--end", "300ps"]) == 0
    words = capsys.readouterr().out.split()
    n_frames = int(words[words.index("frames") - 1])
    universe = paceline.Universe(PSF, DCD)
    # The file holds the same times again and again; those of its middle go on.
    assert n_frames == pytest.approx(200 / universe.trajectory.dt, rel=0.05)
    assert not (long_xtc.parent / f".{long_xtc.name}.paceline-index").exists()
    assert main(["advise", PSF, DCD, "--for", "rmsf", "--tsv", "--n-workers", "5"]) == 0
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert lines[0][0] == "workers"
    assert "5" in [line[0] for line in lines]
    assert all(float(line[1]) > 0 for line in lines[1:])


def test_command_line_for_pairs(capsys, monkeypatch):
    asked, measured = [], paceline.advise

    def advise(analysis, **options):
        asked.append(analysis)
        return measured(analysis, **options)

    monkeypatch.setattr("paceline.advice.advise", advise)
    system = ["advise", GRO, XTC, "--backend", "serial", "--begin", "8"]
    pairs = ["--select-2", "name HW1", "--exclude-same", "residue", "--range", "0", "2"]
    assert main([*system, "--for", "rdf", *pairs]) == 0
    assert "InterRDF of 22168 of 47681 atoms in 2 frames" in capsys.readouterr().out
    (rdf,) = asked
    assert (rdf.range, rdf.exclude_same, len(rdf.g2)) == ((0.0, 2.0), "residue", 11084)


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        ([PSF, DCD, "--select", "name XX"], 2, "no atoms match 'name XX'"),
        ([PSF, DCD, "--select", "name ("], 2, "is no selection"),
        ([PSF, "missing.dcd"], 2, "missing.dcd"),
        ([PSF, DCD, "--begin", "98"], 2, "no frames"),
    ],
)
def test_errors_of_the_command_line(capsys, arguments, status, message):
    assert main(["advise", *arguments]) == status
    assert message in capsys.readouterr().err


def measured(compute, fixed=0.0):
    return SampleTimes(Costs(0.0, 0.0, 0.0, compute, 0.0), 1000.0, 0.0, fixed)


@pytest.mark.parametrize("busy", [0.0, 0.25, 1.0])
def test_what_wants_no_processor_waits(monkeypatch, busy):
    """By clocks of our own, so slow that standing in line for a processor is nothing."""
    clocks = {"wall": 0.0, "busy": 0.0}

    def run(backend, frames, block_frames):
        clocks["wall"] += 1e4
        clocks["busy"] += busy * 1e4
        return measured(1.0)

    monkeypatch.setattr(measuring, "perf_counter", lambda: clocks["wall"])
    monkeypatch.setattr(measuring, "thread_time", lambda: clocks["busy"])
    sample = SimpleNamespace(run=run, middle=range, together=1)
    assert measuring._first_look(sample) == (1.0, pytest.approx(1 - busy, abs=0.01))


def test_a_machine_that_stands_still_reads_something(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_bytes(bytes(1000))
    monkeypatch.setattr(disk, "_SECONDS", 0.0)
    assert disk._rate(str(path), [0, 500], 500) > 0


def test_workers_that_take_turns():
    # All of it behind one lock: two are as fast as one, and so are eight.
    pace = Pace(measured(1e-3), measured(2e-3), busy=1e-3, cpus=8)
    forecast = Forecast(100_000, lambda n_workers: 16)
    times = [forecast.t_total(pace, n) for n in (1, 2, 8)]
    assert times == pytest.approx([100, 100, 100], rel=0.01)


def test_workers_that_share_processors():
    pace = Pace(measured(1e-3), measured(1e-3, fixed=2.0), busy=1e-3, cpus=4)
    forecast = Forecast(100_000, lambda n_workers: 16)
    times = [forecast.t_total(pace, n) for n in (1, 2, 4, 8)]
    assert times == pytest.approx([100, 52, 27, 27], rel=0.01)


def test_workers_that_wait():
    pace = Pace(measured(1e-3), measured(1e-3), busy=0.0, cpus=1)
    forecast = Forecast(100_000, lambda n_workers: 16)
    assert forecast.t_total(pace, 8) == pytest.approx(12.5, rel=0.01)
