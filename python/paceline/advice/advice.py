"""What a run would take, and what would help: numbers, and in words when printed."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from paceline.advice.costs import Costs
from paceline.advice.forecast import Forecast, Pace
from paceline.advice.formats import Recoded
from paceline.advice.measuring import Findings

#: More workers pay off as long as each does so much of what one alone does.
EFFICIENT = 0.7
#: An analysis that wants no processor for more than this part of the time waits.
WAITING = 0.5
#: Workers for each processor that are asked about where they wait.
PER_CPU_WAITING = 8


@dataclass(frozen=True)
class Advice:
    """What a run would take, and what would help; print it for the words.

    Attributes
    ----------
    what : str
        The analyses.
    files : tuple of str
        The trajectory.
    format : str
        Of the first file.
    size : int
        Of all files, bytes.
    n_atoms, n_wanted : int
        Atoms of a frame, and those that are decoded.
    n_frames : int
        Frames of the run; estimated if `is_sample`.
    is_sample : bool
        Whether the file has no index yet, and only frames in its middle were looked for.
    cached : float or None
        How much of what the run reads was in memory before, from 0 to 1; None where that is not
        told.
    findings : Findings
        What was measured.
    rates : tuple of float or None
        Bytes a second that one reader gets from the disk, and two together.
    forecast : Forecast
        How times follow from that.
    others : tuple of Recoded
        The same frames in other files.
    cpus : int
        CPUs that this process may use.
    asked : int or None
        Workers that the user asked about.
    seconds : float
        What it took to find all this.
    """

    what: str
    files: tuple[str, ...]
    format: str
    size: int
    n_atoms: int
    n_wanted: int
    n_frames: int
    is_sample: bool
    cached: float | None
    findings: Findings
    rates: tuple[float, float] | None
    forecast: Forecast
    others: tuple[Recoded, ...]
    cpus: int
    asked: int | None
    seconds: float

    @property
    def backend(self) -> str:
        """Where blocks would be computed."""
        return self.findings.backend

    @property
    def waits(self) -> bool:
        """Whether the analysis waits for something that is no processor."""
        return self.findings.waiting > WAITING

    @cached_property
    def workers(self) -> tuple[int, ...]:
        """Numbers of workers that are asked about."""
        if self.backend == "serial":
            return (1,)
        most = self.cpus * (PER_CPU_WAITING if self.waits else 1)
        powers = {2**k for k in range(most.bit_length())}
        return tuple(sorted(powers | {2, self.cpus} | ({self.asked} if self.asked else set())))

    def t_total(self, n_workers: int, file: str = "now") -> float:
        """How long the run would take.

        Parameters
        ----------
        n_workers : int
            Workers.
        file : {"now", "memory", "disk"}
            Where its bytes are: as much in memory as now, all of them, or none.

        Returns
        -------
        float
            Seconds; of "disk" NaN where that could not be measured.
        """
        memory = self.forecast.t_total(self.findings.in_memory, n_workers)
        if file == "memory":
            return memory
        disk = float("nan")
        if self.findings.from_disk is not None:
            disk = self.forecast.t_total(self.findings.from_disk, n_workers)
        if file == "disk":
            return disk
        if file != "now":
            raise ValueError(f"file must be 'now', 'memory' or 'disk', not {file!r}")
        share = self._share
        return memory if share == 1 else share * memory + (1 - share) * disk

    @property
    def _share(self) -> float:
        """Of the bytes, what is taken to be in memory."""
        return 1.0 if self.cached is None or self.findings.from_disk is None else self.cached

    def efficiency(self, n_workers: int) -> float:
        """What each of so many workers does of what one alone does."""
        return self.t_total(1) / (n_workers * self.t_total(n_workers))

    @cached_property
    def n_workers(self) -> int:
        """The most workers that pay off: each does 0.7 or more of what one alone does."""
        best = 1
        for n_workers in self.workers:
            if self.efficiency(n_workers) < EFFICIENT:
                break
            best = n_workers
        return best

    @property
    def pace(self) -> Pace:
        """What frames cost where most bytes are now."""
        disk = self.findings.from_disk
        return self.findings.in_memory if disk is None or self._share >= 0.5 else disk

    @property
    def costs(self) -> Costs:
        """What a frame costs one of `n_workers`, now."""
        return self.pace.costs(self.n_workers)

    @property
    def bound(self) -> str:
        """What takes most of a worker's time: "read", "decode", "transform", "compute", "rest"."""
        parts = self.costs.parts
        return max(parts, key=parts.__getitem__)

    def t_other(self, file: Recoded, where: str) -> float:
        """How long the run would take on another file, by `n_workers`.

        Parameters
        ----------
        file : Recoded
            Of `others`.
        where : {"memory", "disk"}
            Where its bytes are.

        Returns
        -------
        float
            Seconds; of "disk" NaN where that could not be measured.
        """
        rate = None
        if where == "disk":
            if self.rates is None:
                return float("nan")
            rate = self.rates[min(self.n_workers, 2) - 1]
        return self.forecast.t_recoded(self.findings.in_memory, file, self.n_workers, rate)

    def t_convert(self, file: Recoded) -> float:
        """Making another file by `n_workers`, s, but for what the disk takes to write it."""
        decoding = self.forecast.t_convert(file, self.n_workers)
        if self.rates is None or self.cached is None:
            return decoding
        from_disk = (1 - self.cached) * self.size / self.rates[min(self.n_workers, 2) - 1]
        return max(decoding, from_disk)

    def rows(self) -> Sequence[tuple[int, float, float, float, float]]:
        """Workers, and seconds in memory, from the disk and now, and the efficiency."""
        return [
            (
                n,
                self.t_total(n, "memory"),
                self.t_total(n, "disk"),
                self.t_total(n),
                self.efficiency(n),
            )
            for n in self.workers
        ]

    def __str__(self) -> str:
        from paceline.advice.words import told

        return told(self)
