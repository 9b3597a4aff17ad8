"""Tests of trajectory files that grow with a stream of IMD."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from helpers import imd_server
from helpers.imd_server import Frame, ImdServer, handshake, made_frames
from helpers.waiting import PATIENCE, until

import paceline
from paceline.analysis.convert import Write
from paceline.errors import DamagedFileError, PacelineWarning, UnsupportedError
from paceline.trajectory.imd import ImdStream
from paceline.trajectory.write_stream_to_file import KeptFrames, Tee

N = 30


def stored(path):
    """Return what a file contains now: fields, times and steps of all frames."""
    with paceline.open(path) as trajectory:
        return [
            {
                "positions": frame.positions,
                "velocities": frame.velocities if frame.has_velocities else None,
                "forces": frame.forces if frame.has_forces else None,
                "time": frame.time,
                "step": frame.step,
            }
            for frame in trajectory
        ]


@pytest.mark.parametrize("ending", ["xtc", "trr", "dcd", "nc"])
def test_each_frame_is_readable_at_once(ending, tmp_path):
    frames, path = made_frames(5, N), tmp_path / f"run.{ending}"
    fields = "pvf" if ending in ("trr", "nc") else "p"
    frames = made_frames(5, N, fields=fields)
    with ImdServer.of(frames, gated=True) as server:
        stream = ImdStream(server.address, n_atoms=N, timeout=PATIENCE)
        with Tee(stream, path) as tee:
            # A DCD file states the time between frames: the first frame waits for the second.
            server.allow(ending == "dcd")
            for n in range(1 + (ending == "dcd"), 6):
                server.allow(1)
                assert tee.wait_for(n, PATIENCE), tee.error
                found = stored(path)
                assert len(found) == n
                sent, frame = frames[n - 1], found[-1]
                np.testing.assert_allclose(frame["positions"], sent.positions, atol=0.0051)
                assert frame["time"] == pytest.approx(sent.time, rel=1e-6)
                assert frame["step"] == (n - 1 if ending == "nc" else sent.step)
                if fields == "pvf":
                    np.testing.assert_allclose(frame["velocities"], sent.velocities, rtol=1e-6)
                    np.testing.assert_allclose(frame["forces"], sent.forces, rtol=1e-6)
            assert tee.wait(PATIENCE)
        assert tee.error is None
        assert tee.n_written == 5


# TRR is left out: numbers of float32 change when Å become nm, Å and nm again.
@pytest.mark.parametrize("ending", ["xtc", "dcd", "nc"])
def test_the_file_has_the_bytes_of_a_converted_one(ending, tmp_path):
    path, again = tmp_path / f"run.{ending}", tmp_path / f"again.{ending}"
    with ImdServer.of(made_frames(4, N, fields="p")) as server:
        stream = ImdStream(server.address, n_atoms=N, timeout=PATIENCE)
        with Tee(stream, path) as tee:
            assert tee.wait(PATIENCE)
    Write(paceline.open(path), again).run(backend="serial")
    assert path.read_bytes() == again.read_bytes()


@pytest.mark.parametrize("ending", ["xtc", "dcd"])
def test_one_frame(ending, tmp_path):
    with ImdServer.of(made_frames(1, N, fields="p")) as server:
        stream = ImdStream(server.address, n_atoms=N, timeout=PATIENCE)
        with Tee(stream, tmp_path / f"run.{ending}") as tee:
            assert tee.wait(PATIENCE)
    assert len(stored(tee.path)) == tee.n_written == 1


def test_frames_of_version_2_get_times(tmp_path):
    frames = made_frames(3, N, version=2)
    for dt, times in ((0.5, [0, 0.5, 1]), (None, [0, 1, 2])):
        with ImdServer.of(frames, version=2) as server:
            stream = ImdStream(server.address, n_atoms=N, timeout=PATIENCE)
            tee = Tee(stream, tmp_path / "run.trr", dt=dt, overwrite=True)
            if dt is None:
                with pytest.warns(PacelineWarning, match="the engine sends no times"), tee:
                    assert tee.wait(PATIENCE)
            else:
                with tee:
                    assert tee.wait(PATIENCE)
        assert [frame["time"] for frame in stored(tee.path)] == times
        assert [frame["step"] for frame in stored(tee.path)] == [0, 10, 20]


@pytest.mark.parametrize("name", ["run.h5md", "run.pdb", "run.lammpstrj", "HISTORY", "run"])
def test_formats_that_do_not_grow(name, tmp_path):
    with ImdServer.of(made_frames(1, N)) as server:
        stream = ImdStream(server.address, n_atoms=N, timeout=PATIENCE)
        with stream, pytest.raises(UnsupportedError, match=r"expected a name that ends in \.xtc"):
            Tee(stream, tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_fields_that_a_format_lacks(tmp_path):
    server = ImdServer.of(made_frames(1, N, fields="vf"))
    with server, ImdStream(server.address, n_atoms=N, timeout=PATIENCE) as stream:
        with pytest.raises(UnsupportedError, match="sends only velocities, forces"):
            Tee(stream, tmp_path / "run.xtc")
        Tee(stream, tmp_path / "run.trr").stop()


def test_fields_that_are_left_out_warn(tmp_path):
    server = ImdServer.of(made_frames(1, N))
    with server, ImdStream(server.address, n_atoms=N, timeout=PATIENCE) as stream:
        with pytest.warns(PacelineWarning, match="cannot store velocities and forces"):
            tee = Tee(stream, tmp_path / "run.dcd")
        tee.stop()


def test_an_existing_file_is_kept(tmp_path):
    path = tmp_path / "run.trr"
    path.write_bytes(b"precious")
    server = ImdServer.of(made_frames(1, N))
    with server, ImdStream(server.address, n_atoms=N, timeout=PATIENCE) as stream:
        with pytest.raises(FileExistsError, match="overwrite=True"):
            Tee(stream, path)
        assert path.read_bytes() == b"precious"
        with path.open("rb") as opened, Tee(stream, path, overwrite=True) as tee:
            assert tee.wait(PATIENCE)
            assert opened.read() == b"precious"
    assert len(stored(path)) == 1


@pytest.mark.parametrize("ending", ["trr", "dcd"])
def test_a_cut_stream_leaves_complete_frames(ending, tmp_path):
    frames = [frame.encoded() for frame in made_frames(3, N, fields="p")]
    hello = handshake(3) + made_frames(1, N, fields="p")[0].session()
    frames[2] = frames[2][:100]
    with ImdServer(frames, hello) as server:
        stream = ImdStream(server.address, n_atoms=N, timeout=PATIENCE)
        with Tee(stream, tmp_path / f"run.{ending}") as tee:
            assert not tee.wait_for(3, PATIENCE)
    assert isinstance(tee.error, DamagedFileError)
    assert "frame 2" in str(tee.error)
    assert len(stored(tee.path)) == tee.n_written == 2


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs limits of file sizes")
def test_a_full_disk_pauses_the_engine(tmp_path):
    script = """
