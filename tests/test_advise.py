"""Tests of advice on small trajectories: its text, and that its figures are plausible."""

import contextlib
import os
import shlex
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from helpers.waiting import until
from MDAnalysisTests import datafiles
from MDAnalysisTests.datafiles import DCD, GRO, PDB, PSF, TRR, XTC

import paceline
from paceline import advice as advising
from paceline._util import machine_and_software, os_calls
from paceline._util.machine_and_software import OtherWork
from paceline._util.os_calls import cached_share, drop_from_cache
from paceline.advice import Outline, open_samples
from paceline.analysis.rms import RMSD, RMSF
from paceline.backends import Threads
from paceline.cli import main
from paceline.cli.options import seconds
from paceline.contract.plan import Borders
from paceline.engine import sample_run, time_other_formats
from paceline.engine.sample_run import SampleRun
from paceline.errors import UnsupportedError
from paceline.model import FrameCost
from paceline.performance import number_format
from paceline.performance.advice import _given
from paceline.performance.forecast import Forecast, Recoded, SampleTimes

needs_mincore = pytest.mark.skipif(
    os_calls._mincore() is None, reason="this system does not tell what is in memory"
)

#: Time per frame of the sleeping function, seconds.
NAP = 1e-2


@pytest.fixture(autouse=True, scope="module")
def soon():
    """Measure only for a short time, because the tests do not check the figures of speed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(advising, "_SECONDS", 0.03)
        patch.setattr(advising, "_ROUNDS", 1)
        patch.setattr(advising, "_LONGEST", 0.0)
        patch.setattr(advising, "_COLD_ROUNDS", 1)
        patch.setattr(time_other_formats, "_READING_SECONDS", 0.001)
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
    """A file that counts as long: 588 frames, without an index."""
    folder = tmp_path_factory.mktemp("long")
    paceline.Write(ca.universe.atoms, folder / "once.xtc").run()
    path = folder / "long.xtc"
    path.write_bytes(6 * (folder / "once.xtc").read_bytes())
    return path


@pytest.fixture
def short_sample(monkeypatch):
    monkeypatch.setattr(sample_run, "SAMPLE", 100_000)


def test_numbers_of_an_rmsd(rmsd_advice):
    advice = rmsd_advice
    assert (advice.format, advice.n_frames, advice.n_atoms, advice.n_wanted) == (
        *("DCD", 98, 3341),
        214,
    )
    assert advice.files == (DCD,)
    assert advice.size == Path(DCD).stat().st_size
    assert advice.findings.in_memory.one.cost.bytes == pytest.approx(advice.size / 98, rel=0.01)
    assert {1, 2} <= set(advice.workers)
    for where in ("now", "memory"):
        low, high = advice.t_range(2, where)
        assert 0 < low < advice.t_total(2, where) < high < np.inf
    assert 1 <= advice.n_workers <= max(advice.workers)
    assert advice.bound in advice.costs.parts
    sizes = {(one.format, one.compression, one.selected): one.frame_bytes for one in advice.others}
    assert set(sizes) == {
        *(("XTC", "", False), ("XTC", "", True), ("DCD", "", True)),
        *(("H5MD", "", some) for some in (False, True)),
        *(("H5MD", "shuffle+zstd:3", some) for some in (False, True)),
    }
    assert sizes["DCD", "", True] == pytest.approx(12 * 214, abs=100)
    assert 2 * 3341 < sizes["XTC", "", False] < 12 * 3341
    assert sizes["H5MD", "", False] == 12 * 3341
    assert 4 * 3341 < sizes["H5MD", "shuffle+zstd:3", False] < 12 * 3341
    assert advice.of_mdanalysis > 0
    with pytest.raises(ValueError, match="'now', 'memory' or 'disk', not 'tape'"):
        advice.t_range(1, "tape")


def test_words_of_an_rmsd(rmsd_advice):
    text = str(rmsd_advice)
    answer, empty, subject = text.splitlines()[:3]
    best = rmsd_advice.n_workers
    assert f" with {best} worker{'s' * (best > 1)} (--n-workers {best}); " in answer
    assert answer.startswith(number_format.seconds(rmsd_advice.t_total(best)))
    assert empty == ""
    assert subject == "RMSD of 214 of 3341 atoms in 98 frames of adk_dims.dcd (DCD, 3.93 MB)"
    for part in (
        "of what it reads is in memory now",
        "µs a frame",
        "workers  from memory  from the disk",
        "at least  at most",
        "this file (DCD)",
        "XTC, selected atoms",
        "H5MD, shuffle+zstd:3, selected atoms",
        "MDAnalysis's own reader takes",
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
        # Rates of small files from disk are not measured.
        (0.49, None, False),
        (0.0, (1e3, 1e3), False),
        (0.0, (1e12, 1e12), True),
    ],
)
def test_words_of_other_files(rmsd_advice, cached, rates, saves):
    """Check advice if frames take 1 ms from memory and 1 s from disk."""
    memory, disk = (forecast(s, s, busy=0.0, cpus=2, n_frames=98) for s in (1e-3, 1.0))
    findings = replace(rmsd_advice.findings, in_memory=memory, from_disk=disk, processes=None)
    other = Recoded("XTC", True, 1000.0, 1000.0, (0.0, 0.0), 1e-3)
    advice = replace(
        rmsd_advice, findings=findings, cached=cached, rates=rates, others=(other,), asked=None
    )
    text = " ".join(str(advice).split())
    assert ("No other file would save more" in text) != saves
    assert ("pays off with the second run" in text) == saves


@pytest.mark.parametrize("value", [0.0, 8.85e-6, 0.123, 123.0])
def test_times_are_given_as_predict_takes_them(value):
    given = _given(value)
    assert "e" not in given
    assert seconds(given) == pytest.approx(value)


def test_the_command_that_goes_on(rmsd_advice, capsys):
    last = "\n".join(str(rmsd_advice).splitlines()[-2:])
    command = shlex.split(last.replace("\\\n", " "))
    assert command[0] == "paceline"
    assert main(command[1:]) == 0
    assert "384" in capsys.readouterr().out


def test_a_sleeping_function(ca):
    def waits():
        advice = paceline.advise(paceline.TimeSeries(sleeping, ca), n_workers=3)
        assert 3 in advice.workers
        assert 0 <= advice.findings.waiting <= 1
        # The run cannot be faster than its sleeps; on a busy machine it may be slower.
        assert advice.t_total(1) > 98 * NAP
        assert advice.t_total(2) > 98 * NAP / 2
        return advice.findings.waiting > 0

    # If the thread queues for a CPU while it reads the frame, this hides its waiting.
    until(waits)


def test_words_of_a_function_that_waits(rmsd_advice):
    findings = replace(
        rmsd_advice.findings,
        in_memory=forecast(NAP, NAP, busy=NAP / 20, cpus=2, n_frames=98),
        from_disk=None,
        processes=None,
        waiting=0.95,
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


class Referring(paceline.AnalysisBase):
    """Analysis whose worker part is created by a function that refers to the analysis."""

    def __init__(self, atomgroup):
        super().__init__(atomgroup)
        self.make = self.worker_part

    def worker_part(self):
        self.n_blocks = len(self.frames)
        return Times()

    def prepare(self):
        return self.make()


class Times:
    def compute(self, block):
        return block.times


def test_an_analysis_that_refers_to_itself(ca):
    analysis = Referring(ca)
    before = dict(vars(analysis))
    paceline.advise(analysis)
    assert vars(analysis) == before


def test_several_analyses_and_some_frames(ca):
    advice = paceline.advise([RMSD(ca), RMSF(ca)], start=10, step=4, backend="serial")
    assert advice.n_frames == 22
    assert advice.workers == (1,)
    assert advice.n_workers == 1
    assert "\n\nRMSD and RMSF of 214 of 3341 atoms in 22 frames" in str(advice)


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
    assert {other.format for other in advice.others} == {"NetCDF", "H5MD"}


def test_frames_that_mdanalysis_reads():
    universe = paceline.Universe(PSF, DCD)
    universe.trajectory.add_transformations(lambda ts: ts)
    with pytest.warns(paceline.errors.PacelineWarning, match="one at a time"):
        advice = paceline.advise(RMSD(universe, select="name CA"))
    assert (advice.backend, advice.workers, advice.others) == ("serial", (1,), ())
    assert advice.of_mdanalysis is None
    assert np.isnan([advice.t_total(1, "disk"), *advice.t_range(1, "disk")]).all()
    assert "read by MDAnalysis" in str(advice)


def test_what_is_refused(ca, tmp_path):
    with pytest.raises(UnsupportedError, match="workers of this machine"):
        paceline.advise(RMSD(ca), backend="mpi")
    with pytest.raises(UnsupportedError, match="Write would write a file"):
        paceline.advise(paceline.Write(ca, tmp_path / "ca.xtc"))
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(UnsupportedError, match="RMSF reads the frames 2 times"):
        paceline.advise(RMSF(ca, align=True))
    with pytest.raises(UnsupportedError, match="a single Universe"):
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


@pytest.mark.parametrize("times", [1, 4])
def test_a_bounded_part_of_a_long_file_is_read(long_xtc, short_sample, monkeypatch, times):
    """Check the number of bytes read, for each combination of sample run, format and disk rate."""
    monkeypatch.setattr(sample_run, "_BYTES", 100_000)
    monkeypatch.setattr(sample_run, "_LEAST", 1)
    path = long_xtc.with_name(f"{times}.xtc")
    path.write_bytes(times * long_xtc.read_bytes())
    size = path.stat().st_size
    asked = np.zeros(size, dtype=bool)

    def note(extents):
        for start, n_bytes in zip(extents.offsets.tolist(), extents.sizes.tolist(), strict=True):
            asked[start : start + n_bytes] = True

    run, decode, read = SampleRun.run, advising.decode_sample, sample_run._read

    def noted_run(sample, backend, frames, block_frames=None):
        note(sample.trajectory.extents(np.unique(frames)))
        return run(sample, backend, frames, block_frames)

    def noted_decode(chain, source, frames):
        note(chain.extents(frames))
        return decode(chain, source, frames)

    def noted_read(path, start, n_bytes):
        done = read(path, start, n_bytes)
        asked[start : start + done] = True
        return done

    monkeypatch.setattr(SampleRun, "run", noted_run)
    monkeypatch.setattr(advising, "decode_sample", noted_decode)
    monkeypatch.setattr(sample_run, "_read", noted_read)
    monkeypatch.setattr(sample_run, "_CALL", 10_000)
    universe = paceline.Universe(PSF, path, opener=open_samples)
    (file,) = universe.trajectory.chain.files
    note(universe.trajectory.chain.extents(np.arange(universe.trajectory.n_frames)))
    sampled = asked.sum()
    # A sample contains at least 32 frames.
    assert sampled < 33 * file.bytes_per_frame
    assert paceline.advise(RMSD(universe, select="name CA")).is_sample
    assert asked.sum() <= sampled + 3 * 110_000 < 0.12 * size


def test_the_parts_of_a_long_file_that_are_read_are_small():
    """Check that at most 160 MiB are read, which takes some seconds from a disk of 50 MB/s."""
    assert sample_run.SAMPLE + 3 * sample_run._BYTES <= 160 << 20
    assert advising._WARM_TIMES * advising._COLD_BYTES <= sample_run.SAMPLE


def test_a_long_history_of_any_lines_needs_no_index(tmp_path, monkeypatch):
    monkeypatch.setattr(sample_run, "SAMPLE", 1000)
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
    # The file repeats the same times; the times in its middle are contiguous.
    assert n_frames == pytest.approx(200 / universe.trajectory.dt, rel=0.05)
    assert not (long_xtc.parent / f".{long_xtc.name}.paceline-index").exists()
    assert main(["advise", PSF, DCD, "--for", "rmsf", "--tsv", "--n-workers", "5"]) == 0
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert lines[0][0] == "workers"
    assert "5" in [line[0] for line in lines]
    now, low, high = (lines[0].index(f"{name} (s)") for name in ("now", "at least", "at most"))
    assert all(0 < float(line[low]) < float(line[now]) < float(line[high]) for line in lines[1:])


def test_command_line_for_pairs(capsys, monkeypatch):
    asked, measured = [], paceline.advise

    def advise(analysis, **options):
        asked.append(analysis)
        return measured(analysis, **options)

    monkeypatch.setattr("paceline.advice.advise", advise)
    command = ["advise", GRO, XTC, "--backend", "serial", "--begin", "8"]
    pairs = ["--select-2", "name HW1", "--exclude-same", "residue", "--range", "0", "2"]
    assert main([*command, "--for", "rdf", *pairs]) == 0
    assert "InterRDF of 22168 of 47681 atoms in 2 frames" in capsys.readouterr().out
    (rdf,) = asked
    assert (rdf.range, rdf.exclude_same, len(rdf.g2)) == ((0.0, 2.0), "residue", 11084)


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        ([PSF, DCD, "--select", "name XX"], 2, "no atoms match 'name XX'"),
        ([PSF, DCD, "--select", "name ("], 2, "cannot be read as a selection"),
        ([PSF, "missing.dcd"], 2, "missing.dcd"),
        ([PSF, DCD, "--begin", "98"], 2, "frame numbers are 0 to 97"),
    ],
)
def test_errors_of_the_command_line(capsys, arguments, status, message):
    assert main(["advise", *arguments]) == status
    assert message in capsys.readouterr().err


def measured(compute, fixed=0.0):
    return SampleTimes(FrameCost(0.0, 0.0, compute, 1000.0), 0.0, fixed, at_work=0.2)


def forecast(one, two, *, busy, cpus, fixed=0.0, n_frames=100_000):
    """Return a forecast from one round: seconds per frame with one worker and with two."""
    rounds = ((measured(one), measured(two, fixed)),)
    return Forecast(rounds, busy, cpus, n_frames, lambda n_workers: 16)


def forecast_of(*seconds, n_frames=100_000):
    """Return a forecast from several rounds, given seconds per frame for numbers of workers."""
    rounds = tuple((measured(one), measured(one)) for one in seconds)
    return Forecast(rounds, 0.0, 2, n_frames, lambda n_workers: 16)


@pytest.mark.parametrize("busy", [0.0, 0.25, 1.0])
def test_what_wants_no_processor_waits(monkeypatch, busy):
    """Use a simulated clock, so slow that waiting for a processor is negligible."""
    clocks = {"wall": 0.0, "busy": 0.0}

    def run(backend, frames, block_frames):
        clocks["wall"] += 1e4
        clocks["busy"] += busy * 1e4
        return measured(1.0)

    monkeypatch.setattr(advising, "perf_counter", lambda: clocks["wall"])
    monkeypatch.setattr(advising, "thread_time", lambda: clocks["busy"])
    sample = SimpleNamespace(run=run, middle=range, frames_per_chunk=1)
    assert advising._estimate_frame_time(sample) == (1.0, pytest.approx(1 - busy, abs=0.01))


def test_a_moment_of_the_first_look_is_not_taken_for_a_slow_frame():
    seconds = iter([0.5] + [1e-3] * 100)
    sample = SimpleNamespace(
        run=lambda *given: measured(next(seconds)), middle=range, frames_per_chunk=1
    )
    assert advising._estimate_frame_time(sample)[0] == 1e-3


def test_a_machine_that_stands_still_reads_something(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_bytes(bytes(1000))
    monkeypatch.setattr(sample_run, "_SECONDS", 0.0)
    assert sample_run._rate(str(path), [0, 500], 500) > 0


def test_workers_that_take_turns():
    # One lock serialises all work: two workers, and eight, are as fast as one.
    one_lock = forecast(1e-3, 2e-3, busy=1e-3, cpus=8)
    times = [one_lock.t_total(n) for n in (1, 2, 8)]
    assert times == pytest.approx([100, 100, 100], rel=0.01)


def test_workers_that_share_processors():
    shared = forecast(1e-3, 1e-3, fixed=2.0, busy=1e-3, cpus=4)
    times = [shared.t_total(n) for n in (1, 2, 4, 8)]
    assert times == pytest.approx([100, 52, 27, 27], rel=0.01)


def test_workers_that_wait():
    sleepers = forecast(1e-3, 1e-3, busy=0.0, cpus=1)
    assert sleepers.t_total(8) == pytest.approx(12.5, rel=0.01)


def width_of(forecast):
    """Return the ratio of the limits of the forecast range with two workers."""
    low, high = forecast.t_range(2)
    return high / low


def test_the_range_follows_from_the_spread_of_measurements():
    alike = forecast_of(1e-3, 1.3e-3, 0.8e-3, 1.2e-3, 0.8e-3)
    apart = forecast_of(1e-3, 2e-3, 0.6e-3, 1.6e-3, 0.5e-3)
    # Repeated runs on the same machine differ by this factor, even if measurements agree.
    assert width_of(alike) == pytest.approx(1.5)
    assert width_of(apart) > 2
    assert width_of(forecast_of(1e-3)) > 2, "one measurement says nothing of their spread"
    more = forecast_of(*[one.cost.seconds for one, _ in 10 * apart.rounds])
    assert width_of(more) == pytest.approx(1.5)
    # Runs that are as short as a measurement vary as much as the measurements.
    assert width_of(replace(apart, n_frames=400)) > 1.2 * width_of(apart)


def test_samples_from_memory_are_of_the_whole_run():
    """Check that samples use other blocks each time, read the frames of a chunk together, and
    finally cover most blocks.
    """
    sample = SimpleNamespace(
        _frames=np.arange(3, 10_000), _borders=Borders(8, 8, 5), frames_per_chunk=8
    )
    seen = np.zeros(10_000, dtype=bool)
    for number in range(12):
        frames = SampleRun.throughout(sample, 2048, 64, number)
        assert len(frames) == 2048
        blocks = frames.reshape(32, 64)
        assert (np.diff(blocks) == 1).all()
        assert (blocks[1:, 0] % 8 == 0).all()
        gaps = np.diff(blocks[:, 0])
        assert gaps.min() > 100
        assert gaps.max() < 500
        assert seen[frames].mean() < 0.5 + number / 12
        seen[frames] = True
    assert seen.mean() > 0.9
    assert len(SampleRun.throughout(sample, 50_000, 64, 0)) == 50_000


@pytest.mark.parametrize("cached", [1.0, 0.9, None])
def test_where_frames_are_measured(cached, monkeypatch, ca):
    """Check that samples are spread over the run if the file is in memory, and otherwise in the
    middle.
    """
    asked = []

    def throughout(sample, n, block_frames, number):
        asked.append(number)
        return SampleRun.middle(sample, n)

    monkeypatch.setattr(SampleRun, "throughout", throughout)
    monkeypatch.setattr(SampleRun, "in_memory_now", lambda sample: cached)
    paceline.advise(RMSD(ca))
    assert bool(asked) == (cached == 1.0)


@pytest.mark.parametrize("other_work", [False, True])
def test_the_range_holds_nine_runs_of_ten(other_work):
    """Simulate runs with random block times, like those of the measurements.

    In the simulation, other processes make two of five blocks take half as long again.
    """
    random = np.random.default_rng(24)

    def factors(n):
        if other_work:
            return 1.0 + 0.5 * (random.random(n) < 0.4)
        return np.exp(random.normal(0, 0.15, n))

    held = 0
    for _ in range(500):
        low, high = forecast_of(*1e-3 * factors(5), n_frames=4000).t_range(1)
        # A run of 4 s averages 20 measurements of 0.2 s.
        held += low <= 4.0 * factors(20).mean() <= high
    assert held >= 450


@pytest.mark.parametrize(("n_rounds", "spread"), [(1, 0.22), (2, 0.28)])
def test_the_range_of_few_measurements_allows_for_how_little_they_tell(n_rounds, spread):
    random = np.random.default_rng(25)
    held = 0
    for _ in range(500):
        seconds = 1e-3 * np.exp(random.normal(0, spread, n_rounds))
        low, high = forecast_of(*seconds, n_frames=4000).t_range(1)
        held += low <= 4.0 * np.exp(random.normal(0, spread, 20)).mean() <= high
    assert held >= 450


def test_a_slow_round_counts_half():
    """Check a run in which other processes slow some rounds."""
    slowed = forecast_of(1e-3, 1e-3, 1e-3, 1e-3, 2e-3)
    assert slowed.t_total(1) == pytest.approx(110)
    assert slowed.cost(1).seconds == pytest.approx(1.2e-3)


def test_a_round_in_which_the_machine_stood_still_counts_for_nothing():
    stood = forecast_of(1e-3, 1e-3, 1e-3, 1e-3, 10e-3)
    assert stood.t_total(1) == pytest.approx(100)
    assert width_of(stood) == pytest.approx(1.5)


@pytest.mark.parametrize(("spread", "expected"), [(0.0, 5), (0.3, 9), (5.0, 12)])
def test_more_is_measured_while_the_range_is_wide(monkeypatch, spread, expected):
    """Simulate a clock in which a round takes 1 s; after 12 s, measurements are long enough."""
    clock, rounds = [0.0], []

    def run(backend, frames, block_frames):
        if backend.n_workers == 2:
            clock[0] += 1.0
        rounds.append(backend.n_workers)
        return measured(1e-3 * np.exp(spread * (-1) ** (len(rounds) // 2)))

    sample = SimpleNamespace(
        run=run, middle=lambda n: np.arange(n), block_of=lambda n: 16, frame_bytes=1e3
    )
    monkeypatch.setattr(advising, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(advising, "_ROUNDS", 5)
    found, _ = advising._measure_from_memory(
        sample,
        Threads,
        range(1, 3),
        100,
        lambda n, number: np.arange(n),
        lambda rounds: Forecast(tuple(rounds), 0.0, 2, 100_000, lambda n: 16).is_wide,
        12.5,
    )
    assert len(found) == expected
    # The first run, which starts workers, does not count.
    assert rounds == [2, *[1, 2] * len(found)]


def test_frames_from_the_disk_are_not_those_from_memory(monkeypatch):
    """Check that bytes dropped from the cache and read again are timed separately."""
    monkeypatch.setattr(advising, "_COLD_ROUNDS", 3)
    n_cold = advising._n_disk_frames(SimpleNamespace(frame_bytes=1e6))
    frames = np.arange(20 * n_cold)
    dropped = []

    def middle(n, *, part=0, parts=1):
        return SampleRun.middle(sample, n, part=part, parts=parts)

    @contextlib.contextmanager
    def from_disk(some):
        dropped.append(some)
        yield True

    sample = SimpleNamespace(
        _frames=frames,
        _borders=Borders(),
        frames_per_chunk=1,
        frame_bytes=1e6,
        of_store=False,
        middle=middle,
        from_disk=from_disk,
        block_of=lambda n: 16,
        run=lambda *given: measured(1e-3),
    )
    assert len(advising._measure_from_disk(sample, Threads, 2, 10 * n_cold)) == 3
    everything = np.concatenate([*dropped, advising._memory_frames(sample, 2 * n_cold)])
    assert len(np.unique(everything)) == len(everything)


@needs_mincore
@pytest.mark.parametrize(
    "ranges", [[(0, 8 << 20), (16 << 20, 8 << 20)], [((5 << 20) + 123, 9 << 20)]]
)
def test_what_was_in_memory_is_there_afterwards(ranges, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(bytes(24 << 20))
    drop_from_cache(path)
    if cached_share(path):
        pytest.skip("files are kept in memory here")
    path.read_bytes()
    with sample_run._dropped_from_cache(str(path), ranges) as gone:
        assert gone
        assert cached_share(path, ranges) == 0
    assert cached_share(path) > 0.9  # the system may have evicted a page
    drop_from_cache(path)
    with sample_run._dropped_from_cache(str(path), ranges) as gone:
        assert gone
    assert cached_share(path) == 0


def test_work_of_other_programs(tmp_path, monkeypatch):
    ticks = os.sysconf("SC_CLK_TCK")
    stat = tmp_path / "stat"
    # Columns: user, nice, system, idle, iowait, irq, softirq and steal. This process may not use
    # cpu1.
    of_a_cpu = " ".join(str(seconds * ticks) for seconds in (1000, 2, 30, 400, 50, 6, 7, 8, 0, 0))
    stat.write_text(f"cpu {of_a_cpu}\ncpu0 {of_a_cpu}\ncpu1 {of_a_cpu}\nintr 1 2 3\n")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    own = time.process_time()
    assert OtherWork._seconds(stat) == pytest.approx(1053 - own, abs=1)
    assert OtherWork._seconds(tmp_path / "none") is None
    seconds = iter([10.0, 14.0])
    monkeypatch.setattr(OtherWork, "_seconds", lambda _: next(seconds))
    monkeypatch.setattr(machine_and_software.time, "perf_counter", iter([100.0, 102.0]).__next__)
    assert OtherWork().cpus() == 2.0


def test_words_of_a_busy_machine(rmsd_advice):
    apart = forecast_of(1e-3, 2e-3, 0.5e-3)
    findings = replace(rmsd_advice.findings, in_memory=apart, from_disk=None, others=1.04)
    text = " ".join(str(replace(rmsd_advice, findings=findings, others=())).split())
    assert "other programs kept 1.0 CPUs busy" in text
    assert "3 measurements differ too much for a narrower range" in text
    findings = replace(findings, in_memory=forecast_of(*[1e-3] * 9), others=0.1)
    text = str(replace(rmsd_advice, findings=findings, others=()))
    assert "other programs" not in text
    assert "narrower" not in text
