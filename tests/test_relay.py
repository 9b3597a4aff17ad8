"""Tests of the relay, which passes on the frames of a running simulation to several programs."""

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
from helpers.imd_server import ImdServer, header, made_frames, needs_ipv6
from helpers.ports import free_port
from helpers.waiting import PATIENCE, until

from paceline import cli
from paceline.errors import DamagedFileError, ReadError, UnsupportedError
from paceline.trajectory.imd import ImdStream
from paceline.trajectory.imd_relay import StreamRelay

N = 30


@contextlib.contextmanager
def relaying(server, **options):
    """Run a relay of a server in a thread."""
    with StreamRelay(server.address, port=0, timeout=PATIENCE, **options) as relay:
        failures = []

        def run():
            try:
                relay.run()
            except Exception as error:
                failures.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        yield relay
        thread.join(PATIENCE)
        assert not thread.is_alive()
        assert not failures


def subscribe(relay, n_atoms=N):
    return ImdStream(f"imd://127.0.0.1:{relay.port}", n_atoms=n_atoms, timeout=PATIENCE)


def until_passed_on(relay, n_frames):
    """Wait until the relay has passed on this number of frames, and awaits the next one."""
    until(lambda: relay.n_frames == n_frames and relay._stream._reading.locked())


class Reader(threading.Thread):
    """Subscriber that receives all frames."""

    def __init__(self, relay):
        super().__init__(daemon=True)
        self.relay, self.frames, self.stream = relay, [], None
        self.start()

    def run(self):
        with subscribe(self.relay) as self.stream:
            self.frames.extend(self.stream.frames())


@pytest.mark.parametrize("order", ["<", ">"])
def test_each_subscriber_receives_every_frame(order):
    frames = made_frames(50, N)
    with ImdServer.of(frames, order=order, wrapped=True) as server:
        with relaying(server, n_subscribers=3) as relay:
            readers = [Reader(relay) for _ in range(3)]
        for reader in readers:
            reader.join(PATIENCE)
    for reader in readers:
        assert reader.stream.session.wrapped
        assert len(reader.frames) == 50
        for sent, frame in zip(frames, reader.frames, strict=True):
            assert (frame.step, frame.time, frame.dt) == (sent.step, sent.time, sent.dt)
            np.testing.assert_array_equal(frame.cell, sent.cell)
            np.testing.assert_array_equal(frame.positions, sent.positions)
            np.testing.assert_array_equal(frame.velocities, sent.velocities)
            np.testing.assert_array_equal(frame.forces, sent.forces)
    assert sorted((one.n_sent, one.n_skipped) for one in relay.served) == [(50, 0)] * 3


def test_energies_are_passed_on():
    frames = [frame._replace(energies=range(1, 10)) for frame in made_frames(3, N)]
    with ImdServer.of(frames) as server, relaying(server, n_subscribers=1) as relay:
        reader = Reader(relay)
        reader.join(PATIENCE)
    assert [list(frame.energies.values()) for frame in reader.frames] == [list(range(1, 10))] * 3


def test_version_2_becomes_version_3():
    frames = made_frames(4, N, version=2)
    with ImdServer.of(frames, version=2) as server, relaying(server, n_subscribers=1) as relay:
        reader = Reader(relay)
        reader.join(PATIENCE)
    assert reader.stream.session.version == 3
    assert reader.stream.session.fields == ("positions",)
    for sent, frame in zip(frames, reader.frames, strict=True):
        np.testing.assert_array_equal(frame.positions, sent.positions)


def test_a_sleeping_subscriber_skips_frames():
    """A program that does not read harms neither the engine nor other programs, nor the memory."""
    n_atoms, n_frames = 20_000, 120
    frames = made_frames(2, n_atoms, fields="p")
    frames = [frames[k % 2]._replace(step=k, time=0.1 * k) for k in range(n_frames)]
    server = ImdServer.of(frames, end="silent")
    with server, relaying(server, n_subscribers=2, buffer=1_000_000) as relay:
        asleep, steps = [], []
        other = threading.Thread(target=lambda: asleep.append(subscribe(relay, n_atoms)))
        other.start()
        stream = subscribe(relay, n_atoms)
        other.join(PATIENCE)
        while steps[-1:] != [n_frames - 1]:
            steps.append(stream.read_frame().step)
        assert imd_server.PAUSE not in server.received
        assert max(one.n_bytes for one in relay._subscribers) <= 1_000_000
        late = []
        while late[-1:] != [n_frames - 1]:
            late.append(asleep[0].read_frame().step)
        assert late == sorted(set(late))
        asleep[0].close()
        stream.close()
        until(lambda: len(relay.served) == 2)
        relay._stream.close()
    # The last frames waited for the program that did not read.
    assert max(one.n_skipped for one in relay.served) == n_frames - len(late) > 0


