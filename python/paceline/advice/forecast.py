"""From what parts of a run told to the time of the whole: arithmetic, by `paceline.model`."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from paceline.advice.costs import Costs, Measured
from paceline.advice.formats import Recoded
from paceline.model import FILE_SYSTEMS, FileSystem, FrameCost, predict


@dataclass(frozen=True)
class Pace:
    """What a frame costs, depending on how many workers are at work.

    Attributes
    ----------
    one, two : Measured
        With one worker, and with two; the same where there can be only one.
    busy : float
        Processor time of a frame, s.
    cpus : int
        Processors that workers share.
    """

    one: Measured
    two: Measured
    busy: float
    cpus: int

    def costs(self, n_workers: int) -> Costs:
        """What a frame costs one of so many workers.

        What two workers cost each other, each further one costs them once more, as it does where
        they take turns at something (Gunther 1993, the serial fraction). Together they get no more
        processor time than there is.
        """
        if n_workers == 1:
            return self.one.costs
        two = self.two.costs
        if n_workers == 2:
            return two
        parts = {
            name: value + (n_workers - 2) * max(0.0, value - self.one.costs.parts[name])
            for name, value in two.parts.items()
        }
        costs = Costs(**parts)
        lacking = n_workers / self.cpus * self.busy - costs.seconds
        return replace(costs, rest=costs.rest + max(0.0, lacking))

    def fixed(self, n_workers: int) -> float:
        """What such a run takes whatever its length, s."""
        return self.one.fixed if n_workers == 1 else self.two.fixed


@dataclass(frozen=True)
class Forecast:
    """How long a run takes.

    Attributes
    ----------
    n_frames : int
        Of the run.
    block_frames : callable
        Frames of a block for so many workers.
    """

    n_frames: int
    block_frames: Callable[[int], int]

    def t_total(self, pace: Pace, n_workers: int) -> float:
        """Of the file that there is, s.

        Parameters
        ----------
        pace : Pace
            What its frames cost.
        n_workers : int
            Workers.
        """
        cost = _frame_cost(pace.costs(n_workers), pace.one.n_bytes)
        return self._predict(cost, n_workers, FILE_SYSTEMS["memory"], pace.fixed(n_workers))

    def t_recoded(self, pace: Pace, file: Recoded, n_workers: int, rate: float | None) -> float:
        """Of another file, s.

        Parameters
        ----------
        pace : Pace
            What frames cost of the file that there is, in memory.
        file : Recoded
            The other one.
        n_workers : int
            Workers.
        rate : float or None
            Bytes a second from the disk; None where the file is in memory.
        """
        alone, beside = file.reading
        reading = alone if n_workers == 1 else max(alone, beside)
        costs = replace(pace.costs(n_workers), read=reading, decode=0.0)
        system = FILE_SYSTEMS["memory"]
        if rate is not None:
            system = FileSystem(server_bandwidth=rate)
            # Bytes come while others are decoded: only what takes longer is waited for.
            stall = max(0.0, file.n_bytes / rate - costs.seconds)
            costs = replace(costs, read=reading + stall)
        cost = _frame_cost(costs, file.n_bytes)
        return self._predict(cost, n_workers, system, pace.fixed(n_workers))

    def t_convert(self, file: Recoded, n_workers: int) -> float:
        """Making another file, s, but for what the disk takes to write it."""
        cost = FrameCost(read=0.0, decode=0.0, compute=file.writing, bytes=file.frame_bytes)
        return self._predict(cost, n_workers, FILE_SYSTEMS["memory"], 0.0)

    def _predict(
        self, cost: FrameCost, n_workers: int, system: FileSystem, t_start: float
    ) -> float:
        return predict(
            cost,
            self.n_frames,
            n_workers,
            file_system=system,
            block_frames=self.block_frames(n_workers),
            t_start=t_start,
        ).t_total


def _frame_cost(costs: Costs, n_bytes: float) -> FrameCost:
    """In the model's terms."""
    compute = costs.transform + costs.compute + costs.rest
    return FrameCost(read=costs.read, decode=costs.decode, compute=compute, bytes=n_bytes)
