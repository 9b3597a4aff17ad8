"""Files of consecutive frames, which the compiled module writes: DL_POLY, Amber NetCDF, DCD."""

import os
import warnings

import numpy as np

from paceline import _core
from paceline._util.files import check_output, writing_to
from paceline.block import field_bits
from paceline.errors import PacelineWarning
from paceline.snapshot.output import Container, Contents, Heading, Place, Settings


class ContainerFile(Container):
    """File of a single frame, or of consecutive frames after a header that counts them."""

    def __init__(self, kind: str, settings: Settings):
        super().__init__(settings)
        path = settings.path
        if not settings.append or not os.path.exists(path):
            check_output(path, overwrite=settings.overwrite)
        self._file = _core.SnapshotFile(
            kind,
            path,
            settings.n_atoms,
            title=settings.title,
            append=settings.append,
            overwrite=settings.overwrite,
            dt=settings.dt,
            sync=settings.sync,
        )
        self.n_frames = self._file.n_frames

    def place(self, contents: Contents, heading: Heading) -> Place:
        """Allocate the next frame."""
        with writing_to(self._settings.path):
            path, starts, warning = self._file.place(
                field_bits(contents.fields),
                step=heading.step,
                time=heading.time,
                cell=None if heading.cell is None else heading.cell.tolist(),
            )
        if warning is not None:
            warnings.warn(warning, PacelineWarning, stacklevel=2)
        return Place(os.fspath(path), tuple(starts))

    def commit(self) -> None:
        """Count the frame, whose atoms were written."""
        self._file.commit()
        self.n_frames = self._file.n_frames

    def cut_back(self) -> None:
        """Truncate the file to the committed frames."""
        self._file.cut_back()

    def stored_property(self, name: str, first: int, n_atoms: int) -> np.ndarray | None:
        """Read names of the first frame; masses and charges are stored in each frame."""
        names = self._file.stored_names(first, n_atoms) if name == "names" else None
        return None if names is None else np.frombuffer(names, np.uint8).reshape(-1, 8)

    def close(self) -> None:
        """Close the file."""
        self._file.close()
