"""Send the frames of a running simulation to any number of programs.

An engine serves one client. `StreamRelay` is this client, and sends the frames to other programs
(subscribers) in version 3 of IMD. It never waits until a subscriber has read a frame: a subscriber
that reads too slowly misses the oldest frames that wait for it.
"""

import contextlib
import dataclasses
import selectors
import socket
import threading
import time
from collections import deque
from types import TracebackType
from typing import Self

from paceline.errors import ReadError, UnsupportedError
from paceline.trajectory.imd import ImdStream
from paceline.trajectory.imd_protocol import (
    HEADER,
    ImdSession,
    Packet,
    encoded_frame,
    hello_of,
    host_and_port,
)

#: Maximum number of subscribers at a time.
MOST = 64
#: Default maximum size of the frames that wait to be sent to one subscriber, bytes.
BUFFER = 64 << 20
#: Time after the handshake in which a subscriber must reply, seconds.
_PATIENCE = 5.0
#: Time after the last frame in which subscribers may receive what waits for them, seconds.
_GRACE = 10.0
#: Time between two checks of `_PATIENCE` and `_GRACE`, seconds.
_INTERVAL = 0.25


class _Subscriber:
    """Connection to one subscriber, and the frames that wait to be sent to it."""

    def __init__(self, connection: socket.socket, name: str):
        self.connection, self.name = connection, name
        self.waiting: deque[bytes] = deque()
        self.n_bytes = 0
        self.sending = memoryview(b"")
        self.is_frame = False
        #: Time at which the connection or the handshake was made, seconds.
        self.since = time.monotonic()
        self.greeted = self.receives = self.paused = False
        self.n_sent = self.n_skipped = 0
        self._requests = b""

    def greet(self, hello: bytes) -> None:
        """Put the handshake in the place of the bytes that are sent next."""
        self.sending, self.is_frame = memoryview(hello), False
        self.greeted, self.since = True, time.monotonic()

    def add(self, data: bytes, limit: int) -> None:
        """Add a frame to those that wait; if more than `limit` bytes wait, drop the oldest frames.

        A paused subscriber misses the frame.
        """
        if not self.receives:
            return
        if self.paused:
            self.n_skipped += 1
            return
        self.waiting.append(data)
        self.n_bytes += len(data)
        while self.n_bytes > limit and len(self.waiting) > 1:
            self.n_bytes -= len(self.waiting.popleft())
            self.n_skipped += 1

    @property
    def has_bytes(self) -> bool:
        """True if bytes wait to be sent."""
        return bool(self.sending) or (self.receives and bool(self.waiting))

    def send(self) -> None:
        """Send as many bytes as the connection accepts now."""
        if not self.sending and self.waiting:
            data = self.waiting.popleft()
            self.n_bytes -= len(data)
            self.sending, self.is_frame = memoryview(data), True
        if self.sending:
            self.sending = self.sending[self.connection.send(self.sending) :]
            self.n_sent += self.is_frame and not self.sending

    def requests(self) -> list[int]:
        """Receive requests; return their types, or an empty list if no request is complete yet.

        Raises `ConnectionError` if the subscriber has left.
        """
        data = self.connection.recv(4096)
        if not data:
            raise ConnectionResetError
        self._requests += data
        whole = len(self._requests) // HEADER.size * HEADER.size
        kinds = [kind for kind, _ in HEADER.iter_unpack(self._requests[:whole])]
        self._requests = self._requests[whole:]
        return kinds


@dataclasses.dataclass(frozen=True)
class Served:
    """Name of a subscriber that has left, and numbers of frames sent to it and skipped."""

    name: str
    n_sent: int
    n_skipped: int


