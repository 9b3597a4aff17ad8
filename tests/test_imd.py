"""Tests of streams of IMD against a server that sends known bytes."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading

import numpy as np
import pytest
from helpers import imd_server
from helpers.imd_server import ImdServer, handshake, header, made_frames, needs_ipv6
from helpers.ports import free_port
from helpers.waiting import PATIENCE, until

from paceline.errors import (
    AtomCountError,
    DamagedFileError,
    PacelineWarning,
    ReadError,
    UnsupportedError,
)
from paceline.trajectory.imd import ImdStream
from paceline.trajectory.imd_protocol import ENERGIES, parse_address

N = 30
ORDERS = {"little": "<", "big": ">"}


def received(server, **options):
    """Return all frames of a server, and the closed stream."""
    with server, ImdStream(server.address, timeout=PATIENCE, **options) as stream:
        return list(stream.frames()), stream


def failure(frames, expected, *, hello=None, n_atoms=N, **options):
    """Return the message of the error for a peer that sends these bytes."""
    if hello is None:
        hello = handshake(3) + made_frames(1, N)[0].session()
    failure.kept = 0

    def read():
        with ImdStream(server.address, n_atoms=n_atoms, timeout=PATIENCE) as stream:
            for _ in stream.frames():
                failure.kept += 1

    with ImdServer(frames, hello, **options) as server, pytest.raises(expected) as caught:
        read()
    message = str(caught.value)
    assert message.startswith(server.address + ":")
    return message.removeprefix(server.address + ": ")


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("fields", ["p", "pv", "pvf", "vf"])
def test_frames_of_version_3(order, fields):
    frames = made_frames(7, N, fields=fields)
    found, stream = received(ImdServer.of(frames, order=ORDERS[order], wrapped=True), n_atoms=N)
    session = stream.session
    assert (session.version, session.little_endian) == (3, order == "little")
    assert session.wrapped
    assert session.has_time
    assert session.has_box
    assert not session.has_energies
    assert [field[0] for field in session.fields] == list(fields)
    assert [frame.number for frame in found] == list(range(7))
    for sent, frame in zip(frames, found, strict=True):
        assert (frame.step, frame.time, frame.energies) == (sent.step, sent.time, None)
        assert frame.cell.dtype == np.float64
        np.testing.assert_array_equal(frame.cell, sent.cell)
        for field in ("positions", "velocities", "forces"):
            expected, values = getattr(sent, field), getattr(frame, field)
            assert (values is None) == (expected is None)
            if values is not None:
                assert values.dtype == np.float32
                np.testing.assert_array_equal(values, expected)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("with_energies", [True, False])
def test_frames_of_version_2(order, with_energies):
    frames = made_frames(5, N, version=2)
    if not with_energies:
        frames = [frame._replace(energies=None) for frame in frames]
    found, stream = received(ImdServer.of(frames, version=2, order=ORDERS[order]), n_atoms=N)
    assert (stream.session.version, stream.session.little_endian) == (2, order == "little")
    for sent, frame in zip(frames, found, strict=True):
        np.testing.assert_array_equal(frame.positions, sent.positions)
        assert frame.step == (sent.step if with_energies else None)
        assert frame.energies == (
            dict(zip(ENERGIES, range(9), strict=True)) if with_energies else None
        )
        assert frame.time is frame.cell is frame.velocities is frame.forces is None


def test_energies_of_version_3():
    frames = [frame._replace(energies=range(1, 10)) for frame in made_frames(2, N)]
    found, _ = received(ImdServer.of(frames), n_atoms=N)
    assert found[1].energies["temperature"] == 1
    assert found[1].energies["impropers"] == 9


def test_arrays_larger_than_a_buffer():
    frames = made_frames(3, 20_000)
    found, _ = received(ImdServer.of(frames), n_atoms=20_000)
    for sent, frame in zip(frames, found, strict=True):
        np.testing.assert_array_equal(frame.forces, sent.forces)


def test_later_frames_do_not_overwrite_arrays():
    found, _ = received(ImdServer.of(made_frames(3, N)), n_atoms=N)
    assert not np.shares_memory(found[0].positions, found[1].positions)


@pytest.mark.parametrize("style", ["real", "metal", "electron", "lj"])
def test_units_of_lammps(style):
    frames = made_frames(2, N)
    server = ImdServer.of(frames)
    if style == "lj":
        with pytest.warns(PacelineWarning, match="numbers have no unit"):
            found, _ = received(server, n_atoms=N, units=style)
    else:
        found, _ = received(server, n_atoms=N, units=style)
    bohr, electronvolt = 0.52917721092, 96.485336520922
    length, velocity, force, time = {
        "real": (1, 1e3, 4.184, 1e-3),
        "metal": (1, 1, electronvolt, 1),
        "electron": (bohr, 1e3 * bohr, 27.21138505 * electronvolt / bohr, 1e-3),
        "lj": (1, 1, 1, 1),
    }[style]
    last, frame = frames[-1], found[-1]
    np.testing.assert_allclose(frame.positions, last.positions * length, rtol=1e-6)
    np.testing.assert_allclose(frame.velocities, last.velocities * velocity, rtol=1e-6)
    np.testing.assert_allclose(frame.forces, last.forces * force, rtol=1e-6)
    np.testing.assert_allclose(frame.cell, last.cell * length, rtol=1e-12)
    assert frame.time == pytest.approx(last.time * time)


def test_unknown_units_are_refused_before_a_connection():
    with pytest.raises(UnsupportedError, match="must be one of lj, real"):
        ImdStream("imd://127.0.0.1:1", units="imperial")


def test_an_implausible_time_step_warns_once():
    frames = [frame._replace(dt=2.0) for frame in made_frames(3, N)]
    with pytest.warns(PacelineWarning, match="the time step is 2 ps.*units='real'") as caught:
        received(ImdServer.of(frames), n_atoms=N)
    assert sum(one.category is PacelineWarning for one in caught) == 1


# Addresses.


def test_addresses():
    assert parse_address("imd://localhost:8889") == ("localhost", 8889)
    assert parse_address("imd://node7") == ("node7", 8888)
    assert parse_address("imd://[::1]:1234/") == ("::1", 1234)


@pytest.mark.parametrize(
    ("address", "found"),
    [
        ("http://localhost:1", "found http://"),
        ("localhost:8888", "found localhost://"),
        ("imd://", "found no host"),
        ("imd://:8888", "found no host"),
        ("imd://localhost:70000", "a port from 1 to 65535"),
        ("imd://localhost:0", "found 0"),
        ("imd://localhost:first", "a port from 1 to 65535"),
        ("imd://localhost:8888/run", "more than host and port"),
        ("imd://me@localhost", "more than host and port"),
    ],
)
def test_wrong_addresses(address, found):
    with pytest.raises(UnsupportedError) as caught:
        parse_address(address)
    assert f"{address}: expected imd://HOST:PORT" in str(caught.value)
    assert found in str(caught.value)


def test_an_ipv6_address_without_brackets():
    with pytest.raises(UnsupportedError, match=r"stands in brackets: imd://\[::1\]:8888"):
        parse_address("imd://::1:8889")


@needs_ipv6
def test_an_engine_at_an_ipv6_address():
    frames = made_frames(2, N)
    server = ImdServer.of(frames, host="::1")
    assert server.address == f"imd://[::1]:{server.port}"
    found, _ = received(server, n_atoms=N)
    assert [frame.step for frame in found] == [frame.step for frame in frames]


@needs_ipv6
def test_no_engine_at_an_ipv6_address():
    with pytest.raises(ReadError, match=r"imd://\[::1\]:\d+: no engine listens"):
        ImdStream(f"imd://[::1]:{free_port('::1')}")


# Peers that cannot be read.


def test_no_engine():
    port = free_port()
    with pytest.raises(ReadError, match=f"imd://127.0.0.1:{port}: no engine listens"):
        ImdStream(f"imd://127.0.0.1:{port}")


def test_an_engine_may_start_later():
    frames = made_frames(2, N)
    server = ImdServer.of(frames)
    refusals = []
    connect = socket.create_connection

    def refuse_first(*arguments):
        if not refusals:
            refusals.append(1)
            raise ConnectionRefusedError
        return connect(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "create_connection", refuse_first)
        found, _ = received(server, n_atoms=N, wait=PATIENCE)
    assert len(found) == 2
    assert refusals


def test_a_peer_that_is_not_an_engine():
    message = failure([], DamagedFileError, hello=b"SSH-2.0-OpenSSH_9.6\r\n", waits_for_go=False)
    assert message == (
        "frame 0, byte 0: expected a handshake of IMD, 00 00 00 04, found 53 53 48 2d 32 2e 30 2d "
        "(b'SSH-2.0-'): the port may belong to another program"
    )


def test_a_peer_that_closes_at_once():
    message = failure([], ReadError, hello=b"", waits_for_go=False)
    assert "closed the connection without a handshake" in message


def test_a_peer_that_says_nothing():
    with (
        ImdServer([], b"") as server,
        pytest.raises(ReadError, match=r"nothing came within 0\.5 s: .* another client"),
    ):
        ImdStream(server.address, timeout=0.5)  # also the time to connect


@pytest.mark.parametrize("order", ORDERS)
def test_version_1(order):
    message = failure([], UnsupportedError, hello=handshake(1, ORDERS[order]), waits_for_go=False)
    assert "speaks IMD version 1, expected version 2 or 3" in message


def test_another_version():
    message = failure([], DamagedFileError, hello=handshake(77), waits_for_go=False)
    assert "expected version 2 or 3 of IMD, found 4d 00 00 00" in message


@pytest.mark.parametrize(
    ("info", "found"),
    [
        (header(10, 2**31 - 1), "type 10 (session info) with count 2147483647"),
        (header(2, 7), "type 2 (positions) with count 7"),
        (header(10, 7) + bytes(7), "found none"),
    ],
)
def test_wrong_session_info(info, found):
    message = failure([], DamagedFileError, hello=handshake(3) + info, waits_for_go=False)
    assert "expected session info" in message
    assert found in message


def test_a_closed_connection_before_session_info():
    message = failure([], ReadError, hello=handshake(3), waits_for_go=False)
    assert "closed the connection before it sent session info" in message


# Streams with errors.


def sent_bytes(n=3):
    return [frame.encoded() for frame in made_frames(n, N)]


@pytest.mark.parametrize("version", [2, 3])
def test_another_number_of_atoms(version):
    hello = handshake(version) + (made_frames(1, N)[0].session() if version == 3 else b"")
    frames = [frame.encoded() for frame in made_frames(2, N, version=version)]
    message = failure(frames, AtomCountError, hello=hello, n_atoms=N + 1, version=version)
    assert f"expected positions of {N + 1} atoms, found {N}: use the topology" in message
    assert message.startswith(f"frame 0, byte {8 + 15 + 32 + 44 if version == 3 else 8 + 48}: ")


def test_a_changed_number_of_atoms():
    frames = [*sent_bytes(2), made_frames(1, N + 5)[0].encoded()]
    message = failure(frames, AtomCountError, n_atoms=None)
    assert f"expected positions of {N} atoms, found {N + 5}" in message
    assert message.startswith("frame 2, ")
    assert failure.kept == 2


@pytest.mark.parametrize("count", [2**31 - 1, -1, 0, -(2**31)])
def test_absurd_numbers_of_atoms(count):
    begin = made_frames(1, N)[0]._replace(positions=None, velocities=None, forces=None).encoded()
    message = failure([begin + header(2, count)], (DamagedFileError, AtomCountError))
    assert f"expected positions of {N} atoms, found {count}" in message


def test_an_absurd_number_of_atoms_without_a_topology():
    begin = made_frames(1, N)[0]._replace(positions=None, velocities=None, forces=None).encoded()
    message = failure([begin + header(2, 2**31 - 1)], DamagedFileError, n_atoms=None)
    assert "expected positions of at most 10000000 atoms, found 2147483647" in message
    assert "n_atoms=" in message


@pytest.mark.parametrize("kind", [12, 13, 1])
def test_absurd_counts(kind):
    frame = made_frames(1, N)[0]._replace(energies=range(9))
    data = frame.encoded()
    at = data.index(header(kind, 1))
    data = data[:at] + header(kind, 1_000_000) + data[at + 8 :]
    message = failure([data], DamagedFileError, hello=handshake(3) + frame.session())
    assert message.endswith("found 1000000")


@pytest.mark.parametrize("version", [2, 3])
def test_unknown_packets(version):
    hello = handshake(version) + (made_frames(1, N)[0].session() if version == 3 else b"")
    good = made_frames(1, N, version=version)[0].encoded()
    message = failure([good, header(99, 5)], DamagedFileError, hello=hello, version=version)
    assert message.startswith(f"frame 1, byte {len(hello) + len(good)}: expected ")
    assert message.endswith("found type 99 (unknown) with count 5")
    assert failure.kept == 1


def test_packets_in_another_order():
    frame = made_frames(1, N)[0]
    message = failure([frame._replace(time=None).encoded()], DamagedFileError)
    assert "expected time (type 12), found type 13 (the cell) with count 1" in message


@pytest.mark.parametrize("cut", [3, 8, 20, 60, 300])
def test_a_cut_frame(cut):
    frames = sent_bytes()
    frames[2] = frames[2][:cut]
    message = failure(frames, DamagedFileError)
    assert message.startswith("frame 2, byte ")
    assert f"expected a complete frame, found {cut} bytes of it, and then the engine" in message
    assert message.endswith("the frames before it are complete")
    assert failure.kept == 2


def test_a_farewell_within_a_frame():
    frames = sent_bytes()
    frames[2] = frames[2][:32]
    message = failure(frames, DamagedFileError, end="disconnect")
    assert "found 32 bytes of it, and then the engine disconnected" in message
    assert failure.kept == 2


@pytest.mark.parametrize("end", ["close", "disconnect"])
@pytest.mark.parametrize("version", [2, 3])
def test_the_end_of_a_stream(end, version):
    frames = made_frames(3, N, version=version)
    found, stream = received(ImdServer.of(frames, version=version, end=end), n_atoms=N)
    assert len(found) == stream.n_frames == 3
    assert stream.ended == (
        "the engine closed the connection" if end == "close" else "the engine disconnected"
    )


def test_a_reset_connection_is_an_error():
    server = ImdServer.of(made_frames(2, N), end="reset", gated=True)
    with server, ImdStream(server.address, n_atoms=N, timeout=PATIENCE) as stream:
        server.allow(1)
        assert stream.read_frame().step == 0
        server.allow(1)
        # A reset connection may lose bytes that were not read, but never gives half a frame.
        with pytest.raises((DamagedFileError, ReadError), match="reset, without an end"):
            list(stream.frames())
        assert stream.n_frames <= 2
        assert stream.ended is not None
        assert stream.read_frame() is None


def test_silence_within_a_stream():
    server = ImdServer.of(made_frames(2, N), end="silent")
    with server, ImdStream(server.address, n_atoms=N, timeout=PATIENCE) as stream:
        assert [stream.read_frame().step, stream.read_frame().step] == [0, 10]
        stream.set_timeout(0.01)
        with pytest.raises(ReadError, match=r"frame 2, byte \d+: nothing came within 0\.01 s"):
            stream.read_frame()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_values_that_are_not_finite(bad):
    frame = made_frames(1, N)[0]
    assert "a finite time" in failure([frame._replace(time=bad).encoded()], DamagedFileError)
    cell = np.full((3, 3), bad)
    assert "finite cell vectors" in failure([frame._replace(cell=cell).encoded()], DamagedFileError)


@pytest.mark.parametrize("version", [2, 3])
def test_time_that_runs_backwards_warns_once(version):
    frames = made_frames(4, N, version=version)
    frames = [frames[k] for k in (2, 3, 0, 1, 0)]
    what = "time runs backwards in frame 2, from 0.06 ps to 0 ps"
    if version == 2:
        what = "the step number runs backwards in frame 2, from 30 to 0"
    with pytest.warns(PacelineWarning, match=what) as caught:
        found, _ = received(ImdServer.of(frames, version=version), n_atoms=N)
    assert len(found) == 5
    assert sum(one.category is PacelineWarning for one in caught) == 1


@pytest.mark.parametrize("seed", range(20))
def test_random_bytes_end_in_an_error(seed):
    """A hostile peer causes an error of paceline, and no large allocation."""
    random = np.random.default_rng(seed)
    data = bytearray(b"".join(sent_bytes()))
    for at in random.integers(0, len(data), 40):
        data[at] = random.integers(256)
    hello = handshake(3) + made_frames(1, N)[0].session()
    with (
        ImdServer([bytes(data)], hello) as server,
        ImdStream(server.address, n_atoms=N, timeout=PATIENCE) as stream,
        contextlib.suppress(DamagedFileError, AtomCountError),
    ):
        for frame in stream.frames():
            assert frame.positions.shape == (N, 3)


# Control.


@pytest.mark.parametrize("version", [2, 3])
def test_pause_and_resume(version):
    frames = made_frames(4, N, version=version)
    with ImdServer.of(frames, version=version, gated=True, end="silent") as server:
        stream = ImdStream(server.address, n_atoms=N, timeout=PATIENCE)
        server.allow(1)
        stream.read_frame()
        stream.pause()
        stream.pause()  # has no effect, although version 2 toggles
        until(server.paused.is_set)
        assert stream.is_paused
        server.allow(3)
        stream.resume()
        stream.resume()
        until(lambda: not server.paused.is_set())
        assert [stream.read_frame().step for _ in range(3)] == [10, 20, 30]
        stream.close()
        until(server.left.is_set)
    pause, resume = imd_server.PAUSE, imd_server.RESUME
    expected = [pause, pause] if version == 2 else [pause, resume]
    assert server.received == [imd_server.GO, *expected, imd_server.DISCONNECT]


@pytest.mark.parametrize("version", [2, 3])
def test_no_pause_remains_when_a_client_leaves(version):
    server = ImdServer.of(made_frames(3, N, version=version), version=version, end="silent")
    with server:
        with ImdStream(server.address, n_atoms=N, timeout=PATIENCE) as stream:
            stream.read_frame()
            stream.pause()
            assert server.paused.wait(PATIENCE)
        assert server.left.wait(PATIENCE)
    assert server.received == [
        imd_server.GO,
        imd_server.PAUSE,
        imd_server.PAUSE if version == 2 else imd_server.RESUME,
        imd_server.DISCONNECT,
    ]
    assert not server.paused.is_set()


class Noting:
    """Socket that notes its timeout whenever bytes are awaited."""

    def __init__(self, connection):
        self._connection, self.timeouts = connection, []

    def __getattr__(self, name):
        return getattr(self._connection, name)

    def recv_into(self, view):
        self.timeouts.append(self.gettimeout())
        return self._connection.recv_into(view)


def test_no_timeout_during_a_pause():
    with ImdServer.of(made_frames(1, N), gated=True) as server:
        stream = ImdStream(server.address, n_atoms=N, timeout=PATIENCE)
        stream.pause()
        until(server.paused.is_set)
        stream.set_timeout(0.02)
        noting = stream._socket = Noting(stream._socket)
        found = []
        reader = threading.Thread(target=lambda: found.append(stream.read_frame()))
        reader.start()
        until(lambda: len(noting.timeouts) > 5 or not reader.is_alive())
        assert reader.is_alive()
        stream.set_timeout(PATIENCE)
        # After the pause, the short timeout would count again.
        until(lambda: noting.timeouts[-1] == PATIENCE)
        server.allow(1)
        stream.resume()
        reader.join(PATIENCE)
        assert found[0].step == 0
        stream.close()


def test_kill():
    with ImdServer.of(made_frames(3, N), gated=True) as server:
        stream = ImdStream(server.address, n_atoms=N, timeout=PATIENCE)
        server.allow(1)
        stream.read_frame()
        stream.kill()
        until(server.left.is_set)
        assert stream.read_frame() is None
        assert server.received == [imd_server.GO, imd_server.KILL]


@pytest.mark.parametrize("version", [2, 3])
def test_a_simulation_is_left_running(version):
    frames = made_frames(3, N, version=version)
    with ImdServer.of(frames, version=version, end="silent") as server:
        ImdStream(server.address, n_atoms=N, timeout=PATIENCE).close(leave_running=True)
        until(server.left.is_set)
        asked = [imd_server.WAIT, imd_server.RATE] if version == 3 else []
        assert server.received == [imd_server.GO, *asked, imd_server.DISCONNECT]


def test_close_wakes_a_reader():
    with ImdServer.of(made_frames(1, N), gated=True) as server:
        stream = ImdStream(server.address, n_atoms=N, timeout=PATIENCE)
        found = []
        reader = threading.Thread(target=lambda: found.extend(stream.frames()))
        reader.start()
        stream.close()
        reader.join(PATIENCE)
        assert not reader.is_alive()
        assert found == []


def test_close_receives_until_the_engine_has_read_it():
    # An engine such as LAMMPS ends with an error if it cannot send a frame.
    frames = made_frames(400, 2000)
    with ImdServer.of(frames) as server:
        stream = ImdStream(server.address, n_atoms=2000, timeout=PATIENCE)
        stream.read_frame()
        stream.close()
        until(server.left.is_set)
        assert server.received[-1] == imd_server.DISCONNECT


@pytest.mark.skipif(os.name == "nt", reason="Windows sends no SIGINT to one process")
def test_ctrl_c_ends_a_script(tmp_path):
    script = """
import sys
from paceline.trajectory.imd import ImdStream
with ImdStream(sys.argv[1], n_atoms=30) as stream:
    for frame in stream.frames():
        print(frame.step, flush=True)
"""
    with ImdServer.of(made_frames(1, N), end="silent") as server:
        command = [sys.executable, "-c", script, server.address]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout.readline() == b"0\n"
            process.send_signal(signal.SIGINT)
            _, message = process.communicate(timeout=PATIENCE)
        assert b"KeyboardInterrupt" in message
        assert process.returncode == -signal.SIGINT
        until(server.left.is_set)
        assert server.received == [imd_server.GO, imd_server.DISCONNECT]
