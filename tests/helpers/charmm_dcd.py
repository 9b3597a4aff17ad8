"""DCD files as written by CHARMM."""

import struct

import numpy as np


def shape_matrix(lengths, angles):
    """Return the six numbers that CHARMM stores for a cell: its symmetric matrix, row by row."""
    cosines = np.cos(np.radians(angles))
    metric = np.outer(lengths, lengths)
    for (i, j), cosine in zip(((1, 2), (0, 2), (0, 1)), cosines, strict=True):
        metric[i, j] *= cosine
        metric[j, i] *= cosine
    squares, vectors = np.linalg.eigh(metric)
    return ((vectors * np.sqrt(squares)) @ vectors.T)[np.tril_indices(3)]


def write_dcd(path, version, cells):
    """Write two atoms in each of these cells, with this version of CHARMM in the header."""

    def record(content):
        marker = struct.pack("<i", len(content))
        return marker + content + marker

    numbers = [len(cells), 1, 1, len(cells), 0, 0, 0, 0, 0, 0, 1, *[0] * 8, version]
    parts = [b"CORD" + struct.pack("<9if10i", *numbers), struct.pack("<i80s", 1, b"*" + b" " * 79)]
    parts.append(struct.pack("<i", 2))
    for cell in cells:
        parts += [struct.pack("<6d", *cell), *[struct.pack("<2f", 0.5, 1.5)] * 3]
    path.write_bytes(b"".join(record(part) for part in parts))
    return path
