"""Frames of c_interface.c, written by Python on one rank."""

import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

from paceline.snapshot import Writer

N = 500
ids = np.arange(1, N + 1)
odd = ids % 2 == 1
CELL = [[20, 0, 0], [4, 25, 0], [-3, 2, 30]]


def values(frame, scale):
    numbers = ids[:, None] * 37 + np.arange(3) * 11 + frame * 5 * scale
    return (numbers % (1000 * scale)) * 0.01 - 3


folder = Path(sys.argv[1])
for name, fields in (("CONFIG", 3), ("HISTORY", 2), ("nc", 3), ("dcd", 1)):
    with Writer(MPI.COMM_WORLD, folder / f"python.{name}", N) as writer:
        for frame in range(3):
            vectors = [values(frame, scale) for scale in (2, 1, 3)][:fields]
            writer.write(
                ids,
                *vectors,
                names=np.where(odd, "Na+", "Cl-"),
                masses=np.where(odd, 22.99, 35.45),
                charges=np.where(odd, 1.0, -1.0),
                box=CELL,
                step=10 * frame,
                time=0.5 * frame,
            )
