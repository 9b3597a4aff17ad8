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
        dt = (known[-1] - known[0]) / max(len(known) - 1, 1)
        # Those that are known are in the middle.
        return known.mean() + dt * (np.arange(self.n_frames) - (self.n_frames - 1) / 2)
