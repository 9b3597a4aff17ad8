"""Write with Python, on one rank, the files of c_h5md.c and the H5MD files of c_interface.c."""

import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

from paceline.snapshot import Writer, write_h5md

N = 500
ids = np.arange(1, N + 1)
odd = ids % 2 == 1
CELL = [[20, 0, 0], [4, 25, 0], [-3, 2, 30]]
create_tree = write_h5md.create_tree


def values(frame, scale):
    numbers = ids[:, None] * 37 + np.arange(3) * 11 + frame * 5 * scale
    return (numbers % (1000 * scale)) * 0.01 - 3


def write_file(path, stop, command, *, parts=0, box=CELL, **options):
    """Write frames to a file that names the program in C as its creator."""

    def create_as_c(h5, fields, description, **others):
        description.origin.update(command=command, call="paceline_writer_open")
        create_tree(h5, fields, description, **others)

    write_h5md.create_tree = create_as_c
    writer = Writer(MPI.COMM_WORLD, path, N, **options)
    for frame in range(stop):
        if parts and frame == parts:
            writer.close()
            writer = Writer(MPI.COMM_WORLD, path, N, append=True, **options)
        writer.write(
            ids,
            *[values(frame, scale) for scale in (2, 1, 3)],
            names=np.where(odd, "Na+", "Cl-"),
            masses=np.where(odd, 22.99, 35.45),
            charges=np.where(odd, 1.0, -1.0),
            box=box,
            step=10 * frame,
            time=0.5 * frame,
        )
    writer.close()


folder = Path(sys.argv[1])
if sys.argv[2:] == ["ranks"]:
    write_file(folder / "python.h5md", 3, "c_interface .", parts=1)
    write_file(folder / "python.h5", 3, "c_interface .", double=True)
    write_file(folder / "fortran.h5md", 3, "program .", title="NaCl", n_frames=4)
else:
    write_file(folder / "long.h5md", 70, "c_h5md", title="NaCl")
    write_file(folder / "parts.h5", 6, "c_h5md", parts=3, box=None)
    write_file(folder / "wide.hdf5", 3, "c_h5md", parts=1, double=True)
    write_file(folder / "few.h5md", 3, "c_h5md", n_frames=5)
