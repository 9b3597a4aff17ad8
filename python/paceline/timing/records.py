"""What is known of one block, of one attempt that did not count, and of one worker."""

from dataclasses import dataclass

#: Parts of a block, in the order in which they happen.
PARTS = ("open", "read", "decode", "transform", "compute")


@dataclass(frozen=True, slots=True)
class BlockTiming:
    """What one block took. Times are nanoseconds; `start` and `end` those of the host's clock.

    Attributes
    ----------
    job, block, first_frame, n_frames : int
        The trajectory, where a run has several; the block, the number of its first frame, and its
        frames.
    worker : str
        host:process:thread.
    start, end : int
        When the worker took the block, and when it was done with it.
    wait : int
        Before `start`, since the worker was free.
    open, read, decode, transform, compute : int
        Opening the file, waiting for bytes, decoding, transforming positions, and the analyses'
        own time.
    comm : int
        From `end` until the results were in their place; the worker may be at its next block.
    bytes, calls : int
        Bytes read from the file, and in how many calls.
    """

    job: int
    block: int
    first_frame: int
    n_frames: int
    worker: str
    start: int
    end: int
    wait: int
    open: int
    read: int
    decode: int
    transform: int
    compute: int
    comm: int
    bytes: int
    calls: int


@dataclass(frozen=True, slots=True)
class Abandoned:
    """An attempt at a block that did not count: another worker was done with it sooner.

    Attributes
    ----------
    timing : BlockTiming
        Of the attempt. Of one that never came: when it was dealt and given up, without parts; the
        worker is empty where nobody knows who had it.
    came : bool
        Whether it came too late, rather than never.
    """

    timing: BlockTiming
    came: bool


@dataclass(frozen=True, slots=True)
class WorkerTiming:
    """Sums over the blocks of one worker, seconds.

    The parts `t_init_traj`, `t_io`, `t_decode`, `t_transform`, `t_compute`, `t_abandoned`, `t_wait`
    and `t_overhead` add up to the time from when blocks were first dealt until the last worker was
    done.

    Attributes
    ----------
    worker : str
        host:process:thread.
    n_blocks, n_frames : int
        What it did.
    t_init_traj : float
        Opening the file, s.
    t_io : float
        Reading, s. Bytes are fetched in the background ahead of it, so this is waiting alone.
    t_decode, t_transform, t_compute : float
        Decoding, transforming positions, and the analyses' own time, s.
    t_abandoned : float
        At blocks that other workers were done with sooner, s.
    t_wait : float
        Idle, s: until the first block (a process must start), between blocks, and at the end.
    t_wait_first, t_wait_last : float
        Of `t_wait` what came before its first block, and after its last one, s.
    t_overhead : float
        The rest of the time at blocks, s.
    t_comm : float
        Returning results, s: mostly while the worker is at its next block, so no part of the sum.
    bytes, calls : int
        Bytes read from the file, and in how many calls.
    """

    worker: str
    n_blocks: int
    n_frames: int
    t_init_traj: float
    t_io: float
    t_decode: float
    t_transform: float
    t_compute: float
    t_abandoned: float
    t_wait: float
    t_wait_first: float
    t_wait_last: float
    t_overhead: float
    t_comm: float
    bytes: int
    calls: int

    @property
    def host(self) -> str:
        """Where it ran."""
        return host_of(self.worker)

    @property
    def t_io_stall(self) -> float:
        """The part of reading that was not hidden, s: as the rest is not counted, `t_io`."""
        return self.t_io

    @property
    def t_work(self) -> float:
        """Time at blocks that counted, s."""
        opening_and_reading = self.t_init_traj + self.t_io
        return (
            opening_and_reading
            + self.t_decode
            + self.t_transform
            + self.t_compute
            + self.t_overhead
        )

    @property
    def seconds_per_frame(self) -> float:
        """Time at work per frame, s."""
        return self.t_work / max(self.n_frames, 1)


def host_of(worker: str) -> str:
    """The host of a worker.

    Parameters
    ----------
    worker : str
        host:process:thread, or an address of Dask's.

    Returns
    -------
    str

    Examples
    --------
    >>> host_of("node7:4711:4712"), host_of("tcp://10.0.0.7:40123")
    ('node7', '10.0.0.7')
    """
    _, _, address = worker.rpartition("://")
    return address.rsplit(":", 2 if address == worker else 1)[0]
