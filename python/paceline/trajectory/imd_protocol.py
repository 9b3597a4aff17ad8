"""Packets of IMD (interactive molecular dynamics), in which MD engines send their frames.

A packet is a header of two big-endian 32-bit integers, type and count, and perhaps a body in the
byte order of the sender. In version 3, a packet after the handshake lists the parts of all frames,
which then come in a fixed order. In version 2, frames consist of positions, and energies may
precede them.

Source: IMDv3 protocol, https://imdclient.readthedocs.io/en/latest/protocol_v3.html
"""

import struct
import sys
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from paceline.block import FIELDS
from paceline.errors import UnsupportedError

#: Port on which engines listen if the address names none.
DEFAULT_PORT = 8888
HEADER = struct.Struct(">ii")
#: Names of the values that follow the step number in an energy packet.
ENERGIES = (
    *("temperature", "total", "potential", "van der waals", "coulomb"),
    *("bonds", "angles", "dihedrals", "impropers"),
)


class Packet(IntEnum):
    """Types of IMD packets, as numbers in their headers."""

    DISCONNECT = 0
    ENERGIES = 1
    POSITIONS = 2
    GO = 3
    HANDSHAKE = 4
    KILL = 5
    APPLY_FORCES = 6
    PAUSE = 7
    RATE = 8
    IO_ERROR = 9
    SESSION = 10
    RESUME = 11
    TIME = 12
    BOX = 13
    VELOCITIES = 14
    FORCES = 15
    WAIT = 16


#: Packets of arrays, in the order of `FIELDS`.
ARRAYS = (Packet.POSITIONS, Packet.VELOCITIES, Packet.FORCES)


#: Names of packets in error messages.
NAMES = {
    **{packet: packet.name.lower().replace("_", " ") for packet in Packet},
    Packet.SESSION: "session info",
    Packet.BOX: "the cell",
}


def described(kind: int, length: int) -> str:
    """Describe a packet's header for a message."""
    name = NAMES[Packet(kind)] if kind in NAMES else "unknown"
    return f"type {kind} ({name}) with count {length}"


@dataclass(frozen=True)
class ImdSession:
    """Facts about a connection to an engine: version, byte order and parts of each frame.

    Attributes
    ----------
    version : int
        Version of the protocol, 2 or 3.
    little_endian : bool
        True if the engine sends numbers in little-endian byte order.
    has_time, has_energies, has_box, has_positions, has_velocities, has_forces : bool
        True if frames have this part. In version 2, `has_energies` is true, but frames may lack
        energies.
    wrapped : bool
        True if the engine wraps positions into the cell. False in version 2, which does not state
        this.
    """

    version: int
    little_endian: bool
    has_time: bool
    has_energies: bool
    has_box: bool
    has_positions: bool
    wrapped: bool
    has_velocities: bool
    has_forces: bool

    @property
    def fields(self) -> tuple[str, ...]:
        """Fields of each frame out of `paceline.block.FIELDS`."""
        sent = self.has_positions, self.has_velocities, self.has_forces
        return tuple(field for field, has in zip(FIELDS, sent, strict=True) if has)

    @property
    def packets(self) -> list[Packet]:
        """Packets of each frame of version 3, in their order."""
        sent = {
            Packet.TIME: self.has_time,
            Packet.ENERGIES: self.has_energies,
            Packet.BOX: self.has_box,
            Packet.POSITIONS: self.has_positions,
            Packet.VELOCITIES: self.has_velocities,
            Packet.FORCES: self.has_forces,
        }
        return [packet for packet, is_sent in sent.items() if is_sent]


