"""MDAnalysis's `timeseries` over our decoders: many frames in one array, read in blocks."""

from typing import Any

import numpy as np
from MDAnalysis.coordinates.base import ReaderBase

from paceline.chain import Chain
from paceline.coordinates import positions_in
from paceline.errors import ReadError


class SeriesReader(ReaderBase):
    """A reader whose frames can be had in one array.

    Attributes
    ----------
    chain : paceline.chain.Chain
        The files and their frame indexes.
    sub : numpy.ndarray of int64 or None
        Atoms of the files that are its own, where these are not all.
    """

    chain: Chain
    sub: np.ndarray | None
    #: Ranks that read each frame at once, if any do.
    _together: Any

    def timeseries(
        self,
        asel: Any = None,
        atomgroup: Any = None,
        start: int | None = None,
        stop: int | None = None,
        step: int | None = None,
        order: str | None = None,
    ) -> np.ndarray:
        """Positions of many frames in one array.

        Parameters
        ----------
        asel, atomgroup : AtomGroup, optional
            Atoms; all by default. MDAnalysis prefers the second name.
        start, stop, step : int, optional
            Frames, as in a slice.
        order : str, optional
            Order of the axes: "f" frames, "a" atoms, "c" coordinates. By default that of
            MDAnalysis's own reader: "afc" for one DCD file, else "fac".

        Returns
        -------
        numpy.ndarray of float32
            Å, after transformations.
        """
        order = order if order is not None else "afc" if self.format == "DCD" else "fac"
        frames = range(*self.check_slice_indices(start, stop, step))
        # Backwards, MDAnalysis would visit no frame and return uninitialised memory.
        rising = frames if frames.step > 0 else frames[::-1]
        series = None
        # The first name is deprecated, which MDAnalysis says itself.
        if sorted(order) == ["a", "c", "f"] and asel is None:
            series = self._series(atomgroup, rising)
        if series is None:
            bounds = rising.start, rising.stop, rising.step
            series = super().timeseries(asel, atomgroup, *bounds, order)
        else:
            series = series.transpose(["fac".index(axis) for axis in order])
            self.rewind()  # where MDAnalysis's ends
        return series if rising is frames else np.flip(series, order.index("f"))

    def _series(self, atoms: Any, frames: range) -> np.ndarray | None:
        """Positions in frames that rise; None where they have to be looked at one by one."""
        by_itself = self.transformations or self._together is not None or not len(frames)
        if by_itself or (atoms is not None and len(atoms) == 0):
            return None
        indices = np.arange(self.n_atoms) if atoms is None else atoms.indices
        indices = indices if self.sub is None else self.sub[indices]
        try:
            return positions_in(self.chain, indices.astype(np.int64), np.array(frames))
        except OSError as error:
            raise ReadError(str(error)) from error
