"""Figures for file systems and networks, and ways to share files and work."""

import math
from dataclasses import dataclass, fields
from typing import Literal, get_args

from paceline.errors import UnsupportedError

Schedule = Literal["dynamic", "static"]
Layout = Literal["shared", "split", "h5md"]
SCHEDULES: tuple[str, ...] = get_args(Schedule)
LAYOUTS: tuple[str, ...] = get_args(Layout)


@dataclass(frozen=True, slots=True)
class FileSystem:
    """File system that the trajectory lies on.

    Attributes
    ----------
    servers : int
        Disks or servers that hold data.
    stripe_count : int
        Disks or servers among which one file is divided.
    server_bandwidth : float
        Bytes per second from one of them.
    node_bandwidth : float
        Bytes per second that one client node can take in.
    latency : float
        From asking for bytes to the first of them, s. It counts only where reading was not
        measured: see `read_time`.
    t_request : float
        What a request costs the server beside its bytes, s.
    t_lock : float
        How long a request holds a lock that the processes of a node share with all that read the
        same file, s.
    t_open : float
        What opening a file adds that all workers open, s: they do it one after another.
    t_metadata : float
        What an open of any file costs the metadata server, s.

    Raises
    ------
    UnsupportedError
        A count or a bandwidth is not above 0, or a time is negative.
    """

    servers: int = 1
    stripe_count: int = 1
    server_bandwidth: float = math.inf
    node_bandwidth: float = math.inf
    latency: float = 0.0
    t_request: float = 0.0
    t_lock: float = 0.0
    t_open: float = 0.0
    t_metadata: float = 0.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            is_time = field.name.startswith("t_") or field.name == "latency"
            if not (value >= 0 if is_time else value > 0):
                wanted = "0 s or more" if is_time else "more than 0"
                raise UnsupportedError(
                    f"{field.name} of a file system: expected {wanted}, found {value}"
                )

    def read_time(self, n_bytes: float, request_frames: float = 1) -> float:
        """Time to read a frame, where it was not measured.

        Parameters
        ----------
        n_bytes : float
            Of a frame.
        request_frames : float
            Frames that are read at once.

        Returns
        -------
        float
            Seconds, of one worker alone.

        Examples
        --------
        >>> FileSystem(server_bandwidth=1e9, latency=1e-3).read_time(10_000, request_frames=100)
        2e-05
        """
        bandwidth = min(self.stripe_count * self.server_bandwidth, self.node_bandwidth)
        return (self.latency + self.t_request) / request_frames + n_bytes / bandwidth


@dataclass(frozen=True, slots=True)
class Network:
    """Network over which results come back.

    Attributes
    ----------
    latency : float
        Of a message, s.
    bandwidth : float
        Bytes per second into one node.
    """

    latency: float = 0.0
    bandwidth: float = math.inf


#: Figures to begin with: measure your own. They are round ones of data sheets, but for
#:
#: - "comet": SDSC Comet's Lustre as MDAnalysis 0.17 used it; `t_lock`, `t_request` and `t_open` are
#:   fitted to published times (`python -m benchmarks model`).
#: - "lustre": the same locks and requests, without MDAnalysis's opening. Servers gave at least
#:   4.8 GB/s of one file: 30 GB to 160 ranks in 6.24 s (Khoshlessan et al. 2020, Table 5). With
#:   it, Comet's requests, of 1,752 bytes, take what was fitted.
FILE_SYSTEMS = {
    "memory": FileSystem(),
    "ssd": FileSystem(server_bandwidth=2e9, latency=1e-4, t_metadata=1e-5),
    "hdd": FileSystem(server_bandwidth=150e6, latency=8e-3, t_metadata=1e-2),
    "nfs": FileSystem(server_bandwidth=117e6, node_bandwidth=117e6, latency=5e-4, t_metadata=1e-3),
    "lustre": FileSystem(
        servers=32,
        server_bandwidth=4.8e9,
        node_bandwidth=7e9,
        latency=5e-4,
        t_request=0.57e-6,
        t_lock=21.7e-6,
        t_metadata=50e-6,
    ),
    "comet": FileSystem(
        servers=32, node_bandwidth=7e9, t_request=0.93e-6, t_lock=21.7e-6, t_open=0.49
    ),
}
NETWORKS = {
    "none": Network(),
    "ethernet": Network(latency=5e-5, bandwidth=117e6),
    "infiniband": Network(latency=2e-6, bandwidth=7e9),
}
