"""Figures for file systems, and ways to share files and work."""

import math
from dataclasses import dataclass
from typing import Literal, get_args

from paceline.errors import UnsupportedError

Layout = Literal["shared", "split"]
LAYOUTS: tuple[str, ...] = get_args(Layout)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSystem:
    """File system that the trajectory lies on.

    Attributes
    ----------
    server_bandwidth : float
        Bytes per second that it delivers to all workers together.
    t_lock : float
        How long a request holds a lock that the processes of a node share with all that read the
        same file, s.

    Raises
    ------
    UnsupportedError
        The bandwidth is not above 0, or the time is negative.
    """

    server_bandwidth: float = math.inf
    t_lock: float = 0.0

    def __post_init__(self) -> None:
        if not self.server_bandwidth > 0:
            raise UnsupportedError(
                "server_bandwidth of a file system: expected more than 0, found "
                f"{self.server_bandwidth}"
            )
        if not 0 <= self.t_lock < math.inf:
            raise UnsupportedError(
                f"t_lock of a file system: expected 0 s or more, found {self.t_lock}"
            )


#: Figures to begin with: measure your own. Bandwidths are round ones of data sheets, but for
#: "lustre": at least 6 GB/s, 30 GB to 192 ranks in 5 s (Khoshlessan et al. 2020, Table 5). Its lock
#: is fitted to the same table (`python -m benchmarks model`).
FILE_SYSTEMS = {
    "memory": FileSystem(),
    "ssd": FileSystem(server_bandwidth=2e9),
    "hdd": FileSystem(server_bandwidth=150e6),
    "nfs": FileSystem(server_bandwidth=117e6),
    "lustre": FileSystem(server_bandwidth=6e9, t_lock=22e-6),
}
