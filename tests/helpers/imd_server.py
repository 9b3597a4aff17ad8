"""Simulation engine for tests: a server of IMD versions 2 and 3 that sends given bytes."""

import contextlib
import selectors
import socket
import struct
import threading
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pytest

from helpers.waiting import PATIENCE


def _has_ipv6() -> bool:
    """True if this machine has the address ::1."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not _has_ipv6(), reason="this machine has no IPv6")

DISCONNECT, GO, KILL, PAUSE, RATE, RESUME, WAIT = 0, 3, 5, 7, 8, 11, 16


def is_ready(client: socket.socket, event: int, seconds: float | None) -> bool:
    """Wait for an event of a socket; `select.select` refuses descriptors above 1,024."""
    with selectors.DefaultSelector() as selector:
        selector.register(client, event)
        return bool(selector.select(seconds))


class Frame(NamedTuple):
    """Contents of a frame; parts that are None are not sent."""

    step: int | None = None
    time: float | None = None
    cell: np.ndarray | None = None
    positions: np.ndarray | None = None
    velocities: np.ndarray | None = None
    forces: np.ndarray | None = None
    energies: Sequence[float] | None = None
    dt: float = 0.002

    def encoded(self, order: str = "<") -> bytes:
        """Return the packets of this frame, in the order of version 3."""
        parts = []
        if self.time is not None:
            parts += [header(12, 1), struct.pack(f"{order}ddq", self.dt, self.time, self.step)]
        if self.energies is not None:
            parts += [header(1, 1), struct.pack(f"{order}i9f", self.step, *self.energies)]
        if self.cell is not None:
            parts += [header(13, 1), self.cell.astype(f"{order}f4").tobytes()]
        for kind, values in ((2, self.positions), (14, self.velocities), (15, self.forces)):
            if values is not None:
                parts += [header(kind, len(values)), values.astype(f"{order}f4").tobytes()]
        return b"".join(parts)

    def session(self, wrapped: bool = False) -> bytes:
        """Return the session info for frames with these parts."""
        sent = self.time, self.energies, self.cell, self.positions, None, self.velocities
        flags = [part is not None for part in (*sent, self.forces)]
        flags[4] = wrapped
        return header(10, 7) + bytes(flags)


def header(kind: int, count: int) -> bytes:
    return struct.pack(">ii", kind, count)


def handshake(version: int, order: str = "<") -> bytes:
    return struct.pack(">i", 4) + struct.pack(f"{order}i", version)


def made_frames(n_frames, n_atoms, *, version=3, seed=0, fields="pvf"):
    """Make random frames, with steps of 10 and times of 0.02 ps in version 3."""
    random = np.random.default_rng(seed)

    def array(name):
        return random.normal(0, 10, (n_atoms, 3)).astype(np.float32) if name in fields else None

    frames = []
    for k in range(n_frames):
        arrays = {
            "positions": array("p"),
            "velocities": array("v"),
            "forces": array("f"),
        }
        if version == 2:
            frames.append(Frame(step=10 * k, energies=range(9), positions=arrays["positions"]))
            continue
        cell = np.diag([30.0, 31.0, 32.0]) + k * 0.125
        cell[np.triu_indices(3, 1)] = 0
        frames.append(Frame(step=10 * k, time=0.02 * k, cell=cell, **arrays))
    return frames


class ImdServer:
    """Server that sends a handshake and frames to one client, and honours its requests.

    `end` is "close", "disconnect" (a farewell first), "reset" (the connection breaks) or "silent"
    (nothing more is sent until the client leaves). With `gated`, each call of `allow` lets the
    server send some more frames.
    """

    def __init__(
        self,
        frames: Sequence[bytes],
        hello: bytes,
        *,
        version: int = 3,
        end: str = "close",
        gated: bool = False,
        waits_for_go: bool = True,
        host: str = "127.0.0.1",
    ):
        self.frames, self.hello, self.end = list(frames), hello, end
        self.version, self._waits_for_go = version, waits_for_go
        #: Types of the packets that the client sent.
        self.received: list[int] = []
        #: Number of frames that were sent.
        self.n_sent = 0
        self.paused, self.left = threading.Event(), threading.Event()
        #: Set while a frame waits for the client to receive earlier bytes.
        self.full = threading.Event()
        self.failure: BaseException | None = None
        self._allowed, self._gated = 0, gated
        self._change = threading.Condition()
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, 0), family=family)
        self.port = self._listener.getsockname()[1]
        self.address = f"imd://{f'[{host}]' if ':' in host else host}:{self.port}"
        self._thread = threading.Thread(target=self._serve, daemon=True)

    @classmethod
    def of(cls, frames: Sequence[Frame], *, version=3, order="<", wrapped=False, **options):
        """Create a server of complete frames."""
        hello = handshake(version, order)
        if version == 3:
            hello += frames[0].session(wrapped)
        return cls([frame.encoded(order) for frame in frames], hello, version=version, **options)

    def __enter__(self) -> "ImdServer":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop serving, and wait for the thread."""
        with self._change:
            self._gated = False
            self._change.notify_all()
        self.left.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def allow(self, n: int) -> None:
        """Let the server send `n` more frames."""
        with self._change:
            self._allowed += n
            self._change.notify_all()

    def wait_until_sent(self, n: int, patience: float = PATIENCE) -> bool:
        """Wait until `n` frames were sent."""
        with self._change:
            return self._change.wait_for(lambda: self.n_sent >= n, patience)

    def _serve(self) -> None:
        try:
            client, _ = self._listener.accept()
        except OSError:
            return
        with client, contextlib.suppress(OSError):
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            client.sendall(self.hello)
            if self._waits_for_go and not self._heed(client, until=GO):
                return
            for data in self.frames:
                if not self._may_send(client):
                    return
                self._send(client, data)
                with self._change:
                    self.n_sent += 1
                    self._change.notify_all()
            self._finish(client)

    def _send(self, client: socket.socket, data: bytes) -> None:
        """Send all bytes; note when the buffers of both sockets are full."""
        left = memoryview(data)
        while left:
            if not is_ready(client, selectors.EVENT_WRITE, 0):
                self.full.set()
                is_ready(client, selectors.EVENT_WRITE, None)
                self.full.clear()
            with contextlib.suppress(BlockingIOError):
                left = left[client.send(left, socket.MSG_DONTWAIT) :]

    def _may_send(self, client: socket.socket) -> bool:
        """Handle requests, wait for the gate, and return False if the client has left."""
        while True:
            while self.paused.is_set() or is_ready(client, selectors.EVENT_READ, 0):
                if not self._heed(client):
                    return False
            with self._change:
                if not self._gated or self.n_sent < self._allowed:
                    return True
                self._change.wait(0.01)
            if self.left.is_set():
                return False

    def _heed(self, client: socket.socket, until: int | None = None) -> bool:
        """Receive one request, or all up to the first of kind `until`; False if the client left."""
        while True:
            data = client.recv(8, socket.MSG_WAITALL)
            if len(data) < 8:
                self.left.set()
                return False
            kind, _ = struct.unpack(">ii", data)
            self.received.append(kind)
            if kind in (DISCONNECT, KILL):
                self.left.set()
                return False
            if kind == PAUSE and (self.version == 3 or not self.paused.is_set()):
                self.paused.set()
            elif kind in (PAUSE, RESUME):
                self.paused.clear()
            if until is None or kind == until:
                return True

    def _finish(self, client: socket.socket) -> None:
        if self.end == "disconnect":
            client.sendall(header(DISCONNECT, 0))
        elif self.end == "silent":
            while self._heed(client):
                pass
        elif self.end == "reset":
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
