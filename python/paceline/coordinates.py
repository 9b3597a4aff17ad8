"""Positions of many frames in one array, read in blocks."""

from dataclasses import replace

import numpy as np

from paceline.block import Decoded, field_bits
from paceline.chain import Chain
from paceline.frames import Clock, FileFrames
from paceline.plan import make_plan


def positions_in(chain: Chain, atoms: np.ndarray, frames: np.ndarray) -> np.ndarray | None:
    """Positions of some atoms in some frames.

    Parameters
    ----------
    chain : Chain
        The files.
    atoms : numpy.ndarray of int64, shape (n_atoms,)
        Atoms of the files, in any order.
    frames : numpy.ndarray of int64, shape (n_frames,)
        Frame numbers in the trajectory.

    Returns
    -------
    numpy.ndarray of float32, shape (n_frames, n_atoms, 3), or None
        Å; None where a frame has no positions.

    Raises
    ------
    DamagedFileError
        A frame cannot be read.
    OSError
        The system could not read a file.
    """
    decoded, columns = np.unique(atoms, return_inverse=True)
    as_decoded = np.array_equal(decoded, atoms)
    plan = make_plan(
        frames,
        n_atoms=chain.n_atoms,
        n_wanted=len(decoded),
        frame_bytes=chain.bytes_per_frame,
        n_workers=1,
        chunk_frames=chain.chunk_frames,
    )
    wanted = None if len(decoded) == chain.n_atoms else decoded
    source = FileFrames(chain.members, wanted, len(decoded), ("positions",), (), Clock())
    files = source.open()
    positions = np.empty((len(frames), len(atoms), 3), dtype=np.float32)
    for task in plan.tasks():
        numbers = plan.frame_numbers(task)
        room = positions[task.first : task.stop]
        block = Decoded.room_for(numbers, len(decoded), () if as_decoded else ("positions",))
        if as_decoded:
            block = replace(block, positions=room)
        files.read(chain.extents(numbers), block, skip=False)
        if not (block.fields & field_bits(["positions"])).all():
            return None
        if not as_decoded:
            assert block.positions is not None
            np.take(block.positions, columns, axis=1, out=room)
    return positions