class StreamRelay:
    """Server of IMD version 3 that passes on the frames of an engine.

    A subscriber may pause the frames that the relay sends to it. No request of a subscriber reaches
    the engine. Units are not converted.

    Parameters
    ----------
    address : str
        Address of the engine, `imd://host:port`.
    port : int
        Port to which subscribers connect; 0 for any that is free.
    host : str, optional
        Name or number of this machine's interface to which subscribers connect; "" means all.
    n_atoms : int, optional
        Number of atoms that the engine must send; by default the first frame decides.
    n_subscribers : int, optional
        Number of subscribers for which the relay waits before it connects to the engine.
    buffer : int, optional
        Maximum size of the frames that wait for one subscriber, bytes.
    timeout : float, optional
        Maximum time in which the engine sends nothing, seconds; None waits without limit.
    wait : float, optional
        Time in which an engine that does not listen yet may start, seconds.

    Attributes
    ----------
    port : int
        Port to which subscribers connect.
    n_frames : int
        Number of frames that were received from the engine.
    served : list of Served
        Subscribers that have left, with the numbers of frames that were sent and skipped.

    Raises
    ------
    ReadError
        If the port cannot be used, or for the reasons of `ImdStream`.
    """

    def __init__(
        self,
        address: str,
        *,
        port: int,
        host: str = "127.0.0.1",
        n_atoms: int | None = None,
        n_subscribers: int = 0,
        buffer: int = BUFFER,
        timeout: float | None = 60.0,
        wait: float = 0.0,
    ):
        if n_subscribers > MOST:
            raise UnsupportedError(f"at most {MOST} subscribers are served, not {n_subscribers}")
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            self._listener = socket.create_server((host, port), family=family)
        except OSError as error:
            where = f"{host or 'all interfaces'}, port {port}"
            raise ReadError(f"cannot listen at {where}: {error.strerror or error}") from error
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self.address, self._n_wanted, self._buffer = address, n_subscribers, buffer
        self._options = {"n_atoms": n_atoms, "timeout": timeout, "wait": wait}
        self.n_frames = 0
        self.served: list[Served] = []
        self.session: ImdSession | None = None
        self._stream: ImdStream | None = None
        self._subscribers: list[_Subscriber] = []
        self._lock = threading.Condition()
        self._ends: float | None = None
        self._wake, self._woken = socket.socketpair()
        self._wake.setblocking(False)
        self._woken.setblocking(False)
        self._thread = threading.Thread(target=self._serve, name="paceline-relay", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close(0.0 if kind else _GRACE)

    def connect(self) -> ImdStream:
        """Wait for `n_subscribers` subscribers, then connect to the engine; return this stream."""
        with self._lock:
            while len(self._subscribers) < self._n_wanted:
                self._lock.wait(_INTERVAL)  # in parts, so that Ctrl-C works on Windows
        stream = self._stream = ImdStream(self.address, **self._options)  # type: ignore[arg-type]
        session = dataclasses.replace(stream.session, version=3)
        if stream.session.version == 2:  # some of its frames may have no energies
            session = dataclasses.replace(session, has_energies=False)
        with self._lock:
            self.session = session
        self._call()
        with self._lock:
            while sum(one.receives for one in self._subscribers) < min(
                self._n_wanted, len(self._subscribers)
            ):
                self._lock.wait(_INTERVAL)
        return stream

    def run(self) -> None:
        """Pass on frames until the engine ends its stream; then end the subscribers' streams."""
        stream = self._stream or self.connect()
        assert self.session is not None
        try:
            for frame in stream.frames():
                self.n_frames += 1
                data = encoded_frame(frame, self.session)
                with self._lock:
                    for one in self._subscribers:
                        one.add(data, self._buffer)
                self._call()
        finally:
            self._end(_GRACE)

    def close(self, grace: float = _GRACE) -> None:
        """Disconnect from the engine; subscribers get waiting frames for up to `grace` seconds."""
        if self._stream is not None:
            self._stream.close()
        self._end(grace)
        self._thread.join()

    def _end(self, grace: float) -> None:
        """Set the time, at most `grace` seconds from now, after which the relay ends."""
        with self._lock:
            ends = time.monotonic() + grace
            self._ends = ends if self._ends is None else min(self._ends, ends)
        self._call()

    # The thread that serves.

    def _call(self) -> None:
        """Wake the serving thread, so that it handles new frames or the end."""
        with contextlib.suppress(OSError):  # the thread was already woken, or has ended
            self._wake.send(b"\0")

    def _serve(self) -> None:
        """Serve subscribers until the relay is closed and nothing waits for them."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            selector.register(self._woken, selectors.EVENT_READ)
            while not self._is_done():
                ready = selector.select(_INTERVAL)
                with self._lock:
                    for key, events in ready:
                        if key.fileobj is self._listener:
                            self._accept(selector)
                        elif key.fileobj is self._woken:
                            with contextlib.suppress(BlockingIOError):
                                self._woken.recv(4096)
                        else:
                            self._attend(selector, key.data, events)
                    self._greet_and_check(selector)
                    self._lock.notify_all()
            with self._lock:
                for one in list(self._subscribers):
                    self._dismiss(selector, one)
        for closed in (self._listener, self._wake, self._woken):
            closed.close()

    def _is_done(self) -> bool:
        with self._lock:
            if self._ends is None:
                return False
            busy = any(one.has_bytes for one in self._subscribers)
            return not busy or time.monotonic() >= self._ends

    def _accept(self, selector: selectors.BaseSelector) -> None:
        """Accept a subscriber, or refuse it if there are too many."""
        try:
            connection, peer = self._listener.accept()
        except OSError:  # the subscriber has left
            return
        if len(self._subscribers) >= MOST or self._ends is not None:
            connection.close()
            return
        connection.setblocking(False)
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        one = _Subscriber(connection, host_and_port(*peer[:2]))
        self._subscribers.append(one)
        selector.register(connection, selectors.EVENT_READ, one)

    def _attend(self, selector: selectors.BaseSelector, one: _Subscriber, events: int) -> None:
        """Receive requests of a subscriber, and send it what waits."""
        try:
            if events & selectors.EVENT_READ:
                for kind in one.requests():
                    self._heed(one, kind)
            if events & selectors.EVENT_WRITE:
                one.send()
        except BlockingIOError:
            pass
        except OSError:
            self._dismiss(selector, one)

    def _heed(self, one: _Subscriber, kind: int) -> None:
        """Obey a request to send, pause or resume frames; ignore requests that concern the engine.

        Raises `ConnectionError` if the subscriber leaves, or does not follow the protocol.
        """
        if kind == Packet.GO and one.greeted:
            one.receives = True
        elif kind == Packet.PAUSE:
            one.paused = True
        elif kind == Packet.RESUME:
            one.paused = False
        elif kind not in (Packet.RATE, Packet.WAIT):
            raise ConnectionResetError

    def _greet_and_check(self, selector: selectors.BaseSelector) -> None:
        """Send handshakes, close connections without a reply, and choose the events to wait for."""
        for one in list(self._subscribers):
            if not one.greeted and self.session is not None:
                one.greet(hello_of(self.session))
            if one.greeted and not one.receives and time.monotonic() - one.since > _PATIENCE:
                self._dismiss(selector, one)
                continue
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if one.has_bytes else 0)
            if selector.get_key(one.connection).events != events:
                selector.modify(one.connection, events, one)

    def _dismiss(self, selector: selectors.BaseSelector, one: _Subscriber) -> None:
        """Close a connection, and record how many frames were sent and skipped."""
        if one not in self._subscribers:
            return
        self._subscribers.remove(one)
        selector.unregister(one.connection)
        one.connection.close()
        n_left = len(one.waiting) + (one.is_frame and bool(one.sending))
        self.served.append(Served(one.name, one.n_sent, one.n_skipped + n_left))