import resource, signal, sys
from paceline.trajectory.imd import ImdStream
from paceline.trajectory.write_stream_to_file import KeptFrames, Tee
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))
kept = KeptFrames(sys.argv[3], None, 1)
with Tee(ImdStream(sys.argv[1], n_atoms=30), sys.argv[2], kept=kept) as tee:
    tee.wait(300)
    print(tee.n_written, type(tee.error).__name__, flush=True)
    input()
"""
    path, kept = tmp_path / "run.trr", tmp_path / "kept.trr"
    with ImdServer.of(made_frames(50, N), gated=True) as server:
        command = [sys.executable, "-c", script, server.address, str(path), str(kept)]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            server.allow(5)
            n_written, error = process.stdout.readline().split()
            until(server.paused.is_set)
            assert error == "OSError"
            assert len(stored(path)) == len(stored(kept)) == int(n_written) == 2
            process.communicate("\n", timeout=PATIENCE)
        assert process.returncode == 0
        until(server.left.is_set)


def test_stop_and_kill(tmp_path):
    for kill in (False, True):
        with ImdServer.of(made_frames(9, N, fields="p"), gated=True) as server:
            stream = ImdStream(server.address, n_atoms=N, timeout=PATIENCE)
            tee = Tee(stream, tmp_path / "run.xtc", overwrite=True)
            tee.start()
            server.allow(4)
            assert tee.wait_for(4, PATIENCE)
            tee.stop(kill=kill)
            tee.stop()
            until(server.left.is_set)
            assert server.received[-1] == (imd_server.KILL if kill else imd_server.DISCONNECT)
            assert tee.ended
            assert tee.error is None
            assert len(stored(tee.path)) == 4


def test_uneven_times_in_dcd_warn(tmp_path):
    frames = made_frames(5, N, fields="p")
    frames = [frames[k] for k in (0, 1, 2, 4)]
    with ImdServer.of(frames) as server:
        stream = ImdStream(server.address, n_atoms=N, timeout=PATIENCE)
        with (
            pytest.warns(
                PacelineWarning, match=r"0\.02 ps, but the frame after 0\.04 ps is at 0\.08 ps"
            ),
            Tee(stream, tmp_path / "run.dcd") as tee,
        ):
            assert tee.wait(PATIENCE)


def test_uneven_times_of_the_file_that_analyses_read_warn(tmp_path):
    """Every fourth frame has even times, but the file of all frames has not."""
    times = (0, 1, 2, 3, 4, 5.5, 6.5, 7.5, 8)
    frames = made_frames(len(times), N, fields="pv")
    frames = [frame._replace(time=time) for frame, time in zip(frames, times, strict=True)]
    kept = KeptFrames(tmp_path / "run.dcd", None, 4)
    with ImdServer.of(frames) as server:
        stream = ImdStream(server.address, n_atoms=N, timeout=PATIENCE)
        with (
            pytest.warns(PacelineWarning) as found,
            Tee(stream, tmp_path / "all.dcd", kept=kept) as tee,
        ):
            assert tee.wait(PATIENCE)
    assert [frame["time"] for frame in stored(kept.path)] == pytest.approx([0, 4, 8])
    # Garbage of other tests may cause further warnings.
    left_out, uneven = (str(one.message) for one in found if one.category is PacelineWarning)
    assert "cannot store velocities" in left_out
    wanted = "analyses read all frames from another DCD file, which stores one time between frames"
    assert uneven.startswith(
        f"{kept.path}: {wanted}, 1 ps, but the frame after 4 ps is at 5.5 ps, not 5 ps"
    )


def test_times_in_dcd_that_drift_warn(tmp_path):
    """Each interval is 0.05 % longer than the first, which adds up."""
    frames = made_frames(9, N, fields="p")
    frames = [one._replace(time=k + 5e-4 * max(k - 1, 0)) for k, one in enumerate(frames)]
    with ImdServer.of(frames) as server:
        stream = ImdStream(server.address, n_atoms=N, timeout=PATIENCE)
        with (
            pytest.warns(PacelineWarning, match=r"after 3\.001 ps is at 4\.0015 ps, not 4 ps"),
            Tee(stream, tmp_path / "run.dcd") as tee,
        ):
            assert tee.wait(PATIENCE)


def test_a_script_that_ends_says_goodbye(tmp_path):
    script = """
