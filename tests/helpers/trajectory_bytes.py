"""Small trajectories of real positions, and ways to damage them."""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

#: Names, offsets in a frame and `struct` codes of the fields of an XTC frame of more than 9 atoms.
XTC_FIELDS = {
    "magic": (0, "i"),
    "atoms": (4, "i"),
    "step": (8, "i"),
    "time": (12, "f"),
    "box": (16, "9f"),
    "atoms again": (52, "i"),
    "precision": (56, "f"),
    "minimum": (60, "3i"),
    "maximum": (72, "3i"),
    "small index": (84, "i"),
    "byte count": (88, "i"),
}
XTC_PACKED = 92


@dataclass(frozen=True)
class Trajectory:
    """The bytes of a whole file, and the offsets of its frames.

    Attributes
    ----------
    content : bytes
    borders : tuple of int
        Start of each frame, and the end of the last.
    fields : tuple of int
        Offsets of the fields of a frame from its first byte.
    n_atoms : int
    suffix : str
    stored : callable or None
        Function that returns the positions (float32, Å) in the bytes of a frame; None if the layout
        of a frame depends on its content.
    """

    content: bytes
    borders: tuple[int, ...]
    fields: tuple[int, ...]
    n_atoms: int
    suffix: str
    stored: Callable[[bytes], np.ndarray] | None = None

    @property
    def n_frames(self) -> int:
        return len(self.borders) - 1

    def frame_of(self, at: int) -> int | None:
        """Return the frame that contains the byte `at`; None for the header of the file."""
        frame = int(np.searchsorted(self.borders, at, side="right")) - 1
        return None if frame < 0 else frame

    def frame(self, number: int, content: bytes) -> bytes:
        """Return the bytes of `content` at the offsets of a frame in this file."""
        return content[self.borders[number] : self.borders[number + 1]]

    def cut(self, at: int) -> bytes:
        return self.content[:at]

    def with_bytes(self, at: int, new: bytes) -> bytes:
        return self.content[:at] + new + self.content[at + len(new) :]

    def without(self, frame: int) -> tuple[bytes, bytes]:
        """Return the file before and after a frame."""
        return self.content[: self.borders[frame]], self.content[self.borders[frame + 1] :]


def xtc(content: bytes) -> Trajectory:
    """Find the frames of a whole XTC file, directly by the description of the format."""
    borders, at = [], 0
    while at < len(content):
        borders.append(at)
        (n_atoms,) = struct.unpack_from(">i", content, at + 4)
        (packed,) = struct.unpack_from(">i", content, at + 88)
        at += 56 + 12 * n_atoms if n_atoms <= 9 else XTC_PACKED + packed + -packed % 4
    offsets = [offset for offset, _ in XTC_FIELDS.values()]
    return Trajectory(content, (*borders, at), (*offsets, XTC_PACKED), n_atoms, ".xtc")


def xtc_with(file: Trajectory, frame: int, **fields: object) -> bytes:
    """Return the file with other values in a frame header; `small_index=3` is "small index"."""
    return _with_fields(XTC_FIELDS, file, frame, fields)


def _with_fields(known: dict, file: Trajectory, frame: int, fields: dict[str, object]) -> bytes:
    content = file.content
    for name, value in fields.items():
        offset, code = known[name.replace("_", " ")]
        values = value if isinstance(value, tuple) else (value,)
        new = struct.pack(f">{code}", *values)
        content = replace(file, content=content).with_bytes(file.borders[frame] + offset, new)
    return content


