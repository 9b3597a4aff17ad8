"""A trajectory of which only some frames are known, as if all were."""

import numpy as np

from paceline.chain import Chain


class Outline:
    """Number and times of all frames, by those in the middle of one file.

    Parameters
    ----------
    chain : paceline.chain.Chain
        A sample.

    Attributes
    ----------
    n_frames : int
        Number of frames, about.
    """

    def __init__(self, chain: Chain):
        self._chain = chain
        self.n_frames = chain.n_expected

    def times(self) -> np.ndarray:
        """Times of all frames, ps, if they are as far apart as those that are known.

        Returns
        -------
        numpy.ndarray of float64, shape (n_frames,)
            NaN where no time is known.
        """
        known = self._chain.times()
        numbers = np.arange(len(known)) + (self.n_frames - len(known)) // 2
        # Medians: a file may hold the times of several runs.
        dt = np.nanmedian(np.diff(known)) if len(known) > 1 else 0.0
        return np.nanmedian(known - dt * numbers) + dt * np.arange(self.n_frames)