def test_subscribers_that_come_and_go():
    frames = made_frames(6, N)
    with ImdServer.of(frames, gated=True) as server, relaying(server) as relay:
        server.allow(2)
        until_passed_on(relay, 2)
        first = subscribe(relay)
        until(lambda: any(one.receives for one in relay._subscribers))
        server.allow(1)
        assert first.read_frame().step == 20
        first.kill()  # must not end the simulation
        until(lambda: not relay._subscribers)
        second = subscribe(relay)
        until(lambda: any(one.receives for one in relay._subscribers))
        server.allow(3)
        assert [frame.step for frame in second.frames()] == [30, 40, 50]
        assert imd_server.KILL not in server.received
        second.close()


def test_a_subscriber_may_pause_its_own_frames():
    frames = made_frames(5, N)
    with ImdServer.of(frames, gated=True) as server, relaying(server, n_subscribers=1) as relay:
        stream = subscribe(relay)
        server.allow(1)
        assert stream.read_frame().step == 0
        stream.pause()
        until(lambda: relay._subscribers[0].paused)
        server.allow(2)
        until_passed_on(relay, 3)
        stream.resume()
        until(lambda: not relay._subscribers[0].paused)
        server.allow(2)
        assert [frame.step for frame in stream.frames()] == [30, 40]
        stream.close()
    assert relay.served[0].n_skipped == 2


@pytest.mark.parametrize("data", [b"GET / HTTP/1.0\r\n\r\n", header(6, 2**31 - 1), header(99, 0)])
def test_a_hostile_subscriber_is_dismissed(data):
    frames = made_frames(3, N)
    with ImdServer.of(frames, gated=True) as server, relaying(server) as relay:
        until(lambda: relay.session is not None)
        with socket.create_connection(("127.0.0.1", relay.port)) as bad:
            bad.sendall(data)
            bad.settimeout(PATIENCE)
            received = b""
            with contextlib.suppress(ConnectionResetError):
                while part := bad.recv(4096):
                    received += part
            assert len(received) <= 23
        stream = subscribe(relay)
        until(lambda: any(one.receives for one in relay._subscribers))
        server.allow(3)
        assert len(list(stream.frames())) == 3
        stream.close()


def test_an_engine_that_fails_ends_the_streams():
    frames = [frame.encoded() for frame in made_frames(3, N)]
    frames[2] = frames[2][:100]
    hello = imd_server.handshake(3) + made_frames(1, N)[0].session()
    with ImdServer(frames, hello) as server:
        with StreamRelay(server.address, port=0, n_subscribers=1) as relay:
            reader = Reader(relay)
            with pytest.raises(DamagedFileError, match="frame 2"):
                relay.run()
        reader.join(PATIENCE)
    assert len(reader.frames) == 2


def test_a_port_in_use():
    with socket.create_server(("127.0.0.1", 0)) as used:
        port = used.getsockname()[1]
        with pytest.raises(ReadError, match=f"cannot listen at 127.0.0.1, port {port}"):
            StreamRelay("imd://localhost:1", port=port)
    with pytest.raises(UnsupportedError, match="at most 64 subscribers"):
        StreamRelay("imd://localhost:1", port=0, n_subscribers=65)


# The command.


@pytest.mark.parametrize("host", ["127.0.0.1", pytest.param("::1", marks=needs_ipv6)])
def test_the_command(host, capfd):
    port = free_port(host)
    frames = made_frames(20, N)
    named = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    with ImdServer.of(frames, host=host) as server:
        found = []

        def read():
            address = f"imd://{named}"
            with ImdStream(address, n_atoms=N, timeout=PATIENCE, wait=PATIENCE) as stream:
                found.extend(frame.step for frame in stream.frames())

        reader = threading.Thread(target=read)
        reader.start()
        command = ["relay", server.address, "--listen", named, "--subscribers", "1"]
        assert cli.main(command) == 0
        reader.join(PATIENCE)
    assert found == [frame.step for frame in frames]
    said = capfd.readouterr().err
    assert f"programs connect to imd://{named}" in said
    assert f"{server.address}: version 3, positions, velocities, forces" in said
    assert "20 frames received" in said
    assert "20 frames sent, 0 skipped" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["imd://localhost:1", "--listen", "0"], "imd://localhost:1: no engine listens"),
        (["md.xtc", "--listen", "0"], "expected imd://HOST:PORT"),
        (["imd://localhost:8890", "--listen", "8890"], "the port of the simulation"),
        (["imd://localhost:1", "--listen", "port"], "expected a port from 0 to 65535"),
    ],
)
def test_wrong_arguments_of_the_command(arguments, message, capfd):
    with contextlib.suppress(SystemExit):
        assert cli.main(["relay", *arguments]) != 0
    assert message in capfd.readouterr().err


@pytest.mark.skipif(os.name == "nt", reason="Windows sends no SIGINT to one process")
def test_ctrl_c_ends_the_command():
    with ImdServer.of(made_frames(1, N), end="silent") as server:
        command = [sys.executable, "-m", "paceline", "relay", server.address, "--listen", "0"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            assert server.wait_until_sent(1)
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=PATIENCE)
        assert process.returncode == 130
        assert "paceline: interrupted" in said
        until(server.left.is_set)
        assert server.received[-1] == imd_server.DISCONNECT