@dataclass(frozen=True, eq=False)
class StreamFrame:
    """Frame of a running simulation; parts that the engine does not send are None.

    Attributes
    ----------
    number : int
        Number of the frame, from 0, counted since the connection was made.
    step : int or None
        Step number of the simulation.
    time : float or None
        Time, ps.
    cell : numpy.ndarray of float64, shape (3, 3), or None
        Cell vectors as rows, Å.
    positions, velocities, forces : numpy.ndarray of float32, shape (n_atoms, 3), or None
        Positions (Å), velocities (Å/ps) and forces (kJ/(mol·Å)).
    energies : dict or None
        Values by the names in `ENERGIES`: temperature (K) and energies, in version 3 in kJ/mol.
        Version 2 prescribes no unit: NAMD sends kcal/mol.
    dt : float or None
        Time step of the integrator, ps.
    """

    number: int
    step: int | None
    time: float | None
    cell: np.ndarray | None
    positions: np.ndarray | None
    velocities: np.ndarray | None
    forces: np.ndarray | None
    energies: Mapping[str, float] | None
    dt: float | None = None


def parse_address(address: str) -> tuple[str, int]:
    """Return host and port of an address `imd://host:port`; the default port is 8888.

    Raises `UnsupportedError` for another form.

    Examples
    --------
    >>> parse_address("imd://node12:8889")
    ('node12', 8889)
    >>> parse_address("imd://[::1]")
    ('::1', 8888)
    """
    expected = f"{address}: expected imd://HOST:PORT, such as imd://localhost:{DEFAULT_PORT}"
    try:
        parts = urllib.parse.urlsplit(address)
        port = parts.port
    except ValueError:
        if address.count(":") > 2 and "[" not in address:
            raise UnsupportedError(
                f"{expected}; an IPv6 address stands in brackets: imd://[::1]:{DEFAULT_PORT}"
            ) from None
        raise UnsupportedError(f"{expected}, with a port from 1 to 65535") from None
    if parts.scheme != "imd":
        raise UnsupportedError(f"{expected}, found {parts.scheme or 'no'}://")
    if not parts.hostname:
        raise UnsupportedError(f"{expected}, found no host")
    if parts.path.strip("/") or parts.query or parts.fragment or parts.username is not None:
        raise UnsupportedError(f"{expected}, found more than host and port")
    if port == 0:
        raise UnsupportedError(f"{expected}, with a port from 1 to 65535, found 0")
    return parts.hostname, DEFAULT_PORT if port is None else port


def host_and_port(host: str, port: int) -> str:
    """Join host and port as in an address.

    Examples
    --------
    >>> host_and_port("node12", 8889), host_and_port("::1", 8889)
    ('node12:8889', '[::1]:8889')
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def hello_of(session: ImdSession) -> bytes:
    """Return handshake and session info of version 3, in the byte order of this machine."""
    flags = (
        *(session.has_time, session.has_energies, session.has_box, session.has_positions),
        *(session.wrapped, session.has_velocities, session.has_forces),
    )
    version = (3).to_bytes(4, sys.byteorder)
    return (
        Packet.HANDSHAKE.to_bytes(4, "big")
        + version
        + HEADER.pack(Packet.SESSION, len(flags))
        + bytes(flags)
    )


def encoded_frame(frame: StreamFrame, session: ImdSession) -> bytes:
    """Return the packets of a frame in version 3, in the byte order of this machine."""
    parts: list[bytes] = []
    fields = dict(zip(ARRAYS, (frame.positions, frame.velocities, frame.forces), strict=True))
    step = frame.number if frame.step is None else frame.step
    for packet in session.packets:
        values = fields.get(packet)
        if values is not None:
            parts += [HEADER.pack(packet, len(values)), values.tobytes()]
            continue
        parts.append(HEADER.pack(packet, 1))
        if packet == Packet.TIME:
            parts.append(struct.pack("=ddq", frame.dt or 0.0, frame.time, step))
        elif packet == Packet.BOX:
            assert frame.cell is not None, "the session states cells"
            parts.append(frame.cell.astype(np.float32).tobytes())
        else:
            assert frame.energies is not None, "the session states energies"
            low = (step + 2**31) % 2**32 - 2**31  # the step of an energy packet has 32 bits
            parts.append(struct.pack("=i9f", low, *frame.energies.values()))
    return b"".join(parts)