import sys
from paceline.trajectory.imd import ImdStream
from paceline.trajectory.write_stream_to_file import Tee
tee = Tee(ImdStream(sys.argv[1], n_atoms=30), sys.argv[2])
tee.start()
tee.wait_for(2)
"""
    with ImdServer.of(made_frames(2, N), end="silent") as server:
        command = [sys.executable, "-c", script, server.address, str(tmp_path / "run.trr")]
        subprocess.run(command, check=True, timeout=PATIENCE)
        until(server.left.is_set)
        assert server.received == [imd_server.GO, imd_server.DISCONNECT]
    assert len(stored(tmp_path / "run.trr")) == 2


#: Script that writes a stream to a file, and prints its peak memory (kB) early and at the end.
WRITER = """
import resource, sys
from paceline.trajectory.imd import ImdStream
from paceline.trajectory.write_stream_to_file import Tee

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

with Tee(ImdStream(sys.argv[1], timeout=None), sys.argv[2]) as tee:
    tee.wait_for(3)
    print(peak(), flush=True)
    tee.wait()
print(tee.error, tee.n_written, peak())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory has another unit elsewhere")
def test_a_sleeping_client_holds_the_engine_and_loses_nothing(tmp_path):
    """What the client has not received waits in the buffers of the sockets, and in the engine."""
    n_frames, n_atoms, path = 100, 50_000, tmp_path / "run.trr"
    positions = np.random.default_rng(0).normal(0, 10, (n_atoms, 3)).astype(np.float32)
    frames = [Frame(k, 0.5 * k, 90 * np.eye(3), positions + k) for k in range(n_frames)]
    command = [sys.executable, "-c", WRITER]
    with ImdServer.of(frames, gated=True) as server:
        server.allow(3)
        with subprocess.Popen(
            [*command, server.address, path], stdout=subprocess.PIPE, text=True
        ) as client:
            before = int(client.stdout.readline())
            client.send_signal(signal.SIGSTOP)
            server.allow(n_frames)
            try:
                assert server.full.wait(PATIENCE)
                assert server.n_sent < n_frames
            finally:
                client.send_signal(signal.SIGCONT)
            error, n_written, after = client.communicate(timeout=PATIENCE)[0].split()
    assert (error, int(n_written)) == ("None", n_frames)
    # All frames together have 60 MB.
    assert int(after) - before < 20_000
    with paceline.open(path) as trajectory:
        assert trajectory.n_frames == n_frames
        for k in (2, 50, 99):
            np.testing.assert_allclose(trajectory[k].positions, frames[k].positions, atol=1e-4)