def xtc_range(content: bytes, at: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the minimum and maximum positions, Å, in the header of the frame at `at`."""
    (precision,) = struct.unpack_from(">f", content, at + 56)
    limits = np.array(struct.unpack_from(">6i", content, at + 60), dtype=np.float32).reshape(2, 3)
    with np.errstate(all="ignore"):
        least, largest = limits * (np.float32(1) / np.float32(precision)) * np.float32(10)
    return least, largest


@dataclass(frozen=True)
class DcdVariant:
    """Variant of a DCD file."""

    big_endian: bool = False
    wide: bool = False
    cell: bool = True
    four_dims: bool = False
    n_fixed: int = 0


def dcd(positions: np.ndarray, variant: DcdVariant, n_claimed: int | None = None) -> Trajectory:
    """Write positions, shape (n_frames, n_atoms, 3), as a DCD file."""
    order = ">" if variant.big_endian else "<"
    marker = order + ("q" if variant.wide else "i")
    n_frames, n_atoms, _ = positions.shape
    free = np.arange(variant.n_fixed, n_atoms)

    def record(data: bytes) -> bytes:
        return struct.pack(marker, len(data)) + data + struct.pack(marker, len(data))

    control = [0] * 20
    control[0] = n_frames if n_claimed is None else n_claimed
    control[1:3], control[8] = [10, 5], variant.n_fixed
    control[10], control[11], control[19] = int(variant.cell), int(variant.four_dims), 24
    head = struct.pack(f"{order}9if10i", *control[:9], 0.04, *control[10:])
    content = record(b"CORD" + head)
    content += record(struct.pack(f"{order}i", 2) + b"made for a test".ljust(160))
    content += record(struct.pack(f"{order}i", n_atoms))
    if variant.n_fixed:
        content += record((free + 1).astype(f"{order}i4").tobytes())
    borders, fields = [], [0]
    for number, frame in enumerate(positions):
        borders.append(len(content))
        records = []
        if variant.cell:
            records.append(struct.pack(f"{order}6d", 30, 90, 31, 90, 90, 32))
        stored = frame[free] if number and variant.n_fixed else frame
        records.extend(column.astype(f"{order}f4").tobytes() for column in stored.T)
        if variant.four_dims:
            records.append(bytes(4 * len(stored)))
        for data in records:
            if number == n_frames - 1:
                width = struct.calcsize(marker)
                here = len(content) - borders[-1]
                fields += [here + width, here + width + len(data), here + 2 * width + len(data)]
            content += record(data)
    return Trajectory(
        content,
        (*borders, len(content)),
        tuple(fields[:-1]),
        n_atoms,
        ".dcd",
        None if variant.n_fixed else lambda frame: _dcd_positions(frame, n_atoms, variant),
    )


def _dcd_positions(frame: bytes, n_atoms: int, variant: DcdVariant) -> np.ndarray:
    order, width = (">", "<")[not variant.big_endian], 8 if variant.wide else 4
    at = 48 + 2 * width if variant.cell else 0
    column = 4 * n_atoms + 2 * width
    starts = [at + k * column + width for k in range(3)]
    columns = [np.frombuffer(frame, f"{order}f4", n_atoms, start) for start in starts]
    return np.column_stack(columns).astype(np.float32)


#: Names, offsets in a frame and `struct` codes of the fields in the header of a TRR frame.
TRR_FIELDS = {
    "magic": (0, "i"),
    "length": (4, "i"),
    "length again": (8, "i"),
    "version": (12, "12s"),
    "ir": (24, "i"),
    "e": (28, "i"),
    "box": (32, "i"),
    "vir": (36, "i"),
    "pres": (40, "i"),
    "top": (44, "i"),
    "sym": (48, "i"),
    "x": (52, "i"),
    "v": (56, "i"),
    "f": (60, "i"),
    "atoms": (64, "i"),
    "step": (68, "i"),
    "energies": (72, "i"),
    "time": (76, "f"),
    "lambda": (80, "f"),
}


def trr(positions: np.ndarray, *, double: bool = False) -> Trajectory:
    """Write positions, Å, shape (n_frames, n_atoms, 3), as a TRR file."""
    code = ">f8" if double else ">f4"
    content, borders = b"", []
    for number, frame in enumerate(positions):
        borders.append(len(content))
        content += _trr_frame(number, frame, code)
    n_atoms, width = positions.shape[1], np.dtype(code).itemsize
    at = 76 + 2 * width + 9 * width
    ends = [at - 9 * width, at, at + 3 * n_atoms * width]

    def stored(frame: bytes) -> np.ndarray:
        numbers = np.frombuffer(frame, code, 3 * n_atoms, at)
        with np.errstate(all="ignore"):
            return (numbers.astype(np.float32) * np.float32(10)).reshape(-1, 3)

    offsets = [offset for offset, _ in TRR_FIELDS.values()]
    fields = (*offsets, *ends)
    return Trajectory(content, (*borders, len(content)), fields, n_atoms, ".trr", stored)


def _trr_frame(number: int, positions: np.ndarray, code: str) -> bytes:
    """Return a frame; every other frame has velocities, and every third one forces."""
    box = np.diag([3, 3.1, 3.2 + number])
    velocities = positions / 7 if number % 2 == 0 else positions[:0]
    forces = -positions if number % 3 == 0 else positions[:0]
    blocks = [block.astype(code) for block in (box, positions / 10, velocities, forces)]
    box_size, *sizes = (block.nbytes for block in blocks)
    head = (1993, 13, 12, b"GMX_trn_file", 0, 0, box_size, 0, 0, 0, 0, *sizes)
    content = struct.pack(">3i12s10i", *head)
    content += struct.pack(">3i", len(positions), number, 0)
    content += np.array([2.5 * number, 0]).astype(code).tobytes()
    return content + b"".join(block.tobytes() for block in blocks)


def trr_with(file: Trajectory, frame: int, **fields: object) -> bytes:
    """Return the file with other values in the header of a frame; `length_again=3` is "length
    again".
    """
    return _with_fields(TRR_FIELDS, file, frame, fields)


def byte_changes(file: Trajectory, n: int, seed: int) -> Iterator[tuple[int, bytes]]:
    """Yield files that differ from `file` in one byte: the offset, and the whole content."""
    random = np.random.default_rng(seed)
    for at in random.integers(len(file.content), size=n):
        new = file.content[at] ^ int(random.integers(1, 256))
        yield int(at), file.with_bytes(int(at), bytes([new]))


def plain_xtc_frame(n_atoms: int) -> bytes:
    """Return a frame of at most 9 atoms, which are stored as floats."""
    numbers = (0.0,) * 9, (1.0,) * (3 * n_atoms)
    return struct.pack(
        f">3if9fi{3 * n_atoms}f", 1995, n_atoms, 0, 0.0, *numbers[0], n_atoms, *numbers[1]
    )
