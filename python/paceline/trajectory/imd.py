"""Read a running simulation over IMD (interactive molecular dynamics), versions 2 and 3.

An engine (LAMMPS, NAMD, GROMACS) listens on a port, and sends each frame to one client (see
`imd_protocol`).
"""

import contextlib
import math
import socket
import struct
import sys
import threading
import time
import weakref
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import NamedTuple, NoReturn, Self

import numpy as np

from paceline import _core
from paceline._util.arguments import positive_number
from paceline.block import FIELDS
from paceline.errors import AtomCountError, DamagedFileError, ReadError, UnsupportedError, warn
from paceline.trajectory.imd_protocol import (
    ARRAYS,
    ENERGIES,
    HEADER,
    NAMES,
    ImdSession,
    Packet,
    StreamFrame,
    described,
    parse_address,
)

#: Maximum number of atoms if the caller does not state the number: a peer that is not an engine
#: may announce any number.
MAX_ATOMS = 10_000_000
#: Maximum number of bytes that one call receives, except for calls that receive arrays.
_BUFFER = 64 << 10
#: Maximum time after the farewell for which bytes are still received, and dropped, seconds. LAMMPS
#: ends with an error if the connection closes while it sends a frame.
_GRACE = 5.0
#: Time between two attempts to connect, seconds.
_RETRY = 0.1
#: Longest plausible time step of an integrator, ps: coarse-grained models use up to 0.05 ps.
_LONGEST_STEP = 0.1


class _Units(NamedTuple):
    """Factors that convert an engine's numbers to Å, Å/ps, kJ/(mol·Å), ps and kJ/mol."""

    positions: float = 1.0
    velocities: float = 1.0
    forces: float = 1.0
    time: float = 1.0
    energy: float = 1.0

    @classmethod
    def of_style(cls, style: str | None) -> Self:
        """Return the factors of a unit style of LAMMPS; None stands for the units of IMD."""
        if style is None:
            return cls()
        length, velocity, force, time = _core.lammps_factors(style)
        return cls(length, velocity, force, time, force * length)


def _header(kind: Packet, value: int = 0) -> bytes:
    """Return the bytes of a packet that has no body."""
    return HEADER.pack(kind, value)


_DISCONNECT = _header(Packet.DISCONNECT)


class _EndOfStream(Exception):
    """Signal that the engine has ended the stream; its text is the reason."""


