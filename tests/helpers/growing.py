"""A trajectory file that grows as a simulation writes it."""

from pathlib import Path

import numpy as np

import paceline


class Growing:
    """A file to which frames of another file are appended, with a part of the next frame."""

    def __init__(self, source, path):
        self.path = str(path)
        self._content = Path(source).read_bytes()
        file = paceline.open(source).chain.files[0]
        offsets, sizes = file.extents(np.arange(file.n_frames, dtype=np.uint64))
        self._ends = (offsets + sizes).astype(int).tolist()
        self.n_frames = file.n_frames

    def grow(self, n_frames, *, further=0.5):
        """Append frames up to a number of frames, and a share of the next one."""
        end = self._ends[n_frames - 1]
        following = self._ends[min(n_frames, self.n_frames - 1)]
        end += int(further * (following - end))
        with open(self.path, "ab") as file:
            file.write(self._content[file.tell() : end])
