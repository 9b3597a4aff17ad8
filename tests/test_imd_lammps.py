"""Tests of streams of IMD from the real LAMMPS, compared with its own dump of the same steps."""

import subprocess
import sys
from pathlib import Path
from threading import Thread

import MDAnalysis
import numpy as np
import pytest
from helpers.ports import free_port
from helpers.waiting import PATIENCE

import paceline
from paceline.analysis.distances import AtomicDistances
from paceline.analysis.rms import RMSF
from paceline.trajectory.imd import ImdStream
from paceline.trajectory.imd_relay import StreamRelay
from paceline.trajectory.write_stream_to_file import Tee

PROGRAM = Path(sys.executable).with_name("lmp")
pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="lammps is not installed")

#: Argon in a triclinic cell, 256 atoms.
INPUT = Path(__file__).parents[1] / "examples" / "argon.lmp"
TILTS = {"xy": 0.5, "xz": 0.25, "yz": 0.125}
N = 256


class Engine:
    """LAMMPS in another process, which waits for a client."""

    def __init__(self, folder, steps, options):
        port = free_port()
        self.address, self.dump = f"imd://127.0.0.1:{port}", folder / "run.lammpstrj"
        given = {"port": port, "steps": steps, "imd": options, "dump": self.dump, **TILTS}
        variables = [word for name, value in given.items() for word in ("-var", name, f"{value}")]
        self._process = subprocess.Popen(
            [PROGRAM, "-in", INPUT, "-log", "none", *variables],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._process.kill()
        self._process.communicate()

    def connect(self, **options):
        return ImdStream(
            self.address, n_atoms=N, units="real", wait=PATIENCE, timeout=PATIENCE, **options
        )

    def ended(self):
        """Wait for the end; return the exit status and the output."""
        output, _ = self._process.communicate(timeout=PATIENCE)
        return self._process.returncode, output

    def dumped(self):
        """Return the frames of the dump by their steps."""
        with paceline.open(self.dump) as trajectory:
            return {frame.step: frame for frame in trajectory}


@pytest.mark.parametrize("version", [2, 3])
def test_the_stream_equals_the_dump(version, tmp_path):
    with Engine(tmp_path, 300, f"version {version}") as engine:
        with engine.connect() as stream:
            frames = list(stream.frames())
        status, output = engine.ended()
        assert status == 0
        assert "ended after 300" in output
        dumped = engine.dumped()
    assert stream.session.version == version
    assert len(frames) == 30
    for k, frame in enumerate(frames):
        expected = dumped[10 * k + 10]
        np.testing.assert_array_equal(frame.positions, expected.positions)
        if version == 2:
            assert frame.step is frame.time is frame.cell is frame.velocities is None
            continue
        assert frame.step == expected.step
        assert frame.time == pytest.approx(expected.time, rel=1e-12)
        assert frame.dt == pytest.approx(0.002)
        # The numbers are rounded before their units are converted.
        close = {"rtol": 2e-7, "atol": 1e-7}
        np.testing.assert_allclose(frame.velocities, expected.velocities, **close)
        np.testing.assert_allclose(frame.forces, expected.forces, **close)
        np.testing.assert_allclose(frame.cell.ravel(), expected.cell[6:15], rtol=1e-7)


@pytest.mark.parametrize("ending", ["dcd", "nc"])
def test_the_file_has_the_numbers_of_the_dump(ending, tmp_path):
    with Engine(tmp_path, 200, "version 3 velocities off forces off") as engine:
        with Tee(engine.connect(), tmp_path / f"run.{ending}") as tee:
            assert tee.wait(PATIENCE)
        assert tee.error is None
        assert engine.ended()[0] == 0
        dumped = list(engine.dumped().values())[-20:]
    with paceline.open(tee.path) as trajectory:
        for frame, expected in zip(trajectory, dumped, strict=True):
            np.testing.assert_array_equal(frame.positions, expected.positions)
            np.testing.assert_allclose(frame.dimensions, expected.dimensions, rtol=1e-6)


@pytest.mark.parametrize("version", [2, 3])
def test_a_pause_loses_no_frame(version, tmp_path):
    with Engine(tmp_path, 300, f"version {version}") as engine:
        with engine.connect() as stream:
            frames = []
            for frame in stream.frames():
                frames.append(frame)
                stream.pause()
                stream.resume()
        assert engine.ended()[0] == 0
        dumped = engine.dumped()
    for k, frame in enumerate(frames):
        np.testing.assert_array_equal(frame.positions, dumped[10 * k + 10].positions)
    assert len(frames) == 30


def test_lammps_continues_without_a_client(tmp_path):
    with Engine(tmp_path, 2000, "version 3") as engine:
        stream = engine.connect()
        assert stream.read_frame().step == 10
        stream.close(leave_running=True)
        status, output = engine.ended()
    assert status == 0
    assert "ended after 2000" in output


def test_lammps_continues_after_some_frames(tmp_path):
    structure = tmp_path / "sys.gro"
    MDAnalysis.Universe.empty(N, trajectory=True).atoms.write(structure)
    with Engine(tmp_path, 2000, "version 3 unwrap on") as engine:
        waits = {"wait": PATIENCE, "timeout": PATIENCE}
        universe = paceline.Universe(structure, engine.address, units="real", **waits)
        rmsf = RMSF(universe.atoms).run(stop=5)
        status, output = engine.ended()
    assert len(rmsf.frames) == 5
    assert status == 0
    assert "ended after 2000" in output


@pytest.mark.parametrize("version", [2, 3])
def test_lammps_waits_for_the_next_client(version, tmp_path):
    with Engine(tmp_path, 200, f"version {version}") as engine:
        steps = 0
        for _ in range(3):
            with engine.connect() as stream:
                stream.read_frame()
        with engine.connect() as stream:
            steps = len(list(stream.frames()))
        assert engine.ended()[0] == 0
    assert steps <= 17


def test_lammps_is_killed(tmp_path):
    with Engine(tmp_path, 10_000_000, "version 3") as engine:
        with engine.connect() as stream:
            assert stream.read_frame().step == 10
            stream.kill()
        status, output = engine.ended()
    assert status != 0
    assert "LAMMPS terminated on IMD request" in output


def test_several_programs_follow_lammps(tmp_path):
    with Engine(tmp_path, 200, "version 3") as engine:
        options = {"port": 0, "n_subscribers": 2, "wait": PATIENCE, "timeout": PATIENCE}
        with StreamRelay(engine.address, **options) as relay:
            address = f"imd://127.0.0.1:{relay.port}"
            tees = []

            def subscribe(number):
                stream = ImdStream(address, n_atoms=N, units="real", timeout=PATIENCE)
                tees.append(Tee(stream, tmp_path / f"{number}.trr"))
                tees[-1].start()

            threads = [Thread(target=subscribe, args=(k,)) for k in range(2)]
            for thread in threads:
                thread.start()
            relay.run()
            for thread in threads:
                thread.join(PATIENCE)
            for tee in tees:
                assert tee.wait(PATIENCE)
                tee.stop()
                assert (tee.error, tee.n_written) == (None, 20)
        assert engine.ended()[0] == 0
    assert (tmp_path / "0.trr").read_bytes() == (tmp_path / "1.trr").read_bytes()


@pytest.mark.parametrize("version", ["version 2", "version 3"])
def test_a_run_over_lammps_has_the_numbers_of_its_file(version, tmp_path):
    """A Universe of the structure and the engine, and one call that lasts until LAMMPS ends."""
    tee, some = tmp_path / "run.nc", tmp_path / "some.nc"
    data = tmp_path / "sys.gro"
    MDAnalysis.Universe.empty(N, trajectory=True).atoms.write(data)
    for path, kept in ((tee, {}), (some, {"tee_atoms": range(0, N, 2), "tee_step": 2})):
        with Engine(tmp_path, 100, version) as engine:
            waits = {"wait": PATIENCE, "timeout": PATIENCE, "dt": 0.02}
            universe = paceline.Universe(data, engine.address, units="real", tee=path, **waits)
            distances, rmsf = paceline.run(
                [AtomicDistances(universe.atoms[:8], universe.atoms[8:16]), RMSF(universe.atoms)],
                **kept,
            )
            assert engine.ended()[0] == 0
        file = paceline.Universe(data, tee)
        wanted = paceline.run(
            [AtomicDistances(file.atoms[:8], file.atoms[8:16]), RMSF(file.atoms)], n_workers=1
        )
        assert np.array_equal(distances.results.distances, wanted[0].results.distances)
        assert np.array_equal(rmsf.results.rmsf, wanted[1].results.rmsf)
        assert len(distances.results.distances) == 10
    with paceline.open(tee) as whole, paceline.open(some) as part:
        assert np.array_equal(part.positions(), whole.positions()[::2, ::2])