class ImdStream:
    """Connection to a running simulation.

    An engine serves one client at a time, and waits while the client does not read. Always call
    `close`, or use the object in a `with` statement: LAMMPS ends with an error if the connection
    breaks without a farewell.

    Parameters
    ----------
    address : str
        Address `imd://host:port`.
    n_atoms : int, optional
        Number of atoms that the engine must send. By default, the first frame decides, up to
        10 million.
    units : str, optional
        Unit style of LAMMPS whose numbers the engine sends: LAMMPS sends numbers as they are,
        although IMD prescribes Å, ps, Å/ps, kJ/(mol·Å) and kJ/mol. By default, numbers are in
        these units.
    timeout : float, optional
        Maximum time in which the engine sends nothing, seconds; None waits without limit. The time
        of a pause does not count.
    wait : float, optional
        Time in which an engine that does not listen yet may start, seconds.

    Attributes
    ----------
    address : str
        The address.
    session : ImdSession
        Version of the protocol, byte order, and parts of each frame.
    n_atoms : int or None
        Number of atoms; None before the first frame if it was not given.
    n_frames : int
        Number of complete frames that were received.
    ended : str or None
        Reason why the stream has ended; None before.

    Raises
    ------
    UnsupportedError
        For an invalid address, an unknown unit style, or another version of IMD.
    ReadError
        If no engine listens, or the engine sends nothing.
    DamagedFileError
        If the peer does not follow the protocol.

    Examples
    --------
    >>> with ImdStream("imd://localhost:8888", n_atoms=2048) as stream:  # doctest: +SKIP
    ...     for frame in stream.frames():
    ...         print(frame.step, frame.positions[0])
    """

    def __init__(
        self,
        address: str,
        *,
        n_atoms: int | None = None,
        units: str | None = None,
        timeout: float | None = 60.0,
        wait: float = 0.0,
    ):
        host, port = parse_address(address)
        if n_atoms is not None and n_atoms < 1:
            raise ValueError(f"n_atoms must be at least 1, not {n_atoms}")
        timeout = _possible_timeout(timeout)
        self.address, self.n_atoms, self.n_frames = address, n_atoms, 0
        self.ended: str | None = None
        self._units, self._style, self._timeout = _Units.of_style(units), units, timeout
        self._given = n_atoms is not None
        self._buffer, self._start, self._stop = bytearray(_BUFFER), 0, 0
        # Numbers of bytes: `_taken` were received in total, `_border` up to the end of the last
        # complete frame, and `_at` before the current packet.
        self._taken = self._border = self._at = 0
        self._energies: Mapping[str, float] | None = None
        self._step: int | None = None
        self._latest = -math.inf
        self._warned: set[str] = set()
        self._paused = self._closing = self._greeted = False
        #: Number of requests to pause or resume. If it changes while a thread waits for bytes, a
        #: timeout of this thread is not an error.
        self._n_changes = 0
        self._reading, self._sending = threading.Lock(), threading.Lock()
        self._socket = self._connect(host, port, wait)
        try:
            self._socket.settimeout(timeout)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.session = self._shake_hands()
            self._border = self._taken
            self._order = "<" if self.session.little_endian else ">"
            self._swaps = self.session.little_endian != (sys.byteorder == "little")
            self._parts = self.session.packets
            # The farewell is also sent when this object is deleted, or when the script ends.
            self._farewell = weakref.finalize(self, _say_farewell, self._socket)
            self._greeted = True
            self._socket.sendall(_header(Packet.GO))
        except BaseException:
            if not self._greeted:
                self._socket.close()
            raise
        if units == "lj":
            warn(
                f"{address}: numbers have no unit (units lj): they are not converted, but labelled "
                "Å, ps, Å/ps and kJ/(mol·Å)"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _connect(self, host: str, port: int, wait: float) -> socket.socket:
        """Connect to an engine; if it does not listen yet, try again for `wait` seconds."""
        until = time.monotonic() + wait
        while True:
            try:
                return socket.create_connection((host, port), self._timeout)
            except ConnectionRefusedError:
                if time.monotonic() >= until:
                    raise ReadError(
                        f"{self.address}: no engine listens on this port: start the simulation "
                        "first, and compare the port with that in its input or log"
                    ) from None
                time.sleep(_RETRY)
            except TimeoutError:
                within = "" if self._timeout is None else f" within {self._timeout:g} s"
                raise ReadError(
                    f"{self.address}: the host did not answer{within}: a firewall may block the "
                    "port"
                ) from None
            except OSError as error:
                raise ReadError(
                    f"{self.address}: cannot connect: {error.strerror or error}"
                ) from error

    def set_timeout(self, seconds: float | None) -> None:
        """Set the maximum time in which the engine sends nothing, seconds."""
        self._timeout = seconds = _possible_timeout(seconds)
        self._socket.settimeout(seconds)

    # Handshake.

    def _shake_hands(self) -> ImdSession:
        """Receive the engine's handshake, and in version 3 its session info."""
        try:
            data = self._take(HEADER.size)
        except _EndOfStream:
            raise ReadError(
                f"{self.address}: the peer closed the connection without a handshake: the port may "
                "belong to another program"
            ) from None
        (kind, _), raw = HEADER.unpack(data), bytes(data[4:])
        if kind != Packet.HANDSHAKE:
            self._wrong(
                f"a handshake of IMD, {_hex(bytes((0, 0, 0, 4)))}",
                f"{_hex(bytes(data))} ({bytes(data)!r})",
                "the port may belong to another program",
            )
        little, big = (int.from_bytes(raw, order) for order in ("little", "big"))
        version = min(little, big)
        if version == 1:
            raise UnsupportedError(
                f"{self.address}: the engine speaks IMD version 1, expected version 2 or 3: use a "
                "newer version of the engine"
            )
        if version not in (2, 3):
            self._wrong("version 2 or 3 of IMD", f"{_hex(raw)}", "use version 3 of the engine")
        if version == 2:
            return ImdSession(2, little == 2, False, True, False, True, False, False, False)
        return self._session_info(little == 3)

    def _session_info(self, little_endian: bool) -> ImdSession:
        """Receive the list of parts of a frame in version 3."""
        try:
            kind, length = HEADER.unpack(self._take(HEADER.size))
            if (kind, length) != (Packet.SESSION, 7):
                self._wrong("session info (type 10) of 7 bytes", described(kind, length))
            flags = [bool(flag) for flag in self._take(7)]
        except _EndOfStream:
            raise ReadError(
                f"{self.address}: the engine closed the connection before it sent session info"
            ) from None
        session = ImdSession(3, little_endian, *flags)
        if not (session.fields or session.has_time or session.has_box or session.has_energies):
            self._wrong("session info with parts of frames", "none", "enable positions in fix imd")
        return session

    # Frames.

    def frames(self) -> Iterator[StreamFrame]:
        """Yield frames as they come, until the engine or `close` ends the stream."""
        while (frame := self.read_frame()) is not None:
            yield frame

    def read_frame(self) -> StreamFrame | None:
        """Wait for the next frame; None if the stream has ended.

        Raises
        ------
        DamagedFileError
            If the engine does not follow the protocol, or a frame is incomplete.
        AtomCountError
            If the engine sends another number of atoms.
        ReadError
            If nothing came within the timeout, the connection was reset, or the operating system
            reports an error.
        """
        with self._reading:
            if self._closing or self.ended is not None:
                return None
            try:
                frame = self._frame_2() if self.session.version == 2 else self._frame_3()
            except _EndOfStream as end:
                self._end(str(end))
                return None
            except OSError:  # `close` has closed the socket
                if not self._closing:
                    raise
                self._end("it was closed")
                return None
            self.n_frames += 1
            self._border = self._taken
            return frame

    def _end(self, reason: str) -> None:
        """Record the end of the stream.

        Raise an error if the stream ends within a frame, or if the connection was reset.
        """
        if self._closing:
            self.ended = "it was closed"
            return
        self.ended = reason
        if (rest := self._taken - self._border) > 0:
            self._wrong("a complete frame", f"{rest} bytes of it, and then {reason}", _KEPT)
        if reason == _RESET:
            self._at = self._taken
            raise ReadError(
                f"{self._place()}: {reason}: the simulation or the network may have failed; {_KEPT}"
            )

    def _frame_2(self) -> StreamFrame | None:
        """Receive a frame of version 2: packets up to the positions."""
        self._energies = self._step = None
        while True:
            kind, length = self._header()
            if kind == Packet.ENERGIES:
                self._receive_energies(length)
            elif kind == Packet.POSITIONS:
                positions = self._receive_array(kind, length)
                self._check_order(self._step)
                return StreamFrame(
                    *(self.n_frames, self._step, None, None),
                    *(positions, None, None, self._energies),
                )
            else:
                self._wrong("positions (type 2) or energies (type 1)", described(kind, length))

    def _frame_3(self) -> StreamFrame:
        """Receive a frame of version 3: all packets in their order."""
        arrays: dict[str, np.ndarray] = {}
        step = now = cell = dt = None
        self._energies = None
        for expected in self._parts:
            kind, length = self._header()
            if kind != expected:
                what = f"{NAMES[expected]} (type {expected.value})"
                self._wrong(what, described(kind, length))
            if expected in ARRAYS:
                field = FIELDS[ARRAYS.index(expected)]
                arrays[field] = self._receive_array(expected, length)
            elif expected == Packet.TIME:
                step, now, dt = self._receive_time(length)
            elif expected == Packet.BOX:
                cell = self._receive_box(length)
            else:
                self._receive_energies(length)
        self._check_order(now)
        step = self._step if step is None else step
        positions, velocities, forces = (arrays.get(field) for field in FIELDS)
        return StreamFrame(
            *(self.n_frames, step, now, cell),
            positions=positions,
            velocities=velocities,
            forces=forces,
            energies=self._energies,
            dt=dt,
        )

    def _header(self) -> tuple[int, int]:
        """Receive the header of a packet: its type and count.

        Raises `_EndOfStream` for the packet DISCONNECT.
        """
        self._at = self._taken
        kind, length = HEADER.unpack(self._take(HEADER.size))
        if kind == Packet.DISCONNECT:
            self._taken -= HEADER.size
            raise _EndOfStream("the engine disconnected")
        return kind, length

    def _receive_array(self, kind: int, length: int) -> np.ndarray:
        """Receive one array, with three numbers for each atom, and convert its units."""
        field = FIELDS[ARRAYS.index(Packet(kind))]
        self._check_atoms(field, length)
        values = np.empty((length, 3), np.float32)
        self._receive_into(values.data.cast("B"))
        if self._swaps:
            values.byteswap(inplace=True)
        factor = {"positions": self._units.positions, "velocities": self._units.velocities}.get(
            field, self._units.forces
        )
        if factor != 1.0:
            values *= np.float32(factor)
        return values

    def _check_atoms(self, field: str, length: int) -> None:
        """Check the number of atoms that a header states, before memory is allocated."""
        if self.n_atoms is None and 1 <= length <= MAX_ATOMS:
            self.n_atoms = length
        if length == self.n_atoms:
            return
        expected = f"at most {MAX_ATOMS}" if self.n_atoms is None else str(self.n_atoms)
        if length < 1 or self.n_atoms is None:
            advice = "" if length < 1 else "state the number of atoms, n_atoms="
            self._wrong(f"{field} of {expected} atoms", f"{length}", advice)
        advice = (
            "use the topology of exactly the atoms that the engine sends (the group of fix imd)"
        )
        error = AtomCountError(
            f"{self._place()}: expected {field} of {expected} atoms, found {length}"
            + (f": {advice}" if self._given else "")
        )
        error.found = length
        raise error

    def _receive_time(self, length: int) -> tuple[int, float, float]:
        """Receive and return step number, time (ps) and time step of the integrator (ps)."""
        self._expect_one(Packet.TIME, length)
        dt, now, step = struct.unpack(f"{self._order}ddq", self._take(24))
        if not (math.isfinite(now) and math.isfinite(dt)):
            self._wrong("a finite time", f"{now} and a time step of {dt}")
        if self._style is None and dt > _LONGEST_STEP:
            self._warn_once(
                "time step",
                f"the time step is {dt:g} ps: the engine probably sends other units than IMD "
                "prescribes; for LAMMPS, give readers its unit style, such as units='real' "
                "(--units real)",
            )
        return step, now * self._units.time, dt * self._units.time

    def _receive_box(self, length: int) -> np.ndarray:
        """Receive and return the cell vectors, Å, float64, shape (3, 3)."""
        self._expect_one(Packet.BOX, length)
        cell = np.frombuffer(self._take(36), f"{self._order}f4").astype(np.float64).reshape(3, 3)
        if not np.isfinite(cell).all():
            self._wrong("finite cell vectors", str(cell.tolist()))
        return cell * self._units.positions

    def _receive_energies(self, length: int) -> None:
        """Receive energies and the step number, and store them in `_energies` and `_step`."""
        self._expect_one(Packet.ENERGIES, length)
        step, temperature, *values = struct.unpack(f"{self._order}i9f", self._take(40))
        values = [value * self._units.energy for value in values]
        self._step = step
        self._energies = dict(zip(ENERGIES, (temperature, *values), strict=True))

    def _expect_one(self, kind: Packet, length: int) -> None:
        """Check the count in the header of a packet of one item."""
        if length != 1:
            self._wrong(f"one packet of {NAMES[kind]}", f"{length}")

    def _check_order(self, moment: float | None) -> None:
        """Warn once if times, or steps of version 2, run backwards."""
        if moment is None:
            return
        if moment < self._latest:
            unit = " ps" if self.session.version == 3 else ""
            what = "time" if unit else "the step number"
            self._warn_once(
                "backwards",
                f"{what} runs backwards in frame {self.n_frames}, from {self._latest:g}{unit} to "
                f"{moment:g}{unit}: the engine may have begun another run",
            )
        self._latest = moment

    # Control of the simulation.

    @property
    def is_paused(self) -> bool:
        """True between `pause` and `resume`."""
        return self._paused

    def pause(self) -> None:
        """Ask the engine to stop after its current step, until `resume`."""
        with self._sending:
            if not self._paused and self.ended is None:
                self._paused = True
                self._n_changes += 1
                self._try_to_send(Packet.PAUSE)

    def resume(self) -> None:
        """Ask the engine to continue after `pause`."""
        with self._sending:
            if self._paused:
                self._paused = False
                self._n_changes += 1
                # In version 2, a second request to pause ends the pause.
                is_2 = self.session.version == 2
                self._try_to_send(Packet.PAUSE if is_2 else Packet.RESUME)

    def kill(self) -> None:
        """Ask the engine to end the simulation, and close the connection."""
        self._leave(_header(Packet.KILL))

    def close(self, *, leave_running: bool = False) -> None:
        """Close the connection.

        The simulation then waits for another client, or continues, as its input states. With
        `leave_running`, it is asked to continue (version 3); it may then send no frames to later
        clients, unless they change the interval between frames.
        """
        self._leave(_DISCONNECT, leave_running=leave_running and self.session.version == 3)

    def _leave(self, farewell: bytes, *, leave_running: bool = False) -> None:
        """Send a farewell, and close the connection when the engine has closed it.

        Frames that arrive until then are dropped.
        """
        if self._closing:
            return
        self._closing = True
        self._farewell.detach()
        try:
            if self.ended is None:
                if self._paused:
                    self.resume()  # otherwise the pause lasts until another client ends it
                if leave_running:
                    # Without a client, LAMMPS crashes when it sends a frame: let it send none.
                    never = _header(Packet.RATE, 2**31 - 1)
                    farewell = _header(Packet.WAIT, 0) + never + farewell
                with self._sending, contextlib.suppress(OSError):
                    self._socket.sendall(farewell)
                # A thread that receives releases the lock when the engine closes the connection.
                if self._reading.acquire(timeout=_GRACE):
                    try:
                        _drain(self._socket)
                    finally:
                        self._reading.release()
        finally:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)  # wakes a thread that receives
            with self._reading:
                self._socket.close()

    def _try_to_send(self, kind: Packet) -> None:
        """Send a packet. Ignore an error, because the next read reports a closed connection."""
        with contextlib.suppress(OSError):
            self._socket.sendall(_header(kind))

    # Bytes.

    def _take(self, n: int) -> bytearray:
        """Receive `n` bytes, at most the size of the buffer."""
        data = bytearray(n)
        self._receive_into(memoryview(data))
        return data

    def _receive_into(self, view: memoryview) -> None:
        """Fill a view with the next bytes."""
        done = 0
        while done < len(view):
            if self._start == self._stop and len(view) - done >= _BUFFER:
                n = self._receive(view[done:])
            else:
                if self._start == self._stop:
                    self._start, self._stop = 0, self._receive(memoryview(self._buffer))
                n = min(len(view) - done, self._stop - self._start)
                view[done : done + n] = memoryview(self._buffer)[self._start : self._start + n]
                self._start += n
            done += n
            self._taken += n

    def _receive(self, view: memoryview) -> int:
        """Receive some bytes; raise `_EndOfStream` if the engine has closed the connection."""
        while True:
            before = self._n_changes
            try:
                n = self._socket.recv_into(view)
            except TimeoutError:
                if self._paused or self._n_changes != before:
                    continue
                raise ReadError(self._silence()) from None
            except (ConnectionResetError, ConnectionAbortedError):
                raise _EndOfStream(_RESET) from None
            except OSError as error:
                if self._closing:
                    raise
                raise ReadError(
                    f"{self._place()}: cannot receive: {error.strerror or error}"
                ) from error
            if n == 0:
                raise _EndOfStream("the engine closed the connection")
            return n

    def _silence(self) -> str:
        """Return the error message for an engine, or another program, that sends nothing."""
        if self._timeout is None:  # the operating system has given up the connection
            return f"{self._place()}: the host of the engine does not answer any more"
        waited = f"nothing came within {self._timeout:g} s"
        if not self._taken:
            return (
                f"{self.address}: {waited}: the simulation may not run yet, may have another "
                "client (IMD serves one; paceline relay serves more), or another program has the "
                f"port; {_PATIENCE}"
            )
        return f"{self._place()}: {waited}: the simulation may hang; {_PATIENCE}"

    # Messages.

    def _place(self) -> str:
        return f"{self.address}: frame {self.n_frames}, byte {self._at}"

    def _wrong(self, expected: str, found: str, advice: str = "") -> NoReturn:
        """Raise the error that names the expected and the found content, for invalid bytes."""
        end = f": {advice}" if advice else ""
        error = DamagedFileError(f"{self._place()}: expected {expected}, found {found}{end}")
        error.path, error.frame, error.offset = self.address, self.n_frames, self._at
        error.expected, error.found = expected, found
        raise error

    def _warn_once(self, about: str, message: str) -> None:
        if about not in self._warned:
            self._warned.add(about)
            warn(f"{self.address}: {message}")


_RESET = "the connection was reset, without an end of the stream"
_KEPT = "the frames before it are complete"
_PATIENCE = "timeout= (--idle) waits longer"


def _possible_timeout(seconds: float | None) -> float | None:
    """Check a timeout, seconds, and limit it to the longest timeout that a socket supports."""
    if seconds is None:
        return None
    return min(positive_number("timeout", seconds, "s"), threading.TIMEOUT_MAX)


def _drain(connection: socket.socket) -> None:
    """Receive and drop bytes until the engine closes the connection, or for at most `_GRACE`."""
    until = time.monotonic() + _GRACE
    dropped = bytearray(_BUFFER)
    with contextlib.suppress(OSError):
        while (left := until - time.monotonic()) > 0:
            connection.settimeout(left)
            if not connection.recv_into(dropped):
                return


def _say_farewell(connection: socket.socket) -> None:
    """Send the farewell, and close the connection when the engine has closed it."""
    with contextlib.suppress(OSError):
        connection.sendall(_DISCONNECT)
    _drain(connection)
    connection.close()


def _hex(data: bytes) -> str:
    """Return bytes as hexadecimal numbers."""
    return data.hex(" ")
