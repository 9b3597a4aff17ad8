"""Workers that need the same thing wait for one another."""

import math


def queued(alone: float, service: float, n_workers: float) -> float:
    """Time of a frame where workers take turns at something for a part of it.

    A closed queue: each worker spends `alone - service` by itself, then waits for its turn, which
    takes `service`. Found by Schweitzer's approximation of mean value analysis (Schweitzer 1979,
    Bard 1979), which has a closed form for one queue. It is exact for one worker, and for many it
    tends to `n_workers * service`: then the thing is always busy, and more workers gain nothing.

    Parameters
    ----------
    alone : float
        Time of a frame for a worker alone, s, its turn included.
    service : float
        How long its turn takes, s. If that is longer than `alone`, the frame was measured where
        there was no turn to wait for, and takes no less than it.
    n_workers : float
        Who take turns.

    Returns
    -------
    float
        Time of a frame, s.

    Examples
    --------
    >>> queued(alone=1.0, service=0.1, n_workers=1)
    1.0
    >>> f"{queued(alone=1.0, service=0.1, n_workers=10):.2f} {queued(1.0, 0.1, 1000):.1f}"
    '1.25 100.0'
    """
    own = max(0.0, alone - service)
    busy = n_workers * service
    return (own + busy + math.sqrt((own - busy) ** 2 + 4 * own * service)) / 2
